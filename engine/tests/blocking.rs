//! Every wait of a thread is told to whoever runs the threads, and nothing else is.

#[path = "suite/common/mod.rs"]
mod common;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use common::{Rng, hooked, key, options, value, within};
use parking_lot::{Condvar, Mutex};
use strata_engine::internals::wal::{Log, LogOptions, Tail};
use strata_engine::io::{Blocking, BlockingHook, Disk, MemDisk, set_blocking_hook};
use strata_engine::layer::{CrashHook, CrashPoint, LockMode, LockOwner, SeqNo, Txn, Wait};
use strata_engine::{Engine, Error, Options, Result};

thread_local! {
    /// Waits for locks and for the log on this thread; and how deep it is in waits.
    static TOLD: Cell<(u32, u32, i32)> = const { Cell::new((0, 0, 0)) };
}

/// Threads that wait for background work now.
static FOR_BACKGROUND: AtomicU32 = AtomicU32::new(0);
thread_local! {
    static WAITS_FOR: Cell<Option<Blocking>> = const { Cell::new(None) };
    /// Where this thread counts the waits it has told of, if another one looks at them.
    static WATCHED: RefCell<Option<Arc<AtomicU32>>> = const { RefCell::new(None) };
}

fn begins(what: Blocking) {
    let (locks, log, depth) = TOLD.get();
    let (lock, sync) = (u32::from(what == Blocking::Lock), u32::from(what == Blocking::Log));
    TOLD.set((locks + lock, log + sync, depth + 1));
    WAITS_FOR.set(Some(what));
    WATCHED.with_borrow(|told| {
        if let Some(told) = told {
            told.fetch_add(1, Ordering::SeqCst);
        }
    });
    FOR_BACKGROUND.fetch_add(u32::from(what == Blocking::Background), Ordering::SeqCst);
}

fn ends() {
    let (locks, log, depth) = TOLD.get();
    TOLD.set((locks, log, depth - 1));
    let was = WAITS_FOR.take();
    FOR_BACKGROUND.fetch_sub(u32::from(was == Some(Blocking::Background)), Ordering::SeqCst);
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

/// Who waits until a flush makes room in memory obeys an interrupt (KILL, max_statement_time) though the flush hangs: with a
/// small commit, and with a transaction that is about to write files. What it wanted to write is not there, and the next one's
/// writes are.
#[test]
fn a_writer_who_waits_for_memory_can_be_interrupted() {
    set_blocking_hook(BlockingHook { begins, ends });
    within("waits for memory", 60, || {
        let gate = Arc::new((Mutex::new(true), Condvar::new()));
        let hook = {
            let gate = gate.clone();
            Arc::new(move |_: &str, path: &Path| {
                let is_flush = std::thread::current().name() == Some("strata-flush");
                if is_flush && path.extension().is_some_and(|extension| extension == "sst") {
                    let mut closed = gate.0.lock();
                    while *closed {
                        gate.1.wait(&mut closed);
                    }
                }
            })
        };
        let disk = hooked(MemDisk::new(), hook);
        let options = Options { log_segment_bytes: 1 << 20, transaction_bytes: 64 << 10, ..options(disk) };
        let budget = options.memtable_budget_bytes;
        let engine = Engine::open(Path::new("/store"), options).unwrap();
        let small = |txn: &mut Txn, n: u64, rng: &mut Rng| -> Result<()> {
            txn.put(&key(1, n), &value(rng, n, 4000))?;
            txn.commit().map(drop)
        };
        let large = |txn: &mut Txn, n: u64, rng: &mut Rng| -> Result<()> {
            (0..200).try_for_each(|k| txn.put(&key(2, 1000 * n + k), &value(rng, n, 1000)))?;
            txn.commit().map(drop)
        };
        type Write = fn(&mut Txn, u64, &mut Rng) -> Result<()>;
        for (index, write) in [(1, small as Write), (2, large as Write)] {
            let running: Mutex<Option<Arc<LockOwner>>> = Mutex::default();
            let done = AtomicBool::new(false);
            let mut rng = Rng::new(index);
            let (mut txn, refused) = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    for n in 0.. {
                        let mut txn = engine.begin();
                        *running.lock() = Some(txn.owner().clone());
                        if let Err(error) = write(&mut txn, n, &mut rng) {
                            done.store(true, Ordering::SeqCst);
                            return (txn, (n, error));
                        }
                    }
                    unreachable!()
                });
                while !done.load(Ordering::SeqCst) {
                    let is_full = engine.metrics().memtable_bytes >= budget;
                    if let Some(owner) = running.lock().as_ref().filter(|_| is_full)
                        && FOR_BACKGROUND.load(Ordering::SeqCst) > 0
                    {
                        owner.interrupt();
                    }
                    std::thread::yield_now();
                }
                writer.join().unwrap()
            });
            let (n, error) = refused;
            assert!(matches!(error, Error::Interrupted), "{error}");
            assert!(*gate.0.lock(), "nothing was flushed meanwhile");
            txn.rollback().unwrap();
            let there = |n: u64| engine.get_at(&key(index as u32, n), engine.visible(), &mut Vec::new()).unwrap();
            assert!(!there(if index == 1 { n } else { 1000 * n }));
            assert_eq!(n > 0 && index == 1, index == 1 && there(n - 1));
            assert_eq!(engine.metrics().work.flushes, 0);
            let work = engine.metrics().work;
            assert!(work.write_stalls > index - 1 && work.write_stall_us > 0, "a stall shows: {work:?}");
        }
        *gate.0.lock() = false;
        gate.1.notify_all();
        let (mut txn, mut rng) = (engine.begin(), Rng::new(3));
        small(&mut txn, 99_999, &mut rng).unwrap();
        assert!(engine.get_at(&key(1, 99_999), SeqNo::MAX, &mut Vec::new()).unwrap());
        engine.flush().unwrap();
    });
}

/// A thread, and the number of waits that it has told of.
fn watched<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> (Arc<AtomicU32>, JoinHandle<T>) {
    let told = Arc::new(AtomicU32::new(0));
    let mine = told.clone();
    let thread = std::thread::spawn(move || {
        WATCHED.replace(Some(mine));
        work()
    });
    (told, thread)
}

/// Returns when `told` says that the watched thread waits.
fn until_waiting(told: &AtomicU32) {
    while told.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

/// A gate that a thread stands at.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, bool)>,
    moved: Condvar,
}

impl Gate {
    /// The first to come waits here until the gate opens; later ones pass.
    fn stand(&self) {
        let mut state = self.state.lock();
        if !state.0 {
            state.0 = true;
            self.moved.notify_all();
            while !state.1 {
                self.moved.wait(&mut state);
            }
        }
    }

    fn until_somebody_stands(&self) {
        let mut state = self.state.lock();
        while !state.0 {
            self.moved.wait(&mut state);
        }
    }

    fn open(&self) {
        self.state.lock().1 = true;
        self.moved.notify_all();
    }
}

/// A commit that must wait until an earlier one is visible tells it, and tells it as ended before it returns.
#[test]
fn a_wait_for_an_earlier_commit_is_told() {
    set_blocking_hook(BlockingHook { begins, ends });
    within("waits for an earlier commit", 60, || {
        let gate = Arc::new(Gate::default());
        let on_crash_point: CrashHook = {
            let gate = gate.clone();
            Arc::new(move |step| {
                if step == CrashPoint::Ordered {
                    gate.stand();
                }
            })
        };
        let options = Options { on_crash_point: Some(on_crash_point), ..options(Arc::new(MemDisk::new())) };
        let engine = Arc::new(Engine::open(Path::new("/store"), options).unwrap());
        let commit = |k: u64| {
            let engine = engine.clone();
            move || {
                let mut txn = engine.begin();
                txn.put(&key(1, k), b"value").unwrap();
                txn.commit().unwrap();
                assert_eq!(TOLD.get().2, 0, "every wait has ended");
            }
        };
        let first = std::thread::spawn(commit(1));
        gate.until_somebody_stands();
        // It has its place behind the first one, so it cannot be visible, nor come to its own sync.
        let (told, second) = watched(commit(2));
        until_waiting(&told);
        assert_eq!(engine.visible(), SeqNo(0));
        gate.open();
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(engine.visible(), SeqNo(2));
    });
}

/// A record for which the log's buffer has no room while another thread writes waits, and tells it.
#[test]
fn a_wait_for_room_in_the_log_is_told() {
    set_blocking_hook(BlockingHook { begins, ends });
    within("waits for room in the log", 60, || {
        let gate = Arc::new(Gate::default());
        let armed = Arc::new(AtomicBool::new(false));
        let hook = {
            let (gate, armed) = (gate.clone(), armed.clone());
            Arc::new(move |what: &str, _: &Path| {
                if what == "write" && armed.load(Ordering::SeqCst) {
                    gate.stand();
                }
            })
        };
        let inner = MemDisk::new();
        let dir = Path::new("/log");
        inner.create_dir_all(dir).unwrap();
        let disk: Arc<dyn Disk> = hooked(inner, hook);
        let options = LogOptions { segment_bytes: 1 << 20, epoch: 7, buffer_bytes: 64 << 10, ..LogOptions::default() };
        let log = Arc::new(Log::open(disk, dir, options, Tail::NEW, Box::new(|_| Ok(()))).unwrap());
        let mut rng = Rng::new(1);
        let record = Arc::new(value(&mut rng, 1, 40 << 10));
        let end = log.append(&record).unwrap().end;
        armed.store(true, Ordering::SeqCst);
        let leader = {
            let log = log.clone();
            std::thread::spawn(move || log.sync(end).unwrap())
        };
        gate.until_somebody_stands();
        let (told, follower) = {
            let (log, record) = (log.clone(), record.clone());
            watched(move || {
                log.append(&record).unwrap();
                log.append(&record).unwrap();
                assert_eq!(TOLD.get().2, 0, "every wait has ended");
            })
        };
        until_waiting(&told);
        gate.open();
        leader.join().unwrap();
        follower.join().unwrap();
    });
}

/// Who ends a prepared transaction from another session and must wait until its own has let go tells it: in a pool that
/// session may need a thread for that.
#[test]
fn a_wait_for_the_session_of_a_prepared_transaction_is_told() {
    set_blocking_hook(BlockingHook { begins, ends });
    within("waits for the session", 60, || {
        let engine = Arc::new(Engine::open(Path::new("/store"), options(Arc::new(MemDisk::new()))).unwrap());
        let mut txn = engine.begin();
        txn.put(&key(1, 1), b"value").unwrap();
        txn.prepare(b"xid").unwrap();
        let (told, other) = {
            let engine = engine.clone();
            watched(move || {
                assert!(engine.rollback_prepared(b"xid").unwrap());
                assert_eq!(TOLD.get().2, 0, "every wait has ended");
            })
        };
        until_waiting(&told);
        drop(txn);
        other.join().unwrap();
    });
}
