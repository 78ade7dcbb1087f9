//! Tables come, go, change their names, and survive a restart; so do counters, rows and prepared transactions.

use crate::common::*;
use strata_row::catalog::format;
use strata_row::def::{ColumnType, TableDef};
use strata_row::error::Error;
use strata_row::isolation::Isolation;
use strata_row::kv::{Durability, IndexId, LockMode};

#[test]
fn ddl_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (store, table) = fresh(dir.path());
        let mut t = Client::new(&store, &table);
        for c in 0..10 {
            t.insert(&row(c, 0, Some("x"), Some(c as i32))).unwrap();
        }
        t.commit();
        t.insert(&row(99, 0, None, None)).unwrap();
        store.create_table("./db/u", &definition(true), 0).unwrap();
        store.create_table("./db2/v", &definition(false), 0).unwrap();
        assert!(matches!(store.create_table("./db/u", &definition(true), 0), Err(Error::TableExists(_))));
        assert!(matches!(store.rename_table("./db/u", "./db/t"), Err(Error::TableExists(_))));
        assert!(matches!(store.rename_table("./db/no", "./db/yes"), Err(Error::NoTable(_))));
        store.rename_table("./db/u", "./db/w").unwrap();
        let temporary = TableDef { temporary: true, ..definition(false) };
        store.create_table("/tmp/#sql-1", &temporary, 0).unwrap();
        store.drop_table("./db2/v").unwrap();
        assert!(matches!(store.drop_table("./db2/v"), Err(Error::NoTable(_))));
    }
    let store = open(dir.path());
    assert_eq!(store.catalog().names(""), ["./db/t", "./db/w", "/tmp/#sql-1"]);
    store.drop_temporary().unwrap();
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let mut t = Client::new(&store, &table);
    assert_eq!(t.scan(Some(BY_E), true).unwrap().len(), 10, "committed rows, and no others");
    t.check();
    t.commit();
    drop((t, table));
    store.truncate_table("./db/t").unwrap();
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let mut t = Client::new(&store, &table);
    assert_eq!(t.scan(None, true).unwrap(), []);
    t.insert(&row(1, 0, None, Some(1))).unwrap();
    t.commit();
    drop((t, table));
    store.drop_database("./db/").unwrap();
    assert_eq!(store.catalog().names(""), [""; 0]);
    store.close().unwrap();
    drop(store);
    assert_eq!(open(dir.path()).catalog().names(""), [""; 0]);
}

#[test]
fn a_drop_that_a_crash_interrupted_is_finished_at_open() {
    let dir = tempfile::tempdir().unwrap();
    let ids = {
        let (store, table) = fresh(dir.path());
        let mut t = Client::new(&store, &table);
        t.insert(&row(1, 0, Some("x"), Some(1))).unwrap();
        t.commit();
        // What a drop has written when the process dies before the engine has dropped the data.
        let ids = store.catalog().get("./db/t").unwrap().ids();
        let mut change = vec![(format::table_key("./db/t"), None)];
        change.extend(ids.iter().map(|id| (format::pending_key(*id), Some(format::encode_pending()))));
        store.engine().write(&change, true).unwrap();
        ids
    };
    let store = open(dir.path());
    assert_eq!(store.catalog().names(""), [""; 0]);
    // Entries in memory go with the next flush.
    store.engine().flush().unwrap();
    let newest = store.engine().visible();
    for id in ids {
        assert!(!store.engine().get_at(&format::pending_key(id), newest, &mut Vec::new()).unwrap());
        let (own, mut cursor) = (store.engine().begin(), store.engine().cursor());
        cursor.open(&own, newest, &id.prefix(), &IndexId(id.0 + 1).prefix()).unwrap();
        cursor.seek_ge(&own, &id.prefix()).unwrap();
        assert!(!cursor.valid(), "index {id} still has entries");
    }
    // Ids are not used again.
    store.create_table("./db/t", &definition(false), 0).unwrap();
    assert!(store.catalog().get("./db/t").unwrap().ids().iter().all(|id| id.0 >= 20));
}

#[test]
fn definitions_that_differ_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _table) = fresh(dir.path());
    let refuse = |change: &dyn Fn(&mut TableDef), reason: &str| {
        let mut def = definition(false);
        change(&mut def);
        let error = store.open_table("./db/t", def).err().unwrap().to_string();
        assert!(error.contains("definition differs") && error.contains(reason), "{error}");
    };
    refuse(&|d| drop(d.columns.pop()), "5 columns in the engine, 4 in the server");
    refuse(&|d| d.columns[4].kind = ColumnType::Int { unsigned: true }, "column 'e'");
    refuse(&|d| d.columns[4].null_mask = 0, "column 'e': NULL");
    refuse(&|d| d.columns[1].size = 30, "20 bytes in the engine, 30");
    refuse(&|d| d.columns[1].collation = d.columns[3].collation.clone(), "collation");
    refuse(&|d| d.indexes[1].parts[0].length = 10, "index 'b'");
    refuse(&|d| d.indexes[2].unique = false, "index 'e'");
    refuse(&|d| drop(d.indexes.pop()), "indexes");
    refuse(&|d| d.indexes[3].parts[1].descending = false, "index 'b_a' has other parts");
    refuse(&|d| d.primary = Some(3), "index 'PRIMARY' holds the rows in one, not in the other");
    refuse(&|d| d.primary = None, "another clustered index");
    // What says nothing about stored bytes may differ.
    let mut def = definition(false);
    def.temporary = true;
    def.version = [9; 16];
    def.columns[4].name = "renamed".into();
    store.open_table("./db/t", def).unwrap();
}

/// The server exchanges a partition with a table whose indexes stand in another order.
#[test]
fn a_table_is_read_by_a_definition_with_its_indexes_in_another_order() {
    let ordered = |order: [usize; 4]| {
        let def = definition(false);
        TableDef { indexes: order.map(|i| def.indexes[i].clone()).to_vec(), ..def }
    };
    let (here, there) = (ordered([0, 1, 2, 3]), ordered([0, 3, 1, 2]));
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    store.create_table("./db/here", &here, 0).unwrap();
    store.create_table("./db/there", &there, 0).unwrap();
    let names = [("./db/here", &here), ("./db/there", &there)];
    // What a table has, by each of its indexes, after a row more. `had` is what it had.
    let visit =
        |store: &std::sync::Arc<strata_row::store::Store>, name: &str, def: &TableDef, mut had: Vec<Row>, c: i64| {
            let table = store.open_table(name, def.clone()).unwrap();
            let place = |index: &str| def.indexes.iter().position(|i| i.name == index).unwrap();
            let mut t = Client::new(store, &table);
            let new = row(c, 1, Some(["aaab", "aaac", "x"][c as usize % 3]), Some(1000 + c as i32));
            t.insert(&new).unwrap();
            t.commit();
            had.push(new.clone());
            had.sort();
            let twice = row(c + 500, 1, None, new.e);
            match t.insert(&twice) {
                Err(Error::Duplicate(index)) => assert_eq!(index, place("e"), "the server's number"),
                other => panic!("{other:?}"),
            }
            t.session.rollback().unwrap();
            for index in ["PRIMARY", "b", "e", "b_a"] {
                let mut found = t.scan(Some(place(index)), true).unwrap();
                found.sort();
                assert_eq!(found, had, "{name} by {index}");
                assert_eq!(t.count(place(index)), had.len());
            }
            assert_eq!(t.get(place("e"), &image_e(new.e)).unwrap().as_ref(), Some(&new));
            assert_eq!(t.get(place("b"), &image_b(new.b.as_deref(), 20)).unwrap().unwrap().b, new.b);
            t.session.statement_end();
            // A prefix, then a descending column.
            let by_prefix = t.scan(Some(place("b_a")), true).unwrap();
            let key = |row: &Row| (row.b.as_ref().map(|b| b[..b.len().min(3)].to_owned()), std::cmp::Reverse(row.a));
            assert!(by_prefix.is_sorted_by_key(key), "{by_prefix:?}");
            let changed = Row { e: new.e.map(|e| e + 5000), a: 1, ..new.clone() };
            t.update(&new, &changed).unwrap();
            t.commit();
            had.retain(|row| *row != new);
            had.push(changed);
            if let Some(first) = had.first().cloned().filter(|_| had.len() > 3) {
                t.delete(&first).unwrap();
                t.commit();
                had.remove(0);
            }
            t.check();
            // e has as many values as rows, b_a fewer; those of a sample from before the exchange stand at their indexes.
            assert_eq!(table.rec_per_key(place("e")).unwrap()[0], 1.0);
            assert_eq!(table.rec_per_key(place("b_a")).unwrap().len(), 3, "two parts, and c of the primary key");
            table.analyze(&t.session).unwrap();
            had
        };
    let mut rows = [Vec::new(), Vec::new()];
    for round in 0..6 {
        for (which, (name, def)) in names.iter().enumerate() {
            for n in 0..2 {
                let c = 10 * round + 2 * which as i64 + n;
                rows[which] = visit(&store, name, def, std::mem::take(&mut rows[which]), c);
            }
        }
        for (from, to) in [(0, "./db/aside"), (1, "./db/here")] {
            store.rename_table(names[from].0, to).unwrap();
        }
        store.rename_table("./db/aside", "./db/there").unwrap();
        rows.swap(0, 1);
        if round % 3 == 1 {
            if round == 4 {
                store.truncate_table("./db/here").unwrap();
                rows[0].clear();
            }
            store.close().unwrap();
            drop(store);
            store = open(dir.path());
        }
    }
}

/// The hidden column of a long unique is numbered by the order of the indexes; names tell which is which.
#[test]
fn long_uniques_are_told_by_their_names() {
    let def = |names: [&str; 2]| {
        let mut def = definition(false);
        let column = def.columns[4].clone();
        for (name, number) in names.iter().zip([5, 6]) {
            def.columns.push(strata_row::def::Column {
                name: format!("hash_{number}"),
                is_virtual: true,
                ..column.clone()
            });
            let mut index = def.indexes[2].clone();
            (index.name, index.unique, index.long_hash) = ((*name).into(), false, true);
            index.parts[0].column = number;
            def.indexes.push(index);
        }
        def
    };
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.create_table("./db/t", &def(["one", "two"]), 0).unwrap();
    let id = |names, index| store.open_table("./db/t", def(names)).unwrap().index_id(Some(index));
    assert_eq!(id(["one", "two"], 4), id(["two", "one"], 5));
    assert_eq!(id(["one", "two"], 5), id(["two", "one"], 4));
    assert_eq!(id(["ONE", "Two"], 5), id(["one", "two"], 5));
}

#[test]
fn a_snapshot_does_not_read_a_younger_table() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut t = Client::new(&store, &table);
    assert_eq!(t.scan(None, true).unwrap(), []);
    store.truncate_table("./db/t").unwrap();
    let again = store.open_table("./db/t", definition(false)).unwrap();
    let mut other = Client::new(&store, &again);
    other.insert(&row(1, 1, None, None)).unwrap();
    other.commit();
    t.cursor = strata_row::scan::RowCursor::new(&again);
    assert!(matches!(t.scan(None, true), Err(Error::TableChanged(_))));
    t.commit();
    assert_eq!(t.scan(None, true).unwrap().len(), 1);
    // A younger temporary table belongs to the session that reads it.
    let temporary = TableDef { temporary: true, ..definition(false) };
    let own = made(&store, "/tmp/#sql-1", temporary);
    t.cursor = strata_row::scan::RowCursor::new(&own);
    t.insert(&row(1, 1, None, None)).unwrap();
    assert_eq!(t.scan(None, true).unwrap().len(), 1);
}

#[test]
fn counters_never_go_back() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        store.create_table("./db/t", &definition(false), 100).unwrap();
        let table = store.open_table("./db/t", definition(false)).unwrap();
        let counter = table.state.autoinc().unwrap();
        assert_eq!(counter.reserve(1, 1, 3, u64::MAX, NEVER).unwrap(), 100);
        assert_eq!(counter.peek(), 103);
        assert_eq!(counter.reserve(5, 10, 2, u64::MAX, NEVER).unwrap(), 105);
        assert_eq!(counter.peek(), 116);
        counter.raise(200, NEVER).unwrap();
        counter.raise(150, NEVER).unwrap();
        assert_eq!(counter.peek(), 201);
        assert!(matches!(counter.reserve(1, 1, 1, 200, NEVER), Err(Error::AutoincExhausted)));
        assert_eq!(counter.reserve(1, 1, 5, 202, NEVER).unwrap(), 201, "fewer are left than were asked for");
        assert!(matches!(counter.reserve(1, 1, 1, 202, NEVER), Err(Error::AutoincExhausted)));
        store.close().unwrap();
    }
    {
        let store = open(dir.path());
        let table = store.open_table("./db/t", definition(false)).unwrap();
        assert_eq!(table.state.autoinc().unwrap().peek(), 203, "exact after a clean close");
        assert_eq!(table.state.autoinc().unwrap().reserve(1, 1, 1, u64::MAX, NEVER).unwrap(), 203);
        // No close: a crash.
        store.engine().sync().unwrap();
    }
    let store = open(dir.path());
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let next = table.state.autoinc().unwrap().peek();
    assert!(next > 203 && next < 203 + 1024, "{next}");
    let mut t = Client::new(&store, &table);
    t.insert(&row(5000, 0, None, None)).unwrap();
    t.commit();
    table.restart_autoinc(10, NEVER).unwrap();
    assert_eq!(table.state.autoinc().unwrap().peek(), 5001, "not below a stored value");
    store.truncate_table("./db/t").unwrap();
    let table = store.open_table("./db/t", definition(false)).unwrap();
    assert_eq!(table.state.autoinc().unwrap().peek(), 1);
}

#[test]
fn prepared_transactions_outlive_their_session_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (store, table) = fresh(dir.path());
        for (c, xid) in [(1, b"one"), (2, b"two")] {
            let mut t = Client::new(&store, &table);
            t.insert(&row(c, 0, None, Some(c as i32))).unwrap();
            t.session.prepare(xid, true).unwrap();
            assert!(t.session.is_prepared());
            assert!(t.session.statement_begin(Isolation::RepeatableRead, t.timeout).is_err());
            t.session.close().unwrap();
        }
        assert_eq!(store.engine().prepared().len(), 2);
        assert!(store.engine().commit_prepared(b"one").unwrap());
    }
    let store = open(dir.path());
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let mut t = Client::new(&store, &table);
    assert_eq!(store.engine().prepared(), [b"two".to_vec()]);
    assert_eq!(t.scan(None, true).unwrap().len(), 1);
    t.timeout = std::time::Duration::ZERO;
    assert!(t.insert(&row(2, 0, None, None)).is_err(), "its locks are back");
    t.session.rollback().unwrap();
    assert!(store.engine().rollback_prepared(b"two").unwrap());
    assert!(!store.engine().rollback_prepared(b"two").unwrap());
    t.insert(&row(2, 0, None, None)).unwrap();
    // Both phases in one session.
    t.session.prepare(b"three", true).unwrap();
    t.session.commit_ordered();
    t.commit();
    assert_eq!(t.scan(None, true).unwrap().len(), 2);
}

#[test]
fn rows_of_a_table_without_rollback_are_there_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut def = definition(true);
    def.no_rollback = true;
    def.indexes.clear();
    def.autoinc_column = None;
    let table = made(&store, "./db/s", def);
    let mut a = Client::new(&store, &table);
    let mut b = Client::new(&store, &table);
    a.insert(&row(1, 0, None, None)).unwrap();
    assert_eq!(b.scan(None, true).unwrap().len(), 1);
    a.session.rollback().unwrap();
    assert_eq!(b.scan(None, true).unwrap(), [row(1, 0, None, None)]);
    // NEXTVAL: read the row, write it.
    b.begin();
    b.cursor.begin(None, false).unwrap();
    assert!(b.cursor.seek(&mut b.session, strata_row::scan::Seek::First, &[], &mut b.record).unwrap());
    let (old, new) = (row(1, 0, None, None).record(), row(1001, 0, None, None));
    let bytes = new.record();
    let record = |b| unsafe { strata_row::rowcode::Record::new(b) };
    b.cursor.update(&mut b.session, record(&old), record(&bytes)).unwrap();
    b.session.statement_rollback();
    assert_eq!(a.scan(None, true).unwrap(), [new]);
}

/// NEXTVAL: reads the row FOR UPDATE, writes another one.
fn next_value(client: &mut Client, old: &Row, new: &Row) {
    client.timeout = std::time::Duration::ZERO;
    client.locking(Some(LockMode::Exclusive));
    client.begin();
    client.cursor.begin(None, false).unwrap();
    assert!(client.cursor.seek(&mut client.session, strata_row::scan::Seek::First, &[], &mut client.record).unwrap());
    assert_eq!(Row::read(&client.record), *old);
    client.write(old, new).unwrap();
    client.session.statement_end();
}

#[test]
fn a_sequence_keeps_what_it_handed_out_and_locks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut def = definition(true);
    def.no_rollback = true;
    def.indexes.clear();
    def.autoinc_column = None;
    let value = |v| row(v, 0, None, None);
    let store = open(dir.path());
    // The row of a new sequence is as durable as its definition, whatever is set.
    store.engine().set_durability(Durability::EverySecond);
    let table = made(&store, "./db/s", def.clone());
    Client::new(&store, &table).insert(&value(1)).unwrap();
    drop((table, store));
    for (durability, from) in [(Durability::EveryCommit, 1), (Durability::OsEveryCommit, 2001)] {
        // Opened again without a close, as after a kill.
        let store = open(dir.path());
        store.engine().set_durability(durability);
        let table = store.open_table("./db/s", def.clone()).unwrap();
        let mut a = Client::new(&store, &table);
        let mut b = Client::new(&store, &table);
        assert_eq!(a.scan(None, true).unwrap(), [value(from)], "after a kill, {durability:?}");
        let syncs = store.engine().metrics().log_syncs;
        next_value(&mut a, &value(from), &value(from + 1000));
        // Another session does not wait for the first one's transaction.
        next_value(&mut b, &value(from + 1000), &value(from + 2000));
        let syncs = store.engine().metrics().log_syncs - syncs;
        assert_eq!(syncs, if durability == Durability::EveryCommit { 2 } else { 0 }, "one for each mark");
        a.session.rollback().unwrap();
        b.session.rollback().unwrap();
    }
    let store = open(dir.path());
    let table = store.open_table("./db/s", def).unwrap();
    assert_eq!(Client::new(&store, &table).scan(None, true).unwrap(), [value(4001)]);
}

#[test]
fn statistics_follow_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut t = Client::new(&store, &table);
    assert_eq!(table.stats().unwrap().rows, 0);
    for c in 0..500i64 {
        t.insert(&row(c, 0, Some(&format!("v{}", c % 10)), Some(c as i32))).unwrap();
    }
    t.commit();
    let rows = table.stats().unwrap().rows;
    assert!((400..=600).contains(&rows), "{rows}");
    table.analyze(&t.session).unwrap();
    let by_b = table.rec_per_key(BY_B).unwrap();
    assert_eq!(by_b.len(), 3);
    assert!((45.0..=55.0).contains(&by_b[0]), "{by_b:?}");
    assert_eq!(by_b[1..], [1.0, 1.0]);
    assert_eq!(table.rec_per_key(BY_E).unwrap()[0], 1.0);
    let (low, high) = (image_c(100), image_c(110));
    let range = |low, high| table.records_in_range(PRIMARY, low, high, t.session.txn()).unwrap();
    assert_eq!(range(Some((&low, true)), Some((&high, true))), 11);
    assert_eq!(range(Some((&low, false)), Some((&high, false))), 9);
    assert_eq!(range(Some((&high, true)), Some((&low, true))), 0);
    assert!((400..=600).contains(&range(None, None)), "{}", range(None, None));
    drop(store);
    // Stored statistics come back.
    drop((t, table));
    let store = open(dir.path());
    let table = store.open_table("./db/t", definition(false)).unwrap();
    assert_eq!(table.rec_per_key(BY_B).unwrap(), by_b);
}

/// Indexes with keys that no table owns.
fn strays(store: &strata_row::store::Store) -> Vec<IndexId> {
    let names = store.catalog().names("");
    let owned: Vec<IndexId> = names.iter().flat_map(|name| store.catalog().get(name).unwrap().ids()).collect();
    let found = store.engine().indexes().unwrap().into_iter();
    found.filter(|id| id.0 >= format::FIRST_INDEX_ID && !owned.contains(id)).collect()
}

#[test]
fn what_was_written_to_a_temporary_table_goes_with_it() {
    // Few rows stay in memory until the commit, many are spilled to files.
    for (rows, two_phase) in [(5, false), (5, true), (400, false), (400, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = fresh(dir.path());
        let temporary = TableDef { temporary: true, ..definition(false) };
        let own = made(&store, "/tmp/#sql-temptable-1", temporary);
        let mut t = Client::new(&store, &own);
        (0..rows).for_each(|c| t.insert(&row(c, 0, Some("temporary"), Some(c as i32))).unwrap());
        store.drop_table("/tmp/#sql-temptable-1").unwrap();
        t.cursor = strata_row::scan::RowCursor::new(&table);
        t.insert(&row(7, 0, Some("stays"), Some(7))).unwrap();
        // The flush clears away what it knows of the dropped indexes, and forgets them.
        store.engine().write(&[(format::counter_key(99, 0), Some(vec![1, 1]))], true).unwrap();
        store.engine().flush().unwrap();
        if two_phase {
            t.session.prepare(b"xid", false).unwrap();
            t.session.commit_ordered();
        }
        t.commit();
        store.engine().flush().unwrap();
        assert_eq!(strays(&store), [], "{rows} rows, two phases: {two_phase}");
        assert_eq!(t.scan(None, true).unwrap(), [row(7, 0, Some("stays"), Some(7))]);
        t.commit();
        drop((t, table, own, store));
        let store = open(dir.path());
        let table = store.open_table("./db/t", definition(false)).unwrap();
        let mut t = Client::new(&store, &table);
        assert_eq!(t.scan(Some(BY_E), true).unwrap().len(), 1);
        t.check();
    }
}

/// Of a partitioned table that goes as a whole; a table that stays is refused.
#[test]
fn a_partition_with_prepared_writes_loses_its_name_and_goes_when_they_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    const NAME: &str = "./db/p#P#p0";
    let store = open(dir.path());
    store.create_table(NAME, &definition(false), 0).unwrap();
    {
        let own = store.open_table(NAME, definition(false)).unwrap();
        let mut t = Client::new(&store, &own);
        t.insert(&row(7, 0, Some("p"), Some(7))).unwrap();
        t.session.prepare(b"xid", true).unwrap();
        t.session.close().unwrap();
    }
    assert!(store.drop_table(NAME).unwrap_err().to_string().contains("lock"));
    store.drop_partition(NAME).unwrap();
    assert!(matches!(store.drop_table(NAME), Err(Error::NoTable(_))));
    drop(store);
    let store = open(dir.path());
    store.create_table(NAME, &definition(false), 0).unwrap();
    store.drop_temporary().unwrap();
    assert_eq!(store.catalog().names("").len(), 2);
    assert!(store.engine().commit_prepared(b"xid").unwrap());
    let own = store.open_table(NAME, definition(false)).unwrap();
    assert_eq!(Client::new(&store, &own).scan(None, true).unwrap(), []);
    drop((own, store));
    let store = open(dir.path());
    store.drop_temporary().unwrap();
    assert_eq!(store.catalog().names(""), [NAME]);
    assert_eq!(strays(&store), []);
}

#[test]
fn an_index_that_no_table_owns_is_dropped_at_open_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (left, owned) = {
        let (store, table) = fresh(dir.path());
        let mut t = Client::new(&store, &table);
        t.insert(&row(1, 0, Some("x"), Some(1))).unwrap();
        t.commit();
        let key = |id: u32| [IndexId(id).prefix().as_slice(), b"key"].concat();
        store.engine().write(&[(key(900), Some(vec![1])), (key(902), Some(vec![2]))], true).unwrap();
        store.engine().flush().unwrap();
        store.engine().write(&[(key(901), Some(vec![3]))], true).unwrap();
        (strays(&store), store.catalog().get("./db/t").unwrap().ids())
    };
    assert_eq!(left, [900, 901, 902].map(IndexId));
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = told.clone();
    let listener = std::sync::Arc::new(move |event: &strata_row::Event<'_>| {
        if let strata_row::Event::Orphans { indexes, first, last, kept } = event {
            heard.lock().unwrap().push((*indexes, *first, *last, kept.is_some(), event.to_string()));
        }
    });
    let store = strata_row::store::Store::open_listening(dir.path(), Default::default(), listener).unwrap();
    assert_eq!(strays(&store), []);
    let line = "3 indexes belong to no table (first 900, last 902): their space is given back".to_owned();
    assert_eq!(*told.lock().unwrap(), [(3, IndexId(900), IndexId(902), false, line)]);
    // Their ids are not used again, and nothing else is touched.
    store.create_table("./db/u", &definition(false), 0).unwrap();
    assert!(store.catalog().get("./db/u").unwrap().ids().iter().all(|id| id.0 > 902));
    assert_eq!(store.catalog().get("./db/t").unwrap().ids(), owned);
    let table = store.open_table("./db/t", definition(false)).unwrap();
    assert_eq!(Client::new(&store, &table).scan(None, true).unwrap().len(), 1);
}

#[test]
fn a_temporary_table_of_a_prepared_transaction_keeps_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let temporary = TableDef { temporary: true, ..definition(false) };
    let name = |n: u32| format!("/tmp/#sql-temptable-1-{n}");
    {
        let store = open(dir.path());
        for n in 0..3 {
            store.create_table(&name(n), &temporary, 0).unwrap();
        }
        let held = store.open_table(&name(1), temporary.clone()).unwrap();
        let mut t = Client::new(&store, &held);
        t.insert(&row(1, 0, None, Some(1))).unwrap();
        // The server's own: of a user's that has written to temporary tables only nothing is kept.
        t.session.prepare(b"xid", false).unwrap();
    }
    for start in 0..2 {
        let store = open(dir.path());
        store.drop_temporary().unwrap();
        assert_eq!(store.catalog().temporary().len(), 1, "start {start}");
        // All names are free.
        for n in 0..3 {
            store.create_table(&name(n), &temporary, 0).unwrap();
        }
    }
    {
        let store = open(dir.path());
        assert!(store.engine().commit_prepared(b"xid").unwrap());
    }
    let store = open(dir.path());
    store.drop_temporary().unwrap();
    assert_eq!(store.catalog().names(""), [""; 0]);
    store.engine().flush().unwrap();
    assert_eq!(strays(&store), []);
}

#[test]
fn damage_in_the_catalog_names_the_file() {
    for flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        {
            let (store, _table) = fresh(dir.path());
            store.engine().write(&[(format::table_key("./db/t"), Some(vec![1, 2, 3]))], true).unwrap();
            if flushed {
                store.engine().flush().unwrap();
            }
        }
        let error = strata_row::store::Store::open(dir.path(), Default::default()).err().unwrap().to_string();
        assert!(error.contains("./db/t") && error.contains(dir.path().to_str().unwrap()), "{error}");
        assert!(error.contains(if flushed { ".sst" } else { "/log" }), "{error}");
    }
}

#[test]
fn damage_in_a_row_names_the_file() {
    for flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = fresh(dir.path());
        let mut t = Client::new(&store, &table);
        t.insert(&row(1, 0, Some("x"), Some(1))).unwrap();
        t.commit();
        let engine = store.engine();
        let prefix = table.index_id(None).prefix();
        let key = {
            let (txn, point) = (engine.begin(), engine.read_point());
            let mut cursor = engine.cursor();
            cursor.open(&txn, point.seq(), &prefix, &IndexId(table.index_id(None).0 + 1).prefix()).unwrap();
            cursor.seek_ge(&txn, &prefix).unwrap();
            cursor.key().to_vec()
        };
        // Of a schema version that the table never had.
        engine.write(&[(key, Some(vec![0x7f; 40]))], true).unwrap();
        if flushed {
            engine.flush().unwrap();
        }
        let error = t.scan(None, true).unwrap_err();
        let strata_row::Error::Corruption { place: Some(place), .. } = &error else { panic!("{error:?}") };
        let found = if flushed { place.extension().is_some_and(|e| e == "sst") } else { place.ends_with("log") };
        assert!(found && place.starts_with(dir.path()) && error.to_string().contains("it was read from"), "{error}");
    }
}

/// Whoever uses the same store as a library has keyspaces in it: they are no strays, and their ids no tables'.
#[test]
fn keyspaces_of_the_engine_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (store, _) = fresh(dir.path());
        let notes = store.engine().keyspace("notes").unwrap();
        store.engine().put(&notes, "a", "kept").unwrap();
        store.engine().write(&[([&900u32.to_be_bytes()[..], b"key"].concat(), Some(vec![1]))], true).unwrap();
        store.close().unwrap();
    }
    for _ in 0..2 {
        let store = open(dir.path());
        let notes = store.engine().find_keyspace("notes").expect("it is there");
        assert_eq!(store.engine().get(&notes, "a").unwrap().expect("its row, too"), "kept");
        assert!(!store.engine().indexes().unwrap().contains(&IndexId(900)), "a stray goes");
        let table = format!("./db/{}", store.catalog().names("").len());
        store.create_table(&table, &definition(false), 0).unwrap();
        assert!(store.catalog().get(&table).unwrap().ids().iter().all(|id| *id < IndexId::KEYSPACES));
        store.close().unwrap();
    }
}
