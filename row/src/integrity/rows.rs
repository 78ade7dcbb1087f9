//! Where the rows that statements write meet foreign keys. All of it is out of the way of tables without.

use super::links::{ALL, turn_of};
use super::workspace::Workspace;
use crate::error::Result;
use crate::rowcode::Record;
use crate::session::Session;
use crate::table::Table;

/// A row has been inserted into `table`: it must have its parents.
#[inline(never)]
pub(crate) fn inserted(session: &mut Session, table: &Table, new: Record<'_>) -> Result<()> {
    with_workspace(session, |work, session| work.check(session, table, None, new, None, ALL))
}

/// A row of `table` has become another: so do the rows that refer to it, or they keep it as it was; and it must have its parents.
#[inline(never)]
pub(crate) fn updated(session: &mut Session, table: &Table, old: Record<'_>, new: Record<'_>) -> Result<()> {
    with_workspace(session, |work, session| {
        work.follow(session, table, old, Some(new), ALL)?;
        work.check(session, table, Some(old), new, None, ALL)
    })
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
    with_workspace(session, |work, session| {
        let end = turn_of(table, index) + 1;
        if let Some(old) = old {
            work.follow(session, table, old, Some(new), end)?;
        }
        work.check(session, table, old, new, None, end)
    })
}

/// A row of `table` has gone: with it go those that refer to it, or they keep it.
#[inline(never)]
pub(crate) fn deleted(session: &mut Session, table: &Table, old: Record<'_>) -> Result<()> {
    with_workspace(session, |work, session| work.follow(session, table, old, None, ALL))
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
