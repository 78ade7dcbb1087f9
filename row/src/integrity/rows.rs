//! Where the rows that statements write meet foreign keys. All of it is out of the way of tables without.

use super::links::{ALL, turn_of};
use super::workspace::Workspace;
use crate::error::Result;
use crate::rowcode::Record;
use crate::session::Session;
use crate::table::Table;

/// A row of `table` has come, has gone, or has become another. It must have its parents; and with the former one go those that refer to
/// it, change as it does, or keep it as it was.
///
/// Rows of the past are neither: one that becomes such has gone, and nothing is asked of one that comes so.
#[inline(never)]
pub(crate) fn written(
    session: &mut Session,
    table: &Table,
    old: Option<Record<'_>>,
    new: Option<Record<'_>>,
) -> Result<()> {
    followed(session, table, [old, new], ALL)
}

/// A row of `table` that was to come, or to become another (`old`), is a duplicate in the index of this number, and has not been
/// written. The error of a foreign key whose turn is before that, if there is one.
#[inline(never)]
pub(crate) fn duplicate(
    session: &mut Session,
    table: &Table,
    old: Option<Record<'_>>,
    new: Record<'_>,
    index: usize,
) -> Result<()> {
    followed(session, table, [old, Some(new)], turn_of(table, index) + 1)
}

fn followed(session: &mut Session, table: &Table, rows: [Option<Record<'_>>; 2], end: usize) -> Result<()> {
    let [old, new] = rows.map(|row| row.filter(|row| !table.is_past(*row)));
    if old.is_none() && new.is_none() {
        return Ok(());
    }
    with_workspace(session, |work, session| {
        if let Some(old) = old {
            work.follow(session, table, old, new, end)?;
        }
        match new {
            Some(new) => work.check(session, table, old, new, None, end),
            None => Ok(()),
        }
    })
}

/// True if the session's transaction has changed rows by cascades: a row that a statement has read may be another since.
pub(crate) fn has_cascaded(session: &mut Session) -> bool {
    with_workspace(session, |work, _| Ok(work.has_cascaded)).unwrap_or(true)
}

pub(super) fn with_workspace<T>(
    session: &mut Session,
    body: impl FnOnce(&mut Workspace, &mut Session) -> Result<T>,
) -> Result<T> {
    let mut work = session.take_workspace();
    work.begin(session);
    let result = body(&mut work, session);
    session.give_workspace(work);
    if let Err(error) = &result {
        session.store().note_refused_row(error);
    }
    result
}
