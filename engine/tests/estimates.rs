//! How far estimates of ranges may be off: the optimizer chooses plans by them.

mod common;

use std::ops::RangeInclusive;

use common::{key, open};
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
