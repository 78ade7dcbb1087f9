//! Background work: one thread flushes, some compact, one keeps house.
//!
//! Users come first: these threads stand behind theirs as far as the backlog allows (`pace::nice`, asked anew at each
//! slice), flushes less than compactions, since memory is the limit that stops writers. A merge works in slices, between
//! two of which its thread carries out what has become more urgent (`compact::slice`), and rests while users write
//! (`pace::merge_us`).
//!
//! A thread that fails (full disk, bad block) reports the error, waits, and tries again: a full disk that is freed heals
//! itself, if need be one memtable at a time. Nothing is lost meanwhile: what is not in tables is in the log. Writers go
//! on until the memtables are full and then get the error of the flush instead of waiting for ever. A file that cannot be
//! read is set aside and other merges go on (`compact::aside`).
//!
//! A thread that panics stops the store's writing, see [`guard`]. Once the manifest has failed no work is begun: its
//! outcome could not be recorded. Tables whose record may or may not have reached the disk are left for recovery.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::{Error, IndexId, Result};
use crate::cache::Queue;
use crate::compact::aside::{SetAside, Verdict};
use crate::compact::growth::Growth;
use crate::compact::manual::{Manual, manual};
use crate::compact::merge::{MergeEnv, MergeResult, OutputPlan, TableSource, ahead_bytes, merge_files};
use crate::compact::pace::{PaceState, Price, memory_pressure, merge_us, nice, price, tree_pressure};
use crate::compact::pick::{Action, CompactionJob, LAST, PickInput, PickOptions, Reason, Scores, Shape, pick, scores};
use crate::compact::slice::Slice;
use crate::compact::survive::Survival;
use crate::engine::{Core, table_path};
use crate::flush;
use crate::io::NICE_MAX;
use crate::manifest::{FileEntry, Version, VersionEdit, find_in};
use crate::options::{Compression, Durability};
use crate::sst::{self, Residence, Table, TableMeta, TableOptions, Warm};
use crate::step::Step;

const RETRY: Duration = Duration::from_secs(1);
/// Waits shorter than this are collected and slept together: a timer costs about as much.
const SLEEP_MIN_NS: u64 = 200_000;
const SLEEP_MAX_NS: u64 = 1_000_000_000;
/// A merge rests no longer than this at once: urgent work waits for the end of a slice, and a slice for that of a rest.
const REST_MAX_US: u64 = 100_000;
/// Sublevels at which writers pay the full price of deep reads.
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
    running: Vec<Arc<CompactionJob>>,
    /// Files that merges could not read.
    aside: SetAside,
}

/// Totals since the store was opened.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct WorkCounters {
    /// Memtables written to tables.
    pub flushes: u64,
    /// Bytes of tables written by flushes.
    pub flush_bytes: u64,
    /// Bytes of files written by transactions too large for memory.
    pub spill_bytes: u64,
    /// Merges that ran.
    pub compactions: u64,
    /// Files moved down by name only.
    pub moves: u64,
    /// Bytes of tables read by merges.
    pub compact_bytes_read: u64,
    /// Bytes of tables written by merges.
    pub compact_bytes_written: u64,
    /// Versions and tombstones dropped by flushes and merges.
    pub dropped_versions: u64,
    /// Microseconds that merges rested because they were ahead of the writers.
    pub compact_rest_us: u64,
    /// Microseconds that writers were held back.
    pub writer_wait_us: u64,
}

/// See the module.
pub(crate) struct Background {
    shared: Mutex<Shared>,
    flush_wake: Condvar,
    compact_wake: Condvar,
    clean_wake: Condvar,
    /// Signalled at the end only: cuts short the rest of a merge and the pause after a failed one.
    retry_wake: Condvar,
    progress: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    compactors: usize,
    counters: Mutex<WorkCounters>,
    /// Wait time that writers owe and nobody has slept yet.
    owed_ns: AtomicU64,
    /// Scores of the last look at the tree: sublevels and debt for the price of writes.
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
        let mut spawn = |name: &str, work: fn(&Core)| -> Result<()> {
            let core = core.clone();
            let thread = std::thread::Builder::new()
                .name(name.into())
                .spawn(move || guard(&core, work))
                .map_err(|e| Error::io("start a background thread of", &background_of.dir, e))?;
            threads.push(thread);
            Ok(())
        };
        spawn("strata-flush", flush_loop)?;
        spawn("strata-clean", clean_loop)?;
        for _ in 0..background.compactors {
            spawn("strata-compact", compact_loop)?;
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

    /// The errors of the last flush and of the last compaction, if they failed, or of a file that merges leave aside.
    pub fn errors(&self) -> (Option<Error>, Option<Error>) {
        let shared = self.shared.lock();
        (shared.flush_error.clone(), shared.compact_error().cloned())
    }

    fn stopping(&self) -> bool {
        self.shared.lock().stopping
    }

    fn loads(&self, core: &Core) -> PaceState {
        let state = core.states.load();
        PaceState {
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

    fn pace(&self, core: &Core) -> Price {
        price(&self.loads(core))
    }

    /// Ranks the calling thread, which flushes, among the threads of users.
    fn rank_flush(&self, core: &Core) {
        core.options.scheduler.set_nice(nice(memory_pressure(&self.loads(core)), NICE_MAX / 2));
    }

    /// Ranks the calling thread, which compacts, among the threads of users.
    fn rank_compaction(&self, core: &Core) {
        core.options.scheduler.set_nice(nice(tree_pressure(&self.loads(core)), NICE_MAX));
    }

    /// Lets a merge rest that has taken in `bytes` in `work_us` of work, see `pace`.
    fn rest(&self, core: &Core, bytes: u64, work_us: u64) {
        let may_take = merge_us(bytes, self.logged_per_s.load(Ordering::Relaxed), tree_pressure(&self.loads(core)));
        let rest = may_take.saturating_sub(work_us).min(REST_MAX_US);
        if rest > 0 {
            sleep_or_stop(self, &self.retry_wake, Duration::from_micros(rest));
            self.counters.lock().compact_rest_us += rest;
        }
    }

    /// Picks a job, more urgent than one of the reason `ahead_of` if there is any, and counts it as running.
    fn take_job(
        &self,
        core: &Core,
        shared: &mut Shared,
        ahead_of: Option<Reason>,
    ) -> Option<(Arc<Version>, Arc<CompactionJob>)> {
        let version = core.states.load().version.clone();
        let job =
            with_input(core, &version, shared, |input, options| pick(&PickInput { ahead_of, ..*input }, options))?;
        let job = Arc::new(job);
        shared.running.push(job.clone());
        Some((version, job))
    }

    /// Lets a writer of `bytes` pass; see `pace`.
    pub fn admit(&self, core: &Core, bytes: u64) -> Result<()> {
        loop {
            match self.pace(core).wait_ns(bytes) {
                Some(0) => return Ok(()),
                Some(ns) => {
                    let owed = self.owed_ns.fetch_add(ns, Ordering::Relaxed) + ns;
                    if owed >= SLEEP_MIN_NS {
                        let sleep = self.owed_ns.swap(0, Ordering::Relaxed).min(SLEEP_MAX_NS);
                        self.wake_flush();
                        std::thread::park_timeout(Duration::from_nanos(sleep));
                        self.counters.lock().writer_wait_us += sleep / 1000;
                    }
                    return Ok(());
                }
                None => self.wait_for_memory(core)?,
            }
        }
    }

    /// Memory is full: waits for a flush.
    fn wait_for_memory(&self, core: &Core) -> Result<()> {
        // The active memtable alone may be what fills the budget (one huge transaction).
        core.committer.seal(core.sinks(), core.log_bytes_max());
        let started = core.options.clock.now_us();
        let mut shared = self.shared.lock();
        shared.check()?;
        if let Some(error) = &shared.flush_error {
            return Err(error.clone());
        }
        self.flush_wake.notify_one();
        self.progress.wait_for(&mut shared, Duration::from_millis(100));
        drop(shared);
        self.counters.lock().writer_wait_us += core.options.clock.now_us().saturating_sub(started);
        Ok(())
    }

    /// Waits until no sealed memtable is left.
    pub fn flush_and_wait(&self, core: &Core) -> Result<()> {
        let mut shared = self.shared.lock();
        // An attempt that is under way may have begun before the memtable was sealed, or the disk had room.
        let enough = shared.attempts + 1 + u64::from(shared.flushing);
        loop {
            shared.check()?;
            if core.states.load().sealed.is_empty() && !shared.flushing {
                return Ok(());
            }
            if let Some(error) = shared.flush_error.as_ref().filter(|_| shared.attempts >= enough) {
                return Err(error.clone());
            }
            shared.hurry = true;
            self.flush_wake.notify_one();
            self.progress.wait_for(&mut shared, Duration::from_millis(50));
        }
    }

    /// Looks at the tree: updates the scores that pacing uses, wakes compaction if there may be work.
    fn look(&self, core: &Core) {
        let mut shared = self.shared.lock();
        let version = core.states.load().version.clone();
        shared.aside.keep(|no| version.files().any(|(_, file)| file.meta.no == no));
        let found = with_input(core, &version, &shared, scores);
        drop(shared);
        self.sublevels.store(found.sublevels as u64, Ordering::Relaxed);
        self.debt_bytes.store(found.debt_bytes as u64, Ordering::Relaxed);
        *self.scores.lock() = found;
        self.compact_wake.notify_all();
    }

    /// Merges all files that overlap `[lower, upper)` into the last level, one index after the other.
    pub fn compact_range(&self, core: &Core, lower: &[u8], upper: &[u8]) -> Result<()> {
        loop {
            let mut shared = self.shared.lock();
            shared.check()?;
            let version = core.states.load().version.clone();
            let running: Vec<&CompactionJob> = shared.running.iter().map(|job| &**job).collect();
            match manual(&shape(&version), &running, lower, upper) {
                Manual::Done => return Ok(()),
                Manual::Blocked => {
                    self.progress.wait_for(&mut shared, Duration::from_millis(100));
                }
                Manual::Job(job) => {
                    let job = Arc::new(job);
                    shared.running.push(job.clone());
                    drop(shared);
                    let result = run_job(core, &version, &job, &|_| Ok(()));
                    drop(version);
                    self.finish_job(core, &job);
                    result?;
                }
            }
        }
    }

    fn finish_job(&self, core: &Core, job: &Arc<CompactionJob>) {
        self.shared.lock().running.retain(|other| !Arc::ptr_eq(other, job));
        self.progress.notify_all();
        self.wake_cleaner();
        self.look(core);
    }

    /// Waits until nothing is running and nothing is due.
    pub fn wait_idle(&self, core: &Core) -> Result<()> {
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
        self.compact_error.as_ref().or_else(|| self.aside.error())
    }
}

/// Runs a background thread. A panic is a defect of the engine whose reach nobody knows, so the store stops writing as
/// after a failed sync: reads go on, nothing is acknowledged, and the next opening recovers from what is on disk.
fn guard(core: &Core, work: fn(&Core)) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(core))) else { return };
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    let text = format!("thread panicked: {}", text.unwrap_or("no message"));
    let error = Error::io("run background work of", &core.dir, std::io::Error::other(text));
    core.options.report(&format!("store stopped writing: {error}"));
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
    let input = PickInput {
        shape: &shape,
        running: &running,
        oldest_read,
        is_dropped: &|id: IndexId| core.installer.is_dropped(id),
        is_aside: &|no| shared.aside.is_aside(no, now),
        ahead_of: None,
    };
    let options = PickOptions {
        target_file_bytes: core.table_bytes(),
        base_bytes: core.base_bytes(),
        max_job_bytes: core.table_bytes() * JOB_FILES,
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

fn flush_loop(core: &Core) {
    let background = &core.background;
    let mut batch = usize::MAX;
    loop {
        {
            let mut shared = background.shared.lock();
            while !shared.stopping && core.states.load().sealed.is_empty() {
                background.flush_wake.wait_for(&mut shared, Duration::from_millis(100));
            }
            if shared.stopping {
                return;
            }
            shared.flushing = true;
            shared.hurry = false;
        }
        background.rank_flush(core);
        let result = flush_as_room_allows(core, &mut batch);
        let failed = result.is_err();
        {
            let mut shared = background.shared.lock();
            shared.flushing = false;
            shared.attempts += 1;
            if let Err(error) = &result
                && shared.flush_error.is_none()
            {
                core.options.report(&format!("flush failed: {error}"));
            }
            shared.flush_error = result.err();
            background.progress.notify_all();
        }
        background.look(core);
        background.wake_cleaner();
        if failed {
            let mut shared = background.shared.lock();
            let until = Instant::now() + RETRY;
            while !shared.stopping && !shared.hurry {
                // Every commit wakes this thread.
                if background.flush_wake.wait_until(&mut shared, until).timed_out() {
                    break;
                }
            }
        }
    }
}

/// Options of the tables of an index.
fn table_options(core: &Core, index: IndexId) -> TableOptions {
    let compression = match core.compression(index) {
        Compression::None => sst::Compression::None,
        Compression::Lz4 => sst::Compression::Lz4,
        Compression::Zstd => sst::Compression::Zstd,
    };
    TableOptions { compression, ..TableOptions::default() }
}

/// What the filters of the files below a merge know, within bounds: of filters that are not in memory about one is read
/// per [`Filters::ASKED_PER_READ`] keys, so that a store much larger than its memory is not read in vain.
struct Filters<'a> {
    core: &'a Core,
    version: &'a Version,
    /// Data below this level are older than the inputs. For a flush 0: all files are.
    level: u8,
    asked: Cell<u64>,
    read: Cell<u64>,
}

impl Filters<'_> {
    const ASKED_PER_READ: u64 = 32;

    fn new<'a>(core: &'a Core, version: &'a Version, level: u8) -> Filters<'a> {
        Filters { core, version, level, asked: Cell::new(0), read: Cell::new(0) }
    }

    fn may_read(&self) -> bool {
        let may = self.read.get() * Filters::ASKED_PER_READ < self.asked.get();
        self.read.set(self.read.get() + u64::from(may));
        may
    }

    /// True if no file below holds the key. A file that cannot be read might.
    fn exclude(&self, key: &[u8]) -> bool {
        self.asked.set(self.asked.get() + 1);
        let hash = sst::key_hash(key);
        let excluded = |file: &Arc<FileEntry>| {
            let table = match file.table.get() {
                Some(table) => table.clone(),
                None if self.may_read() => self.core.table(file)?.clone(),
                None => return Ok(false),
            };
            table.excludes(key, hash, || self.may_read())
        };
        self.version.runs_below(self.level).filter_map(|run| find_in(run, key)).all(|file| {
            let known: Result<bool> = excluded(file);
            known.unwrap_or(false)
        })
    }
}

/// Runs `work` with what a merge needs of the store; `excludes`, `tick` and `residence` as in [`MergeEnv`]. The names of the
/// new files are durable when this returns.
pub(crate) fn with_env(
    core: &Core,
    excludes: &dyn Fn(&[u8]) -> bool,
    tick: &dyn Fn(u64) -> Result<()>,
    residence: &dyn Fn(&[u8]) -> Option<Residence>,
    work: impl FnOnce(&MergeEnv<'_>) -> Result<MergeResult>,
) -> Result<MergeResult> {
    core.installer.check()?;
    let result = work(&MergeEnv {
        disk: &core.options.disk,
        path_of: &|no| table_path(&core.dir, no),
        next_file: &|| core.new_file(),
        is_dropped: &|id| core.installer.is_dropped(id),
        table_options: &|index| table_options(core, index),
        excludes,
        tick: &|bytes| if core.background.stopping() { Err(Error::Closed) } else { tick(bytes) },
        ahead_bytes: ahead_bytes(core.cache_budget()),
        buffer_bytes: &core.background.buffer_bytes,
        warm: Warm { cache: &core.cache, residence },
    })?;
    // The names of the new files are durable before the manifest speaks of them (invariant 8).
    if let Err(error) = core.options.disk.sync_dir(&core.dir) {
        discard(core, &result.outputs);
        return Err(error);
    }
    Ok(result)
}

/// The rule of survival for this moment: what live readers need, and what readers to come may need.
fn survival(core: &Core) -> Survival {
    let (visible, live) = core.read_points.survey(|| core.committer.visible());
    Survival::new(&live, visible)
}

/// Files that were written and could not be installed. If the manifest failed half way, it may name them when the store
/// is opened next: then they stay.
fn not_installed(core: &Core, outputs: &[TableMeta], error: &Error) {
    if !matches!(error, Error::Poisoned(_)) {
        discard(core, outputs);
    }
}

/// Files that were written and that no manifest names.
fn discard<'a>(core: &Core, outputs: impl IntoIterator<Item = &'a TableMeta>) {
    for meta in outputs {
        // What cannot be removed now is removed as an orphan when the store is opened next.
        drop(core.options.disk.remove(&table_path(&core.dir, meta.no)));
        core.cache.erase_file(meta.no);
    }
}

/// Flushes up to `batch` sealed memtables. Several at once write the fewest bytes. Where the disk is too full for them
/// there may be room for one: then the oldest goes alone, and after each success the next flush tries twice as many.
fn flush_as_room_allows(core: &Core, batch: &mut usize) -> Result<()> {
    let several = core.states.load().sealed.len().min(*batch) > 1;
    let mut result = flush_oldest(core, *batch);
    if several && result.as_ref().is_err_and(Error::is_disk_full) {
        *batch = 1;
        result = flush_oldest(core, *batch);
    }
    if result.is_ok() {
        *batch = batch.saturating_mul(2);
    }
    result
}

/// Writes sealed memtables to level 0: the oldest ones, at most `batch` and up to the first that has files behind it. Those
/// only have to be named, in level 0 or the last one. One file must not hold versions from both sides of them, since the
/// newest number in a file is its age.
fn flush_oldest(core: &Core, batch: usize) -> Result<()> {
    let state = core.states.pin();
    let until = state.sealed.iter().rposition(|sealed| !sealed.files.is_empty()).unwrap_or(0);
    let (kept, sealed) = state.sealed.split_at(until.max(state.sealed.len().saturating_sub(batch)));
    let Some(newest) = sealed.first() else { return Ok(()) };
    let last = newest.mem.last_seq();
    // Everything in a sealed memtable has been ordered; make sure that it has been applied.
    core.committer.publish(last);
    let next = kept.last().map_or(&state.active, |sealed| &sealed.mem);
    if let Err(error) = core.committer.carry(&core.log, next.min_lsn(), core.prepared_slack()) {
        // The flush goes on without: what is held back is released by a later one.
        core.options.report(&format!("prepared transactions keep the log from being recycled: {error}"));
    }
    core.step(Step::Carried);
    let logged = core.log.end();
    let tables: Vec<_> = sealed.iter().map(|sealed| sealed.mem.table.clone()).collect();
    let base = core.background.last_scores().base;
    let shape = shape(&state.version);
    let guides = &shape.levels[usize::from(base.max(1))];
    let below: Vec<&[&TableMeta]> = shape.sublevels.iter().chain(&shape.levels[1..]).map(Vec::as_slice).collect();
    let tick = |_| {
        core.background.rank_flush(core);
        Ok(())
    };
    let filters = Filters::new(core, &state.version, 0);
    // What was in memory stays there if it costs nobody his place.
    let probation = Residence { queue: Queue::Probation, packed: false };
    let residence = |_: &[u8]| core.cache.has_room().then_some(probation);
    let result = with_env(core, &|key| filters.exclude(key), &tick, &residence, |env| {
        flush::flush(&tables, survival(core), core.table_bytes(), guides, &below, env)
    })?;
    let log_start = core.committer.log_start_after(&core.log, &core.states, sealed.len());
    let behind = newest
        .files
        .iter()
        .map(|file| (flush::level_behind(file.meta.index, &state.version, &result.outputs), file.meta.clone()));
    let edit = VersionEdit {
        added: result.outputs.iter().map(|meta| (0, meta.clone())).chain(behind).collect(),
        flushed_seq: Some(last),
        log_start: Some(log_start),
        ..VersionEdit::default()
    };
    // The log comes first: were a table durable before the decision record of a transaction in it, recovery could see
    // that transaction as undecided while its writes, and later ones on top of them, are there (invariant 8).
    let installed = core.log.sync(logged).and_then(|()| core.installer.install(core, edit, sealed.len()));
    match installed {
        Ok(refused) => {
            let refused = refused.unwrap_or_default();
            discard(core, result.outputs.iter().filter(|meta| refused.contains(&meta.no)));
            newest.files.iter().filter(|file| refused.contains(&file.meta.no)).for_each(|file| file.mark_obsolete());
        }
        Err(error) => {
            not_installed(core, &result.outputs, &error);
            return Err(error);
        }
    }
    if let Err(error) = core.log.release_before(log_start) {
        // The segments are given up by the next flush.
        core.options.report(&format!("cannot recycle the log: {error}"));
    }
    let mut counters = core.background.counters.lock();
    counters.flushes += sealed.len() as u64;
    counters.flush_bytes += result.stats.bytes_written;
    counters.dropped_versions += result.stats.puts_dropped + result.stats.tombstones_dropped;
    Ok(())
}

/// An input of a merge.
struct Input<'a> {
    core: &'a Core,
    file: &'a Arc<FileEntry>,
}

impl TableSource for Input<'_> {
    fn meta(&self) -> &TableMeta {
        &self.file.meta
    }
    fn table(&self) -> Result<Arc<Table>> {
        self.core.table(self.file).cloned()
    }
}

/// How the cache holds what a merge of `inputs`, upper levels first, replaces at `key`. The lowest of the files there decides:
/// it has most of the rows.
fn residence_before(inputs: &[&Arc<FileEntry>], key: &[u8]) -> Option<Residence> {
    let spans = |file: &&&Arc<FileEntry>| file.meta.smallest.as_slice() <= key && key <= file.meta.largest.as_slice();
    inputs.iter().rev().find(spans)?.table.get()?.residence_of(key)
}

/// Carries out a job on the version it was picked from; `tick` as in [`MergeEnv`].
fn run_job(core: &Core, version: &Version, job: &CompactionJob, tick: &dyn Fn(u64) -> Result<()>) -> Result<()> {
    let mut edit = VersionEdit::default();
    for (level, files) in &job.inputs {
        edit.removed.extend(files.iter().map(|&no| (*level, no)));
    }
    let inputs: Vec<&Arc<FileEntry>> = edit.removed.iter().filter_map(|&(level, no)| version.file(level, no)).collect();
    let mut result = MergeResult::default();
    match job.action {
        Action::Delete => {}
        Action::Move => edit.added = inputs.iter().map(|file| (job.output_level, file.meta.clone())).collect(),
        Action::Merge => {
            let below: Vec<Vec<&TableMeta>> = (job.output_level + 1..=LAST)
                .map(|level| version.level(level).iter().map(|file| &file.meta).collect())
                .collect();
            let below: Vec<&[&TableMeta]> = below.iter().map(Vec::as_slice).collect();
            let target = core.table_bytes();
            let plan = match job.output_level {
                0 => OutputPlan::for_l0(target, &[], None),
                _ => OutputPlan::for_level(target, &below),
            };
            let sources = inputs.iter().map(|&file| Input { core, file }).collect();
            let filters = Filters::new(core, version, job.output_level);
            let residence = |key: &[u8]| residence_before(&inputs, key);
            result = with_env(core, &|key| filters.exclude(key), tick, &residence, |env| {
                merge_files(sources, survival(core), &plan, env)
            })?;
            edit.added = result.outputs.iter().map(|meta| (job.output_level, meta.clone())).collect();
        }
    }
    match core.installer.install(core, edit, 0) {
        Ok(Some(refused)) => discard(core, result.outputs.iter().filter(|meta| refused.contains(&meta.no))),
        // An input went with its dropped index: the outputs are of no use.
        Ok(None) => {
            discard(core, &result.outputs);
            return Ok(());
        }
        Err(error) => {
            not_installed(core, &result.outputs, &error);
            return Err(error);
        }
    }
    let mut counters = core.background.counters.lock();
    match job.action {
        Action::Merge => {
            counters.compactions += 1;
            counters.compact_bytes_read += job.bytes;
            counters.compact_bytes_written += result.stats.bytes_written;
            counters.dropped_versions += result.stats.puts_dropped + result.stats.tombstones_dropped;
        }
        Action::Move => counters.moves += inputs.len() as u64,
        Action::Delete => {}
    }
    Ok(())
}

/// Housekeeping: deletes files nobody needs, resizes the block cache to what its budget leaves it, prepares log segments,
/// syncs the log once per second where commits do not, measures how fast it grows.
fn clean_loop(core: &Core) {
    let background = &core.background;
    let mut log_failed = false;
    let mut logged = Growth::default();
    loop {
        sleep_or_stop(background, &background.clean_wake, Duration::from_secs(1));
        if background.stopping() {
            return;
        }
        if let Some(rate) = logged.per_second(core.log.counters().payload_bytes, core.options.clock.now_us()) {
            background.logged_per_s.store(rate, Ordering::Relaxed);
        }
        core.read_points.tick(core.options.clock.now_us());
        core.share_memory();
        for no in core.graveyard.drain() {
            core.cache.erase_file(no);
            if let Err(error) = core.options.disk.remove(&table_path(&core.dir, no)) {
                core.options.report(&format!("cannot remove a file that is no longer needed: {error}"));
            }
        }
        let limit = core.log_bytes_max();
        if core.log.end().0 > core.states.load().active.min_lsn().0 + limit {
            core.committer.seal(core.sinks(), limit);
            background.wake_flush();
        }
        let mut log = core.log.prepare_next();
        if core.durability() != Durability::EveryCommit {
            log = log.and_then(|()| core.log.sync(core.log.end()));
        }
        if let Err(error) = &log {
            // Once, not every second.
            if !log_failed {
                core.options.report(&format!("log: {error}"));
            }
        }
        log_failed = log.is_err();
    }
}

fn compact_loop(core: &Core) {
    let background = &core.background;
    loop {
        background.rank_compaction(core);
        let (version, job) = {
            let mut shared = background.shared.lock();
            loop {
                if shared.stopping {
                    return;
                }
                if let Some(taken) = background.take_job(core, &mut shared, None) {
                    break taken;
                }
                background.compact_wake.wait_for(&mut shared, Duration::from_secs(1));
            }
        };
        if !work_on(core, version, &job) {
            sleep_or_stop(background, &background.retry_wake, RETRY);
        }
    }
}

/// Carries out a job that was taken, and between its slices, on top of it, what is more urgent by then. As urgency has
/// few degrees, this does not go deep. False if the job failed and the next one may fail for the same reason.
fn work_on(core: &Core, version: Arc<Version>, job: &Arc<CompactionJob>) -> bool {
    let background = &core.background;
    let slice = Cell::new(Slice::begin(core.options.clock.now_us()));
    // What failed in the middle of this job would fail again in the next slice.
    let may_interrupt = Cell::new(true);
    let working_since = Cell::new(core.options.clock.now_us());
    let tick = |bytes| {
        background.rest(core, bytes, core.options.clock.now_us().saturating_sub(working_since.get()));
        let mut current = slice.get();
        let over = current.is_over(bytes, core.options.clock.now_us());
        slice.set(current);
        if over {
            background.rank_compaction(core);
            while may_interrupt.get() {
                let taken = background.take_job(core, &mut background.shared.lock(), Some(job.reason));
                let Some((version, urgent)) = taken else { break };
                may_interrupt.set(work_on(core, version, &urgent));
            }
            slice.set(Slice::begin(core.options.clock.now_us()));
        }
        working_since.set(core.options.clock.now_us());
        Ok(())
    };
    let result = run_job(core, &version, job, &tick);
    // The inputs are held no longer: the cleaner, who is woken below, finds them.
    drop(version);
    let go_on = note_outcome(core, job, result);
    background.finish_job(core, job);
    go_on
}

/// Keeps the error of a job, if it failed, and reports it the first time. See `work_on` for the result.
fn note_outcome(core: &Core, job: &CompactionJob, result: Result<()>) -> bool {
    let shared = &mut *core.background.shared.lock();
    let Err(error) = result else {
        shared.compact_error = None;
        return true;
    };
    let verdict = shared.aside.failed(job.files(), |no| table_path(&core.dir, no), &error, core.options.clock.now_us());
    let is_new = match verdict {
        Verdict::General => shared.compact_error.is_none(),
        Verdict::New => true,
        Verdict::Again => false,
    };
    if is_new && !shared.stopping {
        core.options.report(&format!("compaction failed: {error}"));
    }
    if verdict == Verdict::General {
        shared.compact_error = Some(error);
    }
    verdict != Verdict::General
}
