//! What the optimizer is told: sizes, rows per key, rows in a range.
//!
//! Sizes come from the engine's counters per index and cost nothing; rows do, too, where most of them lie in one sorted run, and are
//! counted at some places where they do not. Rows per key come from a *sample* of each index, kept
//! in memory, stored by ANALYZE, and taken again once the table has grown or shrunk four times. Rows in a range are an
//! estimate from block counts, made exact by a short walk when it is a handful of rows.
//!
//! - `sample`: rows per key
//! - `density`: rows among many entries, counted at some places
//! - `count`: rows of a table
//! - `range`: rows in a range
//! - `check`: CHECK TABLE

pub mod check;
mod count;
mod density;
pub mod range;
mod sample;

use crate::catalog::format::{decode_statistics, encode_statistics, statistics_key};
use crate::error::Result;
use crate::kv::{Engine, IndexId, SeqNo};
use crate::session::Session;
use crate::table::Table;
use parking_lot::Mutex;
use std::sync::Arc;

/// Sizes of a table; all estimates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableStats {
    /// Rows; 0 only if the table is certainly empty.
    pub rows: u64,
    /// Bytes of the rows on disk and in memory.
    pub data_bytes: u64,
    /// Bytes of the secondary indexes.
    pub index_bytes: u64,
    /// Bytes that tombstones keep from being given back.
    pub deleted_bytes: u64,
    /// Bytes per row.
    pub mean_row_bytes: u32,
    /// Unix seconds of creation.
    pub create_time: u64,
    /// Rows per key, as they were told last, are of a table of quite another size: they are to be asked for again.
    pub sample_is_old: bool,
}

/// How far an OPTIMIZE is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Optimized {
    /// So many indexes are done.
    pub index: usize,
    /// Of so many.
    pub indexes: usize,
    /// Bytes of the next one that were read.
    pub done: u64,
    /// Of so many, more or less; 0 as long as nothing is known.
    pub of: u64,
}

/// A sample is taken anew once the table has grown or shrunk so many times.
const GROWTH: u64 = 4;
/// Tables above this many entries are not counted anew for every statement.
const LARGE: u64 = 10_000;
/// How long their sizes are good for each entry, in microseconds: a table that doubles meanwhile takes 50,000 rows a second.
const SIZES_AGE_US: u64 = 20;
/// How long sizes are good at most.
const SIZES_AGE_MAX_US: u64 = 2_000_000;

/// A sample of all indexes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    /// Rows of the table when the sample was taken.
    rows: u64,
    /// Per index, by its number in the catalog, and count of leading parts: mean rows per value.
    means: Vec<Vec<f64>>,
}

/// Sizes, and when they were taken.
#[derive(Clone, Copy)]
struct Sizes {
    taken_us: u64,
    /// Of the engine.
    state: (SeqNo, u64),
    /// Rows, former versions of them and tombstones.
    entries: u64,
    stats: TableStats,
}

impl Sizes {
    /// How long they are good, in microseconds, if anything was committed or moved since.
    fn good_us(&self) -> u64 {
        if self.entries > LARGE { self.entries.saturating_mul(SIZES_AGE_US).min(SIZES_AGE_MAX_US) } else { 0 }
    }
}

impl Sample {
    /// Whether it may stand for the table now that it has `rows` rows.
    fn is_fresh(&self, rows: u64) -> bool {
        self.rows / GROWTH <= rows && rows / GROWTH <= self.rows
    }
}

/// The sample in use.
#[derive(Default)]
pub(crate) struct Statistics {
    sample: Mutex<Option<Arc<Sample>>>,
    /// The last sizes.
    sizes: Mutex<Option<Sizes>>,
    /// Rows that were counted last.
    counted: Mutex<Option<count::Counted>>,
}

impl Table {
    /// Sizes. The optimizer asks before every statement, of each partition by itself: they are counted anew only if something
    /// was committed or moved since. Those of a large table may be a moment old even so, the longer the larger it is.
    pub fn stats(&self) -> Result<TableStats> {
        let state = self.engine().sizes_state();
        // Copied out: counting happens without the lock, so that statements do not queue for it.
        let known = *self.state.statistics.sizes.lock();
        if let Some(sizes) = known {
            if sizes.state == state {
                return Ok(sizes.stats);
            }
            let age = self.engine().now_us().saturating_sub(sizes.taken_us);
            if age < sizes.good_us() {
                return Ok(sizes.stats);
            }
        }
        let taken_us = self.engine().now_us();
        let (entries, stats) = self.count(taken_us);
        *self.state.statistics.sizes.lock() = Some(Sizes { taken_us, state, entries, stats });
        Ok(stats)
    }

    /// Entries of the clustered index, and sizes.
    fn count(&self, now_us: u64) -> (u64, TableStats) {
        let engine = self.engine();
        let data = engine.index_stats(self.index_id(None));
        let mut index_bytes = 0;
        for &i in &self.secondary {
            let index = engine.index_stats(self.index_id(Some(i)));
            index_bytes += index.bytes + index.memtable_bytes;
        }
        let mut counted = *self.state.statistics.counted.lock();
        let rows = count::rows(engine, self.index_id(None), &data, &mut counted, now_us);
        *self.state.statistics.counted.lock() = counted;
        let mean = (data.raw_bytes + data.memtable_bytes) / data.entries.max(1);
        let stats = TableStats {
            rows,
            data_bytes: data.bytes + data.memtable_bytes,
            index_bytes,
            deleted_bytes: data.bytes / data.entries.max(1) * data.tombstones,
            mean_row_bytes: u32::try_from(mean).unwrap_or(u32::MAX),
            create_time: self.state.meta.create_time,
            sample_is_old: self.state.statistics.sample.lock().as_ref().is_some_and(|sample| !sample.is_fresh(rows)),
        };
        (data.entries, stats)
    }

    /// Mean rows per value of the first 1, 2, ... parts of an index, the clustered key's parts behind its own included.
    pub fn rec_per_key(&self, index: usize) -> Result<Vec<f64>> {
        let rows = self.stats()?.rows;
        let cached = self.state.statistics.sample.lock().clone();
        let cached = match cached {
            Some(sample) => Some(sample),
            None => self.stored_sample()?,
        };
        let sample = match cached.filter(|sample| sample.is_fresh(rows)) {
            Some(sample) => sample,
            None => {
                // Sizes that say that the sample is old are not good any more.
                *self.state.statistics.sizes.lock() = None;
                Arc::new(sample::take(self, rows, &self.engine().begin(), &|| Ok(()))?)
            }
        };
        *self.state.statistics.sample.lock() = Some(sample.clone());
        Ok(self.places.get(index).and_then(|place| sample.means.get(*place)).cloned().unwrap_or_default())
    }

    /// ANALYZE: takes a new sample, until the statement is killed, and stores it.
    pub fn analyze(&self, session: &Session) -> Result<()> {
        // Counted now, however short ago that was done last.
        *self.state.statistics.sizes.lock() = None;
        *self.state.statistics.counted.lock() = None;
        let sample = Arc::new(sample::take(self, self.stats()?.rows, session.txn(), &|| session.check_killed())?);
        let key = statistics_key(self.state.meta.table_id);
        let write = [(key, Some(encode_statistics(sample.rows, &sample.means)))];
        let bytes = Engine::write_bytes(&write);
        let room = self.engine().room(bytes, &|| session.check_interrupted().is_err())?;
        self.engine().sync_write(&self.engine().write_within(room, &write)?)?;
        *self.state.statistics.sample.lock() = Some(sample);
        Ok(())
    }

    /// OPTIMIZE: brings all indexes down into the last level and clears them of what nobody reads, until the statement is killed.
    /// Others read and write meanwhile. `told` hears from time to time how far it is.
    pub fn optimize(&self, session: &Session, told: &dyn Fn(Optimized)) -> Result<()> {
        let ids = self.state.meta.ids();
        for (number, id) in ids.iter().enumerate() {
            let (lower, upper) = (id.prefix(), IndexId(id.0 + 1).prefix());
            self.engine().compact_range_with(&lower, &upper, &|done, of| {
                told(Optimized { index: number, indexes: ids.len(), done, of });
                session.check_interrupted()
            })?;
        }
        Ok(())
    }

    fn stored_sample(&self) -> Result<Option<Arc<Sample>>> {
        let mut value = Vec::new();
        let key = statistics_key(self.state.meta.table_id);
        if !self.engine().get_at(&key, self.engine().visible(), &mut value)? {
            return Ok(None);
        }
        // Statistics of another shape or version are as good as none.
        Ok(decode_statistics(&value)
            .filter(|(_, means)| means.len() == self.state.meta.indexes.len())
            .map(|(rows, means)| Arc::new(Sample { rows, means })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_larger_tables_stand_longer() {
        let good_us =
            |entries| Sizes { taken_us: 0, state: (SeqNo(0), 0), entries, stats: TableStats::default() }.good_us();
        assert_eq!(good_us(10_000), 0);
        assert_eq!(good_us(30_000), 600_000);
        assert_eq!(good_us(10_000_000), 2_000_000);
        assert_eq!(good_us(u64::MAX), 2_000_000);
    }
}
