//! Large rows that a cursor stands on and has not read.
//!
//! The index has what decides where a large row belongs: its key, which is the separator of its block, its number and the
//! length of its value (docs/develop/format/sst.md). A cursor whose user knows how to [load](crate::iter::VersionIter::load)
//! a value stands on a block without the value, made from that; a step then costs no more than over any other row. Only what is
//! chosen is read, checked against the checksum of its block, and compared with what the index had said.
//!
//! Files that earlier programs wrote do not have it: there the block is read when the cursor comes to it.
//!
//! # Rejected
//!
//! Reading the first bytes of the block, which has one checksum for all: a wrong number would hide another version and never be
//! found. One more block for the head of each large row: another read for whoever wants one row.

use std::sync::Arc;

use super::block::{Block, BlockBuilder};
use super::frame::Handle;
use super::reader::Sst;
use super::{PinnedValue, ReadHints};
use crate::base::codec::Reader;
use crate::base::value::{LargeValue, ValuePlace};
use crate::base::{Kind, Result, SeqNo};

/// Appends to an entry of an index partition what its block is, if that is one large row.
pub(super) fn put_large_row(seq: SeqNo, value_bytes: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&seq.0.to_le_bytes());
    out.extend_from_slice(&value_bytes.to_le_bytes());
}

/// What the index says of a large row.
#[derive(Clone, Copy)]
pub(super) struct LargeRow {
    block: Handle,
    /// The number in the file, whatever the SST is stamped with.
    pub seq: SeqNo,
    pub value_bytes: u32,
}

impl LargeRow {
    /// From what stands in the entry of `block` behind the fields that every entry has.
    pub fn parse(block: Handle, rest: &[u8]) -> Option<LargeRow> {
        let mut reader = Reader::new(rest);
        Some(LargeRow { block, seq: SeqNo(reader.u64()?), value_bytes: reader.u32()? })
    }

    /// The block without its value.
    pub fn head(&self, sst: &Sst, key: &[u8]) -> Result<Arc<Block>> {
        let (mut block, mut head) = (BlockBuilder::default(), Vec::new());
        block.add(key, self.seq, Kind::Put, &[]);
        block.finish(&mut head);
        sst.parse(self.block, head.as_slice().into())
    }

    /// Reads the block, which must be what the index says.
    pub fn read(&self, sst: &Sst, key: &[u8], hints: ReadHints) -> Result<Arc<Block>> {
        let block = match hints.fill_cache {
            true => sst.load_data(self.block, None, true)?,
            false => sst.data_bulk(self.block, None, true, false)?,
        };
        self.check(sst, key, &block)?;
        Ok(block)
    }

    /// Compares a block with what the index says of it.
    pub fn check(&self, sst: &Sst, key: &[u8], block: &Block) -> Result<()> {
        let is_row = block.rows() == 1
            && (block.seq(0), block.kind(0)) == (self.seq, Kind::Put)
            && block.value(0).len() == self.value_bytes as usize
            && block.key_is(0, key);
        if is_row { Ok(()) } else { Err(sst.bad(self.block.offset, "not the large row that the index has here")) }
    }
}

/// The place of a large row's value.
pub(super) struct LargeRowRef {
    pub sst: Arc<Sst>,
    pub row: LargeRow,
    pub key: Vec<u8>,
    pub hints: ReadHints,
}

impl ValuePlace for LargeRowRef {
    fn read(&self) -> Result<LargeValue> {
        let block = self.row.read(&self.sst, &self.key, self.hints)?;
        let is_large = || self.sst.bad(self.row.block.offset, "no large value");
        PinnedValue::new(block, 0).large().ok_or_else(is_large)
    }

    fn value_len(&self) -> usize {
        self.row.value_bytes as usize
    }
}
