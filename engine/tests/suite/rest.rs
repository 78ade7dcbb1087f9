//! Merges that are ahead of the writers give the processor away, unless somebody waits for them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{DIR, Rng, key, options, value, within};
use strata_engine::io::MemDisk;
use strata_engine::layer::IndexId;
use strata_engine::{Engine, Options};

const KEYS: u64 = 20_000;

#[test]
fn merges_rest_under_a_light_load() {
    within("rest", 120, || {
        // Files large enough for a merge to look up from its work in the middle.
        let options =
            Options { memtable_budget_bytes: 4 << 20, sst_bytes: 4 << 20, ..options(Arc::new(MemDisk::new())) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let mut rng = Rng::new(3);
        for k in 0..KEYS {
            write(&engine, &mut rng, k);
        }
        engine.wait_idle().unwrap();
        until_a_merge_rests(&engine, &mut rng);
    });
}

fn write(engine: &Engine, rng: &mut Rng, k: u64) {
    engine.write(&[(key(1, k), Some(value(rng, k, 1000)))], false).unwrap();
}

fn until_a_merge_rests(engine: &Engine, rng: &mut Rng) {
    let begun = Instant::now();
    let before = engine.metrics().work.compact_rest_us;
    // One row each millisecond at most: a small part of what merges can take in, also on a busy machine.
    while engine.metrics().work.compact_rest_us == before {
        assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", engine.metrics());
        let k = rng.below(KEYS);
        write(engine, rng, k);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Merges that OPTIMIZE TABLE waits for, since they have its files, do not rest while it waits; nor does what is waited for in
/// general. Users write all the while.
#[test]
fn merges_that_somebody_waits_for_do_not_rest() {
    within("awaited", 120, || {
        let options = Options {
            memtable_budget_bytes: 4 << 20,
            sst_bytes: 4 << 20,
            compaction_threads: 1,
            ..options(Arc::new(MemDisk::new()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let mut rng = Rng::new(3);
        for k in 0..KEYS {
            write(&engine, &mut rng, k);
        }
        let (lower, upper) = (IndexId(1).prefix(), IndexId(2).prefix());
        for idle in [false, true] {
            until_a_merge_rests(&engine, &mut rng);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut rng = Rng::new(4);
                    while !done.load(Ordering::Relaxed) {
                        let k = rng.below(KEYS);
                        // So little that nothing is flushed meanwhile.
                        engine.write(&[(key(2, k), Some(vec![1; 10]))], false).unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                let before = engine.metrics().work;
                match idle {
                    true => engine.wait_idle().unwrap(),
                    false => engine.compact_range(&lower, &upper).unwrap(),
                }
                let after = engine.metrics().work;
                done.store(true, Ordering::Relaxed);
                // One may have ended as the wait began.
                let rested_us = after.compact_rest_us - before.compact_rest_us;
                assert!(rested_us <= 100_000, "idle: {idle}, {rested_us} us of rest");
                assert!(after.compactions > before.compactions);
            });
        }
    });
}
