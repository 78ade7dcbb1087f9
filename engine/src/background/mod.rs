//! Background work: one thread flushes, some compact, one keeps house.
//!
//! Users come first: these threads stand behind theirs as far as the backlog allows (`throttle::nice`, asked anew at each
//! slice), flushes less than compactions, since memory is the limit that stops writers. A merge works in slices, between
//! two of which its thread carries out what has become more urgent (`compact::quantum`), and sleeps while users write
//! (`throttle::merge_us`) and nobody waits for merges.
//!
//! A thread that fails (full disk, bad block) reports the error, waits, and tries again: a full disk that is freed heals
//! itself, if need be one memtable at a time. Nothing is lost meanwhile: what is not in SSTs is in the log. Writers go
//! on until the memtables are full and then get the error of the flush instead of waiting for ever. A file that cannot be
//! read is put in quarantine and other merges go on (`compact::quarantine`).
//!
//! A thread that panics stops the store's writing, see [`guard`]. Once the manifest has failed no work is begun: its
//! outcome could not be recorded. Tables whose record may or may not have reached the disk are left for recovery.

mod admission;
mod cleaner;
mod compactor;
mod flusher;
mod output;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

pub(crate) use output::with_env;

use crate::base::{Error, IndexId, Result};
use crate::compact::pick::{CompactionJob, LEVELS, PickInput, PickOptions, Scores, Shape, pick, scores};
use crate::compact::quarantine::Quarantine;
use crate::compact::throttle::Loads;
use crate::engine::Core;
use crate::manifest::Version;

/// Pause of a thread after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Sublevels at which the delay of writes is that of a load at its limit.
const SUBLEVELS_LIMIT: f64 = 20.0;

/// Largest job from level 0, in files of full size: what a job needs on disk beside its inputs stays a small part of the
/// store.
const JOB_FILES: u64 = 32;

#[derive(Default)]
struct Shared {
    stopping: bool,
    /// A background thread panicked: the store has stopped writing.
    failed: Option<Error>,
    /// Somebody waits for a flush: do not sit out the pause after a failure.
    hurry: bool,
    /// Flushes begun and finished, whatever their outcome.
    attempts: u64,
    flush_error: Option<Error>,
    compact_error: Option<Error>,
    flushing: bool,
    /// How many wait for merges.
    awaiting: u32,
    running: Vec<Arc<CompactionJob>>,
    /// Files that merges could not read.
    quarantine: Quarantine,
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
pub(crate) struct Background {
    shared: Mutex<Shared>,
    flush_wake: Condvar,
    compact_wake: Condvar,
    clean_wake: Condvar,
    /// Signalled at the end only: cuts short the pause after a failed merge.
    retry_wake: Condvar,
    /// Signalled at the end, and when somebody begins to wait for merges: cuts short their sleep.
    rest_wake: Condvar,
    progress: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    compactors: usize,
    counters: Mutex<WorkCounters>,
    /// Wait time that writers owe and nobody has slept yet.
    owed_ns: AtomicU64,
    /// Scores of the last look at the tree: sublevels and debt for the throttling of writes.
    scores: Mutex<Scores>,
    sublevels: AtomicU64,
    debt_bytes: AtomicU64,
    /// Buffers of the merges at work.
    buffer_bytes: AtomicU64,
    /// Bytes of log records that users write in a second.
    logged_per_s: AtomicU64,
}

impl Background {
    pub fn new(compactors: usize) -> Background {
        Background {
            shared: Mutex::default(),
            flush_wake: Condvar::new(),
            compact_wake: Condvar::new(),
            clean_wake: Condvar::new(),
            retry_wake: Condvar::new(),
            rest_wake: Condvar::new(),
            progress: Condvar::new(),
            threads: Mutex::default(),
            compactors,
            counters: Mutex::default(),
            owed_ns: AtomicU64::new(0),
            scores: Mutex::default(),
            sublevels: AtomicU64::new(0),
            debt_bytes: AtomicU64::new(0),
            buffer_bytes: AtomicU64::new(0),
            logged_per_s: AtomicU64::new(0),
        }
    }

    pub fn start(core: &Arc<Core>) -> Result<()> {
        let (background, background_of) = (&core.background, core);
        let mut threads = background.threads.lock();
        let mut spawn = |name: &str, work: fn(&Arc<Core>)| -> Result<()> {
            let core = core.clone();
            let thread = std::thread::Builder::new()
                .name(name.into())
                .spawn(move || guard(&core, work))
                .map_err(|e| Error::io("start a background thread of", &background_of.dir, e))?;
            threads.push(thread);
            Ok(())
        };
        spawn("strata-flush", flusher::flush_loop)?;
        spawn("strata-clean", cleaner::clean_loop)?;
        for _ in 0..background.compactors {
            spawn("strata-compact", compactor::compact_loop)?;
        }
        background.look(core);
        Ok(())
    }

    pub fn stop(&self, _core: &Core) {
        self.shared.lock().stopping = true;
        self.flush_wake.notify_all();
        self.compact_wake.notify_all();
        self.clean_wake.notify_all();
        self.retry_wake.notify_all();
        self.rest_wake.notify_all();
        self.progress.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last handle of a store may be dropped by one of its own threads.
            if thread.thread().id() != std::thread::current().id() {
                // Panics are caught inside.
                drop(thread.join());
            }
        }
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

    pub fn last_scores(&self) -> Scores {
        *self.scores.lock()
    }

    /// The errors of the last flush and of the last compaction, if they failed, or of a file in quarantine.
    pub fn errors(&self) -> (Option<Error>, Option<Error>) {
        let shared = self.shared.lock();
        (shared.flush_error.clone(), shared.compact_error().cloned())
    }

    fn stopping(&self) -> bool {
        self.shared.lock().stopping
    }

    /// How near the store is to its limits.
    pub fn loads(&self, core: &Core) -> Loads {
        let state = core.states.load();
        Loads {
            memory_bytes: state.memtable_bytes(),
            memory_limit: core.memtable_budget(),
            sealed: state.sealed.len() as f64,
            sealed_limit: 8.0,
            sublevels: self.sublevels.load(Ordering::Relaxed) as f64,
            sublevels_limit: SUBLEVELS_LIMIT,
            debt_bytes: self.debt_bytes.load(Ordering::Relaxed) as f64,
            debt_limit: (core.memtable_budget() * 64) as f64,
        }
    }

    /// Looks at the tree: updates the scores that pacing uses, wakes compaction if there may be work.
    fn look(&self, core: &Core) {
        let mut shared = self.shared.lock();
        let version = core.states.load().version.clone();
        shared.quarantine.keep(|no| version.files().any(|(_, file)| file.meta.no == no));
        let found = with_input(core, &version, &shared, scores);
        drop(shared);
        self.sublevels.store(found.sublevels as u64, Ordering::Relaxed);
        self.debt_bytes.store(found.debt_bytes as u64, Ordering::Relaxed);
        *self.scores.lock() = found;
        self.compact_wake.notify_all();
    }

    /// Waits until nothing is running and nothing is due.
    pub fn wait_idle(&self, core: &Core) -> Result<()> {
        let _awaiting = self.await_merges();
        let mut shared = self.shared.lock();
        loop {
            shared.check()?;
            if let Some(error) = shared.compact_error().or(shared.flush_error.as_ref()) {
                return Err(error.clone());
            }
            let version = core.states.load().version.clone();
            let due = with_input(core, &version, &shared, |input, options| pick(input, options).is_some());
            if !due && shared.running.is_empty() && core.states.load().sealed.is_empty() && !shared.flushing {
                return Ok(());
            }
            self.compact_wake.notify_all();
            self.progress.wait_for(&mut shared, Duration::from_millis(20));
        }
    }
}

impl Shared {
    fn check(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.stopping => Err(Error::Closed),
            None => Ok(()),
        }
    }

    fn compact_error(&self) -> Option<&Error> {
        self.compact_error.as_ref().or_else(|| self.quarantine.error())
    }
}

/// Runs a background thread. A panic is a defect of the engine whose reach nobody knows, so the store stops writing as
/// after a failed sync: reads go on, nothing is acknowledged, and the next opening recovers from what is on disk.
fn guard(core: &Arc<Core>, work: fn(&Arc<Core>)) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(core))) else { return };
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    let text = format!("thread panicked: {}", text.unwrap_or("no message"));
    let error = Error::io("run background work of", &core.dir, std::io::Error::other(text));
    core.log.stop(error.clone());
    let background = &core.background;
    background.shared.lock().failed = Some(Error::Poisoned(Arc::new(error)));
    background.progress.notify_all();
}

fn shape(version: &Version) -> Shape<'_> {
    let sublevels = version.sublevels().map(|run| run.iter().map(|file| &file.meta).collect()).collect();
    let mut shape = Shape { sublevels, ..Shape::default() };
    for (level, files) in shape.levels.iter_mut().enumerate().skip(1) {
        *files = version.level(level as u8).iter().map(|file| &file.meta).collect();
    }
    shape
}

fn with_input<R>(
    core: &Core,
    version: &Version,
    shared: &Shared,
    use_it: impl FnOnce(&PickInput<'_>, &PickOptions) -> R,
) -> R {
    let visible = core.committer.visible();
    let oldest_read = core.read_points.live().first().copied().unwrap_or(visible).min(visible);
    let running: Vec<&CompactionJob> = shared.running.iter().map(|job| &**job).collect();
    let shape = shape(version);
    let now = core.options.clock.now_us();
    let void = core.installer.void_bytes();
    let input = PickInput {
        shape: &shape,
        running: &running,
        oldest_read,
        is_dropped: &|id: IndexId| core.installer.is_dropped(id),
        void_bytes: &|no| void.get(&no).copied().unwrap_or(0),
        is_quarantined: &|no| shared.quarantine.is_quarantined(no, now),
        ahead_of: None,
    };
    let options = PickOptions {
        target_file_bytes: core.sst_bytes(),
        base_bytes: core.base_bytes(),
        max_job_bytes: core.sst_bytes() * JOB_FILES,
        ..PickOptions::default()
    };
    use_it(&input, &options)
}

fn sleep_or_stop(background: &Background, wake: &Condvar, time: Duration) {
    let mut shared = background.shared.lock();
    if !shared.stopping {
        wake.wait_for(&mut shared, time);
    }
}
