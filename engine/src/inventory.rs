//! Of which indexes a store holds keys, and how much of each on which level, told from what is in memory: the descriptions of SSTs
//! and the memtables. No file is read.
//!
//! The engine does not know which indexes there ought to be. Who does asks once, when the store is opened, and drops those
//! that nobody owns: what a defect, or a transaction that wrote to an index after its drop, has left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::base::{IndexId, Result};
use crate::iter::VersionIter;
use crate::manifest::LEVELS;
use crate::mem::MemTable;
use crate::state::ReadState;

/// All indexes with keys in SSTs or memtables. Writes of open and prepared transactions do not count. One seek per index
/// and memtable.
pub(crate) fn indexes(state: &ReadState) -> Result<BTreeSet<IndexId>> {
    let mut found = BTreeSet::new();
    let waiting = state.sealed.iter().flat_map(|sealed| sealed.files.iter());
    for file in state.version.files().map(|(_, file)| file).chain(waiting) {
        found.extend(file.meta.indexes());
    }
    for mem in state.memtables() {
        let mut keys = mem.table.iter();
        keys.seek_first()?;
        while keys.valid() {
            let id = IndexId::of(keys.key());
            found.insert(id);
            let Some(next) = id.0.checked_add(1) else { break };
            keys.seek_ge(&IndexId(next).prefix())?;
        }
    }
    Ok(found)
}

/// Keys of a memtable looked at for a whole index, whose size callers keep for a while, and for ranges of small memtables, if nothing else
/// has keys there: wrong by more than a sixth in one case of twenty.
pub(crate) const INDEX_SAMPLE: u64 = 128;
/// Keys that make a sample beside others: what they tell is often wrong by a factor of two.
const SAMPLE_MIN: u64 = 4;
/// Memory that a memtable holds in reserve must not count as the size of its first keys.
const TYPICAL_KEY_BYTES_MAX: u64 = 1 << 10;

/// What a memtable has of an index, about.
#[derive(Clone, Copy)]
pub(crate) struct InMemory {
    pub keys: u64,
    /// Of these, keys whose newest version is a tombstone.
    pub tombstones: u64,
    /// By the mean of all keys of the memtable.
    pub bytes: u64,
}

/// Whether `nodes` keys of a memtable, each of which stands for `each`, are enough of a sample: `alone` are if nothing else has keys there.
/// Where others have `others` entries, the memtable's part counts as one of the sum, and may be the same rows once more: then half
/// of its part of `alone` will do. (Not fewer where it seems small beside the others: its tombstones count twice.)
pub(crate) fn is_enough(alone: u64, nodes: u64, each: u64, others: u64) -> bool {
    if others == 0 {
        return nodes >= alone;
    }
    let keys = nodes.saturating_mul(each);
    let part = u128::from(alone) * u128::from(keys) / u128::from(keys.saturating_add(others)) / 2;
    nodes >= SAMPLE_MIN.max(part as u64)
}

/// Looks at some keys of an index in a memtable: as many as if nothing else had keys of it, since callers keep what they are told.
pub(crate) fn in_memtable(table: &MemTable, id: IndexId) -> InMemory {
    let (lower, upper) = (id.prefix(), IndexId(id.0 + 1).prefix());
    let found = table.estimate(&lower, &upper, |nodes, _| nodes >= INDEX_SAMPLE);
    let (keys, tombstones) = (found.keys, found.deleted);
    let bytes = keys * (table.bytes() as u64 / table.key_count().max(1)).min(TYPICAL_KEY_BYTES_MAX);
    InMemory { keys, tombstones, bytes }
}

/// What a file of a store is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// An SST: of a level, or a spilled run.
    Sst,
    /// A segment of the log, or one that waits to be used again.
    Log,
    /// The manifest, and what names it.
    Manifest,
}

impl FileKind {
    /// That of the file of this name.
    pub fn of(path: &Path) -> FileKind {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("sst") => FileKind::Sst,
            Some("log") => FileKind::Log,
            _ => FileKind::Manifest,
        }
    }
}

/// What a level holds of an index.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Holding {
    /// SSTs that have keys of it; 0 in memory.
    pub files: u64,
    /// Versions, tombstones included; in memory an estimate.
    pub entries: u64,
    /// Tombstones; in memory an estimate.
    pub tombstones: u64,
    /// Bytes of keys and values, not compressed.
    pub raw_bytes: u64,
    /// Bytes on disk; of a file with several indexes the part that is due to this one. 0 in memory.
    pub bytes: u64,
}

/// What each index has on each level; `None` is the memory, memtables that are being flushed among it. An index without entries on a
/// level is not named there.
pub(crate) fn holdings(state: &ReadState, ids: &BTreeSet<IndexId>) -> BTreeMap<(IndexId, Option<u8>), Holding> {
    let mut found: BTreeMap<(IndexId, Option<u8>), Holding> = BTreeMap::new();
    for mem in state.memtables() {
        for &id in ids {
            let held = in_memtable(&mem.table, id);
            if held.keys > 0 {
                let holding = found.entry((id, None)).or_default();
                holding.entries += held.keys;
                holding.tombstones += held.tombstones;
                holding.raw_bytes += held.bytes;
            }
        }
    }
    for (level, file) in state.version.files() {
        for id in file.meta.indexes() {
            let Some(part) = file.meta.part_of(id) else { continue };
            let holding = found.entry((id, Some(level))).or_default();
            holding.files += 1;
            holding.entries += part.entries;
            holding.tombstones += part.tombstones;
            holding.raw_bytes += part.raw_bytes;
            holding.bytes += file.meta.bytes_of(part.raw_bytes);
        }
    }
    found
}

/// A level of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Level {
    /// Sorted runs, each of which a read may have to look into.
    pub sorted_runs: u64,
    /// All that it holds, of all indexes.
    pub holds: Holding,
}

/// The levels, from level 0 on.
pub(crate) fn levels(state: &ReadState) -> Vec<Level> {
    let mut levels = [Level::default(); LEVELS];
    for (level, file) in state.version.files() {
        let Level { sorted_runs, holds } = &mut levels[usize::from(level)];
        *sorted_runs = if level == 0 { state.version.sublevels().len() as u64 } else { 1 };
        holds.files += 1;
        holds.entries += file.meta.entries;
        holds.tombstones += file.meta.tombstones;
        holds.raw_bytes += file.meta.raw_bytes;
        holds.bytes += file.meta.file_bytes;
    }
    levels.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtable_is_sampled_by_its_part_of_the_keys() {
        assert!(is_enough(32, 32, 1 << 20, 0) && !is_enough(32, 31, 1 << 20, 0));
        // As many as the others have: a quarter of the sample, since half of the entries may be the same rows.
        assert!(is_enough(32, 8, 100, 800) && !is_enough(32, 7, 100, 700));
        assert!(is_enough(32, 4, 100, 1000) && !is_enough(32, 3, 100, 1000));
        assert!(is_enough(32, u64::MAX / 2, 4, u64::MAX));
    }
}
