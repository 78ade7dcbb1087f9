//! Random statements on random tables: a program.

use super::schema::{Column, Domain, IDS, Table};
use super::{SESSIONS, Step};
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

/// Makes a program: tables, about `statements` statements, and the comparison of what is left.
pub fn program(rng: &mut SmallRng, statements: usize) -> Vec<Step> {
    let mut writer = Author::new(rng);
    writer.begin();
    for _ in 0..statements {
        writer.statement();
    }
    writer.finish();
    writer.steps
}

/// What the writing of a program keeps in mind. It supposes that each statement succeeds; where one fails it does so on both
/// engines, and so do those that build on it.
struct Author<'a> {
    rng: &'a mut SmallRng,
    tables: Vec<Table>,
    steps: Vec<Step>,
    /// The writing session is in a transaction.
    writing: bool,
    savepoints: u32,
    /// Reading sessions with a snapshot, and the tables each has touched: these cannot be altered meanwhile.
    snapshots: [Option<Vec<String>>; SESSIONS],
    renamed: u32,
}

impl Author<'_> {
    fn new(rng: &mut SmallRng) -> Author<'_> {
        Author {
            rng,
            tables: Vec::new(),
            steps: Vec::new(),
            writing: false,
            savepoints: 0,
            snapshots: Default::default(),
            renamed: 0,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn say(&mut self, session: usize, sql: impl Into<String>) {
        self.steps.push(Step::new(session, sql));
    }

    fn begin(&mut self) {
        if self.chance(4) {
            self.say(0, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
        }
        if self.chance(4) {
            self.say(0, "SET sql_mode = ''");
        }
        for name in ["t1", "t2"] {
            let table = Table::random(self.rng, name);
            self.say(0, table.create());
            self.tables.push(table);
            for _ in 0..6 {
                self.insert(self.tables.len() - 1);
            }
        }
    }

    fn statement(&mut self) {
        let t = self.rng.random_range(0..self.tables.len());
        match self.rng.random_range(0..100) {
            0..=24 => self.insert(t),
            25..=39 => self.update(t),
            40..=47 => self.delete(t),
            48..=51 => self.several_tables(),
            52..=73 => self.select(0, t),
            74..=79 => self.transaction(),
            80..=93 => self.reader(),
            _ => self.ddl(t),
        }
    }

    fn table(&self, t: usize) -> &Table {
        &self.tables[t]
    }

    fn literal_or_null(&mut self, column: &Column) -> String {
        if self.chance(8) { "NULL".into() } else { column.domain.literal(self.rng) }
    }

    fn insert(&mut self, t: usize) {
        let columns: Vec<Column> = self.table(t).columns.iter().filter(|c| !c.generated).cloned().collect();
        let chosen: Vec<Column> = {
            let all = !self.chance(4);
            columns
                .iter()
                .enumerate()
                .filter(|(n, _)| *n == 0 || all || self.rng.random_range(0..2) == 0)
                .map(|c| c.1.clone())
                .collect()
        };
        let rows: Vec<String> = (0..self.rng.random_range(1..5))
            .map(|_| {
                let values: Vec<String> = chosen
                    .iter()
                    .enumerate()
                    .map(|(n, c)| match n {
                        0 => self.rng.random_range(1..IDS).to_string(),
                        _ => self.literal_or_null(c),
                    })
                    .collect();
                format!("({})", values.join(", "))
            })
            .collect();
        let names: Vec<&str> = chosen.iter().map(|c| c.name.as_str()).collect();
        let name = self.table(t).name.clone();
        let body = format!("{name} ({}) VALUES {}", names.join(", "), rows.join(", "));
        let sql = match self.rng.random_range(0..8) {
            0 => format!("REPLACE INTO {body}"),
            1..=3 => format!("INSERT IGNORE INTO {body}"),
            4 => {
                let (c, value) = self.assignment(t);
                format!("INSERT INTO {body} ON DUPLICATE KEY UPDATE {c} = {value}")
            }
            5 if names.len() > 1 => {
                let c = names[names.len() - 1];
                format!("INSERT INTO {body} ON DUPLICATE KEY UPDATE {c} = VALUES({c})")
            }
            _ => format!("INSERT INTO {body}"),
        };
        // The server counts a row that gets the values it has by bytes that a NULL leaves behind.
        let counted = !sql.contains("ON DUPLICATE KEY");
        self.steps.push(Step { counted, ..Step::new(0, sql) });
    }

    /// A column that may be set and an expression for it.
    fn assignment(&mut self, t: usize) -> (String, String) {
        let Some(column) = self.tables[t].settable(self.rng).cloned() else {
            return ("id".into(), self.rng.random_range(1..IDS).to_string());
        };
        let value = match column.domain {
            Domain::Int { .. } if self.chance(2) => format!("{} + 1", column.name),
            _ => self.literal_or_null(&column),
        };
        (column.name, value)
    }

    fn update(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        let mut sets = Vec::new();
        for _ in 0..self.rng.random_range(1..3) {
            let (c, value) = self.assignment(t);
            sets.push(format!("{c} = {value}"));
        }
        if self.chance(6) {
            sets.push(format!("id = id + {}", self.rng.random_range(1..40)));
        }
        let ignore = if self.chance(5) { "IGNORE " } else { "" };
        let condition = self.condition(t);
        let limit = self.limit();
        let hint = self.hint(t);
        self.say(
            0,
            format!("UPDATE {ignore}{name}{hint} SET {} WHERE {condition} ORDER BY id{limit}", sets.join(", ")),
        );
    }

    fn delete(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        let condition = self.condition(t);
        let order = if self.chance(2) { " DESC" } else { "" };
        let limit = self.limit();
        self.say(0, format!("DELETE FROM {name} WHERE {condition} ORDER BY id{order}{limit}"));
    }

    /// Statements that change or read two tables at once. No unique column is set: the order of rows is not known.
    fn several_tables(&mut self) {
        let (a, b) = (self.table(0).name.clone(), self.table(1).name.clone());
        let condition = self.condition_as(0, "x.");
        let join = format!("{a} x JOIN {b} y ON x.id = y.id");
        match self.rng.random_range(0..4) {
            0 => self.say(0, format!("DELETE {a} FROM {a} JOIN {b} ON {a}.id = {b}.id WHERE {b}.id % 5 = 0")),
            1 => self.say(0, format!("DELETE x, y FROM {join} WHERE {condition}")),
            2 => {
                let free: Vec<Column> = {
                    let table = self.table(0);
                    let in_key = |n: usize| table.keys.iter().any(|k| k.columns.contains(&n));
                    table
                        .columns
                        .iter()
                        .enumerate()
                        .skip(1)
                        .filter(|(n, c)| !c.generated && !in_key(*n))
                        .map(|c| c.1.clone())
                        .collect()
                };
                if let Some(column) = free.choose(self.rng).cloned() {
                    let value = self.literal_or_null(&column);
                    self.say(0, format!("UPDATE {join} SET x.{} = {value} WHERE {condition}", column.name));
                }
            }
            _ => self.say(0, format!("SELECT x.id, y.id FROM {a} x LEFT JOIN {b} y ON x.id = y.id WHERE {condition}")),
        }
    }

    fn select(&mut self, session: usize, t: usize) {
        let name = self.table(t).name.clone();
        let hint = self.hint(t);
        let condition = self.condition(t);
        let column = self.tables[t].column(self.rng).clone();
        let c = &column.name;
        let mut ordered = false;
        let sql = match self.rng.random_range(0..8) {
            0 => format!("SELECT COUNT(*), COUNT({c}), COUNT(DISTINCT {c}) FROM {name}{hint} WHERE {condition}"),
            1 if column.domain.is_exact() => format!("SELECT MIN({c}), MAX({c}) FROM {name}{hint} WHERE {condition}"),
            1 => format!("SELECT COUNT(*) FROM {name} WHERE {c} = (SELECT MAX({c}) FROM {name}{hint})"),
            2 => format!("SELECT COUNT(*), MIN(id), MAX(id) FROM {name}{hint} WHERE {condition} GROUP BY {c}"),
            3 => {
                ordered = true;
                let order = if self.chance(2) { " DESC" } else { "" };
                let limit = self.limit();
                format!("SELECT id, {c} FROM {name}{hint} WHERE {condition} ORDER BY {c}{order}, id{limit}")
            }
            4 => format!("SELECT id FROM {name}{hint} WHERE {condition}"),
            5 => format!("SELECT id, {c} FROM {name}{hint} WHERE {condition}"),
            6 if !self.is_reading(session) => format!("SELECT id, {c} FROM {name}{hint} WHERE {condition} FOR UPDATE"),
            _ => format!("SELECT * FROM {name}{hint} WHERE {condition}"),
        };
        self.steps.push(Step { ordered, ..Step::new(session, sql) });
    }

    fn is_reading(&self, session: usize) -> bool {
        session != 0
    }

    fn limit(&mut self) -> String {
        if self.chance(3) { format!(" LIMIT {}", self.rng.random_range(1..6)) } else { String::new() }
    }

    fn hint(&mut self, t: usize) -> String {
        if self.chance(2) {
            return String::new();
        }
        let word = if self.chance(5) { "IGNORE" } else { "FORCE" };
        self.tables[t].keys.choose(self.rng).map_or_else(String::new, |key| format!(" {word} INDEX ({})", key.name))
    }

    fn condition(&mut self, t: usize) -> String {
        self.condition_as(t, "")
    }

    /// A condition on a table whose columns are named with `alias` in front.
    fn condition_as(&mut self, t: usize, alias: &str) -> String {
        let first = self.comparison(t, alias);
        match self.rng.random_range(0..6) {
            0 => format!("{first} AND {}", self.comparison(t, alias)),
            1 => format!("({first} OR {})", self.comparison(t, alias)),
            2 => format!("NOT ({first})"),
            _ => first,
        }
    }

    fn comparison(&mut self, t: usize, alias: &str) -> String {
        let column = self.tables[t].column(self.rng).clone();
        let domain = match column.name.as_str() {
            "id" => None,
            _ => Some(column.domain),
        };
        let literal = |rng: &mut SmallRng| match domain {
            Some(domain) => domain.literal(rng),
            None => rng.random_range(0..IDS).to_string(),
        };
        let c = format!("{alias}{}", column.name);
        match self.rng.random_range(0..10) {
            0..=2 => format!("{c} = {}", literal(self.rng)),
            3 => format!("{c} <= {}", literal(self.rng)),
            4 => format!("{c} > {}", literal(self.rng)),
            5 => {
                let mut ends = [literal(self.rng), literal(self.rng)];
                if domain.is_none() && self.tables[t].is_partitioned() {
                    // An empty range leaves the table without partitions, and the server then forgets to take them all for a
                    // statement without a range that goes by an index: with either engine it finds no rows.
                    ends.sort_by_key(|end| end.parse::<u64>().ok());
                }
                let [from, to] = ends;
                format!("{c} BETWEEN {from} AND {to}")
            }
            6 => format!("{c} IN ({}, {}, {})", literal(self.rng), literal(self.rng), literal(self.rng)),
            7 => format!("{c} IS {}NULL", if self.chance(2) { "NOT " } else { "" }),
            8 if matches!(column.domain, Domain::Text { .. }) => {
                format!("{c} LIKE '{}%'", ["a", "A", "b", "ab", "s", ""][self.rng.random_range(0..6)])
            }
            _ => format!("{c} <> {}", literal(self.rng)),
        }
    }

    /// Beginnings, savepoints and ends of the writing session's transactions.
    fn transaction(&mut self) {
        if !self.writing {
            self.writing = true;
            self.savepoints = 0;
            return self.say(0, "START TRANSACTION");
        }
        match self.rng.random_range(0..6) {
            0 | 1 => {
                self.savepoints += 1;
                self.say(0, format!("SAVEPOINT s{}", self.savepoints));
            }
            2 if self.savepoints > 0 => {
                let number = self.rng.random_range(1..=self.savepoints);
                self.say(0, format!("ROLLBACK TO SAVEPOINT s{number}"));
            }
            3 => self.end("ROLLBACK"),
            _ => self.end("COMMIT"),
        }
    }

    fn end(&mut self, how: &str) {
        self.writing = false;
        self.say(0, how);
    }

    /// A session that reads, mostly in a snapshot.
    fn reader(&mut self) {
        let session = self.rng.random_range(1..SESSIONS);
        match self.snapshots[session].is_some() {
            false if self.chance(2) => {
                self.snapshots[session] = Some(Vec::new());
                self.say(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
            }
            true if self.chance(6) => self.end_snapshot(session),
            _ => {
                let t = self.rng.random_range(0..self.tables.len());
                let name = self.tables[t].name.clone();
                if let Some(touched) = &mut self.snapshots[session] {
                    touched.push(name);
                }
                self.select(session, t);
            }
        }
    }

    fn end_snapshot(&mut self, session: usize) {
        self.snapshots[session] = None;
        self.say(session, "COMMIT");
    }

    /// Lets go of the locks on a table that DDL would wait for.
    fn free(&mut self, name: &str) {
        if self.writing {
            self.end("COMMIT");
        }
        for session in 1..SESSIONS {
            if self.snapshots[session].as_ref().is_some_and(|touched| touched.iter().any(|t| t == name)) {
                self.end_snapshot(session);
            }
        }
    }

    fn ddl(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        self.free(&name);
        match self.rng.random_range(0..12) {
            0 => self.say(0, format!("TRUNCATE TABLE {name}")),
            1 => {
                let mut table = self.tables[t].clone();
                let column = table.random_column(self.rng);
                self.say(
                    0,
                    format!("ALTER TABLE {name} ADD COLUMN {} {}, ALGORITHM=COPY", column.name, column.definition),
                );
                table.columns.push(column);
                self.tables[t] = table;
            }
            2 | 3 => {
                let mut table = self.tables[t].clone();
                if let Some(key) = table.random_key(self.rng) {
                    self.say(0, format!("ALTER TABLE {name} ADD {}, ALGORITHM=COPY", key.definition));
                    table.keys.push(key);
                    self.tables[t] = table;
                }
            }
            4 => {
                let droppable: Vec<usize> =
                    (0..self.table(t).keys.len()).filter(|&n| self.table(t).keys[n].name != "uid").collect();
                if let Some(&n) = droppable.choose(self.rng) {
                    let key = self.tables[t].keys.remove(n);
                    self.say(0, format!("ALTER TABLE {name} DROP KEY {}, ALGORITHM=COPY", key.name));
                }
            }
            5 => self.say(0, format!("ALTER TABLE {name} FORCE, ALGORITHM=COPY")),
            6 => self.say(0, format!("ANALYZE TABLE {name}")),
            7 if self.table(t).is_partitioned() => {
                self.say(0, format!("ALTER TABLE {name} REMOVE PARTITIONING, ALGORITHM=COPY"))
            }
            8 if !self.table(t).has_virtual() => {
                self.renamed += 1;
                let new = format!("r{}", self.renamed);
                self.say(0, format!("RENAME TABLE {name} TO {new}"));
                self.tables[t].name = new;
            }
            9 => {
                self.say(0, format!("CREATE TABLE copy AS SELECT * FROM {name}"));
                self.say(0, "SELECT * FROM copy");
                self.say(0, "DROP TABLE copy");
            }
            10 if self.tables[t].is_partitioned() => self.say(0, format!("ALTER TABLE {name} REBUILD PARTITION ALL")),
            _ => self.say(0, format!("CHECK TABLE {name}")),
        }
    }

    /// Everything by every index.
    fn finish(&mut self) {
        for session in 1..SESSIONS {
            self.end_snapshot(session);
        }
        self.end("COMMIT");
        for table in self.tables.clone() {
            let name = &table.name;
            self.say(0, format!("SELECT * FROM {name} IGNORE INDEX (uid)"));
            for key in &table.keys {
                let columns: Vec<&str> = key.columns.iter().map(|&n| table.columns[n].name.as_str()).collect();
                self.say(0, format!("SELECT id, {} FROM {name} FORCE INDEX ({})", columns.join(", "), key.name));
                self.say(0, format!("SELECT COUNT(*) FROM {name} FORCE INDEX ({})", key.name));
            }
            self.say(0, format!("CHECK TABLE {name} EXTENDED"));
        }
    }
}
