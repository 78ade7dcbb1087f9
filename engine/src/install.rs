//! Installation of changes to the set of files: one at a time, durable in the manifest before any reader sees it.
//!
//! ```text
//! append to the manifest (checks, sync), which returns the next version  ->  swap the read state
//! ```
//!
//! What is left of dropped indexes is counted in `crate::remains`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::base::{Error, FileNo, IndexId, Result, SeqNo};
use crate::drops::Drops;
use crate::manifest::{ENCRYPTION, Feature, Manifest, Marks, Version, VersionEdit};
use crate::remains::{self, Remains};
use crate::state::StateCell;
use crate::wal::Log;

/// See the module.
pub(crate) struct Installer {
    manifest: Mutex<Arc<Manifest>>,
    /// Copy of those of the manifest, whose mutex is held across I/O. Changed under that mutex only.
    features: RwLock<Vec<Feature>>,
    states: Arc<StateCell>,
    log: Arc<Log>,
    next_file: AtomicU64,
    /// Changed under the manifest's mutex only.
    remains: RwLock<Remains>,
    /// Calls of `drop_indexes` that came so far.
    drops: AtomicU64,
    /// All that they dropped: intervals of ids that do not touch, first to last.
    void: RwLock<BTreeMap<u32, u32>>,
    /// For cursors that are open.
    latest: Mutex<Drops>,
}

impl Installer {
    /// `dropped` are those of the manifest, whose files the version in `states` has; nothing above what that shows belongs to
    /// them. Files get numbers from `next_file` on.
    pub fn new(
        manifest: Arc<Manifest>,
        states: Arc<StateCell>,
        log: Arc<Log>,
        next_file: FileNo,
        dropped: impl IntoIterator<Item = IndexId>,
        flushed: SeqNo,
    ) -> Installer {
        let last = states.visible();
        let version = states.load().version.clone();
        let remains = Remains::new(dropped, last, flushed, version.files().map(|(_, file)| &file.meta));
        let remains = RwLock::new(remains);
        Installer {
            features: RwLock::new(manifest.features()),
            manifest: Mutex::new(manifest),
            states,
            log,
            next_file: AtomicU64::new(next_file.0),
            remains,
            drops: AtomicU64::new(0),
            void: RwLock::default(),
            latest: Mutex::default(),
        }
    }

    /// A number for a new file.
    pub fn new_file(&self) -> FileNo {
        FileNo(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// False if no index with keys in `[lower, upper)` was dropped after so many flushes.
    pub fn dropped_since(&self, flushes: u64, lower: &[u8], upper: &[u8]) -> bool {
        self.latest.lock().since(flushes, lower, upper)
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

    /// Fails if the manifest accepts nothing any more: work whose outcome cannot be recorded is not begun. The log has stopped
    /// when this returns, even if the thread that met the failure has not stopped it yet (a segment of the log is announced
    /// past the installer): of two commits in turn the second must not get into the log when the first was refused.
    pub fn check(&self) -> Result<()> {
        self.edit(|manifest| self.heed(manifest, manifest.check()))
    }

    /// See `Engine::require`. False if the store used it before.
    pub fn require(&self, feature: &Feature) -> Result<bool> {
        if self.features.read().iter().any(|used| used.name() == feature.name()) {
            return Ok(false);
        }
        self.edit(|manifest| {
            self.heed(manifest, manifest.require(feature))?;
            *self.features.write() = manifest.features();
            Ok(true)
        })
    }

    /// Notes durably under which master keys the files of indexes are encrypted, and shows `note` what holds for all indexes then.
    pub fn encrypt(
        &self,
        changes: Vec<(IndexId, Option<u32>)>,
        note: impl FnOnce(BTreeMap<IndexId, u32>),
    ) -> Result<()> {
        self.require(&ENCRYPTION)?;
        let edit = VersionEdit { encryption: changes, ..VersionEdit::default() };
        self.edit(|manifest| {
            self.heed(manifest, manifest.append(&edit, &[]))?;
            note(manifest.content().0.encryption);
            Ok(())
        })
    }

    /// Goes on in a new manifest file, in which nothing is sealed under an older version of a key.
    pub fn renew_manifest(&self) -> Result<()> {
        self.edit(|manifest| self.heed(manifest, manifest.renew()))
    }

    /// The features that the store uses, by name.
    pub fn features(&self) -> Vec<Feature> {
        self.features.read().clone()
    }

    /// Writes down how far the log is durable (clean close); with a number, that its segments from there on have no files.
    pub fn note_log(&self, segments: Option<u64>) -> Result<()> {
        let log_durable = Some(self.log.durable());
        let edit = VersionEdit { log_durable, log_segments: segments, ..VersionEdit::default() };
        self.edit(|manifest| self.heed(manifest, manifest.append_relief(&edit)).map(drop))
    }

    /// What the manifest says at a moment when nobody changes it, at which `look` is called.
    pub fn freeze<T>(&self, look: impl FnOnce() -> T) -> (Marks, Arc<Version>, T) {
        let manifest = self.manifest.lock();
        let (mut marks, version) = manifest.content();
        marks.next_file = marks.next_file.max(FileNo(self.next_file.load(Ordering::Relaxed)));
        (marks, version, look())
    }

    /// Does work under the manifest's mutex, and tells, without it, if that has stopped the store.
    fn edit<T>(&self, work: impl FnOnce(&Manifest) -> Result<T>) -> Result<T> {
        // In a statement of its own: the mutex is free when the failure is told.
        let outcome = work(&self.manifest.lock());
        outcome.inspect_err(|_| self.log.tell_stopped())
    }

    pub fn is_dropped(&self, id: IndexId) -> bool {
        self.remains.read().has(id)
    }

    /// The files with keys of dropped indexes, and the uncompressed bytes of these.
    pub fn void_bytes(&self) -> HashMap<FileNo, u64> {
        self.remains.read().void_bytes()
    }

    /// Applies `edit`; `flushed` sealed memtables, the oldest, are in its tables. Returns the files that it did not let
    /// in, since their indexes were dropped meanwhile. `None` if one of the files that it removes is gone already, for the
    /// same reason: then nothing happened.
    pub fn install(&self, edit: VersionEdit, flushed: usize) -> Result<Option<Vec<FileNo>>> {
        self.edit(|manifest| self.install_edit(manifest, edit, flushed))
    }

    fn install_edit(&self, manifest: &Manifest, mut edit: VersionEdit, flushed: usize) -> Result<Option<Vec<FileNo>>> {
        let current = manifest.version();
        let removed: Option<Vec<_>> =
            edit.removed.iter().map(|&(level, no)| current.file(level, no).cloned()).collect();
        let Some(removed) = removed else { return Ok(None) };
        // Indexes dropped while their keys were being written to SSTs: do not let their files in.
        let mut refused = Vec::new();
        {
            let remains = self.remains.read();
            edit.added.retain(|(_, meta)| {
                let void = remains.is_void(meta);
                if void {
                    refused.push(meta.no);
                }
                !void
            });
        }
        edit.next_file = Some(FileNo(self.next_file.load(Ordering::Relaxed)));
        edit.log_durable = Some(self.log.durable());
        let state = self.states.load();
        let newest_flushed = state.sealed.len().checked_sub(flushed).and_then(|at| state.sealed.get(at));
        let known = newest_flushed.map(|sealed| sealed.files.clone()).unwrap_or_default();
        drop(state);
        edit.undropped = self.remains.read().forgettable(&edit, &removed);
        let next = self.heed(manifest, manifest.append(&edit, &known))?;
        self.remains.write().note(&edit, &removed);
        self.states.install(next, flushed);
        current.retire(&edit);
        Ok(Some(refused))
    }

    /// See `Engine::drop_indexes`. `recorded` is called once the drop is durable; it tells the newest sequence number that was
    /// assigned.
    pub fn drop_indexes(&self, ids: &[IndexId], recorded: impl FnOnce() -> SeqNo) -> Result<()> {
        // The drop must not become durable before the decision of a transaction that wrote to the indexes: found
        // in doubt, it could be committed again after the last of their keys is cleared away.
        self.log.sync(self.log.end())?;
        self.edit(|manifest| self.drop_with(manifest, ids, recorded))
    }

    fn drop_with(&self, manifest: &Manifest, ids: &[IndexId], recorded: impl FnOnce() -> SeqNo) -> Result<()> {
        let current = manifest.version();
        let ids: BTreeSet<IndexId> = ids.iter().copied().collect();
        let mut edit = VersionEdit { dropped: ids.iter().copied().collect(), ..VersionEdit::default() };
        // A file is found by each of its indexes.
        let touched: BTreeMap<FileNo, _> =
            ids.iter().flat_map(|&id| current.holding(id)).map(|(level, file)| (file.meta.no, (level, file))).collect();
        {
            let remains = self.remains.read();
            let new = remains.new_among(&ids);
            let void = touched.values().filter(|(_, file)| remains.is_void_without(&file.meta, &new));
            edit.removed = void.map(|(level, file)| (*level, file.meta.no)).collect();
        }
        let dropped = edit.dropped.clone();
        let next = self.heed(manifest, manifest.append_relief(&edit))?;
        let at = recorded();
        {
            let removed: BTreeSet<FileNo> = edit.removed.iter().map(|(_, no)| *no).collect();
            let metas = touched.values().map(|(_, file)| &file.meta);
            self.remains.write().drop_indexes(&ids, at, metas, |meta| !removed.contains(&meta.no));
        }
        self.latest.lock().note(self.states.flushes(), &dropped);
        {
            let mut void = self.void.write();
            dropped.iter().for_each(|id| remains::insert_id(&mut void, id.0));
        }
        self.drops.fetch_add(1, Ordering::Release);
        self.states.install(next, 0);
        current.retire(&edit);
        Ok(())
    }

    /// Passes on what came of an edit. If the manifest accepts nothing any more, the log stops too (invariant 7), which
    /// [`Installer::edit`] tells.
    fn heed<T>(&self, manifest: &Manifest, outcome: Result<T>) -> Result<T> {
        if let Err(Error::Poisoned(cause)) = manifest.check() {
            self.log.stop((*cause).clone());
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::crypt::Keyring;
    use crate::io::{Disk, FaultKind, MemDisk};
    use crate::manifest::ObsoleteFiles;
    use crate::state::{Mem, ReadState, chunk_pool};
    use crate::wal::{LogOptions, Tail};

    /// Somebody else has met the manifest's failure and not stopped the log yet, as a thread that makes a segment of the log may
    /// be held up in between. Whoever is refused because of the manifest finds the log stopped.
    #[test]
    fn who_is_refused_by_the_manifest_finds_the_log_stopped() {
        const SEAL_BYTES: u64 = 64 << 10;
        let disk = MemDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (dir, log_dir) = (Path::new("/store"), Path::new("/store/log"));
        shared.create_dir_all(log_dir).unwrap();
        let options = LogOptions { segment_bytes: SEAL_BYTES, ..LogOptions::default() };
        let marks = Marks::new(options.segment_bytes);
        let version = Arc::new(Version::new([], &Arc::new(ObsoleteFiles::default())).unwrap());
        let keys = Arc::new(Keyring::default());
        let manifest = Arc::new(Manifest::create(shared.clone(), dir, &keys, marks, version.clone()).unwrap());
        let log = Arc::new(Log::open(shared, log_dir, options, Tail::NEW, Box::new(|_| Ok(()))).unwrap());
        let pool = chunk_pool(SEAL_BYTES);
        let newest = ReadState { active: Mem::new(log.start(), SEAL_BYTES, &pool), sealed: Vec::new(), version };
        let states = Arc::new(StateCell::new(newest, SeqNo(0), pool));
        let installer = Installer::new(manifest.clone(), states, log.clone(), FileNo(1), [], SeqNo(0));
        let announce = |number| {
            let edit = VersionEdit { log_segments: Some(number), ..VersionEdit::default() };
            manifest.append(&edit, &[]).map(drop)
        };
        announce(1).unwrap();
        installer.check().unwrap();

        // The manifest has room from before: the first operation is the write.
        disk.fail_after(1, FaultKind::Other);
        announce(2).unwrap_err();
        log.check().unwrap();
        assert!(matches!(installer.check(), Err(Error::Poisoned(_))));
        log.append(b"a commit").unwrap_err();
    }
}
