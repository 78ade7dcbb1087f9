//! Rows per key from a few short walks through each index.
//!
//! Walks start at spots spread evenly over the *bytes* between the first and the last key (rows are not addressable by
//! number). Within a walk the share of keys that differ from their predecessor in the first `n` parts estimates distinct
//! values per row; the mean share over the walks, inverted, is rows per value. A walk that stays within one value asks the
//! engine how many entries that value has. A small index is walked whole.
//!
//! Rejected: distinct-count sketches per file. Better for skewed data; they need a place in the table files.

use super::Sample;
use crate::error::Result;
use crate::keycode::prefix_end;
use crate::kv::{Cursor, IndexId, Txn};
use crate::table::Table;

const SPOTS: u64 = 20;
const KEYS_PER_SPOT: u64 = 100;

/// Samples all indexes of a table that has about `rows` rows. The cursors are those of `own`; `tick` is asked before each
/// walk, and ends the work by an error.
pub(super) fn take(table: &Table, rows: u64, own: &Txn, tick: &dyn Fn() -> Result<()>) -> Result<Sample> {
    let mut means = vec![Vec::new(); table.state.meta.indexes.len()];
    for (i, place) in table.places.iter().enumerate() {
        means[*place] = sample_index(table, i, rows, own, tick)?;
    }
    Ok(Sample { rows, means })
}

fn sample_index(table: &Table, index: usize, rows: u64, own: &Txn, tick: &dyn Fn() -> Result<()>) -> Result<Vec<f64>> {
    tick()?;
    let parts = table.indexes[index].parts();
    let id = table.index_id(Some(index));
    let (lower, upper) = (id.prefix(), IndexId(id.0 + 1).prefix());
    let point = table.engine().read_point();
    let mut cursor = table.engine().cursor();
    cursor.open(own, point.seq(), &lower, &upper)?;
    let mut shares = Shares { table, index, sums: vec![0.0; parts], walks: 0 };
    if rows <= SPOTS * KEYS_PER_SPOT {
        cursor.seek_ge(own, &lower)?;
        shares.walk(&mut cursor, own, u64::MAX)?;
    } else {
        cursor.seek_lt(own, &upper)?;
        let last = if cursor.valid() { cursor.key().to_vec() } else { Vec::new() };
        cursor.seek_ge(own, &lower)?;
        let first = if cursor.valid() { cursor.key().to_vec() } else { Vec::new() };
        for spot in 0..SPOTS {
            tick()?;
            let from = if spot == 0 { first.clone() } else { between(&first, &last, spot, SPOTS) };
            cursor.seek_ge(own, &from)?;
            shares.walk(&mut cursor, own, KEYS_PER_SPOT)?;
        }
    }
    let mut means: Vec<f64> = shares.sums.iter().map(|sum| f64::from(shares.walks) / sum.max(1e-9)).collect();
    if shares.walks == 0 {
        means.fill(1.0);
    }
    // More parts never match more rows; a whole unique key matches one.
    let own_parts = table.indexes[index].own_parts();
    let unique = table.def.indexes[index].unique && !table.def.indexes[index].long_hash;
    let cap = rows.max(1) as f64;
    let mut limit = cap;
    for (n, mean) in means.iter_mut().enumerate() {
        *mean = mean.clamp(1.0, limit);
        if n + 1 == parts || unique && n + 1 >= own_parts {
            *mean = 1.0;
        }
        limit = *mean;
    }
    Ok(means)
}

/// Sums of shares of new values, per count of leading parts.
struct Shares<'a> {
    table: &'a Table,
    index: usize,
    sums: Vec<f64>,
    walks: u32,
}

impl Shares<'_> {
    fn walk(&mut self, cursor: &mut Cursor, own: &Txn, limit: u64) -> Result<()> {
        let codec = &self.table.indexes[self.index];
        let (mut ends, mut former) = (Vec::new(), Vec::new());
        let mut changes = vec![0u64; self.sums.len()];
        let mut keys = 0;
        while cursor.valid() && keys < limit {
            let key = cursor.key();
            ends.clear();
            codec.part_ends(key, &mut ends)?;
            if keys > 0 {
                for (n, change) in changes.iter_mut().enumerate() {
                    let end = ends.get(n).copied().unwrap_or(key.len());
                    let same = n < ends.len() && former.len() >= end && former[..end] == key[..end];
                    *change += u64::from(!same);
                }
            }
            former.clear();
            former.extend_from_slice(key);
            keys += 1;
            cursor.next(own)?;
        }
        if keys == 0 {
            return Ok(());
        }
        self.walks += 1;
        for (n, change) in changes.iter().enumerate() {
            self.sums[n] += match (*change, ends.get(n)) {
                (0, Some(end)) if keys == limit => {
                    let prefix = &former[..*end];
                    let beyond = prefix_end(prefix).unwrap_or_default();
                    let entries = self.table.engine().range_estimate(prefix, &beyond)?.entries;
                    1.0 / entries.max(keys) as f64
                }
                // The first key of a walk through a whole index begins a value as well.
                (c, _) if limit == u64::MAX => (c + 1) as f64 / keys as f64,
                (c, _) => c as f64 / (keys - 1).max(1) as f64,
            };
        }
        Ok(())
    }
}

/// A key about `part`/`parts` of the way from `first` to `last`, by the eight bytes behind their common prefix.
pub(super) fn between(first: &[u8], last: &[u8], part: u64, parts: u64) -> Vec<u8> {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(&key[common..]) {
            *to = *from;
        }
        u64::from_be_bytes(bytes)
    };
    let (low, high) = (number(first), number(last));
    let mut key = first[..common].to_vec();
    key.extend_from_slice(&(low + (high.saturating_sub(low)) / parts * part).to_be_bytes());
    key
}
