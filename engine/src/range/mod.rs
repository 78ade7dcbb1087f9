//! Ranges of keys: iterators from both ends.
//!
//! - `key`: keys with and without the number of their index; bounds
//! - `plain`: reading at a read point
//! - `locking`: reading what nobody else may change before the transaction ends
//! - `locker`: how a transaction takes locks
//!
//! Invariant: the two ends give out each key of the range once, in order, none twice and none left out, and stop for good at the
//! first error.
//!
//! Rejected: one cursor that goes to and fro between the ends (a seek in every source at each turn).

pub(crate) mod key;
pub(crate) mod locker;
mod locking;
mod plain;

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use self::key::Bounds;
pub use self::key::{Key, KeyRange};
use self::locker::Locker;
use self::locking::LockingRange;
use self::plain::PlainRange;
use crate::base::{IndexId, Result};
use crate::engine::Engine;
use crate::keyspace::Keyspace;
use crate::read_point::ReadPoint;
use crate::txn::{Cursor, Txn};
use crate::value::Value;

/// The end from which a range is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// The transaction whose writes are seen.
pub(crate) enum Own<'a> {
    /// One without any.
    Nothing(Box<Txn>),
    Writes(&'a Txn),
}

impl Own<'_> {
    fn txn(&self) -> &Txn {
        match self {
            Own::Nothing(txn) => txn,
            Own::Writes(txn) => txn,
        }
    }
}

enum Walk<'a> {
    Plain(Box<PlainRange<'a>>),
    Locking(Box<LockingRange<'a>>),
}

/// The rows of a range, lent one at a time: keys and values are where the store has them, and stay until the range moves on. Got from
/// [`Range::into_lending`].
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let users = engine.keyspace("users")?;
/// engine.put(&users, "alice", [1; 1000])?;
/// engine.put(&users, "bob", [2; 1000])?;
/// let mut rows = engine.snapshot().iter(&users).into_lending();
/// let mut bytes = 0;
/// while let Some((key, value)) = rows.next()? {
///     bytes += key.len() + value.len();
/// }
/// assert_eq!(bytes, 2008);
/// # Ok(()) }
/// ```
pub struct LendingRange<'a> {
    engine: Engine,
    keyspace: Keyspace,
    walk: Walk<'a>,
    is_open: bool,
    is_done: bool,
}

impl<'a> LendingRange<'a> {
    /// Of what `point` shows, and the transaction's own writes.
    pub(crate) fn plain(
        engine: &Engine,
        keyspace: &Keyspace,
        own: Own<'a>,
        point: Arc<ReadPoint>,
        bounds: Bounds,
    ) -> LendingRange<'a> {
        LendingRange::new(engine, keyspace, Walk::Plain(Box::new(PlainRange::new(own, point, bounds))))
    }

    /// Of the newest state, locked, and the transaction's own writes.
    pub(crate) fn locking(
        engine: &Engine,
        keyspace: &Keyspace,
        own: &'a Txn,
        locker: &'a Locker,
        bounds: Bounds,
    ) -> LendingRange<'a> {
        LendingRange::new(engine, keyspace, Walk::Locking(Box::new(LockingRange::new(own, locker, bounds))))
    }

    fn new(engine: &Engine, keyspace: &Keyspace, walk: Walk<'a>) -> LendingRange<'a> {
        LendingRange { engine: engine.clone(), keyspace: keyspace.clone(), walk, is_open: false, is_done: false }
    }

    fn step(&mut self, end: End) -> Result<Option<&Cursor>> {
        if self.is_done {
            return Ok(None);
        }
        // Also after an error: where the range would go on is not known then.
        self.is_done = true;
        self.engine.check()?;
        if !self.is_open {
            self.engine.keyspaces.index_of(&self.keyspace)?;
            self.is_open = true;
        }
        let found = match &mut self.walk {
            Walk::Plain(walk) => walk.step(end, &self.engine, &self.keyspace)?,
            Walk::Locking(walk) => walk.step(end, &self.engine, &self.keyspace)?,
        };
        self.is_done = !found;
        let cursor = match &self.walk {
            Walk::Plain(walk) => walk.cursor(end),
            Walk::Locking(walk) => walk.cursor(end),
        };
        Ok(cursor.filter(|_| found))
    }

    /// The next row from the front. After `None` or an error there is none any more.
    #[allow(clippy::should_implement_trait)] // An iterator cannot lend.
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.step(End::Front)?.map(lent))
    }

    /// The next row from the back. After `None` or an error there is none any more.
    pub fn next_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.step(End::Back)?.map(lent))
    }
}

fn lent(cursor: &Cursor) -> (&[u8], &[u8]) {
    (&cursor.key()[IndexId::LEN..], cursor.value())
}

/// The rows of a range, in the order of their keys: an iterator from both ends.
///
/// Keys and values are copied, but for values of a mebibyte and more; see [`Range::into_lending`] for none. Nothing is read before the
/// first row is asked for. The first error is the last item.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let users = engine.keyspace("users")?;
/// for name in ["alice", "bob", "carol"] {
///     engine.put(&users, name, name.to_uppercase())?;
/// }
/// let snapshot = engine.snapshot();
/// let mut range = snapshot.range(&users, "alice"..="carol");
/// let (first, _) = range.next().expect("alice")?;
/// let (last, value) = range.next_back().expect("carol")?;
/// assert!(first == "alice" && last == "carol" && value == "CAROL");
/// assert_eq!(range.count(), 1);
///
/// let backward: Result<Vec<_>, _> = snapshot.prefix(&users, "b").rev().collect();
/// assert_eq!(backward?.len(), 1);
/// # Ok(()) }
/// ```
pub struct Range<'a>(LendingRange<'a>);

impl<'a> Range<'a> {
    pub(crate) fn of(rows: LendingRange<'a>) -> Range<'a> {
        Range(rows)
    }

    /// The same rows, lent instead of copied.
    pub fn into_lending(self) -> LendingRange<'a> {
        self.0
    }

    fn step(&mut self, end: End) -> Option<Result<(Key, Value)>> {
        let row = |cursor: &Cursor| {
            let value = cursor.large_value().map_or_else(|| Value::copy(cursor.value()), Value::large);
            (Key::of_stored(cursor.key()), value)
        };
        self.0.step(end).map(|cursor| cursor.map(row)).transpose()
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

impl FusedIterator for Range<'_> {}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Range of {:?}", self.0.keyspace)
    }
}
