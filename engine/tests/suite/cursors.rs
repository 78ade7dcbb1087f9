//! Cursors that stay open while memtables are flushed: they show what their read point shows, and give up memory.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Map, OnFailure, Rng, key, left_behind, options, seeds, value, within};
use strata_engine::io::MemDisk;
use strata_engine::layer::{Cursor, IndexId, ReadPoint, Txn};
use strata_engine::{Engine, Options};

const KEYS: u64 = 3000;

fn open(sst_bytes: u64, transaction_bytes: u64) -> Engine {
    let options =
        Options { memtable_budget_bytes: 8 << 20, sst_bytes, transaction_bytes, ..options(Arc::new(MemDisk::new())) };
    Engine::open(Path::new(DIR), options).unwrap()
}

fn bounds() -> ([u8; 4], [u8; 4]) {
    (IndexId(1).prefix(), IndexId(2).prefix())
}

/// So much is pinned. A thread of the store may hold what it looks at for a moment longer; the watchdog ends the wait for what never
/// comes.
fn await_pinned(engine: &Engine, bytes: u64) {
    while engine.metrics().memtable_pinned_bytes != bytes {
        std::thread::yield_now();
    }
}

#[test]
fn a_cursor_gives_up_flushed_memtables_with_its_next_step() {
    within("renewal", 60, || {
        let engine = open(1 << 20, 0);
        let mut rng = Rng::new(1);
        for k in 0..KEYS {
            engine.write(&[(key(1, k), Some(value(&mut rng, k, 200)))], false).unwrap();
        }
        let (none, point, (lower, upper)) = (engine.begin(), engine.read_point(), bounds());
        let open_at = |k| {
            let mut cursor = engine.cursor();
            cursor.open(&none, point.seq(), &lower, &upper).unwrap();
            cursor.seek_ge(&none, &key(1, k)).unwrap();
            cursor
        };
        let (mut forward, mut backward, mut seeker) = (open_at(10), open_at(10), open_at(10));
        assert_eq!(engine.metrics().memtable_pinned_bytes, 0);
        engine.flush().unwrap();
        let pinned = engine.metrics().memtable_pinned_bytes;
        assert!(pinned > KEYS * 200, "{pinned}");
        // New versions that the cursors must not see.
        for k in 0..KEYS {
            engine.write(&[(key(1, k), None), (key(2, k), None)], false).unwrap();
        }
        engine.flush().unwrap();
        // Standing still they hold what they stand on.
        await_pinned(&engine, pinned);
        assert_eq!(forward.key(), key(1, 10));
        forward.next(&none).unwrap();
        backward.prev(&none).unwrap();
        // One still holds it.
        await_pinned(&engine, pinned);
        seeker.seek_lt(&none, &key(1, 10)).unwrap();
        await_pinned(&engine, 0);
        assert_eq!([forward.key(), backward.key(), seeker.key()], [key(1, 11), key(1, 9), key(1, 9)]);
        let mut rows = 0;
        while forward.valid() {
            rows += 1;
            forward.next(&none).unwrap();
        }
        assert_eq!(rows, KEYS - 11);
        forward.close();
        backward.close();
        seeker.close();
        drop(point);
        assert_eq!(left_behind(&engine), []);
    });
}

#[test]
fn a_cursor_on_a_dropped_index_keeps_what_it_has() {
    within("dropped", 60, || {
        let engine = open(1 << 20, 0);
        for k in 0..100 {
            engine.write(&[(key(1, k), Some(vec![1]))], false).unwrap();
        }
        let (none, point, (lower, upper)) = (engine.begin(), engine.read_point(), bounds());
        let mut cursor = engine.cursor();
        cursor.open(&none, point.seq(), &lower, &upper).unwrap();
        cursor.seek_ge(&none, &lower).unwrap();
        engine.drop_indexes(&[IndexId(1)]).unwrap();
        engine.write(&[(key(2, 0), Some(vec![1]))], false).unwrap();
        engine.flush().unwrap();
        let mut rows = 0;
        while cursor.valid() {
            rows += 1;
            cursor.next(&none).unwrap();
        }
        assert_eq!(rows, 100);
    });
}

/// A cursor, what it is to show, and where it stands.
struct Open {
    cursor: Cursor,
    _point: ReadPoint,
    shown: Map,
    at: Option<Vec<u8>>,
}

impl Open {
    fn check(&mut self, expected: Option<(&Vec<u8>, &Vec<u8>)>) {
        let found = self.cursor.valid().then(|| (self.cursor.key().to_vec(), self.cursor.value().to_vec()));
        assert_eq!(found.as_ref().map(|(k, v)| (k, v)), expected);
        self.at = found.map(|(k, _)| k);
    }

    fn step(&mut self, own: &Txn, rng: &mut Rng) {
        let shown = std::mem::take(&mut self.shown);
        match (self.at.take(), rng.below(10)) {
            (Some(at), 0..=4) => {
                self.cursor.next(own).unwrap();
                self.check(shown.range((Bound::Excluded(at), Bound::Unbounded)).next());
            }
            (Some(at), 5..=7) => {
                self.cursor.prev(own).unwrap();
                self.check(shown.range(..at).next_back());
            }
            (_, n) => {
                let to = key(1, rng.below(KEYS));
                if n % 2 == 0 {
                    self.cursor.seek_ge(own, &to).unwrap();
                    self.check(shown.range(to..).next());
                } else {
                    self.cursor.seek_lt(own, &to).unwrap();
                    self.check(shown.range(..to).next_back());
                }
            }
        }
        self.shown = shown;
    }
}

/// Cursors step this way and that, over the writes of a transaction in memory and in files, while others commit, memtables are
/// flushed and files merged.
#[test]
fn cursors_show_their_read_point_through_flushes() {
    for seed in seeds(6) {
        within("model", 120, move || {
            let _note = OnFailure(format!("STRATA_SEED={seed}"));
            let mut rng = Rng::new(seed);
            let engine = open(64 << 10, [0, 20 << 10][seed as usize % 2]);
            let mut committed = Map::new();
            let mut own = engine.begin();
            // Of an index whose keys nobody else writes, so that there is nothing to lock.
            for k in (0..KEYS).step_by(7) {
                own.put(&key(1, k), &value(&mut rng, k, 300)).unwrap();
            }
            let mut open: Vec<Open> = Vec::new();
            for round in 0..400u64 {
                for _ in 0..rng.below(20) {
                    let k = rng.below(KEYS);
                    if k % 7 == 0 {
                        continue;
                    }
                    let written = (!rng.chance(30)).then(|| value(&mut rng, round, 100));
                    engine.write(&[(key(1, k), written.clone())], false).unwrap();
                    match written {
                        Some(written) => committed.insert(key(1, k), written),
                        None => committed.remove(&key(1, k)),
                    };
                }
                if open.len() < 4 {
                    let (point, (lower, upper)) = (engine.read_point(), bounds());
                    let mut shown = committed.clone();
                    let mut out = Vec::new();
                    for k in (0..KEYS).step_by(7) {
                        if own.get(&key(1, k), point.seq(), &mut out).unwrap() {
                            shown.insert(key(1, k), out.clone());
                        }
                    }
                    let mut cursor = engine.cursor();
                    cursor.open(&own, point.seq(), &lower, &upper).unwrap();
                    open.push(Open { cursor, _point: point, shown, at: None });
                }
                for open in &mut open {
                    for _ in 0..rng.below(12) {
                        open.step(&own, &mut rng);
                    }
                }
                if rng.chance(20) {
                    engine.flush().unwrap();
                }
                if rng.chance(3) {
                    let (lower, upper) = bounds();
                    engine.compact_range(&lower, &upper).unwrap();
                }
                if rng.chance(10) {
                    let at = rng.below(open.len() as u64) as usize;
                    drop(open.swap_remove(at));
                }
            }
            engine.flush().unwrap();
            // Whatever they hold, a step gives it up.
            for open in &mut open {
                open.cursor.seek_ge(&own, &key(1, 0)).unwrap();
            }
            await_pinned(&engine, 0);
        });
    }
}

/// The end that a cursor is opened with comes to the files: a range of several blocks is one read. Where nobody said how much is
/// wanted, it is two.
#[test]
fn a_cursor_with_an_end_reads_its_range_at_once() {
    within("range", 60, || {
        let disk = MemDisk::new();
        let open = || {
            let options =
                Options { block_cache_bytes: 8 << 20, sst_bytes: 64 << 10, ..options(Arc::new(disk.clone())) };
            Engine::open(Path::new(DIR), options).unwrap()
        };
        let mut rng = Rng::new(3);
        let engine = open();
        for k in 0..KEYS {
            // Some 300 bytes, a quarter of which is left when they are compressed.
            let random: Vec<u8> = (0..8).flat_map(|_| rng.next().to_le_bytes()).collect();
            engine.write(&[(key(1, k), Some([random, vec![b'v'; 250]].concat()))], false).unwrap();
        }
        let (lower, upper) = bounds();
        engine.flush().unwrap();
        engine.compact_range(&lower, &upper).unwrap();
        engine.close().unwrap();
        drop(engine);

        let mut reads = Vec::new();
        for end in [key(1, 1600), upper.to_vec()] {
            let engine = open();
            let (none, point) = (engine.begin(), engine.read_point());
            let mut cursor = engine.cursor();
            // Opens the file, and has its index in the cache.
            cursor.open(&none, point.seq(), &lower, &upper).unwrap();
            cursor.seek_ge(&none, &key(1, 1499)).unwrap();
            cursor.open(&none, point.seq(), &key(1, 1520), &end).unwrap();
            let before = disk.counters().reads;
            cursor.seek_ge(&none, &key(1, 1520)).unwrap();
            for _ in 1520..1599 {
                cursor.next(&none).unwrap();
            }
            assert_eq!(cursor.key(), key(1, 1599));
            reads.push(disk.counters().reads - before);
            cursor.close();
        }
        assert_eq!(reads, [1, 2]);
    });
}
