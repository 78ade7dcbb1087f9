//! What keeps the purge of expired rows and changes of tables apart, and what the purge has done.
//!
//! The purge has no session of the server, and so no metadata lock: a table could be altered, emptied or replaced while it removes rows.
//! It works in short batches, each within the gate ([`Gate::batch`]). Whoever changes a table in the catalog is in the gate meanwhile
//! ([`Gate::change`]): a batch that runs is told to end at once, and none begins. For as long as new indexes of a table are built it is left
//! alone altogether ([`Gate::keep_away`]).
//!
//! # Invariants
//! A batch opens its table within the gate, and has ended its transaction when it leaves. The purge waits for nobody: where it cannot be
//! in the gate it comes again. So changes wait for one batch at most, and never for a lock or for memory that a batch waits for.
//!
//! Rejected: a lock for each table. Renames and drops of many tables would have to take them in one order, and a batch is short.

use crate::kill_switch::KillSwitch;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// See the module.
#[derive(Default)]
pub struct Gate {
    /// Written by a batch, read by changes. A batch only tries, so readers wait for no writer that waits.
    working: RwLock<()>,
    /// Changes that wait for a batch to end.
    wanted: AtomicUsize,
    /// Who works in batches.
    worker: Mutex<Option<Arc<KillSwitch>>>,
    /// Numbers of tables that are left alone, and by how many.
    kept: Mutex<HashMap<u64, u32>>,
    /// What was done.
    pub counts: Counts,
}

/// What the purge has done since the start.
#[derive(Default)]
pub struct Counts {
    /// Rows removed.
    pub removed: AtomicU64,
    /// Rows left for later, as somebody had locked them.
    pub locked: AtomicU64,
    /// Rows or entries looked at.
    pub looked: AtomicU64,
    /// Tables gone through.
    pub passes: AtomicU64,
    /// Batches that failed.
    pub failed: AtomicU64,
}

/// A table is left alone until this drops.
pub struct KeptAway {
    gate: Arc<Gate>,
    table: u64,
}

impl Gate {
    /// For a change of tables: until the guard drops no batch runs. Not held across a call that begins another change on another thread.
    pub fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        if let Some(worker) = &*self.worker.lock() {
            worker.kill();
        }
        let guard = self.working.read_recursive();
        self.wanted.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// The table of this number is left alone from now on.
    pub fn keep_away(self: &Arc<Gate>, table: u64) -> KeptAway {
        let _change = self.change();
        *self.kept.lock().entry(table).or_default() += 1;
        KeptAway { gate: self.clone(), table }
    }

    /// Who works in batches from now on, so that it can be told to end one.
    pub fn set_worker(&self, worker: Option<Arc<KillSwitch>>) {
        *self.worker.lock() = worker;
    }

    /// For a batch on the table of this number; `None` if it is not the time.
    pub fn batch(&self, table: u64) -> Option<RwLockWriteGuard<'_, ()>> {
        let guard = self.working.try_write()?;
        let is_free = !self.is_wanted() && !self.kept.lock().contains_key(&table);
        is_free.then_some(guard)
    }

    /// A batch that runs is to end.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }
}

impl Drop for KeptAway {
    fn drop(&mut self) {
        let mut kept = self.gate.kept.lock();
        if let Some(count) = kept.get_mut(&self.table) {
            *count -= 1;
            if *count == 0 {
                kept.remove(&self.table);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_begins_while_a_table_changes_or_is_kept_away() {
        let gate = Arc::new(Gate::default());
        assert!(gate.batch(7).is_some());
        let change = gate.change();
        let again = gate.change();
        assert!(gate.batch(7).is_none());
        drop((change, again));
        let (kept, twice) = (gate.keep_away(7), gate.keep_away(7));
        assert!(gate.batch(7).is_none() && gate.batch(8).is_some());
        drop(kept);
        assert!(gate.batch(7).is_none());
        drop(twice);
        assert!(gate.batch(7).is_some());
    }

    /// A change that finds a batch at work tells it to end, and waits for it.
    #[test]
    fn a_change_ends_the_batch_that_runs() {
        let gate = Arc::new(Gate::default());
        let worker = Arc::new(KillSwitch::default());
        gate.set_worker(Some(worker.clone()));
        let batch = gate.batch(1).unwrap();
        std::thread::scope(|scope| {
            let change = scope.spawn(|| drop(gate.change()));
            while !gate.is_wanted() {
                std::thread::yield_now();
            }
            while !worker.is_killed() {
                std::thread::yield_now();
            }
            assert!(!change.is_finished());
            drop(batch);
        });
        assert!(!gate.is_wanted() && gate.batch(1).is_some());
    }
}
