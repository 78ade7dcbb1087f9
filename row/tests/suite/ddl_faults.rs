//! Failing disks under DDL, sequences and commits: every operation of the disk fails in turn under every statement, once
//! and for ever, as a full disk, a broken one, and a process without file descriptors. The server goes on after the error
//! as one does, and is then killed or shut down. A shadow tells what may be found: what was acknowledged is there, what
//! failed is old or new, nothing else; no index is left without a table, and the store works.

use crate::common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_row::def::TableDef;
use strata_row::isolation::Isolation;
use strata_row::kv::Options;
use strata_row::rowcode::Record;
use strata_row::scan::{RowCursor, Seek};
use strata_row::session::Session;
use strata_row::store::Store;
use strata_row::table::Table;
use strata_row::{Error, Result};

const DIR: &str = "/data";
const T: &str = "./db/t";
const U: &str = "./db/u";
const SEQUENCE: &str = "./db/s";
const TEMPORARY: &str = "/tmp/#sql-temptable-1-2-0";

/// What tables hold: the `c` of each row.
type State = BTreeMap<String, BTreeSet<i64>>;

#[derive(Clone, Debug)]
enum Op {
    Create(&'static str),
    Drop(Vec<String>),
    Truncate(&'static str),
    Rename(&'static str, &'static str),
    Insert(String, Vec<i64>),
    /// The only row of a sequence.
    Set(&'static str, i64),
}

impl Op {
    /// `None` if it cannot have succeeded in this state.
    fn apply(&self, state: &State) -> Option<State> {
        let mut state = state.clone();
        match self {
            Op::Create(name) => state.insert((*name).to_owned(), BTreeSet::new()).is_none().then_some(())?,
            Op::Drop(names) => names.iter().try_for_each(|name| state.remove(name).map(drop))?,
            Op::Truncate(name) => state.get_mut(*name)?.clear(),
            Op::Rename(from, to) => {
                let rows = state.remove(*from)?;
                state.insert((*to).to_owned(), rows).is_none().then_some(())?;
            }
            Op::Insert(name, rows) => state.get_mut(name)?.extend(rows),
            Op::Set(name, value) => *state.get_mut(*name)? = BTreeSet::from([*value]),
        }
        Some(state)
    }
}

fn definition_of(name: &str) -> TableDef {
    match name {
        SEQUENCE => TableDef { indexes: Vec::new(), no_rollback: true, autoinc_column: None, ..definition(true) },
        TEMPORARY => TableDef { temporary: true, ..definition(false) },
        U => definition(true),
        _ => definition(false),
    }
}

fn options(disk: &MemDisk) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        // Indexes of some hundred bytes have files of their own, which go with them; others share files.
        sst_bytes: 32 << 10,
        // Hundreds of rows are a large transaction.
        transaction_bytes: 16 << 10,
        ..Options::default()
    }
}

fn open(disk: &MemDisk) -> Result<Arc<Store>> {
    Store::open(Path::new(DIR), options(disk))
}

/// A store under test and what may be in it.
struct World {
    store: Arc<Store>,
    possible: Vec<State>,
    /// Prepared transactions whose commit returned: the binlog has them and commits them again after a crash.
    in_binlog: Vec<Vec<u8>>,
}

impl World {
    fn note<T>(&mut self, op: Op, outcome: Result<T>) -> bool {
        let after: Vec<State> = self.possible.iter().filter_map(|state| op.apply(state)).collect();
        match outcome {
            Ok(_) => {
                assert!(!after.is_empty(), "{op:?} cannot have succeeded in {:?}", self.possible);
                self.possible = after;
                true
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                self.possible.extend(after);
                self.possible.dedup();
                false
            }
        }
    }

    fn table(&self, name: &str) -> Result<Arc<Table>> {
        self.store.open_table(name, definition_of(name))
    }

    fn create(&mut self, name: &'static str) -> bool {
        let outcome = self.store.create_table(name, &definition_of(name), 0);
        self.note(Op::Create(name), outcome)
    }

    fn drop(&mut self, name: &str) -> bool {
        let outcome = self.store.drop_table(name);
        self.note(Op::Drop(vec![name.to_owned()]), outcome)
    }

    fn rename(&mut self, from: &'static str, to: &'static str) -> bool {
        let outcome = self.store.rename_table(from, to);
        self.note(Op::Rename(from, to), outcome)
    }

    /// `xid`: in two phases, as with a binlog.
    fn insert(&mut self, name: &str, rows: Vec<i64>, xid: Option<&[u8]>) -> bool {
        let outcome = self.table(name).and_then(|table| insert(&self.store, &table, &rows, xid));
        let done = self.note(Op::Insert(name.to_owned(), rows), outcome);
        self.in_binlog.extend(xid.filter(|_| done).map(<[u8]>::to_vec));
        done
    }

    fn set(&mut self, value: i64) -> bool {
        let outcome = self.table(SEQUENCE).and_then(|table| set(&self.store, &table, value));
        self.note(Op::Set(SEQUENCE, value), outcome)
    }
}

fn session(store: &Arc<Store>) -> Session {
    Session::new(store, Box::new(|| false))
}

fn insert(store: &Arc<Store>, table: &Arc<Table>, rows: &[i64], xid: Option<&[u8]>) -> Result<()> {
    let (mut session, mut cursor) = (session(store), RowCursor::new(table));
    session.statement_begin(Isolation::RepeatableRead, Duration::from_secs(5))?;
    for &c in rows {
        let bytes = row(c, 0, Some("text"), Some(c as i32)).record();
        // SAFETY: the row's blob lives until the end of this statement, as the record needs it.
        if let Err(error) = cursor.insert(&mut session, unsafe { Record::new(&bytes) }) {
            session.rollback()?;
            return Err(error);
        }
    }
    session.statement_end();
    if let Some(xid) = xid {
        if let Err(error) = session.prepare(xid, false) {
            drop(session.rollback());
            return Err(error);
        }
        session.commit_ordered();
    }
    session.commit()
}

/// The only row of a sequence is replaced, or made.
fn set(store: &Arc<Store>, table: &Arc<Table>, value: i64) -> Result<()> {
    let (mut session, mut cursor) = (session(store), RowCursor::new(table));
    session.statement_begin(Isolation::RepeatableRead, Duration::from_secs(5))?;
    let new = row(value, 0, None, None);
    let new_bytes = new.record();
    let mut record = vec![0; RECORD];
    cursor.begin(None, false)?;
    let outcome = match cursor.seek(&mut session, Seek::First, &[], &mut record)? {
        // SAFETY: both records stay as they are until the end of the statement.
        true => unsafe { cursor.update(&mut session, Record::new(&record), Record::new(&new_bytes)) }.map(drop),
        false => cursor.insert(&mut session, unsafe { Record::new(&new_bytes) }),
    };
    session.statement_end();
    session.commit()?;
    outcome
}

/// Everything that is in the store, each table read by all its indexes.
fn contents(store: &Arc<Store>) -> State {
    let mut state = State::new();
    for name in store.catalog().names("") {
        let table = store.open_table(&name, definition_of(&name)).unwrap();
        let mut client = Client::new(store, &table);
        let rows = client.scan(None, true).unwrap();
        for index in 0..table.indexes.len() {
            assert_eq!(client.scan(Some(index), true).unwrap().len(), rows.len(), "{name}, index {index}");
        }
        client.check();
        state.insert(name, rows.into_iter().map(|row| row.c).collect());
    }
    state
}

/// A statement or a few that belong together.
type Statement = (&'static str, fn(&mut World));

const STATEMENTS: &[Statement] = &[
    ("CREATE TABLE", |w| _ = w.create("./db/new")),
    ("CREATE TEMPORARY TABLE", |w| _ = w.create("/tmp/#sql-temptable-1-2-1")),
    ("CREATE SEQUENCE", |w| {
        // Another table of the name has to go first.
        let _ = w.drop(SEQUENCE) && w.create(SEQUENCE) && w.set(1);
    }),
    // Each takes a page of log: a segment is used up on the way.
    ("COMMIT, again and again", |w| _ = (100..118).all(|row| w.insert(T, vec![row], None))),
    ("DROP TABLE", |w| _ = w.drop(T)),
    ("DROP TABLE, of two", |w| _ = (w.drop(T), w.drop(U))),
    ("DROP TABLE and CREATE TABLE of its name", |w| _ = w.drop(T) && w.create(T)),
    ("DROP TEMPORARY TABLE", |w| _ = w.drop(TEMPORARY)),
    ("DROP DATABASE", |w| {
        let names = w.store.catalog().names("./db/");
        let outcome = w.store.drop_database("./db/");
        w.note(Op::Drop(names), outcome);
    }),
    ("temporary tables of the last run", |w| {
        let outcome = w.store.drop_temporary();
        w.note(Op::Drop(vec![TEMPORARY.to_owned()]), outcome);
    }),
    ("TRUNCATE", |w| {
        let outcome = w.store.truncate_table(T);
        w.note(Op::Truncate(T), outcome);
    }),
    ("TRUNCATE of a table with row ids", |w| {
        let outcome = w.store.truncate_table(U);
        w.note(Op::Truncate(U), outcome);
    }),
    ("RENAME TABLE", |w| _ = w.rename(T, "./db/v")),
    ("RENAME TABLE, two exchanged", |w| {
        let _ = w.rename(T, "./db/x") && w.rename("./db/w", T) && w.rename("./db/x", "./db/w");
    }),
    ("ALTER TABLE by copy", |w| {
        const COPY: &str = "./db/#sql-alter-1-2";
        const BACKUP: &str = "./db/#sql-backup-1-2";
        if !w.create(COPY) {
            return;
        }
        let filled = w.table(COPY).and_then(|table| {
            let (session, mut cursor) = (session(&w.store), RowCursor::new(&table));
            cursor.bulk_begin(&session)?;
            let mut session = session;
            for c in 0..300 {
                let bytes = row(c, 0, Some("copied"), Some(c as i32)).record();
                // SAFETY: the row's blob lives until it has been inserted.
                cursor.insert(&mut session, unsafe { Record::new(&bytes) })?;
            }
            cursor.bulk_end(false)
        });
        let filled = w.note(Op::Insert(COPY.to_owned(), (0..300).collect()), filled);
        let _ = filled && w.rename(T, BACKUP) && w.rename(COPY, T) && w.drop(BACKUP);
    }),
    ("ALTER TABLE ... AUTO_INCREMENT", |w| {
        if let Ok(table) = w.table(T) {
            drop(table.restart_autoinc(1000, NEVER));
        }
    }),
    ("INSERT", |w| _ = w.insert(T, (500..503).collect(), None)),
    ("INSERT of a large transaction", |w| _ = w.insert(T, (500..800).collect(), None)),
    ("INSERT, in two phases", |w| _ = w.insert(T, (500..503).collect(), Some(b"xid"))),
    ("INSERT of a large transaction, in two phases", |w| _ = w.insert(T, (500..800).collect(), Some(b"xid"))),
    ("INSERT and a flush", |w| {
        let _ = w.insert(T, (500..503).collect(), None) && w.store.engine().flush().is_ok();
    }),
    ("TRUNCATE and a flush", |w| {
        let outcome = w.store.truncate_table(T);
        let _ = w.note(Op::Truncate(T), outcome) && w.store.engine().flush().is_ok();
    }),
    ("NEXTVAL", |w| _ = w.set(2)),
    ("SETVAL, twice", |w| _ = (w.set(1000), w.set(1001))),
];

/// Rows so that each table has files, memtables and log.
fn base() -> (MemDisk, State) {
    let disk = MemDisk::new();
    let mut world = World { store: open(&disk).unwrap(), possible: vec![State::new()], in_binlog: Vec::new() };
    for name in [T, U, SEQUENCE, TEMPORARY, "./db/w", "./other/o"] {
        assert!(world.create(name));
    }
    // The first one's file goes with it, the others share one.
    assert!(world.insert(TEMPORARY, (0..20).collect(), None));
    world.store.engine().flush().unwrap();
    for name in [T, U, "./db/w", "./other/o"] {
        assert!(world.insert(name, (0..20).collect(), None));
    }
    assert!(world.set(1));
    world.store.engine().flush().unwrap();
    for name in [T, U, "./other/o"] {
        assert!(world.insert(name, (20..25).collect(), None));
    }
    world.store.close().unwrap();
    (disk, world.possible.remove(0))
}

/// A state in one line: rows as intervals.
fn brief(state: &State) -> String {
    let mut out = String::new();
    for (name, rows) in state {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for &row in rows {
            match runs.last_mut().filter(|run| run.1 + 1 == row) {
                Some(run) => run.1 = row,
                None => runs.push((row, row)),
            }
        }
        out += &format!("{name} {runs:?}; ");
    }
    out
}

/// Opens what is left and compares.
fn check(disk: &MemDisk, possible: &[State], in_binlog: &[Vec<u8>], what: &str) {
    let store = open(disk).unwrap_or_else(|error| panic!("{what}: does not open: {error}"));
    for xid in store.engine().prepared() {
        match in_binlog.contains(&xid) {
            true => store.engine().commit_prepared(&xid).unwrap(),
            false => store.engine().rollback_prepared(&xid).unwrap(),
        };
    }
    let found = contents(&store);
    if !possible.contains(&found) {
        let possible: Vec<_> = possible.iter().map(brief).collect();
        panic!("{what}: found\n{}\nof\n{}", brief(&found), possible.join("\n"));
    }
    let owned: BTreeSet<_> = found.keys().flat_map(|name| store.catalog().get(name).unwrap().ids()).collect();
    let strays: Vec<_> =
        store.engine().indexes().unwrap().into_iter().filter(|id| id.0 >= 16 && !owned.contains(id)).collect();
    assert!(strays.is_empty(), "{what}: indexes {strays:?} belong to no table");
    store.create_table("./db/after", &definition_of("./db/after"), 0).unwrap();
    let table = store.open_table("./db/after", definition_of("./db/after")).unwrap();
    insert(&store, &table, &[1, 2], None).unwrap();
    store.drop_table("./db/after").unwrap();
    assert_eq!(contents(&store), found, "{what}");
    store.close().unwrap();
}

/// How a fault comes.
const FAULTS: [(FaultKind, bool); 6] = [
    (FaultKind::StorageFull, false),
    (FaultKind::StorageFull, true),
    (FaultKind::Other, false),
    (FaultKind::Other, true),
    (FaultKind::TooManyFiles, false),
    (FaultKind::TooManyFiles, true),
];

fn strike(disk: &MemDisk, n: u64, kind: FaultKind, lasting: bool) {
    match lasting {
        true => disk.fail_from(n, kind),
        false => disk.fail_after(n, kind),
    }
}

/// Operations that failed, by name.
type Struck = BTreeMap<&'static str, u64>;

/// Files that are not needed any more are removed by another thread, which is woken at once. Those that a handler still reads
/// stay: for them nobody waits.
fn await_removals(disk: &MemDisk, store: &Store) {
    let until = Instant::now() + Duration::from_millis(50);
    let is_table = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "sst");
    while disk.struck().is_none() && Instant::now() < until {
        // A look that is no operation of this disk.
        let there = disk.copy().list(Path::new(DIR)).unwrap().iter().filter(|path| is_table(path)).count() as u64;
        if there == store.engine().metrics().level_files.iter().sum::<u64>() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One statement, under one kind of fault at each operation in turn.
fn run(statement: &Statement, base: &MemDisk, state: &State, (kind, lasting): (FaultKind, bool)) -> Struck {
    let mut struck = Struck::new();
    for n in 1.. {
        let what = format!("{}, {kind:?} at operation {n}, lasting {lasting}", statement.0);
        let disk = base.copy();
        let mut world = World { store: open(&disk).unwrap(), possible: vec![state.clone()], in_binlog: Vec::new() };
        // Handlers are open, as in a server that has run for a while.
        let handlers: Vec<_> = state.keys().map(|name| world.table(name).unwrap()).collect();
        strike(&disk, n, kind, lasting);
        (statement.1)(&mut world);
        await_removals(&disk, &world.store);
        if let Some(op) = disk.struck() {
            *struck.entry(op).or_default() += 1;
        }
        let has_struck = disk.struck().is_some();
        if !lasting {
            disk.clear_fault();
        }
        for name in [T, U, "./db/v", "./other/o"] {
            if world.store.catalog().get(name).is_ok() {
                world.insert(name, vec![900], None);
            }
        }
        drop(handlers);
        let killed = disk.crash(n);
        let World { store, possible, in_binlog } = world;
        disk.clear_fault();
        drop(store.close());
        drop(store);
        check(&disk, &possible, &in_binlog, &format!("{what}, shut down"));
        check(&killed, &possible, &in_binlog, &format!("{what}, killed"));
        if !has_struck {
            return struck;
        }
    }
    unreachable!()
}

#[test]
fn whatever_fails_under_a_statement_what_was_acknowledged_is_there() {
    let (base, state) = base();
    let cases: Vec<_> = STATEMENTS.iter().flat_map(|s| FAULTS.map(|fault| (s, fault))).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let (send, receive) = channel();
    let mut total = Struck::new();
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(2, |n| n.get()) {
            let (send, next, cases, base, state) = (send.clone(), &next, &cases, &base, &state);
            scope.spawn(move || {
                while let Some(&(statement, fault)) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let _ = send.send(run(statement, base, state, fault));
                }
            });
        }
        drop(send);
        let mut done = 0;
        while done < cases.len() {
            match receive.recv_timeout(Duration::from_secs(60)) {
                Ok(struck) => struck.into_iter().for_each(|(op, n)| *total.entry(op).or_default() += n),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("a case hangs"),
            }
            done += 1;
        }
    });
    println!("{} statements, {} operations failed: {total:?}", STATEMENTS.len(), total.values().sum::<u64>());
    for op in ["write", "sync", "create", "allocate", "sync directory", "rename", "remove"] {
        assert!(total.get(op).is_some_and(|&n| n > 0), "no {op} has failed: {total:?}");
    }
}

/// The start itself fails at each operation in turn, with drops under way: the next one shows everything.
#[test]
fn a_start_that_fails_loses_nothing() {
    let (base, mut state) = base();
    {
        let store = open(&base).unwrap();
        for name in [T, TEMPORARY] {
            store.drop_table(name).unwrap();
            state.remove(name);
        }
        store.truncate_table(U).unwrap();
        state.insert(U.to_owned(), BTreeSet::new());
    }
    let base = base.copy();
    let (mut failed, mut opened) = (0, 0);
    for (kind, lasting) in FAULTS {
        for n in 1.. {
            let disk = base.copy();
            strike(&disk, n, kind, lasting);
            match open(&disk) {
                Ok(store) => {
                    opened += 1;
                    drop(store);
                }
                Err(error) => assert!(matches!(error, Error::Engine(_)), "{error}"),
            }
            let struck = disk.struck().is_some();
            failed += u64::from(struck);
            disk.clear_fault();
            let what = format!("start, {kind:?} at operation {n}, lasting {lasting}");
            check(&disk.crash(n), std::slice::from_ref(&state), &[], &format!("{what}, killed"));
            check(&disk, std::slice::from_ref(&state), &[], &what);
            if !struck {
                break;
            }
        }
    }
    println!("{failed} operations failed, {opened} starts came up");
}
