//! Random statements on random tables: a program.
//!
//! Two sessions write, each into tables of its own, so that nobody waits for a lock; all read all tables. What sessions do with
//! transactions is in [`super::sessions`], what becomes of tables in [`super::ddl`], programs about foreign keys in [`super::family`].

use super::family::Family;
use super::schema::{Column, Domain, IDS, Table};
use super::sessions::Transaction;
use super::{READERS, SECOND, SESSIONS, Step};
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

/// Makes a program: tables, about `statements` statements, and the comparison of what is left. One in four, or all with `foreign_keys`, is
/// about tables that refer to each other.
pub fn program(rng: &mut SmallRng, statements: usize, foreign_keys: bool) -> Vec<Step> {
    let mut writer = Author::new(rng);
    if writer.chance(4) || foreign_keys {
        writer.begin_family();
        for _ in 0..statements {
            writer.family_statement();
        }
        writer.finish_family();
        return writer.steps;
    }
    writer.begin();
    for _ in 0..statements {
        writer.statement();
    }
    writer.finish();
    writer.steps
}

/// What the writing of a program keeps in mind. It supposes that each statement succeeds; where one fails it does so on both
/// engines, and so do those that build on it.
pub(super) struct Author<'a> {
    pub(super) rng: &'a mut SmallRng,
    /// The first two are session 0's, the last is the second writer's.
    pub(super) tables: Vec<Table>,
    steps: Vec<Step>,
    /// The session that writes now.
    pub(super) me: usize,
    /// Transactions of writing sessions.
    pub(super) open: [Option<Transaction>; SESSIONS],
    /// Reading sessions with a snapshot, and the tables each has touched: these cannot be altered meanwhile.
    pub(super) snapshots: [Option<Vec<String>>; SESSIONS],
    /// Numbers of names that were made.
    pub(super) names: u32,
    /// Seconds that the clock of the sessions has been set forward, for tables with versions.
    clock: u64,
    /// The tables with foreign keys, where the program is about these.
    pub(super) family: Family,
}

impl Author<'_> {
    fn new(rng: &mut SmallRng) -> Author<'_> {
        Author {
            rng,
            tables: Vec::new(),
            steps: Vec::new(),
            me: 0,
            open: Default::default(),
            snapshots: Default::default(),
            names: 0,
            clock: 0,
            family: Family::default(),
        }
    }

    pub(super) fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    /// A statement of a session.
    pub(super) fn say(&mut self, session: usize, sql: impl Into<String>) {
        let sql = sql.into();
        // An ALTER that copies counts rows, and each engine has its own reasons to copy.
        let own_way = sql.starts_with("ALTER TABLE") && !sql.contains("ALGORITHM=COPY") && !sql.contains("PARTITION");
        self.steps.push(Step { counted: !own_way, ..Step::new(session, sql) });
    }

    /// A statement of the session that writes now.
    pub(super) fn write(&mut self, sql: impl Into<String>) {
        self.say(self.me, sql);
    }

    /// As above; the number of affected rows is not compared.
    pub(super) fn uncounted(&mut self, sql: String) {
        self.steps.push(Step { counted: false, ..Step::new(self.me, sql) });
    }

    /// A new name.
    pub(super) fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Before rows of a table change. Where their times are kept they must differ, and be the same in both databases.
    fn about_to_change(&mut self, t: usize) {
        if self.tables[t].versioned {
            self.clock += 1;
            self.write(format!("SET timestamp = {}", 1_700_000_000 + self.clock));
        }
    }

    fn begin(&mut self) {
        let mut repeatable = true;
        for writer in [0, SECOND] {
            if self.chance(4) {
                repeatable = false;
                self.say(writer, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
            }
            if self.chance(4) {
                self.say(writer, "SET sql_mode = ''");
            }
        }
        for (name, writer) in [("t1", 0), ("t2", 0), ("t3", SECOND)] {
            self.me = writer;
            let table = Table::random(self.rng, name, repeatable);
            self.write(table.create());
            self.tables.push(table);
            for _ in 0..6 {
                self.insert(self.tables.len() - 1);
            }
        }
    }

    fn statement(&mut self) {
        self.me = if self.chance(4) { SECOND } else { 0 };
        let t = if self.me == SECOND { 2 } else { self.rng.random_range(0..2) };
        match self.rng.random_range(0..108) {
            0..=23 => self.insert(t),
            24..=38 => self.update(t),
            39..=46 => self.delete(t),
            47..=50 if self.me == 0 => self.several_tables(),
            51..=72 => {
                let any = if self.chance(4) { self.rng.random_range(0..self.tables.len()) } else { t };
                self.select(self.me, any);
            }
            73..=79 => self.transaction(),
            80..=93 => self.reader(),
            94..=96 => self.handler(t),
            97..=99 => self.bulk(t),
            100 => self.clash(),
            101 if self.tables[t].versioned => self.history(t),
            _ => self.ddl(t),
        }
    }

    pub(super) fn table(&self, t: usize) -> &Table {
        &self.tables[t]
    }

    pub(super) fn literal_or_null(&mut self, column: &Column) -> String {
        if self.chance(8) { "NULL".into() } else { column.domain.literal(self.rng) }
    }

    pub(super) fn insert(&mut self, t: usize) {
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
        self.about_to_change(t);
        // The server counts a row that gets the values it has by bytes that a NULL leaves behind.
        let counted = !sql.contains("ON DUPLICATE KEY");
        let ignores = sql.contains("IGNORE");
        self.steps.push(Step { counted, ..Step::new(self.me, sql) });
        if ignores && self.chance(2) {
            // Which rows were left out, and for which key.
            self.write("SHOW WARNINGS");
        }
    }

    /// Hundreds of rows at once, or the rows of another table, with new ids; they do not stay long.
    fn bulk(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        let columns: Vec<Column> = self.table(t).columns[1..].iter().filter(|c| !c.generated).cloned().collect();
        let names: String = columns.iter().map(|c| format!(", {}", c.name)).collect();
        let ignore = if self.chance(3) { "" } else { "IGNORE " };
        self.about_to_change(t);
        match self.rng.random_range(0..3) {
            0 => {
                let values: String = columns.iter().map(|c| format!(", {}", self.literal_or_null(c))).collect();
                let (first, last) = (1000, 1000 + self.rng.random_range(100..500));
                self.write(format!("INSERT {ignore}INTO {name} (id{names}) SELECT seq{values} FROM seq_{first}_to_{last}"));
            }
            1 => self.write(format!(
                "INSERT {ignore}INTO {name} (id{names}) SELECT id + {IDS}{names} FROM {name} WHERE id < {IDS} ORDER BY id"
            )),
            _ if self.me == 0 => {
                let other = self.tables[1 - t].name.clone();
                self.write(format!("REPLACE INTO {name} (id) SELECT id + 200 FROM {other} ORDER BY id"));
            }
            _ => {}
        }
        if self.chance(2) {
            self.select(self.me, t);
        }
        if !self.chance(4) {
            self.about_to_change(t);
            self.write(format!("DELETE FROM {name} WHERE id > {IDS}"));
        }
    }

    /// Reads through an open handler, of indexes in which no two rows are equal, or of all rows. Not of partitioned tables: the
    /// server takes the partitions that the statement before has left, and ends at PREV with InnoDB.
    fn handler(&mut self, t: usize) {
        let table = self.table(t).clone();
        if table.is_partitioned() {
            return;
        }
        self.write(format!("HANDLER {} OPEN AS h", table.name));
        for key in table.keys.iter().filter(|_| self.rng.random_range(0..2) == 0) {
            self.steps.push(Step::new(self.me, format!("HANDLER h READ {} FIRST LIMIT 1000", key.name)));
        }
        if let Some(key) = table.key_of_id() {
            // InnoDB may end the server at PREV after a search for a unique key that is not there.
            let mut may_be_nowhere = false;
            for _ in 0..self.rng.random_range(1..6) {
                let limit = self.rng.random_range(1..9);
                let way = match ["FIRST", "NEXT", "PREV", "LAST", "NEXT"][self.rng.random_range(0..5)] {
                    "PREV" if may_be_nowhere => "LAST",
                    way => way,
                };
                let id = self.rng.random_range(0..IDS);
                let read = match self.rng.random_range(0..6) {
                    0 => {
                        let how = ["=", "<", "<=", ">", ">="][self.rng.random_range(0..5)];
                        may_be_nowhere = how == "=";
                        format!("HANDLER h READ {key} {how} ({id}) LIMIT {limit}")
                    }
                    1 => {
                        let condition = self.condition(t);
                        may_be_nowhere = false;
                        format!("HANDLER h READ {key} {way} WHERE {condition} LIMIT {limit}")
                    }
                    2 => {
                        self.about_to_change(t);
                        format!("DELETE FROM {} WHERE id = {id}", table.name)
                    }
                    _ => {
                        may_be_nowhere = false;
                        format!("HANDLER h READ {key} {way} LIMIT {limit}")
                    }
                };
                self.steps.push(Step { ordered: true, ..Step::new(self.me, read) });
            }
        }
        self.write("HANDLER h READ FIRST LIMIT 1000");
        self.write("HANDLER h CLOSE");
    }

    /// Rows as they were.
    fn history(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        let condition = self.condition(t);
        let when = match self.rng.random_range(0..3) {
            0 => "ALL".to_owned(),
            1 => {
                let then = 1_700_000_000 + self.rng.random_range(0..=self.clock);
                format!("AS OF FROM_UNIXTIME({then}.5)")
            }
            _ => {
                let then = 1_700_000_000 + self.rng.random_range(0..=self.clock);
                format!("BETWEEN FROM_UNIXTIME({then}) AND FROM_UNIXTIME({})", then + 5)
            }
        };
        self.write(format!("SELECT *, row_start, row_end FROM {name} FOR SYSTEM_TIME {when} WHERE {condition}"));
    }

    /// A column that may be set and an expression for it.
    pub(super) fn assignment(&mut self, t: usize) -> (String, String) {
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
        self.about_to_change(t);
        self.write(format!("UPDATE {ignore}{name}{hint} SET {} WHERE {condition} ORDER BY id{limit}", sets.join(", ")));
    }

    fn delete(&mut self, t: usize) {
        let name = self.table(t).name.clone();
        let condition = self.condition(t);
        let order = if self.chance(2) { " DESC" } else { "" };
        let limit = self.limit();
        self.about_to_change(t);
        self.write(format!("DELETE FROM {name} WHERE {condition} ORDER BY id{order}{limit}"));
    }

    /// Statements that change or read two tables at once. No unique column is set: the order of rows is not known.
    fn several_tables(&mut self) {
        let (a, b) = (self.table(0).name.clone(), self.table(1).name.clone());
        let condition = self.condition_as(0, "x.");
        let join = format!("{a} x JOIN {b} y ON x.id = y.id");
        self.about_to_change(0);
        self.about_to_change(1);
        match self.rng.random_range(0..4) {
            0 => self.write(format!("DELETE {a} FROM {a} JOIN {b} ON {a}.id = {b}.id WHERE {b}.id % 5 = 0")),
            1 => self.write(format!("DELETE x, y FROM {join} WHERE {condition}")),
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
                    self.write(format!("UPDATE {join} SET x.{} = {value} WHERE {condition}", column.name));
                }
            }
            _ => self.write(format!("SELECT x.id, y.id FROM {a} x LEFT JOIN {b} y ON x.id = y.id WHERE {condition}")),
        }
    }

    pub(super) fn select(&mut self, session: usize, t: usize) {
        let name = self.table(t).name.clone();
        let hint = self.hint(t);
        let condition = self.condition(t);
        let column = self.tables[t].column(self.rng).clone();
        let c = &column.name;
        let mut ordered = false;
        let sql = match self.rng.random_range(0..10) {
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
            6 if self.owns(session, t) => {
                let lock = ["FOR UPDATE", "LOCK IN SHARE MODE"][self.rng.random_range(0..2)];
                format!("SELECT id, {c} FROM {name}{hint} WHERE {condition} {lock}")
            }
            7 => format!(
                "SELECT id, ROW_NUMBER() OVER (ORDER BY id DESC), RANK() OVER (ORDER BY {c}), COUNT(*) OVER (PARTITION BY {c}), \
                 LAG(id) OVER (PARTITION BY {c} ORDER BY id) FROM {name}{hint} WHERE {condition}"
            ),
            8 => {
                ordered = true;
                format!(
                    "SELECT id FROM {name}{hint} WHERE {condition} ORDER BY id LIMIT {}",
                    self.rng.random_range(1..9)
                )
            }
            _ => format!("SELECT * FROM {name}{hint} WHERE {condition}"),
        };
        self.steps.push(Step { ordered, ..Step::new(session, sql) });
    }

    /// Whether the session writes to the table; others take no locks on it.
    fn owns(&self, session: usize, t: usize) -> bool {
        !READERS.contains(&session) && (session == SECOND) == (t == 2)
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

    pub(super) fn condition(&mut self, t: usize) -> String {
        self.condition_as(t, "")
    }

    /// A condition on a table whose columns are named with `alias` in front.
    fn condition_as(&mut self, t: usize, alias: &str) -> String {
        let first = self.comparison(t, alias);
        match self.rng.random_range(0..6) {
            // Of `id` the two might leave a partitioned table without partitions; see below.
            0 if !self.tables[t].is_partitioned() => format!("{first} AND {}", self.comparison(t, alias)),
            0 | 1 => format!("({first} OR {})", self.comparison(t, alias)),
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
            7 if domain.is_some() || !self.tables[t].is_partitioned() => {
                format!("{c} IS {}NULL", if self.chance(2) { "NOT " } else { "" })
            }
            8 if matches!(column.domain, Domain::Text { .. }) => {
                format!("{c} LIKE '{}%'", ["a", "A", "b", "ab", "s", ""][self.rng.random_range(0..6)])
            }
            _ => format!("{c} <> {}", literal(self.rng)),
        }
    }

    /// Everything by every index.
    fn finish(&mut self) {
        READERS.for_each(|session| self.end_snapshot(session));
        for writer in [0, SECOND] {
            self.end(writer, "COMMIT");
        }
        self.me = 0;
        for table in self.tables.clone() {
            let name = &table.name;
            self.write(format!("SELECT * FROM {name} IGNORE INDEX (uid)"));
            for key in &table.keys {
                let columns: Vec<&str> = key.columns.iter().map(|&n| table.columns[n].name.as_str()).collect();
                self.write(format!("SELECT id, {} FROM {name} FORCE INDEX ({})", columns.join(", "), key.name));
                self.write(format!("SELECT COUNT(*) FROM {name} FORCE INDEX ({})", key.name));
            }
            if table.versioned {
                self.write(format!("SELECT *, row_start, row_end FROM {name} FOR SYSTEM_TIME ALL"));
            }
            self.write(format!("CHECK TABLE {name} EXTENDED"));
        }
    }
}
