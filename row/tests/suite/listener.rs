//! A listener that asks for the state of the store, and works with tables, while it is told of an event.
//!
//! Operations of the disk, each fourth one, fail once and for ever, under a script that flushes, merges, drops and commits.
//! Whatever is told, and from whichever thread, the listener asks for the whole status before it returns, and at first makes a
//! table, writes a row and drops the table: an event that was told under a lock would hang. What stops the store is told exactly
//! once. The same for damage that a merge meets. What an opening has to tell is told before there is a store to ask.

use crate::common::*;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_row::kv::{self, Options, Severity};
use strata_row::report;
use strata_row::store::Store;
use strata_row::table::Table;
use strata_row::{Event, EventListener};

#[derive(Default)]
struct Listener {
    store: OnceLock<Weak<Store>>,
    heard: Mutex<Vec<(Severity, String)>>,
    stops: AtomicUsize,
    asked: AtomicUsize,
    /// Calls that have ended.
    ended: AtomicUsize,
    calls: AtomicUsize,
}

impl EventListener for Listener {
    fn event(&self, event: &Event<'_>) {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst);
        if let Event::Engine(kv::Event::Stopped { .. }) = event {
            self.stops.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(store) = self.store.get().and_then(Weak::upgrade) {
            assert!(!store.engine().status_text().is_empty());
            let _ = (store.engine().metrics(), store.engine().prepared(), store.engine().check());
            let _ = (
                report::locks(&store),
                report::lock_waits(&store),
                report::transactions(&store, &|_| String::new()),
                report::deadlock(&store),
            );
            // What it does makes flushes, which are told in turn. One whose table it is would wait for itself.
            if calls < 12 || matches!(event, Event::SpaceKept { .. }) && calls < 200 {
                let name = format!("./db/listener{calls}");
                if store.create_table(&name, &definition(false), 0).is_ok() {
                    if let Ok(table) = store.open_table(&name, definition(false)) {
                        insert(&store, &table, 0, 1);
                    }
                    let _ = store.drop_table(&name);
                }
            }
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        self.heard.lock().unwrap().push((event.severity(), event.to_string()));
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Listener {
    /// What an operator would read.
    fn lines(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|(severity, _)| *severity > Severity::Info).map(|(_, line)| line.clone()).collect()
    }
}

/// Inserts as many rows as the disk lets it.
fn insert(store: &Arc<Store>, table: &Arc<Table>, first: i64, rows: i64) {
    let mut client = Client::new(store, table);
    if client.session.statement_begin(client.isolation, Duration::ZERO).is_err() {
        return;
    }
    for c in first..first + rows {
        let bytes = row(c, 0, Some("b"), None).record();
        let _ = client.cursor.insert(&mut client.session, unsafe { strata_row::rowcode::Record::new(&bytes) });
    }
    client.session.statement_end();
    let _ = client.session.commit();
}

/// What the script can do with a disk that fails is of no interest here.
fn script(store: &Arc<Store>) {
    let engine = store.engine();
    for name in ["./db/a", "./db/b"] {
        if store.create_table(name, &definition(false), 0).is_err() {
            continue;
        }
        let Ok(table) = store.open_table(name, definition(false)) else { continue };
        for round in 0..2 {
            insert(store, &table, round * 100, 20);
            let _ = engine.flush();
        }
        drop(table);
        let _ = engine.compact_range(&[0; 4], &[255; 4]);
        let _ = store.drop_table(name);
    }
    let _ = engine.wait_idle();
}

fn open(disk: &MemDisk, listener: &Arc<Listener>) -> Arc<Store> {
    try_open(disk, listener).unwrap()
}

fn try_open(disk: &MemDisk, listener: &Arc<Listener>) -> strata_row::Result<Arc<Store>> {
    let options = Options {
        disk: Arc::new(disk.clone()),
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        transaction_bytes: 1 << 10,
        ..Options::default()
    };
    Store::open_listening(Path::new("/db"), options, listener.clone())
}

/// False if the script ended before the fault.
fn case(n: u64, kind: FaultKind, lasting: bool) -> (bool, Vec<String>, usize) {
    let disk = MemDisk::new();
    let listener = Arc::new(Listener::default());
    let store = open(&disk, &listener);
    listener.store.set(Arc::downgrade(&store)).unwrap();
    match lasting {
        true => disk.fail_from(n, kind),
        false => disk.fail_after(n, kind),
    }
    script(&store);
    let struck = !disk.clear_fault();
    let stopped = store.engine().check().is_err();
    drop(store);
    // One that is under way keeps the store open. One that has panicked does not end.
    while listener.calls.load(Ordering::SeqCst) > listener.ended.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let heard = listener.lines();
    let stops = listener.stops.load(Ordering::Relaxed);
    assert_eq!(stops, usize::from(stopped), "what stops the store is told once: {heard:?}");
    (struck, heard, listener.asked.load(Ordering::Relaxed))
}

#[test]
fn a_listener_may_ask_for_the_status() {
    let kinds = [(FaultKind::Other, false), (FaultKind::Other, true), (FaultKind::StorageFull, true)];
    let mut asked = 0;
    let mut heard = Vec::new();
    for (kind, lasting) in kinds {
        for n in (1..).step_by(4) {
            let (send, receive) = channel();
            std::thread::spawn(move || send.send(case(n, kind, lasting)));
            let outcome = receive.recv_timeout(Duration::from_secs(60));
            let (struck, texts, times) = outcome.unwrap_or_else(|e| panic!("operation {n}, {kind:?}, {lasting}: {e}"));
            asked += times;
            heard.extend(texts);
            if !struck {
                break;
            }
            assert!(n < 5000, "the script never gets past the fault");
        }
    }
    assert!(asked > 50, "{asked} times");
    for part in
        ["flush failed", "cannot remove", "injected fault", "the disk is full", "dropped indexes is not free yet"]
    {
        assert!(heard.iter().any(|text| text.contains(part)), "nobody was told '{part}'");
    }
}

/// Rows of one table, with a flush after each hundred. Those of a round lie between those of the others; a look for duplicates
/// may meet damage.
fn write(client: &mut Client, store: &Store, from: i64, rounds: i64) {
    for round in from..from + rounds {
        client.session.statement_begin(client.isolation, Duration::ZERO).unwrap();
        for c in 0..100 {
            let bytes = row(c * 1_000_000 + round, 0, Some("b"), None).record();
            let row = unsafe { strata_row::rowcode::Record::new(&bytes) };
            let inserted = client.cursor.insert(&mut client.session, row);
            let wrong = inserted.err().filter(|e| !e.to_string().contains("checksum"));
            assert!(wrong.is_none(), "{}", wrong.unwrap());
        }
        client.session.statement_end();
        client.session.commit().unwrap();
        let flushed = store.engine().flush();
        assert!(flushed.is_ok() || flushed.is_err_and(|e| e.to_string().contains("checksum")));
    }
}

fn within(what: &'static str, body: impl FnOnce() + Send + 'static) {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = send.send(());
    });
    match receive.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        _ => thread.join().unwrap(),
    }
}

/// A merge takes from the cache what it finds there, so each case opens the store anew: its cache has at most blocks of the catalog.
#[test]
fn a_listener_may_ask_for_the_status_when_a_merge_meets_damage() {
    within("a merge", || {
        let disk = MemDisk::new();
        let store = open(&disk, &Arc::default());
        store.create_table("./db/a", &definition(false), 0).unwrap();
        let table = store.open_table("./db/a", definition(false)).unwrap();
        write(&mut Client::new(&store, &table), &store, 0, 3);
        store.engine().compact_range(&[0; 4], &[255; 4]).unwrap();
        drop((table, store));
        // What the merge has replaced goes as a store opens.
        drop(open(&disk, &Arc::default()));
        let mut met = 0;
        for path in disk.list(Path::new("/db")).unwrap().into_iter().map(|name| Path::new("/db").join(name)) {
            if path.extension().is_some_and(|e| e == "sst") {
                let bytes = disk.content(&path).unwrap().len() as u64;
                met += (50..bytes).step_by(500).filter(|&at| merge_meets(&disk.copy(), &path, at)).count();
            }
        }
        assert!(met > 0, "no merge met damage");
    });
}

/// Whether a merge meets the damage of the byte `at` of a file: what lies there may be in no block, or keep the store closed.
fn merge_meets(disk: &MemDisk, file: &Path, at: u64) -> bool {
    disk.corrupt(file, at);
    let listener = Arc::new(Listener::default());
    let Ok(store) = try_open(disk, &listener) else { return false };
    listener.store.set(Arc::downgrade(&store)).unwrap();
    let Ok(table) = store.open_table("./db/a", definition(false)) else { return false };
    // More flushes than level 0 takes before it is merged.
    write(&mut Client::new(&store, &table), &store, 3, 10);
    let met = store.engine().wait_idle().is_err();
    // A fault is on the board before it is told.
    while met && !listener.lines().iter().any(|line| line.contains("compaction failed")) {
        std::thread::yield_now();
    }
    assert!(!met || listener.asked.load(Ordering::Relaxed) > 0);
    assert_eq!(listener.stops.load(Ordering::Relaxed), 0, "damage of a table does not stop the store");
    met
}

#[test]
fn a_listener_is_told_of_a_cut_while_the_store_opens() {
    within("an opening", || {
        let disk = MemDisk::new();
        let store = open(&disk, &Arc::default());
        store.create_table("./db/a", &definition(false), 0).unwrap();
        let table = store.open_table("./db/a", definition(false)).unwrap();
        write(&mut Client::new(&store, &table), &store, 0, 2);
        // The log's last page is torn, with a change in it that is nowhere else.
        store.create_table("./db/b", &definition(false), 0).unwrap();
        let image = disk.crash(1);
        let log = Path::new("/db/log");
        let mut segments = image.list(log).unwrap();
        segments.sort();
        let last_page = |name: &std::path::PathBuf| {
            let content = image.content(&log.join(name))?;
            Some((log.join(name), content.chunks(4096).rposition(|page| page.iter().any(|&byte| byte != 0))?))
        };
        let (last, page) = segments.iter().rev().find_map(last_page).unwrap();
        image.corrupt(&last, page as u64 * 4096 + 60);
        let listener = Arc::new(Listener::default());
        let store = open(&image, &listener);
        listener.store.set(Arc::downgrade(&store)).unwrap();
        let heard = listener.lines();
        assert!(heard.iter().any(|text| text.contains("the log ends in")), "{heard:?}");
    });
}
