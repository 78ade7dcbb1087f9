//! The thread that keeps house.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sleep_or_stop;
use crate::compact::growth::Growth;
use crate::engine::{Core, Engine, table_path};
use crate::options::Durability;

/// Housekeeping: deletes files nobody needs, resizes the block cache to what its budget leaves it, prepares log segments,
/// syncs the log once per second where commits do not, leaves a witness behind the last sync, measures how fast the log
/// grows, does the chore of the layer above.
pub(super) fn clean_loop(core: &Arc<Core>) {
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
