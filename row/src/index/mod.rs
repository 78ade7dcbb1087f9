//! Writing rows: the clustered entry and all secondary entries of a row change together or not at all.
//!
//! Which entries a row has in an index the index says (`entries`).
//!
//! Every written row's clustered key is locked exclusively. Every value that enters or leaves a unique secondary index has
//! the key of its own parts locked before anybody looks it up: whoever holds that lock alone decides whether the value
//! exists, and the newest committed version, read after the grant, is the truth. Leaving values are locked too, so that an
//! insert of the same value waits for the deleting transaction's end instead of reporting a duplicate that may vanish.
//! Entries of other secondary indexes are written blind: the old entry is known from the record in hand.
//!
//! Every key that is new in an index, the clustered one included, is announced (`intend_insert`, an insert intention) before it is locked and put, and
//! waits while another transaction has locked the interval it falls into.
//!
//! A failure half way goes back to a savepoint taken at the start of the row.
//!
//! A row that has expired (`crate::expiry`) and has a unique value that another row is to get is deleted first, as by a statement.
//!
//! Tables without rollback (sequences) are written past transactions and row locks; the server has a mutex per sequence.
//!
//! Rejected: locking the row that an existing unique entry points to (no lock for leaving values needed). A transaction
//! that deletes and re-inserts a value would then deadlock with any waiter.

pub mod bulk;
pub(crate) mod expired;
pub(crate) mod entries;
pub mod limits;

use crate::error::{Error, Result};
use crate::integrity::rows;
use crate::isolation::Waiting;
use crate::kv::limits::VALUE_BYTES_MAX;
use crate::kv::{self, CrashPoint, Engine, GrantKind, LockMode, Savepoint, ScratchBuf, Txn, ValueBuf, WriteOp};
use crate::rowcode::{Apart, Record};
use crate::session::Session;
use crate::table::Table;
use entries::{Change, ChangeRoom, Rewrite, Sink, Written};

/// Buffers that live as long as a handler, so that a row write allocates nothing.
#[derive(Default)]
pub struct WriteBuffers {
    row_key: Vec<u8>,
    row_value: ScratchBuf,
    old_row_key: Vec<u8>,
    entry: ChangeRoom,
    found: ValueBuf,
}

impl WriteBuffers {
    /// Gives back what long values have left.
    pub fn release(&mut self) {
        // Keys, and the entries of indexes, have limits below what is given back.
        let WriteBuffers { row_key: _, row_value, old_row_key: _, entry: _, found } = self;
        row_value.release();
        found.release();
    }
}

/// What an update did. A row of an earlier schema version that is written again becomes another one, whatever its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Updated {
    /// Something was written.
    Changed,
    /// Old and new row are the same bytes everywhere.
    Same,
}

/// A row as it is stored: what the read that found it has given.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    /// Its clustered key.
    pub key: &'a [u8],
    /// Its bytes, in whatever schema version.
    pub row: &'a [u8],
}

/// A row that is to be changed or deleted.
#[derive(Clone, Copy)]
pub struct Former<'a> {
    /// Its values.
    pub record: Record<'a>,
    /// Its hidden row id.
    pub row_id: u64,
    /// What was read of it, if that is at hand.
    pub stored: Option<Stored<'a>>,
}

/// One row write of one transaction.
pub struct Writer<'a> {
    /// The table.
    pub table: &'a Table,
    /// Whose transaction.
    pub session: &'a mut Session,
    /// Reused memory.
    pub buffers: &'a mut WriteBuffers,
}

impl Writer<'_> {
    /// Inserts a row. Its hidden row id, 0 where rows have none.
    pub fn insert(&mut self, record: Record<'_>) -> Result<u64> {
        if self.table.state.meta.no_rollback {
            return self.autonomous(record, None);
        }
        match self.insert_once(record) {
            Err(Error::Duplicate(index)) if self.table.expires() => {
                self.over_expired(index, record, |w| w.insert_once(record))
            }
            written => written,
        }
    }

    fn insert_once(&mut self, record: Record<'_>) -> Result<u64> {
        self.undoing(|w, mark| match (w.insert_entries(record), w.is_related()) {
            (Ok(row_id), true) => rows::written(w.session, w.table, None, Some(record)).map(|()| row_id),
            (Err(error), true) => w.refused(error, mark, None, record),
            (written, false) => written,
        })
    }

    /// Replaces the row `old` by `new`.
    pub fn update(&mut self, old: Former<'_>, new: Record<'_>) -> Result<Updated> {
        if self.table.state.meta.no_rollback {
            return self.autonomous(new, Some(old.row_id)).map(|_| Updated::Changed);
        }
        match self.update_once(old, new) {
            Err(Error::Duplicate(index)) if self.table.expires() => {
                self.over_expired(index, new, |w| w.update_once(old, new))
            }
            Err(Error::Duplicate(index)) if self.table.is_past(new) && !self.table.is_past(old.record) => {
                // There is one like that: of such a row the server is told so, and deletes it (`TABLE::delete_row`).
                Err(self.table.foreign_duplicate(index))
            }
            updated => updated,
        }
    }

    fn update_once(&mut self, old: Former<'_>, new: Record<'_>) -> Result<Updated> {
        if self.is_related() {
            return self.update_related(old, new);
        }
        self.undoing(|w, _| w.update_entries(old, new))
    }

    /// Deletes a row.
    pub fn delete(&mut self, old: Former<'_>) -> Result<()> {
        if self.table.state.meta.no_rollback {
            self.table.clustered.encode_record(old.record, old.row_id, &mut self.buffers.row_key)?;
            return self.write_now((self.buffers.row_key.clone(), None), false);
        }
        if self.is_related() {
            return self.delete_related(old);
        }
        self.undoing(|w, _| w.delete_entries(old))
    }

    /// True if foreign keys are to be followed. Keys of the table itself do not change while it is open, and one that names it from
    /// now on finds the row locked by who has read it to be written.
    #[inline]
    fn is_related(&self) -> bool {
        self.table.state.is_related() && self.session.foreign_key_checks()
    }

    #[cold]
    fn update_related(&mut self, old: Former<'_>, new: Record<'_>) -> Result<Updated> {
        self.undoing(|w, mark| {
            w.refuse_cascaded(old)?;
            match w.update_entries(old, new) {
                Ok(Updated::Changed) => {
                    rows::written(w.session, w.table, Some(old.record), Some(new)).map(|()| Updated::Changed)
                }
                Ok(Updated::Same) => Ok(Updated::Same),
                Err(error) => w.refused(error, mark, Some(old.record), new),
            }
        })
    }

    /// The error of a row that could not be written: of a duplicate, or of a foreign key that is looked at before it. Such keys find the
    /// tables as they were at `mark`.
    #[cold]
    fn refused<T>(&mut self, error: Error, mark: Savepoint, old: Option<Record<'_>>, new: Record<'_>) -> Result<T> {
        if let Error::Duplicate(index) = error {
            self.session.txn_mut().rollback_to(mark);
            rows::duplicate(self.session, self.table, old, new, index)?;
        }
        Err(error)
    }

    #[cold]
    fn delete_related(&mut self, old: Former<'_>) -> Result<()> {
        self.undoing(|w, _| {
            w.refuse_cascaded(old)?;
            w.delete_entries(old)?;
            rows::written(w.session, w.table, Some(old.record), None)
        })
    }

    /// An error if the row, since it was read, has become another by a cascade (of a trigger's statement, which ran in between). Its
    /// entries would not be those of the record.
    fn refuse_cascaded(&mut self, mut old: Former<'_>) -> Result<()> {
        if !rows::has_cascaded(self.session) {
            return Ok(());
        }
        let WriteBuffers { row_key, found, .. } = &mut *self.buffers;
        self.table.clustered.encode_record(old.record, old.row_id, row_key)?;
        old.stored = old.stored.filter(|stored| stored.key == *row_key);
        is_as_read(self.session, self.table, row_key, found, old)
    }

    /// A write of a table without rollback: visible at once, outside of the transaction. Such tables (sequences) have one
    /// row and no secondary index.
    fn autonomous(&mut self, record: Record<'_>, row_id: Option<u64>) -> Result<u64> {
        if !self.table.written.is_empty() {
            return Err(Error::invalid("a table without rollback cannot have secondary indexes"));
        }
        let is_new = row_id.is_none();
        let row_id = match row_id {
            Some(id) => id,
            None => self.new_row_id()?,
        };
        self.table.clustered.encode_record(record, row_id, &mut self.buffers.row_key)?;
        self.buffers.row_value.fill(|out| self.table.row.encode(record, out));
        self.write_now((self.buffers.row_key.clone(), Some(self.buffers.row_value.to_vec())), is_new)?;
        Ok(row_id)
    }

    /// The server hands out a sequence's values up to the mark in its row once the mark is written, also to transactions of
    /// other engines, and no commit of this engine need follow. So the write waits until it is as durable as a commit. A new
    /// row is part of the definition, and durable like that, whatever is set for commits.
    ///
    /// The index is not dropped meanwhile: the statement has the sequence open under the server's metadata lock, for which DROP,
    /// and whatever replaces the sequence, waits; one that is temporary has no other session.
    fn write_now(&self, write: WriteOp, always_durable: bool) -> Result<()> {
        let engine = self.session.engine();
        let write = [write];
        // Waited for without the lock, and until the statement is killed.
        let room = engine.room(Engine::write_bytes(&write), &|| self.session.check_interrupted().is_err())?;
        let written = {
            let _writing = self.table.state.autonomous.lock();
            engine.write_within(room, &write)?
        };
        engine.crash_point(CrashPoint::SequenceOrdered);
        match always_durable {
            true => engine.sync_write(&written)?,
            false => engine.make_durable()?,
        }
        engine.crash_point(CrashPoint::SequenceDurable);
        Ok(())
    }

    fn undoing<T>(&mut self, write: impl FnOnce(&mut Self, Savepoint) -> Result<T>) -> Result<T> {
        let mark = self.session.savepoint();
        let result = write(self, mark);
        if result.is_err() {
            self.session.txn_mut().rollback_to(mark);
        }
        result
    }

    fn new_row_id(&self) -> Result<u64> {
        match self.table.def.primary {
            Some(_) => Ok(0),
            None => self.table.state.next_row_id(&|| self.session.check_interrupted().is_err()),
        }
    }

    /// The row's hidden id, 0 where rows have none.
    pub(crate) fn insert_entries(&mut self, record: Record<'_>) -> Result<u64> {
        let table = self.table;
        let row_id = self.new_row_id()?;
        table.clustered.encode_record(record, row_id, &mut self.buffers.row_key)?;
        if let Some(primary) = table.def.primary {
            claim(self.session, &self.buffers.row_key, &mut self.buffers.found, primary)?;
        } else {
            self.session.intend_insert(&self.buffers.row_key)?;
        }
        if table.state.followed.is_on() {
            if table.def.primary.is_none() {
                // Who follows the table tells by the lock that the row is not committed yet.
                self.session.lock(&self.buffers.row_key, LockMode::Exclusive, Waiting::Wait)?;
            }
            table.state.followed.note(&self.buffers.row_key);
        }
        let apart = encode_row(table, record, &mut self.buffers.row_value)?;
        self.session.overwrites(&self.buffers.row_key)?;
        put_row(self.session.txn_mut(), &self.buffers.row_key, &self.buffers.row_value, &apart)?;
        let WriteBuffers { entry, found, .. } = &mut *self.buffers;
        for index in &table.written {
            let take =
                |entry: &ChangeRoom, claimed| come(self.session, [&entry.key, &entry.value], claimed, index, found);
            index.entries(record, row_id, &mut Each { entry, take })?;
        }
        Ok(row_id)
    }

    pub(crate) fn update_entries(&mut self, old: Former<'_>, new: Record<'_>) -> Result<Updated> {
        let Former { record, row_id, stored } = old;
        let table = self.table;
        let b = &mut *self.buffers;
        table.clustered.encode_record(record, row_id, &mut b.old_row_key)?;
        table.clustered.encode_record(new, row_id, &mut b.row_key)?;
        let apart = encode_row(table, new, &mut b.row_value)?;
        let moved = b.old_row_key != b.row_key;
        let stored = stored.filter(|stored| stored.key == b.old_row_key);
        if !moved
            && let Some(stored) = stored
            && has_values(table, stored.key, stored.row, &b.row_value, &apart)?
        {
            return Ok(Updated::Same);
        }
        hold(self.session, table, &b.old_row_key, &mut b.found, Former { stored, ..old })?;
        if !moved && stored.is_none() && exists(self.session, &b.old_row_key, &mut b.found)? {
            let same = has_values(table, &b.old_row_key, &b.found, &b.row_value, &apart);
            b.found.release();
            if same? {
                return Ok(Updated::Same);
            }
        }
        let all = self.session.overwrites(&b.old_row_key)?;
        if table.state.followed.is_on() {
            table.state.followed.note(&b.old_row_key);
        }
        if moved {
            if let Some(primary) = table.def.primary {
                claim(self.session, &b.row_key, &mut b.found, primary)?;
            }
            if table.state.followed.is_on() {
                table.state.followed.note(&b.row_key);
            }
            self.session.overwrites(&b.row_key)?;
            self.session.txn_mut().delete(&b.old_row_key)?;
        }
        put_row(self.session.txn_mut(), &b.row_key, &b.row_value, &apart)?;
        let rewrite = Rewrite { old: record, new, row_id, all };
        let WriteBuffers { entry, found, .. } = b;
        for index in &table.written {
            index.changes(rewrite, entry, |change| match change {
                Change::Leaves { key, claimed } => leave(self.session, key, claimed),
                Change::Stays { key, value, claimed } => {
                    if claimed {
                        self.session.writes_unique(key)?;
                    }
                    Ok(self.session.txn_mut().put(key, value)?)
                }
                Change::Comes { key, value, claimed } => come(self.session, [key, value], claimed, index, found),
            })?;
        }
        Ok(Updated::Changed)
    }

    pub(crate) fn delete_entries(&mut self, old: Former<'_>) -> Result<()> {
        let Former { record, row_id, stored } = old;
        let table = self.table;
        let b = &mut *self.buffers;
        table.clustered.encode_record(record, row_id, &mut b.row_key)?;
        let stored = stored.filter(|stored| stored.key == b.row_key);
        hold(self.session, table, &b.row_key, &mut b.found, Former { stored, ..old })?;
        self.session.overwrites(&b.row_key)?;
        if table.state.followed.is_on() {
            table.state.followed.note(&b.row_key);
        }
        self.session.txn_mut().delete(&b.row_key)?;
        for index in &table.written {
            let entry = &mut b.entry;
            let take = |entry: &ChangeRoom, claimed| leave(self.session, &entry.key, claimed);
            index.keys(record, row_id, &mut Each { entry, take })?;
        }
        Ok(())
    }
}

/// Encodes a row, without its long values, and checks its size.
pub(crate) fn encode_row<'r>(table: &Table, record: Record<'r>, out: &mut ScratchBuf) -> Result<Apart<'r>> {
    let apart = out.fill(|out| table.row.encode_apart(record, out));
    let bytes = out.len() + apart.len();
    match bytes <= VALUE_BYTES_MAX {
        true => Ok(apart),
        false => Err(Error::RowTooLong { bytes, limit: VALUE_BYTES_MAX }),
    }
}

/// True if a row, as it is stored, has the values of one that `encode_row` has encoded.
#[inline]
fn has_values(table: &Table, key: &[u8], stored: &[u8], bytes: &[u8], apart: &Apart<'_>) -> Result<bool> {
    Ok(apart.equals(bytes, stored)
        || table.row.is_former(stored) && former_has_values(table, key, stored, bytes, apart)?)
}

/// A row of a former schema version may have the same values in other bytes.
#[cold]
fn former_has_values(table: &Table, key: &[u8], stored: &[u8], bytes: &[u8], apart: &Apart<'_>) -> Result<bool> {
    let mut record = vec![0; table.def.record_bytes as usize];
    table
        .row
        .decode(key, stored, &mut record, None)
        .map_err(|error| Error::from(error).read_at(table.engine(), key))?;
    let mut was = ScratchBuf::default();
    // SAFETY: BLOBs lead into `stored`.
    let former = encode_row(table, unsafe { Record::new(&record) }, &mut was)?;
    Ok(match former.is_empty() {
        true => apart.equals(bytes, &was),
        false => apart.equals(bytes, &former.parts(&was).concat()),
    })
}

/// Writes a row that `encode_row` has encoded.
pub(crate) fn put_row(txn: &mut Txn, key: &[u8], bytes: &[u8], apart: &Apart<'_>) -> Result<()> {
    match apart.is_empty() {
        true => txn.put(key, bytes)?,
        false => txn.put_parts(key, &apart.parts(bytes))?,
    }
    Ok(())
}

/// Hands the entries of a row to `take`, each in the room, and whether its value is claimed.
struct Each<'a, F> {
    entry: &'a mut ChangeRoom,
    take: F,
}

impl<F: FnMut(&ChangeRoom, bool) -> Result<()>> Sink for Each<'_, F> {
    #[inline]
    fn room(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        (&mut self.entry.key, &mut self.entry.value)
    }
    #[inline]
    fn take(&mut self, claimed: bool) -> Result<()> {
        (self.take)(self.entry, claimed)
    }
}

/// An entry that a row had not.
#[inline]
fn come(
    session: &mut Session,
    [key, value]: [&[u8]; 2],
    claimed: bool,
    index: &Written,
    found: &mut ValueBuf,
) -> Result<()> {
    if claimed {
        claim(session, key, found, index.number)?;
        session.writes_unique(key)?;
    } else {
        session.intend_insert(key)?;
    }
    Ok(session.txn_mut().put(key, value)?)
}

/// An entry that a row has no more.
#[inline]
fn leave(session: &mut Session, key: &[u8], claimed: bool) -> Result<()> {
    if claimed {
        session.lock(key, LockMode::Exclusive, Waiting::Wait)?;
        session.writes_unique(key)?;
    }
    Ok(session.txn_mut().delete(key)?)
}

/// Announces and locks a key that is to be new, and checks that it is. A key that exists is a duplicate, whoever has locked
/// intervals around it; only the holder of its lock is waited for.
fn claim(session: &mut Session, key: &[u8], found: &mut ValueBuf, index: usize) -> Result<()> {
    let mut announced = session.try_intend_insert(key)?;
    if !announced && !exists(session, key, found)? {
        session.intend_insert(key)?;
        announced = true;
    }
    session.lock(key, LockMode::Exclusive, Waiting::Wait)?;
    if exists(session, key, found)? {
        return Err(Error::Duplicate(index));
    }
    if announced { Ok(()) } else { session.intend_insert(key) }
}

fn exists(session: &Session, key: &[u8], found: &mut ValueBuf) -> Result<bool> {
    Ok(session.txn().get(key, session.engine().visible(), found)?)
}

/// Locks the row that is to be replaced. The read that found it has normally locked it already; if not, it must still be what was
/// read.
fn hold(session: &mut Session, table: &Table, key: &[u8], found: &mut ValueBuf, old: Former<'_>) -> Result<()> {
    if session.holds(key) {
        return Ok(());
    }
    let granted = session.lock(key, LockMode::Exclusive, Waiting::Wait)?;
    if granted.kind != GrantKind::New {
        return Ok(());
    }
    is_as_read(session, table, key, found, old)
}

/// An error unless the row is still what was read: the bytes, or, if these are not at hand, the values.
fn is_as_read(session: &Session, table: &Table, key: &[u8], found: &mut ValueBuf, old: Former<'_>) -> Result<()> {
    let is_same = exists(session, key, found)?
        && match old.stored {
            Some(stored) => **found == *stored.row || table.row.is_renewed(key, stored.row, found)?,
            None => table.row.is_row_of(old.record, key, found)?,
        };
    found.release();
    match is_same {
        true => Ok(()),
        false => Err(kv::Error::Conflict.into()),
    }
}
