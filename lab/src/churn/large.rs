//! Transactions over many tables, most of them larger than a write buffer: an engine has written a part of such a one to
//! files, of which small tables share some, when it is killed in the middle.
//!
//! Each row says which operation wrote it. An operation is in all tables, with as many rows as it has, or in none.

use super::{Actor, Flow, PREFIX, Session};
use anyhow::Result;
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

const TABLES: u32 = 24;
/// Rows per table of a large operation, and bytes of a row: eleven megabytes in all, where a write buffer has eight.
const ROWS: u64 = 120;
const BYTES: u32 = 3900;
/// What is undone before the end has this for its operation.
const UNDONE: u64 = 0;
/// Operations that are kept.
const KEPT: usize = 3;

/// The session.
pub struct Large {
    engine: String,
    rng: SmallRng,
    next: u64,
    /// Rows per table of each operation that is there.
    there: BTreeMap<u64, u64>,
    open: Option<Open>,
}

#[derive(Clone, Copy)]
enum Open {
    Insert { operation: u64, rows: u64 },
    Delete { operation: u64 },
}

impl Open {
    /// What is there once it is done.
    fn apply(self, there: &mut BTreeMap<u64, u64>) {
        match self {
            Open::Insert { operation, rows } => drop(there.insert(operation, rows)),
            Open::Delete { operation } => drop(there.remove(&operation)),
        }
    }
}

impl Large {
    pub fn new(engine: &str, seed: u64) -> Large {
        let rng = SmallRng::seed_from_u64(seed.wrapping_mul(193));
        Large { engine: engine.into(), rng, next: 1, there: BTreeMap::new(), open: None }
    }

    fn insert(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let operation = self.next;
        self.next += 1;
        let rows = if self.rng.random_range(0..3) == 0 { 2 } else { ROWS };
        let put = |table: u32, operation: u64, from: u64, rows: u64| {
            format!(
                "INSERT INTO l{table} SELECT {from} + seq, {operation}, REPEAT(MD5(seq * 7 + {operation}), {}) FROM seq_1_to_{rows}",
                BYTES / 32
            )
        };
        let mut statements = vec!["BEGIN".to_owned()];
        let half = self.rng.random_range(1..TABLES);
        for table in 1..=TABLES {
            statements.push(put(table, operation, operation * 1000, rows));
            if table == half {
                statements.push("SAVEPOINT here".into());
                statements.extend((1..=half.min(9)).map(|table| put(table, UNDONE, operation * 1000 + 500, rows)));
                statements.push("ROLLBACK TO here".into());
            }
        }
        for statement in &statements {
            if session.must(statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        if self.rng.random_range(0..5) == 0 {
            return session.must("ROLLBACK");
        }
        self.commit(session, Open::Insert { operation, rows })
    }

    fn commit(&mut self, session: &mut Session<'_>, open: Open) -> Result<Flow> {
        self.open = Some(open);
        let flow = session.must("COMMIT")?;
        if flow == Flow::Goes {
            self.open = None;
            open.apply(&mut self.there);
        }
        Ok(flow)
    }

    /// Takes the oldest operation away.
    fn delete(&mut self, session: &mut Session<'_>, operation: u64) -> Result<Flow> {
        let deletes = (1..=TABLES).map(|table| format!("DELETE FROM l{table} WHERE n = {operation}"));
        for statement in std::iter::once("BEGIN".to_owned()).chain(deletes) {
            if session.must(&statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        self.commit(session, Open::Delete { operation })
    }
}

impl Actor for Large {
    fn database(&self) -> String {
        format!("{PREFIX}large")
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        for table in 1..=TABLES {
            let made = format!(
                "CREATE TABLE IF NOT EXISTS l{table} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, v VARCHAR(4000) NOT NULL,
                 KEY n (n), KEY v (v(20))) ENGINE={}",
                self.engine
            );
            if session.must(&made)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        Ok(Flow::Goes)
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        match self.there.keys().next().copied() {
            Some(oldest) if self.there.len() > KEPT => self.delete(session, oldest),
            _ => self.insert(session),
        }
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let mut decided = None;
        for table in 1..=TABLES {
            let query = format!("SELECT n, COUNT(*) FROM {}.l{table} GROUP BY n", self.database());
            let found: BTreeMap<u64, u64> = match conn.query(&query) {
                // Ended before it was made.
                Err(mysql::Error::MySqlError(error)) if error.code == 1146 && self.next == 1 => continue,
                rows => rows?.into_iter().collect(),
            };
            // What is in flight is in all tables what it is in the first.
            let open = self.open;
            let done = *decided.get_or_insert_with(|| match open {
                Some(Open::Insert { operation, .. }) => found.contains_key(&operation),
                Some(Open::Delete { operation }) => !found.contains_key(&operation),
                None => false,
            });
            let mut expected = self.there.clone();
            if let Some(open) = open.filter(|_| done) {
                open.apply(&mut expected);
            }
            if found != expected {
                wrong.push(format!("l{table} has {found:?} (rows by operation), not {expected:?}"));
            }
        }
        if let Some(open) = self.open.take().filter(|_| decided == Some(true)) {
            open.apply(&mut self.there);
        }
        Ok(wrong)
    }
}
