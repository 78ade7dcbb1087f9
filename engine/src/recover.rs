//! Opening a store: what the manifest says, and what the log adds to it.
//!
//! ```text
//! manifest   files, newest sequence number in them, where the log is needed from
//! log        committed batches above the flushed sequence number go into memtables, in order and without a hole;
//!            prepared ones without a decision keep their locks and wait for it; of large transactions there are the
//!            names of their files, which stand behind a memtable as they did before
//! orphans    SSTs that neither the manifest nor such a batch names (a crash between writing and recording them, a
//!            large transaction that never came so far) are removed
//! ```
//!
//! Damage within a file of a prepared transaction keeps nobody from opening: it is told, and the transaction can only be
//! rolled back. Until then it locks the indexes of the file, since what it wrote there cannot be known.
//!
//! Before anything is written the keys of all that is encrypted are asked for ([`check_keys`]): if one is missing or wrong, the store
//! stays as it is.
//!
//! The log goes on in a fresh segment; nothing is appended behind a cut (invariant 11).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::limits::KEY_BYTES_MAX;
use crate::base::{Error, FileNo, IndexId, KeyVersion, Lsn, Result, SeqNo, TxnId};
use crate::board::WorkBoard;
use crate::commit::record::Record;
use crate::commit::relocation::PrepareRecord;
use crate::commit::{Committer, Prepared, apply, record};
use crate::crypt::{Keyring, SYSTEM_KEY};
use crate::event::{Event, FlushReason, Pace, Teller};
use crate::install::Installer;
use crate::io::{Clock, Disk};
use crate::iter::VersionIter;
use crate::journal::{Detached, Journal};
use crate::lock::{LockMode, LockOwner, LockTable, Wait};
use crate::manifest::{
    CHECKPOINT, ENCRYPTION, FileEntry, Manifest, Marks, ObsoleteFiles, Stored, Version, VersionEdit, is_later_manifest,
};
use crate::mem::ChunkPool;
use crate::options::Options;
use crate::parts::Core;
use crate::read_point::ReadPoints;
use crate::reencryption::Reencryption;
use crate::renewal::Renewals;
use crate::settings::Settings;
use crate::sst::{BlockCache, ReadHints, SstMeta};
use crate::sst_files::SstFiles;
use crate::state::{Mem, ReadState, Sealed, StateCell, chunk_pool};
use crate::timeline::Timeline;
use crate::tree::Tree;
use crate::wal::format::{recycled_path, segment_number, segment_path};
use crate::wal::{self, Cut, Log, LogOptions, LogPlace, Span, Tail};
use crate::write_buffer::{BatchReader, files_of};

/// Shards of the lock table: enough that two busy threads seldom meet.
const LOCK_SHARDS: usize = 256;

/// Bounds of what the log holds in memory before it is written; between them it is as much as a memtable.
const LOG_BUFFER_MIN: usize = 2 << 20;
const LOG_BUFFER_MAX: usize = 16 << 20;

/// Where the manifest of a store comes from that is being opened.
enum Origin {
    Stored(Stored),
    Created(Manifest),
}

/// Brings the store in `dir` to the state after its last durable commit. See the module.
pub(crate) fn recover(dir: &Path, options: Options) -> Result<Core> {
    let begun_us = options.clock.now_us();
    let events = Teller::new(options.listener.clone());
    let disk = options.disk.clone();
    disk.create_dir_all(dir)?;
    let dir_lock = disk.lock_dir(dir)?;
    let log_dir = dir.join("log");
    disk.create_dir_all(&log_dir)?;
    let obsolete_files = Arc::new(ObsoleteFiles::default());
    let cache = BlockCache::new(options.block_cache_bytes as usize);
    let keys = Arc::new(Keyring::new(options.keys.clone()));
    let (dir_of, keys_of) = (dir.to_owned(), keys.clone());
    let dictionaries = Arc::default();
    let ssts = Arc::new(SstFiles { disk: disk.clone(), dir: dir_of, cache, keys: keys_of, dictionaries });
    let encrypts = options.encrypt_log || options.encrypt_indexes;
    if encrypts {
        keys.require(SYSTEM_KEY, dir)?;
    }
    // A manifest that is there is continued once nothing belies it: a refused opening leaves the damage as it is.
    let (origin, marks, version) = if Manifest::exists(&*disk, dir)? {
        let stored = Manifest::load(&disk, dir, options.features, &keys)?;
        let version = Arc::new(Version::new(stored.state.files.values(), &obsolete_files)?);
        check_named(&ssts, &log_dir, &stored)?;
        for &id in stored.state.marks.encryption.values() {
            keys.require(id, &stored.path)?;
        }
        check_keys(&ssts, stored.state.files.values().map(|(_, meta)| meta))?;
        let marks = stored.state.marks.clone();
        (Origin::Stored(stored), marks, version)
    } else {
        check_is_new(&*disk, dir, &log_dir)?;
        // The store's own name, before anything in it counts.
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        disk.sync_dir(above.unwrap_or(Path::new(".")))?;
        let marks = Marks::new(options.log_segment_bytes);
        let version = Arc::new(Version::new([], &obsolete_files)?);
        let created = Manifest::create(disk.clone(), dir, &keys, marks.clone(), version.clone())?;
        disk.sync_dir(dir)?;
        (Origin::Created(created), marks, version)
    };

    let settings = Arc::new(Settings::new(&options));
    settings.set_encryptions(marks.encryption.clone());
    let seal_bytes = settings.seal_bytes();
    let pool = chunk_pool(seal_bytes);
    let mut replay = Replay {
        log_dir: &log_dir,
        segment_bytes: marks.log_segment_bytes,
        active: Mem::new(marks.log_start, seal_bytes, &pool),
        sealed: Vec::new(),
        seal_bytes,
        pool: &pool,
        obsolete_files: &obsolete_files,
        last: marks.flushed_seq,
        prepared: BTreeMap::new(),
    };
    let (mut commits, mut prepares) = (0, 0);
    let mut reading = Reading::begin(&*disk, &log_dir, &marks, &*options.clock)?;
    let mut visit = |start, end, bytes: &[u8]| {
        reading.look(end, &events);
        replay.record(Span { start, end }, bytes)
    };
    let mut lost = |bytes: &[u8]| match record::decode(bytes) {
        Some(Record::Commit { .. } | Record::Ordered { .. }) => commits += 1,
        Some(Record::Prepare { .. }) => prepares += 1,
        _ => {}
    };
    let place = LogPlace { disk: &disk, dir: &log_dir, segment_bytes: marks.log_segment_bytes, keys: &keys };
    let (segment_bytes, from, durable) = (marks.log_segment_bytes, marks.log_start, marks.log_durable);
    let (tail, cut) = wal::recover(&place, from, durable, &mut visit, &mut lost)?;
    if tail.cut < durable {
        let (path, offset) = wal::blame(&disk, &log_dir, segment_bytes, tail.cut, durable)?;
        let what = format!("the log ends at {}; the manifest states it durable up to {durable}", tail.cut);
        return Err(Error::corruption(&path, offset, what));
    }
    if let Origin::Stored(stored) = &origin {
        check_segments(&*disk, &log_dir, stored, tail)?;
    }
    let spilled = replay.prepared.values().flat_map(|found| files_of(&found.batch).unwrap_or_default());
    let spilled: Vec<SstMeta> = spilled.collect();
    let committed = replay.sealed.iter().flat_map(|sealed| sealed.files.iter().map(|file| &file.meta));
    check_keys(&ssts, committed.chain(&spilled))?;
    let manifest = match origin {
        Origin::Created(created) => created,
        Origin::Stored(stored) => Manifest::resume(disk.clone(), dir, &keys, &stored, version.clone())?,
    };
    if encrypts {
        manifest.require(&ENCRYPTION)?;
    }
    if let Some(cut) = &cut {
        events.tell(|| told(cut, commits, prepares));
    }
    let Replay { active, mut sealed, last, prepared: in_doubt, .. } = replay;
    // Newest first.
    sealed.reverse();
    let mut named: BTreeSet<FileNo> = version.files().map(|(_, file)| file.meta.no).collect();
    for file in sealed.iter().flat_map(|sealed| sealed.files.iter()) {
        check_table(&ssts, &file.meta, "a commit in the log names it")?;
        named.insert(file.meta.no);
    }
    for found in in_doubt.values() {
        for meta in files_of(&found.batch).unwrap_or_default() {
            check_table(&ssts, &meta, "a prepared transaction in the log names it")?;
            named.insert(meta.no);
        }
    }
    let orphans = remove_orphans(&*disk, dir, &named)?;
    let after_named = named.last().map_or(FileNo(0), |last| FileNo(last.0 + 1));

    let locks = LockTable::new(LOCK_SHARDS);
    let mut prepared = BTreeMap::new();
    let mut large: Vec<(Arc<LockOwner>, Bounds)> = Vec::new();
    for (&id, found) in &in_doubt {
        let owner = locks.new_owner();
        let files = files_of(&found.batch).unwrap_or_default();
        if files.is_empty() {
            for (_, key, _) in BatchReader::new(&found.batch) {
                // Every key it wrote: a superset of what it had locked for writing, and free at this moment.
                locks.lock(&owner, key, LockMode::Exclusive, Wait::No)?;
                locks.intend_insert(&owner, key, Wait::No)?;
            }
        }
        for meta in &files {
            let bounds = match bounds(&ssts, meta) {
                Err(error) if !error.lacks_descriptors() => {
                    events.tell(|| Event::PreparedDamaged { xid: found.xid.to_vec(), error: error.clone() });
                    whole_indexes(meta)
                }
                other => other?,
            };
            large.extend(bounds.into_iter().map(|bounds| (owner.clone(), bounds)));
        }
        prepared.insert(found.xid.to_vec(), Detached { id, owner, is_recovered: true });
    }
    // Of a large one, everything between its keys in an index. Last: what others have locked in between stays theirs.
    for (owner, (first, last)) in &large {
        locks.lock_keys_within(owner, first, last);
        locks.intend_insert_within(owner, first, last);
    }

    // The pool keeps what one flush releases: it is wanted again until the next one.
    let log_options = LogOptions {
        segment_bytes: marks.log_segment_bytes,
        epoch: new_epoch(),
        buffer_bytes: (seal_bytes as usize).clamp(LOG_BUFFER_MIN, LOG_BUFFER_MAX),
        pool_files: (seal_bytes / marks.log_segment_bytes.max(1) + 2) as usize,
        keys: options.encrypt_log.then_some(keys),
        ..LogOptions::default()
    };
    // Files from there on hold nothing and are about to go.
    let begin = tail.next_segment_start.0 / marks.log_segment_bytes;
    if marks.log_segments > begin {
        manifest.append_relief(&VersionEdit { log_segments: Some(begin), ..VersionEdit::default() })?;
    }
    let manifest = Arc::new(manifest);
    let announced = manifest.clone();
    let announce = Box::new(move |number| {
        announced.append_relief(&VersionEdit { log_segments: Some(number), ..VersionEdit::default() })?;
        announced.check()
    });
    let log = Arc::new(Log::open(disk, &log_dir, log_options, tail, announce)?);
    let states = {
        let newest = ReadState { active, sealed, version };
        Arc::new(StateCell::new(newest, last, pool))
    };
    let next_file = marks.next_file.max(after_named);
    let timeline = Arc::new(Timeline::new(options.clock.clone()));
    let committer = Committer::new(
        log.clone(),
        states.clone(),
        settings.clone(),
        obsolete_files.clone(),
        timeline.clone(),
        in_doubt,
    );
    let installer = Installer::new(manifest, states.clone(), log.clone(), next_file, marks.dropped, marks.flushed_seq);
    events.tell(|| Event::Opened {
        files: named.len() as u64,
        commits: last.0 - marks.flushed_seq.0,
        prepared: prepared.len() as u64,
        orphans,
        us: options.clock.now_us().saturating_sub(begun_us),
    });
    Ok(Core {
        tree: Tree { ssts, states, read_points: ReadPoints::new(), timeline, installer, obsolete_files },
        journal: Journal::new(log, committer, settings.clone(), prepared),
        locks,
        board: WorkBoard::new(options.compaction_threads.max(1)),
        renewals: Renewals::default(),
        reencryption: Reencryption::default(),
        events,
        write_buffer_bytes: AtomicU64::new(0),
        settings,
        options,
        _dir_lock: dir_lock,
    })
}

/// How far the log is read, told now and then.
struct Reading<'a> {
    clock: &'a dyn Clock,
    pace: Pace,
    from: Lsn,
    /// Where its last file ends.
    until: Lsn,
    /// Not before this position the clock is looked at again.
    next: Lsn,
}

impl<'a> Reading<'a> {
    /// Log between two looks at the clock, in bytes.
    const STEP: u64 = 1 << 20;

    fn begin(disk: &dyn Disk, log_dir: &Path, marks: &Marks, clock: &'a dyn Clock) -> Result<Reading<'a>> {
        let from = marks.log_start;
        let last = disk.list(log_dir)?.iter().filter_map(|name| segment_number(name)).max();
        let end = last.map_or(0, |last| last.saturating_add(1).saturating_mul(marks.log_segment_bytes));
        let until = Lsn(end.max(from.0));
        Ok(Reading { clock, pace: Pace::begin(clock.now_us()), from, until, next: Lsn(from.0 + Self::STEP) })
    }

    /// The log is read up to `end`.
    fn look(&mut self, end: Lsn, events: &Teller) {
        if end < self.next {
            return;
        }
        self.next = Lsn(end.0 + Self::STEP);
        let (done, of) = (end.0.saturating_sub(self.from.0), self.until.0 - self.from.0);
        if let Some(reached) = self.pace.look(self.clock.now_us(), done, of) {
            events.tell(|| Event::Recovering(reached));
        }
    }
}

/// Rebuilds memtables of the size that the store is opened with: the log may come from a time of a larger budget, and
/// what is above it must be flushed, not kept until the next write.
struct Replay<'a> {
    log_dir: &'a Path,
    segment_bytes: u64,
    active: Arc<Mem>,
    /// Oldest first.
    sealed: Vec<Sealed>,
    seal_bytes: u64,
    pool: &'a Arc<ChunkPool>,
    obsolete_files: &'a Arc<ObsoleteFiles>,
    last: SeqNo,
    prepared: BTreeMap<TxnId, Prepared>,
}

/// What is told of a cut, with so many commits and prepared transactions in it.
fn told(cut: &Cut, commits: u64, prepares: u64) -> Event {
    let Cut { ref path, offset, fault, bytes, intact_units, records, begun_bytes } = *cut;
    Event::LogCut { path: path.clone(), offset, fault, bytes, begun_bytes, intact_units, records, commits, prepares }
}

impl Replay<'_> {
    fn damaged(&self, at: Lsn, what: impl Into<String>) -> Error {
        let path = segment_path(self.log_dir, at.0 / self.segment_bytes);
        Error::corruption(&path, at.0 % self.segment_bytes, what)
    }

    fn record(&mut self, span: Span, bytes: &[u8]) -> Result<()> {
        let start = span.start;
        let Some(record) = record::decode(bytes) else {
            return Err(self.damaged(start, "log record of unknown form"));
        };
        match record {
            Record::Commit { seq, batch } => self.commit(start, start, seq, batch),
            Record::Prepare { xid, batch } => self.prepare(TxnId(start.0), xid, batch, span),
            Record::Carried { id, xid, batch } => self.prepare(id, xid, batch, span),
            Record::Ordered { id, seq } => match self.prepared.remove(&id) {
                Some(prepared) => self.commit(start, prepared.record.at, seq, &prepared.batch),
                None if seq <= self.last => Ok(()),
                None => {
                    Err(self.damaged(start, format!("commit of transaction {id}, whose prepare record is missing")))
                }
            },
            Record::Undone { id } => {
                self.prepared.remove(&id);
                Ok(())
            }
        }
    }

    fn prepare(&mut self, id: TxnId, xid: &[u8], batch: &[u8], span: Span) -> Result<()> {
        if files_of(batch).is_none() {
            return Err(self.damaged(span.start, "prepared batch is malformed"));
        }
        self.prepared.insert(id, Prepared { xid: xid.into(), batch: batch.into(), record: PrepareRecord::of(span) });
        Ok(())
    }

    /// A commit whose record is at `start`, and whose batch is in the log at `needs`.
    fn commit(&mut self, start: Lsn, needs: Lsn, seq: SeqNo, batch: &[u8]) -> Result<()> {
        if seq <= self.last {
            return Ok(());
        }
        if seq != self.last.next() {
            let what = format!("commit {seq} follows commit {}: a record is missing", self.last);
            return Err(self.damaged(start, what));
        }
        if self.active.table.bytes() as u64 >= self.seal_bytes {
            self.seal(start, Vec::new());
        }
        self.active.needs_log_from(needs);
        let malformed = |replay: &Replay<'_>| replay.damaged(start, format!("batch of commit {seq} is malformed"));
        let files = files_of(batch).ok_or_else(|| malformed(self))?;
        if files.is_empty() && !apply(&self.active, batch, seq) {
            return Err(malformed(self));
        }
        self.last = seq;
        if !files.is_empty() {
            self.seal(start, files);
        }
        Ok(())
    }

    /// Begins a new memtable, for what is in the log from `next` on. `files` are those of the last commit.
    fn seal(&mut self, next: Lsn, files: Vec<SstMeta>) {
        let entry = |meta: SstMeta| Arc::new(FileEntry::new(meta.stamp(self.last), self.obsolete_files.clone()));
        let files = files.into_iter().map(entry).collect();
        self.active.seal(self.last);
        let mem = std::mem::replace(&mut self.active, Mem::new(next, self.seal_bytes, self.pool));
        self.sealed.push(Sealed { mem, files, reason: FlushReason::Recovery });
    }
}

/// A directory without `CURRENT` holds no store, or one whose creation a crash cut short. With SSTs, log segments or a later
/// manifest in it, it is a store that lost the file: making a new one would delete what is left.
fn check_is_new(disk: &dyn Disk, dir: &Path, log_dir: &Path) -> Result<()> {
    let unfinished = dir.join(CHECKPOINT);
    if disk.exists(&unfinished)? {
        return Err(Error::corruption(&unfinished, 0, "the checkpoint in this directory was not finished"));
    }
    let is_of_store = |name: &PathBuf| name.extension().is_some_and(|e| e == "sst") || is_later_manifest(name);
    let table = disk.list(dir)?.into_iter().find(is_of_store);
    let segment = disk.list(log_dir)?.into_iter().find(|name| segment_number(name).is_some());
    match table.or(segment) {
        Some(name) => {
            let what = format!("file missing, though the directory holds a store ({})", name.display());
            Err(Error::corruption(&dir.join("CURRENT"), 0, what))
        }
        None => Ok(()),
    }
}

/// What the manifest names must be there. Where it is not, either the file is lost or the manifest's last edits are, one of which
/// removed the file. SSTs that are newer than all that the manifest knows of tell the second: each edit that brings
/// files in says which numbers are used.
fn check_named(ssts: &SstFiles, log_dir: &Path, stored: &Stored) -> Result<()> {
    let (disk, dir) = (&ssts.disk, &ssts.dir);
    let (files, marks) = (&stored.state.files, &stored.state.marks);
    let tables = files.values().try_for_each(|(level, meta)| {
        let why = format!("{}, which ends at {}, names it at level {level}", stored.path.display(), stored.end);
        check_table(ssts, meta, &why)
    });
    let first = marks.log_start.0 / marks.log_segment_bytes;
    let log_begins = disk.list(log_dir)?.iter().filter_map(|name| segment_number(name)).min();
    let log_begins_later = log_begins.is_some_and(|begins| begins > first);
    if tables.is_ok() && !log_begins_later {
        return Ok(());
    }
    let newest = disk.list(dir)?.iter().filter_map(|name| sst_number(name)).max();
    match (newest.filter(|&newest| newest >= marks.next_file), tables) {
        (Some(newest), tables) => {
            let gone = || format!("{} is missing", segment_path(log_dir, first).display());
            let what = tables.err().map_or_else(gone, |e| e.to_string());
            let what =
                format!("edits are missing from here on, as table file {newest} is newer than all it knows of: {what}");
            Err(Error::corruption(&stored.path, stored.end, what))
        }
        (None, tables) => tables,
    }
}

/// The number of an SST.
fn sst_number(name: &Path) -> Option<FileNo> {
    let digits = name.to_str()?.strip_suffix(".sst")?;
    digits.parse().ok().map(FileNo)
}

/// Every SST that somebody names must be there at its full length. Contents are checked when they are read.
fn check_table(ssts: &SstFiles, meta: &SstMeta, why: &str) -> Result<()> {
    let path = ssts.path(meta.no);
    let expected = meta.file_bytes;
    match ssts.disk.size(&path)? {
        None => Err(Error::corruption(&path, 0, format!("file missing; {why} with {expected} bytes"))),
        Some(found) if found != expected => {
            let what = format!("file has {found} bytes; {why} with {expected}");
            Err(Error::corruption(&path, found.min(expected), what))
        }
        Some(_) => Ok(()),
    }
}

/// Opens a file of each master key that files were encrypted with. All errors but that of a key are left to who needs the file.
fn check_keys<'a>(ssts: &SstFiles, files: impl Iterator<Item = &'a SstMeta>) -> Result<()> {
    let by_key: BTreeMap<KeyVersion, FileNo> = files.filter_map(|meta| Some((meta.key?, meta.no))).collect();
    let opened = by_key.values().map(|&no| ssts.open_private(no).map(drop));
    opened.filter(|opened| matches!(opened, Err(Error::Key { .. }))).collect()
}

/// First and last key.
type Bounds = (Vec<u8>, Vec<u8>);

/// The bounds of each index of a file. Of a shared one they are read.
fn bounds(ssts: &SstFiles, meta: &SstMeta) -> Result<Vec<Bounds>> {
    if !meta.is_shared() {
        return Ok(vec![(meta.smallest.clone(), meta.largest.clone())]);
    }
    let mut iter = ssts.open_private(meta.no)?.iter(ReadHints::default());
    let mut bounds = Vec::with_capacity(meta.shares.len());
    for share in meta.shares.iter() {
        iter.seek_ge(&share.index.prefix())?;
        let first = if iter.valid() { iter.key().to_vec() } else { meta.largest.clone() };
        match share.index.0.checked_add(1) {
            Some(next) => iter.seek_lt(&IndexId(next).prefix())?,
            None => iter.seek_last()?,
        }
        let last = if iter.valid() { iter.key().to_vec() } else { meta.smallest.clone() };
        if IndexId::of(&first) != share.index || IndexId::of(&last) != share.index {
            let what =
                format!("no key of index {}, of which a prepared transaction in the log has some there", share.index);
            return Err(Error::corruption(&ssts.path(meta.no), 0, what));
        }
        bounds.push((first, last));
    }
    Ok(bounds)
}

/// All keys that an index may have, for each index of a file: they hold those of the file, which cannot be read.
fn whole_indexes(meta: &SstMeta) -> Vec<Bounds> {
    let last = |id: IndexId| [&id.prefix()[..], &[0xff; KEY_BYTES_MAX]].concat();
    meta.shares.iter().map(|share| (share.index.prefix().to_vec(), last(share.index))).collect()
}

/// Reads the files of a prepared transaction from end to end. Its commit would promise what is in them, and after a crash it
/// is the last moment at which it can still be refused.
///
/// Errors: what cannot be read, with its file.
pub(crate) fn check_spilled(core: &Core, id: TxnId) -> Result<()> {
    for meta in files_of(&core.journal.committer.prepared_batch(id)?).unwrap_or_default() {
        let ssts = &core.tree.ssts;
        let sst = ssts.open_private(meta.no);
        let sound = sst.and_then(|sst| sst.verify());
        sound.map_err(|error| match error {
            Error::Corruption { path, offset, what } => {
                let what = format!("{what}; the transaction that wrote it stays prepared, and can be rolled back");
                Error::Corruption { path, offset, what }
            }
            other => other,
        })?;
    }
    Ok(())
}

/// A log that seems to end where files of it are missing has lost them, and what was acknowledged with them. A clean close gives
/// the files behind the end to the pool, but notes it first: if the note is missing, the manifest has lost it.
fn check_segments(disk: &dyn Disk, log_dir: &Path, stored: &Stored, tail: Tail) -> Result<()> {
    let marks = &stored.state.marks;
    for number in tail.cut.max(marks.log_start).0 / marks.log_segment_bytes..marks.log_segments {
        let path = segment_path(log_dir, number);
        if disk.exists(&path)? {
            continue;
        }
        let had = format!("the log ends at {} and had segments below {}", tail.cut, marks.log_segments);
        let pooled = recycled_path(log_dir, number);
        return Err(match disk.exists(&pooled)? {
            true => {
                let what =
                    format!("edits are missing from here on, as {} was given up after them: {had}", pooled.display());
                Error::corruption(&stored.path, stored.end, what)
            }
            false => Error::corruption(&path, 0, format!("file missing; {had}")),
        });
    }
    Ok(())
}

/// Removes the SSTs that nobody names; how many there were.
fn remove_orphans(disk: &dyn Disk, dir: &Path, named: &BTreeSet<FileNo>) -> Result<u64> {
    let mut removed = 0;
    for name in disk.list(dir)? {
        if name.extension().is_some_and(|e| e == "sst") {
            let number = name.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            if number.is_none_or(|number| !named.contains(&FileNo(number))) {
                disk.remove(&dir.join(name))?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// A number that no earlier opening of any store had.
fn new_epoch() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
