//! A test of the whole engine: no nonce is used twice under one data key, over recycled segments, crashes and images of one moment that
//! are opened several times. `crypt` keeps all pairs that this process has used, in every test, and fails on the second use.

use std::path::Path;
use std::sync::Arc;

use crate::base::IndexId;
use crate::crypt::audit;
use crate::crypt::testing::FixedKeys;
use crate::io::MemDisk;
use crate::{Compression, Engine, Options};

fn open(disk: &MemDisk) -> Engine {
    let options = Options {
        disk: Arc::new(disk.clone()),
        keys: Some(FixedKeys::of(&[1])),
        encrypt_log: true,
        encrypt_indexes: true,
        log_segment_bytes: 64 << 10,
        memtable_budget_bytes: 2 << 20,
        transaction_bytes: 20_000,
        ..Options::default()
    };
    let engine = Engine::open(Path::new("/store"), options).unwrap();
    engine.set_index_compression(IndexId(16), Some(Compression::None));
    engine
}

/// Writes that fill several segments, spill, and have a large value.
fn work(engine: &Engine, round: u8) {
    for n in 0..60u8 {
        let key = [&IndexId(16).prefix()[..], &[round, n]].concat();
        engine.write(&[(key, Some(vec![n; 3000]))], true).unwrap();
    }
    let mut txn = engine.begin();
    for n in 0..60u8 {
        txn.put(&[&IndexId(17).prefix()[..], &[round, n]].concat(), &[n; 900]).unwrap();
    }
    txn.put(&[&IndexId(18).prefix()[..], &[round]].concat(), &vec![round; 2 << 20]).unwrap();
    txn.commit().unwrap();
    engine.flush().unwrap();
}

#[test]
fn no_nonce_is_used_twice() {
    let before = audit::count();
    let mut disk = MemDisk::new();
    for round in 0..4 {
        let engine = open(&disk);
        (0..3).for_each(|part| work(&engine, 3 * round + part));
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        let images: Vec<MemDisk> = (0..3).map(|seed| disk.crash(seed)).collect();
        drop(engine);
        // One moment goes on in several ways.
        for image in &images {
            work(&open(image), 100 + round);
        }
        disk = images.into_iter().next().unwrap();
    }
    assert!(audit::count() > before + 1000);
}
