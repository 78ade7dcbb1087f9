use std::sync::mpsc;
use std::thread;

use super::LockMode::{Exclusive, Shared};
use super::queue::LOOKS;
use super::shard::ENTRIES_KEPT;
use super::*;

const LONG: Wait = Wait::TimeoutUs(60_000_000);

fn table() -> LockTable {
    LockTable::with_options(4, LockOptions { first_search_us: 500, next_search_us: 5_000, long_queue: 16 })
}

/// Locks with patience, and lets go of all locks at once.
fn lock_briefly(table: &LockTable, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode) -> Result<Granted> {
    let result = table.lock(owner, key, mode, LONG);
    table.release_all(owner);
    result
}

/// Returns once `count` owners wait; polling stands in for a hook that only tests would need.
fn until_waiting(table: &LockTable, count: usize) {
    while table.snapshot().iter().filter(|l| l.waiting).count() < count {
        thread::yield_now();
    }
}

fn assert_empty(table: &LockTable) {
    assert_eq!(table.snapshot(), vec![]);
    assert!(table.waiting.lock().is_empty());
    assert_eq!(table.shards.iter().map(|s| s.0.lock().live).sum::<usize>(), 0);
    assert!(table.ranges_are_empty());
}

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

/// Writes down waits, and prefers the owner of a number as victim.
#[derive(Default)]
struct Observer {
    told: Mutex<Vec<(u64, Vec<u64>)>>,
    prefers: AtomicU64,
    latest: Mutex<Option<Deadlock>>,
}

impl WaitObserver for Observer {
    fn waits(&self, waiter: u64, ahead: &dyn Fn() -> Vec<u64>) {
        let ahead = ahead();
        if !ahead.is_empty() {
            self.told.lock().push((waiter, ahead));
        }
    }
    fn deadlock(&self, deadlock: &Deadlock) {
        *self.latest.lock() = Some(deadlock.clone());
    }
    fn victim(&self, cycle: &[u64]) -> Option<u64> {
        cycle.iter().copied().find(|&id| id == self.prefers.load(Ordering::Relaxed))
    }
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

fn key(n: u64) -> Vec<u8> {
    [7u32.to_be_bytes().as_slice(), &n.to_be_bytes()].concat()
}
const INDEX: crate::base::IndexId = crate::base::IndexId(7);

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
