//! A row that comes into a child must find its parent.
//!
//! A key with a NULL among its values refers to nothing (MATCH SIMPLE). Otherwise the newest committed state of the parent, with
//! the session's own writes, must have a row with the values. Its lock, shared, keeps it there until the child's transaction ends.
//!
//! If the parent's index is unique and has no more columns than the key, the lock is that of the index's key: whoever brings in
//! or takes away a unique value has it exclusively. In any other index the rows with the values are locked, until one is still
//! there once it is. If there is none, but another transaction is about to bring one in, its end is waited for.
//!
//! No gap is locked, where InnoDB locks the gap in which a parent row is missing: the statement fails anyway.

use super::links::{ALL, Columns, Links, Outgoing, number_of};
use super::matches::Matches;
use super::workspace::Workspace;
use crate::error::{Error, Result};
use crate::foreign::Reference;
use crate::isolation::Waiting;
use crate::keycode::prefix_end_in_place;
use crate::kv::{GrantKind, LockMode, Unread};
use crate::rowcode::Record;
use crate::session::Session;
use crate::table::Table;
use std::sync::Arc;

impl Workspace {
    /// Checks the keys of a row that was written to `table`, in the place of `old` if there was one: all of them,
    /// or those whose entries have changed, but for the one that a cascade follows. Of these, the keys of indexes whose turn is below
    /// `end`; if that is not [`ALL`] the row may be a duplicate, which is not there, and counts as a parent of its own.
    ///
    /// Errors: `NoReferencedRow`.
    pub(super) fn check(
        &mut self,
        session: &mut Session,
        table: &Table,
        old: Option<Record<'_>>,
        new: Record<'_>,
        followed: Option<&Reference>,
        end: usize,
    ) -> Result<()> {
        let links = loop {
            let Some(links) = table.links()? else { return Ok(()) };
            self.asking.clear();
            let asks = |outgoing: &Outgoing| {
                !outgoing.columns.has_null(new) && !old.is_some_and(|old| outgoing.entry.same(old, new))
            };
            let is_followed = |reference: &Reference| followed.is_some_and(|followed| *followed.key == *reference.key);
            let numbers = links.parents.iter().enumerate().filter(|(_, outgoing)| {
                let reference = &outgoing.reference;
                outgoing.turn < end && asks(outgoing) && !reference.key.inherited && !is_followed(reference)
            });
            self.asking.extend(numbers.map(|(number, _)| number));
            let mut is_new = false;
            for number in 0..self.asking.len() {
                let reference = &links.parents[self.asking[number]].reference;
                // The table itself is not changed while it is open.
                is_new |= !reference.is_own() && self.lock_name(session, &reference.parent)?;
            }
            if !is_new || is_present(table, &links)? {
                break links;
            }
        };
        for number in 0..self.asking.len() {
            let outgoing = &links.parents[self.asking[number]];
            let has_parent = self.has_parent(session, &outgoing.reference, &outgoing.columns, new)?;
            if !has_parent && (end == ALL || !refers_to_itself(table, &outgoing.reference, new)?) {
                return Err(Error::NoReferencedRow(outgoing.reference.clone()));
            }
        }
        Ok(())
    }

    /// Locks a parent of a row. False: there is none. The lock of the parent's name is the caller's.
    pub(super) fn has_parent(
        &mut self,
        session: &mut Session,
        reference: &Reference,
        columns: &Columns,
        row: Record<'_>,
    ) -> Result<bool> {
        let Some(place) = reference.parent_index else { return Ok(false) };
        let Some(parent) = self.table(session, &reference.parent)? else { return Ok(false) };
        let number = number_of(&parent, place)?;
        let Some(sought) = seek_parent((&parent, number), columns, row, &mut self.key)? else { return Ok(false) };
        if sought.is_whole {
            return self.lock_key(session);
        }
        if self.lock_one(session, (&parent, number), sought.in_key)? {
            return Ok(true);
        }
        await_arrivals(session, &self.key[..sought.in_key])?;
        self.lock_one(session, (&parent, number), sought.in_key)
    }

    /// Locks the unique key in `key`, if it is there.
    fn lock_key(&mut self, session: &mut Session) -> Result<bool> {
        let granted = session.lock(&self.key, LockMode::Shared, Waiting::Wait)?;
        let is_there = session.txn().get(&self.key, session.engine().visible(), &mut Unread)?;
        if !is_there && granted.kind == GrantKind::New {
            session.unlock(&self.key);
        }
        Ok(is_there)
    }

    /// Locks one of the rows that have the values in `key`, of which `in_key` bytes are those of the index's key, if there is one.
    fn lock_one(&mut self, session: &mut Session, index: (&Arc<Table>, usize), in_key: usize) -> Result<bool> {
        let cursor = self.take_cursor(session);
        let mut rows = Matches::open(session, index, &self.key, in_key, cursor)?;
        let found = rows.next(session, LockMode::Shared)?;
        self.give_back(rows.close());
        Ok(found)
    }
}

/// True if a row of `table` refers to itself by this key.
pub(super) fn refers_to_itself(table: &Table, reference: &Reference, row: Record<'_>) -> Result<bool> {
    let Some(place) = reference.parent_index.filter(|_| reference.is_own()) else { return Ok(false) };
    let codec = &table.indexes[number_of(table, place)?];
    let mut values = [Vec::new(), Vec::new()];
    for (columns, out) in [&reference.child_columns, &reference.parent_columns].into_iter().zip(&mut values) {
        if codec.encode_values(Columns::new(table, columns)?.values(row), out)?.is_none() {
            return Ok(false);
        }
    }
    Ok(values[0] == values[1])
}

/// Waits for all who are about to bring in an entry whose key begins with `prefix`: what is read from now on is there, or came later.
pub(super) fn await_arrivals(session: &mut Session, prefix: &[u8]) -> Result<()> {
    let mut end = prefix.to_vec();
    prefix_end_in_place(&mut end);
    while let Some(key) = session.inserting(prefix, &end) {
        if session.lock(&key, LockMode::Shared, Waiting::Wait)?.kind == GrantKind::New {
            session.unlock(&key);
        }
        session.check_killed()?;
    }
    Ok(())
}

/// What a row asks for in an index of the parent.
pub(super) struct Sought {
    /// So many of the encoded bytes belong to the key ([`KeyCodec::encode_values`](crate::keycode::KeyCodec)).
    pub in_key: usize,
    /// They are a whole key, under which there is one row at most, and that one is of the present.
    pub is_whole: bool,
}

/// Encodes what the parent of `row` must have in the parent's index of this number; `None`: no row can have it. Where ROW END follows
/// the columns, a present row has its greatest value there.
pub(super) fn seek_parent(
    (parent, number): (&Table, usize),
    columns: &Columns,
    row: Record<'_>,
    key: &mut Vec<u8>,
) -> Result<Option<Sought>> {
    let codec = &parent.indexes[number];
    let next = parent.def.indexes[number].parts.get(columns.len()).map(|part| part.column as usize);
    let end = parent.versions.as_ref().filter(|versions| next == Some(versions.end_number()));
    let values = columns.values(row).chain(end.map(|versions| Some(versions.greatest())));
    let Some(in_key) = codec.encode_values(values, key)? else { return Ok(None) };
    let has_all_parts = codec.own_parts() == columns.len() + usize::from(end.is_some());
    let is_whole = codec.is_unique() && has_all_parts && (end.is_some() || parent.versions.is_none());
    Ok(Some(Sought { in_key, is_whole }))
}

fn is_present(table: &Table, links: &Arc<Links>) -> Result<bool> {
    Ok(table.links()?.is_some_and(|present| Arc::ptr_eq(&present, links)))
}
