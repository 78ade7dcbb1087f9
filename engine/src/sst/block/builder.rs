//! A block as it is made: rows are collected, then laid out column by column.
//!
//! Which columns there are follows from the rows: one that a number in the header can stand for is left out. So the layout
//! is only known with the last row, and the size before is an estimate.
//!
//! # Invariant
//!
//! Rows come in internal order; the SST writer checks it.
//!
//! # Rejected
//!
//! Columns that grow as the rows come: the prefix, which all keys are cut by, shrinks with each row.

use super::{
    FLAG_HEAD_LENS, FLAG_TAIL_OFFSETS, FLAG_TOMBSTONES, FLAG_VALUE_OFFSETS, FLAG_WIDE, HEAD_BYTES, HEADER_BYTES,
    VALUE_FIELD,
};
use crate::base::{Kind, SeqNo};

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
    /// Appends a row, which must follow the last one in internal order (the SST writer checks it).
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

    /// All of a block with one row but its value, a put of `value_bytes` bytes, which is to follow.
    pub fn head_of_one(key: &[u8], seq: SeqNo, value_bytes: u32) -> Vec<u8> {
        let (mut block, mut head) = (BlockBuilder::default(), Vec::new());
        block.add(key, seq, Kind::Put, &[]);
        block.finish(&mut head);
        // The one value is the end of the block, and its length a number in the header.
        head[VALUE_FIELD..HEADER_BYTES].copy_from_slice(&value_bytes.to_le_bytes());
        head
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
    pub fn size_with(&self, key: &[u8], value_bytes: usize, seq: SeqNo) -> usize {
        let rows = self.rows() + 1;
        let shared = self.shared_with(key);
        let rest = (self.keys.len() + key.len()).saturating_sub(rows * shared);
        let seqs = if self.has_seq || seq != SeqNo::ZERO { 4 } else { 0 };
        HEADER_BYTES + shared + rest.max(rows * HEAD_BYTES) + self.values.len() + value_bytes + rows * (4 + seqs)
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
