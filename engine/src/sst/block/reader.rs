//! A block as it is read: its structure checked once, then each column at hand.
//!
//! # Invariants
//!
//! `Block::parse` refuses bytes of another structure than the [format](super) has. So no access to a row can reach outside
//! the bytes, whatever they are. Row order is not checked on load (the checksum vouches for it) and a wrong order can only
//! give wrong answers, not faults; `Table::verify` checks it.
//!
//! # Rejected
//!
//! Checks at each access instead of at the beginning: a block is parsed once and read many times.

use super::{
    FLAG_HEAD_LENS, FLAG_TAIL_OFFSETS, FLAG_TOMBSTONES, FLAG_VALUE_OFFSETS, FLAG_WIDE, FLAGS_KNOWN, HEAD_BYTES,
    HEADER_BYTES,
};
use crate::base::slots::Buf;
use crate::base::{Kind, SeqNo};

/// A decoded block: its bytes and where the columns start. Immutable.
pub struct Block {
    data: Buf,
    rows: u32,
    prefix_len: u32,
    flags: u8,
    seq_width: u8,
    // Length of every head (without FLAG_HEAD_LENS).
    head_len: u8,
    // Length of every tail / value (without the offset columns).
    tail_len: u32,
    value_len: u32,
    // Starts of the columns in `data`; an absent column has some start that is never used.
    heads: u32,
    head_lens: u32,
    tail_offsets: u32,
    value_offsets: u32,
    seqs: u32,
    kinds: u32,
    tails: u32,
    values: u32,
    seq_base: u64,
    newest: u64,
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
        let Some(header) = data.first_chunk::<HEADER_BYTES>() else {
            return Err("block shorter than its header");
        };
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if data.len() > u32::MAX as usize {
            return Err("block longer than 4 GiB");
        }
        let rows = u32_at(0);
        let prefix_len = u32::from(u16_at(4));
        let flags = header[6];
        let seq_width = header[7];
        let (seq_base, newest) = (u64_at(8), u64_at(16));
        let head_len = header[24];
        let (tail_len, value_len) = (u32_at(28), u32_at(32));
        if rows == 0 {
            return Err("block without rows");
        }
        if flags & !FLAGS_KNOWN != 0 || header[25..28] != [0; 3] {
            return Err("unknown block flags");
        }
        if !matches!(seq_width, 0 | 1 | 2 | 4 | 8) {
            return Err("bad width of the sequence column");
        }
        if usize::from(head_len) > HEAD_BYTES {
            return Err("head longer than 8 bytes");
        }

        // 64-bit sums of 32-bit parts cannot overflow; only the last one need be compared with the length.
        let n = u64::from(rows);
        let offset_width = if flags & FLAG_WIDE != 0 { 4 } else { 2 };
        let offsets = |flag: u8| {
            if flags & flag != 0 { (n + 1) * offset_width } else { 0 }
        };
        let total = |flag: u8, len: u32| {
            if flags & flag != 0 { u64::from(len) } else { n * u64::from(len) }
        };
        let heads = HEADER_BYTES as u64 + u64::from(prefix_len);
        let head_lens = heads + n * HEAD_BYTES as u64;
        let tail_offsets = head_lens + if flags & FLAG_HEAD_LENS != 0 { n } else { 0 };
        let value_offsets = tail_offsets + offsets(FLAG_TAIL_OFFSETS);
        let seqs = value_offsets + offsets(FLAG_VALUE_OFFSETS);
        let kinds = seqs + n * u64::from(seq_width);
        let tails = kinds + if flags & FLAG_TOMBSTONES != 0 { n.div_ceil(8) } else { 0 };
        // The two totals are below 2^64 together only if each is bounded first.
        let (all_tails, all_values) = (total(FLAG_TAIL_OFFSETS, tail_len), total(FLAG_VALUE_OFFSETS, value_len));
        if all_tails > data.len() as u64 || all_values > data.len() as u64 {
            return Err("rows longer than the block");
        }
        let values = tails + all_tails;
        if values + all_values != data.len() as u64 {
            return Err("sections do not fill the block");
        }
        let block = Block {
            rows,
            prefix_len,
            flags,
            seq_width,
            head_len,
            tail_len,
            value_len,
            heads: heads as u32,
            head_lens: head_lens as u32,
            tail_offsets: tail_offsets as u32,
            value_offsets: value_offsets as u32,
            seqs: seqs as u32,
            kinds: kinds as u32,
            tails: tails as u32,
            values: values as u32,
            seq_base,
            newest,
            data,
        };
        if flags & FLAG_TAIL_OFFSETS != 0 {
            block.check_offsets(block.tail_offsets, tail_len)?;
        }
        if flags & FLAG_VALUE_OFFSETS != 0 {
            block.check_offsets(block.value_offsets, value_len)?;
        }
        if flags & FLAG_HEAD_LENS != 0 {
            let lens = &block.data[head_lens as usize..][..rows as usize];
            if lens.iter().any(|&len| usize::from(len) > HEAD_BYTES) {
                return Err("head longer than 8 bytes");
            }
            if all_tails > 0 && (0..rows).any(|row| lens[row as usize] < 8 && block.tail_range(row).1 > 0) {
                return Err("tail after a short head");
            }
        } else if usize::from(head_len) < HEAD_BYTES && all_tails > 0 {
            return Err("tail after a short head");
        }
        Ok(block)
    }

    /// An offset column must rise from 0 to the length of its section.
    fn check_offsets(&self, column: u32, end: u32) -> Result<(), &'static str> {
        let count = self.rows as usize + 1;
        let column = &self.data[column as usize..];
        let (first, last, rises) = if self.flags & FLAG_WIDE != 0 {
            rising(column[..count * 4].chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])))
        } else {
            rising(column[..count * 2].chunks_exact(2).map(|c| u32::from(u16::from_le_bytes([c[0], c[1]]))))
        };
        if first == 0 && last == end && rises { Ok(()) } else { Err("offsets out of order") }
    }

    /// Number of rows; at least one.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Greatest sequence number in the block.
    #[inline]
    pub fn newest(&self) -> SeqNo {
        SeqNo(self.newest)
    }

    /// True if all rows have one sequence number.
    #[inline]
    pub(super) fn has_one_seq(&self) -> bool {
        self.seq_width == 0
    }

    /// True if any row is a tombstone.
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        self.flags & FLAG_TOMBSTONES != 0
    }

    /// Memory the block occupies, in bytes.
    pub fn charge(&self) -> usize {
        size_of::<Block>() + 2 * size_of::<usize>() + self.data.charge()
    }

    /// The common prefix of all keys.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        &self.data[HEADER_BYTES..HEADER_BYTES + self.prefix_len as usize]
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
    /// `row < self.rows`.
    #[inline(always)]
    pub(super) unsafe fn head_unchecked(&self, row: usize) -> u64 {
        // SAFETY: `parse` placed `rows` heads of 8 bytes at `heads` inside the data.
        u64::from_be_bytes(unsafe { self.load(self.heads as usize + row * HEAD_BYTES) })
    }

    #[inline]
    pub(super) fn head(&self, row: usize) -> u64 {
        assert!(row < self.rows as usize);
        // SAFETY: just checked.
        unsafe { self.head_unchecked(row) }
    }

    /// Entry `row` and the one after it of an offset column.
    ///
    /// # Safety
    /// `row < self.rows` and the column is present and starts at `column`.
    #[inline(always)]
    unsafe fn offset_pair(&self, column: u32, row: usize) -> (u32, u32) {
        if self.flags & FLAG_WIDE != 0 {
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
        if self.flags & FLAG_HEAD_LENS != 0 {
            usize::from(self.data[self.head_lens as usize + row as usize])
        } else {
            usize::from(self.head_len)
        }
    }

    /// Start in `data` and length of a row's tail.
    #[inline(always)]
    fn tail_range(&self, row: u32) -> (usize, usize) {
        assert!(row < self.rows);
        if self.flags & FLAG_TAIL_OFFSETS != 0 {
            // SAFETY: the row exists and the flag says that the column does.
            let (from, to) = unsafe { self.offset_pair(self.tail_offsets, row as usize) };
            ((self.tails + from) as usize, (to - from) as usize)
        } else {
            (self.tails as usize + row as usize * self.tail_len as usize, self.tail_len as usize)
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
        assert!(row < self.rows);
        if self.flags & FLAG_VALUE_OFFSETS != 0 {
            // SAFETY: the row exists and the flag says that the column does.
            let (from, to) = unsafe { self.offset_pair(self.value_offsets, row as usize) };
            ValueRange { start: self.values + from, len: to - from }
        } else {
            ValueRange { start: self.values + row * self.value_len, len: self.value_len }
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
        assert!(row < self.rows);
        let column = self.seqs as usize;
        let row = row as usize;
        // SAFETY: the row exists and the column has `rows` entries of this width inside the data (`parse`).
        let delta = unsafe {
            match self.seq_width {
                0 => 0,
                1 => u64::from(self.load::<1>(column + row)[0]),
                2 => u64::from(u16::from_le_bytes(self.load(column + row * 2))),
                4 => u64::from(u32::from_le_bytes(self.load(column + row * 4))),
                _ => u64::from_le_bytes(self.load(column + row * 8)),
            }
        };
        SeqNo(self.seq_base.wrapping_add(delta))
    }

    /// Whether a row puts or deletes.
    #[inline]
    pub fn kind(&self, row: u32) -> Kind {
        assert!(row < self.rows);
        if self.flags & FLAG_TOMBSTONES != 0
            && self.data[self.kinds as usize + (row >> 3) as usize] >> (row & 7) & 1 != 0
        {
            Kind::Delete
        } else {
            Kind::Put
        }
    }

    /// Length of a row's key.
    #[inline]
    pub fn key_len(&self, row: u32) -> usize {
        self.prefix_len as usize + self.head_len(row) + self.tail_range(row).1
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
        let at = self.prefix_len as usize;
        let (tail, tail_len) = self.tail_range(row);
        let need = at + HEAD_BYTES + tail_len;
        if buf.len() < need {
            buf.resize(need.next_power_of_two().max(64), 0);
        }
        // A whole head is stored even if the key is shorter: a constant-size store is cheaper than an exact one.
        let head = self.heads as usize + row as usize * HEAD_BYTES;
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

/// First and last of a sequence and whether it never falls.
fn rising(values: impl Iterator<Item = u32>) -> (u32, u32, bool) {
    let mut first = None;
    let (mut last, mut rises) = (0, true);
    for value in values {
        first.get_or_insert(value);
        rises &= value >= last;
        last = value;
    }
    (first.unwrap_or(0), last, rises)
}
