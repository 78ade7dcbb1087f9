//! The indexes that are built, and the entries that a row has in them.

use super::Build;
use crate::error::Result;
use crate::index::entries::{Sink, Written};
use crate::kv::{IndexId, Sorter, Tick};
use crate::rowcode::Record;

/// An index that is being built.
pub(super) struct BuiltIndex {
    pub id: IndexId,
    /// What its entries are made by; there as soon as the build has begun.
    pub written: Option<Written>,
}

impl BuiltIndex {
    /// One of which the number alone is known.
    pub fn reserved(id: IndexId) -> BuiltIndex {
        BuiltIndex { id, written: None }
    }

    pub fn written(&self) -> &Written {
        self.written.as_ref().expect("a build that has begun")
    }
}

/// Puts entries into a sorter.
pub(super) struct Sorting<'a> {
    pub sorter: &'a mut Sorter,
    pub tick: Tick<'a>,
    pub room: &'a mut (Vec<u8>, Vec<u8>),
}

impl Sink for Sorting<'_> {
    #[inline]
    fn room(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        let (key, value) = &mut *self.room;
        (key, value)
    }
    #[inline]
    fn take(&mut self, _claimed: bool) -> Result<()> {
        Ok(self.sorter.put(&self.room.0, &self.room.1, self.tick)?)
    }
}

/// Entries of a row, by index and key.
#[derive(Default)]
pub(super) struct Collected {
    pub entries: Vec<Entry>,
    room: (Vec<u8>, Vec<u8>),
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
    /// All entries of a row, in place of those that `to` has.
    pub(super) fn collect(&self, record: Option<Record<'_>>, row_id: u64, to: &mut Collected) -> Result<()> {
        to.entries.clear();
        let Some(record) = record else { return Ok(()) };
        self.built.iter().try_for_each(|built| built.written().entries(record, row_id, to))
    }
}
