//! The load that makes a history: sessions that run random transactions on one
//! table and note what they asked for and what they were told.
//!
//! The table is `obj (id, grp, last, l, pad)` with an index by `(grp, last)`; a
//! row is a key, `l` its numbers. A write gets what it replaced from a user
//! variable that is set while the row is changed, so that it is what the write
//! has seen and no second read. Keys are used until they are long and then moved
//! out of the way (lists and registers to group 0, which nobody scans; mortals
//! are deleted), and fresh ones take their slot, so that the load stays on few,
//! short, hot rows. A row may be moved back into a scanned group by a session that
//! drew it earlier; who scans a group and finds a row overgrown has it moved away
//! again. An id that was deleted is never inserted again.
//!
//! The server (10.11, with any engine) may answer a `DELETE` that was killed as if
//! it had found no row. Of one beside which the session was killed the load
//! therefore believes only the rows that it did delete.

use super::rows::{DATABASE, Rows, absent, seen};
use super::shared::{Kills, LONG, SLOTS, Shared};
use super::{Action, Key, KeyKind, Outcome, Statement, Transaction, Value, Version};
use crate::drive::{DEADLOCK, LOCK_WAIT, is_lost};
use crate::engine::Kind;
use crate::options::Isolation;
use crate::server::Instance;
use anyhow::{Context, Result, bail};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Groups that are scanned: 1 to this.
const GROUPS: u32 = 3;
const INTERRUPTED: u16 = 1317;
const CHANGED_SINCE_READ: u16 = 1020;

/// How a session runs.
#[derive(Clone, Copy)]
pub struct Manner {
    pub level: Isolation,
    /// Turns the engine's check of snapshots on.
    pub first_wins: bool,
}

/// One session and what it has noted.
pub struct Session<'a> {
    number: u32,
    instance: &'a Instance,
    shared: &'a Shared,
    manner: Manner,
    rng: SmallRng,
    pub transactions: Vec<Transaction>,
    /// Of the running transaction.
    statements: Vec<Statement>,
    /// How many entries `slots` had when the mark was set.
    marked: Option<usize>,
    /// For each slot a key that should make room.
    long: [u32; SLOTS.len()],
    /// Slots that get another key when the transaction ends: slot, key if it commits, key if not.
    slots: Vec<(usize, u32, u32)>,
    /// The kills when the latest statement was sent, and when the one before was.
    sent: [u32; 2],
    pub errors: Errors,
}

/// How often a statement met what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors {
    pub deadlocks: u64,
    pub timeouts: u64,
    pub kills: u64,
    pub lost: u64,
    pub conflicts: u64,
}

impl Errors {
    /// Adds another session's.
    pub fn add(&mut self, other: Errors) {
        self.deadlocks += other.deadlocks;
        self.timeouts += other.timeouts;
        self.kills += other.kills;
        self.lost += other.lost;
        self.conflicts += other.conflicts;
    }
}

/// How a statement ended that did not succeed.
enum Trouble {
    /// Undone, and the transaction goes on if it wants to.
    Failed,
    /// The transaction is gone.
    RolledBack,
    /// The session is gone.
    Lost,
}

type Step<T> = std::result::Result<T, Trouble>;

impl<'a> Session<'a> {
    /// A session that has done nothing.
    pub fn new(number: u32, instance: &'a Instance, shared: &'a Shared, manner: Manner, seed: u64) -> Session<'a> {
        Session {
            number,
            instance,
            shared,
            manner,
            rng: SmallRng::seed_from_u64(seed ^ (u64::from(number) << 32)),
            transactions: vec![],
            statements: vec![],
            marked: None,
            long: [0; SLOTS.len()],
            slots: vec![],
            sent: [0; 2],
            errors: Errors::default(),
        }
    }

    /// Runs transactions until it shall stop. An error is one that a correct server does not return.
    pub fn run(&mut self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let Some((mut conn, server_run)) = self.connect()? else {
                return Ok(());
            };
            self.shared.connected(self.number, server_run, conn.connection_id());
            while !self.shared.stop.load(Ordering::Relaxed) {
                if !self.transaction(&mut conn)? {
                    break;
                }
            }
            self.shared.connected(self.number, server_run, 0);
        }
        Ok(())
    }

    /// A connection and the server's run that it is of; `None` when the load ends before there is one.
    fn connect(&self) -> Result<Option<(Conn, u32)>> {
        let mut refused = Instant::now();
        loop {
            let server_run = self.shared.server_run();
            let open = || -> mysql::Result<Conn> {
                let mut conn = self.instance.connect(Some(DATABASE))?;
                let level = self.manner.level.name().replace('-', " ");
                conn.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))?;
                let engine = self.instance.kind().id();
                conn.query_drop(format!("SET SESSION {engine}_lock_wait_timeout = 1"))?;
                // On by default in 11.8, and off in 10.11.
                if self.instance.kind() != Kind::Rocksdb {
                    let value = if self.manner.first_wins { "ON" } else { "OFF" };
                    conn.query_drop(format!("SET SESSION {engine}_snapshot_isolation = {value}"))?;
                }
                Ok(conn)
            };
            match open() {
                Ok(conn) => return Ok(Some((conn, server_run))),
                Err(_) if self.shared.stop.load(Ordering::Relaxed) => return Ok(None),
                Err(_) if self.shared.down.load(Ordering::Relaxed) => refused = Instant::now(),
                Err(error) if refused.elapsed() > Duration::from_secs(10) => return Err(error.into()),
                Err(_) => {}
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Runs one transaction; false if the session is of no use any more.
    fn transaction(&mut self, conn: &mut Conn) -> Result<bool> {
        let shape = self.rng.random_range(0..100);
        if shape < 12 {
            return self.alone(conn);
        }
        let only_reads = shape < 35;
        let mut trouble = self.ask(conn, "BEGIN")?.err();
        let mut left = self.rng.random_range(1..=6);
        while trouble.is_none() && left > 0 {
            left -= 1;
            trouble = if only_reads { self.read(conn, false)? } else { self.step(conn)? }.err();
            // What failed was undone; some transactions go on.
            if matches!(trouble, Some(Trouble::Failed)) && self.rng.random_range(0..3) > 0 {
                trouble = None;
            }
            if self.rng.random_range(0..600) == 0 {
                // Others run into a timeout.
                sleep(Duration::from_millis(1200));
            }
        }
        let begin = self.shared.now();
        let (outcome, usable) = match trouble {
            Some(Trouble::Lost) => (Outcome::Aborted, false),
            None if self.rng.random_range(0..10) > 0 => match self.ask(conn, "COMMIT")? {
                Ok(_) => (Outcome::Committed, true),
                Err(_) => (Outcome::Unknown, false),
            },
            _ => (Outcome::Aborted, self.ask(conn, "ROLLBACK")?.is_ok()),
        };
        self.end(false, begin, outcome);
        Ok(usable)
    }

    /// One statement without BEGIN.
    fn alone(&mut self, conn: &mut Conn) -> Result<bool> {
        let begin = self.shared.now();
        if self.rng.random_range(0..3) > 0 {
            let read = self.read(conn, false)?;
            self.end(true, begin, if read.is_ok() { Outcome::Committed } else { Outcome::Aborted });
            return Ok(!matches!(read, Err(Trouble::Lost)));
        }
        let (_, key) = self.draw(KeyKind::List);
        let version = self.shared.version();
        let update = format!("UPDATE obj SET {} WHERE id = {}", self.changes(key, version, None), key.0);
        let ended = self.ask(conn, &update)?;
        let write = Action::Write { key, seen: None, version, group: None, dead: false };
        let (action, outcome) = match &ended {
            Ok(_) if conn.affected_rows() == 0 => (absent(key), Outcome::Committed),
            Ok(_) => (write, Outcome::Committed),
            // It may have been committing.
            Err(Trouble::Lost | Trouble::Failed) => (write, Outcome::Unknown),
            Err(Trouble::RolledBack) => (write, Outcome::Aborted),
        };
        self.note(begin, outcome == Outcome::Aborted, action);
        self.end(true, begin, outcome);
        Ok(!matches!(ended, Err(Trouble::Lost)))
    }

    /// One step of a transaction that writes.
    fn step(&mut self, conn: &mut Conn) -> Result<Step<()>> {
        match self.rng.random_range(0..100) {
            0..30 => self.read(conn, false),
            30..45 => self.read(conn, true),
            45..75 => self.write(conn),
            75..84 => self.replace_mortal(conn),
            84..90 => self.write_group(conn),
            // The server ends the engine's whole transaction when it goes back to a savepoint that is older.
            90..96 if self.statements.iter().any(|statement| !statement.failed) => {
                let ended = self.mark(conn, "SAVEPOINT s", Action::Savepoint)?;
                if ended.is_ok() {
                    self.marked = Some(self.slots.len());
                }
                Ok(ended)
            }
            _ => {
                let Some(slots) = self.marked else { return Ok(Ok(())) };
                let ended = self.mark(conn, "ROLLBACK TO s", Action::RollbackTo)?;
                if ended.is_ok() {
                    self.slots[slots..].iter_mut().for_each(|slot| slot.1 = slot.2);
                }
                Ok(ended)
            }
        }
    }

    fn mark(&mut self, conn: &mut Conn, text: &str, action: Action) -> Result<Step<()>> {
        let begin = self.shared.now();
        Ok(match self.ask(conn, text)? {
            Ok(_) => {
                self.note(begin, false, action);
                Ok(())
            }
            // Whether it took place is not known.
            Err(Trouble::Failed) => Err(Trouble::RolledBack),
            Err(other) => Err(other),
        })
    }

    /// Reads some keys or a group.
    fn read(&mut self, conn: &mut Conn, locking: bool) -> Result<Step<()>> {
        let column = if self.rng.random_range(0..3) == 0 { "last" } else { "l" };
        let suffix = match (locking, self.rng.random_range(0..3)) {
            (false, _) => "",
            (true, 0) => " LOCK IN SHARE MODE",
            (true, _) => " FOR UPDATE",
        };
        let (group, asked, condition) = match self.rng.random_range(0..10) {
            0..4 => {
                let group = self.rng.random_range(1..=GROUPS);
                (Some(group), vec![], format!("FORCE INDEX (by_group) WHERE grp = {group}"))
            }
            4..6 => {
                let first = self.draw_any().1.0.saturating_sub(2).max(1);
                let last = first + self.rng.random_range(1..8);
                (None, (first..=last).map(Key).collect(), format!("WHERE id BETWEEN {first} AND {last}"))
            }
            _ => {
                let mut keys: Vec<Key> = (0..self.rng.random_range(1..=4)).map(|_| self.draw_any().1).collect();
                keys.sort_unstable();
                keys.dedup();
                let ids: Vec<String> = keys.iter().map(|key| key.0.to_string()).collect();
                (None, keys, format!("WHERE id IN ({})", ids.join(", ")))
            }
        };
        let begin = self.shared.now();
        let rows = self.ask(conn, &format!("SELECT id, {column} FROM obj {condition}{suffix}"))?;
        let failed = rows.is_err();
        let (seen, ended) = match rows {
            Ok(rows) => (seen(rows, &asked, column == "last")?, Ok(())),
            Err(trouble) => (vec![], Err(trouble)),
        };
        if group.is_some() {
            self.shared.weed(&seen);
        }
        self.note(begin, failed, Action::Read { locking, group, seen });
        Ok(ended)
    }

    /// Writes one key, which it may insert, move to another group, or retire.
    fn write(&mut self, conn: &mut Conn) -> Result<Step<()>> {
        let (slot, mut key) = self.draw_any();
        let version = self.shared.version();
        let way = self.rng.random_range(0..100);
        let mut group = None;
        if let Some(overgrown) = self.shared.overgrown.lock().ok().and_then(|mut keys| keys.pop_first()) {
            key = Key(overgrown);
            group = Some(0);
        } else if key.kind() != KeyKind::Mortal && self.long[slot] == key.0 {
            // Out of the way; the next key takes the slot if this commits.
            group = Some(0);
            let fresh = self.shared.fresh(SLOTS[slot]);
            self.slots.push((slot, fresh.0, key.0));
            self.long[slot] = 0;
        } else if way < 15 {
            group = Some(self.rng.random_range(1..=GROUPS));
        }
        let insert = group.is_none() && key.kind() != KeyKind::Mortal && way < 60;
        let text = if insert {
            let born = self.rng.random_range(1..=GROUPS);
            group = Some(born);
            format!(
                "INSERT INTO obj VALUES ({}, {born}, {version}, '{version}', '{}') ON DUPLICATE KEY UPDATE {}",
                key.0,
                self.pad(),
                self.changes(key, version, None)
            )
        } else {
            format!("UPDATE obj SET {} WHERE id = {}", self.changes(key, version, group), key.0)
        };
        let begin = self.shared.now();
        let write = |seen, group| Action::Write { key, seen, version, group, dead: false };
        let ended = self.ask(conn, &text)?;
        let rows = conn.affected_rows();
        let end = self.shared.now();
        if let Err(trouble) = ended {
            self.note(begin, true, write(None, group));
            return Ok(Err(trouble));
        }
        if insert && rows == 1 {
            self.note(begin, false, write(Some(Value::Absent), group));
            return Ok(Ok(()));
        }
        if rows == 0 {
            self.note(begin, false, absent(key));
            return Ok(Ok(()));
        }
        let group = if insert { None } else { group };
        // What the row held when it was changed.
        let (before, ended) = match self.ask(conn, &format!("SELECT {}, @p", key.0))? {
            Ok(rows) => (seen(rows, &[], false)?.pop().map(|(_, value)| value), Ok(())),
            // The transaction must not commit a register whose order is not known.
            Err(Trouble::Failed) => (None, Err(Trouble::RolledBack)),
            Err(other) => (None, Err(other)),
        };
        let length = match &before {
            Some(Value::List(versions)) => versions.len(),
            _ => self.rng.random_range(0..LONG + 1),
        };
        if length >= LONG {
            self.long[slot] = key.0;
        }
        self.note(begin, false, write(before, group));
        if let Some(last) = self.statements.last_mut() {
            last.end = end;
        }
        Ok(ended)
    }

    /// Deletes the mortal of a slot and, mostly, inserts a fresh one. Strays go first, and nothing comes for them: what nobody
    /// draws would grow with each write to its group.
    fn replace_mortal(&mut self, conn: &mut Conn) -> Result<Step<()>> {
        let (slot, _) = self.draw(KeyKind::Mortal);
        let stray = self.shared.strays.lock().ok().and_then(|mut strays| strays.pop_first());
        let old = stray.unwrap_or_else(|| self.shared.slots[slot].swap(0, Ordering::SeqCst));
        self.slots.push((slot, old, old));
        let place = self.slots.len() - 1;
        if old != 0 {
            let (key, version) = (Key(old), self.shared.version());
            let begin = self.shared.now();
            let ended = self.ask(conn, &format!("DELETE FROM obj WHERE id = {old} RETURNING id, l"))?;
            let delete = |seen| Action::Write { key, seen, version, group: None, dead: true };
            let rows = match ended {
                Ok(rows) => rows,
                Err(trouble) => {
                    self.note(begin, true, delete(None));
                    return Ok(Err(trouble));
                }
            };
            match seen(rows, &[], false)?.pop() {
                Some((_, value)) => self.note(begin, false, delete(Some(value))),
                None if !self.may_be_killed() => self.note(begin, false, absent(key)),
                None => {
                    self.note(begin, true, delete(None));
                    return Ok(Err(Trouble::Failed));
                }
            }
            self.slots[place].1 = 0;
            if stray.is_some() || self.rng.random_range(0..4) == 0 {
                return Ok(Ok(()));
            }
        }
        let (key, version) = (self.shared.fresh(KeyKind::Mortal), self.shared.version());
        let group = self.rng.random_range(1..=GROUPS);
        let pad = self.pad();
        let begin = self.shared.now();
        let insert = format!("INSERT INTO obj VALUES ({}, {group}, {version}, '{version}', '{pad}')", key.0);
        let ended = self.ask(conn, &insert)?;
        let write = Action::Write { key, seen: Some(Value::Absent), version, group: Some(group), dead: false };
        self.note(begin, ended.is_err(), write);
        if ended.is_ok() {
            self.slots[place].1 = key.0;
        }
        Ok(ended.map(drop))
    }

    /// Appends to all lists and mortals of a group.
    fn write_group(&mut self, conn: &mut Conn) -> Result<Step<()>> {
        let group = self.rng.random_range(1..=GROUPS);
        let version = self.shared.version();
        let begin = self.shared.now();
        let update = format!(
            "UPDATE obj SET l = CONCAT(l, ',{version}'), last = {version} WHERE grp = {group} AND id % {} <> 0",
            Key::KINDS
        );
        let ended = self.ask(conn, &update)?;
        let rows = conn.affected_rows();
        self.note(begin, ended.is_err(), Action::WriteGroup { group, version, rows });
        Ok(ended.map(drop))
    }

    /// The part behind SET of a write.
    fn changes(&mut self, key: Key, version: Version, group: Option<u32>) -> String {
        let l = match key.kind() {
            // The condition holds always, and must look at the row.
            KeyKind::Register => format!("IF(LENGTH(@p := l) >= 0, '{version}', '')"),
            _ => format!("CONCAT(@p := l, ',{version}')"),
        };
        let group = group.map_or(String::new(), |group| format!(", grp = {group}"));
        format!("l = {l}, last = {version}, pad = '{}'{group}", self.pad())
    }

    /// So that memory fills, and is written to tables and merged, while this runs.
    fn pad(&mut self) -> String {
        "x".repeat(self.rng.random_range(0..1500))
    }

    fn draw(&mut self, kind: KeyKind) -> (usize, Key) {
        loop {
            let slot = self.rng.random_range(0..SLOTS.len());
            if SLOTS[slot] == kind {
                return (slot, Key(self.shared.slots[slot].load(Ordering::SeqCst)));
            }
        }
    }

    /// Any slot that has a key.
    fn draw_any(&mut self) -> (usize, Key) {
        loop {
            let slot = self.rng.random_range(0..SLOTS.len());
            let id = self.shared.slots[slot].load(Ordering::SeqCst);
            if id != 0 {
                return (slot, Key(id));
            }
        }
    }

    /// Sends a statement. The outer error is one that a correct server does not return.
    fn ask(&mut self, conn: &mut Conn, text: &str) -> Result<Step<Rows>> {
        self.sent = [self.kills().moment(), self.sent[0]];
        Ok(Err(match conn.query::<mysql::Row, _>(text) {
            Ok(rows) => {
                let pair = |row: mysql::Row| mysql::from_row_opt(row).ok();
                let pairs: Option<Rows> = rows.into_iter().map(pair).collect();
                return Ok(Ok(pairs.with_context(|| format!("no such rows were expected of: {text}"))?));
            }
            Err(mysql::Error::MySqlError(error)) if error.code == DEADLOCK => {
                self.errors.deadlocks += 1;
                Trouble::RolledBack
            }
            Err(mysql::Error::MySqlError(error)) if error.code == CHANGED_SINCE_READ && self.manner.first_wins => {
                self.errors.conflicts += 1;
                Trouble::RolledBack
            }
            Err(mysql::Error::MySqlError(error)) if error.code == LOCK_WAIT => {
                self.errors.timeouts += 1;
                Trouble::Failed
            }
            Err(mysql::Error::MySqlError(error)) if error.code == INTERRUPTED => {
                self.errors.kills += 1;
                Trouble::Failed
            }
            Err(error) if is_lost(&error) => {
                self.errors.lost += 1;
                Trouble::Lost
            }
            Err(error) => bail!("session {}: {error}, for {}", self.number, &text[..text.len().min(300)]),
        }))
    }

    fn kills(&self) -> &'a Kills {
        &self.shared.kills[self.number as usize]
    }

    /// True if a kill may have met the latest statement; also one from before, since it waits for a statement to meet.
    fn may_be_killed(&self) -> bool {
        !self.kills().none_since(self.sent[1])
    }

    fn note(&mut self, begin: u64, failed: bool, action: Action) {
        self.statements.push(Statement { begin, end: self.shared.now(), failed, action });
    }

    fn end(&mut self, alone: bool, begin: u64, outcome: Outcome) {
        let end = self.shared.now();
        let statements = std::mem::take(&mut self.statements);
        self.transactions.push(Transaction { session: self.number, alone, statements, outcome, begin, end });
        for (slot, new, old) in self.slots.drain(..) {
            let next = if outcome == Outcome::Aborted { old } else { new };
            // A mortal's slot was emptied; another's may have got its next key already.
            let expected = if SLOTS[slot] == KeyKind::Mortal { 0 } else { old };
            let shared = self.shared;
            let set = shared.slots[slot].compare_exchange(expected, next, Ordering::SeqCst, Ordering::SeqCst);
            if set.is_err()
                && SLOTS[slot] == KeyKind::Mortal
                && next != 0
                && let Ok(mut strays) = shared.strays.lock()
            {
                strays.insert(next);
            }
        }
        self.marked = None;
    }
}
