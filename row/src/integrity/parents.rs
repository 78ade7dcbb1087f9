//! ADD FOREIGN KEY: the rows that a table has must find their parents before a key comes into force.
//!
//! The key is in no entry of the catalog yet, so nobody who takes a parent away would look for these rows. Each parent is
//! therefore locked, shared, as by a statement that writes the row, until the transaction ends that gives the table the key. Who
//! brought a parent in, or takes it away, is waited for. Nobody may write to the table meanwhile, nor put another table in the place
//! of the parent: the server's metadata locks see to both.
//!
//! Rejected: to look for the rows at one read point, as CHECK TABLE does. A parent that goes afterwards, before the key is in force,
//! would leave its children behind.

use super::links::ChildScan;
use super::rows::with_workspace;
use crate::error::{Error, Result};
use crate::foreign::{ForeignKey, Reference};
use crate::kv::IndexId;
use crate::rowcode::Record;
use crate::session::Session;
use crate::table::Table;
use std::sync::Arc;

/// Rows between two looks at the kill flag.
const ROWS_PER_POLL: u64 = 1024;

impl Table {
    /// Locks a parent of each row by a key that the table is about to get. The columns of the key are stored ones, and the table has
    /// them already.
    ///
    /// Errors: `NoReferencedRow`.
    pub fn lock_parents(&self, session: &mut Session, key: &Arc<ForeignKey>) -> Result<()> {
        let name = self.state.name();
        let parent = session.store().catalog().get(&key.parent).ok();
        let reference = Arc::new(Reference::bind(key, &name, &self.state.meta, parent.as_deref()));
        if reference.child_columns.is_empty() {
            return Err(Error::invalid(format!("table '{name}' lacks a column of foreign key '{}'", key.name)));
        }
        let ChildScan { index, columns, wanted } = ChildScan::of(self, &reference)?;
        // The row, and the one before it: in the order of an index rows with the same values follow each other.
        let mut records = [vec![0; self.def.record_bytes as usize], vec![0; self.def.record_bytes as usize]];
        let mut has_former = false;
        let id = self.index_id(index);
        let none = self.engine().begin();
        let point = self.engine().read_point();
        let mut cursor = self.engine().cursor();
        cursor.open(&none, point.seq(), &id.prefix(), &IndexId(id.0 + 1).prefix())?;
        cursor.seek_ge(&none, &id.prefix())?;
        let mut rows = 0u64;
        while cursor.valid() {
            let [record, former] = &mut records;
            let decoded = match index {
                Some(index) => self.indexes[index].decode_into(cursor.key(), cursor.value(), record, Some(&wanted)),
                None => self.row.decode(cursor.key(), cursor.value(), record, Some(&wanted)),
            };
            decoded.map_err(|error| Error::from(error).read_at(self.engine(), cursor.key()))?;
            // SAFETY: columns of a key are no BLOBs, and no others are looked at.
            let (row, before) = unsafe { (Record::new(record), Record::new(former)) };
            let is_past = self.is_past(row);
            if !(is_past || columns.has_null(row) || has_former && columns.same(before, row)) {
                with_workspace(session, |work, session| {
                    // The key is in force for nobody yet.
                    if !reference.is_own() {
                        work.lock_name(session, &reference.parent)?;
                    }
                    match work.has_parent(session, &reference, &columns, row)? {
                        true => Ok(()),
                        false => Err(Error::NoReferencedRow(reference.clone())),
                    }
                })?;
            }
            if !is_past {
                has_former = true;
                records.swap(0, 1);
            }
            rows += 1;
            if rows.is_multiple_of(ROWS_PER_POLL) {
                session.check_killed()?;
            }
            cursor.next(&none)?;
        }
        Ok(())
    }
}
