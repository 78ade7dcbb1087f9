//! Rows of a table, from the entries of its clustered index.
//!
//! The engine knows, without reading, how many entries an index has and how many of them are tombstones. Entries less twice the
//! tombstones are the rows, as long as each tombstone hides one entry and no row has been written twice. That is about so in an index
//! most of whose entries lie in one sorted run. In another one an entry may be a former version of a row, and a tombstone may hide
//! none, since a memtable keeps a key once: there rows and entries are counted at some places, and the rest is taken to be like them.
//!
//! That costs up to a millisecond. So its result stands, together with what has come and gone since by the plain rule, until an
//! eighth of the index has changed; that of an index of more than a thousand entries stands for a fifth of a second in any case.
//!
//! Rejected: a counter of rows that each insert and delete changes. It is a cache line that all writers of a table share, and it would have to
//! survive restarts.

use super::density::{self, Look};
use crate::error::Result;
use crate::kv::{Engine, IndexId, IndexStats};

/// One entry in so many that may be a former version, or a tombstone, is no matter, nor is such a change of an index.
const PART: u64 = 8;
/// How long a count is good in any case, in microseconds, if the index has more than [`FEW`] entries.
const GOOD_US: u64 = 200_000;
/// Up to so many entries are all counted.
const FEW: u64 = 1024;
/// Entries that are counted at one place.
const LOOK: u64 = 128;
/// At how many places at most, besides both ends.
const LOOKS: u32 = 32;
/// How often an index is halved wherever its parts say the same.
const ALWAYS: u32 = 2;

/// The rows of an index, and what it held when they were counted.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    taken_us: u64,
    index: IndexStats,
    rows: u64,
}

impl Counted {
    pub fn new(engine: &Engine, id: IndexId, index: IndexStats, now_us: u64) -> Counted {
        // A block that cannot be read is for those to tell of who need it.
        let rows = count(engine, id, index.entries).unwrap_or_else(|_| plain(&index).max(0) as u64);
        Counted { taken_us: now_us, index, rows }
    }

    /// Whether the index is still about what it was, or was counted too short a time ago to be counted again.
    fn stands_for(&self, now: &IndexStats, now_us: u64) -> bool {
        let then = &self.index;
        let changed = now.entries.abs_diff(then.entries)
            + now.tombstones.abs_diff(then.tombstones)
            + now.memtable_entries.abs_diff(then.memtable_entries);
        changed * PART <= then.entries || now.entries > FEW && now_us.saturating_sub(self.taken_us) < GOOD_US
    }

    /// The rows now.
    fn rows(&self, now: &IndexStats) -> u64 {
        let more = plain(now) - plain(&self.index);
        self.rows.saturating_add_signed(more).min(now.entries)
    }
}

/// Rows if each tombstone hides an entry, and each other entry is a row.
fn plain(index: &IndexStats) -> i64 {
    index.entries as i64 - 2 * index.tombstones as i64
}

/// True if the plain rule may be wrong by much.
fn is_doubtful(index: &IndexStats) -> bool {
    let others = index.entries.saturating_sub(index.largest_run);
    others.max(index.tombstones) > index.entries / PART
}

/// Rows of an index; 0 only if it is empty. `counted` is the last count.
pub(super) fn rows(
    engine: &Engine,
    id: IndexId,
    index: &IndexStats,
    counted: &mut Option<Counted>,
    now_us: u64,
) -> u64 {
    let rows = match index.entries {
        0 => return 0,
        _ if !is_doubtful(index) => {
            *counted = None;
            plain(index).max(0) as u64
        }
        _ => {
            let stands = counted.filter(|counted| counted.stands_for(index, now_us));
            counted.insert(stands.unwrap_or_else(|| Counted::new(engine, id, *index, now_us))).rows(index)
        }
    };
    rows.max(1)
}

/// Rows of an index of about `entries` entries.
fn count(engine: &Engine, id: IndexId, entries: u64) -> Result<u64> {
    let (lower, upper) = (id.prefix(), IndexId(id.0 + 1).prefix());
    // The number of entries is wrong by a sixth at times.
    let at_once = if entries <= FEW { 2 * FEW } else { LOOK };
    density::rows(engine, &lower, &upper, entries, Look { entries: at_once, places: LOOKS, always: ALWAYS })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: u64, tombstones: u64, largest_run: u64) -> IndexStats {
        IndexStats { entries, tombstones, largest_run, ..IndexStats::default() }
    }

    #[test]
    fn an_index_in_one_run_is_not_looked_at() {
        assert!(!is_doubtful(&index(1000, 0, 1000)));
        assert!(!is_doubtful(&index(1000, 100, 900)));
        assert!(is_doubtful(&index(1000, 0, 800)));
        assert!(is_doubtful(&index(1000, 200, 1000)));
        assert!(!is_doubtful(&index(0, 0, 0)));
    }

    #[test]
    fn a_count_stands_until_an_eighth_has_changed() {
        let counted = Counted { taken_us: 0, index: index(40_000, 0, 20_000), rows: 20_000 };
        let good = |now: &IndexStats, now_us| counted.stands_for(now, now_us);
        let grown = index(44_000, 0, 24_000);
        assert!(good(&grown, 1000));
        assert_eq!(counted.rows(&grown), 24_000);
        let shrunk = index(41_000, 1000, 21_000);
        assert!(good(&shrunk, 1000));
        assert_eq!(counted.rows(&shrunk), 19_000);
        let other = index(46_000, 0, 26_000);
        assert!(good(&other, GOOD_US - 1) && !good(&other, GOOD_US));
        let few = Counted { taken_us: 0, index: index(40, 0, 20), rows: 20 };
        assert!(!few.stands_for(&index(50, 0, 30), 0));
        assert_eq!(few.rows(&index(60, 40, 30)), 0);
    }
}
