//! Which tables a transaction has written to, and which it fills: what they are told when it ends.

use super::Session;
use crate::changes;
use crate::table::TableState;
use std::sync::Arc;

impl Session {
    /// The transaction fills a table that nobody else may see before it ends. Snapshots taken meanwhile know the empty table;
    /// once this commits they are refused, as they would find none of its rows.
    pub(crate) fn fills(&mut self, table: &Arc<TableState>) {
        if !self.filled.iter().any(|known| Arc::ptr_eq(known, table)) {
            self.filled.push(table.clone());
        }
    }

    /// The transaction writes to a table: to be told once for each statement.
    #[cold]
    pub(crate) fn writes_to(&mut self, table: &Arc<TableState>) {
        /// Length of the list from which on it is cleared of what stands there twice.
        const MANY: usize = 1024;
        if self.written.iter().rev().take(8).any(|known| Arc::ptr_eq(known, table)) {
            return;
        }
        if self.written.len() >= MANY && self.written.len() == self.written.capacity() {
            self.written.sort_unstable_by_key(Arc::as_ptr);
            self.written.dedup_by(|a, b| Arc::ptr_eq(a, b));
        }
        self.written.push(table.clone());
    }

    /// Of the tables that the transaction has written to.
    pub(super) fn note_changes(&mut self) {
        if self.written.is_empty() {
            return;
        }
        let (visible, now) = (self.store.engine().visible(), changes::now());
        for table in self.written.drain(..) {
            table.changes.commit_ends(visible, Some(now));
        }
    }
}
