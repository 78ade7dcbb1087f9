//! What is salvaged of damaged stores: every row outside the damage, with its newest value, and a name for every loss.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Map, OnFailure, Rng, dump, key, options, seeds, value};
use strata_engine::crypt::Keyring;
use strata_engine::internals::salvage::{Loss, Salvage};
use strata_engine::internals::sst::Survey;
use strata_engine::io::{Disk, MemDisk, Mode};
use strata_engine::layer::IndexId;
use strata_engine::{Compression, Engine, Options};

const INDEXES: [u32; 3] = [16, 17, 300];
const KEYS: u64 = 500;

/// A closed store, or one after a kill, and what is known of it.
struct Store {
    disk: MemDisk,
    expected: Map,
    /// Every value that a key ever had.
    history: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// Keys that were changed when the log was no longer flushed.
    in_log: BTreeSet<Vec<u8>>,
    /// It was not closed: damage to the end of its log looks like a torn end, which is cut.
    is_torn: bool,
    /// Keys that a large transaction wrote.
    large: BTreeSet<Vec<u8>>,
    /// Keys that an undecided transaction wrote.
    undecided: BTreeSet<Vec<u8>>,
}

impl Store {
    fn new(seed: u64) -> Store {
        let mut store = Store {
            disk: MemDisk::new(),
            expected: Map::new(),
            history: BTreeMap::new(),
            in_log: BTreeSet::new(),
            is_torn: false,
            large: BTreeSet::new(),
            undecided: BTreeSet::new(),
        };
        let mut rng = Rng::new(seed);
        let open = |disk: &MemDisk| {
            let options = Options { transaction_bytes: 12_000, ..options(Arc::new(disk.clone())) };
            let engine = Engine::open(Path::new(DIR), options).unwrap();
            engine.set_index_compression(IndexId(17), Some(Compression::Lz4));
            engine.set_index_compression(IndexId(300), Some(Compression::None));
            engine
        };
        let engine = open(&store.disk);
        store.write(&engine, &mut rng, 150);
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        store.write(&engine, &mut rng, 60);
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        engine.close().unwrap();
        drop(engine);
        let engine = open(&store.disk);
        store.in_log.clear();
        store.write(&engine, &mut rng, 30);
        let mut txn = engine.begin();
        for k in 0..3 {
            let key = key(16, 10_000 + k);
            txn.put(&key, b"undecided").unwrap();
            store.undecided.insert(key);
        }
        txn.prepare(b"forgotten").unwrap();
        engine.sync().unwrap();
        txn.detach();
        drop(txn);
        match rng.chance(50) {
            true => engine.close().unwrap(),
            // As a kill leaves it.
            false => {
                store.disk = store.disk.copy();
                store.is_torn = true;
            }
        }
        store
    }

    fn write(&mut self, engine: &Engine, rng: &mut Rng, transactions: u64) {
        for _ in 0..transactions {
            let mut txn = engine.begin();
            // Some are large and leave files of their own.
            let is_large = rng.chance(4);
            for _ in 0..if is_large { 120 } else { 5 } {
                let key = key(INDEXES[rng.below(3) as usize], rng.below(KEYS));
                if rng.chance(20) {
                    txn.delete(&key).unwrap();
                    self.expected.remove(&key);
                } else {
                    let tag = rng.next();
                    let bytes = 40 + rng.below(400);
                    let value = value(rng, tag, bytes);
                    txn.put(&key, &value).unwrap();
                    self.history.entry(key.clone()).or_default().insert(value.clone());
                    self.expected.insert(key.clone(), value);
                }
                if is_large {
                    self.large.insert(key.clone());
                }
                self.in_log.insert(key);
            }
            txn.commit().unwrap();
        }
    }

    fn files(&self, keep: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let within = |dir: &str| {
            let dir = PathBuf::from(dir);
            self.disk.list(&dir).unwrap().into_iter().map(move |name| dir.join(name)).collect::<Vec<_>>()
        };
        let mut all = within(DIR);
        all.extend(within(&format!("{DIR}/log")));
        all.retain(|path| path.file_name().is_some_and(|name| keep(&name.to_string_lossy())));
        all
    }

    /// The table files that the store has; others may lie there that it is about to remove.
    fn tables(&self) -> Vec<PathBuf> {
        Salvage::open(Arc::new(self.disk.clone()), Path::new(DIR), &[], None).unwrap().files()
    }

    /// Compares what is salvaged with what was there, and gives the losses.
    fn check(&self, disk: &MemDisk) -> Salvaged {
        self.check_but(disk, &|_| false)
    }

    /// As `check`, but for some keys.
    fn check_but(&self, disk: &MemDisk, but: &dyn Fn(&[u8]) -> bool) -> Salvaged {
        let mut salvage = Salvage::open(Arc::new(disk.clone()), Path::new(DIR), &[], None).unwrap();
        let (mut rows, mut doubtful) = (Map::new(), BTreeSet::new());
        let mut last = Vec::new();
        salvage
            .walk(&[0; 4], &[255; 4], &mut |row| {
                assert!(row.key > last.as_slice(), "in order, each key once");
                last = row.key.to_vec();
                assert!(!self.undecided.contains(row.key), "a transaction that was not decided");
                assert!(
                    self.history.get(row.key).is_some_and(|values| values.contains(row.value)),
                    "a value that the key never had"
                );
                rows.insert(row.key.to_vec(), row.value.to_vec());
                if row.doubtful {
                    doubtful.insert(row.key.to_vec());
                }
                Ok::<(), std::convert::Infallible>(())
            })
            .unwrap();
        let no_manifest = salvage.notes.iter().any(|note| note.contains("manifest"));
        let log_is_lost = salvage.losses.iter().any(|loss| loss.keys.is_none() && loss.versions.is_none());
        let covered = |key: &[u8]| {
            let within = |loss: &Loss| {
                loss.keys.as_ref().is_some_and(|(lower, upper)| lower.as_slice() <= key && key <= upper.as_slice())
            };
            salvage.losses.iter().any(within) || log_is_lost && self.in_log.contains(key)
        };
        for (key, value) in &self.expected {
            if rows.get(key) != Some(value) && !but(key) {
                let found = rows.get(key).map(|value| &value[..8]);
                let what = format!("{}: {found:?}, not {:?}", shown(key), &value[..8]);
                assert!(covered(key), "{what} is outside the damage: {}", told(&salvage.losses));
                let stale = rows.contains_key(key);
                assert!(!stale || doubtful.contains(key) || log_is_lost, "an old value without a doubt");
            }
        }
        for key in rows.keys().filter(|key| !self.expected.contains_key(*key) && !but(key)) {
            assert!(doubtful.contains(key) || log_is_lost || no_manifest, "a deleted row without a doubt: {key:02x?}");
        }
        Salvaged { rows, doubtful, losses: salvage.losses, undecided: salvage.undecided.len() }
    }
}

struct Salvaged {
    rows: Map,
    doubtful: BTreeSet<Vec<u8>>,
    losses: Vec<Loss>,
    undecided: usize,
}

#[test]
fn an_undamaged_store_is_salvaged_whole() {
    for seed in seeds(4) {
        let _case = OnFailure(format!("seed {seed}"));
        let store = Store::new(seed);
        let found = store.check(&store.disk);
        assert!(found.rows == store.expected && found.doubtful.is_empty());
        assert_eq!((found.losses.as_slice(), found.undecided), (&[][..], 1));
        let engine = Engine::open(Path::new(DIR), options(Arc::new(store.disk.copy()))).unwrap();
        assert!(dump(&engine, 0, u32::MAX).unwrap() == store.expected, "the model is what the engine says");
    }
}

/// Each byte in turn, or nearly: in the data it costs the rows of one block, elsewhere nothing.
#[test]
fn a_damaged_byte_of_a_table_file_costs_one_block_at_most() {
    for seed in seeds(2) {
        let store = Store::new(seed);
        let mut rng = Rng::new(seed + 100);
        for path in store.tables() {
            let content = store.disk.content(&path).unwrap();
            let data_end = u64::from_le_bytes(content[content.len() - 32..content.len() - 24].try_into().unwrap());
            let mut offset = rng.below(97);
            while offset < content.len() as u64 {
                let _case = OnFailure(format!("seed {seed}, {} byte {offset}", path.display()));
                let disk = store.disk.copy();
                disk.corrupt(&path, offset);
                let found = store.check(&disk);
                let lost = |key: &Vec<u8>| found.rows.get(key) != store.expected.get(key);
                let lost: Vec<&Vec<u8>> = store.expected.keys().filter(|key| lost(key)).collect();
                match found.losses.as_slice() {
                    [] => assert!(lost.is_empty() && offset >= data_end, "{} rows of no loss", lost.len()),
                    [loss] => {
                        assert_eq!(loss.path, path);
                        let end = loss.offset + loss.bytes.unwrap();
                        assert!((loss.offset..end).contains(&offset), "{loss:?}");
                        if offset >= data_end {
                            assert!(lost.is_empty() && found.doubtful.is_empty(), "the index costs no row");
                        } else {
                            assert!(loss.versions.is_some_and(|versions| lost.len() as u64 <= versions), "{loss:?}");
                            assert!(end - loss.offset < 20 << 10, "more than a block: {loss:?}");
                        }
                    }
                    many => panic!("one byte, and {}", told(many)),
                }
                offset += 61 + rng.below(97);
            }
        }
    }
}

/// Footers, indexes and properties of all files at once.
#[test]
fn without_any_index_every_row_comes_back() {
    for seed in seeds(3) {
        let _case = OnFailure(format!("seed {seed}"));
        let store = Store::new(seed);
        let disk = store.disk.copy();
        for path in store.tables() {
            let content = disk.content(&path).unwrap();
            let data_end = u64::from_le_bytes(content[content.len() - 32..content.len() - 24].try_into().unwrap());
            let file = disk.open(&path, Mode::ReadWrite, false).unwrap();
            file.write_all_at(&vec![0xa5; content.len() - data_end as usize], data_end).unwrap();
        }
        let found = store.check(&disk);
        assert!(found.rows == store.expected);
        assert!(found.losses.len() >= store.tables().len());
    }
}

#[test]
fn without_a_manifest_every_row_comes_back() {
    for seed in seeds(3) {
        for zap in ["CURRENT", "MANIFEST"] {
            let _case = OnFailure(format!("seed {seed}, {zap}"));
            let store = Store::new(seed);
            let disk = store.disk.copy();
            for path in store.files(|name| name.starts_with(zap)) {
                disk.remove(&path).unwrap();
            }
            // Of large transactions the manifest alone says how new their rows are.
            let found = store.check_but(&disk, &|key| zap == "MANIFEST" && store.large.contains(key));
            let is_known = |key: &Vec<u8>| zap == "CURRENT" || !store.large.contains(key);
            for (key, row) in store.expected.iter().filter(|(key, _)| is_known(key)) {
                let value = found.rows.get(key).map(|value| &value[..8]);
                assert!(
                    found.rows.get(key) == Some(row),
                    "{}: {value:?} instead of {:?}; {}",
                    shown(key),
                    &row[..8],
                    told(&found.losses)
                );
            }
            assert!(!found.losses.is_empty());
            // The one manifest that is there needs nobody to name it.
            assert!(zap == "MANIFEST" || found.losses.len() == 1, "{}", told(&found.losses));
        }
    }
}

/// Several files at once: flipped, cut, zeroed, missing.
#[test]
fn of_stores_damaged_at_random_all_else_comes_back() {
    for seed in seeds(60) {
        let _case = OnFailure(format!("seed {seed}"));
        let store = Store::new(seed % 6);
        let mut rng = Rng::new(seed + 1000);
        let disk = store.disk.copy();
        let mut all = store.files(|name| name.ends_with(".log") && !name.starts_with("recycle"));
        all.extend(store.tables());
        let mut damaged = Vec::new();
        for _ in 0..1 + rng.below(5) {
            let path = &all[rng.below(all.len() as u64) as usize];
            let Some(content) = disk.content(path) else { continue };
            let at = rng.below(content.len().max(1) as u64);
            match rng.below(4) {
                0 => disk.corrupt(path, at),
                1 => disk.cut(path, at, rng.chance(50)).unwrap(),
                2 => {
                    let file = disk.open(path, Mode::ReadWrite, false).unwrap();
                    let bytes = (1 + rng.below(20_000)).min(content.len() as u64 - at);
                    file.write_all_at(&vec![0; bytes as usize], at).unwrap();
                }
                _ => disk.remove(path).unwrap(),
            }
            damaged.push(path.clone());
        }
        let log_is_hurt = damaged.iter().any(|path| path.extension().is_some_and(|e| e == "log"));
        let found = store.check_but(&disk, &|key| store.is_torn && log_is_hurt && store.in_log.contains(key));
        let known = Salvage::open(Arc::new(disk.clone()), Path::new(DIR), &[], None).unwrap().files();
        let named: BTreeSet<&PathBuf> = found.losses.iter().map(|loss| &loss.path).collect();
        for path in damaged.iter().filter(|path| path.extension().is_some_and(|e| e == "sst")) {
            let survey = Survey::of(
                &(Arc::new(disk.clone()) as Arc<dyn Disk>),
                path,
                number(path),
                None,
                &Keyring::default(),
                false,
            );
            let is_hurt = survey.map_or(true, |survey| !survey.damage.is_empty());
            // Of a large transaction the log alone may know the file.
            let is_known = !log_is_hurt || known.contains(path);
            assert!(
                !is_hurt || !is_known || named.contains(path),
                "{} is not named: {}",
                path.display(),
                told(&found.losses)
            );
        }
    }
}

fn shown(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn told(losses: &[Loss]) -> String {
    let line = |loss: &Loss| {
        let keys = loss.keys.as_ref().map(|(lower, upper)| format!("{} to {}", shown(lower), shown(upper)));
        format!("\n  {} {} {:?}: {} {keys:?}", loss.path.display(), loss.offset, loss.bytes, loss.what)
    };
    losses.iter().map(line).collect()
}

fn number(path: &Path) -> strata_engine::internals::base::FileNo {
    let digits = path.file_stem().and_then(|stem| stem.to_str()).unwrap();
    strata_engine::internals::base::FileNo(digits.parse().unwrap())
}
