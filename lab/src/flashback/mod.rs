//! The command `flashback`: random moments of the past of a ledger whose history the lab knows, under ends of the server.
//!
//! Writers move money and change entries, in transactions of which the lab knows the second in which each was committed, within bounds that reads
//! narrow ([`history`]); some are prepared a while before. Meanwhile, and after each restart, readers choose moments: each must
//! show exactly the transactions of before, whole, by each index, also if it is read again after flushes, merges, `kill -9`, a kill of the
//! recovery, and SHUTDOWN. What is to come, older than the retention, or from before the history began is refused by a message that says so,
//! and nothing else is. A table that is altered meanwhile is refused for moments before its last change, and for no others ([`shape`]). In each
//! round a wrong DELETE is undone by INSERT ... SELECT out of the past. At the end the retention is shortened, ended and begun anew, and nothing may
//! be left over.

mod history;
mod reader;
mod shape;
mod writer;

use crate::crash::{check_tables_of, fail_if, join_all};
use crate::engine::Conditions;
use crate::leaks;
use crate::options::{Isolation, Trial as Options};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use history::Change;
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use reader::Read;
use shape::Shape;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use writer::{Book, Writer};

/// The database of this ledger.
const DATABASE: &str = "flashback";
const ACCOUNTS: u32 = 60;
/// The error of a moment, or of a table at a moment, that cannot be read.
const NOT_KEPT: u16 = 1296;
const PATIENCE: Duration = Duration::from_secs(120);

/// Options of `flashback`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trial: Options,
    /// Seconds of history that the server keeps
    #[arg(long, default_value_t = 600)]
    retention: u64,
    /// The server is ended so many seconds after the load began at the latest
    #[arg(long, default_value_t = 6.0)]
    max_seconds: f64,
    /// Sessions that read moments under load
    #[arg(long, default_value_t = 2)]
    readers: u32,
    /// Moments that are read after each restart
    #[arg(long, default_value_t = 40)]
    moments: u32,
}

/// Which moments are kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    retention: u64,
    /// The history began in a second from the first to the second of these. It knows the moments behind that second; at those up to the second
    /// one the tables may not have been there.
    began: (u64, u64),
}

impl Kept {
    /// The oldest moment that is surely kept, for a while, from `now` on.
    fn oldest(self, now: u64) -> u64 {
        (self.began.1 + 1).max(now.saturating_sub(self.retention) + 2)
    }

    /// Whether a moment may be read that was asked for and answered at these times.
    fn may_be_read(self, moment: u64, asked: u64, answered: u64) -> bool {
        moment <= answered && moment > self.began.0 && moment >= asked.saturating_sub(self.retention)
    }

    /// Whether it may be refused as no longer kept.
    fn may_be_forgotten(self, moment: u64, answered: u64) -> bool {
        moment <= self.began.1 || moment < answered.saturating_sub(self.retention)
    }
}

/// The second that it is.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns when another second has begun.
fn next_second() {
    let begin = now();
    while now() == begin {
        sleep(Duration::from_millis(5));
    }
}

/// Everything that outlives a server.
struct Trial {
    args: Args,
    instance: Instance,
    conditions: Conditions,
    rng: SmallRng,
    book: Book,
    writers: Vec<Writer>,
    shape: Shape,
    kept: Kept,
    reads: u64,
}

/// The command `flashback`.
pub fn run(args: Args) -> Result<()> {
    ensure!(args.retention > 3, "--retention must be more than 3 seconds");
    let (seed, rng, folder) = args.trial.begin("flashback", "a ledger that is read at moments of its past")?;
    let conditions = Conditions {
        budget_mb: args.trial.cache_mb,
        isolation: Isolation::RepeatableRead,
        extra: args.trial.server_options()?,
        strata_extra: vec![format!("strata_history_retention={}", args.retention)],
    };
    let mut trial = Trial {
        instance: Instance::new(&folder, args.trial.engine)?,
        conditions,
        rng,
        book: Book::new(),
        writers: (1..=args.trial.threads).map(|number| Writer::new(number, seed)).collect(),
        shape: Shape::new(seed),
        kept: Kept { retention: args.retention, began: (0, 0) },
        reads: 0,
        args,
    };
    trial.all().with_context(|| format!("seed {seed}; {}", trial.instance.whereabouts()))
}

impl Trial {
    fn all(&mut self) -> Result<()> {
        self.instance.reset()?;
        let before = now();
        let mut server = self.instance.start(&self.conditions)?;
        self.kept.began.0 = before;
        self.kept.began.1 = self.create()?;
        for round in 1..=self.args.trial.rounds {
            server = self.round(server, round).with_context(|| format!("round {round}"))?;
        }
        self.end_of_history().context("the end of the history")?;
        leaks::end(server, self.args.trial.cache_mb)?;
        let history = self.book.history();
        println!(
            "{}: {} ends survived; {} transactions, of {} the second is known exactly; {} moments read and equal; a table changed \
             {} times, read at {} moments, of which {} were refused",
            self.args.trial.engine.title(),
            self.args.trial.rounds,
            history.len(),
            history.settled(),
            self.reads,
            self.shape.changes,
            self.shape.reads,
            self.shape.refused
        );
        Ok(())
    }

    /// The tables. Returns the second at whose end they are all there.
    fn create(&self) -> Result<u64> {
        let mut conn = self.instance.fresh_database(DATABASE)?;
        let engine = self.instance.kind().sql();
        for statement in [
            format!(
                "CREATE TABLE journal (number BIGINT PRIMARY KEY, writer INT NOT NULL, KEY by_writer (writer)) ENGINE={engine}"
            ),
            format!(
                "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL, moves BIGINT NOT NULL, \
                 pad VARCHAR(600) NOT NULL, KEY by_balance (balance)) ENGINE={engine}"
            ),
            format!(
                "CREATE TABLE entry (id BIGINT PRIMARY KEY, version INT NOT NULL, code VARCHAR(40) NOT NULL, \
                 note VARCHAR(1200) NOT NULL, UNIQUE KEY by_code (code), KEY by_version (version)) ENGINE={engine}"
            ),
            format!("INSERT INTO account SELECT seq, 0, 0, REPEAT('a', 600) FROM seq_1_to_{ACCOUNTS}"),
        ] {
            conn.query_drop(&statement).with_context(|| statement.clone())?;
        }
        let made = now();
        next_second();
        Ok(made)
    }

    /// Load, the end of the server, restart, moments, an undone DELETE.
    fn round(&mut self, server: Server, round: u32) -> Result<Server> {
        let milliseconds = (self.args.max_seconds * 1e3) as u64;
        let load_for = Duration::from_millis(self.rng.random_range(milliseconds / 4..=milliseconds));
        let is_clean = round % 3 == 0;
        let read_under_load = self.load_and_end(server, load_for, is_clean)?;
        let twice = self.rng.random_range(0..4) == 0;
        if twice {
            let recovering = self.instance.launch(&self.conditions)?;
            sleep(Duration::from_millis(self.rng.random_range(0..800)));
            recovering.kill()?;
        }
        let mut server = self.instance.launch(&self.conditions)?;
        server.wait_ready(PATIENCE).context("the restart failed")?;
        let mut conn = server.connect(Some(DATABASE))?;
        for writer in &mut self.writers {
            writer.resolve(&mut conn, &self.book)?;
        }
        fail_if("after the restart", &self.book.history().take_violations())?;
        self.shape.resolve(&mut conn)?;
        let began = Instant::now();
        let mut after = 0;
        for part in 0..3 {
            for _ in 0..self.args.moments / 3 {
                ensure!(self.look(&mut conn)? == Read::Done, "the server has gone");
                after += 1;
            }
            match part {
                0 => reader::compare_now(&mut conn, &self.book, &mut self.rng).map(drop)?,
                1 => self.undo(&mut conn)?,
                _ => {
                    // Old versions meet merges.
                    let told: Vec<(String, String, String, String)> =
                        conn.query("OPTIMIZE TABLE journal, account, entry")?;
                    ensure!(told.iter().all(|row| row.3 == "OK"), "OPTIMIZE TABLE: {told:?}");
                }
            }
        }
        let mut wrong = Vec::new();
        check_tables_of(&self.instance, &[DATABASE], &mut wrong)?;
        fail_if("after the restart", &wrong)?;
        server.ensure_alive()?;
        self.reads += read_under_load + after;
        println!(
            "round {round}: {} after {:.1} s{}; {} transactions; {read_under_load} moments read under load, {after} after the \
             restart in {:.1} s, a DELETE undone: ok",
            if is_clean { "shut down" } else { "killed" },
            load_for.as_secs_f64(),
            if twice { " and again while recovering" } else { "" },
            self.book.history().len(),
            began.elapsed().as_secs_f64()
        );
        Ok(server)
    }

    fn look(&mut self, conn: &mut Conn) -> Result<Read> {
        reader::moment(conn, &self.book, self.kept, &mut self.rng)
    }

    fn load_and_end(&mut self, mut server: Server, load_for: Duration, is_clean: bool) -> Result<u64> {
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let (instance, book, kept) = (&self.instance, &self.book, self.kept);
        let mut generators: Vec<SmallRng> =
            (0..self.args.readers).map(|_| SmallRng::seed_from_u64(self.rng.random())).collect();
        let (writers, shape) = (&mut self.writers, &mut self.shape);
        let wrong = std::thread::scope(|scope| {
            let mut sessions: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(|| writer.write(instance, book, &stop))).collect();
            for rng in &mut generators {
                sessions.push(scope.spawn(|| reader::read(instance, book, kept, rng, &stop, &done)));
            }
            sessions.push(scope.spawn(|| shape.work(instance, kept, &stop)));
            sleep(load_for);
            let mut wrong = Vec::new();
            if let Err(error) = server.ensure_alive() {
                wrong.push(format!("{error:#}"));
            }
            if let Err(error) = if is_clean { server.stop() } else { server.kill() } {
                wrong.push(format!("{error:#}"));
            }
            stop.store(true, Ordering::Relaxed);
            join_all(sessions, &mut wrong);
            wrong
        });
        fail_if("under load", &wrong)?;
        Ok(done.load(Ordering::Relaxed))
    }

    /// Entries are deleted by mistake, and brought back out of the past.
    fn undo(&mut self, conn: &mut Conn) -> Result<()> {
        next_second();
        let then = now();
        let before = self.book.history().now().entries;
        let wrong: Vec<(u64, u32)> =
            before.iter().map(|(&id, &version)| (id, version)).filter(|(id, _)| id % 3 > 0).collect();
        let removed = wrong.iter().map(|&(entry, _)| Change::Remove { entry }).collect();
        writer::alone(conn, &self.book, removed, "DELETE FROM entry WHERE id % 3 > 0")?;
        next_second();
        for statement in [
            "CREATE OR REPLACE TABLE saved LIKE entry".to_owned(),
            format!("SET strata_read_timestamp = FROM_UNIXTIME({then})"),
            "INSERT INTO saved SELECT * FROM entry".to_owned(),
            "SET strata_read_timestamp = DEFAULT".to_owned(),
        ] {
            conn.query_drop(&statement).with_context(|| statement.clone())?;
        }
        let saved: Vec<(u64, u32)> = conn.query("SELECT id, version FROM saved ORDER BY id")?;
        ensure!(saved.iter().copied().eq(before), "{} rows came back out of the past, not those of then", saved.len());
        let back = wrong.iter().map(|&(entry, version)| Change::Put { entry, version }).collect();
        writer::alone(conn, &self.book, back, "INSERT IGNORE INTO entry SELECT * FROM saved")?;
        conn.query_drop("DROP TABLE saved")?;
        reader::compare_now(conn, &self.book, &mut self.rng)?;
        Ok(())
    }

    /// A shorter retention, none, and one that begins anew.
    fn end_of_history(&mut self) -> Result<()> {
        let mut conn = self.instance.connect(Some(DATABASE))?;
        let shorter = self.kept.retention.div_ceil(2).min(4);
        let refused = |conn: &mut Conn, at: u64| -> Result<String> {
            conn.query_drop(format!("SET strata_read_timestamp = FROM_UNIXTIME({at})"))?;
            let answer = conn.query_drop("SELECT COUNT(*) FROM journal");
            conn.query_drop("SET strata_read_timestamp = DEFAULT")?;
            match answer {
                Err(mysql::Error::MySqlError(error)) if error.code == NOT_KEPT => Ok(error.message),
                answer => anyhow::bail!("the moment {at} should be refused: {answer:?}"),
            }
        };
        let old = now() - shorter - 1;
        conn.query_drop(format!("SET GLOBAL strata_history_retention = {shorter}"))?;
        self.kept.retention = shorter;
        refused(&mut conn, old)?;
        for _ in 0..self.args.moments / 3 {
            self.look(&mut conn)?;
        }
        // What was forgotten does not come back with a longer one.
        conn.query_drop(format!("SET GLOBAL strata_history_retention = {}", self.args.retention))?;
        refused(&mut conn, old)?;
        let last = now();
        conn.query_drop("SET GLOBAL strata_history_retention = 0")?;
        ensure!(refused(&mut conn, last)?.contains("no history is"), "it is not said that there is no history");
        let before = now();
        conn.query_drop(format!("SET GLOBAL strata_history_retention = {}", self.args.retention))?;
        self.kept = Kept { retention: self.args.retention, began: (before, now()) };
        refused(&mut conn, last)?;
        next_second();
        next_second();
        for _ in 0..self.args.moments / 3 {
            self.look(&mut conn)?;
        }
        reader::compare_now(&mut conn, &self.book, &mut self.rng).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_are_kept() {
        let kept = Kept { retention: 100, began: (49, 50) };
        assert_eq!((kept.oldest(60), kept.oldest(200)), (51, 102));
        // Began in 49 or 50: 50 may be known or not, 49 is not.
        assert!(!kept.may_be_read(49, 60, 60) && kept.may_be_read(50, 60, 60) && kept.may_be_forgotten(50, 60));
        assert!(kept.may_be_read(51, 60, 60) && !kept.may_be_forgotten(51, 60));
        // The clock goes on between question and answer.
        assert!(kept.may_be_read(100, 200, 201) && kept.may_be_forgotten(100, 201));
        assert!(!kept.may_be_read(99, 200, 200) && !kept.may_be_forgotten(101, 201));
        assert!(kept.may_be_read(61, 60, 61) && !kept.may_be_read(62, 60, 61));
    }
}
