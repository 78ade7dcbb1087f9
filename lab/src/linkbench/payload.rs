//! The data of links and nodes: how long they are and how well they compress.
//!
//! Lengths are log-normal with a median and a sigma of 1. Bytes come in pieces of up to 128: a piece is new, each byte drawn evenly from a range, or,
//! more often, copied from a random place of a short text that all data of one kind share. One row alone hardly compresses; many
//! rows together do, as far as pieces repeat.
//!
//! The published driver draws a shared text for each of its threads. Here there is one for each kind of data, from the graph's
//! seed, so that the data do not depend on the number of threads.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::ops::RangeInclusive;

/// Bytes of the shared text.
const SHARED: usize = 512;
/// Bytes of a piece.
const PIECE: usize = 128;
/// Standard deviation of the logarithm of lengths.
const SIGMA: f64 = 1.0;

/// What is made: links and nodes have data of their own when they are new and when they are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of links.
    Link,
    /// Of nodes.
    Node,
}

impl Kind {
    /// The median length in bytes.
    pub fn median(self) -> f64 {
        match self {
            Kind::Link => 8.0,
            Kind::Node => 128.0,
        }
    }

    /// The mean length in bytes, but for the cut at the longest.
    pub fn mean(self) -> f64 {
        self.median() * (SIGMA * SIGMA / 2.0).exp()
    }

    /// All data are shorter than this.
    fn end(self) -> f64 {
        match self {
            Kind::Link => 255.0,
            Kind::Node => 1048576.0,
        }
    }

    fn bytes(self) -> RangeInclusive<u8> {
        match self {
            Kind::Link => 32..=100,
            Kind::Node => 50..=220,
        }
    }

    /// The share of pieces that are new.
    fn new_pieces(self) -> f64 {
        match self {
            Kind::Link => 0.225,
            Kind::Node => 0.63,
        }
    }
}

/// Makes data of one kind.
#[derive(Clone, Debug)]
pub struct Payload {
    kind: Kind,
    shared: Vec<u8>,
}

impl Payload {
    /// The maker with this seed.
    pub fn new(kind: Kind, seed: u64) -> Payload {
        let mut rng = SmallRng::seed_from_u64(seed);
        Payload { kind, shared: (0..SHARED).map(|_| rng.random_range(kind.bytes())).collect() }
    }

    /// Draws data.
    pub fn draw(&self, rng: &mut SmallRng) -> Vec<u8> {
        let length = (self.kind.median() * (SIGMA * normal(rng)).exp()).round();
        let mut left = length.min(self.kind.end() - 1.0) as usize;
        let mut data = Vec::with_capacity(left);
        while left > 0 {
            let piece = left.min(PIECE);
            if rng.random::<f64>() < self.kind.new_pieces() {
                data.extend((0..piece).map(|_| rng.random_range(self.kind.bytes())));
            } else {
                let at = rng.random_range(0..=SHARED - piece);
                data.extend_from_slice(&self.shared[at..at + piece]);
            }
            left -= piece;
        }
        data
    }
}

/// A number of the normal distribution with mean 0 and deviation 1, by Box and Muller.
fn normal(rng: &mut SmallRng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(kind: Kind, count: usize) -> Vec<Vec<u8>> {
        let payload = Payload::new(kind, 1);
        let mut rng = SmallRng::seed_from_u64(2);
        (0..count).map(|_| payload.draw(&mut rng)).collect()
    }

    #[test]
    fn lengths_are_log_normal() {
        for kind in [Kind::Link, Kind::Node] {
            let mut lengths: Vec<f64> = drawn(kind, 60_000).iter().map(|data| data.len() as f64).collect();
            lengths.sort_by(f64::total_cmp);
            let at = |share: f64| lengths[(lengths.len() as f64 * share) as usize];
            // One deviation to either side of the median is a factor of e.
            for (share, factor) in [(0.5, 1.0), (0.8413, std::f64::consts::E), (0.1587, 1.0 / std::f64::consts::E)] {
                let due = kind.median() * factor;
                // Lengths are whole bytes.
                assert!((at(share) - due).abs() <= due * 0.02 + 0.5, "{kind:?} {share}: {}, not {due}", at(share));
            }
            let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
            assert!((mean / kind.mean() - 1.0).abs() < 0.03, "{kind:?}: {mean}");
            assert!(lengths[lengths.len() - 1] < kind.end());
        }
    }

    #[test]
    fn many_together_compress_as_stated() {
        // What the published configuration states; the payloads of links are so short that a copy costs a quarter of what it saves.
        for (kind, count, stated) in [(Kind::Link, 100_000, 0.30), (Kind::Node, 5000, 0.60)] {
            let data = drawn(kind, count).concat();
            let ratio = |compressed: usize| compressed as f64 / data.len() as f64;
            let zstd = ratio(zstd::bulk::compress(&data, 3).unwrap().len());
            assert!((zstd - stated).abs() < 0.08, "{kind:?}: zstd leaves {zstd}");
            // Without entropy coding new pieces stay as they are, and short copies cost nearly as much as they save.
            let lz4 = ratio(lz4_flex::block::compress(&data).len());
            assert!(lz4 > zstd && lz4 < 0.85, "{kind:?}: LZ4 leaves {lz4}");
        }
    }

    #[test]
    fn one_alone_hardly_compresses() {
        let all = drawn(Kind::Node, 500);
        let alone: usize = all.iter().map(|data| zstd::bulk::compress(data, 3).unwrap().len().min(data.len())).sum();
        let together = zstd::bulk::compress(&all.concat(), 3).unwrap().len();
        assert!(alone > together * 5 / 4, "{alone} alone, {together} together");
    }

    #[test]
    fn bytes_stay_in_their_range() {
        for kind in [Kind::Link, Kind::Node] {
            assert!(drawn(kind, 2000).concat().iter().all(|byte| kind.bytes().contains(byte)));
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(drawn(Kind::Node, 50), drawn(Kind::Node, 50));
        assert_ne!(Payload::new(Kind::Link, 1).shared, Payload::new(Kind::Link, 2).shared);
    }
}
