//! Changes of the catalog at the same time: none waits for another's sync before its own turn in the log, and no id is given
//! out twice, whatever fails and whenever the process ends.

use crate::common::*;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strata_engine::io::{Disk, FaultKind, HookedDisk, MemDisk, Operation};
use strata_row::kv::{IndexId, Options};
use strata_row::store::Store;

/// A gate at the sync of log files: closed, it holds whoever comes.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    /// Syncs that waited or passed.
    syncs: AtomicU64,
}

impl Gate {
    fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut closed = self.closed.lock();
        self.syncs.fetch_add(1, Ordering::SeqCst);
        while *closed {
            self.opened.wait(&mut closed);
        }
    }
}

/// Opens the gate also when the test fails, or its threads would stay.
struct Opens<'a>(&'a Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The disk behind the gate.
fn gated(disk: MemDisk, gate: Arc<Gate>) -> HookedDisk {
    let pass = move |operation, path: &Path| {
        if operation == Operation::Sync && path.parent().is_some_and(|dir| dir.ends_with("log")) {
            gate.pass();
        }
        Ok(())
    };
    HookedDisk::new(Arc::new(disk), Arc::new(pass))
}

fn open(disk: impl Disk) -> Arc<Store> {
    let options = Options { disk: Arc::new(disk), memtable_budget_bytes: 2 << 20, ..Options::default() };
    Store::open(Path::new("/data"), options).unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

fn ids(store: &Store, name: &str) -> Vec<IndexId> {
    store.catalog().get(name).unwrap().ids()
}

/// While the sync of one statement hangs, others take their turn, and one sync serves them all.
#[test]
fn changes_of_different_tables_share_a_sync() {
    const OTHERS: usize = 8;
    let gate = Arc::new(Gate::default());
    let store = open(gated(MemDisk::new(), gate.clone()));
    for n in 0..OTHERS {
        store.create_table(&format!("./db/old-{n}"), &definition(false), 0).unwrap();
    }
    *gate.closed.lock() = true;
    let before = gate.syncs.load(Ordering::SeqCst);
    let returned = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _opens = Opens(&gate);
        let (store, returned) = (&store, &returned);
        let run = |change: Box<dyn FnOnce() + Send>| {
            scope.spawn(move || {
                change();
                returned.fetch_add(1, Ordering::SeqCst);
            });
        };
        run(Box::new(|| store.create_table("./db/first", &definition(false), 0).unwrap()));
        until("the first one's sync has begun", || gate.syncs.load(Ordering::SeqCst) > before);
        for n in 0..OTHERS {
            run(Box::new(move || {
                let (old, new) = (format!("./db/old-{n}"), format!("./db/new-{n}"));
                match n % 3 {
                    0 => store.create_table(&new, &definition(n % 2 == 0), 0).unwrap(),
                    1 => store.rename_table(&old, &new).unwrap(),
                    _ => store.catalog().truncate(&old).map(drop).unwrap(),
                }
            }));
        }
        // Each is in order, as the map shows, though none is durable.
        let ordered = |n: usize| match n % 3 {
            2 => ids(store, &format!("./db/old-{n}"))[0] > ids(store, "./db/first")[0],
            _ => store.catalog().get(&format!("./db/new-{n}")).is_ok(),
        };
        until("the others wait for the first one's sync", || (0..OTHERS).all(ordered));
        assert_eq!(returned.load(Ordering::SeqCst), 0, "nothing is acknowledged before it is durable");
        let syncs = gate.syncs.load(Ordering::SeqCst);
        gate.open();
        until("all return", || returned.load(Ordering::SeqCst) == OTHERS as u64 + 1);
        // One for the others' records; the clean-ups of the truncated tables may ask for more.
        let more = gate.syncs.load(Ordering::SeqCst) - syncs;
        assert!(more < OTHERS as u64, "{more} syncs for {OTHERS} changes");
    });
    let names = store.catalog().names("");
    let all: Vec<IndexId> = names.iter().flat_map(|name| ids(&store, name)).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

/// Threads create, drop and empty tables until the process dies or the disk fails: what the next start gives out is above
/// all that any durable change had.
#[test]
fn ids_are_never_given_out_twice() {
    for seed in 0..24u64 {
        let disk = MemDisk::new();
        let store = open(disk.clone());
        // Of changes that were acknowledged, each with the ids it has brought.
        let given: Mutex<Vec<(u64, Vec<IndexId>)>> = Mutex::default();
        let stop = AtomicBool::new(false);
        let mut killed = None;
        let mut known = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (store, given, stop) = (&store, &given, &stop);
                scope.spawn(move || {
                    let name = format!("./db/{thread}");
                    for round in 0..200 {
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        let done = match round % 4 {
                            0 => store.create_table(&name, &definition(round % 8 == 0), 0),
                            3 => store.drop_table(&name),
                            _ => store.truncate_table(&name),
                        };
                        match done {
                            Ok(()) if round % 4 < 3 => {
                                let meta = store.catalog().get(&name).unwrap();
                                given.lock().push((meta.table_id, meta.ids()));
                            }
                            Ok(()) => {}
                            // What failed for a descriptor is tried again from the start.
                            Err(_) => drop(store.drop_table(&name)),
                        }
                    }
                });
            }
            until("some changes", || given.lock().len() > 5 + seed as usize);
            match seed % 3 {
                0 => disk.fail_after(seed % 7 + 1, FaultKind::TooManyFiles),
                1 => disk.fail_from(seed % 5 + 1, FaultKind::Other),
                _ => {}
            }
            if seed % 3 != 1 {
                until("more changes", || given.lock().len() > 20 + seed as usize);
            }
            known.clone_from(&given.lock());
            killed = Some(disk.crash(seed));
            stop.store(true, Ordering::SeqCst);
        });
        drop(store);
        let store = open(killed.unwrap());
        let used: BTreeSet<IndexId> = known.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let tables: BTreeSet<u64> = known.iter().map(|(table, _)| *table).collect();
        assert_eq!(used.len(), known.iter().map(|(_, ids)| ids.len()).sum::<usize>(), "seed {seed}: an id came twice");
        let listed: BTreeSet<IndexId> = store.catalog().names("").iter().flat_map(|name| ids(&store, name)).collect();
        for n in 0..3 {
            let name = format!("./db/after-{n}");
            store.create_table(&name, &definition(false), 0).unwrap();
            let meta = store.catalog().get(&name).unwrap();
            let again = |id: &IndexId| used.contains(id) || listed.contains(id);
            assert!(!meta.ids().iter().any(again), "seed {seed}: {:?} of {used:?}", meta.ids());
            assert!(!tables.contains(&meta.table_id), "seed {seed}: table {}", meta.table_id);
        }
    }
}
