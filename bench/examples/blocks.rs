//! Strata's block beside one of keys without what they share with their predecessor, and a whole key at each 16th (as in
//! LevelDB and its successors): bytes before and after zstd, and what a search and a step cost.
//!
//! `cargo run --release --example blocks`. Both blocks hold the same rows and the same sequence numbers; neither is
//! shuffled before it is compressed.

use std::hint::black_box;
use std::time::Instant;

use strata_engine::internals::base::{Kind, SeqNo};
use strata_engine::internals::sst::{Block, BlockBuilder};

type Row = (Vec<u8>, Vec<u8>);

/// Bytes of rows in a block.
const BLOCK_BYTES: usize = 16 << 10;
/// Rows from one whole key to the next.
const RESTART: usize = 16;

/// `shared, rest, value length` as varints, sequence number and kind in 8 bytes, key's rest, value; at the end the
/// offsets of whole keys.
struct Chained {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
}

fn put(bytes: &mut Vec<u8>, mut n: usize) {
    while n > 127 {
        bytes.push(n as u8 | 128);
        n >>= 7;
    }
    bytes.push(n as u8);
}

fn take(bytes: &[u8], at: &mut usize) -> usize {
    let (mut n, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        n |= usize::from(byte & 127) << shift;
        if byte < 128 {
            return n;
        }
        shift += 7;
    }
}

impl Chained {
    fn build(rows: &[Row]) -> Chained {
        let (mut bytes, mut restarts) = (Vec::new(), Vec::new());
        for (i, (key, value)) in rows.iter().enumerate() {
            let shared = if i % RESTART == 0 {
                restarts.push(bytes.len() as u32);
                0
            } else {
                key.iter().zip(&rows[i - 1].0).take_while(|(a, b)| a == b).count()
            };
            put(&mut bytes, shared);
            put(&mut bytes, key.len() - shared);
            put(&mut bytes, value.len());
            bytes.extend_from_slice(&((i as u64 + 1) << 8).to_le_bytes());
            bytes.extend_from_slice(&key[shared..]);
            bytes.extend_from_slice(value);
        }
        Chained { bytes, restarts }
    }

    fn disk_bytes(&self) -> Vec<u8> {
        let mut all = self.bytes.clone();
        self.restarts.iter().for_each(|offset| all.extend_from_slice(&offset.to_le_bytes()));
        all
    }

    /// Brings `key` to the row at `at`; returns its value and where the next row is.
    fn step(&self, mut at: usize, key: &mut Vec<u8>) -> (&[u8], usize) {
        let shared = take(&self.bytes, &mut at);
        let rest = take(&self.bytes, &mut at);
        let value = take(&self.bytes, &mut at);
        at += 8;
        key.truncate(shared);
        key.extend_from_slice(&self.bytes[at..at + rest]);
        at += rest;
        (&self.bytes[at..at + value], at + value)
    }

    fn find(&self, wanted: &[u8], key: &mut Vec<u8>) -> &[u8] {
        let whole = |offset: u32| {
            let mut at = offset as usize;
            take(&self.bytes, &mut at);
            let len = take(&self.bytes, &mut at);
            take(&self.bytes, &mut at);
            &self.bytes[at + 8..at + 8 + len]
        };
        let restart = self.restarts.partition_point(|&offset| whole(offset) <= wanted);
        let mut at = self.restarts[restart.saturating_sub(1)] as usize;
        key.clear();
        loop {
            let (value, next) = self.step(at, key);
            if &key[..] >= wanted {
                return value;
            }
            at = next;
        }
    }
}

fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn digits(next: &mut impl FnMut() -> u64, groups: usize) -> String {
    (0..groups).map(|_| format!("{:011}", next() % 100_000_000_000)).collect::<Vec<_>>().join("-")
}

/// Rows of a sysbench table: index 7, a number; a number, 119 and 59 digits and dashes.
fn row(n: u64) -> Row {
    let mut next = numbers(n + 1);
    let key = [&7u32.to_be_bytes()[..], &(n as u32 * 3).to_be_bytes()].concat();
    let number = (next() % 500_000) as u32;
    (key, [&number.to_le_bytes()[..], digits(&mut next, 10).as_bytes(), digits(&mut next, 5).as_bytes()].concat())
}

/// Its secondary index: the number, the row's number.
fn index(n: u64) -> Row {
    let mut next = numbers(n + 1);
    // Three rows of each number, in ascending order.
    let row = (n % 3 * 160_000 + next() % 160_000) as u32;
    ([8u32.to_be_bytes(), (n as u32 / 3).to_be_bytes(), row.to_be_bytes()].concat(), Vec::new())
}

/// An index on a text.
fn text(n: u64) -> Row {
    let mut next = numbers(n + 1);
    (
        format!("\0\0\0\x09customer/{:05}/order/{:08}", n / 20, n * 7 + next() % 7).into_bytes(),
        next().to_le_bytes().to_vec(),
    )
}

/// Best of some repetitions, nanoseconds for each of `count` steps.
fn time(count: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..9 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
    }
    best
}

fn measure(name: &str, make: fn(u64) -> Row) {
    let (mut rows, mut size) = (Vec::new(), 0);
    while size < BLOCK_BYTES {
        let row = make(rows.len() as u64);
        size += row.0.len() + row.1.len();
        rows.push(row);
    }
    let mut builder = BlockBuilder::default();
    for (i, (key, value)) in rows.iter().enumerate() {
        builder.add(key, SeqNo(i as u64 + 1), Kind::Put, value);
    }
    let mut columns = Vec::new();
    builder.finish(&mut columns);
    let chained = Chained::build(&rows);
    let block = Block::parse(columns.clone().into_boxed_slice()).expect("a good block");
    let count = rows.len();
    let order: Vec<usize> = {
        let mut next = numbers(3);
        (0..100_000).map(|_| (next() % count as u64) as usize).collect()
    };
    let mut key = Vec::new();
    let finds = [
        time(order.len(), || {
            for &i in &order {
                let (at, found) = block.lower_bound(&rows[i].0);
                assert!(found);
                black_box(block.value(at as u32));
            }
        }),
        time(order.len(), || {
            for &i in &order {
                black_box(chained.find(&rows[i].0, &mut key));
            }
        }),
    ];
    assert!(rows.iter().all(|(wanted, value)| chained.find(wanted, &mut key) == &value[..]));
    let steps = [
        time(count * 100, || {
            for _ in 0..100 {
                for i in 0..count as u32 {
                    key.clear();
                    block.append_key(i, &mut key);
                    black_box((&key, block.value(i)));
                }
            }
        }),
        time(count * 100, || {
            for _ in 0..100 {
                let mut at = 0;
                while at < chained.bytes.len() {
                    let (value, next) = chained.step(at, &mut key);
                    black_box((&key, value));
                    at = next;
                }
            }
        }),
    ];
    for (kind, bytes, i) in [("columns", &columns, 0), ("chained keys", &chained.disk_bytes(), 1)] {
        let packed = |level| zstd::bulk::compress(bytes, level).expect("zstd").len() as f64 / count as f64;
        println!(
            "| {name} | {kind} | {:.1} | {:.1} | {:.1} | {:.0} | {:.1} |",
            bytes.len() as f64 / count as f64,
            packed(1),
            packed(3),
            finds[i],
            steps[i]
        );
    }
}

fn main() {
    println!("| | | bytes a row | zstd 1 | zstd 3 | search, ns | step, ns |\n|---|---|---:|---:|---:|---:|---:|");
    measure("sysbench, row", row);
    measure("sysbench, index", index);
    measure("text keys", text);
}
