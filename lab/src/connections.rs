//! The command `connections`: thousands of sessions at once on each engine, what each of them takes of the server's memory, and whether it
//! is given back.
//!
//! All sessions are opened and rest. Then each opens a transaction and leaves it open: it reads a row by the primary key, one by an index
//! and one with a BLOB, changes two rows of its own and adds one, so that it has a snapshot, row locks and a write buffer. Half of them
//! commit and half roll back, and all go. The same is done a second time on the same server, which must need no more than the first time.
//! All of it is done with a thread for each connection and with the server's pool of threads.
//!
//! Every row is checked in the end: those of sessions that committed are changed, the others are not.
//!
//! Rejected: sessions that work at the same time. What they take then depends on the moment; that memory is bounded by the budgets, which
//! other commands measure.

use crate::engine::{Conditions, Kind};
use crate::kernel;
use crate::leaks;
use crate::meter::{Meter, settle};
use crate::options::Budgeted;
use crate::report::{MIB, Report, Run};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::time::Instant;

const DATABASE: &str = "connections";
/// Rows of each session: it changes two of them.
const OWN: u32 = 4;
/// Bytes of a BLOB that each session reads.
const BLOB: u32 = 64 << 10;
/// Resident memory that two passes over the same may differ by: the allocator's arenas fill unevenly.
const UNEVEN: f64 = 0.15;

/// How the server runs sessions.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Handling {
    /// A thread for each
    Threads,
    /// A pool of threads
    Pool,
}

impl Handling {
    fn option(self) -> &'static str {
        match self {
            Handling::Threads => "thread_handling=one-thread-per-connection",
            Handling::Pool => "thread_handling=pool-of-threads",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Handling::Threads => "threads",
            Handling::Pool => "pool",
        }
    }
}

/// Options of `connections`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: Budgeted<128>,
    /// Sessions
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(2..))]
    count: u32,
    /// How the server runs them
    #[arg(long, value_enum, value_delimiter = ',', default_value = "threads,pool")]
    handling: Vec<Handling>,
}

/// What is printed of each engine and handling: resident memory in MiB, but for the last two, KiB for a session.
const STEPS: [&str; 8] = ["base", "opened", "in transaction", "ended", "gone", "gone again", "KB idle", "KB active"];

/// The command `connections`.
pub fn run(args: Args) -> Result<()> {
    let lab = args.given.comparison.site.folder()?;
    let title = format!("{} sessions; a session's transaction counts as one", args.count);
    let mut report = Report::new(&lab, &title)?.in_full();
    for round in 1..=args.given.comparison.rounds {
        println!("{} sessions, {} MB of memory, round {round}; resident, MB", args.count, args.given.cache_mb);
        println!("{:<18}{}", "", STEPS.map(|step| format!("{step:>15}")).concat());
        for &handling in &args.handling {
            let mut conditions = args.given.conditions();
            conditions.extra.extend([
                handling.option().into(),
                format!("max_connections={}", args.count + 20),
                format!("back_log={}", args.count),
                // Otherwise threads that rest would be measured, and those that have gone would not have.
                "thread_cache_size=0".into(),
            ]);
            for &kind in &args.given.comparison.engines {
                let instance = Instance::new(&lab, kind)?;
                instance.reset()?;
                let bench = Bench { args: &args, handling, conditions: &conditions, round };
                bench
                    .measure(instance.start(&conditions)?, &mut report)
                    .with_context(|| format!("{}, {}", kind.title(), handling.title()))?;
            }
        }
    }
    report.finish()
}

/// What the measurements of a round have in common.
struct Bench<'a> {
    args: &'a Args,
    handling: Handling,
    conditions: &'a Conditions,
    round: u32,
}

/// Resident memory in bytes after each step of a pass.
struct Pass {
    opened: u64,
    active: u64,
    ended: u64,
    gone: u64,
    /// What Strata says of itself while all transactions are open.
    counted: Option<u64>,
}

impl Bench<'_> {
    fn measure(&self, mut server: Server, report: &mut Report) -> Result<()> {
        let count = self.args.count;
        fill(&server, count)?;
        // The first sessions after a start open tables and fill caches.
        self.pass(&server, count.min(20), 0)?;
        settle(server.pid())?;
        let base = resident(&server)?;
        let meter = Meter::begin(server.pid(), server.instance())?;
        let began = Instant::now();
        let first = self.pass(&server, count, 1)?;
        let usage = meter.end()?;
        let seconds = began.elapsed().as_secs_f64();
        let again = self.pass(&server, count, 2)?;
        check(&server, count)?;
        server.ensure_alive()?;
        let each = |bytes: u64| bytes.saturating_sub(base) as f64 / f64::from(count) / 1024.0;
        let mb = |bytes: u64| bytes as f64 / MIB;
        let values = [
            mb(base),
            mb(first.opened),
            mb(first.active),
            mb(first.ended),
            mb(first.gone),
            mb(again.gone),
            each(first.opened),
            each(first.active),
        ];
        println!(
            "{:<18}{}",
            format!("{}, {}", server.instance().kind().title(), self.handling.title()),
            values.map(|value| format!("{value:>15.1}")).concat()
        );
        if let Some(counted) = first.counted {
            println!("{:<18}{:>15.1} MB counted by the engine while all transactions were open", "", mb(counted));
        }
        let (one, two) = (first.active.max(base) - base, again.active.max(base) - base);
        ensure!(
            two as f64 <= one as f64 * (1.0 + UNEVEN) + 16.0 * MIB,
            "sessions took {one} bytes the first time and {two} the second"
        );
        let mut further: BTreeMap<String, f64> =
            STEPS.iter().zip(values).map(|(step, value)| (figure(step), value)).collect();
        further.extend(first.counted.map(|counted| ("counted by the engine, MB".to_string(), mb(counted))));
        report.add(Run {
            settings: BTreeMap::from([
                ("sessions".into(), count.to_string()),
                ("handling".into(), self.handling.title().into()),
            ]),
            seconds,
            transactions: u64::from(count),
            further,
            usage,
            ..Run::of("connections", self.handling.title().into(), &server, self.conditions, self.round)?
        })?;
        leaks::end(server, self.args.given.cache_mb)
    }

    /// Opens `count` sessions, lets each open a transaction, ends them all. Rows get the number of the pass.
    fn pass(&self, server: &Server, count: u32, number: u32) -> Result<Pass> {
        let mut sessions = Vec::new();
        for session in 0..count {
            let conn = server.connect(Some(DATABASE));
            sessions.push(conn.with_context(|| format!("session {session} of {count}"))?);
        }
        let opened = resident(server)?;
        for (session, conn) in sessions.iter_mut().enumerate() {
            begin(conn, session as u32, number).with_context(|| format!("the transaction of session {session}"))?;
        }
        let active = resident(server)?;
        let counted = match server.instance().kind() {
            Kind::Strata => {
                let mut figure = |name| status(&mut sessions[0], name);
                let open = figure("Strata_open_transactions")?;
                ensure!(open == u64::from(count), "{open} transactions are open, and {count} should be");
                Some(figure("Strata_memory_bytes")?)
            }
            _ => None,
        };
        for (session, conn) in sessions.iter_mut().enumerate() {
            conn.query_drop(if session % 2 == 0 { "COMMIT" } else { "ROLLBACK" })?;
        }
        let ended = resident(server)?;
        drop(sessions);
        wait_gone(server)?;
        Ok(Pass { opened, active, ended, gone: resident(server)?, counted })
    }
}

/// A step's figure as it is stored, with its unit.
fn figure(step: &str) -> String {
    match step.strip_prefix("KB ") {
        Some(what) => format!("a session {what}: memory, KB"),
        None => format!("resident, {step}: MB"),
    }
}

fn resident(server: &Server) -> Result<u64> {
    Ok(kernel::memory(server.pid())?.resident)
}

fn fill(server: &Server, count: u32) -> Result<()> {
    let sql = server.instance().kind().sql();
    let mut conn = server.connect(None)?;
    conn.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
    conn.query_drop(format!("USE {DATABASE}"))?;
    conn.query_drop(format!(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, n INT NOT NULL, pad CHAR(100) NOT NULL, KEY (a)) ENGINE={sql}"
    ))?;
    conn.query_drop(format!("CREATE TABLE b (id INT PRIMARY KEY, value MEDIUMBLOB NOT NULL) ENGINE={sql}"))?;
    conn.query_drop(format!(
        "INSERT INTO t SELECT seq, seq % 1000, 0, seq FROM seq_0_to_{}",
        (u64::from(count) * u64::from(OWN)) - 1
    ))?;
    conn.query_drop(format!("INSERT INTO b SELECT seq, REPEAT(CHAR(65 + seq), {BLOB}) FROM seq_0_to_9"))?;
    Ok(())
}

/// A transaction that reads and writes, and stays open.
fn begin(conn: &mut Conn, session: u32, pass: u32) -> Result<()> {
    let own = session * OWN;
    conn.query_drop("START TRANSACTION")?;
    let row: Option<u32> = conn.query_first(format!("SELECT id FROM t WHERE id = {}", own + 3))?;
    ensure!(row == Some(own + 3), "row {} is {row:?}", own + 3);
    let row: Option<u32> = conn.query_first(format!("SELECT COUNT(*) FROM t WHERE a = {}", session % 1000))?;
    ensure!(row.is_some_and(|rows| rows > 0), "no row by the index");
    let blob: Option<Vec<u8>> = conn.query_first(format!("SELECT value FROM b WHERE id = {}", session % 10))?;
    ensure!(blob.is_some_and(|value| value.len() == BLOB as usize), "no BLOB");
    conn.query_drop(format!("UPDATE t SET n = {pass} WHERE id IN ({own}, {})", own + 1))?;
    let added = u64::from(session) + 1_000_000 * (u64::from(pass) + 1);
    conn.query_drop(format!("INSERT INTO t VALUES ({added}, {}, 0, 'added')", session % 1000))?;
    Ok(())
}

fn status(conn: &mut Conn, name: &str) -> Result<u64> {
    let row: Option<(String, u64)> = conn.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    row.map(|(_, value)| value).with_context(|| format!("there is no status variable {name}"))
}

/// Sessions that were closed may last for a moment.
fn wait_gone(server: &Server) -> Result<()> {
    let began = Instant::now();
    let mut conn = server.connect(None)?;
    while status(&mut conn, "Threads_connected")? > 1 {
        ensure!(began.elapsed() < crate::server::PATIENCE, "sessions do not go");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(())
}

/// Rows of sessions that committed are changed twice, and no others.
fn check(server: &Server, count: u32) -> Result<()> {
    let mut conn = server.connect(Some(DATABASE))?;
    let wrong: Option<u64> = conn.query_first(format!(
        "SELECT COUNT(*) FROM t WHERE id < 1000000 AND n <> IF(id % {OWN} < 2 AND id DIV {OWN} % 2 = 0, 2, 0)"
    ))?;
    ensure!(wrong == Some(0), "{wrong:?} rows have what no session has committed");
    let added: Option<u64> = conn.query_first("SELECT COUNT(*) FROM t WHERE id >= 2000000")?;
    let expected = 2 * u64::from(count.div_ceil(2));
    ensure!(added == Some(expected), "{added:?} rows were added, and {expected} should be");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_units() {
        assert_eq!(figure("KB active"), "a session active: memory, KB");
        assert_eq!(figure("gone"), "resident, gone: MB");
    }
}
