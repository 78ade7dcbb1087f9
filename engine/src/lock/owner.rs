//! Owners of locks: what a transaction holds, where it waits, whether it was interrupted.
//!
//! The owner knows where its locks are, so that releasing them needs neither keys nor probes. What it holds is changed by
//! its own thread, and seldom by others who lock in its name ([`super::bulk`], [`super::gap`]).
//!
//! Invariants: an owner waits in at most one place; its mutexes are the last in the order of the [table](super).
//!
//! Rejected: a search of the table for an owner's locks at its end (pays for what others hold).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};

use super::bulk::Bulk;
use super::gap;
use super::shard::SlotId;
use super::wait::WaitState;
use crate::base::IndexId;

/// A transaction as far as locks are concerned. One thread at a time requests and releases locks for it; any thread may
/// interrupt it or read its weight.
pub struct LockOwner {
    pub(super) id: u64,
    pub(super) tag: AtomicU64,
    weight: AtomicU64,
    killed: Arc<AtomicBool>,
    pub(super) held: Mutex<Vec<SlotId>>,
    /// Indexes whose range rules know the owner, in order: asked for each key that enters where somebody scans.
    pub(super) indexes: Mutex<Vec<IndexId>>,
    /// What there is to release besides point locks: see `gap`.
    beyond: AtomicU8,
    pub(super) bulk: RwLock<Bulk>,
    pub(super) wait: Mutex<WaitState>,
    /// Of its waits, the latest one's number among all of the table, in the order in which they began.
    pub(super) wait_number: AtomicU64,
    pub(super) wake: Condvar,
}

impl LockOwner {
    pub(super) fn new(id: u64) -> LockOwner {
        LockOwner {
            id,
            tag: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            killed: Arc::default(),
            held: Mutex::new(Vec::new()),
            indexes: Mutex::new(Vec::new()),
            beyond: AtomicU8::new(0),
            bulk: RwLock::default(),
            wait: Mutex::new(WaitState::Idle),
            wait_number: AtomicU64::new(0),
            wake: Condvar::new(),
        }
    }

    /// The owner's number, unique in its table; a later owner has a higher one.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// Sets the number by which the owner's user knows it, for reports.
    pub fn set_tag(&self, tag: u64) {
        self.tag.store(tag, Ordering::Relaxed);
    }
    /// Sets the work done so far (any unit, the same for all); of a deadlock's participants the lightest is the victim.
    pub fn set_weight(&self, weight: u64) {
        self.weight.store(weight, Ordering::Relaxed);
    }
    /// The work done so far.
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }
    /// Makes the current wait and all later requests fail with [`crate::Error::Interrupted`], until `clear_interrupt`.
    pub fn interrupt(&self) {
        self.killed.store(true, Ordering::SeqCst);
        // The waiter checks the flag while holding this mutex: it either sees it or is parked already.
        let _wait = self.wait.lock();
        self.wake.notify_all();
    }
    /// Ends the effect of `interrupt`: the statement was killed, the transaction goes on.
    pub fn clear_interrupt(&self) {
        self.killed.store(false, Ordering::SeqCst);
    }
    /// Set after `interrupt`: for work that asks often, and longer than the owner lives.
    pub(crate) fn interrupt_flag(&self) -> &Arc<AtomicBool> {
        &self.killed
    }
    /// True after `interrupt`.
    pub fn is_interrupted(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }
    /// Number of locks held, but for those held in bulk.
    pub fn lock_count(&self) -> usize {
        self.held.lock().len()
    }

    pub(super) fn end_wait(&self, state: WaitState) {
        *self.wait.lock() = state;
        self.wake.notify_all();
    }

    pub(super) fn note_index(&self, index: IndexId) {
        add_in_order(&mut self.indexes.lock(), index);
        self.set_beyond(gap::RANGED);
    }
    pub(super) fn set_beyond(&self, flag: u8) {
        self.beyond.fetch_or(flag, Ordering::Relaxed);
    }
    pub(super) fn beyond(&self) -> u8 {
        self.beyond.load(Ordering::Relaxed)
    }
    pub(super) fn clear_beyond(&self) {
        self.beyond.store(0, Ordering::Relaxed);
    }
}

/// Adds what is not there yet.
fn add_in_order<T: Ord>(list: &mut Vec<T>, item: T) {
    if let Err(at) = list.binary_search(&item) {
        list.insert(at, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::cmp::Ordering;

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    struct Counted(u32);

    impl Ord for Counted {
        fn cmp(&self, other: &Counted) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }
    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Counted) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }
    impl PartialEq for Counted {
        fn eq(&self, other: &Counted) -> bool {
            self.cmp(other).is_eq()
        }
    }
    impl Eq for Counted {}

    #[test]
    fn a_key_of_one_index_among_thousands_is_noted_without_passing_the_others() {
        let mut list = Vec::new();
        for round in 0..10 {
            for i in 0..6000u32 {
                add_in_order(&mut list, Counted(i * 7919 % 6000));
            }
            assert_eq!(list.len(), 6000, "round {round}");
        }
        assert!(list.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(COMPARED.get() < 60_000 * 16, "{} comparisons", COMPARED.get());
    }
}
