//! The memtable beside what else could hold the newest rows: a skip list and a B-tree without locks, an adaptive radix
//! tree, and the standard library's B-tree behind one lock.
//!
//! `cargo run --release --example memtables [rows]`. Keys of 8 bytes in random order, values of 100; nanoseconds of
//! wall time times the processors at work, for an operation. Strata's memory was touched before, as a store's is (it comes
//! from a pool), and so was that of the allocator that serves the others. They keep one version of a key and no sequence
//! number, which is to their advantage; the radix tree takes no keys but of 8 bytes.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use congee::Congee;
use crossbeam_skiplist::SkipMap;
use scc::TreeIndex;
use strata_engine::internals::base::{Kind, SeqNo};
use strata_engine::internals::iter::VersionIter;
use strata_engine::internals::mem::{ChunkPool, MemTable};

type Value = [u8; 100];
const VALUE: Value = [42; 100];
const THREADS: [u64; 4] = [1, 2, 8, 64];

/// A map of rows in memory.
trait Rows: Sync {
    fn insert(&self, key: u64);
    /// Sum of something of the value, so that it is touched.
    fn get(&self, key: u64) -> u64;
    /// All rows, in order.
    fn scan(&self) -> u64;
}

struct Strata(Arc<MemTable>);

impl Rows for Strata {
    fn insert(&self, key: u64) {
        self.0.insert(&key.to_be_bytes(), SeqNo(1), Kind::Put, &VALUE);
    }
    fn get(&self, key: u64) -> u64 {
        u64::from(self.0.get(&key.to_be_bytes(), SeqNo::MAX).expect("present").2[7])
    }
    fn scan(&self) -> u64 {
        let (mut iter, mut sum) = (self.0.iter(), 0);
        iter.seek_first().expect("in memory");
        while iter.valid() {
            sum += u64::from(iter.value()[7]);
            iter.next().expect("in memory");
        }
        sum
    }
}

impl Rows for SkipMap<u64, Value> {
    fn insert(&self, key: u64) {
        SkipMap::insert(self, key, VALUE);
    }
    fn get(&self, key: u64) -> u64 {
        u64::from(SkipMap::get(self, &key).expect("present").value()[7])
    }
    fn scan(&self) -> u64 {
        self.iter().map(|entry| u64::from(entry.value()[7])).sum()
    }
}

impl Rows for TreeIndex<u64, Box<Value>> {
    fn insert(&self, key: u64) {
        self.insert_sync(key, Box::new(VALUE)).expect("new");
    }
    fn get(&self, key: u64) -> u64 {
        self.peek_with(&key, |_, value| u64::from(value[7])).expect("present")
    }
    fn scan(&self) -> u64 {
        self.iter(&scc::Guard::new()).map(|(_, value)| u64::from(value[7])).sum()
    }
}

/// Values as addresses; they are never freed.
struct Radix(Congee<usize, usize>);

impl Radix {
    fn value(address: usize) -> u64 {
        // SAFETY: every address in the tree is that of a leaked value.
        u64::from(unsafe { (*(address as *const Value))[7] })
    }
}

impl Rows for Radix {
    fn insert(&self, key: u64) {
        let address = Box::leak(Box::new(VALUE)) as *const Value as usize;
        self.0.insert(key as usize, address, &self.0.pin()).expect("memory");
    }
    fn get(&self, key: u64) -> u64 {
        Radix::value(self.0.get(&(key as usize), &self.0.pin()).expect("present"))
    }
    fn scan(&self) -> u64 {
        let (mut from, mut sum, mut rows) = (0, 0, [(0, 0); 256]);
        loop {
            let count = self.0.range(&from, &usize::MAX, &mut rows, &self.0.pin());
            sum += rows[..count].iter().map(|row| Radix::value(row.1)).sum::<u64>();
            match rows[..count].last() {
                Some(last) if count == rows.len() => from = last.0 + 1,
                _ => return sum,
            }
        }
    }
}

impl Rows for RwLock<BTreeMap<u64, Value>> {
    fn insert(&self, key: u64) {
        self.write().expect("no panic").insert(key, VALUE);
    }
    fn get(&self, key: u64) -> u64 {
        u64::from(self.read().expect("no panic")[&key][7])
    }
    fn scan(&self) -> u64 {
        self.read().expect("no panic").values().map(|value| u64::from(value[7])).sum()
    }
}

/// A bijection of the 64-bit numbers that looks random (the finalizer of SplitMix64).
fn scramble(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Nanoseconds for each of `total` steps that `threads` threads share.
fn time(threads: u64, total: u64, work: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for id in 0..threads {
            let work = &work;
            scope.spawn(move || (total * id / threads..total * (id + 1) / threads).for_each(work));
        }
    });
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    start.elapsed().as_nanos() as f64 * threads.min(processors) as f64 / total as f64
}

fn measure<R: Rows>(name: &str, rows: u64, make: impl Fn() -> R) {
    for threads in THREADS {
        let map = make();
        let insert = time(threads, rows, |n| map.insert(scramble(n)));
        let get = time(threads, rows, |n| {
            black_box(map.get(scramble(scramble(n) % rows)));
        });
        let scan = time(1, 1, |_| assert_eq!(map.scan(), rows * 42)) / rows as f64;
        println!("| {name} | {threads} | {insert:.0} | {get:.0} | {scan:.1} |");
    }
}

fn main() {
    let rows: u64 = std::env::args().nth(1).map_or(200_000, |n| n.parse().expect("a number of rows"));
    println!("| {rows} rows, ns | threads | insert | get | next |\n|---|---:|---:|---:|---:|");
    let pool = ChunkPool::new(4 << 20, rows as usize * 600);
    pool.prepare(rows as usize * 400);
    measure("Strata's memtable", rows, || Strata(MemTable::from_pool(&pool, rows as usize * 200)));
    // Leaves the allocator with as much as one of the others takes.
    drop((0..rows).map(|_| Box::new(VALUE)).collect::<Vec<_>>());
    measure("skip list (crossbeam)", rows, SkipMap::new);
    measure("B-tree without locks (scc)", rows, TreeIndex::new);
    measure("adaptive radix tree (congee)", rows, || Radix(Congee::default()));
    measure("B-tree behind a lock (std)", rows, || RwLock::new(BTreeMap::new()));
}
