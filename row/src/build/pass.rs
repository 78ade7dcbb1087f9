//! Following what has changed since the last snapshot.

use super::entries::{Collected, Entry};
use super::{Build, Worker};
use crate::error::Result;
use crate::kv::{Engine, IndexId, SameKey, ValueBuf, WriteOp};
use crate::progress::Step;

/// Values of so many bytes are not put into a write with others.
const LARGE: usize = 1 << 20;
/// Bytes of a write.
const WRITE_BYTES: usize = 256 << 10;

/// Writes outside of transactions, some at once.
struct Writes<'a> {
    engine: &'a Engine,
    ops: Vec<WriteOp>,
    bytes: usize,
    is_killed: &'a dyn Fn() -> bool,
}

impl Writes<'_> {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if value.is_some_and(|value| value.len() >= LARGE) {
            return self.push_large(key, value.unwrap_or_default());
        }
        self.bytes += key.len() + value.map_or(0, <[u8]>::len) + 64;
        self.ops.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        if self.bytes >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// A transaction writes a large value to a file.
    fn push_large(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.flush()?;
        let mut txn = self.engine.begin();
        txn.put(key, value)?;
        Ok(txn.commit()?)
    }

    /// Durable before anything that is ordered later is.
    fn flush(&mut self) -> Result<()> {
        if !self.ops.is_empty() {
            let room = self.engine.room(Engine::write_bytes(&self.ops), self.is_killed)?;
            let _ordered = self.engine.write_within(room, &self.ops)?;
            self.ops.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}

impl Build {
    /// Brings the indexes from the snapshot that they are of to a new one.
    pub(super) fn pass(&mut self, worker: &mut Worker<'_>) -> Result<()> {
        let Worker { rows, is_killed, told } = worker;
        let is_killed = *is_killed;
        let tick = || Build::interrupted(is_killed);
        let engine = self.table.engine().clone();
        tick()?;
        // In this order: see the module.
        let next = engine.read_point();
        let noted = self.keys.take()?;
        self.progress.begin_pass(noted.entries());
        told(&self.progress);
        let mut writes = Writes { engine: &engine, ops: Vec::new(), bytes: 0, is_killed: &is_killed };
        let mut coming = engine.sorter();
        let (mut old, mut new) = (Collected::default(), Collected::default());
        let mut found = ValueBuf::default();
        let (mut was, mut is) = (ValueBuf::default(), ValueBuf::default());
        let mut last = Vec::new();
        let mut seen = 0_u32;
        noted.each(&tick, |key, _| -> Result<()> {
            if key == last {
                return Ok(());
            }
            key.clone_into(&mut last);
            seen += 1;
            if seen.is_multiple_of(64) {
                tick()?;
                self.progress.add_rows(64);
            }
            if engine.locks().is_locked(key) || engine.changed_since(key, next.seq())? {
                self.keys.note(key);
            }
            let had = engine.get_at(key, self.point.seq(), &mut was)?;
            let has = engine.get_at(key, next.seq(), &mut is)?;
            if had == has && (!had || *was == *is) {
                // What was undone, or came with the snapshot before: most keys that are noted again.
                return Ok(());
            }
            let row_id = self.row_id(key)?;
            for (there, row, again, entries) in [(had, &mut was, true, &mut old), (has, &mut is, false, &mut new)] {
                let record = there.then(|| self.record_of(key, row, &mut **rows, again)).transpose()?.flatten();
                self.collect(record, row_id, entries)?;
                row.release();
            }
            for Entry { key, .. } in old.entries.iter().filter(|entry| !new.entries.contains(entry)) {
                writes.push(key, None)?;
            }
            for Entry { key, value } in new.entries.iter().filter(|entry| !old.entries.contains(entry)) {
                coming.put(key, value, &tick)?;
            }
            Ok(())
        })?;
        writes.flush()?;
        last.clear();
        let mut same = None;
        let arrived = coming.each(&tick, |key, value| -> Result<()> {
            if key == last || self.is_taken(&engine, key, &mut found)? {
                same = Some(SameKey { key: key.to_vec(), value: value.to_vec() });
                return Err(crate::error::Error::invalid("a unique value is there already"));
            }
            key.clone_into(&mut last);
            writes.push(key, Some(value))
        });
        if let Some(same) = same {
            return Err(self.duplicate(same, next.seq(), &mut **rows));
        }
        arrived?;
        writes.flush()?;
        self.point = next;
        self.progress.enter(Step::Following);
        told(&self.progress);
        Ok(())
    }

    /// True if another row has this key in an index. It cannot be but in a unique one: in others a key tells the row.
    fn is_taken(&self, engine: &Engine, key: &[u8], found: &mut ValueBuf) -> Result<bool> {
        let id = IndexId::of(key);
        let is_rows = || self.rows.as_ref().is_some_and(|rows| rows.id == id && rows.number.is_some());
        let is_unique = self.index(id).map_or_else(is_rows, |index| index.codec.is_unique());
        Ok(is_unique && engine.get_at(key, engine.visible(), found)?)
    }
}
