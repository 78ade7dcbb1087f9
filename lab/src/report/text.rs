//! A report in Markdown: conditions, medians and ratios of runs.
//!
//! Invariant: rows and columns stand in the order in which the runs came.

use super::compare::{Row, engines, in_order, pairs};
use super::{METRICS, Metric, Run};
use crate::engine::Kind;
use crate::page::number;
use crate::stats::Latency;
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
            // As on the page: what is zero in all runs was not measured.
            let is_measured =
                |metric: &&Metric| runs.iter().any(|run| run.label == *label && (metric.value)(run) != 0.0);
            let metrics = METRICS.iter().filter(is_measured);
            let mut rows: Vec<Row> = metrics.map(|metric| Row::of_metric(metric.name, runs, label, metric)).collect();
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
        "{}, {}, medians.\n\
         Memory for each: {} MB (InnoDB: buffer pool; RocksDB, Strata: block cache {} +\n\
         memtables {}).",
        match runs.iter().map(|run| run.slice).max() {
            Some(slices @ 2..) => format!("A private server each, one under load at a time, in turn {slices} times"),
            _ => "One private server at a time".into(),
        },
        crate::page::rounds(rounds),
        c.budget_mb,
        c.block_cache_mb(),
        c.memtable_mb(),
    );
    for engine in engines(runs) {
        if let Some(run) = runs.iter().find(|run| run.engine == engine) {
            let _ = writeln!(text, "{}: {}; {}.", engine.title(), run.isolation, durability(run));
        }
    }
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

/// When a commit is on the disk, as the server said it.
pub(super) fn durability(run: &Run) -> String {
    match run.variables.durability(run.engine) {
        Some(words) => words,
        None if run.conditions.extra.is_empty() => "the server's variables were not stored".into(),
        None => format!("the server's variables were not stored, options were {}", run.conditions.extra.join(", ")),
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
        let _ = write!(text, "\n{}", table(name, rows.collect(), &engines(runs())));
    }
    text
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
        line.extend(engines.iter().map(|engine| or_dash(row.figure(*engine).map(|figure| number(figure.value)))));
        line.extend(pairs.iter().map(|(a, b)| or_dash(row.ratio(*a, *b).map(|ratio| format!("{:.2}", ratio.value)))));
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
