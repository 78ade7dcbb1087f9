//! Manual compaction: everything in a key range into the last level, step by step. A pure function, like `pick`.
//!
//! A step takes a file above the last level and all that overlap it there, or their older data would be left above newer;
//! with what they meet in the last level they are merged into it.
//!
//! What is deleted or replaced goes with that, unless it was in the last level already, for the sake of a snapshot. Once nothing lies
//! above, files there that may hold what nobody reads any more are written anew where they are, one by one.
//!
//! A file that indexes outside of the range share is first cut in its place into what is inside and what is not: taken as
//! it is, it would bring along whatever overlaps the others, in the end the whole store. If hardly any of it is inside it
//! is left as it is: with thousands of small indexes compacted one after the other, each step would rewrite files of all
//! of them.

use super::pick::{Action, CompactionJob, LAST, Reason, Shape};
use crate::base::{FileNo, IndexId, SeqNo};
use crate::sst::SstMeta;

/// The part of a shared file from which on it is worth cutting.
const WORTH_PART: u64 = 64;

/// What to do next for a manual compaction.
#[derive(Debug)]
pub enum Manual {
    /// Nothing in the range lies above the last level, or nothing worth a step.
    Done,
    /// Files of the range are in running jobs: ask again when one has finished.
    Blocked,
    /// Run this.
    Job(CompactionJob),
}

/// What is to be cleared away in the last level.
pub struct Waste<'a> {
    /// Bytes that a file has of dropped indexes, as for `pick`.
    pub void_bytes: &'a dyn Fn(FileNo) -> u64,
    /// Readers of now and of the kept past read at this number or above.
    pub oldest_read: SeqNo,
    /// The newest file to be looked at: each is written anew once.
    pub newest: FileNo,
}

impl Waste<'_> {
    fn is_garbage(&self, meta: &SstMeta) -> bool {
        // What everybody saw when it came to the last level has no number there: one that has may have replaced another version.
        let has_numbers = meta.max_seq > SeqNo::ZERO && (!meta.stamped || meta.tombstones > 0);
        let has_superseded = meta.superseded.bytes > 0 && meta.superseded.until <= self.oldest_read;
        meta.no <= self.newest && (has_numbers && meta.max_seq <= self.oldest_read || has_superseded)
    }
}

/// Uncompressed bytes of what is yet to be read, more or less: of the files above the last level, and of those there that they meet
/// or that are garbage.
pub fn remaining(shape: &Shape<'_>, waste: &Waste<'_>, (lower, upper): (&[u8], &[u8])) -> u64 {
    let Some(range) = Range::of(lower, upper) else { return 0 };
    let upper: Vec<&SstMeta> = above(shape).map(|(_, meta)| meta).filter(|meta| range.calls_for(meta)).collect();
    let is_met = |meta: &SstMeta| upper.iter().any(|other| meets(meta, &other.smallest, &other.largest));
    let last = shape.levels[usize::from(LAST)].iter().filter(|meta| range.calls_for(meta));
    let last = last.filter(|meta| waste.is_garbage(meta) || is_met(meta)).map(|meta| meta.raw_bytes);
    upper.iter().map(|meta| meta.raw_bytes).chain(last).sum()
}

/// The next step of merging all files with keys in `[lower, upper)` into the last level, and of clearing away what is waste there.
pub fn manual(
    shape: &Shape<'_>,
    running: &[&CompactionJob],
    waste: &Waste<'_>,
    (lower, upper): (&[u8], &[u8]),
) -> Manual {
    let Some(range) = Range::of(lower, upper) else { return Manual::Done };
    let start = above(shape).filter(|(_, meta)| range.calls_for(meta));
    let Some((level, start)) = start.min_by(|a, b| a.1.smallest.cmp(&b.1.smallest)) else {
        let is_void = |meta: &SstMeta| (waste.void_bytes)(meta.no) > 0 && range.includes(meta);
        let is_waste = |meta: &&&SstMeta| range.calls_for(meta) && (waste.is_garbage(meta) || is_void(meta));
        let Some(file) = shape.levels[usize::from(LAST)].iter().find(is_waste) else { return Manual::Done };
        return step(running, vec![(LAST, *file)], LAST, vec![(file.smallest.clone(), file.largest.clone())]);
    };

    if range.is_cut(start) {
        return step(running, vec![(level, start)], level, range.cut(start));
    }
    let (mut low, mut high) = (start.smallest.as_slice(), start.largest.as_slice());
    let mut inputs: Vec<(u8, &SstMeta)>;
    loop {
        inputs = above(shape).filter(|(_, meta)| meets(meta, low, high)).collect();
        if let Some((level, file)) = inputs.iter().find(|(_, meta)| range.is_cut(meta)) {
            return step(running, vec![(*level, *file)], *level, range.cut(file));
        }
        let wider = inputs.iter().fold((low, high), |(low, high), (_, meta)| {
            (low.min(meta.smallest.as_slice()), high.max(meta.largest.as_slice()))
        });
        if wider == (low, high) {
            break;
        }
        (low, high) = wider;
    }
    let last = shape.levels[usize::from(LAST)]
        .iter()
        .filter(|meta| meta.smallest.as_slice() <= high && low <= meta.largest.as_slice());
    inputs.extend(last.map(|meta| (LAST, *meta)));
    let smallest = inputs.iter().map(|(_, meta)| &meta.smallest).min();
    let largest = inputs.iter().map(|(_, meta)| &meta.largest).max();
    let ranges = smallest.zip(largest).map(|(low, high)| (low.clone(), high.clone())).into_iter().collect();
    step(running, inputs, LAST, ranges)
}

/// The files above the last level with their levels.
fn above<'s, 'm>(shape: &'s Shape<'m>) -> impl Iterator<Item = (u8, &'m SstMeta)> + 's {
    let l0 = shape.sublevels.iter().flatten().map(|meta| (0, *meta));
    l0.chain((1..LAST).flat_map(|level| shape.levels[usize::from(level)].iter().map(move |meta| (level, *meta))))
}

/// Whether a file may have keys from `low` to `high`.
fn meets(meta: &SstMeta, low: &[u8], high: &[u8]) -> bool {
    meta.smallest.as_slice() <= high
        && low <= meta.largest.as_slice()
        && meta.holds_any(IndexId::of(low), IndexId::of(high))
}

/// What is to be compacted.
struct Range<'a> {
    lower: &'a [u8],
    upper: &'a [u8],
    /// The indexes in it.
    first: IndexId,
    last: IndexId,
}

impl<'a> Range<'a> {
    /// `None` if nothing can be in it.
    fn of(lower: &'a [u8], upper: &'a [u8]) -> Option<Range<'a>> {
        let index = |key: &[u8]| {
            let mut bytes = [0; IndexId::LEN];
            bytes.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            IndexId(u32::from_be_bytes(bytes))
        };
        let mut last = index(upper);
        if upper.len() <= IndexId::LEN {
            last = IndexId(last.0.checked_sub(1)?);
        }
        Some(Range { lower, upper, first: index(lower), last })
    }

    /// Whether the file has no index outside.
    fn includes(&self, meta: &SstMeta) -> bool {
        self.first <= meta.index && meta.last_index() <= self.last
    }

    /// Whether a file is to be cut before it can be brought down.
    fn is_cut(&self, meta: &SstMeta) -> bool {
        meta.is_shared() && !self.includes(meta)
    }

    /// Whether a file is to be brought down.
    fn calls_for(&self, meta: &SstMeta) -> bool {
        if meta.smallest.as_slice() >= self.upper || self.lower > meta.largest.as_slice() {
            return false;
        }
        if !meta.is_shared() || self.includes(meta) {
            return true;
        }
        let inside = meta.shares.iter().filter(|share| self.first <= share.index && share.index <= self.last);
        inside.map(|share| u64::from(share.raw_bytes)).sum::<u64>() > meta.raw_bytes / WORTH_PART
    }

    /// The range of a file, divided at the first index and behind the last one.
    fn cut(&self, meta: &SstMeta) -> Vec<(Vec<u8>, Vec<u8>)> {
        let behind = self.last.0.checked_add(1).map(IndexId);
        let cuts = [Some(self.first), behind].into_iter().flatten().map(|index| index.prefix().to_vec());
        let inside = cuts.filter(|cut| *cut > meta.smallest && *cut <= meta.largest);
        let bounds: Vec<Vec<u8>> =
            [meta.smallest.clone()].into_iter().chain(inside).chain([meta.largest.clone()]).collect();
        bounds.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }
}

/// The job that merges these files into a level, unless they, or what the ranges cover, are in running ones.
pub(super) fn step(
    running: &[&CompactionJob],
    files: Vec<(u8, &SstMeta)>,
    output_level: u8,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
) -> Manual {
    let busy = |job: &&CompactionJob| {
        let taken = job.files().any(|no| files.iter().any(|(_, meta)| meta.no == no));
        taken || job.ranges.iter().any(|(low, high)| ranges.iter().any(|(from, to)| low <= to && from <= high))
    };
    if running.iter().any(busy) {
        return Manual::Blocked;
    }
    let mut inputs: Vec<(u8, Vec<FileNo>)> = Vec::new();
    for level in 0..=LAST {
        let of_level: Vec<FileNo> = files.iter().filter(|(at, _)| *at == level).map(|(_, meta)| meta.no).collect();
        if !of_level.is_empty() {
            inputs.push((level, of_level));
        }
    }
    Manual::Job(CompactionJob {
        inputs,
        output_level,
        reason: Reason::Manual,
        action: Action::Merge,
        bottommost: output_level == LAST,
        ranges,
        bytes: files.iter().map(|(_, meta)| meta.file_bytes).sum(),
    })
}
