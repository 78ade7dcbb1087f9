//! Numbers with their spread: a median with what lay around it.
//!
//! Quartiles are interpolated between neighbours (type 7 of Hyndman and Fan, the default of most statistics programs).
//! Whiskers reach to the farthest sample within one and a half times the box's height from the box; what lies beyond is drawn by itself.

use crate::stats::median;
use serde::Serialize;
use std::fmt;

/// A number, and if it stands for several measurements, their spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// The number itself: the median where there are several.
    pub value: f64,
    /// The smallest of them; none for a single number.
    pub low: Option<f64>,
    /// The largest of them; none for a single number.
    pub high: Option<f64>,
    /// How many there were.
    pub n: usize,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Figure {
        Figure { value, low: None, high: None, n: 1 }
    }
}

impl Figure {
    /// The median of these with the smallest and the largest; what is no number is left out. None if nothing is left.
    pub fn median_of(values: &[f64]) -> Option<Figure> {
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        let spread = values.len() > 1;
        Some(Figure {
            value: median(&values),
            low: spread.then_some(low),
            high: spread.then_some(high),
            n: values.len(),
        })
    }

    /// Whether it can be shown.
    pub fn is_finite(&self) -> bool {
        self.value.is_finite()
    }

    /// The spread, where both ends are numbers.
    pub fn spread(&self) -> Option<(f64, f64)> {
        Some((self.low.filter(|low| low.is_finite())?, self.high.filter(|high| high.is_finite())?))
    }
}

/// As in a table: `412 (398 to 420, n 3)`.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&number(self.value))?;
        match self.spread() {
            Some((low, high)) => write!(f, " ({} to {}, n {})", number(low), number(high), self.n),
            None => Ok(()),
        }
    }
}

/// What a box plot shows of some samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quartiles {
    /// The lower whisker's end.
    pub low: f64,
    /// A quarter of the samples is no larger.
    pub q1: f64,
    /// Half of them is.
    pub median: f64,
    /// Three quarters are.
    pub q3: f64,
    /// The upper whisker's end.
    pub high: f64,
    /// What lies beyond the whiskers.
    pub outliers: Vec<f64>,
    /// How many samples there are.
    pub n: usize,
}

impl Quartiles {
    /// Of these; what is no number is left out. None if nothing is left.
    pub fn of(values: &[f64]) -> Option<Quartiles> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (q1, q3) = (quantile(&sorted, 0.25)?, quantile(&sorted, 0.75)?);
        let reach = 1.5 * (q3 - q1);
        let (inside, outliers): (Vec<f64>, Vec<f64>) =
            sorted.iter().partition(|value| (q1 - reach..=q3 + reach).contains(*value));
        Some(Quartiles {
            low: *inside.first()?,
            q1,
            median: quantile(&sorted, 0.5)?,
            q3,
            high: *inside.last()?,
            outliers,
            n: sorted.len(),
        })
    }
}

/// The value below which this share of the sorted values lies, interpolated; none of nothing.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

/// A number of rounds.
pub fn rounds(number: u32) -> String {
    match number {
        1 => "one round".to_owned(),
        _ => format!("{number} rounds"),
    }
}

/// Three significant digits where they matter, all digits of what is larger.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        0.0 => "0".into(),
        v if v >= 0.0001 => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').into()
        }
        _ => format!("{value:.1e}"),
    }
}

/// A ratio: two decimals, fewer of a large one.
pub(super) fn ratio(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_with_their_spread() {
        assert_eq!(Figure::median_of(&[]), None);
        assert_eq!(Figure::median_of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(Figure::median_of(&[4.0]).unwrap().to_string(), "4.00");
        assert_eq!(Figure::median_of(&[3.0, f64::NAN, 1.0, 200.0]).unwrap().to_string(), "3.00 (1.00 to 200, n 3)");
    }

    #[test]
    fn quartiles_by_hand() {
        assert_eq!(Quartiles::of(&[f64::NAN]), None);
        let one = Quartiles::of(&[7.0]).unwrap();
        assert_eq!((one.low, one.q1, one.median, one.q3, one.high, one.n), (7.0, 7.0, 7.0, 7.0, 7.0, 1));
        let q = Quartiles::of(&[4.0, 1.0, 3.0, 2.0, 100.0]).unwrap();
        assert_eq!((q.q1, q.median, q.q3), (2.0, 3.0, 4.0));
        assert_eq!((q.low, q.high, q.outliers), (1.0, 4.0, vec![100.0]));
        let zeros = Quartiles::of(&[0.0; 9]).unwrap();
        assert_eq!((zeros.low, zeros.median, zeros.high, zeros.outliers.len()), (0.0, 0.0, 0.0, 0));
    }

    #[test]
    fn ratios() {
        assert_eq!([0.001, 0.5, 2.0, 14.81, 413.34].map(ratio), ["0.00", "0.50", "2.00", "14.8", "413"]);
    }

    #[test]
    fn numbers() {
        let shown = [12345.6, 99.96, 12.34, 9.996, 0.126, 0.0123, 0.00001, 0.0, -3.0].map(number);
        assert_eq!(shown, ["12346", "100", "12.3", "10.0", "0.13", "0.0123", "1.0e-5", "0", "-3.00"]);
    }
}
