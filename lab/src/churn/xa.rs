//! XA transactions that stay prepared over kills, and DDL on their tables, which must be refused, and on others, which must
//! not. Each writes to three tables, one with partitions; some are larger than a write buffer.
//!
//! All of it goes past the binary log: the server itself is not safe against a crash in an XA statement with it.

use super::{Actor, Answer, Flow, PREFIX, Session};
use anyhow::{Result, bail};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Transactions that are prepared at once.
const MOST: usize = 4;
/// Rows that are changed; those added come behind them.
const ROWS: u64 = 50;
/// Rows of a large one; with their padding they take more than a write buffer.
const LARGE: u64 = 45_000;
const PARTITIONS: u64 = 3;
const UNKNOWN_ID: u16 = 1397;
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State {
    prepared: BTreeSet<u64>,
    committed: BTreeSet<u64>,
}

/// The one session.
pub struct Xa {
    engine: String,
    rng: SmallRng,
    next: u64,
    state: State,
    open: Option<State>,
    filled: bool,
}

impl Xa {
    pub fn new(engine: &str, seed: u64) -> Xa {
        let rng = SmallRng::seed_from_u64(seed.wrapping_mul(211));
        Xa { engine: engine.into(), rng, next: 1, state: State::default(), open: None, filled: false }
    }

    /// As others see it afterwards.
    fn change(&mut self, session: &mut Session<'_>, statement: &str, after: State) -> Result<Flow> {
        session.change(statement, &mut self.state, &mut self.open, after)
    }

    fn prepare(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let number = self.next;
        self.next += 1;
        // Its row is locked.
        if self.state.prepared.iter().any(|held| held % ROWS == number % ROWS) {
            return Ok(Flow::Goes);
        }
        let id = id(number);
        for statement in [
            format!("XA START '{id}'"),
            format!("UPDATE pot SET n = n + {number} WHERE id = {}", number % ROWS),
            format!("INSERT INTO pot VALUES ({}, {number})", ROWS + number),
            // One in each partition.
            format!("INSERT INTO cut SELECT {number} * {PARTITIONS} + seq, {number} FROM seq_1_to_{PARTITIONS}"),
            format!("INSERT INTO bulk SELECT {number}, seq, REPEAT('x', 200) FROM seq_1_to_{}", rows_of(number)),
            format!("XA END '{id}'"),
        ] {
            if session.must(&statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        let mut after = self.state.clone();
        after.prepared.insert(number);
        match self.change(session, &format!("XA PREPARE '{id}'"), after)? {
            // Nobody but the engine knows of it now.
            Flow::Goes => session.reconnect(),
            Flow::Lost => Ok(Flow::Lost),
        }
    }

    fn end(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let Some(&number) = self.state.prepared.first() else { return Ok(Flow::Goes) };
        let mut after = self.state.clone();
        after.prepared.remove(&number);
        let commits = number % 2 == 0;
        if commits {
            after.committed.insert(number);
        }
        let statement = format!("XA {} '{}'", if commits { "COMMIT" } else { "ROLLBACK" }, id(number));
        self.open = Some(after);
        let began = Instant::now();
        loop {
            match session.run(&statement) {
                Answer::Done(()) => break,
                Answer::Lost => return Ok(Flow::Lost),
                // The session that prepared it may hold it for a moment longer.
                Answer::Refused(UNKNOWN_ID, _) if began.elapsed() < PATIENCE => sleep(Duration::from_millis(2)),
                Answer::Refused(code, text) => bail!("{code} {text}: {statement}"),
            }
        }
        self.state = self.open.take().unwrap_or_default();
        Ok(Flow::Goes)
    }

    /// A table has exactly the rows of the committed transactions, whose numbers are in a column.
    fn compare_rows(
        &self,
        conn: &mut Conn,
        table: &str,
        column: &str,
        found: &State,
        rows: fn(u64) -> u64,
    ) -> Result<Option<String>> {
        let query = format!("SELECT {column}, COUNT(*) FROM {}.{table} GROUP BY {column}", self.database());
        let has: BTreeMap<u64, u64> = conn.query::<(u64, u64), _>(query)?.into_iter().collect();
        let should: BTreeMap<u64, u64> = found.committed.iter().map(|&number| (number, rows(number))).collect();
        Ok((has != should).then(|| format!("{table} has {has:?}, and should have {should:?}")))
    }

    /// A definition that prepared writes hold stays; others change.
    fn define(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        // DROP TABLE of a partitioned table is not among them: it is done.
        let held = [
            "TRUNCATE TABLE pot",
            "DROP TABLE pot",
            "RENAME TABLE pot TO pan",
            "ALTER TABLE pot FORCE",
            "CREATE OR REPLACE TABLE bulk (id INT)",
            "RENAME TABLE spare TO bare, cut TO part",
            "TRUNCATE TABLE cut",
            "ALTER TABLE cut TRUNCATE PARTITION p0, p1",
            "ALTER TABLE cut EXCHANGE PARTITION p1 WITH TABLE spare",
            "ALTER TABLE cut COALESCE PARTITION 1",
            "ALTER TABLE cut REMOVE PARTITIONING",
        ];
        if !self.state.prepared.is_empty() && self.rng.random_range(0..3) == 0 {
            let statement = held[self.rng.random_range(0..held.len())];
            // Nobody ends the transactions meanwhile.
            let statement = format!("SET STATEMENT innodb_lock_wait_timeout = 0 FOR {statement}");
            return match session.run(&statement) {
                Answer::Refused(1205 | 1025, _) => Ok(Flow::Goes),
                Answer::Lost => Ok(Flow::Lost),
                answer => bail!("{answer:?} to {statement} beside prepared transactions {:?}", self.state.prepared),
            };
        }
        for statement in [
            format!("CREATE OR REPLACE TABLE other (id INT PRIMARY KEY, n INT) ENGINE={}", self.engine),
            "INSERT INTO other VALUES (1, 1), (2, 2)".into(),
            "ALTER TABLE other ADD KEY (n), ALGORITHM=COPY".into(),
            "TRUNCATE TABLE other".into(),
            "DROP TABLE other".into(),
        ] {
            if session.must(&statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        Ok(Flow::Goes)
    }
}

impl Actor for Xa {
    fn database(&self) -> String {
        format!("{PREFIX}xa")
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        if self.filled {
            return Ok(Flow::Goes);
        }
        let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, 0)")).collect();
        for statement in [
            format!("CREATE OR REPLACE TABLE pot (id BIGINT PRIMARY KEY, n BIGINT, KEY kn (n)) ENGINE={}", self.engine),
            format!("INSERT INTO pot VALUES {}", rows.join(", ")),
            format!(
                "CREATE OR REPLACE TABLE cut (id BIGINT PRIMARY KEY, n BIGINT, KEY kn (n)) ENGINE={} PARTITION BY HASH (id) \
                 PARTITIONS {PARTITIONS}",
                self.engine
            ),
            format!(
                "CREATE OR REPLACE TABLE spare (id BIGINT PRIMARY KEY, n BIGINT, KEY kn (n)) ENGINE={}",
                self.engine
            ),
            format!(
                "CREATE OR REPLACE TABLE bulk (id BIGINT, r BIGINT, pad VARCHAR(200), PRIMARY KEY (id, r)) ENGINE={}",
                self.engine
            ),
        ] {
            if session.must(&statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        self.filled = true;
        Ok(Flow::Goes)
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        match self.rng.random_range(0..10) {
            0..2 => self.define(session),
            2..6 if self.state.prepared.len() < MOST => self.prepare(session),
            _ => self.end(session),
        }
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        if !self.filled {
            return Ok(Vec::new());
        }
        let listed: Vec<(i64, i64, i64, String)> = conn.query("XA RECOVER")?;
        let prepared =
            listed.iter().filter_map(|row| row.3.strip_prefix("churn ").and_then(|n| n.parse().ok())).collect();
        let rows: Vec<(u64, u64)> = conn.query(format!("SELECT id, n FROM {}.pot", self.database()))?;
        let committed: BTreeSet<u64> = rows.iter().filter(|row| row.0 > ROWS).map(|row| row.0 - ROWS).collect();
        let found = State { prepared, committed };
        let open = self.open.take();
        let mut wrong = Vec::new();
        if found != self.state && Some(&found) != open.as_ref() {
            wrong.push(format!("found {found:?}, and should be {:?} or {open:?}", self.state));
        }
        for (row, n) in rows.iter().filter(|row| row.0 < ROWS) {
            let sum: u64 = found.committed.iter().filter(|number| *number % ROWS == *row).sum();
            if sum != *n {
                wrong.push(format!("row {row} has {n}, its XA transactions make {sum}"));
            }
        }
        wrong.extend(self.compare_rows(conn, "cut", "n", &found, |_| PARTITIONS)?);
        wrong.extend(self.compare_rows(conn, "bulk", "id", &found, rows_of)?);
        self.state = found;
        Ok(wrong)
    }
}

/// Rows of a transaction in `bulk`.
fn rows_of(number: u64) -> u64 {
    if number % 20 < 2 { LARGE } else { 5 }
}

fn id(number: u64) -> String {
    format!("churn {number}")
}
