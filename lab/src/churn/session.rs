//! One session of an actor, and the statements that it has run.

use super::Flow;
use crate::drive::is_lost;
use crate::server::Instance;
use anyhow::{Result, bail};
use mysql::Conn;
use mysql::prelude::{FromRow, Queryable};
use std::collections::VecDeque;

/// Statements that are kept for the message of a violation.
const KEPT: usize = 40;

/// The last statements with their answers, over all crashes.
#[derive(Default)]
pub struct History(VecDeque<String>);

impl History {
    /// Adds a line.
    pub fn note(&mut self, line: impl Into<String>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(line.into());
    }

    /// All lines, indented.
    pub fn text(&self) -> String {
        self.0.iter().map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
    }
}

/// What became of a statement.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<T = ()> {
    /// Acknowledged.
    Done(T),
    /// Refused by a living server.
    Refused(u16, String),
    /// Nobody knows: the server or the session went away.
    Lost,
}

/// A session that notes what it runs.
pub struct Session<'a> {
    instance: &'a Instance,
    conn: Conn,
    history: &'a mut History,
    /// What a new connection needs.
    setup: Vec<String>,
    logged: bool,
}

impl<'a> Session<'a> {
    /// Connects. `None` when no server answers.
    pub fn open(instance: &'a Instance, logged: bool, history: &'a mut History) -> Option<Session<'a>> {
        let conn = instance.connect(None).ok()?;
        Some(Session { instance, conn, history, setup: Vec::new(), logged })
    }

    /// Whether statements are left out that a killed server may have done without logging them: a replica would differ.
    pub fn logged(&self) -> bool {
        self.logged
    }

    /// Statements for this connection and for each that follows.
    pub fn set_up(&mut self, statements: Vec<String>) -> Result<Flow> {
        self.setup = statements;
        self.begin()
    }

    /// Connects anew, and leaves what the connection had to the server.
    pub fn reconnect(&mut self) -> Result<Flow> {
        let Ok(conn) = self.instance.connect(None) else { return Ok(Flow::Lost) };
        self.conn = conn;
        self.history.note("-- a new connection --");
        self.begin()
    }

    fn begin(&mut self) -> Result<Flow> {
        for statement in self.setup.clone() {
            if self.must(&statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        Ok(Flow::Goes)
    }

    /// Runs a statement without a result.
    pub fn run(&mut self, statement: &str) -> Answer {
        let result = self.conn.query_drop(statement);
        self.note(statement, result)
    }

    /// The first row of a query.
    pub fn first<T: FromRow>(&mut self, query: &str) -> Answer<Option<T>> {
        let result = self.conn.query_first(query);
        self.note(query, result)
    }

    /// All rows of a query.
    pub fn rows<T: FromRow>(&mut self, query: &str) -> Answer<Vec<T>> {
        let result = self.conn.query(query);
        self.note(query, result)
    }

    /// A statement that a living server does not refuse.
    pub fn must(&mut self, statement: &str) -> Result<Flow> {
        match self.run(statement) {
            Answer::Done(()) => Ok(Flow::Goes),
            Answer::Lost => Ok(Flow::Lost),
            Answer::Refused(code, text) => bail!("{code} {text}: {statement}"),
        }
    }

    /// The same of a statement that brings what the actor knows to `after`; as long as it is not answered, that is `open`.
    pub fn change<S: Default>(
        &mut self,
        statement: &str,
        known: &mut S,
        open: &mut Option<S>,
        after: S,
    ) -> Result<Flow> {
        *open = Some(after);
        let flow = self.must(statement)?;
        if flow == Flow::Goes {
            *known = open.take().unwrap_or_default();
        }
        Ok(flow)
    }

    fn note<T>(&mut self, statement: &str, result: mysql::Result<T>) -> Answer<T> {
        let (said, answer) = match result {
            Ok(value) => ("ok".to_string(), Answer::Done(value)),
            Err(error) if is_lost(&error) => (format!("in flight ({error})"), Answer::Lost),
            Err(mysql::Error::MySqlError(error)) => {
                (format!("error {} {}", error.code, error.message), Answer::Refused(error.code, error.message))
            }
            Err(error) => (format!("in flight ({error})"), Answer::Lost),
        };
        let short: String = statement.chars().take(160).collect();
        self.history.note(format!("{short}  -- {said}"));
        answer
    }
}
