//! Every wait of a thread is told to whoever runs the threads, and nothing else is.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use strata_engine::io::{Blocking, BlockingHook, MemDisk, set_blocking_hook};
use strata_engine::lock::{LockMode, Wait};
use strata_engine::{Engine, Error, Options};

thread_local! {
    /// Waits for locks and for the log on this thread; and how deep it is in waits.
    static TOLD: Cell<(u32, u32, i32)> = const { Cell::new((0, 0, 0)) };
}

fn begins(what: Blocking) {
    let (locks, log, depth) = TOLD.get();
    let (lock, sync) = (u32::from(what == Blocking::Lock), u32::from(what == Blocking::Log));
    TOLD.set((locks + lock, log + sync, depth + 1));
}

fn ends() {
    let (locks, log, depth) = TOLD.get();
    TOLD.set((locks, log, depth - 1));
}

#[test]
fn locks_and_syncs_are_told_only_where_somebody_waits() {
    set_blocking_hook(BlockingHook { begins, ends });
    let disk = Arc::new(MemDisk::new());
    let engine = Engine::open(Path::new("/store"), Options { disk, ..Options::default() }).unwrap();
    TOLD.set((0, 0, 0));
    let (mut a, mut b) = (engine.begin(), engine.begin());
    let key = b"\0\0\x10\0key";
    a.lock(key, LockMode::Exclusive, Wait::TimeoutUs(1000)).unwrap();
    a.put(key, b"value").unwrap();
    assert!(matches!(b.lock(key, LockMode::Exclusive, Wait::No), Err(Error::LockBusy)));
    assert_eq!(TOLD.get(), (0, 0, 0), "nobody has waited");
    assert!(matches!(b.lock(key, LockMode::Exclusive, Wait::TimeoutUs(1000)), Err(Error::LockTimeout)));
    assert_eq!(TOLD.get(), (1, 0, 0));
    a.commit().unwrap();
    assert_eq!(TOLD.get(), (1, 1, 0), "one sync");
    engine.sync().unwrap();
    assert_eq!(TOLD.get(), (1, 1, 0), "there is nothing to sync");
}
