//! Indexes with any number of entries per row (a word index that is of these tests only), and indexes that are being built or
//! dropped.

use crate::common::values::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strata_row::catalog::format;
use strata_row::def::{IndexKind, TableDef};
use strata_row::error::Error;
use strata_row::kv::{self, IndexId, LockMode};
use strata_row::store::Store;
use strata_row::table::Table;

const T: &str = "./db/t";
const BY_WORD: usize = 2;
const COLUMNS: &[&str] = &["id int4", "t varchar60 null", "b text2 null"];
const INDEXES: &[&str] = &["PRIMARY (id)", "t (t)", "w words (t, b)"];

fn open(dir: &std::path::Path) -> Arc<Store> {
    let store = crate::common::open(dir);
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
    let store = crate::common::open(dir.path());
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
