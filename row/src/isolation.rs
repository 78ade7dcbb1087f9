//! What a statement asks of the transactions beside its own: which of their changes it sees, and whether it waits for their locks.

/// Isolation levels of SQL. READ UNCOMMITTED works as READ COMMITTED.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Isolation {
    /// Level 0.
    ReadUncommitted,
    /// Level 1.
    ReadCommitted,
    /// Level 2.
    RepeatableRead,
    /// Level 3.
    Serializable,
}

/// What a locking read does when a row is locked by somebody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Waits up to the session's timeout.
    Wait,
    /// Fails at once.
    NoWait,
    /// Goes on with the next row.
    SkipLocked,
}
