//! A clean close: what it leaves makes the next start short, and neither a crash, a failure nor a full disk on the way loses
//! anything. Damage to what was closed is still told from a torn write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{DIR, Map, Rng, dump, eventually, hooked, key, open, options, value, within};
use parking_lot::Mutex;
use strata_engine::io::{Disk, FaultKind, MemDisk, Mode};
use strata_engine::layer::IndexId;
use strata_engine::{Engine, Error, Event, Options};

const INDEX: u32 = 16;
const PAGE: u64 = 4096;
const SEGMENT: u64 = 64 << 10;

/// Writes rows of `bytes` bytes under the keys `keys`, durably.
fn fill(engine: &Engine, rng: &mut Rng, keys: std::ops::Range<u64>, bytes: u64) {
    for k in keys {
        engine.write(&[(key(INDEX, k), Some(value(rng, k, bytes)))], true).unwrap();
    }
}

fn content(engine: &Engine) -> Map {
    dump(engine, INDEX, INDEX + 1).unwrap()
}

fn log_files(disk: &MemDisk) -> Vec<(PathBuf, u64)> {
    let dir = Path::new(DIR).join("log");
    let names = disk.list(&dir).unwrap();
    names.iter().map(|name| (dir.join(name), disk.content(&dir.join(name)).unwrap().len() as u64)).collect()
}

fn segments(disk: &MemDisk) -> Vec<(PathBuf, u64)> {
    let is_segment = |path: &Path| !path.file_name().unwrap().to_str().unwrap().starts_with("recycle");
    log_files(disk).into_iter().filter(|(path, _)| is_segment(path)).collect()
}

/// Work of a start.
struct Start {
    /// Bytes read of log, manifest and names of files.
    read: u64,
    written: u64,
    syncs: u64,
    /// Commits that it replayed.
    replayed: u64,
}

fn start(disk: &MemDisk, options: Options) -> Start {
    let before = disk.counters();
    let replayed = Arc::new(AtomicU64::new(0));
    let told = replayed.clone();
    let listener = move |event: &Event| {
        if let Event::Opened { commits, .. } = event {
            told.store(*commits, Ordering::Relaxed);
        }
    };
    let _open = Engine::open(Path::new(DIR), Options { listener: Some(Arc::new(listener)), ..options }).unwrap();
    let after = disk.counters();
    Start {
        read: after.bytes_read - before.bytes_read,
        written: after.bytes_written - before.bytes_written,
        syncs: after.syncs + after.dir_syncs - before.syncs - before.dir_syncs,
        replayed: replayed.load(Ordering::Relaxed),
    }
}

/// Whatever was in memory, a start reads one segment of the log at most, replays little of it, and reads nothing behind it; it fills no file, and syncs what it must: the
/// new manifest and the name of its first segment.
#[test]
fn a_start_after_a_close_does_little() {
    const SEGMENT: u64 = 16 << 20;
    for (rows, written_before) in [(0, false), (0, true), (100, true), (1000, false), (5000, false)] {
        let disk = MemDisk::new();
        let options = || Options {
            memtable_budget_bytes: 256 << 20,
            log_segment_bytes: SEGMENT,
            ..crate::common::options(Arc::new(disk.clone()))
        };
        let engine = Engine::open(Path::new(DIR), options()).unwrap();
        let mut rng = Rng::new(1);
        if written_before {
            fill(&engine, &mut rng, 0..100, 5000);
            engine.flush().unwrap();
        }
        fill(&engine, &mut rng, 0..rows, 5000);
        engine.close().unwrap();
        drop(engine);
        let Start { read, written, syncs, replayed } = start(&disk, options());
        // A segment of the log, the manifest and two looks at each other segment.
        assert!(read <= SEGMENT + (1 << 20), "{read} bytes were read after a close with {rows} rows in memory");
        assert!(replayed <= 4096 && replayed <= rows, "{replayed} of {rows} rows were replayed");
        assert!(written <= 1 << 20, "{written} bytes were written");
        assert!(syncs <= 9, "{syncs} syncs");
    }
}

/// Writes so many small rows that a close flushes them.
fn fill_much(engine: &Engine) {
    let rows: Vec<_> = (1000..6000).map(|k| (key(INDEX, k), Some(vec![b'x'; 9]))).collect();
    engine.write(&rows, true).unwrap();
}

/// Options with which nothing is flushed that nobody asked for.
fn roomy(disk: Arc<dyn Disk>) -> Options {
    Options { memtable_budget_bytes: 64 << 20, ..options(disk) }
}

/// A store with rows in files, in the log, and a prepared transaction; what is in it.
fn store(disk: &MemDisk, seed: u64) -> (Engine, Map) {
    store_of(options(Arc::new(disk.clone())), seed)
}

fn store_of(options: Options, seed: u64) -> (Engine, Map) {
    let engine = Engine::open(Path::new(DIR), options).unwrap();
    let mut rng = Rng::new(seed);
    fill(&engine, &mut rng, 0..40, 3000);
    engine.flush().unwrap();
    // The end of the log comes to lie anywhere in a segment, at its end too.
    fill(&engine, &mut rng, 20..24 + seed % 17, 3500);
    let mut txn = engine.begin();
    txn.put(&key(INDEX, 999), b"prepared").unwrap();
    txn.prepare(b"x").unwrap();
    drop(txn);
    let content = content(&engine);
    (engine, content)
}

/// The store is whole, works on, and can be closed and opened again.
fn judge(disk: &MemDisk, expected: &Map, case: &str) {
    let mut expected = expected.clone();
    for round in 0..2 {
        let engine = open(disk).unwrap_or_else(|e| panic!("{case}, opening {round}: {e}"));
        assert_eq!(content(&engine), expected, "{case}, opening {round}");
        assert_eq!(engine.prepared(), [b"x"], "{case}, opening {round}");
        let more = [(key(INDEX, 9000 + round), Some(b"more".to_vec()))];
        engine.write(&more, true).unwrap_or_else(|e| panic!("{case}, opening {round}: {e}"));
        expected.insert(key(INDEX, 9000 + round), b"more".to_vec());
        engine.close().unwrap_or_else(|e| panic!("{case}, opening {round}: {e}"));
    }
}

/// What was about to be done, and the image of a power cut before it.
type Images = Vec<(String, MemDisk)>;

/// A power cut at every operation of a close, and of the start behind it.
#[test]
fn a_crash_at_every_operation_of_a_close_loses_nothing() {
    for seed in 0..24 {
        within(&format!("seed {seed}"), 60, move || {
            let disk = MemDisk::new();
            let images: Arc<Mutex<Option<Images>>> = Arc::default();
            let (taken, from, count) = (images.clone(), disk.clone(), AtomicU64::new(seed));
            let hook: crate::common::Hook = Arc::new(move |what, path| {
                if let Some(images) = &mut *taken.lock() {
                    let image = from.crash(count.fetch_add(1, Ordering::Relaxed));
                    images.push((format!("{what} {}", path.display()), image));
                }
            });
            let watched = || roomy(hooked(disk.clone(), hook.clone()));
            drop(store(&disk, seed).0);
            // Opened again, so that the log has more than one epoch.
            let engine = Engine::open(Path::new(DIR), watched()).unwrap();
            fill(&engine, &mut Rng::new(seed), 100..102 + seed % 5, 3000);
            // Sometimes there is so much in memory that the close flushes it.
            if seed % 4 == 0 {
                fill_much(&engine);
            }
            let expected = content(&engine);
            *images.lock() = Some(Vec::new());
            engine.close().unwrap();
            drop(engine);
            let engine = Engine::open(Path::new(DIR), watched()).unwrap();
            let images = images.lock().take().unwrap();
            drop(engine);
            assert!(images.iter().any(|(what, _)| what.starts_with("truncate")), "the log was cut");
            assert!(images.len() > 15, "{} operations", images.len());
            for (what, image) in &images {
                judge(image, &expected, &format!("seed {seed}, before {what}"));
            }
        });
    }
}

/// Each operation of a close fails, once or from then on. What was acknowledged is there, also after a power cut.
#[test]
fn any_operation_of_a_close_may_fail() {
    let faults = [(FaultKind::Other, false), (FaultKind::Other, true), (FaultKind::StorageFull, true)];
    for ((kind, lasting), many) in faults.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        for n in 1.. {
            let case = format!("operation {n} of a close fails ({kind:?}, lasting {lasting}, much in memory {many})");
            let (fault_case, fails) = (case.clone(), move || {
                let disk = MemDisk::new();
                let (engine, _) = store_of(roomy(Arc::new(disk.clone())), n);
                if many {
                    fill_much(&engine);
                }
                let expected = content(&engine);
                match lasting {
                    true => disk.fail_from(n, kind),
                    false => disk.fail_after(n, kind),
                }
                let closed = engine.close();
                let struck = disk.struck();
                drop(engine);
                disk.clear_fault();
                if !lasting && matches!(struck, Some("create" | "allocate" | "rename" | "truncate" | "sync directory"))
                {
                    assert!(closed.is_ok(), "{case}: what only the next start would like is no failure: {closed:?}");
                }
                for seed in 0..3 {
                    judge(&disk.crash(seed), &expected, &format!("{case}, then a power cut"));
                }
                judge(&disk, &expected, &case);
                struck.is_some()
            });
            if !within(&fault_case, 60, fails) {
                assert!(n > 4 || kind == FaultKind::StorageFull, "only {n} operations");
                break;
            }
        }
    }
}

/// On a full disk the log is cut only where the next start has a whole segment: others may take what is given back.
#[test]
fn a_full_disk_closes_and_starts() {
    const SEGMENT: u64 = 1 << 20;
    for segment_ready in [false, true] {
        for seed in 0..8 {
            let case = format!("next segment there: {segment_ready}, seed {seed}");
            let disk = MemDisk::new();
            let options = || Options { log_segment_bytes: SEGMENT, ..options(Arc::new(disk.clone())) };
            let (engine, mut expected) = store_of(options(), seed);
            if segment_ready {
                fill(&engine, &mut Rng::new(seed), 100..400, 4000);
                engine.flush().unwrap();
                // Behind the one that is written to.
                eventually("the next segment", || matches!(segments(&disk)[..], [.., _, _, (_, SEGMENT)]));
                expected = content(&engine);
            }
            disk.set_capacity(Some(disk.used()));
            engine.close().unwrap();
            drop(engine);
            // Somebody else takes all that is free.
            disk.set_capacity(Some(disk.used()));
            let is_pooled = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with("recycle");
            let whole = log_files(&disk).iter().any(|(path, bytes)| *bytes == SEGMENT && is_pooled(path));
            let cut = segments(&disk).last().unwrap().1 < SEGMENT;
            assert!(whole || !cut, "{case}: the log was cut without a segment for the next start");
            assert!(cut || !segment_ready, "{case}: the log was not cut");
            let engine = Engine::open(Path::new(DIR), options()).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert_eq!(content(&engine), expected, "{case}");
            engine.drop_indexes(&[IndexId(77)]).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(engine.rollback_prepared(b"x").unwrap(), "{case}");
            engine.close().unwrap();
        }
    }
}

/// Each page of a log that was closed is known to have been durable: damage to any of them, the witness at its end included,
/// is refused with its place, and so is a file that was cut further.
#[test]
fn damage_to_a_closed_log_is_told() {
    let disk = MemDisk::new();
    drop(store(&disk, 3).0);
    let engine = open(&disk).unwrap();
    fill(&engine, &mut Rng::new(9), 100..106, 3000);
    engine.close().unwrap();
    drop(engine);
    let (last, bytes) = segments(&disk).pop().unwrap();
    assert!(bytes > 4 * PAGE && bytes < SEGMENT, "{bytes} bytes in the last segment");
    let refused = |image: &MemDisk, at: u64, what: &str| match open(image) {
        Err(Error::Corruption { path, offset, .. }) => {
            assert_eq!(path, last, "{what}");
            assert!(offset <= at, "{what}: {offset} is blamed");
        }
        Err(e) => panic!("{what}: {e}"),
        Ok(_) => panic!("{what}: opened"),
    };
    for at in (0..bytes).step_by(PAGE as usize) {
        let image = disk.copy();
        image.corrupt(&last, at + 20);
        refused(&image, at, &format!("a flipped byte at {at}"));
        let image = disk.copy();
        image.open(&last, Mode::ReadWrite, false).unwrap().set_len(at).unwrap();
        refused(&image, at, &format!("cut at {at}"));
    }
    let image = disk.copy();
    image.remove(&last).unwrap();
    refused(&image, 0, "missing");
}

/// What comes to lie behind the end of a closed log means nothing, as before: zeros of a file that is long again (a crash kept
/// the cut from the disk), or bytes of anybody.
#[test]
fn what_is_behind_a_closed_log_means_nothing() {
    let disk = MemDisk::new();
    let (engine, expected) = store(&disk, 3);
    engine.close().unwrap();
    drop(engine);
    let (last, bytes) = segments(&disk).pop().unwrap();
    for fill in [0u8, 0xa5] {
        let image = disk.copy();
        let file = image.open(&last, Mode::ReadWrite, false).unwrap();
        file.write_all_at(&vec![fill; (SEGMENT - bytes) as usize], bytes).unwrap();
        judge(&image, &expected, &format!("{fill:x} behind the end"));
    }
}
