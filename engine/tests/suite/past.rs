//! The history of a store: each moment of the retention can be read, as a snapshot of then would have shown it, whatever merges,
//! restarts and crashes have come between.
//!
//! `STRATA_SEED` repeats one case, `STRATA_CASES` (percent) chooses how many there are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::day_clock::DayClock;
use crate::common::{DIR, Map, OnFailure, Rng, by_turns, eventually, hooked, key, options, seeds, value, within};
use parking_lot::Mutex;
use strata_engine::io::{Clock, Disk, MemDisk};
use strata_engine::layer::{IndexId, LockMode, SeqNo, Wait};
use strata_engine::{Engine, Error, Options};

const INDEX: u32 = 16;
/// Monday, 23 November 2026, 10:00:00 UTC.
const BEGIN: u64 = 1_795_428_000;

fn with_history(disk: Arc<dyn Disk>, clock: &Arc<DayClock>, retention: u64) -> Options {
    Options { clock: clock.clone(), history_retention_s: retention, ..options(disk) }
}

fn open(disk: &MemDisk, clock: &Arc<DayClock>, retention: u64) -> Engine {
    Engine::open(Path::new(DIR), with_history(Arc::new(disk.clone()), clock, retention)).unwrap()
}

/// Everything in the index, at a read point.
fn dump_at(engine: &Engine, seq: SeqNo) -> Map {
    let txn = engine.begin();
    let mut cursor = engine.cursor();
    let (lower, upper) = (IndexId(INDEX).prefix(), IndexId(INDEX + 1).prefix());
    cursor.open(&txn, seq, &lower, &upper).unwrap();
    let mut map = Map::new();
    cursor.seek_ge(&txn, &lower).unwrap();
    while cursor.valid() {
        map.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next(&txn).unwrap();
    }
    map
}

fn see(engine: &Engine, moment: u64) -> Result<Map, String> {
    match engine.read_point_at(moment) {
        Ok(point) => {
            engine.await_visible(point.seq());
            let map = dump_at(engine, point.seq());
            // Going back, versions of a key come in another order.
            let (txn, mut cursor) = (engine.begin(), engine.cursor());
            let (lower, upper) = (IndexId(INDEX).prefix(), IndexId(INDEX + 1).prefix());
            cursor.open(&txn, point.seq(), &lower, &upper).unwrap();
            cursor.seek_lt(&txn, &upper).unwrap();
            let mut back = Vec::new();
            while cursor.valid() {
                back.push((cursor.key().to_vec(), cursor.value().to_vec()));
                cursor.prev(&txn).unwrap();
            }
            assert!(back.iter().rev().map(|(k, v)| (k, v)).eq(map.iter()), "backward is another state");
            Ok(map)
        }
        Err(Error::Moment(what)) => Err(what),
        Err(error) => panic!("{error}"),
    }
}

fn put(engine: &Engine, k: u64, value: &[u8]) {
    let mut txn = engine.begin();
    txn.lock(&key(INDEX, k), LockMode::Exclusive, Wait::No).unwrap();
    txn.put(&key(INDEX, k), value).unwrap();
    txn.commit().unwrap();
}

/// What is known of a store: its state when each second began, from the first one on that it knows.
struct Book {
    truth: BTreeMap<u64, Map>,
    /// The state now, and what the commit that is under way makes of it.
    now: Map,
    next: Option<Map>,
    /// Transactions in two phases that were begun, and of these, how many are committed.
    xids: u64,
    decided: u64,
}

/// Runs a store with a history until a crash at a random operation of any of its threads; returns the image, and what was known by then:
/// the commit under way may be in it.
fn run(disk: &MemDisk, clock: &Arc<DayClock>, retention: u64, rng: &mut Rng, mut book: Book) -> (MemDisk, Book) {
    let countdown = Arc::new(AtomicU64::new(20 + rng.below(1500)));
    let image: Arc<Mutex<Option<MemDisk>>> = Arc::default();
    let hook = {
        let (countdown, image, disk, seed) = (countdown.clone(), image.clone(), disk.clone(), rng.next());
        Arc::new(move |_: &str, _: &Path| {
            if countdown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) == Ok(1) {
                // The lock comes first: what is acknowledged before it is given back may be missing in the image.
                let mut image = image.lock();
                *image = Some(disk.crash(seed));
            }
        })
    };
    let options = with_history(hooked(disk.clone(), hook), clock, retention);
    let engine = Engine::open(Path::new(DIR), by_turns(rng.below(2), options)).unwrap();
    for step in 0.. {
        if image.lock().is_some() || step > 4000 {
            break;
        }
        match rng.below(100) {
            0..70 => {
                let mut next = book.now.clone();
                let mut txn = engine.begin();
                for _ in 0..1 + rng.below(4) {
                    let key = key(INDEX, rng.below(40));
                    txn.lock(&key, LockMode::Exclusive, Wait::No).unwrap();
                    if rng.chance(30) {
                        txn.delete(&key).unwrap();
                        next.remove(&key);
                    } else {
                        let bytes = if rng.chance(2) { 200_000 } else { 300 };
                        let new = value(rng, step, bytes);
                        txn.put(&key, &new).unwrap();
                        next.insert(key, new);
                    }
                }
                // In two phases it may be in doubt after a crash, also for a while after its end.
                if rng.chance(30) {
                    book.next = Some(next);
                    book.xids += 1;
                    txn.prepare(&book.xids.to_be_bytes()).unwrap();
                    txn.commit_ordered();
                    txn.commit().unwrap();
                } else {
                    book.next = Some(next);
                    txn.commit().unwrap();
                }
                if image.lock().is_some() {
                    break;
                }
                book.now = book.next.take().unwrap();
                book.decided = book.xids;
            }
            70..85 => {
                // The second ends; now and then several.
                let seconds = if rng.chance(10) { 1 + rng.below(20) } else { 1 };
                let now = clock.unix_us() / 1_000_000;
                for second in now + 1..=now + seconds {
                    book.truth.insert(second, book.now.clone());
                }
                clock.set(now + seconds);
            }
            85..87 => engine.flush().unwrap(),
            87 => engine.compact_range(&IndexId(INDEX).prefix(), &IndexId(INDEX + 1).prefix()).unwrap(),
            _ => check(&engine, clock, retention, rng, &book),
        }
    }
    let image = image.lock().take().unwrap_or_else(|| disk.crash(rng.next()));
    drop(engine);
    (image, book)
}

/// Looks at random moments.
fn check(engine: &Engine, clock: &Arc<DayClock>, retention: u64, rng: &mut Rng, book: &Book) {
    let now = clock.unix_us() / 1_000_000;
    let first = *book.truth.keys().next().unwrap();
    let oldest = first.max(now.saturating_sub(retention));
    let moment = oldest + rng.below(now + 1 - oldest);
    let seen = see(engine, moment).unwrap_or_else(|what| panic!("{moment}, of {oldest} to {now}: {what}"));
    if seen != book.truth[&moment] {
        let same: Vec<u64> =
            book.truth.iter().filter(|(_, state)| **state == seen).map(|(second, _)| *second).collect();
        let differs = |k: &&Vec<u8>| seen.get(*k) != book.truth[&moment].get(*k);
        let keys: Vec<String> = seen
            .keys()
            .chain(book.truth[&moment].keys())
            .filter(differs)
            .map(|k| k.escape_ascii().to_string())
            .collect();
        eprintln!("it is the state of {same:?} (now: {}); other keys: {keys:?}", seen == book.now);
    }
    assert!(seen == book.truth[&moment], "moment {moment} of {oldest} to {now} is another state");
    assert!(see(engine, oldest - 1).is_err_and(|what| what.contains("not kept")));
    assert!(see(engine, now + 1).is_err_and(|what| what.contains("future")));
}

fn history(seed: u64) {
    let _on_failure = OnFailure(format!("seed {seed}"));
    let mut rng = Rng::new(seed);
    let (retention, clock) = (1 + rng.below(60), DayClock::at(BEGIN));
    let mut disk = MemDisk::new();
    drop(open(&disk, &clock, retention));
    let truth = BTreeMap::from([(BEGIN + 1, Map::new())]);
    clock.set(BEGIN + 1);
    let mut book = Book { truth, now: Map::new(), next: None, xids: 0, decided: 0 };
    for _ in 0..4 {
        (disk, book) = run(&disk, &clock, retention, &mut rng, book);
        let engine = open(&disk, &clock, retention);
        let mut in_doubt = engine.prepared();
        in_doubt.sort();
        for xid in in_doubt {
            match u64::from_be_bytes(xid[..].try_into().unwrap()) <= book.decided {
                true => assert!(engine.commit_prepared(&xid).unwrap()),
                false => assert!(engine.rollback_prepared(&xid).unwrap()),
            }
        }
        engine.end_recovery();
        let is = dump_at(&engine, engine.visible());
        if let Some(next) = book.next.take().filter(|next| is == *next) {
            book.now = next;
        }
        assert!(is == book.now, "the newest state is another one");
        for _ in 0..20 {
            check(&engine, &clock, retention, &mut rng, &book);
        }
        drop(engine);
    }
}

#[test]
fn every_moment_is_what_it_was_after_any_crash() {
    for seed in seeds(40) {
        within(&format!("seed {seed}"), 120, move || history(seed));
    }
}

#[test]
fn what_the_past_saw_goes_when_the_retention_is_over() {
    within("retention", 120, || {
        let (disk, clock) = (MemDisk::new(), DayClock::at(BEGIN));
        let engine = open(&disk, &clock, 100);
        for second in 1..=20 {
            clock.set(BEGIN + second);
            for k in 0..200 {
                // Many versions within a second: one of them is kept.
                (0..3).for_each(|n| put(&engine, k, format!("{second} {n} {}", "x".repeat(100)).as_bytes()));
            }
        }
        let whole = || engine.compact_range(&IndexId(INDEX).prefix(), &IndexId(INDEX + 1).prefix()).unwrap();
        whole();
        let metrics = engine.metrics();
        assert_eq!(metrics.history_moments, 20);
        assert_eq!((metrics.history_oldest, metrics.history_retention_s), (BEGIN + 1, 100));
        let entries = engine.index_stats(IndexId(INDEX)).entries;
        assert_eq!(entries, 200 * 20, "a version for each second");
        let old = metrics.history_bytes;
        assert!((200 * 19 * 100..200 * 20 * 150).contains(&old), "{old}");

        // It is over: what is merged next has none, and is rewritten by itself where nothing else would.
        clock.set(BEGIN + 300);
        eventually("the end of the retention", || engine.metrics().history_moments == 0);
        put(&engine, 1000, b"last");
        engine.flush().unwrap();
        eventually("the end of old versions", || engine.metrics().history_bytes == 0);
        assert_eq!(engine.index_stats(IndexId(INDEX)).entries, 201);
        assert_eq!(see(&engine, BEGIN + 200).unwrap().len(), 200);
    });
}

/// A store that has lived some seconds, in each of which a row was written anew.
fn lived(retention: u64, seconds: u64) -> (MemDisk, Arc<DayClock>, Engine) {
    let (disk, clock) = (MemDisk::new(), DayClock::at(BEGIN));
    let engine = open(&disk, &clock, retention);
    for second in 1..=seconds {
        clock.set(BEGIN + second);
        put(&engine, 1, format!("{second}").as_bytes());
    }
    (disk, clock, engine)
}

#[test]
fn without_retention_nothing_is_kept_nor_written() {
    within("none", 120, || {
        let (_disk, _clock, engine) = lived(0, 5);
        let metrics = engine.metrics();
        assert_eq!((metrics.history_moments, metrics.history_oldest, metrics.internal_commits), (0, 0, 0));
        assert!(engine.features().iter().all(|feature| feature.name() != "history"));
        assert_eq!(
            see(&engine, BEGIN + 2).unwrap_err(),
            "The moment 2026-11-23 10:00:02 UTC is not kept: no history is"
        );
    });
}

#[test]
fn a_history_that_was_off_begins_anew() {
    within("off and on", 120, || {
        let (disk, clock) = (MemDisk::new(), DayClock::at(BEGIN));
        let engine = open(&disk, &clock, 100);
        clock.set(BEGIN + 1);
        put(&engine, 1, b"one");
        clock.set(BEGIN + 5);
        assert_eq!(see(&engine, BEGIN + 2).unwrap().len(), 1);
        engine.set_history_retention(0).unwrap();
        assert!(see(&engine, BEGIN + 2).is_err());
        put(&engine, 2, b"two");
        engine.set_history_retention(100).unwrap();
        put(&engine, 3, b"three");
        assert!(see(&engine, BEGIN + 2).is_err());
        clock.set(BEGIN + 6);
        put(&engine, 4, b"four");
        assert_eq!(see(&engine, BEGIN + 6).unwrap().len(), 3);
        let refused = see(&engine, BEGIN + 5).unwrap_err();
        assert!(refused.ends_with("the oldest that can be read is 2026-11-23 10:00:06 UTC"), "{refused}");

        // An opening without ends it, also if it crashes; one with begins anew.
        drop(engine);
        drop(open(&disk, &clock, 0));
        let disk = disk.crash(1);
        clock.set(BEGIN + 7);
        let engine = open(&disk, &clock, 100);
        clock.set(BEGIN + 9);
        assert!(see(&engine, BEGIN + 6).is_err());
        assert!(see(&engine, BEGIN + 7).is_err());
        assert_eq!(see(&engine, BEGIN + 8).unwrap().len(), 4);

        // A shorter retention forgets for good.
        clock.set(BEGIN + 50);
        engine.set_history_retention(10).unwrap();
        engine.set_history_retention(100).unwrap();
        assert!(see(&engine, BEGIN + 39).is_err());
        assert_eq!(see(&engine, BEGIN + 40).unwrap().len(), 4);
    });
}

#[test]
fn a_clock_that_is_set_back_far_ends_the_history() {
    within("set back", 120, || {
        let (disk, clock) = (MemDisk::new(), DayClock::at(BEGIN));
        let engine = open(&disk, &clock, 1000);
        for second in [1, 2, 3] {
            clock.set(BEGIN + second);
            put(&engine, second, b"x");
        }
        // A little: nothing happens.
        clock.set(BEGIN);
        put(&engine, 4, b"x");
        clock.set(BEGIN + 4);
        assert_eq!(see(&engine, BEGIN + 3).unwrap().len(), 2);
        assert_eq!(see(&engine, BEGIN + 4).unwrap().len(), 4);

        clock.set(BEGIN - 100);
        put(&engine, 5, b"x");
        assert!(see(&engine, BEGIN - 100).is_err());
        eventually("a new history", || engine.metrics().history_moments == 0);
        clock.set(BEGIN - 98);
        put(&engine, 6, b"x");
        assert_eq!(see(&engine, BEGIN - 98).unwrap().len(), 5);
        // No mark of the seconds that come again is believed.
        drop(engine);
        clock.set(BEGIN + 10);
        let engine = open(&disk.crash(3), &clock, 1000);
        for second in [1, 2, 3] {
            assert_eq!(see(&engine, BEGIN + second).unwrap().len(), 6);
        }
        assert_eq!(see(&engine, BEGIN - 98).unwrap().len(), 5);
    });
}

/// A reader of the past holds what it reads, also when the retention is over.
#[test]
fn a_snapshot_of_the_past_stays() {
    within("snapshot", 120, || {
        let (disk, clock) = (MemDisk::new(), DayClock::at(BEGIN));
        let engine = open(&disk, &clock, 10);
        let users = engine.keyspace("users").unwrap();
        clock.set(BEGIN + 1);
        engine.put(&users, "a", "1").unwrap();
        clock.set(BEGIN + 2);
        engine.put(&users, "a", "2").unwrap();
        let snapshot = engine.snapshot_at(BEGIN + 2).unwrap();
        clock.set(BEGIN + 100);
        engine.put(&users, "a", "3").unwrap();
        eventually("the end of the retention", || engine.metrics().history_moments == 1);
        engine.compact(&users).unwrap();
        assert_eq!(snapshot.get(&users, "a").unwrap().unwrap(), "1");
        assert!(engine.snapshot_at(BEGIN + 2).is_err());
        assert_eq!(engine.snapshot_at(BEGIN + 100).unwrap().get(&users, "a").unwrap().unwrap(), "2");
    });
}

/// A checkpoint has the history that the store has.
#[test]
fn a_checkpoint_has_the_history() {
    within("checkpoint", 120, || {
        let (disk, clock, engine) = lived(1000, 3);
        engine.flush().unwrap();
        engine.checkpoint(Path::new("/copy")).unwrap();
        clock.set(BEGIN + 4);
        let options = with_history(Arc::new(disk.clone()), &clock, 1000);
        let copy = Engine::open(Path::new("/copy"), options).unwrap();
        for second in 2..=4 {
            assert_eq!(see(&copy, BEGIN + second).unwrap()[&key(INDEX, 1)], format!("{}", second - 1).into_bytes());
        }
    });
}

/// The store of `examples/history_store.rs` on a disk of its own: the floor of its history, and its states by moments.
fn stored() -> (MemDisk, u64, BTreeMap<u64, Map>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/history");
    let disk = MemDisk::new();
    crate::common::copy(&folder.join("store"), &disk, Path::new(DIR));
    let text = std::fs::read_to_string(folder.join("moments.txt")).unwrap();
    let (floor, changes) = text.split_once('\n').unwrap();
    let mut changes: Vec<(u64, &str)> = changes
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(second, change)| (second.parse().unwrap(), change))
        .collect();
    // The prepared transaction is told when it is written.
    changes.sort_by_key(|(second, _)| *second);
    let (mut states, mut state, mut changes) = (BTreeMap::new(), Map::new(), changes.into_iter().peekable());
    for moment in BEGIN..=BEGIN + 41 {
        while let Some((_, change)) = changes.next_if(|(second, _)| *second < moment) {
            let (name, value) = change.split_once(' ').map_or((change, None), |(name, value)| (name, Some(value)));
            let key = [&IndexId(INDEX).prefix()[..], name.as_bytes()].concat();
            match value {
                Some(value) => drop(state.insert(key, value.as_bytes().to_vec())),
                None => drop(state.remove(&key)),
            }
        }
        states.insert(moment, state.clone());
    }
    assert!(changes.next().is_none() && state.len() > 5);
    (disk, floor.parse().unwrap(), states)
}

/// A history in the bytes of its first version is read, goes on, and is merged.
#[test]
fn a_stored_history_is_read_at_every_moment() {
    within("a stored history", 120, || {
        let (disk, floor, states) = stored();
        let clock = DayClock::at(BEGIN + 41);
        let all = |engine: &Engine| {
            assert!(see(engine, floor).is_err_and(|what| what.contains("not kept")));
            for (&moment, state) in states.range(floor + 1..) {
                assert!(see(engine, moment).unwrap() == *state, "moment {}", moment - BEGIN);
            }
        };
        let engine = open(&disk, &clock, 100);
        all(&engine);
        for second in 42..=50 {
            clock.set(BEGIN + second);
            put(&engine, second, b"newer");
        }
        engine.flush().unwrap();
        engine.compact_range(&IndexId(0).prefix(), &IndexId(u32::MAX).prefix()).unwrap();
        all(&engine);
        drop(engine);
        // Also after a crash, and when it has been closed.
        let disk = disk.crash(1);
        let engine = open(&disk, &clock, 100);
        all(&engine);
        engine.close().unwrap();
        drop(engine);
        all(&open(&disk, &clock, 100));
    });
}

/// It ends with an opening without a retention, and does not come back.
#[test]
fn a_stored_history_ends_when_it_is_not_asked_for() {
    within("the end of a stored history", 120, || {
        let (disk, _, states) = stored();
        let clock = DayClock::at(BEGIN + 41);
        let engine = open(&disk, &clock, 0);
        assert!(see(&engine, BEGIN + 35).is_err());
        assert!(dump_at(&engine, engine.visible()) == states[&(BEGIN + 41)]);
        engine.close().unwrap();
        drop(engine);
        let engine = open(&disk, &clock, 100);
        assert!(see(&engine, BEGIN + 35).is_err());
        clock.set(BEGIN + 42);
        assert!(see(&engine, BEGIN + 42).unwrap() == states[&(BEGIN + 41)]);
    });
}

/// A version that is not known keeps the store shut.
#[test]
fn a_stored_mark_of_another_version_is_refused() {
    within("another version", 120, || {
        let (disk, clock) = (MemDisk::new(), DayClock::at(BEGIN));
        let engine = open(&disk, &clock, 100);
        let mut txn = engine.begin();
        // The place of a mark, with a value that says another version.
        let key = [&[0xff, 0xff, 0, 0, 1][..], &(BEGIN + 1).to_be_bytes()].concat();
        txn.lock(&key, LockMode::Exclusive, Wait::No).unwrap();
        txn.put(&key, &[2, 0]).unwrap();
        txn.commit().unwrap();
        engine.close().unwrap();
        drop((txn, engine));
        let refused = Engine::open(Path::new(DIR), with_history(Arc::new(disk.clone()), &clock, 100));
        match refused {
            Err(error @ Error::Incompatible { .. }) => assert!(error.to_string().contains("has version 2"), "{error}"),
            other => panic!("{:?}", other.err()),
        }
    });
}
