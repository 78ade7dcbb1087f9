//! Stored runs as a page: sections by what the runs hold, ratios first, spread beside each figure.
//!
//! Runs of one command make up a part of the page. A figure that is zero in all runs of a part was not measured there and has no row.

use super::compare::{Row as Figures, engines, in_order, pairs};
use super::text::durability;
use super::verdict::sentences;
use super::{METRICS, Metric, Run, utc_stamp};
use crate::engine::Kind;
use crate::page::{
    Attachment, Axis, Bars, Cell, Chart, Column, Condition, Origin, Page, Part, Plot, Row, Samples, Section, Series,
    Table,
};
use crate::stats::Latency;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A figure that is drawn over all labels: its name in METRICS, the label and the unit of its axis.
const BARS: [(&str, &str, &str); 4] = [
    ("KB written/tx", "written", "KB a transaction"),
    ("KB read/tx", "read", "KB a transaction"),
    ("server CPU us/tx", "processor time of the server", "us a transaction"),
    ("resident at most, MB", "resident memory at most", "MB"),
];

/// Figures that differ by more than this factor are drawn on a logarithmic axis.
const FAR: f64 = 100.0;

/// The figures of each section, by their names in METRICS.
const SECTIONS: [(&str, &[&str]); 4] = [
    (
        "Throughput",
        &[
            "transactions/s",
            "1 s median, tps",
            "1 s minimum, tps",
            "1 s minimum/median",
            "the same, undisturbed",
            "longest time at zero, s",
            "deadlocks/1000 tx",
        ],
    ),
    (
        "Cost of a transaction",
        &[
            "KB written/tx",
            "without binlog, KB/tx",
            "binlog KB/tx",
            "engine log records, KB/tx",
            "KB read/tx",
            "server CPU us/tx",
            "engine syncs/tx",
            "binlog syncs/tx",
            "processors stolen, %",
        ],
    ),
    ("Latency", &["p50, ms", "p95, ms", "p99, ms", "p99.9, ms", "p99.9/p50", "longest, ms"]),
    (
        "Size on disk and in memory",
        &[
            "data on disk, MB",
            "data on disk at most, MB",
            "data compacted, MB",
            "data at most/compacted",
            "engine log on disk, MB",
            "resident at start, MB",
            "resident at most, MB",
            "resident without data, MB",
            "added by data and load, MB",
            "added/budget",
        ],
    ),
];

/// The page of these runs.
pub(super) fn of_runs(title: &str, runs: &[Run]) -> Result<Page> {
    let mut page = Page::new(title);
    let workloads = in_order(runs.iter().map(|run| run.workload.clone()));
    for workload in &workloads {
        let of_workload: Vec<Run> = runs.iter().filter(|run| run.workload == *workload).cloned().collect();
        let before = if workloads.len() > 1 { format!("{workload}: ") } else { String::new() };
        page.verdict.extend(sentences(&of_workload).into_iter().map(|sentence| format!("{before}{sentence}")));
        let part = Workload { runs: &of_workload, engines: engines(&of_workload), before };
        part.sections(&mut page);
    }
    if runs.is_empty() {
        page.verdict.push("There are no runs.".into());
    }
    page.sections.extend(errors(runs));
    page.sections.extend(variables(runs));
    page.conditions = conditions(runs);
    page.attachments = vec![
        Attachment {
            name: "runs.json".into(),
            title: "all runs as they were stored".into(),
            content: serde_json::to_string(runs)?,
        },
        Attachment { name: "figures.csv".into(), title: "all figures of all runs".into(), content: csv(runs) },
    ];
    Ok(page)
}

/// The runs of one command.
struct Workload<'a> {
    runs: &'a [Run],
    engines: Vec<Kind>,
    /// Before each heading, where a page has runs of several commands.
    before: String,
}

impl Workload<'_> {
    fn sections(&self, page: &mut Page) {
        for (heading, metrics) in SECTIONS {
            let mut section = Section::new(&format!("{}{heading}", self.before));
            let charts = match heading {
                "Throughput" => self.throughput(),
                "Latency" => self.latencies(),
                _ => BARS
                    .iter()
                    .filter(|(name, ..)| metrics.contains(name))
                    .filter_map(|bars| self.bars(*bars))
                    .collect(),
            };
            let tables = self.tables(metrics);
            if tables.is_empty() && charts.is_empty() {
                continue;
            }
            section.parts.extend(charts);
            section.parts.extend(tables.into_iter().map(Part::Table));
            if heading == "Latency" {
                section.parts.extend(self.kinds().into_iter().map(Part::Table));
            }
            page.sections.push(section);
        }
        let further = self.further();
        if !further.is_empty() {
            let mut section = Section::new(&format!("{}Further figures", self.before));
            section.parts.extend(further.into_iter().map(Part::Table));
            page.sections.push(section);
        }
    }

    fn labels(&self) -> Vec<String> {
        in_order(self.runs.iter().map(|run| run.label.clone()))
    }

    fn with_label<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.label == label)
    }

    /// Of several labels the rates; of each label the seconds as box plots and over time.
    fn throughput(&self) -> Vec<Part> {
        let labels = self.labels();
        let mut parts = Vec::new();
        if labels.len() > 1 {
            parts.extend(self.bars(("transactions/s", "throughput", "transactions/s")));
        }
        let unit = || Axis::new("throughput", "transactions/s");
        let with_series: Vec<String> =
            labels.into_iter().filter(|label| self.with_label(label).any(|run| run.series.len() > 1)).collect();
        if with_series.is_empty() {
            return parts;
        }
        let seconds = |engine: Kind, label: &str| -> Vec<f64> {
            self.with_label(label).filter(|run| run.engine == engine).flat_map(|run| run.series.clone()).collect()
        };
        let samples = self.engines.iter().map(|engine| Samples {
            name: engine.title().into(),
            values: with_series.iter().map(|label| seconds(*engine, label)).collect(),
            ..Samples::default()
        });
        let plot = Plot::Boxes { categories: with_series.clone(), samples: samples.collect() };
        let boxes = Chart::new("Throughput of each second", Axis::new("load", ""), unit(), plot).caption(
            "The seconds of all rounds together. Box: quartiles with the median; whiskers: to the farthest second within one and a \
             half times the box's height; points: what lies beyond.",
        );
        parts.push(Part::Chart(boxes));
        for label in &with_series {
            let series = self.engines.iter().map(|engine| {
                let runs = self.with_label(label).filter(|run| run.engine == *engine);
                let points = runs.flat_map(|run| run.series.iter().enumerate().map(|(n, tps)| (n as f64 + 1.0, *tps)));
                Series::new(engine.title(), points)
            });
            let plot = Plot::Scatter(series.collect());
            let title = format!("{label}: second by second");
            let chart = Chart::new(&title, Axis::new("time", "s"), unit(), plot);
            parts.push(Part::Chart(chart.caption("A point is one second of one round.")));
        }
        parts
    }

    /// A figure over all labels as bars.
    fn bars(&self, (name, label, unit): (&str, &str, &str)) -> Option<Part> {
        let metric = metric(name);
        let labels = self.labels();
        let rows: Vec<Figures> = labels.iter().map(|of| Figures::of_metric(of, self.runs, of, metric)).collect();
        if !rows.iter().any(Figures::says_something) {
            return None;
        }
        let bars = self.engines.iter().map(|engine| Bars {
            name: engine.title().into(),
            origin: Origin::Ours,
            values: rows.iter().map(|row| row.figure(*engine)).collect(),
        });
        let plot = Plot::Bars { categories: labels, bars: bars.collect() };
        let title = format!("{}{}", label[..1].to_uppercase(), &label[1..]);
        let caption = "Bar: median of all measurements; whiskers: smallest and largest.";
        let (axis, caption) = if far_apart(&rows, &self.engines) {
            (Axis::new(label, unit).log(), format!("Logarithmic. {caption}"))
        } else {
            (Axis::new(label, unit), caption.to_string())
        };
        let chart = Chart::new(&title, Axis::new("load", ""), axis, plot);
        Some(Part::Chart(chart.caption(&caption)))
    }

    /// The 99th percentile by kind of transaction, or by label where there are no kinds.
    fn latencies(&self) -> Vec<Part> {
        let axis = || Axis::new("99 of 100 took no longer", "ms").log();
        let mut parts = Vec::new();
        let labels = self.labels();
        for label in &labels {
            let kinds = self.kinds_of(label);
            if kinds.is_empty() {
                continue;
            }
            let rows: Vec<Figures> = kinds.iter().map(|kind| self.kind_row(label, kind, |l| l.p99_us)).collect();
            parts.push(self.latency_chart(&format!("{label}: latency by kind"), axis(), kinds, &rows));
        }
        let rows: Vec<Figures> =
            labels.iter().map(|of| Figures::of_metric(of, self.runs, of, metric("p99, ms"))).collect();
        if parts.is_empty() && rows.iter().any(Figures::says_something) {
            parts.push(self.latency_chart("Latency", axis(), labels, &rows));
        }
        parts
    }

    fn latency_chart(&self, title: &str, axis: Axis, categories: Vec<String>, rows: &[Figures]) -> Part {
        let bars = self.engines.iter().map(|engine| Bars {
            name: engine.title().into(),
            origin: Origin::Ours,
            values: rows.iter().map(|row| row.figure(*engine)).collect(),
        });
        let plot = Plot::Bars { categories, bars: bars.collect() };
        let chart = Chart::new(title, Axis::new("kind", ""), axis, plot);
        Part::Chart(chart.caption("Logarithmic. Bar: median of all measurements; whiskers: smallest and largest."))
    }

    fn kinds_of(&self, label: &str) -> Vec<String> {
        in_order(self.with_label(label).flat_map(|run| run.by_kind.keys().cloned()))
    }

    fn kind_row(&self, label: &str, kind: &str, figure: fn(&Latency) -> u64) -> Figures {
        let of = self.with_label(label).filter_map(|run| Some((run, figure(run.by_kind.get(kind)?) as f64 / 1e3)));
        Figures::of(kind, of)
    }

    /// Latencies of each kind of transaction.
    fn kinds(&self) -> Vec<Table> {
        type Percentile = fn(&Latency) -> u64;
        let percentiles: [(&str, Percentile); 5] = [
            ("p50, ms", |l| l.p50_us),
            ("p95, ms", |l| l.p95_us),
            ("p99, ms", |l| l.p99_us),
            ("p99.9, ms", |l| l.p999_us),
            ("longest, ms", |l| l.max_us),
        ];
        let mut tables = Vec::new();
        for label in self.labels() {
            let kinds = self.kinds_of(&label);
            for (name, figure) in percentiles {
                let rows: Vec<Figures> = kinds.iter().map(|kind| self.kind_row(&label, kind, figure)).collect();
                tables.extend(self.table(&format!("{label}: {name}"), "kind", &rows));
            }
        }
        tables
    }

    /// A table for each label of these figures, or if labels are many one for each figure.
    fn tables(&self, metrics: &[&str]) -> Vec<Table> {
        let labels = self.labels();
        let row = |title: &str, label: &str, name: &str| Figures::of_metric(title, self.runs, label, metric(name));
        if labels.len() > metrics.len() {
            let tables = metrics.iter().filter_map(|name| {
                let rows: Vec<Figures> = labels.iter().map(|label| row(label, label, name)).collect();
                self.table(name, "load", &rows)
            });
            return tables.collect();
        }
        let tables = labels.iter().filter_map(|label| {
            let rows: Vec<Figures> = metrics.iter().map(|name| row(name, label, name)).collect();
            self.table(label, "figure", &rows)
        });
        tables.collect()
    }

    /// What only this workload has.
    fn further(&self) -> Vec<Table> {
        let tables = self.labels().into_iter().filter_map(|label| {
            let names = in_order(self.with_label(&label).flat_map(|run| run.further.keys().cloned()));
            let row = |name: &String| {
                Figures::of(name, self.with_label(&label).filter_map(|run| Some((run, *run.further.get(name)?))))
            };
            let rows: Vec<Figures> = names.iter().map(row).collect();
            self.table(&label, "figure", &rows)
        });
        tables.collect()
    }

    /// Ratios, then figures; none if no row says anything.
    fn table(&self, caption: &str, corner: &str, rows: &[Figures]) -> Option<Table> {
        let rows: Vec<&Figures> = rows.iter().filter(|row| row.says_something()).collect();
        if rows.is_empty() {
            return None;
        }
        let pairs = pairs(&self.engines);
        let mut columns: Vec<Column> =
            pairs.iter().map(|(a, b)| column(&format!("{}/{}", a.title(), b.title()))).collect();
        columns.extend(self.engines.iter().map(|engine| column(engine.title())));
        let rows = rows.into_iter().map(|row| {
            let mut cells: Vec<Cell> = pairs.iter().map(|(a, b)| Cell::ratio(row.ratio(*a, *b))).collect();
            cells.extend(self.engines.iter().map(|engine| Cell::figure(row.figure(*engine))));
            Row { head: row.label.clone(), cells }
        });
        Some(Table { caption: caption.into(), corner: corner.into(), columns, rows: rows.collect() })
    }
}

/// Whether the small ones of these figures could not be told from zero on a linear axis.
fn far_apart(rows: &[Figures], engines: &[Kind]) -> bool {
    let all = rows.iter().flat_map(|row| engines.iter().filter_map(|engine| Some(row.figure(*engine)?.value)));
    let positive: Vec<f64> = all.filter(|value| *value > 0.0).collect();
    let least = positive.iter().copied().fold(f64::INFINITY, f64::min);
    positive.iter().any(|value| *value > FAR * least)
}

fn metric(name: &str) -> &'static Metric {
    METRICS.iter().find(|metric| metric.name == name).expect("the name is one of METRICS")
}

fn column(head: &str) -> Column {
    Column { head: head.into(), unit: String::new() }
}

/// What went wrong, if anything did.
fn errors(runs: &[Run]) -> Option<Section> {
    let mut section = Section::new("Errors");
    for run in runs.iter().filter(|run| !run.errors.is_empty()) {
        section.text(format!(
            "{}: {} on {}, round {}: {}",
            run.workload,
            run.label,
            run.engine.title(),
            run.round,
            run.errors.join("; ")
        ));
    }
    (!section.parts.is_empty()).then_some(section)
}

/// The variables that differ from their defaults on any server.
fn variables(runs: &[Run]) -> Option<Section> {
    let engines = engines(runs);
    let mut defaults: BTreeMap<&str, &str> = BTreeMap::new();
    for run in runs {
        defaults.extend(run.variables.differing().map(|(name, _, default)| (name, default)));
    }
    let mut section = Section::new("Server variables that differ from their defaults");
    if defaults.is_empty() {
        section.text("The runs were stored without the variables of their servers.");
        return (!runs.is_empty()).then_some(section);
    }
    let mut columns = vec![column("default")];
    columns.extend(engines.iter().map(|engine| column(engine.title())));
    let rows = defaults.iter().map(|(name, default)| {
        let mut cells = vec![Cell::Text((*default).into())];
        cells.extend(engines.iter().map(|engine| {
            let of_engine = runs.iter().filter(|run| run.engine == *engine && !run.variables.is_empty());
            let values =
                in_order(of_engine.map(|run| run.variables.value(name).unwrap_or("as by default").to_string()));
            let known = !values.is_empty() && has_variable(*engine, name);
            if known { Cell::Text(values.join(" or ")) } else { Cell::Empty }
        }));
        Row { head: (*name).into(), cells }
    });
    section.table(Table { corner: "variable".into(), columns, rows: rows.collect(), ..Table::default() });
    Some(section)
}

/// Whether an engine's server has a variable: those of an engine that is a plugin are only where it is loaded.
fn has_variable(engine: Kind, name: &str) -> bool {
    let of_plugin = |other: &Kind| other.plugin().is_some() && name.starts_with(&format!("{}_", other.id()));
    [Kind::Rocksdb, Kind::Strata].iter().find(|other| of_plugin(other)).is_none_or(|owner| *owner == engine)
}

fn conditions(runs: &[Run]) -> Vec<Condition> {
    type Fact<'a> = (&'a str, fn(&Run) -> String);
    let facts: [Fact; 12] = [
        ("command", |run| run.place.command.clone()),
        ("commit", |run| run.place.commit.clone()),
        ("ended, UTC", |run| utc_stamp(run.finished)[..8].to_string()),
        ("server", |run| run.version.clone()),
        ("machine", |run| run.machine.clone()),
        ("processor", |run| run.place.processor.clone()),
        ("kernel", |run| run.place.kernel.clone()),
        ("disk", |run| run.place.disk.clone()),
        ("file system of the data", |run| run.place.file_system.clone()),
        ("memory of each engine", |run| format!("{} MB", run.conditions.budget_mb)),
        ("isolation", |run| run.isolation.clone()),
        ("durability, as the server says it", durability),
    ];
    let mut conditions: Vec<Condition> =
        facts.iter().map(|(name, fact)| condition(name, runs, |run| Some(fact(run)))).collect();
    conditions.push(condition("rounds and slices", runs, |run| {
        let of = runs.iter().filter(|other| other.workload == run.workload);
        let most =
            |of: fn(&Run) -> u32| runs.iter().filter(|other| other.workload == run.workload).map(of).max().unwrap_or(1);
        Some(format!(
            "{}: {} of {} runs",
            run.workload,
            rounds(most(|run| run.round), most(|run| run.slice)),
            of.count()
        ))
    }));
    for name in in_order(runs.iter().flat_map(|run| run.settings.keys().cloned())) {
        conditions.push(condition(&name, runs, |run| run.settings.get(&name).cloned()));
    }
    conditions
}

fn rounds(rounds: u32, slices: u32) -> String {
    match slices {
        1 => crate::page::rounds(rounds),
        _ => format!("{} of up to {slices} measurements in turn", crate::page::rounds(rounds)),
    }
}

/// What it was: once if it was the same in all runs, by engine if it was the same in all runs of each, else all that it was.
fn condition(name: &str, runs: &[Run], fact: impl Fn(&Run) -> Option<String>) -> Condition {
    let known = |run: &Run| fact(run).map(|text| if text.is_empty() { "unknown".into() } else { text });
    let all = in_order(runs.iter().filter_map(known));
    let by_engine: Vec<(Kind, Vec<String>)> = engines(runs)
        .into_iter()
        .map(|engine| (engine, in_order(runs.iter().filter(|run| run.engine == engine).filter_map(known))))
        .collect();
    let value = if all.len() > 1 && by_engine.len() > 1 && by_engine.iter().all(|(_, values)| values.len() == 1) {
        let each = by_engine.iter().map(|(engine, values)| format!("{}: {}", engine.title(), values[0]));
        each.collect::<Vec<_>>().join("; ")
    } else {
        all.join("; ")
    };
    Condition { name: name.into(), value, original: None }
}

/// A line for each figure of each run.
fn csv(runs: &[Run]) -> String {
    let mut out = String::from("workload,label,engine,round,slice,figure,value\n");
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    for run in runs {
        let start =
            format!("{},{},{},{},{}", quoted(&run.workload), quoted(&run.label), run.engine.id(), run.round, run.slice);
        for metric in METRICS {
            let _ = writeln!(out, "{start},{},{}", quoted(metric.name), (metric.value)(run));
        }
        for (name, value) in &run.further {
            let _ = writeln!(out, "{start},{},{value}", quoted(name));
        }
        for (kind, latency) in &run.by_kind {
            let all = [
                ("p50", latency.p50_us),
                ("p95", latency.p95_us),
                ("p99", latency.p99_us),
                ("p99.9", latency.p999_us),
                ("longest", latency.max_us),
            ];
            for (name, us) in all {
                let _ = writeln!(out, "{start},{},{}", quoted(&format!("{kind}: {name}, ms")), us as f64 / 1e3);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::command::stored;
    use super::*;
    use crate::page::browser::look_at;
    use crate::page::{to_html, to_markdown};
    use std::path::PathBuf;

    /// Short runs of TPC-C and LinkBench on three engines, stored as the lab stores them.
    fn fixtures() -> Vec<Run> {
        stored(&[PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/runs"))]).unwrap()
    }

    fn of(workload: &str) -> Vec<Run> {
        fixtures().into_iter().filter(|run| run.workload == workload).collect()
    }

    fn headings(page: &Page) -> Vec<&str> {
        page.sections.iter().map(|section| section.heading.as_str()).collect()
    }

    #[test]
    fn sections_are_what_the_runs_hold() {
        let page = of_runs("TPC-C", &of("tpcc")).unwrap();
        let expected = [
            "Throughput",
            "Cost of a transaction",
            "Latency",
            "Size on disk and in memory",
            "Server variables that differ from their defaults",
        ];
        assert_eq!(headings(&page), expected);
        let all = of_runs("all", &fixtures()).unwrap();
        assert!(headings(&all).contains(&"linkbench: Further figures"));
        assert!(all.verdict.iter().any(|sentence| sentence.starts_with("linkbench-load: ")));
    }

    #[test]
    fn conditions_are_those_of_the_servers() {
        let page = of_runs("TPC-C", &of("tpcc")).unwrap();
        let value = |name: &str| page.conditions.iter().find(|condition| condition.name == name).unwrap().value.clone();
        assert!(value("command").starts_with("strata-lab tpcc --small"), "{}", value("command"));
        let durability = value("durability, as the server says it");
        for words in [
            "InnoDB: log_bin ON, binlog_format ROW, sync_binlog 1, innodb_flush_log_at_trx_commit 1",
            "; Strata: log_bin ON",
        ] {
            assert!(durability.contains(words), "{durability}");
        }
        assert_eq!(value("isolation"), "InnoDB: REPEATABLE-READ; RocksDB: READ-COMMITTED; Strata: REPEATABLE-READ");
        assert_eq!(value("rounds and slices"), "tpcc: 2 rounds of 6 runs");
        assert_eq!(value("threads"), "4");
    }

    #[test]
    fn a_variable_has_a_value_only_where_it_exists() {
        let (text, _) = to_markdown(&of_runs("TPC-C", &of("tpcc")).unwrap());
        let line = |name: &str| text.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap().to_string();
        assert!(line("strata\\_memtable\\_budget").ends_with("| 0 | – | – | 16777216 |"));
        assert!(line("innodb\\_io\\_capacity").ends_with("| 200 | 2000 | as by default | as by default |"));
        assert!(line("sync\\_binlog").ends_with("| 0 | 1 | 1 | 1 |"));
    }

    #[test]
    fn ratios_stand_first_with_their_spread() {
        let (text, files) = to_markdown(&of_runs("TPC-C", &of("tpcc")).unwrap());
        let line = text.lines().find(|line| line.starts_with("| transactions/s |")).unwrap();
        assert!(line.matches("n 2)").count() == 5 && line.starts_with("| transactions/s | **1."), "{line}");
        assert!(files.len() >= 6, "{}", files.len());
    }

    #[test]
    fn runs_stored_before_variables_were_say_so() {
        let mut runs = of("tpcc");
        for run in &mut runs {
            run.variables = Default::default();
            run.place = Default::default();
        }
        let html = to_html(&of_runs("old", &runs).unwrap());
        assert!(html.contains("stored without the variables") && html.contains("unknown"));
    }

    #[test]
    fn all_figures_are_attached() {
        let runs = of("tpcc");
        let page = of_runs("TPC-C", &runs).unwrap();
        let back: Vec<Run> = serde_json::from_str(&page.attachments[0].content).unwrap();
        assert_eq!(back.len(), runs.len());
        let csv = &page.attachments[1].content;
        assert!(
            csv.contains("\"tpcc\",\"TPC-C, 1 warehouse(s), 4 threads\",strata,2,1,\"Payment: p95, ms\","),
            "{csv:.900}"
        );
    }

    #[test]
    fn errors_and_nothing_are_shown() {
        let mut runs = of("tpcc");
        runs[0].errors.push("lost <connection>".into());
        let page = of_runs("TPC-C", &runs).unwrap();
        assert!(headings(&page).contains(&"Errors") && to_html(&page).contains("lost &lt;connection&gt;"));
        assert_eq!(of_runs("none", &[]).unwrap().verdict, ["There are no runs."]);
    }

    #[test]
    fn the_page_of_stored_runs_is_drawn() {
        look_at("runs", &of_runs("Stored runs", &fixtures()).unwrap());
    }
}
