//! A store says that it has files with dictionaries before anything points to one, whoever writes it and wherever that is cut short.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::common::{DIR, Map, Rng, dump, hooked, key, plain_options, within};
use strata_engine::io::{Disk, MemDisk, Mode};
use strata_engine::layer::IndexId;
use strata_engine::{Engine, Options};

/// As all tests open a store, but with files that are long enough for a dictionary.
fn open(disk: Arc<dyn Disk>) -> Engine {
    let options = Options { sst_bytes: 4 << 20, memtable_budget_bytes: 64 << 20, ..plain_options(disk) };
    Engine::open(Path::new(DIR), options).unwrap()
}

/// Rows of sentences that recur all over: a block has most of them, and each but a few times.
fn texts(count: u64) -> Map {
    let mut rng = Rng::new(1);
    let mut sentence = || (0..48).map(|_| b'a' + rng.below(26) as u8).collect::<Vec<u8>>();
    let sentences: Vec<Vec<u8>> = (0..100).map(|_| sentence()).collect();
    let text = |k: u64| {
        let mut rng = Rng::new(k);
        (0..3).flat_map(|_| sentences[rng.below(100) as usize].iter().copied()).collect()
    };
    (0..count).map(|k| (key(16, k), text(k))).collect()
}

/// In transactions that are short enough for memory.
fn put(engine: &Engine, rows: &Map) {
    let rows: Vec<_> = rows.iter().collect();
    for part in rows.chunks(1000) {
        let mut txn = engine.begin();
        part.iter().for_each(|(key, value)| txn.put(key, value).unwrap());
        txn.commit().unwrap();
    }
}

fn says_so(engine: &Engine) -> bool {
    engine.features().iter().any(|feature| feature.name() == "dictionaries")
}

/// Whether one of the table files on the disk has a dictionary, by the version in its footer.
fn is_there(disk: &MemDisk) -> bool {
    let names = disk.list(Path::new(DIR)).unwrap();
    names.iter().filter(|name| name.extension().is_some_and(|end| end == "sst")).any(|path| {
        let file = disk.open(&Path::new(DIR).join(path), Mode::Read, false).unwrap();
        let len = file.len().unwrap();
        let mut footer = [0; 64];
        len >= 64
            && file.read_exact_at(&mut footer, len - 64).is_ok()
            && footer.starts_with(b"STRATSST")
            && footer[8] >= 6
    })
}

#[test]
fn the_first_file_with_a_dictionary_makes_the_store_say_so() {
    within("a store with dictionaries", 120, || {
        let disk = MemDisk::new();
        let engine = open(Arc::new(disk.clone()));
        let (few, many) = (texts(1000), texts(30_000));
        put(&engine, &few);
        engine.flush().unwrap();
        assert!(!says_so(&engine) && !is_there(&disk));
        put(&engine, &many);
        engine.flush().unwrap();
        assert!(says_so(&engine) && is_there(&disk));
        engine.compact_range(&IndexId(16).prefix(), &IndexId(17).prefix()).unwrap();
        assert_eq!(dump(&engine, 16, 17).unwrap(), many);
        engine.close().unwrap();
        drop(engine);
        let engine = open(Arc::new(disk.clone()));
        assert!(says_so(&engine) && is_there(&disk));
        assert_eq!(dump(&engine, 16, 17).unwrap(), many);
        engine.verify_index(IndexId(16)).unwrap();
        // Once more from the files, out of a cache that holds nothing of them.
        let mut found = Vec::new();
        for (key, value) in many.iter().step_by(997) {
            assert!(engine.get_at(key, engine.visible(), &mut found).unwrap());
            assert_eq!(&found, value);
        }
    });
}

/// Large transactions write files themselves, before they commit.
#[test]
fn a_large_transaction_makes_the_store_say_so() {
    within("a large transaction", 120, || {
        let disk = MemDisk::new();
        let options = Options {
            sst_bytes: 4 << 20,
            memtable_budget_bytes: 16 << 20,
            transaction_bytes: 4 << 20,
            ..plain_options(Arc::new(disk.clone()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let many = texts(60_000);
        let mut txn = engine.begin();
        many.iter().for_each(|(key, value)| txn.put(key, value).unwrap());
        assert!(is_there(&disk) && says_so(&engine), "the transaction goes on");
        txn.commit().unwrap();
        assert_eq!(is_there(&disk), says_so(&engine));
        assert!(says_so(&engine));
        drop(engine);
        let engine = open(Arc::new(disk.crash(3)));
        assert!(says_so(&engine));
        assert_eq!(dump(&engine, 16, 17).unwrap(), many);
    });
}

/// Wherever the first flush of such a file is cut short: no store has one that it does not tell of, and none loses a row.
#[test]
fn a_crash_leaves_no_store_that_has_one_and_does_not_say_so() {
    within("crashes", 240, || {
        let disk = MemDisk::new();
        let images: Arc<Mutex<Vec<MemDisk>>> = Arc::default();
        let hook = {
            let (disk, images) = (disk.clone(), images.clone());
            // Of the writes of the file itself a few are enough.
            Arc::new(move |what: &str, path: &Path| {
                let is_sst = path.extension().is_some_and(|end| end == "sst");
                let mut images = images.lock().unwrap();
                if !is_sst || what != "write" || images.len() % 5 == 0 {
                    let seed = images.len() as u64;
                    images.push(disk.crash(seed));
                }
            })
        };
        let engine = open(hooked(disk.clone(), hook));
        let many = texts(30_000);
        put(&engine, &many);
        images.lock().unwrap().clear();
        engine.flush().unwrap();
        assert!(says_so(&engine));
        drop(engine);
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > 5, "{}", images.len());
        let (mut with, mut without) = (0, 0);
        for image in images {
            let engine = open(Arc::new(image.clone()));
            // What nothing points to was removed when the store was opened.
            assert!(says_so(&engine) || !is_there(&image));
            assert_eq!(dump(&engine, 16, 17).unwrap(), many);
            *(if says_so(&engine) { &mut with } else { &mut without }) += 1;
        }
        assert!(with > 0 && without > 0, "{with} {without}");
    });
}
