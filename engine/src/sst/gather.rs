//! Gathering: blocks of the cache that lie in sparse spans ([`slots`]) are copied to where others lie, so that spans run empty and go
//! back to the system.
//!
//! A store that grows out of its cache gets smaller blocks ([`crate::compact::block_size`]), and those of the former size leave one by
//! one: ten million rows, loaded and then indexed, had 276 MB of unused slots beside 443 MB of blocks.
//!
//! Invariant: what readers see does not change. A block is immutable, and its copy stands for the same place of the same file; who
//! holds the former one keeps it.
//!
//! Rejected: taking unused slots off the cache's budget (a cache that gives up blocks here and there has more of them, and would
//! give up more and more); dropping the blocks of sparse spans (they are in use, and cost a read each).

use std::sync::Arc;

use super::{BlockCache, Cached};
use crate::base::slots::{self, Buf, Sparse};

/// So much of the cache's blocks may lie unused: less is not worth a walk through the cache.
const TOLERATED: usize = 16;

/// Copies what lies in sparse spans, if these are many; how many blocks it copied.
pub fn gather(cache: &BlockCache) -> usize {
    if slots::unused_bytes() <= cache.usage() / TOLERATED {
        return 0;
    }
    let sparse = slots::sparse();
    if sparse.is_empty() {
        return 0;
    }
    cache.replace_copied(|cached| lies_in(cached, &sparse), copy, is_same)
}

fn lies_in(cached: &Cached, sparse: &Sparse) -> bool {
    match cached {
        Cached::Rows(block) => block.data().lies_in(sparse),
        Cached::Filter(filter) => filter.data().lies_in(sparse),
        Cached::Compressed(bytes) => bytes.lies_in(sparse),
        // Memory of zstd's.
        Cached::Dictionary(_) => false,
    }
}

fn copy(cached: &Cached) -> Cached {
    match cached {
        Cached::Rows(block) => Cached::Rows(Arc::new(block.copied())),
        Cached::Filter(filter) => Cached::Filter(Arc::new(filter.copied())),
        Cached::Compressed(bytes) => Cached::Compressed(Arc::new(Buf::from(&bytes[..]))),
        Cached::Dictionary(dictionary) => Cached::Dictionary(dictionary.clone()),
    }
}

fn is_same(a: &Cached, b: &Cached) -> bool {
    match (a, b) {
        (Cached::Rows(a), Cached::Rows(b)) => Arc::ptr_eq(a, b),
        (Cached::Filter(a), Cached::Filter(b)) => Arc::ptr_eq(a, b),
        (Cached::Compressed(a), Cached::Compressed(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{FileNo, Kind, SeqNo};
    use crate::cache::Cache;
    use crate::sst::{Block, BlockBuilder};
    use std::collections::HashSet;

    /// A block of some 13,400 bytes, a size that no other test uses much.
    fn block(n: u64) -> Block {
        let mut builder = BlockBuilder::default();
        for row in 0..13u8 {
            let value: Vec<u8> = (0..1000u32).map(|i| (u64::from(i) * (n + 3)) as u8).collect();
            builder.add(&[0, 0, 0, 0, row], SeqNo(n), Kind::Put, &value);
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        Block::parse(bytes).unwrap()
    }

    #[test]
    fn what_is_left_of_many_blocks_lies_together_and_is_the_same() {
        let cache: Arc<BlockCache> = Cache::with_shards(64 << 20, 4);
        let put = |n: u64| {
            let block = Arc::new(block(n));
            let charge = block.charge();
            cache.insert(FileNo(1), n, Cached::Rows(block), charge);
        };
        (0..1200).for_each(put);
        let held = cache.get(FileNo(1), 0);
        (0..1200).filter(|n| n % 6 != 0).for_each(|n| cache.erase(FileNo(1), n));
        let usage = cache.usage();
        let spans = || {
            let address = |n: u64| match cache.peek(FileNo(1), n) {
                Some(Cached::Rows(block)) => block.bytes().as_ptr().addr() >> 18,
                _ => panic!("block {n} is not there"),
            };
            (0..1200).step_by(6).map(address).collect::<HashSet<usize>>().len()
        };
        let before = spans();
        assert!(before >= 40, "{before} spans");
        assert!(gather(&cache) >= 100);
        assert!(spans() <= before / 3, "{} of {before} spans", spans());
        assert_eq!((cache.usage(), cache.len()), (usage, 200));
        for n in (0..1200).step_by(6) {
            let Some(Cached::Rows(found)) = cache.get(FileNo(1), n) else { panic!("block {n} is not there") };
            assert_eq!(found.bytes(), block(n).bytes());
        }
        // Who holds one keeps it.
        let Some(Cached::Rows(held)) = held else { panic!("block 0 was not there") };
        assert_eq!(held.bytes(), block(0).bytes());
    }
}
