//! Temporary tables: filled, emptied, altered and dropped inside and outside transactions that also write a lasting table.
//!
//! After a restart none is left; the lasting table has the rows of acknowledged transactions.

use super::{Actor, Answer, Flow, PREFIX, Session};
use anyhow::{Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;

/// The one session.
pub struct Scratch {
    engine: String,
    rng: SmallRng,
    next: u64,
    /// Rows of the temporary table, when there is one.
    rows: Option<u64>,
    kept: BTreeSet<u64>,
    open: Option<u64>,
}

impl Scratch {
    pub fn new(engine: &str, seed: u64) -> Scratch {
        let rng = SmallRng::seed_from_u64(seed.wrapping_mul(191));
        Scratch { engine: engine.into(), rng, next: 1, rows: None, kept: BTreeSet::new(), open: None }
    }

    fn fill(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let (first, count) = (self.next, self.rng.random_range(1..400));
        self.next += count;
        let last = first + count - 1;
        self.rows = self.rows.map(|rows| rows + count);
        session.must(&format!("INSERT INTO tmp SELECT seq, seq % 10, REPEAT('x', 300) FROM seq_{first}_to_{last}"))
    }

    /// A transaction over both tables, in which the temporary one may be dropped.
    fn both(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let number = self.next;
        let before = self.rows;
        for statement in ["BEGIN".to_string(), format!("INSERT INTO kept VALUES ({number}, 1)")] {
            if session.must(&statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        if self.fill(session)? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        let dropped = self.rng.random_range(0..3) == 0;
        if dropped && session.must("DROP TEMPORARY TABLE tmp")? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        let commits = self.rng.random_range(0..3) > 0;
        self.open = commits.then_some(number);
        if session.must(if commits { "COMMIT" } else { "ROLLBACK" })? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        self.open = None;
        if commits {
            self.kept.insert(number);
        } else {
            self.rows = before;
        }
        if dropped {
            self.rows = None;
        }
        Ok(Flow::Goes)
    }

    fn count(&self, session: &mut Session<'_>) -> Result<Flow> {
        for index in ["PRIMARY", "ka"] {
            match session.first::<u64>(&format!("SELECT COUNT(*) FROM tmp FORCE INDEX ({index})")) {
                Answer::Done(found) => ensure!(found == self.rows, "tmp has {found:?} rows, not {:?}", self.rows),
                Answer::Lost => return Ok(Flow::Lost),
                Answer::Refused(code, text) => anyhow::bail!("{code} {text}"),
            }
        }
        Ok(Flow::Goes)
    }
}

impl Actor for Scratch {
    fn database(&self) -> String {
        format!("{PREFIX}scratch")
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        self.rows = None;
        // A replica that is ended would lose those of the statements.
        if session.must("SET SESSION binlog_format = ROW")? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        session.must(&format!(
            "CREATE TABLE IF NOT EXISTS kept (id BIGINT PRIMARY KEY, n INT, KEY (n)) ENGINE={}",
            self.engine
        ))
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        if self.rows.is_none() {
            self.rows = Some(0);
            return session.must(&format!(
                "CREATE TEMPORARY TABLE tmp (id BIGINT PRIMARY KEY, a INT, b VARCHAR(300), KEY ka (a)) ENGINE={}",
                self.engine
            ));
        }
        match self.rng.random_range(0..12) {
            0 => {
                self.rows = None;
                session.must("DROP TEMPORARY TABLE tmp")
            }
            1 => {
                self.rows = Some(0);
                session.must("TRUNCATE TABLE tmp")
            }
            2 => session.must("ALTER TABLE tmp FORCE"),
            3 | 4 => self.count(session),
            5..8 => self.fill(session),
            _ => self.both(session),
        }
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        self.rows = None;
        let database = self.database();
        let tables: Vec<String> = conn.query(format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}' AND table_name <> 'kept'"
        ))?;
        wrong.extend(tables.into_iter().map(|table| format!("{table} is left over")));
        let found: BTreeSet<u64> = match conn.query::<u64, _>(format!("SELECT id FROM {database}.kept")) {
            Err(mysql::Error::MySqlError(error)) if error.code == 1146 && self.kept.is_empty() => BTreeSet::new(),
            rows => rows?.into_iter().collect(),
        };
        if let Some(open) = self.open.take().filter(|open| found.contains(open)) {
            self.kept.insert(open);
        }
        for row in found.symmetric_difference(&self.kept) {
            wrong.push(format!("row {row} is there: {}, and should not be so", found.contains(row)));
        }
        Ok(wrong)
    }
}
