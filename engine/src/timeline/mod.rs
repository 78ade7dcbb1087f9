//! The timeline: which sequence number each second of the past has, while a store keeps a history.
//!
//! ```text
//! marks      which commits a moment shows, when a second gets a mark, what is forgotten: pure
//! entry      the bytes in the store
//! this       the list in memory: the commit pipeline adds to it, merges keep what it names
//! ```
//!
//! What a store does with it (reads it when it is opened, forgets, is asked for a moment) is `crate::past`.
//!
//! # Invariants
//! 1. A mark is in the log in front of the first commit, or prepare, that it does not show: none of these is durable without it.
//! 2. A merge keeps what the numbers of all marks in memory see. A mark leaves memory only once a floor above it is durable: no later
//!    opening believes that what it saw is there.
//! 3. While the history is off, the durable floor is [`NEVER`].
//! 4. A durable mark is believed if it is above the floor in time, and not below it in number: of a history that ended because the clock
//!    was set back, marks may lie in the future.

pub(crate) mod entry;
pub(crate) mod marks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use self::marks::{Due, Found, Mark, Marks, NEVER};
use crate::base::SeqNo;
use crate::io::Clock;

/// See the module.
pub(crate) struct Timeline {
    clock: Arc<dyn Clock>,
    /// Commits make marks.
    is_on: AtomicBool,
    /// What a crash has left prepared is being decided: what is committed meanwhile belongs to the time before.
    is_held: AtomicBool,
    /// The clock was set back: there are no marks until the history begins anew.
    is_set_back: AtomicBool,
    retention: AtomicU64,
    /// The newest second with a mark; a copy.
    newest: AtomicU64,
    marks: Mutex<Marks>,
}

/// Its figures.
#[derive(Clone, Copy, Default)]
pub(crate) struct TimelineFigures {
    pub retention: u64,
    pub marks: u64,
    pub oldest: u64,
}

impl Timeline {
    /// One that is off.
    pub fn new(clock: Arc<dyn Clock>) -> Timeline {
        Timeline {
            clock,
            is_on: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            is_set_back: AtomicBool::new(false),
            retention: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            marks: Mutex::new(Marks::new(NEVER, Vec::new())),
        }
    }

    /// Seconds since 1970.
    pub fn now(&self) -> u64 {
        self.clock.unix_us() / 1_000_000
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub fn retention(&self) -> u64 {
        self.retention.load(Ordering::Relaxed)
    }

    pub fn set_retention(&self, seconds: u64) {
        self.retention.store(seconds, Ordering::Relaxed);
    }

    /// Makes no marks, or makes them again.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
    }

    /// True if the history has to begin anew.
    pub fn is_set_back(&self) -> bool {
        self.is_set_back.load(Ordering::Relaxed)
    }

    /// Goes on with a list that was stored.
    pub fn resume(&self, list: Marks) {
        let mut marks = self.marks.lock();
        self.newest.store(list.newest().unwrap_or(0), Ordering::Relaxed);
        *marks = list;
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Begins anew with an empty list of which nothing is known; marks come from now on. Returns the seconds whose marks are gone.
    pub fn restart(&self) -> Vec<u64> {
        let gone = self.empty();
        self.is_set_back.store(false, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
        gone
    }

    /// No marks any more. Returns the seconds whose marks are gone.
    pub fn end(&self) -> Vec<u64> {
        self.is_on.store(false, Ordering::Relaxed);
        self.is_set_back.store(false, Ordering::Relaxed);
        self.empty()
    }

    fn empty(&self) -> Vec<u64> {
        let mut marks = self.marks.lock();
        self.newest.store(0, Ordering::Relaxed);
        marks.forget(NEVER)
    }

    /// True if the present second may want a mark.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.is_on() && self.now() != self.newest.load(Ordering::Relaxed)
    }

    /// The mark that goes in front of the commit after `last`, if its second has none. Called under the commit order, while it is on.
    #[inline]
    pub fn tick(&self, last: SeqNo) -> Option<Mark> {
        let now = self.now();
        if now == self.newest.load(Ordering::Relaxed) {
            return None;
        }
        self.enter(now, last)
    }

    #[cold]
    fn enter(&self, now: u64, last: SeqNo) -> Option<Mark> {
        if self.is_set_back() || self.is_held.load(Ordering::Relaxed) {
            return None;
        }
        let mut marks = self.marks.lock();
        match marks.due(now, last) {
            Due::Mark(mark) => {
                self.newest.store(now, Ordering::Relaxed);
                Some(mark)
            }
            Due::Nothing => None,
            Due::SetBack => {
                self.is_set_back.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Finds a moment, when the newest commit is `last`, and has it held by `register` before it can be forgotten. Called under the
    /// commit order.
    pub fn find<R>(&self, moment: u64, last: SeqNo, register: impl FnOnce(SeqNo) -> R) -> Result<R, Found> {
        let marks = self.marks.lock();
        if !self.is_on() || self.is_set_back() {
            return Err(Found::Forgotten(None));
        }
        match marks.find(moment, self.now(), self.retention(), last) {
            Found::Seq(seq) => Ok(register(seq)),
            other => Err(other),
        }
    }

    /// The second up to which moments are to be forgotten, if that is due.
    pub fn expired(&self) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        self.marks.lock().expired(self.now(), self.retention())
    }

    /// True if the clock is so far back that the history has to begin anew.
    pub fn check_clock(&self) -> bool {
        self.is_on() && (self.is_set_back() || self.marks.lock().is_set_back(self.now()))
    }

    /// Forgets moments, once that is durable. Returns the seconds whose marks are gone.
    pub fn forget(&self, floor: u64) -> Vec<u64> {
        self.marks.lock().forget(floor)
    }

    /// The numbers that readers of the past may ask for, ascending. Who drops versions loads the visible number before this, and looks
    /// at the live read points after it: whoever registers a number that is not in the list registers one at or above that.
    pub fn pinned(&self) -> Vec<SeqNo> {
        self.marks.lock().pinned()
    }

    /// The least of them.
    pub fn oldest_pinned(&self) -> Option<SeqNo> {
        self.marks.lock().oldest_pinned()
    }

    /// True if a second has a mark.
    pub fn has(&self, second: u64) -> bool {
        self.marks.lock().has(second)
    }

    /// Moments up to this one are unknown.
    pub fn floor(&self) -> u64 {
        self.marks.lock().floor()
    }

    pub fn figures(&self) -> TimelineFigures {
        let marks = self.marks.lock();
        let retention = self.retention();
        let oldest = match self.is_on() && !self.is_set_back() {
            true => marks.oldest(self.now(), retention).unwrap_or(0),
            false => 0,
        };
        TimelineFigures { retention, marks: marks.len() as u64, oldest }
    }
}
