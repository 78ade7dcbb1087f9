//! A chart as SVG, for pages in Markdown, drawn by `plotters`.
//!
//! `plotters` is kept up, has linear and logarithmic axes with their ticks, and its SVG backend writes text as text. It counts in whole
//! pixels, so a chart is drawn at twice its size and shown at half of it. Legend and labels of categories are set here: the
//! crate's own legend lies over the marks.
//!
//! Rejected: SVG by hand (the ticks of logarithmic axes alone are as much as this file); `poloto`, `charts-rs` (no box plots with
//! whiskers of our own choice, or fonts embedded).

use super::drawing::{Drawing, Drawn, Form};
use super::figure::number;
use super::look::{LIGHT, Look};
use super::{Quartiles, Scale};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawable<'a, X, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>;
type Failed = DrawingAreaErrorKind<std::io::Error>;

/// Size of a chart as it is drawn, twice the one it has.
const WIDTH: u32 = 1440;
const PLOT_HEIGHT: u32 = 640;
const FONT: u32 = 26;
/// Estimated width of a letter.
const LETTER: i32 = 14;
const LINE: i32 = 38;
/// More letters than these of a category's name are cut.
const LONGEST: usize = 28;
const QUIET: RGBColor = RGBColor(0x59, 0x61, 0x6b);
const RULE: RGBColor = RGBColor(0xd5, 0xda, 0xe0);

/// The chart as an SVG file of its own, on white.
pub(super) fn to_svg(drawing: &Drawing) -> String {
    let legend = legend_places(drawing);
    let head = LINE + 14 + LINE * legend.last().map_or(0, |place| place.1 + 1);
    let foot = foot(drawing);
    let height = head as u32 + PLOT_HEIGHT + foot;
    let mut out = String::new();
    let root = SVGBackend::with_string(&mut out, (WIDTH, height)).into_drawing_area();
    draw(&root, drawing, &legend, head, foot).expect("a string takes whatever is written");
    drop(root);
    // Text inherits no font where an image has none.
    out.replacen(
        &format!("width=\"{WIDTH}\" height=\"{height}\""),
        &format!("width=\"{}\" height=\"{}\"", WIDTH / 2, height / 2),
        1,
    )
}

fn draw(root: &Area, drawing: &Drawing, legend: &[(i32, i32)], head: i32, foot: u32) -> Result<(), Failed> {
    root.fill(&WHITE)?;
    root.draw(&Text::new(drawing.y.title(), (10, 10), font(QUIET)))?;
    for (series, (x, line)) in drawing.series.iter().zip(legend) {
        let y = LINE + 10 + line * LINE;
        if drawing.form == Form::Lines {
            let ends = (*x - 26, *x + 26);
            for (from, to) in dashes(ends, series.look) {
                root.draw(&PathElement::new(vec![(from, y + 12), (to, y + 12)], stroke(series.look)))?;
            }
        }
        let mark = outline(series.look, (*x, y + 12), 8);
        root.draw(&Polygon::new(mark.clone(), fill(series.look)))?;
        root.draw(&PathElement::new(closed(mark), stroke(series.look)))?;
        root.draw(&Text::new(series.title.clone(), (*x + 36, y), font(BLACK)))?;
    }
    let (_, plot) = root.split_vertically(head);
    let (x, y) = (drawing.x_range, drawing.y_range);
    let (x, y) = (x.0..x.1, y.0..y.1 + (y.1 - y.0) * 0.04);
    match (drawing.x.scale, drawing.y.scale) {
        (Scale::Linear, Scale::Linear) => draw_in(&plot, drawing, x, y, foot),
        (Scale::Linear, Scale::Log) => draw_in(&plot, drawing, x, y.log_scale(), foot),
        (Scale::Log, Scale::Linear) => draw_in(&plot, drawing, x.log_scale(), y, foot),
        (Scale::Log, Scale::Log) => draw_in(&plot, drawing, x.log_scale(), y.log_scale(), foot),
    }
}

/// The plot itself, on axes of any scale.
fn draw_in<'a, X, Y>(plot: &Area<'a>, drawing: &Drawing, x: X, y: Y, foot: u32) -> Result<(), Failed>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let mut chart = ChartBuilder::on(plot)
        .margin_right(24)
        .margin_top(6)
        .x_label_area_size(foot)
        .y_label_area_size(120)
        .build_cartesian_2d(x, y)?;
    let axis = |value: &f64| tick(*value);
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RULE)
        .axis_style(QUIET)
        .label_style(font(BLACK))
        .y_labels(7)
        .x_labels(if drawing.categories.is_empty() { 9 } else { 0 })
        .y_label_formatter(&axis)
        .x_label_formatter(&axis);
    if drawing.categories.is_empty() {
        mesh.x_desc(drawing.x.title()).axis_desc_style(font(QUIET));
    }
    mesh.draw()?;
    name_categories(plot, &chart, drawing)?;
    for series in &drawing.series {
        match drawing.form {
            Form::Lines => lines(&mut chart, series)?,
            Form::Points => {
                let size = if series.points.len() > 400 { 3 } else { 5 };
                points(&mut chart, series.points.iter().map(|p| (p.x, p.y)), series.look, size)?;
            }
            Form::Bars => bars(&mut chart, drawing, series)?,
            Form::Areas => areas(&mut chart, drawing, series)?,
            Form::Boxes => {
                for (x, quartiles) in &series.boxes {
                    one_box(&mut chart, *x, series.half * 0.9, quartiles, series.look)?;
                }
            }
        }
    }
    Ok(())
}

fn lines<X, Y>(chart: &mut Drawable<X, Y>, series: &Drawn) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let at = || series.points.iter().map(|point| (point.x, point.y));
    match series.look.dash() {
        [dash, gap, ..] => {
            chart.draw_series(DashedLineSeries::new(at(), dash * 2, gap * 2, stroke(series.look)))?;
        }
        _ => {
            chart.draw_series(LineSeries::new(at(), stroke(series.look)))?;
        }
    }
    whiskers(chart, series)?;
    // Where points are many, every so many-th has its mark.
    let every = series.points.len().div_ceil(40).max(1);
    points(chart, at().step_by(every), series.look, 7)
}

fn whiskers<X, Y>(chart: &mut Drawable<X, Y>, series: &Drawn) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let spread = series.points.iter().filter_map(|point| Some((point.x, point.spread?)));
    chart.draw_series(
        spread.map(|(x, (low, high))| PathElement::new(vec![(x, low), (x, high)], BLACK.stroke_width(3))),
    )?;
    Ok(())
}

fn points<X, Y>(
    chart: &mut Drawable<X, Y>,
    at: impl Iterator<Item = (f64, f64)>,
    look: Look,
    size: i32,
) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let mark = outline(look, (0, 0), size);
    chart.draw_series(at.map(|place| {
        EmptyElement::at(place)
            + Polygon::new(mark.clone(), fill(look))
            + PathElement::new(closed(mark.clone()), colour(look).stroke_width(2))
    }))?;
    Ok(())
}

fn bars<X, Y>(chart: &mut Drawable<X, Y>, drawing: &Drawing, series: &Drawn) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let floor = if drawing.y.scale == Scale::Log { drawing.y_range.0 } else { 0.0 };
    for point in &series.points {
        let (low, high) = if drawing.stack { point.spread.unwrap_or_default() } else { (floor, point.y) };
        let corners = [(point.x - series.half, low), (point.x + series.half, high)];
        if !series.look.original {
            chart.draw_series([Rectangle::new(corners, colour(series.look).mix(0.8).filled())])?;
        }
        chart.draw_series([Rectangle::new(corners, stroke(series.look))])?;
    }
    if !drawing.stack {
        whiskers(chart, series)?;
    }
    let tops = middles(drawing, series);
    points(chart, tops.into_iter(), Look { original: true, ..series.look }, 9)
}

/// Where the marks of bars and layers are: on the bar's end, or in the middle of a layer that has room for one.
fn middles(drawing: &Drawing, series: &Drawn) -> Vec<(f64, f64)> {
    let (low, high) = drawing.y_range;
    let every = if drawing.form == Form::Areas { series.points.len().div_ceil(8).max(1) } else { 1 };
    let some = series.points.iter().skip(every / 2).step_by(every);
    some.filter_map(|point| match point.spread {
        Some((from, to)) if drawing.stack => (to - from > (high - low) / 18.0).then_some((point.x, (from + to) / 2.0)),
        _ => Some((point.x, point.y)),
    })
    .collect()
}

fn areas<X, Y>(chart: &mut Drawable<X, Y>, drawing: &Drawing, series: &Drawn) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let edge = |point: &super::drawing::Point| point.spread.unwrap_or_default();
    let mut outline: Vec<(f64, f64)> = series.points.iter().map(|point| (point.x, edge(point).1)).collect();
    outline.extend(series.points.iter().rev().map(|point| (point.x, edge(point).0)));
    chart.draw_series([Polygon::new(outline, colour(series.look).mix(0.75).filled())])?;
    points(chart, middles(drawing, series).into_iter(), Look { original: true, ..series.look }, 9)
}

fn one_box<X, Y>(chart: &mut Drawable<X, Y>, x: f64, half: f64, quartiles: &Quartiles, look: Look) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let Quartiles { low, q1, median, q3, high, outliers, .. } = quartiles;
    chart.draw_series([PathElement::new(vec![(x, *low), (x, *high)], stroke(look))])?;
    let corners = [(x - half, *q1), (x + half, *q3)];
    let fill = if look.original { WHITE.filled() } else { light(look).filled() };
    chart.draw_series([Rectangle::new(corners, fill)])?;
    chart.draw_series([Rectangle::new(corners, stroke(look))])?;
    chart.draw_series([PathElement::new(vec![(x - half, *median), (x + half, *median)], BLACK.stroke_width(4))])?;
    chart.draw_series(outliers.iter().map(|y| Circle::new((x, *y), 2, colour(look).stroke_width(1))))?;
    points(chart, [(x, *median)].into_iter(), Look { original: true, ..look }, 9)
}

/// The names of the categories below the axis: upright where they are too long to stand side by side.
fn name_categories<X, Y>(plot: &Area, chart: &Drawable<X, Y>, drawing: &Drawing) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let (turned, bottom) = (turned(drawing), drawing.y_range.0);
    for (n, name) in drawing.categories.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(n as f64 + 0.5, bottom));
        let (origin_x, origin_y) = plot.get_base_pixel();
        let place = (x - origin_x, y - origin_y + 12);
        let style = if turned {
            font(BLACK).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Right, VPos::Center))
        } else {
            font(BLACK).pos(Pos::new(HPos::Center, VPos::Top))
        };
        plot.draw(&Text::new(cut(name), place, style))?;
    }
    Ok(())
}

fn turned(drawing: &Drawing) -> bool {
    let room = (WIDTH as i32 - 150) / drawing.categories.len().max(1) as i32;
    drawing.categories.iter().any(|name| cut(name).chars().count() as i32 * LETTER > room - 8)
}

/// Pixels below the axis.
fn foot(drawing: &Drawing) -> u32 {
    if drawing.categories.is_empty() {
        return 90;
    }
    let longest = drawing.categories.iter().map(|name| cut(name).chars().count()).max().unwrap_or(0);
    if turned(drawing) { 30 + longest as u32 * LETTER as u32 } else { 56 }
}

fn cut(name: &str) -> String {
    match name.chars().count() {
        n if n > LONGEST => name.chars().take(LONGEST - 1).chain(['…']).collect(),
        _ => name.to_string(),
    }
}

/// Where the marks of the legend stand: `x` and the number of the line.
fn legend_places(drawing: &Drawing) -> Vec<(i32, i32)> {
    let (mut x, mut line) = (40, 0);
    let mut places = Vec::new();
    for series in &drawing.series {
        let wide = 90 + series.title.chars().count() as i32 * LETTER;
        if x > 40 && x + wide > WIDTH as i32 {
            (x, line) = (40, line + 1);
        }
        places.push((x, line));
        x += wide;
    }
    places
}

/// Pieces of a short line in the series' dashes.
fn dashes((from, to): (i32, i32), look: Look) -> Vec<(i32, i32)> {
    let [dash, gap, ..] = look.dash() else {
        return vec![(from, to)];
    };
    let (dash, step) = (2 * *dash as i32, 2 * (dash + gap) as i32);
    (from..to).step_by(step as usize).map(|at| (at, (at + dash).min(to))).collect()
}

/// A number at an axis, without zeros behind its point.
fn tick(value: f64) -> String {
    let text = number(value);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

fn font(colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&colour)
}

fn colour(look: Look) -> RGBColor {
    let text = LIGHT[look.slot];
    let part = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("the colour has six digits");
    RGBColor(part(1), part(3), part(5))
}

/// A tint on white that nothing shines through.
fn light(look: Look) -> RGBColor {
    let RGBColor(r, g, b) = colour(look);
    let mix = |part: u8| ((u16::from(part) + 255) / 2) as u8;
    RGBColor(mix(r), mix(g), mix(b))
}

fn stroke(look: Look) -> ShapeStyle {
    colour(look).stroke_width(3)
}

/// Outline of the series' mark around a point, in pixels; circles have corners too few to see.
fn outline(look: Look, (x, y): (i32, i32), size: i32) -> Vec<(i32, i32)> {
    let round = |corners: usize, turn: f64, radius: fn(usize) -> f64| -> Vec<(i32, i32)> {
        let corner = |n: usize| {
            let angle = std::f64::consts::TAU * (n as f64 + turn) / corners as f64;
            let reach = radius(n) * f64::from(size);
            (x + (reach * angle.sin()).round() as i32, y - (reach * angle.cos()).round() as i32)
        };
        (0..corners).map(corner).collect()
    };
    // A cross and its relatives: far and near corners in turn.
    let arms = |corners: usize, turn: f64| round(corners, turn, |n| if n % 4 < 2 { 1.3 } else { 0.5 });
    match look.slot {
        0 => round(16, 0.0, |_| 1.0),
        1 => round(3, 0.0, |_| 1.35),
        2 => round(4, 0.5, |_| 1.3),
        3 => round(4, 0.0, |_| 1.35),
        4 => arms(16, -0.5),
        5 => round(10, 0.0, |n| if n % 2 == 0 { 1.45 } else { 0.6 }),
        6 => arms(12, -0.5),
        _ => arms(16, 1.5),
    }
}

/// Filled for ours, white for the original's.
fn fill(look: Look) -> ShapeStyle {
    if look.original { WHITE.filled() } else { colour(look).filled() }
}

fn closed(mut outline: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    outline.extend(outline.first().copied());
    outline
}
