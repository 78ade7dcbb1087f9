//! Walks the entries of an index that begin with given values, in the newest state, and locks the row of each.
//!
//! What others have committed is read, and the session's own writes; never a snapshot. An entry is given out once the lock of its
//! row is held and the entry is still there. No interval is locked, and entries that come during the walk are not met: who
//! brings in a row with the values of a parent has locked the parent's row first, and so has who looks for the children of one.
//!
//! Rows of the past are passed over ([`Past`]).
//!
//! Entries that the session deletes during the walk are passed over, and those that it adds are not met.

use super::past::Past;
use crate::error::Result;
use crate::isolation::Waiting;
use crate::keycode::{KeyCodec, prefix_end_in_place};
use crate::kv::{Cursor, GrantKind, LockMode, ReadPoint, SeqNo, Unread, ValueBuf};
use crate::session::Session;
use crate::table::Table;
use std::sync::Arc;

/// Rows between two looks at the kill flag.
const ROWS_PER_POLL: u32 = 256;

pub(super) struct Matches {
    codec: Arc<KeyCodec>,
    past: Option<Past>,
    prefix: Vec<u8>,
    /// What is stored under the keys begins with this.
    suffix: Vec<u8>,
    cursor: Cursor,
    /// Keeps what the cursor shows.
    point: ReadPoint,
    is_started: bool,
    rows: u32,
    key: Vec<u8>,
    value: ValueBuf,
    row_key: Vec<u8>,
    owner: Vec<u8>,
}

impl Matches {
    /// Those of an index, by its number in the table, that have values: `values` is what they encode to, of which `in_key` bytes belong to the key
    /// ([`KeyCodec::encode_values`]).
    pub(super) fn open(
        session: &Session,
        (table, number): (&Arc<Table>, usize),
        values: &[u8],
        in_key: usize,
        mut cursor: Cursor,
    ) -> Result<Matches> {
        let (prefix, suffix) = (values[..in_key].to_vec(), values[in_key..].to_vec());
        let mut end = prefix.clone();
        // Index ids are far from the greatest number: there is always a greater key.
        prefix_end_in_place(&mut end);
        let point = session.engine().read_point();
        cursor.open(session.txn(), point.seq(), &prefix, &end)?;
        let [key, row_key, owner] = Default::default();
        let value = ValueBuf::default();
        let (codec, past) = (table.indexes[number].clone(), Past::of(table, number));
        Ok(Matches {
            codec,
            past,
            prefix,
            suffix,
            cursor,
            point,
            is_started: false,
            rows: 0,
            key,
            value,
            row_key,
            owner,
        })
    }

    /// The clustered key of the row found last.
    pub(super) fn row_key(&self) -> &[u8] {
        &self.row_key
    }

    /// Gives the cursor back.
    pub(super) fn close(mut self) -> Cursor {
        self.cursor.close();
        self.cursor
    }

    /// The next row, locked. False if there is none.
    pub(super) fn next(&mut self, session: &mut Session, mode: LockMode) -> Result<bool> {
        loop {
            match std::mem::replace(&mut self.is_started, true) {
                true => self.cursor.next(session.txn())?,
                false => self.cursor.seek_ge(session.txn(), &self.prefix)?,
            }
            if !self.cursor.valid() {
                return Ok(false);
            }
            self.rows += 1;
            if self.rows % ROWS_PER_POLL == 0 {
                session.check_killed()?;
            }
            if !self.suffix.is_empty() && !self.cursor.value().starts_with(&self.suffix) {
                continue;
            }
            if let Some(past) = &mut self.past
                && past.is_entry(self.cursor.key(), self.cursor.value())?
            {
                continue;
            }
            self.cursor.key().clone_into(&mut self.key);
            match self.codec.is_clustered() {
                true => self.key.clone_into(&mut self.row_key),
                false => self.codec.clustered_key_from(&self.key, self.cursor.value(), &mut self.row_key)?,
            }
            let granted = session.lock(&self.row_key, mode, Waiting::Wait)?;
            let newest = session.engine().visible();
            if self.is_still_there(session, newest)? && !self.is_past(session, newest)? {
                return Ok(true);
            }
            if granted.kind == GrantKind::New {
                session.unlock(&self.row_key);
            }
        }
    }

    fn is_past(&mut self, session: &Session, newest: SeqNo) -> Result<bool> {
        match &mut self.past {
            Some(past) => past.is_row(session.txn(), newest, &self.row_key),
            None => Ok(false),
        }
    }

    /// True if the entry belongs to the same row at `newest`.
    fn is_still_there(&mut self, session: &Session, newest: SeqNo) -> Result<bool> {
        if newest == self.point.seq() {
            return Ok(true);
        }
        if self.codec.is_clustered() {
            return Ok(session.txn().get(&self.key, newest, &mut Unread)?);
        }
        if !session.txn().get(&self.key, newest, &mut self.value)? {
            return Ok(false);
        }
        self.codec.clustered_key_from(&self.key, &self.value, &mut self.owner)?;
        Ok(self.owner == self.row_key)
    }
}
