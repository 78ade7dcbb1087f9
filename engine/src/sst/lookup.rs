//! Look-ups: the newest version of a key at or below a number, and whether there is any.
//!
//! A look-up asks the filter partition, then the index partition, then the data block; when all are cached it allocates
//! nothing and takes one reference (of the data block it returns a value from).
//!
//! A filter earns its memory by the keys that it denies: only then is it counted as used, and one that is not in memory is
//! read only where [`filter_use`](super::filter_use) says that look-ups often find nothing. So the filters of the last
//! level, where most keys are found, leave a full cache to the data.
//!
//! Invariant: a filter that denies a key is believed; one that admits it decides nothing.
//!
//! Rejected: filters of single blocks (a read for each, and their index entries grow).

use std::sync::Arc;

use super::block::Block;
use super::filter::{Filter, key_hash};
use super::frame::{self, Handle};
use super::reader::Sst;
use super::{Cached, PinnedValue};
use crate::base::{Kind, Result, SeqNo};
use crate::cache::Queue;

impl Sst {
    #[cold]
    fn load_filter(&self, handle: Handle) -> Result<Arc<Filter>> {
        self.cache.count_miss(self.no, handle.offset);
        let bytes = frame::read(&*self.file, self.no, handle, self.cipher.as_ref())?;
        let filter = Filter::parse(&bytes).map_err(|what| self.bad(handle.offset, what))?;
        let filter = Arc::new(filter);
        let (cached, charge) = (Cached::Filter(filter.clone()), filter.charge());
        self.cache.insert_at(self.no, handle.offset, cached, charge, Some(Queue::Main));
        Ok(filter)
    }

    /// What the filter at `handle` says, if it is in memory.
    #[inline]
    fn ask_cached(&self, handle: Handle, hash: u64) -> Result<Option<bool>> {
        let seen = self.cache.with_if(self.no, handle.offset, |cached| match cached {
            Cached::Filter(filter) => {
                let admits = filter.may_contain(hash);
                (Some(admits), !admits)
            }
            _ => (None, false),
        });
        match seen {
            Some(None) => Err(self.bad(handle.offset, "no filter where a filter was expected")),
            Some(answer) => Ok(answer),
            None => Ok(None),
        }
    }

    /// What the filter of a partition says, if it is worth asking.
    #[inline]
    fn ask_filter(&self, filter: Option<Handle>, hash: u64) -> Result<Option<bool>> {
        let Some(handle) = filter else {
            return Ok(Some(true));
        };
        if !self.filter_use.is_asked() {
            return Ok(None);
        }
        let told = self.ask_cached(handle, hash)?;
        if let Some(admits) = told {
            self.filter_use.told(admits);
        }
        if told.is_some() || !self.filter_use.pays() {
            return Ok(told);
        }
        let admits = self.load_filter(handle)?.may_contain(hash);
        self.filter_use.learn(admits);
        Ok(Some(admits))
    }

    /// What the filter of a partition says.
    #[inline]
    fn filter_admits(&self, filter: Option<Handle>, hash: u64) -> Result<bool> {
        let Some(handle) = filter else {
            return Ok(true);
        };
        match self.ask_cached(handle, hash)? {
            Some(answer) => Ok(answer),
            None => Ok(self.load_filter(handle)?.may_contain(hash)),
        }
    }

    /// True if the filter knows that the SST has no version of the key with this [`key_hash`]. Reads a filter that is
    /// not in memory only if `may_read`, asked once, says so.
    pub fn excludes(&self, key: &[u8], hash: u64, may_read: impl FnOnce() -> bool) -> Result<bool> {
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(true);
        }
        let (_, filter, _) = self.partition(partition as u32)?;
        let known = filter.is_some_and(|handle| self.cache.peek_with(self.no, handle.offset, |_| ()).is_some());
        Ok((known || may_read()) && !self.filter_admits(filter, hash)?)
    }

    /// The newest version of `key` with a number `<= read`: its number, kind and value (empty for a tombstone).
    pub fn get(&self, key: &[u8], read: SeqNo) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        self.get_hashed(key, key_hash(key), read)
    }

    /// [`Sst::get`] with `hash = key_hash(key)` at hand, for lookups in several SSTs.
    pub fn get_hashed(&self, key: &[u8], hash: u64, read: SeqNo) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        // The caller chose the SST by its key range, so that is not compared again: a key above it ends in the
        // top-level index, one below it in the filter or the first block.
        if read < self.stamp.unwrap_or(self.meta.min_seq) {
            return Ok(None);
        }
        if let Some(stamp) = self.stamp {
            let found = self.find_version(key, hash, SeqNo::MAX)?;
            return Ok(found.map(|(_, kind, value)| (stamp, kind, value)));
        }
        self.find_version(key, hash, read)
    }

    /// `get_hashed` by the numbers in the file.
    #[inline]
    fn find_version(&self, key: &[u8], hash: u64, read: SeqNo) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(None);
        }
        let (index, filter, _) = self.partition(partition as u32)?;
        let told = self.ask_filter(filter, hash)?;
        if told == Some(false) {
            return Ok(None);
        }
        let (row, handle, _) = self.locate(index, key)?;
        let block = match self.cached_rows(handle)? {
            Some(block) => block,
            None => match self.load_for(key, read, partition as u32, row, handle)? {
                Some(block) => block,
                None => return self.get_further(key, read, partition as u32, row),
            },
        };
        let (first, exact) = block.lower_bound(key);
        if !exact {
            if told.is_none() {
                self.filter_use.learn(false);
            }
            // The separator lies below the next block's first key, so the key is not there either.
            return Ok(None);
        }
        let seen = block.first_visible(first, key, read);
        if seen == block.rows() {
            // It may be a large one.
            drop(block);
            return self.get_further(key, read, partition as u32, row);
        }
        Ok(Sst::answer(&block, seen as u32, key, seen != first))
    }

    /// The block that the search for `key` has come to; of a large row that is not the answer its head. `None` if that is a
    /// version of the key which is too new.
    #[cold]
    fn load_for(
        &self,
        key: &[u8],
        read: SeqNo,
        partition: u32,
        row: u32,
        handle: Handle,
    ) -> Result<Option<Arc<Block>>> {
        let index = self.index(partition)?;
        match self.large_row(&index, row, handle)? {
            Some(large) if !index.key_is(row, key) => {
                let mut other = Vec::new();
                index.append_key(row, &mut other);
                large.head(self, &other).map(Some)
            }
            Some(large) if large.seq > read => Ok(None),
            _ => self.load_data(handle, None, true).map(Some),
        }
    }

    /// The row's version if it is one of `key`, which need not be checked if that is known.
    #[inline]
    fn answer(block: &Arc<Block>, row: u32, key: &[u8], check: bool) -> Option<(SeqNo, Kind, PinnedValue)> {
        if check && !block.key_is(row, key) {
            return None;
        }
        Some((block.seq(row), block.kind(row), PinnedValue::new(block.clone(), row)))
    }

    /// Continues a lookup behind block `row` of `partition`, all of whose versions of the key are too new.
    #[cold]
    fn get_further(
        &self,
        key: &[u8],
        read: SeqNo,
        mut partition: u32,
        mut row: u32,
    ) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        let mut index = self.index(partition)?;
        loop {
            row += 1;
            if row as usize >= index.rows() {
                partition += 1;
                if partition as usize >= self.top.rows() {
                    return Ok(None);
                }
                index = self.index(partition)?;
                row = 0;
            }
            let handle = self.entry(&index, row)?.0;
            let block = match self.cached_rows(handle)? {
                Some(block) => block,
                None => match self.load_for(key, read, partition, row, handle)? {
                    Some(block) => block,
                    None => continue,
                },
            };
            if !block.key_is(0, key) {
                return Ok(None);
            }
            let seen = block.first_visible(0, key, read);
            if seen < block.rows() {
                return Ok(Sst::answer(&block, seen as u32, key, true));
            }
        }
    }

    /// False if the SST certainly has no version of `key`; asks the key range and the filter only.
    pub fn may_contain(&self, key: &[u8]) -> Result<bool> {
        if key < &self.meta.smallest[..] {
            return Ok(false);
        }
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(false);
        }
        self.filter_admits(self.partition(partition as u32)?.1, key_hash(key))
    }
}
