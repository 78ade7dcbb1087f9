//! Verification: reads an SST, or one index's part of a shared one, past the cache and compares all it says of itself.
//!
//! Checksums, structure, the order of versions, separators, counts, filters and properties are checked. The blocks are read once,
//! in the order of the file.
//!
//! Invariant: a file that passes answers every look-up and scan as its rows say.
//!
//! Rejected: checking blocks through the cache (it would be washed out, and what is in memory says nothing of the disk).

use std::cmp::Ordering;
use std::sync::Arc;

use super::SstMeta;
use super::block::Block;
use super::filter::{Filter, key_hash};
use super::frame::{self, Handle};
use super::iter::{AHEAD_MIN, ReadAhead};
use super::large::LARGE;
use super::meta::{Part, Shares};
use super::reader::Sst;
use crate::base::{IndexId, Kind, Result, SeqNo};

impl Sst {
    /// Reads the whole file past the cache and checks everything that can be checked: checksums, structure, order,
    /// separators, counts, filters, properties.
    pub fn verify(&self) -> Result<()> {
        self.verify_with(&|| Ok(()))
    }

    /// As `verify`; `tick` is called for each partition of the index, and its error ends the work.
    pub fn verify_with(&self, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut ahead = ReadAhead::new(1 << 20, 1 << 20);
        let mut seen = SstMeta {
            min_seq: SeqNo(u64::MAX),
            max_seq: SeqNo::ZERO,
            entries: 0,
            tombstones: 0,
            raw_bytes: 0,
            ..self.meta.clone()
        };
        let mut walked = Walked::default();
        let mut shares = Shares::default();
        let mut expected_offset = 0;
        for partition in 0..self.top.rows() as u32 {
            tick()?;
            let (at, filter, before) = self.partition(partition)?;
            if before != seen.entries {
                return Err(self.bad(at.offset, "wrong count in the top-level index"));
            }
            let (index, filter) = self.read_partition(at, filter)?;
            for entry in 0..index.rows() as u32 {
                let (handle, before) = self.entry(&index, entry)?;
                if before != seen.entries || handle.offset != expected_offset {
                    return Err(self.bad(at.offset, "index entry does not follow the one before"));
                }
                expected_offset = handle.end();
                let block = self.read_block(handle, &mut ahead)?;
                self.check_large_row(&index, entry, handle, &block)?;
                let is_first = seen.entries == 0;
                walked.block(self, handle, &block, &filter, &mut |key, seq, kind, value_bytes| {
                    seen.min_seq = seen.min_seq.min(seq);
                    seen.max_seq = seen.max_seq.max(seq);
                    seen.tombstones += u64::from(kind == Kind::Delete);
                    shares.count(key, kind, value_bytes);
                    seen.raw_bytes += (key.len() + value_bytes) as u64;
                    seen.entries += 1;
                })?;
                if is_first && walked.first_key != self.meta.smallest {
                    return Err(self.bad(handle.offset, "first key is not the smallest of the properties"));
                }
                walked.separator(self, at, &index, entry)?;
            }
            let mut key = Vec::new();
            self.top.append_key(partition, &mut key);
            if key != walked.separator {
                return Err(self.bad(at.offset, "top-level separator is not the last of its partition"));
            }
        }
        seen.largest = walked.last_key;
        seen.shares = shares.finish().ok_or_else(|| self.bad(self.data_end, "share of an index above its limit"))?;
        if seen != self.meta || expected_offset != self.data_end {
            return Err(self.bad(self.data_end, "properties contradict the data"));
        }
        // Blocks were unpacked by the one that is in the cache.
        self.verify_dictionary()
    }

    /// As `verify_with`, for one index of a file that several share: reads the blocks that have keys of it and what leads to
    /// them, and compares its share in the properties.
    pub fn verify_part(&self, id: IndexId, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(expected) = self.meta.part_of(id) else { return Ok(()) };
        let (lower, upper) = (id.prefix(), id.0.checked_add(1).map(|next| IndexId(next).prefix()));
        let is_behind = |key: &[u8]| upper.is_some_and(|upper| key >= upper.as_slice());
        let mut ahead = ReadAhead::new(AHEAD_MIN, 1 << 20);
        let mut walked = Walked::default();
        let mut found = Part::default();
        let mut separator = Vec::new();
        'file: for partition in 0..self.top.rows() as u32 {
            separator.clear();
            self.top.append_key(partition, &mut separator);
            if separator.as_slice() < lower.as_slice() {
                continue;
            }
            tick()?;
            let (at, filter, _) = self.partition(partition)?;
            let (index, filter) = self.read_partition(at, filter)?;
            for entry in 0..index.rows() as u32 {
                separator.clear();
                index.append_key(entry, &mut separator);
                if separator.as_slice() < lower.as_slice() {
                    continue;
                }
                let handle = self.entry(&index, entry)?.0;
                let block = self.read_block(handle, &mut ahead)?;
                self.check_large_row(&index, entry, handle, &block)?;
                walked.block(self, handle, &block, &filter, &mut |key, _, kind, value_bytes| {
                    if IndexId::of(key) == id {
                        found.entries += 1;
                        found.tombstones += u64::from(kind == Kind::Delete);
                        found.raw_bytes += (key.len() + value_bytes) as u64;
                    }
                })?;
                walked.separator(self, at, &index, entry)?;
                if is_behind(&walked.last_key) {
                    break 'file;
                }
            }
        }
        match found == expected {
            true => Ok(()),
            false => Err(self.bad(self.data_end, format!("share of index {id} contradicts the data"))),
        }
    }

    /// Compares a block with what its entry in the index says.
    fn check_large_row(&self, index: &Block, entry: u32, handle: Handle, block: &Block) -> Result<()> {
        let Some(row) = self.large_row(index, entry, handle)? else { return Ok(()) };
        let mut key = Vec::new();
        index.append_key(entry, &mut key);
        row.check(self, &key, block)
    }

    /// An index partition and its filter, past the cache.
    fn read_partition(&self, at: Handle, filter: Option<Handle>) -> Result<(Arc<Block>, PlacedFilter)> {
        let index = self.parse(at, frame::read(&*self.file, self.no, at, self.cipher.as_ref())?)?;
        let Some(handle) = filter else { return Ok((index, None)) };
        let bytes = frame::read(&*self.file, self.no, handle, self.cipher.as_ref())?;
        Ok((index, Some((handle, Filter::parse(&bytes).map_err(|what| self.bad(handle.offset, what))?))))
    }

    /// A data block, past the cache.
    fn read_block(&self, handle: Handle, ahead: &mut ReadAhead) -> Result<Arc<Block>> {
        if handle.len as usize >= LARGE {
            return self.read_large(handle);
        }
        let framed = ahead.fetch(&*self.file, handle, self.data_end, true)?;
        self.parse(handle, self.unpack(handle, framed)?)
    }
}

/// A filter, if there is one, and where it lies.
type PlacedFilter = Option<(Handle, Filter)>;
/// Is told key, number, kind, and length of the value of each row.
type EachRow<'a> = &'a mut dyn FnMut(&[u8], SeqNo, Kind, usize);

/// Where a verification stands: the rows of consecutive blocks follow each other.
#[derive(Default)]
struct Walked {
    rows: u64,
    key: Vec<u8>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_seq: SeqNo,
    separator: Vec<u8>,
}

impl Walked {
    /// Checks the rows of the next block.
    fn block(
        &mut self,
        sst: &Sst,
        handle: Handle,
        block: &Block,
        filter: &PlacedFilter,
        each: EachRow<'_>,
    ) -> Result<()> {
        let (mut newest, mut tombstones) = (SeqNo::ZERO, false);
        for row in 0..block.rows() as u32 {
            self.key.clear();
            block.append_key(row, &mut self.key);
            let (seq, kind) = (block.seq(row), block.kind(row));
            let order = if self.rows == 0 { Ordering::Less } else { self.last_key.cmp(&self.key) };
            if order.is_gt() || (order.is_eq() && self.last_seq <= seq) {
                return Err(sst.bad(handle.offset, format!("row {row} out of order")));
            }
            if self.rows > 0 && row == 0 && self.key < self.separator {
                return Err(sst.bad(handle.offset, "block begins below the separator before it"));
            }
            if let Some((at, filter)) = filter {
                if !filter.may_contain(key_hash(&self.key)) {
                    return Err(sst.bad(at.offset, format!("filter denies key {:02x?}", self.key)));
                }
            }
            if self.rows == 0 {
                self.first_key.clone_from(&self.key);
            }
            newest = newest.max(seq);
            tombstones |= kind == Kind::Delete;
            each(&self.key, seq, kind, block.value(row).len());
            self.rows += 1;
            std::mem::swap(&mut self.key, &mut self.last_key);
            self.last_seq = seq;
        }
        match block.newest() != newest || block.has_tombstones() != tombstones {
            true => Err(sst.bad(handle.offset, "block flags contradict its rows")),
            false => Ok(()),
        }
    }

    /// Checks what the index says of the block's end.
    fn separator(&mut self, sst: &Sst, at: Handle, index: &Block, entry: u32) -> Result<()> {
        self.separator.clear();
        index.append_key(entry, &mut self.separator);
        match self.separator < self.last_key {
            true => Err(sst.bad(at.offset, "separator below the last key of its block")),
            false => Ok(()),
        }
    }
}
