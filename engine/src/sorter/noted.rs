//! Keys that many threads note, to be taken in order by one: what has changed since somebody looked.
//!
//! Noting a key is a copy under a mutex. Keys that come again are left out when a buffer is full, and what does not fit in memory
//! after that goes to files, both on the thread that has noted the key and outside of that mutex. To note never fails: what cannot
//! be kept is an error of who takes the keys.
//!
//! Rejected: a hash table (each key would cost an allocation, and a buffer that is sorted has to be sorted anyway).

use std::sync::Arc;

use parking_lot::Mutex;

use super::{SortBuffer, Sorter};
use crate::base::{Error, Result};
use crate::iter::VersionIter;
use crate::parts::Core;

/// Bytes that are noted before they are looked through.
const ACTIVE_BYTES: usize = 1 << 20;

/// What is not in the buffer any more.
struct Rest {
    sorter: Sorter,
    failed: Option<Error>,
}

/// See the module.
pub struct NotedKeys {
    core: Arc<Core>,
    active: Mutex<SortBuffer>,
    rest: Mutex<Rest>,
}

impl NotedKeys {
    pub(crate) fn new(core: &Arc<Core>) -> NotedKeys {
        let rest = Rest { sorter: Sorter::of_keys(core), failed: None };
        NotedKeys { core: core.clone(), active: Mutex::default(), rest: Mutex::new(rest) }
    }

    /// Notes a key.
    pub fn note(&self, key: &[u8]) {
        let full = {
            let mut active = self.active.lock();
            active.push(key, &[]);
            (active.bytes() >= ACTIVE_BYTES).then(|| std::mem::take(&mut *active))
        };
        if let Some(full) = full {
            self.rest.lock().take_in(full);
        }
    }

    /// Keys that are noted, those that came again counted as often as they are known to have.
    pub fn count(&self) -> u64 {
        let active = self.active.lock().len() as u64;
        active + self.rest.lock().sorter.entries()
    }

    /// Takes all keys: those whose noting has returned are among them. They may come more than once.
    pub fn take(&self) -> Result<Sorter> {
        let mut rest = self.rest.lock();
        let active = std::mem::take(&mut *self.active.lock());
        rest.take_in(active);
        let Rest { sorter, failed } = &mut *rest;
        let taken = std::mem::replace(sorter, Sorter::of_keys(&self.core));
        failed.take().map_or(Ok(taken), Err)
    }
}

impl Rest {
    fn take_in(&mut self, mut keys: SortBuffer) {
        let Rest { sorter, failed } = self;
        let mut take = || -> Result<()> {
            keys.dedup();
            let mut keys = keys.sorted();
            keys.seek_first()?;
            while keys.valid() {
                sorter.put(keys.key(), &[], &|| Ok(()))?;
                keys.next()?;
            }
            Ok(())
        };
        if failed.is_none() {
            *failed = take().err();
        }
    }
}
