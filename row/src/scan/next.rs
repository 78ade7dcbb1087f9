//! Scanning an index: to the next or the previous row.
//!
//! The engine cursor stays open between calls. It is opened anew when what it may see has changed: another read point,
//! another transaction, or (at a new search only) own writes. The place is then found again by its key.

use super::fetch::{Fetched, copy};
use super::handed::Committed;
use super::range_lock::End;
use super::seek::Seek;
use super::{RowCursor, ScanPosition};
use crate::error::{Error, Result};
use crate::keycode::prefix_end_in_place;
use crate::kv::SeqNo;
use crate::session::Session;

/// Steps between two looks at the kill flag.
const STEPS_PER_POLL: u32 = 1024;

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

impl RowCursor {
    /// The next row in index order; false at the end.
    pub fn next(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        self.step(session, record, Direction::Forward, false)
    }

    /// The previous row in index order; false at the end.
    pub fn prev(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        self.step(session, record, Direction::Backward, false)
    }

    /// The next row whose leading parts equal the last search key; false at the end.
    pub fn next_same(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        match &self.scan {
            Some(scan) if scan.single => Ok(false),
            _ => self.step(session, record, Direction::Forward, true),
        }
    }

    fn step(&mut self, session: &mut Session, record: &mut [u8], direction: Direction, same: bool) -> Result<bool> {
        let found = self.step_to(session, record, direction, same)?;
        if found {
            session.rows().read();
        }
        Ok(found)
    }

    #[inline]
    fn step_to(&mut self, session: &mut Session, record: &mut [u8], direction: Direction, same: bool) -> Result<bool> {
        self.fresh_lock = false;
        self.has_row = false;
        let place = match &self.scan {
            Some(scan) => scan.position,
            None => return Err(Error::invalid("no scan has begun")),
        };
        if !matches!(place, ScanPosition::Engine | ScanPosition::Key) {
            return if same { Ok(false) } else { self.step_from_end(session, record, direction) };
        }
        if self.has_blobs {
            self.leave_row();
        }
        // The row given out without a lock is wanted: it is read again, this time with.
        let again = std::mem::take(&mut self.unlocked);
        if place == ScanPosition::Engine && !self.is_stale(session) {
            if !again {
                self.advance(session, direction)?;
            }
        } else {
            self.save_place();
            self.ensure_open(session, direction, false)?;
            match direction {
                _ if self.committed.is_some() => self.go_on_both(session, direction)?,
                Direction::Forward => {
                    self.cursor.seek_ge(session.txn(), &self.entry_key)?;
                    if !again && self.cursor.valid() && self.cursor.key() == self.entry_key {
                        self.cursor.next(session.txn())?;
                    }
                }
                Direction::Backward => {
                    self.entry_key.extend(again.then_some(0));
                    self.cursor.seek_lt(session.txn(), &self.entry_key)?;
                }
            }
        }
        self.patient = again;
        let locks = self.locks_ranges(session);
        if let Some(scan) = self.scan.as_mut().filter(|_| locks) {
            copy(&mut scan.frontier, &self.entry_key);
            if direction == Direction::Forward {
                scan.frontier.push(0);
            }
        }
        self.find(session, record, direction, same)
    }

    /// A step of a scan that does not stand on a row. HANDLER goes on, or back, from where a read has found no more.
    #[cold]
    fn step_from_end(&mut self, session: &mut Session, record: &mut [u8], direction: Direction) -> Result<bool> {
        let Some(scan) = &self.scan else { return Ok(false) };
        match (scan.position, direction) {
            (ScanPosition::BeforeFirst, Direction::Forward) => self.seek_to(session, Seek::First, &[], record),
            (ScanPosition::AfterLast, Direction::Backward) => self.seek_to(session, Seek::Last, &[], record),
            (ScanPosition::AfterPrefix, _) => {
                if let Some(scan) = &mut self.scan {
                    copy(&mut self.entry_key, &scan.prefix);
                    // No entry has this key: what follows a prefix of several parts is never empty.
                    prefix_end_in_place(&mut self.entry_key);
                    scan.entry_saved = false;
                    scan.position = ScanPosition::Key;
                }
                self.step_to(session, record, direction, false)
            }
            _ => Ok(false),
        }
    }

    /// The row read before is done with: two large ones need not be in memory at once.
    fn leave_row(&mut self) {
        for value in [&mut self.row_value, &mut self.entry_value] {
            if value.large().is_some() {
                value.release();
            }
        }
    }

    #[inline]
    fn advance(&mut self, session: &Session, direction: Direction) -> Result<()> {
        match direction {
            _ if self.committed.is_some() => self.step_both(session, direction)?,
            Direction::Forward => self.cursor.next(session.txn())?,
            Direction::Backward => self.cursor.prev(session.txn())?,
        }
        Ok(())
    }

    /// From the entry under the engine cursor on: the first that the read takes.
    pub(super) fn find(
        &mut self,
        session: &mut Session,
        record: &mut [u8],
        direction: Direction,
        same: bool,
    ) -> Result<bool> {
        let mut steps = 0;
        let locks = self.locks_ranges(session);
        let found = loop {
            let at_end = !self.cursor.valid() || !self.in_range(direction, same);
            let verdict = if at_end { Fetched::Stop } else { self.fetch_row(session, record)? };
            if locks && verdict != Fetched::Reject {
                let end = match verdict {
                    Fetched::Row => End::After,
                    _ if at_end => End::Limit(same),
                    _ => End::Before,
                };
                if !self.lock_range(session, direction, end)? {
                    continue;
                }
            }
            match verdict {
                Fetched::Row => break true,
                Fetched::Stop => break false,
                Fetched::Reject => {}
            }
            steps += 1;
            if steps % STEPS_PER_POLL == 0 {
                session.check_killed()?;
            }
            self.advance(session, direction)?;
        };
        if !found {
            self.forget_row();
        }
        if let Some(scan) = &mut self.scan {
            scan.position = match direction {
                _ if found => ScanPosition::Engine,
                _ if scan.is_bounded => ScanPosition::Nowhere,
                Direction::Forward if !self.cursor.valid() => ScanPosition::AfterLast,
                Direction::Backward if !self.cursor.valid() => ScanPosition::BeforeFirst,
                Direction::Forward if same => ScanPosition::AfterPrefix,
                _ => ScanPosition::Nowhere,
            };
        }
        Ok(found)
    }

    fn in_range(&self, direction: Direction, same: bool) -> bool {
        let Some(scan) = &self.scan else { return false };
        let bounded = scan.is_bounded && direction == Direction::Forward && !scan.ends_at_bound;
        if !bounded && !same {
            return true;
        }
        let key = self.cursor.key();
        (!bounded || key < scan.bound.as_slice()) && (!same || key.starts_with(&scan.prefix))
    }

    /// The sequence number that a read uses.
    pub(super) fn read_seq(&self, session: &mut Session) -> Result<SeqNo> {
        if self.table.reads_newest() {
            return Ok(session.engine().visible());
        }
        if self.lock.is_some() {
            session.snapshot().map_or(Ok(()), |seq| self.check_age(seq))?;
            return Ok(session.engine().visible());
        }
        let seq = session.consistent();
        if session.reads_past() {
            session.check_past(&self.table.state)?;
        }
        self.check_age(seq)?;
        Ok(seq)
    }

    /// An error if the table, or the index that is read, is newer than the transaction's snapshot. That is so for reads with locks, too: what they find has
    /// nothing to do with what the transaction has seen.
    pub(super) fn check_age(&self, snapshot: SeqNo) -> Result<()> {
        let index = self.scan.as_ref().map_or(SeqNo::ZERO, |scan| self.table.born(scan.index_id));
        match self.table.state.min_snapshot().max(index) > snapshot {
            true => Err(Error::TableChanged(self.table.state.name())),
            false => Ok(()),
        }
    }

    /// Remembers the place by its key, since the engine cursor is about to lose it.
    pub(super) fn save_place(&mut self) {
        if let Some(scan) = &mut self.scan {
            if scan.position == ScanPosition::Engine {
                if !scan.entry_saved {
                    copy(&mut self.entry_key, self.cursor.key());
                }
                scan.position = ScanPosition::Key;
            }
        }
    }

    /// True if the engine cursor no longer shows what the session may see. The epoch changes with the read point, so while it
    /// stays, so does what `ensure_open` found.
    #[inline]
    fn is_stale(&self, session: &Session) -> bool {
        let Some(scan) = &self.scan else { return true };
        let consistent = self.lock.is_none() && !self.table.reads_newest();
        !scan.open
            || scan.transaction != session.transactions()
            || consistent && scan.epoch != session.epoch()
            || consistent != scan.point.is_none()
    }

    /// Opens the engine cursor if it is not open or shows the wrong state. `search`: a new search, which is to see own
    /// writes and, if it locks, the newest state.
    pub(super) fn ensure_open(&mut self, session: &mut Session, direction: Direction, search: bool) -> Result<()> {
        let seq = self.read_seq(session)?;
        let stale = self.is_stale(session);
        let consistent = self.lock.is_none() && !self.table.reads_newest();
        let locks = self.locks_ranges(session);
        let Some(scan) = &mut self.scan else {
            return Ok(());
        };
        let ends_at_bound = scan.is_bounded && direction == Direction::Forward;
        let upper = if ends_at_bound { scan.bound.as_slice() } else { &scan.upper };
        scan.ends_at_bound = false;
        let outdated = search && (scan.writes != session.writes() || !consistent && scan.seq != seq);
        if !stale && !outdated && scan.opened_upper == upper {
            scan.ends_at_bound = ends_at_bound;
            return Ok(());
        }
        if let Some(mut committed) = self.committed.take() {
            committed.restore(&mut self.cursor);
        }
        if locks {
            scan.version = session.range_version(scan.index_id);
        }
        scan.point = if consistent { None } else { Some(session.engine().read_point()) };
        scan.seq = scan.point.as_ref().map_or(seq, |p| p.seq());
        self.cursor.open(session.txn(), scan.seq, &scan.lower, upper)?;
        scan.opened_upper.clear();
        scan.opened_upper.extend_from_slice(upper);
        scan.open = true;
        if consistent && !scan.clustered && session.has_handed_over() && scan.codec.is_unique() {
            self.committed = Some(Committed::open(session, &self.cursor, self.table.engine().cursor(), scan)?);
        }
        scan.ends_at_bound = ends_at_bound;
        scan.epoch = session.epoch();
        scan.transaction = session.transactions();
        scan.writes = session.writes();
        Ok(())
    }
}
