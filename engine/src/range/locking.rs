//! A range that locks what it reads: each row that it gives out, and the interval from where it stood up to that row, so that the
//! transaction would read the same again until it ends.
//!
//! The order is: announce the scan, take a read point, find the row; lock the row; if it has changed since the read point, begin
//! again from where the scan stood. Then lock the interval. If something has come into it after the scan had read it, begin again;
//! the interval is locked by then, so the second look is the last. If another transaction is bringing a key in, wait for its end
//! and begin again; but one that waits for this transaction's own lock of the key is passed.
//! Only then the row is given out. While the scan waits it holds no more than what it has given out, and the row.
//!
//! What is not given out yet lies between two frontiers, one for each end. So the two ends together lock the range without a gap.
//!
//! Invariant: of everything between the range's bounds and outside of the frontiers, the rows and the intervals are locked.
//!
//! Rejected: locking the whole range before the first read (a search for one row would keep everybody out of all the rest).

use super::End;
use super::key::Bounds;
use super::locker::Locker;
use crate::base::{Result, SeqNo};
use crate::engine::Engine;
use crate::keyspace::Keyspace;
use crate::lock::{LockMode, RangeGrant};
use crate::read_point::ReadPoint;
use crate::txn::{Cursor, Txn};

/// See the module.
pub(super) struct LockingRange<'a> {
    own: &'a Txn,
    locker: &'a Locker,
    bounds: Bounds,
    /// What is not given out yet: from the first, included, to the second, excluded.
    frontiers: Bounds,
    front: Side,
    back: Side,
}

/// One end of the range.
#[derive(Default)]
struct Side {
    cursor: Option<Cursor>,
    /// The cursor stands on the row that was given out last, at the read point.
    stands: bool,
    point: Option<ReadPoint>,
    /// Of the index, when the read point was taken.
    version: u64,
    key: Vec<u8>,
    edge: Vec<u8>,
}

impl Side {
    /// To the first row within the frontiers, as it is now.
    fn begin(&mut self, end: End, range: &Fixed<'_>, frontiers: &Bounds) -> Result<()> {
        // In this order: what comes in between makes the version stale.
        self.version = range.locker.range_version(range.keyspace.index())?;
        let point = range.engine.read_point();
        let cursor = match &mut self.cursor {
            Some(cursor) => {
                cursor.refresh(range.own, point.seq())?;
                cursor
            }
            None => {
                let cursor = self.cursor.insert(range.engine.cursor());
                cursor.open(range.own, point.seq(), &range.bounds.0, &range.bounds.1)?;
                cursor
            }
        };
        range.keyspace.check()?;
        // The former point only now: the cursor has left it.
        self.point = Some(point);
        match end {
            End::Front => cursor.seek_ge(range.own, &frontiers.0),
            End::Back => cursor.seek_lt(range.own, &frontiers.1),
        }
    }

    /// To the next row within the frontiers, which is then in `key`; false if there is none.
    fn advance(&mut self, end: End, range: &Fixed<'_>, frontiers: &Bounds) -> Result<bool> {
        if std::mem::take(&mut self.stands) {
            match (&mut self.cursor, end) {
                (Some(cursor), End::Front) => cursor.next(range.own)?,
                (Some(cursor), End::Back) => cursor.prev(range.own)?,
                (None, _) => {}
            }
        } else {
            self.begin(end, range, frontiers)?;
        }
        let Some(cursor) = self.cursor.as_ref().filter(|cursor| cursor.valid()) else { return Ok(false) };
        let is_within = match end {
            End::Front => cursor.key() < frontiers.1.as_slice(),
            End::Back => cursor.key() >= frontiers.0.as_slice(),
        };
        self.key.clear();
        self.key.extend_from_slice(cursor.key());
        Ok(is_within)
    }
}

/// What does not change while a range is read.
struct Fixed<'r> {
    engine: &'r Engine,
    keyspace: &'r Keyspace,
    own: &'r Txn,
    locker: &'r Locker,
    bounds: &'r Bounds,
}

impl Fixed<'_> {
    /// Locks `[from, to)`, which was read at this version of the index. False if it has to be read again.
    ///
    /// A key that another transaction brings in is passed if this one has locked it: whoever writes a key of a keyspace locks it, so the
    /// other has not written it, and the lock keeps it as it was read.
    fn lock(&self, from: &[u8], to: &[u8], version: u64) -> Result<bool> {
        let mut passed;
        let mut from = from;
        loop {
            match self.locker.lock_range(from, to, version)? {
                RangeGrant::Clean => return Ok(true),
                RangeGrant::Stale => return Ok(false),
                RangeGrant::Inserting(key) => {
                    // What lies before the key is locked now; whether it was read in time has not been said.
                    if self.locker.pass(&key)? || self.locker.lock_range(from, &key, version)? != RangeGrant::Clean {
                        return Ok(false);
                    }
                    passed = [&key[..], &[0]].concat();
                    from = &passed;
                }
            }
        }
    }
}

impl<'a> LockingRange<'a> {
    pub fn new(own: &'a Txn, locker: &'a Locker, bounds: Bounds) -> LockingRange<'a> {
        let frontiers = bounds.clone();
        LockingRange { own, locker, bounds, frontiers, front: Side::default(), back: Side::default() }
    }

    /// To the next key from this end, which is locked then with what lies before it; false if there is none before the other end.
    pub fn step(&mut self, end: End, engine: &Engine, keyspace: &Keyspace) -> Result<bool> {
        let (own, locker, bounds) = (self.own, self.locker, &self.bounds);
        let range = Fixed { engine, keyspace, own, locker, bounds };
        let frontiers = &mut self.frontiers;
        let side = match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        };
        while frontiers.0 < frontiers.1 {
            let found = side.advance(end, &range, frontiers)?;
            if found {
                locker.lock(&side.key, LockMode::Shared)?;
                let read = side.point.as_ref().map_or(SeqNo::ZERO, ReadPoint::seq);
                if engine.changed_since(&side.key, read)? {
                    continue;
                }
            }
            // Up to the row, itself included.
            side.edge.clear();
            match (found, end) {
                (true, End::Front) => {
                    side.edge.extend_from_slice(&side.key);
                    side.edge.push(0);
                }
                (true, End::Back) => side.edge.extend_from_slice(&side.key),
                (false, End::Front) => side.edge.extend_from_slice(&frontiers.1),
                (false, End::Back) => side.edge.extend_from_slice(&frontiers.0),
            }
            let (from, to) = match end {
                End::Front => (&frontiers.0, &side.edge),
                End::Back => (&side.edge, &frontiers.1),
            };
            if range.lock(from, to, side.version)? {
                match end {
                    End::Front => frontiers.0.clone_from(&side.edge),
                    End::Back => frontiers.1.clone_from(&side.edge),
                }
                side.stands = found;
                return Ok(found);
            }
        }
        Ok(false)
    }

    pub fn cursor(&self, end: End) -> Option<&Cursor> {
        match end {
            End::Front => self.front.cursor.as_ref(),
            End::Back => self.back.cursor.as_ref(),
        }
    }
}
