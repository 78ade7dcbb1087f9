//! How many rows the server has read and changed.
//!
//! Each session counts in cells of its own, which only its thread writes and anybody may read: a row costs a load and a store of
//! memory that no other core has. What a session has counted is added to the total when it ends.
//!
//! Invariant: a total never goes down. A session ends its count and gives it to the total under one mutex.
//!
//! Rejected: one counter for all (threads would take its cache line from each other, for each row); counts that are added up at
//! the end of a statement (a scan of an hour would show nothing for an hour).

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// Rows given to the server.
    pub read: u64,
    /// Rows inserted.
    pub inserted: u64,
    /// Rows updated, without those that became what they were.
    pub updated: u64,
    /// Rows deleted.
    pub deleted: u64,
}

#[derive(Default)]
#[repr(align(128))] // Neighbours share no cache line, nor a pair of them.
struct Cells {
    read: AtomicU64,
    inserted: AtomicU64,
    updated: AtomicU64,
    deleted: AtomicU64,
}

impl Cells {
    fn rows(&self) -> Rows {
        Rows {
            read: self.read.load(Relaxed),
            inserted: self.inserted.load(Relaxed),
            updated: self.updated.load(Relaxed),
            deleted: self.deleted.load(Relaxed),
        }
    }
}

impl std::ops::AddAssign for Rows {
    fn add_assign(&mut self, more: Rows) {
        self.read += more.read;
        self.inserted += more.inserted;
        self.updated += more.updated;
        self.deleted += more.deleted;
    }
}

#[derive(Default)]
struct State {
    /// Of sessions that have ended.
    ended: Rows,
    live: Vec<Arc<Cells>>,
}

/// The rows of all sessions of a store.
#[derive(Default)]
pub(crate) struct RowTotals(Mutex<State>);

impl RowTotals {
    /// A session's counter.
    pub fn counter(self: &Arc<RowTotals>) -> RowCounter {
        let cells = Arc::<Cells>::default();
        self.0.lock().live.push(cells.clone());
        RowCounter { totals: self.clone(), cells }
    }

    /// What all have counted.
    pub fn rows(&self) -> Rows {
        let state = self.0.lock();
        let mut rows = state.ended;
        state.live.iter().for_each(|cells| rows += cells.rows());
        rows
    }
}

/// The counter of one session.
pub(crate) struct RowCounter {
    totals: Arc<RowTotals>,
    cells: Arc<Cells>,
}

/// One more; by the only thread that writes it.
#[inline]
fn count(cell: &AtomicU64) {
    cell.store(cell.load(Relaxed) + 1, Relaxed);
}

impl RowCounter {
    /// A row was given to the server.
    #[inline]
    pub fn read(&self) {
        count(&self.cells.read);
    }

    /// A row was inserted.
    #[inline]
    pub fn inserted(&self) {
        count(&self.cells.inserted);
    }

    /// A row was updated.
    #[inline]
    pub fn updated(&self) {
        count(&self.cells.updated);
    }

    /// A row was deleted.
    #[inline]
    pub fn deleted(&self) {
        count(&self.cells.deleted);
    }
}

impl Drop for RowCounter {
    fn drop(&mut self) {
        let mut state = self.totals.0.lock();
        state.ended += self.cells.rows();
        state.live.retain(|cells| !Arc::ptr_eq(cells, &self.cells));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Guards that nothing is lost or counted twice when sessions end while somebody looks: a total that went down once would be a
    /// jump by billions in a monitor.
    #[test]
    fn the_total_never_goes_down_while_sessions_come_and_go() {
        const SESSIONS: u64 = 300;
        let totals = Arc::<RowTotals>::default();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut last = Rows::default();
                while !stop.load(Relaxed) {
                    let now = totals.rows();
                    assert!(now.read >= last.read && now.deleted >= last.deleted, "{last:?} {now:?}");
                    last = now;
                }
            });
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..SESSIONS {
                            let counter = totals.counter();
                            (0..10).for_each(|_| counter.read());
                            counter.deleted();
                        }
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            stop.store(true, Relaxed);
            watcher.join().unwrap();
        });
        assert_eq!(totals.rows(), Rows { read: 20 * SESSIONS, deleted: 2 * SESSIONS, ..Rows::default() });
        assert!(totals.0.lock().live.is_empty());
    }
}
