//! Results: one file per run, and tables of medians with ratios.

mod compare;
mod command;
mod page;
mod place;
mod text;
mod variables;
mod verdict;

pub use self::command::{Args, run};
pub use self::place::{Place, commit};
pub use self::variables::Variables;

use self::text::render;
use crate::drive::Seen;
use crate::engine::{Conditions, DiskSize, Kind};
use crate::kernel::States;
use crate::meter::Usage;
use crate::page::to_html;
use crate::server::{Instance, Server};
use crate::stats::{Latency, evenness, longest_zero, median, minimum};
use anyhow::Result;
use jiff::Timestamp;
use mysql::prelude::Queryable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Everything known about one run of one workload on one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The lab's command: `tpcc`, `oltp`...
    pub workload: String,
    /// What is compared across engines: `oltp_insert, 8 threads`.
    pub label: String,
    /// The engine.
    pub engine: Kind,
    /// Which repetition, from 1.
    pub round: u32,
    /// Which of the measurements in turn in this round, from 1.
    #[serde(default = "first")]
    pub slice: u32,
    /// Seconds since 1970 when the run ended.
    pub finished: u64,
    /// Conditions of the comparison.
    pub conditions: Conditions,
    /// The isolation level in effect.
    pub isolation: String,
    /// The server's version.
    pub version: String,
    /// The server's variables that say under which conditions it ran.
    #[serde(default)]
    pub variables: Variables,
    /// Command, commit, kernel, disk.
    #[serde(default)]
    pub place: Place,
    /// The machine: processors and memory.
    pub machine: String,
    /// Settings of the workload.
    pub settings: BTreeMap<String, String>,
    /// Seconds measured.
    pub seconds: f64,
    /// Transactions that ended well in that time.
    pub transactions: u64,
    /// Deadlocks (repeated by the client, not an error).
    pub deadlocks: u64,
    /// Errors of any other kind; a run with errors is a failure.
    pub errors: Vec<String>,
    /// Transactions in each second.
    pub series: Vec<f64>,
    /// Latencies of all transactions.
    pub latency: Latency,
    /// Latencies by kind of transaction, where there are several.
    pub by_kind: BTreeMap<String, Latency>,
    /// Further figures of the workload, by name.
    #[serde(default)]
    pub further: BTreeMap<String, f64>,
    /// What the server spent.
    pub usage: Usage,
    /// The engine's files at the end.
    pub disk: DiskSize,
    /// Bytes of its data when they were compacted after that; none if they were not.
    #[serde(default)]
    pub compacted: Option<u64>,
}

impl Run {
    /// A run about whose figures nothing is known yet.
    pub fn new(workload: &str, label: String, instance: &Instance, conditions: &Conditions, round: u32) -> Run {
        Run {
            workload: workload.into(),
            label,
            engine: instance.kind(),
            round,
            slice: first(),
            finished: now(),
            conditions: conditions.clone(),
            isolation: instance.kind().isolation(conditions.isolation).name().into(),
            version: String::new(),
            variables: Variables::default(),
            place: Place::here(&instance.data()),
            machine: machine(),
            settings: BTreeMap::new(),
            seconds: 0.0,
            transactions: 0,
            deadlocks: 0,
            errors: Vec::new(),
            series: Vec::new(),
            latency: Latency::default(),
            by_kind: BTreeMap::new(),
            further: BTreeMap::new(),
            usage: Usage::default(),
            disk: DiskSize::default(),
            compacted: None,
        }
    }

    /// The same of a server that has just been measured: what it says of itself, and the size of its files.
    pub fn of(workload: &str, label: String, server: &Server, conditions: &Conditions, round: u32) -> Result<Run> {
        let version: Option<String> = server.connect(None)?.query_first("SELECT VERSION()")?;
        Ok(Run {
            version: version.unwrap_or_default(),
            variables: Variables::read(server)?,
            disk: server.instance().size_on_disk()?,
            ..Run::new(workload, label, server.instance(), conditions, round)
        })
    }

    /// The same with what sessions saw, and what the server spent meanwhile. The words of the sessions are settings of the run.
    pub fn with(self, seen: Seen, usage: Usage) -> Run {
        let errors = seen.failures();
        let Seen { seconds, transactions, deadlocks, series, latency, by_kind, further, words, .. } = seen;
        let settings = self.settings.into_iter().chain(words).collect();
        Run { seconds, transactions, deadlocks, errors, series, latency, by_kind, further, usage, settings, ..self }
    }

    /// As it is told while others are still to come: `Strata, round 2: oltp_insert, 8 threads`.
    pub fn name(&self) -> String {
        format!("{}, round {}: {}", self.engine.title(), self.round, self.label)
    }

    /// Transactions per second.
    pub fn tps(&self) -> f64 {
        if self.seconds > 0.0 { self.transactions as f64 / self.seconds } else { 0.0 }
    }

    /// Memory that data and load added to the server, over what the engine was given.
    pub fn memory_over_budget(&self) -> Option<f64> {
        Some(self.usage.rss_added()? as f64 / (self.conditions.budget_mb as f64 * MIB))
    }

    /// Transactions in each second in which the machine was ours; the others say more of its hypervisor than of the engine.
    pub fn undisturbed(&self) -> Vec<f64> {
        let seconds = self.series.iter().zip(&self.usage.stolen_series);
        seconds.filter(|(_, stolen)| **stolen < DISTURBED).map(|(tps, _)| *tps).collect()
    }

    fn states(&self) -> States {
        self.usage.states.unwrap_or_default()
    }

    fn per_transaction(&self, amount: u64) -> f64 {
        amount as f64 / self.transactions.max(1) as f64
    }
}

/// A figure of the report.
pub struct Metric {
    /// Its name with its unit.
    pub name: &'static str,
    value: fn(&Run) -> f64,
}

/// Bytes.
pub const MIB: f64 = 1048576.0;

/// A second of which this share of the processors was stolen is disturbed.
pub const DISTURBED: f64 = 0.04;

/// All figures, in the order of the report.
pub const METRICS: &[Metric] = &[
    Metric { name: "transactions/s", value: Run::tps },
    Metric { name: "1 s median, tps", value: |run| median(&run.series) },
    Metric { name: "1 s minimum, tps", value: |run| minimum(&run.series) },
    Metric { name: "1 s minimum/median", value: |run| evenness(&run.series) },
    Metric { name: "the same, undisturbed", value: |run| evenness(&run.undisturbed()) },
    Metric { name: "longest time at zero, s", value: |run| longest_zero(&run.series) as f64 },
    Metric { name: "p50, ms", value: |run| run.latency.p50_us as f64 / 1e3 },
    Metric { name: "p95, ms", value: |run| run.latency.p95_us as f64 / 1e3 },
    Metric { name: "p99, ms", value: |run| run.latency.p99_us as f64 / 1e3 },
    Metric { name: "p99.9, ms", value: |run| run.latency.p999_us as f64 / 1e3 },
    Metric { name: "p99.9/p50", value: |run| over(run.latency.p999_us as f64, run.latency.p50_us as f64) },
    Metric { name: "longest, ms", value: |run| run.latency.max_us as f64 / 1e3 },
    Metric { name: "KB written/tx", value: |run| run.per_transaction(run.usage.write_bytes) / 1024.0 },
    Metric {
        name: "without binlog, KB/tx",
        value: |run| run.per_transaction(run.usage.write_bytes.saturating_sub(run.usage.binlog_bytes)) / 1024.0,
    },
    Metric { name: "binlog KB/tx", value: |run| run.per_transaction(run.usage.binlog_bytes) / 1024.0 },
    Metric { name: "engine log records, KB/tx", value: |run| run.per_transaction(run.usage.logged_bytes) / 1024.0 },
    Metric { name: "engine syncs/tx", value: |run| run.per_transaction(run.usage.engine_syncs) },
    Metric { name: "binlog syncs/tx", value: |run| run.per_transaction(run.usage.binlog_syncs) },
    Metric { name: "KB read/tx", value: |run| run.per_transaction(run.usage.read_bytes) / 1024.0 },
    Metric { name: "server CPU us/tx", value: |run| run.per_transaction(run.usage.cpu_us) },
    Metric { name: "of it in the kernel, CPU us/tx", value: |run| run.per_transaction(run.usage.cpu_system_us) },
    Metric { name: "processors user, %", value: |run| run.states().user },
    Metric { name: "processors system, %", value: |run| run.states().system },
    Metric { name: "processors waiting for I/O, %", value: |run| run.states().wait },
    Metric { name: "processors idle, %", value: |run| run.states().idle },
    Metric { name: "processors stolen, %", value: |run| run.usage.stolen * 100.0 },
    Metric { name: "data on disk, MB", value: |run| run.disk.data as f64 / MIB },
    Metric { name: "data on disk at most, MB", value: |run| run.usage.data_most as f64 / MIB },
    Metric { name: "data compacted, MB", value: |run| run.compacted.unwrap_or(0) as f64 / MIB },
    Metric {
        name: "data at most/compacted",
        value: |run| over(run.usage.data_most as f64, run.compacted.unwrap_or(0) as f64),
    },
    Metric { name: "engine log on disk, MB", value: |run| run.disk.log as f64 / MIB },
    Metric { name: "resident at start, MB", value: |run| run.usage.rss_start as f64 / MIB },
    Metric { name: "resident at most, MB", value: |run| run.usage.rss_most() as f64 / MIB },
    Metric { name: "resident without data, MB", value: |run| run.usage.rss_base as f64 / MIB },
    Metric { name: "added by data and load, MB", value: |run| run.usage.rss_added().unwrap_or(0) as f64 / MIB },
    Metric { name: "added/budget", value: |run| run.memory_over_budget().unwrap_or(0.0) },
    Metric { name: "deadlocks/1000 tx", value: |run| run.per_transaction(run.deadlocks) * 1000.0 },
];

fn over(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// The figures shown for comparisons of many workloads.
const SHORT: &[&str] = &[
    "transactions/s",
    "1 s minimum, tps",
    "p95, ms",
    "p99, ms",
    "p99.9, ms",
    "KB written/tx",
    "engine log records, KB/tx",
    "engine syncs/tx",
    "binlog syncs/tx",
    "KB read/tx",
    "server CPU us/tx",
    "processors stolen, %",
    "resident at most, MB",
];

/// The figures of a tour.
pub const BRIEF: &[&str] = &["transactions/s", "p95, ms", "KB written/tx", "server CPU us/tx"];

/// The figures of whole tables: a row counts as a transaction.
pub const ROWS: &[&str] =
    &["transactions/s", "server CPU us/tx", "KB written/tx", "KB read/tx", "data on disk, MB", "resident at most, MB"];

/// The figures of a steady load.
pub const STEADY: &[&str] = &[
    "transactions/s",
    "1 s median, tps",
    "1 s minimum, tps",
    "1 s minimum/median",
    "the same, undisturbed",
    "p50, ms",
    "p99.9, ms",
    "p99.9/p50",
    "longest, ms",
    "KB written/tx",
    "server CPU us/tx",
    "processors stolen, %",
    "data on disk, MB",
    "resident at most, MB",
];

/// One report in the making: stores runs, prints tables at the end.
pub struct Report {
    folder: PathBuf,
    stamp: String,
    title: String,
    figures: &'static [&'static str],
    full: bool,
    runs: Vec<Run>,
}

impl Report {
    /// A report whose files go to `<lab>/results`.
    pub fn new(lab: &Path, title: &str) -> Result<Report> {
        let folder = lab.join("results");
        fs::create_dir_all(&folder)?;
        let now = now();
        Ok(Report {
            folder,
            stamp: utc_stamp(now),
            title: title.to_string(),
            figures: SHORT,
            full: false,
            runs: Vec::new(),
        })
    }

    /// The same with these figures.
    pub fn with(self, figures: &'static [&'static str]) -> Report {
        Report { figures, ..self }
    }

    /// The same with a table of all figures for each label, not a table of all labels for each figure.
    pub fn in_full(self) -> Report {
        Report { full: true, ..self }
    }

    /// Stores a run.
    pub fn add(&mut self, run: Run) -> Result<()> {
        let label: String = run.label.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        // The number keeps the order in which the runs were made.
        let name = format!(
            "{}-{:04}-{}-{label}-{}-r{}s{}.json",
            self.stamp,
            self.runs.len() + 1,
            run.workload,
            run.engine.id(),
            run.round,
            run.slice
        );
        fs::write(self.folder.join(name), serde_json::to_string_pretty(&run)?)?;
        self.runs.push(run);
        Ok(())
    }

    /// Prints and stores the tables; fails when a run had errors.
    pub fn finish(self) -> Result<()> {
        let text = render(&self.title, &self.runs, self.figures, self.full);
        println!("\n{text}");
        let path = self.folder.join(format!("{}-report.txt", self.stamp));
        fs::write(&path, &text)?;
        let html = self.folder.join(format!("{}-report.html", self.stamp));
        fs::write(&html, to_html(&page::of_runs(&self.title, &self.runs)?))?;
        println!(
            "This report is stored in {}, as a page with charts in {}, each run beside it as JSON.",
            path.display(),
            html.display()
        );
        let failed: Vec<String> = self
            .runs
            .iter()
            .filter(|run| !run.errors.is_empty())
            .map(|run| {
                format!("{} on {}, round {}: {}", run.label, run.engine.title(), run.round, run.errors.join("; "))
            })
            .collect();
        anyhow::ensure!(failed.is_empty(), "{} runs had errors:\n{}", failed.len(), failed.join("\n"));
        Ok(())
    }
}

fn first() -> u32 {
    1
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `20260131-235959`, in UTC.
fn utc_stamp(seconds: u64) -> String {
    utc("%Y%m%d-%H%M%S", seconds)
}

/// `2026-01-31`, in UTC.
pub fn day(seconds: u64) -> String {
    utc("%Y-%m-%d", seconds)
}

fn utc(format: &str, seconds: u64) -> String {
    Timestamp::from_second(seconds as i64).unwrap_or_default().strftime(format).to_string()
}

/// Processors and memory of this machine.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kb =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let gib = kb.unwrap_or(0u64).div_ceil(1 << 20);
    format!("{cores} processors, {gib} GiB")
}

/// Runs for tests.
#[cfg(test)]
pub mod testing {
    use super::*;
    use crate::options::Isolation;

    /// A run of 10 seconds with a budget of 100 MB.
    pub fn run(engine: Kind, label: &str, round: u32, transactions: u64) -> Run {
        Run {
            workload: "oltp".into(),
            label: label.into(),
            engine,
            round,
            slice: 1,
            finished: 0,
            conditions: Conditions {
                budget_mb: 100,
                isolation: Isolation::ReadCommitted,
                extra: vec![],
                strata_extra: vec![],
            },
            isolation: "READ-COMMITTED".into(),
            version: "10.11.0".into(),
            variables: Variables::default(),
            place: Place::default(),
            machine: "2 processors".into(),
            settings: BTreeMap::from([("rows".into(), "10".into())]),
            seconds: 10.0,
            transactions,
            deadlocks: 0,
            errors: vec![],
            series: vec![1.0, 3.0],
            latency: Latency::default(),
            by_kind: BTreeMap::new(),
            further: BTreeMap::new(),
            usage: Usage { write_bytes: 3072 * transactions, binlog_bytes: 1024 * transactions, ..Usage::default() },
            disk: DiskSize::default(),
            compacted: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::run;
    use super::*;

    #[test]
    fn medians_and_ratios() {
        let mut runs = vec![];
        for (round, n) in [(1, 1000), (2, 5000), (3, 2000)] {
            runs.push(run(Kind::Innodb, "a", round, n));
            runs.push(run(Kind::Strata, "a", round, 2 * n));
        }
        let text = render("T", &runs, SHORT, false);
        let line = text.lines().find(|line| line.starts_with("transactions/s")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["transactions/s", "200", "400", "2.00"]);
        let line = text.lines().find(|line| line.starts_with("without binlog")).unwrap();
        assert!(line.split_whitespace().collect::<Vec<_>>().ends_with(&["2.00", "2.00", "1.00"]), "{line}");
        assert!(text.contains("Strata/InnoDB"));
        assert!(text.contains("rows 10"));
    }

    #[test]
    fn words_of_the_sessions_stand_among_the_settings() {
        let words = BTreeMap::from([("Redmine".into(), "5.0".into())]);
        let seen = Seen { words, lost: 2, ..Seen::default() };
        let run = run(Kind::Strata, "a", 1, 1000).with(seen, Usage::default());
        let settings: Vec<String> = run.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(
            (settings, run.errors),
            (vec!["Redmine 5.0".into(), "rows 10".into()], vec!["2 sessions broke".into()])
        );
    }

    #[test]
    fn seconds_that_others_took_are_left_out() {
        let mut run = run(Kind::Strata, "a", 1, 1000);
        run.series = vec![100.0, 40.0, 80.0, 100.0, 9.0];
        run.usage.stolen_series = vec![0.0, 0.2, DISTURBED / 2.0, 0.0];
        assert_eq!(run.undisturbed(), [100.0, 80.0, 100.0]);
    }

    #[test]
    fn ratios_are_those_of_neighbours() {
        // The machine was ten times slower in the second slice, for both.
        let mut runs = vec![];
        for (slice, n) in [(1, 1000), (2, 100), (3, 900)] {
            runs.push(Run { slice, ..run(Kind::Innodb, "a", 1, n) });
            runs.push(Run { slice, ..run(Kind::Strata, "a", 1, n * 6 / 5) });
        }
        runs.push(Run { slice: 4, ..run(Kind::Strata, "a", 1, 10) });
        let text = render("T", &runs, SHORT, false);
        let line = text.lines().find(|line| line.starts_with("transactions/s")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["transactions/s", "90.0", "60.0", "1.20"]);
    }

    #[test]
    fn many_labels_make_a_table_each_figure() {
        let runs = vec![
            run(Kind::Innodb, "a", 1, 1000),
            run(Kind::Rocksdb, "a", 1, 500),
            run(Kind::Strata, "a", 1, 1500),
            run(Kind::Innodb, "b", 1, 100),
        ];
        let text = render("T", &runs, SHORT, false);
        let line = text.lines().find(|line| line.starts_with("a ")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["a", "100", "50.0", "150", "1.50", "3.00"]);
        let line = text.lines().find(|line| line.starts_with("b ")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["b", "10.0", "-", "-", "-", "-"]);
    }

    #[test]
    fn each_label_has_all_figures_in_a_full_report() {
        let mut runs = vec![];
        for (engine, n) in [(Kind::Innodb, 1000), (Kind::Strata, 3000)] {
            let mut load = run(engine, "load", 1, n);
            load.latency = Latency { p99_us: n, ..Latency::default() };
            load.by_kind.insert("rows".into(), Latency { p99_us: n, ..Latency::default() });
            load.further.insert("links".into(), n as f64 / 10.0);
            runs.extend([load, run(engine, "requests", 1, 2 * n)]);
        }
        let text = render("T", &runs, SHORT, true);
        let lines = |start: &str| -> Vec<Vec<&str>> {
            let found = text.lines().filter(|line| line.starts_with(start));
            found.map(|line| line.split_whitespace().collect()).collect()
        };
        let expected = [["transactions/s", "100", "300", "3.00"], ["transactions/s", "200", "600", "3.00"]];
        assert_eq!(lines("transactions/s"), expected);
        assert_eq!(
            lines("rows  "),
            [["rows", "0", "0", "-"], ["rows", "1.00", "3.00", "3.00"], ["rows", "0", "0", "-"]]
        );
        assert_eq!(lines("links"), [["links", "100", "300", "3.00"]]);
        assert_eq!((lines("load").len(), lines("requests").len()), (1, 1));
        // Of the load, and as the head of its kinds; what was not measured of the requests has no row there.
        let p99 = lines("p99, ms");
        assert_eq!(p99, [vec!["p99,", "ms", "1.00", "3.00", "3.00"], p99[1].clone()]);
        assert!(p99[1].contains(&"Strata"), "{p99:?}");
    }

    #[test]
    fn durability_is_told_as_the_server_says_it() {
        let mut run = run(Kind::Innodb, "a", 1, 1);
        let told = |run: &Run| render("T", std::slice::from_ref(run), SHORT, false);
        assert!(told(&run).contains("InnoDB: READ-COMMITTED; the server's variables were not stored.\n"));
        run.conditions.extra = vec!["sync_binlog=0".into()];
        assert!(told(&run).contains("were not stored, options were sync_binlog=0.\n"));
        run.variables = Variables::of(&[("sync_binlog", "0", "0"), ("innodb_flush_log_at_trx_commit", "1", "1")]);
        let words = "InnoDB: READ-COMMITTED; sync_binlog 0, innodb_flush_log_at_trx_commit 1.\n";
        assert!(told(&run).contains(words));
    }

    #[test]
    fn results_survive_the_file() {
        let run = run(Kind::Strata, "a", 1, 7);
        let text = serde_json::to_string(&run).unwrap();
        let back: Run = serde_json::from_str(&text).unwrap();
        assert_eq!(back.transactions, 7);
        assert_eq!(back.engine, Kind::Strata);
    }

    #[test]
    fn stamps() {
        assert_eq!(utc_stamp(0), "19700101-000000");
        assert_eq!(utc_stamp(951_782_399), "20000228-235959");
        assert_eq!(utc_stamp(951_782_400), "20000229-000000");
        assert_eq!(utc_stamp(1_704_067_199), "20231231-235959");
    }
}
