//! The cursor over one SST, and read-ahead.
//!
//! Read-ahead begins by itself once a cursor has walked from one block that it had to read from disk into the next, and
//! ends with a seek. Its windows grow from 16 to 256 KiB: a long scan costs one read for many blocks, and a range within a
//! block nothing extra. Thousands of sessions may scan at once: what all such cursors read ahead into is counted, and beyond a
//! quarter of the block cache none begins and none grows.
//!
//! Where the end of the user's range is known ([`IterMemory::end_at`]), no window goes beyond it, as far as the index partition
//! at hand tells. And the first block is read together with those behind it in which the range goes on, up to 16 KiB, which
//! go into the cache: most ranges cost one read, and who has looked at both ends of one, to estimate it, has read it.
//!
//! Inside a block a step is an increment and the assembly of the key: eight bytes for the head, a copy of the tail if
//! there is one; the prefix is copied once per block. Values are never copied, and large ones read only when they are loaded
//! ([`super::deferred`]) if the user wants it so. The cursor keeps its block, its index
//! partition and their positions, so a seek that lands in the same block asks the cache for nothing.

use std::ops::Range;
use std::sync::Arc;

use super::block::Block;
use super::deferred::{LargeRow, LargeRowRef};
use super::frame::{self, Handle, aligned};
use super::large::LARGE;
use super::reader::Sst;
use super::{BlockCache, Cached, PinnedValue, ReadHints, handoff};
use crate::base::value::{DeferredValue, LargeValue};
use crate::base::{IndexId, Kind, Result, SeqNo, tally};
use crate::cache::{Held, Holder};
use crate::io::{AlignedBuf, File};
use crate::iter::VersionIter;

/// The first window of a reader that was announced as one, in bytes.
pub const AHEAD_MIN: u64 = 64 << 10;
/// The first window of another one, and what is read at first of a range with a known end: most ranges end in what it holds.
const AHEAD_FIRST: u64 = 16 << 10;
/// The largest of a reader that was not announced as one: there may be many of them.
const AHEAD_MAX_DETECTED: u64 = 256 << 10;
/// Blocks that were not in the cache, one after the other, before read-ahead begins.
const IN_ORDER: u32 = 1;
/// No partition or entry.
const NONE: u32 = u32::MAX;

/// The least that cursors may read ahead into together, in bytes, however small the block cache is.
const ALL_MIN: u64 = 1 << 20;

/// A window of the file that was read in one go.
pub(super) struct ReadAhead {
    buf: Option<AlignedBuf>,
    // The part of the file that `buf` holds.
    start: u64,
    end: u64,
    window: u64,
    window_min: u64,
    window_max: u64,
    /// No window that goes forward needs more of the file than is before this offset.
    until: u64,
    /// Of one of many: the count, and what all may have together.
    of_many: Option<(Held<Cached>, u64)>,
}

impl ReadAhead {
    /// A window of `window` bytes at first and of `window_max` at most.
    pub fn new(window: u64, window_max: u64) -> ReadAhead {
        ReadAhead {
            buf: None,
            start: 0,
            end: 0,
            window,
            window_min: window,
            window_max,
            until: u64::MAX,
            of_many: None,
        }
    }

    /// Bytes of memory it has.
    fn bytes(&self) -> usize {
        self.buf.as_ref().map_or(0, |buf| buf.len())
    }

    /// May there be `bytes` more of all together?
    fn may_take(&self, bytes: u64) -> bool {
        self.of_many.as_ref().is_none_or(|(held, most)| held.of_all() + bytes <= *most)
    }

    /// May one of many begin, or go on, beside this cache? It is counted from now on.
    fn may_read(&mut self, cache: &Arc<BlockCache>) -> bool {
        if self.buf.is_some() {
            return true;
        }
        let most = (cache.capacity() as u64 / 4).max(ALL_MIN);
        let held = Held::new(cache.clone(), Holder::ReadAhead);
        self.of_many = Some((held, most));
        self.may_take(self.window_min)
    }

    /// The stored bytes of a block. What is read along with it lies behind it or, if not `forward`, before it; the
    /// window doubles when the blocks are asked for in order and shrinks back on a jump.
    pub fn fetch(&mut self, file: &dyn File, handle: Handle, data_end: u64, forward: bool) -> Result<&[u8]> {
        if handle.offset < self.start || handle.end() > self.end {
            // A block cut off at the edge of the window is the normal continuation.
            let continues = if forward {
                (self.start..=self.end).contains(&handle.offset)
            } else {
                (self.start..=self.end).contains(&handle.end())
            };
            if self.end > 0 {
                self.window = match continues {
                    true if self.may_take(self.window) => (self.window * 2).min(self.window_max),
                    true => self.window,
                    false => self.window_min,
                };
            }
            let (from, to) = if forward {
                (handle.offset, (handle.offset + self.window).min(data_end).min(self.until).max(handle.end()))
            } else {
                (handle.end().saturating_sub(self.window).min(handle.offset), handle.end())
            };
            let (start, end) = aligned(file, from, to);
            let want = (end - start) as usize;
            // Undefined until the read has succeeded.
            (self.start, self.end) = (0, 0);
            let buf = match &mut self.buf {
                Some(buf) if buf.len() >= want => buf,
                other => {
                    // Never two of them at once.
                    *other = None;
                    let buf = other.insert(AlignedBuf::zeroed(want));
                    if let Some((held, _)) = &mut self.of_many {
                        held.set(buf.len() as u64);
                    }
                    buf
                }
            };
            frame::read_at(file, &mut buf[..want], start)?;
            (self.start, self.end) = (start, end);
        }
        tally::note_block_read();
        let skip = (handle.offset - self.start) as usize;
        let held = self.buf.as_deref().unwrap_or(&[]);
        Ok(&held[skip..skip + handle.len as usize])
    }
}

/// The memory of a cursor that is no longer needed, for another one: cursors that are reused from statement to statement then
/// allocate nothing.
#[derive(Default)]
pub struct IterMemory {
    key: Vec<u8>,
    passed: Vec<u8>,
    /// See `end_at`; empty if nothing is known.
    upper: Vec<u8>,
}

impl IterMemory {
    /// Who moves the cursor forward wants no keys from this one on; empty: all may be wanted. It ends read-ahead, not the cursor.
    pub fn end_at(&mut self, upper: &[u8]) {
        self.upper.clear();
        self.upper.extend_from_slice(upper);
    }
}

/// A cursor over the versions of one SST.
pub struct SstIter {
    sst: Arc<Sst>,
    hints: ReadHints,
    ahead: ReadAhead,
    /// Blocks read from disk since the last seek, each behind the one before (or before it, going backward).
    in_order: u32,
    valid: bool,
    // The loaded index partition and its number; then its row and the data block that row points to.
    partition: u32,
    index: Arc<Block>,
    entry: u32,
    block: Arc<Block>,
    row: u32,
    /// The block is a large row without its value.
    deferred: Option<LargeRow>,
    /// It was one, and has been read.
    loaded: bool,
    /// Of a reader past the cache: counts the block it stands on, unless that is counted as a large one.
    bypass: Option<Held<Cached>>,
    // Prefix of `block`, then what `fill_key` put behind it.
    key: Vec<u8>,
    key_len: usize,
    /// For the key that `next_key` leaves, if it goes on in another block.
    passed: Vec<u8>,
    /// As in [`IterMemory`].
    upper: Vec<u8>,
}

impl SstIter {
    pub(super) fn new(sst: Arc<Sst>, hints: ReadHints, memory: IterMemory) -> SstIter {
        // The top-level index stands in for blocks not loaded yet; `NONE` keeps it from being read.
        let block = sst.top.clone();
        let bypass = (!hints.fill_cache).then(|| Held::new(sst.cache.clone(), Holder::Bypass));
        let ahead = match hints.read_ahead {
            0 => ReadAhead::new(AHEAD_FIRST, AHEAD_MAX_DETECTED),
            most => ReadAhead::new(AHEAD_MIN, u64::from(most).max(AHEAD_MIN)),
        };
        SstIter {
            sst,
            hints,
            ahead,
            in_order: 0,
            valid: false,
            partition: NONE,
            index: block.clone(),
            entry: NONE,
            block,
            row: 0,
            deferred: None,
            loaded: false,
            bypass,
            key: memory.key,
            key_len: 0,
            passed: memory.passed,
            upper: memory.upper,
        }
    }

    /// Ends the cursor; what it had grown is for another one. Read-ahead's buffer is not kept: few cursors need one.
    pub fn into_memory(self) -> IterMemory {
        IterMemory { key: self.key, passed: self.passed, upper: self.upper }
    }

    /// The current value with the block that holds it. Requires `valid()`.
    pub fn pinned_value(&self) -> PinnedValue {
        debug_assert!(self.valid);
        PinnedValue::new(self.block.clone(), self.row)
    }

    /// The SST it walks.
    pub fn sst(&self) -> &Arc<Sst> {
        &self.sst
    }

    /// The decoded block it stands in: its flags let a reader skip checks for all rows of the block.
    pub fn block(&self) -> &Block {
        &self.block
    }

    fn load_partition(&mut self, partition: u32) -> Result<()> {
        if self.partition != partition {
            self.partition = NONE;
            self.entry = NONE;
            self.index = self.sst.index(partition)?;
            self.partition = partition;
        }
        Ok(())
    }

    fn load_entry(&mut self, entry: u32, forward: bool) -> Result<()> {
        if self.entry != entry {
            self.entry = NONE;
            self.leave_block();
            let handle = self.sst.entry(&self.index, entry)?.0;
            let is_asked_for = self.hints.defer_large;
            self.deferred = if is_asked_for { self.sst.large_row(&self.index, entry, handle)? } else { None };
            self.loaded = false;
            self.block = if let Some(row) = &self.deferred {
                let mut key = Vec::new();
                self.index.append_key(entry, &mut key);
                row.head(&self.sst, &key)?
            } else if self.hints.read_ahead > 0 || !self.hints.fill_cache {
                let ahead = (self.hints.read_ahead > 0).then_some(&mut self.ahead);
                self.sst.data_bulk(handle, ahead, forward, self.hints.fill_cache)?
            } else {
                match self.sst.cached_rows(handle)? {
                    Some(block) => block,
                    None => match handoff::take(&self.sst, handle.offset) {
                        Some(block) => block,
                        None => {
                            let block = self.load_rows(entry, handle, forward)?;
                            handoff::offer(&self.sst, handle.offset, &block);
                            block
                        }
                    },
                }
            };
            self.entry = entry;
            if let Some(bypass) = &mut self.bypass {
                let block = Some(self.block.charge()).filter(|_| self.block.bytes().len() < LARGE).unwrap_or(0);
                bypass.set((block + self.ahead.bytes().saturating_sub(self.hints.read_ahead as usize)) as u64);
            }
            let prefix = self.block.prefix();
            if self.key.len() < prefix.len() {
                self.key.resize(prefix.len(), 0);
            }
            self.key[..prefix.len()].copy_from_slice(prefix);
        }
        Ok(())
    }

    /// The block of an entry of the index partition at hand, which the cache does not have unpacked.
    fn load_rows(&mut self, entry: u32, handle: Handle, forward: bool) -> Result<Arc<Block>> {
        let is_first = self.in_order < IN_ORDER;
        self.in_order += 1;
        if is_first {
            let next = if forward { self.range_goes_on(entry, handle)? } else { 0..0 };
            return self.sst.load_run(handle, &self.index, next);
        }
        self.ahead.until = if forward { self.range_ends()? } else { u64::MAX };
        let ahead = self.ahead.may_read(&self.sst.cache).then_some(&mut self.ahead);
        self.sst.load_data(handle, ahead, forward)
    }

    /// The entries behind this one in whose blocks the user's range goes on, as far as they are not in the cache and end within
    /// 16 KiB of where the block at hand begins.
    fn range_goes_on(&self, entry: u32, handle: Handle) -> Result<Range<u32>> {
        let (mut next, mut end) = (entry + 1..entry + 1, handle.end());
        // Up to the end of an index: nobody said how much of it is wanted.
        if self.upper.len() > IndexId::LEN {
            let last = self.index.lower_bound(&self.upper).0.min(self.index.rows() - 1) as u32;
            while next.end <= last {
                let block = self.sst.entry(&self.index, next.end)?.0;
                let follows = block.offset >= end && block.end() <= handle.offset + AHEAD_FIRST;
                if !follows || self.sst.residence(block).is_some() {
                    break;
                }
                (next.end, end) = (next.end + 1, block.end());
            }
        }
        Ok(next)
    }

    /// Where the last block ends that may have keys of the user's range; beyond all, if the index partition at hand does not know.
    fn range_ends(&self) -> Result<u64> {
        let last = self.index.lower_bound(&self.upper).0;
        let known = !self.upper.is_empty() && last < self.index.rows();
        Ok(if known { self.sst.entry(&self.index, last as u32)?.0.end() } else { u64::MAX })
    }

    /// A block with a large value is given up before another is read, and at the end of the file.
    #[inline]
    fn leave_block(&mut self) {
        if self.block.bytes().len() >= LARGE {
            self.entry = NONE;
            self.block = self.sst.top.clone();
        }
    }

    /// A large row that was loaded is given up before a seek, which may end on it again.
    #[inline]
    fn unload(&mut self) {
        if self.loaded {
            self.leave_block();
        }
    }

    #[inline(always)]
    fn stand(&mut self, row: u32) {
        self.row = row;
        self.key_len = self.block.fill_key(row, &mut self.key);
        self.valid = true;
    }

    /// To the first row of the block after this one.
    #[cold]
    fn next_block(&mut self) -> Result<()> {
        self.valid = false;
        let (partition, entry) = (self.partition, self.entry);
        self.leave_block();
        if entry as usize + 1 < self.index.rows() {
            self.load_entry(entry + 1, true)?;
        } else if partition as usize + 1 < self.sst.top.rows() {
            self.load_partition(partition + 1)?;
            self.load_entry(0, true)?;
        } else {
            return Ok(());
        }
        self.stand(0);
        Ok(())
    }

    /// To the first row of the blocks after this one that has another key than the current.
    #[cold]
    fn next_key_behind_block(&mut self) -> Result<()> {
        let mut passed = std::mem::take(&mut self.passed);
        passed.clear();
        passed.extend_from_slice(self.key());
        let mut moved = self.next_block();
        while moved.is_ok() && self.valid && self.key() == passed {
            let next = self.block.next_key(self.row);
            if next < self.block.rows() {
                self.stand(next as u32);
            } else {
                moved = self.next_block();
            }
        }
        self.passed = passed;
        moved
    }

    /// To the last row of the block before this one.
    #[cold]
    fn prev_block(&mut self) -> Result<()> {
        self.valid = false;
        let (partition, entry) = (self.partition, self.entry);
        self.leave_block();
        if entry > 0 {
            self.load_entry(entry - 1, false)?;
        } else if partition > 0 {
            self.load_partition(partition - 1)?;
            self.load_entry(self.index.rows() as u32 - 1, false)?;
        } else {
            return Ok(());
        }
        self.stand(self.block.rows() as u32 - 1);
        Ok(())
    }

    /// Loads the first block whose separator is at or above the key; false if there is none.
    fn load_for(&mut self, key: &[u8], forward: bool) -> Result<bool> {
        self.valid = false;
        self.in_order = 0;
        self.unload();
        let partition = self.sst.top.lower_bound(key).0;
        if partition == self.sst.top.rows() {
            return Ok(false);
        }
        self.load_partition(partition as u32)?;
        // The last separator of a partition is the one the top-level index has; clamped against a broken file.
        let entry = self.index.lower_bound(key).0.min(self.index.rows() - 1);
        self.load_entry(entry as u32, forward)?;
        Ok(true)
    }
}

impl VersionIter for SstIter {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }
    #[inline]
    fn key(&self) -> &[u8] {
        debug_assert!(self.valid);
        &self.key[..self.key_len]
    }
    #[inline]
    fn seq(&self) -> SeqNo {
        debug_assert!(self.valid);
        match self.sst.stamp {
            Some(stamp) => stamp,
            None => self.block.seq(self.row),
        }
    }
    #[inline]
    fn kind(&self) -> Kind {
        debug_assert!(self.valid);
        self.block.kind(self.row)
    }
    #[inline]
    fn value(&self) -> &[u8] {
        debug_assert!(self.valid && self.deferred.is_none());
        self.block.value(self.row)
    }
    #[inline]
    fn large_value(&self) -> Option<LargeValue> {
        if self.block.bytes().len() >= LARGE { self.pinned_value().large() } else { None }
    }
    #[inline]
    fn is_deferred(&self) -> bool {
        self.deferred.is_some()
    }
    #[cold]
    fn load(&mut self) -> Result<()> {
        if let Some(row) = &self.deferred {
            self.block = row.read(&self.sst, &self.key[..self.key_len], self.hints)?;
            (self.deferred, self.loaded) = (None, true);
        }
        Ok(())
    }
    fn deferred(&self) -> Option<DeferredValue> {
        let row = self.deferred?;
        let key = self.key().to_vec();
        Some(Arc::new(LargeRowRef { sst: self.sst.clone(), row, key, hints: self.hints }))
    }
    #[inline]
    fn value_len(&self) -> usize {
        debug_assert!(self.valid);
        match &self.deferred {
            None => self.block.value_range(self.row).len as usize,
            Some(row) => row.value_bytes as usize,
        }
    }

    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        if !self.load_for(key, true)? {
            return Ok(());
        }
        let row = self.block.lower_bound(key).0;
        if row < self.block.rows() {
            self.stand(row as u32);
            return Ok(());
        }
        self.next_block()
    }

    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        if !self.load_for(key, false)? {
            return self.seek_last();
        }
        let row = self.block.lower_bound(key).0;
        if row > 0 {
            self.stand(row as u32 - 1);
            return Ok(());
        }
        self.prev_block()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.valid = false;
        self.in_order = 0;
        self.unload();
        self.load_partition(0)?;
        self.load_entry(0, true)?;
        self.stand(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.valid = false;
        self.in_order = 0;
        self.unload();
        self.load_partition(self.sst.top.rows() as u32 - 1)?;
        self.load_entry(self.index.rows() as u32 - 1, false)?;
        self.stand(self.block.rows() as u32 - 1);
        Ok(())
    }

    // Of the body of each scan's loop.
    #[inline(always)]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        if self.row as usize + 1 < self.block.rows() {
            self.stand(self.row + 1);
            return Ok(());
        }
        self.next_block()
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        let next = self.block.next_key(self.row);
        if next < self.block.rows() {
            self.stand(next as u32);
            return Ok(());
        }
        self.next_key_behind_block()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        if self.row > 0 {
            self.stand(self.row - 1);
            return Ok(());
        }
        self.prev_block()
    }
}
