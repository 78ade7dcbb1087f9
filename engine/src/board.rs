//! The board of background work: what runs, what failed, how far it lags behind, and who is to wake up.
//!
//! It stands below those who wake the threads (commits, transactions, drops) and below the threads, so that neither knows
//! the other. It decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::{Error, Result};
use crate::compact::pick::{CompactionJob, LEVELS, Scores};
use crate::compact::quarantine::Quarantine;

/// What runs and what failed.
#[derive(Default)]
pub(crate) struct Shared {
    pub stopping: bool,
    /// A background thread panicked: the store has stopped writing.
    pub failed: Option<Error>,
    /// Somebody waits for a flush: do not sit out the pause after a failure.
    pub hurry: bool,
    /// Flushes begun and finished, whatever their outcome.
    pub attempts: u64,
    pub flush_error: Option<Error>,
    pub compact_error: Option<Error>,
    pub flushing: bool,
    /// How many wait for merges.
    pub awaiting: u32,
    pub running: Vec<Arc<CompactionJob>>,
    /// Files that merges could not read.
    pub quarantine: Quarantine,
}

/// Totals since the store was opened.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct WorkCounters {
    /// Memtables written to SSTs.
    pub flushes: u64,
    /// Bytes of the memtables that were flushed.
    pub flush_bytes_in: u64,
    /// Microseconds of flushes that succeeded.
    pub flush_us: u64,
    /// Bytes of SSTs written by flushes.
    pub flush_bytes: u64,
    /// Bytes of files written by transactions too large for memory.
    pub spill_bytes: u64,
    /// Merges that ran.
    pub compactions: u64,
    /// Files moved down by name only.
    pub moves: u64,
    /// Bytes of SSTs read by merges.
    pub compact_bytes_read: u64,
    /// Bytes of SSTs written by merges.
    pub compact_bytes_written: u64,
    /// Versions and tombstones dropped by flushes and merges.
    pub dropped_versions: u64,
    /// Merges by the level they wrote to.
    pub levels: [LevelWork; LEVELS],
    /// Microseconds that merges slept because they were ahead of the writers.
    pub compact_rest_us: u64,
    /// Times that a writer slept because background work lagged behind.
    pub write_delays: u64,
    /// Microseconds of that.
    pub write_delay_us: u64,
    /// Writes that had to wait for a flush because memory was full.
    pub write_stalls: u64,
    /// Microseconds of that; a wait that goes on is counted about ten times a second.
    pub write_stall_us: u64,
}

/// Merges into one level.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct LevelWork {
    /// How many.
    pub compactions: u64,
    /// Bytes of SSTs read.
    pub bytes_read: u64,
    /// Bytes of SSTs written.
    pub bytes_written: u64,
    /// Microseconds at work, also of merges that failed, without sleep.
    pub us: u64,
}

/// See the module.
pub(crate) struct WorkBoard {
    pub shared: Mutex<Shared>,
    pub flush_wake: Condvar,
    pub compact_wake: Condvar,
    pub clean_wake: Condvar,
    /// Signalled at the end, and when somebody begins to wait for merges: cuts short their sleep.
    pub rest_wake: Condvar,
    pub progress: Condvar,
    compactors: usize,
    pub counters: Mutex<WorkCounters>,
    /// Wait time that writers owe and nobody has slept yet.
    pub owed_ns: AtomicU64,
    /// Scores of the last look at the tree: sublevels and debt for the throttling of writes.
    pub scores: Mutex<Scores>,
    pub sublevels: AtomicU64,
    pub debt_bytes: AtomicU64,
    /// Bytes that the flush under way has taken in, more or less.
    pub flush_taken: AtomicU64,
    /// Buffers of the merges at work.
    pub buffer_bytes: Arc<AtomicU64>,
    /// Bytes of log records that users write in a second.
    pub logged_per_s: AtomicU64,
}

impl WorkBoard {
    pub fn new(compactors: usize) -> WorkBoard {
        WorkBoard {
            shared: Mutex::default(),
            flush_wake: Condvar::new(),
            compact_wake: Condvar::new(),
            clean_wake: Condvar::new(),
            rest_wake: Condvar::new(),
            progress: Condvar::new(),
            compactors,
            counters: Mutex::default(),
            owed_ns: AtomicU64::new(0),
            scores: Mutex::default(),
            sublevels: AtomicU64::new(0),
            debt_bytes: AtomicU64::new(0),
            buffer_bytes: Arc::default(),
            flush_taken: AtomicU64::new(0),
            logged_per_s: AtomicU64::new(0),
        }
    }

    /// Tells all threads to end.
    pub fn stop(&self) {
        self.shared.lock().stopping = true;
        self.flush_wake.notify_all();
        self.compact_wake.notify_all();
        self.clean_wake.notify_all();
        self.rest_wake.notify_all();
        self.progress.notify_all();
    }

    /// Sleeps until `wake` is signalled, but not if the store is being closed.
    pub fn sleep_or_stop(&self, wake: &Condvar, time: Duration) {
        let mut shared = self.shared.lock();
        if !shared.stopping {
            wake.wait_for(&mut shared, time);
        }
    }

    /// Merges do not sleep while what is returned is held: somebody waits for them. Those that sleep go on at once.
    pub fn await_merges(&self) -> Awaiting<'_> {
        self.shared.lock().awaiting += 1;
        self.rest_wake.notify_all();
        Awaiting(self)
    }

    /// Takes a job off the list of those that run.
    pub fn end_job(&self, job: &Arc<CompactionJob>) {
        self.shared.lock().running.retain(|other| !Arc::ptr_eq(other, job));
    }

    pub fn wake_flush(&self) {
        self.flush_wake.notify_one();
    }

    pub fn wake_cleaner(&self) {
        self.clean_wake.notify_one();
    }

    pub fn count_spill(&self, bytes: u64) {
        self.counters.lock().spill_bytes += bytes;
    }

    /// Files that merges leave alone for now or are about to try again.
    pub fn quarantined_files(&self) -> usize {
        self.shared.lock().quarantine.files()
    }

    pub fn counters(&self) -> WorkCounters {
        *self.counters.lock()
    }

    /// Threads that merge.
    pub fn compactors(&self) -> usize {
        self.compactors
    }

    /// Bytes of buffers that flushes and merges at work may fill.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes.load(Ordering::Relaxed)
    }

    /// Takes note of a look at the tree, and wakes who compacts.
    pub fn note_scores(&self, found: Scores) {
        self.sublevels.store(found.sublevels as u64, Ordering::Relaxed);
        self.debt_bytes.store(found.debt_bytes as u64, Ordering::Relaxed);
        *self.scores.lock() = found;
        self.compact_wake.notify_all();
    }

    pub fn last_scores(&self) -> Scores {
        *self.scores.lock()
    }

    /// The errors of the last flush and of the last compaction, if they failed, or of a file in quarantine.
    pub fn errors(&self) -> (Option<Error>, Option<Error>) {
        let shared = self.shared.lock();
        (shared.flush_error.clone(), shared.compact_error().cloned())
    }

    pub fn stopping(&self) -> bool {
        self.shared.lock().stopping
    }
}

/// Somebody waits for merges, see [`WorkBoard::await_merges`].
pub(crate) struct Awaiting<'a>(&'a WorkBoard);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().awaiting -= 1;
    }
}

impl Shared {
    /// Fails if no work is done any more.
    pub fn check(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.stopping => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// The error of the last compaction, or of a file in quarantine.
    pub fn compact_error(&self) -> Option<&Error> {
        self.compact_error.as_ref().or_else(|| self.quarantine.error())
    }
}
