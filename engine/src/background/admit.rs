//! Writers pay for the backlog: each waits as long as `pace` says, and where memory is full until a flush has made room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Background;
use crate::base::Result;
use crate::compact::pace::{Price, price};
use crate::engine::Core;

/// Waits shorter than this are collected and slept together: a timer costs about as much.
const SLEEP_MIN_NS: u64 = 200_000;
const SLEEP_MAX_NS: u64 = 1_000_000_000;

impl Background {
    fn pace(&self, core: &Core) -> Price {
        price(&self.loads(core))
    }

    /// Lets a writer of `bytes` pass; see `pace`.
    pub fn admit(&self, core: &Core, bytes: u64) -> Result<()> {
        loop {
            match self.pace(core).wait_ns(bytes) {
                Some(0) => return Ok(()),
                Some(ns) => {
                    let owed = self.owed_ns.fetch_add(ns, Ordering::Relaxed) + ns;
                    if owed >= SLEEP_MIN_NS {
                        let sleep = self.owed_ns.swap(0, Ordering::Relaxed).min(SLEEP_MAX_NS);
                        self.wake_flush();
                        std::thread::park_timeout(Duration::from_nanos(sleep));
                        self.counters.lock().writer_wait_us += sleep / 1000;
                    }
                    return Ok(());
                }
                None => self.wait_for_memory(core)?,
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
        self.progress.wait_for(&mut shared, Duration::from_millis(100));
        drop(shared);
        self.counters.lock().writer_wait_us += core.options.clock.now_us().saturating_sub(started);
        Ok(())
    }
}
