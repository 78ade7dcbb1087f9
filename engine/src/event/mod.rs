//! What a store tells whoever runs it, as values: an [`Event`] for each thing that begins, ends or fails, given to an
//! [`EventListener`] at the moment and on the thread that meets it.
//!
//! ```text
//! Info       routine work: a flush, a merge, a stall. For listeners and figures; nobody wants a line for each
//! Note       trouble that was told is over; an opening or a closing that takes long
//! Warning    something failed or was cut; the store goes on, and tries again where that can help
//! Error      stored bytes are damaged, or the store has stopped: somebody has to act
//! ```
//!
//! A listener is called outside of every lock of the store and never for a row. So it may ask for the status, read, take
//! snapshots and write. Its writes do not wait for memory, since the thread may be the one that frees it. What waits for
//! background work (a flush, a compaction) is refused there with an error. A row that is locked by the transaction whose thread
//! this is stays locked. It is called from many threads, also at once, and events of different threads may arrive in another
//! order than they happened in: `job` and `stall` say which end belongs to which beginning. The work that is told of waits for
//! it. One that panics loses that event, and nothing else happens: the next event comes as usual.
//!
//! Where nobody listens no event is made: no allocation, no lock.
//!
//! What fails each second is not told each second; [`incidents`] decides. Events of routine work are all told.
//!
//! Rejected: lines of text (a test or a monitor would have to parse them, and whoever makes the line would decide where it
//! goes); a trait with a method for each kind (each new kind would change it, or be lost in a default method); a thread of its
//! own for the calls (an event would come after what followed from it, and a queue has to have an end).

mod incidents;
mod pace;
mod stalls;
mod text;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use self::incidents::Incidents;
pub(crate) use self::pace::Pace;
pub use self::pace::Reached;
use self::stalls::{Change, Ended, Stalls};
use crate::base::Error;
pub use crate::compact::pick::Reason as MergeReason;
use crate::io::Clock;

/// How much an event matters to whoever runs the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Routine work.
    Info,
    /// Trouble that was told is over, or an opening or a closing takes long.
    Note,
    /// Something failed or was cut, and the store goes on.
    Warning,
    /// Stored bytes are damaged, or the store has stopped.
    Error,
}

/// Work that can fail without a caller who would hear of it, and writes, which have one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Work {
    /// Writing memtables to table files.
    Flush,
    /// Merging table files.
    Merge,
    /// Making segments of the log, and its sync each second where commits do not wait for one.
    Log,
    /// Copying prepare records to the end of the log.
    Relocation,
    /// Giving up segments of the log that nobody needs any more.
    Recycling,
    /// Removing table files that nobody needs any more.
    Removal,
    /// A write of a user's or of the layer above, for which the log has no room. It has got the error, as have those below.
    Write,
    /// Writing the files of a large transaction.
    Spill,
    /// Recording in the manifest that indexes are dropped or a feature is used.
    Record,
}

/// Why a memtable was sealed, which is why it is flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FlushReason {
    /// It had the size at which memtables are sealed.
    Full,
    /// All memtables together fill their budget.
    Memory,
    /// Too much log is kept for it.
    Log,
    /// The commit of a large transaction, whose files stand behind it.
    LargeTransaction,
    /// A scan stepped over many dead rows in it.
    DeadRows,
    /// Somebody asked for it.
    Asked,
    /// The store is being closed, and the next opening would be long to read the log of it.
    Closing,
    /// The store was opened, and its log held more than one memtable.
    Recovery,
}

/// Why writes wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StallCause {
    /// The memtables fill their budget: writes stop until a flush has made room.
    Memtables,
    /// Flushes or merges lag behind: each write waits a little, together a tenth of the time or more.
    Backlog,
}

/// Something that happened in a store. Sizes are in bytes, times in microseconds of the store's clock.
///
/// `Display` gives the line that an operator reads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Recovery reads the log, in bytes. Told each ten seconds while the store is opened. The log may end before its last file does, so
    /// what there is to read is an upper bound.
    Recovering(Reached),
    /// The store was opened.
    Opened {
        /// Table files.
        files: u64,
        /// Commits that were read from the log.
        commits: u64,
        /// Prepared transactions that wait for a decision.
        prepared: u64,
        /// Table files that a crash had left without an owner, and that were removed.
        orphans: u64,
        /// How long it took.
        us: u64,
    },
    /// The end of the log, which nothing states to have been synced, was not used. Told while the store is opened.
    LogCut {
        /// The file in which the log ends.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        fault: &'static str,
        /// Bytes behind it that were not used.
        bytes: u64,
        /// Bytes before it of a record that is not complete without what was cut; 0: there is none.
        begun_bytes: u64,
        /// Intact units in what was cut.
        intact_units: u64,
        /// Whole records in these.
        records: u64,
        /// Commits among the records.
        commits: u64,
        /// Prepared transactions among the records.
        prepares: u64,
    },
    /// A file of a prepared transaction is damaged: the transaction can only be rolled back, and until then locks the indexes
    /// of the file. Told while the store is opened.
    PreparedDamaged {
        /// The transaction's id.
        xid: Vec<u8>,
        /// The damage, with file and offset.
        error: Error,
    },
    /// A flush begins.
    FlushBegun {
        /// Its number, which is that of no other flush or merge.
        job: u64,
        /// Memtables that it writes.
        memtables: u64,
        /// Bytes of memory that they take.
        bytes: u64,
        /// Why the oldest of them was sealed.
        reason: FlushReason,
    },
    /// A flush is done: its files are part of the store.
    FlushDone {
        /// Its number.
        job: u64,
        /// Memtables that it wrote.
        memtables: u64,
        /// Files that it wrote.
        files: u64,
        /// Bytes of memory that the memtables took.
        bytes_in: u64,
        /// Bytes of the files.
        bytes_out: u64,
        /// Why the oldest memtable was sealed.
        reason: FlushReason,
        /// How long it took.
        us: u64,
    },
    /// A flush failed and changed nothing. Each attempt is told.
    FlushFailed {
        /// Its number.
        job: u64,
        /// Why.
        error: Error,
    },
    /// A merge begins.
    MergeBegun {
        /// Its number, which is that of no other flush or merge.
        job: u64,
        /// Why it runs.
        reason: MergeReason,
        /// The topmost level that it reads.
        from: u8,
        /// The level that it writes.
        to: u8,
        /// Files that it reads.
        files: u64,
        /// Bytes of these.
        bytes: u64,
    },
    /// A merge is done: its files have taken the place of those that it read.
    MergeDone {
        /// Its number.
        job: u64,
        /// Why it ran.
        reason: MergeReason,
        /// The topmost level that it read.
        from: u8,
        /// The level that it wrote.
        to: u8,
        /// Files that it wrote.
        files: u64,
        /// Bytes that it read.
        bytes_in: u64,
        /// Bytes that it wrote.
        bytes_out: u64,
        /// From its beginning on, pauses included.
        us: u64,
    },
    /// A merge failed, or was given up since the store is being closed (`Closed`), and changed nothing. Each attempt is told.
    MergeFailed {
        /// Its number.
        job: u64,
        /// The topmost level that it read.
        from: u8,
        /// The level that it was to write.
        to: u8,
        /// Why.
        error: Error,
    },
    /// Files went to another level by their names alone.
    FilesMoved {
        /// The topmost level that they come from.
        from: u8,
        /// The level that they are in now.
        to: u8,
        /// How many.
        files: u64,
        /// Bytes of these.
        bytes: u64,
    },
    /// Writes begin to wait.
    WriteStallBegun {
        /// Its number among the stalls of this cause.
        stall: u64,
        /// Why.
        cause: StallCause,
        /// Bytes of all memtables.
        memtable_bytes: u64,
        /// Sorted runs of level 0.
        sublevels: u64,
        /// Bytes that merges still have to write.
        debt_bytes: u64,
    },
    /// No write waits any more.
    WriteStallEnded {
        /// Its number among the stalls of this cause.
        stall: u64,
        /// Why they waited.
        cause: StallCause,
        /// From the first that waited to the last.
        us: u64,
    },
    /// Background work has met damage. What a statement reads, it gets as its error instead.
    CorruptionFound {
        /// What met it.
        work: Work,
        /// The damage, with file and offset.
        error: Error,
    },
    /// The disk, or a quota, is full. Told once, until [`Event::SpaceFound`].
    OutOfSpace {
        /// What was refused first.
        work: Work,
        /// What the system said, with the path.
        error: Error,
    },
    /// The disk has space again for all that was refused.
    SpaceFound {
        /// How long it was full.
        us: u64,
    },
    /// Files are not encrypted as they should be, and are written anew: a key has a new version, or tables are to be encrypted or no longer.
    ReencryptionBegun {
        /// How many.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// All files are encrypted as they should be.
    ReencryptionDone {
        /// How long it took.
        us: u64,
    },
    /// Background work failed and is tried again.
    BackgroundFailed {
        /// What failed.
        work: Work,
        /// Why.
        error: Error,
        /// Failures for the same cause since it was told last.
        untold: u64,
    },
    /// Background work whose failure was told has succeeded again.
    BackgroundRecovered {
        /// What succeeded.
        work: Work,
        /// How often it had failed.
        failures: u64,
        /// How long after the first failure.
        us: u64,
    },
    /// The store is being closed and writes its memtables, in bytes. Told each ten seconds.
    Closing(Reached),
    /// The store has stopped: nothing is accepted until it is opened again. Told once.
    Stopped {
        /// What the disk, or a defect, has done.
        cause: Arc<Error>,
    },
}

impl Event {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Event::Opened { .. }
            | Event::FlushBegun { .. }
            | Event::FlushDone { .. }
            | Event::FlushFailed { .. }
            | Event::MergeBegun { .. }
            | Event::MergeDone { .. }
            | Event::MergeFailed { .. }
            | Event::FilesMoved { .. }
            | Event::WriteStallBegun { .. }
            | Event::WriteStallEnded { .. } => Severity::Info,
            Event::SpaceFound { .. }
            | Event::ReencryptionBegun { .. }
            | Event::ReencryptionDone { .. }
            | Event::BackgroundRecovered { .. }
            | Event::Recovering(_)
            | Event::Closing(_) => Severity::Note,
            Event::LogCut { .. }
            | Event::PreparedDamaged { .. }
            | Event::OutOfSpace { .. }
            | Event::BackgroundFailed { .. } => Severity::Warning,
            Event::CorruptionFound { .. } | Event::Stopped { .. } => Severity::Error,
        }
    }
}

/// Is told of events; see the module for what it may do. A closure `Fn(&Event)` is one.
pub trait EventListener: Send + Sync {
    /// This has happened.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> EventListener for F {
    fn event(&self, event: &Event) {
        self(event)
    }
}

thread_local! {
    static LISTENING: Cell<bool> = const { Cell::new(false) };
}

/// True on a thread that is within a listener.
pub(crate) fn is_listening() -> bool {
    LISTENING.get()
}

/// The thread is within a listener until this drops.
struct Listening {
    before: bool,
}

impl Listening {
    fn begin() -> Listening {
        Listening { before: LISTENING.replace(true) }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.set(self.before);
    }
}

/// Whom a store tells, and what it has told.
pub(crate) struct Teller {
    listener: Option<Arc<dyn EventListener>>,
    incidents: Mutex<Incidents>,
    stalls: Mutex<Stalls>,
    jobs: AtomicU64,
}

/// How far background work lags behind, for events of stalls.
pub(crate) struct Lag {
    pub memtable_bytes: u64,
    pub sublevels: u64,
    pub debt_bytes: u64,
}

impl Teller {
    pub fn new(listener: Option<Arc<dyn EventListener>>) -> Teller {
        Teller { listener, incidents: Mutex::default(), stalls: Mutex::default(), jobs: AtomicU64::new(0) }
    }

    /// Tells of an event, which is made only if somebody listens. The caller holds no lock.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(listener) = &self.listener {
            call(&**listener, &event());
        }
    }

    /// The store has stopped. What fails from now on is no news.
    #[cold]
    pub fn stopped(&self, cause: &Arc<Error>) {
        self.update(|incidents| {
            incidents.stopped();
            Some(Event::Stopped { cause: cause.clone() })
        });
    }

    /// A number for a flush or a merge.
    pub fn new_job(&self) -> u64 {
        self.jobs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Work on `bytes` failed at `now_us`: told unless it is known.
    #[cold]
    pub fn failed(&self, work: Work, bytes: u64, error: &Error, now_us: u64) {
        self.update(|incidents| incidents.failed(work, bytes, error, now_us));
    }

    /// A file turned out, for the first time, to be one that this work cannot read.
    #[cold]
    pub fn unreadable(&self, work: Work, error: &Error) {
        self.tell(|| incidents::failure(work, error.clone(), 0));
    }

    /// Work on `bytes` succeeded at `now_us`.
    pub fn succeeded(&self, work: Work, bytes: u64, now_us: u64) {
        self.update(|incidents| incidents.succeeded(work, bytes, now_us).into_iter().flatten());
    }

    /// The most bytes for which this work was refused by a full disk; `None` if it does not wait for space, or nobody listens.
    pub fn refused_bytes(&self, work: Work) -> Option<u64> {
        self.listener.as_ref()?;
        self.incidents.lock().refused_bytes(work)
    }

    /// A writer waits for memory while the result is held. `lag` is asked only for a stall that begins.
    pub fn wait_for_memory<'a>(&'a self, clock: &'a dyn Clock, lag: impl FnOnce() -> Lag) -> WaitForMemory<'a> {
        if self.listener.is_some() {
            let begun = self.stalls.lock().enter(clock.now_us());
            if let Some(stall) = begun {
                self.tell(|| stall_begun(stall, StallCause::Memtables, &lag()));
            }
        }
        WaitForMemory { teller: self, clock }
    }

    /// Looks how long writers have slept since the store was opened, as background work lags behind. To be called each second or
    /// more often.
    pub fn look_at_backlog(&self, slept_us: impl FnOnce() -> u64, now_us: u64, lag: impl FnOnce() -> Lag) {
        if self.listener.is_none() {
            return;
        }
        let slept_us = slept_us();
        let change = self.stalls.lock().look(slept_us, now_us);
        match change {
            Some(Change::Begun(stall)) => self.tell(|| stall_begun(stall, StallCause::Backlog, &lag())),
            Some(Change::Ended(ended)) => self.tell(|| stall_ended(&ended, StallCause::Backlog)),
            None => {}
        }
    }

    fn update<E: IntoIterator<Item = Event>>(&self, change: impl FnOnce(&mut Incidents) -> E) {
        let Some(listener) = &self.listener else { return };
        // In a statement of its own: the lock is free when the listener is called.
        let events = change(&mut self.incidents.lock());
        for event in events {
            call(&**listener, &event);
        }
    }
}

/// A writer waits for memory.
pub(crate) struct WaitForMemory<'a> {
    teller: &'a Teller,
    clock: &'a dyn Clock,
}

impl Drop for WaitForMemory<'_> {
    fn drop(&mut self) {
        if self.teller.listener.is_none() {
            return;
        }
        let ended = self.teller.stalls.lock().leave(self.clock.now_us());
        if let Some(ended) = ended {
            self.teller.tell(|| stall_ended(&ended, StallCause::Memtables));
        }
    }
}

fn stall_begun(stall: u64, cause: StallCause, lag: &Lag) -> Event {
    let &Lag { memtable_bytes, sublevels, debt_bytes } = lag;
    Event::WriteStallBegun { stall, cause, memtable_bytes, sublevels, debt_bytes }
}

fn stall_ended(ended: &Ended, cause: StallCause) -> Event {
    Event::WriteStallEnded { stall: ended.stall, cause, us: ended.us }
}

/// A panic stays here: what the store does does not depend on who watches it.
fn call(listener: &dyn EventListener, event: &Event) {
    let _listening = Listening::begin();
    drop(catch_unwind(AssertUnwindSafe(|| listener.event(event))));
}
