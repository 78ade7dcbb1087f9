//! Speed of row locks and read points without contention: `cargo run --release -p strata-engine --example bench_lock`.

mod timing;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use strata_engine::internals::read_point::ReadPoints;
use strata_engine::layer::{LockMode, LockTable, SeqNo, Wait};
use timing::measure;

fn main() {
    const EACH: u64 = 2_000_000;
    for threads in [1, 2] {
        let table = LockTable::new(256);
        measure("lock + release, 5 keys a batch", threads, EACH, |id| {
            let owner = table.new_owner();
            let mut key = [0u8; 12];
            for n in 0..EACH / 5 {
                for i in 0..5u64 {
                    key[4..].copy_from_slice(&(n * 7919 + i * 104_729 + (id << 48)).to_be_bytes());
                    black_box(table.lock(&owner, &key, LockMode::Exclusive, Wait::No).unwrap());
                }
                table.release_all(&owner);
            }
        });
        let points = ReadPoints::new();
        let visible = AtomicU64::new(1);
        measure("read point, register + drop", threads, EACH, |_| {
            for _ in 0..EACH {
                black_box(points.register(|| SeqNo(visible.load(Ordering::Acquire))).seq());
            }
        });
    }
}
