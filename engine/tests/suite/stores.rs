//! Whole stores of every format version, as the programs of their time have left them (`fixtures/vN/store`, written by
//! `examples/whole_store.rs`): opened, read in full, decided, written to, merged and upgraded, at any crash in between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Map, OnFailure, dump, key, within};
use parking_lot::Mutex;
use strata_engine::io::{Disk, MemDisk};
use strata_engine::layer::{CrashHook, CrashPoint, Feature, IndexId, Need};
use strata_engine::{Engine, Error, Options, Result};

const VERSIONS: [u32; 4] = [1, 2, 3, 4];

/// What the store of version 4 uses.
const FEATURES: &[Feature] = &[
    Feature::new("example-layout", "0.1", Need::Reader),
    Feature::new("example-counters", "0.1", Need::Writer),
    Feature::new("example-hint", "0.1", Need::Nobody),
];

fn folder(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/v{version}"))
}

/// The store on a disk of its own.
fn stored(version: u32) -> MemDisk {
    let disk = MemDisk::new();
    crate::common::copy(&folder(version).join("store"), &disk, Path::new(DIR));
    disk
}

/// A key and its new value; without one it is deleted.
type Write = (Vec<u8>, Option<Vec<u8>>);

/// What was committed to it, and what its prepared transactions wrote.
struct Content {
    committed: Map,
    prepared: BTreeMap<String, Vec<Write>>,
}

impl Content {
    fn new() -> Content {
        let mut content = Content { committed: Map::new(), prepared: BTreeMap::new() };
        for line in std::fs::read_to_string(folder(0).with_file_name("store.txt")).unwrap().lines() {
            let mut words = line.split(' ').peekable();
            let xid = words.next_if(|word| word.starts_with("xid-"));
            let (index, name) = words.next().unwrap().split_once('/').unwrap();
            let key = [&IndexId(index.parse().unwrap()).prefix()[..], name.as_bytes()].concat();
            let value = words.next().map(|word| word.as_bytes().to_vec());
            match xid {
                Some(xid) => content.prepared.entry(xid.to_owned()).or_default().push((key, value)),
                None => drop(content.committed.insert(key, value.unwrap())),
            }
        }
        content
    }

    /// What is committed once `xid` is.
    fn with(&self, xid: &str) -> Map {
        let mut map = self.committed.clone();
        for (key, value) in &self.prepared[xid] {
            match value {
                Some(value) => drop(map.insert(key.clone(), value.clone())),
                None => drop(map.remove(key)),
            }
        }
        map
    }
}

fn open(disk: &MemDisk) -> Result<Engine> {
    Engine::open(Path::new(DIR), Options { features: FEATURES, ..crate::common::plain_options(Arc::new(disk.clone())) })
}

/// The format that the manifest in force states.
fn format(disk: &MemDisk) -> u8 {
    let name = String::from_utf8(disk.content(&Path::new(DIR).join("CURRENT")).unwrap()).unwrap();
    let bytes = disk.content(&Path::new(DIR).join(name.trim_end())).unwrap();
    // Behind the unit's header and the frame's length, of one byte or two: frame flag, record kind, format.
    let flag = 48 + if bytes[48] < 0x80 { 1 } else { 2 };
    assert_eq!(bytes[flag..flag + 2], [0, 1]);
    bytes[flag + 2]
}

/// Every row, by all ways to it.
fn check(engine: &Engine, expected: &Map) {
    let mut found = dump(engine, 0, 100).unwrap();
    // What is left of a dropped index means nothing.
    let live: BTreeSet<IndexId> = expected.keys().map(|key| IndexId::of(key)).collect();
    found.retain(|key, _| live.contains(&IndexId::of(key)));
    let differs = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
    let different: Vec<_> = found.keys().chain(expected.keys()).filter(differs).take(5).collect();
    assert!(different.is_empty(), "{different:?}");
    for (key, value) in expected {
        let mut found = Vec::new();
        assert!(engine.get_at(key, engine.visible(), &mut found).unwrap());
        assert_eq!(&found, value);
    }
    for index in engine.indexes().unwrap() {
        engine.verify_index(index).unwrap();
    }
}

#[test]
fn stores_of_every_format_are_read_decided_and_upgraded() {
    for version in VERSIONS {
        let _case = OnFailure(format!("format {version}"));
        within("a stored store", 120, move || {
            let (disk, content) = (stored(version), Content::new());
            assert_eq!(u32::from(format(&disk)), version);
            assert!(content.committed.len() > 200 && content.prepared["xid-large"].len() > 100);
            let engine = open(&disk).unwrap();
            check(&engine, &content.committed);
            let mut xids = engine.prepared();
            xids.sort();
            assert_eq!(xids, [b"xid-large".to_vec(), b"xid-small".to_vec()]);
            // What is prepared is locked.
            let mut txn = engine.begin();
            for (key, _) in content.prepared.values().flatten() {
                let lock = txn.lock(key, strata_engine::layer::LockMode::Exclusive, strata_engine::layer::Wait::No);
                assert!(lock.is_err());
            }
            drop(txn);
            engine.close().unwrap();
            drop(engine);
            assert_eq!(format(&disk), if version == 4 { 4 } else { 3 });

            let engine = open(&disk).unwrap();
            assert!(engine.commit_prepared(b"xid-large").unwrap() && engine.rollback_prepared(b"xid-small").unwrap());
            let mut expected = content.with("xid-large");
            check(&engine, &expected);
            // Written to: overwritten, deleted, new.
            let mut txn = engine.begin();
            for (at, old) in content.committed.keys().enumerate() {
                if at % 3 == 0 {
                    txn.put(old, b"newer").unwrap();
                    expected.insert(old.clone(), b"newer".to_vec());
                } else if at % 3 == 1 {
                    txn.delete(old).unwrap();
                    expected.remove(old);
                }
            }
            txn.put(&key(40, 7), b"new").unwrap();
            expected.insert(key(40, 7), b"new".to_vec());
            txn.commit().unwrap();
            check(&engine, &expected);
            engine.flush().unwrap();
            engine.compact_range(&IndexId(0).prefix(), &IndexId(100).prefix()).unwrap();
            check(&engine, &expected);
            engine.drop_indexes(&[IndexId(18)]).unwrap();
            expected.retain(|key, _| IndexId::of(key) != IndexId(18));

            // Upgraded: it needs more of its reader now.
            FEATURES.iter().for_each(|feature| engine.require(feature).unwrap());
            assert_eq!(format(&disk), 4);
            engine.close().unwrap();
            drop((txn, engine));
            let engine = open(&disk).unwrap();
            check(&engine, &expected);
            let names: Vec<String> = engine.features().iter().map(|feature| feature.name().to_owned()).collect();
            let all = ["example-counters", "example-hint", "example-layout", "shared-files", "shared-spills"];
            assert_eq!(names, all);
            engine.close().unwrap();
        });
    }
}

/// Decided the other way, and by an opening that crashes.
#[test]
fn stores_of_every_format_survive_a_crash_while_they_are_opened() {
    for version in VERSIONS {
        let _case = OnFailure(format!("format {version}"));
        within("a crash of a stored store", 120, move || {
            let content = Content::new();
            let mut disk = stored(version);
            for seed in 0..6 {
                // The image of a crash after so much of an opening, and of what comes first.
                disk.fail_after(5 * seed + 1, strata_engine::io::FaultKind::Other);
                if let Ok(engine) = open(&disk) {
                    let _ = engine.flush();
                    drop(engine);
                }
                disk.clear_fault();
                disk = disk.crash(seed);
            }
            let engine = open(&disk).unwrap();
            check(&engine, &content.committed);
            assert!(engine.rollback_prepared(b"xid-large").unwrap() && engine.commit_prepared(b"xid-small").unwrap());
            check(&engine, &content.with("xid-small"));
            engine.flush().unwrap();
            engine.close().unwrap();
            drop(engine);
            let engine = open(&disk).unwrap();
            check(&engine, &content.with("xid-small"));
        });
    }
}

/// Who does not know what a store uses does not open it, is told what and whom to ask, and changes nothing.
#[test]
fn an_unknown_feature_keeps_the_store_shut() {
    let disk = stored(4);
    let before = format!("{:?}", disk.list(Path::new(DIR)).unwrap());
    let refusal = |features: &'static [Feature]| {
        let options = Options { features, ..crate::common::plain_options(Arc::new(disk.clone())) };
        match Engine::open(Path::new(DIR), options) {
            Err(error @ Error::Incompatible { .. }) => error.to_string(),
            other => panic!("{:?}", other.err()),
        }
    };
    let text = refusal(&[]);
    let version = env!("CARGO_PKG_VERSION");
    let told = "example-counters (Strata 0.1 or later), example-layout (Strata 0.1 or later)";
    assert!(text.ends_with(&format!("uses features that Strata {version} does not know: {told}")), "{text}");
    const ONE: &[Feature] = &[Feature::new("example-layout", "0.1", Need::Reader)];
    assert!(refusal(ONE).ends_with("does not know: example-counters (Strata 0.1 or later)"));
    assert_eq!(format!("{:?}", disk.list(Path::new(DIR)).unwrap()), before);
    check(&open(&disk).unwrap(), &Content::new().committed);
}

/// What a caller does not know itself it cannot ask of others: its store would be shut to it.
#[test]
fn a_feature_is_required_by_those_who_know_it() {
    let disk = MemDisk::new();
    let engine = open(&disk).unwrap();
    let unknown = Feature::new("somebody-elses", "0.1", Need::Reader);
    assert!(matches!(engine.require(&unknown), Err(Error::Invalid(_))));
    assert_eq!(format(&disk), 3);
    engine.require(&FEATURES[0]).unwrap();
    assert_eq!(format(&disk), 4);
    assert!(engine.features().iter().any(|feature| feature == &FEATURES[0]));
}

/// A crash right behind the noting of a feature leaves a store that lists it, so that whoever does not know the feature never
/// meets anything that needs it. Noted once, it is not noted again.
#[test]
fn a_feature_is_listed_before_its_first_use() {
    let disk = MemDisk::new();
    let images: Arc<Mutex<Vec<MemDisk>>> = Arc::default();
    let hook: CrashHook = {
        let (disk, images) = (disk.clone(), images.clone());
        Arc::new(move |point| {
            if point == CrashPoint::FeatureNoted {
                images.lock().push(disk.crash(7));
            }
        })
    };
    let options = Options {
        features: FEATURES,
        on_crash_point: Some(hook),
        ..crate::common::plain_options(Arc::new(disk.clone()))
    };
    let engine = Engine::open(Path::new(DIR), options).unwrap();
    engine.require(&FEATURES[0]).unwrap();
    engine.require(&FEATURES[0]).unwrap();
    assert!(engine.status_text().contains("\nexample-layout (0.1), shared-files (0.1), shared-spills (0.1)\n"));
    let images = std::mem::take(&mut *images.lock());
    assert_eq!(images.len(), 1);
    let refusal =
        Engine::open(Path::new(DIR), crate::common::plain_options(Arc::new(images[0].clone()))).err().unwrap();
    assert!(refusal.to_string().contains("does not know: example-layout"), "{refusal}");
    assert!(open(&images[0]).unwrap().features().iter().any(|feature| feature == &FEATURES[0]));
}
