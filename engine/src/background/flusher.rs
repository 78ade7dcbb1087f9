//! The thread that flushes: sealed memtables become files of level 0, and the log before them is given up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::RETRY;
use super::cleaner::note;
use super::scheduler::{look, shape};
use crate::base::{Error, Result};
use crate::cache::Queue;
use crate::compact::merge::SLICE_BYTES;
use crate::compact::throttle::{memory_pressure, nice};
use crate::crash_point::CrashPoint;
use crate::event::{Event, FlushReason, Work, is_listening};
use crate::flush;
use crate::io::{Blocking, NICE_MAX, Waiting};
use crate::manifest::VersionEdit;
use crate::output::{self, Filters, merge_env, version_gc};
use crate::parts::Core;
use crate::sst::{Residence, SstMeta};
use crate::state::{ReadState, Sealed};

/// Ranks the calling thread, which flushes, among the threads of users.
fn rank_flush(core: &Core) {
    core.options.scheduler.set_nice(nice(memory_pressure(&core.loads()), NICE_MAX / 2));
}

/// A listener does not wait for background work: the thread that would do it may be the listener's.
pub(super) fn refuse_listener() -> Result<()> {
    match is_listening() {
        true => Err(Error::Invalid("a listener cannot wait for background work".into())),
        false => Ok(()),
    }
}

/// Waits until no sealed memtable is left, or `tick`, asked again and again, fails.
pub(crate) fn flush_and_wait(core: &Core, tick: &dyn Fn() -> Result<()>) -> Result<()> {
    refuse_listener()?;
    let _waiting = Waiting::begin(Blocking::Background);
    let mut shared = core.board.shared.lock();
    // An attempt that is under way may have begun before the memtable was sealed, or the disk had room.
    let enough = shared.attempts + 1 + u64::from(shared.flushing);
    loop {
        shared.check()?;
        if core.tree.states.load().sealed.is_empty() && !shared.flushing {
            return Ok(());
        }
        if let Some(error) = shared.flush_error.as_ref().filter(|_| shared.attempts >= enough) {
            return Err(error.clone());
        }
        shared.hurry = true;
        core.board.flush_wake.notify_one();
        core.board.progress.wait_for(&mut shared, Duration::from_millis(50));
        MutexGuard::unlocked(&mut shared, tick)?;
    }
}

/// Flushes what is sealed until the store is closed.
pub(super) fn flush_loop(core: &Arc<Core>) {
    let board = &core.board;
    let mut batch = usize::MAX;
    loop {
        {
            let mut shared = board.shared.lock();
            while !shared.stopping && core.tree.states.load().sealed.is_empty() {
                board.flush_wake.wait_for(&mut shared, Duration::from_millis(100));
            }
            if shared.stopping {
                return;
            }
            shared.flushing = true;
            shared.hurry = false;
        }
        rank_flush(core);
        let result = flush_as_room_allows(core, &mut batch);
        let failed = result.is_err();
        {
            let mut shared = board.shared.lock();
            shared.flushing = false;
            shared.attempts += 1;
            shared.flush_error = result.as_ref().err().cloned();
            board.progress.notify_all();
        }
        note(core, Work::Flush, &result);
        look(core);
        board.wake_cleaner();
        if failed {
            let mut shared = board.shared.lock();
            let until = Instant::now() + RETRY;
            while !shared.stopping && !shared.hurry {
                // Every commit wakes this thread.
                if board.flush_wake.wait_until(&mut shared, until).timed_out() {
                    break;
                }
            }
        }
    }
}

/// Flushes up to `batch` sealed memtables. Several at once write the fewest bytes. Where the disk is too full for them
/// there may be room for one: then the oldest goes alone, and after each success the next flush tries twice as many.
fn flush_as_room_allows(core: &Arc<Core>, batch: &mut usize) -> Result<()> {
    let several = core.tree.states.load().sealed.len().min(*batch) > 1;
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

/// A flush as events tell of it.
struct FlushJob {
    no: u64,
    memtables: u64,
    bytes: u64,
    reason: FlushReason,
    begun_us: u64,
}

/// Writes sealed memtables to level 0: the oldest ones, at most `batch` and up to the first that has files behind it. Those
/// only have to be named, in level 0 or the last one. One file must not hold versions from both sides of them, since the
/// newest number in a file is its age.
pub(super) fn flush_oldest(core: &Arc<Core>, batch: usize) -> Result<()> {
    let state = core.tree.states.pin();
    let until = state.sealed.iter().rposition(|sealed| !sealed.files.is_empty()).unwrap_or(0);
    let (kept, sealed) = state.sealed.split_at(until.max(state.sealed.len().saturating_sub(batch)));
    let Some(oldest) = sealed.last() else { return Ok(()) };
    let job = FlushJob {
        no: core.events.new_job(),
        memtables: sealed.len() as u64,
        bytes: sealed.iter().map(|sealed| sealed.mem.table.bytes() as u64).sum(),
        reason: oldest.reason,
        begun_us: core.options.clock.now_us(),
    };
    let FlushJob { no, memtables, bytes, reason, .. } = job;
    core.events.tell(|| Event::FlushBegun { job: no, memtables, bytes, reason });
    flush_these(core, &state, kept, sealed, &job)
        .inspect_err(|error| core.events.tell(|| Event::FlushFailed { job: no, error: error.clone() }))
}

fn flush_these(core: &Arc<Core>, state: &ReadState, kept: &[Sealed], sealed: &[Sealed], job: &FlushJob) -> Result<()> {
    let Some(newest) = sealed.first() else { return Ok(()) };
    let last = newest.mem.last_seq();
    // Everything in a sealed memtable has been ordered; make sure that it has been applied.
    core.journal.committer.publish(last);
    let next = kept.last().map_or(&state.active, |sealed| &sealed.mem);
    // If that fails, the flush goes on without: what is held back is released by a later one.
    note(core, Work::Relocation, &core.journal.committer.relocate(next.min_lsn()));
    core.crash_point(CrashPoint::Relocated);
    let logged = core.journal.log.end();
    let tables: Vec<_> = sealed.iter().map(|sealed| sealed.mem.table.clone()).collect();
    let base = core.board.last_scores().base;
    let shape = shape(&state.version);
    let guides = &shape.levels[usize::from(base.max(1))];
    let below: Vec<&[&SstMeta]> = shape.sublevels.iter().chain(&shape.levels[1..]).map(Vec::as_slice).collect();
    let taken = &core.board.flush_taken;
    taken.store(0, Ordering::Relaxed);
    let tick = || {
        taken.fetch_add(SLICE_BYTES, Ordering::Relaxed);
        rank_flush(core);
        // Writers go on meanwhile, into memory that may be lent.
        core.share_memory();
        Ok(())
    };
    let filters = Filters::new(core, &state.version, 0);
    // What was in memory stays there if it costs nobody his place.
    let probation = Residence { queue: Queue::Probation, compressed: false };
    let residence = |_: &[u8]| core.tree.ssts.cache.has_room().then_some(probation);
    let env = merge_env(core, |key| filters.exclude(key), tick, residence)?;
    let result = flush::flush(&tables, version_gc(core), core.settings.sst_bytes(), guides, &below, &env)?;
    let log_start = core.journal.committer.log_start_after(sealed.len());
    let reserved = output::reserve(core, newest.files.iter().map(|file| &file.meta), &result.outputs);
    let edit = VersionEdit {
        added: result.outputs.iter().map(|meta| (0, meta.clone())).chain(reserved.files()).collect(),
        flushed_seq: Some(last),
        log_start: Some(log_start),
        ..VersionEdit::default()
    };
    let takes_over = !newest.files.is_empty();
    if takes_over {
        core.crash_point(CrashPoint::TakeoverBegins);
    }
    // The log comes first: were a table durable before the decision record of a transaction in it, recovery could see
    // that transaction as in doubt while its writes, and later ones on top of them, are there (invariant 8).
    let ready = || core.journal.log.sync(logged);
    let installed = output::install(core, &result, ready, edit, sealed.len(), |counters| {
        taken.store(0, Ordering::Relaxed);
        counters.flushes += sealed.len() as u64;
        counters.flush_bytes_in += job.bytes;
        counters.flush_us += core.options.clock.now_us().saturating_sub(job.begun_us);
        counters.flush_bytes += result.stats.bytes_written;
    });
    drop(reserved);
    let refused = installed?.unwrap_or_default();
    newest.files.iter().filter(|file| refused.contains(&file.meta.no)).for_each(|file| file.mark_obsolete());
    if takes_over {
        core.crash_point(CrashPoint::TakenOver);
    }
    // If that fails, the segments are given up by the next flush.
    note(core, Work::Recycling, &core.journal.log.release_before(log_start));
    core.events.tell(|| {
        let &FlushJob { no, memtables, bytes: bytes_in, reason, begun_us } = job;
        let us = core.options.clock.now_us().saturating_sub(begun_us);
        let (files, bytes_out) = (result.outputs.len() as u64, result.stats.bytes_written);
        Event::FlushDone { job: no, memtables, files, bytes_in, bytes_out, reason, us }
    });
    Ok(())
}
