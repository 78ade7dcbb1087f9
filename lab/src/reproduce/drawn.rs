//! A figure of an experiment: the section with its quotients, its chart or table, and what the original published of it.

use super::experiment::{Axis, Figure, Form, Original, Place, Table as Published, Value, place_text};
use super::metric;
use super::record::Record;
use super::results::{Measured, Results};
use super::subject::Subject;
use super::{grid, growth};
use crate::page::{
    Axis as Scale, Bars, Cell, Chart, Column, Figure as Shown, Layer, Origin, Plot, Row, Samples, Section, Series,
    Table,
};

/// The section of a figure.
pub fn section(results: &Results, figure: &Figure) -> Section {
    Drawn { results, figure }.section()
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
        if self.figure.form == Form::Grid {
            grid::draw(self.results, self.figure, &mut section);
        } else {
            self.parts(&mut section);
        }
        if !original_words.is_empty() {
            section.text(format!("The original: {original_words}"));
        }
        section
    }

    /// Quotients, the chart or table, what it is compared by, and the original's.
    fn parts(&self, section: &mut Section) {
        if !self.figure.ratios.is_empty() {
            section.table(self.ratios());
        }
        match self.figure.form {
            Form::Table if self.figure.x.is_none() => section.table(self.by_engine(&self.figure.y, "")),
            Form::Table if self.figure.y.len() == 1 => section.table(self.by_place()),
            Form::Table => section.table(self.by_place_and_engine(&self.figure.y, "")),
            Form::Line => section.chart(self.line()),
            Form::Bars => section.chart(self.bars()),
            Form::Scatter if self.figure.x.is_none() => section.chart(self.time()),
            Form::Scatter | Form::Box => section.chart(self.samples()),
            Form::Time => section.chart(self.time()),
            Form::Stacked => self.stacked(section),
            Form::Growth => section.table(growth::table(self.results, self.figure, &self.subjects())),
            // A grid has charts and tables of its own.
            Form::Grid => {}
        }
        if !self.figure.compare.is_empty() {
            let caption = "Compared by";
            section.table(match self.figure.x {
                Some(_) => self.by_place_and_engine(&self.figure.compare, caption),
                None => self.by_engine(&self.figure.compare, caption),
            });
        }
        self.original(section);
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
        // Sizes double.
        let x = Scale::new(axis.title(), "");
        let x = if axis == Axis::Size { x.log() } else { x };
        Chart::new(&self.figure.title, x, self.y(name), plot)
            .caption("Medians over rounds, from the smallest to the largest.")
    }

    fn y(&self, name: &str) -> Scale {
        let y = Scale::new(&metric::title(name), "");
        match self.figure {
            Figure { log: true, .. } => y.log(),
            Figure { cut: true, .. } => y.cut(),
            _ => y,
        }
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
        let series = series.collect();
        let plot = if self.figure.form == Form::Scatter { Plot::Scatter(series) } else { Plot::Lines(series) };
        Chart::new(&self.figure.title, Scale::new("time", "s"), self.y(name), plot)
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
            let (mut x, mut categories) = (Vec::new(), Vec::new());
            let mut layers: Vec<Layer> =
                self.figure.y.iter().map(|name| Layer { name: metric::title(name), values: Vec::new() }).collect();
            for value in self.values(axis) {
                let all: Option<Vec<f64>> = self
                    .figure
                    .y
                    .iter()
                    .map(|name| Some(self.measured(name, subject, Some((axis, &value)))?.figure.value))
                    .collect();
                let Some(all) = all else { continue };
                x.extend(value.number());
                categories.push(head(&value));
                layers.iter_mut().zip(all).for_each(|(layer, y)| layer.values.push(y));
            }
            // Words have no place on an axis of numbers.
            let plot = if x.len() == categories.len() {
                Plot::StackedAreas { x, layers }
            } else {
                Plot::StackedBars { categories, layers }
            };
            section.chart(percent(subject.title(), Scale::new(axis.title(), ""), plot));
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
                let plot = Plot::Lines(series.collect());
                let y = self.y(&self.figure.y[0]);
                section.chart(Chart::new(&title, Scale::new(axis.title(), ""), y, plot));
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

/// The head of a column that needs no unit.
pub fn column(head: &str) -> Column {
    Column { head: head.into(), unit: String::new() }
}

/// A figure as a cell.
pub fn plain(measured: Option<&Measured>) -> Cell {
    marked(measured, |figure| Cell::figure(Some(figure)))
}

/// A quotient as a cell.
pub fn ratio(measured: Option<&Measured>) -> Cell {
    marked(measured, |figure| Cell::ratio(Some(figure)))
}

/// What is made of disturbed measurements only is words, not a figure.
fn marked(measured: Option<&Measured>, cell: impl Fn(Shown) -> Cell) -> Cell {
    match measured {
        Some(measured) if measured.disturbed => Cell::Text(format!("({})", measured.figure)),
        Some(measured) => cell(measured.figure),
        None => Cell::Empty,
    }
}

/// A table of the original as it is.
pub fn whole(table: &Published) -> Table {
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
