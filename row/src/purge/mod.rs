//! The purge: rows that have expired are removed in the background, with all their index entries.
//!
//! # Algorithm
//! One thread goes around the tables whose rows expire and does a [`batch`] on each that is due: at most some hundred rows, deleted in one
//! transaction as any other rows are, under locks that are there at once or not at all. Between batches it pauses ([`pace`]). A crash undoes a
//! batch that is under way, and nothing else has to be remembered: a pass begins at the front of each table after a start.
//!
//! What has expired is judged by the clock, or by an earlier moment that somebody knows ([`Purge::start`]): a replica must not remove what
//! its source may still have prolonged.
//!
//! # Invariants
//! A batch and a change of tables exclude each other ([`Gate`](crate::gate::Gate)). No row is removed before its moment has passed. Nothing is
//! written to a log of the server's, no trigger runs: whoever has a copy of the table purges it alike.
//!
//! # Rejected
//! Merges that leave out expired rows: the entries of a row lie in other files, and would be left behind, or be gone while older versions
//! of the row came to light. Statements of the server's (an event that deletes): they need a connection, wait for locks, and are
//! replicated, so that a replica does the work twice.

mod batch;
mod pace;

use crate::error::{Error, Result};
use crate::event::Event;
use crate::kv;
use crate::session::Session;
use crate::store::Store;
use batch::{Batch, Place};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Up to which moment rows that have expired may go, of the present one, both in seconds since 1970.
pub type Until = Box<dyn Fn(u64) -> u64 + Send>;

/// The name of its thread.
const NAME: &str = "strata-purge";

/// How often the list of tables is looked at, in microseconds.
const ROUND_US: u64 = 1_000_000;

/// The thread of a store that purges. It ends when this drops.
pub struct Purge {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Arc<Store>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_on: bool,
    /// All tables are due.
    is_hurried: bool,
    is_stopping: bool,
}

/// What is known of a table.
#[derive(Default)]
struct Known {
    due_us: u64,
    busy_us: u64,
    place: Option<Place>,
    /// Why the last batch failed, as it was told.
    told: Option<String>,
}

impl Purge {
    /// Starts it. `until` says up to which moment rows may go.
    pub fn start(store: &Arc<Store>, is_on: bool, until: Until) -> io::Result<Purge> {
        let state = State { is_on, is_hurried: false, is_stopping: false };
        let shared = Arc::new(Shared { store: store.clone(), state: Mutex::new(state), changed: Condvar::new() });
        let work = shared.clone();
        let run = move || {
            let _known = kv::Known::begin(NAME);
            // A defect ends the purge: rows stay longer, and are not seen.
            drop(catch_unwind(AssertUnwindSafe(|| work.run(&until))));
            work.store.gate().set_worker(None);
        };
        let thread = std::thread::Builder::new().name(NAME.into()).spawn(run)?;
        Ok(Purge { shared, thread: Some(thread) })
    }

    /// Whether it works. Once it is told to, it goes through all tables at once.
    pub fn set_on(&self, on: bool) {
        let mut state = self.shared.state.lock();
        (state.is_on, state.is_hurried) = (on, on);
        self.shared.changed.notify_all();
    }

    /// Ends it: a batch that is under way ends at once.
    pub fn stop(&mut self) {
        self.shared.state.lock().is_stopping = true;
        self.shared.changed.notify_all();
        // As a change of tables does.
        drop(self.shared.store.gate().change());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Purge {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self, until: &Until) {
        let engine = self.store.engine();
        let mut session = session(&self.store);
        let mut tables: HashMap<u64, Known> = HashMap::new();
        let (mut names, mut listed_us) = (Vec::new(), None);
        while self.await_work(&mut tables) {
            let now_us = engine.now_us();
            if listed_us.is_none_or(|listed_us| now_us.saturating_sub(listed_us) >= ROUND_US) {
                (names, listed_us) = (self.store.catalog().expiring(), Some(now_us));
                let is_there: HashSet<u64> = names.iter().map(|(_, id)| *id).collect();
                tables.retain(|id, _| is_there.contains(id));
            }
            let due = |(_, id): &&(String, u64)| tables.get(id).is_none_or(|known| known.due_us <= now_us);
            let due: Vec<&(String, u64)> = names.iter().filter(due).collect();
            if due.is_empty() {
                self.sleep(ROUND_US);
                continue;
            }
            let moment = until(engine.unix_seconds());
            if moment == 0 {
                // Nobody knows yet.
                self.sleep(ROUND_US);
                continue;
            }
            for (name, id) in due {
                let known = tables.entry(*id).or_default();
                let busy_us = self.batch(&mut session, (name, *id), known, moment);
                if !self.sleep(pace::pause_us(busy_us)) {
                    break;
                }
            }
        }
    }

    /// One batch; how long it took.
    fn batch(&self, session: &mut Session, table: (&str, u64), known: &mut Known, moment: u64) -> u64 {
        let engine = self.store.engine();
        let began_us = engine.now_us();
        let done = batch::run(&self.store, session, table, &mut known.place, moment);
        let now_us = engine.now_us();
        let busy_us = now_us.saturating_sub(began_us);
        known.busy_us += busy_us;
        let rest_us = match done {
            Ok(None) => pace::BUSY_REST_US,
            Ok(Some(batch)) => {
                self.store.count_purged(&batch);
                known.told = None;
                match batch.is_through {
                    true => pace::rest_us(batch.is_ordered, std::mem::take(&mut known.busy_us)),
                    false => 0,
                }
            }
            Err(Error::Interrupted | Error::Engine(crate::kv::Error::Interrupted)) => pace::BUSY_REST_US,
            Err(error) => {
                known.place = None;
                self.tell(table.0, known, &error);
                pace::FAILED_REST_US
            }
        };
        known.due_us = now_us + rest_us;
        busy_us
    }

    /// What fails each minute is told when it is news.
    fn tell(&self, table: &str, known: &mut Known, error: &Error) {
        self.store.gate().counts.failed.fetch_add(1, Ordering::Relaxed);
        let text = error.to_string();
        if known.told.as_ref() != Some(&text) {
            self.store.catalog().tell(&Event::PurgeFailed { table, error: &text });
            known.told = Some(text);
        }
    }

    /// Until it is on; false once it is to end.
    fn await_work(&self, tables: &mut HashMap<u64, Known>) -> bool {
        let mut state = self.state.lock();
        while !state.is_on && !state.is_stopping {
            self.changed.wait(&mut state);
        }
        if std::mem::take(&mut state.is_hurried) {
            tables.values_mut().for_each(|known| known.due_us = 0);
        }
        !state.is_stopping
    }

    /// For a while, or until there is news; false if it is to leave off.
    fn sleep(&self, us: u64) -> bool {
        let mut state = self.state.lock();
        let goes_on = |state: &State| state.is_on && !state.is_stopping;
        if goes_on(&state) && !state.is_hurried {
            self.changed.wait_for(&mut state, Duration::from_micros(us));
        }
        goes_on(&state)
    }
}

/// A session that ends what it does once a change of tables waits.
fn session(store: &Arc<Store>) -> Session {
    let gate = store.gate().clone();
    let mut session = Session::new(store, Box::new(move || gate.is_wanted()));
    session.set_sees_expired(true);
    store.gate().set_worker(Some(session.kill_switch()));
    session
}

/// Goes through all tables once, on this thread and without pauses: rows that expired at `now` or before go, but for those that are
/// locked. How many went.
pub fn pass(store: &Arc<Store>, now: u64) -> Result<u64> {
    let mut session = session(store);
    let mut removed = 0;
    for (name, id) in store.catalog().expiring() {
        let mut place = None;
        while let Some(batch) = batch::run(store, &mut session, (&name, id), &mut place, now)? {
            store.count_purged(&batch);
            removed += batch.removed;
            if batch.is_through {
                break;
            }
        }
    }
    store.gate().set_worker(None);
    Ok(removed)
}

impl Store {
    fn count_purged(&self, batch: &Batch) {
        let counts = &self.gate().counts;
        counts.looked.fetch_add(batch.looked, Ordering::Relaxed);
        counts.removed.fetch_add(batch.removed, Ordering::Relaxed);
        counts.locked.fetch_add(batch.locked, Ordering::Relaxed);
        counts.passes.fetch_add(u64::from(batch.is_through), Ordering::Relaxed);
    }
}
