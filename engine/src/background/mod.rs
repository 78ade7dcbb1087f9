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

mod cleaner;
mod compactor;
mod flusher;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use compactor::compact_range;
pub(crate) use flusher::flush_and_wait;

use crate::base::{Error, IndexId, Result};
use crate::board::Shared;
use crate::compact::pick::{CompactionJob, PickInput, PickOptions, Shape, pick, scores};
use crate::manifest::Version;
use crate::parts::Core;

/// Pause of a thread after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Largest job from level 0, in files of full size: what a job needs on disk beside its inputs stays a small part of the
/// store.
const JOB_FILES: u64 = 32;

/// What is done each second beside the housekeeping of the store itself.
pub(crate) type Chores = dyn Fn() + Send + Sync;

/// The threads of a store. They end when this drops.
pub(crate) struct Threads {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts them. `chores` are called by the one that keeps house.
    pub fn start(core: &Arc<Core>, chores: Box<Chores>) -> Result<Threads> {
        let all = Threads { core: core.clone(), threads: Mutex::default() };
        all.spawn("strata-flush", flusher::flush_loop)?;
        all.spawn("strata-clean", move |core| cleaner::clean_loop(core, &chores))?;
        for _ in 0..core.board.compactors() {
            all.spawn("strata-compact", compactor::compact_loop)?;
        }
        look(core);
        Ok(all)
    }

    fn spawn(&self, name: &str, work: impl FnOnce(&Core) + Send + 'static) -> Result<()> {
        let core = self.core.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || guard(&core, work))
            .map_err(|e| Error::io("start a background thread of", &self.core.tree.ssts.dir, e))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Ends them, and returns when they have ended.
    pub fn stop(&self) {
        self.core.board.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last handle of a store may be dropped by one of its own threads.
            if thread.thread().id() != std::thread::current().id() {
                // Panics are caught inside.
                drop(thread.join());
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Looks at the tree: updates the scores that pacing uses, wakes compaction if there may be work.
fn look(core: &Core) {
    let mut shared = core.board.shared.lock();
    let version = core.tree.states.load().version.clone();
    shared.quarantine.keep(|no| version.files().any(|(_, file)| file.meta.no == no));
    let found = with_input(core, &version, &shared, scores);
    drop(shared);
    core.board.note_scores(found);
}

/// Waits until nothing is running and nothing is due.
pub(crate) fn wait_idle(core: &Core) -> Result<()> {
    let _awaiting = core.board.await_merges();
    let mut shared = core.board.shared.lock();
    loop {
        shared.check()?;
        if let Some(error) = shared.compact_error().or(shared.flush_error.as_ref()) {
            return Err(error.clone());
        }
        let version = core.tree.states.load().version.clone();
        let due = with_input(core, &version, &shared, |input, options| pick(input, options).is_some());
        if !due && shared.running.is_empty() && core.tree.states.load().sealed.is_empty() && !shared.flushing {
            return Ok(());
        }
        core.board.compact_wake.notify_all();
        core.board.progress.wait_for(&mut shared, Duration::from_millis(20));
    }
}

/// Runs a background thread. A panic is a defect of the engine whose reach nobody knows, so the store stops writing as
/// after a failed sync: reads go on, nothing is acknowledged, and the next opening recovers from what is on disk.
fn guard(core: &Core, work: impl FnOnce(&Core)) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(core))) else { return };
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    let text = format!("thread panicked: {}", text.unwrap_or("no message"));
    let error = Error::io("run background work of", &core.tree.ssts.dir, std::io::Error::other(text));
    core.journal.log.stop(error.clone());
    let board = &core.board;
    board.shared.lock().failed = Some(Error::Poisoned(Arc::new(error)));
    board.progress.notify_all();
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
    let visible = core.journal.committer.visible();
    let oldest_read = core.tree.read_points.live().first().copied().unwrap_or(visible).min(visible);
    let running: Vec<&CompactionJob> = shared.running.iter().map(|job| &**job).collect();
    let shape = shape(version);
    let now = core.options.clock.now_us();
    let void = core.tree.installer.void_bytes();
    let input = PickInput {
        shape: &shape,
        running: &running,
        oldest_read,
        is_dropped: &|id: IndexId| core.tree.installer.is_dropped(id),
        void_bytes: &|no| void.get(&no).copied().unwrap_or(0),
        is_quarantined: &|no| shared.quarantine.is_quarantined(no, now),
        ahead_of: None,
    };
    let options = PickOptions {
        target_file_bytes: core.settings.sst_bytes(),
        base_bytes: core.settings.base_bytes(),
        max_job_bytes: core.settings.sst_bytes() * JOB_FILES,
        ..PickOptions::default()
    };
    use_it(&input, &options)
}
