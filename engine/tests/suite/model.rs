//! The whole engine against a map: random transactions, snapshots, cursors in both directions, flushes, compactions and
//! reopenings must never make a difference that a reader can see.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use strata_engine::io::MemDisk;
use strata_engine::layer::{IndexId, ReadPoint, SeqNo, Txn};
use strata_engine::{Engine, Options};

const INDEXES: u32 = 3;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Delete(u8),
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
    Snapshot,
    DropSnapshot,
    Flush,
    Compact,
    Reopen,
    Prepare,
    Check,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (any::<u8>(), any::<u16>()).prop_map(|(k, v)| Step::Put(k, v)),
        8 => any::<u8>().prop_map(Step::Delete),
        2 => Just(Step::Savepoint),
        2 => Just(Step::RollbackTo),
        6 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        2 => Just(Step::Snapshot),
        1 => Just(Step::DropSnapshot),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => Just(Step::Prepare),
        3 => Just(Step::Check),
    ];
    proptest::collection::vec(step, 1..150)
}

fn key(k: u8) -> Vec<u8> {
    let index = IndexId(16 + u32::from(k) % INDEXES);
    [&index.prefix()[..], &[b'k', k / 7, k]].concat()
}

fn value(v: u16) -> Vec<u8> {
    vec![v as u8; usize::from(v % 300)]
}

fn options(disk: &Arc<MemDisk>, transaction_bytes: u64) -> Options {
    Options {
        transaction_bytes,
        disk: disk.clone(),
        memtable_budget_bytes: 1 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        sst_bytes: 4 << 10,
        ..Options::default()
    }
}

fn bounds() -> (Vec<u8>, Vec<u8>) {
    (IndexId(16).prefix().to_vec(), IndexId(16 + INDEXES).prefix().to_vec())
}

fn check(engine: &Engine, txn: &Txn, read: SeqNo, expected: &Model) {
    let (lower, upper) = bounds();
    let mut cursor = engine.cursor();
    cursor.open(txn, read, &lower, &upper).unwrap();
    let mut found = Vec::new();
    cursor.seek_ge(txn, &lower).unwrap();
    while cursor.valid() {
        found.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next(txn).unwrap();
    }
    let want: Vec<_> = expected.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(found, want, "forward");
    found.clear();
    cursor.seek_lt(txn, &upper).unwrap();
    while cursor.valid() {
        found.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.prev(txn).unwrap();
    }
    found.reverse();
    assert_eq!(found, want, "backward");
    let mut out = Vec::new();
    for k in (0..=255u8).step_by(5) {
        let got = txn.get(&key(k), read, &mut out).unwrap().then(|| out.clone());
        assert_eq!(got.as_ref(), expected.get(&key(k)), "get {k}");
    }
}

fn run(steps: Vec<Step>, transaction_bytes: u64) {
    let disk = Arc::new(MemDisk::default());
    let dir = std::path::Path::new("/store");
    let mut engine = Engine::open(dir, options(&disk, transaction_bytes)).unwrap();
    let mut txn = engine.begin();
    let mut committed = Model::new();
    let mut own = Model::new();
    let mut savepoints = Vec::new();
    let mut snapshots: Vec<(ReadPoint, Model)> = Vec::new();
    for step in steps {
        match step {
            Step::Put(k, v) => {
                txn.put(&key(k), &value(v)).unwrap();
                own.insert(key(k), value(v));
            }
            Step::Delete(k) => {
                txn.delete(&key(k)).unwrap();
                own.remove(&key(k));
            }
            Step::Savepoint => savepoints.push((txn.savepoint(), own.clone())),
            Step::RollbackTo => {
                if let Some((at, model)) = savepoints.pop() {
                    txn.rollback_to(at);
                    own = model;
                }
            }
            Step::Commit => {
                txn.commit().unwrap();
                committed = own.clone();
                savepoints.clear();
            }
            Step::Rollback => {
                txn.rollback().unwrap();
                own = committed.clone();
                savepoints.clear();
            }
            Step::Snapshot => snapshots.push((engine.read_point(), committed.clone())),
            Step::DropSnapshot => drop(snapshots.pop()),
            Step::Flush => engine.flush().unwrap(),
            Step::Compact => {
                let (lower, upper) = bounds();
                engine.compact_range(&lower, &upper).unwrap();
            }
            Step::Reopen => {
                txn.rollback().unwrap();
                own = committed.clone();
                savepoints.clear();
                snapshots.clear();
                drop(txn);
                engine.close().unwrap();
                drop(engine);
                engine = Engine::open(dir, options(&disk, transaction_bytes)).unwrap();
                txn = engine.begin();
            }
            // Prepared, left behind, decided after a restart.
            Step::Prepare => {
                if txn.has_writes() {
                    txn.prepare(b"xid").unwrap();
                    snapshots.clear();
                    savepoints.clear();
                    drop(txn);
                    engine.close().unwrap();
                    drop(engine);
                    engine = Engine::open(dir, options(&disk, transaction_bytes)).unwrap();
                    check(&engine, &engine.begin(), engine.read_point().seq(), &committed);
                    assert_eq!(engine.prepared(), vec![b"xid".to_vec()]);
                    assert!(engine.commit_prepared(b"xid").unwrap());
                    assert!(engine.prepared().is_empty());
                    committed = own.clone();
                    txn = engine.begin();
                }
            }
            Step::Check => {
                let now = engine.read_point();
                check(&engine, &txn, now.seq(), &own);
                let reader = engine.begin();
                check(&engine, &reader, now.seq(), &committed);
                for (point, model) in &snapshots {
                    check(&engine, &reader, point.seq(), model);
                }
            }
        }
    }
    let reader = engine.begin();
    for (point, model) in &snapshots {
        check(&engine, &reader, point.seq(), model);
    }
    check(&engine, &txn, engine.read_point().seq(), &own);
}

#[derive(Clone, Debug)]
enum Move {
    Put(u8, u16),
    Delete(u8),
    Commit,
    Savepoint,
    RollbackTo,
    Open,
    Refresh,
    SeekGe(u8),
    SeekLt(u8),
    Next,
    Prev,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        20 => (any::<u8>(), any::<u16>()).prop_map(|(k, v)| Move::Put(k, v)),
        8 => any::<u8>().prop_map(Move::Delete),
        1 => Just(Move::Commit),
        2 => Just(Move::Savepoint),
        1 => Just(Move::RollbackTo),
        2 => Just(Move::Open),
        1 => Just(Move::Refresh),
        3 => any::<u8>().prop_map(Move::SeekGe),
        3 => any::<u8>().prop_map(Move::SeekLt),
        20 => Just(Move::Next),
        20 => Just(Move::Prev),
    ];
    proptest::collection::vec(one, 1..250)
}

/// Where a cursor of one transaction stands after each move.
fn walk(moves: &[Move], transaction_bytes: u64) -> Vec<Option<(Vec<u8>, Vec<u8>)>> {
    let disk = Arc::new(MemDisk::default());
    let engine = Engine::open(std::path::Path::new("/store"), options(&disk, transaction_bytes)).unwrap();
    let mut txn = engine.begin();
    let mut cursor = engine.cursor();
    let mut point = engine.read_point();
    let mut savepoints = Vec::new();
    let mut seen = Vec::new();
    let (lower, upper) = bounds();
    for step in moves {
        match step {
            Move::Put(k, v) => txn.put(&key(*k), &value(*v)).unwrap(),
            Move::Delete(k) => txn.delete(&key(*k)).unwrap(),
            Move::Commit => {
                cursor.close();
                txn.commit().unwrap();
                savepoints.clear();
            }
            Move::Savepoint => savepoints.push(txn.savepoint()),
            Move::RollbackTo => {
                if let Some(at) = savepoints.pop() {
                    txn.rollback_to(at);
                }
            }
            Move::Open => {
                point = engine.read_point();
                cursor.open(&txn, point.seq(), &lower, &upper).unwrap();
            }
            Move::Refresh if cursor.valid() => cursor.refresh(&txn, point.seq()).unwrap(),
            Move::SeekGe(k) => cursor.seek_ge(&txn, &key(*k)).unwrap(),
            Move::SeekLt(k) => cursor.seek_lt(&txn, &key(*k)).unwrap(),
            Move::Next if cursor.valid() => cursor.next(&txn).unwrap(),
            Move::Prev if cursor.valid() => cursor.prev(&txn).unwrap(),
            Move::Refresh | Move::Next | Move::Prev => {}
        }
        if matches!(step, Move::SeekGe(_) | Move::SeekLt(_) | Move::Next | Move::Prev) {
            seen.push(cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec())));
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("STRATA_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(100), ..ProptestConfig::default() })]
    #[test]
    fn readers_see_what_was_committed(steps in steps()) {
        run(steps, 0);
    }

    /// The same with transactions too large for memory: every one, or those of more than a few operations.
    #[test]
    fn readers_see_what_large_transactions_committed(steps in steps(), bytes in 1u64..3000) {
        run(steps, bytes);
    }

    /// Whether writes are in memory or in files makes no difference to a cursor that is open meanwhile.
    #[test]
    fn cursors_do_not_care_where_writes_are(moves in moves(), bytes in 1u64..2000) {
        prop_assert_eq!(walk(&moves, 0), walk(&moves, bytes));
    }
}
