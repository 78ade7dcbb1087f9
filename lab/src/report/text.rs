//! A report in Markdown: conditions, medians and ratios of runs.
//!
//! Ratios are those of neighbours: of runs in the same round and slice, of which the median is shown.
//!
//! Invariant: rows and columns stand in the order in which the runs came.
//!
//! Rejected: ratios of medians (what changes from round to round on the machine would count in full).

use super::{METRICS, Metric, Run};
use crate::engine::{Conditions, Kind};
use crate::stats::{Latency, median};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The whole report as text; of several labels these figures, or all if it is to be in full.
pub(super) fn render(title: &str, runs: &[Run], figures: &[&str], full: bool) -> String {
    let mut text = format!("{title}\n\n");
    let Some(first) = runs.first() else {
        return text + "There are no runs.\n";
    };
    text += &conditions_text(first, runs);
    let labels = in_order(runs.iter().map(|run| run.label.clone()));
    if labels.len() == 1 || full {
        for label in &labels {
            let mut rows: Vec<Row> =
                METRICS.iter().map(|metric| Row::of_metric(metric.name, runs, label, metric)).collect();
            rows.extend(further(runs, label));
            let _ = writeln!(text, "\n{label}");
            text += &table("", rows, &engines(runs));
            text += &kinds_tables(runs, label);
        }
    } else {
        for name in figures {
            let metric = METRICS.iter().find(|metric| metric.name == *name).expect("the name is one of METRICS");
            let rows = labels.iter().map(|label| Row::of_metric(label, runs, label, metric));
            text.push('\n');
            text += &table(metric.name, rows.collect(), &engines(runs));
        }
    }
    for run in runs.iter().filter(|run| !run.errors.is_empty()) {
        let _ = writeln!(
            text,
            "\nERRORS: {} on {}, round {}: {}",
            run.label,
            run.engine.title(),
            run.round,
            run.errors.join("; ")
        );
    }
    text
}

fn conditions_text(first: &Run, runs: &[Run]) -> String {
    let mut text = format!("MariaDB {}; {}.\n", first.version, first.machine);
    let rounds = runs.iter().map(|run| run.round).max().unwrap_or(1);
    let c = &first.conditions;
    let _ = writeln!(
        text,
        "{}, {rounds} round(s), medians. {}\n\
         Memory for each: {} MB (InnoDB: buffer pool; RocksDB, Strata: block cache {} +\n\
         memtables {}). Direct I/O for tables.",
        match runs.iter().map(|run| run.slice).max() {
            Some(slices @ 2..) => format!("A private server each, one under load at a time, in turn {slices} times"),
            _ => "One private server at a time".into(),
        },
        durability(c),
        c.budget_mb,
        c.block_cache_mb(),
        c.memtable_mb(),
    );
    for engine in engines(runs) {
        if let Some(run) = runs.iter().find(|run| run.engine == engine) {
            let _ = write!(text, "{}: {}. ", engine.title(), run.isolation);
        }
    }
    text.push('\n');
    if runs.iter().any(|run| run.isolation != c.isolation.name()) {
        text += "RocksDB fails under REPEATABLE READ where a row changed after its snapshot, hence its other level;\n\
                 --isolation read-committed gives the same to all.\n";
    }
    let settings = in_order(runs.iter().flat_map(|run| run.settings.keys().cloned()));
    let settings: Vec<String> = settings
        .iter()
        .filter_map(|name| {
            let values = in_order(runs.iter().filter_map(|run| run.settings.get(name).cloned()));
            (values.len() == 1).then(|| format!("{name} {}", values[0]))
        })
        .collect();
    if !settings.is_empty() {
        let _ = writeln!(text, "Workload: {}.", settings.join(", "));
    }
    text
}

/// What holds unless an option of the run says otherwise, and then these options.
fn durability(conditions: &Conditions) -> String {
    let about = |line: &&String| {
        ["sync_binlog", "sync-binlog", "log_bin", "log-bin", "flush_log", "flush-log"]
            .iter()
            .any(|word| line.contains(word))
    };
    let options: Vec<&str> = conditions.extra.iter().filter(about).map(String::as_str).collect();
    if options.is_empty() {
        "Binary log on (ROW, sync_binlog=1), engine log flushed at each commit.".into()
    } else {
        // The name of the engine's option differs between engines, its value does not.
        format!(
            "Binary log on (ROW, sync_binlog=1), engine log flushed at each commit, but for {}.",
            options.join(", ")
        )
    }
}

/// What only this workload has.
fn further(runs: &[Run], label: &str) -> Vec<Row> {
    let runs = || runs.iter().filter(|run| run.label == label);
    let names = in_order(runs().flat_map(|run| run.further.keys().cloned()));
    names.iter().map(|name| Row::of(name, runs().filter_map(|run| Some((run, *run.further.get(name)?))))).collect()
}

/// Latencies of each kind of transaction.
fn kinds_tables(runs: &[Run], label: &str) -> String {
    type Figure = fn(&Latency) -> u64;
    let runs = || runs.iter().filter(|run| run.label == label);
    let kinds = in_order(runs().flat_map(|run| run.by_kind.keys().cloned()));
    if kinds.is_empty() {
        return String::new();
    }
    let figures: [(&str, Figure); 3] =
        [("p95, ms", |l| l.p95_us), ("p99, ms", |l| l.p99_us), ("longest, ms", |l| l.max_us)];
    let mut text = String::new();
    for (name, figure) in figures {
        let rows = kinds.iter().map(|kind| {
            Row::of(kind, runs().filter_map(|run| Some((run, figure(run.by_kind.get(kind)?) as f64 / 1e3))))
        });
        let _ = write!(text, "\n{}", table(name, rows.collect(), &engines_of(runs())));
    }
    text
}

/// A figure of each engine, from all measurements.
struct Row {
    label: String,
    /// By round and slice: what stands together there was measured within minutes.
    values: BTreeMap<(u32, u32), BTreeMap<Kind, f64>>,
}

impl Row {
    fn of<'a>(label: &str, values: impl Iterator<Item = (&'a Run, f64)>) -> Row {
        let mut row = Row { label: label.to_string(), values: BTreeMap::new() };
        for (run, value) in values {
            row.values.entry((run.round, run.slice)).or_default().insert(run.engine, value);
        }
        row
    }

    fn of_metric(title: &str, runs: &[Run], label: &str, metric: &Metric) -> Row {
        let runs = runs.iter().filter(|run| run.label == label && run.transactions > 0);
        Row::of(title, runs.map(|run| (run, (metric.value)(run))))
    }

    fn median(&self, engine: Kind) -> Option<f64> {
        let values: Vec<f64> = self.values.values().filter_map(|by_engine| by_engine.get(&engine).copied()).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// The median of the ratios of neighbours, not the ratio of medians: what slows down both does not show.
    fn ratio(&self, a: Kind, b: Kind) -> Option<f64> {
        let ratios: Vec<f64> = self
            .values
            .values()
            .filter_map(|by_engine| Some(by_engine.get(&a)? / by_engine.get(&b).filter(|b| **b > 0.0)?))
            .collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }
}

/// The engines of these runs, rivals first.
fn engines(runs: &[Run]) -> Vec<Kind> {
    engines_of(runs.iter())
}

fn engines_of<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<Kind> {
    let mut engines: Vec<Kind> = runs.map(|run| run.engine).collect();
    engines.sort();
    engines.dedup();
    engines
}

/// The pairs whose ratio is shown: the last engine over each rival before it.
fn pairs(engines: &[Kind]) -> Vec<(Kind, Kind)> {
    match engines.split_last() {
        Some((last, rivals)) => rivals.iter().map(|rival| (*last, *rival)).collect(),
        None => Vec::new(),
    }
}

/// A table: one row a label, one column an engine, then the ratios.
fn table(corner: &str, rows: Vec<Row>, engines: &[Kind]) -> String {
    let pairs = pairs(engines);
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut head = vec![corner.to_string()];
    head.extend(engines.iter().map(|engine| engine.title().to_string()));
    head.extend(pairs.iter().map(|(a, b)| format!("{}/{}", a.title(), b.title())));
    lines.push(head);
    for row in rows {
        let or_dash = |value: Option<String>| value.unwrap_or("-".into());
        let mut line = vec![row.label.clone()];
        line.extend(engines.iter().map(|engine| or_dash(row.median(*engine).map(number))));
        line.extend(pairs.iter().map(|(a, b)| or_dash(row.ratio(*a, *b).map(|ratio| format!("{ratio:.2}")))));
        lines.push(line);
    }
    align(&lines)
}

/// The first column to the left, the others to the right; a rule below the head.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width: Vec<usize> =
        (0..columns).map(|c| lines.iter().map(|line| line[c].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (i, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line
            .iter()
            .enumerate()
            .map(
                |(c, cell)| {
                    if c == 0 { format!("{cell:<w$}", w = width[c]) } else { format!("{cell:>w$}", w = width[c]) }
                },
            )
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        if i == 0 {
            let _ = writeln!(text, "{}", "-".repeat(width.iter().sum::<usize>() + 2 * (columns - 1)));
        }
    }
    text
}

/// Three significant digits where they matter.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        0.0 => "0".into(),
        _ => format!("{value:.2}"),
    }
}

fn in_order(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}
