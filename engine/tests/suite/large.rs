//! Transactions too large for memory: what they wrote is in files before they commit. A crash at any moment, several of
//! them at once, a disk that fills up, an interruption: all or nothing is there, and no file is left behind.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{DIR, Map, Rng, dump, hooked, key, options, value, within};
use parking_lot::Mutex;
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_engine::layer::{CrashHook, CrashPoint, IndexId, LockMode, LockOwner, SeqNo, Txn, Wait};
use strata_engine::{Engine, Error, Options, Result};

const A: u32 = 16;
const B: u32 = 17;
/// Of small transactions beside the large ones.
const C: u32 = 18;

fn large(disk: Arc<dyn Disk>) -> Options {
    Options { transaction_bytes: 20_000, ..options(disk) }
}

fn open(disk: &MemDisk) -> Engine {
    Engine::open(Path::new(DIR), large(Arc::new(disk.clone()))).unwrap()
}

/// Files in the store that nobody names; waits for those on the way out.
fn orphans(engine: &Engine, disk: &MemDisk) -> Vec<String> {
    engine.flush().unwrap();
    for _ in 0..200 {
        let named = engine.metrics().level_files.iter().sum::<u64>();
        let there: Vec<String> = disk.list(Path::new(DIR)).unwrap().iter().map(|p| p.display().to_string()).collect();
        let files: Vec<String> = there.into_iter().filter(|name| name.ends_with(".sst")).collect();
        if files.len() as u64 == named {
            return Vec::new();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    disk.list(Path::new(DIR)).unwrap().iter().map(|p| p.display().to_string()).collect()
}

/// Writes `count` rows in both indexes, in random order, some of them twice, some deleted again.
fn fill(txn: &mut Txn, model: &mut Map, rng: &mut Rng, count: u64, tag: u64) -> Result<()> {
    for _ in 0..count {
        let k = rng.below(300);
        for index in [A, B] {
            if rng.chance(15) {
                txn.delete(&key(index, k))?;
                model.remove(&key(index, k));
            } else {
                let bytes = 50 + rng.below(400);
                let value = value(rng, tag, bytes);
                txn.put(&key(index, k), &value)?;
                model.insert(key(index, k), value);
            }
        }
    }
    Ok(())
}

/// Small commits in index `C`, of more log than anybody may hold back. `done` is told of the state before and after each.
fn recycle(engine: &Engine, state: &mut Map, rng: &mut Rng, mut done: impl FnMut(&Map, bool)) {
    for _ in 0..24 {
        let mut txn = engine.begin();
        for _ in 0..5 {
            let (k, value) = (rng.below(40), value(rng, 0, 2_000));
            txn.put(&key(C, k), &value).unwrap();
            state.insert(key(C, k), value);
        }
        done(state, false);
        txn.commit().unwrap();
        done(state, true);
    }
    engine.flush().unwrap();
}

/// The states that the store goes through, one per commit, and whether the last transaction is prepared.
#[derive(Default)]
struct Story {
    states: Vec<Map>,
    durable: usize,
    prepared: bool,
    undecided: Map,
}

/// Every kind of end that a large transaction can have.
fn story(engine: &Engine, story: &Mutex<Story>) {
    let mut rng = Rng::new(3);
    let mut state = Map::new();
    let begun = |state: &Map| {
        let mut story = story.lock();
        story.states.push(state.clone());
        story.states.len()
    };
    let mut txn = engine.begin();
    // In one phase, with a savepoint in the middle of a file.
    fill(&mut txn, &mut state, &mut rng, 130, 1).unwrap();
    let (savepoint, kept) = (txn.savepoint(), state.clone());
    fill(&mut txn, &mut state, &mut rng, 170, 2).unwrap();
    txn.rollback_to(savepoint);
    state = kept;
    fill(&mut txn, &mut state, &mut rng, 40, 3).unwrap();
    let commits = begun(&state);
    txn.commit().unwrap();
    story.lock().durable = commits;
    // A small one on top, and one that is rolled back.
    txn.put(&key(A, 7), b"small").unwrap();
    state.insert(key(A, 7), b"small".to_vec());
    let commits = begun(&state);
    txn.commit().unwrap();
    story.lock().durable = commits;
    fill(&mut txn, &mut state.clone(), &mut rng, 200, 4).unwrap();
    txn.rollback().unwrap();
    // In two phases, decided either way.
    fill(&mut txn, &mut state.clone(), &mut rng, 200, 5).unwrap();
    txn.prepare(b"undone").unwrap();
    txn.rollback().unwrap();
    fill(&mut txn, &mut state, &mut rng, 200, 6).unwrap();
    begun(&state);
    txn.prepare(b"done").unwrap();
    txn.commit_ordered();
    txn.commit().unwrap();
    engine.flush().unwrap();
    let mut undecided = state.clone();
    fill(&mut txn, &mut undecided, &mut rng, 200, 7).unwrap();
    story.lock().undecided = undecided;
    txn.prepare(b"left").unwrap();
    let mut told = story.lock();
    told.prepared = true;
    told.durable = told.states.len();
    drop(told);
    drop(txn);
    // Its record is relocated.
    recycle(engine, &mut state, &mut rng, |state, done| match done {
        false => drop(begun(state)),
        true => {
            let mut story = story.lock();
            story.durable = story.states.len();
        }
    });
    engine.compact_range(&IndexId(A).prefix(), &IndexId(B + 1).prefix()).unwrap();
}

/// Runs the story up to the `n`-th disk operation. False if it ends before.
fn crash_at(n: u64) -> bool {
    let disk = MemDisk::new();
    let told: Arc<Mutex<Story>> = Arc::default();
    let taken: Arc<Mutex<Option<(MemDisk, usize, bool)>>> = Arc::default();
    let hook: crate::common::Hook = Arc::new({
        let (disk, told, taken, count) = (disk.clone(), told.clone(), taken.clone(), AtomicU64::new(0));
        move |_, _| {
            if count.fetch_add(1, Ordering::SeqCst) + 1 == n {
                // Before the image: what was promised by then.
                let (durable, prepared) = {
                    let told = told.lock();
                    (told.durable, told.prepared)
                };
                *taken.lock() = Some((disk.crash(n), durable, prepared));
            }
        }
    });
    let engine = Engine::open(Path::new(DIR), large(hooked(disk, hook))).unwrap();
    story(&engine, &told);
    drop(engine);
    let Some((image, durable, prepared)) = taken.lock().take() else { return false };
    let told = told.lock();
    let engine = open(&image);
    let found = dump(&engine, 0, u32::MAX).unwrap();
    let first = durable.checked_sub(1).map_or(Map::new(), |at| told.states[at].clone());
    let mut allowed = [&first].into_iter().chain(&told.states[durable..]);
    assert!(allowed.any(|state| *state == found), "operation {n}: a state that never was");
    for xid in engine.prepared() {
        let busy = engine.begin().lock(&key(A, 150), LockMode::Exclusive, Wait::No);
        assert!(matches!(busy, Err(Error::LockBusy)), "operation {n}: no lock after recovery");
        if xid == b"left" && n % 2 == 0 {
            assert!(engine.commit_prepared(&xid).unwrap());
            let mut expected = told.undecided.clone();
            expected.extend(found.range(key(C, 0)..).map(|(k, v)| (k.clone(), v.clone())));
            assert_eq!(dump(&engine, 0, u32::MAX).unwrap(), expected, "operation {n}");
        } else {
            assert!(engine.rollback_prepared(&xid).unwrap());
            assert_eq!(dump(&engine, 0, u32::MAX).unwrap(), found, "operation {n}");
        }
        assert!(!prepared || xid == b"left");
    }
    assert_eq!(orphans(&engine, &image), Vec::<String>::new(), "operation {n}: files that nobody needs");
    let found = dump(&engine, 0, u32::MAX).unwrap();
    drop(engine);
    // What was taken over is as durable as the rest.
    let engine = open(&image.crash(n + 1));
    assert_eq!(dump(&engine, 0, u32::MAX).unwrap(), found, "operation {n}, again");
    engine.verify_index(IndexId(A)).unwrap();
    true
}

#[test]
fn a_crash_at_any_operation_leaves_all_or_nothing() {
    let mut n = 1;
    while within(&format!("operation {n}"), 60, move || crash_at(n)) {
        n += 1;
    }
    assert!(n > 200, "only {n} operations");
}

/// A large transaction that waits long for its decision holds back neither the log nor its files' end; its record is
/// relocated, before and after a restart, and its rows stay locked.
#[test]
fn a_large_prepared_transaction_outlives_the_log_that_prepared_it() {
    for case in 0..8u64 {
        within(&format!("case {case}"), 60, move || {
            let (commits, by_session, restarts) = (case & 1 != 0, case & 2 != 0, case & 4 != 0);
            let disk = MemDisk::new();
            let mut engine = open(&disk);
            let (mut rng, mut state, mut txn) = (Rng::new(case), Map::new(), engine.begin());
            fill(&mut txn, &mut state, &mut rng, 100, 1).unwrap();
            txn.commit().unwrap();
            let mut after = state.clone();
            txn.lock(&key(A, 150), LockMode::Exclusive, Wait::No).unwrap();
            fill(&mut txn, &mut after, &mut rng, 300, 2).unwrap();
            txn.prepare(b"waits").unwrap();
            let waits = |engine: &Engine| {
                let busy = engine.begin().lock(&key(A, 150), LockMode::Exclusive, Wait::No);
                assert!(matches!(busy, Err(Error::LockBusy)), "no lock");
                engine.begin().lock(&key(C, 150), LockMode::Exclusive, Wait::No).unwrap();
                assert!(engine.prepared_writes(&[IndexId(A)]) && !engine.prepared_writes(&[IndexId(C)]));
            };
            let pass = |engine: &Engine, state: &mut Map, rng: &mut Rng| {
                let begin = engine.metrics().log_bytes_written;
                for _ in 0..3 {
                    recycle(engine, state, rng, |_, _| ());
                }
                let (written, left) = (engine.metrics().log_bytes_written - begin, engine.metrics().log_live_bytes);
                assert!(written > 700_000 && left < 512 << 10, "{left} bytes of log are left of {written}");
                waits(engine);
            };
            let mut small = Map::new();
            pass(&engine, &mut small, &mut rng);
            if restarts {
                drop((txn, engine));
                let image = disk.crash(case);
                engine = open(&image);
                assert_eq!(engine.prepared(), [b"waits".to_vec()]);
                waits(&engine);
                pass(&engine, &mut small, &mut rng);
                drop(engine);
                judge(&image, small, state, after, commits);
            } else if by_session {
                match commits {
                    true => txn.commit().unwrap(),
                    false => txn.rollback().unwrap(),
                }
                let expected = if commits { after } else { state };
                drop((txn, engine));
                settled(&disk, expected.into_iter().chain(small).collect());
            } else {
                drop((txn, engine));
                judge(&disk, small, state, after, commits);
            }
        });
    }

    /// Decides after a crash.
    fn judge(disk: &MemDisk, small: Map, state: Map, after: Map, commits: bool) {
        let disk = disk.crash(1);
        let engine = open(&disk);
        assert_eq!(dump(&engine, A, B + 1).unwrap(), state);
        let known = match commits {
            true => engine.commit_prepared(b"waits").unwrap(),
            false => engine.rollback_prepared(b"waits").unwrap(),
        };
        assert!(known);
        engine.begin().lock(&key(A, 150), LockMode::Exclusive, Wait::No).unwrap();
        let expected = if commits { after } else { state };
        drop(engine);
        settled(&disk, expected.into_iter().chain(small).collect());
    }

    /// After another crash all is as expected, and no file is left of what is not.
    fn settled(disk: &MemDisk, expected: Map) {
        let disk = disk.crash(2);
        let engine = open(&disk);
        assert_eq!(engine.prepared(), Vec::<Vec<u8>>::new());
        assert_eq!(dump(&engine, 0, u32::MAX).unwrap(), expected);
        assert_eq!(orphans(&engine, &disk), Vec::<String>::new());
        for index in [A, B, C] {
            engine.verify_index(IndexId(index)).unwrap();
        }
    }
}

/// `changed_since` finds a newer commit wherever it lies, and none where there is none.
#[test]
fn a_change_since_a_read_point_is_known_wherever_it_lies() {
    let disk = MemDisk::new();
    let engine = open(&disk);
    let mut rng = Rng::new(5);
    let mut txn = engine.begin();
    fill(&mut txn, &mut Map::new(), &mut rng, 300, 1).unwrap();
    txn.commit().unwrap();
    let point = engine.read_point();
    let check = |changed: &[u64]| {
        for round in 0..3 {
            for k in 0..310 {
                let found = engine.changed_since(&key(A, k), point.seq()).unwrap();
                assert_eq!(found, changed.contains(&k), "key {k}, round {round}");
                assert!(!engine.changed_since(&key(A, k), engine.visible()).unwrap());
            }
            match round {
                0 => engine.flush().unwrap(),
                _ => engine.compact_range(&IndexId(A).prefix(), &IndexId(B).prefix()).unwrap(),
            }
        }
    };
    check(&[]);
    let k = (0..300).find(|&k| engine.get_at(&key(A, k), point.seq(), &mut Vec::new()).unwrap()).unwrap();
    txn.delete(&key(A, k)).unwrap();
    txn.put(&key(A, 305), b"new").unwrap();
    txn.commit().unwrap();
    check(&[k, 305]);
    // In the files of a large transaction, before and behind a memtable.
    let many: Vec<u64> = (100..250).collect();
    for &k in &many {
        txn.put(&key(A, k), &value(&mut rng, 2, 400)).unwrap();
    }
    txn.commit().unwrap();
    let changed: Vec<u64> = [k, 305].into_iter().chain(many).collect();
    check(&changed);
}

/// Each transaction writes one value under all keys of its range; a reader never sees two. Flushes and merges go on.
#[test]
fn large_commits_beside_each_other_are_atomic() {
    within("concurrent large commits", 120, || {
        const WRITERS: u64 = 3;
        let disk = MemDisk::new();
        let engine = open(&disk);
        let done = Arc::new(AtomicBool::new(false));
        let check = |engine: &Engine| {
            let found = dump(engine, A, B + 1).unwrap();
            for writer in 0..WRITERS {
                for index in [A, B] {
                    let range = key(index, writer * 1000)..key(index, writer * 1000 + 1000);
                    let tags: Vec<&[u8]> = found.range(range).map(|(_, value)| &value[..8]).collect();
                    assert!(tags.windows(2).all(|pair| pair[0] == pair[1]), "writer {writer}: parts of two commits");
                    assert!(tags.is_empty() || tags.len() == 150, "writer {writer}: {} rows", tags.len());
                }
            }
        };
        let reader = std::thread::spawn({
            let (engine, done) = (engine.clone(), done.clone());
            move || {
                while !done.load(Ordering::SeqCst) {
                    check(&engine);
                }
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let engine = engine.clone();
                std::thread::spawn(move || {
                    let mut rng = Rng::new(writer);
                    let mut txn = engine.begin();
                    for round in 1..=12u64 {
                        let mut ks: Vec<u64> = (0..150).map(|k| writer * 1000 + k).collect();
                        if round % 2 == 0 {
                            ks.reverse();
                        }
                        for index in [A, B] {
                            for &k in &ks {
                                txn.put(&key(index, k), &value(&mut rng, writer * 100 + round, 300)).unwrap();
                            }
                        }
                        if round % 3 == 0 {
                            txn.prepare(format!("{writer}/{round}").as_bytes()).unwrap();
                            txn.commit_ordered();
                        }
                        txn.commit().unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        reader.join().unwrap();
        check(&engine);
        engine.wait_idle().unwrap();
        assert_eq!(orphans(&engine, &disk), Vec::<String>::new());
        assert!(engine.metrics().work.spill_bytes > 1_000_000);
    });
}

/// A full disk fails the write that would spill, or the one after which runs are merged; nothing else changes. The
/// transaction can be rolled back, also to a savepoint, and the space comes back.
#[test]
fn a_full_disk_in_the_middle_can_be_undone() {
    let (mut at_spills, mut at_merges) = (0, 0);
    for room in (100_000..250_000).step_by(6_000) {
        let disk = MemDisk::new();
        let engine = open(&disk);
        let mut rng = Rng::new(1);
        let mut txn = engine.begin();
        let mut state = Map::new();
        fill(&mut txn, &mut state, &mut rng, 100, 1).unwrap();
        txn.commit().unwrap();
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        assert_eq!(orphans(&engine, &disk), Vec::<String>::new());
        disk.set_capacity(Some(disk.used() + room));
        let mut saved = state.clone();
        fill(&mut txn, &mut saved, &mut rng, 60, 2).unwrap();
        let savepoint = txn.savepoint();
        let mut written = saved.clone();
        let error = fill(&mut txn, &mut written, &mut rng, 5000, 3).unwrap_err();
        assert!(error.is_disk_full() && !matches!(error, Error::Poisoned(_)), "{error}");
        check_sees(&txn, &written);
        // A spill that failed is tried again by the next write; behind a merge that failed is an empty buffer, and with it
        // room in memory.
        let next = value(&mut rng, 3, 100);
        match txn.put(&key(A, 1), &next) {
            Ok(()) => {
                at_merges += 1;
                written.insert(key(A, 1), next);
            }
            Err(_) => at_spills += 1,
        }
        let error = fill(&mut txn, &mut written, &mut rng, 5000, 4).unwrap_err();
        assert!(error.is_disk_full() && !matches!(error, Error::Poisoned(_)), "{error}");
        check_sees(&txn, &written);
        txn.rollback_to(savepoint);
        check_sees(&txn, &saved);
        txn.rollback().unwrap();
        assert_eq!(dump(&engine, A, B + 1).unwrap(), state);
        assert_eq!(orphans(&engine, &disk), Vec::<String>::new());
        disk.set_capacity(None);
        fill(&mut txn, &mut state, &mut rng, 300, 5).unwrap();
        txn.commit().unwrap();
        assert_eq!(dump(&engine, A, B + 1).unwrap(), state);
    }
    assert!(at_spills > 0 && at_merges > 0, "both kinds of failure: {at_spills}, {at_merges}");
}

/// The transaction reads exactly `state` in the indexes that `fill` writes.
fn check_sees(txn: &Txn, state: &Map) {
    let mut found = Vec::new();
    for key in [A, B].into_iter().flat_map(|index| (0..300).map(move |k| key(index, k))) {
        let there = txn.get(&key, SeqNo::MAX, &mut found).unwrap();
        assert_eq!(there.then_some(&found), state.get(&key), "{key:?}");
    }
}

/// An interrupted transaction stops at the next spill or merge and leaves nothing.
#[test]
fn an_interruption_ends_the_work_on_files() {
    let disk = MemDisk::new();
    let engine =
        Engine::open(Path::new(DIR), Options { transaction_bytes: 3 << 20, ..options(Arc::new(disk.clone())) });
    let engine = engine.unwrap();
    let mut txn = engine.begin();
    txn.owner().interrupt();
    let mut rng = Rng::new(1);
    let error = (0..).find_map(|k| txn.put(&key(A, k % 2000), &value(&mut rng, k, 2000)).err());
    assert!(matches!(error, Some(Error::Interrupted)), "{error:?}");
    txn.rollback().unwrap();
    assert_eq!(orphans(&engine, &disk), Vec::<String>::new());
    assert_eq!(dump(&engine, 0, u32::MAX).unwrap(), Map::new());
}

/// One value of many pieces is not written to its end for an interrupted transaction, nor read to it; afterwards the
/// transaction goes on as if nothing had been asked.
#[test]
fn an_interruption_ends_the_transfer_of_one_value() {
    let owner: Arc<Mutex<Option<Arc<LockOwner>>>> = Arc::default();
    let writes = Arc::new(AtomicU64::new(0));
    let hook: crate::common::Hook = {
        let (owner, writes) = (owner.clone(), writes.clone());
        Arc::new(move |what: &str, path: &Path| {
            let is_table = path.extension().is_some_and(|extension| extension == "sst");
            if what == "write" && is_table && writes.fetch_add(1, Ordering::Relaxed) == 3 {
                owner.lock().iter().for_each(|owner| owner.interrupt());
            }
        })
    };
    let disk = MemDisk::new();
    let options = Options { transaction_bytes: 3 << 20, ..options(hooked(disk.clone(), hook)) };
    let engine = Engine::open(Path::new(DIR), options).unwrap();
    let mut rng = Rng::new(1);
    let random: Vec<u8> = (0..24 << 17).flat_map(|_| rng.next().to_le_bytes()).collect();
    // Of this one there is next to nothing to write, or to read.
    let regular = vec![7; 24 << 20];
    let mut txn = engine.begin();
    for (k, value) in [(1, &random), (2, &regular)] {
        writes.store(0, Ordering::Relaxed);
        *owner.lock() = Some(txn.owner().clone());
        if k == 2 {
            txn.owner().interrupt();
        }
        let written = txn.put_parts(&key(A, k), &[b"head", value]);
        assert!(matches!(written, Err(Error::Interrupted)), "{written:?}");
        assert!(writes.load(Ordering::Relaxed) < 10, "{writes:?} writes");
        *owner.lock() = None;
        txn.owner().clear_interrupt();
        assert!(!txn.get(&key(A, k), SeqNo::MAX, &mut Vec::new()).unwrap());
        txn.put_parts(&key(A, k), &[b"head", value]).unwrap();
        txn.commit().unwrap();
    }
    assert_eq!(orphans(&engine, &disk), Vec::<String>::new());

    // Into one sorted run, of which a cursor has one row at a time.
    engine.compact_range(&IndexId(A).prefix(), &IndexId(B).prefix()).unwrap();
    let (point, mut cursor) = (engine.read_point(), engine.cursor());
    for k in [1, 2] {
        txn.owner().interrupt();
        let read = txn.get(&key(A, k), SeqNo::MAX, &mut Vec::new());
        assert!(matches!(read, Err(Error::Interrupted)), "{read:?}");
        cursor.open(&txn, point.seq(), &IndexId(A).prefix(), &IndexId(B).prefix()).unwrap();
        let sought = [cursor.seek_ge(&txn, &key(A, k)), cursor.seek_lt(&txn, &key(A, k + 1))];
        assert!(sought.iter().all(|sought| matches!(sought, Err(Error::Interrupted))), "{sought:?}");
        txn.owner().clear_interrupt();
        assert!(txn.get(&key(A, k), SeqNo::MAX, &mut Vec::new()).unwrap());
    }
    // On the way from one large row to the next.
    cursor.seek_ge(&txn, &key(A, 0)).unwrap();
    assert!(cursor.large_value().is_some_and(|value| value[4..] == random));
    txn.owner().interrupt();
    assert!(matches!(cursor.next(&txn), Err(Error::Interrupted)));
    txn.owner().clear_interrupt();
    cursor.seek_ge(&txn, &key(A, 2)).unwrap();
    assert!(cursor.value()[4..] == regular);
}

/// Snapshots from before a large commit do not see it, whatever is flushed or merged meanwhile, and an index dropped
/// right after it takes its files along.
#[test]
fn snapshots_and_drops_stay_right_around_a_large_commit() {
    let disk = MemDisk::new();
    let engine = open(&disk);
    let mut rng = Rng::new(9);
    let (mut before, mut txn) = (Map::new(), engine.begin());
    fill(&mut txn, &mut before, &mut rng, 50, 1).unwrap();
    txn.commit().unwrap();
    let point = engine.read_point();
    let mut after = before.clone();
    fill(&mut txn, &mut after, &mut rng, 200, 2).unwrap();
    txn.commit().unwrap();
    let mut out = Vec::new();
    for round in 0..3 {
        for k in 0..300 {
            let got = engine.get_at(&key(A, k), point.seq(), &mut out).unwrap().then(|| out.clone());
            assert_eq!(got.as_ref(), before.get(&key(A, k)), "round {round}");
            let got = engine.get_at(&key(A, k), engine.visible(), &mut out).unwrap().then(|| out.clone());
            assert_eq!(got.as_ref(), after.get(&key(A, k)), "round {round}");
        }
        match round {
            0 => engine.flush().unwrap(),
            _ => engine.compact_range(&IndexId(A).prefix(), &IndexId(B + 1).prefix()).unwrap(),
        }
    }
    fill(&mut txn, &mut after, &mut rng, 200, 3).unwrap();
    txn.commit().unwrap();
    engine.drop_indexes(&[IndexId(B)]).unwrap();
    after.retain(|key, _| IndexId::of(key) == IndexId(A));
    assert_eq!(dump(&engine, A, B).unwrap(), after);
    assert_eq!(orphans(&engine, &disk), Vec::<String>::new());
    assert_eq!(dump(&engine, A, B + 1).unwrap(), after);
}

#[test]
fn the_first_transaction_of_a_store_sees_each_own_row_once() {
    let disk = MemDisk::default();
    let engine = open(&disk);
    let mut txn = engine.begin();
    let mut rng = Rng::new(11);
    let mut own = Map::new();
    fill(&mut txn, &mut own, &mut rng, 900, 1).unwrap();
    let point = engine.read_point();
    assert_eq!(point.seq(), strata_engine::layer::SeqNo(0));
    let mut cursor = engine.cursor();
    cursor.open(&txn, point.seq(), &IndexId(A).prefix(), &IndexId(B + 1).prefix()).unwrap();
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    cursor.seek_ge(&txn, &[]).unwrap();
    while cursor.valid() {
        forward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next(&txn).unwrap();
    }
    cursor.seek_lt(&txn, &IndexId(B + 1).prefix()).unwrap();
    while cursor.valid() {
        backward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.prev(&txn).unwrap();
    }
    backward.reverse();
    assert_eq!(forward, own.into_iter().collect::<Vec<_>>());
    assert_eq!(backward, forward);
}

/// A table that is loaded, copied or gets an index is written once; rows that were there before are below what came later.
#[test]
fn files_that_are_first_in_their_index_go_to_the_last_level() {
    const LAST: usize = 6;
    let disk = MemDisk::new();
    let engine = open(&disk);
    let mut rng = Rng::new(5);
    let mut expected = Map::new();
    let mut put = |txn: &mut Txn, expected: &mut Map, index: u32, k: u64, tag: u64| {
        let value = value(&mut rng, tag, 200);
        txn.put(&key(index, k), &value).unwrap();
        expected.insert(key(index, k), value);
    };
    // B has a row in a memtable, and later ones of its own in files.
    let mut small = engine.begin();
    put(&mut small, &mut expected, B, 150, 1);
    small.commit().unwrap();
    drop(small);
    for (tag, from) in [(2, 0), (3, 1000)] {
        let mut txn = engine.begin();
        for k in from..from + 1000 {
            put(&mut txn, &mut expected, A, k, tag);
            put(&mut txn, &mut expected, B, k % 300, tag);
        }
        txn.commit().unwrap();
        engine.flush().unwrap();
        let metrics = engine.metrics();
        if tag == 2 {
            assert!(metrics.level_files[LAST] > 1, "{:?}", metrics.level_files);
            assert!(metrics.level_files[0] > 1, "{:?}", metrics.level_files);
        }
        assert_eq!(dump(&engine, A, B + 1).unwrap(), expected);
    }
    engine.compact_range(&[], &[0xff; 4]).unwrap();
    assert_eq!(dump(&engine, A, B + 1).unwrap(), expected);
    engine.close().unwrap();
    drop(engine);
    assert_eq!(dump(&open(&disk), A, B + 1).unwrap(), expected);
}

/// A value that goes to a file of its own, with small rows before and behind it: whatever fails on the way, the transaction is
/// as it was before the write, and the commit is there or not.
/// At both steps of the flush that names a large transaction's files in the manifest, the log names them, too.
#[test]
fn a_crash_while_a_flush_takes_files_over_keeps_them_once() {
    within("takeover", 60, || {
        for wanted in [CrashPoint::TakeoverBegins, CrashPoint::TakenOver] {
            let disk = MemDisk::new();
            let image: Arc<Mutex<Option<(MemDisk, bool)>>> = Arc::default();
            let committed = Arc::new(AtomicBool::new(false));
            let on_crash_point: CrashHook = {
                let (disk, image, committed) = (disk.clone(), image.clone(), committed.clone());
                Arc::new(move |step| {
                    if step == wanted {
                        let is_committed = committed.load(Ordering::SeqCst);
                        image.lock().get_or_insert_with(|| (disk.crash(7), is_committed));
                    }
                })
            };
            let options = Options { on_crash_point: Some(on_crash_point), ..large(Arc::new(disk.clone())) };
            let engine = Engine::open(Path::new(DIR), options).unwrap();
            let (mut rng, mut model) = (Rng::new(5), Map::new());
            // Small rows are in the memtable in front of the files.
            recycle(&engine, &mut model, &mut rng, |_, _| {});
            engine.write(&[(key(C, 100), Some(b"before".to_vec()))], true).unwrap();
            model.insert(key(C, 100), b"before".to_vec());
            let (mut txn, before) = (engine.begin(), model.clone());
            fill(&mut txn, &mut model, &mut rng, 300, 1).unwrap();
            txn.commit().unwrap();
            committed.store(true, Ordering::SeqCst);
            engine.flush().unwrap();
            let (image, is_committed) = image.lock().take().expect("the flush has taken files over");
            // The flush may begin before the commit is durable, but does not name the files before.
            if wanted == CrashPoint::TakeoverBegins && !is_committed && dump(&open(&image), A, C + 1).unwrap() == before
            {
                model = before;
            }
            for _ in 0..2 {
                let engine = open(&image);
                assert_eq!(dump(&engine, A, C + 1).unwrap(), model, "after a crash at {}", wanted.name());
                assert_eq!(orphans(&engine, &image), Vec::<String>::new());
                assert_eq!(dump(&engine, A, C + 1).unwrap(), model, "after a flush");
                engine.close().unwrap();
            }
        }
    });
}

#[test]
fn a_large_value_is_there_or_not_whatever_fails() {
    let (mut at_puts, mut at_commits) = (0, 0);
    for kind in [FaultKind::Other, FaultKind::StorageFull] {
        for n in 1.. {
            let value = vec![n as u8; (1 << 20) + 77];
            let pending = within(&format!("{kind:?} {n}"), 60, move || {
                let disk = MemDisk::new();
                let engine = open(&disk);
                let mut txn = engine.begin();
                let mut before = Map::new();
                fill(&mut txn, &mut before, &mut Rng::new(n), 20, 1).unwrap();
                txn.commit().unwrap();
                let mut after = before.clone();
                txn.put(&key(A, 400), b"small").unwrap();
                after.insert(key(A, 400), b"small".to_vec());
                let mark = txn.savepoint();
                disk.fail_after(n, kind);
                let parts: [&[u8]; 3] = [&value[..5], b"", &value[5..]];
                let put = txn.put_parts(&key(A, 401), &parts);
                if put.is_err() {
                    assert_eq!(txn.savepoint(), mark);
                    check_sees(&txn, &after);
                    // The failure was that of one operation.
                    let again = txn.put_parts(&key(A, 401), &parts);
                    assert!(again.is_ok() || matches!(again, Err(Error::Poisoned(_))), "{again:?}");
                    if again.is_err() {
                        return (disk.clear_fault(), true, false);
                    }
                }
                after.insert(key(A, 401), value);
                check_sees(&txn, &after);
                txn.delete(&key(B, 400)).unwrap();
                let committed = txn.commit();
                let pending = disk.clear_fault();
                drop((txn, engine));
                let image = disk.crash(n);
                let engine = open(&image);
                let found = dump(&engine, A, B + 1).unwrap();
                assert!(found == after || committed.is_err() && found == before, "{kind:?} {n}: {committed:?}");
                assert_eq!(orphans(&engine, &image), Vec::<String>::new());
                (pending, put.is_err(), committed.is_err())
            });
            at_puts += u32::from(pending.1);
            at_commits += u32::from(pending.2);
            if pending.0 {
                break;
            }
        }
    }
    assert!(at_puts > 4 && at_commits > 2, "failures at puts {at_puts}, at commits {at_commits}");
}
