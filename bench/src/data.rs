//! Rows and the choice among them: pure functions of a seed, the same for every store.
//!
//! A key has 16 bytes: four of an index number, as Strata's row layer writes it, a big-endian number, and four bytes of
//! a hash. Row `n` of the loaded data has the number `4n`, a row inserted later `4n + 2`; odd numbers never exist, so
//! absent keys lie among present ones and only a filter or a look tells them apart.
//!
//! A value has 100 to 200 bytes, half of it noise and half text that repeats, so that it compresses about twofold. It
//! begins with the row's number: whoever reads it can tell whether it is the right one.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// A key.
pub type Key = [u8; 16];

/// The number of the index that all keys belong to.
pub const INDEX: u32 = 16;

/// Longest value in bytes.
pub const VALUE_MAX: usize = 200;
const VALUE_MIN: usize = 100;

/// Mean bytes of a row, key and value.
pub const ROW_BYTES: u64 = 16 + (VALUE_MIN as u64 + VALUE_MAX as u64) / 2;

/// Rounds of a good integer hash (the finalizer of splitmix64).
fn mix(mut n: u64) -> u64 {
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn key_of(number: u64) -> Key {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&INDEX.to_be_bytes());
    key[4..12].copy_from_slice(&number.to_be_bytes());
    key[12..].copy_from_slice(&(mix(number) as u32).to_be_bytes());
    key
}

/// Key of a loaded row.
pub fn loaded(n: u64) -> Key {
    key_of(4 * n)
}

/// Key of a row inserted later.
pub fn inserted(n: u64) -> Key {
    key_of(4 * n + 2)
}

/// A key that never exists, next to loaded row `n`.
pub fn absent(n: u64) -> Key {
    key_of(4 * n + 1)
}

/// The number in a key or at the beginning of a value.
pub fn stamp_of_key(key: &Key) -> u64 {
    u64::from_be_bytes(key[4..12].try_into().expect("eight bytes"))
}

/// The stamp a value begins with; 0 if it is too short to have one.
pub fn stamp_of_value(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Makes values.
pub struct Values {
    pool: Vec<u8>,
    rng: SmallRng,
    value: [u8; VALUE_MAX],
}

impl Values {
    /// The same seed makes the same values.
    pub fn new(seed: u64) -> Values {
        // Every 16 bytes of noise are followed by 16 of a few words: half of any part of the pool repeats.
        const WORDS: [&[u8; 16]; 4] =
            [b"NOT DELIVERED YE", b"customer/region/", b"2024-01-01 00:00", b"0000000000000000"];
        let mut noise = SmallRng::seed_from_u64(0x5eed);
        let mut pool = Vec::with_capacity(1 << 20);
        while pool.len() < 1 << 20 {
            let mut bytes = [0; 16];
            noise.fill_bytes(&mut bytes);
            pool.extend_from_slice(&bytes);
            pool.extend_from_slice(WORDS[noise.random_range(0..WORDS.len())]);
        }
        Values { pool, rng: SmallRng::seed_from_u64(seed ^ 0x7a1e), value: [0; VALUE_MAX] }
    }

    /// A value for `key`.
    pub fn next(&mut self, key: &Key) -> &[u8] {
        let bytes = self.rng.random_range(VALUE_MIN..=VALUE_MAX);
        let from = self.rng.random_range(0..self.pool.len() - bytes);
        self.value[..bytes].copy_from_slice(&self.pool[from..from + bytes]);
        self.value[..8].copy_from_slice(&key[4..12]);
        &self.value[..bytes]
    }
}

/// A permutation of `0..count`: visits every row once in an order that looks random.
#[derive(Clone, Copy)]
pub struct Shuffle {
    count: u64,
    step: u64,
}

impl Shuffle {
    /// Steps around the circle of `count` by a number that has no divisor in common with it.
    pub fn new(count: u64) -> Shuffle {
        let gcd = |mut a: u64, mut b: u64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        // Near the golden section: no two nearby positions are near each other for long.
        let mut step = ((count as f64 * 0.618_033_988_75) as u64).max(1);
        while gcd(step, count) != 1 {
            step += 1;
        }
        Shuffle { count, step }
    }

    /// Where position `at` lies.
    pub fn at(&self, at: u64) -> u64 {
        (u128::from(at % self.count) * u128::from(self.step) % u128::from(self.count)) as u64
    }
}

/// Chooses rows of `0..rows`.
pub enum Pick {
    /// Each as likely as any other.
    Uniform(SmallRng, u64),
    /// A few often: Zipf's law with exponent 0.99, hot rows scattered over the key space. Drawn ahead, as the drawing
    /// costs as much as a cached read.
    Zipf(Vec<u32>, usize),
}

impl Pick {
    /// Uniform choice.
    pub fn uniform(seed: u64, rows: u64) -> Pick {
        Pick::Uniform(SmallRng::seed_from_u64(mix(seed)), rows)
    }

    /// Zipf's.
    pub fn zipf(seed: u64, rows: u64) -> Pick {
        const DRAWN: usize = 1 << 20;
        let mut rng = SmallRng::seed_from_u64(mix(seed));
        let law = Zipf::new(rows as f64, 0.99).expect("a law of at least one row");
        let place = Shuffle::new(rows);
        Pick::Zipf((0..DRAWN).map(|_| place.at(law.sample(&mut rng) as u64 - 1) as u32).collect(), 0)
    }

    /// The next choice.
    #[inline]
    pub fn next(&mut self) -> u64 {
        match self {
            Pick::Uniform(rng, rows) => rng.random_range(0..*rows),
            Pick::Zipf(drawn, at) => {
                *at = (*at + 1) % drawn.len();
                u64::from(drawn[*at])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_the_order_of_their_rows() {
        for n in [0, 1, 255, 256, 1 << 33] {
            let keys = [loaded(n), absent(n), inserted(n), loaded(n + 1)];
            assert!(keys.is_sorted() && keys[0] < keys[1], "{n}");
        }
        assert_eq!(stamp_of_key(&loaded(7)), 28);
        assert_eq!(stamp_of_key(&inserted(7)), 30);
    }

    #[test]
    fn values_bear_their_row_and_vary_in_length() {
        let mut values = Values::new(3);
        let (mut shortest, mut longest, mut sum) = (usize::MAX, 0, 0);
        for n in 0..10_000 {
            let key = loaded(n);
            let value = values.next(&key);
            assert_eq!(stamp_of_value(value), stamp_of_key(&key));
            (shortest, longest, sum) = (shortest.min(value.len()), longest.max(value.len()), sum + value.len());
        }
        assert_eq!((shortest, longest), (VALUE_MIN, VALUE_MAX));
        assert!((148..=152).contains(&(sum / 10_000)));
        assert_eq!(Values::new(3).next(&loaded(1)), Values::new(3).next(&loaded(1)));
        assert_eq!(stamp_of_value(b"short"), 0);
    }

    #[test]
    fn half_of_a_value_compresses() {
        let mut values = Values::new(3);
        let block: Vec<u8> = (0..100).flat_map(|n| values.next(&loaded(n)).to_vec()).collect();
        // A crude measure: pairs of eight bytes that occurred before.
        let mut seen = std::collections::HashSet::new();
        let repeated = block.windows(8).filter(|w| !seen.insert(w.to_vec())).count();
        let share = repeated as f64 / block.len() as f64;
        assert!((0.2..0.5).contains(&share), "{share}");
    }

    #[test]
    fn a_shuffle_visits_every_row_once() {
        for count in [1, 2, 10, 997, 1000] {
            let shuffle = Shuffle::new(count);
            let mut seen: Vec<u64> = (0..count).map(|at| shuffle.at(at)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_uniform_choice_reaches_all_rows_alike() {
        let mut pick = Pick::uniform(1, 10);
        let mut hits = [0; 10];
        (0..100_000).for_each(|_| hits[pick.next() as usize] += 1);
        assert!(hits.iter().all(|hits| (9_500..10_500).contains(hits)), "{hits:?}");
    }

    #[test]
    fn zipf_has_hot_rows() {
        let rows = 100_000;
        let mut pick = Pick::zipf(1, rows);
        let mut hits = vec![0u32; rows as usize];
        (0..1_000_000).for_each(|_| hits[pick.next() as usize] += 1);
        let hottest = hits[Shuffle::new(rows).at(0) as usize];
        hits.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(hottest, hits[0]);
        let of_top_percent = hits[..rows as usize / 100].iter().sum::<u32>() as f64 / 1e6;
        assert!((0.55..0.75).contains(&of_top_percent), "{of_top_percent}");
    }
}
