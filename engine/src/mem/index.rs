//! Hash index from user key to memtable node: answers "is this key here, and where" in about two cache misses, where
//! the skip list needs a dozen. Most point reads ask several memtables that do not have the key; most updates push a
//! version onto a node that exists.
//!
//! A table is an array of 64-byte lines of eight slots; a slot holds a node's address and 16 bits of its hash, or zero.
//! A key has two neighbouring lines per table. Slots are filled in order and never cleared, so the first zero ends a
//! search for good: whoever had inserted the key would have used that slot. When both lines are full, the key goes to
//! the next table, created on first need: a small one for the few that overflow in a well-sized table, then a large one,
//! and so on. Sized well, nearly every search ends in the first line.
//!
//! Invariants: a node is in the index at most once (every inserter scans the slots in the same order and retries a slot
//! it lost); an insertion into the memtable returns only after the node is in the index.
//!
//! Rejected: a growing table with rehash (needs either epochs or a stop for writers); a Bloom filter (only helps
//! negative answers, and grows just as badly).

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::base::memory::Memory;

const SLOTS: usize = 8;
const LINE: usize = SLOTS * 8;
/// Lines of a table in relation to its overflow table's.
const OVERFLOW: usize = 8;
/// Lines of the large table after an overflow table in relation to those of the large one before.
const GROWTH: usize = 4;
const ADDRESS_BITS: u32 = 48;

#[repr(C, align(64))]
struct Line([AtomicU64; SLOTS]);

struct Table {
    lines: *const Line,
    mask: usize,
    is_overflow: bool,
    memory: Memory,
    next: AtomicPtr<Table>,
}

impl Table {
    fn new(lines: usize, is_overflow: bool) -> Box<Table> {
        let lines = lines.max(2);
        debug_assert!(lines.is_power_of_two());
        // Zeroed bytes are empty slots.
        let memory = Memory::zeroed(lines * LINE, LINE);
        let first = memory.start().as_ptr().cast::<Line>();
        Box::new(Table { lines: first, mask: lines - 1, is_overflow, memory, next: AtomicPtr::new(null_mut()) })
    }

    #[inline]
    fn line(&self, number: usize) -> &[AtomicU64; SLOTS] {
        // SAFETY: the masked number is below the number of lines, which live as long as the table.
        unsafe { &(*self.lines.add(number & self.mask)).0 }
    }

    /// The slots in which a key may be, in order.
    #[inline]
    fn slots(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let number = hash as usize;
        self.line(number).iter().chain(self.line(number ^ 1))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let next = *self.next.get_mut();
        if !next.is_null() {
            // SAFETY: `next` came from `Box::into_raw` and is owned by this table alone.
            drop(unsafe { Box::from_raw(next) });
        }
    }
}

/// Maps hashes to addresses of `N`; the caller decides equality of keys.
pub(super) struct HashIndex<N> {
    first: Box<Table>,
    bytes: AtomicUsize,
    _nodes: std::marker::PhantomData<*const N>,
}

// SAFETY: the tables are owned; slots are atomic; nodes are only handed out as raw pointers.
unsafe impl<N> Send for HashIndex<N> {}
// SAFETY: as above.
unsafe impl<N> Sync for HashIndex<N> {}

fn pack<N>(hash: u64, node: *const N) -> u64 {
    let address = node.expose_provenance() as u64;
    // User-space addresses have 47 bits unless a program asks the kernel for more, which nobody here does.
    assert!(address >> ADDRESS_BITS == 0, "node address {address:#x} does not fit in 48 bits");
    (hash & !((1 << ADDRESS_BITS) - 1)) | address
}

#[inline]
fn node_of<N>(slot: u64) -> *const N {
    std::ptr::with_exposed_provenance((slot & ((1 << ADDRESS_BITS) - 1)) as usize)
}

impl<N> HashIndex<N> {
    /// An index for about `keys` keys; more make it slower, not wrong.
    pub fn new(keys: usize) -> HashIndex<N> {
        let first = Table::new((keys / 6).max(1).next_power_of_two(), false);
        let bytes = AtomicUsize::new(first.memory.size());
        HashIndex { first, bytes, _nodes: std::marker::PhantomData }
    }

    /// Bytes taken from the system.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The node with this `hash` for which `is` holds; null if there is none.
    #[inline]
    pub fn find(&self, hash: u64, is: impl Fn(*const N) -> bool) -> *const N {
        let mut table: &Table = &self.first;
        loop {
            for slot in table.slots(hash) {
                let slot = slot.load(Ordering::Acquire);
                if slot == 0 {
                    return std::ptr::null();
                }
                if (slot ^ hash) >> ADDRESS_BITS == 0 && is(node_of(slot)) {
                    return node_of(slot);
                }
            }
            let next = table.next.load(Ordering::Acquire);
            if next.is_null() {
                return std::ptr::null();
            }
            // SAFETY: tables are published fully built and live as long as the index.
            table = unsafe { &*next };
        }
    }

    /// Brings the line of `hash` into the cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        super::node::prefetch(self.first.line(hash as usize).as_ptr().cast());
    }

    /// Makes sure that `node` is found under `hash`. Idempotent, also between threads.
    pub fn insert(&self, hash: u64, node: *const N) {
        let entry = pack(hash, node);
        let mut table: &Table = &self.first;
        loop {
            for slot in table.slots(hash) {
                let mut found = slot.load(Ordering::Acquire);
                if found == 0 {
                    match slot.compare_exchange(0, entry, Ordering::Release, Ordering::Acquire) {
                        Ok(_) => return,
                        Err(other) => found = other,
                    }
                }
                if found == entry {
                    return;
                }
            }
            table = self.next_of(table);
        }
    }

    fn next_of(&self, table: &Table) -> &Table {
        let mut next = table.next.load(Ordering::Acquire);
        if next.is_null() {
            let lines = table.mask + 1;
            let fresh = if table.is_overflow {
                Table::new(lines * OVERFLOW * GROWTH, false)
            } else {
                Table::new(lines / OVERFLOW, true)
            };
            let size = fresh.memory.size();
            let fresh = Box::into_raw(fresh);
            match table.next.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.bytes.fetch_add(size, Ordering::Relaxed);
                    next = fresh;
                }
                Err(other) => {
                    // SAFETY: never published, so still owned here.
                    drop(unsafe { Box::from_raw(fresh) });
                    next = other;
                }
            }
        }
        // SAFETY: published tables live as long as the index.
        unsafe { &*next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::hash::hash_bytes;

    #[test]
    fn finds_all_after_overflowing_many_tables() {
        let nodes: Vec<u64> = (0..5000).collect();
        let index: HashIndex<u64> = HashIndex::new(1);
        for node in &nodes {
            index.insert(hash_bytes(&node.to_be_bytes()), node);
            index.insert(hash_bytes(&node.to_be_bytes()), node);
        }
        for node in &nodes {
            let found = index.find(hash_bytes(&node.to_be_bytes()), |n| n == std::ptr::from_ref(node));
            assert_eq!(found, std::ptr::from_ref(node));
        }
        for absent in 5000u64..10_000 {
            // SAFETY: nodes outlive the index's use.
            let found = index.find(hash_bytes(&absent.to_be_bytes()), |n| unsafe { *n } == absent);
            assert!(found.is_null());
        }
    }

    #[test]
    fn racing_inserters_leave_one_entry() {
        let nodes: Vec<u64> = (0..2000).collect();
        let index: HashIndex<u64> = HashIndex::new(16);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for node in &nodes {
                        index.insert(hash_bytes(&node.to_be_bytes()), node);
                    }
                });
            }
        });
        let mut seen = std::collections::HashMap::new();
        let mut table: &Table = &index.first;
        loop {
            for line in 0..=table.mask {
                for slot in table.line(line) {
                    let slot = slot.load(Ordering::Acquire);
                    if slot != 0 {
                        *seen.entry(node_of::<u64>(slot)).or_insert(0) += 1;
                    }
                }
            }
            let next = table.next.load(Ordering::Acquire);
            if next.is_null() {
                break;
            }
            // SAFETY: owned by the index.
            table = unsafe { &*next };
        }
        assert_eq!(seen.len(), nodes.len());
        assert!(seen.values().all(|&n| n == 1));
    }
}
