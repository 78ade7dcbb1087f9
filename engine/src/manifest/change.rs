//! What an edit does to a set of files, and whether it may. The rules hold for the manifest's state and for the version that readers
//! use.
//!
//! A file is in one place. Removals come before additions: a file that is removed and added has moved, and one that is removed
//! only has gone for good.

use std::collections::{BTreeMap, BTreeSet};

use super::{LEVELS, VersionEdit};
use crate::base::{FileNo, IndexId, SeqNo};
use crate::sst::SstMeta;

/// The files that an edit names.
pub(super) fn numbers(edit: &VersionEdit) -> impl Iterator<Item = FileNo> + '_ {
    let removed = edit.removed.iter().map(|&(_, no)| no);
    removed.chain(edit.added.iter().map(|(_, meta)| meta.no))
}

/// The files that no set from this edit on has.
pub(super) fn gone_for_good(edit: &VersionEdit) -> BTreeSet<FileNo> {
    let moved: BTreeSet<FileNo> = edit.added.iter().map(|(_, meta)| meta.no).collect();
    edit.removed.iter().map(|&(_, no)| no).filter(|no| !moved.contains(no)).collect()
}

/// Says why an edit does not fit a set of files. `find` tells of each where it is.
pub(super) fn check<'a>(edit: &VersionEdit, find: impl Fn(FileNo) -> Option<(u8, &'a SstMeta)>) -> Result<(), String> {
    let level_of = |no| find(no).map(|(level, _)| level);
    let mut removed: BTreeMap<FileNo, u8> = BTreeMap::new();
    for &(level, no) in &edit.removed {
        if usize::from(level) >= LEVELS || removed.insert(no, level).is_some() {
            return Err(format!("file {no} removed twice or from level {level}"));
        }
    }
    let mut added: BTreeSet<FileNo> = BTreeSet::new();
    for (level, meta) in &edit.added {
        let no = meta.no;
        if usize::from(*level) >= LEVELS || !added.insert(no) {
            return Err(format!("file {no} added twice or to level {level}"));
        }
        if let Some(fault) = meta_fault(meta) {
            return Err(format!("file {no}: {fault}"));
        }
    }
    let stays = |no: FileNo| level_of(no).filter(|level| removed.get(&no) != Some(level));
    if let Some((no, level)) = added.iter().find_map(|&no| Some((no, stays(no)?))) {
        return Err(format!("file {no} is already at level {level}"));
    }
    let changes = |meta: &SstMeta| find(meta.no).is_some_and(|(_, before)| before != meta);
    if let Some((_, meta)) = edit.added.iter().find(|(_, meta)| changes(meta)) {
        return Err(format!("file {} moves and changes", meta.no));
    }
    match removed.iter().find(|&(&no, &level)| level_of(no) != Some(level)) {
        Some((no, level)) => Err(format!("file {no} is not at level {level}")),
        None => Ok(()),
    }
}

/// What is wrong with a meta on its own, if anything.
fn meta_fault(meta: &SstMeta) -> Option<&'static str> {
    let (smallest, largest) = (&meta.smallest, &meta.largest);
    if smallest.len() < IndexId::LEN || largest.len() < IndexId::LEN {
        Some("key shorter than an index id")
    } else if IndexId::of(smallest) != meta.index || IndexId::of(largest) != meta.last_index() {
        Some("key of another index")
    } else if smallest > largest {
        Some("smallest key above largest")
    } else if meta.min_seq > meta.max_seq || meta.max_seq > SeqNo::MAX {
        Some("sequence numbers out of range")
    } else if meta.stamped && meta.min_seq != meta.max_seq {
        Some("stamped with two sequence numbers")
    } else {
        None
    }
}
