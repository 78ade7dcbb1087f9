//! CHECK TABLE: whether all rows of a child have their parents.
//!
//! Rows of the past count for nothing, on either side.
//!
//! Child and parent are read at one read point, so that a row and its parent that come or go together are seen together. The child's
//! rows are read in the order of its index for the key: rows with the same values follow each other, and ask once.

use super::check::seek_parent;
use super::links::{ChildScan, Columns, number_of};
use super::past::Past;
use super::rows::with_workspace;
use crate::catalog::define::Names;
use crate::error::{Error, Result};
use crate::foreign::Reference;
use crate::kv::{IndexId, SeqNo, Unread};
use crate::rowcode::Record;
use crate::session::Session;
use crate::table::Table;
use std::sync::Arc;

/// Rows between two looks at the kill flag.
const ROWS_PER_POLL: u64 = 1024;

impl Table {
    /// Checks that all rows have their parents, for each key of the table; findings are reported as lines. True if all is well. Rows
    /// that came while nothing was checked may lack a parent in a table that is whole.
    pub fn check_references(&self, session: &mut Session, report: &mut dyn FnMut(&str)) -> Result<bool> {
        // Nobody drops, empties or replaces a parent while it is read. What is known of it may be older than its lock.
        for reference in self.references().iter().filter(|reference| !reference.is_own()) {
            with_workspace(session, |work, session| work.lock_name(session, &reference.parent))?;
        }
        let mut good = true;
        for reference in self.references() {
            let orphans = self.count_orphans(session, &reference)?;
            if orphans > 0 {
                let (rows, parent) =
                    (if orphans == 1 { "row has" } else { "rows have" }, session.store().quoted(&reference.parent));
                report(&format!(
                    "foreign key `{}`: {orphans} {rows} no row in {parent}",
                    reference.key.name.replace('`', "``")
                ));
                good = false;
            }
        }
        Ok(good)
    }

    /// The keys of which the table is the child, as they are now.
    fn references(&self) -> Vec<Arc<Reference>> {
        self.state.relations().map_or_else(Vec::new, |relations| relations.parents.clone())
    }

    /// How many rows have no parent by this key.
    fn count_orphans(&self, session: &Session, reference: &Reference) -> Result<u64> {
        let point = self.engine().read_point();
        let seq = point.seq();
        let mut parents = Parents::open(session, reference, seq)?;
        let ChildScan { index, columns, wanted } = ChildScan::of(self, reference)?;
        let mut record = vec![0; self.def.record_bytes as usize];
        let id = self.index_id(index);
        let mut cursor = self.engine().cursor();
        cursor.open(session.txn(), seq, &id.prefix(), &IndexId(id.0 + 1).prefix())?;
        cursor.seek_ge(session.txn(), &id.prefix())?;
        let (mut orphans, mut rows) = (0, 0u64);
        while cursor.valid() {
            let decoded = match index {
                Some(index) => {
                    self.indexes[index].decode_into(cursor.key(), cursor.value(), &mut record, Some(&wanted))
                }
                None => self.row.decode(cursor.key(), cursor.value(), &mut record, Some(&wanted)),
            };
            decoded.map_err(|error| Error::from(error).read_at(self.engine(), cursor.key()))?;
            // SAFETY: columns of a key are no BLOBs, and no others are looked at.
            let row = unsafe { Record::new(&record) };
            if !columns.has_null(row) && !self.is_past(row) && !parents.have(session, &columns, row)? {
                orphans += 1;
            }
            rows += 1;
            if rows % ROWS_PER_POLL == 0 {
                session.check_killed()?;
            }
            cursor.next(session.txn())?;
        }
        cursor.close();
        Ok(orphans)
    }
}

/// The parent's rows at one read point.
struct Parents {
    /// The parent and the number of its index; `None`: there is none that fits.
    parent: Option<(Arc<Table>, usize)>,
    past: Option<Past>,
    seq: SeqNo,
    key: Vec<u8>,
    row_key: Vec<u8>,
    /// The key that was looked for last, and whether it was there.
    last: (Vec<u8>, bool),
}

impl Parents {
    fn open(session: &Session, reference: &Reference, seq: SeqNo) -> Result<Parents> {
        let parent = match reference.parent_index {
            None => None,
            Some(place) => {
                let parent = session.store().open_by_catalog(&reference.parent)?;
                let number = number_of(&parent, place)?;
                Some((parent, number))
            }
        };
        let past = parent.as_ref().and_then(|(parent, number)| Past::of(parent, *number));
        Ok(Parents { parent, past, seq, key: Vec::new(), row_key: Vec::new(), last: (Vec::new(), false) })
    }

    /// True if some row has the values.
    fn have(&mut self, session: &Session, columns: &Columns, row: Record<'_>) -> Result<bool> {
        let Some((parent, number)) = &self.parent else { return Ok(false) };
        let codec = &parent.indexes[*number];
        let Some(sought) = seek_parent((parent, *number), columns, row, &mut self.key)? else { return Ok(false) };
        if self.key == self.last.0 {
            return Ok(self.last.1);
        }
        let is_there = match sought.is_whole {
            true => session.txn().get(&self.key, self.seq, &mut Unread)?,
            false => {
                let mut cursor = parent.engine().cursor();
                let (prefix, suffix) = self.key.split_at(sought.in_key);
                let end = crate::keycode::prefix_end(prefix).unwrap_or_default();
                cursor.open(session.txn(), self.seq, prefix, &end)?;
                cursor.seek_ge(session.txn(), prefix)?;
                let mut is_there = false;
                while !is_there && cursor.valid() {
                    is_there = cursor.value().starts_with(suffix);
                    if let Some(past) = self.past.as_mut().filter(|_| is_there) {
                        codec.clustered_key_from(cursor.key(), cursor.value(), &mut self.row_key)?;
                        is_there = !past.is_entry(cursor.key(), cursor.value())?
                            && !past.is_row(session.txn(), self.seq, &self.row_key)?;
                    }
                    cursor.next(session.txn())?;
                }
                is_there
            }
        };
        self.key.clone_into(&mut self.last.0);
        self.last.1 = is_there;
        Ok(is_there)
    }
}
