//! How large the data blocks of a new file are.
//!
//! A block is read, decompressed and, as a rule, cached as a whole. Where the store is larger than its cache, even compressed, most
//! look-ups meet blocks of which they want one row: a quarter of the size is less than half of the bytes for each of them, and more
//! places are held in the same memory. What zstd does not find in so small a block is in the file's dictionary. Where blocks stay in
//! memory a scan that goes from block to block is what counts, and larger ones are better.
//!
//! What is decided is the size before compression. It holds for files written from then on: a store that outgrows its cache has blocks of
//! both sizes until merges have rewritten the first ones. Readers do not care.
//!
//! Rejected: an option (what it depends on is known here better than by who would set it); 8 KiB (half as much again is read for a
//! transaction, for scans out of memory that are an eighth faster: docs/decisions/tried.md).

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
            (GIB + 1, GIB, 4 << 10),
            (18 * GIB, GIB, 4 << 10),
        ];
        for (stored, cache, bytes) in cases {
            assert_eq!(block_bytes(stored, cache), bytes, "{stored} {cache}");
        }
    }
}
