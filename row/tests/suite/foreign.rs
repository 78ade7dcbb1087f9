//! Foreign keys, one shape and action after the other: what a statement on a parent or a child ends with, and what it leaves.

use crate::common::related::*;
use crate::common::values::{V, table};
use std::sync::Arc;
use strata_row::def::SystemVersions;
use strata_row::integrity::Computing;
use strata_row::isolation::Isolation;
use strata_row::table::Table;

const ID: &str = "PRIMARY (id)";

/// A parent `p (id, k)` with a unique `k`, and a child `c (id, k)`.
fn pair(actions: &str) -> Db {
    let mut db = Db::new();
    db.table("p", &["id int4", "k int4 null"], &[ID, "k unique (k)"]);
    db.table("c", &["id int4", "k int4 null"], &[ID, "k (k)"]);
    db.key(&format!("f: c (k) -> p (k) {actions}"));
    db
}

fn run(db: &Db, script: &str) {
    db.conn().script(script);
    db.check();
}

#[test]
fn a_child_needs_a_parent() {
    run(
        &pair(""),
        "insert c 1 7 -> no parent f
         insert c 1 NULL
         insert p 1 7
         insert c 2 7
         update c 1 8 -> no parent f
         update c 1 7
         update c 1 NULL
         insert c 2 9 -> duplicate 0
         move c 2 3 7
         show c -> 1 NULL, 3 7
         insert p 2 NULL
         insert c 4 NULL
         commit",
    );
}

#[test]
fn restrict_keeps_the_parent() {
    for actions in ["", "delete restrict update restrict", "delete nothing update nothing"] {
        run(
            &pair(actions),
            "insert p 1 7
             insert p 2 8
             insert c 1 7
             delete p 1 -> referenced f
             update p 1 9 -> referenced f
             update p 1 NULL -> referenced f
             update p 1 7
             move p 1 5 7
             delete p 2
             delete c 1
             delete p 5
             show p ->
             commit",
        );
    }
}

#[test]
fn a_parent_goes_with_its_children_or_leaves_them() {
    run(
        &pair("delete cascade update cascade"),
        "insert p 1 7
         insert p 2 8
         insert c 1 7
         insert c 2 8
         insert c 3 7
         insert c 4 NULL
         update p 1 9
         show c -> 1 9, 2 8, 3 9, 4 NULL
         update p 1 NULL
         show c -> 1 NULL, 2 8, 3 NULL, 4 NULL
         delete p 2
         show c -> 1 NULL, 3 NULL, 4 NULL
         commit",
    );
    run(
        &pair("delete null update null"),
        "insert p 1 7
         insert p 2 8
         insert c 1 7
         insert c 2 8
         update p 1 9
         delete p 2
         show c -> 1 NULL, 2 NULL
         rollback
         show c ->
         commit",
    );
}

#[test]
fn without_checks_nothing_is_checked_and_nothing_follows() {
    let db = pair("delete cascade update cascade");
    let mut conn = db.conn();
    conn.session.set_foreign_key_checks(false);
    conn.script(
        "insert c 1 7
         insert p 1 7
         insert p 2 8
         insert c 2 8
         update p 1 9
         delete p 2
         show c -> 1 7, 2 8",
    );
    conn.session.set_foreign_key_checks(true);
    conn.script("commit");
    let table = db.store.open_table(&path("c"), db.defs["c"].clone()).unwrap();
    let mut lines = Vec::new();
    assert!(!table.check_references(&mut conn.session, &mut |line| lines.push(line.to_owned())).unwrap());
    assert_eq!(lines, ["foreign key `f`: 2 rows have no row in `db`.`p`"]);
    // An orphan may find a parent or go; under another primary key it would be a new row.
    conn.script("move c 1 3 7 -> no parent f\n update c 2 9\n update c 2 7 -> no parent f\n delete c 1\n commit");
    assert!(table.check_references(&mut conn.session, &mut |_| ()).unwrap());
}

/// Composite keys, in every kind of index of the parent.
#[test]
fn several_columns() {
    for index in ["x unique (a, b)", "x (a, b)", "x (a, b, id)", "x unique (a, b, id)", "x (a desc, b, id desc)"] {
        let mut db = Db::new();
        db.table("p", &["id int4", "a int4 null", "b int2 null"], &[ID, index]);
        db.table("c", &["id int4", "b int2 null", "a int4 null"], &[ID, "ab (a, b, id)"]);
        db.key("f: c (a, b) -> p (a, b) update cascade delete null");
        run(
            &db,
            "insert p 1 1 1
             insert p 2 1 2
             insert c 1 2 1
             insert c 2 3 1 -> no parent f
             insert c 2 NULL 9
             insert c 3 3 NULL
             insert c 4 1 1
             update p 2 1 5
             show c -> 1 5 1, 2 NULL 9, 3 3 NULL, 4 1 1
             delete p 1
             show c -> 1 5 1, 2 NULL 9, 3 3 NULL, 4 NULL NULL
             update p 2 NULL 5
             show c -> 1 5 NULL, 2 NULL 9, 3 3 NULL, 4 NULL NULL
             commit",
        );
    }
}

#[test]
fn the_primary_key_of_either() {
    let mut db = Db::new();
    db.table("p", &["id int4", "v int4"], &[ID]);
    db.table("c", &["id int4", "v int4"], &[ID, "v unique (v)"]);
    db.key("f: c (id) -> p (id) update cascade delete cascade");
    run(
        &db,
        "insert p 1 0
         insert p 2 0
         insert c 1 10
         insert c 2 20
         insert c 3 30 -> no parent f
         move p 1 3 0
         show c -> 2 20, 3 10
         move c 2 1 20 -> no parent f
         move c 2 3 20 -> duplicate 0
         update c 2 10 -> duplicate 1
         delete p 3
         show c -> 2 20
         insert p 3 0
         move c 2 3 20
         delete p 2
         commit",
    );
}

/// Rows without a primary key are found by their hidden ids.
#[test]
fn tables_without_a_primary_key() {
    let mut db = Db::new();
    db.table("p", &["id int4", "t text2 null"], &["i unique (id)"]);
    db.table("c", &["id int4", "t text2 null"], &["i (id)"]);
    db.key("f: c (id) -> p (id) update cascade delete cascade");
    let mut conn = db.conn();
    conn.script(
        "insert p 1 a
         insert c 1 x
         insert c 1 y
         insert c 2 z -> no parent f",
    );
    let becomes = |id: i64| {
        move |row: &crate::common::values::Values| {
            let mut row = row.clone();
            row.insert("id".into(), id.into());
            Fate::Becomes(row)
        }
    };
    conn.each("p", becomes(5)).unwrap();
    conn.script("show c -> 5 x, 5 y");
    conn.each("p", |_| Fate::Goes).unwrap();
    conn.script("show c ->\n commit");
    db.check();
}

/// A row may refer to itself, and to others of its table.
#[test]
fn self_references() {
    let tree = |actions: &str| {
        let mut db = Db::new();
        db.table("t", &["id int4", "up int4 null"], &[ID, "up (up)"]);
        db.key(&format!("f: t (up) -> t (id) {actions}"));
        db
    };
    run(
        &tree(""),
        "insert t 1 1
         insert t 3 2 -> no parent f
         insert t 2 1
         delete t 1 -> referenced f
         delete t 2
         delete t 1 -> referenced f
         move t 1 2 1 -> referenced f
         move t 1 2 2 -> referenced f
         update t 1 NULL
         delete t 1
         insert t 1 NULL
         insert t 2 1
         move t 2 3 3
         show t -> 1 NULL, 3 3
         commit",
    );
    run(
        &tree("delete cascade"),
        "insert t 1 NULL
         insert t 2 1
         insert t 3 2
         insert t 4 1
         insert t 5 5
         delete t 1
         show t -> 5 5
         delete t 5
         show t ->
         insert t 1 NULL
         insert t 2 1
         update t 1 2
         delete t 1
         show t ->
         commit",
    );
    run(
        &tree("delete null update cascade"),
        "insert t 1 NULL
         insert t 2 1
         insert t 3 1
         delete t 1
         show t -> 2 NULL, 3 NULL
         update t 3 2
         move t 2 4 NULL -> referenced f
         show t -> 2 NULL, 3 2
         insert t 5 5
         move t 5 6 5 -> referenced f
         delete t 5
         show t -> 2 NULL, 3 2
         commit",
    );
    // A statement on many rows: each row by itself, in the order of the scan.
    let db = tree("");
    let mut conn = db.conn();
    conn.script("insert t 1 NULL\n insert t 2 1\n insert t 3 2\n commit");
    assert_eq!(outcome(&conn.each("t", |_| Fate::Goes)), "referenced f");
    conn.script("show t -> 1 NULL, 2 1, 3 2");
    let db = tree("delete cascade");
    let mut conn = db.conn();
    conn.script("insert t 1 NULL\n insert t 2 1\n insert t 3 2\n insert t 4 NULL\n commit");
    let mut met = 0;
    conn.each("t", |_| {
        met += 1;
        Fate::Goes
    })
    .unwrap();
    assert_eq!(met, 2, "rows that have gone are not met");
    conn.script("show t ->\n commit");
    db.check();
}

#[test]
fn cycles_of_tables() {
    let mut db = Db::new();
    db.table("a", &["id int4", "b int4 null"], &[ID, "b (b)"]);
    db.table("b", &["id int4", "a int4 null"], &[ID, "a (a)"]);
    db.key("ba: b (a) -> a (id) delete cascade update cascade");
    db.key("ab: a (b) -> b (id) delete cascade update cascade");
    run(
        &db,
        "insert a 1 NULL
         insert b 1 1
         update a 1 1
         move a 1 5 1
         show b -> 1 5
         move b 1 6 5
         show a -> 5 6
         delete a 5
         show b ->
         show a ->
         commit",
    );
    // Each row is the other's parent.
    let mut db = Db::new();
    db.table("a", &["id int4"], &[ID]);
    db.table("b", &["id int4"], &[ID]);
    db.key("ba: b (id) -> a (id) delete cascade update cascade");
    db.key("ab: a (id) -> b (id) delete cascade update cascade");
    let mut conn = db.conn();
    conn.session.set_foreign_key_checks(false);
    conn.script("insert a 1\n insert b 1\n commit");
    run(&db, "move a 1 2\n show a -> 2\n show b -> 2\n delete b 2\n show a ->\n commit");
}

#[test]
fn several_keys_between_two_tables() {
    let two = |first: &str, second: &str| {
        let mut db = Db::new();
        db.table("p", &["id int4"], &[ID]);
        db.table("c", &["id int4", "x int4 null", "y int4 null"], &[ID, "x (x)", "y (y)"]);
        db.key(first).key(second);
        db
    };
    let rows = "insert p 1\n insert p 2\n insert c 1 1 1\n insert c 2 1 2\n insert c 3 2 1";
    // In the order of their names: what the first deletes the second does not protect.
    run(
        &two("a: c (x) -> p (id) delete cascade", "b: c (y) -> p (id)"),
        &format!("{rows}\n delete p 1 -> referenced b\n delete c 3\n delete p 1\n show c ->\n commit"),
    );
    run(
        &two("b: c (x) -> p (id) delete cascade", "a: c (y) -> p (id)"),
        &format!("{rows}\n delete p 1 -> referenced a\n show p -> 1, 2\n commit"),
    );
    // A row that is met twice.
    run(
        &two("a: c (x) -> p (id) delete null", "b: c (y) -> p (id) delete cascade"),
        &format!("{rows}\n delete p 1\n show c -> 2 NULL 2\n commit"),
    );
    run(
        &two("a: c (x) -> p (id) update cascade", "b: c (y) -> p (id) update cascade"),
        &format!("{rows}\n move p 1 9\n show c -> 1 9 9, 2 9 2, 3 2 9\n commit"),
    );
}

#[test]
fn a_row_that_a_cascade_changes_needs_its_other_parents() {
    let mut db = Db::new();
    db.table("p", &["id int4"], &[ID]);
    db.table("q", &["id int4"], &[ID]);
    db.table("c", &["id int4", "x int4 null"], &[ID, "x (x)"]);
    db.key("f: c (x) -> p (id) update cascade delete null");
    db.key("g: c (x) -> q (id)");
    run(
        &db,
        "insert p 1
         insert q 1
         insert q 3
         insert c 1 1
         move p 1 2 -> no parent g
         show c -> 1 1
         move p 1 3
         show c -> 1 3
         delete q 3 -> referenced g
         delete p 3
         show c -> 1 NULL
         delete q 3
         commit",
    );
}

#[test]
fn grandchildren() {
    let mut db = Db::new();
    db.table("p", &["id int4"], &[ID]);
    db.table("c", &["id int4"], &[ID]);
    db.table("g", &["id int4", "c int4 null"], &[ID, "c (c)"]);
    db.key("f: c (id) -> p (id) update cascade delete cascade");
    db.key("g: g (c) -> c (id) delete null");
    run(
        &db,
        "insert p 1
         insert p 2
         insert c 1
         insert g 1 1
         move p 1 5 -> referenced g
         show p -> 1, 2
         show c -> 1
         delete p 1
         show g -> 1 NULL
         commit",
    );
}

#[test]
fn cascades_have_a_limit() {
    for (levels, expected) in [(14, "ok"), (15, "too deep")] {
        let mut db = Db::new();
        for level in 0..=levels {
            db.table(&format!("t{level}"), &["id int4"], &[ID]);
        }
        for level in 1..=levels {
            db.key(&format!("f{level}: t{level} (id) -> t{} (id) delete cascade update cascade", level - 1));
        }
        let mut conn = db.conn();
        for level in 0..=levels {
            conn.script(&format!("insert t{level} 1"));
        }
        conn.script(&format!(
            "move t0 1 2 -> {expected}\n delete t0 2 -> {}",
            if levels == 14 { "ok" } else { "no row" }
        ));
        conn.script(&format!("delete t0 1 -> {}", if levels == 14 { "no row" } else { expected }));
        conn.script("commit");
        db.check();
    }
}

/// Two parent rows with one value: the change of either has its consequences, as the key says.
#[test]
fn a_parent_whose_values_are_not_unique() {
    let db = |actions: &str| {
        let mut db = Db::new();
        db.table("p", &["id int4", "k int4 null"], &[ID, "k (k)"]);
        db.table("c", &["id int4", "k int4 null"], &[ID, "k (k)"]);
        db.key(&format!("f: c (k) -> p (k) {actions}"));
        db
    };
    let rows = "insert p 1 5\n insert p 2 5\n insert c 1 5";
    run(&db(""), &format!("{rows}\n delete p 1 -> referenced f\n delete c 1\n delete p 1\n insert c 1 5\n commit"));
    run(&db("delete cascade"), &format!("{rows}\n delete p 2\n show c ->\n insert c 1 5\n commit"));
    run(
        &db("update null"),
        &format!("{rows}\n update p 2 6\n show c -> 1 NULL\n insert c 2 6\n insert c 3 5\n commit"),
    );
}

#[test]
fn text_is_compared_by_its_collation() {
    let mut db = Db::new();
    db.table("p", &["id int4", "k varchar20 null"], &[ID, "k unique (k)"]);
    db.table("c", &["id int4", "k varchar5 null", "b text2 null"], &[ID, "k (k desc)"]);
    db.table("d", &["id int4", "k char8 null"], &[ID, "k (k)"]);
    db.key("f: c (k) -> p (k) update cascade delete cascade");
    db.key("g: d (k) -> p (k) update cascade");
    run(
        &db,
        "insert p 1 abc
         insert p 2 xyz
         insert c 1 ABC_ long
         insert c 2 xyz NULL
         insert d 1 ABC
         insert c 3 abd NULL -> no parent f
         update p 1 aBC
         show c -> 1 aBC long, 2 xyz NULL
         show d -> 1 aBC
         update p 1 longer -> referenced f
         update p 1 new
         show c -> 1 new long, 2 xyz NULL
         show d -> 1 new
         update c 1 NEW_ other
         delete p 2
         show c -> 1 NEW_ other
         commit",
    );
}

/// A parent and two children, with columns of these types, whose changes cascade.
fn parent_of_two(p: &str, c: &str, d: &str) -> Db {
    let mut db = Db::new();
    db.table("p", &["id int4", &format!("k {p} null")], &[ID, "k unique (k)"]);
    for (key, child, kind) in [("f", "c", c), ("g", "d", d)] {
        db.table(child, &["id int4", &format!("k {kind} null")], &[ID, "k (k)"]);
        db.key(&format!("{key}: {child} (k) -> p (k) update cascade"));
    }
    db
}

/// A column has room for so many characters, not bytes.
#[test]
fn a_cascaded_text_has_to_fit() {
    let db = parent_of_two("widevarchar20", "widevarchar3", "widechar4");
    run(
        &db,
        "insert p 1 a
         insert p 2 B
         insert c 1 A
         insert d 2 b
         update p 1 abcd -> referenced f
         update p 1 éé€
         update p 2 abcde -> referenced g
         update p 2 €€€€
         show c -> 1 éé€
         show d -> 2 €€€€
         insert d 3 éé€__
         commit",
    );
}

#[test]
fn bytes_are_compared_as_they_are() {
    let db = parent_of_two("binary3", "varbinary5", "binary5");
    run(
        &db,
        "insert p 1 a
         insert p 2 abc
         insert c 1 a -> no parent f
         insert c 1 a\0\0
         insert c 2 abc
         insert d 1 abc -> no parent g
         update p 2 xy
         show c -> 1 a\0\0, 2 xy\0
         commit",
    );
}

#[test]
fn a_cascade_that_makes_two_rows_alike_fails() {
    let mut db = Db::new();
    db.table("p", &["id int4"], &[ID]);
    db.table("c", &["id int4", "x int4", "y int4"], &[ID, "xy unique (x, y)"]);
    db.key("f: c (x) -> p (id) update cascade");
    let mut conn = db.conn();
    conn.script("insert p 1\n insert p 2\n insert c 1 1 0\n insert c 2 2 5\n commit");
    conn.session.set_foreign_key_checks(false);
    conn.script("move p 2 4\n commit");
    conn.session.set_foreign_key_checks(true);
    conn.script("insert c 3 1 5\n commit\n move p 1 2 -> duplicate ./db/c xy\n show c -> 1 1 0, 2 2 5, 3 1 5");
    conn.script("show p -> 1, 4\n commit");
    let table = db.store.open_table(&path("c"), db.defs["c"].clone()).unwrap();
    assert!(table.check(&conn.session, false, None, &mut |line| panic!("{line}")).unwrap());
}

#[test]
fn a_column_that_cannot_be_null_keeps_the_parent() {
    let mut db = Db::new();
    db.table("p", &["id int4", "k int4 null"], &[ID, "k unique (k)"]);
    db.table("c", &["id int4", "k int4"], &[ID, "k (k)"]);
    db.key("f: c (k) -> p (k) update cascade");
    run(
        &db,
        "insert p 1 7
         insert c 1 7
         update p 1 NULL -> referenced f
         update p 1 8
         show c -> 1 8
         commit",
    );
}

/// Child rows with long values, which lie apart from them.
#[test]
fn long_values_of_child_rows_stay() {
    let mut db = Db::new();
    db.table("p", &["id int4"], &[ID]);
    db.table("c", &["id int4", "p int4 null", "b text4 null"], &[ID, "p (p)", "b (b)"]);
    db.key("f: c (p) -> p (id) update cascade delete null");
    let mut conn = db.conn();
    let long = ["x".repeat(100), "y".repeat(200_000), "z".repeat(5 << 20)];
    conn.script("insert p 1");
    for (id, text) in long.iter().enumerate() {
        conn.script(&format!("insert c {id} 1 {text}"));
    }
    conn.script("commit\n move p 1 2\n commit");
    let expected = |p: &str| {
        let row = |(id, text): (usize, &String)| format!("{id} {p} {text}");
        long.iter().enumerate().map(row).collect::<Vec<_>>().join(", ")
    };
    assert!(conn.run("show c") == expected("2"));
    conn.script("delete p 2\n commit");
    assert!(conn.run("show c") == expected("NULL"));
    db.check();
}

/// A statement that fails half way leaves nothing of its cascades; neither does a savepoint that is gone back to.
#[test]
fn what_fails_leaves_nothing() {
    let mut db = Db::new();
    db.table("p", &["id int4"], &[ID]);
    db.table("c", &["id int4", "p int4 null"], &[ID, "p (p)"]);
    db.table("d", &["id int4", "p int4 null"], &[ID, "p (p)"]);
    db.key("f: c (p) -> p (id) delete cascade");
    db.key("g: d (p) -> p (id)");
    let mut conn = db.conn();
    conn.script("insert p 1\n insert p 2\n insert c 1 1\n insert c 2 2\n insert d 1 2\n commit");
    assert_eq!(outcome(&conn.each("p", |_| Fate::Goes)), "referenced g");
    conn.script("show c -> 1 1, 2 2\n show p -> 1, 2");
    let mark = conn.session.savepoint();
    conn.script("delete p 1\n show c -> 2 2");
    conn.session.rollback_to(mark);
    conn.script("show c -> 1 1, 2 2\n commit");
    db.check();
}

/// Rows are looked for in the newest state, whatever the snapshot shows.
#[test]
fn snapshots_do_not_count() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let db = pair("delete cascade");
        let (mut old, mut other) = (db.conn(), db.conn());
        old.isolation = isolation;
        other.script("insert p 1 7\n insert p 3 9\n insert c 9 9\n commit");
        old.script("show p -> 1 7, 3 9\n show c -> 9 9");
        if isolation == Isolation::Serializable {
            old.script("commit");
        }
        other.script("insert p 2 8\n insert c 1 7\n delete p 3\n commit");
        old.script("insert c 2 8\n insert c 3 9 -> no parent f\n delete p 1\n commit\n show c -> 2 8\n commit");
        db.check();
    }
}

/// A child row locks its parent, shared; and nothing around it.
#[test]
fn what_a_child_locks() {
    for (index, table_key) in [("k unique (k)", "k"), ("k (k)", "k"), ("k (k, id)", "k")] {
        let mut db = Db::new();
        db.table("p", &["id int4", "k int4 null"], &[ID, index]);
        db.table("c", &["id int4", "k int4 null"], &[ID, "k (k)"]);
        db.key(&format!("f: c (k) -> p ({table_key})"));
        let mut setup = db.conn();
        setup.script("insert p 1 5\n insert p 2 8\n commit");
        let (mut one, mut other) = (db.conn(), db.conn());
        other.timeout = std::time::Duration::ZERO;
        one.script("insert c 1 5");
        other.script(
            "insert p 3 4
             insert p 4 6
             insert c 2 5
             insert c 3 8
             delete p 1 -> lock wait timeout
             update p 1 7 -> lock wait timeout
             commit",
        );
        one.script("insert c 4 3 -> no parent f");
        other.script("insert p 5 3\n commit\n delete p 2 -> referenced f\n commit");
        one.script("commit");
        db.check();
    }
}

/// Virtual columns in indexes of a child are computed by the server.
#[test]
fn virtual_columns_of_children() {
    struct Doubles(Arc<Table>);
    impl Computing for Doubles {
        fn table(&self, name: &str) -> strata_row::Result<Arc<Table>> {
            assert_eq!(name, "./db/c");
            Ok(self.0.clone())
        }
        fn time(&self) -> strata_row::Result<Vec<u8>> {
            unreachable!("no table with system versions")
        }
        fn compute(&self, _: &str, record: &mut [u8], _: bool) -> strata_row::Result<()> {
            let columns = &self.0.def.columns;
            let (k, v) = (&columns[1], &columns[2]);
            let is_null = record[k.null_offset as usize] & k.null_mask != 0;
            let twice = match is_null {
                true => 0,
                false => 2 * i32::from_le_bytes(record[k.offset as usize..][..4].try_into().unwrap()),
            };
            record[v.offset as usize..][..4].copy_from_slice(&twice.to_le_bytes());
            Ok(())
        }
    }
    let mut def = table(&["id int4", "k int4 null", "v int4"], &[ID, "k (k)", "v (v)"]);
    def.columns[2].is_virtual = true;
    let mut db = Db::new();
    db.table("p", &["id int4"], &[ID]);
    db.define("c", def.clone());
    db.key("f: c (k) -> p (id) update cascade delete null");
    let mut conn = db.conn();
    conn.script("insert p 1\n insert p 2\n insert c 1 1 2\n insert c 2 1 2\n insert c 3 2 4\n commit");
    let unable = conn.run("move p 1 5");
    assert!(unable.contains("virtual columns"), "{unable}");
    let table = db.store.open_table(&path("c"), def).unwrap();
    conn.session.set_computing(Some(Box::new(Doubles(table.clone()))));
    conn.script("move p 1 5\n delete p 2\n commit");
    let doubles = Doubles(table.clone());
    let mut compute = |record: &mut [u8]| doubles.compute("", record, false).is_ok();
    let mut lines = Vec::new();
    table.check(&conn.session, false, Some(&mut compute), &mut |line| lines.push(line.to_owned())).unwrap();
    assert!(lines.is_empty(), "{lines:?}");
}

/// A row that a cascade has changed is not written over as if it were the one that was read.
#[test]
fn a_row_read_before_a_cascade_is_not_written() {
    let db = pair("delete null");
    let mut conn = db.conn();
    conn.script("insert p 1 7\n insert p 2 8\n insert c 1 7\n commit");
    conn.script("delete p 1");
    let stale = row_of(&db.defs["c"], "1 7");
    let new = row_of(&db.defs["c"], "1 8");
    assert_eq!(outcome(&conn.write_over("c", &stale, Some(&new))), "record changed since the snapshot");
    assert_eq!(outcome(&conn.write_over("c", &stale, None)), "record changed since the snapshot");
    conn.script("show c -> 1 NULL\n commit");
    db.check();
}

/// ROW END of a present row.
const NOW_AND_EVER: i64 = 0xffff_ffff_ffff;

/// The server, of which the time of the statement is asked.
struct Clock(i64);

impl Computing for Clock {
    fn time(&self) -> strata_row::Result<Vec<u8>> {
        Ok(self.0.to_be_bytes()[2..].to_vec())
    }
    fn table(&self, _: &str) -> strata_row::Result<Arc<Table>> {
        unreachable!("no virtual columns")
    }
    fn compute(&self, _: &str, _: &mut [u8], _: bool) -> strata_row::Result<()> {
        unreachable!("no virtual columns")
    }
}

/// Tables with versions: a parent `p (id, s, e)` and a child `c (n, k, s, e)` of the indexes given.
fn versioned(parent: &[&str], child: &[&str], actions: &str) -> Db {
    let mut db = Db::new();
    let with_versions = |mut def: strata_row::def::TableDef, start| {
        let greatest = NOW_AND_EVER.to_be_bytes()[2..].to_vec();
        def.versions = Some(SystemVersions { start, end: start + 1, greatest, without: Vec::new() });
        def
    };
    db.define("p", with_versions(table(&["id int4", "s bytes6", "e bytes6"], parent), 1));
    db.define("c", with_versions(table(&["n int4", "k int4 null", "s bytes6", "e bytes6"], child), 2));
    db.key(&format!("f: c (k) -> p (id) {actions}"));
    db
}

/// Indexes of parent and child: with ROW END in them, as the server makes unique keys, and without.
const SHAPES: [[&[&str]; 2]; 3] = [
    [&["PRIMARY (id, e)"], &["PRIMARY (n, e)", "k (k)"]],
    [&["id unique (id, e)"], &["k (k)"]],
    [&["id (id)"], &["k (k)"]],
];

/// A row of a parent or child that is a present one since `start`.
fn present(db: &Db, table: &str, words: &str, start: i64) -> crate::common::values::Values {
    row_of(&db.defs[table], &format!("{words} {start} {NOW_AND_EVER}"))
}

/// The present row whose first column is `id` goes at a time, as the server has it go.
fn ends(conn: &mut Conn, table: &str, id: i64, time: i64) -> String {
    conn.session.set_computing(Some(Box::new(Clock(time))));
    let first = ["id", "n"][usize::from(table == "c")];
    outcome(&conn.each(table, |row| match row[first] == V::Int(id) && row["e"] == V::Int(NOW_AND_EVER) {
        true => {
            let mut past = row.clone();
            past.insert("e".into(), V::Int(time));
            Fate::Becomes(past)
        }
        false => Fate::Stays,
    }))
}

/// All rows of a table, the present ones with `-` for ROW END, in order.
fn history(conn: &mut Conn, db: &Db, table: &str) -> String {
    let words = words_of(&db.defs[table], &conn.rows(table)).replace(&NOW_AND_EVER.to_string(), "-");
    let mut rows: Vec<&str> = words.split(", ").collect();
    rows.sort_unstable();
    rows.join(", ")
}

/// Guards that a row of the past is no parent, in whichever index it is looked for: a child would outlive its parent.
#[test]
fn a_row_of_the_past_is_no_parent_and_no_child() {
    for [parent, child] in SHAPES {
        let db = versioned(parent, child, "");
        let mut conn = db.conn();
        conn.insert("p", &present(&db, "p", "1", 100)).unwrap();
        conn.insert("c", &present(&db, "c", "10 1", 100)).unwrap();
        assert_eq!(ends(&mut conn, "p", 1, 200), "referenced f");
        assert_eq!(ends(&mut conn, "c", 10, 200), "ok");
        assert_eq!(ends(&mut conn, "p", 1, 300), "ok");
        let orphan = present(&db, "c", "11 1", 300);
        assert_eq!(outcome(&conn.insert("c", &orphan)), "no parent f");
        conn.commit();
        db.check();
        assert_eq!(outcome(&conn.insert("c", &orphan)), "no parent f");
        // A row of the past comes, as INSERT does it with system_versioning_insert_history.
        conn.insert("c", &row_of(&db.defs["c"], "12 7 100 200")).unwrap();
        conn.insert("p", &present(&db, "p", "1", 400)).unwrap();
        conn.insert("c", &present(&db, "c", "11 1", 400)).unwrap();
        assert_eq!(ends(&mut conn, "p", 1, 500), "referenced f");
        // Whoever has the past deleted takes no parent away.
        conn.each("p", |row| if row["e"] == V::Int(300) { Fate::Goes } else { Fate::Stays }).unwrap();
        conn.commit();
        db.check();
    }
}

/// Guards that a cascade leaves in the past what a statement of the server would.
#[test]
fn what_a_cascade_changes_the_past_keeps() {
    for [parent, child] in SHAPES {
        let db = versioned(parent, child, "delete cascade update cascade");
        let mut conn = db.conn();
        conn.insert("p", &present(&db, "p", "1", 100)).unwrap();
        conn.insert("c", &present(&db, "c", "10 1", 100)).unwrap();
        conn.insert("c", &present(&db, "c", "11 1", 200)).unwrap();
        conn.session.set_computing(Some(Box::new(Clock(200))));
        let moved = |row: &crate::common::values::Values| {
            let mut new = row.clone();
            new.insert("id".into(), V::Int(2));
            new.insert("s".into(), V::Int(200));
            let mut past = row.clone();
            past.insert("e".into(), V::Int(200));
            (Fate::Becomes(new), Some(past))
        };
        conn.each_with("p", moved).unwrap();
        // Nothing is kept of the row that has been there for no time.
        assert_eq!(history(&mut conn, &db, "c"), "10 1 100 200, 10 2 200 -, 11 2 200 -");
        assert_eq!(history(&mut conn, &db, "p"), "1 100 200, 2 200 -");
        assert_eq!(ends(&mut conn, "p", 2, 300), "ok");
        assert_eq!(history(&mut conn, &db, "c"), "10 1 100 200, 10 2 200 300, 11 2 200 300");
        conn.commit();
        db.check();
    }
}

/// Two rows of one key that end at one time: of the second the server is told so, and deletes it.
#[test]
fn a_row_that_has_ended_already_is_told_apart_from_a_duplicate() {
    let db = versioned(SHAPES[0][0], SHAPES[0][1], "");
    let mut conn = db.conn();
    conn.insert("p", &present(&db, "p", "1", 100)).unwrap();
    assert_eq!(ends(&mut conn, "p", 1, 200), "ok");
    conn.insert("p", &present(&db, "p", "1", 200)).unwrap();
    assert_eq!(ends(&mut conn, "p", 1, 200), "duplicate ./db/p PRIMARY");
    conn.commit();
    db.check();
}

/// Guards that a former row that the past has already, as after a clock that was set back, is told as the child's duplicate and not as
/// one of the statement's own row.
#[test]
fn a_former_row_that_is_in_the_past_already_is_a_duplicate_of_the_child() {
    let db = versioned(SHAPES[0][0], SHAPES[0][1], "update cascade");
    let mut conn = db.conn();
    conn.insert("p", &present(&db, "p", "1", 100)).unwrap();
    conn.insert("c", &row_of(&db.defs["c"], "10 1 50 200")).unwrap();
    conn.insert("c", &present(&db, "c", "10 1", 100)).unwrap();
    conn.session.set_computing(Some(Box::new(Clock(200))));
    let moved = conn.each("p", |row| {
        let mut new = row.clone();
        new.insert("id".into(), V::Int(2));
        Fate::Becomes(new)
    });
    assert_eq!(outcome(&moved), "duplicate ./db/c PRIMARY");
    assert_eq!(history(&mut conn, &db, "c"), "10 1 100 -, 10 1 50 200");
    conn.commit();
    db.check();
}
