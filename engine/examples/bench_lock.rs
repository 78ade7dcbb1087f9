//! Speed of row locks and read points without contention: `cargo run --release -p strata-engine --example bench_lock`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use strata_engine::base::SeqNo;
use strata_engine::lock::{LockMode, LockTable, Wait};
use strata_engine::read_point::ReadPoints;

fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn measure(name: &str, threads: u64, each: u64, work: impl Fn(u64) + Sync) {
    let start = Instant::now();
    let cpu = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for id in 0..threads {
            let (work, cpu) = (&work, &cpu);
            scope.spawn(move || {
                let before = cpu_ns();
                work(id);
                cpu.fetch_add(cpu_ns() - before, Ordering::Relaxed);
            });
        }
    });
    let wall = start.elapsed().as_nanos() as f64 / each as f64;
    let cpu = cpu.into_inner() as f64 / (each * threads) as f64;
    println!("{name:<34} {threads} threads {cpu:8.1} ns cpu {wall:8.1} ns wall");
}

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
