//! Locks held in bulk: what becomes of point locks when one owner has very many.
//!
//! A point lock costs about a hundred bytes. Whenever an owner has gathered [`GATHERED`] of them, those that nobody waits
//! for leave the table and become members of a set: the hash of the key, eight bytes. Above [`HASHES_MAX`] members the
//! sets are given up for one interval per index and mode, from the least to the greatest key so far, which grows with
//! later locks. So the memory has a bound, while the locks of a transaction of a few million rows stay exact.
//!
//! Nobody waits for a bulk lock. Whoever asks for a key first *materializes* it: under the mutex of the key's shard, each
//! owner that has the key in bulk becomes a holder in the queue of the key, and everything goes on as if it had always
//! been one. No rule, no wait and no deadlock search knows of bulk locks.
//!
//! An interval says more than was locked: a key in it may be held by another owner, explicitly, from before; then that
//! owner is the holder. And it does not tell its own owner what that has locked before: such a request is answered as new.
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
use super::LockOwner;
use crate::base::IndexId;

/// Point locks of an owner that are turned into bulk locks together.
pub(super) const GATHERED: usize = 16 << 10;
/// Members of an owner's sets.
const HASHES_MAX: usize = 2 << 20;
const BUCKETS: usize = 4096;

/// A set of hashes: buckets, by the low bits, of sorted numbers.
#[derive(Default)]
struct Hashes {
    buckets: Vec<Vec<u64>>,
    len: usize,
}

impl Hashes {
    fn contains(&self, hash: u64) -> bool {
        let bucket = self.buckets.get(hash as usize % BUCKETS);
        bucket.is_some_and(|bucket| bucket.binary_search(&hash).is_ok())
    }

    fn insert(&mut self, hash: u64) {
        if self.buckets.is_empty() {
            self.buckets.resize_with(BUCKETS, Vec::new);
        }
        let bucket = &mut self.buckets[hash as usize % BUCKETS];
        if let Err(at) = bucket.binary_search(&hash) {
            if bucket.len() == bucket.capacity() {
                // Doubling would leave a quarter of the memory unused.
                bucket.reserve_exact(bucket.len() / 4 + 4);
            }
            bucket.insert(at, hash);
            self.len += 1;
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

    pub fn add(&self, owner: &Arc<LockOwner>) {
        let mut owners = self.owners.write();
        if !owners.iter().any(|other| other.id == owner.id) {
            owners.push(owner.clone());
            self.count.store(owners.len(), Ordering::Release);
        }
    }

    /// When this returns nobody materializes locks of the owner any more.
    pub fn remove(&self, owner: &LockOwner) {
        let mut owners = self.owners.write();
        owners.retain(|other| other.id != owner.id);
        self.count.store(owners.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(k: u32) -> Vec<u8> {
        [&7u32.to_be_bytes()[..], &k.to_be_bytes()].concat()
    }

    #[test]
    fn sets_become_intervals_above_the_bound() {
        let mut bulk = Bulk::default();
        for k in 0..HASHES_MAX as u32 {
            bulk.insert(u64::from(k) << 7, &key(k * 2), Exclusive);
        }
        assert_eq!(bulk.held(5 << 7), Some(Exclusive));
        assert_eq!(bulk.may_hold(1, &key(11)), None);
        bulk.insert(1 << 60, &key(0xffff_fff0), Exclusive);
        assert_eq!(bulk.held(5 << 7), None);
        assert_eq!(bulk.may_hold(1, &key(11)), Some(Exclusive));
        assert_eq!(bulk.may_hold(1, &key(0xffff_fff1)), None);
        assert_eq!(bulk.may_hold(1, &[0, 0, 0, 8, 0]), None);
        bulk.insert(3, &key(0xffff_fff2), Shared);
        assert_eq!(bulk.may_hold(3, &key(0xffff_fff2)), Some(Shared));
    }
}
