//! Filling a table that nobody else can see yet.
//!
//! Rows go into a transaction of the engine's that belongs to the fill alone: no locks, no wait for the disk until the end, and once
//! they no longer fit in memory they are written as table files, which stay where they are. A failure or abort leaves nothing. A
//! unique value is looked up among what was written and what was there; a row above all former ones in clustered order (a copy in
//! key order) needs no look-up of its clustered key.
//!
//! Rejected: chunks written past all transactions (each row goes through the log, a memtable and several merges; CREATE TABLE ...
//! SELECT of ten million rows wrote twice as much and took half as long again).

use super::entries::{Sink, Written};
use super::{encode_row, put_row};
use crate::error::{Error, Result};
use crate::kv::{CrashPoint, LockOwner, ScratchBuf, SeqNo, Txn, ValueBuf};
use crate::rowcode::{Apart, Record};
use crate::table::Table;
use std::sync::Arc;

/// A running fill.
pub struct Bulk {
    txn: Txn,
    /// The greatest clustered key so far.
    top: Vec<u8>,
    /// Clustered key and row.
    row: (Vec<u8>, ScratchBuf),
    others: Collected,
    found: ValueBuf,
}

impl Bulk {
    /// Begins a fill.
    pub fn begin(table: &Table) -> Result<Bulk> {
        let mut top = Vec::new();
        table.edge(None, true, &mut top, &mut Vec::new())?;
        let (row, others) = Default::default();
        Ok(Bulk { txn: table.engine().begin(), top, row, others, found: ValueBuf::default() })
    }

    /// Whom to interrupt when the fill is to end early.
    pub fn owner(&self) -> &Arc<LockOwner> {
        self.txn.owner()
    }

    /// Adds a row; gives its hidden id, 0 where rows have none. On a duplicate nothing of it is added.
    pub fn insert(&mut self, table: &Table, record: Record<'_>) -> Result<u64> {
        let (apart, row_id) = self.encode(table, record)?;
        put_row(&mut self.txn, &self.row.0, &self.row.1, &apart)?;
        for (key, value) in &self.others.entries[..self.others.count] {
            self.txn.put(key, value)?;
        }
        if self.row.0 > self.top {
            self.top.clone_from(&self.row.0);
        }
        Ok(row_id)
    }

    /// Ends the fill: everything is durable on return.
    pub fn finish(mut self, table: &Table) -> Result<()> {
        table.engine().crash_point(CrashPoint::FillEnded);
        self.txn.commit()?;
        table.state.raise_min_snapshot(table.engine().visible());
        Ok(table.engine().sync()?)
    }

    /// Makes the row's entries, and looks for others with its unique values. Its hidden id too, 0 where rows have none.
    fn encode<'r>(&mut self, table: &Table, record: Record<'r>) -> Result<(Apart<'r>, u64)> {
        let row_id = match table.def.primary {
            Some(_) => 0,
            None => table.state.next_row_id(&|| self.txn.owner().is_interrupted())?,
        };
        let (key, value) = &mut self.row;
        table.clustered.encode_record(record, row_id, key)?;
        let apart = encode_row(table, record, value)?;
        if let Some(primary) = table.def.primary.filter(|_| *key <= self.top) {
            claim(&self.txn, key, primary, &mut self.found)?;
        }
        self.others.count = 0;
        for index in &table.written {
            let (txn, found, to) = (&self.txn, &mut self.found, &mut self.others);
            index.entries(record, row_id, &mut Collecting { txn, found, index, to })?;
        }
        Ok((apart, row_id))
    }
}

/// Entries of a row, in memory that is used again.
#[derive(Default)]
struct Collected {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// So many of them are the row's.
    count: usize,
}

/// Looks for others with unique values while it collects.
struct Collecting<'a> {
    txn: &'a Txn,
    found: &'a mut ValueBuf,
    index: &'a Written,
    to: &'a mut Collected,
}

impl Sink for Collecting<'_> {
    fn room(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        let Collected { entries, count } = &mut *self.to;
        if entries.len() == *count {
            entries.push(Default::default());
        }
        let (key, value) = &mut entries[*count];
        (key, value)
    }
    fn take(&mut self, claimed: bool) -> Result<()> {
        self.to.count += 1;
        if !claimed {
            return Ok(());
        }
        let key = &self.to.entries[self.to.count - 1].0;
        claim(self.txn, key, self.index.number, self.found)
    }
}

/// An error if a row has this unique key.
fn claim(txn: &Txn, key: &[u8], index: usize, found: &mut ValueBuf) -> Result<()> {
    if txn.get(key, SeqNo::MAX, found)? { Err(Error::Duplicate(index)) } else { Ok(()) }
}
