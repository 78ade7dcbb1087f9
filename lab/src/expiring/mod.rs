//! The command `ttl`: rows that expire, while the purge removes them and the server is ended again and again.
//!
//! Writers add rows that live for seconds, prolong and delete some, and put rows in the places of others ([`writer`]); some transactions are
//! prepared, and ended a while later or by the next server. All rows are known, so is when each expires ([`rows`]). Under load the answer to each
//! change must fit the second in which it was given, readers must see no row that had expired, and all indexes must show the same in one snapshot at
//! one moment. The purge is told to begin with all tables again and again, so the ends of the server, by SIGKILL and every third time by
//! SHUTDOWN, meet it at work.
//!
//! After each restart every index shows, at a moment that is just to come, the rows that live then and no others; with the clock set back, nothing
//! that was deleted or has given way, and only rows as they were written; CHECK TABLE is clean. In the end all that can expire does, and the
//! purge must leave no row of it and no entry.

mod rows;
mod writer;

use crate::crash::{check_tables_of, fail_if, join_all};
use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::options::{Isolation, Trial as Options};
use crate::server::{Instance, PATIENCE, Server};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rows::{LIFE, Row, Rows};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use writer::Writer;

const DATABASE: &str = "expiring";
/// The table whose rows an index has in the order in which they expire, and the one that the purge reads as a whole. Even ids are in the first.
const TABLES: [&str; 2] = ["ordered", "plain"];
/// So long what can expire may be there after it has.
const PURGED_WITHIN: Duration = Duration::from_secs(60);
/// Between two words to the purge to begin with all tables.
const HURRY: Duration = Duration::from_millis(50);

/// Options of `ttl`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trial: Options,
    /// The server is ended so many seconds after the load began at the latest
    #[arg(long, default_value_t = 4.0)]
    max_seconds: f64,
    /// Seconds that a row lives at most, unless it is prolonged
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    life: u64,
    /// Sessions that read under load
    #[arg(long, default_value_t = 2)]
    readers: u32,
}

/// The second that it is.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn table_of(id: u64) -> &'static str {
    TABLES[(id % 2) as usize]
}

fn indexes_of(table: &str) -> &'static [&'static str] {
    if table == TABLES[0] {
        &["PRIMARY", "by_code", "by_kind", "by_moment"]
    } else {
        &["PRIMARY", "by_code", "by_kind"]
    }
}

/// Everything that outlives a server.
struct Trial {
    args: Args,
    instance: Instance,
    conditions: Conditions,
    rng: SmallRng,
    writers: Vec<Writer>,
    /// Rows that the purge had removed when servers ended.
    purged: u64,
    reads: u64,
}

/// The command `ttl`.
pub fn run(args: Args) -> Result<()> {
    ensure!(args.trial.engine == Kind::Strata, "{} has no rows that expire", args.trial.engine.title());
    let (seed, rng, folder) = args.trial.begin("ttl", "rows that expire")?;
    let conditions = Conditions {
        budget_mb: args.trial.cache_mb,
        isolation: Isolation::RepeatableRead,
        extra: args.trial.server_options()?,
        strata_extra: vec![],
    };
    let mut trial = Trial {
        instance: Instance::new(&folder, args.trial.engine)?,
        conditions,
        rng,
        writers: (1..=args.trial.threads).map(|number| Writer::new(number, args.life, seed)).collect(),
        purged: 0,
        reads: 0,
        args,
    };
    trial.all().with_context(|| format!("seed {seed}; {}", trial.instance.whereabouts()))
}

impl Trial {
    fn all(&mut self) -> Result<()> {
        self.instance.reset()?;
        let mut server = self.instance.start(&self.conditions)?;
        self.create()?;
        for round in 1..=self.args.trial.rounds {
            server = self.round(server, round).with_context(|| format!("round {round}"))?;
        }
        ensure!(self.purged > 0, "the purge had removed nothing when a server ended: longer rounds are needed");
        self.await_purge().context("the end of all rows that expire")?;
        leaks::end(server, self.args.trial.cache_mb)?;
        let sum = |of: fn(&Writer) -> u64| self.writers.iter().map(of).sum::<u64>();
        println!(
            "{}: {} ends survived; {} transactions; {} rows were added, {} gave way to others, {} rows were found or not found on the \
             second; the purge had removed {} rows when servers ended, {} reads under load",
            self.args.trial.engine.title(),
            self.args.trial.rounds,
            sum(|writer| writer.acknowledged),
            sum(|writer| writer.added),
            sum(|writer| writer.gave_way),
            sum(|writer| writer.judged),
            self.purged,
            self.reads
        );
        Ok(())
    }

    fn create(&self) -> Result<()> {
        let mut conn = self.instance.fresh_database(DATABASE)?;
        let columns = "id BIGINT PRIMARY KEY, code BIGINT NOT NULL, version INT NOT NULL, kind INT NOT NULL, m TIMESTAMP NULL, \
                       pad VARCHAR(200) NOT NULL, UNIQUE KEY by_code (code), KEY by_kind (kind)";
        for statement in [
            format!(
                "CREATE TABLE ordered ({columns}, KEY by_moment (m)) ENGINE=STRATA TTL='m + INTERVAL {LIFE} SECOND'"
            ),
            format!("CREATE TABLE plain ({columns}) ENGINE=STRATA TTL='m + INTERVAL {LIFE} SECOND'"),
            "CREATE TABLE journal (number BIGINT PRIMARY KEY) ENGINE=STRATA".to_owned(),
        ] {
            conn.query_drop(&statement).with_context(|| statement.clone())?;
        }
        Ok(())
    }

    /// Load, the end of the server, restart, comparison.
    fn round(&mut self, server: Server, round: u32) -> Result<Server> {
        let milliseconds = (self.args.max_seconds * 1e3) as u64;
        let load_for = Duration::from_millis(self.rng.random_range(milliseconds / 2..=milliseconds));
        let is_clean = round % 3 == 0;
        let purged = self.load_and_end(server, load_for, is_clean)?;
        self.purged += purged;
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
            writer.resolve(&mut conn)?;
        }
        let (live, stored) = self.verify(&mut conn)?;
        server.ensure_alive()?;
        println!(
            "round {round}: {} after {:.1} s{}; the purge had removed {purged} rows; {live} rows live, {stored} are stored: ok",
            if is_clean { "shut down" } else { "killed" },
            load_for.as_secs_f64(),
            if twice { " and again while recovering" } else { "" },
        );
        Ok(server)
    }

    /// How many rows the purge had removed at the end.
    fn load_and_end(&mut self, mut server: Server, load_for: Duration, is_clean: bool) -> Result<u64> {
        let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        let instance = &self.instance;
        let mut conn = server.connect(None)?;
        let mut generators: Vec<SmallRng> =
            (0..self.args.readers).map(|_| SmallRng::seed_from_u64(self.rng.random())).collect();
        let writers = &mut self.writers;
        let (purged, wrong) = std::thread::scope(|scope| {
            let mut sessions: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(|| writer.write(instance, &stop))).collect();
            for rng in &mut generators {
                sessions.push(scope.spawn(|| read(instance, rng, &stop, &reads)));
            }
            let (began, mut wrong, mut purged) = (Instant::now(), Vec::new(), Ok(0));
            while began.elapsed() < load_for {
                if let Err(error) = conn.query_drop("SET GLOBAL strata_ttl_purge = ON") {
                    wrong.push(format!("the purge: {error}"));
                    break;
                }
                sleep(HURRY);
                purged = removed(&mut conn);
            }
            if let Err(error) = server.ensure_alive() {
                wrong.push(format!("{error:#}"));
            }
            if let Err(error) = if is_clean { server.stop() } else { server.kill() } {
                wrong.push(format!("{error:#}"));
            }
            stop.store(true, Ordering::Relaxed);
            join_all(sessions, &mut wrong);
            (purged, wrong)
        });
        fail_if("under load", &wrong)?;
        self.reads += reads.load(Ordering::Relaxed);
        purged
    }

    /// Compares what there is with what is known, while nobody writes and the purge rests: how many rows live, and are stored.
    fn verify(&mut self, conn: &mut Conn) -> Result<(usize, usize)> {
        conn.query_drop("SET GLOBAL strata_ttl_purge = OFF")?;
        // The purge has gone by the clock, which is behind this second.
        let at = now() + 2;
        let mut known = Rows::new();
        self.writers.iter().for_each(|writer| known.extend(&writer.rows));
        let (seen, mut wrong) = everything(conn, at)?;
        let (stored, more) = everything(conn, 1)?;
        wrong.extend(more);
        wrong.extend(rows::compare(&known, &seen, &stored, at));
        check_tables_of(&self.instance, &[DATABASE], &mut wrong)?;
        fail_if("after the restart", &wrong)?;
        self.writers.iter_mut().for_each(|writer| writer.rows.retain(|id, _| stored.contains_key(id)));
        conn.query_drop("SET GLOBAL strata_ttl_purge = ON")?;
        Ok((seen.len(), stored.len()))
    }

    /// What can expire does, and must go, with its entries.
    fn await_purge(&mut self) -> Result<()> {
        let mut conn = self.instance.connect(Some(DATABASE))?;
        let wanted: Rows = self
            .writers
            .iter()
            .flat_map(|writer| writer.rows.clone())
            .filter(|(_, row)| row.end() == u64::MAX)
            .collect();
        let last = self
            .writers
            .iter()
            .flat_map(|writer| writer.rows.values())
            .map(|row| row.end())
            .filter(|&end| end != u64::MAX);
        let last = last.max().unwrap_or(0);
        while now() < last {
            sleep(Duration::from_millis(20));
        }
        let began = Instant::now();
        loop {
            conn.query_drop("SET GLOBAL strata_ttl_purge = ON")?;
            let (stored, wrong) = everything(&mut conn, 1)?;
            if wrong.is_empty() && stored == wanted {
                break;
            }
            let left = stored.len().saturating_sub(wanted.len());
            ensure!(began.elapsed() < PURGED_WITHIN, "{left} rows are left that have expired: {wrong:?}");
            sleep(Duration::from_millis(100));
        }
        let mut wrong = Vec::new();
        check_tables_of(&self.instance, &[DATABASE], &mut wrong)?;
        fail_if("after the purge", &wrong)
    }
}

fn removed(conn: &mut Conn) -> Result<u64> {
    let row: Option<(String, u64)> = conn.query_first("SHOW GLOBAL STATUS LIKE 'Strata_ttl_rows_removed'")?;
    Ok(row.context("there is no Strata_ttl_rows_removed")?.1)
}

/// All rows at a second, by the primary key, and where other indexes show others.
fn everything(conn: &mut Conn, at: u64) -> Result<(Rows, Vec<String>)> {
    conn.query_drop(format!("SET timestamp = {at}"))?;
    let (mut all, mut wrong) = (Rows::new(), Vec::new());
    for table in TABLES {
        let mut of_table = Rows::new();
        for index in indexes_of(table) {
            let found: Vec<(u64, u64, u32, Option<u64>)> = conn.query(format!(
                "SELECT id, code, version, CAST(UNIX_TIMESTAMP(m) AS UNSIGNED) FROM {table} FORCE INDEX ({index}) {}",
                condition(index)
            ))?;
            let count = found.len();
            let rows: Rows =
                found.into_iter().map(|(id, code, version, moment)| (id, Row { code, version, moment })).collect();
            if rows.len() != count {
                wrong.push(format!("{table} has rows twice by {index}"));
            }
            // From entries alone, where they have what is asked for.
            let count: Option<u64> =
                conn.query_first(format!("SELECT COUNT(*) FROM {table} FORCE INDEX ({index}) {}", condition(index)))?;
            if count != Some(rows.len() as u64) {
                wrong.push(format!("{table} has {} rows by {index}, and counts {count:?}", rows.len()));
            }
            if *index == "PRIMARY" {
                of_table = rows;
            } else if rows != of_table {
                wrong.push(format!("{table} has {} rows, and {} by {index}, at {at}", of_table.len(), rows.len()));
            }
        }
        all.extend(of_table);
    }
    conn.query_drop("SET timestamp = DEFAULT")?;
    Ok((all, wrong))
}

/// True for each row, and answered by a range of the index.
fn condition(index: &str) -> &'static str {
    match index {
        "PRIMARY" => "WHERE id > 0",
        "by_code" => "WHERE code > 0",
        "by_kind" => "WHERE kind >= 0",
        _ => "WHERE m IS NULL OR m > '1990-01-01'",
    }
}

/// Reads until `stop` is set or the server goes away: no row that has expired, and in one snapshot at one moment the same by all indexes.
fn read(instance: &Instance, rng: &mut SmallRng, stop: &AtomicBool, reads: &AtomicU64) -> Result<()> {
    let Ok(mut conn) = instance.connect(Some(DATABASE)) else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) {
        let table = TABLES[rng.random_range(0..TABLES.len())];
        match look(&mut conn, table, rng) {
            Ok(wrong) => fail_if("for a reader", &wrong)?,
            Err(error) if crate::drive::is_lost(&error) => return Ok(()),
            Err(error) => anyhow::bail!("a reader: {error}"),
        }
        reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn look(conn: &mut Conn, table: &str, rng: &mut SmallRng) -> mysql::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let indexes = indexes_of(table);
    let index = indexes[rng.random_range(0..indexes.len())];
    let asked = now();
    let lock = if rng.random_range(0..4) == 0 { "FOR UPDATE SKIP LOCKED" } else { "" };
    let found: Vec<(u64, Option<u64>)> = conn.query(format!(
        "SELECT id, CAST(UNIX_TIMESTAMP(m) AS UNSIGNED) FROM {table} FORCE INDEX ({index}) {} LIMIT 500 {lock}",
        condition(index)
    ))?;
    for (id, moment) in found {
        if moment.is_some_and(|moment| moment + LIFE <= asked) {
            wrong.push(format!(
                "row {id} of {table} is seen by {index} at {asked}, though it expired {moment:?} + {LIFE}"
            ));
        }
    }
    conn.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
    conn.query_drop(format!("SET timestamp = {}", now() - rng.random_range(0..2)))?;
    let mut sums = Vec::new();
    for index in indexes {
        let sum: Option<(u64, u64)> = conn.query_first(format!(
            "SELECT COUNT(*), CAST(COALESCE(SUM(id), 0) AS UNSIGNED) FROM {table} FORCE INDEX ({index}) {}",
            condition(index)
        ))?;
        sums.push(sum);
    }
    conn.query_drop("COMMIT")?;
    conn.query_drop("SET timestamp = DEFAULT")?;
    if sums.iter().any(|sum| *sum != sums[0]) {
        wrong.push(format!("the indexes {indexes:?} of {table} show {sums:?} in one snapshot"));
    }
    Ok(wrong)
}
