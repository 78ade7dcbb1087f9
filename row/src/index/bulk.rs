//! Filling a table that nobody else can see yet.
//!
//! Rows are encoded into chunks that the engine writes at once, outside of any transaction: no locks, no undo, one
//! log record per chunk and no wait for the disk until the end. A failure or abort leaves the rows written so far; the
//! server drops such a table. Unique values are looked up in the engine and in the unwritten chunk; a row above all former
//! ones in clustered order (a copy in key order) needs no look-up of its clustered key.
//!
//! Sorted chunks handed to the engine as table files would go into [`Bulk::flush`].

use super::{encode_row, enforced};
use crate::error::{Error, Result};
use crate::rowcode::Record;
use crate::table::Table;
use std::collections::HashSet;

/// Bytes of keys and values that make a chunk full.
const CHUNK_BYTES: usize = 4 << 20;

/// A running fill.
#[derive(Default)]
pub struct Bulk {
    chunk: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
    /// Unique keys in the chunk.
    unique: HashSet<Vec<u8>>,
    /// The greatest clustered key so far.
    top: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    found: Vec<u8>,
}

impl Bulk {
    /// Begins a fill.
    pub fn begin(table: &Table) -> Result<Bulk> {
        let mut bulk = Bulk::default();
        table.edge(None, true, &mut bulk.top, &mut bulk.value)?;
        Ok(bulk)
    }

    /// Adds a row. On a duplicate nothing of it is added.
    pub fn insert(&mut self, table: &Table, record: Record<'_>) -> Result<()> {
        let start = self.chunk.len();
        let result = self.add(table, record);
        if result.is_err() {
            for (key, _) in self.chunk.drain(start..) {
                self.unique.remove(&key);
            }
        }
        result?;
        self.bytes += self.chunk[start..].iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len)).sum::<usize>();
        if self.bytes >= CHUNK_BYTES { self.flush(table) } else { Ok(()) }
    }

    /// Writes what was added so far, so that reads see it.
    pub fn flush(&mut self, table: &Table) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let seq = table.engine().write(&self.chunk, false)?;
        table.state.reborn(seq);
        self.chunk.clear();
        self.unique.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Ends the fill: everything is durable on return.
    pub fn finish(mut self, table: &Table) -> Result<()> {
        self.flush(table)?;
        Ok(table.engine().sync()?)
    }

    fn add(&mut self, table: &Table, record: Record<'_>) -> Result<()> {
        let row_id = match table.def.primary {
            Some(_) => 0,
            None => table.state.next_row_id()?,
        };
        table.clustered.encode_record(record, row_id, &mut self.key)?;
        encode_row(table, record, &mut self.value)?;
        let above_all = self.key > self.top;
        if let Some(primary) = table.def.primary.filter(|_| !above_all) {
            self.claim(table, primary)?;
        }
        self.chunk.push((self.key.clone(), Some(self.value.clone())));
        if self.key > self.top {
            self.top.clone_from(&self.key);
        }
        if table.def.primary.is_some() {
            self.unique.insert(self.key.clone());
        }
        for &i in &table.secondary {
            let codec = &table.indexes[i];
            codec.encode_record(record, row_id, &mut self.key)?;
            codec.encode_value(record, row_id, &mut self.value)?;
            if enforced(codec, record) {
                self.claim(table, i)?;
                self.unique.insert(self.key.clone());
            }
            self.chunk.push((self.key.clone(), Some(self.value.clone())));
        }
        Ok(())
    }

    fn claim(&mut self, table: &Table, index: usize) -> Result<()> {
        let engine = table.engine();
        if self.unique.contains(&self.key) || engine.get_at(&self.key, engine.visible(), &mut self.found)? {
            return Err(Error::Duplicate(index));
        }
        Ok(())
    }
}
