//! Values that are read without a copy. A program of its own: what values hold is counted for the whole process.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, plain_options, within};
use strata_engine::io::MemDisk;
use strata_engine::{Engine, Isolation, Options};

/// No byte of a value is copied, it stays what it was whatever the store does, and what it holds is counted until it goes.
#[test]
fn a_value_is_where_the_store_has_it_and_stays() {
    within("values", 120, || {
        let disk = MemDisk::new();
        let options = Options { transaction_bytes: 64 << 10, ..plain_options(Arc::new(disk)) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let users = engine.keyspace("users").unwrap();
        let text = |n: u32| format!("value {n} {}", "x".repeat(300)).into_bytes();
        for n in 0..2000u32 {
            engine.put(&users, n.to_be_bytes(), text(n)).unwrap();
        }
        let get = |n: u32| engine.get(&users, n.to_be_bytes()).unwrap().unwrap();
        let pinned = |engine: &Engine| {
            let metrics = engine.metrics();
            (metrics.memtable_pinned_bytes, metrics.block_pinned_bytes)
        };

        // In a memtable: two reads, one place.
        let in_memory = get(1999);
        assert_eq!(in_memory.as_ptr(), get(1999).as_ptr());
        engine.flush().unwrap();
        let (memtables, blocks) = pinned(&engine);
        assert!(memtables > 0, "the memtable that was flushed is held");
        assert_eq!(blocks, 0);

        // In a file: two values of one block lie in one piece of memory, and the block counts once.
        let first = get(0);
        let one_block = pinned(&engine).1;
        assert!((1 << 10..64 << 10).contains(&one_block), "{one_block}");
        let values: Vec<_> = (0..6).map(get).collect();
        assert_eq!(first.as_ptr(), values[0].as_ptr());
        let apart = values[5].as_ptr().addr().abs_diff(first.as_ptr().addr());
        assert!(apart < 16 << 10, "{apart} bytes apart");
        assert_eq!(pinned(&engine).1, one_block);
        assert_eq!(engine.snapshot().get(&users, 0u32.to_be_bytes()).unwrap().unwrap().as_ptr(), first.as_ptr());

        // A large value, which has its own block; and those of a transaction's own, in memory and in files.
        let large = vec![7u8; 2 << 20];
        engine.put(&users, "large", &large).unwrap();
        engine.flush().unwrap();
        let held = engine.get(&users, "large").unwrap().unwrap();
        let mut transaction = engine.transaction(Isolation::Snapshot);
        for n in 0..1000u32 {
            transaction.put(&users, [&b"own"[..], &n.to_be_bytes()].concat(), text(n)).unwrap();
        }
        let own: Vec<_> = [0u32, 999]
            .iter()
            .map(|n| transaction.get(&users, [&b"own"[..], &n.to_be_bytes()].concat()).unwrap().unwrap())
            .collect();
        transaction.rollback().unwrap();

        for n in 0..2000u32 {
            engine.put(&users, n.to_be_bytes(), "another").unwrap();
        }
        engine.compact(&users).unwrap();
        engine.set_block_cache_bytes(0);
        engine.drop_keyspace(&users).unwrap();
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        engine.close().unwrap();
        drop((users, engine));
        assert!(in_memory == text(1999) && first == text(0) && held == large);
        assert!(own[0] == text(0) && own[1] == text(999));
        for (n, value) in values.iter().enumerate() {
            assert_eq!(*value, text(n as u32));
        }
        drop((in_memory, first, values, held, own));
        let engine = Engine::open_in_memory().unwrap();
        assert_eq!(pinned(&engine), (0, 0), "nothing is held any more");
    });
}
