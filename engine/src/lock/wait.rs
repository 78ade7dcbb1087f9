//! Waiting, from the request that is not granted at once to the reason why the wait ended.
//!
//! A waiter parks on its own [`LockOwner`]; whoever ends the wait (a grant, a deadlock verdict, an interrupt) writes the
//! reason there and wakes it. Reasons are written only under the mutex of the shard in whose queue the waiter stands,
//! together with its removal from the queue. So a waiter that gives up latches its place first and looks once more.
//!
//! While it waits, the waiter looks for deadlocks ([`deadlock`](super::deadlock)) and tells the [`WaitObserver`] for whom it
//! waits.
//!
//! Time: waits for locks use real time rather than the `Clock`, as do all that park a thread with a deadline: parking needs
//! it, and no decision but giving up depends on it.
//!
//! Rejected: a condition variable per shard (wakes everybody for one grant).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::deadlock::Search;
use super::guards::WaitPlace;
use super::report::Deadlock;
use super::{LockOwner, LockTable};
use crate::base::{Error, Result};
use crate::io::{Blocking, Stopwatch, Waiting};

/// Takes part in waits: replication has transactions whose order of commits is fixed, and lets the earlier go first.
pub trait WaitObserver: Send + Sync {
    /// `waiter` waits, and cannot have its lock before those that `ahead` returns (numbers of owners) have given it up; none if
    /// the wait is over. They may be thousands, so they are looked up only if asked for. Told when the wait begins, and
    /// again with each search for deadlocks, since others may have come to stand in front. Called on the waiting thread
    /// without any lock of the table; it may interrupt owners, but must not request locks.
    fn waits(&self, waiter: u64, ahead: &dyn Fn() -> Vec<u64>);

    /// Which of the owners on a cycle of waits should give way, if that matters. Called like `waits`.
    fn victim(&self, cycle: &[u64]) -> Option<u64>;

    /// A deadlock was found, and its victim gives way. Called like `waits`, by whoever has found it.
    fn deadlock(&self, _deadlock: &Deadlock) {}
}

/// Where an owner waits, and how the wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitState {
    Idle,
    Waiting(WaitPlace),
    Granted,
    Victim,
}

impl LockTable {
    /// Before the mutex of the queue is unlocked: a search that sees the queue must find its waiters here.
    pub(super) fn begin_wait(&self, owner: &Arc<LockOwner>, place: WaitPlace) {
        owner.wait_number.store(self.waits.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        *owner.wait.lock() = WaitState::Waiting(place);
        self.waiting.lock().insert(owner.id, owner.clone());
    }

    pub(super) fn finish_wait(
        &self,
        owner: &Arc<LockOwner>,
        place: WaitPlace,
        timeout_us: u64,
        length: usize,
    ) -> Result<()> {
        let timer = Stopwatch::begin();
        let result = self.wait(owner, place, timeout_us, length);
        let us = timer.us();
        self.wait_us.fetch_add(us, Ordering::Relaxed);
        self.longest_wait_us.fetch_max(us, Ordering::Relaxed);
        self.waiting.lock().remove(&owner.id);
        *owner.wait.lock() = WaitState::Idle;
        result
    }

    #[cold]
    fn wait(&self, owner: &Arc<LockOwner>, place: WaitPlace, timeout_us: u64, length: usize) -> Result<()> {
        let _waiting = Waiting::begin(Blocking::Lock);
        let begin = Instant::now();
        // A timeout beyond the clock's range never comes.
        let deadline = begin.checked_add(Duration::from_micros(timeout_us));
        self.report_wait(owner, place);
        let mut search_at = begin + Duration::from_micros(self.options.first_search_us(length));
        loop {
            {
                let mut state = owner.wait.lock();
                loop {
                    match *state {
                        WaitState::Granted => return Ok(()),
                        WaitState::Victim => return Err(Error::Deadlock),
                        WaitState::Waiting(_) | WaitState::Idle => {}
                    }
                    let until = deadline.map_or(search_at, |deadline| deadline.min(search_at));
                    if owner.is_interrupted() || Instant::now() >= until {
                        break;
                    }
                    owner.wake.wait_until(&mut state, until);
                }
            }
            let failure = if owner.is_interrupted() {
                Error::Interrupted
            } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                Error::LockTimeout
            } else {
                // One search may only break one of several cycles.
                let mut search = self.break_cycle(owner, place);
                while search == Search::Shot {
                    search = self.break_cycle(owner, place);
                }
                self.report_wait(owner, place);
                let pause_us = match search {
                    Search::Passed => self.options.first_search_us,
                    _ => self.options.next_search_us(length),
                };
                search_at = Instant::now() + Duration::from_micros(pause_us);
                continue;
            };
            let mut guards = self.guards(&[place]);
            // Under the shard's mutex nobody else can end the wait any more: it has either ended or is ended here.
            match *owner.wait.lock() {
                WaitState::Granted => return Ok(()),
                WaitState::Victim => return Err(Error::Deadlock),
                WaitState::Waiting(_) | WaitState::Idle => {}
            }
            guards.cancel(owner.id, place);
            drop(guards);
            if matches!(failure, Error::LockTimeout) {
                self.timeouts.fetch_add(1, Ordering::Relaxed);
            }
            return Err(failure);
        }
    }

    fn report_wait(&self, owner: &LockOwner, place: WaitPlace) {
        let observer = self.observer.read().clone();
        if let Some(observer) = observer {
            observer.waits(owner.id, &|| self.guards(&[place]).ahead(owner.id, place));
        }
    }
}
