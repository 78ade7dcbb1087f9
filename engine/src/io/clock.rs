//! Time, as the engine sees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock in microseconds, and the time of day.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since some fixed moment.
    fn now_us(&self) -> u64;

    /// Microseconds since 1970 as the machine has them. They may go back: somebody sets the clock.
    fn unix_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
    }
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

    /// Nanoseconds since it was begun.
    pub fn ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// A clock that moves only when told; for tests. The time of day moves with it, and may be set apart.
#[derive(Default)]
pub struct ManualClock {
    now_us: AtomicU64,
    unix_us: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance_us(&self, us: u64) {
        self.now_us.fetch_add(us, Ordering::SeqCst);
        self.unix_us.fetch_add(us, Ordering::SeqCst);
    }

    /// Sets the time of day, in microseconds since 1970.
    pub fn set_unix_us(&self, us: u64) {
        self.unix_us.store(us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::SeqCst)
    }

    fn unix_us(&self) -> u64 {
        self.unix_us.load(Ordering::SeqCst)
    }
}
