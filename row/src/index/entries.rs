//! Which entries a row has in a secondary index.
//!
//! Writers, fills and CHECK ask an index for its entries and give it a [`Sink`] for them; none of them knows how many there are.
//! An ordinary index has one entry, made by its [`KeyCodec`] in the sink's own memory. An index of another kind has any number,
//! made of the terms that its source finds in the row ([`Terms`]). Everything here is compiled for each kind and sink by itself.
//!
//! Entries of a row come in the order of their keys and no key comes twice, so that all writers lock them in one order and a
//! row does not meet itself in a unique index.
//!
//! Rejected: one list of entries for all kinds, made before it is written. Each row of an ordinary index would pay for the list.

use crate::def::{IndexKind, TableDef, Terms};
use crate::error::{Error, Result};
use crate::keycode::{KeyCodec, TERM_BYTES_MAX};
use crate::rowcode::Record;
use crate::rowcode::layout::Layout;
use std::cmp::Ordering;
use std::sync::Arc;

/// Takes the entries of a row.
pub(crate) trait Sink {
    /// Memory for the next entry: its key and its value.
    fn room(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>);
    /// The entry is there. `claimed`: no other row may have its key.
    fn take(&mut self, claimed: bool) -> Result<()>;
}

/// What an update does to an entry.
pub(crate) enum Change<'a> {
    /// The row has it no more.
    Leaves { key: &'a [u8], claimed: bool },
    /// The row has it still, and it is written again.
    Stays { key: &'a [u8], value: &'a [u8], claimed: bool },
    /// The row has got it.
    Comes { key: &'a [u8], value: &'a [u8], claimed: bool },
}

/// A row and what it becomes.
#[derive(Clone, Copy)]
pub(crate) struct Rewrite<'a> {
    pub(super) old: Record<'a>,
    pub(super) new: Record<'a>,
    pub(super) row_id: u64,
    /// Entries that stay as they are, are told as well.
    pub(super) all: bool,
}

/// Memory for the entries of an update.
#[derive(Default)]
pub(crate) struct ChangeRoom {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) old_key: Vec<u8>,
    pub(super) old_value: Vec<u8>,
}

/// The entries of rows in one index.
pub(crate) trait Entries {
    /// All entries of a row.
    fn entries<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()>;
    /// Their keys alone.
    fn keys<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()>;
    /// What becomes of the entries when a row is replaced.
    fn changes<F>(&self, row: Rewrite<'_>, room: &mut ChangeRoom, change: F) -> Result<()>
    where
        F: FnMut(Change<'_>) -> Result<()>;
}

/// True if this record's value must be alone in the index.
#[inline]
fn claimed(codec: &KeyCodec, record: Record<'_>) -> bool {
    codec.is_unique() && !codec.has_null_part(record)
}

impl Entries for KeyCodec {
    #[inline]
    fn entries<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()> {
        let (key, value) = sink.room();
        self.encode_record(record, row_id, key)?;
        self.encode_value(record, row_id, value)?;
        sink.take(claimed(self, record))
    }

    #[inline]
    fn keys<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()> {
        self.encode_record(record, row_id, sink.room().0)?;
        sink.take(claimed(self, record))
    }

    #[inline]
    fn changes<F>(&self, row: Rewrite<'_>, room: &mut ChangeRoom, mut change: F) -> Result<()>
    where
        F: FnMut(Change<'_>) -> Result<()>,
    {
        let Rewrite { old, new, row_id, all } = row;
        let ChangeRoom { key, value, old_key, old_value } = room;
        self.encode_record(old, row_id, old_key)?;
        self.encode_record(new, row_id, key)?;
        self.encode_value(new, row_id, value)?;
        if old_key == key {
            if !all {
                self.encode_value(old, row_id, old_value)?;
            }
            return match all || old_value != value {
                true => change(Change::Stays { key, value, claimed: claimed(self, new) }),
                false => Ok(()),
            };
        }
        change(Change::Leaves { key: old_key, claimed: claimed(self, old) })?;
        change(Change::Comes { key, value, claimed: claimed(self, new) })
    }
}

/// The entries of an index that has one for each term of a row.
pub(crate) struct TermEntries {
    codec: Arc<KeyCodec>,
    /// The columns that the terms are found in.
    columns: Vec<Layout>,
    source: Arc<dyn Terms>,
}

impl TermEntries {
    /// Of index number `index` of `def`.
    pub(crate) fn new(
        def: &TableDef,
        index: usize,
        codec: &Arc<KeyCodec>,
        source: Arc<dyn Terms>,
    ) -> Result<TermEntries> {
        let layouts = def.indexes[index].parts.iter().map(|part| Layout::of(def, part.column as usize));
        let columns = layouts.collect::<std::result::Result<_, _>>()?;
        Ok(TermEntries { codec: codec.clone(), columns, source })
    }

    /// Keys and values in order.
    pub(crate) fn of(&self, record: Record<'_>, row_id: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let values: Vec<Option<&[u8]>> = self.columns.iter().map(|column| column.value(record)).collect();
        let mut entries = Vec::new();
        let mut failed = Ok(());
        self.source.terms(&values, &mut |term, payload| {
            if failed.is_ok() {
                failed = self.entry(term, payload, record, row_id).map(|entry| entries.push(entry));
            }
        });
        failed?;
        // Of terms that come again the first one counts.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|again, first| again.0 == first.0);
        Ok(entries)
    }

    fn entry(&self, term: &[u8], payload: &[u8], record: Record<'_>, row_id: u64) -> Result<(Vec<u8>, Vec<u8>)> {
        if term.len() > TERM_BYTES_MAX {
            return Err(Error::invalid(format!("a term of {} bytes, the limit is {TERM_BYTES_MAX}", term.len())));
        }
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.codec.encode_term(term, payload, record, row_id, &mut key, &mut value)?;
        Ok((key, value))
    }
}

impl Entries for TermEntries {
    fn entries<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()> {
        for (key, value) in self.of(record, row_id)? {
            let room = sink.room();
            (*room.0, *room.1) = (key, value);
            sink.take(self.codec.is_unique())?;
        }
        Ok(())
    }

    fn keys<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()> {
        self.entries(record, row_id, sink)
    }

    fn changes<F>(&self, row: Rewrite<'_>, _: &mut ChangeRoom, mut change: F) -> Result<()>
    where
        F: FnMut(Change<'_>) -> Result<()>,
    {
        let Rewrite { old, new, row_id, all } = row;
        let (old, new) = (self.of(old, row_id)?, self.of(new, row_id)?);
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        let claimed = self.codec.is_unique();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.0.cmp(&new.0),
            };
            let gone = old.next_if(|_| order != Ordering::Greater);
            let there = new.next_if(|_| order != Ordering::Less);
            match (gone, there) {
                (Some((key, _)), None) => change(Change::Leaves { key, claimed })?,
                (None, Some((key, value))) => change(Change::Comes { key, value, claimed })?,
                (Some((_, former)), Some((key, value))) if all || former != value => {
                    change(Change::Stays { key, value, claimed })?;
                }
                _ => {}
            }
        }
    }
}

/// A secondary index that rows are written to.
pub(crate) struct Written {
    /// The server's number.
    pub(crate) number: usize,
    /// The catalog's number.
    pub(crate) place: usize,
    /// Its keys have a virtual column.
    pub(crate) is_virtual: bool,
    pub(crate) codec: Arc<KeyCodec>,
    /// What finds the terms of rows, if it is of that kind.
    pub(crate) terms: Option<TermEntries>,
}

impl Written {
    /// Index number `number` of `def`, which has the number `place` in the catalog.
    pub(crate) fn new(
        def: &TableDef,
        number: usize,
        place: usize,
        codec: &Arc<KeyCodec>,
        terms: Option<Arc<dyn Terms>>,
    ) -> Result<Written> {
        let index = &def.indexes[number];
        let terms = match (index.kind, terms) {
            (IndexKind::ORDINARY, _) => None,
            (_, Some(source)) => Some(TermEntries::new(def, number, codec, source)?),
            (kind, None) => return Err(unknown_kind(&index.name, kind)),
        };
        let is_virtual = index.parts.iter().any(|part| def.columns[part.column as usize].is_virtual);
        Ok(Written { number, place, is_virtual, codec: codec.clone(), terms })
    }

    /// [`Entries::entries`] of whichever kind it is.
    #[inline]
    pub(crate) fn entries<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()> {
        match &self.terms {
            None => self.codec.entries(record, row_id, sink),
            Some(terms) => terms.entries(record, row_id, sink),
        }
    }

    /// [`Entries::keys`] of whichever kind it is.
    #[inline]
    pub(crate) fn keys<S: Sink>(&self, record: Record<'_>, row_id: u64, sink: &mut S) -> Result<()> {
        match &self.terms {
            None => self.codec.keys(record, row_id, sink),
            Some(terms) => terms.keys(record, row_id, sink),
        }
    }

    /// [`Entries::changes`] of whichever kind it is.
    #[inline]
    pub(crate) fn changes<F>(&self, row: Rewrite<'_>, room: &mut ChangeRoom, change: F) -> Result<()>
    where
        F: FnMut(Change<'_>) -> Result<()>,
    {
        match &self.terms {
            None => self.codec.changes(row, room, change),
            Some(terms) => terms.changes(row, room, change),
        }
    }
}

/// Why a table is not opened.
pub(crate) fn unknown_kind(index: &str, kind: IndexKind) -> Error {
    Error::invalid(format!("index '{index}' is of a kind that this version does not know: {kind}"))
}
