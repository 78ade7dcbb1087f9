//! The files that flushes, merges and large transactions write: what they need of the store for that, and the one way in which
//! such files become part of it or are removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Error, FileNo, IndexId, Result};
use crate::board::WorkCounters;
use crate::compact::block_size::block_bytes;
use crate::compact::gc::VersionGc;
use crate::compact::merge::{MergeEnv, MergeResult, ahead_bytes};
use crate::compact::pick::{CompactionJob, LAST};
use crate::flush;
use crate::manifest::{DICTIONARIES, FileEntry, Version, VersionEdit, find_in};
use crate::parts::Core;
use crate::sst::{self, Prepopulate, Residence, SstMeta, SstOptions};

/// What a merge needs of the store; `excludes`, `tick` and `residence` as in [`MergeEnv`]. Fails where the manifest accepts
/// nothing any more.
pub(crate) fn merge_env<'a>(
    core: &Arc<Core>,
    excludes: impl Fn(&[u8]) -> bool + Send + Sync + 'a,
    tick: impl Fn() -> Result<()> + Send + Sync + 'a,
    residence: impl Fn(&[u8]) -> Option<Residence> + Send + Sync + 'a,
) -> Result<MergeEnv<'a>> {
    core.tree.installer.check()?;
    let ssts = core.tree.ssts.clone();
    let (ssts_keys, ssts_dictionaries) = (ssts.keys.clone(), ssts.dictionaries.clone());
    let (stored, cache) = (core.tree.states.load().version.file_bytes(), core.settings.cache_budget());
    let [files, dropped, options, requires, stop] = std::array::from_fn(|_| core.clone());
    Ok(MergeEnv {
        disk: ssts.disk.clone(),
        prepopulate: Prepopulate { cache: ssts.cache.clone(), residence: Arc::new(residence) },
        path_of: Arc::new(move |no| ssts.path(no)),
        next_file: Arc::new(move || files.tree.installer.new_file()),
        is_dropped: Arc::new(move |id| dropped.tree.installer.is_dropped(id)),
        sst_options: Arc::new(move |index| sst_options(&options, index)),
        block_bytes: Arc::new(move |added| block_bytes(stored + added, cache)),
        dictionaries: ssts_dictionaries,
        require_dictionaries: Arc::new(move || requires.tree.installer.require(&DICTIONARIES).map(drop)),
        keys: ssts_keys,
        excludes: Arc::new(excludes),
        tick: Arc::new(move || if stop.board.stopping() { Err(Error::Closed) } else { tick() }),
        rule_of: Arc::new(|_| None),
        ahead_bytes: ahead_bytes(core.settings.cache_budget()),
        buffer_bytes: core.board.buffer_bytes.clone(),
    })
}

/// Writes files that belong to a transaction. Their names are durable when this returns: its log record may tell them
/// (invariant 8). If that fails the files are there, though not for certain after a crash.
pub(crate) fn write_private<R>(
    core: &Arc<Core>,
    tick: impl Fn() -> Result<()> + Send + Sync,
    work: impl FnOnce(&MergeEnv<'_>) -> Result<R>,
) -> Result<R> {
    // Every tombstone stays: what it hides is in the store.
    let done = work(&merge_env(core, |_| false, tick, |_| None)?)?;
    sync_names(core)?;
    Ok(done)
}

fn sync_names(core: &Core) -> Result<()> {
    core.tree.ssts.disk.sync_dir(&core.tree.ssts.dir)
}

/// Options of the SSTs of an index.
fn sst_options(core: &Core, index: IndexId) -> SstOptions {
    let key = core.settings.encryption(index);
    SstOptions { compression: core.settings.compression(index), key, ..SstOptions::default() }
}

/// What the filters of the files below a merge know, within bounds: of filters that are not in memory about one is read
/// per [`Filters::ASKED_PER_READ`] keys, so that a store much larger than its memory is not read in vain.
pub(crate) struct Filters {
    core: Arc<Core>,
    version: Arc<Version>,
    /// Data below this level are older than the inputs. For a flush 0: all files are.
    level: u8,
    /// Counted by the one thread that has the merge in hand.
    asked: AtomicU64,
    read: AtomicU64,
}

/// Adds to a figure that one thread at a time changes; the figure before.
fn add(figure: &AtomicU64, more: u64) -> u64 {
    let before = figure.load(Ordering::Relaxed);
    figure.store(before + more, Ordering::Relaxed);
    before
}

impl Filters {
    const ASKED_PER_READ: u64 = 32;

    pub fn new(core: &Arc<Core>, version: &Arc<Version>, level: u8) -> Filters {
        let (core, version) = (core.clone(), version.clone());
        Filters { core, version, level, asked: AtomicU64::new(0), read: AtomicU64::new(0) }
    }

    fn may_read(&self) -> bool {
        let may = self.read.load(Ordering::Relaxed) * Filters::ASKED_PER_READ < self.asked.load(Ordering::Relaxed);
        add(&self.read, u64::from(may));
        may
    }

    /// True if no file below holds the key. A file that cannot be read might.
    pub fn exclude(&self, key: &[u8]) -> bool {
        add(&self.asked, 1);
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

/// The garbage collection of this moment: what live readers need, and what readers to come may need, be it of the past. The order of
/// the three looks is that of [`Timeline::pinned`](crate::timeline::Timeline::pinned).
pub(crate) fn version_gc(core: &Core) -> VersionGc {
    let visible = core.tree.states.visible();
    let marked = core.tree.timeline.pinned();
    let gc = VersionGc::new(&[marked.as_slice(), &core.tree.read_points.live()].concat(), visible);
    if marked.is_empty() { gc } else { gc.counting_superseded() }
}

/// The end of every flush and job: makes the names of the `written` files durable, installs an edit that names them, once
/// `ready`, and counts what was done; see `Installer::install`. Files that do not become part of the store are removed: those that
/// are refused, all if nothing happened. If the manifest failed half way, it may name them when the store is opened next:
/// then they stay.
pub(crate) fn install(
    core: &Core,
    written: &MergeResult,
    ready: impl FnOnce() -> Result<()>,
    edit: VersionEdit,
    flushed: usize,
    count: impl FnOnce(&mut WorkCounters),
) -> Result<Option<Vec<FileNo>>> {
    let outputs = &written.outputs;
    // The names of the new files are durable before the manifest speaks of them (invariant 8).
    let named = if outputs.is_empty() { Ok(()) } else { sync_names(core) };
    let installed = named.and_then(|()| ready()).and_then(|()| core.tree.installer.install(edit, flushed));
    match &installed {
        Ok(Some(refused)) => {
            discard(core, outputs.iter().filter(|meta| refused.contains(&meta.no)));
            let mut counters = core.board.counters.lock();
            counters.dropped_versions += written.stats.puts_dropped + written.stats.tombstones_dropped;
            count(&mut counters);
        }
        Ok(None) => discard(core, outputs),
        Err(Error::Poisoned(_)) => {}
        Err(_) => discard(core, outputs),
    }
    installed
}

/// Files that are first in their indexes, with the levels they go to. Until it drops, no job is picked that writes to where they go in
/// the last level.
pub(crate) struct Reserved<'a> {
    core: &'a Core,
    files: Vec<(u8, SstMeta)>,
    job: Option<Arc<CompactionJob>>,
}

impl Reserved<'_> {
    pub fn files(&self) -> impl Iterator<Item = (u8, SstMeta)> + '_ {
        self.files.iter().cloned()
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(job) = &self.job {
            self.core.board.end_job(job);
        }
    }
}

/// Decides where files go that hold all of their indexes but what is in memory and in the files `beside`.
pub(crate) fn reserve<'a, 'm>(
    core: &'a Core,
    files: impl Iterator<Item = &'m SstMeta>,
    beside: &[SstMeta],
) -> Reserved<'a> {
    let mut files = files.peekable();
    if files.peek().is_none() {
        return Reserved { core, files: Vec::new(), job: None };
    }
    let mut shared = core.board.shared.lock();
    // What a job that is over has written is in the version.
    let version = core.tree.states.load().version.clone();
    let mut ranges = Vec::new();
    let mut placed = Vec::new();
    for meta in files {
        let written = shared.running.iter().filter(|job| job.output_level == LAST).flat_map(|job| &job.ranges);
        let level = flush::level_behind(meta, &version, beside, written);
        if level > 0 {
            ranges.push((meta.smallest.clone(), meta.largest.clone()));
        }
        placed.push((level, meta.clone()));
    }
    let job = (!ranges.is_empty()).then(|| Arc::new(CompactionJob::reservation(LAST, ranges)));
    shared.running.extend(job.clone());
    Reserved { core, files: placed, job }
}

/// Files that were written and that no manifest names.
pub(crate) fn discard<'a>(core: &Core, outputs: impl IntoIterator<Item = &'a SstMeta>) {
    for meta in outputs {
        // What cannot be removed now is removed as an orphan when the store is opened next.
        drop(core.tree.ssts.remove(meta.no));
    }
}
