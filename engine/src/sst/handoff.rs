//! Blocks that the estimate of a range has unpacked, for the scan that follows it.
//!
//! A full block cache keeps most blocks in the form they have on disk ([`super::compressed`]), and who reads one unpacks it for
//! itself. A server asks how many rows a range has and then reads it, in one thread: both need the blocks at its ends. So what a
//! thread unpacks for an estimate it holds ([`hold_for_scan`]); its next scan takes what it comes to, and when it ends the rest
//! goes ([`let_go`]).
//!
//! # Invariants
//! A block is given to readers of the SST that it is from and to no other: the thread has a weak reference to it, and as long
//! as there is one nothing else has its address. A thread holds [`MOST`] blocks at most, no large ones, and each counts as pinned.
//!
//! # Rejected
//! The unpacked form in the cache: two to four times the memory, for blocks that are mostly wanted once. And it counted as used
//! often by who looked at it three times for one statement. An open cursor for the scan to go on with: whoever estimates knows
//! nothing of the scan, and the scan sees another state.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::block::Block;
use super::large::LARGE;
use super::pin::BlockPin;
use super::reader::Sst;

/// Blocks of a thread: those at the two ends of a range, in four sorted runs.
const MOST: usize = 8;

/// Threads that hold blocks or may: where there are none, nobody looks.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { holds_on: false, counted: false, blocks: Vec::new() }) };
}

struct Held {
    /// An estimate is under way: what it unpacks is held.
    holds_on: bool,
    /// It is among `THREADS`.
    counted: bool,
    /// With the SST and the offset there.
    blocks: Vec<(Weak<Sst>, u64, BlockPin)>,
}

impl Held {
    fn find(&self, sst: &Sst, offset: u64) -> Option<usize> {
        self.blocks.iter().position(|(of, at, _)| *at == offset && std::ptr::eq(of.as_ptr(), sst))
    }

    fn count(&mut self) {
        let counts = self.holds_on || !self.blocks.is_empty();
        match (self.counted, counts) {
            (false, true) => THREADS.fetch_add(1, Ordering::Relaxed),
            (true, false) => THREADS.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.counted = counts;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.holds_on, self.blocks) = (false, Vec::new());
        self.count();
    }
}

#[inline]
fn nobody_holds() -> bool {
    THREADS.load(Ordering::Relaxed) == 0
}

/// Does what `estimate` does; the thread holds the blocks that it unpacks, in place of those that it held.
pub fn hold_for_scan<R>(estimate: impl FnOnce() -> R) -> R {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                held.holds_on = false;
                held.count();
            });
        }
    }
    HELD.with_borrow_mut(|held| {
        held.blocks.clear();
        held.holds_on = true;
        held.count();
    });
    let _end = End;
    estimate()
}

/// A scan has ended: what was held for it is no longer.
#[inline]
pub fn let_go() {
    if !nobody_holds() {
        // A thread that ends has let go.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if !held.holds_on {
                held.blocks.clear();
                held.count();
            }
        });
    }
}

/// Holds a block that was unpacked, if that is for an estimate.
pub(super) fn offer(sst: &Arc<Sst>, offset: u64, block: &Arc<Block>) {
    if nobody_holds() || block.bytes().len() >= LARGE {
        return;
    }
    HELD.with_borrow_mut(|held| {
        if held.holds_on && held.blocks.len() < MOST {
            held.blocks.push((Arc::downgrade(sst), offset, BlockPin::new(block.clone())));
        }
    });
}

/// A block that the thread holds; not any longer then, but for another estimate.
pub(super) fn take(sst: &Sst, offset: u64) -> Option<Arc<Block>> {
    if nobody_holds() {
        return None;
    }
    HELD.with_borrow_mut(|held| {
        let at = held.find(sst, offset)?;
        if held.holds_on {
            return Some(held.blocks[at].2.block().clone());
        }
        let (.., pin) = held.blocks.swap_remove(at);
        held.count();
        Some(pin.block().clone())
    })
}

/// Looks at a block that the thread holds.
pub(super) fn look_at<R>(sst: &Sst, offset: u64, look: impl FnOnce(&Block) -> R) -> Option<R> {
    if nobody_holds() {
        return None;
    }
    HELD.with_borrow(|held| held.find(sst, offset).map(|at| look(held.blocks[at].2.block())))
}
