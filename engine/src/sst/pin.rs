//! Blocks that are held by values which were read without a copy, and how many bytes they are.
//!
//! A value keeps its whole block in memory, also when the cache has given it up. So the bytes of such blocks are counted, each
//! block once however many values lie in it: the block knows its pins, and the first and the last of them move the count. The
//! count is taken off the block cache's budget (`crate::budget`). A block that is still in the cache counts there as well.
//!
//! The count is of the process, as that of large values is, in cells by the block's address: threads that read different
//! blocks seldom meet.
//!
//! Invariant: the count is the sum of the charges of the blocks with a pin, but for those of [`LARGE`] bytes and more, which
//! [`crate::base::slots`] counts.
//!
//! Rejected: a registry of pinned blocks for each store (a lock for each read); the sum over values (a thousand values of one
//! block would count it a thousand times).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::block::Block;
use crate::base::slots::LARGE;

const CELLS: usize = 16;

#[repr(align(128))]
struct Cell(AtomicU64);

static PINNED: [Cell; CELLS] = [const { Cell(AtomicU64::new(0)) }; CELLS];

/// Bytes of the blocks that are pinned now, in the whole process.
pub fn pinned_block_bytes() -> u64 {
    // A block's cell is added to before it is taken from, but each cell is read at another moment.
    PINNED.iter().fold(0u64, |sum, cell| sum.wrapping_add(cell.0.load(Ordering::Relaxed)))
}

/// Holds a block, counted.
pub struct BlockPin(Arc<Block>);

impl BlockPin {
    pub(super) fn new(block: Arc<Block>) -> BlockPin {
        if block.bytes().len() < LARGE && block.pins().fetch_add(1, Ordering::AcqRel) == 0 {
            BlockPin::cell(&block).fetch_add(block.charge() as u64, Ordering::Relaxed);
        }
        BlockPin(block)
    }

    /// What it holds.
    pub(super) fn block(&self) -> &Arc<Block> {
        &self.0
    }

    fn cell(block: &Arc<Block>) -> &'static AtomicU64 {
        &PINNED[(Arc::as_ptr(block).addr() >> 7) % CELLS].0
    }
}

impl Clone for BlockPin {
    fn clone(&self) -> BlockPin {
        BlockPin::new(self.0.clone())
    }
}

impl Drop for BlockPin {
    fn drop(&mut self) {
        let block = &self.0;
        if block.bytes().len() < LARGE && block.pins().fetch_sub(1, Ordering::AcqRel) == 1 {
            BlockPin::cell(block).fetch_sub(block.charge() as u64, Ordering::Relaxed);
        }
    }
}
