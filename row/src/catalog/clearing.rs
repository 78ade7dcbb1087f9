//! Giving back the space of indexes that no table has any more.
//!
//! A change of the catalog notes them in its own write and adds them here once it is durable; then its thread clears them. What
//! fails then is no part of the statement: the note stays, the reason is told once, and it is tried again by the next change
//! that drops something, by the next start, and in between by the engine's housekeeping, after pauses that double.
//!
//! Clearing costs a sync. Of drops that follow each other (DROP DATABASE) those that free no file wait for the next
//! ones, and at most for the housekeeping of the same second.
//!
//! Rejected: leaving all clearing to housekeeping. A full disk would get its space back some time after the DROP has returned.

use super::Change;
use super::format;
use crate::event::{Event, Teller};
use crate::kv::{Backoff, CrashPoint, Engine, IndexId};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::thread::ThreadId;

/// Drops so soon after an attempt are taken to be some of many.
const SOON_US: u64 = 100_000;
/// So many indexes are cleared together at most: some ten kilobytes of the manifest and of the log.
const PENDING_MAX: usize = 2048;

/// First and longest pause after failures.
const PAUSE_MIN_US: u64 = 1_000_000;
const PAUSE_MAX_US: u64 = 32_000_000;

/// See the module.
pub struct Clearing {
    events: Teller,
    /// Indexes that the engine still has to drop, or whose notes are there.
    pending: Mutex<BTreeSet<IndexId>>,
    attempts: Mutex<Attempts>,
    /// Signalled when nobody is at it any more.
    over: Condvar,
}

/// Attempts: who is at one, and what came of those since the last that succeeded.
struct Attempts {
    /// The thread that is at it. It holds no lock meanwhile: what fails in the engine then is told to a listener, who may drop
    /// tables.
    by: Option<ThreadId>,
    /// The engine's time of the last of all.
    last_us: Option<u64>,
    /// In which housekeeping leaves it.
    pauses: Backoff,
    /// Why it failed, as told.
    told: Option<String>,
}

/// The calling thread is at it until this drops.
struct Attempting<'a>(&'a Clearing);

impl Drop for Attempting<'_> {
    fn drop(&mut self) {
        self.0.attempts.lock().by = None;
        self.0.over.notify_all();
    }
}

impl Clearing {
    /// With what the notes of the catalog say.
    pub fn new(pending: BTreeSet<IndexId>, events: Teller) -> Clearing {
        let pauses = Backoff::new(PAUSE_MIN_US, PAUSE_MAX_US);
        let attempts = Mutex::new(Attempts { by: None, last_us: None, pauses, told: None });
        Clearing { events, pending: Mutex::new(pending), attempts, over: Condvar::new() }
    }

    /// These belong to no table, durably. They are cleared later.
    pub fn add(&self, ids: impl IntoIterator<Item = IndexId>) {
        self.pending.lock().extend(ids);
    }

    /// These belong to no table, durably. They are cleared now or soon.
    pub fn settle(&self, engine: &Engine, ids: Vec<IndexId>) {
        let frees_files = engine.own_files(&ids);
        self.add(ids);
        if frees_files {
            return self.clear(engine);
        }
        let since_us = self.attempts.lock().last_us.map(|last| engine.now_us().saturating_sub(last));
        // Who is at it now has not seen them; housekeeping will.
        if !may_wait(self.left(), since_us)
            && let Some(attempting) = self.begin(false)
        {
            self.attempt(engine, attempting);
        }
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.pending.lock().len()
    }

    pub fn has(&self, id: IndexId) -> bool {
        self.pending.lock().contains(&id)
    }

    /// Drops them in the engine and removes their notes. What fails stays pending.
    pub fn clear(&self, engine: &Engine) {
        if self.left() > 0
            && let Some(attempting) = self.begin(true)
        {
            self.attempt(engine, attempting);
        }
    }

    /// As `clear`, unless it failed a short while ago or somebody is at it.
    pub fn try_again(&self, engine: &Engine) {
        // A store that has stopped writes nothing.
        if self.left() == 0 || engine.check().is_err() || !self.attempts.lock().pauses.is_due(engine.now_us()) {
            return;
        }
        if let Some(attempting) = self.begin(false) {
            self.attempt(engine, attempting);
        }
    }

    /// Begins an attempt. If another thread is at one, its end is waited for, or there is none. There is none, either, within one
    /// of the same thread, whose listener drops something: housekeeping clears that.
    fn begin(&self, waits: bool) -> Option<Attempting<'_>> {
        let me = std::thread::current().id();
        let mut attempts = self.attempts.lock();
        while let Some(by) = attempts.by {
            if !waits || by == me {
                return None;
            }
            self.over.wait(&mut attempts);
        }
        attempts.by = Some(me);
        Some(Attempting(self))
    }

    fn attempt(&self, engine: &Engine, attempting: Attempting<'_>) {
        let ids: Vec<IndexId> = self.pending.lock().iter().copied().collect();
        if ids.is_empty() {
            return;
        }
        self.attempts.lock().last_us = Some(engine.now_us());
        let notes: Change = ids.iter().map(|id| (format::pending_key(*id), None)).collect();
        // A note that outlives a crash is worked off again, which does nothing.
        let cleared = engine.drop_indexes(&ids).and_then(|()| {
            engine.crash_point(CrashPoint::IndexesDropped);
            engine.write_relief(&notes, false)
        });
        match cleared {
            Ok(_) => {
                engine.crash_point(CrashPoint::NotesRemoved);
                self.pending.lock().retain(|id| ids.binary_search(id).is_err());
                let told = {
                    let mut attempts = self.attempts.lock();
                    attempts.pauses.succeeded();
                    attempts.told.take()
                };
                drop(attempting);
                if told.is_some() {
                    self.events.tell(&Event::SpaceReturned);
                }
            }
            Err(error) => {
                let why = error.to_string();
                let is_news = {
                    let mut attempts = self.attempts.lock();
                    attempts.pauses.failed(engine.now_us());
                    attempts.told.replace(why.clone()).is_none_or(|told| told != why)
                };
                drop(attempting);
                if is_news {
                    self.events.tell(&Event::SpaceKept { indexes: ids.len(), error: &error });
                }
            }
        }
    }
}

/// Whether drops that free no file may wait, with so many indexes pending and so many microseconds after the last attempt.
fn may_wait(pending: usize, since_us: Option<u64>) -> bool {
    pending < PENDING_MAX && since_us.is_some_and(|since| since < SOON_US)
}

#[cfg(test)]
mod tests {
    use super::{PENDING_MAX, SOON_US, may_wait};

    #[test]
    fn drops_that_follow_each_other_wait() {
        assert!(!may_wait(3, None) && !may_wait(3, Some(SOON_US)));
        assert!(may_wait(3, Some(0)) && may_wait(PENDING_MAX - 1, Some(SOON_US - 1)));
        assert!(!may_wait(PENDING_MAX, Some(0)));
    }
}
