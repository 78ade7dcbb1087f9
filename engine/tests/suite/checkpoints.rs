//! Checkpoints: each is a store as the source was at one moment, whatever the source does meanwhile and later, and whatever fails;
//! what is not complete is refused.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{DIR, Map, Rng, by_turns, dump, eventually, hooked, key, options, seeds, value, within};
use parking_lot::Mutex;
use strata_engine::io::{Disk, FaultKind, HookedDisk, MemDisk, Operation};
use strata_engine::layer::{IndexId, SeqNo};
use strata_engine::{Engine, Error, Options};

const INDEX: u32 = 16;
/// Indexes that large transactions write to.
const LARGE: u32 = 100;
const COPY: &str = "/copy";

fn copy_dir() -> &'static Path {
    Path::new(COPY)
}

/// Large transactions spill, and nothing else is flushed that nobody asked for.
fn roomy(disk: Arc<dyn Disk>) -> Options {
    Options { memtable_budget_bytes: 16 << 20, transaction_bytes: 40_000, ..options(disk) }
}

fn open_at(dir: &str, disk: &MemDisk) -> strata_engine::Result<Engine> {
    Engine::open(Path::new(dir), roomy(Arc::new(disk.clone())))
}

fn content(engine: &Engine) -> Map {
    dump(engine, 0, u32::MAX).unwrap()
}

fn fill(engine: &Engine, rng: &mut Rng, keys: std::ops::Range<u64>, bytes: u64) {
    for k in keys {
        engine.write(&[(key(INDEX, k), Some(value(rng, k, bytes)))], true).unwrap();
    }
}

/// Writes so much that it spills.
fn write_large(engine: &Engine, rng: &mut Rng, index: u32, prepare: Option<&[u8]>) {
    let mut txn = engine.begin();
    for k in 0..60 {
        txn.put(&key(index, k), &value(rng, k, 2500)).unwrap();
    }
    match prepare {
        Some(xid) => txn.prepare(xid).unwrap(),
        None => txn.commit().unwrap(),
    }
}

/// A store with rows in files and in the log, a large transaction that is committed and not flushed, and a small and a large one that
/// are prepared.
fn fill_store(engine: &Engine, seed: u64) {
    let mut rng = Rng::new(seed);
    fill(engine, &mut rng, 0..40, 3000);
    write_large(engine, &mut rng, LARGE, None);
    engine.flush().unwrap();
    let mut txn = engine.begin();
    txn.put(&key(INDEX, 999), b"prepared").unwrap();
    txn.prepare(b"small").unwrap();
    drop(txn);
    write_large(engine, &mut rng, LARGE + 1, Some(b"large"));
    write_large(engine, &mut rng, LARGE + 2, None);
    fill(engine, &mut rng, 20..24 + seed % 17, 3500);
}

/// The copy has this content and both prepared transactions, of which one is committed and the other rolled back, and goes on.
fn judge(dir: &str, disk: &MemDisk, expected: &Map, case: &str) {
    for round in 0..2 {
        let copy = disk.copy();
        let engine = open_at(dir, &copy).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(content(&engine) == *expected, "{case}: the content differs");
        assert_eq!(engine.prepared(), [&b"large"[..], b"small"], "{case}");
        let (commit, undo): (&[u8], &[u8]) = if round == 0 { (b"large", b"small") } else { (b"small", b"large") };
        assert!(engine.commit_prepared(commit).unwrap() && engine.rollback_prepared(undo).unwrap(), "{case}");
        let more = if round == 0 { 60 } else { 1 };
        engine.write(&[(key(INDEX, 5000), Some(b"more".to_vec()))], true).unwrap();
        engine.compact_range(&[0; 4], &[0xff; 4]).unwrap();
        engine.close().unwrap();
        drop(engine);
        let engine = open_at(dir, &copy).unwrap_or_else(|e| panic!("{case}, again: {e}"));
        assert_eq!(content(&engine).len(), expected.len() + more + 1, "{case}, again");
    }
}

fn names(disk: &MemDisk, dir: &Path, end: &str) -> Vec<PathBuf> {
    let names = disk.list(dir).unwrap();
    names.into_iter().filter(|name| name.extension().is_some_and(|e| e == end)).collect()
}

#[test]
fn a_checkpoint_is_the_store_at_its_moment() {
    for seed in seeds(24) {
        within(&format!("seed {seed}"), 60, move || {
            let disk = MemDisk::new();
            let engine = open_at(DIR, &disk).unwrap();
            fill_store(&engine, seed);
            let mut checkpoint = engine.begin_checkpoint(copy_dir(), &|| Ok(())).unwrap();
            let mut rng = Rng::new(seed + 100);
            // What comes before the moment is in it.
            fill(&engine, &mut rng, 100..103, 1000);
            write_large(&engine, &mut rng, LARGE + 3, None);
            let expected = content(&engine);
            checkpoint.fix().unwrap();
            // What comes behind is not, and may throw away what the copy needs.
            fill(&engine, &mut rng, 0..30, 3000);
            write_large(&engine, &mut rng, LARGE + 4, None);
            engine.drop_indexes(&[IndexId(LARGE), IndexId(LARGE + 3)]).unwrap();
            assert!(engine.rollback_prepared(b"large").unwrap() && engine.commit_prepared(b"small").unwrap());
            engine.flush().unwrap();
            engine.compact_range(&[0; 4], &[0xff; 4]).unwrap();
            let size = checkpoint.finish(b"a note", &|| Ok(())).unwrap();
            assert_eq!(disk.content(&copy_dir().join("CHECKPOINT")).unwrap(), b"a note");
            assert_eq!(size.copied_bytes, 0);
            assert_eq!(names(&disk, copy_dir(), "sst").len() as u64, size.files);
            let source = content(&engine);
            judge(COPY, &disk, &expected, "the copy");
            judge(COPY, &disk.crash(seed), &expected, "the copy after a power cut");
            // A copy of the copy, while it is open beside the source.
            let clone = open_at(COPY, &disk).unwrap();
            clone.checkpoint(Path::new("/second")).unwrap();
            fill(&clone, &mut rng, 0..5, 100);
            judge("/second", &disk, &expected, "the copy of the copy");
            drop(clone);
            assert!(content(&engine) == source, "the source has changed");
            engine.close().unwrap();
            drop(engine);
            assert!(content(&open_at(DIR, &disk).unwrap()) == source, "the source, opened again");
        });
    }
}

/// Enough to go on beside a checkpoint from its begin to its end.
const TRANSACTIONS_OF_ROUND: u64 = 3000;

/// Writers, flushes, merges, drops and prepared transactions go on; what is moved between two keys is never seen on its way.
#[test]
fn checkpoints_under_load_are_moments() {
    for seed in seeds(2) {
        within(&format!("seed {seed}"), 120, move || {
            let disk = MemDisk::new();
            let options = Options { transaction_bytes: 40_000, ..by_turns(seed, options(Arc::new(disk.clone()))) };
            let engine = Engine::open(Path::new(DIR), options).unwrap();
            let (stop, committed, allowed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
            let accounts = |n: u64| key(INDEX, n);
            let zero: Vec<_> = (0..20).map(|n| (accounts(n), Some(1000u64.to_be_bytes().to_vec()))).collect();
            engine.write(&zero, true).unwrap();
            let number = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
            std::thread::scope(|scope| {
                let (engine, stop, committed, allowed, disk) = (&engine, &stop, &committed, &allowed, &disk);
                // One counts in a row that no other writes, and moves between accounts: order and sum are known.
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    let mut sums = [1000u64; 20];
                    for n in 1.. {
                        // A copy is of all rows there are: without a bound each round would take longer than the one before.
                        while n > allowed.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let (from, to) = (rng.below(20), rng.below(20));
                        let amount = rng.below(sums[from as usize] + 1);
                        sums[from as usize] -= amount;
                        sums[to as usize] += amount;
                        let mut txn = engine.begin();
                        for account in [from, to] {
                            txn.put(&accounts(account), &sums[account as usize].to_be_bytes()).unwrap();
                        }
                        txn.put(&key(INDEX, 900), &u64::to_be_bytes(n)).unwrap();
                        txn.put(&key(INDEX + 1, n), &value(&mut rng, n, 200)).unwrap();
                        if n % 3 == 0 {
                            txn.prepare(format!("t{n}").as_bytes()).unwrap();
                        }
                        txn.commit().unwrap();
                        committed.store(n, Ordering::Release);
                    }
                });
                scope.spawn(move || {
                    let mut rng = Rng::new(seed + 7);
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let index = LARGE + n;
                        write_large(engine, &mut rng, index, (n % 2 == 0).then_some(&b"big"[..]));
                        if n % 2 == 0 {
                            assert!(engine.rollback_prepared(b"big").unwrap());
                        }
                        engine.drop_indexes(&[IndexId(index)]).unwrap();
                    }
                });
                for round in 0..12 {
                    let dir = format!("/copy{round}");
                    allowed.store((round + 1) * TRANSACTIONS_OF_ROUND, Ordering::Relaxed);
                    let before = committed.load(Ordering::Acquire);
                    engine.checkpoint(Path::new(&dir)).unwrap_or_else(|e| panic!("{dir}: {e}"));
                    let after = committed.load(Ordering::Acquire) + 1;
                    let copy = open_at(&dir, &disk.crash(seed)).unwrap_or_else(|e| panic!("{dir}: {e}"));
                    let map = dump(&copy, INDEX, INDEX + 2).unwrap();
                    let sum: u64 = (0..20).map(|n| number(&map[&accounts(n)])).sum();
                    assert_eq!(sum, 20_000, "{dir}");
                    let count = map.get(&key(INDEX, 900)).map_or(0, |bytes| number(bytes));
                    assert!((before..=after).contains(&count), "{dir}: {count} is not within {before}..={after}");
                    let rows = map.range(key(INDEX + 1, 0)..).count() as u64;
                    assert_eq!(rows, count, "{dir}: each transaction is there as a whole");
                    engine.flush().unwrap();
                }
                stop.store(true, Ordering::Relaxed);
            });
        });
    }
}

/// A power cut at every operation: the copy is the store, or is refused. The source loses nothing.
#[test]
fn a_crash_at_every_operation_leaves_a_whole_copy_or_none() {
    for seed in seeds(6) {
        within(&format!("seed {seed}"), 120, move || {
            let disk = MemDisk::new();
            let images: Arc<Mutex<Vec<(String, MemDisk)>>> = Arc::default();
            let (taken, from, count) = (images.clone(), disk.clone(), AtomicU64::new(seed));
            let watched = Arc::new(AtomicBool::new(false));
            let is_watched = watched.clone();
            let hook: crate::common::Hook = Arc::new(move |what, path| {
                if is_watched.load(Ordering::Relaxed) {
                    let image = from.crash(count.fetch_add(1, Ordering::Relaxed));
                    taken.lock().push((format!("{what} {}", path.display()), image));
                }
            });
            let engine = Engine::open(Path::new(DIR), roomy(hooked(disk.clone(), hook))).unwrap();
            fill_store(&engine, seed);
            let expected = content(&engine);
            watched.store(true, Ordering::Relaxed);
            engine.checkpoint(copy_dir()).unwrap();
            watched.store(false, Ordering::Relaxed);
            let images = std::mem::take(&mut *images.lock());
            let (mut whole, mut refused) = (0, 0);
            for (what, image) in &images {
                let case = format!("seed {seed}, before {what}");
                judge(DIR, image, &expected, &format!("{case}: source"));
                if !image.exists(&copy_dir().join("CHECKPOINT")).unwrap() {
                    // Nothing says that a checkpoint was begun, and nothing of one is there.
                    let is_there = image.exists(copy_dir()).unwrap();
                    assert!(!is_there || names(image, copy_dir(), "sst").is_empty(), "{case}");
                    continue;
                }
                match image.exists(&copy_dir().join("CURRENT")).unwrap() {
                    true => {
                        judge(COPY, image, &expected, &case);
                        whole += 1;
                    }
                    false => {
                        let error = open_at(COPY, image).err().unwrap_or_else(|| panic!("{case}: opened"));
                        assert!(error.to_string().contains("was not finished"), "{case}: {error}");
                        refused += 1;
                    }
                }
            }
            judge(COPY, &disk.crash(seed), &expected, "complete");
            assert!(refused > 10 && images.len() > 20, "{refused} of {} refused, {whole} whole", images.len());
        });
    }
}

/// Each operation fails, once or from then on: there is no copy, and where its files could be removed nothing of it. The source goes on.
#[test]
fn any_operation_of_a_checkpoint_may_fail() {
    for (kind, lasting) in [(FaultKind::Other, false), (FaultKind::StorageFull, true), (FaultKind::TooManyFiles, true)]
    {
        for n in 1.. {
            let case = format!("operation {n} fails ({kind:?}, lasting {lasting})");
            let (name, fails) = (case.clone(), move || {
                let disk = MemDisk::new();
                let engine = open_at(DIR, &disk).unwrap();
                fill_store(&engine, n);
                let expected = content(&engine);
                match lasting {
                    true => disk.fail_from(n, kind),
                    false => disk.fail_after(n, kind),
                }
                let made = engine.checkpoint(copy_dir());
                let has_struck = disk.struck().is_some();
                disk.clear_fault();
                match &made {
                    Ok(_) => judge(COPY, &disk, &expected, &case),
                    Err(_) if disk.exists(copy_dir()).unwrap() => {
                        let left = disk.list(copy_dir()).unwrap();
                        assert!(lasting || left.len() <= 1, "{case}: left are {left:?}");
                        let is_complete = disk.exists(&copy_dir().join("CURRENT")).unwrap();
                        assert!(!is_complete, "{case}: an error, and a copy");
                        assert!(left.is_empty() || open_at(COPY, &disk).is_err(), "{case}: opened");
                    }
                    Err(_) => {}
                }
                if engine.check().is_ok() {
                    assert!(content(&engine) == expected, "{case}");
                    if made.is_err() {
                        engine.checkpoint(Path::new("/again")).unwrap_or_else(|e| panic!("{case}, again: {e}"));
                        judge("/again", &disk, &expected, &case);
                    }
                }
                drop(engine);
                judge(DIR, &disk, &expected, &case);
                has_struck
            });
            if !within(&name, 60, fails) {
                assert!(n > 5, "only {n} operations");
                break;
            }
        }
    }
}

/// Where a file cannot get a second name it is copied.
#[test]
fn another_file_system_gets_copies() {
    let disk = MemDisk::new();
    let hook = |operation, path: &Path| match operation {
        Operation::Link => Err(Error::io("link", path, io::ErrorKind::CrossesDevices.into())),
        _ => Ok(()),
    };
    let other = HookedDisk::new(Arc::new(disk.clone()), Arc::new(hook));
    let engine = Engine::open(Path::new(DIR), roomy(Arc::new(other))).unwrap();
    fill_store(&engine, 5);
    let expected = content(&engine);
    let before = disk.used();
    let size = engine.checkpoint(copy_dir()).unwrap();
    assert!(size.files > 2 && size.copied_bytes == size.file_bytes, "{size:?}");
    assert!(disk.used() - before >= size.file_bytes + size.log_bytes);
    judge(COPY, &disk.crash(1), &expected, "copied");
}

/// The real disk, with real hard links: the copy takes no space for its table files, and outlives the source. Segments of the log, which are
/// written over when they are used again, are copies.
#[test]
fn a_checkpoint_on_the_real_disk() {
    use std::os::unix::fs::MetadataExt;
    let root = tempfile::tempdir().unwrap();
    let (store, copy) = (root.path().join("store"), root.path().join("copy"));
    let options = || Options { memtable_budget_bytes: 16 << 20, transaction_bytes: 40_000, ..Options::default() };
    let engine = Engine::open(&store, options()).unwrap();
    fill_store(&engine, 3);
    let expected = content(&engine);
    let size = engine.checkpoint(&copy).unwrap();
    assert_eq!(size.copied_bytes, 0);
    let names_of = |dir: &Path, end: &str| {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.extension().is_some_and(|e| e == end));
        files.map(|path| std::fs::metadata(path).unwrap().nlink()).collect::<Vec<_>>()
    };
    let (tables, segments) = (names_of(&copy, "sst"), names_of(&copy.join("log"), "log"));
    assert_eq!(tables.len() as u64, size.files);
    assert!(tables.iter().all(|&names| names == 2), "{tables:?}");
    assert!(!segments.is_empty() && segments.iter().all(|&names| names == 1), "{segments:?}");
    drop(engine);
    std::fs::remove_dir_all(&store).unwrap();
    let engine = Engine::open(&copy, options()).unwrap();
    assert!(content(&engine) == expected);
    assert_eq!(engine.prepared(), [&b"large"[..], b"small"]);
}

/// Neither how much the store has nor how much is in memory makes the opening of a copy long: it reads a part of the log.
#[test]
fn a_copy_opens_at_once() {
    let opened = |rows: u64| {
        let disk = MemDisk::new();
        let engine = open_at(DIR, &disk).unwrap();
        let mut rng = Rng::new(rows);
        for first in (0..rows).step_by(100) {
            let rows: Vec<_> = (first..first + 100).map(|k| (key(INDEX, k), Some(value(&mut rng, k, 500)))).collect();
            engine.write(&rows, false).unwrap();
        }
        let size = engine.checkpoint(copy_dir()).unwrap();
        let before = disk.counters().bytes_read;
        let copy = open_at(COPY, &disk).unwrap();
        let mut out = Vec::new();
        assert!(copy.get_at(&key(INDEX, rows - 1), SeqNo::MAX, &mut out).unwrap());
        (size, disk.counters().bytes_read - before)
    };
    let (_, little) = opened(100);
    let (size, much) = opened(20_000);
    assert!(size.file_bytes > 5 << 20, "{size:?}");
    assert!(
        size.log_bytes <= 64 << 10 && much < little + (512 << 10),
        "{much} bytes were read, {little} of a small store"
    );
}

/// While a checkpoint is being made no file goes and no segment of the log; afterwards they do.
#[test]
fn what_a_checkpoint_holds_is_freed() {
    let disk = MemDisk::new();
    let engine = open_at(DIR, &disk).unwrap();
    fill_store(&engine, 2);
    assert!(engine.commit_prepared(b"small").unwrap() && engine.commit_prepared(b"large").unwrap());
    let log_dir = Path::new(DIR).join("log");
    let is_pooled = |name: &Path| name.to_str().unwrap().starts_with("recycle");
    let segments = || names(&disk, &log_dir, "log").iter().filter(|name| !is_pooled(name)).count();
    for is_finished in [false, true] {
        let mut checkpoint = engine.begin_checkpoint(copy_dir(), &|| Ok(())).unwrap();
        checkpoint.fix().unwrap();
        let held: Vec<PathBuf> = names(&disk, Path::new(DIR), "sst");
        let mut rng = Rng::new(9);
        for _ in 0..4 {
            fill(&engine, &mut rng, 0..40, 3000);
            engine.compact_range(&[0; 4], &[0xff; 4]).unwrap();
        }
        assert!(engine.metrics().level_files.iter().sum::<u64>() < names(&disk, Path::new(DIR), "sst").len() as u64);
        assert!(held.iter().all(|name| disk.exists(&Path::new(DIR).join(name)).unwrap()));
        let before = segments();
        assert!(before > 7, "{before} segments");
        match is_finished {
            true => drop(checkpoint.finish(b"", &|| Ok(())).unwrap()),
            false => drop(checkpoint),
        }
        assert_eq!(disk.exists(copy_dir()).unwrap(), is_finished);
        fill(&engine, &mut rng, 0..1, 3000);
        engine.flush().unwrap();
        assert!(segments() < before, "{} segments of {before}", segments());
        let named = || engine.metrics().level_files.iter().sum::<u64>();
        eventually("obsolete files go", || names(&disk, Path::new(DIR), "sst").len() as u64 == named());
    }
}

#[test]
fn a_wrong_place_or_order_is_refused() {
    let (disk, engine) = crate::common::new_store();
    disk.create_dir_all(Path::new("/there")).unwrap();
    let refused = |dir: &str| match engine.checkpoint(Path::new(dir)) {
        Err(Error::Invalid(what)) => what,
        other => panic!("{dir}: {other:?}"),
    };
    assert!(refused("/there").ends_with("exists already"));
    for within in ["/store", "/store/copy", "/store/log/checkpoint", "/store/MANIFEST-000009"] {
        refused(within);
    }
    assert!(refused("/nowhere/copy").ends_with("no directory to make it in"));
    assert!(engine.begin_checkpoint(copy_dir(), &|| Err(Error::Interrupted)).is_err());
    let begun = engine.begin_checkpoint(copy_dir(), &|| Ok(())).unwrap();
    assert!(matches!(begun.finish(b"", &|| Ok(())), Err(Error::Invalid(_))));
    let mut begun = engine.begin_checkpoint(copy_dir(), &|| Ok(())).unwrap();
    begun.fix().unwrap();
    assert!(matches!(begun.fix(), Err(Error::Invalid(_))));
    drop(begun);
    assert!(!disk.exists(copy_dir()).unwrap());
    assert!(disk.list(Path::new("/there")).unwrap().is_empty());
    // In the store's own directory the name tells what it is. It is in nobody's way there.
    engine.write(&[(key(INDEX, 1), Some(b"within".to_vec()))], true).unwrap();
    engine.checkpoint(Path::new("/store/checkpoint-1")).unwrap();
    engine.write(&[(key(INDEX, 1), None)], true).unwrap();
    assert_eq!(content(&open_at("/store/checkpoint-1", &disk).unwrap()).len(), 1);
    engine.close().unwrap();
    drop(engine);
    let engine = crate::common::open(&disk).unwrap();
    // An empty store has a copy, too.
    engine.checkpoint(copy_dir()).unwrap();
    assert!(content(&open_at(COPY, &disk).unwrap()).is_empty());
}

/// A clone opens at once, whatever its size: what opening reads does not grow with the data.
#[test]
fn opening_a_clone_reads_little_however_large_it_is() {
    let read = |keys: u64| {
        let disk = MemDisk::new();
        let engine = open_at(DIR, &disk).unwrap();
        let mut rng = Rng::new(7);
        for begin in (0..keys).step_by(500) {
            fill(&engine, &mut rng, begin..begin + 500, 1000);
            engine.flush().unwrap();
        }
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        engine.checkpoint(copy_dir()).unwrap();
        let size: u64 = disk
            .list(copy_dir())
            .unwrap()
            .iter()
            .filter_map(|name| disk.content(&copy_dir().join(name)))
            .map(|c| c.len() as u64)
            .sum();
        engine.close().unwrap();
        drop(engine);
        let before = disk.counters().bytes_read;
        let clone = open_at(COPY, &disk).unwrap();
        let read = disk.counters().bytes_read - before;
        assert_eq!(content(&clone).len() as u64, keys);
        (size, read)
    };
    let (small_size, small) = read(1000);
    let (large_size, large) = read(16_000);
    assert!(large_size > 8 * small_size, "{small_size} and {large_size} bytes");
    // The manifest has a line for each file.
    assert!(large < small + large_size / 50, "opening {small_size} bytes reads {small}, {large_size} bytes {large}");
}
