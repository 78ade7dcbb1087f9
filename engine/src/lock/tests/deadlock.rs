//! Cycles of waits: which are found, who is the victim, and what an observer hears.

use super::super::LockMode::{Exclusive, Shared};
use super::*;

/// Owners 0..n each lock their own key, then all ask for the next one's; returns what each got.
fn ring(table: &LockTable, weights: &[u64]) -> Vec<bool> {
    let owners: Vec<_> = weights.iter().map(|_| table.new_owner()).collect();
    for (n, owner) in owners.iter().enumerate() {
        owner.set_weight(weights[n]);
        table.lock(owner, &n.to_be_bytes(), Exclusive, Wait::No).unwrap();
    }
    thread::scope(|scope| {
        let handles: Vec<_> = owners
            .iter()
            .enumerate()
            .map(|(n, owner)| {
                let next = (n + 1) % weights.len();
                scope.spawn(move || {
                    let result = lock_briefly(table, owner, &next.to_be_bytes(), Exclusive);
                    match result {
                        Ok(_) => true,
                        Err(Error::Deadlock) => false,
                        Err(other) => panic!("{other}"),
                    }
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    })
}

#[test]
fn of_equals_on_a_cycle_the_victim_is_the_one_that_closed_it() {
    for closer in [0u64, 1] {
        let table = table();
        let owners = [table.new_owner(), table.new_owner()];
        for (n, owner) in (0u64..).zip(&owners) {
            owner.set_weight(4);
            table.lock(owner, &n.to_be_bytes(), Exclusive, Wait::No).unwrap();
        }
        thread::scope(|scope| {
            let first = &owners[1 - closer as usize];
            let waiter = scope.spawn(|| table.lock(first, &closer.to_be_bytes(), Exclusive, LONG));
            until_waiting(&table, 1);
            let last = &owners[closer as usize];
            let closed = table.lock(last, &(1 - closer).to_be_bytes(), Exclusive, LONG);
            assert!(matches!(closed, Err(Error::Deadlock)), "owner {closer}");
            table.release_all(last);
            assert!(waiter.join().unwrap().is_ok());
            table.release_all(first);
        });
        assert_empty(&table);
    }
}

#[test]
fn the_lightest_on_a_cycle_is_the_victim() {
    let table = table();
    let observer = Arc::new(Observer::default());
    table.set_observer(Some(observer.clone()));
    assert_eq!(ring(&table, &[5, 3]), [true, false]);
    assert_eq!(ring(&table, &[3, 5]), [false, true]);
    assert_eq!(ring(&table, &[9, 2, 7, 8]), [true, false, true, true]);
    assert_eq!(table.counters().deadlocks, 3);
    let text = observer.latest.lock().take().unwrap().to_string();
    assert_eq!(text.lines().count(), 5);
    assert!(text.contains("(weight 2) waits for an exclusive lock on 0000000000000002 held by [7]"), "{text}");
    assert!(text.ends_with("victim: owner 6"), "{text}");
    assert_empty(&table);
}

#[test]
fn two_upgrades_deadlock_and_one_survives() {
    let table = table();
    let (a, b) = (table.new_owner(), table.new_owner());
    a.set_weight(1);
    table.lock(&a, b"k", Shared, Wait::No).unwrap();
    table.lock(&b, b"k", Shared, Wait::No).unwrap();
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| table.lock(&a, b"k", Exclusive, LONG));
        let result = table.lock(&b, b"k", Exclusive, LONG);
        assert!(matches!(result, Err(Error::Deadlock)));
        assert_eq!(table.held(&b, b"k"), Some(Shared), "the victim keeps what it had until it rolls back");
        table.release_all(&b);
        let granted = upgrade.join().unwrap().unwrap();
        assert_eq!(granted, Granted { kind: GrantKind::Upgraded, waited: true });
    });
    assert_eq!(table.held(&a, b"k"), Some(Exclusive));
    assert_eq!(a.lock_count(), 1);
    table.release_all(&a);
    assert_empty(&table);
}

#[test]
fn a_cycle_through_a_waiter_ahead_in_the_queue_is_found() {
    let table = table();
    let (a, b, c) = (table.new_owner(), table.new_owner(), table.new_owner());
    for owner in [&a, &b] {
        owner.set_weight(10);
    }
    table.lock(&a, b"1", Shared, Wait::No).unwrap();
    table.lock(&c, b"2", Exclusive, Wait::No).unwrap();
    thread::scope(|scope| {
        // b waits behind the shared lock of a; c waits behind b; a waits for c.
        let wait_b = scope.spawn(|| lock_briefly(&table, &b, b"1", Exclusive));
        until_waiting(&table, 1);
        let wait_c = scope.spawn(|| lock_briefly(&table, &c, b"1", Shared));
        until_waiting(&table, 2);
        let result = lock_briefly(&table, &a, b"2", Exclusive);
        assert!(result.is_ok() && wait_b.join().unwrap().is_ok());
        assert!(matches!(wait_c.join().unwrap(), Err(Error::Deadlock)));
    });
    assert_empty(&table);
}

/// The one whose wait closes the cycle finds it at once: the searches of those in the queue are far between.
#[test]
fn a_cycle_through_a_long_queue_is_found() {
    const WAITERS: usize = 200;
    let options = LockOptions { first_search_us: 0, next_search_us: 3_600_000_000, long_queue: 1 };
    let table = LockTable::with_options(4, options);
    let (a, last) = (table.new_owner(), table.new_owner());
    a.set_weight(10);
    table.lock(&a, b"1", Exclusive, Wait::No).unwrap();
    table.lock(&last, b"2", Exclusive, Wait::No).unwrap();
    thread::scope(|scope| {
        for number in 0..WAITERS {
            let (table, owner) = (&table, table.new_owner());
            scope.spawn(move || {
                table.lock(&owner, b"1", if number % 3 == 0 { Shared } else { Exclusive }, LONG).unwrap();
                table.release_all(&owner);
            });
        }
        until_waiting(&table, WAITERS);
        let (table, last) = (&table, &last);
        let victim = scope.spawn(move || lock_briefly(table, last, b"1", Exclusive));
        until_waiting(table, WAITERS + 1);
        assert!(table.lock(&a, b"2", Exclusive, LONG).is_ok());
        assert!(matches!(victim.join().unwrap(), Err(Error::Deadlock)));
        table.release_all(&a);
    });
    assert_empty(&table);
}

#[test]
fn the_observer_learns_of_all_who_come_before() {
    let table = table();
    let observer = Arc::new(Observer::default());
    table.set_observer(Some(observer.clone()));
    let owners: Vec<_> = (0..5).map(|_| table.new_owner()).collect();
    let [a, b, c, d, e] = &owners[..] else { unreachable!() };
    table.lock(a, b"k", Shared, Wait::No).unwrap();
    assert!(table.lock(b, b"k", Exclusive, Wait::TimeoutUs(0)).is_err());
    assert_eq!(observer.told.lock().remove(0), (b.id(), vec![a.id()]));
    // The holder goes, and those in front of the queue hold instead: they count from the beginning.
    thread::scope(|scope| {
        let wait = |owner, mode, count| {
            let table = &table;
            scope.spawn(move || {
                table.lock(owner, b"k", mode, LONG).unwrap();
                if mode == Exclusive {
                    table.release_all(owner);
                }
            });
            until_waiting(table, count);
        };
        wait(c, Exclusive, 1);
        wait(d, Shared, 2);
        observer.told.lock().clear();
        wait(e, Shared, 3);
        while !observer.told.lock().contains(&(e.id(), vec![c.id()])) {
            thread::yield_now();
        }
        table.release_all(a);
    });
    // Told again while the wait goes on: somebody may have come to stand in front.
    thread::scope(|scope| {
        scope.spawn(|| table.lock(b, b"k", Exclusive, LONG).unwrap());
        until_waiting(&table, 1);
        observer.told.lock().clear();
        while observer.told.lock().len() < 2 {
            thread::yield_now();
        }
        let (waiter, ahead) = observer.told.lock()[0].clone();
        assert_eq!((waiter, ahead.len()), (b.id(), 2));
        table.release_all(d);
        table.release_all(e);
    });
    table.release_all(b);
    assert_empty(&table);
}

#[test]
fn the_observer_chooses_the_victim() {
    for first in [true, false] {
        let table = table();
        let observer = Arc::new(Observer::default());
        table.set_observer(Some(observer.clone()));
        let (a, b) = (table.new_owner(), table.new_owner());
        let preferred = if first { &a } else { &b };
        // Weight would choose the other one.
        preferred.set_weight(100);
        observer.prefers.store(preferred.id(), Ordering::Relaxed);
        table.lock(&a, b"1", Exclusive, Wait::No).unwrap();
        table.lock(&b, b"2", Exclusive, Wait::No).unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| lock_briefly(&table, &b, b"1", Exclusive));
            until_waiting(&table, 1);
            let result = lock_briefly(&table, &a, b"2", Exclusive);
            let (a_failed, b_failed) = (result.is_err(), other.join().unwrap().is_err());
            assert_eq!((a_failed, b_failed), (first, !first));
        });
    }
}
