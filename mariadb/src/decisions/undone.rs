//! Rollbacks that the server's recovery asks for, put off until its log is as it is to be.
//!
//! A server that starts as a replica (`init-rpl-role=SLAVE`) takes the end of its binary log back, from the first transaction on that
//! is prepared and that no replica has acknowledged. It has these rolled back first, in no order, and cuts the log afterwards, from the
//! first one on that *is still prepared*. A crash between the two with one of them rolled back durably would have the next start cut
//! behind it: the log would have a transaction that the store has not, and the server would neither fetch it nor miss it.
//!
//! So while the server decides, a rollback is noted and nothing more. The server then lists what is left prepared: at that moment its log
//! has been cut, durably, and the rollbacks are done. A crash before leaves all of them prepared, as they were found; a crash
//! afterwards leaves some prepared that the log has not: these are rolled back like any other.
//!
//! Rejected: `recover_rollback_by_xid`, the server's own hook for rollbacks that are put off. 10.11 has none.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use strata_row::Result;
use strata_row::store::Store;

/// See the module.
#[derive(Default)]
pub struct Undone {
    /// While the server decides.
    recovery: Mutex<Option<Recovery>>,
}

struct Recovery {
    /// Prepared, and not to be rolled back as far as is known.
    open: BTreeSet<Vec<u8>>,
    noted: Vec<Vec<u8>>,
}

impl Undone {
    /// From now on the server decides about what is prepared in the store.
    pub fn begin(&self, store: &Store) {
        let open = store.engine().prepared().into_iter().collect();
        *self.recovery.lock() = Some(Recovery { open, noted: Vec::new() });
    }

    /// Rolls back a prepared transaction, or notes that it is to be. False if there is none of this id.
    ///
    /// Errors: the store's.
    pub fn roll_back(&self, store: &Store, xid: &[u8]) -> Result<bool> {
        if let Some(recovery) = &mut *self.recovery.lock() {
            let found = recovery.open.take(xid);
            return Ok(found.map(|xid| recovery.noted.push(xid)).is_some());
        }
        Ok(store.engine().rollback_prepared(xid)?)
    }

    /// The server asks what is left prepared: if it had something rolled back, it has decided about everything.
    ///
    /// Errors: the store's. What could not be rolled back stays prepared.
    pub fn listed(&self, store: &Store) -> Result<()> {
        let has_decided = self.recovery.lock().as_ref().is_some_and(|recovery| !recovery.noted.is_empty());
        if has_decided { self.end(store) } else { Ok(()) }
    }

    /// The server has decided about everything.
    ///
    /// Errors: the store's. What could not be rolled back stays prepared.
    pub fn end(&self, store: &Store) -> Result<()> {
        let noted = self.recovery.lock().take().map(|recovery| recovery.noted);
        for xid in noted.unwrap_or_default() {
            store.engine().rollback_prepared(&xid)?;
        }
        Ok(())
    }
}
