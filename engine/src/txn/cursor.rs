//! A cursor: committed rows at a read point merged with the writes of one transaction.
//!
//! Two ordered sources, the committed rows (`VisibleIter` over memtables and tables) and the write buffer, advance in
//! step; a key that both have is taken from the buffer. The buffer changes while the cursor is open, so its place there
//! is found anew, by the key the cursor stands on, whenever the buffer's generation has moved.
//!
//! What the transaction writes after `open`: deletions and new values of keys not yet reached are seen; keys that did
//! not exist at `open` are not returned, so that a statement which moves rows ahead of its own scan ends.
//!
//! Rejected: copying the write buffer at open (large transactions), and a snapshot number per buffered operation (the
//! position in the buffer already is one).

use std::sync::Arc;

use super::Txn;
use crate::base::{Kind, Result, SeqNo};
use crate::engine::Core;
use crate::iter::{MergeIter, VisibleIter};
use crate::read::{Source, sources};
use crate::state::ReadState;
use crate::write_buffer::{OpNo, Savepoint, WriteBuffer};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// On no row.
    Nowhere,
    /// The row is the committed one.
    Base,
    /// The row is a copy of the transaction's own.
    Own,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

struct Open {
    base: VisibleIter<MergeIter<Source>>,
    /// Keeps memtables and files alive; also tells whether `refresh` has anything to do.
    pin: Arc<ReadState>,
    lower: Vec<u8>,
    upper: Vec<u8>,
}

/// See the module. Reusable: `open` and `close` may alternate any number of times.
pub struct Cursor {
    core: Arc<Core>,
    open: Option<Open>,
    opened_at: Savepoint,
    generation: u64,
    own_at: Option<OpNo>,
    side: Side,
    direction: Direction,
    /// After `refresh`: the base stands nowhere, the next step begins with a seek.
    base_lost: bool,
    /// Row of the own side; and the key to go on from while the base is not on it.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Cursor {
    pub(crate) fn new(core: Arc<Core>) -> Cursor {
        Cursor {
            core,
            open: None,
            opened_at: Savepoint(0),
            generation: 0,
            own_at: None,
            side: Side::Nowhere,
            direction: Direction::Forward,
            base_lost: false,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Prepares to read keys in `[lower, upper)` at `read`, for which the caller holds a read point until `close`.
    pub fn open(&mut self, own: &Txn, read: SeqNo, lower: &[u8], upper: &[u8]) -> Result<()> {
        let pin = self.core.states.pin();
        let merged = MergeIter::new(sources(&self.core, &pin, read, lower, upper)?);
        let base = VisibleIter::new(merged, read, Some(lower), Some(upper));
        self.open = Some(Open { base, pin, lower: lower.to_vec(), upper: upper.to_vec() });
        self.opened_at = own.buffer.savepoint();
        self.side = Side::Nowhere;
        Ok(())
    }

    /// Lets go of memtables and files. The position is lost.
    pub fn close(&mut self) {
        self.open = None;
        self.side = Side::Nowhere;
    }

    /// True between `open` and `close`.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The read point in use.
    pub fn read_seq(&self) -> Option<SeqNo> {
        self.open.as_ref().map(|open| open.base.read_point())
    }

    /// Moves to a newer read point (the caller holds it) and the current set of files. The cursor keeps its place: `next`
    /// and `prev` go on from the key it stood on, but there is no current row until then.
    pub fn refresh(&mut self, read: SeqNo) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let pin = self.core.states.pin();
        let merged = MergeIter::new(sources(&self.core, &pin, read, &open.lower, &open.upper)?);
        if self.side == Side::Base {
            self.key.clear();
            self.key.extend_from_slice(open.base.key());
            self.side = Side::Own;
        }
        open.base = VisibleIter::new(merged, read, Some(&open.lower), Some(&open.upper));
        open.pin = pin;
        self.base_lost = true;
        // The current key now counts as the own side's, which may stand further on: it is to be found anew.
        self.generation = u64::MAX;
        Ok(())
    }

    /// True while on a row.
    pub fn valid(&self) -> bool {
        self.side != Side::Nowhere
    }

    /// Key of the row.
    pub fn key(&self) -> &[u8] {
        match (&self.open, self.side) {
            (Some(open), Side::Base) => open.base.key(),
            _ => &self.key,
        }
    }

    /// Value of the row.
    pub fn value(&self) -> &[u8] {
        match (&self.open, self.side) {
            (Some(open), Side::Base) => open.base.value(),
            _ => &self.value,
        }
    }

    /// Versions and tombstones stepped over since `open`.
    pub fn skipped(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.base.skipped())
    }

    /// To the first row with a key `>= key`.
    pub fn seek_ge(&mut self, own: &Txn, key: &[u8]) -> Result<()> {
        self.side = Side::Nowhere;
        let Some(open) = &mut self.open else { return Ok(()) };
        open.base.seek_ge(key)?;
        let from = if key < open.lower.as_slice() { open.lower.as_slice() } else { key };
        self.own_at = own.buffer.first_from(from, false);
        self.generation = own.buffer.generation();
        self.settle_forward(&own.buffer)
    }

    /// To the last row with a key `< key`.
    pub fn seek_lt(&mut self, own: &Txn, key: &[u8]) -> Result<()> {
        self.side = Side::Nowhere;
        let Some(open) = &mut self.open else { return Ok(()) };
        open.base.seek_lt(key)?;
        let from = if key > open.upper.as_slice() { open.upper.as_slice() } else { key };
        self.own_at = own.buffer.last_before(from);
        self.generation = own.buffer.generation();
        self.settle_backward(&own.buffer)
    }

    /// To the next row. Requires `valid()`.
    pub fn next(&mut self, own: &Txn) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let buffer = &own.buffer;
        let key = if self.side == Side::Base { open.base.key() } else { self.key.as_slice() };
        if buffer.is_empty() {
            self.own_at = None;
        } else if self.generation != buffer.generation() || self.direction == Direction::Backward {
            self.own_at = buffer.first_from(key, true);
        } else if self.side == Side::Own {
            self.own_at = self.own_at.and_then(|op| buffer.first_from(buffer.key(op), true));
        }
        self.generation = buffer.generation();
        match self.side {
            Side::Base => open.base.next()?,
            _ => {
                if self.direction == Direction::Backward || self.base_lost {
                    open.base.seek_ge(&self.key)?;
                }
                if open.base.valid() && open.base.key() == self.key.as_slice() {
                    open.base.next()?;
                }
            }
        }
        self.settle_forward(buffer)
    }

    /// To the previous row. Requires `valid()`.
    pub fn prev(&mut self, own: &Txn) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let buffer = &own.buffer;
        let key = if self.side == Side::Base { open.base.key() } else { self.key.as_slice() };
        if buffer.is_empty() {
            self.own_at = None;
        } else if self.generation != buffer.generation() || self.direction == Direction::Forward {
            self.own_at = buffer.last_before(key);
        } else if self.side == Side::Own {
            self.own_at = self.own_at.and_then(|op| buffer.last_before(buffer.key(op)));
        }
        self.generation = buffer.generation();
        match self.side {
            Side::Base => open.base.prev()?,
            _ => {
                if self.direction == Direction::Forward || self.base_lost {
                    open.base.seek_lt(&self.key)?;
                } else if open.base.valid() && open.base.key() == self.key.as_slice() {
                    open.base.prev()?;
                }
            }
        }
        self.settle_backward(buffer)
    }

    fn take_own(&mut self, buffer: &WriteBuffer, op: OpNo) {
        self.side = Side::Own;
        self.key.clear();
        self.key.extend_from_slice(buffer.key(op));
        self.value.clear();
        self.value.extend_from_slice(buffer.value(op));
    }

    fn settle_forward(&mut self, buffer: &WriteBuffer) -> Result<()> {
        self.direction = Direction::Forward;
        self.base_lost = false;
        self.side = Side::Nowhere;
        loop {
            let Some(open) = &mut self.open else { return Ok(()) };
            let own = self.own_at.filter(|&op| buffer.key(op) < open.upper.as_slice());
            let Some(op) = own else {
                if open.base.valid() {
                    self.side = Side::Base;
                }
                return Ok(());
            };
            let own_key = buffer.key(op);
            let in_base = open.base.valid() && open.base.key() == own_key;
            if open.base.valid() && open.base.key() < own_key {
                self.side = Side::Base;
                return Ok(());
            }
            if admits(buffer, op, in_base, self.opened_at) {
                self.take_own(buffer, op);
                return Ok(());
            }
            if in_base {
                open.base.next()?;
            }
            self.own_at = buffer.first_from(own_key, true);
        }
    }

    fn settle_backward(&mut self, buffer: &WriteBuffer) -> Result<()> {
        self.direction = Direction::Backward;
        self.base_lost = false;
        self.side = Side::Nowhere;
        loop {
            let Some(open) = &mut self.open else { return Ok(()) };
            let own = self.own_at.filter(|&op| buffer.key(op) >= open.lower.as_slice());
            let Some(op) = own else {
                if open.base.valid() {
                    self.side = Side::Base;
                }
                return Ok(());
            };
            let own_key = buffer.key(op);
            let in_base = open.base.valid() && open.base.key() == own_key;
            if open.base.valid() && open.base.key() > own_key {
                self.side = Side::Base;
                return Ok(());
            }
            if admits(buffer, op, in_base, self.opened_at) {
                self.take_own(buffer, op);
                return Ok(());
            }
            if in_base {
                open.base.prev()?;
            }
            self.own_at = buffer.last_before(own_key);
        }
    }
}

/// May a scan that was opened at `opened_at` return this operation's key, given whether the committed rows have it?
fn admits(buffer: &WriteBuffer, op: OpNo, in_base: bool, opened_at: Savepoint) -> bool {
    buffer.kind(op) == Kind::Put && (in_base || buffer.present_before(op, opened_at) == Some(true))
}
