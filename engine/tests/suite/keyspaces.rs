//! Keyspaces: names and their durability, drops beside readers and writers, crashes and failures of the disk at every operation
//! of a creation and a drop.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::{DIR, OnFailure, hooked, new_store, open, options, within};
use parking_lot::Mutex;
use strata_engine::io::{FaultKind, MemDisk};
use strata_engine::layer::IndexId;
use strata_engine::{Engine, Error, Isolation, Keyspace, Result};

fn names(engine: &Engine) -> Vec<String> {
    engine.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect()
}

fn rows(engine: &Engine, keyspace: &Keyspace) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    engine.snapshot().iter(keyspace).map(|row| row.map(|(key, value)| (text(&key), text(&value))).unwrap()).collect()
}

/// What a read of a value at all finds.
fn is_gone<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::NoKeyspace(name)) if name == "users")
}

#[test]
fn keyspaces_are_found_again() {
    let (disk, engine) = new_store();
    assert!(engine.find_keyspace("users").is_none() && engine.keyspaces().is_empty());
    let users = engine.keyspace("users").unwrap();
    assert_eq!(engine.keyspace("users").unwrap(), users);
    let mails = engine.keyspace("mails").unwrap();
    assert!(users.id() != mails.id() && users.id() > IndexId::KEYSPACES.0);
    engine.put(&users, "a", "user").unwrap();
    engine.put(&mails, "a", "mail").unwrap();
    let killed = disk.crash(1);
    engine.close().unwrap();
    drop(engine);
    for image in [killed, disk] {
        let engine = open(&image).unwrap();
        assert_eq!(names(&engine), ["mails", "users"]);
        let found = engine.keyspace("users").unwrap();
        assert_eq!((found.id(), found.name()), (users.id(), "users"));
        assert_eq!(rows(&engine, &found), [("a".into(), "user".into())]);
        // A handle of another opening says nothing about this one.
        assert!(matches!(engine.get(&users, "a"), Err(Error::Invalid(_))));
        assert!(matches!(engine.put(&users, "a", ""), Err(Error::Invalid(_))));
        assert!(matches!(engine.snapshot().iter(&users).next(), Some(Err(Error::Invalid(_)))));
        assert!(matches!(engine.drop_keyspace(&users), Err(Error::Invalid(_))));
    }
}

#[test]
fn names_have_limits() {
    let engine = Engine::open_in_memory().unwrap();
    for name in ["", &"x".repeat(256)] {
        assert!(matches!(engine.keyspace(name), Err(Error::Invalid(_))));
    }
    assert!(engine.features().iter().all(|feature| feature.name() != "keyspaces"), "none is made");
    for name in ["x", &"\u{e4}".repeat(127), "with \0 and /"] {
        engine.keyspace(name).unwrap();
    }
    assert_eq!(engine.keyspaces().len(), 3);
}

/// A program that does not know keyspaces is kept away, from the first one on.
#[test]
fn the_first_keyspace_makes_the_store_say_so() {
    let (disk, engine) = new_store();
    let needs = |engine: &Engine| engine.features().iter().any(|feature| feature.name() == "keyspaces");
    engine.write(&[(crate::common::key(16, 1), Some(b"x".to_vec()))], true).unwrap();
    assert!(!needs(&engine));
    let keyspace = engine.keyspace("users").unwrap();
    assert!(needs(&engine));
    engine.drop_keyspace(&keyspace).unwrap();
    drop(engine);
    let engine = open(&disk).unwrap();
    assert!(needs(&engine) && engine.keyspaces().is_empty());
}

#[test]
fn a_name_that_many_create_is_one_keyspace() {
    within("creation", 120, || {
        let engine = open(&MemDisk::new()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let engine = &engine;
                scope.spawn(move || {
                    for n in 0..20 {
                        let keyspace = engine.keyspace(&format!("name {n}")).unwrap();
                        engine.put(&keyspace, format!("thread {thread}"), "").unwrap();
                    }
                });
            }
        });
        assert_eq!(engine.keyspaces().len(), 20);
        for keyspace in engine.keyspaces() {
            assert_eq!(rows(&engine, &keyspace).len(), 6, "{keyspace:?}");
        }
    });
}

#[test]
fn a_dropped_keyspace_is_gone_for_all_but_open_ranges() {
    let (disk, engine) = new_store();
    let users = engine.keyspace("users").unwrap();
    for n in 0..400 {
        engine.put(&users, format!("{n:03}"), "x".repeat(100)).unwrap();
        if n == 200 {
            engine.flush().unwrap();
        }
    }
    let snapshot = engine.snapshot();
    let mut range = snapshot.iter(&users);
    assert!(range.next().unwrap().unwrap().0 == "000");
    let never_begun = snapshot.iter(&users);
    let mut writer = engine.transaction(Isolation::Serializable);
    writer.put(&users, "new", "").unwrap();
    let other = engine.keyspace("other").unwrap();
    writer.put(&other, "kept", "").unwrap();

    engine.drop_keyspace(&users).unwrap();
    assert!(is_gone(engine.get(&users, "001")) && is_gone(snapshot.get(&users, "001")));
    assert!(is_gone(engine.put(&users, "001", "")) && is_gone(engine.drop_keyspace(&users)));
    assert!(is_gone(writer.put(&users, "x", "")) && is_gone(writer.get(&users, "new")));
    assert!(is_gone(writer.get_for_update(&users, "new")) && is_gone(engine.compact(&users)));
    assert!(is_gone(never_begun.collect::<Result<Vec<_>>>()));
    engine.flush().unwrap();
    assert_eq!(range.by_ref().map(Result::unwrap).count(), 399);
    drop((range, snapshot));

    // What was written before counts as if it had been committed before.
    writer.commit().unwrap();
    assert_eq!(rows(&engine, &other).len(), 1);
    let again = engine.keyspace("users").unwrap();
    assert!(again.id() > users.id() && rows(&engine, &again).is_empty());
    assert!(is_gone(engine.get(&users, "001")), "the name does not bring it back");
    engine.put(&again, "a", "b").unwrap();
    engine.flush().unwrap();
    engine.wait_idle().unwrap();
    assert!(!engine.indexes().unwrap().contains(&IndexId(users.id())));
    engine.close().unwrap();
    drop((engine, again, other));
    let engine = open(&disk).unwrap();
    assert_eq!(names(&engine), ["other", "users"]);
    assert_eq!(rows(&engine, &engine.keyspace("users").unwrap()), [("a".into(), "b".into())]);
}

/// Also where nothing is left of the last one that had it.
#[test]
fn an_id_is_never_given_twice() {
    let disk = MemDisk::new();
    let mut last = 0;
    for _ in 0..3 {
        let engine = open(&disk).unwrap();
        let keyspace = engine.keyspace("users").unwrap();
        assert!(keyspace.id() > last, "{} after {last}", keyspace.id());
        last = keyspace.id();
        engine.drop_keyspace(&keyspace).unwrap();
        engine.flush().unwrap();
        engine.close().unwrap();
    }
}

/// A read beside a drop gives the row or is refused. It never says that the row is not there.
#[test]
fn a_read_that_meets_a_drop_is_refused() {
    within("drop beside reads", 120, || {
        let engine = open(&MemDisk::new()).unwrap();
        for _ in 0..150 {
            let users = engine.keyspace("users").unwrap();
            for n in 0..50 {
                engine.put(&users, format!("{n:03}"), "x").unwrap();
            }
            // In files, which go at once.
            engine.flush().unwrap();
            let ready = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (engine, users, ready) = (&engine, &users, &ready);
                    scope.spawn(move || {
                        let snapshot = engine.snapshot();
                        for n in 0.. {
                            let key = format!("{:03}", n % 50);
                            let row = match thread {
                                0 => snapshot.get(users, key).map(|row| usize::from(row.is_some())),
                                _ => snapshot.range(users, ..=key).map(|row| row.map(|_| 1)).sum(),
                            };
                            match row {
                                Ok(found) => assert!(found == if thread == 0 { 1 } else { n % 50 + 1 }),
                                Err(error) => return assert!(is_gone(Err::<(), _>(error))),
                            }
                            if n == 3 {
                                ready.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    });
                }
                while ready.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                engine.drop_keyspace(&users).unwrap();
            });
        }
    });
}

/// Commits that were under way while their keyspace was dropped leave nothing.
#[test]
fn writers_beside_a_drop_leave_nothing() {
    within("drop beside writes", 120, || {
        let (disk, engine) = new_store();
        let mut ids = Vec::new();
        for _ in 0..15 {
            let users = engine.keyspace("users").unwrap();
            ids.push(IndexId(users.id()));
            let started = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (engine, users, started) = (&engine, &users, &started);
                    scope.spawn(move || {
                        for n in 0.. {
                            if let Err(error) = engine.put(users, format!("{thread} {n}"), "x") {
                                return assert!(is_gone(Err::<(), _>(error)));
                            }
                            started.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
                while started.load(Ordering::SeqCst) < 10 {
                    std::thread::yield_now();
                }
                engine.drop_keyspace(&users).unwrap();
            });
        }
        assert!(rows(&engine, &engine.keyspace("users").unwrap()).is_empty());
        engine.close().unwrap();
        drop(engine);
        // What a commit has left that came to its place in the order beside the drop goes with the next opening.
        let engine = open(&disk).unwrap();
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        let left = engine.indexes().unwrap();
        assert!(ids.iter().all(|id| !left.contains(id)), "{left:?}");
        assert_eq!(names(&engine), ["users"]);
    });
}

#[test]
fn a_prepared_transaction_keeps_its_keyspaces() {
    let engine = open(&MemDisk::new()).unwrap();
    let users = engine.keyspace("users").unwrap();
    let mut txn = engine.begin();
    txn.put(&[&users.id().to_be_bytes()[..], b"a"].concat(), b"x").unwrap();
    txn.prepare(b"xid").unwrap();
    assert!(matches!(engine.drop_keyspace(&users), Err(Error::LockBusy)));
    txn.commit().unwrap();
    assert_eq!(rows(&engine, &users), [("a".into(), "x".into())]);
    engine.drop_keyspace(&users).unwrap();
}

#[test]
fn a_keyspace_is_dropped_on_a_full_disk() {
    within("full disk", 120, || {
        let (disk, engine) = new_store();
        let (users, kept) = (engine.keyspace("users").unwrap(), engine.keyspace("kept").unwrap());
        engine.put(&kept, "a", "b").unwrap();
        disk.set_capacity(Some(disk.used() + (512 << 10)));
        let mut filled = 0;
        let refused = loop {
            match engine.put(
                &users,
                format!("{filled}"),
                crate::common::value(&mut crate::common::Rng::new(filled), filled, 20_000),
            ) {
                Ok(()) => filled += 1,
                Err(error) => break error,
            }
        };
        assert!(refused.is_disk_full() && filled > 3, "{refused}");
        engine.drop_keyspace(&users).unwrap();
        assert_eq!((names(&engine), rows(&engine, &kept).len()), (vec!["kept".into()], 1));
        drop(engine);
        // Nor does the next opening need a byte more.
        let engine = open(&disk).unwrap();
        assert_eq!(names(&engine), ["kept"]);
    });
}

/// A directory that says what this program does not understand keeps the store shut, with the place of what it says.
#[test]
fn a_damaged_directory_is_refused() {
    let name = |text: &str| [&IndexId::KEYSPACES.prefix()[..], &[1], text.as_bytes()].concat();
    let cases = [
        (name("users"), vec![9, 1], "has version 9; known is 1"),
        (name("users"), vec![1, 1], "does not decode"),
        (name("users"), vec![], "is empty"),
        ([&IndexId::KEYSPACES.prefix()[..], &[7]].concat(), vec![1], "does not decode"),
    ];
    for (key, value, what) in cases {
        for in_file in [false, true] {
            let (disk, engine) = new_store();
            engine.keyspace("users").unwrap();
            engine.write(&[(key.clone(), Some(value.clone()))], true).unwrap();
            if in_file {
                engine.flush().unwrap();
            }
            drop(engine);
            let error = open(&disk).err().expect("a directory that is not understood is refused");
            let path = match &error {
                Error::Incompatible { path, .. } => path,
                Error::Corruption { path, .. } => path,
                other => panic!("{other}"),
            };
            assert_eq!(matches!(error, Error::Incompatible { .. }), value.first() == Some(&9), "{error}");
            assert!(error.to_string().ends_with(what), "{error}");
            assert_eq!(path.extension().is_some_and(|extension| extension == "sst"), in_file, "{error}");
        }
    }
}

/// What was asked for, and how far it is acknowledged: all steps below `done` are, and those from `begun` on are not begun.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    begun: usize,
    done: usize,
}

/// Names with what is in them.
type Content = BTreeMap<String, Vec<(String, String)>>;

const STEPS: usize = 8;

/// What there is after so many steps.
fn after(steps: usize) -> Content {
    let mut content = Content::new();
    let row = |text: &str| vec![("a".to_owned(), text.to_owned())];
    for step in 0..steps {
        match step {
            0 => drop(content.insert("one".into(), Vec::new())),
            1 => drop(content.insert("one".into(), row("first"))),
            2 => drop(content.insert("two".into(), Vec::new())),
            3 => drop(content.insert("two".into(), row("two"))),
            4 => drop(content.remove("one")),
            5 => drop(content.insert("one".into(), Vec::new())),
            6 => drop(content.insert("one".into(), vec![("b".into(), "second".into())])),
            _ => drop(content.remove("two")),
        }
    }
    content
}

fn step(engine: &Engine, step: usize) -> Result<()> {
    let put = |name: &str, key: &str, value: &str| {
        let keyspace = engine.find_keyspace(name).ok_or_else(|| Error::NoKeyspace(name.into()))?;
        engine.put(&keyspace, key, value)
    };
    let remove = |name: &str| match engine.find_keyspace(name) {
        Some(keyspace) => engine.drop_keyspace(&keyspace),
        None => Err(Error::NoKeyspace(name.into())),
    };
    match step {
        0 | 5 => engine.keyspace("one").map(|_| ()),
        1 => put("one", "a", "first").and_then(|()| engine.flush()),
        2 => engine.keyspace("two").map(|_| ()),
        3 => put("two", "a", "two"),
        4 => remove("one"),
        6 => put("one", "b", "second"),
        _ => remove("two"),
    }
}

/// A store found on a disk is as it was after some step that may have been the last, and works on.
fn judge(disk: &MemDisk, progress: Progress) -> usize {
    let engine = open(disk).unwrap();
    let content = |engine: &Engine| -> Content {
        engine.keyspaces().iter().map(|keyspace| (keyspace.name().to_owned(), rows(engine, keyspace))).collect()
    };
    let found = content(&engine);
    let at = (progress.done..=progress.begun).find(|&steps| after(steps) == found);
    let at = at.unwrap_or_else(|| panic!("after {progress:?}: {found:?}"));
    // A name that comes again has nothing of before, whatever was in the middle of being dropped.
    for name in ["one", "two"] {
        let keyspace = engine.keyspace(name).unwrap();
        engine.put(&keyspace, "again", "x").unwrap();
        assert_eq!(
            rows(&engine, &keyspace).len(),
            found.get(name).map_or(0, Vec::len) + 1,
            "{name} after {progress:?}"
        );
    }
    engine.flush().unwrap();
    engine.close().unwrap();
    let ids: Vec<u32> = engine.keyspaces().iter().map(Keyspace::id).collect();
    drop(engine);
    let engine = open(disk).unwrap();
    engine.flush().unwrap();
    let owned = |id: &IndexId| *id == IndexId::KEYSPACES || ids.contains(&id.0);
    let left = engine.indexes().unwrap();
    assert!(left.iter().all(owned), "of {left:?} {ids:?} are in use");
    at
}

/// The image of a power cut before each disk operation, in several ways of what reaches the disk.
#[test]
fn a_crash_leaves_a_keyspace_or_none() {
    within("crashes", 300, || {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let disk = MemDisk::new();
        let images: Arc<Mutex<Vec<(Progress, MemDisk)>>> = Arc::default();
        let watching = Arc::new(AtomicBool::new(false));
        let hook = {
            let (progress, disk, images, watching) = (progress.clone(), disk.clone(), images.clone(), watching.clone());
            Arc::new(move |_: &str, _: &Path| {
                if watching.load(Ordering::SeqCst) {
                    let mut images = images.lock();
                    // The lower bound before the image, the upper one after it.
                    let before = *progress.lock();
                    let image = disk.crash(images.len() as u64);
                    let after = *progress.lock();
                    images.push((Progress { begun: after.begun, done: before.done }, image));
                }
            })
        };
        let hooked = hooked(disk.clone(), hook);
        let engine = Engine::open(Path::new(DIR), options(hooked)).unwrap();
        watching.store(true, Ordering::SeqCst);
        for n in 0..STEPS {
            progress.lock().begun = n + 1;
            step(&engine, n).unwrap();
            progress.lock().done = n + 1;
        }
        watching.store(false, Ordering::SeqCst);
        drop(engine);
        let images = std::mem::take(&mut *images.lock());
        assert!(images.len() > 20, "{}", images.len());
        let mut seen = [0; STEPS + 1];
        for (n, (progress, image)) in images.iter().enumerate() {
            let _case = OnFailure(format!("image {n}"));
            seen[judge(image, *progress)] += 1;
        }
        assert!(seen[1..].iter().filter(|&&count| count > 0).count() > 4, "{seen:?}");
    });
}

/// Each disk operation fails in turn, for once or for ever, as a full disk or as a broken one.
#[test]
fn a_failing_disk_leaves_a_keyspace_or_none() {
    within("faults", 500, || {
        for kind in [FaultKind::StorageFull, FaultKind::Other] {
            for once in [true, false] {
                let mut failures = 0;
                for n in 1.. {
                    let _case = OnFailure(format!("{kind:?}, once {once}, operation {n}"));
                    let (disk, engine) = new_store();
                    if once {
                        disk.fail_after(n, kind)
                    } else {
                        disk.fail_from(n, kind)
                    }
                    let mut progress = Progress::default();
                    let mut failed = false;
                    for at in 0..STEPS {
                        progress.begun = at + 1;
                        match step(&engine, at) {
                            Ok(()) => progress.done = at + 1,
                            Err(_) => {
                                failed = true;
                                break;
                            }
                        }
                    }
                    let reached = disk.struck().is_some();
                    disk.clear_fault();
                    drop(engine);
                    judge(&disk.crash(n), progress);
                    failures += u32::from(failed);
                    if !reached {
                        break;
                    }
                }
                assert!(failures > 3, "{failures}");
            }
        }
    });
}
