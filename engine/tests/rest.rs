//! Merges that are ahead of the writers give the processor away.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{DIR, Rng, key, options, value, within};
use strata_engine::io::MemDisk;
use strata_engine::{Engine, Options};

#[test]
fn merges_rest_under_a_light_load() {
    within("rest", 120, || {
        let options = Options { memtable_budget_bytes: 1 << 20, ..options(Arc::new(MemDisk::new())) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let mut rng = Rng::new(3);
        let begun = Instant::now();
        let write = |rng: &mut Rng| {
            let k = rng.below(20_000);
            engine.write(&[(key(1, k), Some(value(rng, k, 4000)))], false).unwrap();
        };
        // One row each millisecond: a small part of what merges can take in.
        while engine.metrics().work.compact_rest_us == 0 {
            assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", engine.metrics());
            write(&mut rng);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
