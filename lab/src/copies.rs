//! What two servers hold in the databases of a load, compared: definitions, sums of the rows, places of sequences. Where the
//! rows of a table differ, some that only one of them has are told: they say which transaction is missing or torn.

use crate::{churn, definer, held, ledger, tpcc};
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use mysql::{Conn, Row};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of each side that are told of a table.
const TOLD_ROWS: usize = 8;

/// What two servers have in the databases of the load: definition and content of each table.
type Contents = BTreeMap<String, (String, Option<Content>)>;

/// What is compared of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Checksum(u64),
    /// Of a sequence, what its next reservation begins with.
    Next(i64),
}

impl Content {
    /// A source that was killed may have reserved values of a sequence that it had neither handed out nor logged: its sequence
    /// goes on behind them, the replica's may hand them out.
    fn is_copied_by(self, replica: Content) -> bool {
        match (self, replica) {
            (Content::Next(source), Content::Next(replica)) => replica <= source,
            (source, replica) => source == replica,
        }
    }
}

fn contents(conn: &mut Conn) -> Result<Contents> {
    let tables: Vec<(String, bool)> = conn.query(format!(
        "SELECT CONCAT(table_schema, '.', table_name), table_type = 'SEQUENCE' FROM information_schema.tables
         WHERE table_schema IN ('{}', '{}', '{}', '{}') OR table_schema LIKE '{}%'",
        ledger::DATABASE,
        tpcc::DATABASE,
        definer::DATABASE,
        held::DATABASE,
        churn::PREFIX
    ))?;
    let mut contents = Contents::new();
    for (table, is_sequence) in tables {
        let definition: Option<(String, String)> = conn.query_first(format!("SHOW CREATE TABLE {table}"))?;
        let (_, definition) = definition.with_context(|| format!("{table} cannot be read"))?;
        let content = if is_sequence {
            conn.query_first(format!("SELECT next_not_cached_value FROM {table}"))?.map(Content::Next)
        } else {
            let sum: Option<(String, Option<u64>)> = conn.query_first(format!("CHECKSUM TABLE {table}"))?;
            sum.and_then(|(_, sum)| sum).map(Content::Checksum)
        };
        contents.insert(table, (without_counter(&definition), content));
    }
    Ok(contents)
}

/// A definition without the next value of auto-increment: each server goes on in its own way.
fn without_counter(definition: &str) -> String {
    const WORD: &str = " AUTO_INCREMENT=";
    match definition.split_once(WORD) {
        Some((before, after)) => before.to_string() + after.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => definition.to_string(),
    }
}

/// What the two servers differ in. That they have tables, and can read them, is part of it.
pub fn differences(source: &mut Conn, replica: &mut Conn) -> Result<Vec<String>> {
    let mut wrong = compare(&contents(source)?, &contents(replica)?);
    for Wrong { table, text, by_rows } in &mut wrong {
        if *by_rows {
            *text += &unlike(&rows(source, table)?, &rows(replica, table)?);
        }
    }
    Ok(wrong.into_iter().map(|wrong| wrong.text).collect())
}

/// One difference.
#[derive(Debug)]
struct Wrong {
    table: String,
    text: String,
    /// Both have the table, with other rows.
    by_rows: bool,
}

fn compare(source: &Contents, replica: &Contents) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let mut tell = |table: &str, text: String, by_rows| wrong.push(Wrong { table: table.into(), text, by_rows });
    if source.len() <= 3 {
        tell("", format!("there are only {} tables", source.len()), false);
    }
    for (table, (definition, content)) in source {
        match replica.get(table) {
            None => tell(table, format!("{table} is missing"), false),
            Some((other, _)) if definition != other => {
                tell(table, format!("{table} is defined otherwise: {definition} / {other}"), false);
            }
            Some((_, other)) if !content.zip(*other).is_some_and(|(source, copy)| source.is_copied_by(copy)) => {
                let by_rows = matches!((content, other), (Some(Content::Checksum(_)), Some(Content::Checksum(_))));
                tell(table, format!("{table} differs: {content:?} / {other:?}"), by_rows);
            }
            Some(_) => {}
        }
    }
    for table in replica.keys().filter(|table| !source.contains_key(*table)) {
        tell(table, format!("{table} is too much"), false);
    }
    wrong
}

/// All rows of a table, as text.
fn rows(conn: &mut Conn, table: &str) -> Result<BTreeSet<String>> {
    let rows: Vec<Row> = conn.query(format!("SELECT * FROM {table}"))?;
    let text = |row: Row| row.unwrap().iter().map(|value| value.as_sql(true)).collect::<Vec<_>>().join(", ");
    Ok(rows.into_iter().map(text).collect())
}

/// Some of the rows that only one side has.
fn unlike(source: &BTreeSet<String>, replica: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for (what, these, those) in [("source", source, replica), ("replica", replica, source)] {
        let alone: Vec<&String> = these.difference(those).collect();
        text += &format!("\n  only the {what} has {} rows", alone.len());
        for row in alone.iter().take(TOLD_ROWS) {
            text += &format!("\n    ({row})");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_value_is_no_part_of_a_definition() {
        let definition = |n| format!("CREATE TABLE t (a INT AUTO_INCREMENT) ENGINE=X{n} DEFAULT CHARSET=utf8mb4");
        assert_eq!(without_counter(&definition(" AUTO_INCREMENT=512")), definition(""));
        assert_eq!(without_counter(&definition("")), definition(""));
    }

    #[test]
    fn each_difference_is_told() {
        let tables: Contents =
            (1..=4).map(|n| (format!("t{n}"), ("(a INT)".to_string(), Some(Content::Checksum(n))))).collect();
        let changed = |change: &dyn Fn(&mut Contents)| {
            let mut other = tables.clone();
            change(&mut other);
            compare(&tables, &other).len()
        };
        assert_eq!(changed(&|_| {}), 0);
        assert_eq!(changed(&|t| t.get_mut("t1").unwrap().1 = Some(Content::Checksum(7))), 1);
        assert_eq!(changed(&|t| t.get_mut("t1").unwrap().1 = Some(Content::Next(1))), 1);
        assert_eq!(changed(&|t| t.get_mut("t1").unwrap().1 = None), 1);
        assert_eq!(changed(&|t| t.get_mut("t2").unwrap().0.push(' ')), 1);
        assert_eq!(changed(&|t| drop(t.remove("t3"))), 1);
        assert_eq!(changed(&|t| drop(t.insert("t5".into(), Default::default()))), 1);
        let unreadable: Contents = tables.keys().map(|t| (t.clone(), Default::default())).collect();
        assert_eq!(compare(&unreadable, &unreadable).len(), 4);
        assert_eq!(compare(&Contents::new(), &Contents::new()).len(), 1);
        let ahead = |source, replica| !Content::Next(source).is_copied_by(Content::Next(replica));
        assert_eq!((ahead(5, 5), ahead(25, 5), ahead(5, 25)), (false, false, true));
    }
    #[test]
    fn rows_of_one_side_are_told() {
        let rows = |all: &[&str]| all.iter().map(|row| row.to_string()).collect::<BTreeSet<_>>();
        let told = unlike(&rows(&["1, 'a'", "2, 'b'"]), &rows(&["1, 'a'", "2, 'c'"]));
        assert!(told.contains("(2, 'b')") && told.contains("(2, 'c')") && !told.contains("'a'"), "{told}");
        let many: BTreeSet<String> = (0..100).map(|n| n.to_string()).collect();
        let told = unlike(&many, &rows(&[]));
        assert!(told.contains("100 rows") && told.lines().count() == TOLD_ROWS + 3, "{told}");
    }
}
