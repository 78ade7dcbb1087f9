//! Encryption at rest: what is on the disk, what becomes of it in a crash, and what happens without the keys.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{DIR, Map, Recorder, Rng, TestKeys, dump, hooked, key, plain_options, seeds, within};
use parking_lot::Mutex;
use strata_engine::crypt::KeyProvider;
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_engine::layer::IndexId;
use strata_engine::{Compression, Engine, Error, Event, Options, Result};

const INDEX: u32 = 16;
const OTHER: u32 = 17;
const PLAIN: u32 = 18;

/// What must not be found.
const SECRETS: [&str; 4] = ["SECRET-KEY-", "secret-value-", "SECRET-SPACE-", "secret-in-spill-"];

fn opened(disk: Arc<dyn Disk>, keys: &Arc<TestKeys>, encrypt: bool) -> Result<Engine> {
    let options = Options {
        keys: Some(keys.clone()),
        encrypt_log: encrypt,
        encrypt_indexes: encrypt,
        transaction_bytes: 8_000,
        ..plain_options(disk)
    };
    Engine::open(Path::new(DIR), options)
}

fn open(disk: &MemDisk, keys: &Arc<TestKeys>, encrypt: bool) -> Result<Engine> {
    opened(Arc::new(disk.clone()), keys, encrypt)
}

/// A long key, and a value that compresses badly.
fn row(index: u32, n: u64, word: &str) -> (Vec<u8>, Vec<u8>) {
    let key = [&IndexId(index).prefix()[..], format!("SECRET-KEY-{n:06}").as_bytes()].concat();
    let mut rng = Rng::new(n);
    (key, format!("{word}{:016x}{:016x}", rng.next(), rng.next()).into_bytes())
}

/// Fewer than so many transactions of up to `most` rows each, mostly a few, and sometimes a flush.
fn commit_some(engine: &Engine, rng: &mut Rng, transactions: u64, most: u64, expected: &mut Map) {
    for _ in 0..rng.below(transactions) {
        let mut txn = engine.begin();
        let most = if rng.chance(20) { most } else { 4 };
        for _ in 0..1 + rng.below(most) {
            let (key, value) = row(INDEX + rng.below(3) as u32, rng.below(500), "value");
            txn.put(&key, &value).unwrap();
            expected.insert(key, value);
        }
        txn.commit().unwrap();
        if rng.chance(10) {
            engine.flush().unwrap();
        }
    }
}

/// Everything below the store's directory.
fn files(disk: &MemDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![PathBuf::from("/")];
    while let Some(dir) = dirs.pop() {
        let names = match disk.list(&dir) {
            // It was a file, which the store has removed since.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
            names => names.unwrap(),
        };
        for name in names {
            let path = dir.join(name);
            match disk.content(&path) {
                Some(bytes) => drop(files.insert(path, bytes)),
                None => dirs.push(path),
            }
        }
    }
    files
}

/// Where a secret lies in the clear: kinds of files.
fn found(disk: &MemDisk) -> BTreeMap<String, u64> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (path, bytes) in files(disk) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let kind = name.split_terminator(['-', '.']).next().unwrap();
        let kind = if kind.bytes().all(|b| b.is_ascii_digit()) { name.rsplit('.').next().unwrap() } else { kind };
        for secret in SECRETS {
            // The beginnings of keys are cut off where rows share them: half of a word is enough.
            let half = &secret.as_bytes()[..secret.len() / 2];
            let hits = bytes.windows(half.len()).filter(|window| window == &half).count();
            if hits > 0 {
                *found.entry(kind.to_owned()).or_default() += hits as u64;
            }
        }
    }
    found
}

/// Plants secrets in keys, values, names of keyspaces, spilled transactions, prepared ones, merges, recycled segments and a
/// checkpoint, and looks at what is on the disk again and again.
fn plant(encrypt: bool) -> BTreeMap<String, u64> {
    let disk = MemDisk::new();
    let seen: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let (watched, all) = (disk.clone(), seen.clone());
    let moments = std::sync::atomic::AtomicU64::new(0);
    // Files that are there for a moment only are met as well: before every file that goes, and now and then in between.
    let hook = move |what: &str, _: &Path| {
        let moment = moments.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if what == "remove" || what == "rename" || moment % 50 == 0 {
            let mut all = all.lock();
            found(&watched).into_iter().for_each(|(kind, hits)| *all.entry(kind).or_default() += hits);
        }
    };
    let keys = TestKeys::of(&[1]);
    let engine = opened(hooked(disk.clone(), Arc::new(hook)), &keys, encrypt).unwrap();
    for index in [INDEX, OTHER] {
        engine.set_index_compression(IndexId(index), Some(Compression::None));
    }
    let space = engine.keyspace("SECRET-SPACE-1").unwrap();
    engine.put(&space, "SECRET-KEY-of-space", "secret-value-of-space").unwrap();
    for round in 0..6u64 {
        for n in 0..60 {
            let (key, value) = row(INDEX, round * 20 + n, "secret-value-");
            engine.write(&[(key, Some(value))], true).unwrap();
        }
        let mut txn = engine.begin();
        for n in 0..200 {
            let (key, value) = row(OTHER, round * 50 + n, "secret-in-spill-");
            txn.put(&key, &value).unwrap();
        }
        if round % 3 == 2 {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
        }
        engine.flush().unwrap();
    }
    let mut txn = engine.begin();
    for n in 0..200 {
        let (key, value) = row(INDEX, 9000 + n, "secret-in-spill-");
        txn.put(&key, &value).unwrap();
    }
    txn.prepare(b"xid").unwrap();
    drop(txn);
    engine.checkpoint(Path::new("/copy")).unwrap();
    engine.compact_range(&[0; 4], &[255; 4]).unwrap();
    engine.close().unwrap();
    drop(engine);
    let log_files = files(&disk).into_keys().filter(|path| path.to_str().unwrap().contains("recycle")).count();
    assert!(log_files > 0, "no segment was recycled");
    let mut seen = seen.lock().clone();
    found(&disk).into_iter().for_each(|(kind, hits)| *seen.entry(kind).or_default() += hits);
    if encrypt {
        // And it is all there, in the copy, too.
        for dir in [DIR, "/copy"] {
            let options = Options { keys: Some(keys.clone()), ..plain_options(Arc::new(disk.clone())) };
            let engine = Engine::open(Path::new(dir), options).unwrap();
            let rows = dump(&engine, INDEX, OTHER + 1).unwrap();
            assert_eq!(rows.len(), 160 + 400);
            assert_eq!(rows[&row(INDEX, 7, "").0], row(INDEX, 7, "secret-value-").1);
            let space = engine.find_keyspace("SECRET-SPACE-1").unwrap();
            assert_eq!(&engine.get(&space, "SECRET-KEY-of-space").unwrap().unwrap()[..], b"secret-value-of-space");
            assert_eq!(engine.prepared(), [b"xid"]);
        }
    }
    seen
}

/// The search finds what is not encrypted in every kind of file, and nothing once all is.
#[test]
fn no_byte_on_the_disk_tells_a_secret() {
    within("byte search", 300, || {
        let plain = plant(false);
        for kind in ["sst", "log", "recycle", "MANIFEST"] {
            assert!(plain.get(kind).is_some_and(|&hits| hits > 0), "{kind}: {plain:?}");
        }
        assert_eq!(plant(true), BTreeMap::new());
    });
}

/// The master keys of all files, from their last bytes: 0 of those that are not encrypted.
fn keys_of_files(disk: &MemDisk) -> Vec<(u32, u32)> {
    let ssts = files(disk).into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "sst"));
    // Others are being written.
    let whole = ssts.filter(|(_, bytes)| bytes.len() >= 4096 && bytes[bytes.len() - 64..].starts_with(b"STRATSST"));
    whole
        .map(|(_, bytes)| {
            let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            match bytes[bytes.len() - 56] {
                4 | 5 => (number(bytes.len() - 112), number(bytes.len() - 108)),
                _ => (0, 0),
            }
        })
        .collect()
}

/// A store that was encrypted by an earlier program.
#[test]
fn a_stored_encrypted_store_is_still_read() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let disk = MemDisk::new();
    crate::common::copy(&fixtures.join("encrypted/store"), &disk, Path::new(DIR));
    let content = std::fs::read_to_string(fixtures.join("store.txt")).unwrap();
    let committed = content.lines().filter(|line| !line.starts_with("xid-"));
    let row = |line: &str| {
        let (key, value) = line.split_once(' ').unwrap();
        let (index, name) = key.split_once('/').unwrap();
        let key = [&IndexId(index.parse().unwrap()).prefix()[..], name.as_bytes()].concat();
        (key, value.as_bytes().to_vec())
    };
    let expected: Map = committed.map(row).collect();
    for (path, bytes) in files(&disk) {
        assert!(!bytes.windows(6).any(|window| window == b"-of-ro"), "{}", path.display());
    }
    let engine = Engine::open(Path::new(DIR), plain_options(Arc::new(disk.clone()))).unwrap();
    let live: Vec<u32> = expected.keys().map(|key| IndexId::of(key).0).collect();
    let mut found = dump(&engine, 0, 100).unwrap();
    found.retain(|key, _| live.contains(&IndexId::of(key).0));
    assert!(found == expected);
    assert_eq!(engine.prepared().len(), 2);
    for index in engine.indexes().unwrap() {
        engine.verify_index(index).unwrap();
    }
}

/// Indexes under different keys share no file, others do.
#[test]
fn a_file_has_one_key() {
    let disk = MemDisk::new();
    let keys = TestKeys::of(&[1, 5]);
    let options = Options { keys: Some(keys.clone()), sst_bytes: 1 << 20, ..plain_options(Arc::new(disk.clone())) };
    let engine = Engine::open(Path::new(DIR), options).unwrap();
    engine.set_index_encryption(&[IndexId(INDEX), IndexId(OTHER)], Some(5)).unwrap();
    engine.set_index_encryption(&[IndexId(20)], Some(1)).unwrap();
    for index in [INDEX, OTHER, PLAIN, 19, 20] {
        let writes: Vec<_> = (0..30).map(|n| (key(index, n), Some(b"value".to_vec()))).collect();
        engine.write(&writes, true).unwrap();
    }
    engine.flush().unwrap();
    let mut found = keys_of_files(&disk);
    found.sort_unstable();
    assert_eq!(found, [(0, 0), (1, 1), (5, 1)]);
    // What was said stays, whoever opens the store, and a drop forgets it.
    engine.drop_indexes(&[IndexId(20)]).unwrap();
    engine.write(&[(key(PLAIN, 1), Some(b"value".to_vec()))], true).unwrap();
    engine.flush().unwrap();
    drop(engine);
    let engine = open(&disk, &keys, false).unwrap();
    assert_eq!([INDEX, PLAIN, 20].map(|index| engine.index_encryption(IndexId(index))), [Some(5), None, None]);
    // An unknown key changes nothing.
    let error = engine.set_index_encryption(&[IndexId(PLAIN)], Some(9)).unwrap_err().to_string();
    assert_eq!(error, "/store: encryption key 9: no such key");
    assert_eq!(engine.index_encryption(IndexId(PLAIN)), None);
    assert_eq!(dump(&engine, 0, 100).unwrap().len(), 4 * 30);
}

/// A key that is missing or another one refuses the store, names what needs it, and touches nothing.
#[test]
fn without_its_keys_a_store_is_refused_and_left_alone() {
    let fill = |encrypt: bool, policies: &[(u32, u32)], flush: bool| {
        let disk = MemDisk::new();
        let engine = open(&disk, &TestKeys::of(&[1, 5]), encrypt).unwrap();
        for &(index, id) in policies {
            engine.set_index_encryption(&[IndexId(index)], Some(id)).unwrap();
        }
        engine.write(&[(key(INDEX, 1), Some(b"value".to_vec()))], true).unwrap();
        let mut txn = engine.begin();
        (0..200).for_each(|n| txn.put(&row(OTHER, n, "x").0, &[7; 100]).unwrap());
        txn.commit().unwrap();
        if flush {
            engine.flush().unwrap();
        }
        disk.crash(1)
    };
    type Case<'a> = (bool, &'a [(u32, u32)], bool, u32, &'a str);
    let cases: [Case<'_>; 5] = [
        (true, &[], false, 1, DIR),
        (true, &[], true, 1, "MANIFEST"),
        (false, &[(INDEX, 5)], true, 5, "MANIFEST"),
        (false, &[(OTHER, 5)], false, 5, "MANIFEST"),
        (false, &[(INDEX, 5)], true, 1, "MANIFEST"),
    ];
    for (encrypt, policies, flush, id, place) in cases {
        let case = format!("{encrypt} {policies:?} {flush} {id}");
        let image = fill(encrypt, policies, flush);
        let before = files(&image);
        let refused = |keys: &Arc<TestKeys>, named: &str| {
            for _ in 0..2 {
                let Err(error) = open(&image, keys, false) else { panic!("{case}: opened") };
                assert!(matches!(error, Error::Key { key, .. } if key.id == id), "{case}: {error}");
                let error = error.to_string();
                assert!(error.contains(&format!("encryption key {id}")) && error.contains(named), "{case}: {error}");
                assert!(files(&image) == before, "{case}: something has changed");
            }
        };
        let keys = TestKeys::of(&[1, 5]);
        keys.set(id, 0);
        refused(&keys, place);
        refused(&keys, "no such key");
        let none = Options { keys: None, ..plain_options(Arc::new(image.clone())) };
        let error = Engine::open(Path::new(DIR), none).err().unwrap().to_string();
        assert!(error.contains("there is no key service"), "{case}: {error}");
        assert!(files(&image) == before);
        let wrong = TestKeys::of(&[1, 5]);
        wrong.swap("another");
        let Err(error) = open(&image, &wrong, false) else { panic!("{case}: opened with a wrong key") };
        assert!(error.to_string().contains("not the key that this was encrypted with"), "{case}: {error}");
        assert!(files(&image) == before, "{case}: something has changed");
        assert_eq!(dump(&open(&image, &TestKeys::of(&[1, 5]), false).unwrap(), 0, 100).unwrap().len(), 201, "{case}");
    }
}

/// The log and indexes change between encrypted and not from one opening to the next, with crashes; nothing is lost.
#[test]
fn openings_with_and_without_encryption_follow_each_other() {
    for seed in seeds(6) {
        within(&format!("seed {seed}"), 120, move || {
            let mut rng = Rng::new(seed);
            let mut disk = MemDisk::new();
            let keys = TestKeys::of(&[1]);
            let mut expected = Map::new();
            for _ in 0..8 {
                let engine = open(&disk, &keys, rng.chance(50)).unwrap();
                assert!(dump(&engine, 0, 100).unwrap() == expected);
                commit_some(&engine, &mut rng, 40, 200, &mut expected);
                match rng.below(3) {
                    0 => engine.close().unwrap(),
                    1 => engine.compact_range(&[0; 4], &[255; 4]).unwrap(),
                    _ => {}
                }
                let image = disk.crash(rng.next());
                drop(engine);
                disk = image;
            }
        });
    }
}

/// Whatever fails while a policy is set, it holds afterwards or not, and the rows are there.
#[test]
fn any_operation_of_a_change_of_policy_may_fail() {
    for n in 1.. {
        let disk = MemDisk::new();
        let keys = TestKeys::of(&[1, 5]);
        let engine = open(&disk, &keys, false).unwrap();
        engine.write(&[(key(INDEX, 1), Some(b"value".to_vec()))], true).unwrap();
        disk.fail_after(n, FaultKind::StorageFull);
        let set = engine.set_index_encryption(&[IndexId(INDEX)], Some(5));
        let struck = !disk.clear_fault();
        if let Err(error) = &set {
            assert!(struck, "{error}");
        } else {
            assert_eq!(engine.index_encryption(IndexId(INDEX)), Some(5));
        }
        let image = disk.crash(n);
        drop(engine);
        let engine = open(&image, &keys, false).unwrap();
        let now = engine.index_encryption(IndexId(INDEX));
        assert!(now == Some(5) || (set.is_err() && now.is_none()), "operation {n}: {set:?}, then {now:?}");
        assert_eq!(dump(&engine, 0, 100).unwrap().len(), 1);
        if !struck {
            assert!(n > 5);
            break;
        }
    }
}

/// Waits for what a background thread does.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let from = Instant::now();
    while !is_so() {
        assert!(from.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What is in files follows what is asked for: encrypted, under another key, in the clear; with progress and told at both ends.
#[test]
fn files_that_are_there_follow_a_change() {
    within("changes of policy", 120, || {
        let (disk, recorder) = (MemDisk::new(), Recorder::default());
        let keys = TestKeys::of(&[1, 5]);
        let options = Options {
            keys: Some(keys.clone()),
            listener: recorder.listener(),
            ..plain_options(Arc::new(disk.clone()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        for round in 0..4 {
            let writes = |index| (0..60).map(move |n| (key(index, 60 * round + n), Some(vec![7; 500])));
            engine.write(&writes(INDEX).chain(writes(OTHER)).collect::<Vec<_>>(), true).unwrap();
            engine.flush().unwrap();
        }
        let rows = dump(&engine, 0, 100).unwrap();
        for (n, (of_index, of_other)) in
            [(Some(5), None), (Some(5), Some(1)), (Some(1), Some(5)), (None, Some(5)), (None, None)]
                .into_iter()
                .enumerate()
        {
            engine.set_index_encryption(&[IndexId(INDEX)], of_index).unwrap();
            engine.set_index_encryption(&[IndexId(OTHER)], of_other).unwrap();
            let mut expected: Vec<_> =
                [of_index, of_other].map(|id| (id.unwrap_or(0), u32::from(id.is_some()))).to_vec();
            expected.sort_unstable();
            expected.dedup();
            until("the new files", || {
                let mut found = keys_of_files(&disk);
                found.sort_unstable();
                found.dedup();
                found == expected && engine.metrics().reencryption_files == 0
            });
            assert!(dump(&engine, 0, 100).unwrap() == rows);
            until("the event", || recorder.count(|event| matches!(event, Event::ReencryptionDone { .. })) > n);
        }
        assert_eq!(engine.metrics().encrypted_files, 0);
        let begun = recorder.count(|event| matches!(event, Event::ReencryptionBegun { files, .. } if *files > 0));
        assert!(begun >= 5);
    });
}

/// A new version of each key, again and again, while somebody writes and the machine loses its power: in the end nothing is under an
/// older version, in no file and not in the log that is written, and no row is missing.
#[test]
fn keys_rotate_under_load_and_crashes() {
    for seed in seeds(4) {
        within(&format!("seed {seed}"), 120, move || {
            let mut rng = Rng::new(seed);
            let mut disk = MemDisk::new();
            let keys = TestKeys::of(&[1, 5]);
            let mut expected = Map::new();
            for version in 1..6u32 {
                keys.set(1, version);
                keys.set(5, 2 * version);
                let engine = open(&disk, &keys, true).unwrap();
                engine.set_index_encryption(&[IndexId(OTHER)], Some(5)).unwrap();
                assert!(dump(&engine, 0, 100).unwrap() == expected);
                commit_some(&engine, &mut rng, 60, 100, &mut expected);
                if rng.chance(50) {
                    // While it is open, too.
                    keys.set(5, 2 * version + 1);
                    until("a look", || keys_of_files(&disk).contains(&(5, 2 * version + 1)));
                }
                let image = disk.crash(rng.next());
                drop(engine);
                disk = image;
            }
            let engine = open(&disk, &keys, true).unwrap();
            let newest = |id| keys.latest(id).unwrap();
            until("the newest versions", || {
                let found = keys_of_files(&disk);
                engine.metrics().reencryption_files == 0 && found.iter().all(|&(id, version)| version == newest(id))
            });
            engine.flush().unwrap();
            engine.close().unwrap();
            drop(engine);
            // Nobody needs the older ones any more.
            let old = TestKeys::of(&[1, 5]);
            old.only(1, newest(1));
            old.only(5, newest(5));
            let engine = open(&disk, &old, true).unwrap();
            assert!(dump(&engine, 0, 100).unwrap() == expected);
        });
    }
}

/// A key that is taken away from a running store fails who opens a file that needs it, and nobody else; what is written goes on with the
/// version that is known.
#[test]
fn a_key_that_goes_fails_readers_of_its_files_only() {
    let disk = MemDisk::new();
    let keys = TestKeys::of(&[1, 5]);
    let engine = open(&disk, &keys, false).unwrap();
    engine.set_index_encryption(&[IndexId(INDEX)], Some(5)).unwrap();
    for index in [INDEX, PLAIN] {
        engine.write(&[(key(index, 1), Some(b"value".to_vec()))], true).unwrap();
    }
    engine.flush().unwrap();
    keys.set(5, 0);
    let get = |index| engine.get_at(&key(index, 1), engine.visible(), &mut Vec::new());
    let error = get(INDEX).unwrap_err();
    assert!(error.to_string().ends_with(".sst: encryption key 5 version 1: no such key"), "{error}");
    assert!(get(PLAIN).unwrap());
    engine.write(&[(key(INDEX, 2), Some(b"value".to_vec()))], true).unwrap();
    engine.flush().unwrap();
    keys.set(5, 1);
    assert!(get(INDEX).unwrap());
    assert_eq!(dump(&engine, 0, 100).unwrap().len(), 3);
}
