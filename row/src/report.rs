//! Locks, waits and transactions for people: numbers of indexes become names, keys become values where that is simple.
//!
//! Of a key the integers and NULLs are shown as such; from the first part of another type on, the bytes. The catalog is
//! enough for that, so locks of tables that nobody has open are shown as well.

use crate::catalog::define::Names;
use crate::def::{ColumnType, IndexKind};
use crate::foreign::key::is_passive;
use crate::kv::{IndexId, LockKind, LockMode, WaitInfo};
use crate::progress::Progress;
use crate::schema::{StoredIndex, TableMeta};
use crate::store::{NotedDeadlock, Store};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

pub mod storage;

/// A value of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// A row of a report.
pub type Row = Vec<Cell>;

fn text(what: impl Into<String>) -> Cell {
    Cell::Text(what.into())
}

/// What a key belongs to.
struct IndexOwner {
    table: String,
    meta: Arc<TableMeta>,
    /// `None`: the rows of a table without primary key.
    index: Option<usize>,
}

/// All indexes, by number.
struct IndexNames(HashMap<IndexId, IndexOwner>);

impl IndexNames {
    fn new(store: &Store) -> IndexNames {
        let mut places = HashMap::new();
        for name in store.catalog().names("") {
            // Dropped since it was listed.
            let Ok(meta) = store.catalog().get(&name) else { continue };
            let table = name.trim_start_matches("./").replacen('/', ".", 1);
            let place = |index| IndexOwner { table: table.clone(), meta: meta.clone(), index };
            for (i, index) in meta.indexes.iter().enumerate() {
                places.insert(index.id, place(Some(i)));
            }
            if let Some(hidden) = meta.hidden {
                places.insert(hidden, place(None));
            }
        }
        IndexNames(places)
    }

    /// Names of the table and the index, and the key's values.
    fn describe(&self, key: &[u8]) -> [String; 3] {
        let Some((id, rest)) = key.split_first_chunk::<4>() else {
            return [String::new(), String::new(), hex(key)];
        };
        let id = IndexId(u32::from_be_bytes(*id));
        let Some(place) = self.0.get(&id) else {
            return [String::new(), format!("index {id}"), hex(rest)];
        };
        let index = place.index.map_or("(row number)".to_owned(), |i| place.meta.indexes[i].name.clone());
        [place.table.clone(), index, values(&place.meta, place.index, rest)]
    }

    /// As `describe`, of something locked or to be locked.
    fn describe_lock(&self, key: &[u8], kind: &LockKind) -> [String; 3] {
        let [table, index, key] = self.describe(key);
        [table, index, if *kind == LockKind::NewKeys { "(all new)".to_owned() } else { key }]
    }

    /// The end of an interval that begins in the index of `from`.
    fn describe_end(&self, from: &[u8], end: &[u8]) -> String {
        match from.get(..4) == end.get(..4) {
            true => self.describe(end)[2].clone(),
            false => "(end)".to_owned(),
        }
    }
}

/// Bytes as SQL writes them in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The next part of a key as text, if it is NULL or an integer.
fn simple_value(meta: &TableMeta, column: u32, descending: bool, rest: &mut &[u8]) -> Option<String> {
    let column = meta.columns.get(column as usize)?;
    let turn = if descending { 0xff } else { 0 };
    if column.nullable {
        let (marker, after) = rest.split_first()?;
        match marker ^ turn {
            0 => {
                *rest = after;
                return Some("NULL".to_owned());
            }
            1 => {}
            _ => return None,
        }
    }
    let ColumnType::Int { unsigned } = column.kind else { return None };
    let bytes = rest.get(usize::from(column.nullable)..)?;
    let (bytes, after) = bytes.split_at_checked(column.size as usize)?;
    let value = bytes.iter().fold(0u64, |n, b| n << 8 | u64::from(b ^ turn));
    *rest = after;
    let half = 1i128 << (8 * column.size - 1);
    Some((i128::from(value) - if unsigned { 0 } else { half }).to_string())
}

/// Values of a key, or of the beginning of one, without the index number.
fn values(meta: &TableMeta, index: Option<usize>, mut rest: &[u8]) -> String {
    let index: Option<&StoredIndex> = index.and_then(|i| meta.indexes.get(i));
    if index.is_some_and(|i| i.kind != IndexKind::ORDINARY) {
        // Its keys hold no values of columns.
        return hex(rest);
    }
    let primary = meta.primary.and_then(|p| meta.indexes.get(p));
    let own = index.into_iter().flat_map(|i| &i.parts);
    let suffix = primary.into_iter().flat_map(|p| &p.parts).filter(|part| {
        !index.is_some_and(|i| i.parts.iter().any(|own| own.column == part.column && own.length == part.length))
    });
    let mut shown = Vec::new();
    for part in own.chain(suffix) {
        if rest.is_empty() {
            break;
        }
        let Some(value) = simple_value(meta, part.column, part.descending, &mut rest) else { break };
        shown.push(value);
    }
    match rest {
        [] if shown.is_empty() => "(start)".to_owned(),
        [] => shown.join(", "),
        // The least key above the values.
        [0] if !shown.is_empty() => shown.join(", ") + " +",
        _ => {
            let row_number = <[u8; 8]>::try_from(rest).ok().filter(|_| meta.hidden.is_some());
            shown.push(row_number.map_or_else(|| hex(rest), |n| format!("row {}", u64::from_be_bytes(n))));
            shown.join(", ")
        }
    }
}

fn kind_name(kind: &LockKind) -> &'static str {
    match kind {
        LockKind::Row(LockMode::Shared) => "ROW SHARED",
        LockKind::Row(LockMode::Exclusive) => "ROW EXCLUSIVE",
        LockKind::Range { .. } => "INTERVAL",
        LockKind::Insert => "INSERT",
        LockKind::NewKeys => "NEW KEYS",
    }
}

/// Connections of transactions, by number of the transaction.
fn connections(store: &Store) -> HashMap<u64, u64> {
    let open = store.sessions().into_iter().filter_map(|s| s.transaction());
    open.map(|t| (t.owner.id(), t.connection)).collect()
}

/// All locks: transaction, connection, state, type, table, index, key, end of an interval.
pub fn locks(store: &Store) -> Vec<Row> {
    let (names, connections) = (IndexNames::new(store), connections(store));
    let row = |lock: crate::kv::LockInfo| {
        let [table, index, key] = names.describe_lock(&lock.key, &lock.kind);
        let end = match &lock.kind {
            LockKind::Range { end } => names.describe_end(&lock.key, end),
            _ => String::new(),
        };
        vec![
            Cell::Number(lock.owner),
            Cell::Number(connections.get(&lock.owner).copied().unwrap_or(0)),
            text(if lock.waiting { "WAITING" } else { "HELD" }),
            text(kind_name(&lock.kind)),
            text(table),
            text(index),
            text(key),
            text(end),
        ]
    };
    store.engine().locks().snapshot().into_iter().map(row).collect()
}

/// Who waits for whom: transaction, connection, type, table, index, key, blocking transaction and connection.
pub fn lock_waits(store: &Store) -> Vec<Row> {
    let (names, connections) = (IndexNames::new(store), connections(store));
    let mut rows = Vec::new();
    for wait in store.engine().locks().waits() {
        let [table, index, key] = names.describe_lock(&wait.key, &wait.kind);
        for blocker in wait.blockers {
            rows.push(vec![
                Cell::Number(wait.owner),
                Cell::Number(wait.tag),
                text(kind_name(&wait.kind)),
                text(table.clone()),
                text(index.clone()),
                text(key.clone()),
                Cell::Number(blocker),
                Cell::Number(connections.get(&blocker).copied().unwrap_or(0)),
            ]);
        }
    }
    rows
}

/// Open transactions: number, connection, seconds, isolation level, changes, row locks, state, id. Those that are prepared and that no
/// session holds come last: only they have an id, as `show_xid` shows it; since when they are there nobody knows.
pub fn transactions(store: &Store, show_xid: &dyn Fn(&[u8]) -> String) -> Vec<Row> {
    let waiting: Vec<u64> = store.engine().locks().waits().into_iter().map(|w| w.owner).collect();
    let now = store.engine().now_us();
    let open = store.sessions().into_iter().filter_map(|s| s.transaction());
    open.map(|t| {
        vec![
            Cell::Number(t.owner.id()),
            Cell::Number(t.connection),
            Cell::Number(now.saturating_sub(t.began_us) / 1_000_000),
            text(t.isolation),
            Cell::Number(t.owner.weight()),
            Cell::Number(t.owner.lock_count() as u64),
            text(if waiting.contains(&t.owner.id()) { "WAITING" } else { "RUNNING" }),
            text(""),
        ]
    })
    .chain(store.engine().prepared_owners().into_iter().map(|(xid, owner)| {
        vec![
            Cell::Number(owner.id()),
            Cell::Number(0),
            Cell::Number(0),
            text(""),
            Cell::Number(owner.weight()),
            Cell::Number(owner.lock_count() as u64),
            text("PREPARED"),
            text(show_xid(&xid)),
        ]
    }))
    .collect()
}

/// The latest deadlock that was noted, as a part of the status report; empty if there was none.
pub fn deadlock(store: &Store) -> String {
    let Some(noted) = store.latest_deadlock() else {
        return String::new();
    };
    let seconds = store.engine().now_us().saturating_sub(noted.at_us) / 1_000_000;
    format!("\nLATEST DEADLOCK\n{seconds} s ago:\n{}", deadlock_text(store, &noted))
}

/// A deadlock in words, a line for each of its transactions and one for the victim.
pub fn deadlock_text(store: &Store, noted: &NotedDeadlock) -> String {
    let deadlock = &noted.deadlock;
    let names = IndexNames::new(store);
    let who = |wait: &WaitInfo| format!("transaction {} of connection {}", wait.owner, wait.tag);
    let mut out = String::new();
    for (i, wait) in deadlock.waits.iter().enumerate() {
        let next = &deadlock.waits[(i + 1) % deadlock.waits.len()];
        let [table, index, key] = names.describe_lock(&wait.key, &wait.kind);
        let wanted = match wait.kind {
            LockKind::Row(LockMode::Shared) | LockKind::NewKeys => "to read with a lock",
            LockKind::Row(LockMode::Exclusive) => "to lock for a change",
            LockKind::Range { .. } | LockKind::Insert => "to insert into an interval locked around",
        };
        let _ = write!(
            out,
            "{} ({} changes) wanted {wanted} key ({key}) of table {table}, index {index}, and waited for {}",
            who(wait),
            wait.weight,
            who(next)
        );
        match noted.statements.get(i).and_then(Option::as_ref) {
            Some(statement) => drop(writeln!(out, ", in: {statement}")),
            None => out.push('\n'),
        }
    }
    if let Some(victim) = deadlock.waits.iter().find(|w| w.owner == deadlock.victim) {
        let _ = writeln!(out, "{} was rolled back: it had changed least", who(victim));
    }
    out
}

/// What a foreign key refused last, as a part of the status report; empty if there was nothing.
pub fn foreign_error(store: &Store) -> String {
    let Some(noted) = store.latest_foreign_error() else {
        return String::new();
    };
    let seconds = store.engine().now_us().saturating_sub(noted.at_us) / 1_000_000;
    let statement = noted.statement.map_or(String::new(), |statement| format!(", in: {statement}"));
    format!("\nLATEST FOREIGN KEY ERROR\n{seconds} s ago: {}{statement}\n", noted.what)
}

/// The foreign keys of all tables as rows: name, child, parent, columns of both, actions when the parent row is deleted and
/// updated, the child's and the parent's index. Names of tables are those of the catalog.
pub fn foreign_keys(store: &Store) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in store.catalog().names("") {
        let Some(relations) = store.catalog().related(&name).ok().and_then(|related| related.get()) else { continue };
        for reference in relations.parents.iter().filter(|_| !is_passive(&name)) {
            let key = &reference.key;
            let index = |table: &str, number: Option<usize>| {
                let meta = store.catalog().get(table).ok();
                let index =
                    number.zip(meta).and_then(|(number, meta)| meta.indexes.get(number).map(|i| i.name.clone()));
                text(index.unwrap_or_default())
            };
            rows.push(vec![
                text(&key.name),
                text(Names::quoted(store, &name)),
                text(Names::quoted(store, &key.parent)),
                text(key.columns.join(", ")),
                text(key.parent_columns.join(", ")),
                text(key.on_delete.sql()),
                text(key.on_update.sql()),
                index(&name, reference.child_index),
                index(&key.parent, reference.parent_index),
            ]);
        }
    }
    rows
}

/// The builds of new indexes that are under way as rows: table, step, rows done and rows in all of this step, seconds since it began.
pub fn builds(store: &Store) -> Vec<Row> {
    let row = |build: Arc<Progress>| {
        let (step, done, of) = build.now();
        let us = store.engine().now_us().saturating_sub(build.begun_us());
        let numbers = [done, of, us / 1_000_000].map(Cell::Number);
        [text(Names::quoted(store, build.table())), text(step.name())].into_iter().chain(numbers).collect()
    };
    store.builds().into_iter().map(row).collect()
}
