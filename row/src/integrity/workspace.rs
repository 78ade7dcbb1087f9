//! What a session keeps for its foreign keys: the tables on the other sides, open, and memory that is used again.
//!
//! A table is opened with the definition that the catalog has of it, once per transaction: until that ends the parent's name is
//! locked by the session, and the child is locked by the server, which knows that its rows may change. A child with virtual
//! columns in indexes is open in the server, which computes them ([`Computing`]).

use super::cascade::ChildRow;
use crate::catalog::graph::name_lock;
use crate::error::{Error, Result};
use crate::isolation::Waiting;
use crate::kv::{Cursor, LockMode};
use crate::session::Session;
use crate::table::Table;
use std::sync::Arc;

/// The server's part in the change of child rows.
pub trait Computing: Send {
    /// The time of the running statement, as it stands in ROW START and ROW END of rows that the statement writes.
    fn time(&self) -> Result<Vec<u8>>;
    /// A child as the running statement has it open in the server. Records of this table are the server's.
    fn table(&self, name: &str) -> Result<Arc<Table>>;
    /// Computes the virtual columns that indexes have, in a record of that table that has all others. BLOBs among them may lie
    /// in memory that the next call uses again. Of a row that comes (`is_new`) values that do not fit are told as those that a statement
    /// writes: by warnings or an error.
    fn compute(&self, name: &str, record: &mut [u8], is_new: bool) -> Result<()>;
}

struct Opened {
    name: String,
    table: Arc<Table>,
    /// It is known to be the present one in this transaction.
    is_present: bool,
}

#[derive(Default)]
pub(crate) struct Workspace {
    /// Transactions of the session when it was used last.
    transaction: u64,
    tables: Vec<Opened>,
    /// Names of parents that the transaction has locked.
    locked: Vec<String>,
    /// The transaction has changed rows by cascades.
    pub(super) has_cascaded: bool,
    cursor: Option<Cursor>,
    /// Keys of the row being checked, by number, that ask for a parent row.
    pub(super) asking: Vec<usize>,
    pub(super) key: Vec<u8>,
    pub(super) row: ChildRow,
}

impl Workspace {
    /// To be called before it is used for a row.
    pub(super) fn begin(&mut self, session: &Session) {
        if self.transaction != session.transactions() {
            self.transaction = session.transactions();
            self.locked.clear();
            self.has_cascaded = false;
            self.tables.iter_mut().for_each(|opened| opened.is_present = false);
        }
    }

    /// The table of this name, with the catalog's definition; `None` if there is none.
    pub(super) fn table(&mut self, session: &Session, name: &str) -> Result<Option<Arc<Table>>> {
        let known = self.tables.iter().position(|opened| opened.name == name);
        if let Some(opened) = known.map(|at| &self.tables[at]).filter(|opened| opened.is_present) {
            return Ok(Some(opened.table.clone()));
        }
        let store = session.store();
        let meta = match store.catalog().get(name) {
            Ok(meta) => meta,
            Err(Error::NoTable(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Some(at) = known {
            if Arc::ptr_eq(&self.tables[at].table.state.meta, &meta) {
                self.tables[at].is_present = true;
                return Ok(Some(self.tables[at].table.clone()));
            }
            self.tables.swap_remove(at);
        }
        let table = store.open_by_catalog(name)?;
        self.tables.push(Opened { name: name.to_owned(), table: table.clone(), is_present: true });
        Ok(Some(table))
    }

    /// Locks the name of a parent, shared, until the transaction ends. True if that is new: what is known of the parent is then to
    /// be looked at again.
    pub(super) fn lock_name(&mut self, session: &mut Session, name: &str) -> Result<bool> {
        if self.locked.iter().any(|locked| locked == name) {
            return Ok(false);
        }
        session.lock(&name_lock(name), LockMode::Shared, Waiting::Wait)?;
        self.locked.push(name.to_owned());
        Ok(true)
    }

    pub(super) fn take_cursor(&mut self, session: &Session) -> Cursor {
        self.cursor.take().unwrap_or_else(|| session.engine().cursor())
    }

    pub(super) fn give_back(&mut self, cursor: Cursor) {
        self.cursor = Some(cursor);
    }
}
