//! Row and range locks, with deadlock detection: shared and exclusive locks on single keys, first come first served, here;
//! locks of intervals, which keep new keys out, in [`gap`].
//!
//! The hash of a key picks a shard; the shard maps full keys to their [`queue::LockQueue`], which holds all rules. An
//! uncontended lock costs one shard mutex and one probe; the key is stored inline up to 40 bytes and released entries
//! are reused, so nothing is allocated. Nothing stays behind for a key without holder and waiter.
//!
//! Waiting: a waiter parks on its own [`LockOwner`]; whoever ends the wait (a grant, a deadlock verdict, an interrupt)
//! writes the reason there and wakes it. Reasons are written only under the mutex of the shard in whose queue the waiter
//! stands, together with its removal from the queue. Mutex order: range shards, slots (see [`gap`]), shards by ascending
//! number, then an owner's.
//!
//! Deadlocks: a waiter looks for a cycle through itself after a short wait (at once if the queue is long), then
//! periodically. The search reads one shard at a time and may see a cycle that never was, so the shards of a found
//! cycle are locked together and every edge is checked again before anybody is shot. No cycle is missed: every new edge
//! appears with the beginning of a wait, and the one whose wait closed the cycle finds all other edges in place. The
//! victim is the one that the [`WaitObserver`] prefers, else the one that has done the least work; of equals, the
//! youngest.
//!
//! Time: lock waits are the one place in the engine that uses real time rather than the `Clock`: parking needs it, and
//! no decision but giving up depends on it. Rules are tested without threads or time, in `queue`.
//!
//! An owner with very many locks holds most of them in [`bulk`].
//!
//! Rejected: a condition variable per shard (wakes everybody for one grant); optimistic validation at commit
//! (applications written for InnoDB expect to wait); detection on every wait (pays for what short waits never need).

mod bulk;
mod gap;
mod queue;
mod range;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use self::bulk::{Bulk, GATHERED_FIRST, GATHERED_NEXT, Registry};
use self::gap::{Indexes, Ranges};
use self::queue::{Answer, LockQueue};
pub use self::range::Covered;
use crate::base::{Error, IndexId, Result};
use crate::mem::hash::hash_bytes;

/// How strongly a key is locked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockMode {
    /// Excludes exclusive locks of others.
    Shared,
    /// Excludes all locks of others.
    Exclusive,
}

/// Whether to wait for a lock that others hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Fail with [`Error::LockBusy`] instead.
    No,
    /// Wait at most this many microseconds of real time, then fail with [`Error::LockTimeout`].
    TimeoutUs(u64),
}

/// What kind of grant a successful request was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantKind {
    /// The owner had no lock on the key before. Only such a lock may be given back early by `unlock`.
    New,
    /// The owner had this lock or a stronger one.
    AlreadyHeld,
    /// The owner had a shared lock, which is exclusive now.
    Upgraded,
}

/// A successful request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// What the owner had before.
    pub kind: GrantKind,
    /// True if the request waited, so that the row may have changed meanwhile.
    pub waited: bool,
}

/// What is locked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// One key.
    Row(LockMode),
    /// The interval from the key up to `end`, which is not part of it, against new keys.
    Range {
        /// Where it ends.
        end: Vec<u8>,
    },
    /// The key is to be new in an interval that others have locked.
    Insert,
    /// All keys that one owner has brought into an index: too many to be told apart. The key is the prefix of the index.
    NewKeys,
}

impl LockKind {
    /// What a lock in a queue is for those who look at it: the key and the kind.
    fn of_point(key: &[u8], mode: LockMode) -> (Vec<u8>, LockKind) {
        match range::stands_for(key) {
            Some(index) => (index.prefix().to_vec(), LockKind::NewKeys),
            None => (key.to_vec(), LockKind::Row(mode)),
        }
    }
}

/// One held or awaited lock, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockInfo {
    /// Number of the owner.
    pub owner: u64,
    /// The key, or where the interval begins.
    pub key: Vec<u8>,
    /// What is held or asked for.
    pub kind: LockKind,
    /// True if the owner waits for it.
    pub waiting: bool,
}

/// A wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitInfo {
    /// Who waits.
    pub owner: u64,
    /// See `LockOwner::set_tag`.
    pub tag: u64,
    /// See `LockOwner::set_weight`.
    pub weight: u64,
    /// The key it waits for.
    pub key: Vec<u8>,
    /// `Row`, `Insert` or `NewKeys`.
    pub kind: LockKind,
    /// Whom it waits for.
    pub blockers: Vec<u64>,
}

/// A deadlock that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The cycle, from the victim on: each waits for the next one, and the last for the victim.
    pub waits: Vec<WaitInfo>,
    /// Who had to give up.
    pub victim: u64,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for wait in &self.waits {
            let what = match wait.kind {
                LockKind::Row(LockMode::Shared) => "a shared lock on",
                LockKind::Row(LockMode::Exclusive) => "an exclusive lock on",
                LockKind::Range { .. } | LockKind::Insert => "the right to insert",
                LockKind::NewKeys => "a shared lock on the new keys of index",
            };
            write!(f, "owner {} (weight {}) waits for {what} ", wait.owner, wait.weight)?;
            for byte in &wait.key {
                write!(f, "{byte:02x}")?;
            }
            writeln!(f, " held by {:?}", wait.blockers)?;
        }
        write!(f, "victim: owner {}", self.victim)
    }
}

/// Totals since the table was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LockCounters {
    /// Requests that had to wait.
    pub waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Waits that ended by timeout.
    pub timeouts: u64,
}

/// Takes part in waits: replication has transactions whose order of commits is fixed, and lets the earlier go first.
pub trait WaitObserver: Send + Sync {
    /// `waiter` waits, and cannot have its lock before `ahead` (numbers of owners) have given it up. Told when the wait
    /// begins, and again with each search for deadlocks, since others may have come to stand in front. Called on the
    /// waiting thread without any lock of the table; it may interrupt owners, but must not request locks.
    fn waits(&self, waiter: u64, ahead: &[u64]);

    /// Which of the owners on a cycle of waits should give way, if that matters. Called like `waits`.
    fn victim(&self, cycle: &[u64]) -> Option<u64>;
}

/// Times of the deadlock search, in microseconds of real time.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// Wait before the first search.
    pub first_search_us: u64,
    /// Wait between later searches.
    pub next_search_us: u64,
    /// Number of waiters in a queue from which on the first search is immediate.
    pub long_queue: usize,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions { first_search_us: 1_000, next_search_us: 100_000, long_queue: 16 }
    }
}

/// A transaction as far as locks are concerned. One thread at a time requests and releases locks for it; any thread may
/// interrupt it or read its weight.
pub struct LockOwner {
    id: u64,
    tag: AtomicU64,
    weight: AtomicU64,
    killed: AtomicBool,
    held: Mutex<Vec<Place>>,
    /// Indexes whose range rules know the owner.
    indexes: Mutex<Vec<IndexId>>,
    /// What there is to release besides point locks: see `gap`.
    beyond: AtomicU8,
    bulk: RwLock<Bulk>,
    wait: Mutex<WaitState>,
    wake: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    shard: u32,
    slot: u32,
}

/// Where an owner waits: in the queue of a key, or for a place in an index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPlace {
    Point(Place),
    Range(IndexId),
}

/// Where an owner waits, and how the wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitState {
    Idle,
    Waiting(WaitPlace),
    Granted,
    Victim,
}

impl LockOwner {
    /// The owner's number, unique in its table; a later owner has a higher one.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// Sets the number by which the owner's user knows it, for reports.
    pub fn set_tag(&self, tag: u64) {
        self.tag.store(tag, Ordering::Relaxed);
    }
    /// Sets the work done so far (any unit, the same for all); of a deadlock's participants the lightest is the victim.
    pub fn set_weight(&self, weight: u64) {
        self.weight.store(weight, Ordering::Relaxed);
    }
    /// The work done so far.
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }
    /// Makes the current wait and all later requests fail with [`Error::Interrupted`], until `clear_interrupt`.
    pub fn interrupt(&self) {
        self.killed.store(true, Ordering::SeqCst);
        // The waiter checks the flag while holding this mutex: it either sees it or is parked already.
        let _wait = self.wait.lock();
        self.wake.notify_all();
    }
    /// Ends the effect of `interrupt`: the statement was killed, the transaction goes on.
    pub fn clear_interrupt(&self) {
        self.killed.store(false, Ordering::SeqCst);
    }
    /// True after `interrupt`.
    pub fn is_interrupted(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }
    /// Number of locks held, but for those held in bulk.
    pub fn lock_count(&self) -> usize {
        self.held.lock().len()
    }

    fn end_wait(&self, state: WaitState) {
        *self.wait.lock() = state;
        self.wake.notify_all();
    }

    fn note_index(&self, index: IndexId) {
        let mut indexes = self.indexes.lock();
        if !indexes.contains(&index) {
            indexes.push(index);
        }
        drop(indexes);
        self.set_beyond(gap::RANGED);
    }
    fn set_beyond(&self, flag: u8) {
        self.beyond.fetch_or(flag, Ordering::Relaxed);
    }
    fn beyond(&self) -> u8 {
        self.beyond.load(Ordering::Relaxed)
    }
    fn clear_beyond(&self) {
        self.beyond.store(0, Ordering::Relaxed);
    }
}

const INLINE_KEY: usize = 40;

enum Key {
    Inline(u8, [u8; INLINE_KEY]),
    Heap(Box<[u8]>),
}

impl Key {
    fn new(bytes: &[u8]) -> Key {
        if bytes.len() > INLINE_KEY {
            return Key::Heap(bytes.into());
        }
        let mut inline = [0; INLINE_KEY];
        inline[..bytes.len()].copy_from_slice(bytes);
        Key::Inline(bytes.len() as u8, inline)
    }
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Key::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Key::Heap(bytes) => bytes,
        }
    }
}

struct Entry {
    hash: u64,
    /// Next entry of the bucket, or of the free list.
    next: u32,
    key: Key,
    queue: LockQueue<Arc<LockOwner>>,
}

const NONE: u32 = u32::MAX;
const BUCKETS_MIN: usize = 16;
/// An empty shard with more entries than this gives its memory back.
const ENTRIES_KEPT: usize = 1024;

/// A chained hash table whose entries keep their slot, so that owners can find them again without the key.
struct Shard {
    buckets: Vec<u32>,
    entries: Vec<Entry>,
    free: u32,
    live: usize,
}

impl Shard {
    fn new() -> Shard {
        Shard { buckets: vec![NONE; BUCKETS_MIN], entries: Vec::new(), free: NONE, live: 0 }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        // The low bits chose the shard.
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(hash)];
        while slot != NONE {
            let entry = &self.entries[slot as usize];
            if entry.hash == hash && entry.key.bytes() == key {
                return Some(slot);
            }
            slot = entry.next;
        }
        None
    }

    fn find_or_add(&mut self, hash: u64, key: &[u8]) -> u32 {
        if let Some(slot) = self.find(hash, key) {
            return slot;
        }
        if self.live >= self.buckets.len() {
            self.rehash(self.buckets.len() * 2);
        }
        let bucket = self.bucket(hash);
        let entry = Entry { hash, next: self.buckets[bucket], key: Key::new(key), queue: LockQueue::new() };
        let slot = if self.free == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let slot = self.free;
            self.free = self.entries[slot as usize].next;
            self.entries[slot as usize] = entry;
            slot
        };
        self.buckets[bucket] = slot;
        self.live += 1;
        slot
    }

    fn rehash(&mut self, buckets: usize) {
        let old = std::mem::replace(&mut self.buckets, vec![NONE; buckets]);
        for mut slot in old {
            while slot != NONE {
                let next = self.entries[slot as usize].next;
                let bucket = self.bucket(self.entries[slot as usize].hash);
                self.entries[slot as usize].next = self.buckets[bucket];
                self.buckets[bucket] = slot;
                slot = next;
            }
        }
    }

    /// Frees the entry in `slot` if nobody holds or awaits it.
    fn drop_if_free(&mut self, slot: u32) {
        let entry = &self.entries[slot as usize];
        if !entry.queue.is_free() {
            return;
        }
        let (bucket, after) = (self.bucket(entry.hash), entry.next);
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = after;
        } else {
            let mut at = self.buckets[bucket];
            while self.entries[at as usize].next != slot {
                at = self.entries[at as usize].next;
            }
            self.entries[at as usize].next = after;
        }
        self.live -= 1;
        if self.live == 0 && self.entries.len() > ENTRIES_KEPT {
            *self = Shard::new();
            return;
        }
        let entry = &mut self.entries[slot as usize];
        if let Key::Heap(_) = entry.key {
            entry.key = Key::new(b"");
        }
        entry.next = self.free;
        self.free = slot;
    }
}

#[repr(align(128))]
struct PaddedShard(Mutex<Shard>);

/// All row locks of a store.
pub struct LockTable {
    shards: Box<[PaddedShard]>,
    ranges: Ranges,
    bulk: Registry,
    options: LockOptions,
    next_owner: AtomicU64,
    /// Owners that wait, by number: touched only when a wait begins and ends.
    waiting: Mutex<HashMap<u64, Arc<LockOwner>>>,
    waits: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    latest_deadlock: Mutex<Option<Deadlock>>,
    observer: RwLock<Option<Arc<dyn WaitObserver>>>,
}

/// An owner on a cycle and the place where it waits.
type Edge = (Arc<LockOwner>, WaitPlace);

/// All places of a cycle, held together.
struct Latched<'a> {
    ranges: Vec<(usize, MutexGuard<'a, Indexes>)>,
    shards: Vec<(u32, MutexGuard<'a, Shard>)>,
}

impl Latched<'_> {
    fn shard(&mut self, number: u32) -> &mut Shard {
        let at = self.shards.binary_search_by_key(&number, |s| s.0).expect("a shard of the cycle");
        &mut self.shards[at].1
    }

    fn indexes(&mut self, index: IndexId) -> &mut Indexes {
        let at = self.ranges.binary_search_by_key(&Ranges::number(index), |r| r.0).expect("a shard of the cycle");
        &mut self.ranges[at].1
    }

    fn blockers(&mut self, id: u64, place: WaitPlace) -> Vec<u64> {
        match place {
            WaitPlace::Point(place) => LockTable::blockers_in(self.shard(place.shard), id, place),
            WaitPlace::Range(index) => self.indexes(index).get(&index).map_or_else(Vec::new, |r| r.blockers(id)),
        }
    }

    /// Everybody who can get or keep what `id` waits for before it. Nobody can come in front at a range.
    fn ahead(&mut self, id: u64, place: WaitPlace) -> Vec<u64> {
        match place {
            WaitPlace::Point(place) => {
                let entry = self.shard(place.shard).entries.get(place.slot as usize);
                entry.map_or_else(Vec::new, |entry| entry.queue.ahead(id))
            }
            WaitPlace::Range(_) => self.blockers(id, place),
        }
    }

    /// The wait of `waiter`, which is known to wait there.
    fn wait_info(&mut self, waiter: &LockOwner, place: WaitPlace, blockers: Vec<u64>) -> WaitInfo {
        let id = waiter.id;
        let (key, kind) = match place {
            WaitPlace::Point(place) => {
                let entry = &self.shard(place.shard).entries[place.slot as usize];
                let mode = entry.queue.waiter(id).map_or(LockMode::Exclusive, |w| w.0);
                LockKind::of_point(entry.key.bytes(), mode)
            }
            WaitPlace::Range(index) => {
                let ranges = self.indexes(index).get(&index);
                let key = ranges.and_then(|r| r.waiters().find(|w| w.0 == id).map(|w| w.1.to_vec()));
                (key.unwrap_or_default(), LockKind::Insert)
            }
        };
        let (tag, weight) = (waiter.tag.load(Ordering::Relaxed), waiter.weight());
        WaitInfo { owner: id, tag, weight, key, kind, blockers }
    }
}

fn granted(_: u64, owner: &Arc<LockOwner>) {
    owner.end_wait(WaitState::Granted);
}

impl LockTable {
    /// A table with `shards` shards, rounded up to a power of two; a few times the number of cores is right.
    pub fn new(shards: usize) -> LockTable {
        LockTable::with_options(shards, LockOptions::default())
    }

    /// As `new`, with other times for the deadlock search.
    pub fn with_options(shards: usize, options: LockOptions) -> LockTable {
        let shards = shards.clamp(1, 1 << 16).next_power_of_two();
        LockTable {
            shards: (0..shards).map(|_| PaddedShard(Mutex::new(Shard::new()))).collect(),
            ranges: Ranges::new(),
            bulk: Registry::default(),
            options,
            next_owner: AtomicU64::new(1),
            waiting: Mutex::new(HashMap::new()),
            waits: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            latest_deadlock: Mutex::new(None),
            observer: RwLock::new(None),
        }
    }

    /// A new owner. Before it is dropped, `release_all` must be called.
    pub fn new_owner(&self) -> Arc<LockOwner> {
        Arc::new(LockOwner {
            id: self.next_owner.fetch_add(1, Ordering::Relaxed),
            tag: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            held: Mutex::new(Vec::new()),
            indexes: Mutex::new(Vec::new()),
            beyond: AtomicU8::new(0),
            bulk: RwLock::default(),
            wait: Mutex::new(WaitState::Idle),
            wake: Condvar::new(),
        })
    }

    /// Sets who is told of beginning waits.
    pub fn set_observer(&self, observer: Option<Arc<dyn WaitObserver>>) {
        *self.observer.write() = observer;
    }

    fn shard(&self, number: u32) -> MutexGuard<'_, Shard> {
        self.shards[number as usize].0.lock()
    }

    fn shard_of(&self, hash: u64) -> u32 {
        (hash & (self.shards.len() as u64 - 1)) as u32
    }

    /// Locks `key` for `owner`.
    ///
    /// # Errors
    /// `LockBusy` (with `Wait::No`), `LockTimeout`, `Interrupted`: what the owner held before it still holds.
    /// `Deadlock`: likewise, but the transaction must be rolled back.
    pub fn lock(&self, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode, wait: Wait) -> Result<Granted> {
        if owner.is_interrupted() {
            return Err(Error::Interrupted);
        }
        let hash = hash_bytes(key);
        let number = self.shard_of(hash);
        let mut shard = self.shard(number);
        let slot = shard.find_or_add(hash, key);
        let place = Place { shard: number, slot };
        let in_bulk = self.bulk.in_use();
        if in_bulk {
            self.materialize(&mut shard, place, owner);
        }
        let queue = &mut shard.entries[slot as usize].queue;
        let kind = match queue.request(owner.id, mode) {
            Answer::New => GrantKind::New,
            Answer::AlreadyHeld => GrantKind::AlreadyHeld,
            Answer::Upgraded => GrantKind::Upgraded,
            Answer::MustWait => {
                let Wait::TimeoutUs(timeout_us) = wait else {
                    return Err(Error::LockBusy);
                };
                let kind = if queue.held(owner.id).is_some() { GrantKind::Upgraded } else { GrantKind::New };
                let length = queue.enqueue(owner.id, mode, owner.clone());
                self.begin_wait(owner, WaitPlace::Point(place));
                drop(shard);
                self.finish_wait(owner, WaitPlace::Point(place), timeout_us, length)?;
                if kind == GrantKind::New {
                    owner.held.lock().push(place);
                }
                return Ok(Granted { kind, waited: true });
            }
        };
        drop(shard);
        if kind == GrantKind::New {
            if in_bulk {
                owner.bulk.read().prefetch(hash, mode);
            }
            let mut held = owner.held.lock();
            held.push(place);
            if held.len() % GATHERED_NEXT == 0 && (held.len() >= GATHERED_FIRST || self.bulk.has(owner)) {
                drop(held);
                self.gather(owner);
            }
        }
        Ok(Granted { kind, waited: false })
    }

    /// Before the mutex of the queue is unlocked: a search that sees the queue must find its waiters here.
    fn begin_wait(&self, owner: &Arc<LockOwner>, place: WaitPlace) {
        *owner.wait.lock() = WaitState::Waiting(place);
        self.waiting.lock().insert(owner.id, owner.clone());
    }

    fn finish_wait(&self, owner: &Arc<LockOwner>, place: WaitPlace, timeout_us: u64, length: usize) -> Result<()> {
        let result = self.wait(owner, place, timeout_us, length);
        self.waiting.lock().remove(&owner.id);
        *owner.wait.lock() = WaitState::Idle;
        result
    }

    /// Makes those who hold the key of `place` in bulk holders in its queue; see [`bulk`].
    #[cold]
    fn materialize(&self, shard: &mut Shard, place: Place, asking: &LockOwner) {
        let entry = &mut shard.entries[place.slot as usize];
        if entry.queue.held(asking.id) == Some(LockMode::Exclusive) {
            return;
        }
        let join = |queue: &mut LockQueue<_>, owner: &LockOwner, mode: Option<LockMode>| {
            let unknown = mode.filter(|&mode| queue.held(owner.id) < Some(mode));
            if unknown.is_some_and(|mode| queue.request(owner.id, mode) == Answer::New) {
                owner.held.lock().push(place);
            }
        };
        for owner in self.bulk.owners().iter().filter(|owner| owner.id != asking.id) {
            let mode = owner.bulk.read().may_hold(entry.hash, entry.key.bytes());
            join(&mut entry.queue, owner, mode);
        }
        if !entry.queue.is_free() {
            join(&mut entry.queue, asking, asking.bulk.read().held(entry.hash));
        }
    }

    /// Turns the point locks of `owner` that nobody waits for into bulk locks.
    #[cold]
    fn gather(&self, owner: &Arc<LockOwner>) {
        self.bulk.add(owner);
        let mut held = owner.held.lock();
        let latest = held.pop();
        let gathered = std::mem::take(&mut *held);
        drop(held);
        let mut kept = Vec::new();
        for place in gathered {
            let mut shard = self.shard(place.shard);
            let entry = &shard.entries[place.slot as usize];
            match entry.queue.held(owner.id) {
                Some(mode) if entry.queue.waiters().next().is_none() => {
                    owner.bulk.write().insert(entry.hash, entry.key.bytes(), mode);
                    Self::release(&mut shard, place.slot, owner.id);
                }
                _ => kept.push(place),
            }
        }
        owner.held.lock().extend(kept.into_iter().chain(latest));
    }

    /// Gives `owner` exclusive locks on all keys from `from` to `to`, both included. Only where nobody else has any:
    /// when a store is opened.
    pub fn lock_range(&self, owner: &Arc<LockOwner>, from: &[u8], to: &[u8]) {
        self.bulk.add(owner);
        owner.bulk.write().insert_interval(from, to);
    }

    #[cold]
    fn wait(&self, owner: &Arc<LockOwner>, place: WaitPlace, timeout_us: u64, length: usize) -> Result<()> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let begin = Instant::now();
        // A timeout beyond the clock's range never comes.
        let deadline = begin.checked_add(Duration::from_micros(timeout_us));
        self.report_wait(owner, place);
        let first = if length >= self.options.long_queue { 0 } else { self.options.first_search_us };
        let mut search_at = begin + Duration::from_micros(first);
        loop {
            {
                let mut state = owner.wait.lock();
                loop {
                    match *state {
                        WaitState::Granted => return Ok(()),
                        WaitState::Victim => return Err(Error::Deadlock),
                        WaitState::Waiting(_) | WaitState::Idle => {}
                    }
                    let until = deadline.map_or(search_at, |deadline| deadline.min(search_at));
                    if owner.is_interrupted() || Instant::now() >= until {
                        break;
                    }
                    owner.wake.wait_until(&mut state, until);
                }
            }
            let failure = if owner.is_interrupted() {
                Error::Interrupted
            } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                Error::LockTimeout
            } else {
                // One search may only break one of several cycles.
                while self.break_cycle(owner, place) {}
                self.report_wait(owner, place);
                search_at = Instant::now() + Duration::from_micros(self.options.next_search_us);
                continue;
            };
            let mut latched = self.latch(&[place]);
            // Under the shard's mutex nobody else can end the wait any more: it has either ended or is ended here.
            match *owner.wait.lock() {
                WaitState::Granted => return Ok(()),
                WaitState::Victim => return Err(Error::Deadlock),
                WaitState::Waiting(_) | WaitState::Idle => {}
            }
            Self::cancel(&mut latched, owner.id, place);
            drop(latched);
            if matches!(failure, Error::LockTimeout) {
                self.timeouts.fetch_add(1, Ordering::Relaxed);
            }
            return Err(failure);
        }
    }

    fn report_wait(&self, owner: &LockOwner, place: WaitPlace) {
        let observer = self.observer.read().clone();
        if let Some(observer) = observer {
            let ahead = self.latch(&[place]).ahead(owner.id, place);
            if !ahead.is_empty() {
                observer.waits(owner.id, &ahead);
            }
        }
    }

    fn blockers_of(&self, id: u64, place: WaitPlace) -> Vec<u64> {
        self.latch(&[place]).blockers(id, place)
    }

    /// Locks the mutexes of places in the right order.
    fn latch(&self, places: &[WaitPlace]) -> Latched<'_> {
        let (mut ranges, mut shards) = (Vec::new(), Vec::new());
        for place in places {
            match *place {
                WaitPlace::Point(place) => shards.push(place.shard),
                WaitPlace::Range(index) => ranges.push(Ranges::number(index)),
            }
        }
        ranges.sort_unstable();
        ranges.dedup();
        shards.sort_unstable();
        shards.dedup();
        Latched {
            ranges: ranges.into_iter().map(|n| (n, self.ranges.latch(n))).collect(),
            shards: shards.into_iter().map(|n| (n, self.shard(n))).collect(),
        }
    }

    fn cancel(latched: &mut Latched<'_>, id: u64, place: WaitPlace) {
        match place {
            WaitPlace::Point(place) => {
                let shard = latched.shard(place.shard);
                shard.entries[place.slot as usize].queue.cancel(id, granted);
                shard.drop_if_free(place.slot);
            }
            WaitPlace::Range(index) => {
                if let Some(ranges) = latched.indexes(index).get_mut(&index) {
                    ranges.cancel(id);
                }
            }
        }
    }

    /// Empty if `id` does not wait there any more (the slot may serve another key, or be gone, by now).
    fn blockers_in(shard: &Shard, id: u64, place: Place) -> Vec<u64> {
        shard.entries.get(place.slot as usize).map_or_else(Vec::new, |entry| entry.queue.blockers(id))
    }

    /// The owner `id` and its place, if it waits.
    fn waiting_at(&self, id: u64) -> Option<Edge> {
        let owner = self.waiting.lock().get(&id)?.clone();
        let state = *owner.wait.lock();
        match state {
            WaitState::Waiting(place) => Some((owner, place)),
            _ => None,
        }
    }

    /// A shortest cycle of waits through `owner`, as far as can be told without stopping the others.
    fn find_cycle(&self, owner: &Arc<LockOwner>, place: WaitPlace) -> Option<Vec<Edge>> {
        let mut reached: Vec<(Edge, usize)> = vec![((owner.clone(), place), usize::MAX)];
        let mut seen: HashSet<u64> = HashSet::new();
        let mut todo = VecDeque::from([0usize]);
        while let Some(at) = todo.pop_front() {
            let (id, place) = (reached[at].0.0.id, reached[at].0.1);
            for blocker in self.blockers_of(id, place) {
                if blocker == owner.id {
                    let mut cycle = Vec::new();
                    let mut at = at;
                    while at != usize::MAX {
                        cycle.push(reached[at].0.clone());
                        at = reached[at].1;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if seen.insert(blocker) {
                    if let Some(edge) = self.waiting_at(blocker) {
                        reached.push((edge, at));
                        todo.push_back(reached.len() - 1);
                    }
                }
            }
        }
        None
    }

    /// Looks for a deadlock of `owner` and shoots the victim. True if another owner was shot, so that a further cycle
    /// may remain.
    fn break_cycle(&self, owner: &Arc<LockOwner>, place: WaitPlace) -> bool {
        let Some(cycle) = self.find_cycle(owner, place) else {
            return false;
        };
        let observer = self.observer.read().clone();
        let ids: Vec<u64> = cycle.iter().map(|(waiter, _)| waiter.id).collect();
        let preferred = observer.and_then(|observer| observer.victim(&ids));
        let places: Vec<WaitPlace> = cycle.iter().map(|edge| edge.1).collect();
        let mut latched = self.latch(&places);
        let mut waits = Vec::with_capacity(cycle.len());
        for (i, (waiter, place)) in cycle.iter().enumerate() {
            let (next, _) = &cycle[(i + 1) % cycle.len()];
            let blockers = latched.blockers(waiter.id, *place);
            if !blockers.contains(&next.id) {
                return false;
            }
            waits.push(latched.wait_info(waiter, *place, blockers));
        }
        let lightest = cycle.iter().min_by_key(|(owner, _)| (owner.weight(), std::cmp::Reverse(owner.id)));
        let Some((victim, place)) = cycle.iter().find(|(owner, _)| Some(owner.id) == preferred).or(lightest) else {
            return false;
        };
        if let Some(at) = waits.iter().position(|wait| wait.owner == victim.id) {
            waits.rotate_left(at);
        }
        self.deadlocks.fetch_add(1, Ordering::Relaxed);
        *self.latest_deadlock.lock() = Some(Deadlock { waits, victim: victim.id });
        Self::cancel(&mut latched, victim.id, *place);
        victim.end_wait(WaitState::Victim);
        victim.id != owner.id
    }

    /// Gives back one lock early; no effect if the owner does not hold it, or holds it in bulk. Only for locks granted as
    /// `New` whose row the statement did not touch.
    pub fn unlock(&self, owner: &Arc<LockOwner>, key: &[u8]) {
        let hash = hash_bytes(key);
        let number = self.shard_of(hash);
        let mut shard = self.shard(number);
        let Some(slot) = shard.find(hash, key) else {
            return;
        };
        if shard.entries[slot as usize].queue.held(owner.id).is_none() {
            return;
        }
        // Held in bulk as well: it was not as new as it was said to be.
        if self.bulk.in_use() && owner.bulk.read().may_hold(hash, key).is_some() {
            return;
        }
        Self::release(&mut shard, slot, owner.id);
        drop(shard);
        let mut held = owner.held.lock();
        // Usually the last one.
        if let Some(at) = held.iter().rposition(|&p| p == Place { shard: number, slot }) {
            held.swap_remove(at);
        }
    }

    /// Gives back all locks of `owner`.
    pub fn release_all(&self, owner: &Arc<LockOwner>) {
        if owner.beyond() != 0 {
            self.release_ranges(owner);
        }
        // Before the point locks: what is materialized later would be released by nobody.
        if self.bulk.in_use() {
            self.bulk.remove(owner);
            *owner.bulk.write() = Bulk::default();
        }
        let mut held = std::mem::take(&mut *owner.held.lock());
        for place in held.drain(..) {
            Self::release(&mut self.shard(place.shard), place.slot, owner.id);
        }
        // Keeps the allocation for the next transaction of a reused owner, unless it was a very large one.
        if held.capacity() <= 1024 {
            *owner.held.lock() = held;
        }
    }

    #[inline]
    fn release(shard: &mut Shard, slot: u32, id: u64) {
        shard.entries[slot as usize].queue.release(id, granted);
        shard.drop_if_free(slot);
    }

    /// The mode in which `owner` holds `key`.
    pub fn held(&self, owner: &Arc<LockOwner>, key: &[u8]) -> Option<LockMode> {
        let hash = hash_bytes(key);
        let shard = self.shard(self.shard_of(hash));
        let explicit = shard.find(hash, key).and_then(|slot| shard.entries[slot as usize].queue.held(owner.id));
        explicit.max(owner.bulk.read().held(hash))
    }

    /// All locks, but those held in bulk, and waits, shard by shard: each shard is consistent, the whole need not be.
    pub fn snapshot(&self) -> Vec<LockInfo> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let shard = shard.0.lock();
            for entry in &shard.entries {
                let held = entry.queue.holders().map(|h| (h, false));
                for ((owner, mode), waiting) in held.chain(entry.queue.waiters().map(|w| (w, true))) {
                    let (key, kind) = LockKind::of_point(entry.key.bytes(), mode);
                    out.push(LockInfo { owner, key, kind, waiting });
                }
            }
        }
        self.ranges_snapshot(&mut out);
        out
    }

    /// All waits, one after the other: each is consistent, the whole need not be.
    pub fn waits(&self) -> Vec<WaitInfo> {
        let ids: Vec<u64> = self.waiting.lock().keys().copied().collect();
        let edges = ids.into_iter().filter_map(|id| self.waiting_at(id));
        let info = |(waiter, place): Edge| {
            let mut latched = self.latch(&[place]);
            let blockers = latched.blockers(waiter.id, place);
            (!blockers.is_empty()).then(|| latched.wait_info(&waiter, place, blockers))
        };
        edges.filter_map(info).collect()
    }

    /// Totals since the table was made.
    pub fn counters(&self) -> LockCounters {
        LockCounters {
            waits: self.waits.load(Ordering::Relaxed),
            deadlocks: self.deadlocks.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
        }
    }

    /// The most recent deadlock.
    pub fn latest_deadlock(&self) -> Option<Deadlock> {
        self.latest_deadlock.lock().clone()
    }
}

#[cfg(test)]
mod tests;
