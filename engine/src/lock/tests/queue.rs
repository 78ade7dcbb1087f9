//! Locks of single keys: grants, waits, the order of a queue.

use std::sync::mpsc;

use super::super::LockMode::{Exclusive, Shared};
use super::super::queue::LOOKS;
use super::super::shard::ENTRIES_KEPT;
use super::*;

#[test]
fn grants_reenters_upgrades_and_frees() {
    let table = table();
    let (a, b) = (table.new_owner(), table.new_owner());
    let new = Granted { kind: GrantKind::New, waited: false };
    assert_eq!(table.lock(&a, b"k", Shared, Wait::No).unwrap(), new);
    assert_eq!(table.lock(&a, b"k", Shared, Wait::No).unwrap().kind, GrantKind::AlreadyHeld);
    assert_eq!(table.lock(&a, b"k", Exclusive, Wait::No).unwrap().kind, GrantKind::Upgraded);
    assert!(matches!(table.lock(&b, b"k", Shared, Wait::No), Err(Error::LockBusy)));
    assert_eq!(table.held(&a, b"k"), Some(Exclusive));
    assert_eq!(table.held(&b, b"k"), None);
    assert_eq!(a.lock_count(), 1);
    table.unlock(&b, b"k");
    assert_eq!(table.held(&a, b"k"), Some(Exclusive));
    table.unlock(&a, b"k");
    assert_eq!(a.lock_count(), 0);
    assert_eq!(table.lock(&b, b"k", Shared, Wait::No).unwrap(), new);
    table.release_all(&b);
    assert_empty(&table);
}

#[test]
fn many_keys_of_all_lengths_come_and_go() {
    let table = LockTable::new(2);
    let owner = table.new_owner();
    let keys: Vec<Vec<u8>> = (0u32..5000)
        .map(|n| {
            let mut key = vec![0; (n % 97) as usize];
            key.extend(n.to_be_bytes());
            key
        })
        .collect();
    for round in 0..2 {
        for key in &keys {
            table.lock(&owner, key, Exclusive, Wait::No).unwrap();
        }
        for key in keys.iter().step_by(3) {
            table.unlock(&owner, key);
        }
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(table.held(&owner, key), (i % 3 != 0).then_some(Exclusive), "round {round}");
        }
        table.release_all(&owner);
        assert_empty(&table);
        assert!(table.shards.iter().all(|s| s.0.lock().entries.len() <= ENTRIES_KEPT), "memory is given back");
    }
}

#[test]
fn a_wait_times_out_and_leaves_no_trace() {
    let table = table();
    let (a, b) = (table.new_owner(), table.new_owner());
    table.lock(&a, b"k", Exclusive, Wait::No).unwrap();
    assert!(matches!(table.lock(&b, b"k", Shared, Wait::TimeoutUs(2_000)), Err(Error::LockTimeout)));
    assert!(matches!(table.lock(&b, b"k", Shared, Wait::TimeoutUs(0)), Err(Error::LockTimeout)));
    let counters = table.counters();
    assert_eq!(counters, LockCounters { waits: 2, deadlocks: 0, timeouts: 2, ..counters });
    assert!((1..=counters.wait_us).contains(&counters.longest_wait_us), "{counters:?}");
    assert!(counters.wait_us > 0 && table.waiting() == 0, "{counters:?}");
    table.release_all(&a);
    assert_empty(&table);
}

#[test]
fn an_interrupt_ends_the_wait_and_stays_until_cleared() {
    let table = table();
    let (a, b) = (table.new_owner(), table.new_owner());
    table.lock(&a, b"k", Exclusive, Wait::No).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock(&b, b"k", Exclusive, Wait::TimeoutUs(u64::MAX)));
        until_waiting(&table, 1);
        b.interrupt();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    });
    assert!(matches!(table.lock(&b, b"other", Shared, Wait::No), Err(Error::Interrupted)));
    b.clear_interrupt();
    assert!(table.lock(&b, b"other", Shared, Wait::No).is_ok());
    table.release_all(&a);
    table.release_all(&b);
    assert_empty(&table);
}

#[test]
fn grants_follow_the_order_of_requests() {
    let table = table();
    let first = table.new_owner();
    table.lock(&first, b"k", Exclusive, Wait::No).unwrap();
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for n in 0..5 {
            let (table, send) = (&table, send.clone());
            scope.spawn(move || {
                let owner = table.new_owner();
                let granted = table.lock(&owner, b"k", Exclusive, LONG).unwrap();
                assert_eq!(granted, Granted { kind: GrantKind::New, waited: true });
                send.send(n).unwrap();
                table.release_all(&owner);
            });
            until_waiting(table, n + 1);
        }
        table.release_all(&first);
    });
    drop(send);
    assert_eq!(receive.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_empty(&table);
}

/// Five thousand who wait for one row, each in a thread: what they look at together, from the request to the end, grows with
/// their number and not with its square.
#[test]
fn thousands_of_waiters_are_not_looked_at_by_each_of_them() {
    const WAITERS: usize = 5_000;
    let options = LockOptions { first_search_us: 0, next_search_us: 3_600_000_000, long_queue: 1 };
    let table = LockTable::with_options(4, options);
    let first = table.new_owner();
    table.lock(&first, b"1", Exclusive, Wait::No).unwrap();
    let looks: u64 = thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS)
            .map(|number| {
                let (table, owner) = (&table, table.new_owner());
                let work = move || {
                    let mode = if number % 3 == 0 { Shared } else { Exclusive };
                    // Some give up, in the middle of the queue.
                    let wait = if number % 50 == 7 { Wait::TimeoutUs(1) } else { LONG };
                    match table.lock(&owner, b"1", mode, wait) {
                        Ok(_) => table.release_all(&owner),
                        Err(error) => assert!(matches!(error, Error::LockTimeout), "{error}"),
                    }
                    LOOKS.with(std::cell::Cell::get)
                };
                thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, work).unwrap()
            })
            .collect();
        until_waiting(&table, WAITERS - WAITERS / 50);
        table.release_all(&first);
        waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum()
    });
    assert_empty(&table);
    // A few searches for each, of some fourteen steps.
    assert!(looks < WAITERS as u64 * 100, "{looks} waiters looked at");
}

#[test]
fn exclusive_means_exclusive_under_stress() {
    const KEYS: u64 = 12;
    let table = table();
    // Plain counters, read and written in two steps under the lock: a lost update shows a broken lock.
    let counters: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for id in 0..6u64 {
            let (table, counters, done) = (&table, &counters, &done);
            scope.spawn(move || {
                let mut state = id;
                let mut random = move || {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    state >> 33
                };
                for _ in 0..400 {
                    let owner = table.new_owner();
                    let mut read = Vec::new();
                    let mut alive = true;
                    for step in 0..3 {
                        let key = random() % KEYS;
                        if read.iter().any(|&(k, _)| k == key) {
                            continue;
                        }
                        let name = key.to_be_bytes();
                        let shared_first = random() % 3 == 0;
                        let result = if shared_first {
                            table
                                .lock(&owner, &name, Shared, LONG)
                                .and_then(|_| table.lock(&owner, &name, Exclusive, LONG))
                        } else {
                            table.lock(&owner, &name, Exclusive, LONG)
                        };
                        owner.set_weight(step + 1);
                        match result {
                            Ok(_) => read.push((key, counters[key as usize].load(Ordering::Relaxed))),
                            Err(Error::Deadlock) => {
                                alive = false;
                                break;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    if alive {
                        thread::yield_now();
                        for &(key, value) in &read {
                            counters[key as usize].store(value + 1, Ordering::Relaxed);
                        }
                        done.fetch_add(read.len() as u64, Ordering::Relaxed);
                    }
                    table.release_all(&owner);
                }
            });
        }
    });
    let total: u64 = counters.iter().map(|c| c.load(Ordering::Relaxed)).sum();
    assert_eq!(total, done.load(Ordering::Relaxed));
    assert_eq!(table.counters().timeouts, 0);
    assert_empty(&table);
}
