//! Rows among many entries, counted at some places.
//!
//! In a log-structured store an entry may be a former version of a row, a tombstone, or what a tombstone hides. At both ends of a range, rows
//! and entries are counted for a little way: that is a density. Where it is the same at both ends, so it is taken to be between them;
//! else the range is halved, by the bytes of its keys, and looked at in the middle, until the halves are small: very small where
//! rows begin or end.

use super::sample::between;
use crate::error::Result;
use crate::kv::Engine;

/// Both ends of a range say the same if their densities differ by no more than this factor.
const SAME: f64 = 2.0;
/// How often a range is halved at most.
const HALVINGS: u32 = 14;
/// The last of these are for parts with one dead end only: a few rows behind a million tombstones lie in one of them.
const DEEP: u32 = 7;
/// A half with fewer entries than one in so many is as good as empty.
const NOTHING: u64 = 32;

/// How much is looked at.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// Entries that are counted at one place.
    pub entries: u64,
    /// How many places besides both ends, at most.
    pub places: u32,
    /// How often a range is halved wherever its parts say the same.
    pub always: u32,
}

/// Rows between two keys that have about `entries` entries between them.
pub(super) fn rows(engine: &Engine, lower: &[u8], upper: &[u8], entries: u64, look: Look) -> Result<u64> {
    let head = engine.count_range(lower, upper, true, look.entries)?;
    if head.is_whole {
        return Ok(head.rows);
    }
    let tail = engine.count_range(lower, upper, false, look.entries)?;
    let ends = [density(head.rows, head.entries), density(tail.rows, tail.entries)];
    let mut halving = Halving { engine, look };
    let rows = halving.rows((&head.first, &tail.first), entries, ends, HALVINGS)?;
    Ok((rows as u64).clamp(head.rows, entries.max(head.rows)))
}

fn density(rows: u64, entries: u64) -> f64 {
    rows as f64 / entries.max(1) as f64
}

struct Halving<'a> {
    engine: &'a Engine,
    look: Look,
}

impl Halving<'_> {
    /// About how many rows `entries` entries between two keys are, where the rows lie as dense as was seen at both.
    fn rows(
        &mut self,
        (first, last): (&[u8], &[u8]),
        entries: u64,
        density_of_ends: [f64; 2],
        halvings: u32,
    ) -> Result<f64> {
        let [first_density, last_density] = density_of_ends;
        let (low, high) = (first_density.min(last_density), first_density.max(last_density));
        let middle = between(first, last, 1, 2);
        // Two dead ends say nothing of the middle, and are not looked into as deep.
        let is_dead = high == 0.0;
        let is_border = low == 0.0 && !is_dead;
        if entries == 0
            || !is_dead && high <= SAME * low && halvings <= HALVINGS - self.look.always
            || halvings <= (if is_border { 0 } else { DEEP })
            || self.look.places == 0
            || middle.as_slice() <= first
            || middle.as_slice() >= last
        {
            return Ok(entries as f64 * (low + high) / 2.0);
        }
        self.look.places -= 1;
        let halves = [(first, middle.as_slice()), (middle.as_slice(), last)];
        let counts = [0, 1].map(|half: usize| self.engine.range_estimate(halves[half].0, halves[half].1));
        let [left, right] = counts;
        let counts = [left?.entries, right?.entries];
        // A half without entries tells nothing: the keys begin or end within the other. Only counts of the same moment are compared: a
        // merge may just have dropped most of what there was.
        if let Some(empty) = counts.iter().position(|count| count * NOTHING < counts[0] + counts[1]) {
            let whole = 1 - empty;
            return self.rows(halves[whole], counts[whole], density_of_ends, halvings);
        }
        let seen = self.engine.count_range(&middle, last, true, self.look.entries)?;
        let seen = density(seen.rows, seen.entries);
        let halvings = halvings.saturating_sub(if is_dead { 3 } else { 1 });
        let left = self.rows(halves[0], counts[0], [first_density, seen], halvings)?;
        let right = self.rows(halves[1], counts[1], [seen, last_density], halvings)?;
        Ok(left + right)
    }
}
