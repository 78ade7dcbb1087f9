//! One shard of the cache: which blocks it holds, and which it gives up. S3-FIFO, without locks.
//!
//! # Algorithm
//!
//! A new block enters a small *probation* queue (a tenth of the budget); when it reaches the end of that queue it moves to
//! the main queue if it was asked for meanwhile, else it leaves and only a fingerprint of its key stays behind in a *ghost*
//! table. A block whose fingerprint is in the ghost table when it comes back goes straight to the main queue. The main queue
//! is a CLOCK: a block at its end that was used goes round again with one use less (uses are counted up to three).
//! A long scan thus washes only through the probation tenth.
//!
//! # Invariants
//!
//! - The charges of the resident entries never exceed the shard's share of the budget.
//! - Every resident slot is in exactly one of the two queues and in exactly one file chain.
//!
//! # Rejected
//!
//! LRU: every hit would rewrite a list under an exclusive lock, and scans would flush it.

use std::collections::HashMap;
use std::sync::atomic::AtomicU8;

use super::key::{Key, Map};

/// Marks "no slot" in links.
const NIL: u32 = u32::MAX;

/// The queue of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Queue {
    /// For blocks that have yet to be asked for again.
    Probation,
    /// For blocks that have been.
    Main,
}

/// What a hit touches, all of it in the bucket of the map.
pub(super) struct Entry<V> {
    pub value: V,
    pub uses: AtomicU8,
    pub slot: u32,
}

/// What only insertion and eviction touch.
pub(super) struct Slot {
    key: Key,
    charge: usize,
    pub queue: Queue,
    // Neighbours in the queue: `newer` towards the head (last inserted), `older` towards the tail (next to leave).
    newer: u32,
    older: u32,
    // Neighbours in the chain of the file.
    file_next: u32,
    file_prev: u32,
}

pub(super) struct List {
    head: u32,
    tail: u32,
    bytes: usize,
}

impl List {
    const EMPTY: List = List { head: NIL, tail: NIL, bytes: 0 };
}

pub(super) struct ShardState<V> {
    pub map: Map<Key, Entry<V>>,
    pub slots: Vec<Slot>,
    free: Vec<u32>,
    // First slot of each file's chain.
    pub files: HashMap<u64, u32>,
    small: List,
    main: List,
    // Fingerprints of keys that lately left probation unused; direct-mapped, so a newer one overwrites an older one.
    pub ghost: Box<[u32]>,
    pub capacity: usize,
    /// Bytes of second forms.
    pub second_bytes: usize,
    /// Blocks that made room for others.
    pub evictions: u64,
}

pub(super) fn ghost_slots(capacity: usize) -> usize {
    // About as many as the shard holds blocks of 16 KiB, and never so many that they weigh.
    (capacity >> 14).next_power_of_two().clamp(16, 1 << 20)
}

impl<V> ShardState<V> {
    pub fn new(capacity: usize) -> ShardState<V> {
        ShardState {
            map: Map::default(),
            slots: Vec::new(),
            free: Vec::new(),
            files: HashMap::new(),
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: vec![0; ghost_slots(capacity)].into_boxed_slice(),
            capacity,
            second_bytes: 0,
            evictions: 0,
        }
    }

    pub fn usage(&self) -> usize {
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
    pub fn remove(&mut self, at: u32) -> Option<V> {
        self.unlink(at);
        self.unlink_file(at);
        self.free.push(at);
        if self.slots[at as usize].key.is_second() {
            self.second_bytes -= self.slots[at as usize].charge;
        }
        self.map.remove(&self.slots[at as usize].key).map(|entry| entry.value)
    }

    fn ghost_place(&self, key: Key) -> (usize, u32) {
        let hash = key.hash64();
        // The shard was chosen by the top bits, the map uses them too; the ghost uses the middle and the low ones.
        ((hash >> 20) as usize & (self.ghost.len() - 1), hash as u32 | 1)
    }

    /// Frees room until `incoming` more bytes fit.
    pub fn make_room(&mut self, incoming: usize, dropped: &mut Vec<V>) {
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
            self.evictions += 1;
            dropped.extend(self.remove(at));
        }
    }

    /// Without a queue the ghost table decides.
    pub fn insert(&mut self, key: Key, value: V, charge: usize, queue: Option<Queue>, dropped: &mut Vec<V>) {
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
        if key.is_second() {
            self.second_bytes += charge;
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

#[cfg(test)]
impl<V> ShardState<V> {
    /// Checks every structural invariant by walking everything.
    pub fn check(&self) {
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
