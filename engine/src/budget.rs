//! What the block cache may hold of its budget.
//!
//! The two configured budgets are what the store comes to in memory. Memtables keep to theirs. Whatever else has a size
//! worth counting is taken off that of the block cache: resident parts of open tables and buffers of the log as they are,
//! buffers of flushes and merges as many as can be at work, or each merge would cost the cache its coldest blocks.
//!
//! Invariant: the cache keeps at least half of its budget, so that a tiny one still caches.
//!
//! Rejected: taking off the slots that no block uses, too. A cache that gives up blocks has more of them, and would give
//! up more and more.

use crate::compact::merge::{FLUSH_BUFFER_BYTES, merge_buffer_bytes};

/// Steps of the deduction, so that the cache is not resized for each table that is opened.
const STEP: u64 = 256 << 10;

/// Buffers of the log that count at most: the many of a large transaction are gone in a moment.
const LOG_MAX: u64 = 4 << 20;

/// What there is beside blocks and memtables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    /// Bytes of the resident parts of open tables.
    pub tables: u64,
    /// Bytes of the log's buffers.
    pub log: u64,
    /// Threads that merge.
    pub compactors: u64,
}

/// The capacity of a block cache with this budget.
pub(crate) fn cache_capacity(budget: u64, beside: Beside) -> u64 {
    let buffers = beside.log.min(LOG_MAX) + beside.compactors * merge_buffer_bytes(budget) + FLUSH_BUFFER_BYTES;
    budget.saturating_sub((beside.tables + buffers).next_multiple_of(STEP)).max(budget / 2)
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
            let beside = Beside { tables, log, compactors };
            assert_eq!(cache_capacity(budget, beside), capacity, "{budget} {beside:?}");
        }
    }
}
