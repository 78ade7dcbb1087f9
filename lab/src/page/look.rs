//! Colour, mark and dash of each series, by its name.
//!
//! Names take their looks in the order in which they first appear on the page, so that a series looks the same in every chart. The
//! colours are those of Okabe and Ito, told apart by nearly everybody; lighter relatives of them serve on a dark ground. Every kind
//! of chart also draws the series' mark, so that no two of the first eight need colours to be told apart. A ninth begins anew.
//!
//! Rejected: hatched areas. They flicker at the width of a bar on a phone, and SVG viewers differ on them.

use super::{Origin, Page, Part, Plot};
use serde::Serialize;

/// How a series looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Look {
    /// Its place in the lists below.
    pub slot: usize,
    /// Whether it is drawn hollow and dotted.
    pub original: bool,
}

/// Colours on a light ground.
pub(super) const LIGHT: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#b0508a", "#b87d00", "#3c9bd6", "#444444", "#8a8000"];
/// Colours on a dark ground.
pub(super) const DARK: [&str; 8] =
    ["#56b4e9", "#ff8a4c", "#2ccb9d", "#e39bc4", "#f0c45a", "#a3d8f7", "#dddddd", "#f0e442"];
/// Marks, by their names in d3.
pub(super) const MARKS: [&str; 8] = ["circle", "triangle", "square", "diamond2", "cross", "star", "wye", "times"];
/// Lengths of dashes and gaps; an unbroken line if empty.
pub(super) const DASHES: [&[u32]; 8] =
    [&[], &[7, 3], &[3, 3], &[9, 3, 2, 3], &[12, 4], &[5, 2, 1, 2], &[2, 2], &[10, 2, 2, 2]];
/// The same of what the original published.
pub(super) const DOTTED: &[u32] = &[1, 4];

impl Look {
    /// Dashes of its line.
    pub fn dash(self) -> &'static [u32] {
        if self.original { DOTTED } else { DASHES[self.slot] }
    }
}

/// The names of a page's series, in order.
pub(super) struct Looks(Vec<String>);

impl Looks {
    /// All of the page.
    pub fn of(page: &Page) -> Looks {
        let mut looks = Looks(Vec::new());
        for section in &page.sections {
            for part in &section.parts {
                if let Part::Chart(chart) = part {
                    for name in names(&chart.plot) {
                        if !looks.0.contains(name) {
                            looks.0.push(name.clone());
                        }
                    }
                }
            }
        }
        looks
    }

    /// How a series looks.
    pub fn look(&self, name: &str, origin: Origin) -> Look {
        let at = self.0.iter().position(|known| known == name).unwrap_or(0);
        Look { slot: at % LIGHT.len(), original: origin == Origin::Original }
    }
}

fn names(plot: &Plot) -> Vec<&String> {
    match plot {
        Plot::Lines(series) | Plot::Scatter(series) => series.iter().map(|s| &s.name).collect(),
        Plot::Jitter { samples, .. } | Plot::Boxes { samples, .. } => samples.iter().map(|s| &s.name).collect(),
        Plot::Bars { bars, .. } => bars.iter().map(|s| &s.name).collect(),
        Plot::StackedBars { layers, .. } | Plot::StackedAreas { layers, .. } => {
            layers.iter().map(|s| &s.name).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Chart, Section, Series};
    use super::*;

    #[test]
    fn a_name_looks_the_same_everywhere() {
        let mut page = Page::new("p");
        let mut section = Section::new("s");
        for names in [["InnoDB", "Strata"], ["Strata", "RocksDB"]] {
            let series = names.map(|name| Series::new(name, [(1.0, 1.0)])).into();
            section.chart(Chart::new("c", Axis::new("x", ""), Axis::new("y", ""), Plot::Lines(series)));
        }
        page.sections.push(section);
        let looks = Looks::of(&page);
        let slot = |name| looks.look(name, Origin::Ours).slot;
        assert_eq!((slot("InnoDB"), slot("Strata"), slot("RocksDB")), (0, 1, 2));
        assert_eq!(looks.look("Strata", Origin::Original), Look { slot: 1, original: true });
    }
}
