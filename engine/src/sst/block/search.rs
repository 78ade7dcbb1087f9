//! Positions of keys in a block.
//!
//! Heads are compared first, as integers, a few cache lines for the whole block; tails only among equal heads. All versions
//! of a key stand together, the newest first, so the first row at or above a key is its newest version, and what is wanted
//! from there is mostly near.
//!
//! # Rejected
//!
//! A binary search over the heads: each of its loads waits for the one before (see `lower_head`).

use std::cmp::Ordering;

use super::{Block, HEAD_BYTES};
use crate::base::SeqNo;

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

impl Block {
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
        let (mut base, mut size) = (0usize, self.rows());
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
        if self.has_one_seq() || next >= self.rows() || self.head(next) != self.head(row as usize) {
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
