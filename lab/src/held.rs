//! XA transactions beside the load of [`crate::replica`]: some that stay prepared over kills of both servers and are ended
//! by another session, and a stream of them that are prepared and ended at once.
//!
//! Each changes a row of its own and adds one, so at the end it is known which rows there are, on either side.
//!
//! MariaDB 10.11 is not safe against a crash *while* an XA statement runs or is applied
//! (`docs/develop/crash-matrix.md`): neither binary log and engine nor position and engine change in one step. So
//! nobody is killed then: what is held is prepared on both sides before the first kill, and ended after the last one;
//! the stream runs when nobody is killed any more.

use crate::server::Instance;
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The database of the one table.
pub const DATABASE: &str = "held";
const PATIENCE: Duration = Duration::from_secs(30);
const UNKNOWN_ID: u16 = 1397;
/// Rows that are changed; those added come behind them.
const ROWS: u64 = 20;

/// Makes the table.
pub fn create(instance: &Instance) -> Result<()> {
    let mut conn = instance.fresh_database(DATABASE)?;
    conn.query_drop(format!(
        "CREATE TABLE {DATABASE}.pot (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, KEY (n)) ENGINE={}",
        instance.kind().sql()
    ))?;
    let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, 0)")).collect();
    conn.query_drop(format!("INSERT INTO {DATABASE}.pot VALUES {}", rows.join(", ")))?;
    Ok(())
}

/// The ids that XA RECOVER lists.
pub fn recovered(conn: &mut Conn) -> mysql::Result<BTreeSet<String>> {
    Ok(conn.query::<(i64, i64, i64, String), _>("XA RECOVER")?.into_iter().map(|row| row.3).collect())
}

/// What is prepared now, and what was committed ever.
#[derive(Default)]
pub struct Held {
    next: u64,
    prepared: Vec<u64>,
    committed: BTreeSet<u64>,
    /// How many were ended, ever.
    pub ended: u64,
}

impl Held {
    /// The ids that are prepared now.
    pub fn ids(&self) -> BTreeSet<String> {
        self.prepared.iter().map(|number| id(*number)).collect()
    }

    /// Prepares as many, and leaves them without a session.
    pub fn prepare(&mut self, instance: &Instance, count: u64) -> Result<()> {
        for _ in 0..count {
            let number = self.draw();
            prepare(&mut instance.connect(Some(DATABASE))?, number).context("preparing a transaction")?;
            self.prepared.push(number);
        }
        Ok(())
    }

    /// Ends what is prepared from a new session: commits every second one, rolls the others back.
    pub fn end(&mut self, instance: &Instance) -> Result<()> {
        let mut conn = instance.connect(Some(DATABASE))?;
        for number in std::mem::take(&mut self.prepared) {
            self.end_one(&mut conn, number)?;
        }
        Ok(())
    }

    /// Prepares and ends transactions until `stop` is set, in one session or in two by turns.
    pub fn stream(&mut self, instance: &Instance, stop: &AtomicBool) -> Result<()> {
        let mut conn = instance.connect(Some(DATABASE))?;
        while !stop.load(Ordering::Relaxed) {
            let number = self.draw();
            // Its row is locked.
            if self.prepared.iter().any(|held| held % ROWS == number % ROWS) {
                continue;
            }
            prepare(&mut conn, number)?;
            if number % 3 == 0 {
                conn = instance.connect(Some(DATABASE))?;
            }
            self.end_one(&mut conn, number)?;
        }
        Ok(())
    }

    /// Compares with the rows there are.
    pub fn verify(&self, conn: &mut Conn, wrong: &mut Vec<String>) -> Result<()> {
        let rows: Vec<(u64, u64)> = conn.query(format!("SELECT id, n FROM {DATABASE}.pot"))?;
        wrong.extend(self.differences(&rows));
        Ok(())
    }

    fn differences(&self, rows: &[(u64, u64)]) -> Vec<String> {
        let mut wrong = Vec::new();
        let found: BTreeSet<u64> = rows.iter().filter(|row| row.0 >= ROWS).map(|row| row.0 - ROWS).collect();
        for number in found.symmetric_difference(&self.committed) {
            let there = found.contains(number);
            wrong.push(format!("the row of XA transaction {number} is there: {there}, and should not be so"));
        }
        for (row, n) in rows.iter().filter(|row| row.0 < ROWS) {
            let sum: u64 = self.committed.iter().filter(|number| *number % ROWS == *row).sum();
            if sum != *n {
                wrong.push(format!("row {row} has {n}, its XA transactions make {sum}"));
            }
        }
        wrong
    }

    fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A session that has gone may hold its transaction for a moment longer.
    fn end_one(&mut self, conn: &mut Conn, number: u64) -> Result<()> {
        let commits = number % 2 == 0;
        let statement = format!("XA {} '{}'", if commits { "COMMIT" } else { "ROLLBACK" }, id(number));
        let began = Instant::now();
        loop {
            match conn.query_drop(&statement) {
                Err(mysql::Error::MySqlError(error)) if error.code == UNKNOWN_ID => {
                    ensure!(began.elapsed() < PATIENCE, "{error}: {statement}");
                    std::thread::sleep(Duration::from_millis(2));
                }
                result => break result.with_context(|| statement.clone())?,
            }
        }
        if commits {
            self.committed.insert(number);
        }
        self.ended += 1;
        Ok(())
    }
}

fn id(number: u64) -> String {
    format!("held {number}")
}

fn prepare(conn: &mut Conn, number: u64) -> mysql::Result<()> {
    let id = id(number);
    conn.query_drop(format!("XA START '{id}'"))?;
    conn.query_drop(format!("UPDATE pot SET n = n + {number} WHERE id = {}", number % ROWS))?;
    conn.query_drop(format!("INSERT INTO pot VALUES ({}, {number})", ROWS + number))?;
    conn.query_drop(format!("XA END '{id}'"))?;
    conn.query_drop(format!("XA PREPARE '{id}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_must_be_those_of_committed_transactions() {
        let held = Held { committed: BTreeSet::from([2, 22]), ..Held::default() };
        let rows = |sum| [(0, 0), (2, sum), (ROWS + 2, 2), (ROWS + 22, 22)];
        assert_eq!(held.differences(&rows(24)), Vec::<String>::new());
        assert_eq!(held.differences(&rows(2)).len(), 1);
        assert_eq!(held.differences(&rows(24)[..3]).len(), 1);
        let one_more: Vec<_> = rows(24).into_iter().chain([(ROWS + 3, 3)]).collect();
        assert_eq!(held.differences(&one_more).len(), 1);
    }
}
