//! The block compressor: makes blocks as small as they get in the time that merges have. It shuffles them, then runs zstd.
//!
//! Which of the [layouts](LAYOUTS) is the best depends on the rows, and rows of one index are much alike: the first block of each
//! index partition is compressed in all of them, the others as the best of those. The cheaper one stays unless another saves a
//! fiftieth: random digits become *larger* with zstd's higher level, which finds worthless matches.
//!
//! # Invariant
//!
//! What a file contains follows from its rows alone.
//!
//! # Rejected
//!
//! Higher levels of zstd: with 16 KiB to look at, level 6 saves one percent. A dictionary for each file: of what blocks
//! share, the shuffled columns take the greater part.

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::compress_bound;

use super::block::{Shuffle, shuffle, unshuffle};
use super::reader::PARTITION_BLOCKS;

/// How a block is compressed: what is shuffled, and zstd's level.
type Layout = (Shuffle, i32);

/// All layouts, the cheapest first.
const LAYOUTS: [Layout; 4] = [(Shuffle::Columns, 1), (Shuffle::Rows, 1), (Shuffle::Columns, 3), (Shuffle::Rows, 3)];

/// Compresses the blocks of a file, reusing its buffers.
pub(super) struct BlockCompressor {
    zstd: Compressor<'static>,
    layout: Layout,
    /// Blocks until the layouts are tried again.
    until_trial: usize,
    shuffled: Vec<u8>,
    tried: Vec<u8>,
}

/// A buffer above this size is given back after use.
const KEEP: usize = 1 << 20;

impl BlockCompressor {
    pub fn new() -> io::Result<BlockCompressor> {
        let zstd = Compressor::new(LAYOUTS[0].1)?;
        Ok(BlockCompressor { zstd, layout: LAYOUTS[0], until_trial: 0, shuffled: Vec::new(), tried: Vec::new() })
    }

    /// Puts the compressed form of `block`, which must be well-formed, in place of what is in `out`; says what was shuffled.
    pub fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) -> io::Result<Shuffle> {
        if self.until_trial > 0 {
            self.until_trial -= 1;
            self.compress_in(self.layout, block, out)?;
        } else {
            self.until_trial = PARTITION_BLOCKS - 1;
            self.compress_in(LAYOUTS[0], block, out)?;
            self.layout = LAYOUTS[0];
            let mut tried = std::mem::take(&mut self.tried);
            for layout in &LAYOUTS[1..] {
                self.compress_in(*layout, block, &mut tried)?;
                if tried.len() < out.len() - out.len() / 50 {
                    std::mem::swap(&mut tried, out);
                    self.layout = *layout;
                }
            }
            self.tried = tried;
        }
        self.shuffled.shrink_to(KEEP);
        self.tried.clear();
        self.tried.shrink_to(KEEP);
        Ok(self.layout.0)
    }

    fn compress_in(&mut self, (what, level): Layout, block: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        shuffle(block, what, &mut self.shuffled).map_err(io::Error::other)?;
        self.zstd.set_compression_level(level)?;
        out.clear();
        out.reserve(compress_bound(self.shuffled.len()));
        self.zstd.compress_to_buffer(&self.shuffled, out)?;
        Ok(())
    }
}

/// What a thread keeps for decompression.
struct ThreadDecompressor {
    zstd: Decompressor<'static>,
    shuffled: Vec<u8>,
}

thread_local! {
    static DECOMPRESSOR: RefCell<Option<ThreadDecompressor>> = const { RefCell::new(None) };
}

/// Decompresses into `block`, which has the right length; the number of bytes found, or what is wrong with them.
pub(super) fn decompress(payload: &[u8], what: Option<Shuffle>, block: &mut [u8]) -> Result<usize, String> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let ThreadDecompressor { zstd, shuffled } = match kept {
            Some(kept) => kept,
            None => {
                let zstd = Decompressor::new().map_err(|e| format!("zstd: {e}"))?;
                kept.insert(ThreadDecompressor { zstd, shuffled: Vec::new() })
            }
        };
        let Some(what) = what else {
            return zstd.decompress_to_buffer(payload, block).map_err(|e| format!("zstd: {e}"));
        };
        shuffled.clear();
        shuffled.reserve(block.len());
        let found = zstd.decompress_to_buffer(payload, shuffled).map_err(|e| format!("zstd: {e}"))?;
        if found == block.len() {
            unshuffle(shuffled, what, block)?;
        }
        shuffled.shrink_to(KEEP);
        Ok(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Kind, SeqNo};
    use crate::sst::BlockBuilder;

    /// A hundred rows with values made from a generator of random numbers.
    fn block(value: impl Fn(&mut dyn FnMut() -> u32) -> Vec<u8>) -> Vec<u8> {
        let mut x = 1u64;
        let mut random = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 40) as u32
        };
        let mut builder = BlockBuilder::default();
        for i in 0..100u32 {
            builder.add(&[&[0; 4], &i.to_be_bytes()[..]].concat(), SeqNo(0), Kind::Put, &value(&mut random));
        }
        let mut block = Vec::new();
        builder.finish(&mut block);
        block
    }

    #[test]
    fn each_kind_of_rows_is_compressed_in_the_layout_that_serves_it() {
        let digits = block(|random| (0..120).map(|_| b'0' + (random() % 10) as u8).collect());
        let numbers = block(|random| (0..6).flat_map(|_| (random() % 300).to_le_bytes()).collect());
        let texts = block(|random| {
            let words = ["warehouse ", "district ", "customer ", "order ", "item "];
            (0..3 + random() % 20).flat_map(|_| words[random() as usize % 5].bytes()).collect()
        });
        for (what, block, expected) in [
            ("digits", digits, (Shuffle::Columns, 1)),
            ("numbers", numbers, (Shuffle::Rows, 3)),
            ("texts", texts, (Shuffle::Columns, 3)),
        ] {
            let (mut compressor, mut packed, mut other) = (BlockCompressor::new().unwrap(), Vec::new(), Vec::new());
            // The second block is compressed as the first one was, without a trial.
            for _ in 0..2 {
                let shuffled = compressor.compress(&block, &mut packed).unwrap();
                assert_eq!((compressor.layout, shuffled), (expected, expected.0), "{what}");
                let mut back = vec![0; block.len()];
                assert_eq!(decompress(&packed, Some(shuffled), &mut back), Ok(block.len()));
                assert!(back == block);
            }
            for layout in LAYOUTS {
                compressor.compress_in(layout, &block, &mut other).unwrap();
                assert!(packed.len() < other.len() + other.len() / 40, "{what}: {} by {layout:?}", other.len());
            }
        }
    }
}
