use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;

type Model = BTreeMap<(Vec<u8>, Reverse<u64>), (Kind, Vec<u8>)>;
type Entry = (Vec<u8>, u64, Kind, Vec<u8>);

fn here(iter: &MemIter) -> Option<Entry> {
    iter.valid().then(|| (iter.key().to_vec(), iter.seq().0, iter.kind(), iter.value().to_vec()))
}

type ModelEntry<'a> = (&'a (Vec<u8>, Reverse<u64>), &'a (Kind, Vec<u8>));

fn entry(((key, seq), (kind, value)): ModelEntry<'_>) -> Entry {
    (key.clone(), seq.0, *kind, value.clone())
}

fn check(model: &Model, table: &Arc<MemTable>, probes: &[Vec<u8>]) {
    let mut iter = table.iter();
    assert!(!iter.valid());
    iter.seek_first().unwrap();
    for want in model.iter().map(entry) {
        assert_eq!(here(&iter), Some(want));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.seek_last().unwrap();
    for want in model.iter().rev().map(entry) {
        assert_eq!(here(&iter), Some(want));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    for key in probes {
        let bound = (key.clone(), Reverse(u64::MAX));
        iter.seek_ge(key).unwrap();
        assert_eq!(here(&iter), model.range(bound.clone()..).next().map(entry));
        if iter.valid() {
            iter.prev().unwrap();
            assert_eq!(here(&iter), model.range(..bound.clone()).next_back().map(entry));
        }
        iter.seek_lt(key).unwrap();
        assert_eq!(here(&iter), model.range(..bound.clone()).next_back().map(entry));
        if iter.valid() {
            iter.next().unwrap();
            assert_eq!(here(&iter), model.range(bound.clone()..).next().map(entry));
        }
        for read in [0, 1, 3, 7, 20, SeqNo::MAX.0] {
            let from = (key.clone(), Reverse(read));
            let want = model.range(from..).next().filter(|((k, _), _)| k == key).map(entry);
            let got = table.get(key, SeqNo(read)).map(|(s, k, v)| (key.clone(), s.0, k, v.to_vec()));
            assert_eq!(got, want);
        }
    }
    let keys = model.keys().map(|(k, _)| k).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(table.key_count(), keys.len() as u64);
    assert_eq!(table.is_empty(), model.is_empty());
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few distinct bytes: many equal keys, prefixes, trailing zeros and equal heads.
    prop_oneof![
        prop::collection::vec(0u8..3, 0..6),
        prop::collection::vec(0u8..2, 15..19).prop_map(|mut k| {
            k[..12].fill(7);
            k
        }),
    ]
}

proptest! {
    #[test]
    fn behaves_like_an_ordered_map(
        writes in prop::collection::vec((key(), 1u64..24, any::<bool>(), prop::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..120),
        probes in prop::collection::vec(key(), 1..12),
    ) {
        let table = MemTable::with_capacity(4096, 1000);
        let mut hint = InsertHint::default();
        let mut model = Model::new();
        for (key, seq, put, value, hinted) in &writes {
            let kind = if *put { Kind::Put } else { Kind::Delete };
            if *hinted {
                table.insert_hinted(&mut hint, key, SeqNo(*seq), kind, value);
            } else {
                table.insert(key, SeqNo(*seq), kind, value);
            }
            model.insert((key.clone(), Reverse(*seq)), (kind, value.clone()));
        }
        prop_assert_eq!(table.version_count(), writes.len() as u64);
        check(&model, &table, &probes);
    }

    #[test]
    fn a_hint_serves_batches_in_any_order(
        batches in prop::collection::vec(prop::collection::vec(0u32..3000, 1..200), 1..6),
        sorted in any::<bool>(),
    ) {
        let table = MemTable::new(4096);
        let mut hint = InsertHint::default();
        let mut model = Model::new();
        for (seq, mut batch) in batches.into_iter().enumerate() {
            if sorted {
                batch.sort_unstable();
            }
            for n in batch {
                let key = n.to_be_bytes().to_vec();
                table.insert_hinted(&mut hint, &key, SeqNo(seq as u64), Kind::Put, &[seq as u8]);
                model.insert((key, Reverse(seq as u64)), (Kind::Put, vec![seq as u8]));
            }
        }
        check(&model, &table, &[vec![0, 0, 1]]);
    }
}

#[test]
fn a_hint_of_another_table_is_harmless() {
    let mut hint = InsertHint::default();
    for round in 0..50u32 {
        let table = MemTable::new(4096);
        for n in [5u32, 1, 9, 7] {
            table.insert_hinted(&mut hint, &(n + round).to_be_bytes(), SeqNo(1), Kind::Put, b"v");
        }
        assert_eq!(table.key_count(), 4);
        assert!(table.get(&(9 + round).to_be_bytes(), SeqNo::MAX).is_some());
    }
}

#[test]
fn large_values_are_kept_and_accounted() {
    let table = MemTable::new(4096);
    let before = table.bytes();
    let value = vec![0xab; 3 << 20];
    table.insert(b"key1", SeqNo(1), Kind::Put, &value);
    assert!(table.bytes() >= before + value.len());
    assert_eq!(table.get(b"key1", SeqNo(1)).unwrap().2, value);
}

/// Cheap reproducible numbers for the threads below.
fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

#[test]
fn concurrent_inserts_and_readers_agree() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 20_000;
    const SHARED: u64 = 500;
    let table = MemTable::with_capacity(16 << 10, 100_000);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| {
                let table = &table;
                scope.spawn(move || {
                    let mut state = id + 1;
                    let mut hint = InsertHint::default();
                    for i in 0..EACH {
                        // Even steps: keys all writers fight for; odd steps: keys of this writer alone.
                        let key = if i % 2 == 0 {
                            step(&mut state) % SHARED
                        } else {
                            SHARED + (step(&mut state) % 100_000) * WRITERS + id
                        };
                        let seq = SeqNo(i * WRITERS + id + 1);
                        let (key, value) = (key.to_be_bytes(), seq.0.to_le_bytes());
                        if i % 3 == 0 {
                            table.insert_hinted(&mut hint, &key, seq, Kind::Put, &value);
                        } else {
                            table.insert(&key, seq, Kind::Put, &value);
                        }
                        let (found, _, got) = table.get(&key, seq).expect("own write");
                        assert_eq!((found, got), (seq, &value[..]));
                    }
                })
            })
            .collect();
        for backward in [false, true] {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                loop {
                    let last_round = done.load(Ordering::Acquire);
                    let mut iter = table.iter();
                    if backward {
                        iter.seek_last().unwrap()
                    } else {
                        iter.seek_first().unwrap()
                    }
                    let mut previous: Option<(Vec<u8>, Reverse<u64>)> = None;
                    while iter.valid() {
                        let position = (iter.key().to_vec(), Reverse(iter.seq().0));
                        assert_eq!(iter.value(), iter.seq().0.to_le_bytes());
                        if let Some(previous) = previous {
                            assert_eq!(previous < position, !backward, "order broken");
                        }
                        previous = Some(position);
                        if backward { iter.prev().unwrap() } else { iter.next().unwrap() }
                    }
                    if last_round {
                        break;
                    }
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(table.version_count(), WRITERS * EACH);
    let (mut keys, mut versions) = (0u64, 0u64);
    let mut iter = table.iter();
    iter.seek_first().unwrap();
    let mut last = Vec::new();
    while iter.valid() {
        versions += 1;
        if iter.key() != last {
            keys += 1;
            last = iter.key().to_vec();
        }
        iter.next().unwrap();
    }
    assert_eq!((keys, versions), (table.key_count(), WRITERS * EACH));
}

/// Range estimates feed the optimizer: exact for few keys, of the right size for many.
#[test]
fn estimates_are_close() {
    let table = MemTable::new(1 << 16);
    for n in 0..20_000u32 {
        table.insert(&n.wrapping_mul(2_654_435_761).to_be_bytes(), SeqNo(1), Kind::Put, b"v");
    }
    let exact = |from: u32, to: u32| {
        (0..20_000u32).map(|n| n.wrapping_mul(2_654_435_761)).filter(|k| (from..to).contains(k)).count() as u64
    };
    for (from, to) in [(0u32, 1 << 20), (0, 1 << 24), (1 << 30, 3 << 29), (0, u32::MAX), (5, 5), (9, 3)] {
        let estimate = table.estimate(&from.to_be_bytes(), &to.to_be_bytes(), |nodes, _| nodes >= 24);
        let exact = if from < to { exact(from, to) } else { 0 };
        if exact < 20 {
            assert_eq!(estimate, KeysBetween { keys: exact, deleted: 0, exact: true });
        } else {
            let keys = estimate.keys;
            assert!(keys * 3 > exact && keys < exact * 3, "{keys} for {exact} keys");
        }
    }
}

/// A queue's dead head must not count as rows, nor rows that were deleted and written anew as dead.
#[test]
fn estimates_tell_keys_that_were_deleted_last() {
    let table = MemTable::new(1 << 16);
    for n in 0..8000u32 {
        let key = n.to_be_bytes();
        table.insert(&key, SeqNo(1), Kind::Put, b"v");
        if n < 4000 || n % 2 == 0 {
            table.insert(&key, SeqNo(2), Kind::Delete, b"");
        }
        if n >= 4000 {
            table.insert(&key, SeqNo(3), Kind::Put, b"v");
        }
    }
    let between =
        |from: u32, to: u32, sample| table.estimate(&from.to_be_bytes(), &to.to_be_bytes(), |nodes, _| nodes >= sample);
    assert_eq!(between(0, 100, u64::MAX), KeysBetween { keys: 100, deleted: 100, exact: true });
    assert_eq!(between(3990, 4100, u64::MAX), KeysBetween { keys: 110, deleted: 10, exact: true });
    assert_eq!(between(4000, 8000, 32).deleted, 0);
    let whole = between(0, 8000, 128);
    assert!(!whole.exact && (whole.keys / 3..whole.keys * 2 / 3).contains(&whole.deleted), "{whole:?}");
}

/// A cursor at a read point shows one version per key, the one that `get` finds, in both directions.
#[test]
fn a_read_point_shows_one_version_per_key() {
    let table = MemTable::new(1 << 14);
    for n in 0..3000u64 {
        let key = (n * 7919 % 100) as u32;
        let kind = if n % 5 == 0 { Kind::Delete } else { Kind::Put };
        table.insert(&key.to_be_bytes(), SeqNo(n + 1), kind, &n.to_le_bytes());
    }
    for read in [0, 1, 50, 1500, 3000] {
        let read = SeqNo(read);
        let expected: Vec<Entry> = (0..100u32)
            .filter_map(|key| {
                let (seq, kind, value) = table.get(&key.to_be_bytes(), read)?;
                Some((key.to_be_bytes().to_vec(), seq.0, kind, value.to_vec()))
            })
            .collect();
        let mut iter = table.iter_at(read);
        let mut forward = Vec::new();
        iter.seek_first().unwrap();
        while let Some(entry) = here(&iter) {
            forward.push(entry);
            iter.next().unwrap();
        }
        assert_eq!(forward, expected);
        let mut backward = Vec::new();
        iter.seek_last().unwrap();
        while let Some(entry) = here(&iter) {
            backward.push(entry);
            iter.prev().unwrap();
        }
        backward.reverse();
        assert_eq!(backward, expected);
    }
}
