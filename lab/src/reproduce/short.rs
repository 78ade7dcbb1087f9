//! A run in its short form, as the tree keeps it: medians and spread of every figure, and where they are from.
//!
//! Rejected: whole runs in the tree (megabytes of seconds; whoever wants them repeats the command that each page names).

use super::experiment::{Phase, place_words};
use super::metric;
use super::results::Results;
use crate::page::{Figure, Page};
use crate::report::day;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Name of the file in the folder of its experiment.
pub const REPORT: &str = "report.json";

/// A run in its short form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Short {
    pub experiment: String,
    pub title: String,
    pub scale: String,
    pub rounds: u32,
    /// The day on which it began.
    pub day: String,
    pub machine: String,
    pub processor: String,
    pub disk: String,
    pub kernel: String,
    pub server: String,
    pub commit: String,
    pub command: String,
    pub measurements: usize,
    pub left_out: usize,
    pub verdict: Vec<String>,
    #[serde(default)]
    pub headline: Option<Headline>,
    pub lines: Vec<Line>,
}

/// What the README shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    pub text: String,
    pub engines: Vec<String>,
    pub rows: Vec<HeadlineRow>,
    /// What the picture beside shows; it is `headline.svg`.
    pub picture: Option<String>,
}

/// A metric with the median of each engine; none where it was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadlineRow {
    pub metric: String,
    pub medians: Vec<Option<f64>>,
}

/// An engine at a place: median, smallest and largest round of each metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    pub engine: String,
    pub phase: Phase,
    pub place: BTreeMap<String, String>,
    /// Whether nothing undisturbed was measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
    pub figures: BTreeMap<String, [f64; 3]>,
}

impl Short {
    /// Of a run with its page.
    pub fn of(results: &Results, page: &Page, begun: u64) -> Result<Short> {
        let plan = &results.plan;
        let first = &results.records.first().context("the run has no measurement")?.run;
        Ok(Short {
            experiment: plan.experiment.name.clone(),
            title: plan.experiment.title.clone(),
            scale: plan.scale_name.clone(),
            rounds: plan.rounds,
            day: day(begun),
            machine: first.machine.clone(),
            processor: first.place.processor.clone(),
            disk: first.place.disk.clone(),
            kernel: first.place.kernel.clone(),
            server: first.version.clone(),
            commit: first.place.commit.clone(),
            command: first.place.command.clone(),
            measurements: results.records.len(),
            left_out: results.left_out().len(),
            verdict: page.verdict.clone(),
            headline: headline(results),
            lines: lines(results),
        })
    }

    /// Its page, from docs/results.
    pub fn page(&self) -> String {
        format!("{}/report.md", self.experiment)
    }

    /// As it stands in a folder of the tree; none if there is no run.
    pub fn read(folder: &Path) -> Result<Option<Short>> {
        let path = folder.join(REPORT);
        if !path.is_file() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).map(Some).with_context(|| format!("{} has another form", path.display()))
    }

    /// The file's text: an engine at a place is one line of it, which keeps it small and shows in a difference what has changed.
    pub fn json(&self) -> Result<String> {
        let lines = self.lines.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let rest = serde_json::to_string_pretty(&Short { lines: Vec::new(), ..self.clone() })?;
        let rest = rest.strip_suffix("[]\n}").context("the lines are not the last of the short form")?;
        Ok(format!("{rest}[\n    {}\n  ]\n}}\n", lines.join(",\n    ")))
    }
}

fn headline(results: &Results) -> Option<Headline> {
    let headline = results.plan.experiment.headline.as_ref()?;
    let (place, subjects) = (results.place(&headline.at), results.subjects(Phase::Run));
    let rows = headline.metrics.iter().map(|name| HeadlineRow {
        metric: metric::title(name),
        medians: subjects
            .iter()
            .map(|subject| Some(results.metric(name, subject, Phase::Run, &place)?.figure.value))
            .map(|median| median.map(digits))
            .collect(),
    });
    Some(Headline {
        text: headline.text.clone(),
        engines: subjects.iter().map(|subject| subject.title().to_string()).collect(),
        rows: rows.collect(),
        picture: results
            .plan
            .experiment
            .figures
            .iter()
            .find(|f| Some(&f.id) == headline.picture.as_ref())
            .map(|f| f.title.clone()),
    })
}

fn lines(results: &Results) -> Vec<Line> {
    let mut lines = Vec::new();
    for phase in Phase::ALL {
        for subject in results.subjects(phase) {
            lines.extend(results.places(subject, phase).into_iter().map(|place| {
                let figures = metric::names().into_iter().filter_map(|name| {
                    let Figure { value, low, high, .. } = results.metric(name, subject, phase, place)?.figure;
                    Some((name.to_string(), [value, low.unwrap_or(value), high.unwrap_or(value)].map(digits)))
                });
                Line {
                    engine: subject.id().into(),
                    phase,
                    place: place_words(place),
                    disturbed: results.at(subject, phase, place).1,
                    figures: figures.collect(),
                }
            }));
        }
    }
    lines
}

/// Four significant digits: what is behind them is noise, and fills the tree.
fn digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::super::pages;
    use super::super::tests::results;
    use super::*;

    #[test]
    fn short_forms_come_back() {
        let results = results("linkbench");
        let page = pages::page(&results).unwrap();
        let short = Short::of(&results, &page, 0).unwrap();
        let text = short.json().unwrap();
        assert_eq!(serde_json::from_str::<Short>(&text).unwrap(), short);
        let of_lines = text.lines().filter(|line| line.starts_with("    {\"engine\":"));
        assert_eq!(of_lines.count(), short.lines.len());
        assert!(short.lines.iter().all(|line| !line.figures.is_empty()));
        assert_eq!((digits(1234.56), digits(0.000123456), digits(0.0)), (1235.0, 0.0001235, 0.0));
    }
}
