//! What is left of dropped indexes.
//!
//! The files of a dropped index leave the version at once; of files that it shares with others its part stays until a merge
//! rewrites them. Flushes and merges skip its keys; nobody reads them, as ids are not used again. So it stays on a list
//! as long as a memtable, the log or a file may hold keys of it: until all that was written before the drop is in files,
//! and no file has a share of it. How much of a file belongs to dropped indexes makes it garbage for the picker.
//!
//! The list is a map, with the number of files per index: thousands of indexes may be dropped one after the other.
//!
//! Whoever has written to an index and drops it before he commits (a temporary table of his own) takes the writes back when
//! he commits: ids that were dropped since the start are remembered, as intervals, for that.
//!
//! Rejected: a record of the drop among the keys (a tombstone for a range, which every read would have to ask about).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::base::{FileNo, IndexId, SeqNo};
use crate::manifest::{FileEntry, VersionEdit};
use crate::sst::SstMeta;

/// A dropped index of which something may be left.
struct Dropped {
    /// The newest sequence number at the drop: nothing above it belongs to the index.
    at: SeqNo,
    /// Files of the version that have a share of it.
    files: usize,
}

/// What a file has of dropped indexes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Void {
    indexes: usize,
    /// Uncompressed.
    bytes: u64,
}

/// What is left of dropped indexes. A drop takes steps for the indexes that are dropped and the files that hold them, however
/// many other indexes these files have, dropped or not.
#[derive(Default)]
pub(crate) struct Remains {
    indexes: BTreeMap<IndexId, Dropped>,
    /// Files with shares of such.
    files: HashMap<FileNo, Void>,
    /// All commits up to this one are in files.
    flushed: SeqNo,
}

impl Remains {
    /// Those of these indexes, dropped at `at` or before, in a version with these files.
    pub fn new<'a>(
        dropped: impl IntoIterator<Item = IndexId>,
        at: SeqNo,
        flushed: SeqNo,
        files: impl IntoIterator<Item = &'a SstMeta>,
    ) -> Remains {
        let indexes = dropped.into_iter().map(|id| (id, Dropped { at, files: 0 })).collect();
        let mut remains = Remains { indexes, files: HashMap::new(), flushed };
        files.into_iter().for_each(|meta| remains.add(meta));
        remains
    }

    /// True if something of the index may be left.
    pub fn has(&self, index: IndexId) -> bool {
        self.indexes.contains_key(&index)
    }

    /// The files with keys of dropped indexes, and the uncompressed bytes of these.
    pub fn void_bytes(&self) -> HashMap<FileNo, u64> {
        self.files.iter().map(|(&no, void)| (no, void.bytes)).collect()
    }

    /// Counts a file that comes to the version.
    fn add(&mut self, meta: &SstMeta) {
        if self.indexes.is_empty() || !meta.is_shared() {
            return;
        }
        let mut void = Void::default();
        for share in meta.shares.iter() {
            if let Some(dropped) = self.indexes.get_mut(&share.index) {
                dropped.files += 1;
                void.indexes += 1;
                void.bytes += u64::from(share.raw_bytes);
            }
        }
        if void.indexes > 0 {
            self.files.insert(meta.no, void);
        }
    }

    /// Counts a file that leaves the version.
    fn remove(&mut self, meta: &SstMeta) {
        if self.files.remove(&meta.no).is_none() {
            return;
        }
        for index in meta.indexes() {
            if let Some(dropped) = self.indexes.get_mut(&index) {
                dropped.files -= 1;
            }
        }
    }

    /// The indexes of which nothing is left after an edit that removes these files.
    pub fn forgettable(&self, edit: &VersionEdit, removed: &[Arc<FileEntry>]) -> Vec<IndexId> {
        if self.indexes.is_empty() {
            return Vec::new();
        }
        let mut come: BTreeMap<IndexId, usize> = BTreeMap::new();
        let mut gone: BTreeMap<IndexId, usize> = BTreeMap::new();
        for meta in edit.added.iter().map(|(_, meta)| meta).filter(|meta| meta.is_shared()) {
            meta.indexes()
                .filter(|index| self.indexes.contains_key(index))
                .for_each(|index| *come.entry(index).or_default() += 1);
        }
        for meta in removed.iter().map(|file| &file.meta).filter(|meta| self.files.contains_key(&meta.no)) {
            meta.indexes()
                .filter(|index| self.indexes.contains_key(index))
                .for_each(|index| *gone.entry(index).or_default() += 1);
        }
        let flushed = edit.flushed_seq.unwrap_or(self.flushed);
        let count = |counts: &BTreeMap<IndexId, usize>, index| counts.get(&index).copied().unwrap_or(0);
        let nothing_left = |(index, dropped): &(IndexId, &Dropped)| {
            dropped.at <= flushed && dropped.files + count(&come, *index) == count(&gone, *index)
        };
        let ids = |found: &mut dyn Iterator<Item = (IndexId, &Dropped)>| {
            found.filter(nothing_left).map(|(id, _)| id).collect()
        };
        match edit.flushed_seq {
            Some(_) => ids(&mut self.indexes.iter().map(|(&id, dropped)| (id, dropped))),
            None => ids(&mut gone.keys().filter_map(|&id| Some((id, self.indexes.get(&id)?)))),
        }
    }

    /// Takes note of an edit that is in force and has removed these files.
    pub fn note(&mut self, edit: &VersionEdit, removed: &[Arc<FileEntry>]) {
        self.flushed = edit.flushed_seq.unwrap_or(self.flushed);
        removed.iter().for_each(|file| self.remove(&file.meta));
        edit.added.iter().for_each(|(_, meta)| self.add(meta));
        for index in &edit.undropped {
            self.indexes.remove(index);
        }
    }

    /// Those of `ids` that have not been dropped before.
    pub fn new_among(&self, ids: &BTreeSet<IndexId>) -> BTreeSet<IndexId> {
        ids.iter().copied().filter(|id| !self.indexes.contains_key(id)).collect()
    }

    /// True if a file has nothing left once these indexes, `new` ones, are dropped.
    pub fn is_void_without(&self, meta: &SstMeta, new: &BTreeSet<IndexId>) -> bool {
        if !meta.is_shared() {
            return new.contains(&meta.index) || self.indexes.contains_key(&meta.index);
        }
        let void = self.files.get(&meta.no).map_or(0, |void| void.indexes);
        void + new.iter().filter(|&&id| meta.holds(id)).count() == meta.shares.len()
    }

    /// Takes note that indexes were dropped at `at`. `touched` are the files that have keys of them; those for which `stays` is
    /// true are still in the version, since they have keys of other indexes.
    pub fn drop_indexes<'a>(
        &mut self,
        ids: &BTreeSet<IndexId>,
        at: SeqNo,
        touched: impl Iterator<Item = &'a SstMeta> + Clone,
        stays: impl Fn(&SstMeta) -> bool,
    ) {
        let new = self.new_among(ids);
        touched.clone().filter(|meta| !stays(meta)).for_each(|meta| self.remove(meta));
        for &id in ids {
            self.indexes.entry(id).or_insert(Dropped { at, files: 0 }).at = at;
        }
        for meta in touched.filter(|meta| stays(meta)) {
            for id in &new {
                let (Some(part), Some(dropped)) = (meta.part_of(*id), self.indexes.get_mut(id)) else { continue };
                dropped.files += 1;
                let void = self.files.entry(meta.no).or_default();
                void.indexes += 1;
                void.bytes += part.raw_bytes;
            }
        }
    }

    /// True if the file has nothing but keys of dropped indexes.
    pub fn is_void(&self, meta: &SstMeta) -> bool {
        !self.indexes.is_empty() && meta.indexes().all(|index| self.indexes.contains_key(&index))
    }
}

/// Adds an id to a set of intervals.
pub(crate) fn insert_id(set: &mut BTreeMap<u32, u32>, id: u32) {
    let before = set.range(..=id).next_back().map(|(&first, &last)| (first, last));
    let (first, mut last) = match before {
        Some((_, last)) if last >= id => return,
        Some((first, last)) if last + 1 == id => (first, id),
        _ => (id, id),
    };
    if let Some(after) = id.checked_add(1).and_then(|next| set.remove(&next)) {
        last = after;
    }
    set.insert(first, last);
}

#[cfg(test)]
mod tests {
    use super::{Dropped, Remains, insert_id};
    use crate::base::{FileNo, IndexId, SeqNo};
    use crate::manifest::{FileEntry, VersionEdit};
    use crate::sst::{Share, SstMeta};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    /// A version of files and what remains in them of dropped indexes.
    #[derive(Default)]
    struct World {
        files: BTreeMap<FileNo, Arc<FileEntry>>,
        remains: Remains,
    }

    fn ids(text: &str) -> BTreeSet<IndexId> {
        text.split(',').filter(|id| !id.is_empty()).map(|id| IndexId(id.parse().unwrap())).collect()
    }

    /// `no:index,index,..`, each index with 10 bytes for each unit of its number.
    fn meta(text: &str) -> SstMeta {
        let (no, indexes) = text.split_once(':').unwrap();
        let indexes: Vec<IndexId> = ids(indexes).into_iter().collect();
        let share = |&index: &IndexId| Share { index, entries: 1, tombstones: 0, raw_bytes: index.0 * 10 };
        let shares: Vec<Share> = indexes.iter().map(share).collect();
        SstMeta {
            no: FileNo(no.parse().unwrap()),
            index: indexes[0],
            file_bytes: 100,
            smallest: indexes[0].prefix().to_vec(),
            largest: indexes[indexes.len() - 1].prefix().to_vec(),
            min_seq: SeqNo(1),
            max_seq: SeqNo(2),
            entries: indexes.len() as u64,
            tombstones: 0,
            raw_bytes: 0,
            stamped: false,
            superseded: crate::sst::Superseded::default(),
            key: None,
            shares: if shares.len() > 1 { shares.into() } else { Arc::default() },
        }
    }

    impl World {
        /// Carries out a line of the test data and tells what came of it.
        fn run(&mut self, line: &str) -> String {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[0] {
                "drop" => {
                    let dropped = ids(words[1]);
                    let at = SeqNo(words[3].parse().unwrap());
                    let concerned = |file: &&Arc<FileEntry>| file.meta.indexes().any(|id| dropped.contains(&id));
                    let touched: Vec<Arc<FileEntry>> = self.files.values().filter(concerned).cloned().collect();
                    let new = self.remains.new_among(&dropped);
                    let goes = |meta: &SstMeta| self.remains.is_void_without(meta, &new);
                    let gone: BTreeSet<FileNo> =
                        touched.iter().map(|file| &file.meta).filter(|meta| goes(meta)).map(|meta| meta.no).collect();
                    let stays = |meta: &SstMeta| !gone.contains(&meta.no);
                    self.remains.drop_indexes(&dropped, at, touched.iter().map(|file| &file.meta), stays);
                    self.files.retain(|no, _| !gone.contains(no));
                    format!("gone {}", list(gone.iter().map(|no| no.0)))
                }
                "install" => {
                    let mut edit = VersionEdit::default();
                    let mut removed = Vec::new();
                    for word in &words[1..] {
                        if let Some(added) = word.strip_prefix('+') {
                            edit.added.push((0, meta(added)));
                        } else if let Some(gone) = word.strip_prefix('-') {
                            removed.extend(self.files.remove(&FileNo(gone.parse().unwrap())));
                        } else if let Some(seq) = word.strip_prefix("flushed=") {
                            edit.flushed_seq = Some(SeqNo(seq.parse().unwrap()));
                        }
                    }
                    let refused: Vec<u64> = (edit.added.iter())
                        .filter(|(_, meta)| self.remains.is_void(meta))
                        .map(|(_, meta)| meta.no.0)
                        .collect();
                    edit.added.retain(|(_, meta)| !refused.contains(&meta.no.0));
                    edit.undropped = self.remains.forgettable(&edit, &removed);
                    self.remains.note(&edit, &removed);
                    for (_, meta) in &edit.added {
                        self.files.insert(meta.no, Arc::new(FileEntry::new(meta.clone(), Arc::default())));
                    }
                    let forgotten = list(edit.undropped.iter().map(|id| id.0.into()));
                    format!("refused {}, forgets {forgotten}", list(refused.into_iter()))
                }
                "show" => {
                    let dropped =
                        self.remains.indexes.iter().map(|(id, dropped)| format!("{}x{}", id.0, dropped.files));
                    let mut void: Vec<_> = self.remains.files.iter().map(|(no, void)| (no.0, void.bytes)).collect();
                    void.sort_unstable();
                    let void: Vec<String> = void.iter().map(|(no, bytes)| format!("{no}={bytes}")).collect();
                    format!("{} in {}", dropped.collect::<Vec<_>>().join(" "), void.join(" "))
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    fn list(numbers: impl Iterator<Item = u64>) -> String {
        format!("[{}]", numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(","))
    }

    /// What is counted in the end is what a store counts that is opened on the same files.
    #[test]
    fn remains_of_dropped_indexes_follow_the_text() {
        let mut world = World::default();
        let mut checked = 0;
        for (number, line) in include_str!("../testdata/remains.txt").lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                world = World::default();
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (command, want) = line.split_once("->").expect("command -> answer");
            assert_eq!(world.run(command).trim(), want.trim(), "line {}: {command}", number + 1);
            let indexes = world.remains.indexes.iter().map(|(&id, dropped)| (id, Dropped { at: dropped.at, files: 0 }));
            let mut opened = Remains { indexes: indexes.collect(), ..Remains::default() };
            world.files.values().for_each(|file| opened.add(&file.meta));
            assert_eq!(opened.files, world.remains.files, "line {}", number + 1);
            let counts = |remains: &Remains| remains.indexes.values().map(|dropped| dropped.files).collect::<Vec<_>>();
            assert_eq!(counts(&opened), counts(&world.remains), "line {}", number + 1);
            checked += 1;
        }
        assert!(checked > 20, "{checked}");
    }

    #[test]
    fn ids_that_follow_each_other_are_one_interval() {
        let mut set = BTreeMap::new();
        for id in [7, 5, 9, 6, 6, 20, 8, u32::MAX, u32::MAX - 1, 19] {
            insert_id(&mut set, id);
        }
        assert_eq!(set, BTreeMap::from([(5, 9), (19, 20), (u32::MAX - 1, u32::MAX)]));
    }
}
