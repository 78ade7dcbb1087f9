//! Files in use, and the search in sorted runs of them.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::obsolete::{FileLife, ObsoleteFiles};
use crate::base::IndexId;
use crate::iter::head_of;
use crate::sst::{Sst, SstMeta};

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

impl FileEntry {
    /// An entry for a file in use.
    pub fn new(meta: SstMeta, obsolete_files: Arc<ObsoleteFiles>) -> FileEntry {
        let heads = (head_of(&meta.smallest), head_of(&meta.largest));
        let life = FileLife::begin(meta.no, obsolete_files);
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
        self.life.mark_obsolete();
    }

    /// True if marked obsolete.
    pub fn is_obsolete(&self) -> bool {
        self.life.is_obsolete()
    }
}

impl fmt::Debug for FileEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.meta.fmt(f)
    }
}

/// The file of a sorted run that may hold `key`.
pub fn find_in<'a>(run: &'a [Arc<FileEntry>], key: &[u8]) -> Option<&'a Arc<FileEntry>> {
    find_at(run, key, head_of(key))
}

/// As `find_in`, for the key's head.
#[inline]
pub(super) fn find_at<'a>(run: &'a [Arc<FileEntry>], key: &[u8], head: u128) -> Option<&'a Arc<FileEntry>> {
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
