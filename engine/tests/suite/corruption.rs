//! Damaged and missing files. Every byte of a small store, or nearly, is flipped in turn; files are cut and removed. The
//! damage is reported with the right file and offset when the store is opened, read or verified, or it hit a byte that
//! means nothing. Nothing is dropped silently and nothing panics. Only the torn tail of the log is cut without fuss.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Map, Recorder, Rng, dump, key, new_store, open, options, value, within};
use strata_engine::io::{Disk, ManualClock, MemDisk, Mode};
use strata_engine::layer::IndexId;
use strata_engine::{Engine, Error, Options, Result};

const INDEXES: [u32; 2] = [16, 17];

struct Store {
    disk: MemDisk,
    expected: Map,
}

fn write(engine: &Engine, rng: &mut Rng, expected: &mut Map, count: u64) {
    for _ in 0..count {
        let mut txn = engine.begin();
        for _ in 0..4 {
            let (key, tag) = (key(INDEXES[rng.below(2) as usize], rng.below(400)), rng.next());
            let value = value(rng, tag, 400);
            txn.put(&key, &value).unwrap();
            expected.insert(key, value);
        }
        txn.commit().unwrap();
    }
}

/// Tables on two levels, commits in the log only, in two epochs; closed cleanly. The manifest has a snapshot and an edit.
fn store() -> Store {
    let disk = MemDisk::new();
    let mut expected = Map::new();
    let mut rng = Rng::new(3);
    let engine = open(&disk).unwrap();
    write(&engine, &mut rng, &mut expected, 60);
    engine.compact_range(&[0; 4], &[255; 4]).unwrap();
    write(&engine, &mut rng, &mut expected, 20);
    engine.flush().unwrap();
    engine.wait_idle().unwrap();
    write(&engine, &mut rng, &mut expected, 40);
    engine.close().unwrap();
    drop(engine);
    // Tables that compaction left behind go when the store is opened; the log goes on in a second epoch.
    let engine = open(&disk).unwrap();
    write(&engine, &mut rng, &mut expected, 10);
    engine.close().unwrap();
    drop(engine);
    Store { disk, expected }
}

impl Store {
    /// A copy to be damaged.
    fn copy(&self) -> MemDisk {
        self.disk.copy()
    }

    fn files(&self, dir: &str, keep: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let dir = Path::new(dir);
        let names = self.disk.list(dir).unwrap();
        names.iter().filter(|name| keep(&name.to_string_lossy())).map(|name| dir.join(name)).collect()
    }

    fn tables(&self) -> Vec<PathBuf> {
        self.files(DIR, |name| name.ends_with(".sst"))
    }

    fn manifest(&self) -> PathBuf {
        self.files(DIR, |name| name.starts_with("MANIFEST")).remove(0)
    }

    fn segments(&self) -> Vec<PathBuf> {
        self.files(&format!("{DIR}/log"), |name| name.ends_with(".log"))
    }

    /// Opens, reads and verifies everything; the first error, or whether all is there.
    fn examine(&self, disk: &MemDisk, case: &str) -> Result<()> {
        let engine = open(disk)?;
        // Reading must never make anything up: an error or the truth.
        let read = dump(&engine, 0, u32::MAX);
        let verified = INDEXES.iter().try_for_each(|&index| engine.verify_index(IndexId(index)));
        if let Ok(found) = &read {
            assert!(*found == self.expected, "{case}: other content than was written, and no error");
        }
        read.and(verified)
    }

    fn flip(&self, path: &Path, offset: u64) -> Result<()> {
        let disk = self.copy();
        disk.corrupt(path, offset);
        self.examine(&disk, &format!("{} byte {offset}", path.display()))
    }

    /// How many of these bytes are missed if they are flipped. The error names the file and no place behind the byte.
    fn noticed(&self, path: &Path, offsets: impl Iterator<Item = u64>) -> u64 {
        let mut noticed = 0;
        for offset in offsets {
            if let Err(e) = self.flip(path, offset) {
                noticed += 1;
                let (named, at) = place(&e);
                assert_eq!(named, path, "byte {offset}: {e}");
                assert!(at <= offset, "byte {offset}: {e}");
            }
        }
        noticed
    }
}

fn put(disk: &MemDisk, path: &Path, content: &[u8]) {
    let file = disk.open(path, Mode::Create, false).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

/// The place that a report of damage names.
fn place(error: &Error) -> (&Path, u64) {
    match error {
        Error::Corruption { path, offset, .. } => (path, *offset),
        // A damaged version field looks like another version.
        Error::Incompatible { path, .. } => (path, 0),
        other => panic!("not a report of damage: {other}"),
    }
}

#[test]
fn every_byte_of_a_table_counts() {
    within("tables", 120, || {
        let store = store();
        let tables = store.tables();
        assert!(tables.len() >= 3, "{tables:?}");
        let mut silent = 0u64;
        let mut total = 0u64;
        for (i, path) in tables.iter().enumerate() {
            let content = store.disk.content(path).unwrap();
            let len = content.len() as u64;
            // Data blocks here and there; filters, indexes, properties and footer closely.
            let tail = len.saturating_sub(4096);
            let mut offsets: BTreeSet<u64> = (0..len).step_by(997).map(|o| o + i as u64).collect();
            offsets.extend((tail..len).step_by(61));
            offsets.extend(len - 64..len);
            for offset in offsets.into_iter().filter(|&offset| offset < len) {
                total += 1;
                match store.flip(path, offset) {
                    Ok(()) => {
                        silent += 1;
                        assert_eq!(content[offset as usize], 0, "{} byte {offset}: unnoticed", path.display());
                    }
                    Err(e) => {
                        let (named, at) = place(&e);
                        assert_eq!(named, path, "byte {offset}: {e}");
                        assert!(at <= offset, "byte {offset}: {e}");
                    }
                }
            }
        }
        // Tables this small are padding for a good part.
        assert!(silent < total / 3 * 2, "{silent} of {total} flips went unnoticed");
    });
}

/// Merges that need a damaged file wait; all others go on. The damage is reported once and stays to be seen; put right,
/// the file is merged.
#[test]
fn a_damaged_file_holds_up_only_what_needs_it() {
    within("merges beside a damaged file", 60, || {
        let disk = MemDisk::new();
        let mut rng = Rng::new(5);
        let mut expected = Map::new();
        let engine = open(&disk).unwrap();
        write(&engine, &mut rng, &mut expected, 60);
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        engine.close().unwrap();
        drop(engine);
        let clock = Arc::new(ManualClock::default());
        let recorder = Recorder::default();
        let options = Options {
            clock: clock.clone(),
            compaction_threads: 1,
            listener: recorder.listener(),
            ..options(Arc::new(disk.clone()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let names = disk.list(Path::new(DIR)).unwrap().into_iter();
        let first = names.filter(|name| name.extension().is_some_and(|e| e == "sst")).min().unwrap();
        let damaged = Path::new(DIR).join(first);
        disk.corrupt(&damaged, 100);
        // Level 0 of the first index has nowhere to go but into the damaged file and its neighbours.
        let merges = || engine.metrics().work.compactions;
        let before = merges();
        while recorder.lines().is_empty() || merges() < before + 3 {
            write(&engine, &mut rng, &mut expected, 5);
            engine.flush().unwrap();
        }
        let named = damaged.display().to_string();
        let heard = recorder.lines();
        assert!(matches!(&heard[..], [one] if one.contains("compaction failed") && one.contains(&named)), "{heard:?}");
        assert!(engine.status_text().contains(&named), "{}", engine.status_text());
        let metrics = engine.metrics();
        assert!(metrics.quarantined_files == 1 && metrics.failures.corruption > 0, "{metrics:?}");
        assert_eq!(place(&engine.wait_idle().unwrap_err()).0, damaged);
        assert!(disk.content(&damaged).is_some());

        disk.corrupt(&damaged, 100);
        clock.advance_us(3_600_000_000);
        while engine.status_text().contains("FAILED") {
            write(&engine, &mut rng, &mut expected, 5);
            engine.flush().unwrap();
        }
        engine.wait_idle().unwrap();
        assert!(dump(&engine, 0, u32::MAX).unwrap() == expected);
        assert_eq!(recorder.lines().len(), 1);
    });
}

#[test]
fn every_byte_of_the_manifest_counts() {
    within("manifest", 120, || {
        let store = store();
        let path = store.manifest();
        let content = store.disk.content(&path).unwrap();
        let used = content.iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
        let noticed = store.noticed(&path, (0..used).step_by(29).chain(0..64));
        assert!(noticed > 60, "{noticed}");

        let current = Path::new(DIR).join("CURRENT");
        for offset in 0..store.disk.content(&current).unwrap().len() as u64 {
            let error = store.flip(&current, offset).unwrap_err();
            assert_eq!(place(&error).0, current, "byte {offset}: {error}");
        }
    });
}

#[test]
fn every_byte_of_the_log_counts() {
    within("log", 120, || {
        let store = store();
        let mut noticed = 0;
        for path in store.segments() {
            let len = store.disk.content(&path).unwrap().len() as u64;
            let units = (0..len).step_by(4096).flat_map(|o| (o..o + 40).step_by(7));
            noticed += store.noticed(&path, (0..len).step_by(1201).chain(units));
        }
        assert!(noticed > 50, "{noticed}");
    });
}

/// Without a clean close the last unit may be torn: then the commits in it, which nobody can tell from unacknowledged
/// ones, are cut, and nothing else is.
#[test]
fn a_torn_tail_is_cut() {
    let (disk, engine) = new_store();
    for i in 0..12u64 {
        engine.write(&[(key(16, i), Some(i.to_be_bytes().to_vec()))], true).unwrap();
    }
    let image = disk.crash(0);
    drop(engine);
    let segment = Path::new(DIR).join("log").join("000000000000.log");
    let content = image.content(&segment).unwrap();
    let last = content.chunks(4096).rposition(|page| page.iter().any(|&byte| byte != 0)).unwrap() as u64 * 4096;
    for offset in [last, last + 20, last + 40, last + 60] {
        for reopened in 0..2 {
            let copy = image.crash(1);
            copy.corrupt(&segment, offset);
            for _ in 0..=reopened {
                let engine = open(&copy).unwrap();
                assert_eq!(dump(&engine, 16, 17).unwrap().len(), 11, "byte {offset}");
                engine.close().unwrap();
            }
        }
    }
    // One unit earlier it is damage: the last one states it durable.
    let copy = image.crash(1);
    copy.corrupt(&segment, last - 4096 + 20);
    let error = open(&copy).err().unwrap();
    assert_eq!(place(&error), (segment.as_path(), last - 4096));
    // Refusing changes nothing: put right, the store opens.
    copy.corrupt(&segment, last - 4096 + 20);
    assert_eq!(dump(&open(&copy).unwrap(), 16, 17).unwrap().len(), 12);
}

#[test]
fn files_cut_short_are_noticed() {
    within("cuts", 120, || {
        let store = store();
        let mut files = store.tables();
        files.extend(store.segments());
        files.push(store.manifest());
        for path in files {
            let content = store.disk.content(&path).unwrap();
            let used = content.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
            for keep in [0, 1, 100, 4096, content.len() / 2, used.saturating_sub(1), content.len() - 1] {
                let disk = store.copy();
                disk.cut(&path, keep.min(content.len() - 1) as u64, false).unwrap();
                // `examine` itself fails if there is no error and yet something is missing.
                if let Err(e) = store.examine(&disk, &format!("{} cut to {keep}", path.display())) {
                    // Also a manifest cut between two edits: an older state, which the tables belie.
                    assert_eq!(place(&e).0, path, "{} cut to {keep}: {e}", path.display());
                    assert!(place(&e).1 <= keep as u64, "{} cut to {keep}: {e}", path.display());
                } else {
                    assert!(!path.to_string_lossy().ends_with("sst"), "cut table unnoticed");
                }
            }
        }
    });
}

/// Edits lost at the end of the manifest leave an older state, whole in itself. It is told as the manifest's damage, where the
/// rest ends, and a refused opening leaves everything as it was.
#[test]
fn a_manifest_without_its_last_edits_is_told_as_such() {
    within("lost edits", 120, || {
        let disk = MemDisk::new();
        let mut expected = Map::new();
        let mut rng = Rng::new(5);
        let engine = open(&disk).unwrap();
        for _ in 0..6 {
            write(&engine, &mut rng, &mut expected, 30);
            engine.flush().unwrap();
            engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        }
        engine.wait_idle().unwrap();
        engine.close().unwrap();
        drop(engine);
        let store = Store { disk, expected };
        let path = store.manifest();
        let content = store.disk.content(&path).unwrap();
        let used = content.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        let mut told = 0;
        for keep in (4096..used).step_by(512) {
            for zeroed in [false, true] {
                let disk = store.copy();
                disk.cut(&path, keep as u64, zeroed).unwrap();
                if let Err(e) = store.examine(&disk, &format!("kept {keep}, zeroed {zeroed}")) {
                    assert_eq!(place(&e).0, path, "kept {keep}, zeroed {zeroed}: {e}");
                    assert!(place(&e).1 <= keep.next_multiple_of(4096) as u64, "kept {keep}, zeroed {zeroed}: {e}");
                    told += 1;
                    disk.remove(&path).unwrap();
                    put(&disk, &path, &content);
                    store.examine(&disk, "put back").unwrap();
                }
            }
        }
        assert!(told > 10, "{told}");
    });
}

#[test]
fn missing_files_are_noticed() {
    within("missing", 120, || {
        let store = store();
        for path in store.tables() {
            let disk = store.copy();
            disk.remove(&path).unwrap();
            let error = open(&disk).err().expect("a missing table is reported when the store is opened");
            assert_eq!(place(&error).0, path, "{error}");
        }
        let current = Path::new(DIR).join("CURRENT");
        for path in [store.manifest(), current.clone()] {
            let disk = store.copy();
            disk.remove(&path).unwrap();
            let error = open(&disk).err().unwrap();
            assert_eq!(place(&error).0, current, "{error}");
            // The refused opening has deleted nothing.
            put(&disk, &path, &store.disk.content(&path).unwrap());
            store.examine(&disk, "put back").unwrap();
        }
        // Nothing is left but manifests, of which a store that was never opened has the first only.
        let disk = store.copy();
        open(&disk).unwrap().close().unwrap();
        let logged = disk.list(&Path::new(DIR).join("log")).unwrap();
        let segments = logged.into_iter().map(|name| Path::new(DIR).join("log").join(name));
        store
            .tables()
            .into_iter()
            .chain(segments)
            .chain([current.clone()])
            .for_each(|path| disk.remove(&path).unwrap());
        let error = open(&disk).err().expect("a store that has lost all is no new one");
        assert_eq!(place(&error).0, current, "{error}");
        let mut noticed = 0;
        for path in store.segments() {
            let disk = store.copy();
            disk.remove(&path).unwrap();
            if let Err(e) = store.examine(&disk, &format!("without {}", path.display())) {
                assert_eq!(place(&e).0, path, "{e}");
                noticed += 1;
            }
        }
        assert!(noticed > 0);
        // The whole log.
        let disk = store.copy();
        store.segments().iter().for_each(|path| disk.remove(path).unwrap());
        assert!(matches!(open(&disk), Err(Error::Corruption { .. })));
    });
}

/// After a crash no later unit tells of the newest segments. The manifest does: their files were made, so none may be
/// missing, and a refused opening does not make it forget.
#[test]
fn a_segment_missing_after_a_crash_is_noticed() {
    within("segments", 60, || {
        let (disk, engine) = new_store();
        let mut expected = Map::new();
        let log = Path::new(DIR).join("log");
        let segments = |disk: &MemDisk| {
            let names = disk.list(&log).unwrap().into_iter();
            let names = names.filter(|name| name.to_string_lossy().starts_with(|c: char| c.is_ascii_digit()));
            names.map(|name| log.join(name)).collect::<Vec<_>>()
        };
        let mut rng = Rng::new(5);
        while segments(&disk).len() < 3 {
            write(&engine, &mut rng, &mut expected, 1);
        }
        // The crashed store, and the one that was opened after the crash and crashed at once.
        let first = disk.crash(0);
        drop(engine);
        let again = first.crash(1);
        let engine = open(&again).unwrap();
        let second = again.crash(0);
        drop(engine);
        for image in [first, second] {
            for path in segments(&image) {
                let copy = image.crash(1);
                let content = copy.content(&path).unwrap();
                copy.remove(&path).unwrap();
                for _ in 0..2 {
                    let error = open(&copy).err().unwrap_or_else(|| panic!("{} missing, unnoticed", path.display()));
                    assert_eq!(place(&error), (path.as_path(), 0), "{error}");
                }
                put(&copy, &path, &content);
                assert!(dump(&open(&copy).unwrap(), 0, u32::MAX).unwrap() == expected, "{}", path.display());
            }
        }
    });
}

/// Damage that is found in the background is reported, compaction does not go on over it, and what is sound can be read.
#[test]
fn damage_under_a_compaction_is_reported() {
    within("compaction", 60, || {
        let store = store();
        let path = store.tables().remove(0);
        let disk = store.copy();
        disk.corrupt(&path, 100);
        let engine = open(&disk).unwrap();
        let error = engine.compact_range(&[0; 4], &[255; 4]).err();
        if let Some(error) = error {
            assert_eq!(place(&error).0, path);
            assert!(disk.exists(&path).unwrap(), "the damaged table stays");
        }
        let error = INDEXES.iter().find_map(|&index| engine.verify_index(IndexId(index)).err()).unwrap();
        assert_eq!(place(&error).0, path);
    });
}

/// The process dies after a rest and one byte of a large last commit is lost: the witness that the rest left behind tells
/// it from a write that the crash cut short. Without a rest nothing can, and then what is left out is told.
#[test]
fn damage_to_the_last_commit_is_told_after_a_rest() {
    within("rest", 60, || {
        let (disk, engine) = new_store();
        let mut rng = Rng::new(9);
        let mut txn = engine.begin();
        for k in 0..6 {
            txn.put(&key(INDEXES[0], k), &value(&mut rng, k, 100_000)).unwrap();
        }
        let before = engine.metrics();
        txn.commit().unwrap();
        let written = engine.metrics();
        let early = disk.copy();
        assert_eq!(written.log_syncs, before.log_syncs + 1);
        let begun = std::time::Instant::now();
        while engine.metrics().log_bytes_written == written.log_bytes_written {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "no witness");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let rested = disk.copy();
        assert_eq!(engine.metrics().log_bytes_written, written.log_bytes_written + 4096);
        assert_eq!(engine.metrics().log_syncs, written.log_syncs);
        drop(engine);
        // In the middle of the commit: the log has segments of 64 KiB.
        let damaged = Path::new(DIR).join("log").join("000000000004.log");
        rested.corrupt(&damaged, 20_000);
        let error = open(&rested).err().expect("damage to what was acknowledged");
        let (file, offset) = place(&error);
        assert!(file == damaged && offset <= 20_000, "{error}");

        early.corrupt(&damaged, 20_000);
        let recorder = Recorder::default();
        let options = Options { listener: recorder.listener(), ..options(Arc::new(early.clone())) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        assert!(dump(&engine, 0, u32::MAX).unwrap().is_empty());
        let told = recorder.lines().join("\n");
        for part in
            ["000000000004.log at offset", "bytes of it behind are left out", "a record of which", "whole units"]
        {
            assert!(told.contains(part), "{told}");
        }
    });
}
