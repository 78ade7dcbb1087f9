//! What a snapshot shows of a table that was made anew since it was taken.
//!
//! InnoDB answers such a read with error 1412. Strata may, too, or it gives rows; then they must be those of the snapshot.
//! They are asked of copies that are taken with the snapshot: one database of plain tables for each session that reads. ALTER and
//! RENAME follow in the copies, as the snapshot's rows are read with the columns that the table has by then; what changes
//! rows does not. Copies have no keys, so hints of indexes are left out; no answer depends on them.
//!
//! Copies are made only for snapshots that live while a table is changed.
//!
//! Rejected: asking a connection of InnoDB with a snapshot of its own. It gets the same error.

use super::Step;
use super::answer::Answer;
use super::play::{DATABASES, answer};
use crate::server::Instance;
use anyhow::Result;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeSet;

/// The copies of all snapshots.
pub struct Shadows {
    conn: Conn,
    /// Sessions of which there are copies.
    sessions: BTreeSet<usize>,
}

impl Shadows {
    /// No copies yet.
    pub fn new(instance: &Instance) -> Result<Shadows> {
        let mut conn = instance.connect(None)?;
        // Reads for copies take no locks then, and whatever is in a column is copied.
        conn.query_drop(
            "SET NAMES utf8mb4, sql_mode='', timestamp=1700000000, default_storage_engine=InnoDB, \
             tx_isolation='READ-COMMITTED'",
        )?;
        Ok(Shadows { conn, sessions: BTreeSet::new() })
    }

    /// `program` begins with the statement by which the session has taken a snapshot.
    pub fn begin(&mut self, session: usize, program: &[Step]) -> Result<()> {
        self.sessions.remove(&session);
        let mut meanwhile = program[1..].iter().take_while(|step| step.session != session || step.sql != "COMMIT");
        if !meanwhile.any(|step| alters(&step.sql) || step.sql.starts_with("TRUNCATE TABLE")) {
            return Ok(());
        }
        let database = name(session);
        self.conn.query_drop(format!("DROP DATABASE IF EXISTS {database}"))?;
        self.conn.query_drop(format!("CREATE DATABASE {database}"))?;
        let source = DATABASES[0].0;
        let tables: Vec<String> = self.conn.query(format!("SHOW TABLES FROM {source}"))?;
        for table in tables {
            self.conn.query_drop(format!("CREATE TABLE {database}.{table} AS SELECT * FROM {source}.{table}"))?;
        }
        self.sessions.insert(session);
        Ok(())
    }

    /// A statement of somebody who changes tables has succeeded.
    pub fn follow(&mut self, sql: &str) -> Result<()> {
        if alters(sql) {
            for session in self.sessions.clone() {
                self.conn.query_drop(format!("USE {}", name(session)))?;
                // Keys and partitions are not there, and need not be.
                drop(self.conn.query_drop(sql));
            }
        }
        Ok(())
    }

    /// The answer from the copies.
    pub fn rows(&mut self, step: &Step) -> Result<Answer> {
        if !self.sessions.contains(&step.session) {
            return Ok(Answer::Lost("there is no copy of what the snapshot shows".into()));
        }
        self.conn.query_drop(format!("USE {}", name(step.session)))?;
        Ok(answer(&mut self.conn, &without_hints(&step.sql), step))
    }
}

fn name(session: usize) -> String {
    format!("differ_snapshot_{session}")
}

fn alters(sql: &str) -> bool {
    sql.starts_with("ALTER TABLE") || sql.starts_with("RENAME TABLE")
}

/// Leaves out ` FORCE INDEX (name)` and ` IGNORE INDEX (name)`.
fn without_hints(sql: &str) -> String {
    let mut text = sql.to_owned();
    for word in [" FORCE INDEX (", " IGNORE INDEX ("] {
        while let Some(from) = text.find(word) {
            let Some(length) = text[from..].find(')') else { break };
            text.replace_range(from..=from + length, "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_hints;

    #[test]
    fn hints_are_left_out() {
        let sql = "SELECT MAX(c) FROM t FORCE INDEX (k1) WHERE c = (SELECT 1 FROM t IGNORE INDEX (k2))";
        assert_eq!(without_hints(sql), "SELECT MAX(c) FROM t WHERE c = (SELECT 1 FROM t)");
    }
}
