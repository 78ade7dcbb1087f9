//! Writes the whole store that is kept for each format version in `fixtures/vN/store`, and what they all hold.
//!
//!     cargo run -p strata-engine --example whole_store -- OUT_DIR [--encrypted]
//!
//! It has files of one index and of several, overwritten and deleted keys, a dropped index, transactions in files of their
//! own, prepared ones with and without, and commits that only the log has. It is left as a crash leaves it. `OUT_DIR/store`
//! gets the files without the zeros at their ends and without those that mean nothing, `OUT_DIR/store.txt` the content:
//!
//! ```text
//! INDEX/KEY VALUE     committed
//! XID INDEX/KEY VALUE by the prepared transaction XID; without VALUE, deleted
//! ```
//!
//! `tests/suite/stores.rs` opens, reads and changes these stores. To make the one of an older version, put this file and `kept` into a checkout
//! of the commit that `fixtures/README.md` names, with an [`open`] that requires no features.

mod kept;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use strata_engine::crypt::{KeyProvider, KeyVersion};
use strata_engine::layer::{Feature, IndexId, LockMode, Need, Txn, Wait};
use strata_engine::{Engine, Options};

type Content = BTreeMap<(u32, String), String>;

fn key(index: u32, name: &str) -> Vec<u8> {
    [&IndexId(index).prefix()[..], name.as_bytes()].concat()
}

fn name(n: u32) -> String {
    format!("key-{n:05}")
}

fn put(txn: &mut Txn, content: &mut Content, index: u32, n: u32, round: u32) {
    let value = format!("value-{n}-of-round-{round}-").repeat(1 + n as usize % 3);
    txn.lock(&key(index, &name(n)), LockMode::Exclusive, Wait::No).expect("free");
    txn.put(&key(index, &name(n)), value.as_bytes()).expect("put");
    content.insert((index, name(n)), value);
}

fn delete(txn: &mut Txn, content: &mut Content, index: u32, n: u32) {
    txn.lock(&key(index, &name(n)), LockMode::Exclusive, Wait::No).expect("free");
    txn.delete(&key(index, &name(n))).expect("delete");
    content.remove(&(index, name(n)));
}

/// What the store of version 4 uses: nothing that means anything.
const FEATURES: &[Feature] = &[
    Feature::new("example-layout", "0.1", Need::Reader),
    Feature::new("example-counters", "0.1", Need::Writer),
    Feature::new("example-hint", "0.1", Need::Nobody),
];

/// The keys of the encrypted store.
struct Keys;

impl KeyProvider for Keys {
    fn latest(&self, id: u32) -> Result<u32, String> {
        if id == 1 { Ok(1) } else { Err("no such key".to_owned()) }
    }
    fn key(&self, key: KeyVersion) -> Result<Vec<u8>, String> {
        Ok(format!("key {} {} ", key.id, key.version).into_bytes())
    }
}

fn open(dir: &Path, options: Options) -> Engine {
    if options.encrypt_log {
        return Engine::open(dir, options).expect("open");
    }
    let engine = Engine::open(dir, Options { features: FEATURES, ..options }).expect("open");
    FEATURES.iter().for_each(|feature| engine.require(feature).expect("require"));
    engine
}

/// A transaction of rows in two indexes, beyond the memory that one may use.
fn large(engine: &Engine, content: &mut Content, from: u32, round: u32) -> Txn {
    let mut txn = engine.begin();
    for index in [21, 22] {
        (from..from + 60).for_each(|n| put(&mut txn, content, index, n, round));
    }
    txn
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().expect("usage: whole_store OUT_DIR");
    let encrypted = arguments.next().is_some_and(|argument| argument == "--encrypted");
    let dir = std::env::temp_dir().join(format!("strata-whole-store-{}", std::process::id()));
    let options = || Options {
        log_segment_bytes: 64 << 10,
        memtable_budget_bytes: 1 << 20,
        transaction_bytes: 4 << 10,
        keys: Some(Arc::new(Keys)),
        encrypt_log: encrypted,
        encrypt_indexes: encrypted,
        ..Options::default()
    };
    let mut content = Content::new();
    {
        let engine = open(&dir, options());
        let mut txn = engine.begin();
        for index in 16..20 {
            (0..40).for_each(|n| put(&mut txn, &mut content, index, n * 3, 1));
        }
        txn.commit().expect("commit");
        engine.flush().expect("flush");
        engine.compact_range(&IndexId(16).prefix(), &IndexId(30).prefix()).expect("compact");

        // Overwritten, deleted, new; in level 0.
        let mut txn = engine.begin();
        for index in 16..20 {
            (0..20).for_each(|n| put(&mut txn, &mut content, index, n * 6, 2));
            (0..10).for_each(|n| delete(&mut txn, &mut content, index, n * 9 + 3));
        }
        txn.commit().expect("commit");
        engine.flush().expect("flush");
        engine.drop_indexes(&[IndexId(19)]).expect("drop");
        content.retain(|(index, _), _| *index != 19);

        // A large transaction whose files the manifest has, and a clean end.
        large(&engine, &mut content, 0, 3).commit().expect("commit");
        engine.flush().expect("flush");
        engine.wait_idle().expect("idle");
        engine.close().expect("close");
    }
    let engine = open(&dir, options());
    // One whose files the log alone has, and one that is prepared.
    large(&engine, &mut content, 40, 4).commit().expect("commit");
    let mut prepared = Vec::new();
    let mut written = Content::new();
    let mut txn = large(&engine, &mut written, 1000, 5);
    txn.prepare(b"xid-large").expect("prepare");
    txn.detach();
    prepared.push(("xid-large", written, Vec::new()));
    let mut written = Content::new();
    let mut txn = engine.begin();
    (0..5).for_each(|n| put(&mut txn, &mut written, 16, n + 500, 6));
    delete(&mut txn, &mut written, 16, 117);
    txn.prepare(b"xid-small").expect("prepare");
    txn.detach();
    prepared.push(("xid-small", written, vec![(16, 117)]));
    // In the log only.
    let mut txn = engine.begin();
    for index in 16..19 {
        (0..5).for_each(|n| put(&mut txn, &mut content, index, n * 12 + 1, 7));
        delete(&mut txn, &mut content, index, 6);
    }
    txn.commit().expect("commit");
    engine.sync().expect("sync");

    let out = Path::new(&out);
    kept::keep(&dir, &out.join("store"));
    let mut text = String::new();
    for ((index, name), value) in &content {
        text += &format!("{index}/{name} {value}\n");
    }
    for (xid, written, deleted) in &prepared {
        written.iter().for_each(|((index, name), value)| text += &format!("{xid} {index}/{name} {value}\n"));
        deleted.iter().for_each(|(index, n)| text += &format!("{xid} {index}/{}\n", name(*n)));
    }
    fs::write(out.join("store.txt"), text).expect("write");
    drop(fs::remove_dir_all(&dir));
    // As a crash: nothing is closed.
    std::process::exit(0);
}
