//! Thousands of small indexes: files and syncs follow the bytes, and drops give the space back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{DIR, Map, Rng, TableCounts, dump, key, value};
use strata_engine::io::{Disk, MemDisk};
use strata_engine::layer::IndexId;
use strata_engine::{Compression, Engine, Options};

fn open(disk: &MemDisk, counts: &Arc<TableCounts>) -> Engine {
    let options = Options {
        disk: counts.watch(disk),
        memtable_budget_bytes: 32 << 20,
        block_cache_bytes: 4 << 20,
        compaction_threads: 1,
        ..Options::default()
    };
    Engine::open(Path::new(DIR), options).unwrap()
}

const FIRST: u32 = 1000;
const INDEXES: u32 = 3000;

/// Rows all over the indexes, about 100 bytes each, and what is there then.
fn write(engine: &Engine, model: &mut Map, rng: &mut Rng, indexes: std::ops::Range<u32>, rows: u64) {
    let mut txn = engine.begin();
    for row in 0..rows {
        // Small transactions: a large one writes files of its own.
        if row % 1000 == 999 {
            txn.commit().unwrap();
            txn = engine.begin();
        }
        let index = indexes.start + rng.below(u64::from(indexes.end - indexes.start)) as u32;
        let (key, value) = (key(index, rng.below(1000)), value(rng, 7, 90));
        txn.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    txn.commit().unwrap();
}

fn files(engine: &Engine) -> (u64, u64) {
    let metrics = engine.metrics();
    (metrics.level_files.iter().sum(), metrics.level_bytes.iter().sum())
}

fn without(model: &Map, gone: impl Fn(u32) -> bool) -> Map {
    model.iter().filter(|(key, _)| !gone(IndexId::of(key).0)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

#[test]
fn the_number_of_files_follows_the_bytes() {
    let (disk, counts) = (MemDisk::new(), Arc::new(TableCounts::default()));
    let engine = open(&disk, &counts);
    let (mut model, mut rng) = (Map::new(), Rng::new(1));
    for round in 0..12 {
        // Two indexes of twelve are large.
        for large in [FIRST + 5, FIRST + 1500] {
            write(&engine, &mut model, &mut rng, large..large + 1, 900);
        }
        write(&engine, &mut model, &mut rng, FIRST..FIRST + INDEXES, 15_000);
        if round % 4 == 3 {
            let gone: Vec<Vec<u8>> = model.keys().filter(|_| rng.chance(10)).cloned().collect();
            for some in gone.chunks(1000) {
                let mut txn = engine.begin();
                for key in some {
                    txn.delete(key).unwrap();
                    model.remove(key);
                }
                txn.commit().unwrap();
            }
        }
        let before = counts.created.load(Ordering::Relaxed);
        engine.flush().unwrap();
        // Merges may have made one or the other at the same time.
        let created = counts.created.load(Ordering::Relaxed) - before;
        assert!(created < 20, "{created} files were made for two megabytes");
    }
    engine.wait_idle().unwrap();
    let (number, bytes) = files(&engine);
    assert!(number <= 8 + bytes / (1 << 20), "{number} files for {bytes} bytes");
    let syncs = counts.synced.load(Ordering::Relaxed);
    let made = counts.created.load(Ordering::Relaxed);
    assert!(syncs < 200, "{syncs} syncs of {made} table files");
    assert!(dump(&engine, 0, u32::MAX).unwrap() == model);

    // Sizes are known by index.
    let rows =
        |index: u32| model.range(IndexId(index).prefix().to_vec()..IndexId(index + 1).prefix().to_vec()).count() as u64;
    engine.compact_range(&[0; 4], &[0xff; 4]).unwrap();
    let mut of_all = 0;
    for index in FIRST..FIRST + INDEXES {
        let stats = engine.index_stats(IndexId(index));
        assert_eq!(stats.entries, rows(index), "index {index}");
        assert_eq!(stats.raw_bytes, rows(index) * 105);
        of_all += stats.bytes;
        let range = engine.range_estimate(&IndexId(index).prefix(), &IndexId(index + 1).prefix()).unwrap();
        assert_eq!((range.entries, range.exact), (rows(index), true));
    }
    let (_, bytes) = files(&engine);
    assert!((bytes * 9 / 10..=bytes).contains(&of_all), "{of_all} of {bytes} bytes");
    drop(engine);
    let engine = open(&disk, &counts);
    assert!(dump(&engine, 0, u32::MAX).unwrap() == model);
}

#[test]
fn drops_give_the_space_back() {
    let (disk, counts) = (MemDisk::new(), Arc::new(TableCounts::default()));
    let mut engine = open(&disk, &counts);
    let (mut model, mut rng) = (Map::new(), Rng::new(2));
    for _ in 0..4 {
        write(&engine, &mut model, &mut rng, FIRST..FIRST + INDEXES, 25_000);
        engine.flush().unwrap();
    }
    engine.wait_idle().unwrap();
    let (_, before) = files(&engine);
    // Two of three tables go, three indexes each; some of their rows are not in files yet.
    write(&engine, &mut model, &mut rng, FIRST..FIRST + INDEXES, 5_000);
    let gone = |index: u32| (FIRST..FIRST + INDEXES).contains(&index) && (index - FIRST) / 3 % 3 != 1;
    for table in (0..INDEXES / 3).filter(|table| gone(FIRST + 3 * table)) {
        let first = FIRST + 3 * table;
        engine.drop_indexes(&[IndexId(first), IndexId(first + 1), IndexId(first + 2)]).unwrap();
    }
    let model = without(&model, gone);
    for round in 0..2 {
        let found = without(&dump(&engine, 0, u32::MAX).unwrap(), gone);
        assert!(found == model);
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        let (number, bytes) = files(&engine);
        assert!(bytes < before / 2, "{bytes} of {before} bytes are left");
        assert!(number < 10, "{number} files");
        for index in (FIRST..FIRST + INDEXES).filter(|index| gone(*index)) {
            assert_eq!(engine.index_stats(IndexId(index)).entries, 0, "round {round}, index {index}");
        }
        // Nothing of them is anywhere, not even for those who ask.
        assert!(dump(&engine, 0, u32::MAX).unwrap() == model);
        drop(engine);
        engine = open(&disk, &counts);
    }
    // Everything goes at once: by the names of the files.
    let all: Vec<IndexId> = (FIRST..FIRST + INDEXES).map(IndexId).collect();
    let created = counts.created.load(Ordering::Relaxed);
    engine.drop_indexes(&all).unwrap();
    assert_eq!(files(&engine), (0, 0));
    engine.flush().unwrap();
    engine.wait_idle().unwrap();
    assert_eq!(counts.created.load(Ordering::Relaxed), created, "nothing is written for that");
}

/// Rows in these indexes, all in the last level.
fn fill(engine: &Engine, indexes: std::ops::Range<u32>, rows: u64) -> Map {
    let (mut model, mut rng) = (Map::new(), Rng::new(3));
    write(engine, &mut model, &mut rng, indexes, rows);
    engine.compact_range(&[0; 4], &[0xff; 4]).unwrap();
    model
}

/// A part that is too small to be worth a merge stays, unseen, and is cleared when it is asked for.
#[test]
fn few_dropped_indexes_stay_until_their_files_are_rewritten() {
    let (disk, counts) = (MemDisk::new(), Arc::new(TableCounts::default()));
    let engine = open(&disk, &counts);
    let model = fill(&engine, FIRST..FIRST + 100, 10_000);
    engine.drop_indexes(&[IndexId(FIRST + 7)]).unwrap();
    drop(engine);
    let engine = open(&disk, &counts);
    engine.flush().unwrap();
    engine.wait_idle().unwrap();
    let gone = |index: u32| index == FIRST + 7;
    let model = without(&model, gone);
    assert!(without(&dump(&engine, 0, u32::MAX).unwrap(), gone) == model);
    engine.compact_range(&[0; 4], &[0xff; 4]).unwrap();
    assert!(dump(&engine, 0, u32::MAX).unwrap() == model);
}

/// One index of many is compacted: its rows end in the last level, and others are not rewritten with it.
#[test]
fn one_index_is_compacted_alone() {
    let (disk, counts) = (MemDisk::new(), Arc::new(TableCounts::default()));
    let engine = open(&disk, &counts);
    let mut model = fill(&engine, FIRST..FIRST + 20, 4_000);
    let mut rng = Rng::new(4);
    // All rows of one index are replaced and deleted above.
    for round in 0..2 {
        let of_one: Vec<Vec<u8>> = model.keys().filter(|key| IndexId::of(key).0 == FIRST + 9).cloned().collect();
        let mut txn = engine.begin();
        for key in of_one {
            if round == 0 {
                txn.put(&key, b"again").unwrap();
                model.insert(key, b"again".to_vec());
            } else {
                txn.delete(&key).unwrap();
                model.remove(&key);
            }
        }
        txn.commit().unwrap();
        write(&engine, &mut model, &mut rng, FIRST..FIRST + 9, 500);
        write(&engine, &mut model, &mut rng, FIRST + 10..FIRST + 20, 500);
        engine.flush().unwrap();
    }
    let (one, next) = (IndexId(FIRST + 9), IndexId(FIRST + 10));
    assert!(engine.index_stats(one).tombstones > 0);
    engine.compact_range(&one.prefix(), &next.prefix()).unwrap();
    assert_eq!(engine.index_stats(one).entries, 0);
    let metrics = engine.metrics();
    assert!(metrics.level_files[0] > 0, "the rows of others stay above: {:?}", metrics.level_files);
    assert!(dump(&engine, 0, u32::MAX).unwrap() == model);
}

/// Each index is compressed as it is told, whoever its neighbours are.
#[test]
fn neighbours_are_compressed_in_their_own_ways() {
    let (disk, counts) = (MemDisk::new(), Arc::new(TableCounts::default()));
    let engine = open(&disk, &counts);
    let write = |indexes: std::ops::Range<u32>| {
        let mut txn = engine.begin();
        for index in indexes {
            for row in 0..100 {
                txn.put(&key(index, row), &[b'x'; 90]).unwrap();
            }
        }
        txn.commit().unwrap();
        engine.flush().unwrap();
        files(&engine)
    };
    let (packed_files, packed) = write(FIRST..FIRST + 60);
    for index in (FIRST + 100..FIRST + 160).filter(|index| index % 2 == 0) {
        engine.set_index_compression(IndexId(index), Some(Compression::None));
    }
    let (number, both) = write(FIRST + 100..FIRST + 160);
    assert!(number <= packed_files + 2, "{number} files");
    let raw = 30 * 100 * 100;
    assert!((raw..raw * 5 / 4 + packed).contains(&(both - packed)), "{} bytes, {packed} if compressed", both - packed);
}

/// CHECK TABLE of a small index reads what the index has of a shared file, not the file; and together the indexes read all of it.
#[test]
fn a_small_index_is_verified_by_its_own_blocks() {
    let disk = MemDisk::new();
    let counts = Arc::new(TableCounts::default());
    let engine = open(&disk, &counts);
    let (mut model, mut rng) = (Map::new(), Rng::new(11));
    write(&engine, &mut model, &mut rng, FIRST..FIRST + INDEXES, 60_000);
    engine.flush().unwrap();
    engine.wait_idle().unwrap();
    let files: Vec<_> = disk
        .list(Path::new(DIR))
        .unwrap()
        .into_iter()
        .filter(|name| name.extension().is_some_and(|e| e == "sst"))
        .collect();
    let ids: Vec<IndexId> = (FIRST..FIRST + INDEXES).map(IndexId).collect();
    let reads = |ids: &[IndexId]| {
        let before = disk.counters().reads;
        ids.iter().for_each(|&id| engine.verify_index(id).unwrap());
        disk.counters().reads - before
    };
    for id in ids.iter().step_by(100) {
        // An index partition, its filter, and a window with the block; two of each at an edge.
        let reads = reads(&[*id]);
        assert!(reads <= 6 * files.len() as u64, "{reads} reads in {} files", files.len());
    }
    for name in &files {
        let path = Path::new(DIR).join(name);
        let len = disk.content(&path).unwrap().len() as u64;
        // The first half are data blocks.
        for offset in (0..len / 2).step_by(len as usize / 12) {
            disk.corrupt(&path, offset);
            let noticed = ids.iter().filter(|&&id| engine.verify_index(id).is_err()).count();
            disk.corrupt(&path, offset);
            assert!((1..400).contains(&noticed), "byte {offset} of {}: noticed by {noticed} indexes", path.display());
        }
    }
    assert_eq!(dump(&engine, FIRST, FIRST + INDEXES).unwrap(), model);
}
