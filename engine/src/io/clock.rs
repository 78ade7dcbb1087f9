//! Time, as the engine sees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A monotonic clock in microseconds.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since some fixed moment.
    fn now_us(&self) -> u64;
}

/// The machine's monotonic clock.
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

/// How long something took in real time, for figures alone: no decision depends on it.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub fn begin() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Microseconds since it was begun.
    pub fn us(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

/// A clock that moves only when told; for tests.
#[derive(Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance_us(&self, us: u64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
