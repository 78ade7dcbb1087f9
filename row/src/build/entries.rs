//! The indexes that are built, and the entries that a row has in them: its own, too, if the table is rebuilt.

use super::Build;
use crate::error::{Error, Result};
use crate::index::entries::{Sink, Written};
use crate::keycode::KeyCodec;
use crate::kv::limits::VALUE_BYTES_MAX;
use crate::kv::{IndexId, Sorter, Tick};
use crate::rowcode::{Record, RowCodec};
use std::sync::Arc;

/// The index of the rows of a table that is rebuilt.
pub(super) struct BuiltRows {
    pub id: IndexId,
    /// The number of the primary key.
    pub number: Option<usize>,
    pub codec: Arc<KeyCodec>,
    pub row: RowCodec,
}

/// Memory for an entry: its key and its value.
pub(super) type Room = (Vec<u8>, Vec<u8>);

fn check_size(bytes: usize) -> Result<()> {
    match bytes <= VALUE_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::RowTooLong { bytes, limit: VALUE_BYTES_MAX }),
    }
}

impl BuiltRows {
    /// Puts a row into a sorter. Long values go from where they are.
    fn sort(&self, record: Record<'_>, row_id: u64, to: &mut Sorting<'_>) -> Result<()> {
        self.codec.encode_record(record, row_id, &mut to.room.0)?;
        let apart = self.row.encode_apart(record, &mut to.room.1);
        check_size(to.room.1.len() + apart.len())?;
        match apart.is_empty() {
            true => to.sorter.put(&to.room.0, &to.room.1, to.tick)?,
            false => to.sorter.put_parts(&to.room.0, &apart.parts(&to.room.1), to.tick)?,
        }
        Ok(())
    }
}

/// Puts entries into a sorter.
pub(super) struct Sorting<'a> {
    pub sorter: Sorter,
    pub tick: Tick<'a>,
    pub room: Room,
}

impl Sink for Sorting<'_> {
    #[inline]
    fn room(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        let (key, value) = &mut self.room;
        (key, value)
    }
    #[inline]
    fn take(&mut self, _claimed: bool) -> Result<()> {
        Ok(self.sorter.put(&self.room.0, &self.room.1, self.tick)?)
    }
}

/// Entries of a row.
#[derive(Default)]
pub(super) struct Collected {
    pub entries: Vec<Entry>,
    room: Room,
}

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Sink for Collected {
    fn room(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        (&mut self.room.0, &mut self.room.1)
    }
    fn take(&mut self, _claimed: bool) -> Result<()> {
        self.entries.push(Entry { key: self.room.0.clone(), value: self.room.1.clone() });
        Ok(())
    }
}

impl Build {
    /// The index of this id, if it is a secondary one.
    pub(super) fn index(&self, id: IndexId) -> Option<&Written> {
        self.built.iter().find(|(built, _)| *built == id).map(|(_, written)| written)
    }

    /// All entries of a row, in place of those that `to` has.
    pub(super) fn collect(&self, record: Option<Record<'_>>, row_id: u64, to: &mut Collected) -> Result<()> {
        to.entries.clear();
        let Some(record) = record else { return Ok(()) };
        if let Some(rows) = &self.rows {
            rows.codec.encode_record(record, row_id, &mut to.room.0)?;
            rows.row.encode(record, &mut to.room.1);
            check_size(to.room.1.len())?;
            to.take(true)?;
        }
        self.built.iter().try_for_each(|(_, written)| written.entries(record, row_id, to))
    }

    /// Puts all entries of a row into a sorter.
    #[inline]
    pub(super) fn sort(&self, record: Record<'_>, row_id: u64, to: &mut Sorting<'_>) -> Result<()> {
        if let Some(rows) = &self.rows {
            rows.sort(record, row_id, to)?;
        }
        self.built.iter().try_for_each(|(_, written)| written.entries(record, row_id, to))
    }
}
