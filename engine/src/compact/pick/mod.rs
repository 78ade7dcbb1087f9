//! Which compaction to run next: a pure function of the shape of the tree and the jobs that are running.
//!
//! # Shape
//! Levels 1 to 6 are sorted runs. The last one is meant to hold about 90 % of the data; each level above has a target of
//! a tenth of the one below. The *base level* is the first one that is used: the highest one whose target still exceeds
//! a tenth of `base_bytes`; it moves up as the store grows. L0 is a stack of sublevels (oldest first), each a sorted run;
//! its depth is the number of sublevels at the deepest place, since that many files a read there must probe.
//!
//! # Choice
//! Files of dropped indexes go first, they cost nothing. Then levels by score (1 = at target) over the score of the level
//! below, then, if no level calls, files with much garbage, so that a store without writes still shrinks. A level that
//! is itself too full makes each job into it dear, so it is emptied first: else level 0, whose score grows fastest, would
//! under pressure push into a base level that grows without bound.
//!
//! - L0 to base: the deepest place that is free. From its stack, oldest first, files are added together with every older
//!   L0 file that overlaps them (their data must not be left above newer data), while the job stays small. Taking the
//!   place and not whole sublevels keeps jobs narrow, so several can run side by side.
//! - Within L0, if that is blocked below, or if the way down would rewrite more than the size ratio times what it brings
//!   (a few small files on top of a large one): the newest files of the stack are merged into one. That costs little,
//!   and the stack goes down once it weighs enough, or when L0 is due by its bytes. So it is while L0 has to wait for a level
//!   that is fuller, or for a job that takes older files down: as many of the newest ones as make one of full size at most. Merges
//!   go only as fast as users write, and reads would pay for each file that comes meanwhile.
//! - Level to next: the file with the least overlap below for its size, the oldest one of equals. Written once, it
//!   frees the most.
//! - A file that overlaps nothing below is moved by name, unless it is full of tombstones or a small output of a flush.
//! - Files with much of dropped indexes are rewritten where they are.
//! - A file that a merge could not read is left where it is, and out of the scores, as if a job had it: the jobs that need
//!   it would fail again, and only they have to wait. It goes with its index.
//!
//! Parts: `score` says how full the levels are, `l0` makes the jobs out of L0; the rest is here.
//!
//! # Invariants
//! No two jobs share an input file or write overlapping key ranges of one level. No two ranges of a job share an index. The
//! base level is never below a level that holds data or is being written, or newer data would be put below older.
//!
//! # Rejected
//! Targets computed from the top down: they make the last level's share, and so the space used, depend on history. Debt
//! that depends on the current size of the base level: it jumps whenever that level is emptied.

mod l0;
mod score;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::base::{FileNo, IndexId, SeqNo};
use crate::sst::{SstMeta, Superseded};

/// Number of levels, L0 included.
pub const LEVELS: usize = 7;
/// The last level.
pub const LAST: u8 = LEVELS as u8 - 1;

/// Knobs of the picker. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct PickOptions {
    /// Sublevels of L0 (at the deepest place) from which on L0 is compacted.
    pub l0_trigger: usize,
    /// Largest target of the base level; L0 is also compacted when it holds this much.
    pub base_bytes: u64,
    /// Size ratio of neighbouring levels.
    pub multiplier: u64,
    /// Size at which outputs are cut.
    pub target_file_bytes: u64,
    /// Inputs of a job from L0 are limited to this (but at least one file is taken with all it needs).
    pub max_job_bytes: u64,
    /// Percentage of tombstones among a file's versions from which on it counts as garbage.
    pub garbage_percent: u64,
    /// Percentage of superseded bytes of a file that nobody sees any more from which on it is rewritten.
    pub superseded_percent: u64,
    /// Fewest files worth merging within L0.
    pub intra_l0_min: usize,
}

impl Default for PickOptions {
    fn default() -> PickOptions {
        PickOptions {
            l0_trigger: 4,
            base_bytes: 256 << 20,
            multiplier: 10,
            target_file_bytes: 64 << 20,
            max_job_bytes: 1 << 30,
            garbage_percent: 30,
            superseded_percent: 20,
            intra_l0_min: 4,
        }
    }
}

/// The files of a version, as the picker sees them.
#[derive(Clone, Debug, Default)]
pub struct Shape<'a> {
    /// Sublevels of L0, oldest first; within one, files are disjoint and sorted.
    pub sublevels: Vec<Vec<&'a SstMeta>>,
    /// Sorted runs by level; entry 0 is unused.
    pub levels: [Vec<&'a SstMeta>; LEVELS],
}

/// Why a job runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// L0 is too deep or too large.
    L0,
    /// L0 is too deep and the way down is busy.
    IntraL0,
    /// A level is above its target.
    Size,
    /// A file holds many tombstones.
    Garbage,
    /// The index was dropped.
    Dropped,
    /// Somebody asked for it.
    Manual,
}

/// How a job is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Merge the inputs into new files.
    Merge,
    /// Move the input files to the output level as they are: an edit of the manifest.
    Move,
    /// Remove the input files.
    Delete,
}

/// A compaction to run.
#[derive(Clone, PartialEq, Debug)]
pub struct CompactionJob {
    /// Input files by level; those of L0 oldest first, others in key order.
    pub inputs: Vec<(u8, Vec<FileNo>)>,
    /// Where the outputs go.
    pub output_level: u8,
    /// Why.
    pub reason: Reason,
    /// How.
    pub action: Action,
    /// True if no file below the output level overlaps the inputs, so the whole job works at the bottom. Always false
    /// within L0.
    pub bottommost: bool,
    /// Disjoint key ranges (both ends included) that inputs and outputs lie in, in key order; no output spans two. No two
    /// share an index.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the input files.
    pub bytes: u64,
}

impl Reason {
    /// What goes first if two jobs are due: writers wait for level 0, where small files are merged soonest, then for debt, nobody for
    /// the rest.
    pub(crate) fn urgency(self) -> u8 {
        match self {
            Reason::Dropped => 4,
            Reason::IntraL0 => 3,
            Reason::L0 => 2,
            Reason::Size => 1,
            Reason::Garbage | Reason::Manual => 0,
        }
    }
}

impl CompactionJob {
    /// No job, but ranges of a level that jobs must keep out of while it is among those that run.
    pub fn reservation(level: u8, ranges: Vec<(Vec<u8>, Vec<u8>)>) -> CompactionJob {
        CompactionJob {
            inputs: Vec::new(),
            output_level: level,
            reason: Reason::Manual,
            action: Action::Move,
            bottommost: true,
            ranges,
            bytes: 0,
        }
    }

    /// All input files.
    pub fn files(&self) -> impl Iterator<Item = FileNo> + '_ {
        self.inputs.iter().flat_map(|(_, files)| files.iter().copied())
    }
}

/// The state of the tree in numbers, for metrics and for the throttling of writes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Scores {
    /// Level that L0 is compacted into.
    pub base: u8,
    /// Score of each level without files that no merge can have now; work is due from 1 on.
    pub levels: [f64; LEVELS],
    /// Target size of each level in bytes; zero for L0 and unused levels.
    pub targets: [u64; LEVELS],
    /// Sublevels of L0 at the deepest place, running jobs included.
    pub sublevels: usize,
    /// Bytes above targets (in L0: above `base_bytes`), weighted with the bytes a merge must write to move them one level down.
    pub debt_bytes: f64,
}

/// What the picker looks at besides the tree.
pub struct PickInput<'a> {
    /// The tree.
    pub shape: &'a Shape<'a>,
    /// Jobs being run on it.
    pub running: &'a [&'a CompactionJob],
    /// The oldest point any reader, present or future, may read at.
    pub oldest_read: SeqNo,
    /// True for an index whose data is to vanish.
    pub is_dropped: &'a dyn Fn(IndexId) -> bool,
    /// Uncompressed bytes of a file that belong to dropped indexes.
    pub void_bytes: &'a dyn Fn(FileNo) -> u64,
    /// True for a file that a merge could not read (see `quarantine`): only a job that does not read it takes it.
    pub is_quarantined: &'a dyn Fn(FileNo) -> bool,
    /// Only jobs more urgent than one of this reason: what is done while that one rests.
    pub ahead_of: Option<Reason>,
}

/// The next job, or `None` if there is nothing to do (or all there is to do is blocked by running jobs).
pub fn pick(input: &PickInput<'_>, options: &PickOptions) -> Option<CompactionJob> {
    let picker = Picker::new(input, options);
    let wanted = |reason: Reason| input.ahead_of.is_none_or(|other| reason.urgency() > other.urgency());
    let dropped = if wanted(Reason::Dropped) { picker.dropped() } else { None };
    dropped
        .or_else(|| picker.by_score(&wanted))
        .or_else(|| if wanted(Reason::Garbage) { picker.garbage() } else { None })
}

/// The scores of the tree.
pub fn scores(input: &PickInput<'_>, options: &PickOptions) -> Scores {
    Picker::new(input, options).scores()
}

fn bytes_of<'m>(files: impl IntoIterator<Item = &'m SstMeta>) -> u64 {
    files.into_iter().map(|file| file.file_bytes).sum()
}

fn overlaps(a: &SstMeta, smallest: &[u8], largest: &[u8]) -> bool {
    a.smallest.as_slice() <= largest && smallest <= a.largest.as_slice()
}

/// The files of a sorted run that overlap `[smallest, largest]`.
fn overlapping<'s, 'm>(run: &'s [&'m SstMeta], smallest: &[u8], largest: &[u8]) -> &'s [&'m SstMeta] {
    let from = run.partition_point(|file| file.largest.as_slice() < smallest);
    let count = run[from..].partition_point(|file| file.smallest.as_slice() <= largest);
    &run[from..from + count]
}

/// The range from the smallest to the largest key of files.
fn hull<'m>(files: impl IntoIterator<Item = &'m SstMeta>) -> Option<(&'m [u8], &'m [u8])> {
    files.into_iter().fold(None, |hull, file| {
        let (low, high) = (file.smallest.as_slice(), file.largest.as_slice());
        Some(hull.map_or((low, high), |(l, h): (&[u8], &[u8])| (l.min(low), h.max(high))))
    })
}

/// Inputs of one job within one range of keys.
#[derive(Clone, Default)]
struct Inputs<'a> {
    /// From the upper level; for L0 with the sublevel of each.
    upper: Vec<(usize, &'a SstMeta)>,
    /// From the output level.
    lower: Vec<&'a SstMeta>,
}

impl<'a> Inputs<'a> {
    fn files(&self) -> impl Iterator<Item = &'a SstMeta> + '_ {
        self.upper.iter().map(|(_, file)| *file).chain(self.lower.iter().copied())
    }
    fn bytes(&self) -> u64 {
        bytes_of(self.files())
    }
    fn has(&self, no: FileNo) -> bool {
        self.upper.iter().any(|(_, file)| file.no == no)
    }
}

struct Picker<'a> {
    shape: &'a Shape<'a>,
    options: &'a PickOptions,
    input: &'a PickInput<'a>,
    /// Inputs of running jobs.
    busy: HashSet<FileNo>,
    base: u8,
    /// The level the base would be if those above it were empty.
    ideal_base: u8,
    targets: [u64; LEVELS],
}

impl<'a> Picker<'a> {
    fn new(input: &'a PickInput<'a>, options: &'a PickOptions) -> Picker<'a> {
        let mut picker = Picker {
            shape: input.shape,
            options,
            input,
            busy: input.running.iter().flat_map(|job| job.files()).collect(),
            base: LAST,
            ideal_base: LAST,
            targets: [0; LEVELS],
        };
        picker.set_targets();
        picker
    }

    fn l0_files(&self) -> impl Iterator<Item = (usize, &'a SstMeta)> + use<'a> {
        self.shape.sublevels.iter().enumerate().flat_map(|(i, run)| run.iter().map(move |file| (i, *file)))
    }

    /// True for a file that no merge can have now.
    fn is_busy(&self, file: &SstMeta) -> bool {
        self.busy.contains(&file.no) || (self.input.is_quarantined)(file.no)
    }

    /// True if a running job writes into this range of the level.
    fn is_written(&self, level: u8, smallest: &[u8], largest: &[u8]) -> bool {
        self.input
            .running
            .iter()
            .filter(|job| job.output_level == level)
            .any(|job| job.ranges.iter().any(|(low, high)| low.as_slice() <= largest && smallest <= high.as_slice()))
    }

    fn dropped(&self) -> Option<CompactionJob> {
        let dropped = |file: &SstMeta| file.indexes().all(self.input.is_dropped) && !self.busy.contains(&file.no);
        let mut inputs: Vec<(u8, Vec<FileNo>)> = Vec::new();
        let mut bytes = 0;
        for level in 0..LEVELS {
            let runs = if level == 0 { self.shape.sublevels.as_slice() } else { &self.shape.levels[level..=level] };
            let files: Vec<&SstMeta> = runs.iter().flatten().copied().filter(|file| dropped(file)).collect();
            if !files.is_empty() {
                bytes += bytes_of(files.iter().copied());
                inputs.push((level as u8, files.iter().map(|file| file.no).collect()));
            }
        }
        let output_level = inputs.last()?.0;
        let (reason, action) = (Reason::Dropped, Action::Delete);
        Some(CompactionJob { inputs, output_level, reason, action, bottommost: true, ranges: Vec::new(), bytes })
    }

    fn by_score(&self, wanted: &dyn Fn(Reason) -> bool) -> Option<CompactionJob> {
        let reason = |level: u8| if level == 0 { Reason::L0 } else { Reason::Size };
        let mut due: Vec<(f64, u8)> = Vec::new();
        // From the bottom: how far the level that a job would write to is over its own target.
        let mut below = 1.0;
        for level in (0..LAST).rev() {
            let score = self.score(level);
            if score >= 1.0 {
                due.push((score / below, level));
            }
            if level >= self.base {
                below = score.max(1.0);
            }
        }
        due.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        // Another level comes first, or a job from L0 is under way that rests.
        let waits = due.first().is_some_and(|(_, level)| *level > 0 || !wanted(Reason::L0));
        let gathered = (waits && wanted(Reason::IntraL0)).then(|| self.gather()).flatten();
        if gathered.is_some() {
            return gathered;
        }
        // What must wait for something unwanted is not urgent.
        let mut due = due.into_iter().map(|(_, level)| level).take_while(|level| wanted(reason(*level)));
        due.find_map(|level| if level == 0 { self.l0_job() } else { self.level_job(level) })
    }

    /// Takes in what the upper inputs overlap in the output level; `None` if running jobs are in the way.
    fn add_lower(&self, inputs: &mut Inputs<'a>, output_level: u8) -> Option<()> {
        let (low, high) = hull(inputs.upper.iter().map(|(_, file)| *file))?;
        inputs.lower = overlapping(&self.shape.levels[usize::from(output_level)], low, high).to_vec();
        let (low, high) = hull(inputs.files())?;
        let free = !inputs.lower.iter().any(|file| self.is_busy(file)) && !self.is_written(output_level, low, high);
        free.then_some(())
    }

    fn level_job(&self, level: u8) -> Option<CompactionJob> {
        let mut best: Option<(u64, Inputs<'a>)> = None;
        for file in &self.shape.levels[usize::from(level)] {
            let Some(inputs) = self.level_inputs(level, level + 1, file) else { continue };
            let overlap = bytes_of(inputs.lower.iter().copied());
            let better = best.as_ref().is_none_or(|(least, other)| {
                let other = other.upper[0].1;
                let ours = u128::from(overlap) * u128::from(other.file_bytes.max(1));
                let theirs = u128::from(*least) * u128::from(file.file_bytes.max(1));
                (ours, file.no) < (theirs, other.no)
            });
            if better {
                best = Some((overlap, inputs));
            }
        }
        let (_, inputs) = best?;
        let action = if self.can_move(&inputs, level) { Action::Move } else { Action::Merge };
        Some(self.job(vec![inputs], level, level + 1, Reason::Size, action))
    }

    fn level_inputs(&self, level: u8, output_level: u8, file: &'a SstMeta) -> Option<Inputs<'a>> {
        if self.is_busy(file) {
            return None;
        }
        let mut inputs = Inputs { upper: vec![(0, file)], lower: Vec::new() };
        if level == output_level {
            return (!self.is_written(level, &file.smallest, &file.largest)).then_some(inputs);
        }
        self.add_lower(&mut inputs, output_level)?;
        Some(inputs)
    }

    fn is_garbage(&self, file: &SstMeta) -> bool {
        file.tombstones * 100 > file.entries * self.options.garbage_percent
    }

    /// True if clearing these tombstones away rewrites no more versions for each than merging a level into the next does.
    /// A few that lie all over a large level wait until they are brought down with the rest.
    fn pays(&self, inputs: &Inputs<'a>) -> bool {
        let cleared: u64 = inputs.upper.iter().map(|(_, file)| file.tombstones).sum();
        let rewritten: u64 = inputs.lower.iter().map(|file| file.entries).sum();
        rewritten <= cleared.saturating_mul(self.options.multiplier)
    }

    fn can_move(&self, inputs: &Inputs<'a>, level: u8) -> bool {
        let [(_, file)] = inputs.upper.as_slice() else { return false };
        inputs.lower.is_empty()
            && !self.is_garbage(file)
            // Small flush outputs are better merged with their like than kept for ever.
            && (level > 0 || file.file_bytes >= self.options.target_file_bytes / 4)
    }

    /// The share of a file that belongs to dropped indexes, in thousandths, if it is worth rewriting the file.
    fn void_share(&self, file: &SstMeta) -> Option<u64> {
        let share = (self.input.void_bytes)(file.no).saturating_mul(1000) / file.raw_bytes.max(1);
        (share > self.options.garbage_percent * 10).then_some(share)
    }

    /// Files of dropped indexes are rewritten where they are, with their neighbours of the kind and small ones, so that
    /// few files are left of many.
    fn void(&self) -> Option<CompactionJob> {
        let mut found: Vec<(u64, u8, usize, &'a SstMeta)> = Vec::new();
        let upper = (1..=LAST).flat_map(|level| {
            self.shape.levels[usize::from(level)].iter().enumerate().map(move |(at, file)| (level, at, *file))
        });
        for (level, at, file) in self.l0_files().map(|(sublevel, file)| (0, sublevel, file)).chain(upper) {
            if let Some(share) = self.void_share(file).filter(|_| !self.is_busy(file)) {
                found.push((share, level, at, file));
            }
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then(a.3.no.cmp(&b.3.no)));
        found.into_iter().find_map(|(_, level, at, file)| {
            let mut files = vec![file];
            if level > 0 {
                let run = &self.shape.levels[usize::from(level)];
                let mut bytes = file.file_bytes;
                let mut joins = |file: &SstMeta| {
                    let small = file.is_shared() && file.file_bytes < self.options.target_file_bytes / 4;
                    bytes += file.file_bytes;
                    (small || self.void_share(file).is_some())
                        && !self.is_busy(file)
                        && bytes <= self.options.max_job_bytes
                };
                let after = run[at + 1..].iter().copied().take_while(|file| joins(file)).collect::<Vec<_>>();
                let before = run[..at].iter().rev().copied().take_while(|file| joins(file)).collect::<Vec<_>>();
                files.extend(after);
                files.extend(before);
                let (low, high) = hull(files.iter().copied())?;
                if self.is_written(level, low, high) {
                    files.truncate(1);
                }
            }
            if self.is_written(level, &file.smallest, &file.largest) {
                return None;
            }
            files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            let upper = files.into_iter().map(|file| (if level == 0 { at } else { 0 }, file)).collect();
            Some(self.job(vec![Inputs { upper, lower: Vec::new() }], level, level, Reason::Garbage, Action::Merge))
        })
    }

    /// Versions that no reader of now or of the kept past sees are a large part of a file: it is rewritten where it is. A merge from
    /// above may be long in coming, and in the last level there may be none.
    fn expired(&self) -> Option<CompactionJob> {
        let is_expired = |file: &SstMeta| {
            let Superseded { bytes, until } = file.superseded;
            until <= self.input.oldest_read
                && bytes.saturating_mul(100) > file.raw_bytes.saturating_mul(self.options.superseded_percent)
        };
        (1..=LAST).find_map(|level| {
            let mut files = self.shape.levels[usize::from(level)].iter().copied().filter(|file| is_expired(file));
            let inputs = files.find_map(|file| self.level_inputs(level, level, file))?;
            Some(self.job(vec![inputs], level, level, Reason::Garbage, Action::Merge))
        })
    }

    fn garbage(&self) -> Option<CompactionJob> {
        if let Some(job) = self.void().or_else(|| self.expired()) {
            return Some(job);
        }
        let mut found: Vec<(u64, u8, usize, &'a SstMeta)> = Vec::new();
        let upper = (1..=LAST)
            .flat_map(|level| self.shape.levels[usize::from(level)].iter().map(move |file| (level, 0, *file)));
        for (level, sublevel, file) in self.l0_files().map(|(sublevel, file)| (0, sublevel, file)).chain(upper) {
            // In the last level a rewrite helps only if no snapshot needs what the tombstones hide.
            let settled = level < LAST || file.max_seq <= self.input.oldest_read;
            if settled && self.is_garbage(file) && !self.is_busy(file) {
                found.push((file.tombstones * 1000 / file.entries.max(1), level, sublevel, file));
            }
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then(a.3.no.cmp(&b.3.no)));
        found.into_iter().find_map(|(_, level, sublevel, file)| {
            let output_level = if level == 0 { self.base } else { LAST.min(level + 1) };
            let inputs = if level == 0 {
                let mut inputs = Inputs::default();
                self.add_with_older(&mut inputs, sublevel, file)?;
                self.add_lower(&mut inputs, output_level)?;
                inputs
            } else {
                self.level_inputs(level, output_level, file)?
            };
            self.pays(&inputs).then(|| self.job(vec![inputs], level, output_level, Reason::Garbage, Action::Merge))
        })
    }

    fn job(
        &self,
        mut parts: Vec<Inputs<'a>>,
        level: u8,
        output_level: u8,
        reason: Reason,
        action: Action,
    ) -> CompactionJob {
        parts.sort_by_key(|part| part.upper[0].1.index);
        let mut upper: Vec<(usize, &SstMeta)> = parts.iter().flat_map(|part| part.upper.iter().copied()).collect();
        upper.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.smallest.cmp(&b.1.smallest)));
        let lower: Vec<FileNo> = parts.iter().flat_map(|part| part.lower.iter().map(|file| file.no)).collect();
        let mut inputs = vec![(level, upper.iter().map(|(_, file)| file.no).collect::<Vec<FileNo>>())];
        if !lower.is_empty() {
            inputs.push((output_level, lower));
        }
        let ranges: Vec<(Vec<u8>, Vec<u8>)> = parts
            .iter()
            .filter_map(|part| hull(part.files()).map(|(low, high)| (low.to_vec(), high.to_vec())))
            .collect();
        let bottommost = output_level > 0
            && ranges.iter().all(|(low, high)| {
                self.shape.levels[usize::from(output_level) + 1..]
                    .iter()
                    .all(|run| overlapping(run, low, high).is_empty())
            });
        let bytes = parts.iter().map(Inputs::bytes).sum();
        CompactionJob { inputs, output_level, reason, action, bottommost, ranges, bytes }
    }
}
