//! What can still be read of a log that may be damaged.
//!
//! Recovery refuses a log of which something durable is missing. Here the way goes on behind the hole, at the next unit that is
//! intact and not dead, and from the first record that begins there. Where a log ends, and what was cut from it, is told by the
//! rules of recovery: what lies behind a torn end was never acknowledged, and does not come back.
//!
//! A manifest is read in the same way, each unit by itself: there a later snapshot makes good for what is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{UnitFault, segment_number, segment_path};
use super::frames::Frames;
use super::read::{FileSource, LogPlace, Source};
use super::unsealing::Unsealing;
use super::verdict::{EpochStart, Verdict, judge, jump};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::crypt::Keyring;
use crate::io::{Disk, Mode};

/// A part of the log that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hole {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// Where it begins in the log.
    pub from: Lsn,
    /// Where what is read next begins; the log's end as it was stated, if nothing is.
    pub to: Lsn,
    /// What is wrong.
    pub what: String,
}

/// Receives records, and holes between them.
pub type Found<'a> = &'a mut dyn FnMut(std::result::Result<(Lsn, &[u8]), Hole>);

/// The size of the log's segments as the first unit of some segment states it; `None` if there is no intact one.
pub fn segment_size(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Option<u64>> {
    for name in disk.list(dir)? {
        if segment_number(&name).is_none() {
            continue;
        }
        let path = dir.join(&name);
        // A size that is a multiple of all, so that the first page is read as one of a single segment.
        let mut source = FileSource::of_file(disk.clone(), &path);
        let Ok(file) = disk.open(&path, Mode::Read, false) else { continue };
        if file.len().unwrap_or(0) < IO_ALIGN as u64 {
            continue;
        }
        if let Some((header, _)) = source.any_unit(Lsn(0)) {
            return Ok(Some(u64::from(header.segment_pages) * IO_ALIGN as u64).filter(|&bytes| bytes > 0));
        }
    }
    Ok(None)
}

/// Reads the log in `dir` from the segment of `from`, over all holes; it is known to have been durable up to `durable`. Returns where
/// it ends, and whether units lie behind that, which recovery cuts off.
///
/// Errors: `Io` if the directory cannot be read; `Incompatible` for a log of another version.
pub fn survey(place: &LogPlace<'_>, from: Lsn, durable: Lsn, found: Found<'_>) -> Result<(Lsn, bool)> {
    let LogPlace { disk, dir, segment_bytes, keys } = *place;
    let mut unsealing = Unsealing::new(keys);
    let mut source = FileSource::of_segments(disk.clone(), dir, segment_bytes)?;
    let begin = Lsn(from.0 / segment_bytes * segment_bytes);
    let epochs = source.epochs_there();
    let mut place = |at: Lsn| (segment_path(dir, at.0 / segment_bytes), at.0 % segment_bytes);
    let mut frames = Frames::default();
    let (mut at, mut epoch, mut epoch_start) = (begin, None, None);
    loop {
        if let Some(next) = jump(at, epoch_start, &epochs) {
            (at, epoch, epoch_start) = (next.lsn, Some(next.epoch), Some(next.lsn));
            frames.restart();
        }
        let fault = match source.unit(at) {
            Ok(Ok((header, payload)))
                if epoch.is_none_or(|e| e == header.epoch)
                    && (!header.first || at == begin || epoch_start == Some(at)) =>
            {
                epoch = Some(header.epoch);
                at = header.end();
                if header.first {
                    epoch_start = Some(header.lsn);
                } else {
                    feed(&mut frames, &header, payload, from, &mut place, &mut unsealing, found);
                }
                continue;
            }
            Ok(Err(UnitFault::Version(version))) => {
                let (path, _) = source.place(at);
                return Err(Error::Incompatible { path, what: format!("log unit of version {version}") });
            }
            Ok(Err(UnitFault::Bad(what))) => what.to_owned(),
            Ok(Ok(_)) => "unit of another epoch".to_owned(),
            Err(error) => error.to_string(),
        };
        let mut beyond = source.beyond_there(at, epoch);
        // What lies between an end and the beginning of the epoch that states it is dead.
        beyond.retain(|unit| !epochs.iter().any(|e: &EpochStart| e.cut <= unit.lsn && unit.lsn < e.lsn));
        let is_damage = matches!(judge(at, &beyond), Verdict::Damaged { .. });
        let next = beyond.first().filter(|_| is_damage || at < durable).copied();
        if next.is_none() && at >= durable {
            return Ok((at, !beyond.is_empty()));
        }
        let (path, offset) = source.place(at);
        let to = next.map_or(durable, |next| next.lsn);
        found(Err(Hole { path, offset, from: at, to, what: fault }));
        let Some(next) = next else { return Ok((at, false)) };
        frames = Frames::default();
        let is_first = epochs.iter().any(|e| e.lsn == next.lsn);
        (at, epoch, epoch_start) = (next.lsn, Some(next.epoch), is_first.then_some(next.lsn));
        if is_first {
            frames.restart();
        }
    }
}

/// Shows the records of the intact units of one file that is a log of its own, wherever they are.
pub fn survey_file(disk: &Arc<dyn Disk>, path: &Path, keys: &Keyring, found: Found<'_>) -> Result<()> {
    let mut unsealing = Unsealing::new(keys);
    let len = disk.open(path, Mode::Read, false)?.len()?;
    let mut source = FileSource::of_file(disk.clone(), path);
    let mut frames = Frames::default();
    let (mut at, mut lost_from) = (0, None);
    while at + IO_ALIGN as u64 <= len {
        match source.unit(Lsn(at)) {
            Ok(Ok((header, payload))) => {
                if let Some((from, what)) = lost_from.take() {
                    let (path, to) = (path.to_owned(), Lsn(at));
                    found(Err(Hole { path, offset: from, from: Lsn(from), to, what }));
                    frames = Frames::default();
                }
                at = header.end().0;
                feed(&mut frames, &header, payload, Lsn(0), &mut |lsn| (path.to_owned(), lsn.0), &mut unsealing, found);
            }
            other => {
                let what = match other {
                    Ok(Err(UnitFault::Bad(what))) => what.to_owned(),
                    Ok(Err(UnitFault::Version(version))) => format!("unit of version {version}"),
                    Ok(Ok(_)) => String::new(),
                    Err(error) => error.to_string(),
                };
                lost_from.get_or_insert((at, what));
                at += IO_ALIGN as u64;
            }
        }
    }
    Ok(())
}

/// Shows the records that are whole with this unit.
fn feed(
    frames: &mut Frames,
    header: &super::format::UnitHeader,
    payload: &[u8],
    from: Lsn,
    place: &mut dyn FnMut(Lsn) -> (PathBuf, u64),
    unsealing: &mut Unsealing<'_>,
    found: Found<'_>,
) {
    let mut broken = false;
    let (unit, at) = place(header.lsn);
    let payload = match unsealing.payload(header, payload, &|| (unit.clone(), at)) {
        Ok(payload) => payload,
        Err(error) => {
            found(Err(Hole { path: unit, offset: at, from: header.lsn, to: header.end(), what: error.to_string() }));
            *frames = Frames::default();
            return;
        }
    };
    let fed = frames.feed(header, payload, &mut |start, end, record| {
        match record {
            Ok(record) if start >= from => found(Ok((start, record))),
            Ok(_) => {}
            Err(what) => {
                let (path, offset) = place(start);
                found(Err(Hole { path, offset, from: start, to: end, what: what.to_owned() }));
                broken = true;
            }
        }
        Ok(())
    });
    // What is fed never fails by itself.
    if broken || fed.is_err() {
        *frames = Frames::default();
    }
}
