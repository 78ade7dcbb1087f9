//! The command `queue`: rows inserted at one end of a table and deleted at the other, on each engine.
//!
//! What makes it hard is what deleted rows leave behind: whoever looks for the first row has to get past them. The
//! queue is filled to its depth; then one session inserts `rows` more and another one deletes as many, a batch in each
//! transaction ([`Plan`] says who waits for whom). A third session asks for the first row every 5 ms, and how long that
//! takes is shown for each tenth of the rows: it should not grow. With a rate the processors have time to spare, and less of
//! what is shown is the wait for one.
//!
//! Every deletion must find a full batch; the first row seen must be one that can be first just then; what is left at
//! the end must be the last `depth` rows.

use crate::engine::{DiskSize, Kind};
use crate::leaks;
use crate::meter::{Meter, Usage, settle};
use crate::options::Rows;
use crate::report::{MIB, Report, Run};
use crate::server::{Instance, Server};
use crate::stats::{Latencies, Latency};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const DATABASE: &str = "queue";
/// Between two questions for the first row.
const PAUSE: Duration = Duration::from_millis(5);

/// Options of `queue`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    table: Rows<64>,
    /// Rows in the queue
    #[arg(long, default_value_t = 10_000)]
    depth: u64,
    /// Rows in a transaction
    #[arg(long, default_value_t = 100)]
    batch: u64,
    /// So many rows a second [default: as many as go]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
}

/// The command `queue`.
pub fn run(args: Args) -> Result<()> {
    let plan = Plan { rate: args.rate, ..Plan::new(args.table.rows, args.depth, args.batch)? };
    let lab = args.table.given.comparison.site.folder()?;
    let conditions = args.table.given.conditions();
    let title =
        format!("A queue of {} rows; a row counts as a transaction, latencies are those of the first row", plan.depth);
    let mut report = Report::new(&lab, &title)?.in_full();
    for round in 1..=args.table.given.comparison.rounds {
        println!(
            "{} rows through a queue of {}, {} in a transaction, {} MB of memory, round {round}",
            plan.rows, plan.depth, plan.batch, args.table.given.cache_mb
        );
        for &kind in &args.table.given.comparison.engines {
            let instance = Instance::new(&lab, kind)?;
            instance.reset()?;
            let mut server = instance.start(&conditions)?;
            let measured = measure(&server, plan).with_context(|| kind.title())?;
            server.ensure_alive()?;
            let run = Run::of("queue", "queue".into(), &server, &conditions, round)?;
            report.add(measured.into_run(plan, run))?;
            leaks::end(server, args.table.given.cache_mb)?;
        }
    }
    report.finish()
}

/// What goes through the queue, and who waits for whom.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rows: u64,
    depth: u64,
    batch: u64,
    /// Rows a second; as many as go if none.
    rate: Option<u64>,
}

/// What has happened so far, as those know who did it: a transaction counts when its commit was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    inserted: u64,
    deleted: u64,
    /// Everybody ends: all is done, or somebody failed.
    stop: bool,
}

impl Counts {
    fn ahead(self) -> u64 {
        self.inserted - self.deleted
    }
}

impl Plan {
    fn new(rows: u64, depth: u64, batch: u64) -> Result<Plan> {
        ensure!(batch > 0, "a batch has at least one row");
        // So the queue is never empty: who deletes waits below half of it.
        ensure!(depth / 4 >= batch, "a queue of {depth} rows holds less than four batches of {batch}");
        ensure!(rows / 10 >= batch, "a tenth of {rows} rows is less than a batch of {batch}");
        Ok(Plan { rows, depth, batch, rate: None })
    }

    /// Rows of the next insertion; 0 at the end.
    fn to_insert(self, counts: Counts) -> u64 {
        self.batch.min(self.depth + self.rows - counts.inserted)
    }

    /// Rows of the next deletion; 0 at the end.
    fn to_delete(self, counts: Counts) -> u64 {
        self.batch.min(self.rows - counts.deleted)
    }

    fn may_insert(self, counts: Counts) -> bool {
        counts.ahead() + self.to_insert(counts) <= self.depth
    }

    fn may_delete(self, counts: Counts) -> bool {
        counts.ahead() >= self.depth / 2
    }

    /// When a row is due, counted from the first of those that go through the queue.
    fn due(self, row: u64) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(row as f64 / rate as f64))
    }

    /// Which tenth of the deletions is done: 0 to 10.
    fn tenth(self, deleted: u64) -> u64 {
        deleted * 10 / self.rows
    }
}

/// The queue as its three sessions share it.
struct Queue {
    plan: Plan,
    counts: Mutex<Counts>,
    changed: Condvar,
    /// Of the session that asks for the first row, since they were taken last.
    latencies: Mutex<Latencies>,
    /// The same of each tenth that has ended, with rows a second.
    tenths: Mutex<Vec<(f64, Latencies)>>,
}

impl Queue {
    fn new(plan: Plan) -> Queue {
        Queue {
            plan,
            counts: Mutex::default(),
            changed: Condvar::new(),
            latencies: Mutex::default(),
            tenths: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no session panics")
    }

    fn counts(&self) -> Counts {
        *self.lock()
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until it is so; false when everybody ends.
    fn wait_until(&self, so: impl Fn(Counts) -> bool) -> bool {
        let counts = self.changed.wait_while(self.lock(), |counts| !counts.stop && !so(*counts));
        !counts.expect("no session panics").stop
    }

    /// Does a session's work. When it fails the others end too.
    fn session(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let outcome = work();
        if outcome.is_err() {
            self.change(|counts| counts.stop = true);
        }
        outcome
    }

    /// Prints and keeps what a tenth was like that took this time, up to this row.
    fn end_tenth(&self, tenth: Tenth, time: Duration, deleted: u64) {
        let latencies = std::mem::take(&mut *self.latencies.lock().expect("no session panics"));
        let rate = (deleted - tenth.deleted) as f64 / time.as_secs_f64();
        print_tenth(tenth.number, rate, latencies.summary());
        self.tenths.lock().expect("no session panics").push((rate, latencies));
    }
}

/// Since when a tenth runs, and from which row on.
#[derive(Clone, Copy)]
struct Tenth {
    number: u64,
    began: Instant,
    deleted: u64,
}

/// What was measured of a queue.
struct Measured {
    seconds: f64,
    usage: Usage,
    /// Bytes of data at the end, and when the server has settled.
    at_once: u64,
    settled: u64,
    /// Rows a second and the time to the first row, by tenth.
    tenths: Vec<(f64, Latencies)>,
}

impl Measured {
    fn into_run(self, plan: Plan, run: Run) -> Run {
        let mut all = Latencies::default();
        self.tenths.iter().for_each(|(_, latencies)| all.merge(latencies));
        let name = |n: usize| format!("tenth {:>2}", n + 1);
        let tenths = || self.tenths.iter().enumerate();
        let mut further: BTreeMap<String, f64> =
            tenths().map(|(n, (rate, _))| (format!("{}, rows/s", name(n)), *rate)).collect();
        further.insert("data on disk when settled, MB".into(), self.settled as f64 / MIB);
        Run {
            settings: BTreeMap::from([
                ("rows".into(), plan.rows.to_string()),
                ("depth".into(), plan.depth.to_string()),
                ("rows in a transaction".into(), plan.batch.to_string()),
                ("rate".into(), plan.rate.map_or("as it goes".into(), |rate| format!("{rate} rows a second"))),
            ]),
            seconds: self.seconds,
            transactions: plan.rows,
            latency: all.summary(),
            by_kind: tenths().map(|(n, (_, latencies))| (name(n), latencies.summary())).collect(),
            further,
            disk: DiskSize { data: self.at_once, ..run.disk },
            usage: self.usage,
            ..run
        }
    }
}

fn measure(server: &Server, plan: Plan) -> Result<Measured> {
    let kind = server.instance().kind();
    let queue = Queue::new(plan);
    create(server, kind)?;
    let mut producer = server.connect(Some(DATABASE))?;
    while queue.counts().inserted < plan.depth {
        insert(&mut producer, &queue, plan.batch.min(plan.depth - queue.counts().inserted))?;
    }
    let (mut consumer, mut watcher) = (server.connect(Some(DATABASE))?, server.connect(Some(DATABASE))?);
    println!("{:<22}{:>10} {:>12} {:>12} {:>12}", kind.title(), "rows/s", "p50, ms", "p99, ms", "longest, ms");
    let meter = Meter::begin(server.pid(), server.instance())?;
    let began = Instant::now();
    turn_over(&queue, &mut producer, &mut consumer, &mut watcher)?;
    let time = began.elapsed();
    let usage = meter.end()?;
    let at_once = server.instance().size_on_disk()?.data;
    check(&mut consumer, plan)?;
    settle(server.pid())?;
    let settled = server.instance().size_on_disk()?.data;
    let tenths = queue.tenths.into_inner().expect("no session panics");
    let measured = Measured { seconds: time.as_secs_f64(), usage, at_once, settled, tenths };
    print_end(plan, &measured);
    Ok(measured)
}

fn create(server: &Server, kind: Kind) -> Result<()> {
    let mut conn = server.connect(None)?;
    conn.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
    conn.query_drop(format!(
        "CREATE TABLE {DATABASE}.q (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, job VARCHAR(120) NOT NULL) \
         ENGINE={}",
        kind.sql()
    ))?;
    Ok(())
}

/// Lets the three sessions work until all rows are through.
fn turn_over(queue: &Queue, producer: &mut Conn, consumer: &mut Conn, watcher: &mut Conn) -> Result<()> {
    std::thread::scope(|scope| {
        let producing = scope.spawn(|| queue.session(|| produce(producer, queue)));
        let watching = scope.spawn(|| queue.session(|| watch(watcher, queue)));
        let mut tenth = Tenth { number: 1, began: Instant::now(), deleted: 0 };
        let consumed = queue.session(|| consume(consumer, queue, &mut tenth));
        let produced = producing.join().expect("the session that inserts does not panic");
        let done = queue.counts();
        let time = tenth.began.elapsed();
        queue.change(|counts| counts.stop = true);
        let watched = watching.join().expect("the session that watches does not panic");
        // Whoever failed first has stopped the others, and they have no errors then.
        consumed.context("deleting")?;
        produced.context("inserting")?;
        watched.context("asking for the first row")?;
        // Not before: an answer that comes late counts too.
        queue.end_tenth(tenth, time, done.deleted);
        Ok(())
    })
}

fn produce(conn: &mut Conn, queue: &Queue) -> Result<()> {
    let plan = queue.plan;
    let began = Instant::now();
    loop {
        let counts = queue.counts();
        let rows = plan.to_insert(counts);
        if rows == 0 || !queue.wait_until(|counts| plan.may_insert(counts)) {
            return Ok(());
        }
        std::thread::sleep(plan.due(counts.inserted - plan.depth).saturating_sub(began.elapsed()));
        insert(conn, queue, rows)?;
    }
}

fn insert(conn: &mut Conn, queue: &Queue, rows: u64) -> Result<()> {
    let first = queue.counts().inserted + 1;
    let values: Vec<String> = (first..first + rows).map(|number| format!("('{}')", job(number))).collect();
    conn.query_drop(format!("INSERT INTO q (job) VALUES {}", values.join(",")))?;
    // One session inserts, so there is no reason for gaps, and all checks count on that.
    let id = conn.last_insert_id();
    ensure!(id == first, "the first row of a batch got the id {id}, not {first}");
    queue.change(|counts| counts.inserted += rows);
    Ok(())
}

/// What a row holds: 96 letters that compress about twofold.
fn job(number: u64) -> String {
    (0..6).map(|part| format!("{:016x}", scramble(number * 6 + part))).collect()
}

/// The finalizer of splitmix64.
fn scramble(number: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Deletes until the end, and prints all tenths but the last.
fn consume(conn: &mut Conn, queue: &Queue, tenth: &mut Tenth) -> Result<()> {
    let plan = queue.plan;
    let delete = conn.prep("DELETE FROM q ORDER BY id LIMIT ?")?;
    loop {
        let counts = queue.counts();
        let rows = plan.to_delete(counts);
        if rows == 0 || !queue.wait_until(|counts| plan.may_delete(counts)) {
            return Ok(());
        }
        conn.exec_drop(&delete, (rows,))?;
        let deleted = conn.affected_rows();
        ensure!(deleted == rows, "a deletion found {deleted} rows, not {rows}, behind row {}", counts.deleted);
        queue.change(|counts| counts.deleted += rows);
        let deleted = counts.deleted + rows;
        if plan.tenth(deleted) >= tenth.number && tenth.number < 10 {
            queue.end_tenth(*tenth, tenth.began.elapsed(), deleted);
            *tenth = Tenth { number: tenth.number + 1, began: Instant::now(), deleted };
        }
    }
}

/// Asks for the first row until the end.
fn watch(conn: &mut Conn, queue: &Queue) -> Result<()> {
    let first = conn.prep("SELECT id FROM q ORDER BY id LIMIT 1")?;
    let mut last = 0;
    loop {
        let before = queue.counts();
        if before.stop {
            return Ok(());
        }
        let began = Instant::now();
        let id: Option<u64> = conn.exec_first(&first, ())?;
        let took = began.elapsed();
        let after = queue.counts();
        let id = id.context("there was no first row in a queue that is never empty")?;
        check_first(id, last, before.deleted, after.deleted, queue.plan.batch)?;
        last = id;
        queue.latencies.lock().expect("no session panics").record(took);
        std::thread::sleep(PAUSE);
    }
}

/// Whether a row can be the first when as many were deleted before and after it was asked for. One deletion may have
/// been committed and not yet counted.
fn check_first(id: u64, last: u64, deleted_before: u64, deleted_after: u64, batch: u64) -> Result<()> {
    ensure!(id >= last, "the first row was {last} and then {id}");
    ensure!(id > deleted_before, "the first row was {id} when {deleted_before} rows were deleted already");
    let most = deleted_after + batch + 1;
    ensure!(id <= most, "the first row was {id}, and should be {most} at most: {deleted_after} rows were deleted");
    Ok(())
}

fn check(conn: &mut Conn, plan: Plan) -> Result<()> {
    let found: Option<(u64, Option<u64>, Option<u64>)> =
        conn.query_first("SELECT COUNT(*), MIN(id), MAX(id) FROM q")?;
    let expected = (plan.depth, Some(plan.rows + 1), Some(plan.rows + plan.depth));
    ensure!(found == Some(expected), "rows, first and last id are {found:?}, not {expected:?}");
    Ok(())
}

fn print_tenth(number: u64, rate: f64, first_row: Latency) {
    println!(
        "  {:<20}{rate:>10.0} {:>12.2} {:>12.2} {:>12.2}",
        format!("tenth {number}"),
        first_row.p50_us as f64 / 1e3,
        first_row.p99_us as f64 / 1e3,
        first_row.max_us as f64 / 1e3
    );
}

fn print_end(plan: Plan, measured: &Measured) {
    println!(
        "  {:<20}{:>10.0}   {:.0} MB written, {:.1} s of CPU, RSS at most {:.0} MB; \
         on disk {:.1} MB, {:.1} MB when settled",
        "all",
        plan.rows as f64 / measured.seconds,
        measured.usage.write_bytes as f64 / MIB,
        measured.usage.cpu_us as f64 / 1e6,
        measured.usage.rss_most() as f64 / MIB,
        measured.at_once as f64 / MIB,
        measured.settled as f64 / MIB
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_cannot_work_are_refused() {
        assert!(Plan::new(1000, 400, 100).is_ok());
        assert!(Plan::new(1000, 399, 100).is_err());
        assert!(Plan::new(999, 400, 100).is_err());
        assert!(Plan::new(1000, 400, 0).is_err());
    }

    /// Neither waits for the other for ever, whoever is faster; the queue is never empty and never too deep.
    #[test]
    fn all_rows_get_through() {
        for (rows, depth, batch) in [(1000, 400, 100), (1003, 401, 100), (10, 4, 1), (999, 450, 7), (970, 390, 97)] {
            for inserting_first in [true, false] {
                let plan = Plan::new(rows, depth, batch).unwrap();
                let mut counts = Counts { inserted: depth, ..Counts::default() };
                loop {
                    let inserts = plan.to_insert(counts) > 0 && plan.may_insert(counts);
                    let deletes = plan.to_delete(counts) > 0 && plan.may_delete(counts);
                    if inserts && (inserting_first || !deletes) {
                        counts.inserted += plan.to_insert(counts);
                    } else if deletes {
                        counts.deleted += plan.to_delete(counts);
                    } else {
                        break;
                    }
                    assert!(counts.ahead() > 0 && counts.ahead() <= depth, "{plan:?} {counts:?}");
                }
                assert_eq!((counts.inserted, counts.deleted), (depth + rows, rows), "{plan:?}");
            }
        }
    }

    #[test]
    fn rows_come_at_the_rate() {
        let plan = Plan::new(1000, 400, 100).unwrap();
        assert_eq!(plan.due(500), Duration::ZERO);
        assert_eq!(Plan { rate: Some(1000), ..plan }.due(500), Duration::from_millis(500));
    }

    #[test]
    fn tenths() {
        let plan = Plan::new(1005, 400, 100).unwrap();
        assert_eq!([0, 100, 101, 1004, 1005].map(|deleted| plan.tenth(deleted)), [0, 0, 1, 9, 10]);
    }

    #[test]
    fn the_first_row_is_one_that_was_not_deleted_and_has_none_before_it() {
        assert!(check_first(101, 101, 100, 100, 100).is_ok());
        assert!(check_first(201, 101, 100, 100, 100).is_ok());
        assert!(check_first(202, 101, 100, 100, 100).is_err());
        assert!(check_first(100, 1, 100, 100, 100).is_err());
        assert!(check_first(101, 201, 100, 100, 100).is_err());
    }

    #[test]
    fn jobs_fit_and_differ() {
        assert_eq!(job(1).len(), 96);
        assert_ne!(job(1), job(2));
    }
}
