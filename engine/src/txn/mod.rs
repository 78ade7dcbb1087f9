//! Transactions: a write buffer, row locks, savepoints, and the way through prepare and commit.
//!
//! A large transaction spills its write buffer to private files (`crate::spill`). Its log record names the files instead of
//! holding the writes, and the commit puts them beside the memtables: its memory, its part of the log and the serial step
//! do not grow with it. The files belong to the transaction until its order is fixed, or a log record that may be durable
//! names them.
//!
//! A transaction reads committed data at read points that its caller chooses (the isolation level is the caller's
//! business) and its own writes before them. It locks what the caller asks it to lock; locks are held until the
//! transaction is visible or rolled back.
//!
//! States: active -> (prepared -> ordered) -> finished. A finished transaction may be used again.

pub(crate) mod cursor;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::interrupt::interruptible;
use crate::base::limits::{check_key, check_value};
use crate::base::slots::LARGE;
use crate::base::value::ValueOut;
use crate::base::{Error, IndexId, Kind, Lsn, Result, SeqNo, TxnId, tally};
use crate::budget::spills;
use crate::commit::{Committer, Ordered};
use crate::compact::merge::MergeEnv;
use crate::crash_point::CrashPoint;
use crate::event::Work;
use crate::journal::{Detached, Durable};
use crate::lock::{Granted, LockMode, LockOwner, RangeGrant, Wait};
use crate::output::write_private;
use crate::parts::Core;
use crate::read::{deliver, deliver_pinned};
use crate::spill::SpilledRuns;
use crate::sst::SstMeta;
use crate::value::Value;
use crate::wal::Room;
use crate::write_buffer::{Savepoint, WriteBuffer, encode_files};
pub use cursor::Cursor;

enum State {
    Active,
    Prepared {
        id: TxnId,
        xid: Vec<u8>,
        /// Where its prepare record ends.
        end: Lsn,
    },
    /// Its order is fixed; `commit` makes it visible. An error means that the log refused the commit record.
    Ordered(Result<Ordered>),
    /// It is durably prepared, the server repeats its decision to commit it after the next start, and until then nobody
    /// sees it: the log refused the commit record, since it has stopped.
    Decided,
}

/// A transaction. Used by one thread at a time.
pub struct Txn {
    core: Arc<Core>,
    pub(crate) buffer: WriteBuffer,
    /// Operations before those in the buffer.
    pub(crate) runs: SpilledRuns,
    owner: Arc<LockOwner>,
    state: State,
    /// See `decide_here`.
    decides: bool,
    /// What of the buffer is counted in `Core::write_buffer_bytes`.
    counted: usize,
    /// Up to this size of the buffer there is nothing to count or to write to files.
    roomy: usize,
    /// Drops of indexes at its beginning or before.
    drops: u64,
}

/// Steps in which write buffers are counted, in bytes; one below the first is not: most transactions touch no common counter.
const COUNT_STEP: usize = 8 << 10;

impl Txn {
    pub(crate) fn new(core: Arc<Core>) -> Txn {
        let owner = core.locks.new_owner();
        let runs = SpilledRuns::new(core.tree.ssts.clone(), core.tree.obsolete_files.clone());
        let roomy = COUNT_STEP.min(core.settings.transaction_bytes());
        let buffer = WriteBuffer::new();
        let drops = core.tree.installer.drops();
        Txn { core, buffer, runs, owner, state: State::Active, decides: false, counted: 0, roomy, drops }
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        match self.state {
            State::Active => Ok(()),
            _ => Err(Error::Invalid("write in a transaction that is already prepared".into())),
        }
    }

    /// Writes `value` under `key`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() >= LARGE {
            return self.put_parts(key, &[value]);
        }
        self.check_key(key)?;
        self.make_room(key.len() + value.len())?;
        self.buffer.push(Kind::Put, key, value);
        tally::note_written();
        self.owner.set_weight(self.buffer.savepoint().0);
        Ok(())
    }

    /// Writes a value that is in pieces. A large one is nowhere put together: it goes from where it is to a file.
    pub fn put_parts(&mut self, key: &[u8], parts: &[&[u8]]) -> Result<()> {
        self.check_key(key)?;
        let bytes = parts.iter().map(|part| part.len()).sum();
        check_value(bytes)?;
        if bytes >= self.core.settings.transaction_bytes().max(LARGE) {
            self.spill_value(key, bytes, parts)?;
        } else {
            self.make_room(key.len() + bytes)?;
            let append = |to: &mut Vec<u8>| parts.iter().for_each(|part| to.extend_from_slice(part));
            self.buffer.push_parts(Kind::Put, key, bytes, append);
        }
        tally::note_written();
        self.owner.set_weight(self.buffer.savepoint().0);
        Ok(())
    }

    /// Deletes `key`, whether it exists or not.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.check_key(key)?;
        self.make_room(key.len())?;
        self.buffer.push(Kind::Delete, key, &[]);
        tally::note_written();
        self.owner.set_weight(self.buffer.savepoint().0);
        Ok(())
    }

    /// Before `bytes` are added to the write buffer.
    #[inline]
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.buffer.memory() + bytes < self.roomy { Ok(()) } else { self.grow(bytes) }
    }

    /// Counts what is going to be in the write buffer, or moves what is there to files.
    #[cold]
    fn grow(&mut self, bytes: usize) -> Result<()> {
        let (full, budget) = (self.core.settings.transaction_bytes(), self.core.settings.memtable_budget());
        let size = self.buffer.memory() + bytes;
        let all = self.count(size.next_multiple_of(COUNT_STEP).max(self.counted));
        // What comes counts in advance only if it is much.
        let own = if bytes < LARGE { self.buffer.memory() } else { size } as u64;
        if !self.buffer.is_empty() && spills(own, full as u64, all, budget) {
            let crowded = !spills(own, full as u64, 0, budget);
            self.spill()?;
            if crowded {
                self.buffer.shrink();
                self.count(0);
            }
        }
        self.roomy = (self.buffer.memory() + bytes).next_multiple_of(COUNT_STEP).max(self.counted).min(full);
        Ok(())
    }

    /// Counts so many bytes for the write buffer; what all transactions have together now.
    fn count(&mut self, bytes: usize) -> u64 {
        let all = &self.core.write_buffer_bytes;
        let before = std::mem::replace(&mut self.counted, bytes) as u64;
        // Wraps where it becomes less.
        let change = (bytes as u64).wrapping_sub(before);
        all.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// The write buffer as new, for the next transaction.
    fn renew_buffer(&mut self) {
        self.buffer.renew();
        if self.counted > 0 {
            self.count(0);
            self.roomy = COUNT_STEP.min(self.core.settings.transaction_bytes());
        }
    }

    /// Writes a large value to a file. On failure nothing has changed but that older operations may be in files too.
    #[cold]
    fn spill_value(&mut self, key: &[u8], bytes: usize, parts: &[&[u8]]) -> Result<()> {
        if !self.buffer.is_empty() {
            self.spill()?;
        }
        let core = self.core.clone();
        core.pass(bytes as u64, &|| self.owner.is_interrupted())?;
        let kept = self.buffer.begin().0;
        let spilled = self.with_files(|runs, _, env| runs.spill_value(key, kept + 1, parts, env));
        if spilled.is_err() {
            // The file may be there, though not for certain after a crash.
            self.runs.rollback_to(kept);
            return spilled;
        }
        self.buffer.skip();
        let tidied = self.tidy();
        if tidied.is_err() {
            self.rollback_to(Savepoint(kept));
        }
        tidied
    }

    /// Merges runs where there are many.
    fn tidy(&mut self) -> Result<()> {
        if self.runs.is_tidy() {
            return Ok(());
        }
        let core = self.core.clone();
        self.with_files(|runs, _, env| runs.tidy(core.settings.sst_bytes(), env))
    }

    /// Moves what is in the write buffer to files. On failure nothing has changed.
    #[cold]
    fn spill(&mut self) -> Result<()> {
        let core = self.core.clone();
        // What an ordinary commit pays for as many bytes.
        core.pass(self.buffer.bytes() as u64, &|| self.owner.is_interrupted())?;
        let spilled =
            self.with_files(|runs, buffer, env| runs.spill(buffer.versions(), core.settings.sst_bytes(), env));
        if spilled.is_err() {
            // The files may be there, though not for certain after a crash.
            self.runs.rollback_to(self.buffer.begin().0);
            return spilled;
        }
        self.buffer.spilled();
        self.tidy()
    }

    /// Does work on the runs, as long as nobody interrupts the transaction.
    fn with_files<R>(
        &mut self,
        work: impl FnOnce(&mut SpilledRuns, &WriteBuffer, &MergeEnv<'_>) -> Result<R>,
    ) -> Result<R> {
        let (core, owner) = (&self.core, &self.owner);
        let (runs, buffer) = (&mut self.runs, &self.buffer);
        let tick = || if owner.is_interrupted() { Err(Error::Interrupted) } else { Ok(()) };
        let done = write_private(core, tick, |env| interruptible(owner.interrupt_flag(), || work(runs, buffer, env)));
        let done = done.inspect_err(|error| core.refused(Work::Spill, core.settings.transaction_bytes(), error))?;
        core.board.count_spill(self.runs.take_written_bytes());
        Ok(done)
    }

    /// True if this transaction itself wrote `key`.
    pub fn wrote(&self, key: &[u8]) -> Result<bool> {
        Ok(self.buffer.get(key).is_some() || self.runs.get(key, SeqNo::MAX.0)?.is_some())
    }

    /// Reads `key`: its own write, else the newest version at or below `read` (`SeqNo::MAX`: the newest committed one).
    /// True if there is a value, which is then in `out`.
    pub fn get(&self, key: &[u8], read: SeqNo, out: &mut impl ValueOut) -> Result<bool> {
        if let Some(op) = self.buffer.get(key) {
            return Ok(deliver(self.buffer.kind(op), self.buffer.value(op), out));
        }
        interruptible(self.owner.interrupt_flag(), || {
            if let Some((kind, value)) = self.runs.get(key, SeqNo::MAX.0)? {
                return Ok(deliver_pinned(kind, value, out));
            }
            crate::read::get(&self.core.tree, key, read, out)
        })
    }

    /// As [`Txn::get`], with what holds the value instead of a copy.
    pub(crate) fn pin(&self, key: &[u8], read: SeqNo) -> Result<Option<Value>> {
        if let Some(op) = self.buffer.get(key) {
            return Ok((self.buffer.kind(op) == Kind::Put).then(|| Value::copy(self.buffer.value(op))));
        }
        if let Some((kind, value)) = self.runs.get(key, SeqNo::MAX.0)? {
            return Ok((kind == Kind::Put).then(|| Value::in_block(value)));
        }
        crate::read::pin(&self.core.tree, key, read)
    }

    /// Locks `key` until the transaction ends.
    pub fn lock(&mut self, key: &[u8], mode: LockMode, wait: Wait) -> Result<Granted> {
        self.core.locks.lock(&self.owner, key, mode, wait)
    }

    /// Gives one lock back early. Only for locks whose row was not written.
    pub fn unlock(&mut self, key: &[u8]) {
        self.core.locks.unlock(&self.owner, key);
    }

    /// Waits until nobody else has locked the interval that `key`, which is to be new in its index, falls into. Before the key
    /// is locked and put. True if it waited.
    pub fn intend_insert(&mut self, key: &[u8], wait: Wait) -> Result<bool> {
        self.core.locks.intend_insert(&self.owner, key, wait)
    }

    /// Announces a scan of `index` that locks what it reads; see [`Txn::lock_range`].
    pub fn range_version(&mut self, index: IndexId) -> u64 {
        self.core.locks.range_version(&self.owner, index)
    }

    /// Locks the interval `[from, to)` of one index against new keys until the transaction ends. The transaction has read it
    /// at a read point taken after `range_version` returned `read`.
    pub fn lock_range(&mut self, from: &[u8], to: &[u8], read: u64) -> RangeGrant {
        self.core.locks.lock_range(&self.owner, from, to, read)
    }

    /// The first key in `[from, to)` of one index that another transaction is bringing in. Its end is waited for by locking that
    /// key, which may be a stand-in for many. Nothing is locked here. `None`: what is read from now on is all that came before.
    pub fn inserting(&mut self, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
        self.core.locks.inserting(&self.owner, from, to)
    }

    /// The owner of its locks; `LockOwner::interrupt` ends its waits from another thread.
    pub fn owner(&self) -> &Arc<LockOwner> {
        &self.owner
    }

    /// A point to which `rollback_to` can return.
    pub fn savepoint(&self) -> Savepoint {
        self.buffer.savepoint()
    }

    /// Undoes all writes after `savepoint`. Locks stay.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        let in_runs = savepoint < self.buffer.begin();
        self.buffer.rollback_to(savepoint);
        if in_runs {
            self.runs.rollback_to(savepoint.0);
            self.core.board.wake_cleaner();
        }
    }

    /// True if there is anything to commit.
    pub fn has_writes(&self) -> bool {
        !self.buffer.is_empty() || !self.runs.is_empty()
    }

    /// True between `prepare` and the end.
    pub fn is_prepared(&self) -> bool {
        matches!(self.state, State::Prepared { .. })
    }

    /// First phase: the writes and the id are in the log, as durable as the store's durability says, when this returns.
    /// A transaction without writes prepares to nothing.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        if !matches!(self.state, State::Active) {
            return Err(Error::Invalid("transaction is already prepared".into()));
        }
        self.forget_dropped();
        if !self.has_writes() {
            return Ok(());
        }
        self.core.crash_point(CrashPoint::PrepareBegins);
        let (batch, room): (Arc<[u8]>, _) = if self.runs.is_empty() {
            let room = admit(&self.core, &self.buffer, xid.len(), &self.owner)?;
            (self.buffer.encode().into(), room)
        } else {
            let batch = encode_files(&self.finish_files()?);
            let room = self.core.reserve(batch.len() + xid.len())?;
            (batch.into(), room)
        };
        let prepared = self.core.journal.committer.prepare(xid, batch);
        let (id, end) = prepared.inspect_err(|_| self.core.journal.log.tell_stopped())?;
        drop(room);
        // Whatever the sync says, the record may be durable: from here on the transaction counts as prepared.
        self.state = State::Prepared { id, xid: xid.to_vec(), end };
        self.core.crash_point(CrashPoint::PrepareLogged);
        self.core.journal.make_durable(end)?;
        self.core.crash_point(CrashPoint::PrepareDurable);
        Ok(())
    }

    /// Gives back the locked intervals of a transaction that reads no more, since it has been prepared: others may insert there. What it
    /// has locked or written itself stays its own.
    pub fn unlock_ranges(&mut self) {
        self.core.locks.unlock_ranges(&self.owner);
    }

    /// After a crash nobody repeats the decision about this transaction: its commit is durable when `commit` returns, also
    /// after `commit_ordered`.
    pub fn decide_here(&mut self) {
        self.decides = true;
    }

    /// Fixes the place of a prepared transaction in the order of commits. No I/O and no failure: an error of the log is
    /// kept for `commit`.
    pub fn commit_ordered(&mut self) {
        let State::Prepared { id, end, .. } = self.state else { return };
        let core = &self.core;
        let ordered = core.order(|committer| committer.order_prepared(id));
        // Even if the log refuses: its prepare record names the files.
        self.runs.release();
        self.state = match ordered {
            // The store has stopped between the prepare and the decision, which is durable elsewhere. The next start finds
            // the prepare record and is told the decision: it would be wrong to say that the transaction failed.
            Err(_) if !self.decides && core.journal.log.durable() >= end => State::Decided,
            ordered => State::Ordered(ordered),
        };
    }

    /// Commits: finishes what `commit_ordered` began, or does everything in one phase. When this returns `Ok` the writes
    /// are visible, and durable as the store's durability says (after `commit_ordered`: the prepare was, and whoever called
    /// that repeats the decision after a crash). The transaction is empty and active again in every case.
    pub fn commit(&mut self) -> Result<()> {
        if self.is_prepared() {
            self.decides = true;
            self.commit_ordered();
        }
        if let State::Decided = self.state {
            self.end();
            return Ok(());
        }
        if let State::Ordered(_) = self.state {
            return self.finish_ordered(if self.decides { Durable::AsSet } else { Durable::Elsewhere });
        }
        self.forget_dropped();
        if !self.has_writes() {
            self.end();
            return Ok(());
        }
        let result = if self.runs.is_empty() { self.commit_one_phase() } else { self.commit_files() };
        self.end();
        // The log may have stopped within the order of commits, under whose lock nobody is told.
        result.inspect_err(|_| self.core.journal.log.tell_stopped())
    }

    /// Takes back what it has written to indexes that were dropped since (temporary tables of its session): committed, it
    /// would stay for ever.
    #[inline]
    fn forget_dropped(&mut self) {
        let drops = self.core.tree.installer.drops();
        if self.drops != drops {
            self.drops = drops;
            let installer = &self.core.tree.installer;
            self.buffer.forget(|id| installer.is_void(id));
            if !self.runs.is_empty() {
                self.runs.forget(|id| installer.is_void(id));
                self.core.board.wake_cleaner();
            }
        }
    }

    fn commit_one_phase(&mut self) -> Result<()> {
        let core = self.core.clone();
        let room = admit(&core, &self.buffer, 0, &self.owner)?;
        let batch = self.buffer.encode();
        let order = |committer: &Committer| {
            let ordered = committer.order_batch(batch)?;
            drop(room);
            Ok(ordered)
        };
        core.commit(order, Some(batch), Some(&self.owner), Durable::AsSet)?;
        Ok(())
    }

    /// Everything in files, ready to be taken over.
    fn finish_files(&mut self) -> Result<Vec<SstMeta>> {
        if !self.buffer.is_empty() {
            self.spill()?;
        }
        let core = self.core.clone();
        self.with_files(|runs, _, env| runs.finish(core.settings.sst_bytes(), env))
    }

    fn commit_files(&mut self) -> Result<()> {
        let files = self.finish_files()?;
        if files.is_empty() {
            // All were of indexes that are gone.
            return self.commit_one_phase();
        }
        let batch = encode_files(&files);
        let core = self.core.clone();
        core.crash_point(CrashPoint::FilesWritten);
        let room = core.reserve(batch.len())?;
        let order = |committer: &Committer| {
            let ordered = committer.order_files(&batch, files)?;
            self.runs.release();
            drop(room);
            Ok(ordered)
        };
        core.commit(order, None, Some(&self.owner), Durable::AsSet)?;
        Ok(())
    }

    fn finish_ordered(&mut self, durable: Durable) -> Result<()> {
        let State::Ordered(ordered) = std::mem::replace(&mut self.state, State::Active) else { return Ok(()) };
        let result = ordered.and_then(|ordered| self.core.finish_commit(&ordered, None, Some(&self.owner), durable));
        self.end();
        result
    }

    /// Undoes everything and releases the locks.
    pub fn rollback(&mut self) -> Result<()> {
        let was_prepared = self.is_prepared();
        let state = std::mem::replace(&mut self.state, State::Active);
        let result = match state {
            State::Active => {
                if self.has_writes() {
                    self.core.journal.committer.count_rollback();
                }
                Ok(())
            }
            State::Prepared { id, .. } => self.rollback_prepared(id),
            // The order is fixed: the transaction is committed and can only go forward.
            State::Ordered(ordered) => {
                self.state = State::Ordered(ordered);
                return self.finish_ordered(Durable::Elsewhere);
            }
            State::Decided => Ok(()),
        };
        self.end();
        if was_prepared {
            self.core.crash_point(CrashPoint::RolledBack);
        }
        result
    }

    fn rollback_prepared(&mut self, id: TxnId) -> Result<()> {
        let undone = self.core.undo_prepared(id);
        let result = undone.and_then(|undone| self.core.finish_rollback(&undone, &self.owner, Durable::AsSet));
        if result.is_err() {
            self.runs.release();
        }
        match result {
            // The server has not decided to commit it, and at the next start will not find that it has.
            Err(Error::Poisoned(_)) if !self.decides => Ok(()),
            result => result,
        }
    }

    /// Hands a prepared transaction over to the engine, which keeps it, with its locks, under its xid.
    pub fn detach(&mut self) {
        if let State::Prepared { id, xid, .. } = std::mem::replace(&mut self.state, State::Active) {
            let owner = std::mem::replace(&mut self.owner, self.core.locks.new_owner());
            self.core.journal.detach(xid, Detached { id, owner, is_recovered: false });
            self.renew_buffer();
            self.decides = false;
            self.runs.release();
        }
    }

    fn end(&mut self) {
        if !self.runs.is_empty() {
            self.runs.discard();
            self.core.board.wake_cleaner();
        }
        self.core.locks.release_all(&self.owner);
        self.owner = self.core.locks.new_owner();
        self.renew_buffer();
        self.state = State::Active;
        self.decides = false;
        self.drops = self.core.tree.installer.drops();
    }
}

/// Lets a transaction with these writes pass. On a full disk one that adds no key (an UPDATE, a DELETE) may use more of the
/// log than others, and memory above the budget: not much, since the log is full soon.
fn admit<'a>(core: &'a Arc<Core>, buffer: &WriteBuffer, more: usize, owner: &LockOwner) -> Result<Room<'a>> {
    let bytes = buffer.bytes() + more;
    core.admit(bytes, &|| owner.is_interrupted()).or_else(|error| {
        let exists = |key| crate::read::get(&core.tree, key, SeqNo::MAX, &mut Vec::new()).unwrap_or(false);
        let stays = |(kind, key)| kind == Kind::Delete || exists(key);
        match error.is_disk_full() && buffer.writes().all(stays) {
            true => core.journal.log.reserve_stay(bytes).map_err(|_| error),
            false => Err(error),
        }
    })
}

impl Drop for Txn {
    fn drop(&mut self) {
        match &self.state {
            State::Prepared { .. } => self.detach(),
            State::Ordered(_) => drop(self.finish_ordered(Durable::Elsewhere)),
            State::Active | State::Decided => {}
        }
        self.count(0);
        self.core.locks.release_all(&self.owner);
    }
}
