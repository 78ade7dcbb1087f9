//! The thread that keeps house.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{RETRY, sleep_or_stop};
use crate::base::FileNo;
use crate::base::backoff::Backoff;
use crate::compact::rate_meter::RateMeter;
use crate::engine::{Core, Engine, sst_path};
use crate::options::Durability;

/// Housekeeping: deletes files nobody needs, resizes the block cache to what its budget leaves it, prepares log segments,
/// syncs the log once per second where commits do not, leaves a witness behind the last sync, measures how fast the log
/// grows, does the chore of the layer above.
pub(super) fn clean_loop(core: &Arc<Core>) {
    let background = &core.background;
    let mut log_failed = false;
    let mut logged = RateMeter::default();
    let mut leftover = Leftover::default();
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
        leftover.remove_files(core);
        let limit = core.log_bytes_max();
        if core.log.end().0 > core.states.load().active.min_lsn().0 + limit {
            core.committer.seal(core.sinks(), limit);
            background.wake_flush();
        }
        let mut log = core.log.prepare_next();
        if core.durability() != Durability::EveryCommit {
            log = log.and_then(|()| core.log.sync(core.log.records_end()));
        }
        log = log.and(core.log.witness());
        if let Err(error) = &log {
            // Once, not every second.
            if !log_failed {
                core.options.report(&format!("log: {error}"));
            }
        }
        log_failed = log.is_err();
        Engine::do_chore(core);
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
        let known = again.len();
        let mut refused = false;
        for (at, no) in again.into_iter().chain(core.obsolete_files.drain()).enumerate() {
            core.cache.erase_file(no);
            let (disk, path) = (&core.options.disk, sst_path(&core.dir, no));
            let Err(error) = disk.remove(&path) else { continue };
            // Once for each.
            if at >= known {
                core.options.report(&format!("cannot remove a file that is no longer needed: {error}"));
            }
            // It may be gone all the same.
            if disk.exists(&path).unwrap_or(true) {
                self.files.push(no);
                refused = true;
            }
        }
        core.obsolete_files.note_refused(self.files.len());
        if refused {
            self.pauses.failed(now);
        } else if self.files.is_empty() {
            self.pauses.succeeded();
        }
    }
}
