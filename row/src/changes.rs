//! When a table was last changed by a commit: for reports, and for who keeps the results of queries on it.
//!
//! A kept result is good as long as [`Changes::newest`] is what it was before the query's snapshot was taken. While a commit is on its
//! way nobody can say that: its rows may be visible already, and its number not yet noted.
//!
//! Known since the start only. Transactions note the tables that they write to, once for each statement; of one that was prepared and
//! lost its session nobody knows the tables, and all count as changed.

use crate::kv::SeqNo;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module.
#[derive(Default)]
pub struct Changes {
    /// Commits on their way.
    under_way: AtomicU32,
    newest: AtomicU64,
    /// Unix seconds; 0: none since the start.
    time: AtomicU64,
}

impl Changes {
    /// A transaction that has written to the table is about to commit.
    pub(crate) fn commit_begins(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
    }

    /// It has committed, or failed to; everything up to `visible` is to be seen. `time`: of [`now`], if it is known to have written.
    pub(crate) fn commit_ends(&self, visible: SeqNo, time: Option<u64>) {
        self.newest.fetch_max(visible.0, Ordering::SeqCst);
        // Mostly there already: a second is long.
        if let Some(time) = time.filter(|time| *time > self.time.load(Ordering::Relaxed)) {
            self.time.store(time, Ordering::Relaxed);
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// A snapshot at this number or later has all changes; `None` while a commit is on its way.
    pub fn newest(&self) -> Option<SeqNo> {
        // In this order: what ends before the first look is in the second.
        let quiet = self.under_way.load(Ordering::SeqCst) == 0;
        quiet.then(|| SeqNo(self.newest.load(Ordering::SeqCst)))
    }

    /// Unix seconds of the last commit since the start that wrote to the table.
    pub fn time(&self) -> Option<u64> {
        Some(self.time.load(Ordering::Relaxed)).filter(|&time| time > 0)
    }
}

/// Unix seconds by the system's clock.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
