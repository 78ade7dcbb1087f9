//! The report for people: the levels as a table, the other figures under the name of their subsystem, the features that the store
//! uses, the latest remarks.

use std::fmt::Write;
use std::sync::Arc;

use super::declare::{Metric, Subsystem, Unit};
use crate::base::Error;
use crate::compact::pick::LEVELS;
use crate::manifest::Feature;

/// What the report tells beside figures.
#[derive(Default)]
pub(crate) struct Remarks {
    /// What a plugin must know to use the store.
    pub features: Vec<Feature>,
    /// Why the last flush failed, if it did.
    pub flush: Option<Error>,
    /// Why the last compaction failed, or the one of a quarantined file.
    pub compaction: Option<Error>,
    /// What has stopped the store.
    pub stop: Option<Arc<Error>>,
}

/// A value in a unit in which it is easily read; empty where that says no more than the number.
fn readable(unit: Unit, value: u64) -> String {
    let steps: &[(u64, &str)] = match unit {
        Unit::Bytes => &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")],
        Unit::Seconds => &[],
        Unit::Microseconds => &[(1_000_000, "s"), (1_000, "ms")],
        Unit::Count | Unit::Flag => return String::new(),
        Unit::NanosecondsPerKb | Unit::Percent => &[],
    };
    match steps.iter().find(|(size, _)| value >= *size) {
        Some((size, name)) => format!("{:.1} {name}", value as f64 / *size as f64),
        None => unit.name().to_owned(),
    }
}

/// The level that a figure is of and what it says of it, by its name: `level3_files`.
fn of_level(metric: &Metric) -> Option<(usize, &'static str)> {
    let (level, what) = metric.name.strip_prefix("level")?.split_once('_')?;
    Some((level.parse().ok()?, what))
}

/// The figures of levels, a line for each level that has anything.
fn level_table(values: &[(&'static Metric, u64)]) -> String {
    let mut columns: Vec<(&str, Unit)> = Vec::new();
    let mut cells: Vec<(usize, &str, u64)> = Vec::new();
    for (metric, value) in values {
        let Some((level, what)) = of_level(metric) else { continue };
        cells.push((level, what, *value));
        if !columns.iter().any(|(name, _)| *name == what) {
            columns.push((what, metric.unit));
        }
    }
    let mut text = "level".to_owned();
    columns.iter().for_each(|(name, _)| text += &format!("  {name:>12}"));
    text.push('\n');
    for level in 0..LEVELS {
        let of_level = || cells.iter().filter(|cell| cell.0 == level);
        if of_level().all(|cell| cell.2 == 0) {
            continue;
        }
        text += &format!("{level:>5}");
        for (name, unit) in &columns {
            let width = name.len().max(12);
            let cell =
                of_level().find(|cell| cell.1 == *name).map_or(String::new(), |cell| match readable(*unit, cell.2) {
                    short if short.is_empty() => cell.2.to_string(),
                    _ if cell.2 == 0 => "0".to_owned(),
                    short => short,
                });
            text += &format!("  {cell:>width$}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// The report of these figures, in the order of their subsystems.
pub(crate) fn report(values: &[(&'static Metric, u64)], remarks: &Remarks) -> String {
    let mut text = format!("LEVELS\n{}", level_table(values));
    for subsystem in Subsystem::ALL {
        let of_subsystem = values.iter().filter(|(metric, _)| metric.subsystem == subsystem);
        let mut shown = of_subsystem.filter(|(metric, _)| of_level(metric).is_none()).peekable();
        if shown.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "\n{}", subsystem.name().to_uppercase());
        for (metric, value) in shown {
            let line = format!("{:<34}{value:>20}  {}", metric.name, readable(metric.unit, *value));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let features: Vec<String> = remarks.features.iter().map(|f| format!("{} ({})", f.name(), f.since())).collect();
    if !features.is_empty() {
        let _ = writeln!(text, "\nFEATURES OF THE STORE (SINCE VERSION)\n{}", features.join(", "));
    }
    for (what, error) in [("flush", &remarks.flush), ("compaction", &remarks.compaction)] {
        if let Some(error) = error {
            let _ = writeln!(text, "\nLAST {what} FAILED: {error}");
        }
    }
    if let Some(error) = &remarks.stop {
        let _ = writeln!(text, "\nTHE STORE HAS STOPPED, NOTHING IS ACCEPTED UNTIL IT IS OPENED AGAIN: {error}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Metrics, metrics};
    use super::*;
    use crate::manifest::FEATURES;

    #[test]
    fn values_are_readable() {
        let cases = [
            (Unit::Bytes, 1023, "bytes"),
            (Unit::Bytes, 1536, "1.5 KiB"),
            (Unit::Bytes, 3 << 40, "3072.0 GiB"),
            (Unit::Microseconds, 999, "microseconds"),
            (Unit::Microseconds, 2_500, "2.5 ms"),
            (Unit::Microseconds, 61_000_000, "61.0 s"),
            (Unit::Count, 7, ""),
            (Unit::Percent, 7, "percent"),
        ];
        for (unit, value, expected) in cases {
            assert_eq!(readable(unit, value), expected, "{unit:?} {value}");
        }
    }

    /// Every figure is in the report: with its name, or in the table of levels.
    #[test]
    fn the_report_has_every_figure() {
        let sample = Metrics {
            level_files: [1, 0, 0, 2, 0, 0, 3],
            level_bytes: [1 << 20, 0, 0, 5, 0, 0, 1 << 30],
            ..Metrics::default()
        };
        let remarks = Remarks { features: FEATURES.to_vec(), flush: Some(Error::Closed), ..Remarks::default() };
        let text = report(&sample.values().collect::<Vec<_>>(), &remarks);
        for metric in metrics() {
            let name = of_level(metric).map_or(metric.name, |(_, what)| what);
            assert!(text.contains(name), "{name} is missing in\n{text}");
        }
        let levels: Vec<_> = text.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        let begins: Vec<Vec<&str>> = levels.iter().map(|line| line.split_whitespace().take(4).collect()).collect();
        assert_eq!(begins.iter().map(|line| line[0]).collect::<Vec<_>>(), ["0", "3", "6"]);
        assert!(text.contains("LAST flush FAILED"), "{text}");
        assert!(text.contains("\nshared-files (0.1), shared-spills (0.1)"), "{text}");
    }
}
