//! Which SSTs make up the store: an immutable value.
//!
//! ```text
//! age   files of level 0             sublevels
//! old   a [0..4]  b [6..9]           2:            d [3..8]
//!       c [5..7]                     1:      c [5..7]
//! new   d [3..8]                     0: a [0..4]  b [6..9]
//! ```
//!
//! Level 0 receives flushed tables, whose key ranges may overlap. It is kept as *sublevels*, each a sorted run of
//! disjoint files: a file lies in the lowest sublevel above all older files that it overlaps. So for any key a higher
//! sublevel is newer, a lookup needs at most one file per sublevel, and the count of sublevels is the read cost of
//! level 0. Levels 1 to 6 are one sorted run each; a lower number is newer.
//!
//! Age in level 0 is the greatest sequence number, then the smallest, then the file number. Sublevels are computed from
//! the set of files alone, so the manifest does not store them.
//!
//! Invariants (checked by [`Version::apply`]; 5, 13, 14, 16 of docs/develop/invariants.md): a file is in one place;
//! runs are sorted and disjoint; metas make sense.
//!
//! Rejected: updating sublevels in place on removal (moving files down may cascade; level 0 is small, so they are
//! assigned anew).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::VersionEdit;
use super::change::{check, gone_for_good, numbers};
use super::file::{FileEntry, find_at, find_in, overlapping, within};
use super::obsolete::ObsoleteFiles;
use crate::base::{Error, FileNo, IndexId, Result};
use crate::iter::head_of;
use crate::sst::SstMeta;

/// Number of levels, level 0 included.
pub const LEVELS: usize = 7;

/// Files in an order, shared between versions that do not differ in them.
type Run = Arc<Vec<Arc<FileEntry>>>;

/// The files of the store at one moment.
#[derive(Clone)]
pub struct Version {
    /// Level 0 divided, oldest first.
    sublevels: Arc<Vec<Vec<Arc<FileEntry>>>>,
    /// Level 0 by age, oldest first; the others are sorted runs.
    levels: [Run; LEVELS],
    bytes: [u64; LEVELS],
    obsolete_files: Arc<ObsoleteFiles>,
}

impl Version {
    /// The version of these files, in any order. `obsolete_files` receives the files of all versions that derive from it.
    /// Errors: as [`Version::apply`].
    pub fn new<'a>(
        files: impl IntoIterator<Item = &'a (u8, SstMeta)>,
        obsolete_files: &Arc<ObsoleteFiles>,
    ) -> Result<Version> {
        let empty = Version {
            sublevels: Arc::default(),
            levels: Default::default(),
            bytes: [0; LEVELS],
            obsolete_files: obsolete_files.clone(),
        };
        empty.apply(&VersionEdit { added: files.into_iter().cloned().collect(), ..VersionEdit::default() })
    }

    /// The version after `edit`. Changes nothing else: to delete the files it removes, see [`Version::retire`].
    ///
    /// Errors: `Internal` if the edit does not fit or the result would break an invariant.
    pub fn apply(&self, edit: &VersionEdit) -> Result<Version> {
        self.apply_with(edit, &[])
    }

    /// As `apply`; added files that are among `known`, sorted by key, are in use already and keep their entries, so that
    /// they are not deleted under those who read them.
    pub fn apply_with(&self, edit: &VersionEdit, known: &[Arc<FileEntry>]) -> Result<Version> {
        let invalid = |what: String| Error::Internal(format!("version edit: {what}"));
        let mentioned: BTreeSet<FileNo> = numbers(edit).collect();
        let concerned = self.files().filter(|(_, file)| mentioned.contains(&file.meta.no));
        let present: BTreeMap<FileNo, (u8, &Arc<FileEntry>)> =
            concerned.map(|(level, file)| (file.meta.no, (level, file))).collect();
        check(edit, |no| present.get(&no).map(|(level, file)| (*level, &file.meta))).map_err(invalid)?;

        let levels = edit.removed.iter().map(|(level, _)| *level).chain(edit.added.iter().map(|(level, _)| *level));
        let touched: BTreeSet<u8> = levels.collect();
        let mut contents: BTreeMap<u8, Vec<Arc<FileEntry>>> = BTreeMap::new();
        for level in touched {
            let stays = |file: &&Arc<FileEntry>| !mentioned.contains(&file.meta.no);
            contents.insert(level, self.level(level).iter().filter(stays).cloned().collect());
        }
        for (level, meta) in &edit.added {
            let file = match present.get(&meta.no) {
                // Moved: the same entry, so that it is neither opened anew nor deleted.
                Some((_, file)) => Arc::clone(file),
                None => match find_in(known, &meta.smallest).filter(|file| file.meta == *meta) {
                    Some(file) => file.clone(),
                    None => Arc::new(FileEntry::new(meta.clone(), self.obsolete_files.clone())),
                },
            };
            contents.entry(*level).or_default().push(file);
        }

        let mut next = self.clone();
        for (level, mut files) in contents.into_iter().map(|(level, files)| (usize::from(level), files)) {
            next.bytes[level] = files.iter().map(|file| file.meta.file_bytes).sum();
            if level == 0 {
                files.sort_by_key(|file| (file.meta.max_seq, file.meta.min_seq, file.meta.no));
                next.sublevels = Arc::new(divide(&files));
            } else {
                files.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
                if let Some(pair) = files.windows(2).find(|pair| pair[0].meta.largest >= pair[1].meta.smallest) {
                    let (a, b) = (pair[0].meta.no, pair[1].meta.no);
                    return Err(invalid(format!("files {a} and {b} overlap at level {level}")));
                }
            }
            next.levels[level] = Arc::new(files);
        }
        Ok(next)
    }

    /// Marks obsolete the files of this version that `edit` removed for good. To be called on the version the edit was
    /// applied to, once the edit is durable and its result is in use.
    pub fn retire(&self, edit: &VersionEdit) {
        let gone = gone_for_good(edit);
        self.files().filter(|(_, file)| gone.contains(&file.meta.no)).for_each(|(_, file)| file.mark_obsolete());
    }

    /// Calls `look` for each file that may hold `key`, newest first, until it says that it is done.
    pub fn visit(&self, key: &[u8], mut look: impl FnMut(&Arc<FileEntry>) -> Result<bool>) -> Result<()> {
        let head = head_of(key);
        // Most levels of most stores are empty.
        for run in self.all_runs().filter(|run| !run.is_empty()) {
            if let Some(file) = find_at(run, key, head).filter(|file| file.may_hold(key)) {
                if look(file)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The sorted runs with files that may hold keys in `[lower, upper)`, newest first, cut to these files.
    pub fn runs<'a>(&'a self, lower: &'a [u8], upper: &'a [u8]) -> impl Iterator<Item = &'a [Arc<FileEntry>]> + 'a {
        self.all_runs().map(move |run| overlapping(run, lower, upper)).filter(|run| !run.is_empty())
    }

    /// Whether any file holds keys of an index.
    pub fn holds(&self, index: IndexId) -> bool {
        self.holding(index).next().is_some()
    }

    /// The files that hold keys of an index, with their levels.
    pub fn holding(&self, index: IndexId) -> impl Iterator<Item = (u8, &Arc<FileEntry>)> {
        let sublevels = self.sublevels.len();
        self.all_runs().enumerate().flat_map(move |(number, run)| {
            let level = number.checked_sub(sublevels).map_or(0, |deeper| deeper as u8 + 1);
            // The indexes of files that lie side by side in a run ascend.
            let from = run.partition_point(|file| file.meta.last_index() < index);
            let rest = run[from..].iter().take_while(move |file| file.meta.index <= index);
            rest.filter(move |file| file.meta.holds(index)).map(move |file| (level, file))
        })
    }

    /// As `runs`, as numbers: of the run and of its files. For readers that hold the version.
    pub fn run_numbers<'a>(
        &'a self,
        lower: &'a [u8],
        upper: &'a [u8],
    ) -> impl Iterator<Item = (usize, Range<usize>)> + 'a {
        let runs = self.all_runs().map(move |run| within(run, lower, upper)).enumerate();
        runs.filter(|(_, files)| !files.is_empty())
    }

    /// A sorted run by its number: sublevels, newest first, then levels.
    pub fn run(&self, number: usize) -> &[Arc<FileEntry>] {
        let sublevels = self.sublevels.len();
        match number.checked_sub(sublevels) {
            None => &self.sublevels[sublevels - 1 - number],
            Some(deeper) => &self.levels[1 + deeper],
        }
    }

    /// The sorted runs of the levels below `level`; with 0 those of level 0, too. Newest first.
    pub fn runs_below(&self, level: u8) -> impl Iterator<Item = &[Arc<FileEntry>]> {
        let sublevels = if level == 0 { self.sublevels.as_slice() } else { &[] };
        let deeper = self.levels[usize::from(level).min(LEVELS - 1) + 1..].iter().map(|run| run.as_slice());
        sublevels.iter().rev().map(Vec::as_slice).chain(deeper)
    }

    /// Sublevels, newest first, then levels.
    fn all_runs(&self) -> impl Iterator<Item = &[Arc<FileEntry>]> {
        self.runs_below(0)
    }

    /// The sublevels of level 0, oldest first.
    pub fn sublevels(&self) -> impl ExactSizeIterator<Item = &[Arc<FileEntry>]> + DoubleEndedIterator {
        self.sublevels.iter().map(Vec::as_slice)
    }

    /// The files of a level: level 0 oldest first, others in key order; none for a level that does not exist.
    pub fn level(&self, level: u8) -> &[Arc<FileEntry>] {
        self.levels.get(usize::from(level)).map_or(&[], |run| run.as_slice())
    }

    /// The same of a level from 1 to 6, for who keeps them without the version.
    pub fn level_run(&self, level: u8) -> Arc<Vec<Arc<FileEntry>>> {
        self.levels.get(usize::from(level)).cloned().unwrap_or_default()
    }

    /// All files with their levels.
    pub fn files(&self) -> impl Iterator<Item = (u8, &Arc<FileEntry>)> {
        (0u8..).zip(&self.levels).flat_map(|(level, run)| run.iter().map(move |file| (level, file)))
    }

    /// Bytes of memory of the open SSTs' resident parts.
    pub fn sst_bytes(&self) -> u64 {
        self.files().map(|(_, file)| file.sst.get().map_or(0, |table| table.resident_bytes() as u64)).sum()
    }

    /// A file of a level.
    pub fn file(&self, level: u8, no: FileNo) -> Option<&Arc<FileEntry>> {
        self.level(level).iter().find(|file| file.meta.no == no)
    }

    /// True if the level has the file.
    pub fn contains(&self, level: u8, no: FileNo) -> bool {
        self.file(level, no).is_some()
    }

    /// The file of a level from 1 to 6 that may hold `key`.
    pub fn find_file(&self, level: u8, key: &[u8]) -> Option<&Arc<FileEntry>> {
        if level == 0 { None } else { find_in(self.level(level), key) }
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Bytes of the files of a level.
    pub fn level_bytes(&self, level: u8) -> u64 {
        self.bytes.get(usize::from(level)).copied().unwrap_or(0)
    }
}

/// Divides the files of level 0, oldest first, into sublevels, oldest first.
fn divide(files: &[Arc<FileEntry>]) -> Vec<Vec<Arc<FileEntry>>> {
    let mut sublevels: Vec<Vec<Arc<FileEntry>>> = Vec::new();
    for file in files {
        let meta = &file.meta;
        let overlaps = |run: &Vec<Arc<FileEntry>>| {
            let at = run.partition_point(|older| older.meta.largest < meta.smallest);
            run.get(at).is_some_and(|older| older.meta.smallest <= meta.largest)
        };
        let at = sublevels.iter().rposition(overlaps).map_or(0, |highest| highest + 1);
        if at == sublevels.len() {
            sublevels.push(Vec::new());
        }
        let place = sublevels[at].partition_point(|other| other.meta.smallest < meta.smallest);
        sublevels[at].insert(place, file.clone());
    }
    sublevels
}
