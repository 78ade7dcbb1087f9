//! A chart made ready: what both renderers draw, in the coordinates of its axes.
//!
//! Category number `c` takes the room from `c` to `c + 1` of a linear axis; its series stand side by side in the middle nine tenths
//! of it. So a renderer knows points, boxes, bars and areas at numbers, and no categories but as labels at `c + 0.5`.
//!
//! What cannot be drawn is left out and counted: no number, or not above zero on a logarithmic axis. A bar on a logarithmic axis
//! begins at the axis' lower end.

use super::look::{Look, Looks};
use super::{Axis, Chart, Figure, Origin, Plot, Quartiles, Scale};
use serde::{Serialize, Serializer};

/// Share of a category's room that its series have.
const ROOM: f64 = 0.9;

/// What is drawn of each point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Form {
    /// Points, joined.
    Lines,
    /// Points by themselves.
    Points,
    /// A bar from zero, or from the layer below, as wide as the series' room.
    Bars,
    /// A box plot as wide as the series' room.
    Boxes,
    /// The area between the edges of a layer.
    Areas,
}

/// A chart in the coordinates of its axes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Drawing {
    pub form: Form,
    /// Whether each series lies on the one before it.
    pub stack: bool,
    pub x: Axis,
    pub y: Axis,
    /// Smallest and largest `x`.
    pub x_range: (f64, f64),
    /// Smallest and largest `y`, zero among them if it is to be.
    pub y_range: (f64, f64),
    /// Labels of the categories; empty if `x` has numbers.
    pub categories: Vec<String>,
    pub series: Vec<Drawn>,
    /// How many values cannot be drawn.
    pub left_out: usize,
}

/// A series of a drawing.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Drawn {
    /// As in the legend.
    pub title: String,
    pub look: Look,
    /// Half the room it has at each `x`.
    pub half: f64,
    /// In order of `x` where they are joined.
    pub points: Vec<Point>,
    /// Box plots, each with the `x` of its middle.
    pub boxes: Vec<(f64, Quartiles)>,
}

/// A point; written as a short list of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
    /// The spread; of a layer of a stack its lower and upper edge, of a bar none or its spread.
    pub spread: Option<(f64, f64)>,
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.spread {
            Some((low, high)) => [self.x, self.y, low, high].serialize(serializer),
            None => [self.x, self.y].serialize(serializer),
        }
    }
}

impl Drawing {
    /// Makes a chart ready.
    pub fn of(chart: &Chart, looks: &Looks) -> Drawing {
        let Chart { x, y, plot, .. } = chart;
        let mut drawing = Drawing {
            form: form(plot),
            stack: matches!(plot, Plot::StackedBars { .. } | Plot::StackedAreas { .. }),
            x: x.clone(),
            y: y.clone(),
            x_range: (0.0, 1.0),
            y_range: (0.0, 1.0),
            categories: categories(plot).to_vec(),
            series: Vec::new(),
            left_out: 0,
        };
        if !drawing.categories.is_empty() {
            // Categories stand in a row of equal rooms, whatever scale the axis has.
            drawing.x.scale = Scale::Linear;
        }
        match plot {
            Plot::Lines(series) | Plot::Scatter(series) => {
                for one in series {
                    let look = looks.look(&one.name, one.origin);
                    let points = one.points.iter().map(|(x, figure)| point(*x, figure)).collect();
                    drawing.add(title(&one.name, one.origin), look, 0.0, points);
                }
            }
            Plot::Jitter { samples, .. } => {
                for (number, one) in samples.iter().enumerate() {
                    let look = looks.look(&one.name, one.origin);
                    let (middle, half) = room(number, samples.len());
                    let points = samples_at(&one.values).map(|(category, n, y)| {
                        let x = category as f64 + middle + half * 0.8 * shift(n);
                        Point { x, y, spread: None }
                    });
                    drawing.add(title(&one.name, one.origin), look, half, points.collect());
                }
            }
            Plot::Boxes { samples, .. } => {
                for (number, one) in samples.iter().enumerate() {
                    let look = looks.look(&one.name, one.origin);
                    let (middle, half) = room(number, samples.len());
                    drawing.add_boxes(title(&one.name, one.origin), look, middle, half, &one.values);
                }
            }
            Plot::Bars { bars, .. } => {
                for (number, one) in bars.iter().enumerate() {
                    let look = looks.look(&one.name, one.origin);
                    let (middle, half) = room(number, bars.len());
                    let values = one.values.iter().enumerate();
                    let points =
                        values.filter_map(|(category, figure)| Some(point(category as f64 + middle, figure.as_ref()?)));
                    drawing.add(title(&one.name, one.origin), look, half, points.collect());
                }
            }
            Plot::StackedBars { categories, layers } => {
                let at: Vec<f64> = (0..categories.len()).map(|category| category as f64 + 0.5).collect();
                drawing.stack(&at, layers, looks, ROOM / 2.0);
            }
            Plot::StackedAreas { x, layers } => drawing.stack(x, layers, looks, 0.0),
        }
        drawing.ranges();
        drawing
    }

    /// Whether nothing is drawn.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty() && series.boxes.is_empty())
    }

    fn can_draw(&self, point: &Point) -> bool {
        let on = |value: f64, axis: &Axis| value.is_finite() && (axis.scale == Scale::Linear || value > 0.0);
        on(point.x, &self.x) && on(point.y, &self.y)
    }

    fn add(&mut self, title: String, look: Look, half: f64, points: Vec<Point>) {
        let all = points.len();
        let mut points: Vec<Point> = points.into_iter().filter(|point| self.can_draw(point)).collect();
        for point in &mut points {
            let low_fits = |low: f64| self.y.scale == Scale::Linear || low > 0.0;
            point.spread = point.spread.filter(|(low, high)| low_fits(*low) && high.is_finite());
        }
        self.left_out += all - points.len();
        if self.form == Form::Lines {
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        self.series.push(Drawn { title, look, half, points, boxes: Vec::new() });
    }

    fn add_boxes(&mut self, title: String, look: Look, middle: f64, half: f64, values: &[Vec<f64>]) {
        let mut boxes = Vec::new();
        for (category, samples) in values.iter().enumerate() {
            let fit = |value: &f64| value.is_finite() && (self.y.scale == Scale::Linear || *value > 0.0);
            let kept: Vec<f64> = samples.iter().copied().filter(fit).collect();
            self.left_out += samples.len() - kept.len();
            boxes.extend(Quartiles::of(&kept).map(|quartiles| (category as f64 + middle, quartiles)));
        }
        self.series.push(Drawn { title, look, half, points: Vec::new(), boxes });
    }

    fn stack(&mut self, at: &[f64], layers: &[super::Layer], looks: &Looks, half: f64) {
        // What adds up begins at zero.
        self.y.scale = Scale::Linear;
        self.y.from_zero = true;
        let mut base = vec![0.0; at.len()];
        for layer in layers {
            let mut points = Vec::new();
            for ((x, value), base) in at.iter().zip(&layer.values).zip(&mut base) {
                if !value.is_finite() || *value < 0.0 || !x.is_finite() {
                    self.left_out += 1;
                    continue;
                }
                points.push(Point { x: *x, y: *value, spread: Some((*base, *base + value)) });
                *base += value;
            }
            let look = looks.look(&layer.name, Origin::Ours);
            self.series.push(Drawn { title: layer.name.clone(), look, half, points, boxes: Vec::new() });
        }
    }

    fn ranges(&mut self) {
        let mut xs = Vec::new();
        let mut ys = Vec::new();
        for series in &self.series {
            for point in &series.points {
                xs.push(point.x);
                ys.extend(point.spread.map(|(low, high)| [low, high]).into_iter().flatten());
                if !self.stack {
                    ys.push(point.y);
                }
            }
            for (_, q) in &series.boxes {
                ys.extend([q.low, q.high]);
                ys.extend(&q.outliers);
            }
        }
        self.x_range = match self.categories.len() {
            0 => spanned(&xs, &self.x, false),
            n => (0.0, n as f64),
        };
        // Lines over time begin where they begin; only lengths need their zero.
        self.y_range = spanned(&ys, &self.y, self.y.from_zero);
    }
}

/// From the smallest to the largest, widened where there is no width.
fn spanned(values: &[f64], axis: &Axis, zero: bool) -> (f64, f64) {
    let low = values.iter().copied().min_by(f64::total_cmp);
    let high = values.iter().copied().max_by(f64::total_cmp);
    let (Some(mut low), Some(mut high)) = (low, high) else {
        return if axis.scale == Scale::Log { (1.0, 10.0) } else { (0.0, 1.0) };
    };
    if axis.scale == Scale::Log {
        return if low == high { (low / 2.0, high * 2.0) } else { (low * 0.9, high * 1.1) };
    }
    if zero {
        (low, high) = (low.min(0.0), high.max(0.0));
    }
    match (low, high) {
        (0.0, 0.0) => (0.0, 1.0),
        (low, high) if low == high => (low - low.abs() / 2.0, high + high.abs() / 2.0),
        _ => (low, high),
    }
}

fn form(plot: &Plot) -> Form {
    match plot {
        Plot::Lines(_) => Form::Lines,
        Plot::Scatter(_) | Plot::Jitter { .. } => Form::Points,
        Plot::Boxes { .. } => Form::Boxes,
        Plot::Bars { .. } | Plot::StackedBars { .. } => Form::Bars,
        Plot::StackedAreas { .. } => Form::Areas,
    }
}

fn categories(plot: &Plot) -> &[String] {
    match plot {
        Plot::Jitter { categories, .. }
        | Plot::Boxes { categories, .. }
        | Plot::Bars { categories, .. }
        | Plot::StackedBars { categories, .. } => categories,
        Plot::Lines(_) | Plot::Scatter(_) | Plot::StackedAreas { .. } => &[],
    }
}

/// As in the legend.
pub(super) fn title(name: &str, origin: Origin) -> String {
    match origin {
        Origin::Ours => name.into(),
        Origin::Original => format!("{name} (original)"),
    }
}

fn point(x: f64, figure: &Figure) -> Point {
    Point { x, y: figure.value, spread: figure.spread() }
}

/// Middle and half width of a series' room within its category.
fn room(number: usize, of: usize) -> (f64, f64) {
    let width = ROOM / of.max(1) as f64;
    let middle = (1.0 - ROOM) / 2.0 + width * (number as f64 + 0.5);
    (middle, width / 2.0 * 0.88)
}

/// All samples with their category and their number in it.
fn samples_at(values: &[Vec<f64>]) -> impl Iterator<Item = (usize, usize, f64)> {
    let one = |(category, samples): (usize, &Vec<f64>)| {
        let all: Vec<_> = samples.iter().enumerate().map(|(n, value)| (category, n, *value)).collect();
        all
    };
    values.iter().enumerate().flat_map(one)
}

/// From -1 to 1, as good as random and the same at each call: the last step of the generator SplitMix64.
fn shift(n: usize) -> f64 {
    let mut bits = (n as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use super::super::{Bars, Layer, Page, Samples, Series};
    use super::*;

    fn drawing(y: Axis, plot: Plot) -> Drawing {
        Drawing::of(&Chart::new("c", Axis::new("x", ""), y, plot), &Looks::of(&Page::new("p")))
    }

    fn axis() -> Axis {
        Axis::new("y", "")
    }

    #[test]
    fn what_is_no_number_is_left_out_and_counted() {
        let points = [(3.0, 1.0), (f64::NAN, 2.0), (1.0, f64::INFINITY), (2.0, 0.0)];
        let linear = drawing(axis(), Plot::Lines(vec![Series::new("a", points)]));
        let xs: Vec<f64> = linear.series[0].points.iter().map(|point| point.x).collect();
        assert_eq!((xs, linear.left_out), (vec![2.0, 3.0], 2));
        let log = drawing(axis().log(), Plot::Scatter(vec![Series::new("a", points)]));
        assert_eq!((log.series[0].points.len(), log.left_out), (1, 3));
    }

    #[test]
    fn ranges_have_a_width() {
        let of = |y: Axis, values: &[f64]| {
            drawing(y, Plot::Scatter(vec![Series::new("a", values.iter().map(|v| (1.0, *v)))])).y_range
        };
        assert_eq!(of(axis(), &[]), (0.0, 1.0));
        assert_eq!(of(axis().log(), &[]), (1.0, 10.0));
        assert_eq!(of(axis(), &[0.0, 0.0]), (0.0, 1.0));
        assert_eq!(of(axis(), &[5.0]), (0.0, 5.0));
        assert_eq!(of(axis().cut(), &[4.0]), (2.0, 6.0));
        assert_eq!(of(axis().log(), &[4.0]), (2.0, 8.0));
        assert_eq!(of(axis(), &[-3.0, 2.0]), (-3.0, 2.0));
    }

    #[test]
    fn series_stand_side_by_side_in_their_category() {
        let bars = |name: &str| Bars { name: name.into(), values: vec![Some(1.0.into()), None], ..Bars::default() };
        let plot = Plot::Bars { categories: vec!["p".into(), "q".into()], bars: vec![bars("a"), bars("b")] };
        let drawing = drawing(axis(), plot);
        let at = |n: usize| (drawing.series[n].points[0].x, drawing.series[n].half);
        let ((first, half), (second, _)) = (at(0), at(1));
        assert!(0.0 < first - half && first + half < second - half && second + half < 1.0);
        assert_eq!((drawing.x_range, drawing.series[0].points.len(), drawing.stack), ((0.0, 2.0), 1, false));
    }

    #[test]
    fn layers_add_up() {
        let layer = |name: &str, values: [f64; 2]| Layer { name: name.into(), values: values.into() };
        let layers = vec![layer("user", [10.0, f64::NAN]), layer("idle", [90.0, 50.0])];
        let drawing = drawing(axis(), Plot::StackedAreas { x: vec![1.0, 2.0], layers });
        assert_eq!(drawing.series[1].points[0].spread, Some((10.0, 100.0)));
        assert_eq!(drawing.series[1].points[1].spread, Some((0.0, 50.0)));
        assert_eq!((drawing.left_out, drawing.y_range, drawing.stack), (1, (0.0, 100.0), true));
    }

    #[test]
    fn jitter_stays_in_its_room_and_boxes_know_their_samples() {
        let samples = || vec![Samples { name: "a".into(), values: vec![vec![1.0; 50], vec![]], ..Samples::default() }];
        let categories = || vec!["p".to_string(), "q".to_string()];
        let jitter = drawing(axis(), Plot::Jitter { categories: categories(), samples: samples() });
        assert!(jitter.series[0].points.iter().all(|point| (0.0..1.0).contains(&point.x)));
        let boxes = drawing(axis(), Plot::Boxes { categories: categories(), samples: samples() });
        assert_eq!(boxes.series[0].boxes.len(), 1);
        assert_eq!(boxes.series[0].boxes[0].1.n, 50);
        assert!(drawing(axis(), Plot::Boxes { categories: categories(), samples: vec![] }).is_empty());
    }
}
