//! How much of an SST lies before a key or between two, and how the cache holds it: told from the index, without reading data.
//!
//! Bytes are offsets of blocks. Versions are exact where the blocks at the ends are cached, else rounded to blocks.
//!
//! Invariant: no data block is read, and no look at one is noted in the cache.
//!
//! Rejected: samples of keys in the properties (they would have to be held in memory for each file).

use super::block::Block;
use super::frame::Handle;
use super::reader::Sst;
use super::{Cached, Residence, handoff};
use crate::base::Result;

/// What of an SST lies before a key, or between two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes of the file.
    pub bytes: u64,
    /// Versions.
    pub entries: u64,
    /// `entries` is not rounded to blocks.
    pub exact: bool,
}

impl Sst {
    /// About how much of the file has smaller keys. Bytes: the offset of the block where the key is or would be.
    /// Versions: exact if that block is cached, else rounded down to its start.
    pub fn before(&self, key: &[u8]) -> Result<Extent> {
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(Extent { bytes: self.data_end, entries: self.meta.entries, exact: true });
        }
        let (index, _, _) = self.partition(partition as u32)?;
        let (_, handle, before) = self.locate(index, key)?;
        let inside = self.peek_rows(handle, |block| block.lower_bound(key).0);
        Ok(Extent { bytes: handle.offset, entries: before + inside.unwrap_or(0) as u64, exact: inside.is_some() })
    }

    /// About how much of the file has keys in `[lower, upper)`: the difference of what is before the two. One way down the
    /// index if both keys belong to the same block, as those of a short range mostly do.
    pub fn between(&self, lower: &[u8], upper: &[u8]) -> Result<Extent> {
        let partition = self.top.lower_bound(lower).0;
        if partition == self.top.rows() {
            return Ok(Extent { bytes: 0, entries: 0, exact: true });
        }
        let (index, _, _) = self.partition(partition as u32)?;
        let (handle, before, same_block) = self.look_into(index, |block| {
            let (row, handle, before) = self.find(block, index, lower)?;
            Ok((handle, before, block.reaches(row, upper)))
        })?;
        if same_block {
            let inside =
                self.peek_rows(handle, |block| block.lower_bound(upper).0.saturating_sub(block.lower_bound(lower).0));
            return Ok(Extent { bytes: 0, entries: inside.unwrap_or(0) as u64, exact: inside.is_some() });
        }
        let inside = self.peek_rows(handle, |block| block.lower_bound(lower).0);
        let from = before + inside.unwrap_or(0) as u64;
        let to = self.before(upper)?;
        Ok(Extent {
            bytes: to.bytes.saturating_sub(handle.offset),
            entries: to.entries.saturating_sub(from),
            exact: to.exact && inside.is_some(),
        })
    }

    /// How the cache holds the data block in which a key is or would be, leaving no trace there; `None` if it does not, or if
    /// that cannot be told without reading.
    pub fn residence_of(&self, key: &[u8]) -> Option<Residence> {
        let partition = self.top.lower_bound(key).0;
        let (index, ..) = self.partition(u32::try_from(partition).ok()?).ok()?;
        let handle = self.peek_rows(index, |rows| self.find(rows, index, key).ok().map(|(_, handle, _)| handle))??;
        self.residence(handle)
    }

    /// Looks at a data block if it is cached, leaving no trace in the cache, or held by the thread.
    fn peek_rows<R>(&self, handle: Handle, look: impl Fn(&Block) -> R) -> Option<R> {
        let seen = self.cache.peek_with(self.no, handle.offset, |cached| match cached {
            Cached::Rows(block) => Some(look(block)),
            _ => None,
        });
        seen.flatten().or_else(|| handoff::look_at(self, handle.offset, look))
    }
}
