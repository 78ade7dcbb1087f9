//! An experiment as a file: what is asked, varied and measured, and what the original found.
//!
//! The file has every number; the code has none. Its parts:
//!
//! | part | holds |
//! |---|---|
//! | `settings`, `scaled` | the original's size; those settings that a scale divides by its factor |
//! | `scales` | factor, rounds, what does not follow the factor, how long loads and starts take |
//! | `sweeps` | what is varied; see [`How`] |
//! | `tables` | the original's figures as published |
//! | `figures` | what the report shows, in the original's form, with the columns of `tables` that stand beside |
//! | `claims` | the original's conclusions as quotients of two measurements |
//! | `conditions` | how the original was set up, and what is different here |
//!
//! A file that names what does not exist (a metric, a column, an axis) is refused when it is read.
//!
//! Rejected: a type for each experiment (four times the same code around four lists of numbers).

use super::metric;
use super::settings::Settings;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The experiments that come with the lab: name and text.
pub const OWN: [(&str, &str); 5] = [
    ("tpcc-memory", include_str!("../../experiments/tpcc-memory.toml")),
    ("redmine", include_str!("../../experiments/redmine.toml")),
    ("linkbench", include_str!("../../experiments/linkbench.toml")),
    ("xa", include_str!("../../experiments/xa.toml")),
    ("compressible", include_str!("../../experiments/compressible.toml")),
];

/// The experiment of the command `scale`, which no one has published: how figures grow with the data.
pub const SCALE: (&str, &str) = ("scale", include_str!("../../experiments/scale.toml"));

/// A number or a word, as on an axis or in a table.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    Text(String),
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// What can be varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Memory for caches and memtables over the size of the baseline's data after its load.
    Memory,
    /// Data, in multiples of the smallest.
    Size,
    /// Memory for caches and memtables: `fixed` at all sizes of the data, or `growing` with them.
    Budget,
    /// Sessions.
    Connections,
    /// The script or mix.
    Case,
    /// How transactions end: `plain` or `xa`.
    Commit,
    /// The binary log: `on` or `off`.
    Binlog,
    /// What zstd leaves of the text, from 0 to 1.
    Compressibility,
    /// The data set, by name.
    Set,
    /// Processes of the application.
    Processes,
    /// What third parties ask of the disk: `none`, `light`, `4 threads`.
    Disk,
    /// Stretches of one run, from 1; never a sweep.
    Window,
}

impl Axis {
    /// As in files and labels.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Memory => "memory",
            Axis::Size => "size",
            Axis::Budget => "budget",
            Axis::Connections => "connections",
            Axis::Case => "case",
            Axis::Commit => "commit",
            Axis::Binlog => "binlog",
            Axis::Compressibility => "compressibility",
            Axis::Set => "set",
            Axis::Processes => "processes",
            Axis::Disk => "disk",
            Axis::Window => "window",
        }
    }

    /// As on an axis of a chart.
    pub fn title(self) -> &'static str {
        match self {
            Axis::Memory => "memory / InnoDB's data",
            Axis::Size => "data / the smallest",
            Axis::Budget => "memory",
            Axis::Connections => "connections",
            Axis::Case => "transactions",
            Axis::Commit => "commit",
            Axis::Binlog => "binary log",
            Axis::Compressibility => "part of the text that zstd leaves",
            Axis::Set => "data set",
            Axis::Processes => "processes",
            Axis::Disk => "load on the disk",
            Axis::Window => "window",
        }
    }
}

/// Values by axis: where a measurement stands.
pub type Place = BTreeMap<Axis, Value>;

/// `memory 0.06, commit xa`.
pub fn place_text(place: &Place) -> String {
    words_text(place.iter().map(|(axis, value)| (axis.name(), value.to_string())))
}

/// A place as files have it: values by the names of their axes.
pub fn place_words(place: &Place) -> BTreeMap<String, String> {
    place.iter().map(|(axis, value)| (axis.name().to_string(), value.to_string())).collect()
}

/// Names and values as [`place_text`] has them.
pub fn words_text<'a>(words: impl Iterator<Item = (&'a str, String)>) -> String {
    let short = |value: String| match value.parse::<f64>() {
        Ok(number) if number.fract() != 0.0 => format!("{number:.3}"),
        _ => value,
    };
    words.map(|(name, value)| format!("{name} {}", short(value))).collect::<Vec<_>>().join(", ")
}

/// What it takes to go from one value of a sweep to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Other data: a load for each value.
    Data,
    /// The loaded data restored, a server started.
    Start,
    /// Nothing: the values are measured one after the other on one server.
    Within,
}

/// What drives the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    Tpcc,
    Linkbench,
    Sysbench,
    Compressible,
    Redmine,
}

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub name: String,
    pub title: String,
    pub question: String,
    /// Who published it, and when; empty if nobody has.
    #[serde(default)]
    pub origin: String,
    pub workload: Workload,
    /// Engines that are compared, the baseline first.
    pub engines: Vec<String>,
    /// Engines whose size after the load is all that is asked for.
    #[serde(default)]
    pub load_only: Vec<String>,
    /// At the original's size.
    pub settings: toml::Table,
    /// Settings that are divided by a scale's factor.
    pub scaled: Vec<String>,
    pub scales: BTreeMap<String, Scale>,
    #[serde(default)]
    pub sweeps: Vec<Sweep>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub tables: BTreeMap<String, Table>,
    #[serde(default)]
    pub claims: Vec<Claim>,
    pub figures: Vec<Figure>,
    /// What of it the README shows.
    #[serde(default)]
    pub headline: Option<Headline>,
}

/// The few figures that stand for the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// What was done, in words.
    pub text: String,
    pub metrics: Vec<String>,
    #[serde(default)]
    pub at: BTreeMap<Axis, At>,
    /// The id of the figure whose chart stands beside.
    #[serde(default)]
    pub picture: Option<String>,
}

/// A size at which it is run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Data, memory and times are divided by this.
    pub factor: f64,
    pub rounds: u32,
    /// All engines' servers run at once, and what is measured of them takes turns of one measurement each while the others' processes are
    /// stopped: what is compared lies seconds apart. It takes the memory of all of them.
    #[serde(default)]
    pub side_by_side: bool,
    /// Settings that do not follow the factor.
    #[serde(default)]
    pub settings: toml::Table,
    /// Values of sweeps that do not follow the file's.
    #[serde(default)]
    pub sweeps: BTreeMap<Axis, Vec<Value>>,
    pub times: Times,
}

/// What a step takes on two cores beside the seconds that are measured: for the time left before the run knows better.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Seconds of a load.
    pub load: f64,
    /// Seconds until a server with the data is ready and calm, and of its stop.
    pub start: f64,
}

/// Something that is varied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    pub axis: Axis,
    pub how: How,
    pub values: Vec<Value>,
    /// The values as they stand are divided by this: the original's size, where they are shares.
    #[serde(default = "one")]
    pub over: f64,
}

/// How the original was set up in one respect.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    pub what: String,
    pub original: String,
    /// What is different here, and does not follow from the scale; nothing if it is the same.
    #[serde(default)]
    pub ours: Option<String>,
}

/// Figures as published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// The number of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

/// One end of an axis, or a value of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum At {
    End(End),
    Value(Value),
}

/// An end of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    First,
    Last,
}

/// What kind of record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Load,
    /// As fast as it goes.
    #[default]
    Run,
    /// Behind it, at one rate for all engines, which the baseline's decides: for latencies that can be compared.
    Paced,
}

impl Phase {
    /// All, in the order in which they are measured.
    pub const ALL: [Phase; 3] = [Phase::Load, Phase::Run, Phase::Paced];

    /// As in files.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Load => "load",
            Phase::Run => "run",
            Phase::Paced => "paced",
        }
    }

    /// For labels: nothing of the one that is meant where nothing is said.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Load => ", load",
            Phase::Run => "",
            Phase::Paced => ", at one rate",
        }
    }
}

/// A conclusion of the original: a quotient, beside ours.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The original's words, in ours.
    pub text: String,
    pub metric: String,
    #[serde(default)]
    pub phase: Phase,
    /// Engines, or `others`: all but the baseline.
    pub of: Vec<String>,
    #[serde(default)]
    pub at: BTreeMap<Axis, At>,
    /// An engine; the same one if none.
    #[serde(default)]
    pub over: Option<String>,
    #[serde(default)]
    pub over_at: Option<BTreeMap<Axis, At>>,
    /// The quotient that the original found.
    #[serde(default)]
    pub original: Option<f64>,
    /// The side of 1 on which it was, where no number is known.
    #[serde(default)]
    pub side: Option<Side>,
    /// Quotients from one over this to this are "about 1".
    #[serde(default = "equal")]
    pub equal: f64,
}

/// Where a quotient lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Below,
    Equal,
    Above,
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The seconds of each run over an axis, or over time.
    Scatter,
    /// The same as boxes.
    Box,
    /// A mean over an axis.
    Line,
    /// A series over time.
    Time,
    /// Several metrics on each other, over an axis or over time.
    Stacked,
    Table,
    Bars,
    /// Bars over the places of several axes, and how many times as long the baseline takes.
    Grid,
    /// How metrics grow with the data, beside what [`Law`] allows.
    Growth,
}

/// How a figure may grow with the data, so that an engine keeps what an LSM tree promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// A cost: as the depth of the tree.
    Depth,
    /// A rate: as one over that.
    Rate,
    /// As the data.
    Data,
    /// As the memory.
    Memory,
}

/// A chart or table of the report.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// As in the list of what a reproduction has to show.
    pub id: String,
    pub form: Form,
    pub title: String,
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub phase: Phase,
    /// The axis of x; none for time, and for tables with a row an engine.
    #[serde(default)]
    pub x: Option<Axis>,
    /// Metrics, or series of seconds.
    pub y: Vec<String>,
    /// For [`Form::Growth`]: how each of the metrics may grow.
    #[serde(default)]
    pub laws: BTreeMap<String, Law>,
    #[serde(default)]
    pub at: BTreeMap<Axis, At>,
    /// Of a grid: all combinations of the values of these axes, the last one changing fastest.
    #[serde(default)]
    pub over: Vec<Axis>,
    /// Of a grid, instead of these: its places, one by one.
    #[serde(default)]
    pub places: Vec<BTreeMap<Axis, At>>,
    /// Whether the axis of y is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Whether the axis of y is cut to the values instead of beginning at 0.
    #[serde(default)]
    pub cut: bool,
    /// Only these engines; all if none.
    #[serde(default)]
    pub engines: Vec<String>,
    /// What stands beside in the original.
    #[serde(default)]
    pub original: Option<Original>,
    /// What is known of the original where there are no numbers.
    #[serde(default)]
    pub original_words: String,
    /// Metrics of which the quotient to the baseline is shown, first.
    #[serde(default)]
    pub ratios: Vec<String>,
    /// Metrics by which it is compared beside that.
    #[serde(default)]
    pub compare: Vec<String>,
}

/// Columns of one of the original's tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Original {
    pub table: String,
    /// The column of x.
    #[serde(default)]
    pub x: Option<String>,
    /// Its values over this are ours.
    #[serde(default = "one")]
    pub over: f64,
    /// Column by `engine`, or `engine/metric` where there are several.
    #[serde(default)]
    pub series: BTreeMap<String, String>,
    /// For tables with a row an engine: the column with names, names by engine, columns by metric.
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default)]
    pub rows: BTreeMap<String, String>,
    #[serde(default)]
    pub columns: BTreeMap<String, String>,
}

fn one() -> f64 {
    1.0
}

fn equal() -> f64 {
    1.05
}

impl Experiment {
    /// Understands the text of a file.
    pub fn parse(text: &str) -> Result<Experiment> {
        let experiment: Experiment = toml::from_str(text)?;
        experiment.check().with_context(|| format!("the experiment {}", experiment.name))?;
        Ok(experiment)
    }

    /// Whether all that is named exists.
    fn check(&self) -> Result<()> {
        ensure!(!self.engines.is_empty(), "no engines are named");
        for name in &self.scaled {
            ensure!(self.settings.contains_key(name), "{name} is scaled, and no setting");
        }
        ensure!(!self.scales.is_empty(), "there is no scale");
        for (name, scale) in &self.scales {
            ensure!(scale.factor > 0.0 && scale.rounds > 0, "scale {name} has no factor or no round");
            let settings = Settings::of(self, scale).with_context(|| format!("scale {name}"))?;
            ensure!(!settings.restarts || self.workload == Workload::Tpcc, "servers are started anew with TPC-C only");
            let alone = self.workload == Workload::Redmine || settings.restarts || settings.windows() > 1;
            ensure!(
                !(scale.side_by_side && alone),
                "scale {name}: applications, starts and windows are measured alone"
            );
            for axis in scale.sweeps.keys() {
                ensure!(self.sweep(*axis).is_some(), "scale {name} changes {}, which is not varied", axis.name());
            }
        }
        for sweep in &self.sweeps {
            ensure!(!sweep.values.is_empty(), "{} has no values", sweep.axis.name());
            ensure!(sweep.axis != Axis::Window, "windows come from the settings");
            let of_tpcc = !matches!(sweep.axis, Axis::Size | Axis::Budget) || self.workload == Workload::Tpcc;
            ensure!(of_tpcc, "{} is varied with TPC-C only", sweep.axis.name());
        }
        for (name, table) in &self.tables {
            for row in &table.rows {
                ensure!(row.len() == table.columns.len(), "a row of table {name} has {} values", row.len());
            }
        }
        for claim in &self.claims {
            ensure!(metric::is_known(&claim.metric), "there is no metric {}", claim.metric);
            ensure!(claim.equal >= 1.0, "{:?} calls nothing equal", claim.text);
            ensure!(claim.original.is_some() || claim.side.is_some(), "{:?} has neither number nor side", claim.text);
            self.check_axes(claim.at.keys().chain(claim.over_at.iter().flatten().map(|(axis, _)| axis)))?;
        }
        if let Some(headline) = &self.headline {
            for name in &headline.metrics {
                ensure!(metric::is_known(name), "there is no metric {name}");
            }
            let drawn = |id: &String| self.figures.iter().any(|figure| figure.id == *id && figure.form == Form::Line);
            ensure!(
                headline.picture.as_ref().is_none_or(drawn),
                "the picture of the headline is no line of this experiment"
            );
            self.check_axes(headline.at.keys())?;
        }
        self.figures.iter().try_for_each(|figure| self.check_figure(figure).with_context(|| figure.id.clone()))
    }

    fn check_axes<'a>(&self, axes: impl Iterator<Item = &'a Axis>) -> Result<()> {
        for axis in axes {
            ensure!(*axis == Axis::Window || self.sweep(*axis).is_some(), "{} is not varied", axis.name());
        }
        Ok(())
    }

    fn check_figure(&self, figure: &Figure) -> Result<()> {
        ensure!(!figure.y.is_empty(), "nothing is shown");
        let over_seconds = matches!(figure.form, Form::Scatter | Form::Box | Form::Time)
            || figure.form == Form::Stacked && figure.x.is_none();
        for name in &figure.y {
            let known = if over_seconds { metric::is_series(name) } else { metric::is_known(name) };
            ensure!(known, "there is no metric {name} of this form");
        }
        if figure.form == Form::Growth {
            ensure!(self.sweep(Axis::Size).is_some(), "there is no growth without sizes");
            let same =
                figure.y.len() == figure.laws.len() && figure.y.iter().all(|name| figure.laws.contains_key(name));
            ensure!(same, "each metric has a law, and no other");
        }
        for name in figure.ratios.iter().chain(&figure.compare) {
            ensure!(metric::is_known(name), "there is no metric {name}");
        }
        let places = figure.places.iter().flat_map(BTreeMap::keys);
        self.check_axes(figure.at.keys().chain(&figure.x).chain(&figure.over).chain(places))?;
        let (over, places) = (!figure.over.is_empty(), !figure.places.is_empty());
        let right = if figure.form == Form::Grid { over != places } else { !over && !places };
        ensure!(right, "a grid is over axes or has places, and nothing else is or has");
        let Some(original) = &figure.original else { return Ok(()) };
        let Some(table) = self.tables.get(&original.table) else { bail!("there is no table {}", original.table) };
        let named = original.x.iter().chain(original.series.values()).chain(&original.key);
        for column in named.chain(original.columns.values()) {
            ensure!(table.column(column).is_some(), "table {} has no column {column}", original.table);
        }
        if let Some(key) = original.key.as_ref().and_then(|key| table.column(key)) {
            for name in original.rows.values() {
                let found = table.rows.iter().any(|row| row[key] == Value::Text(name.clone()));
                ensure!(found, "table {} has no row {name}", original.table);
            }
        }
        Ok(())
    }

    /// The sweep of an axis.
    pub fn sweep(&self, axis: Axis) -> Option<&Sweep> {
        self.sweeps.iter().find(|sweep| sweep.axis == axis)
    }

    /// The values of an axis at a scale, as they are set.
    pub fn values(&self, axis: Axis, scale: &Scale) -> Vec<Value> {
        let Some(sweep) = self.sweep(axis) else { return Vec::new() };
        let values = scale.sweeps.get(&axis).unwrap_or(&sweep.values);
        values
            .iter()
            .map(|value| match value {
                // Few digits, so that what was written is found again when it is read.
                Value::Number(number) => Value::Number((number / sweep.over * 1e4).round() / 1e4),
                text => text.clone(),
            })
            .collect()
    }
}
