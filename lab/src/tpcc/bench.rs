//! The commands `tpcc` and `tpcc-check`.

use super::drive::{Load, drive};
use super::txn::{Order, STATEMENTS};
use super::{DATABASE, Scale, check, load, schema, verdict};
use crate::course::Course;
use crate::encryption;
use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::meter::{resident_without_data, settle};
use crate::options::{Comparison, Site, turns};
use crate::progress::bar;
use crate::report::{MIB, Report, Run};
use crate::server::{Instance, Server};
use crate::stats;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::time::Instant;

/// Options of `tpcc`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    comparison: Comparison,
    /// Warehouses (about 100 MB each in InnoDB)
    #[arg(long, default_value_t = 10)]
    warehouses: u32,
    /// Sessions
    #[arg(long, default_value_t = 8)]
    threads: u32,
    #[command(flatten)]
    course: Course,
    /// So many transactions a second, all sessions together [default: as many as go]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Check the consistency conditions after the load and after each round
    #[arg(long)]
    check: bool,
    /// Compact the data at the end (OPTIMIZE TABLE) and show how much smaller they get
    #[arg(long)]
    compact: bool,
    /// A tenth of the specification's customers, items and orders a warehouse
    #[arg(long)]
    small: bool,
    /// With all foreign keys of the specification (RocksDB has none)
    #[arg(long)]
    foreign_keys: bool,
    /// Strata keeps so many seconds of history; of engines that keep none nothing is measured but what is plain
    #[arg(long, default_value_t = 0)]
    history: u64,
    /// Each engine also without foreign keys, encryption and history, in turn, and what they cost
    #[arg(long)]
    beside_plain: bool,
}

/// How the tables are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    foreign_keys: bool,
    encrypted: bool,
    /// Seconds of history that are kept.
    history: u64,
}

const PLAIN: Way = Way { foreign_keys: false, encrypted: false, history: 0 };

impl Way {
    /// Behind what is measured.
    fn words(self) -> String {
        let keys = with_keys(self.foreign_keys);
        let encrypted = if self.encrypted { ", encrypted" } else { "" };
        let history = if self.history > 0 { format!(", {} s of history", self.history) } else { String::new() };
        format!("{keys}{encrypted}{history}")
    }

    /// The conditions of its servers, from those of all.
    fn conditions(self, given: &Conditions) -> Conditions {
        let mut conditions = if self.encrypted { encryption::switched_on(given) } else { given.clone() };
        if self.history > 0 {
            conditions.strata_extra.push(format!("strata_history_retention={}", self.history));
        }
        conditions
    }

    /// The name of the data that it begins with: they are loaded without a history.
    fn saved(self, scale: Scale) -> String {
        let (keys, encrypted) =
            (if self.foreign_keys { "-keys" } else { "" }, if self.encrypted { "-encrypted" } else { "" });
        format!("tpcc-{}-{}{keys}{encrypted}", scale.warehouses, scale.customers)
    }
}

/// Options of `tpcc-check`.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// The engine whose server (in the lab's folder) is checked; it is started with the data it has
    #[arg(long, default_value = "strata")]
    engine: Kind,
    /// Warehouses of the data
    #[arg(long, default_value_t = 10)]
    warehouses: u32,
    /// Whether the data were loaded with --small
    #[arg(long)]
    small: bool,
    /// Whether they were loaded with --foreign-keys
    #[arg(long)]
    foreign_keys: bool,
    #[command(flatten)]
    site: Site,
}

/// The command `tpcc`.
pub fn run(args: Args) -> Result<()> {
    let lab = args.comparison.site.folder()?;
    let scale = scale(args.small, args.warehouses);
    let raw_mb = scale.raw_bytes().div_ceil(1 << 20);
    let asked = Way { foreign_keys: args.foreign_keys, encrypted: args.comparison.encrypted, history: args.history };
    anyhow::ensure!(
        !args.beside_plain || asked != PLAIN,
        "--beside-plain is for --foreign-keys, --encrypted and --history"
    );
    let ways = if args.beside_plain { vec![asked, PLAIN] } else { vec![asked] };
    let given = Comparison { encrypted: false, ..args.comparison.clone() }.conditions(args.course.budget_mb(raw_mb));
    let given = given.for_sessions(args.threads);
    let conditions_of = |way: Way| way.conditions(&given);
    let instances = args.comparison.instances(&lab)?;
    if args.foreign_keys {
        instances.iter().try_for_each(|instance| has_foreign_keys(instance.kind()))?;
    }
    let cases: Vec<(&Instance, Way)> =
        ways.iter().flat_map(|&way| instances.iter().map(move |instance| (instance, way))).collect();
    let has_it = |(instance, way): &(&Instance, Way)| way.history == 0 || instance.kind() == Kind::Strata;
    let cases: Vec<(&Instance, Way)> = cases.into_iter().filter(has_it).collect();
    let mut loaded: Vec<(Kind, String)> = Vec::new();
    let bases = cases
        .iter()
        .map(|(instance, way)| resident_without_data(instance, &conditions_of(*way), args.threads, STATEMENTS))
        .collect::<Result<Vec<_>>>()?;
    for &(instance, way) in &cases {
        let saved = way.saved(scale);
        // Two ways may begin with the same data.
        if loaded.contains(&(instance.kind(), saved.clone())) {
            continue;
        }
        if args.course.reuse && instance.has_saved(&saved) {
            println!("{}{}: using the data of an earlier call", instance.kind().title(), way.words());
            continue;
        }
        loaded.push((instance.kind(), saved.clone()));
        instance.reset()?;
        let server = instance.start(&conditions_of(Way { history: 0, ..way }).for_load())?;
        load_warehouses(instance, scale, way.foreign_keys)?;
        if args.check {
            run_check(instance, scale, way.foreign_keys, &[])?;
        }
        settle(server.pid())?;
        server.stop()?;
        instance.save(&saved)?;
    }
    let title = format!(
        "TPC-C, {} warehouse(s){}, {} threads, {} s",
        scale.warehouses,
        asked.words(),
        args.threads,
        args.course.seconds
    );
    let mut report = Report::new(&lab, &title)?;
    let (mut rates, mut spaces) = (Rates::new(), Spaces::new());
    for round in 1..=args.comparison.rounds {
        for n in turns(cases.len(), round) {
            let (instance, way) = cases[n];
            let conditions = conditions_of(way);
            instance.restore(&way.saved(scale))?;
            let mut server = instance.start(&conditions)?;
            settle(server.pid())?;
            let Args { threads, rate, course, .. } = args;
            let foreign_keys = way.foreign_keys;
            let bench = Bench { scale, foreign_keys, threads, round, rate, course };
            let (mut run, orders) = measure(&mut server, &conditions, bench)?;
            run.usage.rss_base = bases[n];
            if way.encrypted {
                run.label.push_str(", encrypted");
                run.settings.insert("encrypted".into(), "tables and log".into());
            }
            if way.history > 0 {
                run.label.push_str(&format!(", {} s of history", way.history));
                run.settings.insert("history".into(), format!("{} s", way.history));
            }
            if args.history > 0 {
                settle(server.pid())?;
                run.further.insert(SETTLED.into(), instance.size_on_disk()?.data as f64 / MIB);
                run.further.insert(OLD_VERSIONS.into(), history_bytes(&server)? / MIB);
                let all = spaces.entry(instance.kind()).or_default();
                all[usize::from(way == PLAIN)].push([run.further[SETTLED], run.further[OLD_VERSIONS]]);
            }
            if args.check && instance.kind() == Kind::Strata {
                run.errors.extend(verdict::violations(&run));
            }
            // Before anything is compacted; and a run that fails it is kept all the same.
            let checked = if args.check { run_check(instance, scale, foreign_keys, &orders) } else { Ok(()) };
            if args.compact && checked.is_ok() {
                compact(instance)?;
                settle(server.pid())?;
                run.compacted = Some(instance.size_on_disk()?.data);
            }
            rates.entry(instance.kind()).or_default()[usize::from(way == PLAIN)].push(run.tps());
            report.add(run)?;
            checked?;
            leaks::at_rest(&mut server, conditions.budget_mb)?;
            server.stop()?;
        }
    }
    if !args.course.reuse {
        for (instance, way) in &cases {
            instance.forget(&way.saved(scale))?;
        }
    }
    if args.beside_plain {
        let compared = rates.iter().filter(|(_, rates)| rates.iter().all(|rounds| !rounds.is_empty()));
        compared.for_each(|(kind, rates)| println!("{}", costs(*kind, asked, rates)));
        spaces.values().filter_map(costs_of_space).for_each(|told| println!("{told}"));
    }
    report.finish()
}

/// Transactions per second of each round: as was asked for, and plain.
type Rates = BTreeMap<Kind, [Vec<f64>; 2]>;

/// What the way that was asked for costs an engine, by the medians of the rounds.
fn costs(kind: Kind, asked: Way, rates: &[Vec<f64>; 2]) -> String {
    let [way, plain] = [0, 1].map(|n| stats::median(&rates[n]));
    format!(
        "{}{}: {way:.0} transactions/s, {:.3} of the {plain:.0} without ({} rounds)",
        kind.title(),
        asked.words(),
        way / plain,
        rates[0].len()
    )
}

/// Figures of a run with a history, and of one beside it, in MB.
pub const SETTLED: &str = "data on disk when settled, MB";
pub const OLD_VERSIONS: &str = "old versions in files, not compressed, MB";

/// Both figures of each round: as was asked for, and plain.
type Spaces = BTreeMap<Kind, [Vec<[f64; 2]>; 2]>;

/// What a history costs in space, by the medians of the rounds; none if there was nothing beside it.
fn costs_of_space(spaces: &[Vec<[f64; 2]>; 2]) -> Option<String> {
    if spaces.iter().any(Vec::is_empty) {
        return None;
    }
    let median = |way: usize, n: usize| stats::median(&spaces[way].iter().map(|round| round[n]).collect::<Vec<_>>());
    let (data, plain, old) = (median(0, 0), median(1, 0), median(0, 1));
    Some(format!(
        "with the history the settled data take {data:.0} MB, {:.3} of the {plain:.0} MB without; {old:.0} MB of old versions are \
         in files, not compressed",
        data / plain
    ))
}

/// Bytes of versions that only the history sees, as merges have found them.
pub fn history_bytes(server: &Server) -> Result<f64> {
    let status = "SHOW GLOBAL STATUS LIKE 'Strata_history_bytes'";
    let row: Option<(String, f64)> = server.connect(None)?.query_first(status)?;
    Ok(row.map_or(0.0, |(_, bytes)| bytes))
}

/// Fails for an engine without foreign keys.
pub fn has_foreign_keys(engine: Kind) -> Result<()> {
    anyhow::ensure!(
        engine != Kind::Rocksdb,
        "{} has no foreign keys: leave out --foreign-keys, or compare --engines innodb,strata",
        engine.title()
    );
    Ok(())
}

fn with_keys(foreign_keys: bool) -> &'static str {
    if foreign_keys { " with foreign keys" } else { "" }
}

/// Has the server write all tables anew.
fn compact(instance: &Instance) -> Result<()> {
    let mut conn = instance.connect(Some(DATABASE))?;
    for table in schema::TABLES {
        // Failures are rows of the answer.
        let answer: Vec<(String, String, String, String)> = conn.query(format!("OPTIMIZE TABLE {table}"))?;
        let status = answer.last().map(|(_, _, kind, text)| (kind.as_str(), text.as_str()));
        anyhow::ensure!(status == Some(("status", "OK")), "OPTIMIZE TABLE {table} says {answer:?}");
    }
    Ok(())
}

/// The command `tpcc-check`.
pub fn check(args: CheckArgs) -> Result<()> {
    let instance = Instance::new(&args.site.folder()?, args.engine)?;
    let conditions = Conditions {
        budget_mb: 256,
        isolation: crate::options::Isolation::RepeatableRead,
        extra: vec![],
        strata_extra: vec![],
    };
    let server = instance.start(&conditions)?;
    run_check(&instance, scale(args.small, args.warehouses), args.foreign_keys, &[])?;
    server.stop()
}

fn scale(small: bool, warehouses: u32) -> Scale {
    if small { Scale::small(warehouses) } else { Scale::full(warehouses) }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// Cardinalities.
    pub scale: Scale,
    /// Whether the tables have foreign keys.
    pub foreign_keys: bool,
    /// Sessions.
    pub threads: u32,
    /// Which repetition.
    pub round: u32,
    /// Transactions a second; as many as go if none.
    pub rate: Option<u32>,
    /// How long, on which device.
    pub course: Course,
}

/// Fills the database, with a progress bar, and says how long it took.
pub fn load_warehouses(instance: &Instance, scale: Scale, foreign_keys: bool) -> Result<()> {
    let began = Instant::now();
    let bar = bar(format!("{}: loading", instance.kind().title()));
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get() as u32).clamp(2, 8);
    load::load(instance, scale, foreign_keys, threads, &bar)?;
    bar.finish_and_clear();
    println!(
        "{}: {} warehouse(s){} loaded in {:.1} s",
        instance.kind().title(),
        scale.warehouses,
        with_keys(foreign_keys),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Checks the conditions and says so; fails when one is violated.
pub fn run_check(instance: &Instance, scale: Scale, foreign_keys: bool, orders: &[Order]) -> Result<()> {
    let began = Instant::now();
    let findings = check::check(instance, scale, foreign_keys, orders, 2)?;
    let name = instance.kind().title();
    let rows = findings.into_result("TPC-C").with_context(|| format!("{name} fails the check"))?;
    println!(
        "{name}: all TPC-C conditions hold{}, {} acknowledged orders are there ({rows} rows read in {:.1} s)",
        if foreign_keys { ", all rows have what they refer to" } else { "" },
        orders.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs the mix on a loaded server and measures it; the orders that were acknowledged.
pub fn measure(server: &mut Server, conditions: &Conditions, bench: Bench) -> Result<(Run, Vec<Order>)> {
    let instance = server.instance().clone();
    let Bench { scale, foreign_keys, threads, round, rate, course } = bench;
    let (seen, [before, orders], usage) = course.run(server, "TPC-C", |seconds, part, control| {
        let load = Load { scale, threads, seconds, seed: u64::from(round) + 1000 * part, rate };
        let outcome = drive(&instance, load, control)?;
        Ok((outcome.seen, outcome.orders))
    })?;
    let mut settings = course.settings();
    settings.extend([
        ("warehouses".into(), scale.warehouses.to_string()),
        ("threads".into(), threads.to_string()),
        ("rate".into(), rate.map_or("as it goes".into(), |rate| format!("{rate} a second"))),
        ("raw data".into(), format!("{} MB", scale.raw_bytes() >> 20)),
    ]);
    // Stored runs without this setting have none.
    if foreign_keys {
        settings.insert("foreign keys".into(), "all of the specification".into());
    }
    let label = format!("TPC-C, {} warehouse(s){}, {threads} threads", scale.warehouses, with_keys(foreign_keys));
    let run = Run { settings, ..Run::of("tpcc", label, server, conditions, round)?.with(seen, usage) };
    println!(
        "{}, round {round}: {:.0} transactions/s ({:.0} New-Orders/min), p95 {:.1} ms, {} deadlocks, {} errors",
        instance.kind().title(),
        run.tps(),
        orders.len() as f64 / run.seconds * 60.0,
        run.latency.p95_us as f64 / 1e3,
        run.deadlocks,
        run.errors.len()
    );
    Ok((run, [before, orders].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_way_costs_is_told_by_medians() {
        let asked = Way { encrypted: true, ..PLAIN };
        let told = costs(Kind::Strata, asked, &[vec![950.0, 100.0, 960.0], vec![1000.0, 1001.0, 10.0]]);
        assert_eq!(told, "Strata, encrypted: 950 transactions/s, 0.950 of the 1000 without (3 rounds)");
        let scale = Scale::small(2);
        let both = Way { foreign_keys: true, encrypted: true, history: 0 };
        assert_eq!(both.words(), " with foreign keys, encrypted");
        let history = Way { history: 3600, ..PLAIN };
        assert_eq!(history.words(), ", 3600 s of history");
        // Both begin with the same data.
        assert_eq!(history.saved(scale), PLAIN.saved(scale));
        let conditions = Conditions {
            budget_mb: 1,
            isolation: crate::options::Isolation::RepeatableRead,
            extra: vec![],
            strata_extra: vec!["x=1".into()],
        };
        assert_eq!(history.conditions(&conditions).strata_extra, ["x=1", "strata_history_retention=3600"]);
        assert_eq!(PLAIN.conditions(&conditions).strata_extra, ["x=1"]);
        let told = costs_of_space(&[vec![[150.0, 40.0]], vec![[100.0, 0.0]]]).unwrap();
        assert!(told.contains("150 MB, 1.500 of the 100 MB") && told.contains("; 40 MB of old"), "{told}");
        assert!(costs_of_space(&[vec![[150.0, 40.0]], vec![]]).is_none());
        let saved: std::collections::BTreeSet<String> = [PLAIN, asked, both].map(|way| way.saved(scale)).into();
        assert_eq!(saved.len(), 3);
    }
}
