//! The parts of an open store, and the few things that take more than one of them.
//!
//! ```text
//! tree      what readers see: memtables, SSTs, read points; who changes the set of files     crate::tree
//! journal   what makes it durable: log, order of commits, prepared transactions              crate::journal
//! locks     who may write and read with locks                                                crate::lock
//! board     what background work there is                                                    crate::board
//! ```
//!
//! None of these knows another but the journal, which commits into the tree's state. Reads take the tree alone. Admission of
//! writes, output of files, transactions and background threads stand above, and the façade above them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Error, IndexId, Lsn, Result, TxnId, slots};
use crate::board::WorkBoard;
use crate::budget::{Beside, cache_capacity, lent};
use crate::cache::Holder;
use crate::commit::{Committer, Ordered};
use crate::crash_point::CrashPoint;
use crate::event::{FlushReason, Teller, Work};
use crate::journal::{Durable, Journal};
use crate::lock::{LockOwner, LockTable};
use crate::options::Options;
use crate::reencryption::{self, Reencryption};
use crate::renewal::Renewals;
use crate::settings::Settings;
use crate::sst::{SstMeta, pinned_block_bytes};
use crate::tree::Tree;
use crate::write_buffer::files_of;

/// Dead rows that a seek may step over, some tenths of a millisecond, before something is done about them.
pub(crate) const DEAD_RUN: u64 = 4096;
/// Keys looked at to find out whether they lie in the memtable.
const DEAD_RUN_SAMPLE: u64 = 64;

/// A prepared transaction whose rollback is in the log.
pub(crate) struct Undone {
    /// Where its record ends.
    end: Lsn,
    /// What the transaction had written.
    pub batch: Arc<[u8]>,
}

/// See the module.
pub(crate) struct Core {
    pub options: Options,
    pub settings: Arc<Settings>,
    pub tree: Tree,
    pub journal: Journal,
    pub locks: LockTable,
    pub board: WorkBoard,
    /// Indexes whose values are written anew.
    pub renewals: Renewals,
    /// Files that are not encrypted as they should be.
    pub reencryption: Reencryption,
    /// Whom to tell what happens.
    pub events: Teller,
    /// Bytes of the write buffers of open transactions, in steps.
    pub write_buffer_bytes: AtomicU64,
    /// Held while the store is open.
    pub _dir_lock: Box<dyn Send + Sync>,
}

impl Core {
    /// Leaves the block cache what its budget and the memtables' have for it.
    pub fn share_memory(&self) {
        let cache = &self.tree.ssts.cache;
        let state = self.tree.states.load();
        let beside = Beside {
            tables: state.version.sst_bytes(),
            log: self.journal.log.buffer_bytes(),
            buffers: self.write_buffer_bytes.load(Ordering::Relaxed),
            pinned: self.tree.states.pinned_bytes() + pinned_block_bytes(),
            large: slots::large_bytes() as u64
                + [Holder::Bypass, Holder::ReadAhead].iter().map(|&of| cache.held_bytes(of)).sum::<u64>(),
            compactors: self.board.compactors() as u64,
        };
        let lent = lent(self.settings.memtable_budget(), state.memtable_bytes());
        cache.set_capacity(cache_capacity(self.settings.cache_budget(), lent, beside) as usize);
    }

    /// Whether a file is not encrypted as it should be.
    pub fn is_stale(&self, meta: &SstMeta) -> bool {
        let is_dropped = |id| self.tree.installer.is_dropped(id);
        reencryption::is_stale(meta, &self.settings, &self.tree.ssts.keys, &is_dropped)
    }

    /// Tells whoever watches that a transaction has come to this crash point.
    #[inline]
    pub fn crash_point(&self, point: CrashPoint) {
        if let Some(hook) = &self.options.on_crash_point {
            hook(point);
        }
    }

    /// Work on `bytes` for a caller, who has the error, is told if a full disk refused it.
    #[cold]
    pub fn refused(&self, work: Work, bytes: usize, error: &Error) {
        if error.is_disk_full() {
            self.events.failed(work, bytes as u64, error, self.options.clock.now_us());
        }
    }

    /// Cheap; wakes the flusher if there is something to flush.
    pub fn after_commit(&self) {
        let state = self.tree.states.load();
        let mut wake = !state.sealed.is_empty();
        if state.active.table.bytes() as u64 > self.settings.memtable_budget() / 2 {
            // Nobody may come to seal it, and it has twice what it should: a long value at the end.
            self.journal.committer.seal_full(&state.active);
            wake = true;
        }
        if wake {
            self.board.wake_flush();
        }
    }

    /// A commit, from its place in the order on: ordered, visible, its locks free, durable. `order` gives it its place. `batch` is
    /// what it has ordered by `Committer::order_batch`. The store's own writes have no owner.
    #[inline]
    pub fn commit(
        &self,
        order: impl FnOnce(&Committer) -> Result<Ordered>,
        batch: Option<&[u8]>,
        owner: Option<&Arc<LockOwner>>,
        durable: Durable,
    ) -> Result<Ordered> {
        let ordered = match owner {
            Some(_) => self.order(order)?,
            None => order(&self.journal.committer)?,
        };
        self.finish_commit(&ordered, batch, owner, durable)?;
        Ok(ordered)
    }

    /// The first step of a transaction's commit. With the binlog it comes alone, in the binlog's order.
    #[inline]
    pub fn order(&self, order: impl FnOnce(&Committer) -> Result<Ordered>) -> Result<Ordered> {
        self.crash_point(CrashPoint::OrderBegins);
        let ordered = order(&self.journal.committer)?;
        self.crash_point(CrashPoint::Ordered);
        Ok(ordered)
    }

    /// The other steps: what is ordered becomes visible, then the locks of its transaction are free (invariant 4), and then it
    /// is made durable. If that fails, it is visible and the store has stopped.
    #[inline]
    pub fn finish_commit(
        &self,
        ordered: &Ordered,
        batch: Option<&[u8]>,
        owner: Option<&Arc<LockOwner>>,
        durable: Durable,
    ) -> Result<()> {
        match batch {
            Some(batch) => self.journal.committer.apply_own(ordered, batch),
            None => self.journal.committer.publish(ordered.seq),
        }
        self.after_commit();
        if let Some(owner) = owner {
            self.locks.release_all(owner);
            self.crash_point(CrashPoint::CommitVisible);
        }
        if durable != Durable::Elsewhere {
            self.journal.sync_as(ordered.log_end, durable)?;
            self.crash_point(CrashPoint::CommitDurable);
        }
        Ok(())
    }

    /// Logs that a prepared transaction is rolled back. If that fails it is still prepared.
    pub fn undo_prepared(&self, id: TxnId) -> Result<Undone> {
        self.crash_point(CrashPoint::RollbackBegins);
        let (end, batch) = self.journal.committer.rollback_prepared(id)?;
        self.crash_point(CrashPoint::RollbackLogged);
        Ok(Undone { end, batch })
    }

    /// The other steps of a rollback: the locks are free, and it is durable. The files that a large transaction had written may
    /// go only when nothing durable asks for them any more, so that is then synced; they are left to the caller.
    pub fn finish_rollback(&self, undone: &Undone, owner: &Arc<LockOwner>, durable: Durable) -> Result<()> {
        self.locks.release_all(owner);
        let is_large = files_of(&undone.batch).is_none_or(|files| !files.is_empty());
        let durable = if is_large { Durable::Synced } else { durable };
        self.journal.sync_as(undone.end, durable)
    }

    /// Deletes the files of a large transaction that was rolled back for good. Nobody reads them.
    pub fn give_up_files(&self, batch: &[u8]) {
        let files = files_of(batch).unwrap_or_default();
        files.iter().for_each(|meta| self.tree.obsolete_files.add(meta.no));
        if !files.is_empty() {
            self.board.wake_cleaner();
        }
    }

    /// See `Engine::drop_indexes`.
    pub fn drop_indexes(&self, ids: &[IndexId]) -> Result<()> {
        let recorded = || {
            self.crash_point(CrashPoint::DropRecorded);
            self.journal.committer.last_assigned()
        };
        self.tree.installer.drop_indexes(ids, recorded).inspect_err(|error| self.refused(Work::Record, 0, error))?;
        self.board.wake_cleaner();
        Ok(())
    }

    /// A seek found `DEAD_RUN` dead rows or more in `[from, to)`. If they lie in the active memtable, as at the head of a
    /// table that is used as a queue, it is sealed early: its flush drops rows that came and went in it. Others are
    /// the business of compaction, which counts tombstones as garbage.
    #[cold]
    pub fn passed_dead_run(&self, from: &[u8], to: &[u8]) {
        let state = self.tree.states.load();
        // While a flush is under way, the run may lie in what it is about to drop.
        if !state.sealed.is_empty() {
            return;
        }
        let found = state.active.table.estimate(from, to, |nodes, _| nodes >= DEAD_RUN_SAMPLE);
        if found.keys >= DEAD_RUN / 2 {
            self.journal.committer.seal(FlushReason::DeadRows);
            self.board.wake_flush();
        }
    }
}
