//! Runs of the server without the engine, between a crash and the next start with it.
//!
//! Such a run recovers what other engines have prepared and begins a binary log of its own, whose numbers of transactions are
//! those of the crashed run over again. What Strata has prepared must be decided by the log of the crashed run all the same, as
//! InnoDB's part of the same transaction was, also if the server ends itself once more while that is done.

use super::{DATABASE, Matrix, PATIENCE, State, state};
use crate::drive::is_lost;
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;

use State::{Absent, Committed};

/// What happens in such a run, and how it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Run {
    /// Nothing, SHUTDOWN.
    Stopped,
    /// Nothing, SIGKILL.
    Killed,
    /// As many transactions as the crashed run had, and more; SIGKILL.
    Worked,
    /// The binary log is rotated twice; SHUTDOWN.
    Rotated,
}

use Run::{Killed, Rotated, Stopped, Worked};

/// Transactions of a run that works.
const WORK: u64 = 60;

struct Case {
    step: &'static str,
    between: &'static [Run],
    /// Where the next start with the engine ends itself.
    again: Option<&'static str>,
    must: State,
}

fn cases() -> Vec<Case> {
    let case = |step, between, again, must| Case { step, between, again, must };
    vec![
        case("prepare-durable", &[Stopped], None, Absent),
        case("prepare-durable", &[Worked], None, Absent),
        case("prepare-durable", &[Rotated, Worked], Some("rollback-logged"), Absent),
        case("prepare-durable", &[Killed], Some("rolled-back"), Absent),
        case("order-begins", &[Stopped], None, Committed),
        case("order-begins", &[Killed], None, Committed),
        case("order-begins", &[Rotated, Worked, Killed], None, Committed),
        case("order-begins", &[Worked], Some("order-begins"), Committed),
        case("order-begins", &[Killed], Some("commit-visible"), Committed),
        case("ordered", &[Killed], None, Committed),
        case("commit-visible", &[Worked], None, Committed),
    ]
}

/// What a list of such runs is called in the report.
pub(super) fn told(between: &[Run]) -> String {
    let names: Vec<String> = between.iter().map(|run| format!("{run:?}").to_lowercase()).collect();
    if names.is_empty() { String::new() } else { format!(", then without the engine: {}", names.join(", ")) }
}

impl Matrix {
    pub(super) fn absent(&mut self, wanted: impl Fn(&str) -> bool) -> Result<()> {
        if !wanted("without the engine") {
            return Ok(());
        }
        for case in cases() {
            self.absent_case(&case).with_context(|| format!("COMMIT at {}{}", case.step, told(case.between)))?;
        }
        for (step, between) in [("order-begins:42", [Worked]), ("prepare-durable:41", [Killed])] {
            self.group(step, &between).with_context(|| format!("eight sessions at {step}{}", told(&between)))?;
        }
        Ok(())
    }

    /// Starts the server without the engine and ends it, once for each of these.
    pub(super) fn run_absent(&self, between: &[Run]) -> Result<()> {
        for run in between {
            let mut server = self.source.launch_absent(&self.conditions)?;
            server.wait_ready(PATIENCE)?;
            let mut conn = server.connect(Some(DATABASE))?;
            let engines: Option<u64> =
                conn.query_first("SELECT COUNT(*) FROM information_schema.engines WHERE engine = 'STRATA'")?;
            ensure!(engines == Some(0), "the engine is there");
            match run {
                Stopped | Killed => {}
                Worked => {
                    conn.query_drop("DELETE FROM w")?;
                    (0..WORK).try_for_each(|n| conn.query_drop(format!("INSERT INTO w VALUES ({n})")))?;
                }
                Rotated => {
                    conn.query_drop("FLUSH BINARY LOGS")?;
                    conn.query_drop("FLUSH BINARY LOGS")?;
                }
            }
            drop(conn);
            match run {
                Stopped | Rotated => server.stop()?,
                Killed | Worked => server.kill()?,
            }
        }
        Ok(())
    }

    fn absent_case(&mut self, case: &Case) -> Result<()> {
        let server = self.start(Some(case.step))?;
        let mut conn = server.connect(Some(DATABASE))?;
        let work = [
            "BEGIN",
            "INSERT INTO i VALUES (1, 1)",
            "INSERT INTO t VALUES (1, 1)",
            "UPDATE u SET v = v + 1 WHERE id = 1",
        ];
        for statement in work {
            conn.query_drop(statement)?;
        }
        match conn.query_drop("COMMIT") {
            Ok(()) => bail!("the server did not end itself"),
            Err(error) if is_lost(&error) => {}
            Err(error) => return Err(error.into()),
        }
        drop(conn);
        server.wait_ended(PATIENCE)?;
        self.run_absent(case.between)?;
        if let Some(step) = case.again {
            self.source.launch_to_crash(&self.conditions, Some(step))?.wait_ended(PATIENCE)?;
        }

        let server = self.start(None)?;
        let mut conn = server.connect(Some(DATABASE))?;
        let what = format!("COMMIT with InnoDB{}", told(case.between));
        let at = case.again.map_or(case.step.to_owned(), |again| format!("{}, and {again} at the start", case.step));
        let engine = state(&mut conn)?;
        self.apply()?;
        let mut copy = self.replica.connect(Some(DATABASE))?;
        let binlog = state(&mut copy)?;
        if engine != case.must || binlog != case.must {
            self.wrong.push(format!("{what}, at {at}: Strata has {engine}, the binary log {binlog}"));
        }
        self.compare(&what, &at, &mut conn, &mut copy)?;
        println!("{what}, at {at}: Strata has {engine}, the binary log {binlog}");
        self.rows.push([what, at, engine.to_string(), binlog.to_string(), String::new()]);
        for conn in [&mut conn, &mut copy] {
            super::clear(conn)?;
        }
        drop(conn);
        server.kill()
    }
}
