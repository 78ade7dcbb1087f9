//! A history: what sessions asked for, what they were told, and when; and the
//! check that no isolation level's promise was broken in it.
//!
//! All data are *keys* with a sequence of *versions*. Each write carries a number
//! that no other write carries, so that a value tells who wrote it. There are
//! three kinds of keys: a list keeps the numbers of all its writes, so that one
//! read shows the whole order; a register keeps the last number only, but each
//! write of it reports the number it replaced; a mortal is a list that is
//! inserted once and deleted once. Keys belong to a group (an indexed column),
//! which a write may change: a scan of a group is a read by condition.
//!
//! [`text`] is the form in which histories are kept and tests are written,
//! [`check`] finds what is wrong, [`graph`] finds the cycles, [`load`] makes histories on a server.

pub mod check;
mod edges;
pub mod graph;
pub mod load;
mod orders;
pub mod rows;
pub mod shared;
pub mod text;

#[cfg(test)]
mod tests;

/// Number of a write; never 0, never used twice.
pub type Version = u32;

/// A key. Its number tells its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    List,
    Register,
    Mortal,
}

impl Key {
    /// Numbers repeat their kinds every so many.
    pub const KINDS: u32 = 4;

    /// The kind, by the number.
    pub fn kind(self) -> KeyKind {
        match self.0 % Key::KINDS {
            0 => KeyKind::Register,
            1 => KeyKind::Mortal,
            _ => KeyKind::List,
        }
    }
}

/// What a statement saw of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// There was no row.
    Absent,
    /// All numbers, oldest first.
    List(Vec<Version>),
    /// The last number only.
    Last(Version),
}

/// What a statement did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read named keys or, with a group, all keys of it.
    Read { locking: bool, group: Option<u32>, seen: Vec<(Key, Value)> },
    /// Wrote one key. `seen` is what it replaced, if that is known.
    Write { key: Key, seen: Option<Value>, version: Version, group: Option<u32>, dead: bool },
    /// Appended to all lists and mortals of a group.
    WriteGroup { group: u32, version: Version, rows: u64 },
    /// Set a mark.
    Savepoint,
    /// Undid everything since the last mark, which stays.
    RollbackTo,
}

/// A statement. Times are microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub begin: u64,
    pub end: u64,
    /// It ended with an error that undid it, and only it.
    pub failed: bool,
    pub action: Action,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged.
    Committed,
    Aborted,
    /// The answer to the commit did not come.
    Unknown,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub session: u32,
    /// One statement without BEGIN.
    pub alone: bool,
    pub statements: Vec<Statement>,
    pub outcome: Outcome,
    /// Of the last statement or the commit.
    pub begin: u64,
    pub end: u64,
}

/// What an engine promises of plain reads at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainReads {
    /// Anything may be seen.
    Dirty,
    /// A statement sees one committed state, the newest when it began.
    Statement,
    /// So does a transaction, the newest when it read first.
    Transaction,
    /// They lock what they read, but for a statement alone.
    Locking,
}

/// What an engine promises at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    pub plain: PlainReads,
    /// What a locking read did not find does not appear until its transaction ends.
    pub ranges: bool,
    /// A write fails if the key changed after the transaction's snapshot.
    pub first_wins: bool,
}

/// A whole history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub promise: Promise,
    pub transactions: Vec<Transaction>,
}
