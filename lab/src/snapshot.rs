//! The command `snapshot`: what a snapshot that stays open costs while rows are updated, on each engine.
//!
//! The tables are sysbench's. From the same saved data the same load runs twice at the same rate: once alone, and once
//! while a session keeps a consistent snapshot open that it took before. An engine must keep for it one version of each
//! row, the one it can see, and none of those that came and went meanwhile: the bound that the disk space is compared
//! with. In the end the snapshot must read what it read at first; then it is closed, and the space should come back.

use crate::leaks;
use crate::meter::settle;
use crate::oltp::put_under_load;
use crate::paths;
use crate::report::{MIB, Report, Run};
use crate::sbtest::{TableArgs, Tables};
use crate::server::Instance;
use crate::stats::{evenness, whole};
use crate::sysbench::{self, Call, Size};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Those that update rows and leave as many as there were.
const SCRIPTS: [&str; 4] = ["oltp_update_non_index", "oltp_update_index", "oltp_write_only", "oltp_read_write"];
/// Bytes of a row's columns: two numbers, and 120 and 60 characters.
const ROW_BYTES: u64 = 190;

/// Options of `snapshot`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    tables: TableArgs<64>,
    /// The script that makes the load
    #[arg(long, value_parser = SCRIPTS, default_value = SCRIPTS[0])]
    script: String,
    /// Sessions of the load
    #[arg(long, default_value_t = 8)]
    threads: u32,
    /// Transactions a second
    #[arg(long, default_value_t = 2000)]
    rate: u64,
    /// Seconds of the load
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Distribution of row numbers: special (sysbench's default), uniform, gaussian, pareto
    #[arg(long, default_value = "special")]
    rand_type: String,
}

/// The command `snapshot`.
pub fn run(args: Args) -> Result<()> {
    paths::need_program("sysbench")?;
    let lab = args.tables.given.comparison.site.folder()?;
    let tables = args.tables.load(&lab, args.threads)?;
    let bench = Bench {
        tables: &tables,
        call: Call {
            script: &args.script,
            threads: args.threads,
            seconds: args.seconds,
            rand_type: &args.rand_type,
            xa: false,
            rate: Some(args.rate),
        },
    };
    let title = format!("{}, {} transactions/s, with and without a snapshot", args.script, args.rate);
    let mut report = Report::new(&lab, &title)?.in_full();
    for round in 1..=args.tables.given.comparison.rounds {
        println!(
            "{}, {} transactions/s for {} s, {} x {} rows, {} MB of memory, round {round}",
            args.script, args.rate, args.seconds, tables.size.tables, tables.size.rows, args.tables.given.cache_mb
        );
        for instance in &tables.instances {
            bench.compare(instance, round, &mut report).with_context(|| instance.kind().title())?;
        }
    }
    tables.end()?;
    report.finish()
}

/// What all runs have in common.
struct Bench<'a> {
    tables: &'a Tables,
    call: Call<'a>,
}

/// What a run without or with a snapshot measured.
struct Measured {
    /// The load, and data and log on disk when settled after it.
    run: Run,
    /// The first scan, before the load.
    scan_before: Duration,
    /// A scan by a new session after it.
    scan_after: Duration,
    /// A scan in the snapshot after the load, when there is one.
    scan_held: Option<Duration>,
    /// Data on disk in bytes: before the load, and when settled after the snapshot was closed.
    disk_before: u64,
    disk_closed: Option<u64>,
}

impl Bench<'_> {
    /// Both runs on an engine.
    fn compare(&self, instance: &Instance, round: u32, report: &mut Report) -> Result<()> {
        let (without, with) = (self.run(instance, round, false)?, self.run(instance, round, true)?);
        print_runs(instance.kind().title(), &without, &with);
        print_scans(&without, &with);
        print_space(self.tables.size, &without, &with);
        report.add(self.stored(without))?;
        report.add(self.stored(with))
    }

    /// As it is stored.
    fn stored(&self, measured: Measured) -> Run {
        let Call { threads, seconds, rand_type, rate, .. } = self.call;
        let mut further = BTreeMap::from([
            ("all rows read before the load, s".to_string(), measured.scan_before.as_secs_f64()),
            ("all rows read after the load, s".into(), measured.scan_after.as_secs_f64()),
            ("data on disk before the load, MB".into(), measured.disk_before as f64 / MIB),
        ]);
        let in_it = measured.scan_held.map(|time| time.as_secs_f64());
        further.extend(in_it.map(|time| ("all rows read in the snapshot, s".into(), time)));
        let closed = measured.disk_closed.map(|bytes| bytes as f64 / MIB);
        further.extend(closed.map(|mb| ("data on disk when the snapshot is closed, MB".into(), mb)));
        Run {
            settings: BTreeMap::from([
                ("script".into(), self.call.script.to_string()),
                ("threads".into(), threads.to_string()),
                ("seconds".into(), seconds.to_string()),
                ("rate".into(), rate.map_or("as it goes".into(), |rate| format!("{rate} a second"))),
                ("distribution".into(), rand_type.to_string()),
                ("tables".into(), self.tables.size.tables.to_string()),
                ("rows a table".into(), self.tables.size.rows.to_string()),
            ]),
            further,
            ..measured.run
        }
    }

    fn run(&self, instance: &Instance, round: u32, held: bool) -> Result<Measured> {
        let mut server = self.tables.server(instance)?;
        let mut session = server.connect(Some(sysbench::DATABASE))?;
        session.query_drop("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        session.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        let (sums, scan_before) = scan(&mut session, self.tables.size)?;
        if !held {
            // It has read what the other run's has read, and nothing is kept for it.
            session.query_drop("COMMIT")?;
        }
        let disk_before = instance.size_on_disk()?.data;
        let (outcome, usage) = put_under_load(&mut server, self.tables.size, &self.call, title(held))?;
        settle(server.pid())?;
        let run = Run::of("snapshot", title(held).into(), &server, &self.tables.conditions, round)?;
        let run = run.with(outcome.seen(), usage);
        // The new session goes first: what it brings into the cache may spare the snapshot reads, and not the reverse.
        let (new_sums, scan_after) = scan(&mut server.connect(Some(sysbench::DATABASE))?, self.tables.size)?;
        ensure!(new_sums != sums, "the load has changed nothing");
        let (mut scan_held, mut disk_closed) = (None, None);
        if held {
            let (sums_held, time) = scan(&mut session, self.tables.size)?;
            ensure!(sums_held == sums, "the snapshot has read the sums {sums:?} at first, and now {sums_held:?}");
            scan_held = Some(time);
            session.query_drop("COMMIT")?;
            settle(server.pid())?;
            disk_closed = Some(instance.size_on_disk()?.data);
        }
        server.ensure_alive()?;
        drop(session);
        leaks::end(server, self.tables.conditions.budget_mb)?;
        Ok(Measured { run, scan_before, scan_after, scan_held, disk_before, disk_closed })
    }
}

/// Reads all rows; for each table the sums of what the scripts update, and the time of all.
fn scan(conn: &mut Conn, size: Size) -> Result<(Vec<(u64, u64)>, Duration)> {
    let began = Instant::now();
    let sums = (1..=size.tables)
        .map(|table| {
            let statement = format!("SELECT SUM(CRC32(c)), SUM(k) FROM sbtest{table}");
            conn.query_first(&statement).with_context(|| statement.clone())?.context(statement)
        })
        .collect::<Result<_>>()?;
    Ok((sums, began.elapsed()))
}

/// Bytes of the versions that a snapshot of all rows can see.
fn visible_bytes(size: Size) -> u64 {
    u64::from(size.tables) * size.rows * ROW_BYTES
}

fn title(held: bool) -> &'static str {
    if held { "with a snapshot" } else { "without a snapshot" }
}

fn print_runs(engine: &str, without: &Measured, with: &Measured) {
    println!(
        "{engine:<21}{:>7} {:>8} {:>8} {:>9} {:>9} {:>8} {:>7} {:>7} {:>8} {:>8} {:>8}",
        "tx/s", "p50, ms", "p99, ms", "p99.9, ms", "worst s", "CPU us", "KB/tx", "RSS, MB", "disk, MB", "end", "closed"
    );
    for measured in [without, with] {
        let run = &measured.run;
        let transactions = run.transactions.max(1) as f64;
        println!(
            "  {:<19}{:>7.0} {:>8.2} {:>8.2} {:>9.2} {:>9.2} {:>8.0} {:>7.2} {:>7.0} {:>8.1} {:>8.1} {:>8}",
            run.label,
            run.tps(),
            run.latency.p50_us as f64 / 1e3,
            run.latency.p99_us as f64 / 1e3,
            run.latency.p999_us as f64 / 1e3,
            evenness(whole(&run.series)),
            run.usage.cpu_us as f64 / transactions,
            run.usage.write_bytes as f64 / 1024.0 / transactions,
            run.usage.rss_most() as f64 / MIB,
            measured.disk_before as f64 / MIB,
            run.disk.data as f64 / MIB,
            measured.disk_closed.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / MIB))
        );
        if !run.errors.is_empty() {
            println!("  ERRORS: {}", run.errors.join("; "));
        }
    }
}

fn print_scans(without: &Measured, with: &Measured) {
    println!(
        "  all rows read: {:.2} s before the load, {:.2} s after it without a snapshot; {:.2} s beside the snapshot, \
         {:.2} s in it",
        with.scan_before.as_secs_f64(),
        without.scan_after.as_secs_f64(),
        with.scan_after.as_secs_f64(),
        with.scan_held.unwrap_or_default().as_secs_f64()
    );
}

fn print_space(size: Size, without: &Measured, with: &Measured) {
    let (extra, bound) = (with.run.disk.data as f64 - without.run.disk.data as f64, visible_bytes(size) as f64);
    println!(
        "  the snapshot costs {:.1} MB on disk, {:.2} of the {:.1} MB of versions that it can see",
        extra / MIB,
        extra / bound,
        bound / MIB
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_each_row_once() {
        assert_eq!(visible_bytes(Size { tables: 2, rows: 500_000 }), 190_000_000);
    }
}
