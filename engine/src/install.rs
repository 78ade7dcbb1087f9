//! Installation of changes to the set of files: one at a time, durable in the manifest before any reader sees it.
//!
//! ```text
//! apply to the newest version (checks)  ->  append to the manifest (sync)  ->  swap the read state
//! ```
//!
//! Indexes that were dropped stay on a list as long as a memtable or the log may still hold keys of them; flushes and
//! merges skip such keys. Whoever has written to an index and drops it before he commits (a temporary table of his own) takes
//! the writes back when he commits: ids that were dropped since the start are remembered, as intervals, for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::base::{Error, FileNo, IndexId, Result, SeqNo};
use crate::engine::Core;
use crate::manifest::{Manifest, VersionEdit};

/// See the module.
pub(crate) struct Installer {
    manifest: Mutex<Arc<Manifest>>,
    /// Dropped indexes, with the newest sequence number at the drop: nothing above it belongs to them.
    dropped: RwLock<BTreeMap<IndexId, SeqNo>>,
    /// Calls of `drop_indexes` that came so far.
    drops: AtomicU64,
    /// All that they dropped: intervals of ids that do not touch, first to last.
    void: RwLock<BTreeMap<u32, u32>>,
}

impl Installer {
    pub fn new(manifest: Arc<Manifest>, dropped: impl IntoIterator<Item = IndexId>, last: SeqNo) -> Installer {
        let dropped = dropped.into_iter().map(|id| (id, last)).collect();
        let dropped = RwLock::new(dropped);
        Installer { manifest: Mutex::new(manifest), dropped, drops: AtomicU64::new(0), void: RwLock::default() }
    }

    /// Changes with every drop; see [`Installer::is_void`].
    #[inline]
    pub fn drops(&self) -> u64 {
        self.drops.load(Ordering::Acquire)
    }

    /// True for an index dropped since the store was opened.
    pub fn is_void(&self, id: IndexId) -> bool {
        self.void.read().range(..=id.0).next_back().is_some_and(|(_, &last)| id.0 <= last)
    }

    /// Fails if the manifest accepts nothing any more: work whose outcome cannot be recorded is not begun.
    pub fn check(&self) -> Result<()> {
        self.manifest.lock().check()
    }

    /// Writes down how far the log is durable (clean close).
    pub fn note_log(&self, core: &Core) -> Result<()> {
        let edit = VersionEdit { log_durable: Some(core.log.durable()), ..VersionEdit::default() };
        let manifest = self.manifest.lock();
        heed(core, &manifest, manifest.append_relief(&edit))
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
        edit.next_file = Some(FileNo(core.next_file.load(Ordering::Relaxed)));
        edit.log_durable = Some(core.log.durable());
        let state = core.states.load();
        let newest_flushed = state.sealed.len().checked_sub(flushed).and_then(|at| state.sealed.get(at));
        let known = newest_flushed.map(|sealed| sealed.files.clone()).unwrap_or_default();
        let next = Arc::new(current.apply_with(&edit, &known)?);
        drop(state);
        heed(core, &manifest, manifest.append(&edit))?;
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
        heed(core, &manifest, manifest.append_relief(&edit))?;
        self.dropped.write().extend(ids.iter().map(|&id| (id, last)));
        core.drops.lock().note(core.states.flushes(), ids);
        {
            let mut void = self.void.write();
            ids.iter().for_each(|id| insert_id(&mut void, id.0));
        }
        self.drops.fetch_add(1, Ordering::Release);
        core.states.install(next, 0);
        current.retire(&edit);
        core.background.wake_cleaner();
        Ok(())
    }
}

/// Adds an id to a set of intervals.
fn insert_id(set: &mut BTreeMap<u32, u32>, id: u32) {
    let before = set.range(..=id).next_back().map(|(&first, &last)| (first, last));
    let (first, mut last) = match before {
        Some((_, last)) if last >= id => return,
        Some((first, last)) if last + 1 == id => (first, id),
        _ => (id, id),
    };
    if let Some(after) = id.checked_add(1).and_then(|next| set.remove(&next)) {
        last = after;
    }
    set.insert(first, last);
}

/// Passes on what came of an edit. If the manifest accepts nothing any more, the log stops too (invariant 7).
fn heed(core: &Core, manifest: &Manifest, outcome: Result<()>) -> Result<()> {
    if let Err(Error::Poisoned(cause)) = manifest.check() {
        core.stop_writing(&cause);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::insert_id;
    use std::collections::BTreeMap;

    #[test]
    fn ids_that_follow_each_other_are_one_interval() {
        let mut set = BTreeMap::new();
        for id in [7, 5, 9, 6, 6, 20, 8, u32::MAX, u32::MAX - 1, 19] {
            insert_id(&mut set, id);
        }
        assert_eq!(set, BTreeMap::from([(5, 9), (19, 20), (u32::MAX - 1, u32::MAX)]));
    }
}
