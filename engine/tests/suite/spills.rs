//! Large transactions over many indexes: what they spill shares files as other writes do, so that their files and syncs
//! follow the bytes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{DIR, Map, Rng, TableCounts, dump, key, no_orphans, seeds, value, within};
use strata_engine::io::{Disk, MemDisk};
use strata_engine::layer::{IndexId, LockMode, SeqNo, Txn, Wait};
use strata_engine::{Engine, Error, Options};

const FIRST: u32 = 100;

fn open_with(disk: Arc<dyn Disk>, transaction_bytes: u64, sst_bytes: u64) -> Engine {
    let options = Options {
        memtable_budget_bytes: 8 << 20,
        transaction_bytes,
        sst_bytes,
        log_segment_bytes: 256 << 10,
        ..crate::common::options(disk)
    };
    Engine::open(Path::new(DIR), options).unwrap()
}

/// A spill has 40,000 bytes, an index with 2,048 of them files of its own.
fn open(disk: &MemDisk) -> Engine {
    open_with(Arc::new(disk.clone()), 40_000, 128 << 10)
}

/// What a transaction sees of its own, by look-ups and by cursors in both directions.
fn check_sees(txn: &Txn, engine: &Engine, state: &Map, indexes: u32, rng: &mut Rng) {
    let point = engine.read_point();
    let (lower, upper) = (IndexId(FIRST).prefix(), IndexId(FIRST + indexes).prefix());
    let mut cursor = engine.cursor();
    cursor.open(txn, point.seq(), &lower, &upper).unwrap();
    let mut forward = Vec::new();
    cursor.seek_ge(txn, &lower).unwrap();
    while cursor.valid() {
        forward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next(txn).unwrap();
    }
    assert!(forward == state.clone().into_iter().collect::<Vec<_>>(), "forward");
    let mut backward = Vec::new();
    cursor.seek_lt(txn, &upper).unwrap();
    while cursor.valid() {
        backward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.prev(txn).unwrap();
    }
    backward.reverse();
    assert!(backward == forward, "backward");
    for _ in 0..40 {
        let index = FIRST + rng.below(u64::from(indexes)) as u32;
        let wanted = key(index, rng.below(60));
        let mut out = Vec::new();
        let found = txn.get(&wanted, SeqNo::MAX, &mut out).unwrap().then_some(out);
        assert_eq!(found.as_ref(), state.get(&wanted));
        // One index, or a part of it, alone.
        let (lower, upper) = (key(index, rng.below(30)), IndexId(index + 1).prefix());
        cursor.open(txn, point.seq(), &lower, &upper).unwrap();
        cursor.seek_ge(txn, &lower).unwrap();
        let first = cursor.valid().then(|| cursor.key().to_vec());
        assert_eq!(first.as_ref(), state.range(lower..upper.to_vec()).next().map(|(key, _)| key));
    }
}

/// Writes to indexes of very different sizes; some grow large in the middle.
fn write(txn: &mut Txn, state: &mut Map, rng: &mut Rng, (indexes, void): (u32, &[u32]), count: u64, tag: u64) {
    for _ in 0..count {
        let index = match rng.below(4) {
            0 => FIRST + (tag as u32 * 7 + 3) % indexes,
            _ => FIRST + rng.below(u64::from(indexes)) as u32,
        };
        if void.contains(&index) {
            continue;
        }
        let key = key(index, rng.below(60));
        if rng.chance(20) {
            txn.delete(&key).unwrap();
            state.remove(&key);
        } else {
            let bytes = if rng.chance(1) { 30_000 } else { 20 + rng.below(200) };
            let value = value(rng, tag, bytes);
            txn.put(&key, &value).unwrap();
            state.insert(key, value);
        }
    }
}

/// What is in the store, without dropped indexes, which nobody reads.
fn found(engine: &Engine, void: &[u32]) -> Map {
    let mut found = dump(engine, 0, u32::MAX).unwrap();
    found.retain(|key, _| !void.contains(&IndexId::of(key).0));
    found
}

/// Fails with the keys that differ.
fn check_is(found: &Map, expected: &Map, when: &str) {
    let keys: BTreeSet<&Vec<u8>> = found.keys().chain(expected.keys()).collect();
    let differ = keys.into_iter().filter(|key| found.get(*key) != expected.get(*key));
    let told = differ.map(|key| {
        let (there, wanted) = (found.get(key).map(Vec::len), expected.get(key).map(Vec::len));
        format!("{}: {} {there:?}, expected {wanted:?}", IndexId::of(key), String::from_utf8_lossy(&key[4..]))
    });
    assert_eq!(told.take(20).collect::<Vec<_>>(), Vec::<String>::new(), "{when}");
}

/// Savepoints, drops of indexes of its own, two phases, crashes: a model says what is there.
#[test]
fn spills_over_many_indexes_keep_to_the_model() {
    for seed in seeds(12) {
        within(&format!("seed {seed}"), 120, move || case(seed));
    }
}

fn case(seed: u64) {
    let mut rng = Rng::new(seed);
    let indexes = [3, 12, 60, 200][rng.below(4) as usize];
    let mut disk = MemDisk::new();
    let mut engine = open(&disk);
    let mut state = Map::new();
    let mut void: Vec<u32> = Vec::new();
    for round in 0..4 {
        let mut own = state.clone();
        let mut txn = engine.begin();
        let mut dropped: Vec<u32> = Vec::new();
        for step in 0..3 + rng.below(6) {
            let (savepoint, kept) = (txn.savepoint(), own.clone());
            let count = 50 + rng.below(1500);
            write(&mut txn, &mut own, &mut rng, (indexes, &void), count, round * 10 + step);
            if rng.chance(30) {
                txn.rollback_to(savepoint);
                own = kept;
            }
            check_sees(&txn, &engine, &own, indexes, &mut rng);
        }
        if rng.chance(30) {
            // Temporary tables of its session: their indexes go before the transaction ends.
            for _ in 0..1 + rng.below(3) {
                dropped.push(FIRST + rng.below(u64::from(indexes)) as u32);
            }
            let ids: Vec<IndexId> = dropped.iter().map(|&id| IndexId(id)).collect();
            engine.drop_indexes(&ids).unwrap();
            if rng.chance(50) {
                // With nothing of theirs in the store they are forgotten.
                engine.flush().unwrap();
            }
            void.extend(dropped);
            own.retain(|key, _| !void.contains(&IndexId::of(key).0));
            state.retain(|key, _| !void.contains(&IndexId::of(key).0));
        }
        match rng.below(4) {
            0 => txn.rollback().unwrap(),
            1 => {
                txn.commit().unwrap();
                state = own;
            }
            2 => {
                txn.prepare(b"x").unwrap();
                txn.commit_ordered();
                txn.commit().unwrap();
                state = own;
            }
            _ => {
                txn.prepare(b"x").unwrap();
                drop(txn);
                drop(engine);
                disk = disk.crash(seed);
                engine = open(&disk);
                check_is(&found(&engine, &void), &state, "before the decision");
                // What it wrote stays locked, as far as it was prepared at all.
                if engine.prepared() == [b"x".to_vec()] {
                    let changed = own.iter().find(|(key, value)| state.get(*key) != Some(*value));
                    if let Some((key, _)) = changed {
                        let busy = engine.begin().lock(key, LockMode::Exclusive, Wait::No);
                        assert!(matches!(busy, Err(Error::LockBusy)), "no lock after recovery");
                    }
                    assert!(engine.commit_prepared(b"x").unwrap());
                    state = own;
                }
            }
        }
        check_is(&found(&engine, &void), &state, "at the end of the transaction");
        if rng.chance(40) {
            disk = {
                engine.sync().unwrap();
                let image = disk.crash(seed + round);
                drop(engine);
                image
            };
            engine = open(&disk);
            check_is(&found(&engine, &void), &state, "after a restart");
        }
        if rng.chance(40) {
            engine.compact_range(&[], &[0xff; 4]).unwrap();
            check_is(&found(&engine, &void), &state, "after a merge");
        }
        engine.flush().unwrap();
        no_orphans(&engine, &disk);
        for index in FIRST..FIRST + indexes {
            engine.verify_index(IndexId(index)).unwrap();
        }
        engine.compact_range(&[], &[0xff; 4]).unwrap();
        let there: BTreeSet<IndexId> = state.keys().map(|key| IndexId::of(key)).collect();
        assert_eq!(engine.indexes().unwrap(), there);
    }
}

/// A row here and a row there of three thousand indexes: each spill makes a few files, not three thousand.
#[test]
fn files_of_a_large_transaction_follow_its_bytes() {
    let (disk, counts) = (MemDisk::new(), Arc::new(TableCounts::default()));
    let engine = open_with(counts.watch(&disk), 1 << 20, 2 << 20);
    let (mut rng, mut state) = (Rng::new(4), Map::new());
    let made = || counts.created.load(Ordering::Relaxed);
    for round in 0..2u64 {
        let before = made();
        let mut txn = engine.begin();
        for row in 0..30_000u64 {
            let key = key(FIRST + rng.below(3000) as u32, row % 40);
            let value = value(&mut rng, round, 60);
            txn.put(&key, &value).unwrap();
            state.insert(key, value);
        }
        txn.commit().unwrap();
        engine.flush().unwrap();
        let files = made() - before;
        assert!(files < 30, "{files} files for three megabytes");
    }
    assert!(dump(&engine, 0, u32::MAX).unwrap() == state);
    let synced = counts.synced.load(Ordering::Relaxed);
    assert!(synced <= made() + 4, "{synced} syncs of {} files", made());
}

/// Two tables are loaded in the order of their keys, in one transaction that also writes a row here and there elsewhere: what
/// is in files of their own is not written again, whatever comes first and last.
#[test]
fn a_large_index_is_written_once_beside_small_ones() {
    let disk = MemDisk::new();
    let engine = open_with(Arc::new(disk.clone()), 400_000, 2 << 20);
    let (mut rng, mut state, mut txn) = (Rng::new(4), Map::new(), engine.begin());
    let mut bytes = 0;
    let mut put = |txn: &mut Txn, state: &mut Map, index: u32, k: u64| {
        let (key, value) = (key(index, k), value(&mut rng, 1, 200));
        bytes += (key.len() + value.len()) as u64;
        txn.put(&key, &value).unwrap();
        state.insert(key, value);
    };
    // All indexes are small at first, those that will grow among them.
    for k in 0..40 {
        for index in 0..50 {
            put(&mut txn, &mut state, FIRST + index, k);
        }
    }
    for k in 40..20_000 {
        put(&mut txn, &mut state, FIRST + 20, k);
        put(&mut txn, &mut state, FIRST + 30, k);
        if k % 100 == 0 {
            put(&mut txn, &mut state, FIRST + 3, k);
            put(&mut txn, &mut state, FIRST + 25, k);
            put(&mut txn, &mut state, FIRST + 49, k);
        }
    }
    txn.commit().unwrap();
    let written = engine.metrics().work.spill_bytes;
    assert!(written < bytes * 11 / 10, "{written} bytes were written for {bytes}");
    assert!(dump(&engine, 0, u32::MAX).unwrap() == state);
    drop((txn, engine));
    assert!(dump(&open(&disk), 0, u32::MAX).unwrap() == state);
}

/// A temporary table's index goes, and the store forgets it, while rows of it wait in a file that it shares.
#[test]
fn a_dropped_index_leaves_nothing_of_itself_in_shared_files() {
    for two_phases in [false, true] {
        let disk = MemDisk::new();
        let engine = open(&disk);
        let (mut rng, mut state, mut txn) = (Rng::new(6), Map::new(), engine.begin());
        write(&mut txn, &mut state, &mut rng, (200, &[]), 3000, 1);
        let gone = [FIRST + 60, FIRST + 61];
        engine.drop_indexes(&gone.map(IndexId)).unwrap();
        let mut other = engine.begin();
        other.put(&key(1, 1), b"other").unwrap();
        other.commit().unwrap();
        engine.flush().unwrap();
        if two_phases {
            txn.prepare(b"x").unwrap();
            txn.commit_ordered();
        }
        txn.commit().unwrap();
        state.insert(key(1, 1), b"other".to_vec());
        state.retain(|key, _| !gone.contains(&IndexId::of(key).0));
        assert!(dump(&engine, 0, u32::MAX).unwrap() == state);
        engine.compact_range(&[], &[0xff; 4]).unwrap();
        assert!(dump(&engine, 0, u32::MAX).unwrap() == state);
        engine.flush().unwrap();
        no_orphans(&engine, &disk);
    }
}

/// Damage in a file that a prepared transaction shares among its indexes, wherever it lies: the store opens, the transaction
/// stays prepared and locks what it may have written, its commit is refused with the file's name, and it can be rolled back.
#[test]
fn a_damaged_file_of_a_prepared_transaction_is_told_and_can_only_be_rolled_back() {
    let disk = MemDisk::new();
    let (before, state) = {
        let engine = open(&disk);
        let (mut rng, mut state) = (Rng::new(9), Map::new());
        let mut txn = engine.begin();
        write(&mut txn, &mut state, &mut rng, (200, &[]), 300, 1);
        txn.commit().unwrap();
        engine.flush().unwrap();
        let before = disk.list(Path::new(DIR)).unwrap();
        let mut txn = engine.begin();
        write(&mut txn, &mut state.clone(), &mut rng, (200, &[]), 1200, 2);
        txn.prepare(b"x").unwrap();
        txn.detach();
        (before, state)
    };
    let names = disk.list(Path::new(DIR)).unwrap().into_iter();
    let mut files: Vec<_> = names.filter(|name| name.extension().is_some_and(|end| end == "sst")).collect();
    files.sort();
    let of_transaction = files.iter().filter(|name| !before.contains(name));
    let (mut at_opening, mut cuts) = (0, 0);
    // The newest: earlier spills were merged into them.
    for name in of_transaction.rev().take(3) {
        let path = Path::new(DIR).join(name);
        let bytes = disk.content(&path).unwrap().len() as u64;
        let places = (0..12).map(|n| n * bytes / 12).chain([1, bytes - 4096, bytes - 60, bytes - 1]);
        for offset in places {
            let damaged = disk.copy();
            damaged.corrupt(&path, offset);
            let recorder = crate::common::Recorder::default();
            let options =
                Options { listener: recorder.listener(), ..crate::common::options(Arc::new(damaged.clone())) };
            let engine = Engine::open(Path::new(DIR), options).unwrap();
            let file = name.to_str().unwrap();
            assert_eq!(engine.prepared(), [b"x".to_vec()], "{file} at {offset}");
            at_opening += u32::from(recorder.lines().iter().any(|what| what.contains(file) && what.contains("offset")));
            match engine.commit_prepared(b"x") {
                // A byte between the parts of a file that nobody reads.
                Ok(done) => {
                    assert!(done && recorder.lines().is_empty(), "{file} at {offset}");
                    continue;
                }
                Err(Error::Corruption { path, what, .. }) => {
                    assert!(path.ends_with(name) && what.contains("stays prepared"), "{file} at {offset}: {what}");
                }
                Err(error) => panic!("{file} at {offset}: {error}"),
            }
            cuts += 1;
            assert!(found(&engine, &[]) == state, "nothing of it is seen");
            // Still after another start.
            drop(engine);
            let engine = open(&damaged);
            assert!(matches!(engine.commit_prepared(b"x"), Err(Error::Corruption { .. })));
            assert!(engine.rollback_prepared(b"x").unwrap());
            assert!(found(&engine, &[]) == state);
            let mut txn = engine.begin();
            for index in 0..200 {
                txn.put(&key(FIRST + index, 1), b"free").unwrap();
            }
            txn.commit().unwrap();
            drop(txn);
            if offset == 0 {
                engine.flush().unwrap();
                no_orphans(&engine, &damaged);
            }
        }
    }
    assert!(at_opening > 0 && cuts > 30, "{at_opening} of {cuts} were met at the opening");
}
