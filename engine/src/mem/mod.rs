//! Memtable: the newest versions, ordered, in memory.
//!
//! One node per user key with a chain of its versions, newest first ([`skiplist`]), in memory that is freed as a whole
//! ([`arena`]), with a hash index beside it for point reads and updates ([`index`]). Insertions run concurrently without
//! locks; there are no epochs: whoever reads holds the `Arc`.
//!
//! Invariant: when `insert` has returned, `get` and every iterator positioned afterwards find the version. A reader that
//! runs beside an insertion sees it or not; the commit pipeline publishes a sequence number only after its insertions
//! have returned, so a read point never covers a running one.
//!
//! Two writes under the same key and sequence number (one transaction writing a row twice) are allowed: the later hides
//! the earlier.

mod arena;
pub(crate) mod hash;
mod index;
mod node;
mod skiplist;

use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::arena::Arena;
pub use self::arena::ChunkPool;
use self::hash::hash_bytes;
use self::index::HashIndex;
pub(crate) use self::node::prefetch;
use self::node::{Node, Probe, Version};
use self::skiplist::{Path, SkipList};
use crate::base::{Kind, Result, SeqNo};
use crate::iter::VersionIter;

/// Memory of a typical key with one version, by which the hash index is sized. A wrong guess costs speed only.
const TYPICAL_KEY_BYTES: usize = 200;
/// Without a stated size, the index is laid out for this many chunks.
const TYPICAL_CHUNKS: usize = 8;

/// Versions of keys in memory, in internal order. See the module's description.
pub struct MemTable {
    list: SkipList,
    index: HashIndex<Node>,
    counts: Counts,
}

/// Written by every insertion: kept off the lines that readers need.
#[repr(align(64))]
#[derive(Default)]
struct Counts {
    keys: AtomicU64,
    versions: AtomicU64,
    tombstones: AtomicU64,
}

/// A key prepared for lookups in any number of memtables.
pub struct Lookup<'a> {
    hash: u64,
    probe: Probe<'a>,
}

impl<'a> Lookup<'a> {
    /// Of `key`.
    #[inline]
    pub fn new(key: &'a [u8]) -> Lookup<'a> {
        Lookup { hash: hash_bytes(key), probe: Probe::new(key) }
    }
}

/// How many keys lie between two others, about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeysBetween {
    /// Keys.
    pub keys: u64,
    /// Of these, keys whose newest version is a tombstone.
    pub deleted: u64,
    /// All of them were counted.
    pub exact: bool,
}

/// Remembers where the last insertion went; ascending batches get faster with it. Usable with any memtable at any time.
pub struct InsertHint(Path);

impl Default for InsertHint {
    fn default() -> Self {
        InsertHint(Path::new())
    }
}

impl MemTable {
    /// An empty memtable that takes memory in chunks of `arena_chunk_bytes`, of unknown final size.
    pub fn new(arena_chunk_bytes: usize) -> Arc<MemTable> {
        MemTable::with_capacity(arena_chunk_bytes, arena_chunk_bytes.saturating_mul(TYPICAL_CHUNKS))
    }

    /// An empty memtable meant to grow to about `expected_bytes`. About 5% of that is reserved for the hash index at
    /// once (untouched until used); growing further is slower, not wrong.
    pub fn with_capacity(arena_chunk_bytes: usize, expected_bytes: usize) -> Arc<MemTable> {
        MemTable::from_pool(&ChunkPool::new(arena_chunk_bytes, 0), expected_bytes)
    }

    /// As `with_capacity`, with memory from `pool`, to which it returns in the end. What a store should use.
    pub fn from_pool(pool: &Arc<ChunkPool>, expected_bytes: usize) -> Arc<MemTable> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(MemTable {
            list: SkipList::new(NEXT_ID.fetch_add(1, Ordering::Relaxed), Arena::new(pool.clone())),
            index: HashIndex::new(expected_bytes / TYPICAL_KEY_BYTES),
            counts: Counts::default(),
        })
    }

    /// Adds a version. Any thread, any order of sequence numbers.
    pub fn insert(&self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) {
        self.insert_hinted(&mut InsertHint::default(), key, seq, kind, value);
    }

    /// Adds a version, starting the search for a new key's place where `hint` was left by the previous insertion.
    pub fn insert_hinted(&self, hint: &mut InsertHint, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) {
        let hash = hash_bytes(key);
        self.index.prefetch(hash);
        let probe = Probe::new(key);
        // Where the hint decides, the index is only written to, and its line arrives meanwhile.
        let node = if self.list.is_new_at(&hint.0, &probe) { null() } else { self.find(hash, &probe) };
        if !node.is_null() {
            self.list.push(node, seq, kind, value);
        } else {
            let (node, linked) = self.list.insert(&mut hint.0, hash, &probe, seq, kind, value);
            // Also when another thread linked the node: it may not have come to this line yet.
            self.index.insert(hash, node);
            if linked {
                self.counts.keys.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.counts.versions.fetch_add(1, Ordering::Relaxed);
        if kind == Kind::Delete {
            self.counts.tombstones.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts to bring in what `get` or `insert` of `key` will touch first. Worthwhile a few keys ahead in a batch.
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        self.index.prefetch(hash_bytes(key));
    }

    #[inline]
    fn find(&self, hash: u64, probe: &Probe<'_>) -> *const Node {
        // SAFETY: the index holds linked nodes of this list only.
        self.index.find(hash, |node| unsafe { SkipList::is_equal(node, probe) })
    }

    /// As `prefetch`, for a lookup that follows.
    #[inline]
    pub fn prepare(&self, lookup: &Lookup<'_>) {
        self.index.prefetch(lookup.hash);
    }

    /// The newest version of `key` with a sequence number of at most `read`.
    #[inline]
    pub fn get<'a>(&'a self, key: &[u8], read: SeqNo) -> Option<(SeqNo, Kind, &'a [u8])> {
        self.look_up(&Lookup::new(key), read)
    }

    /// As `get`, of a key prepared once for several memtables.
    #[inline]
    pub fn look_up<'a>(&'a self, key: &Lookup<'_>, read: SeqNo) -> Option<(SeqNo, Kind, &'a [u8])> {
        let node = self.find(key.hash, &key.probe);
        if node.is_null() {
            return None;
        }
        // SAFETY: nodes and versions live as long as self.
        unsafe {
            let version = Node::visible(node, read);
            if version.is_null() { None } else { Some(((*version).seq(), (*version).kind(), Version::value(version))) }
        }
    }

    /// A cursor over all versions; keeps the memtable alive.
    pub fn iter(self: &Arc<Self>) -> MemIter {
        MemIter { table: self.clone(), node: null(), version: null(), read: None }
    }

    /// A cursor over the newest version of each key with a number of at most `read`, tombstones included: what a reader
    /// at `read` needs. A key that was overwritten a thousand times costs one step.
    pub fn iter_at(self: &Arc<Self>, read: SeqNo) -> MemIter {
        MemIter { read: Some(read), ..self.iter() }
    }

    /// Bytes of memory taken: arena chunks and hash index.
    pub fn bytes(&self) -> usize {
        self.arena_bytes() + self.index.bytes()
    }

    /// Bytes of the chunks that keys and values are in.
    pub fn arena_bytes(&self) -> usize {
        self.list.arena().bytes()
    }

    /// True until the first insertion.
    pub fn is_empty(&self) -> bool {
        self.list.first().is_null()
    }

    /// Number of distinct keys.
    pub fn key_count(&self) -> u64 {
        self.counts.keys.load(Ordering::Relaxed)
    }

    /// About how many keys lie in `[from, to)`, from a sample of them. `enough` hears how many keys a sample has, and how many each of
    /// them stands for; the error is about one in the root of the first. Costs a few times as many steps.
    pub fn estimate(&self, from: &[u8], to: &[u8], enough: impl Fn(u64, u64) -> bool) -> KeysBetween {
        if from >= to || self.is_empty() {
            return KeysBetween { exact: true, ..KeysBetween::default() };
        }
        let sample = self.list.sample(&Probe::new(from), &Probe::new(to), enough);
        let deleted = if self.tombstone_count() > 0 { self.list.deleted(&sample) } else { 0 };
        KeysBetween { keys: sample.keys(), deleted, exact: sample.is_exact() }
    }

    /// Number of insertions of tombstones.
    pub fn tombstone_count(&self) -> u64 {
        self.counts.tombstones.load(Ordering::Relaxed)
    }

    /// Number of insertions.
    pub fn version_count(&self) -> u64 {
        self.counts.versions.load(Ordering::Relaxed)
    }
}

/// Cursor over a [`MemTable`]. Insertions made meanwhile appear or not, but never disturb the order.
pub struct MemIter {
    table: Arc<MemTable>,
    /// Null when not positioned.
    node: *const Node,
    version: *const Version,
    /// Show one version per key: the newest at or below this.
    read: Option<SeqNo>,
}

// SAFETY: the pointers lead into the memtable that `table` keeps alive, which is Sync.
unsafe impl Send for MemIter {}

impl MemIter {
    /// To the first version shown of `node` or, if it has none, of the next key that has one.
    #[inline]
    fn settle_forward(&mut self, node: *const Node) {
        // SAFETY: `node` is null or a linked node of `table`, and so are its successors.
        unsafe { self.settle(node, |node| Node::newest(node), |_, node| SkipList::after(node)) }
    }

    /// From `node` in steps to one that has a version shown. Without a read point that is the one which `first` says.
    #[inline(always)]
    unsafe fn settle(
        &mut self,
        mut node: *const Node,
        first: impl Fn(*const Node) -> *const Version,
        step: impl Fn(&MemTable, *const Node) -> *const Node,
    ) {
        while !node.is_null() {
            self.version = match self.read {
                None => first(node),
                // SAFETY: given by the caller.
                Some(read) => unsafe { Node::visible(node, read) },
            };
            if !self.version.is_null() {
                break;
            }
            node = step(&self.table, node);
        }
        self.node = node;
    }

    /// To the last version shown of `node` or, if it has none, of the key before that has one.
    #[inline]
    fn settle_backward(&mut self, node: *const Node) {
        // SAFETY: as for `settle_forward`.
        unsafe { self.settle(node, |node| Node::oldest(node), |table, node| table.list.before(node)) }
    }
}

impl VersionIter for MemIter {
    #[inline]
    fn valid(&self) -> bool {
        !self.node.is_null()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        assert!(self.valid(), "the iterator is not positioned");
        // SAFETY: `node` is a linked node of `table`, which outlives the borrow.
        unsafe { Node::key(self.node) }
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        assert!(self.valid(), "the iterator is not positioned");
        // SAFETY: while valid, `version` belongs to `table`.
        unsafe { (*self.version).seq() }
    }

    #[inline]
    fn kind(&self) -> Kind {
        assert!(self.valid(), "the iterator is not positioned");
        // SAFETY: as for `seq`.
        unsafe { (*self.version).kind() }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        assert!(self.valid(), "the iterator is not positioned");
        // SAFETY: as for `seq`; the table outlives the borrow.
        unsafe { Version::value(self.version) }
    }

    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        let probe = Probe::new(key);
        // A range often starts at a key that exists, and then the hash index spares the search.
        let mut node = self.table.find(hash_bytes(key), &probe);
        if node.is_null() {
            node = self.table.list.search(&probe).1;
        }
        self.settle_forward(node);
        Ok(())
    }

    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        let list = &self.table.list;
        let node = list.unless_head(list.search(&Probe::new(key)).0);
        self.settle_backward(node);
        Ok(())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.settle_forward(self.table.list.first());
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.settle_backward(self.table.list.last());
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "the iterator is not positioned");
        // SAFETY: while valid, `node` and `version` belong to `table`.
        unsafe {
            let older = if self.read.is_some() { null() } else { Node::older(self.version) };
            if older.is_null() {
                self.settle_forward(SkipList::after(self.node));
            } else {
                self.version = older;
            }
        }
        Ok(())
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        assert!(self.valid(), "the iterator is not positioned");
        // SAFETY: as for `next`.
        self.settle_forward(unsafe { SkipList::after(self.node) });
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "the iterator is not positioned");
        // SAFETY: as for `next`.
        unsafe {
            let newer = if self.read.is_some() { null() } else { Node::newer(self.node, (*self.version).seq()) };
            if newer.is_null() {
                let before = self.table.list.before(self.node);
                self.settle_backward(before);
            } else {
                self.version = newer;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
