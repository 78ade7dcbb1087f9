//! A figure over the places of several axes: bars by engine, as the original drew columns; how many times as long the baseline
//! takes, which it drew as lines; and the figures behind both.
//!
//! What the original published stands beside ours where it told a figure of the very place: a row of its table whose columns with
//! names of axes have the place's values.

use super::drawn::{column, plain, ratio};
use super::experiment::{Axis, Figure, Place, Table as Published, Value};
use super::metric;
use super::results::{Measured, Results};
use super::subject::Subject;
use crate::page::{Axis as Scale, Bars, Cell, Chart, Figure as Shown, Origin, Plot, Row, Section, Table};
use std::collections::BTreeMap;

/// Adds quotients, charts, and what it is compared by to a section.
pub fn draw(results: &Results, figure: &Figure, section: &mut Section) {
    let Some(name) = figure.y.first() else { return };
    let grid = Grid { results, figure, places: places(results, figure) };
    for metric in &figure.ratios {
        section.table(grid.ratios(metric));
    }
    section.chart(grid.bars(name));
    if !grid.others().is_empty() {
        section.chart(grid.slowdown(name));
    }
    if !figure.compare.is_empty() {
        section.table(grid.compared());
    }
}

struct Grid<'a> {
    results: &'a Results,
    figure: &'a Figure,
    /// With what stands below the bars.
    places: Vec<(String, Place)>,
}

/// The places of a grid, in order.
fn places(results: &Results, figure: &Figure) -> Vec<(String, Place)> {
    let fixed = results.place(&figure.at);
    let with = |more: Place| {
        let label: Vec<String> = in_order(figure, &more).iter().map(|(axis, value)| words(*axis, value)).collect();
        let whole = fixed.iter().chain(&more).map(|(axis, value)| (*axis, value.clone())).collect();
        (label.join(", "), whole)
    };
    if !figure.places.is_empty() {
        return figure.places.iter().map(|at| with(results.place(at))).collect();
    }
    let mut all = vec![Place::new()];
    for axis in &figure.over {
        let values = results.plan.axis(*axis);
        all = all.iter().flat_map(|place| values.iter().map(|value| Results::with(place, *axis, value))).collect();
    }
    all.into_iter().map(with).collect()
}

/// The values of a place, in the order in which the figure names its axes.
fn in_order(figure: &Figure, place: &Place) -> Vec<(Axis, Value)> {
    let axes: Vec<Axis> = if figure.over.is_empty() { place.keys().copied().collect() } else { figure.over.clone() };
    axes.into_iter().filter_map(|axis| Some((axis, place.get(&axis)?.clone()))).collect()
}

/// `4 processes`, `disk: light`, `small`.
fn words(axis: Axis, value: &Value) -> String {
    match (axis, value) {
        (Axis::Processes, Value::Number(1.0)) => "1 process".into(),
        (Axis::Processes, value) => format!("{value} processes"),
        (Axis::Disk, value) => format!("disk: {value}"),
        (_, value) => value.to_string(),
    }
}

impl Grid<'_> {
    fn subjects(&self) -> Vec<&Subject> {
        self.results.chosen(&self.figure.engines, self.figure.phase)
    }

    fn others(&self) -> Vec<&Subject> {
        let baseline = self.results.baseline().id();
        self.subjects().into_iter().filter(|subject| subject.id() != baseline).collect()
    }

    fn measured(&self, name: &str, subject: &Subject, place: &Place) -> Option<Measured> {
        self.results.metric(name, subject, self.figure.phase, place)
    }

    /// What the original told of an engine at a place.
    fn published(&self, subject: &Subject, place: &Place) -> Option<f64> {
        let original = self.figure.original.as_ref()?;
        let table = self.results.plan.experiment.tables.get(&original.table)?;
        let column = table.column(original.series.get(subject.id())?)?;
        row_at(table, place)?[column].number()
    }

    fn categories(&self) -> Vec<String> {
        self.places.iter().map(|(label, _)| label.clone()).collect()
    }

    fn bars(&self, name: &str) -> Chart {
        let mut bars = Vec::new();
        for subject in self.subjects() {
            let values: Vec<_> = self.places.iter().map(|(_, place)| self.measured(name, subject, place)).collect();
            let values = values.into_iter().map(|measured| Some(measured?.figure)).collect();
            bars.push(Bars { name: subject.title().into(), origin: Origin::Ours, values });
        }
        for subject in self.subjects() {
            let values: Vec<Option<Shown>> =
                self.places.iter().map(|(_, place)| self.published(subject, place).map(Shown::from)).collect();
            if values.iter().any(Option::is_some) {
                bars.push(Bars { name: subject.title().into(), origin: Origin::Original, values });
            }
        }
        let (x, y) = (Scale::new("", ""), Scale::new(&metric::title(name), ""));
        let y = if self.figure.log { y.log() } else { y };
        Chart::new(&self.figure.title, x, y, Plot::Bars { categories: self.categories(), bars }).caption(
            "Medians over rounds, from the smallest to the largest. Hollow bars: the original, where it told a figure.",
        )
    }

    fn slowdown(&self, name: &str) -> Chart {
        let baseline = self.results.baseline();
        let over = |subject: &Subject, place: &Place| {
            let (a, b) = (self.measured(name, baseline, place)?, self.measured(name, subject, place)?);
            Some(Results::quotient(&a, &b)?.figure)
        };
        let bars = self.others().into_iter().map(|subject| Bars {
            name: subject.title().into(),
            origin: Origin::Ours,
            values: self.places.iter().map(|(_, place)| over(subject, place)).collect(),
        });
        let told = self.others().into_iter().filter_map(|subject| {
            let quotient = |place: &Place| Some(self.published(baseline, place)? / self.published(subject, place)?);
            let values: Vec<_> = self.places.iter().map(|(_, place)| quotient(place).map(Shown::from)).collect();
            let known = values.iter().any(Option::is_some);
            known.then(|| Bars { name: subject.title().into(), origin: Origin::Original, values })
        });
        let plot = Plot::Bars { categories: self.categories(), bars: bars.chain(told).collect() };
        let title = format!("{}: how many times as long {} takes", self.figure.title, baseline.title());
        let y = Scale::new(&format!("time of {} over the engine's", baseline.title()), "");
        Chart::new(&title, Scale::new("", ""), y, plot)
    }

    fn ratios(&self, name: &str) -> Table {
        let (baseline, others) = (self.results.baseline(), self.others());
        let told: Vec<&&Subject> = others
            .iter()
            .filter(|subject| self.places.iter().any(|(_, p)| self.published(subject, p).is_some()))
            .collect();
        let ours = others.iter().map(|subject| column(&format!("{}: {}", subject.title(), metric::title(name))));
        let original = told.iter().map(|subject| column(&format!("{} (original)", subject.title())));
        Table {
            caption: format!("Over {}", baseline.title()),
            corner: "place".into(),
            columns: ours.chain(original).collect(),
            rows: self
                .places
                .iter()
                .map(|(label, place)| {
                    let ours = others
                        .iter()
                        .map(|subject| ratio(self.results.ratio(name, subject, self.figure.phase, place).as_ref()));
                    let original = told.iter().map(|subject| {
                        let over = self.published(subject, place).zip(self.published(baseline, place));
                        Cell::ratio(over.map(|(a, b)| Shown::from(a / b)))
                    });
                    Row { head: label.clone(), cells: ours.chain(original).collect() }
                })
                .collect(),
        }
    }

    /// The figures behind the bars, and what they are compared by.
    fn compared(&self) -> Table {
        let metrics: Vec<&String> = self.figure.y.iter().chain(&self.figure.compare).collect();
        let mut rows = Vec::new();
        for (label, place) in &self.places {
            for subject in self.subjects() {
                let cells = metrics.iter().map(|name| plain(self.measured(name, subject, place).as_ref())).collect();
                rows.push(Row { head: format!("{label}, {}", subject.title()), cells });
            }
        }
        let columns = metrics.iter().map(|name| column(&metric::title(name))).collect();
        Table { caption: "Compared by".into(), corner: "place, engine".into(), columns, rows }
    }
}

/// The row of a table of the original that is about a place.
fn row_at<'a>(table: &'a Published, place: &Place) -> Option<&'a Vec<Value>> {
    let by_name: BTreeMap<&str, &Value> = place.iter().map(|(axis, value)| (axis.name(), value)).collect();
    let is_there = |row: &&Vec<Value>| {
        table
            .columns
            .iter()
            .zip(row.iter())
            .all(|(name, value)| by_name.get(name.as_str()).is_none_or(|at| *at == value))
    };
    table.rows.iter().find(is_there)
}
