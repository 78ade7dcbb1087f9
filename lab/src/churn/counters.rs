//! Auto-increment: two sessions insert into one table, delete the newest rows, copy the table.
//!
//! A value that an acknowledged transaction has used is never given again, not even after its row was deleted and the
//! server ended. Each row says who wrote it and in which operation, so a halved one shows.
//!
//! Nobody inserts while the table is copied: the server asks for the counter before it locks the table, so values that are
//! used and deleted in between come again, with any engine.

use super::{Actor, Answer, Flow, PREFIX, Session};
use anyhow::{Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, RwLock};

/// One session.
pub struct Counters {
    number: u32,
    engine: String,
    rng: SmallRng,
    /// Count of the operations.
    next: u64,
    /// The rows of this session, by operation.
    rows: BTreeMap<u64, BTreeSet<u64>>,
    open: Option<Open>,
    /// All values that were used, by both.
    used: Arc<Mutex<BTreeSet<u64>>>,
    /// Written by who copies the table.
    copies: Arc<RwLock<()>>,
}

#[derive(Clone, Copy)]
enum Open {
    Insert { operation: u64, rows: usize },
    Delete { operation: u64 },
}

/// Two sessions with a table in common.
pub fn pair(engine: &str, seed: u64) -> [Counters; 2] {
    let used = Arc::new(Mutex::new(BTreeSet::new()));
    let copies = Arc::new(RwLock::new(()));
    [1, 2].map(|number| Counters {
        number,
        engine: engine.into(),
        rng: SmallRng::seed_from_u64(seed.wrapping_mul(171) ^ u64::from(number)),
        next: 1,
        rows: BTreeMap::new(),
        open: None,
        used: used.clone(),
        copies: copies.clone(),
    })
}

impl Counters {
    /// Notes values as used. None was used before.
    fn uses(&self, ids: &BTreeSet<u64>) -> Result<()> {
        let mut used = self.used.lock().expect("nobody panics");
        let again: Vec<&u64> = ids.iter().filter(|id| used.contains(id)).collect();
        ensure!(again.is_empty(), "auto-increment values {again:?} were given a second time");
        used.extend(ids);
        Ok(())
    }

    fn insert(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let operation = self.next;
        self.next += 1;
        let rows = [1, 1, 1, 5, 40][self.rng.random_range(0..5)];
        let ends = match self.rng.random_range(0..4) {
            0 => Some("COMMIT"),
            1 => Some("ROLLBACK"),
            _ => None,
        };
        let values = vec![format!("({}, {operation})", self.number); rows];
        let statement = format!("INSERT INTO c (w, n) VALUES {}", values.join(", "));
        let open = Some(Open::Insert { operation, rows });
        if let Some(end) = ends {
            if session.must("BEGIN")? == Flow::Lost || session.must(&statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
            self.open = open.filter(|_| end == "COMMIT");
        } else {
            self.open = open;
        }
        if session.must(ends.unwrap_or(&statement))? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        self.open = None;
        if ends == Some("ROLLBACK") {
            return Ok(Flow::Goes);
        }
        // The rows are acknowledged from here on, and only this session takes them away.
        let query = format!("SELECT id FROM c WHERE w = {} AND n = {operation}", self.number);
        let ids: BTreeSet<u64> = match session.rows(&query) {
            Answer::Done(ids) => ids.into_iter().collect(),
            Answer::Lost => {
                self.rows.insert(operation, BTreeSet::new());
                return Ok(Flow::Lost);
            }
            Answer::Refused(code, text) => anyhow::bail!("{code} {text}: {query}"),
        };
        ensure!(ids.len() == rows, "operation {operation} has {} rows of {rows}", ids.len());
        self.uses(&ids)?;
        self.rows.insert(operation, ids);
        Ok(Flow::Goes)
    }

    fn delete(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let Some((&operation, _)) = self.rows.iter().next_back() else { return Ok(Flow::Goes) };
        self.open = Some(Open::Delete { operation });
        let flow = session.must(&format!("DELETE FROM c WHERE w = {} AND n = {operation}", self.number))?;
        if flow == Flow::Goes {
            self.open = None;
            self.rows.remove(&operation);
        }
        Ok(flow)
    }
}

impl Actor for Counters {
    fn database(&self) -> String {
        format!("{PREFIX}counters")
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        session.must(&format!(
            "CREATE TABLE IF NOT EXISTS c (id BIGINT AUTO_INCREMENT PRIMARY KEY, w INT NOT NULL, n BIGINT NOT NULL,
             KEY wn (w, n)) ENGINE={}",
            self.engine
        ))
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let copies = self.copies.clone();
        let which = self.rng.random_range(0..100);
        let _alone = (which < 2).then(|| copies.write().expect("nobody panics"));
        let _beside = (which >= 2).then(|| copies.read().expect("nobody panics"));
        match which {
            0 => session.must("ALTER TABLE c FORCE"),
            1 => session.must("ALTER TABLE c DROP KEY wn, ADD KEY wn (w, n), ALGORITHM=COPY"),
            2 => session.must("RENAME TABLE c TO d, d TO c"),
            3..25 => self.delete(session),
            _ => self.insert(session),
        }
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let query = format!("SELECT n, id FROM {}.c WHERE w = {}", self.database(), self.number);
        let mut found: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let rows: Vec<(u64, u64)> = match conn.query(&query) {
            // Ended before it was made.
            Err(mysql::Error::MySqlError(error)) if error.code == 1146 && self.next == 1 => Vec::new(),
            rows => rows?,
        };
        for (operation, id) in rows {
            found.entry(operation).or_default().insert(id);
        }
        match self.open.take() {
            Some(Open::Insert { operation, rows }) => {
                if let Some(ids) = found.get(&operation) {
                    if ids.len() != rows {
                        wrong.push(format!("operation {operation} has {} rows of {rows}", ids.len()));
                    }
                    if let Err(error) = self.uses(ids) {
                        wrong.push(format!("{error}"));
                    }
                    self.rows.insert(operation, ids.clone());
                }
            }
            Some(Open::Delete { operation }) if !found.contains_key(&operation) => {
                self.rows.remove(&operation);
            }
            _ => {}
        }
        // Acknowledged, but the server ended before the values were asked for.
        let unknown: Vec<u64> = self.rows.iter().filter(|row| row.1.is_empty()).map(|row| *row.0).collect();
        for operation in unknown {
            if let Some(ids) = found.get(&operation) {
                if let Err(error) = self.uses(ids) {
                    wrong.push(format!("{error}"));
                }
                self.rows.insert(operation, ids.clone());
            }
        }
        for (operation, ids) in &self.rows {
            if found.get(operation) != Some(ids) {
                wrong.push(format!("operation {operation} has {:?}, not {ids:?}", found.get(operation)));
            }
        }
        for operation in found.keys().filter(|operation| !self.rows.contains_key(operation)) {
            wrong.push(format!("operation {operation} was deleted or never committed, and is there"));
        }
        Ok(wrong)
    }
    fn compare_copy(&self, conn: &mut Conn, _: bool) -> Result<Vec<String>> {
        let next: Option<u64> = conn.query_first(format!(
            "SELECT auto_increment FROM information_schema.tables WHERE table_schema = '{}' AND table_name = 'c'",
            self.database()
        ))?;
        let last = self.used.lock().expect("nobody panics").last().copied().unwrap_or(0);
        Ok(match next {
            Some(next) if next <= last => vec![format!("c goes on with {next}, {last} was used before")],
            _ => Vec::new(),
        })
    }
}
