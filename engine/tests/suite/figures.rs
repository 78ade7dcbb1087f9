//! The figures count what they say: flushes and merges by level, commits and rollbacks, waits, syncs and groups, descriptors,
//! failures; counters never go down; and what one thread does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Rng, dump, key, left_behind, options, value, within};
use strata_engine::internals::metrics::Kind;
use strata_engine::io::MemDisk;
use strata_engine::layer::{IndexId, LockMode, Wait, begin_counting, end_counting};
use strata_engine::{Engine, Metrics, Options};

fn open(disk: &MemDisk) -> Engine {
    let options = Options { memtable_budget_bytes: 2 << 20, ..options(Arc::new(disk.clone())) };
    Engine::open(Path::new(DIR), options).unwrap()
}

fn by_name(metrics: &Metrics) -> BTreeMap<&'static str, u64> {
    metrics.values().map(|(metric, value)| (metric.name, value)).collect()
}

#[test]
fn figures_count_what_they_say() {
    within("figures", 120, || {
        let disk = MemDisk::new();
        let engine = open(&disk);
        let at_first = engine.metrics();
        let before = by_name(&at_first);
        let mut rng = Rng::new(1);
        let mut txn = engine.begin();
        for round in 0..20 {
            for k in 0..100 {
                txn.put(&key(1, round * 50 + k), &value(&mut rng, k, 2000)).unwrap();
            }
            txn.commit().unwrap();
        }
        engine.write(&[(key(2, 1), Some(vec![1]))], true).unwrap();
        txn.put(&key(1, 1), b"never").unwrap();
        txn.rollback().unwrap();
        txn.rollback().unwrap();
        txn.put(&key(1, 1), b"never").unwrap();
        txn.prepare(b"x").unwrap();
        assert_eq!(by_name(&engine.metrics())["prepared"], 1);
        txn.rollback().unwrap();
        let mut other = engine.begin();
        other.lock(&key(1, 1), LockMode::Exclusive, Wait::No).unwrap();
        txn.lock(&key(1, 1), LockMode::Exclusive, Wait::TimeoutUs(20_000)).unwrap_err();
        txn.rollback().unwrap();
        other.rollback().unwrap();
        engine.compact_range(&IndexId(1).prefix(), &IndexId(3).prefix()).unwrap();
        engine.wait_idle().unwrap();
        assert!(!dump(&engine, 0, u32::MAX).unwrap().is_empty());

        let metrics = engine.metrics();
        let after = by_name(&metrics);
        let more = |name: &str| after[name] - before[name];
        assert_eq!(more("commits"), 21);
        assert_eq!(more("commits_internal"), 1);
        assert_eq!(more("rollbacks"), 2, "a transaction without writes is none");
        assert_eq!((more("lock_waits"), more("lock_timeouts")), (1, 1));
        assert!(more("lock_wait_us") >= 20_000);
        assert!(more("flushes") > 0 && more("flush_bytes_in") > 4 << 20, "{after:?}");
        assert!(more("flush_bytes_written") > 0 && more("flush_us") > 0);
        assert!(more("compactions") > 0 && more("compaction_us") > 0, "{after:?}");
        for what in ["compactions", "compaction_bytes_read", "compaction_bytes_written", "compaction_us"] {
            let levels: u64 = (0..7).map(|level| after[format!("level{level}_{what}").as_str()]).sum();
            assert_eq!(levels, after[what], "{what}");
        }
        assert!(after["level6_compactions"] > 0, "{after:?}");
        assert!(more("log_syncs") >= 21 && more("log_segments") > 0);
        let groups: u64 = metrics.log_groups.iter().sum();
        assert!(groups > 20 && groups <= after["log_records"], "{metrics:?}");
        assert!(after["descriptors"] > 0 && after["descriptors"] <= after["budget_descriptors"], "{after:?}");
        assert_eq!(after["budget_memtable_bytes"], 2 << 20);
        for (metric, value) in metrics.values().filter(|(metric, _)| metric.kind == Kind::Counter) {
            assert!(value >= before[metric.name], "{} went down", metric.name);
        }
        assert_eq!(left_behind(&engine), []);
    });
}

/// A cache that is too small for the data gives up blocks, and keeps some of them compressed.
#[test]
fn a_small_cache_counts_what_it_gives_up() {
    within("evictions", 120, || {
        let disk = MemDisk::new();
        let few =
            Options { block_cache_bytes: 2 << 20, memtable_budget_bytes: 2 << 20, ..options(Arc::new(disk.clone())) };
        let engine = Engine::open(Path::new(DIR), few).unwrap();
        let mut rng = Rng::new(2);
        for k in 0..4000 {
            engine.write(&[(key(1, k), Some(value(&mut rng, k, 2000)))], false).unwrap();
        }
        engine.compact_range(&IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
        for _ in 0..2 {
            for k in 0..4000 {
                assert!(engine.get_at(&key(1, k * 7 % 4000), engine.visible(), &mut Vec::new()).unwrap());
            }
        }
        let metrics = engine.metrics();
        assert!(metrics.cache_evictions > 100, "{metrics:?}");
        assert!(metrics.cache_packed_bytes > 0 && metrics.cache_packed_bytes <= metrics.cache_bytes, "{metrics:?}");
        assert!(metrics.cache_misses > 100, "{metrics:?}");
    });
}

/// Guards what a statement is told of its work: blocks that it looked up and read, versions that it stepped over, entries that it wrote;
/// from memory and from the disk.
#[test]
fn a_thread_is_told_what_it_does() {
    let disk = MemDisk::new();
    let engine = open(&disk);
    let mut txn = engine.begin();
    let mut rng = Rng::new(1);
    let before = begin_counting();
    for k in 0..500 {
        txn.put(&key(1, k), &value(&mut rng, k, 200)).unwrap();
    }
    txn.delete(&key(1, 7)).unwrap();
    txn.commit().unwrap();
    let written = end_counting(before);
    assert_eq!((written.entries_written, written.blocks, written.versions_passed), (501, 0, 0));

    let scan = |engine: &Engine| {
        let before = begin_counting();
        let txn = engine.begin();
        let mut cursor = engine.cursor();
        cursor.open(&txn, engine.visible(), &IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
        cursor.seek_ge(&txn, &IndexId(1).prefix()).unwrap();
        let mut rows = 0;
        while cursor.valid() {
            rows += 1;
            cursor.next(&txn).unwrap();
        }
        cursor.close();
        assert_eq!(rows, 499);
        end_counting(before)
    };
    let in_memory = scan(&engine);
    assert_eq!((in_memory.blocks, in_memory.blocks_read, in_memory.versions_passed), (0, 0, 1));
    engine.compact_range(&IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
    engine.close().unwrap();
    drop((txn, engine));
    let engine = open(&disk);
    let from_disk = scan(&engine);
    assert!(from_disk.blocks > 3 && from_disk.blocks_read > 3 && from_disk.read_ns > 0, "{from_disk:?}");
    assert_eq!((from_disk.versions_passed, from_disk.entries_written), (0, 0));
    let cached = scan(&engine);
    assert!(cached.blocks > 3 && cached.blocks_read == 0 && cached.read_ns == 0, "{cached:?}");
    engine.close().unwrap();
}

/// Rows that were deleted and replaced while a snapshot saw them are in the last level with what hides them. Too few for a merge in the
/// background, they go when one is asked for. How far it is does not go back.
#[test]
fn a_compaction_that_is_asked_for_clears_the_last_level() {
    within("asked for", 120, || {
        let disk = MemDisk::new();
        let engine = open(&disk);
        let mut rng = Rng::new(3);
        let (lower, upper) = (IndexId(1).prefix(), IndexId(2).prefix());
        for k in 0..3000 {
            engine.write(&[(key(1, k), Some(value(&mut rng, k, 1000)))], false).unwrap();
        }
        engine.compact_range(&lower, &upper).unwrap();
        let snapshot = engine.read_point();
        for k in (0..3000).step_by(300) {
            engine.write(&[(key(1, k), None), (key(1, k + 1), Some(vec![1; 1000]))], false).unwrap();
        }
        engine.compact_range(&lower, &upper).unwrap();
        let held = engine.index_stats(IndexId(1));
        assert_eq!((held.entries, held.tombstones), (3020, 10));
        drop(snapshot);
        let seen = std::cell::RefCell::new(Vec::new());
        let told = |done, of| {
            seen.borrow_mut().push((done, of));
            Ok(())
        };
        engine.compact_range_with(&lower, &upper, &told).unwrap();
        let cleared = engine.index_stats(IndexId(1));
        assert_eq!((cleared.entries, cleared.tombstones), (2990, 0));
        let seen = seen.into_inner();
        assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{seen:?}");
        assert!(
            seen.iter().all(|(done, of)| done <= of) && seen.iter().any(|(done, of)| 0 < *done && done < of),
            "{seen:?}"
        );
        // Nothing is left to do.
        let merges = engine.metrics().work.compactions;
        engine.compact_range(&lower, &upper).unwrap();
        assert_eq!(engine.metrics().work.compactions, merges);
    });
}
