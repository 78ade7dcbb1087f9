//! The command `backup-cost`: what a backup costs those who work meanwhile. TPC-C runs; a session beside it commits a row every few milliseconds, and
//! the longest of its commits is what a backup kept waiting. Rate and longest commit are told of the seconds before, during and after a backup
//! by `strata-backup`, whose throttle decides how long it takes.
//!
//! Engines alternate. A server without Strata is backed up by mariadb-backup with the same priority, and as fast as it goes.

use crate::drive::Control;
use crate::engine::Kind;
use crate::meter::settle;
use crate::options::{Budgeted, Comparison};
use crate::server::Instance;
use crate::stats::median;
use crate::tpcc::Scale;
use crate::tpcc::bench::load_warehouses;
use crate::tpcc::drive::{Load, drive};
use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PROBE: &str = "probe";
/// Between two commits of the probe.
const PAUSE: Duration = Duration::from_millis(2);
const SAVED: &str = "backup-cost";

/// Options of `backup-cost`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: Budgeted<256>,
    /// Warehouses (about 100 MB each in InnoDB)
    #[arg(long, default_value_t = 8)]
    warehouses: u32,
    /// Sessions
    #[arg(long, default_value_t = 8)]
    threads: u32,
    /// Seconds of load before anything is measured, before the backup, and after it
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// MiB of Strata's files that the backup reads in a second, 0: as fast as it goes [default: at the tool's own pace]
    #[arg(long)]
    throttle: Option<u32>,
    /// The tool [default: the one beside this program]
    #[arg(long)]
    tool: Option<PathBuf>,
}

/// What a part of a run came to.
#[derive(Clone, Copy, Default)]
struct Part {
    seconds: f64,
    rate: f64,
    longest_ms: f64,
}

/// Before, during and after a backup, and the MiB that it copied.
#[derive(Clone, Copy, Default)]
struct Course {
    parts: [Part; 3],
    copied_mib: f64,
}

impl Course {
    /// The rate during the backup over the mean of those before and after it.
    fn kept(&self) -> f64 {
        self.parts[1].rate / ((self.parts[0].rate + self.parts[2].rate) / 2.0)
    }
}

/// The command `backup-cost`.
pub fn run(args: Args) -> Result<()> {
    let lab = args.given.comparison.site.folder()?;
    let tool = match &args.tool {
        Some(tool) => tool.clone(),
        None => std::env::current_exe()?.with_file_name("strata-backup"),
    };
    ensure!(tool.is_file(), "there is no {}; 'cargo build --release -p strata-backup' makes it", tool.display());
    crate::paths::need_program("mariadb-backup")?;
    let conditions = args.given.conditions();
    let instances = args.given.comparison.instances(&lab)?;
    let scale = Scale::full(args.warehouses);
    for instance in &instances {
        instance.reset()?;
        let server = instance.start(&conditions.for_load())?;
        load_warehouses(instance, scale, false)?;
        let mut conn = instance.fresh_database(PROBE)?;
        conn.query_drop(format!("CREATE TABLE probe (n BIGINT PRIMARY KEY) ENGINE={}", instance.kind().sql()))?;
        settle(server.pid())?;
        server.stop()?;
        instance.save(SAVED)?;
    }
    let mut courses: BTreeMap<Kind, Vec<Course>> = BTreeMap::new();
    let Comparison { rounds, .. } = args.given.comparison;
    for round in 1..=rounds {
        for instance in &instances {
            instance.restore(SAVED)?;
            let mut server = instance.start(&conditions)?;
            settle(server.pid())?;
            let course = measure(instance, &args, scale, &tool, &lab.join("backup-cost"), round)?;
            server.ensure_alive()?;
            server.stop()?;
            tell(&format!("{}, round {round}", instance.kind().title()), &course);
            courses.entry(instance.kind()).or_default().push(course);
        }
    }
    instances.iter().try_for_each(|instance| instance.forget(SAVED))?;
    for (kind, courses) in &courses {
        let of = |figure: &dyn Fn(&Course) -> f64| median(&courses.iter().map(figure).collect::<Vec<_>>());
        println!(
            "{}: {:.2} of the rate during a backup of {:.0} MiB in {:.1} s, longest commit {:.0} ms ({:.0} before, {:.0} after); medians of {} rounds",
            kind.title(),
            of(&Course::kept),
            of(&|course| course.copied_mib),
            of(&|course| course.parts[1].seconds),
            of(&|course| course.parts[1].longest_ms),
            of(&|course| course.parts[0].longest_ms),
            of(&|course| course.parts[2].longest_ms),
            courses.len()
        );
    }
    Ok(())
}

fn tell(who: &str, course: &Course) {
    let [before, during, after] =
        course.parts.map(|part| format!("{:.0} transactions/s ({:.0} ms)", part.rate, part.longest_ms));
    println!(
        "{who}: {before} before, {during} during a backup of {:.0} MiB in {:.1} s, {after} after; in brackets the longest commit",
        course.copied_mib, course.parts[1].seconds
    );
}

fn measure(instance: &Instance, args: &Args, scale: Scale, tool: &Path, to: &Path, round: u32) -> Result<Course> {
    let _ = fs::remove_dir_all(to);
    let load = Load::until_stopped(scale, args.threads, round.into());
    let (control, stop, longest_us) = (Control::default(), AtomicBool::new(false), AtomicU64::new(0));
    let log = to.with_extension("log");
    let mut command = match instance.kind() {
        Kind::Strata => {
            let mut command = Command::new(tool);
            command.arg("backup");
            if let Some(throttle) = args.throttle {
                command.arg("--throttle").arg(throttle.to_string());
            }
            command
        }
        _ => {
            let mut command = Command::new("nice");
            command.args(["-n", "19", "mariadb-backup", "--no-defaults", "--backup", "--user=root"]);
            command.arg("--datadir").arg(instance.data());
            command
        }
    };
    command.arg("--socket").arg(instance.socket()).arg("--target-dir").arg(to);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
    let (outcome, parts, done, probe) = std::thread::scope(|scope| {
        let driver = scope.spawn(|| drive(instance, load, &control));
        let probe = scope.spawn(|| probe(instance, &stop, &longest_us));
        let part = |work: &mut dyn FnMut() -> Result<()>| -> Result<Part> {
            longest_us.store(0, Ordering::Relaxed);
            let (since, from) = (Instant::now(), control.transactions.load(Ordering::Relaxed));
            work()?;
            let seconds = since.elapsed().as_secs_f64();
            let transactions = control.transactions.load(Ordering::Relaxed) - from;
            let longest_ms = longest_us.load(Ordering::Relaxed) as f64 / 1e3;
            Ok(Part { seconds, rate: transactions as f64 / seconds, longest_ms })
        };
        let mut wait = || -> Result<()> {
            sleep(Duration::from_secs(args.seconds));
            Ok(())
        };
        let mut succeeded = false;
        let mut back_up = || -> Result<()> {
            succeeded = command.status().context("the tool does not start")?.success();
            Ok(())
        };
        let parts = wait().and_then(|()| Ok([part(&mut wait)?, part(&mut back_up)?, part(&mut wait)?]));
        stop.store(true, Ordering::Relaxed);
        control.stop.store(true, Ordering::Relaxed);
        let probe = probe.join().expect("the probe does not panic");
        (driver.join().expect("the driver does not panic"), parts, succeeded, probe)
    });
    let failures = outcome?.seen.failures();
    ensure!(failures.is_empty(), "the load has failed: {failures:?}");
    ensure!(done, "the backup has failed: see {}", log.display());
    ensure!(probe? > 0, "the probe has committed nothing");
    let copied_mib = crate::backup::size_of(to)? as f64 / crate::report::MIB;
    fs::remove_dir_all(to)?;
    Ok(Course { parts: parts?, copied_mib })
}

/// Commits a row after the other, and keeps the longest time that a commit took; how many there were.
fn probe(instance: &Instance, stop: &AtomicBool, longest_us: &AtomicU64) -> Result<u64> {
    let mut conn = instance.connect(Some(PROBE))?;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let since = Instant::now();
        conn.query_drop(format!("INSERT INTO probe VALUES ({n})"))?;
        longest_us.fetch_max(since.elapsed().as_micros() as u64, Ordering::Relaxed);
        n += 1;
        sleep(PAUSE);
    }
    Ok(n)
}
