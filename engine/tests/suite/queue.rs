//! A table used as a queue: rows come at one end and go at the other. Finding the head stays cheap, and little is written.
//! Measured in dead rows stepped over, not in time.

use std::sync::Arc;

use crate::common::{key, options, within};
use strata_engine::Engine;
use strata_engine::layer::IndexId;

const INDEX: u32 = 20;
const BACKLOG: u64 = 50;
/// A seek that has stepped over so many dead rows (and half as many again, by the precision of the estimate) makes the
/// engine act.
const DEAD_RUN: u64 = 4096 * 3 / 2;

/// Rows stepped over to find the head, or from behind the tail. `head` is the row expected there.
fn seek(engine: &Engine, backward: bool, expected: u64) -> u64 {
    let txn = engine.begin();
    let point = engine.read_point();
    let mut cursor = engine.cursor();
    let (lower, upper) = (IndexId(INDEX).prefix(), IndexId(INDEX + 1).prefix());
    cursor.open(&txn, point.seq(), &lower, &upper).unwrap();
    if backward { cursor.seek_lt(&txn, &upper) } else { cursor.seek_ge(&txn, &lower) }.unwrap();
    assert!(cursor.valid() && cursor.key() == key(INDEX, expected));
    cursor.skipped()
}

/// Returns once a memtable was flushed beyond the first `flushes`, and none waits for it.
fn wait_for_flush(engine: &Engine, flushes: u64) {
    let done = |metrics: &strata_engine::Metrics| metrics.work.flushes > flushes && metrics.sealed_memtables == 0;
    while !done(&engine.metrics()) {
        std::thread::yield_now();
    }
}

/// Lets 60,000 rows pass; upwards (oldest first) or downwards, with the head at the upper end.
fn pass(down: bool) {
    let memory = strata_engine::io::MemDisk::new();
    let budget = strata_engine::Options { memtable_budget_bytes: 64 << 20, ..options(Arc::new(memory.clone())) };
    let engine = Engine::open(std::path::Path::new(crate::common::DIR), budget).unwrap();
    let row = |n: u64| if down { 99_999 - n } else { n };
    let put = |n: u64| engine.write(&[(key(INDEX, row(n)), Some(vec![7; 100]))], false).unwrap();
    (0..BACKLOG).for_each(|n| {
        put(n);
    });
    let mut longest = 0;
    for n in BACKLOG..60_000 {
        put(n);
        engine.write(&[(key(INDEX, row(n - BACKLOG)), None)], false).unwrap();
        if n % 256 == 0 {
            let flushes = engine.metrics().work.flushes;
            let skipped = seek(&engine, down, row(n - BACKLOG + 1));
            longest = longest.max(skipped);
            if skipped > DEAD_RUN {
                wait_for_flush(&engine, flushes);
                let after = seek(&engine, down, row(n - BACKLOG + 1));
                // Those since the seal.
                assert!(after < DEAD_RUN / 2, "{after} dead rows before the head after the flush");
            }
        }
    }
    assert!(longest < DEAD_RUN + 600, "{longest} dead rows before the head");
    let work = engine.metrics().work;
    assert!(work.flushes > 5);
    // All rows together have six megabytes.
    assert!(work.flush_bytes < 1 << 20, "{} bytes written for rows that came and went", work.flush_bytes);
}

#[test]
fn the_head_of_a_queue_is_found_at_once() {
    within("upwards", 120, || pass(false));
}

#[test]
fn from_either_end() {
    within("downwards", 120, || pass(true));
}
