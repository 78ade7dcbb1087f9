//! Appending to the log and making it durable.
//!
//! An append copies the record into the open unit in memory; its lsn is final at once, since a unit's place is decided
//! when it is opened. Whoever needs durability and finds nobody writing becomes the *leader*: it closes the open unit,
//! writes everything buffered, syncs, publishes and hands the lead to the longest waiter that is not served yet. Those
//! who come while a leader is in I/O gather in the next unit, so groups grow with load and with the slowness of the
//! device, without a timer and without a thread.
//!
//! Invariants: `durable <= written <= end`; at most one leader; units are written in order; after any failed write or
//! sync nothing more is written and nothing more is reported durable.
//!
//! A full disk must not come as a failed write, which stops the log for good. Whoever is about to append asks for room
//! first ([`Log::reserve`]): segments are made, at full size, before they are needed, and if one cannot be made the
//! caller gets the error while nothing has been written. A prepared transaction keeps a page of room ([`END_BYTES`]) for
//! the record that ends it, whenever that is: the decision may be somebody else's, and cannot be refused.
//!
//! What the last sync before a rest made durable has no unit behind it that says so, and damage to it would pass for a
//! torn tail. So once in a while, when nothing is under way, an empty unit that states it is written, unsynced
//! ([`Log::witness`]). A busy log witnesses itself.
//!
//! Lock order: `io` before `buffer`; the leader takes `buffer` only for moments. Waiters park one by one (no herd).
//!
//! Rejected: a log thread (two context switches per commit on an idle machine); reserving space by atomic add (the copy
//! under the mutex is short, and the unit's size need not be known ahead).

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::format::{Body, UNIT_BYTES_MAX, UnitBuf, frame_prefixes, segment_pages};
use super::read::Tail;
use super::segments::{Announce, Segments};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::io::{AlignedBuf, Blocking, Disk, File, Waiting};

/// Unit buffers kept for reuse: what a leader writes and what gathers meanwhile. More are needed only where a batch is
/// larger than a unit, and then they cost less than the write.
const SPARE_BUFS: usize = 2;
/// Room for the record that ends a prepared transaction: alone in a unit, it takes a page.
const END_BYTES: u64 = IO_ALIGN as u64;
/// Who may not use which part of the last segment that a full disk leaves: one in this many is kept for records that do not
/// add to the store, and one in that many for those that free space, which is enough for hundreds of dropped tables.
const STAY_PART: u64 = 4;
const RELIEF_PART: u64 = 8;
/// Records up to this size (frame included) are taken even if the buffer is full: those that end a transaction are, and
/// they are appended under locks that must not wait for I/O.
const SHORT_BYTES: usize = 64;

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a segment file; a multiple of 4096, at least 8192, the same over the life of the log.
    pub segment_bytes: u64,
    /// A random number that no earlier opening of this log used.
    pub epoch: u64,
    /// Appends wait while this many bytes are not written yet (a larger record is taken when nothing is).
    pub buffer_bytes: usize,
    /// Released segments kept for reuse.
    pub pool_files: usize,
    /// Whether [`Log::prepare_next`] writes zeros over new files, which makes later syncs cheaper.
    pub fill_new_segments: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { segment_bytes: 16 << 20, epoch: 0, buffer_bytes: 16 << 20, pool_files: 4, fill_new_segments: true }
    }
}

/// Where a record lies: from its first byte to after its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The record's identity and place.
    pub start: Lsn,
    /// What to sync to for the record to be durable.
    pub end: Lsn,
}

/// Space for a record; see [`Log::reserve`]. Let go of it once the record is appended.
pub struct Room<'a> {
    log: &'a Log,
    cost: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.log.pledged.fetch_sub(self.cost, Ordering::AcqRel);
    }
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LogCounters {
    /// Records appended.
    pub records: u64,
    /// Units written.
    pub units: u64,
    /// Payload bytes written.
    pub payload_bytes: u64,
    /// Bytes of headers and padding written.
    pub padding_bytes: u64,
    /// Times the log was synced (files crossed by one sync count once).
    pub syncs: u64,
    /// Segments begun.
    pub segments: u64,
}

/// The log of an open store. All methods may be called from any thread.
pub struct Log {
    options: LogOptions,
    start: Lsn,
    buffer: Mutex<Buffer>,
    /// Signalled when buffered bytes were written, or on failure.
    room: Condvar,
    io: Mutex<Io>,
    segments: Segments,
    /// Copies of what `buffer` guards, for reading without it.
    written: AtomicU64,
    durable: AtomicU64,
    poisoned: AtomicBool,
    current_segment: AtomicU64,
    /// Copy of the buffer's end.
    end: AtomicU64,
    /// The highest durable position that a written unit states.
    stated: AtomicU64,
    on_stop: OnceLock<OnStop>,
    /// Bytes that holders of [`Room`] may still append.
    pledged: AtomicU64,
    /// End of the last segment that has a file.
    room_end: AtomicU64,
    counts: Counts,
}

/// Is told of the failure that stops a log. Called once, without locks, on the thread that meets it.
pub type OnStop = Box<dyn Fn(&Arc<Error>) + Send + Sync>;

#[derive(Default)]
struct Counts {
    records: AtomicU64,
    units: AtomicU64,
    payload_bytes: AtomicU64,
    padding_bytes: AtomicU64,
    syncs: AtomicU64,
    segments: AtomicU64,
}

struct Buffer {
    open: UnitBuf,
    /// Where the last record ends.
    records_end: Lsn,
    /// Closed units not yet taken by a leader, in order.
    closed: Vec<UnitBuf>,
    /// Payload bytes in `open`, `closed` and in the hands of a leader.
    unwritten: usize,
    spare: Vec<AlignedBuf>,
    /// Units in the hands of a leader.
    in_io: usize,
    /// True while a leader is at work or named.
    led: bool,
    waiters: Vec<Arc<Waiter>>,
    poison: Option<Arc<Error>>,
}

impl Buffer {
    /// After the last appended byte; an empty unit has none.
    fn end(&self) -> Lsn {
        if self.open.payload_bytes() == 0 { self.open.lsn() } else { self.open.position() }
    }
}

/// Used by the leader only.
struct Io {
    file: Option<Arc<dyn File>>,
    segment: u64,
    /// True if `file` has unsynced writes.
    dirty: bool,
    /// Earlier files with unsynced writes.
    behind: Vec<Arc<dyn File>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Write,
    Sync,
}

const WAITING: u8 = 0;
const SERVED: u8 = 1;
const LEADS: u8 = 2;

/// One per thread. Written by the waiting thread before it is queued, afterwards only `state`, by a leader.
struct Waiter {
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

    fn tell(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }
}

impl Log {
    /// Opens the log for appending behind `tail` (from [`super::recover`]; [`Tail::NEW`] for a new store): a fresh
    /// segment under a new epoch. Writes nothing of the log yet, but makes the segment's file.
    ///
    /// Whatever was announced of segments from the tail's start on must have been taken back: their files go.
    ///
    /// Errors: `Invalid` for unusable options, `Io`, whatever `announce` returns.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions, tail: Tail, announce: Announce) -> Result<Log> {
        let start = tail.next_segment_start;
        let size = options.segment_bytes;
        if size % IO_ALIGN as u64 != 0 || size < 2 * IO_ALIGN as u64 || segment_pages(size) == 0 {
            return Err(Error::Invalid(format!("log segment size {size} is not a multiple of {IO_ALIGN} in range")));
        }
        if start.0 % size != 0 || tail.cut > start {
            return Err(Error::Invalid(format!("log cannot continue at {start} after {}", tail.cut)));
        }
        let number = start.0 / size;
        let segments = Segments::open(disk, dir, size, options.pool_files, number, announce)?;
        // Syncs of a file that has not been written over cost twice: the first segment is worth the wait.
        let made = segments.prepare_first(number, tail.cut, options.fill_new_segments)?;
        let file = segments.take(number)?;
        let mut first = UnitBuf::new(AlignedBuf::zeroed(IO_ALIGN), start, Lsn(start.0 + size));
        first.set_first(tail.cut);
        let open = UnitBuf::new(AlignedBuf::zeroed(unit_capacity(size)), first.end(), Lsn(start.0 + size));
        let buffer = Buffer {
            unwritten: first.payload_bytes(),
            open,
            records_end: tail.cut,
            closed: vec![first],
            spare: Vec::new(),
            in_io: 0,
            led: false,
            waiters: Vec::new(),
            poison: None,
        };
        let counts = Counts::default();
        counts.segments.store(1, Ordering::Relaxed);
        Ok(Log {
            options,
            start,
            buffer: Mutex::new(buffer),
            room: Condvar::new(),
            io: Mutex::new(Io { file: Some(file), segment: number, dirty: false, behind: Vec::new() }),
            segments,
            // Not `start`: until the first unit of the epoch is durable, no unit may witness beyond the cut. If the
            // first were lost and the second not, the log would seem damaged.
            written: AtomicU64::new(tail.cut.0),
            durable: AtomicU64::new(tail.cut.0),
            poisoned: AtomicBool::new(false),
            current_segment: AtomicU64::new(number),
            end: AtomicU64::new(start.0),
            stated: AtomicU64::new(tail.cut.0),
            on_stop: OnceLock::new(),
            pledged: AtomicU64::new(0),
            room_end: AtomicU64::new(start.0 + made),
            counts,
        })
    }

    /// Appends a record of up to 64 GiB (stored) in memory; not durable before a [`Log::sync`] to the span's end.
    /// Compresses it first if it is long; with [`Log::append_parts`] that can be done ahead.
    ///
    /// Does no I/O unless the buffer bound is reached; then it waits for the leader at work, or writes itself. A record of
    /// a few bytes never waits.
    ///
    /// Errors: `Poisoned`.
    pub fn append(&self, record: &[u8]) -> Result<Span> {
        self.append_parts(&[], &Body::compress(record))
    }

    /// Appends the record `head ++ body`. See [`Log::append`]. The head is never compressed.
    pub fn append_parts(&self, head: &[u8], body: &Body<'_>) -> Result<Span> {
        let (before_head, before_body) = frame_prefixes(head, body);
        let body_bytes = match body {
            Body::Plain(raw) => raw,
            Body::Lz4 { blocks, .. } => blocks.as_slice(),
        };
        let parts = [before_head.as_slice(), head, before_body.as_slice(), body_bytes];
        let bytes: usize = parts.iter().map(|p| p.len()).sum();
        let mut buffer = self.buffer.lock();
        loop {
            if let Some(e) = &buffer.poison {
                return Err(Error::Poisoned(e.clone()));
            }
            if self.has_room(&buffer, bytes) {
                break;
            }
            // Not under the mutex: who is told of the wait may take a while.
            drop(buffer);
            self.make_room(bytes);
            buffer = self.buffer.lock();
        }
        if buffer.open.is_full() {
            self.close_unit(&mut buffer);
        }
        buffer.open.begin_record();
        let start = buffer.open.position();
        for part in parts {
            let mut rest = part;
            while !rest.is_empty() {
                if buffer.open.is_full() {
                    self.close_unit(&mut buffer);
                }
                let n = buffer.open.push(rest);
                rest = &rest[n..];
            }
        }
        buffer.unwritten += bytes;
        let end = buffer.open.position();
        buffer.records_end = end;
        self.end.store(end.0, Ordering::Release);
        drop(buffer);
        self.counts.records.fetch_add(1, Ordering::Relaxed);
        Ok(Span { start, end })
    }

    fn has_room(&self, buffer: &Buffer, bytes: usize) -> bool {
        let fits = buffer.unwritten + bytes <= self.options.buffer_bytes;
        fits || buffer.unwritten == 0 || bytes <= SHORT_BYTES
    }

    /// Waits for the leader at work, or writes; whoever calls looks again whether there is room.
    #[cold]
    fn make_room(&self, bytes: usize) {
        let _waiting = Waiting::begin(Blocking::Log);
        let mut buffer = self.buffer.lock();
        if buffer.poison.is_some() || self.has_room(&buffer, bytes) {
            return;
        }
        if buffer.led {
            self.room.wait(&mut buffer);
        } else {
            buffer.led = true;
            self.lead(buffer, Want::Write);
        }
    }

    /// Returns once everything below `upto` has been handed to the operating system (survives the death of the process,
    /// with direct I/O and a write-back drive cache not a power cut).
    ///
    /// Errors: `Poisoned`; `Invalid` if `upto` is beyond the end.
    pub fn write(&self, upto: Lsn) -> Result<()> {
        self.reach(upto, Want::Write)
    }

    /// Returns once everything below `upto` is durable. One of the waiting threads does the I/O for all.
    ///
    /// Errors: `Poisoned`; `Invalid` if `upto` is beyond the end.
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
        let mut buffer = self.buffer.lock();
        if upto > buffer.end() {
            return Err(Error::Invalid(format!("log position {upto} is beyond its end")));
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
    fn lead<'a>(&'a self, mut buffer: MutexGuard<'a, Buffer>, want: Want) {
        debug_assert!(buffer.led);
        let mut failure = None;
        if buffer.poison.is_none() {
            if buffer.open.payload_bytes() > 0 {
                self.close_unit(&mut buffer);
            }
            let end = buffer.open.lsn();
            let mut units = std::mem::take(&mut buffer.closed);
            buffer.in_io = units.len();
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
                    failure = Some(Arc::new(e));
                    buffer.poison = failure.clone();
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
        self.tell_stopped(failure.as_ref());
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
        for unit in units {
            let segment = unit.lsn().0 / size;
            if segment != io.segment || io.file.is_none() {
                let next = self.segments.take(segment)?;
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
            let bytes = unit.seal(self.options.epoch, durable, pages);
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
        }
        Ok(())
    }

    /// Closes the open unit and opens the next.
    fn close_unit(&self, buffer: &mut Buffer) {
        let size = self.options.segment_bytes;
        let buf = buffer.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(unit_capacity(size)));
        let lsn = buffer.open.end();
        let segment_end = Lsn((lsn.0 / size + 1) * size);
        let next = UnitBuf::new(buf, lsn, segment_end);
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

    /// Everything below is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Everything below has been handed to the operating system.
    pub fn written(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    /// The end of what was appended: records appended later start here or later.
    pub fn end(&self) -> Lsn {
        self.buffer.lock().end()
    }

    /// The end of the last record: with everything below it durable, nothing is missing but perhaps a witness.
    pub fn records_end(&self) -> Lsn {
        self.buffer.lock().records_end
    }

    /// Records appended later start here or later, and it is close to the end, perhaps a page before; without the mutex.
    pub fn end_at_least(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// Where this opening of the log began.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Fails if the log has stopped. Not more than a load if it has not.
    pub fn check(&self) -> Result<()> {
        match self.poisoned.load(Ordering::Acquire) {
            false => Ok(()),
            true => self.poison().map_or(Ok(()), |e| Err(Error::Poisoned(e))),
        }
    }

    /// Has `tell` told when the log stops. The first call counts.
    pub fn on_stop(&self, tell: OnStop) {
        drop(self.on_stop.set(tell));
    }

    fn tell_stopped(&self, failure: Option<&Arc<Error>>) {
        if let (Some(failure), Some(tell)) = (failure, self.on_stop.get()) {
            tell(failure);
        }
    }

    /// The error that stopped the log, if any.
    pub fn poison(&self) -> Option<Arc<Error>> {
        self.buffer.lock().poison.clone()
    }

    /// Gives up the segments that lie wholly below `lsn`, for reuse. The caller has made sure, durably, that recovery
    /// will start at `lsn` or later. Does I/O.
    pub fn release_before(&self, lsn: Lsn) -> Result<()> {
        let limit = (lsn.0 / self.options.segment_bytes).min(self.current_segment.load(Ordering::Acquire));
        // A segment of this epoch with unsynced bytes is above `durable`.
        let synced = self.durable().max(self.start).0 / self.options.segment_bytes;
        self.segments.release_before(limit.min(synced))
    }

    /// Stops the log as a failed write does: nothing is appended or reported durable any more. An earlier failure stays.
    pub fn stop(&self, error: Error) {
        let mut buffer = self.buffer.lock();
        let failure = buffer.poison.is_none().then(|| Arc::new(error));
        buffer.poison = buffer.poison.take().or_else(|| failure.clone());
        self.poisoned.store(true, Ordering::Release);
        self.room.notify_all();
        // Waiters hear of it from the leader, who must not find it gone.
        let waiters = if buffer.led { Vec::new() } else { std::mem::take(&mut buffer.waiters) };
        drop(buffer);
        self.tell_stopped(failure.as_ref());
        waiters.iter().for_each(|waiter| waiter.tell(SERVED));
    }

    /// Makes the next segment's file unless it is there, so that the leader need not. For a background thread; call it
    /// after each change of [`LogCounters::segments`]. An error here does not poison the log.
    pub fn prepare_next(&self) -> Result<()> {
        let next = self.current_segment.load(Ordering::Acquire) + 1;
        self.make_segment(next * self.options.segment_bytes, self.options.fill_new_segments)
    }

    /// Sees to it that a record of up to `bytes` bytes, appended while the result is held, finds segments that have their
    /// space on the disk. Cheap unless a segment has to be made.
    ///
    /// Errors: `Io`, notably of a full disk. The log is as before, and another attempt may succeed.
    pub fn reserve(&self, bytes: usize) -> Result<Room<'_>> {
        self.reserve_before(bytes, self.options.segment_bytes / STAY_PART)
    }

    /// As [`Log::reserve`], for records that change what the store has and do not add to it.
    pub fn reserve_stay(&self, bytes: usize) -> Result<Room<'_>> {
        self.reserve_before(bytes, self.options.segment_bytes / RELIEF_PART)
    }

    /// As [`Log::reserve`], for records that help to free space: on a full disk they may use what others leave.
    pub fn reserve_relief(&self, bytes: usize) -> Result<Room<'_>> {
        // The next segment is made early as long as there is space.
        self.reserve(bytes).or_else(|error| match error.is_disk_full() {
            true => self.reserve_before(bytes, 0).map_err(|_| error),
            false => Err(error),
        })
    }

    /// Room before the last `kept` bytes of the last segment.
    fn reserve_before(&self, bytes: usize, kept: u64) -> Result<Room<'_>> {
        // Headers, padding of the units that it begins and ends, and a page for the end of what it prepares.
        let cost = bytes as u64 + bytes as u64 / 16 + 4 * IO_ALIGN as u64;
        let pledged = self.pledged.fetch_add(cost, Ordering::AcqRel) + cost;
        let room = Room { log: self, cost };
        loop {
            let made = self.room_end.load(Ordering::Acquire);
            if self.end.load(Ordering::Acquire) + pledged + kept <= made || self.poisoned.load(Ordering::Acquire) {
                return Ok(room);
            }
            self.make_segment(made, false)?;
        }
    }

    /// Makes the file of the segment in which `from` lies, or what is missing of it.
    fn make_segment(&self, from: u64, fill: bool) -> Result<()> {
        let size = self.options.segment_bytes;
        let outcome = self.segments.prepare(from / size, fill);
        match outcome {
            Ok(()) => drop(self.room_end.fetch_max((from / size + 1) * size, Ordering::AcqRel)),
            // The manifest, to which the file is announced, has failed: nothing is acknowledged any more (invariant 7).
            Err(Error::Poisoned(ref cause)) => self.stop(Error::clone(cause)),
            Err(_) => {}
        }
        outcome
    }

    /// Keeps a page of the room that the caller holds (see [`Log::reserve`]; a prepare record's is large enough) for a
    /// short record later on, until [`Log::redeem_end`].
    pub(crate) fn pledge_end(&self) {
        self.pledged.fetch_add(END_BYTES, Ordering::AcqRel);
    }

    /// The short record has been appended.
    pub(crate) fn redeem_end(&self) {
        self.pledged.fetch_sub(END_BYTES, Ordering::AcqRel);
    }

    /// Bytes of log that have files: what a start would read at most, and a little ahead.
    pub fn live_bytes(&self) -> u64 {
        self.segments.live().len() as u64 * self.options.segment_bytes
    }

    /// Bytes of the buffers that records wait in and that are kept for more.
    pub fn buffer_bytes(&self) -> u64 {
        let buffer = self.buffer.lock();
        let unit = unit_capacity(self.options.segment_bytes);
        ((1 + buffer.closed.len() + buffer.in_io + buffer.spare.len()) * unit) as u64
    }

    /// What was done so far.
    pub fn counters(&self) -> LogCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogCounters {
            records: load(&self.counts.records),
            units: load(&self.counts.units),
            payload_bytes: load(&self.counts.payload_bytes),
            padding_bytes: load(&self.counts.padding_bytes),
            syncs: load(&self.counts.syncs),
            segments: load(&self.counts.segments),
        }
    }
}

fn unit_capacity(segment_bytes: u64) -> usize {
    usize::try_from(segment_bytes).unwrap_or(UNIT_BYTES_MAX).min(UNIT_BYTES_MAX)
}
