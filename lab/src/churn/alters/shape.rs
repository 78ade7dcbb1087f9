//! The definition of the altered table: its columns in order, its indexes, and the changes that are made to it.

use anyhow::Result;
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

/// Columns that may be added.
const COLUMNS_MAX: usize = 7;
/// Secondary indexes that there may be at once.
const INDEXES_MAX: usize = 4;
/// What the name of a unique index begins with.
const UNIQUE: char = 'u';
/// The keys that rows may lie by; all of them are unique, since `id` is.
const PRIMARIES: [&[&str]; 4] = [&["id"], &["v", "id"], &["id", "v"], &["v DESC", "id DESC"]];

/// How much of the table Strata looks at for a change, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// At no row.
    Instant,
    /// Indexes are made beside writers.
    Indexes,
    /// All rows are written anew beside writers.
    Rebuild,
    /// All rows are copied, and writers wait.
    Copy,
}

impl Way {
    /// What a statement says to be refused rather than done in a worse way.
    pub fn demand(self) -> &'static str {
        match self {
            Way::Instant => ", ALGORITHM=INSTANT",
            Way::Indexes => ", ALGORITHM=NOCOPY, LOCK=NONE",
            Way::Rebuild => ", ALGORITHM=INPLACE, LOCK=NONE",
            Way::Copy => ", ALGORITHM=COPY",
        }
    }
}

/// A type, as the server shows it, by which values it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    BigInt,
    /// So many characters.
    Text(u32),
}

impl Kind {
    fn sql(self) -> String {
        match self {
            Kind::Int => "int(11)".into(),
            Kind::BigInt => "bigint(20)".into(),
            Kind::Text(length) => format!("varchar({length})"),
        }
    }

    /// The next larger type, which the values of this one fit into as they are stored.
    fn wider(self) -> Option<Kind> {
        match self {
            Kind::Int => Some(Kind::BigInt),
            Kind::BigInt => None,
            Kind::Text(length) => (length < 60).then_some(Kind::Text(length + 7)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    kind: Kind,
    nullable: bool,
    /// As SQL. `None`: one of the first columns, which writers fill.
    default: Option<String>,
}

impl Column {
    fn sql(&self) -> String {
        let null = if self.nullable { "NULL" } else { "NOT NULL" };
        let default = self.default.as_ref().map_or(String::new(), |default| format!(" DEFAULT {default}"));
        format!("{} {} {null}{default}", self.name, self.kind.sql())
    }
}

/// The definition of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    columns: Vec<Column>,
    /// Of the first columns.
    primary: Vec<String>,
    /// Names, and the columns as they stand in a definition. The names of unique ones begin with [`UNIQUE`].
    indexes: BTreeMap<String, Vec<String>>,
    /// Number of the last name that was given.
    names: u32,
}

/// A statement and what it makes of the table.
pub struct Change {
    pub statement: String,
    pub after: Shape,
    /// How Strata does it.
    pub way: Way,
}

/// A clause of ALTER TABLE, and how Strata does it.
type Clause = (String, Way);

/// What an index of this name is.
fn kind(name: &str) -> &'static str {
    if name == "PRIMARY" || name.starts_with(UNIQUE) { "UNIQUE KEY" } else { "KEY" }
}

impl Shape {
    /// The definition before any change.
    pub fn first() -> Shape {
        let column = |name: &str, kind| Column { name: name.into(), kind, nullable: false, default: None };
        Shape {
            columns: vec![column("id", Kind::BigInt), column("v", Kind::BigInt), column("b", Kind::Text(300))],
            primary: vec!["id".into()],
            indexes: BTreeMap::from([("k0".into(), vec!["v".into()])]),
            names: 0,
        }
    }

    /// What stands between the parentheses of CREATE TABLE.
    pub fn definition(&self) -> String {
        let columns = self.columns.iter().map(Column::sql);
        let indexes =
            self.indexes.iter().map(|(name, columns)| format!("{} {name} ({})", kind(name), columns.join(",")));
        columns
            .chain([format!("PRIMARY KEY ({})", self.primary.join(","))])
            .chain(indexes)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Columns in order, then indexes by name, as [`Shape::observe`] has them.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.columns.iter().map(Column::sql);
        let line = |name: &str, columns: &[String]| format!("{} {name} ({})", kind(name), columns.join(","));
        let indexes = self.indexes.iter().map(|(name, columns)| line(name, columns));
        columns.chain([line("PRIMARY", &self.primary)]).chain(indexes).collect()
    }

    /// A condition on rows in which a column has not the value of its default.
    pub fn deviates(&self) -> String {
        let with_default = |column: &Column| Some(format!("NOT {} <=> {}", column.name, column.default.as_ref()?));
        let conditions: Vec<String> = self.columns.iter().filter_map(with_default).collect();
        if conditions.is_empty() { "FALSE".into() } else { conditions.join(" OR ") }
    }

    /// What a server shows of a table; `None` without a table.
    pub fn observe(conn: &mut Conn, database: &str, table: &str) -> Result<Option<Vec<String>>> {
        let place = format!("table_schema = '{database}' AND table_name = '{table}'");
        let columns: Vec<(String, String, String, Option<String>)> = conn.query(format!(
            "SELECT column_name, column_type, is_nullable, column_default FROM information_schema.columns
             WHERE {place} ORDER BY ordinal_position"
        ))?;
        if columns.is_empty() {
            return Ok(None);
        }
        // Not from the definition alone: the engine must open the table, too.
        conn.query_drop(format!("SELECT * FROM {database}.{table} LIMIT 1"))?;
        let mut lines: Vec<String> = Vec::new();
        for (name, kind, nullable, default) in columns {
            let null = if nullable == "YES" { "NULL" } else { "NOT NULL" };
            let default = default.map_or(String::new(), |default| format!(" DEFAULT {default}"));
            lines.push(format!("{name} {kind} {null}{default}"));
        }
        let parts: Vec<(String, String, Option<u32>, bool, String)> = conn.query(format!(
            "SELECT index_name, column_name, sub_part, non_unique, collation FROM information_schema.statistics
             WHERE {place} ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index"
        ))?;
        let mut indexes: Vec<(String, Vec<String>)> = Vec::new();
        for (index, column, length, is_plain, order) in parts {
            let part = length.map_or(column.clone(), |length| format!("{column}({length})"));
            let part = if order == "D" { format!("{part} DESC") } else { part };
            let index = format!("{} {index}", if is_plain { "KEY" } else { "UNIQUE KEY" });
            match indexes.last_mut() {
                Some((last, columns)) if *last == index => columns.push(part),
                _ => indexes.push((index, vec![part])),
            }
        }
        lines.extend(indexes.into_iter().map(|(name, columns)| format!("{name} ({})", columns.join(","))));
        Ok(Some(lines))
    }

    /// A change of one or two things.
    pub fn draw(&self, rng: &mut SmallRng) -> Change {
        let mut after = self.clone();
        // Where two columns may be added, what the second clause does is known: it does not meet the first.
        let has_room = self.added().len() + 2 <= COLUMNS_MAX;
        let clauses: Vec<Clause> = match rng.random_range(0..30) {
            0..5 => vec![after.add_column(rng, true)],
            5..8 => vec![after.drop_column(rng)],
            8..10 => vec![after.widen(rng)],
            10 => vec![after.allow_null(rng)],
            11..13 => vec![after.move_column(rng)],
            13..15 => vec![after.rename_column(rng)],
            15 => vec![after.rename_index(rng)],
            16 => vec![after.add_index(rng)],
            17 => vec![after.drop_index(rng)],
            18 if has_room => vec![after.drop_column(rng), after.add_column(rng, false)],
            19 if has_room => vec![after.add_column(rng, false), after.add_column(rng, false)],
            20..23 => vec![after.add_index(rng)],
            23 => vec![after.drop_index(rng), after.add_index(rng)],
            24..27 => vec![after.change_primary(rng)],
            27 | 28 => vec![("FORCE".into(), Way::Rebuild)],
            _ => vec![after.drop_column(rng)],
        };
        let way = clauses.iter().map(|clause| clause.1).max().unwrap_or(Way::Instant);
        let clauses: Vec<String> = clauses.into_iter().map(|clause| clause.0).collect();
        Change { statement: format!("ALTER TABLE t {}", clauses.join(", ")), after, way }
    }

    fn name(&mut self, letter: char) -> String {
        self.names += 1;
        format!("{letter}{}", self.names)
    }

    /// The places of columns that were added.
    fn added(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|at| self.columns[*at].default.is_some()).collect()
    }

    /// One of them, if there is any.
    fn any(&self, rng: &mut SmallRng) -> Option<usize> {
        let added = self.added();
        (!added.is_empty()).then(|| added[rng.random_range(0..added.len())])
    }

    fn is_indexed(&self, name: &str) -> bool {
        self.indexes.values().flatten().any(|part| part == name)
    }

    /// `anywhere`: at any place, which names another column; else the last.
    fn add_column(&mut self, rng: &mut SmallRng, anywhere: bool) -> Clause {
        if self.added().len() >= COLUMNS_MAX {
            return self.drop_column(rng);
        }
        let value = rng.random_range(-99..99);
        let (kind, default) = match rng.random_range(0..3) {
            0 => (Kind::Text(rng.random_range(5..20)), format!("'x{value}'")),
            1 => (Kind::BigInt, value.to_string()),
            _ => (Kind::Int, value.to_string()),
        };
        let nullable = rng.random_range(0..3) == 0;
        let column = Column { name: self.name('c'), kind, nullable, default: Some(default) };
        let sql = column.sql();
        let place = self.place(rng, column, anywhere);
        (format!("ADD COLUMN {sql}{place}"), Way::Instant)
    }

    /// Puts a column somewhere; how a statement says where.
    fn place(&mut self, rng: &mut SmallRng, column: Column, anywhere: bool) -> String {
        let at = if anywhere { rng.random_range(0..=self.columns.len()) } else { self.columns.len() };
        let place = match at {
            0 => " FIRST".into(),
            _ if !anywhere => String::new(),
            _ => format!(" AFTER {}", self.columns[at - 1].name),
        };
        self.columns.insert(at, column);
        place
    }

    fn drop_column(&mut self, rng: &mut SmallRng) -> Clause {
        match self.any(rng).filter(|at| !self.is_indexed(&self.columns[*at].name)) {
            Some(at) => (format!("DROP COLUMN {}", self.columns.remove(at).name), Way::Instant),
            None => self.add_index(rng),
        }
    }

    /// A type with room for more, or back to where it began, which is a copy.
    fn widen(&mut self, rng: &mut SmallRng) -> Clause {
        let Some(at) = self.any(rng) else { return self.add_column(rng, true) };
        let way = if self.is_indexed(&self.columns[at].name) { Way::Copy } else { Way::Instant };
        let column = &mut self.columns[at];
        match column.kind.wider() {
            Some(kind) => {
                column.kind = kind;
                (format!("MODIFY COLUMN {}", column.sql()), way)
            }
            None => {
                // The smallest that holds the default.
                column.kind = if matches!(column.kind, Kind::Text(_)) { Kind::Text(5) } else { Kind::Int };
                (format!("MODIFY COLUMN {}", column.sql()), Way::Copy)
            }
        }
    }

    fn allow_null(&mut self, rng: &mut SmallRng) -> Clause {
        let Some(at) = self.any(rng) else { return self.add_column(rng, true) };
        let is_instant = !self.is_indexed(&self.columns[at].name) && !self.columns[at].nullable;
        let way = if is_instant { Way::Instant } else { Way::Copy };
        let column = &mut self.columns[at];
        column.nullable = !column.nullable;
        (format!("MODIFY COLUMN {}", column.sql()), way)
    }

    fn move_column(&mut self, rng: &mut SmallRng) -> Clause {
        let column = self.columns.remove(rng.random_range(0..self.columns.len()));
        let sql = column.sql();
        let place = self.place(rng, column, true);
        (format!("MODIFY COLUMN {sql}{place}"), Way::Instant)
    }

    fn rename_column(&mut self, rng: &mut SmallRng) -> Clause {
        let Some(at) = self.any(rng) else { return self.add_column(rng, true) };
        let new = self.name('c');
        let old = std::mem::replace(&mut self.columns[at].name, new.clone());
        for part in self.indexes.values_mut().flatten().filter(|part| **part == old) {
            part.clone_from(&new);
        }
        (format!("RENAME COLUMN {old} TO {new}"), Way::Instant)
    }

    fn rename_index(&mut self, rng: &mut SmallRng) -> Clause {
        let Some(old) = self.any_index(rng) else { return self.add_index(rng) };
        let new = self.name(old.chars().next().unwrap_or('k'));
        let columns = self.indexes.remove(&old).unwrap_or_default();
        self.indexes.insert(new.clone(), columns);
        (format!("RENAME INDEX {old} TO {new}"), Way::Instant)
    }

    fn any_index(&self, rng: &mut SmallRng) -> Option<String> {
        let at = rng.random_range(0..self.indexes.len().max(1));
        self.indexes.keys().nth(at).cloned()
    }

    fn add_index(&mut self, rng: &mut SmallRng) -> Clause {
        if self.indexes.len() >= INDEXES_MAX {
            return self.drop_index(rng);
        }
        let mut columns: Vec<String> = match rng.random_range(0..3) {
            0 => vec!["v".into()],
            1 => vec!["b(9)".into(), "v".into()],
            _ => vec!["v".into(), "id".into()],
        };
        if let Some(at) = self.any(rng).filter(|_| rng.random_range(0..2) == 0) {
            columns.insert(0, self.columns[at].name.clone());
        }
        let has_id = columns.iter().any(|column| column == "id");
        let name = self.name(if has_id && rng.random_range(0..2) == 0 { UNIQUE } else { 'k' });
        let clause = format!("ADD {} {name} ({})", kind(&name), columns.join(", "));
        self.indexes.insert(name, columns);
        (clause, Way::Indexes)
    }

    /// Rows lie by another key.
    fn change_primary(&mut self, rng: &mut SmallRng) -> Clause {
        let others: Vec<&[&str]> = PRIMARIES.into_iter().filter(|key| self.primary != *key).collect();
        self.primary = others[rng.random_range(0..others.len())].iter().map(|part| part.to_string()).collect();
        (format!("DROP PRIMARY KEY, ADD PRIMARY KEY ({})", self.primary.join(", ")), Way::Rebuild)
    }

    fn drop_index(&mut self, rng: &mut SmallRng) -> Clause {
        let Some(name) = self.any_index(rng) else { return self.add_index(rng) };
        self.indexes.remove(&name);
        (format!("DROP INDEX {name}"), Way::Instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_kind_of_change_is_drawn() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut shape = Shape::first();
        let mut seen = String::new();
        for _ in 0..2000 {
            let change = shape.draw(&mut rng);
            assert_ne!(change.after.names, u32::MAX);
            seen.push_str(&change.statement);
            seen.push('\n');
            shape = change.after;
            assert!(shape.columns.len() <= COLUMNS_MAX + 4 && shape.indexes.len() <= INDEXES_MAX);
            for column in &shape.columns {
                let text = column.default.as_ref().is_none_or(|default| default.starts_with('\''));
                assert!(column.default.is_none() || text == matches!(column.kind, Kind::Text(_)), "{}", column.sql());
            }
            // Writers name these.
            assert!(["id", "v", "b"].iter().all(|name| shape.columns.iter().any(|column| column.name == *name)));
        }
        for kind in [
            "ADD COLUMN",
            " FIRST",
            " AFTER",
            "DROP COLUMN",
            "MODIFY COLUMN",
            "bigint",
            "RENAME COLUMN",
            "RENAME INDEX",
            "ADD KEY",
            "ADD UNIQUE KEY",
            "DROP INDEX",
            "DROP PRIMARY KEY, ADD PRIMARY KEY (v DESC, id DESC)",
            "FORCE",
            ", ADD COLUMN",
        ] {
            assert!(seen.contains(kind), "{kind}");
        }
    }

    #[test]
    fn names_follow_into_indexes() {
        let mut rng = SmallRng::seed_from_u64(2);
        let mut shape = Shape::first();
        shape.add_column(&mut rng, false);
        shape.indexes.insert("k9".into(), vec!["c1".into(), "v".into()]);
        let (clause, way) = shape.rename_column(&mut rng);
        assert_eq!((clause.as_str(), way), ("RENAME COLUMN c1 TO c2", Way::Instant));
        assert_eq!(shape.indexes["k9"], ["c2", "v"]);
        // A column of an index is not dropped.
        assert!(!shape.drop_column(&mut rng).0.starts_with("DROP COLUMN"));
    }
}
