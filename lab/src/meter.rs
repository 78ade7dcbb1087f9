//! What a server's process spends, from `/proc`: bytes, processor time, memory.

use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The kernel counts processor time in these units towards user space,
/// whatever its own clock (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;
const SAMPLE: Duration = Duration::from_millis(200);
/// The size on disk is asked at each so many samples.
const SAMPLES_PER_SIZE: u32 = 5;
const SETTLE_STEP: Duration = Duration::from_millis(500);
const SETTLE_STEPS: u32 = 120;
/// Bytes in a step that are no work.
const CALM: u64 = 256 << 10;

/// What a server spent between two moments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes that the process caused to be read from disk.
    pub read_bytes: u64,
    /// Bytes that the process caused to be written to disk, binary log and all.
    pub write_bytes: u64,
    /// How much the binary logs grew.
    pub binlog_bytes: u64,
    /// Bytes of the records of the engine's log, without padding.
    #[serde(default)]
    pub logged_bytes: u64,
    /// Syncs by the engine.
    #[serde(default)]
    pub engine_syncs: u64,
    /// Syncs of the binary log, one for each group of commits.
    #[serde(default)]
    pub binlog_syncs: u64,
    /// Processor time, user and system, in microseconds.
    pub cpu_us: u64,
    /// Share of the machine's processor time that its hypervisor gave to others meanwhile; 0 on a real machine.
    #[serde(default)]
    pub stolen: f64,
    /// The same of each second.
    #[serde(default)]
    pub stolen_series: Vec<f64>,
    /// Resident memory of the same server without data, before it did anything; 0 if that was not measured.
    #[serde(default)]
    pub rss_base: u64,
    /// Resident memory at the beginning.
    pub rss_start: u64,
    /// Largest resident memory seen by sampling.
    pub rss_sampled: u64,
    /// Largest resident memory by the kernel's own mark since the beginning.
    pub rss_peak: u64,
    /// Largest size of the engine's data on disk seen by sampling.
    #[serde(default)]
    pub data_most: u64,
}

/// Counters of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    read_bytes: u64,
    write_bytes: u64,
    cpu_us: u64,
}

/// What only the server itself knows, since its start.
#[derive(Clone, Copy, Debug, Default)]
struct Status {
    logged_bytes: u64,
    engine_syncs: u64,
    binlog_syncs: u64,
}

impl Status {
    fn read(instance: &Instance) -> Result<Status> {
        let mut conn = instance.connect(None)?;
        let mut value = |name: &str| -> Result<u64> {
            let row: Option<(String, String)> = conn.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
            let (_, value) = row.with_context(|| format!("there is no status variable {name}"))?;
            value.parse().with_context(|| format!("{name} is {value}"))
        };
        let [logged, syncs] = instance.kind().log_counters();
        Ok(Status {
            logged_bytes: value(logged)?,
            engine_syncs: value(syncs)?,
            binlog_syncs: value("Binlog_group_commits")?,
        })
    }
}

/// The largest values seen so far, in bytes.
#[derive(Default)]
struct Sampled {
    rss: AtomicU64,
    data: AtomicU64,
    /// Processor time at the end of each second.
    processors: Mutex<Vec<Processors>>,
}

/// Processor time of the machine since it started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processors {
    all: u64,
    stolen: u64,
}

impl Sampled {
    /// Notes the processors' time for every second that has ended by now.
    fn each_second(&self, elapsed: Duration) {
        let mut seconds = self.processors.lock().unwrap_or_else(PoisonError::into_inner);
        if seconds.len() < elapsed.as_secs() as usize
            && let Ok(now) = processors()
        {
            seconds.resize(elapsed.as_secs() as usize, now);
        }
    }

    /// Share of each second that others had.
    fn stolen_series(&self, start: Processors) -> Vec<f64> {
        let seconds = self.processors.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&start).chain(seconds.iter()).zip(seconds.iter()).map(|(a, b)| stolen(*a, *b)).collect()
    }
}

/// Measures a server from its making to [`Meter::end`].
pub struct Meter {
    pid: u32,
    instance: Instance,
    start: Counters,
    binlog_start: u64,
    status_start: Status,
    processors_start: Processors,
    rss_start: u64,
    sampled: Arc<Sampled>,
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<()>>,
}

impl Usage {
    /// Largest resident memory, by whichever of the two ways saw more.
    pub fn rss_most(&self) -> u64 {
        self.rss_peak.max(self.rss_sampled)
    }

    /// What the data and the load added to the server's base; none if the base is unknown.
    pub fn rss_added(&self) -> Option<u64> {
        (self.rss_base > 0).then(|| self.rss_most().saturating_sub(self.rss_base))
    }
}

/// Resident memory of a process in bytes.
pub fn resident(pid: u32) -> Result<u64> {
    Ok(memory(pid)?.0)
}

impl Meter {
    /// Begins to measure the server with this process.
    pub fn begin(pid: u32, instance: &Instance) -> Result<Meter> {
        // Makes the kernel's mark of the peak begin anew.
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        let sampled = Arc::new(Sampled::default());
        let stop = Arc::new(AtomicBool::new(false));
        let sampler = std::thread::spawn({
            let (sampled, stop, instance) = (sampled.clone(), stop.clone(), instance.clone());
            move || {
                let begun = Instant::now();
                for n in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Ok((rss, _)) = memory(pid) {
                        sampled.rss.fetch_max(rss, Ordering::Relaxed);
                    }
                    sampled.each_second(begun.elapsed());
                    if n % SAMPLES_PER_SIZE == 0
                        && let Ok(size) = instance.size_on_disk()
                    {
                        sampled.data.fetch_max(size.data, Ordering::Relaxed);
                    }
                    std::thread::park_timeout(SAMPLE);
                }
            }
        });
        Ok(Meter {
            pid,
            start: counters(pid)?,
            binlog_start: instance.binlog_bytes()?,
            status_start: Status::read(instance)?,
            processors_start: processors()?,
            rss_start: memory(pid)?.0,
            instance: instance.clone(),
            sampled,
            stop,
            sampler: Some(sampler),
        })
    }

    /// Ends the measurement.
    pub fn end(mut self) -> Result<Usage> {
        let now = counters(self.pid)?;
        let status = Status::read(&self.instance)?;
        let (_, peak) = memory(self.pid)?;
        let processors = processors()?;
        let binlog = self.instance.binlog_bytes()?;
        self.finish();
        Ok(Usage {
            read_bytes: now.read_bytes.saturating_sub(self.start.read_bytes),
            write_bytes: now.write_bytes.saturating_sub(self.start.write_bytes),
            binlog_bytes: binlog.saturating_sub(self.binlog_start),
            logged_bytes: status.logged_bytes.saturating_sub(self.status_start.logged_bytes),
            engine_syncs: status.engine_syncs.saturating_sub(self.status_start.engine_syncs),
            binlog_syncs: status.binlog_syncs.saturating_sub(self.status_start.binlog_syncs),
            cpu_us: now.cpu_us.saturating_sub(self.start.cpu_us),
            stolen: stolen(self.processors_start, processors),
            stolen_series: self.sampled.stolen_series(self.processors_start),
            rss_base: 0,
            rss_start: self.rss_start,
            rss_sampled: self.sampled.rss.load(Ordering::Relaxed),
            rss_peak: peak,
            data_most: self.sampled.data.load(Ordering::Relaxed),
        })
    }

    fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sampler) = self.sampler.take() {
            sampler.thread().unpark();
            let _ = sampler.join();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Waits until the server writes next to nothing by itself: what a load has left
/// to be merged or flushed must not fall into a measurement. Gives up, and says
/// so, after a minute.
pub fn settle(pid: u32) -> Result<()> {
    let mut before = counters(pid)?.write_bytes;
    let mut calm = 0;
    for _ in 0..SETTLE_STEPS {
        std::thread::sleep(SETTLE_STEP);
        let now = counters(pid)?.write_bytes;
        calm = if now.saturating_sub(before) <= CALM { calm + 1 } else { 0 };
        if calm == 3 {
            return Ok(());
        }
        before = now;
    }
    println!("the server still writes after a minute without load");
    Ok(())
}

fn counters(pid: u32) -> Result<Counters> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))
    };
    let (read_bytes, write_bytes) = parse_io(&read("io")?).context("/proc/PID/io has another format")?;
    let cpu_us = parse_cpu(&read("stat")?).context("/proc/PID/stat has another format")?;
    Ok(Counters { read_bytes, write_bytes, cpu_us })
}

fn processors() -> Result<Processors> {
    parse_processors(&fs::read_to_string("/proc/stat")?).context("/proc/stat has another format")
}

/// Share of the time between two moments that others had.
fn stolen(start: Processors, end: Processors) -> f64 {
    let all = end.all.saturating_sub(start.all);
    if all == 0 { 0.0 } else { end.stolen.saturating_sub(start.stolen) as f64 / all as f64 }
}

/// Resident memory and its peak, in bytes.
fn memory(pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_memory(&status).context("/proc/PID/status has another format")
}

/// Bytes read and written; what was written and thrown away before it reached
/// the disk does not count.
fn parse_io(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let cancelled = field("cancelled_write_bytes:").unwrap_or(0);
    Some((field("read_bytes:")?, field("write_bytes:")?.saturating_sub(cancelled)))
}

/// Microseconds of processor time: fields 14 and 15. The second field, a name in
/// parentheses, may hold spaces and parentheses.
fn parse_cpu(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks * (1_000_000 / TICKS_PER_SECOND))
}

/// The line of all processors: user, nice, system, idle, waiting for I/O, two kinds of interrupts, stolen. What follows is
/// part of the first two.
fn parse_processors(text: &str) -> Option<Processors> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|n| n.parse().ok()).collect::<Option<_>>()?;
    Some(Processors { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
}

fn parse_memory(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io() {
        let text = "rchar: 10\nwchar: 20\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 12288\n\
                    cancelled_write_bytes: 4096\n";
        assert_eq!(parse_io(text), Some((4096, 8192)));
        assert_eq!(parse_io("nothing"), None);
    }

    #[test]
    fn cpu() {
        let text = "17 (a) b (c) S 1 17 17 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(parse_cpu(text), Some(3_000_000));
    }

    #[test]
    fn processors_of_the_machine() {
        let text = "cpu  40 5 20 100 10 0 5 20 7 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let end = parse_processors(text).unwrap();
        assert_eq!(end, Processors { all: 200, stolen: 20 });
        assert_eq!(stolen(Processors { all: 100, stolen: 10 }, end), 0.1);
        assert_eq!(stolen(end, end), 0.0);
        assert_eq!(parse_processors("cpu 1 2 3"), None);
    }

    #[test]
    fn seconds_of_the_processors() {
        let at = |all, stolen| Processors { all, stolen };
        let sampled = Sampled { processors: Mutex::new(vec![at(200, 20), at(400, 20)]), ..Sampled::default() };
        assert_eq!(sampled.stolen_series(at(0, 0)), [0.1, 0.0]);
        sampled.each_second(Duration::from_millis(2900));
        assert_eq!(sampled.stolen_series(at(0, 0)).len(), 2, "the third has not ended");
        sampled.each_second(Duration::from_millis(3100));
        assert_eq!(sampled.stolen_series(at(0, 0)).len(), 3);
    }

    #[test]
    fn memory_fields() {
        let text = "Name:\tmariadbd\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse_memory(text), Some((1 << 20, 2 << 20)));
    }

    #[test]
    fn own_process() {
        let pid = std::process::id();
        assert!(memory(pid).unwrap().1 > 0);
        counters(pid).unwrap();
        assert!(processors().unwrap().all > 0);
    }
}
