//! How far estimates of ranges may be off: the optimizer chooses plans by them.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::common::{key, open};
use strata_engine::Engine;
use strata_engine::io::MemDisk;
use strata_engine::layer::IndexId;

fn put(engine: &Engine, index: u32, numbers: impl Iterator<Item = u64>) {
    let mut txn = engine.begin();
    for n in numbers {
        txn.put(&key(index, n), b"value").unwrap();
    }
    txn.commit().unwrap();
}

fn check(engine: &Engine, what: &str, lower: &[u8], upper: &[u8], allowed: RangeInclusive<u64>) {
    let entries = engine.range_estimate(lower, upper).unwrap().entries;
    assert!(allowed.contains(&entries), "{what}: {entries} is not in {allowed:?}");
}

/// Few keys in memory, of several indexes: nothing is far off, whole or in part.
#[test]
fn in_a_small_memtable() {
    let engine = open(&MemDisk::new()).unwrap();
    for index in 20..25 {
        put(&engine, index, 0..500);
    }
    for index in 20..25 {
        let (lower, upper) = (IndexId(index).prefix(), IndexId(index + 1).prefix());
        check(&engine, "whole", &lower, &upper, 400..=600);
        check(&engine, "to the end", &key(index, 100), &upper, 320..=480);
        check(&engine, "in the middle", &key(index, 100), &key(index, 300), 150..=250);
        check(&engine, "few", &key(index, 100), &key(index, 150), 50..=50);
    }
}

/// Many keys in memory: whole indexes as well as that, parts of them within a half.
#[test]
fn in_a_large_memtable() {
    let engine = open(&MemDisk::new()).unwrap();
    put(&engine, 20, 0..6000);
    check(&engine, "whole", &IndexId(20).prefix(), &IndexId(21).prefix(), 4800..=7200);
    for from in (0..5000).step_by(500) {
        check(&engine, "in the middle", &key(20, from), &key(20, from + 1000), 500..=1500);
    }
}

/// Most of the keys in memory and some in tables: the few must not make the count of the many rough.
#[test]
fn mostly_in_memory() {
    let engine = open(&MemDisk::new()).unwrap();
    put(&engine, 20, (0..6000).step_by(20));
    engine.flush().unwrap();
    put(&engine, 20, (0..6000).filter(|n| n % 20 != 0));
    for from in (0..5000).step_by(500) {
        check(&engine, "in the middle", &key(20, from), &key(20, from + 1000), 500..=1500);
    }
}

fn delete(engine: &Engine, index: u32, numbers: impl Iterator<Item = u64>) {
    let mut txn = engine.begin();
    for n in numbers {
        txn.delete(&key(index, n)).unwrap();
    }
    txn.commit().unwrap();
}

/// Tombstones in memory count, of the index that was asked for alone, and once for each key that was deleted last.
#[test]
fn deleted_in_memory() {
    let engine = open(&MemDisk::new()).unwrap();
    for index in 20..22 {
        put(&engine, index, 0..1500);
    }
    let held = |index| engine.index_stats(IndexId(index));
    assert_eq!(held(20).tombstones, 0);
    delete(&engine, 20, (0..1500).filter(|n| n % 3 > 0));
    let some = held(20);
    assert!((50..=80).contains(&(some.tombstones * 100 / some.entries)), "two of three: {some:?}");
    assert_eq!(held(21).tombstones, 0);
    put(&engine, 20, 0..1500);
    assert_eq!(held(20).tombstones, 0, "all are there again");
    delete(&engine, 21, 0..1500);
    assert_eq!(held(21).tombstones, held(21).entries);
    assert_eq!(engine.holdings(&BTreeSet::from([IndexId(21)]))[&(IndexId(21), None)].tombstones, held(21).entries);
}

/// Rows and entries that are counted one by one, from both ends: each key is a row at most, whichever places have versions of it.
#[test]
fn a_counted_range_has_each_row_once() {
    let engine = open(&MemDisk::new()).unwrap();
    put(&engine, 19, 0..10);
    put(&engine, 20, 0..1000);
    engine.flush().unwrap();
    put(&engine, 20, 0..500);
    engine.flush().unwrap();
    delete(&engine, 20, 100..300);
    put(&engine, 20, 900..1100);
    put(&engine, 21, 0..10);
    let (lower, upper) = (IndexId(20).prefix(), IndexId(21).prefix());
    let count = |forward, most| engine.count_range(&lower, &upper, forward, most).unwrap();
    for (forward, first) in [(true, 0), (false, 1099)] {
        let all = count(forward, u64::MAX);
        assert_eq!((all.rows, all.entries, all.is_whole), (900, 1900, true));
        assert_eq!(all.first, key(20, first));
    }
    let some = count(true, 300);
    assert_eq!((some.rows, some.entries, some.is_whole), (100, 302, false), "two files, then one tombstone more each");
    let some = count(false, 150);
    assert_eq!((some.rows, some.entries, some.is_whole), (125, 150, false));
    let stats = engine.index_stats(IndexId(20));
    assert!(stats.largest_run >= 1000 && stats.largest_run < stats.entries, "{stats:?}");
    let none = engine.count_range(&IndexId(30).prefix(), &IndexId(31).prefix(), true, 10).unwrap();
    assert_eq!((none.rows, none.entries, none.is_whole, none.first), (0, 0, true, Vec::new()));
    // One key of many versions, each of which somebody may read.
    let points: Vec<_> = (0..100)
        .map(|_| {
            put(&engine, 40, 0..1);
            engine.read_point()
        })
        .collect();
    engine.flush().unwrap();
    for forward in [true, false] {
        let hot = engine.count_range(&IndexId(40).prefix(), &IndexId(41).prefix(), forward, 4).unwrap();
        assert_eq!((hot.rows, hot.entries, hot.is_whole), (1, 64, false), "not all of {}", points.len());
    }
}

/// What indexes and levels hold is told from descriptions of files and from memtables, in the same figures.
#[test]
fn holdings_and_levels_add_up() {
    let engine = open(&MemDisk::new()).unwrap();
    let ids = BTreeSet::from([IndexId(20), IndexId(21)]);
    put(&engine, 20, 0..1000);
    put(&engine, 21, 0..10);
    let held = engine.holdings(&ids);
    assert_eq!(held.keys().copied().collect::<Vec<_>>(), [(IndexId(20), None), (IndexId(21), None)]);
    assert_eq!((held[&(IndexId(21), None)].entries, held[&(IndexId(21), None)].files), (10, 0));
    engine.compact_range(&IndexId(0).prefix(), &IndexId(100).prefix()).unwrap();
    put(&engine, 20, 1000..1010);
    engine.write(&[(key(20, 0), None)], false).unwrap();
    engine.flush().unwrap();
    let held = engine.holdings(&ids);
    let last = Some(6);
    assert_eq!((held[&(IndexId(20), last)].entries, held[&(IndexId(20), last)].tombstones), (1000, 0));
    assert_eq!((held[&(IndexId(21), last)].entries, held[&(IndexId(21), last)].files), (10, 1));
    let upper = held.iter().filter(|((id, level), _)| *id == IndexId(20) && *level != last).map(|(_, held)| held);
    assert_eq!(upper.fold((0, 0), |sum, held| (sum.0 + held.entries, sum.1 + held.tombstones)), (11, 1));
    let levels = engine.levels();
    let metrics = engine.metrics();
    for (number, level) in levels.iter().enumerate() {
        assert_eq!((level.holds.files, level.holds.bytes), (metrics.level_files[number], metrics.level_bytes[number]));
        assert_eq!(level.sorted_runs > 0, level.holds.files > 0);
    }
    assert_eq!(levels.iter().map(|level| level.holds.entries).sum::<u64>(), 1021);
    assert!(engine.holdings(&BTreeSet::new()).is_empty());
}
