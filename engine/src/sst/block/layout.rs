//! Where the sections of a block begin, from its header.
//!
//! Reading a block and putting its columns into another order ([`mod@super::shuffle`]) both start here.
//!
//! # Invariants
//!
//! The sections of a `Layout` lie inside the bytes that it was made of and fill them exactly.

use super::{
    FLAG_HEAD_LENS, FLAG_TAIL_OFFSETS, FLAG_TOMBSTONES, FLAG_VALUE_OFFSETS, FLAG_WIDE, FLAGS_KNOWN, HEAD_BYTES,
    HEADER_BYTES,
};

/// The header of a block and the starts of its sections. An absent column starts where the next one does.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub rows: u32,
    pub prefix_len: u32,
    pub flags: u8,
    pub seq_width: u8,
    /// Length of every head (without `FLAG_HEAD_LENS`).
    pub head_len: u8,
    /// Length of every tail, or of all together with the column of offsets.
    pub tail_len: u32,
    /// The same of the values.
    pub value_len: u32,
    pub heads: u32,
    pub head_lens: u32,
    pub tail_offsets: u32,
    pub value_offsets: u32,
    pub seqs: u32,
    pub kinds: u32,
    pub tails: u32,
    pub values: u32,
    pub seq_base: u64,
    pub newest: u64,
}

impl Layout {
    /// Reads the header of a block of these bytes. The error says what is wrong.
    pub fn of(bytes: &[u8]) -> Result<Layout, &'static str> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err("block shorter than its header");
        };
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes.len() > u32::MAX as usize {
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
        if all_tails > bytes.len() as u64 || all_values > bytes.len() as u64 {
            return Err("rows longer than the block");
        }
        let values = tails + all_tails;
        if values + all_values != bytes.len() as u64 {
            return Err("sections do not fill the block");
        }
        Ok(Layout {
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
        })
    }

    /// Width in bytes of an offset.
    pub fn offset_width(&self) -> usize {
        if self.flags & FLAG_WIDE != 0 { 4 } else { 2 }
    }

    /// Checks that the columns of offsets in the block's bytes rise from 0 to the ends of their sections.
    pub fn check_offsets(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let rises = |from: u32, to: u32, end: u32| {
            let column = &bytes[from as usize..to as usize];
            let (first, last, rises) = if self.flags & FLAG_WIDE != 0 {
                rising(column.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])))
            } else {
                rising(column.chunks_exact(2).map(|c| u32::from(u16::from_le_bytes([c[0], c[1]]))))
            };
            first == 0 && last == end && rises
        };
        let tails = self.flags & FLAG_TAIL_OFFSETS == 0 || rises(self.tail_offsets, self.value_offsets, self.tail_len);
        let values = self.flags & FLAG_VALUE_OFFSETS == 0 || rises(self.value_offsets, self.seqs, self.value_len);
        if tails && values { Ok(()) } else { Err("offsets out of order") }
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
