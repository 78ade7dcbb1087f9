//! The command `online`: what others notice while a large table is altered.
//!
//! A table of sysbench's form is filled, then altered:
//!
//! ```text
//! at once       ADD COLUMN last and first, longer VARCHAR, RENAME COLUMN, DROP COLUMN: each demands ALGORITHM=INSTANT, and is timed
//! writers       sessions update, insert and delete single rows for a while: their rate and longest statement before
//! ADD INDEX     the same beside ALTER TABLE ... ADD INDEX, ALGORITHM=NOCOPY, LOCK=NONE: rate, longest statement, memory, its time
//! afterwards    the rate once more; the index must agree with the table, CHECK TABLE must say OK
//! ```
//!
//! An engine that refuses a change at once is shown as "refused". Engines are measured one after the other, each with a server of its
//! own that alone is running; statements are in the binary log.

use crate::drive::{Client, Control, Seen, drive};
use crate::engine::Kind;
use crate::leaks;
use crate::meter::{Meter, Usage, settle};
use crate::options::Rows;
use crate::report::{MIB, Report, Run};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const DATABASE: &str = "online";
/// Rows of one INSERT that fills.
const BATCH: u64 = 100_000;
/// Longer than any ALTER that is waited for.
const LONG: u64 = 24 * 3600;
const ADD_INDEX: &str = "ALTER TABLE t ADD INDEX k (k), ALGORITHM=NOCOPY, LOCK=NONE";

/// What is done at once, in order; what comes last is as what was first.
const AT_ONCE: [(&str, &str); 5] = [
    ("ADD COLUMN, last", "ADD COLUMN x INT NOT NULL DEFAULT 7"),
    ("ADD COLUMN, first", "ADD COLUMN y VARCHAR(20) DEFAULT 'y' FIRST"),
    ("longer VARCHAR", "MODIFY COLUMN pad VARCHAR(90) NOT NULL"),
    ("RENAME COLUMN", "RENAME COLUMN x TO z"),
    ("DROP COLUMN", "DROP COLUMN z"),
];

/// Options of `online`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    table: Rows<512>,
    /// Sessions that write
    #[arg(long, default_value_t = 8)]
    threads: u32,
    /// Seconds of writing before the index is added, and after it
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// The command `online`.
pub fn run(args: Args) -> Result<()> {
    let comparison = &args.table.given.comparison;
    let lab = comparison.site.folder()?;
    let engines: Vec<Kind> = comparison.engines.iter().copied().filter(|kind| *kind != Kind::Rocksdb).collect();
    if engines.len() < comparison.engines.len() {
        println!("{} is left out: it has no ALGORITHM=NOCOPY, LOCK=NONE", Kind::Rocksdb.title());
    }
    let title = format!("ALTER TABLE of {} rows, {} writers", args.table.rows, args.threads);
    let mut report = Report::new(&lab, &title)?;
    for round in 1..=comparison.rounds {
        for &kind in &engines {
            let bench = Bench { args: &args, instance: Instance::new(&lab, kind)?, round };
            bench.measure(&mut report).with_context(|| kind.title())?;
        }
    }
    report.finish()
}

struct Bench<'a> {
    args: &'a Args,
    instance: Instance,
    round: u32,
}

impl Bench<'_> {
    fn measure(&self, report: &mut Report) -> Result<()> {
        let given = &self.args.table.given;
        let conditions = given.conditions();
        self.instance.reset()?;
        let mut server = self.instance.start(&conditions)?;
        let mut conn = self.instance.fresh_database(DATABASE)?;
        let began = Instant::now();
        fill(&mut conn, &self.instance, self.args.table.rows)?;
        settle(server.pid())?;
        println!(
            "{}, round {}: filled in {:.1} s",
            self.instance.kind().title(),
            self.round,
            began.elapsed().as_secs_f64()
        );
        let at_once = at_once(&mut conn)?;
        for (name, took) in &at_once {
            let took = took.map_or("refused".into(), |took| format!("{:.1} ms", took.as_secs_f64() * 1e3));
            println!("  {name:<20} {took}");
        }
        let mut writers = self.writers()?;
        for phase in ["before", "ADD INDEX", "after"] {
            let adds = phase == "ADD INDEX";
            let (seen, usage, took, back) = self.phase(&server, writers, adds)?;
            writers = back;
            let longest = seen.latency.max_us as f64 / 1e3;
            println!(
                "  {phase:<20} {:>8.0} statements/s, p99 {:.1} ms, longest {longest:.1} ms, resident at most {:.0} MB{}",
                seen.transactions as f64 / seen.seconds,
                seen.latency.p99_us as f64 / 1e3,
                usage.rss_most() as f64 / MIB,
                took.map_or(String::new(), |took| format!("; it took {:.1} s", took.as_secs_f64()))
            );
            let errors = seen.failures();
            let mut run = Run::of("online", phase.into(), &server, &conditions, self.round)?.with(seen, usage);
            run.settings.extend([
                ("rows".into(), self.args.table.rows.to_string()),
                ("threads".into(), self.args.threads.to_string()),
            ]);
            run.further.insert("longest statement, ms".into(), longest);
            run.further.extend(took.map(|took| ("ADD INDEX, s".into(), took.as_secs_f64())));
            if phase == "before" {
                let at_once = at_once.iter().filter_map(|(name, took)| Some((name, took.as_ref()?)));
                run.further.extend(at_once.map(|(name, took)| (format!("{name}, ms"), took.as_secs_f64() * 1e3)));
            }
            report.add(run)?;
            ensure!(errors.is_empty(), "{phase}: {}", errors.join("; "));
        }
        drop(writers);
        check(&mut conn)?;
        drop(conn);
        server.ensure_alive()?;
        leaks::end(server, given.cache_mb)
    }

    fn writers(&self) -> Result<Vec<Writer>> {
        (0..self.args.threads)
            .map(|number| {
                let conn = self.instance.connect(Some(DATABASE))?;
                let rng = SmallRng::seed_from_u64(u64::from(number) + 1000 * u64::from(self.round));
                let next = self.args.table.rows + 1 + u64::from(number) * (1 << 40);
                Ok(Writer { conn, rng, rows: self.args.table.rows, next })
            })
            .collect()
    }

    /// Lets the writers work, for so many seconds or as long as the index is being added.
    fn phase(
        &self,
        server: &Server,
        writers: Vec<Writer>,
        adds: bool,
    ) -> Result<(Seen, Usage, Option<Duration>, Vec<Writer>)> {
        let control = Control::default();
        let meter = Meter::begin(server.pid(), &self.instance)?;
        let mut conn = self.instance.connect(Some(DATABASE))?;
        let seconds = if adds { LONG } else { self.args.seconds };
        let (driven, added) = std::thread::scope(|scope| {
            let driver = scope.spawn(|| drive(writers, seconds, None, &control));
            let added = adds.then(|| {
                let began = Instant::now();
                let added = conn.query_drop(ADD_INDEX);
                control.stop.store(true, Ordering::Relaxed);
                added.map(|()| began.elapsed())
            });
            (driver.join().expect("the driver does not panic"), added)
        });
        let usage = meter.end()?;
        let (mut seen, writers) = driven;
        seen.series.truncate(seen.seconds.ceil() as usize);
        Ok((seen, usage, added.transpose().context(ADD_INDEX)?, writers))
    }
}

fn fill(conn: &mut Conn, instance: &Instance, rows: u64) -> Result<()> {
    conn.query_drop(format!(
        "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad VARCHAR(60) NOT NULL) ENGINE={}",
        instance.engine_clause()
    ))?;
    for first in (1..=rows).step_by(BATCH as usize) {
        let last = (first + BATCH - 1).min(rows);
        conn.query_drop(format!(
            "INSERT INTO t SELECT seq, (seq * 7919) % 1000003, CONCAT(MD5(seq), SHA1(seq)), MD5(seq + 1) FROM seq_{first}_to_{last}"
        ))?;
    }
    Ok(())
}

/// Times of the changes at once; none of what is refused.
fn at_once(conn: &mut Conn) -> Result<Vec<(&'static str, Option<Duration>)>> {
    /// `ALGORITHM=INSTANT` is not supported.
    const REFUSED: [u16; 2] = [1845, 1846];
    let mut times = Vec::new();
    for (name, clause) in AT_ONCE {
        let began = Instant::now();
        match conn.query_drop(format!("ALTER TABLE t {clause}, ALGORITHM=INSTANT")) {
            Ok(()) => times.push((name, Some(began.elapsed()))),
            Err(mysql::Error::MySqlError(error)) if REFUSED.contains(&error.code) => {
                times.push((name, None));
                // What comes next may need it.
                conn.query_drop(format!("ALTER TABLE t {clause}"))?;
            }
            Err(error) => return Err(error).context(clause),
        }
    }
    Ok(times)
}

/// The new index agrees with the table.
fn check(conn: &mut Conn) -> Result<()> {
    let mut sums = |hint: &str| -> Result<(u64, Option<String>)> {
        let query = format!("SELECT COUNT(*), CAST(SUM(k) AS CHAR) FROM t {hint} WHERE k > -1");
        conn.query_first(&query)?.context(query)
    };
    let (by_index, by_table) = (sums("FORCE INDEX (k)")?, sums("FORCE INDEX (PRIMARY)")?);
    ensure!(by_index == by_table, "the index has {by_index:?}, the table {by_table:?}");
    let told: Vec<(String, String, String, String)> = conn.query("CHECK TABLE t EXTENDED")?;
    ensure!(told.iter().all(|row| row.2 == "status" && row.3 == "OK"), "CHECK TABLE: {told:?}");
    Ok(())
}

/// A session that writes single rows.
struct Writer {
    conn: Conn,
    rng: SmallRng,
    rows: u64,
    /// The id of its next new row.
    next: u64,
}

/// A statement of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Update(u64, u32),
    Insert(u64),
    Delete(u64),
}

impl Client for Writer {
    type Work = Write;
    type Done = ();

    fn draw(&mut self) -> (&'static str, Write) {
        match self.rng.random_range(0..10) {
            0 => {
                self.next += 1;
                ("insert", Write::Insert(self.next))
            }
            1 => ("delete", Write::Delete(self.rng.random_range(1..=self.rows))),
            _ => ("update", Write::Update(self.rng.random_range(1..=self.rows), self.rng.random_range(0..1_000_003))),
        }
    }

    fn attempt(&mut self, work: &Write) -> mysql::Result<()> {
        match *work {
            Write::Update(id, k) => self.conn.exec_drop("UPDATE t SET k = ? WHERE id = ?", (k, id)),
            Write::Insert(id) => {
                self.conn.exec_drop("INSERT INTO t (id, k, c, pad) VALUES (?, ?, 'new', 'new')", (id, id % 1_000_003))
            }
            Write::Delete(id) => self.conn.exec_drop("DELETE FROM t WHERE id = ?", (id,)),
        }
    }

    fn roll_back(&mut self) -> mysql::Result<()> {
        self.conn.query_drop("ROLLBACK")
    }

    fn note(&mut self, _: &Write, (): ()) {}
}
