//! Figures of a measurement by the names that experiments use.

use super::record::Record;
use super::watch::Watched;
use crate::stats::median;

/// A figure, and how it is read.
pub struct Metric {
    pub name: &'static str,
    /// With its unit.
    pub title: &'static str,
    of: fn(&Record) -> Option<f64>,
}

/// Bytes of a MiB, and of a KiB.
const MIB: f64 = 1048576.0;
const KIB: f64 = 1024.0;

/// All of them. The p99 of a kind of transaction is `p99_ms/KIND` beside.
const METRICS: &[Metric] = &[
    Metric { name: "tps", title: "transactions/s", of: |r| Some(r.run.tps()) },
    Metric { name: "qps", title: "statements/s", of: |r| Some(r.run.tps() * r.further("statements")?) },
    Metric { name: "min_ms", title: "shortest, ms", of: |r| r.further("min ms") },
    Metric { name: "op_s", title: "s an operation", of: |r| r.further("op s") },
    Metric {
        name: "load_iops",
        title: "operations/s of the disk's other load",
        of: |r| r.further("load operations/s"),
    },
    Metric { name: "app_ms", title: "application's processors, ms", of: |r| r.further("application ms") },
    Metric { name: "server_ms", title: "server's processors, ms", of: |r| r.further("server ms") },
    Metric { name: "queue_ms", title: "waiting for a processor, ms", of: |r| r.further("queue ms") },
    Metric { name: "rest_ms", title: "all else, as the disk, ms", of: |r| r.further("rest ms") },
    Metric { name: "migrate_s", title: "migrations, s", of: |r| r.further("migrate s") },
    Metric { name: "foreign_keys", title: "foreign keys that stand", of: |r| r.further("foreign keys") },
    Metric { name: "mean_ms", title: "mean, ms", of: |r| r.further("mean ms") },
    Metric { name: "p50_ms", title: "p50, ms", of: |r| r.ms(r.run.latency.p50_us) },
    Metric { name: "p95_ms", title: "p95, ms", of: |r| r.ms(r.run.latency.p95_us) },
    Metric { name: "p99_ms", title: "p99, ms", of: |r| r.ms(r.run.latency.p99_us) },
    Metric {
        name: "p99_over_p50",
        title: "p99 / p50",
        of: |r| over(r.run.latency.p99_us as f64, r.run.latency.p50_us as f64),
    },
    Metric { name: "errors", title: "errors", of: |r| Some(r.run.errors.len() as f64) },
    Metric { name: "written_kb_tx", title: "KB written/tx", of: |r| r.each(r.run.usage.write_bytes as f64 / KIB) },
    Metric { name: "read_kb_tx", title: "KB read/tx", of: |r| r.each(r.run.usage.read_bytes as f64 / KIB) },
    Metric {
        name: "binlog_kb_tx",
        title: "of it binlog, KB/tx",
        of: |r| r.each(r.run.usage.binlog_bytes as f64 / KIB),
    },
    Metric { name: "log_kb_tx", title: "log records, KB/tx", of: |r| r.each(r.run.usage.logged_bytes as f64 / KIB) },
    Metric { name: "engine_syncs_tx", title: "engine syncs/tx", of: |r| r.each(r.run.usage.engine_syncs as f64) },
    Metric { name: "binlog_syncs_tx", title: "binlog syncs/tx", of: |r| r.each(r.run.usage.binlog_syncs as f64) },
    Metric { name: "written_kb_s", title: "KB written/s", of: |r| r.second(r.run.usage.write_bytes as f64 / KIB) },
    Metric { name: "read_kb_s", title: "KB read/s", of: |r| r.second(r.run.usage.read_bytes as f64 / KIB) },
    Metric { name: "written_mb_s", title: "MB written/s", of: |r| r.second(r.run.usage.write_bytes as f64 / MIB) },
    Metric { name: "read_mb_s", title: "MB read/s", of: |r| r.second(r.run.usage.read_bytes as f64 / MIB) },
    Metric { name: "cpu_us_tx", title: "server CPU us/tx", of: |r| r.each(r.run.usage.cpu_us as f64) },
    Metric {
        name: "server_share",
        title: "server's processor time, % of an operation",
        of: |r| over(r.each(r.run.usage.cpu_us as f64)? / 1e4, r.further("op s")?),
    },
    Metric { name: "cpu_user", title: "CPU user, %", of: |r| r.mean(|w| &w.user) },
    Metric { name: "cpu_system", title: "CPU system, %", of: |r| r.mean(|w| &w.system) },
    Metric { name: "cpu_wait", title: "CPU waiting, %", of: |r| r.mean(|w| &w.wait) },
    Metric { name: "cpu_idle", title: "CPU idle, %", of: |r| r.mean(|w| &w.idle) },
    Metric {
        name: "cpu_busy",
        title: "CPU busy, %",
        of: |r| Some(100.0 - r.mean(|w| &w.idle)? - r.mean(|w| &w.wait)?),
    },
    Metric { name: "device_busy", title: "device busy, %", of: |r| r.mean(|w| &w.busy) },
    Metric {
        name: "device_ops",
        title: "device operations/s",
        of: |r| Some(r.mean(|w| &w.reads)? + r.mean(|w| &w.writes)?),
    },
    Metric { name: "device_ms_p50", title: "device, p50 of seconds, ms", of: |r| r.quantile(|w| &w.device_ms, 0.5) },
    Metric { name: "device_ms_p99", title: "device, p99 of seconds, ms", of: |r| r.quantile(|w| &w.device_ms, 0.99) },
    Metric { name: "device_reads_tx", title: "device reads/tx", of: |r| over(r.mean(|w| &w.reads)?, r.run.tps()) },
    Metric {
        name: "device_ops_tx",
        title: "device operations/tx",
        of: |r| over(r.mean(|w| &w.reads)? + r.mean(|w| &w.writes)?, r.run.tps()),
    },
    Metric {
        name: "device_kb_tx",
        title: "device KB/tx, both ways",
        of: |r| over((r.mean(|w| &w.read_bytes)? + r.mean(|w| &w.write_bytes)?) / KIB, r.run.tps()),
    },
    Metric { name: "rows_minute", title: "rows changed a minute", of: |r| Some(60.0 * r.mean(|w| &w.rows)?) },
    Metric { name: "size_mb", title: "data, MB", of: |r| positive(r.run.disk.data as f64 / MIB) },
    Metric { name: "log_mb", title: "engine's log, MB", of: |r| positive(r.run.disk.log as f64 / MIB) },
    Metric { name: "logical_mb", title: "rows alone, MB", of: |r| r.further("logical MB") },
    Metric {
        name: "logical_over_size",
        title: "rows alone / data",
        of: |r| over(r.further("logical MB")?, r.run.disk.data as f64 / MIB),
    },
    Metric {
        name: "size_over_memory",
        title: "data / memory",
        of: |r| over(r.run.disk.data as f64 / MIB, r.run.conditions.budget_mb as f64),
    },
    Metric { name: "directory_mb", title: "directory, MB", of: |r| r.watch.directory_mb.last().copied() },
    Metric {
        name: "directory_growth",
        title: "directory, at most / at first",
        of: |r| over(most(&r.watch.directory_mb), *r.watch.directory_mb.first()?),
    },
    Metric { name: "open_ms", title: "start after SHUTDOWN, ms", of: |r| r.further("open ms") },
    Metric { name: "recover_ms", title: "start after SIGKILL, ms", of: |r| r.further("recover ms") },
    Metric { name: "rss_mb", title: "resident at most, MB", of: |r| positive(r.run.usage.rss_most() as f64 / MIB) },
    Metric { name: "memory_mb", title: "memory, MB", of: |r| positive(r.run.conditions.budget_mb as f64) },
    Metric { name: "second_cv", title: "deviation / mean of seconds", of: |r| deviation(&r.seconds()) },
    Metric {
        name: "second_p1",
        title: "p1 / median of seconds",
        of: |r| over(quantile(&r.seconds(), 0.01)?, median(&r.seconds())),
    },
    Metric {
        name: "second_q1",
        title: "lower quartile / median",
        of: |r| over(quantile(&r.seconds(), 0.25)?, median(&r.seconds())),
    },
    Metric {
        name: "second_q3",
        title: "upper quartile / median",
        of: |r| over(quantile(&r.seconds(), 0.75)?, median(&r.seconds())),
    },
    Metric {
        name: "seconds_low",
        title: "seconds below half the median, %",
        of: |r| {
            let (seconds, half) = (r.seconds(), median(&r.seconds()) / 2.0);
            over(100.0 * seconds.iter().filter(|tps| **tps < half).count() as f64, seconds.len() as f64)
        },
    },
];

/// A series of seconds: name, title, and how it is read.
type Series = (&'static str, &'static str, fn(&Record) -> &[f64]);

/// All of them.
const SERIES: &[Series] = &[
    ("tps", "transactions/s", |r| &r.run.series),
    ("cpu_user", "user", |r| &r.watch.user),
    ("cpu_system", "system", |r| &r.watch.system),
    ("cpu_wait", "waiting for I/O", |r| &r.watch.wait),
    ("cpu_idle", "idle", |r| &r.watch.idle),
    ("device_ms", "device, ms an operation", |r| &r.watch.device_ms),
    ("device_reads", "device reads/s", |r| &r.watch.reads),
    ("device_writes", "device writes/s", |r| &r.watch.writes),
    ("directory_mb", "directory, MB", |r| &r.watch.directory_mb),
    ("rss_mb", "resident, MB", |r| &r.watch.rss_mb),
    ("rows", "rows changed/s", |r| &r.watch.rows),
];

/// Whether there is a metric of this name.
pub fn is_known(name: &str) -> bool {
    name.starts_with("p99_ms/") || METRICS.iter().any(|metric| metric.name == name)
}

/// Whether there is a series of this name.
pub fn is_series(name: &str) -> bool {
    SERIES.iter().any(|(known, ..)| *known == name)
}

/// The names of all but those of a kind of transaction.
pub fn names() -> Vec<&'static str> {
    METRICS.iter().map(|metric| metric.name).collect()
}

/// The title with its unit.
pub fn title(name: &str) -> String {
    if let Some(kind) = name.strip_prefix("p99_ms/") {
        return format!("p99 of {kind}, ms");
    }
    let metric = METRICS.iter().find(|metric| metric.name == name).map(|metric| metric.title);
    let series = || SERIES.iter().find(|(known, ..)| *known == name).map(|(_, title, _)| *title);
    metric.or_else(series).unwrap_or(name).to_string()
}

/// The figure, if the record has it.
pub fn of(record: &Record, name: &str) -> Option<f64> {
    if let Some(kind) = name.strip_prefix("p99_ms/") {
        return Some(record.run.by_kind.get(kind)?.p99_us as f64 / 1e3);
    }
    METRICS.iter().find(|metric| metric.name == name).and_then(|metric| (metric.of)(record)).filter(|v| v.is_finite())
}

/// The series, whole: of what is watched, the seconds of the warm-up too.
pub fn series<'a>(record: &'a Record, name: &str) -> &'a [f64] {
    SERIES.iter().find(|(known, ..)| *known == name).map_or(&[], |(_, _, of)| of(record))
}

impl Record {
    fn further(&self, name: &str) -> Option<f64> {
        self.run.further.get(name).copied()
    }

    fn ms(&self, us: u64) -> Option<f64> {
        (us > 0).then(|| us as f64 / 1e3)
    }

    fn each(&self, amount: f64) -> Option<f64> {
        over(amount, self.run.transactions as f64)
    }

    fn second(&self, amount: f64) -> Option<f64> {
        over(amount, self.run.seconds)
    }

    fn watched(&self, of: fn(&Watched) -> &Vec<f64>) -> &[f64] {
        self.watch.measured(of(&self.watch))
    }

    fn mean(&self, of: fn(&Watched) -> &Vec<f64>) -> Option<f64> {
        let series = self.watched(of);
        over(series.iter().sum(), series.len() as f64)
    }

    fn quantile(&self, of: fn(&Watched) -> &Vec<f64>, share: f64) -> Option<f64> {
        quantile(self.watched(of), share)
    }

    /// Transactions of the whole seconds, but for those of which the hypervisor took too much.
    pub fn seconds(&self) -> Vec<f64> {
        let undisturbed = self.run.undisturbed();
        let whole = crate::stats::whole(&self.run.series);
        if undisturbed.is_empty() { whole.to_vec() } else { undisturbed }
    }
}

fn over(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0)
}

/// The value below which this share of the values lies: the nearest one that is there.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.max(1) - 1).copied()
}

/// Standard deviation over mean.
fn deviation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    if values.len() > 1 { over(square.sqrt(), mean) } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::record::testing::record;
    use super::*;

    #[test]
    fn by_name() {
        let mut record = record("innodb", 1, &[], 2000);
        // 10 seconds; KB written are 3 a transaction.
        assert_eq!(of(&record, "tps"), Some(200.0));
        assert_eq!(of(&record, "written_kb_tx"), Some(3.0));
        assert_eq!(of(&record, "written_kb_s"), Some(600.0));
        assert_eq!(of(&record, "qps"), None);
        record.run.further.insert("statements".into(), 18.0);
        assert_eq!(of(&record, "qps"), Some(3600.0));
        record.watch.before = 1;
        record.watch.wait = vec![90.0, 10.0, 20.0];
        assert_eq!(of(&record, "cpu_wait"), Some(15.0));
        assert_eq!(of(&record, "p99_ms/get_node"), None);
        assert!(is_known("p99_ms/get_node") && !is_known("nothing") && is_series("tps") && !is_series("p99_ms"));
    }

    #[test]
    fn quantiles_and_deviation() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.01), Some(1.0));
        assert_eq!(quantile(&values, 0.25), Some(25.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(deviation(&[1.0]), None);
        assert!((deviation(&[1.0, 2.0, 3.0]).unwrap() - 0.5).abs() < 1e-12);
    }
}
