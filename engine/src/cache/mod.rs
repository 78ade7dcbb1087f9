//! The block cache: decoded blocks of table files within a byte budget, shared by all threads.
//!
//! # Algorithm
//!
//! The cache is split into independent shards by a hash of (file, offset). Each shard follows S3-FIFO: a new block
//! enters a small *probation* queue (a tenth of the budget); when it reaches the end of that queue it moves to the main
//! queue if it was asked for meanwhile, else it leaves and only a fingerprint of its key stays behind in a *ghost* table.
//! A block whose fingerprint is in the ghost table when it comes back goes straight to the main queue. The main queue
//! is a CLOCK: a block at its end that was used goes round again with one use less (uses are counted up to three).
//! A long scan thus washes only through the probation tenth.
//!
//! A merge puts blocks in whose rows readers had in memory before; it says itself where they belong (`Cache::insert_at`).
//!
//! A hit takes the shard's lock for reading, looks the key up, bumps a two-bit counter and clones the value (an `Arc`):
//! no list is touched, so hits on one shard do not exclude each other.
//!
//! # Invariants
//!
//! - The charges of the resident entries of a shard never exceed the shard's share of the budget. Entries that were
//!   evicted while a reader holds them live on in the reader's `Arc` only and are not counted.
//! - Every resident slot is in exactly one of the two queues and in exactly one file chain.
//!
//! # Rejected
//!
//! LRU: every hit would rewrite a list under an exclusive lock, and scans would flush it. A second cache for compressed
//! blocks: a block would have two places to be looked up in, and the budget would have to be divided; what the caller puts
//! in may be compressed (`sst/compressed.rs`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::base::FileNo;

/// Bytes charged for an entry on top of the caller's charge: slot, map entries and their slack.
const ENTRY_OVERHEAD: usize = 128;
/// A shard smaller than this would not hold a useful number of blocks.
const SHARD_BYTES_MIN: usize = 512 << 10;
/// Uses counted per entry at most.
const USES_MAX: u8 = 3;
/// Marks "no slot" in links.
const NIL: u32 = u32::MAX;

/// A sharded, scan-resistant cache from (file number, offset) to a cheaply cloned value.
pub struct Cache<V> {
    shards: Box<[Shard<V>]>,
}

// Padded so that the counters and locks of neighbouring shards do not share a cache line.
#[repr(align(128))]
struct Shard<V> {
    state: RwLock<State<V>>,
    hits: AtomicU64,
    misses: AtomicU64,
    second_hits: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    file: u64,
    offset: u64,
}

impl Key {
    fn hash64(self) -> u64 {
        // Offsets are dense and file numbers small: one wide multiplication spreads both over all bits.
        let a = self.offset ^ 0x9e37_79b9_7f4a_7c15;
        let b = self.file.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ 0xa076_1d64_78bd_642f;
        let wide = u128::from(a) * u128::from(b);
        let folded = (wide as u64) ^ ((wide >> 64) as u64);
        folded ^ (folded >> 29)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash64());
    }
}

/// Passes on the hash that [`Key`] computed itself.
#[derive(Default)]
struct Through(u64);

impl Hasher for Through {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type Map<K, T> = HashMap<K, T, BuildHasherDefault<Through>>;

/// The queue of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Queue {
    /// For blocks that have yet to be asked for again.
    Probation,
    /// For blocks that have been.
    Main,
}

/// What a hit touches, all of it in the bucket of the map.
struct Entry<V> {
    value: V,
    uses: AtomicU8,
    slot: u32,
}

/// What only insertion and eviction touch.
struct Slot {
    key: Key,
    charge: usize,
    queue: Queue,
    // Neighbours in the queue: `newer` towards the head (last inserted), `older` towards the tail (next to leave).
    newer: u32,
    older: u32,
    // Neighbours in the chain of the file.
    file_next: u32,
    file_prev: u32,
}

struct List {
    head: u32,
    tail: u32,
    bytes: usize,
}

impl List {
    const EMPTY: List = List { head: NIL, tail: NIL, bytes: 0 };
}

struct State<V> {
    map: Map<Key, Entry<V>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    // First slot of each file's chain.
    files: HashMap<u64, u32>,
    small: List,
    main: List,
    // Fingerprints of keys that lately left probation unused; direct-mapped, so a newer one overwrites an older one.
    ghost: Box<[u32]>,
    capacity: usize,
}

fn ghost_slots(capacity: usize) -> usize {
    // About as many as the shard holds blocks of 16 KiB, and never so many that they weigh.
    (capacity >> 14).next_power_of_two().clamp(16, 1 << 20)
}

impl<V> State<V> {
    fn new(capacity: usize) -> State<V> {
        State {
            map: Map::default(),
            slots: Vec::new(),
            free: Vec::new(),
            files: HashMap::new(),
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: vec![0; ghost_slots(capacity)].into_boxed_slice(),
            capacity,
        }
    }

    fn usage(&self) -> usize {
        self.small.bytes + self.main.bytes
    }

    fn list(&mut self, queue: Queue) -> &mut List {
        match queue {
            Queue::Probation => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    fn push_head(&mut self, at: u32, queue: Queue) {
        let charge = self.slots[at as usize].charge;
        let list = self.list(queue);
        let old_head = list.head;
        list.head = at;
        if old_head == NIL {
            list.tail = at;
        }
        list.bytes += charge;
        let slot = &mut self.slots[at as usize];
        slot.queue = queue;
        slot.newer = NIL;
        slot.older = old_head;
        if old_head != NIL {
            self.slots[old_head as usize].newer = at;
        }
    }

    fn unlink(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        let (newer, older, queue, charge) = (slot.newer, slot.older, slot.queue, slot.charge);
        if newer != NIL {
            self.slots[newer as usize].older = older;
        }
        if older != NIL {
            self.slots[older as usize].newer = newer;
        }
        let list = self.list(queue);
        if newer == NIL {
            list.head = older;
        }
        if older == NIL {
            list.tail = newer;
        }
        list.bytes -= charge;
    }

    fn link_file(&mut self, at: u32) {
        let file = self.slots[at as usize].key.file;
        let next = self.files.insert(file, at).unwrap_or(NIL);
        if next != NIL {
            self.slots[next as usize].file_prev = at;
        }
        let slot = &mut self.slots[at as usize];
        slot.file_next = next;
        slot.file_prev = NIL;
    }

    fn unlink_file(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        let (next, prev, file) = (slot.file_next, slot.file_prev, slot.key.file);
        if next != NIL {
            self.slots[next as usize].file_prev = prev;
        }
        if prev != NIL {
            self.slots[prev as usize].file_next = next;
        } else if next != NIL {
            self.files.insert(file, next);
        } else {
            self.files.remove(&file);
        }
    }

    /// Takes an entry out altogether. The value is returned so that it can be dropped outside the lock.
    fn remove(&mut self, at: u32) -> Option<V> {
        self.unlink(at);
        self.unlink_file(at);
        self.free.push(at);
        self.map.remove(&self.slots[at as usize].key).map(|entry| entry.value)
    }

    fn ghost_place(&self, key: Key) -> (usize, u32) {
        let hash = key.hash64();
        // The shard was chosen by the top bits, the map uses them too; the ghost uses the middle and the low ones.
        ((hash >> 20) as usize & (self.ghost.len() - 1), hash as u32 | 1)
    }

    /// Frees room until `incoming` more bytes fit.
    fn make_room(&mut self, incoming: usize, dropped: &mut Vec<V>) {
        while self.usage() + incoming > self.capacity {
            let from_small =
                self.small.tail != NIL && (self.small.bytes + incoming > self.capacity / 10 || self.main.tail == NIL);
            let at = if from_small { self.small.tail } else { self.main.tail };
            if at == NIL {
                return;
            }
            let key = self.slots[at as usize].key;
            let used = self.map.get_mut(&key).is_some_and(|entry| {
                let uses = entry.uses.get_mut();
                let used = *uses > 0;
                *uses = if from_small { 0 } else { uses.saturating_sub(1) };
                used
            });
            if used {
                self.unlink(at);
                self.push_head(at, Queue::Main);
                continue;
            }
            if from_small {
                let (place, print) = self.ghost_place(key);
                self.ghost[place] = print;
            }
            dropped.extend(self.remove(at));
        }
    }

    /// Without a queue the ghost table decides.
    fn insert(&mut self, key: Key, value: V, charge: usize, queue: Option<Queue>, dropped: &mut Vec<V>) {
        if let Some(entry) = self.map.get(&key) {
            // Two readers loaded the same block at once; the first copy stays, since others may share it already.
            let at = entry.slot;
            if self.slots[at as usize].charge == charge {
                dropped.push(value);
                return;
            }
            dropped.extend(self.remove(at));
        }
        if charge > self.capacity / 2 {
            // It would push out everything else for one reader: that reader keeps the only copy.
            dropped.push(value);
            return;
        }
        self.make_room(charge, dropped);
        let (at, print) = self.ghost_place(key);
        let known = self.ghost[at] == print;
        if known {
            self.ghost[at] = 0;
        }
        let queue = queue.unwrap_or(if known { Queue::Main } else { Queue::Probation });
        let slot = Slot { key, charge, queue, newer: NIL, older: NIL, file_next: NIL, file_prev: NIL };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.map.insert(key, Entry { value, uses: AtomicU8::new(0), slot: at });
        self.push_head(at, queue);
        self.link_file(at);
    }
}

impl<V: Clone> Cache<V> {
    /// A cache of `capacity` bytes. The number of shards follows the number of cores (eight each, at most 64) and is
    /// smaller for a cache too small to split.
    pub fn new(capacity: usize) -> Arc<Cache<V>> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let wanted = (cores * 8).next_power_of_two().min(64);
        let affordable = (capacity / SHARD_BYTES_MIN).max(1);
        // Round down to a power of two: the shard is chosen by the top bits of the hash.
        let affordable = 1 << affordable.ilog2();
        Self::with_shards(capacity, wanted.min(affordable))
    }

    /// A cache of `capacity` bytes in `shards` shards (rounded up to a power of two).
    pub fn with_shards(capacity: usize, shards: usize) -> Arc<Cache<V>> {
        let shards = shards.max(1).next_power_of_two();
        let each = capacity / shards;
        let shards = (0..shards)
            .map(|_| Shard {
                state: RwLock::new(State::new(each)),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                second_hits: AtomicU64::new(0),
            })
            .collect();
        Arc::new(Cache { shards })
    }

    #[inline]
    fn shard(&self, key: Key) -> &Shard<V> {
        // The map takes its control bytes from the top seven bits and its bucket from the low ones.
        let at = (key.hash64() >> 40) as usize & (self.shards.len() - 1);
        &self.shards[at]
    }

    /// The value of a block, if resident; counts as a use.
    #[inline]
    pub fn get(&self, file: FileNo, offset: u64) -> Option<V> {
        self.with(file, offset, V::clone)
    }

    /// Runs `look` on the value of a block, if resident, without taking a reference of its own; counts as a use.
    /// `look` runs under the shard's lock: it must be short and must not call the cache.
    #[inline]
    pub fn with<R>(&self, file: FileNo, offset: u64, look: impl FnOnce(&V) -> R) -> Option<R> {
        let seen = self.with_if(file, offset, |value| (look(value), true));
        if seen.is_none() {
            self.count_miss(file, offset);
        }
        seen
    }

    /// As `with`, but it is `look` that says whether this was a use, and what is not resident does not count as missed.
    #[inline]
    pub fn with_if<R>(&self, file: FileNo, offset: u64, look: impl FnOnce(&V) -> (R, bool)) -> Option<R> {
        let key = Key { file: file.0, offset };
        let shard = self.shard(key);
        let state = shard.state.read();
        let entry = state.map.get(&key)?;
        shard.hits.fetch_add(1, Ordering::Relaxed);
        let (result, used) = look(&entry.value);
        if used {
            // A lost update costs at most one use of the count.
            let uses = entry.uses.load(Ordering::Relaxed);
            if uses < USES_MAX {
                entry.uses.store(uses + 1, Ordering::Relaxed);
            }
        }
        Some(result)
    }

    /// Counts a look-up that has to read.
    pub fn count_miss(&self, file: FileNo, offset: u64) {
        self.shard(Key { file: file.0, offset }).misses.fetch_add(1, Ordering::Relaxed);
    }

    /// For a block that was missed and may be resident in a second form: its value, and how often it has been asked for
    /// before (up to three times). Counts as a use and as a second hit.
    pub fn get_second(&self, file: FileNo, offset: u64) -> Option<(V, u8)> {
        let key = Key { file: file.0, offset };
        let shard = self.shard(key);
        let state = shard.state.read();
        let entry = state.map.get(&key)?;
        let uses = entry.uses.load(Ordering::Relaxed);
        entry.uses.store(USES_MAX.min(uses + 1), Ordering::Relaxed);
        shard.second_hits.fetch_add(1, Ordering::Relaxed);
        Some((entry.value.clone(), uses))
    }

    /// The value of a block, if resident, leaving no trace: neither a use nor a hit or miss is counted. For bulk readers
    /// (compaction, verification) that must not distort what the cache keeps.
    pub fn peek(&self, file: FileNo, offset: u64) -> Option<V> {
        self.peek_with(file, offset, V::clone)
    }

    /// `peek` at the value under the shard's lock; the rules of [`Cache::with`] hold.
    #[inline]
    pub fn peek_with<R>(&self, file: FileNo, offset: u64, look: impl FnOnce(&V) -> R) -> Option<R> {
        let key = Key { file: file.0, offset };
        let state = self.shard(key).state.read();
        state.map.get(&key).map(|entry| look(&entry.value))
    }

    /// The queue of a block, if resident, leaving no trace. One on probation that has been asked for counts as in the main
    /// queue: it is on its way there.
    pub fn queue(&self, file: FileNo, offset: u64) -> Option<Queue> {
        let key = Key { file: file.0, offset };
        let state = self.shard(key).state.read();
        let entry = state.map.get(&key)?;
        let used = entry.uses.load(Ordering::Relaxed) > 0;
        Some(if used { Queue::Main } else { state.slots[entry.slot as usize].queue })
    }

    /// True while a sixteenth of the budget is free: what comes in pushes nothing out.
    pub fn has_room(&self) -> bool {
        let capacity = self.capacity();
        self.usage() + capacity / 16 <= capacity && capacity > 0
    }

    /// Makes a block resident. `charge` is the memory it occupies in bytes. A block too large for its shard is not kept;
    /// neither is a second copy of a resident block.
    pub fn insert(&self, file: FileNo, offset: u64, value: V, charge: usize) {
        self.insert_at(file, offset, value, charge, None);
    }

    /// As `insert`, into the queue that the caller knows the block to deserve.
    pub fn insert_at(&self, file: FileNo, offset: u64, value: V, charge: usize, queue: Option<Queue>) {
        let key = Key { file: file.0, offset };
        // Freeing evicted blocks may be slow, so it happens after the lock is released.
        let mut dropped = Vec::new();
        self.shard(key).state.write().insert(key, value, charge + ENTRY_OVERHEAD, queue, &mut dropped);
    }

    /// Drops a block.
    pub fn erase(&self, file: FileNo, offset: u64) {
        let key = Key { file: file.0, offset };
        let mut state = self.shard(key).state.write();
        let dropped = state.map.get(&key).map(|entry| entry.slot).and_then(|at| state.remove(at));
        drop(state);
        drop(dropped);
    }

    /// Drops all blocks of a file (which was deleted).
    pub fn erase_file(&self, file: FileNo) {
        for shard in &self.shards {
            let mut dropped = Vec::new();
            let mut state = shard.state.write();
            while let Some(&at) = state.files.get(&file.0) {
                dropped.extend(state.remove(at));
            }
            drop(state);
        }
    }

    /// Changes the budget; shrinking evicts at once.
    pub fn set_capacity(&self, capacity: usize) {
        let each = capacity / self.shards.len();
        for shard in &self.shards {
            if shard.state.read().capacity == each {
                continue;
            }
            let mut dropped = Vec::new();
            let mut state = shard.state.write();
            state.capacity = each;
            if state.ghost.len() != ghost_slots(each) {
                state.ghost = vec![0; ghost_slots(each)].into_boxed_slice();
            }
            state.make_room(0, &mut dropped);
            drop(state);
        }
    }

    /// The budget in bytes (rounded down to a multiple of the number of shards).
    pub fn capacity(&self) -> usize {
        self.shards.iter().map(|s| s.state.read().capacity).sum()
    }

    /// Bytes charged to resident blocks.
    pub fn usage(&self) -> usize {
        self.shards.iter().map(|s| s.state.read().usage()).sum()
    }

    /// Number of resident blocks.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.state.read().map.len()).sum()
    }

    /// True if nothing is resident.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lookups that found their block.
    pub fn hits(&self) -> u64 {
        self.shards.iter().map(|s| s.hits.load(Ordering::Relaxed)).sum()
    }

    /// Lookups that did not, and found it in its second form.
    pub fn second_hits(&self) -> u64 {
        self.shards.iter().map(|s| s.second_hits.load(Ordering::Relaxed)).sum()
    }

    /// Lookups that did not find their block, second form or not.
    pub fn misses(&self) -> u64 {
        self.shards.iter().map(|s| s.misses.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap as Model;

    impl<V> State<V> {
        /// Checks every structural invariant by walking everything.
        fn check(&self) {
            let mut seen = 0;
            for (list, queue) in [(&self.small, Queue::Probation), (&self.main, Queue::Main)] {
                let (mut at, mut newer, mut bytes) = (list.head, NIL, 0);
                while at != NIL {
                    let slot = &self.slots[at as usize];
                    assert!(slot.queue == queue && slot.newer == newer);
                    assert_eq!(self.map.get(&slot.key).map(|entry| entry.slot), Some(at));
                    bytes += slot.charge;
                    seen += 1;
                    newer = at;
                    at = slot.older;
                }
                assert_eq!(list.tail, newer);
                assert_eq!(list.bytes, bytes);
            }
            assert_eq!(seen, self.map.len());
            assert_eq!(seen + self.free.len(), self.slots.len());
            let mut chained = 0;
            for (&file, &head) in &self.files {
                let (mut at, mut prev) = (head, NIL);
                while at != NIL {
                    let slot = &self.slots[at as usize];
                    assert_eq!((slot.key.file, slot.file_prev), (file, prev));
                    chained += 1;
                    prev = at;
                    at = slot.file_next;
                }
            }
            assert_eq!(chained, seen);
            assert!(self.usage() <= self.capacity);
        }
    }

    #[test]
    fn a_block_is_put_where_the_one_it_replaces_was() {
        let cache = Cache::with_shards(10 * (1000 + ENTRY_OVERHEAD), 1);
        assert_eq!(cache.queue(FileNo(1), 0), None);
        cache.insert(FileNo(1), 0, 0u64, 1000);
        assert_eq!(cache.queue(FileNo(1), 0), Some(Queue::Probation));
        assert!(cache.get(FileNo(1), 0).is_some());
        assert_eq!(cache.queue(FileNo(1), 0), Some(Queue::Main));
        cache.insert_at(FileNo(2), 0, 1, 1000, Some(Queue::Main));
        cache.insert_at(FileNo(2), 1, 2, 1000, Some(Queue::Probation));
        assert!(cache.has_room());
        // A scan pushes out what is on probation and nothing else.
        for offset in 0..100 {
            cache.insert(FileNo(3), offset, 3, 1000);
        }
        assert!(!cache.has_room());
        assert_eq!(cache.queue(FileNo(2), 0), Some(Queue::Main));
        assert_eq!(cache.queue(FileNo(2), 1), None);
    }

    #[test]
    fn a_look_that_is_no_use_keeps_nothing() {
        let cache = Cache::with_shards(100 * (1000 + ENTRY_OVERHEAD), 1);
        cache.insert(FileNo(1), 0, 10, 1000);
        cache.insert(FileNo(1), 1, 11, 1000);
        assert_eq!(cache.with_if(FileNo(1), 0, |value| (*value, false)), Some(10));
        assert_eq!(cache.with_if(FileNo(1), 1, |value| (*value, true)), Some(11));
        assert_eq!(cache.with_if(FileNo(1), 2, |value| (*value, true)), None);
        assert_eq!((cache.hits(), cache.misses()), (2, 0));
        (0..200).for_each(|offset| cache.insert(FileNo(2), offset, 2, 1000));
        assert_eq!(cache.queue(FileNo(1), 0), None);
        assert_eq!(cache.queue(FileNo(1), 1), Some(Queue::Main));
    }

    #[test]
    fn a_scan_does_not_wash_out_the_working_set() {
        let cache: Arc<Cache<u64>> = Cache::with_shards(1 << 20, 1);
        let hot: Vec<u64> = (0..40).collect();
        for _ in 0..3 {
            for &o in &hot {
                if cache.get(FileNo(1), o).is_none() {
                    cache.insert(FileNo(1), o, o, 16 << 10);
                }
            }
        }
        for o in 0..10_000 {
            assert_eq!(cache.get(FileNo(2), o), None);
            cache.insert(FileNo(2), o, o, 16 << 10);
        }
        let kept = hot.iter().filter(|&&o| cache.peek(FileNo(1), o).is_some()).count();
        assert_eq!(kept, hot.len());
        assert!(cache.usage() <= cache.capacity());
        assert!(cache.usage() > cache.capacity() - (20 << 10), "the budget is used");
    }

    #[test]
    fn a_block_that_comes_back_goes_to_the_main_queue() {
        let cache: Arc<Cache<u64>> = Cache::with_shards(1 << 20, 1);
        let charge = 16 << 10;
        for o in 0..100 {
            cache.insert(FileNo(1), o, o, charge);
        }
        assert!(cache.peek(FileNo(1), 30).is_none());
        cache.insert(FileNo(1), 30, 30, charge);
        for o in 1000..1200 {
            cache.insert(FileNo(1), o, o, charge);
        }
        assert_eq!(cache.peek(FileNo(1), 30), Some(30));
    }

    #[test]
    fn one_file_is_erased_and_the_others_stay() {
        let cache: Arc<Cache<u64>> = Cache::with_shards(64 << 20, 16);
        for file in 0..10 {
            for o in 0..50 {
                cache.insert(FileNo(file), o * 4096, file * 1000 + o, 100);
            }
        }
        cache.erase_file(FileNo(4));
        cache.erase_file(FileNo(77));
        for file in 0..10 {
            for o in 0..50 {
                let expected = (file != 4).then_some(file * 1000 + o);
                assert_eq!(cache.get(FileNo(file), o * 4096), expected);
            }
        }
        assert_eq!((cache.hits(), cache.misses()), (450, 50));
        assert_eq!(cache.len(), 450);
        cache.set_capacity(0);
        assert_eq!((cache.len(), cache.usage()), (0, 0));
        assert!(cache.is_empty());
    }

    #[test]
    fn oversized_blocks_are_not_kept() {
        let cache: Arc<Cache<u64>> = Cache::with_shards(1 << 20, 1);
        cache.insert(FileNo(1), 0, 7, 100);
        cache.insert(FileNo(1), 1, 8, 1 << 20);
        assert_eq!(cache.get(FileNo(1), 0), Some(7));
        assert_eq!(cache.get(FileNo(1), 1), None);
    }

    #[test]
    fn evicted_values_are_freed_but_pinned_ones_live() {
        let cache: Arc<Cache<Arc<u64>>> = Cache::with_shards(64 << 10, 1);
        let pinned = Arc::new(5);
        cache.insert(FileNo(1), 0, pinned.clone(), 1000);
        let weak = {
            let other = Arc::new(6);
            cache.insert(FileNo(1), 1, other.clone(), 1000);
            Arc::downgrade(&other)
        };
        for o in 2..1000 {
            cache.insert(FileNo(1), o, Arc::new(o), 1000);
        }
        assert!(weak.upgrade().is_none());
        assert_eq!((*pinned, Arc::strong_count(&pinned)), (5, 1));
    }

    #[test]
    fn threads_share_it() {
        let cache: Arc<Cache<u64>> = Cache::with_shards(256 << 10, 4);
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let cache = &cache;
                scope.spawn(move || {
                    let mut x = t + 1;
                    for i in 0..20_000u64 {
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let (file, offset) = (x >> 61, (x >> 33) % 64);
                        match cache.get(FileNo(file), offset) {
                            Some(v) => assert_eq!(v, file << 32 | offset),
                            None => cache.insert(FileNo(file), offset, file << 32 | offset, 1000),
                        }
                        if i % 1000 == 0 {
                            cache.erase_file(FileNo(file));
                        }
                    }
                });
            }
        });
        for shard in &cache.shards {
            shard.state.read().check();
        }
        assert_eq!(cache.hits() + cache.misses(), 80_000);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Get(u64, u64),
        Insert(u64, u64, usize),
        Erase(u64),
        Capacity(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..4u64, 0..40u64).prop_map(|(f, o)| Op::Get(f, o)),
            6 => (0..4u64, 0..40u64, 0..6000usize).prop_map(|(f, o, c)| Op::Insert(f, o, c)),
            1 => (0..4u64).prop_map(Op::Erase),
            1 => (0..60_000usize).prop_map(Op::Capacity),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]
        #[test]
        fn never_invents_never_keeps_erased_never_exceeds(ops in proptest::collection::vec(op(), 1..300)) {
            let cache: Arc<Cache<u64>> = Cache::with_shards(30_000, 2);
            // Values that may be resident: everything inserted and not erased since. Residency itself is free.
            let mut may: Model<(u64, u64), Vec<u64>> = Model::new();
            let mut stamp = 0;
            for op in ops {
                match op {
                    Op::Get(f, o) => {
                        if let Some(v) = cache.get(FileNo(f), o) {
                            prop_assert!(may.get(&(f, o)).is_some_and(|all| all.contains(&v)));
                        }
                    }
                    Op::Insert(f, o, charge) => {
                        stamp += 1;
                        may.entry((f, o)).or_default().push(stamp);
                        cache.insert(FileNo(f), o, stamp, charge);
                    }
                    Op::Erase(f) => {
                        may.retain(|k, _| k.0 != f);
                        cache.erase_file(FileNo(f));
                    }
                    Op::Capacity(c) => cache.set_capacity(c),
                }
                for shard in &cache.shards {
                    shard.state.read().check();
                }
            }
        }
    }
}
