//! The plan of a merge: where its outputs are cut, and what lies below them.

use std::sync::Arc;

use crate::base::IndexId;
use crate::manifest::FileEntry;
use crate::sst::SstMeta;

/// The part of a file's target size from which on an index has files of its own, in L0 and below. A file costs a sync, as much
/// as some hundred kilobytes do; one that an index has for itself makes narrow jobs and goes with its index by name. Below
/// L0 a file stays for longer, and many small ones would.
const OWN_FILE_PART_L0: u64 = 64;
const OWN_FILE_PART: u64 = 16;
/// At most so much is held in memory to find out.
const OWN_FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a sorted run, of which a merge needs to know where they lie.
#[derive(Clone, Debug)]
pub enum MetaRun<'a> {
    /// As its caller lists them.
    Listed(&'a [&'a SstMeta]),
    /// As a version holds them, for a merge that outlives whoever begins it.
    Held(Arc<Vec<Arc<FileEntry>>>),
}

impl MetaRun<'_> {
    fn is_empty(&self) -> bool {
        match self {
            MetaRun::Listed(metas) => metas.is_empty(),
            MetaRun::Held(files) => files.is_empty(),
        }
    }

    /// The file at `at`, in key order.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&SstMeta> {
        match self {
            MetaRun::Listed(metas) => metas.get(at).copied(),
            MetaRun::Held(files) => files.get(at).map(|file| &file.meta),
        }
    }
}

/// Where outputs are cut and what lies below them.
#[derive(Clone, Debug)]
pub struct OutputPlan<'a> {
    /// A file of at least this size ends at the next boundary of a file in `guides`.
    pub cut_at_guide_from: u64,
    /// A file of this size ends at the next key.
    pub cut_from: u64,
    /// A file ends once it overlaps more bytes of `guides` than this.
    pub max_guide_bytes: u64,
    /// Sorted run whose boundaries outputs are aligned with: the level below the output level, or for a flush the base
    /// level.
    pub guides: MetaRun<'a>,
    /// All sorted runs with data older than the inputs; `None` if no key may be taken to be at the bottom.
    pub below: Option<Vec<MetaRun<'a>>>,
    /// For outputs to L0, whose files are ordered by the numbers in them.
    pub numbers_stay: bool,
    /// The outputs come on top of what the store has; otherwise they replace as much of it.
    pub is_new: bool,
    /// An index of which the merge keeps fewer uncompressed bytes shares files with others like it. 0: none does.
    pub share_below: u64,
    /// Indexes that have files of their own whatever the merge keeps of them, and that no shared file spans; in order.
    pub alone: &'a [IndexId],
    /// Disjoint ranges of a job, in key order: an output ends before the lower bound of one. Bounds are such of indexes.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'a> OutputPlan<'a> {
    /// Outputs of a compaction to a level whose lower levels are `below`, the nearest first.
    pub fn for_level(target_file_bytes: u64, below: Vec<MetaRun<'a>>) -> OutputPlan<'a> {
        let guides = below.first().cloned().unwrap_or(MetaRun::Listed(&[]));
        OutputPlan {
            cut_at_guide_from: target_file_bytes / 4 * 3,
            cut_from: if guides.is_empty() { target_file_bytes } else { target_file_bytes / 4 * 5 },
            max_guide_bytes: target_file_bytes.saturating_mul(10),
            guides,
            below: Some(below),
            numbers_stay: false,
            is_new: false,
            share_below: (target_file_bytes / OWN_FILE_PART).min(OWN_FILE_BYTES_MAX),
            alone: &[],
            ranges: Vec::new(),
        }
    }

    /// Outputs to L0, cut at boundaries of the base level's files so that later compactions stay narrow. `below` are all
    /// sorted runs older than the inputs, or `None` if that is not known.
    pub fn for_l0(
        target_file_bytes: u64,
        base: &'a [&'a SstMeta],
        below: Option<&'a [&'a [&'a SstMeta]]>,
    ) -> OutputPlan<'a> {
        OutputPlan {
            cut_at_guide_from: target_file_bytes,
            cut_from: target_file_bytes.saturating_mul(if base.is_empty() { 1 } else { 2 }),
            max_guide_bytes: u64::MAX,
            guides: MetaRun::Listed(base),
            below: below.map(|runs| runs.iter().map(|run| MetaRun::Listed(run)).collect()),
            numbers_stay: true,
            is_new: true,
            share_below: (target_file_bytes / OWN_FILE_PART_L0).min(OWN_FILE_BYTES_MAX),
            alone: &[],
            ranges: Vec::new(),
        }
    }

    /// The same for outputs that take the place of their inputs.
    pub fn in_place(self) -> OutputPlan<'a> {
        OutputPlan { is_new: false, ..self }
    }

    /// The same for a job with these ranges.
    pub fn within(self, ranges: Vec<(Vec<u8>, Vec<u8>)>) -> OutputPlan<'a> {
        OutputPlan { ranges, ..self }
    }

    /// The same with these indexes in files of their own.
    pub fn apart(self, alone: &'a [IndexId]) -> OutputPlan<'a> {
        OutputPlan { alone, ..self }
    }
}
