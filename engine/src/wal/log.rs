//! The log of an open store: its parts, and appending to it.
//!
//! An append copies the record into the open unit in memory; its lsn is final at once, since a unit's place is decided
//! when it is opened. The module [`group`](super::group) brings units to disk, [`room`](super::room) sees to it that the
//! disk has space for them.
//!
//! Invariants: `durable <= written <= end`. A failure is kept in `poison` and stops the log for good; who is to know of it is
//! told once.
//!
//! Lock order: `writer` before `buffer`.
//!
//! Rejected: reserving space by atomic add (the copy under the mutex is short, and the unit's size need not be known ahead).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::format::{Body, UNIT_BYTES_MAX, UnitBuf, frame_prefixes, segment_pages};
use super::group::{Queued, SERVED, Want};
use super::read::Tail;
use super::segments::{Announce, Segments};
use super::writer::Writer;
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::crypt::{Cipher, KeyHeader, Keyring, Purpose, SYSTEM_KEY};
use crate::io::{AlignedBuf, Blocking, Disk, Waiting};

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
    /// With these keys the log is encrypted.
    pub keys: Option<Arc<Keyring>>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 16 << 20,
            epoch: 0,
            buffer_bytes: 16 << 20,
            pool_files: 4,
            fill_new_segments: true,
            keys: None,
        }
    }
}

impl LogOptions {
    /// An empty unit for records at `lsn` in `buf`.
    pub(super) fn unit(&self, buf: AlignedBuf, lsn: Lsn) -> UnitBuf {
        let size = self.segment_bytes;
        let unit = UnitBuf::new(buf, lsn, Lsn((lsn.0 / size + 1) * size));
        if self.keys.is_some() { unit.encrypted() } else { unit }
    }

    /// A new data key, if the log is encrypted: for a segment that is begun.
    pub(super) fn data_key(&self, segment: &Path) -> Result<Option<(KeyHeader, Cipher)>> {
        self.keys.as_ref().map(|keys| keys.begin(SYSTEM_KEY, Purpose::Log, segment)).transpose()
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

/// What the log has done since it was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LogCounters {
    /// Records appended.
    pub records: u64,
    /// Units begun on the disk. One that is written again, longer, counts once.
    pub units: u64,
    /// Payload bytes in them.
    pub payload_bytes: u64,
    /// Bytes of headers and padding in them.
    pub padding_bytes: u64,
    /// Times the log was synced (files crossed by one sync count once).
    pub syncs: u64,
    /// Microseconds of syncs.
    pub sync_us: u64,
    /// Segments begun.
    pub segments: u64,
    /// Groups of records written together, by size: 1, 2 to 3, 4 to 7 and so on; the last has all that are larger.
    pub groups: [u64; GROUP_SIZES],
}

/// Classes of sizes of groups.
pub const GROUP_SIZES: usize = 7;

/// The log of an open store. All methods may be called from any thread.
pub struct Log {
    pub(super) options: LogOptions,
    start: Lsn,
    pub(super) buffer: Mutex<Buffer>,
    /// Signalled when buffered bytes were written, or on failure.
    pub(super) room: Condvar,
    pub(super) writer: Mutex<Writer>,
    pub(super) segments: Segments,
    /// Copies of what `buffer` guards, for reading without it.
    pub(super) written: AtomicU64,
    pub(super) durable: AtomicU64,
    pub(super) poisoned: AtomicBool,
    pub(super) current_segment: AtomicU64,
    /// Copy of the buffer's end.
    pub(super) end: AtomicU64,
    /// The highest durable position that a written unit states.
    pub(super) stated: AtomicU64,
    on_stop: OnceLock<OnStop>,
    stop_told: AtomicBool,
    /// Bytes that holders of [`super::Room`] may still append.
    pub(super) pledged: AtomicU64,
    /// End of the last segment that has a file.
    pub(super) room_end: AtomicU64,
    pub(super) counts: Counts,
}

/// While it lives, no segment is released.
pub struct SegmentHold(Arc<Log>);

impl Drop for SegmentHold {
    fn drop(&mut self) {
        self.0.segments.hold(false);
    }
}

/// Is told of the failure that stops a log; see [`Log::tell_stopped`].
pub type OnStop = Box<dyn Fn(&Arc<Error>) + Send + Sync>;

#[derive(Default)]
pub(super) struct Counts {
    pub(super) records: AtomicU64,
    pub(super) units: AtomicU64,
    pub(super) payload_bytes: AtomicU64,
    pub(super) padding_bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) sync_us: AtomicU64,
    pub(super) segments: AtomicU64,
}

pub(super) struct Buffer {
    pub(super) open: UnitBuf,
    /// Where the last record ends.
    records_end: Lsn,
    /// Closed units not yet taken by a leader, in order.
    pub(super) closed: Vec<UnitBuf>,
    /// Payload bytes in `open`, `closed` and in the hands of a leader that were not written yet.
    pub(super) unwritten: usize,
    pub(super) spare: Vec<AlignedBuf>,
    /// For the copy of an open unit.
    pub(super) page: Option<AlignedBuf>,
    /// Units in the hands of a leader.
    pub(super) in_io: usize,
    /// True while a leader writes or is named.
    pub(super) led: bool,
    /// True while one who led syncs.
    pub(super) syncing: bool,
    pub(super) waiters: Vec<Queued>,
    pub(super) poison: Option<Arc<Error>>,
    /// Records since a leader last took what there was.
    gathered: u64,
    groups: [u64; GROUP_SIZES],
}

impl Buffer {
    /// Counts what has gathered as a group.
    pub(super) fn count_group(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        if gathered > 0 {
            self.groups[(gathered.ilog2() as usize).min(GROUP_SIZES - 1)] += 1;
        }
    }

    /// After the last appended byte; an empty unit has none.
    pub(super) fn end(&self) -> Lsn {
        if self.open.payload_bytes() == 0 { self.open.lsn() } else { self.open.position() }
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
            return Err(Error::Internal(format!("log cannot continue at {start} after {}", tail.cut)));
        }
        let number = start.0 / size;
        let segments = Segments::open(disk, dir, size, options.pool_files, number, announce)?;
        // Syncs of a file that has not been written over cost twice: the first segment is worth the wait.
        let made = segments.prepare_first(number, tail.cut, options.fill_new_segments)?;
        let file = segments.take(number)?;
        let mut first = UnitBuf::new(AlignedBuf::zeroed(IO_ALIGN), start, Lsn(start.0 + size));
        first.set_first(tail.cut);
        let open = options.unit(AlignedBuf::zeroed(unit_capacity(size)), first.end());
        let key = options.data_key(&segments.path(number))?;
        let buffer = Buffer {
            unwritten: first.payload_bytes(),
            open,
            records_end: tail.cut,
            closed: vec![first],
            spare: Vec::new(),
            page: None,
            in_io: 0,
            led: false,
            syncing: false,
            waiters: Vec::new(),
            poison: None,
            gathered: 0,
            groups: [0; GROUP_SIZES],
        };
        let counts = Counts::default();
        counts.segments.store(1, Ordering::Relaxed);
        Ok(Log {
            options,
            start,
            buffer: Mutex::new(buffer),
            room: Condvar::new(),
            writer: Mutex::new(Writer::new(number, file, key)),
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
            stop_told: AtomicBool::new(false),
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
        buffer.gathered += 1;
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
            self.lead(buffer, Want::Device);
        }
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

    /// Tells of the failure that has stopped the log, once. The log may be stopped by who holds locks (an append under the commit
    /// order, an edit of the manifest), so who holds none tells: whoever waits for a sync or for room, here; whoever holds the
    /// manifest, after it has let go of it; housekeeping what is left. Not more than a load if the log has not stopped.
    pub fn tell_stopped(&self) {
        if !self.poisoned.load(Ordering::Acquire) {
            return;
        }
        let Some(tell) = self.on_stop.get() else { return };
        let Some(failure) = self.poison() else { return };
        if !self.stop_told.swap(true, Ordering::AcqRel) {
            tell(&failure);
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

    /// Keeps all segments that there are and come to be, until the result drops.
    pub fn hold(self: &Arc<Log>) -> SegmentHold {
        self.segments.hold(true);
        SegmentHold(self.clone())
    }

    /// Lets a unit end here, and so the log of a copy: what was appended before lies below the position, what is appended
    /// later behind it. Takes up to a page of room. No I/O.
    ///
    /// Errors: `Poisoned`.
    pub fn mark(&self) -> Result<Lsn> {
        let mut buffer = self.buffer.lock();
        if let Some(e) = &buffer.poison {
            return Err(Error::Poisoned(e.clone()));
        }
        if buffer.open.payload_bytes() > 0 {
            self.close_unit(&mut buffer);
        }
        Ok(buffer.end())
    }

    /// The file of segment `number`, and the size of each.
    pub fn segment(&self, number: u64) -> (PathBuf, u64) {
        (self.segments.path(number), self.options.segment_bytes)
    }

    /// Stops the log as a failed write does: nothing is appended or reported durable any more. An earlier failure stays. The
    /// caller sees to it that it is told ([`Log::tell_stopped`]).
    pub fn stop(&self, error: Error) {
        let mut buffer = self.buffer.lock();
        buffer.poison = Some(buffer.poison.take().unwrap_or_else(|| Arc::new(error)));
        self.poisoned.store(true, Ordering::Release);
        self.room.notify_all();
        // Waiters hear of it from the leader, who must not find it gone.
        let waiters = if buffer.led { Vec::new() } else { std::mem::take(&mut buffer.waiters) };
        drop(buffer);
        waiters.iter().for_each(|queued| queued.tell(SERVED));
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
            sync_us: load(&self.counts.sync_us),
            segments: load(&self.counts.segments),
            groups: self.buffer.lock().groups,
        }
    }
}

pub(super) fn unit_capacity(segment_bytes: u64) -> usize {
    usize::try_from(segment_bytes).unwrap_or(UNIT_BYTES_MAX).min(UNIT_BYTES_MAX)
}
