//! Failing disks. A script of everything the engine does runs against a disk whose n-th operation fails, for every n;
//! then against disks that are full after so many bytes. Whatever fails, it must fail with an error: no panic, no hang,
//! no success that was none, and everything that was acknowledged is there when the disk is well again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::{
    DIR, Map, Recorder, Rng, by_turns, cases, dump, hooked, key, new_store, open, options, value, within,
};
use parking_lot::Mutex;
use strata_engine::io::{Disk, FaultKind, MemDisk, PosixDisk};
use strata_engine::layer::{IndexId, Txn};
use strata_engine::{Durability, Engine, Error, Event, Options, Result};

const INDEX: u32 = 16;
const GONE: u32 = 17;

type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// What was asked for and whether it was acknowledged.
#[derive(Default)]
struct Journal {
    commits: Vec<(Writes, bool)>,
    dropped: Option<bool>,
    prepared: Vec<(Vec<u8>, bool)>,
    errors: Vec<String>,
}

impl Journal {
    fn note<T>(&mut self, what: &str, result: Result<T>) -> bool {
        match result {
            Ok(_) => true,
            Err(e) => {
                self.errors.push(format!("{what}: {e}"));
                false
            }
        }
    }

    /// The states that may be found: all that was acknowledged, and perhaps the first of those that failed after it.
    fn allowed(&self) -> Vec<Map> {
        let mut map = Map::new();
        let apply = |map: &mut Map, writes: &Writes| {
            for (key, value) in writes {
                match value {
                    Some(value) => map.insert(key.clone(), value.clone()),
                    None => map.remove(key),
                };
            }
        };
        let last = self.commits.iter().rposition(|commit| commit.1).map_or(0, |at| at + 1);
        self.commits[..last].iter().filter(|commit| commit.1).for_each(|(writes, _)| apply(&mut map, writes));
        let mut allowed = vec![map.clone()];
        for (writes, _) in &self.commits[last..] {
            apply(&mut map, writes);
            allowed.push(map.clone());
        }
        allowed
    }
}

fn some_writes(rng: &mut Rng, count: u64, bytes: u64) -> Writes {
    let mut writes = Writes::new();
    for _ in 0..count {
        let tag = rng.next();
        let new = if rng.chance(20) { None } else { Some(value(rng, tag, bytes)) };
        writes.push((key(INDEX, rng.below(40)), new));
    }
    writes.sort();
    writes.dedup_by(|a, b| a.0 == b.0);
    writes
}

fn commit(engine: &Engine, journal: &mut Journal, writes: Writes) {
    let mut txn = engine.begin();
    match write(&mut txn, &writes) {
        Ok(()) => {
            let ok = journal.note("commit", txn.commit());
            journal.commits.push((writes, ok));
        }
        Err(e) => {
            journal.errors.push(format!("write of a large transaction: {e}"));
            journal.note("rollback", txn.rollback());
        }
    }
}

fn write(txn: &mut Txn, writes: &Writes) -> Result<()> {
    for (key, value) in writes {
        match value {
            Some(value) => txn.put(key, value)?,
            None => txn.delete(key)?,
        }
    }
    Ok(())
}

/// Everything a store does; goes on after errors, as a server would.
fn script(engine: &Engine, journal: &mut Journal) {
    let mut rng = Rng::new(7);
    let (lower, upper) = (IndexId(INDEX).prefix(), IndexId(INDEX + 1).prefix());
    let ok = journal.note("write", engine.write(&[(key(GONE, 1), Some(vec![1; 3000]))], true));
    journal.commits.push((vec![(key(GONE, 1), Some(vec![1; 3000]))], ok));
    for round in 0..3 {
        for _ in 0..4 {
            commit(engine, journal, some_writes(&mut rng, 6, 900));
        }
        // Two phases, with the order fixed in between as the server does.
        let writes = if round == 1 { some_writes(&mut rng, 25, 2500) } else { some_writes(&mut rng, 3, 500) };
        let mut txn = engine.begin();
        let writes: Writes = writes.into_iter().map(|(k, v)| (k, Some(v.unwrap_or_default()))).collect();
        let xid = format!("two-phase {round}").into_bytes();
        if !journal.note("write in two phases", write(&mut txn, &writes)) {
            journal.note("rollback", txn.rollback());
        } else if journal.note("prepare", txn.prepare(&xid)) {
            txn.commit_ordered();
            let ok = journal.note("commit after prepare", txn.commit());
            // Durable by the prepare only once the server decides: make it so.
            let ok = journal.note("sync", engine.sync()) && ok;
            journal.commits.push((writes, ok));
        } else {
            journal.note("rollback of a failed prepare", txn.rollback());
        }
        journal.note("flush", engine.flush());
        commit(engine, journal, some_writes(&mut rng, 30, 4000));
    }
    let mut txn = engine.begin();
    let undecided = (0..12).map(|k| (key(INDEX, 1000 + k), Some(value(&mut rng, k, 3000)))).collect();
    let ok = journal.note("write", write(&mut txn, &undecided)) && journal.note("prepare", txn.prepare(b"left"));
    journal.prepared.push((b"left".to_vec(), ok));
    drop(txn);
    journal.note("compaction", engine.compact_range(&lower, &upper));
    let ok = journal.note("drop", engine.drop_indexes(&[IndexId(GONE)]));
    journal.dropped = Some(ok);
    commit(engine, journal, some_writes(&mut rng, 6, 900));
    journal.note("flush", engine.flush());
    commit(engine, journal, some_writes(&mut rng, 2, 100));
}

/// What a store has in which it is none of the allowed ones: keys, and lengths of their values.
fn differences(allowed: &[Map], found: &Map) -> String {
    let rows = |map: &Map, other: &Map| -> Vec<_> {
        let differ = map.iter().filter(|&(key, value)| other.get(key) != Some(value));
        differ.map(|(key, value)| (key.clone(), value.len())).collect()
    };
    let texts = allowed.iter().enumerate().map(|(number, map)| {
        format!("allowed {number} has beside it {:?}, it has {:?}", rows(map, found), rows(found, map))
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// Opens what is left and compares.
fn judge(disk: &MemDisk, journal: &Journal, case: &str) {
    let engine = open(disk).unwrap_or_else(|e| panic!("{case}: reopen: {e}; before: {:?}", journal.errors));
    let mut allowed = journal.allowed();
    let mut found = dump(&engine, 0, u32::MAX).unwrap();
    let void = |key: &Vec<u8>| journal.dropped.is_some() && IndexId::of(key).0 == GONE;
    allowed.iter_mut().chain([&mut found]).for_each(|map| map.retain(|key, _| !void(key)));
    assert!(
        allowed.contains(&found),
        "{case}: not what was acknowledged; {:?}; {}; prepared {:?}",
        journal.errors,
        differences(&allowed, &found),
        engine.prepared()
    );
    for index in [INDEX, GONE] {
        engine.verify_index(IndexId(index)).unwrap();
    }
    let listed = engine.prepared();
    for (xid, acknowledged) in &journal.prepared {
        assert!(!acknowledged || listed.contains(xid), "{case}: prepared transaction lost");
    }
    for xid in listed {
        assert!(engine.rollback_prepared(&xid).unwrap());
    }
    // It works again.
    let mut after = Journal::default();
    commit(&engine, &mut after, vec![(key(INDEX, 2000), Some(b"well again".to_vec()))]);
    engine.flush().unwrap();
    engine.compact_range(&[0, 0, 0, 0], &[255; 4]).unwrap();
    assert_eq!(after.errors, Vec::<String>::new(), "{case}");
    engine.close().unwrap();
}

/// One run with the fault at the `n`-th operation; false if it was never reached.
fn strike(n: u64, kind: FaultKind, transaction_bytes: u64) -> bool {
    let case = format!("operation {n} fails ({kind:?}, {transaction_bytes})");
    let disk = MemDisk::new();
    let mut journal = Journal::default();
    disk.fail_after(n, kind);
    let options = Options { transaction_bytes, ..by_turns(n / 2, options(Arc::new(disk.clone()))) };
    match Engine::open(Path::new(DIR), options) {
        Ok(engine) => {
            script(&engine, &mut journal);
            journal.note("close", engine.close());
            // Neither hangs nor panics.
            let _ = engine.flush();
            let _ = engine.wait_idle();
        }
        Err(e) => journal.errors.push(format!("open: {e}")),
    }
    if disk.clear_fault() {
        assert_eq!(journal.errors, Vec::<String>::new(), "{case}: no fault, but errors");
        judge(&disk, &journal, &case);
        return false;
    }
    for seed in 0..2 {
        judge(&disk.crash(n * 7 + seed), &journal, &format!("{case}, then a power cut ({seed})"));
    }
    // Again on what the first opening made of it.
    judge(&disk, &journal, &case);
    true
}

#[test]
fn every_operation_may_fail() {
    // In the second round most transactions are too large for memory.
    for transaction_bytes in [0, 15_000] {
        for kind in [FaultKind::Other, FaultKind::StorageFull] {
            let mut n = 1;
            while within(&format!("operation {n} fails ({kind:?})"), 30, move || strike(n, kind, transaction_bytes)) {
                n += 1;
            }
            assert!(n > 100, "only {n} operations");
        }
    }
}

/// The same while a store with content is opened.
#[test]
fn opening_may_fail_at_every_operation() {
    let (disk, engine) = new_store();
    let mut journal = Journal::default();
    script(&engine, &mut journal);
    assert_eq!(journal.errors, Vec::<String>::new());
    drop(engine);
    let journal = Arc::new(journal);
    for n in 1.. {
        let image = disk.crash(n);
        let journal = journal.clone();
        let struck = within(&format!("operation {n} of an opening fails"), 30, move || {
            image.fail_after(n, FaultKind::Other);
            let opened = open(&image);
            let ended_well = opened.is_ok() && image.clear_fault();
            drop(opened);
            image.clear_fault();
            judge(&image.crash(n), &journal, &format!("operation {n} of an opening fails, then a power cut"));
            judge(&image, &journal, &format!("operation {n} of an opening fails"));
            !ended_well
        });
        if !struck {
            assert!(n > 10);
            break;
        }
    }
}

/// Fills a disk that has `room` bytes left when the store is open; what fails must say so, and the store must go on by
/// itself when there is room again.
fn fill(room: u64) {
    let case = format!("{room} bytes of room");
    let disk = MemDisk::new();
    // Large transactions for every other size.
    let transaction_bytes = if room % 2 == 0 { 0 } else { 5000 };
    let engine =
        Engine::open(Path::new(DIR), Options { transaction_bytes, ..options(Arc::new(disk.clone())) }).unwrap();
    let mut journal = Journal::default();
    let mut rng = Rng::new(room);
    for _ in 0..3 {
        commit(&engine, &mut journal, some_writes(&mut rng, 5, 500));
    }
    disk.set_capacity(Some(disk.used() + room));
    let mut refused = 0;
    for step in 0..3000 {
        let writes = some_writes(&mut rng, 6, 2000);
        let mut txn = engine.begin();
        // A prepared transaction can always be decided: the log keeps room for that.
        let two_phase = step % 3 == 0;
        let written = write(&mut txn, &writes);
        let done = written.and_then(|()| if two_phase { txn.prepare(b"x") } else { txn.commit() });
        match done {
            Ok(()) if two_phase && step % 2 == 0 => {
                txn.rollback().unwrap_or_else(|e| panic!("{case}: rollback of a prepared transaction: {e}"));
            }
            Ok(()) => {
                if two_phase {
                    txn.commit().unwrap_or_else(|e| panic!("{case}: commit of a prepared transaction: {e}"));
                }
                journal.commits.push((writes, true));
            }
            Err(e) => {
                assert!(e.is_disk_full(), "{case}: {e}");
                assert!(!matches!(e, Error::Poisoned(_)), "{case}: the full disk stopped the log: {e}");
                drop(txn);
                refused += 1;
            }
        }
        if step % 50 == 49 {
            if let Err(e) = engine.flush() {
                assert!(e.is_disk_full(), "{case}: {e}");
                assert!(!matches!(e, Error::Poisoned(_)), "{case}: the full disk stopped the store: {e}");
            }
        }
        if refused > 20 {
            break;
        }
    }
    // With much room, keys overwritten and log recycled may fit for ever.
    assert!(refused > 0 || room > 1_000_000, "{case}: never full");
    // Reads go on, and nothing that was refused is to be seen.
    assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap(), journal.allowed()[0], "{case}: while full");

    // A crash of the full store loses nothing.
    let image = disk.crash(room);
    judge(&image, &journal, &format!("{case}, then a power cut"));

    disk.set_capacity(None);
    commit_until_well(&engine, &mut journal, &mut rng, &case);
    engine.flush().unwrap_or_else(|e| panic!("{case}: flush with room again: {e}"));
    for _ in 0..20 {
        commit(&engine, &mut journal, some_writes(&mut rng, 6, 2000));
    }
    assert_eq!(journal.errors, Vec::<String>::new(), "{case}: after there was room again");
    engine.close().unwrap();
    drop(engine);
    judge(&disk, &journal, &case);
}

fn commit_until_well(engine: &Engine, journal: &mut Journal, rng: &mut Rng, case: &str) {
    // Memory may be full until the next flush, which an explicit one does not wait for.
    engine.flush().unwrap_or_else(|e| panic!("{case}: flush with room again: {e}"));
    commit(engine, journal, some_writes(rng, 6, 2000));
}

#[test]
fn a_full_disk_refuses_and_heals() {
    let mut room = 0;
    for _ in 0..cases(40) {
        within(&format!("{room} bytes of room"), 60, move || fill(room));
        room += 13_337 + room / 9;
    }
}

/// On a full disk that has little room again, memtables are flushed one by one: room for all of them at once is not needed.
#[test]
fn little_room_suffices_for_a_flush() {
    within("little room", 60, || {
        let disk = MemDisk::new();
        let gate = Arc::new(Mutex::new(()));
        let held = gate.clone();
        let hook: crate::common::Hook = Arc::new(move |op, path| {
            if op == "create" && path.extension().is_some_and(|e| e == "sst") {
                drop(held.lock());
            }
        });
        let engine = Engine::open(Path::new(DIR), options(hooked(disk.clone(), hook))).unwrap();
        let mut journal = Journal::default();
        let mut rng = Rng::new(7);
        let closed = gate.lock();
        let mut sizes = Vec::new();
        let mut logged = 0;
        while sizes.len() < 3 {
            let writes = (0..10).map(|_| (key(INDEX, rng.below(1 << 30)), Some(value(&mut rng, 0, 2000)))).collect();
            commit(&engine, &mut journal, writes);
            logged += 10 * 2000;
            if engine.metrics().sealed_memtables > sizes.len() as u64 {
                sizes.push(std::mem::take(&mut logged));
            }
        }
        // The flush that waits at the gate took the first. For the other two there is room for one and a half.
        disk.set_capacity(Some(disk.used() + sizes[0] + sizes[1] + sizes[2] / 2));
        drop(closed);
        while engine.metrics().work.flushes < 2 {
            std::thread::yield_now();
        }
        let error = engine.flush().unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        assert_eq!(engine.metrics().work.flushes, 2, "there is no room for the third");
        assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap(), journal.allowed()[0], "while full");
        judge(&disk.crash(1), &journal, "half of the memtables are flushed, then a power cut");
        disk.set_capacity(None);
        engine.flush().unwrap();
        assert_eq!(engine.metrics().sealed_memtables, 0);
        engine.close().unwrap();
        drop(engine);
        judge(&disk, &journal, "half of the memtables were flushed");
    });
}

/// A panic in background work stops the store loudly.
#[test]
fn a_panic_in_the_background_stops_the_store() {
    for (what, suffix) in [("create", "sst"), ("sync", "sst"), ("write", "sst")] {
        within(&format!("panic at {what}"), 30, move || {
            let disk = MemDisk::new();
            let armed = Arc::new(AtomicBool::new(false));
            let recorder = Recorder::default();
            let trigger = armed.clone();
            let hook: crate::common::Hook = Arc::new(move |op, path| {
                let hit = op == what && path.extension().is_some_and(|e| e == suffix);
                if hit && trigger.load(Ordering::SeqCst) {
                    panic!("out of order (this panic is wanted)");
                }
            });
            let options = Options { listener: recorder.listener(), ..options(hooked(disk.clone(), hook)) };
            let engine = Engine::open(Path::new(DIR), options).unwrap();
            let mut journal = Journal::default();
            let mut rng = Rng::new(1);
            commit(&engine, &mut journal, some_writes(&mut rng, 5, 500));
            armed.store(true, Ordering::SeqCst);
            let error = engine.flush().unwrap_err();
            assert!(error.to_string().contains("thread panicked: out of order"), "{error}");
            commit(&engine, &mut journal, some_writes(&mut rng, 5, 500));
            assert!(!journal.commits[1].1);
            assert!(journal.errors[0].contains("thread panicked"), "{:?}", journal.errors);
            assert!(engine.wait_idle().is_err());
            assert!(engine.compact_range(&[0; 4], &[255; 4]).is_err());
            let lines = recorder.lines();
            assert!(
                matches!(&lines[..], [one] if one.contains("has stopped") && one.contains("thread panicked")),
                "{lines:?}"
            );
            // What was there can still be read, and is there after the store was opened anew.
            assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap(), journal.allowed()[0]);
            assert!(engine.close().is_err());
            drop(engine);
            judge(&disk, &journal, "after a panic");
        });
    }
}

#[test]
fn a_store_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let disk = MemDisk::new();
    let on_disk = Options { disk: Arc::new(PosixDisk::default()), ..options(Arc::new(disk.clone())) };
    for (path, options) in [(dir.path(), on_disk), (Path::new(DIR), options(Arc::new(disk)))] {
        let engine = Engine::open(path, options.clone()).unwrap();
        engine.write(&[(key(INDEX, 1), Some(b"a".to_vec()))], true).unwrap();
        assert!(matches!(Engine::open(path, options.clone()), Err(Error::InUse(_))));
        // The refused opening has changed nothing.
        engine.write(&[(key(INDEX, 2), Some(b"b".to_vec()))], true).unwrap();
        engine.flush().unwrap();
        engine.close().unwrap();
        assert!(matches!(Engine::open(path, options.clone()), Err(Error::InUse(_))), "closed, but a handle lives");
        drop(engine);
        let engine = Engine::open(path, options).unwrap();
        assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap().len(), 2);
    }
}

/// A clean close leaves everything durable, though commits did not wait for it, and the next opening finds all of it.
#[test]
fn a_clean_close_is_exact() {
    let disk = MemDisk::new();
    let lazy = Options { durability: strata_engine::Durability::EverySecond, ..options(Arc::new(disk.clone())) };
    let mut journal = Journal::default();
    let mut rng = Rng::new(5);
    for round in 0..5 {
        let engine = Engine::open(Path::new(DIR), lazy.clone()).unwrap();
        for _ in 0..10 {
            commit(&engine, &mut journal, some_writes(&mut rng, 6, 700));
        }
        if round % 2 == 0 {
            engine.flush().unwrap();
            commit(&engine, &mut journal, some_writes(&mut rng, 6, 700));
        }
        engine.close().unwrap();
        drop(engine);
        for seed in 0..20 {
            let image = disk.crash(seed);
            let engine = open(&image).unwrap();
            assert_eq!(dump(&engine, INDEX, INDEX + 1).unwrap(), *journal.allowed().last().unwrap());
        }
    }
    assert_eq!(journal.errors, Vec::<String>::new());
}

/// Options of a store, and what it tells whoever runs it.
fn told(disk: &MemDisk) -> (Options, Recorder) {
    let recorder = Recorder::default();
    // The log's first segment is all that is needed.
    let log_segment_bytes = 4 << 20;
    (Options { listener: recorder.listener(), log_segment_bytes, ..options(Arc::new(disk.clone())) }, recorder)
}

/// That the store has stopped.
fn stops(recorder: &Recorder) -> Vec<String> {
    let events = recorder.events().into_iter();
    events.filter(|event| matches!(event, Event::Stopped { .. })).map(|event| event.to_string()).collect()
}

/// The log's write or sync fails once. From then on nothing succeeds, whatever the way to commit, the failure is told once
/// with its cause, and the next opening finds all that was acknowledged.
#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    for durability in [Durability::EveryCommit, Durability::OsEveryCommit, Durability::EverySecond] {
        // The write and, one later, the sync.
        for n in [1, 2] {
            within("a failed sync", 60, move || {
                let case = format!("{durability:?}, operation {n}");
                let disk = MemDisk::new();
                let (options, recorder) = told(&disk);
                let engine = Engine::open(Path::new(DIR), Options { durability, ..options }).unwrap();
                let put = |k: u64| {
                    let mut txn = engine.begin();
                    txn.put(&key(INDEX, k), b"value").unwrap();
                    txn
                };
                put(1).commit().unwrap();
                engine.sync().unwrap();
                let (mut ordered, mut undone, mut users, mut left) = (put(2), put(3), put(4), put(5));
                let (mut active, mut failing) = (put(6), put(7));
                ordered.prepare(b"ordered").unwrap();
                undone.prepare(b"undone").unwrap();
                users.decide_here();
                users.prepare(b"users").unwrap();
                left.prepare(b"left").unwrap();
                drop(left);
                engine.sync().unwrap();
                engine.check().unwrap();
                assert!(!engine.metrics().stopped);

                disk.fail_after(n, FaultKind::Other);
                let failed = failing.commit();
                let failed = if durability == Durability::EveryCommit { failed } else { engine.sync() };
                let text = failed.unwrap_err().to_string();
                assert!(text.contains("/store/log/") && text.contains("injected fault"), "{case}: {text}");
                assert!(!disk.clear_fault(), "{case}: the fault has struck");

                assert!(engine.check().is_err() && engine.metrics().stopped, "{case}");
                assert!(active.commit().is_err() && put(8).prepare(b"8").is_err(), "{case}");
                assert!(engine.write(&[(key(INDEX, 9), None)], true).is_err(), "{case}");
                assert!(engine.sync().is_err() && engine.flush().is_err() && engine.close().is_err(), "{case}");
                assert!(
                    engine.commit_prepared(b"left").is_err() && engine.rollback_prepared(b"left").is_err(),
                    "{case}"
                );
                assert_eq!(engine.prepared(), [b"left".to_vec()]);
                // A user's decision is not taken. The server's is, elsewhere, and repeated at the next start.
                users.commit_ordered();
                assert!(users.commit().is_err(), "{case}");
                ordered.commit_ordered();
                ordered.commit().unwrap();
                undone.rollback().unwrap();
                let stops = stops(&recorder);
                assert!(stops.len() == 1 && stops[0].contains("injected fault"), "{case}: {stops:?}");
                drop((active, failing, ordered, undone, users));
                drop(engine);

                for seed in 0..10 {
                    let engine = open(&disk.crash(seed)).unwrap_or_else(|e| panic!("{case}: {e}"));
                    let listed = engine.prepared();
                    for xid in [&b"ordered"[..], b"undone", b"users", b"left"] {
                        assert!(listed.contains(&xid.to_vec()), "{case}: {listed:?}");
                    }
                    assert!(engine.commit_prepared(b"ordered").unwrap());
                    for xid in listed.iter().filter(|xid| *xid != b"ordered") {
                        assert!(engine.rollback_prepared(xid).unwrap());
                    }
                    let found: Vec<_> = dump(&engine, INDEX, INDEX + 1).unwrap().into_keys().collect();
                    let certain = [key(INDEX, 1), key(INDEX, 2)];
                    let perhaps = [key(INDEX, 1), key(INDEX, 2), key(INDEX, 7)];
                    assert!(found == certain || found == perhaps, "{case}: {found:?}");
                }
            });
        }
    }
}

/// Many commit at once when the disk fails: those who wait for another's sync hear of it too.
#[test]
fn a_failed_sync_fails_all_who_wait_for_it() {
    let total = Arc::new(AtomicUsize::new(0));
    for n in 1..20 {
        let struck = total.clone();
        within("a failed group", 60, move || {
            let disk = MemDisk::new();
            let (options, recorder) = told(&disk);
            let engine = Engine::open(Path::new(DIR), options).unwrap();
            let acknowledged: Mutex<Vec<u64>> = Mutex::default();
            disk.fail_after(n * 3, FaultKind::Other);
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let (engine, acknowledged) = (&engine, &acknowledged);
                    scope.spawn(move || {
                        let mut failed = false;
                        for i in 0..40 {
                            let k = thread * 1000 + i;
                            let mut txn = engine.begin();
                            txn.put(&key(INDEX, k), b"value").unwrap();
                            let two_phases = i % 3 == 0;
                            let prepared = if two_phases { txn.prepare(&k.to_be_bytes()) } else { Ok(()) };
                            match prepared.and_then(|()| txn.commit()) {
                                Ok(()) => {
                                    assert!(!failed, "success after a failure");
                                    acknowledged.lock().push(k);
                                }
                                // No room for a segment may be refused without harm.
                                Err(_) => failed |= engine.check().is_err(),
                            }
                        }
                    });
                }
            });
            assert_eq!(stops(&recorder).len(), usize::from(engine.check().is_err()));
            if engine.check().is_err() {
                struck.fetch_add(1, Ordering::SeqCst);
            }
            drop(engine);
            for seed in 0..4 {
                let found = dump(&open(&disk.crash(seed)).unwrap(), INDEX, INDEX + 1).unwrap();
                for k in &*acknowledged.lock() {
                    assert!(found.contains_key(&key(INDEX, *k)), "commit {k} is lost");
                }
            }
        });
    }
    assert!(total.load(Ordering::SeqCst) >= 10, "{total:?}");
}

/// A file of a dropped index whose removal fails is removed later, without another drop and without a restart.
#[test]
fn a_removal_that_failed_is_repeated() {
    within("removal", 120, || {
        for n in 1..40 {
            let (disk, engine) = new_store();
            let mut rng = Rng::new(n);
            for k in 0..100 {
                engine.write(&[(key(20, k), Some(value(&mut rng, k, 1000)))], false).unwrap();
            }
            engine.flush().unwrap();
            engine.wait_idle().unwrap();
            let files = || {
                let names = disk.list(Path::new(DIR)).unwrap();
                names.iter().filter(|name| name.extension().is_some_and(|extension| extension == "sst")).count()
            };
            assert!(files() > 0);
            disk.fail_after(n, FaultKind::Other);
            let dropped = engine.drop_indexes(&[IndexId(20)]);
            if dropped.is_err() || engine.check().is_err() {
                disk.clear_fault();
                continue;
            }
            while files() > 0 {
                std::thread::yield_now();
            }
            if disk.struck() == Some("remove") {
                return;
            }
        }
        panic!("no removal has failed");
    });
}
