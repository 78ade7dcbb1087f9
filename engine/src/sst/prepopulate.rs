//! Cache prepopulation: blocks of a new file that are in the cache from the start.
//!
//! A merge replaces files by others with the same rows. Blocks of the old files leave the cache with them; if those of the
//! new ones had to be read from disk first, each merge would cost readers what they had in memory, and data that fits into
//! memory would be read again and again as long as anybody writes. So a block is put into the cache as it is written if the
//! caller knows a place for it, by its last key: that of the block which had most of its rows before, in the form which that
//! had. Index partitions go in whether or not the blocks do: there is one for 64 of them. So do filters, but on probation, for
//! whether one will have keys to deny is not known before readers have met the new file.
//!
//! Rejected: reading the new blocks in after the merge (costs the reads that this saves, and comes late); caching every
//! output (a merge of cold data would wash through the cache).

use super::compressed::{compressed, offset_of_compressed};
use super::large::LARGE;
use super::{Block, BlockCache, Cached, Filter, Residence};
use crate::base::FileNo;
use crate::cache::Queue;
use std::sync::Arc;

/// What is asked about a key, by whichever thread has the writing of files in hand.
pub type AskKey<'a, R> = Arc<dyn Fn(&[u8]) -> R + Send + Sync + 'a>;

/// Which blocks of a new SST go into the cache.
#[derive(Clone)]
pub struct Prepopulate<'a> {
    /// The cache.
    pub cache: Arc<BlockCache>,
    /// How to hold the block that ends with this key; `None` if it is to stay outside.
    pub residence: AskKey<'a, Option<Residence>>,
}

impl Prepopulate<'_> {
    /// Puts in a block of rows, given its bytes before compression.
    pub(super) fn rows(&self, no: FileNo, offset: u64, raw: &[u8], queue: Queue) {
        // Bytes that do not parse are met again, and told of, when the block is read.
        if let Ok(block) = Block::parse(raw) {
            let charge = block.charge();
            self.cache.insert_at(no, offset, Cached::Rows(Arc::new(block)), charge, Some(queue));
        }
    }

    /// Puts in a data block, given its bytes before compression and as they are in the file.
    pub(super) fn data(&self, no: FileNo, offset: u64, raw: &[u8], framed: &[u8], residence: Residence) {
        if if residence.compressed { framed.len() } else { raw.len() } >= LARGE {
            return;
        }
        if !residence.compressed {
            return self.rows(no, offset, raw, residence.queue);
        }
        let (bytes, charge) = compressed(framed);
        self.cache.insert_at(no, offset_of_compressed(offset), bytes, charge, Some(residence.queue));
    }

    /// Puts in a filter partition.
    pub(super) fn filter(&self, no: FileNo, offset: u64, raw: &[u8]) {
        if let Ok(filter) = Filter::parse(raw) {
            let charge = filter.charge();
            self.cache.insert(no, offset, Cached::Filter(Arc::new(filter)), charge);
        }
    }
}
