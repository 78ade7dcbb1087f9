//! What the table tells about itself: locks and waits for display, deadlocks that were broken, totals.
//!
//! A look goes shard by shard, so that it never stops the whole table: each lock and each wait that it shows is or was so,
//! all of them together need not have been. A deadlock is described while the places of its waits are guards together: it
//! was as it says.
//!
//! Rejected: all shards locked for a look (every transaction would wait for a glance at the status).

use std::fmt;
use std::sync::atomic::Ordering;

use super::deadlock::Edge;
use super::{LockMode, LockTable, range};

/// What is locked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// One key.
    Row(LockMode),
    /// The interval from the key up to `end`, which is not part of it, against new keys.
    Range {
        /// Where it ends.
        end: Vec<u8>,
    },
    /// The key is to be new in an interval that others have locked.
    Insert,
    /// All keys that one owner has brought into an index: too many to be told apart. The key is the prefix of the index.
    NewKeys,
}

impl LockKind {
    /// What a lock in a queue is for those who look at it: the key and the kind.
    pub(super) fn of_point(key: &[u8], mode: LockMode) -> (Vec<u8>, LockKind) {
        match range::stands_for(key) {
            Some(index) => (index.prefix().to_vec(), LockKind::NewKeys),
            None => (key.to_vec(), LockKind::Row(mode)),
        }
    }
}

/// One held or awaited lock, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockInfo {
    /// Number of the owner.
    pub owner: u64,
    /// The key, or where the interval begins.
    pub key: Vec<u8>,
    /// What is held or asked for.
    pub kind: LockKind,
    /// True if the owner waits for it.
    pub waiting: bool,
}

/// A wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitInfo {
    /// Who waits.
    pub owner: u64,
    /// See `LockOwner::set_tag`.
    pub tag: u64,
    /// See `LockOwner::set_weight`.
    pub weight: u64,
    /// The key it waits for.
    pub key: Vec<u8>,
    /// `Row`, `Insert` or `NewKeys`.
    pub kind: LockKind,
    /// Whom it waits for.
    pub blockers: Vec<u64>,
}

/// A deadlock that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The cycle, from the victim on: each waits for the next one, and the last for the victim.
    pub waits: Vec<WaitInfo>,
    /// Who had to give up.
    pub victim: u64,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for wait in &self.waits {
            let what = match wait.kind {
                LockKind::Row(LockMode::Shared) => "a shared lock on",
                LockKind::Row(LockMode::Exclusive) => "an exclusive lock on",
                LockKind::Range { .. } | LockKind::Insert => "the right to insert",
                LockKind::NewKeys => "a shared lock on the new keys of index",
            };
            write!(f, "owner {} (weight {}) waits for {what} ", wait.owner, wait.weight)?;
            for byte in &wait.key {
                write!(f, "{byte:02x}")?;
            }
            writeln!(f, " held by {:?}", wait.blockers)?;
        }
        write!(f, "victim: owner {}", self.victim)
    }
}

/// Totals since the table was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LockCounters {
    /// Requests that had to wait.
    pub waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Waits that ended by timeout.
    pub timeouts: u64,
    /// Microseconds of waits that are over.
    pub wait_us: u64,
    /// Microseconds of the longest of them.
    pub longest_wait_us: u64,
}

/// What is locked at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LockUsage {
    /// Keys that somebody has locked or waits for; those locked in bulk once for each owner.
    pub keys: u64,
    /// Intervals locked against new keys.
    pub intervals: u64,
    /// Bytes of memory of the locked keys; without those of intervals and long keys.
    pub bytes: u64,
}

impl LockTable {
    /// All locks, but those held in bulk, and waits, shard by shard: each shard is consistent, the whole need not be.
    pub fn snapshot(&self) -> Vec<LockInfo> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let shard = shard.0.lock();
            for entry in &shard.entries {
                let held = entry.queue.holders().map(|h| (h, false));
                for ((owner, mode), waiting) in held.chain(entry.queue.waiters().map(|w| (w, true))) {
                    let (key, kind) = LockKind::of_point(entry.key.bytes(), mode);
                    out.push(LockInfo { owner, key, kind, waiting });
                }
            }
        }
        self.ranges_snapshot(&mut out);
        out
    }

    /// All waits, one after the other: each is consistent, the whole need not be.
    pub fn waits(&self) -> Vec<WaitInfo> {
        let ids: Vec<u64> = self.waiting.lock().keys().copied().collect();
        let edges = ids.into_iter().filter_map(|id| self.waiting_at(id));
        let info = |(waiter, place): Edge| {
            let mut guards = self.guards(&[place]);
            let blockers = guards.blockers(waiter.id, place);
            (!blockers.is_empty()).then(|| guards.wait_info(&waiter, place, blockers))
        };
        edges.filter_map(info).collect()
    }

    /// Owners that wait at this moment.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Totals since the table was made.
    pub fn counters(&self) -> LockCounters {
        LockCounters {
            waits: self.waits.load(Ordering::Relaxed),
            deadlocks: self.deadlocks.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            wait_us: self.wait_us.load(Ordering::Relaxed),
            longest_wait_us: self.longest_wait_us.load(Ordering::Relaxed),
        }
    }
}
