//! External sorts, keys that threads note, and entries that become files of the last level as they are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{DIR, Map, Rng, dump, key, left_behind, no_orphans, options, value};
use parking_lot::Mutex;
use strata_engine::io::{FaultKind, MemDisk};
use strata_engine::layer::{CrashPoint, IndexId, NotedKeys, SameKey};
use strata_engine::{Engine, Error, Options, Result};

const FIRST: u32 = 100;

fn small(disk: &MemDisk) -> Options {
    Options { transaction_bytes: 8 << 10, ..options(Arc::new(disk.clone())) }
}

fn open(disk: &MemDisk) -> Engine {
    Engine::open(Path::new(DIR), small(disk)).unwrap()
}

fn quiet() -> Result<()> {
    Ok(())
}

/// Entries of some indexes, in random order.
fn entries(rng: &mut Rng, count: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut map = Map::new();
    while (map.len() as u64) < count {
        let bytes = if rng.chance(1) { 2000 } else { rng.below(40) };
        map.insert(key(FIRST + rng.below(3) as u32, rng.below(90_000)), value(rng, 7, bytes));
    }
    let mut all: Vec<_> = map.into_iter().collect();
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at as u64 + 1) as usize);
    }
    all
}

#[test]
fn entries_come_out_in_order_whether_they_fit_in_memory_or_not() {
    for count in [0, 1, 50, 20_000] {
        let disk = MemDisk::new();
        let engine = open(&disk);
        let all = entries(&mut Rng::new(count), count);
        let mut sorter = engine.sorter();
        all.iter().for_each(|(key, value)| sorter.put(key, value, &quiet).unwrap());
        assert_eq!(sorter.entries(), count);
        let spilled = engine.metrics().work.spill_bytes > 0;
        assert_eq!(spilled, count == 20_000);
        let mut expected: Vec<_> = all.clone();
        expected.sort();
        let mut found = Vec::new();
        let each = |key: &[u8], value: &[u8]| -> Result<()> {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        };
        sorter.each(&quiet, each).unwrap();
        assert!(found == expected, "{count}");
        no_orphans(&engine, &disk);
        let left = left_behind(&engine);
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn of_one_key_all_values_come_out_the_newest_first() {
    let disk = MemDisk::new();
    let engine = open(&disk);
    let mut sorter = engine.sorter();
    let large = vec![9; 3 << 20];
    let mut expected: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for n in 0..3000_usize {
        let key = key(FIRST, n as u64 % 700);
        let bytes = match n {
            1500 => {
                sorter.put(&key, &large, &quiet).unwrap();
                large.len()
            }
            n => {
                sorter.put(&key, &vec![1; n % 60], &quiet).unwrap();
                n % 60
            }
        };
        expected.entry(key).or_default().insert(0, bytes);
    }
    let mut found: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    let each = |key: &[u8], value: &[u8]| -> Result<()> {
        found.entry(key.to_vec()).or_default().push(value.len());
        Ok(())
    };
    sorter.each(&quiet, each).unwrap();
    assert!(found == expected);
}

#[test]
fn ingested_entries_lie_in_the_last_level_and_survive_a_crash() {
    let disk = MemDisk::new();
    let engine = open(&disk);
    let mut rng = Rng::new(1);
    let all = entries(&mut rng, 20_000);
    let mut sorter = engine.sorter();
    all.iter().for_each(|(key, value)| sorter.put(key, value, &quiet).unwrap());
    let point = engine.read_point();
    assert_eq!(sorter.ingest(point.seq(), &quiet).unwrap(), None);
    drop(point);
    let metrics = engine.metrics();
    assert_eq!(metrics.level_files[..6], [0; 6]);
    assert!(metrics.level_files[6] > 3);
    let mut expected: Map = all.into_iter().collect();
    assert!(dump(&engine, FIRST, FIRST + 3).unwrap() == expected);
    // What comes later lies above.
    let (first, last) = (expected.keys().next().unwrap().clone(), expected.keys().next_back().unwrap().clone());
    engine.write(&[(first.clone(), None), (last.clone(), Some(b"new".to_vec()))], true).unwrap();
    expected.remove(&first);
    expected.insert(last, b"new".to_vec());
    assert!(dump(&engine, FIRST, FIRST + 3).unwrap() == expected);
    let image = disk.crash(1);
    let again = open(&image);
    assert!(dump(&again, FIRST, FIRST + 3).unwrap() == expected);
    again.compact_range(&IndexId(FIRST).prefix(), &IndexId(FIRST + 3).prefix()).unwrap();
    assert!(dump(&again, FIRST, FIRST + 3).unwrap() == expected);
    again.drop_indexes(&[0, 1, 2].map(|n| IndexId(FIRST + n))).unwrap();
    assert!(dump(&again, FIRST, FIRST + 3).unwrap().is_empty());
    no_orphans(&again, &image);
}

#[test]
fn two_entries_with_one_key_are_told_and_nothing_is_ingested() {
    for count in [10, 20_000] {
        let disk = MemDisk::new();
        let engine = open(&disk);
        let mut all = entries(&mut Rng::new(3), count);
        let twice = all[count as usize / 2].0.clone();
        all.push((twice.clone(), b"another".to_vec()));
        let mut sorter = engine.sorter();
        all.iter().for_each(|(key, value)| sorter.put(key, value, &quiet).unwrap());
        let Some(SameKey { key, value }) = sorter.ingest(engine.visible(), &quiet).unwrap() else {
            panic!("it was not noticed");
        };
        assert!(all.contains(&(key.clone(), value)) && key == twice);
        assert!(dump(&engine, FIRST, FIRST + 3).unwrap().is_empty());
        no_orphans(&engine, &disk);
    }
}

/// Each operation of the disk fails in turn, each question whether to go on is answered no: the entries are all there or none, and no
/// file is left.
#[test]
fn an_ingest_that_fails_leaves_all_or_nothing() {
    let all = entries(&mut Rng::new(4), 2000);
    let expected: Map = all.iter().cloned().collect();
    let (mut whole, mut none) = (0, 0);
    for kind in [FaultKind::StorageFull, FaultKind::Other] {
        for n in 1.. {
            let disk = MemDisk::new();
            let engine = open(&disk);
            disk.fail_from(n, kind);
            let mut sorter = engine.sorter();
            let put = all.iter().try_for_each(|(key, value)| sorter.put(key, value, &quiet));
            let seq = engine.visible();
            let outcome = put.and_then(|()| sorter.ingest(seq, &quiet));
            let struck = disk.struck().is_some();
            let image = disk.crash(n);
            disk.clear_fault();
            drop(engine.close());
            drop(engine);
            for disk in [&image, &disk] {
                let engine = open(disk);
                let found = dump(&engine, FIRST, FIRST + 3).unwrap();
                assert!(found == expected || found.is_empty() && outcome.is_err(), "{kind:?} {n}: {outcome:?}");
                if found.is_empty() {
                    none += 1
                } else {
                    whole += 1
                }
                no_orphans(&engine, disk);
            }
            if !struck {
                break;
            }
        }
    }
    assert!(whole > 0 && none > 0, "{whole} {none}");
    let disk = MemDisk::new();
    let engine = open(&disk);
    for n in 0.. {
        let left = AtomicU64::new(n);
        let tick = || match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Interrupted),
        };
        let mut sorter = engine.sorter();
        let put = all.iter().try_for_each(|(key, value)| sorter.put(key, value, &tick));
        match put.and_then(|()| sorter.ingest(engine.visible(), &tick)) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, Error::Interrupted), "{error:?}"),
        }
        assert!(dump(&engine, FIRST, FIRST + 3).unwrap().is_empty(), "{n}");
    }
    assert!(dump(&engine, FIRST, FIRST + 3).unwrap() == expected);
    no_orphans(&engine, &disk);
}

#[test]
fn a_crash_before_the_manifest_names_the_files_leaves_none_of_them() {
    let all = entries(&mut Rng::new(5), 2000);
    for (point, is_there) in [(CrashPoint::IngestWritten, false), (CrashPoint::Ingested, true)] {
        let disk = MemDisk::new();
        let image = Arc::new(Mutex::new(None));
        let (taken, watched) = (image.clone(), disk.clone());
        let hook = move |reached| {
            if reached == point {
                *taken.lock() = Some(watched.crash(1));
            }
        };
        let options = Options { on_crash_point: Some(Arc::new(hook)), ..small(&disk) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let mut sorter = engine.sorter();
        all.iter().for_each(|(key, value)| sorter.put(key, value, &quiet).unwrap());
        sorter.ingest(engine.visible(), &quiet).unwrap();
        let image = image.lock().take().unwrap();
        let again = open(&image);
        assert_eq!(!dump(&again, FIRST, FIRST + 3).unwrap().is_empty(), is_there, "{}", point.name());
        no_orphans(&again, &image);
    }
}

/// An empty store, and keys that are noted in it.
fn noting() -> (MemDisk, Engine, NotedKeys) {
    let disk = MemDisk::new();
    let engine = open(&disk);
    let noted = engine.noted_keys();
    (disk, engine, noted)
}

#[test]
fn keys_that_threads_note_are_taken_at_least_once_each() {
    let (disk, engine, noted) = noting();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let noted = &noted;
            scope.spawn(move || (0..40_000).for_each(|n| noted.note(&key(FIRST, thread * 1000 + n % 20_000))));
        }
    });
    assert!(noted.count() < 100_000, "those that come again are left out: {}", noted.count());
    let mut found = Vec::new();
    let taken = noted.take().unwrap();
    assert_eq!(noted.count(), 0);
    noted.note(&key(FIRST, 5));
    let each = |key: &[u8], _: &[u8]| -> Result<()> {
        found.push(key.to_vec());
        Ok(())
    };
    taken.each(&quiet, each).unwrap();
    assert!(found.is_sorted());
    found.dedup();
    assert!(found == (0..22_000).map(|n| key(FIRST, n)).collect::<Vec<_>>());
    assert_eq!(noted.take().unwrap().entries(), 1);
    no_orphans(&engine, &disk);
}

/// To note never fails; who takes the keys is told what was lost.
#[test]
fn a_full_disk_is_an_error_of_who_takes_the_keys() {
    let (disk, _engine, noted) = noting();
    disk.fail_from(1, FaultKind::StorageFull);
    (0..200_000).for_each(|n| noted.note(&key(FIRST, n)));
    let error = noted.take().err().unwrap();
    assert!(error.is_disk_full(), "{error:?}");
    disk.clear_fault();
    noted.note(&key(FIRST, 1));
    assert_eq!(noted.take().unwrap().entries(), 1, "and afterwards they are noted again");
}
