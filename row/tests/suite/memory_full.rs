//! Memory is full and no flush makes room: who waits for it obeys a kill, and then nothing of the statement has happened; what
//! helps to free space does not wait.

use crate::common::*;
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strata_engine::io::MemDisk;
use strata_row::Result;
use strata_row::def::TableDef;
use strata_row::error::Error;
use strata_row::foreign::Statement;
use strata_row::isolation::Isolation;
use strata_row::kv::{self, CrashPoint, IndexId, Options};
use strata_row::rowcode::Record;
use strata_row::scan::RowCursor;
use strata_row::session::Session;
use strata_row::store::Store;

const BUDGET: u64 = 2 << 20;

/// A gate in the way of the flushing thread.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

/// A store whose flushes hang as long as this lives.
struct Hung {
    gate: Arc<Gate>,
    store: Arc<Store>,
}

impl Drop for Hung {
    fn drop(&mut self) {
        *self.gate.closed.lock() = false;
        self.gate.opened.notify_all();
    }
}

fn open(disk: MemDisk, gate: &Arc<Gate>) -> Arc<Store> {
    let gate = gate.clone();
    let hook = move |point| {
        let mut closed = gate.closed.lock();
        while *closed && point == CrashPoint::Relocated {
            gate.opened.wait(&mut closed);
        }
    };
    let options = Options {
        disk: Arc::new(disk),
        memtable_budget_bytes: BUDGET,
        on_crash_point: Some(Arc::new(hook)),
        ..Options::default()
    };
    Store::open(Path::new("/data"), options).unwrap()
}

impl Hung {
    fn new(disk: MemDisk) -> Hung {
        let gate = Arc::new(Gate::default());
        let store = open(disk, &gate);
        Hung { gate, store }
    }

    /// Fills memory, by a writer that does not wait.
    fn fill(&self) {
        *self.gate.closed.lock() = true;
        let engine = self.store.engine();
        for n in 0u64.. {
            if engine.metrics().memtable_bytes >= BUDGET {
                break;
            }
            let key = [&IndexId(1 << 20).prefix()[..], &n.to_be_bytes()].concat();
            engine.write_relief(&[(key, Some(vec![7; 50_000]))], false).unwrap();
        }
    }
}

fn is_interrupted<T: std::fmt::Debug>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Interrupted | Error::Engine(kv::Error::Interrupted)))
}

fn sequence() -> TableDef {
    TableDef { indexes: Vec::new(), no_rollback: true, autoinc_column: None, ..definition(true) }
}

/// A client that is killed when it has been asked for the second time, that is in a wait.
fn doomed(store: &Arc<Store>) -> (Session, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let probe = asked.clone();
    (Session::new(store, Box::new(move || probe.fetch_add(1, Ordering::SeqCst) > 0)), asked)
}

#[test]
fn who_waits_for_memory_obeys_a_kill_and_has_done_nothing() {
    let hung = Hung::new(MemDisk::new());
    let store = &hung.store;
    for (name, def) in [("./db/t", definition(false)), ("./db/hidden", definition(true)), ("./db/s", sequence())] {
        store.create_table(name, &def, 0).unwrap();
    }
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let hidden = store.open_table("./db/hidden", definition(true)).unwrap();
    let numbers = store.open_table("./db/s", sequence()).unwrap();
    Client::new(store, &numbers).insert(&row(1, 0, None, None)).unwrap();
    hung.fill();

    let asked = AtomicU64::new(0);
    let killed = || asked.fetch_add(1, Ordering::SeqCst) > 0;
    let waited = |what: &str| assert_eq!(asked.swap(0, Ordering::SeqCst), 2, "{what} waits until it is killed");
    assert!(is_interrupted(store.create_table_with(
        "./db/new",
        &definition(false),
        7,
        (&[], &Statement::default()),
        &killed
    )));
    waited("CREATE TABLE");
    assert!(matches!(store.open_table("./db/new", definition(false)), Err(Error::NoTable(_))));
    let counter = table.state.autoinc().unwrap();
    assert!(is_interrupted(counter.reserve(1, 1, 1, u64::MAX, &killed)));
    waited("a block of auto-increment values");
    assert!(is_interrupted(counter.raise(1000, &killed)));
    waited("a value of the user's");
    assert!(is_interrupted(table.restart_autoinc(5000, &killed)));
    waited("ALTER TABLE ... AUTO_INCREMENT");
    assert_eq!(counter.peek(), 1001);

    let bytes = row(2, 0, None, None).record();
    for (table, what) in [(&hidden, "a block of row ids"), (&numbers, "a sequence")] {
        let (mut session, asked) = doomed(store);
        let mut cursor = RowCursor::new(table);
        session.statement_begin(Isolation::RepeatableRead, std::time::Duration::ZERO).unwrap();
        // SAFETY: the record and its blob live until the end of this statement.
        let record = unsafe { Record::new(&bytes) };
        let outcome = cursor.insert(&mut session, record);
        assert!(is_interrupted(outcome), "{what}");
        assert_eq!(asked.load(Ordering::SeqCst), 2, "{what}");
        session.statement_rollback();
        session.rollback().unwrap();
    }
    let mut client = Client::new(store, &numbers);
    assert_eq!(client.scan(None, true).unwrap(), [row(1, 0, None, None)]);
    assert!(Client::new(store, &hidden).scan(None, true).unwrap().is_empty());
    let (session, asked) = doomed(store);
    // The sample of an empty table asks nobody.
    assert!(is_interrupted(table.analyze(&session)));
    assert!(asked.load(Ordering::SeqCst) >= 2);
    assert_eq!(store.engine().metrics().work.flushes, 0, "nothing was flushed meanwhile");
}

/// Who waits for memory to write a mark keeps nobody of the same table from obeying his own kill.
#[test]
fn a_kill_reaches_each_of_those_who_wait_for_one_counter() {
    let hung = Hung::new(MemDisk::new());
    let store = &hung.store;
    store.create_table("./db/t", &definition(false), 0).unwrap();
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let counter = table.state.autoinc().unwrap();
    hung.fill();
    let (first_waits, first_killed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            counter.reserve(1, 1, 1, u64::MAX, &|| {
                first_waits.store(true, Ordering::SeqCst);
                first_killed.load(Ordering::SeqCst)
            })
        });
        while !first_waits.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(is_interrupted(counter.reserve(1, 1, 1, u64::MAX, &|| true)));
        assert!(is_interrupted(counter.raise(5, &|| true)));
        assert!(!first.is_finished());
        first_killed.store(true, Ordering::SeqCst);
        assert!(is_interrupted(first.join().unwrap()));
    });
}

/// What gives space or a name free does not wait for a flush.
#[test]
fn drops_go_on_while_memory_is_full() {
    let hung = Hung::new(MemDisk::new());
    let store = &hung.store;
    for name in ["./db/a", "./db/b", "./db/c"] {
        store.create_table(name, &definition(false), 0).unwrap();
    }
    hung.fill();
    store.truncate_table("./db/a").unwrap();
    store.rename_table("./db/b", "./db/d").unwrap();
    store.drop_table("./db/c").unwrap();
    store.drop_database("./db/").unwrap();
    assert!(store.catalog().names("").is_empty());
    assert_eq!(store.engine().metrics().work.flushes, 0);
}

/// A mark that failed to be written, for a kill here, is written by the next who needs it, be his value below it.
#[test]
fn a_counter_whose_mark_failed_is_not_behind_a_row_after_a_crash() {
    let disk = MemDisk::new();
    let hung = Hung::new(disk.clone());
    let store = &hung.store;
    // No index tells the greatest value: only the mark does.
    let def = || TableDef { indexes: Vec::new(), primary: None, ..definition(true) };
    store.create_table("./db/t", &def(), 0).unwrap();
    let table = store.open_table("./db/t", def()).unwrap();
    let counter = table.state.autoinc().unwrap();
    hung.fill();
    assert!(is_interrupted(counter.raise(1000, &|| true)));
    *hung.gate.closed.lock() = false;
    hung.gate.opened.notify_all();
    counter.raise(900, NEVER).unwrap();
    store.engine().sync().unwrap();
    let after = open(disk.crash(1), &Arc::default());
    let table = after.open_table("./db/t", def()).unwrap();
    assert!(table.state.autoinc().unwrap().peek() > 900);
}
