//! The whole way of data in memory: writes, memtables, flush, concurrent compactions; every read point sees the model.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::gc::VersionGc;
use super::manual::{Manual, Waste, manual};
use super::merge::{
    Merge, MergeEnv, MergeResult, MetaRun, OutputPlan, Progress, SstRun, SstSource, merge, merge_of_files,
};
use super::pick::{Action, CompactionJob, LEVELS, PickInput, PickOptions, Reason, Shape, pick, scores};
use super::testing::sublevels;
use crate::base::{Error, FileNo, IndexId, Kind, Result, SeqNo};
use crate::crypt::testing::ring;
use crate::flush::flush;
use crate::io::{Disk, PosixDisk};
use crate::iter::testing::{Entry, VecIter};
use crate::iter::{LevelIter, MergeIter, VersionIter, VisibleIter};
use crate::mem::MemTable;
use crate::sst::BlockCache;
use crate::sst::{Compression, Prepopulate, ReadHints, Sst, SstMeta, SstOptions, key_hash};

#[derive(Clone)]
struct Opened(Arc<Sst>);

impl SstSource for Opened {
    fn meta(&self) -> &SstMeta {
        self.0.meta()
    }
    fn sst(&self) -> Result<Arc<Sst>> {
        Ok(self.0.clone())
    }
}

fn key(index: u32, row: u8) -> Vec<u8> {
    [&IndexId(index).prefix()[..], b"row", &[row]].concat()
}

/// Bytes that do not compress, so that files grow as meant.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// A directory for SSTs, with numbers to give out.
struct Place {
    dir: tempfile::TempDir,
    disk: Arc<dyn Disk>,
    cache: Arc<BlockCache>,
    next: AtomicU64,
    cancel_after: Mutex<Option<u32>>,
    dropped: BTreeSet<u32>,
    /// Under which key an index is encrypted.
    key_of: fn(IndexId) -> Option<u32>,
    /// What the merges said that they had added to the store, file by file.
    added: Mutex<Vec<u64>>,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
            disk: Arc::new(PosixDisk::default()),
            cache: BlockCache::new(1 << 20),
            next: AtomicU64::new(1),
            cancel_after: Mutex::default(),
            dropped: BTreeSet::new(),
            key_of: |_| None,
            added: Mutex::default(),
        }
    }

    fn path(&self, no: FileNo) -> PathBuf {
        self.dir.path().join(format!("{:06}.sst", no.0))
    }

    fn with_env<T>(
        &self,
        compression: Compression,
        excludes: &(dyn Fn(&[u8]) -> bool + Sync),
        work: impl FnOnce(&MergeEnv<'_>) -> T,
    ) -> T {
        work(&MergeEnv {
            excludes: Arc::new(excludes),
            disk: self.disk.clone(),
            path_of: Arc::new(|no| self.path(no)),
            next_file: Arc::new(|| FileNo(self.next.fetch_add(1, Ordering::Relaxed) + 1)),
            is_dropped: Arc::new(|index| self.dropped.contains(&index.0)),
            sst_options: Arc::new(move |index| SstOptions {
                compression,
                key: (self.key_of)(index),
                ..SstOptions::default()
            }),
            block_bytes: Arc::new(|added| {
                self.added.lock().push(added);
                1024
            }),
            rule_of: Arc::new(|_| None),
            dictionaries: Arc::default(),
            require_dictionaries: Arc::new(|| Ok(())),
            keys: ring(),
            ahead_bytes: 1 << 20,
            buffer_bytes: Arc::default(),
            prepopulate: Prepopulate { cache: self.cache.clone(), residence: Arc::new(|_| None) },
            tick: Arc::new(|| match &mut *self.cancel_after.lock() {
                Some(0) => Err(Error::Interrupted),
                Some(left) => {
                    *left -= 1;
                    Ok(())
                }
                None => Ok(()),
            }),
        })
    }

    fn open(&self, meta: &SstMeta) -> Opened {
        let sst = Sst::open(&self.disk, &self.path(meta.no), meta.no, self.cache.clone(), &ring()).unwrap();
        assert_eq!(sst.meta(), meta);
        sst.verify().unwrap();
        Opened(sst)
    }

    fn files(&self) -> usize {
        self.disk.list(self.dir.path()).unwrap().len()
    }
}

const TARGET: u64 = 16 << 10;

struct Store {
    place: Place,
    options: PickOptions,
    active: Arc<MemTable>,
    /// Newest first.
    sealed: Vec<Arc<MemTable>>,
    /// Oldest first.
    l0: Vec<Opened>,
    levels: [Vec<Opened>; LEVELS],
    running: Vec<(CompactionJob, MergeResult)>,
    seq: u64,
    snapshots: Vec<u64>,
    /// All there ever was: per key the versions.
    model: BTreeMap<Vec<u8>, BTreeMap<u64, Option<Vec<u8>>>>,
    reasons: HashSet<&'static str>,
}

impl Store {
    fn new() -> Store {
        Store {
            place: Place::new(),
            options: PickOptions {
                l0_trigger: 2,
                base_bytes: 48 << 10,
                multiplier: 3,
                target_file_bytes: TARGET,
                max_job_bytes: 128 << 10,
                intra_l0_min: 2,
                ..PickOptions::default()
            },
            active: MemTable::new(64 << 10),
            sealed: Vec::new(),
            l0: Vec::new(),
            levels: Default::default(),
            running: Vec::new(),
            seq: 0,
            snapshots: Vec::new(),
            model: BTreeMap::new(),
            reasons: HashSet::new(),
        }
    }

    fn write(&mut self, index: u32, row: u8, len: Option<usize>) {
        if self.place.dropped.contains(&index) {
            return;
        }
        self.seq += 1;
        let key = key(index, row);
        let value = len.map(|len| noise(self.seq, len));
        let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
        self.active.insert(&key, SeqNo(self.seq), kind, value.as_deref().unwrap_or_default());
        self.model.entry(key).or_default().insert(self.seq, value);
    }

    fn version_gc(&self) -> VersionGc {
        let points: Vec<SeqNo> = self.snapshots.iter().map(|s| SeqNo(*s)).collect();
        VersionGc::new(&points, SeqNo(self.seq))
    }

    fn seal(&mut self) {
        let full = std::mem::replace(&mut self.active, MemTable::new(64 << 10));
        self.sealed.insert(0, full);
    }

    fn sublevels(&self) -> Vec<Vec<&SstMeta>> {
        sublevels(self.l0.iter().map(|file| file.meta()))
    }

    fn shape(&self) -> Shape<'_> {
        Shape {
            sublevels: self.sublevels(),
            levels: std::array::from_fn(|i| self.levels[i].iter().map(|file| file.meta()).collect()),
        }
    }

    /// What the filters of these files know of a key.
    fn excluded<'f>(files: impl IntoIterator<Item = &'f Opened>, key: &[u8]) -> bool {
        files.into_iter().all(|file| {
            let meta = file.meta();
            let outside = key < meta.smallest.as_slice() || meta.largest.as_slice() < key;
            outside || file.0.excludes(key, key_hash(key), || true).unwrap()
        })
    }

    fn flush(&mut self) {
        let base: Vec<&SstMeta> = self.levels.iter().flatten().map(|file| file.meta()).collect();
        let first_level = self.levels.iter().find(|level| !level.is_empty());
        let base = if first_level.is_some() { &base[..first_level.map_or(0, Vec::len)] } else { &[] };
        let shape = self.shape();
        let below: Vec<&[&SstMeta]> = shape.sublevels.iter().chain(&shape.levels[1..]).map(Vec::as_slice).collect();
        let excludes = |key: &[u8]| Store::excluded(self.l0.iter().chain(self.levels.iter().flatten()), key);
        let result = self
            .place
            .with_env(Compression::Lz4, &excludes, |env| {
                flush(&self.sealed, self.version_gc(), TARGET, base, &below, env)
            })
            .unwrap();
        assert!(result.outputs.iter().all(|meta| meta.min_seq > SeqNo::ZERO), "numbers stay in level 0");
        if result.stats.tombstones_dropped > 0 {
            self.reasons.insert("came and went");
        }
        let seqs: u64 = self.sealed.iter().map(|m| m.version_count()).sum();
        assert!(result.stats.entries_in <= seqs);
        self.sealed.clear();
        for meta in &result.outputs {
            self.l0.push(self.place.open(meta));
        }
        self.l0.sort_by_key(|file| file.meta().max_seq);
    }

    fn oldest_read(&self) -> SeqNo {
        SeqNo(self.snapshots.iter().min().copied().unwrap_or(self.seq))
    }

    fn start_job(&mut self) -> bool {
        let running: Vec<&CompactionJob> = self.running.iter().map(|(job, _)| job).collect();
        let shape = self.shape();
        let input = PickInput {
            shape: &shape,
            running: &running,
            oldest_read: self.oldest_read(),
            is_dropped: &|index| self.place.dropped.contains(&index.0),
            void_bytes: &|_| 0,
            is_quarantined: &|_| false,
            ahead_of: None,
        };
        let Some(job) = pick(&input, &self.options) else { return false };
        self.start(job);
        true
    }

    /// Carries out a job on the files of now; its outputs wait to be installed.
    fn start(&mut self, job: CompactionJob) {
        let shape = self.shape();
        let mut result = MergeResult::default();
        if job.action == Action::Merge {
            let wanted: HashSet<FileNo> = job.files().collect();
            let files: Vec<Opened> = self
                .l0
                .iter()
                .chain(self.levels.iter().flatten())
                .filter(|file| wanted.contains(&file.meta().no))
                .cloned()
                .collect();
            assert_eq!(files.len(), wanted.len());
            let below = shape.levels[usize::from(job.output_level) + 1..].iter();
            let below: Vec<MetaRun<'_>> = below.map(|run| MetaRun::Listed(run)).collect();
            let plan = if job.output_level == 0 {
                OutputPlan::for_l0(TARGET, &[], None)
            } else {
                OutputPlan::for_level(TARGET, below)
            };
            let plan = plan.within(job.ranges.clone());
            let excludes =
                |key: &[u8]| Store::excluded(self.levels[usize::from(job.output_level) + 1..].iter().flatten(), key);
            let merge = |env: &MergeEnv<'_>| {
                let mut merge = merge_of_files(files, self.version_gc(), &plan, env);
                loop {
                    if let Progress::Done(result) = merge.run_slice().unwrap() {
                        return result;
                    }
                }
            };
            result = self.place.with_env(Compression::Zstd, &excludes, merge);
            for meta in &result.outputs {
                let inside = job.ranges.iter().any(|(low, high)| *low <= meta.smallest && meta.largest <= *high);
                assert!(inside, "outputs within the announced ranges: {job:?} {meta:?}");
            }
            let stats = result.stats;
            assert!(stats.entries_in == stats.entries_out + stats.puts_dropped + stats.tombstones_dropped);
        }
        self.reasons.insert(match (job.action, job.reason) {
            (Action::Move, _) => "move",
            (_, Reason::L0) => "l0",
            (_, Reason::IntraL0) => "intra",
            (_, Reason::Size) => "size",
            (_, Reason::Garbage) => "garbage",
            (_, Reason::Dropped) => "dropped",
            (_, Reason::Manual) => "manual",
        });
        self.running.push((job, result));
    }

    /// Merges everything into the last level.
    fn compact_all(&mut self) {
        let newest =
            self.l0.iter().chain(self.levels.iter().flatten()).map(|file| file.meta().no).max().unwrap_or_default();
        loop {
            let running: Vec<&CompactionJob> = self.running.iter().map(|(job, _)| job).collect();
            let waste = Waste { void_bytes: &|_| 0, oldest_read: self.oldest_read(), newest };
            match manual(&self.shape(), &running, &waste, (&IndexId(0).prefix(), &IndexId(u32::MAX).prefix())) {
                Manual::Done => return,
                Manual::Blocked => self.install(0),
                Manual::Job(job) => self.start(job),
            }
        }
    }

    fn install(&mut self, at: usize) {
        let (job, result) = self.running.swap_remove(at);
        let taken: HashSet<FileNo> = job.files().collect();
        let mut moved = Vec::new();
        for run in std::iter::once(&mut self.l0).chain(&mut self.levels) {
            run.retain(|file| {
                let stays = !taken.contains(&file.meta().no);
                if !stays && job.action == Action::Move {
                    moved.push(file.clone());
                }
                stays
            });
        }
        moved.extend(result.outputs.iter().map(|meta| self.place.open(meta)));
        let level = usize::from(job.output_level);
        if level == 0 {
            self.l0.extend(moved);
            self.l0.sort_by_key(|file| file.meta().max_seq);
        } else {
            self.levels[level].extend(moved);
            self.levels[level].sort_by(|a, b| a.meta().smallest.cmp(&b.meta().smallest));
            let files = &self.levels[level];
            assert!(
                files.windows(2).all(|pair| pair[0].meta().largest < pair[1].meta().smallest),
                "overlap in {level}"
            );
        }
    }

    fn scan(
        &self,
        read: u64,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> VisibleIter<MergeIter<Box<dyn VersionIter>>> {
        let mut sources: Vec<Box<dyn VersionIter>> = vec![Box::new(self.active.iter())];
        sources.extend(self.sealed.iter().map(|m| Box::new(m.iter()) as Box<dyn VersionIter>));
        sources.extend(self.l0.iter().rev().map(|f| Box::new(f.0.iter(ReadHints::default())) as Box<dyn VersionIter>));
        for level in &self.levels {
            let run = SstRun { files: level.clone(), hints: ReadHints::default() };
            let level = LevelIter::new(run, lower, upper);
            if !level.is_empty() {
                sources.push(Box::new(level));
            }
        }
        VisibleIter::new(MergeIter::new(sources), SeqNo(read), lower, upper)
    }

    /// A look-up as the engine does it: the first source that knows the key decides.
    fn get(&self, key: &[u8], read: u64) -> Option<Vec<u8>> {
        let read = SeqNo(read);
        for memtable in std::iter::once(&self.active).chain(&self.sealed) {
            if let Some((_, kind, value)) = memtable.get(key, read) {
                return (kind == Kind::Put).then(|| value.to_vec());
            }
        }
        for file in self.l0.iter().rev().chain(self.levels.iter().flatten()) {
            if file.meta().smallest.as_slice() <= key && key <= file.meta().largest.as_slice() {
                if let Some((_, kind, value)) = file.0.get(key, read).unwrap() {
                    return (kind == Kind::Put).then(|| value.to_vec());
                }
            }
        }
        None
    }

    fn check(&self) {
        for read in self.snapshots.iter().copied().chain([self.seq]) {
            let live = |key: &[u8]| !self.place.dropped.contains(&IndexId::of(key).0);
            let expected: Vec<(&[u8], &[u8])> = self
                .model
                .iter()
                .filter(|(key, _)| live(key))
                .filter_map(|(key, versions)| {
                    let value = versions.range(..=read).next_back()?.1.as_deref()?;
                    Some((key.as_slice(), value))
                })
                .collect();
            for index in 1..4u32 {
                if self.place.dropped.contains(&index) {
                    continue;
                }
                let (lower, upper) = (IndexId(index).prefix(), IndexId(index + 1).prefix());
                let rows: Vec<_> = expected.iter().filter(|(key, _)| IndexId::of(key).0 == index).collect();
                let mut iter = self.scan(read, Some(&lower), Some(&upper));
                iter.seek_first().unwrap();
                for (key, value) in &rows {
                    assert!(iter.valid(), "row {key:?} at {read}");
                    assert_eq!((iter.key(), iter.value()), (*key, *value), "at {read}");
                    iter.next().unwrap();
                }
                assert!(!iter.valid());
                iter.seek_last().unwrap();
                for (key, value) in rows.iter().rev() {
                    assert!(iter.valid(), "row {key:?} at {read}");
                    assert_eq!((iter.key(), iter.value()), (*key, *value), "backward at {read}");
                    iter.prev().unwrap();
                }
                assert!(!iter.valid());
            }
            for (key, versions) in self.model.iter().filter(|(key, _)| live(key)) {
                let value = versions.range(..=read).next_back().and_then(|(_, value)| value.clone());
                assert_eq!(self.get(key, read), value, "get {key:?} at {read}");
            }
        }
    }

    fn finish(&mut self) {
        while !self.running.is_empty() {
            self.install(0);
        }
        self.seal();
        self.flush();
        let mut jobs = 0;
        while self.start_job() {
            self.install(0);
            jobs += 1;
            assert!(jobs < 500, "work ends");
        }
        let shape = self.shape();
        let input = PickInput {
            shape: &shape,
            running: &[],
            oldest_read: SeqNo(self.seq),
            is_dropped: &|_| false,
            void_bytes: &|_| 0,
            is_quarantined: &|_| false,
            ahead_of: None,
        };
        let quiet = scores(&input, &self.options);
        assert!(quiet.levels.iter().all(|score| *score < 1.0), "{quiet:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { index: u32, rows: Vec<u8>, len: usize },
    Delete { index: u32, rows: Vec<u8> },
    Snapshot,
    Release(prop::sample::Index),
    Seal,
    Flush,
    Start,
    Install(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let rows = || prop::collection::vec(0u8..90, 1..60);
    prop_oneof![
        6 => (1u32..4, rows(), 0usize..400).prop_map(|(index, rows, len)| Step::Write { index, rows, len }),
        2 => (1u32..4, rows()).prop_map(|(index, rows)| Step::Delete { index, rows }),
        2 => Just(Step::Snapshot),
        1 => any::<prop::sample::Index>().prop_map(Step::Release),
        2 => Just(Step::Seal),
        3 => Just(Step::Flush),
        5 => Just(Step::Start),
        5 => any::<prop::sample::Index>().prop_map(Step::Install),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_read_point_sees_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut store = Store::new();
        for step in steps {
            match step {
                Step::Write { index, rows, len } => rows.iter().for_each(|row| store.write(index, *row, Some(len))),
                Step::Delete { index, rows } => rows.iter().for_each(|row| store.write(index, *row, None)),
                Step::Snapshot if store.snapshots.len() < 4 => store.snapshots.push(store.seq),
                Step::Release(which) if !store.snapshots.is_empty() => {
                    let at = which.index(store.snapshots.len());
                    store.snapshots.remove(at);
                }
                Step::Seal => store.seal(),
                Step::Flush if !store.sealed.is_empty() => store.flush(),
                Step::Start if store.running.len() < 3 => { store.start_job(); }
                Step::Install(which) if !store.running.is_empty() => {
                    let at = which.index(store.running.len());
                    store.install(at);
                }
                _ => continue,
            }
            store.check();
        }
        store.finish();
        store.check();
        store.snapshots.clear();
        store.finish();
        store.check();
    }
}

#[test]
fn a_long_run_uses_every_kind_of_job_and_leaves_no_garbage() {
    let mut store = Store::new();
    for round in 0..60u64 {
        for i in 0..120u64 {
            let pick = noise(round * 1000 + i, 2);
            store.write(1 + u32::from(pick[0] % 3), pick[1] % 200, (pick[0] % 8 != 0).then_some(200));
        }
        if round % 20 == 10 {
            store.snapshots.push(store.seq);
        }
        store.seal();
        store.flush();
        while store.running.len() < 3 && store.start_job() {}
        if round % 3 == 0 {
            while !store.running.is_empty() {
                store.install(store.running.len() - 1);
            }
        }
        store.check();
    }
    store.finish();
    store.check();
    for index in 1..3 {
        for row in 0..=255 {
            if row % 4 != 0 {
                store.write(index, row, None);
            }
        }
    }
    store.snapshots.clear();
    store.finish();
    store.check();
    assert!(
        store.reasons.is_superset(&HashSet::from(["l0", "size", "garbage", "came and went"])),
        "{:?}",
        store.reasons
    );
    // Asked for, a compaction leaves one version of each row, in the last level, visible to all.
    store.write(1, 7, Some(10));
    store.seal();
    store.flush();
    store.start_job();
    store.compact_all();
    store.check();
    assert!(store.reasons.contains("manual") && store.l0.is_empty());
    assert!(store.levels[..LEVELS - 1].iter().all(Vec::is_empty));
    let rows = store.model.iter().filter(|(key, versions)| {
        IndexId::of(key).0 == 1 && versions.last_key_value().is_some_and(|(_, value)| value.is_some())
    });
    let files: Vec<&SstMeta> =
        store.levels[LEVELS - 1].iter().map(|file| file.meta()).filter(|meta| meta.index.0 == 1).collect();
    assert_eq!(files.iter().map(|meta| meta.entries).sum::<u64>(), rows.count() as u64);
    assert!(files.iter().all(|meta| meta.max_seq == SeqNo::ZERO));
    // Index 2 vanishes.
    store.place.dropped.insert(2);
    store.finish();
    store.check();
    assert!(store.reasons.contains("dropped"));
    let left = store.l0.iter().chain(store.levels.iter().flatten()).filter(|f| f.meta().index.0 == 2).count();
    assert_eq!(left, 0);
    // What snapshots once kept alive is gone, but for a tolerated share.
    for file in store.levels.iter().flatten() {
        assert!(file.meta().tombstones * 100 <= file.meta().entries * store.options.garbage_percent);
    }
}

fn versions(entries: &[(u32, u8, u64, Option<usize>)]) -> Vec<Entry> {
    entries
        .iter()
        .map(|(index, row, seq, len)| {
            let kind = if len.is_some() { Kind::Put } else { Kind::Delete };
            (key(*index, *row), SeqNo(*seq), kind, noise(*seq, len.unwrap_or(0)))
        })
        .collect()
}

fn merge_to_bottom(place: &Place, entries: Vec<Entry>, gc: VersionGc, guides: &[&SstMeta]) -> Result<MergeResult> {
    let plan = OutputPlan::for_level(TARGET, vec![MetaRun::Listed(guides)]);
    place.with_env(Compression::None, &|_| false, |env| merge(&mut VecIter::new(entries), gc, &plan, env))
}

#[test]
fn files_end_behind_large_indexes_and_at_size_but_never_within_a_key() {
    let place = Place::new();
    let mut entries = Vec::new();
    for row in 0..100 {
        // Ten versions of 400 bytes each, all above `visible`, so all are kept.
        for seq in 1..11 {
            entries.push((1, row, u64::from(row) * 10 + seq, Some(400)));
        }
    }
    entries.push((2, 0, 5000, Some(1)));
    entries.push((3, 0, 5001, Some(1)));
    let result = merge_to_bottom(&place, versions(&entries), VersionGc::new(&[], SeqNo::ZERO), &[]).unwrap();
    assert_eq!(result.stats.entries_out, 1002);
    let (ones, others): (Vec<_>, Vec<_>) = result.outputs.iter().partition(|meta| meta.index.0 == 1);
    assert!(ones.iter().all(|meta| !meta.is_shared()));
    assert_eq!(
        others.iter().map(|meta| meta.indexes().map(|index| index.0).collect()).collect::<Vec<Vec<_>>>(),
        [[2, 3]]
    );
    assert!(ones.len() > 10);
    for pair in ones.windows(2) {
        assert!(pair[0].largest < pair[1].smallest, "a key in two files");
        assert!((TARGET..TARGET * 2).contains(&pair[0].file_bytes), "{}", pair[0].file_bytes);
    }
    assert_eq!(place.files(), result.outputs.len());
}

/// A table that is loaded at once must not have large blocks throughout because the store was empty before.
#[test]
fn files_that_come_on_top_of_others_count_for_the_size_of_blocks() {
    let entries: Vec<_> = (0..200).map(|row| (1, row, 1 + u64::from(row), Some(400))).collect();
    let l0 = || OutputPlan::for_l0(TARGET, &[], None);
    for (plan, is_new) in [(l0(), true), (l0().in_place(), false), (OutputPlan::for_level(TARGET, Vec::new()), false)] {
        let place = Place::new();
        let result = place.with_env(Compression::None, &|_| false, |env| {
            merge(&mut VecIter::new(versions(&entries)), VersionGc::new(&[], SeqNo(1000)), &plan, env).unwrap()
        });
        assert!(result.outputs.len() > 3);
        let before = |at: usize| result.outputs[..at].iter().map(|file| file.file_bytes).sum();
        let added: Vec<u64> = (0..result.outputs.len()).map(|at| if is_new { before(at) } else { 0 }).collect();
        assert_eq!(*place.added.lock(), added);
    }
}

#[test]
fn files_end_where_files_of_the_next_level_end() {
    let place = Place::new();
    let entries: Vec<_> = (0..200).map(|row| (1, row, 1 + u64::from(row), Some(400))).collect();
    let guide = |low: u8, high: u8, bytes| SstMeta {
        no: FileNo(9),
        index: IndexId(1),
        file_bytes: bytes,
        smallest: key(1, low),
        largest: key(1, high),
        min_seq: SeqNo(0),
        max_seq: SeqNo(0),
        entries: 1,
        tombstones: 0,
        raw_bytes: 1,
        stamped: false,
        superseded: crate::sst::Superseded::default(),
        key: None,
        shares: Default::default(),
    };
    // About 40 rows make a file: 36 are more than three quarters, 70 less than two files; 100..=129 overlap too much.
    let guides =
        [guide(0, 35, 1), guide(36, 40, 1), guide(80, 99, 1), guide(100, 109, TARGET * 11), guide(110, 119, 1)];
    let guides: Vec<&SstMeta> = guides.iter().collect();
    let result = merge_to_bottom(&place, versions(&entries), VersionGc::new(&[], SeqNo(1000)), &guides).unwrap();
    let ends: Vec<u8> = result.outputs.iter().map(|meta| meta.largest[7]).collect();
    assert!(ends.contains(&35) && ends.contains(&109) && ends.contains(&199), "{ends:?}");
    assert!(!ends.contains(&40), "{ends:?}");
}

#[test]
fn the_bottom_is_found_key_by_key() {
    let place = Place::new();
    let entries =
        versions(&[(1, 1, 9, None), (1, 2, 8, None), (1, 2, 4, Some(3)), (1, 5, 7, None), (1, 6, 3, Some(3))]);
    let result = merge_to_bottom(
        &place,
        versions(&[(1, 2, 1, Some(1)), (1, 5, 1, Some(1))]),
        VersionGc::new(&[], SeqNo(1)),
        &[],
    )
    .unwrap();
    let below: Vec<&SstMeta> = result.outputs.iter().collect();
    assert_eq!((below.len(), below[0].max_seq), (1, SeqNo::ZERO));
    let result = merge_to_bottom(&place, entries, VersionGc::new(&[], SeqNo(9)), &below).unwrap();
    let mut iter = place.open(&result.outputs[0]).0.iter(ReadHints::default());
    let mut found = Vec::new();
    iter.seek_first().unwrap();
    while iter.valid() {
        found.push((iter.key()[7], iter.seq().0, iter.kind()));
        iter.next().unwrap();
    }
    // Row 1 lies outside of the file below and so does row 6; rows 2 and 5 are still there.
    assert_eq!(found, [(2, 8, Kind::Delete), (5, 7, Kind::Delete), (6, 0, Kind::Put)]);
    assert_eq!((result.stats.tombstones_dropped, result.stats.puts_dropped), (1, 1));
}

#[test]
fn what_came_and_went_in_memory_is_not_written_unless_a_file_may_hold_it() {
    let mut store = Store::new();
    // Rows 0, 10 and 20 are on disk; 20 was deleted there, which leaves its tombstone and what it hides.
    for row in [0, 10, 20] {
        store.write(1, row, Some(10));
    }
    store.seal();
    store.flush();
    store.write(1, 20, None);
    store.seal();
    store.flush();
    let entries = |store: &Store| store.l0.iter().map(|file| file.meta().entries).sum::<u64>();
    assert_eq!(entries(&store), 4);
    // Row 5 comes and goes, row 10 is replaced and goes, row 20 comes back and goes, row 7 goes and never was.
    for row in [5, 10, 20] {
        store.write(1, row, Some(10));
        store.write(1, row, None);
    }
    store.write(1, 7, None);
    store.seal();
    store.flush();
    assert_eq!(entries(&store), 6, "the tombstones of rows 10 and 20");
    store.check();
    // A snapshot between coming and going keeps both.
    store.write(1, 6, Some(10));
    store.snapshots.push(store.seq);
    store.write(1, 6, None);
    store.seal();
    store.flush();
    assert_eq!(entries(&store), 8);
    store.check();
}

#[test]
fn dropped_indexes_are_skipped_and_an_empty_result_is_no_file() {
    let mut place = Place::new();
    place.dropped.extend([2, u32::MAX]);
    let data =
        [(1, 1, 1, Some(9)), (2, 1, 2, Some(9)), (2, 2, 3, Some(9)), (3, 1, 4, Some(9)), (u32::MAX, 1, 5, Some(9))];
    let result = merge_to_bottom(&place, versions(&data), VersionGc::new(&[], SeqNo(9)), &[]).unwrap();
    assert_eq!(result.outputs.iter().flat_map(SstMeta::indexes).map(|index| index.0).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(result.stats.entries_in, 2);
    let before = place.files();
    let result = merge_to_bottom(&place, versions(&[(1, 1, 3, None)]), VersionGc::new(&[], SeqNo(9)), &[]).unwrap();
    assert!(result.outputs.is_empty());
    assert_eq!(place.files(), before);
}

#[test]
fn a_cancelled_merge_leaves_nothing_behind() {
    let place = Place::new();
    let entries: Vec<_> = (0..250).map(|row| (1, row, 1 + u64::from(row), Some(20_000))).collect();
    *place.cancel_after.lock() = Some(3);
    let result = merge_to_bottom(&place, versions(&entries), VersionGc::new(&[], SeqNo(1000)), &[]);
    assert!(matches!(result, Err(Error::Interrupted)));
    assert_eq!(place.files(), 0);
    *place.cancel_after.lock() = None;
    let result = merge_to_bottom(&place, versions(&entries), VersionGc::new(&[], SeqNo(1000)), &[]).unwrap();
    assert_eq!(place.files(), result.outputs.len());
}

/// Merges take turns slice by slice, each with its own files; one that is dropped half way takes its files along.
#[test]
fn merges_rest_between_their_slices() {
    const ROWS: u8 = 250;
    let place = Place::new();
    let entries = |index: u32, bytes: usize| -> Vec<Entry> {
        versions(&(0..ROWS).map(|row| (index, row, 1 + u64::from(row), Some(bytes))).collect::<Vec<_>>())
    };
    let gc = || VersionGc::new(&[], SeqNo(1000));
    let (plan, small) = (OutputPlan::for_level(TARGET, Vec::new()), OutputPlan::for_level(TARGET, Vec::new()));
    place.with_env(Compression::None, &|_| false, |env| {
        let mut inputs = [VecIter::new(entries(1, 20_000)), VecIter::new(entries(2, 20_000))];
        let mut urgent = VecIter::new(entries(3, 100));
        let [first, second] = &mut inputs;
        let mut merges = [Merge::new(first, gc(), &plan, env), Merge::new(second, gc(), &plan, env)];
        let mut slices = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            for (merge, slices) in merges.iter_mut().zip(&mut slices) {
                match merge.run_slice().unwrap() {
                    Progress::More(bytes) => slices.push(bytes),
                    Progress::Done(_) => panic!("five slices have to do"),
                }
            }
        }
        let files = place.files();
        assert!(files > 20, "{files}");
        // A small one comes first and is done within a slice.
        let Progress::Done(result) = Merge::new(&mut urgent, gc(), &small, env).run_slice().unwrap() else {
            panic!("more than a slice");
        };
        assert_eq!((result.stats.entries_in, place.files()), (u64::from(ROWS), files + result.outputs.len()));
        let urgent_files = result.outputs.len();
        let [mut first, second] = merges;
        drop(second);
        let result = loop {
            match first.run_slice().unwrap() {
                Progress::More(bytes) => slices[0].push(bytes),
                Progress::Done(result) => break result,
            }
        };
        assert_eq!(result.stats.entries_in, u64::from(ROWS));
        assert_eq!(place.files(), result.outputs.len() + urgent_files);
        let in_slices: u64 = slices[0].iter().sum();
        assert!(slices[0].len() == 4 && in_slices <= result.stats.bytes_in, "{slices:?}");
        assert!(slices.iter().flatten().all(|bytes| (1 << 20..(1 << 20) + 20_100).contains(bytes)), "{slices:?}");
        drop(first);
        assert_eq!(place.files(), result.outputs.len() + urgent_files, "what is done stays");
        for meta in &result.outputs {
            assert_eq!(place.open(meta).meta().index, IndexId(1));
        }
    });
}
