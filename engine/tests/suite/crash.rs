//! Crashes of the whole engine. Random histories run on a disk in memory; at a random disk operation of any thread,
//! background work included, the image that a power cut would leave is taken and opened. What must hold then:
//!
//! - the state is that after the first so many commits, without a hole (invariant 12),
//! - that many is at least what was acknowledged as durable, and no more than what was begun,
//! - a transaction that was prepared and whose decision is not in the log is listed and holds its locks,
//! - of a dropped index, whose keys are void, nothing is left after a flush; commits before the drop are durable,
//! - the store works on, until the next crash.
//!
//! `STRATA_SEED` repeats one case, `STRATA_CASES` (percent) chooses how many there are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{DIR, Map, OnFailure, Rng, by_turns, dump, hooked, key, options, seeds, value, within};
use parking_lot::Mutex;
use strata_engine::io::MemDisk;
use strata_engine::layer::{IndexId, LockMode, Txn, Wait};
use strata_engine::{Engine, Error, Options};

/// Indexes of transactions, of autonomous writes, and the first of those that are dropped and never used again.
const MAIN: u32 = 16;
const OWN: u32 = 20;
const DROPPABLE: u32 = 100;

type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What became of a prepared transaction, as far as its user was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Preparing,
    Prepared,
    /// Place in the history.
    Ordered(usize),
    RollingBack,
    RolledBack,
}

/// All that was asked of the store and what it answered.
#[derive(Clone, Default)]
struct Book {
    /// Commits in their order; the sequence number of each is its place plus one.
    history: Vec<Writes>,
    /// How many of them are durable for certain.
    durable: usize,
    prepared: BTreeMap<Vec<u8>, (Fate, Writes)>,
    /// Dropped indexes, and whether that was acknowledged.
    drops: BTreeMap<u32, bool>,
}

impl Book {
    fn commit(&mut self, writes: Writes) -> usize {
        self.history.push(writes);
        self.history.len()
    }

    fn state_after(&self, commits: usize) -> Map {
        let mut map = Map::new();
        for writes in &self.history[..commits] {
            for (key, value) in writes {
                match value {
                    Some(value) => map.insert(key.clone(), value.clone()),
                    None => map.remove(key),
                };
            }
        }
        map
    }
}

/// Where the crash is taken: at the operation that brings the count down to zero.
struct Trap {
    disk: MemDisk,
    book: Arc<Mutex<Book>>,
    countdown: AtomicU64,
    seed: u64,
    sprung: AtomicBool,
    /// What was promised before the image, the image, and what was asked for up to after it.
    taken: Mutex<Option<(Book, MemDisk, Book)>>,
}

impl Trap {
    fn step(&self) {
        if self.countdown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) == Ok(1) {
            self.spring();
        }
    }

    fn spring(&self) {
        if !self.sprung.swap(true, Ordering::SeqCst) {
            let before = self.book.lock().clone();
            let image = self.disk.crash(self.seed);
            let after = self.book.lock().clone();
            *self.taken.lock() = Some((before, image, after));
        }
    }
}

struct Open {
    txn: Txn,
    writes: Writes,
    xid: Option<Vec<u8>>,
}

struct Driver {
    engine: Engine,
    book: Arc<Mutex<Book>>,
    rng: Rng,
    open: Vec<Option<Open>>,
    /// Ids of prepared transactions that the engine keeps.
    left: Vec<Vec<u8>>,
    next_xid: u64,
    droppable: u32,
}

impl Driver {
    fn slot(&mut self) -> &mut Open {
        let at = self.rng.below(self.open.len() as u64) as usize;
        let engine = &self.engine;
        self.open[at].get_or_insert_with(|| Open { txn: engine.begin(), writes: Writes::new(), xid: None })
    }

    fn any_key(&mut self) -> Vec<u8> {
        let index = if self.rng.chance(20) { self.droppable } else { MAIN + self.rng.below(3) as u32 };
        key(index, self.rng.below(60))
    }

    fn any_value(&mut self) -> Option<Vec<u8>> {
        let bytes = match self.rng.below(40) {
            0 => 200_000,
            1..10 => 5_000,
            _ => 60,
        };
        let tag = self.rng.next();
        if self.rng.chance(25) { None } else { Some(value(&mut self.rng, tag, bytes)) }
    }

    /// Writes into one of the open transactions, unless another holds the key.
    fn write(&mut self) {
        let (key, value) = (self.any_key(), self.any_value());
        let open = self.slot();
        if open.xid.is_some() {
            return;
        }
        match open.txn.lock(&key, LockMode::Exclusive, Wait::No) {
            Ok(_) => {}
            Err(Error::LockBusy) => return,
            Err(e) => panic!("lock: {e}"),
        }
        match &value {
            Some(value) => open.txn.put(&key, value).unwrap(),
            None => open.txn.delete(&key).unwrap(),
        }
        open.writes.insert(key, value);
    }

    fn finish(&mut self) {
        let at = self.rng.below(self.open.len() as u64) as usize;
        let Some(mut open) = self.open[at].take() else { return };
        let book = self.book.clone();
        if let Some(xid) = open.xid.take() {
            return self.decide(open, xid);
        }
        if open.writes.is_empty() || self.rng.chance(15) {
            return open.txn.rollback().unwrap();
        }
        if self.rng.chance(50) {
            let commits = book.lock().commit(open.writes);
            open.txn.commit().unwrap();
            book.lock().durable = commits;
            assert_eq!(self.engine.visible().0, commits as u64);
            return;
        }
        self.next_xid += 1;
        let xid = format!("x{}", self.next_xid).into_bytes();
        book.lock().prepared.insert(xid.clone(), (Fate::Preparing, open.writes.clone()));
        open.txn.prepare(&xid).unwrap();
        let mut locked = book.lock();
        locked.prepared.get_mut(&xid).unwrap().0 = Fate::Prepared;
        // A prefix of the log is durable.
        locked.durable = locked.history.len();
        drop(locked);
        open.xid = Some(xid);
        self.open[at] = Some(open);
    }

    fn decide(&mut self, mut open: Open, xid: Vec<u8>) {
        let book = self.book.clone();
        let set = |fate| book.lock().prepared.get_mut(&xid).unwrap().0 = fate;
        match self.rng.below(10) {
            0..2 => {
                set(Fate::RollingBack);
                open.txn.rollback().unwrap();
                set(Fate::RolledBack);
            }
            2..4 => {
                // Left behind, undecided.
                drop(open);
                self.left.push(xid);
            }
            4..6 => {
                // A user's decision: durable when it returns.
                let mut locked = book.lock();
                let commits = locked.commit(open.writes);
                locked.prepared.get_mut(&xid).unwrap().0 = Fate::Ordered(commits);
                drop(locked);
                open.txn.commit().unwrap();
                book.lock().durable = commits;
            }
            _ => {
                let mut locked = book.lock();
                let commits = locked.commit(open.writes);
                locked.prepared.get_mut(&xid).unwrap().0 = Fate::Ordered(commits);
                drop(locked);
                open.txn.commit_ordered();
                open.txn.commit().unwrap();
            }
        }
    }

    fn settle(&mut self) {
        if self.left.is_empty() {
            return;
        }
        let at = self.rng.below(self.left.len() as u64) as usize;
        let xid = self.left.swap_remove(at);
        let mut book = self.book.lock();
        if self.rng.chance(60) {
            let writes = book.prepared[&xid].1.clone();
            let commits = book.commit(writes);
            book.prepared.get_mut(&xid).unwrap().0 = Fate::Ordered(commits);
            drop(book);
            assert!(self.engine.commit_prepared(&xid).unwrap());
            self.book.lock().durable = commits;
        } else {
            book.prepared.get_mut(&xid).unwrap().0 = Fate::RollingBack;
            drop(book);
            assert!(self.engine.rollback_prepared(&xid).unwrap());
            self.book.lock().prepared.get_mut(&xid).unwrap().0 = Fate::RolledBack;
        }
    }

    fn autonomous(&mut self) {
        let mut writes = Writes::new();
        for _ in 0..=self.rng.below(3) {
            writes.insert(key(OWN, self.rng.below(20)), self.any_value());
        }
        let durable = self.rng.chance(50);
        let commits = self.book.lock().commit(writes.clone());
        let ops: Vec<_> = writes.into_iter().collect();
        assert_eq!(self.engine.write(&ops, durable).unwrap().0, commits as u64);
        if durable {
            self.book.lock().durable = commits;
        }
    }

    /// Drops an index nobody has open writes on; it is never written again.
    fn drop_index(&mut self) {
        let prefix = IndexId(self.droppable).prefix();
        let touches = |writes: &Writes| writes.keys().any(|key| key.starts_with(&prefix));
        let held = self.left.iter().any(|xid| touches(&self.book.lock().prepared[xid].1));
        if held || self.open.iter().flatten().any(|open| touches(&open.writes)) {
            return;
        }
        let at = self.book.lock().history.len();
        self.book.lock().drops.insert(self.droppable, false);
        self.engine.drop_indexes(&[IndexId(self.droppable)]).unwrap();
        let mut book = self.book.lock();
        book.drops.insert(self.droppable, true);
        book.durable = at;
        drop(book);
        self.droppable += 1;
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..55 => self.write(),
            55..80 => self.finish(),
            80..86 => self.autonomous(),
            86..90 => self.settle(),
            90..92 => self.drop_index(),
            92..96 => self.engine.flush().unwrap(),
            96..97 => {
                let (lower, upper) = (IndexId(MAIN).prefix(), IndexId(OWN + 1).prefix());
                self.engine.compact_range(&lower, &upper).unwrap();
            }
            97..98 => {
                self.engine.sync().unwrap();
                let mut book = self.book.lock();
                book.durable = book.history.len();
            }
            _ => {
                // Unsynced commits pile up in front of a flush.
                for _ in 0..4 {
                    self.finish();
                }
                self.engine.flush().unwrap();
            }
        }
    }
}

/// Compares an image's store with the promises; afterwards the book says what is in it.
fn inspect(engine: &Engine, before: &Book, after: &Book) -> Book {
    let commits = engine.visible().0 as usize;
    assert!(commits >= before.durable, "{} commits were durable, {commits} are there", before.durable);
    assert!(commits <= after.history.len(), "{} commits were begun, {commits} are there", after.history.len());
    let mut book = after.clone();
    book.history.truncate(commits);
    book.durable = commits;

    let mut expected = book.state_after(commits);
    let mut found = dump(engine, 0, u32::MAX).unwrap();
    if commits % 3 == 0 {
        // Merges clear dropped indexes out of the files that they shared with others.
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        found = dump(engine, 0, u32::MAX).unwrap();
        for (&index, _) in before.drops.iter().filter(|(_, acknowledged)| **acknowledged) {
            let prefix = IndexId(index).prefix();
            assert!(!found.keys().any(|key| key.starts_with(&prefix)), "index {index} was dropped");
        }
    }
    let void = |key: &Vec<u8>| after.drops.contains_key(&IndexId::of(key).0);
    found.retain(|key, _| !void(key));
    expected.retain(|key, _| !void(key));
    if found != expected {
        let differing: Vec<_> = found
            .keys()
            .chain(expected.keys())
            .filter(|key| found.get(*key) != expected.get(*key))
            .map(|key| String::from_utf8_lossy(&key[4..]).into_owned())
            .collect();
        panic!("after {commits} commits the keys {differing:?} differ");
    }
    engine.verify_index(IndexId(MAIN)).unwrap();

    let listed = engine.prepared();
    for (xid, (_, writes)) in &after.prepared {
        let fate = |book: &Book| book.prepared.get(xid).map(|entry| entry.0);
        let name = String::from_utf8_lossy(xid).into_owned();
        let must = match (fate(before), fate(after)) {
            (_, Some(Fate::Ordered(at))) if at <= commits => Some(false),
            (Some(Fate::RolledBack), _) => Some(false),
            (Some(Fate::Prepared | Fate::Ordered(_)), Some(Fate::Prepared | Fate::Ordered(_))) => Some(true),
            _ => None,
        };
        let is = listed.contains(xid);
        assert!(must.is_none_or(|must| must == is), "{name} listed: {is}; {:?} .. {:?}", fate(before), fate(after));
        if is {
            let mut txn = engine.begin();
            for key in writes.keys() {
                let lock = txn.lock(key, LockMode::Exclusive, Wait::No);
                assert!(matches!(lock, Err(Error::LockBusy)), "{name} holds no lock on a key it wrote");
            }
            book.prepared.insert(xid.clone(), (Fate::Prepared, writes.clone()));
        } else {
            book.prepared.remove(xid);
        }
    }
    assert!(listed.iter().all(|xid| after.prepared.contains_key(xid)), "listed: {listed:?}");
    book
}

fn generations(seed: u64) {
    let _guard = OnFailure(format!("STRATA_SEED={seed}"));
    let mut rng = Rng::new(seed);
    let mut disk = MemDisk::new();
    let mut book = Book::default();
    let mut known: Option<(Book, Book)> = None;
    let (mut next_xid, mut droppable) = (0, DROPPABLE);
    for generation in 0..4 {
        let shared = Arc::new(Mutex::new(book.clone()));
        // Sometimes while the store is being opened, mostly later.
        let moment = if rng.chance(15) { 1 + rng.below(20) } else { 20 + rng.below(800) };
        let trap = Arc::new(Trap {
            disk: disk.clone(),
            book: shared.clone(),
            countdown: AtomicU64::new(moment),
            seed: rng.next(),
            sprung: AtomicBool::new(false),
            taken: Mutex::new(None),
        });
        let hook = trap.clone();
        let hooked = hooked(disk.clone(), Arc::new(move |_, _| hook.step()));
        // In every other history most transactions are too large for memory.
        let transaction_bytes = if seed % 2 == 0 { 0 } else { 8000 };
        let options = Options { transaction_bytes, ..by_turns(seed / 2 + generation as u64, options(hooked)) };
        let engine = match Engine::open(Path::new(DIR), options) {
            Ok(engine) => engine,
            Err(e) => panic!("generation {generation}: {e}"),
        };
        let known_before = known.clone();
        if let Some((before, after)) = known.take() {
            book = inspect(&engine, &before, &after);
            if !trap.sprung.load(Ordering::SeqCst) {
                *shared.lock() = book.clone();
            }
        }
        // An image from the time of the opening is judged by what held before it.
        let early = trap.sprung.load(Ordering::SeqCst);
        if !early {
            let left = engine.prepared();
            let mut driver = Driver {
                engine,
                book: shared,
                rng: Rng::new(rng.next()),
                open: (0..4).map(|_| None).collect(),
                left,
                next_xid,
                droppable,
            };
            for _ in 0..700 {
                if trap.sprung.load(Ordering::SeqCst) {
                    break;
                }
                driver.step();
            }
            trap.spring();
            (next_xid, droppable) = (driver.next_xid, driver.droppable + 1);
            drop(driver);
        }
        // Another thread may still be at it.
        let (before, image, after) = loop {
            match trap.taken.lock().take() {
                Some(taken) => break taken,
                None => std::thread::yield_now(),
            }
        };
        known = if early { Some(known_before.unwrap_or_default()) } else { Some((before, after)) };
        disk = image;
    }
    let engine = crate::common::open(&disk).unwrap();
    let (before, after) = known.unwrap();
    inspect(&engine, &before, &after);
}

#[test]
fn what_was_promised_survives_crash_after_crash() {
    for seed in seeds(150) {
        within(&format!("STRATA_SEED={seed}"), 60, move || generations(seed));
    }
}

/// What each thread was promised, and the image.
type Promised = (Vec<u64>, MemDisk);

/// Several threads at once. Each counts its commits in a key of its own and writes down how far it saw the others: after
/// a crash nobody may have seen more than there is.
fn threads(seed: u64) {
    const THREADS: u64 = 4;
    const COUNTER: u32 = 30;
    const DATA: u32 = 31;
    let mut rng = Rng::new(seed);
    let mut disk = MemDisk::new();
    let mut floor = [0u64; THREADS as usize];
    for _ in 0..3 {
        let acked: Arc<Vec<AtomicU64>> = Arc::new(floor.iter().map(|&n| AtomicU64::new(n)).collect());
        let taken: Arc<Mutex<Option<Promised>>> = Arc::default();
        let countdown = Arc::new(AtomicU64::new(50 + rng.below(600)));
        let (image_seed, trapped) = (rng.next(), disk.clone());
        let hook: crate::common::Hook = Arc::new({
            let (acked, taken, countdown) = (acked.clone(), taken.clone(), countdown.clone());
            move |_, _| {
                if countdown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) == Ok(1) {
                    let promised = acked.iter().map(|n| n.load(Ordering::SeqCst)).collect();
                    *taken.lock() = Some((promised, trapped.crash(image_seed)));
                }
            }
        });
        let hooked = hooked(disk.clone(), hook);
        let transaction_bytes = if seed % 2 == 0 { 0 } else { 1500 };
        let options = Options { transaction_bytes, ..by_turns(seed / 2, options(hooked)) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let workers: Vec<_> = (0..THREADS)
            .map(|me| {
                let (engine, acked, countdown) = (engine.clone(), acked.clone(), countdown.clone());
                let (mut rng, mut count) = (Rng::new(rng.next()), floor[me as usize]);
                std::thread::spawn(move || {
                    let mut out = Vec::new();
                    while countdown.load(Ordering::Relaxed) > 0 {
                        count += 1;
                        let point = engine.read_point();
                        let mut seen = count.to_be_bytes().to_vec();
                        for other in 0..THREADS {
                            let there = engine.get_at(&key(COUNTER, other), point.seq(), &mut out).unwrap();
                            seen.extend_from_slice(if there { &out[..8] } else { &[0; 8] });
                        }
                        let mut txn = engine.begin();
                        txn.put(&key(COUNTER, me), &seen).unwrap();
                        // Every commit leaves a mark: none may be missing between those that are there.
                        let bytes = 20 + rng.below(3000);
                        txn.put(&key(DATA, me * 20_000 + count), &value(&mut rng, count, bytes)).unwrap();
                        if rng.chance(40) {
                            txn.prepare(format!("{me}/{count}").as_bytes()).unwrap();
                            txn.commit_ordered();
                            txn.commit().unwrap();
                        } else {
                            txn.commit().unwrap();
                            acked[me as usize].store(count, Ordering::SeqCst);
                        }
                        if rng.chance(3) {
                            engine.flush().unwrap();
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(engine);
        let (promised, image) = loop {
            match taken.lock().take() {
                Some(taken) => break taken,
                None => std::thread::yield_now(),
            }
        };
        disk = image;
        let engine = crate::common::open(&disk).unwrap();
        let counters = dump(&engine, COUNTER, COUNTER + 1).unwrap();
        let number = |bytes: &[u8], at: usize| u64::from_be_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
        let reached: Vec<u64> =
            (0..THREADS).map(|i| counters.get(&key(COUNTER, i)).map_or(0, |v| number(v, 0))).collect();
        let data = dump(&engine, DATA, DATA + 1).unwrap();
        for me in 0..THREADS as usize {
            assert!(reached[me] >= promised[me], "thread {me}: {} promised, {} there", promised[me], reached[me]);
            if let Some(seen) = counters.get(&key(COUNTER, me as u64)) {
                for other in (0..THREADS as usize).filter(|&other| other != me) {
                    assert!(number(seen, other + 1) <= reached[other], "{me} saw more of {other} than there is");
                }
            }
            let range = key(DATA, me as u64 * 20_000)..key(DATA, (me as u64 + 1) * 20_000);
            let marks: Vec<u64> = data.range(range).map(|(_, v)| number(v, 0)).collect();
            assert_eq!(marks, (1..=reached[me]).collect::<Vec<_>>(), "thread {me}");
        }
        for xid in engine.prepared() {
            assert!(engine.rollback_prepared(&xid).unwrap());
        }
        floor.copy_from_slice(&reached);
        drop(engine);
    }
}

#[test]
fn commits_of_many_threads_survive_in_order() {
    for seed in seeds(30) {
        within(&format!("STRATA_SEED={seed}"), 60, move || threads(seed));
    }
}
