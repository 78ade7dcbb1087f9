//! Tables that come, change in every way and go: the shadow is a [`World`], each statement says what it makes of it.
//!
//! Names are few and come again, so that what a dropped table has left behind meets the next one of its name.
//!
//! The server does not change a table with partitions in one step, whatever the engine: a kill inside may leave a definition
//! without partitions, or partitions without one. Only the table of that very statement may be so; it is counted, told, and
//! removed with its database, after which the engine must know nothing of it.

use super::world::{Grain, INDEXES, Parts, Row, TEXT, Table, World, judge, observe};
use super::{Actor, Answer, Flow, PREFIX, Session};
use anyhow::{Result, bail};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

mod partitions;

/// Names that tables have.
const NAMES: usize = 7;
/// Ids are below this, and below the end of the last partition.
const IDS: i64 = 600;

/// A statement and what it makes of the world.
struct Change {
    /// What comes before it, in the same transaction; a server that is gone by then leaves the old world.
    before: Vec<String>,
    statement: String,
    after: World,
    grain: Grain,
    /// Errors with which it may change nothing.
    refusals: &'static [u16],
}

impl Change {
    fn new(statement: impl Into<String>, after: World) -> Change {
        Change { before: Vec::new(), statement: statement.into(), after, grain: Grain::Whole, refusals: &[] }
    }
}

/// One session with tables of its own.
pub struct Tables {
    number: u32,
    engine: String,
    rng: SmallRng,
    world: World,
    open: Option<Open>,
    /// How often the server itself left a partitioned table in between.
    gaps: u64,
}

/// What is in flight.
struct Open {
    after: World,
    grain: Grain,
    /// Tables with partitions that the server does not change in one step, with any engine: created, renamed, altered or
    /// dropped partition by partition, with files of its own beside.
    uncertain: BTreeSet<String>,
}

impl Tables {
    pub fn new(number: u32, engine: &str, seed: u64) -> Tables {
        let rng = SmallRng::seed_from_u64(seed.wrapping_mul(77) ^ u64::from(number));
        Tables { number, engine: engine.into(), rng, world: World::new(), open: None, gaps: 0 }
    }

    fn draw(&mut self) -> Change {
        if self.world.len() < 3 {
            return self.create();
        }
        match self.rng.random_range(0..100) {
            0..4 if self.world.len() < NAMES => self.create(),
            4..8 if self.world.len() < NAMES => self.create_like(),
            8..13 if self.world.len() < NAMES => self.create_select(),
            13..17 => self.drop_tables(),
            17..23 => self.rename(),
            23..28 => self.truncate(),
            28..42 => self.alter(),
            42..45 => self.maintain(),
            45..60 => self.partition(),
            60..61 => {
                let database = self.database();
                let statement = format!("DROP DATABASE {database}");
                Change { grain: Grain::EachTable, ..Change::new(statement, World::new()) }
            }
            _ => self.rows(),
        }
    }

    /// A table that there is.
    fn any(&mut self) -> String {
        let at = self.rng.random_range(0..self.world.len());
        self.world.keys().nth(at).cloned().unwrap_or_default()
    }

    /// One of those names that no table has.
    fn free(&mut self) -> String {
        let free: Vec<String> =
            (0..=NAMES).map(|n| format!("t{n}")).filter(|name| !self.world.contains_key(name)).collect();
        free[self.rng.random_range(0..free.len())].clone()
    }

    fn with(&self, name: &str, table: Table) -> World {
        let mut world = self.world.clone();
        world.insert(name.into(), table);
        world
    }

    fn parts(&mut self) -> Parts {
        match self.rng.random_range(0..4) {
            0 => Parts::Hash(self.rng.random_range(2..5)),
            1 => Parts::Range((1..=3).map(|n| (format!("p{n}"), n * IDS / 3)).collect()),
            _ => Parts::Single,
        }
    }

    fn create(&mut self) -> Change {
        let name = self.free();
        let parts = self.parts();
        let indexes =
            INDEXES.iter().filter(|_| self.rng.random_range(0..2) == 0).map(|index| index.0.to_string()).collect();
        let table = Table {
            primary: self.rng.random_range(0..4) > 0,
            extra: self.rng.random_range(0..3) == 0,
            indexes,
            parts,
            rows: BTreeMap::new(),
        };
        Change::new(format!("CREATE TABLE {name} {}", table.definition(&self.engine)), self.with(&name, table))
    }

    fn create_like(&mut self) -> Change {
        let (name, source) = (self.free(), self.any());
        let table = Table { rows: BTreeMap::new(), ..self.world[&source].clone() };
        Change::new(format!("CREATE TABLE {name} LIKE {source}"), self.with(&name, table))
    }

    /// From a whole table, or from one partition, so that it can be exchanged with it.
    fn create_select(&mut self) -> Change {
        let (name, source) = (self.free(), self.any());
        let mut table = Table { parts: Parts::Single, ..self.world[&source].clone() };
        let mut from = source.clone();
        if let Parts::Range(ends) = self.world[&source].parts.clone() {
            let at = self.rng.random_range(0..ends.len());
            from = format!("{source} PARTITION ({})", ends[at].0);
            let whole = &self.world[&source];
            table.rows.retain(|id, _| whole.part_of(*id) == at);
        }
        let definition = table.definition(&self.engine);
        Change::new(format!("CREATE TABLE {name} {definition} SELECT * FROM {from}"), self.with(&name, table))
    }

    fn drop_tables(&mut self) -> Change {
        let names: BTreeSet<String> = (0..self.rng.random_range(1..=2)).map(|_| self.any()).collect();
        let mut after = self.world.clone();
        after.retain(|name, _| !names.contains(name));
        let list: Vec<String> = names.into_iter().collect();
        Change { grain: Grain::EachTable, ..Change::new(format!("DROP TABLE {}", list.join(", ")), after) }
    }

    /// One table, or two that swap their names.
    fn rename(&mut self) -> Change {
        let (one, two, free) = (self.any(), self.any(), self.free());
        let mut after = self.world.clone();
        let Some(first) = after.remove(&one) else { return self.rows() };
        let Some(second) = after.remove(&two) else {
            after.insert(free.clone(), first);
            return Change::new(format!("RENAME TABLE {one} TO {free}"), after);
        };
        after.insert(two.clone(), first);
        after.insert(one.clone(), second);
        Change::new(format!("RENAME TABLE {one} TO {free}, {two} TO {one}, {free} TO {two}"), after)
    }

    fn truncate(&mut self) -> Change {
        let name = self.any();
        let table = Table { rows: BTreeMap::new(), ..self.world[&name].clone() };
        let grain = if table.parts == Parts::Single { Grain::Whole } else { Grain::EachPartition };
        Change { grain, ..Change::new(format!("TRUNCATE TABLE {name}"), self.with(&name, table)) }
    }

    fn alter(&mut self) -> Change {
        let name = self.any();
        let mut table = self.world[&name].clone();
        let (index, columns) = INDEXES[self.rng.random_range(0..INDEXES.len())];
        let has = table.indexes.contains(index);
        let statement = match self.rng.random_range(0..6) {
            0 | 1 if has => {
                table.indexes.remove(index);
                match self.rng.random_range(0..2) {
                    0 => format!("DROP INDEX {index} ON {name}"),
                    _ => format!("ALTER TABLE {name} DROP KEY {index}"),
                }
            }
            0 | 1 => {
                table.indexes.insert(index.into());
                match self.rng.random_range(0..2) {
                    0 => format!("CREATE INDEX {index} ON {name} {columns}"),
                    _ => format!("ALTER TABLE {name} ADD KEY {index} {columns}, ALGORITHM=COPY"),
                }
            }
            2 if table.extra => {
                table.extra = false;
                table.rows.values_mut().for_each(|row| row.1 = None);
                format!("ALTER TABLE {name} DROP COLUMN c")
            }
            2 => {
                table.extra = true;
                table.rows.values_mut().for_each(|row| row.1 = Some(7));
                format!("ALTER TABLE {name} ADD COLUMN c INT NOT NULL DEFAULT 7")
            }
            3 if table.primary && table.parts == Parts::Single => {
                table.primary = false;
                format!("ALTER TABLE {name} DROP PRIMARY KEY, ADD KEY ki (id)")
            }
            3 if table.parts == Parts::Single => {
                table.primary = true;
                format!("ALTER TABLE {name} DROP KEY ki, ADD PRIMARY KEY (id)")
            }
            4 => format!("ALTER TABLE {name} ENGINE={}", self.engine),
            _ => format!("ALTER TABLE {name} FORCE"),
        };
        Change::new(statement, self.with(&name, table))
    }

    /// Statements that leave everything as it is.
    fn maintain(&mut self) -> Change {
        let name = self.any();
        let what = ["OPTIMIZE", "ANALYZE", "CHECK"][self.rng.random_range(0..3)];
        Change::new(format!("{what} TABLE {name}"), self.world.clone())
    }

    /// Rows of one table in a statement, or of two in a transaction.
    fn rows(&mut self) -> Change {
        let mut after = self.world.clone();
        let one = self.any();
        let first = self.row_statement(&one, &mut after);
        if self.rng.random_range(0..3) > 0 {
            return Change::new(first, after);
        }
        let two = self.any();
        let second = self.row_statement(&two, &mut after);
        Change { before: vec!["BEGIN".into(), first, second], ..Change::new("COMMIT", after) }
    }

    fn row_statement(&mut self, name: &str, world: &mut World) -> String {
        let Some(table) = world.get_mut(name) else { return "DO 1".into() };
        let limit = match &table.parts {
            Parts::Range(ends) => ends.last().map_or(0, |end| end.1),
            _ => IDS,
        };
        let which = self.rng.random_range(0..7);
        match self.rng.random_range(0..10) {
            0 | 1 => {
                table.rows.iter_mut().filter(|(id, _)| *id % 7 == which).for_each(|(_, row)| {
                    row.0 = row.0.map(|a| a + which + 1);
                });
                format!("UPDATE {name} SET a = a + {} WHERE id % 7 = {which}", which + 1)
            }
            2 => {
                table.rows.retain(|id, _| id % 11 != which);
                format!("DELETE FROM {name} WHERE id % 11 = {which}")
            }
            3 => {
                let (from, to) = (which * 40, which * 40 + 60);
                table.rows.retain(|id, _| *id < from || *id >= to);
                format!("DELETE FROM {name} WHERE id >= {from} AND id < {to}")
            }
            _ => {
                let from = self.rng.random_range(0..limit.max(1));
                let to = (from + self.rng.random_range(1..120)).min(limit);
                let a = self.rng.random_range(0..50);
                let row: Row = ((a > 0).then_some(a), table.extra.then_some(7));
                let new: Vec<i64> = (from..to).filter(|id| !table.rows.contains_key(id)).collect();
                if new.is_empty() {
                    return format!("UPDATE {name} SET a = a WHERE id = 0");
                }
                let a = row.0.map_or("NULL".to_string(), |a| a.to_string());
                let values: Vec<String> =
                    new.iter().map(|id| format!("({id},{a},{})", TEXT.replace("id", &id.to_string()))).collect();
                table.rows.extend(new.iter().map(|id| (*id, row)));
                format!("INSERT INTO {name} (id, a, b) VALUES {}", values.join(","))
            }
        }
    }
}

impl Actor for Tables {
    fn database(&self) -> String {
        format!("{PREFIX}tables{}", self.number)
    }

    fn gaps(&self) -> u64 {
        self.gaps
    }

    fn begin(&mut self, _: &mut Session<'_>) -> Result<Flow> {
        Ok(Flow::Goes)
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let change = self.draw();
        for statement in &change.before {
            if session.must(statement)? == Flow::Lost {
                return Ok(Flow::Lost);
            }
        }
        let uncertain = self.uncertain(&change);
        self.open = Some(Open { after: change.after, grain: change.grain, uncertain });
        match session.run(&change.statement) {
            Answer::Done(()) => {}
            Answer::Lost => return Ok(Flow::Lost),
            Answer::Refused(code, _) if change.refusals.contains(&code) => {
                self.open = None;
                return Ok(Flow::Goes);
            }
            Answer::Refused(code, text) => bail!("{code} {text}: {}", change.statement),
        }
        self.world = self.open.take().map_or_else(World::new, |open| open.after);
        if change.statement.starts_with("DROP DATABASE") {
            let database = self.database();
            for statement in [format!("CREATE DATABASE {database}"), format!("USE {database}")] {
                if session.must(&statement)? == Flow::Lost {
                    return Ok(Flow::Lost);
                }
            }
        }
        Ok(Flow::Goes)
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let database = self.database();
        let before = self.world.clone();
        let found = observe(conn, &database, &mut wrong)?;
        let open = self.open.take();
        let new = open.as_ref().map(|open| (&open.after, open.grain));
        wrong.extend(judge(&self.world, new, &found));
        self.world = found;
        if let Some(open) = open.filter(|open| !open.uncertain.is_empty() && !wrong.is_empty()) {
            wrong = self.certain(conn, &before, &open, &mut wrong)?;
        }
        wrong.extend(self.names_are_free(conn)?);
        Ok(wrong)
    }
}

impl Tables {
    /// Tables of a statement that the server changes in several steps.
    fn uncertain(&self, change: &Change) -> BTreeSet<String> {
        let divided = |world: &World, name: &str| world.get(name).is_some_and(|table| table.parts != Parts::Single);
        let concerned: BTreeSet<String> = if change.statement.starts_with("DROP DATABASE") {
            self.world.keys().cloned().collect()
        } else if ["CREATE ", "ALTER ", "RENAME ", "DROP "].iter().any(|word| change.statement.starts_with(word)) {
            let words = change.statement.split(|c: char| !c.is_ascii_alphanumeric());
            words
                .filter(|word| self.world.contains_key(*word) || change.after.contains_key(*word))
                .map(Into::into)
                .collect()
        } else {
            BTreeSet::new()
        };
        match concerned.iter().any(|name| divided(&self.world, name) || divided(&change.after, name)) {
            true => concerned,
            false => BTreeSet::new(),
        }
    }

    /// What is wrong besides the tables that the server left in between. These are taken away with their database.
    fn certain(&mut self, conn: &mut Conn, old: &World, open: &Open, told: &mut Vec<String>) -> Result<Vec<String>> {
        let rest = |world: &World| -> World {
            let certain = world.iter().filter(|(name, _)| !open.uncertain.contains(*name));
            certain.map(|(name, table)| (name.clone(), table.clone())).collect()
        };
        let mut wrong = judge(&rest(old), Some((&rest(&open.after), open.grain)), &rest(&self.world));
        if !wrong.is_empty() {
            wrong.append(told);
            return Ok(wrong);
        }
        self.gaps += 1;
        let database = self.database();
        let data: Option<String> = conn.query_first("SELECT @@datadir")?;
        conn.query_drop("SET SESSION sql_log_bin = 0")?;
        // A definition without a table is in its way; the engine's part is done by then.
        if conn.query_drop(format!("DROP DATABASE {database}")).is_err() {
            std::fs::remove_dir_all(std::path::Path::new(&data.unwrap_or_default()).join(&database))?;
            conn.query_drop(format!("CREATE DATABASE {database}"))?;
            conn.query_drop(format!("DROP DATABASE {database}"))?;
        }
        conn.query_drop("SET SESSION sql_log_bin = 1")?;
        self.world.clear();
        Ok(wrong)
    }

    /// A name that no table has can be given to a new one, in the server and in the engine.
    fn names_are_free(&self, conn: &mut Conn) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let database = self.database();
        conn.query_drop("SET SESSION sql_log_bin = 0")?;
        conn.query_drop(format!("CREATE DATABASE IF NOT EXISTS {database}"))?;
        for name in (0..=NAMES).map(|n| format!("t{n}")).filter(|name| !self.world.contains_key(name)) {
            let partitions = "PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS THAN (9), \
                              PARTITION p2 VALUES LESS THAN (99), PARTITION p3 VALUES LESS THAN (999))";
            for parts in ["", partitions] {
                let tried = conn
                    .query_drop(format!(
                        "CREATE TABLE {database}.{name} (id BIGINT PRIMARY KEY) ENGINE={} {parts}",
                        self.engine
                    ))
                    .and_then(|()| conn.query_drop(format!("INSERT INTO {database}.{name} VALUES (1), (10)")))
                    .and_then(|()| conn.query_drop(format!("DROP TABLE {database}.{name}")));
                if let Err(error) = tried {
                    wrong.push(format!("the name {name} is taken by an orphan: {error}"));
                }
            }
        }
        conn.query_drop("SET SESSION sql_log_bin = 1")?;
        Ok(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_statement_is_drawn() {
        let mut tables = Tables::new(1, "STRATA", 5);
        let mut kinds = BTreeSet::new();
        for _ in 0..20_000 {
            let change = tables.draw();
            let statement = &change.statement;
            for kind in [
                "CREATE TABLE",
                " LIKE ",
                " SELECT * FROM",
                "DROP TABLE",
                "DROP DATABASE",
                "TRUNCATE TABLE",
                "RENAME",
                ", t",
                "CREATE INDEX",
                "DROP INDEX",
                "ALTER",
                "ADD PARTITION (",
                "ADD PARTITION PARTITIONS",
                "COALESCE PARTITION",
                "DROP PARTITION",
                "REORGANIZE PARTITION",
                "EXCHANGE PARTITION",
                "TRUNCATE PARTITION",
                "REMOVE PARTITIONING",
                "OPTIMIZE",
                "COMMIT",
                "INSERT",
            ] {
                if statement.contains(kind) {
                    kinds.insert(kind);
                }
            }
            tables.world = change.after;
        }
        assert_eq!(kinds.len(), 22, "{kinds:?}");
    }
}
