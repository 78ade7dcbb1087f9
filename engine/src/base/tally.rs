//! What one thread has done in the engine, counted while somebody asks for it: statistics of one statement.
//!
//! A statement's thread begins counting, calls the engine, and takes what has been counted ([`begin_counting`]). Threads that nobody
//! asks about pay a load and a branch at each place that counts: [`THREADS`] says whether any thread of the process counts.
//!
//! Invariant: what is counted belongs to the thread that did it. A flush or merge that runs meanwhile counts nowhere.
//!
//! Rejected: counters in cursors and transactions (look-ups of blocks are several layers below, and would carry a pointer);
//! thread-local counters that always count (their address is a call in a shared library, for each block).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a thread has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Blocks of SSTs that were looked up: of data, of indexes and filters.
    pub blocks: u64,
    /// Blocks that were read from the disk.
    pub blocks_read: u64,
    /// Nanoseconds that the reads took.
    pub read_ns: u64,
    /// Versions that a scan stepped over: tombstones, those that are too new and, backward, those that have been replaced.
    pub versions_passed: u64,
    /// Entries that were put into the transaction's write buffer or deleted there: rows and entries of indexes.
    pub entries_written: u64,
}

impl Tally {
    const NONE: Tally = Tally { blocks: 0, blocks_read: 0, read_ns: 0, versions_passed: 0, entries_written: 0 };

    fn since(self, earlier: Tally) -> Tally {
        Tally {
            blocks: self.blocks - earlier.blocks,
            blocks_read: self.blocks_read - earlier.blocks_read,
            read_ns: self.read_ns - earlier.read_ns,
            versions_passed: self.versions_passed - earlier.versions_passed,
            entries_written: self.entries_written - earlier.entries_written,
        }
    }
}

/// Threads that count.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What this thread has counted since it began to, whoever asked.
    static COUNTED: Cell<Tally> = const { Cell::new(Tally::NONE) };
}

/// True if some thread of the process counts.
#[inline(always)]
pub fn is_on() -> bool {
    THREADS.load(Ordering::Relaxed) > 0
}

#[cold]
fn add(change: impl FnOnce(&mut Tally)) {
    let mut counted = COUNTED.get();
    change(&mut counted);
    COUNTED.set(counted);
}

/// A block was looked up.
#[inline(always)]
pub fn note_block() {
    if is_on() {
        add(|tally| tally.blocks += 1);
    }
}

/// A version was stepped over.
#[inline(always)]
pub fn note_passed() {
    if is_on() {
        add(|tally| tally.versions_passed += 1);
    }
}

/// An entry was written to a transaction's buffer.
#[inline(always)]
pub fn note_written() {
    if is_on() {
        add(|tally| tally.entries_written += 1);
    }
}

/// A block is taken from what was read from the disk.
#[inline]
pub fn note_block_read() {
    if is_on() {
        add(|tally| tally.blocks_read += 1);
    }
}

/// A read of the disk took so long.
pub fn note_read_time(ns: u64) {
    add(|tally| tally.read_ns += ns);
}

/// From now on the calling thread counts, until [`end_counting`] is called on it with what this returns. May be nested.
pub fn begin_counting() -> Tally {
    THREADS.fetch_add(1, Ordering::Relaxed);
    COUNTED.get()
}

/// What the thread has done since [`begin_counting`] returned `before`.
pub fn end_counting(before: Tally) -> Tally {
    THREADS.fetch_sub(1, Ordering::Relaxed);
    COUNTED.get().since(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards that a thread is told of its own work alone, and of what it did since it asked; that one question within another takes
    /// nothing away from it; that nothing is counted when nobody asks.
    #[test]
    fn a_thread_is_told_what_it_did_itself_since_it_asked() {
        let outer = begin_counting();
        note_block();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = begin_counting();
                note_block();
                note_passed();
                assert_eq!(end_counting(other), Tally { blocks: 1, versions_passed: 1, ..Tally::NONE });
            });
        });
        let inner = begin_counting();
        note_written();
        note_block_read();
        note_read_time(70);
        assert_eq!(end_counting(inner), Tally { blocks_read: 1, read_ns: 70, entries_written: 1, ..Tally::NONE });
        let all = Tally { blocks: 1, blocks_read: 1, read_ns: 70, entries_written: 1, ..Tally::NONE };
        assert_eq!(end_counting(outer), all);
    }
}
