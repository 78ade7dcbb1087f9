//! The command `clones`: how long it takes from the statement that makes a checkpoint to a second server that answers from it, at two sizes of
//! the store, at rest and under writers.
//!
//! A clone is a checkpoint as `#strata` of a data directory that was made before, with the definitions of the tables beside it. On one file system no
//! table file is copied, so the size of the store must not matter; what does is what lies in memory, which is flushed first, and the start of
//! the server itself, which is measured with an empty store for comparison.
//!
//! What a clone shows is checked: the sums of its rows are those of the source, which rests, or a total that every transaction of the writers
//! leaves as it was. Then rows are deleted in the clone, and the source must keep them.

use crate::engine::Conditions;
use crate::meter::settle;
use crate::options::{Budgeted, Isolation};
use crate::server::{Instance, PATIENCE, Server};
use crate::stats::median;
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DATABASE: &str = "clones";
/// Rows of one statement of the filling.
const BATCH: u64 = 20_000;
/// Bytes of a row, which nothing compresses.
const ROW_BYTES: u64 = 1000;
/// Rows between which writers move amounts.
const PLACES: u64 = 1000;

/// Options of `clones`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: Budgeted<512>,
    /// Sizes of the store, in MiB
    #[arg(long, value_delimiter = ',', default_value = "256,2048")]
    sizes: Vec<u64>,
    /// Clones of each size, at rest and under load
    #[arg(long, default_value_t = 5)]
    clones: u32,
    /// Writers of the clones under load
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Seconds that a clone of a store at rest may take, by the median
    #[arg(long, default_value_t = 1.0)]
    limit: f64,
}

/// The times of a clone.
#[derive(Clone, Copy)]
struct Times {
    checkpoint: Duration,
    files: Duration,
    start: Duration,
}

impl Times {
    fn all(self) -> f64 {
        (self.checkpoint + self.files + self.start).as_secs_f64()
    }
}

struct Bench {
    args: Args,
    conditions: Conditions,
    source: Instance,
    copy: Instance,
}

/// The command `clones`.
pub fn run(args: Args) -> Result<()> {
    let folder = args.given.comparison.site.folder()?.join("clones");
    let instance = |name: &str| Instance::new(&folder.join(name), crate::engine::Kind::Strata);
    let conditions = Conditions { isolation: Isolation::RepeatableRead, ..args.given.conditions() };
    let bench = Bench { source: instance("source")?, copy: instance("copy")?, conditions, args };
    bench.copy.reset()?;
    let empty: Vec<f64> = (0..bench.args.clones)
        .map(|_| {
            let server = bench.copy.start(&bench.conditions)?;
            let answered_in = server.answered_in().as_secs_f64();
            server.stop().map(|()| answered_in)
        })
        .collect::<Result<_>>()?;
    println!("a server with an empty store answers after {:.2} s", median(&empty));
    bench.source.reset()?;
    let mut server = bench.source.start(&bench.conditions)?;
    bench.create()?;
    let mut filled = 0;
    for size in bench.args.sizes.clone() {
        bench.fill(&mut filled, (size << 20) / ROW_BYTES)?;
        settle(server.pid())?;
        bench.measure(&mut server, size)?;
    }
    server.stop()
}

impl Bench {
    fn create(&self) -> Result<()> {
        let mut conn = self.source.fresh_database(DATABASE)?;
        conn.query_drop(format!("CREATE TABLE big (id BIGINT PRIMARY KEY, c VARBINARY({ROW_BYTES})) ENGINE=STRATA"))?;
        conn.query_drop("CREATE TABLE place (id BIGINT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=STRATA")?;
        conn.query_drop(format!("INSERT INTO place SELECT seq, 100 FROM seq_1_to_{PLACES}"))?;
        Ok(())
    }

    /// Adds rows until there are so many.
    fn fill(&self, filled: &mut u64, rows: u64) -> Result<()> {
        let mut conn = self.source.connect(Some(DATABASE))?;
        conn.query_drop("SET SESSION sql_log_bin = 0")?;
        while *filled < rows {
            let last = (*filled + BATCH).min(rows);
            let first = *filled + 1;
            conn.query_drop(format!(
                "INSERT INTO big SELECT seq, RANDOM_BYTES({ROW_BYTES}) FROM seq_{first}_to_{last}"
            ))?;
            *filled = last;
        }
        Ok(())
    }

    fn measure(&self, server: &mut Server, size: u64) -> Result<()> {
        let disk = self.source.size_on_disk()?;
        let at_rest: Vec<Times> = (0..self.args.clones).map(|_| self.clone(true)).collect::<Result<_>>()?;
        self.tell(size, disk.data, "at rest", &at_rest);
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let under_load: Result<Vec<Times>> = std::thread::scope(|scope| {
            let (stop, written) = (&stop, &written);
            let writers: Vec<_> =
                (0..self.args.threads).map(|number| scope.spawn(move || self.write(number, stop, written))).collect();
            let clones = (0..self.args.clones).map(|_| self.clone(false)).collect();
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))?;
            clones
        });
        let under_load = under_load?;
        ensure!(written.load(Ordering::Relaxed) > 0, "the writers have written nothing");
        self.tell(size, disk.data, &format!("beside {} writers", self.args.threads), &under_load);
        server.ensure_alive()?;
        let took = median(&at_rest.iter().map(|times| times.all()).collect::<Vec<_>>());
        ensure!(took <= self.args.limit, "a clone of {size} MiB took {took:.2} s, more than {} s", self.args.limit);
        Ok(())
    }

    fn tell(&self, size: u64, bytes: u64, when: &str, times: &[Times]) {
        let of = |part: fn(&Times) -> f64| median(&times.iter().map(part).collect::<Vec<_>>());
        let longest = times.iter().map(|times| times.all()).fold(0.0, f64::max);
        println!(
            "{size} MiB of rows, {} MiB on disk, {when}: answers after {:.2} s (at most {longest:.2}): checkpoint {:.2}, files {:.3}, \
             start {:.2}; {} clones",
            bytes >> 20,
            of(|times| times.all()),
            of(|times| times.checkpoint.as_secs_f64()),
            of(|times| times.files.as_secs_f64()),
            of(|times| times.start.as_secs_f64()),
            times.len()
        );
    }

    /// Makes a clone, starts it, checks it, and removes it.
    fn clone(&self, rests: bool) -> Result<Times> {
        self.copy.reset()?;
        let (store, tables) = (self.copy.data().join("#strata"), self.copy.data().join(DATABASE));
        let mut conn = self.source.connect(Some(DATABASE))?;
        let began = Instant::now();
        conn.query_drop(format!("SET GLOBAL strata_create_checkpoint = '{}'", store.display()))?;
        let checkpoint = began.elapsed();
        let began = Instant::now();
        copy_files(&self.source.data().join(DATABASE), &tables)?;
        let files = began.elapsed();
        let began = Instant::now();
        let mut server = self.copy.launch(&self.conditions)?;
        server.wait_ready(PATIENCE)?;
        let mut there = server.connect(Some(DATABASE))?;
        let row: Option<u64> = there.query_first("SELECT LENGTH(c) FROM big WHERE id = 77")?;
        let start = began.elapsed();
        ensure!(row == Some(ROW_BYTES), "the row of the clone has {row:?} bytes");
        self.check(&mut conn, &mut there, rests)?;
        server.stop()?;
        Ok(Times { checkpoint, files, start })
    }

    fn check(&self, source: &mut Conn, there: &mut Conn, rests: bool) -> Result<()> {
        let sums = |conn: &mut Conn| -> Result<(u64, Option<String>)> {
            let part = "SELECT COUNT(*), CAST(SUM(CRC32(c)) AS CHAR) FROM big WHERE id < 20000";
            conn.query_first(part)?.context("no sums")
        };
        let whole = |conn: &mut Conn| -> Result<(u64, i64)> {
            conn.query_first("SELECT COUNT(*), CAST(SUM(n) AS SIGNED) FROM place")?.context("no sum")
        };
        let (ours, theirs) = (sums(source)?, sums(there)?);
        ensure!(ours == theirs, "the source has {ours:?}, the clone {theirs:?}");
        let total = (PLACES, 100 * PLACES as i64);
        ensure!(whole(there)? == total, "the clone shows a part of a transaction: {:?}", whole(there)?);
        ensure!(!rests || whole(source)? == total, "the source has changed");
        there.query_drop("DELETE FROM big WHERE id < 1000")?;
        ensure!(sums(source)? == ours, "a DELETE in the clone has changed the source");
        Ok(())
    }

    /// Moves amounts until told to stop.
    fn write(&self, number: u32, stop: &AtomicBool, written: &AtomicU64) -> Result<()> {
        let mut conn = self.source.connect(Some(DATABASE))?;
        let (mut n, step) = (u64::from(number) + 1, u64::from(self.args.threads));
        while !stop.load(Ordering::Relaxed) {
            let (first, second) = (n * 7 % PLACES + 1, (n * 13 + 1) % PLACES + 1);
            let mut run = || -> mysql::Result<()> {
                conn.query_drop("BEGIN")?;
                // In the order of their numbers: nobody waits for each other.
                let (first, second) = (first.min(second), first.max(second));
                conn.query_drop(format!("UPDATE place SET n = n - 1 WHERE id = {first}"))?;
                conn.query_drop(format!("UPDATE place SET n = n + 1 WHERE id = {second}"))?;
                conn.query_drop("COMMIT")
            };
            run().context("a writer")?;
            written.fetch_add(1, Ordering::Relaxed);
            n += step;
        }
        Ok(())
    }
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        fs::copy(&path, to.join(path.file_name().context("no name")?))?;
    }
    Ok(())
}
