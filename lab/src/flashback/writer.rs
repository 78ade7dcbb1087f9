//! Sessions that write to the ledger, and tell the [`History`] what they do and when.
//!
//! A transaction moves money between accounts, and adds, changes or removes entries of its writer; it always adds a row to the journal, its
//! number, by which readers know that it was. Some are prepared first, by XA, and committed a while later, or by the next server.

use super::history::{Change, History};
use super::{ACCOUNTS, DATABASE, now};
use crate::drive::{DEADLOCK, LOCK_WAIT, is_lost};
use crate::server::Instance;
use anyhow::{Context, Result, bail};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Entries of a writer are numbered from its number times this.
const PER_WRITER: u64 = 1_000_000_000;
/// How an id of XA begins.
const XA: &str = "flashback ";

/// What all writers share.
pub struct Book {
    pub history: Mutex<History>,
    next: AtomicU64,
}

impl Book {
    pub fn new() -> Book {
        Book { history: Mutex::default(), next: AtomicU64::new(1) }
    }

    pub fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().expect("no session panics")
    }

    /// A number for a transaction, greater than all before.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// One session, over all ends of servers.
pub struct Writer {
    number: u32,
    rng: SmallRng,
    next: u64,
    /// Its entries, with their versions.
    entries: BTreeMap<u64, u32>,
    /// In flight when the server went away: its COMMIT may have been sent.
    open: Option<(u64, Vec<Change>)>,
    pub acknowledged: u64,
}

impl Writer {
    pub fn new(number: u32, seed: u64) -> Writer {
        Writer {
            number,
            rng: SmallRng::seed_from_u64(seed.wrapping_mul(101) ^ u64::from(number)),
            next: u64::from(number) * PER_WRITER,
            entries: BTreeMap::new(),
            open: None,
            acknowledged: 0,
        }
    }

    /// Writes until `stop` is set or the server goes away; an error is one that a living server has returned.
    pub fn write(&mut self, instance: &Instance, book: &Book, stop: &AtomicBool) -> Result<()> {
        let Ok(mut conn) = instance.connect(Some(DATABASE)) else { return Ok(()) };
        while !stop.load(Ordering::Relaxed) {
            let (changes, is_xa) = (self.draw(), self.rng.random_range(0..20) == 0);
            let number = book.number();
            match self.apply(&mut conn, book, number, &changes, is_xa) {
                Ok(()) => {
                    // Before the wait for the lock.
                    let at = now();
                    book.history().committed(number, at);
                    self.settle(&changes);
                    self.open = None;
                    self.acknowledged += 1;
                }
                Err(mysql::Error::MySqlError(error)) if [DEADLOCK, LOCK_WAIT].contains(&error.code) => {
                    if self.roll_back(&mut conn, number, is_xa).is_err() {
                        return Ok(());
                    }
                    book.history().rolled_back(number);
                    self.open = None;
                }
                Err(error) if is_lost(&error) => return Ok(()),
                Err(error) => bail!("writer {}: {error}", self.number),
            }
        }
        Ok(())
    }

    fn roll_back(&self, conn: &mut Conn, number: u64, is_xa: bool) -> mysql::Result<()> {
        if is_xa {
            // Where it is in its states does not matter.
            let _ = conn.query_drop(format!("XA END '{XA}{number}'"));
            return conn.query_drop(format!("XA ROLLBACK '{XA}{number}'"));
        }
        conn.query_drop("ROLLBACK")
    }

    fn draw(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..self.rng.random_range(0..3) {
            // Always the smaller one first: few deadlocks among writers.
            let source = self.rng.random_range(1..ACCOUNTS);
            let target = self.rng.random_range(source + 1..=ACCOUNTS);
            changes.push(Change::Move { source, target, amount: self.rng.random_range(-1000..=1000) });
        }
        let mut mine: Vec<u64> = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let known = (!self.entries.is_empty()).then(|| self.rng.random_range(0..self.entries.len()));
            let known = known.and_then(|at| self.entries.iter().nth(at)).map(|(&entry, &version)| (entry, version));
            let change = match (known, self.rng.random_range(0..10)) {
                (Some((entry, version)), 0..4) => Change::Put { entry, version: version + 1 },
                (Some((entry, _)), 4..6) => Change::Remove { entry },
                _ => {
                    self.next += 1;
                    Change::Put { entry: self.next, version: 1 }
                }
            };
            if let Change::Put { entry, .. } | Change::Remove { entry } = change
                && !mine.contains(&entry)
            {
                mine.push(entry);
                changes.push(change);
            }
        }
        changes
    }

    fn apply(
        &mut self,
        conn: &mut Conn,
        book: &Book,
        number: u64,
        changes: &[Change],
        is_xa: bool,
    ) -> mysql::Result<()> {
        match is_xa {
            true => conn.query_drop(format!("XA START '{XA}{number}'"))?,
            false => conn.query_drop("BEGIN")?,
        }
        conn.exec_drop("INSERT INTO journal VALUES (?, ?)", (number, self.number))?;
        for change in changes {
            match *change {
                Change::Move { source, target, amount } => {
                    let update = "UPDATE account SET balance = balance + ?, moves = moves + 1, \
                                  pad = REPEAT(CHAR(97 + moves % 26), LENGTH(pad)) WHERE id = ?";
                    conn.exec_drop(update, (-amount, source))?;
                    conn.exec_drop(update, (amount, target))?;
                }
                Change::Put { entry, version: 1 } => {
                    conn.query_drop(format!("INSERT INTO entry VALUES {}", row(entry, 1)))?
                }
                Change::Put { entry, version } => conn.query_drop(format!(
                    "UPDATE entry SET version = {version}, code = '{}', note = {} WHERE id = {entry}",
                    code(entry, version),
                    note(entry, version)
                ))?,
                Change::Remove { entry } => conn.exec_drop("DELETE FROM entry WHERE id = ?", (entry,))?,
            }
        }
        // From here on the server may have it when it goes away.
        book.history().begins(number, changes.to_vec(), now());
        self.open = Some((number, changes.to_vec()));
        if !is_xa {
            return conn.query_drop("COMMIT");
        }
        conn.query_drop(format!("XA END '{XA}{number}'"))?;
        conn.query_drop(format!("XA PREPARE '{XA}{number}'"))?;
        sleep(Duration::from_millis(self.rng.random_range(0..1500)));
        book.history().not_before(number, now());
        conn.query_drop(format!("XA COMMIT '{XA}{number}'"))
    }

    fn settle(&mut self, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::Put { entry, version } => drop(self.entries.insert(entry, version)),
                Change::Remove { entry } => drop(self.entries.remove(&entry)),
                Change::Move { .. } => {}
            }
        }
    }

    /// After a restart: what was in flight is there, or prepared, or never was. What is prepared is ended.
    pub fn resolve(&mut self, conn: &mut Conn, book: &Book) -> Result<()> {
        let Some((number, changes)) = self.open.take() else { return Ok(()) };
        let is_prepared =
            conn.query::<(i64, i64, i64, String), _>("XA RECOVER")?.iter().any(|row| row.3 == format!("{XA}{number}"));
        if is_prepared {
            book.history().not_before(number, now());
            let commits = self.rng.random_range(0..3) > 0;
            let end = if commits { "COMMIT" } else { "ROLLBACK" };
            conn.query_drop(format!("XA {end} '{XA}{number}'"))?;
        }
        let found: Option<u64> = conn.exec_first("SELECT number FROM journal WHERE number = ?", (number,))?;
        match found {
            Some(_) => {
                book.history().committed(number, now());
                self.settle(&changes);
            }
            None => book.history().rolled_back(number),
        }
        Ok(())
    }
}

/// The row of an entry, as a list of values.
pub fn row(entry: u64, version: u32) -> String {
    format!("({entry}, {version}, '{}', {})", code(entry, version), note(entry, version))
}

/// A unique value that changes with the version.
pub fn code(entry: u64, version: u32) -> String {
    format!("{}-{entry}", (u64::from(version) * 7919 + entry) % 1000)
}

/// What the note of an entry says, as an expression.
fn note(entry: u64, version: u32) -> String {
    let (letter, bytes) = ((entry + u64::from(version)) % 26, 100 + (entry * 7 + u64::from(version) * 131) % 1000);
    format!("REPEAT(CHAR({}), {bytes})", 97 + letter)
}

/// Commits a transaction that only the lab makes, while nobody else writes. `statement` does all of it but the journal.
pub fn alone(conn: &mut Conn, book: &Book, changes: Vec<Change>, statement: &str) -> Result<()> {
    let number = book.number();
    conn.query_drop("BEGIN")?;
    conn.exec_drop("INSERT INTO journal VALUES (?, 0)", (number,))?;
    conn.query_drop(statement).with_context(|| statement.to_owned())?;
    book.history().begins(number, changes, now());
    conn.query_drop("COMMIT")?;
    let at = now();
    book.history().committed(number, at);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_changes_an_entry_once() {
        let mut writer = Writer::new(2, 1);
        let mut kinds = [0; 4];
        for _ in 0..2000 {
            let changes = writer.draw();
            let mut entries = Vec::new();
            for change in &changes {
                match *change {
                    Change::Move { source, target, .. } => {
                        assert!(source < target && target <= ACCOUNTS);
                        kinds[0] += 1;
                    }
                    Change::Put { entry, version } => {
                        assert_eq!(version, writer.entries.get(&entry).map_or(1, |version| version + 1));
                        entries.push(entry);
                        kinds[if version == 1 { 1 } else { 2 }] += 1;
                    }
                    Change::Remove { entry } => {
                        assert!(writer.entries.contains_key(&entry));
                        entries.push(entry);
                        kinds[3] += 1;
                    }
                }
            }
            let all = entries.len();
            entries.sort_unstable();
            entries.dedup();
            assert_eq!(entries.len(), all);
            writer.settle(&changes);
        }
        assert!(kinds.iter().all(|&n| n > 200), "{kinds:?}");
        assert!(writer.entries.keys().all(|entry| (2 * PER_WRITER..3 * PER_WRITER).contains(entry)));
    }
}
