//! Tests of the lock table, by kind of lock; what they share.

mod bulk;
mod deadlock;
mod queue;
mod range;

use std::thread;

use super::*;

const LONG: Wait = Wait::TimeoutUs(60_000_000);

fn table() -> LockTable {
    LockTable::with_options(4, LockOptions { first_search_us: 500, next_search_us: 5_000, long_queue: 16 })
}

/// Locks with patience, and lets go of all locks at once.
fn lock_briefly(table: &LockTable, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode) -> Result<Granted> {
    let result = table.lock(owner, key, mode, LONG);
    table.release_all(owner);
    result
}

/// Returns once `count` owners wait; polling stands in for a hook that only tests would need.
fn until_waiting(table: &LockTable, count: usize) {
    while table.snapshot().iter().filter(|l| l.waiting).count() < count {
        thread::yield_now();
    }
}

fn assert_empty(table: &LockTable) {
    assert_eq!(table.snapshot(), vec![]);
    assert!(table.waiting.lock().is_empty());
    assert_eq!(table.shards.iter().map(|s| s.0.lock().live).sum::<usize>(), 0);
    assert!(table.ranges_are_empty());
}

/// Writes down waits, and prefers the owner of a number as victim.
#[derive(Default)]
struct Observer {
    told: Mutex<Vec<(u64, Vec<u64>)>>,
    prefers: AtomicU64,
    latest: Mutex<Option<Deadlock>>,
}

impl WaitObserver for Observer {
    fn waits(&self, waiter: u64, ahead: &dyn Fn() -> Vec<u64>) {
        let ahead = ahead();
        if !ahead.is_empty() {
            self.told.lock().push((waiter, ahead));
        }
    }
    fn deadlock(&self, deadlock: &Deadlock) {
        *self.latest.lock() = Some(deadlock.clone());
    }
    fn victim(&self, cycle: &[u64]) -> Option<u64> {
        cycle.iter().copied().find(|&id| id == self.prefers.load(Ordering::Relaxed))
    }
}

fn key(n: u64) -> Vec<u8> {
    [7u32.to_be_bytes().as_slice(), &n.to_be_bytes()].concat()
}
const INDEX: crate::base::IndexId = crate::base::IndexId(7);
