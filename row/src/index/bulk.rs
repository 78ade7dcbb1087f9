//! Filling a table that nobody else can see yet.
//!
//! Rows go into a transaction of the engine's that belongs to the fill alone: no locks, no wait for the disk until the end, and once
//! they no longer fit in memory they are written as table files, which stay where they are. A failure or abort leaves nothing. A
//! unique value is looked up among what was written and what was there; a row above all former ones in clustered order (a copy in
//! key order) needs no look-up of its clustered key.
//!
//! Rejected: chunks written past all transactions (each row goes through the log, a memtable and several merges; CREATE TABLE ...
//! SELECT of ten million rows wrote twice as much and took half as long again).

use super::{encode_row, enforced, put_row};
use crate::error::{Error, Result};
use crate::kv::{CrashPoint, LockOwner, SeqNo, Txn};
use crate::rowcode::{Apart, Record};
use crate::table::Table;
use std::sync::Arc;
use strata_engine::base::value::Value;

/// A running fill.
pub struct Bulk {
    txn: Txn,
    /// The greatest clustered key so far.
    top: Vec<u8>,
    /// Key and value of the row in each index: the clustered one, then the others.
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    found: Value,
}

impl Bulk {
    /// Begins a fill.
    pub fn begin(table: &Table) -> Result<Bulk> {
        let mut top = Vec::new();
        table.edge(None, true, &mut top, &mut Vec::new())?;
        let entries = vec![Default::default(); 1 + table.secondary.len()];
        Ok(Bulk { txn: table.engine().begin(), top, entries, found: Value::default() })
    }

    /// Whom to interrupt when the fill is to end early.
    pub fn owner(&self) -> &Arc<LockOwner> {
        self.txn.owner()
    }

    /// Adds a row. On a duplicate nothing of it is added.
    pub fn insert(&mut self, table: &Table, record: Record<'_>) -> Result<()> {
        let apart = self.encode(table, record)?;
        let [(key, value), others @ ..] = &self.entries[..] else { unreachable!("there is a clustered index") };
        put_row(&mut self.txn, key, value, &apart)?;
        for (key, value) in others {
            self.txn.put(key, value)?;
        }
        if self.entries[0].0 > self.top {
            self.top.clone_from(&self.entries[0].0);
        }
        Ok(())
    }

    /// Ends the fill: everything is durable on return.
    pub fn finish(mut self, table: &Table) -> Result<()> {
        table.engine().crash_point(CrashPoint::FillEnded);
        self.txn.commit()?;
        table.state.raise_min_snapshot(table.engine().visible());
        Ok(table.engine().sync()?)
    }

    /// Makes the row's entries, and looks for others with its unique values.
    fn encode<'r>(&mut self, table: &Table, record: Record<'r>) -> Result<Apart<'r>> {
        let row_id = match table.def.primary {
            Some(_) => 0,
            None => table.state.next_row_id()?,
        };
        let [(key, value), others @ ..] = &mut self.entries[..] else { unreachable!("there is a clustered index") };
        table.clustered.encode_record(record, row_id, key)?;
        let apart = encode_row(table, record, value)?;
        if let Some(primary) = table.def.primary.filter(|_| *key <= self.top) {
            claim(&self.txn, key, primary, &mut self.found)?;
        }
        for (&index, (key, value)) in table.secondary.iter().zip(others) {
            let codec = &table.indexes[index];
            codec.encode_record(record, row_id, key)?;
            codec.encode_value(record, row_id, value)?;
            if enforced(codec, record) {
                claim(&self.txn, key, index, &mut self.found)?;
            }
        }
        Ok(apart)
    }
}

/// An error if a row has this unique key.
fn claim(txn: &Txn, key: &[u8], index: usize, found: &mut Value) -> Result<()> {
    if txn.get(key, SeqNo::MAX, found)? { Err(Error::Duplicate(index)) } else { Ok(()) }
}
