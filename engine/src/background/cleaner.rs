//! The thread that keeps house.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Chores, RETRY};
use crate::base::FileNo;
use crate::base::backoff::Backoff;
use crate::compact::rate_meter::RateMeter;
use crate::options::Durability;
use crate::parts::Core;

/// Housekeeping: deletes files nobody needs, resizes the block cache to what its budget leaves it, prepares log segments,
/// syncs the log once per second where commits do not, leaves a witness behind the last sync, measures how fast the log
/// grows, does the chore of the layer above.
pub(super) fn clean_loop(core: &Core, chores: &Chores) {
    let board = &core.board;
    let mut log_failed = false;
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
        core.tree.read_points.tick(core.options.clock.now_us());
        core.share_memory();
        leftover.remove_files(core);
        let limit = core.settings.log_bytes_max();
        if core.journal.log.end().0 > core.tree.states.load().active.min_lsn().0 + limit {
            core.journal.committer.seal();
            board.wake_flush();
        }
        let mut log = core.journal.log.prepare_next();
        if core.settings.durability() != Durability::EveryCommit {
            log = log.and_then(|()| core.journal.log.sync(core.journal.log.records_end()));
        }
        log = log.and(core.journal.log.witness());
        if let Err(error) = &log {
            // Once, not every second.
            if !log_failed {
                core.options.report(&format!("log: {error}"));
            }
        }
        log_failed = log.is_err();
        chores();
    }
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
        let known = again.len();
        let mut refused = false;
        for (at, no) in again.into_iter().chain(core.tree.obsolete_files.drain()).enumerate() {
            let Err(error) = ssts.remove(no) else { continue };
            // Once for each.
            if at >= known {
                core.options.report(&format!("cannot remove a file that is no longer needed: {error}"));
            }
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
        }
    }
}
