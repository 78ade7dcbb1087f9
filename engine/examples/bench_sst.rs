//! Times the table format: building per compression, cached lookups, seeks and steps. Prints one figure per line.
//!
//! Usage: `cargo run --release --example bench_sst [rows] [directory]`. Rows have 12-byte keys (index number and a
//! 64-bit key) and 100-byte values that compress about twofold.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use strata_engine::internals::base::{FileNo, IndexId, Kind, SeqNo};
use strata_engine::internals::cache::Cache;
use strata_engine::internals::iter::VersionIter;
use strata_engine::internals::sst::BlockCache;
use strata_engine::internals::sst::{
    Block, BlockBuilder, Compression, ReadHints, Sst, SstOptions, SstWriter, key_hash,
};
use strata_engine::io::{Disk, PosixDisk};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn key(n: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&IndexId(7).prefix());
    key[4..].copy_from_slice(&n.to_be_bytes());
    key
}

/// A key of text with long common stretches.
fn text_key(n: u64) -> Vec<u8> {
    [&IndexId(7).prefix()[..], format!("customer/{:05}/order/{:06}", n / 100, n).as_bytes()].concat()
}

fn value(n: u64, out: &mut Vec<u8>) {
    let mut rng = Rng(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    out.clear();
    for _ in 0..6 {
        out.extend_from_slice(&rng.next().to_le_bytes());
        out.extend_from_slice(b"constant");
    }
    out.truncate(90);
    out.extend_from_slice(&[0; 10]);
}

/// Prints the best of five runs, in nanoseconds per operation.
fn time(what: &str, count: u64, mut run: impl FnMut()) {
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .fold(f64::MAX, f64::min);
    println!("{what:<46} {best:>9.1} ns/op");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("bench_sst.{}", std::process::id()));
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    disk.create_dir_all(&dir).expect("directory");

    let mut payload = Vec::new();
    for (no, compression) in [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().enumerate() {
        let path = dir.join(format!("{no}.sst"));
        let options = SstOptions { compression, ..SstOptions::default() };
        let start = Instant::now();
        let mut writer = SstWriter::create(&disk, &path, FileNo(no as u64), options).expect("create");
        for n in 0..rows {
            value(n, &mut payload);
            // Even keys exist, odd ones do not.
            writer.add(&key(n * 2), SeqNo(1 + n % 1000), Kind::Put, &payload).expect("add");
        }
        let meta = writer.finish().expect("finish");
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "build {compression:?}: {:.0} MB/s of raw rows, {:.0} ns/row, file is {:.1}% of raw",
            meta.raw_bytes as f64 / 1e6 / seconds,
            seconds * 1e9 / rows as f64,
            meta.file_bytes as f64 * 100.0 / meta.raw_bytes as f64
        );
    }

    for (no, name) in [(0u64, "plain"), (1, "LZ4"), (2, "zstd")] {
        let cache: Arc<BlockCache> = Cache::new(1 << 20);
        let table =
            Sst::open(&disk, &dir.join(format!("{no}.sst")), FileNo(no), cache, &Default::default()).expect("open");
        let walk = |hints: ReadHints| {
            let mut iter = table.iter(hints);
            let mut sum = 0;
            iter.seek_first().expect("seek");
            while iter.valid() {
                sum += iter.value().len();
                iter.next().expect("next");
            }
            black_box(sum);
        };
        time(&format!("uncached scan with read-ahead, {name}, per row"), rows, || {
            walk(ReadHints { fill_cache: false, read_ahead: 1 << 20, defer_large: false });
        });
        let mut rng = Rng(77);
        time(&format!("get from disk, {name}"), 2000, || {
            for _ in 0..2000 {
                black_box(table.get(&key(rng.next() % rows * 2), SeqNo::MAX).expect("get"));
            }
        });
    }

    let cache: Arc<BlockCache> = Cache::new(4 << 30);
    let table = Sst::open(&disk, &dir.join("1.sst"), FileNo(1), cache.clone(), &Default::default()).expect("open");
    let mut iter = table.iter(ReadHints { fill_cache: true, read_ahead: 1 << 20, defer_large: false });
    iter.seek_first().expect("seek");
    while iter.valid() {
        iter.next().expect("next");
    }
    println!("cached: {} blocks, {} bytes", cache.len(), cache.usage());

    let probes: Vec<[u8; 12]> = {
        let mut rng = Rng(5);
        (0..500_000).map(|_| key(rng.next() % rows * 2)).collect()
    };
    let near: Vec<[u8; 12]> = {
        let mut rng = Rng(5);
        (0..500_000).map(|_| key(rng.next() % (rows / 100).max(1) * 2)).collect()
    };
    let count = probes.len() as u64;
    time("key hash", count, || {
        for key in &probes {
            black_box(key_hash(key));
        }
    });
    for (name, probes) in [("all rows", &probes), ("1% of rows", &near)] {
        time(&format!("get, cached, {name}"), count, || {
            for key in probes {
                black_box(table.get(key, SeqNo::MAX).expect("get"));
            }
        });
        let absent: Vec<[u8; 12]> = probes
            .iter()
            .map(|k| {
                let mut k = *k;
                k[11] |= 1;
                k
            })
            .collect();
        time(&format!("get of an absent key, cached, {name}"), count, || {
            for key in &absent {
                black_box(table.get(key, SeqNo::MAX).expect("get"));
            }
        });
        let mut iter = table.iter(ReadHints::default());
        time(&format!("seek_ge, cached, {name}"), count, || {
            for key in probes {
                iter.seek_ge(key).expect("seek");
                black_box(iter.value());
            }
        });
        time(&format!("seek_lt, cached, {name}"), count, || {
            for key in probes {
                iter.seek_lt(key).expect("seek");
                black_box(iter.valid());
            }
        });
    }
    let (mut at, mut iter) = (0, table.iter(ReadHints::default()));
    time("seek_ge, cached, ascending", count, || {
        for _ in 0..count {
            at = (at + 6) % (rows * 2);
            iter.seek_ge(&key(at)).expect("seek");
        }
    });
    time("next with key and value, cached", rows, || {
        iter.seek_first().expect("seek");
        while iter.valid() {
            black_box((iter.key(), iter.seq(), iter.kind(), iter.value()));
            iter.next().expect("next");
        }
    });
    time("prev with key and value, cached", rows, || {
        iter.seek_last().expect("seek");
        while iter.valid() {
            black_box((iter.key(), iter.seq(), iter.kind(), iter.value()));
            iter.prev().expect("prev");
        }
    });
    time("before, cached", count, || {
        for key in &probes {
            black_box(table.before(key).expect("estimate"));
        }
    });
    time("new iterator, seek, drop", count, || {
        for key in &near {
            let mut iter = table.iter(ReadHints::default());
            iter.seek_ge(key).expect("seek");
            black_box(iter.value());
        }
    });
    time("cache lookup alone", count, || {
        for _ in 0..count {
            black_box(cache.get(FileNo(1), 0));
        }
    });
    for threads in [2, 4] {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for key in &near {
                        black_box(table.get(key, SeqNo::MAX).expect("get"));
                    }
                });
            }
        });
        let ns = start.elapsed().as_nanos() as f64 / (count * threads) as f64;
        println!("{:<46} {ns:>9.1} ns/op", format!("get, cached, 1% of rows, {threads} threads"));
    }

    for (name, make) in [("12-byte keys", (|n| key(n).to_vec()) as fn(u64) -> Vec<u8>), ("text keys", text_key)] {
        let mut builder = BlockBuilder::default();
        let mut keys = Vec::new();
        for n in 0..140 {
            value(n, &mut payload);
            keys.push(make(n));
            builder.add(&keys[n as usize], SeqNo(n), Kind::Put, &payload);
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        let block = Block::parse(bytes.clone().into_boxed_slice()).expect("block");
        let order: Vec<usize> = {
            let mut rng = Rng(3);
            (0..10_000).map(|_| (rng.next() % 140) as usize).collect()
        };
        time(&format!("search in one block, {name}"), 10_000, || {
            for &i in &order {
                black_box(block.lower_bound(&keys[i]));
            }
        });
        time(&format!("parse of a block ({} bytes), {name}", bytes.len()), 1000, || {
            for _ in 0..1000 {
                black_box(Block::parse(bytes.clone().into_boxed_slice()).expect("block"));
            }
        });
    }
    std::fs::remove_dir_all(&dir).expect("clean up");
}
