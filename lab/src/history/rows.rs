//! The table of a load, and what its rows say.
//!
//! Invariant: what is read is told as the versions that were written, in their order.
//!
//! Rejected: a table for each kind of key (a transaction over several kinds would not meet in one index).

use super::shared::Shared;
use super::{Action, Key, KeyKind, Outcome, Statement, Transaction, Value, Version};
use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use std::sync::atomic::Ordering;

/// The database of the load.
pub const DATABASE: &str = "history";

/// Rows of an id and a value.
pub(super) type Rows = Vec<(u32, Option<String>)>;

/// Makes the table.
pub fn create(instance: &Instance) -> Result<()> {
    let mut conn = instance.fresh_database(DATABASE)?;
    conn.query_drop(format!(
        "CREATE TABLE {DATABASE}.obj (
            id INT NOT NULL PRIMARY KEY, grp INT NOT NULL, last INT NOT NULL, l VARCHAR(2000) NOT NULL,
            pad VARCHAR(2000) NOT NULL, KEY by_group (grp, last)) ENGINE={}",
        instance.kind().sql()
    ))?;
    Ok(())
}

/// Reads the whole table, by the table and by the index, as transactions of one more session.
pub fn read_everything(instance: &Instance, shared: &Shared) -> Result<Vec<Transaction>> {
    let mut conn = instance.connect(Some(DATABASE))?;
    let mut transactions = Vec::new();
    for query in ["SELECT id, l FROM obj FORCE INDEX (PRIMARY)", "SELECT id, last FROM obj FORCE INDEX (by_group)"] {
        let asked: Vec<Key> = (1..shared.next_id.load(Ordering::SeqCst)).map(Key).collect();
        let begin = shared.now();
        let rows: Rows = conn.query(query).with_context(|| format!("{query} failed"))?;
        let end = shared.now();
        let action = Action::Read { locking: false, group: None, seen: seen(rows, &asked, query.contains("last"))? };
        let statements = vec![Statement { begin, end, failed: false, action }];
        let session = shared.kills.len() as u32;
        transactions.push(Transaction { session, alone: true, statements, outcome: Outcome::Committed, begin, end });
    }
    Ok(transactions)
}

/// A locking statement found no such row.
pub(super) fn absent(key: Key) -> Action {
    Action::Read { locking: true, group: None, seen: vec![(key, Value::Absent)] }
}

/// What rows of an id and a value say, and what is said by the lack of a row that was asked for.
pub(super) fn seen(rows: Rows, asked: &[Key], only_last: bool) -> Result<Vec<(Key, Value)>> {
    let mut seen = Vec::new();
    for (id, text) in rows {
        let text = text.unwrap_or_default();
        let parse = |word: &str| word.parse::<Version>().with_context(|| format!("row {id} holds '{text}'"));
        let key = Key(id);
        let versions = text.split(',').map(parse).collect::<Result<Vec<_>>>()?;
        let last = versions[versions.len() - 1];
        let whole = !only_last && key.kind() != KeyKind::Register;
        seen.push((key, if whole { Value::List(versions) } else { Value::Last(last) }));
    }
    let have: std::collections::HashSet<Key> = seen.iter().map(|(key, _)| *key).collect();
    seen.extend(asked.iter().filter(|key| !have.contains(key)).map(|key| (*key, Value::Absent)));
    Ok(seen)
}
