//! The command `bulk`: transactions of millions of rows in one statement each, on each engine.
//!
//! All of them work on one table, in the order of [`steps`]: inserted, updated (a column that no index has, and one that an
//! index has), deleted, each rolled back first and then committed; and one transaction with a savepoint in its middle. Before
//! rows are deleted their number and sums must be what the committed steps make. Meanwhile another session updates single rows of
//! another table: the longest time it waits is what everybody else notices.
//!
//! Each statement is stored as a run, in which it counts as one transaction.
//!
//! The statements are not written to the binary log: its cache would be a file as large as the transaction, for every engine.

use crate::engine::Conditions;
use crate::leaks;
use crate::meter::Meter;
use crate::options::Rows;
use crate::report::{MIB, Report, Run};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DATABASE: &str = "bulk";
const OTHER_ROWS: u64 = 1000;
/// Between two statements of the other session.
const PAUSE: Duration = Duration::from_millis(2);

/// Options of `bulk`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    table: Rows<64>,
    /// Leaves out the secondary index, and what updates its column
    #[arg(long)]
    no_index: bool,
    /// Leaves out rollbacks and the savepoint: some engines need very long for them
    #[arg(long)]
    commits_only: bool,
}

/// A statement, and what is measured of it.
struct Step {
    name: &'static str,
    statement: String,
}

/// The command `bulk`.
pub fn run(args: Args) -> Result<()> {
    let lab = args.table.given.comparison.site.folder()?;
    let conditions = args.table.given.conditions();
    let steps = steps(args.table.rows, !args.no_index, !args.commits_only);
    let title = format!("Transactions of {} rows; a statement counts as a transaction", args.table.rows);
    let mut report = Report::new(&lab, &title)?.with(FIGURES);
    for round in 1..=args.table.given.comparison.rounds {
        println!(
            "{} rows in a transaction, {} MB of memory, {}, round {round}",
            args.table.rows,
            args.table.given.cache_mb,
            if args.no_index { "no secondary index" } else { "an index on k" }
        );
        for &kind in &args.table.given.comparison.engines {
            let instance = Instance::new(&lab, kind)?;
            instance.reset()?;
            let server = instance.start(&conditions)?;
            println!(
                "{:<34}{:>9} {:>8} {:>11} {:>10} {:>13}",
                kind.title(),
                "s",
                "CPU s",
                "MB written",
                "RSS, MB",
                "other, ms"
            );
            Bench { args: &args, conditions: &conditions, round }.measure(&server, &steps, &mut report)?;
            leaks::end(server, args.table.given.cache_mb)?;
        }
    }
    report.finish()
}

/// The figures of the report.
const FIGURES: &[&str] = &["transactions/s", "server CPU us/tx", "KB written/tx", "resident at most, MB"];

/// What the statements of a round have in common.
struct Bench<'a> {
    args: &'a Args,
    conditions: &'a Conditions,
    round: u32,
}

fn steps(rows: u64, index: bool, all: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |name, statement: &str| steps.push(Step { name, statement: statement.to_string() });
    let insert = |from: u64, to: u64| {
        format!("INSERT INTO t SELECT seq, (seq * 7919) % 1000003, 0, REPEAT('x', 60) FROM seq_{from}_to_{to}")
    };
    let mut single = |name, rollback, commit, statement: &str| {
        if all {
            add(name, statement);
            add(rollback, "ROLLBACK");
        }
        add(name, statement);
        add(commit, "COMMIT");
    };
    single("insert", "insert: rollback", "insert: commit", &insert(1, rows));
    single("update", "update: rollback", "update: commit", "UPDATE t SET v = v + 1");
    if index {
        let statement = "UPDATE t SET k = k + 1";
        single("update of the index", "update of the index: rollback", "update of the index: commit", statement);
    }
    if all {
        let half = rows / 2;
        add("half updated", &format!("UPDATE t SET v = v + 1 WHERE id <= {half}"));
        add("savepoint", "SAVEPOINT middle");
        add("all updated", "UPDATE t SET v = v + 1");
        add("half deleted", &format!("DELETE FROM t WHERE id > {half}"));
        add("rollback to the savepoint", "ROLLBACK TO SAVEPOINT middle");
        add("a tenth inserted", &insert(rows + 1, rows + rows / 10));
        add("all of that: commit", "COMMIT");
    }
    add("check", "");
    if all {
        add("delete", "DELETE FROM t WHERE v >= 0");
        add("delete: rollback", "ROLLBACK");
    }
    add("delete", "DELETE FROM t WHERE v >= 0");
    add("delete: commit", "COMMIT");
    steps
}

/// Number of rows and sums of `id` and `v` before they are deleted.
fn expected(rows: u64, all: bool) -> (u64, u64, u64) {
    if all {
        let count = rows + rows / 10;
        (count, count * (count + 1) / 2, rows + rows / 2)
    } else {
        (rows, rows * (rows + 1) / 2, rows)
    }
}

impl Bench<'_> {
    fn measure(&self, server: &Server, steps: &[Step], report: &mut Report) -> Result<()> {
        let (args, kind) = (self.args, server.instance().kind());
        // How often each name has come, as some statements are rolled back first and then repeated.
        let mut times = BTreeMap::<&str, u32>::new();
        let mut conn = server.connect(None)?;
        conn.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
        conn.query_drop(format!("USE {DATABASE}"))?;
        conn.query_drop("SET SESSION sql_log_bin = 0, autocommit = 0")?;
        let index = if args.no_index { "" } else { ", KEY (k)" };
        conn.query_drop(format!(
            "CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, v INT NOT NULL, c CHAR(60) NOT NULL{index}) ENGINE={}",
            kind.sql()
        ))?;
        conn.query_drop(format!("CREATE TABLE other (id INT PRIMARY KEY, v INT NOT NULL) ENGINE={}", kind.sql()))?;
        conn.query_drop(format!("INSERT INTO other SELECT seq, 0 FROM seq_1_to_{OTHER_ROWS}"))?;
        conn.query_drop("COMMIT")?;
        let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut second = server.connect(Some(DATABASE))?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| others(&mut second, &stop, &longest));
            let outcome = steps.iter().try_for_each(|step| {
                if step.statement.is_empty() {
                    return check(&mut conn, args);
                }
                longest.store(0, Ordering::Relaxed);
                let meter = Meter::begin(server.pid(), server.instance())?;
                let began = Instant::now();
                conn.query_drop(&step.statement).with_context(|| step.statement.clone())?;
                let time = began.elapsed();
                let longest_wait = Duration::from_micros(longest.load(Ordering::Relaxed));
                let slice = times.entry(step.name).or_default();
                *slice += 1;
                let run =
                    Run { usage: meter.end()?, slice: *slice, ..self.run(server, step.name, time, longest_wait)? };
                print_step(&run, longest_wait);
                report.add(run)
            });
            stop.store(true, Ordering::Relaxed);
            other.join().expect("the other session does not panic")?;
            outcome
        })
    }

    fn run(&self, server: &Server, name: &str, time: Duration, longest_wait: Duration) -> Result<Run> {
        let index = if self.args.no_index { "none" } else { "on k" };
        Ok(Run {
            settings: BTreeMap::from([
                ("rows".into(), self.args.table.rows.to_string()),
                ("secondary index".into(), index.into()),
                ("statements".into(), "not in the binary log".into()),
            ]),
            seconds: time.as_secs_f64(),
            transactions: 1,
            further: BTreeMap::from([
                ("seconds of the statement".into(), time.as_secs_f64()),
                ("longest wait of another session, ms".into(), longest_wait.as_secs_f64() * 1e3),
            ]),
            ..Run::of("bulk", name.into(), server, self.conditions, self.round)?
        })
    }
}

/// The other session: single rows, one after the other.
fn others(conn: &mut Conn, stop: &AtomicBool, longest: &AtomicU64) -> Result<()> {
    conn.query_drop("SET SESSION sql_log_bin = 0")?;
    let mut row = 0;
    while !stop.load(Ordering::Relaxed) {
        row = row % OTHER_ROWS + 1;
        let began = Instant::now();
        conn.query_drop(format!("UPDATE other SET v = v + 1 WHERE id = {row}"))?;
        longest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn check(conn: &mut Conn, args: &Args) -> Result<()> {
    let found: Option<(u64, u64, u64)> = conn.query_first("SELECT COUNT(*), SUM(id), SUM(v) FROM t")?;
    conn.query_drop("COMMIT")?;
    let expected = expected(args.table.rows, !args.commits_only);
    ensure!(found == Some(expected), "rows, sum of id, sum of v are {found:?}, not {expected:?}");
    Ok(())
}

fn print_step(run: &Run, longest_wait: Duration) {
    println!(
        "  {:<32}{:>9.2} {:>8.2} {:>11.0} {:>10.0} {:>13.1}",
        run.label,
        run.seconds,
        run.usage.cpu_us as f64 / 1e6,
        run.usage.write_bytes as f64 / MIB,
        run.usage.rss_most() as f64 / MIB,
        longest_wait.as_secs_f64() * 1e3
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `check` expects, from the steps themselves.
    #[test]
    fn sums_are_those_of_the_committed_steps() {
        for all in [false, true] {
            let (mut committed, mut at_savepoint) = (std::collections::BTreeMap::<u64, u64>::new(), None);
            let mut rows = committed.clone();
            for Step { statement, .. } in steps(100, true, all) {
                match statement.as_str() {
                    "COMMIT" => committed = rows.clone(),
                    "ROLLBACK" => rows = committed.clone(),
                    "SAVEPOINT middle" => at_savepoint = Some(rows.clone()),
                    "ROLLBACK TO SAVEPOINT middle" => rows = at_savepoint.take().unwrap(),
                    "UPDATE t SET v = v + 1" => rows.values_mut().for_each(|v| *v += 1),
                    "UPDATE t SET v = v + 1 WHERE id <= 50" => rows.range_mut(..=50).for_each(|(_, v)| *v += 1),
                    "DELETE FROM t WHERE id > 50" => rows.retain(|&id, _| id <= 50),
                    "UPDATE t SET k = k + 1" => {}
                    "" => {
                        let sums = (rows.len() as u64, rows.keys().sum(), rows.values().sum());
                        assert_eq!(sums, expected(100, all));
                    }
                    "DELETE FROM t WHERE v >= 0" => rows.clear(),
                    insert if insert.contains("seq_1_to_100") => rows.extend((1..=100).map(|id| (id, 0))),
                    insert if insert.contains("seq_101_to_110") => rows.extend((101..=110).map(|id| (id, 0))),
                    other => panic!("{other}"),
                }
            }
            assert!(committed.is_empty());
        }
    }
}
