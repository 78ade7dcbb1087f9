//! Indexes whose unpack data has form 1, as earlier builds made them, beside those of form 2.

use std::path::Path;
use std::sync::Arc;

use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_row::build::{Build, Worker};
use strata_row::catalog::alter::Source;
use strata_row::def::TableDef;
use strata_row::foreign::{KeyChange, Statement};
use strata_row::kv::{self, Options};
use strata_row::scan::Seek;
use strata_row::store::{Alteration, Store};

use crate::build::Same;
use crate::common::{Client, NEVER, RECORD, definition, made, row};

const T: &str = "./db/t";
const BY_B: usize = 1;

fn older(mut def: TableDef) -> TableDef {
    def.indexes.iter_mut().for_each(|index| index.unpack_form = 1);
    def
}

/// Of the primary key, `b`, `b_a` and `e`.
fn forms(store: &Store) -> Vec<u8> {
    let mut indexes = store.catalog().get(T).unwrap().indexes.clone();
    indexes.sort_by(|a, b| a.name.cmp(&b.name));
    indexes.iter().map(|index| index.unpack_form).collect()
}

fn lists_the_feature(store: &Store) -> bool {
    store.engine().features().iter().any(|feature| feature.name() == "restored-texts")
}

/// Texts in small letters, with capitals, with accents and spaces at the end.
fn text(k: i64) -> String {
    ["small", "Capital", "ALL OF THEM", "mIxEd", "dots.... ", "", " "][(k % 7) as usize].to_owned()
}

/// Rows of these keys, by who opens the table with this definition.
fn insert(store: &Arc<Store>, def: &TableDef, keys: std::ops::Range<i64>) {
    let table = store.open_table(T, def.clone()).unwrap();
    let mut client = Client::new(store, &table);
    for k in keys {
        client.insert(&row(k, 0, Some(&text(k)), Some(k as i32))).unwrap();
    }
    client.commit();
}

/// Covering reads of index `b` give every text as it is, and CHECK finds nothing.
fn compare(store: &Arc<Store>, def: &TableDef, rows: i64) {
    let table = store.open_table(T, def.clone()).unwrap();
    let mut client = Client::new(store, &table);
    client.check();
    client.begin();
    client.cursor.begin(Some(BY_B), true).unwrap();
    let mut found = Vec::new();
    let mut there = client.cursor.seek(&mut client.session, Seek::First, &[], &mut client.record).unwrap();
    while there {
        let read = crate::common::Row::read(&client.record);
        found.push((read.c, read.b.unwrap()));
        there = client.cursor.next(&mut client.session, &mut client.record).unwrap();
    }
    client.session.statement_end();
    client.commit();
    found.sort();
    assert_eq!(found, (0..rows).map(|k| (k, text(k))).collect::<Vec<_>>());
}

fn rebuild(store: &Arc<Store>, def: &TableDef, kept: Vec<Option<usize>>, rebuilds: bool) {
    let table = store.open_table(T, def.clone()).unwrap();
    let asked = Alteration {
        def: def.clone(),
        sources: (0..def.columns.len()).map(Source::Kept).collect(),
        kept,
        statement: Statement::default(),
        keys: KeyChange::default(),
        rebuilds,
        converts: false,
        counter: None,
    };
    let mut build = Build::begin(&table, &asked, NEVER).unwrap();
    let mut rows = Same(vec![0; RECORD]);
    let mut worker = Worker { rows: &mut rows, is_killed: &|| false, told: &mut |_| {} };
    build.run(&mut worker).and_then(|()| build.end(&mut worker)).unwrap();
    Build::commit(vec![build], &asked, NEVER).unwrap();
}

#[test]
fn an_index_keeps_the_form_that_it_has_and_a_new_one_has_the_second() {
    let dir = tempfile::tempdir().unwrap();
    let def = definition(false);
    let store = crate::common::open(dir.path());
    drop(made(&store, T, older(def.clone())));
    assert_eq!(forms(&store), [1; 4]);
    assert!(!lists_the_feature(&store));
    // An earlier build's, then those of this one, whose definitions come with form 2: the catalog's is the one that counts.
    insert(&store, &older(def.clone()), 0..20);
    insert(&store, &def, 20..40);
    compare(&store, &def, 40);
    assert_eq!(forms(&store), [1; 4]);
    // An index that is made anew has form 2, and where no text is restored, form 1 says the same: only a prefix, a number.
    rebuild(&store, &def, vec![Some(0), None, Some(2), None], false);
    assert_eq!(forms(&store), [1, 2, 1, 1]);
    assert!(lists_the_feature(&store));
    compare(&store, &def, 40);
    insert(&store, &def, 40..60);
    compare(&store, &def, 60);
    store.truncate_table(T).unwrap();
    assert_eq!(forms(&store), [1, 2, 1, 1]);
    insert(&store, &def, 0..20);
    compare(&store, &def, 20);
    store.close().unwrap();
    drop(store);
    compare(&crate::common::open(dir.path()), &def, 20);
}

#[test]
fn a_rebuilt_table_has_the_second_form() {
    let dir = tempfile::tempdir().unwrap();
    let def = definition(false);
    let store = crate::common::open(dir.path());
    drop(made(&store, T, older(def.clone())));
    insert(&store, &older(def.clone()), 0..30);
    rebuild(&store, &def, vec![None; 4], true);
    assert_eq!(forms(&store), [1, 2, 1, 1]);
    compare(&store, &def, 30);
}

/// At any operation of the disk at which CREATE TABLE may die: who does not know the form is refused before there is such an index.
#[test]
fn a_store_lists_the_form_before_it_has_such_an_index() {
    let options = |disk: &MemDisk| Options { disk: Arc::new(disk.clone()) as Arc<dyn Disk>, ..Options::default() };
    let open = |disk: &MemDisk| Store::open(Path::new("/data"), options(disk)).unwrap();
    let mut whole = false;
    let (mut there, mut refused) = (0, 0);
    for n in 1..200 {
        let disk = MemDisk::new();
        let store = open(&disk);
        disk.fail_after(n, FaultKind::StorageFull);
        let outcome = store.create_table(T, &definition(false), 0);
        whole = disk.clear_fault();
        for seed in 0..3 {
            let image = disk.crash(seed);
            let again = open(&image);
            let has_index = again.catalog().get(T).is_ok();
            assert!(has_index || outcome.is_err());
            let listed = lists_the_feature(&again);
            assert!(listed || !has_index, "operation {n}");
            there += u32::from(has_index);
            again.close().unwrap();
            drop(again);
            // The engine alone knows nothing of the row layer's features.
            let refusal = kv::Engine::open(Path::new("/data"), options(&image)).err().map(|e| e.to_string());
            assert_eq!(refusal.is_some_and(|text| text.contains("restored-texts")), listed);
            refused += u32::from(listed);
        }
        if whole {
            break;
        }
    }
    assert!(whole && there > 0 && refused > there);
}
