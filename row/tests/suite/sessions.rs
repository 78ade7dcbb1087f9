//! Several sessions: isolation, uniqueness, waiting, undoing.

use crate::common::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use strata_row::error::Error;
use strata_row::isolation::{Isolation, Waiting};
use strata_row::kv::{self, LockMode};
use strata_row::rowcode::Record;
use strata_row::scan::Seek;
use strata_row::store::Store;
use strata_row::table::Table;

fn setup(rows: i64) -> (tempfile::TempDir, Arc<Store>, Arc<Table>) {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut t = Client::new(&store, &table);
    for c in 0..rows {
        t.insert(&row(c, 0, Some("k"), Some(c as i32))).unwrap();
    }
    t.commit();
    (dir, store, table)
}

/// Waits until somebody waits for a lock, without sleeping.
fn until_waiting(store: &Store, waits: u64) {
    while store.engine().metrics().lock_waits < waits {
        std::thread::yield_now();
    }
}

/// Does something on a thread of its own, as a client of its own.
fn elsewhere<T: Send + 'static>(
    store: &Arc<Store>,
    table: &Arc<Table>,
    work: impl FnOnce(&mut Client) -> T + Send + 'static,
) -> JoinHandle<T> {
    let (store, table) = (store.clone(), table.clone());
    std::thread::spawn(move || work(&mut Client::new(&store, &table)))
}

fn end(client: &mut Client, commit: bool) {
    if commit { client.commit() } else { client.session.rollback().unwrap() }
}

#[test]
fn snapshots_last_as_long_as_the_isolation_says() {
    let (_dir, store, table) = setup(3);
    let mut writer = Client::new(&store, &table);
    let mut rc = Client::new(&store, &table);
    rc.isolation = Isolation::ReadCommitted;
    let mut rr = Client::new(&store, &table);
    assert_eq!(rc.scan(None, true).unwrap().len(), 3);
    assert_eq!(rr.scan(Some(BY_B), true).unwrap().len(), 3);
    writer.insert(&row(9, 9, Some("k"), None)).unwrap();
    writer.update(&row(1, 0, Some("k"), Some(1)), &row(1, 0, Some("z"), Some(11))).unwrap();
    assert_eq!(rc.scan(None, true).unwrap().len(), 3, "not committed");
    writer.commit();
    assert_eq!(rc.scan(None, true).unwrap().len(), 4);
    assert_eq!(rc.get(BY_E, &image_e(Some(11))).unwrap().unwrap().b.as_deref(), Some("z"));
    assert_eq!(rr.scan(None, true).unwrap().len(), 3);
    assert_eq!(rr.scan(Some(BY_B), true).unwrap().len(), 3);
    assert_eq!(rr.get(BY_E, &image_e(Some(11))).unwrap(), None);
    assert_eq!(rr.get(BY_E, &image_e(Some(1))).unwrap().unwrap().c, 1);
    // A locking read sees the newest row all the same.
    rr.locking(Some(LockMode::Exclusive));
    assert_eq!(rr.get(BY_E, &image_e(Some(11))).unwrap().unwrap().c, 1);
    rr.locking(None);
    rr.session.statement_end();
    rr.commit();
    assert_eq!(rr.scan(None, true).unwrap().len(), 4);
    // A consistent snapshot is taken when it is asked for.
    rr.commit();
    rr.session.consistent_snapshot(Isolation::RepeatableRead);
    writer.insert(&row(10, 0, None, None)).unwrap();
    writer.commit();
    assert_eq!(rr.scan(None, true).unwrap().len(), 4);
}

#[test]
fn two_writers_of_one_unique_value_wait_and_then_see() {
    for commit in [true, false] {
        for primary in [true, false] {
            let (_dir, store, table) = setup(1);
            let waits = store.engine().metrics().lock_waits;
            let mut a = Client::new(&store, &table);
            a.insert(&row(50, 0, None, Some(500))).unwrap();
            let second = if primary { row(50, 0, None, Some(501)) } else { row(51, 0, None, Some(500)) };
            let thread = elsewhere(&store, &table, move |b| {
                let result = b.insert(&second);
                b.commit();
                result
            });
            until_waiting(&store, waits + 1);
            end(&mut a, commit);
            let index = if primary { PRIMARY } else { BY_E };
            match (thread.join().unwrap(), commit) {
                (Err(Error::Duplicate(i)), true) => assert_eq!(i, index),
                (Ok(()), false) => {}
                (result, _) => panic!("{result:?}"),
            }
            a.check();
            assert_eq!(a.scan(None, true).unwrap().len(), 2);
        }
    }
}

#[test]
fn a_deleted_unique_value_is_free_only_once_that_is_committed() {
    for commit in [true, false] {
        let (_dir, store, table) = setup(2);
        let waits = store.engine().metrics().lock_waits;
        let mut a = Client::new(&store, &table);
        a.delete(&row(1, 0, Some("k"), Some(1))).unwrap();
        // For the deleting transaction itself it is free at once.
        a.insert(&row(5, 0, None, Some(1))).unwrap();
        a.delete(&row(5, 0, None, Some(1))).unwrap();
        let thread = elsewhere(&store, &table, move |b| {
            let result = b.insert(&row(7, 0, None, Some(1)));
            b.commit();
            result
        });
        until_waiting(&store, waits + 1);
        end(&mut a, commit);
        let result = thread.join().unwrap();
        assert_eq!(result.is_ok(), commit, "{result:?}");
        a.check();
    }
}

#[test]
fn after_a_wait_a_locking_read_sees_the_newest_row() {
    let (_dir, store, table) = setup(4);
    let waits = store.engine().metrics().lock_waits;
    let mut a = Client::new(&store, &table);
    a.update(&row(1, 0, Some("k"), Some(1)), &row(1, 0, Some("k"), Some(100))).unwrap();
    a.delete(&row(2, 0, Some("k"), Some(2))).unwrap();
    let (sender, receiver) = mpsc::channel();
    let thread = elsewhere(&store, &table, move |b| {
        b.insert(&row(1, 9, Some("k"), Some(90))).unwrap();
        b.locking(Some(LockMode::Exclusive));
        b.begin();
        b.cursor.begin(Some(BY_B), false).unwrap();
        let mut found = b.cursor.seek(&mut b.session, Seek::First, &[], &mut b.record).unwrap();
        while found {
            let r = Row::read(&b.record);
            sender.send((r.c, r.e)).unwrap();
            found = b.cursor.next(&mut b.session, &mut b.record).unwrap();
        }
        b.commit();
    });
    until_waiting(&store, waits + 1);
    // Committed while the scan waits at row 1, ahead of it: the scan is to meet it.
    let mut c = Client::new(&store, &table);
    c.insert(&row(1, 7, Some("k"), Some(70))).unwrap();
    c.commit();
    a.commit();
    thread.join().unwrap();
    let seen: Vec<_> = receiver.into_iter().collect();
    assert_eq!(seen, [(0, Some(0)), (1, Some(100)), (1, Some(70)), (1, Some(90)), (3, Some(3))]);
}

#[test]
fn a_unique_value_that_passes_to_another_row_is_found_there() {
    let (_dir, store, table) = setup(2);
    let waits = store.engine().metrics().lock_waits;
    let mut a = Client::new(&store, &table);
    a.delete(&row(1, 0, Some("k"), Some(1))).unwrap();
    a.insert(&row(8, 0, None, Some(1))).unwrap();
    let thread = elsewhere(&store, &table, move |b| {
        b.locking(Some(LockMode::Exclusive));
        b.get(BY_E, &image_e(Some(1))).unwrap()
    });
    until_waiting(&store, waits + 1);
    a.commit();
    assert_eq!(thread.join().unwrap().unwrap().c, 8);
}

#[test]
fn locked_rows_can_be_refused_or_skipped() {
    let (_dir, store, table) = setup(3);
    let mut a = Client::new(&store, &table);
    a.locking(Some(LockMode::Exclusive));
    a.get(PRIMARY, &image_ca(1, 0)).unwrap().unwrap();
    let mut b = Client::new(&store, &table);
    b.cursor.set_mode(Some(LockMode::Exclusive), Waiting::NoWait);
    let busy = b.get(PRIMARY, &image_ca(1, 0)).unwrap_err();
    assert!(matches!(busy, Error::Engine(kv::Error::LockBusy)));
    b.cursor.set_mode(Some(LockMode::Exclusive), Waiting::SkipLocked);
    for index in [None, Some(BY_E), Some(BY_B)] {
        let seen: Vec<i64> = b.scan(index, true).unwrap().iter().map(|r| r.c).collect();
        assert_eq!(seen, [0, 2]);
    }
    b.timeout = Duration::from_millis(5);
    b.cursor.set_mode(Some(LockMode::Shared), Waiting::Wait);
    let late = b.get(PRIMARY, &image_ca(1, 0)).unwrap_err();
    assert!(matches!(late, Error::Engine(kv::Error::LockTimeout)));
    // READ COMMITTED gives back the lock of a row that did not match; REPEATABLE READ does not.
    for (isolation, free) in [(Isolation::ReadCommitted, true), (Isolation::RepeatableRead, false)] {
        b.session.rollback().unwrap();
        a.session.rollback().unwrap();
        b.isolation = isolation;
        b.cursor.set_mode(Some(LockMode::Exclusive), Waiting::Wait);
        b.get(PRIMARY, &image_ca(2, 0)).unwrap().unwrap();
        b.cursor.unlock_row(&mut b.session);
        a.cursor.set_mode(Some(LockMode::Exclusive), Waiting::NoWait);
        assert_eq!(a.get(PRIMARY, &image_ca(2, 0)).is_ok(), free);
    }
}

#[test]
fn a_write_does_not_rely_on_a_lock_that_was_given_back() {
    // The write of a row that was just read does not ask for its lock again. One given back in between must not pass for held.
    type GiveBack = fn(&mut Client);
    let ways: [GiveBack; 2] = [|b| b.cursor.unlock_row(&mut b.session), |b| b.session.rollback().unwrap()];
    for give_back in ways {
        let (_dir, store, table) = setup(1);
        let mut a = Client::new(&store, &table);
        let mut b = Client::new(&store, &table);
        b.isolation = Isolation::ReadCommitted;
        b.locking(Some(LockMode::Exclusive));
        let read = b.get(PRIMARY, &image_ca(0, 0)).unwrap().unwrap();
        give_back(&mut b);
        let (others, mine) = (row(0, 0, Some("others"), Some(1)), row(0, 0, Some("mine"), Some(2)));
        a.update(&read, &others).unwrap();
        a.commit();
        let late = b.write(&read, &mine);
        assert!(matches!(late, Err(Error::Engine(kv::Error::Conflict))), "{late:?}");
        b.session.rollback().unwrap();
        assert_eq!(a.get(PRIMARY, &image_ca(0, 0)).unwrap().unwrap(), others);
    }
}

#[test]
fn a_deadlock_has_one_victim_and_a_kill_ends_a_wait() {
    let (_dir, store, table) = setup(2);
    let waits = store.engine().metrics().lock_waits;
    let mut a = Client::new(&store, &table);
    a.locking(Some(LockMode::Exclusive));
    a.get(PRIMARY, &image_ca(0, 0)).unwrap().unwrap();
    let thread = elsewhere(&store, &table, move |b| {
        b.locking(Some(LockMode::Exclusive));
        b.get(PRIMARY, &image_ca(1, 0)).unwrap().unwrap();
        let result = b.get(PRIMARY, &image_ca(0, 0));
        b.session.rollback().unwrap();
        result
    });
    until_waiting(&store, waits + 1);
    let mine = a.get(PRIMARY, &image_ca(1, 0));
    if mine.is_err() {
        a.session.rollback().unwrap();
    }
    let other = thread.join().unwrap();
    let dead = |r: &strata_row::Result<Option<Row>>| matches!(r, Err(Error::Engine(kv::Error::Deadlock)));
    assert!(dead(&mine) != dead(&other), "{mine:?} {other:?}");
    a.session.rollback().unwrap();

    let waits = store.engine().metrics().lock_waits;
    a.get(PRIMARY, &image_ca(0, 0)).unwrap().unwrap();
    let mut b = Client::new(&store, &table);
    let switch = b.session.kill_switch();
    let thread = std::thread::spawn(move || {
        b.locking(Some(LockMode::Exclusive));
        let result = b.get(PRIMARY, &image_ca(0, 0));
        b.session.statement_rollback();
        // The next statement is not touched.
        let next = b.get(PRIMARY, &image_ca(1, 0));
        (result, next)
    });
    until_waiting(&store, waits + 1);
    switch.kill();
    let (killed, next) = thread.join().unwrap();
    assert!(matches!(killed, Err(Error::Engine(kv::Error::Interrupted))), "{killed:?}");
    assert!(next.unwrap().is_some());
}

#[test]
fn statements_and_savepoints_are_undone_alone() {
    let (_dir, store, table) = setup(1);
    let mut t = Client::new(&store, &table);
    t.insert(&row(10, 0, Some("a"), Some(10))).unwrap();
    let savepoint = t.session.savepoint();
    t.insert(&row(11, 0, Some("b"), Some(11))).unwrap();
    t.begin();
    for r in [row(12, 0, None, Some(12)), row(13, 0, None, Some(13))] {
        let bytes = r.record();
        t.cursor.insert(&mut t.session, unsafe { Record::new(&bytes) }).unwrap();
    }
    t.session.statement_rollback();
    assert_eq!(t.scan(Some(BY_E), true).unwrap().len(), 3);
    t.session.rollback_to(savepoint);
    assert_eq!(t.scan(Some(BY_E), true).unwrap().len(), 2);
    t.insert(&row(11, 1, None, Some(11))).unwrap();
    t.commit();
    assert_eq!(t.scan(None, true).unwrap().len(), 3);
    t.check();
}

/// Above the greatest key of an index begins the next index, also where the last byte of their numbers is carried.
#[test]
fn searches_end_at_the_greatest_key_of_an_index_whatever_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut def = definition(false);
    def.indexes.truncate(1);
    let greatest = image_ca(i64::MAX, i32::MAX);
    let mut last_bytes = BTreeSet::new();
    for n in 0..=u8::MAX {
        let name = format!("t{n}");
        store.create_table(&name, &def, 1).unwrap();
        let table = store.open_table(&name, def.clone()).unwrap();
        last_bytes.insert(table.state.meta.clustered_id().0 as u8);
        let mut t = Client::new(&store, &table);
        for is_there in [false, true] {
            for lock in [None, Some(LockMode::Exclusive)] {
                for seek in [Seek::Gt, Seek::Ge, Seek::Le, Seek::LastInPrefix, Seek::Last] {
                    t.locking(lock).begin();
                    t.cursor.begin(Some(PRIMARY), false).unwrap();
                    let found = t.cursor.seek(&mut t.session, seek, &greatest, &mut t.record).unwrap();
                    assert_eq!(found, is_there && seek != Seek::Gt, "{name} {lock:?} {seek:?}");
                    assert!(!found || !t.cursor.next(&mut t.session, &mut t.record).unwrap());
                    t.session.statement_end();
                }
            }
            if !is_there {
                t.insert(&row(i64::MAX, i32::MAX, None, None)).unwrap();
            }
        }
        t.commit();
    }
    assert_eq!(last_bytes.len(), 256);
}

/// As a trigger does that sets a savepoint and goes back to it.
#[test]
fn a_savepoint_within_a_statement_does_not_keep_what_came_before_it() {
    let (_dir, store, table) = setup(1);
    let mut t = Client::new(&store, &table);
    t.insert(&row(10, 0, Some("a"), Some(10))).unwrap();
    t.begin();
    let insert = |t: &mut Client, number: i32| {
        let bytes = row(number.into(), 0, None, Some(number)).record();
        t.cursor.insert(&mut t.session, unsafe { Record::new(&bytes) }).unwrap();
    };
    insert(&mut t, 11);
    let savepoint = t.session.savepoint();
    insert(&mut t, 12);
    t.session.rollback_to(savepoint);
    insert(&mut t, 13);
    t.session.statement_rollback();
    assert_eq!(t.scan(Some(BY_E), true).unwrap().len(), 2);
    t.commit();
    t.check();
}

#[test]
fn a_scan_does_not_meet_rows_that_it_moves_ahead() {
    let (_dir, store, table) = setup(20);
    let mut t = Client::new(&store, &table);
    t.locking(Some(LockMode::Exclusive));
    t.begin();
    t.cursor.begin(Some(BY_E), false).unwrap();
    let mut moved = 0;
    let mut found = t.cursor.seek(&mut t.session, Seek::First, &[], &mut t.record).unwrap();
    while found {
        let old = Row::read(&t.record);
        let (old_bytes, new) = (old.record(), Row { e: old.e.map(|e| e + 1000), ..old.clone() });
        let new_bytes = new.record();
        t.cursor
            .update(&mut t.session, unsafe { Record::new(&old_bytes) }, unsafe { Record::new(&new_bytes) })
            .unwrap();
        moved += 1;
        assert!(moved <= 20);
        found = t.cursor.next(&mut t.session, &mut t.record).unwrap();
    }
    assert_eq!(moved, 20);
    t.session.statement_end();
    t.commit();
    t.check();
}

#[test]
fn concurrent_transfers_keep_indexes_and_rows_together() {
    let (_dir, store, table) = setup(8);
    let threads: Vec<_> = (0..4u64)
        .map(|seed| {
            elsewhere(&store, &table, move |t| {
                t.locking(Some(LockMode::Exclusive));
                let mut random = seed * 7919 + 1;
                let mut next = |n: u64| {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (random >> 33) % n
                };
                for _ in 0..150 {
                    let (c, e) = (next(8) as i64, next(12) as i32);
                    let step = (|| -> strata_row::Result<()> {
                        let Some(old) = t.get(PRIMARY, &image_ca(c, 0))? else {
                            return t.insert(&row(c, 0, Some("n"), Some(e)));
                        };
                        let old_bytes = old.record();
                        let old_record = unsafe { Record::new(&old_bytes) };
                        if e % 5 == 0 {
                            return t.cursor.delete(&mut t.session, old_record);
                        }
                        let new = Row { e: Some(e), b: Some(format!("v{e}")), ..old.clone() };
                        let new_bytes = new.record();
                        t.cursor.update(&mut t.session, old_record, unsafe { Record::new(&new_bytes) }).map(|_| ())
                    })();
                    match step {
                        Ok(()) => t.commit(),
                        Err(Error::Duplicate(_)) if e % 2 == 0 => t.commit(),
                        Err(Error::Duplicate(_) | Error::Engine(kv::Error::Deadlock)) => t.session.rollback().unwrap(),
                        Err(e) => panic!("{e:?}"),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    Client::new(&store, &table).check();
}

/// Everybody counts the rows of a group with a lock and adds one while there are fewer than a limit: more would be a phantom.
#[test]
fn nobody_adds_to_what_another_has_counted() {
    const LIMIT: usize = 6;
    for index in [BY_B, PRIMARY] {
        let (_dir, store, table) = setup(0);
        let threads: Vec<_> = (0..4i32)
            .map(|id| {
                elsewhere(&store, &table, move |t| {
                    let mut added = 0;
                    for n in 0..120i32 {
                        let group = n % 8;
                        let name = format!("g{group}");
                        let image = if index == BY_B { image_b(Some(&name), 20) } else { image_c(i64::from(group)) };
                        let work = |t: &mut Client| -> strata_row::Result<bool> {
                            t.begin();
                            t.locking(Some(if n % 2 == 0 { LockMode::Exclusive } else { LockMode::Shared }));
                            t.cursor.begin(Some(index), false)?;
                            let mut count = 0;
                            let mut found = t.cursor.seek(&mut t.session, Seek::Exact, &image, &mut t.record)?;
                            while found {
                                count += 1;
                                found = t.cursor.next_same(&mut t.session, &mut t.record)?;
                            }
                            if count < LIMIT {
                                t.insert(&row(i64::from(group), id * 1000 + n, Some(&name), None))?;
                            }
                            Ok(count < LIMIT)
                        };
                        match work(t) {
                            Ok(did) => {
                                t.session.statement_end();
                                t.commit();
                                added += usize::from(did);
                            }
                            Err(Error::Engine(kv::Error::Deadlock)) => t.session.rollback().unwrap(),
                            Err(e) => panic!("{e}"),
                        }
                    }
                    added
                })
            })
            .collect();
        let added: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        let mut t = Client::new(&store, &table);
        let rows = t.scan(None, true).unwrap();
        assert_eq!(rows.len(), added);
        for group in 0..8 {
            let count = rows.iter().filter(|r| r.c == group).count();
            assert!(count <= LIMIT, "group {group} has {count} rows");
        }
        assert!(store.engine().locks().snapshot().is_empty());
    }
}

/// Own writes over a snapshot whose rows others have moved in their indexes meanwhile.
#[test]
fn an_own_row_is_met_once_in_each_index_whatever_the_snapshot_shows() {
    let (_dir, store, table) = setup(5);
    let indexes = [None, Some(BY_B), Some(BY_E), Some(BY_B_A)];
    let sorted = |client: &mut Client, index| {
        let mut rows = client.scan(index, true).unwrap();
        rows.sort();
        rows
    };
    let was = |c: i64| row(c, 0, Some("k"), Some(c as i32));
    let moved = |c: i64| row(c, 0, Some("z"), Some(100 + c as i32));
    let mut rr = Client::new(&store, &table);
    let mut writer = Client::new(&store, &table);
    let snapshot = sorted(&mut rr, None);
    for c in [1, 2] {
        writer.update(&was(c), &moved(c)).unwrap();
    }
    // A unique value passes on to another row.
    writer.insert(&row(9, 0, Some("n"), Some(2))).unwrap();
    writer.delete(&was(3)).unwrap();
    writer.commit();
    let mark = rr.session.savepoint();
    // No indexed column changes; one changes back; a row is inserted anew; one is deleted.
    let own = Row { d: Some(b"own".to_vec()), ..moved(1) };
    rr.update(&moved(1), &own).unwrap();
    rr.insert(&row(3, 0, Some("q"), Some(3))).unwrap();
    rr.delete(&moved(2)).unwrap();
    rr.delete(&was(4)).unwrap();
    let expected = vec![was(0), own.clone(), row(3, 0, Some("q"), Some(3))];
    for index in indexes {
        assert_eq!(sorted(&mut rr, index), expected, "{index:?}");
    }
    assert_eq!(rr.get(BY_E, &image_e(Some(1))).unwrap(), None);
    assert_eq!(rr.get(BY_E, &image_e(Some(101))).unwrap(), Some(own.clone()));
    assert_eq!(rr.get(BY_E, &image_e(Some(2))).unwrap(), None, "the deleted row had it");
    let again = Row { e: Some(1), ..own };
    rr.update(&expected[1], &again).unwrap();
    for index in indexes {
        assert_eq!(sorted(&mut rr, index)[1], again, "{index:?}");
    }
    rr.session.rollback_to(mark);
    for index in indexes {
        assert_eq!(sorted(&mut rr, index), snapshot, "{index:?}");
    }
    rr.update(&moved(1), &again).unwrap();
    for index in indexes {
        assert_eq!(sorted(&mut rr, index)[1], again, "{index:?}");
    }
    rr.commit();
    rr.check();
}

/// A row that others have changed and changed back counts as changed; one that they have not touched does not, however much
/// else they have committed.
#[test]
fn an_own_row_is_met_once_also_where_others_have_changed_it_back() {
    let (_dir, store, table) = setup(3);
    let mut rr = Client::new(&store, &table);
    let mut writer = Client::new(&store, &table);
    let was = |c: i64| row(c, 0, Some("k"), Some(c as i32));
    let moved = row(1, 0, Some("z"), Some(101));
    assert_eq!(rr.scan(None, true).unwrap().len(), 3);
    for (from, to) in [(&was(1), &moved), (&moved, &was(1))] {
        writer.update(from, to).unwrap();
        writer.commit();
    }
    writer.insert(&row(7, 0, Some("n"), Some(7))).unwrap();
    writer.commit();
    writer.delete(&row(7, 0, Some("n"), Some(7))).unwrap();
    writer.commit();
    store.engine().flush().unwrap();
    let own = |c: i64| Row { d: Some(b"own".to_vec()), ..was(c) };
    for c in [1, 2] {
        rr.update(&was(c), &own(c)).unwrap();
    }
    rr.insert(&was(7)).unwrap();
    let mut expected = vec![was(0), own(1), own(2), was(7)];
    expected.sort();
    for index in [None, Some(BY_B), Some(BY_E), Some(BY_B_A)] {
        let mut rows = rr.scan(index, true).unwrap();
        rows.sort();
        assert_eq!(rows, expected, "{index:?}");
    }
    rr.commit();
    rr.check();
}

/// Once the store has stopped, no statement reads or writes: what is in memory may be more than will ever be durable, and
/// less than the server has decided. A scan that runs ends.
#[test]
fn a_stopped_store_serves_nobody() {
    use strata_engine::io::{FaultKind, MemDisk};
    let disk = MemDisk::new();
    let options = kv::Options { disk: Arc::new(disk.clone()), ..kv::Options::default() };
    let store = Store::open(std::path::Path::new("/store"), options).unwrap();
    let table = made(&store, "./t/t", definition(false));
    let mut writer = Client::new(&store, &table);
    let mut reader = Client::new(&store, &table);
    writer.insert(&row(1, 0, Some("k"), None)).unwrap();
    writer.commit();
    assert_eq!(reader.scan(None, true).unwrap().len(), 1);
    reader.session.check_killed().unwrap();
    writer.insert(&row(2, 0, Some("k"), None)).unwrap();
    // The write of the log succeeds, its sync does not: the commit is visible when that is known.
    disk.fail_after(2, FaultKind::Other);
    let failed = writer.session.commit().unwrap_err();
    assert!(failed.to_string().contains("injected fault"), "{failed}");
    assert!(matches!(reader.session.check_killed(), Err(Error::Engine(kv::Error::Poisoned(_)))));
    for client in [&mut reader, &mut writer] {
        client.session.rollback().unwrap();
        let refused = client.session.statement_begin(Isolation::RepeatableRead, Duration::ZERO);
        assert!(matches!(refused, Err(Error::Engine(kv::Error::Poisoned(_)))), "{refused:?}");
    }
}

#[test]
fn a_snapshot_from_before_the_end_of_a_fill_is_refused() {
    for rolled_back in [false, true] {
        let (_dir, store, table) = setup(0);
        let mut snapshot = Client::new(&store, &table);
        let mut filler = Client::new(&store, &table);
        filler.cursor.set_fills(true);
        filler.insert(&row(1, 0, None, None)).unwrap();
        snapshot.session.consistent_snapshot(Isolation::RepeatableRead);
        end(&mut filler, !rolled_back);
        match snapshot.scan(None, true) {
            Err(Error::TableChanged(_)) => assert!(!rolled_back),
            other => assert!(rolled_back && other.unwrap().is_empty()),
        }
        snapshot.session.rollback().unwrap();
        assert_eq!(snapshot.scan(None, true).unwrap().len(), usize::from(!rolled_back));
        // Afterwards it is a table like any other.
        filler.cursor.set_fills(false);
        filler.insert(&row(2, 0, None, None)).unwrap();
        snapshot.scan(None, true).unwrap();
        filler.commit();
        assert_eq!(snapshot.scan(None, true).unwrap().len(), usize::from(!rolled_back));
    }
}

#[test]
fn a_kill_ends_the_passage_of_dead_rows_and_maintenance() {
    let (_dir, store, table) = setup(3000);
    let _kept = store.engine().read_point();
    let mut deleting = Client::new(&store, &table);
    assert_eq!(deleting.delete_all(), 3000);
    deleting.commit();
    for forward in [true, false] {
        let mut t = Client::new(&store, &table);
        assert!(t.scan(None, forward).unwrap().is_empty());
        t.begin();
        t.session.kill_switch().kill();
        t.cursor.begin(None, false).unwrap();
        let mode = if forward { Seek::First } else { Seek::Last };
        let result = t.cursor.seek(&mut t.session, mode, &[], &mut t.record);
        assert!(matches!(result, Err(Error::Interrupted | Error::Engine(kv::Error::Interrupted))), "{result:?}");
    }
    let mut t = Client::new(&store, &table);
    t.begin();
    t.session.kill_switch().kill();
    let is_killed = |result| matches!(result, Err(Error::Interrupted | Error::Engine(kv::Error::Interrupted)));
    assert!(is_killed(table.optimize(&t.session, &|_| ())));
    assert!(is_killed(table.analyze(&t.session)));
    assert!(is_killed(table.check(&t.session, true, None, &mut |line| panic!("{line}")).map(drop)));
}

/// The entries of an index on a virtual column are those of what the column is computed to be.
#[test]
fn check_computes_virtual_columns() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut def = definition(false);
    def.columns[4].is_virtual = true;
    let table = made(&store, "./db/v", def);
    let mut client = Client::new(&store, &table);
    client.begin();
    for c in 0..20 {
        client.insert(&row(c, 0, Some("b"), Some(c as i32 * 2))).unwrap();
    }
    client.session.statement_end();
    client.commit();
    let check = |of: &dyn Fn(i64) -> Option<i32>| {
        let mut lines = Vec::new();
        let mut compute = |record: &mut [u8]| {
            let c = i64::from_le_bytes(record[26..34].try_into().unwrap());
            let Some(e) = of(c) else { return false };
            record[0] &= !4;
            record[44..48].copy_from_slice(&e.to_le_bytes());
            true
        };
        let good = table.check(&client.session, false, Some(&mut compute), &mut |line| lines.push(line.to_owned()));
        assert_eq!(good.unwrap(), lines.is_empty());
        lines
    };
    assert_eq!(check(&|c| Some(c as i32 * 2)), Vec::<String>::new());
    let other = check(&|c| Some(if c == 7 { 1 } else { c as i32 * 2 }));
    assert!(other.len() == 1 && other[0].contains("'e': entry 8 is not the one its row has"), "{other:?}");
    let fails = check(&|c| (c != 3).then_some(c as i32 * 2));
    assert!(fails.len() == 1 && fails[0].contains("cannot be computed"), "{fails:?}");
    client.check();
}

/// The other one has announced the row that it inserts, and waits for the reader's lock of its key. The reader's scan does not wait for
/// it in turn, nor look again and again: nothing can come in there before the reader ends.
#[test]
fn a_locking_scan_passes_a_key_that_waits_for_its_own_lock() {
    for index in [None, Some(PRIMARY), Some(BY_E)] {
        let (_dir, store, table) = setup(2);
        let waits = store.engine().metrics().lock_waits;
        let mut a = Client::new(&store, &table);
        let looks = std::sync::atomic::AtomicU64::new(0);
        let is_stuck = move || looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 100_000;
        a.session = strata_row::session::Session::new(&store, Box::new(is_stuck));
        a.locking(Some(LockMode::Exclusive));
        let (by, image) = if index == Some(BY_E) { (BY_E, image_e(Some(50))) } else { (PRIMARY, image_ca(5, 0)) };
        assert_eq!(a.get(by, &image).unwrap(), None);
        let thread = elsewhere(&store, &table, |b| {
            let result = b.insert(&row(5, 0, None, Some(50)));
            b.commit();
            result
        });
        until_waiting(&store, waits + 1);
        assert_eq!(a.scan(index, true).unwrap().len(), 2, "{index:?}");
        assert_eq!(a.scan(index, false).unwrap().len(), 2, "{index:?}");
        a.commit();
        thread.join().unwrap().unwrap();
        assert_eq!(a.scan(index, true).unwrap().len(), 3);
        a.commit();
    }
}

/// What a user's prepared transaction has looked for in vain, by a whole unique key, others may bring in; not what it has brought in or taken
/// away itself since, and nothing at SERIALIZABLE.
#[test]
fn a_prepared_transaction_gives_up_keys_that_are_not_there() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        for mode in [LockMode::Shared, LockMode::Exclusive] {
            let (_dir, store, table) = setup(2);
            let mut a = Client::new(&store, &table);
            a.isolation = isolation;
            a.locking(Some(mode));
            assert_eq!(a.get(PRIMARY, &image_ca(5, 0)).unwrap(), None);
            assert_eq!(a.get(BY_E, &image_e(Some(60))).unwrap(), None);
            assert_eq!(a.get(PRIMARY, &image_ca(7, 0)).unwrap(), None);
            assert_eq!(a.get(BY_E, &image_e(Some(80))).unwrap(), None);
            assert_eq!(a.get(PRIMARY, &image_ca(9, 0)).unwrap(), None);
            assert!(a.get(PRIMARY, &image_ca(1, 0)).unwrap().is_some());
            a.session.statement_end();
            a.insert(&row(7, 0, None, None)).unwrap();
            a.insert(&row(8, 0, None, Some(80))).unwrap();
            a.insert(&row(9, 0, None, None)).unwrap();
            a.delete(&row(9, 0, None, None)).unwrap();
            let mut b = Client::new(&store, &table);
            b.timeout = Duration::ZERO;
            let is_timeout = |error: &Error| matches!(error, Error::Engine(kv::Error::LockTimeout));
            let mut is_free = |c, e| {
                let inserted = b.insert(&row(c, 0, None, e));
                b.session.rollback().unwrap();
                match inserted {
                    Ok(()) => true,
                    Err(error) if is_timeout(&error) => false,
                    Err(error) => panic!("{error}"),
                }
            };
            let keys = [(5, None), (6, Some(60)), (7, None), (88, Some(80)), (9, None)];
            assert_eq!(keys.map(|(c, e)| is_free(c, e)), [false; 5]);
            a.session.prepare(b"xid", true).unwrap();
            let absent = isolation == Isolation::RepeatableRead;
            assert_eq!(keys.map(|(c, e)| is_free(c, e)), [absent, absent, false, false, false]);
            b.locking(Some(LockMode::Exclusive));
            let exists = b.get(PRIMARY, &image_ca(1, 0)).unwrap_err();
            assert!(is_timeout(&exists), "a row that is there stays locked: {exists}");
            b.session.rollback().unwrap();
            a.session.rollback().unwrap();
        }
    }
}
