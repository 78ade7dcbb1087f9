//! Background work: one thread flushes, some compact, one keeps house.
//!
//! Users come first: these threads stand behind theirs as far as the backlog allows (`throttle::nice`, asked anew at each
//! slice), flushes less than compactions, since memory is the limit that stops writers. Merges are values that work in slices;
//! [`scheduler`] says which goes on. A thread sleeps between two slices while users write (`throttle::merge_us`) and nobody waits
//! for merges.
//!
//! A thread that fails (full disk, bad block) tells the error if it is news, waits, and tries again: a full disk that is freed heals
//! itself, if need be one memtable at a time. Nothing is lost meanwhile: what is not in SSTs is in the log. Writers go
//! on until the memtables are full and then get the error of the flush instead of waiting for ever. A file that cannot be
//! read is put in quarantine and other merges go on (`compact::quarantine`).
//!
//! A thread that panics stops the store's writing, see [`guard`]. Once the manifest has failed no work is begun: its
//! outcome could not be recorded. Tables whose record may or may not have reached the disk are left for recovery.

mod cleaner;
mod compactor;
mod flusher;
mod running;
mod scheduler;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use compactor::{await_renewal, compact_range, wait_idle};
pub(crate) use flusher::flush_and_wait;

use self::scheduler::{Scheduler, look};
use crate::base::{Error, Result};
use crate::io::Known;
use crate::parts::Core;

/// Pause of a thread after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// What is done each second beside the housekeeping of the store itself.
pub(crate) type Chores = dyn Fn() + Send + Sync;

/// The threads of a store. They end when this drops.
pub(crate) struct Threads {
    core: Arc<Core>,
    scheduler: Arc<Scheduler>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts them. `chores` are called by the one that keeps house.
    pub fn start(core: &Arc<Core>, chores: Box<Chores>) -> Result<Threads> {
        let scheduler = Arc::new(Scheduler::new(core));
        let all = Threads { core: core.clone(), scheduler, threads: Mutex::default() };
        all.spawn("strata-flush", flusher::flush_loop)?;
        all.spawn("strata-clean", move |core| cleaner::clean_loop(core, &chores))?;
        for _ in 0..core.board.compactors() {
            let scheduler = all.scheduler.clone();
            all.spawn("strata-compact", move |_| compactor::compact_loop(&scheduler))?;
        }
        look(core);
        Ok(all)
    }

    fn spawn(&self, name: &'static str, work: impl FnOnce(&Arc<Core>) + Send + 'static) -> Result<()> {
        let core = self.core.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _known = Known::begin(name);
                guard(&core, work);
            })
            .map_err(|e| Error::io("start a background thread of", &self.core.tree.ssts.dir, e))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Ends them, and returns when they have ended.
    pub fn stop(&self) {
        self.core.board.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last handle of a store may be dropped by one of its own threads.
            if thread.thread().id() != std::thread::current().id() {
                // Panics are caught inside.
                drop(thread.join());
            }
        }
        self.scheduler.give_up();
        // Who met it may have held locks, and the thread that tells then is gone.
        self.core.journal.log.tell_stopped();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a background thread. A panic is a defect of the engine whose reach nobody knows, so the store stops writing as
/// after a failed sync: reads go on, nothing is acknowledged, and the next opening recovers from what is on disk.
fn guard(core: &Arc<Core>, work: impl FnOnce(&Arc<Core>)) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(core))) else { return };
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    let text = format!("thread panicked: {}", text.unwrap_or("no message"));
    let error = Error::io("run background work of", &core.tree.ssts.dir, std::io::Error::other(text));
    core.journal.log.stop(error.clone());
    let board = &core.board;
    board.shared.lock().failed = Some(Error::Poisoned(Arc::new(error)));
    board.progress.notify_all();
    core.journal.log.tell_stopped();
}
