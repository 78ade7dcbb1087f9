//! The command `many`: thousands of small tables on each engine, from CREATE to DROP DATABASE.
//!
//! One session creates the tables, each with a primary key and two more indexes; several sessions insert single rows into
//! random ones, each row in a transaction of its own; the server is stopped and started, killed under inserts and started
//! again, and every table is looked at. What is printed: seconds of each step, rows in the slowest, the median and the
//! fastest second, the server's memory and descriptors once every table has been looked at, and the engine's files at its end.
//!
//! Every insert that was acknowledged must be found after the kill, and nothing that nobody sent.
//!
//! Rejected: one figure for all of it. A step that is slow for users (a start, a CREATE) would hide in the inserts.

use crate::engine::{Conditions, DiskSize, Kind};
use crate::kernel;
use crate::leaks;
use crate::meter::{Meter, Usage};
use crate::options::Budgeted;
use crate::report::{MIB, Report, Run};
use crate::server::{Instance, Server};
use crate::stats::{Seconds, median, minimum, whole};
use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DATABASE: &str = "many";
/// How long the inserts run that the kill ends.
const UNTIL_KILL: Duration = Duration::from_secs(2);
/// Tables whose rows are asked for in one statement.
const AT_ONCE: u32 = 50;

/// Options of `many`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: Budgeted<256>,
    /// Tables
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    tables: u32,
    /// Sessions that insert
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Seconds of inserts
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..))]
    seconds: u64,
}

/// The command `many`.
pub fn run(args: Args) -> Result<()> {
    let lab = args.given.comparison.site.folder()?;
    let conditions = args.given.conditions();
    let title = format!("{} tables; a row counts as a transaction", args.tables);
    let mut report = Report::new(&lab, &title)?.in_full();
    for round in 1..=args.given.comparison.rounds {
        println!(
            "{} tables of three indexes, {} sessions, {} MB of memory, round {round}; seconds, rows per second",
            args.tables, args.sessions, args.given.cache_mb
        );
        println!("{:<10}{}", "", STEPS.map(|step| format!("{step:>12}")).concat());
        for &kind in &args.given.comparison.engines {
            let instance = Instance::new(&lab, kind)?;
            instance.reset()?;
            let mut steps = Steps::default();
            let server = measure(&instance, instance.start(&conditions)?, &args, &mut steps)
                .with_context(|| format!("{}, after {} of {} steps", kind.title(), steps.shown.len(), STEPS.len()))?;
            println!(
                "{:<10}{}",
                kind.title(),
                steps.shown.iter().map(|figure| format!("{figure:>12}")).collect::<String>()
            );
            let settings = BTreeMap::from([
                ("tables".into(), args.tables.to_string()),
                ("sessions".into(), args.sessions.to_string()),
                ("seconds".into(), args.seconds.to_string()),
            ]);
            report.add(Run {
                settings,
                seconds: args.seconds as f64,
                transactions: steps.series.iter().sum::<f64>() as u64,
                series: steps.series.clone(),
                further: STEPS.iter().zip(&steps.values).map(|(step, value)| step_title(step, *value)).collect(),
                usage: steps.usage.clone(),
                disk: steps.disk,
                ..Run::of("many", "inserts".into(), &server, &conditions, round)?
            })?;
            leaks::end(server, args.given.cache_mb)?;
        }
    }
    report.finish()
}

/// A step's figure as it is stored, with its unit.
fn step_title(step: &str, value: f64) -> (String, f64) {
    let unit = match step {
        "slowest" | "median" | "fastest" => "second, rows/s",
        "on disk" => "at the end, MB",
        "resident" => "after the first look, MB",
        "open files" => "descriptors of the server after the first look",
        _ => "seconds",
    };
    (format!("{step}: {unit}"), value)
}

/// What is printed of each engine.
const STEPS: [&str; 11] = [
    "CREATE",
    "slowest",
    "median",
    "fastest",
    "start",
    "recovery",
    "first look",
    "resident",
    "open files",
    "DROP",
    "on disk",
];

/// What was measured of an engine.
#[derive(Default)]
struct Steps {
    /// As it is printed.
    shown: Vec<String>,
    /// The same as numbers.
    values: Vec<f64>,
    /// Rows of each second of the inserts.
    series: Vec<f64>,
    /// What the server spent on them.
    usage: Usage,
    /// The engine's files before all is dropped.
    disk: DiskSize,
}

impl Steps {
    fn number(&mut self, figure: f64) {
        self.shown.push(format!("{figure:.0}"));
        self.values.push(figure);
    }

    /// Does a step and notes its seconds.
    fn timed<T>(&mut self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let done = step()?;
        self.took(began.elapsed());
        Ok(done)
    }

    /// A start, from its process to the first session: what the lab lays ready before is not the server's.
    fn start(&mut self, instance: &Instance, conditions: &Conditions) -> Result<Server> {
        let server = instance.start(conditions)?;
        self.took(server.answered_in());
        Ok(server)
    }

    fn took(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.shown.push(format!("{seconds:.3}"));
        self.values.push(seconds);
    }
}

fn measure(instance: &Instance, mut server: Server, args: &Args, steps: &mut Steps) -> Result<Server> {
    let conditions = args.given.conditions();
    let kind = instance.kind();
    steps.timed(|| create(&server, kind, args.tables))?;
    let sent = Sent::default();
    let meter = Meter::begin(server.pid(), instance)?;
    let seconds = Seconds::new(Instant::now(), args.seconds);
    insert(instance, args, &sent, &seconds, Duration::from_secs(args.seconds))?.into_iter().collect::<Result<()>>()?;
    server.ensure_alive()?;
    steps.usage = meter.end()?;
    let series = seconds.series();
    steps.series.clone_from(&series);
    steps.number(minimum(whole(&series)));
    steps.number(median(&series));
    steps.number(series.iter().copied().fold(0.0, f64::max));
    server.shut_down()?;
    server = steps.start(instance, &conditions)?;
    // Those that the kill interrupts have errors.
    let killed = std::thread::scope(|scope| {
        let inserting = scope.spawn(|| insert(instance, args, &sent, &seconds, UNTIL_KILL + Duration::from_secs(60)));
        std::thread::sleep(UNTIL_KILL);
        let killed = server.end();
        inserting.join().expect("no session panics").map(|_| ()).and(killed)
    });
    killed?;
    server = steps.start(instance, &conditions)?;
    let found = steps.timed(|| count(&server, args.tables))?;
    sent.check(found)?;
    steps.number(kernel::memory(server.pid())?.resident as f64 / MIB);
    steps.number(kernel::descriptors(server.pid())? as f64);
    steps.disk = instance.size_on_disk()?;
    steps.timed(|| Ok(server.connect(None)?.query_drop(format!("DROP DATABASE {DATABASE}"))?))?;
    steps.shown.push(format!("{} MB", steps.disk.data >> 20));
    steps.values.push(steps.disk.data as f64 / MIB);
    Ok(server)
}

fn create(server: &Server, kind: Kind, tables: u32) -> Result<()> {
    let mut conn = server.connect(None)?;
    conn.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
    conn.query_drop(format!("USE {DATABASE}"))?;
    for table in 0..tables {
        conn.query_drop(format!(
            "CREATE TABLE t{table} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL, b VARCHAR(40) NOT NULL, \
             pad CHAR(40) NOT NULL, KEY (a), KEY (b)) ENGINE={}",
            kind.sql()
        ))?;
    }
    Ok(())
}

/// Rows that were sent, and of these those acknowledged.
#[derive(Default)]
struct Sent {
    all: AtomicU64,
    acknowledged: AtomicU64,
}

impl Sent {
    fn check(&self, found: u64) -> Result<()> {
        let (all, acknowledged) = (self.all.load(Ordering::SeqCst), self.acknowledged.load(Ordering::SeqCst));
        ensure!(
            (acknowledged..=all).contains(&found),
            "{found} rows were found: {acknowledged} were acknowledged, {all} were sent"
        );
        Ok(())
    }
}

/// Lets the sessions insert for a time, or until one has an error: the errors of all.
fn insert(instance: &Instance, args: &Args, sent: &Sent, seconds: &Seconds, time: Duration) -> Result<Vec<Result<()>>> {
    let stop = AtomicBool::new(false);
    let conns: Vec<_> =
        (0..args.sessions).map(|_| instance.connect(Some(DATABASE))).collect::<std::result::Result<_, _>>()?;
    let began = Instant::now();
    Ok(std::thread::scope(|scope| {
        let sessions: Vec<_> = conns
            .into_iter()
            .zip(0u64..)
            .map(|(mut conn, number)| {
                let stop = &stop;
                scope.spawn(move || -> Result<()> {
                    let mut rng = SmallRng::seed_from_u64(number);
                    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
                        let (table, value) = (rng.random_range(0..args.tables), rng.random::<u32>());
                        sent.all.fetch_add(1, Ordering::SeqCst);
                        let statement = format!(
                            "INSERT INTO t{table} (a, b, pad) VALUES ({}, 'value {value:010}', '{value:039}')",
                            value >> 8
                        );
                        if let Err(error) = conn.query_drop(statement) {
                            stop.store(true, Ordering::Relaxed);
                            return Err(error.into());
                        }
                        sent.acknowledged.fetch_add(1, Ordering::SeqCst);
                        seconds.count();
                    }
                    Ok(())
                })
            })
            .collect();
        sessions.into_iter().map(|session| session.join().expect("no session panics")).collect()
    }))
}

/// Rows of all tables, which are looked at for the first time since the start.
fn count(server: &Server, tables: u32) -> Result<u64> {
    let mut conn = server.connect(Some(DATABASE))?;
    let mut sum = 0;
    for first in (0..tables).step_by(AT_ONCE as usize) {
        let some = (first..tables.min(first + AT_ONCE)).map(|table| format!("(SELECT COUNT(*) FROM t{table})"));
        let counted: Option<u64> = conn.query_first(format!("SELECT {}", some.collect::<Vec<_>>().join("+")))?;
        sum += counted.context("a count is one row")?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_is_the_least_that_must_be_there() {
        let sent = Sent { all: 7.into(), acknowledged: 5.into() };
        assert!(sent.check(4).is_err());
        assert!((5..=7).all(|found| sent.check(found).is_ok()));
        assert!(sent.check(8).is_err());
    }

    #[test]
    fn steps_are_as_many_as_their_names() {
        let mut steps = Steps::default();
        steps.timed(|| Ok(())).unwrap();
        assert_eq!(steps.shown, ["0.000"]);
        steps.number(1234.6);
        assert_eq!(steps.shown[1], "1235");
        assert!(steps.timed(|| -> Result<()> { anyhow::bail!("no") }).is_err() && steps.shown.len() == 2);
    }
}
