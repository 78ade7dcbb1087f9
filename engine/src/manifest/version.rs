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
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::VersionEdit;
use super::edit::meta_fault;
use crate::base::{Error, FileNo, IndexId, Result};
use crate::iter::head_of;
use crate::sst::{Sst, SstMeta};

/// Number of levels, level 0 included.
pub const LEVELS: usize = 7;

/// Collects the numbers of files that nobody needs any more, for someone off the hot paths to delete them.
#[derive(Default, Debug)]
pub struct ObsoleteFiles {
    numbers: Mutex<Vec<FileNo>>,
    /// Files that were taken and could not be removed yet.
    refused: AtomicUsize,
}

impl ObsoleteFiles {
    /// Adds a file.
    pub fn add(&self, no: FileNo) {
        self.numbers.lock().push(no);
    }

    /// Takes what has gathered.
    pub fn drain(&self) -> Vec<FileNo> {
        std::mem::take(&mut *self.numbers.lock())
    }

    /// Of all that was taken so many files could not be removed, and will be tried again.
    pub fn note_refused(&self, files: usize) {
        self.refused.store(files, Ordering::Relaxed);
    }

    /// Files that are still to be removed.
    pub fn waiting(&self) -> usize {
        self.numbers.lock().len() + self.refused.load(Ordering::Relaxed)
    }
}

/// An SST in use. Versions share it; whoever reads the file holds it (or a version with it).
pub struct FileEntry {
    /// What is known about the file.
    pub meta: SstMeta,
    /// Its reader, once somebody needed it.
    pub sst: OnceLock<Arc<Sst>>,
    /// Heads of the smallest and the largest key: a search among files compares integers and follows few pointers.
    heads: (u128, u128),
    life: Arc<FileLife>,
}

/// Keeps the name of an SST. Its entry and its open reader hold it: a reader may have to open the file again.
#[derive(Debug)]
pub struct FileLife {
    no: FileNo,
    obsolete: AtomicBool,
    obsolete_files: Arc<ObsoleteFiles>,
}

impl Drop for FileLife {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.obsolete_files.add(self.no);
        }
    }
}

impl FileEntry {
    /// An entry for a file in use.
    pub fn new(meta: SstMeta, obsolete_files: Arc<ObsoleteFiles>) -> FileEntry {
        let heads = (head_of(&meta.smallest), head_of(&meta.largest));
        let life = Arc::new(FileLife { no: meta.no, obsolete: AtomicBool::new(false), obsolete_files });
        FileEntry { meta, sst: OnceLock::new(), heads, life }
    }

    /// Whether the file has anything of the key's index, within its bounds. Between those of a shared file other indexes may
    /// lie, large ones too, whose look-ups need not ask its filter.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        !self.meta.is_shared() || key.first_chunk().is_some_and(|&id| self.meta.holds(IndexId(u32::from_be_bytes(id))))
    }

    /// Is its smallest key above `key`, whose head is `head`?
    #[inline]
    pub fn begins_behind(&self, key: &[u8], head: u128) -> bool {
        self.heads.0 > head || self.heads.0 == head && self.meta.smallest.as_slice() > key
    }

    /// What keeps the file's name.
    pub fn life(&self) -> &Arc<FileLife> {
        &self.life
    }

    /// Are all its keys below `key`, whose head is `head`?
    #[inline]
    pub fn ends_before(&self, key: &[u8], head: u128) -> bool {
        self.heads.1 < head || self.heads.1 == head && self.meta.largest.as_slice() < key
    }

    /// Is its smallest key below `key`, whose head is `head`?
    #[inline]
    fn begins_before(&self, key: &[u8], head: u128) -> bool {
        self.heads.0 < head || self.heads.0 == head && self.meta.smallest.as_slice() < key
    }

    /// Says that no version from now on has the file, durably. When the last holder lets go of it, its number goes to
    /// the obsolete files.
    pub fn mark_obsolete(&self) {
        self.life.obsolete.store(true, Ordering::Release);
    }

    /// True if marked obsolete.
    pub fn is_obsolete(&self) -> bool {
        self.life.obsolete.load(Ordering::Acquire)
    }
}

impl fmt::Debug for FileEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.meta.fmt(f)
    }
}

/// Files in an order, shared between versions that do not differ in them.
type Run = Arc<Vec<Arc<FileEntry>>>;

/// The file of a sorted run that may hold `key`.
pub fn find_in<'a>(run: &'a [Arc<FileEntry>], key: &[u8]) -> Option<&'a Arc<FileEntry>> {
    find_at(run, key, head_of(key))
}

/// As `find_in`, for the key's head.
#[inline]
fn find_at<'a>(run: &'a [Arc<FileEntry>], key: &[u8], head: u128) -> Option<&'a Arc<FileEntry>> {
    let at = run.partition_point(|file| file.ends_before(key, head));
    run.get(at).filter(|file| file.meta.smallest.as_slice() <= key)
}

/// The files of a sorted run that may hold keys in `[lower, upper)`.
pub fn overlapping<'a>(run: &'a [Arc<FileEntry>], lower: &[u8], upper: &[u8]) -> &'a [Arc<FileEntry>] {
    &run[within(run, lower, upper)]
}

/// As `overlapping`, as numbers.
pub fn within(run: &[Arc<FileEntry>], lower: &[u8], upper: &[u8]) -> Range<usize> {
    if run.is_empty() {
        return 0..0;
    }
    let (from_head, to_head) = (head_of(lower), head_of(upper));
    let from = run.partition_point(|file| file.ends_before(lower, from_head));
    let rest = &run[from..];
    // Most ranges end in the file in which they begin.
    let count = match rest.get(1) {
        Some(second) if second.begins_before(upper, to_head) => {
            rest.partition_point(|file| file.begins_before(upper, to_head))
        }
        _ => usize::from(rest.first().is_some_and(|file| file.begins_before(upper, to_head))),
    };
    from..from + count
}

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
    pub fn new(files: &[(u8, SstMeta)], obsolete_files: &Arc<ObsoleteFiles>) -> Result<Version> {
        let empty = Version {
            sublevels: Arc::default(),
            levels: Default::default(),
            bytes: [0; LEVELS],
            obsolete_files: obsolete_files.clone(),
        };
        empty.apply(&VersionEdit { added: files.to_vec(), ..VersionEdit::default() })
    }

    /// The version after `edit`. Changes nothing else: to delete the files it removes, see [`Version::retire`].
    ///
    /// Errors: `Invalid` if the edit does not fit or the result would break an invariant.
    pub fn apply(&self, edit: &VersionEdit) -> Result<Version> {
        self.apply_with(edit, &[])
    }

    /// As `apply`; added files that are among `known`, sorted by key, are in use already and keep their entries, so that
    /// they are not deleted under those who read them.
    pub fn apply_with(&self, edit: &VersionEdit, known: &[Arc<FileEntry>]) -> Result<Version> {
        let invalid = |what: String| Err(Error::Invalid(format!("version edit: {what}")));
        let mut removed: BTreeMap<FileNo, u8> = BTreeMap::new();
        let mut added: BTreeSet<FileNo> = BTreeSet::new();
        let mut touched = [false; LEVELS];
        for &(level, no) in &edit.removed {
            if usize::from(level) >= LEVELS || removed.insert(no, level).is_some() {
                return invalid(format!("file {no} removed twice or from level {level}"));
            }
            touched[usize::from(level)] = true;
        }
        for (level, meta) in &edit.added {
            if usize::from(*level) >= LEVELS || !added.insert(meta.no) {
                return invalid(format!("file {} added twice or to level {level}", meta.no));
            }
            if let Some(fault) = meta_fault(meta) {
                return invalid(format!("file {}: {fault}", meta.no));
            }
            touched[usize::from(*level)] = true;
        }

        let mut leaving: BTreeMap<FileNo, Arc<FileEntry>> = BTreeMap::new();
        let mut contents: [Vec<Arc<FileEntry>>; LEVELS] = std::array::from_fn(|_| Vec::new());
        for (level, file) in self.files() {
            let no = file.meta.no;
            if removed.get(&no) == Some(&level) {
                leaving.insert(no, file.clone());
            } else if added.contains(&no) {
                return invalid(format!("file {no} is already at level {level}"));
            } else if touched[usize::from(level)] {
                contents[usize::from(level)].push(file.clone());
            }
        }
        if let Some((no, level)) = removed.iter().find(|(no, _)| !leaving.contains_key(no)) {
            return invalid(format!("file {no} is not at level {level}"));
        }
        for (level, meta) in &edit.added {
            let file = match leaving.get(&meta.no) {
                // Moved: the same entry, so that it is neither opened anew nor deleted.
                Some(file) if file.meta == *meta => file.clone(),
                Some(_) => return invalid(format!("file {} moves and changes", meta.no)),
                None => match find_in(known, &meta.smallest).filter(|file| file.meta == *meta) {
                    Some(file) => file.clone(),
                    None => Arc::new(FileEntry::new(meta.clone(), self.obsolete_files.clone())),
                },
            };
            contents[usize::from(*level)].push(file);
        }

        let mut next = self.clone();
        for (level, mut files) in contents.into_iter().enumerate().filter(|(level, _)| touched[*level]) {
            next.bytes[level] = files.iter().map(|file| file.meta.file_bytes).sum();
            if level == 0 {
                files.sort_by_key(|file| (file.meta.max_seq, file.meta.min_seq, file.meta.no));
                next.sublevels = Arc::new(divide(&files));
            } else {
                files.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
                if let Some(pair) = files.windows(2).find(|pair| pair[0].meta.largest >= pair[1].meta.smallest) {
                    let (a, b) = (pair[0].meta.no, pair[1].meta.no);
                    return invalid(format!("files {a} and {b} overlap at level {level}"));
                }
            }
            next.levels[level] = Arc::new(files);
        }
        Ok(next)
    }

    /// Marks obsolete the files of this version that `edit` removed for good. To be called on the version the edit was
    /// applied to, once the edit is durable and its result is in use.
    pub fn retire(&self, edit: &VersionEdit) {
        let moved: BTreeSet<FileNo> = edit.added.iter().map(|(_, meta)| meta.no).collect();
        let gone: BTreeSet<FileNo> = edit.removed.iter().map(|&(_, no)| no).filter(|no| !moved.contains(no)).collect();
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
