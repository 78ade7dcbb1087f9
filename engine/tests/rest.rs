//! Merges that are ahead of the writers give the processor away.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{DIR, Rng, key, options, value, within};
use strata_engine::io::MemDisk;
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
        let write = |rng: &mut Rng, k| engine.write(&[(key(1, k), Some(value(rng, k, 1000)))], false).unwrap();
        for k in 0..KEYS {
            write(&mut rng, k);
        }
        engine.wait_idle().unwrap();
        let begun = Instant::now();
        let before = engine.metrics().work.compact_rest_us;
        // One row each millisecond at most: a small part of what merges can take in, also on a busy machine.
        while engine.metrics().work.compact_rest_us == before {
            assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", engine.metrics());
            let k = rng.below(KEYS);
            write(&mut rng, k);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
