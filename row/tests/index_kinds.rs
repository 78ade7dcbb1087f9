//! Indexes with any number of entries per row (a word index that is of these tests only), and indexes that are being built or
//! dropped.

mod common;

use common::values::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_row::catalog::format;
use strata_row::def::{IndexKind, TableDef};
use strata_row::error::Error;
use strata_row::kv::{self, IndexId, LockMode, Options};
use strata_row::schema::IndexState;
use strata_row::store::Store;
use strata_row::table::Table;

const T: &str = "./db/t";
const BY_T: usize = 1;
const BY_WORD: usize = 2;
const COLUMNS: &[&str] = &["id int4", "t varchar60 null", "b text2 null"];
const INDEXES: &[&str] = &["PRIMARY (id)", "t (t)", "w words (t, b)"];

fn open(dir: &std::path::Path) -> Arc<Store> {
    let store = common::open(dir);
    store.set_library(Arc::new(Names));
    store
}

fn fresh(dir: &std::path::Path, columns: &[&str], indexes: &[&str]) -> (Arc<Store>, Arc<Table>) {
    let store = open(dir);
    let def = table(columns, indexes);
    store.create_table(T, &def, 0).unwrap();
    let table = store.open_table(T, def).unwrap();
    (store, table)
}

fn row(id: i64, t: Option<&str>, b: Option<&str>) -> Values {
    let text = |text: Option<&str>| text.map_or(V::Null, V::from);
    values([("id", V::Int(id)), ("t", text(t)), ("b", text(b))])
}

fn words_of(row: &Values) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for name in ["t", "b"] {
        if let V::Text(text) = &row[name] {
            words.extend(text.to_lowercase().split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Committed keys and values of an index.
fn stored(store: &Store, id: IndexId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (own, mut cursor) = (store.engine().begin(), store.engine().cursor());
    cursor.open(&own, store.engine().visible(), &id.prefix(), &IndexId(id.0 + 1).prefix()).unwrap();
    cursor.seek_ge(&own, &id.prefix()).unwrap();
    let mut found = Vec::new();
    while cursor.valid() {
        found.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next(&own).unwrap();
    }
    found
}

/// Rows with a hidden row id lie in the order in which they came.
fn by_id(mut rows: Vec<Values>) -> Vec<Values> {
    rows.sort_by(|a, b| a["id"].partial_cmp(&b["id"]).unwrap());
    rows
}

type Model = BTreeMap<i64, Values>;

/// Every word finds the rows that have it, in the user's transaction.
fn compare(user: &mut User, model: &Model, what: &str) {
    let words: BTreeSet<String> = model.values().flat_map(words_of).chain(["nowhere".to_owned()]).collect();
    for word in &words {
        let expected: Vec<&Values> = model.values().filter(|row| words_of(row).contains(word)).collect();
        let found = by_id(user.find(BY_WORD, word).unwrap());
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{what}: '{word}'");
    }
    // A walk through all of it meets each row once per word.
    let entries: usize = model.values().map(|row| words_of(row).len()).sum();
    assert_eq!(user.scan(Some(BY_WORD)).unwrap().len(), entries, "{what}");
    assert_eq!(by_id(user.scan(None).unwrap()), model.values().cloned().collect::<Vec<_>>(), "{what}");
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Values),
    Update(usize, Values),
    Delete(usize),
    Commit,
    Rollback,
    /// A statement of two rows, of which the second exists.
    Fail(Values),
    Flush,
    Snapshot,
}

fn rows() -> impl Strategy<Value = Values> {
    let text = || prop::option::of("([abcAB]{1,2} ){0,4}");
    (0..8i64, text(), text()).prop_map(|(id, t, b)| row(id, t.as_deref(), b.as_deref()))
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => rows().prop_map(Op::Insert),
        6 => (0..8usize, rows()).prop_map(|(n, row)| Op::Update(n, row)),
        3 => (0..8usize).prop_map(Op::Delete),
        2 => Just(Op::Commit),
        1 => Just(Op::Rollback),
        1 => rows().prop_map(Op::Fail),
        1 => Just(Op::Flush),
        1 => Just(Op::Snapshot),
    ];
    prop::collection::vec(op, 1..30)
}

fn run(ops: Vec<Op>, hidden: bool) {
    let dir = tempfile::tempdir().unwrap();
    let indexes = if hidden { ["i unique (id)", INDEXES[1], INDEXES[2]] } else { [INDEXES[0], INDEXES[1], INDEXES[2]] };
    let (store, table) = fresh(dir.path(), COLUMNS, &indexes);
    let (mut user, mut committed, mut model) = (User::new(&store, &table), Model::new(), Model::new());
    let mut watchers: Vec<(User, Model)> = Vec::new();
    for op in ops {
        let nth = |n: usize| model.keys().nth(n).copied();
        match op {
            Op::Insert(row) => {
                let V::Int(id) = row["id"] else { unreachable!() };
                let outcome = user.insert(&row);
                assert_eq!(outcome.is_ok(), !model.contains_key(&id), "{outcome:?}");
                model.entry(id).or_insert(row);
            }
            Op::Update(n, new) => {
                let Some(id) = nth(n) else { continue };
                let V::Int(to) = new["id"] else { unreachable!() };
                let outcome = user.each(|old| match old["id"] {
                    V::Int(old_id) if old_id == id => Some(new.clone()),
                    _ => Some(old.clone()),
                });
                assert_eq!(outcome.is_ok(), to == id || !model.contains_key(&to), "{outcome:?}");
                if outcome.is_ok() {
                    model.remove(&id);
                    model.insert(to, new);
                }
            }
            Op::Delete(n) => {
                let Some(id) = nth(n) else { continue };
                user.each(|old| (old["id"] != V::Int(id)).then(|| old.clone())).unwrap();
                model.remove(&id);
            }
            Op::Commit => {
                user.commit();
                committed = model.clone();
                assert_eq!(user.findings(), [""; 0]);
            }
            Op::Rollback => {
                user.session.rollback().unwrap();
                model = committed.clone();
            }
            Op::Fail(row) => {
                let mark = user.session.savepoint();
                let known = model.values().next().cloned();
                if user.insert(&row).is_ok() {
                    assert!(known.is_none_or(|known| user.insert(&known).is_err()));
                }
                user.session.rollback_to(mark);
            }
            Op::Flush => store.engine().flush().unwrap(),
            Op::Snapshot if watchers.len() < 3 => {
                let mut watcher = User::new(&store, &table);
                compare(&mut watcher, &committed, "a new snapshot");
                watchers.push((watcher, committed.clone()));
            }
            Op::Snapshot => {}
        }
        compare(&mut user, &model, "own view");
    }
    for (watcher, sees) in &mut watchers {
        compare(watcher, sees, "an old snapshot");
    }
    user.session.rollback().unwrap();
    drop((user, watchers, table));
    store.close().unwrap();
    drop(store);
    let store = open(dir.path());
    let table = store.open_by_catalog(T).unwrap();
    let mut user = User::new(&store, &table);
    compare(&mut user, &committed, "after a restart, by the catalog");
    assert_eq!(user.findings(), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn an_index_of_words_follows_its_rows(ops in ops(), hidden: bool) {
        run(ops, hidden);
    }
}

#[test]
fn check_finds_a_missing_a_stray_and_a_wrong_entry_of_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path(), COLUMNS, INDEXES);
    let mut user = User::new(&store, &table);
    user.insert(&row(1, Some("one two two"), Some("three"))).unwrap();
    user.insert(&row(2, Some("two"), None)).unwrap();
    user.insert(&row(3, None, Some(" "))).unwrap();
    user.commit();
    assert_eq!(user.findings(), [""; 0]);
    let id = table.index_id(Some(BY_WORD));
    let entries = stored(&store, id);
    assert_eq!(entries.len(), 4);
    // The first of equal words counts.
    assert_eq!(entries.iter().map(|e| e.1[0]).collect::<Vec<_>>(), [0, 3, 1, 0]);
    let write = |key: &[u8], value: Option<&[u8]>| {
        store.engine().write(&[(key.to_vec(), value.map(<[u8]>::to_vec))], false).unwrap();
    };
    let (key, value) = &entries[1];
    write(key, None);
    assert_eq!(user.findings(), ["index 'w' has 3 entries, its rows have 4 terms"]);
    write(key, Some(&[9]));
    assert_eq!(user.findings(), ["index 'w': entry 2 restores other values than its row has"]);
    write(key, Some(value));
    let stray = [&key[..4], b"four\0\0\0\0\x04", &key[13..]].concat();
    write(&stray, Some(value));
    let lines = user.findings();
    assert!(lines.contains(&"index 'w': entry 1 is not the one its row has".to_owned()), "{lines:?}");
    assert!(lines.contains(&"index 'w' has 5 entries, its rows have 4 terms".to_owned()), "{lines:?}");
    write(&stray, None);
    assert_eq!(user.findings(), [""; 0]);
}

/// A unique index of words, as one over the elements of an array would be.
#[test]
fn a_word_may_be_alone_in_its_index() {
    for fills in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = fresh(dir.path(), COLUMNS, &["PRIMARY (id)", "t (t)", "w unique words (t, b)"]);
        let mut user = User::new(&store, &table);
        if fills {
            user.cursor.bulk_begin(&user.session).unwrap();
        }
        user.insert(&row(1, Some("a b a"), Some("c"))).unwrap();
        user.insert(&row(2, None, Some("d"))).unwrap();
        let twice = user.insert(&row(3, Some("e f"), Some("C")));
        assert!(matches!(twice, Err(Error::Duplicate(BY_WORD))), "{twice:?}");
        user.insert(&row(4, Some("e"), None)).unwrap();
        user.cursor.bulk_end(false).unwrap();
        user.commit();
        assert_eq!(user.find(BY_WORD, "c").unwrap().len(), 1);
        assert_eq!(user.find(BY_WORD, "f").unwrap().len(), 0, "nothing is left of the row that was refused");
        user.get(2).unwrap();
        let taken = user.write(&row(2, None, Some("d")), Some(&row(2, None, Some("d a"))));
        assert!(matches!(taken, Err(Error::Duplicate(BY_WORD))), "{taken:?}");
        // What one row gives up another may have.
        user.get(1).unwrap();
        user.write(&row(1, Some("a b a"), Some("c")), Some(&row(1, Some("c"), Some("x")))).unwrap();
        user.get(2).unwrap();
        user.write(&row(2, None, Some("d")), Some(&row(2, Some("b"), Some("a d")))).unwrap();
        assert_eq!(user.find(BY_WORD, "a").unwrap(), [row(2, Some("b"), Some("a d"))]);
        user.commit();
        assert_eq!(user.findings(), [""; 0]);
        assert_eq!(stored(&store, table.index_id(Some(BY_WORD))).len(), 6);
        drop(store);
    }
}

/// A fill has all entries, and CHECK counts them.
#[test]
fn a_fill_makes_the_entries_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path(), COLUMNS, INDEXES);
    let mut user = User::new(&store, &table);
    user.cursor.bulk_begin(&user.session).unwrap();
    let mut model = Model::new();
    for id in 0..300 {
        let row = row(id, Some(&format!("w{} every w{}", id % 7, id % 3)), (id % 2 == 0).then_some("even"));
        user.insert(&row).unwrap();
        model.insert(id, row);
    }
    user.cursor.bulk_end(false).unwrap();
    compare(&mut user, &model, "filled");
    assert_eq!(user.findings(), [""; 0]);
    assert!(table.rec_per_key(BY_WORD).unwrap()[0] > 1.0);
}

fn state(store: &Store, index: &str) -> Option<IndexState> {
    store.catalog().get(T).unwrap().indexes.iter().find(|i| i.name == index).map(|i| i.state)
}

#[test]
fn an_index_is_written_while_it_is_built_read_when_it_is_live_and_neither_when_it_is_dropped() {
    for line in ["n (t, id)", "n words (t, b)"] {
        let dir = tempfile::tempdir().unwrap();
        let old_def = table(COLUMNS, &INDEXES[..2]);
        let new_def = table(COLUMNS, &[INDEXES[0], INDEXES[1], line]);
        let (mut store, table) = fresh(dir.path(), COLUMNS, &INDEXES[..2]);
        let mut user = User::new(&store, &table);
        user.insert(&row(1, Some("one"), None)).unwrap();
        user.insert(&row(2, Some("two"), None)).unwrap();
        user.commit();
        let mut watcher = User::new(&store, &table);
        drop(table);
        watcher.scan(None).unwrap();
        store.add_index(T, &new_def.indexes[2], &|| false).unwrap();
        assert_eq!(state(&store, "n"), Some(IndexState::Building));
        let id = store.catalog().get(T).unwrap().indexes[2].id;
        // The server's definition has it not, one that has is refused: nobody reads it.
        let refused = store.open_table(T, new_def.clone()).err().unwrap().to_string();
        assert!(refused.contains("2 indexes in the engine, 3 in the server"), "{refused}");
        let again = |user: &mut User, store: &Arc<Store>, def: &TableDef| {
            user.reopen(&store.open_table(T, def.clone()).unwrap());
        };
        again(&mut watcher, &store, &old_def);
        assert_eq!(watcher.scan(None).unwrap().len(), 2, "a snapshot from before goes on");
        again(&mut user, &store, &old_def);
        user.insert(&row(3, Some("three"), None)).unwrap();
        user.commit();
        assert_eq!(stored(&store, id).len(), 1, "rows from before have no entries yet");
        user.insert(&row(4, Some("four"), None)).unwrap();
        user.session.rollback().unwrap();
        assert_eq!(stored(&store, id).len(), 1);
        user.get(1).unwrap();
        user.write(&row(1, Some("one"), None), Some(&row(1, Some("uno"), None))).unwrap();
        user.get(2).unwrap();
        user.write(&row(2, Some("two"), None), None).unwrap();
        user.commit();
        assert_eq!(stored(&store, id).len(), 2);
        assert_eq!(user.findings(), [""; 0], "what is there is right, what is missing may be");
        // An entry that is not of its row is found all the same.
        let (key, value) = stored(&store, id)[0].clone();
        store.engine().write(&[([&key[..], b"\x01"].concat(), Some(value.clone()))], false).unwrap();
        assert!(!user.findings().is_empty());
        store.engine().write(&[([&key[..], b"\x01"].concat(), None)], false).unwrap();
        drop((user, watcher));
        store.close().unwrap();
        drop(store);
        store = open(dir.path());
        assert_eq!(state(&store, "n"), Some(IndexState::Building));
        let mut watcher = User::new(&store, &store.open_table(T, old_def.clone()).unwrap());
        watcher.scan(None).unwrap();
        // All its rows have entries by now.
        store.set_index_state(T, "n", IndexState::Live).unwrap();
        again(&mut watcher, &store, &new_def);
        let refused = watcher.scan(Some(2));
        assert!(matches!(refused, Err(Error::TableChanged(_))), "{refused:?}");
        watcher.commit();
        assert_eq!(watcher.scan(Some(2)).unwrap().len(), 2);
        assert_eq!(watcher.findings(), [""; 0]);
        assert!(store.drop_index(T, "n").unwrap_err().to_string().contains("in use"));
        store.set_index_state(T, "n", IndexState::Dropping).unwrap();
        let wrong = store.set_index_state(T, "n", IndexState::Live).unwrap_err().to_string();
        assert!(wrong.contains("cannot become Live, being Dropping"), "{wrong}");
        watcher.commit();
        again(&mut watcher, &store, &old_def);
        watcher.insert(&row(5, Some("five"), None)).unwrap();
        watcher.get(1).unwrap();
        watcher.write(&row(1, Some("uno"), None), None).unwrap();
        watcher.commit();
        assert_eq!(stored(&store, id).len(), 2, "nobody writes it");
        assert_eq!(watcher.findings(), [""; 0]);
        store.drop_index(T, "n").unwrap();
        assert_eq!(state(&store, "n"), None);
        again(&mut watcher, &store, &old_def);
        assert_eq!(watcher.scan(Some(BY_T)).unwrap().len(), 2);
        drop(watcher);
        store.engine().flush().unwrap();
        assert!(stored(&store, id).is_empty());
        store.close().unwrap();
        drop(store);
        let store = open(dir.path());
        assert!(!store.engine().indexes().unwrap().contains(&id));
        store.open_table(T, old_def).unwrap();
    }
}

/// A unique index is built beside writers that know nothing of each other's values in it: they go on, and it becomes live only if
/// there never were two rows with one value.
#[test]
fn a_unique_index_that_met_a_value_twice_does_not_become_live() {
    // What is done while it is built, with row 1 'one' from before: what each row was and what it becomes. And whether two rows had
    // a value.
    type At = Option<(i32, Option<&'static str>)>;
    let at = |id, text| Some((id, Some(text)));
    type Work<'a> = &'a [(At, At)];
    let cases: [(&str, Work<'_>, bool); 6] = [
        ("other values", &[(None, at(2, "two"))], false),
        (
            "a value that was given up",
            &[(None, at(2, "two")), (at(2, "two"), at(2, "zwei")), (None, at(3, "two"))],
            false,
        ),
        ("a row that moves", &[(None, at(2, "two")), (at(2, "two"), at(5, "two"))], false),
        ("twice", &[(None, at(2, "two")), (None, at(3, "TWO"))], true),
        // The first has no entry: it must not take away the other's.
        ("a value of a row from before, which goes", &[(None, at(2, "one")), (at(1, "one"), None)], true),
        ("NULL", &[(None, Some((2, None))), (None, Some((3, None)))], false),
    ];
    for (what, work, twice) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = fresh(dir.path(), COLUMNS, &INDEXES[..2]);
        let mut user = User::new(&store, &table);
        user.insert(&row(1, Some("one"), None)).unwrap();
        user.commit();
        let new_def = common::values::table(COLUMNS, &[INDEXES[0], INDEXES[1], "u unique (t)"]);
        let old_def = common::values::table(COLUMNS, &INDEXES[..2]);
        store.add_index(T, &new_def.indexes[2], &|| false).unwrap();
        user.reopen(&store.open_table(T, old_def.clone()).unwrap());
        for &(was, is) in work {
            let is = is.map(|(id, text)| row(id.into(), text, None));
            match was {
                Some((id, text)) => {
                    user.get(id).unwrap();
                    user.write(&row(id.into(), text, None), is.as_ref()).unwrap();
                }
                None => user.insert(&is.unwrap()).unwrap(),
            }
        }
        user.commit();
        assert_eq!(user.findings(), [""; 0], "{what}");
        // What a builder does: the row from before gets its entry.
        if user.get(1).is_some() {
            user.write(&row(1, Some("one"), None), Some(&row(1, Some("on its way"), None))).unwrap();
            user.get(1).unwrap();
            user.write(&row(1, Some("on its way"), None), Some(&row(1, Some("one"), None))).unwrap();
        }
        user.commit();
        let outcome = store.set_index_state(T, "u", IndexState::Live);
        if twice {
            assert!(outcome.unwrap_err().to_string().contains("two rows have one value"), "{what}");
            continue;
        }
        outcome.unwrap();
        user.reopen(&store.open_table(T, new_def.clone()).unwrap());
        assert_eq!(user.findings(), [""; 0], "{what}");
        let taken = user.insert(&row(9, Some("one"), None));
        assert!(matches!(taken, Err(Error::Duplicate(2))), "{taken:?}");
        user.session.rollback().unwrap();
        assert_eq!(user.scan(Some(2)).unwrap().len(), user.scan(None).unwrap().len());
    }
    // Nobody knows what was met before the store was closed.
    let dir = tempfile::tempdir().unwrap();
    let (store, first) = fresh(dir.path(), COLUMNS, &INDEXES[..2]);
    let unique = index(&first.def, "u unique (t)");
    store.add_index(T, &unique, &|| false).unwrap();
    drop(first);
    store.close().unwrap();
    drop(store);
    let store = open(dir.path());
    let error = store.set_index_state(T, "u", IndexState::Live).unwrap_err().to_string();
    assert!(error.contains("its building was interrupted"), "{error}");
    store.set_index_state(T, "u", IndexState::Dropping).unwrap();
    store.drop_index(T, "u").unwrap();
    store.add_index(T, &unique, &|| false).unwrap();
    store.set_index_state(T, "u", IndexState::Live).unwrap();
}

#[test]
fn what_cannot_be_built_beside_writers_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _table) = fresh(dir.path(), COLUMNS, INDEXES);
    let add = |line: &str| store.add_index(T, &index(&table(COLUMNS, &[]), line), &|| false).unwrap_err().to_string();
    assert!(add("T (id)").contains("there is an index 'T'"));
    assert!(store.set_index_state(T, "PRIMARY", IndexState::Dropping).is_err());
    assert!(store.set_index_state(T, "none", IndexState::Dropping).is_err());
}

/// A kind of a later build is kept and not touched; other tables are as ever.
#[test]
fn a_kind_that_is_not_known_is_refused_in_plain_words() {
    let dir = tempfile::tempdir().unwrap();
    let def = |kind: IndexKind| -> TableDef {
        let mut def = table(COLUMNS, INDEXES);
        def.indexes[2].kind = kind;
        def
    };
    {
        let (store, _) = fresh(dir.path(), COLUMNS, INDEXES);
        let error = store.create_table("./db/u", &def(IndexKind::SPATIAL), 0).unwrap_err().to_string();
        assert_eq!(error, "index 'w' is of a kind that this version does not know: spatial");
        store.create_table("./db/u", &def(WORDS), 0).unwrap();
        let mut meta = (*store.catalog().get("./db/u").unwrap()).clone();
        meta.indexes[2].kind = IndexKind::FULL_TEXT;
        store.engine().write(&[(format::table_key("./db/u"), Some(meta.encode()))], true).unwrap();
    }
    let store = open(dir.path());
    for kind in [IndexKind::FULL_TEXT, IndexKind::ORDINARY] {
        let error = store.open_table("./db/u", def(kind)).err().unwrap().to_string();
        assert_eq!(error, "index 'w' is of a kind that this version does not know: full-text");
    }
    let mut user = User::new(&store, &store.open_table(T, table(COLUMNS, INDEXES)).unwrap());
    user.insert(&row(1, Some("a"), None)).unwrap();
    user.commit();
    assert_eq!(store.catalog().get("./db/u").unwrap().indexes[2].kind, IndexKind::FULL_TEXT);
    store.truncate_table("./db/u").unwrap();
    store.drop_table("./db/u").unwrap();
    // Without anybody who knows words.
    drop((user, store));
    let store = common::open(dir.path());
    let error = store.open_table(T, table(COLUMNS, INDEXES)).err().unwrap().to_string();
    assert!(error.contains("does not know: number 200"), "{error}");
}

/// Terms longer than the limit are refused, and nothing of the row is left.
#[test]
fn a_term_that_is_too_long_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path(), COLUMNS, INDEXES);
    let mut user = User::new(&store, &table);
    let long = "x".repeat(1025);
    let error = user.insert(&row(1, Some("short"), Some(&long))).unwrap_err().to_string();
    assert!(error.contains("a term of 1025 bytes, the limit is 1024"), "{error}");
    user.insert(&row(2, Some("short"), Some(&long[1..]))).unwrap();
    user.commit();
    assert_eq!(user.find(BY_WORD, "short").unwrap().len(), 1);
    assert_eq!(user.find(BY_WORD, &long[1..]).unwrap().len(), 1);
    assert_eq!(user.findings(), [""; 0]);
}

/// The store on a disk that fails.
fn open_on(disk: &MemDisk) -> Arc<Store> {
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let options = Options { disk, memtable_budget_bytes: 2 << 20, block_cache_bytes: 1 << 20, ..Options::default() };
    let store = Store::open(std::path::Path::new("/data"), options).unwrap();
    store.set_library(Arc::new(Names));
    store
}

/// Each change of an index is one write of the catalog: whatever fails or dies, it was made or was not, and an index that is no more
/// leaves nothing.
#[test]
fn a_change_of_an_index_that_fails_or_dies_is_made_or_is_not() {
    let old_def = table(COLUMNS, &INDEXES[..2]);
    let new_def = table(COLUMNS, INDEXES);
    let word = &new_def.indexes[2];
    type Turn<'a> = &'a dyn Fn(&Store) -> strata_row::Result<()>;
    let turns: [(Turn<'_>, Option<IndexState>); 4] = [
        (&|store| store.add_index(T, word, &|| false), Some(IndexState::Building)),
        (&|store| store.set_index_state(T, "w", IndexState::Live), Some(IndexState::Live)),
        (&|store| store.set_index_state(T, "w", IndexState::Dropping), Some(IndexState::Dropping)),
        (&|store| store.drop_index(T, "w"), None),
    ];
    let disk = MemDisk::new();
    let store = open_on(&disk);
    store.create_table(T, &old_def, 0).unwrap();
    store.close().unwrap();
    drop(store);
    let (mut made, mut not_made, mut before) = (0, 0, None);
    for (turn, after) in turns {
        for kind in [FaultKind::StorageFull, FaultKind::Other] {
            for n in 1.. {
                let disk = disk.copy();
                let store = open_on(&disk);
                disk.fail_from(n, kind);
                let outcome = turn(&store);
                let struck = disk.struck().is_some();
                let killed = disk.crash(n);
                disk.clear_fault();
                drop(store.close());
                drop(store);
                for disk in [&killed, &disk] {
                    let store = open_on(disk);
                    let found = state(&store, "w");
                    assert!(
                        found == after || found == before && outcome.is_err(),
                        "{found:?}, {kind:?} at {n}: {outcome:?}"
                    );
                    if found == after {
                        made += 1;
                    } else {
                        not_made += 1;
                        turn(&store).unwrap();
                    }
                    let def = if after == Some(IndexState::Live) { &new_def } else { &old_def };
                    let mut user = User::new(&store, &store.open_table(T, def.clone()).unwrap());
                    assert_eq!(user.findings(), [""; 0]);
                    user.insert(&row(1000, Some("new words"), None)).unwrap();
                    user.commit();
                    assert_eq!(user.findings(), [""; 0]);
                    let owned = store.catalog().get(T).unwrap().ids();
                    let mut indexes = store.engine().indexes().unwrap();
                    indexes.retain(|id| id.0 >= format::FIRST_INDEX_ID && !owned.contains(id));
                    assert!(indexes.is_empty(), "{indexes:?} belong to no table");
                }
                if !struck {
                    break;
                }
            }
        }
        // Without a fault, and some rows.
        let store = open_on(&disk);
        turn(&store).unwrap();
        let def = if after == Some(IndexState::Live) { &new_def } else { &old_def };
        let mut user = User::new(&store, &store.open_table(T, def.clone()).unwrap());
        let from = user.scan(None).unwrap().len() as i64;
        (from..from + 3).for_each(|id| user.insert(&row(id, Some("some words"), Some("more"))).unwrap());
        user.commit();
        drop(user);
        store.close().unwrap();
        before = after;
    }
    assert!(made > 0 && not_made > 0, "{made}, {not_made}");
}

/// A locking search for a word keeps others from adding the word, and not from other words.
#[test]
fn who_has_searched_for_a_word_with_a_lock_meets_no_phantom() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path(), COLUMNS, INDEXES);
    let (mut user, mut other) = (User::new(&store, &table), User::new(&store, &table));
    user.insert(&row(1, Some("one two"), None)).unwrap();
    user.commit();
    other.timeout = std::time::Duration::ZERO;
    for word in ["two", "three"] {
        let found = user.find_locking(BY_WORD, word, Some(LockMode::Exclusive)).unwrap();
        assert_eq!(found.len(), usize::from(word == "two"));
        let blocked = other.insert(&row(2, Some("four"), Some(word)));
        assert!(matches!(blocked, Err(Error::Engine(kv::Error::LockTimeout))), "{blocked:?}");
        other.session.rollback().unwrap();
        other.insert(&row(2, Some("four"), Some("twofold"))).unwrap();
        other.session.rollback().unwrap();
        assert_eq!(user.find_locking(BY_WORD, word, Some(LockMode::Exclusive)).unwrap(), found);
        user.session.rollback().unwrap();
        other.insert(&row(2, Some("four"), Some(word))).unwrap();
        other.session.rollback().unwrap();
    }
}

#[test]
fn concurrent_writers_keep_an_index_of_words_and_its_rows_together() {
    for unique in ["", "unique "] {
        let dir = tempfile::tempdir().unwrap();
        let words = format!("w {unique}words (t, b)");
        let (store, table) = fresh(dir.path(), COLUMNS, &["PRIMARY (id)", "t (t)", &words]);
        std::thread::scope(|scope| {
            for seed in 1..5u64 {
                let (store, table) = (&store, &table);
                scope.spawn(move || {
                    let mut user = User::new(store, table);
                    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let mut next = |n: u64| {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        (random >> 33) % n
                    };
                    for _ in 0..100 {
                        let id = next(6) as i64;
                        let text: Vec<String> = (0..next(4)).map(|_| format!("w{}", next(20))).collect();
                        let new = row(id, Some(&text.join(" ")), None);
                        let step = match user.try_get(id as i32) {
                            Err(error) => Err(error),
                            Ok(None) => user.insert(&new),
                            Ok(Some(old)) => user.write(&old, Some(&new).filter(|_| next(4) > 0)).map(drop),
                        };
                        match step {
                            Ok(()) => user.commit(),
                            // What the statement did is undone, the rest of the transaction is not.
                            Err(Error::Duplicate(_)) if next(2) == 0 => user.commit(),
                            Err(Error::Duplicate(_) | Error::Engine(kv::Error::Deadlock)) => {
                                user.session.rollback().unwrap();
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                });
            }
        });
        let mut user = User::new(&store, &table);
        assert_eq!(user.findings(), [""; 0]);
        let model: Model = user.scan(None).unwrap().into_iter().enumerate().map(|(n, row)| (n as i64, row)).collect();
        compare(&mut user, &model, "after all");
    }
}
