//! What the store holds in memory stays within its budgets, and all of it is accounted for.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{DIR, Rng, dump, key, options, value, within};
use strata_engine::io::MemDisk;
use strata_engine::{Engine, IndexId, Options};

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
        engine.close().unwrap();
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
        assert_eq!(metrics.memory_bytes(), metrics.memory().iter().map(|(_, bytes)| bytes).sum::<u64>());
        let text = engine.status_text();
        for (what, _) in metrics.memory() {
            assert!(text.contains(what), "{what} is missing in\n{text}");
        }
    });
}
