//! The bytes of a block in an order that compresses better, and back.
//!
//! A general compressor looks for repeated strings and for bytes that are frequent. The columns of a block have neither:
//! neighbouring keys differ in their last bytes only, offsets rise by what the rows are long, and the fields of a row stand
//! a row's length apart. So, as array formats do (Blosc's and HDF5's shuffle, Parquet's byte stream split), numbers are
//! replaced by their differences and then put down byte by byte: the lowest byte of all of them, the next one of all, and so
//! on. Of rows in the strict sense, tails and values, the first bytes of all are put together, then the second ones, as far
//! as the shortest reaches; what is left of each follows.
//!
//! Rows of numbers, codes and short texts gain a fifth, long texts of varying lengths lose: whether rows are shuffled is
//! decided by trial ([`super::super::block_compressor`]).
//!
//! # Format (exact bytes in docs/develop/format/sst.md)
//!
//! Sections and their lengths are those of the [block](super). Header, prefix, head lengths and kinds stay as they are.
//!
//! # Invariants
//!
//! `unshuffle` undoes `shuffle`, never reads or writes outside its slices, and refuses what no `shuffle` can have made.
//!
//! # Rejected
//!
//! Blocks that lie shuffled in memory too: each access to a row would pay what now one unpacking does. Rows cut into their
//! columns by type: the engine would have to know them.

use super::{FLAG_TAIL_OFFSETS, FLAG_VALUE_OFFSETS, HEAD_BYTES, Layout};

/// Which sections are put into another order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sst) enum Shuffle {
    /// The columns of numbers: heads, offsets, sequence numbers.
    Columns,
    /// Tails and values as well.
    Rows,
}

/// Puts the bytes of `block`, shuffled, in place of what is in `out`. The error says what is wrong with the block.
pub(in crate::sst) fn shuffle(block: &[u8], what: Shuffle, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let at = Layout::of(block)?;
    at.check_offsets(block)?;
    let part = |from: u32, to: u32| &block[from as usize..to as usize];
    out.clear();
    out.resize(block.len(), 0);
    let mut out = Sections(out);
    out.copy(part(0, at.heads));
    split::<HEAD_BYTES>(part(at.heads, at.head_lens), u64::from_be_bytes, out.next(at.head_lens - at.heads));
    out.copy(part(at.head_lens, at.tail_offsets));
    for (from, to, width) in number_columns(&at) {
        let split = match width {
            1 => split::<1>,
            2 => split::<2>,
            4 => split::<4>,
            _ => split::<8>,
        };
        split(part(from, to), u64::from_le_bytes, out.next(to - from));
    }
    out.copy(part(at.kinds, at.tails));
    for section in row_sections(&at) {
        let (from, to) = (section.from, section.to);
        match what {
            Shuffle::Columns => out.copy(part(from, to)),
            Shuffle::Rows => section.starts(block).split(part(from, to), out.next(to - from)),
        }
    }
    Ok(())
}

/// Undoes [`shuffle`] into `block`, which must be as long as `shuffled`. The error says what is wrong with the bytes.
pub(in crate::sst) fn unshuffle(shuffled: &[u8], what: Shuffle, block: &mut [u8]) -> Result<(), &'static str> {
    let at = Layout::of(shuffled)?;
    if block.len() != shuffled.len() {
        return Err("shuffled block of another length");
    }
    let part = |from: u32, to: u32| &shuffled[from as usize..to as usize];
    let (columns, rows) = block.split_at_mut(at.tails as usize);
    let mut out = Sections(columns);
    out.copy(part(0, at.heads));
    join::<HEAD_BYTES>(part(at.heads, at.head_lens), u64::to_be_bytes, out.next(at.head_lens - at.heads));
    out.copy(part(at.head_lens, at.tail_offsets));
    for (from, to, width) in number_columns(&at) {
        let join = match width {
            1 => join::<1>,
            2 => join::<2>,
            4 => join::<4>,
            _ => join::<8>,
        };
        join(part(from, to), u64::to_le_bytes, out.next(to - from));
    }
    out.copy(part(at.kinds, at.tails));
    at.check_offsets(columns)?;
    let mut out = Sections(rows);
    for section in row_sections(&at) {
        let (from, to) = (section.from, section.to);
        match what {
            Shuffle::Columns => out.copy(part(from, to)),
            Shuffle::Rows => section.starts(columns).join(part(from, to), out.next(to - from)),
        }
    }
    Ok(())
}

/// Start, end and width of the columns of numbers behind the heads.
fn number_columns(at: &Layout) -> [(u32, u32, usize); 3] {
    [
        (at.tail_offsets, at.value_offsets, at.offset_width()),
        (at.value_offsets, at.seqs, at.offset_width()),
        (at.seqs, at.kinds, usize::from(at.seq_width)),
    ]
}

/// A buffer that is filled section by section.
struct Sections<'a>(&'a mut [u8]);

impl<'a> Sections<'a> {
    fn next(&mut self, len: u32) -> &'a mut [u8] {
        let (next, rest) = std::mem::take(&mut self.0).split_at_mut(len as usize);
        self.0 = rest;
        next
    }

    fn copy(&mut self, section: &[u8]) {
        self.next(section.len() as u32).copy_from_slice(section);
    }
}

/// Writes numbers of `W` bytes as differences, plane by plane, the lowest bytes first.
fn split<const W: usize>(column: &[u8], number: fn([u8; 8]) -> u64, planes: &mut [u8]) {
    let n = column.len() / W;
    let mut before = 0u64;
    for (i, bytes) in column.chunks_exact(W).enumerate() {
        let mut whole = [0; 8];
        whole[..W].copy_from_slice(bytes);
        let value = number(whole);
        let difference = value.wrapping_sub(before).to_le_bytes();
        for (plane, &byte) in difference[..W].iter().enumerate() {
            planes[plane * n + i] = byte;
        }
        before = value;
    }
}

/// Undoes [`split`].
fn join<const W: usize>(planes: &[u8], bytes: fn(u64) -> [u8; 8], column: &mut [u8]) {
    let n = column.len() / W;
    let mut before = 0u64;
    for (i, out) in column.chunks_exact_mut(W).enumerate() {
        let mut difference = [0; 8];
        for (plane, byte) in difference[..W].iter_mut().enumerate() {
            *byte = planes[plane * n + i];
        }
        before = before.wrapping_add(u64::from_le_bytes(difference));
        out.copy_from_slice(&bytes(before)[..W]);
    }
}

/// Side of the squares that rows are turned by: a byte at a time would take as long as zstd.
const TILE: usize = 8;

/// Byte c of word r becomes byte r of word c: in three rounds halves, quarters, eighths change places. Written out, as a loop
/// would keep the words in memory.
#[inline(always)]
fn transpose(mut words: [u64; TILE]) -> [u64; TILE] {
    let mut swap = |low: usize, high: usize, mask: u64| {
        let shift = 8 * (high - low);
        let changed = (words[low] >> shift ^ words[high]) & mask;
        words[high] ^= changed;
        words[low] ^= changed << shift;
    };
    let halves = 0x0000_0000_ffff_ffff;
    swap(0, 4, halves);
    swap(1, 5, halves);
    swap(2, 6, halves);
    swap(3, 7, halves);
    let quarters = 0x0000_ffff_0000_ffff;
    swap(0, 2, quarters);
    swap(1, 3, quarters);
    swap(4, 6, quarters);
    swap(5, 7, quarters);
    let eighths = 0x00ff_00ff_00ff_00ff;
    swap(0, 1, eighths);
    swap(2, 3, eighths);
    swap(4, 5, eighths);
    swap(6, 7, eighths);
    words
}

/// The word at `at`.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; TILE];
    word.copy_from_slice(&bytes[at..at + TILE]);
    u64::from_le_bytes(word)
}

/// Tails or values of a block.
struct RowSection {
    from: u32,
    to: u32,
    rows: usize,
    /// Start and width of the column of offsets, or the length of every row.
    offsets: Option<(usize, usize)>,
    len: usize,
}

fn row_sections(at: &Layout) -> [RowSection; 2] {
    let offsets = |flag: u8, column: u32| (at.flags & flag != 0).then_some((column as usize, at.offset_width()));
    let rows = at.rows as usize;
    let end = at.values + if at.flags & FLAG_VALUE_OFFSETS != 0 { at.value_len } else { at.rows * at.value_len };
    let (tails, values) = (offsets(FLAG_TAIL_OFFSETS, at.tail_offsets), offsets(FLAG_VALUE_OFFSETS, at.value_offsets));
    [
        RowSection { from: at.tails, to: at.values, rows, offsets: tails, len: at.tail_len as usize },
        RowSection { from: at.values, to: end, rows, offsets: values, len: at.value_len as usize },
    ]
}

impl RowSection {
    /// Where the rows start, given the block's bytes up to its tails, with offsets that were checked.
    fn starts(&self, columns: &[u8]) -> Starts {
        let of = |row: usize| match self.offsets {
            Some((column, 4)) => {
                let at = column + row * 4;
                u32::from_le_bytes([columns[at], columns[at + 1], columns[at + 2], columns[at + 3]])
            }
            Some((column, _)) => {
                let at = column + row * 2;
                u32::from(u16::from_le_bytes([columns[at], columns[at + 1]]))
            }
            None => (row * self.len) as u32,
        };
        Starts((0..=self.rows).map(of).collect())
    }
}

/// Starts of the rows of a section, and the end of the last.
struct Starts(Vec<u32>);

impl Starts {
    fn rows(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.0.windows(2).map(|pair| pair[0] as usize..pair[1] as usize)
    }

    /// Number of rows, and the length of the shortest.
    fn planes(&self) -> (usize, usize) {
        (self.0.len() - 1, self.rows().map(|row| row.len()).min().unwrap_or(0))
    }

    fn split(&self, section: &[u8], out: &mut [u8]) {
        let (n, least) = self.planes();
        let (planes, mut rest) = out.split_at_mut(n * least);
        for (first, starts) in self.tiled_rows() {
            for column in (0..least - least % TILE).step_by(TILE) {
                let words = transpose(std::array::from_fn(|i| word(section, starts[i] + column)));
                for (i, word) in words.iter().enumerate() {
                    planes[(column + i) * n + first..][..TILE].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        for (i, row) in self.rows().enumerate() {
            let (first, last) = section[row].split_at(least);
            let done = self.tiled_columns(i, least);
            for (plane, byte) in planes.iter_mut().skip(done * n + i).step_by(n).zip(&first[done..]) {
                *plane = *byte;
            }
            let (to, behind) = rest.split_at_mut(last.len());
            to.copy_from_slice(last);
            rest = behind;
        }
    }

    fn join(&self, shuffled: &[u8], section: &mut [u8]) {
        let (n, least) = self.planes();
        let (planes, mut rest) = shuffled.split_at(n * least);
        for (first, starts) in self.tiled_rows() {
            for column in (0..least - least % TILE).step_by(TILE) {
                let words = transpose(std::array::from_fn(|i| word(planes, (column + i) * n + first)));
                for (start, word) in starts.iter().zip(words) {
                    section[start + column..][..TILE].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        for (i, row) in self.rows().enumerate() {
            let (first, last) = section[row].split_at_mut(least);
            let done = self.tiled_columns(i, least);
            for (plane, byte) in planes.iter().skip(done * n + i).step_by(n).zip(&mut first[done..]) {
                *byte = *plane;
            }
            let (from, behind) = rest.split_at(last.len());
            last.copy_from_slice(from);
            rest = behind;
        }
    }

    /// Rows that are turned by tiles: the first of each tile, and where its rows start.
    fn tiled_rows(&self) -> impl Iterator<Item = (usize, [usize; TILE])> {
        let rows = self.0.len() - 1;
        self.0[..rows]
            .chunks_exact(TILE)
            .enumerate()
            .map(|(tile, starts)| (tile * TILE, std::array::from_fn(|i| starts[i] as usize)))
    }

    /// Bytes at the beginning of a row that tiles have turned, if the shortest row has `least`.
    fn tiled_columns(&self, row: usize, least: usize) -> usize {
        let rows = self.0.len() - 1;
        if row < rows - rows % TILE { least - least % TILE } else { 0 }
    }
}
