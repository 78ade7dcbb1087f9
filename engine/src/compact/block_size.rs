//! How large the data blocks of a new file are.
//!
//! A block is read, decompressed and, as a rule, cached as a whole. Where the store is larger than its cache, even compressed, most
//! look-ups meet blocks of which they want one row: half the size is half the work for each of them, and twice as many
//! places are held in the same memory. Where blocks stay in memory a scan that goes from block to block is what counts, and
//! larger ones are better.
//!
//! What is decided is the size before compression. It holds for files written from then on: a store that outgrows its cache has blocks of
//! both sizes until merges have rewritten the first ones. Readers do not care.
//!
//! Rejected: an option (what it depends on is known here better than by who would set it); 4 KiB (a third fewer bytes are read, in a
//! tenth more reads where rows that lie together are wanted together, and no faster: docs/decisions/tried.md).

use crate::base::limits::{BLOCK_BYTES, SMALL_BLOCK_BYTES};

/// The size of data blocks, in bytes, in a store whose files come to `stored` bytes, beside a block cache of `cache` bytes.
pub(crate) fn block_bytes(stored: u64, cache: u64) -> usize {
    if stored > cache { SMALL_BLOCK_BYTES } else { BLOCK_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_larger_than_its_cache_gets_small_blocks() {
        const GIB: u64 = 1 << 30;
        let cases = [
            // stored, cache, bytes
            (0, 0, 16 << 10),
            (0, GIB, 16 << 10),
            (GIB, GIB, 16 << 10),
            (GIB + 1, GIB, 8 << 10),
            (18 * GIB, GIB, 8 << 10),
        ];
        for (stored, cache, bytes) in cases {
            assert_eq!(block_bytes(stored, cache), bytes, "{stored} {cache}");
        }
    }
}
