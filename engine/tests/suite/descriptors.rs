//! A process that runs out of file descriptors: more table files than it may open, and every opening refused in turn. One
//! operation fails, or none; nothing is lost, nothing stops for good, and a start needs no more than a handful.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Map, dump, key, open, options, within};
use strata_engine::io::{FaultKind, MemDisk};
use strata_engine::{Engine, Options, Result};

const INDEXES: u32 = 120;
const FIRST: u32 = 16;

fn few(disk: &MemDisk) -> Options {
    Options { open_files: 8, ..options(Arc::new(disk.clone())) }
}

fn put(engine: &Engine, index: u32, k: u64, bytes: usize) -> Result<()> {
    engine.write(&[(key(index, k), Some(vec![k as u8; bytes]))], true).map(drop)
}

#[test]
fn tables_beyond_the_descriptors_are_read_and_opened_again() {
    within("few descriptors", 120, || {
        let disk = MemDisk::new();
        let mut expected = Map::new();
        for round in 0..3 {
            // Log, manifest, what is written: a dozen beside the eight.
            disk.set_descriptors_max(Some(28));
            let engine = Engine::open(Path::new(DIR), few(&disk)).unwrap();
            assert_eq!(dump(&engine, FIRST, FIRST + INDEXES).unwrap(), expected, "round {round}");
            for index in FIRST..FIRST + INDEXES {
                put(&engine, index, round, 2000).unwrap();
                expected.insert(key(index, round), vec![round as u8; 2000]);
            }
            engine.flush().unwrap();
            engine.wait_idle().unwrap();
            assert_eq!(dump(&engine, FIRST, FIRST + INDEXES).unwrap(), expected, "round {round}");
            engine.close().unwrap();
        }
        assert_eq!(disk.descriptors(), 0, "descriptors are left");
    });
}

/// A reader meets, long after they were replaced, files that were closed under it (invariant 16).
#[test]
fn a_file_that_was_replaced_is_opened_again_by_who_still_reads_it() {
    within("replaced files", 120, || {
        let disk = MemDisk::new();
        let engine = Engine::open(Path::new(DIR), few(&disk)).unwrap();
        let mut expected = Map::new();
        for k in 0..400 {
            put(&engine, FIRST, k, 1000).unwrap();
            expected.insert(key(FIRST, k), vec![k as u8; 1000]);
        }
        engine.compact_range(&key(FIRST, 0), &key(FIRST + 1, 0)).unwrap();
        let (txn, point) = (engine.begin(), engine.read_point());
        let mut cursor = engine.cursor();
        cursor.open(&txn, point.seq(), &key(FIRST, 0), &key(FIRST + 1, 0)).unwrap();
        cursor.seek_ge(&txn, &key(FIRST, 0)).unwrap();
        let mut seen = Map::new();
        while cursor.valid() {
            seen.insert(cursor.key().to_vec(), cursor.value().to_vec());
            if seen.len() % 100 == 50 {
                for k in 0..400 {
                    put(&engine, FIRST, k, 10).unwrap();
                }
                engine.compact_range(&key(FIRST, 0), &key(FIRST + 1, 0)).unwrap();
                // Others need the few descriptors.
                (FIRST + 1..FIRST + 20).for_each(|index| put(&engine, index, 0, 1000).unwrap());
                engine.flush().unwrap();
                dump(&engine, FIRST + 1, FIRST + 20).unwrap();
            }
            cursor.next(&txn).unwrap();
        }
        assert_eq!(seen, expected);
    });
}

/// What each operation of the script was answered, and what must be there afterwards.
fn script(engine: &Engine, round: u64, sure: &mut Map, maybe: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Vec<String> {
    let mut errors = Vec::new();
    let mut note = |what: &str, result: Result<()>| {
        if let Err(error) = &result {
            assert!(error.lacks_descriptors(), "{what}: {error}");
            errors.push(format!("{what}: {error}"));
        }
        result.is_ok()
    };
    for step in 0..4 {
        for index in FIRST..FIRST + 6 {
            let (k, v) = (key(index, round * 100 + step), vec![step as u8; 5000]);
            match note("write", engine.write(&[(k.clone(), Some(v.clone()))], true).map(drop)) {
                true => drop(sure.insert(k, v)),
                false => maybe.push((k, v)),
            }
        }
        note("flush", engine.flush());
        // A transaction of several spills.
        let mut txn = engine.begin();
        let rows: Vec<_> = (0..30).map(|i| (key(FIRST + 7, round * 1000 + step * 100 + i), vec![7; 4000])).collect();
        let put = rows.iter().try_for_each(|(k, v)| txn.put(k, v));
        if note("put", put) {
            match note("commit", txn.commit().map(drop)) {
                true => sure.extend(rows),
                false => maybe.extend(rows),
            }
        } else {
            let _ = txn.rollback();
        }
        note("read", dump(engine, FIRST, FIRST + 10).map(drop));
    }
    note("merge", engine.compact_range(&key(FIRST, 0), &key(FIRST + 10, 0)));
    // A transaction of several spills that is prepared, left, and decided.
    let mut txn = engine.begin();
    let rows: Vec<_> = (0..30).map(|i| (key(FIRST + 8, round * 1000 + i), vec![8; 4000])).collect();
    let xid = format!("round {round}").into_bytes();
    if note("put", rows.iter().try_for_each(|(k, v)| txn.put(k, v))) && note("prepare", txn.prepare(&xid)) {
        txn.detach();
        match note("decide", engine.commit_prepared(&xid).map(|found| assert!(found))) {
            true => sure.extend(rows),
            false => {
                maybe.extend(rows);
                assert!(engine.prepared().contains(&xid), "what was not decided is still prepared");
            }
        }
    }
    // What ALTER TABLE does.
    let mut sorter = engine.sorter();
    let quiet = || Ok(());
    let rows: Vec<_> = (0..60u64).rev().map(|i| (key(FIRST + 30, i), vec![6; 2000])).collect();
    let mut sorted = 0;
    let put = rows.iter().try_for_each(|(k, v)| sorter.put(k, v, &quiet));
    if note("sort", put) {
        let each = |_: &[u8], _: &[u8]| -> Result<()> {
            sorted += 1;
            Ok(())
        };
        if note("merge what is sorted", sorter.each(&quiet, each)) {
            assert_eq!(sorted, rows.len());
        }
    }
    note("checkpoint", engine.checkpoint(Path::new(&format!("/copy-{round}"))).map(drop));
    errors
}

fn case(n: u64, for_ever: bool) -> bool {
    let disk = MemDisk::new();
    let spilling = || Options { transaction_bytes: 32 << 10, ..few(&disk) };
    let (mut sure, mut maybe) = (Map::new(), Vec::new());
    let engine = Engine::open(Path::new(DIR), spilling()).unwrap();
    assert!(script(&engine, 0, &mut sure, &mut maybe).is_empty());
    let refuse = |disk: &MemDisk| match for_ever {
        true => disk.fail_from(n, FaultKind::TooManyFiles),
        false => disk.fail_after(n, FaultKind::TooManyFiles),
    };
    refuse(&disk);
    let errors = script(&engine, 1, &mut sure, &mut maybe);
    let struck = !disk.clear_fault();
    // It goes on as if nothing had been.
    let after = script(&engine, 2, &mut sure, &mut maybe);
    assert!(after.is_empty(), "afterwards: {after:?}; before: {errors:?}");
    let check = |engine: &Engine| {
        let found = dump(engine, FIRST, FIRST + 10).unwrap();
        for (k, v) in &sure {
            assert_eq!(found.get(k), Some(v), "acknowledged");
        }
        for (k, v) in &found {
            assert!(sure.get(k) == Some(v) || maybe.iter().any(|row| row.0 == *k && row.1 == *v), "never written");
        }
    };
    check(&engine);
    engine.close().unwrap();
    drop(engine);
    refuse(&disk);
    // A start that finds no descriptor fails, and the next one succeeds.
    if let Ok(engine) = Engine::open(Path::new(DIR), spilling()) {
        let _ = engine.close();
    }
    disk.clear_fault();
    check(&open(&disk).unwrap());
    struck
}

#[test]
fn every_opening_is_refused_in_turn() {
    for for_ever in [false, true] {
        let mut struck = 0;
        for n in (1..).step_by(if for_ever { 5 } else { 1 }) {
            if !within(&format!("opening {n}, for ever {for_ever}"), 60, move || case(n, for_ever)) {
                break;
            }
            struck += 1;
            assert!(n < 2000, "the script never gets past the refusals");
        }
        assert!(struck > 5, "{struck} openings refused");
    }
}
