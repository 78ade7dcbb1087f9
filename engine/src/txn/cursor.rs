//! A cursor: committed rows at a read point merged with the writes of one transaction.
//!
//! Two ordered sources, the base (`VisibleIter` over the runs of a large transaction, memtables and tables) and the write
//! buffer, advance in step; a key that both have is taken from the buffer. The buffer changes while the cursor is open,
//! so its place there is found anew, by the key the cursor stands on, whenever the buffer's generation has moved. When
//! operations move from the buffer to a run, or come back by a rollback, the base is built anew in the same way.
//!
//! An open cursor holds the memtables and files it was opened on. A long scan would keep memtables in memory that are in
//! tables long since, and that no budget knows of. So with the first movement after a flush the cursor is *renewed*: its
//! base is built anew from what is there now, at the same read point, for which everything is kept (invariant 6), and goes
//! on from its key. Only where an index was dropped meanwhile it stays with what it has.
//!
//! What the transaction writes after `open`: deletions and new values of keys not yet reached are seen; keys that did
//! not exist at `open` are not returned, so that a statement which moves rows ahead of its own scan ends.
//!
//! Rejected: copying the write buffer at open (large transactions), and a snapshot number per buffered operation (the
//! position in the buffer already is one).

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use super::Txn;
use crate::base::interrupt::interruptible;
use crate::base::value::{LargeValue, Unread};
use crate::base::{Kind, Result, SeqNo};

use crate::iter::{MergeIter, VisibleIter};
use crate::parts::{Core, DEAD_RUN};
use crate::read::{Reach, Source, add_sources, get_in};
use crate::sst::{IterMemory, let_go};
use crate::state::{Mem, ReadState};
use crate::write_buffer::{OpNo, Savepoint, WriteBuffer};

/// Memory for a value that a closed cursor keeps.
const KEPT_BYTES: usize = 64 << 10;

/// The committed rows, and before them the transaction's own in runs.
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
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Less: a row with key `a` comes before one with key `b`.
    fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    fn step(self, base: &mut Base) -> Result<()> {
        match self {
            Direction::Forward => base.next(),
            Direction::Backward => base.prev(),
        }
    }

    /// To the first row that does not come before `key`; backward, behind it.
    fn seek(self, base: &mut Base, key: &[u8]) -> Result<()> {
        match self {
            Direction::Forward => base.seek_ge(key),
            Direction::Backward => base.seek_lt(key),
        }
    }

    /// The first own operation that a seek to `key` may stop at.
    fn own_from(self, buffer: &WriteBuffer, key: &[u8]) -> Option<OpNo> {
        match self {
            Direction::Forward => buffer.first_from(key, false),
            Direction::Backward => buffer.last_before(key),
        }
    }

    /// Where a seek to `key` begins within the cursor's range.
    fn clamp<'a>(self, base: &'a Base, key: &'a [u8]) -> &'a [u8] {
        match self {
            Direction::Forward => base.lower().map_or(key, |lower| lower.max(key)),
            Direction::Backward => base.upper().map_or(key, |upper| upper.min(key)),
        }
    }

    /// The interval that a seek to `key` has passed.
    fn passed<'a>(self, base: &'a Base, key: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let row = base.valid().then(|| base.key());
        match self {
            Direction::Forward => (key, row.or(base.upper()).unwrap_or(key)),
            Direction::Backward => (row.or(base.lower()).unwrap_or(key), key),
        }
    }

    /// The first own operation behind `key`.
    fn own_behind(self, buffer: &WriteBuffer, key: &[u8]) -> Option<OpNo> {
        match self {
            Direction::Forward => buffer.first_from(key, true),
            Direction::Backward => buffer.last_before(key),
        }
    }

    /// Is `key` before the end of the cursor's range?
    fn is_inside(self, base: &Base, key: &[u8]) -> bool {
        match self {
            Direction::Forward => base.upper().is_none_or(|upper| key < upper),
            Direction::Backward => base.lower().is_none_or(|lower| key >= lower),
        }
    }
}

/// See the module. Reusable: `open` and `close` may alternate any number of times, in the memory of the first.
pub struct Cursor {
    core: Arc<Core>,
    base: Base,
    /// While open: keeps memtables and files alive.
    pin: Option<Arc<ReadState>>,
    /// Flushes before the pin was taken.
    flushes: u64,
    opened_at: Savepoint,
    generation: u64,
    /// That of the runs in the base.
    runs: u64,
    /// There are runs written since `open`: the base may have keys that did not exist then.
    late: bool,
    own_at: Option<OpNo>,
    side: Side,
    direction: Direction,
    /// After `refresh`: the base stands nowhere, the next step begins with a seek.
    base_lost: bool,
    /// Its latest large value was asked for: the next row may be a large one as well, and is read interruptibly.
    large: Cell<bool>,
    /// Row of the own side; and the key to go on from while the base is not on it.
    key: Vec<u8>,
    value: Vec<u8>,
    /// Memory of closed sources, for the next ones.
    spare: Vec<IterMemory>,
}

impl Cursor {
    pub(crate) fn new(core: Arc<Core>) -> Cursor {
        Cursor {
            core,
            base: VisibleIter::new(MergeIter::new(Vec::new()), SeqNo::ZERO, None, None),
            pin: None,
            flushes: 0,
            opened_at: Savepoint(0),
            generation: 0,
            runs: 0,
            late: false,
            own_at: None,
            side: Side::Nowhere,
            direction: Direction::Forward,
            base_lost: false,
            large: Cell::new(false),
            key: Vec::new(),
            value: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Prepares to read keys in `[lower, upper)` at `read`, for which the caller holds a read point until `close`.
    pub fn open(&mut self, own: &Txn, read: SeqNo, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.reset();
        self.flushes = self.core.tree.states.flushes();
        let pin = self.core.tree.states.pin();
        let (spare, merge) = (&mut self.spare, self.base.reopen(read, Some(lower), Some(upper)));
        let reach = Reach { ssts: &self.core.tree.ssts, state: &pin, read, keys: lower..upper };
        merge.refill(|sources| all_sources(own, &reach, spare, sources))?;
        self.pin = Some(pin);
        // A kill ends the passage of dead rows. A transaction's owner is a new one each time.
        self.base.set_interrupt(own.owner.interrupt_flag());
        self.runs = own.runs.generation();
        self.late = false;
        self.opened_at = own.buffer.savepoint();
        Ok(())
    }

    /// Lets go of memtables and files, and of what an estimate has left for it. The position is lost.
    pub fn close(&mut self) {
        self.reset();
        let_go();
    }

    fn reset(&mut self) {
        self.side = Side::Nowhere;
        if self.value.capacity() > KEPT_BYTES {
            self.value = Vec::new();
        }
        let sources = self.base.read_anew(SeqNo::ZERO).drain();
        self.spare.extend(sources.filter_map(Source::into_memory));
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
    pub fn refresh(&mut self, own: &Txn, read: SeqNo) -> Result<()> {
        if self.pin.is_none() {
            return Ok(());
        }
        self.flushes = self.core.tree.states.flushes();
        self.rebuild(own, self.core.tree.states.pin(), read)
    }

    /// Lets go of memtables that have been flushed. See the module.
    #[cold]
    fn renew(&mut self, own: &Txn) -> Result<()> {
        let Some(held) = &self.pin else { return Ok(()) };
        let flushes = self.core.tree.states.flushes();
        let now = self.core.tree.states.pin();
        let is_flushed = |mem: &Arc<Mem>| !now.memtables().any(|other| Arc::ptr_eq(mem, other));
        let holds = held.memtables().any(|mem| !mem.table.is_empty() && is_flushed(mem));
        let (lower, upper) = (self.base.lower().unwrap_or_default(), self.base.upper().unwrap_or_default());
        if holds && !self.core.tree.installer.dropped_since(self.flushes, lower, upper) {
            self.rebuild(own, now, self.base.read_point())?;
        }
        self.flushes = flushes;
        Ok(())
    }

    /// Takes the runs as they are now into the base.
    #[cold]
    fn follow_runs(&mut self, own: &Txn) -> Result<()> {
        let Some(pin) = self.pin.clone() else { return Ok(()) };
        self.rebuild(own, pin, self.base.read_point())
    }

    fn rebuild(&mut self, own: &Txn, pin: Arc<ReadState>, read: SeqNo) -> Result<()> {
        let mut sources = Vec::new();
        let (lower, upper) = (self.base.lower().unwrap_or_default(), self.base.upper().unwrap_or_default());
        let reach = Reach { ssts: &self.core.tree.ssts, state: &pin, read, keys: lower..upper };
        all_sources(own, &reach, &mut self.spare, &mut sources)?;
        if self.side == Side::Base {
            self.key.clear();
            self.key.extend_from_slice(self.base.key());
            self.side = Side::Own;
        }
        *self.base.read_anew(read) = MergeIter::new(sources);
        self.pin = Some(pin);
        self.late |= self.runs != own.runs.generation();
        self.runs = own.runs.generation();
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

    /// Value of the row by itself, if it is a large one: it need not be copied to outlive the cursor's next movement.
    #[inline]
    pub fn large_value(&self) -> Option<LargeValue> {
        let value = if self.side == Side::Base { self.base.large_value() } else { None };
        self.large.set(value.is_some());
        value
    }

    /// From here on until the next `open`, movements fail with [`Interrupted`](crate::base::Error::Interrupted) once [`Cursor::skipped`] has reached `most`:
    /// for who wants to know how dense the rows lie, and not to wait for the next one.
    pub fn set_skips_max(&mut self, most: u64) {
        self.base.set_skips_max(most);
    }

    /// Versions and tombstones stepped over since `open`.
    pub fn skipped(&self) -> u64 {
        self.base.skipped()
    }

    /// To the first row with a key `>= key`.
    pub fn seek_ge(&mut self, own: &Txn, key: &[u8]) -> Result<()> {
        self.seek(own, key, Direction::Forward)
    }

    /// To the last row with a key `< key`.
    pub fn seek_lt(&mut self, own: &Txn, key: &[u8]) -> Result<()> {
        self.seek(own, key, Direction::Backward)
    }

    #[inline]
    fn seek(&mut self, own: &Txn, key: &[u8], direction: Direction) -> Result<()> {
        self.side = Side::Nowhere;
        if self.pin.is_none() {
            return Ok(());
        }
        self.follow(own)?;
        let skipped = self.base.skipped();
        interruptible(own.owner.interrupt_flag(), || direction.seek(&mut self.base, key))?;
        if self.base.skipped() - skipped >= DEAD_RUN {
            let (from, to) = direction.passed(&self.base, key);
            self.core.passed_dead_run(from, to);
        }
        self.own_at = direction.own_from(&own.buffer, direction.clamp(&self.base, key));
        self.generation = own.buffer.generation();
        self.settle(own, direction)
    }

    /// Takes in what flushes and spills have changed since the last movement.
    #[inline]
    fn follow(&mut self, own: &Txn) -> Result<()> {
        if self.flushes != self.core.tree.states.flushes() {
            self.renew(own)?;
        }
        if self.runs != own.runs.generation() {
            self.follow_runs(own)?;
        }
        Ok(())
    }

    /// To the next row. Requires `valid()`.
    pub fn next(&mut self, own: &Txn) -> Result<()> {
        self.step_asking(own, Direction::Forward)
    }

    /// To the previous row. Requires `valid()`.
    pub fn prev(&mut self, own: &Txn) -> Result<()> {
        self.step_asking(own, Direction::Backward)
    }

    #[inline]
    fn step_asking(&mut self, own: &Txn, direction: Direction) -> Result<()> {
        match self.large.get() {
            false => self.step(own, direction),
            true => interruptible(own.owner.interrupt_flag(), || self.step(own, direction)),
        }
    }

    #[inline]
    fn step(&mut self, own: &Txn, direction: Direction) -> Result<()> {
        if self.pin.is_none() {
            return Ok(());
        }
        self.follow(own)?;
        let buffer = &own.buffer;
        if buffer.is_empty() {
            self.own_at = None;
        } else if self.generation != buffer.generation() || self.direction != direction {
            let key = if self.side == Side::Base { self.base.key() } else { self.key.as_slice() };
            self.own_at = direction.own_behind(buffer, key);
        } else if self.side == Side::Own {
            self.own_at = self.own_at.and_then(|op| direction.own_behind(buffer, buffer.key(op)));
        }
        self.generation = buffer.generation();
        if std::mem::replace(&mut self.side, Side::Nowhere) == Side::Base {
            direction.step(&mut self.base)?;
        } else {
            if self.direction != direction || self.base_lost {
                direction.seek(&mut self.base, &self.key)?;
            }
            if self.base.valid() && self.base.key() == self.key.as_slice() {
                direction.step(&mut self.base)?;
            }
        }
        self.settle(own, direction)
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
    fn settle(&mut self, own: &Txn, direction: Direction) -> Result<()> {
        self.direction = direction;
        self.base_lost = false;
        let buffer = &own.buffer;
        loop {
            let op = self.own_at.filter(|&op| direction.is_inside(&self.base, buffer.key(op)));
            let order = match op {
                Some(op) if self.base.valid() => direction.order(self.base.key(), buffer.key(op)),
                Some(_) => Ordering::Greater,
                None => Ordering::Less,
            };
            match op.filter(|_| order != Ordering::Less) {
                Some(op) => {
                    let in_base = order == Ordering::Equal;
                    if self.admits_own(own, op, in_base)? {
                        self.take_own(buffer, op);
                        return Ok(());
                    }
                    if in_base {
                        direction.step(&mut self.base)?;
                    }
                    self.own_at = direction.own_behind(buffer, buffer.key(op));
                }
                None if !self.base.valid() => {
                    self.side = Side::Nowhere;
                    return Ok(());
                }
                None if !self.late || self.admits_base(own)? => {
                    self.side = Side::Base;
                    return Ok(());
                }
                None => direction.step(&mut self.base)?,
            }
        }
    }

    /// May the scan return the base's row, given that there are runs written since `open`?
    fn admits_base(&self, own: &Txn) -> Result<bool> {
        let key = self.base.key();
        Ok(!own.runs.may_have_written_since(key, self.opened_at.0) || self.existed_at_open(own, key)?)
    }

    /// May the scan return the key of this operation, given whether the base has it?
    fn admits_own(&self, own: &Txn, op: OpNo, in_base: bool) -> Result<bool> {
        let buffer = &own.buffer;
        if buffer.kind(op) == Kind::Delete {
            return Ok(false);
        }
        if self.late && own.runs.may_have_written_since(buffer.key(op), self.opened_at.0) {
            return self.existed_at_open(own, buffer.key(op));
        }
        Ok(buffer.present_before(op, self.opened_at).unwrap_or(in_base))
    }

    #[cold]
    fn existed_at_open(&self, own: &Txn, key: &[u8]) -> Result<bool> {
        let in_buffer = own.buffer.get(key).and_then(|op| own.buffer.present_before(op, self.opened_at));
        if let Some(present) = in_buffer {
            return Ok(present);
        }
        if let Some((kind, _)) = own.runs.get(key, self.opened_at.0)? {
            return Ok(kind == Kind::Put);
        }
        match &self.pin {
            Some(pin) => get_in(&self.core.tree.ssts, pin, key, self.base.read_point(), &mut Unread),
            None => Ok(false),
        }
    }
}

/// The transaction's runs, then what is committed.
fn all_sources(own: &Txn, reach: &Reach<'_>, spare: &mut Vec<IterMemory>, sources: &mut Vec<Source>) -> Result<()> {
    if !own.runs.is_empty() {
        let runs = own.runs.sources(reach.read, reach.keys.start, reach.keys.end);
        sources.extend(runs.into_iter().map(|run| Source::Own(Box::new(run))));
    }
    add_sources(reach, spare, sources)
}
