//! Tables with foreign keys, told in a line each, and connections that work on all of them.

use super::values::{Names, V, Values, read, record, table};
use super::{Arc, Column, Duration, LockMode, NEVER, Path};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use strata_engine::io::{Disk, MemDisk};
use strata_row::def::TableDef;
use strata_row::foreign::{Action, ForeignKey, Statement};
use strata_row::isolation::{Isolation, Waiting};
use strata_row::kv::{CrashPoint, Options};
use strata_row::rowcode::Record;
use strata_row::scan::{RowCursor, Seek};
use strata_row::session::Session;
use strata_row::store::Store;
use strata_row::{Error, Result};

/// What is to become of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Fate {
    Stays,
    Goes,
    Becomes(Values),
}

pub fn path(table: &str) -> String {
    format!("./db/{table}")
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(|name| name.trim().to_owned()).collect()
}

/// The child and a key such as `x: c (a, b) -> p (k, l) delete cascade update null`.
pub fn foreign_key(line: &str) -> (String, ForeignKey) {
    let (name, rest) = line.split_once(": ").unwrap();
    let (child, rest) = rest.split_once(" (").unwrap();
    let (columns, rest) = rest.split_once(") -> ").unwrap();
    let (parent, rest) = rest.split_once(" (").unwrap();
    let (parent_columns, actions) = rest.split_once(')').unwrap();
    let words: Vec<&str> = actions.split_whitespace().collect();
    let action = |event: &str| match words.iter().position(|word| *word == event).map(|at| words[at + 1]) {
        None | Some("restrict") => Action::Restrict,
        Some("nothing") => Action::NoAction,
        Some("cascade") => Action::Cascade,
        Some("null") => Action::SetNull,
        Some(other) => panic!("{other}"),
    };
    let key = ForeignKey {
        name: name.to_owned(),
        columns: names(columns),
        parent: path(parent),
        parent_columns: names(parent_columns),
        on_delete: action("delete"),
        on_update: action("update"),
        inherited: false,
    };
    (child.to_owned(), key)
}

/// Is told of crash points.
pub type CrashHook = Arc<dyn Fn(CrashPoint) + Send + Sync>;

/// A database in memory.
pub struct Db {
    pub disk: MemDisk,
    pub store: Arc<Store>,
    pub defs: BTreeMap<String, TableDef>,
    keys: BTreeMap<String, Vec<ForeignKey>>,
    created: OnceLock<()>,
}

pub fn open(disk: &MemDisk) -> Arc<Store> {
    open_with(disk, Options::default())
}

fn open_with(disk: &MemDisk, options: Options) -> Arc<Store> {
    let options = Options {
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        ..options
    };
    let store = Store::open(Path::new("/data"), options).unwrap();
    store.set_library(Arc::new(Names));
    store
}

impl Db {
    pub fn new() -> Db {
        Db::on(MemDisk::new(), Options::default())
    }

    /// Where transactions of so many bytes are large ones.
    pub fn with_large_transactions_from(bytes: usize) -> Db {
        Db::on(MemDisk::new(), Options { transaction_bytes: bytes as _, ..Options::default() })
    }

    /// On a disk, where somebody is told of crash points.
    pub fn watched(disk: MemDisk, hook: CrashHook) -> Db {
        Db::on(disk, Options { on_crash_point: Some(hook), ..Options::default() })
    }

    fn on(disk: MemDisk, options: Options) -> Db {
        let store = open_with(&disk, options);
        Db { disk, store, defs: BTreeMap::new(), keys: BTreeMap::new(), created: OnceLock::new() }
    }

    /// A table, which is made with all others when it is first needed.
    pub fn table(&mut self, name: &str, columns: &[&str], indexes: &[&str]) -> &mut Db {
        self.define(name, table(columns, indexes))
    }

    pub fn define(&mut self, name: &str, def: TableDef) -> &mut Db {
        self.defs.insert(name.to_owned(), def);
        self
    }

    /// A foreign key.
    pub fn key(&mut self, line: &str) -> &mut Db {
        let (child, key) = foreign_key(line);
        self.keys.entry(child).or_default().push(key);
        self
    }

    /// Makes the tables, in whatever order.
    pub fn create(&self) {
        self.created.get_or_init(|| {
            for (name, def) in &self.defs {
                let keys = self.keys.get(name).map_or(&[][..], Vec::as_slice);
                self.store.create_table_with(&path(name), def, 0, (keys, &Statement::default()), NEVER).unwrap();
            }
        });
    }

    pub fn conn(&self) -> Conn {
        self.create();
        Conn::new(&self.store, &self.defs)
    }

    /// Every index agrees with its rows, and every row has its parents.
    pub fn check(&self) {
        check(&self.store, &self.defs);
    }
}

/// See [`Db::check`].
pub fn check(store: &Arc<Store>, defs: &BTreeMap<String, TableDef>) {
    let mut lines = Vec::new();
    let mut session = Session::new(store, Box::new(|| false));
    for (name, def) in defs {
        let table = store.open_table(&path(name), def.clone()).unwrap();
        let mut report = |line: &str| lines.push(format!("{name}: {line}"));
        table.check(&session, false, None, &mut report).unwrap();
        table.check_references(&mut session, &mut report).unwrap();
    }
    assert!(lines.is_empty(), "{lines:?}");
}

/// A session with a cursor on each table.
pub struct Conn {
    pub session: Session,
    tables: BTreeMap<String, (RowCursor, Vec<u8>)>,
    pub isolation: Isolation,
    pub timeout: Duration,
}

impl Conn {
    pub fn new(store: &Arc<Store>, defs: &BTreeMap<String, TableDef>) -> Conn {
        let tables = defs.iter().map(|(name, def)| {
            let table = store.open_table(&path(name), def.clone()).unwrap();
            (name.clone(), (RowCursor::new(&table), vec![0; def.record_bytes as usize]))
        });
        Conn {
            session: Session::new(store, Box::new(|| false)),
            tables: tables.collect(),
            isolation: Isolation::RepeatableRead,
            timeout: Duration::from_secs(20),
        }
    }

    /// Runs a statement: what fails leaves nothing.
    fn statement<T>(
        &mut self,
        table: &str,
        body: impl FnOnce(&mut Session, &mut RowCursor, &mut Vec<u8>) -> Result<T>,
    ) -> Result<T> {
        self.session.statement_begin(self.isolation, self.timeout)?;
        let (cursor, record) = self.tables.get_mut(table).unwrap();
        let outcome = body(&mut self.session, cursor, record);
        cursor.end();
        match outcome {
            Ok(_) => self.session.statement_end(),
            Err(_) => self.session.statement_rollback(),
        }
        outcome
    }

    pub fn insert(&mut self, table: &str, row: &Values) -> Result<()> {
        self.statement(table, |session, cursor, _| {
            let bytes = record(&cursor.table().def, row);
            // SAFETY: the row outlives the call.
            cursor.insert(session, unsafe { Record::new(&bytes) })
        })
    }

    /// Decides about each row in the order of the primary key, locking all.
    pub fn each(&mut self, table: &str, mut decide: impl FnMut(&Values) -> Fate) -> Result<()> {
        self.statement(table, |session, cursor, buffer| {
            cursor.set_mode(Some(LockMode::Exclusive), Waiting::Wait);
            cursor.begin(None, false)?;
            let mut found = cursor.seek(session, Seek::First, &[], buffer)?;
            while found {
                let fate = decide(&read(&cursor.table().def, buffer));
                write(session, cursor, buffer, &fate)?;
                found = cursor.next(session, buffer)?;
            }
            Ok(())
        })
    }

    /// Decides about each row, as [`Conn::each`], and inserts what it says besides.
    pub fn each_with(&mut self, table: &str, mut decide: impl FnMut(&Values) -> (Fate, Option<Values>)) -> Result<()> {
        let mut more = Vec::new();
        self.each(table, |row| {
            let (fate, besides) = decide(row);
            more.extend(besides);
            fate
        })?;
        more.iter().try_for_each(|row| self.insert(table, row))
    }

    /// Decides about the row of a primary key of four bytes, which is locked. False if there is none.
    pub fn at(&mut self, table: &str, id: i32, decide: impl FnOnce(&Values) -> Fate) -> Result<bool> {
        self.statement(table, |session, cursor, buffer| {
            cursor.set_mode(Some(LockMode::Exclusive), Waiting::Wait);
            cursor.begin(cursor.table().def.primary, false)?;
            let found = cursor.seek(session, Seek::Exact, &id.to_le_bytes(), buffer)?;
            if found {
                let fate = decide(&read(&cursor.table().def, buffer));
                write(session, cursor, buffer, &fate)?;
            }
            Ok(found)
        })
    }

    /// Writes over a row without reading it.
    pub fn write_over(&mut self, table: &str, old: &Values, new: Option<&Values>) -> Result<()> {
        self.statement(table, |session, cursor, _| {
            let old = record(&cursor.table().def, old);
            let fate = new.map_or(Fate::Goes, |new| Fate::Becomes(new.clone()));
            write(session, cursor, &old, &fate)
        })
    }

    pub fn delete(&mut self, table: &str, id: i32) -> Result<bool> {
        self.at(table, id, |_| Fate::Goes)
    }

    /// The rows in the order of the primary key, read without locks.
    pub fn rows(&mut self, table: &str) -> Vec<Values> {
        let read_all = |session: &mut Session, cursor: &mut RowCursor, buffer: &mut Vec<u8>| {
            cursor.set_mode(None, Waiting::Wait);
            cursor.begin(None, false)?;
            let mut rows = Vec::new();
            let mut found = cursor.seek(session, Seek::First, &[], buffer)?;
            while found {
                rows.push(read(&cursor.table().def, buffer));
                found = cursor.next(session, buffer)?;
            }
            Ok(rows)
        };
        self.statement(table, read_all).unwrap()
    }

    pub fn commit(&mut self) {
        self.session.commit().unwrap();
    }
}

fn write(session: &mut Session, cursor: &mut RowCursor, old: &[u8], fate: &Fate) -> Result<()> {
    // SAFETY: the records and what they lead to outlive the calls.
    let view = |bytes| unsafe { Record::new(bytes) };
    match fate {
        Fate::Stays => Ok(()),
        Fate::Goes => cursor.delete(session, view(old)),
        Fate::Becomes(row) => {
            let bytes = record(&cursor.table().def, row);
            cursor.update(session, view(old), view(&bytes)).map(drop)
        }
    }
}

/// A row in words, one per column: a number, NULL, or a text, where `_` is a space.
pub fn row_of(def: &TableDef, words: &str) -> Values {
    let words: Vec<&str> = words.split_whitespace().collect();
    assert_eq!(words.len(), def.columns.len(), "{words:?}");
    let value = |column: &Column, word: &str| match word {
        "NULL" => V::Null,
        _ if column.collation.is_none() => V::Int(word.parse().unwrap()),
        text => V::Text(text.replace('_', " ")),
    };
    def.columns.iter().zip(words).map(|(column, word)| (column.name.clone(), value(column, word))).collect()
}

/// The same, of all rows.
pub fn words_of(def: &TableDef, rows: &[Values]) -> String {
    let word = |value: &V| match value {
        V::Null => "NULL".to_owned(),
        V::Int(n) => n.to_string(),
        V::Real(n) => n.to_string(),
        V::Text(text) => text.replace(' ', "_"),
    };
    let row = |row: &Values| def.columns.iter().map(|c| word(&row[&c.name])).collect::<Vec<_>>().join(" ");
    rows.iter().map(row).collect::<Vec<_>>().join(", ")
}

/// How a statement ended: with `ok`, or the error in a word or two.
pub fn outcome<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(Error::NoReferencedRow(reference)) => format!("no parent {}", reference.key.name),
        Err(Error::RowIsReferenced(reference)) => format!("referenced {}", reference.key.name),
        Err(Error::CascadeTooDeep(_)) => "too deep".to_owned(),
        Err(Error::ForeignDuplicate { child, index }) => format!("duplicate {child} {index}"),
        Err(Error::Duplicate(index)) => format!("duplicate {index}"),
        Err(error) => error.to_string(),
    }
}

impl Conn {
    fn def(&self, table: &str) -> TableDef {
        self.tables[table].0.table().def.clone()
    }

    /// `insert T ROW`, `delete T ID`, `update T ROW` (of the same id), `move T ID ROW` (with another), `show T`, `commit`,
    /// `rollback`; the first column is the primary key, an int4.
    pub fn run(&mut self, line: &str) -> String {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (table, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let id = |words: &str| words.split_whitespace().next().unwrap().parse().unwrap();
        let found = |found: Result<bool>| match found {
            Ok(false) => "no row".to_owned(),
            other => outcome(&other),
        };
        match verb {
            "insert" => {
                let row = row_of(&self.def(table), rest);
                outcome(&self.insert(table, &row))
            }
            "delete" => found(self.delete(table, id(rest))),
            "update" => {
                let row = row_of(&self.def(table), rest);
                found(self.at(table, id(rest), |_| Fate::Becomes(row)))
            }
            "move" => {
                let row = row_of(&self.def(table), rest.split_once(' ').unwrap().1);
                found(self.at(table, id(rest), |_| Fate::Becomes(row)))
            }
            "show" => {
                let rows = self.rows(table);
                words_of(&self.def(table), &rows)
            }
            "commit" => outcome(&self.session.commit()),
            "rollback" => outcome(&self.session.rollback()),
            other => panic!("{other}"),
        }
    }

    /// Runs lines such as `insert c 1 2 -> ok`; without an arrow `ok` is expected.
    pub fn script(&mut self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, expected) = line.split_once("->").unwrap_or((line, "ok"));
            assert_eq!(self.run(command.trim()), expected.trim(), "{line}");
        }
    }
}
