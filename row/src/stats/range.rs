//! Rows between two keys: asked by the optimizer before most statements with a range, so it must cost less than reading
//! the range does.
//!
//! The engine estimates from index blocks and the towers of the memtables, and says if it has counted in fact: most short
//! ranges lie in cached blocks. A walk through the rows follows only where the estimate says little: for a handful of
//! rows, where one more or less matters, and where tombstones are a good part of it (the emptied head of a queue): entries less
//! twice the tombstones is then the small difference of two large estimates. Such a range is walked from both ends, a little way;
//! the rows among the entries that were passed say what there is in between, if both ends say the same, and else show the limits
//! of what the difference can be.
//!
//! Rejected: walking all small ranges. It reads a range of a hundred rows twice. Walks from places in the middle, too: the files'
//! indexes know such places, and would have to be read from the disk for them.

use crate::error::{Error, Result};
use crate::keycode::prefix_end_in_place;
use crate::kv::{self, IndexId, RangeEstimate, Txn};
use crate::table::Table;

/// Up to this estimate a walk counts the rows.
const FEW: u64 = 16;
/// The estimate is doubtful if one entry in so many is a tombstone.
const TOMBSTONE_PART: u64 = 8;
/// Rows that a walk passes at most.
const DIVE: u64 = 100;
/// Dead entries that it passes at most.
const DEAD_DIVE: u64 = 1000;
/// Both ends of a range say the same if their densities differ by no more than this factor.
const SAME: f64 = 3.0;

/// One end of a range: a key image, and whether rows that have it belong to the range.
pub type End<'a> = Option<(&'a [u8], bool)>;

/// A walk from one end of a range.
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
        let sizes = self.engine().range_estimate(&lower, &upper)?;
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
        Ok(between(&sizes, &head, &tail))
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

/// Rows of a range that was walked from both ends and is longer than both walks, or seems to be.
fn between(sizes: &RangeEstimate, head: &Walk, tail: &Walk) -> u64 {
    let seen = head.rows + tail.rows;
    let passed = head.entries + tail.entries;
    let rest = sizes.entries.saturating_sub(passed) as f64;
    let (low, high) = (head.density().min(tail.density()), head.density().max(tail.density()));
    let rest = match high <= SAME * low {
        true => rest * seen as f64 / passed as f64,
        false => (live(sizes).saturating_sub(seen) as f64).clamp(rest * low, rest * high),
    };
    // The walks may have met.
    (seen + rest as u64).min(sizes.entries).max(head.rows)
}
