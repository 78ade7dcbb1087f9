//! Random input: NURand, last names and strings of clauses 2.1.6 and 4.3.2.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The constant for last names while loading.
const C_LAST_LOAD: u32 = 157;
/// While running: clause 2.1.6.1 wants the difference to the former to be
/// between 65 and 119, and neither 96 nor 112.
const C_LAST_RUN: u32 = 244;
const C_CUSTOMER: u32 = 259;
const C_ITEM: u32 = 7911;

/// A source of random input.
#[derive(Debug)]
pub struct Source {
    rng: SmallRng,
    c_last: u32,
}

impl Source {
    /// For the loader.
    pub fn for_load(seed: u64) -> Source {
        Source { rng: SmallRng::seed_from_u64(seed), c_last: C_LAST_LOAD }
    }

    /// For a worker of a run.
    pub fn for_run(seed: u64) -> Source {
        Source { rng: SmallRng::seed_from_u64(seed), c_last: C_LAST_RUN }
    }

    /// Uniform, both ends included.
    pub fn uniform(&mut self, low: u32, high: u32) -> u32 {
        self.rng.random_range(low..=high)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.rng.random_range(0..100) < chance
    }

    /// A customer of a district.
    pub fn customer(&mut self, customers: u32) -> u32 {
        self.nurand(1023, 1, customers, C_CUSTOMER)
    }

    /// An item.
    pub fn item(&mut self, items: u32) -> u32 {
        self.nurand(8191, 1, items, C_ITEM)
    }

    /// A last name of the first so many.
    pub fn last_name(&mut self, names: u32) -> String {
        let c = self.c_last;
        last_name(self.nurand(255, 0, names - 1, c))
    }

    fn nurand(&mut self, a: u32, low: u32, high: u32, c: u32) -> u32 {
        nurand(self.rng.random_range(0..=a), self.rng.random_range(low..=high), low, high, c)
    }

    /// Letters and digits, the length between these.
    pub fn text(&mut self, low: u32, high: u32) -> String {
        let length = self.uniform(low, high);
        (0..length).map(|_| char::from(ALPHANUMERIC[self.rng.random_range(0..62)])).collect()
    }

    /// So many digits.
    pub fn digits(&mut self, length: u32) -> String {
        (0..length).map(|_| char::from(b'0' + self.rng.random_range(0..10u8))).collect()
    }

    /// Four random digits and 11111.
    pub fn zip(&mut self) -> String {
        self.digits(4) + "11111"
    }

    /// Item and stock data: one in ten says somewhere that it is an original.
    pub fn item_data(&mut self) -> String {
        let mut data = self.text(26, 50);
        if self.percent(10) {
            let at = self.uniform(0, data.len() as u32 - 8) as usize;
            data.replace_range(at..at + 8, "ORIGINAL");
        }
        data
    }

    /// The numbers 1 to n in random order.
    pub fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=n).collect();
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, self.rng.random_range(0..=i));
        }
        numbers
    }
}

/// NURand of clause 2.1.6, from its two uniform draws.
fn nurand(of_a: u32, of_range: u32, low: u32, high: u32, c: u32) -> u32 {
    ((of_a | of_range) + c) % (high - low + 1) + low
}

/// The last name of a number from 0 to 999: a syllable for each digit.
pub fn last_name(number: u32) -> String {
    [number / 100 % 10, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn nurand_formula() {
        assert_eq!(nurand(0b1010, 0b0101, 1, 3000, 259), 275);
        assert_eq!(nurand(255, 999, 0, 999, 157), (1023 + 157) % 1000);
    }

    #[test]
    fn nurand_stays_in_range_and_is_not_uniform() {
        let mut source = Source::for_run(7);
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[source.customer(3000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        let (low, high) = counts[1..].iter().fold((u32::MAX, 0), |(l, h), &c| (l.min(c), h.max(c)));
        // Uniform would give about 100 each; or-ing bits makes some far more frequent.
        assert!(high > 400 && low < 40, "{low} {high}");
        assert!((0..10_000).all(|_| (1..=100_000).contains(&source.item(100_000))));
        assert!((0..1000).all(|_| source.last_name(300).len() >= 9));
    }

    #[test]
    fn the_constants_fit_together() {
        let difference = C_LAST_RUN.abs_diff(C_LAST_LOAD);
        assert!((65..=119).contains(&difference) && difference != 96 && difference != 112);
    }

    #[test]
    fn one_in_ten_is_an_original() {
        let mut source = Source::for_load(1);
        let originals = (0..10_000).filter(|_| source.item_data().contains("ORIGINAL")).count();
        assert!((850..1150).contains(&originals), "{originals}");
        assert!((0..1000).all(|_| (26..=50).contains(&source.item_data().len())));
    }

    #[test]
    fn permutations_are_complete() {
        let mut numbers = Source::for_load(1).permutation(3000);
        assert_ne!(numbers[..10], (1..=10).collect::<Vec<_>>()[..]);
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=3000).collect::<Vec<_>>());
    }
}
