//! Figures of engines side by side, and their ratios.
//!
//! Ratios are those of neighbours: of runs in the same round and slice, of which the median is taken. What slows down both does not
//! show in them.
//!
//! Rejected: ratios of medians (what changes from round to round on the machine would count in full).

use super::{Metric, Run};
use crate::engine::Kind;
use crate::page::Figure;
use std::collections::BTreeMap;

/// A figure of each engine, from all measurements.
pub(super) struct Row {
    pub label: String,
    /// By round and slice: what stands together there was measured within minutes.
    values: BTreeMap<(u32, u32), BTreeMap<Kind, f64>>,
}

impl Row {
    pub fn of<'a>(label: &str, values: impl Iterator<Item = (&'a Run, f64)>) -> Row {
        let mut row = Row { label: label.to_string(), values: BTreeMap::new() };
        for (run, value) in values {
            row.values.entry((run.round, run.slice)).or_default().insert(run.engine, value);
        }
        row
    }

    /// Of the runs with this label; a run without a transaction has no figures.
    pub fn of_metric(title: &str, runs: &[Run], label: &str, metric: &Metric) -> Row {
        let runs = runs.iter().filter(|run| run.label == label && run.transactions > 0);
        Row::of(title, runs.map(|run| (run, (metric.value)(run))))
    }

    /// The median with its spread.
    pub fn figure(&self, engine: Kind) -> Option<Figure> {
        let values: Vec<f64> = self.values.values().filter_map(|by_engine| by_engine.get(&engine).copied()).collect();
        Figure::median_of(&values)
    }

    /// The median of the ratios of neighbours with its spread.
    pub fn ratio(&self, a: Kind, b: Kind) -> Option<Figure> {
        let ratios: Vec<f64> = self
            .values
            .values()
            .filter_map(|by_engine| Some(by_engine.get(&a)? / by_engine.get(&b).filter(|b| **b > 0.0)?))
            .collect();
        Figure::median_of(&ratios)
    }

    /// Whether any measurement says more than zero.
    pub fn says_something(&self) -> bool {
        self.values.values().flat_map(BTreeMap::values).any(|value| *value != 0.0)
    }
}

/// The engines of these runs, rivals first.
pub(super) fn engines<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<Kind> {
    let mut engines: Vec<Kind> = runs.into_iter().map(|run| run.engine).collect();
    engines.sort();
    engines.dedup();
    engines
}

/// The pairs whose ratio is shown: the last engine over each rival before it.
pub(super) fn pairs(engines: &[Kind]) -> Vec<(Kind, Kind)> {
    match engines.split_last() {
        Some((last, rivals)) => rivals.iter().map(|rival| (*last, *rival)).collect(),
        None => Vec::new(),
    }
}

/// Each item once, in the order in which they came.
pub(super) fn in_order(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}
