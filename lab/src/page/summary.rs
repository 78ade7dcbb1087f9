//! The figures of a chart as a table: what a reader sees who has no charts, and what can be copied.
//!
//! Series of samples are summed up by their quartiles; so are lines of more points than [`MANY`]. All else stands as it is.

use super::drawing::title;
use super::figure::{Figure, Quartiles, number};
use super::{Cell, Chart, Column, Plot, Row, Samples, Series, Table};

/// More points than these are summed up.
const MANY: usize = 30;

/// The figures of a chart.
pub(super) fn figures(chart: &Chart) -> Table {
    let table = match &chart.plot {
        Plot::Lines(series) if distinct(series).len() <= MANY => by_x(chart, series),
        Plot::Lines(series) | Plot::Scatter(series) => {
            let rows = series.iter().map(|one| {
                let values: Vec<f64> = one.points.iter().map(|(_, figure)| figure.value).collect();
                summed_up(title(&one.name, one.origin), &values)
            });
            quartiles("series", rows.collect())
        }
        Plot::Jitter { categories, samples } | Plot::Boxes { categories, samples } => of_samples(categories, samples),
        Plot::Bars { categories, bars } => Table {
            corner: chart.x.label.clone(),
            columns: bars.iter().map(|one| column(title(&one.name, one.origin))).collect(),
            rows: rows(categories, |n| {
                bars.iter().map(|one| Cell::figure(one.values.get(n).copied().flatten())).collect()
            }),
            ..Table::default()
        },
        Plot::StackedBars { categories, layers } => Table {
            corner: chart.x.label.clone(),
            columns: layers.iter().map(|layer| column(layer.name.clone())).collect(),
            rows: rows(categories, |n| {
                layers.iter().map(|layer| Cell::figure(layer.values.get(n).map(|value| (*value).into()))).collect()
            }),
            ..Table::default()
        },
        Plot::StackedAreas { layers, .. } => {
            quartiles("layer", layers.iter().map(|layer| summed_up(layer.name.clone(), &layer.values)).collect())
        }
    };
    Table { caption: chart.y.title(), ..table }
}

fn rows(categories: &[String], cells: impl Fn(usize) -> Vec<Cell>) -> Vec<Row> {
    categories.iter().enumerate().map(|(n, head)| Row { head: head.clone(), cells: cells(n) }).collect()
}

fn column(head: String) -> Column {
    Column { head, unit: String::new() }
}

/// All `x` that any series has, in ascending order.
fn distinct(series: &[Series]) -> Vec<f64> {
    let mut all: Vec<f64> = series.iter().flat_map(|one| one.points.iter().map(|(x, _)| *x)).collect();
    all.retain(|x| x.is_finite());
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn by_x(chart: &Chart, series: &[Series]) -> Table {
    let cell = |one: &Series, at: f64| Cell::figure(one.points.iter().find(|(x, _)| *x == at).map(|(_, y)| *y));
    let row = |at: f64| Row { head: number(at), cells: series.iter().map(|one| cell(one, at)).collect() };
    Table {
        corner: chart.x.title(),
        columns: series.iter().map(|one| column(title(&one.name, one.origin))).collect(),
        rows: distinct(series).into_iter().map(row).collect(),
        ..Table::default()
    }
}

fn of_samples(categories: &[String], samples: &[Samples]) -> Table {
    let mut rows = Vec::new();
    for (n, category) in categories.iter().enumerate() {
        for one in samples {
            let head = if categories.len() > 1 {
                format!("{category}, {}", title(&one.name, one.origin))
            } else {
                title(&one.name, one.origin)
            };
            rows.push(summed_up(head, one.values.get(n).map_or(&[], Vec::as_slice)));
        }
    }
    quartiles("samples", rows)
}

fn quartiles(corner: &str, rows: Vec<Row>) -> Table {
    let columns = ["median", "quarter below", "quarter above", "smallest", "largest", "n"];
    Table { corner: corner.into(), columns: columns.map(|head| column(head.into())).into(), rows, ..Table::default() }
}

fn summed_up(head: String, values: &[f64]) -> Row {
    let Some(q) = Quartiles::of(values) else {
        return Row { head, cells: vec![Cell::Empty; 6] };
    };
    let ends = Figure::median_of(values).unwrap_or_default();
    let smallest = ends.low.unwrap_or(ends.value);
    let largest = ends.high.unwrap_or(ends.value);
    let mut cells: Vec<Cell> = [q.median, q.q1, q.q3, smallest, largest].map(|v| Cell::Figure(v.into())).into();
    cells.push(Cell::Text(q.n.to_string()));
    Row { head, cells }
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;

    fn chart(plot: Plot) -> Chart {
        Chart::new("c", Axis::new("memory", "GB"), Axis::new("throughput", "tps"), plot)
    }

    #[test]
    fn few_points_stand_as_they_are() {
        let series = vec![
            Series::new("a", [(1.0, 5.0), (2.0, 6.0)]),
            Series::new("a", [(2.0, 7.0), (f64::NAN, 1.0)]).original(),
        ];
        let table = figures(&chart(Plot::Lines(series)));
        assert_eq!((table.corner.as_str(), table.caption.as_str()), ("memory, GB", "throughput, tps"));
        assert_eq!(table.columns[1].head, "a (original)");
        assert_eq!(table.rows.len(), 2);
        assert!(matches!(table.rows[0].cells[..], [Cell::Figure(_), Cell::Empty]));
    }

    #[test]
    fn many_are_summed_up() {
        let points: Vec<(f64, f64)> = (0..101).map(|n| (f64::from(n), f64::from(n))).collect();
        let table = figures(&chart(Plot::Lines(vec![Series::new("a", points), Series::new("b", [(0.0, f64::NAN)])])));
        let shown: Vec<String> = table.rows[0]
            .cells
            .iter()
            .map(|cell| match cell {
                Cell::Figure(figure) => figure.to_string(),
                Cell::Text(text) => text.clone(),
                _ => "-".into(),
            })
            .collect();
        assert_eq!(shown, ["50.0", "25.0", "75.0", "0", "100", "101"]);
        assert!(table.rows[1].cells.iter().all(|cell| matches!(cell, Cell::Empty)));
    }
}
