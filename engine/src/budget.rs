//! What the block cache may hold of its budget.
//!
//! The two configured budgets are what the store comes to in memory. Memtables keep to theirs, and lend the block cache what they
//! do not need of it: one fills while another one is flushed, and more are there only where writes come faster than the disk takes them.
//! Whatever else has a size worth counting is taken off that of the block cache: resident parts of open SSTs, buffers of the log, write buffers of
//! transactions, memtables that only cursors hold and large values that readers and merges hold, as they are; buffers of
//! flushes and merges as many as can be at work, or each merge would cost the cache its coldest blocks.
//!
//! One transaction's write buffer has a size at which it is written to files. All of them together have one too, a part of
//! the memtables' budget: beyond it those of some size go earlier.
//!
//! Invariant: the cache keeps at least half of its budget, so that a tiny one still caches.
//!
//! Rejected: taking off the slots that no block uses, too. A cache that gives up blocks has more of them, and would give
//! up more and more; `sst/gather.rs` has spans run empty instead.

use crate::compact::merge::{FLUSH_BUFFER_BYTES, merge_buffer_bytes};

/// Steps of the deduction, so that the cache is not resized for each table that is opened.
const STEP: u64 = 256 << 10;

/// Steps in which memtables take back what they have lent, in parts of their budget.
const LOAN_STEPS: u64 = 16;

/// Buffers of the log that count at most: the many of a large transaction are gone in a moment.
const LOG_MAX: u64 = 4 << 20;

/// The part of the memtables' budget that all write buffers may take.
const BUFFERS_PART: u64 = 4;

/// Write buffers up to this size, in bytes, stay in memory whatever others hold: smaller files are not worth their syncs.
const SPILL_MIN: u64 = 1 << 20;

/// Whether a write buffer of `own` bytes goes to files: `full` is its own limit, `all` is what the buffers of all
/// transactions hold together, `budget` the memtables' budget.
pub(crate) fn spills(own: u64, full: u64, all: u64, budget: u64) -> bool {
    own >= full || own >= SPILL_MIN && all > budget / BUFFERS_PART
}

/// What there is beside blocks and memtables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    /// Bytes of the resident parts of open SSTs.
    pub tables: u64,
    /// Bytes of the log's buffers.
    pub log: u64,
    /// Bytes of the write buffers of open transactions.
    pub buffers: u64,
    /// Bytes of memtables that are in SSTs and that cursors or values hold, and of blocks that values hold.
    pub pinned: u64,
    /// Bytes of large values that are read or merged, of the blocks that merges stand on, and of what scans read ahead into.
    pub large: u64,
    /// Threads that merge.
    pub compactors: u64,
}

/// What memtables of `bytes` leave of their budget to others: at most three eighths, since a quarter each is what the one takes that
/// fills and the one that is flushed, and slots for blocks that hold none, which nobody counts, take a part of what is lent.
pub(crate) fn lent(budget: u64, bytes: u64) -> u64 {
    let steps = (budget / LOAN_STEPS).max(1);
    (budget / 8 * 3).min(budget.saturating_sub(bytes.next_multiple_of(steps)))
}

/// The capacity of a block cache with this budget, and with `lent` bytes of that of the memtables.
pub(crate) fn cache_capacity(budget: u64, lent: u64, beside: Beside) -> u64 {
    let work = beside.log.min(LOG_MAX) + beside.compactors * merge_buffer_bytes(budget) + FLUSH_BUFFER_BYTES;
    let held = beside.tables + beside.buffers + beside.pinned + beside.large;
    (budget + lent).saturating_sub((held + work).next_multiple_of(STEP)).max(budget / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities() {
        const MIB: u64 = 1 << 20;
        // 2.5 MiB for each merge, of a small budget a sixteenth and 0.5, and 0.5 for a flush.
        let cases = [
            // budget, tables, log, compactors, capacity
            (64 * MIB, 0, 0, 1, 61 * MIB),
            (64 * MIB, MIB, 3 * MIB, 1, 57 * MIB),
            (64 * MIB, 0, 0, 4, 64 * MIB - 10 * MIB - MIB / 2),
            // Small changes of what is beside change nothing.
            (64 * MIB, 1, 0, 1, 61 * MIB - STEP),
            (64 * MIB, STEP, 0, 1, 61 * MIB - STEP),
            // A large transaction passes.
            (64 * MIB, 0, 40 * MIB, 1, 57 * MIB),
            (16 * MIB, 0, 0, 1, 14 * MIB),
            // Half remains.
            (8 * MIB, 3 * MIB, 0, 1, 4 * MIB),
            (MIB, 64 * MIB, 3 * MIB, 8, MIB / 2),
            (0, 0, 0, 1, 0),
        ];
        for (budget, tables, log, compactors, capacity) in cases {
            let beside = Beside { tables, log, buffers: 0, pinned: 0, large: 0, compactors };
            assert_eq!(cache_capacity(budget, 0, beside), capacity, "{budget} {beside:?}");
            // Whatever it is that is held, it counts the same.
            let (a, b, c) = (tables / 4, tables / 2, tables / 8);
            let parts = Beside { tables: tables - a - b - c, buffers: a, pinned: b, large: c, ..beside };
            assert_eq!(cache_capacity(budget, 0, parts), capacity, "{budget} {parts:?}");
        }
        // What is lent comes on top, and does not count for the least that a cache has.
        let beside = Beside { tables: 0, log: 0, buffers: 0, pinned: 0, large: 0, compactors: 1 };
        assert_eq!(cache_capacity(64 * MIB, 8 * MIB, beside), 69 * MIB);
        assert_eq!(cache_capacity(8 * MIB, 2 * MIB, Beside { tables: 64 * MIB, ..beside }), 4 * MIB);
    }

    #[test]
    fn memtables_lend_what_they_do_not_need() {
        let cases = [
            // budget, bytes of memtables, lent
            (64, 0, 24),
            (64, 40, 24),
            (64, 41, 20),
            (64, 44, 20),
            (64, 60, 4),
            (64, 64, 0),
            // A value that is longer than all of it.
            (64, 1000, 0),
            (0, 0, 0),
            (9, 3, 3),
        ];
        for (budget, bytes, expected) in cases {
            assert_eq!(lent(budget, bytes), expected, "{budget} {bytes}");
        }
    }

    #[test]
    fn full_buffers_and_large_ones_of_many_go_to_files() {
        const MIB: u64 = 1 << 20;
        let cases = [
            // own, full, all, budget, spills
            (8 * MIB - 1, 8 * MIB, 8 * MIB, 64 * MIB, false),
            (8 * MIB, 8 * MIB, 9 * MIB, 64 * MIB, true),
            (MIB, 8 * MIB, 16 * MIB, 64 * MIB, false),
            (MIB, 8 * MIB, 16 * MIB + 1, 64 * MIB, true),
            // A small one would bring nothing.
            (MIB - 1, 8 * MIB, 1 << 30, 64 * MIB, false),
            // With a small budget one alone is too much.
            (MIB, 8 * MIB, MIB, 2 * MIB, true),
        ];
        for (own, full, all, budget, expected) in cases {
            assert_eq!(spills(own, full, all, budget), expected, "{own} {full} {all} {budget}");
        }
    }
}
