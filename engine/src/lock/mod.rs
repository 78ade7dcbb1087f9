//! Row and range locks, with deadlock detection: shared and exclusive locks on single keys, first come first served; and
//! locks of intervals, which keep new keys out, in [`gap`].
//!
//! The hash of a key picks a [`shard`]; the shard maps full keys to their [`queue::LockQueue`], which holds all rules. An
//! uncontended lock costs one shard mutex and one probe, and allocates nothing. Nothing stays behind for a key without
//! holder and waiter. An owner with very many locks holds most of them in [`bulk`].
//!
//! Who cannot have a lock at once parks in [`wait`], looks for deadlocks through itself in [`deadlock`], and fails at the
//! end of its time. What there is to be seen of all this is in [`report`].
//!
//! Mutex order: range shards, slots (see [`gap`]), shards by ascending number, then an owner's. Who needs several places at
//! once takes them in [`guards`].
//!
//! Rules are tested without threads or time, in [`queue`] and [`range`].
//!
//! Rejected: optimistic validation at commit (applications written for InnoDB expect to wait).

mod bulk;
mod deadlock;
mod gap;
mod guards;
mod owner;
mod queue;
mod range;
mod report;
mod shard;
mod usage;
mod wait;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use self::bulk::{Bulk, GATHERED_FIRST, GATHERED_NEXT, Registry};
pub use self::deadlock::LockOptions;
use self::gap::Ranges;
use self::guards::WaitPlace;
pub use self::owner::LockOwner;
use self::queue::Answer;
pub use self::range::RangeGrant;
pub use self::report::{Deadlock, LockCounters, LockInfo, LockKind, LockUsage, WaitInfo};
use self::shard::{PaddedShard, Shard, SlotId};
pub use self::wait::WaitObserver;
use self::wait::WaitState;
use crate::base::{Error, Result};
use crate::mem::hash::hash_bytes;

/// How strongly a key is locked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockMode {
    /// Excludes exclusive locks of others.
    Shared,
    /// Excludes all locks of others.
    Exclusive,
}

/// Whether to wait for a lock that others hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Fail with [`Error::LockBusy`] instead.
    No,
    /// Wait at most this many microseconds of real time, then fail with [`Error::LockTimeout`].
    TimeoutUs(u64),
}

/// What kind of grant a successful request was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantKind {
    /// The owner had no lock on the key before. Only such a lock may be given back early by `unlock`.
    New,
    /// The owner had this lock or a stronger one.
    AlreadyHeld,
    /// The owner had a shared lock, which is exclusive now.
    Upgraded,
}

/// A successful request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// What the owner had before.
    pub kind: GrantKind,
    /// True if the request waited, so that the row may have changed meanwhile.
    pub waited: bool,
}

/// All row locks of a store.
pub struct LockTable {
    shards: Box<[PaddedShard]>,
    ranges: Ranges,
    bulk: Registry,
    options: LockOptions,
    next_owner: AtomicU64,
    /// Owners that wait, by number: touched only when a wait begins and ends.
    waiting: Mutex<HashMap<u64, Arc<LockOwner>>>,
    waits: AtomicU64,
    wait_us: AtomicU64,
    longest_wait_us: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    observer: RwLock<Option<Arc<dyn WaitObserver>>>,
}

fn granted(_: u64, owner: &Arc<LockOwner>) {
    owner.end_wait(WaitState::Granted);
}

impl LockTable {
    /// A table with `shards` shards, rounded up to a power of two; a few times the number of cores is right.
    pub fn new(shards: usize) -> LockTable {
        LockTable::with_options(shards, LockOptions::default())
    }

    /// As `new`, with other times for the deadlock search.
    pub fn with_options(shards: usize, options: LockOptions) -> LockTable {
        let shards = shards.clamp(1, 1 << 16).next_power_of_two();
        LockTable {
            shards: (0..shards).map(|_| PaddedShard(Mutex::new(Shard::new()))).collect(),
            ranges: Ranges::new(),
            bulk: Registry::default(),
            options,
            next_owner: AtomicU64::new(1),
            waiting: Mutex::new(HashMap::new()),
            waits: AtomicU64::new(0),
            wait_us: AtomicU64::new(0),
            longest_wait_us: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            observer: RwLock::new(None),
        }
    }

    /// A new owner. Before it is dropped, `release_all` must be called.
    pub fn new_owner(&self) -> Arc<LockOwner> {
        Arc::new(LockOwner::new(self.next_owner.fetch_add(1, Ordering::Relaxed)))
    }

    /// Sets who is told of beginning waits.
    pub fn set_observer(&self, observer: Option<Arc<dyn WaitObserver>>) {
        *self.observer.write() = observer;
    }

    fn shard(&self, number: u32) -> MutexGuard<'_, Shard> {
        self.shards[number as usize].0.lock()
    }

    fn shard_of(&self, hash: u64) -> u32 {
        (hash & (self.shards.len() as u64 - 1)) as u32
    }

    /// Locks `key` for `owner`.
    ///
    /// # Errors
    /// `LockBusy` (with `Wait::No`), `LockTimeout`, `Interrupted`: what the owner held before it still holds.
    /// `Deadlock`: likewise, but the transaction must be rolled back.
    pub fn lock(&self, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode, wait: Wait) -> Result<Granted> {
        if owner.is_interrupted() {
            return Err(Error::Interrupted);
        }
        let hash = hash_bytes(key);
        let number = self.shard_of(hash);
        let mut shard = self.shard(number);
        let slot = shard.find_or_add(hash, key);
        let place = SlotId { shard: number, slot };
        let in_bulk = self.bulk.in_use();
        if in_bulk {
            self.materialize(&mut shard, place, owner);
        }
        let queue = &mut shard.entries[slot as usize].queue;
        let kind = match queue.request(owner.id, mode) {
            Answer::New => GrantKind::New,
            Answer::AlreadyHeld => GrantKind::AlreadyHeld,
            Answer::Upgraded => GrantKind::Upgraded,
            Answer::MustWait => {
                let Wait::TimeoutUs(timeout_us) = wait else {
                    return Err(Error::LockBusy);
                };
                let kind = if queue.held(owner.id).is_some() { GrantKind::Upgraded } else { GrantKind::New };
                let (ticket, length) = queue.enqueue(owner.id, mode, owner.clone());
                let wait = WaitPlace::Point(place, ticket);
                self.begin_wait(owner, wait);
                drop(shard);
                self.finish_wait(owner, wait, timeout_us, length)?;
                if kind == GrantKind::New {
                    owner.held.lock().push(place);
                }
                return Ok(Granted { kind, waited: true });
            }
        };
        drop(shard);
        if kind == GrantKind::New {
            if in_bulk {
                owner.bulk.read().prefetch(hash, mode);
            }
            let mut held = owner.held.lock();
            held.push(place);
            if held.len() % GATHERED_NEXT == 0 && (held.len() >= GATHERED_FIRST || self.bulk.has(owner)) {
                drop(held);
                self.gather(owner);
            }
        }
        Ok(Granted { kind, waited: false })
    }

    /// Gives back one lock early; no effect if the owner does not hold it, or holds it in bulk. Only for locks granted as
    /// `New` whose row the statement did not touch.
    pub fn unlock(&self, owner: &Arc<LockOwner>, key: &[u8]) {
        let hash = hash_bytes(key);
        let number = self.shard_of(hash);
        let mut shard = self.shard(number);
        let Some(slot) = shard.find(hash, key) else {
            return;
        };
        if shard.entries[slot as usize].queue.held(owner.id).is_none() {
            return;
        }
        // Held in bulk as well: it was not as new as it was said to be.
        if self.bulk.in_use() && owner.bulk.read().may_hold(hash, key).is_some() {
            return;
        }
        Self::release(&mut shard, slot, owner.id);
        drop(shard);
        let mut held = owner.held.lock();
        // Usually the last one.
        if let Some(at) = held.iter().rposition(|&p| p == SlotId { shard: number, slot }) {
            held.swap_remove(at);
        }
    }

    /// Gives back all locks of `owner`.
    pub fn release_all(&self, owner: &Arc<LockOwner>) {
        if owner.beyond() != 0 {
            self.release_ranges(owner);
        }
        // Before the point locks: what is materialized later would be released by nobody.
        if self.bulk.in_use() {
            self.bulk.remove(owner);
            *owner.bulk.write() = Bulk::default();
        }
        let mut held = std::mem::take(&mut *owner.held.lock());
        for place in held.drain(..) {
            Self::release(&mut self.shard(place.shard), place.slot, owner.id);
        }
        // Keeps the allocation for the next transaction of a reused owner, unless it was a very large one.
        if held.capacity() <= 1024 {
            *owner.held.lock() = held;
        }
    }

    #[inline]
    fn release(shard: &mut Shard, slot: u32, id: u64) {
        shard.entries[slot as usize].queue.release(id, granted);
        shard.drop_if_free(slot);
    }

    /// True if somebody holds `key` exclusively, or may: of locks in bulk it is not always known.
    pub fn is_locked(&self, key: &[u8]) -> bool {
        let hash = hash_bytes(key);
        let shard = self.shard(self.shard_of(hash));
        let exclusive = |(_, mode)| mode == LockMode::Exclusive;
        let held = |slot: u32| shard.entries[slot as usize].queue.holders().any(exclusive);
        shard.find(hash, key).is_some_and(held)
            || self.bulk.in_use()
                && self.bulk.owners().iter().any(|o| o.bulk.read().may_hold(hash, key) == Some(LockMode::Exclusive))
    }

    /// The mode in which `owner` holds `key`.
    pub fn held(&self, owner: &Arc<LockOwner>, key: &[u8]) -> Option<LockMode> {
        let hash = hash_bytes(key);
        let shard = self.shard(self.shard_of(hash));
        let explicit = shard.find(hash, key).and_then(|slot| shard.entries[slot as usize].queue.held(owner.id));
        explicit.max(owner.bulk.read().held(hash))
    }
}

#[cfg(test)]
mod tests;
