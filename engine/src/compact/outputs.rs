//! The files that a merge or a flush writes: where one ends and the next begins.
//!
//! # Algorithm
//! A new file begins when the current one has its size, or when it would overlap too much of the level below, but never between
//! two versions of one key. If a boundary of a file in the level below is near the target size, the cut is made there: files
//! that end together are rewritten together later, so less is rewritten in vain.
//!
//! An index of which the merge keeps much has files of its own: jobs on it stay narrow, and it is dropped by the names of
//! its files. Indexes with little share files, so that the number of files, and of syncs, follows from the bytes. Which
//! of the two an index is shows when it ends or has grown above [`OutputPlan::share_below`]; until then its versions are
//! held in memory. Between two small ones a file ends by the rules above, and where they are encrypted under different keys,
//! or only one of them is: a file has one data key, and depends on no key that its rows do not call for.
//!
//! # Invariants
//! All versions of a key are in one file. No output spans two ranges of the job.
//!
//! # Rejected
//! A file for each index (a flush would cost a sync for each table); shared files for all (dropping a table would rewrite them).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::plan::{MetaRun, OutputPlan};
use crate::base::{FileNo, IndexId, Kind, Result, SeqNo};
use crate::crypt::{Keyring, Purpose};
use crate::io::Disk;
use crate::sst::{AskKey, Dictionaries, Prepopulate, SstMeta, SstOptions, SstWriter, Superseded};

/// What makes a new value of an old one: of a key and its value, in the given room. False if the value stays.
pub type Rule = Arc<dyn Fn(&[u8], &[u8], &mut Vec<u8>) -> bool + Send + Sync>;

/// What a merge needs of the store.
#[derive(Clone)]
pub struct MergeEnv<'a> {
    /// Where files are.
    pub disk: Arc<dyn Disk>,
    /// Path of an SST.
    pub path_of: Arc<dyn Fn(FileNo) -> PathBuf + Send + Sync + 'a>,
    /// A number never used before.
    pub next_file: Arc<dyn Fn() -> FileNo + Send + Sync + 'a>,
    /// True for an index whose data is to vanish.
    pub is_dropped: Arc<dyn Fn(IndexId) -> bool + Send + Sync + 'a>,
    /// Format of the outputs of an index, compression included.
    pub sst_options: Arc<dyn Fn(IndexId) -> SstOptions + Send + Sync + 'a>,
    /// Size of the data blocks of a file before which the merge has added so many bytes to the store.
    pub block_bytes: Arc<dyn Fn(u64) -> usize + Send + Sync + 'a>,
    /// What the files of an index are packed by.
    pub dictionaries: Arc<Dictionaries>,
    /// Called before a file with a dictionary is handed over: from then on the store must say that it has such files.
    pub require_dictionaries: Arc<dyn Fn() -> Result<()> + Send + Sync + 'a>,
    /// The keys of files that are to be encrypted.
    pub keys: Arc<Keyring>,
    /// True if it is certain that no version of this key that is older than those in the merge exists elsewhere. Asked
    /// for tombstones, in the order of keys.
    pub excludes: AskKey<'a, bool>,
    /// Asked by [`merge`](super::merge::merge), between two slices; an error cancels it.
    pub tick: Arc<dyn Fn() -> Result<()> + Send + Sync + 'a>,
    /// How values of an index are written anew, if they are.
    pub rule_of: Arc<dyn Fn(IndexId) -> Option<Rule> + Send + Sync + 'a>,
    /// Bytes that the sources of a merge may read ahead.
    pub ahead_bytes: u64,
    /// Bytes of buffers that merges at work may fill; kept by the merges.
    pub buffer_bytes: Arc<AtomicU64>,
    /// Which blocks of the outputs go into the cache.
    pub prepopulate: Prepopulate<'a>,
}

/// What a merge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Versions taken in. Versions of dropped indexes are skipped unseen.
    pub entries_in: u64,
    /// Their bytes (keys and values, uncompressed).
    pub bytes_in: u64,
    /// Versions written.
    pub entries_out: u64,
    /// Bytes of the output files.
    pub bytes_written: u64,
    /// Puts that no reader needed any more.
    pub puts_dropped: u64,
    /// Tombstones that had nothing left to hide.
    pub tombstones_dropped: u64,
}

/// Outcome of a merge.
#[derive(Clone, Debug, Default)]
pub struct MergeResult {
    /// The new files, in key order.
    pub outputs: Vec<SstMeta>,
    /// What was done.
    pub stats: MergeStats,
}

/// Walks along the files that outputs are aligned with.
struct Guides<'a> {
    files: MetaRun<'a>,
    at: usize,
    /// Bytes of the files left behind since the current output began.
    passed_bytes: u64,
}

impl Guides<'_> {
    /// On to `key`; true if the end of a file was passed.
    #[inline]
    fn advance(&mut self, key: &[u8]) -> bool {
        let before = self.at;
        while let Some(file) = self.files.get(self.at) {
            if file.largest.as_slice() >= key {
                break;
            }
            self.passed_bytes += file.file_bytes;
            self.at += 1;
        }
        self.at > before
    }
}

/// Versions of an index that may turn out to be small.
#[derive(Default)]
struct Pending {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    /// Lengths of key and value, number and kind of each version, and by what it is superseded.
    versions: Vec<(u32, u32, SeqNo, Kind, SeqNo)>,
}

/// Makes files of versions. Whether an index shares one is known when it has ended or grown too large for that; until
/// then its versions wait in memory.
pub(super) struct Outputs<'a> {
    plan: OutputPlan<'a>,
    env: MergeEnv<'a>,
    guides: Guides<'a>,
    /// The range of the job that the outputs are in by now.
    range: usize,
    alone: &'a [IndexId],
    writer: Option<SstWriter<'a>>,
    /// The master key of the file that is being written.
    writer_key: Option<u32>,
    /// What the file that is being written has of superseded versions.
    superseded: Superseded,
    /// The index at hand may be small: its versions are pending.
    is_small: bool,
    pending: Pending,
    /// A guide ended where the index at hand began, and what had been passed of guides until then.
    began_at_guide: bool,
    guide_bytes_before: u64,
    created: Vec<FileNo>,
    pub result: MergeResult,
}

impl<'a> Outputs<'a> {
    pub fn new(plan: OutputPlan<'a>, env: MergeEnv<'a>) -> Outputs<'a> {
        Outputs {
            guides: Guides { files: plan.guides.clone(), at: 0, passed_bytes: 0 },
            range: 0,
            alone: plan.alone,
            plan,
            env,
            writer: None,
            writer_key: None,
            superseded: Superseded::default(),
            is_small: false,
            pending: Pending::default(),
            began_at_guide: false,
            guide_bytes_before: 0,
            created: Vec::new(),
            result: MergeResult::default(),
        }
    }

    /// The versions that follow are of this key.
    #[inline]
    pub fn begin_key(&mut self, key: &[u8], new_index: bool) -> Result<()> {
        if new_index {
            return self.begin_index(key);
        }
        let passed = self.guides.advance(key);
        if self.is_small {
            if passed && self.guides.passed_bytes - self.guide_bytes_before > self.plan.max_guide_bytes {
                // Little, but all over a large part of the next level.
                self.grow()?;
            }
        } else if self.is_cut_before(passed, self.guides.passed_bytes) {
            self.finish_file()?;
        }
        Ok(())
    }

    #[cold]
    fn begin_index(&mut self, key: &[u8]) -> Result<()> {
        self.end_index()?;
        self.began_at_guide = self.guides.advance(key);
        let range = self.plan.ranges.partition_point(|(low, _)| low.as_slice() <= key).saturating_sub(1);
        if range > self.range {
            self.range = range;
            self.finish_file()?;
        }
        let index = IndexId::of(key);
        let passed = self.alone.partition_point(|&id| id < index);
        let is_alone = self.alone.get(passed) == Some(&index);
        if passed > 0 || is_alone {
            self.alone = &self.alone[passed..];
            self.finish_file()?;
        }
        self.guide_bytes_before = self.guides.passed_bytes;
        self.is_small = self.plan.share_below > 0 && !is_alone;
        Ok(())
    }

    /// The index at hand has no further versions.
    fn end_index(&mut self) -> Result<()> {
        if !self.is_small {
            return self.finish_file();
        }
        self.is_small = false;
        if !self.pending.versions.is_empty() {
            let guide_bytes = self.guides.passed_bytes;
            let far = self.writer.is_some() && guide_bytes > self.plan.max_guide_bytes;
            let pending_key = self.pending.versions.first().map(|&(len, ..)| &self.pending.bytes[..len as usize]);
            let master = pending_key.and_then(|key| (self.env.sst_options)(IndexId::of(key)).key);
            let of_another_key = self.writer.is_some() && master != self.writer_key;
            if far || of_another_key || self.is_cut_before(self.began_at_guide, self.guide_bytes_before) {
                self.finish_file()?;
                self.guides.passed_bytes = guide_bytes - self.guide_bytes_before;
            }
            self.write_pending()?;
        }
        Ok(())
    }

    /// The index at hand has files of its own.
    #[cold]
    fn grow(&mut self) -> Result<()> {
        self.is_small = false;
        let guide_bytes = self.guides.passed_bytes - self.guide_bytes_before;
        self.finish_file()?;
        self.guides.passed_bytes = guide_bytes;
        self.write_pending()
    }

    fn write_pending(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut rest = pending.bytes.as_slice();
        for (at, &(key_len, value_len, seq, kind, superseded_by)) in pending.versions.iter().enumerate() {
            let (key, after) = rest.split_at(key_len as usize);
            let (value, after) = after.split_at(value_len as usize);
            rest = after;
            if let Some(writer) = self.writer.as_mut().filter(|_| at == 0) {
                writer.begin_index(key, (self.env.sst_options)(IndexId::of(key)).compression)?;
            }
            self.write(key, seq, kind, value, superseded_by)?;
        }
        pending.bytes.clear();
        pending.versions.clear();
        self.pending = pending;
        Ok(())
    }

    #[inline]
    fn is_cut_before(&self, passed_guide: bool, guide_bytes: u64) -> bool {
        let Some(writer) = &self.writer else { return true };
        let bytes = writer.file_bytes_so_far();
        bytes >= self.plan.cut_from
            || passed_guide && (bytes >= self.plan.cut_at_guide_from || guide_bytes > self.plan.max_guide_bytes)
    }

    #[inline]
    pub fn add(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8], superseded_by: SeqNo) -> Result<()> {
        self.result.stats.entries_out += 1;
        if self.is_small {
            let bytes = (key.len() + value.len()) as u64;
            if self.pending.bytes.len() as u64 + bytes < self.plan.share_below {
                self.pending.bytes.extend_from_slice(key);
                self.pending.bytes.extend_from_slice(value);
                self.pending.versions.push((key.len() as u32, value.len() as u32, seq, kind, superseded_by));
                return Ok(());
            }
            self.grow()?;
        }
        self.write(key, seq, kind, value, superseded_by)
    }

    fn write(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8], superseded_by: SeqNo) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let no = (self.env.next_file)();
                let path = (self.env.path_of)(no);
                let added = if self.plan.is_new { self.result.stats.bytes_written } else { 0 };
                let block_bytes = (self.env.block_bytes)(added);
                let options = SstOptions { block_bytes, ..(self.env.sst_options)(IndexId::of(key)) };
                self.writer_key = options.key;
                let data_key = options.key.map(|id| self.env.keys.begin(id, Purpose::Sst, &path)).transpose()?;
                let mut writer = SstWriter::create(&self.env.disk, &path, no, options)?;
                self.created.push(no);
                if let Some(data_key) = data_key {
                    writer = writer.encrypt(data_key);
                }
                let writer = writer.prepopulate(self.env.prepopulate.clone()).share(self.env.dictionaries.clone());
                none.insert(writer)
            }
        };
        if superseded_by > SeqNo::ZERO {
            self.superseded.bytes += (key.len() + value.len()) as u64;
            self.superseded.until = self.superseded.until.max(superseded_by);
        }
        writer.add(key, seq, kind, value)
    }

    /// All versions have been added. The files are the caller's from now on.
    pub fn finish(&mut self) -> Result<MergeResult> {
        self.end_index()?;
        self.finish_file()?;
        self.created.clear();
        Ok(std::mem::take(&mut self.result))
    }

    /// Ends the file that is being written, if there is one.
    fn finish_file(&mut self) -> Result<()> {
        self.guides.passed_bytes = 0;
        if let Some(mut writer) = self.writer.take() {
            if writer.has_dictionary() {
                (self.env.require_dictionaries)()?;
            }
            let superseded = std::mem::take(&mut self.superseded);
            let meta = SstMeta { superseded, ..writer.finish()? };
            self.result.stats.bytes_written += meta.file_bytes;
            self.result.outputs.push(meta);
        }
        Ok(())
    }
}

impl Drop for Outputs<'_> {
    /// Removes the files of a merge that has not come to its end.
    fn drop(&mut self) {
        self.writer = None;
        for &no in &self.created {
            // What cannot be removed now is found unreferenced when the store is opened next.
            let _ = self.env.disk.remove(&(self.env.path_of)(no));
            self.env.prepopulate.cache.erase_file(no);
        }
    }
}
