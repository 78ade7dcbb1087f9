//! Auto-increment values and hidden row ids: counters that never go back.
//!
//! A counter lives in memory; what is stored is a *high-water mark*, written ahead in blocks. A value is handed out only once
//! a mark above it is in the log, before any row that uses it, and the log keeps its order: after a crash the counter
//! restarts at the mark and skips at most one block. A clean close writes the exact value, so nothing is skipped then.
//!
//! The fast path is one compare-and-swap; the mutex is taken once per block. Who writes a mark waits for memory before it
//! takes the mutex, and only until its statement is killed: values that it had taken are skipped.
//!
//! Rejected: keeping the counter in the row's own write batch. It is exact after a crash, but makes one key hot in every
//! transaction of a table, and rolled back values would come back.

use crate::catalog::format::{counter_key, decode_counter, encode_counter};
use crate::error::{Error, Result};
use crate::kv::{CrashPoint, Engine, WriteOp};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which counter of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The auto-increment column.
    AutoIncrement,
    /// Row ids of a table without a clustered index.
    RowId,
}

impl Which {
    fn tag(self) -> u8 {
        match self {
            Which::AutoIncrement => 0,
            Which::RowId => 1,
        }
    }
    /// Values covered by one write of the mark.
    fn block(self) -> u64 {
        match self {
            Which::AutoIncrement => 512,
            Which::RowId => 1 << 16,
        }
    }
}

/// A persistent counter.
pub struct Counter {
    engine: Engine,
    key: Vec<u8>,
    block: u64,
    /// The next value.
    next: AtomicU64,
    /// Stored mark: every value below may be handed out. `next <= mark` always holds for handed out values.
    mark: AtomicU64,
    writing: Mutex<()>,
}

impl Counter {
    /// The counter of a table, restarting at its stored mark, at least at `floor`.
    pub fn open(engine: &Engine, table_id: u64, which: Which, floor: u64) -> Result<Counter> {
        let key = counter_key(table_id, which.tag());
        let mut value = Vec::new();
        let stored = match engine.get_at(&key, engine.visible(), &mut value)? {
            true => decode_counter(&value)?,
            false => 1,
        };
        let next = stored.max(floor).max(1);
        Ok(Counter {
            engine: engine.clone(),
            key,
            block: which.block(),
            next: AtomicU64::new(next),
            mark: AtomicU64::new(stored),
            writing: Mutex::new(()),
        })
    }

    /// The entry that makes a new counter start at `next`; goes with the write that creates the table.
    pub fn initial(table_id: u64, which: Which, next: u64) -> (Vec<u8>, Option<Vec<u8>>) {
        (counter_key(table_id, which.tag()), Some(encode_counter(next.max(1))))
    }

    /// The next value to be given out.
    pub fn peek(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// One value. `Interrupted` if a mark is due, memory is full, and `is_killed` says so; likewise below.
    pub fn take(&self, is_killed: &dyn Fn() -> bool) -> Result<u64> {
        let value = self.next.fetch_add(1, Ordering::Relaxed);
        self.write_ahead(value, is_killed)?;
        Ok(value)
    }

    /// Reserves `count` values `first, first + increment, ...` with `first` the smallest value not yet given out that is
    /// congruent to `offset` modulo `increment`. At the upper end fewer may be left; only if none is, this fails.
    pub fn reserve(
        &self,
        offset: u64,
        increment: u64,
        count: u64,
        max: u64,
        is_killed: &dyn Fn() -> bool,
    ) -> Result<u64> {
        let mut next = self.next.load(Ordering::Relaxed);
        loop {
            let first = align(next, offset, increment).filter(|v| *v <= max && *v < u64::MAX);
            let first = first.ok_or(Error::AutoincExhausted)?;
            let last = (count.max(1) - 1).saturating_mul(increment.max(1)).saturating_add(first).min(max);
            let after = last.saturating_add(1);
            match self.next.compare_exchange_weak(next, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.write_ahead(last, is_killed)?;
                    return Ok(first);
                }
                Err(now) => next = now,
            }
        }
    }

    /// A value was stored that the counter did not give: it goes on above it.
    pub fn raise(&self, used: u64, is_killed: &dyn Fn() -> bool) -> Result<()> {
        self.next.fetch_max(used.saturating_add(1), Ordering::Relaxed);
        // Also if the counter was above it: who raised it may have failed to write the mark.
        self.write_ahead(used, is_killed)
    }

    /// Restarts the counter at `next`; durable when this returns. The caller sees to it that no stored value is above.
    pub fn restart(&self, next: u64, is_killed: &dyn Fn() -> bool) -> Result<()> {
        let next = next.max(1);
        let write = self.write_of(next);
        let room = self.engine.room(Engine::write_bytes(&write), is_killed)?;
        let written = {
            let _writing = self.writing.lock();
            let written = self.engine.write_within(room, &write)?;
            self.mark.store(next, Ordering::Release);
            self.next.store(next, Ordering::Relaxed);
            written
        };
        Ok(self.engine.sync_write(&written)?)
    }

    /// Writes the exact value, on a clean close.
    pub fn save(&self) -> Result<()> {
        if self.peek() == self.mark.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Taken without the mutex: a full disk is told.
        let room = self.engine.room_for_relief(Engine::write_bytes(&self.write_of(u64::MAX)))?;
        let _writing = self.writing.lock();
        let next = self.peek();
        let _written = self.engine.write_within(room, &self.write_of(next))?;
        self.mark.store(next, Ordering::Release);
        Ok(())
    }

    /// Sees to it that the stored mark is above `value`.
    fn write_ahead(&self, value: u64, is_killed: &dyn Fn() -> bool) -> Result<()> {
        if value < self.mark.load(Ordering::Acquire) {
            return Ok(());
        }
        let mark = value.saturating_add(self.block);
        let write = self.write_of(mark);
        // Waited for without the mutex: each of those who need a mark obeys its own kill.
        let room = self.engine.room(Engine::write_bytes(&write), is_killed)?;
        let _writing = self.writing.lock();
        if value < self.mark.load(Ordering::Acquire) {
            return Ok(());
        }
        let _written = self.engine.write_within(room, &write)?;
        self.engine.crash_point(CrashPoint::CounterOrdered);
        self.mark.store(mark, Ordering::Release);
        Ok(())
    }

    fn write_of(&self, mark: u64) -> [WriteOp; 1] {
        [(self.key.clone(), Some(encode_counter(mark)))]
    }
}

/// The smallest value `>= next` that is congruent to `offset` modulo `increment`. An offset beyond the increment is
/// ignored, as the server documents.
pub fn align(next: u64, offset: u64, increment: u64) -> Option<u64> {
    let next = next.max(1);
    if increment <= 1 {
        return Some(next);
    }
    let offset = if offset > increment { 0 } else { offset };
    if next <= offset {
        return Some(offset);
    }
    (next - offset).div_ceil(increment).checked_mul(increment)?.checked_add(offset)
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn values_follow_offset_and_increment() {
        assert_eq!(align(1, 1, 1), Some(1));
        assert_eq!(align(1, 5, 10), Some(5));
        assert_eq!(align(5, 5, 10), Some(5));
        assert_eq!(align(6, 5, 10), Some(15));
        assert_eq!(align(16, 5, 10), Some(25));
        assert_eq!(align(1, 20, 10), Some(10), "an offset beyond the increment is ignored");
        assert_eq!(align(u64::MAX, 5, 10), Some(u64::MAX), "2^64 - 1 ends in 5");
        assert_eq!(align(u64::MAX, 6, 10), None);
    }
}
