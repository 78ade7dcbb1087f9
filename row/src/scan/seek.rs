//! Searches: where each mode starts and which way it goes on.
//!
//! All modes compare encoded prefixes: the rows whose leading parts equal the search key are exactly the entries whose keys
//! start with its encoding, and `prefix_end` is the smallest key above them all.

use super::fetch::{Fetched, copy};
use super::next::Direction;
use super::{RowCursor, ScanPosition};
use crate::error::{Error, Result};
use crate::isolation::Waiting;
use crate::keycode::prefix_end_in_place;
use crate::kv::LockMode;
use crate::session::Session;

/// Search modes; the key stands for all rows whose leading parts equal it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// First row that has the key.
    Exact,
    /// First row that has the key or a greater one.
    Ge,
    /// First row beyond all that have the key.
    Gt,
    /// Last row that has the key or a smaller one.
    Le,
    /// Last row before all that have the key.
    Lt,
    /// Last row that has the key.
    LastInPrefix,
    /// First row of the index.
    First,
    /// Last row of the index.
    Last,
}

impl RowCursor {
    /// Starts anew at a key image; false if no row is there.
    pub fn seek(&mut self, session: &mut Session, mode: Seek, image: &[u8], record: &mut [u8]) -> Result<bool> {
        let found = self.seek_to(session, mode, image, record)?;
        if found {
            session.rows().read();
        }
        Ok(found)
    }

    #[inline]
    pub(super) fn seek_to(
        &mut self,
        session: &mut Session,
        mode: Seek,
        image: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        self.fresh_lock = false;
        self.unlocked = false;
        self.forget_row();
        self.end_bulk()?;
        let Some(scan) = &mut self.scan else {
            return Err(Error::invalid("no scan has begun"));
        };
        scan.position = ScanPosition::Nowhere;
        scan.single = false;
        let mode = match mode {
            Seek::First | Seek::Last => {
                scan.prefix.clear();
                scan.prefix.extend_from_slice(&scan.lower);
                mode
            }
            _ => {
                let given = scan.codec.encode_image(image, &mut scan.prefix)?;
                let whole = given.parts == scan.codec.own_parts();
                let unique = scan.clustered || scan.codec.is_unique() && !given.has_null;
                scan.single = mode == Seek::Exact && whole && unique && given.parts > 0;
                if scan.single && !scan.clustered && self.lock.is_none() && session.has_handed_over() {
                    // Two rows may have the value.
                    scan.single = false;
                }
                mode
            }
        };
        if scan.single {
            return self.look_up(session, record);
        }
        if mode == Seek::Exact && scan.long_hash && self.lock.is_some() {
            // The server decides uniqueness by this search: nobody else may find, or not find, the same hash meanwhile.
            session.lock(&scan.prefix, LockMode::Exclusive, Waiting::Wait)?;
        }
        if let Some(bytes) = scan.neighbourhood.filter(|&b| mode == Seek::Gt && b <= image.len()) {
            if self.lock == Some(LockMode::Exclusive) {
                // Likewise for a period's neighbours: those whose other parts are the same, whether or not there are any.
                scan.codec.encode_image(&image[..bytes], &mut scan.target)?;
                session.lock(&scan.target, LockMode::Exclusive, Waiting::Wait)?;
            }
        }
        let direction = match mode {
            Seek::Exact | Seek::Ge | Seek::Gt | Seek::First => Direction::Forward,
            Seek::Le | Seek::Lt | Seek::LastInPrefix | Seek::Last => Direction::Backward,
        };
        self.ensure_open(session, direction, true)?;
        let Some(scan) = &mut self.scan else {
            return Ok(false);
        };
        scan.target.clone_from(&scan.prefix);
        if matches!(mode, Seek::Gt | Seek::Le | Seek::LastInPrefix | Seek::Last) {
            // Index ids are far from the greatest number: there is always a greater key.
            prefix_end_in_place(&mut scan.target);
        }
        match direction {
            _ if self.committed.is_some() => self.seek_both(session, direction)?,
            Direction::Forward => self.cursor.seek_ge(session.txn(), &scan.target)?,
            Direction::Backward => self.cursor.seek_lt(session.txn(), &scan.target)?,
        }
        if self.locks_ranges(session) {
            if let Some(scan) = &mut self.scan {
                copy(&mut scan.frontier, &scan.target);
            }
        }
        let same = matches!(mode, Seek::Exact | Seek::LastInPrefix);
        self.find(session, record, direction, same)
    }

    /// The only row that can have the whole unique key in `prefix`.
    fn look_up(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        let Some(scan) = &mut self.scan else {
            return Ok(false);
        };
        self.entry_key.clone_from(&scan.prefix);
        scan.position = ScanPosition::Key;
        if scan.clustered {
            self.current.clone_from(&self.entry_key);
            return self.read_row(session, record);
        }
        let mut former = Vec::new();
        loop {
            let seq = self.read_seq(session)?;
            if !session.txn().get(&self.entry_key, seq, &mut self.entry_value)? && !self.lock_absent(session)? {
                return Ok(false);
            }
            if self.fetch_entry(session, record, seq)? == Fetched::Row {
                return Ok(true);
            }
            // While a locking read waited for the row, the value may have passed on to another row.
            if self.lock.is_none() || former == self.current {
                return Ok(false);
            }
            former.clone_from(&self.current);
        }
    }
}
