//! What the store holds in memory stays within its budgets, and all of it is accounted for.

use std::path::Path;
use std::sync::{Arc, Barrier, Mutex, OnceLock, Weak};

use crate::common::{DIR, Hook, Rng, dump, hooked, key, left_behind, options, value, within};
use strata_engine::internals::compact::merge::merge_buffer_bytes;
use strata_engine::internals::metrics::Subsystem;
use strata_engine::io::{Disk, MemDisk};
use strata_engine::layer::{IndexId, LockMode, SeqNo, ValueBuf, Wait};
use strata_engine::{Engine, Metrics, Options};

fn open(disk: &MemDisk, memtable_budget_bytes: u64) -> Engine {
    let options = Options { memtable_budget_bytes, ..options(Arc::new(disk.clone())) };
    Engine::open(Path::new(DIR), options).unwrap()
}

#[test]
fn a_log_from_a_larger_budget_is_flushed_by_recovery() {
    within("larger budget", 120, || {
        let disk = MemDisk::new();
        let mut rng = Rng::new(1);
        let engine = open(&disk, 64 << 20);
        for k in 0..6000 {
            engine.write(&[(key(1, k), Some(value(&mut rng, k, 1000)))], false).unwrap();
        }
        let held = engine.metrics().memtable_bytes;
        assert!(held > 6 << 20, "everything lies in the memtable: {held}");
        let before = dump(&engine, 1, 2).unwrap();
        // A close would flush it.
        engine.sync().unwrap();
        drop(engine);

        // Nobody writes: what is above the budget is flushed all the same.
        let engine = open(&disk, 2 << 20);
        engine.wait_idle().unwrap();
        let metrics = engine.metrics();
        assert!(metrics.memtable_bytes + metrics.memtable_spare_bytes <= 2 << 20, "{metrics:?}");
        assert!(metrics.work.flushes > 1, "{metrics:?}");
        assert_eq!(dump(&engine, 1, 2).unwrap(), before);
        engine.close().unwrap();
        drop(engine);
        assert_eq!(dump(&open(&disk, 2 << 20), 1, 2).unwrap(), before);
    });
}

#[test]
fn every_part_is_counted() {
    within("counted", 120, || {
        let engine = open(&MemDisk::new(), 2 << 20);
        let mut rng = Rng::new(2);
        let empty = engine.metrics();
        assert!(empty.log_buffer_bytes > 0 && empty.table_index_bytes == 0 && empty.cache_bytes == 0);
        for k in 0..6000 {
            engine.write(&[(key(1, k), Some(value(&mut rng, k, 1000)))], false).unwrap();
        }
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        let (lower, upper) = (IndexId(1).prefix(), IndexId(2).prefix());
        engine.compact_range(&lower, &upper).unwrap();
        dump(&engine, 1, 2).unwrap();
        let metrics = engine.metrics();
        assert!(metrics.cache_bytes > 0 && metrics.cache_bytes <= metrics.cache_capacity_bytes, "{metrics:?}");
        assert!(metrics.table_index_bytes > 0, "{metrics:?}");
        assert_eq!(metrics.merge_buffer_bytes, 0, "no merge is at work: {metrics:?}");
        let text = engine.status_text();
        for (metric, _) in metrics.values().filter(|(metric, _)| metric.subsystem == Subsystem::Memory) {
            assert!(text.contains(metric.name), "{} is missing in\n{text}", metric.name);
        }
    });
}

/// Many open transactions together keep to a part of the memtables' budget, though none of them is full, and what they hold is
/// counted until they end.
#[test]
fn write_buffers_are_bounded_together_and_counted() {
    within("write buffers", 120, || {
        let budget = 32 << 20;
        let engine = open(&MemDisk::new(), budget);
        let mut rng = Rng::new(5);
        let mut txns: Vec<_> = (0..12).map(|_| engine.begin()).collect();
        let mut most = 0;
        for k in 0..700 {
            for (number, txn) in txns.iter_mut().enumerate() {
                txn.put(&key(1, k * 100 + number as u64), &value(&mut rng, k, 5000)).unwrap();
            }
            most = most.max(engine.metrics().write_buffer_bytes);
        }
        let (step, smallest) = (64 << 10, 1 << 20);
        let bound = budget / 4 + (smallest + step) * txns.len() as u64;
        assert!(most > 8 << 20 && most <= bound, "{most} bytes of {bound}");
        let metrics = engine.metrics();
        let mut parts = metrics.values().filter(|(metric, _)| metric.subsystem == Subsystem::Memory);
        assert!(parts.any(|part| part.1 == metrics.write_buffer_bytes), "{metrics:?}");
        for (number, txn) in txns.iter_mut().enumerate() {
            if number % 2 == 0 { txn.commit() } else { txn.rollback() }.unwrap();
        }
        assert_eq!(left_behind(&engine), []);
        assert_eq!(dump(&engine, 1, 2).unwrap().len(), 700 * 6);
        // One that is dropped on the way, and one that never counted.
        txns[0].put(&key(1, 0), &vec![1; 100_000]).unwrap();
        txns[1].put(&key(1, 1), b"small").unwrap();
        assert!(engine.metrics().write_buffer_bytes >= 100_000);
        drop(txns);
        assert_eq!(left_behind(&engine), []);
    });
}

/// A long row in the memtable may be the last that is written for a long time.
#[test]
fn a_memtable_far_above_its_size_is_flushed_though_nobody_writes() {
    within("idle", 60, || {
        let engine = open(&MemDisk::new(), 4 << 20);
        engine.write(&[(key(1, 1), Some(vec![1; 3 << 20]))], false).unwrap();
        let mut txn = engine.begin();
        txn.put(&key(1, 2), &vec![2; 3 << 20]).unwrap();
        txn.commit().unwrap();
        while engine.metrics().work.flushes < 2 || engine.metrics().sealed_memtables > 0 {
            std::thread::yield_now();
        }
        assert!(engine.metrics().memtable_bytes < 1 << 20, "{:?}", engine.metrics());
        assert_eq!(dump(&engine, 1, 2).unwrap().len(), 2);
    });
}

/// What a merge holds of large values shows in the count while it runs, and the block cache gives way to it; so do the blocks
/// that its sources stand on. Afterwards nothing of it is left.
#[test]
fn what_a_merge_holds_of_large_values_is_counted() {
    within("merge of large values", 120, || {
        const VALUE: usize = 6 << 20;
        let seen: Arc<Mutex<Vec<Metrics>>> = Arc::default();
        let engine: Arc<OnceLock<Weak<Engine>>> = Arc::default();
        let hook: Hook = {
            let (seen, engine) = (seen.clone(), engine.clone());
            Arc::new(move |what: &str, path: &Path| {
                let is_table = path.extension().is_some_and(|extension| extension == "sst");
                if let Some(engine) = engine.get().and_then(Weak::upgrade).filter(|_| what == "write" && is_table) {
                    seen.lock().unwrap().push(engine.metrics());
                }
            })
        };
        let disk = hooked(MemDisk::new(), hook);
        let options = Options { block_cache_bytes: 64 << 20, ..options(disk) };
        let store = Arc::new(Engine::open(Path::new(DIR), options).unwrap());
        let mut rng = Rng::new(1);
        let mut random = |bytes: usize| -> Vec<u8> { (0..bytes / 8).flat_map(|_| rng.next().to_le_bytes()).collect() };
        let mut txn = store.begin();
        for k in 0..3 {
            let bytes = random(VALUE);
            // Each file spans all keys, so that they are sources of their own.
            for (k, value) in [(0, &b"first"[..]), (1 + k, &bytes), (9, b"last")] {
                txn.put(&key(1, k), value).unwrap();
            }
            txn.commit().unwrap();
            store.flush().unwrap();
        }
        let before = store.metrics();
        assert_eq!(before.large_block_bytes, 0);
        drop(engine.set(Arc::downgrade(&store)));
        store.compact_range(&IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
        let seen_by_merges = seen;
        let seen = std::mem::take(&mut *seen_by_merges.lock().unwrap());
        let most = seen.iter().max_by_key(|metrics| metrics.large_block_bytes).unwrap();
        assert!(most.large_block_bytes >= VALUE as u64, "{}", most.large_block_bytes);
        assert!(most.memory_bytes() >= before.memory_bytes() + VALUE as u64);
        let after = store.metrics();
        assert_eq!((after.large_block_bytes, after.merge_buffer_bytes), (0, 0));

        // Rows that are not large, but longer than a block, are counted with the buffers. One leaves the writer when the next comes.
        seen_by_merges.lock().unwrap().clear();
        const LONG: usize = 600 << 10;
        for k in 0..3 {
            for (k, value) in [(20, &b"first"[..]), (21 + k, &random(LONG)), (29, b"last")] {
                txn.put(&key(1, k), value).unwrap();
            }
            txn.commit().unwrap();
            store.flush().unwrap();
        }
        store.compact_range(&key(1, 20), &key(1, 30)).unwrap();
        let seen = std::mem::take(&mut *seen_by_merges.lock().unwrap());
        let most = seen.iter().map(|metrics| metrics.merge_buffer_bytes).max().unwrap();
        assert!(most >= merge_buffer_bytes(64 << 20) + 2 * LONG as u64, "{most}");
        assert_eq!(store.metrics().merge_buffer_bytes, 0);

        // Whoever holds large values takes them from the share of the block cache.
        let mut read = ValueBuf::default();
        assert!(store.get_at(&key(1, 1), SeqNo::MAX, &mut read).unwrap());
        let budget = 64 << 20;
        store.set_block_cache_bytes(budget);
        let held = store.metrics().cache_capacity_bytes;
        read.release();
        store.set_block_cache_bytes(budget);
        assert!(store.metrics().cache_capacity_bytes >= held + VALUE as u64, "{held}");
    });
}

/// Many scans at once read ahead, each into a buffer of its own, and together into no more than a part of the block cache; afterwards
/// nothing of it is left. Each sees all rows.
#[test]
fn scans_that_read_ahead_are_bounded_together_and_counted() {
    within("read-ahead", 120, || {
        const CACHE: u64 = 8 << 20;
        // So far apart that none finds in the cache what another has read.
        const SCANS: usize = 60;
        const APART: usize = 330;
        let disk = MemDisk::new();
        let open = || {
            let options = Options { block_cache_bytes: CACHE, sst_bytes: 32 << 20, ..options(Arc::new(disk.clone())) };
            Engine::open(Path::new(DIR), options).unwrap()
        };
        let (engine, mut rng) = (open(), Rng::new(7));
        for k in 0..20_000 {
            engine
                .write(&[(key(1, k), Some((0..125).flat_map(|_| rng.next().to_le_bytes()).collect()))], false)
                .unwrap();
        }
        engine.flush().unwrap();
        engine.compact_range(&IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
        engine.close().unwrap();
        drop(engine);
        let engine = open();
        let (txn, point) = (engine.begin(), engine.read_point());
        let mut cursors: Vec<_> = (0..SCANS).map(|_| engine.cursor()).collect();
        for (number, cursor) in cursors.iter_mut().enumerate() {
            cursor.open(&txn, point.seq(), &IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
            cursor.seek_ge(&txn, &key(1, number as u64 * APART as u64)).unwrap();
        }
        let mut most = 0;
        for _ in 0..100 {
            for cursor in &mut cursors {
                cursor.next(&txn).unwrap();
            }
            most = most.max(engine.metrics().read_ahead_bytes);
        }
        // One buffer may be on its way over the bound.
        assert!((1 << 20..=CACHE / 4 + (256 << 10)).contains(&most), "{most} bytes are read ahead into");
        assert!(left_behind(&engine).iter().any(|(name, _)| *name == "memory_read_ahead_bytes"));
        for (number, cursor) in cursors.iter_mut().enumerate() {
            let mut rows = number * APART + 100;
            while cursor.valid() {
                (rows, _) = (rows + 1, cursor.next(&txn).unwrap());
            }
            assert_eq!(rows, 20_000, "scan {number}");
        }
        drop((cursors, point, txn));
        assert_eq!(left_behind(&engine), []);
    });
}

/// What transactions and cursors hold is told by name, and nothing of it when they are gone.
#[test]
fn what_is_left_behind_is_told() {
    let engine = open(&MemDisk::new(), 2 << 20);
    engine.write(&[(key(1, 1), Some(vec![1]))], false).unwrap();
    assert_eq!(left_behind(&engine), []);
    let names = || left_behind(&engine).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let point = engine.read_point();
    assert_eq!(names(), ["read_points"]);
    drop(point);
    let mut txn = engine.begin();
    txn.lock(&key(1, 1), LockMode::Exclusive, Wait::No).unwrap();
    assert_eq!(names(), ["locked_keys"]);
    let version = txn.range_version(IndexId(1));
    txn.lock_range(&key(1, 1), &key(1, 9), version);
    txn.put(&key(1, 1), &vec![2; 100_000]).unwrap();
    assert_eq!(names(), ["memory_write_buffer_bytes", "locked_keys", "locked_intervals"]);
    txn.prepare(b"id").unwrap();
    assert!(names().contains(&"memory_prepared_bytes"));
    txn.commit().unwrap();
    assert_eq!(names(), [""; 0]);
}

/// Flushes and merges replace the files of rows that readers have in memory, and leave out of memory what nobody read.
#[test]
fn what_was_in_memory_stays_there_through_merges() {
    within("warm merges", 120, || {
        let disk = MemDisk::new();
        let open = || {
            let few = Options {
                block_cache_bytes: 32 << 20,
                memtable_budget_bytes: 2 << 20,
                // Index and filter of a file are in memory anyway; the usual files are large beside them.
                sst_bytes: 256 << 10,
                ..options(Arc::new(disk.clone()))
            };
            Engine::open(Path::new(DIR), few).unwrap()
        };
        let all = |engine: &Engine| {
            engine.flush().unwrap();
            engine.wait_idle().unwrap();
            engine.compact_range(&IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
        };
        let engine = open();
        let mut rng = Rng::new(4);
        let mut write = |engine: &Engine, from: u64, step: usize| {
            for k in (from..6000).step_by(step) {
                engine.write(&[(key(1, k), Some(value(&mut rng, k, 1000)))], false).unwrap();
            }
        };
        write(&engine, 0, 1);
        all(&engine);
        dump(&engine, 1, 2).unwrap();
        for round in 0..3 {
            write(&engine, round, 3);
            all(&engine);
            let before = engine.metrics();
            dump(&engine, 1, 2).unwrap();
            let after = engine.metrics();
            assert_eq!(after.cache_misses, before.cache_misses, "round {round}: {after:?}");
        }
        engine.close().unwrap();
        drop(engine);

        let engine = open();
        let tables = engine.index_stats(IndexId(1)).bytes;
        engine.write(&[(key(1, 0), Some(vec![1])), (key(1, 5999), Some(vec![2]))], false).unwrap();
        all(&engine);
        let cached = engine.metrics().cache_bytes;
        assert!(cached < tables / 8, "{cached} of {tables} bytes are cached");
    });
}

/// Threads that once read or wrote and rest now keep no version of the store alive: what merges have replaced goes.
#[test]
fn replaced_files_go_while_all_rest() {
    within("replaced files", 120, || {
        let disk = MemDisk::new();
        let engine = open(&disk, 2 << 20);
        let done = Arc::new(Barrier::new(3));
        let workers: Vec<_> = (0..2u64)
            .map(|number| {
                let (engine, done) = (engine.clone(), done.clone());
                std::thread::spawn(move || {
                    let (mut rng, mut txn, mut cursor) = (Rng::new(number), engine.begin(), engine.cursor());
                    for k in 0..8000u64 {
                        txn.put(&key(1, k % 2000 * 2 + number), &value(&mut rng, k, 1000)).unwrap();
                        txn.commit().unwrap();
                        let snapshot = engine.read_point();
                        cursor.open(&txn, snapshot.seq(), &IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
                        cursor.seek_ge(&txn, &key(1, k)).unwrap();
                        cursor.close();
                        engine.get_at(&key(1, k), SeqNo::MAX, &mut Vec::new()).unwrap();
                    }
                    done.wait();
                    done.wait();
                })
            })
            .collect();
        done.wait();
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        let live = engine.metrics().level_files.iter().sum::<u64>() as usize;
        // Ends by `within` otherwise.
        loop {
            let files = disk.list(Path::new(DIR)).unwrap();
            let tables = files.iter().filter(|name| name.to_string_lossy().ends_with(".sst")).count();
            if tables == live {
                break;
            }
            std::thread::yield_now();
        }
        done.wait();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// A memtable that was made for a large budget takes more than a small one allows before anything is in it. It gives way to one
/// of the right size when the budget has become small: writers wait for that, not for ever.
#[test]
fn a_budget_may_become_smaller_than_an_empty_memtable() {
    within("smaller budget", 60, || {
        let engine = open(&MemDisk::new(), 1 << 30);
        engine.set_memtable_budget_bytes(1);
        assert!(engine.metrics().memtable_bytes > engine.metrics().memtable_budget_bytes, "{:?}", engine.metrics());
        let mut rng = Rng::new(1);
        for k in 0..1000 {
            engine.write(&[(key(1, k), Some(value(&mut rng, k, 5000)))], false).unwrap();
        }
        assert!(engine.metrics().memtable_bytes <= 4 << 20, "{:?}", engine.metrics());
    });
}
