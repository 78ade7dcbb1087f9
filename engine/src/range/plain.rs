//! A range read at one read point, without locks.
//!
//! Each end has a cursor of its own, opened when it is moved for the first time. A cursor stands on the key that its end gave out last,
//! so the ends have met once they are not in order any more.

use std::sync::Arc;

use super::key::Bounds;
use super::{End, Own};
use crate::base::Result;
use crate::engine::Engine;
use crate::keyspace::Keyspace;
use crate::read_point::ReadPoint;
use crate::txn::Cursor;

/// See the module.
pub(super) struct PlainRange<'a> {
    own: Own<'a>,
    point: Arc<ReadPoint>,
    bounds: Bounds,
    front: Option<Cursor>,
    back: Option<Cursor>,
}

impl<'a> PlainRange<'a> {
    pub fn new(own: Own<'a>, point: Arc<ReadPoint>, bounds: Bounds) -> PlainRange<'a> {
        PlainRange { own, point, bounds, front: None, back: None }
    }

    /// To the next key from this end; false if there is none before the other end.
    pub fn step(&mut self, end: End, engine: &Engine, keyspace: &Keyspace) -> Result<bool> {
        let own = self.own.txn();
        let (lower, upper) = (&self.bounds.0, &self.bounds.1);
        let (mine, other) = match end {
            End::Front => (&mut self.front, &self.back),
            End::Back => (&mut self.back, &self.front),
        };
        let cursor = match mine {
            Some(cursor) => {
                match end {
                    End::Front => cursor.next(own)?,
                    End::Back => cursor.prev(own)?,
                }
                cursor
            }
            None => {
                let mut cursor = engine.cursor();
                cursor.open(own, self.point.seq(), lower, upper)?;
                // What the cursor was opened on stays, so from here on a drop does not matter.
                keyspace.check()?;
                match end {
                    End::Front => cursor.seek_ge(own, lower)?,
                    End::Back => cursor.seek_lt(own, upper)?,
                }
                mine.insert(cursor)
            }
        };
        let before_the_other = |other: &Cursor| match end {
            End::Front => cursor.key() < other.key(),
            End::Back => cursor.key() > other.key(),
        };
        Ok(cursor.valid() && other.as_ref().is_none_or(before_the_other))
    }

    pub fn cursor(&self, end: End) -> Option<&Cursor> {
        match end {
            End::Front => self.front.as_ref(),
            End::Back => self.back.as_ref(),
        }
    }
}
