//! Rows between two keys: asked by the optimizer before most statements with a range, so it must cost less than reading
//! the range does.
//!
//! The engine estimates from index blocks and the towers of the memtables, and says if it has counted in fact: most short
//! ranges lie in cached blocks. A walk through the rows follows only where the estimate says little: for a handful of
//! rows, where one more or less matters, and where tombstones are a good part of it (the emptied head of a queue).
//! Rejected: walking all small ranges. It reads a range of a hundred rows twice.

use crate::error::Result;
use crate::keycode::prefix_end_in_place;
use crate::kv::{IndexId, Txn};
use crate::table::Table;

/// Up to this estimate a walk counts the rows.
const FEW: u64 = 16;
/// Up to this estimate a walk is made if a part of the entries are tombstones ...
const SMALL: u64 = 1000;
/// ... namely one in so many.
const TOMBSTONE_PART: u64 = 8;
/// Longest walk.
const DIVE: u64 = 100;

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
        if sizes.exact && !own.has_writes() {
            return Ok(sizes.entries);
        }
        let doubtful = sizes.tombstones > sizes.entries / TOMBSTONE_PART;
        if sizes.entries > if doubtful { SMALL } else { FEW } {
            // A tombstone is an entry and hides another one.
            return Ok(sizes.entries.saturating_sub(2 * sizes.tombstones).max(1));
        }
        let estimate = sizes.entries;
        let point = self.engine().read_point();
        let mut cursor = self.engine().cursor();
        cursor.open(own, point.seq(), &lower, &upper)?;
        cursor.seek_ge(own, &lower)?;
        let mut rows = 0;
        while cursor.valid() && rows < DIVE {
            rows += 1;
            cursor.next(own)?;
        }
        let more = cursor.valid();
        cursor.close();
        Ok(if more { estimate.max(rows + 1) } else { rows })
    }
}
