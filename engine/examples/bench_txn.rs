//! What a transaction of point operations costs the processor, in memory:
//! `cargo run --release -p strata-engine --example bench_txn`. Made to be counted: under
//! `valgrind --tool=callgrind --toggle-collect='*one_transaction*'` the instructions are those of the transactions alone.

use std::path::Path;
use std::sync::Arc;

use strata_engine::io::MemDisk;
use strata_engine::layer::{LockMode, Txn, Wait};
use strata_engine::{Durability, Engine, Options};

const TRANSACTIONS: u64 = 20_000;
const KEYS: u64 = 4;

#[inline(never)]
fn one_transaction(txn: &mut Txn, n: u64, announce: bool) {
    let mut key = [0u8; 12];
    key[3] = 9;
    for i in 0..KEYS {
        key[4..].copy_from_slice(&(n * KEYS + i).to_be_bytes());
        if announce {
            txn.intend_insert(&key, Wait::No).expect("nobody scans");
        }
        txn.lock(&key, LockMode::Exclusive, Wait::No).expect("nobody else locks");
        txn.put(&key, &[7; 100]).expect("a good key");
    }
    txn.commit().expect("a good disk");
}

fn main() {
    let announce = std::env::args().nth(1).is_some_and(|a| a == "insert");
    let options = Options { disk: Arc::new(MemDisk::new()), durability: Durability::EverySecond, ..Options::default() };
    let engine = Engine::open(Path::new("/store"), options).expect("an empty store opens");
    let mut txn = engine.begin();
    for n in 0..TRANSACTIONS {
        one_transaction(&mut txn, n, announce);
    }
    println!("{TRANSACTIONS} transactions of {KEYS} {}", if announce { "inserts" } else { "updates" });
}
