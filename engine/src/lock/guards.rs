//! Places where owners wait, with their mutexes held together.
//!
//! A wait is in the queue of a key or in the rules of an index. Whoever ends it, or looks at several of them at once, latches
//! their places here: one way to take the mutexes in their order, and one way to ask either kind.
//!
//! Invariant: range shards by ascending number, then shards by ascending number, each once. While a place is guards, no
//! wait there begins or ends.
//!
//! Rejected: one place after the other (while one wait of a cycle is checked, another could end).

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::gap::{Indexes, Ranges};
use super::queue::Ticket;
use super::shard::{Shard, SlotId};
use super::{LockKind, LockMode, LockOwner, LockTable, WaitInfo, granted};
use crate::base::IndexId;

/// Where an owner waits: in the queue of a key, or for a place in an index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitPlace {
    Point(SlotId, Ticket),
    Range(IndexId),
}

/// All places of a cycle, held together.
pub(super) struct Guards<'a> {
    ranges: Vec<(usize, MutexGuard<'a, Indexes>)>,
    shards: Vec<(u32, MutexGuard<'a, Shard>)>,
}

impl Guards<'_> {
    fn shard(&mut self, number: u32) -> &mut Shard {
        let at = self.shards.binary_search_by_key(&number, |s| s.0).expect("a shard of the cycle");
        &mut self.shards[at].1
    }

    fn indexes(&mut self, index: IndexId) -> &mut Indexes {
        let at = self.ranges.binary_search_by_key(&Ranges::number(index), |r| r.0).expect("a shard of the cycle");
        &mut self.ranges[at].1
    }

    /// Whom `id` waits for. Empty if it does not wait there any more (the slot may serve another key, or be gone, by now).
    pub fn blockers(&mut self, id: u64, place: WaitPlace) -> Vec<u64> {
        match place {
            WaitPlace::Point(place, ticket) => {
                let entry = self.shard(place.shard).entries.get(place.slot as usize);
                entry.map_or_else(Vec::new, |entry| entry.queue.blockers(id, ticket))
            }
            WaitPlace::Range(index) => self.indexes(index).get(&index).map_or_else(Vec::new, |r| r.blockers(id)),
        }
    }

    /// Everybody who can get or keep what `id` waits for before it. Nobody can come in front at a range.
    pub fn ahead(&mut self, id: u64, place: WaitPlace) -> Vec<u64> {
        match place {
            WaitPlace::Point(place, ticket) => {
                let entry = self.shard(place.shard).entries.get(place.slot as usize);
                entry.map_or_else(Vec::new, |entry| entry.queue.ahead(id, ticket))
            }
            WaitPlace::Range(_) => self.blockers(id, place),
        }
    }

    /// The wait of `waiter`, which is known to wait there.
    pub fn wait_info(&mut self, waiter: &LockOwner, place: WaitPlace, blockers: Vec<u64>) -> WaitInfo {
        let id = waiter.id;
        let (key, kind) = match place {
            WaitPlace::Point(place, ticket) => {
                let entry = &self.shard(place.shard).entries[place.slot as usize];
                let mode = entry.queue.waits_as(id, ticket).unwrap_or(LockMode::Exclusive);
                LockKind::of_point(entry.key.bytes(), mode)
            }
            WaitPlace::Range(index) => {
                let ranges = self.indexes(index).get(&index);
                let key = ranges.and_then(|r| r.waiters().find(|w| w.0 == id).map(|w| w.1.to_vec()));
                (key.unwrap_or_default(), LockKind::Insert)
            }
        };
        let (tag, weight) = (waiter.tag.load(Ordering::Relaxed), waiter.weight());
        WaitInfo { owner: id, tag, weight, key, kind, blockers }
    }

    /// Takes the waiter `id` out of where it waits.
    pub fn cancel(&mut self, id: u64, place: WaitPlace) {
        match place {
            WaitPlace::Point(place, ticket) => {
                let shard = self.shard(place.shard);
                shard.entries[place.slot as usize].queue.cancel(id, ticket, granted);
                shard.drop_if_free(place.slot);
            }
            WaitPlace::Range(index) => {
                if let Some(ranges) = self.indexes(index).get_mut(&index) {
                    ranges.cancel(id);
                }
            }
        }
    }
}

impl LockTable {
    /// Locks the mutexes of places in the right order.
    pub(super) fn guards(&self, places: &[WaitPlace]) -> Guards<'_> {
        let (mut ranges, mut shards) = (Vec::new(), Vec::new());
        for place in places {
            match *place {
                WaitPlace::Point(place, _) => shards.push(place.shard),
                WaitPlace::Range(index) => ranges.push(Ranges::number(index)),
            }
        }
        ranges.sort_unstable();
        ranges.dedup();
        shards.sort_unstable();
        shards.dedup();
        Guards {
            ranges: ranges.into_iter().map(|n| (n, self.ranges.lock(n))).collect(),
            shards: shards.into_iter().map(|n| (n, self.shard(n))).collect(),
        }
    }
}
