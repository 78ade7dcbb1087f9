//! The shadow of a database: its tables, their rows, indexes and partitions, and the comparison with what a server has.

use anyhow::Result;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A row: the column `a`, and `c` where there is one.
pub type Row = (Option<i64>, Option<i64>);

/// How a table is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Not at all.
    Single,
    /// By `HASH (id)` into so many.
    Hash(i64),
    /// By `RANGE (id)`: names and ends, ascending.
    Range(Vec<(String, i64)>),
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `id` is the primary key, else a plain one.
    pub primary: bool,
    /// There is a column `c`.
    pub extra: bool,
    /// Names out of [`INDEXES`].
    pub indexes: BTreeSet<String>,
    pub parts: Parts,
    pub rows: BTreeMap<i64, Row>,
}

/// Secondary indexes that a table may have, with what follows the name.
pub const INDEXES: [(&str, &str); 4] = [("ka", "(a)"), ("kb", "(b(9))"), ("kd", "(a DESC, id)"), ("kx", "(id, b(3))")];
/// What `b` is; a torn row shows.
pub const TEXT: &str = "REPEAT(CHAR(97 + id % 26), 20 + id % 270)";

impl Table {
    /// The definition behind `CREATE TABLE name`.
    pub fn definition(&self, engine: &str) -> String {
        let mut parts = vec![
            format!("id BIGINT NOT NULL, {}", if self.primary { "PRIMARY KEY (id)" } else { "KEY ki (id)" }),
            "a INT".into(),
            "b VARCHAR(300) NOT NULL".into(),
        ];
        if self.extra {
            parts.push("c INT NOT NULL DEFAULT 7".into());
        }
        parts.extend(self.indexes.iter().map(|name| {
            let columns = INDEXES.iter().find(|index| index.0 == name).map_or("", |index| index.1);
            format!("KEY {name} {columns}")
        }));
        format!("({}) ENGINE={engine} {}", parts.join(", "), self.parts)
    }

    /// The partition of an id; 0 without partitions.
    pub fn part_of(&self, id: i64) -> usize {
        match &self.parts {
            Parts::Single => 0,
            Parts::Hash(n) => (id % n) as usize,
            Parts::Range(ends) => ends.iter().position(|end| id < end.1).unwrap_or(ends.len()),
        }
    }

    /// Whether two tables have the same columns and indexes.
    pub fn looks_like(&self, other: &Table) -> bool {
        self.primary == other.primary && self.extra == other.extra && self.indexes == other.indexes
    }

    /// Every partition is as in one or in the other, which have the same partitions.
    fn mixed(&self, old: &Table, new: &Table) -> bool {
        let count = match &self.parts {
            Parts::Single => 1,
            Parts::Hash(n) => *n as usize,
            Parts::Range(ends) => ends.len(),
        };
        let part = |table: &Table, number: usize| -> BTreeMap<i64, Row> {
            table.rows.iter().filter(|(id, _)| self.part_of(**id) == number).map(|(id, row)| (*id, *row)).collect()
        };
        self.parts == old.parts
            && self.parts == new.parts
            && self.looks_like(old)
            && self.looks_like(new)
            && (0..count).all(|n| part(self, n) == part(old, n) || part(self, n) == part(new, n))
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Parts::Single => Ok(()),
            Parts::Hash(n) => write!(f, "PARTITION BY HASH (id) PARTITIONS {n}"),
            Parts::Range(ends) => {
                let ends: Vec<String> = ends.iter().map(|end| ranged(&end.0, end.1)).collect();
                write!(f, "PARTITION BY RANGE (id) ({})", ends.join(", "))
            }
        }
    }
}

/// A partition by range as it stands in a statement.
pub fn ranged(name: &str, end: i64) -> String {
    format!("PARTITION {name} VALUES LESS THAN ({end})")
}

/// The tables of a database by name.
pub type World = BTreeMap<String, Table>;

/// What a crash may divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Nothing.
    Whole,
    /// The server drops table by table.
    EachTable,
    /// The server empties partition by partition.
    EachPartition,
}

/// Reads what a server has. What is wrong in itself is told.
pub fn observe(conn: &mut Conn, database: &str, wrong: &mut Vec<String>) -> Result<World> {
    let tables: Vec<(String, String)> = conn.query(format!(
        "SELECT table_name, COALESCE(engine, '') FROM information_schema.tables WHERE table_schema = '{database}'"
    ))?;
    let mut world = World::new();
    for (name, engine) in tables {
        if engine.is_empty() {
            wrong.push(format!("{name} is listed and cannot be opened"));
            continue;
        }
        match table(conn, database, &name, wrong) {
            Ok(table) => {
                world.insert(name, table);
            }
            Err(error) => wrong.push(format!("{name} cannot be read: {error}")),
        }
    }
    Ok(world)
}

fn table(conn: &mut Conn, database: &str, name: &str, wrong: &mut Vec<String>) -> Result<Table> {
    let place = format!("table_schema = '{database}' AND table_name = '{name}'");
    let columns: Vec<String> =
        conn.query(format!("SELECT column_name FROM information_schema.columns WHERE {place}"))?;
    let extra = columns.iter().any(|column| column == "c");
    let mut indexes: BTreeSet<String> = conn
        .query::<String, _>(format!("SELECT DISTINCT index_name FROM information_schema.statistics WHERE {place}"))?
        .into_iter()
        .collect();
    let primary = indexes.remove("PRIMARY");
    indexes.remove("ki");
    type Part = (Option<String>, Option<String>, Option<String>);
    let parts: Vec<Part> = conn.query(format!(
        "SELECT partition_name, partition_method, partition_description FROM information_schema.partitions
         WHERE {place} ORDER BY partition_ordinal_position"
    ))?;
    let parts = match parts.first().and_then(|part| part.1.as_deref()) {
        None => Parts::Single,
        Some("HASH") => Parts::Hash(parts.len() as i64),
        Some(_) => Parts::Range(
            parts
                .into_iter()
                .map(|part| (part.0.unwrap_or_default(), part.2.and_then(|end| end.parse().ok()).unwrap_or(-1)))
                .collect(),
        ),
    };
    let c = if extra { "c" } else { "NULL" };
    let found: Vec<(i64, Option<i64>, Option<i64>, bool)> =
        conn.query(format!("SELECT id, a, {c}, b = {TEXT} FROM {database}.{name}"))?;
    let mut rows = BTreeMap::new();
    for (id, a, c, whole) in found {
        if !whole {
            wrong.push(format!("{name}: the text of row {id} is not what was written"));
        }
        if rows.insert(id, (a, c)).is_some() {
            wrong.push(format!("{name}: row {id} is there twice"));
        }
    }
    Ok(Table { primary, extra, indexes, parts, rows })
}

/// Whether what is found is what was there or what was to come. Returns what speaks against it.
pub fn judge(old: &World, new: Option<(&World, Grain)>, found: &World) -> Vec<String> {
    let Some((new, grain)) = new else { return differences(old, found, "acknowledged") };
    if found == old || found == new {
        return Vec::new();
    }
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).chain(found.keys()).collect();
    let passes = |name: &String| {
        let (old, new, found) = (old.get(name), new.get(name), found.get(name));
        match grain {
            Grain::Whole => false,
            Grain::EachTable => found == old || found == new,
            Grain::EachPartition => match (found, old, new) {
                (Some(found), Some(old), Some(new)) => found.mixed(old, new),
                _ => found == old,
            },
        }
    };
    if names.into_iter().all(passes) {
        return Vec::new();
    }
    let mut wrong = vec!["neither as before the statement in flight nor as after it".to_string()];
    wrong.extend(differences(old, found, "before"));
    wrong.extend(differences(new, found, "after"));
    wrong
}

fn differences(wanted: &World, found: &World, what: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, table) in wanted {
        match found.get(name) {
            None => wrong.push(format!("{what}: {name} with {} rows; it is not there", table.rows.len())),
            Some(have) if have != table => {
                wrong.push(format!("{what}: {name} {}", difference(table, have)));
            }
            Some(_) => {}
        }
    }
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        wrong.push(format!("{what}: no {name}; it is there with {} rows", found[name].rows.len()));
    }
    wrong
}

fn difference(wanted: &Table, found: &Table) -> String {
    let mut parts = Vec::new();
    if !wanted.looks_like(found) || wanted.parts != found.parts {
        let shape = |t: &Table| format!("primary {}, c {}, {:?}, {:?}", t.primary, t.extra, t.indexes, t.parts);
        parts.push(format!("is ({}), found ({})", shape(wanted), shape(found)));
    }
    if wanted.rows != found.rows {
        let ids: BTreeSet<&i64> = wanted.rows.keys().chain(found.rows.keys()).collect();
        let other: Vec<String> = ids
            .into_iter()
            .filter(|id| wanted.rows.get(id) != found.rows.get(id))
            .take(5)
            .map(|id| format!("row {id}: {:?}, found {:?}", wanted.rows.get(id), found.rows.get(id)))
            .collect();
        parts.push(format!("has {} rows, found {}: {}", wanted.rows.len(), found.rows.len(), other.join("; ")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(parts: Parts, ids: &[i64]) -> Table {
        let rows = ids.iter().map(|id| (*id, (Some(1), None))).collect();
        Table { primary: true, extra: false, indexes: BTreeSet::new(), parts, rows }
    }

    fn world(tables: &[(&str, Table)]) -> World {
        tables.iter().map(|(name, table)| (name.to_string(), table.clone())).collect()
    }

    #[test]
    fn what_was_acknowledged_must_be_found() {
        let (one, two) = (table(Parts::Single, &[1, 2]), table(Parts::Single, &[1]));
        let old = world(&[("t", one.clone())]);
        assert!(judge(&old, None, &old).is_empty());
        assert_eq!(judge(&old, None, &world(&[("t", two)])).len(), 1);
        assert_eq!(judge(&old, None, &World::new()).len(), 1);
        assert_eq!(judge(&old, None, &world(&[("t", one.clone()), ("u", one)])).len(), 1);
    }

    #[test]
    fn what_was_in_flight_is_old_or_new() {
        let (one, two) = (table(Parts::Single, &[1]), table(Parts::Single, &[2]));
        let old = world(&[("t", one.clone()), ("u", two.clone())]);
        let new = world(&[("t", two.clone()), ("u", one.clone())]);
        let between = world(&[("t", one), ("u", World::from([("x".into(), two.clone())])["x"].clone())]);
        assert!(judge(&old, Some((&new, Grain::Whole)), &old).is_empty());
        assert!(judge(&old, Some((&new, Grain::Whole)), &new).is_empty());
        assert!(judge(&old, Some((&new, Grain::Whole)), &between).is_empty());
        let neither = world(&[("t", two)]);
        assert!(!judge(&old, Some((&new, Grain::Whole)), &neither).is_empty());
        assert!(!judge(&old, Some((&new, Grain::EachTable)), &neither).is_empty());
    }

    #[test]
    fn some_statements_are_divided_by_table_or_partition() {
        let hash = |ids: &[i64]| world(&[("t", table(Parts::Hash(2), ids)), ("u", table(Parts::Single, &[9]))]);
        let (old, new, half) = (hash(&[1, 2, 3, 4]), hash(&[]), hash(&[1, 3]));
        assert!(judge(&old, Some((&new, Grain::EachPartition)), &half).is_empty());
        assert!(!judge(&old, Some((&new, Grain::EachPartition)), &hash(&[1])).is_empty());
        assert!(!judge(&old, Some((&new, Grain::Whole)), &half).is_empty());
        let dropped = world(&[("u", table(Parts::Single, &[9]))]);
        assert!(judge(&old, Some((&World::new(), Grain::EachTable)), &dropped).is_empty());
        assert!(!judge(&old, Some((&World::new(), Grain::EachTable)), &half).is_empty());
    }
}
