//! The command `backup`: backups of a server under load, by `strata-backup`, each restored and compared with its source.
//!
//! The load is the [`ledger`], TPC-C, sessions that change definitions ([`definer`]), and *twins*: transactions that insert the same
//! number into a table of InnoDB and one of Strata. A restored server must have the same numbers in both before anything else
//! happens to it, at once: both engines show one moment. Then it becomes a replica of the source, from the position that the backup
//! tells, catches up, and is compared: a transaction that the backup lacks, or has beyond its position, is a difference or stops it.
//!
//! Rounds go through five kinds: a full backup; an incremental one on top of it; one that is streamed; SIGKILL of the tool in the
//! middle; SIGKILL of the server in the middle. What a killed one leaves must not be taken for a backup, and the next one works. No
//! commit may wait for a backup much longer than the longest did before.
//!
//! With `--position` nothing else writes at the end: an incremental backup must be as small as what changed since its base, one that is throttled
//! must take the time that its bytes have, and a backup with the binary log behind it must lead to the position that was asked for.
//! What is planted in rows must not stand in a backup of an encrypted server (`--encrypted`).

use crate::copies::differences;
use crate::crash::{check_tables, fail_if, join_all};
use crate::definer::{self, Definer};
use crate::drive::Control;
use crate::engine::Conditions;
use crate::ledger::{self, Writer};
use crate::meter::settle;
use crate::options::ToolTrial;
use crate::server::{Instance, Server};
use crate::side::{Side, catch_up};
use crate::tpcc::Scale;
use crate::tpcc::bench::load_warehouses;
use crate::tpcc::drive::{Load, drive};
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The load runs so long before a backup.
const BEFORE: Duration = Duration::from_millis(1500);
/// So much longer a commit may take during a backup than the longest before it. What this guards against is a second: the time
/// mariadb-backup would sleep while it keeps commits waiting.
const COMMIT_WAIT_MAX_MS: f64 = 600.0;
const TWINS: &str = "twins";
/// Stands in rows. In a backup of an encrypted server it is nowhere, in any other the search for it finds it.
const PLANTED: &str = "PLANTED-plaintext-of-a-row";

/// Options of `backup`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    of: ToolTrial,
    /// At the end also the size of an incremental backup, and recovery to a position
    #[arg(long)]
    position: bool,
    /// No round begins after so many seconds
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    seconds: u64,
}

struct Bench {
    server_options: Vec<String>,
    args: Args,
    tool: PathBuf,
    source: Side,
    copy: Side,
    backups: PathBuf,
    scale: Scale,
    rng: SmallRng,
    writers: Vec<Writer>,
    definers: Vec<Definer>,
    twins: u64,
}

/// What a round does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Full,
    Incremental,
    Streamed,
    KillTool,
    KillServer,
}

const KINDS: [Kind; 5] = [Kind::Full, Kind::Incremental, Kind::Streamed, Kind::KillTool, Kind::KillServer];

/// What a backup under load came to.
#[derive(Default)]
struct Course {
    /// Transactions per second before, and during.
    before: f64,
    during: f64,
    seconds: f64,
    /// The longest commit of the twins before, and meanwhile.
    longest_before_ms: f64,
    longest_ms: f64,
}

/// The command `backup`.
pub fn run(args: Args) -> Result<()> {
    let tool = args.of.tool("strata-backup")?;
    let (seed, mut rng, folder) = args.of.trial.begin("backup", "backup and restore")?;
    crate::paths::need_program("mariadb-backup")?;
    let mut side = |number: u32, name: &str| Side::new(&folder.join(name), args.of.trial.engine, number, &mut rng);
    let (source, copy) = (side(1, "source")?, side(2, "copy")?);
    let mut bench = Bench {
        server_options: args.of.trial.server_options()?,
        tool,
        source,
        copy,
        backups: folder.join("backups"),
        scale: Scale::small(1),
        writers: (1..=args.of.trial.threads).map(|number| Writer::new(number, seed)).collect(),
        definers: vec![Definer::new(1, seed)],
        twins: 0,
        rng,
        args,
    };
    let mut server = bench.prepare()?;
    let (began, mut rounds) = (Instant::now(), 0);
    for round in 1..=bench.args.of.trial.rounds {
        if began.elapsed().as_secs() > bench.args.seconds {
            break;
        }
        rounds = round;
        let kind = KINDS[(round as usize - 1) % KINDS.len()];
        server = bench.round(server, round, kind).with_context(|| {
            format!(
                "round {round} ({kind:?}), seed {seed}; the server's log is {}",
                bench.source.instance.log().display()
            )
        })?;
    }
    bench.refuse_plain()?;
    if bench.args.position {
        bench.quiet(&mut server)?;
    }
    server.stop()?;
    println!("{}: {rounds} rounds, each restored server equals its source", bench.args.of.trial.engine.title());
    Ok(())
}

impl Bench {
    fn conditions(&self, side: &Side) -> Conditions {
        let mut further = self.server_options.clone();
        further.extend([
            "slave-net-timeout=10".to_string(),
            // Of two engines, the rows' and that of the position (InnoDB), and not logged by the copy: the command `replica` has
            // positions in the rows' engine.
            "slave-parallel-threads=4".into(),
        ]);
        side.conditions(self.args.of.trial.cache_mb, further)
    }

    fn prepare(&mut self) -> Result<Server> {
        let _ = fs::remove_dir_all(&self.backups);
        fs::create_dir_all(&self.backups)?;
        self.source.instance.reset()?;
        let server = self.source.instance.start(&self.conditions(&self.source))?;
        self.source.lead()?;
        load_warehouses(&self.source.instance, self.scale, false)?;
        ledger::create(&self.source.instance)?;
        definer::create(&self.source.instance)?;
        let mut conn = self.source.instance.fresh_database(TWINS)?;
        conn.query_drop("CREATE TABLE here (n BIGINT PRIMARY KEY) ENGINE=STRATA")?;
        conn.query_drop("CREATE TABLE there (n BIGINT PRIMARY KEY) ENGINE=InnoDB")?;
        conn.query_drop("CREATE TABLE planted (n INT PRIMARY KEY, text VARCHAR(99)) ENGINE=STRATA COMPRESSION=none")?;
        conn.query_drop(format!("INSERT INTO planted SELECT seq, '{PLANTED}' FROM seq_1_to_500"))?;
        Ok(server)
    }

    fn round(&mut self, server: Server, round: u32, kind: Kind) -> Result<Server> {
        let dir = self.backups.join(format!("{round}"));
        let base = (kind == Kind::Incremental).then(|| self.backups.join("kept"));
        let mut server = server;
        if kind == Kind::KillTool || kind == Kind::KillServer {
            server = self.interrupted(server, &dir, kind)?;
            let _ = fs::remove_dir_all(&dir);
        }
        let (course, _) = self.under_load(&mut server, &dir, base.as_deref(), None, kind == Kind::Streamed)?;
        ensure!(
            course.longest_ms < course.longest_before_ms + COMMIT_WAIT_MAX_MS,
            "a commit took {:.0} ms during the backup, and {:.0} ms before",
            course.longest_ms,
            course.longest_before_ms
        );
        let bytes = size_of(&dir.join("strata"))?;
        let (tells, encrypted) = (holds(&dir.join("strata"), PLANTED.as_bytes())?, self.args.of.trial.encrypted);
        ensure!(!(encrypted && tells), "plaintext stands in the backup of an encrypted server");
        // An incremental one has what came since its base.
        ensure!(encrypted || tells || kind == Kind::Incremental, "the search does not find what is not encrypted");
        self.tool(&["verify", "--target-dir"], &[&dir])?;
        let target = match kind {
            Kind::Incremental => {
                let kept = self.backups.join("kept");
                self.tool(&["prepare", "--target-dir"], &[&kept, Path::new("--incremental-dir"), &dir])?;
                kept
            }
            _ => {
                if kind == Kind::Full {
                    copy_dir(&dir, &self.backups.join("kept"))?;
                }
                self.tool(&["prepare", "--target-dir"], &[&dir])?;
                dir.clone()
            }
        };
        self.tool(&["verify", "--target-dir"], &[&target])?;
        let twins = self.restore_and_compare(&target)?;
        server.ensure_alive()?;
        let Course { before, during, seconds, longest_ms, longest_before_ms } = course;
        println!(
            "round {round}: {kind:?}, {bytes} bytes of Strata in {seconds:.1} s; {before:.0} transactions per second before and \
             {during:.0} meanwhile, longest commit {longest_before_ms:.0} and {longest_ms:.0} ms; {twins} twins, caught up: equal"
        );
        fs::remove_dir_all(&dir)?;
        Ok(server)
    }

    /// A backup in whose middle the tool or the server is killed. The server that runs then.
    fn interrupted(&mut self, server: Server, dir: &Path, kind: Kind) -> Result<Server> {
        let after = Duration::from_millis(self.rng.random_range(50..3000));
        let mut server = server;
        let (_, done) = self.under_load(&mut server, dir, None, Some((kind, after)), false)?;
        if kind == Kind::KillServer {
            server = self.source.instance.start(&self.conditions(&self.source))?;
        }
        let verified = self.command().args(["verify", "--target-dir"]).arg(dir).stderr(Stdio::null()).status()?;
        ensure!(done || !verified.success(), "a backup that was killed after {after:?} passes for complete");
        Ok(server)
    }

    /// The load, and a backup in the middle of it; whether it was completed.
    fn under_load(
        &mut self,
        server: &mut Server,
        dir: &Path,
        base: Option<&Path>,
        kill: Option<(Kind, Duration)>,
        streamed: bool,
    ) -> Result<(Course, bool)> {
        let load = Load::until_stopped(self.scale, self.args.of.trial.threads, self.rng.random::<u32>().into());
        let (control, stop, done, defined) =
            (Control::default(), AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let longest_us = AtomicU64::new(0);
        let kills_server = kill.is_some_and(|(kind, _)| kind == Kind::KillServer);
        let origin = &self.source.instance;
        let mut command = match streamed {
            true => stream_command(&self.tool, origin, dir),
            false => backup_command(&self.tool, origin, dir, base),
        };
        let first_twin = self.twins + 1;
        let (writers, definers) = (&mut self.writers, &mut self.definers);
        let (outcome, course, status, twins, mut wrong) = std::thread::scope(|scope| {
            let driver = scope.spawn(|| drive(origin, load, &control));
            let mut handles: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(|| writer.write(origin, &stop, &done))).collect();
            for definer in definers.iter_mut() {
                handles.push(scope.spawn(|| definer.work(origin, !kills_server, &stop, &defined)));
            }
            let twins = scope.spawn(|| write_twins(origin, first_twin, &stop, &longest_us));
            let transactions = || control.transactions.load(Ordering::Relaxed);
            sleep(BEFORE / 3);
            longest_us.store(0, Ordering::Relaxed);
            let (from, since) = (transactions(), Instant::now());
            sleep(BEFORE);
            let before = (transactions() - from) as f64 / since.elapsed().as_secs_f64();
            let longest_before_ms = longest_us.swap(0, Ordering::Relaxed) as f64 / 1e3;
            let (from, since) = (transactions(), Instant::now());
            let status = command.spawn().context("the tool does not start").and_then(|mut tool| {
                if let Some((kind, after)) = kill {
                    sleep(after);
                    match kind {
                        Kind::KillServer => server.end()?,
                        _ => kill_all(&mut tool)?,
                    }
                }
                Ok(tool.wait()?.success())
            });
            let seconds = since.elapsed().as_secs_f64();
            let during = (transactions() - from) as f64 / seconds;
            let longest_ms = longest_us.load(Ordering::Relaxed) as f64 / 1e3;
            stop.store(true, Ordering::Relaxed);
            control.stop.store(true, Ordering::Relaxed);
            let mut wrong = Vec::new();
            join_all(handles, &mut wrong);
            let twins = twins.join().expect("the twins do not panic");
            let outcome = driver.join().expect("the driver does not panic");
            (outcome, Course { before, during, seconds, longest_before_ms, longest_ms }, status, twins, wrong)
        });
        self.twins = twins?;
        match outcome {
            Ok(outcome) => wrong.extend(outcome.seen.errors),
            Err(error) if !kills_server => return Err(error),
            Err(_) => {}
        }
        fail_if("under load", &wrong)?;
        let status = status?;
        ensure!(status || kill.is_some(), "the backup has failed");
        Ok((course, status))
    }

    fn command(&self) -> Command {
        Command::new(&self.tool)
    }

    fn tool(&self, words: &[&str], paths: &[&Path]) -> Result<()> {
        let status = quiet(self.command().args(words).args(paths), &self.backups.join("tool.log"))?.status()?;
        ensure!(status.success(), "{words:?} {paths:?} has failed: see {}", self.backups.join("tool.log").display());
        Ok(())
    }

    /// Restores a prepared backup, lets the server follow its source, and compares; how many twins the backup has.
    fn restore_and_compare(&self, backup: &Path) -> Result<u64> {
        let instance = &self.copy.instance;
        instance.reset()?;
        fs::remove_dir_all(instance.data())?;
        self.tool(&["restore", "--target-dir"], &[backup, Path::new("--datadir"), &instance.data()])?;
        let server = instance.start(&self.conditions(&self.copy))?;
        let mut conn = self.copy.connect()?;
        let unlike: Option<(u64, u64)> = conn.query_first(format!(
            "SELECT (SELECT COUNT(*) FROM {TWINS}.here), (SELECT COUNT(*) FROM {TWINS}.here JOIN {TWINS}.there USING (n))"
        ))?;
        let all: Option<u64> = conn.query_first(format!("SELECT COUNT(*) FROM {TWINS}.there"))?;
        let (here, both) = unlike.context("no answer")?;
        ensure!(all == Some(here) && both == here, "{here} twins in Strata, {all:?} in InnoDB, {both} in both");
        let text = fs::read_to_string(backup.join("backup.json"))?;
        let manifest: serde_json::Value = serde_json::from_str(&text)?;
        let gtid = manifest["position"]["gtid_binlog_pos"].as_str().context("the backup tells no GTID")?;
        conn.query_drop(format!("SET GLOBAL gtid_slave_pos = '{gtid}'"))?;
        self.source.follow(&mut conn)?;
        let mut source = self.source.connect()?;
        catch_up(&mut source, &mut conn, |_, text| {
            let errors = format!("{} {}", text("Last_SQL_Error"), text("Last_IO_Error"));
            let runs = text("Slave_SQL_Running") != "No" && text("Slave_IO_Running") != "No";
            ensure!(runs, "the restored server cannot follow its source: {errors}");
            Ok(())
        })
        .context("the restored server")?;
        let mut wrong = differences(&mut source, &mut conn)?;
        check_tables(instance, &mut wrong)?;
        for table in ["here", "there"] {
            let sum = |conn: &mut Conn| conn.query_first::<(String, u64), _>(format!("CHECKSUM TABLE {TWINS}.{table}"));
            let (ours, theirs) = (sum(&mut source)?, sum(&mut conn)?);
            if ours != theirs || ours.is_none() {
                wrong.push(format!("the sums of {table} are {ours:?} and {theirs:?}"));
            }
        }
        fail_if("in the restored server", &wrong)?;
        server.stop()?;
        Ok(here)
    }

    /// Backups of a server that nobody else writes to: how large an incremental one is, and recovery to a position.
    fn quiet(&self, server: &mut Server) -> Result<()> {
        const ROWS: u32 = 2000;
        const ROW_BYTES: u32 = 500;
        let mut conn = self.source.connect()?;
        conn.query_drop(format!(
            "CREATE TABLE {TWINS}.marks (n INT PRIMARY KEY, filler VARBINARY(600)) ENGINE=STRATA"
        ))?;
        let (full, more) = (self.backups.join("quiet"), self.backups.join("more"));
        // What the load has left to merge would be in the incremental backup, too; a backup, which writes memtables to files, brings it about.
        self.back_up(&self.backups.join("before"), None)?;
        settle(server.pid())?;
        let began = Instant::now();
        self.back_up(&full, None)?;
        self.throttled(size_of(&full.join("strata"))?, began.elapsed())?;
        let bytes = "RANDOM_BYTES(500)";
        conn.query_drop(format!("INSERT INTO {TWINS}.marks SELECT seq, {bytes} FROM {TWINS}.seq_1_to_{ROWS}"))?;
        self.back_up(&more, Some(&full))?;
        let (all, changed) = (size_of(&full.join("strata"))?, tables_of(&more.join("strata"))?);
        let written = u64::from(ROWS * ROW_BYTES);
        ensure!(
            changed >= written / 2 && changed < 3 * written,
            "{written} bytes were written, and the incremental backup has table files of {changed} bytes; the full one has {all}"
        );
        // To a position between two transactions, from the full backup and the binary log.
        let place = |conn: &mut Conn| -> Result<(String, u64)> {
            let status: mysql::Row = conn.query_first("SHOW MASTER STATUS")?.context("there is no binary log")?;
            Ok((status.get("File").context("no file")?, status.get("Position").context("no position")?))
        };
        conn.query_drop(format!("DELETE FROM {TWINS}.marks WHERE n > 1"))?;
        let (last_file, stop) = place(&mut conn)?;
        conn.query_drop(format!("DELETE FROM {TWINS}.marks"))?;
        self.tool(&["prepare", "--target-dir"], &[&full])?;
        let instance = &self.copy.instance;
        instance.reset()?;
        fs::remove_dir_all(instance.data())?;
        self.tool(&["restore", "--target-dir"], &[&full, Path::new("--datadir"), &instance.data()])?;
        let copy = instance.start(&self.conditions(&self.copy))?;
        let text = fs::read_to_string(full.join("backup.json"))?;
        let manifest: serde_json::Value = serde_json::from_str(&text)?;
        let of =
            |name: &str| manifest["position"][name].as_str().map(str::to_owned).context("the backup tells no position");
        let (first_file, start) = (of("binlog_file")?, of("binlog_position")?);
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(self.source.instance.binlogs())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_log =
                name.rsplit('.').next().is_some_and(|end| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit()));
            if is_log && name >= first_file && name <= last_file {
                files.push(path);
            }
        }
        files.sort();
        let mut read = Command::new("mariadb-binlog");
        read.arg("--no-defaults").arg(format!("--start-position={start}")).arg(format!("--stop-position={stop}"));
        let mut read = read.args(&files).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let events = read.stdout.take().context("no output of mariadb-binlog")?;
        let mut apply = Command::new("mariadb");
        apply.arg("--no-defaults").arg("-uroot").arg("--socket").arg(instance.socket()).stdin(events);
        let applied = apply.status()?.success();
        ensure!(read.wait()?.success() && applied, "the binary log cannot be applied");
        let marks: Vec<u32> = self.copy.connect()?.query(format!("SELECT n FROM {TWINS}.marks"))?;
        ensure!(marks == [1], "recovery to a position has led to {} marks", marks.len());
        copy.stop()?;
        server.ensure_alive()?;
        println!(
            "{written} bytes written: {changed} bytes of table files in the incremental backup; recovered to a position"
        );
        Ok(())
    }

    /// A backup without load.
    fn back_up(&self, dir: &Path, base: Option<&Path>) -> Result<()> {
        let done = backup_command(&self.tool, &self.source.instance, dir, base).status()?.success();
        ensure!(done, "a backup to {} has failed", dir.display());
        Ok(())
    }

    /// A backup at a rate by which its bytes take some seconds longer than the backup that took `unthrottled`.
    fn throttled(&self, bytes: u64, unthrottled: Duration) -> Result<()> {
        let rate = ((bytes / (unthrottled.as_secs() + 3)) >> 20).max(1);
        let least = 0.9 * bytes as f64 / (rate << 20) as f64;
        let dir = self.backups.join("throttled");
        let mut command = backup_command(&self.tool, &self.source.instance, &dir, None);
        let began = Instant::now();
        let done = command.arg("--throttle").arg(rate.to_string()).status()?.success();
        let took = began.elapsed().as_secs_f64();
        ensure!(done && took >= least, "{bytes} bytes at {rate} MiB a second took {took:.1} s, done: {done}");
        println!("{bytes} bytes took {:.1} s, and at {rate} MiB a second {took:.1} s", unthrottled.as_secs_f64());
        Ok(fs::remove_dir_all(&dir)?)
    }

    /// mariadb-backup alone fails.
    fn refuse_plain(&self) -> Result<()> {
        let dir = self.backups.join("plain");
        let mut command = Command::new("mariadb-backup");
        command.arg("--no-defaults").arg("--backup").arg(format!("--target-dir={}", dir.display()));
        command.arg(format!("--socket={}", self.source.instance.socket().display())).arg("--user=root");
        command.arg(format!("--datadir={}", self.source.instance.data().display()));
        let log = self.backups.join("plain.log");
        let status = quiet(&mut command, &log)?.status()?;
        let said = fs::read_to_string(&log)?;
        ensure!(
            !status.success() && said.contains("would be missing from this backup"),
            "a plain backup looks like a success"
        );
        Ok(())
    }
}

/// The output of a command goes to a file.
fn quiet<'a>(command: &'a mut Command, log: &Path) -> Result<&'a mut Command> {
    let log = fs::File::options().create(true).append(true).open(log)?;
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log))
}

fn backup_command(tool: &Path, origin: &Instance, dir: &Path, base: Option<&Path>) -> Command {
    let mut command = Command::new(tool);
    command.arg("backup").arg("--socket").arg(origin.socket()).arg("--target-dir").arg(dir);
    if let Some(base) = base {
        command.arg("--incremental-base").arg(base);
    }
    if let Some(log) =
        dir.parent().and_then(|dir| fs::File::options().create(true).append(true).open(dir.join("tool.log")).ok())
    {
        command.stderr(log);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A backup through a pipe into the archiver, as if that were on another machine.
fn stream_command(tool: &Path, origin: &Instance, dir: &Path) -> Command {
    let stage = dir.with_extension("stage");
    let script = "mkdir \"$3\" && set -o pipefail && \"$0\" backup --socket \"$1\" --target-dir \"$2\" --stream --throttle 200 | \
                  tar --zstd -xf - -C \"$3\" && rmdir \"$2\"";
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).arg(tool).arg(origin.socket()).arg(stage).arg(dir);
    if let Some(log) =
        dir.parent().and_then(|dir| fs::File::options().create(true).append(true).open(dir.join("tool.log")).ok())
    {
        command.stderr(log);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Ends the tool and the mariadb-backup that it has started, both by SIGKILL.
fn kill_all(tool: &mut Child) -> Result<()> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", tool.id())).unwrap_or_default();
    tool.kill()?;
    for child in children.split_whitespace() {
        Command::new("kill").args(["-KILL", child]).stderr(Stdio::null()).status()?;
    }
    Ok(())
}

/// Inserts numbers from `first` on into both tables until told to stop, or until the server goes away; the last one tried.
fn write_twins(origin: &Instance, first: u64, stop: &AtomicBool, longest_us: &AtomicU64) -> Result<u64> {
    let Ok(mut conn) = origin.connect(Some(TWINS)) else { return Ok(first) };
    let mut n = first;
    while !stop.load(Ordering::Relaxed) {
        let mut insert = || -> mysql::Result<()> {
            conn.query_drop("BEGIN")?;
            conn.query_drop(format!("INSERT INTO there VALUES ({n})"))?;
            conn.query_drop(format!("INSERT INTO here VALUES ({n})"))?;
            let since = Instant::now();
            conn.query_drop("COMMIT")?;
            longest_us.fetch_max(since.elapsed().as_micros() as u64, Ordering::Relaxed);
            Ok(())
        };
        match insert() {
            Ok(()) => n += 1,
            Err(error) if crate::drive::is_lost(&error) => break,
            Err(error) => bail!("twins: {error}"),
        }
    }
    Ok(n)
}

/// Bytes of all files of a folder and those in it.
pub fn size_of(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() { size_of(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}

/// Whether these bytes stand in a file.
fn holds(dir: &Path, bytes: &[u8]) -> Result<bool> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = match entry.file_type()?.is_dir() {
            true => holds(&entry.path(), bytes)?,
            false => fs::read(entry.path())?.windows(bytes.len()).any(|part| part == bytes),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes of the table files.
fn tables_of(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        sum += if entry.path().extension().is_some_and(|e| e == "sst") { entry.metadata()?.len() } else { 0 };
    }
    Ok(sum)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(status.success(), "{} cannot be copied", from.display());
    Ok(())
}
