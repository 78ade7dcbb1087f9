//! Sessions that write rows that expire, and know what must have become of each.

use super::rows::{Change, Row, Rows, apply, may_be};
use super::{DATABASE, now, table_of};
use crate::drive::{DEADLOCK, LOCK_WAIT, is_lost};
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Ids of a writer, and the numbers of its transactions, begin at its number times this.
const PER_WRITER: u64 = 1_000_000_000;
/// How an id of XA begins.
const XA: &str = "ttl ";
const DUPLICATE: u16 = 1062;

/// What a transaction does, one statement each. No row is in two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Add(Vec<(u64, Row)>),
    /// The row gets another moment, earlier or later.
    Prolong(u64, Row),
    Remove(u64),
    /// A new row with the unique value of another one.
    Take {
        of: u64,
        id: u64,
        row: Row,
    },
}

/// One session, over all ends of servers.
pub struct Writer {
    life: u64,
    rng: SmallRng,
    next_row: u64,
    next_transaction: u64,
    /// Rows that it has written and that nobody has deleted; the purge may have.
    pub rows: Rows,
    /// In flight when the server went away: its COMMIT may have been sent.
    open: Option<(u64, Vec<Change>)>,
    pub acknowledged: u64,
    pub added: u64,
    pub gave_way: u64,
    /// Rows whose statement found them or not, which was compared with the second.
    pub judged: u64,
}

impl Writer {
    pub fn new(number: u32, life: u64, seed: u64) -> Writer {
        let first = u64::from(number) * PER_WRITER;
        Writer {
            life,
            rng: SmallRng::seed_from_u64(seed.wrapping_mul(31) ^ u64::from(number)),
            next_row: first,
            next_transaction: first,
            rows: Rows::new(),
            open: None,
            acknowledged: 0,
            added: 0,
            gave_way: 0,
            judged: 0,
        }
    }

    /// Writes until `stop` is set or the server goes away; an error is one that a living server has returned, or an answer that
    /// does not fit what is known.
    pub fn write(&mut self, instance: &Instance, stop: &AtomicBool) -> Result<()> {
        let Ok(mut conn) = instance.connect(Some(DATABASE)) else { return Ok(()) };
        while !stop.load(Ordering::Relaxed) {
            let steps = self.draw(now());
            let is_xa = self.rng.random_range(0..25) == 0;
            self.next_transaction += 1;
            let (number, mut changes) = (self.next_transaction, Vec::new());
            match self.attempt(&mut conn, number, &steps, is_xa, &mut changes) {
                Ok(()) => {
                    self.settle(&changes);
                    self.acknowledged += 1;
                }
                Err(error) => match error.downcast::<mysql::Error>() {
                    Ok(mysql::Error::MySqlError(error)) if [DEADLOCK, LOCK_WAIT].contains(&error.code) => {
                        self.open = None;
                        if roll_back(&mut conn, number, is_xa).is_err() {
                            return Ok(());
                        }
                    }
                    Ok(error) if is_lost(&error) => return Ok(()),
                    Ok(error) => bail!("a writer: {error}"),
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn settle(&mut self, changes: &[Change]) {
        apply(&mut self.rows, changes);
        self.open = None;
    }

    /// What the next transaction does, in the second `now`.
    fn draw(&mut self, now: u64) -> Vec<Step> {
        let mut used = Vec::new();
        (0..self.rng.random_range(1..4)).filter_map(|_| self.step(now, &mut used)).collect()
    }

    fn step(&mut self, now: u64, used: &mut Vec<u64>) -> Option<Step> {
        let kind = self.rng.random_range(0..20);
        if kind < 11 {
            let count = self.rng.random_range(1..20);
            // One statement, one table.
            let first = self.next_id();
            let rows = (0..count).map(|n| {
                if n > 0 {
                    self.next_row += 2;
                }
                let id = first + 2 * n;
                (id, Row { code: id, version: 1, moment: self.moment(now) })
            });
            return Some(Step::Add(rows.collect()));
        }
        let from = self.rng.random_range(0..=self.next_row);
        let (&of, &row) = self.rows.range(from..).next().or_else(|| self.rows.iter().next())?;
        if used.contains(&of) {
            return None;
        }
        used.push(of);
        let moment = self.moment(now);
        Some(match kind {
            11..15 => Step::Prolong(of, Row { moment, version: row.version + 1, ..row }),
            15..17 => Step::Remove(of),
            _ => {
                let mut id = self.next_id();
                if id % 2 != of % 2 {
                    id = self.next_id();
                }
                Step::Take { of, id, row: Row { code: row.code, version: 1, moment } }
            }
        })
    }

    fn next_id(&mut self) -> u64 {
        self.next_row += 1;
        self.next_row
    }

    fn moment(&mut self, now: u64) -> Option<u64> {
        let never = self.rng.random_range(0..20) == 0;
        (!never).then(|| now + self.rng.random_range(0..self.life))
    }

    /// Does it, and notes in `changes` what has come of it.
    fn attempt(
        &mut self,
        conn: &mut Conn,
        number: u64,
        steps: &[Step],
        is_xa: bool,
        changes: &mut Vec<Change>,
    ) -> Result<()> {
        match is_xa {
            true => conn.query_drop(format!("XA START '{XA}{number}'"))?,
            false => conn.query_drop("BEGIN")?,
        }
        conn.query_drop(format!("INSERT INTO journal VALUES ({number})"))?;
        for step in steps {
            self.apply(conn, step, changes)?;
        }
        // From here on the server may have it when it goes away.
        self.open = Some((number, changes.clone()));
        if !is_xa {
            return Ok(conn.query_drop("COMMIT")?);
        }
        conn.query_drop(format!("XA END '{XA}{number}'"))?;
        conn.query_drop(format!("XA PREPARE '{XA}{number}'"))?;
        // Rows that it has written expire meanwhile, and so do those that gave way.
        sleep(Duration::from_millis(self.rng.random_range(0..2000)));
        Ok(conn.query_drop(format!("XA COMMIT '{XA}{number}'"))?)
    }

    fn apply(&mut self, conn: &mut Conn, step: &Step, changes: &mut Vec<Change>) -> Result<()> {
        match step {
            Step::Add(rows) => {
                conn.query_drop(insert(rows))?;
                self.added += rows.len() as u64;
                changes.extend(rows.iter().map(|(id, row)| Change::Put(*id, *row)));
            }
            Step::Prolong(id, row) => {
                let set = format!("version = {}, m = {}", row.version, literal(row.moment));
                if self.finds(conn, *id, &format!("UPDATE {} SET {set} WHERE id = {id}", table_of(*id)))? {
                    changes.push(Change::Put(*id, *row));
                }
            }
            Step::Remove(id) => {
                if self.finds(conn, *id, &format!("DELETE FROM {} WHERE id = {id}", table_of(*id)))? {
                    changes.push(Change::Gone(*id));
                }
            }
            Step::Take { of, id, row } => {
                let asked = now();
                let is_duplicate = match conn.query_drop(insert(&[(*id, *row)])) {
                    Err(mysql::Error::MySqlError(error)) if error.code == DUPLICATE => true,
                    answer => answer.map(|()| false)?,
                };
                self.judge(*of, asked, is_duplicate)?;
                if !is_duplicate {
                    self.gave_way += 1;
                    changes.extend([Change::Gone(*of), Change::Put(*id, *row)]);
                }
            }
        }
        Ok(())
    }

    /// Whether a statement has changed or deleted the row.
    fn finds(&mut self, conn: &mut Conn, id: u64, statement: &str) -> Result<bool> {
        let asked = now();
        conn.query_drop(statement)?;
        let found = conn.affected_rows() > 0;
        self.judge(id, asked, found)?;
        Ok(found)
    }

    /// A row that was there, or not, for a statement that has just been answered.
    fn judge(&mut self, id: u64, asked: u64, found: bool) -> Result<()> {
        let (row, answered) = (self.rows[&id], now());
        self.judged += 1;
        let how = if found { "found" } else { "not found" };
        ensure!(
            may_be(row.end(), asked, answered, found),
            "row {id}, {row:?}, was {how} in the seconds {asked} to {answered}"
        );
        Ok(())
    }

    /// After a restart: what was in flight is there, or prepared, or never was. What is prepared is ended.
    pub fn resolve(&mut self, conn: &mut Conn) -> Result<()> {
        let Some((number, changes)) = self.open.take() else { return Ok(()) };
        let id = format!("{XA}{number}");
        if conn.query::<(i64, i64, i64, String), _>("XA RECOVER")?.iter().any(|row| row.3 == id) {
            let end = if self.rng.random_range(0..3) > 0 { "COMMIT" } else { "ROLLBACK" };
            conn.query_drop(format!("XA {end} '{id}'")).with_context(|| format!("XA {end}"))?;
        }
        let found: Option<u64> = conn.query_first(format!("SELECT number FROM journal WHERE number = {number}"))?;
        if found.is_some() {
            self.settle(&changes);
        }
        Ok(())
    }
}

fn roll_back(conn: &mut Conn, number: u64, is_xa: bool) -> mysql::Result<()> {
    if is_xa {
        // Where it is in its states does not matter.
        let _ = conn.query_drop(format!("XA END '{XA}{number}'"));
        return conn.query_drop(format!("XA ROLLBACK '{XA}{number}'"));
    }
    conn.query_drop("ROLLBACK")
}

fn literal(moment: Option<u64>) -> String {
    moment.map_or("NULL".into(), |moment| format!("FROM_UNIXTIME({moment})"))
}

fn insert(rows: &[(u64, Row)]) -> String {
    let values = rows.iter().map(|(id, row)| {
        let Row { code, version, moment } = *row;
        format!("({id}, {code}, {version}, {}, {}, REPEAT('p', {}))", id % 7, literal(moment), id % 200)
    });
    format!("INSERT INTO {} VALUES {}", table_of(rows[0].0), values.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_of_one_table_and_ids_are_new() {
        let mut writer = Writer::new(2, 3, 1);
        let mut kinds = [0; 4];
        for _ in 0..3000 {
            for step in writer.draw(1000) {
                match step {
                    Step::Add(rows) => {
                        kinds[0] += 1;
                        assert!(rows.iter().all(|(id, _)| table_of(*id) == table_of(rows[0].0)));
                        for (id, row) in rows {
                            assert!(writer.rows.insert(id, row).is_none(), "{id} is there");
                        }
                    }
                    Step::Prolong(id, row) => {
                        kinds[1] += 1;
                        let before = writer.rows.insert(id, row).unwrap();
                        assert_eq!((row.code, row.version), (before.code, before.version + 1));
                    }
                    Step::Remove(id) => {
                        kinds[2] += 1;
                        writer.rows.remove(&id).unwrap();
                    }
                    Step::Take { of, id, row } => {
                        kinds[3] += 1;
                        assert_eq!(table_of(of), table_of(id));
                        assert_eq!(writer.rows.remove(&of).unwrap().code, row.code);
                        assert!(writer.rows.insert(id, row).is_none(), "{id} is there");
                    }
                }
            }
        }
        assert!(kinds.iter().all(|&n| n > 100), "{kinds:?}");
        let codes: std::collections::BTreeSet<u64> = writer.rows.values().map(|row| row.code).collect();
        assert_eq!(codes.len(), writer.rows.len());
        assert!(writer.rows.keys().all(|id| (2 * PER_WRITER..3 * PER_WRITER).contains(id)));
    }
}
