//! How large the data blocks of a store's files are: larger ones where the store fits into its cache, smaller ones where it does not.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Rng, key, options, value, within};
use strata_engine::io::MemDisk;
use strata_engine::{Engine, Options};

const ROWS: u64 = 3000;

fn open(block_cache_bytes: u64) -> Engine {
    let given = options(Arc::new(MemDisk::new()));
    let options = Options { block_cache_bytes, transaction_bytes: 256 << 10, sst_bytes: 128 << 10, ..given };
    Engine::open(Path::new(DIR), options).unwrap()
}

/// Three megabytes that hardly compress, in one transaction.
fn fill(engine: &Engine, rng: &mut Rng) {
    let mut txn = engine.begin();
    for k in 0..ROWS {
        txn.put(&key(1, k), &value(rng, k, 1000)).unwrap();
    }
    txn.commit().unwrap();
}

/// Length of the longest block with rows from `from` on: a range over the border of two blocks is as long as the first of them.
fn longest(engine: &Engine, from: u64, to: u64) -> u64 {
    let bytes = |k| engine.range_estimate(&key(1, k), &key(1, k + 1)).unwrap().bytes;
    (from..to).map(bytes).max().unwrap()
}

const LARGE: std::ops::Range<u64> = 12 << 10..20 << 10;
const SMALL: std::ops::Range<u64> = 4 << 10..10 << 10;

#[test]
fn a_store_that_fits_into_its_cache_has_large_blocks() {
    within("a large cache", 120, || {
        let engine = open(64 << 20);
        fill(&engine, &mut Rng::new(1));
        assert!(LARGE.contains(&longest(&engine, 0, ROWS)));
        engine.compact_range(&[], &[0xff; 4]).unwrap();
        assert!(LARGE.contains(&longest(&engine, 0, ROWS)));
    });
}

/// Also within the transaction that fills it: the store was empty when it began. What was written before is rewritten by merges.
#[test]
fn a_store_that_outgrows_its_cache_goes_on_with_small_ones() {
    within("a small cache", 120, || {
        let engine = open(1 << 20);
        let mut rng = Rng::new(1);
        fill(&engine, &mut rng);
        assert!(LARGE.contains(&longest(&engine, 0, ROWS / 6)), "{}", longest(&engine, 0, ROWS / 6));
        assert!(SMALL.contains(&longest(&engine, ROWS / 2, ROWS)), "{}", longest(&engine, ROWS / 2, ROWS));
        fill(&engine, &mut rng);
        engine.compact_range(&[], &[0xff; 4]).unwrap();
        assert!(SMALL.contains(&longest(&engine, 0, ROWS)), "{}", longest(&engine, 0, ROWS));
    });
}
