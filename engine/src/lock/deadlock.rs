//! Deadlocks: cycles of waits, found by those who wait.
//!
//! A waiter looks for a cycle through itself after a short wait (at once if the queue is long). The search reads one shard
//! at a time and may see a cycle that never was, so the places of a found cycle are guards together and every edge is
//! checked again before anybody is shot; if one is gone, the search is repeated soon. No cycle is missed: a new edge either
//! begins a wait or leads to an owner that runs, and the one whose wait closed the cycle finds all other edges in place.
//!
//! Searches are repeated nevertheless, the less often the longer the queue is: all waiters of a queue together search about
//! as often as sixteen do.
//!
//! The victim is the one that the [`WaitObserver`](super::WaitObserver) prefers, else the one that has done the least work;
//! of equals, the one whose wait closed the cycle: the last to begin.
//!
//! Rejected: detection on every wait (pays for what short waits never need).

use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::guards::WaitPlace;
use super::wait::WaitState;
use super::{Deadlock, LockOwner, LockTable};

/// Times of the deadlock search, in microseconds of real time.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// Wait before the first search.
    pub first_search_us: u64,
    /// Wait between later searches, in a queue that is not long.
    pub next_search_us: u64,
    /// Number of waiters in a queue from which on the first search is immediate.
    pub long_queue: usize,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions { first_search_us: 1_000, next_search_us: 100_000, long_queue: 16 }
    }
}

impl LockOptions {
    /// When the first search of a wait begins, in a queue of this length.
    pub(super) fn first_search_us(&self, length: usize) -> u64 {
        if length >= self.long_queue { 0 } else { self.first_search_us }
    }

    /// How long after a search the next one begins.
    pub(super) fn next_search_us(&self, length: usize) -> u64 {
        self.next_search_us.saturating_mul(length.div_ceil(self.long_queue.max(1)).max(1) as u64)
    }
}

/// What a search came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// There is no cycle, or the searcher itself was shot.
    Done,
    /// Another owner was shot: a further cycle may remain.
    Shot,
    /// A cycle was seen that was none any more.
    Passed,
}

/// An owner on a cycle and the place where it waits.
pub(super) type Edge = (Arc<LockOwner>, WaitPlace);

impl LockTable {
    fn blockers_of(&self, id: u64, place: WaitPlace) -> Vec<u64> {
        self.guards(&[place]).blockers(id, place)
    }

    /// The owner `id` and its place, if it waits.
    pub(super) fn waiting_at(&self, id: u64) -> Option<Edge> {
        let owner = self.waiting.lock().get(&id)?.clone();
        let state = *owner.wait.lock();
        match state {
            WaitState::Waiting(place) => Some((owner, place)),
            _ => None,
        }
    }

    /// A shortest cycle of waits through `owner`, as far as can be told without stopping the others.
    fn find_cycle(&self, owner: &Arc<LockOwner>, place: WaitPlace) -> Option<Vec<Edge>> {
        let mut reached: Vec<(Edge, usize)> = vec![((owner.clone(), place), usize::MAX)];
        let mut seen: HashSet<u64> = HashSet::new();
        let mut todo = VecDeque::from([0usize]);
        while let Some(at) = todo.pop_front() {
            let (id, place) = (reached[at].0.0.id, reached[at].0.1);
            for blocker in self.blockers_of(id, place) {
                if blocker == owner.id {
                    let mut cycle = Vec::new();
                    let mut at = at;
                    while at != usize::MAX {
                        cycle.push(reached[at].0.clone());
                        at = reached[at].1;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if seen.insert(blocker) {
                    if let Some(edge) = self.waiting_at(blocker) {
                        reached.push((edge, at));
                        todo.push_back(reached.len() - 1);
                    }
                }
            }
        }
        None
    }

    /// Looks for a deadlock of `owner` and shoots the victim.
    pub(super) fn break_cycle(&self, owner: &Arc<LockOwner>, place: WaitPlace) -> Search {
        let Some(cycle) = self.find_cycle(owner, place) else {
            return Search::Done;
        };
        let observer = self.observer.read().clone();
        let ids: Vec<u64> = cycle.iter().map(|(waiter, _)| waiter.id).collect();
        let preferred = observer.as_ref().and_then(|observer| observer.victim(&ids));
        let places: Vec<WaitPlace> = cycle.iter().map(|edge| edge.1).collect();
        let mut guards = self.guards(&places);
        let mut waits = Vec::with_capacity(cycle.len());
        for (i, (waiter, place)) in cycle.iter().enumerate() {
            let (next, _) = &cycle[(i + 1) % cycle.len()];
            let blockers = guards.blockers(waiter.id, *place);
            if !blockers.contains(&next.id) {
                return Search::Passed;
            }
            waits.push(guards.wait_info(waiter, *place, blockers));
        }
        let lightest = cycle.iter().min_by_key(|(owner, _)| {
            let began = owner.wait_number.load(Ordering::Relaxed);
            (owner.weight(), Reverse(began))
        });
        let Some((victim, place)) = cycle.iter().find(|(owner, _)| Some(owner.id) == preferred).or(lightest) else {
            return Search::Done;
        };
        if let Some(at) = waits.iter().position(|wait| wait.owner == victim.id) {
            waits.rotate_left(at);
        }
        self.deadlocks.fetch_add(1, Ordering::Relaxed);
        let deadlock = Deadlock { waits, victim: victim.id };
        guards.cancel(victim.id, *place);
        victim.end_wait(WaitState::Victim);
        drop(guards);
        if let Some(observer) = observer {
            observer.deadlock(&deadlock);
        }
        if victim.id == owner.id { Search::Done } else { Search::Shot }
    }
}

#[cfg(test)]
mod tests {
    use super::LockOptions;

    #[test]
    fn the_waiters_of_a_queue_search_no_more_often_the_more_they_are() {
        let options = LockOptions::default();
        assert_eq!((options.first_search_us(1), options.first_search_us(16)), (1000, 0));
        for length in [0, 1, 15, 16] {
            assert_eq!(options.next_search_us(length), 100_000);
        }
        for length in (17..20_000).step_by(13) {
            let in_a_second = length as u64 * 1_000_000 / options.next_search_us(length);
            assert!((80..=160).contains(&in_a_second), "{in_a_second} searches a second of {length} waiters");
        }
    }
}
