//! The commands `tpcc` and `tpcc-check`.

use super::drive::{Control, Load, Outcome, drive};
use super::txn::STATEMENTS;
use super::{DATABASE, Scale, check, load, schema, verdict};
use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::meter::{Meter, resident, settle};
use crate::options::{Comparison, Site};
use crate::report::{Report, Run, Variables};
use crate::server::{Instance, Server};
use crate::throttle::Throttle;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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
    /// Seconds measured
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seconds of the same load before that
    #[arg(long, default_value_t = 10)]
    warmup: u64,
    /// Memory for each engine, in MiB
    #[arg(long, conflicts_with = "cache_ratio")]
    cache_mb: Option<u64>,
    /// Memory for each engine: the data's size by the specification's row sizes over this [default: 10]
    #[arg(long)]
    cache_ratio: Option<u64>,
    /// Slow the device down to so many reads and as many writes a second (as root)
    #[arg(long)]
    iops: Option<u32>,
    /// So many transactions a second, all sessions together [default: as many as go]
    #[arg(long)]
    rate: Option<u32>,
    /// Check the consistency conditions after the load and after each round
    #[arg(long)]
    check: bool,
    /// Compact the data at the end (OPTIMIZE TABLE) and show how much smaller they get
    #[arg(long)]
    compact: bool,
    /// Use data that an earlier call with the same scale left, and leave it again
    #[arg(long)]
    reuse: bool,
    /// A tenth of the specification's customers, items and orders a warehouse
    #[arg(long)]
    small: bool,
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
    #[command(flatten)]
    site: Site,
}

/// The command `tpcc`.
pub fn run(args: Args) -> Result<()> {
    let lab = args.comparison.site.folder()?;
    let scale = scale(args.small, args.warehouses);
    let raw_mb = scale.raw_bytes().div_ceil(1 << 20);
    let budget_mb = args.cache_mb.unwrap_or_else(|| (raw_mb / args.cache_ratio.unwrap_or(10).max(1)).max(16));
    let conditions = args.comparison.conditions(budget_mb);
    let saved = format!("tpcc-{}-{}", scale.warehouses, scale.customers);
    let instances = args.comparison.instances(&lab)?;
    let bases = instances
        .iter()
        .map(|instance| base_memory(instance, &conditions, args.threads, STATEMENTS))
        .collect::<Result<Vec<_>>>()?;
    for instance in &instances {
        if args.reuse && instance.has_saved(&saved) {
            println!("{}: using the data of an earlier call", instance.kind().title());
            continue;
        }
        instance.reset()?;
        // Loaded with ample memory: the load is not what is measured.
        let ample = Conditions { budget_mb: conditions.budget_mb.max(1024), ..conditions.clone() };
        let server = instance.start(&ample)?;
        load_warehouses(instance, scale)?;
        if args.check {
            run_check(instance, scale, &Outcome::default())?;
        }
        settle(server.pid())?;
        server.stop()?;
        instance.save(&saved)?;
    }
    let title = format!("TPC-C, {} warehouse(s), {} threads, {} s", scale.warehouses, args.threads, args.seconds);
    let mut report = Report::new(&lab, &title)?;
    for round in 1..=args.comparison.rounds {
        // Each round begins with another engine.
        for n in 0..instances.len() {
            let n = (n + round as usize - 1) % instances.len();
            let instance = &instances[n];
            instance.restore(&saved)?;
            let mut server = instance.start(&conditions)?;
            settle(server.pid())?;
            let Args { threads, warmup, seconds, iops, rate, .. } = args;
            let bench = Bench { scale, threads, warmup, seconds, round, iops, rate };
            let (mut run, outcome) = measure(&mut server, &conditions, bench)?;
            run.usage.rss_base = bases[n];
            if args.check && instance.kind() == Kind::Strata {
                run.errors.extend(verdict::violations(&run));
            }
            // Before anything is compacted; and a run that fails it is kept all the same.
            let checked = if args.check { run_check(instance, scale, &outcome) } else { Ok(()) };
            if args.compact && checked.is_ok() {
                compact(instance)?;
                settle(server.pid())?;
                run.compacted = Some(instance.size_on_disk()?.data);
            }
            report.add(run)?;
            checked?;
            leaks::at_rest(&mut server, conditions.budget_mb)?;
            server.stop()?;
        }
    }
    if !args.reuse {
        for instance in &instances {
            instance.forget(&saved)?;
        }
    }
    report.finish()
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

/// Resident memory of the server under these conditions with an empty data directory and as many connections as the run
/// has. Each has prepared as many statements as one of the run and run them, without a table: what a session takes is the
/// same for every engine and no part of its budget.
pub fn base_memory(instance: &Instance, conditions: &Conditions, connections: u32, statements: usize) -> Result<u64> {
    instance.reset()?;
    let server = instance.start(conditions)?;
    let mut sessions = Vec::new();
    for _ in 0..connections {
        let mut connection = server.connect(None)?;
        for n in 0..statements {
            let statement = connection.prep(format!("SELECT ? + {n}"))?;
            connection.exec_drop(&statement, (1,))?;
        }
        sessions.push(connection);
    }
    let base = resident(server.pid())?;
    drop(sessions);
    server.stop()?;
    Ok(base)
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
    run_check(&instance, scale(args.small, args.warehouses), &Outcome::default())?;
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
    /// Sessions.
    pub threads: u32,
    /// Seconds before the measurement.
    pub warmup: u64,
    /// Seconds measured.
    pub seconds: u64,
    /// Which repetition.
    pub round: u32,
    /// Reads and writes a second that the device is slowed down to.
    pub iops: Option<u32>,
    /// Transactions a second; as many as go if none.
    pub rate: Option<u32>,
}

/// Fills the database, with a progress bar, and says how long it took.
pub fn load_warehouses(instance: &Instance, scale: Scale) -> Result<()> {
    let began = Instant::now();
    let bar = bar(format!("{}: loading", instance.kind().title()));
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get() as u32).clamp(2, 8);
    load::load(instance, scale, threads, &bar)?;
    bar.finish_and_clear();
    println!(
        "{}: {} warehouse(s) loaded in {:.1} s",
        instance.kind().title(),
        scale.warehouses,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Checks the conditions and says so; fails when one is violated.
pub fn run_check(instance: &Instance, scale: Scale, outcome: &Outcome) -> Result<()> {
    let began = Instant::now();
    let findings = check::check(instance, scale, &outcome.orders, 2)?;
    let name = instance.kind().title();
    let rows = findings.into_result().with_context(|| format!("{name} fails the check"))?;
    println!(
        "{name}: all TPC-C conditions hold, {} acknowledged orders are there ({rows} rows read in {:.1} s)",
        outcome.orders.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs the mix on a loaded server and measures it.
pub fn measure(server: &mut Server, conditions: &Conditions, bench: Bench) -> Result<(Run, Outcome)> {
    let instance = server.instance().clone();
    let Bench { scale, threads, rate, .. } = bench;
    let load = Load { scale, threads, seconds: bench.warmup, seed: u64::from(bench.round), rate };
    let slow = bench.iops.map(|iops| Throttle::begin(server.pid(), &instance.data(), iops)).transpose()?;
    let mut warm = Outcome::default();
    if bench.warmup > 0 {
        warm = drive(&instance, load, &Control::default())?;
    }
    let load = Load { seconds: bench.seconds, seed: u64::from(bench.round) + 1000, ..load };
    let meter = Meter::begin(server.pid(), &instance)?;
    let control = Control::default();
    let title = format!("{}: TPC-C", instance.kind().title());
    let mut outcome = watched(title, load.seconds, &control, || drive(&instance, load, &control))?;
    server.ensure_alive()?;
    let usage = meter.end()?;
    drop(slow);
    outcome.errors.extend(warm.errors);
    if outcome.lost + warm.lost > 0 {
        outcome.errors.push(format!("{} sessions broke", outcome.lost + warm.lost));
    }
    let label = format!("TPC-C, {} warehouse(s), {} threads", bench.scale.warehouses, bench.threads);
    let run = Run {
        version: version(server)?,
        variables: Variables::read(server)?,
        settings: BTreeMap::from([
            ("warehouses".into(), bench.scale.warehouses.to_string()),
            ("threads".into(), bench.threads.to_string()),
            ("seconds".into(), bench.seconds.to_string()),
            ("warm-up".into(), format!("{} s", bench.warmup)),
            ("rate".into(), bench.rate.map_or("as it goes".into(), |rate| format!("{rate} a second"))),
            ("device".into(), bench.iops.map_or("as it is".into(), |n| format!("{n} reads and {n} writes a second"))),
            ("raw data".into(), format!("{} MB", bench.scale.raw_bytes() >> 20)),
        ]),
        seconds: outcome.seconds,
        transactions: outcome.transactions,
        deadlocks: outcome.deadlocks,
        errors: outcome.errors.clone(),
        series: outcome.series.clone(),
        latency: outcome.latency.summary(),
        by_kind: outcome.by_kind.iter().map(|(kind, l)| ((*kind).to_string(), l.summary())).collect(),
        usage,
        disk: instance.size_on_disk()?,
        ..Run::new("tpcc", label, &instance, conditions, bench.round)
    };
    println!(
        "{}, round {}: {:.0} transactions/s ({:.0} New-Orders/min), p95 {:.1} ms, {} deadlocks, {} errors",
        instance.kind().title(),
        bench.round,
        run.tps(),
        outcome.new_orders as f64 / outcome.seconds * 60.0,
        run.latency.p95_us as f64 / 1e3,
        run.deadlocks,
        run.errors.len()
    );
    outcome.orders.extend(warm.orders);
    Ok((run, outcome))
}

/// The server's version, with where it is from.
pub fn version(server: &Server) -> Result<String> {
    let row: Option<String> = server.connect(None)?.query_first("SELECT VERSION()")?;
    Ok(row.unwrap_or_default())
}

/// Does the work behind a progress bar that shows the transactions of each second, and tells it to end then.
pub fn watched<R>(title: String, seconds: u64, control: &Control, work: impl FnOnce() -> R) -> R {
    let bar = bar(title);
    bar.set_length(seconds);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut before = 0;
            while !control.stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_secs(1));
                let sum = control.transactions.load(Ordering::Relaxed);
                bar.inc(1);
                bar.set_message(format!("{} tps", sum - before));
                before = sum;
            }
        });
        let done = work();
        control.stop.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        bar.finish_and_clear();
        done
    })
}

/// A progress bar; silent when nobody looks.
pub fn bar(title: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}").expect("the template is good");
    ProgressBar::new(1).with_style(style).with_prefix(title)
}
