//! A shard of the table: a map from keys to their [`LockQueue`]s, whose entries do not move.
//!
//! Chained hashing over an array of entries. Whoever holds or awaits a lock keeps its [`SlotId`], and comes back to the entry
//! without the key. A key of up to 40 bytes lies in the entry and a released entry is reused, so nothing is allocated for an
//! uncontended lock.
//!
//! Invariant: an entry is in its bucket's chain while somebody holds or awaits its key, else in the free list.
//!
//! Rejected: the map of the standard library (moves its entries as it grows, so a release would hash and probe again).

use std::sync::Arc;

use parking_lot::Mutex;

use super::LockOwner;
use super::queue::LockQueue;

/// Where a key's entry is, for as long as somebody holds or awaits the key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotId {
    pub shard: u32,
    pub slot: u32,
}

const INLINE_KEY: usize = 40;

pub(super) enum Key {
    Inline(u8, [u8; INLINE_KEY]),
    Heap(Box<[u8]>),
}

impl Key {
    fn new(bytes: &[u8]) -> Key {
        if bytes.len() > INLINE_KEY {
            return Key::Heap(bytes.into());
        }
        let mut inline = [0; INLINE_KEY];
        inline[..bytes.len()].copy_from_slice(bytes);
        Key::Inline(bytes.len() as u8, inline)
    }
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Key::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Key::Heap(bytes) => bytes,
        }
    }
}

/// A key that is locked, or a free place for one.
pub(super) struct Entry {
    pub hash: u64,
    /// Next entry of the bucket, or of the free list.
    next: u32,
    pub key: Key,
    pub queue: LockQueue<Arc<LockOwner>>,
}

const NONE: u32 = u32::MAX;
const BUCKETS_MIN: usize = 16;
/// An empty shard with more entries than this gives its memory back.
pub(super) const ENTRIES_KEPT: usize = 1024;

/// A chained hash table whose entries keep their slot, so that owners can find them again without the key.
pub(super) struct Shard {
    buckets: Vec<u32>,
    pub entries: Vec<Entry>,
    free: u32,
    pub live: usize,
}

impl Shard {
    pub fn new() -> Shard {
        Shard { buckets: vec![NONE; BUCKETS_MIN], entries: Vec::new(), free: NONE, live: 0 }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        // The low bits chose the shard.
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(hash)];
        while slot != NONE {
            let entry = &self.entries[slot as usize];
            if entry.hash == hash && entry.key.bytes() == key {
                return Some(slot);
            }
            slot = entry.next;
        }
        None
    }

    /// Bytes of memory; long keys are not counted.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.buckets.capacity() * size_of::<u32>()
    }

    pub fn find_or_add(&mut self, hash: u64, key: &[u8]) -> u32 {
        if let Some(slot) = self.find(hash, key) {
            return slot;
        }
        if self.live >= self.buckets.len() {
            self.rehash(self.buckets.len() * 2);
        }
        let bucket = self.bucket(hash);
        let entry = Entry { hash, next: self.buckets[bucket], key: Key::new(key), queue: LockQueue::new() };
        let slot = if self.free == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let slot = self.free;
            self.free = self.entries[slot as usize].next;
            self.entries[slot as usize] = entry;
            slot
        };
        self.buckets[bucket] = slot;
        self.live += 1;
        slot
    }

    fn rehash(&mut self, buckets: usize) {
        let old = std::mem::replace(&mut self.buckets, vec![NONE; buckets]);
        for mut slot in old {
            while slot != NONE {
                let next = self.entries[slot as usize].next;
                let bucket = self.bucket(self.entries[slot as usize].hash);
                self.entries[slot as usize].next = self.buckets[bucket];
                self.buckets[bucket] = slot;
                slot = next;
            }
        }
    }

    /// Frees the entry in `slot` if nobody holds or awaits it.
    pub fn drop_if_free(&mut self, slot: u32) {
        let entry = &self.entries[slot as usize];
        if !entry.queue.is_free() {
            return;
        }
        let (bucket, after) = (self.bucket(entry.hash), entry.next);
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = after;
        } else {
            let mut at = self.buckets[bucket];
            while self.entries[at as usize].next != slot {
                at = self.entries[at as usize].next;
            }
            self.entries[at as usize].next = after;
        }
        self.live -= 1;
        if self.live == 0 && self.entries.len() > ENTRIES_KEPT {
            *self = Shard::new();
            return;
        }
        let entry = &mut self.entries[slot as usize];
        if let Key::Heap(_) = entry.key {
            entry.key = Key::new(b"");
        }
        entry.next = self.free;
        self.free = slot;
    }
}

#[repr(align(128))]
pub(super) struct PaddedShard(pub Mutex<Shard>);
