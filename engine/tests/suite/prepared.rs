//! Prepared transactions that wait long for their decision: the log does not grow because of them, nothing of them is
//! lost in a crash at any disk operation, and a full disk refuses no decision.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{DIR, Map, OnFailure, Rng, cases, dump, hooked, key, new_store, open, options, value, within};
use parking_lot::Mutex;
use strata_engine::io::MemDisk;
use strata_engine::layer::{CrashPoint, IndexId, LockMode, Wait};
use strata_engine::{Durability, Engine, Error, Options};

const INDEX: u32 = 16;
const SEGMENT: u64 = 64 << 10;

/// Keys of prepared transactions; those of other commits are below.
fn held(n: u64) -> Vec<u8> {
    key(INDEX, 50_000 + n)
}

fn xid(n: u64) -> Vec<u8> {
    format!("xid-{n}").into_bytes()
}

/// Leaves transaction `n`, with `bytes` of value, prepared and without a session.
fn leave_prepared(engine: &Engine, rng: &mut Rng, n: u64, bytes: u64) -> Vec<u8> {
    let value = value(rng, n, bytes);
    let mut txn = engine.begin();
    txn.lock(&held(n), LockMode::Exclusive, Wait::No).unwrap();
    txn.put(&held(n), &value).unwrap();
    txn.prepare(&xid(n)).unwrap();
    txn.detach();
    value
}

/// Ordinary commits of about `bytes` bytes; what they wrote goes to `map`.
fn write(engine: &Engine, rng: &mut Rng, bytes: u64, map: &mut Map) {
    let mut written = 0;
    while written < bytes {
        let (k, n) = (rng.below(500), 400 + rng.below(2_000));
        let value = value(rng, k, n);
        let mut txn = engine.begin();
        txn.put(&key(INDEX, k), &value).unwrap();
        txn.commit().unwrap();
        map.insert(key(INDEX, k), value);
        written += n;
    }
}

fn sorted(mut xids: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    xids.sort();
    xids
}

#[test]
fn the_log_is_recycled_past_prepared_transactions() {
    within("recycling", 120, || {
        let (disk, engine) = new_store();
        let (mut rng, mut map) = (Rng::new(1), Map::new());
        let mut prepared = BTreeMap::new();
        // Some are small, some take several units; they come between other commits.
        let mut live = 0;
        for n in 0..300 {
            let bytes = if n % 50 == 0 { 60_000 } else { 50 + rng.below(500) };
            live += bytes;
            prepared.insert(n, leave_prepared(&engine, &mut rng, n, bytes));
            write(&engine, &mut rng, 3_000, &mut map);
        }
        let mut most = 0;
        for _ in 0..20 {
            write(&engine, &mut rng, 600_000, &mut map);
            engine.flush().unwrap();
            most = most.max(engine.metrics().log_live_bytes);
        }
        // Segments in use: what is held back, with the page each small unit takes, and what has come since the flush.
        let bound = 2 * (live + 300 * 4096) + 128 * 1024 + 12 * SEGMENT;
        assert!(most < bound, "{most} bytes of log for {live} bytes of prepared transactions, {bound} allowed");
        assert!(engine.metrics().log_bytes_written > 4 * bound, "the test writes enough to tell");

        drop(engine);
        let engine = crate::common::open(&disk.crash(7)).unwrap();
        assert_eq!(sorted(engine.prepared()), sorted(prepared.keys().map(|&n| xid(n)).collect()));
        for (&n, value) in &prepared {
            let mut other = engine.begin();
            let refused = other.lock(&held(n), LockMode::Exclusive, Wait::No);
            assert!(matches!(refused, Err(Error::LockBusy)), "{n}: {refused:?}");
            if n % 3 == 0 {
                assert!(engine.rollback_prepared(&xid(n)).unwrap());
            } else {
                assert!(engine.commit_prepared(&xid(n)).unwrap());
                map.insert(held(n), value.clone());
            }
            other.lock(&held(n), LockMode::Exclusive, Wait::No).unwrap();
        }
        assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap(), map);
        // Nothing is held back any more.
        write(&engine, &mut rng, 600_000, &mut map);
        engine.flush().unwrap();
        let left = engine.metrics().log_live_bytes;
        assert!(left <= 12 * SEGMENT, "{left} bytes of log are left");
        engine.close().unwrap();
        drop(engine);
        assert!(crate::common::open(&disk).is_ok());
    });
}

/// Tells what a crash image must hold.
#[derive(Clone, Default)]
struct Promise {
    /// Prepared, in doubt.
    waiting: BTreeMap<u64, Vec<u8>>,
    /// The decision about this one has been asked for and not yet acknowledged: it commits or it rolls back.
    deciding: Option<(u64, bool)>,
    /// Committed, or rolled back, for certain.
    decided: BTreeMap<u64, Option<Vec<u8>>>,
}

impl Promise {
    fn check(&self, image: &MemDisk, again: u64) {
        let engine = crate::common::open(image).unwrap();
        let mut found = sorted(engine.prepared());
        let mut state = dump(&engine, INDEX, INDEX + 1).unwrap();
        state.retain(|k, _| *k >= held(0));
        if let Some((n, commits)) = self.deciding {
            let value = &self.waiting[&n];
            if found.contains(&xid(n)) {
                assert!(!state.contains_key(&held(n)), "{n} is both prepared and committed");
                found.retain(|id| *id != xid(n));
            } else {
                assert_eq!(state.remove(&held(n)).as_ref(), commits.then_some(value), "{n} was being decided");
            }
        }
        let expected = self.waiting.keys().filter(|&&n| self.deciding.is_none_or(|(d, _)| d != n)).map(|&n| xid(n));
        assert_eq!(found, sorted(expected.collect()));
        let committed: Map = self.decided.iter().filter_map(|(&n, v)| Some((held(n), v.clone()?))).collect();
        assert_eq!(state, committed);
        // What was relocated can be relocated again, and decided.
        let mut map = Map::new();
        write(&engine, &mut Rng::new(again), 200_000, &mut map);
        engine.flush().unwrap();
        drop(engine);
        let engine = crate::common::open(&image.crash(again)).unwrap();
        for id in found {
            let n: u64 = String::from_utf8(id.clone()).unwrap()[4..].parse().unwrap();
            let mut other = engine.begin();
            assert!(matches!(other.lock(&held(n), LockMode::Exclusive, Wait::No), Err(Error::LockBusy)));
            assert!(engine.commit_prepared(&id).unwrap());
            let mut read = Vec::new();
            assert!(other.get(&held(n), engine.visible(), &mut read).unwrap());
            assert_eq!(read, self.waiting[&n]);
        }
    }
}

/// A short life with prepared transactions that are relocated and decided. `at` is told of each disk operation and step
/// with the promise of the moment; with the first it returns true for, the rest does not matter any more.
fn life(seed: u64, at: impl Fn(&MemDisk, &Promise) + Send + Sync + 'static) {
    let disk = MemDisk::new();
    let promise = Arc::new(Mutex::new(Promise::default()));
    let tell: Arc<dyn Fn() + Send + Sync> = {
        let (disk, promise) = (disk.clone(), promise.clone());
        Arc::new(move || {
            let promise = promise.lock().clone();
            at(&disk, &promise);
        })
    };
    let (on_disk, on_crash_point) = (tell.clone(), tell);
    let hooked = hooked(disk.clone(), Arc::new(move |_, _| on_disk()));
    let engine = Engine::open(
        Path::new(DIR),
        Options { on_crash_point: Some(Arc::new(move |_: CrashPoint| on_crash_point())), ..options(hooked) },
    )
    .unwrap();
    let (mut rng, mut map) = (Rng::new(seed), Map::new());
    let mut next = 0;
    for round in 0..6u64 {
        for _ in 0..4 {
            // Known only once `prepare` has returned: a crash within it is another test's business. Here it would be an
            // unknown transaction, so the images in between are skipped by an empty promise.
            let before = std::mem::take(&mut *promise.lock());
            let bytes = if rng.chance(20) { 30_000 } else { rng.below(800) };
            let value = leave_prepared(&engine, &mut rng, next, bytes);
            *promise.lock() = before;
            promise.lock().waiting.insert(next, value);
            next += 1;
        }
        write(&engine, &mut rng, 200_000, &mut map);
        if round % 2 == 1 {
            let waiting: Vec<u64> = promise.lock().waiting.keys().copied().collect();
            let n = waiting[rng.below(waiting.len() as u64) as usize];
            let commits = rng.chance(50);
            promise.lock().deciding = Some((n, commits));
            if commits {
                assert!(engine.commit_prepared(&xid(n)).unwrap());
            } else {
                assert!(engine.rollback_prepared(&xid(n)).unwrap());
            }
            let mut promise = promise.lock();
            promise.deciding = None;
            let value = promise.waiting.remove(&n);
            promise.decided.insert(n, value.filter(|_| commits));
        }
        engine.flush().unwrap();
    }
}

#[test]
fn who_writes_where_is_known_of_prepared_transactions() {
    let disk = MemDisk::new();
    let (here, there) = ([IndexId(INDEX)], [IndexId(INDEX + 1)]);
    let engine = open(&disk).unwrap();
    assert!(!engine.prepared_writes(&here));
    leave_prepared(&engine, &mut Rng::new(1), 1, 10);
    assert!(engine.prepared_writes(&here) && !engine.prepared_writes(&there));
    drop(engine);
    let engine = open(&disk).unwrap();
    assert!(engine.prepared_writes(&here) && !engine.prepared_writes(&there));
    assert!(engine.rollback_prepared(&xid(1)).unwrap());
    assert!(!engine.prepared_writes(&here));
}

/// Whoever wants an index for itself goes on when the last transaction that has written to it ends, in either way, and sees what it
/// wrote; before that it gives up after its time, or when it is told to.
#[test]
fn the_end_of_prepared_writers_can_be_waited_for() {
    const NEVER: &dyn Fn() -> bool = &|| false;
    let (here, there) = ([IndexId(INDEX)], [IndexId(INDEX + 1)]);
    for restarts in [false, true] {
        within(&format!("restarts: {restarts}"), 60, move || {
            let disk = MemDisk::new();
            let mut engine = open(&disk).unwrap();
            assert!(engine.await_prepared(&here, Duration::ZERO, NEVER).is_ok());
            let value = leave_prepared(&engine, &mut Rng::new(1), 1, 10);
            leave_prepared(&engine, &mut Rng::new(2), 2, 10);
            if restarts {
                drop(engine);
                engine = open(&disk).unwrap();
            }
            assert!(engine.await_prepared(&there, Duration::ZERO, NEVER).is_ok());
            for timeout in [Duration::ZERO, Duration::from_millis(5)] {
                assert!(matches!(engine.await_prepared(&here, timeout, NEVER), Err(Error::LockTimeout)));
            }
            assert!(matches!(engine.await_prepared(&here, Duration::MAX, &|| true), Err(Error::Interrupted)));
            std::thread::scope(|scope| {
                let (waits, waiting) = std::sync::mpsc::channel();
                let engine = &engine;
                let waiter = scope.spawn(move || {
                    // It is asked while it waits.
                    let waits_now = || {
                        waits.send(()).unwrap();
                        false
                    };
                    engine.await_prepared(&here, Duration::MAX, &waits_now).unwrap();
                    let mut found = Vec::new();
                    assert!(engine.get_at(&held(1), engine.visible(), &mut found).unwrap());
                    found
                });
                waiting.recv().unwrap();
                assert!(engine.rollback_prepared(&xid(2)).unwrap());
                waiting.recv().unwrap();
                assert!(!waiter.is_finished(), "one of two is left");
                assert!(engine.commit_prepared(&xid(1)).unwrap());
                assert_eq!(waiter.join().unwrap(), value);
            });
        });
    }
}

#[test]
fn relocated_transactions_survive_a_crash_at_any_moment() {
    // How many moments there are is not the same each time: background threads take part.
    let moments = Arc::new(Mutex::new(0u64));
    let counted = moments.clone();
    life(0, move |_, _| *counted.lock() += 1);
    let moments = *moments.lock();
    assert!(moments > 300);
    for case in 0..cases(60) {
        let _named = OnFailure(format!("case {case}"));
        let mut rng = Rng::new(case);
        let countdown = Mutex::new(rng.below(moments));
        let taken = Arc::new(Mutex::new(None));
        let (to, seed) = (taken.clone(), rng.next());
        within("a life", 60, move || {
            life(case, move |disk, promise| {
                let mut countdown = countdown.lock();
                if *countdown == 0 && !promise.waiting.is_empty() && to.lock().is_none() {
                    *to.lock() = Some((disk.crash(seed), promise.clone()));
                }
                *countdown = countdown.saturating_sub(1);
            })
        });
        if let Some((image, promise)) = taken.lock().take() {
            within("a recovery", 60, move || promise.check(&image, seed));
        };
    }
}

/// Another id counts from the moment it is durable on, for good: copies of the record keep it, and nothing else changes.
#[test]
fn a_prepared_transaction_is_renamed_in_one_step() {
    within("renaming", 60, || {
        let disk = MemDisk::new();
        // Images of the disk during the renaming, and after it.
        let images: Arc<Mutex<(bool, Vec<MemDisk>)>> = Arc::default();
        let (to, from) = (images.clone(), disk.clone());
        let hook = Arc::new(move |_: &str, _: &Path| {
            let mut images = to.lock();
            let seed = images.1.len() as u64;
            if images.0 {
                images.1.push(from.crash(seed));
            }
        });
        let engine = Engine::open(Path::new(DIR), options(hooked(disk.clone(), hook))).unwrap();
        let (mut rng, mut map) = (Rng::new(3), Map::new());
        let value = leave_prepared(&engine, &mut rng, 1, 20_000);
        leave_prepared(&engine, &mut rng, 2, 20);
        assert!(engine.rename_prepared(&xid(1), &xid(2)).is_err(), "an id that another one has");
        assert!(!engine.rename_prepared(&xid(9), &xid(8)).unwrap());
        images.lock().0 = true;
        assert!(engine.rename_prepared(&xid(1), b"new").unwrap());
        images.lock().0 = false;
        let during = std::mem::take(&mut images.lock().1);
        assert!(during.len() >= 2, "{} operations of the disk", during.len());
        let mut found = [0, 0];
        for image in &during {
            let engine = open(image).unwrap();
            let prepared = engine.prepared();
            assert!(prepared.len() == 2 && prepared.contains(&xid(2)));
            found[usize::from(prepared.contains(&xid(1)))] += 1;
            let id = if prepared.contains(&xid(1)) { xid(1) } else { b"new".to_vec() };
            assert!(engine.commit_prepared(&id).unwrap());
            assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap(), Map::from([(held(1), value.clone())]));
        }
        assert!(found[1] > 0, "{found:?}");
        // Also where the log goes on, and recovered from.
        let check = |engine: &Engine| assert_eq!(sorted(engine.prepared()), vec![b"new".to_vec(), xid(2)]);
        check(&engine);
        check(&open(&disk.crash(5)).unwrap());
        for _ in 0..3 {
            write(&engine, &mut rng, 600_000, &mut map);
            engine.flush().unwrap();
        }
        let engine = {
            drop(engine);
            open(&disk.crash(6)).unwrap()
        };
        check(&engine);
        let mut other = engine.begin();
        assert!(matches!(other.lock(&held(1), LockMode::Exclusive, Wait::No), Err(Error::LockBusy)));
        assert!(!engine.commit_prepared(&xid(1)).unwrap() && engine.commit_prepared(b"new").unwrap());
        map.insert(held(1), value);
        assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap(), map);
    });
}

#[test]
fn a_full_disk_refuses_no_decision() {
    within("a full disk", 60, || {
        let (disk, engine) = new_store();
        let mut rng = Rng::new(3);
        let values: Vec<Vec<u8>> = (0..400).map(|n| leave_prepared(&engine, &mut rng, n, 100)).collect();
        disk.set_capacity(Some(disk.used()));
        // Use up what room there is for others.
        for k in 0.. {
            let mut txn = engine.begin();
            txn.put(&key(INDEX, k), &[7; 3_000]).unwrap();
            match txn.commit() {
                Ok(()) => assert!(k < 10_000, "the disk never fills"),
                Err(error) => {
                    assert!(error.is_disk_full(), "{error}");
                    break;
                }
            }
        }
        // Nor another id.
        assert!(engine.rename_prepared(&xid(0), b"new 0").unwrap());
        assert!(engine.rename_prepared(&xid(1), b"new 1").unwrap());
        let id = |n| if n < 2 { format!("new {n}").into_bytes() } else { xid(n) };
        // Each decision is synced on its own: the most room it can take.
        for n in 0..400 {
            if n % 4 == 0 {
                assert!(engine.rollback_prepared(&id(n)).unwrap());
            } else {
                assert!(engine.commit_prepared(&id(n)).unwrap());
            }
        }
        drop(engine);
        disk.set_capacity(None);
        let engine = crate::common::open(&disk.crash(1)).unwrap();
        assert!(engine.prepared().is_empty());
        for n in 0..400 {
            let mut read = Vec::new();
            let there = engine.get_at(&held(n), engine.visible(), &mut read).unwrap();
            assert_eq!(there, n % 4 != 0);
            assert!(!there || read == values[n as usize]);
        }
    });
}

#[test]
fn transactions_that_only_roll_back_do_not_fill_the_disk() {
    within("rolling back", 120, || {
        let (_disk, engine) = new_store();
        let mut rng = Rng::new(4);
        let limit = 16 << 20;
        while engine.metrics().log_bytes_written < limit + limit / 4 {
            let mut txn = engine.begin();
            txn.put(&key(INDEX, 1), &value(&mut rng, 1, 100_000)).unwrap();
            txn.prepare(b"x").unwrap();
            txn.rollback().unwrap();
        }
        // The housekeeper looks once in a while.
        while engine.metrics().log_live_bytes > limit / 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut read = Vec::new();
        assert!(!engine.get_at(&key(INDEX, 1), engine.visible(), &mut read).unwrap());
    });
}

#[test]
fn a_snapshot_of_the_order_waits_for_nobody_and_sees_what_was_ordered() {
    let (_disk, engine) = new_store();
    let mut one = engine.begin();
    one.put(&key(INDEX, 1), b"one").unwrap();
    one.prepare(b"1").unwrap();
    let mut two = engine.begin();
    two.put(&key(INDEX, 2), b"two").unwrap();
    two.prepare(b"2").unwrap();
    one.commit_ordered();
    // Ordered, and not applied by anybody yet.
    let point = engine.read_point_ordered();
    two.commit_ordered();
    two.commit().unwrap();
    engine.await_visible(point.seq());
    let mut read = Vec::new();
    assert!(engine.get_at(&key(INDEX, 1), point.seq(), &mut read).unwrap());
    assert!(!engine.get_at(&key(INDEX, 2), point.seq(), &mut read).unwrap());
    one.commit().unwrap();
}

/// With a binlog the server repeats decisions after a crash, so the commit record need not be synced; about a user's XA
/// transaction that is committed in one phase it knows nothing.
#[test]
fn a_commit_that_nobody_repeats_is_durable() {
    for decides in [false, true] {
        let (disk, engine) = new_store();
        let before = engine.metrics().log_syncs;
        let mut txn = engine.begin();
        txn.put(&key(INDEX, 1), b"v").unwrap();
        if decides {
            txn.decide_here();
        }
        txn.prepare(b"x").unwrap();
        txn.commit_ordered();
        txn.commit().unwrap();
        assert_eq!(engine.metrics().log_syncs - before, 1 + u64::from(decides));
        let mut in_doubt = 0;
        for seed in 0..20 {
            let after = crate::common::open(&disk.crash(seed)).unwrap();
            in_doubt += after.prepared().len();
            let mut read = Vec::new();
            let there = after.get_at(&key(INDEX, 1), after.visible(), &mut read).unwrap();
            assert_ne!(there, !after.prepared().is_empty());
        }
        assert_eq!(in_doubt > 0, !decides);
        // The next transaction of the same session decides nothing by itself.
        txn.put(&key(INDEX, 2), b"v").unwrap();
        txn.prepare(b"y").unwrap();
        txn.commit_ordered();
        let before = engine.metrics().log_syncs;
        txn.commit().unwrap();
        assert_eq!(engine.metrics().log_syncs, before);
    }
}

/// The server may end a prepared transaction from another session a moment before the one that prepared it is gone. It
/// tells its client that this is done whatever the engine says, so it has to be done.
#[test]
fn a_decision_waits_for_the_session_to_let_go() {
    let (_disk, engine) = new_store();
    for n in 0..200 {
        let mut txn = engine.begin();
        txn.put(&held(n), b"x").unwrap();
        txn.prepare(&xid(n)).unwrap();
        let both = std::sync::Barrier::new(2);
        let ended = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                both.wait();
                if n % 2 == 0 { engine.rollback_prepared(&xid(n)) } else { engine.commit_prepared(&xid(n)) }
            });
            both.wait();
            (0..n * 50).for_each(|_| std::hint::spin_loop());
            drop(txn);
            other.join().unwrap()
        });
        assert!(ended.unwrap(), "transaction {n} was said not to be there");
    }
    assert!(engine.prepared().is_empty());
    assert!(!engine.rollback_prepared(&xid(999)).unwrap());
}

/// A rollback of a prepared transaction is as durable as the setting says, and its locks are free; that of one without a session is
/// synced.
#[test]
fn a_rollback_is_as_durable_as_the_setting_says() {
    within("durability of rollbacks", 120, || {
        const TRANSACTIONS: u64 = 300;
        let engine = crate::common::open(&MemDisk::new()).unwrap();
        let syncs = |work: &dyn Fn(u64)| {
            let before = engine.metrics().log_syncs;
            (0..TRANSACTIONS).for_each(work);
            engine.metrics().log_syncs - before
        };
        let prepare = |n: u64| {
            let mut txn = engine.begin();
            txn.lock(&held(n), LockMode::Exclusive, Wait::No).unwrap();
            txn.put(&held(n), b"never").unwrap();
            txn.prepare(&xid(n)).unwrap();
            txn
        };
        engine.set_durability(Durability::EverySecond);
        let lazy = syncs(&|n| prepare(n).rollback().unwrap());
        // Housekeeping syncs once a second.
        assert!(lazy < TRANSACTIONS / 2, "{lazy}");
        let detached = syncs(&|n| {
            prepare(n).detach();
            assert!(engine.rollback_prepared(&xid(n)).unwrap());
        });
        assert!(detached >= TRANSACTIONS, "{detached}");
        engine.set_durability(Durability::EveryCommit);
        let strict = syncs(&|n| prepare(n).rollback().unwrap());
        assert!(strict >= 2 * TRANSACTIONS, "{strict}");
        assert_eq!(engine.metrics().locked_keys, 0);
        assert!(engine.prepared().is_empty() && dump(&engine, INDEX, INDEX + 1).unwrap().is_empty());
    });
}
