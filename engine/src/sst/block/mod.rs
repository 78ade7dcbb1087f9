//! The sorted block: rows of (user key, sequence number, kind, value) in internal order, any of them in constant time.
//!
//! # Format (all integers little-endian except the heads; exact bytes in docs/develop/format/sst.md)
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
//! All sections lie inside the bytes and fill them exactly, offsets never decrease and end at the end of their section, a
//! tail follows a full head only. [`builder`] makes blocks so, [`layout`] and [`reader`] accept no others, [`search`] relies
//! on it and on the order of the rows. On disk the bytes may be [shuffled](mod@shuffle).
//!
//! # Rejected
//!
//! Delta-coded keys with restart points: stepping backwards and random access cost a re-decode of the chain. Keys whole
//! and next to their values: every probe of a search would touch a cold cache line.

mod builder;
mod layout;
mod reader;
mod search;
mod shuffle;
#[cfg(test)]
mod tests;

pub use builder::BlockBuilder;
use layout::Layout;
pub use reader::Block;
pub(crate) use reader::ValueRange;
pub(super) use shuffle::{Shuffle, shuffle, unshuffle};

const HEADER_BYTES: usize = 36;
/// Where the header has the length of the values.
const VALUE_FIELD: usize = 32;
const HEAD_BYTES: usize = 8;

const FLAG_TOMBSTONES: u8 = 1;
const FLAG_HEAD_LENS: u8 = 2;
const FLAG_TAIL_OFFSETS: u8 = 4;
const FLAG_VALUE_OFFSETS: u8 = 8;
const FLAG_WIDE: u8 = 16;
const FLAGS_KNOWN: u8 = 31;
