//! The lab's experiments: what they hold of the originals, how they scale, and the pages that come of them.

use super::experiment::{Axis, Experiment, OWN, Phase, Place, SCALE, Value, Workload};
use super::pages::page;
use super::plan::Plan;
use super::record::Record;
use super::record::testing::record;
use super::results::Results;
use super::settings::Settings;
use crate::page::{Cell, Part, Plot, Section};

fn experiment(name: &str) -> Experiment {
    Experiment::parse(OWN.iter().chain([&SCALE]).find(|(known, _)| *known == name).unwrap().1).unwrap()
}

/// The sum of the numbers of a column: who mistypes one of them changes it.
fn sum(experiment: &Experiment, table: &str, column: &str) -> f64 {
    let table = &experiment.tables[table];
    let column = table.column(column).unwrap();
    let sum: f64 = table.rows.iter().filter_map(|row| row[column].number()).sum();
    (sum * 1e4).round() / 1e4
}

#[test]
fn every_chart_and_table_of_the_originals_is_there() {
    let wanted: [(&str, Vec<String>); 5] = [
        ("tpcc-memory", (1..=13).map(|n| format!("A{n}")).collect()),
        ("redmine", (1..=9).map(|n| format!("B{n}")).collect()),
        ("linkbench", (1..=3).map(|n| format!("C{n}")).collect()),
        ("xa", (1..=6).map(|n| format!("D{n}")).collect()),
        ("compressible", (1..=10).map(|n| format!("E{n}")).collect()),
    ];
    for (name, wanted) in wanted {
        let experiment = experiment(name);
        for id in wanted {
            assert!(experiment.figures.iter().any(|figure| figure.id == id), "{name} has no {id}");
        }
        assert!(!experiment.claims.is_empty() && !experiment.conditions.is_empty());
    }
}

#[test]
fn figures_of_tpcc_over_memory() {
    let a = experiment("tpcc-memory");
    assert_eq!(
        (a.tables["throughput"].rows.len(), a.tables["cpu"].rows.len(), a.tables["size"].rows.len()),
        (11, 11, 3)
    );
    for (column, expected) in [
        ("GB", 555.0),
        ("InnoDB tps", 41269.8264),
        ("MyRocks tps", 49179.142),
        ("InnoDB write KB/s", 2847156.0),
        ("MyRocks write KB/s", 1037077.69),
        ("InnoDB read KB/s", 1112960.01),
        ("MyRocks read KB/s", 1081454.76),
    ] {
        assert_eq!(sum(&a, "throughput", column), expected, "{column}");
    }
    for row in &a.tables["cpu"].rows {
        let numbers: Vec<f64> = row.iter().filter_map(Value::number).collect();
        let [i, m] = [1, 5].map(|at| numbers[at..at + 4].iter().sum::<f64>());
        assert!((98.0..=101.0).contains(&i) && (98.0..=101.0).contains(&m), "the states of {} GB", numbers[0]);
        // ms/tx as derived from the throughput.
        let tps = &a.tables["throughput"].rows.iter().find(|row| row[0].number() == Some(numbers[0])).unwrap();
        let ms = |busy: f64, tps: f64| busy * 56.0 / 100.0 / tps * 1e3;
        assert!((ms(numbers[1] + numbers[2], tps[1].number().unwrap()) - numbers[9]).abs() < 0.006);
        assert!((ms(numbers[5] + numbers[6], tps[2].number().unwrap()) - numbers[10]).abs() < 0.006);
    }
    // What was derived follows from what was published.
    for row in &a.tables["throughput"].rows {
        let n: Vec<f64> = row.iter().filter_map(Value::number).collect();
        for (derived, from) in
            [(n[3], n[2] / n[1]), (n[8], n[4] / n[1]), (n[9], n[5] / n[2]), (n[10], n[6] / n[1]), (n[11], n[7] / n[2])]
        {
            assert!((derived - from).abs() < 0.0501, "{derived} at {} GB, {from}", n[0]);
        }
    }
}

#[test]
fn figures_of_linkbench() {
    let c = experiment("linkbench");
    for (table, rows, columns) in [("load", 7, 9), ("requests", 7, 11)] {
        assert_eq!((c.tables[table].rows.len(), c.tables[table].columns.len()), (rows, columns));
    }
    for (table, column, expected) in [
        ("load", "ips", 753_823.0),
        ("load", "wKB/i", 10.57),
        ("load", "Mcpu/i", 921.0),
        ("load", "rss GB", 156.8),
        ("requests", "tps", 184_645.0),
        ("requests", "write KB/t", 46.95),
        ("requests", "read KB/t", 297.04),
        ("requests", "Mcpu/t", 8668.0),
    ] {
        assert_eq!(sum(&c, table, column), expected, "{table}, {column}");
    }
    // MB/s are KB an operation times the rate, and CPU is Mcpu times the rate.
    for (table, kb, cpu, last) in
        [("load", "wKB/i", "Mcpu/i", "write MB/s"), ("requests", "write KB/t", "Mcpu/t", "write MB/s")]
    {
        let table = &c.tables[table];
        let at = |row: &[Value], name: &str| row[table.column(name).unwrap()].number().unwrap();
        for row in &table.rows {
            let rate = row[1].number().unwrap();
            assert!((at(row, kb) * rate / 1000.0 / at(row, last) - 1.0).abs() < 0.02, "{row:?}");
            assert!((at(row, "cpu %") * 1e6 / rate / at(row, cpu) - 1.0).abs() < 0.02, "{row:?}");
        }
    }
}

#[test]
fn figures_of_redmine() {
    let b = experiment("redmine");
    assert_eq!(sum(&b, "times", "MyRocks"), 1.865);
    assert_eq!(sum(&b, "times", "InnoDB"), 5.4165);
    assert_eq!((b.tables["stated"].rows.len(), b.tables["summary"].rows.len(), b.tables["sets"].rows.len()), (6, 3, 3));
    // The data sets are those of the settings.
    let full = Settings::of(&b, &b.scales["full"]).unwrap();
    for row in &b.tables["sets"].rows {
        let set = &full.sets[&row[0].to_string().to_lowercase()];
        let number = |column: &str| row[b.tables["sets"].column(column).unwrap()].number().unwrap() as u64;
        assert_eq!(
            (number("users"), number("issues"), number("users a project")),
            (set.users, set.issues, full.members)
        );
        assert_eq!(number("comments in sum"), set.issues * full.comments);
    }
    // The conclusions follow from the times, as far as two digits of these go.
    let time = |of: &str, set: &str, case: &str, processes: f64| {
        let place = [Value::Text(set.into()), Value::Text(case.into()), Value::Number(processes)];
        let row = b.tables["times"].rows.iter().find(|row| row[..3] == place).unwrap();
        row[b.tables["times"].column(of).unwrap()].number().unwrap()
    };
    let mut compared = 0;
    for claim in b.claims.iter().filter(|claim| claim.over.as_deref() == Some("innodb") && claim.original.is_some()) {
        use super::experiment::{At, End};
        let text = |axis| {
            if let At::Value(Value::Text(text)) = &claim.at[&axis] { text.as_str() } else { panic!("{claim:?}") }
        };
        let processes = if claim.at[&Axis::Processes] == At::End(End::First) { 1.0 } else { 4.0 };
        let of = |engine| time(engine, text(Axis::Set), text(Axis::Case), processes);
        let ratio = of("MyRocks") / of("InnoDB");
        assert!((claim.original.unwrap() / ratio - 1.0).abs() < 0.06, "{}: {ratio}", claim.text);
        compared += 1;
    }
    assert_eq!(compared, 12);
}

#[test]
fn a_grid_has_ours_and_the_original_s_at_their_places() {
    let results = results("redmine");
    let page = page(&results).unwrap();
    let parts = &section(&page.sections, "B2").parts;
    let charts: Vec<_> =
        parts.iter().filter_map(|part| if let Part::Chart(chart) = part { Some(chart) } else { None }).collect();
    let Plot::Bars { categories, bars } = &charts[0].plot else { panic!("{:?}", charts[0]) };
    assert_eq!(categories.len(), 6);
    assert_eq!((categories[0].as_str(), categories[5].as_str()), ("1, none", "4, 4 threads"));
    let names: Vec<String> = bars.iter().map(|bars| format!("{} {:?}", bars.name, bars.origin)).collect();
    assert_eq!(names, ["InnoDB Ours", "RocksDB Ours", "Strata Ours", "InnoDB Original", "RocksDB Original"]);
    let told: Vec<usize> = (0..6).filter(|n| bars[3].values[*n].is_some()).collect();
    assert_eq!(told, [0, 5], "least and full load");
    assert_eq!(bars[3].values[5].map(|figure| figure.value), Some(0.23));
    // 0.06 s over 0.02 s; the original's 0.23 over 0.023.
    let Plot::Bars { bars, .. } = &charts[1].plot else { panic!("{:?}", charts[1]) };
    let near = |n: usize, at: usize, expected: f64| (bars[n].values[at].unwrap().value - expected).abs() < 1e-9;
    assert_eq!((bars.len(), bars[1].name.as_str(), bars[2].origin), (3, "Strata", crate::page::Origin::Original));
    assert!(near(1, 0, 3.0) && near(2, 5, 10.0));
    // The last pair of charts: two sets, least and full.
    let table = section(&page.sections, "B8")
        .parts
        .iter()
        .find_map(|part| if let Part::Table(table) = part { Some(table) } else { None });
    let table = table.unwrap();
    let heads: Vec<&str> = table.rows.iter().map(|row| row.head.as_str()).collect();
    assert_eq!(heads[0], "large, 1, none");
    assert_eq!(heads[3], "giant, 4, 4 threads");
}

#[test]
fn what_is_preserved_of_the_other_two() {
    let d = experiment("xa");
    assert_eq!((d.tables["preserved"].rows.len(), d.tables["cases"].rows.len()), (7, 6));
    let e = experiment("compressible");
    assert_eq!((e.tables["data"].rows.len(), e.tables["found"].rows.len()), (5, 8));
}

#[test]
fn one_factor_scales_data_memory_and_time() {
    for (name, _) in OWN {
        let experiment = experiment(name);
        let of = |scale: &str| Settings::of(&experiment, &experiment.scales[scale]).unwrap();
        let (full, short, factor) = (of("full"), of("short"), experiment.scales["short"].factor);
        assert_eq!(experiment.scales["full"].factor, 1.0, "{name}");
        let divided = |full: u64| if full == 0 { 0 } else { ((full as f64 / factor).round() as u64).max(1) };
        assert_eq!(short.seconds, divided(full.seconds), "{name}");
        assert_eq!(short.warmup, divided(full.warmup), "{name}");
        assert_eq!(short.memory_mb, divided(full.memory_mb), "{name}");
        let data = |s: &Settings| match experiment.workload {
            Workload::Tpcc => u64::from(s.warehouses),
            Workload::Linkbench => s.nodes,
            Workload::Sysbench | Workload::Compressible => s.rows,
            Workload::Redmine => s.sets["giant"].issues,
        };
        assert_eq!(data(&short), divided(data(&full)), "{name}");
        assert_eq!((short.tables, short.windows), (full.tables, full.windows), "{name}");
    }
    assert_eq!(
        Settings::of(&experiment("tpcc-memory"), &experiment("tpcc-memory").scales["full"]).unwrap().warehouses,
        1000
    );
}

#[test]
fn the_smallest_data_are_measured_once_for_both_budgets() {
    use super::plan::Step;
    let plan = Plan::new(experiment("scale"), "short", &["strata".into()], None).unwrap();
    let loads = plan.steps.iter().filter(|step| matches!(step, Step::Load { .. })).count();
    let measured = plan.steps.iter().filter(|step| matches!(step, Step::Measure { .. })).count();
    assert_eq!((loads, measured), (3, 5));
    let at = |size: f64, budget: &str| {
        Place::from([(Axis::Size, Value::Number(size)), (Axis::Budget, Value::Text(budget.into()))])
    };
    assert_eq!(plan.measured_as(&at(1.0, "growing")), at(1.0, "fixed"));
    assert_eq!(plan.measured_as(&at(4.0, "growing")), at(4.0, "growing"));
    let results = results("scale");
    let subject = results.baseline();
    assert_eq!(results.at(subject, Phase::Run, &at(1.0, "growing")).0.len(), 2, "two rounds");
}

#[test]
fn scale_names_its_laws() {
    for (right, wrong, says) in [
        ("tps = \"rate\", ", "", "each metric has a law"),
        ("tps = \"rate\"", "tps = \"speed\"", "speed"),
        ("workload = \"tpcc\"", "workload = \"linkbench\"", "with TPC-C only"),
        (
            "axis = \"size\"\nhow = \"data\"\nvalues = [1, 4, 16]",
            "axis = \"case\"\nhow = \"data\"\nvalues = [1]",
            "size",
        ),
    ] {
        assert!(SCALE.1.contains(right), "{right}");
        let error = format!("{:#}", Experiment::parse(&SCALE.1.replacen(right, wrong, 1)).unwrap_err());
        assert!(error.contains(says), "{wrong}: {error}");
    }
}

#[test]
fn what_a_file_names_wrongly_is_refused() {
    let text = OWN[0].1;
    for (right, wrong, says) in [
        ("metric = \"tps\"", "metric = \"tpx\"", "no metric tpx"),
        ("x = \"GB\"", "x = \"TB\"", "no column TB"),
        ("table = \"cpu\"", "table = \"gpu\"", "no table gpu"),
        ("at = { memory = \"first\" }", "at = { binlog = \"first\" }", "binlog is not varied"),
        ("isolation = \"read-committed\"", "isolation = \"none\"", "no isolation level"),
        ("sessions = 64", "sesions = 64", "sesions"),
        ("[5, 849.0664,", "[849.0664,", "a row of table throughput"),
        ("form = \"scatter\"", "form = \"pie\"", "pie"),
    ] {
        assert!(text.contains(right), "{right}");
        let error = format!("{:#}", Experiment::parse(&text.replacen(right, wrong, 1)).unwrap_err());
        assert!(error.contains(says), "{wrong}: {error}");
    }
}

/// The data in multiples of the smallest.
fn size(data: &Place) -> f64 {
    data.get(&Axis::Size).and_then(Value::number).unwrap_or(1.0)
}

/// Every record that a plan would leave, with numbers that depend on engine and place.
fn all_records(plan: &Plan) -> Vec<Record> {
    use super::plan::Step;
    let mut records = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Load { subject, data } => {
                let place: Vec<_> = data.clone().into_iter().collect();
                let mut load = record(plan.subjects[*subject].id(), 1, &place, 5000);
                load.phase = Phase::Load;
                load.run.disk.data = (100 - 10 * *subject as u64) << 20;
                load.run.further.extend([("migrate s".into(), 20.0), ("logical MB".into(), 80.0 * size(data))]);
                records.push(load);
            }
            Step::Measure { subjects, rounds, data, place, inner } => {
                let turns = inner.iter().flat_map(|inner| rounds.iter().map(move |round| (inner, round)));
                let turns = turns.flat_map(|turn| subjects.iter().map(move |subject| (turn, subject)));
                for ((inner, round), subject) in turns {
                    for window in 1..=plan.settings.windows() {
                        let mut place: Vec<_> =
                            data.iter().chain(place).chain(inner).map(|(axis, value)| (*axis, value.clone())).collect();
                        if plan.settings.windows > 1 {
                            place.push((Axis::Window, Value::Number(f64::from(window))));
                        }
                        let transactions = 1000 * (*subject as u64 + 1) + u64::from(window);
                        let mut run = record(plan.subjects[*subject].id(), *round, &place, transactions);
                        run.run.series = vec![100.0, 110.0, 90.0];
                        run.run.latency.p95_us = 5000;
                        run.run.latency.p99_us = 9000;
                        run.run.usage.cpu_us = 700 * transactions;
                        run.run.usage.read_bytes = 512 * transactions;
                        run.watch.user = vec![50.0; 3];
                        run.watch.system = vec![10.0; 3];
                        run.watch.wait = vec![20.0; 3];
                        run.watch.idle = vec![20.0; 3];
                        run.watch.directory_mb = vec![20.0, 25.0, 30.0];
                        run.watch.device_ms = vec![1.0; 3];
                        run.watch.reads = vec![10.0; 3];
                        run.watch.writes = vec![10.0; 3];
                        run.watch.rows = vec![7.0; 3];
                        run.run.usage.rss_peak = 64 << 20;
                        run.run.disk.data = 50 << 20;
                        run.run.further.insert("statements".into(), 4.0);
                        run.run.further.insert("op s".into(), 0.06 / (*subject + 1) as f64);
                        for part in ["application ms", "server ms", "queue ms", "rest ms"] {
                            run.run.further.insert(part.into(), 15.0 / (*subject + 1) as f64);
                        }
                        run.run.further.extend([("open ms".into(), 200.0), ("recover ms".into(), 300.0 * size(data))]);
                        records.push(run);
                    }
                    if let Some(last) = records.last().filter(|_| plan.settings.paced_seconds > 0) {
                        let mut paced = Record { phase: Phase::Paced, ..last.clone() };
                        paced.place.remove(&Axis::Window);
                        records.push(paced);
                    }
                }
            }
            Step::Forget { .. } => {}
        }
    }
    records
}

/// An experiment with all records that its plan would leave.
pub fn results(name: &str) -> Results {
    let plan = Plan::new(experiment(name), "short", &[], Some(2)).unwrap();
    let records = all_records(&plan);
    Results { plan, records }
}

/// Whether something is drawn or filled in.
fn is_filled(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.is_empty(),
        Part::Table(table) => table.rows.iter().any(|row| row.cells.iter().any(|cell| !matches!(cell, Cell::Empty))),
        Part::Chart(chart) => match &chart.plot {
            Plot::Lines(series) | Plot::Scatter(series) => series.iter().any(|series| !series.points.is_empty()),
            Plot::Jitter { samples, .. } | Plot::Boxes { samples, .. } => {
                samples.iter().any(|samples| samples.values.iter().any(|values| !values.is_empty()))
            }
            Plot::Bars { bars, .. } => bars.iter().any(|bars| bars.values.iter().any(Option::is_some)),
            Plot::StackedBars { layers, .. } | Plot::StackedAreas { layers, .. } => {
                layers.iter().any(|layer| !layer.values.is_empty())
            }
        },
    }
}

fn section<'a>(sections: &'a [Section], id: &str) -> &'a Section {
    sections.iter().find(|section| section.heading.starts_with(&format!("{id}:"))).unwrap()
}

#[test]
fn pages_are_full_of_figures() {
    for (name, _) in OWN.into_iter().chain([SCALE]) {
        let results = results(name);
        let page = page(&results).unwrap();
        assert!(page.verdict.len() > results.plan.experiment.claims.len(), "{name}: {:?}", page.verdict);
        for section in &page.sections {
            for part in &section.parts {
                assert!(is_filled(part), "{name}, {}: {part:?}", section.heading);
                if let Part::Table(table) = part {
                    assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()), "{}", section.heading);
                }
            }
        }
        let has_original = page.conditions.iter().any(|condition| condition.original.is_some());
        assert_eq!(has_original, !results.plan.experiment.origin.is_empty(), "{name}");
        let csv = page.attachments.iter().find(|attachment| attachment.name.ends_with(".csv")).unwrap();
        assert_eq!(csv.content.lines().count(), results.records.len() + 1);
        assert!(serde_json::from_str::<Vec<Record>>(&page.attachments[0].content).is_ok());
    }
}

#[test]
fn ours_and_the_original_s_quotients_stand_in_one_row() {
    let results = results("tpcc-memory");
    let page = page(&results).unwrap();
    let Some(Part::Table(table)) = section(&page.sections, "A4").parts.first() else { panic!("quotients come first") };
    let heads: Vec<&str> = table.columns.iter().map(|column| column.head.as_str()).collect();
    assert_eq!(heads, ["RocksDB: transactions/s", "Strata: transactions/s", "RocksDB (original)"]);
    assert_eq!(table.rows.len(), 11);
    let ratio = |cell: &Cell| if let Cell::Ratio(figure) = cell { figure.value } else { panic!("{cell:?}") };
    let first = &table.rows[0].cells;
    assert!((ratio(&first[0]) - 2.0).abs() < 0.01 && (ratio(&first[1]) - 3.0).abs() < 0.01);
    assert!((ratio(&first[2]) - 4205.714 / 849.0664).abs() < 1e-9);
    let linkbench = self::results("linkbench");
    let page = self::page(&linkbench).unwrap();
    let Some(Part::Table(table)) = section(&page.sections, "C1").parts.first() else { panic!("quotients come first") };
    let at = table.columns.iter().position(|column| column.head == "original: KB written/tx").unwrap();
    let rocksdb = table.rows.iter().find(|row| row.head == "RocksDB").unwrap();
    assert!((ratio(&rocksdb.cells[at]) - 2.55 / 1.04).abs() < 1e-9);
}

#[test]
fn a_page_of_nothing_is_a_page() {
    for (name, _) in OWN {
        let plan = Plan::new(experiment(name), "short", &["strata".into()], None).unwrap();
        let page = page(&Results { plan, records: Vec::new() }).unwrap();
        assert!(page.verdict.iter().all(|text| !text.contains("seen here")), "{:?}", page.verdict);
    }
}

#[test]
fn a_grid_leaves_out_what_the_scale_does_not_have() {
    let plan = Plan::new(experiment("redmine"), "tiny", &[], None).unwrap();
    let records = all_records(&plan);
    let page = page(&Results { plan, records }).unwrap();
    let parts = |id| &section(&page.sections, id).parts;
    let has_table = |id| parts(id).iter().any(|part| matches!(part, Part::Table(_)));
    assert!(has_table("B2") && !has_table("B4") && !has_table("B8"), "only the small set is in it");
    assert!(parts("B4").iter().any(|part| matches!(part, Part::Text(text) if text == "No part of this scale.")));
}
