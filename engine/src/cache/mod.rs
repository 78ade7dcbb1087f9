//! The block cache: decoded blocks of SSTs within a byte budget, shared by all threads.
//!
//! # Algorithm
//!
//! The cache is split into independent shards by a hash of (file, offset). Which blocks a shard holds is decided in
//! [`shard`]: new ones are on probation, and a long scan does not push out what is in use.
//!
//! A merge puts blocks in whose rows readers had in memory before; it says itself where they belong (`Cache::insert_at`).
//!
//! A hit takes the shard's lock for reading, looks the key up, bumps a two-bit counter and clones the value (an `Arc`):
//! no list is touched, so hits on one shard do not exclude each other.
//!
//! # Invariants
//!
//! The charges of the resident entries of a shard never exceed the shard's share of the budget. Entries that were evicted
//! while a reader holds them live on in the reader's `Arc` only and are not counted.
//!
//! # Rejected
//!
//! A second cache for compressed blocks: a block would have two places to be looked up in, and the budget would have to be
//! divided; what the caller puts in may be compressed (`sst/compressed.rs`).

mod key;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use self::key::Key;
pub use self::key::SECOND_FORM;
pub use self::shard::Queue;
use self::shard::{ShardState, ghost_slots};
use crate::base::{FileNo, tally};

/// Bytes charged for an entry on top of the caller's charge: slot, map entries and their slack.
const ENTRY_OVERHEAD: usize = 128;
/// A shard smaller than this would not hold a useful number of blocks.
const SHARD_BYTES_MIN: usize = 512 << 10;
/// Uses counted per entry at most.
const USES_MAX: u8 = 3;

/// A sharded, scan-resistant cache from (file number, offset) to a cheaply cloned value.
pub struct Cache<V> {
    shards: Box<[Shard<V>]>,
    /// Bytes that readers hold beside the cache, by [`Holder`].
    held_bytes: [AtomicU64; 2],
}

// Padded so that the counters and locks of neighbouring shards do not share a cache line.
#[repr(align(128))]
struct Shard<V> {
    state: RwLock<ShardState<V>>,
    hits: AtomicU64,
    misses: AtomicU64,
    second_hits: AtomicU64,
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
                state: RwLock::new(ShardState::new(each)),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                second_hits: AtomicU64::new(0),
            })
            .collect();
        Arc::new(Cache { shards, held_bytes: Default::default() })
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
        tally::note_block();
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
        tally::note_block();
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

    /// Puts copies, of the same charge, in place of resident values: of those for which `is_meant` is true. `is_same` tells whether a
    /// value is still the one that was copied. No use of the blocks; returns how many were replaced.
    pub fn replace_copied(
        &self,
        is_meant: impl Fn(&V) -> bool,
        copy: impl Fn(&V) -> V,
        is_same: impl Fn(&V, &V) -> bool,
    ) -> usize {
        /// So many at a time: copying is done outside of the lock, and what is copied has its memory twice meanwhile.
        const AT_ONCE: usize = 64;
        let mut replaced = 0;
        for shard in &self.shards {
            let meant: Vec<Key> = {
                let state = shard.state.read();
                state.map.iter().filter(|(_, entry)| is_meant(&entry.value)).map(|(key, _)| *key).collect()
            };
            for keys in meant.chunks(AT_ONCE) {
                let present: Vec<(Key, V)> = {
                    let state = shard.state.read();
                    keys.iter().filter_map(|key| Some((*key, state.map.get(key)?.value.clone()))).collect()
                };
                let mut copies: Vec<V> = present.iter().map(|(_, value)| copy(value)).collect();
                let mut state = shard.state.write();
                for ((key, value), copied) in present.iter().zip(&mut copies) {
                    if let Some(entry) = state.map.get_mut(key).filter(|entry| is_same(&entry.value, value)) {
                        std::mem::swap(&mut entry.value, copied);
                        replaced += 1;
                    }
                }
                // Before what is replaced is freed.
                drop(state);
            }
        }
        replaced
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

    /// Bytes that readers of this kind hold beside the cache.
    pub fn held_bytes(&self, holder: Holder) -> u64 {
        self.held_bytes[holder as usize].load(Ordering::Relaxed)
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

    /// Bytes charged to second forms of blocks; they are part of the usage.
    pub fn second_bytes(&self) -> usize {
        self.shards.iter().map(|s| s.state.read().second_bytes).sum()
    }

    /// Blocks that made room for others.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|s| s.state.read().evictions).sum()
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

/// Who holds memory beside the cache.
#[derive(Clone, Copy)]
pub enum Holder {
    /// Readers that bypass it: blocks that they stand on.
    Bypass,
    /// Scans: buffers that they read ahead into.
    ReadAhead,
}

/// What a reader holds beside the cache, counted until it is dropped.
pub struct Held<V> {
    cache: Arc<Cache<V>>,
    holder: Holder,
    bytes: u64,
}

impl<V> Held<V> {
    /// Nothing yet.
    pub fn new(cache: Arc<Cache<V>>, holder: Holder) -> Held<V> {
        Held { cache, holder, bytes: 0 }
    }

    fn count(&self) -> &AtomicU64 {
        &self.cache.held_bytes[self.holder as usize]
    }

    /// What all of its kind hold.
    pub fn of_all(&self) -> u64 {
        self.count().load(Ordering::Relaxed)
    }

    /// It holds `bytes` now.
    pub fn set(&mut self, bytes: u64) {
        self.count().fetch_add(bytes, Ordering::Relaxed);
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.count().fetch_sub(before, Ordering::Relaxed);
    }
}

impl<V> Drop for Held<V> {
    fn drop(&mut self) {
        self.count().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
