//! What DDL makes of foreign keys, and they of it: names, indexes, parents that come and go, and the server's way of replacing a
//! table by a copy.

use crate::common::related::{Db, foreign_key, open, path};
use crate::common::values::{V, table, values};
use crate::common::*;
use std::sync::Arc;
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_row::catalog::alter::Source;
use strata_row::def::TableDef;
use strata_row::foreign::{ForeignKey, KeyChange, Statement};
use strata_row::kv::Options;
use strata_row::store::{Alteration, AlteredTable, Store};
use strata_row::{Error, Result, kv};

const CHECKED: Statement = Statement { checks: true, altered: None, drops_database: false, strict: true };

fn parent() -> TableDef {
    table(&["id int4", "u int4 null"], &["PRIMARY unique (id)", "u (u)"])
}

fn child() -> TableDef {
    table(&["id int4", "p int4 null"], &["PRIMARY unique (id)", "p (p)"])
}

/// A key `p` of a table to `parent.id`.
fn key(name: &str, parent: &str) -> ForeignKey {
    ForeignKey { name: name.into(), ..foreign_key(&format!("x: c (p) -> {parent} (id)")).1 }
}

fn create(store: &Store, name: &str, def: &TableDef, keys: &[ForeignKey], statement: &Statement) -> Result<()> {
    store.create_table_with(&path(name), def, 0, (keys, statement), NEVER)
}

/// The keys of a table: name, parent, and whether it can be used.
fn keys(store: &Store, name: &str) -> Vec<String> {
    let related = store.catalog().related(&path(name)).unwrap();
    let relations = related.get().unwrap_or_default();
    let show = |key: &Arc<strata_row::foreign::Reference>| {
        let bound = if key.parent_index.is_some() { "" } else { " (missing)" };
        format!("{} -> {}{bound}", key.key.name, key.parent.trim_start_matches("./db/"))
    };
    let stored: Vec<_> = store.catalog().get(&path(name)).unwrap().foreign.iter().map(|k| k.name.clone()).collect();
    assert_eq!(stored.len(), relations.parents.len());
    relations.parents.iter().map(show).collect()
}

/// The keys that name a table.
fn referring(store: &Store, name: &str) -> Vec<String> {
    let relations = store.catalog().related(&path(name)).unwrap().get().unwrap_or_default();
    relations.children.iter().map(|key| format!("{}.{}", key.child.trim_start_matches("./db/"), key.key.name)).collect()
}

fn why(result: Result<()>) -> String {
    match result.unwrap_err() {
        Error::CannotAddForeign { name, why, .. } => format!("{name}: {why}"),
        other => other.to_string(),
    }
}

fn family() -> (MemDisk, Arc<Store>) {
    let disk = MemDisk::new();
    let store = open(&disk);
    create(&store, "p", &parent(), &[], &CHECKED).unwrap();
    create(&store, "c", &child(), &[key("", "p")], &CHECKED).unwrap();
    (disk, store)
}

#[test]
fn keys_get_names_that_nobody_else_has() {
    let (_, store) = family();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p"]);
    let more = [key("C_IBFK_2", "p"), key("", "p"), key("mine", "p")];
    create(&store, "c2", &child(), &more, &CHECKED).unwrap();
    assert_eq!(keys(&store, "c2"), ["C_IBFK_2 -> p", "c2_ibfk_1 -> p", "mine -> p"]);
    assert_eq!(referring(&store, "p"), ["c2.C_IBFK_2", "c2.c2_ibfk_1", "c.c_ibfk_1", "c2.mine"]);
    // Without regard to case, in one database.
    assert!(matches!(create(&store, "c3", &child(), &[key("MINE", "p")], &CHECKED), Err(Error::ForeignNameTaken(_))));
    let twice = create(&store, "c3", &child(), &[key("k", "p"), key("K", "p")], &CHECKED);
    assert!(why(twice).contains("two foreign keys of this name"));
    store.create_table_with("./other/c", &child(), 0, (&[key("mine", "p")], &CHECKED), NEVER).unwrap();
    // A name is free again once its table is gone.
    store.drop_table_with(&path("c2"), &CHECKED).unwrap();
    create(&store, "c3", &child(), &[key("MINE", "p")], &CHECKED).unwrap();
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let (_, store) = family();
    let try_key = |columns: &[&str], indexes: &[&str], line: &str, statement: &Statement| {
        let made = foreign_key(line).1;
        let result =
            create(&store, "x", &table(columns, &[&["PRIMARY unique (id)"], indexes].concat()), &[made], statement);
        if result.is_ok() {
            store.drop_table(&path("x")).unwrap();
            return String::new();
        }
        why(result)
    };
    let unchecked = Statement::default();
    let int = ["id int4", "p int4 null"];
    for statement in [&CHECKED, &unchecked] {
        let refused = |columns: &[&str], indexes: &[&str], line: &str, reason: &str| {
            let told = try_key(columns, indexes, line, statement);
            assert!(told.contains(reason), "{line}: {told}");
        };
        refused(&int, &["p (p)"], "f: x (p) -> p (id)", "");
        refused(&int, &["p (p)"], "f: x (P) -> p (ID)", "");
        refused(&int, &[], "f: x (p) -> p (id)", "`f`: The table has no index");
        refused(&int, &["p (p)"], "f: x (q) -> p (id)", "no column `q`");
        refused(&int, &["p (p)"], "f: x (p) -> p (q)", "no column `q`");
        refused(&["id int4", "p int8 null"], &["p (p)"], "f: x (p) -> p (id)", "Type or collation");
        refused(&["id int4", "p int4"], &["p (p)"], "f: x (p) -> p (u) delete null", "SET NULL");
        refused(&["id int4", "p int4"], &["p (p)"], "f: x (p) -> p (u) update null", "SET NULL");
        refused(&int, &["p (p)"], "f: x (id, p) -> p (id, u)", "no index that begins with these columns");
    }
    // Whoever takes no NULL cannot follow a parent that may become NULL.
    let never = ["id int4", "p int4"];
    assert!(try_key(&never, &["p (p)"], "f: x (p) -> p (u) update cascade", &CHECKED).contains("may be NULL"));
    assert_eq!(try_key(&never, &["p (p)"], "f: x (p) -> p (u) update cascade", &unchecked), "");
    assert_eq!(try_key(&never, &["p (p)"], "f: x (p) -> p (u) delete cascade update cascade", &CHECKED), "");
    assert_eq!(try_key(&never, &["p (p)"], "f: x (p) -> p (id) update cascade", &CHECKED), "");
    // The primary key stands behind a secondary index.
    assert_eq!(try_key(&int, &["p (p, id)"], "f: x (p, id) -> p (u, id)", &CHECKED), "");
    assert!(try_key(&int, &["p (p, id)"], "f: x (id, p) -> p (id, u)", &CHECKED).contains("no index that begins"));
    assert!(try_key(&int, &["p (p)"], "f: x (p) -> none (id)", &CHECKED).contains("There is no table"));
    assert_eq!(try_key(&int, &["p (p)"], "f: x (p) -> none (id)", &unchecked), "");
    let temporary = TableDef { temporary: true, ..child() };
    assert!(why(create(&store, "x", &temporary, &[key("", "p")], &unchecked)).contains("(p): Temporary"));
    assert!(store.latest_foreign_error().unwrap().what.contains("Temporary"));
}

#[test]
fn a_parent_that_comes_later_is_bound_at_once_if_it_fits() {
    let (disk, store) = family();
    assert!(
        matches!(store.drop_table_with(&path("p"), &CHECKED), Err(Error::RowIsReferenced(key)) if key.child == path("c"))
    );
    store.drop_table_with(&path("p"), &Statement::default()).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p (missing)"]);
    let unfit = table(&["id int8"], &["PRIMARY unique (id)"]);
    assert!(why(create(&store, "p", &unfit, &[], &CHECKED)).contains("Type or collation"));
    create(&store, "p", &unfit, &[], &Statement::default()).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p (missing)"]);
    assert_eq!(referring(&store, "p"), ["c.c_ibfk_1"]);
    store.drop_table_with(&path("p"), &Statement::default()).unwrap();
    create(&store, "q", &parent(), &[], &CHECKED).unwrap();
    store.rename_table_with(&path("q"), &path("p"), &CHECKED).unwrap();
    assert_eq!((keys(&store, "c"), referring(&store, "p")), (vec!["c_ibfk_1 -> p".into()], vec!["c.c_ibfk_1".into()]));
    store.close().unwrap();
    drop(store);
    let again = open(&disk);
    assert_eq!((keys(&again, "c"), referring(&again, "p")), (vec!["c_ibfk_1 -> p".into()], vec!["c.c_ibfk_1".into()]));
}

#[test]
fn tables_of_one_statement_or_database_go_together() {
    let (_, store) = family();
    let database = Statement { drops_database: true, ..CHECKED };
    store.create_table_with("./other/c", &child(), 0, (&[key("", "p")], &CHECKED), NEVER).unwrap();
    assert!(
        matches!(store.drop_table_with(&path("p"), &database), Err(Error::RowIsReferenced(key)) if key.child == "./other/c")
    );
    store.drop_table_with("./other/c", &CHECKED).unwrap();
    store.drop_table_with(&path("p"), &database).unwrap();
    store.drop_table_with(&path("c"), &database).unwrap();
    // One that refers to itself goes.
    let own = ForeignKey { parent: path("s"), ..key("", "s") };
    create(&store, "s", &child(), &[own], &CHECKED).unwrap();
    store.drop_table_with(&path("s"), &CHECKED).unwrap();
}

#[test]
fn keys_go_with_the_names_of_parent_and_child() {
    let (disk, store) = family();
    store.rename_table_with(&path("p"), &path("p2"), &CHECKED).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p2"]);
    store.rename_table_with(&path("c"), &path("d"), &CHECKED).unwrap();
    assert_eq!(keys(&store, "d"), ["d_ibfk_1 -> p2"]);
    // Its generated name is free, and must be in the other database.
    create(&store, "c", &child(), &[key("d_ibfk_2", "p2")], &CHECKED).unwrap();
    store.create_table_with("./other/x", &child(), 0, (&[key("d_ibfk_1", "p2")], &CHECKED), NEVER).unwrap();
    let taken = store.rename_table_with(&path("d"), "./other/d", &CHECKED);
    assert!(matches!(taken, Err(Error::ForeignNameTaken(name)) if name == "d_ibfk_1"));
    // Changing places.
    for (from, to) in [("p2", "t"), ("d", "p2"), ("t", "d")] {
        store.rename_table_with(&path(from), &path(to), &CHECKED).unwrap();
    }
    assert_eq!(keys(&store, "p2"), ["p2_ibfk_1 -> d"]);
    assert_eq!(keys(&store, "c"), ["d_ibfk_2 -> d"]);
    let own = ForeignKey { parent: path("s"), ..key("named", "s") };
    create(&store, "s", &child(), &[own], &CHECKED).unwrap();
    store.rename_table_with(&path("s"), &path("r"), &CHECKED).unwrap();
    assert_eq!((keys(&store, "r"), referring(&store, "r")), (vec!["named -> r".into()], vec!["r.named".into()]));
    store.close().unwrap();
    drop(store);
    let again = open(&disk);
    assert_eq!(keys(&again, "p2"), ["p2_ibfk_1 -> d"]);
    assert_eq!(referring(&again, "d").len(), 3);
}

/// ALTER TABLE by copy, each step, for the table `altered`; it has `next` and `keys` afterwards, and perhaps another name.
fn copy(store: &Store, altered: &str, to: &str, next: &TableDef, keys: &[ForeignKey], checks: bool) -> Result<()> {
    let statement = Statement { checks, altered: Some(path(altered)), ..CHECKED };
    create(store, "#sql-alter-1-2", next, keys, &statement)?;
    let rename = |from: &str, to: &str| store.rename_table_with(&path(from), &path(to), &statement);
    if altered == to {
        rename(altered, "#sql-backup-1-2")?;
        rename("#sql-alter-1-2", to)?;
        return store.drop_table_with(&path("#sql-backup-1-2"), &statement);
    }
    rename("#sql-alter-1-2", to)?;
    store.drop_table_with(&path(altered), &statement)
}

fn inherited(key: ForeignKey) -> ForeignKey {
    ForeignKey { inherited: true, ..key }
}

#[test]
fn a_copy_takes_the_place_of_a_table_with_all_its_keys() {
    let (_, store) = family();
    let old = inherited(key("c_ibfk_1", "p"));
    // The child, with a key more; then without the first.
    copy(&store, "c", "c", &child(), &[old, key("", "p")], true).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p", "c_ibfk_2 -> p"]);
    assert!(store.catalog().get(&path("c")).unwrap().foreign.iter().all(|key| !key.inherited));
    copy(&store, "c", "c", &child(), &[inherited(key("c_ibfk_2", "p"))], true).unwrap();
    assert_eq!(referring(&store, "p"), ["c.c_ibfk_2"]);
    // The parent; also under another name.
    copy(&store, "p", "p", &parent(), &[], true).unwrap();
    assert_eq!((keys(&store, "c"), referring(&store, "p")), (vec!["c_ibfk_2 -> p".into()], vec!["c.c_ibfk_2".into()]));
    copy(&store, "p", "p2", &parent(), &[], true).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_2 -> p2"]);
    copy(&store, "c", "d", &child(), &[inherited(key("c_ibfk_2", "p2"))], true).unwrap();
    assert_eq!(keys(&store, "d"), ["d_ibfk_2 -> p2"]);
    // A copy that nobody has filled yet is no child of the parent, and can be dropped.
    let statement = Statement { altered: Some(path("d")), ..CHECKED };
    create(&store, "#sql-alter-1-3", &child(), &[inherited(key("d_ibfk_2", "p2")), key("new", "p2")], &statement)
        .unwrap();
    assert_eq!(referring(&store, "p2"), ["d.d_ibfk_2"]);
    assert_eq!(keys(&store, "#sql-alter-1-3").len(), 2);
    store.drop_table(&path("#sql-alter-1-3")).unwrap();
}

#[test]
fn an_index_that_a_key_needs_stays() {
    let (_, store) = family();
    let old = inherited(key("c_ibfk_1", "p"));
    let index =
        |result: Result<()>| matches!(result, Err(Error::IndexOfForeign(name)) if name == "p" || name == "PRIMARY");
    assert!(index(copy(
        &store,
        "c",
        "c",
        &table(&["id int4", "p int4 null"], &["PRIMARY unique (id)"]),
        std::slice::from_ref(&old),
        true
    )));
    assert!(index(copy(&store, "p", "p", &table(&["id int4", "u int4 null"], &[]), &[], true)));
    // Another one will do, and without checks none.
    let other = table(&["id int4", "p int4 null"], &["PRIMARY unique (id)", "pid (p, id)"]);
    copy(&store, "c", "c", &other, std::slice::from_ref(&old), true).unwrap();
    copy(&store, "c", "c", &table(&["id int4", "p int4 null"], &["PRIMARY unique (id)"]), &[old], false).unwrap();
    let related = store.catalog().related(&path("c")).unwrap().get().unwrap();
    assert_eq!((related.parents[0].child_index, related.parents[0].parent_index), (None, Some(0)));
}

/// The parent's rows are locked by the transaction that has written a child: whoever puts something else under the parent's name waits.
#[test]
fn the_name_of_a_parent_is_locked_by_who_writes_children() {
    let mut db = Db::new();
    db.define("p", parent()).define("c", child()).key("f: c (p) -> p (id)");
    let mut writer = db.conn();
    writer.insert("p", &values([("id", 1.into()), ("u", V::Null)])).unwrap();
    writer.commit();
    writer.insert("c", &values([("id", 1.into()), ("p", 1.into())])).unwrap();
    let mut ddl = db.conn();
    ddl.session.statement_begin(ddl.isolation, std::time::Duration::ZERO).unwrap();
    assert!(matches!(ddl.session.lock_name(&path("p")), Err(Error::Engine(kv::Error::LockTimeout))));
    writer.commit();
    ddl.session.lock_name(&path("p")).unwrap();
    writer.timeout = std::time::Duration::ZERO;
    let held = writer.insert("c", &values([("id", 2.into()), ("p", 1.into())]));
    assert!(matches!(held, Err(Error::Engine(kv::Error::LockTimeout | kv::Error::LockBusy))));
    ddl.session.commit().unwrap();
    writer.insert("c", &values([("id", 2.into()), ("p", 1.into())])).unwrap();
}

/// Whatever operation of the disk fails under a rename of a parent: its children name the old one or the new one, all of them, and the
/// store opens so. A store that has keys says so before it has them.
#[test]
fn a_rename_of_a_parent_takes_its_children_along_or_not_at_all() {
    let plain = |disk: &MemDisk| Options { disk: Arc::new(disk.clone()) as Arc<dyn Disk>, ..Options::default() };
    let mut whole = false;
    for n in 1..200 {
        let (disk, store) = family();
        create(&store, "c2", &child(), &[key("", "p")], &CHECKED).unwrap();
        disk.fail_after(n, FaultKind::Other);
        let renamed = store.rename_table_with(&path("p"), &path("q"), &CHECKED);
        whole = disk.clear_fault();
        assert!(!whole || renamed.is_ok());
        for seed in 0..2 {
            let image = disk.crash(seed);
            let again = open(&image);
            let parent = if again.catalog().get(&path("q")).is_ok() { "q" } else { "p" };
            assert!(parent == "q" || renamed.is_err());
            assert_eq!(keys(&again, "c"), [format!("c_ibfk_1 -> {parent}")]);
            assert_eq!(keys(&again, "c2"), [format!("c2_ibfk_1 -> {parent}")]);
            assert_eq!(referring(&again, parent), ["c2.c2_ibfk_1", "c.c_ibfk_1"]);
            again.close().unwrap();
            drop(again);
            let refused = kv::Engine::open(std::path::Path::new("/data"), plain(&image)).err().unwrap().to_string();
            assert!(refused.contains("foreign-keys"), "{refused}");
        }
        if whole {
            break;
        }
    }
    assert!(whole);
}

/// Keys follow the names of columns, of the child and of the parent, also where both are one table, and after a restart.
#[test]
fn keys_follow_the_names_of_columns() {
    let disk = MemDisk::new();
    let store = open(&disk);
    create(&store, "parent", &parent(), &[], &CHECKED).unwrap();
    create(&store, "c", &child(), &[key("k", "parent"), own()], &CHECKED).unwrap();
    let rename = |store: &Store, name: &str, columns: &[&str], indexes: &[&str]| {
        let kept: Vec<Source> = (0..columns.len()).map(Source::Kept).collect();
        crate::common::alter_columns(store, &[path(name)], &table(columns, indexes), &kept, NEVER).unwrap();
    };
    let columns = |store: &Store| {
        let keys = store.catalog().get(&path("c")).unwrap().foreign.clone();
        let show = |key: &Arc<ForeignKey>| format!("{:?} -> {:?}", key.columns, key.parent_columns);
        keys.iter().map(show).collect::<Vec<_>>()
    };
    rename(&store, "parent", &["number int4", "u int4 null"], &["PRIMARY unique (number)", "u (u)"]);
    assert_eq!(columns(&store), [r#"["p"] -> ["number"]"#, r#"["p"] -> ["id"]"#]);
    rename(&store, "c", &["p int4", "id int4 null"], &["PRIMARY unique (p)", "p (id)"]);
    let expected = [r#"["id"] -> ["number"]"#, r#"["id"] -> ["p"]"#];
    assert_eq!(columns(&store), expected);
    assert_eq!(keys(&store, "c"), ["k -> parent", "own -> c"]);
    assert_eq!(referring(&store, "parent"), ["c.k"]);
    drop(store);
    let store = open(&disk);
    assert_eq!(columns(&store), expected);
    assert_eq!(keys(&store, "c"), ["k -> parent", "own -> c"]);
}

/// A key `p` of table `c` to itself.
fn own() -> ForeignKey {
    key("own", "c")
}

/// Alters a table whose columns and indexes stay: keys go and come.
fn change_keys(store: &Store, name: &str, def: &TableDef, change: &[&str], statement: &Statement) -> Result<()> {
    let mut keys = KeyChange::default();
    for line in change {
        match line.strip_prefix("drop ") {
            Some(dropped) => keys.dropped.push(dropped.to_owned()),
            None => keys.added.push(foreign_key(line).1),
        }
    }
    keys.added.iter_mut().filter(|key| key.name == "-").for_each(|key| key.name.clear());
    let alteration = Alteration {
        def: def.clone(),
        sources: (0..def.columns.len()).map(Source::Kept).collect(),
        kept: (0..def.indexes.len()).map(Some).collect(),
        statement: Statement { altered: Some(path(name)), ..statement.clone() },
        keys,
        rebuilds: false,
        converts: false,
        counter: None,
    };
    let table = || AlteredTable { name: path(name), kept: (0..def.indexes.len()).collect(), built: Vec::new() };
    let tried = store.check_alteration(table(), &alteration, NEVER);
    let done = store.alter_tables(&[table()], &alteration, NEVER);
    assert_eq!(tried.is_ok(), done.is_ok(), "a trial says what will be");
    done
}

#[test]
fn keys_come_and_go_in_place() {
    let disk = MemDisk::new();
    let store = open(&disk);
    create(&store, "p", &parent(), &[], &CHECKED).unwrap();
    create(&store, "c", &child(), &[key("f", "p")], &CHECKED).unwrap();
    let change = |lines: &[&str], statement: &Statement| change_keys(&store, "c", &child(), lines, statement);
    let unchecked = Statement { checks: false, ..CHECKED };

    change(&["-: c (p) -> p (u)", "-: c (id) -> p (id) delete cascade"], &CHECKED).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p", "c_ibfk_2 -> p", "f -> p"]);
    assert_eq!(referring(&store, "p"), ["c.c_ibfk_1", "c.c_ibfk_2", "c.f"]);

    // A number is not given again in the statement in which it goes.
    change(&["drop C_IBFK_2", "drop f", "-: c (p) -> p (id)"], &CHECKED).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p", "c_ibfk_3 -> p"]);
    change(&["drop c_ibfk_3", "c_ibfk_3: c (id) -> p (id)"], &CHECKED).unwrap();
    assert_eq!(store.catalog().get(&path("c")).unwrap().foreign[1].columns, ["id"]);

    for (lines, error) in [
        (&["drop c_ibfk_1", "drop nosuch"][..], "there is no foreign key 'nosuch'"),
        (&["C_ibfk_1: c (p) -> p (id)"], "there is a foreign key 'C_ibfk_1' already"),
        (&["x: c (p) -> p (id)", "X: c (p) -> p (u)"], "`X`: The statement has two foreign keys of this name."),
        (&["x: c (p) -> q (id)"], "`x`: There is no table `db`.`q` of this engine."),
        (&["x: c (nosuch) -> p (id)"], "`x`: The table has no column `nosuch`."),
        (&["x: c (id) -> p (id) delete null"], "`x`: SET NULL is not possible: column `id` is NOT NULL."),
    ] {
        let found = why(change(lines, &CHECKED));
        assert_eq!(found.replace("./db`", "db`"), error, "{lines:?}");
    }
    // A table that another one has a key with is refused the name; without checks a parent may be missing.
    create(&store, "d", &child(), &[key("taken", "p")], &CHECKED).unwrap();
    assert_eq!(why(change(&["taken: c (p) -> p (id)"], &unchecked)), "there is a foreign key 'taken' already");
    change(&["x: c (p) -> q (id)"], &unchecked).unwrap();
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p", "c_ibfk_3 -> p", "x -> q (missing)"]);
    drop(store);

    let store = open(&disk);
    assert_eq!(keys(&store, "c"), ["c_ibfk_1 -> p", "c_ibfk_3 -> p", "x -> q (missing)"]);
    change_keys(&store, "c", &child(), &["drop c_ibfk_1", "drop c_ibfk_3", "drop x"], &CHECKED).unwrap();
    assert!(referring(&store, "p") == ["d.taken"] && keys(&store, "c").is_empty());
}

/// A table whose columns get other names in the statement in which an index goes, or all are written anew.
#[test]
fn other_names_of_columns_do_not_hide_the_indexes_that_keys_need() {
    let store = open(&MemDisk::new());
    let indexes = ["PRIMARY unique (id)", "u (u)", "x (x)"];
    create(&store, "p", &table(&["id int4", "u int4", "x int4"], &indexes), &[], &CHECKED).unwrap();
    create(&store, "c", &child(), &[foreign_key("f: c (p) -> p (u)").1], &CHECKED).unwrap();
    let alter = |columns: &[&str], indexes: &[&str], kept: &[usize], rebuilds: bool| {
        let def = table(columns, indexes);
        let alteration = Alteration {
            sources: (0..def.columns.len()).map(Source::Kept).collect(),
            kept: kept.iter().copied().map(Some).collect(),
            statement: Statement { altered: Some(path("p")), ..CHECKED },
            keys: KeyChange::default(),
            def,
            rebuilds,
            converts: false,
            counter: None,
        };
        let altered = AlteredTable { name: path("p"), kept: kept.to_vec(), built: Vec::new() };
        match (store.check_alteration(altered, &alteration, NEVER), rebuilds) {
            (Ok(()), true) => Ok(()),
            (Ok(()), false) => {
                let altered = AlteredTable { name: path("p"), kept: kept.to_vec(), built: Vec::new() };
                store.alter_tables(&[altered], &alteration, NEVER)
            }
            (refused, _) => refused,
        }
    };
    let refers_to = || store.catalog().get(&path("c")).unwrap().foreign[0].parent_columns.clone();
    alter(&["id int4", "v int4 null", "x int4"], &["PRIMARY unique (id)", "u (v)", "x (x)"], &[0, 1, 2], true).unwrap();
    let lacks_it = alter(&["id int4", "v int4", "u int4"], &["PRIMARY unique (id)", "x (u)"], &[0, 2], false);
    assert!(matches!(lacks_it, Err(Error::IndexOfForeign(index)) if index == "u"));
    alter(&["id int4", "v int4", "u int4"], &["PRIMARY unique (id)", "u (v)"], &[0, 1], false).unwrap();
    assert_eq!(refers_to(), ["v"]);
}

/// Guards the numbers of errors (1822, 1825, 1826): InnoDB looks at one key after the other, at types and for NULL where there is an index
/// of the child already, and in the end where that comes with the key.
#[test]
fn of_several_faults_that_is_told_which_innodb_meets_first() {
    let store = open(&MemDisk::new());
    let columns = ["id int4", "p int4", "q int4"];
    create(&store, "p", &table(&["id int4", "w int8"], &["PRIMARY unique (id)", "w (w)"]), &[], &CHECKED).unwrap();
    let before = table(&columns, &["PRIMARY unique (id)", "p (p)"]);
    create(&store, "c", &before, &[key("own", "p")], &CHECKED).unwrap();
    let after = table(&columns, &["PRIMARY unique (id)", "p (p)", "q (q)"]);
    let fault = |lines: &[&str]| {
        let added = lines.iter().map(|line| foreign_key(line).1).collect();
        let alteration = Alteration {
            def: after.clone(),
            sources: (0..columns.len()).map(Source::Kept).collect(),
            kept: vec![Some(0), Some(1), None],
            statement: Statement { checks: false, altered: Some(path("c")), ..CHECKED },
            keys: KeyChange { added, ..KeyChange::default() },
            rebuilds: false,
            converts: false,
            counter: None,
        };
        let altered = AlteredTable { name: path("c"), kept: vec![0, 1], built: Vec::new() };
        match store.check_alteration(altered, &alteration, NEVER) {
            Ok(()) => "none".to_owned(),
            Err(Error::ForeignNameTaken(_)) => "name".to_owned(),
            Err(Error::CannotAddForeign { fault, .. }) => format!("{fault:?}"),
            Err(other) => other.to_string(),
        }
    };
    for (lines, expected) in [
        (&["x: c (p) -> p (id)", "y: c (q) -> p (id)"][..], "none"),
        (&["x: c (p) -> p (nosuch) delete null"], "Parent"),
        (&["x: c (p) -> p (w) delete null"], "Parent"),
        (&["x: c (p) -> p (id) delete null"], "Child"),
        (&["x: c (q) -> p (w)"], "Child"),
        (&["x: c (q) -> p (nosuch)"], "Parent"),
        (&["x: c (q) -> p (w)", "y: c (p) -> p (nosuch)"], "Parent"),
        (&["x: c (q) -> p (id) delete null", "own: c (p) -> p (id)"], "name"),
        (&["x: c (p) -> p (id) delete null", "y: c (p) -> p (nosuch)"], "Child"),
        (&["own: c (p) -> p (nosuch)"], "Parent"),
        (&["own: c (p) -> p (id) delete null"], "name"),
        (&["x: c (p) -> none (id) delete null"], "Child"),
    ] {
        assert_eq!(fault(lines), expected, "{lines:?}");
    }
}

/// Guards that whoever looks for the cause finds the statement, and how often it happens.
#[test]
fn what_a_foreign_key_refuses_is_noted_with_the_statement() {
    let (_, store) = family();
    store.set_statement_source(Box::new(|| Some("DROP TABLE p".to_owned())));
    let errors = |store: &Store| {
        let figures = strata_row::metrics::values(store);
        figures.iter().find(|(metric, _)| metric.name == "foreign_key_errors").unwrap().1
    };
    assert_eq!(errors(&store), 0);
    store.drop_table_with(&path("p"), &CHECKED).unwrap_err();
    let noted = store.latest_foreign_error().unwrap();
    assert_eq!((noted.statement.as_deref(), errors(&store)), (Some("DROP TABLE p"), 1));
    let text = strata_row::metrics::status_text(&store);
    assert!(text.contains("\nLATEST FOREIGN KEY ERROR\n0 s ago: ") && text.contains(", in: DROP TABLE p\n"), "{text}");
}
