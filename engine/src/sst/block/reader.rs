//! A block as it is read: its structure checked once, then each column at hand.
//!
//! # Invariants
//!
//! `Block::parse` refuses bytes of another structure than the [format](super) has. So no access to a row can reach outside
//! the bytes, whatever they are. Row order is not checked on load (the checksum vouches for it) and a wrong order can only
//! give wrong answers, not faults; `Sst::verify` checks it.
//!
//! # Rejected
//!
//! Checks at each access instead of at the beginning: a block is parsed once and read many times.

use std::sync::atomic::AtomicU32;

use super::layout::Layout;
use super::{
    FLAG_HEAD_LENS, FLAG_TAIL_OFFSETS, FLAG_TOMBSTONES, FLAG_VALUE_OFFSETS, FLAG_WIDE, HEAD_BYTES, HEADER_BYTES,
};
use crate::base::slots::Buf;
use crate::base::{Kind, SeqNo};

/// A decoded block: its bytes and where the columns start. Immutable.
pub struct Block {
    data: Buf,
    at: Layout,
    /// Values that hold it; see `super::super::pin`.
    pins: AtomicU32,
}

/// Where a row's value lies in the block's bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ValueRange {
    pub start: u32,
    pub len: u32,
}

impl Block {
    /// Checks the structure of `data` and takes it over. The error says what is wrong.
    pub fn parse(data: impl Into<Buf>) -> Result<Block, &'static str> {
        let data = data.into();
        let block = Block { at: Layout::of(&data)?, data, pins: AtomicU32::new(0) };
        block.at.check_offsets(&block.data)?;
        let (rows, all_tails) = (block.at.rows, block.at.values - block.at.tails);
        if block.at.flags & FLAG_HEAD_LENS != 0 {
            let lens = &block.data[block.at.head_lens as usize..][..rows as usize];
            if lens.iter().any(|&len| usize::from(len) > HEAD_BYTES) {
                return Err("head longer than 8 bytes");
            }
            if all_tails > 0 && (0..rows).any(|row| lens[row as usize] < 8 && block.tail_range(row).1 > 0) {
                return Err("tail after a short head");
            }
        } else if usize::from(block.at.head_len) < HEAD_BYTES && all_tails > 0 {
            return Err("tail after a short head");
        }
        Ok(block)
    }

    /// Number of rows; at least one.
    #[inline]
    pub fn rows(&self) -> usize {
        self.at.rows as usize
    }

    /// The memory that it lies in.
    pub(in crate::sst) fn data(&self) -> &Buf {
        &self.data
    }

    /// The same in other memory, held by no value.
    pub(in crate::sst) fn copied(&self) -> Block {
        Block { data: Buf::from(&self.data[..]), at: self.at, pins: AtomicU32::new(0) }
    }

    /// The number of values that hold it.
    pub(in crate::sst) fn pins(&self) -> &AtomicU32 {
        &self.pins
    }

    /// Greatest sequence number in the block.
    #[inline]
    pub fn newest(&self) -> SeqNo {
        SeqNo(self.at.newest)
    }

    /// True if all rows have one sequence number.
    #[inline]
    pub(super) fn has_one_seq(&self) -> bool {
        self.at.seq_width == 0
    }

    /// True if any row is a tombstone.
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        self.at.flags & FLAG_TOMBSTONES != 0
    }

    /// Memory the block occupies, in bytes.
    pub fn charge(&self) -> usize {
        size_of::<Block>() + 2 * size_of::<usize>() + self.data.charge()
    }

    /// The common prefix of all keys.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        &self.data[HEADER_BYTES..HEADER_BYTES + self.at.prefix_len as usize]
    }

    /// The block's bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// Reads `N` bytes at `at`.
    ///
    /// # Safety
    /// `at + N <= self.data.len()`.
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        debug_assert!(at + N <= self.data.len());
        // SAFETY: in bounds as the caller promises; byte arrays have no alignment.
        unsafe { *self.data.as_ptr().add(at).cast::<[u8; N]>() }
    }

    /// The head of a row as an integer that orders like the key.
    ///
    /// # Safety
    /// `row < self.at.rows`.
    #[inline(always)]
    pub(super) unsafe fn head_unchecked(&self, row: usize) -> u64 {
        // SAFETY: `parse` placed `rows` heads of 8 bytes at `heads` inside the data.
        u64::from_be_bytes(unsafe { self.load(self.at.heads as usize + row * HEAD_BYTES) })
    }

    #[inline]
    pub(super) fn head(&self, row: usize) -> u64 {
        assert!(row < self.at.rows as usize);
        // SAFETY: just checked.
        unsafe { self.head_unchecked(row) }
    }

    /// Entry `row` and the one after it of an offset column.
    ///
    /// # Safety
    /// `row < self.at.rows` and the column is present and starts at `column`.
    #[inline(always)]
    unsafe fn offset_pair(&self, column: u32, row: usize) -> (u32, u32) {
        if self.at.flags & FLAG_WIDE != 0 {
            // SAFETY: the column has rows + 1 entries of 4 bytes inside the data (`parse`).
            let pair = u64::from_le_bytes(unsafe { self.load(column as usize + row * 4) });
            (pair as u32, (pair >> 32) as u32)
        } else {
            // SAFETY: the column has rows + 1 entries of 2 bytes inside the data (`parse`).
            let pair = u32::from_le_bytes(unsafe { self.load(column as usize + row * 2) });
            (pair & 0xffff, pair >> 16)
        }
    }

    #[inline(always)]
    pub(super) fn head_len(&self, row: u32) -> usize {
        if self.at.flags & FLAG_HEAD_LENS != 0 {
            usize::from(self.data[self.at.head_lens as usize + row as usize])
        } else {
            usize::from(self.at.head_len)
        }
    }

    /// Start in `data` and length of a row's tail.
    #[inline(always)]
    fn tail_range(&self, row: u32) -> (usize, usize) {
        assert!(row < self.at.rows);
        if self.at.flags & FLAG_TAIL_OFFSETS != 0 {
            // SAFETY: the row exists and the flag says that the column does.
            let (from, to) = unsafe { self.offset_pair(self.at.tail_offsets, row as usize) };
            ((self.at.tails + from) as usize, (to - from) as usize)
        } else {
            (self.at.tails as usize + row as usize * self.at.tail_len as usize, self.at.tail_len as usize)
        }
    }

    #[inline(always)]
    pub(super) fn tail(&self, row: u32) -> &[u8] {
        let (start, len) = self.tail_range(row);
        // SAFETY: `parse` checked that every tail lies inside the data.
        unsafe { self.data.get_unchecked(start..start + len) }
    }

    #[inline(always)]
    pub(crate) fn value_range(&self, row: u32) -> ValueRange {
        assert!(row < self.at.rows);
        if self.at.flags & FLAG_VALUE_OFFSETS != 0 {
            // SAFETY: the row exists and the flag says that the column does.
            let (from, to) = unsafe { self.offset_pair(self.at.value_offsets, row as usize) };
            ValueRange { start: self.at.values + from, len: to - from }
        } else {
            ValueRange { start: self.at.values + row * self.at.value_len, len: self.at.value_len }
        }
    }

    /// The value of a row. Panics if there is no such row (as do all methods that take a row).
    #[inline]
    pub fn value(&self, row: u32) -> &[u8] {
        let range = self.value_range(row);
        // SAFETY: `parse` checked that every value lies inside the data.
        unsafe { self.data.get_unchecked(range.start as usize..(range.start + range.len) as usize) }
    }

    /// The sequence number of a row.
    #[inline]
    pub fn seq(&self, row: u32) -> SeqNo {
        assert!(row < self.at.rows);
        let column = self.at.seqs as usize;
        let row = row as usize;
        // SAFETY: the row exists and the column has `rows` entries of this width inside the data (`parse`).
        let delta = unsafe {
            match self.at.seq_width {
                0 => 0,
                1 => u64::from(self.load::<1>(column + row)[0]),
                2 => u64::from(u16::from_le_bytes(self.load(column + row * 2))),
                4 => u64::from(u32::from_le_bytes(self.load(column + row * 4))),
                _ => u64::from_le_bytes(self.load(column + row * 8)),
            }
        };
        SeqNo(self.at.seq_base.wrapping_add(delta))
    }

    /// Whether a row puts or deletes.
    #[inline]
    pub fn kind(&self, row: u32) -> Kind {
        assert!(row < self.at.rows);
        if self.at.flags & FLAG_TOMBSTONES != 0
            && self.data[self.at.kinds as usize + (row >> 3) as usize] >> (row & 7) & 1 != 0
        {
            Kind::Delete
        } else {
            Kind::Put
        }
    }

    /// Length of a row's key.
    #[inline]
    pub fn key_len(&self, row: u32) -> usize {
        self.at.prefix_len as usize + self.head_len(row) + self.tail_range(row).1
    }

    /// Appends a row's key to `out`.
    pub fn append_key(&self, row: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(&self.head(row as usize).to_be_bytes()[..self.head_len(row)]);
        out.extend_from_slice(self.tail(row));
    }

    /// Puts the part of a row's key behind the prefix into `buf`, which holds the prefix already; returns the length
    /// of the key.
    #[inline(always)]
    pub(crate) fn fill_key(&self, row: u32, buf: &mut Vec<u8>) -> usize {
        let at = self.at.prefix_len as usize;
        let (tail, tail_len) = self.tail_range(row);
        let need = at + HEAD_BYTES + tail_len;
        if buf.len() < need {
            buf.resize(need.next_power_of_two().max(64), 0);
        }
        // A whole head is stored even if the key is shorter: a constant-size store is cheaper than an exact one.
        let head = self.at.heads as usize + row as usize * HEAD_BYTES;
        // SAFETY: `tail_range` checked the row, so head and tail lie inside the data (`parse`); `buf` is a different
        // allocation and has room for `need` bytes (above).
        unsafe {
            let to = buf.as_mut_ptr().add(at);
            let data = self.data.as_ptr();
            std::ptr::copy_nonoverlapping(data.add(head), to, HEAD_BYTES);
            if tail_len > 0 {
                std::ptr::copy_nonoverlapping(data.add(tail), to.add(HEAD_BYTES), tail_len);
            }
        }
        at + self.head_len(row) + tail_len
    }
}
