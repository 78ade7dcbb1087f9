//! Reading the log back: from files to units, from units to records, and where it ends.
//!
//! [`walk`] follows the units from the start of the segment that contains the wanted position, jumps from cut to epoch
//! as [`super::verdict::jump`] says, and asks [`super::verdict::judge`] at the first unit that is bad or missing. It
//! knows no files: a [`Source`] serves the units, so that tests can describe logs in text.
//!
//! Units are judged as they lie there: only of those that belong to the log the payload is opened, if it is encrypted
//! ([`Unsealing`]). A key that is missing is an error, and cuts nothing.
//!
//! Recovery finally syncs what it accepted beyond the last known durable position. Otherwise bytes that only the drive's
//! cache holds (after the death of a process) would be declared part of the log by the next epoch, and then be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cut::{Cut, look_behind};
use super::format::{
    HEADER_BYTES, UNIT_BYTES_MAX, UnitFault, UnitHeader, VERSION, decode_unit, segment_number, segment_pages,
    segment_path, unit_bytes,
};
use super::frames::Frames;
use super::unsealing::Unsealing;
use super::verdict::{EpochStart, Sighting, Verdict, judge, jump};
use crate::base::codec::Reader;
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::crypt::Keyring;
use crate::io::{AlignedBuf, Disk, File, Mode};

const ALIGN: u64 = IO_ALIGN as u64;
const WINDOW_BYTES: usize = 4 << 20;
/// What is read where nothing was read before: often only one unit is looked at.
const FIRST_LOOK_BYTES: usize = 64 << 10;

const _: () = assert!(WINDOW_BYTES >= UNIT_BYTES_MAX);

/// Where a log ends, and where it is to be continued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// The log validly ends here.
    pub cut: Lsn,
    /// Start of the first segment that holds nothing and never did: where a new epoch begins.
    pub next_segment_start: Lsn,
}

impl Tail {
    /// The tail of a log that does not exist yet.
    pub const NEW: Tail = Tail { cut: Lsn(0), next_segment_start: Lsn(0) };
}

/// Where a log lies, and what is needed to read it.
#[derive(Clone, Copy)]
pub struct LogPlace<'a> {
    /// The disk.
    pub disk: &'a Arc<dyn Disk>,
    /// The directory of its segments.
    pub dir: &'a Path,
    /// Their size.
    pub segment_bytes: u64,
    /// The keys of what is encrypted.
    pub keys: &'a Keyring,
}

/// Receives the records of a log in order: where each starts, where it ends, and its bytes.
pub type Visit<'a> = &'a mut dyn FnMut(Lsn, Lsn, &[u8]) -> Result<()>;

/// Reads the log at `place` and yields every whole record that starts at `from` or later, in order. Makes durable what it accepted;
/// what lies below `durable` is known to be. Call it with the store's lock held; then open the log with the tail. If the log was
/// cut, says so; `lost` is shown each whole record behind the cut.
///
/// Errors: `Corruption` with file and offset if something durable is damaged or missing; `Incompatible` for a log of
/// another version or segment size; `Io`; whatever `visit` returns.
pub fn recover(
    place: &LogPlace<'_>,
    from: Lsn,
    durable: Lsn,
    visit: Visit<'_>,
    lost: &mut dyn FnMut(&[u8]),
) -> Result<(Tail, Option<Cut>)> {
    let LogPlace { disk, dir, segment_bytes, keys } = *place;
    let mut source = FileSource::of_segments(disk.clone(), dir, segment_bytes)?;
    let (tail, end) = walk_segments(&mut source, segment_bytes, from, keys, visit)?;
    let trusted = end.trusted.max(durable);
    if tail.cut > trusted {
        for number in trusted.0 / segment_bytes..=tail.cut.0 / segment_bytes {
            if let Some(path) = source.files.get(&number) {
                disk.open(path, Mode::ReadWrite, false)?.sync_data()?;
            }
        }
        disk.sync_dir(dir)?;
    }
    let cut = look_behind(&mut source, &end, keys, lost)?;
    Ok((tail, cut))
}

/// The file and offset to blame if the log ends at `cut` though it was durable up to `upto`: the start of a segment that
/// should have come and is not intact, else the cut itself.
pub(crate) fn blame(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    segment_bytes: u64,
    cut: Lsn,
    upto: Lsn,
) -> Result<(PathBuf, u64)> {
    let mut source = FileSource::of_segments(disk.clone(), dir, segment_bytes)?;
    let last = Lsn(upto.0.saturating_sub(1));
    let at = source.broken_segment(cut, last)?.unwrap_or(cut);
    let number = at.0 / segment_bytes;
    Ok((segment_path(dir, number), at.0 - number * segment_bytes))
}

/// Like [`recover`], but changes nothing on the disk; for tools and checks.
pub fn scan(place: &LogPlace<'_>, from: Lsn, visit: Visit<'_>) -> Result<Tail> {
    let LogPlace { disk, dir, segment_bytes, keys } = *place;
    let mut source = FileSource::of_segments(disk.clone(), dir, segment_bytes)?;
    walk_segments(&mut source, segment_bytes, from, keys, visit).map(|(tail, _)| tail)
}

fn walk_segments(
    source: &mut FileSource,
    segment_bytes: u64,
    from: Lsn,
    keys: &Keyring,
    visit: Visit<'_>,
) -> Result<(Tail, WalkEnd)> {
    let end = walk_records(source, Lsn(from.0 / segment_bytes * segment_bytes), from, keys, visit)?;
    Ok((Tail { cut: end.cut, next_segment_start: end.next_segment_start(segment_bytes) }, end))
}

/// Yields the records of `source` from `begin` on that start at `from` or later.
pub(crate) fn walk_records(
    source: &mut FileSource,
    begin: Lsn,
    from: Lsn,
    keys: &Keyring,
    visit: Visit<'_>,
) -> Result<WalkEnd> {
    let places = source.places();
    let mut frames = Frames::default();
    let mut unsealing = Unsealing::new(keys);
    let end = walk(source, begin, &mut |event| match event {
        Event::Epoch => {
            frames.restart();
            Ok(())
        }
        Event::Unit(header, payload) => {
            let payload = unsealing.payload(header, payload, &|| places.of(header.lsn))?;
            frames.feed(header, payload, &mut |start, end, record| match record {
                Ok(record) if start >= from => visit(start, end, record),
                Ok(_) => Ok(()),
                Err(what) => {
                    let (path, offset) = places.of(start);
                    Err(Error::corruption(&path, offset, what))
                }
            })
        }
    })?;
    Ok(WalkEnd { begun_bytes: frames.held_bytes() as u64, ..end })
}

/// Serves the units of a log.
pub(crate) trait Source {
    /// The unit at `at`, or what is there instead.
    fn unit(&mut self, at: Lsn) -> Result<std::result::Result<(UnitHeader, &[u8]), UnitFault>>;
    /// The first units of all epochs, in any order.
    fn epochs(&mut self) -> Result<Vec<EpochStart>>;
    /// Intact units beyond `at`, ascending. `epoch` is the one being read, if known: units that pose as another's are
    /// left out as far as that can be told. May stop after one that states a durable position above `at`.
    fn beyond(&mut self, at: Lsn, epoch: Option<u64>) -> Result<Vec<Sighting>>;
    /// Start of the last segment after that of `at` and up to that of `upto` whose first unit is not intact.
    fn broken_segment(&mut self, at: Lsn, upto: Lsn) -> Result<Option<Lsn>>;
    /// File and offset of a position.
    fn place(&self, at: Lsn) -> (PathBuf, u64);
}

pub(crate) enum Event<'a> {
    /// The log continues in a new epoch: a record begun before is void.
    Epoch,
    /// The next unit and its part of the frame stream.
    Unit(&'a UnitHeader, &'a [u8]),
}

/// Where a walk ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WalkEnd {
    pub(crate) cut: Lsn,
    /// The highest durable position that an accepted unit states.
    pub(crate) trusted: Lsn,
    /// All intact units beyond the cut, which are dead now.
    pub(crate) stale: Vec<Sighting>,
    /// The epoch that was read last.
    pub(super) epoch: Option<u64>,
    /// What is wrong with the unit at the cut.
    pub(super) fault: &'static str,
    /// Bytes of a record before the cut that goes on behind it.
    pub(super) begun_bytes: u64,
}

impl WalkEnd {
    pub(crate) fn next_segment_start(&self, segment_bytes: u64) -> Lsn {
        let after_cut = self.cut.0.div_ceil(segment_bytes);
        let after_stale = self.stale.last().map_or(0, |unit| unit.lsn.0 / segment_bytes + 1);
        Lsn(after_cut.max(after_stale) * segment_bytes)
    }
}

/// Follows the log from `begin`, the start of a segment, to where it ends.
pub(crate) fn walk<S: Source>(
    source: &mut S,
    begin: Lsn,
    sink: &mut dyn FnMut(Event<'_>) -> Result<()>,
) -> Result<WalkEnd> {
    let epochs = source.epochs()?;
    let mut position = begin;
    let mut epoch = None;
    let mut epoch_start = None;
    let mut trusted = Lsn(0);
    loop {
        if let Some(next) = jump(position, epoch_start, &epochs) {
            position = next.lsn;
            epoch = Some(next.epoch);
            epoch_start = Some(next.lsn);
            sink(Event::Epoch)?;
        }
        match source.unit(position)? {
            Ok((header, payload))
                if epoch.is_none_or(|e| e == header.epoch)
                    && (!header.first || position == begin || epoch_start == Some(position)) =>
            {
                epoch = Some(header.epoch);
                trusted = trusted.max(header.durable);
                position = header.end();
                if header.first {
                    epoch_start = Some(header.lsn);
                } else {
                    sink(Event::Unit(&header, payload))?;
                }
            }
            Err(UnitFault::Version(version)) => {
                let (path, offset) = source.place(position);
                let what = format!("log unit at offset {offset} has version {version}, known is {VERSION}");
                return Err(Error::Incompatible { path, what });
            }
            other => {
                let fault = match other {
                    Err(UnitFault::Bad(what)) => what,
                    _ => "unit of another epoch",
                };
                return end_at(source, position, epoch, trusted, fault);
            }
        }
    }
}

fn end_at<S: Source>(
    source: &mut S,
    position: Lsn,
    epoch: Option<u64>,
    trusted: Lsn,
    fault: &'static str,
) -> Result<WalkEnd> {
    let beyond = source.beyond(position, epoch)?;
    match judge(position, &beyond) {
        Verdict::Torn => Ok(WalkEnd { cut: position, trusted, stale: beyond, epoch, fault, begun_bytes: 0 }),
        Verdict::Damaged { witness } => {
            // If another epoch follows, the log may be sound up to here and the way into that epoch be damaged.
            let of_another = epoch.is_some_and(|e| e != witness.epoch);
            let at = if of_another { source.broken_segment(position, witness.lsn)? } else { None }.unwrap_or(position);
            let (path, offset) = source.place(at);
            let what = format!("{fault}; the log states at {} to be durable up to {}", witness.lsn, witness.durable);
            Err(Error::corruption(&path, offset, what))
        }
    }
}

/// Where positions lie, detached from the source they belong to.
#[derive(Clone)]
pub(crate) struct Places {
    dir: PathBuf,
    files: BTreeMap<u64, PathBuf>,
    segment_bytes: u64,
}

impl Places {
    fn of(&self, at: Lsn) -> (PathBuf, u64) {
        let number = at.0 / self.segment_bytes;
        let path = self.files.get(&number).cloned();
        (path.unwrap_or_else(|| super::format::segment_path(&self.dir, number)), at.0 % self.segment_bytes)
    }
}

/// Units in files.
pub(crate) struct FileSource {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    files: BTreeMap<u64, PathBuf>,
    segment_bytes: u64,
    /// The open file: number, handle, size in whole pages.
    open: Option<(u64, Arc<dyn File>, u64)>,
    window: AlignedBuf,
    /// What the window shows: number, offset, bytes.
    shown: (u64, u64, usize),
}

impl FileSource {
    /// The segments of the log in `dir`.
    pub(crate) fn of_segments(disk: Arc<dyn Disk>, dir: &Path, segment_bytes: u64) -> Result<FileSource> {
        if segment_bytes == 0 || segment_bytes % ALIGN != 0 {
            return Err(Error::Invalid(format!("log segment size {segment_bytes} is not a multiple of {ALIGN}")));
        }
        let names = disk.list(dir)?;
        let files = names.iter().filter_map(|name| Some((segment_number(name)?, dir.join(name)))).collect();
        Ok(FileSource::new(disk, dir, files, segment_bytes))
    }

    /// One file that is a log of its own.
    pub(crate) fn of_file(disk: Arc<dyn Disk>, path: &Path) -> FileSource {
        let dir = path.parent().unwrap_or(path);
        FileSource::new(disk, dir, BTreeMap::from([(0, path.to_owned())]), 1 << 62)
    }

    fn new(disk: Arc<dyn Disk>, dir: &Path, files: BTreeMap<u64, PathBuf>, segment_bytes: u64) -> FileSource {
        let window = AlignedBuf::zeroed(usize::try_from(segment_bytes).unwrap_or(WINDOW_BYTES).min(WINDOW_BYTES));
        FileSource { disk, dir: dir.to_owned(), files, segment_bytes, open: None, window, shown: (0, 0, 0) }
    }

    fn places(&self) -> Places {
        Places { dir: self.dir.clone(), files: self.files.clone(), segment_bytes: self.segment_bytes }
    }

    /// Makes `bytes` bytes at `offset` of segment `number` visible, if the file has them; their place in the window.
    fn show(&mut self, number: u64, offset: u64, bytes: usize) -> Result<Option<usize>> {
        let (shown_number, shown_offset, shown_bytes) = self.shown;
        if shown_number == number
            && offset >= shown_offset
            && offset + bytes as u64 <= shown_offset + shown_bytes as u64
        {
            return Ok(Some((offset - shown_offset) as usize));
        }
        let Some(size) = self.file_size(number)? else {
            return Ok(None);
        };
        if offset + bytes as u64 > size {
            return Ok(None);
        }
        let Some((_, file, _)) = &self.open else {
            return Ok(None);
        };
        let goes_on = shown_bytes > 0
            && shown_number == number
            && (shown_offset..=shown_offset + shown_bytes as u64).contains(&offset);
        let most = if goes_on { self.window.len() } else { FIRST_LOOK_BYTES.max(bytes).min(self.window.len()) };
        let n = (size - offset).min(most as u64) as usize;
        self.shown = (0, 0, 0);
        file.read_exact_at(&mut self.window[..n], offset)?;
        self.shown = (number, offset, n);
        Ok(Some(0))
    }

    /// Opens segment `number`; its size in whole pages, `None` if there is no such file.
    fn file_size(&mut self, number: u64) -> Result<Option<u64>> {
        if self.open.as_ref().is_none_or(|open| open.0 != number) {
            let Some(path) = self.files.get(&number) else {
                return Ok(None);
            };
            let file = self.disk.open(path, Mode::Read, true)?;
            let size = file.len()?.min(self.segment_bytes) / ALIGN * ALIGN;
            self.open = Some((number, file, size));
        }
        Ok(self.open.as_ref().map(|open| open.2))
    }

    /// The unit in segment `number` at `offset`, expected to be that of lsn `at` if given.
    #[allow(clippy::type_complexity)] // The nested result is the trait's.
    fn unit_in(
        &mut self,
        number: u64,
        offset: u64,
        at: Option<Lsn>,
    ) -> Result<std::result::Result<(UnitHeader, &[u8]), UnitFault>> {
        let Some(shown) = self.show(number, offset, IO_ALIGN)? else {
            return Ok(Err(UnitFault::Bad("log file missing or short")));
        };
        let Some(bytes) = unit_bytes(&self.window[shown..shown + HEADER_BYTES]) else {
            return Ok(Err(UnitFault::Bad("no unit here")));
        };
        let Some(shown) = self.show(number, offset, bytes)? else {
            return Ok(Err(UnitFault::Bad("unit longer than its file")));
        };
        Ok(decode_unit(&self.window[shown..shown + bytes], at))
    }

    /// The first bytes of what is at `at`, whatever it is; `None` behind the end of the file.
    pub(super) fn page(&mut self, at: Lsn) -> Result<Option<&[u8]>> {
        let shown = self.show(at.0 / self.segment_bytes, at.0 % self.segment_bytes, IO_ALIGN)?;
        Ok(shown.map(|shown| &self.window[shown..shown + IO_ALIGN]))
    }

    /// The unit at `at`, wherever it says that it lies.
    pub(super) fn any_unit(&mut self, at: Lsn) -> Option<(UnitHeader, &[u8])> {
        self.unit_in(at.0 / self.segment_bytes, at.0 % self.segment_bytes, None).ok()?.ok()
    }

    /// As [`Source::epochs`], of the segments that can be read.
    pub(super) fn epochs_there(&mut self) -> Vec<EpochStart> {
        let mut epochs = Vec::new();
        for number in self.files.keys().copied().collect::<Vec<_>>() {
            if let Ok(Some((header, Some(cut)))) = self.first_of(number) {
                epochs.push(EpochStart { lsn: header.lsn, cut, epoch: header.epoch });
            }
        }
        epochs
    }

    /// As [`Source::beyond`], passing over what cannot be read.
    pub(super) fn beyond_there(&mut self, at: Lsn, epoch: Option<u64>) -> Vec<Sighting> {
        self.beyond(at, epoch).unwrap_or_default()
    }

    /// The first unit of segment `number` if it belongs there.
    fn first_of(&mut self, number: u64) -> Result<Option<(UnitHeader, Option<Lsn>)>> {
        let segment_bytes = self.segment_bytes;
        let path = self.files.get(&number).cloned();
        let Ok((header, payload)) = self.unit_in(number, 0, None)? else {
            return Ok(None);
        };
        if header.segment_pages != segment_pages(segment_bytes) {
            return Err(Error::Incompatible {
                path: path.unwrap_or_default(),
                what: format!(
                    "the log has segments of {} bytes, not {segment_bytes}",
                    u64::from(header.segment_pages) * ALIGN
                ),
            });
        }
        if header.lsn.0 != number * segment_bytes {
            return Ok(None);
        }
        let cut = if header.first { Reader::new(payload).u64().map(Lsn) } else { None };
        Ok(Some((header, cut)))
    }
}

impl Source for FileSource {
    fn unit(&mut self, at: Lsn) -> Result<std::result::Result<(UnitHeader, &[u8]), UnitFault>> {
        self.unit_in(at.0 / self.segment_bytes, at.0 % self.segment_bytes, Some(at))
    }

    fn epochs(&mut self) -> Result<Vec<EpochStart>> {
        let mut epochs = Vec::new();
        for number in self.files.keys().copied().collect::<Vec<_>>() {
            if let Some((header, Some(cut))) = self.first_of(number)? {
                epochs.push(EpochStart { lsn: header.lsn, cut, epoch: header.epoch });
            }
        }
        Ok(epochs)
    }

    fn beyond(&mut self, at: Lsn, epoch: Option<u64>) -> Result<Vec<Sighting>> {
        let number_of_bad = at.0 / self.segment_bytes;
        let numbers: Vec<u64> = self.files.range(number_of_bad..).map(|(&n, _)| n).collect();
        // A torn area may hold user data that looks like units; only at the start of a segment is a unit for sure.
        let mut known = BTreeSet::from_iter(epoch);
        let mut headless = BTreeSet::new();
        for &number in &numbers {
            match self.first_of(number)? {
                Some((header, _)) => {
                    known.insert(header.epoch);
                }
                None => {
                    headless.insert(number);
                }
            }
        }
        let mut seen = Vec::new();
        for number in numbers {
            let start = number * self.segment_bytes;
            let any_epoch = headless.contains(&number) && (number != number_of_bad || epoch.is_none());
            let size = self.file_size(number)?.unwrap_or(0);
            let mut offset = if number == number_of_bad { at.0 - start + ALIGN } else { 0 };
            while offset < size {
                let lsn = Lsn(start + offset);
                match self.unit_in(number, offset, Some(lsn))? {
                    Ok((header, _)) if any_epoch || known.contains(&header.epoch) => {
                        seen.push(Sighting { lsn, epoch: header.epoch, durable: header.durable });
                        if header.durable > at {
                            return Ok(seen);
                        }
                        offset = header.end().0 - start;
                    }
                    _ => offset += ALIGN,
                }
            }
        }
        Ok(seen)
    }

    fn broken_segment(&mut self, at: Lsn, upto: Lsn) -> Result<Option<Lsn>> {
        for number in (at.0 / self.segment_bytes + 1..=upto.0 / self.segment_bytes).rev() {
            if self.first_of(number)?.is_none() {
                return Ok(Some(Lsn(number * self.segment_bytes)));
            }
        }
        Ok(None)
    }

    fn place(&self, at: Lsn) -> (PathBuf, u64) {
        self.places().of(at)
    }
}
