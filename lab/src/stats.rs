//! Sums over a run: latencies, the series of seconds, medians.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Latencies of one kind, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Half of all took no longer.
    pub p50_us: u64,
    /// 95 of 100 took no longer.
    pub p95_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
    /// 999 of 1,000 took no longer; 0 in results stored before this was kept.
    #[serde(default)]
    pub p999_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// Collects latencies up to a minute, three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let mut histogram = Histogram::new_with_bounds(1, 600_000_000, 3).expect("the bounds are good");
        histogram.auto(false);
        Latencies(histogram)
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(took.as_micros().max(1) as u64);
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// The figures.
    pub fn summary(&self) -> Latency {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Latency {
            count: self.0.len(),
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max(),
        }
    }
}

/// Counts events per second of a run; shared by its threads.
#[derive(Debug)]
pub struct Seconds {
    began: Instant,
    counts: Vec<AtomicU64>,
}

impl Seconds {
    /// A run of so many seconds that begins at this moment.
    pub fn new(began: Instant, seconds: u64) -> Seconds {
        Seconds { began, counts: (0..seconds).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts an event that ends now.
    pub fn count(&self) {
        self.add(1);
    }

    /// Counts so many.
    pub fn add(&self, events: u64) {
        let now = Instant::now().saturating_duration_since(self.began).as_secs() as usize;
        // What ends behind the last second is part of the run, not of the series.
        if let Some(second) = self.counts.get(now) {
            second.fetch_add(events, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    pub fn series(&self) -> Vec<f64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed) as f64).collect()
    }
}

/// The median; 0 when there is nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The smallest; 0 when there is nothing.
pub fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// The series without its last second, which is seldom a whole one.
pub fn whole(series: &[f64]) -> &[f64] {
    &series[..series.len().saturating_sub(1)]
}

/// The slowest second over the median one; 0 when there is nothing.
pub fn evenness(series: &[f64]) -> f64 {
    match median(series) {
        median if median > 0.0 => minimum(series) / median,
        _ => 0.0,
    }
}

/// The longest row of consecutive zeros.
pub fn longest_zero(values: &[f64]) -> usize {
    values.split(|value| *value > 0.0).map(<[f64]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(minimum(&[4.0, 1.0, 2.0]), 1.0);
    }

    #[test]
    fn the_last_second_is_not_judged() {
        assert_eq!(evenness(whole(&[100.0, 50.0, 100.0, 3.0])), 0.5);
        assert_eq!(evenness(whole(&[100.0, 0.0, 100.0, 100.0])), 0.0);
        assert_eq!(evenness(whole(&[100.0])), 0.0);
        assert_eq!(evenness(whole(&[])), 0.0);
    }

    #[test]
    fn zero_windows() {
        assert_eq!(longest_zero(&[]), 0);
        assert_eq!(longest_zero(&[1.0, 0.0, 0.0, 5.0, 0.0]), 2);
        assert_eq!(longest_zero(&[0.0, 0.0, 0.0]), 3);
        assert_eq!(longest_zero(&[1.0, 2.0]), 0);
    }

    #[test]
    fn latencies_of_two_threads() {
        let (mut one, mut two) = (Latencies::default(), Latencies::default());
        for ms in 1..=50 {
            one.record(Duration::from_millis(ms));
            two.record(Duration::from_millis(ms + 50));
        }
        one.merge(&two);
        let summary = one.summary();
        assert_eq!(summary.count, 100);
        assert!((50_000..50_100).contains(&summary.p50_us));
        assert!((95_000..95_100).contains(&summary.p95_us));
        assert!(summary.max_us >= 100_000);
    }

    #[test]
    fn series() {
        let seconds = Seconds::new(Instant::now() - Duration::from_millis(1500), 3);
        seconds.count();
        seconds.count();
        seconds.add(5);
        assert_eq!(seconds.series(), [0.0, 7.0, 0.0]);
        Seconds::new(Instant::now() - Duration::from_secs(9), 3).count();
    }
}
