//! A listener that asks for the state of the store while it is told of a failure.
//!
//! Operations of the disk, each fourth one, fail once and for ever, under a script that flushes, merges, drops and commits.
//! Whatever is reported, and from whichever thread, the listener asks for the whole status before it returns: a report that
//! went out under a lock would hang. What stops the store is told exactly once.

mod common;

use common::*;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use strata_engine::io::{FaultKind, MemDisk};
use strata_row::kv::Options;
use strata_row::report;
use strata_row::store::Store;

#[derive(Default)]
struct Listener {
    store: OnceLock<Weak<Store>>,
    heard: Mutex<Vec<String>>,
    stops: AtomicUsize,
    asked: AtomicUsize,
}

impl Listener {
    fn hear(&self, text: &str) {
        if let Some(store) = self.store.get().and_then(Weak::upgrade) {
            assert!(!store.engine().status_text().is_empty());
            let _ = (store.engine().metrics(), store.engine().prepared(), store.engine().check());
            let _ = (
                report::locks(&store),
                report::lock_waits(&store),
                report::transactions(&store),
                report::deadlock(&store),
            );
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        self.heard.lock().unwrap().push(text.to_owned());
    }
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
            let mut client = Client::new(store, &table);
            if client.session.statement_begin(client.isolation, Duration::ZERO).is_err() {
                continue;
            }
            for c in 0..20 {
                let bytes = row(round * 100 + c, 0, Some("b"), None).record();
                let _ = client.cursor.insert(&mut client.session, unsafe { strata_row::rowcode::Record::new(&bytes) });
            }
            client.session.statement_end();
            let _ = client.session.commit();
            let _ = engine.flush();
        }
        drop(table);
        let _ = engine.compact_range(&[0; 4], &[255; 4]);
        let _ = store.drop_table(name);
    }
    let _ = engine.wait_idle();
}

/// False if the script ended before the fault.
fn case(n: u64, kind: FaultKind, lasting: bool) -> (bool, Vec<String>, usize) {
    let disk = MemDisk::new();
    let listener = Arc::new(Listener::default());
    let (reports, stops) = (listener.clone(), listener.clone());
    let options = Options {
        disk: Arc::new(disk.clone()),
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        transaction_bytes: 1 << 10,
        on_report: Some(Arc::new(move |text: &str| reports.hear(text))),
        on_stop: Some(Arc::new(move |text: &str| {
            stops.stops.fetch_add(1, Ordering::Relaxed);
            stops.hear(text);
        })),
        ..Options::default()
    };
    let store = Store::open(Path::new("/db"), options).unwrap();
    listener.store.set(Arc::downgrade(&store)).unwrap();
    match lasting {
        true => disk.fail_from(n, kind),
        false => disk.fail_after(n, kind),
    }
    script(&store);
    let struck = !disk.clear_fault();
    let stopped = store.engine().check().is_err();
    drop(store);
    let heard = listener.heard.lock().unwrap().clone();
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
    for part in ["flush failed", "cannot remove", "injected fault"] {
        assert!(heard.iter().any(|text| text.contains(part)), "nobody was told '{part}'");
    }
}
