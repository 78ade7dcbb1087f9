//! Fetching the row of one entry: the condition, the lock, the row.
//!
//! A locking read locks the clustered key of the entry and then asks whether the row has changed since the cursor was
//! opened: mostly a look into memtables. If it has, entry and row are read again at the newest state. A row that vanished or
//! moved is skipped. A semi-consistent scan does not wait for a locked row but gives out what is committed of it. After a wait
//! the engine cursor goes on at the newest state too, so that rows committed meanwhile are met.
//!
//! A row that has expired for the statement is passed over as one that does not match: whatever reads rows in a statement's name comes
//! through here. It is looked at once the row is at hand, and before its condition is asked.

use super::{Check, RowCursor, locking};
use crate::error::{Error, Result};
use crate::isolation::Waiting;
use crate::keycode::CodecError;
use crate::kv::{self, GrantKind, LockMode, SeqNo};
use crate::kv::{ValueBuf, ValueOut};
use crate::session::Session;
use crate::table::Table;

/// What becomes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fetched {
    /// The record holds the row.
    Row,
    /// Not this one.
    Reject,
    /// Neither this nor any after it.
    Stop,
}

/// Copies into a reused buffer.
pub(super) fn copy(to: &mut Vec<u8>, from: &[u8]) {
    to.clear();
    to.extend_from_slice(from);
}

/// Shorter values are copied without a look at where they lie.
const LARGE_MIN: usize = 512 << 10;

/// Keeps the value that the engine cursor stands on: a copy, unless it is a large one.
fn keep(to: &mut ValueBuf, cursor: &kv::Cursor) {
    let value = cursor.value();
    match if value.len() < LARGE_MIN { None } else { cursor.large_value() } {
        Some(large) => to.hold(large),
        None => to.copy(value),
    }
}

impl RowCursor {
    /// Takes the entry under the engine cursor, or not.
    pub(super) fn fetch_row(&mut self, session: &mut Session, record: &mut [u8]) -> Result<Fetched> {
        let Some(scan) = &mut self.scan else {
            return Ok(Fetched::Stop);
        };
        scan.entry_saved = self.lock.is_some();
        if let Some(mode) = self.lock {
            let seq = scan.seq;
            copy(&mut self.entry_key, self.cursor.key());
            keep(&mut self.entry_value, &self.cursor);
            if scan.clustered {
                copy(&mut self.current, &self.entry_key);
                self.note_row()?;
            } else {
                let verdict = self.condition_on_entry(record)?;
                if verdict != Fetched::Row {
                    return Ok(verdict);
                }
            }
            return self.fetch_locked(session, record, seq, mode);
        }
        if scan.clustered {
            if self.table.def.primary.is_none() {
                self.row_ids.read(self.table.clustered.row_id(self.cursor.key())?);
            }
            let value = if self.table.has_blobs {
                keep(&mut self.row_value, &self.cursor);
                &self.row_value
            } else {
                self.cursor.value()
            };
            if self.expires && has_expired(&self.table, session, self.cursor.key(), value, &mut self.expiry_room)? {
                return Ok(Fetched::Reject);
            }
            let decoded = self.table.row.decode(self.cursor.key(), value, record, self.columns.as_ref());
            decoded.map_err(|error| damaged(&self.table, self.cursor.key(), error))?;
            return self.condition_on_row(record);
        }
        let hidden = self.table.def.primary.is_none();
        let overwritten = session.has_overwritten();
        if hidden || overwritten || !scan.covering || self.expires {
            scan.codec.clustered_key_from(self.cursor.key(), self.cursor.value(), &mut self.current)?;
        }
        if overwritten && session.overwritten_entry(&self.current, self.cursor.key())? {
            return Ok(Fetched::Reject);
        }
        if hidden {
            self.row_ids.read(self.table.clustered.row_id(&self.current)?);
        }
        if let Some(condition) = &mut self.condition {
            scan.codec.decode_into(self.cursor.key(), self.cursor.value(), record, None)?;
            let verdict = judge(condition(record))?;
            if verdict != Fetched::Row {
                return Ok(verdict);
            }
        }
        let seq = scan.seq;
        if self.expires && self.entry_has_expired(session, seq)? {
            return Ok(Fetched::Reject);
        }
        let Some(scan) = &self.scan else { return Ok(Fetched::Stop) };
        if scan.covering {
            let (key, value) = (self.cursor.key(), self.cursor.value());
            let decoded = scan.codec.decode_into(key, value, record, self.columns.as_ref());
            decoded.map_err(|error| damaged(&self.table, key, error))?;
            return Ok(Fetched::Row);
        }
        self.fetch(session, record, seq)
    }

    /// Takes the secondary entry in `entry_key` and `entry_value`, as read at `seq`, or not.
    pub(super) fn fetch_entry(&mut self, session: &mut Session, record: &mut [u8], seq: SeqNo) -> Result<Fetched> {
        let verdict = self.condition_on_entry(record)?;
        if verdict != Fetched::Row {
            return Ok(verdict);
        }
        if let Some(mode) = self.lock {
            return self.fetch_locked(session, record, seq, mode);
        }
        if session.overwritten_entry(&self.current, &self.entry_key)? {
            return Ok(Fetched::Reject);
        }
        if !self.is_covering() {
            return self.fetch(session, record, seq);
        }
        if self.expires && self.row_has_expired(session, seq)? {
            return Ok(Fetched::Reject);
        }
        self.decode_entry(record)?;
        Ok(Fetched::Row)
    }

    /// Reads the row at the clustered key in `current`; false if there is none.
    pub(super) fn read_row(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        let seq = match self.lock {
            Some(mode) => {
                if self.lock_current(session, mode, self.waiting)? == Outcome::Busy {
                    return Ok(false);
                }
                let newest = session.engine().visible();
                self.check_unchanged(session, newest)?;
                newest
            }
            None => self.read_seq(session)?,
        };
        if !session.txn().get(&self.current, seq, &mut self.row_value)? {
            self.release_absent(session);
            return Ok(false);
        }
        if self.expires && self.value_has_expired(session)? {
            self.release(session);
            return Ok(false);
        }
        self.has_row = true;
        self.note_row()?;
        self.decode_row(record)?;
        Ok(self.condition_on_row(record)? == Fetched::Row)
    }

    /// Releases the lock that the last read acquired, if the isolation level allows it: the row did not match.
    pub fn unlock_row(&mut self, session: &mut Session) {
        self.unlocked = false;
        self.release(session);
    }

    /// As `release`, of a row that is not there.
    fn release_absent(&mut self, session: &mut Session) {
        if self.fresh_lock && locking::keeps_unmatched(session.isolation()) {
            session.note_absent(&self.current);
        }
        self.release(session);
    }

    fn release(&mut self, session: &mut Session) {
        if self.fresh_lock
            && !locking::keeps_unmatched(session.isolation())
            // A lock too many if the answer cannot be had.
            && !session.txn().wrote(&self.current).unwrap_or(true)
        {
            session.unlock(&self.current);
        }
        self.fresh_lock = false;
    }

    /// An error if the table is newer than the transaction's snapshot; with snapshot isolation, if the row at `current`, just locked, is
    /// not what the snapshot shows.
    fn check_unchanged(&self, session: &Session, newest: SeqNo) -> Result<()> {
        match session.snapshot().filter(|_| !self.table.reads_newest()) {
            None => Ok(()),
            Some(snapshot) => {
                self.check_age(snapshot)?;
                session.check_snapshot(&self.current, newest)
            }
        }
    }

    fn lock_current(&mut self, session: &mut Session, mode: LockMode, waiting: Waiting) -> Result<Outcome> {
        match session.lock(&self.current, mode, waiting) {
            Ok(granted) => {
                self.fresh_lock = granted.kind == GrantKind::New;
                Ok(if granted.waited { Outcome::Waited } else { Outcome::AtOnce })
            }
            Err(e) if waiting == Waiting::SkipLocked && e.is_lock_busy() => Ok(Outcome::Busy),
            Err(e) => Err(e),
        }
    }

    /// Locks the entry in `entry_key`, `entry_value`, whose row is at `current`, and reads again what may have changed.
    fn fetch_locked(
        &mut self,
        session: &mut Session,
        record: &mut [u8],
        seq: SeqNo,
        mode: LockMode,
    ) -> Result<Fetched> {
        self.fresh_lock = false;
        let patient = std::mem::take(&mut self.patient);
        let single = self.scan.as_ref().is_none_or(|s| s.single);
        let semi = self.semi_consistent && !patient && !single && self.waiting != Waiting::SkipLocked;
        let outcome = match semi && locking::may_skip_waiting(session.isolation()) {
            true => self.lock_current(session, mode, Waiting::SkipLocked)?,
            false => self.lock_current(session, mode, self.waiting)?,
        };
        if outcome == Outcome::Busy && !semi {
            return Ok(Fetched::Reject);
        }
        let newest = session.engine().visible();
        let same = self.is_unchanged(session, seq, newest)?;
        if outcome == Outcome::Waited {
            self.go_on_at_newest(session)?;
        }
        if outcome != Outcome::Busy {
            self.check_unchanged(session, newest)?;
        }
        let clustered = self.scan.as_ref().is_none_or(|s| s.clustered);
        let there = if clustered {
            if same {
                std::mem::swap(&mut self.row_value, &mut self.entry_value);
                true
            } else {
                session.txn().get(&self.current, newest, &mut self.row_value)?
            }
        } else {
            (same || self.entry_still_there(session, newest)?)
                && (self.is_covering() || session.txn().get(&self.current, newest, &mut self.row_value)?)
        };
        let read_row = clustered || !self.is_covering();
        let expired = self.expires
            && there
            && if read_row { self.value_has_expired(session)? } else { self.row_has_expired(session, newest)? };
        if !there {
            self.release_absent(session);
            return Ok(Fetched::Reject);
        }
        if expired {
            self.release(session);
            return Ok(Fetched::Reject);
        }
        let verdict = if !clustered && self.is_covering() {
            self.decode_entry(record)?;
            Fetched::Row
        } else {
            self.has_row = true;
            self.decode_row(record)?;
            if clustered { self.condition_on_row(record)? } else { Fetched::Row }
        };
        match verdict {
            Fetched::Row => self.unlocked = outcome == Outcome::Busy,
            _ => self.release(session),
        }
        Ok(verdict)
    }

    /// True if the row at `current`, and so its entries, are known to be at `newest` what they were at `seq`. The engine tells
    /// only of a state that is kept readable.
    fn is_unchanged(&self, session: &Session, seq: SeqNo, newest: SeqNo) -> Result<bool> {
        let kept = self.scan.as_ref().and_then(|s| s.point.as_ref()).is_some_and(|point| point.seq() == seq);
        Ok(newest == seq || kept && !session.engine().changed_since(&self.current, seq)?)
    }

    /// True if the secondary entry exists at `newest` and belongs to the same row.
    fn entry_still_there(&mut self, session: &Session, newest: SeqNo) -> Result<bool> {
        if !session.txn().get(&self.entry_key, newest, &mut self.entry_value)? {
            return Ok(false);
        }
        let Some(scan) = &self.scan else {
            return Ok(false);
        };
        let mut row_key = Vec::new();
        scan.codec.clustered_key_from(&self.entry_key, &self.entry_value, &mut row_key)?;
        Ok(row_key == self.current)
    }

    fn go_on_at_newest(&mut self, session: &Session) -> Result<()> {
        if let Some(scan) = self.scan.as_mut().filter(|s| s.open) {
            let point = session.engine().read_point();
            scan.seq = point.seq();
            self.cursor.refresh(session.txn(), scan.seq)?;
            scan.point = Some(point);
        }
        Ok(())
    }

    /// Reads the row at `current`, which a secondary entry read at `seq` says is there, and takes it unless it has expired.
    fn fetch(&mut self, session: &mut Session, record: &mut [u8], seq: SeqNo) -> Result<Fetched> {
        self.read_value(session, seq)?;
        if self.expires && self.value_has_expired(session)? {
            return Ok(Fetched::Reject);
        }
        self.has_row = true;
        self.decode_row(record)?;
        Ok(Fetched::Row)
    }

    /// The bytes of the row at `current`, which a secondary entry read at `seq` says is there.
    fn read_value(&mut self, session: &Session, seq: SeqNo) -> Result<()> {
        match session.txn().get(&self.current, seq, &mut self.row_value)? {
            true => Ok(()),
            false => Err(Error::corruption(format!(
                "table '{}': an index entry points to a row that does not exist",
                self.table.state.name()
            ))),
        }
    }

    /// True if the row at `current`, whose bytes were read, has expired.
    #[inline(never)]
    fn value_has_expired(&mut self, session: &mut Session) -> Result<bool> {
        has_expired(&self.table, session, &self.current, &self.row_value, &mut self.expiry_room)
    }

    /// True if the row at `current` has expired, which has not been read.
    #[inline(never)]
    fn row_has_expired(&mut self, session: &mut Session, seq: SeqNo) -> Result<bool> {
        if session.horizon().is_none() {
            return Ok(false);
        }
        self.read_value(session, seq)?;
        self.value_has_expired(session)
    }

    /// True if the row of the secondary entry under the engine cursor is known to have expired, before it is read for itself: by the
    /// entry, or, where nothing else would be read, by the row.
    #[inline(never)]
    fn entry_has_expired(&mut self, session: &mut Session, seq: SeqNo) -> Result<bool> {
        let Some(scan) = &self.scan else { return Ok(false) };
        match (scan.tells_expiry, session.horizon()) {
            (_, None) => Ok(false),
            (Some(index), Some(now)) => {
                let (key, value) = (self.cursor.key(), self.cursor.value());
                let moment = self.table.moment_of_entry(index, key, value, &mut self.expiry_room)?;
                Ok(moment.is_some_and(|moment| moment <= now))
            }
            (None, Some(_)) => match scan.covering {
                true => self.row_has_expired(session, seq),
                false => Ok(false),
            },
        }
    }

    fn decode_row(&mut self, record: &mut [u8]) -> Result<()> {
        let decoded = self.table.row.decode(&self.current, &self.row_value, record, self.columns.as_ref());
        decoded.map_err(|error| damaged(&self.table, &self.current, error))
    }

    fn decode_entry(&mut self, record: &mut [u8]) -> Result<()> {
        let Some(scan) = &self.scan else {
            return Ok(());
        };
        let decoded = scan.codec.decode_into(&self.entry_key, &self.entry_value, record, self.columns.as_ref());
        decoded.map_err(|error| damaged(&self.table, &self.entry_key, error))
    }

    fn is_covering(&self) -> bool {
        self.scan.as_ref().is_some_and(|s| s.covering)
    }

    /// Finds the row of the secondary entry in `entry_key` and `entry_value`, and asks the condition about the entry.
    fn condition_on_entry(&mut self, record: &mut [u8]) -> Result<Fetched> {
        if let Some(scan) = &self.scan {
            scan.codec.clustered_key_from(&self.entry_key, &self.entry_value, &mut self.current)?;
        }
        self.note_row()?;
        let (Some(scan), Some(condition)) = (&self.scan, &mut self.condition) else {
            return Ok(Fetched::Row);
        };
        scan.codec.decode_into(&self.entry_key, &self.entry_value, record, None)?;
        judge(condition(record))
    }

    fn condition_on_row(&mut self, record: &mut [u8]) -> Result<Fetched> {
        match &mut self.condition {
            Some(condition) => judge(condition(record)),
            None => Ok(Fetched::Row),
        }
    }
}

/// True if a row has expired for the running statement.
fn has_expired(table: &Table, session: &mut Session, key: &[u8], row: &[u8], room: &mut Vec<u8>) -> Result<bool> {
    match session.horizon() {
        Some(now) => table.has_expired(key, row, now, room),
        None => Ok(false),
    }
}

/// How a lock was got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    AtOnce,
    Waited,
    Busy,
}

/// The error of bytes under `key` that do not decode, with the place where they lie.
#[cold]
fn damaged(table: &Table, key: &[u8], error: CodecError) -> Error {
    Error::from(error).read_at(table.engine(), key)
}

fn judge(check: Check) -> Result<Fetched> {
    match check {
        Check::Accept => Ok(Fetched::Row),
        Check::Reject => Ok(Fetched::Reject),
        Check::OutOfRange => Ok(Fetched::Stop),
        Check::Aborted => Err(kv::Error::Interrupted.into()),
        Check::Failed => Err(Error::Condition),
    }
}
