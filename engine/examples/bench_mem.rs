//! Speed of the memtable: `cargo run --release -p strata-engine --example bench_mem [keys]`.
//!
//! 20-byte keys (index id, 16 bytes), 100-byte values. Prints nanoseconds of processor time per operation, so that other
//! load on the machine disturbs less (shared caches and memory still do), then of wall time.

mod timing;

use std::hint::black_box;
use std::sync::Arc;

use strata_engine::internals::base::{Kind, SeqNo};
use strata_engine::internals::iter::VersionIter;
use strata_engine::internals::mem::{ChunkPool, InsertHint, MemTable};

/// Runs `work(thread, first, last)` on `threads` threads over `0..total` and prints the time per operation.
fn measure(name: &str, threads: u64, total: u64, work: impl Fn(u64, u64, u64) + Sync) {
    let each = total / threads;
    timing::measure(name, threads, each, |id| work(id, each * id, each * (id + 1)));
}

const CHUNK: usize = 4 << 20;

fn scramble(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    let n = (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
    n ^ (n >> 33)
}

fn key(n: u64) -> [u8; 20] {
    let mut key = [0u8; 20];
    key[..4].copy_from_slice(&7u32.to_be_bytes());
    key[4..12].copy_from_slice(&n.to_be_bytes());
    key
}

fn main() {
    let total: u64 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("number of keys"));
    let value = [42u8; 100];
    // One pool as in a store, filled beforehand: first touches of memory are not part of the figures.
    let pool = ChunkPool::new(CHUNK, total as usize * 600);
    pool.prepare(total as usize * 500);
    let fresh = || MemTable::from_pool(&pool, total as usize * 200);
    for threads in [1, 2] {
        let table: Arc<MemTable> = fresh();
        measure("insert, random", threads, total, |_, from, to| {
            for n in from..to {
                table.insert(&key(scramble(n)), SeqNo(n + 1), Kind::Put, &value);
            }
        });
        println!("    {} bytes per key", table.bytes() as u64 / table.key_count());
        measure("get, present", threads, total, |id, from, to| {
            for n in from..to {
                black_box(table.get(&key(scramble(scramble(n ^ id) % total)), SeqNo::MAX).unwrap());
            }
        });
        measure("get, absent", threads, total, |_, from, to| {
            for n in from..to {
                assert!(table.get(&key(scramble(n + (1 << 40))), SeqNo::MAX).is_none());
            }
        });
        measure("update, random", threads, total, |id, from, to| {
            for n in from..to {
                let k = key(scramble(scramble(n ^ id) % total));
                table.insert(&k, SeqNo(total + n + 1), Kind::Put, &value);
            }
        });
        measure("seek_ge, absent key", threads, total, |_, from, to| {
            let mut iter = table.iter();
            for n in from..to {
                iter.seek_ge(&key(scramble(n + (1 << 40)))).unwrap();
                black_box(iter.valid());
            }
        });
        measure("seek_ge, present key", threads, total, |_, from, to| {
            let mut iter = table.iter();
            for n in from..to {
                iter.seek_ge(&key(scramble(scramble(n) % total))).unwrap();
                black_box(iter.valid());
            }
        });
        let table = fresh();
        for n in 0..total {
            table.insert(&key(scramble(n)), SeqNo(n + 1), Kind::Put, &value);
        }
        measure("next, after random inserts", threads, total * threads, |_, _, _| walk(&table));
        for round in ["prev, after random inserts", "prev, again"] {
            measure(round, threads, total * threads, |_, _, _| {
                let mut iter = table.iter();
                iter.seek_last().unwrap();
                while iter.valid() {
                    black_box((iter.key().len(), iter.value()[0]));
                    iter.prev().unwrap();
                }
            });
        }
        let table = fresh();
        measure("insert, ascending", threads, total, |_, from, to| {
            for n in from..to {
                table.insert(&key(n), SeqNo(n + 1), Kind::Put, &value);
            }
        });
        measure("next, after ascending inserts", threads, total * threads, |_, _, _| walk(&table));
        let table = fresh();
        measure("insert, ascending with hint", threads, total, |_, from, to| {
            let mut hint = InsertHint::default();
            for n in from..to {
                table.insert_hinted(&mut hint, &key(n), SeqNo(n + 1), Kind::Put, &value);
            }
        });
        let table = MemTable::from_pool(&pool, 8 << 20);
        measure("insert, random, index not sized", threads, total, |_, from, to| {
            for n in from..to {
                table.insert(&key(scramble(n)), SeqNo(n + 1), Kind::Put, &value);
            }
        });
        measure("get, present, index not sized", threads, total, |id, from, to| {
            for n in from..to {
                black_box(table.get(&key(scramble(scramble(n ^ id) % total)), SeqNo::MAX).unwrap());
            }
        });
    }
}

/// Looks at every entry in order.
fn walk(table: &Arc<MemTable>) {
    let mut iter = table.iter();
    iter.seek_first().unwrap();
    while iter.valid() {
        black_box((iter.key().len(), iter.value()[0]));
        iter.next().unwrap();
    }
}
