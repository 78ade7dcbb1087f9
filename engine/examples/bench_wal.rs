//! Measures the log: the cost of an append, and group sync by number of threads, past the page cache (as Strata writes its
//! log) and through it.
//!
//! `cargo run --release --example bench_wal -- <directory on the device to measure> [records of so many bytes]`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strata_engine::Result;
use strata_engine::internals::wal::{Body, Log, LogOptions, Tail};
use strata_engine::io::{Disk, File, MemDisk, Mode, PosixDisk};

/// The host's file system, through the page cache even where the log asks to go past it.
struct Cached;

impl Disk for Cached {
    fn open(&self, path: &Path, mode: Mode, _direct: bool) -> Result<Arc<dyn File>> {
        PosixDisk::default().open(path, mode, false)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        PosixDisk::default().rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        PosixDisk::default().remove(path)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        PosixDisk::default().link(from, to)
    }
    fn remove_dir(&self, dir: &Path) -> Result<()> {
        PosixDisk::default().remove_dir(dir)
    }
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        PosixDisk::default().list(dir)
    }
    fn size(&self, path: &Path) -> Result<Option<u64>> {
        PosixDisk::default().size(path)
    }
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        PosixDisk::default().create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        PosixDisk::default().sync_dir(dir)
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        PosixDisk::default().lock_dir(dir)
    }
}

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
    let bytes = std::env::args().nth(2).map_or(300, |n| n.parse().expect("bytes of a record"));
    for threads in [1, 2, 4, 16, 64] {
        // In turn, since the device's speed changes.
        for round in 1..=3 {
            let ways: [(&str, Arc<dyn Disk>); 2] =
                [("direct", Arc::new(PosixDisk::default())), ("cached", Arc::new(Cached))];
            for (name, disk) in ways {
                println!(
                    "{threads:3} threads, {name}, {round}: {}",
                    commits(disk, &dir.join(format!("bench_wal.{}", std::process::id())), threads, bytes)
                );
            }
        }
    }
}

/// Commits of one record of `bytes` on each of `threads` threads, for two seconds.
fn commits(disk: Arc<dyn Disk>, dir: &Path, threads: u32, bytes: usize) -> String {
    let log = open(disk, dir);
    log.prepare_next().unwrap();
    let begin = Instant::now();
    let limit = Duration::from_secs(2);
    let record = vec![7; bytes];
    let commits: u64 = std::thread::scope(|scope| {
        let work = || {
            let mut commits = 0;
            while begin.elapsed() < limit {
                let span = log.append(&record).unwrap();
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
    drop(log);
    std::fs::remove_dir_all(dir).unwrap();
    format!(
        "{:8.0} commits/s, {:6.0} syncs/s, {:5.1} commits per sync",
        commits as f64 / seconds,
        syncs / seconds,
        commits as f64 / syncs
    )
}
