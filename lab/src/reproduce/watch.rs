//! What the machine and a server did in each second: processors, device, memory, files, rows.
//!
//! The processors' states are the whole machine's; the device is the one that the server's data lie on. What neither the server nor
//! the lab with its children had of the processors is others' work: with what the hypervisor took beyond [the price of our own
//! requests](mod@crate::hypervisor), and the machine's [pace](mod@pace) before and after, it decides whether a measurement counts
//! ([`Watched::disturbed`]).

use crate::hypervisor::Price;
use crate::kernel::{self, Device, Processors};
use crate::pace;
use crate::server::Instance;
use crate::stats::median;
use anyhow::Result;
use mysql::prelude::Queryable;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A measurement of which the hypervisor took this share of the processors, or more, does not count. What it is expected to take to serve
/// the measurement's own requests comes off first.
pub const STOLEN_MOST: f64 = 0.04;
/// The same of what other processes had.
pub const OTHERS_MOST: f64 = 0.15;

/// What was seen of each second. Series have the same length.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Watched {
    /// Seconds in front of those that are measured.
    pub before: usize,
    /// Processors in percent: user, system, waiting for I/O, idle.
    pub user: Vec<f64>,
    pub system: Vec<f64>,
    pub wait: Vec<f64>,
    pub idle: Vec<f64>,
    /// Operations of the device.
    pub reads: Vec<f64>,
    pub writes: Vec<f64>,
    /// Bytes that it read and wrote.
    pub read_bytes: Vec<f64>,
    pub write_bytes: Vec<f64>,
    /// Milliseconds of an operation on average; 0 in a second without one.
    pub device_ms: Vec<f64>,
    /// Percent of the second in which it had something to do.
    pub busy: Vec<f64>,
    /// Resident memory of the server in MiB.
    pub rss_mb: Vec<f64>,
    /// Blocks of its data directory in MiB, logs and the server's own tables included.
    pub directory_mb: Vec<f64>,
    /// Rows that were inserted, updated and deleted.
    pub rows: Vec<f64>,
    /// Shares of the processors over the time that is measured: what the hypervisor took, and what other processes had.
    pub stolen: f64,
    pub others: f64,
    /// What of the stolen share was to be expected, by the [price](Price) of our own requests.
    #[serde(default)]
    pub expected: f64,
    /// The machine's [pace](mod@pace), the slower one of before and after. 0: not known.
    #[serde(default)]
    pub pace: f64,
    /// That over the usual one, of the run so far or of all of it.
    #[serde(skip)]
    pub of_usual: Option<f64>,
}

/// Sets each pace beside the usual one, the median of all.
pub fn compare_paces<'a>(all: impl IntoIterator<Item = &'a mut Watched>) {
    let mut known: Vec<&mut Watched> = all.into_iter().filter(|watched| watched.pace > 0.0).collect();
    let usual = median(&known.iter().map(|watched| watched.pace).collect::<Vec<f64>>());
    known.iter_mut().for_each(|watched| watched.of_usual = Some(watched.pace / usual));
}

impl Watched {
    /// The part of a series that was measured.
    pub fn measured<'a>(&self, series: &'a [f64]) -> &'a [f64] {
        &series[self.before.min(series.len())..]
    }

    /// Tells what our own requests let expect to be stolen.
    pub fn expect(&mut self, price: &Price) {
        let mean = |series: &[f64]| {
            let measured = self.measured(series);
            measured.iter().sum::<f64>() / measured.len().max(1) as f64
        };
        // What was stolen is idle for who looks from inside.
        let idle = (mean(&self.idle) + mean(&self.wait)) / 100.0 - self.stolen;
        let requests = mean(&self.reads) + mean(&self.writes);
        let bytes = mean(&self.read_bytes) + mean(&self.write_bytes);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.expected = price.expected(requests, bytes, processors, idle.max(0.0));
    }

    /// Why the measurement does not count, if it does not.
    pub fn disturbed(&self) -> Option<String> {
        if self.stolen - self.expected >= STOLEN_MOST {
            let for_us = if self.expected > 0.0 {
                format!(", {:.0} % to be expected", self.expected * 100.0)
            } else {
                String::new()
            };
            Some(format!("the hypervisor took {:.0} % of the processors{for_us}", self.stolen * 100.0))
        } else if self.others >= OTHERS_MOST {
            Some(format!("other processes had {:.0} % of the processors", self.others * 100.0))
        } else {
            let of_usual = self.of_usual.filter(|of_usual| *of_usual < pace::LEAST)?;
            Some(format!("the machine had {of_usual:.2} of its usual pace"))
        }
    }
}

/// Counters at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    processors: Processors,
    device: Device,
    rss: u64,
    directory: u64,
    rows: u64,
}

/// Ticks that the machine had, and those of the server and the lab.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    processors: Processors,
    ours: u64,
}

/// Watches a server from its making to [`Watch::end`].
pub struct Watch {
    /// The server, and other processes that are part of what is measured.
    pids: Vec<u32>,
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<Watched>>,
    start: Shares,
}

impl Watch {
    /// Begins. Beside the server and the lab, `companions` are part of what is measured: processes of the lab that it has not
    /// waited for.
    pub fn begin(pid: u32, companions: &[u32], instance: &Instance) -> Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let source = Source { pid, instance: instance.clone(), device: kernel::device_name(&instance.data()) };
        let first = source.moment(0)?;
        let sampler = std::thread::spawn({
            let stop = stop.clone();
            move || source.sample(first, &stop)
        });
        let pids: Vec<u32> = [&[pid], companions].concat();
        Ok(Watch { stop, sampler: Some(sampler), start: shares(&pids)?, pids })
    }

    /// What is measured begins now: the number of seconds before, for [`Watched::before`], and the shares anew.
    pub fn measure(&mut self) -> Result<()> {
        self.start = shares(&self.pids)?;
        Ok(())
    }

    /// Ends; so many whole seconds were before what was measured. Children of the lab have been waited for.
    pub fn end(mut self, before: usize) -> Result<Watched> {
        let end = shares(&self.pids)?;
        let mut watched = self.finish();
        watched.before = before;
        let processors = end.processors.since(self.start.processors);
        watched.stolen = processors.stolen_share();
        watched.others = processors.share_of_others(end.ours.saturating_sub(self.start.ours));
        Ok(watched)
    }

    fn finish(&mut self) -> Watched {
        self.stop.store(true, Ordering::Relaxed);
        let Some(sampler) = self.sampler.take() else { return Watched::default() };
        sampler.thread().unpark();
        sampler.join().unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.finish();
    }
}

struct Source {
    pid: u32,
    instance: Instance,
    /// Name in `/proc/diskstats`; none on a file system without a device.
    device: Option<String>,
}

impl Source {
    fn sample(&self, first: Moment, stop: &AtomicBool) -> Watched {
        let mut watched = Watched::default();
        let mut conn = self.instance.connect(None).ok();
        let (began, mut before) = (Instant::now(), first);
        before.rows = conn.as_mut().and_then(rows).unwrap_or(0);
        for second in 1.. {
            let due = began + Duration::from_secs(second);
            while Instant::now() < due {
                if stop.load(Ordering::Relaxed) {
                    return watched;
                }
                std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
            }
            let rows = conn.as_mut().and_then(rows).unwrap_or(before.rows);
            let Ok(now) = self.moment(rows) else { return watched };
            watched.add(before, now);
            before = now;
        }
        watched
    }

    fn moment(&self, rows: u64) -> Result<Moment> {
        Ok(Moment {
            processors: Processors::now()?,
            device: self.device.as_deref().and_then(Device::now).unwrap_or_default(),
            rss: kernel::memory(self.pid)?.resident,
            directory: blocks(&self.instance.data()),
            rows,
        })
    }
}

impl Watched {
    fn add(&mut self, before: Moment, now: Moment) {
        let states = now.processors.since(before.processors).states();
        self.user.push(states.user);
        self.system.push(states.system);
        self.wait.push(states.wait);
        self.idle.push(states.idle);
        let device = now.device.since(before.device);
        self.reads.push(device.reads as f64);
        self.writes.push(device.writes as f64);
        self.read_bytes.push(device.read_bytes as f64);
        self.write_bytes.push(device.write_bytes as f64);
        let operations = device.reads + device.writes;
        self.device_ms.push(if operations > 0 { device.ms as f64 / operations as f64 } else { 0.0 });
        self.busy.push((device.busy_ms as f64 / 10.0).min(100.0));
        self.rss_mb.push(now.rss as f64 / f64::from(1 << 20));
        self.directory_mb.push(now.directory as f64 / f64::from(1 << 20));
        self.rows.push(now.rows.saturating_sub(before.rows) as f64);
    }
}

/// Rows changed since the server started, whatever the engine.
fn rows(conn: &mut mysql::Conn) -> Option<u64> {
    let rows: Vec<(String, String)> = conn
        .query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Handler_delete')")
        .ok()?;
    Some(rows.iter().filter_map(|(_, value)| value.parse::<u64>().ok()).sum())
}

fn shares(pids: &[u32]) -> Result<Shares> {
    let ours = pids.iter().try_fold(kernel::own_ticks()?, |sum, pid| anyhow::Ok(sum + kernel::ticks(*pid)?))?;
    Ok(Shares { processors: Processors::now()?, ours })
}

/// Bytes of all blocks below a folder. What vanishes meanwhile is not counted.
fn blocks(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => blocks(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second() {
        let device = Device { reads: 10, read_bytes: 10240, writes: 30, write_bytes: 20480, ms: 80, busy_ms: 500 };
        let processors = Processors { user: 100, system: 20, wait: 40, idle: 30, stolen: 10 };
        let now = Moment { processors, device, rss: 2 << 20, directory: 3 << 20, rows: 5 };
        let mut watched = Watched::default();
        watched.add(Moment::default(), now);
        assert_eq!((watched.user[0], watched.system[0], watched.wait[0], watched.idle[0]), (50.0, 10.0, 20.0, 20.0));
        assert_eq!((watched.device_ms[0], watched.busy[0], watched.write_bytes[0]), (2.0, 50.0, 20480.0));
        assert_eq!((watched.rss_mb[0], watched.directory_mb[0], watched.rows[0]), (2.0, 3.0, 5.0));
    }

    #[test]
    fn companions_are_no_others() {
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let ours = |pids: &[u32]| shares(pids).unwrap().ours;
        let before = ours(&[busy.id()]);
        let own = ours(&[]);
        let began = Instant::now();
        // However little of the processor it gets, it gets some.
        while ours(&[busy.id()]) - before < 20 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (with, without) = (ours(&[busy.id()]) - before, ours(&[]) - own);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(with >= 20 && with > without, "{with} ticks with it, {without} without");
        assert!(shares(&[busy.id()]).is_err(), "one that has ended is no companion");
    }

    #[test]
    fn what_is_disturbed() {
        let watched = |stolen, others| Watched { stolen, others, ..Watched::default() };
        assert!(watched(0.039, 0.149).disturbed().is_none());
        assert!(watched(0.04, 0.0).disturbed().unwrap().contains("hypervisor"));
        assert!(watched(0.0, 0.15).disturbed().unwrap().contains("other processes"));
    }

    #[test]
    fn the_price_of_our_own_requests_is_no_disturbance() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let price = Price::known(0.06 * processors as f64 / 4000.0, 0.0);
        let seen = |stolen: f64, idle: f64, requests: f64| {
            // The second of the warm-up does not count.
            let two = |value: f64| vec![0.0, value];
            let (idle, wait) = (two(100.0 * (idle + stolen) - 1.0), two(1.0));
            let (reads, writes) = (two(requests * 0.75), two(requests * 0.25));
            let series = Watched {
                idle,
                wait,
                reads,
                writes,
                read_bytes: two(0.0),
                write_bytes: two(0.0),
                ..Watched::default()
            };
            let mut watched = Watched { before: 1, stolen, ..series };
            watched.expect(&price);
            watched
        };
        assert!(seen(0.09, 0.0, 4000.0).disturbed().is_none(), "three percent more than our requests cost");
        assert!(seen(0.11, 0.0, 4000.0).disturbed().unwrap().contains("11 % of the processors, 6 % to be expected"));
        assert!(seen(0.09, 0.2, 4000.0).disturbed().is_some(), "in idle time most of it would have been done");
        assert!(seen(0.05, 0.0, 400.0).disturbed().is_some(), "few requests cost little");
    }

    #[test]
    fn a_slow_machine_disturbs() {
        let mut all: Vec<Watched> =
            [100.0, 84.0, 101.0, 0.0, 99.0].map(|pace| Watched { pace, ..Watched::default() }).into();
        compare_paces(&mut all);
        let why: Vec<Option<String>> = all.iter().map(Watched::disturbed).collect();
        assert!(why[1].as_ref().unwrap().contains("0.84 of its usual pace"), "{why:?}");
        assert_eq!(why.iter().flatten().count(), 1, "an unknown pace disturbs nothing: {why:?}");
        compare_paces(&mut []);
    }
}
