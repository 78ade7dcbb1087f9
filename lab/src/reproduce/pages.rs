//! The page of an experiment: the verdict in words, then each figure as the original chose it, quotients first.
//!
//! What is drawn comes from the experiment's `figures`; what the original published stands beside ours in a chart or in columns of its
//! own, with its own units. [`super::verdict`] makes the sentences.

use super::experiment::{Axis, Figure, Form, Original, Phase, Place, Table as Published, Value, place_text};
use super::metric;
use super::record::Record;
use super::results::{Measured, Results};
use super::subject::Subject;
use super::verdict::{sentences, verdicts};
use crate::page::{
    Attachment, Axis as Scale, Bars, Cell, Chart, Column, Condition, Figure as Shown, Layer, Origin, Page, Plot, Row,
    Samples, Section, Series, Table,
};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The page of these results. Points that are missing are missing in it.
pub fn page(results: &Results) -> Result<Page> {
    let experiment = &results.plan.experiment;
    let mut page = Page::new(&experiment.title);
    let verdicts = verdicts(results);
    page.verdict = sentences(&verdicts);
    let mut first = Section::new("The question");
    first.text(experiment.question.clone());
    first.text(format!("The original: {}.", experiment.origin));
    first.text(scale_words(results));
    first.table(claims(&verdicts));
    page.sections.push(first);
    for figure in &experiment.figures {
        page.sections.push(Drawn { results, figure }.section());
    }
    page.sections.push(published(&experiment.tables));
    page.sections.push(left_out(results));
    page.conditions = conditions(results);
    page.attachments.push(Attachment {
        name: format!("{}.json", experiment.name),
        title: "every measurement with its seconds and conditions".into(),
        content: serde_json::to_string(&results.records)?,
    });
    page.attachments.push(Attachment {
        name: format!("{}.csv", experiment.name),
        title: "the figures of every measurement".into(),
        content: csv(results),
    });
    Ok(page)
}

fn scale_words(results: &Results) -> String {
    let plan = &results.plan;
    let scaled = plan.experiment.scaled.join(", ");
    let factor = plan.scale.factor;
    if factor == 1.0 {
        return format!("Full scale, {} round(s).", plan.rounds);
    }
    let mut text = format!(
        "Scale \"{}\", {} round(s): {scaled} are those of the full scale over {factor}",
        plan.scale_name, plan.rounds
    );
    if plan.experiment.sweep(Axis::Memory).is_some() {
        text += ", and so is the memory, which is a share of the data";
    }
    let other: Vec<String> =
        plan.scale.settings.iter().map(|(name, value)| format!("{name} {}", toml_text(value))).collect();
    if !other.is_empty() {
        let _ = write!(text, "; not by the factor: {}", other.join(", "));
    }
    text + "."
}

fn toml_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// The conclusions as a table: one row each, one column an engine.
fn claims(verdicts: &[super::verdict::Verdict]) -> Table {
    let mut engines: Vec<&str> = Vec::new();
    let mut rows: Vec<(String, &super::experiment::Claim, BTreeMap<&str, Cell>)> = Vec::new();
    for verdict in verdicts {
        if !engines.contains(&verdict.engine.as_str()) {
            engines.push(&verdict.engine);
        }
        if !rows.iter().any(|(_, claim, _)| std::ptr::eq(*claim, verdict.claim)) {
            let what = format!("{} ({})", verdict.claim.text, metric::title(&verdict.claim.metric));
            rows.push((what, verdict.claim, BTreeMap::new()));
        }
        let row = rows.iter_mut().find(|(_, claim, _)| std::ptr::eq(*claim, verdict.claim));
        if let Some((_, _, cells)) = row {
            cells.insert(&verdict.engine, ratio(verdict.ours.as_ref()));
        }
    }
    let original = |claim: &super::experiment::Claim| match claim.original {
        Some(number) => Cell::Ratio(Shown::from(number)),
        None => Cell::Text(format!("{:?} 1", claim.side_of_original()).to_lowercase().replace("equal", "about")),
    };
    Table {
        caption: "Conclusions of the original as quotients".into(),
        corner: "conclusion".into(),
        columns: engines.iter().map(|engine| column(engine)).chain([column("original")]).collect(),
        rows: rows
            .into_iter()
            .map(|(head, claim, mut cells)| Row {
                head,
                cells: engines
                    .iter()
                    .map(|engine| cells.remove(engine).unwrap_or_default())
                    .chain([original(claim)])
                    .collect(),
            })
            .collect(),
    }
}

/// A figure of the experiment, and what it draws on.
struct Drawn<'a> {
    results: &'a Results,
    figure: &'a Figure,
}

impl Drawn<'_> {
    fn section(&self) -> Section {
        let Figure { id, title, about, original_words, .. } = self.figure;
        let mut section = Section::new(&format!("{id}: {title}"));
        if !about.is_empty() {
            section.text(about.clone());
        }
        if !self.figure.at.is_empty() {
            section.text(format!("Measured at {}.", place_text(&self.place())));
        }
        if !self.figure.ratios.is_empty() {
            section.table(self.ratios());
        }
        match self.figure.form {
            Form::Table if self.figure.x.is_none() => section.table(self.by_engine(&self.figure.y, "")),
            Form::Table if self.figure.y.len() == 1 => section.table(self.by_place()),
            Form::Table => section.table(self.by_place_and_engine(&self.figure.y, "")),
            Form::Line => section.chart(self.line()),
            Form::Bars => section.chart(self.bars()),
            Form::Scatter | Form::Box => section.chart(self.samples()),
            Form::Time => section.chart(self.time()),
            Form::Stacked => self.stacked(&mut section),
        }
        if !self.figure.compare.is_empty() {
            let caption = "Compared by";
            section.table(match self.figure.x {
                Some(_) => self.by_place_and_engine(&self.figure.compare, caption),
                None => self.by_engine(&self.figure.compare, caption),
            });
        }
        self.original(&mut section);
        if !original_words.is_empty() {
            section.text(format!("The original: {original_words}"));
        }
        section
    }

    fn place(&self) -> Place {
        self.results.place(&self.figure.at)
    }

    fn subjects(&self) -> Vec<&Subject> {
        self.results.chosen(&self.figure.engines, self.figure.phase)
    }

    /// Values of x that a measurement has.
    fn values(&self, axis: Axis) -> Vec<Value> {
        self.results.plan.axis(axis)
    }

    fn measured(&self, name: &str, subject: &Subject, x: Option<(Axis, &Value)>) -> Option<Measured> {
        self.results.metric(name, subject, self.figure.phase, &self.at(x))
    }

    fn at(&self, x: Option<(Axis, &Value)>) -> Place {
        match x {
            Some((axis, value)) => Results::with(&self.place(), axis, value),
            None => self.place(),
        }
    }

    /// Each metric over the baseline's, with the original's quotients behind.
    fn ratios(&self) -> Table {
        let (baseline, phase) = (self.results.baseline(), self.figure.phase);
        let others: Vec<&Subject> = self.subjects().into_iter().filter(|s| s.id() != baseline.id()).collect();
        let metrics = &self.figure.ratios;
        let caption = format!("Over {}", baseline.title());
        let Some(axis) = self.figure.x else {
            let mut columns: Vec<Column> = metrics.iter().map(|name| column(&metric::title(name))).collect();
            let known: Vec<&String> =
                metrics.iter().filter(|name| self.published(&others, |by| by.ratio(name)).is_some()).collect();
            columns.extend(known.iter().map(|name| column(&format!("original: {}", metric::title(name)))));
            let rows = others.iter().map(|subject| Row {
                head: subject.title().into(),
                cells: metrics
                    .iter()
                    .map(|name| ratio(self.results.ratio(name, subject, phase, &self.place()).as_ref()))
                    .chain(
                        known
                            .iter()
                            .map(|name| Cell::ratio(self.by(subject).and_then(|by| by.ratio(name)).map(Shown::from))),
                    )
                    .collect(),
            });
            let rows = rows.collect();
            return Table { caption, corner: "engine".into(), columns, rows };
        };
        let mut columns = Vec::new();
        for name in metrics {
            columns
                .extend(others.iter().map(|subject| column(&format!("{}: {}", subject.title(), metric::title(name)))));
            let original = others.iter().filter(|subject| self.series_of(subject, name).is_some());
            columns.extend(original.map(|subject| column(&format!("{} (original)", subject.title()))));
        }
        let values = self.values(axis);
        let rows = values.iter().map(|value| {
            let mut cells = Vec::new();
            for name in metrics {
                cells.extend(others.iter().map(|subject| {
                    let place = Results::with(&self.place(), axis, value);
                    ratio(self.results.ratio(name, subject, phase, &place).as_ref())
                }));
                for subject in &others {
                    let Some(of) = self.series_of(subject, name) else { continue };
                    let base = self.series_of(baseline, name);
                    let at = |series: &[(f64, f64)]| {
                        let x = value.number()?;
                        series.iter().find(|(known, _)| (known - x).abs() < 1e-3).map(|(_, y)| *y)
                    };
                    let quotient = at(&of).zip(base.and_then(|base| at(&base))).map(|(a, b)| a / b);
                    cells.push(Cell::ratio(quotient.map(Shown::from)));
                }
            }
            Row { head: head(value), cells }
        });
        let rows = rows.collect();
        Table { caption, corner: axis.title().into(), columns, rows }
    }

    fn by_engine(&self, metrics: &[String], caption: &str) -> Table {
        Table {
            caption: caption.into(),
            corner: "engine".into(),
            columns: metrics.iter().map(|name| column(&metric::title(name))).collect(),
            rows: self
                .subjects()
                .into_iter()
                .map(|subject| Row {
                    head: subject.title().into(),
                    cells: metrics.iter().map(|name| plain(self.measured(name, subject, None).as_ref())).collect(),
                })
                .collect(),
        }
    }

    fn by_place(&self) -> Table {
        let (Some(axis), [name]) = (self.figure.x, &self.figure.y[..]) else { return Table::default() };
        let subjects = self.subjects();
        Table {
            caption: metric::title(name),
            corner: axis.title().into(),
            columns: subjects.iter().map(|subject| column(subject.title())).collect(),
            rows: self
                .values(axis)
                .iter()
                .map(|value| Row {
                    head: head(value),
                    cells: subjects
                        .iter()
                        .map(|subject| plain(self.measured(name, subject, Some((axis, value))).as_ref()))
                        .collect(),
                })
                .collect(),
        }
    }

    fn by_place_and_engine(&self, metrics: &[String], caption: &str) -> Table {
        let Some(axis) = self.figure.x else { return self.by_engine(metrics, caption) };
        let mut rows = Vec::new();
        for value in self.values(axis) {
            for subject in self.subjects() {
                rows.push(Row {
                    head: format!("{}, {}", head(&value), subject.title()),
                    cells: metrics
                        .iter()
                        .map(|name| plain(self.measured(name, subject, Some((axis, &value))).as_ref()))
                        .collect(),
                });
            }
        }
        let columns = metrics.iter().map(|name| column(&metric::title(name))).collect();
        Table { caption: caption.into(), corner: format!("{}, engine", axis.title()), columns, rows }
    }

    fn line(&self) -> Chart {
        let (Some(axis), Some(name)) = (self.figure.x, self.figure.y.first()) else {
            return nothing(&self.figure.title);
        };
        let values = self.values(axis);
        if values.iter().any(|value| value.number().is_none()) {
            return self.bars();
        }
        let series = self.subjects().into_iter().map(|subject| {
            let points = values
                .iter()
                .filter_map(|value| Some((value.number()?, self.measured(name, subject, Some((axis, value)))?.figure)));
            Series::new(subject.title(), points)
        });
        let plot = Plot::Lines(series.collect());
        Chart::new(&self.figure.title, Scale::new(axis.title(), ""), Scale::new(&metric::title(name), ""), plot)
            .caption("Medians over rounds, from the smallest to the largest.")
    }

    fn bars(&self) -> Chart {
        let (Some(axis), Some(name)) = (self.figure.x, self.figure.y.first()) else {
            return nothing(&self.figure.title);
        };
        let values = self.values(axis);
        let bars = self.subjects().into_iter().map(|subject| Bars {
            name: subject.title().into(),
            origin: Origin::Ours,
            values: values
                .iter()
                .map(|value| Some(self.measured(name, subject, Some((axis, value)))?.figure))
                .collect(),
        });
        let plot = Plot::Bars { categories: values.iter().map(head).collect(), bars: bars.collect() };
        Chart::new(&self.figure.title, Scale::new(axis.title(), ""), Scale::new(&metric::title(name), ""), plot)
    }

    fn samples(&self) -> Chart {
        let Some(axis) = self.figure.x else { return nothing(&self.figure.title) };
        let values = self.values(axis);
        let samples = self.subjects().into_iter().map(|subject| Samples {
            name: subject.title().into(),
            origin: Origin::Ours,
            values: values.iter().map(|value| self.results.seconds(subject, &self.at(Some((axis, value))))).collect(),
        });
        let (categories, samples) = (values.iter().map(head).collect(), samples.collect());
        let plot = match self.figure.form {
            Form::Box => Plot::Boxes { categories, samples },
            _ => Plot::Jitter { categories, samples },
        };
        Chart::new(&self.figure.title, Scale::new(axis.title(), ""), Scale::new("transactions/s", ""), plot)
            .caption("Whole seconds of all rounds, without those that the hypervisor disturbed.")
    }

    /// The first measurement of an engine that counts.
    fn first(&self, subject: &Subject) -> Option<&Record> {
        self.results.at(subject, self.figure.phase, &self.place()).0.first().copied()
    }

    fn time(&self) -> Chart {
        let Some(name) = self.figure.y.first() else { return nothing(&self.figure.title) };
        let series = self
            .subjects()
            .into_iter()
            .filter_map(|subject| Some(Series::new(subject.title(), over_time(self.first(subject)?, name))));
        let plot = Plot::Lines(series.collect());
        Chart::new(&self.figure.title, Scale::new("time", "s"), Scale::new(&metric::title(name), ""), plot)
            .caption("The first round. What is measured begins at 0; the warm-up is before.")
    }

    /// A chart an engine.
    fn stacked(&self, section: &mut Section) {
        let Some(axis) = self.figure.x else {
            for subject in self.subjects() {
                let Some(record) = self.first(subject) else { continue };
                let series: Vec<_> = self.figure.y.iter().map(|name| (name, over_time(record, name))).collect();
                let x = series.first().map_or(Vec::new(), |(_, points)| points.iter().map(|(x, _)| *x).collect());
                let layers = series.into_iter().map(|(name, points)| Layer {
                    name: metric::title(name),
                    values: points.into_iter().map(|(_, y)| y).collect(),
                });
                let plot = Plot::StackedAreas { x, layers: layers.collect() };
                section.chart(percent(subject.title(), Scale::new("time", "s"), plot));
            }
            return;
        };
        for subject in self.subjects() {
            let mut x = Vec::new();
            let mut layers: Vec<Layer> =
                self.figure.y.iter().map(|name| Layer { name: metric::title(name), values: Vec::new() }).collect();
            for value in self.values(axis) {
                let all: Option<Vec<f64>> = self
                    .figure
                    .y
                    .iter()
                    .map(|name| Some(self.measured(name, subject, Some((axis, &value)))?.figure.value))
                    .collect();
                let (Some(number), Some(all)) = (value.number(), all) else { continue };
                x.push(number);
                layers.iter_mut().zip(all).for_each(|(layer, y)| layer.values.push(y));
            }
            section.chart(percent(subject.title(), Scale::new(axis.title(), ""), Plot::StackedAreas { x, layers }));
        }
    }

    /// What the original published of this figure, in the same form.
    fn original(&self, section: &mut Section) {
        let Some(original) = &self.figure.original else { return };
        let Some(table) = self.results.plan.experiment.tables.get(&original.table) else { return };
        let title = format!("{}: the original", self.figure.title);
        match (self.figure.form, self.figure.x) {
            (Form::Line, Some(axis)) => {
                let series = original
                    .series
                    .keys()
                    .filter_map(|key| Some(Series::new(&engine_title(key), points(table, original, key)?).original()));
                let label = metric::title(&self.figure.y[0]);
                let plot = Plot::Lines(series.collect());
                section.chart(Chart::new(&title, Scale::new(axis.title(), ""), Scale::new(&label, ""), plot));
            }
            (Form::Stacked, Some(axis)) => {
                let mut x = Vec::new();
                let layers = self.figure.y.iter().filter_map(|name| {
                    let key = original.series.keys().find(|key| key.ends_with(&format!("/{name}")))?;
                    let points = points(table, original, key)?;
                    x = points.iter().map(|(x, _)| *x).collect();
                    Some(Layer { name: metric::title(name), values: points.into_iter().map(|(_, y)| y).collect() })
                });
                let layers = layers.collect();
                section.chart(percent(&title, Scale::new(axis.title(), ""), Plot::StackedAreas { x, layers }));
            }
            _ => section.table(Table { caption: format!("The original: {}", table.title), ..whole(table) }),
        }
    }

    /// The original's points of an engine and metric over x.
    fn series_of(&self, subject: &Subject, name: &str) -> Option<Vec<(f64, f64)>> {
        let original = self.figure.original.as_ref()?;
        let table = self.results.plan.experiment.tables.get(&original.table)?;
        // A series without a metric is that of the figure's own.
        let own = self.figure.y.len() == 1 && self.figure.y[0] == name;
        let key = if own { subject.id().to_string() } else { format!("{}/{name}", subject.id()) };
        points(table, original, &key)
    }

    fn by(&self, subject: &Subject) -> Option<ByRow<'_>> {
        let original = self.figure.original.as_ref()?;
        let table = self.results.plan.experiment.tables.get(&original.table)?;
        let row = |id: &str| {
            let (key, name) = (table.column(original.key.as_ref()?)?, original.rows.get(id)?);
            table.rows.iter().find(|row| row[key] == Value::Text(name.clone()))
        };
        Some(ByRow { table, original, of: row(subject.id())?, base: row(self.results.baseline().id())? })
    }

    fn published(&self, subjects: &[&Subject], of: impl Fn(&ByRow) -> Option<f64>) -> Option<f64> {
        subjects.iter().find_map(|subject| of(&self.by(subject)?))
    }
}

/// Two rows of a table of the original: an engine and the baseline.
struct ByRow<'a> {
    table: &'a Published,
    original: &'a Original,
    of: &'a [Value],
    base: &'a [Value],
}

impl ByRow<'_> {
    fn ratio(&self, name: &str) -> Option<f64> {
        let column = self.table.column(self.original.columns.get(name)?)?;
        Some(self.of[column].number()? / self.base[column].number()?)
    }
}

/// The column of a series over x, in our values of x.
fn points(table: &Published, original: &Original, key: &str) -> Option<Vec<(f64, f64)>> {
    let (x, y) = (table.column(original.x.as_ref()?)?, table.column(original.series.get(key)?)?);
    let points = table.rows.iter().filter_map(|row| Some((row[x].number()? / original.over, row[y].number()?)));
    Some(points.collect())
}

/// The seconds of a record, those in front of the measurement below 0.
fn over_time(record: &Record, name: &str) -> Vec<(f64, f64)> {
    let series = metric::series(record, name);
    let before = if name == "tps" { 0 } else { record.watch.before };
    series.iter().enumerate().map(|(n, value)| (n as f64 - before as f64, *value)).collect()
}

fn percent(title: &str, x: Scale, plot: Plot) -> Chart {
    Chart::new(title, x, Scale::new("processors", "%"), plot)
}

fn nothing(title: &str) -> Chart {
    Chart::new(title, Scale::new("", ""), Scale::new("", ""), Plot::Lines(Vec::new()))
}

/// The engine of a key of the original's series, as ours is called.
fn engine_title(key: &str) -> String {
    let id = key.split('/').next().unwrap_or(key);
    id.parse::<Subject>().map_or(id.to_string(), |subject| subject.title().to_string())
}

fn head(value: &Value) -> String {
    match value {
        Value::Number(number) if number.fract() != 0.0 => format!("{number:.2}"),
        other => other.to_string(),
    }
}

fn column(head: &str) -> Column {
    Column { head: head.into(), unit: String::new() }
}

fn plain(measured: Option<&Measured>) -> Cell {
    marked(measured, |figure| Cell::figure(Some(figure)))
}

fn ratio(measured: Option<&Measured>) -> Cell {
    marked(measured, |figure| Cell::ratio(Some(figure)))
}

/// What is made of disturbed measurements only is words, not a figure.
fn marked(measured: Option<&Measured>, cell: impl Fn(Shown) -> Cell) -> Cell {
    match measured {
        Some(measured) if measured.disturbed => Cell::Text(format!("({})", measured.figure)),
        Some(measured) => cell(measured.figure.clone()),
        None => Cell::Empty,
    }
}

/// A table of the original as it is.
fn whole(table: &Published) -> Table {
    let cell = |value: &Value| match value {
        Value::Number(number) => Cell::Figure(Shown::from(*number)),
        Value::Text(text) => Cell::Text(text.clone()),
    };
    Table {
        caption: table.title.clone(),
        corner: table.columns.first().cloned().unwrap_or_default(),
        columns: table.columns.iter().skip(1).map(|name| column(name)).collect(),
        rows: table
            .rows
            .iter()
            .map(|row| Row { head: row[0].to_string(), cells: row[1..].iter().map(cell).collect() })
            .collect(),
    }
}

fn published(tables: &BTreeMap<String, Published>) -> Section {
    let mut section = Section::new("The original's figures");
    tables.values().for_each(|table| section.table(whole(table)));
    section
}

fn left_out(results: &Results) -> Section {
    use super::watch::{OTHERS_MOST, STOLEN_MOST};
    let mut section = Section::new("What is left out");
    section.text(format!(
        "A measurement with an error is left out, and one in which the hypervisor took {:.0} % of the processors or other processes had \
         {:.0} %. Where nothing else was measured, the figure stands in parentheses.",
        STOLEN_MOST * 100.0,
        OTHERS_MOST * 100.0
    ));
    let left_out = results.left_out();
    section.text(format!("{} of {} measurements are left out.", left_out.len(), results.records.len()));
    left_out.into_iter().for_each(|text| section.text(text));
    section
}

fn conditions(results: &Results) -> Vec<Condition> {
    let plan = &results.plan;
    let mut conditions = Vec::new();
    let mut add = |name: &str, value: String| {
        conditions.push(Condition { name: name.into(), value, original: None });
    };
    if let Some(record) = results.records.first() {
        add("machine", record.run.machine.clone());
        add("server", format!("MariaDB {}", record.run.version));
    }
    for subject in &plan.subjects {
        let record = results.records.iter().find(|r| r.subject == subject.id());
        let options = record.map_or(String::new(), |r| r.run.conditions.extra.join(", "));
        let isolation = record.map_or(String::new(), |r| r.run.isolation.clone());
        let about = subject.about();
        let parts: Vec<String> = [about, isolation, options].into_iter().filter(|part| !part.is_empty()).collect();
        add(subject.title(), parts.join("; "));
    }
    add("scale", format!("{}, factor {}", plan.scale_name, plan.scale.factor));
    add("rounds", plan.rounds.to_string());
    let settings = &plan.settings;
    add(
        "warm-up and measurement",
        format!("{} s, then {} x {} s", settings.warmup, settings.windows(), settings.seconds),
    );
    for condition in &plan.experiment.conditions {
        conditions.push(Condition {
            name: condition.what.clone(),
            value: condition.ours.clone().unwrap_or_else(|| condition.original.clone()),
            original: Some(condition.original.clone()),
        });
    }
    conditions
}

/// A line for each measurement.
fn csv(results: &Results) -> String {
    let names = metric::names();
    let mut text = String::from("engine,phase,round,place,left out");
    names.iter().for_each(|name| {
        let _ = write!(text, ",{name}");
    });
    text.push('\n');
    for record in &results.records {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "'").replace('\n', " "));
        let place = quoted(&place_text(&record.place));
        let why = quoted(&record.left_out().unwrap_or_default());
        let phase = if record.phase == Phase::Load { "load" } else { "run" };
        let _ = write!(text, "{},{phase},{},{place},{why}", quoted(&record.subject), record.round);
        for name in &names {
            let _ = match metric::of(record, name) {
                Some(value) => write!(text, ",{value}"),
                None => write!(text, ","),
            };
        }
        text.push('\n');
    }
    text
}
