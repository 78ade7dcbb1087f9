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
use crate::kv::IndexId;
use crate::rowcode::ColumnSet;
use crate::rowcode::layout::Layout;
use crate::schema::TableMeta;
use crate::table::Table;
use crate::ttl::expires_at;

/// When rows of an open table expire.
pub(crate) struct Expiry {
    /// The column's number.
    pub number: usize,
    layout: Layout,
    columns: ColumnSet,
    seconds: u64,
    /// Numbers of the secondary indexes whose entries tell it.
    told_by: Vec<bool>,
}

impl Expiry {
    /// Of a table whose definition agrees with the catalog's.
    pub fn of(meta: &TableMeta, def: &TableDef) -> Result<Option<Expiry>> {
        let Some(ttl) = &meta.ttl else { return Ok(None) };
        let number = meta.columns.iter().position(|column| column.id == ttl.column);
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

impl Table {
    /// True if rows of the table expire.
    #[inline]
    pub fn expires(&self) -> bool {
        self.expiry.is_some()
    }

    /// When the row under `key` expires. `room` is memory for a record.
    pub(crate) fn moment_of(&self, key: &[u8], row: &[u8], room: &mut Vec<u8>) -> Result<Option<u64>> {
        let Some(expiry) = &self.expiry else { return Ok(None) };
        room.resize(self.def.record_bytes as usize, 0);
        let decoded = self.row.decode(key, row, room, Some(&expiry.columns));
        decoded.map_err(|error| Error::from(error).read_at(self.engine(), key))?;
        Ok(expiry.moment(room))
    }

    /// When the row of an entry expires, which an index tells that knows it.
    pub(crate) fn moment_of_entry(
        &self,
        index: usize,
        key: &[u8],
        value: &[u8],
        room: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        let Some(expiry) = &self.expiry else { return Ok(None) };
        room.resize(self.def.record_bytes as usize, 0);
        let decoded = self.indexes[index].decode_into(key, value, room, Some(&expiry.columns));
        decoded.map_err(|error| Error::from(error).read_at(self.engine(), key))?;
        Ok(expiry.moment(room))
    }

    /// True if the row under `key` has expired at `now`.
    pub(crate) fn has_expired(&self, key: &[u8], row: &[u8], now: u64, room: &mut Vec<u8>) -> Result<bool> {
        Ok(self.moment_of(key, row, room)?.is_some_and(|moment| moment <= now))
    }

    /// An index that is in the order in which rows expire, and the key from which on its rows expire at all.
    pub(crate) fn expiry_order(&self) -> Result<Option<(usize, Vec<u8>)>> {
        let Some(expiry) = &self.expiry else { return Ok(None) };
        let leads = |index: &usize| {
            let first = self.def.indexes[*index].parts.first();
            first.is_some_and(|part| part.column as usize == expiry.number && !part.descending)
                && self.written.iter().any(|written| written.number == *index && written.terms.is_none())
        };
        let Some(index) = self.secondary.iter().copied().find(leads) else { return Ok(None) };
        // The image of 0, which is not NULL, and what comes after all rows with it.
        let image = vec![0; self.def.indexes[index].parts[0].store_length as usize];
        let mut from = Vec::new();
        self.indexes[index].encode_image(&image, &mut from)?;
        match crate::keycode::prefix_end_in_place(&mut from) && from.len() >= IndexId::LEN {
            true => Ok(Some((index, from))),
            false => Ok(None),
        }
    }
}
