//! What is asked of prepared transactions that no session holds.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::base::{Error, IndexId, Result};
use crate::crash_point::CrashPoint;
use crate::journal::Durable;
use crate::lock::LockOwner;
use crate::recover;

/// For a [layer](crate::layer) above.
impl Engine {
    /// Ids of prepared transactions that no session holds.
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        self.core.journal.detached()
    }

    /// The same, with the owners of their locks, for reports.
    pub fn prepared_owners(&self) -> Vec<(Vec<u8>, Arc<LockOwner>)> {
        self.core.journal.detached_owners()
    }

    /// Whether a prepared transaction, with or without a session, writes to one of these indexes.
    pub fn prepared_writes(&self, indexes: &[IndexId]) -> bool {
        self.core.journal.committer.prepared_writes(indexes)
    }

    /// Waits until no prepared transaction writes to one of these indexes, and what those that ended meanwhile have written is
    /// visible. Nobody may prepare another one that does, as long as the caller counts on it. `is_interrupted` is asked again and
    /// again.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] after `timeout`; [`Error::Interrupted`].
    pub fn await_prepared(
        &self,
        indexes: &[IndexId],
        timeout: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.core.journal.committer.await_prepared(indexes, timeout, is_interrupted)
    }

    /// Whether a transaction that was prepared when the store was opened has not ended. It holds the locks of what it wrote, and not
    /// those of what it only read with locks.
    pub fn has_recovered(&self) -> bool {
        self.core.journal.has_recovered()
    }

    /// Says that what a crash has left prepared was decided, as far as the decisions had been made before: what is committed from now on is
    /// committed now. To be called once by a layer with such transactions, after it has opened the store; the history waits for it.
    pub fn end_recovery(&self) {
        self.core.tree.timeline.hold(false);
    }

    /// Commits a transaction listed by `prepared`; durable when this returns. False if there is none of this id.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<bool> {
        let Some(prepared) = self.core.journal.take(xid) else { return Ok(false) };
        let core = &self.core;
        let sound = if prepared.is_recovered { recover::check_spilled(core, prepared.id) } else { Ok(()) };
        let ordered = match sound.and_then(|()| core.order(|committer| committer.order_prepared(prepared.id))) {
            Ok(ordered) => ordered,
            Err(error) => {
                // Still prepared, in the log as in memory.
                core.journal.put_back(xid, prepared);
                return Err(error);
            }
        };
        core.finish_commit(&ordered, None, Some(&prepared.owner), Durable::Synced)?;
        core.journal.ended(&prepared);
        Ok(true)
    }

    /// Rolls back a transaction listed by `prepared`; durable when this returns. False if there is none of this id.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<bool> {
        let Some(prepared) = self.core.journal.take(xid) else { return Ok(false) };
        let core = &self.core;
        match core.undo_prepared(prepared.id) {
            Ok(undone) => {
                core.finish_rollback(&undone, &prepared.owner, Durable::Synced)?;
                core.journal.ended(&prepared);
                core.give_up_files(&undone.batch);
                core.crash_point(CrashPoint::RolledBack);
                Ok(true)
            }
            Err(error) => {
                core.journal.put_back(xid, prepared);
                Err(error)
            }
        }
    }

    /// Gives a transaction listed by `prepared` another id; durable when this returns. False if there is none of this id. It
    /// is an error if another one has the new id.
    pub fn rename_prepared(&self, xid: &[u8], to: &[u8]) -> Result<bool> {
        let core = &self.core;
        if core.journal.committer.is_prepared(to) {
            return Err(Error::Invalid("a prepared transaction has the new id already".into()));
        }
        let Some(prepared) = self.core.journal.take(xid) else { return Ok(false) };
        let renamed = core.journal.committer.rename_prepared(prepared.id, to);
        let now = if renamed.is_ok() { to } else { xid };
        core.journal.put_back(now, prepared);
        core.journal.log.sync(renamed?)?;
        Ok(true)
    }
}
