//! Rows that have expired and stand in the way, or are to go for good.
//!
//! They are deleted row by row as any other: locked, read again in the newest state, removed with all their entries in one transaction.
//! So is a row whose unique value another row gets. Nothing follows from it for other tables: no foreign key refers to such a table.
//!
//! Rejected: the new row put over the entries of the old one. Those of its other indexes would be left behind.

use super::entries::ChangeRoom;
use super::{Each, Former, Stored, Writer};
use crate::error::{Error, Result};
use crate::isolation::Waiting;
use crate::kv::{GrantKind, LockMode, ValueBuf};
use crate::rowcode::Record;

/// What has become of a row that may have expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Removal {
    /// It is deleted.
    Removed,
    /// There is none.
    Absent,
    /// It has not expired: it stays.
    Lives,
    /// Somebody has locked it: it stays for now.
    Locked,
}

/// A row meets one expired row in each unique index, and some that others remove at the same time. An entry whose row is not there, which is
/// damage, would be met for ever.
const ROUNDS: u32 = 1000;

impl Writer<'_> {
    /// `new` was to be written, which has failed: it is a duplicate in the index of this number. Tries it `again` once the rows have gone
    /// that have its unique values and have expired. A failure leaves all as it was.
    #[cold]
    pub(super) fn over_expired<T>(
        &mut self,
        mut index: usize,
        new: Record<'_>,
        again: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mark = self.session.savepoint();
        for _ in 0..ROUNDS {
            let written = match self.makes_way(index, new) {
                Ok(true) => again(self),
                Ok(false) => {
                    self.session.txn_mut().rollback_to(mark);
                    return Err(Error::Duplicate(index));
                }
                Err(error) => Err(error),
            };
            match written {
                Err(Error::Duplicate(next)) => index = next,
                Err(error) => {
                    self.session.txn_mut().rollback_to(mark);
                    return Err(error);
                }
                written => return written,
            }
        }
        self.session.txn_mut().rollback_to(mark);
        Err(Error::Duplicate(index))
    }

    /// `new` is a duplicate in the index of this number. True if the row with its value had expired, and is gone now.
    pub(crate) fn makes_way(&mut self, index: usize, new: Record<'_>) -> Result<bool> {
        if !self.table.expires() {
            return Ok(false);
        }
        let owners = self.owners(index, new)?;
        for owner in &owners {
            if !self.remove_expired(owner)? {
                return Ok(false);
            }
        }
        Ok(!owners.is_empty())
    }

    /// Deletes the row at a clustered key, if it has expired for the running statement; true if there is none afterwards.
    pub(crate) fn remove_expired(&mut self, key: &[u8]) -> Result<bool> {
        let now = self.session.gives_way_at();
        let removal = self.remove(key, now, Waiting::Wait)?;
        Ok(matches!(removal, Removal::Removed | Removal::Absent))
    }

    /// Deletes the row at a clustered key, if it has expired at `now`. Its lock is kept only if it is deleted.
    pub(crate) fn remove(&mut self, key: &[u8], now: u64, waiting: Waiting) -> Result<Removal> {
        let granted = match self.session.lock(key, LockMode::Exclusive, waiting) {
            Err(error) if waiting == Waiting::SkipLocked && error.is_lock_busy() => return Ok(Removal::Locked),
            granted => granted?,
        };
        let (mut row, mut record) = (ValueBuf::default(), Vec::new());
        let newest = self.session.engine().visible();
        let removal = match self.session.txn().get(key, newest, &mut row)? {
            false => Removal::Absent,
            true if self.table.has_expired(key, &row, now, &mut record)? => Removal::Removed,
            true => Removal::Lives,
        };
        if removal != Removal::Removed {
            if granted.kind == GrantKind::New {
                self.session.unlock(key);
            }
            return Ok(removal);
        }
        record.fill(0);
        let decoded = self.table.row.decode(key, &row, &mut record, None);
        decoded.map_err(|error| Error::from(error).read_at(self.table.engine(), key))?;
        let row_id = if self.table.def.primary.is_none() { self.table.clustered.row_id(key)? } else { 0 };
        // SAFETY: the record was just filled. Its BLOBs lie in `row`, or in the codec (initial values).
        let former = unsafe { Record::new(&record) };
        self.delete_entries(Former { record: former, row_id, stored: Some(Stored { key, row: &row }) })?;
        Ok(Removal::Removed)
    }

    /// The clustered keys of the rows that have a unique value of `new` in the index of this number.
    fn owners(&mut self, index: usize, new: Record<'_>) -> Result<Vec<Vec<u8>>> {
        let table = self.table;
        let mut key = Vec::new();
        if table.def.primary == Some(index) {
            table.clustered.encode_record(new, 0, &mut key)?;
            return Ok(vec![key]);
        }
        let Some(written) = table.written.iter().find(|written| written.number == index) else {
            return Ok(Vec::new());
        };
        let mut owners = Vec::new();
        let session = &*self.session;
        let mut value = ValueBuf::default();
        let take = |entry: &ChangeRoom, claimed| {
            if claimed && session.txn().get(&entry.key, session.engine().visible(), &mut value)? {
                written.codec.clustered_key_from(&entry.key, &value, &mut key)?;
                owners.push(key.clone());
            }
            Ok(())
        };
        written.entries(new, 0, &mut Each { entry: &mut ChangeRoom::default(), take })?;
        Ok(owners)
    }
}
