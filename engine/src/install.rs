//! Installation of changes to the set of files: one at a time, durable in the manifest before any reader sees it.
//!
//! ```text
//! apply to the newest version (checks)  ->  append to the manifest (sync)  ->  swap the read state
//! ```
//!
//! Indexes that were dropped stay on a list as long as a memtable or the log may still hold keys of them; flushes and
//! merges skip such keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::base::{FileNo, IndexId, Result, SeqNo};
use crate::engine::Core;
use crate::manifest::{Manifest, VersionEdit};

/// See the module.
pub(crate) struct Installer {
    manifest: Mutex<Arc<Manifest>>,
    /// Dropped indexes, with the newest sequence number at the drop: nothing above it belongs to them.
    dropped: RwLock<BTreeMap<IndexId, SeqNo>>,
}

impl Installer {
    pub fn new(manifest: Arc<Manifest>, dropped: impl IntoIterator<Item = IndexId>, last: SeqNo) -> Installer {
        let dropped = dropped.into_iter().map(|id| (id, last)).collect();
        Installer { manifest: Mutex::new(manifest), dropped: RwLock::new(dropped) }
    }

    /// Fails if the manifest accepts nothing any more: work whose outcome cannot be recorded is not begun.
    pub fn check(&self) -> Result<()> {
        self.manifest.lock().check()
    }

    /// Writes down how far the log is durable (clean close).
    pub fn note_log(&self, core: &Core) -> Result<()> {
        let edit = VersionEdit { log_durable: Some(core.log.durable()), ..VersionEdit::default() };
        self.manifest.lock().append(&edit)
    }

    pub fn is_dropped(&self, id: IndexId) -> bool {
        self.dropped.read().contains_key(&id)
    }

    /// Applies `edit`; `flushed` sealed memtables, the oldest, are in its tables. Returns the files that it did not let
    /// in, since their index was dropped meanwhile. `None` if one of the files that it removes is gone already, for the
    /// same reason: then nothing happened.
    pub fn install(&self, core: &Core, mut edit: VersionEdit, flushed: usize) -> Result<Option<Vec<FileNo>>> {
        let manifest = self.manifest.lock();
        let current = core.states.load().version.clone();
        if !edit.removed.iter().all(|&(level, no)| current.contains(level, no)) {
            return Ok(None);
        }
        // An index dropped while its keys were being written to tables: do not let its files in.
        let mut refused = Vec::new();
        edit.added.retain(|(_, meta)| {
            let dropped = self.is_dropped(meta.index);
            if dropped {
                refused.push(meta.no);
            }
            !dropped
        });
        if let Some(seq) = edit.flushed_seq {
            let dropped = self.dropped.read();
            edit.undropped = dropped.iter().filter(|&(_, &at)| at <= seq).map(|(&id, _)| id).collect();
        }
        edit.next_file = Some(FileNo(core.next_file.load(std::sync::atomic::Ordering::Relaxed)));
        edit.log_durable = Some(core.log.durable());
        let state = core.states.load();
        let newest_flushed = state.sealed.len().checked_sub(flushed).and_then(|at| state.sealed.get(at));
        let known = newest_flushed.map(|sealed| sealed.files.clone()).unwrap_or_default();
        let next = Arc::new(current.apply_with(&edit, &known)?);
        drop(state);
        manifest.append(&edit)?;
        core.states.install(next, flushed);
        current.retire(&edit);
        if !edit.undropped.is_empty() {
            let mut dropped = self.dropped.write();
            for id in &edit.undropped {
                dropped.remove(id);
            }
        }
        Ok(Some(refused))
    }

    /// See `Engine::drop_indexes`.
    pub fn drop_indexes(&self, core: &Core, ids: &[IndexId]) -> Result<()> {
        // The drop must not become durable before the decision of a transaction that wrote to the indexes: found
        // undecided, it could be committed again after the last of their keys is cleared away.
        core.log.sync(core.log.end())?;
        let manifest = self.manifest.lock();
        let current = core.states.load().version.clone();
        let mut edit = VersionEdit { dropped: ids.to_vec(), ..VersionEdit::default() };
        for (level, file) in current.files() {
            if ids.contains(&file.meta.index) {
                edit.removed.push((level, file.meta.no));
            }
        }
        let last = core.committer.last_assigned();
        let next = Arc::new(current.apply(&edit)?);
        manifest.append(&edit)?;
        self.dropped.write().extend(ids.iter().map(|&id| (id, last)));
        core.drops.lock().note(core.states.flushes(), ids);
        core.states.install(next, 0);
        current.retire(&edit);
        core.background.wake_cleaner();
        Ok(())
    }
}
