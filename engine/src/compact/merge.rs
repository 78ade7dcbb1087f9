//! Carrying out a merge: versions from several sources into new SSTs.
//!
//! # Algorithm
//! The sources are merged into internal order; [`VersionGc`] decides on each version; what stays is written, to files that
//! [`outputs`](super::outputs) begins and ends.
//!
//! Whether a key is at the bottom (no older data outside the merge) is decided per key, by walking along the fences of
//! the levels below the output level. Where the fences leave it open, the filters of the files below are asked, but for
//! tombstones only: so a row that is inserted and soon deleted (a queue, an index entry of a value that changes often)
//! disappears at the first merge that meets both, also amid other keys.
//!
//! # Slices
//! A merge is a value, [`Merge`], that does a slice of its work when it is asked to and then rests where it is. What comes between two
//! slices (a pause, more urgent work, the end of the store) is the business of whoever drives it. It holds no large value meanwhile.
//! [`merge`] drives one to its end.
//!
//! # Failure
//! A merge that ends in an error, or is dropped before its end, removes the files written so far.
//! On success their content is durable, but neither are their names (the caller syncs the directory) nor does anybody
//! refer to them: the caller installs them.

use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::gc::{Retention, VersionGc};
use super::outputs::Outputs;
pub use super::outputs::{MergeEnv, MergeResult, MergeStats, Rule};
pub use super::plan::{MetaRun, OutputPlan};
use crate::base::{IndexId, Kind, Result};
use crate::iter::{LevelIter, MergeIter, SortedRun, VersionIter};
use crate::sst::SstMeta;
use crate::sst::{AHEAD_MIN, ReadHints, Sst, SstIter, WRITE_BYTES};

/// Input bytes of a slice.
pub const SLICE_BYTES: u64 = 1 << 20;
/// Read-ahead of a merge at most: enough for a disk.
const AHEAD_BYTES_MAX: u64 = 2 << 20;
/// And at least.
const AHEAD_BYTES_MIN: u64 = 512 << 10;
/// What one source gets at most.
const AHEAD_MAX: u64 = 1 << 20;

/// Buffers of a flush at work, in bytes.
pub const FLUSH_BUFFER_BYTES: u64 = WRITE_BYTES as u64;

/// Read-ahead of a merge, shared by its sources, in a store with this budget for its block cache: a small part of it.
pub fn ahead_bytes(budget: u64) -> u64 {
    (budget / 16).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
}

/// Buffers of a merge at work, in bytes.
pub fn merge_buffer_bytes(budget: u64) -> u64 {
    ahead_bytes(budget) + FLUSH_BUFFER_BYTES
}

/// How far each of `sources` reads ahead, of `bytes` for all.
pub(crate) fn ahead_each(bytes: u64, sources: usize) -> u64 {
    (bytes / sources.max(1) as u64).clamp(AHEAD_MIN, AHEAD_MAX)
}

/// Bytes counted in a total as long as they are held.
pub(crate) struct Held {
    total: Arc<AtomicU64>,
    bytes: u64,
}

impl Held {
    pub fn new(total: &Arc<AtomicU64>, bytes: u64) -> Held {
        total.fetch_add(bytes, Ordering::Relaxed);
        Held { total: total.clone(), bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An SST that can be opened.
pub trait SstSource: Send {
    /// What is known of it.
    fn meta(&self) -> &SstMeta;
    /// The open SST.
    fn sst(&self) -> Result<Arc<Sst>>;
}

/// A sorted run of files, for cursors.
pub struct SstRun<S> {
    /// The files in key order.
    pub files: Vec<S>,
    /// How they are read.
    pub hints: ReadHints,
}

impl<S: SstSource> SortedRun for SstRun<S> {
    type Iter = SstIter;
    fn len(&self) -> usize {
        self.files.len()
    }
    fn smallest(&self, i: usize) -> &[u8] {
        &self.files[i].meta().smallest
    }
    fn largest(&self, i: usize) -> &[u8] {
        &self.files[i].meta().largest
    }
    fn open(&mut self, i: usize, _: Option<SstIter>) -> Result<SstIter> {
        Ok(self.files[i].sst()?.iter(self.hints))
    }
}

/// A merge of files.
pub type FileMerge<'a, S> = Merge<'a, Box<MergeIter<LevelIter<SstRun<S>>>>>;

/// The merge of the files of a job (in any order) into new ones.
pub fn merge_of_files<'a, S: SstSource>(
    files: Vec<S>,
    gc: VersionGc,
    plan: &OutputPlan<'a>,
    env: &MergeEnv<'a>,
) -> FileMerge<'a, S> {
    let runs = sorted_runs(files);
    let read_ahead = ahead_each(env.ahead_bytes, runs.len());
    let ahead_bytes = read_ahead * runs.len() as u64;
    let hints = ReadHints { fill_cache: false, read_ahead: read_ahead as u32, defer_large: true };
    let sources = runs.into_iter().map(|files| LevelIter::new(SstRun { files, hints }, None, None));
    let input = Box::new(MergeIter::new(sources.collect()));
    Merge { _ahead: Some(Held::new(&env.buffer_bytes, ahead_bytes)), ..Merge::new(input, gc, plan, env) }
}

/// Distributes files into few sorted runs. Which run comes first does not matter to a merge: versions found twice are
/// identical.
fn sorted_runs<S: SstSource>(mut files: Vec<S>) -> Vec<Vec<S>> {
    files.sort_by(|a, b| a.meta().smallest.cmp(&b.meta().smallest));
    let mut runs: Vec<Vec<S>> = Vec::new();
    for file in files {
        let fits = |run: &&mut Vec<S>| run.last().is_some_and(|last| last.meta().largest < file.meta().smallest);
        match runs.iter_mut().find(fits) {
            Some(run) => run.push(file),
            None => runs.push(vec![file]),
        }
    }
    runs
}

/// Merges `input` into new files.
pub fn merge<I: VersionIter>(
    input: &mut I,
    gc: VersionGc,
    plan: &OutputPlan<'_>,
    env: &MergeEnv<'_>,
) -> Result<MergeResult> {
    let mut merge = Merge::new(input, gc, plan, env);
    loop {
        match merge.run_slice()? {
            Progress::More(_) => (env.tick)()?,
            Progress::Done(result) => return Ok(result),
        }
    }
}

/// What a slice has come to.
#[derive(Debug)]
pub enum Progress {
    /// There is more to do. So many bytes (keys and values) were taken in.
    More(u64),
    /// The merge is complete.
    Done(MergeResult),
}

/// A merge under way. See the module.
pub struct Merge<'a, P> {
    /// The versions, not positioned before the first slice.
    input: P,
    is_begun: bool,
    gc: VersionGc,
    /// `None` if no key may be taken to be at the bottom.
    bottom: Option<Bottom<'a>>,
    env: MergeEnv<'a>,
    /// The key at hand.
    key: Vec<u8>,
    /// How values of its index are written anew.
    rule: Option<Rule>,
    /// A new value.
    renewed: Vec<u8>,
    outputs: Outputs<'a>,
    _buffers: Held,
    _ahead: Option<Held>,
}

impl<'a, P: DerefMut<Target: VersionIter>> Merge<'a, P> {
    /// A merge of `input` that has not begun.
    pub fn new(input: P, gc: VersionGc, plan: &OutputPlan<'a>, env: &MergeEnv<'a>) -> Merge<'a, P> {
        Merge {
            input,
            is_begun: false,
            gc: if plan.numbers_stay { gc.with_numbers() } else { gc },
            bottom: plan.below.clone().map(Bottom::new),
            env: env.clone(),
            key: Vec::new(),
            rule: None,
            renewed: Vec::new(),
            outputs: Outputs::new(plan.clone(), env.clone()),
            _buffers: Held::new(&env.buffer_bytes, FLUSH_BUFFER_BYTES + plan.share_below),
            _ahead: None,
        }
    }

    /// Goes on for about a MiB of input. To be called until it is done or fails.
    pub fn run_slice(&mut self) -> Result<Progress> {
        let Merge { input, gc, bottom, env, key, rule, renewed, outputs, .. } = self;
        let input = &mut **input;
        if !std::mem::replace(&mut self.is_begun, true) {
            input.seek_first()?;
        }
        let mut taken = 0;
        while input.valid() {
            if input.key() != key || key.is_empty() {
                let index = IndexId::of(input.key());
                let new_index = key.is_empty() || IndexId::of(key) != index;
                if new_index && (env.is_dropped)(index) {
                    key.clear();
                    match index.0.checked_add(1) {
                        Some(next) => input.seek_ge(&IndexId(next).prefix())?,
                        None => break,
                    }
                    continue;
                }
                key.clear();
                key.extend_from_slice(input.key());
                if new_index {
                    *rule = (env.rule_of)(index);
                }
                outputs.begin_key(key, new_index)?;
                gc.start_key(bottom.as_mut().is_some_and(|bottom| bottom.reached(key)));
            }
            let (seq, kind) = (input.seq(), input.kind());
            let bytes = (key.len() + input.value_len()) as u64;
            let stats = &mut outputs.result.stats;
            stats.entries_in += 1;
            stats.bytes_in += bytes;
            if bottom.is_some() && !gc.is_settled(seq, kind) && (env.excludes)(key) {
                gc.reached_bottom();
            }
            match gc.version(seq, kind) {
                Retention::Keep { seq, hidden_by } => {
                    let superseded_by = gc.superseded_by();
                    if let Some(tombstone) = hidden_by {
                        stats.tombstones_dropped -= 1;
                        outputs.add(key, tombstone, Kind::Delete, &[], superseded_by)?;
                    }
                    if input.is_deferred() {
                        input.load()?;
                    }
                    let value = match rule {
                        Some(rule) if kind == Kind::Put && rule(key, input.value(), renewed) => renewed,
                        _ => input.value(),
                    };
                    outputs.add(key, seq, kind, value, superseded_by)?;
                }
                Retention::Drop if kind == Kind::Put => stats.puts_dropped += 1,
                Retention::Drop => stats.tombstones_dropped += 1,
            }
            input.next()?;
            taken += bytes;
            if taken >= SLICE_BYTES {
                return Ok(Progress::More(taken));
            }
        }
        outputs.finish().map(Progress::Done)
    }
}

/// Tells for ascending keys whether any file below may hold them.
struct Bottom<'a> {
    /// With the number of the first file of each that is not yet passed.
    runs: Vec<(MetaRun<'a>, usize)>,
}

impl<'a> Bottom<'a> {
    fn new(below: Vec<MetaRun<'a>>) -> Bottom<'a> {
        Bottom { runs: below.into_iter().map(|run| (run, 0)).collect() }
    }

    #[inline]
    fn reached(&mut self, key: &[u8]) -> bool {
        for (run, at) in &mut self.runs {
            while let Some(file) = run.get(*at) {
                if file.largest.as_slice() >= key {
                    if file.smallest.as_slice() <= key {
                        return false;
                    }
                    break;
                }
                *at += 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_share_the_read_ahead() {
        let bytes = ahead_bytes(1 << 30);
        assert_eq!(bytes, AHEAD_BYTES_MAX);
        assert_eq!(ahead_each(bytes, 1), AHEAD_MAX);
        assert_eq!(ahead_each(bytes, 4) * 4, bytes);
        // Below the smallest window a disk is asked too often.
        assert_eq!(ahead_each(bytes, 1000), AHEAD_MIN);
        assert_eq!((ahead_bytes(16 << 20), ahead_bytes(0)), (1 << 20, AHEAD_BYTES_MIN));
    }

    #[test]
    fn held_bytes_are_counted_while_held() {
        let total = Arc::new(AtomicU64::new(0));
        let first = Held::new(&total, 5);
        {
            let _second = Held::new(&total, 7);
            assert_eq!(total.load(Ordering::Relaxed), 12);
        }
        drop(first);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
