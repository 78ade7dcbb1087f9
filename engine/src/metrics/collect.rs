//! Takes the sample of an open store.

use std::sync::atomic::Ordering;

use super::text::{Remarks, report};
use super::{Metric, Metrics};
use crate::base::{failure_counts, scratch, slots};
use crate::cache::Holder;
use crate::compact::throttle::{Admission, admission, memory_pressure, tree_pressure};
use crate::parts::Core;
use crate::sst::pinned_block_bytes;

impl Metrics {
    pub(crate) fn collect(core: &Core) -> Metrics {
        let (cache, committer) = (&core.tree.ssts.cache, &core.journal.committer);
        let state = core.tree.states.pin();
        let log = core.journal.log.counters();
        let visible = core.tree.states.visible();
        let live = core.tree.read_points.live();
        let (locks, locked) = (core.locks.counters(), core.locks.usage());
        let (descriptors, descriptor_limit) = core.options.disk.descriptors().unwrap_or_default();
        let encryption = core.reencryption.state();
        let history = core.tree.timeline.figures();
        let loads = core.loads();
        let terms = admission(&loads);
        let mut metrics = Metrics {
            visible_seq: visible.0,
            stopped: core.journal.log.check().is_err(),
            memtable_bytes: state.memtable_bytes(),
            memtable_spare_bytes: core.tree.states.unused_bytes(),
            table_index_bytes: state.version.sst_bytes(),
            unused_slot_bytes: slots::unused_bytes() as u64,
            log_buffer_bytes: core.journal.log.buffer_bytes(),
            merge_buffer_bytes: core.board.buffer_bytes() + cache.held_bytes(Holder::Bypass),
            memtable_pinned_bytes: core.tree.states.pinned_bytes(),
            write_buffer_bytes: core.write_buffer_bytes.load(Ordering::Relaxed),
            prepared_bytes: committer.prepared_bytes(),
            large_block_bytes: slots::large_bytes() as u64,
            block_pinned_bytes: pinned_block_bytes(),
            value_buffer_bytes: scratch::long_bytes() as u64,
            read_ahead_bytes: cache.held_bytes(Holder::ReadAhead),
            lock_bytes: locked.bytes,
            locked_keys: locked.keys,
            locked_intervals: locked.intervals,
            sealed_memtables: state.sealed.len() as u64,
            sublevels: state.version.sublevels().count() as u64,
            debt_bytes: core.board.last_scores().debt_bytes as u64,
            cache_bytes: cache.usage() as u64,
            cache_capacity_bytes: cache.capacity() as u64,
            cache_hits: cache.hits(),
            cache_misses: cache.misses().saturating_sub(cache.second_hits()),
            cache_packed_hits: cache.second_hits(),
            cache_packed_bytes: cache.second_bytes() as u64,
            cache_evictions: cache.evictions(),
            log_records: log.records,
            log_payload_bytes: log.payload_bytes,
            log_bytes_written: log.payload_bytes + log.padding_bytes,
            log_syncs: log.syncs,
            log_sync_us: log.sync_us,
            log_groups: log.groups,
            log_segments: log.segments,
            log_live_bytes: core.journal.log.live_bytes(),
            read_points: live.len() as u64,
            oldest_read_point_lag: live.first().map_or(0, |oldest| visible.0.saturating_sub(oldest.0)),
            history_retention_s: history.retention,
            history_moments: history.marks,
            history_oldest: history.oldest,
            prepared_detached: core.journal.detached_count() as u64,
            lock_waits: locks.waits,
            deadlocks: locks.deadlocks,
            lock_timeouts: locks.timeouts,
            lock_wait_us: locks.wait_us,
            lock_longest_wait_us: locks.longest_wait_us,
            lock_waiting: core.locks.waiting() as u64,
            commits: committer.commits(),
            internal_commits: committer.internal_commits(),
            rollbacks: committer.rollbacks(),
            prepared: committer.prepared() as u64,
            oldest_read_point_us: core.tree.read_points.oldest().map_or(0, |(_, age_us)| age_us),
            memtable_budget_bytes: core.settings.memtable_budget(),
            cache_budget_bytes: core.settings.cache_budget(),
            transaction_budget_bytes: core.settings.transaction_bytes() as u64,
            log_budget_bytes: core.settings.log_bytes_max(),
            compaction_threads: core.board.compactors() as u64,
            descriptors: descriptors as u64,
            descriptor_limit: descriptor_limit as u64,
            obsolete_files: core.tree.obsolete_files.waiting() as u64,
            encrypted_files: encryption.files,
            encrypted_bytes: encryption.bytes,
            reencryption_files: encryption.stale_files,
            reencryption_bytes: encryption.stale_bytes,
            quarantined_files: core.board.quarantined_files() as u64,
            write_delay_ns_per_kb: terms.wait_ns(1024).unwrap_or(0),
            stalled: terms == Admission::Stop,
            memory_pressure_percent: (100.0 * memory_pressure(&loads)) as u64,
            tree_pressure_percent: (100.0 * tree_pressure(&loads)) as u64,
            failures: failure_counts(),
            work: core.board.counters(),
            ..Metrics::default()
        };
        for (level, file) in state.version.files() {
            metrics.history_bytes += file.meta.superseded.bytes;
            metrics.level_files[usize::from(level)] += 1;
            metrics.level_bytes[usize::from(level)] += file.meta.file_bytes;
        }
        metrics
    }
}

/// The report behind SHOW ENGINE STRATA STATUS, with figures of the layer above.
pub(crate) fn status_text(core: &Core, more: &[(&'static Metric, u64)]) -> String {
    let metrics = Metrics::collect(core);
    let values: Vec<_> = metrics.values().chain(more.iter().copied()).collect();
    let (flush, compaction) = core.board.errors();
    let features = core.tree.installer.features();
    report(&values, &Remarks { features, flush, compaction, stop: core.journal.log.poison() })
}
