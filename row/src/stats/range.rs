//! Rows between two keys: asked by the optimizer before most statements with a range, so it must cost less than reading
//! the range does.
//!
//! The engine estimates from index blocks and the towers of the memtables, and says if it has counted in fact: most short
//! ranges lie in cached blocks. A walk through the rows follows only where the estimate says little: for a handful of
//! rows, where one more or less matters; where tombstones are a good part of it (the emptied head of a queue): entries less
//! twice the tombstones is then the small difference of two large estimates; and where by far most of it lies in other runs than the
//! largest, and may be former versions of the same rows (a small table whose rows are updated all the time). There rows and
//! entries are counted at some places ([`density`]). Where the other runs have no more than twice what the largest has, nothing is
//! counted: the rows are at least the largest run and at most the entries, and what is told is the geometric mean of both, wrong by a
//! factor of 1.7 at worst. Where the blocks at the ends are not in memory unpacked, they have to be read
//! first: that look counts a handful of rows on its way, and is all there is to do if these are the whole range.
//!
//! Rejected: walking all small ranges. It reads a range of a hundred rows twice.

use super::density::{self, Look};
use crate::error::{Error, Result};
use crate::keycode::prefix_end_in_place;
use crate::kv::{self, Cursor, IndexId, RangeEstimate, ReadPoint, Txn};
use crate::table::Table;

/// Up to this estimate a walk counts the rows; so many does the look at the ends count at most.
const FEW: u64 = 16;
/// Up to this estimate the blocks at both ends are read if they are not in memory, a few thousand entries each: whoever reads the range
/// needs at least the first.
const SHORT: u64 = 10_000;
/// The estimate is doubtful if one entry in so many is a tombstone.
const TOMBSTONE_PART: u64 = 8;
/// It is doubtful if the entries are more than so many times the largest run.
const RUNS: u64 = 3;
/// Rows that a walk passes at most.
const DIVE: u64 = 100;
/// Dead entries that it passes at most.
const DEAD_DIVE: u64 = 1000;
/// What is looked at where tombstones are many, and where versions are.
const AMONG_TOMBSTONES: Look = Look { entries: 300, places: 64, always: 0 };
const AMONG_VERSIONS: Look = Look { entries: 64, places: 16, always: 0 };

/// One end of a range: a key image, and whether rows that have it belong to the range.
pub type End<'a> = Option<(&'a [u8], bool)>;

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
        if !sizes.is_blind || sizes.entries > SHORT {
            return self.rows(own, &lower, &upper, sizes);
        }
        // The scan that follows needs the same blocks.
        kv::hold_for_scan(|| match self.look_at_ends(own, &lower, &upper)? {
            Some(rows) => Ok(rows),
            None => self.rows(own, &lower, &upper, self.engine().range_estimate(&lower, &upper)?),
        })
    }

    /// The rows of a range of which the engine estimates these sizes.
    fn rows(&self, own: &Txn, lower: &[u8], upper: &[u8], sizes: RangeEstimate) -> Result<u64> {
        let others = sizes.entries - sizes.largest_run;
        if sizes.exact && others == 0 && !own.has_writes() {
            return Ok(sizes.entries);
        }
        if sizes.entries <= FEW {
            return self.walk(own, lower, upper);
        }
        match judged(&sizes) {
            Judged::Good(rows) => Ok(rows),
            Judged::Doubtful(look) => Ok(density::rows(self.engine(), lower, upper, sizes.entries, look)?.max(1)),
        }
    }

    /// Counts the rows of a range, a transaction's own among them, if there are few. Else it reads the blocks in which the range
    /// begins and ends.
    fn look_at_ends(&self, own: &Txn, lower: &[u8], upper: &[u8]) -> Result<Option<u64>> {
        let (_point, mut cursor) = self.dive(own, lower, upper)?;
        let (rows, all) = count(&mut cursor, own, lower, FEW)?;
        if !all {
            match cursor.seek_lt(own, upper) {
                Err(kv::Error::Interrupted) if cursor.skipped() >= DEAD_DIVE => {}
                moved => moved?,
            }
        }
        cursor.close();
        Ok(all.then_some(rows))
    }

    /// Counts a handful of rows, a transaction's own among them; one more if there are too many entries for that.
    fn walk(&self, own: &Txn, lower: &[u8], upper: &[u8]) -> Result<u64> {
        let (_point, mut cursor) = self.dive(own, lower, upper)?;
        let (rows, all) = count(&mut cursor, own, lower, DIVE)?;
        cursor.close();
        Ok(rows + u64::from(!all))
    }

    /// A cursor at the newest state, which the point keeps, that gives up where it meets many dead entries.
    fn dive(&self, own: &Txn, lower: &[u8], upper: &[u8]) -> Result<(ReadPoint, Cursor)> {
        let point = self.engine().read_point();
        let mut cursor = self.engine().cursor();
        cursor.open(own, point.seq(), lower, upper)?;
        cursor.set_skips_max(DEAD_DIVE);
        Ok((point, cursor))
    }
}

/// Rows from `lower` on, up to `most` of them, and whether these are all of the cursor's range.
fn count(cursor: &mut Cursor, own: &Txn, lower: &[u8], most: u64) -> Result<(u64, bool)> {
    let mut rows = 0;
    let mut moved = cursor.seek_ge(own, lower);
    loop {
        match moved {
            Err(kv::Error::Interrupted) if cursor.skipped() >= DEAD_DIVE => return Ok((rows, false)),
            Err(error) => return Err(Error::from(error)),
            Ok(()) if !cursor.valid() => return Ok((rows, true)),
            Ok(()) if rows == most => return Ok((rows, false)),
            Ok(()) => rows += 1,
        }
        moved = cursor.next(own);
    }
}

/// What the engine's estimate says of the rows.
#[derive(PartialEq, Eq, Debug)]
enum Judged {
    /// So many rows.
    Good(u64),
    /// Little: so much is to be looked at.
    Doubtful(Look),
}

/// The rows of a range with these sizes, if they say enough. Tombstones are taken to lie evenly in what has them: each is an entry and
/// hides another one.
fn judged(sizes: &RangeEstimate) -> Judged {
    if sizes.tombstones > sizes.entries / TOMBSTONE_PART {
        return Judged::Doubtful(AMONG_TOMBSTONES);
    }
    if sizes.entries > RUNS * sizes.largest_run {
        return Judged::Doubtful(AMONG_VERSIONS);
    }
    let most = sizes.entries.saturating_sub(2 * sizes.tombstones);
    let least = most.min(sizes.largest_run);
    Judged::Good(((most as f64 * least as f64).sqrt().round() as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: u64, tombstones: u64, largest_run: u64) -> Judged {
        judged(&RangeEstimate { entries, tombstones, largest_run, ..RangeEstimate::default() })
    }

    #[test]
    fn rows_lie_between_the_largest_run_and_all_entries() {
        assert_eq!(of(1000, 0, 1000), Judged::Good(1000));
        assert_eq!(of(1000, 100, 1000), Judged::Good(800));
        // All new rows would be 1210, all new versions 1000.
        assert_eq!(of(1210, 0, 1000), Judged::Good(1100));
        assert_eq!(of(3000, 0, 1000), Judged::Good(1732));
        assert_eq!(of(0, 0, 0), Judged::Good(1));
    }

    #[test]
    fn a_range_is_looked_into_where_sizes_say_little() {
        assert_eq!(of(3001, 0, 1000), Judged::Doubtful(AMONG_VERSIONS));
        assert_eq!(of(1000, 126, 1000), Judged::Doubtful(AMONG_TOMBSTONES));
    }
}
