//! Room in the log: space on disk that is there before a record is appended.
//!
//! A full disk must not come as a failed write, which stops the log for good. Whoever is about to append asks for room
//! first ([`Log::reserve`]): segments are made, at full size, before they are needed, and if one cannot be made the
//! caller gets the error while nothing has been written. A prepared transaction keeps two pages of room ([`END_BYTES`]) for
//! the record that ends it and a mark of time in front of it, whenever that is: the decision may be somebody else's, and cannot
//! be refused.
//!
//! Of the last segment that a full disk leaves, parts are kept for records that do not add to the store, and for those that
//! free space.
//!
//! Invariant: `pledged` bytes are free behind the end, in segments that have files.
//!
//! Rejected: a spare file that is deleted when the disk is full (others may take what it frees first).

use std::sync::atomic::Ordering;

use super::log::Log;
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Result};

/// Room for the record that ends a prepared transaction, and for a mark of time that comes with it: each alone in a unit, they take
/// a page each.
const END_BYTES: u64 = 2 * IO_ALIGN as u64;
/// Who may not use which part of the last segment that a full disk leaves: one in this many is kept for records that do not
/// add to the store, and one in that many for those that free space, which is enough for hundreds of dropped tables.
const STAY_PART: u64 = 4;
const RELIEF_PART: u64 = 8;

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

impl Log {
    /// Makes the next segment's file unless it is there, so that the leader need not. For a background thread; call it
    /// after each change of [`super::LogCounters::segments`]. An error here does not poison the log.
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
        // Headers, padding of the units that it begins and ends, and the end of what it prepares; a record that prepares nothing
        // may have a mark of time in front of it.
        let cost = bytes as u64 + bytes as u64 / 16 + 3 * IO_ALIGN as u64 + END_BYTES;
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
            Err(Error::Poisoned(ref cause)) => {
                self.stop(Error::clone(cause));
                self.tell_stopped();
            }
            Err(_) => {}
        }
        outcome
    }

    /// Keeps the end of the room that the caller holds (see [`Log::reserve`]; a prepare record's is large enough) for a
    /// short record later on, until [`Log::redeem_end`].
    pub(crate) fn pledge_end(&self) {
        self.pledged.fetch_add(END_BYTES, Ordering::AcqRel);
    }

    /// The short record has been appended.
    pub(crate) fn redeem_end(&self) {
        self.pledged.fetch_sub(END_BYTES, Ordering::AcqRel);
    }
}
