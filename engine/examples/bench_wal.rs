//! Measures the log: the cost of an append, and group sync by number of threads.
//!
//! `cargo run --release --example bench_wal -- <directory on the device to measure>`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strata_engine::io::{Disk, MemDisk, PosixDisk};
use strata_engine::wal::{Body, Log, LogOptions, Tail};

fn open(disk: Arc<dyn Disk>, dir: &Path) -> Log {
    disk.create_dir_all(dir).unwrap();
    Log::open(disk, dir, LogOptions { epoch: 1, ..LogOptions::default() }, Tail::NEW, Box::new(|_| Ok(()))).unwrap()
}

fn main() {
    let log = open(Arc::new(MemDisk::new()), Path::new("/log"));
    for bytes in [32, 200, 1000] {
        let record = vec![7; bytes];
        let (mut spent, mut count) = (Duration::ZERO, 0u32);
        for _ in 0..100 {
            let begin = Instant::now();
            for _ in 0..5000 {
                log.append_parts(&record, &Body::Plain(&[])).unwrap();
            }
            spent += begin.elapsed();
            count += 5000;
            log.write(log.end()).unwrap();
        }
        println!("append of {bytes} bytes: {:?}", spent / count);
    }

    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else { return };
    for threads in [1, 2, 4, 16, 64] {
        let dir = dir.join(format!("log-{threads}"));
        let log = open(Arc::new(PosixDisk), &dir);
        log.prepare_next().unwrap();
        let begin = Instant::now();
        let limit = Duration::from_secs(2);
        let commits: u64 = std::thread::scope(|scope| {
            let work = || {
                let mut commits = 0;
                while begin.elapsed() < limit {
                    let span = log.append(&[7; 300]).unwrap();
                    log.sync(span.end).unwrap();
                    commits += 1;
                }
                commits
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let seconds = begin.elapsed().as_secs_f64();
        let syncs = log.counters().syncs as f64;
        println!(
            "{threads:3} threads: {:8.0} commits/s, {:6.0} syncs/s, {:5.1} commits per sync",
            commits as f64 / seconds,
            syncs / seconds,
            commits as f64 / syncs
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
