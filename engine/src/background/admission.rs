//! Admission of writes: each is delayed as long as `throttle` says, and where memory is full until a flush has made room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Background;
use crate::base::{Error, Result};
use crate::compact::throttle::{Admission, admission};
use crate::engine::Core;
use crate::io::{Blocking, Waiting};

/// Waits shorter than this are collected and slept together: a timer costs about as much.
const SLEEP_MIN_NS: u64 = 200_000;
const SLEEP_MAX_NS: u64 = 1_000_000_000;
/// Longest wait between two looks whether the writer was interrupted.
const WAIT_MAX: Duration = Duration::from_millis(100);

impl Background {
    fn terms(&self, core: &Core) -> Admission {
        admission(&self.loads(core))
    }

    /// Lets a writer of `bytes` pass; see `throttle`. Once `is_interrupted` says so, a small wait is cut short, and the wait for
    /// memory fails with `Interrupted`.
    pub fn admit(&self, core: &Core, bytes: u64, is_interrupted: &dyn Fn() -> bool) -> Result<()> {
        let mut stalled = false;
        loop {
            match self.terms(core).wait_ns(bytes) {
                Some(0) => return Ok(()),
                Some(ns) => {
                    let owed = self.owed_ns.fetch_add(ns, Ordering::Relaxed) + ns;
                    if owed >= SLEEP_MIN_NS {
                        let sleep = self.owed_ns.swap(0, Ordering::Relaxed).min(SLEEP_MAX_NS);
                        self.wake_flush();
                        sleep_unless(Duration::from_nanos(sleep), is_interrupted);
                        let mut counters = self.counters.lock();
                        counters.write_delays += 1;
                        counters.write_delay_us += sleep / 1000;
                    }
                    return Ok(());
                }
                None if is_interrupted() => return Err(Error::Interrupted),
                None => {
                    self.counters.lock().write_stalls += u64::from(!stalled);
                    stalled = true;
                    self.wait_for_memory(core)?;
                }
            }
        }
    }

    /// Memory is full: waits for a flush.
    fn wait_for_memory(&self, core: &Core) -> Result<()> {
        // The active memtable alone may be what fills the budget (one huge transaction).
        core.committer.seal(core.sinks(), core.log_bytes_max());
        let started = core.options.clock.now_us();
        let mut shared = self.shared.lock();
        shared.check()?;
        if let Some(error) = &shared.flush_error {
            return Err(error.clone());
        }
        self.flush_wake.notify_one();
        {
            let _waiting = Waiting::begin(Blocking::Background);
            self.progress.wait_for(&mut shared, WAIT_MAX);
            drop(shared);
        }
        self.counters.lock().write_stall_us += core.options.clock.now_us().saturating_sub(started);
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
