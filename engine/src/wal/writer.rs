//! The I/O of the log: units into the files of their segments, and syncs of these files.
//!
//! A unit goes past the page cache: whoever writes it waits for the device, and the sync that follows finds it there. Where nobody
//! asks for more than that it survives the process ([`Want::System`]), a short one stays in the page cache, so that a commit waits
//! for no device; and the unit that is open is written as far as it goes, and again, over itself, when it has more records
//! ([`UnitBuf::so_far`]). The device gets one page for many commits then, at the next sync. What was synced stays in the page cache
//! until the kernel wants the memory or the segment goes: no more than the log on disk.
//!
//! Invariants: what a sync has covered is never written again (a unit is closed before it is synced). A page that may be dirty in
//! the page cache is written by the page cache only, so that no write of it overtakes another. The bytes of a unit that is written
//! again are sealed under a data key of their own: its place, and so the nonce, is the same.
//!
//! Rejected: the page cache for all units (a sync would have to find the pages and wait for them one after the other, and 16 MB of a
//! large transaction would push other files out of the cache); a unit for each commit past the cache (a page and a wait each:
//! docs/decisions/tried.md).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::format::{UnitBuf, segment_pages};
use super::group::Want;
use super::log::Log;
use crate::base::{Error, Lsn, Result};
use crate::crypt::{Cipher, KeyHeader, SYSTEM_KEY};
use crate::io::{File, Stopwatch};

/// Longer units go to the device at once: they are worth a request of their own, and too much for the page cache.
const CACHED_BYTES_MAX: u64 = 64 << 10;

/// The files that the leader writes; used by nobody else.
pub(super) struct Writer {
    segment: u64,
    file: Option<Arc<dyn File>>,
    /// The same file by the page cache, once it was needed.
    cached: Option<Arc<dyn File>>,
    /// True if `file` has unsynced writes.
    dirty: bool,
    /// Earlier files with unsynced writes.
    behind: Vec<Arc<dyn File>>,
    /// The data key of what this opening writes to the segment.
    key: Option<(KeyHeader, Cipher)>,
}

impl Writer {
    /// Begins with the file of `segment`.
    pub fn new(segment: u64, file: Arc<dyn File>, key: Option<(KeyHeader, Cipher)>) -> Writer {
        Writer { segment, file: Some(file), cached: None, dirty: false, behind: Vec::new(), key }
    }

    /// The segment written last.
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// Its file.
    pub fn file(&self) -> Option<&Arc<dyn File>> {
        self.file.as_ref()
    }

    /// The files with unsynced writes, which are the caller's to sync.
    fn take_unsynced(&mut self) -> Vec<Arc<dyn File>> {
        let mut files = std::mem::take(&mut self.behind);
        files.extend(self.file.iter().filter(|_| self.dirty).cloned());
        self.dirty = false;
        files
    }
}

impl Log {
    /// Writes units in their order. Returns the files to sync, if a sync is wanted: a failure of that stops the log, so they count as
    /// synced from now on.
    pub(super) fn write_units(&self, units: &mut [UnitBuf], want: Want) -> Result<Vec<Arc<dyn File>>> {
        let mut writer = self.writer.lock();
        let size = self.options.segment_bytes;
        if let (Some(keys), Some((header, _))) = (&self.options.keys, &writer.key)
            && keys.known(SYSTEM_KEY) > header.key.version
        {
            writer.key = self.options.data_key(&self.segments.path(writer.segment))?;
        }
        for unit in units {
            // All of it was written when less was wanted, and nothing has come since.
            if unit.is_written() && unit.unwritten_bytes() == 0 {
                continue;
            }
            let segment = unit.lsn().0 / size;
            if segment != writer.segment || writer.file.is_none() {
                self.begin_segment(&mut writer, segment)?;
            }
            self.write_unit(&mut writer, unit, want)?;
        }
        Ok(if want == Want::Sync { writer.take_unsynced() } else { Vec::new() })
    }

    fn begin_segment(&self, writer: &mut Writer, segment: u64) -> Result<()> {
        let size = self.options.segment_bytes;
        let next = self.segments.take(segment)?;
        // The file may be one that was written before.
        writer.key = self.options.data_key(&self.segments.path(segment))?;
        self.room_end.fetch_max((segment + 1) * size, Ordering::AcqRel);
        if let Some(file) = writer.file.replace(next).filter(|_| writer.dirty) {
            writer.behind.push(file);
        }
        writer.cached = None;
        writer.segment = segment;
        writer.dirty = false;
        self.current_segment.store(segment, Ordering::Release);
        self.counts.segments.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn write_unit(&self, writer: &mut Writer, unit: &mut UnitBuf, want: Want) -> Result<()> {
        let size = self.options.segment_bytes;
        let again = match unit.is_written() && unit.wants_key() {
            true => self.options.data_key(&self.segments.path(writer.segment))?,
            false => None,
        };
        let key = again.as_ref().or(writer.key.as_ref());
        if unit.wants_key() && key.is_none() {
            return Err(Error::Internal("unit of the log without its key".into()));
        }
        let (lsn, payload, unwritten) = (unit.lsn(), unit.payload_bytes(), unit.unwritten_bytes());
        let is_written = unit.is_written();
        let by_cache = is_written || (want == Want::System && unit.end().0 - lsn.0 <= CACHED_BYTES_MAX);
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        let bytes = unit.seal(self.options.epoch, durable, segment_pages(size), key);
        self.stated.store(durable.0, Ordering::Relaxed);
        if by_cache && writer.cached.is_none() {
            // A process without a descriptor left writes past the cache, as ever.
            writer.cached = self.segments.open_cached(writer.segment).ok();
        }
        let cached = writer.cached.as_ref().filter(|_| by_cache);
        writer.dirty = true;
        if let Some(file) = cached.or(writer.file.as_ref()) {
            file.write_all_at(bytes, lsn.0 % size)?;
        }
        let (padding, counts) = ((bytes.len() - payload) as u64, &self.counts);
        counts.payload_bytes.fetch_add(unwritten as u64, Ordering::Relaxed);
        if is_written {
            counts.padding_bytes.fetch_sub(unwritten as u64, Ordering::Relaxed);
        } else {
            counts.units.fetch_add(1, Ordering::Relaxed);
            counts.padding_bytes.fetch_add(padding, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Syncs what [`Log::write_units`] has returned.
    pub(super) fn sync_files(&self, files: &[Arc<dyn File>]) -> Result<()> {
        let timer = Stopwatch::begin();
        files.iter().try_for_each(|file| file.sync_data())?;
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.counts.sync_us.fetch_add(timer.us(), Ordering::Relaxed);
        Ok(())
    }
}
