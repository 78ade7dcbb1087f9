//! Which rows of an open table WITH SYSTEM VERSIONING are of the past ([`crate::versions`]), and what makes a row one.
//!
//! The row says it, and each entry of an index that has ROW END among its columns or in the primary key's.

use crate::def::TableDef;
use crate::error::{Error, Result};
use crate::keycode::KeyCodec;
use crate::rowcode::layout::Layout;
use crate::rowcode::{ColumnSet, Record};
use crate::schema::TableMeta;

/// The versions of an open table, bound to its records.
pub(crate) struct RowVersions {
    start: Layout,
    end: Layout,
    end_number: usize,
    greatest: Vec<u8>,
    without: Vec<usize>,
}

impl RowVersions {
    /// Of a table whose definition agrees with the catalog's.
    pub(crate) fn of(meta: &TableMeta, def: &TableDef) -> Result<Option<RowVersions>> {
        let Some(versions) = &meta.versions else { return Ok(None) };
        let number = |id: u32| {
            let number = meta.number_of(id).map(|number| number as usize);
            number.ok_or_else(|| Error::corruption("system versions by a column that the table does not have"))
        };
        let end_number = number(versions.end)?;
        Ok(Some(RowVersions {
            start: Layout::of(def, number(versions.start)?)?,
            end: Layout::of(def, end_number)?,
            end_number,
            greatest: versions.greatest.clone(),
            without: versions.without.iter().map(|id| number(*id)).collect::<Result<_>>()?,
        }))
    }

    /// What ROW END holds in a present row.
    pub(crate) fn greatest(&self) -> &[u8] {
        &self.greatest
    }

    /// The number of the column of ROW END.
    pub(crate) fn end_number(&self) -> usize {
        self.end_number
    }

    /// That column alone, for decoding.
    pub(crate) fn end_alone(&self, columns: usize) -> ColumnSet {
        let mut alone = ColumnSet::new(columns);
        alone.insert(self.end_number);
        alone
    }

    /// True for a row of the past, of whose record ROW END is filled.
    #[inline]
    pub(crate) fn is_past(&self, record: Record<'_>) -> bool {
        self.end.fixed(record.bytes()) != self.greatest
    }

    /// True if entries of an index tell it.
    pub(crate) fn is_told_by(&self, codec: &KeyCodec) -> bool {
        codec.covers(self.end_number)
    }

    /// True if a change of the columns of these numbers leaves the former row in the past.
    pub(crate) fn keeps(&self, mut columns: impl Iterator<Item = usize>) -> bool {
        columns.any(|column| !self.without.contains(&column))
    }

    /// True if a row has come before a time, so that it has been a present one for some.
    pub(crate) fn began_before(&self, record: Record<'_>, time: &[u8]) -> bool {
        self.start.fixed(record.bytes()) < time
    }

    /// The row begins at a time.
    pub(crate) fn set_start(&self, record: &mut [u8], time: &[u8]) -> Result<()> {
        set(&self.start, record, time)
    }

    /// The row ends at a time.
    pub(crate) fn set_end(&self, record: &mut [u8], time: &[u8]) -> Result<()> {
        set(&self.end, record, time)
    }
}

fn set(column: &Layout, record: &mut [u8], time: &[u8]) -> Result<()> {
    match column.carry(record, Some(time)) {
        true => Ok(()),
        false => Err(Error::invalid(format!("a time of {} bytes for a row of the past", time.len()))),
    }
}
