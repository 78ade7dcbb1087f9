//! The course of a measurement with a driver of the lab: how long it warms up and measures, with how much memory, on which device.

use crate::drive::{Control, Seen};
use crate::meter::{Meter, Usage};
use crate::progress;
use crate::server::Server;
use crate::throttle::Throttle;
use anyhow::Result;
use std::collections::BTreeMap;

/// Less memory than this, in MiB, no engine gets by a ratio.
const LEAST_MB: u64 = 16;

/// Options of commands that run a workload of the lab.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Course {
    /// Seconds measured
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Seconds of the same load before that
    #[arg(long, default_value_t = 10)]
    pub warmup: u64,
    /// Memory for each engine, in MiB
    #[arg(long, conflicts_with = "cache_ratio")]
    pub cache_mb: Option<u64>,
    /// Memory for each engine: the size of the rows alone over this [default: 10]
    #[arg(long)]
    pub cache_ratio: Option<u64>,
    /// Slow the device down to so many reads and as many writes a second while the load runs (as root)
    #[arg(long)]
    pub iops: Option<u32>,
    /// Use data that an earlier call with the same options left, and leave them again
    #[arg(long)]
    pub reuse: bool,
}

impl Course {
    /// A course of so many seconds on the device as it is.
    pub fn of_seconds(warmup: u64, seconds: u64) -> Course {
        Course { seconds, warmup, cache_mb: None, cache_ratio: None, iops: None, reuse: false }
    }

    /// Memory for each engine in MiB, where the rows alone have this size.
    pub fn budget_mb(&self, raw_mb: u64) -> u64 {
        self.cache_mb.unwrap_or_else(|| (raw_mb / self.cache_ratio.unwrap_or(10).max(1)).max(LEAST_MB))
    }

    /// As a run's settings have it.
    pub fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("seconds".into(), self.seconds.to_string()),
            ("warm-up".into(), format!("{} s", self.warmup)),
            ("device".into(), self.iops.map_or("as it is".into(), |n| format!("{n} reads and {n} writes a second"))),
        ])
    }

    /// Warms up and measures, with a progress bar: what was seen of each, the warm-up first, and what the server spent while it
    /// was measured. `load` drives for so many seconds; its second argument is 0 for the warm-up and 1 for the measurement.
    pub fn run<T: Default>(
        &self,
        server: &mut Server,
        title: &str,
        mut load: impl FnMut(u64, u64, &Control) -> Result<(Seen, T)>,
    ) -> Result<(Seen, [T; 2], Usage)> {
        let instance = server.instance().clone();
        let slow = self.iops.map(|iops| Throttle::begin(server.pid(), &instance.data(), iops)).transpose()?;
        let (warm, first) =
            if self.warmup > 0 { load(self.warmup, 0, &Control::default())? } else { Default::default() };
        let meter = Meter::begin(server.pid(), &instance)?;
        let control = Control::default();
        let title = format!("{}: {title}", instance.kind().title());
        let (seen, second) = progress::watched(title, self.seconds, &control, || load(self.seconds, 1, &control))?;
        server.ensure_alive()?;
        let usage = meter.end()?;
        drop(slow);
        Ok((seen.after(&warm), [first, second], usage))
    }
}
