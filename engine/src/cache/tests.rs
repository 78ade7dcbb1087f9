//! The cache against what may be resident, one block and one thread after the other, and under threads.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap as Model;

#[test]
fn a_block_is_put_where_the_one_it_replaces_was() {
    let cache = Cache::with_shards(10 * (1000 + ENTRY_OVERHEAD), 1);
    assert_eq!(cache.queue(FileNo(1), 0), None);
    cache.insert(FileNo(1), 0, 0u64, 1000);
    assert_eq!(cache.queue(FileNo(1), 0), Some(Queue::Probation));
    assert!(cache.get(FileNo(1), 0).is_some());
    assert_eq!(cache.queue(FileNo(1), 0), Some(Queue::Main));
    cache.insert_at(FileNo(2), 0, 1, 1000, Some(Queue::Main));
    cache.insert_at(FileNo(2), 1, 2, 1000, Some(Queue::Probation));
    assert!(cache.has_room());
    // A scan pushes out what is on probation and nothing else.
    for offset in 0..100 {
        cache.insert(FileNo(3), offset, 3, 1000);
    }
    assert!(!cache.has_room());
    assert_eq!(cache.queue(FileNo(2), 0), Some(Queue::Main));
    assert_eq!(cache.queue(FileNo(2), 1), None);
}

#[test]
fn a_look_that_is_no_use_keeps_nothing() {
    let cache = Cache::with_shards(100 * (1000 + ENTRY_OVERHEAD), 1);
    cache.insert(FileNo(1), 0, 10, 1000);
    cache.insert(FileNo(1), 1, 11, 1000);
    assert_eq!(cache.with_if(FileNo(1), 0, |value| (*value, false)), Some(10));
    assert_eq!(cache.with_if(FileNo(1), 1, |value| (*value, true)), Some(11));
    assert_eq!(cache.with_if(FileNo(1), 2, |value| (*value, true)), None);
    assert_eq!((cache.hits(), cache.misses()), (2, 0));
    (0..200).for_each(|offset| cache.insert(FileNo(2), offset, 2, 1000));
    assert_eq!(cache.queue(FileNo(1), 0), None);
    assert_eq!(cache.queue(FileNo(1), 1), Some(Queue::Main));
}

#[test]
fn a_scan_does_not_wash_out_the_working_set() {
    let cache: Arc<Cache<u64>> = Cache::with_shards(1 << 20, 1);
    let hot: Vec<u64> = (0..40).collect();
    for _ in 0..3 {
        for &o in &hot {
            if cache.get(FileNo(1), o).is_none() {
                cache.insert(FileNo(1), o, o, 16 << 10);
            }
        }
    }
    for o in 0..10_000 {
        assert_eq!(cache.get(FileNo(2), o), None);
        cache.insert(FileNo(2), o, o, 16 << 10);
    }
    let kept = hot.iter().filter(|&&o| cache.peek(FileNo(1), o).is_some()).count();
    assert_eq!(kept, hot.len());
    assert!(cache.usage() <= cache.capacity());
    assert!(cache.usage() > cache.capacity() - (20 << 10), "the budget is used");
}

#[test]
fn a_block_that_comes_back_goes_to_the_main_queue() {
    let cache: Arc<Cache<u64>> = Cache::with_shards(1 << 20, 1);
    let charge = 16 << 10;
    for o in 0..100 {
        cache.insert(FileNo(1), o, o, charge);
    }
    assert!(cache.peek(FileNo(1), 30).is_none());
    cache.insert(FileNo(1), 30, 30, charge);
    for o in 1000..1200 {
        cache.insert(FileNo(1), o, o, charge);
    }
    assert_eq!(cache.peek(FileNo(1), 30), Some(30));
}

#[test]
fn one_file_is_erased_and_the_others_stay() {
    let cache: Arc<Cache<u64>> = Cache::with_shards(64 << 20, 16);
    for file in 0..10 {
        for o in 0..50 {
            cache.insert(FileNo(file), o * 4096, file * 1000 + o, 100);
        }
    }
    cache.erase_file(FileNo(4));
    cache.erase_file(FileNo(77));
    for file in 0..10 {
        for o in 0..50 {
            let expected = (file != 4).then_some(file * 1000 + o);
            assert_eq!(cache.get(FileNo(file), o * 4096), expected);
        }
    }
    assert_eq!((cache.hits(), cache.misses()), (450, 50));
    assert_eq!(cache.len(), 450);
    cache.set_capacity(0);
    assert_eq!((cache.len(), cache.usage()), (0, 0));
    assert!(cache.is_empty());
}

#[test]
fn oversized_blocks_are_not_kept() {
    let cache: Arc<Cache<u64>> = Cache::with_shards(1 << 20, 1);
    cache.insert(FileNo(1), 0, 7, 100);
    cache.insert(FileNo(1), 1, 8, 1 << 20);
    assert_eq!(cache.get(FileNo(1), 0), Some(7));
    assert_eq!(cache.get(FileNo(1), 1), None);
}

#[test]
fn evicted_values_are_freed_but_pinned_ones_live() {
    let cache: Arc<Cache<Arc<u64>>> = Cache::with_shards(64 << 10, 1);
    let pinned = Arc::new(5);
    cache.insert(FileNo(1), 0, pinned.clone(), 1000);
    let weak = {
        let other = Arc::new(6);
        cache.insert(FileNo(1), 1, other.clone(), 1000);
        Arc::downgrade(&other)
    };
    for o in 2..1000 {
        cache.insert(FileNo(1), o, Arc::new(o), 1000);
    }
    assert!(weak.upgrade().is_none());
    assert_eq!((*pinned, Arc::strong_count(&pinned)), (5, 1));
}

#[test]
fn threads_share_it() {
    let cache: Arc<Cache<u64>> = Cache::with_shards(256 << 10, 4);
    std::thread::scope(|scope| {
        for t in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut x = t + 1;
                for i in 0..20_000u64 {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let (file, offset) = (x >> 61, (x >> 33) % 64);
                    match cache.get(FileNo(file), offset) {
                        Some(v) => assert_eq!(v, file << 32 | offset),
                        None => cache.insert(FileNo(file), offset, file << 32 | offset, 1000),
                    }
                    if i % 1000 == 0 {
                        cache.erase_file(FileNo(file));
                    }
                }
            });
        }
    });
    for shard in &cache.shards {
        shard.state.read().check();
    }
    assert_eq!(cache.hits() + cache.misses(), 80_000);
}

#[derive(Clone, Debug)]
enum Op {
    Get(u64, u64),
    Insert(u64, u64, usize),
    Erase(u64),
    Capacity(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..4u64, 0..40u64).prop_map(|(f, o)| Op::Get(f, o)),
        6 => (0..4u64, 0..40u64, 0..6000usize).prop_map(|(f, o, c)| Op::Insert(f, o, c)),
        1 => (0..4u64).prop_map(Op::Erase),
        1 => (0..60_000usize).prop_map(Op::Capacity),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]
    #[test]
    fn never_invents_never_keeps_erased_never_exceeds(ops in proptest::collection::vec(op(), 1..300)) {
        let cache: Arc<Cache<u64>> = Cache::with_shards(30_000, 2);
        // Values that may be resident: everything inserted and not erased since. Residency itself is free.
        let mut may: Model<(u64, u64), Vec<u64>> = Model::new();
        let mut stamp = 0;
        for op in ops {
            match op {
                Op::Get(f, o) => {
                    if let Some(v) = cache.get(FileNo(f), o) {
                        prop_assert!(may.get(&(f, o)).is_some_and(|all| all.contains(&v)));
                    }
                }
                Op::Insert(f, o, charge) => {
                    stamp += 1;
                    may.entry((f, o)).or_default().push(stamp);
                    cache.insert(FileNo(f), o, stamp, charge);
                }
                Op::Erase(f) => {
                    may.retain(|k, _| k.0 != f);
                    cache.erase_file(FileNo(f));
                }
                Op::Capacity(c) => cache.set_capacity(c),
            }
            for shard in &cache.shards {
                shard.state.read().check();
            }
        }
    }
}
