//! Programs about foreign keys: a family of small tables that refer to each other, and to themselves.
//!
//! Two sessions write, with and without `foreign_key_checks`; others read. The tables have the same columns, so that any may be
//! parent or child of any other. Many definitions are wrong, and must be refused alike. Whatever names a row finds it by `id`.
//!
//! The writers take turns: one begins when the other has no transaction. Where both want the same rows (`family_clash`) the tables are
//! made for it, and no row is found that a key refuses: InnoDB locks entries of the child's index then, Strata its rows.
//!
//! Rejected: foreign keys between the tables of all types. Hardly a row would find its parent.

use super::statement::Author;
use super::{READERS, SECOND};
use rand::RngExt;
use rand::seq::IndexedRandom;

/// Least number that is no `id`.
const END: u32 = 9;
const ACTIONS: &[&str] = &["RESTRICT", "NO ACTION", "CASCADE", "CASCADE", "SET NULL", "SET NULL", "SET DEFAULT"];
/// As many of [`REFERENCES`] come first that lead from another column to `id`.
const TO_ID: usize = 3;
/// Columns of the child and of the parent.
const REFERENCES: &[(&str, &str)] = &[
    ("a", "id"),
    ("a", "id"),
    ("d", "id"),
    ("id", "id"),
    ("a", "a"),
    ("d", "a"),
    ("b", "b"),
    ("a, b", "a, b"),
    ("a, b", "a, b"),
    ("b, a", "b, a"),
    ("d, b", "a, b"),
    ("a, d", "id, a"),
];
const LEVELS: &[&str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// The names of the tables, and what is known of them.
#[derive(Default)]
pub(super) struct Family {
    tables: Vec<String>,
    /// Foreign keys that were made: of which table, and their names.
    keys: Vec<(String, String)>,
    /// Columns that were added: of which table, and their names.
    columns: Vec<(String, String)>,
}

impl Author<'_> {
    /// Makes the tables.
    pub(super) fn begin_family(&mut self) {
        for writer in [SECOND, 0] {
            self.me = writer;
            if self.chance(3) {
                self.write("SET sql_mode = ''");
            }
            let level = *LEVELS.choose(self.rng).expect("there are levels");
            self.write(format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
        }
        for session in READERS {
            let level = LEVELS[self.rng.random_range(0..2)];
            self.say(session, format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
        }
        for _ in 0..self.rng.random_range(2..5) {
            let name = self.name("f");
            self.family.tables.push(name.clone());
            self.create_relative(&name);
            self.insert_relative(&name);
        }
        for _ in 0..self.rng.random_range(1..4) {
            self.add_foreign();
        }
    }

    /// One statement, or a few that belong together.
    pub(super) fn family_statement(&mut self) {
        if self.open[self.me].is_none() {
            self.me = if self.chance(3) { SECOND } else { 0 };
        }
        let name = self.relative();
        match self.rng.random_range(0..100) {
            0..=24 => self.insert_relative(&name),
            25..=39 => self.update_relative(&name),
            40..=49 => self.delete_relative(&name),
            50..=57 => self.transaction(),
            58..=69 => self.reads(Self::read_family),
            70..=73 => {
                let on = self.rng.random_range(0..3).min(1);
                self.write(format!("SET foreign_key_checks = {on}"));
            }
            74..=77 => self.read_family(self.me),
            78..=79 => self.family_clash(),
            80..=84 => self.family_ddl(&Self::describe),
            85..=89 => self.family_ddl(&Self::add_foreign),
            90..=91 => self.family_ddl(&Self::drop_foreign),
            92..=95 => self.family_ddl(&Self::alter_relative),
            _ => self.family_ddl(&Self::replace_relative),
        }
    }

    /// Everything that is left.
    pub(super) fn finish_family(&mut self) {
        READERS.for_each(|session| self.end_snapshot(session));
        for writer in [SECOND, 0] {
            self.end(writer, "COMMIT");
            self.me = writer;
        }
        for name in self.family.tables.clone() {
            self.write(format!("SELECT * FROM {name} IGNORE INDEX (ka, kb, kab, kba)"));
            for (key, columns) in [("ka", "a"), ("kb", "b"), ("kab", "a, b"), ("kba", "b, a")] {
                self.write(format!("SELECT id, {columns} FROM {name} FORCE INDEX ({key})"));
            }
            self.write(format!("CHECK TABLE {name} EXTENDED"));
        }
        self.describe();
    }

    fn relative(&mut self) -> String {
        self.family.tables.choose(self.rng).expect("a family has tables").clone()
    }

    fn small(&mut self) -> String {
        if self.chance(7) { "NULL".into() } else { self.rng.random_range(1..END).to_string() }
    }

    fn word(&mut self) -> String {
        (*["'x'", "'X'", "'y'", "'z'", "''", "NULL"].choose(self.rng).expect("there are words")).to_owned()
    }

    /// A table, with foreign keys or, should they be wrong, without.
    fn create_relative(&mut self, name: &str) {
        let a = if self.chance(5) { "INT NOT NULL" } else { "INT" };
        let d = if self.chance(8) { "BIGINT" } else { "INT DEFAULT 1" };
        let b = match self.rng.random_range(0..8) {
            0 => "VARCHAR(10) CHARACTER SET latin1",
            1 => "VARCHAR(20) COLLATE utf8mb4_bin",
            2 => "CHAR(5) NOT NULL DEFAULT 'x'",
            _ => "VARCHAR(10)",
        };
        let primary = if self.chance(4) { "UNIQUE KEY uid (id)" } else { "PRIMARY KEY (id)" };
        let mut parts = format!("id INT NOT NULL, a {a}, b {b}, d {d}, {primary}");
        for (key, columns) in [("ka", "a"), ("kb", "b"), ("kab", "a, b"), ("kba", "b, a")] {
            if self.chance(2) {
                let unique = if self.chance(4) { "UNIQUE " } else { "" };
                parts += &format!(", {unique}KEY {key} ({columns})");
            }
        }
        if self.chance(2) {
            let foreign = self.foreign_key(name);
            self.write(format!("CREATE TABLE {name} ({parts}, {foreign})"));
        }
        // A note says so where it is there.
        self.write(format!("CREATE TABLE IF NOT EXISTS {name} ({parts})"));
    }

    fn foreign_key(&mut self, child: &str) -> String {
        let parent = if self.chance(5) { child.to_owned() } else { self.relative() };
        // A row that refers to itself InnoDB finds only by the index that it enters first, that of `id`.
        let own = parent == child;
        let references = if own { &REFERENCES[..TO_ID] } else { REFERENCES };
        let (from, to) = *references.choose(self.rng).expect("there are references");
        let named = if self.chance(3) {
            let number = self.family.keys.iter().filter(|key| key.0 == child).count() + 1;
            self.family.keys.push((child.to_owned(), format!("{child}_ibfk_{number}")));
            String::new()
        } else {
            let key = self.name("fk");
            self.family.keys.push((child.to_owned(), key.clone()));
            format!("CONSTRAINT {key} ")
        };
        let mut text = format!("{named}FOREIGN KEY ({from}) REFERENCES {parent} ({to})");
        for event in ["DELETE", "UPDATE"] {
            if !self.chance(4) {
                text += &format!(" ON {event} {}", ACTIONS.choose(self.rng).expect("there are actions"));
            }
        }
        text
    }

    fn insert_relative(&mut self, name: &str) {
        let rows: Vec<String> = (0..self.rng.random_range(1..5))
            .map(|_| {
                let (id, a, b, d) = (self.rng.random_range(1..END), self.small(), self.word(), self.small());
                format!("({id}, {a}, {b}, {d})")
            })
            .collect();
        let body = format!("INTO {name} (id, a, b, d) VALUES {}", rows.join(", "));
        match self.rng.random_range(0..7) {
            0 => self.write(format!("REPLACE {body}")),
            1 | 2 => self.write(format!("INSERT IGNORE {body}")),
            3 => {
                let set = self.settings();
                self.uncounted(format!("INSERT {body} ON DUPLICATE KEY UPDATE {set}"));
            }
            4 => {
                let other = self.relative();
                self.write(format!(
                    "INSERT IGNORE INTO {name} (id, a, b, d) SELECT id, a, b, d FROM {other} ORDER BY id"
                ));
            }
            _ => self.write(format!("INSERT {body}")),
        }
        if self.chance(4) {
            self.write("SHOW WARNINGS");
        }
    }

    fn settings(&mut self) -> String {
        match self.rng.random_range(0..7) {
            0 => format!("a = {}", self.small()),
            1 => format!("b = {}", self.word()),
            2 => format!("a = {}, b = {}", self.small(), self.word()),
            3 => format!("d = {}", self.small()),
            4 => "a = id".into(),
            5 => format!("id = {}", self.rng.random_range(1..END)),
            _ => "id = id + 1".into(),
        }
    }

    fn some_relatives(&mut self) -> String {
        match self.rng.random_range(0..4) {
            0 => format!("a = {}", self.small()),
            1 => format!("id > {}", self.rng.random_range(1..END)),
            _ => format!("id = {}", self.rng.random_range(1..END)),
        }
    }

    fn update_relative(&mut self, name: &str) {
        let (set, condition) = (self.settings(), self.some_relatives());
        let ignore = if self.chance(5) { "IGNORE " } else { "" };
        let order = if self.chance(2) { " DESC" } else { "" };
        self.write(format!("UPDATE {ignore}{name} SET {set} WHERE {condition} ORDER BY id{order}"));
    }

    fn delete_relative(&mut self, name: &str) {
        let condition = self.some_relatives();
        match self.rng.random_range(0..6) {
            0 => self.write(format!("DELETE IGNORE FROM {name} WHERE {condition} ORDER BY id")),
            1 => {
                let other = self.relative();
                self.write(format!("DELETE FROM {name} WHERE id IN (SELECT a FROM {other} WHERE {condition})"));
            }
            _ => self.write(format!("DELETE FROM {name} WHERE {condition} ORDER BY id")),
        }
    }

    fn read_family(&mut self, session: usize) {
        let name = self.relative();
        if let Some(touched) = &mut self.snapshots[session] {
            touched.push(name.clone());
        }
        let condition = self.some_relatives();
        match self.rng.random_range(0..3) {
            0 => self.say(session, format!("SELECT * FROM {name} WHERE {condition}")),
            1 => self.say(session, format!("SELECT COUNT(*), COUNT(a), COUNT(b) FROM {name}")),
            _ => self.say(session, format!("SELECT * FROM {name}")),
        }
    }

    /// DDL of a table locks its parents and children, too: nobody has touched any.
    fn family_ddl(&mut self, change: &dyn Fn(&mut Self)) {
        for name in self.family.tables.clone() {
            self.free(&name);
        }
        change(self);
    }

    /// What the dictionary tells of foreign keys.
    fn describe(&mut self) {
        self.write(
            "SELECT CONSTRAINT_NAME, TABLE_NAME, REFERENCED_TABLE_NAME, REPLACE(DELETE_RULE, 'NO ACTION', 'RESTRICT'), \
             REPLACE(UPDATE_RULE, 'NO ACTION', 'RESTRICT') \
             FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE()",
        );
        let name = self.relative();
        self.write(format!("SHOW CREATE TABLE {name}"));
    }

    fn add_foreign(&mut self) {
        let child = self.relative();
        let foreign = self.foreign_key(&child);
        let how = ["", ", ALGORITHM=COPY"][self.rng.random_range(0..2)];
        self.write(format!("ALTER TABLE {child} ADD {foreign}{how}"));
    }

    fn drop_foreign(&mut self) {
        if let Some((child, key)) = self.family.keys.choose(self.rng).cloned() {
            let exists = if self.chance(4) { "IF EXISTS " } else { "" };
            self.write(format!("ALTER TABLE {child} DROP FOREIGN KEY {exists}{key}"));
        }
    }

    /// Keys that foreign keys may need go, and columns come and go.
    fn alter_relative(&mut self) {
        let name = self.relative();
        let (key, columns) = [("ka", "a"), ("kb", "b"), ("kab", "a, b"), ("kba", "b, a")][self.rng.random_range(0..4)];
        match self.rng.random_range(0..9) {
            0 => self.write(format!("ALTER TABLE {name} DROP KEY {key}")),
            1 => self.write(format!("ALTER TABLE {name} ADD KEY {key} ({columns})")),
            2 => self.write(format!("ALTER TABLE {name} MODIFY a INT NOT NULL")),
            3 => {
                let length = self.rng.random_range(4..40);
                self.write(format!("ALTER TABLE {name} MODIFY b VARCHAR({length})"));
            }
            4 => {
                let column = ["a", "b", "d"][self.rng.random_range(0..3)];
                self.write(format!("ALTER TABLE {name} DROP COLUMN {column}"));
            }
            5 => {
                let column = ["a", "b", "d"][self.rng.random_range(0..3)];
                self.write(format!("ALTER TABLE {name} RENAME COLUMN {column} TO other"));
                self.describe();
                self.write(format!("ALTER TABLE {name} RENAME COLUMN other TO {column}"));
            }
            6 => {
                if let Some((name, column)) = self.family.columns.choose(self.rng).cloned() {
                    self.write(format!("ALTER TABLE {name} DROP COLUMN {column}"));
                }
            }
            7 => self.write(format!("ALTER TABLE {name} FORCE, ALGORITHM=COPY")),
            _ => {
                let column = self.name("n");
                let place = ["", " FIRST", " AFTER a"][self.rng.random_range(0..3)];
                let how = ["", ", ALGORITHM=INSTANT"][self.rng.random_range(0..2)];
                self.write(format!("ALTER TABLE {name} ADD COLUMN {column} INT DEFAULT 7{place}{how}"));
                self.family.columns.push((name, column));
            }
        }
    }

    /// A table is emptied, gets another name, or goes and is made anew.
    fn replace_relative(&mut self) {
        let name = self.relative();
        match self.rng.random_range(0..5) {
            0 => self.write(format!("TRUNCATE TABLE {name}")),
            1 | 2 => {
                let new = self.name("f");
                self.write(format!("RENAME TABLE {name} TO {new}"));
                self.describe();
                if self.chance(2) {
                    self.write(format!("RENAME TABLE {new} TO {name}"));
                } else {
                    self.family.tables.retain(|table| *table != name);
                    self.family.tables.push(new.clone());
                    self.family.keys.iter_mut().filter(|key| key.0 == name).for_each(|key| key.0.clone_from(&new));
                    self.family.columns.iter_mut().filter(|c| c.0 == name).for_each(|c| c.0.clone_from(&new));
                }
            }
            _ => {
                // Snapshots know a table by its name.
                READERS.for_each(|session| self.end_snapshot(session));
                self.write(format!("DROP TABLE {name}"));
                self.create_relative(&name);
                self.insert_relative(&name);
            }
        }
    }

    /// Two sessions want rows of a parent and its child; nobody waits. All rows that are named are there, and every change of a parent
    /// is followed.
    fn family_clash(&mut self) {
        for writer in [0, SECOND] {
            if self.open[writer].is_some() {
                self.end(writer, "COMMIT");
            }
        }
        let (parent, child) = (self.name("p"), self.name("c"));
        let mut follow = |event: &str| {
            let action = ["CASCADE", "SET NULL"][self.rng.random_range(0..2)];
            format!(" ON {event} {action}")
        };
        let actions = follow("DELETE") + &follow("UPDATE");
        let to = ["id", "u"][self.rng.random_range(0..2)];
        for sql in [
            format!("CREATE TABLE {parent} (id INT PRIMARY KEY, u INT UNIQUE, v INT)"),
            format!(
                "CREATE TABLE {child} (id INT PRIMARY KEY, a INT, v INT, KEY (a), \
                 FOREIGN KEY (a) REFERENCES {parent} ({to}){actions})"
            ),
            format!("INSERT INTO {parent} VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0)"),
            format!("INSERT INTO {child} VALUES (1, 1, 0), (2, 2, 0), (3, 2, 0), (4, NULL, 0)"),
        ] {
            self.say(0, sql);
        }
        for writer in [0, SECOND] {
            self.say(writer, "SET foreign_key_checks = 1");
            self.say(writer, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
        }
        self.say(0, "START TRANSACTION");
        // Rows that are there for both sessions, as far as the second one can tell.
        let mut there = [vec![1, 2, 3, 4], vec![1, 2, 3, 4]];
        let hold = self.relative_change(&parent, &child, to, &mut there, 0);
        self.say(0, hold);
        let mut there = [vec![1, 2, 3, 4], vec![1, 2, 3, 4]];
        for number in 1..self.rng.random_range(3..7) {
            let sql = self.relative_change(&parent, &child, to, &mut there, number);
            self.say(SECOND, sql);
        }
        let how = ["COMMIT", "ROLLBACK"][self.rng.random_range(0..2)];
        self.say(0, how);
        for table in [&child, &parent] {
            self.say(SECOND, format!("SELECT * FROM {table}"));
            self.say(SECOND, format!("CHECK TABLE {table} EXTENDED"));
        }
        self.say(0, format!("DROP TABLE {child}, {parent}"));
    }

    /// A change of one of two tables, or a locking read; of rows that are `there`, in the parent and in the child. A row that may have
    /// gone is named no more.
    fn relative_change(
        &mut self,
        parent: &str,
        child: &str,
        to: &str,
        there: &mut [Vec<u32>; 2],
        number: u32,
    ) -> String {
        let any = |author: &mut Self, ids: &[u32]| ids.choose(author.rng).copied();
        let (Some(p), Some(c)) = (any(self, &there[0]), any(self, &there[1])) else {
            return format!("SELECT * FROM {parent} WHERE id > 0");
        };
        let leaves = |ids: &mut Vec<u32>, id: u32| ids.retain(|other| *other != id);
        match self.rng.random_range(0..9) {
            0 | 1 => format!("INSERT INTO {child} VALUES ({}, {p}, {number})", 10 + number),
            2 => format!("UPDATE {child} SET a = {p} WHERE id = {c}"),
            3 => {
                leaves(&mut there[1], c);
                format!("DELETE FROM {child} WHERE id = {c}")
            }
            4 => {
                leaves(&mut there[0], p);
                there[1].clear();
                format!("DELETE FROM {parent} WHERE id = {p}")
            }
            5 => {
                leaves(&mut there[0], p);
                format!("UPDATE {parent} SET {to} = {to} + 20 WHERE id = {p}")
            }
            6 => format!("UPDATE {parent} SET v = v + 1 WHERE id = {p}"),
            7 => format!("UPDATE {child} SET v = v + 1 WHERE id = {c}"),
            _ => {
                let how = ["FOR UPDATE", "LOCK IN SHARE MODE"][self.rng.random_range(0..2)];
                format!("SELECT * FROM {parent} WHERE id = {p} {how}")
            }
        }
    }
}
