//! The threads that compact, and those who wait for it. A thread has one merge in hand at a time, which the scheduler chooses;
//! it sleeps between two slices while the merge is ahead of the writers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::RETRY;
use super::flusher::refuse_listener;
use super::running::{Running, Slice};
use super::scheduler::{Scheduler, Step, end_job, is_due, is_stuck, take_step};
use crate::base::Result;
use crate::compact::quantum::Quantum;
use crate::compact::throttle::{merge_us, nice, tree_pressure};
use crate::io::{Blocking, NICE_MAX, Waiting};
use crate::parts::Core;
use crate::renewal::Renewal;

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

/// Carries out what is due until the store is closed.
pub(super) fn compact_loop(scheduler: &Scheduler) {
    let mut in_hand = None;
    let mut begin_from = None;
    loop {
        rank_compaction(&scheduler.core);
        let Some(mut running) = scheduler.next(in_hand.take(), begin_from) else { return };
        match run_quantum(&scheduler.core, &mut running) {
            Ok(Slice::More(_)) => in_hand = Some(running),
            ended => {
                // What rests goes on meanwhile.
                begin_from = match scheduler.end(running, ended.map(|_| ())) {
                    true => None,
                    false => Some(Instant::now() + RETRY),
                }
            }
        }
    }
}

/// Goes on with a job until its quantum is over, it is done or it fails.
fn run_quantum(core: &Core, running: &mut Running) -> Result<Slice> {
    let now_us = || core.options.clock.now_us();
    let mut since_us = now_us();
    let mut quantum = Quantum::begin(since_us);
    loop {
        let slice = running.run_slice();
        let work_us = now_us().saturating_sub(since_us);
        running.worked(work_us);
        let Slice::More(bytes) = slice? else { return Ok(Slice::Done) };
        limit_rate(core, bytes, work_us);
        since_us = now_us();
        if quantum.is_over(bytes, since_us) {
            return Ok(Slice::More(bytes));
        }
    }
}

/// Merges all files with keys in `[lower, upper)` into the last level, step by step, until `tick`, asked again and again,
/// fails: it is told how many uncompressed bytes were read, and how many there are in all, as far as that is known. The calling thread
/// does the work: it does not wait for its turn.
pub(crate) fn compact_range(
    core: &Arc<Core>,
    lower: &[u8],
    upper: &[u8],
    tick: &dyn Fn(u64, u64) -> Result<()>,
) -> Result<()> {
    refuse_listener()?;
    // Files may be in merges of the background.
    let _awaiting = core.board.await_merges();
    let newest = core.tree.states.load().version.files().map(|(_, file)| file.meta.no).max().unwrap_or_default();
    let (mut done, mut of) = (0, 0);
    loop {
        tick(done, of)?;
        let mut shared = core.board.shared.lock();
        shared.check()?;
        match take_step(core, &mut shared, (lower, upper), newest) {
            Step::Done => return Ok(()),
            Step::Blocked => {
                let _waiting = Waiting::begin(Blocking::Background);
                core.board.progress.wait_for(&mut shared, Duration::from_millis(100));
                drop(shared);
            }
            Step::Job(mut running, bytes, left) => {
                drop(shared);
                of = done + left;
                let end = done + bytes;
                let begun_us = core.options.clock.now_us();
                let result = loop {
                    match running.run_slice() {
                        Ok(Slice::More(taken)) => done = end.min(done + taken),
                        ended => break ended,
                    }
                    if let Err(error) = tick(done, of) {
                        break Err(error);
                    }
                };
                running.worked(core.options.clock.now_us().saturating_sub(begun_us));
                let result = result.map(drop);
                end_job(core, &running.finish(&result));
                result?;
                done = end;
            }
        }
    }
}

/// Waits until a renewal is done, or `tick`, asked again and again, fails; or for as long as merges go well.
pub(crate) fn await_renewal(core: &Core, renewal: &Renewal, tick: &dyn Fn() -> Result<()>) -> Result<()> {
    refuse_listener()?;
    let _awaiting = core.board.await_merges();
    let _waiting = Waiting::begin(Blocking::Background);
    let mut shared = core.board.shared.lock();
    while !renewal.is_done(&core.tree.states.load()) {
        shared.check()?;
        let error = shared.flush_error.as_ref().or(shared.compact_error.as_ref());
        let unreadable = || shared.quarantine.error().filter(|_| is_stuck(core, &shared, renewal));
        if let Some(error) = error.or_else(unreadable) {
            return Err(error.clone());
        }
        core.board.flush_wake.notify_one();
        core.board.compact_wake.notify_all();
        core.board.progress.wait_for(&mut shared, Duration::from_millis(20));
        MutexGuard::unlocked(&mut shared, tick)?;
    }
    Ok(())
}

/// Waits until nothing is running and nothing is due.
pub(crate) fn wait_idle(core: &Core) -> Result<()> {
    refuse_listener()?;
    let _awaiting = core.board.await_merges();
    let mut shared = core.board.shared.lock();
    loop {
        shared.check()?;
        if let Some(error) = shared.compact_error().or(shared.flush_error.as_ref()) {
            return Err(error.clone());
        }
        let due = is_due(core, &shared);
        if !due && shared.running.is_empty() && core.tree.states.load().sealed.is_empty() && !shared.flushing {
            return Ok(());
        }
        core.board.compact_wake.notify_all();
        core.board.progress.wait_for(&mut shared, Duration::from_millis(20));
    }
}
