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

use std::cmp::Ordering;
use std::sync::Arc;

use super::Txn;
use crate::base::{Kind, Result, SeqNo};
use crate::engine::{Core, DEAD_RUN};
use crate::iter::{MergeIter, VisibleIter};
use crate::read::{Source, add_sources};
use crate::state::ReadState;
use crate::write_buffer::{OpNo, Savepoint, WriteBuffer};

/// The committed rows.
type Base = VisibleIter<MergeIter<Source>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// On no row.
    Nowhere,
    /// The row is the committed one.
    Base,
    /// The row is a copy of the transaction's own.
    Own,
}

/// Which way a cursor goes. All that differs between the two is here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

impl Way {
    /// Less: a row with key `a` comes before one with key `b`.
    fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Way::Forward => a.cmp(b),
            Way::Backward => b.cmp(a),
        }
    }

    fn step(self, base: &mut Base) -> Result<()> {
        match self {
            Way::Forward => base.next(),
            Way::Backward => base.prev(),
        }
    }

    /// To the first row that does not come before `key`; backward, behind it.
    fn seek(self, base: &mut Base, key: &[u8]) -> Result<()> {
        match self {
            Way::Forward => base.seek_ge(key),
            Way::Backward => base.seek_lt(key),
        }
    }

    /// The first own operation behind `key`.
    fn own_behind(self, buffer: &WriteBuffer, key: &[u8]) -> Option<OpNo> {
        match self {
            Way::Forward => buffer.first_from(key, true),
            Way::Backward => buffer.last_before(key),
        }
    }

    /// Is `key` before the end of the cursor's range?
    fn is_inside(self, base: &Base, key: &[u8]) -> bool {
        match self {
            Way::Forward => base.upper().is_none_or(|upper| key < upper),
            Way::Backward => base.lower().is_none_or(|lower| key >= lower),
        }
    }
}

/// See the module. Reusable: `open` and `close` may alternate any number of times, in the memory of the first.
pub struct Cursor {
    core: Arc<Core>,
    base: Base,
    /// While open: keeps memtables and files alive.
    pin: Option<Arc<ReadState>>,
    opened_at: Savepoint,
    generation: u64,
    own_at: Option<OpNo>,
    side: Side,
    way: Way,
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
            base: VisibleIter::new(MergeIter::new(Vec::new()), SeqNo::ZERO, None, None),
            pin: None,
            opened_at: Savepoint(0),
            generation: 0,
            own_at: None,
            side: Side::Nowhere,
            way: Way::Forward,
            base_lost: false,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Prepares to read keys in `[lower, upper)` at `read`, for which the caller holds a read point until `close`.
    pub fn open(&mut self, own: &Txn, read: SeqNo, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.side = Side::Nowhere;
        self.pin = None;
        let pin = self.core.states.pin();
        let merge = self.base.reopen(read, Some(lower), Some(upper));
        merge.refill(|sources| add_sources(&self.core, &pin, read, lower, upper, sources))?;
        self.pin = Some(pin);
        self.opened_at = own.buffer.savepoint();
        Ok(())
    }

    /// Lets go of memtables and files. The position is lost.
    pub fn close(&mut self) {
        self.side = Side::Nowhere;
        self.base.read_anew(SeqNo::ZERO).clear();
        self.pin = None;
    }

    /// True between `open` and `close`.
    pub fn is_open(&self) -> bool {
        self.pin.is_some()
    }

    /// The read point in use.
    pub fn read_seq(&self) -> Option<SeqNo> {
        self.pin.as_ref().map(|_| self.base.read_point())
    }

    /// Moves to a newer read point (the caller holds it) and the current set of files. The cursor keeps its place: `next`
    /// and `prev` go on from the key it stood on, but there is no current row until then.
    pub fn refresh(&mut self, read: SeqNo) -> Result<()> {
        if self.pin.is_none() {
            return Ok(());
        }
        let pin = self.core.states.pin();
        let mut sources = Vec::new();
        let (lower, upper) = (self.base.lower().unwrap_or_default(), self.base.upper().unwrap_or_default());
        add_sources(&self.core, &pin, read, lower, upper, &mut sources)?;
        if self.side == Side::Base {
            self.key.clear();
            self.key.extend_from_slice(self.base.key());
            self.side = Side::Own;
        }
        *self.base.read_anew(read) = MergeIter::new(sources);
        self.pin = Some(pin);
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
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.side == Side::Base { self.base.key() } else { &self.key }
    }

    /// Value of the row.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.side == Side::Base { self.base.value() } else { &self.value }
    }

    /// Versions and tombstones stepped over since `open`.
    pub fn skipped(&self) -> u64 {
        self.base.skipped()
    }

    /// To the first row with a key `>= key`.
    pub fn seek_ge(&mut self, own: &Txn, key: &[u8]) -> Result<()> {
        self.side = Side::Nowhere;
        if self.pin.is_none() {
            return Ok(());
        }
        let skipped = self.base.skipped();
        self.base.seek_ge(key)?;
        if self.base.skipped() - skipped >= DEAD_RUN {
            let reached = if self.base.valid() { self.base.key() } else { self.base.upper().unwrap_or(key) };
            self.core.passed_dead_run(key, reached);
        }
        let from = self.base.lower().map_or(key, |lower| lower.max(key));
        self.own_at = own.buffer.first_from(from, false);
        self.generation = own.buffer.generation();
        self.settle(&own.buffer, Way::Forward)
    }

    /// To the last row with a key `< key`.
    pub fn seek_lt(&mut self, own: &Txn, key: &[u8]) -> Result<()> {
        self.side = Side::Nowhere;
        if self.pin.is_none() {
            return Ok(());
        }
        let skipped = self.base.skipped();
        self.base.seek_lt(key)?;
        if self.base.skipped() - skipped >= DEAD_RUN {
            let reached = if self.base.valid() { self.base.key() } else { self.base.lower().unwrap_or(key) };
            self.core.passed_dead_run(reached, key);
        }
        let from = self.base.upper().map_or(key, |upper| upper.min(key));
        self.own_at = own.buffer.last_before(from);
        self.generation = own.buffer.generation();
        self.settle(&own.buffer, Way::Backward)
    }

    /// To the next row. Requires `valid()`.
    pub fn next(&mut self, own: &Txn) -> Result<()> {
        self.step(&own.buffer, Way::Forward)
    }

    /// To the previous row. Requires `valid()`.
    pub fn prev(&mut self, own: &Txn) -> Result<()> {
        self.step(&own.buffer, Way::Backward)
    }

    #[inline]
    fn step(&mut self, buffer: &WriteBuffer, way: Way) -> Result<()> {
        if self.pin.is_none() {
            return Ok(());
        }
        if buffer.is_empty() {
            self.own_at = None;
        } else if self.generation != buffer.generation() || self.way != way {
            let key = if self.side == Side::Base { self.base.key() } else { self.key.as_slice() };
            self.own_at = way.own_behind(buffer, key);
        } else if self.side == Side::Own {
            self.own_at = self.own_at.and_then(|op| way.own_behind(buffer, buffer.key(op)));
        }
        self.generation = buffer.generation();
        if std::mem::replace(&mut self.side, Side::Nowhere) == Side::Base {
            way.step(&mut self.base)?;
        } else {
            if self.way != way || self.base_lost {
                way.seek(&mut self.base, &self.key)?;
            }
            if self.base.valid() && self.base.key() == self.key.as_slice() {
                way.step(&mut self.base)?;
            }
        }
        self.settle(buffer, way)
    }

    fn take_own(&mut self, buffer: &WriteBuffer, op: OpNo) {
        self.side = Side::Own;
        self.key.clear();
        self.key.extend_from_slice(buffer.key(op));
        self.value.clear();
        self.value.extend_from_slice(buffer.value(op));
    }

    /// Chooses the row between base and own side, neither of which stands before it.
    #[inline]
    fn settle(&mut self, buffer: &WriteBuffer, way: Way) -> Result<()> {
        self.way = way;
        self.base_lost = false;
        while let Some(op) = self.own_at {
            let own_key = buffer.key(op);
            if !way.is_inside(&self.base, own_key) {
                break;
            }
            let order = if self.base.valid() { way.order(self.base.key(), own_key) } else { Ordering::Greater };
            if order == Ordering::Less {
                break;
            }
            let in_base = order == Ordering::Equal;
            if admits(buffer, op, in_base, self.opened_at) {
                self.take_own(buffer, op);
                return Ok(());
            }
            if in_base {
                way.step(&mut self.base)?;
            }
            self.own_at = way.own_behind(buffer, own_key);
        }
        self.side = if self.base.valid() { Side::Base } else { Side::Nowhere };
        Ok(())
    }
}

/// May a scan that was opened at `opened_at` return this operation's key, given whether the committed rows have it?
fn admits(buffer: &WriteBuffer, op: OpNo, in_base: bool, opened_at: Savepoint) -> bool {
    buffer.kind(op) == Kind::Put && (in_base || buffer.present_before(op, opened_at) == Some(true))
}
