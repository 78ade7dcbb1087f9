//! Numbers about an open store, declared once. They are read, never acted upon.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::background::WorkCounters;
use crate::base::slots;
use crate::compact::pick::LEVELS;
use crate::engine::Core;

/// A sample. Counters count from the opening of the store.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Newest visible sequence number.
    pub visible_seq: u64,
    /// True if the store has stopped after a failure, and accepts nothing until it is opened again.
    pub stopped: bool,
    /// Bytes of the active and the sealed memtables.
    pub memtable_bytes: u64,
    /// Bytes kept for memtables to come.
    pub memtable_spare_bytes: u64,
    /// Bytes of the parts of open SSTs that do not go through the block cache.
    pub table_index_bytes: u64,
    /// Bytes of slots for blocks that hold none, of all stores of the process.
    pub unused_slot_bytes: u64,
    /// Bytes of the log's buffers.
    pub log_buffer_bytes: u64,
    /// Bytes of buffers that flushes and merges at work may fill.
    pub merge_buffer_bytes: u64,
    /// Bytes of memtables that are in SSTs already, and that open cursors hold.
    pub memtable_pinned_bytes: u64,
    /// Bytes of the write buffers of open transactions, but for those of less than 64 KiB.
    pub write_buffer_bytes: u64,
    /// Bytes of the writes of prepared transactions.
    pub prepared_bytes: u64,
    /// Bytes of blocks with one large value that readers hold, of all stores of the process.
    pub large_block_bytes: u64,
    /// Bytes of locks.
    pub lock_bytes: u64,
    /// Keys that somebody has locked.
    pub locked_keys: u64,
    /// Intervals that somebody has locked.
    pub locked_intervals: u64,
    /// Memtables waiting for a flush.
    pub sealed_memtables: u64,
    /// Files per level, level 0 first.
    pub level_files: [u64; LEVELS],
    /// Bytes per level.
    pub level_bytes: [u64; LEVELS],
    /// Sublevels of level 0.
    pub sublevels: u64,
    /// Bytes that compaction has still to write, as the picker estimates it.
    pub debt_bytes: u64,
    /// Bytes in the block cache.
    pub cache_bytes: u64,
    /// Its capacity.
    pub cache_capacity_bytes: u64,
    /// Block look-ups that were answered from memory.
    pub cache_hits: u64,
    /// Block look-ups that found a compressed block in memory.
    pub cache_packed_hits: u64,
    /// Block look-ups that read the disk.
    pub cache_misses: u64,
    /// Records appended to the log.
    pub log_records: u64,
    /// Bytes of them.
    pub log_payload_bytes: u64,
    /// Bytes written to log segments, padding included.
    pub log_bytes_written: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Bytes of log segments in use, the one made ahead included.
    pub log_live_bytes: u64,
    /// Live read points.
    pub read_points: u64,
    /// Sequence numbers between the oldest read point and now.
    pub oldest_read_point_lag: u64,
    /// Prepared transactions that no session holds.
    pub prepared_detached: u64,
    /// Lock requests that had to wait.
    pub lock_waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Lock waits that timed out.
    pub lock_timeouts: u64,
    /// Flushes and compactions.
    pub work: WorkCounters,
}

impl Metrics {
    pub(crate) fn collect(core: &Core) -> Metrics {
        let state = core.states.pin();
        let log = core.log.counters();
        let visible = core.committer.visible();
        let live = core.read_points.live();
        let (locks, locked) = (core.locks.counters(), core.locks.usage());
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
            log_records: log.records,
            log_payload_bytes: log.payload_bytes,
            log_bytes_written: log.payload_bytes + log.padding_bytes,
            log_syncs: log.syncs,
            log_live_bytes: core.log.live_bytes(),
            read_points: live.len() as u64,
            oldest_read_point_lag: live.first().map_or(0, |oldest| visible.0.saturating_sub(oldest.0)),
            prepared_detached: core.prepared.lock().len() as u64,
            lock_waits: locks.waits,
            deadlocks: locks.deadlocks,
            lock_timeouts: locks.timeouts,
            work: core.background.counters(),
            ..Metrics::default()
        };
        for (level, file) in state.version.files() {
            metrics.level_files[usize::from(level)] += 1;
            metrics.level_bytes[usize::from(level)] += file.meta.file_bytes;
        }
        metrics
    }

    /// What the store holds in memory, by use, in words. Beyond it there are a few buffers for each thread.
    pub fn memory(&self) -> [(&'static str, u64); 12] {
        [
            ("block cache, filters and index partitions included", self.cache_bytes),
            ("slots for blocks that hold none", self.unused_slot_bytes),
            ("memtables with their hash indexes", self.memtable_bytes),
            ("kept for memtables to come", self.memtable_spare_bytes),
            ("top-level indexes of open tables", self.table_index_bytes),
            ("log buffers", self.log_buffer_bytes),
            ("buffers of flushes and merges", self.merge_buffer_bytes),
            ("memtables in tables that cursors hold", self.memtable_pinned_bytes),
            ("write buffers of transactions", self.write_buffer_bytes),
            ("writes of prepared transactions", self.prepared_bytes),
            ("large values that are being read or merged", self.large_block_bytes),
            ("locks", self.lock_bytes),
        ]
    }

    /// Sum of [`Metrics::memory`].
    pub fn memory_bytes(&self) -> u64 {
        self.memory().iter().map(|(_, bytes)| bytes).sum()
    }

    /// What should not be there once every transaction and cursor is closed, by the names of [`Metrics::list`]: empty unless
    /// something was left behind. Locks of prepared transactions that no session holds count as left behind.
    pub fn left_behind(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("read_points", self.read_points),
            ("locked_keys", self.locked_keys),
            ("locked_intervals", self.locked_intervals),
            ("write_buffer_bytes", self.write_buffer_bytes),
            ("prepared_bytes", self.prepared_bytes),
            ("memtable_pinned_bytes", self.memtable_pinned_bytes),
            ("large_block_bytes", self.large_block_bytes),
        ];
        all.into_iter().filter(|(_, value)| *value > 0).collect()
    }

    /// All scalar numbers with their names, for status variables. Names are stable.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let w = &self.work;
        vec![
            ("memory_bytes", self.memory_bytes()),
            ("visible_sequence", self.visible_seq),
            ("memtable_bytes", self.memtable_bytes),
            ("memtable_pinned_bytes", self.memtable_pinned_bytes),
            ("write_buffer_bytes", self.write_buffer_bytes),
            ("prepared_bytes", self.prepared_bytes),
            ("large_block_bytes", self.large_block_bytes),
            ("lock_bytes", self.lock_bytes),
            ("locked_keys", self.locked_keys),
            ("locked_intervals", self.locked_intervals),
            ("sealed_memtables", self.sealed_memtables),
            ("table_files", self.level_files.iter().sum()),
            ("table_bytes", self.level_bytes.iter().sum()),
            ("l0_sublevels", self.sublevels),
            ("compaction_debt_bytes", self.debt_bytes),
            ("block_cache_bytes", self.cache_bytes),
            ("block_cache_hits", self.cache_hits),
            ("block_cache_packed_hits", self.cache_packed_hits),
            ("block_cache_misses", self.cache_misses),
            ("log_records", self.log_records),
            ("log_payload_bytes", self.log_payload_bytes),
            ("log_bytes_written", self.log_bytes_written),
            ("log_syncs", self.log_syncs),
            ("log_live_bytes", self.log_live_bytes),
            ("read_points", self.read_points),
            ("oldest_read_point_lag", self.oldest_read_point_lag),
            ("prepared_detached", self.prepared_detached),
            ("lock_waits", self.lock_waits),
            ("deadlocks", self.deadlocks),
            ("lock_timeouts", self.lock_timeouts),
            ("write_stopped", u64::from(self.stopped)),
            ("flushes", w.flushes),
            ("flush_bytes_written", w.flush_bytes),
            ("spill_bytes_written", w.spill_bytes),
            ("compactions", w.compactions),
            ("compaction_moves", w.moves),
            ("compaction_bytes_read", w.compact_bytes_read),
            ("compaction_bytes_written", w.compact_bytes_written),
            ("compaction_rest_us", w.compact_rest_us),
            ("versions_dropped", w.dropped_versions),
            ("writer_wait_us", w.writer_wait_us),
        ]
    }
}

/// The report behind SHOW ENGINE STRATA STATUS.
pub(crate) fn status_text(core: &Core) -> String {
    let metrics = Metrics::collect(core);
    let mut text = String::new();
    let mut line = |args: std::fmt::Arguments<'_>| writeln!(text, "{args}").expect("writing to a String cannot fail");
    line(format_args!("LEVELS"));
    line(format_args!("level  files  megabytes"));
    for level in 0..LEVELS {
        if metrics.level_files[level] > 0 {
            let megabytes = metrics.level_bytes[level] as f64 / 1048576.0;
            line(format_args!("{level:>5}  {:>5}  {megabytes:>9.1}", metrics.level_files[level]));
        }
    }
    line(format_args!(""));
    line(format_args!("MEMORY"));
    line(format_args!("megabytes"));
    for (what, bytes) in metrics.memory().into_iter().chain([("together", metrics.memory_bytes())]) {
        line(format_args!("{:>9.1}  {what}", bytes as f64 / 1048576.0));
    }
    line(format_args!(""));
    line(format_args!("COUNTERS"));
    for (name, value) in metrics.list() {
        line(format_args!("{name:<28} {value}"));
    }
    let (flush, compaction) = core.background.errors();
    for (what, error) in [("flush", flush), ("compaction", compaction)] {
        if let Some(error) = error {
            line(format_args!("\nLAST {what} FAILED: {error}"));
        }
    }
    if let Some(error) = core.log.poison() {
        line(format_args!("\nTHE STORE HAS STOPPED, NOTHING IS ACCEPTED UNTIL IT IS OPENED AGAIN: {error}"));
    }
    text
}
