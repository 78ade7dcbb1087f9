//! What a reader sees: the memtables and the version, as one immutable value behind an atomic pointer, and the sequence
//! number up to which it may look.
//!
//! A reader loads the pointer once and holds everything it needs by reference count: no lock, no epoch. The writers of
//! the pointer (rotation of the memtable, installation of a flush or a compaction) serialise on a mutex of their own and
//! only ever replace the whole value.
//!
//! Invariant: for every read point that is registered, the versions it needs are reachable from every state that is
//! loaded after its registration.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::base::{Lsn, SeqNo};
use crate::event::FlushReason;
use crate::manifest::{FileEntry, Version};
use crate::mem::{ChunkPool, MemTable};

/// A memtable and what the log needs to know about it.
pub(crate) struct Mem {
    pub table: Arc<MemTable>,
    /// Lowest log position that recovery needs to rebuild this memtable. Lowered when a transaction that was prepared
    /// before the memtable began commits into it.
    min_lsn: AtomicU64,
    /// Last sequence number in it; meaningful once sealed.
    last_seq: AtomicU64,
}

impl Mem {
    /// An empty one that will be sealed at about `seal_bytes`; what commits into it stands in the log from `start` on.
    pub fn new(start: Lsn, seal_bytes: u64, pool: &Arc<ChunkPool>) -> Arc<Mem> {
        let table = MemTable::from_pool(pool, seal_bytes as usize);
        Arc::new(Mem { table, min_lsn: AtomicU64::new(start.0), last_seq: AtomicU64::new(0) })
    }

    pub fn min_lsn(&self) -> Lsn {
        Lsn(self.min_lsn.load(Ordering::Acquire))
    }

    pub fn needs_log_from(&self, lsn: Lsn) {
        self.min_lsn.fetch_min(lsn.0, Ordering::AcqRel);
    }

    /// States the last sequence number in it, or in the files behind it if there are any: nothing is added any more.
    pub fn seal(&self, last: SeqNo) {
        self.last_seq.store(last.0, Ordering::Release);
    }

    pub fn last_seq(&self) -> SeqNo {
        SeqNo(self.last_seq.load(Ordering::Acquire))
    }
}

/// A memtable that gets no more commits.
#[derive(Clone)]
pub(crate) struct Sealed {
    pub mem: Arc<Mem>,
    /// The files, in key order, of the large transaction whose commit ended the memtable; newer than all in it.
    pub files: Arc<[Arc<FileEntry>]>,
    /// Why it was sealed.
    pub reason: FlushReason,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct ReadState {
    pub active: Arc<Mem>,
    /// Newest first.
    pub sealed: Vec<Sealed>,
    pub version: Arc<Version>,
}

impl ReadState {
    /// Memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Mem>> {
        std::iter::once(&self.active).chain(self.sealed.iter().map(|sealed| &sealed.mem))
    }

    /// Bytes of all memtables.
    pub fn memtable_bytes(&self) -> u64 {
        self.memtables().map(|m| m.table.bytes() as u64).sum()
    }
}

/// Memory for memtables that are sealed at `seal_bytes`.
pub(crate) fn chunk_pool(seal_bytes: u64) -> Arc<ChunkPool> {
    // Huge pages from 2 MiB on; smaller where a chunk would be a large part of the memtable.
    let chunk = (seal_bytes / 16).clamp(32 << 10, 2 << 20).next_power_of_two();
    ChunkPool::new(chunk as usize, seal_bytes as usize)
}

/// The pointer and the right to change it.
pub(crate) struct StateCell {
    current: ArcSwap<ReadState>,
    /// Newest sequence number that readers may use.
    visible: AtomicU64,
    change: Mutex<()>,
    /// Replacements of the value so far.
    changes: AtomicU64,
    /// Flushes that were installed.
    flushes: AtomicU64,
    /// Memtables that are in SSTs but may be held by cursors.
    flushed: Mutex<Vec<Weak<MemTable>>>,
    /// Memory of memtables that are gone, for those to come. Another pool takes its place when memtables have become larger
    /// or smaller: one chunk of a large memtable may be more than the whole budget of small ones.
    pool: Mutex<Arc<ChunkPool>>,
}

impl StateCell {
    pub fn new(state: ReadState, visible: SeqNo, pool: Arc<ChunkPool>) -> StateCell {
        StateCell {
            current: ArcSwap::from_pointee(state),
            visible: AtomicU64::new(visible.0),
            change: Mutex::new(()),
            changes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            flushed: Mutex::default(),
            pool: Mutex::new(pool),
        }
    }

    /// Newest sequence number that readers may use.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        SeqNo(self.visible.load(Ordering::Acquire))
    }

    /// Shows readers everything up to `seq`, which is more than they saw, all in a memtable.
    pub fn show(&self, seq: SeqNo) {
        self.visible.store(seq.0, Ordering::Release);
    }

    /// Bytes that wait for memtables to come.
    pub fn unused_bytes(&self) -> u64 {
        self.pool.lock().unused_bytes() as u64
    }

    /// Counts the flushes: a state that was pinned after the last of them has no memtable that is in SSTs.
    #[inline]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Bytes of memtables that are in SSTs already, and that cursors hold.
    pub fn pinned_bytes(&self) -> u64 {
        let mut flushed = self.flushed.lock();
        flushed.retain(|table| table.strong_count() > 0);
        flushed.iter().filter_map(Weak::upgrade).map(|table| table.bytes() as u64).sum()
    }

    /// Cheap access for the duration of one read.
    pub fn load(&self) -> arc_swap::Guard<Arc<ReadState>> {
        self.current.load()
    }

    /// A pin for as long as a cursor lives.
    pub fn pin(&self) -> Arc<ReadState> {
        self.current.load_full()
    }

    fn change(&self, edit: impl FnOnce(&mut ReadState)) {
        let _guard = self.change.lock();
        let mut next = ReadState::clone(&self.current.load());
        edit(&mut next);
        self.current.store(Arc::new(next));
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Counts the changes of which files and memtables there are.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Seals the active memtable, whose last sequence number is `last`, and starts a new one. Called under the commit
    /// order lock, so that memtable order equals sequence order. `files` are those of the commit `last`, if it is that of
    /// a large transaction.
    pub fn rotate(
        &self,
        last: SeqNo,
        log_end: Lsn,
        seal_bytes: u64,
        files: Arc<[Arc<FileEntry>]>,
        reason: FlushReason,
    ) {
        let pool = {
            let mut pool = self.pool.lock();
            if pool.keep_bytes() as u64 != seal_bytes {
                *pool = chunk_pool(seal_bytes);
            }
            pool.clone()
        };
        self.change(|state| {
            state.active.seal(last);
            let mem = std::mem::replace(&mut state.active, Mem::new(log_end, seal_bytes, &pool));
            state.sealed.insert(0, Sealed { mem, files, reason });
        });
    }

    /// Installs a version and drops the oldest `flushed` sealed memtables, whose contents it holds.
    pub fn install(&self, version: Arc<Version>, flushed: usize) {
        self.change(|state| {
            state.version = version;
            let keep = state.sealed.len() - flushed;
            let mut held = self.flushed.lock();
            held.retain(|table| table.strong_count() > 0);
            held.extend(state.sealed.drain(keep..).map(|sealed| Arc::downgrade(&sealed.mem.table)));
        });
        if flushed > 0 {
            self.flushes.fetch_add(1, Ordering::Release);
        }
    }
}
