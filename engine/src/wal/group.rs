//! Group sync: how what was appended gets to disk.
//!
//! Whoever needs durability and finds nobody writing becomes the *leader*: it closes the open unit, writes everything
//! buffered, syncs, publishes and hands the lead to the longest waiter that is not served yet. Those who come while a leader
//! is in I/O gather in the next unit, so groups grow with load and with the slowness of the device, without a timer and
//! without a thread.
//!
//! What the last sync before a pause made durable has no unit behind it that says so, and damage to it would pass for a
//! torn tail. So once in a while, when nothing is under way, an empty unit that states it is written, unsynced
//! ([`Log::witness`]). A busy log witnesses itself.
//!
//! Invariants: at most one leader; units are written in order; after any failed write or sync nothing more is written and
//! nothing more is reported durable. The leader takes `buffer` only for moments. Waiters park one by one (no herd).
//!
//! Rejected: a log thread (two context switches per commit on an idle machine).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::{self, Thread};

use parking_lot::MutexGuard;

use super::format::{UnitBuf, segment_pages};
use super::log::{Buffer, Log, unit_capacity};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::crypt::SYSTEM_KEY;
use crate::io::{AlignedBuf, Blocking, Stopwatch, Waiting};

/// Unit buffers kept for reuse: what a leader writes and what gathers meanwhile. More are needed only where a batch is
/// larger than a unit, and then they cost less than the write.
const SPARE_BUFS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Write,
    Sync,
}

const WAITING: u8 = 0;
pub(super) const SERVED: u8 = 1;
const LEADS: u8 = 2;

/// One per thread. Written by the waiting thread before it is queued, afterwards only `state`, by a leader.
pub(super) struct Waiter {
    target: AtomicU64,
    wants_sync: AtomicBool,
    state: AtomicU8,
    thread: Thread,
}

thread_local! {
    static WAITER: RefCell<Option<Arc<Waiter>>> = const { RefCell::new(None) };
}

impl Waiter {
    fn of_this_thread(target: Lsn, want: Want) -> Arc<Waiter> {
        let waiter = WAITER.with_borrow_mut(|slot| {
            slot.get_or_insert_with(|| {
                Arc::new(Waiter {
                    target: AtomicU64::new(0),
                    wants_sync: AtomicBool::new(false),
                    state: AtomicU8::new(WAITING),
                    thread: thread::current(),
                })
            })
            .clone()
        });
        // Ordered by the buffer mutex under which it is queued.
        waiter.target.store(target.0, Ordering::Relaxed);
        waiter.wants_sync.store(want == Want::Sync, Ordering::Relaxed);
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

    pub(super) fn tell(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }
}

impl Log {
    /// Returns once everything below `upto` has been handed to the operating system (survives the death of the process,
    /// with direct I/O and a write-back drive cache not a power cut).
    ///
    /// Errors: `Poisoned`; `Internal` if `upto` is beyond the end.
    pub fn write(&self, upto: Lsn) -> Result<()> {
        self.reach(upto, Want::Write)
    }

    /// Returns once everything below `upto` is durable. One of the waiting threads does the I/O for all.
    ///
    /// Errors: `Poisoned`; `Internal` if `upto` is beyond the end.
    pub fn sync(&self, upto: Lsn) -> Result<()> {
        self.reach(upto, Want::Sync)
    }

    fn reached(&self, upto: Lsn, want: Want) -> bool {
        let mark = match want {
            Want::Write => &self.written,
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
            if buffer.led {
                let waiter = Waiter::of_this_thread(upto, want);
                buffer.waiters.push(waiter.clone());
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
        debug_assert!(buffer.led);
        if buffer.poison.is_none() {
            if buffer.open.payload_bytes() > 0 {
                self.close_unit(&mut buffer);
            }
            let end = buffer.open.lsn();
            let mut units = std::mem::take(&mut buffer.closed);
            buffer.in_io = units.len();
            buffer.count_group();
            drop(buffer);
            let outcome = self.write_units(&mut units, want);
            buffer = self.buffer.lock();
            match outcome {
                Ok(()) => {
                    self.written.store(end.0, Ordering::Release);
                    if want == Want::Sync {
                        self.durable.store(end.0, Ordering::Release);
                    }
                }
                // Somebody may have stopped the log meanwhile.
                Err(e) if buffer.poison.is_none() => {
                    // A segment could not be announced, as the manifest has stopped: the cause is that one's.
                    buffer.poison = Some(match e {
                        Error::Poisoned(cause) => cause,
                        other => Arc::new(other),
                    });
                    self.poisoned.store(true, Ordering::Release);
                }
                Err(_) => {}
            }
            buffer.in_io = 0;
            for unit in units {
                buffer.unwritten -= unit.payload_bytes();
                let buf = unit.into_buf();
                if buffer.spare.len() < SPARE_BUFS && buf.len() == unit_capacity(self.options.segment_bytes) {
                    buffer.spare.push(buf);
                }
            }
        }
        let failed = buffer.poison.is_some();
        let mut served = Vec::new();
        buffer.waiters.retain(|waiter| {
            let want = if waiter.wants_sync.load(Ordering::Relaxed) { Want::Sync } else { Want::Write };
            let serve = failed || self.reached(Lsn(waiter.target.load(Ordering::Relaxed)), want);
            if serve {
                served.push(waiter.clone());
            }
            !serve
        });
        let next = (!buffer.waiters.is_empty()).then(|| buffer.waiters.remove(0));
        buffer.led = next.is_some();
        self.room.notify_all();
        // Waking is a system call each, and who is woken may take this thread's processor: nobody should wait for that.
        drop(buffer);
        // First of all, so that its I/O overlaps with waking the others.
        if let Some(next) = next {
            next.tell(LEADS);
        }
        served.iter().for_each(|waiter| waiter.tell(SERVED));
    }

    fn write_units(&self, units: &mut [UnitBuf], want: Want) -> Result<()> {
        let mut io = self.io.lock();
        let size = self.options.segment_bytes;
        let pages = segment_pages(size);
        if let (Some(keys), Some((header, _))) = (&self.options.keys, &io.key)
            && keys.known(SYSTEM_KEY) > header.key.version
        {
            io.key = self.options.data_key(&self.segments.path(io.segment))?;
        }
        for unit in units {
            let segment = unit.lsn().0 / size;
            if segment != io.segment || io.file.is_none() {
                let next = self.segments.take(segment)?;
                // The file may be one that was written before.
                io.key = self.options.data_key(&self.segments.path(segment))?;
                self.room_end.fetch_max((segment + 1) * size, Ordering::AcqRel);
                if let Some(file) = io.file.replace(next).filter(|_| io.dirty) {
                    io.behind.push(file);
                }
                io.segment = segment;
                io.dirty = false;
                self.current_segment.store(segment, Ordering::Release);
                self.counts.segments.fetch_add(1, Ordering::Relaxed);
            }
            let payload = unit.payload_bytes();
            let durable = Lsn(self.durable.load(Ordering::Acquire));
            let offset = unit.lsn().0 - segment * size;
            if unit.wants_key() && io.key.is_none() {
                return Err(Error::Internal("unit of the log without its key".into()));
            }
            let bytes = unit.seal(self.options.epoch, durable, pages, io.key.as_ref());
            self.stated.store(durable.0, Ordering::Relaxed);
            io.dirty = true;
            if let Some(file) = &io.file {
                file.write_all_at(bytes, offset)?;
            }
            self.counts.units.fetch_add(1, Ordering::Relaxed);
            self.counts.payload_bytes.fetch_add(payload as u64, Ordering::Relaxed);
            self.counts.padding_bytes.fetch_add((bytes.len() - payload) as u64, Ordering::Relaxed);
        }
        if want == Want::Sync {
            let timer = Stopwatch::begin();
            for file in io.behind.drain(..) {
                file.sync_data()?;
            }
            if io.dirty {
                if let Some(file) = &io.file {
                    file.sync_data()?;
                }
                io.dirty = false;
            }
            self.counts.syncs.fetch_add(1, Ordering::Relaxed);
            self.counts.sync_us.fetch_add(timer.us(), Ordering::Relaxed);
        }
        Ok(())
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
        if buffer.led {
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
        self.lead(buffer, Want::Write);
        self.write(upto)
    }
}
