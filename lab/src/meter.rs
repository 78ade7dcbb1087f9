//! What a server's process spends, from `/proc`: bytes, processor time, memory.

use crate::engine::Conditions;
use crate::kernel::{self, Processors, Spent, States};
use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SAMPLE: Duration = Duration::from_millis(200);
/// The size on disk is asked at each so many samples.
const SAMPLES_PER_SIZE: u32 = 5;
const SETTLE_STEP: Duration = Duration::from_millis(500);
const SETTLE_STEPS: u32 = 120;
/// Bytes in a step that are no work.
const CALM: u64 = 256 << 10;

/// What a server spent between two moments. Results that were stored before a figure was kept have it as 0 or none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Bytes that the process caused to be read from disk.
    pub read_bytes: u64,
    /// Bytes that the process caused to be written to disk, binary log and all.
    pub write_bytes: u64,
    /// How much the binary logs grew.
    pub binlog_bytes: u64,
    /// Bytes of the records of the engine's log, without padding.
    pub logged_bytes: u64,
    /// Syncs by the engine.
    pub engine_syncs: u64,
    /// Syncs of the binary log, one for each group of commits.
    pub binlog_syncs: u64,
    /// Processor time, user and system, in microseconds.
    pub cpu_us: u64,
    /// The part of it that was spent in the kernel.
    pub cpu_system_us: u64,
    /// What the machine's processors did meanwhile.
    pub states: Option<States>,
    /// Share of the machine's processor time that its hypervisor gave to others meanwhile; 0 on a real machine.
    pub stolen: f64,
    /// The same of each second.
    pub stolen_series: Vec<f64>,
    /// Resident memory of the same server without data, before it did anything; 0 if that was not measured.
    pub rss_base: u64,
    /// Resident memory at the beginning.
    pub rss_start: u64,
    /// Largest resident memory seen by sampling.
    pub rss_sampled: u64,
    /// Largest resident memory by the kernel's own mark since the beginning.
    pub rss_peak: u64,
    /// Largest size of the engine's data on disk seen by sampling.
    pub data_most: u64,
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

/// What is sampled while a process is measured.
#[derive(Default)]
struct Sampled {
    /// The largest values so far, in bytes.
    rss: AtomicU64,
    data: AtomicU64,
    /// Time of the processors at the end of each second.
    processors: Mutex<Vec<Processors>>,
}

impl Sampled {
    /// Notes the processors' time for every second that has ended by now.
    fn each_second(&self, elapsed: Duration) {
        let mut seconds = self.processors.lock().unwrap_or_else(PoisonError::into_inner);
        if seconds.len() < elapsed.as_secs() as usize
            && let Ok(now) = Processors::now()
        {
            seconds.resize(elapsed.as_secs() as usize, now);
        }
    }

    /// Share of each second that others had.
    fn stolen_series(&self, start: Processors) -> Vec<f64> {
        let seconds = self.processors.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::iter::once(&start).chain(seconds.iter());
        before.zip(seconds.iter()).map(|(before, now)| now.since(*before).stolen_share()).collect()
    }
}

/// Measures a process from its making to [`Gauge::end`], by the kernel alone.
pub struct Gauge {
    pid: u32,
    start: Spent,
    processors_start: Processors,
    rss_start: u64,
    sampled: Arc<Sampled>,
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<()>>,
}

/// Measures a server from its making to [`Meter::end`].
pub struct Meter {
    instance: Instance,
    binlog_start: u64,
    status_start: Status,
    gauge: Gauge,
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

/// Resident memory of the server under these conditions with an empty data directory and as many connections as the run
/// has. Each has prepared as many statements as one of the run and run them, without a table: what a session takes is the
/// same for every engine and no part of its budget.
pub fn resident_without_data(
    instance: &Instance,
    conditions: &Conditions,
    connections: u32,
    statements: usize,
) -> Result<u64> {
    instance.reset()?;
    let server = instance.start(conditions)?;
    let mut sessions = Vec::new();
    for _ in 0..connections {
        let mut connection = server.connect(None)?;
        for n in 0..statements {
            let statement = connection.prep(format!("SELECT ? + {n}"))?;
            connection.exec_drop(&statement, (1,))?;
        }
        sessions.push(connection);
    }
    let base = kernel::memory(server.pid())?.resident;
    drop(sessions);
    server.stop()?;
    Ok(base)
}

impl Gauge {
    /// Begins to measure this process; `size` tells bytes of its data on disk.
    pub fn begin(pid: u32, size: impl Fn() -> Option<u64> + Send + 'static) -> Result<Gauge> {
        kernel::forget_peak(pid);
        let sampled = Arc::new(Sampled::default());
        let stop = Arc::new(AtomicBool::new(false));
        let sampler = std::thread::spawn({
            let (sampled, stop) = (sampled.clone(), stop.clone());
            move || {
                let begun = Instant::now();
                for n in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Ok(memory) = kernel::memory(pid) {
                        sampled.rss.fetch_max(memory.resident, Ordering::Relaxed);
                    }
                    sampled.each_second(begun.elapsed());
                    if n % SAMPLES_PER_SIZE == 0
                        && let Some(size) = size()
                    {
                        sampled.data.fetch_max(size, Ordering::Relaxed);
                    }
                    std::thread::park_timeout(SAMPLE);
                }
            }
        });
        Ok(Gauge {
            pid,
            start: kernel::spent(pid)?,
            processors_start: Processors::now()?,
            rss_start: kernel::memory(pid)?.resident,
            sampled,
            stop,
            sampler: Some(sampler),
        })
    }

    /// Ends the measurement.
    pub fn end(mut self) -> Result<Usage> {
        let spent = kernel::spent(self.pid)?.since(self.start);
        let processors = Processors::now()?.since(self.processors_start);
        let memory = kernel::memory(self.pid)?;
        self.finish();
        Ok(Usage {
            read_bytes: spent.read_bytes,
            write_bytes: spent.write_bytes,
            cpu_us: spent.user_us + spent.system_us,
            cpu_system_us: spent.system_us,
            states: Some(processors.states()),
            stolen: processors.stolen_share(),
            stolen_series: self.sampled.stolen_series(self.processors_start),
            rss_start: self.rss_start,
            rss_sampled: self.sampled.rss.load(Ordering::Relaxed),
            rss_peak: memory.peak,
            data_most: self.sampled.data.load(Ordering::Relaxed),
            ..Usage::default()
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

impl Drop for Gauge {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Meter {
    /// Begins to measure the server with this process.
    pub fn begin(pid: u32, instance: &Instance) -> Result<Meter> {
        let (binlog_start, status_start) = (instance.binlog_bytes()?, Status::read(instance)?);
        let sized = instance.clone();
        let gauge = Gauge::begin(pid, move || Some(sized.size_on_disk().ok()?.data))?;
        Ok(Meter { instance: instance.clone(), binlog_start, status_start, gauge })
    }

    /// Ends the measurement.
    pub fn end(self) -> Result<Usage> {
        let usage = self.gauge.end()?;
        let (binlog, status) = (self.instance.binlog_bytes()?, Status::read(&self.instance)?);
        Ok(Usage {
            binlog_bytes: binlog.saturating_sub(self.binlog_start),
            logged_bytes: status.logged_bytes.saturating_sub(self.status_start.logged_bytes),
            engine_syncs: status.engine_syncs.saturating_sub(self.status_start.engine_syncs),
            binlog_syncs: status.binlog_syncs.saturating_sub(self.status_start.binlog_syncs),
            ..usage
        })
    }
}

/// Waits until the server writes next to nothing by itself: what a load has left
/// to be merged or flushed must not fall into a measurement. Gives up, and says
/// so, after a minute.
pub fn settle(pid: u32) -> Result<()> {
    let mut before = kernel::spent(pid)?.write_bytes;
    let mut calm = 0;
    for _ in 0..SETTLE_STEPS {
        std::thread::sleep(SETTLE_STEP);
        let now = kernel::spent(pid)?.write_bytes;
        calm = if now.saturating_sub(before) <= CALM { calm + 1 } else { 0 };
        if calm == 3 {
            return Ok(());
        }
        before = now;
    }
    println!("the server still writes after a minute without load");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_the_processors() {
        let at = |idle, stolen| Processors { idle, stolen, ..Processors::default() };
        let sampled = Sampled { processors: Mutex::new(vec![at(180, 20), at(380, 20)]), ..Sampled::default() };
        assert_eq!(sampled.stolen_series(at(0, 0)), [0.1, 0.0]);
        sampled.each_second(Duration::from_millis(2900));
        assert_eq!(sampled.stolen_series(at(0, 0)).len(), 2, "the third has not ended");
        sampled.each_second(Duration::from_millis(3100));
        assert_eq!(sampled.stolen_series(at(0, 0)).len(), 3);
    }
}
