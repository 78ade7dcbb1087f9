//! Locking the intervals that a scan reads.
//!
//! A row is locked first, then the interval from where the scan stood up to the row, the row's key included. Only then the row
//! is given out. If something came into the interval after the scan had read it, or is about to come, the scan goes back to
//! where it stood and reads again. While it waits for a row, it thus holds no more than what it has already given out.
//!
//! Intervals end where the scan knows that it ends, not at the next entry beyond.
//!
//! A key that another session brings in is waited for, unless it is this session that the other waits for: it has locked the key.
//!
//! Rejected: locking all of the range before the first read. A search for one row would keep everybody out of all the rest.

use super::fetch::copy;
use super::next::Direction;
use super::{RowCursor, locking};
use crate::error::Result;
use crate::isolation::Waiting;
use crate::keycode::prefix_end_in_place;
use crate::kv::{GrantKind, LockMode, RangeGrant};
use crate::session::Session;

/// Up to where the scan has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Beyond the entry.
    After,
    /// Up to the entry, but without it.
    Before,
    /// To the end of the range; true: of the entries with the same prefix.
    Limit(bool),
}

/// Locks `[from, to)`, which was read at this version of the index. False if it has to be read again, where somebody was waited for
/// or something came in.
fn lock_interval(session: &mut Session, from: &[u8], to: &[u8], version: u64, waiting: Waiting) -> Result<bool> {
    let mut passed;
    let mut from = from;
    loop {
        let key = match session.lock_range(from, to, version) {
            RangeGrant::Clean => return Ok(true),
            RangeGrant::Stale => return Ok(false),
            RangeGrant::Inserting(key) => key,
        };
        // Granted when the other is through. What became of the key the next look tells.
        if session.lock(&key, LockMode::Shared, waiting)?.kind == GrantKind::New {
            session.unlock(&key);
            return Ok(false);
        }
        // The session has locked the key, be it absent: the other waits for that lock and brings nothing in before it is given back.
        // What lies before the key is locked now; whether it was read in time has not been said.
        if session.lock_range(from, &key, version) != RangeGrant::Clean {
            return Ok(false);
        }
        passed = [key.as_slice(), &[0]].concat();
        from = &passed;
    }
}

impl RowCursor {
    /// True if the read locks intervals.
    pub(super) fn locks_ranges(&self, session: &Session) -> bool {
        self.lock.is_some()
            && !self.table.reads_newest()
            && locking::locks_intervals(session.isolation(), self.waiting == Waiting::SkipLocked)
    }

    /// Locks the interval from the frontier to `end`. False if it has to be read again: the engine cursor then stands on the
    /// first entry of the interval, at the newest state.
    pub(super) fn lock_range(&mut self, session: &mut Session, direction: Direction, end: End) -> Result<bool> {
        let Some(scan) = &mut self.scan else { return Ok(true) };
        let edge = &mut scan.target;
        match end {
            End::After | End::Before => {
                copy(edge, &self.entry_key);
                // The least key above the entry.
                if (end == End::After) == (direction == Direction::Forward) {
                    edge.push(0);
                }
            }
            End::Limit(same) => match direction {
                Direction::Forward => {
                    copy(edge, &scan.upper);
                    if same {
                        copy(edge, &scan.prefix);
                        prefix_end_in_place(edge);
                    }
                    if scan.is_bounded && scan.bound < *edge {
                        copy(edge, &scan.bound);
                    }
                }
                Direction::Backward if same => copy(edge, &scan.prefix),
                Direction::Backward => copy(edge, &scan.lower),
            },
        }
        let (from, to) = match direction {
            Direction::Forward => (&scan.frontier, &scan.target),
            Direction::Backward => (&scan.target, &scan.frontier),
        };
        if lock_interval(session, from, to, scan.version, self.waiting)? {
            return Ok(true);
        }
        session.check_killed()?;
        scan.version = session.range_version(scan.index_id);
        let point = session.engine().read_point();
        scan.seq = point.seq();
        self.cursor.refresh(session.txn(), scan.seq)?;
        scan.point = Some(point);
        match direction {
            Direction::Forward => self.cursor.seek_ge(session.txn(), &scan.frontier)?,
            Direction::Backward => self.cursor.seek_lt(session.txn(), &scan.frontier)?,
        }
        Ok(false)
    }

    /// Locks the absent unique key in `entry_key`, of a secondary index. True if it exists after all; its value is then in
    /// `entry_value`.
    pub(super) fn lock_absent(&mut self, session: &mut Session) -> Result<bool> {
        let Some(mode) = self.lock else { return Ok(false) };
        let granted = match session.lock(&self.entry_key, mode, self.waiting) {
            Err(e) if self.waiting == Waiting::SkipLocked && e.is_lock_busy() => return Ok(false),
            other => other?,
        };
        let newest = session.engine().visible();
        let there = session.txn().get(&self.entry_key, newest, &mut self.entry_value)?;
        // A row that is there is locked itself.
        let keep = !there && locking::keeps_unmatched(session.isolation());
        match granted.kind {
            GrantKind::New if keep => session.note_absent(&self.entry_key),
            GrantKind::New => session.unlock(&self.entry_key),
            _ => {}
        }
        Ok(there)
    }
}
