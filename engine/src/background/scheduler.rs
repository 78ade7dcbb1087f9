//! Which merge runs its next slice.
//!
//! Merges under way are values ([`Running`]). A thread has one in hand for a quantum (`compact::quantum`). Then it lays it down
//! among those that rest and takes what is most urgent: a job that is due if it is more urgent than every merge that
//! rests, or else the most urgent of these. So no merge runs within another one, and one that was laid down goes on in whichever
//! thread is free first. As urgency has few degrees and each job that is begun is above all that rest, merges do not pile
//! up.
//!
//! Rejected: merges within the turns of others, on the stack of their thread (one that has begun could go on in no other thread,
//! and only after all that came on top of it).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::running::Running;
use crate::base::{Error, FileNo, IndexId, Result};
use crate::board::Shared;
use crate::compact::manual::{Manual, Waste, manual, remaining};
use crate::compact::pick::{Action, CompactionJob, PickInput, PickOptions, Reason, Shape, pick, scores};
use crate::compact::quarantine::MergeFailure;
use crate::compact::renew::renew;
use crate::event::Work;
use crate::manifest::Version;
use crate::parts::Core;
use crate::renewal::Renewal;

/// Largest job from level 0, in files of full size: what a job needs on disk beside its inputs stays a small part of the
/// store.
const JOB_FILES: u64 = 32;

/// See the module.
pub(super) struct Scheduler {
    pub core: Arc<Core>,
    /// Merges that have begun and that no thread has in hand. Taken under the lock of the board.
    resting: Mutex<Vec<Running>>,
}

impl Scheduler {
    pub fn new(core: &Arc<Core>) -> Scheduler {
        Scheduler { core: core.clone(), resting: Mutex::default() }
    }

    /// Lays down what the calling thread has in hand, if anything, and takes what it goes on with, for which it waits. No job
    /// is begun before `begin_from`. `None` when the store is being closed.
    pub fn next(&self, in_hand: Option<Running>, begin_from: Option<Instant>) -> Option<Running> {
        let board = &self.core.board;
        let mut shared = board.shared.lock();
        self.resting.lock().extend(in_hand);
        loop {
            if shared.stopping {
                return None;
            }
            let now = Instant::now();
            let pause = begin_from.and_then(|from| from.checked_duration_since(now)).filter(|pause| !pause.is_zero());
            if let Some(taken) = self.take(&mut shared, pause.is_none()) {
                if !self.resting.lock().is_empty() {
                    // For a thread that has nothing in hand.
                    board.compact_wake.notify_one();
                }
                return Some(taken);
            }
            board.compact_wake.wait_for(&mut shared, pause.unwrap_or(Duration::from_secs(1)));
        }
    }

    /// What is most urgent now.
    fn take(&self, shared: &mut Shared, may_begin: bool) -> Option<Running> {
        let mut resting = self.resting.lock();
        let reasons = resting.iter().map(Running::reason).enumerate();
        let best = reasons.max_by_key(|(_, reason)| reason.urgency());
        if let Some((version, job)) = may_begin.then(|| take_job(&self.core, shared, best.map(|(_, r)| r))).flatten() {
            return Some(Running::new(&self.core, version, job));
        }
        best.map(|(at, _)| resting.remove(at))
    }

    /// Ends a job. False if it failed and the next one may fail for the same reason.
    pub fn end(&self, running: Running, result: Result<()>) -> bool {
        // Its inputs are held no longer: the cleaner, who is woken below, finds them.
        let job = running.finish(&result);
        let go_on = note_outcome(&self.core, &job, result);
        end_job(&self.core, &job);
        go_on
    }

    /// Gives up the merges that rest, at the end of the store.
    pub fn give_up(&self) {
        let resting = std::mem::take(&mut *self.resting.lock());
        for running in resting {
            self.core.board.end_job(&running.finish(&Err(Error::Closed)));
        }
    }
}

/// Picks a job, more urgent than one of the reason `ahead_of` if there is any, and counts it as running.
fn take_job(core: &Core, shared: &mut Shared, ahead_of: Option<Reason>) -> Option<(Arc<Version>, Arc<CompactionJob>)> {
    let version = core.tree.states.load().version.clone();
    let job = Arc::new(due(core, &version, shared, ahead_of)?);
    shared.running.push(job.clone());
    Some((version, job))
}

/// The job that is due, more urgent than one of the reason `ahead_of`. What is to be written anew comes after all else.
fn due(core: &Core, version: &Version, shared: &Shared, ahead_of: Option<Reason>) -> Option<CompactionJob> {
    let picked = with_input(core, version, shared, |input, options| pick(&PickInput { ahead_of, ..*input }, options));
    if picked.is_some() || ahead_of.is_some() {
        return picked;
    }
    let renewed =
        core.renewals.in_force().iter().find_map(|renewal| match next_renewed(core, version, shared, renewal) {
            Manual::Job(job) => Some(job),
            Manual::Done | Manual::Blocked => None,
        });
    renewed.or_else(|| next_stale(core, version, shared))
}

/// The next file that is not encrypted as it should be.
fn next_stale(core: &Core, version: &Version, shared: &Shared) -> Option<CompactionJob> {
    if !core.reencryption.is_wanted() {
        return None;
    }
    let running: Vec<&CompactionJob> = shared.running.iter().map(|job| &**job).collect();
    let now = core.options.clock.now_us();
    let is_quarantined = |no| shared.quarantine.is_quarantined(no, now);
    match renew(&shape(version), &running, &|meta| core.is_stale(meta), &is_quarantined) {
        Manual::Job(job) => Some(job),
        Manual::Blocked => None,
        Manual::Done => {
            core.reencryption.rest();
            None
        }
    }
}

fn next_renewed(core: &Core, version: &Version, shared: &Shared, renewal: &Renewal) -> Manual {
    let running: Vec<&CompactionJob> = shared.running.iter().map(|job| &**job).collect();
    let now = core.options.clock.now_us();
    let is_quarantined = |no| shared.quarantine.is_quarantined(no, now);
    renew(&shape(version), &running, &|meta| renewal.is_old(meta), &is_quarantined)
}

/// Whether nothing can be done for a renewal now: what is left of it are files that cannot be read.
pub(super) fn is_stuck(core: &Core, shared: &Shared, renewal: &Renewal) -> bool {
    let version = core.tree.states.load().version.clone();
    shared.running.is_empty()
        && version.holding(renewal.index()).any(|(_, file)| renewal.is_old(&file.meta))
        && matches!(next_renewed(core, &version, shared, renewal), Manual::Blocked)
}

/// The next step of merging all files with keys in a range into the last level, counted as running; see [`manual`].
pub(super) enum Step {
    Done,
    Blocked,
    /// With what it reads, and what there is to read yet, this included, in uncompressed bytes.
    Job(Running, u64, u64),
}

/// `newest`: of the files of the last level those up to this one are cleared of what nobody reads.
pub(super) fn take_step(core: &Arc<Core>, shared: &mut Shared, keys: (&[u8], &[u8]), newest: FileNo) -> Step {
    let version = core.tree.states.load().version.clone();
    let running: Vec<&CompactionJob> = shared.running.iter().map(|job| &**job).collect();
    let void = core.tree.installer.void_bytes();
    let void_bytes = |no| void.get(&no).copied().unwrap_or(0);
    let shape = shape(&version);
    let waste = Waste { void_bytes: &void_bytes, oldest_read: core.tree.oldest_read(), newest };
    match manual(&shape, &running, &waste, keys) {
        Manual::Done => Step::Done,
        Manual::Blocked => Step::Blocked,
        Manual::Job(job) => {
            let job = Arc::new(job);
            let inputs = version.files().map(|(_, file)| &file.meta).filter(|meta| job.files().any(|no| no == meta.no));
            let bytes = inputs.map(|meta| meta.raw_bytes).sum();
            let left = remaining(&shape, &waste, keys).max(bytes);
            drop(shape);
            shared.running.push(job.clone());
            Step::Job(Running::new(core, version, job), bytes, left)
        }
    }
}

/// Whether a job could begin now.
pub(super) fn is_due(core: &Core, shared: &Shared) -> bool {
    let version = core.tree.states.load().version.clone();
    due(core, &version, shared, None).is_some()
}

/// Takes a job off those that run, and tells everybody who may have waited for that.
pub(super) fn end_job(core: &Core, job: &Arc<CompactionJob>) {
    core.board.end_job(job);
    core.board.progress.notify_all();
    core.board.wake_cleaner();
    look(core);
}

/// Keeps the error of a job, if it failed, and tells it if it is news. See [`Scheduler::end`] for the result.
fn note_outcome(core: &Core, job: &CompactionJob, result: Result<()>) -> bool {
    let now_us = core.options.clock.now_us();
    let Err(error) = result else {
        core.board.shared.lock().compact_error = None;
        // Moving names needs no space, and reads nothing.
        if job.action == Action::Merge {
            core.events.succeeded(Work::Merge, job.bytes, now_us);
        }
        return true;
    };
    let verdict = {
        let mut guard = core.board.shared.lock();
        let shared = &mut *guard;
        let verdict = shared.quarantine.failed(job.files(), |no| core.tree.ssts.path(no), &error, now_us);
        if verdict == MergeFailure::General {
            shared.compact_error = Some(error.clone());
        }
        verdict
    };
    match verdict {
        MergeFailure::General => core.events.failed(Work::Merge, job.bytes, &error, now_us),
        MergeFailure::New => core.events.unreadable(Work::Merge, &error),
        MergeFailure::Again => {}
    }
    verdict != MergeFailure::General
}

/// Looks at the tree: updates the scores that pacing uses, wakes compaction if there may be work.
pub(super) fn look(core: &Core) {
    let mut shared = core.board.shared.lock();
    let version = core.tree.states.load().version.clone();
    shared.quarantine.keep(|no| version.files().any(|(_, file)| file.meta.no == no));
    let found = with_input(core, &version, &shared, scores);
    drop(shared);
    core.board.note_scores(found);
}

/// The files of a version, as the picker sees them.
pub(super) fn shape(version: &Version) -> Shape<'_> {
    let sublevels = version.sublevels().map(|run| run.iter().map(|file| &file.meta).collect()).collect();
    let mut shape = Shape { sublevels, ..Shape::default() };
    for (level, files) in shape.levels.iter_mut().enumerate().skip(1) {
        *files = version.level(level as u8).iter().map(|file| &file.meta).collect();
    }
    shape
}

/// Shows the tree as it is to the picker.
fn with_input<R>(
    core: &Core,
    version: &Version,
    shared: &Shared,
    use_it: impl FnOnce(&PickInput<'_>, &PickOptions) -> R,
) -> R {
    let oldest_read = core.tree.oldest_read();
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
