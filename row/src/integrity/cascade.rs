//! What becomes of the rows that refer to a row that has gone, or whose values have changed.
//!
//! The change of a row has a [`Consequence`] for each key that refers to its table and has no NULL among the values that were.
//! Consequences are followed as soon as the row is written, in the order of [`Links::children`](super::links::Links), the deepest first: each walks the
//! rows of the child that have the old values. Under RESTRICT and NO ACTION one of them is an error. Else each is locked
//! exclusively and written by [`Workspace::write`], which every change of a child row goes through, and its own consequences are
//! followed before the next row is looked for. A row that is met twice is met as the first change has left it: gone, or with
//! other values. So cycles of deletions end by themselves.
//!
//! A stack of [`Level`]s stands for the recursion. It has at most [`LEVELS_MAX`].
//!
//! In a child WITH SYSTEM VERSIONING a row that goes becomes one of the past, and one that changes leaves its former values there as another
//! row, both with the time of the statement, as the server does it with rows that a statement names (`TABLE::delete_row`,
//! `vers_insert_history_row`). Rows of the past are not met.
//!
//! What InnoDB refuses is refused, so that an application meets nothing new:
//! - An update does not come back to a table that is being updated further up: that is as RESTRICT.
//! - A row that refers to itself counts as its own child: it cannot be deleted under RESTRICT, and what it refers to cannot be
//!   updated.
//! - An update that changes the bytes of a value, but not its place in the order of the collation, is a change.
//!
//! Rejected: collecting all child rows before the first is written, as for a change at the end of the statement. It needs memory
//! for them, and shows other results than InnoDB where rows refer to each other.

use super::check::{await_arrivals, refers_to_itself};
use super::links::{ALL, Columns, Incoming, number_of, turn_of};
use super::matches::Matches;
use super::workspace::Workspace;
use crate::def::{Column, ColumnType};
use crate::error::{Error, Result};
use crate::foreign::{Action, Reference};
use crate::index::{Former, Stored, Updated, WriteBuffers, Writer};
use crate::kv::{LockMode, ValueBuf};
use crate::rowcode::Record;
use crate::rowcode::layout::Layout;
use crate::session::Session;
use crate::table::Table;
use std::sync::Arc;

/// Rows on the way from the statement's own to the last that a cascade may change, both included.
const LEVELS_MAX: usize = 15;

/// What a referenced column has become.
enum Value {
    /// The bytes that it was.
    Same,
    Null,
    Bytes(Vec<u8>),
}

/// What a key does to the rows that refer to a changed row.
struct Consequence {
    reference: Arc<Reference>,
    /// The values that were.
    old: Vec<Vec<u8>>,
    /// Those that are; `None`: the row is gone.
    new: Option<Vec<Value>>,
    /// The row refers to itself, in a way that refuses the change.
    is_own: bool,
    /// Of the index referred to, see [`turn_of`].
    turn: usize,
}

impl Consequence {
    fn action(&self) -> Action {
        match self.new {
            None => self.reference.key.on_delete,
            Some(_) => self.reference.key.on_update,
        }
    }

    /// The child rows are deleted, not changed.
    fn deletes(&self) -> bool {
        self.new.is_none() && self.action() == Action::Cascade
    }
}

/// The consequences of one changed row.
struct Level {
    /// The row's table, if the row was updated.
    updated: Option<String>,
    /// Those not begun yet, last first.
    rest: Vec<Consequence>,
    /// The one being followed.
    at: Option<Walk>,
}

/// A walk through the rows of a child that have the old values.
struct Walk {
    consequence: Consequence,
    child: Arc<Table>,
    rows: Matches,
}

impl Workspace {
    /// Follows the consequences of a statement's own change of a row of `table`: `new` has come in the place of `old`, or nothing.
    /// Of these, the keys of indexes whose turn is below `end`. Where one refuses, a parent that is missing by the key of an earlier
    /// index is told instead.
    ///
    /// Errors: `RowIsReferenced`, `CascadeTooDeep`, `ForeignDuplicate`, `NoReferencedRow` of another key of a child, and those of
    /// reading and writing rows. What has been written by then is to be undone by the caller.
    pub(super) fn follow(
        &mut self,
        session: &mut Session,
        table: &Table,
        old: Record<'_>,
        new: Option<Record<'_>>,
        end: usize,
    ) -> Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        levels.extend(self.level(table, old, new, end)?);
        let mut turn = 0;
        match (self.follow_levels(session, levels, &mut turn), new) {
            (Err(error), Some(new)) if error.is_of_foreign_key() => {
                self.check(session, table, Some(old), new, None, turn)?;
                Err(error)
            }
            (followed, _) => followed,
        }
    }

    /// Follows all levels. `turn` is that of the first level's consequence that is being followed.
    fn follow_levels(&mut self, session: &mut Session, mut levels: Vec<Level>, turn: &mut usize) -> Result<()> {
        loop {
            let is_first = levels.len() == 1;
            let Some(level) = levels.last_mut() else { return Ok(()) };
            let Some(mut walk) = level.at.take() else {
                match level.rest.pop() {
                    None => drop(levels.pop()),
                    Some(consequence) => {
                        if is_first {
                            *turn = consequence.turn;
                        }
                        if consequence.is_own {
                            return Err(Error::RowIsReferenced(consequence.reference));
                        }
                        level.at = self.begin_walk(session, consequence)?;
                    }
                }
                continue;
            };
            let refuses = walk.consequence.action().refuses();
            let mode = if refuses { LockMode::Shared } else { LockMode::Exclusive };
            if !walk.rows.next(session, mode)? {
                self.give_back(walk.rows.close());
                continue;
            }
            if refuses && walk.child.expires() && self.remove_expired(session, &walk)? {
                level.at = Some(walk);
                continue;
            }
            let child = &walk.consequence.reference.child;
            if refuses
                || !walk.consequence.deletes() && levels.iter().any(|level| level.updated.as_ref() == Some(child))
            {
                return Err(Error::RowIsReferenced(walk.consequence.reference));
            }
            if levels.len() >= LEVELS_MAX {
                return Err(Error::CascadeTooDeep(walk.consequence.reference));
            }
            let below = self.write(session, &walk)?;
            if let Some(level) = levels.last_mut() {
                level.at = Some(walk);
            }
            levels.extend(below);
        }
    }

    /// Removes the child row that a walk has found and locked if it has expired: then it keeps no parent. It is not left behind, since it
    /// would be without a parent if the clock were set back.
    fn remove_expired(&mut self, session: &mut Session, walk: &Walk) -> Result<bool> {
        let mut row = std::mem::take(&mut self.row);
        let mut writer = Writer { table: &walk.child, session, buffers: &mut row.buffers };
        let removed = writer.remove_expired(walk.rows.row_key());
        self.has_cascaded |= removed.as_ref().is_ok_and(|removed| *removed);
        row.release();
        self.row = row;
        removed
    }

    /// The consequences of a changed row by keys of indexes whose turn is below `end`; `None` if there are none.
    fn level(&mut self, table: &Table, old: Record<'_>, new: Option<Record<'_>>, end: usize) -> Result<Option<Level>> {
        let Some(links) = table.links()? else { return Ok(None) };
        let mut rest = Vec::new();
        for incoming in links.children.iter().rev().filter(|incoming| incoming.turn < end) {
            let Incoming { reference, columns, turn } = incoming;
            if columns.has_null(old) || new.is_some_and(|new| columns.same(old, new)) {
                continue;
            }
            let refuses = new.is_some() || reference.key.on_delete.refuses();
            let is_own = refuses && refers_to_itself(table, reference, old)?;
            let owned = |value: Option<&[u8]>| value.unwrap_or_default().to_vec();
            rest.push(Consequence {
                reference: reference.clone(),
                old: columns.values(old).map(owned).collect(),
                new: new.map(|new| changes(columns, old, new)),
                is_own,
                turn: *turn,
            });
        }
        Ok(match rest.is_empty() {
            true => None,
            false => Some(Level { updated: new.map(|_| table.state.name()), rest, at: None }),
        })
    }

    /// Begins to follow a consequence; `None` if no child row can have the values. A child whose index went without checks is refused,
    /// as by InnoDB: there may be rows with the values.
    fn begin_walk(&mut self, session: &mut Session, consequence: Consequence) -> Result<Option<Walk>> {
        let reference = &consequence.reference;
        let Some(place) = reference.child_index else {
            return Err(Error::RowIsReferenced(reference.clone()));
        };
        let Some(child) = self.child(session, &consequence)? else { return Ok(None) };
        let number = number_of(&child, place)?;
        let values = consequence.old.iter().map(|value| Some(value.as_slice()));
        let Some(in_key) = child.indexes[number].encode_values(values, &mut self.key)? else { return Ok(None) };
        if session.engine().has_recovered() {
            // The lock that it had on the parent's row is not known any more.
            await_arrivals(session, &self.key[..in_key])?;
        }
        let cursor = self.take_cursor(session);
        let rows = Matches::open(session, (&child, number), &self.key, in_key, cursor)?;
        Ok(Some(Walk { consequence, child, rows }))
    }

    /// The child, open with a definition whose virtual columns somebody computes if rows are to change.
    fn child(&mut self, session: &Session, consequence: &Consequence) -> Result<Option<Arc<Table>>> {
        let name = &consequence.reference.child;
        let table = self.table(session, name)?;
        match table.filter(|table| consequence.action().refuses() || !table.has_virtual_keys()) {
            Some(table) => Ok(Some(table)),
            None => session.computing(name)?.table(name).map(Some),
        }
    }

    /// Changes the child row that a walk has found and locked, checks its other keys, and says what follows for those that refer to
    /// it. The one place where rows change that no statement names.
    fn write(&mut self, session: &mut Session, walk: &Walk) -> Result<Option<Level>> {
        self.has_cascaded = true;
        let mut row = std::mem::take(&mut self.row);
        let below = self.write_row(session, walk, &mut row);
        row.release();
        self.row = row;
        below
    }

    fn write_row(&mut self, session: &mut Session, walk: &Walk, row: &mut ChildRow) -> Result<Option<Level>> {
        let Walk { consequence, child, rows } = walk;
        let Consequence { reference, .. } = consequence;
        let ChildRow { stored, old, new, past, computed, buffers } = row;
        row_at(session, child, rows.row_key(), stored, old)?;
        compute(session, child, reference, old, &mut computed[0], false)?;
        let row_id = if child.def.primary.is_none() { child.clustered.row_id(rows.row_key())? } else { 0 };
        // SAFETY: the record was filled just now. Its BLOBs lie in `stored`, in `computed`, or in the codec (initial values).
        let was = unsafe { Record::new(old) };
        let former = Former { record: was, row_id, stored: Some(Stored { key: rows.row_key(), row: stored }) };
        session.writes_to(&child.state);
        let mut time = Vec::new();
        if let Some(versions) = &child.versions {
            time = session.time_of_statement()?;
            past.clone_from(old);
            versions.set_end(past, &time)?;
            compute(session, child, reference, past, &mut computed[2], false)?;
        }
        if consequence.deletes() {
            // SAFETY: as above, of `computed`.
            if child.versions.is_none() || !ends(session, child, former, unsafe { Record::new(past) }, buffers)? {
                Writer { table: child, session, buffers }.delete_entries(former)?;
            }
            session.rows().deleted();
            return self.level(child, was, None, ALL);
        }
        new.clone_from(old);
        if !consequence.apply(&Columns::new(child, &reference.child_columns)?, new) {
            return Err(Error::RowIsReferenced(reference.clone()));
        }
        let versions = child.versions.as_ref().filter(|versions| versions.keeps(consequence.touched()));
        if let Some(versions) = versions {
            versions.set_start(new, &time)?;
        }
        compute(session, child, reference, new, &mut computed[1], true)?;
        // SAFETY: as above.
        let is = unsafe { Record::new(new) };
        let mut mark = session.savepoint();
        let mut updated = Writer { table: child, session, buffers }.update_entries(former, is);
        while let Err(Error::Duplicate(index)) = updated {
            session.txn_mut().rollback_to(mark);
            let mut writer = Writer { table: child, session, buffers };
            if !writer.makes_way(index, is)? {
                break;
            }
            mark = session.savepoint();
            updated = Writer { table: child, session, buffers }.update_entries(former, is);
        }
        match updated {
            Err(Error::Duplicate(index)) => {
                session.txn_mut().rollback_to(mark);
                self.check(session, child, Some(was), is, Some(reference), turn_of(child, index) + 1)?;
                return Err(child.foreign_duplicate(index));
            }
            Err(error) => return Err(error),
            Ok(Updated::Same) => return Ok(None),
            Ok(Updated::Changed) => {}
        }
        if versions.is_some_and(|versions| versions.began_before(was, &time)) {
            // SAFETY: as above, of `computed`.
            let was_once = unsafe { Record::new(past) };
            Writer { table: child, session, buffers }.insert_entries(was_once).map_err(|error| match error {
                Error::Duplicate(index) => child.foreign_duplicate(index),
                other => other,
            })?;
        }
        self.check(session, child, Some(was), is, Some(reference), ALL)?;
        session.rows().updated();
        self.level(child, was, Some(is), ALL)
    }
}

/// A row of a table with versions becomes the one of the past that it is to be. False: there is one like that already, and the row is to go
/// for good, as the server deletes it (`TABLE::delete_row`).
fn ends(
    session: &mut Session,
    child: &Table,
    former: Former<'_>,
    past: Record<'_>,
    buffers: &mut WriteBuffers,
) -> Result<bool> {
    let mark = session.savepoint();
    match (Writer { table: child, session, buffers }).update_entries(former, past) {
        Ok(_) => Ok(true),
        Err(Error::Duplicate(_)) => {
            session.txn_mut().rollback_to(mark);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Consequence {
    /// Numbers of the child's columns that change.
    fn touched(&self) -> impl Iterator<Item = usize> {
        let changed = |number: usize| match self.new.as_deref().filter(|_| self.action() == Action::Cascade) {
            Some(values) => !matches!(values[number], Value::Same),
            None => true,
        };
        self.reference.child_columns.iter().enumerate().filter(move |(number, _)| changed(*number)).map(|(_, c)| *c)
    }

    /// Makes the child's columns in a record what the action says; false if they cannot be.
    fn apply(&self, columns: &Columns, record: &mut [u8]) -> bool {
        match self.new.as_deref().filter(|_| self.action() == Action::Cascade) {
            None => columns.carry(record, std::iter::repeat_n(Some(None), columns.len())),
            Some(values) => columns.carry(
                record,
                values.iter().map(|value| match value {
                    Value::Same => None,
                    Value::Null => Some(None),
                    Value::Bytes(bytes) => Some(Some(bytes.as_slice())),
                }),
            ),
        }
    }
}

/// What has become of the columns.
fn changes(columns: &Columns, old: Record<'_>, new: Record<'_>) -> Vec<Value> {
    let change = |(old, new): (Option<&[u8]>, Option<&[u8]>)| match new {
        new if new == old => Value::Same,
        None => Value::Null,
        Some(bytes) => Value::Bytes(bytes.to_vec()),
    };
    columns.values(old).zip(columns.values(new)).map(change).collect()
}

/// Memory for one child row: as it is stored, as it was, as it will be, and as the past keeps it, with the BLOBs among the virtual columns of
/// these three.
#[derive(Default)]
pub(super) struct ChildRow {
    stored: ValueBuf,
    old: Vec<u8>,
    new: Vec<u8>,
    past: Vec<u8>,
    computed: [Vec<Vec<u8>>; 3],
    buffers: WriteBuffers,
}

impl ChildRow {
    /// Gives back what long values have left.
    fn release(&mut self) {
        self.stored.release();
        self.buffers.release();
        self.computed.iter_mut().for_each(Vec::clear);
    }
}

/// Reads the newest version of a locked row. BLOBs of `record` lie in `stored`.
fn row_at(session: &Session, table: &Table, key: &[u8], stored: &mut ValueBuf, record: &mut Vec<u8>) -> Result<()> {
    let newest = session.engine().visible();
    session.check_snapshot(key, newest)?;
    if !session.txn().get(key, newest, stored)? {
        let name = table.state.name();
        return Err(Error::corruption(format!("table '{name}': an index entry points to a row that does not exist")));
    }
    record.clear();
    record.resize(table.def.record_bytes as usize, 0);
    let decoded = table.row.decode(key, stored, record, None);
    decoded.map_err(|error| Error::from(error).read_at(table.engine(), key))
}

/// Lets the server compute the virtual columns that indexes have. BLOBs among them are kept in `kept`.
fn compute(
    session: &Session,
    table: &Table,
    reference: &Reference,
    record: &mut [u8],
    kept: &mut Vec<Vec<u8>>,
    is_new: bool,
) -> Result<()> {
    if !table.has_virtual_keys() {
        return Ok(());
    }
    session.computing(&reference.child)?.compute(&reference.child, record, is_new)?;
    let is_computed = |column: &Column| column.is_virtual && column.kind == ColumnType::Blob;
    for (number, _) in table.def.columns.iter().enumerate().filter(|(_, column)| is_computed(column)) {
        let layout = Layout::of(&table.def, number)?;
        // SAFETY: the server has just computed the record; its BLOBs are readable until it computes another.
        let value = layout.value(unsafe { Record::new(record) }).map(<[u8]>::to_vec);
        if let Some(value) = value {
            layout.set_blob(record, &value);
            kept.push(value);
        }
    }
    Ok(())
}
