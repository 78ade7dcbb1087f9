//! Locks of ranges, against keys that come into them.

use super::super::LockMode::{Exclusive, Shared};
use super::*;

#[test]
fn an_insert_waits_for_those_who_lock_its_range() {
    let table = table();
    let (a, b, c) = (table.new_owner(), table.new_owner(), table.new_owner());
    for owner in [&a, &b] {
        let version = table.range_version(owner, INDEX);
        assert_eq!(table.lock_range(owner, &key(10), &key(20), version), RangeGrant::Clean);
    }
    assert!(!table.intend_insert(&c, &key(20), Wait::No).unwrap());
    assert!(matches!(table.intend_insert(&c, &key(15), Wait::No), Err(Error::LockBusy)));
    assert!(matches!(table.intend_insert(&c, &key(15), Wait::TimeoutUs(2_000)), Err(Error::LockTimeout)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.intend_insert(&c, &key(15), LONG));
        until_waiting(&table, 1);
        table.release_all(&a);
        until_waiting(&table, 1);
        table.release_all(&b);
        assert!(waiter.join().unwrap().unwrap());
    });
    thread::scope(|scope| {
        table.lock_range(&a, &key(10), &key(12), 0);
        let waiter = scope.spawn(|| table.intend_insert(&c, &key(10), Wait::TimeoutUs(u64::MAX)));
        until_waiting(&table, 1);
        c.interrupt();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    });
    for owner in [&a, &c] {
        table.release_all(owner);
    }
    assert_empty(&table);
}

/// One that has scanned gives its intervals up, not what it brings in; from then on nobody counts as a scanner.
#[test]
fn intervals_go_before_the_rest() {
    let table = table();
    let (a, b, c) = (table.new_owner(), table.new_owner(), table.new_owner());
    assert!(!table.intend_insert(&a, &key(5), Wait::No).unwrap());
    let version = table.range_version(&a, INDEX);
    assert_eq!(table.lock_range(&a, &key(10), &key(20), version), RangeGrant::Clean);
    assert!(!table.intend_insert(&a, &key(12), Wait::No).unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.intend_insert(&b, &key(15), LONG));
        until_waiting(&table, 1);
        table.unlock_ranges(&a);
        assert!(waiter.join().unwrap().unwrap());
    });
    assert!(!table.intend_insert(&b, &key(16), Wait::No).unwrap());
    // What came before and after its scan is met all the same.
    for (from, expected) in [(0, 5), (10, 12)] {
        let version = table.range_version(&c, INDEX);
        assert_eq!(table.lock_range(&c, &key(from), &key(20), version), RangeGrant::Inserting(key(expected)));
        assert_eq!(table.held(&a, &key(expected)), Some(Exclusive));
    }
    for owner in [&a, &b, &c] {
        table.release_all(owner);
    }
    assert_empty(&table);
}

#[test]
fn a_scan_waits_for_keys_that_came_before_it() {
    let table = table();
    let (writer, scanner) = (table.new_owner(), table.new_owner());
    // Nobody scans: the key goes to a list, from which the first scan fetches it.
    assert!(!table.intend_insert(&writer, &key(15), Wait::No).unwrap());
    let version = table.range_version(&scanner, INDEX);
    assert_eq!(table.lock_range(&scanner, &key(10), &key(20), version), RangeGrant::Inserting(key(15)));
    // The writer locked no key; the scanner did it for him.
    assert!(matches!(table.lock(&scanner, &key(15), Shared, Wait::No), Err(Error::LockBusy)));
    assert_eq!(table.held(&writer, &key(15)), Some(Exclusive));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock(&scanner, &key(15), Shared, LONG));
        until_waiting(&table, 1);
        table.release_all(&writer);
        assert!(waiter.join().unwrap().unwrap().waited);
    });
    assert_eq!(table.lock_range(&scanner, &key(10), &key(20), version), RangeGrant::Stale);
    let version = table.range_version(&scanner, INDEX);
    assert_eq!(table.lock_range(&scanner, &key(10), &key(20), version), RangeGrant::Clean);
    table.release_all(&scanner);
    assert_empty(&table);
}

#[test]
fn who_looks_for_keys_to_come_locks_nothing() {
    let table = table();
    let (writer, reader) = (table.new_owner(), table.new_owner());
    assert_eq!(table.inserting(&reader, &key(10), &key(20)), None);
    assert!(!table.intend_insert(&writer, &key(15), Wait::No).unwrap());
    table.release_all(&reader);
    assert_eq!(table.inserting(&reader, &key(10), &key(20)), Some(key(15)));
    assert_eq!(table.inserting(&writer, &key(10), &key(20)), None);
    assert!(matches!(table.lock(&reader, &key(15), Shared, Wait::No), Err(Error::LockBusy)));
    // Another key may come all the same.
    assert!(!table.intend_insert(&writer, &key(16), Wait::No).unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock(&reader, &key(15), Shared, LONG));
        until_waiting(&table, 1);
        table.release_all(&writer);
        assert!(waiter.join().unwrap().unwrap().waited);
    });
    assert_eq!(table.inserting(&reader, &key(10), &key(20)), None);
    table.release_all(&reader);
    assert_empty(&table);
}

#[test]
fn range_and_point_locks_make_one_cycle() {
    let table = table();
    let observer = Arc::new(Observer::default());
    table.set_observer(Some(observer.clone()));
    let (a, b) = (table.new_owner(), table.new_owner());
    a.set_weight(5);
    b.set_weight(2);
    table.lock(&b, &key(1), Exclusive, Wait::No).unwrap();
    table.lock_range(&a, &key(10), &key(20), 0);
    table.lock_range(&b, &key(10), &key(20), 0);
    thread::scope(|scope| {
        let first = scope.spawn(|| table.lock(&a, &key(1), Shared, LONG));
        until_waiting(&table, 1);
        assert!(matches!(table.intend_insert(&b, &key(12), LONG), Err(Error::Deadlock)));
        let deadlock = observer.latest.lock().take().unwrap();
        assert_eq!(deadlock.victim, b.id());
        assert!(deadlock.waits.iter().any(|w| w.owner == b.id() && w.kind == LockKind::Insert && w.key == key(12)));
        table.release_all(&b);
        assert!(first.join().unwrap().is_ok());
    });
    // Two who lock a range and both insert: one gives up.
    let b = table.new_owner();
    table.lock_range(&b, &key(10), &key(20), 0);
    thread::scope(|scope| {
        let first = scope.spawn(|| table.intend_insert(&a, &key(11), LONG));
        until_waiting(&table, 1);
        assert!(matches!(table.intend_insert(&b, &key(12), LONG), Err(Error::Deadlock)));
        table.release_all(&b);
        assert!(first.join().unwrap().is_ok());
    });
    table.release_all(&a);
    assert_empty(&table);
}

/// Writers bring keys in and make them visible, scanners count what they see, lock it, and look again at the end: a key that
/// comes in between is a phantom.
#[test]
fn no_phantoms_under_stress() {
    const KEYS: u64 = 16;
    let table = table();
    let store: Mutex<std::collections::BTreeSet<u64>> = Mutex::default();
    let (scans, stale) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for id in 0..3u64 {
            let (table, store) = (&table, &store);
            scope.spawn(move || {
                let mut state = id + 77;
                for round in 0..1500u64 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let n = (state >> 33) % KEYS;
                    let owner = table.new_owner();
                    let mut brought = Vec::new();
                    for n in [n, (n + 5) % KEYS] {
                        if table.intend_insert(&owner, &key(n), LONG).is_err() {
                            break;
                        }
                        brought.push(n);
                    }
                    if brought.len() == 2 {
                        let mut store = store.lock();
                        match round % 2 {
                            0 => store.extend(brought),
                            _ => store.retain(|n| !brought.contains(n)),
                        }
                    }
                    table.release_all(&owner);
                }
            });
        }
        for id in 0..3u64 {
            let (table, store, scans, stale) = (&table, &store, &scans, &stale);
            scope.spawn(move || {
                for round in 0..600u64 {
                    let owner = table.new_owner();
                    let (from, to) = ((id + round) % KEYS, (id + round) % KEYS + 4);
                    let seen = loop {
                        let version = table.range_version(&owner, INDEX);
                        let seen: Vec<u64> = store.lock().range(from..to).copied().collect();
                        match table.lock_range(&owner, &key(from), &key(to), version) {
                            RangeGrant::Clean => break Some(seen),
                            RangeGrant::Stale => drop(stale.fetch_add(1, Ordering::Relaxed)),
                            RangeGrant::Inserting(key) => {
                                if table.lock(&owner, &key, Shared, LONG).is_err() {
                                    break None;
                                }
                            }
                        }
                    };
                    if let Some(seen) = seen {
                        thread::yield_now();
                        let again: Vec<u64> = store.lock().range(from..to).copied().collect();
                        // Leaving is not forbidden here: real rows are locked by their readers.
                        assert!(again.iter().all(|n| seen.contains(n)), "{seen:?} became {again:?}");
                        scans.fetch_add(1, Ordering::Relaxed);
                    }
                    table.release_all(&owner);
                }
            });
        }
    });
    assert!(scans.into_inner() > 0);
    assert_empty(&table);
}
