//! Waits for row locks, as replication sees them.
//!
//! The server has transactions whose order of commits is fixed before they begin: the workers of a parallel replica. One
//! that waits for a row lock of another that must commit after it would wait for ever, since the other waits for its turn
//! with the lock in its hands. So every wait is told to the server, which has the later one killed and tried again. A
//! source is asked, too: it marks transactions that had to wait in the binlog, and ends pauses of its group commit.
//!
//! Locks belong to owners by number, connections to the server; a session knows its owner of the moment. Who is waited for
//! matters to the workers of a replica and where group commit pauses; elsewhere nobody is looked up. The search goes through
//! all sessions: a wait costs two switches of threads, so many look-ups cost less than keeping a map up to date in every
//! transaction would.
//!
//! Rejected: asking the server whether the order of two transactions is settled already (`thd_need_ordering_with`), to let
//! one pass the other's interval. It saves retries of transactions that did not meet on the source and do meet here, as gap
//! locks between rows may. Locked intervals are exactly what was scanned, and a scan waits for a key that comes in just as
//! the key waits for the scan: two transactions that ran at the same time on a source with Strata do so in either order
//! on the replica. Where the source has another engine or the plan differs, the later one is killed and tried again.
//!
//! Lock order: the list of sessions -> a session's owner -> the server's own mutexes that its functions below take. Neither
//! of the first two is held when a session begins or ends work in the server.

use crate::types::CCallbacks;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use strata_engine::io::{Blocking, BlockingHook, ThreadHook, set_blocking_hook, set_thread_hook};
use strata_engine::layer::{Deadlock, WaitObserver};
use strata_row::kill_switch::KillSwitch;
use strata_row::report::deadlock_text;
use strata_row::store::Store;

/// A connection: a pointer that only goes back to the server.
#[derive(Clone, Copy)]
pub struct Thd(pub *const c_void);

// SAFETY: never dereferenced here.
unsafe impl Send for Thd {}
// SAFETY: the same.
unsafe impl Sync for Thd {}

type Sessions = BTreeMap<usize, (Arc<KillSwitch>, Thd)>;

static BLOCKING: OnceLock<(unsafe extern "C" fn(c_int), unsafe extern "C" fn())> = OnceLock::new();

/// Has the server told of every wait of a thread, so that a pool of threads lets another one work meanwhile.
pub fn tell_blocking(calls: &CCallbacks) {
    let (Some(begins), Some(ends)) = (calls.blocking_begins, calls.blocking_ends) else { return };
    if BLOCKING.set((begins, ends)).is_ok() {
        set_blocking_hook(BlockingHook { begins: blocking_begins, ends: blocking_ends });
    }
}

fn blocking_begins(what: Blocking) {
    let number = match what {
        Blocking::Lock => 0,
        Blocking::Log => 1,
        Blocking::Background => 2,
    };
    if let Some((begins, _)) = BLOCKING.get() {
        // SAFETY: a function of the server's, for any thread.
        unsafe { begins(number) };
    }
}

fn blocking_ends() {
    if let Some((_, ends)) = BLOCKING.get() {
        // SAFETY: as above.
        unsafe { ends() };
    }
}

/// Longer statements are shown as far as that.
const SHOWN_MAX: usize = 1024;

/// What a connection runs at this moment; null: that of the calling thread, if it has one.
unsafe fn statement(calls: &CCallbacks, thd: *const c_void) -> Option<String> {
    let mut text = vec![0; SHOWN_MAX];
    // SAFETY: the caller vouches for the connection; the buffer has the length that is told.
    let length = unsafe { calls.query?(thd, text.as_mut_ptr().cast(), text.len()) };
    text.truncate(length);
    (length > 0).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// What the connection of the calling thread runs.
pub fn own_statement(calls: &CCallbacks) -> Option<String> {
    // SAFETY: no connection is named.
    unsafe { statement(calls, std::ptr::null()) }
}

type ThreadCalls = (unsafe extern "C" fn(*const c_char), unsafe extern "C" fn());

static THREADS: OnceLock<ThreadCalls> = OnceLock::new();

/// Has the server told of the store's threads: of those that are started from now on.
pub fn tell_threads(calls: &CCallbacks) {
    let (Some(begins), Some(ends)) = (calls.thread_begins, calls.thread_ends) else { return };
    if THREADS.set((begins, ends)).is_ok() {
        set_thread_hook(ThreadHook { begins: thread_begins, ends: thread_ends });
    }
}

fn thread_begins(name: &str) {
    if let (Some((begins, _)), Ok(name)) = (THREADS.get(), CString::new(name)) {
        // SAFETY: a function of the server's, on the thread itself; the name ends with 0.
        unsafe { begins(name.as_ptr()) };
    }
}

fn thread_ends() {
    if let Some((_, ends)) = THREADS.get() {
        // SAFETY: as above.
        unsafe { ends() };
    }
}

/// All sessions of the store, and what the server wants to know about them.
pub struct Waits {
    sessions: RwLock<Sessions>,
    calls: CCallbacks,
    /// Whose locks they are.
    store: Weak<Store>,
    /// Whether each deadlock gets a line in the server's log.
    prints: AtomicBool,
}

impl Waits {
    /// Without sessions.
    pub fn new(calls: CCallbacks, store: &Arc<Store>) -> Waits {
        Waits { sessions: RwLock::default(), calls, store: Arc::downgrade(store), prints: AtomicBool::new(false) }
    }

    /// From now on each deadlock is told in the server's log, or no longer.
    pub fn print_deadlocks(&self, on: bool) {
        self.prints.store(on, Ordering::Relaxed);
    }

    /// What the connection of an owner runs at this moment.
    fn statement(&self, owner: u64) -> Option<String> {
        let sessions = self.sessions.read();
        let thd = thd_of(&sessions, owner)?;
        // SAFETY: the connection lives, as it cannot leave meanwhile.
        unsafe { statement(&self.calls, thd.0) }
    }

    /// A session begins. The connection must live until `leave`.
    pub fn join(&self, session: &Arc<KillSwitch>, thd: Thd) {
        self.sessions.write().insert(Arc::as_ptr(session).addr(), (session.clone(), thd));
    }

    /// The session ends; nobody speaks of its connection when this returns.
    pub fn leave(&self, session: &Arc<KillSwitch>) {
        self.sessions.write().remove(&Arc::as_ptr(session).addr());
    }
}

fn thd_of(sessions: &Sessions, owner: u64) -> Option<&Thd> {
    sessions.values().find(|(session, _)| session.owner_number() == owner).map(|(_, thd)| thd)
}

impl WaitObserver for Waits {
    fn waits(&self, _waiter: u64, ahead: &dyn Fn() -> Vec<u64>) {
        let (Some(wanted), Some(waits)) = (self.calls.wants_waits, self.calls.waits) else { return };
        // SAFETY: asks for this thread's connection.
        let wanted = unsafe { wanted() };
        if wanted == 0 {
            return;
        }
        // Nobody's locks count, too: those of prepared transactions without a connection.
        // SAFETY: as above.
        unsafe { waits(std::ptr::null()) };
        if wanted == 1 {
            return;
        }
        let mut ahead = ahead();
        ahead.sort_unstable();
        for (session, other) in self.sessions.read().values() {
            let number = session.owner_number();
            if ahead.binary_search(&number).is_ok() {
                // SAFETY: the other connection lives, as it cannot leave meanwhile; nor can its transaction end.
                session.while_owner(number, || unsafe { waits(other.0) });
            }
        }
    }

    fn victim(&self, cycle: &[u64]) -> Option<u64> {
        let prefer = self.calls.victim?;
        let sessions = self.sessions.read();
        let owners: Vec<(u64, &Thd)> =
            cycle.iter().filter_map(|&owner| Some((owner, thd_of(&sessions, owner)?))).collect();
        // SAFETY: connections live, as they cannot leave meanwhile.
        choose(&owners, |a, b| unsafe { prefer(a.0, b.0) })
    }

    fn deadlock(&self, deadlock: &Deadlock) {
        let Some(store) = self.store.upgrade() else { return };
        let statements = deadlock.waits.iter().map(|wait| self.statement(wait.owner)).collect();
        let noted = store.note_deadlock(deadlock, statements);
        if let (true, Some(log)) = (self.prints.load(Ordering::Relaxed), self.calls.log) {
            for line in deadlock_text(&store, &noted).lines().map(|line| format!("deadlock: {line}")) {
                // SAFETY: the header allows the call from any thread; text and length belong together.
                unsafe { log(0, line.as_ptr().cast(), line.len()) };
            }
        }
    }
}

/// The one that gives way to all others of those between which there is a preference: negative if the first gives way.
fn choose<T>(owners: &[(u64, T)], prefer: impl Fn(&T, &T) -> i32) -> Option<u64> {
    let mut chosen: Option<&(u64, T)> = None;
    for a in owners {
        for b in owners.iter().filter(|b| b.0 != a.0) {
            if prefer(&a.1, &b.1) < 0 && chosen.is_none_or(|chosen| chosen.0 == a.0 || prefer(&a.1, &chosen.1) < 0) {
                chosen = Some(a);
            }
        }
    }
    chosen.map(|chosen| chosen.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the server has it: of two workers the one whose turn to commit is later gives way; others do not matter.
    fn by_turn(a: &Option<u32>, b: &Option<u32>) -> i32 {
        match (a, b) {
            (Some(a), Some(b)) if a < b => 1,
            (Some(_), Some(_)) => -1,
            _ => 0,
        }
    }

    /// As the server has it, too: who has written to tables without transactions does not give way to others.
    #[test]
    fn who_cannot_be_undone_stays() {
        let prefer = |a: &i32, b: &i32| a - b;
        for (cycle, expected) in [
            (vec![(1, 0), (2, 0)], None),
            (vec![(1, 1), (2, 0)], Some(2)),
            (vec![(1, 0), (2, 1)], Some(1)),
            (vec![(1, 1), (2, 1)], None),
        ] {
            assert_eq!(choose(&cycle, prefer), expected, "{cycle:?}");
        }
    }

    #[test]
    fn the_latest_worker_gives_way() {
        for (cycle, expected) in [
            (vec![(1, None), (2, None)], None),
            (vec![(1, Some(5)), (2, None)], None),
            (vec![(1, Some(5)), (2, Some(6))], Some(2)),
            (vec![(1, Some(6)), (2, Some(5))], Some(1)),
            (vec![(1, Some(6)), (2, None), (3, Some(9)), (4, Some(7))], Some(3)),
            (vec![(1, Some(9)), (2, None), (3, Some(6)), (4, Some(7))], Some(1)),
        ] {
            assert_eq!(choose(&cycle, by_turn), expected, "{cycle:?}");
        }
    }
}
