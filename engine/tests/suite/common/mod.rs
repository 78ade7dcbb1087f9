//! What the tests of crashes, faults and damage share: a disk with a hook, a generator, a watchdog, small stores.

#![allow(dead_code)] // Every test program uses a part.

pub mod day_clock;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strata_engine::crypt::{KeyProvider, KeyVersion};
use strata_engine::io::{Disk, HookedDisk, MemDisk, Mode, Operation};
use strata_engine::layer::IndexId;
use strata_engine::{Engine, Event, EventListener, Options, Result, Severity};

pub const DIR: &str = "/store";

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small seeded generator.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d | 1);
        for _ in 0..8 {
            rng.next();
        }
        rng
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }
    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// True with `percent` in 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Says which case failed.
pub struct OnFailure(pub String);

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed case: {}", self.0);
        }
    }
}

/// Number of cases: `usual`, times `STRATA_CASES` in hundredths.
pub fn cases(usual: u64) -> u64 {
    let factor = std::env::var("STRATA_CASES").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(100);
    (usual * factor / 100).max(1)
}

/// The seeds to run: `STRATA_SEED` alone if it is set, else as many as there are cases.
pub fn seeds(usual: u64) -> Vec<u64> {
    match std::env::var("STRATA_SEED").ok().and_then(|n| n.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..cases(usual)).collect(),
    }
}

/// Runs a case in a thread of its own; fails if it takes too long or panics.
pub fn within<T: Send + 'static>(what: &str, seconds: u64, case: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || drop(send.send(case())));
    match receive.recv_timeout(Duration::from_secs(seconds)) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => {
                eprintln!("failed case: {what}");
                std::panic::resume_unwind(panic)
            }
            Ok(()) => unreachable!("a thread that ends has sent"),
        },
    }
}

/// A listener that keeps what it is told.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    /// For the options of a store.
    pub fn listener(&self) -> Option<Arc<dyn EventListener>> {
        let events = self.0.clone();
        Some(Arc::new(move |event: &Event| events.lock().unwrap().push(event.clone())))
    }
    /// All so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }
    /// Those of a kind.
    pub fn count(&self, is_one: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| is_one(event)).count()
    }
    /// The lines that an operator reads.
    pub fn lines(&self) -> Vec<String> {
        let events = self.0.lock().unwrap();
        events.iter().filter(|event| event.severity() > Severity::Info).map(Event::to_string).collect()
    }
}

/// What is about to be done to which file.
pub type Hook = Arc<dyn Fn(&str, &Path) + Send + Sync>;

/// The disk, with a hook before every operation that changes something.
pub fn hooked(disk: MemDisk, hook: Hook) -> Arc<dyn Disk> {
    let show = move |operation: Operation, path: &Path| {
        if operation.changes() {
            hook(operation.name(), path);
        }
        Ok(())
    };
    Arc::new(HookedDisk::new(Arc::new(disk), Arc::new(show)))
}

/// Operations on table files.
#[derive(Default)]
pub struct TableCounts {
    pub created: AtomicU64,
    pub synced: AtomicU64,
}

impl TableCounts {
    /// The disk, counting.
    pub fn watch(self: &Arc<TableCounts>, disk: &MemDisk) -> Arc<dyn Disk> {
        let counts = self.clone();
        let hook = Arc::new(move |what: &str, path: &Path| {
            let is_table = path.extension().is_some_and(|extension| extension == "sst");
            let counter = match what {
                "create" if is_table => &counts.created,
                "sync" if is_table => &counts.synced,
                _ => return,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        });
        hooked(disk.clone(), hook)
    }
}

/// Keeps keys whose bytes follow from their names, for tests: versions come, and keys go.
#[derive(Default)]
pub struct TestKeys {
    versions: Mutex<BTreeMap<u32, u32>>,
    /// Keys of which there is this version only.
    only: Mutex<BTreeMap<u32, u32>>,
    /// What the bytes follow from, too.
    seed: Mutex<String>,
}

impl TestKeys {
    /// The first version of some keys.
    pub fn of(ids: &[u32]) -> Arc<TestKeys> {
        let versions = ids.iter().map(|&id| (id, 1)).collect();
        Arc::new(TestKeys { versions: Mutex::new(versions), ..TestKeys::default() })
    }
    /// The newest version of a key from now on; 0: it is gone.
    pub fn set(&self, id: u32, version: u32) {
        let mut versions = self.versions.lock().unwrap();
        match version {
            0 => versions.remove(&id),
            version => versions.insert(id, version),
        };
    }
    /// A key has one version from now on.
    pub fn only(&self, id: u32, version: u32) {
        self.set(id, version);
        self.only.lock().unwrap().insert(id, version);
    }
    /// All keys are others from now on.
    pub fn swap(&self, seed: &str) {
        seed.clone_into(&mut self.seed.lock().unwrap());
    }
}

impl KeyProvider for TestKeys {
    fn latest(&self, id: u32) -> std::result::Result<u32, String> {
        self.versions.lock().unwrap().get(&id).copied().ok_or_else(|| "no such key".to_owned())
    }
    fn key(&self, key: KeyVersion) -> std::result::Result<Vec<u8>, String> {
        let gone = self.only.lock().unwrap().get(&key.id).is_some_and(|only| *only != key.version);
        if gone || self.latest(key.id)? < key.version {
            return Err("no such version".to_owned());
        }
        Ok(format!("key {} {} {}", key.id, key.version, self.seed.lock().unwrap()).into_bytes())
    }
}

/// The same store, encrypted.
pub fn encrypted(options: Options) -> Options {
    Options { encrypt_log: true, encrypt_indexes: true, ..options }
}

/// Every other case is one with encryption; with `STRATA_ENCRYPTED` set all are.
pub fn by_turns(seed: u64, options: Options) -> Options {
    if seed % 2 == 1 { encrypted(options) } else { options }
}

/// Options of a store so small that everything happens.
pub fn options(disk: Arc<dyn Disk>) -> Options {
    let options = plain_options(disk);
    if std::env::var_os("STRATA_ENCRYPTED").is_some() { encrypted(options) } else { options }
}

/// The same, whatever the environment says.
pub fn plain_options(disk: Arc<dyn Disk>) -> Options {
    Options {
        disk,
        // For those that others have encrypted.
        keys: Some(TestKeys::of(&[1])),
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        sst_bytes: 16 << 10,
        compaction_threads: 2,
        ..Options::default()
    }
}

/// A new store on a disk of its own.
pub fn new_store() -> (MemDisk, Engine) {
    let disk = MemDisk::new();
    let engine = open(&disk).unwrap();
    (disk, engine)
}

pub fn open(disk: &MemDisk) -> Result<Engine> {
    Engine::open(Path::new(DIR), options(Arc::new(disk.clone())))
}

pub fn key(index: u32, k: u64) -> Vec<u8> {
    [&IndexId(index).prefix()[..], format!("{k:05}").as_bytes()].concat()
}

/// Everything in the indexes `[from, to)`.
pub fn dump(engine: &Engine, from: u32, to: u32) -> Result<Map> {
    let (lower, upper) = (IndexId(from).prefix(), IndexId(to).prefix());
    let txn = engine.begin();
    let point = engine.read_point();
    let mut cursor = engine.cursor();
    cursor.open(&txn, point.seq(), &lower, &upper)?;
    let mut map = Map::new();
    cursor.seek_ge(&txn, &lower)?;
    while cursor.valid() {
        map.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next(&txn)?;
    }
    Ok(map)
}

/// A value that tells where it comes from and does not compress to nothing.
pub fn value(rng: &mut Rng, tag: u64, bytes: u64) -> Vec<u8> {
    let mut value = tag.to_be_bytes().to_vec();
    while (value.len() as u64) < bytes {
        value.extend_from_slice(&rng.next().to_le_bytes());
    }
    value
}

/// Waits until the background has done something, long enough for a machine that is busy.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Copies a folder of the machine onto `disk`, durably.
pub fn copy(from: &Path, disk: &MemDisk, to: &Path) {
    disk.create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, disk, &target);
        } else {
            let file = disk.open(&target, Mode::Create, false).unwrap();
            file.write_all_at(&std::fs::read(&path).unwrap(), 0).unwrap();
            file.sync_data().unwrap();
        }
    }
    disk.sync_dir(to).unwrap();
}

/// The SSTs in the directory are those that the store names, once what goes has gone.
pub fn no_orphans(engine: &Engine, disk: &MemDisk) {
    let there = || {
        let names = disk.list(Path::new(DIR)).unwrap();
        names.iter().filter(|name| name.extension().is_some_and(|end| end == "sst")).count() as u64
    };
    let named = || engine.metrics().level_files.iter().sum::<u64>();
    for _ in 0..500 {
        if there() == named() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} files are there, {} are named", there(), named());
}

/// What is left of transactions and cursors, but for long values in buffers: they are counted for the whole process, and
/// other tests hold some.
pub fn left_behind(engine: &Engine) -> Vec<(&'static str, u64)> {
    let left = engine.metrics().left_behind();
    left.into_iter().filter(|(name, _)| *name != "memory_value_buffer_bytes").collect()
}
