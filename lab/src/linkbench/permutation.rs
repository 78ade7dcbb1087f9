//! A permutation of the numbers below n that is computed in both directions without a table.
//!
//! The numbers are divided into classes by their remainder, 1,024 of them where there are enough numbers; within its class each
//! number moves round by a random distance of that class. So the thousand hottest ranks are strewn over all ids, and an id's rank
//! is found as fast as a rank's id.
//!
//! Rejected: a Feistel network, which scatters every rank. The published driver turns classes, too, and how much heat neighbours
//! share decides how well a cache of blocks serves them.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const CLASSES_MAX: u64 = 1024;

/// A permutation of the numbers below `n`.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    /// How far each class turns, less than its size.
    turns: Vec<u64>,
}

impl Permutation {
    /// The permutation of this seed. Few numbers have as many classes as a class has numbers.
    ///
    /// # Panics
    /// When there are no numbers.
    pub fn new(n: u64, seed: u64) -> Permutation {
        let classes = n.isqrt().clamp(1, CLASSES_MAX);
        let mut rng = SmallRng::seed_from_u64(seed);
        let turns = (0..classes).map(|_| rng.random_range(0..n / classes)).collect();
        Permutation { n, turns }
    }

    /// Where a number goes.
    pub fn forward(&self, number: u64) -> u64 {
        self.turn(number, |turn, _| turn)
    }

    /// Which number goes to this one.
    pub fn back(&self, number: u64) -> u64 {
        self.turn(number, |turn, size| size - turn)
    }

    fn turn(&self, number: u64, by: impl Fn(u64, u64) -> u64) -> u64 {
        debug_assert!(number < self.n);
        let classes = self.turns.len() as u64;
        let class = number % classes;
        let size = self.n / classes + u64::from(class < self.n % classes);
        (number / classes + by(self.turns[class as usize], size)) % size * classes + class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_met_once_and_found_again() {
        for n in [1, 2, 3, 10, 1000, 1023, 1024, 1025, 65_537, 1_048_576, 1_100_003] {
            let permutation = Permutation::new(n, 7);
            let mut met = vec![false; n as usize];
            for number in 0..n {
                let to = permutation.forward(number);
                assert!(!std::mem::replace(&mut met[to as usize], true), "{n}: {to} twice");
                assert_eq!(permutation.back(to), number, "{n}");
            }
        }
    }

    #[test]
    fn hot_ranks_are_scattered() {
        let n = 4_000_000;
        let permutation = Permutation::new(n, 7);
        // Tenths of all ids that the first thousand ranks fall into.
        let mut tenths = [0; 10];
        (0..1000).for_each(|rank| tenths[(permutation.forward(rank) * 10 / n) as usize] += 1);
        assert!(tenths.iter().all(|count| (60..150).contains(count)), "{tenths:?}");
    }

    #[test]
    fn the_seed_decides() {
        let (one, same, other) = (Permutation::new(5000, 1), Permutation::new(5000, 1), Permutation::new(5000, 2));
        let all = |p: &Permutation| (0..5000).map(|number| p.forward(number)).collect::<Vec<_>>();
        assert_eq!(all(&one), all(&same));
        assert_ne!(all(&one), all(&other));
    }
}
