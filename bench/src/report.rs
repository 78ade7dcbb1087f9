//! What is kept of a run, and the figures that are derived from it.
//!
//! Rates and latencies are medians over rounds. Costs per operation, and the rate with settling, are those of all rounds
//! together: what one round leaves to be merged another one pays for.

use serde::{Deserialize, Serialize};

use crate::store::WriteLog;
use crate::work::{Sizes, Turn, Workload};

/// A run, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// When it began, in UTC.
    pub began: String,
    /// Command line.
    pub command: String,
    /// Commit of the sources, with a mark if they were changed.
    pub commit: String,
    /// Machine, in words.
    pub machine: String,
    /// Load average at the beginning and the end: above the run's own threads, others worked beside it.
    pub load: [f64; 2],
    /// Names and versions of the stores.
    pub versions: Vec<String>,
    /// Sizes.
    pub sizes: Sizes,
    /// All turns, in the order in which stores and workloads first ran.
    pub turns: Vec<Turns>,
}

/// The turns of one workload on one store, one per round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turns {
    pub workload: Workload,
    pub store: String,
    pub rounds: Vec<Turn>,
}

/// The figures of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Operations per second while they ran.
    Rate,
    /// Operations per second, the time of settling included.
    SustainedRate,
    Cpu,
    P50,
    P99,
    P999,
    BytesWritten,
    BytesRead,
    Reads,
    Allocations,
    /// Slowest second over the median second.
    Evenness,
    /// Bytes of data files after the last round.
    Space,
}

impl Figure {
    pub const ALL: [Figure; 12] = [
        Figure::Rate,
        Figure::SustainedRate,
        Figure::Cpu,
        Figure::P50,
        Figure::P99,
        Figure::P999,
        Figure::BytesWritten,
        Figure::BytesRead,
        Figure::Reads,
        Figure::Allocations,
        Figure::Evenness,
        Figure::Space,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Figure::Rate => "ops/s",
            Figure::SustainedRate => "ops/s settled",
            Figure::Cpu => "CPU us/op",
            Figure::P50 => "p50 us",
            Figure::P99 => "p99 us",
            Figure::P999 => "p99.9 us",
            Figure::BytesWritten => "B written/op",
            Figure::BytesRead => "B read/op",
            Figure::Reads => "reads/op",
            Figure::Allocations => "allocs/op",
            Figure::Evenness => "min/median s",
            Figure::Space => "data MB",
        }
    }

    /// Its value over all rounds, as the module says. `None` where it was not measured.
    pub fn of(self, turns: &Turns) -> Option<f64> {
        let ops: u64 = turns.rounds.iter().map(|turn| turn.ops).sum();
        let per_op = |of: fn(&Turn) -> u64| {
            let all: u64 = turns.rounds.iter().map(of).sum();
            (ops > 0).then(|| all as f64 / ops as f64)
        };
        let latency = |of: fn(&Turn) -> u64| {
            let us = median(turns.rounds.iter().map(|turn| of(turn) as f64 / 1000.0).collect());
            us.filter(|_| turns.workload != Workload::Load)
        };
        match self {
            Figure::Rate => median(turns.rounds.iter().map(|turn| turn.ops as f64 / turn.seconds).collect()),
            Figure::SustainedRate => {
                let seconds: f64 = turns.rounds.iter().map(|turn| turn.seconds + turn.settle_seconds).sum();
                (seconds > 0.0 && !turns.workload.only_reads()).then(|| ops as f64 / seconds)
            }
            Figure::Cpu => per_op(|turn| turn.usage.cpu_us),
            Figure::P50 => latency(|turn| turn.latency.p50),
            Figure::P99 => latency(|turn| turn.latency.p99),
            Figure::P999 => latency(|turn| turn.latency.p999),
            Figure::BytesWritten => per_op(|turn| turn.usage.write_bytes),
            Figure::BytesRead => per_op(|turn| turn.usage.read_bytes),
            Figure::Reads => per_op(|turn| turn.usage.reads),
            Figure::Allocations => per_op(|turn| turn.allocations),
            Figure::Evenness => {
                let seconds: Vec<f64> = series(turns).into_iter().map(|ops| ops as f64).collect();
                let least = seconds.iter().copied().reduce(f64::min)?;
                // Fewer are no series.
                median(seconds.clone())
                    .filter(|middle| seconds.len() >= 3 && *middle > 0.0)
                    .map(|middle| least / middle)
            }
            Figure::Space => turns.rounds.last().map(|turn| turn.data_bytes as f64 / 1e6),
        }
    }
}

/// The seconds of all rounds, one after the other.
pub fn series(turns: &Turns) -> Vec<u64> {
    turns.rounds.iter().flat_map(|turn| turn.series.iter().copied()).collect()
}

/// The middle value, or the mean of the two middle ones.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Three significant digits or whole numbers, with thousands apart.
pub fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.001 => format!("{value:.4}"),
        v if v < 0.1 => format!("{value:.3}"),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let parts: Vec<&str> =
                digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).expect("digits")).collect();
            parts.join(",")
        }
    }
}

impl Run {
    /// The workloads in the order in which they ran.
    pub fn workloads(&self) -> Vec<Workload> {
        let mut seen: Vec<Workload> = Vec::new();
        for turns in &self.turns {
            if !seen.contains(&turns.workload) {
                seen.push(turns.workload);
            }
        }
        seen
    }

    /// The turns of a workload, in the order of stores.
    pub fn of(&self, workload: Workload) -> Vec<&Turns> {
        self.turns.iter().filter(|turns| turns.workload == workload).collect()
    }

    /// Ratio of a figure, the first store over another one.
    pub fn ratio(&self, workload: Workload, figure: Figure, other: &str) -> Option<f64> {
        let of = self.of(workload);
        let (first, other) = (of.first()?, of.iter().find(|turns| turns.store == other)?);
        match (figure.of(first)?, figure.of(other)?) {
            (_, 0.0) => None,
            (first, other) => Some(first / other),
        }
    }

    /// Conditions, one per line.
    pub fn conditions(&self) -> Vec<String> {
        let s = &self.sizes;
        vec![
            format!("{}, commit {}", self.began, self.commit),
            self.machine.clone(),
            self.versions.join(", "),
            format!(
                "{} rows of about {} bytes = {:.0} MB; memory {:.0} MB per store (a quarter for memtables), data {:.1} times \
                 that; tables {}; log of single writes {}",
                number(Some(s.rows as f64)),
                crate::data::ROW_BYTES,
                (s.rows * crate::data::ROW_BYTES) as f64 / 1e6,
                s.memory_bytes as f64 / 1e6,
                (s.rows * crate::data::ROW_BYTES) as f64 / s.memory_bytes as f64,
                if s.direct { "with direct I/O" } else { "through the page cache, Strata's with direct I/O" },
                match s.log {
                    WriteLog::EverySecond => "synced every second",
                    WriteLog::EachWrite => "handed to the system with each",
                },
            ),
            format!(
                "{} alternating rounds; {} s per turn that reads or commits, {} reading and {} committing threads, {} \
                 writes/s beside reads",
                s.rounds, s.seconds, s.threads, s.commit_threads, s.write_rate
            ),
            format!("load average {:.1} at the beginning, {:.1} at the end", self.load[0], self.load[1]),
            self.command.clone(),
        ]
    }

    /// Tables in Markdown: one of rates and ratios, one per workload.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for line in self.conditions() {
            text += &format!("- {line}\n");
        }
        let stores: Vec<&str> = self.turns.iter().fold(Vec::new(), |mut seen, turns| {
            if !seen.contains(&turns.store.as_str()) {
                seen.push(&turns.store);
            }
            seen
        });
        text += &format!("\n| ops/s | {} |", stores.join(" | "));
        for other in stores.iter().skip(1) {
            text += &format!(" {}/{other} |", stores[0]);
        }
        text += &format!("\n|---|{}\n", "---:|".repeat(stores.len() * 2 - 1));
        for workload in self.workloads() {
            // What is left to do afterwards belongs to a write.
            let writes =
                !workload.only_reads() && workload != Workload::Commit && workload != Workload::GetWhileWriting;
            let figure = if writes { Figure::SustainedRate } else { Figure::Rate };
            text += &format!("| {}{} |", workload.title(), if writes { " *" } else { "" });
            for store in &stores {
                let turns = self.of(workload).into_iter().find(|turns| turns.store == *store);
                text += &format!(" {} |", number(turns.and_then(|turns| figure.of(turns))));
            }
            for other in stores.iter().skip(1) {
                text += &format!(" {} |", number(self.ratio(workload, figure, other)));
            }
            text += "\n";
        }
        text += "\n(*) over all rounds, with the time until background work was done.\n";
        for workload in self.workloads() {
            text += &format!("\n### {}\n\n| |", workload.title());
            let turns = self.of(workload);
            text += &turns.iter().map(|turns| format!(" {} |", turns.store)).collect::<String>();
            text += &format!("\n|---|{}\n", "---:|".repeat(turns.len()));
            for figure in Figure::ALL {
                let values: Vec<Option<f64>> = turns.iter().map(|turns| figure.of(turns)).collect();
                if values.iter().any(Option::is_some) {
                    let cells: String = values.iter().map(|value| format!(" {} |", number(*value))).collect();
                    text += &format!("| {} |{cells}\n", figure.title());
                }
            }
        }
        text
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::measure::{Latency, Usage};

    fn turn(ops: u64, seconds: f64, series: &[u64]) -> Turn {
        Turn {
            ops,
            seconds,
            settle_seconds: seconds,
            usage: Usage { cpu_us: 3 * ops, read_bytes: 0, write_bytes: 200 * ops, reads: ops / 2 },
            allocations: 4 * ops,
            latency: Latency { p50: 1500, p99: 20_000, p999: 300_000, max: 1_000_000 },
            series: series.to_vec(),
            data_bytes: 7_000_000,
            ..Turn::default()
        }
    }

    /// A run of two stores with round numbers.
    pub fn run() -> Run {
        let turns = |workload, store: &str, ops| Turns {
            workload,
            store: store.into(),
            rounds: vec![turn(ops, 1.0, &[ops]), turn(ops * 9, 1.0, &[ops * 9]), turn(ops * 2, 1.0, &[ops * 2])],
        };
        Run {
            began: "2024-01-01 00:00".into(),
            command: "strata-bench".into(),
            commit: "abc".into(),
            machine: "two cores".into(),
            load: [0.0, 1.0],
            versions: vec!["a 1".into(), "b 2".into()],
            sizes: Sizes {
                rows: 1000,
                memory_bytes: 1 << 20,
                direct: false,
                log: WriteLog::EverySecond,
                rounds: 3,
                seconds: 1.0,
                threads: 1,
                commit_threads: 8,
                write_rate: 10,
            },
            turns: vec![
                turns(Workload::Get, "strata", 3000),
                turns(Workload::Get, "rocksdb", 1000),
                turns(Workload::Overwrite, "strata", 500),
                turns(Workload::Overwrite, "rocksdb", 1000),
            ],
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn numbers() {
        let cases =
            [(0.0, "0"), (0.00012, "0.0001"), (0.0123, "0.012"), (1.234, "1.23"), (12.34, "12.3"), (999.6, "1,000")];
        for (value, text) in cases {
            assert_eq!(number(Some(value)), text);
        }
        assert_eq!(number(Some(1_234_567.0)), "1,234,567");
        assert_eq!(number(None), "-");
    }

    #[test]
    fn figures_are_medians_of_what_rounds_came_to() {
        let run = run();
        let turns = &run.turns[0];
        assert_eq!(Figure::Rate.of(turns), Some(6000.0));
        assert_eq!(Figure::Cpu.of(turns), Some(3.0));
        assert_eq!(Figure::P50.of(turns), Some(1.5));
        assert_eq!(Figure::BytesWritten.of(turns), Some(200.0));
        assert_eq!(Figure::Reads.of(turns), Some(0.5));
        assert_eq!(Figure::Allocations.of(turns), Some(4.0));
        assert_eq!(Figure::Evenness.of(turns), Some(0.5));
        assert_eq!(Figure::Space.of(turns), Some(7.0));
        // Nothing is left to do after a read.
        assert_eq!(Figure::SustainedRate.of(turns), None);
        // Over all rounds: 500, 4500 and 1000 operations in two seconds each.
        assert_eq!(Figure::SustainedRate.of(&run.turns[2]), Some(1000.0));
        assert_eq!(run.ratio(Workload::Get, Figure::Rate, "rocksdb"), Some(3.0));
        assert_eq!(run.ratio(Workload::Get, Figure::Rate, "lmdb"), None);
    }

    #[test]
    fn a_stored_run_reads_back_as_it_was() {
        let run = run();
        let json = serde_json::to_string(&run).expect("plain data");
        let back: Run = serde_json::from_str(&json).expect("what was written");
        assert_eq!(back.markdown(), run.markdown());
    }

    #[test]
    fn the_tables_name_what_was_measured() {
        let text = run().markdown();
        for part in [
            "| point read, present | 6,000 | 2,000 | 3.00 |",
            "| overwrite, random * | 1,000 | 2,000 | 0.50 |",
            "### overwrite",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
