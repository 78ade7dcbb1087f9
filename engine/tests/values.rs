//! What a large value takes in memory: written, it is never put together; read, it is there once; afterwards, nothing. The
//! peak of the process is what counts, so this program has one test.
#![cfg(target_os = "linux")]

#[path = "suite/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;

use common::{Rng, within};
use strata_engine::layer::{IndexId, SeqNo, ValueBuf};
use strata_engine::{Engine, Options};

const MIB: usize = 1 << 20;
const VALUE: usize = 48 * MIB;
/// Threads' stacks, read-ahead, small buffers: what does not grow with the value.
const BESIDE: usize = 8 * MIB;

fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// By how much the memory of the process grows at most while `work` runs, and what it returns.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    let done = work();
    (status("VmHWM:").saturating_sub(before), done)
}

fn key(k: u8) -> Vec<u8> {
    [&IndexId(1).prefix()[..], &[k]].concat()
}

fn random() -> Vec<u8> {
    let mut rng = Rng::new(7);
    (0..VALUE / 4).flat_map(|_| (rng.next() as u32).to_le_bytes()).collect()
}

#[test]
fn a_large_value_is_in_memory_once_at_most() {
    within("values", 300, || {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let options = Options { block_cache_bytes: 8 << 20, memtable_budget_bytes: 8 << 20, ..Options::default() };
        let engine = Engine::open(Path::new(dir.path()), options).unwrap();
        let values = [random(), b"some text ".repeat(VALUE / 10)];
        let mut txn = engine.begin();
        // Warm up what is made once.
        txn.put(&key(0), &values[0][..2 * MIB]).unwrap();
        txn.commit().unwrap();
        engine.flush().unwrap();

        for (k, value) in (1..).zip(&values) {
            let (grown, ()) = peak(|| {
                txn.put_parts(&key(k), &[b"head", value, b"tail"]).unwrap();
                txn.commit().unwrap();
                engine.flush().unwrap();
                engine.wait_idle().unwrap();
            });
            assert!(grown < BESIDE, "written: {} MiB more", grown / MIB);
        }
        let metrics = engine.metrics();
        assert!(metrics.memtable_bytes < 4 << 20 && metrics.left_behind().is_empty(), "{metrics:?}");
        let bytes: u64 = metrics.level_bytes.iter().sum();
        assert!(bytes > VALUE as u64 && bytes < VALUE as u64 * 5 / 4, "the text is packed: {bytes}");

        for (k, value) in (1..).zip(&values) {
            let mut read = ValueBuf::default();
            let (grown, ()) = peak(|| {
                assert!(engine.get_at(&key(k), SeqNo::MAX, &mut read).unwrap());
                assert!(read.len() == value.len() + 8 && read[4..value.len() + 4] == **value);
            });
            assert!(grown < VALUE + BESIDE, "read: {} MiB more", grown / MIB);
            assert!(engine.metrics().large_block_bytes >= VALUE as u64);
            assert!(engine.metrics().memory_bytes() >= VALUE as u64);
            read.release();
            assert_eq!(engine.metrics().left_behind(), []);
        }

        // Copied out of a memtable: a value in a buffer, which takes as much until it is released.
        let (mut read, middle) = (ValueBuf::default(), vec![7; 3 * MIB / 2]);
        engine.write(&[(key(8), Some(b"short".to_vec())), (key(9), Some(middle.clone()))], false).unwrap();
        assert!(engine.get_at(&key(9), SeqNo::MAX, &mut read).unwrap() && *read == *middle);
        let metrics = engine.metrics();
        assert!((middle.len() as u64..3 * MIB as u64).contains(&metrics.value_buffer_bytes), "{metrics:?}");
        assert_eq!(metrics.large_block_bytes, 0);
        // A short one into the same buffer: the memory is still there.
        assert!(engine.get_at(&key(8), SeqNo::MAX, &mut read).unwrap() && *read == *b"short");
        engine.write(&[(key(8), None), (key(9), None)], false).unwrap();
        engine.flush().unwrap();
        assert!(engine.metrics().left_behind().iter().any(|(name, _)| *name == "memory_value_buffer_bytes"));
        let mut other = std::mem::take(&mut read);
        other.release();
        assert_eq!(engine.metrics().left_behind(), []);

        // A scan, whose reader keeps the value it stands on.
        let (point, mut cursor) = (engine.read_point(), engine.cursor());
        let mut rows = 0;
        let (grown, ()) = peak(|| {
            let mut row = ValueBuf::default();
            cursor.open(&txn, point.seq(), &IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
            cursor.seek_ge(&txn, &key(0)).unwrap();
            while cursor.valid() {
                if let Some(large) = cursor.large_value() {
                    strata_engine::layer::ValueOut::hold(&mut row, large);
                }
                rows += 1;
                row.release();
                cursor.next(&txn).unwrap();
            }
        });
        assert_eq!(rows, 3);
        assert_eq!(engine.metrics().large_block_bytes, 0, "behind the last row nothing is held");
        assert!(grown < 2 * VALUE + BESIDE, "scanned: {} MiB more", grown / MIB);
        drop((cursor, point));

        // Replaced and merged: what is read for the merge is in memory, what is written is not.
        let (grown, ()) = peak(|| {
            txn.put_parts(&key(1), &[&values[0]]).unwrap();
            txn.commit().unwrap();
            engine.compact_range(&IndexId(1).prefix(), &IndexId(2).prefix()).unwrap();
        });
        assert!(grown < 3 * VALUE + BESIDE, "merged: {} MiB more", grown / MIB);
        let mut read = ValueBuf::default();
        assert!(engine.get_at(&key(1), SeqNo::MAX, &mut read).unwrap() && *read == *values[0]);
        drop(read);

        // Undone: by itself, as a statement, and as a whole.
        let mark = txn.savepoint();
        txn.put(&key(3), b"small").unwrap();
        let later = txn.savepoint();
        txn.put_parts(&key(1), &[&values[1]]).unwrap();
        txn.put_parts(&key(3), &[&values[1]]).unwrap();
        let mut own = ValueBuf::default();
        assert!(txn.get(&key(3), SeqNo::MAX, &mut own).unwrap() && own.len() == values[1].len());
        drop(own);
        txn.rollback_to(later);
        assert!(txn.get(&key(3), SeqNo::MAX, &mut Vec::new()).unwrap());
        txn.rollback_to(mark);
        assert!(!txn.get(&key(3), SeqNo::MAX, &mut Vec::new()).unwrap());
        txn.put_parts(&key(4), &[&values[0]]).unwrap();
        txn.rollback().unwrap();
        let mut read = ValueBuf::default();
        assert!(engine.get_at(&key(1), SeqNo::MAX, &mut read).unwrap() && *read == *values[0]);
        assert!(!engine.get_at(&key(4), SeqNo::MAX, &mut Vec::new()).unwrap());
        read.release();

        // Prepared, with small rows beside it, and found again by the next opening.
        txn.put(&key(5), b"beside").unwrap();
        txn.put_parts(&key(6), &[&values[0]]).unwrap();
        txn.delete(&key(2)).unwrap();
        txn.prepare(b"xid").unwrap();
        txn.commit().unwrap();
        drop(txn);
        engine.close().unwrap();
        drop(engine);
        let engine = Engine::open(Path::new(dir.path()), Options::default()).unwrap();
        assert!(engine.get_at(&key(6), SeqNo::MAX, &mut read).unwrap() && *read == *values[0]);
        assert!(engine.get_at(&key(5), SeqNo::MAX, &mut Vec::new()).unwrap());
        assert!(!engine.get_at(&key(2), SeqNo::MAX, &mut Vec::new()).unwrap());
        engine.verify_index(IndexId(1)).unwrap();
    });
}
