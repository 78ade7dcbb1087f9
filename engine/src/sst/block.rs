//! The sorted block: rows of (user key, sequence number, kind, value) in internal order, any of them in constant time.
//!
//! # Format (all integers little-endian except the heads; exact bytes in docs/format/sst.md)
//!
//! ```text
//! header 36 B | prefix | heads 8 B each | head lengths | tail offsets | value offsets | sequences | kinds | tails | values
//! ```
//!
//! A key is prefix (common to the block) + head (the next up to 8 bytes) + tail (the rest). A head is stored as 8
//! bytes, padded with zeros, so that as a big-endian integer it orders like the key: nearly every comparison is one
//! integer comparison on a dense array. Keys with equal heads are told apart by (head length, tail). The columns between
//! heads and tails are absent where a number in the header says the same: all heads of one length, all tails or all
//! values of one length, all versions of one sequence number, no tombstone.
//!
//! # Invariants
//!
//! `Block::parse` checks the structure once: all sections lie inside the bytes and fill them exactly, offsets never
//! decrease and end at the end of their section, a tail follows a full head only. So no access to a row can reach
//! outside the bytes, whatever they are. Row order is not checked on load (the checksum vouches for it) and a wrong
//! order can only give wrong answers, not faults; `Table::verify` checks it.
//!
//! # Rejected
//!
//! Delta-coded keys with restart points: stepping backwards and random access cost a re-decode of the chain. Keys whole
//! and next to their values: every probe of a search would touch a cold cache line.

use std::cmp::Ordering;

use crate::base::slots::Buf;
use crate::base::{Kind, SeqNo};

pub(crate) const HEADER_BYTES: usize = 36;
pub(crate) const HEAD_BYTES: usize = 8;

pub(crate) const FLAG_TOMBSTONES: u8 = 1;
pub(crate) const FLAG_HEAD_LENS: u8 = 2;
pub(crate) const FLAG_TAIL_OFFSETS: u8 = 4;
pub(crate) const FLAG_VALUE_OFFSETS: u8 = 8;
pub(crate) const FLAG_WIDE: u8 = 16;
const FLAGS_KNOWN: u8 = 31;

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

/// A key cut against a block's prefix, ready for comparisons with rows.
#[derive(Clone, Copy)]
struct Cut<'a> {
    head: u64,
    head_len: usize,
    tail: &'a [u8],
}

impl<'a> Cut<'a> {
    /// Cuts `key` behind its first `prefix` bytes, which it has.
    #[inline(always)]
    fn new(key: &'a [u8], prefix: usize) -> Cut<'a> {
        let rest = &key[prefix..];
        if let Some((head, tail)) = rest.split_first_chunk::<HEAD_BYTES>() {
            return Cut { head: u64::from_be_bytes(*head), head_len: HEAD_BYTES, tail };
        }
        let head = if let Some(last) = key.last_chunk::<HEAD_BYTES>() {
            // Drops the bytes before `rest` off the last eight; faster than a copy of unknown length.
            u64::from_be_bytes(*last).checked_shl(8 * (HEAD_BYTES - rest.len()) as u32).unwrap_or(0)
        } else {
            let mut head = [0; HEAD_BYTES];
            head[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(head)
        };
        Cut { head, head_len: rest.len(), tail: &[] }
    }
}

/// Equality of two slices of one length, for short ones: cheaper than a call of the C library.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    fn word(bytes: &[u8], at: usize) -> Option<[u8; 8]> {
        bytes.get(at..)?.first_chunk().copied()
    }
    let n = a.len();
    if n < 8 {
        return a.iter().zip(b).all(|(a, b)| a == b);
    }
    let mut at = 0;
    while at + 8 < n {
        if word(a, at) != word(b, at) {
            return false;
        }
        at += 8;
    }
    word(a, n - 8) == word(b, n - 8)
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
    unsafe fn head_unchecked(&self, row: usize) -> u64 {
        // SAFETY: `parse` placed `rows` heads of 8 bytes at `heads` inside the data.
        u64::from_be_bytes(unsafe { self.load(self.heads as usize + row * HEAD_BYTES) })
    }

    #[inline]
    fn head(&self, row: usize) -> u64 {
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
    fn head_len(&self, row: u32) -> usize {
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
    fn tail(&self, row: u32) -> &[u8] {
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

    /// Splits `key` at the block's prefix; `Err` gives the position of all keys relative to it.
    #[inline(always)]
    fn cut<'k>(&self, key: &'k [u8]) -> Result<Cut<'k>, usize> {
        let prefix = self.prefix();
        if key.len() >= prefix.len() && same(&key[..prefix.len()], prefix) {
            return Ok(Cut::new(key, prefix.len()));
        }
        // A proper prefix of the block's prefix comes before all of the block, as `<` has it.
        Err(if key < prefix { 0 } else { self.rows() })
    }

    /// First row whose head is `>= head`.
    ///
    /// Counts smaller ones among seven evenly spaced heads, then goes on in the stretch that leaves, until it can count
    /// in all of it. Counting needs no branch that depends on the data, and its loads do not depend on each other: on
    /// cold memory a block of some 150 rows costs two waits, where a binary search has four or five in a row.
    #[inline(always)]
    fn lower_head(&self, head: u64) -> usize {
        const COUNTED: usize = 24;
        let (mut base, mut size) = (0usize, self.rows as usize);
        while size > COUNTED {
            let stride = size.div_ceil(8);
            let mut less = 0;
            for stretch in 1..size.div_ceil(stride) {
                // SAFETY: the last row of a stretch that is not the last one: below base + size <= rows.
                less += usize::from(unsafe { self.head_unchecked(base + stretch * stride - 1) } < head);
            }
            base += less * stride;
            size = stride.min(size - less * stride);
        }
        let mut less = 0;
        for row in base..base + size {
            // SAFETY: base + size <= rows.
            less += usize::from(unsafe { self.head_unchecked(row) } < head);
        }
        base + less
    }

    /// Order of a row against a key with the same head.
    #[inline(always)]
    fn compare_equal_heads(&self, row: usize, key: Cut<'_>) -> Ordering {
        let row = row as u32;
        let order = self.head_len(row).cmp(&key.head_len);
        let tail = self.tail(row);
        if order.is_ne() || (tail.is_empty() && key.tail.is_empty()) {
            // Short keys, the most frequent ones, end here without a call of the C library.
            return order;
        }
        tail.cmp(key.tail)
    }

    /// First row with key `>= key` (that is its newest version), and whether the keys are equal; `rows()` if none.
    #[inline]
    pub fn lower_bound(&self, key: &[u8]) -> (usize, bool) {
        let cut = match self.cut(key) {
            Ok(cut) => cut,
            Err(position) => return (position, false),
        };
        let low = self.lower_head(cut.head);
        let rows = self.rows();
        if low == rows || self.head(low) != cut.head {
            return (low, false);
        }
        match self.compare_equal_heads(low, cut) {
            Ordering::Equal => return (low, true),
            Ordering::Greater => return (low, false),
            Ordering::Less => {}
        }
        // Several rows share the head and the first is below the key: search among them.
        let end = gallop(low + 1, rows, |row| self.head(row) == cut.head);
        let (mut from, mut to) = (low + 1, end);
        while from < to {
            let middle = (from + to) / 2;
            if self.compare_equal_heads(middle, cut) == Ordering::Less {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        (from, from < end && self.compare_equal_heads(from, cut) == Ordering::Equal)
    }

    /// True if the row has exactly this key.
    #[inline]
    pub fn key_is(&self, row: u32, key: &[u8]) -> bool {
        self.cut(key).is_ok_and(|cut| {
            self.head(row as usize) == cut.head && self.compare_equal_heads(row as usize, cut) == Ordering::Equal
        })
    }

    /// True if the row's key is `key` or comes after it.
    #[inline]
    pub fn reaches(&self, row: u32, key: &[u8]) -> bool {
        match self.cut(key) {
            Ok(cut) => match self.head(row as usize).cmp(&cut.head) {
                Ordering::Equal => self.compare_equal_heads(row as usize, cut).is_ge(),
                order => order.is_gt(),
            },
            Err(position) => position == 0,
        }
    }

    /// The first row behind `row` with another key, or `rows()`.
    #[inline]
    pub(crate) fn next_key(&self, row: u32) -> usize {
        let next = row as usize + 1;
        // Where all versions have one number, no two of them have one key.
        if self.seq_width == 0 || next >= self.rows() || self.head(next) != self.head(row as usize) {
            return next;
        }
        self.next_key_behind_head(row)
    }

    fn next_key_behind_head(&self, row: u32) -> usize {
        let (head, head_len, tail) = (self.head(row as usize), self.head_len(row), self.tail(row));
        gallop(row as usize + 1, self.rows(), |at| {
            let row = at as u32;
            self.head(at) == head && self.head_len(row) == head_len && self.tail(row) == tail
        })
    }

    /// From `row`, a version of `key`: the first row that is visible at `read` or has another key (or `rows()`).
    #[inline]
    pub(crate) fn first_visible(&self, row: usize, key: &[u8], read: SeqNo) -> usize {
        if self.newest() <= read || self.seq(row as u32) <= read {
            return row;
        }
        gallop(row + 1, self.rows(), |row| self.seq(row as u32) > read && self.key_is(row as u32, key))
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

/// First position in `from..to` where `holds` fails, for a condition that once failed stays so; near ones are found fast.
#[inline]
fn gallop(from: usize, to: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (from, 1);
    // Everything below `low` holds.
    loop {
        let probe = low + step - 1;
        if probe >= to {
            break;
        }
        if !holds(probe) {
            return partition(low, probe, holds);
        }
        low = probe + 1;
        step *= 2;
    }
    partition(low, to, holds)
}

fn partition(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = (low + high) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Collects rows in internal order and lays them out as a block.
#[derive(Default)]
pub struct BlockBuilder {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    values: Vec<u8>,
    value_ends: Vec<usize>,
    seqs: Vec<u64>,
    tombstones: Vec<bool>,
    // Common prefix of all keys so far.
    shared: usize,
    has_seq: bool,
}

impl BlockBuilder {
    /// Appends a row, which must follow the last one in internal order (the table writer checks it).
    pub fn add(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) {
        self.shared = self.shared_with(key);
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len());
        self.values.extend_from_slice(value);
        self.value_ends.push(self.values.len());
        self.seqs.push(seq.0);
        self.has_seq |= seq != SeqNo::ZERO;
        self.tombstones.push(kind == Kind::Delete);
    }

    fn shared_with(&self, key: &[u8]) -> usize {
        let Some(&first_end) = self.key_ends.first() else {
            // A prefix length is two bytes in the format.
            return key.len().min(usize::from(u16::MAX));
        };
        let first = &self.keys[..first_end];
        first[..self.shared].iter().zip(key).take_while(|(a, b)| a == b).count()
    }

    /// About how large the block would be with this row added, in bytes.
    pub fn size_with(&self, key: &[u8], value: &[u8], seq: SeqNo) -> usize {
        let rows = self.rows() + 1;
        let shared = self.shared_with(key);
        let rest = (self.keys.len() + key.len()).saturating_sub(rows * shared);
        let seqs = if self.has_seq || seq != SeqNo::ZERO { 4 } else { 0 };
        HEADER_BYTES + shared + rest.max(rows * HEAD_BYTES) + self.values.len() + value.len() + rows * (4 + seqs)
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.key_ends.len()
    }

    /// True if nothing was added since the start or the last `finish`.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// The key added last; empty if there is none.
    pub fn last_key(&self) -> &[u8] {
        let start = self.key_ends.len().checked_sub(2).map_or(0, |i| self.key_ends[i]);
        &self.keys[start..]
    }

    fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.key_ends[row - 1] };
        &self.keys[start..self.key_ends[row]]
    }

    /// Appends the block to `out` and starts over. There must be a row.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let rows = self.rows();
        let rest = |row: usize| &self.key(row)[self.shared..];
        let head_len = |row: usize| rest(row).len().min(HEAD_BYTES);
        let tail = |row: usize| rest(row).get(HEAD_BYTES..).unwrap_or(&[]);
        let value_len = |row: usize| self.value_ends[row] - if row == 0 { 0 } else { self.value_ends[row - 1] };

        let one_head_len = (1..rows).all(|row| head_len(row) == head_len(0));
        let one_tail_len = (1..rows).all(|row| tail(row).len() == tail(0).len());
        let one_value_len = (1..rows).all(|row| value_len(row) == value_len(0));
        let all_tails: usize = (0..rows).map(|row| tail(row).len()).sum();
        let all_values = self.values.len();
        let has_tombstones = self.tombstones.iter().any(|&t| t);
        let wide = (!one_tail_len && all_tails > usize::from(u16::MAX))
            || (!one_value_len && all_values > usize::from(u16::MAX));
        let base = self.seqs.iter().copied().min().unwrap_or(0);
        let newest = self.seqs.iter().copied().max().unwrap_or(0);
        let seq_width = match newest - base {
            0 => 0u8,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = flag(has_tombstones, FLAG_TOMBSTONES)
            | flag(!one_head_len, FLAG_HEAD_LENS)
            | flag(!one_tail_len, FLAG_TAIL_OFFSETS)
            | flag(!one_value_len, FLAG_VALUE_OFFSETS)
            | flag(wide, FLAG_WIDE);

        out.reserve(HEADER_BYTES + self.keys.len() + rows * 25 + all_values);
        out.extend_from_slice(&(rows as u32).to_le_bytes());
        out.extend_from_slice(&(self.shared as u16).to_le_bytes());
        out.push(flags);
        out.push(seq_width);
        out.extend_from_slice(&base.to_le_bytes());
        out.extend_from_slice(&newest.to_le_bytes());
        out.push(if one_head_len { head_len(0) as u8 } else { 0 });
        out.extend_from_slice(&[0; 3]);
        let tail_field = if one_tail_len { tail(0).len() } else { all_tails };
        let value_field = if one_value_len { value_len(0) } else { all_values };
        out.extend_from_slice(&(tail_field as u32).to_le_bytes());
        out.extend_from_slice(&(value_field as u32).to_le_bytes());
        out.extend_from_slice(&self.key(0)[..self.shared]);
        for row in 0..rows {
            let mut head = [0; HEAD_BYTES];
            head[..head_len(row)].copy_from_slice(&rest(row)[..head_len(row)]);
            out.extend_from_slice(&head);
        }
        if !one_head_len {
            out.extend((0..rows).map(|row| head_len(row) as u8));
        }
        let put_offset = |out: &mut Vec<u8>, offset: usize| {
            if wide {
                out.extend_from_slice(&(offset as u32).to_le_bytes());
            } else {
                out.extend_from_slice(&(offset as u16).to_le_bytes());
            }
        };
        if !one_tail_len {
            let mut end = 0;
            put_offset(out, 0);
            for row in 0..rows {
                end += tail(row).len();
                put_offset(out, end);
            }
        }
        if !one_value_len {
            put_offset(out, 0);
            self.value_ends.iter().for_each(|&end| put_offset(out, end));
        }
        for &seq in &self.seqs {
            out.extend_from_slice(&(seq - base).to_le_bytes()[..usize::from(seq_width)]);
        }
        if has_tombstones {
            for eight in self.tombstones.chunks(8) {
                out.push(eight.iter().enumerate().fold(0, |bits, (i, &t)| bits | u8::from(t) << i));
            }
        }
        for row in 0..rows {
            out.extend_from_slice(tail(row));
        }
        out.extend_from_slice(&self.values);
        self.clear();
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        /// One huge value must not keep its memory for the rest of the file.
        const KEEP: usize = 1 << 20;
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.values.shrink_to(KEEP);
        self.value_ends.clear();
        self.seqs.clear();
        self.tombstones.clear();
        self.shared = 0;
        self.has_seq = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Row = (Vec<u8>, u64, bool, Vec<u8>);

    fn build(rows: &[Row]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (key, seq, delete, value) in rows {
            let kind = if *delete { Kind::Delete } else { Kind::Put };
            builder.add(key, SeqNo(*seq), kind, value);
        }
        let mut out = Vec::new();
        builder.finish(&mut out);
        assert!(builder.is_empty());
        out
    }

    fn row_of(block: &Block, row: u32) -> Row {
        let mut key = Vec::new();
        block.append_key(row, &mut key);
        assert_eq!(key.len(), block.key_len(row));
        (key, block.seq(row).0, block.kind(row) == Kind::Delete, block.value(row).to_vec())
    }

    /// Rows in internal order without duplicates of (key, seq).
    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let key = (0..3usize, proptest::collection::vec(0..3u8, 0..14)).prop_map(|(shared, tail)| {
            let mut key = vec![0, 0, 0, 7];
            key.extend_from_slice(&b"common/longer"[..[0, 6, 13][shared]]);
            key.extend_from_slice(&tail);
            key
        });
        let seq = prop_oneof![Just(0u64), 0..5u64, 0..100_000u64, 0..(1u64 << 56)];
        let value = proptest::collection::vec(any::<u8>(), 0..20);
        let row = (key, seq, proptest::bool::weighted(0.2), value);
        (proptest::collection::vec(row, 1..80), any::<bool>(), any::<bool>()).prop_map(|(mut rows, flat, fixed)| {
            for row in &mut rows {
                row.3 = if row.2 { Vec::new() } else { std::mem::take(&mut row.3) };
                if flat {
                    row.1 = 9;
                }
                if fixed {
                    row.0.truncate(4);
                    row.0.extend_from_slice(&row.1.to_be_bytes());
                    row.3 = vec![1; 10];
                    row.2 = false;
                }
            }
            rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            rows.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
            rows
        })
    }

    proptest! {
        #[test]
        fn rows_come_back_and_searches_agree_with_a_list(rows in rows(), probe in proptest::collection::vec(0..4u8, 0..18)) {
            let block = Block::parse(build(&rows).into_boxed_slice()).unwrap();
            prop_assert_eq!(block.rows(), rows.len());
            for (i, row) in rows.iter().enumerate() {
                prop_assert_eq!(&row_of(&block, i as u32), row);
            }
            prop_assert_eq!(block.newest().0, rows.iter().map(|r| r.1).max().unwrap());
            prop_assert_eq!(block.has_tombstones(), rows.iter().any(|r| r.2));
            let mut buf = block.prefix().to_vec();
            for (i, row) in rows.iter().enumerate() {
                let len = block.fill_key(i as u32, &mut buf);
                prop_assert_eq!(&buf[..len], &row.0[..]);
            }
            let mut probes: Vec<Vec<u8>> = vec![probe];
            for row in &rows {
                let mut longer = row.0.clone();
                longer.push(0);
                let mut shorter = row.0.clone();
                shorter.pop();
                probes.extend([row.0.clone(), longer, shorter]);
            }
            for (i, row) in rows.iter().enumerate() {
                let next = rows.iter().position(|r| r.0 > row.0).unwrap_or(rows.len());
                prop_assert_eq!(block.next_key(i as u32), next);
            }
            for key in &probes {
                let expected = rows.partition_point(|r| r.0 < *key);
                let exact = rows.get(expected).is_some_and(|r| r.0 == *key);
                prop_assert_eq!(block.lower_bound(key), (expected, exact));
                for (i, row) in rows.iter().enumerate() {
                    prop_assert_eq!(block.key_is(i as u32, key), row.0 == *key);
                }
                if exact {
                    for read in [0, 3, 9, 50_000, 1 << 55] {
                        let seen = (expected..rows.len()).find(|&i| rows[i].0 != *key || rows[i].1 <= read);
                        prop_assert_eq!(block.first_visible(expected, key, SeqNo(read)), seen.unwrap_or(rows.len()));
                    }
                }
            }
        }

        #[test]
        fn any_bytes_parse_or_are_refused(rows in rows(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let bytes = build(&rows);
            let mut flipped = bytes.clone();
            let at = at.index(bytes.len());
            flipped[at] = byte;
            for broken in [flipped, bytes[..cut.index(bytes.len())].to_vec()] {
                if let Ok(block) = Block::parse(broken.into_boxed_slice()) {
                    for i in 0..block.rows().min(1000) as u32 {
                        row_of(&block, i);
                    }
                    for row in &rows {
                        let (at, exact) = block.lower_bound(&row.0);
                        if exact {
                            block.first_visible(at, &row.0, SeqNo(4));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn header_fields_at_their_extremes_do_not_overflow() {
        let bytes = build(&[(b"abcd".to_vec(), 1, false, b"v".to_vec())]);
        for at in [0, 28, 32] {
            for value in [0u32, 1, 0x7fff_ffff, u32::MAX] {
                for flags in 0..=255u8 {
                    let mut broken = bytes.clone();
                    broken[at..at + 4].copy_from_slice(&value.to_le_bytes());
                    broken[6] = flags;
                    if let Ok(block) = Block::parse(broken.into_boxed_slice()) {
                        row_of(&block, 0);
                    }
                }
            }
        }
    }

    #[test]
    fn large_values_use_wide_offsets() {
        let rows = vec![
            (b"aaaaaaaaaaaaaaaaaaaaab".to_vec(), 5, false, vec![1; 70_000]),
            (b"aaaaaaaaaaaaaaaaaaaaacccccccccccccc".to_vec(), 1 << 40, false, vec![2; 3]),
        ];
        let block = Block::parse(build(&rows).into_boxed_slice()).unwrap();
        assert_eq!((row_of(&block, 0), row_of(&block, 1)), (rows[0].clone(), rows[1].clone()));
    }
}
