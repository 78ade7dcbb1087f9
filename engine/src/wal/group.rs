//! Group sync: who brings to disk what was appended, for whom.
//!
//! Whoever needs durability and finds nobody writing becomes the *leader*: it closes the open unit, writes everything
//! buffered, syncs, publishes and hands the lead to the longest waiter that is not served yet. Those who come while a leader
//! is in I/O gather in the next unit, so groups grow with load and with the slowness of the device, without a timer and
//! without a thread.
//!
//! Who only wants what it wrote to survive the process waits for no sync: before the leader syncs it hands the lead to one of
//! those, and they write on meanwhile. Who wants a sync waits for the one that is under way, and gathers.
//!
//! What the last sync before a pause made durable has no unit behind it that says so, and damage to it would pass for a
//! torn tail. So once in a while, when nothing is under way, an empty unit that states it is written, unsynced
//! ([`Log::witness`]). A busy log witnesses itself.
//!
//! Invariants: at most one leader writes, and at most one thread syncs; units are written in order; after any failed write or sync
//! no other is begun and nothing more is reported durable. The leader takes `buffer` only for moments. Waiters park one by one
//! (no herd).
//!
//! Rejected: a log thread (two context switches per commit on an idle machine); a lead that ends before the sync for those who want
//! syncs, too (groups would be as small as the device's writes are fast, and a sync is what costs).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};

use parking_lot::MutexGuard;

use super::format::UnitBuf;
use super::log::{Buffer, Log, unit_capacity};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::io::{AlignedBuf, Blocking, File, Waiting};

/// Unit buffers kept for reuse: what a leader writes and what gathers meanwhile. More are needed only where a batch is
/// larger than a unit, and then they cost less than the write.
const SPARE_BUFS: usize = 2;

/// How far what was appended is to come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// To the operating system: it survives the process.
    System,
    /// To the device, as far as the writer sees to it; no sync.
    Device,
    /// It is durable.
    Sync,
}

const WAITING: u8 = 0;
pub(super) const SERVED: u8 = 1;
const LEADS: u8 = 2;

/// One per thread.
pub(super) struct Waiter {
    state: AtomicU8,
    thread: Thread,
}

/// A thread that waits, and for what.
pub(super) struct Queued {
    waiter: Arc<Waiter>,
    target: Lsn,
    want: Want,
}

thread_local! {
    static WAITER: RefCell<Option<Arc<Waiter>>> = const { RefCell::new(None) };
}

impl Waiter {
    fn of_this_thread() -> Arc<Waiter> {
        let new = || Arc::new(Waiter { state: AtomicU8::new(WAITING), thread: thread::current() });
        let waiter = WAITER.with_borrow_mut(|slot| slot.get_or_insert_with(new).clone());
        // Ordered by the buffer's mutex, under which it is queued.
        waiter.state.store(WAITING, Ordering::Relaxed);
        waiter
    }

    fn wait(&self) -> u8 {
        loop {
            match self.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                state => return state,
            }
        }
    }
}

impl Queued {
    pub(super) fn tell(&self, state: u8) {
        self.waiter.state.store(state, Ordering::Release);
        self.waiter.thread.unpark();
    }
}

impl Log {
    /// Returns once everything below `upto` has been handed to the operating system: it survives the death of the process, not a
    /// power cut.
    ///
    /// Errors: `Poisoned`; `Internal` if `upto` is beyond the end.
    pub fn write(&self, upto: Lsn) -> Result<()> {
        self.reach(upto, Want::System)
    }

    /// Returns once everything below `upto` is durable. One of the waiting threads does the I/O for all.
    ///
    /// Errors: `Poisoned`; `Internal` if `upto` is beyond the end.
    pub fn sync(&self, upto: Lsn) -> Result<()> {
        self.reach(upto, Want::Sync)
    }

    fn reached(&self, upto: Lsn, want: Want) -> bool {
        let mark = match want {
            Want::System | Want::Device => &self.written,
            Want::Sync => &self.durable,
        };
        mark.load(Ordering::Acquire) >= upto.0
    }

    /// Reached, and nothing has failed since: without the mutex, for which those who append contend.
    fn is_served(&self, upto: Lsn, want: Want) -> bool {
        self.reached(upto, want) && !self.poisoned.load(Ordering::Acquire)
    }

    fn reach(&self, upto: Lsn, want: Want) -> Result<()> {
        if self.is_served(upto, want) {
            return Ok(());
        }
        self.wait_for(upto, want).inspect_err(|_| self.tell_stopped())
    }

    fn wait_for(&self, upto: Lsn, want: Want) -> Result<()> {
        let mut buffer = self.buffer.lock();
        if upto > buffer.end() {
            return Err(Error::Internal(format!("log position {upto} is beyond its end")));
        }
        // Not under the mutex: who is told may take a while.
        drop(buffer);
        let _waiting = Waiting::begin(Blocking::Log);
        buffer = self.buffer.lock();
        loop {
            if let Some(e) = &buffer.poison {
                return Err(Error::Poisoned(e.clone()));
            }
            if self.reached(upto, want) {
                return Ok(());
            }
            if buffer.led || (buffer.syncing && want == Want::Sync) {
                let waiter = Waiter::of_this_thread();
                buffer.waiters.push(Queued { waiter: waiter.clone(), target: upto, want });
                drop(buffer);
                if waiter.wait() == LEADS {
                    // `led` stayed true for this thread.
                    self.lead(self.buffer.lock(), want);
                }
            } else {
                buffer.led = true;
                self.lead(buffer, want);
            }
            if self.is_served(upto, want) {
                return Ok(());
            }
            buffer = self.buffer.lock();
        }
    }

    /// One round as the leader (`led` is true and this thread's): writes all that is buffered, syncs if wanted, wakes
    /// whom that serves, and hands over or lays down the lead. Failure is left in `poison`.
    pub(super) fn lead<'a>(&'a self, mut buffer: MutexGuard<'a, Buffer>, want: Want) {
        debug_assert!(buffer.led && !(want == Want::Sync && buffer.syncing));
        if buffer.poison.is_none() {
            let mut units = self.take_units(&mut buffer, want);
            let end = buffer.end();
            buffer.in_io = units.len();
            buffer.count_group();
            drop(buffer);
            let outcome = self.write_units(&mut units, want);
            buffer = self.buffer.lock();
            self.take_back(&mut buffer, units);
            match outcome {
                Ok(unsynced) => {
                    self.written.store(end.0, Ordering::Release);
                    if want == Want::Sync {
                        buffer = self.sync_upto(buffer, &unsynced, end);
                        // The lead was given away.
                        return self.hand_on(buffer);
                    }
                }
                Err(e) => self.poison_with(&mut buffer, e),
            }
        }
        buffer.led = false;
        self.hand_on(buffer);
    }

    /// What the leader is to write. An open unit that fits a page stays open, unless it is to reach the device.
    fn take_units(&self, buffer: &mut Buffer, want: Want) -> Vec<UnitBuf> {
        let stays_open = want == Want::System && buffer.open.fits_page();
        if !stays_open && buffer.open.payload_bytes() > 0 {
            self.close_unit(buffer);
        }
        let mut units = std::mem::take(&mut buffer.closed);
        if stays_open && buffer.open.unwritten_bytes() > 0 {
            let page = buffer.page.take().unwrap_or_else(|| AlignedBuf::zeroed(IO_ALIGN));
            units.push(buffer.open.so_far(page));
        }
        units
    }

    /// The units were written, or the log has stopped.
    fn take_back(&self, buffer: &mut Buffer, units: Vec<UnitBuf>) {
        buffer.in_io = 0;
        for unit in units {
            buffer.unwritten -= unit.unwritten_bytes();
            let buf = unit.into_buf();
            if buf.len() == IO_ALIGN {
                buffer.page = Some(buf);
            } else if buffer.spare.len() < SPARE_BUFS && buf.len() == unit_capacity(self.options.segment_bytes) {
                buffer.spare.push(buf);
            }
        }
    }

    fn poison_with(&self, buffer: &mut Buffer, error: Error) {
        // Somebody may have stopped the log meanwhile.
        if buffer.poison.is_none() {
            // A segment could not be announced, as the manifest has stopped: the cause is that one's.
            buffer.poison = Some(match error {
                Error::Poisoned(cause) => cause,
                other => Arc::new(other),
            });
            self.poisoned.store(true, Ordering::Release);
        }
    }

    /// Syncs, after everything below `end` was written, while others may lead who want no sync.
    fn sync_upto<'a>(
        &'a self,
        mut buffer: MutexGuard<'a, Buffer>,
        unsynced: &[Arc<dyn File>],
        end: Lsn,
    ) -> MutexGuard<'a, Buffer> {
        buffer.syncing = true;
        buffer.led = false;
        self.hand_on(buffer);
        let outcome = self.sync_files(unsynced);
        buffer = self.buffer.lock();
        buffer.syncing = false;
        match outcome {
            Ok(()) => self.durable.store(end.0, Ordering::Release),
            Err(e) => self.poison_with(&mut buffer, e),
        }
        buffer
    }

    /// Wakes whom what was done serves, and gives the lead, if it is free, to the longest waiter that can use it.
    fn hand_on(&self, mut buffer: MutexGuard<'_, Buffer>) {
        self.room.notify_all();
        if buffer.waiters.is_empty() {
            return;
        }
        let failed = buffer.poison.is_some();
        let served: Vec<Queued> =
            buffer.waiters.extract_if(.., |queued| failed || self.reached(queued.target, queued.want)).collect();
        let mut next = None;
        if !buffer.led {
            let syncing = buffer.syncing;
            let of_use = |queued: &Queued| !(syncing && queued.want == Want::Sync);
            next = buffer.waiters.iter().position(of_use).map(|at| buffer.waiters.remove(at));
            buffer.led = next.is_some();
        }
        // Waking is a system call each, and who is woken may take this thread's processor: nobody should wait for that.
        drop(buffer);
        // First of all, so that its I/O overlaps with waking the others.
        if let Some(next) = next {
            next.tell(LEADS);
        }
        served.iter().for_each(|queued| queued.tell(SERVED));
    }

    /// Closes the open unit and opens the next.
    pub(super) fn close_unit(&self, buffer: &mut Buffer) {
        let size = self.options.segment_bytes;
        let buf = buffer.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(unit_capacity(size)));
        let next = self.options.unit(buf, buffer.open.end());
        let closed = std::mem::replace(&mut buffer.open, next);
        buffer.closed.push(closed);
    }

    /// Syncs everything and then writes a unit that witnesses it: damage to anything before it will be noticed. For a
    /// clean close. Appending may go on.
    pub fn seal(&self) -> Result<()> {
        self.sync(self.end())?;
        let end = {
            let mut buffer = self.buffer.lock();
            if buffer.open.payload_bytes() == 0 {
                self.close_unit(&mut buffer);
            }
            buffer.end()
        };
        self.sync(end)
    }

    /// Writes, without a sync, a unit that witnesses what is durable, if no unit does and nothing is under way that would.
    /// For a background thread, every second or so: then damage to what was synced longer ago is always told from a torn
    /// tail. At most one page for each call that finds something newly synced; where the disk has no room, nothing.
    ///
    /// Errors: `Poisoned`.
    pub fn witness(&self) -> Result<()> {
        if self.stated.load(Ordering::Relaxed) >= self.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut buffer = self.buffer.lock();
        if let Some(e) = &buffer.poison {
            return Err(Error::Poisoned(e.clone()));
        }
        if buffer.led || buffer.syncing {
            return Ok(());
        }
        // No page that somebody has been promised.
        let promised = buffer.end().0 + self.pledged.load(Ordering::Acquire);
        if promised + 2 * IO_ALIGN as u64 > self.room_end.load(Ordering::Acquire) {
            return Ok(());
        }
        // With a record in it (the commit of a prepared transaction waits for no sync) the unit says the same.
        if buffer.open.payload_bytes() == 0 {
            self.close_unit(&mut buffer);
        }
        let upto = buffer.end();
        buffer.led = true;
        self.lead(buffer, Want::Device);
        self.write(upto)
    }
}
