//! The declarations. Within a subsystem they stand in the order of reports.

use super::Metrics;
use super::declare::Subsystem::{
    Budget, Cache, Compaction, Error, File, Flush, Level, Lock, Log, Memory, Throttle, Transaction,
};
use super::declare::Unit::{Bytes, Count, Flag, Microseconds, NanosecondsPerKb, Percent, Seconds};
use super::declare::{Figure, Metric};

type Declared = Figure<Metrics>;

/// Figures of the whole store.
static STORE: &[Declared] = &[
    Declared::gauge(Memory, "memory_bytes", Bytes, "Memory of the store: the sum of its parts below", |m| {
        m.memory_bytes()
    }),
    Declared::gauge(
        Memory,
        "block_cache_bytes_used",
        Bytes,
        "Blocks in the block cache, filters and index partitions included",
        |m| m.cache_bytes,
    ),
    Declared::gauge(
        Memory,
        "memory_unused_slot_bytes",
        Bytes,
        "Slots for blocks that hold none, of all stores of the process",
        |m| m.unused_slot_bytes,
    ),
    Declared::gauge(Memory, "memtable_bytes", Bytes, "Active and sealed memtables with their hash indexes", |m| {
        m.memtable_bytes
    }),
    Declared::gauge(Memory, "memory_memtable_spare_bytes", Bytes, "Memory kept for memtables to come", |m| {
        m.memtable_spare_bytes
    }),
    Declared::gauge(Memory, "memory_table_index_bytes", Bytes, "Top-level indexes of open SSTs", |m| {
        m.table_index_bytes
    }),
    Declared::gauge(Memory, "memory_log_buffer_bytes", Bytes, "Buffers of the log", |m| m.log_buffer_bytes),
    Declared::gauge(Memory, "memory_merge_buffer_bytes", Bytes, "Buffers of flushes and compactions at work", |m| {
        m.merge_buffer_bytes
    }),
    Declared::gauge(
        Memory,
        "memory_memtable_pinned_bytes",
        Bytes,
        "Memtables that are in SSTs already and that open cursors hold",
        |m| m.memtable_pinned_bytes,
    )
    .zero_at_rest(),
    Declared::gauge(
        Memory,
        "memory_write_buffer_bytes",
        Bytes,
        "Write buffers of open transactions, without those of less than 8 KiB",
        |m| m.write_buffer_bytes,
    )
    .zero_at_rest(),
    Declared::gauge(Memory, "memory_prepared_bytes", Bytes, "Writes of prepared transactions", |m| m.prepared_bytes)
        .zero_at_rest(),
    Declared::gauge(
        Memory,
        "memory_large_block_bytes",
        Bytes,
        "Large values that are being read or merged, of all stores of the process",
        |m| m.large_block_bytes,
    )
    .zero_at_rest(),
    Declared::gauge(
        Memory,
        "memory_block_pinned_bytes",
        Bytes,
        "Blocks held by values that were read without a copy, in the cache or not, of all stores of the process",
        |m| m.block_pinned_bytes,
    )
    .zero_at_rest(),
    Declared::gauge(
        Memory,
        "memory_value_buffer_bytes",
        Bytes,
        "Buffers with copies of values that are read or written, of all stores of the process, without those of up to 64 KiB",
        |m| m.value_buffer_bytes,
    )
    .zero_at_rest(),
    Declared::gauge(Memory, "memory_read_ahead_bytes", Bytes, "Buffers that scans read ahead into", |m| {
        m.read_ahead_bytes
    })
    .zero_at_rest(),
    Declared::gauge(Memory, "memory_lock_bytes", Bytes, "Row locks", |m| m.lock_bytes),
    Declared::gauge(Budget, "budget_memtable_bytes", Bytes, "What memtables may hold", |m| m.memtable_budget_bytes),
    Declared::gauge(
        Budget,
        "budget_block_cache_bytes",
        Bytes,
        "Budget of the block cache and of what is taken off it; block_cache_bytes_limit is what is left for blocks",
        |m| m.cache_budget_bytes,
    ),
    Declared::gauge(
        Budget,
        "budget_transaction_bytes",
        Bytes,
        "Write buffer of one transaction; what is larger goes to files",
        |m| m.transaction_budget_bytes,
    ),
    Declared::gauge(
        Budget,
        "budget_log_bytes",
        Bytes,
        "Log that a memtable may keep before it is flushed for that reason alone",
        |m| m.log_budget_bytes,
    ),
    Declared::gauge(Budget, "budget_descriptors", Count, "Descriptors that SSTs may take", |m| m.descriptor_limit),
    Declared::gauge(Budget, "budget_compaction_threads", Count, "Threads that compact", |m| m.compaction_threads),
    Declared::gauge(
        Cache,
        "block_cache_bytes_limit",
        Bytes,
        "What the block cache may hold now: its budget and what memtables lend it, without what the store holds beside it",
        |m| m.cache_capacity_bytes,
    ),
    Declared::counter(Cache, "block_cache_hits", Count, "Look-ups of blocks that memory answered", |m| m.cache_hits),
    Declared::counter(
        Cache,
        "block_cache_packed_hits",
        Count,
        "Look-ups of blocks that found the block compressed in memory",
        |m| m.cache_packed_hits,
    ),
    Declared::counter(Cache, "block_cache_misses", Count, "Look-ups of blocks that read the disk", |m| m.cache_misses),
    Declared::counter(Cache, "block_cache_evictions", Count, "Blocks that made room for others", |m| m.cache_evictions),
    Declared::gauge(
        Cache,
        "block_cache_packed_bytes",
        Bytes,
        "Blocks that are compressed in memory; part of block_cache_bytes_used",
        |m| m.cache_packed_bytes,
    ),
    Declared::counter(Log, "log_records", Count, "Records appended to the log", |m| m.log_records),
    Declared::counter(
        Log,
        "log_payload_bytes",
        Bytes,
        "Bytes of log records written to the segments, compressed",
        |m| m.log_payload_bytes,
    ),
    Declared::counter(Log, "log_bytes_written", Bytes, "Bytes of log segments that were written, padding included", |m| {
        m.log_bytes_written
    }),
    Declared::counter(Log, "log_syncs", Count, "Syncs of the log", |m| m.log_syncs),
    Declared::counter(Log, "log_sync_us", Microseconds, "Time that syncs of the log took", |m| m.log_sync_us),
    Declared::counter(Log, "log_groups_1", Count, "Writes of the log with one record", |m| m.log_groups[0]),
    Declared::counter(Log, "log_groups_2", Count, "Writes of the log with 2 or 3 records", |m| m.log_groups[1]),
    Declared::counter(Log, "log_groups_4", Count, "Writes of the log with 4 to 7 records", |m| m.log_groups[2]),
    Declared::counter(Log, "log_groups_8", Count, "Writes of the log with 8 to 15 records", |m| m.log_groups[3]),
    Declared::counter(Log, "log_groups_16", Count, "Writes of the log with 16 to 31 records", |m| m.log_groups[4]),
    Declared::counter(Log, "log_groups_32", Count, "Writes of the log with 32 to 63 records", |m| m.log_groups[5]),
    Declared::counter(Log, "log_groups_64", Count, "Writes of the log with 64 records or more", |m| m.log_groups[6]),
    Declared::counter(Log, "log_segments", Count, "Log segments begun", |m| m.log_segments),
    Declared::gauge(
        Log,
        "log_live_bytes",
        Bytes,
        "Log segments in use, the one made ahead included: a start reads this much at most",
        |m| m.log_live_bytes,
    ),
    Declared::gauge(Flush, "memtables_sealed", Count, "Memtables that wait for a flush", |m| m.sealed_memtables),
    Declared::counter(Flush, "flushes", Count, "Memtables flushed to SSTs", |m| m.work.flushes),
    Declared::counter(Flush, "flush_bytes_in", Bytes, "Bytes of the memtables that were flushed", |m| {
        m.work.flush_bytes_in
    }),
    Declared::counter(Flush, "flush_us", Microseconds, "Time that flushes took", |m| m.work.flush_us),
    Declared::counter(Flush, "flush_bytes_written", Bytes, "Bytes of SSTs that flushes wrote", |m| m.work.flush_bytes),
    Declared::counter(
        Flush,
        "transaction_spill_bytes",
        Bytes,
        "Bytes of files that transactions too large for memory wrote",
        |m| m.work.spill_bytes,
    ),
    Declared::counter(Compaction, "compactions", Count, "Compactions that merged files", |m| m.work.compactions),
    Declared::counter(Compaction, "compaction_moves", Count, "Files that compaction moved down by name only", |m| {
        m.work.moves
    }),
    Declared::counter(Compaction, "compaction_bytes_read", Bytes, "Bytes of SSTs that compactions read", |m| {
        m.work.compact_bytes_read
    }),
    Declared::counter(Compaction, "compaction_bytes_written", Bytes, "Bytes of SSTs that compactions wrote", |m| {
        m.work.compact_bytes_written
    }),
    Declared::counter(
        Compaction,
        "compaction_us",
        Microseconds,
        "Time that compactions were at work, of all threads together, without sleep",
        |m| m.work.levels.iter().map(|level| level.us).sum(),
    ),
    Declared::counter(
        Compaction,
        "compaction_rest_us",
        Microseconds,
        "Time that compactions slept because they were ahead of the writers",
        |m| m.work.compact_rest_us,
    ),
    Declared::counter(
        Compaction,
        "versions_dropped",
        Count,
        "Versions and tombstones that flushes and compactions dropped",
        |m| m.work.dropped_versions,
    ),
    Declared::gauge(
        Compaction,
        "compaction_debt_bytes",
        Bytes,
        "Bytes that compaction has still to write, as the picker estimates it",
        |m| m.debt_bytes,
    ),
    Declared::gauge(Level, "level0_sublevels", Count, "Sublevels of level 0 at its deepest place", |m| m.sublevels),
    Declared::counter(
        Throttle,
        "write_delays",
        Count,
        "Times that a writer slept because flushes or compactions lag behind",
        |m| m.work.write_delays,
    ),
    Declared::counter(Throttle, "write_delay_us", Microseconds, "Time that writers slept for that reason", |m| {
        m.work.write_delay_us
    }),
    Declared::counter(
        Throttle,
        "write_stalls",
        Count,
        "Writes that waited for a flush because the memtables were full",
        |m| m.work.write_stalls,
    ),
    Declared::counter(
        Throttle,
        "write_stall_us",
        Microseconds,
        "Time that writes waited for that reason, waits that go on included",
        |m| m.work.write_stall_us,
    ),
    Declared::gauge(
        Throttle,
        "write_delay_now",
        NanosecondsPerKb,
        "How much writes are delayed now; 0 means not at all",
        |m| m.write_delay_ns_per_kb,
    ),
    Declared::gauge(Throttle, "write_stall_now", Flag, "Memtables are full: writes wait for a flush", |m| {
        u64::from(m.stalled)
    }),
    Declared::gauge(
        Throttle,
        "memtable_pressure",
        Percent,
        "How near memtables are to their limits; writes are delayed from 50 on and stall at 100",
        |m| m.memory_pressure_percent,
    ),
    Declared::gauge(
        Throttle,
        "compaction_pressure",
        Percent,
        "How near the levels are to their limits; writes are delayed from 50 on",
        |m| m.tree_pressure_percent,
    ),
    Declared::counter(Lock, "lock_waits", Count, "Lock requests that had to wait", |m| m.lock_waits),
    Declared::counter(Lock, "lock_wait_us", Microseconds, "Time of lock waits that are over", |m| m.lock_wait_us),
    Declared::gauge(Lock, "lock_wait_max_us", Microseconds, "The longest of them since the start of the plugin", |m| {
        m.lock_longest_wait_us
    }),
    Declared::gauge(Lock, "lock_waiting", Count, "Transactions that wait for a lock now", |m| m.lock_waiting)
        .zero_at_rest(),
    Declared::counter(Lock, "deadlocks", Count, "Deadlocks found", |m| m.deadlocks),
    Declared::counter(Lock, "lock_timeouts", Count, "Lock waits that timed out", |m| m.lock_timeouts),
    Declared::gauge(Lock, "locked_keys", Count, "Keys that somebody has locked", |m| m.locked_keys).zero_at_rest(),
    Declared::gauge(Lock, "locked_intervals", Count, "Intervals that somebody has locked", |m| m.locked_intervals)
        .zero_at_rest(),
    Declared::counter(
        Transaction,
        "commits",
        Count,
        "Commits of transactions with writes, and those that commits_internal counts",
        |m| m.commits,
    ),
    Declared::counter(
        Transaction,
        "commits_internal",
        Count,
        "Writes of the store's own: the catalog, counters of auto-increment columns",
        |m| m.internal_commits,
    ),
    Declared::counter(Transaction, "rollbacks", Count, "Transactions with writes that were rolled back", |m| {
        m.rollbacks
    }),
    Declared::gauge(Transaction, "prepared", Count, "Prepared transactions without a decision", |m| m.prepared),
    Declared::gauge(
        Transaction,
        "prepared_detached",
        Count,
        "Prepared transactions that no connection holds: somebody has to commit or to roll them back",
        |m| m.prepared_detached,
    ),
    Declared::gauge(Transaction, "read_points", Count, "Snapshots that somebody reads", |m| m.read_points)
        .zero_at_rest(),
    Declared::gauge(
        Transaction,
        "oldest_read_point_lag",
        Count,
        "Commits between the oldest snapshot and now: what they replaced is kept",
        |m| m.oldest_read_point_lag,
    ),
    Declared::gauge(
        Transaction,
        "oldest_read_point_us",
        Microseconds,
        "Age of the oldest snapshot, measured once a second",
        |m| m.oldest_read_point_us,
    ),
    Declared::gauge(Transaction, "history_retention_s", Seconds, "Time for which the past is kept", |m| {
        m.history_retention_s
    }),
    Declared::gauge(
        Transaction,
        "history_moments",
        Count,
        "Seconds of the past for which versions are kept: those in which something was committed",
        |m| m.history_moments,
    ),
    Declared::gauge(
        Transaction,
        "history_oldest",
        Seconds,
        "The oldest moment that can be read, in seconds since 1970; 0: none",
        |m| m.history_oldest,
    ),
    Declared::gauge(
        Transaction,
        "history_bytes",
        Bytes,
        "Uncompressed bytes of SSTs that only readers of the past see, as far as merges have found them",
        |m| m.history_bytes,
    ),
    Declared::gauge(Transaction, "visible_sequence", Count, "Sequence number of the newest visible commit", |m| {
        m.visible_seq
    }),
    Declared::gauge(File, "table_files", Count, "SSTs of all levels", |m| m.level_files.iter().sum()),
    Declared::gauge(File, "table_bytes", Bytes, "Bytes of SSTs of all levels", |m| m.level_bytes.iter().sum()),
    Declared::gauge(File, "encrypted_files", Count, "SSTs that are encrypted, as of the last second", |m| {
        m.encrypted_files
    }),
    Declared::gauge(File, "encrypted_bytes", Bytes, "Their bytes", |m| m.encrypted_bytes),
    Declared::gauge(
        File,
        "reencryption_files",
        Count,
        "SSTs that are to be written anew under another key, or under none, as of the last second",
        |m| m.reencryption_files,
    ),
    Declared::gauge(File, "reencryption_bytes", Bytes, "Their bytes", |m| m.reencryption_bytes),
    Declared::gauge(File, "descriptors", Count, "Descriptors that SSTs take", |m| m.descriptors),
    Declared::gauge(File, "obsolete_files", Count, "Files that nobody needs and that are still to be removed", |m| {
        m.obsolete_files
    }),
    Declared::gauge(
        File,
        "quarantined_files",
        Count,
        "Files that compaction could not read and leaves alone for a while",
        |m| m.quarantined_files,
    ),
    Declared::counter(
        Error,
        "corruption_errors",
        Count,
        "Wrong checksums and wrong content of files, each time that they were met",
        |m| m.failures.corruption,
    ),
    Declared::counter(
        Error,
        "io_errors",
        Count,
        "Failed operations of the disk, but for those that found it full",
        |m| m.failures.io,
    ),
    Declared::counter(Error, "disk_full_errors", Count, "Operations of the disk that found it or a quota full", |m| {
        m.failures.disk_full
    }),
    Declared::gauge(
        Error,
        "write_stopped",
        Flag,
        "The store has stopped after a failed write or sync, and accepts nothing until the server is started again",
        |m| u64::from(m.stopped),
    ),
];

macro_rules! levels {
    ($($level:literal)*) => {
        [$(
            Declared::gauge(
                Level,
                concat!("level", $level, "_files"),
                Count,
                concat!("SSTs of level ", $level),
                |m| m.level_files[$level],
            ),
            Declared::gauge(
                Level,
                concat!("level", $level, "_bytes"),
                Bytes,
                concat!("Bytes of SSTs of level ", $level),
                |m| m.level_bytes[$level],
            ),
            Declared::counter(
                Level,
                concat!("level", $level, "_compactions"),
                Count,
                concat!("Compactions that merged files into level ", $level),
                |m| m.work.levels[$level].compactions,
            ),
            Declared::counter(
                Level,
                concat!("level", $level, "_compaction_bytes_read"),
                Bytes,
                concat!("Bytes of SSTs that compactions into level ", $level, " read"),
                |m| m.work.levels[$level].bytes_read,
            ),
            Declared::counter(
                Level,
                concat!("level", $level, "_compaction_bytes_written"),
                Bytes,
                concat!("Bytes of SSTs that compactions wrote to level ", $level),
                |m| m.work.levels[$level].bytes_written,
            ),
            Declared::counter(
                Level,
                concat!("level", $level, "_compaction_us"),
                Microseconds,
                concat!("Time that compactions into level ", $level, " were at work, without sleep"),
                |m| m.work.levels[$level].us,
            ),
        )*]
    };
}

/// Figures of each level.
static LEVEL: &[Declared] = &levels!(0 1 2 3 4 5 6);

fn all() -> impl Iterator<Item = &'static Declared> {
    STORE.iter().chain(LEVEL)
}

/// What is declared of the figures of a store.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    all().map(|figure| &figure.metric)
}

impl Metrics {
    /// Every figure with its value.
    pub fn values(&self) -> impl Iterator<Item = (&'static Metric, u64)> + '_ {
        all().map(|figure| (&figure.metric, (figure.value)(self)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Subsystem, Unit};
    use super::*;
    use crate::compact::pick::LEVELS;

    /// Names can be status variables, columns of a monitor and anchors of a page; what is said of a figure is a sentence.
    #[test]
    fn declarations_are_in_order() {
        let mut names = BTreeSet::new();
        for metric in metrics() {
            let name = metric.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.len() <= 48, "{name}: a status variable has 64 characters at most");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
            assert!(metric.help.starts_with(char::is_uppercase) && !metric.help.ends_with('.'), "{name}");
            assert!(metric.help.is_ascii() && !metric.help.contains('|') && metric.help.len() <= 192, "{name}");
            assert!(Subsystem::ALL.contains(&metric.subsystem), "{name}");
            let (bytes, time) = (name.contains("_bytes"), name.ends_with("_us"));
            assert_eq!(bytes, metric.unit == Unit::Bytes, "{name}");
            assert_eq!(time, metric.unit == Unit::Microseconds, "{name}");
        }
        assert!(names.contains(format!("level{}_files", LEVELS - 1).as_str()), "each level has its figures");
    }

    /// The sum of the memory is that of its parts as they are declared: none is forgotten, none counted twice.
    #[test]
    fn memory_is_the_sum_of_its_parts() {
        let sample = Metrics {
            memtable_bytes: 1,
            memtable_spare_bytes: 1 << 1,
            table_index_bytes: 1 << 2,
            unused_slot_bytes: 1 << 3,
            log_buffer_bytes: 1 << 4,
            merge_buffer_bytes: 1 << 5,
            memtable_pinned_bytes: 1 << 6,
            write_buffer_bytes: 1 << 7,
            prepared_bytes: 1 << 8,
            large_block_bytes: 1 << 9,
            lock_bytes: 1 << 10,
            cache_bytes: 1 << 11,
            block_pinned_bytes: 1 << 12,
            read_ahead_bytes: 1 << 13,
            value_buffer_bytes: 1 << 14,
            ..Metrics::default()
        };
        let memory: Vec<u64> =
            sample.values().filter(|(metric, _)| metric.subsystem == Memory).map(|(_, value)| value).collect();
        assert_eq!(memory[0], sample.memory_bytes());
        assert_eq!(memory[1..].iter().sum::<u64>(), memory[0]);
        assert_eq!(memory[0], (1 << 15) - 1);
    }
}
