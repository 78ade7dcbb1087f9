//! The thread that keeps house.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::scheduler::is_due;
use super::{Chores, RETRY};
use crate::base::backoff::Backoff;
use crate::base::{FileNo, Result};
use crate::compact::rate_meter::RateMeter;
use crate::event::{Event, FlushReason, Work};
use crate::io::Mode;
use crate::options::Durability;
use crate::parts::Core;
use crate::reencryption::Change;
use crate::sst::gather;

/// Least bytes for which a full disk is asked again.
const PROBE_BYTES_MIN: u64 = 64 << 10;

/// Housekeeping: deletes files nobody needs, resizes the block cache to what its budget leaves it, gathers its blocks, prepares log segments,
/// syncs the log once per second where commits do not, leaves a witness behind the last sync, measures how fast the log
/// grows, tells what nobody else is there to tell (a stop that was met under locks, space that writers find again, a backlog
/// that slows them), does the chore of the layer above.
pub(super) fn clean_loop(core: &Core, chores: &Chores) {
    let board = &core.board;
    let mut logged = RateMeter::default();
    let mut leftover = Leftover::default();
    loop {
        board.sleep_or_stop(&board.clean_wake, Duration::from_secs(1));
        if board.stopping() {
            return;
        }
        if let Some(rate) = logged.per_second(core.journal.log.counters().payload_bytes, core.options.clock.now_us()) {
            board.logged_per_s.store(rate, Ordering::Relaxed);
        }
        core.journal.log.tell_stopped();
        core.tree.read_points.tick(core.options.clock.now_us());
        core.share_memory();
        gather(&core.tree.ssts.cache);
        leftover.remove_files(core);
        let limit = core.settings.log_bytes_max();
        if core.journal.log.end().0 > core.tree.states.load().active.min_lsn().0 + limit {
            core.journal.committer.seal(FlushReason::Log);
            board.wake_flush();
        }
        let mut log = core.journal.log.prepare_next();
        if core.settings.durability() != Durability::EveryCommit {
            log = log.and_then(|()| core.journal.log.sync(core.journal.log.records_end()));
        }
        log = log.and(core.journal.log.witness());
        note(core, Work::Log, &log);
        look_for_space(core);
        look_at_encryption(core);
        let slept_us = || core.board.counters().write_delay_us;
        core.events.look_at_backlog(slept_us, core.options.clock.now_us(), || core.lag());
        chores();
    }
}

/// Tells what came of work that is repeated.
pub(super) fn note(core: &Core, work: Work, outcome: &Result<()>) {
    let now_us = core.options.clock.now_us();
    match outcome {
        Ok(()) => core.events.succeeded(work, u64::MAX, now_us),
        Err(error) => core.events.failed(work, 0, error, now_us),
    }
}

/// Asks for newer versions of keys, has files written anew that are not encrypted as they should be, and at the end the manifest.
fn look_at_encryption(core: &Core) {
    let now_us = core.options.clock.now_us();
    let version = core.tree.states.load().version.clone();
    let is_newer = core.tree.ssts.keys.renew();
    match core.reencryption.look(&version, &|meta| core.is_stale(meta), is_newer, now_us) {
        Change::None => {}
        Change::Begun(files, bytes) => {
            core.events.tell(|| Event::ReencryptionBegun { files, bytes });
            core.board.compact_wake.notify_all();
        }
        Change::Done(us) => core.events.tell(|| Event::ReencryptionDone { us }),
    }
    if core.reencryption.wants_manifest() && core.tree.installer.renew_manifest().is_ok() {
        core.reencryption.manifest_is_new();
    }
}

/// While the disk is full: finds out for those who do not try again by themselves whether it has space for them now.
fn look_for_space(core: &Core) {
    let now_us = core.options.clock.now_us();
    // A writer has got its error and may be gone. If there is room for what it had, the next one finds it.
    if let Some(bytes) = core.events.refused_bytes(Work::Write)
        && core.journal.log.reserve(bytes as usize).is_ok()
    {
        core.events.succeeded(Work::Write, bytes, now_us);
    }
    for work in [Work::Spill, Work::Record] {
        if let Some(bytes) = core.events.refused_bytes(work)
            && has_space(core, bytes.max(PROBE_BYTES_MIN))
        {
            core.events.succeeded(work, bytes, now_us);
        }
    }
    // The merge may have gone with its index.
    if core.events.refused_bytes(Work::Merge).is_some() {
        let is_idle = {
            let shared = core.board.shared.lock();
            shared.running.is_empty() && !is_due(core, &shared)
        };
        if is_idle {
            core.events.succeeded(Work::Merge, u64::MAX, now_us);
        }
    }
}

/// Whether the disk has space for a file of so many bytes. After a crash here the file is an orphan.
fn has_space(core: &Core, bytes: u64) -> bool {
    let ssts = &core.tree.ssts;
    let path = ssts.path(core.tree.installer.new_file());
    let made = ssts.disk.open(&path, Mode::Create, false).and_then(|file| file.allocate(bytes));
    drop(ssts.disk.remove(&path));
    made.is_ok()
}

/// Files that nobody needs and that could not be removed. They are tried again after pauses that double, and what is left then
/// goes at the next start.
struct Leftover {
    files: Vec<FileNo>,
    pauses: Backoff,
}

impl Default for Leftover {
    fn default() -> Leftover {
        let retry_us = RETRY.as_micros() as u64;
        Leftover { files: Vec::new(), pauses: Backoff::new(retry_us, 32 * retry_us) }
    }
}

impl Leftover {
    fn remove_files(&mut self, core: &Core) {
        let now = core.options.clock.now_us();
        let again = match self.pauses.is_due(now) {
            true => std::mem::take(&mut self.files),
            false => Vec::new(),
        };
        let ssts = &core.tree.ssts;
        let mut refused = false;
        for no in again.into_iter().chain(core.tree.obsolete_files.drain()) {
            let Err(error) = ssts.remove(no) else { continue };
            core.events.failed(Work::Removal, 0, &error, now);
            // It may be gone all the same.
            if ssts.disk.exists(&ssts.path(no)).unwrap_or(true) {
                self.files.push(no);
                refused = true;
            }
        }
        core.tree.obsolete_files.note_refused(self.files.len());
        if refused {
            self.pauses.failed(now);
        } else if self.files.is_empty() {
            self.pauses.succeeded();
            core.events.succeeded(Work::Removal, 0, now);
        }
    }
}
