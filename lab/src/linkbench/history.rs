//! Lists of links of which a requester has read the youngest only, for its questions about older ones.
//!
//! Invariant: a list stands here once.

use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::HashSet;

/// Lists that are remembered; one more pushes out another.
const MOST: usize = 2048;

/// Where the reading of a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Whose links,
    pub id1: u64,
    /// of which type.
    pub link_type: u64,
    /// The oldest link that was read.
    pub time: u64,
}

/// What a requester remembers.
#[derive(Debug, Default)]
pub struct History {
    tails: Vec<Tail>,
    lists: HashSet<(u64, u64)>,
}

impl History {
    /// One of the lists, and its place; none if there is none.
    pub fn draw(&self, rng: &mut SmallRng) -> Option<(usize, Tail)> {
        if self.tails.is_empty() {
            return None;
        }
        let at = rng.random_range(0..self.tails.len());
        Some((at, self.tails[at]))
    }

    /// Remembers a list unless it is known.
    pub fn add(&mut self, tail: Tail, rng: &mut SmallRng) {
        if !self.lists.insert((tail.id1, tail.link_type)) {
            return;
        }
        if self.tails.len() == MOST {
            self.forget(rng.random_range(0..MOST));
        }
        self.tails.push(tail);
    }

    /// The list at this place was read further, up to this time.
    pub fn advance(&mut self, at: usize, time: u64) {
        self.tails[at].time = time;
    }

    /// The list at this place was read to its end.
    pub fn forget(&mut self, at: usize) {
        let tail = self.tails.swap_remove(at);
        self.lists.remove(&(tail.id1, tail.link_type));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn lists_stand_once_and_are_bounded() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut history = History::default();
        assert_eq!(history.draw(&mut rng), None);
        for id1 in 0..3 * MOST as u64 {
            for time in [9, 8] {
                history.add(Tail { id1, link_type: 7, time }, &mut rng);
            }
        }
        assert_eq!((history.tails.len(), history.lists.len()), (MOST, MOST));
        assert!(history.tails.iter().all(|tail| tail.time == 9 && history.lists.contains(&(tail.id1, 7))));
        let (at, tail) = history.draw(&mut rng).unwrap();
        history.advance(at, 5);
        assert_eq!(history.tails[at], Tail { time: 5, ..tail });
        history.forget(at);
        assert!(!history.lists.contains(&(tail.id1, 7)));
        assert_eq!(history.tails.len(), MOST - 1);
    }
}
