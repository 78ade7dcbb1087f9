//! Time of the threads that a benchmark runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Processor time of this thread in nanoseconds, as Linux counts it; zero elsewhere.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Runs `work(thread)` on `threads` threads, each for `each` operations, and prints the time per operation.
pub fn measure(name: &str, threads: u64, each: u64, work: impl Fn(u64) + Sync) {
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
