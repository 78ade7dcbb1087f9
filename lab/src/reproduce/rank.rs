//! Whether a difference is more than chance: two tests on ranks, exact.
//!
//! [`mann_whitney`] compares two groups of independent measurements, [`signed_rank`] (Wilcoxon) the differences of pairs. Both ask
//! how many of all ways to deal the ranks, each equally likely if there were no difference, lie at least as far from the middle as
//! what was found. Equal values share the mean of their ranks. Nothing is assumed of the distribution.
//!
//! Rejected: intervals of a bootstrap (with five rounds they are too narrow), a t-test (throughput has a long tail downwards).

/// The chance of a rank sum as far from the middle as this one, if both groups were drawn from the same; 1 for an empty group.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let ranks = doubled_ranks(&all);
    let found: usize = ranks[..a.len()].iter().sum();
    // Ways to choose so many of the ranks with this sum.
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0f64; most + 1]; a.len() + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for chosen in (0..a.len()).rev() {
            for sum in (0..=most - rank).rev() {
                let add = ways[chosen][sum];
                ways[chosen + 1][sum + rank] += add;
            }
        }
    }
    tail(&ways[a.len()], found, most as f64 * a.len() as f64 / all.len() as f64)
}

/// The chance of differences as far to one side as these, if each could as well have the other sign. Zeros are left out; 1 if there
/// is nothing else.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let differences: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if differences.is_empty() {
        return 1.0;
    }
    let ranks = doubled_ranks(&differences.iter().map(|d| d.abs()).collect::<Vec<_>>());
    let found: usize = ranks.iter().zip(&differences).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    let most: usize = ranks.iter().sum();
    let mut ways = vec![0.0f64; most + 1];
    ways[0] = 1.0;
    for &rank in &ranks {
        for sum in (rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    tail(&ways, found, most as f64 / 2.0)
}

/// The share of ways whose sum is at least as far from the middle.
fn tail(ways: &[f64], found: usize, middle: f64) -> f64 {
    let far = (found as f64 - middle).abs() - 1e-9;
    let beyond: f64 =
        ways.iter().enumerate().filter(|(sum, _)| (*sum as f64 - middle).abs() >= far).map(|(_, n)| n).sum();
    beyond / ways.iter().sum::<f64>()
}

/// Twice the rank of each value, from 2 on: whole numbers also where equal values share a mean.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    values
        .iter()
        .map(|value| {
            let below = values.iter().filter(|other| *other < value).count();
            let equal = values.iter().filter(|other| *other == value).count();
            // Ranks below + 1 to below + equal.
            2 * below + equal + 1
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-4, "{a}, not {b}");
    }

    #[test]
    fn known_chances_of_two_groups() {
        // 2 of 252 ways, 2 of 70, 2 of 20.
        near(mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]), 2.0 / 252.0);
        near(mann_whitney(&[5.0, 6.0, 7.0, 8.0], &[1.0, 2.0, 3.0, 4.0]), 2.0 / 70.0);
        near(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1);
        // U = 4 of 25 with five and five.
        near(mann_whitney(&[1.0, 2.0, 3.0, 6.0, 8.0], &[4.0, 5.0, 7.0, 9.0, 10.0]), 0.1508);
        near(mann_whitney(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
        near(mann_whitney(&[], &[1.0]), 1.0);
    }

    #[test]
    fn known_chances_of_pairs() {
        near(signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]), 2.0 / 32.0);
        near(signed_rank(&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0]), 2.0 / 256.0);
        // The sum of the negative ranks is 1 of 6.
        near(signed_rank(&[-0.1, 2.0, 3.0, 4.0, 5.0, 6.0]), 4.0 / 64.0);
        near(signed_rank(&[0.0, 0.0]), 1.0);
        near(signed_rank(&[1.0, -1.0]), 1.0);
    }

    #[test]
    fn chance_is_called_chance() {
        // Of groups from one source about one in twenty is below 0.05, and not more.
        use rand::rngs::SmallRng;
        use rand::{RngExt, SeedableRng};
        let mut rng = SmallRng::seed_from_u64(1);
        let mut draw = |n: usize| (0..n).map(|_| rng.random::<f64>()).collect::<Vec<_>>();
        let below = (0..2000).filter(|_| mann_whitney(&draw(6), &draw(6)) < 0.05).count();
        assert!((40..=110).contains(&below), "{below} of 2000");
    }
}
