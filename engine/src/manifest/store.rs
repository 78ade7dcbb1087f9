//! The state on disk: a log of edits. Normative text: docs/develop/format/manifest.md.
//!
//! `MANIFEST-<no>` begins with a snapshot of the state and goes on with edits. It is written in the units of the log,
//! so that the same verdict tells a torn end from damage. Each append writes and syncs the edit's units, then leaves an
//! unsynced empty unit behind, the witness that the edit was durable. `CURRENT` names the file in force.
//!
//! A file is never continued after it was opened: opening writes the state to a fresh file, so nothing is ever appended
//! behind a torn end. The same happens when the file has grown far beyond its snapshot.
//!
//! A full disk must neither keep a store from being opened nor an index from being dropped, since drops free space. So the
//! file before the one in force is kept, with its space, as the *spare* that the next one is written over, and so is a
//! `CURRENT.tmp`; and the last [`RESERVE_BYTES`] of the space of the file in force are for *relief*: edits that free space
//! or end the store's work. When they are used up, relief goes on in the spare, where the snapshot stands for all edits.
//!
//! Invariant: when `CURRENT` names a file, that file's name and snapshot are durable. A new file that could not be written
//! is no failure: the one in force is as good as before.
//!
//! Rejected: a reserve that is deleted when space is needed. Somebody else on the same disk may be quicker to take it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::edit::Undecoded;
use super::feature::Feature;
use super::state::{Marks, State, Unread};
use super::{FileEntry, Version, VersionEdit};
use crate::base::codec::Reader;
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::crypt::Keyring;
use crate::io::{AlignedBuf, Disk, File, Mode};
use crate::wal::format::{Body, HEADER_BYTES, UNIT_BYTES_MAX, UnitBuf, frame_prefixes};
use crate::wal::{FileSource, walk_records};

pub(super) const SNAPSHOT: u8 = 1;
pub(super) const EDIT: u8 = 2;
/// A file is rewritten when it is larger than this, and than its snapshot this many times.
const REWRITE_BYTES: u64 = 1 << 20;
const REWRITE_FACTOR: u64 = 4;
/// Space is reserved so far ahead.
const ROOM_BYTES: u64 = 64 << 10;
/// Space that only relief uses: some thirty edits of two pages.
const RESERVE_BYTES: u64 = 256 << 10;
/// A file is zeroed in pieces of this size before it is used again.
const ZERO_BYTES: usize = 64 << 10;
/// The file by which a directory is known as a checkpoint from the first moment: without `CURRENT` it was not finished.
pub const CHECKPOINT: &str = "CHECKPOINT";
const TEMPORARY: &str = "CURRENT.tmp";
const SPARE: &str = "MANIFEST.spare";

/// Which part of the reserved space an edit may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Not the reserve.
    Work,
    /// All of it.
    Relief,
}

/// What a manifest file says.
pub struct Stored {
    /// Number of the file.
    pub number: u64,
    /// The state after its last edit.
    pub state: State,
    /// Where it lies.
    pub path: PathBuf,
    /// Where its last edit ends, in bytes. If edits behind it were lost, the damage is there.
    pub end: u64,
}

/// The manifest of an open store.
pub struct Manifest {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    keys: Arc<Keyring>,
    inner: Mutex<Inner>,
}

struct Inner {
    marks: Marks,
    /// The newest version, which readers have been given or are about to be.
    version: Arc<Version>,
    number: u64,
    file: Arc<dyn File>,
    /// Where the next unit goes.
    position: u64,
    /// Everything below is synced.
    durable: u64,
    /// Space is reserved up to here.
    room: u64,
    snapshot_bytes: u64,
    /// Bytes written to earlier files since the manifest was opened.
    written_before: u64,
    /// A new file could not be written: not tried again before the present one is as long as this.
    rewrite_from: u64,
    /// The spare or `CURRENT.tmp` is missing or too small.
    spare_wanted: bool,
    poison: Option<Arc<Error>>,
}

/// An open manifest file: the part of `Inner` that writing moves.
struct Written {
    file: Arc<dyn File>,
    position: u64,
}

/// A file with a snapshot that is not in force yet.
struct Begun {
    written: Written,
    snapshot_bytes: u64,
    /// Space that the file has.
    room: u64,
}

impl Manifest {
    /// True if `dir` has a manifest in force.
    pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool> {
        disk.exists(&dir.join("CURRENT"))
    }

    /// Makes the manifest of a new store in an existing directory; `version` has no files. A creation cut short by a crash may be
    /// repeated.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        keys: &Arc<Keyring>,
        marks: Marks,
        version: Arc<Version>,
    ) -> Result<Manifest> {
        if Manifest::exists(&*disk, dir)? {
            return Err(Error::Internal(format!("{} already has a manifest", dir.display())));
        }
        Manifest::begin(disk, dir, keys, 1, marks, version)
    }

    /// Goes on from what `load` has found, in a fresh file. `version` has the files of what was found.
    pub fn resume(
        disk: Arc<dyn Disk>,
        dir: &Path,
        keys: &Arc<Keyring>,
        stored: &Stored,
        version: Arc<Version>,
    ) -> Result<Manifest> {
        Manifest::begin(disk, dir, keys, stored.number + 1, stored.state.marks.clone(), version)
    }

    /// Reads the manifest in force without changing anything, for a program that knows the engine's features and `known`.
    ///
    /// Errors: `Corruption`, `Incompatible`, `Key`, `Io` (also if there is none).
    pub fn load(disk: &Arc<dyn Disk>, dir: &Path, known: &[Feature], keys: &Keyring) -> Result<Stored> {
        let (name, number) = Manifest::named(disk, dir)?;
        let path = dir.join(&name);
        if !disk.exists(&path)? {
            let what = format!("names {}, which does not exist", name.display());
            return Err(Error::corruption(&dir.join("CURRENT"), 0, what));
        }
        Manifest::load_file(disk, path, number, known, keys)
    }

    /// What `CURRENT` says: name and number of the manifest in force, which may not exist.
    pub(super) fn named(disk: &Arc<dyn Disk>, dir: &Path) -> Result<(PathBuf, u64)> {
        let current = dir.join("CURRENT");
        let file = disk.open(&current, Mode::Read, false)?;
        let mut text = vec![0; file.len()?.min(100) as usize];
        file.read_exact_at(&mut text, 0)?;
        let name = std::str::from_utf8(&text).ok().and_then(|t| t.strip_suffix('\n')).map(Path::new);
        let named = name.and_then(|name| Some((name.to_owned(), manifest_number(name)?)));
        named.ok_or_else(|| Error::corruption(&current, 0, "names no manifest"))
    }

    /// The same of a manifest that nothing names. Errors: as `load`.
    pub(super) fn load_file(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        number: u64,
        known: &[Feature],
        keys: &Keyring,
    ) -> Result<Stored> {
        let (state, end) = read_file(disk, &path, known, keys)?;
        Ok(Stored { number, state, path, end })
    }

    fn begin(
        disk: Arc<dyn Disk>,
        dir: &Path,
        keys: &Arc<Keyring>,
        number: u64,
        marks: Marks,
        version: Arc<Version>,
    ) -> Result<Manifest> {
        // Before anything changes: a key may be missing.
        let record = snapshot(keys, &dir.join(manifest_name(number)), &marks, &version)?;
        for name in disk.list(dir)? {
            // Left by a rewrite that did not come into force.
            if manifest_number(&name).is_some_and(|n| n >= number) {
                set_aside(&*disk, dir, &name)?;
            }
        }
        let begun = write_file(&*disk, dir, number, &record)?;
        put_in_force(&*disk, dir)?;
        let mut inner = Inner {
            marks,
            version,
            number,
            file: begun.written.file,
            position: begun.written.position,
            durable: begun.snapshot_bytes,
            room: begun.room,
            snapshot_bytes: begun.snapshot_bytes,
            written_before: 0,
            rewrite_from: 0,
            spare_wanted: true,
            poison: None,
        };
        provide(&*disk, dir, &mut inner);
        Ok(Manifest { disk, dir: dir.to_owned(), keys: keys.clone(), inner: Mutex::new(inner) })
    }

    /// Makes an edit durable; on return it is in force, and readers are to be given the version that is returned. Files that the
    /// edit adds and that are among `known`, sorted by key, keep their entries ([`Version::apply_with`]).
    ///
    /// Errors: `Internal` if the edit does not fit the state and `Io` if there is no room for it: nothing has happened.
    /// `Poisoned`: nothing is accepted any more, and whether the edit is in force is known only after the store has been
    /// opened again.
    pub fn append(&self, edit: &VersionEdit, known: &[Arc<FileEntry>]) -> Result<Arc<Version>> {
        self.append_for(edit, known, Purpose::Work)
    }

    /// As [`Manifest::append`], for an edit that frees space or is the last word of a clean close: for it there is room on a
    /// full disk, too.
    pub fn append_relief(&self, edit: &VersionEdit) -> Result<Arc<Version>> {
        self.append_for(edit, &[], Purpose::Relief)
    }

    fn append_for(&self, edit: &VersionEdit, known: &[Arc<FileEntry>], purpose: Purpose) -> Result<Arc<Version>> {
        let mut inner = self.inner.lock();
        if let Some(e) = &inner.poison {
            return Err(Error::Poisoned(e.clone()));
        }
        let version = match edit.changes_files() {
            true => Arc::new(inner.version.apply_with(edit, known)?),
            false => inner.version.clone(),
        };
        inner.marks.check(edit).map_err(|what| Error::Internal(format!("manifest edit: {what}")))?;
        let mut record = vec![EDIT];
        edit.encode(&self.keys, &self.dir.join(manifest_name(inner.number)), &mut record)?;
        let full = match make_room(&mut inner, record.len() as u64, purpose) {
            Ok(()) => None,
            Err(e) if e.is_disk_full() && purpose == Purpose::Relief => Some(e),
            Err(e) => return Err(e),
        };
        let grown = inner.position > REWRITE_BYTES.max(inner.snapshot_bytes * REWRITE_FACTOR).max(inner.rewrite_from);
        let rewritten = match grown || full.is_some() {
            true => {
                let mut marks = inner.marks.clone();
                marks.advance(edit);
                self.rewrite(&mut inner, &marks, &version)?.is_ok()
            }
            false => false,
        };
        if !rewritten {
            if let Some(full) = full {
                return Err(full);
            }
            extend(&mut inner, &record).map_err(|e| poison(&mut inner, e))?;
        }
        inner.marks.advance(edit);
        inner.version = version.clone();
        if inner.spare_wanted {
            provide(&*self.disk, &self.dir, &mut inner);
        }
        Ok(version)
    }

    /// Notes that the store uses a feature; durable when this returns. A new manifest is begun for it, so that its snapshot
    /// says so before anything else. Needs no room on a full disk while there is a spare.
    ///
    /// Errors: `Io` if the new manifest could not be written: nothing has happened. `Poisoned`: as [`Manifest::append`].
    pub fn require(&self, feature: &Feature) -> Result<()> {
        let mut inner = self.inner.lock();
        if let Some(e) = &inner.poison {
            return Err(Error::Poisoned(e.clone()));
        }
        if inner.marks.features.has(feature.name()) {
            return Ok(());
        }
        if inner.spare_wanted {
            provide(&*self.disk, &self.dir, &mut inner);
        }
        let (mut marks, version) = (inner.marks.clone(), inner.version.clone());
        marks.features.add(feature);
        self.rewrite(&mut inner, &marks, &version)??;
        inner.marks = marks;
        provide(&*self.disk, &self.dir, &mut inner);
        Ok(())
    }

    /// Goes on in a new file.
    ///
    /// Errors: `Io` if it could not be written: the old one is in force. `Poisoned`: as [`Manifest::append`].
    pub fn renew(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if let Some(e) = &inner.poison {
            return Err(Error::Poisoned(e.clone()));
        }
        let (marks, version) = (inner.marks.clone(), inner.version.clone());
        self.rewrite(&mut inner, &marks, &version)??;
        provide(&*self.disk, &self.dir, &mut inner);
        Ok(())
    }

    /// Writes the manifest of a copy of the store in `dir`, which has none and whose files are durable; it is in force, and `dir` is a
    /// store, when this returns.
    pub fn lay_down(disk: &dyn Disk, dir: &Path, keys: &Keyring, marks: &Marks, version: &Version) -> Result<()> {
        write_file(disk, dir, 1, &snapshot(keys, &dir.join(manifest_name(1)), marks, version)?)?;
        put_in_force(disk, dir)
    }

    /// What the next snapshot would say.
    pub fn content(&self) -> (Marks, Arc<Version>) {
        let inner = self.inner.lock();
        (inner.marks.clone(), inner.version.clone())
    }

    /// Fails if an earlier failure stopped the manifest.
    pub fn check(&self) -> Result<()> {
        match &self.inner.lock().poison {
            Some(e) => Err(Error::Poisoned(e.clone())),
            None => Ok(()),
        }
    }

    /// The newest version: the files of the edits so far.
    pub fn version(&self) -> Arc<Version> {
        self.inner.lock().version.clone()
    }

    /// What the next snapshot would say.
    #[cfg(test)]
    pub fn state(&self) -> State {
        let inner = self.inner.lock();
        let files = inner.version.files().map(|(level, file)| (file.meta.no, (level, file.meta.clone())));
        State { marks: inner.marks.clone(), files: files.collect() }
    }

    /// The features that the store uses, by name.
    pub fn features(&self) -> Vec<Feature> {
        self.inner.lock().marks.features.iter().cloned().collect()
    }

    /// Bytes written since the manifest was opened.
    pub fn bytes_written(&self) -> u64 {
        let inner = self.inner.lock();
        inner.written_before + inner.position
    }

    /// Goes on in a new file that begins with a snapshot of these. Inner error: none could be written; the old file is in force.
    fn rewrite(&self, inner: &mut Inner, marks: &Marks, version: &Version) -> Result<Result<()>> {
        let number = inner.number + 1;
        let record = snapshot(&self.keys, &self.dir.join(manifest_name(number)), marks, version);
        let begun = match record.and_then(|record| write_file(&*self.disk, &self.dir, number, &record)) {
            Ok(begun) => begun,
            Err(e) => {
                inner.rewrite_from = inner.position + REWRITE_BYTES / 4;
                inner.spare_wanted = true;
                return Ok(Err(e));
            }
        };
        put_in_force(&*self.disk, &self.dir).map_err(|e| poison(inner, e))?;
        inner.number = number;
        inner.file = begun.written.file;
        inner.written_before += inner.position;
        inner.position = begun.written.position;
        inner.durable = begun.snapshot_bytes;
        inner.room = begun.room;
        inner.snapshot_bytes = begun.snapshot_bytes;
        inner.rewrite_from = 0;
        inner.spare_wanted = true;
        Ok(Ok(()))
    }
}

/// Accepts nothing any more: what is in force is not known.
fn poison(inner: &mut Inner, e: Error) -> Error {
    let e = Arc::new(e);
    inner.poison = Some(e.clone());
    Error::Poisoned(e)
}

/// Sees to it that the next file will have its space: what is not in force becomes the spare, or goes. Failure means that a
/// full disk may refuse the next file; it is tried again.
fn provide(disk: &dyn Disk, dir: &Path, inner: &mut Inner) {
    let provided = || -> Result<()> {
        for name in disk.list(dir)? {
            if manifest_number(&name).is_some_and(|n| n != inner.number) {
                set_aside(disk, dir, &name)?;
            }
        }
        let spare = dir.join(SPARE);
        let room = room_of(inner.snapshot_bytes);
        let mode = if disk.exists(&spare)? { Mode::ReadWrite } else { Mode::Create };
        let file = disk.open(&spare, mode, true)?;
        if file.len()? < room {
            file.allocate(room)?;
            file.sync_data()?;
        }
        let temporary = dir.join(TEMPORARY);
        if !disk.exists(&temporary)? {
            let file = disk.open(&temporary, Mode::Create, false)?;
            file.write_all_at(format!("{}\n", manifest_name(inner.number)).as_bytes(), 0)?;
            file.sync_data()?;
        }
        disk.sync_dir(dir)
    };
    inner.spare_wanted = provided().is_err();
}

/// Space of a file that begins with a snapshot: for the snapshot, in twice its size, and what is written behind it.
fn room_of(snapshot_bytes: u64) -> u64 {
    (2 * snapshot_bytes + RESERVE_BYTES + ROOM_BYTES).next_multiple_of(IO_ALIGN as u64)
}

/// Makes a file that is not in force the spare, if there is none.
fn set_aside(disk: &dyn Disk, dir: &Path, name: &Path) -> Result<()> {
    let spare = dir.join(SPARE);
    match disk.exists(&spare)? {
        true => disk.remove(&dir.join(name)),
        false => disk.rename(&dir.join(name), &spare),
    }
}

fn manifest_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// True for the name of a manifest that only a store which was opened before can have.
pub fn is_later_manifest(name: &Path) -> bool {
    manifest_number(name).is_some_and(|number| number > 1)
}

pub(super) fn manifest_number(name: &Path) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix("MANIFEST-")?;
    (digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

fn read_file(disk: &Arc<dyn Disk>, path: &Path, known: &[Feature], keys: &Keyring) -> Result<(State, u64)> {
    let mut state: Option<State> = None;
    let mut source = FileSource::of_file(disk.clone(), path);
    let end = walk_records(&mut source, Lsn(0), Lsn(0), keys, &mut |start, _, record| {
        let corrupt = |what: &str| Error::corruption(path, start.0, what);
        let mut reader = Reader::new(record);
        match (reader.u8(), &mut state) {
            (Some(SNAPSHOT), None) => {
                state = Some(State::decode(&mut reader, known, keys, path).map_err(|unread| match unread {
                    Unread::Damaged(what) => corrupt(&what),
                    Unread::Unknown(what) => Error::Incompatible { path: path.to_owned(), what },
                    Unread::Key(error) => error,
                })?);
            }
            (Some(EDIT), Some(state)) => {
                let edit = VersionEdit::decode(&mut reader, keys, path).map_err(|undecoded| match undecoded {
                    Undecoded::Malformed => corrupt("edit malformed"),
                    Undecoded::Key(error) => error,
                })?;
                state.apply(&edit).map_err(|what| corrupt(&what))?;
            }
            _ => return Err(corrupt("record out of place")),
        }
        Ok(())
    })?;
    let state = state.ok_or_else(|| Error::corruption(path, 0, "no snapshot"))?;
    Ok((state, end.cut.0))
}

/// The record of a snapshot that goes to `path`.
fn snapshot(keys: &Keyring, path: &Path, marks: &Marks, version: &Version) -> Result<Vec<u8>> {
    let mut record = vec![SNAPSHOT];
    marks.encode(version.files().map(|(level, file)| (level, &file.meta)), keys, path, &mut record)?;
    Ok(record)
}

/// Writes and syncs manifest `number` with this snapshot, and what will name it. In the space of the spare, if there is one.
fn write_file(disk: &dyn Disk, dir: &Path, number: u64, record: &[u8]) -> Result<Begun> {
    let name = manifest_name(number);
    let (path, spare) = (dir.join(&name), dir.join(SPARE));
    let (file, room) = if disk.exists(&spare)? {
        disk.rename(&spare, &path)?;
        let file = disk.open(&path, Mode::ReadWrite, true)?;
        let room = file.len()? / IO_ALIGN as u64 * IO_ALIGN as u64;
        // Old units may not be taken for new ones, whatever a crash leaves of them.
        let zeros = AlignedBuf::zeroed(ZERO_BYTES);
        let mut at = 0;
        while at < room {
            let n = (room - at).min(ZERO_BYTES as u64);
            file.write_all_at(&zeros[..n as usize], at)?;
            at += n;
        }
        (file, room)
    } else {
        (disk.open(&path, Mode::Create, true)?, 0)
    };
    let mut written = Written { file, position: 0 };
    write_record(&mut written, number, 0, record)?;
    written.file.sync_data()?;
    let snapshot_bytes = written.position;
    write_witness(&mut written, number, snapshot_bytes)?;
    disk.sync_dir(dir)?;

    let temporary = dir.join(TEMPORARY);
    let mode = if disk.exists(&temporary)? { Mode::ReadWrite } else { Mode::Create };
    let current = disk.open(&temporary, mode, false)?;
    let text = format!("{name}\n");
    current.write_all_at(text.as_bytes(), 0)?;
    if current.len()? != text.len() as u64 {
        current.set_len(text.len() as u64)?;
    }
    current.sync_data()?;
    Ok(Begun { written, snapshot_bytes, room })
}

/// Lets `CURRENT` name the file that `write_file` has written.
fn put_in_force(disk: &dyn Disk, dir: &Path) -> Result<()> {
    disk.rename(&dir.join(TEMPORARY), &dir.join("CURRENT"))?;
    disk.sync_dir(dir)
}

/// Sees to it that a record and its witness have their space, so that a full disk refuses an edit before anything is
/// written. What is reserved and not written reads as zeros, which are no units.
fn make_room(inner: &mut Inner, record_bytes: u64, purpose: Purpose) -> Result<()> {
    let units = record_bytes / (UNIT_BYTES_MAX - HEADER_BYTES - IO_ALIGN) as u64 + 2;
    let need = inner.position + record_bytes + units * (HEADER_BYTES + IO_ALIGN) as u64;
    if need + RESERVE_BYTES > inner.room {
        let room = (need + RESERVE_BYTES + ROOM_BYTES).next_multiple_of(IO_ALIGN as u64);
        match inner.file.allocate(room) {
            Ok(()) => inner.room = room,
            Err(_) if purpose == Purpose::Relief && need <= inner.room => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn extend(inner: &mut Inner, record: &[u8]) -> Result<()> {
    let mut written = Written { file: inner.file.clone(), position: inner.position };
    write_record(&mut written, inner.number, inner.durable, record)?;
    written.file.sync_data()?;
    inner.durable = written.position;
    // The edit is in force; a failure from here on stops only those to come.
    if let Err(e) = write_witness(&mut written, inner.number, inner.durable) {
        inner.poison = Some(Arc::new(e));
    }
    inner.position = written.position;
    Ok(())
}

/// Writes a record in as many units as it needs. The epoch of a manifest's units is its number.
fn write_record(written: &mut Written, epoch: u64, durable: u64, record: &[u8]) -> Result<()> {
    let body = Body::Plain(record);
    let (prefix, _) = frame_prefixes(&[], &body);
    let mut rest = [prefix.as_slice(), record].concat();
    let mut first = true;
    while !rest.is_empty() {
        let buf = AlignedBuf::zeroed((rest.len() + HEADER_BYTES).min(UNIT_BYTES_MAX));
        let mut unit = UnitBuf::new(buf, Lsn(written.position), Lsn(u64::MAX));
        if std::mem::take(&mut first) {
            unit.begin_record();
        }
        let n = unit.push(&rest);
        rest.drain(..n);
        write_unit(written, &mut unit, epoch, durable)?;
    }
    Ok(())
}

fn write_witness(written: &mut Written, epoch: u64, durable: u64) -> Result<()> {
    let mut unit = UnitBuf::new(AlignedBuf::zeroed(HEADER_BYTES), Lsn(written.position), Lsn(u64::MAX));
    write_unit(written, &mut unit, epoch, durable)
}

fn write_unit(written: &mut Written, unit: &mut UnitBuf, epoch: u64, durable: u64) -> Result<()> {
    let bytes = unit.seal(epoch, Lsn(durable), 0, None);
    written.file.write_all_at(bytes, written.position)?;
    written.position += bytes.len() as u64;
    Ok(())
}
