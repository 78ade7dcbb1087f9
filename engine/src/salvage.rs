//! What can still be read of a store, whatever is damaged in it.
//!
//! Opening a store refuses what is damaged; this takes all that is intact, and names what is not. It reads, and writes nothing.
//!
//! ```text
//! manifest   says which files there are. Damaged, all that lie in the directory are taken but for those known to have gone
//! log        the newest version of each key in it, over its holes; undecided transactions are told, and not applied
//! files      a cursor over what is intact of each, opened when the walk comes to its first key
//! walk       all of them merged: of each key the newest version that can be read, if that is a value
//! ```
//!
//! The newest version may be what was lost. So a row is *doubtful* if its key lies within the keys of something lost that could have
//! had a newer version, and who gets the row is told so. Of a hole in the log nobody knows the keys.
//!
//! Invariant: a row that no damage touches is delivered once, with its newest value. Whatever cannot be read is in `losses`.
//!
//! Rejected: an index by index read through the version, as readers do it. One damaged block would end each of them, and levels mean
//! nothing once a manifest is lost: sequence numbers alone say what is newer.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, FileNo, IndexId, Kind, Lsn, Result, SeqNo, TxnId};
use crate::commit::record::{self, Record};
use crate::crypt::{KeyProvider, Keyring};
use crate::io::Disk;
use crate::manifest::{self, Feature, Findings, Marks};
use crate::sst::{LostRange, SstMeta, Survey, SurveyCursor};
use crate::wal;
use crate::write_buffer::{BatchReader, files_of};

/// Something that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// How much, if that is known.
    pub bytes: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// No key of it is below the first nor above the second; `None` if nothing is known, or nothing of the data is lost.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Versions of rows in it; 0 if what is lost is no data.
    pub versions: Option<u64>,
    /// None of them is newer.
    pub newest: SeqNo,
}

/// A transaction that was prepared and not decided. Nothing of it is delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undecided {
    /// Its id.
    pub xid: Vec<u8>,
    /// The keys that it wrote; of a large one its files.
    pub keys: Vec<Vec<u8>>,
    /// The files of a large one.
    pub files: Vec<PathBuf>,
}

/// A row.
pub struct Row<'a> {
    /// Its key, which begins with its index.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The number of the version.
    pub seq: SeqNo,
    /// A newer version, or a deletion, may be lost.
    pub doubtful: bool,
}

/// A file that is to be read.
struct Source {
    no: FileNo,
    path: PathBuf,
    /// What the manifest or the log says of it.
    meta: Option<SstMeta>,
    stamp: Option<SeqNo>,
}

/// A store that is read as far as it can be.
pub struct Salvage {
    disk: Arc<dyn Disk>,
    keys: Arc<Keyring>,
    sources: Vec<Source>,
    log: BTreeMap<Vec<u8>, (SeqNo, Option<Vec<u8>>)>,
    /// Indexes that were dropped: their keys are void.
    pub dropped: BTreeSet<IndexId>,
    /// What is lost, as far as it was met.
    pub losses: Vec<Loss>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// Transactions that were prepared and not decided.
    pub undecided: Vec<Undecided>,
    told: BTreeSet<(PathBuf, u64, String)>,
}

impl Salvage {
    /// Looks at the store in `dir`. `known` are the features of the layer above, `keys` has the keys of what is encrypted.
    ///
    /// Errors: `Incompatible`; `Key`; `Io` if the directory cannot be listed.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        known: &[Feature],
        keys: Option<Arc<dyn KeyProvider>>,
    ) -> Result<Salvage> {
        let mut salvage = Salvage {
            disk: disk.clone(),
            keys: Arc::new(Keyring::new(keys)),
            sources: Vec::new(),
            log: BTreeMap::new(),
            dropped: BTreeSet::new(),
            losses: Vec::new(),
            notes: Vec::new(),
            undecided: Vec::new(),
            told: BTreeSet::new(),
        };
        let there = ssts(&*disk, dir)?;
        let marks = match manifest::survey(&disk, dir, known, &salvage.keys)? {
            Findings::Whole(stored, error) => {
                if let Some(error) = &error {
                    salvage.lose_part(error);
                }
                for (no, (_, meta)) in &stored.state.files {
                    salvage.add(dir, *no, Some(meta.clone()));
                }
                Some(stored.state.marks)
            }
            Findings::Parts { error, parts } => {
                salvage.lose_part(&error);
                for &no in &there {
                    let meta = parts.files.get(&no);
                    let has_gone = parts.removed.contains(&no)
                        || meta.is_none() && parts.marks.as_ref().is_some_and(|marks| no < marks.next_file);
                    match has_gone {
                        true => salvage.notes.push(format!("{} is left out: it had gone", name(no))),
                        false => salvage.add(dir, no, meta.cloned()),
                    }
                }
                let what = "without the manifest: rows that were deleted may come back, and so may rows of a large transaction \
                            that never committed, if files of either were still there";
                salvage.notes.push(what.into());
                parts.marks.map(|marks| Marks { log_start: Lsn(0), flushed_seq: SeqNo::ZERO, ..marks })
            }
        };
        let marks = match marks {
            Some(marks) => Some(marks),
            None => wal::segment_size(&disk, &dir.join("log"))?.map(Marks::new),
        };
        if let Some(marks) = marks {
            salvage.dropped.clone_from(&marks.dropped);
            salvage.read_log(dir, &marks)?;
        }
        let undecided: BTreeSet<PathBuf> = salvage.undecided.iter().flat_map(|of| of.files.clone()).collect();
        salvage.sources.retain(|source| !undecided.contains(&source.path));
        for source in salvage.sources.iter_mut().filter(|source| source.meta.is_none()) {
            source.meta = Survey::describe(&disk, &source.path, source.no, &salvage.keys);
        }
        let missing: Vec<usize> =
            (0..salvage.sources.len()).filter(|&i| !there.contains(&salvage.sources[i].no)).collect();
        for i in missing.into_iter().rev() {
            let Source { path, meta, .. } = salvage.sources.remove(i);
            let what = "file missing".to_owned();
            salvage.losses.push(Loss {
                path,
                offset: 0,
                bytes: meta.as_ref().map(|meta| meta.file_bytes),
                what,
                keys: meta.as_ref().map(|meta| (meta.smallest.clone(), meta.largest.clone())),
                versions: meta.as_ref().map(|meta| meta.entries),
                newest: meta.as_ref().map_or(SeqNo::MAX, |meta| meta.max_seq),
            });
        }
        Ok(salvage)
    }

    /// The table files that it reads.
    pub fn files(&self) -> Vec<PathBuf> {
        self.sources.iter().map(|source| source.path.clone()).collect()
    }

    fn add(&mut self, dir: &Path, no: FileNo, meta: Option<SstMeta>) {
        let stamp = meta.as_ref().filter(|meta| meta.stamped).map(|meta| meta.max_seq);
        self.sources.push(Source { no, path: dir.join(name(no)), meta, stamp });
    }

    /// Notes that something is damaged which has no rows.
    fn lose_part(&mut self, error: &Error) {
        let (path, offset, what) = match error {
            Error::Corruption { path, offset, what } => (path.clone(), *offset, what.clone()),
            Error::Io { path, .. } => (path.clone(), 0, error.to_string()),
            other => (PathBuf::new(), 0, other.to_string()),
        };
        self.losses.push(Loss { path, offset, bytes: None, what, keys: None, versions: Some(0), newest: SeqNo::ZERO });
    }

    /// Takes what the log adds to the files.
    fn read_log(&mut self, dir: &Path, marks: &Marks) -> Result<()> {
        let log_dir = dir.join("log");
        let disk = self.disk.clone();
        if !disk.exists(&log_dir)? {
            self.lose_part(&Error::corruption(&log_dir, 0, "the log's directory is missing"));
            return Ok(());
        }
        let first = disk.list(&log_dir)?.iter().filter_map(|name| wal::format::segment_number(name)).min();
        let from = match first {
            Some(first) if first * marks.log_segment_bytes > marks.log_start.0 => {
                let begin = Lsn(first * marks.log_segment_bytes);
                if marks.log_start > Lsn(0) || begin < marks.log_durable {
                    let path = wal::format::segment_path(&log_dir, marks.log_start.0 / marks.log_segment_bytes);
                    self.lose_log(path, 0, marks.log_start, begin, "file missing".into(), 0);
                }
                begin
            }
            _ => marks.log_start,
        };
        let segment_bytes = marks.log_segment_bytes;
        let keys = self.keys.clone();
        let place = wal::LogPlace { disk: &disk, dir: &log_dir, segment_bytes, keys: &keys };
        let (last, prepared) = (marks.flushed_seq, BTreeMap::new());
        let mut replay = Replay { salvage: self, dir, segment_bytes, last, prepared };
        let known_from = marks.flushed_seq > SeqNo::ZERO || from == Lsn(0);
        if !known_from {
            replay.last = SeqNo::ZERO;
        }
        let mut is_first = !known_from;
        let (end, is_cut) = wal::survey(&place, from, marks.log_durable, &mut |found| match found {
            Ok((at, bytes)) => replay.record(at, bytes, std::mem::take(&mut is_first)),
            Err(hole) => replay.hole(hole),
        })?;
        let prepared = std::mem::take(&mut replay.prepared);
        if is_cut {
            let what = "the log ends torn at";
            self.notes.push(format!(
                "{what} {end}: as far as can be told nobody was promised what lies behind, and it is left out"
            ));
        }
        for (xid, batch) in prepared.into_values() {
            let files = files_of(&batch).unwrap_or_default();
            let files = files.iter().map(|meta| dir.join(name(meta.no))).collect();
            let keys = BatchReader::new(&batch).map(|(_, key, _)| key.to_vec()).collect();
            self.undecided.push(Undecided { xid, keys, files });
        }
        let segments = end.0.max(marks.log_start.0) / marks.log_segment_bytes..marks.log_segments;
        for number in segments {
            let path = wal::format::segment_path(&log_dir, number);
            if !disk.exists(&path)? && !disk.exists(&wal::format::recycled_path(&log_dir, number))? {
                let at = Lsn(number * marks.log_segment_bytes);
                self.lose_log(path, 0, at, Lsn(at.0 + marks.log_segment_bytes), "file missing".into(), 0);
            }
        }
        Ok(())
    }

    fn lose_log(&mut self, path: PathBuf, offset: u64, from: Lsn, to: Lsn, what: String, commits: u64) {
        let versions = None;
        let what = match commits {
            0 => format!("{what}; what was committed in the log from {from} to {to} is lost"),
            _ => format!("{what}; commits lost before {to} in the log: {commits}"),
        };
        let (bytes, keys, newest) = (Some(to.0.saturating_sub(from.0)), None, SeqNo::MAX);
        self.losses.push(Loss { path, offset, bytes, what, keys, versions, newest });
    }

    /// Delivers the rows with keys from `from` on and below `to`, in order. What is found to be lost on the way is added to `losses`.
    pub fn walk<E>(
        &mut self,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(Row<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut ahead: Vec<usize> = (0..self.sources.len()).collect();
        let smallest = |source: &Source| source.meta.as_ref().map_or(Vec::new(), |meta| meta.smallest.clone());
        ahead.retain(|&i| {
            let meta = self.sources[i].meta.as_ref();
            meta.is_none_or(|meta| meta.largest.as_slice() >= from && meta.smallest.as_slice() < to)
        });
        ahead.sort_by_key(|&i| std::cmp::Reverse(smallest(&self.sources[i])));
        let log = std::mem::take(&mut self.log);
        let mut in_log = log.range(from.to_vec()..).take_while(|(key, _)| key.as_slice() < to).peekable();
        let mut open: BinaryHeap<Head> = BinaryHeap::new();
        let mut cursors: Vec<Option<SurveyCursor>> = Vec::new();
        let mut active: Vec<(Vec<u8>, Vec<u8>, SeqNo)> =
            self.losses.iter().filter_map(|loss| Some((&loss.keys.as_ref()?.0, loss))).map(ranged).collect();
        let mut last_key: Option<Vec<u8>> = None;
        let done = loop {
            let next_open = open.peek().map(|head| head.key.as_slice());
            let next_log = in_log.peek().map(|(key, _)| key.as_slice());
            let next = match (next_open, next_log) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            // Files that may have a key that is not above come in first.
            if let Some(&i) = ahead.last() {
                let begins = smallest(&self.sources[i]);
                if next.is_none_or(|next| begins.as_slice() <= next) {
                    ahead.pop();
                    if let Some(mut cursor) = self.cursor(i, &mut active) {
                        cursor.seek(from);
                        self.take_lost(i, &mut cursor, &mut active);
                        cursors.push(None);
                        let place = cursors.len() - 1;
                        push_at(&mut open, &mut cursors, place, i, cursor, to);
                    }
                    continue;
                }
            }
            let Some(next) = next else { break Ok(()) };
            let from_log = next_log == Some(next) && {
                let (_, (seq, _)) = in_log.peek().expect("it was just seen");
                open.peek().is_none_or(|head| head.key.as_slice() != next || *seq >= head.seq)
            };
            let next = next.to_vec();
            let is_new = last_key.as_deref() != Some(next.as_slice());
            if from_log {
                let (key, (seq, value)) = in_log.next().expect("it was just seen");
                if is_new && let Some(value) = value {
                    let doubtful = is_doubtful(&active, key, *seq);
                    if let Err(error) = each(Row { key, value, seq: *seq, doubtful }) {
                        break Err(error);
                    }
                }
            } else {
                let head = open.pop().expect("it was just seen");
                let mut cursor = cursors[head.cursor].take().expect("a cursor stands where its head is");
                if is_new && cursor.kind() == Kind::Put {
                    let doubtful = is_doubtful(&active, &head.key, head.seq);
                    let row = Row { key: &head.key, value: cursor.value(), seq: head.seq, doubtful };
                    if let Err(error) = each(row) {
                        break Err(error);
                    }
                }
                cursor.next();
                self.take_lost(head.source, &mut cursor, &mut active);
                push_at(&mut open, &mut cursors, head.cursor, head.source, cursor, to);
            }
            if is_new {
                active.retain(|(_, upper, _)| upper.as_slice() >= next.as_slice());
                last_key = Some(next);
            }
        };
        self.log = log;
        done
    }

    /// The cursor over a file; `None` if nothing of it can be read.
    fn cursor(&mut self, i: usize, active: &mut Vec<(Vec<u8>, Vec<u8>, SeqNo)>) -> Option<SurveyCursor> {
        let Source { no, path, meta, stamp } = &self.sources[i];
        match Survey::of(&self.disk, path, *no, meta.as_ref(), &self.keys, false) {
            Ok(survey) => {
                let (path, stamp, meta) = (path.clone(), *stamp, meta.clone());
                for part in survey.damage.clone() {
                    if self.told.insert((path.clone(), part.offset, part.what.clone())) {
                        let (offset, bytes, what) = (part.offset, Some(part.bytes), part.what);
                        let (keys, versions, newest) = (None, part.versions, SeqNo::ZERO);
                        self.losses.push(Loss { path: path.clone(), offset, bytes, what, keys, versions, newest });
                    }
                }
                Some(Arc::new(survey).cursor(meta.as_ref(), stamp))
            }
            Err(error) => {
                let keys = meta.as_ref().map(|meta| (meta.smallest.clone(), meta.largest.clone()));
                let newest = meta.as_ref().map_or(SeqNo::MAX, |meta| meta.max_seq);
                let versions = meta.as_ref().map(|meta| meta.entries);
                let (path, what) = (path.clone(), error.to_string());
                if self.told.insert((path.clone(), 0, what.clone())) {
                    let loss = Loss { path, offset: 0, bytes: None, what, keys, versions, newest };
                    active.extend(loss.keys.as_ref().map(|keys| ranged((&keys.0, &loss))));
                    self.losses.push(loss);
                }
                None
            }
        }
    }

    fn take_lost(&mut self, i: usize, cursor: &mut SurveyCursor, active: &mut Vec<(Vec<u8>, Vec<u8>, SeqNo)>) {
        for LostRange { part, lower, upper } in cursor.take_lost() {
            let Source { path, meta, stamp, .. } = &self.sources[i];
            let newest = stamp.or(meta.as_ref().map(|meta| meta.max_seq)).or(cursor.newest()).unwrap_or(SeqNo::MAX);
            let upper = upper.or_else(|| index_end(&lower));
            let keys = upper.filter(|_| part.versions != Some(0)).map(|upper| (lower, upper));
            let (path, offset, bytes, what) = (path.clone(), part.offset, Some(part.bytes), part.what);
            let loss = Loss { path, offset, bytes, what, keys, versions: part.versions, newest };
            active.extend(loss.keys.as_ref().map(|keys| ranged((&keys.0, &loss))));
            if self.told.insert((loss.path.clone(), offset, loss.what.clone())) {
                self.losses.push(loss);
            }
        }
    }
}

fn ranged((lower, loss): (&Vec<u8>, &Loss)) -> (Vec<u8>, Vec<u8>, SeqNo) {
    (lower.clone(), loss.keys.as_ref().map_or(Vec::new(), |keys| keys.1.clone()), loss.newest)
}

fn is_doubtful(active: &[(Vec<u8>, Vec<u8>, SeqNo)], key: &[u8], seq: SeqNo) -> bool {
    active.iter().any(|(lower, upper, newest)| lower.as_slice() <= key && key <= upper.as_slice() && *newest > seq)
}

/// The greatest key that the index of `key` may have.
fn index_end(key: &[u8]) -> Option<Vec<u8>> {
    let id = key.first_chunk::<{ IndexId::LEN }>()?;
    Some([&id[..], &[0xff; crate::base::limits::KEY_BYTES_MAX]].concat())
}

/// A cursor by where it stands: the smallest key first, of one key the newest version.
struct Head {
    key: Vec<u8>,
    seq: SeqNo,
    /// Which source it reads.
    source: usize,
    cursor: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        other.key.cmp(&self.key).then(self.seq.cmp(&other.seq)).then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

fn push_at(
    open: &mut BinaryHeap<Head>,
    cursors: &mut [Option<SurveyCursor>],
    place: usize,
    source: usize,
    cursor: SurveyCursor,
    to: &[u8],
) {
    if cursor.valid() && cursor.key() < to {
        open.push(Head { key: cursor.key().to_vec(), seq: cursor.seq(), source, cursor: place });
        cursors[place] = Some(cursor);
    }
}

/// Reads the log's records as recovery does, but over holes.
struct Replay<'a> {
    salvage: &'a mut Salvage,
    dir: &'a Path,
    segment_bytes: u64,
    last: SeqNo,
    prepared: BTreeMap<TxnId, (Vec<u8>, Vec<u8>)>,
}

impl Replay<'_> {
    fn hole(&mut self, hole: wal::Hole) {
        self.salvage.lose_log(hole.path, hole.offset, hole.from, hole.to, hole.what, 0);
    }

    fn lose(&mut self, at: Lsn, what: String, commits: u64) {
        let path = wal::format::segment_path(&self.dir.join("log"), at.0 / self.segment_bytes);
        self.salvage.lose_log(path, at.0 % self.segment_bytes, at, at, what, commits);
    }

    /// `is_first`: nothing is known of what was before.
    fn record(&mut self, at: Lsn, bytes: &[u8], is_first: bool) {
        match record::decode(bytes) {
            Some(Record::Commit { seq, batch }) => self.commit(at, seq, Some(batch), is_first),
            Some(Record::Prepare { xid, batch }) => {
                self.prepared.insert(TxnId(at.0), (xid.to_vec(), batch.to_vec()));
            }
            Some(Record::Carried { id, xid, batch }) => {
                self.prepared.insert(id, (xid.to_vec(), batch.to_vec()));
            }
            Some(Record::Ordered { id, seq }) => {
                let prepared = self.prepared.remove(&id);
                self.commit(at, seq, prepared.as_ref().map(|(_, batch)| batch.as_slice()), is_first);
            }
            Some(Record::Undone { id }) => drop(self.prepared.remove(&id)),
            None => {
                let what = "log record of unknown form".to_owned();
                self.lose(at, what, 0);
            }
        }
    }

    fn commit(&mut self, at: Lsn, seq: SeqNo, batch: Option<&[u8]>, is_first: bool) {
        if seq <= self.last {
            return;
        }
        let missing = seq.0 - self.last.0 - 1;
        if missing > 0 && !is_first {
            let what = format!("commits {} to {} are missing", self.last.0 + 1, seq.0 - 1);
            self.lose(at, what, missing);
        }
        self.last = seq;
        let files = batch.and_then(files_of);
        let (Some(batch), Some(files)) = (batch, files) else {
            let what = format!("the operations of commit {seq} are missing");
            return self.lose(at, what, 1);
        };
        for meta in &files {
            let meta = meta.clone().stamp(seq);
            self.salvage.sources.retain(|source| source.no != meta.no);
            self.salvage.add(self.dir, meta.no, Some(meta));
        }
        if files.is_empty() {
            let mut batch = BatchReader::new(batch);
            for (kind, key, value) in batch.by_ref() {
                let value = (kind == Kind::Put).then(|| value.to_vec());
                self.salvage.log.insert(key.to_vec(), (seq, value));
            }
            if !batch.is_done() {
                let what = format!("the operations of commit {seq} make no sense from some point on");
                self.lose(at, what, 0);
            }
        }
    }
}

/// The name of a file.
fn name(no: FileNo) -> String {
    format!("{:012}.sst", no.0)
}

/// The numbers of the SSTs in `dir`.
fn ssts(disk: &dyn Disk, dir: &Path) -> Result<BTreeSet<FileNo>> {
    let number = |name: PathBuf| name.to_str()?.strip_suffix(".sst")?.parse().ok().map(FileNo);
    Ok(disk.list(dir)?.into_iter().filter_map(number).collect())
}

/// A write of a record of the log, for tools that show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A key gets a value.
    Put(Vec<u8>, Vec<u8>),
    /// A key goes.
    Delete(Vec<u8>),
    /// The writes are in a file.
    File(FileNo),
}

/// What a record of the log is, and its writes.
pub fn operations(bytes: &[u8]) -> (String, Vec<Operation>) {
    let xid = |xid: &[u8]| String::from_utf8_lossy(xid).into_owned();
    let (title, batch) = match record::decode(bytes) {
        Some(Record::Commit { seq, batch }) => (format!("commit {seq}"), batch),
        Some(Record::Prepare { xid: id, batch }) => (format!("prepare {:?}", xid(id)), batch),
        Some(Record::Carried { id, xid: of, batch }) => (format!("relocated {id} {:?}", xid(of)), batch),
        Some(Record::Ordered { id, seq }) => (format!("ordered {id}: commit {seq}"), &[][..]),
        Some(Record::Undone { id }) => (format!("undone {id}"), &[][..]),
        None => ("record of unknown form".to_owned(), &[][..]),
    };
    let files = files_of(batch).unwrap_or_default();
    if !files.is_empty() {
        return (title, files.iter().map(|meta| Operation::File(meta.no)).collect());
    }
    let operation = |(kind, key, value): (Kind, &[u8], &[u8])| match kind {
        Kind::Put => Operation::Put(key.to_vec(), value.to_vec()),
        Kind::Delete => Operation::Delete(key.to_vec()),
    };
    (title, BatchReader::new(batch).map(operation).collect())
}
