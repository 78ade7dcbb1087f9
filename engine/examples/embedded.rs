//! Strata's engine without a server: open a store, run transactions, close it, find everything again.
//!
//!     cargo run -p strata-engine --example embedded

use strata_engine::{Engine, Isolation, Options, Result};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("strata-embedded-{}", std::process::id()));
    let engine = Engine::open(&dir, Options::default())?;
    let accounts = engine.keyspace("accounts")?;
    let mut transaction = engine.transaction(Isolation::Serializable);
    for (name, balance) in [("alice", 70u64), ("bob", 50), ("carol", 7)] {
        transaction.put(&accounts, name, balance.to_le_bytes())?;
    }
    let savepoint = transaction.savepoint();
    transaction.delete(&accounts, "carol")?;
    transaction.rollback_to(savepoint)?;
    transaction.commit()?;
    engine.close()?;
    drop(engine);

    let engine = Engine::open(&dir, Options::default())?;
    let accounts = engine.keyspace("accounts")?;
    for row in engine.snapshot().iter(&accounts).rev() {
        let (name, balance) = row?;
        let balance = u64::from_le_bytes(balance[..].try_into().expect("eight bytes"));
        println!("after reopen: {} has {balance}", name.escape_ascii());
    }
    engine.drop_keyspace(&accounts)?;
    engine.close()?;
    std::fs::remove_dir_all(&dir).expect("the directory was just made");
    Ok(())
}
