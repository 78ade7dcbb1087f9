//! What a crash left behind the log's end, for the report about it. Nothing of it is used.
//!
//! After a crash the log often ends in the middle of what was being written, and that is nothing to worry about: nobody
//! was told that it was durable. But damage to the last sync before a power cut looks the same (`super::verdict`), so
//! whoever runs the store is told what was cut: where, how much, and which records can still be read in it.
//!
//! Looked at are the unit at the cut, if its header says that it belongs there, and every intact unit behind it. Zeros,
//! and units of the segment that a file was before, are what a log ends with: then nothing was cut.

use std::path::PathBuf;

use super::format::{HEADER_BYTES, unit_bytes};
use super::frames::Frames;
use super::read::{FileSource, Source, WalkEnd};
use super::unsealing::Unsealing;
use crate::base::codec::Reader;
use crate::base::limits::IO_ALIGN;
use crate::base::{Lsn, Result};
use crate::crypt::Keyring;

/// What was cut off.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// The file in which the log ends.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub fault: &'static str,
    /// Bytes of units behind it, that at the cut included if it is one.
    pub bytes: u64,
    /// Of these units, how many are intact.
    pub intact_units: u64,
    /// Whole records in the intact units.
    pub records: u64,
    /// Bytes before the cut of a record that is not complete without what is behind it; 0: there is none.
    pub begun_bytes: u64,
}

/// Looks at what lies behind the end of a walk; `None` if nothing does. `record` is shown each whole record in it.
pub(super) fn look_behind(
    source: &mut FileSource,
    end: &WalkEnd,
    keys: &Keyring,
    record: &mut dyn FnMut(&[u8]),
) -> Result<Option<Cut>> {
    let (path, offset) = source.place(end.cut);
    let mut cut = Cut { path, offset, fault: end.fault, begun_bytes: end.begun_bytes, ..Cut::default() };
    cut.bytes = torn_unit_bytes(source, end.cut, end.epoch)?;
    let mut frames = Frames::default();
    let mut unsealing = Unsealing::new(keys);
    let mut next = Lsn(0);
    for seen in &end.stale {
        let Ok((header, payload)) = source.unit(seen.lsn)? else { continue };
        cut.bytes += header.end().0 - header.lsn.0;
        cut.intact_units += 1;
        if header.lsn != next {
            frames = Frames::default();
        }
        next = header.end();
        if header.first {
            continue;
        }
        // What cannot be opened is counted as bytes only.
        if let Ok(payload) = unsealing.payload(&header, payload, &|| (cut.path.clone(), 0)) {
            frames.feed(&header, payload, &mut |_, _, found| {
                if let Ok(found) = found {
                    cut.records += 1;
                    record(found);
                }
                Ok(())
            })?;
        }
    }
    Ok((cut.bytes > 0 || cut.begun_bytes > 0).then_some(cut))
}

/// Bytes of the unit that was to be at `at`, by its unverified header; 0 if nothing says that one was.
fn torn_unit_bytes(source: &mut FileSource, at: Lsn, epoch: Option<u64>) -> Result<u64> {
    let Some(page) = source.page(at)? else { return Ok(0) };
    let mut places = Reader::new(&page[16..32]);
    let (of_epoch, lsn) = (places.u64(), places.u64());
    let belongs = lsn == Some(at.0) && (epoch.is_none() || of_epoch == epoch);
    Ok(unit_bytes(&page[..HEADER_BYTES]).filter(|_| belongs).map_or(0, |bytes| bytes.max(IO_ALIGN) as u64))
}
