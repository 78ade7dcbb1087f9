//! What scans and merges hold, and read, of rows that fill a block by themselves: one value at a time, the one that is chosen
//! among the versions of a key, wherever these lie. Bytes of large blocks are counted in the whole process, so the tests of
//! this program run one after the other.

#[path = "suite/common/mod.rs"]
mod common;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{DIR, Map, Rng, key, plain_options, within};
use parking_lot::Mutex;
use strata_engine::internals::base::slots::large_bytes;
use strata_engine::io::{Disk, HookedDisk, MemDisk, Operation};
use strata_engine::layer::{IndexId, ReadPoint};
use strata_engine::{Engine, Error, Options, Result};

static ALONE: Mutex<()> = Mutex::new(());

const VALUE: usize = 2 << 20;
/// What the memory of a block is rounded up by, its head, blocks of an index.
const BESIDE: usize = 128 << 10;

/// What was read of table files, and the most bytes of large blocks at any read.
#[derive(Default)]
struct Seen {
    read: AtomicUsize,
    held: AtomicUsize,
}

impl Seen {
    fn look(&self) {
        self.held.fetch_max(large_bytes(), Ordering::SeqCst);
    }

    /// Bytes read, and most bytes held, during `work`.
    fn during(&self, work: impl FnOnce()) -> (usize, usize) {
        self.held.store(0, Ordering::SeqCst);
        let before = self.read.load(Ordering::SeqCst);
        work();
        (self.read.load(Ordering::SeqCst) - before, self.held.load(Ordering::SeqCst))
    }
}

const INDEX: u32 = 1;

fn all() -> Range<[u8; 4]> {
    IndexId(INDEX).prefix()..IndexId(INDEX + 1).prefix()
}

/// Memory and files so large that nothing is flushed or merged unasked.
fn open(disk: &MemDisk, seen: &Arc<Seen>) -> Engine {
    let seen = seen.clone();
    let look = move |operation, path: &Path| {
        match operation {
            Operation::Read(bytes) if path.extension().is_some_and(|extension| extension == "sst") => {
                seen.look();
                seen.read.fetch_add(bytes, Ordering::SeqCst);
            }
            Operation::Write(_) => seen.look(),
            _ => {}
        }
        Ok(())
    };
    let disk = Arc::new(HookedDisk::new(Arc::new(disk.clone()), Arc::new(look)));
    let options = Options {
        memtable_budget_bytes: 256 << 20,
        log_segment_bytes: 64 << 20,
        sst_bytes: 64 << 20,
        compaction_threads: 1,
        ..plain_options(disk)
    };
    Engine::open(Path::new(DIR), options).unwrap()
}

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..bytes.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect()
}

/// A store and what was written to it.
struct Bed {
    disk: MemDisk,
    seen: Arc<Seen>,
    engine: Engine,
    state: Map,
    /// Read points with what they see.
    points: Vec<(ReadPoint, Map)>,
}

impl Bed {
    fn new() -> Bed {
        let (disk, seen) = (MemDisk::new(), Arc::new(Seen::default()));
        let engine = open(&disk, &seen);
        Bed { disk, seen, engine, state: Map::new(), points: Vec::new() }
    }

    fn write(&mut self, k: u64, value: Option<Vec<u8>>) {
        let key = key(INDEX, k);
        self.engine.write(&[(key.clone(), value.clone())], false).unwrap();
        match value {
            Some(value) => self.state.insert(key, value),
            None => self.state.remove(&key),
        };
    }

    fn flush(&self) {
        self.engine.flush().unwrap();
    }

    fn merge(&self) -> Result<()> {
        self.engine.compact_range(&all().start, &all().end)
    }

    fn note(&mut self) {
        self.points.push((self.engine.read_point(), self.state.clone()));
    }

    /// Walks over all rows that a read point sees, in both directions, and back and forth.
    fn scan(&self, point: &ReadPoint, expected: &Map) {
        let (txn, mut cursor) = (self.engine.begin(), self.engine.cursor());
        cursor.open(&txn, point.seq(), &all().start, &all().end).unwrap();
        let rows: Vec<(&Vec<u8>, &Vec<u8>)> = expected.iter().collect();
        let at = |cursor: &strata_engine::layer::Cursor, at: usize| {
            self.seen.look();
            let found = cursor.valid().then(|| (cursor.key(), cursor.value()));
            let row = rows.get(at).map(|(key, value)| (key.as_slice(), value.as_slice()));
            assert!(found == row, "row {at} of {}", rows.len());
        };
        cursor.seek_ge(&txn, &all().start).unwrap();
        for i in 0..rows.len() {
            at(&cursor, i);
            cursor.next(&txn).unwrap();
        }
        at(&cursor, usize::MAX);
        assert_eq!(large_bytes(), 0, "behind the last row");
        cursor.seek_lt(&txn, &all().end).unwrap();
        for i in (0..rows.len()).rev() {
            at(&cursor, i);
            cursor.prev(&txn).unwrap();
        }
        at(&cursor, usize::MAX);
        assert_eq!(large_bytes(), 0, "before the first row");
        // Two on, one back; and to each row once more by its key.
        cursor.seek_ge(&txn, &all().start).unwrap();
        let mut i = 0;
        while i + 2 < rows.len() {
            cursor.next(&txn).unwrap();
            cursor.next(&txn).unwrap();
            at(&cursor, i + 2);
            cursor.prev(&txn).unwrap();
            i += 1;
            at(&cursor, i);
        }
        for i in (0..rows.len()).rev() {
            cursor.seek_ge(&txn, rows[i].0).unwrap();
            at(&cursor, i);
        }
        drop(cursor);
        assert_eq!(large_bytes(), 0, "of a cursor that is closed");
    }
}

/// Versions of large rows in the last level, in two files of level 0 and in memory; between them small rows.
fn versions(value: impl Fn(u64) -> Vec<u8>) -> Bed {
    let mut bed = Bed::new();
    let mut seed = 0;
    let mut write = |bed: &mut Bed, keys: &[u64]| {
        for &k in keys {
            seed += 1;
            bed.write(k, Some(value(seed)));
        }
        seed += 1;
        bed.write(seed % 10 * 10 + 5, Some(vec![seed as u8; 100]));
        bed.note();
    };
    write(&mut bed, &[10, 20, 30, 40]);
    bed.merge().unwrap();
    write(&mut bed, &[10, 20, 50]);
    bed.write(40, None);
    bed.flush();
    write(&mut bed, &[10, 60]);
    bed.write(20, Some(b"small now".to_vec()));
    write(&mut bed, &[30]);
    bed.flush();
    write(&mut bed, &[10, 50]);
    bed
}

/// Each scan holds the value that it stands on and no other, whatever versions lie beside it. Of values that do not compress
/// it reads what it returns, and nothing that it passes.
#[test]
fn a_scan_holds_and_reads_the_versions_it_returns() {
    let _alone = ALONE.lock();
    within("scans", 300, || {
        for regular in [false, true] {
            let value = |seed: u64| if regular { vec![seed as u8; VALUE] } else { random(seed, VALUE) };
            let bed = versions(value);
            let (_, held) = bed.seen.during(|| bed.points.iter().for_each(|(point, state)| bed.scan(point, state)));
            assert!((VALUE..VALUE + BESIDE).contains(&held), "{held} bytes held");
            for (point, state) in &bed.points {
                let (txn, mut cursor) = (bed.engine.begin(), bed.engine.cursor());
                let large = state.values().filter(|value| value.len() >= VALUE).count();
                for backward in [false, true] {
                    let (read, _) = bed.seen.during(|| {
                        cursor.open(&txn, point.seq(), &all().start, &all().end).unwrap();
                        match backward {
                            false => cursor.seek_ge(&txn, &all().start).unwrap(),
                            true => cursor.seek_lt(&txn, &all().end).unwrap(),
                        }
                        while cursor.valid() {
                            if backward { cursor.prev(&txn) } else { cursor.next(&txn) }.unwrap();
                        }
                    });
                    assert!(read <= large * (VALUE + 8192) + BESIDE, "{read} bytes read for {large} values");
                }
            }
            // Merged with all that the read points need, each sees what it saw.
            // One merge at a time: what the background has begun comes first.
            let (_, held) = bed.seen.during(|| {
                bed.engine.wait_idle().unwrap();
                bed.merge().unwrap();
            });
            assert!(held < VALUE + BESIDE, "{held} bytes held by the merge");
            bed.points.iter().for_each(|(point, state)| bed.scan(point, state));
            bed.engine.verify_index(IndexId(INDEX)).unwrap();
            assert_eq!(bed.engine.metrics().large_block_bytes, 0);
        }
    });
}

/// A transaction reads its own large rows, which lie in files before it commits, one at a time as well.
#[test]
fn own_rows_in_files_are_held_one_at_a_time() {
    let _alone = ALONE.lock();
    within("own rows", 120, || {
        let bed = versions(|seed| random(seed, VALUE));
        let (point, before) = bed.points.last().unwrap();
        let mut own = before.clone();
        let mut txn = bed.engine.begin();
        for (round, k) in [(1, 10), (1, 30), (1, 70), (2, 10), (3, 10), (2, 70)] {
            let (key, value) = (key(INDEX, k), random(100 * round + k, VALUE));
            txn.put_parts(&key, &[&value]).unwrap();
            own.insert(key, value);
        }
        txn.delete(&key(INDEX, 50)).unwrap();
        own.remove(&key(INDEX, 50));
        let (_, held) = bed.seen.during(|| {
            let mut cursor = bed.engine.cursor();
            cursor.open(&txn, point.seq(), &all().start, &all().end).unwrap();
            for backward in [false, true] {
                let mut found = Vec::new();
                match backward {
                    false => cursor.seek_ge(&txn, &all().start).unwrap(),
                    true => cursor.seek_lt(&txn, &all().end).unwrap(),
                }
                while cursor.valid() {
                    bed.seen.look();
                    found.push((cursor.key().to_vec(), cursor.value().to_vec()));
                    if backward { cursor.prev(&txn) } else { cursor.next(&txn) }.unwrap();
                }
                if backward {
                    found.reverse();
                }
                assert!(found.into_iter().eq(own.clone()), "backward: {backward}");
            }
        });
        assert!((VALUE..VALUE + BESIDE).contains(&held), "{held} bytes held");
        let (_, held) = bed.seen.during(|| txn.commit().unwrap());
        assert!(held < VALUE + BESIDE, "{held} bytes held at the commit");
    });
}

/// Eight files with large rows, whose keys come in turn: merges, those of the background as well, hold one of them.
#[test]
fn a_merge_holds_one_large_row_of_all_its_sources() {
    let _alone = ALONE.lock();
    within("merge", 300, || {
        for with_snapshot in [false, true] {
            let mut bed = Bed::new();
            bed.seen.held.store(0, Ordering::SeqCst);
            for file in 0..8 {
                // Each file spans all keys, so it is a source of its own.
                for k in [0, 999] {
                    bed.write(k, Some(vec![file as u8; 50]));
                }
                for k in [10 + file, 30 + file, 50, 51] {
                    bed.write(k, Some(random(100 * file + k, VALUE)));
                }
                if with_snapshot && file == 4 {
                    bed.note();
                }
                bed.flush();
            }
            bed.engine.wait_idle().unwrap();
            bed.merge().unwrap();
            let held = bed.seen.held.load(Ordering::SeqCst);
            assert!((VALUE..VALUE + BESIDE).contains(&held), "{held} bytes held");
            bed.note();
            bed.points.iter().for_each(|(point, state)| bed.scan(point, state));
            bed.engine.verify_index(IndexId(INDEX)).unwrap();
        }
    });
}

/// Damage of a large value is met by who needs it, with file and offset, and by nobody else. A merge that needs it fails and
/// leaves the file alone; put right, it is merged.
#[test]
fn a_large_value_that_cannot_be_read_fails_who_needs_it() {
    let _alone = ALONE.lock();
    within("damage", 120, || {
        let mut bed = Bed::new();
        let values = [random(1, VALUE), random(2, VALUE)];
        bed.write(10, Some(values[0].clone()));
        bed.write(20, Some(b"beside".to_vec()));
        bed.note();
        bed.flush();
        bed.write(10, Some(values[1].clone()));
        bed.flush();
        bed.note();
        // In its first block each file has its large row. A merge's inputs go after it has ended: until then two files have the row.
        let file_of = |disk: &MemDisk, value: &[u8]| loop {
            let names = disk.list(Path::new(DIR)).unwrap().into_iter().map(|name| Path::new(DIR).join(name));
            let holds = |path: &PathBuf| {
                let content = disk.content(path).unwrap_or_default();
                content.iter().take(256).enumerate().any(|(at, _)| content[at..].starts_with(&value[..64]))
            };
            let tables = names.filter(|path| path.extension().is_some_and(|e| e == "sst"));
            let mut found: Vec<PathBuf> = tables.filter(holds).collect();
            if found.len() == 1 {
                break found.remove(0);
            }
            // Ends by `within` otherwise.
            std::thread::yield_now();
        };
        let old = file_of(&bed.disk, &values[0]);
        bed.disk.corrupt(&old, VALUE as u64 / 2);
        let offset_of = |found: Result<()>| match found {
            Err(Error::Corruption { path, offset, .. }) if path == old => offset,
            other => panic!("{other:?}"),
        };
        let (txn, mut cursor) = (bed.engine.begin(), bed.engine.cursor());
        bed.scan(&bed.points[1].0, &bed.points[1].1);
        cursor.open(&txn, bed.points[0].0.seq(), &all().start, &all().end).unwrap();
        assert_eq!(offset_of(cursor.seek_ge(&txn, &all().start)), 0);
        assert_eq!(offset_of(cursor.seek_lt(&txn, &key(INDEX, 20))), 0);
        cursor.seek_ge(&txn, &key(INDEX, 11)).unwrap();
        assert_eq!(cursor.value(), b"beside");
        assert_eq!(offset_of(cursor.prev(&txn)), 0);
        assert_eq!(large_bytes(), 0);
        // The snapshot keeps the old version, so a merge needs it.
        offset_of(bed.merge());
        assert!(bed.disk.content(&old).is_some());
        bed.scan(&bed.points[1].0, &bed.points[1].1);
        bed.disk.corrupt(&old, VALUE as u64 / 2);
        bed.merge().unwrap();
        bed.points.iter().for_each(|(point, state)| bed.scan(point, state));
        drop((txn, cursor));
        // Without snapshots a merge does not even look at what it drops.
        bed.points.clear();
        bed.merge().unwrap();
        let dropped = file_of(&bed.disk, &values[1]);
        bed.disk.corrupt(&dropped, VALUE as u64 / 2);
        bed.write(10, Some(values[0].clone()));
        bed.flush();
        bed.merge().unwrap();
        while bed.disk.content(&dropped).is_some() {
            std::thread::yield_now();
        }
        bed.note();
        bed.points.iter().for_each(|(point, state)| bed.scan(point, state));
    });
}
