//! A handler's writes: through the transaction, or into a bulk fill.
//!
//! A read or a change of a row (CREATE ... REPLACE SELECT) ends a fill: what follows goes through the session's transaction like any
//! other.
//!
//! A fill leaves out rows that have expired already: nobody would see them, and until they are purged they would stand in the way of others with
//! their unique values, which a fill, past locks and sessions, could not have give way.

use super::RowCursor;
use crate::error::Result;
use crate::index::bulk::Bulk;
use crate::index::{Former, Stored, Updated, Writer};
use crate::rowcode::Record;
use crate::session::Session;

impl RowCursor {
    /// Inserts a row, whose position can be told from then on. The row read last stays the one that an update changes: parts of
    /// a period are inserted before that.
    pub fn insert(&mut self, session: &mut Session, record: Record<'_>) -> Result<()> {
        if self.unready {
            self.note_write(session);
        }
        let row_id = match &mut self.bulk {
            Some(_) if self.expires && self.table.has_expired_already(record, session.horizon()) => return Ok(()),
            Some(bulk) => bulk.insert(&self.table, record)?,
            None => Writer { table: &self.table, session, buffers: &mut self.buffers }.insert(record)?,
        };
        self.row_ids.written(row_id);
        session.rows().inserted();
        Ok(())
    }

    /// Replaces the row read last.
    pub fn update(&mut self, session: &mut Session, old: Record<'_>, new: Record<'_>) -> Result<Updated> {
        let (mut writer, old) = self.writer(session, old)?;
        let updated = writer.update(old, new)?;
        if updated == Updated::Changed {
            writer.session.rows().updated();
        }
        self.row_ids.written(self.row_ids.last_read);
        Ok(updated)
    }

    /// Deletes the row read last.
    pub fn delete(&mut self, session: &mut Session, record: Record<'_>) -> Result<()> {
        let (mut writer, old) = self.writer(session, record)?;
        writer.delete(old)?;
        writer.session.rows().deleted();
        self.row_ids.written(self.row_ids.last_read);
        Ok(())
    }

    /// What changes or deletes the row read last, whose values are `record`.
    #[inline]
    fn writer<'a>(&'a mut self, session: &'a mut Session, record: Record<'a>) -> Result<(Writer<'a>, Former<'a>)> {
        let row_id = self.current_row_id()?;
        if self.unready {
            self.end_bulk()?;
            self.note_write(session);
        }
        let has_row = std::mem::take(&mut self.has_row);
        let stored = has_row.then_some(Stored { key: &self.current, row: &self.row_value });
        let writer = Writer { table: &self.table, session, buffers: &mut self.buffers };
        Ok((writer, Former { record, row_id, stored }))
    }

    /// The session is told of the statement's first write, and again as long as there is more to do than that.
    #[cold]
    fn note_write(&mut self, session: &mut Session) {
        // Nobody has seen what is filled at one go.
        if self.bulk.is_none() {
            session.writes_to(&self.table.state);
        }
        if self.fills {
            session.fills(&self.table.state);
        }
        self.unready = self.fills || self.bulk.is_some();
    }

    /// From now on rows are inserted past locks and the session's transaction; only for a table that nobody else can see.
    pub fn bulk_begin(&mut self, session: &Session) -> Result<()> {
        if self.bulk.is_none() {
            let bulk = Bulk::begin(&self.table)?;
            session.kill_switch().watch_fill(bulk.owner());
            self.bulk = Some(bulk);
            self.unready = true;
        }
        Ok(())
    }

    /// Ends a fill, if none has ended it before: all rows are durable on return. `abort` forgets them; the table is to be dropped.
    pub fn bulk_end(&mut self, abort: bool) -> Result<()> {
        if abort {
            self.bulk = None;
        }
        self.end_bulk()
    }

    pub(super) fn end_bulk(&mut self) -> Result<()> {
        match self.bulk.take() {
            Some(bulk) => bulk.finish(&self.table),
            None => Ok(()),
        }
    }
}
