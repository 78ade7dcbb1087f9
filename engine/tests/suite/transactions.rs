//! Transactions in keyspaces: what each isolation level shows and prevents, locks and their waits, savepoints.
//!
//! Tests with two transactions take their steps on one thread wherever nobody has to wait. Where somebody must wait, the other one goes on
//! when the store says that somebody waits: no test sleeps.

use std::sync::Barrier;
use std::time::Duration;

use crate::common::{Rng, options, within};
use strata_engine::io::MemDisk;
use strata_engine::{Engine, Error, Isolation, Keyspace, Result, Transaction};

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

fn store() -> (Engine, Keyspace) {
    let engine = Engine::open(std::path::Path::new("/store"), options(std::sync::Arc::new(MemDisk::new()))).unwrap();
    let keyspace = engine.keyspace("rows").unwrap();
    (engine, keyspace)
}

/// With these keys, each with the value 1.
fn store_with(keys: &[&str]) -> (Engine, Keyspace) {
    let (engine, rows) = store();
    keys.iter().for_each(|key| put(&engine, &rows, key, 1));
    (engine, rows)
}

fn number(value: Option<strata_engine::Value>) -> Option<u64> {
    value.map(|value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

fn put(engine: &Engine, keyspace: &Keyspace, key: &str, value: u64) {
    engine.put(keyspace, key, value.to_le_bytes()).unwrap();
}

fn get(transaction: &Transaction, keyspace: &Keyspace, key: &str) -> Option<u64> {
    number(transaction.get(keyspace, key).unwrap())
}

fn keys(transaction: &Transaction, keyspace: &Keyspace) -> Result<Vec<String>> {
    transaction.iter(keyspace).map(|row| row.map(|(key, _)| String::from_utf8(key.to_vec()).unwrap())).collect()
}

/// Returns once so many wait for locks.
fn await_waiting(engine: &Engine, count: u64) {
    while engine.metrics().lock_waiting < count {
        std::thread::yield_now();
    }
}

/// What is left of transactions, but for blocks that values of other tests hold: these are counted for the whole process, too.
fn left_behind(engine: &Engine) -> Vec<(&'static str, u64)> {
    let left = crate::common::left_behind(engine);
    left.into_iter().filter(|(name, _)| *name != "memory_block_pinned_bytes").collect()
}

fn at_once(engine: &Engine, isolation: Isolation) -> Transaction {
    engine.transaction(isolation).lock_timeout(Duration::ZERO)
}

/// A counter at zero, and two transactions.
fn two_with_a_counter(level: Isolation) -> (Engine, Keyspace, Transaction, Transaction) {
    let (engine, rows) = store();
    put(&engine, &rows, "n", 0);
    let (a, b) = (at_once(&engine, level), at_once(&engine, level));
    (engine, rows, a, b)
}

#[test]
fn nobody_reads_what_is_not_committed() {
    let (engine, rows) = store();
    put(&engine, &rows, "a", 1);
    for level in LEVELS {
        let mut writer = engine.transaction(Isolation::ReadCommitted);
        writer.put(&rows, "a", 9u64.to_le_bytes()).unwrap();
        writer.put(&rows, "b", 9u64.to_le_bytes()).unwrap();
        let reader = at_once(&engine, level);
        match level {
            // It waits for who writes.
            Isolation::Serializable => {
                assert!(matches!(reader.get(&rows, "a"), Err(Error::LockBusy)));
                assert!(matches!(keys(&reader, &rows), Err(Error::LockBusy)));
            }
            _ => {
                assert_eq!(get(&reader, &rows, "a"), Some(1), "{level:?}");
                assert_eq!(keys(&reader, &rows).unwrap(), ["a"], "{level:?}");
            }
        }
        assert_eq!(get(&writer, &rows, "a"), Some(9));
        writer.rollback().unwrap();
        let reader = at_once(&engine, level);
        assert_eq!((get(&reader, &rows, "a"), get(&reader, &rows, "b")), (Some(1), None), "{level:?}");
    }
}

#[test]
fn a_read_repeats_but_at_read_committed() {
    for level in LEVELS {
        let (engine, rows) = store();
        put(&engine, &rows, "a", 1);
        let reader = engine.transaction(level);
        assert_eq!(get(&reader, &rows, "a"), Some(1));
        let mut writer = at_once(&engine, Isolation::ReadCommitted);
        let written = writer.put(&rows, "a", 2u64.to_le_bytes());
        match level {
            Isolation::Serializable => assert!(matches!(written, Err(Error::LockBusy)), "the reader has locked it"),
            _ => writer.commit().unwrap(),
        }
        let expected = if level == Isolation::ReadCommitted { 2 } else { 1 };
        assert_eq!(get(&reader, &rows, "a"), Some(expected), "{level:?}");
    }
}

#[test]
fn a_range_repeats_but_at_read_committed() {
    for level in LEVELS {
        for (from, to, new, is_kept_out) in [("a", "z", "c", true), ("a", "c", "x", false), ("x", "y", "xx", true)] {
            let (engine, rows) = store_with(&["b", "d"]);
            let reader = engine.transaction(level);
            let read = || reader.range(&rows, from..to).map(|row| row.unwrap().0).collect::<Vec<_>>();
            let before = read();
            let mut writer = at_once(&engine, Isolation::Snapshot);
            let written = writer.put(&rows, new, "new").and_then(|()| writer.commit());
            match level {
                Isolation::Serializable => {
                    assert_eq!(written.is_err(), is_kept_out, "{from} to {to}, {new}");
                    assert_eq!(read(), before);
                }
                Isolation::Snapshot => assert!(written.is_ok() && read() == before),
                Isolation::ReadCommitted => assert!(written.is_ok() && (read() != before) == is_kept_out),
            }
        }
    }
}

/// What is absent is read as well: nobody brings it in.
#[test]
fn an_absent_key_stays_absent_to_who_has_read_it() {
    let (engine, rows) = store();
    let reader = at_once(&engine, Isolation::Serializable);
    assert_eq!(get(&reader, &rows, "a"), None);
    let mut writer = at_once(&engine, Isolation::ReadCommitted);
    assert!(matches!(writer.put(&rows, "a", "1"), Err(Error::LockBusy)));
    // The writer has announced that key, which the reader has locked. The next one it brings in.
    assert_eq!(reader.range(&rows, ..="a").count(), 0);
    writer.put(&rows, "b", "1").unwrap();
    assert!(matches!(keys(&reader, &rows), Err(Error::LockBusy)));
    drop(writer);
    assert_eq!(keys(&reader, &rows).unwrap(), [""; 0]);
}

/// Two read a counter, then both write it.
#[test]
fn lost_update() {
    for level in LEVELS {
        let (engine, rows, mut a, mut b) = two_with_a_counter(level);
        let (read_a, read_b) = (get(&a, &rows, "n").unwrap(), get(&b, &rows, "n").unwrap());
        let added = a.put(&rows, "n", (read_a + 1).to_le_bytes()).and_then(|()| a.commit());
        let again = b.put(&rows, "n", (read_b + 1).to_le_bytes());
        match level {
            Isolation::ReadCommitted => {
                again.and_then(|()| b.commit()).unwrap();
                assert_eq!(number(engine.get(&rows, "n").unwrap()), Some(1), "one update is lost");
            }
            Isolation::Snapshot => {
                added.unwrap();
                assert!(matches!(again, Err(Error::Conflict)));
                // The key is locked by now, and still not what the snapshot shows.
                assert!(matches!(b.put(&rows, "n", "x"), Err(Error::Conflict)));
                assert!(matches!(b.get_for_update(&rows, "n"), Err(Error::Conflict)));
                assert!(matches!(b.delete(&rows, "n"), Err(Error::Conflict)));
                assert_eq!(get(&b, &rows, "n"), Some(0));
            }
            Isolation::Serializable => {
                // Both have locked it for reading.
                assert!(matches!(added, Err(Error::LockBusy)));
                // The first one is dropped by now.
                again.and_then(|()| b.commit()).unwrap();
                assert_eq!(number(engine.get(&rows, "n").unwrap()), Some(1));
            }
        }
    }
}

#[test]
fn a_read_for_update_prevents_a_lost_update_at_every_level() {
    for level in LEVELS {
        let (_engine, rows, mut a, mut b) = two_with_a_counter(level);
        for key in ["n", "absent"] {
            a.get_for_update(&rows, key).unwrap();
            assert!(matches!(b.get_for_update(&rows, key), Err(Error::LockBusy)));
            assert!(matches!(b.put(&rows, key, "x"), Err(Error::LockBusy)));
        }
        a.put(&rows, "n", 1u64.to_le_bytes()).unwrap();
        a.commit().unwrap();
        match level {
            Isolation::Snapshot => assert!(matches!(b.get_for_update(&rows, "n"), Err(Error::Conflict))),
            _ => assert_eq!(number(b.get_for_update(&rows, "n").unwrap()), Some(1)),
        }
    }
}

/// Two are on call; each may leave while the other stays.
#[test]
fn write_skew() {
    for level in LEVELS {
        let (engine, rows) = store_with(&["alice", "bob"]);
        let (mut a, mut b) = (at_once(&engine, level), at_once(&engine, level));
        let on_call = |transaction: &Transaction| transaction.iter(&rows).count();
        assert_eq!((on_call(&a), on_call(&b)), (2, 2));
        let left =
            [a.delete(&rows, "alice").and_then(|()| a.commit()), b.delete(&rows, "bob").and_then(|()| b.commit())];
        let both = left.iter().all(Result::is_ok);
        assert_eq!(both, level != Isolation::Serializable, "{level:?}");
        assert_eq!(engine.snapshot().iter(&rows).count() == 0, both);
    }
}

/// Write skew by keys that are new: each brings in what the other has not seen.
#[test]
fn phantoms_make_no_write_skew() {
    for level in LEVELS {
        let (engine, rows) = store();
        let (mut a, mut b) = (at_once(&engine, level), at_once(&engine, level));
        assert!(keys(&a, &rows).unwrap().is_empty() && keys(&b, &rows).unwrap().is_empty());
        let done = [a.put(&rows, "a", "").and_then(|()| a.commit()), b.put(&rows, "b", "").and_then(|()| b.commit())];
        assert_eq!(done.iter().all(Result::is_ok), level != Isolation::Serializable, "{level:?}");
    }
}

/// A range waits for who is bringing a key into it, and sees the key, or that it was taken back.
#[test]
fn a_locking_range_waits_for_keys_that_come() {
    for commits in [false, true] {
        within("a key that comes", 60, move || {
            let (engine, rows) = store_with(&["a", "c"]);
            let mut writer = engine.transaction(Isolation::Snapshot);
            writer.put(&rows, "b", "").unwrap();
            for backward in [false, true] {
                let reader = at_once(&engine, Isolation::Serializable);
                let mut range = reader.iter(&rows);
                let mut step = || if backward { range.next_back() } else { range.next() };
                assert!(step().unwrap().is_ok(), "up to the key");
                assert!(matches!(step().unwrap(), Err(Error::LockBusy)));
                assert!(step().is_none(), "an error is the last item");
            }
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| keys(&engine.transaction(Isolation::Serializable), &rows).unwrap());
                await_waiting(&engine, 1);
                if commits {
                    writer.commit().unwrap()
                } else {
                    drop(writer)
                }
                let expected: &[&str] = if commits { &["a", "b", "c"] } else { &["a", "c"] };
                assert_eq!(reader.join().unwrap(), expected);
            });
        });
    }
}

/// While a range waits for a row, the row changes, and another goes, or one goes alone: it goes on with what is there then.
#[test]
fn a_locking_range_sees_a_row_as_it_is_once_it_has_waited() {
    for (backward, changes) in [(false, false), (false, true), (true, false), (true, true)] {
        within("a row that changes", 60, move || {
            let (engine, rows) = store_with(&["a", "b", "c", "d"]);
            let mut writer = engine.transaction(Isolation::ReadCommitted);
            if changes {
                ["b", "c"].iter().for_each(|key| writer.put(&rows, key, 2u64.to_le_bytes()).unwrap());
            }
            writer.delete(&rows, "c").unwrap();
            let read = || -> Vec<(Vec<u8>, u64)> {
                let reader = engine.transaction(Isolation::Serializable);
                let row = |row: Result<(strata_engine::Key, strata_engine::Value)>| {
                    row.map(|(key, value)| (key.to_vec(), number(Some(value)).unwrap())).unwrap()
                };
                match backward {
                    true => reader.iter(&rows).rev().map(row).collect(),
                    false => reader.iter(&rows).map(row).collect(),
                }
            };
            std::thread::scope(|scope| {
                let reader = scope.spawn(read);
                await_waiting(&engine, 1);
                writer.commit().unwrap();
                let mut expected =
                    vec![(b"a".to_vec(), 1), (b"b".to_vec(), 1 + u64::from(changes)), (b"d".to_vec(), 1)];
                if backward {
                    expected.reverse();
                }
                assert_eq!(reader.join().unwrap(), expected);
            });
        });
    }
}

/// What comes behind the place up to which a range was read is not locked yet: the range meets it, though its cursor stood beyond.
#[test]
fn a_locking_range_meets_what_came_behind_its_place() {
    let (engine, rows) = store_with(&["a", "c", "e", "g"]);
    let reader = engine.transaction(Isolation::Serializable);
    let mut range = reader.iter(&rows);
    let mut ends = Vec::new();
    for new in [("b", "f"), ("d", "")] {
        ends.push(range.next().unwrap().unwrap().0);
        ends.push(range.next_back().unwrap().unwrap().0);
        [new.0, new.1].iter().filter(|key| !key.is_empty()).for_each(|key| put(&engine, &rows, key, 1));
        if new.0 == "b" {
            ends.push(range.next().unwrap().unwrap().0);
            ends.push(range.next_back().unwrap().unwrap().0);
        }
    }
    ends.extend(range.map(|row| row.unwrap().0));
    assert_eq!(ends, ["a", "g", "b", "f", "c", "e", "d"]);
}

/// A key is passed that waits for the reader's own lock. What has come in before it is met nevertheless.
#[test]
fn a_range_that_passes_a_key_leaves_out_nothing_before_it() {
    within("a key that waits behind one that came", 60, || {
        let (engine, rows) = store_with(&["a", "c"]);
        let reader = engine.transaction(Isolation::Serializable);
        reader.get(&rows, "c").unwrap();
        std::thread::scope(|scope| {
            let mut range = reader.iter(&rows);
            assert!(range.next().unwrap().unwrap().0 == "a");
            put(&engine, &rows, "b", 1);
            let writer = scope.spawn(|| engine.put(&rows, "c", "new"));
            await_waiting(&engine, 1);
            let rest: Vec<_> = range.map(|row| row.unwrap().0).collect();
            assert_eq!(rest, ["b", "c"]);
            drop(reader);
            writer.join().unwrap().unwrap();
        });
    });
}

/// The other one waits for the reader's lock of a key that it brings in: the reader's range must not wait for it.
#[test]
fn a_range_passes_a_key_that_waits_for_the_reader_itself() {
    within("a key that waits", 60, || {
        for (key, rest) in [("b", &["a", "c"][..]), ("c", &["a", "c"])] {
            let (engine, rows) = store_with(&["a", "c"]);
            let reader = engine.transaction(Isolation::Serializable);
            reader.get(&rows, key).unwrap();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| engine.put(&rows, key, "new"));
                await_waiting(&engine, 1);
                assert_eq!(keys(&reader, &rows).unwrap(), rest);
                let backward: Vec<_> = reader.iter(&rows).rev().map(|row| row.unwrap().0).collect();
                assert_eq!(backward.len(), rest.len());
                // And it still keeps out what others bring.
                let mut other = at_once(&engine, Isolation::ReadCommitted);
                assert!(matches!(other.put(&rows, "bb", ""), Err(Error::LockBusy)));
                drop(reader);
                writer.join().unwrap().unwrap();
            });
            assert_eq!(engine.get(&rows, key).unwrap().unwrap(), "new");
        }
    });
}

/// A range locks what it has given out, and no more.
#[test]
fn a_range_locks_as_far_as_it_was_read() {
    let (engine, rows) = store_with(&["b", "d", "f", "h"]);
    let reader = engine.transaction(Isolation::Serializable);
    let mut range = reader.iter(&rows);
    assert!(range.next().unwrap().unwrap().0 == "b" && range.next_back().unwrap().unwrap().0 == "h");
    let may = |key: &str| at_once(&engine, Isolation::ReadCommitted).put(&rows, key, "").is_ok();
    for (key, expected) in
        [("a", false), ("b", false), ("c", true), ("d", true), ("g", true), ("h", false), ("i", false)]
    {
        assert_eq!(may(key), expected, "{key}");
    }
    assert!(range.next_back().unwrap().unwrap().0 == "f" && range.next().unwrap().unwrap().0 == "d");
    assert!(may("e"));
    assert!(range.next().is_none() && range.next_back().is_none());
    assert!(["a", "b", "c", "d", "e", "f", "g", "h", "i"].iter().all(|key| !may(key)), "all of it is read");
}

#[test]
fn the_victim_of_a_deadlock_is_told_and_may_try_again() {
    within("deadlock", 60, || {
        let (engine, rows) = store();
        let barrier = Barrier::new(2);
        let victims: usize = std::thread::scope(|scope| {
            let run = |first: &'static str, second: &'static str| {
                let (engine, rows, barrier) = (&engine, &rows, &barrier);
                scope.spawn(move || {
                    let mut transaction = engine.transaction(Isolation::ReadCommitted);
                    transaction.put(rows, first, first).unwrap();
                    barrier.wait();
                    let Err(error) = transaction.put(rows, second, first) else {
                        transaction.commit().unwrap();
                        return 0;
                    };
                    assert!(matches!(error, Error::Deadlock) && error.is_retryable());
                    // Nothing more can be done with it.
                    assert!(matches!(transaction.get(rows, "x"), Err(Error::Deadlock)));
                    assert!(matches!(transaction.put(rows, "x", ""), Err(Error::Deadlock)));
                    assert!(matches!(transaction.commit(), Err(Error::Deadlock)));
                    let mut transaction = engine.transaction(Isolation::ReadCommitted);
                    transaction.put(rows, first, first).unwrap();
                    transaction.put(rows, second, first).unwrap();
                    transaction.commit().unwrap();
                    1
                })
            };
            let threads = [run("a", "b"), run("b", "a")];
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(victims, 1);
        let values = ["a", "b"].map(|key| engine.get(&rows, key).unwrap().unwrap());
        assert_eq!(values[0], values[1], "the victim's second run is the last");
    });
}

#[test]
fn a_lock_is_waited_for_as_long_as_asked() {
    within("timeout", 60, || {
        let (engine, rows) = store();
        let mut holder = engine.transaction(Isolation::ReadCommitted);
        holder.put(&rows, "a", "1").unwrap();
        let mut waiter = engine.transaction(Isolation::ReadCommitted).lock_timeout(Duration::from_millis(20));
        waiter.put(&rows, "b", "2").unwrap();
        assert!(matches!(waiter.put(&rows, "a", "2"), Err(Error::LockTimeout)));
        // As it was before, and may go on.
        waiter.put(&rows, "c", "2").unwrap();
        waiter.commit().unwrap();
        holder.commit().unwrap();
        assert_eq!(engine.snapshot().iter(&rows).count(), 3);
        assert_eq!(left_behind(&engine), []);
    });
}

/// Runs a transaction until nobody is in its way.
fn run<R>(engine: &Engine, level: Isolation, mut body: impl FnMut(&mut Transaction) -> Result<R>) -> R {
    loop {
        let mut transaction = engine.transaction(level);
        match body(&mut transaction).and_then(|result| transaction.commit().map(|()| result)) {
            Ok(result) => return result,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

#[test]
fn a_counter_loses_no_increment() {
    for level in LEVELS {
        within("counter", 240, move || {
            let (engine, rows) = store();
            put(&engine, &rows, "n", 0);
            const EACH: u64 = 400;
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (engine, rows) = (&engine, &rows);
                    scope.spawn(move || {
                        for _ in 0..EACH {
                            run(engine, level, |transaction| {
                                // At read committed only a read for update is safe; above each is.
                                let value = match level == Isolation::ReadCommitted || thread == 0 {
                                    true => transaction.get_for_update(rows, "n")?,
                                    false => transaction.get(rows, "n")?,
                                };
                                transaction.put(rows, "n", (number(value).unwrap() + 1).to_le_bytes())
                            });
                        }
                    });
                }
            });
            assert_eq!(number(engine.get(&rows, "n").unwrap()), Some(2 * EACH), "{level:?}");
            assert_eq!(left_behind(&engine), []);
        });
    }
}

/// Money moves between accounts, some of which are opened and closed; whoever adds it up finds all of it.
#[test]
fn transfers_keep_the_sum() {
    const ACCOUNTS: u64 = 12;
    const ALL: u64 = ACCOUNTS * 100;
    for level in [Isolation::Snapshot, Isolation::Serializable] {
        within("bank", 240, move || {
            let (engine, rows) = store();
            let name = |n: u64| format!("account {n:03}");
            (0..ACCOUNTS).for_each(|n| put(&engine, &rows, &name(n), 100));
            let sum = |rows: strata_engine::Range<'_>| -> Result<u64> {
                rows.map(|row| row.map(|(_, value)| number(Some(value)).unwrap())).sum()
            };
            std::thread::scope(|scope| {
                for thread in 0..2u64 {
                    let (engine, rows) = (&engine, &rows);
                    scope.spawn(move || {
                        let mut rng = Rng::new(thread);
                        for round in 0..150 {
                            let (from, to) = (name(rng.below(ACCOUNTS)), name(rng.below(2 * ACCOUNTS)));
                            if from == to {
                                continue;
                            }
                            run(engine, level, |transaction| {
                                let Some(have) = number(transaction.get(rows, &from)?) else { return Ok(()) };
                                let amount = have.min(1 + round % 60);
                                let other = number(transaction.get(rows, &to)?).unwrap_or(0);
                                match have - amount {
                                    0 => transaction.delete(rows, &from)?,
                                    left => transaction.put(rows, &from, left.to_le_bytes())?,
                                }
                                transaction.put(rows, &to, (other + amount).to_le_bytes())
                            });
                        }
                    });
                }
                let (engine, rows, sum) = (&engine, &rows, &sum);
                scope.spawn(move || {
                    for round in 0..60 {
                        assert_eq!(sum(engine.snapshot().iter(rows)).unwrap(), ALL);
                        assert_eq!(sum(engine.transaction(Isolation::ReadCommitted).iter(rows)).unwrap(), ALL);
                        let all = run(engine, level, |transaction| match round % 2 {
                            0 => sum(transaction.iter(rows)),
                            _ => {
                                let (mut range, mut all) = (transaction.iter(rows), 0);
                                while let Some(row) = range.next_back() {
                                    all += number(Some(row?.1)).unwrap();
                                    if let Some(row) = range.next() {
                                        all += number(Some(row?.1)).unwrap();
                                    }
                                }
                                Ok(all)
                            }
                        });
                        assert_eq!(all, ALL, "{level:?}");
                    }
                });
            });
            assert_eq!(sum(engine.snapshot().iter(&rows)).unwrap(), ALL);
            assert_eq!(left_behind(&engine), []);
        });
    }
}

/// Each looks for how many there are and brings in one more, with that number: run one after the other, all numbers differ.
#[test]
fn serializable_transactions_have_an_order() {
    within("phantoms", 240, || {
        let (engine, rows) = store();
        const EACH: u64 = 40;
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (engine, rows) = (&engine, &rows);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..EACH {
                        let place = rng.next();
                        run(engine, Isolation::Serializable, |transaction| {
                            let mut count = 0u64;
                            for row in transaction.iter(rows) {
                                row?;
                                count += 1;
                            }
                            transaction.put(rows, place.to_be_bytes(), count.to_le_bytes())
                        });
                    }
                });
            }
        });
        let snapshot = engine.snapshot();
        let mut found: Vec<u64> = snapshot.iter(&rows).map(|row| number(Some(row.unwrap().1)).unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, (0..3 * EACH).collect::<Vec<_>>());
    });
}

#[test]
fn savepoints_go_back_to_where_they_were_made() {
    let (engine, rows) = store();
    let mut transaction = engine.transaction(Isolation::Snapshot);
    transaction.put(&rows, "a", "1").unwrap();
    let first = transaction.savepoint();
    transaction.put(&rows, "a", "2").unwrap();
    let second = transaction.savepoint();
    transaction.delete(&rows, "a").unwrap();
    transaction.rollback_to(second).unwrap();
    assert_eq!(transaction.get(&rows, "a").unwrap().unwrap(), "2");
    transaction.rollback_to(first).unwrap();
    transaction.put(&rows, "b", "x").unwrap();
    transaction.put(&rows, "c", "x").unwrap();
    assert!(matches!(transaction.rollback_to(second), Err(Error::Invalid(_))), "it was taken back");
    transaction.rollback_to(first).unwrap();
    let mut other = engine.transaction(Isolation::Snapshot);
    other.savepoint();
    assert!(matches!(other.rollback_to(first), Err(Error::Invalid(_))), "it is another transaction's");
    transaction.commit().unwrap();
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.iter(&rows).count(), 1);
    assert_eq!(snapshot.get(&rows, "a").unwrap().unwrap(), "1");
}

#[test]
fn keys_and_values_have_limits() {
    let (engine, rows) = store();
    let mut transaction = engine.transaction(Isolation::Serializable);
    let longest = vec![7; (32 << 10) - 4];
    transaction.put(&rows, &longest, "").unwrap();
    transaction.put(&rows, "", "the empty key").unwrap();
    assert!(matches!(transaction.put(&rows, [&longest[..], b"x"].concat(), ""), Err(Error::Invalid(_))));
    assert!(transaction.get(&rows, [&longest[..], b"x"].concat()).unwrap().is_none());
    assert_eq!(transaction.iter(&rows).count(), 2);
    transaction.commit().unwrap();
    assert_eq!(engine.get(&rows, "").unwrap().unwrap(), "the empty key");
}

/// A transaction too large for memory, of which most lies in files.
#[test]
fn a_large_transaction_reads_and_takes_back_its_own() {
    let disk = std::sync::Arc::new(MemDisk::new());
    let options = strata_engine::Options { transaction_bytes: 32 << 10, ..options(disk) };
    let engine = Engine::open(std::path::Path::new("/store"), options).unwrap();
    let rows = engine.keyspace("rows").unwrap();
    let key = |n: u64| n.to_be_bytes();
    let mut transaction = engine.transaction(Isolation::Serializable);
    let mut half = None;
    for n in 0..4000u64 {
        if n == 2000 {
            half = Some(transaction.savepoint());
        }
        transaction.put(&rows, key(n), [n as u8; 100]).unwrap();
    }
    assert_eq!(transaction.iter(&rows).count(), 4000);
    assert_eq!(transaction.get(&rows, key(7)).unwrap().unwrap(), [7; 100]);
    transaction.rollback_to(half.unwrap()).unwrap();
    assert_eq!(transaction.iter(&rows).rev().count(), 2000);
    transaction.commit().unwrap();
    assert_eq!(engine.snapshot().iter(&rows).count(), 2000);
}
