//! Row references: a two-byte length and the clustered key without its index id, zero-padded to a fixed length.
//!
//! References compare in clustered order as bytes of the key part; they stay good as long as the row exists, whatever
//! happens to the scan that gave them.

use super::RowCursor;
use crate::error::{Error, Result};
use crate::keycode::REFERENCE_LENGTH;
use crate::kv::IndexId;
use crate::rowcode::Record;
use crate::session::Session;
use crate::table::Table;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Hidden ids of rows; 0 if there is no such row, or rows have a clustered key.
#[derive(Default)]
pub(super) struct RowIds {
    /// Of the row read last, which an update or delete changes.
    pub last_read: u64,
    /// Of the row read, inserted, changed or deleted last, whichever was later, which has its position told. Shared: the server's
    /// condition may ask for the position of the entry under test while a read is running.
    pub position: Arc<AtomicU64>,
}

impl RowIds {
    /// A row was read.
    #[inline]
    pub fn read(&mut self, id: u64) {
        self.last_read = id;
        self.position.store(id, Relaxed);
    }

    /// A row was written; the row read last stays what it is.
    #[inline]
    pub fn written(&self, id: u64) {
        self.position.store(id, Relaxed);
    }
}

impl RowCursor {
    /// Reads the row of a reference; false if it is gone.
    pub fn read_position(&mut self, session: &mut Session, reference: &[u8], record: &mut [u8]) -> Result<bool> {
        self.fresh_lock = false;
        self.unlocked = false;
        self.forget_row();
        self.end_bulk()?;
        self.save_place();
        let key = key_of(reference)?;
        self.current.clear();
        self.current.extend_from_slice(&self.table.clustered.prefix());
        self.current.extend_from_slice(key);
        // A condition belongs to the index scan, not to a look-up by reference.
        let condition = self.condition.take();
        let result = self.read_row(session, record);
        self.condition = condition;
        let found = result?;
        if found {
            session.rows().read();
        }
        Ok(found)
    }

    /// The hidden row id of the row read last; 0 if rows have a clustered key.
    pub(crate) fn current_row_id(&self) -> Result<u64> {
        match self.table.def.primary {
            Some(_) => Ok(0),
            None => match self.row_ids.last_read {
                0 => Err(Error::invalid("no row was read that could be changed")),
                id => Ok(id),
            },
        }
    }
}

fn key_of(reference: &[u8]) -> Result<&[u8]> {
    let key = match reference {
        [a, b, rest @ ..] => rest.get(..usize::from(u16::from_le_bytes([*a, *b]))),
        _ => None,
    };
    key.ok_or_else(|| Error::invalid("a row reference does not decode"))
}

impl Table {
    /// The reference of the row in `record`, whose hidden id is `row_id` if rows have such. `key` is scratch memory.
    pub fn position(&self, record: Record<'_>, row_id: u64, key: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        if self.def.primary.is_none() && row_id == 0 {
            return Err(Error::invalid("no row was read whose position could be told"));
        }
        self.clustered.encode_record(record, row_id, key)?;
        let key = key.get(IndexId::LEN..).unwrap_or_default();
        let end = REFERENCE_LENGTH + key.len();
        if end > out.len() || key.len() > usize::from(u16::MAX) {
            return Err(Error::invalid("a clustered key is longer than a row reference"));
        }
        out[..2].copy_from_slice(&(key.len() as u16).to_le_bytes());
        out[2..end].copy_from_slice(key);
        out[end..].fill(0);
        Ok(())
    }

    /// Compares two references in clustered order.
    pub fn compare_refs(&self, a: &[u8], b: &[u8]) -> Ordering {
        key_of(a).unwrap_or_default().cmp(key_of(b).unwrap_or_default())
    }
}
