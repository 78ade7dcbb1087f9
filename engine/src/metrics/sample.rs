//! Numbers about an open store, taken at one moment. They are read, never acted upon.

use crate::base::FailureCounts;
use crate::board::WorkCounters;
use crate::compact::pick::LEVELS;
use crate::wal::GROUP_SIZES;

/// A sample, from [`Engine::metrics`](crate::Engine::metrics). Counters count from the opening of the store.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// let engine = strata_engine::Engine::open_in_memory()?;
/// engine.put(&engine.keyspace("users")?, "alice", "")?;
/// let metrics = engine.metrics();
/// assert!(metrics.commits >= 1 && metrics.lock_waiting == 0);
/// assert!(metrics.left_behind().is_empty(), "no transaction is open");
/// # Ok(()) }
/// ```
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
    /// Bytes of the write buffers of open transactions, but for those of less than 8 KiB.
    pub write_buffer_bytes: u64,
    /// Bytes of the writes of prepared transactions.
    pub prepared_bytes: u64,
    /// Bytes of blocks with one large value that readers hold, of all stores of the process.
    pub large_block_bytes: u64,
    /// Bytes of blocks that values hold which were read without a copy, of all stores of the process.
    pub block_pinned_bytes: u64,
    /// Bytes of the buffers of more than 64 KiB that rows and values were copied into, of all stores of the process.
    pub value_buffer_bytes: u64,
    /// Bytes of buffers that scans read ahead into.
    pub read_ahead_bytes: u64,
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
    /// Bytes in the block cache of blocks in compressed form.
    pub cache_packed_bytes: u64,
    /// Blocks that made room for others in the block cache.
    pub cache_evictions: u64,
    /// Block look-ups that read the disk.
    pub cache_misses: u64,
    /// Records appended to the log.
    pub log_records: u64,
    /// Bytes of them.
    pub log_payload_bytes: u64,
    /// Bytes of log segments that were written, padding included.
    pub log_bytes_written: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Microseconds of syncs of the log.
    pub log_sync_us: u64,
    /// Groups of log records written together, by size.
    pub log_groups: [u64; GROUP_SIZES],
    /// Log segments begun.
    pub log_segments: u64,
    /// Bytes of log segments in use, the one made ahead included.
    pub log_live_bytes: u64,
    /// Live read points.
    pub read_points: u64,
    /// Sequence numbers between the oldest read point and now.
    pub oldest_read_point_lag: u64,
    /// Seconds for which the past is kept.
    pub history_retention_s: u64,
    /// Moments of the past for which versions are kept.
    pub history_moments: u64,
    /// The oldest moment that can be read, in seconds since 1970; 0: none.
    pub history_oldest: u64,
    /// Uncompressed bytes of SSTs that only readers of the past see, as far as merges have found them.
    pub history_bytes: u64,
    /// Prepared transactions that no session holds.
    pub prepared_detached: u64,
    /// Lock requests that had to wait.
    pub lock_waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Lock waits that timed out.
    pub lock_timeouts: u64,
    /// Microseconds of lock waits that are over.
    pub lock_wait_us: u64,
    /// Microseconds of the longest lock wait that is over.
    pub lock_longest_wait_us: u64,
    /// Transactions that wait for a lock.
    pub lock_waiting: u64,
    /// Commits.
    pub commits: u64,
    /// Those of them that were no transactions.
    pub internal_commits: u64,
    /// Transactions with writes that were rolled back.
    pub rollbacks: u64,
    /// Prepared transactions without a decision.
    pub prepared: u64,
    /// Microseconds that the oldest read point has lived.
    pub oldest_read_point_us: u64,
    /// Budget of memtables in bytes.
    pub memtable_budget_bytes: u64,
    /// Budget of the block cache in bytes, with what is taken off it.
    pub cache_budget_bytes: u64,
    /// Memory of a write buffer at which it is spilled.
    pub transaction_budget_bytes: u64,
    /// Log that a memtable may keep.
    pub log_budget_bytes: u64,
    /// Threads that merge.
    pub compaction_threads: u64,
    /// Descriptors that SSTs take.
    pub descriptors: u64,
    /// How many they may take.
    pub descriptor_limit: u64,
    /// Files that are still to be removed.
    pub obsolete_files: u64,
    /// Files that are encrypted, as of the last second.
    pub encrypted_files: u64,
    /// Their bytes.
    pub encrypted_bytes: u64,
    /// Files that are to be written anew to be encrypted as they should be.
    pub reencryption_files: u64,
    /// Their bytes.
    pub reencryption_bytes: u64,
    /// Files that merges could not read.
    pub quarantined_files: u64,
    /// Nanoseconds that a write of a KB is delayed now.
    pub write_delay_ns_per_kb: u64,
    /// True if writes wait for a flush.
    pub stalled: bool,
    /// How near the memtables are to their limits, in hundredths.
    pub memory_pressure_percent: u64,
    /// How near the tree is to its limits, in hundredths.
    pub tree_pressure_percent: u64,
    /// Failures, of all stores of the process.
    pub failures: FailureCounts,
    /// Flushes and compactions.
    pub work: WorkCounters,
}

impl Metrics {
    /// The bytes of memory that the store holds: all that the figures of [`Subsystem::Memory`](super::Subsystem) tell. Beyond
    /// them there are a few buffers for each thread.
    pub fn memory_bytes(&self) -> u64 {
        self.cache_bytes
            + self.unused_slot_bytes
            + self.memtable_bytes
            + self.memtable_spare_bytes
            + self.table_index_bytes
            + self.log_buffer_bytes
            + self.merge_buffer_bytes
            + self.memtable_pinned_bytes
            + self.write_buffer_bytes
            + self.prepared_bytes
            + self.large_block_bytes
            + self.block_pinned_bytes
            + self.value_buffer_bytes
            + self.read_ahead_bytes
            + self.lock_bytes
    }

    /// What should not be there once every transaction and cursor is closed, by name: empty unless something was left behind.
    /// Locks of prepared transactions that no session holds count as left behind.
    pub fn left_behind(&self) -> Vec<(&'static str, u64)> {
        let left = self.values().filter(|(metric, value)| metric.zero_at_rest && *value > 0);
        left.map(|(metric, value)| (metric.name, value)).collect()
    }
}
