//! Locks held in bulk: what becomes of point locks when one owner has very many.
//!
//! A point lock costs about a hundred bytes. When an owner has [`GATHERED_FIRST`] of them, those that nobody waits for leave
//! the table and become members of a set: the hash of the key, ten bytes. From then on this is done for a few at a time,
//! [`GATHERED_NEXT`], so that the entries which locks pass through stay in the processor's cache. Above [`HASHES_MAX`]
//! members the sets are given up for one interval per index and mode, from the least to the greatest key so far, which
//! grows with later locks. So the memory has a bound, while the locks of a transaction of a few million rows stay exact.
//! The latest lock is always a point lock, for it may be given back.
//!
//! Nobody waits for a bulk lock. Whoever asks for a key first *materializes* it: under the mutex of the key's shard, each
//! owner that has the key in bulk becomes a holder in the queue of the key, and everything goes on as if it had always
//! been one. No rule, no wait and no deadlock search knows of bulk locks.
//!
//! Its own bulk locks an owner is only asked for where others hold the key or wait for it. Where nobody does, the request
//! is answered as new whatever is held in bulk: a set is a cache miss per key, and scans seldom meet a row twice. Giving
//! back early what is held in bulk has no effect.
//!
//! An interval says more than was locked: a key in it may be held by another owner, explicitly, from before; then that
//! owner is the holder. And it does not tell its own owner what that has locked before.
//!
//! Invariant: while an owner has bulk locks it is in the registry. A lock enters its set before it leaves the queue, under
//! the mutex of the shard. Mutex order: shard, registry, an owner's bulk locks.
//!
//! Rejected: intervals from the beginning (two bulk loads with interleaved keys would wait for each other at once).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};

use super::LockMode::{self, Exclusive, Shared};
use super::queue::{Answer, LockQueue};
use super::shard::{Shard, SlotId};
use super::{LockOwner, LockTable};
use crate::base::IndexId;
use crate::mem::prefetch;

/// Point locks of an owner that become its first bulk locks.
pub(super) const GATHERED_FIRST: usize = 16 << 10;
/// Later point locks that become bulk locks together.
pub(super) const GATHERED_NEXT: usize = 128;
/// Members of an owner's sets.
const HASHES_MAX: usize = 2 << 20;
const BUCKETS: usize = 1024;
/// Marks a free slot.
const FREE: u64 = 0;

/// A set of hashes: open addressing in buckets that grow one by one, so that no insert takes long and little is unused.
#[derive(Default)]
struct Hashes {
    buckets: Vec<Bucket>,
    len: usize,
}

impl Hashes {
    fn contains(&self, hash: u64) -> bool {
        let hash = hash.max(FREE + 1);
        self.buckets.get(hash as usize % BUCKETS).is_some_and(|bucket| bucket.find(hash).is_ok())
    }

    fn bytes(&self) -> usize {
        self.buckets.iter().map(|bucket| size_of::<Bucket>() + size_of_val(&*bucket.slots)).sum()
    }

    fn prefetch(&self, hash: u64) {
        if let Some(bucket) = self.buckets.get(hash as usize % BUCKETS) {
            prefetch(bucket.slots.as_ptr().wrapping_add(bucket.home(hash)).cast());
        }
    }

    fn insert(&mut self, hash: u64) {
        let hash = hash.max(FREE + 1);
        if self.buckets.is_empty() {
            self.buckets.resize_with(BUCKETS, Bucket::default);
        }
        self.len += usize::from(self.buckets[hash as usize % BUCKETS].insert(hash));
    }
}

/// Slots, of which at least an eighth is free; a hash is at or behind the slot that its high bits name.
#[derive(Default)]
struct Bucket {
    slots: Box<[u64]>,
    len: usize,
}

impl Bucket {
    /// Where the search for a hash begins.
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    /// The slot of the hash, or the free one where it belongs.
    fn find(&self, hash: u64) -> Result<usize, usize> {
        let count = self.slots.len();
        let mut at = self.home(hash);
        for _ in 0..count {
            match self.slots[at] {
                FREE => return Err(at),
                other if other == hash => return Ok(at),
                _ => at = if at + 1 == count { 0 } else { at + 1 },
            }
        }
        Err(count)
    }

    /// False if it is there already.
    fn insert(&mut self, hash: u64) -> bool {
        if (self.len + 1) * 8 > self.slots.len() * 7 {
            self.grow();
        }
        let Err(free) = self.find(hash) else { return false };
        self.slots[free] = hash;
        self.len += 1;
        true
    }

    fn grow(&mut self) {
        let slots = vec![FREE; self.slots.len() * 5 / 4 + 8].into_boxed_slice();
        let old = std::mem::replace(&mut self.slots, slots);
        for &hash in old.iter().filter(|&&hash| hash != FREE) {
            if let Err(free) = self.find(hash) {
                self.slots[free] = hash;
            }
        }
    }
}

/// Least and greatest key of each index.
type Bounds = BTreeMap<IndexId, (Vec<u8>, Vec<u8>)>;

/// Locks of one mode.
#[derive(Default)]
struct Held {
    hashes: Hashes,
    bounds: Bounds,
    /// Beyond the bound on memory: everything within `bounds` is held.
    as_intervals: bool,
    /// Intervals that were locked as such.
    intervals: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Held {
    fn in_interval(&self, key: &[u8]) -> bool {
        let within = |(from, to): &(Vec<u8>, Vec<u8>)| from.as_slice() <= key && key <= to.as_slice();
        self.intervals.iter().any(within)
            || self.as_intervals && key.len() >= IndexId::LEN && self.bounds.get(&IndexId::of(key)).is_some_and(within)
    }

    fn insert(&mut self, hash: u64, key: &[u8]) {
        if key.len() >= IndexId::LEN {
            let (from, to) = self.bounds.entry(IndexId::of(key)).or_insert_with(|| (key.to_vec(), key.to_vec()));
            if key < from.as_slice() {
                key.clone_into(from);
            }
            if key > to.as_slice() {
                key.clone_into(to);
            }
        }
        if !self.as_intervals {
            self.hashes.insert(hash);
        }
        if self.hashes.len > HASHES_MAX {
            self.as_intervals = true;
            self.hashes = Hashes::default();
        }
    }
}

/// The bulk locks of one owner.
#[derive(Default)]
pub(super) struct Bulk {
    shared: Held,
    exclusive: Held,
}

impl Bulk {
    pub fn insert(&mut self, hash: u64, key: &[u8], mode: LockMode) {
        match mode {
            Shared => self.shared.insert(hash, key),
            Exclusive => self.exclusive.insert(hash, key),
        }
    }

    /// The key will be inserted soon: nobody should wait for memory then.
    pub fn prefetch(&self, hash: u64, mode: LockMode) {
        match mode {
            Shared => self.shared.hashes.prefetch(hash),
            Exclusive => self.exclusive.hashes.prefetch(hash),
        }
    }

    /// Keys and intervals.
    pub fn len(&self) -> usize {
        [&self.shared, &self.exclusive].iter().map(|held| held.hashes.len + held.intervals.len()).sum()
    }

    /// Bytes of memory of the sets.
    pub fn bytes(&self) -> usize {
        [&self.shared, &self.exclusive].iter().map(|held| held.hashes.bytes()).sum()
    }

    pub fn insert_interval(&mut self, from: &[u8], to: &[u8]) {
        self.exclusive.intervals.push((from.to_vec(), to.to_vec()));
    }

    /// The mode in which the key is held for certain.
    pub fn held(&self, hash: u64) -> Option<LockMode> {
        match (self.exclusive.hashes.contains(hash), self.shared.hashes.contains(hash)) {
            (true, _) => Some(Exclusive),
            (false, true) => Some(Shared),
            (false, false) => None,
        }
    }

    /// The mode in which the key may be held.
    pub fn may_hold(&self, hash: u64, key: &[u8]) -> Option<LockMode> {
        if self.exclusive.in_interval(key) {
            return Some(Exclusive);
        }
        self.held(hash).or_else(|| self.shared.in_interval(key).then_some(Shared))
    }
}

/// The owners that hold locks in bulk.
#[derive(Default)]
pub(super) struct Registry {
    count: AtomicUsize,
    owners: RwLock<Vec<Arc<LockOwner>>>,
}

impl Registry {
    /// False while nobody holds locks in bulk. To be asked under the mutex of a shard, about keys of that shard.
    #[inline]
    pub fn in_use(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    pub fn owners(&self) -> RwLockReadGuard<'_, Vec<Arc<LockOwner>>> {
        self.owners.read()
    }

    pub fn has(&self, owner: &LockOwner) -> bool {
        self.in_use() && self.owners().iter().any(|other| other.id == owner.id)
    }

    pub fn add(&self, owner: &Arc<LockOwner>) {
        if self.has(owner) {
            return;
        }
        let mut owners = self.owners.write();
        owners.push(owner.clone());
        self.count.store(owners.len(), Ordering::Release);
    }

    /// When this returns nobody materializes locks of the owner any more.
    pub fn remove(&self, owner: &LockOwner) {
        let mut owners = self.owners.write();
        owners.retain(|other| other.id != owner.id);
        self.count.store(owners.len(), Ordering::Release);
    }
}

impl LockTable {
    /// Makes those who hold the key of `place` in bulk holders in its queue.
    #[cold]
    pub(super) fn materialize(&self, shard: &mut Shard, place: SlotId, asking: &LockOwner) {
        let entry = &mut shard.entries[place.slot as usize];
        if entry.queue.held(asking.id) == Some(LockMode::Exclusive) {
            return;
        }
        let join = |queue: &mut LockQueue<_>, owner: &LockOwner, mode: Option<LockMode>| {
            let unknown = mode.filter(|&mode| queue.held(owner.id) < Some(mode));
            if unknown.is_some_and(|mode| queue.request(owner.id, mode) == Answer::New) {
                owner.held.lock().push(place);
            }
        };
        for owner in self.bulk.owners().iter().filter(|owner| owner.id != asking.id) {
            let mode = owner.bulk.read().may_hold(entry.hash, entry.key.bytes());
            join(&mut entry.queue, owner, mode);
        }
        if !entry.queue.is_free() {
            join(&mut entry.queue, asking, asking.bulk.read().held(entry.hash));
        }
    }

    /// Turns the point locks of `owner` that nobody waits for into bulk locks.
    #[cold]
    pub(super) fn gather(&self, owner: &Arc<LockOwner>) {
        self.bulk.add(owner);
        let mut held = owner.held.lock();
        let latest = held.pop();
        let gathered = std::mem::take(&mut *held);
        drop(held);
        let mut kept = Vec::new();
        for place in gathered {
            let mut shard = self.shard(place.shard);
            let entry = &shard.entries[place.slot as usize];
            match entry.queue.held(owner.id) {
                Some(mode) if entry.queue.waiters().next().is_none() => {
                    owner.bulk.write().insert(entry.hash, entry.key.bytes(), mode);
                    Self::release(&mut shard, place.slot, owner.id);
                }
                _ => kept.push(place),
            }
        }
        owner.held.lock().extend(kept.into_iter().chain(latest));
    }

    /// Gives `owner` exclusive locks on all keys from `from` to `to`, both included. Only where nobody else has any:
    /// when a store is opened.
    pub fn lock_keys_within(&self, owner: &Arc<LockOwner>, from: &[u8], to: &[u8]) {
        self.bulk.add(owner);
        owner.bulk.write().insert_interval(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::hash::hash_bytes;

    fn key(k: u32) -> Vec<u8> {
        [&7u32.to_be_bytes()[..], &k.to_be_bytes()].concat()
    }

    #[test]
    fn sets_become_intervals_above_the_bound() {
        let mut bulk = Bulk::default();
        let hash = |k: u32| hash_bytes(&key(k * 2));
        for k in (0..HASHES_MAX as u32).chain(7..9) {
            bulk.insert(hash(k), &key(k * 2), Exclusive);
        }
        assert!((0..HASHES_MAX as u32).all(|k| bulk.held(hash(k)) == Some(Exclusive)));
        assert_eq!(bulk.held(FREE), None);
        assert_eq!(bulk.may_hold(1, &key(11)), None);
        bulk.insert(1 << 60, &key(0xffff_fff0), Exclusive);
        assert_eq!(bulk.held(hash(5)), None);
        assert_eq!(bulk.may_hold(1, &key(11)), Some(Exclusive));
        assert_eq!(bulk.may_hold(1, &key(0xffff_fff1)), None);
        assert_eq!(bulk.may_hold(1, &[0, 0, 0, 8, 0]), None);
        bulk.insert(3, &key(0xffff_fff2), Shared);
        assert_eq!(bulk.may_hold(3, &key(0xffff_fff2)), Some(Shared));
    }
}
