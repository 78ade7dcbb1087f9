//! What flushes, merges and transactions that spill need of the store to write files, and what becomes of files that cannot be
//! installed.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::{Error, FileNo, IndexId, Result};
use crate::compact::gc::VersionGc;
use crate::compact::merge::{MergeEnv, MergeResult, ahead_bytes};
use crate::manifest::{FileEntry, Version, VersionEdit, find_in};
use crate::parts::Core;
use crate::sst::{self, Prepopulate, Residence, SstMeta, SstOptions};

/// Runs `work` with what a merge needs of the store; `excludes`, `tick` and `residence` as in [`MergeEnv`]. The names of the
/// new files are durable when this returns.
pub(crate) fn with_env(
    core: &Core,
    excludes: &dyn Fn(&[u8]) -> bool,
    tick: &dyn Fn(u64) -> Result<()>,
    residence: &dyn Fn(&[u8]) -> Option<Residence>,
    work: impl FnOnce(&MergeEnv<'_>) -> Result<MergeResult>,
) -> Result<MergeResult> {
    core.tree.installer.check()?;
    let result = work(&MergeEnv {
        disk: &core.tree.ssts.disk,
        path_of: &|no| core.tree.ssts.path(no),
        next_file: &|| core.tree.installer.new_file(),
        is_dropped: &|id| core.tree.installer.is_dropped(id),
        sst_options: &|index| sst_options(core, index),
        excludes,
        tick: &|bytes| if core.board.stopping() { Err(Error::Closed) } else { tick(bytes) },
        ahead_bytes: ahead_bytes(core.settings.cache_budget()),
        buffer_bytes: &core.board.buffer_bytes,
        prepopulate: Prepopulate { cache: &core.tree.ssts.cache, residence },
    })?;
    // The names of the new files are durable before the manifest speaks of them (invariant 8).
    if let Err(error) = core.tree.ssts.disk.sync_dir(&core.tree.ssts.dir) {
        discard(core, &result.outputs);
        return Err(error);
    }
    Ok(result)
}

/// Options of the SSTs of an index.
fn sst_options(core: &Core, index: IndexId) -> SstOptions {
    SstOptions { compression: core.settings.compression(index), ..SstOptions::default() }
}

/// What the filters of the files below a merge know, within bounds: of filters that are not in memory about one is read
/// per [`Filters::ASKED_PER_READ`] keys, so that a store much larger than its memory is not read in vain.
pub(crate) struct Filters<'a> {
    core: &'a Core,
    version: &'a Version,
    /// Data below this level are older than the inputs. For a flush 0: all files are.
    level: u8,
    asked: Cell<u64>,
    read: Cell<u64>,
}

impl Filters<'_> {
    const ASKED_PER_READ: u64 = 32;

    pub fn new<'a>(core: &'a Core, version: &'a Version, level: u8) -> Filters<'a> {
        Filters { core, version, level, asked: Cell::new(0), read: Cell::new(0) }
    }

    fn may_read(&self) -> bool {
        let may = self.read.get() * Filters::ASKED_PER_READ < self.asked.get();
        self.read.set(self.read.get() + u64::from(may));
        may
    }

    /// True if no file below holds the key. A file that cannot be read might.
    pub fn exclude(&self, key: &[u8]) -> bool {
        self.asked.set(self.asked.get() + 1);
        let hash = sst::key_hash(key);
        let excluded = |file: &Arc<FileEntry>| {
            let sst = match file.sst.get() {
                Some(sst) => sst.clone(),
                None if self.may_read() => self.core.tree.ssts.reader(file)?.clone(),
                None => return Ok(false),
            };
            sst.excludes(key, hash, || self.may_read())
        };
        self.version.runs_below(self.level).filter_map(|run| find_in(run, key).filter(|file| file.may_hold(key))).all(
            |file| {
                let known: Result<bool> = excluded(file);
                known.unwrap_or(false)
            },
        )
    }
}

/// The garbage collection of this moment: what live readers need, and what readers to come may need.
pub(crate) fn version_gc(core: &Core) -> VersionGc {
    let (visible, live) = core.tree.read_points.survey(|| core.tree.states.visible());
    VersionGc::new(&live, visible)
}

/// Installs an edit that names `outputs`, once `ready`; see `Installer::install`. Those that do not become part of the store are
/// removed: files that are refused, all if nothing happened. If the manifest failed half way, it may name them when the
/// store is opened next: then they stay.
pub(crate) fn install(
    core: &Core,
    ready: Result<()>,
    edit: VersionEdit,
    flushed: usize,
    outputs: &[SstMeta],
) -> Result<Option<Vec<FileNo>>> {
    let installed = ready.and_then(|()| core.tree.installer.install(edit, flushed));
    match &installed {
        Ok(Some(refused)) => discard(core, outputs.iter().filter(|meta| refused.contains(&meta.no))),
        Ok(None) => discard(core, outputs),
        Err(Error::Poisoned(_)) => {}
        Err(_) => discard(core, outputs),
    }
    installed
}

/// Files that were written and that no manifest names.
fn discard<'a>(core: &Core, outputs: impl IntoIterator<Item = &'a SstMeta>) {
    for meta in outputs {
        // What cannot be removed now is removed as an orphan when the store is opened next.
        drop(core.tree.ssts.remove(meta.no));
    }
}
