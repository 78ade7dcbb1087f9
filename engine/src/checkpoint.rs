//! A checkpoint: a directory that is a store as this one was at one moment. For backups and clones.
//!
//! ```text
//! begin    files that become obsolete and segments of the log are kept from now on; what is in memory is flushed, so that little
//!          of the log is needed; SSTs that there are get a second name in the directory
//! fix      the moment: what the manifest says, and a position in the log. No I/O
//! finish   the log is synced up to the position and copied from where recovery needs it; SSTs that came meanwhile are linked, and
//!          those that only the copied log names, the files of large transactions; at last the manifest and `CURRENT`
//! ```
//!
//! A store after a crash is what its manifest says and what its log has durably. The moment of `fix` is such a crash: nobody changes
//! the manifest while the log is marked, and all that was appended before the mark is in the copy, whole, and nothing else. So
//! the copy is opened by recovery like any store, with the prepared transactions in it, and states in its manifest how far its log
//! reaches: a copy that was cut short is damage, not a torn tail.
//!
//! SSTs never change, so a second name is a copy. Segments of the log are used again in place, so their bytes are copied. Where the
//! file system cannot give a second name, SSTs are copied too.
//!
//! Invariants: the directory is a store only once `CURRENT` is there, after everything else is durable; before that the file
//! `CHECKPOINT`, which is made first, has it refused. What an unfinished checkpoint has made is removed when it drops.
//!
//! Rejected: a temporary directory that is renamed (a second rule beside that of `CURRENT`). A copy that pins the files of one
//! version (the log names files that no version has). A flush at the moment itself (writers would wait for it).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::background::flush_and_wait;
use crate::base::{Error, FileNo, Lsn, Result, SeqNo, TxnId};
use crate::commit::record::{self, Record};
use crate::event::FlushReason;
use crate::io::{AlignedBuf, Disk, Mode};
use crate::manifest::{CHECKPOINT, Manifest, Marks, RemovalHold, Version};
use crate::parts::Core;
use crate::wal::{self, LogPlace, SegmentHold};
use crate::write_buffer::files_of;

/// How the name of a checkpoint begins that lies in the store's own directory, where no file of the store has such a name.
const WITHIN: &str = "checkpoint";
/// Files are copied in pieces of this size.
const COPY_BYTES: usize = 1 << 20;

/// What a checkpoint consists of.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CheckpointSize {
    /// SSTs.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Of these, bytes that had to be copied.
    pub copied_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

/// A checkpoint that is being made; see [`Engine::begin_checkpoint`](crate::Engine::begin_checkpoint). Dropped before it is finished, it
/// leaves nothing. While it lives the store removes no file and releases no segment of its log.
pub struct Checkpoint {
    core: Arc<Core>,
    dir: PathBuf,
    /// SSTs that are in the directory, and their bytes.
    there: BTreeMap<FileNo, u64>,
    copied_bytes: u64,
    fixed: Option<Moment>,
    is_finished: bool,
    _removals: RemovalHold,
    _segments: SegmentHold,
}

/// The moment that a checkpoint shows.
struct Moment {
    marks: Marks,
    version: Arc<Version>,
    /// Where its log ends.
    end: Lsn,
}

impl Checkpoint {
    pub(crate) fn begin(core: &Arc<Core>, dir: &Path, tick: &dyn Fn() -> Result<()>) -> Result<Checkpoint> {
        core.journal.log.check()?;
        let ssts = &core.tree.ssts;
        let disk = &ssts.disk;
        let last = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if dir.starts_with(&ssts.dir) && (dir.parent() != Some(&ssts.dir) || !last.starts_with(WITHIN)) {
            let what = format!("within the store the name is {}/{WITHIN}...", ssts.dir.display());
            return Err(Error::Invalid(format!("checkpoint {}: {what}", dir.display())));
        }
        if disk.exists(dir)? {
            return Err(Error::Invalid(format!("checkpoint {}: exists already", dir.display())));
        }
        let above = above(dir);
        if !disk.exists(above)? {
            return Err(Error::Invalid(format!("checkpoint {}: there is no directory to make it in", dir.display())));
        }
        // The mark ends a page early, which must not be one that somebody was promised.
        drop(core.journal.log.reserve_stay(0).inspect(|_| core.journal.log.pledge_end())?);
        let mut checkpoint = Checkpoint {
            core: core.clone(),
            dir: dir.to_owned(),
            there: BTreeMap::new(),
            copied_bytes: 0,
            fixed: None,
            is_finished: false,
            _removals: core.tree.obsolete_files.hold(),
            _segments: core.journal.log.hold(),
        };
        core.journal.committer.seal(FlushReason::Asked);
        // What cannot be flushed, for want of space, is in the log.
        match flush_and_wait(core, tick) {
            Err(error) if !error.is_disk_full() => return Err(error),
            _ => tick()?,
        }
        disk.create_dir_all(dir)?;
        disk.open(&dir.join(CHECKPOINT), Mode::Create, false)?.sync_data()?;
        disk.create_dir_all(&checkpoint.log_dir())?;
        disk.sync_dir(dir)?;
        disk.sync_dir(above)?;
        let version = core.tree.states.pin().version.clone();
        checkpoint.add_files(version.files().map(|(_, file)| file.meta.no), tick)?;
        Ok(checkpoint)
    }

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Chooses a moment between call and return. No I/O, but a change of the manifest that is under way is waited for: a sync.
    ///
    /// Errors: `Invalid` the second time; `Poisoned`.
    pub fn fix(&mut self) -> Result<()> {
        if self.fixed.is_some() {
            return Err(Error::Invalid("the moment of this checkpoint is fixed".into()));
        }
        let (marks, version, end) = self.core.tree.installer.freeze(|| self.core.journal.log.mark());
        self.fixed = Some(Moment { marks, version, end: end? });
        Ok(())
    }

    /// Completes it; durable when this returns. `note` is what the file `CHECKPOINT` says.
    ///
    /// Errors: `Invalid` if no moment was chosen; `Io`, `Poisoned`, `Corruption` of the log: nothing is left.
    pub fn finish(mut self, note: &[u8], tick: &dyn Fn() -> Result<()>) -> Result<CheckpointSize> {
        let Some(Moment { mut marks, version, end }) = self.fixed.take() else {
            return Err(Error::Invalid("a checkpoint needs a moment".into()));
        };
        let disk = self.core.tree.ssts.disk.clone();
        self.core.journal.log.sync(end)?;
        let log_bytes = self.copy_log(marks.log_start, end, tick)?;
        let mut needed: BTreeSet<FileNo> = version.files().map(|(_, file)| file.meta.no).collect();
        needed.extend(self.named_in_log(&marks, end)?);
        self.add_files(needed.iter().copied(), tick)?;
        let left: Vec<FileNo> = self.there.keys().copied().filter(|no| !needed.contains(no)).collect();
        for no in left {
            disk.remove(&self.path_of(no))?;
            self.there.remove(&no);
        }
        let text = disk.open(&self.dir.join(CHECKPOINT), Mode::ReadWrite, false)?;
        text.write_all_at(note, 0)?;
        text.sync_data()?;
        disk.sync_dir(&self.dir)?;
        marks.log_durable = end;
        marks.log_segments = end.0.div_ceil(marks.log_segment_bytes);
        Manifest::lay_down(&*disk, &self.dir, &self.core.tree.ssts.keys, &marks, &version)?;
        self.is_finished = true;
        Ok(CheckpointSize {
            files: self.there.len() as u64,
            file_bytes: self.there.values().sum(),
            copied_bytes: self.copied_bytes,
            log_bytes,
        })
    }

    fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn path_of(&self, no: FileNo) -> PathBuf {
        let path = self.core.tree.ssts.path(no);
        self.dir.join(path.file_name().unwrap_or_default())
    }

    /// Gives SSTs a second name, or copies them.
    fn add_files(&mut self, files: impl Iterator<Item = FileNo>, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        let disk = self.core.tree.ssts.disk.clone();
        for no in files {
            if self.there.contains_key(&no) {
                continue;
            }
            tick()?;
            let (from, to) = (self.core.tree.ssts.path(no), self.path_of(no));
            let bytes = disk.open(&from, Mode::Read, false)?.len()?;
            match disk.link(&from, &to) {
                Err(error) if error.cannot_link() => {
                    copy(&*disk, &from, &to, bytes, tick)?;
                    self.copied_bytes += bytes;
                }
                linked => linked?,
            }
            self.there.insert(no, bytes);
        }
        Ok(())
    }

    /// Copies the log from the segment of `start` up to `end`; how many bytes.
    fn copy_log(&self, start: Lsn, end: Lsn, tick: &dyn Fn() -> Result<()>) -> Result<u64> {
        let (disk, log, log_dir) = (&self.core.tree.ssts.disk, &self.core.journal.log, self.log_dir());
        let segment_bytes = log.segment(0).1;
        let mut copied = 0;
        for number in start.0 / segment_bytes..end.0.div_ceil(segment_bytes) {
            let from = log.segment(number).0;
            // A segment of an earlier opening may end where its log ended.
            let there = disk.open(&from, Mode::Read, false)?.len()?;
            let bytes = (end.0 - number * segment_bytes).min(segment_bytes).min(there);
            copy(&**disk, &from, &log_dir.join(from.file_name().unwrap_or_default()), bytes, tick)?;
            copied += bytes;
        }
        disk.sync_dir(&log_dir)?;
        Ok(copied)
    }

    /// Reads the copied log as recovery will, and so verifies it: the files of large transactions that are committed in it, and of those
    /// that stay prepared.
    fn named_in_log(&self, marks: &Marks, end: Lsn) -> Result<BTreeSet<FileNo>> {
        let mut prepared: BTreeMap<TxnId, Vec<FileNo>> = BTreeMap::new();
        let mut named = BTreeSet::new();
        let log_dir = self.log_dir();
        let unknown = |at: Lsn| Error::corruption(&log_dir, at.0, "log record of unknown form");
        let files = |at: Lsn, batch: &[u8]| -> Result<Vec<FileNo>> {
            let files = files_of(batch).ok_or_else(|| unknown(at))?;
            Ok(files.into_iter().map(|meta| meta.no).collect())
        };
        let is_new = |seq: SeqNo| seq > marks.flushed_seq;
        let mut visit = |at: Lsn, _: Lsn, bytes: &[u8]| {
            match record::decode(bytes).ok_or_else(|| unknown(at))? {
                Record::Commit { seq, batch } if is_new(seq) => named.extend(files(at, batch)?),
                Record::Commit { .. } => {}
                Record::Prepare { batch, .. } => drop(prepared.insert(TxnId(at.0), files(at, batch)?)),
                Record::Carried { id, batch, .. } => drop(prepared.insert(id, files(at, batch)?)),
                Record::Ordered { id, seq } => {
                    let files = prepared.remove(&id).unwrap_or_default();
                    named.extend(files.into_iter().filter(|_| is_new(seq)));
                }
                Record::Undone { id } => drop(prepared.remove(&id)),
            }
            Ok(())
        };
        let disk = &self.core.tree.ssts.disk;
        let (keys, segment_bytes) = (&self.core.tree.ssts.keys, marks.log_segment_bytes);
        let place = LogPlace { disk, dir: &log_dir, segment_bytes, keys };
        let tail = wal::scan(&place, marks.log_start, &mut visit)?;
        if tail.cut != end {
            let what = format!("the copy of the log ends at {}, and should at {end}", tail.cut);
            return Err(Error::corruption(&log_dir, tail.cut.0, what));
        }
        named.extend(prepared.into_values().flatten());
        Ok(named)
    }

    /// Removes what is in the directory, and it: first what makes it a store, last what says that it is none.
    fn remove(&self) -> Result<()> {
        let disk = &self.core.tree.ssts.disk;
        if !disk.exists(&self.dir)? {
            return Ok(());
        }
        let current = self.dir.join("CURRENT");
        if disk.exists(&current)? {
            disk.remove(&current)?;
            disk.sync_dir(&self.dir)?;
        }
        let log_dir = self.log_dir();
        if disk.exists(&log_dir)? {
            disk.list(&log_dir)?.iter().try_for_each(|name| disk.remove(&log_dir.join(name)))?;
            disk.remove_dir(&log_dir)?;
        }
        let names = disk.list(&self.dir)?;
        let (last, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.as_os_str() == CHECKPOINT);
        others.into_iter().chain(last).try_for_each(|name| disk.remove(&self.dir.join(name)))?;
        disk.remove_dir(&self.dir)?;
        disk.sync_dir(above(&self.dir))
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        self.core.journal.log.redeem_end();
        if !self.is_finished {
            // What cannot be removed is refused as a store, and is the caller's.
            drop(self.remove());
        }
        for dir in [self.log_dir().as_path(), &self.dir, above(&self.dir)] {
            self.core.tree.ssts.disk.release_dir(dir);
        }
    }
}

fn above(dir: &Path) -> &Path {
    dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Copies the first `bytes` bytes of a file, durably but for its name.
fn copy(disk: &dyn Disk, from: &Path, to: &Path, bytes: u64, tick: &dyn Fn() -> Result<()>) -> Result<()> {
    let (from, to) = (disk.open(from, Mode::Read, false)?, disk.open(to, Mode::Create, false)?);
    let mut piece = AlignedBuf::zeroed(COPY_BYTES);
    let mut at = 0;
    while at < bytes {
        tick()?;
        let n = (bytes - at).min(COPY_BYTES as u64);
        from.read_exact_at(&mut piece[..n as usize], at)?;
        to.write_all_at(&piece[..n as usize], at)?;
        at += n;
    }
    to.sync_data()
}
