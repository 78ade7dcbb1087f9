//! Takes the sample of an open store.

use std::sync::atomic::Ordering;

use super::text::{Failures, report};
use super::{Metric, Metrics};
use crate::base::{failure_counts, slots};
use crate::compact::throttle::{Admission, admission, memory_pressure, tree_pressure};
use crate::engine::Core;

impl Metrics {
    pub(crate) fn collect(core: &Core) -> Metrics {
        let state = core.states.pin();
        let log = core.log.counters();
        let visible = core.committer.visible();
        let live = core.read_points.live();
        let (locks, locked) = (core.locks.counters(), core.locks.usage());
        let (descriptors, descriptor_limit) = core.options.disk.descriptors().unwrap_or_default();
        let loads = core.background.loads(core);
        let terms = admission(&loads);
        let mut metrics = Metrics {
            visible_seq: visible.0,
            stopped: core.log.check().is_err(),
            memtable_bytes: state.memtable_bytes(),
            memtable_spare_bytes: core.states.unused_bytes(),
            table_index_bytes: state.version.sst_bytes(),
            unused_slot_bytes: slots::unused_bytes() as u64,
            log_buffer_bytes: core.log.buffer_bytes(),
            merge_buffer_bytes: core.background.buffer_bytes() + core.cache.bypass_bytes(),
            memtable_pinned_bytes: core.states.pinned_bytes(),
            write_buffer_bytes: core.write_buffer_bytes.load(Ordering::Relaxed),
            prepared_bytes: core.committer.prepared_bytes(),
            large_block_bytes: slots::large_bytes() as u64,
            lock_bytes: locked.bytes,
            locked_keys: locked.keys,
            locked_intervals: locked.intervals,
            sealed_memtables: state.sealed.len() as u64,
            sublevels: state.version.sublevels().count() as u64,
            debt_bytes: core.background.last_scores().debt_bytes as u64,
            cache_bytes: core.cache.usage() as u64,
            cache_capacity_bytes: core.cache.capacity() as u64,
            cache_hits: core.cache.hits(),
            cache_misses: core.cache.misses().saturating_sub(core.cache.second_hits()),
            cache_packed_hits: core.cache.second_hits(),
            cache_packed_bytes: core.cache.second_bytes() as u64,
            cache_evictions: core.cache.evictions(),
            log_records: log.records,
            log_payload_bytes: log.payload_bytes,
            log_bytes_written: log.payload_bytes + log.padding_bytes,
            log_syncs: log.syncs,
            log_sync_us: log.sync_us,
            log_groups: log.groups,
            log_segments: log.segments,
            log_live_bytes: core.log.live_bytes(),
            read_points: live.len() as u64,
            oldest_read_point_lag: live.first().map_or(0, |oldest| visible.0.saturating_sub(oldest.0)),
            prepared_detached: core.prepared.lock().len() as u64,
            lock_waits: locks.waits,
            deadlocks: locks.deadlocks,
            lock_timeouts: locks.timeouts,
            lock_wait_us: locks.wait_us,
            lock_waiting: core.locks.waiting() as u64,
            commits: core.committer.commits(),
            internal_commits: core.committer.internal_commits(),
            rollbacks: core.committer.rollbacks(),
            prepared: core.committer.prepared() as u64,
            oldest_read_point_us: core.read_points.oldest().map_or(0, |(_, age_us)| age_us),
            memtable_budget_bytes: core.memtable_budget(),
            cache_budget_bytes: core.cache_budget(),
            transaction_budget_bytes: core.transaction_bytes() as u64,
            log_budget_bytes: core.log_bytes_max(),
            compaction_threads: core.background.compactors() as u64,
            descriptors: descriptors as u64,
            descriptor_limit: descriptor_limit as u64,
            obsolete_files: core.obsolete_files.waiting() as u64,
            quarantined_files: core.background.quarantined_files() as u64,
            write_delay_ns_per_kb: terms.wait_ns(1024).unwrap_or(0),
            stalled: terms == Admission::Stop,
            memory_pressure_percent: (100.0 * memory_pressure(&loads)) as u64,
            tree_pressure_percent: (100.0 * tree_pressure(&loads)) as u64,
            failures: failure_counts(),
            work: core.background.counters(),
            ..Metrics::default()
        };
        for (level, file) in state.version.files() {
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
    let (flush, compaction) = core.background.errors();
    report(&values, &Failures { flush, compaction, stop: core.log.poison() })
}
