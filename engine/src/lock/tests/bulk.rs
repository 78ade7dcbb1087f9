//! Very many locks of one owner, held as stretches of keys.

use super::super::LockMode::{Exclusive, Shared};
use super::*;

fn many(from: u32, to: u32) -> impl Iterator<Item = Vec<u8>> {
    (from..to).map(|k| [&9u32.to_be_bytes()[..], &k.to_be_bytes()].concat())
}

fn explicit(table: &LockTable) -> usize {
    table.shards.iter().map(|s| s.0.lock().live).sum()
}

#[test]
fn very_many_locks_are_held_in_bulk() {
    let table = table();
    let (a, b) = (table.new_owner(), table.new_owner());
    let count = GATHERED_FIRST as u32 + 3 * (GATHERED_NEXT as u32 - 1);
    for key in many(0, count) {
        assert_eq!(table.lock(&a, &key, Exclusive, Wait::No).unwrap().kind, GrantKind::New);
    }
    // The latest may be given back.
    assert_eq!(explicit(&table), 1);
    let latest = many(count - 1, count).next().unwrap();
    table.unlock(&a, &latest);
    assert_eq!(explicit(&table), 0);
    assert_eq!(table.lock(&b, &latest, Exclusive, Wait::No).unwrap().kind, GrantKind::New);
    table.unlock(&b, &latest);
    let count = count - 1;
    for key in many(0, count).step_by(1000) {
        assert_eq!(table.held(&a, &key), Some(Exclusive));
        assert!(matches!(table.lock(&b, &key, Shared, Wait::No), Err(Error::LockBusy)));
        assert_eq!(table.lock(&a, &key, Exclusive, Wait::No).unwrap().kind, GrantKind::AlreadyHeld);
    }
    // Exact: other keys are free.
    for key in many(count, count + 100) {
        table.lock(&b, &key, Exclusive, Wait::No).unwrap();
        assert!(matches!(table.lock(&a, &key, Exclusive, Wait::No), Err(Error::LockBusy)));
    }
    table.release_all(&a);
    for key in many(0, count).step_by(777) {
        table.lock(&b, &key, Exclusive, Wait::No).unwrap();
    }
    table.release_all(&b);
    assert_empty(&table);
    assert!(!table.bulk.in_use());
}

#[test]
fn bulk_locks_are_waited_for_and_found_in_deadlocks() {
    let table = Arc::new(table());
    let (a, b) = (table.new_owner(), table.new_owner());
    a.set_weight(100_000);
    for key in many(0, GATHERED_FIRST as u32) {
        table.lock(&a, &key, Exclusive, Wait::No).unwrap();
    }
    assert_eq!(explicit(&table), 1);
    table.lock(&b, b"0000 of b", Exclusive, Wait::No).unwrap();
    let waiter = {
        let (table, b) = (table.clone(), b.clone());
        let key = many(5, 6).next().unwrap();
        thread::spawn(move || table.lock(&b, &key, Exclusive, LONG))
    };
    until_waiting(&table, 1);
    // Closes the cycle; b has done less.
    let closer = {
        let (table, a) = (table.clone(), a.clone());
        thread::spawn(move || table.lock(&a, b"0000 of b", Exclusive, LONG))
    };
    assert!(matches!(waiter.join().unwrap(), Err(Error::Deadlock)));
    table.release_all(&b);
    assert!(closer.join().unwrap().unwrap().waited);
    // Without a deadlock the wait ends with the transaction.
    let waiter = {
        let (table, b) = (table.clone(), b.clone());
        let key = many(6, 7).next().unwrap();
        thread::spawn(move || table.lock(&b, &key, Exclusive, LONG))
    };
    until_waiting(&table, 1);
    table.release_all(&a);
    assert!(waiter.join().unwrap().unwrap().waited);
    table.release_all(&b);
    assert_empty(&table);
}

#[test]
fn shared_bulk_locks_are_shared_and_upgraded() {
    let table = table();
    let (a, b) = (table.new_owner(), table.new_owner());
    for owner in [&a, &b] {
        for key in many(0, GATHERED_FIRST as u32) {
            table.lock(owner, &key, Shared, Wait::No).unwrap();
        }
    }
    let key = many(3, 4).next().unwrap();
    assert!(matches!(table.lock(&a, &key, Exclusive, Wait::No), Err(Error::LockBusy)));
    assert!(matches!(table.lock(&b, &key, Exclusive, Wait::No), Err(Error::LockBusy)));
    table.release_all(&b);
    assert_eq!(table.lock(&a, &key, Exclusive, Wait::No).unwrap().kind, GrantKind::Upgraded);
    assert!(matches!(table.lock(&b, &key, Shared, Wait::No), Err(Error::LockBusy)));
    table.release_all(&a);
    assert_empty(&table);
}

#[test]
fn an_owner_is_asked_for_its_own_bulk_locks_where_others_are() {
    let table = table();
    let (a, b, c) = (table.new_owner(), table.new_owner(), table.new_owner());
    let key = many(3, 4).next().unwrap();
    for owner in [&a, &b] {
        for key in many(0, GATHERED_FIRST as u32) {
            table.lock(owner, &key, Shared, Wait::No).unwrap();
        }
    }
    // The shared lock of a stays when its wait for more ends, whatever came meanwhile.
    assert!(matches!(table.lock(&a, &key, Exclusive, Wait::TimeoutUs(1000)), Err(Error::LockTimeout)));
    assert!(matches!(table.lock(&c, &key, Exclusive, Wait::No), Err(Error::LockBusy)));
    table.release_all(&b);
    assert!(matches!(table.lock(&c, &key, Exclusive, Wait::No), Err(Error::LockBusy)));
    assert_eq!(table.lock(&c, &key, Shared, Wait::No).unwrap().kind, GrantKind::New);
    table.release_all(&a);
    table.release_all(&c);
    // What it holds in bulk counts beside a weaker lock that it has got since.
    for key in many(0, GATHERED_FIRST as u32) {
        table.lock(&a, &key, Exclusive, Wait::No).unwrap();
    }
    assert_eq!(table.lock(&a, &key, Shared, Wait::No).unwrap().kind, GrantKind::New);
    assert!(matches!(table.lock(&b, &key, Shared, Wait::No), Err(Error::LockBusy)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock(&b, &key, Shared, LONG));
        until_waiting(&table, 1);
        table.unlock(&a, &key);
        assert_eq!(table.waits().len(), 1);
        table.release_all(&a);
        assert!(waiter.join().unwrap().unwrap().waited);
    });
    table.release_all(&b);
    assert_empty(&table);
}

#[test]
fn an_interval_is_held_but_for_what_others_had_before() {
    let table = table();
    let (a, b) = (table.new_owner(), table.new_owner());
    let key = |k: u32| many(k, k + 1).next().unwrap();
    table.lock(&b, &key(5), Exclusive, Wait::No).unwrap();
    table.lock_keys_within(&a, &key(2), &key(9));
    for k in [2, 4, 9] {
        assert!(matches!(table.lock(&b, &key(k), Shared, Wait::No), Err(Error::LockBusy)));
    }
    table.lock(&b, &key(1), Exclusive, Wait::No).unwrap();
    table.lock(&b, &key(10), Exclusive, Wait::No).unwrap();
    assert_eq!(table.held(&b, &key(5)), Some(Exclusive));
    assert!(matches!(table.lock(&a, &key(5), Exclusive, Wait::No), Err(Error::LockBusy)));
    table.release_all(&a);
    table.lock(&b, &key(4), Exclusive, Wait::No).unwrap();
    table.release_all(&b);
    assert_empty(&table);
}

#[test]
fn very_many_new_keys_become_a_stretch() {
    let table = table();
    let (writer, other, scanner) = (table.new_owner(), table.new_owner(), table.new_owner());
    for n in 1_000..400_000 {
        assert!(!table.intend_insert(&writer, &key(n), Wait::No).unwrap());
    }
    assert!(table.announced_bytes() < 2 << 20);
    let scan = |from, to| {
        let version = table.range_version(&scanner, INDEX);
        table.lock_range(&scanner, &key(from), &key(to), version)
    };
    assert_eq!(scan(10, 1_000), RangeGrant::Clean);
    let RangeGrant::Inserting(stand_in) = scan(900, 2_000) else { panic!("the writer is overlooked") };
    // The rows between its keys are nobody's.
    table.lock(&scanner, &key(1_500), Exclusive, Wait::No).unwrap();
    assert!(matches!(table.lock(&scanner, &stand_in, Shared, Wait::No), Err(Error::LockBusy)));
    // From now on there is a scanner; the memory of the rules has the same bound.
    for n in 500_000..600_000 {
        table.intend_insert(&other, &key(n), Wait::No).unwrap();
    }
    assert!(table.announced_bytes() < 4 << 20);
    let RangeGrant::Inserting(second) = scan(550_000, 550_001) else { panic!("the other writer is overlooked") };
    assert_ne!(second, stand_in);
    table.lock_range(&scanner, &key(400_000), &key(500_000), 0);
    assert!(matches!(table.intend_insert(&writer, &key(450_000), Wait::No), Err(Error::LockBusy)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock(&scanner, &stand_in, Shared, LONG));
        until_waiting(&table, 1);
        // Shown as what it stands for.
        let waits: Vec<_> = table.waits().into_iter().map(|w| (w.owner, w.key, w.kind, w.blockers)).collect();
        assert_eq!(waits, [(scanner.id(), INDEX.prefix().to_vec(), LockKind::NewKeys, vec![writer.id()])]);
        let shown = table.snapshot().into_iter().filter(|lock| lock.kind == LockKind::NewKeys);
        let shown: Vec<_> = shown.map(|lock| (lock.owner, lock.key, lock.waiting)).collect();
        let expected = [(&writer, false), (&scanner, true), (&other, false)];
        assert_eq!(shown.len(), expected.len());
        for (owner, waiting) in expected {
            assert!(shown.contains(&(owner.id(), INDEX.prefix().to_vec(), waiting)));
        }
        table.release_all(&writer);
        assert!(waiter.join().unwrap().unwrap().waited);
    });
    let read = table.range_version(&scanner, INDEX);
    assert_eq!(table.lock_range(&scanner, &key(900), &key(2_000), read), RangeGrant::Clean);
    assert_eq!(scan(390_000, 500_000), RangeGrant::Clean);
    assert_eq!(scan(390_000, 500_001), RangeGrant::Inserting(second));
    for owner in [&scanner, &other] {
        table.release_all(owner);
    }
    assert_empty(&table);
    // What a recovered transaction may have brought in is announced as a whole.
    table.intend_insert_within(&writer, &key(3), &key(9));
    assert!(matches!(scan(9, 20), RangeGrant::Inserting(_)));
    assert_eq!(scan(10, 20), RangeGrant::Clean);
    for owner in [&writer, &scanner] {
        table.release_all(owner);
    }
    assert_empty(&table);
}

#[test]
fn a_key_is_locked_for_one_who_holds_others_in_bulk() {
    let table = table();
    let (writer, scanner) = (table.new_owner(), table.new_owner());
    for n in 0..GATHERED_FIRST as u64 {
        table.intend_insert(&writer, &key(n), Wait::No).unwrap();
        table.lock(&writer, &key(n), Exclusive, Wait::No).unwrap();
    }
    assert_eq!(explicit(&table), 1);
    let version = table.range_version(&scanner, INDEX);
    assert_eq!(table.lock_range(&scanner, &key(10), &key(20), version), RangeGrant::Inserting(key(10)));
    assert!(matches!(table.lock(&scanner, &key(10), Shared, Wait::No), Err(Error::LockBusy)));
    table.release_all(&writer);
    assert_eq!(table.lock(&scanner, &key(10), Shared, Wait::No).unwrap().kind, GrantKind::New);
    table.release_all(&scanner);
    assert_empty(&table);
}
