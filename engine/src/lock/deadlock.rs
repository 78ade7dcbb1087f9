//! Deadlocks: cycles of waits, found by those who wait.
//!
//! A waiter looks for a cycle through itself after a short wait (at once if the queue is long), then periodically. The
//! search reads one shard at a time and may see a cycle that never was, so the places of a found cycle are latched together
//! and every edge is checked again before anybody is shot. No cycle is missed: every new edge appears with the beginning of
//! a wait, and the one whose wait closed the cycle finds all other edges in place.
//!
//! The victim is the one that the [`WaitObserver`](super::WaitObserver) prefers, else the one that has done the least work;
//! of equals, the youngest.
//!
//! Rejected: detection on every wait (pays for what short waits never need).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::latch::WaitPlace;
use super::wait::WaitState;
use super::{Deadlock, LockOwner, LockTable};

/// Times of the deadlock search, in microseconds of real time.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// Wait before the first search.
    pub first_search_us: u64,
    /// Wait between later searches.
    pub next_search_us: u64,
    /// Number of waiters in a queue from which on the first search is immediate.
    pub long_queue: usize,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions { first_search_us: 1_000, next_search_us: 100_000, long_queue: 16 }
    }
}

/// An owner on a cycle and the place where it waits.
pub(super) type Edge = (Arc<LockOwner>, WaitPlace);

impl LockTable {
    fn blockers_of(&self, id: u64, place: WaitPlace) -> Vec<u64> {
        self.latch(&[place]).blockers(id, place)
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

    /// Looks for a deadlock of `owner` and shoots the victim. True if another owner was shot, so that a further cycle
    /// may remain.
    pub(super) fn break_cycle(&self, owner: &Arc<LockOwner>, place: WaitPlace) -> bool {
        let Some(cycle) = self.find_cycle(owner, place) else {
            return false;
        };
        let observer = self.observer.read().clone();
        let ids: Vec<u64> = cycle.iter().map(|(waiter, _)| waiter.id).collect();
        let preferred = observer.and_then(|observer| observer.victim(&ids));
        let places: Vec<WaitPlace> = cycle.iter().map(|edge| edge.1).collect();
        let mut latched = self.latch(&places);
        let mut waits = Vec::with_capacity(cycle.len());
        for (i, (waiter, place)) in cycle.iter().enumerate() {
            let (next, _) = &cycle[(i + 1) % cycle.len()];
            let blockers = latched.blockers(waiter.id, *place);
            if !blockers.contains(&next.id) {
                return false;
            }
            waits.push(latched.wait_info(waiter, *place, blockers));
        }
        let lightest = cycle.iter().min_by_key(|(owner, _)| (owner.weight(), std::cmp::Reverse(owner.id)));
        let Some((victim, place)) = cycle.iter().find(|(owner, _)| Some(owner.id) == preferred).or(lightest) else {
            return false;
        };
        if let Some(at) = waits.iter().position(|wait| wait.owner == victim.id) {
            waits.rotate_left(at);
        }
        self.deadlocks.fetch_add(1, Ordering::Relaxed);
        *self.latest_deadlock.lock() = Some(Deadlock { waits, victim: victim.id });
        latched.cancel(victim.id, *place);
        victim.end_wait(WaitState::Victim);
        victim.id != owner.id
    }
}
