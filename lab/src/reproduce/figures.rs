//! A run as `compare` sees it: figures of engines at places, of a stored run with all its rounds, of a short form in the tree with
//! the medians alone.

use super::experiment::{Phase, place_words, words_text};
use super::results::{Measured, Results};
use super::short::Short;
use super::store::Store;
use super::subject::Subject;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Figures of a run.
pub struct Figures {
    pub experiment: String,
    pub scale: String,
    /// Of the lab's checkout.
    pub commit: String,
    /// The engine that all others are compared with, by its name in files.
    pub baseline: String,
    pub rows: Vec<Row>,
}

/// An engine at a place.
pub struct Row {
    /// As in files.
    pub engine: String,
    /// As in tables.
    pub title: String,
    pub phase: Phase,
    /// Values by the names of their axes.
    pub place: BTreeMap<String, String>,
    figures: BTreeMap<&'static str, Measured>,
}

impl Row {
    /// `memory 0.056, commit xa`.
    pub fn place_text(&self) -> String {
        words_text(self.place.iter().map(|(axis, value)| (axis.as_str(), value.clone())))
    }
}

impl Figures {
    /// These metrics of the run in a folder: of a stored run, or of a short form.
    pub fn read(folder: &Path, metrics: &[&'static str]) -> Result<Figures> {
        match Short::read(folder)? {
            Some(short) => Figures::of_short(&short, metrics),
            None => {
                let store = Store::read(folder)?;
                Ok(Figures::of(&Results { plan: store.plan()?, records: store.records()? }, metrics))
            }
        }
    }

    /// Those of a stored run.
    pub fn of(results: &Results, metrics: &[&'static str]) -> Figures {
        let mut rows = Vec::new();
        for phase in Phase::ALL {
            for subject in results.subjects(phase) {
                rows.extend(results.places(subject, phase).into_iter().map(|place| {
                    let measured = |name| Some((name, results.metric(name, subject, phase, place)?));
                    Row {
                        engine: subject.id().to_string(),
                        title: subject.title().to_string(),
                        phase,
                        place: place_words(place),
                        figures: metrics.iter().copied().filter_map(measured).collect(),
                    }
                }));
            }
        }
        Figures {
            experiment: results.plan.experiment.name.clone(),
            scale: results.plan.scale_name.clone(),
            commit: results.records.first().map(|record| record.run.place.commit.clone()).unwrap_or_default(),
            baseline: results.baseline().id().to_string(),
            rows,
        }
    }

    fn of_short(short: &Short, metrics: &[&'static str]) -> Result<Figures> {
        let mut rows = Vec::new();
        for line in &short.lines {
            let measured = |name: &&'static str| {
                let [median, ..] = line.figures.get(*name)?;
                Some((*name, Measured::one(*median, line.disturbed)))
            };
            rows.push(Row {
                engine: line.engine.clone(),
                title: line.engine.parse::<Subject>()?.title().to_string(),
                phase: line.phase,
                place: line.place.clone(),
                figures: metrics.iter().filter_map(measured).collect(),
            });
        }
        // The engines stand in their order.
        let baseline = rows.first().with_context(|| format!("{} has no figures", short.experiment))?.engine.clone();
        let (experiment, scale) = (short.experiment.clone(), short.scale.clone());
        Ok(Figures { experiment, scale, commit: short.commit.clone(), baseline, rows })
    }

    /// The row of an engine at the place of a row.
    fn at(&self, engine: &str, row: &Row) -> Option<&Row> {
        self.rows.iter().find(|have| have.engine == engine && have.phase == row.phase && have.place == row.place)
    }

    /// A metric at the place of a row, of this run or of another.
    pub fn metric(&self, metric: &str, row: &Row) -> Option<Measured> {
        self.at(&row.engine, row)?.figures.get(metric).cloned()
    }

    /// The same over the baseline's.
    pub fn ratio(&self, metric: &str, row: &Row) -> Option<Measured> {
        Results::quotient(&self.metric(metric, row)?, self.at(&self.baseline, row)?.figures.get(metric)?)
    }
}
