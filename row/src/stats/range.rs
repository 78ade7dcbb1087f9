//! Rows between two keys: asked by the optimizer before most statements with a range, so it must cost less than reading
//! the range does.
//!
//! The engine estimates from index blocks and the towers of the memtables, and says if it has counted in fact: most short
//! ranges lie in cached blocks. A walk through the rows follows only where the estimate says little: for a handful of
//! rows, where one more or less matters, and where tombstones are a good part of it (the emptied head of a queue): entries less
//! twice the tombstones is then the small difference of two large estimates. Such a range is walked a little way from both ends.
//! Rows among the entries passed are a density. Where it is the same at both ends, so it is taken to be between them; else the range
//! is halved, by the bytes of its keys, and looked at in the middle, until the halves are small: very small where rows begin or end.
//!
//! Rejected: walking all small ranges. It reads a range of a hundred rows twice.

use super::sample::between;
use crate::error::{Error, Result};
use crate::keycode::prefix_end_in_place;
use crate::kv::{self, Engine, IndexId, RangeEstimate, Txn};
use crate::table::Table;

/// Up to this estimate a walk counts the rows.
const FEW: u64 = 16;
/// Up to this estimate the blocks at both ends are read if they are not in memory, a few thousand entries each: whoever reads the range
/// needs at least the first.
const SHORT: u64 = 10_000;
/// The estimate is doubtful if one entry in so many is a tombstone.
const TOMBSTONE_PART: u64 = 8;
/// Rows that a walk passes at most.
const DIVE: u64 = 100;
/// Dead entries that it passes at most.
const DEAD_DIVE: u64 = 1000;
/// Both ends of a range say the same if their densities differ by no more than this factor.
const SAME: f64 = 2.0;
/// How often a range is halved at most.
pub(super) const HALVINGS: u32 = 14;
/// The last of these are for parts with one dead end only: a few rows behind a million tombstones lie in one of them.
const DEEP: u32 = 7;
/// How often the entries of two halves are estimated at most.
const LOOKS: u32 = 64;
/// A half with fewer entries than one in so many is as good as empty.
const NOTHING: u64 = 32;

/// One end of a range: a key image, and whether rows that have it belong to the range.
pub type End<'a> = Option<(&'a [u8], bool)>;

/// A walk through rows, from one end of a range or from its middle.
struct Walk {
    rows: u64,
    /// Entries that it has passed, a tombstone with what it hides.
    entries: u64,
    /// It has come to the other end.
    is_whole: bool,
}

impl Walk {
    fn density(&self) -> f64 {
        self.rows as f64 / self.entries.max(1) as f64
    }
}

/// Tells the density from one key on, at most up to another one.
pub(super) type Look<'a> = dyn Fn(&[u8], &[u8]) -> Result<f64> + 'a;

/// An estimate from densities: rows among the entries at some places.
pub(super) struct Halving<'a> {
    pub engine: &'a Engine,
    pub look: &'a Look<'a>,
    /// It looks at so many places more at most.
    pub looks: u32,
    /// With so many halvings left, or fewer, two ends that say the same are believed.
    pub agreed: u32,
}

impl Halving<'_> {
    /// About how many rows `entries` entries between two keys are, where the rows lie as dense as was seen at both.
    pub fn rows(
        &mut self,
        (first, last): (&[u8], &[u8]),
        entries: u64,
        density: [f64; 2],
        halvings: u32,
    ) -> Result<f64> {
        let (low, high) = (density[0].min(density[1]), density[0].max(density[1]));
        let middle = between(first, last, 1, 2);
        // Two dead ends say nothing of the middle, and are not looked into as deep.
        let is_dead = high == 0.0;
        let is_border = low == 0.0 && !is_dead;
        if entries == 0
            || !is_dead && high <= SAME * low && halvings <= self.agreed
            || halvings <= (if is_border { 0 } else { DEEP })
            || self.looks == 0
            || middle.as_slice() <= first
            || middle.as_slice() >= last
        {
            return Ok(entries as f64 * (low + high) / 2.0);
        }
        self.looks -= 1;
        let halves = [(first, middle.as_slice()), (middle.as_slice(), last)];
        let counts = [0, 1].map(|half: usize| self.engine.range_estimate(halves[half].0, halves[half].1));
        let [left, right] = counts;
        let counts = [left?.entries, right?.entries];
        // A half without entries tells nothing: the keys begin or end within the other. Only counts of the same moment are compared: a
        // merge may just have dropped most of what there was.
        if let Some(empty) = counts.iter().position(|count| count * NOTHING < counts[0] + counts[1]) {
            let whole = 1 - empty;
            return self.rows(halves[whole], counts[whole], density, halvings);
        }
        let seen = (self.look)(&middle, last)?;
        let halvings = halvings.saturating_sub(if is_dead { 3 } else { 1 });
        let left = self.rows(halves[0], counts[0], [density[0], seen], halvings)?;
        let right = self.rows(halves[1], counts[1], [seen, density[1]], halvings)?;
        Ok(left + right)
    }
}

impl Table {
    /// Estimates the rows between two key images of an index. `own` adds a transaction's writes. The result is 0 only if
    /// the newest state has nothing there; a reader's snapshot may still hold rows.
    pub fn records_in_range(&self, index: usize, low: End<'_>, high: End<'_>, own: &Txn) -> Result<u64> {
        let codec = self.codec(Some(index))?;
        let id = self.index_id(Some(index));
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        match low.filter(|e| !e.0.is_empty()) {
            Some((image, inclusive)) => {
                codec.encode_image(image, &mut lower)?;
                if !inclusive {
                    prefix_end_in_place(&mut lower);
                }
            }
            None => lower.extend_from_slice(&id.prefix()),
        }
        match high.filter(|e| !e.0.is_empty()) {
            Some((image, inclusive)) => {
                codec.encode_image(image, &mut upper)?;
                if inclusive {
                    prefix_end_in_place(&mut upper);
                }
            }
            None => upper.extend_from_slice(&IndexId(id.0 + 1).prefix()),
        }
        if lower >= upper {
            return Ok(0);
        }
        let mut sizes = self.engine().range_estimate(&lower, &upper)?;
        if sizes.is_blind && sizes.entries <= SHORT {
            self.read_ends(own, &lower, &upper)?;
            sizes = self.engine().range_estimate(&lower, &upper)?;
        }
        if sizes.exact && !own.has_writes() {
            return Ok(sizes.entries);
        }
        if sizes.tombstones <= sizes.entries / TOMBSTONE_PART && sizes.entries > FEW {
            return Ok(live(&sizes));
        }
        let head = self.walk(own, &lower, &upper, true)?;
        if head.is_whole {
            return Ok(head.rows);
        }
        if sizes.entries <= FEW {
            return Ok(head.rows + 1);
        }
        let tail = self.walk(own, &lower, &upper, false)?;
        let look = |first: &[u8], last: &[u8]| Ok(self.walk(own, first, last, true)?.density());
        let mut halving = Halving { engine: self.engine(), look: &look, looks: LOOKS, agreed: HALVINGS };
        let rows = halving.rows((&lower, &upper), sizes.entries, [head.density(), tail.density()], HALVINGS)?;
        Ok((rows as u64).min(sizes.entries).max(head.rows).max(1))
    }

    /// Reads the blocks in which a range begins and ends.
    fn read_ends(&self, own: &Txn, lower: &[u8], upper: &[u8]) -> Result<()> {
        let point = self.engine().read_point();
        let mut cursor = self.engine().cursor();
        cursor.open(own, point.seq(), lower, upper)?;
        cursor.set_skips_max(DEAD_DIVE);
        for moved in [cursor.seek_ge(own, lower), cursor.seek_lt(own, upper)] {
            match moved {
                Err(kv::Error::Interrupted) if cursor.skipped() >= DEAD_DIVE => {}
                moved => moved?,
            }
        }
        cursor.close();
        Ok(())
    }

    fn walk(&self, own: &Txn, lower: &[u8], upper: &[u8], forward: bool) -> Result<Walk> {
        let point = self.engine().read_point();
        let mut cursor = self.engine().cursor();
        cursor.open(own, point.seq(), lower, upper)?;
        cursor.set_skips_max(DEAD_DIVE);
        let mut rows = 0;
        let mut moved = if forward { cursor.seek_ge(own, lower) } else { cursor.seek_lt(own, upper) };
        let is_whole = loop {
            match moved {
                Err(kv::Error::Interrupted) if cursor.skipped() >= DEAD_DIVE => break false,
                Err(error) => return Err(Error::from(error)),
                Ok(()) if !cursor.valid() => break true,
                Ok(()) => rows += 1,
            }
            if rows > DIVE {
                break false;
            }
            moved = if forward { cursor.next(own) } else { cursor.prev(own) };
        };
        // Going back, what a tombstone hides is counted by itself.
        let entries = rows + cursor.skipped() * if forward { 2 } else { 1 };
        cursor.close();
        Ok(Walk { rows, entries, is_whole })
    }
}

/// Rows, if tombstones lie evenly in what has them: each is an entry and hides another one.
fn live(sizes: &RangeEstimate) -> u64 {
    sizes.entries.saturating_sub(2 * sizes.tombstones).max(1)
}
