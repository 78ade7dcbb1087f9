//! Whether a row that was found by an entry of an index is one of the past, which counts for nothing: it is no parent, and no child.
//!
//! Unique keys of a table WITH SYSTEM VERSIONING have ROW END behind their columns, the primary key too, and with it the entries of other
//! indexes: these tell it. In a table without a primary key the row does.

use crate::error::{Error, Result};
use crate::kv::{SeqNo, Txn, ValueBuf};
use crate::row_versions::RowVersions;
use crate::rowcode::{ColumnSet, Record};
use crate::table::Table;
use std::sync::Arc;

/// Looks at the rows of one index.
pub(super) struct Past {
    table: Arc<Table>,
    number: usize,
    /// The entries tell it.
    is_told: bool,
    end: ColumnSet,
    record: Vec<u8>,
    row: ValueBuf,
}

impl Past {
    /// For the index of this number; `None` in a table that has no rows of the past.
    pub fn of(table: &Arc<Table>, number: usize) -> Option<Past> {
        let versions = table.versions.as_ref()?;
        Some(Past {
            number,
            is_told: versions.is_told_by(&table.indexes[number]),
            end: versions.end_alone(table.def.columns.len()),
            record: vec![0; table.def.record_bytes as usize],
            row: ValueBuf::default(),
            table: table.clone(),
        })
    }

    /// True if the entry says that its row is of the past. False if it is not, or if the entry does not say.
    pub fn is_entry(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        if !self.is_told {
            return Ok(false);
        }
        let decoded = self.table.indexes[self.number].decode_into(key, value, &mut self.record, Some(&self.end));
        decoded.map_err(|error| Error::from(error).read_at(self.table.engine(), key))?;
        Ok(self.is_decoded())
    }

    /// True if the row at this key is of the past, at a read point, and its entries do not say so. False if there is none.
    pub fn is_row(&mut self, txn: &Txn, seq: SeqNo, key: &[u8]) -> Result<bool> {
        if self.is_told || !txn.get(key, seq, &mut self.row)? {
            return Ok(false);
        }
        let decoded = self.table.row.decode(key, &self.row, &mut self.record, Some(&self.end));
        let is_past = decoded.map(|()| self.is_decoded());
        self.row.release();
        is_past.map_err(|error| Error::from(error).read_at(self.table.engine(), key))
    }

    fn is_decoded(&self) -> bool {
        // SAFETY: no BLOB is looked at.
        let record = unsafe { Record::new(&self.record) };
        self.table.versions.as_ref().is_some_and(|versions: &RowVersions| versions.is_past(record))
    }
}
