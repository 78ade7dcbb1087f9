//! A table's columns come, go, change places and become wider, and its rows stay as they were written: each is read as what it is
//! at present, by the server's definition and by the catalog's, after a restart and after a crash in the middle of the change.

use crate::common::values::*;
use std::path::Path;
use std::sync::Arc;
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_row::Result;
use strata_row::catalog::alter::FORMER_MAX;
use strata_row::catalog::alter::Source::{self, Added, Kept};
use strata_row::def::TableDef;
use strata_row::error::Error;
use strata_row::index::Updated;
use strata_row::kv::{self, Options};
use strata_row::schema::Initial;
use strata_row::store::Store;

const T: &str = "./db/t";
const INDEXES: &[&str] = &["PRIMARY (id)", "t (t)", "u unique (k)"];

fn open(disk: &MemDisk) -> Arc<Store> {
    let options = Options {
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        ..Options::default()
    };
    let store = Store::open(Path::new("/data"), options).unwrap();
    store.set_library(Arc::new(Names));
    store
}

fn value(bytes: &[u8]) -> Source {
    Added(Initial::Value(bytes.to_vec()))
}

/// A change of the columns, what it makes of a row, and a row that is written afterwards.
struct Step {
    columns: &'static [&'static str],
    sources: Vec<Source>,
    turn: fn(&mut Values),
    row: fn(i64) -> Values,
}

/// The first list of columns, and rows of it.
const FIRST: &[&str] = &["id int4", "k int4 null", "t varchar10", "f float4 null", "b text1 null", "c char4"];

fn first_row(id: i64) -> Values {
    let rest = [("k", V::Int(id)), ("t", "some text ".into()), ("f", 1.5.into()), ("b", "a blob".into())];
    let mut row = values(rest);
    row.extend(values([("id", V::Int(id)), ("c", "ab".into())]));
    if id % 3 == 0 {
        row.extend(values([("k", V::Null), ("f", V::Null), ("b", V::Null)]));
    }
    row
}

fn steps() -> Vec<Step> {
    vec![
        // New ones at the front, in the middle and at the end.
        Step {
            columns: &[
                "n int2",
                "id int4",
                "k int4 null",
                "t varchar10",
                "x text2",
                "f float4 null",
                "b text1 null",
                "c char4",
                "z int8 null",
            ],
            sources: vec![
                value(&[0xfe, 0xff]),
                Kept(0),
                Kept(1),
                Kept(2),
                value(b"from before"),
                Kept(3),
                Kept(4),
                Kept(5),
                Added(Initial::Null),
            ],
            turn: |row| row.extend(values([("n", V::Int(-2)), ("x", "from before".into()), ("z", V::Null)])),
            row: |id| {
                let mut row = first_row(id);
                row.extend(values([("n", V::Int(5)), ("x", "x".into()), ("z", V::Int(1 << 40))]));
                row
            },
        },
        // One goes, the others change places and names.
        Step {
            columns: &[
                "c char4",
                "b text1 null",
                "x text2",
                "n int2",
                "text varchar10",
                "k int4 null",
                "id int4",
                "z int8 null",
            ],
            sources: vec![Kept(7), Kept(6), Kept(4), Kept(0), Kept(3), Kept(2), Kept(1), Kept(8)],
            turn: |row| {
                row.remove("f");
                let text = row.remove("t").unwrap();
                row.insert("text".into(), text);
            },
            row: |id| {
                let row = values([
                    ("c", "cccc".into()),
                    ("b", V::Null),
                    ("x", "".into()),
                    ("n", V::Int(-300)),
                    ("z", V::Null),
                ]);
                row.into_iter().chain(values([("text", "T".into()), ("k", V::Int(id)), ("id", V::Int(id))])).collect()
            },
        },
        // All that no index has become wider, and one NULL.
        Step {
            columns: &[
                "c varchar300",
                "b text3 null",
                "x text4",
                "n int8 null",
                "text varchar10",
                "k int4 null",
                "id int4",
            ],
            sources: (0..7).map(Kept).collect(),
            turn: |row| _ = row.remove("z"),
            row: |id| {
                let row = values([("c", "c ".into()), ("b", "b".into()), ("x", "y".into()), ("n", V::Null)]);
                row.into_iter().chain(values([("text", "U".into()), ("k", V::Null), ("id", V::Int(id))])).collect()
            },
        },
        // A column of a name that another had: nothing of that comes back.
        Step {
            columns: &["id int4", "k int4 null", "f double8", "text varchar10", "c varchar300", "n int8 null"],
            sources: vec![Kept(6), Kept(5), value(&2.5f64.to_le_bytes()), Kept(4), Kept(0), Kept(3)],
            turn: |row| {
                row.remove("b");
                row.remove("x");
                row.insert("f".into(), V::Real(2.5));
            },
            row: |id| {
                let row = values([("c", "".into()), ("n", V::Int(i64::MIN)), ("f", V::Real(-0.5))]);
                row.into_iter().chain(values([("text", "V".into()), ("k", V::Int(id)), ("id", V::Int(id))])).collect()
            },
        },
    ]
}

fn definition(columns: &[&str]) -> TableDef {
    let renamed = columns.iter().any(|c| c.starts_with("text "));
    let indexes = INDEXES.iter().map(|i| if renamed && *i == "t (t)" { "t (text)" } else { i });
    table(columns, &indexes.collect::<Vec<_>>())
}

/// Rows as they are to be, by id.
type Model = Vec<Values>;

/// Reads the table in every way and compares.
fn compare(store: &Arc<Store>, def: &TableDef, model: &Model, what: &str) {
    for own in [false, true] {
        let table = if own { store.open_by_catalog(T) } else { store.open_table(T, def.clone()) };
        let mut user = User::new(store, &table.unwrap());
        assert_eq!(user.scan(None).unwrap(), *model, "{what}, by the catalog {own}");
        for index in 0..INDEXES.len() {
            let mut rows = user.scan(Some(index)).unwrap();
            rows.sort_by(|a, b| a["id"].partial_cmp(&b["id"]).unwrap());
            assert_eq!(rows, *model, "{what}, index {index}, by the catalog {own}");
        }
        assert_eq!(user.findings(), [""; 0], "{what}");
        user.commit();
    }
}

fn fill(store: &Arc<Store>, def: &TableDef, row: fn(i64) -> Values, ids: std::ops::Range<i64>, model: &mut Model) {
    let table = store.open_table(T, def.clone()).unwrap();
    let mut user = User::new(store, &table);
    for id in ids {
        user.insert(&row(id)).unwrap();
        model.push(row(id));
    }
    user.commit();
}

fn start() -> (MemDisk, Arc<Store>, TableDef, Model) {
    let disk = MemDisk::new();
    let store = open(&disk);
    let def = definition(FIRST);
    store.create_table(T, &def, 0).unwrap();
    let mut model = Model::new();
    fill(&store, &def, first_row, 0..10, &mut model);
    (disk, store, def, model)
}

#[test]
fn rows_of_every_schema_version_are_read_as_what_they_are_now() {
    let (disk, mut store, def, mut model) = start();
    compare(&store, &def, &model, "the first version");
    for (number, step) in steps().into_iter().enumerate() {
        let what = format!("step {number}");
        // Who has a snapshot from before the change reads it with the new columns too.
        let mut watcher = User::new(&store, &store.open_by_catalog(T).unwrap());
        watcher.scan(None).unwrap();
        let def = definition(step.columns);
        crate::common::alter_columns(&store, &[T.to_owned()], &def, &step.sources, &|| false).unwrap();
        assert_eq!(store.catalog().get(T).unwrap().former.len(), number + 1);
        model.iter_mut().for_each(step.turn);
        compare(&store, &def, &model, &what);
        let before = model.clone();
        let from = 10 * (number as i64 + 1);
        fill(&store, &def, step.row, from..from + 10, &mut model);
        // Some rows of each version are written again, some go.
        {
            let table = store.open_table(T, def.clone()).unwrap();
            let mut user = User::new(&store, &table);
            let last = i64::try_from(number).unwrap();
            let change = |old: &Values| match old["id"] {
                V::Int(id) if id % 10 == last => None,
                V::Int(id) if id % 10 == last + 4 => {
                    let mut new = old.clone();
                    new.insert("n".into(), V::Int(77));
                    new.insert("k".into(), V::Int(1000 * last + id));
                    Some(new)
                }
                _ => Some(old.clone()),
            };
            user.each(change).unwrap();
            user.session.rollback().unwrap();
            compare(&store, &def, &model, &format!("{what}, after a rollback"));
            user.each(change).unwrap();
            user.commit();
            model = model.iter().filter_map(change).collect();
            watcher.reopen(&table);
            assert_eq!(watcher.scan(None).unwrap(), before, "{what}, an old snapshot");
        }
        compare(&store, &def, &model, &what);
        drop(watcher);
        match number % 3 {
            0 => store.engine().flush().unwrap(),
            1 => store.close().unwrap(),
            _ => {}
        }
        drop(store);
        store = open(&disk);
        compare(&store, &def, &model, &format!("{what}, after a restart"));
    }
    // A table that is emptied has the same columns, and no other ones any more: earlier builds know what it is.
    let version = || {
        let mut meta = (*store.catalog().get(T).unwrap()).clone();
        meta.indexes.iter_mut().for_each(|index| index.unpack_form = 1);
        meta.encode()[0]
    };
    assert_eq!(version(), 3);
    store.truncate_table(T).unwrap();
    assert_eq!(version(), 1);
    let def = definition(steps()[3].columns);
    compare(&store, &def, &Model::new(), "emptied");
    fill(&store, &def, steps()[3].row, 0..3, &mut Model::new());
}

/// The catalog's write is the change: a crash or a failure at any operation of the disk leaves the table before or after it.
#[test]
fn a_change_that_fails_or_dies_at_any_operation_is_made_or_is_not() {
    let (disk, store, _, model) = start();
    store.close().unwrap();
    drop(store);
    let step = &steps()[0];
    let (old_def, new_def) = (definition(FIRST), definition(step.columns));
    let mut new_model = model.clone();
    new_model.iter_mut().for_each(step.turn);
    let (mut made, mut not_made) = (0, 0);
    for kind in [FaultKind::StorageFull, FaultKind::Other] {
        for n in 1.. {
            let disk = disk.copy();
            let store = open(&disk);
            disk.fail_from(n, kind);
            let outcome = crate::common::alter_columns(&store, &[T.to_owned()], &new_def, &step.sources, &|| false);
            let struck = disk.struck().is_some();
            let killed = disk.crash(n);
            disk.clear_fault();
            drop(store.close());
            drop(store);
            for (disk, what) in [(&killed, "killed"), (&disk, "shut down")] {
                let what = format!("{what} at {kind:?} {n}");
                let store = open(disk);
                match store.catalog().get(T).unwrap().schema_version {
                    1 => {
                        assert!(outcome.is_err(), "{what}: an acknowledged change is lost");
                        compare(&store, &old_def, &model, &what);
                        crate::common::alter_columns(&store, &[T.to_owned()], &new_def, &step.sources, &|| false)
                            .unwrap();
                        not_made += 1;
                    }
                    _ => made += 1,
                }
                compare(&store, &new_def, &new_model, &what);
                let mut model = new_model.clone();
                fill(&store, &new_def, step.row, 10..12, &mut model);
                compare(&store, &new_def, &model, &what);
            }
            if !struck {
                break;
            }
        }
    }
    assert!(made > 0 && not_made > 0, "{made}, {not_made}");
}

#[test]
fn what_needs_the_rows_written_anew_is_refused_with_a_reason() {
    let (_disk, store, def, model) = start();
    let refuse = |columns: &[&str], sources: &[Source], reason: &str| {
        let outcome: Result<()> =
            crate::common::alter_columns(&store, &[T.to_owned()], &definition(columns), sources, &|| false);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        compare(&store, &def, &model, reason);
    };
    let kept = || (0..6).map(Kept).collect::<Vec<_>>();
    let with = |column: &'static str, number: usize| {
        let mut columns = FIRST.to_vec();
        columns[number] = column;
        columns
    };
    refuse(&with("c char3", 5), &kept(), "column 'c' cannot be changed in place: its values have another form");
    refuse(&with("f float4", 3), &kept(), "column 'f'");
    refuse(&with("t varchar20 null", 2), &kept(), "column 't' cannot be changed in place: index 't' has it");
    refuse(&with("t text1", 2), &kept(), "column 't' cannot be changed in place: index 't' has it");
    refuse(&with("id int8", 0), &kept(), "index 'PRIMARY' has it");
    refuse(FIRST, &kept()[..5], "6 columns with 5 sources");
    refuse(FIRST, &[0, 1, 2, 3, 4, 4].map(Kept), "kept twice");
    refuse(FIRST, &[Kept(0), Kept(1), value(b"12345678901"), Kept(3), Kept(4), Kept(5)], "'t' does not fit");
    refuse(
        FIRST,
        &[Kept(0), Kept(1), value(b"x"), Kept(3), Kept(4), Kept(5)],
        "index 't' has a column that is dropped",
    );
    refuse(FIRST, &[Added(Initial::Null), Kept(1), Kept(2), Kept(3), Kept(4), Kept(5)], "'id' does not fit");
    // The indexes of the definition are other ones.
    let mut other = definition(FIRST);
    other.indexes.swap(1, 2);
    other.indexes[1].parts = other.indexes[2].parts.clone();
    assert!(
        crate::common::alter_columns(&store, &[T.to_owned()], &other, &kept(), &|| false)
            .unwrap_err()
            .to_string()
            .contains("index 'u'")
    );
}

/// Whether a row has changed since it was read is told by its bytes: nobody makes the row of an earlier version anew to find out. Whether an
/// update changes it is told by its values.
#[test]
fn a_row_of_an_earlier_version_is_compared_by_what_was_read() {
    let (_disk, store, _, _) = start();
    let step = &steps()[0];
    let def = definition(step.columns);
    crate::common::alter_columns(&store, &[T.to_owned()], &def, &step.sources, &|| false).unwrap();
    let table = store.open_table(T, def.clone()).unwrap();
    let row_of = |id: i64, n: i64| {
        let mut row = first_row(id);
        (step.turn)(&mut row);
        row.insert("n".into(), V::Int(n));
        row
    };
    let version_of = |id: i32| {
        let mut key = table.clustered.prefix().to_vec();
        key.extend_from_slice(&(id as u32 ^ 1 << 31).to_be_bytes());
        let mut value = Vec::new();
        assert!(store.engine().get_at(&key, store.engine().visible(), &mut value).unwrap());
        value[0]
    };
    let (mut user, mut other) = (User::new(&store, &table), User::new(&store, &table));
    // Read, and its lock given back: as long as nobody has written it, it is what was read.
    assert_eq!(user.get(4).unwrap(), row_of(4, -2));
    user.session.rollback().unwrap();
    assert_eq!(user.write(&row_of(4, -2), Some(&row_of(4, 1))).unwrap(), Updated::Changed);
    user.commit();
    assert_eq!((version_of(4), version_of(5)), (2, 1));
    assert_eq!(user.get(5).unwrap(), row_of(5, -2));
    user.session.rollback().unwrap();
    other.get(5).unwrap();
    other.write(&row_of(5, -2), Some(&row_of(5, 2))).unwrap();
    other.commit();
    let late = user.write(&row_of(5, -2), Some(&row_of(5, 1)));
    assert!(matches!(late, Err(Error::Engine(kv::Error::Conflict))), "{late:?}");
    user.session.rollback().unwrap();
    // The same values: a row stays, also one of an earlier version.
    user.get(5).unwrap();
    assert_eq!(user.write(&row_of(5, 2), Some(&row_of(5, 2))).unwrap(), Updated::Same);
    user.get(6).unwrap();
    assert_eq!(user.write(&row_of(6, -2), Some(&row_of(6, -2))).unwrap(), Updated::Same);
    user.commit();
    assert_eq!((version_of(5), version_of(6), version_of(7)), (2, 1, 1));
    // Who has not read the row knows its values only.
    for (id, known, outcome) in [(7, -2, true), (8, -3, false), (6, -2, true), (4, 2, false)] {
        let late = other.write(&row_of(id, known), Some(&row_of(id, 9)));
        assert_eq!(late.is_ok(), outcome, "{id}: {late:?}");
        other.session.rollback().unwrap();
        let late = other.write(&row_of(id, known), None);
        assert_eq!(late.is_ok(), outcome, "{id}: {late:?}");
        other.session.rollback().unwrap();
    }
    assert_eq!(other.write(&row_of(4, 1), Some(&row_of(4, 1))).unwrap(), Updated::Same);
    other.commit();
    assert_eq!(user.findings(), [""; 0]);
}

/// A table that was filled past all snapshots is not known to older ones, whatever becomes of its columns.
#[test]
fn a_filled_table_stays_unknown_to_older_snapshots() {
    let (_disk, store, def, _) = start();
    const FILLED: &str = "./db/filled";
    store.create_table(FILLED, &def, 0).unwrap();
    let filled = store.open_table(FILLED, def.clone()).unwrap();
    let mut watcher = User::new(&store, &filled);
    assert_eq!(watcher.scan(None).unwrap(), []);
    let mut user = User::new(&store, &filled);
    user.cursor.bulk_begin(&user.session).unwrap();
    user.insert(&first_row(1)).unwrap();
    user.cursor.bulk_end(false).unwrap();
    assert!(matches!(watcher.scan(None), Err(Error::TableChanged(_))));
    let step = &steps()[0];
    crate::common::alter_columns(&store, &[FILLED.to_owned()], &definition(step.columns), &step.sources, &|| false)
        .unwrap();
    watcher.reopen(&store.open_table(FILLED, definition(step.columns)).unwrap());
    assert!(matches!(watcher.scan(None), Err(Error::TableChanged(_))));
    watcher.commit();
    assert_eq!(watcher.scan(None).unwrap().len(), 1);
}

/// A store lists the feature before its catalog has an entry that needs it, and whoever does not know the feature is refused: at
/// any operation of the disk at which the change may die.
#[test]
fn a_store_says_that_it_has_schema_versions_before_it_has_them() {
    let plain = |disk: &MemDisk| Options { disk: Arc::new(disk.clone()) as Arc<dyn Disk>, ..Options::default() };
    // The engine alone knows nothing of the row layer's features.
    let refusal = |disk: &MemDisk| kv::Engine::open(Path::new("/data"), plain(disk)).err().map(|e| e.to_string());
    let has_versions = |store: &Store| store.engine().features().iter().any(|f| f.name() == "schema-versions");
    let step = &steps()[0];
    let (mut whole, mut refused) = (false, 0);
    for n in 1..200 {
        let (disk, store, def, model) = start();
        assert!(!has_versions(&store));
        disk.fail_after(n, FaultKind::StorageFull);
        let outcome = crate::common::alter_columns(
            &store,
            &[T.to_owned()],
            &definition(step.columns),
            &step.sources,
            crate::common::NEVER,
        );
        whole = disk.clear_fault();
        for seed in 0..2 {
            let image = disk.crash(seed);
            let again = open(&image);
            let is_new = again.catalog().get(T).unwrap().columns.len() == step.columns.len();
            assert!(is_new || outcome.is_err());
            assert!(has_versions(&again) || !is_new, "operation {n}");
            let is_listed = has_versions(&again);
            if !is_new {
                compare(&again, &def, &model, "as it was");
            }
            again.close().unwrap();
            drop(again);
            let text = refusal(&image).unwrap_or_default();
            assert_eq!(text.contains("schema-versions (Strata 0.1 or later)"), is_listed, "{text}");
            refused += u32::from(is_listed);
        }
        if whole {
            break;
        }
    }
    assert!(whole && refused > 2);
}

/// The table with another number column at its end, or without it.
fn with_number(there: bool) -> (TableDef, Vec<Source>) {
    let columns = [FIRST, if there { &["n int2"] } else { &[] }].concat();
    let kept = (0..6).map(Kept);
    (definition(&columns), kept.chain(there.then(|| value(&[7, 0]))).collect())
}

/// Changes without writes between them leave no version behind, however many there are.
#[test]
fn ten_thousand_changes_in_a_row_leave_one_version() {
    let (disk, mut store, _, mut model) = start();
    let mut bytes = 0;
    for change in 0..10_000 {
        let (def, sources) = with_number(change % 2 == 0);
        if change % 1000 == 0 {
            // In memory, in files of level 0, and merged.
            match change % 3000 {
                0 => {}
                1000 => store.engine().flush().unwrap(),
                _ => store.engine().compact_range(&[], &[0xff; 4]).unwrap(),
            }
        }
        store.open_table(T, with_number(change % 2 != 0).0).unwrap();
        crate::common::alter_columns(&store, &[T.to_owned()], &def, &sources, &|| false).unwrap();
        let meta = store.catalog().get(T).unwrap();
        // Where merges have been, nobody knows for certain: a version more.
        assert!(meta.former.len() <= 12, "{change}: {}", meta.former.len());
        bytes = bytes.max(meta.encode().len());
    }
    assert!(bytes < 4096, "{bytes} bytes of the catalog");
    let (def, _) = with_number(false);
    compare(&store, &def, &model, "after all");
    fill(&store, &def, first_row, 10..12, &mut model);
    store.close().unwrap();
    drop(store);
    store = open(&disk);
    compare(&store, &def, &model, "after a restart");
}

/// Rows of very many versions: merges write them anew, and the versions are forgotten. Nobody sees it: not who has read a row before,
/// nor a snapshot, nor a start in between.
#[test]
fn rows_of_very_many_versions_are_written_anew() {
    let (disk, mut store, _, mut model) = start();
    let mut most = 0;
    for change in 0..1200_i64 {
        let there = change % 2 == 0;
        let (old, _) = with_number(!there);
        let (def, sources) = with_number(there);
        let table = store.open_table(T, old).unwrap();
        let mut watcher = User::new(&store, &table);
        watcher.scan(None).unwrap();
        crate::common::alter_columns(&store, &[T.to_owned()], &def, &sources, &|| false).unwrap();
        model.iter_mut().for_each(|row| match there {
            true => drop(row.insert("n".into(), V::Int(7))),
            false => drop(row.remove("n")),
        });
        let before = model.clone();
        let row: fn(i64) -> Values = match there {
            true => |id| {
                let mut row = first_row(id);
                row.insert("n".into(), V::Int(id % 100));
                row
            },
            false => first_row,
        };
        fill(&store, &def, row, change + 10..change + 11, &mut model);
        watcher.reopen(&store.open_table(T, def.clone()).unwrap());
        if change % 50 == 0 {
            assert_eq!(watcher.scan(None).unwrap(), before, "{change}: an old snapshot");
            compare(&store, &def, &model, &format!("change {change}"));
        }
        drop((watcher, table));
        most = most.max(store.catalog().get(T).unwrap().former.len());
        if change == 500 || change == 900 {
            let crashed = disk.crash(change as u64);
            drop(store);
            store = open(&crashed);
            compare(&store, &def, &model, "after a crash");
            store.close().unwrap();
            drop(store);
            store = open(&disk);
        }
    }
    assert!((64..=FORMER_MAX).contains(&most), "{most}");
    let table = store.open_table(T, with_number(false).0).unwrap();
    assert_eq!(User::new(&store, &table).findings(), [""; 0]);
}

/// A row that was read, and whose lock was given back, may be written although a merge has made it anew meanwhile.
#[test]
fn a_row_that_is_written_anew_is_what_was_read() {
    let (_disk, store, _, _) = start();
    let version_of = |table: &strata_row::table::Table, id: i32| {
        let mut key = table.clustered.prefix().to_vec();
        key.extend_from_slice(&(id as u32 ^ 1 << 31).to_be_bytes());
        let mut value = Vec::new();
        assert!(store.engine().get_at(&key, store.engine().visible(), &mut value).unwrap());
        value[0]
    };
    let mut change = 0;
    let mut alter = || {
        let (def, sources) = with_number(change % 2 == 0);
        let table = store.open_table(T, with_number(change % 2 != 0).0).unwrap();
        fill(
            &store,
            &with_number(change % 2 != 0).0,
            if change % 2 == 0 { first_row } else { numbered },
            change + 100..change + 101,
            &mut Model::new(),
        );
        drop(table);
        crate::common::alter_columns(&store, &[T.to_owned()], &def, &sources, &|| false).unwrap();
        change += 1;
        def
    };
    while store.catalog().get(T).unwrap().former.len() < 63 {
        alter();
    }
    let (def, sources) = with_number(change % 2 == 0);
    assert_eq!(change % 2, 1);
    let table = store.open_table(T, with_number(true).0).unwrap();
    let (mut user, mut other) = (User::new(&store, &table), User::new(&store, &table));
    assert_eq!(version_of(&table, 4), 1);
    drop((user, other, table));
    fill(&store, &with_number(true).0, numbered, 900..901, &mut Model::new());
    crate::common::alter_columns(&store, &[T.to_owned()], &def, &sources, &|| false).unwrap();
    let table = store.open_table(T, def.clone()).unwrap();
    (user, other) = (User::new(&store, &table), User::new(&store, &table));
    assert_eq!((user.get(4), other.get(5)), (Some(first_row(4)), Some(first_row(5))));
    user.session.rollback().unwrap();
    other.session.rollback().unwrap();
    store.engine().wait_idle().unwrap();
    assert!(version_of(&table, 4) > 60, "{}", version_of(&table, 4));
    let mut new = first_row(4);
    new.insert("c".into(), "new".into());
    assert_eq!(user.write(&first_row(4), Some(&new)).unwrap(), Updated::Changed);
    user.commit();
    // One that has changed has changed.
    let late = other.write(&first_row(4), None);
    assert!(matches!(late, Err(Error::Engine(kv::Error::Conflict))), "{late:?}");
    other.session.rollback().unwrap();
    assert_eq!(other.write(&first_row(5), None).unwrap(), Updated::Changed);
    other.commit();
    assert_eq!(user.findings(), [""; 0]);
}

fn numbered(id: i64) -> Values {
    let mut row = first_row(id);
    row.insert("n".into(), V::Int(3));
    row
}

/// What an index has of a text is the same however long the text might be: an indexed VARCHAR becomes longer, whole or in part, also as
/// the clustered key.
#[test]
fn a_longer_text_keeps_its_indexes() {
    let disk = MemDisk::new();
    let store = open(&disk);
    let define = |size: u32, wide: u32| {
        let columns = [format!("t varchar{size}"), format!("w widevarchar{wide} null"), "id int4".to_owned()];
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut def = table(&columns, &["PRIMARY (t, id)", "w (w)", "u unique (id, t)", "p (t)"]);
        let prefix = &mut def.indexes[3].parts[0];
        prefix.length = 4;
        def
    };
    let row = |id: i64, text: &str| values([("t", text.into()), ("w", text.into()), ("id", V::Int(id))]);
    let mut model = Model::new();
    let sizes = [(10, 5), (20, 30), (300, 60)];
    for (number, (size, wide)) in sizes.into_iter().enumerate() {
        let def = define(size, wide);
        match number {
            0 => store.create_table(T, &def, 0).unwrap(),
            _ => crate::common::alter_columns(&store, &[T.to_owned()], &def, &[0, 1, 2].map(Kept), &|| false).unwrap(),
        }
        // Rows are what they were.
        assert_eq!(store.catalog().get(T).unwrap().former.len(), 0);
        let table = store.open_table(T, def).unwrap();
        let mut user = User::new(&store, &table);
        let long = "t".repeat(size.min(wide) as usize);
        for (id, text) in (10 * number as i64..).zip(["", "a", "tttt", "tttt ", "ttttu", &long]) {
            user.insert(&row(id, text)).unwrap();
            model.push(row(id, text));
        }
        let again = user.insert(&model[0]);
        assert!(matches!(again, Err(Error::Duplicate(0))), "{again:?}");
        for index in 0..4 {
            let mut rows = user.scan(Some(index)).unwrap();
            rows.sort_by(|a, b| a["id"].partial_cmp(&b["id"]).unwrap());
            assert_eq!(rows, model, "index {index} at {size}");
        }
        user.commit();
        assert_eq!(user.findings(), [""; 0]);
    }
    // Shorter they become by a copy.
    let shorter =
        crate::common::alter_columns(&store, &[T.to_owned()], &define(299, 60), &[0, 1, 2].map(Kept), &|| false);
    assert!(shorter.unwrap_err().to_string().contains("another form"));
}
