//! What the tests of crashes, faults and damage share: a disk with a hook, a generator, a watchdog, small stores.

#![allow(dead_code)] // Every test program uses a part.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use strata_engine::io::{Disk, File, MemDisk, Mode};
use strata_engine::layer::IndexId;
use strata_engine::{Engine, Options, Result};

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

/// What is about to be done to which file.
pub type Hook = Arc<dyn Fn(&str, &Path) + Send + Sync>;

/// A disk that calls a hook before every operation that changes something.
pub struct HookDisk {
    pub inner: MemDisk,
    pub hook: Hook,
}

struct HookFile {
    inner: Arc<dyn File>,
    hook: Hook,
}

impl Disk for HookDisk {
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> Result<Arc<dyn File>> {
        if mode == Mode::Create {
            (self.hook)("create", path);
        }
        let inner = self.inner.open(path, mode, direct)?;
        Ok(Arc::new(HookFile { inner, hook: self.hook.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        (self.hook)("rename", from);
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        (self.hook)("remove", path);
        self.inner.remove(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.inner.list(dir)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.inner.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        (self.hook)("sync directory", dir);
        self.inner.sync_dir(dir)
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        self.inner.lock_dir(dir)
    }
}

impl File for HookFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        (self.hook)("write", self.path());
        self.inner.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> Result<()> {
        (self.hook)("sync", self.path());
        self.inner.sync_data()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        (self.hook)("truncate", self.path());
        self.inner.set_len(len)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        (self.hook)("allocate", self.path());
        self.inner.allocate(len)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
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
        Arc::new(HookDisk { inner: disk.clone(), hook })
    }
}

/// Options of a store so small that everything happens.
pub fn options(disk: Arc<dyn Disk>) -> Options {
    Options {
        disk,
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        sst_bytes: 16 << 10,
        compaction_threads: 2,
        ..Options::default()
    }
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
