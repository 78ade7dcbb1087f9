//! Which rows of a table change, for who follows them: while new indexes are made of the table (`crate::build`).
//!
//! Whoever changes a row notes its clustered key once the row is locked. A key too many is harmless, so nothing is taken back when a
//! row, a statement or a transaction is undone. Following begins and ends under the server's exclusive metadata lock, when no
//! statement has the table; while nobody follows, a row costs a load.

use crate::kv::NotedKeys;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module. A table has one, whatever becomes of its definition.
#[derive(Default)]
pub(crate) struct Followed {
    is_on: AtomicBool,
    keys: RwLock<Option<Arc<NotedKeys>>>,
}

impl Followed {
    /// True if changes are to be noted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A row, which is locked, is about to change.
    #[cold]
    pub fn note(&self, key: &[u8]) {
        if let Some(keys) = &*self.keys.read() {
            keys.note(key);
        }
    }

    /// From now on changes are noted in `keys`. False if they are in others already.
    pub fn begin(&self, keys: &Arc<NotedKeys>) -> bool {
        let mut place = self.keys.write();
        let is_free = place.is_none();
        if is_free {
            *place = Some(keys.clone());
            self.is_on.store(true, Ordering::Release);
        }
        is_free
    }

    /// Who has the changes noted in `keys` follows no more.
    pub fn end(&self, keys: &Arc<NotedKeys>) {
        let mut place = self.keys.write();
        if place.as_ref().is_some_and(|followed| Arc::ptr_eq(followed, keys)) {
            self.is_on.store(false, Ordering::Release);
            *place = None;
        }
    }
}
