//! Manual compaction: everything in a key range into the last level, one index at a time. A pure function, like `pick`.

use super::pick::{Action, CompactionJob, LAST, Reason, Shape};
use crate::base::IndexId;
use crate::sst::TableMeta;

/// What to do next for a manual compaction.
#[derive(Debug)]
pub enum Manual {
    /// Nothing in the range lies above the last level.
    Done,
    /// Files of the range are in running jobs: ask again when one has finished.
    Blocked,
    /// Run this.
    Job(CompactionJob),
}

/// The next step of merging all files that overlap `[lower, upper)` into the last level.
pub fn manual(shape: &Shape<'_>, running: &[&CompactionJob], lower: &[u8], upper: &[u8]) -> Manual {
    let touches = |meta: &TableMeta| meta.smallest.as_slice() < upper && lower <= meta.largest.as_slice();
    let above = || {
        let levels = shape.levels[1..usize::from(LAST)].iter();
        shape.sublevels.iter().chain(levels).flatten().filter(|meta| touches(meta))
    };
    let Some(index) = above().map(|meta| meta.index).min() else { return Manual::Done };
    // The whole index: a file of an upper level may reach beyond the range, and its older data must not be left above.
    let runs_of_level = |level: u8| -> Vec<&TableMeta> {
        let runs = match level {
            0 => &shape.sublevels[..],
            _ => std::slice::from_ref(&shape.levels[usize::from(level)]),
        };
        runs.iter().flatten().copied().filter(|meta| meta.index == index).collect()
    };
    let levels: Vec<(u8, Vec<&TableMeta>)> =
        (0..=LAST).map(|level| (level, runs_of_level(level))).filter(|(_, files)| !files.is_empty()).collect();
    let of_index: Vec<&TableMeta> = levels.iter().flat_map(|(_, files)| files.iter().copied()).collect();
    let inputs = levels.iter().map(|(level, files)| (*level, files.iter().map(|meta| meta.no).collect())).collect();
    let busy = running.iter().any(|job| job.ranges.iter().any(|(low, _)| IndexId::of(low) == index));
    if busy {
        return Manual::Blocked;
    }
    let smallest = of_index.iter().map(|meta| &meta.smallest).min();
    let largest = of_index.iter().map(|meta| &meta.largest).max();
    let ranges = smallest.zip(largest).map(|(low, high)| (low.clone(), high.clone())).into_iter().collect();
    Manual::Job(CompactionJob {
        inputs,
        output_level: LAST,
        reason: Reason::Manual,
        action: Action::Merge,
        bottommost: true,
        ranges,
        bytes: of_index.iter().map(|meta| meta.file_bytes).sum(),
    })
}
