//! The command `crash-matrix`: a crash at each step of each way to end a transaction, and of each change of tables (`ddl`); runs
//! of the server without the engine after a crash (`absent`); and values of sequences (`sequences`).
//!
//! A case runs statements on a server that ends itself, as with SIGKILL, when Strata comes to a step (`STRATA_CRASH_AT`).
//! After the restart three things are compared: what Strata has, what a second server has to which the binary log was
//! applied, and what the client was told. Steps between writing and syncing the binary log are the server's own; they
//! are made up by cutting the log's tail off after a crash that comes behind them.
//!
//! XA together with the binary log is not safe against crashes in MariaDB 10.11, with any engine: there the table tells
//! what happens, and only what the engine is responsible for is checked.

mod absent;
mod ddl;
mod sequences;

use crate::binlog;
use crate::drive::is_lost;
use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::options::{Isolation, Site};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const DATABASE: &str = "matrix";
const TWO_PHASES: &[&str] =
    &["prepare-begins", "prepare-logged", "prepare-durable", "order-begins", "ordered", "commit-visible"];
/// Steps of a commit at which a server of the engine can end itself.
pub const ONE_PHASE: &[&str] = &[
    "prepare-begins",
    "prepare-logged",
    "prepare-durable",
    "order-begins",
    "ordered",
    "commit-visible",
    "commit-durable",
];
const PREPARE: &[&str] = &["prepare-begins", "prepare-logged", "prepare-durable"];
const COMMIT: &[&str] = &["order-begins", "ordered", "commit-visible", "commit-durable"];
const ROLLBACK: &[&str] = &["rollback-begins", "rollback-logged", "rolled-back"];

/// Number of rows and a sum over them.
type Sum = Option<(u64, Option<i64>)>;

/// Options of `crash-matrix`.
#[derive(clap::Args)]
pub struct Args {
    /// Only cases whose name contains this
    #[arg(long)]
    only: Option<String>,
    #[command(flatten)]
    site: Site,
}

/// What a server has of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Prepared,
    Committed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Absent => "nothing",
            State::Prepared => "prepared",
            State::Committed => "committed",
        })
    }
}

use State::{Absent, Committed, Prepared};

/// How much of the transaction's group is cut off the binary log after the crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Nothing,
    All,
    Half,
}

struct Scenario {
    name: &'static str,
    steps: &'static [&'static str],
    /// What happens in the first session, the crash excepted, on a server that does not crash.
    before: &'static [&'static str],
    /// The statement in which the server ends.
    last: &'static str,
    /// `last` comes from another session, and the first one is gone.
    elsewhere: bool,
    binlog: bool,
    cut: Cut,
    /// What Strata may have, by the number of the step.
    allowed: fn(usize) -> &'static [State],
    /// Strata and the binary log must agree.
    agree: bool,
}

/// The commit is decided once the binary log has it: from the step `order-begins` on.
fn by_binlog(step: usize) -> &'static [State] {
    if step < 3 { &[Absent] } else { &[Committed] }
}

/// The commit is decided once its record is durable, which is the last step.
fn by_record(step: usize) -> &'static [State] {
    if step < 3 { &[Absent] } else { &[Committed] }
}

fn scenarios() -> Vec<Scenario> {
    const WORK: &[&str] = &["BEGIN", "INSERT INTO t VALUES (1, 1)", "UPDATE u SET v = v + 1 WHERE id = 1"];
    const BOTH: &[&str] = &["BEGIN", "INSERT INTO i VALUES (1, 1)", "INSERT INTO t VALUES (1, 1)"];
    const XA: &[&str] = &["XA START 'x'", "INSERT INTO t VALUES (1, 1)", "XA END 'x'"];
    const XA_PREPARED: &[&str] = &["XA START 'x'", "INSERT INTO t VALUES (1, 1)", "XA END 'x'", "XA PREPARE 'x'"];
    let plain = Scenario {
        name: "COMMIT",
        steps: TWO_PHASES,
        before: WORK,
        last: "COMMIT",
        elsewhere: false,
        binlog: true,
        cut: Cut::Nothing,
        allowed: by_binlog,
        agree: true,
    };
    let xa = |name, steps, before, last, binlog, allowed| Scenario {
        name,
        steps,
        before,
        last,
        binlog,
        allowed,
        agree: false,
        elsewhere: false,
        cut: Cut::Nothing,
    };
    // The prepare record counts once it is durable.
    let preparing: fn(usize) -> &'static [State] = |step| if step < 2 { &[Absent] } else { &[Prepared] };
    let committing: fn(usize) -> &'static [State] = |step| if step < 3 { &[Prepared] } else { &[Committed] };
    let undoing: fn(usize) -> &'static [State] = |step| if step < 2 { &[Prepared] } else { &[Absent] };
    // The server does it in two phases, under the user's id.
    let one_phase: fn(usize) -> &'static [State] = |step| match step {
        0 | 1 => &[Absent],
        2..6 => &[Prepared],
        _ => &[Committed],
    };
    let nothing: fn(usize) -> &'static [State] = |_| &[Absent];
    let elsewhere = |scenario| Scenario { elsewhere: true, ..scenario };
    vec![
        Scenario { name: "autocommit", before: &[], last: "INSERT INTO t VALUES (1, 1)", ..plain },
        Scenario { name: "COMMIT", ..plain },
        Scenario { name: "COMMIT with InnoDB", before: BOTH, ..plain },
        Scenario {
            name: "COMMIT, binlog written, not synced",
            steps: &TWO_PHASES[3..4],
            cut: Cut::All,
            allowed: nothing,
            ..plain
        },
        Scenario {
            name: "COMMIT, binlog half written",
            steps: &TWO_PHASES[3..4],
            cut: Cut::Half,
            allowed: nothing,
            ..plain
        },
        Scenario { name: "COMMIT, no binlog", steps: COMMIT, binlog: false, allowed: by_record, agree: false, ..plain },
        xa("XA COMMIT ONE PHASE", ONE_PHASE, XA, "XA COMMIT 'x' ONE PHASE", true, one_phase),
        xa("XA PREPARE, no binlog", PREPARE, XA, "XA PREPARE 'x'", false, preparing),
        xa("XA COMMIT, no binlog", COMMIT, XA_PREPARED, "XA COMMIT 'x'", false, committing),
        elsewhere(xa("XA COMMIT elsewhere, no binlog", COMMIT, XA_PREPARED, "XA COMMIT 'x'", false, committing)),
        xa("XA ROLLBACK, no binlog", ROLLBACK, XA_PREPARED, "XA ROLLBACK 'x'", false, undoing),
        elsewhere(xa("XA ROLLBACK elsewhere, no binlog", ROLLBACK, XA_PREPARED, "XA ROLLBACK 'x'", false, undoing)),
        xa("XA PREPARE", PREPARE, XA, "XA PREPARE 'x'", true, preparing),
        xa("XA COMMIT", COMMIT, XA_PREPARED, "XA COMMIT 'x'", true, committing),
        elsewhere(xa("XA COMMIT elsewhere", COMMIT, XA_PREPARED, "XA COMMIT 'x'", true, committing)),
        xa("XA ROLLBACK", ROLLBACK, XA_PREPARED, "XA ROLLBACK 'x'", true, undoing),
        elsewhere(xa("XA ROLLBACK elsewhere", ROLLBACK, XA_PREPARED, "XA ROLLBACK 'x'", true, undoing)),
    ]
}

struct Matrix {
    source: Instance,
    replica: Instance,
    conditions: Conditions,
    /// Number of the newest binary log that the replica has.
    applied: u64,
    rows: Vec<[String; 5]>,
    wrong: Vec<String>,
}

/// The command `crash-matrix`.
pub fn run(args: Args) -> Result<()> {
    let folder = args.site.folder()?.join("matrix");
    std::fs::create_dir_all(folder.join("replica"))?;
    let conditions =
        Conditions { budget_mb: 64, isolation: Isolation::RepeatableRead, extra: vec![], strata_extra: vec![] };
    let mut matrix = Matrix {
        source: Instance::new(&folder, Kind::Strata)?,
        replica: Instance::new(&folder.join("replica"), Kind::Strata)?,
        conditions,
        applied: 0,
        rows: Vec::new(),
        wrong: Vec::new(),
    };
    matrix.source.reset()?;
    matrix.replica.reset()?;
    let replica = matrix.replica.start(&matrix.conditions)?;
    matrix.prepare()?;
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    for scenario in scenarios().iter().filter(|scenario| wanted(scenario.name)) {
        for (number, step) in scenario.steps.iter().enumerate() {
            // A single step of another list keeps its number there.
            let number = if scenario.steps.len() == 1 { 3 } else { number };
            matrix.case(scenario, number, step).with_context(|| format!("{} at {step}", scenario.name))?;
        }
    }
    for step in ["prepare-logged:40", "prepare-durable:41", "order-begins:42", "ordered:43", "commit-visible:44"] {
        if wanted("eight sessions") {
            matrix.group(step, &[]).with_context(|| format!("eight sessions at {step}"))?;
        }
    }
    matrix.absent(wanted)?;
    matrix.sequences(wanted)?;
    matrix.ddl(wanted)?;
    leaks::end(matrix.start(None)?, matrix.conditions.budget_mb)?;
    leaks::end(replica, matrix.conditions.budget_mb)?;
    println!("| what | crash at | Strata has | the binary log has | |\n|---|---|---|---|---|");
    for row in &matrix.rows {
        println!("| {} |", row.join(" | "));
    }
    ensure!(matrix.wrong.is_empty(), "{} violations:\n{}", matrix.wrong.len(), matrix.wrong.join("\n"));
    println!("{} crashes, all as they should be", matrix.rows.len());
    Ok(())
}

impl Matrix {
    fn start(&self, crash_at: Option<&str>) -> Result<Server> {
        let mut server = self.source.launch_to_crash(&self.conditions, crash_at)?;
        server.wait_ready(PATIENCE)?;
        Ok(server)
    }

    fn prepare(&mut self) -> Result<()> {
        let server = self.start(None)?;
        let mut conn = server.connect(None)?;
        for statement in [
            "CREATE DATABASE matrix",
            "CREATE TABLE matrix.t (id INT PRIMARY KEY, v INT) ENGINE=STRATA",
            "CREATE TABLE matrix.u (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=STRATA",
            "CREATE TABLE matrix.i (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
            "CREATE TABLE matrix.w (id INT PRIMARY KEY) ENGINE=InnoDB",
            "CREATE SEQUENCE matrix.few CACHE 3 ENGINE=STRATA",
            "CREATE SEQUENCE matrix.one NOCACHE ENGINE=STRATA",
            "CREATE TABLE matrix.vi (id BIGINT PRIMARY KEY) ENGINE=InnoDB",
            "CREATE TABLE matrix.vs (id BIGINT PRIMARY KEY) ENGINE=STRATA",
            "CREATE TABLE matrix.g (id BIGINT PRIMARY KEY, v VARCHAR(100)) ENGINE=STRATA",
            "INSERT INTO matrix.u VALUES (1, 0)",
        ] {
            conn.query_drop(statement)?;
        }
        drop(conn);
        server.stop()
    }

    /// Applies the binary logs that are complete and not yet applied.
    fn apply(&mut self) -> Result<()> {
        for (number, file) in binlog::complete(&self.source.binlogs())? {
            if number <= self.applied {
                continue;
            }
            self.applied = number;
            let (mut reader, output) = binlog::reader(&file, &[])?;
            let socket = format!("--socket={}", self.replica.socket().display());
            let status = Command::new("mariadb")
                .args(["--no-defaults", "--user=root", &socket])
                .stdin(output)
                .status()
                .context("mariadb is not installed; 'make setup' installs it")?;
            reader.wait()?;
            ensure!(status.success(), "{} cannot be applied", file.display());
        }
        Ok(())
    }

    fn case(&mut self, scenario: &Scenario, number: usize, step: &str) -> Result<()> {
        let server = self.start(Some(step))?;
        let mut conn = server.connect(Some(DATABASE))?;
        if !scenario.binlog {
            conn.query_drop("SET SESSION sql_log_bin = 0")?;
        }
        let run = |conn: &mut Conn| -> mysql::Result<()> {
            for statement in scenario.before {
                conn.query_drop(statement)?;
            }
            Ok(())
        };
        run(&mut conn)?;
        if scenario.elsewhere {
            drop(conn);
            conn = server.connect(Some(DATABASE))?;
            if !scenario.binlog {
                conn.query_drop("SET SESSION sql_log_bin = 0")?;
            }
            self.wait_detached(&mut conn)?;
        }
        let place: (String, u64, String, String) = conn.query_first("SHOW MASTER STATUS")?.context("no binary log")?;
        match conn.query_drop(scenario.last) {
            Ok(()) => bail!("the server did not end itself"),
            Err(error) if is_lost(&error) => {}
            Err(error) => return Err(error.into()),
        }
        drop(conn);
        server.wait_ended(PATIENCE)?;
        self.cut(scenario.cut, &place.0, place.1)?;

        let server = self.start(None)?;
        let mut conn = server.connect(Some(DATABASE))?;
        let engine = state(&mut conn)?;
        self.apply()?;
        let mut copy = self.replica.connect(Some(DATABASE))?;
        let binlog = state(&mut copy)?;
        let mut remark = "";
        if !(scenario.allowed)(number).contains(&engine) {
            self.wrong.push(format!("{} at {step}: Strata has {engine}", scenario.name));
        }
        if scenario.binlog && engine != binlog {
            remark = "the server's gap";
            if scenario.agree {
                self.wrong.push(format!("{} at {step}: Strata has {engine}, the binary log {binlog}", scenario.name));
            }
        }
        if scenario.binlog && scenario.agree {
            self.compare(scenario.name, step, &mut conn, &mut copy)?;
        }
        if engine == Prepared {
            conn.query_drop("SET SESSION strata_lock_wait_timeout = 0")?;
            let refused = conn.query_drop("INSERT INTO t VALUES (1, 7)");
            if !matches!(&refused, Err(mysql::Error::MySqlError(error)) if error.code == 1205) {
                self.wrong.push(format!("{} at {step}: the prepared row is not locked: {refused:?}", scenario.name));
            }
        }
        let binlog = if scenario.binlog { binlog.to_string() } else { "-".into() };
        println!("{} at {step}: Strata has {engine}, the binary log {binlog}", scenario.name);
        self.rows.push([scenario.name.into(), step.into(), engine.to_string(), binlog, remark.into()]);
        for conn in [&mut conn, &mut copy] {
            clear(conn)?;
        }
        drop(conn);
        server.kill()
    }

    /// The tables that transactions of several tables write to, here and where the binary log was applied.
    fn compare(&mut self, what: &str, step: &str, conn: &mut Conn, copy: &mut Conn) -> Result<()> {
        for table in ["t", "u", "i"] {
            let query = format!("SELECT COUNT(*), SUM(id * 1000 + v) FROM {table}");
            let (here, there): (Sum, Sum) = (conn.query_first(&query)?, copy.query_first(&query)?);
            if here != there {
                self.wrong.push(format!("{what} at {step}: table {table}: {here:?}, copy {there:?}"));
            }
        }
        Ok(())
    }

    /// A prepared transaction is free for others once its session has been cleaned up.
    fn wait_detached(&self, conn: &mut Conn) -> Result<()> {
        let began = std::time::Instant::now();
        loop {
            let others: Option<u64> = conn.query_first(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()",
            )?;
            let kept: Option<(String, u64)> = conn.query_first("SHOW STATUS LIKE 'Strata_prepared_detached'")?;
            if others == Some(0) && kept.is_some_and(|(_, n)| n == 1) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "the first session does not go away");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn cut(&self, cut: Cut, file: &str, place: u64) -> Result<()> {
        if cut == Cut::Nothing {
            return Ok(());
        }
        let path = self.source.binlogs().join(file);
        let file = std::fs::File::options().write(true).open(&path)?;
        let len = file.metadata()?.len();
        ensure!(len > place, "{} has nothing behind {place}", path.display());
        file.set_len(if cut == Cut::All { place } else { place + (len - place) / 2 })?;
        Ok(())
    }

    /// Eight sessions commit at once; one of them comes to the step.
    fn group(&mut self, step: &str, between: &[absent::Run]) -> Result<()> {
        let server = self.start(Some(step))?;
        let told = Mutex::new(Vec::<u64>::new());
        let base: u64 = self.rows.len() as u64 * 1_000_000;
        std::thread::scope(|scope| -> Result<()> {
            let handles: Vec<_> = (0..8u64)
                .map(|session| {
                    let (told, server) = (&told, &server);
                    scope.spawn(move || -> Result<()> {
                        let mut conn = server.connect(Some(DATABASE))?;
                        for n in 0.. {
                            let id = base + session * 100_000 + n;
                            match conn.query_drop(format!("INSERT INTO g VALUES ({id}, REPEAT('x', {}))", id % 97)) {
                                Ok(()) => told.lock().expect("nobody panics").push(id),
                                Err(error) if is_lost(&error) => break,
                                Err(error) => return Err(error.into()),
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            handles.into_iter().try_for_each(|handle| handle.join().expect("a session does not panic"))
        })?;
        server.wait_ended(PATIENCE)?;
        self.run_absent(between)?;
        let server = self.start(None)?;
        self.apply()?;
        let query = format!("SELECT id FROM g WHERE id >= {base} AND LENGTH(v) = id % 97");
        let here: BTreeSet<u64> = server.connect(Some(DATABASE))?.query(&query)?.into_iter().collect();
        let there: BTreeSet<u64> = self.replica.connect(Some(DATABASE))?.query(&query)?.into_iter().collect();
        let told = told.into_inner().expect("nobody panics");
        let lost = told.iter().filter(|id| !here.contains(id)).count();
        if lost > 0 || here != there {
            self.wrong.push(format!("eight sessions at {step}: {lost} lost, {} and {} rows", here.len(), there.len()));
        }
        println!(
            "eight sessions at {step}: {} told, {} there, {} in the binary log",
            told.len(),
            here.len(),
            there.len()
        );
        let agree = if here == there { "the same" } else { "others" };
        let row = [
            format!("eight sessions in autocommit{}", absent::told(between)),
            step.into(),
            "all that was told".into(),
            agree.into(),
            format!("{} told, {} there", told.len(), here.len()),
        ];
        self.rows.push(row);
        server.kill()
    }
}

/// What the server has of the case's transaction.
fn state(conn: &mut Conn) -> Result<State> {
    let prepared: Vec<mysql::Row> = conn.query("XA RECOVER")?;
    let rows: u64 = conn.query_first("SELECT COUNT(*) FROM t")?.unwrap_or(0);
    match (prepared.len(), rows) {
        (0, 0) => Ok(Absent),
        (0, 1) => Ok(Committed),
        (1, 0) => Ok(Prepared),
        (prepared, rows) => bail!("{prepared} prepared transactions and {rows} rows"),
    }
}

/// Makes both servers equal again, past the binary log.
fn clear(conn: &mut Conn) -> Result<()> {
    conn.query_drop("SET SESSION sql_log_bin = 0")?;
    let prepared: Vec<mysql::Row> = conn.query("XA RECOVER")?;
    if !prepared.is_empty() {
        conn.query_drop("XA ROLLBACK 'x'")?;
    }
    conn.query_drop("DELETE FROM t")?;
    conn.query_drop("DELETE FROM i")?;
    conn.query_drop("UPDATE u SET v = 0")?;
    Ok(())
}
