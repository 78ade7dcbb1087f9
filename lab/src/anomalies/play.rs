//! Plays the steps of a scenario on sessions of a server and compares the answers.
//!
//! Each session is a thread, so that a statement may wait while others go on.
//! That a statement waits is read off the engine's counter of lock waits: only
//! one statement is under way at a time, so the counter moves if and only if
//! that one began to wait. An answer that should come is awaited for a bounded
//! time, which no correct run uses up. Rejected: concluding from silence that a
//! statement waits; it is slow when right and wrong on a loaded machine.

use super::scenario::{Answer, Scenario, Section, Step};
use crate::engine::Kind;
use crate::options::Isolation;
use crate::server::Instance;
use anyhow::{Context, Result, bail};
use mysql::prelude::Queryable;
use mysql::{Conn, Value};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The database of the scenarios.
pub const DATABASE: &str = "anomalies";
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// Plays a section. `Err` says which step answered what.
pub fn play(instance: &Instance, scenario: &Scenario, section: &Section, level: Isolation) -> Result<()> {
    let mut control = instance.connect(Some(DATABASE))?;
    let engine = instance.kind().sql();
    control.query_drop("DROP TABLE IF EXISTS t")?;
    control.query_drop(format!("CREATE TABLE t (id INT PRIMARY KEY, value INT) ENGINE={engine}"))?;
    control.query_drop("INSERT INTO t VALUES (1, 10), (2, 20)")?;
    for statement in &scenario.setup {
        control.query_drop(statement).with_context(|| format!("this statement failed: {statement}"))?;
    }
    let mut sessions = BTreeMap::new();
    for step in &section.steps {
        if let std::collections::btree_map::Entry::Vacant(place) = sessions.entry(step.session) {
            place.insert(Session::open(instance, level)?);
        }
    }
    let mut stage = Stage { kind: instance.kind(), control, sessions };
    let played = section.steps.iter().try_for_each(|step| stage.step(step));
    // Also what waits because of a wrong answer ends here.
    for session in stage.sessions.values() {
        let _ = stage.control.query_drop(format!("KILL {}", session.id));
    }
    for (_, session) in stage.sessions {
        session.close();
    }
    played
}

struct Stage {
    kind: Kind,
    control: Conn,
    sessions: BTreeMap<char, Session>,
}

impl Stage {
    fn step(&mut self, step: &Step) -> Result<()> {
        let before = self.waits_begun()?;
        let session = &self.sessions[&step.session];
        if let Some(statement) = &step.statement {
            session.statements.send(statement.clone()).context("the session has ended")?;
        }
        let given = match step.answer {
            Answer::Waits => self.wait_or_answer(step.session, before)?,
            _ => self.answer(step.session, PATIENCE)?.unwrap_or(Answer::Waits),
        };
        if !step.answer.admits(&given) {
            bail!(
                "line {}: {} {}: {given}, and not {}",
                step.line,
                step.session,
                step.statement.as_deref().unwrap_or("... (the statement that waited)"),
                step.answer
            );
        }
        Ok(())
    }

    /// Until the session's statement waits for a lock, or ends.
    fn wait_or_answer(&mut self, session: char, before: u64) -> Result<Answer> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(answer) = self.answer(session, POLL)? {
                return Ok(answer);
            }
            if self.waits_begun()? > before {
                return Ok(Answer::Waits);
            }
        }
        bail!("session {session} neither answers nor waits for a lock of the engine")
    }

    fn answer(&self, session: char, patience: Duration) -> Result<Option<Answer>> {
        match self.sessions[&session].answers.recv_timeout(patience) {
            Ok(answer) => Ok(Some(answer?)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("session {session} has ended"),
        }
    }

    fn waits_begun(&mut self) -> Result<u64> {
        let name = match self.kind {
            Kind::Innodb => "Innodb_row_lock_waits",
            Kind::Strata => "Strata_lock_waits",
            Kind::Rocksdb => bail!("there are no scenarios for RocksDB"),
        };
        let row: Option<(String, u64)> = self.control.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        Ok(row.with_context(|| format!("the server has no status {name}"))?.1)
    }
}

/// A session with its thread.
struct Session {
    id: u32,
    statements: Sender<String>,
    answers: Receiver<Result<Answer>>,
    thread: thread::JoinHandle<()>,
}

impl Session {
    fn open(instance: &Instance, level: Isolation) -> Result<Session> {
        let mut conn = instance.connect(Some(DATABASE))?;
        conn.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", level.name().replace('-', " ")))?;
        let id = conn.connection_id();
        let (statements, todo) = channel::<String>();
        let (done, answers) = channel();
        let thread = thread::spawn(move || {
            for statement in todo {
                if done.send(run(&mut conn, &statement)).is_err() {
                    return;
                }
            }
        });
        Ok(Session { id, statements, answers, thread })
    }

    fn close(self) {
        drop(self.statements);
        drop(self.answers);
        let _ = self.thread.join();
    }
}

fn run(conn: &mut Conn, statement: &str) -> Result<Answer> {
    let mut result = match conn.query_iter(statement) {
        Ok(result) => result,
        Err(mysql::Error::MySqlError(error)) => return Ok(Answer::Error(error.code)),
        Err(error) => return Err(error.into()),
    };
    if result.columns().as_ref().is_empty() {
        return Ok(Answer::Changed(result.affected_rows()));
    }
    let mut rows = std::collections::BTreeSet::new();
    for row in result.by_ref() {
        let row = match row {
            Ok(row) => row,
            Err(mysql::Error::MySqlError(error)) => return Ok(Answer::Error(error.code)),
            Err(error) => return Err(error.into()),
        };
        rows.insert(row.unwrap().iter().map(word).collect::<Vec<_>>().join(","));
    }
    Ok(Answer::Rows(rows))
}

fn word(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => other.as_sql(true),
    }
}
