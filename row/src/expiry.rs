//! Which rows of an open table have expired at a moment.
//!
//! A row that has expired may still be there: the purge (`crate::purge`) removes it some time later. Until then it is kept from whoever
//! reads rows in a statement's name (`crate::scan::fetch`), and is no obstacle to a row with the same unique values, which takes its place
//! (`crate::index`). Whatever works on all rows and entries as they are stored meets it: CHECK TABLE, statistics, builds of indexes.
//!
//! The moment is that of the statement ([`Session::horizon`](crate::session::Session)), so a statement sees a row everywhere or nowhere.
//!
//! The row says when it expires. An entry of an index does only if the column is one of its own, or of the primary key; else a scan that
//! needs nothing but entries looks up the row of each.
//!
//! Rejected: the column in every index of such a table. All entries of a row would have to be written anew each time its time to live
//! is prolonged, which is what tables of sessions and caches do most.

use crate::def::TableDef;
use crate::error::{Error, Result};
use crate::rowcode::ColumnSet;
use crate::rowcode::layout::Layout;
use crate::schema::TableMeta;
use crate::ttl::expires_at;

/// When rows of an open table expire.
pub(crate) struct Expiry {
    /// The column's number.
    pub number: usize,
    layout: Layout,
    /// The column alone, for decoding.
    pub columns: ColumnSet,
    seconds: u64,
    /// Numbers of the secondary indexes whose entries tell it.
    told_by: Vec<bool>,
}

impl Expiry {
    /// Of a table whose definition agrees with the catalog's.
    pub fn of(meta: &TableMeta, def: &TableDef) -> Result<Option<Expiry>> {
        let Some(ttl) = &meta.ttl else { return Ok(None) };
        let number = meta.number_of(ttl.column).map(|number| number as usize);
        let number = number.ok_or_else(|| Error::corruption("a TTL of a column that the table does not have"))?;
        let mut columns = ColumnSet::new(def.columns.len());
        columns.insert(number);
        let has = |index: usize| def.indexes[index].parts.iter().any(|part| part.column as usize == number);
        let in_primary = def.primary.is_some_and(has);
        let told_by = (0..def.indexes.len()).map(|index| in_primary || has(index)).collect();
        Ok(Some(Expiry { number, layout: Layout::of(def, number)?, columns, seconds: ttl.seconds, told_by }))
    }

    /// When a row expires of whose record the column is filled, in seconds since 1970; `None`: never.
    pub fn moment(&self, record: &[u8]) -> Option<u64> {
        match self.layout.is_null(record) {
            true => None,
            false => expires_at(self.layout.kind, self.layout.fixed(record), self.seconds),
        }
    }

    /// True if entries of the index of this number tell it.
    pub fn is_told_by(&self, index: usize) -> bool {
        self.told_by[index]
    }
}
