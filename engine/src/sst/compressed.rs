//! The compressed block cache: data blocks that stay in the cache in the form they have on disk.
//!
//! Where data are larger than memory most blocks are wanted again too seldom to earn their memory uncompressed, two to four times
//! as large, but often enough to spare a read. So what is read from disk while the cache is full is kept compressed, beside the
//! uncompressed form: under its offset with the highest bit set. Each reader decompresses it for itself, which costs a
//! tenth of a read or less, until it has been asked for often enough between two rounds of the cache's CLOCK; then it is kept
//! uncompressed instead. While the cache has room nothing is kept compressed: data that fit into memory are read as they lie there.
//!
//! Rejected: two caches, one for each form (somebody has to divide the memory between them, and the division is wrong as soon
//! as the load changes).

use super::block::Block;
use super::frame::{self, Handle};
use super::iter::ReadAhead;
use super::large::LARGE;
use super::{Cached, Sst};
use crate::base::Result;
use crate::base::slots::Buf;
use crate::cache::{Queue, SECOND_FORM};
use std::ops::Range;
use std::sync::Arc;

/// A block that was asked for so often before is decompressed for good.
const DECOMPRESS_FROM: u8 = 2;

/// How a block is held in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Residence {
    /// In which queue.
    pub queue: Queue,
    /// In the form it has on disk.
    pub compressed: bool,
}

/// The offset under which the compressed form of a block is cached.
pub(super) fn offset_of_compressed(offset: u64) -> u64 {
    offset | SECOND_FORM
}

/// A compressed block for the cache, and what it takes there.
pub(super) fn compressed(framed: &[u8]) -> (Cached, usize) {
    let bytes = Buf::from(framed);
    let charge = bytes.charge() + size_of::<Buf>() + 2 * size_of::<usize>();
    (Cached::Compressed(Arc::new(bytes)), charge)
}

impl Sst {
    /// How the data block at `handle` is held, leaving no trace.
    pub(super) fn residence(&self, handle: Handle) -> Option<Residence> {
        let held = |offset, compressed| Some(Residence { queue: self.cache.queue(self.no, offset)?, compressed });
        held(handle.offset, false).or_else(|| held(offset_of_compressed(handle.offset), true))
    }

    /// A data block that is not cached uncompressed: from its compressed form or from disk.
    #[cold]
    pub(super) fn load_data(&self, handle: Handle, ahead: Option<&mut ReadAhead>, forward: bool) -> Result<Arc<Block>> {
        if handle.len as usize >= LARGE {
            return self.read_large(handle);
        }
        if let Some(block) = self.load_compressed(handle)? {
            return Ok(block);
        }
        self.with_framed(handle, ahead, forward, |framed| self.admit(handle, framed, true))
    }

    /// The same; if it has to be read from disk, so are the blocks of the entries `next` of the index partition, which lie behind
    /// it: in one go, into the cache, in the form they have on disk.
    #[cold]
    pub(super) fn load_run(&self, handle: Handle, index: &Block, next: Range<u32>) -> Result<Arc<Block>> {
        if next.is_empty() || handle.len as usize >= LARGE {
            return self.load_data(handle, None, true);
        }
        if let Some(block) = self.load_compressed(handle)? {
            return Ok(block);
        }
        let start = handle.offset;
        let end = self.entry(index, next.end - 1)?.0.end();
        frame::with_bytes(&*self.file, start, (end - start) as usize, |bytes| {
            let framed = |block: Handle| &bytes[(block.offset - start) as usize..(block.end() - start) as usize];
            let block = self.admit(handle, framed(handle), true)?;
            for entry in next {
                let handle = self.entry(index, entry)?.0;
                self.cache_compressed(handle, framed(handle));
            }
            Ok(block)
        })
    }

    /// A data block whose compressed form is in the cache.
    fn load_compressed(&self, handle: Handle) -> Result<Option<Arc<Block>>> {
        let offset = offset_of_compressed(handle.offset);
        let Some((Cached::Compressed(bytes), uses)) = self.cache.get_second(self.no, offset) else { return Ok(None) };
        let unpacked = self.unpack(handle, &bytes).and_then(|rows| self.parse(handle, rows));
        // It may have come there unread: what is damaged is read from disk the next time.
        let block = unpacked.inspect_err(|_| self.cache.erase(self.no, offset))?;
        let is_wanted = uses >= DECOMPRESS_FROM;
        if (is_wanted || self.cache.has_room()) && block.bytes().len() < LARGE {
            self.cache.erase(self.no, offset);
            self.cache_rows(handle, &block, is_wanted.then_some(Queue::Main));
        }
        Ok(Some(block))
    }

    fn cache_compressed(&self, handle: Handle, framed: &[u8]) {
        let (bytes, charge) = compressed(framed);
        self.cache.insert(self.no, offset_of_compressed(handle.offset), bytes, charge);
    }

    /// A data block for a bulk reader: from the cache, but without a trace there; else through its own read-ahead, if it
    /// has one.
    pub(super) fn data_bulk(
        &self,
        handle: Handle,
        ahead: Option<&mut ReadAhead>,
        forward: bool,
        fill: bool,
    ) -> Result<Arc<Block>> {
        if handle.len as usize >= LARGE {
            return self.read_large(handle);
        }
        if let Some(Cached::Rows(block)) = self.cache.peek(self.no, handle.offset) {
            return Ok(block);
        }
        if let Some(Cached::Compressed(bytes)) = self.cache.peek(self.no, offset_of_compressed(handle.offset)) {
            return self.parse(handle, self.unpack(handle, &bytes)?);
        }
        self.with_framed(handle, ahead, forward, |framed| self.admit(handle, framed, fill))
    }

    /// A data block just read from disk; cached if `fill`, in the form that there is room for.
    fn admit(&self, handle: Handle, framed: &[u8], fill: bool) -> Result<Arc<Block>> {
        let block = self.parse(handle, self.unpack(handle, framed)?)?;
        if fill && self.cache.has_room() {
            self.cache_rows(handle, &block, None);
        } else if fill && framed.len() < LARGE {
            self.cache_compressed(handle, framed);
        }
        Ok(block)
    }
}
