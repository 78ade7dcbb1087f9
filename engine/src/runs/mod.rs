//! The part of a large transaction that no longer fits in memory: private, sorted files.
//!
//! ```text
//! write buffer   operations 70..              index 16        index 17
//! runs           newest                       [50..70]        [50..70]
//!                                                             [40..50]
//!                oldest                       [0..50]         [0..40]
//! ```
//!
//! When the write buffer is full, its operations are written, in key order, as table files
//! (docs/develop/format/sst.md), one per index; the number of a version is that of its operation, counted from 1. Per
//! index there is a stack of *runs*, sets of files that do not overlap. A file whose keys lie above all of the newest
//! run joins it, so that writes in key order form one run however many files there are. Otherwise the file begins a
//! run, and [`FAN`] runs of one tier are merged into one of the next, so that reading a key asks few files.
//!
//! A newer run has newer operations. Going back to a savepoint removes files that begin behind it and lowers the limit of
//! the file in the middle of which it lies: nothing is written.
//!
//! A value too large for the buffer goes to a file of its own as it comes, from the memory of whoever writes it.
//!
//! Before the commit, [`Runs::finish`] leaves files that do not overlap and have one version per key. Most are used as
//! they are; only files that overlap, or hold what was undone or replaced, are merged. The store takes them over under the
//! sequence number of the commit, whatever numbers are in them.
//!
//! Whoever reads may hold the files: they are deleted through the graveyard.
//!
//! Rejected: cutting runs at savepoints instead of numbering operations (every statement and every row sets one);
//! numbering operations anew at the commit (all would be written twice).

mod iter;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::iter::Versions;
pub(crate) use self::iter::{Files, Newest};
use crate::base::{IndexId, Kind, Result, SeqNo};
use crate::compact::merge::{Held, MergeEnv, OutputPlan, ahead_each, merge};
use crate::compact::survive::Survival;
use crate::iter::{LevelIter, MergeIter, VersionIter};
use crate::manifest::{FileEntry, Graveyard};
use crate::sst::{PinnedValue, ReadHints, Table, TableMeta, TableWriter};

/// Number of all versions of the last merge. Nobody asks for numbers after it, and equal ones take no space in a block.
const LAST_NUMBER: SeqNo = SeqNo(1);

/// Runs of one tier that are merged into one of the next.
const FAN: usize = 8;

/// Opens table files.
pub(crate) trait Tables: Send + Sync {
    /// The reader of a file, opened on first use.
    fn table<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Table>>;
}

/// A file of a run.
#[derive(Clone)]
pub(crate) struct RunFile {
    entry: Arc<FileEntry>,
    /// Operations above are undone.
    limit: SeqNo,
    /// One version per key.
    distinct: bool,
}

impl RunFile {
    fn meta(&self) -> &TableMeta {
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
    files: Vec<RunFile>,
    tier: u32,
}

impl Run {
    fn find(&self, key: &[u8]) -> Option<&RunFile> {
        // A scan that writes what it reads is mostly behind all files.
        self.files.last().filter(|last| key <= last.meta().largest.as_slice())?;
        let at = self.files.partition_point(|file| file.meta().largest.as_slice() < key);
        self.files.get(at).filter(|file| file.meta().smallest.as_slice() <= key)
    }
}

/// See the module.
pub(crate) struct Runs {
    /// Runs per index, oldest first.
    indexes: BTreeMap<IndexId, Vec<Run>>,
    tables: Arc<dyn Tables>,
    graveyard: Arc<Graveyard>,
    generation: u64,
    written_bytes: u64,
}

impl Runs {
    pub fn new(tables: Arc<dyn Tables>, graveyard: Arc<Graveyard>) -> Runs {
        Runs { indexes: BTreeMap::new(), tables, graveyard, generation: 0, written_bytes: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Changes whenever files come or go.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes written since the last call.
    pub fn take_written_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.written_bytes)
    }

    /// Writes operations, newer than all before, as new files. On failure nothing has changed.
    pub fn spill<I: VersionIter>(&mut self, input: I, file_bytes: u64, env: &MergeEnv<'_>) -> Result<()> {
        let mut input = Distinct::new(input);
        let plan = OutputPlan::for_l0(file_bytes, &[], None).unshared();
        let written = merge(&mut input, all_versions(), &plan, env)?;
        self.written_bytes += written.stats.bytes_written;
        written.outputs.into_iter().for_each(|meta| self.stack(meta, input.distinct));
        Ok(())
    }

    /// Writes the put of a large value, operation `number`, newer than all before, as a file for itself. On failure nothing has
    /// changed.
    pub fn spill_value(&mut self, key: &[u8], number: u64, parts: &[&[u8]], env: &MergeEnv<'_>) -> Result<()> {
        let no = (env.next_file)();
        let path = (env.path_of)(no);
        let options = (env.table_options)(IndexId::of(key));
        let written = TableWriter::create(env.disk, &path, no, options).and_then(|mut writer| {
            writer.add_parts(key, SeqNo(number), parts)?;
            writer.finish()
        });
        match written {
            Ok(meta) => {
                self.written_bytes += meta.file_bytes;
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

    /// Takes in a new file, newer than all before.
    fn stack(&mut self, meta: TableMeta, distinct: bool) {
        self.generation += 1;
        let stack = self.indexes.entry(meta.index).or_default();
        let joins = |run: &&mut Run| run.files.last().is_some_and(|last| last.meta().largest < meta.smallest);
        let file = new_file(meta.clone(), distinct, &self.graveyard);
        match stack.last_mut().filter(joins) {
            Some(run) => run.files.push(file),
            None => stack.push(Run { files: vec![file], tier: 0 }),
        }
    }

    /// True if `tidy` has nothing to do.
    pub fn is_tidy(&self) -> bool {
        !self.indexes.values().any(|stack| crowded(stack).is_some())
    }

    /// Merges runs where there are many. On failure nothing is lost.
    pub fn tidy(&mut self, file_bytes: u64, env: &MergeEnv<'_>) -> Result<()> {
        for stack in self.indexes.values_mut() {
            while let Some(first) = crowded(stack) {
                let tier = stack[first].tier;
                let (tables, graveyard) = (&self.tables, &self.graveyard);
                let mut merge = Merge { tables, graveyard, file_bytes, env, last: false, written_bytes: 0 };
                let files = merge.runs(&stack[first..])?;
                self.written_bytes += merge.written_bytes;
                stack.truncate(first);
                stack.push(Run { files, tier: tier + 1 });
                self.generation += 1;
            }
        }
        Ok(())
    }

    /// Leaves one run per index with one version per key and nothing undone; its files, in key order. On failure nothing
    /// is lost, but older versions may be gone: the transaction can commit or be rolled back as a whole.
    pub fn finish(&mut self, file_bytes: u64, env: &MergeEnv<'_>) -> Result<Vec<TableMeta>> {
        let mut metas = Vec::new();
        for stack in self.indexes.values_mut() {
            let (tables, graveyard) = (&self.tables, &self.graveyard);
            let mut merge = Merge { tables, graveyard, file_bytes, env, last: true, written_bytes: 0 };
            let files = merge.runs(stack)?;
            self.written_bytes += merge.written_bytes;
            metas.extend(files.iter().map(|file| file.meta().clone()));
            *stack = vec![Run { files, tier: 0 }];
            self.generation += 1;
        }
        Ok(metas)
    }

    /// Undoes the operations behind the first `kept` ones.
    pub fn rollback_to(&mut self, kept: u64) {
        let limit = SeqNo(kept);
        self.generation += 1;
        self.indexes.retain(|_, stack| {
            stack.retain_mut(|run| {
                run.files.retain_mut(|file| {
                    let stays = file.meta().min_seq <= limit;
                    if !stays {
                        file.entry.mark_obsolete();
                    }
                    file.limit = file.limit.min(limit);
                    stays
                });
                !run.files.is_empty()
            });
            !stack.is_empty()
        });
    }

    /// Hands the files over: they are not deleted when the transaction ends.
    pub fn release(&mut self) {
        self.indexes.clear();
        self.generation += 1;
    }

    /// Deletes the files of indexes that `void` tells.
    pub fn forget(&mut self, void: impl Fn(IndexId) -> bool) {
        self.indexes.retain(|&id, stack| {
            let goes = void(id);
            if goes {
                stack.iter().flat_map(|run| &run.files).for_each(|file| file.entry.mark_obsolete());
            }
            !goes
        });
        self.generation += 1;
    }

    /// Deletes the files.
    pub fn discard(&mut self) {
        self.indexes.values().flatten().flat_map(|run| &run.files).for_each(|file| file.entry.mark_obsolete());
        self.release();
    }

    /// The newest version of `key` among the first `kept` operations.
    pub fn get(&self, key: &[u8], kept: u64) -> Result<Option<(Kind, PinnedValue)>> {
        let Some(stack) = self.indexes.get(&IndexId::of(key)) else { return Ok(None) };
        for file in stack.iter().rev().filter_map(|run| run.find(key)) {
            let limit = file.limit.min(SeqNo(kept));
            if limit >= file.meta().min_seq {
                if let Some((_, kind, value)) = self.tables.table(&file.entry)?.get(key, limit)? {
                    return Ok(Some((kind, value)));
                }
            }
        }
        Ok(None)
    }

    /// False if no operation behind the first `kept` ones can have written `key` to a run. Reads nothing.
    pub fn may_have_written_since(&self, key: &[u8], kept: u64) -> bool {
        let stack = self.indexes.get(&IndexId::of(key));
        stack.is_some_and(|stack| {
            stack.iter().rev().filter_map(|run| run.find(key)).any(|file| file.limit.min(file.meta().max_seq).0 > kept)
        })
    }

    /// The newest versions of keys in `[lower, upper)` as sources of a cursor at `read`, newest first.
    pub fn sources(&self, read: SeqNo, lower: &[u8], upper: &[u8]) -> Vec<LevelIter<Files<Newest>>> {
        let mut sources = Vec::new();
        let from = IndexId::of(lower);
        for (_, stack) in self.indexes.range(from..).take_while(|(id, _)| id.prefix().as_slice() < upper) {
            for run in stack.iter().rev() {
                let files = Files {
                    files: run.files.clone(),
                    tables: self.tables.clone(),
                    open: Newest::new,
                    hints: ReadHints::default(),
                    shown: read,
                };
                sources.push(LevelIter::new(files, Some(lower), Some(upper)));
            }
        }
        sources.retain(|source| !source.is_empty());
        sources
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Where in a stack the newest runs begin, if they are to be merged.
fn crowded(stack: &[Run]) -> Option<usize> {
    let first = stack.len().checked_sub(FAN)?;
    stack[first..].iter().all(|run| run.tier == stack[first].tier).then_some(first)
}

fn new_file(meta: TableMeta, distinct: bool, graveyard: &Arc<Graveyard>) -> RunFile {
    RunFile { entry: Arc::new(FileEntry::new(meta, graveyard.clone())), limit: SeqNo::MAX, distinct }
}

/// A survival that keeps everything: what counts as visible begins above all numbers.
fn all_versions() -> Survival {
    Survival::new(&[], SeqNo::ZERO)
}

/// A survival that keeps the newest version of each key.
fn newest_versions() -> Survival {
    Survival::new(&[], SeqNo::MAX)
}

/// Makes one run of several.
struct Merge<'a> {
    tables: &'a Arc<dyn Tables>,
    graveyard: &'a Arc<Graveyard>,
    file_bytes: u64,
    env: &'a MergeEnv<'a>,
    /// Keep the newest version only.
    last: bool,
    written_bytes: u64,
}

impl Merge<'_> {
    fn runs(&mut self, runs: &[Run]) -> Result<Vec<RunFile>> {
        let mut files: Vec<(usize, &RunFile)> = Vec::new();
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
            if count == 1 && first.1.is_whole() && (first.1.distinct || !self.last) {
                merged.push(first.1.clone());
                continue;
            }
            match self.group(group, runs.len()) {
                Ok(outputs) => merged.extend(outputs),
                Err(error) => {
                    // Those that were not there before.
                    let old = |new: &RunFile| files.iter().any(|(_, file)| Arc::ptr_eq(&file.entry, &new.entry));
                    merged.iter().filter(|file| !old(file)).for_each(|file: &RunFile| file.entry.mark_obsolete());
                    return Err(error);
                }
            }
            obsolete.extend(group.iter().map(|(_, file)| file.entry.clone()));
        }
        obsolete.iter().for_each(|entry| entry.mark_obsolete());
        Ok(merged)
    }

    /// Merges files, in key order, of several runs.
    fn group(&mut self, group: &[(usize, &RunFile)], ages: usize) -> Result<Vec<RunFile>> {
        let mut by_age: Vec<Vec<RunFile>> = (0..ages).map(|_| Vec::new()).collect();
        for (age, file) in group {
            by_age[*age].push((*file).clone());
        }
        by_age.retain(|files| !files.is_empty());
        let read_ahead = ahead_each(self.env.ahead_bytes, by_age.len());
        let _held = Held::new(self.env.buffer_bytes, read_ahead * by_age.len() as u64);
        let sources = by_age.into_iter().rev().map(|files| {
            let hints = ReadHints { fill_cache: false, read_ahead: read_ahead as u32 };
            let files = Files { files, tables: self.tables.clone(), open: Versions::new, hints, shown: SeqNo::ZERO };
            LevelIter::new(files, None, None)
        });
        let mut input = Distinct::new(MergeIter::new(sources.collect()));
        if self.last {
            input.number = Some(LAST_NUMBER);
        }
        let survival = if self.last { newest_versions() } else { all_versions() };
        let plan = OutputPlan::for_l0(self.file_bytes, &[], None).unshared();
        let merged = merge(&mut input, survival, &plan, self.env)?;
        self.written_bytes += merged.stats.bytes_written;
        let distinct = self.last || input.distinct;
        Ok(merged.outputs.into_iter().map(|meta| new_file(meta, distinct, self.graveyard)).collect())
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
    fn valid(&self) -> bool {
        self.inner.valid()
    }
    fn key(&self) -> &[u8] {
        self.inner.key()
    }
    fn seq(&self) -> SeqNo {
        self.number.unwrap_or_else(|| self.inner.seq())
    }
    fn kind(&self) -> Kind {
        self.inner.kind()
    }
    fn value(&self) -> &[u8] {
        self.inner.value()
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek_ge(key)
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek_lt(key)
    }
    fn seek_first(&mut self) -> Result<()> {
        self.inner.seek_first()
    }
    fn seek_last(&mut self) -> Result<()> {
        self.inner.seek_last()
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
    fn prev(&mut self) -> Result<()> {
        self.inner.prev()
    }
}
