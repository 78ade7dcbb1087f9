//! Ranks whose probability falls with a power: P(rank) ~ 1/(rank+1)^shape, the shape below 1.
//!
//! The quantile function is the approximation of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (1994), which
//! LinkBench uses: exact for the first two ranks, a power function fitted between them and the last.
//!
//! Rejected: drawing by rejection, which is exact. The published results were made with the approximation.

use rand::RngExt;
use rand::rngs::SmallRng;

/// Summed one by one; behind them the sum is an integral with two corrections, exact to ten digits.
const SUMMED: u64 = 10_000;

/// A Zipf distribution of the ranks below `n`.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    n: u64,
    shape: f64,
    /// The sum of 1/k^shape over all ranks.
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// The distribution of `n` ranks, at least three; the shape between 0 and 1.
    pub fn new(n: u64, shape: f64) -> Zipf {
        debug_assert!(n > 2 && shape > 0.0 && shape < 1.0);
        let zeta = zeta(n, shape);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - shape)) / (1.0 - zeta_of_two(shape) / zeta);
        Zipf { n, shape, zeta, eta }
    }

    /// Draws a rank; 0 is the most likely one.
    pub fn draw(&self, rng: &mut SmallRng) -> u64 {
        self.quantile(rng.random())
    }

    fn quantile(&self, p: f64) -> u64 {
        let mass = p * self.zeta;
        if mass < 1.0 {
            return 0;
        }
        if mass < zeta_of_two(self.shape) {
            return 1;
        }
        let part = (self.eta * p - self.eta + 1.0).powf(1.0 / (1.0 - self.shape));
        ((self.n as f64 * part) as u64).min(self.n - 1)
    }
}

fn zeta_of_two(shape: f64) -> f64 {
    1.0 + 0.5f64.powf(shape)
}

/// The sum of 1/k^shape for k from 1 to n: the first terms themselves, the others by Euler and Maclaurin.
fn zeta(n: u64, shape: f64) -> f64 {
    let m = n.min(SUMMED);
    let sum: f64 = (1..=m).map(|k| (k as f64).powf(-shape)).sum();
    if m == n {
        return sum;
    }
    let (a, b) = (m as f64, n as f64);
    let integral = (b.powf(1.0 - shape) - a.powf(1.0 - shape)) / (1.0 - shape);
    let ends = (b.powf(-shape) - a.powf(-shape)) / 2.0;
    let slopes = shape * (a.powf(-shape - 1.0) - b.powf(-shape - 1.0)) / 12.0;
    sum + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn sums() {
        for shape in [0.8, 0.741, 0.625, 0.606] {
            let n = 1_000_000;
            let one_by_one: f64 = (1..=n).map(|k| (k as f64).powf(-shape)).sum();
            assert!((zeta(n, shape) / one_by_one - 1.0).abs() < 1e-9, "{shape}");
        }
    }

    /// How much of all draws falls to the hottest ranks, beside the sums of the definition.
    #[test]
    fn shares_of_the_hottest() {
        const DRAWS: usize = 400_000;
        let n = 1_000_000;
        for shape in [0.8, 0.741, 0.625, 0.606] {
            let zipf = Zipf::new(n, shape);
            let mut rng = SmallRng::seed_from_u64(1);
            let mut ranks: Vec<u64> = (0..DRAWS).map(|_| zipf.draw(&mut rng)).collect();
            ranks.sort_unstable();
            assert!(*ranks.last().unwrap() < n);
            for top in [1, 2, 100, 10_000, 100_000, 500_000] {
                let drawn = ranks.partition_point(|&rank| rank < top) as f64 / DRAWS as f64;
                let due = zeta(top, shape) / zeta(n, shape);
                // Three deviations of the draws, and what the approximation may differ between the ends: it is meant for shapes near 1.
                let bound = 3.0 * (due * (1.0 - due) / DRAWS as f64).sqrt() + if top > 2 { 0.02 } else { 0.0 };
                assert!((drawn - due).abs() < bound, "{shape}: the first {top} have {drawn}, not {due}");
            }
        }
    }

    #[test]
    fn quantiles_rise_and_stay_below_n() {
        let zipf = Zipf::new(2000, 0.8);
        let ranks: Vec<u64> = (0..=1000).map(|p| zipf.quantile(f64::from(p) / 1000.0)).collect();
        assert!(ranks.is_sorted());
        assert_eq!((ranks[0], ranks[1000]), (0, 1999));
    }
}
