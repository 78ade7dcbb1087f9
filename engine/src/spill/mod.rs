//! The part of a large transaction that no longer fits in memory: private, sorted files.
//!
//! ```text
//! write buffer   operations 70..              index 16         index 17        18 | 19 | 20
//! runs           newest                                        [50..70]        [50....70]
//!                                             [40..50][50..70]  [40..50]        [40....50]
//!                oldest                       [0..40]          [0..40]         [0.....40]
//! ```
//!
//! When the write buffer is full, its operations are written, in key order, as SSTs
//! (docs/develop/format/sst.md); the number of a version is that of its operation, counted from 1. Small indexes share
//! files, as everywhere, so that a transaction that touches thousands of tables costs what its bytes cost. The files lie in
//! *runs*, sets of files that do not overlap: each in the oldest run above all files that it overlaps. So writes in key
//! order form one run however many files there are. [`FAN`] runs of one tier, the newest ones, are merged into one of the
//! next, so that reading a key asks few files; a file that overlaps no other stays as it is.
//!
//! For any key a newer run has newer operations. Going back to a savepoint removes files that begin behind it and lowers
//! the limit of the file in the middle of which it lies: nothing is written.
//!
//! An index of which a spill wrote much, or a large value, has files of its own from then on, and no shared file spans it:
//! sharing one, a few rows written at the end would overlap all that came before, and the commit would write it again.
//! Shared files from before are divided when they are merged next.
//!
//! A value too large for the buffer goes to a file of its own as it comes, from the memory of whoever writes it.
//!
//! Before the commit, [`SpilledRuns::finish`] leaves files that do not overlap and have one version per key. Most are used as
//! they are; only files that overlap, or hold what was undone, replaced or dropped, are merged. The store takes them over
//! under the sequence number of the commit, whatever numbers are in them.
//!
//! Whoever reads may hold the files: they are deleted as obsolete ones.
//!
//! Rejected: cutting runs at savepoints instead of numbering operations (every statement and every row sets one);
//! numbering operations anew at the commit (all would be written twice); files and runs of each index apart (a
//! transaction over three thousand indexes wrote three thousand synced files at each spill).

mod iter;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::iter::Versions;
pub(crate) use self::iter::{Files, Newest};
use crate::base::{IndexId, Kind, Result, SeqNo};
use crate::compact::gc::VersionGc;
use crate::compact::merge::{Held, MergeEnv, OutputPlan, ahead_each, merge};
use crate::iter::{LevelIter, MergeIter, VersionIter, hand_on, head_of};
use crate::manifest::{FileEntry, ObsoleteFiles};
use crate::sst::{PinnedValue, ReadHints, SstMeta, SstWriter};
use crate::sst_files::SstFiles;

/// Number of all versions of the last merge. Nobody asks for numbers after it, and equal ones take no space in a block.
const LAST_NUMBER: SeqNo = SeqNo(1);

/// Runs of one tier that are merged into one of the next.
const FAN: usize = 8;

/// A file of a run.
#[derive(Clone)]
pub(crate) struct SpillFile {
    entry: Arc<FileEntry>,
    /// Operations above are undone.
    limit: SeqNo,
    /// One version per key.
    distinct: bool,
}

impl SpillFile {
    fn meta(&self) -> &SstMeta {
        &self.entry.meta
    }

    /// True if all of it counts.
    fn is_whole(&self) -> bool {
        self.limit >= self.meta().max_seq
    }
}

/// Files in key order that do not overlap.
#[derive(Default)]
struct Run {
    files: Vec<SpillFile>,
    tier: u32,
}

impl Run {
    fn find(&self, key: &[u8], head: u128) -> Option<&SpillFile> {
        // Most newer runs have files of other indexes only.
        self.files.first().filter(|first| !first.entry.begins_behind(key, head))?;
        let at = self.files.partition_point(|file| file.entry.ends_before(key, head));
        self.files.get(at).filter(|file| !file.entry.begins_behind(key, head) && file.entry.may_hold(key))
    }

    /// Where a file with these bounds belongs; `None` if it overlaps another.
    fn gap(&self, smallest: &[u8], largest: &[u8]) -> Option<usize> {
        let at = self.files.partition_point(|file| file.meta().largest.as_slice() < smallest);
        self.files.get(at).is_none_or(|next| next.meta().smallest.as_slice() > largest).then_some(at)
    }

    /// The files that may hold keys in `[lower, upper)`.
    fn overlapping(&self, lower: &[u8], upper: &[u8]) -> &[SpillFile] {
        let from = self.files.partition_point(|file| file.meta().largest.as_slice() < lower);
        let rest = &self.files[from..];
        &rest[..rest.partition_point(|file| file.meta().smallest.as_slice() < upper)]
    }
}

/// See the module.
pub(crate) struct SpilledRuns {
    /// Oldest first.
    runs: Vec<Run>,
    /// Indexes with files of their own, in order.
    alone: Vec<IndexId>,
    /// Dropped indexes that shared files may have keys of.
    void: BTreeSet<IndexId>,
    ssts: Arc<SstFiles>,
    obsolete_files: Arc<ObsoleteFiles>,
    generation: u64,
    written_bytes: u64,
}

impl SpilledRuns {
    pub fn new(ssts: Arc<SstFiles>, obsolete_files: Arc<ObsoleteFiles>) -> SpilledRuns {
        let (runs, alone, void) = (Vec::new(), Vec::new(), BTreeSet::new());
        SpilledRuns { runs, alone, void, ssts, obsolete_files, generation: 0, written_bytes: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Changes whenever files come or go.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The same for files of a store that has these files, too: they are to become part of it.
    fn within<'a>(&self, env: &MergeEnv<'a>) -> MergeEnv<'a> {
        let held: u64 = self.runs.iter().flat_map(|run| &run.files).map(|file| file.meta().file_bytes).sum();
        let of_store = env.block_bytes.clone();
        MergeEnv { block_bytes: Arc::new(move |added| of_store(held + added)), ..env.clone() }
    }

    /// Bytes written since the last call.
    pub fn take_written_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.written_bytes)
    }

    /// Writes operations, newer than all before, as new files. On failure nothing has changed.
    pub fn spill<I: VersionIter>(&mut self, input: I, file_bytes: u64, env: &MergeEnv<'_>) -> Result<()> {
        let mut input = Distinct::new(input);
        let plan = OutputPlan::for_l0(file_bytes, &[], None);
        let own_from = plan.share_below;
        let written = merge(&mut input, all_versions(), &plan.apart(&self.alone), &self.within(env))?;
        self.written_bytes += written.stats.bytes_written;
        for meta in written.outputs {
            if !meta.is_shared() && meta.raw_bytes >= own_from {
                self.set_apart(meta.index);
            }
            self.stack(meta, input.distinct);
        }
        Ok(())
    }

    /// Writes the put of a large value, operation `number`, newer than all before, as a file for itself. On failure nothing has
    /// changed.
    pub fn spill_value(&mut self, key: &[u8], number: u64, parts: &[&[u8]], env: &MergeEnv<'_>) -> Result<()> {
        let no = (env.next_file)();
        let path = (env.path_of)(no);
        let options = (env.sst_options)(IndexId::of(key));
        let written = SstWriter::create(&env.disk, &path, no, options).and_then(|mut writer| {
            writer.add_parts(key, SeqNo(number), parts)?;
            writer.finish()
        });
        match written {
            Ok(meta) => {
                self.written_bytes += meta.file_bytes;
                self.set_apart(meta.index);
                self.stack(meta, true);
                Ok(())
            }
            Err(error) => {
                // What cannot be removed now is found unreferenced when the store is opened next.
                drop(env.disk.remove(&path));
                Err(error)
            }
        }
    }

    /// From now on the index has files of its own.
    fn set_apart(&mut self, index: IndexId) {
        if let Err(at) = self.alone.binary_search(&index) {
            self.alone.insert(at, index);
        }
    }

    /// Takes in a new file, newer than all before.
    fn stack(&mut self, meta: SstMeta, distinct: bool) {
        self.generation += 1;
        // Below all newer runs that it does not overlap.
        let gaps = self.runs.iter().rev().map_while(|run| run.gap(&meta.smallest, &meta.largest));
        let (passed, place) = gaps.fold((0, 0), |(passed, _), place| (passed + 1, place));
        if passed == 0 {
            self.runs.push(Run::default());
        }
        let run = self.runs.len() - passed.max(1);
        self.runs[run].files.insert(place, new_file(meta, distinct, &self.obsolete_files));
    }

    /// Where the newest runs begin that are to be merged, if there are too many.
    fn crowded(&self) -> Option<usize> {
        let first = self.runs.len().checked_sub(FAN)?;
        self.runs[first..].iter().all(|run| run.tier == self.runs[first].tier).then_some(first)
    }

    /// How many runs there are.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// All operations, by key and the newest first; the sources share `ahead_bytes` of memory.
    pub fn versions(&self, ahead_bytes: u64) -> MergeIter<LevelIter<Files<Versions>>> {
        let read_ahead = ahead_each(ahead_bytes, self.runs.len());
        let sources = self.runs.iter().rev().map(|run| all_of(&self.ssts, run.files.clone(), read_ahead));
        MergeIter::new(sources.collect())
    }

    /// True if `tidy` has nothing to do.
    pub fn is_tidy(&self) -> bool {
        self.crowded().is_none()
    }

    /// Merges runs where there are many. On failure nothing is lost.
    pub fn tidy(&mut self, file_bytes: u64, env: &MergeEnv<'_>) -> Result<()> {
        while let Some(first) = self.crowded() {
            let tier = self.runs[first].tier + 1;
            self.merge_from(first, tier, file_bytes, env, false)?;
        }
        Ok(())
    }

    /// Leaves one run with one version per key and nothing undone or dropped; its files, in key order. On failure nothing is
    /// lost, but older versions may be gone: the transaction can commit or be rolled back as a whole.
    pub fn finish(&mut self, file_bytes: u64, env: &MergeEnv<'_>) -> Result<Vec<SstMeta>> {
        self.merge_from(0, 0, file_bytes, env, true)?;
        Ok(self.runs.iter().flat_map(|run| &run.files).map(|file| file.meta().clone()).collect())
    }

    /// Makes one run of those from `first` on; with `last` of the newest versions only.
    fn merge_from(&mut self, first: usize, tier: u32, file_bytes: u64, env: &MergeEnv<'_>, last: bool) -> Result<()> {
        let void = &self.void;
        let is_dropped = |index| void.contains(&index) || (env.is_dropped)(index);
        let env = MergeEnv { is_dropped: Arc::new(is_dropped), ..self.within(env) };
        let (ssts, obsolete_files, alone) = (&self.ssts, &self.obsolete_files, self.alone.as_slice());
        let mut merge = Merge { ssts, obsolete_files, alone, void, file_bytes, env: &env, last, written_bytes: 0 };
        self.generation += 1;
        let merged = merge.divide(&mut self.runs[first..]).and_then(|()| merge.runs(&self.runs[first..]));
        self.written_bytes += merge.written_bytes;
        let files = merged?;
        self.runs.truncate(first);
        if !files.is_empty() {
            self.runs.push(Run { files, tier });
        }
        Ok(())
    }

    /// Undoes the operations behind the first `kept` ones.
    pub fn rollback_to(&mut self, kept: u64) {
        let limit = SeqNo(kept);
        self.retain(|file| {
            file.limit = file.limit.min(limit);
            file.meta().min_seq <= limit
        });
    }

    /// Hands the files over: they are not deleted when the transaction ends.
    pub fn release(&mut self) {
        self.runs.clear();
        self.alone.clear();
        self.void.clear();
        self.generation += 1;
    }

    /// Forgets what was written to indexes that `void` tells, which were dropped: files of theirs are deleted, and of shared
    /// ones `finish` leaves the rest.
    pub fn forget(&mut self, void: impl Fn(IndexId) -> bool) {
        let mut left = std::mem::take(&mut self.void);
        self.retain(|file| {
            let stays = file.meta().indexes().any(|index| !void(index));
            if stays {
                left.extend(file.meta().indexes().filter(|&index| void(index)));
            }
            stays
        });
        self.void = left;
    }

    /// Deletes the files.
    pub fn discard(&mut self) {
        self.retain(|_| false);
        self.release();
    }

    /// Deletes the files for which `stays` is false.
    fn retain(&mut self, mut stays: impl FnMut(&mut SpillFile) -> bool) {
        self.generation += 1;
        self.runs.retain_mut(|run| {
            run.files.retain_mut(|file| {
                let stays = stays(file);
                if !stays {
                    file.entry.mark_obsolete();
                }
                stays
            });
            !run.files.is_empty()
        });
    }

    /// The newest version of `key` among the first `kept` operations.
    pub fn get(&self, key: &[u8], kept: u64) -> Result<Option<(Kind, PinnedValue)>> {
        let head = head_of(key);
        for file in self.runs.iter().rev().filter_map(|run| run.find(key, head)) {
            let limit = file.limit.min(SeqNo(kept));
            if limit >= file.meta().min_seq {
                if let Some((_, kind, value)) = self.ssts.reader(&file.entry)?.get(key, limit)? {
                    return Ok(Some((kind, value)));
                }
            }
        }
        Ok(None)
    }

    /// False if no operation behind the first `kept` ones can have written `key` to a run. Reads nothing.
    pub fn may_have_written_since(&self, key: &[u8], kept: u64) -> bool {
        let head = head_of(key);
        let mut found = self.runs.iter().rev().filter_map(|run| run.find(key, head));
        found.any(|file| file.limit.min(file.meta().max_seq).0 > kept)
    }

    /// The newest versions of keys in `[lower, upper)` as sources of a cursor at `read`, newest first.
    pub fn sources(&self, read: SeqNo, lower: &[u8], upper: &[u8]) -> Vec<LevelIter<Files<Newest>>> {
        let overlapping = self.runs.iter().rev().map(|run| run.overlapping(lower, upper));
        let sources = overlapping.filter(|files| !files.is_empty()).map(|files| {
            let files = Files {
                files: files.to_vec(),
                ssts: self.ssts.clone(),
                open: Newest::new,
                hints: ReadHints { defer_large: true, ..ReadHints::default() },
                shown: read,
            };
            LevelIter::new(files, Some(lower), Some(upper))
        });
        sources.collect()
    }
}

impl Drop for SpilledRuns {
    fn drop(&mut self) {
        self.discard();
    }
}

fn new_file(meta: SstMeta, distinct: bool, obsolete_files: &Arc<ObsoleteFiles>) -> SpillFile {
    SpillFile { entry: Arc::new(FileEntry::new(meta, obsolete_files.clone())), limit: SeqNo::MAX, distinct }
}

/// Garbage collection that keeps everything: what counts as visible begins above all numbers.
fn all_versions() -> VersionGc {
    VersionGc::new(&[], SeqNo::ZERO)
}

/// Garbage collection that keeps the newest version of each key.
fn newest_versions() -> VersionGc {
    VersionGc::new(&[], SeqNo::MAX)
}

/// All versions of files in key order.
fn all_of(ssts: &Arc<SstFiles>, files: Vec<SpillFile>, read_ahead: u64) -> LevelIter<Files<Versions>> {
    let hints = ReadHints { fill_cache: false, read_ahead: read_ahead as u32, defer_large: true };
    let files = Files { files, ssts: ssts.clone(), open: Versions::new, hints, shown: SeqNo::ZERO };
    LevelIter::new(files, None, None)
}

/// Makes one run of several.
struct Merge<'a> {
    ssts: &'a Arc<SstFiles>,
    obsolete_files: &'a Arc<ObsoleteFiles>,
    alone: &'a [IndexId],
    void: &'a BTreeSet<IndexId>,
    file_bytes: u64,
    env: &'a MergeEnv<'a>,
    /// Keep the newest version only.
    last: bool,
    written_bytes: u64,
}

impl Merge<'_> {
    /// Divides the shared files that have keys on both sides of an index with files of its own, or of such an index.
    fn divide(&mut self, runs: &mut [Run]) -> Result<()> {
        let alone = self.alone;
        let spans = |meta: &SstMeta| {
            let at = alone.partition_point(|&id| id < meta.index);
            meta.is_shared() && alone.get(at).is_some_and(|&id| id <= meta.last_index())
        };
        for run in runs {
            while let Some(at) = run.files.iter().position(|file| spans(file.meta())) {
                let parts = self.rewrite(vec![vec![run.files[at].clone()]], false)?;
                run.files.splice(at..=at, parts).for_each(|whole| whole.entry.mark_obsolete());
            }
        }
        Ok(())
    }

    /// True if a file that overlaps no other is as good as what a merge would make of it.
    fn is_done(&self, file: &SpillFile) -> bool {
        file.is_whole()
            && (!self.last || file.distinct && !file.meta().indexes().any(|index| self.void.contains(&index)))
    }

    fn runs(&mut self, runs: &[Run]) -> Result<Vec<SpillFile>> {
        let mut files: Vec<(usize, &SpillFile)> = Vec::new();
        for (age, run) in runs.iter().enumerate() {
            files.extend(run.files.iter().map(|file| (age, file)));
        }
        files.sort_by(|a, b| a.1.meta().smallest.cmp(&b.1.meta().smallest));
        let (mut merged, mut obsolete) = (Vec::new(), Vec::new());
        let mut rest = files.as_slice();
        while let [first, ..] = rest {
            let mut largest = &first.1.meta().largest;
            let mut count = 1;
            while let Some((_, file)) = rest.get(count).filter(|(_, file)| file.meta().smallest <= *largest) {
                largest = largest.max(&file.meta().largest);
                count += 1;
            }
            let (group, after) = rest.split_at(count);
            rest = after;
            if count == 1 && self.is_done(first.1) {
                merged.push(first.1.clone());
                continue;
            }
            let mut by_age: Vec<Vec<SpillFile>> = runs.iter().map(|_| Vec::new()).collect();
            group.iter().for_each(|(age, file)| by_age[*age].push((*file).clone()));
            match self.rewrite(by_age, self.last) {
                Ok(outputs) => merged.extend(outputs),
                Err(error) => {
                    // Those that were not there before.
                    let old = |new: &SpillFile| files.iter().any(|(_, file)| Arc::ptr_eq(&file.entry, &new.entry));
                    merged.iter().filter(|file| !old(file)).for_each(|file: &SpillFile| file.entry.mark_obsolete());
                    return Err(error);
                }
            }
            obsolete.extend(group.iter().map(|(_, file)| file.entry.clone()));
        }
        obsolete.iter().for_each(|entry| entry.mark_obsolete());
        Ok(merged)
    }

    /// Merges files, in key order, of several runs, the oldest first.
    fn rewrite(&mut self, mut by_age: Vec<Vec<SpillFile>>, last: bool) -> Result<Vec<SpillFile>> {
        by_age.retain(|files| !files.is_empty());
        let read_ahead = ahead_each(self.env.ahead_bytes, by_age.len());
        let _held = Held::new(&self.env.buffer_bytes, read_ahead * by_age.len() as u64);
        let sources = by_age.into_iter().rev().map(|files| all_of(self.ssts, files, read_ahead));
        let mut input = Distinct::new(MergeIter::new(sources.collect()));
        if last {
            input.number = Some(LAST_NUMBER);
        }
        let gc = if last { newest_versions() } else { all_versions() };
        let plan = OutputPlan::for_l0(self.file_bytes, &[], None).in_place().apart(self.alone);
        let merged = merge(&mut input, gc, &plan, self.env)?;
        self.written_bytes += merged.stats.bytes_written;
        let distinct = last || input.distinct;
        Ok(merged.outputs.into_iter().map(|meta| new_file(meta, distinct, self.obsolete_files)).collect())
    }
}

/// Notices on the way forward whether a key has more than one version.
struct Distinct<I> {
    inner: I,
    last: Vec<u8>,
    distinct: bool,
    /// All versions get this number; the newest of a key still comes first.
    number: Option<SeqNo>,
}

impl<I: VersionIter> Distinct<I> {
    fn new(inner: I) -> Distinct<I> {
        Distinct { inner, last: Vec::new(), distinct: true, number: None }
    }
}

impl<I: VersionIter> VersionIter for Distinct<I> {
    hand_on!(inner: valid key kind value seeks prev);

    fn seq(&self) -> SeqNo {
        self.number.unwrap_or_else(|| self.inner.seq())
    }
    fn next(&mut self) -> Result<()> {
        if self.distinct {
            self.last.clear();
            self.last.extend_from_slice(self.inner.key());
        }
        self.inner.next()?;
        self.distinct &= !(self.inner.valid() && self.inner.key() == self.last);
        Ok(())
    }
}
