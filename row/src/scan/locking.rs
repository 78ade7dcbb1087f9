//! Which locks a read takes and keeps: pure decisions, by isolation level and kind of access.
//!
//! | | READ COMMITTED and below | REPEATABLE READ, SERIALIZABLE |
//! |---|---|---|
//! | plain SELECT | consistent read | consistent read; SERIALIZABLE within a transaction: shared locks |
//! | other tables read by a changing statement | consistent read | shared locks, so that replaying the statement reads the same |
//! | FOR UPDATE, UPDATE, DELETE | exclusive locks | exclusive locks |
//! | whole unique key, found | the row | the row |
//! | whole unique key, not found | nothing | the key itself |
//! | any other search or scan | the rows | the rows and the intervals read |
//! | row that does not match | given back | kept |
//! | row of an UPDATE's scan, locked by somebody else | waited for only if its committed version matches | waited for |
//!
//! The interval of a scan ends where the scan ends, and the lock of an absent unique key is on that key only: neighbours are
//! free, where an engine that locks gaps between stored rows must lock more.
//!
//! SKIP LOCKED takes no intervals: who skips rows does not ask for a stable result, and consumers of a queue would block its
//! producers.

use crate::isolation::Isolation;
use crate::kv::LockMode;

/// What a statement wants to do with a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Read it.
    Read,
    /// Read it with shared locks: LOCK IN SHARE MODE.
    ReadShared,
    /// Write to it, or read it FOR UPDATE.
    Write,
}

/// The kind of the running statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statement {
    /// SELECT.
    Query,
    /// A statement that changes data by what it reads.
    Change,
    /// Anything else: DDL, maintenance, HANDLER. Metadata locks are enough.
    Other,
}

/// The mode in which rows of a table are locked when read.
pub fn lock_of(request: Request, statement: Statement, isolation: Isolation, in_transaction: bool) -> Option<LockMode> {
    match (request, statement) {
        (Request::Write, _) => Some(LockMode::Exclusive),
        (Request::ReadShared, _) => Some(LockMode::Shared),
        (Request::Read, Statement::Change) if isolation >= Isolation::RepeatableRead => Some(LockMode::Shared),
        (Request::Read, Statement::Query) if isolation == Isolation::Serializable && in_transaction => {
            Some(LockMode::Shared)
        }
        (Request::Read, _) => None,
    }
}

/// True if a locking scan locks the intervals it reads.
pub fn locks_intervals(isolation: Isolation, skip_locked: bool) -> bool {
    keeps_unmatched(isolation) && !skip_locked
}

/// True if locks of rows that do not match, or do not exist, are kept.
pub fn keeps_unmatched(isolation: Isolation) -> bool {
    isolation >= Isolation::RepeatableRead
}

/// True if a scan may give out the committed version of a row that somebody else has locked.
pub fn may_skip_waiting(isolation: Isolation) -> bool {
    !keeps_unmatched(isolation)
}

/// True if a locked row that has changed since the transaction's snapshot is an error, where the user asked for it.
pub fn protects_snapshot(isolation: Isolation) -> bool {
    isolation >= Isolation::RepeatableRead
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "
        # request  statement  isolation        transaction  lock
        Read       Query      ReadCommitted    yes          none
        Read       Query      RepeatableRead   yes          none
        Read       Query      Serializable     yes          Shared
        Read       Query      Serializable     no           none
        Read       Change     ReadUncommitted  yes          none
        Read       Change     ReadCommitted    no           none
        Read       Change     RepeatableRead   no           Shared
        Read       Change     Serializable     no           Shared
        Read       Other      Serializable     yes          none
        ReadShared Query      ReadCommitted    no           Shared
        ReadShared Query      Serializable     no           Shared
        ReadShared Other      RepeatableRead   yes          Shared
        Write      Query      ReadCommitted    no           Exclusive
        Write      Change     RepeatableRead   yes          Exclusive
        Write      Other      RepeatableRead   no           Exclusive";

    #[test]
    fn table_locks() {
        let mut checked = 0;
        for line in TABLE.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let request = [Request::Read, Request::ReadShared, Request::Write]
                .into_iter()
                .find(|r| format!("{r:?}") == words[0])
                .unwrap();
            let statement = [Statement::Query, Statement::Change, Statement::Other]
                .into_iter()
                .find(|s| format!("{s:?}") == words[1])
                .unwrap();
            let isolation = ISOLATIONS.into_iter().find(|i| format!("{i:?}") == words[2]).unwrap();
            let lock = lock_of(request, statement, isolation, words[3] == "yes");
            assert_eq!(lock.map_or("none".into(), |l| format!("{l:?}")), words[4], "{line}");
            checked += 1;
        }
        assert_eq!(checked, 15);
    }

    const ISOLATIONS: [Isolation; 4] =
        [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

    #[test]
    fn intervals() {
        assert_eq!(ISOLATIONS.map(|i| locks_intervals(i, false)), [false, false, true, true]);
        assert_eq!(ISOLATIONS.map(|i| locks_intervals(i, true)), [false; 4]);
        assert_eq!(ISOLATIONS.map(keeps_unmatched), [false, false, true, true]);
        assert_eq!(ISOLATIONS.map(may_skip_waiting), [true, true, false, false]);
        assert_eq!(ISOLATIONS.map(protects_snapshot), [false, false, true, true]);
    }
}
