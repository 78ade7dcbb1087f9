//! SSTs (table files): immutable sorted files of versions, the persistent levels of the tree.
//!
//! A file is a row of data blocks, then perhaps a dictionary, filter partitions, index partitions, the top-level index, properties and a
//! footer; docs/develop/format/sst.md has the bytes. [`SstWriter`] makes one from versions in internal order,
//! [`Sst`] reads it, [`SstIter`] walks it. Blocks are decoded once and shared through the [`crate::cache::Cache`].
//!
//! # Invariants
//!
//! - Versions are in strict internal order. A file of several indexes says in its properties what it has of each.
//! - The separator of a block is at or above its last key and below the first key of the next block, except that it
//!   equals the latter where versions of one key span the two blocks. So the first separator at or above a key leads
//!   to the newest version of it.
//! - A filter partition knows exactly the keys of the data blocks of the index partition of the same number.
//!
//! # Rejected
//!
//! One index block per file: at 64 MiB per file it is large enough to hurt the cache when it comes and goes as a whole.
//! Filters and index partitions between the data blocks: they would cut the runs that sequential reads fetch at once.

mod block;
mod block_compressor;
mod carve;
mod dictionary;
mod filter_use;
mod deferred;
mod extent;
mod filter;
mod footer;
mod frame;
mod gather;
mod handoff;
mod iter;
mod large;
mod lookup;
mod meta;
mod compressed;
mod pin;
mod reader;
mod sealed;
#[cfg(test)]
mod tests;
mod prepopulate;
mod survey;
mod verify;
mod writer;

use std::ops::Deref;
use std::sync::Arc;

use block::ValueRange;

use crate::base::limits::BLOCK_BYTES;
use crate::base::slots::{Buf, LARGE};
use crate::base::value::{Bytes, LargeValue};

pub use block::{Block, BlockBuilder};
pub use compressed::Residence;
pub use dictionary::{Dictionaries, Dictionary};
pub use extent::Extent;
pub use filter::{Filter, key_hash};
pub use gather::gather;
pub use handoff::{hold_for_scan, let_go};
pub use iter::{AHEAD_MIN, IterMemory, SstIter};
pub use meta::{Part, Share, SstMeta, Superseded};
pub use pin::{BlockPin, pinned_block_bytes};
pub use prepopulate::{AskKey, Prepopulate};
pub use reader::Sst;
pub use survey::{LostPart, LostRange, Survey, SurveyCursor};
pub use writer::{SstWriter, WRITE_BYTES};

/// How the blocks of a file are compressed. A block that would not shrink by an eighth is stored plain in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4 block format: quicker by a quarter to write, larger by a third.
    Lz4,
    /// Shuffled, then zstd, as serves the rows best.
    Zstd,
}

/// How a file is written. Readers need none of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SstOptions {
    /// Compression of data and index blocks.
    pub compression: Compression,
    /// Uncompressed size in bytes at which a data block is cut.
    pub block_bytes: usize,
    /// Filter size; 0 makes no filters.
    pub filter_bits_per_key: u8,
    /// The master key under which the file is encrypted, if it is. Heeded by who begins the file ([`SstWriter::encrypt`]).
    pub key: Option<u32>,
}

impl Default for SstOptions {
    fn default() -> Self {
        SstOptions { compression: Compression::Zstd, block_bytes: BLOCK_BYTES, filter_bits_per_key: 10, key: None }
    }
}

/// What an iterator's user knows about its future.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadHints {
    /// Keep blocks read from disk in the cache. Off for compaction and other bulk readers.
    pub fill_cache: bool,
    /// Most of the file will be read in order: read ahead, 64 KiB at first and up to this many bytes at a time. 0 reads
    /// single blocks; with `fill_cache` until a scan has turned out to be a long one.
    pub read_ahead: u32,
    /// The user loads a value that is deferred ([`crate::iter::VersionIter::load`]): a large row is not read before.
    pub defer_large: bool,
}

impl Default for ReadHints {
    fn default() -> Self {
        ReadHints { fill_cache: true, read_ahead: 0, defer_large: false }
    }
}

/// What the block cache holds.
#[derive(Clone)]
pub enum Cached {
    /// A data or index block.
    Rows(Arc<Block>),
    /// A filter partition.
    Filter(Arc<Filter>),
    /// A data block in the form it has on disk; see [`compressed`].
    Compressed(Arc<Buf>),
    /// A dictionary, of all files that are packed by it.
    Dictionary(Arc<Dictionary>),
}

/// The cache of decoded blocks.
pub type BlockCache = crate::cache::Cache<Cached>;

impl Bytes for Block {
    fn bytes(&self) -> &[u8] {
        Block::bytes(self)
    }
}

/// A value inside a decoded block, which it keeps alive.
#[derive(Clone)]
pub struct PinnedValue {
    block: Arc<Block>,
    range: ValueRange,
}

impl PinnedValue {
    pub(crate) fn new(block: Arc<Block>, row: u32) -> PinnedValue {
        let range = block.value_range(row);
        PinnedValue { block, range }
    }

    /// What keeps it in memory, counted.
    pub(crate) fn into_pin(self) -> BlockPin {
        BlockPin::new(self.block)
    }

    /// The value by itself, if it is a large one.
    pub fn large(&self) -> Option<LargeValue> {
        let ValueRange { start, len } = self.range;
        let is_large = self.block.bytes().len() >= LARGE;
        is_large.then(|| LargeValue::new(self.block.clone(), start as usize, len as usize))
    }
}

impl Deref for PinnedValue {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let start = self.range.start as usize;
        &self.block.bytes()[start..start + self.range.len as usize]
    }
}

impl std::fmt::Debug for PinnedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&**self, f)
    }
}
