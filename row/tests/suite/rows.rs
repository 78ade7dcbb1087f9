//! Rows and indexes against a model: one session writes, others hold snapshots from before, during and after its transactions.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use strata_row::error::Error;
use strata_row::isolation::Isolation;
use strata_row::kv::{self, LockMode};
use strata_row::progress::Step;
use strata_row::rowcode::Record;
use strata_row::rows::Rows;
use strata_row::scan::{Check, Seek};
use strata_row::store::Store;
use strata_row::table::Table;

type Key = (i64, i32);

/// Text order of the test collation: case does not count.
fn fold(b: &Option<String>) -> Option<String> {
    b.as_ref().map(|b| b.to_lowercase())
}

fn model_order(model: &BTreeMap<Key, Row>, index: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = model.values().cloned().collect();
    let head = |r: &Row| fold(&r.b).map(|b| b.chars().take(3).collect::<String>());
    match index {
        BY_B => rows.sort_by_key(|r| (fold(&r.b), r.c, r.a)),
        BY_E => rows.sort_by_key(|r| (r.e, r.c, r.a)),
        BY_B_A => rows.sort_by_key(|r| (head(r), std::cmp::Reverse(r.a), r.c)),
        _ => {}
    }
    rows
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Row),
    Update(usize, Row),
    Delete(usize),
    Commit,
    Rollback,
    FailStatement(Row),
    Flush,
    /// Another session takes a snapshot, which it keeps to the end.
    Snapshot,
}

/// A session with a snapshot, and what it is to see for ever.
struct Watcher {
    client: Client,
    sees: BTreeMap<Key, Row>,
}

/// Watchers at a time.
const WATCHERS: usize = 3;

/// Every index counted and compared, in the reader's transaction.
fn compare(reader: &mut Client, sees: &BTreeMap<Key, Row>) {
    for index in [PRIMARY, BY_B, BY_E, BY_B_A] {
        let want = model_order(sees, index);
        assert_eq!(reader.scan(Some(index), true).unwrap(), want, "index {index} forward");
        let mut back = reader.scan(Some(index), false).unwrap();
        back.reverse();
        assert_eq!(back, want, "index {index} backward");
        assert_eq!(reader.count(index), want.len(), "index {index} counted");
    }
}

fn rows() -> impl Strategy<Value = Row> {
    let text = prop::option::of("[abAB]{0,5}");
    (0..4i64, 0..6i32, text, prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), prop::option::of(0..12i32))
        .prop_map(|(c, a, b, d, e)| Row { c, a, b, d, e })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => rows().prop_map(Op::Insert),
        4 => (any::<usize>(), rows()).prop_map(|(i, r)| Op::Update(i, r)),
        2 => any::<usize>().prop_map(Op::Delete),
        1 => Just(Op::Commit),
        1 => Just(Op::Rollback),
        1 => rows().prop_map(Op::FailStatement),
        1 => Just(Op::Flush),
        1 => Just(Op::Snapshot),
    ];
    prop::collection::vec(op, 1..60)
}

fn conflict(model: &BTreeMap<Key, Row>, new: &Row, except: Option<Key>) -> Option<usize> {
    let key = (new.c, new.a);
    if Some(key) != except && model.contains_key(&key) {
        return Some(PRIMARY);
    }
    let taken = |r: &Row| r.e == new.e && new.e.is_some() && Some((r.c, r.a)) != except;
    model.values().any(taken).then_some(BY_E)
}

fn expect(result: strata_row::Result<()>, conflict: Option<usize>) -> bool {
    match (result, conflict) {
        (Ok(()), None) => true,
        (Err(Error::Duplicate(i)), Some(j)) if i == j => false,
        (result, conflict) => panic!("{result:?} where the model says {conflict:?}"),
    }
}

fn run(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut client = Client::new(&store, &table);
    let mut model: BTreeMap<Key, Row> = BTreeMap::new();
    let mut committed = model.clone();
    let watch = |sees: &BTreeMap<Key, Row>| {
        let mut client = Client::new(&store, &table);
        assert_eq!(client.count(PRIMARY), sees.len());
        Watcher { client, sees: sees.clone() }
    };
    let mut watchers = vec![watch(&committed)];
    for op in ops {
        match op {
            Op::Insert(r) => {
                if expect(client.insert(r), conflict(&model, r, None)) {
                    model.insert((r.c, r.a), r.clone());
                }
            }
            Op::Update(i, new) if !model.is_empty() => {
                let old = model.values().nth(i % model.len()).unwrap().clone();
                if expect(client.update(&old, new), conflict(&model, new, Some((old.c, old.a)))) {
                    model.remove(&(old.c, old.a));
                    model.insert((new.c, new.a), new.clone());
                }
            }
            Op::Delete(i) if !model.is_empty() => {
                let old = model.values().nth(i % model.len()).unwrap().clone();
                client.delete(&old).unwrap();
                model.remove(&(old.c, old.a));
            }
            Op::Update(..) | Op::Delete(_) => {}
            Op::Commit => {
                client.commit();
                committed = model.clone();
            }
            Op::Rollback => {
                client.session.rollback().unwrap();
                model = committed.clone();
            }
            Op::Flush => store.engine().flush().unwrap(),
            Op::Snapshot => {
                if watchers.len() == WATCHERS {
                    watchers.remove(0);
                }
                watchers.push(watch(&committed));
            }
            Op::FailStatement(r) => {
                client.begin();
                let bytes = r.record();
                let _ = client.cursor.insert(&mut client.session, unsafe { Record::new(&bytes) });
                client.session.statement_rollback();
            }
        }
        // The writer's own view, that of each snapshot, and that of a session which begins now.
        compare(&mut client, &model);
        for watcher in &mut watchers {
            compare(&mut watcher.client, &watcher.sees);
        }
        compare(&mut watch(&committed).client, &committed);
    }
    drop(watchers);
    for index in [PRIMARY, BY_B, BY_E, BY_B_A] {
        let want = model_order(&model, index);
        for lock in [None, Some(LockMode::Exclusive)] {
            client.locking(lock);
            assert_eq!(client.scan(Some(index), true).unwrap(), want, "index {index} forward");
            let mut back = client.scan(Some(index), false).unwrap();
            back.reverse();
            assert_eq!(back, want, "index {index} backward");
        }
        client.locking(None);
    }
    client.check();
    client.commit();
    client.check();
    // Without a close, as after a crash: what was committed is there.
    drop((client, table, store));
    let store = open(dir.path());
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let mut client = Client::new(&store, &table);
    for index in [PRIMARY, BY_B, BY_E, BY_B_A] {
        assert_eq!(client.scan(Some(index), true).unwrap(), model_order(&model, index), "index {index} after reopen");
    }
    client.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn all_indexes_follow_the_model(ops in ops()) {
        run(&ops);
    }
}

fn filled() -> (tempfile::TempDir, std::sync::Arc<strata_row::store::Store>, Client) {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut client = Client::new(&store, &table);
    for c in 0..5 {
        for a in 0..4 {
            let b = format!("k{}", c % 3);
            client.insert(&row(c * 10, a, Some(&b), Some((c * 100) as i32 + a))).unwrap();
        }
    }
    client.commit();
    (dir, store, client)
}

#[test]
fn every_mode_finds_what_its_name_says() {
    let (_dir, _store, mut t) = filled();
    let mut find = |index, mode, image: &[u8]| {
        t.begin();
        t.cursor.begin(Some(index), false).unwrap();
        let found = t.cursor.seek(&mut t.session, mode, image, &mut t.record).unwrap();
        found.then(|| Row::read(&t.record)).map(|r| (r.c, r.a))
    };
    let ten = image_c(10);
    let eleven = image_c(11);
    assert_eq!(find(PRIMARY, Seek::Exact, &ten), Some((10, 0)));
    assert_eq!(find(PRIMARY, Seek::Exact, &eleven), None);
    assert_eq!(find(PRIMARY, Seek::Ge, &ten), Some((10, 0)));
    assert_eq!(find(PRIMARY, Seek::Ge, &eleven), Some((20, 0)));
    assert_eq!(find(PRIMARY, Seek::Gt, &ten), Some((20, 0)));
    assert_eq!(find(PRIMARY, Seek::Gt, &image_c(40)), None);
    assert_eq!(find(PRIMARY, Seek::Le, &ten), Some((10, 3)));
    assert_eq!(find(PRIMARY, Seek::Le, &eleven), Some((10, 3)));
    assert_eq!(find(PRIMARY, Seek::Lt, &ten), Some((0, 3)));
    assert_eq!(find(PRIMARY, Seek::Lt, &image_c(0)), None);
    assert_eq!(find(PRIMARY, Seek::LastInPrefix, &ten), Some((10, 3)));
    assert_eq!(find(PRIMARY, Seek::LastInPrefix, &eleven), None);
    assert_eq!(find(PRIMARY, Seek::First, &[]), Some((0, 0)));
    assert_eq!(find(PRIMARY, Seek::Last, &[]), Some((40, 3)));
    assert_eq!(find(PRIMARY, Seek::Exact, &image_ca(20, 2)), Some((20, 2)));
    assert_eq!(find(BY_E, Seek::Exact, &image_e(Some(301))), Some((30, 1)));
    assert_eq!(find(BY_E, Seek::Exact, &image_e(None)), None);
    assert_eq!(find(BY_B, Seek::Exact, &image_b(Some("K1"), 20)), Some((10, 0)));
    assert_eq!(find(BY_B, Seek::LastInPrefix, &image_b(Some("K1"), 20)), Some((40, 3)));
}

#[test]
fn same_key_steps_bounds_and_turns() {
    let (_dir, _store, mut t) = filled();
    t.begin();
    t.cursor.begin(Some(BY_B), false).unwrap();
    let mut keys = Vec::new();
    let mut found = t.cursor.seek(&mut t.session, Seek::Exact, &image_b(Some("k2"), 20), &mut t.record).unwrap();
    while found {
        keys.push(Row::read(&t.record).a);
        found = t.cursor.next_same(&mut t.session, &mut t.record).unwrap();
    }
    assert_eq!(keys, [0, 1, 2, 3]);
    // A bound, inclusive and not.
    for (inclusive, count) in [(true, 12), (false, 8)] {
        t.cursor.begin(Some(PRIMARY), false).unwrap();
        t.cursor.set_bound(Some(&image_c(20)), inclusive).unwrap();
        let mut n = 0;
        let mut found = t.cursor.seek(&mut t.session, Seek::First, &[], &mut t.record).unwrap();
        while found {
            n += 1;
            found = t.cursor.next(&mut t.session, &mut t.record).unwrap();
        }
        assert_eq!(n, count);
    }
    // After a look-up of one row, both directions go on from it.
    t.cursor.begin(Some(PRIMARY), false).unwrap();
    assert!(t.cursor.seek(&mut t.session, Seek::Exact, &image_ca(20, 0), &mut t.record).unwrap());
    assert!(!t.cursor.next_same(&mut t.session, &mut t.record).unwrap());
    assert!(t.cursor.next(&mut t.session, &mut t.record).unwrap());
    assert_eq!(Row::read(&t.record).a, 1);
    assert!(t.cursor.prev(&mut t.session, &mut t.record).unwrap());
    assert!(t.cursor.prev(&mut t.session, &mut t.record).unwrap());
    assert_eq!((Row::read(&t.record).c, Row::read(&t.record).a), (10, 3));
    // A scan left open between transactions goes on at its place.
    t.cursor.suspend();
    t.commit();
    t.begin();
    assert!(t.cursor.next(&mut t.session, &mut t.record).unwrap());
    assert_eq!((Row::read(&t.record).c, Row::read(&t.record).a), (20, 0));
}

#[test]
fn covering_reads_conditions_and_positions() {
    let (_dir, _store, mut t) = filled();
    t.begin();
    t.cursor.begin(Some(BY_E), true).unwrap();
    t.cursor.set_condition(Some(Box::new(|record| {
        let e = i32::from_le_bytes(record[44..48].try_into().unwrap());
        match e {
            _ if e >= 300 => Check::OutOfRange,
            _ if e % 2 == 0 => Check::Accept,
            _ => Check::Reject,
        }
    })));
    let mut found = t.cursor.seek(&mut t.session, Seek::First, &[], &mut t.record).unwrap();
    let mut seen = Vec::new();
    let mut refs = Vec::new();
    while found {
        let r = Row::read(&t.record);
        seen.push((r.e.unwrap(), r.c, r.a));
        let mut reference = vec![0; t.cursor.table().ref_length()];
        t.position(&t.record.clone(), &mut reference);
        refs.push(reference);
        found = t.cursor.next(&mut t.session, &mut t.record).unwrap();
    }
    assert_eq!(seen, [(0, 0, 0), (2, 0, 2), (100, 10, 0), (102, 10, 2), (200, 20, 0), (202, 20, 2)]);
    for (reference, (e, c, a)) in refs.iter().zip(&seen).rev() {
        assert!(t.cursor.read_position(&mut t.session, reference, &mut t.record).unwrap());
        assert_eq!(Row::read(&t.record), row(*c, *a, Some(&format!("k{}", c / 10 % 3)), Some(*e)));
    }
    let table = t.cursor.table();
    assert!(refs.windows(2).all(|w| table.compare_refs(&w[0], &w[1]).is_lt()));
}

#[test]
fn check_compares_what_covering_reads_are_answered_from() {
    let (_dir, store, mut client) = filled();
    let table = client.cursor.table().clone();
    let findings = |client: &Client| {
        let mut lines = Vec::new();
        let good = table.check(&client.session, false, None, &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(good, lines.is_empty());
        lines
    };
    client.insert(&row(90, 0, Some("Capital"), None)).unwrap();
    client.commit();
    assert_eq!(findings(&client), Vec::<String>::new());
    for (index, name) in [(BY_B, "b"), (BY_E, "e"), (BY_B_A, "b_a")] {
        // The first entry that has a value: of a text in another case, of a unique key the clustered one.
        let id = table.index_id(Some(index));
        let mut walk = store.engine().cursor();
        walk.open(client.session.txn(), store.engine().visible(), &id.prefix(), &kv::IndexId(id.0 + 1).prefix())
            .unwrap();
        walk.seek_ge(client.session.txn(), &id.prefix()).unwrap();
        while walk.valid() && walk.value().is_empty() {
            walk.next(client.session.txn()).unwrap();
        }
        if !walk.valid() {
            assert_eq!(index, BY_B_A, "an entry of '{name}' has a value");
            continue;
        }
        let (key, value) = (walk.key().to_vec(), walk.value().to_vec());
        walk.close();
        for planted in [value[..value.len() - 1].to_vec(), [value.as_slice(), &[0]].concat(), {
            let mut other = value.clone();
            *other.last_mut().unwrap() ^= 1;
            other
        }] {
            store.engine().write(&[(key.clone(), Some(planted))], false).unwrap();
            let lines = findings(&client);
            assert!(lines.iter().any(|line| line.contains(&format!("'{name}'"))), "{lines:?}");
        }
        store.engine().write(&[(key, Some(value))], false).unwrap();
        assert_eq!(findings(&client), Vec::<String>::new());
    }
    client.commit();
}

#[test]
fn hidden_row_ids_find_their_rows_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let table = made(&store, "./db/h", definition(true));
    assert_eq!(table.ref_length(), 10);
    let mut t = Client::new(&store, &table);
    for i in 0..6 {
        t.insert(&row(1, i % 2, Some("x"), Some(i))).unwrap();
    }
    // Equal keys in the non-unique index; delete and update through the position.
    t.locking(Some(LockMode::Exclusive));
    t.begin();
    t.cursor.begin(Some(0), false).unwrap();
    assert!(t.cursor.seek(&mut t.session, Seek::Exact, &image_ca(1, 1), &mut t.record).unwrap());
    let first = Row::read(&t.record);
    let bytes = first.record();
    let mut reference = vec![0; 10];
    t.position(&bytes, &mut reference);
    assert!(t.cursor.next_same(&mut t.session, &mut t.record).unwrap());
    let second = Row::read(&t.record);
    let old = second.record();
    let changed = Row { b: Some("y".into()), ..second };
    let new = changed.record();
    t.cursor.update(&mut t.session, unsafe { Record::new(&old) }, unsafe { Record::new(&new) }).unwrap();
    assert!(t.cursor.read_position(&mut t.session, &reference, &mut t.record).unwrap());
    assert_eq!(Row::read(&t.record), first);
    t.cursor.delete(&mut t.session, unsafe { Record::new(&bytes) }).unwrap();
    assert!(!t.cursor.read_position(&mut t.session, &reference, &mut t.record).unwrap());
    t.session.statement_end();
    t.commit();
    t.check();
    assert_eq!(t.scan(None, true).unwrap().len(), 5);
    assert_eq!(t.get(BY_B, &image_b(Some("y"), 20)).unwrap(), Some(changed));
    t.session.statement_end();
}

/// The server asks for the position of a row that it has just written (indexes of vectors), and changes the row read last after it
/// has inserted others (parts of a period).
#[test]
fn a_written_row_has_its_position_told_and_the_row_read_last_is_changed() {
    for bulk in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let table = made(&store, "./db/h", definition(true));
        let mut t = Client::new(&store, &table);
        if bulk {
            t.cursor.bulk_begin(&t.session).unwrap();
        }
        let mut reference = vec![0; table.ref_length()];
        let references: Vec<Vec<u8>> = (0..4)
            .map(|i| {
                let row = row(1, i, Some("x"), Some(i));
                t.insert(&row).unwrap();
                t.position(&row.record(), &mut reference);
                reference.clone()
            })
            .collect();
        t.locking(Some(LockMode::Exclusive));
        for (i, reference) in (0..).zip(&references) {
            assert!(t.cursor.read_position(&mut t.session, reference, &mut t.record).unwrap());
            assert_eq!(Row::read(&t.record), row(1, i, Some("x"), Some(i)));
        }
        assert!(t.cursor.read_position(&mut t.session, &references[2], &mut t.record).unwrap());
        t.insert(&row(7, 7, Some("y"), Some(70))).unwrap();
        let (before, after) = (row(1, 2, Some("x"), Some(2)), row(5, 2, Some("z"), Some(2)));
        let (old, new) = (before.record(), after.record());
        t.cursor.update(&mut t.session, unsafe { Record::new(&old) }, unsafe { Record::new(&new) }).unwrap();
        t.position(&new, &mut reference);
        assert_eq!(reference, references[2]);
        assert!(t.cursor.read_position(&mut t.session, &references[2], &mut t.record).unwrap());
        assert_eq!(Row::read(&t.record), after);
        t.insert(&row(8, 8, Some("y"), Some(80))).unwrap();
        t.cursor.delete(&mut t.session, unsafe { Record::new(&new) }).unwrap();
        t.position(&new, &mut reference);
        assert_eq!(reference, references[2]);
        assert!(!t.cursor.read_position(&mut t.session, &references[2], &mut t.record).unwrap());
        t.session.statement_end();
        t.commit();
        t.check();
        assert_eq!(t.scan(None, true).unwrap().len(), 5);
        t.session.statement_end();
    }
}

/// A new table that a client is filling.
fn filling(dir: &Path) -> (Arc<Store>, Arc<Table>, Client) {
    let (store, table) = fresh(dir);
    let mut t = Client::new(&store, &table);
    t.cursor.bulk_begin(&t.session).unwrap();
    (store, table, t)
}

/// Inserts so many rows of this size, in no order of their keys.
fn fill(t: &mut Client, rows: i64, bytes: usize) {
    for i in 0..rows {
        let c = i * 7 % rows;
        t.insert(&Row { d: Some(vec![i as u8; bytes]), ..row(c, 0, Some("b"), Some(c as i32)) }).unwrap();
    }
}

#[test]
fn a_fill_is_spread_over_many_files() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _table, mut t) = filling(dir.path());
    fill(&mut t, 900, 16 << 10);
    // A search sees what was filled so far.
    let last = t.get(BY_E, &image_e(Some(893))).unwrap().unwrap();
    assert_eq!(last.c, 893);
    t.session.statement_end();
    t.cursor.bulk_end(false).unwrap();
    store.engine().flush().unwrap();
    assert_eq!(t.scan(Some(BY_B), true).unwrap().len(), 900);
    t.check();
}

#[test]
fn a_hash_that_is_looked_up_is_locked_even_if_absent() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut def = definition(false);
    def.indexes[BY_E].long_hash = true;
    def.indexes[BY_E].unique = false;
    let table = made(&store, "./db/l", def);
    let (mut a, mut b) = (Client::new(&store, &table), Client::new(&store, &table));
    a.locking(Some(LockMode::Exclusive));
    assert_eq!(a.get(BY_E, &image_e(Some(5))).unwrap(), None);
    b.timeout = std::time::Duration::ZERO;
    assert_eq!(b.get(BY_E, &image_e(Some(5))).unwrap(), None, "a consistent read does not care");
    b.locking(Some(LockMode::Exclusive));
    assert!(b.get(BY_E, &image_e(Some(5))).is_err());
    assert_eq!(b.get(BY_E, &image_e(Some(6))).unwrap(), None);
    // The same value twice is the server's business.
    a.insert(&row(1, 1, None, Some(5))).unwrap();
    a.insert(&row(2, 1, None, Some(5))).unwrap();
    assert_eq!(a.get(BY_E, &image_e(Some(5))).unwrap().unwrap().c, 1);
}

#[test]
fn an_aborted_fill_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _table, mut t) = filling(dir.path());
    (0..100).for_each(|i| t.insert(&row(i, 0, Some("b"), Some(i as i32))).unwrap());
    t.cursor.bulk_end(true).unwrap();
    assert_eq!(t.scan(None, true).unwrap(), []);
    assert_eq!(t.scan(Some(BY_B), true).unwrap(), []);
    t.check();
}

/// Rows in no order of an index are merged once more at the end of a fill, which takes long in a large table.
#[test]
fn a_kill_ends_the_last_merge_of_a_fill() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table, mut t) = filling(dir.path());
    fill(&mut t, 1500, 1000);
    t.session.kill_switch().kill();
    let ended = t.cursor.bulk_end(false);
    assert!(matches!(ended, Err(Error::Engine(kv::Error::Interrupted))), "{ended:?}");
    drop(t);
    let mut t = Client::new(&store, &table);
    assert_eq!(t.scan(None, true).unwrap(), []);
    t.check();
}

#[test]
fn rows_behind_a_read_are_the_transactions_and_not_the_fills() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _table, mut t) = filling(dir.path());
    (0..50).for_each(|i| t.insert(&row(i, 0, Some("b"), Some(i as i32))).unwrap());
    t.locking(Some(LockMode::Exclusive));
    assert_eq!(t.get(BY_E, &image_e(Some(7))).unwrap().unwrap().c, 7);
    (50..100).for_each(|i| t.insert(&row(i, 0, Some("b"), Some(i as i32))).unwrap());
    assert!(matches!(t.insert(&row(200, 0, None, Some(9))), Err(Error::Duplicate(BY_E))));
    t.cursor.bulk_end(false).unwrap();
    assert_eq!(t.scan(None, true).unwrap().len(), 100);
    t.session.rollback().unwrap();
    assert_eq!(t.scan(None, true).unwrap().len(), 50);
    t.check();
}

#[test]
fn bulk_fills_see_their_own_duplicates() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut t = Client::new(&store, &table);
    t.isolation = Isolation::RepeatableRead;
    t.cursor.bulk_begin(&t.session).unwrap();
    for i in 0..100 {
        t.insert(&row(i, 0, Some("b"), Some(i as i32))).unwrap();
    }
    assert!(matches!(t.insert(&row(7, 0, None, None)), Err(Error::Duplicate(PRIMARY))));
    assert!(matches!(t.insert(&row(200, 0, None, Some(9))), Err(Error::Duplicate(BY_E))));
    t.cursor.bulk_end(false).unwrap();
    assert_eq!(t.scan(None, true).unwrap().len(), 100);
    t.check();
    assert_eq!(t.delete_all(), 100);
    t.commit();
    assert_eq!(t.scan(Some(BY_B), true).unwrap(), []);
    t.check();
}

/// Guards the figures of rows: what is found counts, what is not does not, nor does an update that changes nothing; and a session that
/// ends takes nothing away.
#[test]
fn rows_are_counted_as_they_are_read_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut t = Client::new(&store, &table);
    t.begin();
    for c in 0..10 {
        t.insert(&row(c, 0, None, Some(c as i32))).unwrap();
    }
    assert!(t.insert(&row(3, 0, None, Some(50))).is_err());
    let inserted = Rows { inserted: 10, ..Rows::default() };
    assert_eq!(store.rows(), inserted);
    assert_eq!(t.scan(None, true).unwrap().len(), 10);
    assert_eq!(store.rows(), Rows { read: 10, ..inserted });
    assert_eq!(t.get(PRIMARY, &image_ca(77, 0)).unwrap(), None);
    assert_eq!(store.rows().read, 10);
    let old = t.get(PRIMARY, &image_ca(5, 0)).unwrap().unwrap();
    t.write(&old, &row(5, 0, Some("x"), Some(5))).unwrap();
    t.get(PRIMARY, &image_ca(6, 0)).unwrap();
    let same = row(6, 0, None, Some(6));
    t.write(&same, &same).unwrap();
    assert_eq!(store.rows(), Rows { read: 12, updated: 1, ..inserted });
    t.get(PRIMARY, &image_ca(7, 0)).unwrap();
    t.delete(&row(7, 0, None, Some(7))).unwrap();
    t.session.rollback().unwrap();
    let all = store.rows();
    assert_eq!((all.updated, all.deleted, all.inserted), (1, 1, 10));
    drop(t);
    assert_eq!(store.rows(), all);
    store.close().unwrap();
}

/// Guards that CHECK tells how far it is, and of which step.
#[test]
fn a_check_tells_how_far_it_is() {
    let (_dir, _store, client) = filled();
    let table = client.cursor.table().clone();
    let mut steps: Vec<(Step, u64, u64)> = Vec::new();
    let mut told = |step, done, of| steps.push((step, done, of));
    assert!(table.check_telling(&client.session, false, None, &mut |line| panic!("{line}"), &mut told).unwrap());
    let of_step = |wanted: Step| steps.iter().filter(|(step, ..)| *step == wanted).count();
    assert_eq!(of_step(Step::CheckingBlocks), table.state.meta.ids().len(), "{steps:?}");
    assert!(of_step(Step::CheckingRows) >= 4, "{steps:?}");
    assert!(steps.is_sorted_by_key(|(step, ..)| *step as u8), "{steps:?}");
}
