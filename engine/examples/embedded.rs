//! Strata's engine without a server: open a store, run transactions, close it, find everything again.
//!
//!     cargo run -p strata-engine --example embedded

use strata_engine::layer::{IndexId, SeqNo};
use strata_engine::layer::{LockMode, Wait};
use strata_engine::{Engine, Options, Result};

fn key(index: IndexId, name: &str) -> Vec<u8> {
    [&index.prefix()[..], name.as_bytes()].concat()
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("strata-embedded-{}", std::process::id()));
    let accounts = IndexId(16);
    {
        let engine = Engine::open(&dir, Options::default())?;
        let mut txn = engine.begin();
        for (name, balance) in [("alice", 100u64), ("bob", 20), ("carol", 7)] {
            txn.put(&key(accounts, name), &balance.to_le_bytes())?;
        }
        txn.commit()?;

        // A transfer: lock both rows, read their newest versions, write, and undo one half to a savepoint.
        let mut txn = engine.begin();
        let mut value = Vec::new();
        for name in ["alice", "bob"] {
            txn.lock(&key(accounts, name), LockMode::Exclusive, Wait::TimeoutUs(1_000_000))?;
        }
        txn.get(&key(accounts, "alice"), SeqNo::MAX, &mut value)?;
        println!("alice has {}", u64::from_le_bytes(value[..].try_into().expect("eight bytes")));
        txn.put(&key(accounts, "alice"), &70u64.to_le_bytes())?;
        txn.put(&key(accounts, "bob"), &50u64.to_le_bytes())?;
        let savepoint = txn.savepoint();
        txn.delete(&key(accounts, "carol"))?;
        txn.rollback_to(savepoint);
        txn.commit()?;
        engine.close()?;
    }
    let engine = Engine::open(&dir, Options::default())?;
    let txn = engine.begin();
    let snapshot = engine.read_point();
    let mut cursor = engine.cursor();
    cursor.open(&txn, snapshot.seq(), &accounts.prefix(), &IndexId(17).prefix())?;
    cursor.seek_ge(&txn, &accounts.prefix())?;
    while cursor.valid() {
        let balance = u64::from_le_bytes(cursor.value().try_into().expect("eight bytes"));
        println!("after reopen: {} has {balance}", String::from_utf8_lossy(&cursor.key()[IndexId::LEN..]));
        cursor.next(&txn)?;
    }
    drop(cursor);
    engine.close()?;
    std::fs::remove_dir_all(&dir).map_err(|e| strata_engine::Error::io("remove", &dir, e))
}
