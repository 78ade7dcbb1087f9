//! Range locks of all indexes, and how those who only use point locks pass them by.
//!
//! The rules are in [`range`](super::range), one [`IndexRanges`] per index, in shards by index. A transaction tells of every
//! key that it inserts into an index before the key can be read by others (`intend_insert`); a scan tells of every interval it
//! has read (`lock_range`). What makes this cheap where nobody scans:
//!
//! Each shard counts its scanners. While the count is zero, `intend_insert` only appends the key to a list of its owner, in one of
//! `SLOTS` slots by owner. The first scanner of a shard raises the count and then goes through all slots, moving the shard's
//! keys from the lists to the rules; from then on `intend_insert` goes to the rules. Nobody is overlooked:
//!
//! - `intend_insert` reads the count and appends within one critical section of its slot. If that section comes before the scanner's
//!   visit, the scanner finds the key. If it comes after, the mutex hands on what the scanner did before its visit, so the
//!   count is read as raised. The mutex orders both; the count itself is read relaxed.
//! - At its end an owner takes its list out of the slot, in one critical section too, after its writes are visible. If that
//!   comes before the scanner's visit, the scanner's read, which follows, sees the writes. If it comes after, the keys were
//!   moved, and leaving the rules raises the index's version, by which a scan that read before learns that it must read
//!   again. A list that is taken out while the count is raised raises the version of its indexes as well.
//!
//! So every key is either seen in the list, or in the rules, or in what the scan reads. An owner's list is emptied before its
//! point locks are released.
//!
//! The lists have a bound: from [`LIST_BYTES_MAX`] on a list keeps one *stretch* per index instead, from its least to its
//! greatest key. The rules do the same. A scanner that meets a stretch waits for its owner, though it may have brought nothing
//! in there: it takes, in the other's name, the lock of a stand-in key that belongs to the other and the index alone.
//!
//! A scanner that meets the key of another waits for that key's point lock. Where keys are unique the other has it already;
//! entries of other indexes are not locked by their writers, so the scanner takes the lock in the name of the other: only
//! while the key stands in the rules, that is, before the other's release begins to give point locks back.
//!
//! Mutex order: range shards by ascending number, then a slot, then point shards, then an owner's. One range shard or slot at
//! a time, but for the deadlock search, which locks the places of a cycle together.
//!
//! Rejected: an ordered list that every insert joins (pays for scans that do not come); waiting at commit instead of at the
//! insert (applications expect to wait, and to fail, at the statement); reading other transactions' write buffers (they
//! belong to their threads).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::guards::WaitPlace;
use super::queue::Answer;
use super::range::{IndexRanges, RangeGrant, Stretch};
use super::shard::SlotId;
use super::wait::WaitState;
use super::{LockInfo, LockKind, LockMode, LockOwner, LockTable, Wait};
use crate::base::{Error, IndexId, Result};
use crate::mem::hash::hash_bytes;

pub(super) const SHARDS: usize = 64;
const SLOTS: usize = 64;
/// A list longer than this gives its memory back.
const LIST_BYTES_KEPT: usize = 4096;
/// A list that would be longer than this becomes stretches.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Lists that a slot keeps for the next owners.
const LISTS_KEPT: usize = 4;

/// Few at a time: found faster than hashed.
pub(super) type Indexes = BTreeMap<IndexId, IndexRanges<Arc<LockOwner>>>;

#[repr(align(128))]
struct RangeShard {
    /// Owners that scan, once per index.
    scanners: AtomicU32,
    indexes: Mutex<Indexes>,
}

/// Keys of one owner, each after its length in two bytes.
struct Intentions {
    owner: Arc<LockOwner>,
    keys: Vec<u8>,
    /// Where there were too many.
    stretches: BTreeMap<IndexId, Stretch>,
}

impl Intentions {
    fn fold(&mut self) {
        for key in keys_in(&self.keys) {
            self.stretches.entry(IndexId::of(key)).or_insert_with(|| Stretch::at(key)).widen(key);
        }
        self.keys.clear();
    }
}

#[derive(Default)]
struct Slot {
    lists: Vec<Intentions>,
    spare: Vec<Vec<u8>>,
}

#[repr(align(128))]
#[derive(Default)]
struct PaddedSlot(Mutex<Slot>);

pub(super) struct Ranges {
    shards: Box<[RangeShard]>,
    slots: Box<[PaddedSlot]>,
}

fn keys_in(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = list.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        list = rest;
        Some(key)
    })
}

fn append(list: &mut Vec<u8>, key: &[u8]) {
    list.extend_from_slice(&(key.len() as u16).to_le_bytes());
    list.extend_from_slice(key);
}

impl Slot {
    #[inline]
    fn list(&mut self, owner: &Arc<LockOwner>) -> &mut Intentions {
        let known = self.lists.iter().rposition(|l| l.owner.id == owner.id);
        let at = known.unwrap_or_else(|| {
            let keys = self.spare.pop().unwrap_or_default();
            self.lists.push(Intentions { owner: owner.clone(), keys, stretches: BTreeMap::new() });
            owner.set_beyond(INTENDS);
            self.lists.len() - 1
        });
        &mut self.lists[at]
    }

    #[inline]
    fn add(&mut self, owner: &Arc<LockOwner>, key: &[u8]) {
        let list = self.list(owner);
        if list.keys.len() + key.len() + 2 > LIST_BYTES_MAX {
            list.fold();
        }
        append(&mut list.keys, key);
    }

    fn give_back(&mut self, mut keys: Vec<u8>) {
        if self.spare.len() < LISTS_KEPT && keys.capacity() <= LIST_BYTES_KEPT {
            keys.clear();
            self.spare.push(keys);
        }
    }
}

/// The owner has a list in its slot.
pub(super) const INTENDS: u8 = 1;
/// The owner is known to the rules of some index.
pub(super) const RANGED: u8 = 2;

impl Ranges {
    pub fn new() -> Ranges {
        let shard = |_| RangeShard { scanners: AtomicU32::new(0), indexes: Mutex::default() };
        Ranges { shards: (0..SHARDS).map(shard).collect(), slots: (0..SLOTS).map(|_| PaddedSlot::default()).collect() }
    }

    pub fn number(index: IndexId) -> usize {
        index.0 as usize % SHARDS
    }

    pub fn lock(&self, number: usize) -> MutexGuard<'_, Indexes> {
        self.shards[number].indexes.lock()
    }

    fn slot(&self, owner: &LockOwner) -> MutexGuard<'_, Slot> {
        self.slots[owner.id as usize % SLOTS].0.lock()
    }

    /// Makes `owner` a scanner of `index`. The first of a shard moves the lists' keys to the rules.
    fn join(&self, owner: &Arc<LockOwner>, index: IndexId) -> MutexGuard<'_, Indexes> {
        let number = Self::number(index);
        let mut indexes = self.lock(number);
        if !indexes.entry(index).or_insert_with(|| IndexRanges::new(index)).join(owner.id) {
            return indexes;
        }
        owner.note_index(index);
        if self.shards[number].scanners.fetch_add(1, Ordering::Relaxed) > 0 {
            return indexes;
        }
        for slot in &self.slots {
            let mut slot = slot.0.lock();
            for list in &mut slot.lists {
                let mut others = Vec::new();
                for key in keys_in(&list.keys) {
                    let of = IndexId::of(key);
                    if Self::number(of) != number {
                        append(&mut others, key);
                        continue;
                    }
                    indexes.entry(of).or_insert_with(|| IndexRanges::new(of)).note(list.owner.id, key, &list.owner);
                    list.owner.note_index(of);
                }
                list.keys = others;
                list.stretches.retain(|&of, stretch| {
                    let stays = Self::number(of) != number;
                    if !stays {
                        let ranges = indexes.entry(of).or_insert_with(|| IndexRanges::new(of));
                        ranges.note_stretch(list.owner.id, stretch, &list.owner);
                        list.owner.note_index(of);
                    }
                    stays
                });
            }
        }
        indexes
    }
}

impl LockTable {
    /// Makes `owner` a scanner of `index` until it releases its locks. Returns the index's version: what is read after this
    /// call is as new as that.
    pub fn range_version(&self, owner: &Arc<LockOwner>, index: IndexId) -> u64 {
        self.ranges.join(owner, index)[&index].version()
    }

    /// Locks the interval `[from, to)` of one index, which `owner` has read after `range_version` gave `read`: no other owner
    /// brings a key into it before `owner` releases its locks. Never waits.
    pub fn lock_range(&self, owner: &Arc<LockOwner>, from: &[u8], to: &[u8], read: u64) -> RangeGrant {
        let index = IndexId::of(from);
        let mut indexes = self.ranges.join(owner, index);
        let Some(ranges) = indexes.get_mut(&index) else {
            return RangeGrant::Clean;
        };
        let grant = ranges.lock_range(owner.id, from, to, read);
        if let RangeGrant::Inserting(key) = &grant {
            for other in ranges.inserters_of(owner.id, key) {
                self.lock_in_the_name_of(other, key);
            }
        }
        grant
    }

    /// The first key in `[from, to)` of one index that another owner is bringing in, to be waited for by its point lock; the key may
    /// be a stand-in for many. Nothing is locked for `owner`. If there is none, a read from now on sees every key in there whose
    /// owner has come before.
    pub fn inserting(&self, owner: &Arc<LockOwner>, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
        let index = IndexId::of(from);
        let indexes = self.ranges.join(owner, index);
        let ranges = indexes.get(&index)?;
        let key = ranges.inserting(owner.id, from, to)?;
        for other in ranges.inserters_of(owner.id, &key) {
            self.lock_in_the_name_of(other, &key);
        }
        Some(key)
    }

    /// Gives `other` the point lock of a key that it is known to bring in, unless somebody has it.
    fn lock_in_the_name_of(&self, other: &Arc<LockOwner>, key: &[u8]) {
        let hash = hash_bytes(key);
        let number = self.shard_of(hash);
        let mut shard = self.shard(number);
        let slot = shard.find_or_add(hash, key);
        if self.bulk.in_use() {
            self.materialize(&mut shard, SlotId { shard: number, slot }, other);
        }
        let answer = shard.entries[slot as usize].queue.request(other.id, LockMode::Exclusive);
        if answer == Answer::New {
            other.held.lock().push(SlotId { shard: number, slot });
        }
    }

    /// The insert intention of `owner` for `key`: waits until no other owner has a range lock on it. To be called before the key
    /// can be read by others, and before its point lock is asked for: whoever has locked the range may want to insert the key
    /// itself. True if it waited.
    ///
    /// # Errors
    /// As `lock`.
    pub fn intend_insert(&self, owner: &Arc<LockOwner>, key: &[u8], wait: Wait) -> Result<bool> {
        let index = IndexId::of(key);
        let number = Ranges::number(index);
        {
            let mut slot = self.ranges.slot(owner);
            if self.ranges.shards[number].scanners.load(Ordering::Relaxed) == 0 {
                slot.add(owner, key);
                return Ok(false);
            }
        }
        self.intend_among_locks(owner, key, wait)
    }

    /// `owner` may have brought in any key from `from` to `to`, both of one index and both included. Only where nobody scans:
    /// when a store is opened.
    pub fn intend_insert_within(&self, owner: &Arc<LockOwner>, from: &[u8], to: &[u8]) {
        let mut slot = self.ranges.slot(owner);
        let stretch = slot.list(owner).stretches.entry(IndexId::of(from)).or_insert_with(|| Stretch::at(from));
        stretch.widen(from);
        stretch.widen(to);
    }

    #[cold]
    fn intend_among_locks(&self, owner: &Arc<LockOwner>, key: &[u8], wait: Wait) -> Result<bool> {
        if owner.is_interrupted() {
            return Err(Error::Interrupted);
        }
        let index = IndexId::of(key);
        let mut indexes = self.ranges.lock(Ranges::number(index));
        let ranges = indexes.entry(index).or_insert_with(|| IndexRanges::new(index));
        if ranges.intend_insert(owner.id, key, owner) {
            owner.note_index(index);
            return Ok(false);
        }
        let Wait::TimeoutUs(timeout_us) = wait else {
            return Err(Error::LockBusy);
        };
        owner.note_index(index);
        let length = ranges.enqueue(owner.id, key, owner.clone());
        let place = WaitPlace::Range(index);
        self.begin_wait(owner, place);
        drop(indexes);
        self.finish_wait(owner, place, timeout_us, length)?;
        Ok(true)
    }

    /// Gives back the range locks of `owner`, which scans no more. Its intentions stay until its end.
    pub fn unlock_ranges(&self, owner: &Arc<LockOwner>) {
        let indexes = owner.indexes.lock().clone();
        self.leave_ranges(indexes, |ranges| ranges.leave(owner.id, |waiter| waiter.end_wait(WaitState::Granted)));
    }

    /// `leave` takes an owner out of the ranges of each of these indexes, and says whether it was a scanner there.
    fn leave_ranges(&self, indexes: Vec<IndexId>, leave: impl Fn(&mut IndexRanges<Arc<LockOwner>>) -> bool) {
        for index in indexes {
            let number = Ranges::number(index);
            let mut indexes = self.ranges.lock(number);
            let Some(ranges) = indexes.get_mut(&index) else { continue };
            if leave(ranges) {
                self.ranges.shards[number].scanners.fetch_sub(1, Ordering::Relaxed);
            }
            if ranges.is_free() {
                indexes.remove(&index);
            }
        }
    }

    /// Takes `owner` out of lists and rules.
    #[cold]
    pub(super) fn release_ranges(&self, owner: &Arc<LockOwner>) {
        if owner.beyond() & INTENDS != 0 {
            let list = {
                let mut slot = self.ranges.slot(owner);
                let at = slot.lists.iter().position(|l| l.owner.id == owner.id);
                at.map(|at| slot.lists.swap_remove(at))
            };
            if let Some(list) = list {
                let mut last = None;
                for index in keys_in(&list.keys).map(IndexId::of).chain(list.stretches.keys().copied()) {
                    let number = Ranges::number(index);
                    if last != Some(index) && self.ranges.shards[number].scanners.load(Ordering::Relaxed) > 0 {
                        if let Some(ranges) = self.ranges.lock(number).get_mut(&index) {
                            ranges.touch();
                        }
                    }
                    last = Some(index);
                }
                self.ranges.slot(owner).give_back(list.keys);
            }
        }
        // Nobody else adds indexes once the list is gone.
        let indexes = std::mem::take(&mut *owner.indexes.lock());
        self.leave_ranges(indexes, |ranges| ranges.release(owner.id, |waiter| waiter.end_wait(WaitState::Granted)));
        owner.clear_beyond();
    }

    /// Range locks and waiters of all indexes, for display.
    pub(super) fn ranges_snapshot(&self, out: &mut Vec<LockInfo>) {
        for number in 0..SHARDS {
            for ranges in self.ranges.lock(number).values() {
                for (owner, from, to) in ranges.locked() {
                    let kind = LockKind::Range { end: to.to_vec() };
                    out.push(LockInfo { owner, key: from.to_vec(), kind, waiting: false });
                }
                for (owner, key) in ranges.waiters() {
                    out.push(LockInfo { owner, key: key.to_vec(), kind: LockKind::Insert, waiting: true });
                }
            }
        }
    }

    /// Intervals locked in the indexes of a shard.
    pub(super) fn locked_in(&self, number: usize) -> usize {
        self.ranges.lock(number).values().map(|ranges| ranges.locked().count()).sum()
    }

    /// Memory of lists and rules, about.
    #[cfg(test)]
    pub(super) fn announced_bytes(&self) -> usize {
        let lists = self.ranges.slots.iter().map(|s| s.0.lock().lists.iter().map(|l| l.keys.capacity()).sum::<usize>());
        let rules =
            self.ranges.shards.iter().map(|s| s.indexes.lock().values().map(|r| r.intended_bytes()).sum::<usize>());
        lists.sum::<usize>() + rules.sum::<usize>()
    }

    #[cfg(test)]
    pub(super) fn ranges_are_empty(&self) -> bool {
        let shards =
            self.ranges.shards.iter().all(|s| s.indexes.lock().is_empty() && s.scanners.load(Ordering::Relaxed) == 0);
        shards && self.ranges.slots.iter().all(|s| s.0.lock().lists.is_empty())
    }
}
