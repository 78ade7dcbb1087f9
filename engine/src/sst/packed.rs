//! Data blocks that stay in the cache in the form they have on disk.
//!
//! Where data are larger than memory most blocks are wanted again too seldom to earn their place unpacked, two to four times
//! as large, but often enough to spare a read. So what is read from disk while the cache is full is kept packed, beside the
//! place of the unpacked form: under its offset with the highest bit set. Each reader unpacks it for itself, which costs a
//! tenth of a read or less, until it has been asked for often enough between two rounds of the cache's CLOCK; then it is kept
//! unpacked instead. While the cache has room nothing is packed: data that fit into memory are read as they lie there.
//!
//! Rejected: two caches, one for each form (somebody has to divide the memory between them, and the division is wrong as soon
//! as the load changes).

use super::block::Block;
use super::frame::{self, Handle};
use super::iter::ReadAhead;
use super::large::LARGE;
use super::{Cached, Table};
use crate::base::Result;
use crate::base::slots::Buf;
use crate::cache::Queue;
use std::sync::Arc;

/// Marks the offset of a packed block; no file is that long.
const PACKED: u64 = 1 << 63;
/// A block that was asked for so often before is unpacked for good.
const UNPACK_FROM: u8 = 2;

/// How a block is held in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Residence {
    /// In which queue.
    pub queue: Queue,
    /// In the form it has on disk.
    pub packed: bool,
}

/// The offset under which the packed form of a block is cached.
pub(super) fn offset_of_packed(offset: u64) -> u64 {
    offset | PACKED
}

/// A packed block for the cache, and what it takes there.
pub(super) fn packed(framed: &[u8]) -> (Cached, usize) {
    let bytes = Buf::from(framed);
    let charge = bytes.charge() + size_of::<Buf>() + 2 * size_of::<usize>();
    (Cached::Packed(Arc::new(bytes)), charge)
}

impl Table {
    /// How the data block at `handle` is held, leaving no trace.
    pub(super) fn residence(&self, handle: Handle) -> Option<Residence> {
        let held = |offset, packed| Some(Residence { queue: self.cache.queue(self.no, offset)?, packed });
        held(handle.offset, false).or_else(|| held(offset_of_packed(handle.offset), true))
    }

    /// A data block that is not cached unpacked: from its packed form or from disk.
    #[cold]
    pub(super) fn load_data(&self, handle: Handle, ahead: Option<&mut ReadAhead>, forward: bool) -> Result<Arc<Block>> {
        if handle.len as usize >= LARGE {
            return self.read_large(handle);
        }
        let offset = offset_of_packed(handle.offset);
        if let Some((Cached::Packed(bytes), uses)) = self.cache.get_second(self.no, offset) {
            let block = self.parse(handle, self.unpack(handle, &bytes)?)?;
            if uses >= UNPACK_FROM && block.bytes().len() < LARGE {
                self.cache.erase(self.no, offset);
                self.cache_rows(handle, &block, Some(Queue::Main));
            }
            return Ok(block);
        }
        self.with_framed(handle, ahead, forward, |framed| self.admit(handle, framed, true))
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
        if let Some(Cached::Packed(bytes)) = self.cache.peek(self.no, offset_of_packed(handle.offset)) {
            return self.parse(handle, self.unpack(handle, &bytes)?);
        }
        self.with_framed(handle, ahead, forward, |framed| self.admit(handle, framed, fill))
    }

    fn unpack(&self, handle: Handle, framed: &[u8]) -> Result<Buf> {
        frame::unpack(self.path(), self.no, handle.offset, framed)
    }

    /// A data block just read from disk; cached if `fill`, in the form that there is room for.
    fn admit(&self, handle: Handle, framed: &[u8], fill: bool) -> Result<Arc<Block>> {
        let block = self.parse(handle, self.unpack(handle, framed)?)?;
        if fill && self.cache.has_room() {
            self.cache_rows(handle, &block, None);
        } else if fill && framed.len() < LARGE {
            let (bytes, charge) = packed(framed);
            self.cache.insert(self.no, offset_of_packed(handle.offset), bytes, charge);
        }
        Ok(block)
    }
}
