//! Foreign keys between several sessions, and over crashes: never is there a row without its parent, and who waits in a circle gets
//! an error.

use crate::common::related::*;
use crate::common::values::V;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use strata_engine::io::MemDisk;
use strata_row::error::Error;
use strata_row::foreign::Reference;
use strata_row::isolation::Isolation;
use strata_row::kv;
use strata_row::store::Store;

const ID: &str = "PRIMARY (id)";

/// Indexes of the parent: the values unique or not, alone or followed by others.
const PARENT_INDEXES: &[&str] = &["k unique (k)", "k (k)", "k (k, id)", "k (k desc)"];

fn pair(index: &str, actions: &str) -> Db {
    let mut db = Db::new();
    define(&mut db, index, actions);
    db
}

fn define(db: &mut Db, index: &str, actions: &str) {
    db.table("p", &["id int4", "k int4 null"], &[ID, index]);
    db.table("c", &["id int4", "k int4 null"], &[ID, "k (k)"]);
    db.key(&format!("f: c (k) -> p (k) {actions}"));
}

/// Waits until somebody waits for a lock, without sleeping.
fn until_waiting(store: &Store, waits: u64) {
    let begun = Instant::now();
    while store.engine().metrics().lock_waits < waits {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody waits");
        thread::yield_now();
    }
}

/// `first` runs lines and stays open; `second` runs one that has to wait, and ends as told once the first ends with `end`.
fn wait(db: &Db, isolation: Isolation, first: &str, second: &'static str, end: &str, expected: &str) {
    let waits = db.store.engine().metrics().lock_waits;
    let mut one = db.conn();
    one.isolation = isolation;
    one.script(first);
    let mut other = db.conn();
    other.isolation = isolation;
    let thread = thread::spawn(move || {
        let outcome = other.run(second);
        other.commit();
        outcome
    });
    until_waiting(&db.store, waits + 1);
    one.script(end);
    assert_eq!(thread.join().unwrap(), expected, "{first:?}, {second}, {end}");
    one.commit();
    db.check();
}

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

#[test]
fn a_child_waits_for_who_writes_its_parent() {
    for isolation in LEVELS {
        for index in PARENT_INDEXES {
            let db = || {
                let db = pair(index, "");
                db.conn().script("insert p 1 7\n insert p 2 9\n commit");
                db
            };
            let insert = "insert c 1 8";
            wait(&db(), isolation, "insert p 3 8", insert, "commit", "ok");
            wait(&db(), isolation, "insert p 3 8", insert, "rollback", "no parent f");
            wait(&db(), isolation, "update p 1 8", insert, "commit", "ok");
            wait(&db(), isolation, "update p 1 8", insert, "rollback", "no parent f");
            let insert = "insert c 1 7";
            wait(&db(), isolation, "delete p 1", insert, "rollback", "ok");
            wait(&db(), isolation, "delete p 1", insert, "commit", "no parent f");
            wait(&db(), isolation, "update p 1 8", insert, "rollback", "ok");
            wait(&db(), isolation, "update p 1 8", insert, "commit", "no parent f");
            let update = "update c 5 7";
            let db = db();
            db.conn().script("insert c 5 NULL\n commit");
            wait(&db, isolation, "delete p 1", update, "commit", "no parent f");
        }
    }
}

#[test]
fn a_parent_waits_for_who_writes_its_children() {
    for isolation in LEVELS {
        for index in PARENT_INDEXES {
            for (actions, with_child) in [("", "referenced f"), ("delete cascade update cascade", "ok")] {
                let db = || {
                    let db = pair(index, actions);
                    db.conn().script("insert p 1 7\n insert p 2 9\n insert c 4 9\n commit");
                    db
                };
                for change in ["delete p 1", "update p 1 3", "update p 1 NULL"] {
                    wait(&db(), isolation, "insert c 1 7", change, "commit", with_child);
                    wait(&db(), isolation, "insert c 1 7", change, "rollback", "ok");
                    wait(&db(), isolation, "update c 4 7", change, "commit", with_child);
                }
                // The child goes, or is another's: the parent row is free once that is certain.
                for change in ["delete p 2", "update p 2 3"] {
                    for away in ["delete c 4", "update c 4 NULL"] {
                        wait(&db(), isolation, away, change, "commit", "ok");
                        wait(&db(), isolation, away, change, "rollback", with_child);
                    }
                }
            }
        }
    }
}

/// Who replaces a parent locks its name. A child that has waited for that finds the parent as it is now.
#[test]
fn a_parent_that_is_replaced_is_looked_at_again() {
    let db = pair("k unique (k)", "");
    db.conn().script("insert p 1 7\n commit");
    let (waits, name) = (db.store.engine().metrics().lock_waits, path("p"));
    let mut child = db.conn();
    child.script("insert c 9 7\n delete c 9\n commit");
    let mut ddl = db.conn();
    ddl.session.statement_begin(Isolation::RepeatableRead, Duration::from_secs(20)).unwrap();
    ddl.session.lock_name(&name).unwrap();
    let thread = thread::spawn(move || {
        let outcomes = [child.run("insert c 1 7"), child.run("insert c 2 8")];
        child.commit();
        outcomes
    });
    until_waiting(&db.store, waits + 1);
    db.store.drop_table(&name).unwrap();
    let columns = ["id int4", "x int4 null", "k int4 null"];
    let def = crate::common::values::table(&columns, &[ID, "x (x)", "k (k)"]);
    db.store.create_table(&name, &def, 0).unwrap();
    let mut defs = db.defs.clone();
    defs.insert("p".to_owned(), def);
    Conn::new(&db.store, &defs).script("insert p 1 7 8\n commit");
    ddl.commit();
    assert_eq!(thread.join().unwrap(), ["no parent f", "ok"]);
    check(&db.store, &defs);
    // And a child keeps it from being replaced.
    let mut child = Conn::new(&db.store, &defs);
    child.script("insert c 3 8");
    ddl.session.statement_begin(Isolation::RepeatableRead, Duration::ZERO).unwrap();
    assert!(ddl.session.lock_name(&name).is_err());
    child.commit();
    ddl.session.lock_name(&name).unwrap();
}

/// Of the rows that were looked at on the way to a parent only that one stays locked.
#[test]
fn a_parent_that_has_gone_is_not_locked() {
    let db = pair("k (k)", "");
    db.conn().script("insert p 1 7\n insert p 2 7\n commit");
    let waits = db.store.engine().metrics().lock_waits;
    let mut one = db.conn();
    one.script("delete p 1");
    let mut other = db.conn();
    let thread = thread::spawn(move || {
        assert_eq!(other.run("insert c 1 7"), "ok");
        other
    });
    until_waiting(&db.store, waits + 1);
    one.script("commit");
    let mut other = thread.join().unwrap();
    one.timeout = Duration::ZERO;
    one.script("insert p 1 9\n delete p 2 -> lock wait timeout\n commit");
    other.commit();
    db.check();
}

#[test]
fn a_kill_ends_the_wait_for_a_parent() {
    let db = pair("k unique (k)", "");
    let waits = db.store.engine().metrics().lock_waits;
    let mut one = db.conn();
    one.script("insert p 1 7");
    let mut other = db.conn();
    let kill = other.session.kill_switch();
    let thread = thread::spawn(move || {
        let outcome = other.run("insert c 1 7");
        (outcome, other.run("show c"))
    });
    until_waiting(&db.store, waits + 1);
    kill.kill();
    assert_eq!(thread.join().unwrap(), ("interrupted".to_owned(), String::new()));
    one.script("commit");
    db.check();
}

/// With snapshot isolation a child row that has changed since the snapshot is not changed by a cascade; a parent that has come since is
/// one nevertheless.
#[test]
fn snapshot_isolation_holds_for_cascades() {
    let db = pair("k unique (k)", "delete cascade");
    let (mut old, mut other) = (db.conn(), db.conn());
    old.script("insert p 1 7\n insert p 3 9\n insert c 1 7\n insert c 3 9\n commit");
    old.session.set_snapshot_isolation(true);
    old.script("show p -> 1 7, 3 9");
    other.script("update c 1 NULL\n update c 1 7\n insert c 2 7\n insert p 2 8\n commit");
    old.script("insert c 5 8\n delete p 3\n delete p 1 -> record changed since the snapshot\n show c -> 1 7, 5 8");
    old.session.rollback().unwrap();
    db.check();
}

#[test]
fn circles_of_waiting_are_errors() {
    for index in PARENT_INDEXES {
        let db = pair(index, "");
        db.conn().script("insert p 1 7\n insert p 2 8\n commit");
        let waits = db.store.engine().metrics().lock_waits;
        let (mut one, mut other) = (db.conn(), db.conn());
        one.script("insert c 1 7");
        other.script("insert c 2 7");
        let thread = thread::spawn(move || {
            let outcome = other.run("update p 1 3");
            other.session.rollback().unwrap();
            outcome
        });
        until_waiting(&db.store, waits + 1);
        let mine = one.run("update p 1 4");
        one.session.rollback().unwrap();
        let both = [mine, thread.join().unwrap()];
        assert!(both.iter().any(|outcome| outcome.contains("deadlock")), "{both:?}");
        db.check();
    }
}

/// Sessions that bring children in while others take the parents away.
#[test]
fn nobody_is_left_without_parent() {
    const THREADS: u64 = 4;
    const STATEMENTS: u64 = 250;
    for (round, index) in PARENT_INDEXES.iter().enumerate() {
        for actions in ["", "delete cascade update cascade", "delete null update null"] {
            let mut db = pair(index, actions);
            db.table("g", &["id int4", "c int4 null"], &[ID, "c (c)"]);
            db.key("g: g (c) -> c (id) delete cascade update null");
            let done = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    let (mut conn, done) = (db.conn(), done.clone());
                    conn.isolation = LEVELS[(number as usize + round) % LEVELS.len()];
                    thread::spawn(move || {
                        let mut state = number * 7919 + round as u64 + 1;
                        let mut next = |n: u64| {
                            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                            (state >> 33) % n
                        };
                        for _ in 0..STATEMENTS {
                            let (id, k) = (next(6) as i32, next(4) as i64);
                            let table = ["p", "c", "g"][next(3) as usize];
                            let row = |id: i32| {
                                let column = if table == "g" { "c" } else { "k" };
                                crate::common::values::values([("id", i64::from(id).into()), (column, V::Int(k))])
                            };
                            let result = match next(4) {
                                0 => conn.delete(table, id).map(drop),
                                1 => conn.at(table, id, |_| Fate::Becomes(row(next(6) as i32))).map(drop),
                                _ => conn.insert(table, &row(id)),
                            };
                            match result {
                                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                                Err(Error::NoReferencedRow(_) | Error::RowIsReferenced(_) | Error::Duplicate(_)) => {}
                                Err(Error::Engine(kv::Error::Deadlock)) => {
                                    conn.session.rollback().unwrap();
                                    continue;
                                }
                                Err(other) => panic!("{other}"),
                            }
                            match next(3) {
                                0 => conn.commit(),
                                1 if next(3) == 0 => conn.session.rollback().unwrap(),
                                _ => {}
                            }
                        }
                        conn.commit();
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(done.load(Ordering::Relaxed) > THREADS * STATEMENTS / 10);
            db.check();
        }
    }
}

/// After a crash at whatever moment there is all of a transaction with its cascades, or nothing.
#[test]
fn cascades_are_part_of_their_transaction_after_a_crash() {
    let disk = MemDisk::new();
    let images = Arc::new(Mutex::new(Vec::new()));
    let (taken, of) = (images.clone(), disk.clone());
    let hook: CrashHook = Arc::new(move |_| {
        let mut taken = taken.lock().unwrap();
        let seed = taken.len() as u64;
        taken.extend((seed..seed + 4).map(|seed| of.crash(seed)));
    });
    let mut db = Db::watched(disk, hook);
    define(&mut db, "k unique (k)", "delete cascade update cascade");
    let mut conn = db.conn();
    images.lock().unwrap().clear();
    let mut before = conn.run("show c");
    let script = [
        "insert p 1 7\n insert p 2 8\n insert c 1 7\n insert c 2 7\n insert c 3 8",
        "update p 1 9",
        "delete p 2\n insert c 4 9",
        "delete p 1",
    ];
    for (number, lines) in script.into_iter().enumerate() {
        conn.script(lines);
        let after = conn.run("show c");
        match number % 2 {
            0 => conn.commit(),
            _ => {
                conn.session.prepare(b"xid", true).unwrap();
                conn.commit();
            }
        }
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() >= 8, "{}", images.len());
        for image in images {
            let store = open(&image);
            let is_prepared = !store.engine().prepared().is_empty();
            let found = Conn::new(&store, &db.defs).run("show c");
            assert!(found == before || !is_prepared && found == after, "{found}, neither {before} nor {after}");
            if is_prepared {
                assert!(store.engine().commit_prepared(b"xid").unwrap());
                assert_eq!(Conn::new(&store, &db.defs).run("show c"), after);
            }
            check(&store, &db.defs);
        }
        let store = open(&db.disk.crash(number as u64));
        assert_eq!(Conn::new(&store, &db.defs).run("show c"), after, "an acknowledged commit");
        before = after;
    }
}

/// A prepared transaction keeps the parents of its rows also after a restart, of which the shared locks do not survive.
#[test]
fn a_prepared_child_keeps_its_parent() {
    for index in PARENT_INDEXES {
        for commit in [true, false] {
            let db = pair(index, "");
            let mut conn = db.conn();
            conn.script("insert p 1 7\n insert p 2 8\n insert c 2 8\n commit\n insert c 1 7\n delete c 2");
            conn.session.prepare(b"xid", true).unwrap();
            let image = db.disk.crash(1);
            let impatient = |store: &Arc<Store>| {
                let mut conn = Conn::new(store, &db.defs);
                conn.timeout = Duration::ZERO;
                for change in ["delete p 1", "update p 1 3", "delete p 2"] {
                    assert_eq!(conn.run(change), "lock wait timeout", "{index}: {change}");
                }
                conn.script("insert p 3 4\n insert c 3 4\n delete c 3\n delete p 3\n commit");
            };
            impatient(&db.store);
            let store = open(&image);
            assert!(store.engine().has_recovered() && !db.store.engine().has_recovered());
            impatient(&store);
            assert!(match commit {
                true => store.engine().commit_prepared(b"xid").unwrap(),
                false => store.engine().rollback_prepared(b"xid").unwrap(),
            });
            assert!(!store.engine().has_recovered());
            let mut conn = Conn::new(&store, &db.defs);
            let (first, second) = if commit { ("referenced f", "ok") } else { ("ok", "referenced f") };
            assert_eq!([conn.run("delete p 1"), conn.run("delete p 2")], [first, second]);
            conn.commit();
            check(&store, &db.defs);
        }
    }
}

/// And one that has taken a parent away keeps children from coming.
#[test]
fn a_prepared_parent_is_waited_for() {
    for index in PARENT_INDEXES {
        let db = pair(index, "delete cascade");
        let mut conn = db.conn();
        conn.script("insert p 1 7\n insert c 1 7\n insert c 2 7\n commit\n delete p 1\n insert p 2 8");
        conn.session.prepare(b"xid", true).unwrap();
        let store = open(&db.disk.crash(1));
        let mut conn = Conn::new(&store, &db.defs);
        conn.timeout = Duration::ZERO;
        for insert in ["insert c 3 7", "insert c 3 8", "delete c 1"] {
            assert_eq!(conn.run(insert), "lock wait timeout", "{index}: {insert}");
        }
        conn.script("commit");
        assert!(store.engine().commit_prepared(b"xid").unwrap());
        conn.script("show c ->\n insert c 3 7 -> no parent f\n insert c 3 8\n commit");
        check(&store, &db.defs);
    }
}

const BACKUP: &str = "#sql-backup-1-2";

/// Between the two renames by which a copy takes the place of a child, the child's keys hold by its former name, and refuse whatever
/// they would do otherwise.
#[test]
fn a_child_that_was_set_aside_keeps_its_parents() {
    for actions in ["", "delete cascade update cascade", "delete null update null"] {
        for comes_back in [true, false] {
            let db = pair("k unique (k)", actions);
            let mut conn = db.conn();
            conn.script("insert p 1 7\n insert p 2 8\n insert c 1 7\n commit");
            db.store.rename_table(&path("c"), &path(BACKUP)).unwrap();
            conn.script(
                "delete p 1 -> referenced f\n update p 1 9 -> referenced f\n update p 2 9\n delete p 2\n rollback",
            );
            let related = db.store.catalog().related(&path("p")).unwrap().get().unwrap();
            let names = |key: &Arc<Reference>| (key.child.clone(), key.called.clone());
            assert_eq!(related.children.iter().map(names).collect::<Vec<_>>(), [(path(BACKUP), path("c"))]);
            match comes_back {
                true => db.store.rename_table(&path(BACKUP), &path("c")).unwrap(),
                false => db.store.drop_table(&path(BACKUP)).unwrap(),
            }
            let expected = if comes_back && actions.is_empty() { "referenced f" } else { "ok" };
            assert_eq!(conn.run("delete p 1"), expected, "{actions}");
            conn.commit();
        }
    }
}
