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
    if grid.places.is_empty() {
        section.text("No part of this scale.");
        return;
    }
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

/// The places of a grid that this scale has, in order.
fn places(results: &Results, figure: &Figure) -> Vec<(String, Place)> {
    let mut all = vec![Place::new()];
    if figure.places.is_empty() {
        for axis in &figure.over {
            let values = results.plan.axis(*axis);
            all = all.iter().flat_map(|place| values.iter().map(|value| Results::with(place, *axis, value))).collect();
        }
    } else {
        all = figure.places.iter().map(|at| results.place(at)).collect();
    }
    let (fixed, axes) = (results.place(&figure.at), axes(figure));
    let labelled = all.into_iter().map(|place| {
        // What all have in common stands above, and the axes' names below.
        let label: Vec<String> = axes.iter().filter_map(|axis| Some(place.get(axis)?.to_string())).collect();
        (label.join(", "), fixed.clone().into_iter().chain(place).collect::<Place>())
    });
    let is_there = |place: &Place| place.iter().all(|(axis, value)| results.plan.axis(*axis).contains(value));
    labelled.filter(|(_, place)| is_there(place)).collect()
}

/// The axes of a grid, in order.
fn axes(figure: &Figure) -> Vec<Axis> {
    match figure.places.first() {
        Some(place) => place.keys().copied().collect(),
        None => figure.over.clone(),
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

    /// The names of the axes.
    fn corner(&self) -> String {
        axes(self.figure).iter().map(|axis| axis.title()).collect::<Vec<_>>().join(", ")
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
        let (x, y) = (Scale::new(&self.corner(), ""), Scale::new(&metric::title(name), ""));
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
        Chart::new(&title, Scale::new(&self.corner(), ""), y, plot)
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
            corner: self.corner(),
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
        Table { caption: "Compared by".into(), corner: format!("{}, engine", self.corner()), columns, rows }
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
