//! One page of results: a document of headings, words, charts and tables, independent of what was measured.
//!
//! Whoever has measured something builds a [`Page`] and hands it to [`to_html`] (one file that opens from disk without a
//! network) or [`to_markdown`] (text with SVG files beside it). Both show the same from the same figures:
//!
//! ```ignore
//! let mut page = Page::new("Memory and throughput");
//! page.verdict.push("Strata is ahead of InnoDB at every size of memory.".into());
//! let mut section = Section::new("Throughput");
//! section.text("A point is the mean of three rounds.");
//! section.chart(Chart::new(
//!     "Throughput by memory",
//!     Axis::new("memory", "GB"),
//!     Axis::new("throughput", "transactions/s"),
//!     Plot::Lines(vec![
//!         Series::new("Strata", [(5.0, 4300.0), (10.0, 4400.0)]),
//!         Series::new("InnoDB", [(5.0, 900.0), (10.0, 1700.0)]),
//!         Series::new("InnoDB", [(5.0, 849.0), (10.0, 1600.0)]).original(),
//!     ]),
//! ));
//! page.sections.push(section);
//! std::fs::write("page.html", to_html(&page))?;
//! ```
//!
//! Rules that hold for both forms:
//!
//! - A series has its colour, mark and dash by its name, the same on the whole page. What the original published is a series of
//!   the same name marked [`Origin::Original`]: drawn hollow and dotted in the same colour, named "InnoDB (original)".
//! - A value that is no number (NaN, infinite), and on a logarithmic axis one that is not above zero, is left out.
//! - A chart without a value is a sentence that says so.
//! - Quartiles, whiskers and medians are computed here ([`Quartiles`]), not by a charting library.
//!
//! Rejected: pages made from templates for each experiment. Each would decide anew how spread, units and rivals look.

#[cfg(test)]
pub mod browser;
mod drawing;
mod figure;
mod html;
mod look;
mod markdown;
mod summary;
mod svg;
#[cfg(test)]
pub mod tests;

pub use figure::{Figure, Quartiles, number, rounds};
pub use html::to_html;
pub use markdown::to_markdown;

use serde::Serialize;

/// A page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// The heading, and the window's title.
    pub title: String,
    /// What came out, in sentences built from the figures: who is ahead, by how much, with what spread.
    pub verdict: Vec<String>,
    /// The page's body, in order.
    pub sections: Vec<Section>,
    /// What the figures hold for; shown behind the sections.
    pub conditions: Vec<Condition>,
    /// The raw data: the HTML page offers them as downloads, [`to_markdown`] leaves them to its caller.
    pub attachments: Vec<Attachment>,
}

/// A heading and what stands below it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// Paragraphs, charts and tables, in order.
    pub parts: Vec<Part>,
}

/// A piece of a section.
#[derive(Clone, Debug, Serialize)]
pub enum Part {
    /// A paragraph of plain text.
    Text(String),
    /// A chart.
    Chart(Chart),
    /// A table.
    Table(Table),
}

/// A chart.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// What it shows, above it.
    pub title: String,
    /// How to read it, below it; may be empty.
    pub caption: String,
    /// The horizontal axis; of categories only its label counts.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub plot: Plot,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// What it measures: `throughput`.
    pub label: String,
    /// Its unit: `transactions/s`; empty for none.
    pub unit: String,
    /// Its scale.
    pub scale: Scale,
    /// Whether zero is on a linear axis whatever the values; set by default.
    pub from_zero: bool,
}

/// How an axis maps values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios.
    Log,
}

/// What a chart draws; a builder of pages need not use all of it. Everything over categories has one entry a category, in their order.
#[derive(Clone, Debug, Serialize)]
#[allow(dead_code, reason = "builders of pages take the kinds they need")]
pub enum Plot {
    /// Points joined in order of `x`, with whiskers where a point has a spread.
    Lines(Vec<Series>),
    /// Points by themselves: a sample each.
    Scatter(Vec<Series>),
    /// All samples of each category side by side, shifted at random within their column.
    Jitter { categories: Vec<String>, samples: Vec<Samples> },
    /// A box plot of the samples of each category.
    Boxes { categories: Vec<String>, samples: Vec<Samples> },
    /// Bars side by side in each category, with whiskers where a figure has a spread.
    Bars { categories: Vec<String>, bars: Vec<Bars> },
    /// One bar a category, of layers that add up.
    StackedBars { categories: Vec<String>, layers: Vec<Layer> },
    /// Layers that add up over `x`, which ascends.
    StackedAreas { x: Vec<f64>, layers: Vec<Layer> },
}

/// Whose figures a series holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Origin {
    /// Measured here.
    #[default]
    Ours,
    /// What the original published.
    Original,
}

/// A named row of points.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Decides about colour and mark: `InnoDB`.
    pub name: String,
    /// Whose points.
    pub origin: Origin,
    /// The points, each with its `x`.
    pub points: Vec<(f64, Figure)>,
}

/// The samples of one series, by category.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Samples {
    /// Decides about colour and mark.
    pub name: String,
    /// Whose samples.
    pub origin: Origin,
    /// The samples of each category; a category without any stays empty.
    pub values: Vec<Vec<f64>>,
}

/// The bars of one series, one a category.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bars {
    /// Decides about the colour.
    pub name: String,
    /// Whose figures.
    pub origin: Origin,
    /// The height in each category; none where nothing was measured.
    pub values: Vec<Option<Figure>>,
}

/// A layer of a stack; the first one lies at the bottom.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Layer {
    /// Decides about the colour: `user`, `system`, `wait`, `idle`.
    pub name: String,
    /// Its thickness at each category or `x`.
    pub values: Vec<f64>,
}

/// A table with a head for each column and each row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What it shows, with a unit if all cells share it.
    pub caption: String,
    /// The head above the rows' heads; may be empty.
    pub corner: String,
    /// Heads of the columns; ratios stand first.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The head of a column.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Column {
    /// What stands below it.
    pub head: String,
    /// Its unit; empty for none, or where each row has its own in its head.
    pub unit: String,
}

/// A row of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// What stands beside it, with the unit if the row has one.
    pub head: String,
    /// One cell a column.
    pub cells: Vec<Cell>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub enum Cell {
    /// Nothing was measured: a dash.
    #[default]
    Empty,
    /// Words.
    Text(String),
    /// A number with its spread.
    Figure(Figure),
    /// One number over another, with its spread: shown with two decimals.
    Ratio(Figure),
}

/// A condition under which the figures came about.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Condition {
    /// Which one: `server`, `memory of each engine`.
    pub name: String,
    /// What it was here.
    pub value: String,
    /// What it was in the original; none where there is no original. Shown beside, and marked where the two differ.
    pub original: Option<String>,
}

/// A file that the page carries.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Attachment {
    /// Its file name: `runs.json`. The ending decides about the type: `.json`, `.csv`, anything else is plain text.
    pub name: String,
    /// What is in it, in words.
    pub title: String,
    /// The content.
    #[serde(skip)]
    pub content: String,
}

impl Page {
    /// A page with nothing in it yet.
    pub fn new(title: &str) -> Page {
        Page { title: title.into(), ..Page::default() }
    }
}

impl Section {
    /// A section with nothing in it yet.
    pub fn new(heading: &str) -> Section {
        Section { heading: heading.into(), parts: Vec::new() }
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Text(text.into()));
    }

    /// Adds a chart.
    #[allow(dead_code, reason = "builders of pages take what they need")]
    pub fn chart(&mut self, chart: Chart) {
        self.parts.push(Part::Chart(chart));
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.parts.push(Part::Table(table));
    }
}

impl Chart {
    /// A chart without a caption.
    pub fn new(title: &str, x: Axis, y: Axis, plot: Plot) -> Chart {
        Chart { title: title.into(), caption: String::new(), x, y, plot }
    }

    /// The same with this caption.
    pub fn caption(self, caption: &str) -> Chart {
        Chart { caption: caption.into(), ..self }
    }
}

impl Axis {
    /// A linear axis with zero on it.
    pub fn new(label: &str, unit: &str) -> Axis {
        Axis { label: label.into(), unit: unit.into(), scale: Scale::Linear, from_zero: true }
    }

    /// The same with a logarithmic scale.
    pub fn log(self) -> Axis {
        Axis { scale: Scale::Log, ..self }
    }

    /// The same cut to the values.
    #[allow(dead_code, reason = "builders of pages take what they need")]
    pub fn cut(self) -> Axis {
        Axis { from_zero: false, ..self }
    }

    /// Label and unit: `throughput, transactions/s`.
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{}, {}", self.label, self.unit) }
    }
}

impl Series {
    /// A series of ours, of plain numbers or of figures with a spread.
    pub fn new<F: Into<Figure>>(name: &str, points: impl IntoIterator<Item = (f64, F)>) -> Series {
        let points = points.into_iter().map(|(x, y)| (x, y.into())).collect();
        Series { name: name.into(), origin: Origin::Ours, points }
    }

    /// The same as what the original published.
    #[allow(dead_code, reason = "builders of pages take what they need")]
    pub fn original(self) -> Series {
        Series { origin: Origin::Original, ..self }
    }
}

impl Condition {
    /// Whether it was another one in the original.
    pub fn differs(&self) -> bool {
        self.original.as_ref().is_some_and(|original| *original != self.value)
    }
}

impl Attachment {
    /// Its type for browsers.
    pub fn media_type(&self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "json")) => "application/json",
            Some((_, "csv")) => "text/csv",
            _ => "text/plain",
        }
    }
}

impl Cell {
    /// A figure, or a dash if there is none.
    pub fn figure(figure: Option<Figure>) -> Cell {
        figure.filter(Figure::is_finite).map_or(Cell::Empty, Cell::Figure)
    }

    /// A ratio, or a dash if there is none.
    pub fn ratio(ratio: Option<Figure>) -> Cell {
        ratio.filter(Figure::is_finite).map_or(Cell::Empty, Cell::Ratio)
    }
}
