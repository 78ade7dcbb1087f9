//! A clock whose time of day moves when told, while what is measured in time goes on. Shared with `examples/history_store.rs`.

use std::sync::Arc;

use strata_engine::io::{Clock, ManualClock, SystemClock};

#[derive(Default)]
pub struct DayClock {
    real: SystemClock,
    day: ManualClock,
}

impl Clock for DayClock {
    fn now_us(&self) -> u64 {
        self.real.now_us()
    }
    fn unix_us(&self) -> u64 {
        self.day.unix_us()
    }
}

impl DayClock {
    pub fn at(second: u64) -> Arc<DayClock> {
        let clock = Arc::new(DayClock::default());
        clock.set(second);
        clock
    }
    pub fn set(&self, second: u64) {
        self.day.set_unix_us(second * 1_000_000);
    }
}
