//! The way of a read: memtables newest first, level 0 newest first, then one file per level.
//!
//! The first version at or below the read point is the answer, since every place is newer than the places after it for
//! any one key.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::value::{DeferredValue, LargeValue, ValueOut};
use crate::base::{IndexId, Kind, Result, SeqNo};
use crate::iter::{LevelIter, MergeIter, OrderHead, SortedRun, VersionIter};
use crate::manifest::{FileEntry, find_in};
use crate::mem::{Lookup, MemIter, MemTable};
use crate::renewal::Moment;
use crate::sources::{Layer, Run};
use crate::sst::{IterMemory, PinnedValue, ReadHints, SstIter, key_hash};
use crate::sst_files::SstFiles;
use crate::state::{Mem, ReadState};
use crate::tree::Tree;
use crate::value::Value;
use crate::{inventory, sources, spill};

/// Takes the version that a point read has come to, a value or a tombstone; true if it is a value.
pub(crate) trait Sink {
    fn in_memtable(&mut self, kind: Kind, value: &[u8], table: &Arc<MemTable>) -> bool;
    fn in_block(&mut self, kind: Kind, value: PinnedValue) -> bool;
}

impl<O: ValueOut> Sink for O {
    #[inline]
    fn in_memtable(&mut self, kind: Kind, value: &[u8], _: &Arc<MemTable>) -> bool {
        deliver(kind, value, self)
    }
    #[inline]
    fn in_block(&mut self, kind: Kind, value: PinnedValue) -> bool {
        deliver_pinned(kind, value, self)
    }
}

/// Takes the value with what it lies in, uncopied.
impl Sink for Pin {
    fn in_memtable(&mut self, kind: Kind, value: &[u8], table: &Arc<MemTable>) -> bool {
        self.0 = (kind == Kind::Put).then(|| Value::in_memtable(value, table));
        self.0.is_some()
    }
    fn in_block(&mut self, kind: Kind, value: PinnedValue) -> bool {
        self.0 = (kind == Kind::Put).then(|| Value::in_block(value));
        self.0.is_some()
    }
}

/// What an uncopied read has found.
#[derive(Default)]
pub(crate) struct Pin(pub Option<Value>);

/// Point read without a copy; see `Snapshot::get`.
pub(crate) fn pin(tree: &Tree, key: &[u8], read: SeqNo) -> Result<Option<Value>> {
    let mut pin = Pin::default();
    get(tree, key, read, &mut pin)?;
    Ok(pin.0)
}

/// Point read; see `Txn::get`.
pub(crate) fn get(tree: &Tree, key: &[u8], read: SeqNo, out: &mut impl Sink) -> Result<bool> {
    if read == SeqNo::MAX {
        let newest = tree.read_point();
        return get_pinned(tree, key, newest.seq(), out);
    }
    get_pinned(tree, key, read, out)
}

fn get_pinned(tree: &Tree, key: &[u8], read: SeqNo, out: &mut impl Sink) -> Result<bool> {
    let state = tree.states.load();
    get_in(&tree.ssts, &state, key, read, out)
}

/// Point read in a state that the caller holds.
pub(crate) fn get_in(ssts: &SstFiles, state: &ReadState, key: &[u8], read: SeqNo, out: &mut impl Sink) -> Result<bool> {
    let lookup = Lookup::new(key);
    for mem in state.memtables() {
        mem.table.prepare(&lookup);
    }
    // In the order of `ReadState::look_up`, whose call-back would cost a twentieth of the instructions here.
    if let Some((_, kind, value)) = state.active.table.look_up(&lookup, read) {
        return Ok(out.in_memtable(kind, value, &state.active.table));
    }
    for sealed in &state.sealed {
        if let Some(file) = find_in(&sealed.files, key) {
            if let Some((_, kind, value)) = ssts.reader(file)?.get(key, read)? {
                return Ok(out.in_block(kind, value));
            }
        }
        if let Some((_, kind, value)) = sealed.mem.table.look_up(&lookup, read) {
            return Ok(out.in_memtable(kind, value, &sealed.mem.table));
        }
    }
    let mut found = None;
    let hash = key_hash(key);
    state.version.visit(key, |file| {
        let hit = ssts.reader(file)?.get_hashed(key, hash, read)?;
        let done = hit.is_some();
        found = hit;
        Ok(done)
    })?;
    Ok(match found {
        Some((_, kind, value)) => out.in_block(kind, value),
        None => false,
    })
}

/// See `Engine::changed_since`. Looks only into what has versions above `read`: mostly memtables.
pub(crate) fn changed_since(tree: &Tree, key: &[u8], read: SeqNo) -> Result<bool> {
    let state = tree.states.load();
    let lookup = Lookup::new(key);
    let newest = |mem: &Mem| mem.table.look_up(&lookup, SeqNo::MAX).map(|(seq, ..)| seq > read);
    let changed = state.look_up(key, |place| match place {
        Layer::Active(mem) => Ok(newest(mem)),
        // Neither it nor what comes after it.
        Layer::Sealed(mem) if mem.last_seq() <= read => Ok(Some(false)),
        Layer::Sealed(mem) => Ok(newest(mem)),
        Layer::File(file) if file.meta.max_seq <= read => Ok(None),
        Layer::File(file) => Ok(tree.ssts.reader(file)?.get(key, SeqNo::MAX)?.map(|(seq, ..)| seq > read)),
    })?;
    Ok(changed.unwrap_or(false))
}

/// See `Engine::is_untouched`. In level 0 numbers stay; below, a merge may have taken away what a version's number was.
pub(crate) fn is_untouched(tree: &Tree, index: IndexId, since: Moment) -> Result<bool> {
    /// Versions in a memtable that are looked at.
    const LOOKED_AT: u32 = 16 << 10;
    let state = tree.states.load();
    let waiting = state.sealed.iter().flat_map(|sealed| sealed.files.iter()).map(|file| (0, file));
    for (level, file) in state.version.holding(index).chain(waiting) {
        let meta = &file.meta;
        if meta.holds(index) && (meta.max_seq > since.seq || (level > 0 && meta.no > since.file)) {
            return Ok(false);
        }
    }
    let sealed = state.sealed.iter().map(|sealed| &sealed.mem).filter(|mem| mem.last_seq() > since.seq);
    for mem in sealed.chain([&state.active]) {
        let mut versions = mem.table.iter();
        versions.seek_ge(&index.prefix())?;
        let mut looked_at = 0;
        while versions.valid() && IndexId::of(versions.key()) == index {
            looked_at += 1;
            if versions.seq() > since.seq || looked_at > LOOKED_AT {
                return Ok(false);
            }
            versions.next()?;
        }
    }
    Ok(true)
}

/// Hands out a value that was found; true if there is one.
#[inline]
pub(crate) fn deliver(kind: Kind, value: &[u8], out: &mut impl ValueOut) -> bool {
    match kind {
        Kind::Put => out.copy(value),
        Kind::Delete => out.clear(),
    }
    kind == Kind::Put
}

/// As `deliver`, without a copy of what is large.
pub(crate) fn deliver_pinned(kind: Kind, value: PinnedValue, out: &mut impl ValueOut) -> bool {
    match value.large() {
        Some(large) if kind == Kind::Put => out.hold(large),
        _ => return deliver(kind, &value, out),
    }
    true
}

/// One source of a cursor's merge. An enum rather than a box: the steps of a scan are calls that the compiler sees.
pub(crate) enum Source {
    Mem(MemIter),
    Sst(SstIter),
    Level(LevelIter<Files>),
    /// A run of the transaction's own.
    Own(Box<LevelIter<spill::Files<spill::Newest>>>),
}

impl Source {
    /// Ends the source; what it had grown is for another one.
    pub fn into_memory(self) -> Option<IterMemory> {
        match self {
            Source::Sst(it) => Some(it.into_memory()),
            Source::Level(it) => {
                let (files, open) = it.into_parts();
                Some(open.map_or(files.memory, SstIter::into_memory))
            }
            Source::Mem(_) | Source::Own(_) => None,
        }
    }
}

macro_rules! forward {
    ($self:ident, $it:ident => $call:expr) => {
        match $self {
            Source::Mem($it) => $call,
            Source::Sst($it) => $call,
            Source::Level($it) => $call,
            Source::Own($it) => $call,
        }
    };
}

/// What asks the source about where it stands.
macro_rules! forward_reads {
    ($($name:ident: $what:ty),*) => { $(
        #[inline]
        fn $name(&self) -> $what {
            forward!(self, it => it.$name())
        }
    )* };
}

/// What moves the source by one.
macro_rules! forward_steps {
    ($($name:ident)*) => { $(
        #[inline]
        fn $name(&mut self) -> Result<()> {
            forward!(self, it => it.$name())
        }
    )* };
}

impl VersionIter for Source {
    forward_reads!(valid: bool, key: &[u8], order_head: Option<OrderHead>, seq: SeqNo, kind: Kind, value: &[u8]);
    forward_reads!(large_value: Option<LargeValue>, is_deferred: bool, value_len: usize);
    forward_steps!(next next_key prev);

    fn load(&mut self) -> Result<()> {
        forward!(self, it => it.load())
    }
    fn deferred(&self) -> Option<DeferredValue> {
        forward!(self, it => it.deferred())
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        forward!(self, it => it.seek_ge(key))
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        forward!(self, it => it.seek_lt(key))
    }
    fn seek_first(&mut self) -> Result<()> {
        forward!(self, it => it.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        forward!(self, it => it.seek_last())
    }
}

/// The files of one sorted run within the cursor's bounds. By number: a cursor over a large table copies no list.
pub(crate) struct Files {
    ssts: Arc<SstFiles>,
    state: Arc<ReadState>,
    run: Run,
    files: Range<usize>,
    /// For the first file that is opened.
    memory: IterMemory,
}

impl Files {
    fn file(&self, at: usize) -> &FileEntry {
        &self.run.files(&self.state)[self.files.start + at]
    }
}

/// How cursors read.
const HINTS: ReadHints = ReadHints { fill_cache: true, read_ahead: 0, defer_large: true };

impl SortedRun for Files {
    type Iter = SstIter;

    fn len(&self) -> usize {
        self.files.len()
    }
    fn smallest(&self, at: usize) -> &[u8] {
        &self.file(at).meta.smallest
    }
    fn largest(&self, at: usize) -> &[u8] {
        &self.file(at).meta.largest
    }
    fn open(&mut self, at: usize, former: Option<SstIter>) -> Result<SstIter> {
        let memory = former.map_or_else(|| std::mem::take(&mut self.memory), SstIter::into_memory);
        Ok(self.ssts.reader(self.file(at))?.iter_in(memory, HINTS))
    }
}

/// What is committed, as a cursor reads it.
pub(crate) struct Reach<'a> {
    pub ssts: &'a Arc<SstFiles>,
    pub state: &'a Arc<ReadState>,
    /// Nothing newer is seen.
    pub read: SeqNo,
    pub keys: Range<&'a [u8]>,
}

/// Adds all sources that may hold keys within reach, newest first. They take their memory from `spare` while there is some.
pub(crate) fn add_sources(reach: &Reach<'_>, spare: &mut Vec<IterMemory>, out: &mut Vec<Source>) -> Result<()> {
    let Reach { ssts, state, read, keys } = reach;
    for source in state.sources(keys.clone()) {
        out.push(match source {
            sources::Source::Mem(mem) if mem.table.is_empty() => continue,
            sources::Source::Mem(mem) => Source::Mem(mem.table.iter_at(*read)),
            sources::Source::Files(run, files) => {
                let mut memory = spare.pop().unwrap_or_default();
                memory.end_at(keys.end);
                if files.len() == 1 {
                    Source::Sst(ssts.reader(&run.files(state)[files.start])?.iter_in(memory, HINTS))
                } else {
                    let files = Files { ssts: Arc::clone(ssts), state: Arc::clone(state), run, files, memory };
                    Source::Level(LevelIter::new(files, None, None))
                }
            }
        });
    }
    Ok(())
}

/// The file that the newest version of a key is stored in; `None` if it is in memory, which came out of the log.
pub(crate) fn file_of(tree: &Tree, key: &[u8]) -> Option<PathBuf> {
    let state = tree.states.pin();
    let found = state.look_up(key, |at| match at {
        Layer::Active(mem) | Layer::Sealed(mem) => Ok(mem.table.get(key, SeqNo::MAX).map(|_| None)),
        Layer::File(file) => {
            let found = tree.ssts.reader(file)?.get(key, SeqNo::MAX)?;
            Ok(found.map(|_| Some(tree.ssts.path(file.meta.no))))
        }
    });
    // A file that cannot be read is not to blame.
    found.unwrap_or_default().flatten()
}

/// Sizes of a key range.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RangeEstimate {
    /// Bytes in SSTs.
    pub bytes: u64,
    /// Versions in SSTs and memtables; tombstones and older versions included.
    pub entries: u64,
    /// Of these, tombstones, by their share in each file and memtable.
    pub tombstones: u64,
    /// Of `entries`, those in the sorted run or memtable that has most: the others may be versions of the same keys.
    pub largest_run: u64,
    /// `entries` are counted, and none are tombstones.
    pub exact: bool,
    /// A block in which the range begins or ends is not in memory: `entries` may be wrong by what it holds.
    pub is_blind: bool,
}

impl RangeEstimate {
    /// Adds `entries` of a source in which `tombstones` of `all` entries are such.
    fn add(&mut self, entries: u64, tombstones: u64, all: u64, exact: bool) {
        self.exact &= exact && (entries == 0 || tombstones == 0);
        self.entries += entries;
        if tombstones > 0 {
            self.tombstones += (u128::from(entries) * u128::from(tombstones) / u128::from(all.max(1))) as u64;
        }
    }
}

/// Estimates the content of `[lower, upper)` from index blocks and the towers of the memtables; reads no data block.
pub(crate) fn estimate(tree: &Tree, lower: &[u8], upper: &[u8]) -> Result<RangeEstimate> {
    let state = tree.states.load();
    let mut sum = RangeEstimate { exact: true, ..RangeEstimate::default() };
    for run in state.file_runs(lower, upper) {
        let before = sum.entries;
        for file in run {
            let meta = &file.meta;
            if lower <= meta.smallest.as_slice() && meta.largest.as_slice() < upper {
                sum.bytes += meta.file_bytes;
                sum.add(meta.entries, meta.tombstones, meta.entries, true);
                continue;
            }
            if meta.is_shared() {
                add_shared(&tree.ssts, file, lower, upper, &mut sum)?;
                continue;
            }
            let part = tree.ssts.reader(file)?.between(lower, upper)?;
            sum.bytes += part.bytes;
            sum.is_blind |= !part.exact;
            sum.add(part.entries, meta.tombstones, meta.entries, part.exact);
        }
        sum.largest_run = sum.largest_run.max(sum.entries - before);
    }
    for mem in state.memtables() {
        let alone = range_sample(mem.table.key_count(), lower, upper);
        // Where others have by far most of the keys, the memtable's part (new versions of these, often) need not be exact.
        let found =
            mem.table.estimate(lower, upper, |nodes, each| inventory::is_enough(alone, nodes, each, sum.entries));
        sum.add(found.keys, found.deleted, found.keys, found.exact);
        // A few keys that were looked at say little of which of two is the larger.
        if found.keys > sum.largest_run * if found.exact { 1 } else { SURELY_LARGER } {
            sum.largest_run = found.keys;
        }
    }
    Ok(sum)
}

/// Adds what a file of several indexes has in `[lower, upper)`: of indexes that lie in the range as a whole what their shares
/// say. In the rest the blocks are counted, and where these say nothing, since a small index is within one block that is
/// not in memory, half of its share is taken.
fn add_shared(ssts: &SstFiles, file: &FileEntry, lower: &[u8], upper: &[u8], sum: &mut RangeEstimate) -> Result<()> {
    let meta = &file.meta;
    let first =
        meta.shares.partition_point(|share| share.index.prefix().as_slice() < &lower[..lower.len().min(IndexId::LEN)]);
    for share in &meta.shares[first..] {
        let prefix = share.index.prefix();
        let Some(part) = meta.part_of(share.index).filter(|_| prefix.as_slice() < upper) else { break };
        let next = IndexId(share.index.0.saturating_add(1)).prefix();
        let (from, to) = (lower.max(prefix.as_slice()), upper.min(next.as_slice()));
        if from == prefix && to == next {
            sum.bytes += meta.bytes_of(part.raw_bytes);
            sum.add(part.entries, part.tombstones, part.entries, true);
            continue;
        }
        let found = ssts.reader(file)?.between(from, to)?;
        let entries =
            if found.exact || found.entries > 0 { found.entries.min(part.entries) } else { part.entries.div_ceil(2) };
        sum.bytes += found.bytes;
        sum.is_blind |= !found.exact;
        sum.add(entries, part.tombstones, part.entries, found.exact);
    }
    Ok(())
}

/// How many of a memtable's `keys` are looked at for the range `[lower, upper)` if nothing else has keys there.
fn range_sample(keys: u64, lower: &[u8], upper: &[u8]) -> u64 {
    let whole_index = lower.len() <= IndexId::LEN && upper.len() <= IndexId::LEN;
    if whole_index || keys <= SMALL_KEYS { inventory::INDEX_SAMPLE } else { RANGE_SAMPLE }
}

/// What an index holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IndexStats {
    /// Bytes on disk.
    pub bytes: u64,
    /// Versions in SSTs and memtables.
    pub entries: u64,
    /// Of these, tombstones.
    pub tombstones: u64,
    /// Entries of the largest place, a memtable or a sorted run, in which each key is one entry as a rule. The entries of the
    /// others may be of the same keys.
    pub largest_run: u64,
    /// Uncompressed key and value bytes in SSTs.
    pub raw_bytes: u64,
    /// Versions in memtables (part of `entries`).
    pub memtable_entries: u64,
    /// About their bytes, by the mean of all keys in memory.
    pub memtable_bytes: u64,
}

/// Keys of a memtable looked at for a range, each of them a cache miss: asked for before many statements. The estimate is
/// wrong by more than a third in one case of twenty.
const RANGE_SAMPLE: u64 = 32;
/// A memtable with so many times the keys of the largest run, by a sample of them, has more.
const SURELY_LARGER: u64 = 3;
/// A memtable of so many keys is in the processor's cache, and looking at one of them costs nanoseconds.
const SMALL_KEYS: u64 = 4096;

/// Sums up one index.
pub(crate) fn index_stats(tree: &Tree, id: IndexId) -> IndexStats {
    let state = tree.states.load();
    let (lower, upper) = (id.prefix(), IndexId(id.0 + 1).prefix());
    let mut stats = IndexStats::default();
    for run in state.file_runs(&lower, &upper) {
        let mut in_run = 0;
        for meta in run.iter().map(|file| &file.meta) {
            if let Some(part) = meta.part_of(id) {
                stats.bytes += meta.bytes_of(part.raw_bytes);
                stats.tombstones += part.tombstones;
                stats.raw_bytes += part.raw_bytes;
                in_run += part.entries;
            }
        }
        stats.entries += in_run;
        stats.largest_run = stats.largest_run.max(in_run);
    }
    for mem in state.memtables() {
        let held = inventory::in_memtable(&mem.table, id);
        stats.memtable_entries += held.keys;
        stats.memtable_bytes += held.bytes;
        stats.entries += held.keys;
        stats.tombstones += held.tombstones;
        stats.largest_run = stats.largest_run.max(held.keys);
    }
    stats
}

/// Rows and entries of a stretch of keys, counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RangeCount {
    /// The key that the count began with; empty if there is none.
    pub first: Vec<u8>,
    /// Keys whose newest committed version is a value.
    pub rows: u64,
    /// Versions in SSTs, and keys in memtables: what [`IndexStats`] and [`RangeEstimate`] call entries.
    pub entries: u64,
    /// The other end was reached.
    pub is_whole: bool,
}

/// A count ends in the middle of a key that has so many times the entries that were asked for.
const VERSIONS_MAX: u64 = 16;

/// See `Engine::count_range`.
pub(crate) fn count_range(tree: &Tree, lower: &[u8], upper: &[u8], forward: bool, most: u64) -> Result<RangeCount> {
    let point = tree.read_point();
    let state = tree.states.pin();
    let mut sources = Vec::new();
    let reach = Reach { ssts: &tree.ssts, state: &state, read: point.seq(), keys: lower..upper };
    add_sources(&reach, &mut Vec::new(), &mut sources)?;
    let mut versions = MergeIter::new(sources);
    if forward {
        versions.seek_ge(lower)?
    } else {
        versions.seek_lt(upper)?
    };
    let is_within = |key: &[u8]| if forward { key < upper } else { key >= lower };
    let mut counted = RangeCount::default();
    let mut key = Vec::new();
    let mut newest = None;
    // An old snapshot may keep any number of versions of one key.
    let versions_max = most.saturating_mul(VERSIONS_MAX);
    while versions.valid() && is_within(versions.key()) {
        if counted.entries >= versions_max {
            break;
        }
        if counted.entries == 0 || versions.key() != key.as_slice() {
            counted.rows += u64::from(newest.take() == Some(Kind::Put));
            if counted.entries >= most {
                return Ok(counted);
            }
            key.clear();
            key.extend_from_slice(versions.key());
            if counted.entries == 0 {
                counted.first.clone_from(&key);
            }
        }
        counted.entries += 1;
        // Forward the newest version of a key comes first, backward last.
        if versions.seq() <= point.seq() && (newest.is_none() || !forward) {
            newest = Some(versions.kind());
        }
        if forward {
            versions.next()?
        } else {
            versions.prev()?
        };
    }
    counted.rows += u64::from(newest == Some(Kind::Put));
    counted.is_whole = counted.entries < versions_max;
    Ok(counted)
}
