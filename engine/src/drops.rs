//! The latest drops of indexes, for whoever may have been reading one of them since before.
//!
//! Time is counted in flushes, as cursors count it. Only so many drops are remembered: what may have been forgotten counts
//! as dropped.

use std::collections::VecDeque;

use crate::base::IndexId;

/// See the module.
#[derive(Default)]
pub(crate) struct Drops {
    /// Flushes before the drop, and the index; oldest first.
    latest: VecDeque<(u64, IndexId)>,
    /// Drops after fewer flushes than this may be forgotten.
    complete_from: u64,
}

impl Drops {
    const KEPT: usize = 1024;

    /// These indexes are about to be dropped, after so many flushes.
    pub fn note(&mut self, flushes: u64, ids: &[IndexId]) {
        for &id in ids {
            if self.latest.len() == Drops::KEPT {
                let oldest = self.latest.pop_front();
                self.complete_from = oldest.map_or(0, |(flushes, _)| flushes + 1);
            }
            self.latest.push_back((flushes, id));
        }
    }

    /// False if no index with keys in `[lower, upper)` was dropped after so many flushes.
    pub fn since(&self, flushes: u64, lower: &[u8], upper: &[u8]) -> bool {
        let is_in =
            |id: IndexId| IndexId(id.0.saturating_add(1)).prefix().as_slice() > lower && &id.prefix()[..] < upper;
        flushes < self.complete_from || self.latest.iter().rev().any(|&(at, id)| at >= flushes && is_in(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_known_to_cursors_opened_before() {
        let mut drops = Drops::default();
        let since = |drops: &Drops, flushes, from: u32, to: u32| {
            drops.since(flushes, &IndexId(from).prefix(), &IndexId(to).prefix())
        };
        assert!(!since(&drops, 0, 1, 9));
        drops.note(3, &[IndexId(5)]);
        assert!(since(&drops, 3, 5, 6) && since(&drops, 0, 1, 9));
        assert!(drops.since(2, &[&IndexId(5).prefix()[..], b"m"].concat(), &[&IndexId(5).prefix()[..], b"n"].concat()));
        assert!(!since(&drops, 4, 5, 6) && !since(&drops, 3, 4, 5) && !since(&drops, 3, 6, 7));
        // What may have been forgotten counts as dropped.
        let many: Vec<IndexId> = (100..).take(Drops::KEPT).map(IndexId).collect();
        drops.note(7, &many);
        assert!(since(&drops, 3, 1, 2) && !since(&drops, 4, 1, 2));
        assert_eq!(drops.latest.len(), Drops::KEPT);
    }
}
