//! Admission of writes: each is delayed as long as `throttle` says, and where memory is full until a flush has made room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::{Error, Result};
use crate::board::Shared;
use crate::compact::throttle::{Admission, Loads, admission};
use crate::event::{FlushReason, Lag, Work, is_listening};
use crate::io::{Blocking, Waiting};
use crate::parts::Core;
use crate::wal::Room;

/// Waits shorter than this are collected and slept together: a timer costs about as much.
const SLEEP_MIN_NS: u64 = 200_000;
const SLEEP_MAX_NS: u64 = 1_000_000_000;
/// Longest wait between two looks whether the writer was interrupted.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Sublevels at which the delay of writes is that of a load at its limit.
const SUBLEVELS_LIMIT: f64 = 20.0;

impl Core {
    /// How far background work lags behind.
    pub fn loads(&self) -> Loads {
        let state = self.tree.states.load();
        Loads {
            memory_bytes: state.memtable_bytes(),
            memory_limit: self.settings.memtable_budget(),
            sealed: state.sealed.len() as f64,
            sealed_limit: 8.0,
            sublevels: self.board.sublevels.load(Ordering::Relaxed) as f64,
            sublevels_limit: SUBLEVELS_LIMIT,
            debt_bytes: self.board.debt_bytes.load(Ordering::Relaxed) as f64,
            debt_limit: (self.settings.memtable_budget() * 64) as f64,
        }
    }

    fn terms(&self) -> Admission {
        admission(&self.loads())
    }

    /// Lets a writer of `bytes` pass, slowed by what background work lags behind, and gives it room in the log. Called
    /// before any order is taken: a full disk refuses the write while nothing has happened.
    pub fn admit(&self, bytes: usize, is_interrupted: &dyn Fn() -> bool) -> Result<Room<'_>> {
        self.pass(bytes as u64, is_interrupted)?;
        self.reserve(bytes)
    }

    /// Room in the log for a record of up to `bytes` bytes. A full disk is told.
    pub fn reserve(&self, bytes: usize) -> Result<Room<'_>> {
        self.journal.log.reserve(bytes).inspect_err(|error| self.refused(Work::Write, bytes, error))
    }

    /// Lets a writer of `bytes` pass; see `throttle`. Once `is_interrupted` says so, a small wait is cut short, and the wait for
    /// memory fails with `Interrupted`.
    pub fn pass(&self, bytes: u64, is_interrupted: &dyn Fn() -> bool) -> Result<()> {
        match self.terms().wait_ns(bytes) {
            Some(0) => Ok(()),
            Some(ns) => {
                self.delay(ns, is_interrupted);
                Ok(())
            }
            // The thread may be the one that makes room.
            None if is_listening() => Ok(()),
            None => self.stall(bytes, is_interrupted),
        }
    }

    /// A writer owes a wait of `ns`.
    fn delay(&self, ns: u64, is_interrupted: &dyn Fn() -> bool) {
        let owed = self.board.owed_ns.fetch_add(ns, Ordering::Relaxed) + ns;
        if owed < SLEEP_MIN_NS {
            return;
        }
        let sleep = self.board.owed_ns.swap(0, Ordering::Relaxed).min(SLEEP_MAX_NS);
        self.board.wake_flush();
        sleep_unless(Duration::from_nanos(sleep), is_interrupted);
        let mut counters = self.board.counters.lock();
        counters.write_delays += 1;
        counters.write_delay_us += sleep / 1000;
    }

    /// Memory is full: waits until flushes have made room.
    #[cold]
    fn stall(&self, bytes: u64, is_interrupted: &dyn Fn() -> bool) -> Result<()> {
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        // The active memtable alone may be what fills the budget (one huge transaction).
        self.journal.committer.seal(FlushReason::Memory);
        // Who is refused at once does not wait.
        self.check_flushes(&self.board.shared.lock())?;
        self.board.counters.lock().write_stalls += 1;
        // Its beginning and, when this drops, its end are told without locks.
        let wait = self.events.wait_for_memory(&*self.options.clock, || self.lag());
        loop {
            self.wait_for_memory()?;
            match self.terms().wait_ns(bytes) {
                Some(0) => return Ok(()),
                Some(ns) => {
                    drop(wait);
                    self.delay(ns, is_interrupted);
                    return Ok(());
                }
                None if is_interrupted() => return Err(Error::Interrupted),
                None => {}
            }
        }
    }

    /// How far background work lags behind, for events.
    pub fn lag(&self) -> Lag {
        let loads = self.loads();
        let (sublevels, debt_bytes) = (loads.sublevels as u64, loads.debt_bytes as u64);
        Lag { memtable_bytes: loads.memory_bytes, sublevels, debt_bytes }
    }

    /// Fails if no flush makes room.
    fn check_flushes(&self, shared: &Shared) -> Result<()> {
        shared.check()?;
        shared.flush_error.clone().map_or(Ok(()), Err)
    }

    /// Waits for a flush, at most for `WAIT_MAX`.
    fn wait_for_memory(&self) -> Result<()> {
        self.journal.committer.seal(FlushReason::Memory);
        let started = self.options.clock.now_us();
        let mut shared = self.board.shared.lock();
        self.check_flushes(&shared)?;
        self.board.flush_wake.notify_one();
        {
            let _waiting = Waiting::begin(Blocking::Background);
            self.board.progress.wait_for(&mut shared, WAIT_MAX);
            drop(shared);
        }
        self.board.counters.lock().write_stall_us += self.options.clock.now_us().saturating_sub(started);
        Ok(())
    }
}

/// Sleeps, in pieces, as long as nobody interrupts.
fn sleep_unless(time: Duration, is_interrupted: &dyn Fn() -> bool) {
    let _waiting = Waiting::begin(Blocking::Background);
    let mut left = time;
    while !left.is_zero() && !is_interrupted() {
        let piece = left.min(WAIT_MAX);
        std::thread::park_timeout(piece);
        left -= piece;
    }
}
