//! The block compressor: makes blocks as small as they get in the time that merges have. It shuffles them, then runs zstd.
//!
//! Which of the [layouts](LAYOUTS) is the best depends on the rows, and rows of one index are much alike: the first block of each
//! index partition is compressed in all of them, the others as the best of those. The cheaper one stays unless another saves a
//! fiftieth: random digits become *larger* with zstd's higher level, which finds worthless matches.
//!
//! A file may have a [dictionary](super::dictionary): that of the file of the same index before it, if its first block becomes
//! smaller by it, by a thirtieth; else one that is trained from the blocks of its second partition, if it has more than two and
//! the first block of the third one becomes smaller as well.
//!
//! # Invariant
//!
//! What a file contains follows from its rows, and the dictionary that it was offered, alone.
//!
//! # Rejected
//!
//! Higher levels of zstd: with 16 KiB to look at, level 6 saves one percent. The thorough level by a dictionary: it saves another
//! twentieth, and a load took a fifth longer; the quick one leaves less by a dictionary than the thorough one without.

use std::cell::RefCell;
use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{DCtx, compress_bound, get_error_name};

use super::block::{Shuffle, shuffle, unshuffle};
use super::dictionary::{Dictionary, Packing, Stored};
use super::reader::PARTITION_BLOCKS;

/// Levels of zstd.
const QUICK: i32 = 1;
const THOROUGH: i32 = 3;

/// How a block is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    /// What is shuffled.
    shuffle: Shuffle,
    /// By [`THOROUGH`], not by [`QUICK`].
    is_thorough: bool,
    /// By the file's dictionary.
    by_dictionary: bool,
}

const fn layout(shuffle: Shuffle, is_thorough: bool) -> Layout {
    Layout { shuffle, is_thorough, by_dictionary: false }
}

/// All layouts without a dictionary, the cheapest first.
const LAYOUTS: [Layout; 4] = [
    layout(Shuffle::Columns, false),
    layout(Shuffle::Rows, false),
    layout(Shuffle::Columns, true),
    layout(Shuffle::Rows, true),
];

/// One part in so many must a layout save, for what it costs.
const SAVES: usize = 50;
/// The same of a dictionary, which readers have to hold.
const DICTIONARY_SAVES: usize = 30;

/// Compresses the blocks of a file, reusing its buffers.
pub(super) struct BlockCompressor {
    zstd: Compressor<'static>,
    layout: Layout,
    /// Blocks until the layouts are tried again.
    until_trial: usize,
    training: Training,
    shuffled: Vec<u8>,
    tried: Vec<u8>,
}

/// What becomes of the file's dictionary.
enum Training {
    /// So many partitions were begun; the second one is the sample: its blocks, shuffled, one behind the other, and their lengths.
    Gathers { partitions: usize, samples: Vec<u8>, lengths: Vec<usize> },
    /// There is one; whether it was trained here. The next trial shows if it is good for something, unless one has.
    Has { packing: Box<Packing>, is_new: bool, is_proven: bool },
    /// There is none, and there will be none.
    Over,
}

impl Training {
    fn after(partitions: usize) -> Training {
        Training::Gathers { partitions, samples: Vec::new(), lengths: Vec::new() }
    }
}

/// How a block was compressed, which its frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Form {
    pub shuffle: Shuffle,
    pub by_dictionary: bool,
}

/// A buffer above this size is given back after use.
const KEEP: usize = 1 << 20;
/// Bytes of blocks that a dictionary is trained from, at most.
const SAMPLES_MAX: usize = 1 << 20;

impl BlockCompressor {
    pub fn new() -> io::Result<BlockCompressor> {
        Ok(BlockCompressor {
            zstd: Compressor::new(QUICK)?,
            layout: LAYOUTS[0],
            until_trial: 0,
            training: Training::after(0),
            shuffled: Vec::new(),
            tried: Vec::new(),
        })
    }

    /// Puts the compressed form of `block`, which must be well-formed, in place of what is in `out`; says which it is.
    pub fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) -> io::Result<Form> {
        if self.until_trial > 0 {
            self.until_trial -= 1;
            self.compress_in(self.layout, block, out)?;
            self.gather();
        } else {
            self.until_trial = PARTITION_BLOCKS - 1;
            self.begin_partition();
            self.try_all(block, out)?;
            self.judge();
        }
        self.shuffled.shrink_to(KEEP);
        let Layout { shuffle, by_dictionary, .. } = self.layout;
        Ok(Form { shuffle, by_dictionary })
    }

    /// Offers the dictionary of another file, before anything is compressed.
    pub fn offer(&mut self, stored: Stored) {
        if let (Training::Gathers { partitions: 0, .. }, Some(packing)) = (&self.training, Packing::by(stored, QUICK)) {
            self.training = Training::Has { packing: Box::new(packing), is_new: false, is_proven: false };
        }
    }

    /// Compresses a block in each of the layouts, and keeps to the best of them from now on.
    fn try_all(&mut self, block: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.compress_in(LAYOUTS[0], block, out)?;
        self.layout = LAYOUTS[0];
        let mut tried = std::mem::take(&mut self.tried);
        let with_dictionary = match &self.training {
            Training::Has { packing, .. } => {
                Some(Layout { by_dictionary: true, ..layout(packing.stored.shuffle, false) })
            }
            _ => None,
        };
        for layout in LAYOUTS[1..].iter().copied().chain(with_dictionary) {
            self.compress_in(layout, block, &mut tried)?;
            let part = if layout.by_dictionary { DICTIONARY_SAVES } else { SAVES };
            if tried.len() < out.len() - out.len() / part {
                std::mem::swap(&mut tried, out);
                self.layout = layout;
            }
        }
        tried.clear();
        tried.shrink_to(KEEP);
        self.tried = tried;
        Ok(())
    }

    /// Another partition begins: behind the second one the dictionary is trained.
    fn begin_partition(&mut self) {
        let Training::Gathers { partitions, samples, lengths } = &mut self.training else { return };
        *partitions += 1;
        if *partitions == 3 {
            let trained = Packing::train(samples, lengths, self.layout.shuffle, QUICK);
            self.training = trained.map_or(Training::Over, |packing| Training::Has {
                packing: Box::new(packing),
                is_new: true,
                is_proven: false,
            });
        }
    }

    /// A dictionary that the first trial with it did not choose is given up.
    fn judge(&mut self) {
        if let Training::Has { is_new, is_proven, .. } = &mut self.training
            && !*is_proven
        {
            *is_proven = self.layout.by_dictionary;
            if !*is_proven {
                self.training = if *is_new { Training::Over } else { Training::after(1) };
            }
        }
    }

    /// Keeps what was just compressed as a sample, if it is one.
    fn gather(&mut self) {
        if let Training::Gathers { partitions: 2, samples, lengths } = &mut self.training
            && samples.len() + self.shuffled.len() <= SAMPLES_MAX
        {
            samples.extend_from_slice(&self.shuffled);
            lengths.push(self.shuffled.len());
        }
    }

    /// No dictionary is trained any more; whether there is one.
    pub fn end_training(&mut self) -> bool {
        if let Training::Gathers { .. } = self.training {
            self.training = Training::Over;
        }
        matches!(self.training, Training::Has { .. })
    }

    /// The dictionary, if there is one, and whether it was trained here: what is compressed from now on does without.
    pub fn take_dictionary(&mut self) -> Option<(Stored, bool)> {
        self.until_trial = 0;
        match std::mem::replace(&mut self.training, Training::Over) {
            Training::Has { packing, is_new, is_proven: true } => Some((packing.stored, is_new)),
            _ => None,
        }
    }

    fn compress_in(&mut self, layout: Layout, block: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        shuffle(block, layout.shuffle, &mut self.shuffled).map_err(io::Error::other)?;
        out.clear();
        out.reserve(compress_bound(self.shuffled.len()));
        match &self.training {
            Training::Has { packing, .. } if layout.by_dictionary => {
                let done = self.zstd.context_mut().compress_using_cdict(out, &self.shuffled, &packing.tables);
                done.map_err(|code| io::Error::other(get_error_name(code)))?;
            }
            _ => {
                self.zstd.set_compression_level(if layout.is_thorough { THOROUGH } else { QUICK })?;
                self.zstd.compress_to_buffer(&self.shuffled, out)?;
            }
        }
        Ok(())
    }
}

/// What a thread keeps for decompression.
struct ThreadDecompressor {
    zstd: DCtx<'static>,
    shuffled: Vec<u8>,
}

thread_local! {
    static DECOMPRESSOR: RefCell<Option<ThreadDecompressor>> = const { RefCell::new(None) };
}

/// Decompresses into `block`, which has the right length, by the dictionary if the frame needs one; the number of bytes found, or what
/// is wrong with them.
pub(super) fn decompress(
    payload: &[u8],
    what: Option<Shuffle>,
    dictionary: Option<&Dictionary>,
    block: &mut [u8],
) -> Result<usize, String> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let ThreadDecompressor { zstd, shuffled } = match kept {
            Some(kept) => kept,
            None => {
                let zstd = DCtx::try_create().ok_or("zstd: out of memory")?;
                kept.insert(ThreadDecompressor { zstd, shuffled: Vec::new() })
            }
        };
        let failed = |code| format!("zstd: {}", get_error_name(code));
        let Some(what) = what else {
            return zstd.decompress(block, payload).map_err(failed);
        };
        shuffled.clear();
        shuffled.reserve(block.len());
        let found = match dictionary {
            None => zstd.decompress(shuffled, payload),
            Some(dictionary) => zstd.decompress_using_ddict(shuffled, payload, dictionary.tables()),
        }
        .map_err(failed)?;
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
            ("digits", digits, layout(Shuffle::Columns, false)),
            ("numbers", numbers, layout(Shuffle::Rows, true)),
            ("texts", texts, layout(Shuffle::Columns, true)),
        ] {
            let (mut compressor, mut packed, mut other) = (BlockCompressor::new().unwrap(), Vec::new(), Vec::new());
            // The second block is compressed as the first one was, without a trial.
            for _ in 0..2 {
                let form = compressor.compress(&block, &mut packed).unwrap();
                let Form { shuffle, by_dictionary } = form;
                assert_eq!((compressor.layout, shuffle, by_dictionary), (expected, expected.shuffle, false), "{what}");
                let mut back = vec![0; block.len()];
                assert_eq!(decompress(&packed, Some(shuffle), None, &mut back), Ok(block.len()));
                assert!(back == block);
            }
            for layout in LAYOUTS {
                compressor.compress_in(layout, &block, &mut other).unwrap();
                assert!(packed.len() < other.len() + other.len() / 40, "{what}: {} by {layout:?}", other.len());
            }
        }
    }
}
