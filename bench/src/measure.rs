//! What a turn costs: processor, disk, allocations, and how long each operation took.
//!
//! Stores alternate, and each has settled before the next begins, so what the process used between the beginning of a turn
//! and the end of its settling was used by one store, its background threads included.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::store::Result;

/// Length of a tick of the series.
pub const TICK: Duration = Duration::from_millis(100);

/// Longest latency that is told from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;

unsafe extern "C" {
    /// See count_malloc.c.
    fn strata_bench_allocations() -> u64;
}

/// Allocations of the calling thread so far.
pub fn allocations() -> u64 {
    // SAFETY: reads a counter of the thread.
    unsafe { strata_bench_allocations() }
}

/// What the process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of all threads in microseconds.
    pub cpu_us: u64,
    /// Bytes fetched from the disk.
    pub read_bytes: u64,
    /// Bytes handed to the disk, or to the page cache to be written.
    pub write_bytes: u64,
    /// Read calls, and faults that read a page of a memory map.
    pub reads: u64,
}

impl Usage {
    /// As the kernel counts.
    pub fn now() -> Result<Usage> {
        let io = std::fs::read_to_string("/proc/self/io")?;
        let faults_and_cpu = rusage();
        Ok(Usage {
            cpu_us: faults_and_cpu.1,
            read_bytes: field(&io, "read_bytes"),
            write_bytes: field(&io, "write_bytes"),
            reads: field(&io, "syscr") + faults_and_cpu.0,
        })
    }

    /// What was used since `before`.
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            reads: self.reads.saturating_sub(before.reads),
        }
    }
}

/// A field of `/proc/self/io`; 0 if it is not there.
fn field(io: &str, name: &str) -> u64 {
    let line = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Major faults and microseconds of processor of the process.
fn rusage() -> (u64, u64) {
    // SAFETY: the structure is plain numbers, and the call fills it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    (usage.ru_majflt as u64, us(usage.ru_utime) + us(usage.ru_stime))
}

/// Latencies of a turn in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// What one thread saw.
pub struct Record {
    histogram: Histogram<u64>,
    /// Operations per tick.
    ticks: Vec<u64>,
    pub ops: u64,
    pub allocations: u64,
}

impl Record {
    pub fn new() -> Record {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("valid bounds");
        Record { histogram, ticks: Vec::with_capacity(4096), ops: 0, allocations: 0 }
    }

    /// `ops` operations ended at `at` after the start, of which the last took `took`.
    #[inline]
    pub fn add(&mut self, ops: u64, at: Duration, took: Duration) {
        self.ops += ops;
        self.histogram.saturating_record((took.as_nanos() as u64).max(1));
        let tick = (at.as_millis() / TICK.as_millis()) as usize;
        if tick >= self.ticks.len() {
            self.ticks.resize(tick + 1, 0);
        }
        self.ticks[tick] += ops;
    }

    /// Joins what another thread saw in the same turn.
    pub fn merge(&mut self, other: &Record) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        self.ticks.resize(self.ticks.len().max(other.ticks.len()), 0);
        self.ticks.iter_mut().zip(&other.ticks).for_each(|(sum, n)| *sum += n);
        self.ops += other.ops;
        self.allocations += other.allocations;
    }

    pub fn latency(&self) -> Latency {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: self.histogram.max() }
    }

    /// Operations in each full second.
    pub fn seconds(&self, total: f64) -> Vec<u64> {
        let per_second = (1000 / TICK.as_millis()) as usize;
        let full = total as usize;
        self.ticks.chunks(per_second).take(full).map(|ticks| ticks.iter().sum()).collect()
    }
}

/// When a thread stops.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many operations.
    Ops(u64),
    /// After so long.
    Time(Duration),
}

/// Repeats `op` and records it. Each operation is timed with `every` 1; with more, one of so many, where reading the clock
/// would be a good part of what it times.
pub fn repeat(start: Instant, until: Until, every: u64, mut op: impl FnMut() -> Result<()>) -> Result<Record> {
    let mut record = Record::new();
    let before = allocations();
    let mut began = Instant::now();
    loop {
        let group = match until {
            Until::Ops(ops) => every.min(ops - record.ops),
            Until::Time(limit) if start.elapsed() < limit => every,
            Until::Time(_) => 0,
        };
        if group == 0 {
            break;
        }
        for _ in 1..group {
            op()?;
        }
        if group > 1 {
            began = Instant::now();
        }
        op()?;
        let ended = Instant::now();
        record.add(group, ended.duration_since(start), ended.duration_since(began));
        began = ended;
    }
    record.allocations = allocations() - before;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_io() {
        let io = "rchar: 1\nsyscr: 10\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 7\n";
        assert_eq!(["syscr", "read_bytes", "write_bytes", "none"].map(|name| field(io, name)), [10, 4096, 8192, 0]);
    }

    #[test]
    fn percentiles_are_those_of_the_operations() {
        let mut record = Record::new();
        for n in 1..=1000u64 {
            record.add(1, Duration::ZERO, Duration::from_micros(n));
        }
        let latency = record.latency();
        for (found, expected) in [(latency.p50, 500), (latency.p99, 990), (latency.p999, 999), (latency.max, 1000)] {
            let expected = expected as f64 * 1000.0;
            assert!((found as f64 - expected).abs() <= expected / 500.0, "{found} is not {expected}");
        }
    }

    #[test]
    fn only_full_seconds_count() {
        let mut record = Record::new();
        for (ms, ops) in [(0, 3), (999, 4), (1000, 50), (1100, 60), (2050, 7)] {
            record.add(ops, Duration::from_millis(ms), Duration::from_nanos(5));
        }
        assert_eq!(record.seconds(2.1), [7, 110]);
        assert_eq!(record.seconds(0.9), [0u64; 0]);
        let mut other = Record::new();
        other.add(1, Duration::from_millis(2500), Duration::from_nanos(5));
        other.add(2, Duration::from_millis(10), Duration::from_nanos(5));
        record.merge(&other);
        assert_eq!(record.seconds(3.0), [9, 110, 8]);
        assert_eq!(record.ops, 127);
    }

    #[test]
    fn all_operations_are_counted_whatever_is_timed() {
        for every in [1, 7, 8] {
            let mut done = 0;
            let record = repeat(Instant::now(), Until::Ops(100), every, || {
                done += 1;
                Ok(())
            });
            assert_eq!((record.expect("nothing fails").ops, done), (100, 100));
        }
        let record = repeat(Instant::now(), Until::Time(Duration::ZERO), 1, || Ok(()));
        assert_eq!(record.expect("nothing fails").ops, 0);
    }

    #[test]
    fn allocations_of_rust_code_are_counted() {
        let before = allocations();
        let boxes: Vec<Box<u64>> = (0..10).map(Box::new).collect();
        assert_eq!(allocations() - before, 11);
        drop(std::hint::black_box(boxes));
    }
}
