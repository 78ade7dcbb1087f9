//! The threads that compact: take a job, carry it out in slices, sleep while it is ahead of the writers.
//!
//! A merge does a slice of its work when it is told to ([`run_job`]). Between two slices its thread looks up ([`Turns`]) and does
//! first what is more urgent by now, while the merge stays where it is; and it sleeps if nobody waits for merges. As urgency has
//! few degrees, merges do not pile up.
//!
//! Rejected: a list of merges that the thread chooses from after each slice. A merge that has begun is behind everything more
//! urgent and ahead of everything else, so the list would be the stack that it is now, and each merge would have to own the version,
//! the plan and the filters that it only borrows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{RETRY, look, shape, with_input};
use crate::base::Result;
use crate::board::Shared;
use crate::compact::manual::{Manual, manual};
use crate::compact::merge::{MergeResult, OutputPlan, Progress, SstSource, merge_of_files};
use crate::compact::pick::{Action, CompactionJob, LAST, PickInput, Reason, pick};
use crate::compact::quantum::Quantum;
use crate::compact::quarantine::MergeFailure;
use crate::compact::throttle::{merge_us, nice, tree_pressure};
use crate::io::{Blocking, NICE_MAX, Waiting};
use crate::manifest::{FileEntry, Version, VersionEdit};
use crate::output::{self, Filters, version_gc, with_env};
use crate::parts::Core;
use crate::sst::{Residence, Sst, SstMeta};

/// A merge sleeps no longer than this at once: urgent work waits for the end of a slice, and a slice for that of a sleep.
const LIMIT_MAX_US: u64 = 100_000;

/// Ranks the calling thread, which compacts, among the threads of users.
fn rank_compaction(core: &Core) {
    core.options.scheduler.set_nice(nice(tree_pressure(&core.loads()), NICE_MAX));
}

/// Keeps a merge that has taken in `bytes` in `work_us` of work to its rate, see `throttle`, unless somebody waits for merges.
fn limit_rate(core: &Core, bytes: u64, work_us: u64) {
    let may_take = merge_us(bytes, core.board.logged_per_s.load(Ordering::Relaxed), tree_pressure(&core.loads()));
    let sleep = may_take.saturating_sub(work_us).min(LIMIT_MAX_US);
    if sleep == 0 {
        return;
    }
    let mut shared = core.board.shared.lock();
    if shared.stopping || shared.awaiting > 0 {
        return;
    }
    let is_whole = core.board.rest_wake.wait_for(&mut shared, Duration::from_micros(sleep)).timed_out();
    drop(shared);
    if is_whole {
        core.board.counters.lock().compact_rest_us += sleep;
    }
}

/// Picks a job, more urgent than one of the reason `ahead_of` if there is any, and counts it as running.
fn take_job(core: &Core, shared: &mut Shared, ahead_of: Option<Reason>) -> Option<(Arc<Version>, Arc<CompactionJob>)> {
    let version = core.tree.states.load().version.clone();
    let job = with_input(core, &version, shared, |input, options| pick(&PickInput { ahead_of, ..*input }, options))?;
    let job = Arc::new(job);
    shared.running.push(job.clone());
    Some((version, job))
}

/// Counts time at work for a job.
fn count_work(core: &Core, job: &CompactionJob, us: u64) {
    if job.action == Action::Merge {
        core.board.counters.lock().levels[usize::from(job.output_level)].us += us;
    }
}

fn finish_job(core: &Core, job: &Arc<CompactionJob>) {
    core.board.end_job(job);
    core.board.progress.notify_all();
    core.board.wake_cleaner();
    look(core);
}

/// Merges all files with keys in `[lower, upper)` into the last level, see [`manual`], until `tick`, asked again and
/// again, fails.
pub(crate) fn compact_range(core: &Core, lower: &[u8], upper: &[u8], tick: &dyn Fn() -> Result<()>) -> Result<()> {
    // Files may be in merges of the background.
    let _awaiting = core.board.await_merges();
    loop {
        tick()?;
        let mut shared = core.board.shared.lock();
        shared.check()?;
        let version = core.tree.states.load().version.clone();
        let running: Vec<&CompactionJob> = shared.running.iter().map(|job| &**job).collect();
        let void = core.tree.installer.void_bytes();
        let void_bytes = |no| void.get(&no).copied().unwrap_or(0);
        match manual(&shape(&version), &running, &void_bytes, (lower, upper)) {
            Manual::Done => return Ok(()),
            Manual::Blocked => {
                let _waiting = Waiting::begin(Blocking::Background);
                core.board.progress.wait_for(&mut shared, Duration::from_millis(100));
                drop(shared);
            }
            Manual::Job(job) => {
                let job = Arc::new(job);
                shared.running.push(job.clone());
                drop(shared);
                let begun_us = core.options.clock.now_us();
                let result = run_job(core, &version, &job, &mut |_| tick());
                count_work(core, &job, core.options.clock.now_us().saturating_sub(begun_us));
                drop(version);
                finish_job(core, &job);
                result?;
            }
        }
    }
}

/// Carries out what is due until the store is closed.
pub(super) fn compact_loop(core: &Core) {
    let board = &core.board;
    loop {
        rank_compaction(core);
        let (version, job) = {
            let mut shared = board.shared.lock();
            loop {
                if shared.stopping {
                    return;
                }
                if let Some(taken) = take_job(core, &mut shared, None) {
                    break taken;
                }
                board.compact_wake.wait_for(&mut shared, Duration::from_secs(1));
            }
        };
        if !work_on(core, version, &job) {
            board.sleep_or_stop(&board.retry_wake, RETRY);
        }
    }
}

/// What a thread does between two slices of a merge.
struct Turns<'a> {
    core: &'a Core,
    /// Why it merges: what is more urgent comes first.
    reason: Reason,
    quantum: Quantum,
    working_since_us: u64,
    /// Of the slices that are done.
    worked_us: u64,
    /// Nothing that came first has failed: in the next turn it would fail again.
    may_yield: bool,
}

impl Turns<'_> {
    fn begin(core: &Core, reason: Reason) -> Turns<'_> {
        let now_us = core.options.clock.now_us();
        Turns { core, reason, quantum: Quantum::begin(now_us), working_since_us: now_us, worked_us: 0, may_yield: true }
    }

    /// A slice that took in `bytes` is done.
    fn next(&mut self, bytes: u64) {
        let (core, board) = (self.core, &self.core.board);
        let now_us = || core.options.clock.now_us();
        let work_us = now_us().saturating_sub(self.working_since_us);
        self.worked_us += work_us;
        limit_rate(core, bytes, work_us);
        if self.quantum.is_over(bytes, now_us()) {
            rank_compaction(core);
            while self.may_yield {
                let taken = take_job(core, &mut board.shared.lock(), Some(self.reason));
                let Some((version, urgent)) = taken else { break };
                self.may_yield = work_on(core, version, &urgent);
            }
            self.quantum = Quantum::begin(now_us());
        }
        self.working_since_us = now_us();
    }

    /// Time of work on the merge by now, without what came between its slices.
    fn worked_us(&self) -> u64 {
        self.worked_us + self.core.options.clock.now_us().saturating_sub(self.working_since_us)
    }
}

/// Carries out a job that was taken, in turns with what is more urgent. False if it failed and the next one may fail for the
/// same reason.
fn work_on(core: &Core, version: Arc<Version>, job: &Arc<CompactionJob>) -> bool {
    let mut turns = Turns::begin(core, job.reason);
    let result = run_job(core, &version, job, &mut |bytes| {
        turns.next(bytes);
        Ok(())
    });
    count_work(core, job, turns.worked_us());
    // The inputs are held no longer: the cleaner, who is woken below, finds them.
    drop(version);
    let go_on = note_outcome(core, job, result);
    finish_job(core, job);
    go_on
}

/// Keeps the error of a job, if it failed, and reports it the first time. See `work_on` for the result.
fn note_outcome(core: &Core, job: &CompactionJob, result: Result<()>) -> bool {
    let mut guard = core.board.shared.lock();
    let shared = &mut *guard;
    let Err(error) = result else {
        shared.compact_error = None;
        return true;
    };
    let verdict =
        shared.quarantine.failed(job.files(), |no| core.tree.ssts.path(no), &error, core.options.clock.now_us());
    let is_new = match verdict {
        MergeFailure::General => shared.compact_error.is_none(),
        MergeFailure::New => true,
        MergeFailure::Again => false,
    };
    let tell = is_new && !shared.stopping;
    if verdict == MergeFailure::General {
        shared.compact_error = Some(error.clone());
    }
    // Who listens may ask for the status, which needs the lock.
    drop(guard);
    if tell {
        core.options.report(&format!("compaction failed: {error}"));
    }
    verdict != MergeFailure::General
}

/// An input of a merge.
struct Input<'a> {
    core: &'a Core,
    file: &'a Arc<FileEntry>,
}

impl SstSource for Input<'_> {
    fn meta(&self) -> &SstMeta {
        &self.file.meta
    }
    fn sst(&self) -> Result<Arc<Sst>> {
        self.core.tree.ssts.reader(self.file).cloned()
    }
}

/// How the cache holds what a merge of `inputs`, upper levels first, replaces at `key`. The lowest of the files there decides:
/// it has most of the rows.
fn residence_before(inputs: &[&Arc<FileEntry>], key: &[u8]) -> Option<Residence> {
    let spans = |file: &&&Arc<FileEntry>| file.meta.smallest.as_slice() <= key && key <= file.meta.largest.as_slice();
    inputs.iter().rev().find(spans)?.sst.get()?.residence_of(key)
}

/// Carries out a job on the version it was picked from, slice by slice. Each time that there is more to do `turn` is told what
/// the slice took in; its error ends the job, and so does the end of the store.
fn run_job(core: &Core, version: &Version, job: &CompactionJob, turn: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
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
            let below: Vec<Vec<&SstMeta>> = (job.output_level + 1..=LAST)
                .map(|level| version.level(level).iter().map(|file| &file.meta).collect())
                .collect();
            let below: Vec<&[&SstMeta]> = below.iter().map(Vec::as_slice).collect();
            let target = core.settings.sst_bytes();
            let plan = match job.output_level {
                0 => OutputPlan::for_l0(target, &[], None),
                _ => OutputPlan::for_level(target, &below),
            };
            let plan = plan.within(&job.ranges);
            let sources = inputs.iter().map(|&file| Input { core, file }).collect();
            let filters = Filters::new(core, version, job.output_level);
            let residence = |key: &[u8]| residence_before(&inputs, key);
            result = with_env(core, &|key| filters.exclude(key), &|_| Ok(()), &residence, |env| {
                let mut merge = merge_of_files(sources, version_gc(core), &plan, env);
                loop {
                    match merge.run_slice()? {
                        Progress::Done(result) => return Ok(result),
                        Progress::More(bytes) => {
                            (env.tick)(bytes)?;
                            turn(bytes)?;
                        }
                    }
                }
            })?;
            edit.added = result.outputs.iter().map(|meta| (job.output_level, meta.clone())).collect();
        }
    }
    if output::install(core, Ok(()), edit, 0, &result.outputs)?.is_none() {
        // An input went with its dropped index: the outputs are of no use.
        return Ok(());
    }
    let mut counters = core.board.counters.lock();
    match job.action {
        Action::Merge => {
            counters.compactions += 1;
            counters.compact_bytes_read += job.bytes;
            counters.compact_bytes_written += result.stats.bytes_written;
            let level = &mut counters.levels[usize::from(job.output_level)];
            level.compactions += 1;
            level.bytes_read += job.bytes;
            level.bytes_written += result.stats.bytes_written;
            counters.dropped_versions += result.stats.puts_dropped + result.stats.tombstones_dropped;
        }
        Action::Move => counters.moves += inputs.len() as u64,
        Action::Delete => {}
    }
    Ok(())
}
