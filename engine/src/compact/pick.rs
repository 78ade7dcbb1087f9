//! Which compaction to run next: a pure function of the shape of the tree and the jobs that are running.
//!
//! # Shape
//! Levels 1 to 6 are sorted runs. The last one is meant to hold about 90 % of the data; each level above has a target of
//! a tenth of the one below. The *base level* is the first one that is used: the highest one whose target still exceeds
//! a tenth of `base_bytes`; it moves up as the store grows. L0 is a stack of sublevels (oldest first), each a sorted run;
//! its price is the number of sublevels at the deepest place, since that many files a read there must probe.
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
//!   and the stack goes down once it weighs enough, or when L0 is due by its bytes.
//! - Level to next: the file with the least overlap below for its size, the oldest one of equals. Written once, it
//!   frees the most.
//! - A file that overlaps nothing below is moved by name, unless it is to be compressed anew or full of tombstones.
//!
//! # Invariants
//! No two jobs share an input file or write overlapping key ranges of one level. Each range is within one index. The
//! base level is never below a level that holds data or is being written, or newer data would be put below older.
//!
//! # Rejected
//! Targets computed from the top down: they make the last level's share, and so the space used, depend on history. Debt
//! that depends on the current size of the base level: it jumps whenever that level is emptied.

use std::collections::HashSet;

use crate::base::{FileNo, IndexId, SeqNo};
use crate::sst::TableMeta;

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
    /// Levels from this one on use the dense compression; a file that crosses this line is rewritten.
    pub dense_from: u8,
    /// Percentage of tombstones among a file's versions from which on it counts as garbage.
    pub garbage_percent: u64,
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
            dense_from: LAST - 1,
            garbage_percent: 30,
            intra_l0_min: 4,
        }
    }
}

/// The files of a version, as the picker sees them.
#[derive(Clone, Debug, Default)]
pub struct Shape<'a> {
    /// Sublevels of L0, oldest first; within one, files are disjoint and sorted.
    pub sublevels: Vec<Vec<&'a TableMeta>>,
    /// Sorted runs by level; entry 0 is unused.
    pub levels: [Vec<&'a TableMeta>; LEVELS],
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
    /// Disjoint key ranges (both ends included) that inputs and outputs lie in, one per index, in key order.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the input files.
    pub bytes: u64,
}

impl Reason {
    /// What goes first if two jobs are due: writers wait for level 0, then for debt, nobody for the rest.
    fn urgency(self) -> u8 {
        match self {
            Reason::Dropped => 3,
            Reason::L0 | Reason::IntraL0 => 2,
            Reason::Size => 1,
            Reason::Garbage | Reason::Manual => 0,
        }
    }
}

impl CompactionJob {
    /// All input files.
    pub fn files(&self) -> impl Iterator<Item = FileNo> + '_ {
        self.inputs.iter().flat_map(|(_, files)| files.iter().copied())
    }
}

/// The state of the tree in numbers, for metrics and for the price of writes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Scores {
    /// Level that L0 is compacted into.
    pub base: u8,
    /// Score of each level without files in running jobs; work is due from 1 on.
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
    /// Only jobs more urgent than one of this reason: what a thread may do in the middle of it.
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

fn bytes_of<'m>(files: impl IntoIterator<Item = &'m TableMeta>) -> u64 {
    files.into_iter().map(|file| file.file_bytes).sum()
}

fn overlaps(a: &TableMeta, smallest: &[u8], largest: &[u8]) -> bool {
    a.smallest.as_slice() <= largest && smallest <= a.largest.as_slice()
}

/// The files of a sorted run that overlap `[smallest, largest]`.
fn overlapping<'s, 'm>(run: &'s [&'m TableMeta], smallest: &[u8], largest: &[u8]) -> &'s [&'m TableMeta] {
    let from = run.partition_point(|file| file.largest.as_slice() < smallest);
    let count = run[from..].partition_point(|file| file.smallest.as_slice() <= largest);
    &run[from..from + count]
}

/// The range from the smallest to the largest key of files.
fn hull<'m>(files: impl IntoIterator<Item = &'m TableMeta>) -> Option<(&'m [u8], &'m [u8])> {
    files.into_iter().fold(None, |hull, file| {
        let (low, high) = (file.smallest.as_slice(), file.largest.as_slice());
        Some(hull.map_or((low, high), |(l, h): (&[u8], &[u8])| (l.min(low), h.max(high))))
    })
}

/// Inputs of one job within one index.
#[derive(Clone, Default)]
struct Inputs<'a> {
    /// From the upper level; for L0 with the sublevel of each.
    upper: Vec<(usize, &'a TableMeta)>,
    /// From the output level.
    lower: Vec<&'a TableMeta>,
}

impl<'a> Inputs<'a> {
    fn files(&self) -> impl Iterator<Item = &'a TableMeta> + '_ {
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

    fn level_bytes(&self, level: usize) -> u64 {
        bytes_of(self.shape.levels[level].iter().copied())
    }

    fn set_targets(&mut self) {
        let total: u64 = (1..LEVELS).map(|level| self.level_bytes(level)).sum();
        let last = self.level_bytes(LEVELS - 1).max(total / 10 * 9);
        let mut ideal = last;
        while ideal > self.options.base_bytes && self.ideal_base > 1 {
            ideal /= self.options.multiplier;
            self.ideal_base -= 1;
        }
        let used = (1..LAST).find(|level| {
            !self.shape.levels[usize::from(*level)].is_empty()
                || self.input.running.iter().any(|job| job.output_level == *level)
        });
        self.base = used.map_or(self.ideal_base, |used| used.min(self.ideal_base));
        let mut target = last;
        for level in (usize::from(self.base)..LEVELS).rev() {
            // Below a quarter of the base size a level would only add writes.
            self.targets[level] = target.max(self.options.base_bytes / 4);
            target /= self.options.multiplier;
        }
    }

    fn l0_files(&self) -> impl Iterator<Item = (usize, &'a TableMeta)> + use<'a> {
        self.shape.sublevels.iter().enumerate().flat_map(|(i, run)| run.iter().map(move |file| (i, *file)))
    }

    fn is_busy(&self, file: &TableMeta) -> bool {
        self.busy.contains(&file.no)
    }

    /// True if a running job writes into this range of the level.
    fn is_written(&self, level: u8, smallest: &[u8], largest: &[u8]) -> bool {
        self.input
            .running
            .iter()
            .filter(|job| job.output_level == level)
            .any(|job| job.ranges.iter().any(|(low, high)| low.as_slice() <= largest && smallest <= high.as_slice()))
    }

    /// The stack of L0 files (oldest first) over the smallest key of each file; the deepest free stack first. The
    /// deepest place of all is over one of these keys.
    fn stacks(&self, with_busy: bool) -> Vec<Vec<(usize, &'a TableMeta)>> {
        let mut files: Vec<(usize, &TableMeta)> = self.l0_files().collect();
        files.sort_by(|a, b| a.1.smallest.cmp(&b.1.smallest));
        let mut stacks = Vec::with_capacity(files.len());
        // Files that begin at or before the place and may reach it.
        let mut open: Vec<(usize, &TableMeta)> = Vec::new();
        for (i, (sublevel, file)) in files.iter().enumerate() {
            open.retain(|(_, other)| other.largest >= file.smallest);
            open.push((*sublevel, file));
            if files.get(i + 1).is_some_and(|(_, next)| next.smallest == file.smallest) {
                continue;
            }
            let mut stack = open.clone();
            stack.sort_by_key(|(sublevel, _)| *sublevel);
            stacks.push(stack);
        }
        let depth =
            |stack: &[(usize, &TableMeta)]| stack.iter().filter(|(_, file)| with_busy || !self.is_busy(file)).count();
        stacks.sort_by(|a, b| depth(b).cmp(&depth(a)).then_with(|| a[0].1.no.cmp(&b[0].1.no)));
        stacks
    }

    fn depth(&self, with_busy: bool) -> usize {
        let stacks = self.stacks(with_busy);
        let deepest = stacks.first().into_iter().flatten();
        deepest.filter(|(_, file)| with_busy || !self.is_busy(file)).count()
    }

    fn score(&self, level: u8) -> f64 {
        let free = |files: &mut dyn Iterator<Item = &'a TableMeta>| -> u64 {
            files.filter(|file| !self.is_busy(file)).map(|file| file.file_bytes).sum()
        };
        if level == 0 {
            let bytes = free(&mut self.l0_files().map(|(_, file)| file)) as f64;
            let depth = self.depth(false) as f64;
            return (depth / self.options.l0_trigger as f64).max(bytes / self.options.base_bytes as f64);
        }
        if level < self.base || level == LAST {
            return 0.0;
        }
        let bytes = free(&mut self.shape.levels[usize::from(level)].iter().copied());
        let score = bytes as f64 / self.targets[usize::from(level)] as f64;
        // A level that the store has outgrown downwards is emptied.
        if level < self.ideal_base && bytes > 0 { score.max(1.0) } else { score }
    }

    fn scores(&self) -> Scores {
        let mut scores =
            Scores { base: self.base, targets: self.targets, sublevels: self.depth(true), ..Scores::default() };
        for level in 0..LAST {
            scores.levels[usize::from(level)] = self.score(level);
        }
        let multiplier = self.options.multiplier as f64;
        // Bytes flow down: what leaves a level is above the target of the next one too, once that is full. L0 may hold
        // as much as makes it due by size.
        let l0 = bytes_of(self.l0_files().map(|(_, file)| file));
        let mut excess = l0.saturating_sub(self.options.base_bytes) as f64;
        for below in usize::from(self.base)..LEVELS {
            let bytes = self.level_bytes(below) as f64;
            // A merge rewrites what it meets below; it never meets more than the size ratio allows.
            scores.debt_bytes += excess + bytes.min(excess * multiplier);
            excess = (excess + bytes - self.targets[below] as f64).max(0.0);
        }
        scores
    }

    fn dropped(&self) -> Option<CompactionJob> {
        let dropped = |file: &TableMeta| (self.input.is_dropped)(file.index) && !self.is_busy(file);
        let mut inputs: Vec<(u8, Vec<FileNo>)> = Vec::new();
        let mut bytes = 0;
        for level in 0..LEVELS {
            let runs = if level == 0 { self.shape.sublevels.as_slice() } else { &self.shape.levels[level..=level] };
            let files: Vec<&TableMeta> = runs.iter().flatten().copied().filter(|file| dropped(file)).collect();
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
        // What must wait for something unwanted is not urgent.
        let mut due = due.into_iter().map(|(_, level)| level).take_while(|level| wanted(reason(*level)));
        due.find_map(|level| if level == 0 { self.l0_job() } else { self.level_job(level) })
    }

    /// Adds a file of L0 and every older one that must go with it; `None` if one of them is busy.
    fn add_with_older(&self, inputs: &mut Inputs<'a>, sublevel: usize, file: &'a TableMeta) -> Option<()> {
        if inputs.has(file.no) {
            return Some(());
        }
        if self.is_busy(file) {
            return None;
        }
        inputs.upper.push((sublevel, file));
        for (older, run) in self.shape.sublevels[..sublevel].iter().enumerate() {
            for other in overlapping(run, &file.smallest, &file.largest) {
                self.add_with_older(inputs, older, other)?;
            }
        }
        Some(())
    }

    /// Takes in what the upper inputs overlap in the output level; `None` if running jobs are in the way.
    fn add_lower(&self, inputs: &mut Inputs<'a>, output_level: u8) -> Option<()> {
        let (low, high) = hull(inputs.upper.iter().map(|(_, file)| *file))?;
        inputs.lower = overlapping(&self.shape.levels[usize::from(output_level)], low, high).to_vec();
        let (low, high) = hull(inputs.files())?;
        let free = !inputs.lower.iter().any(|file| self.is_busy(file)) && !self.is_written(output_level, low, high);
        free.then_some(())
    }

    /// What a job down from this stack would take.
    fn l0_inputs(&self, stack: &[(usize, &'a TableMeta)]) -> Option<Inputs<'a>> {
        let mut taken: Option<Inputs<'a>> = None;
        for (sublevel, file) in stack {
            let mut more = taken.clone().unwrap_or_default();
            let feasible = self
                .add_with_older(&mut more, *sublevel, file)
                .and_then(|()| self.add_lower(&mut more, self.base))
                .is_some();
            if !feasible || taken.is_some() && more.bytes() > self.options.max_job_bytes {
                break;
            }
            taken = Some(more);
        }
        let mut taken = taken?;
        // Whatever else of L0 lies within the range comes along: it adds nothing to what is rewritten below.
        let (low, high) = hull(taken.files())?;
        for (sublevel, file) in self.l0_files() {
            let within = low <= file.smallest.as_slice() && file.largest.as_slice() <= high;
            if within && !taken.has(file.no) {
                let mut more = taken.clone();
                if self.add_with_older(&mut more, sublevel, file).is_some()
                    && more.bytes() <= self.options.max_job_bytes
                    && hull(more.files()) == Some((low, high))
                {
                    taken = more;
                }
            }
        }
        Some(taken)
    }

    /// True if a job rewrites more below than the size ratio justifies: few bytes on top of many.
    fn is_dear(&self, part: &Inputs<'a>) -> bool {
        let upper = bytes_of(part.upper.iter().map(|(_, file)| *file));
        bytes_of(part.lower.iter().copied()) > upper.saturating_mul(self.options.multiplier)
    }

    fn l0_job(&self) -> Option<CompactionJob> {
        let mut stacks = self.stacks(false);
        let deep = self.depth(false) >= self.options.l0_trigger;
        if !deep {
            // Due by its bytes: the heaviest stack first.
            stacks.sort_by_key(|stack| std::cmp::Reverse(bytes_of(stack.iter().map(|(_, file)| *file))));
        }
        let mut parts: Vec<Inputs<'a>> = Vec::new();
        for (at, stack) in stacks.iter().enumerate() {
            let index = stack[0].1.index;
            if parts.iter().any(|part| part.upper[0].1.index == index) {
                continue;
            }
            // Small indexes share a job, so that a store with many of them is not drowned in tiny jobs.
            let bytes: u64 = parts.iter().map(Inputs::bytes).sum();
            let free = stack.iter().filter(|(_, file)| !self.is_busy(file)).count();
            if !parts.is_empty() && (bytes >= self.options.target_file_bytes || free < 2) {
                break;
            }
            let Some(part) = self.l0_inputs(stack) else { continue };
            if self.can_move(&part, 0, self.base) {
                if parts.is_empty() {
                    return Some(self.job(vec![part], 0, self.base, Reason::L0, Action::Move));
                }
                continue;
            }
            if self.is_dear(&part) {
                if !parts.is_empty() {
                    continue;
                }
                if let Some(job) = deep.then(|| self.within_l0(&stacks[at..])).flatten() {
                    return Some(job);
                }
            }
            if parts.is_empty() || bytes + part.bytes() <= self.options.target_file_bytes {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            return self.within_l0(&stacks);
        }
        Some(self.job(parts, 0, self.base, Reason::L0, Action::Merge))
    }

    /// Merges the newest files of the first stack where that is possible, and of small stacks of other indexes.
    fn within_l0(&self, stacks: &[Vec<(usize, &'a TableMeta)>]) -> Option<CompactionJob> {
        let mut parts: Vec<Inputs<'a>> = Vec::new();
        for stack in stacks {
            let index = stack[0].1.index;
            if parts.iter().any(|part| part.upper[0].1.index == index) {
                continue;
            }
            let Some(part) = self.newest_of(stack) else { continue };
            let bytes = parts.iter().chain([&part]).map(Inputs::bytes).sum::<u64>();
            if parts.is_empty() || bytes <= self.options.target_file_bytes {
                parts.push(part);
            }
        }
        (!parts.is_empty()).then(|| self.job(parts, 0, 0, Reason::IntraL0, Action::Merge))
    }

    /// The newest files of a stack, if merging them into one makes it shallower and keeps the order of ages.
    fn newest_of(&self, stack: &[(usize, &'a TableMeta)]) -> Option<Inputs<'a>> {
        let mut upper: Vec<(usize, &TableMeta)> = Vec::new();
        let mut bytes = 0;
        for (sublevel, file) in stack.iter().rev() {
            bytes += file.file_bytes;
            if self.is_busy(file) || bytes > self.options.max_job_bytes {
                break;
            }
            upper.push((*sublevel, file));
        }
        if upper.len() < self.options.intra_l0_min {
            return None;
        }
        let part = Inputs { upper, lower: Vec::new() };
        let (low, high) = hull(part.files())?;
        let min = part.files().map(|file| file.min_seq).min();
        let max = part.files().map(|file| file.max_seq).max();
        // The output must fit between all other files in age wherever they overlap.
        let fits = self.l0_files().all(|(_, file)| {
            part.has(file.no) || !overlaps(file, low, high) || Some(file.max_seq) < min || Some(file.min_seq) > max
        });
        fits.then_some(part)
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
        let action = if self.can_move(&inputs, level, level + 1) { Action::Move } else { Action::Merge };
        Some(self.job(vec![inputs], level, level + 1, Reason::Size, action))
    }

    fn level_inputs(&self, level: u8, output_level: u8, file: &'a TableMeta) -> Option<Inputs<'a>> {
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

    fn is_garbage(&self, file: &TableMeta) -> bool {
        file.tombstones * 100 > file.entries * self.options.garbage_percent
    }

    fn can_move(&self, inputs: &Inputs<'a>, level: u8, output_level: u8) -> bool {
        let [(_, file)] = inputs.upper.as_slice() else { return false };
        let dense = |level| level >= self.options.dense_from;
        inputs.lower.is_empty()
            && dense(level) == dense(output_level)
            && !self.is_garbage(file)
            // Small flush outputs are better merged with their like than kept for ever.
            && (level > 0 || file.file_bytes >= self.options.target_file_bytes / 4)
    }

    fn garbage(&self) -> Option<CompactionJob> {
        let mut found: Vec<(u64, u8, usize, &'a TableMeta)> = Vec::new();
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
            Some(self.job(vec![inputs], level, output_level, Reason::Garbage, Action::Merge))
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
        parts.sort_by(|a, b| a.upper[0].1.index.cmp(&b.upper[0].1.index));
        let mut upper: Vec<(usize, &TableMeta)> = parts.iter().flat_map(|part| part.upper.iter().copied()).collect();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn options() -> PickOptions {
        PickOptions { base_bytes: 100, target_file_bytes: 20, max_job_bytes: 400, ..PickOptions::default() }
    }

    /// `d` is key "d" of index 1, `3d` of index 3.
    fn parse_key(text: &str) -> Vec<u8> {
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let index = text[..split].parse().unwrap_or(1);
        [&IndexId(index).prefix()[..], &text.as_bytes()[split..]].concat()
    }

    fn show_key(key: &[u8]) -> String {
        let index = IndexId::of(key).0;
        let name = String::from_utf8_lossy(&key[4..]);
        if index == 1 { name.into_owned() } else { format!("{index}{name}") }
    }

    /// `7[a-c]*20~50@3-9`: number, keys, bytes, percent of tombstones, sequence numbers.
    fn parse_file(word: &str) -> TableMeta {
        let (no, rest) = word.split_once('[').expect(word);
        let (keys, rest) = rest.split_once(']').expect(word);
        let (small, large) = keys.split_once('-').unwrap_or((keys, keys));
        let no: u64 = no.parse().expect(word);
        let attribute = |mark: char| {
            let from = rest.find(mark)? + 1;
            let end = rest[from..].find(['*', '~', '@']).map_or(rest.len(), |n| from + n);
            Some(&rest[from..end])
        };
        let number = |mark, default: u64| attribute(mark).map_or(default, |n: &str| n.parse().expect(word));
        let (min, max) = attribute('@').map_or((no, no), |seqs| {
            let (min, max) = seqs.split_once('-').expect(word);
            (min.parse().expect(word), max.parse().expect(word))
        });
        let smallest = parse_key(small);
        TableMeta {
            no: FileNo(no),
            index: IndexId::of(&smallest),
            file_bytes: number('*', 10),
            smallest,
            largest: parse_key(large),
            min_seq: SeqNo(min),
            max_seq: SeqNo(max),
            entries: 100,
            tombstones: number('~', 0),
            raw_bytes: number('*', 10),
        }
    }

    fn show_job(job: &CompactionJob) -> String {
        let inputs: Vec<String> = job
            .inputs
            .iter()
            .map(|(level, files)| {
                let files: Vec<String> = files.iter().map(|no| no.to_string()).collect();
                format!("L{level}: {}", files.join(" "))
            })
            .collect();
        let ranges: Vec<String> =
            job.ranges.iter().map(|(low, high)| format!("{}-{}", show_key(low), show_key(high))).collect();
        let bottom = if job.bottommost { " bottommost" } else { "" };
        format!(
            "{:?} {:?} ({}) to L{} [{}]{bottom}",
            job.reason,
            job.action,
            inputs.join("; "),
            job.output_level,
            ranges.join(" ")
        )
    }

    /// Cases are separated by blank lines: lines of levels, running jobs and settings, then what is expected.
    #[test]
    fn table() {
        let text = include_str!("../../testdata/compaction_pick.txt");
        let (mut cases, mut wrong) = (0, Vec::new());
        for case in text.split("\n\n") {
            let lines: Vec<&str> =
                case.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect();
            if lines.is_empty() {
                continue;
            }
            let mut files: Vec<(u8, usize, TableMeta)> = Vec::new();
            let mut running: Vec<CompactionJob> = Vec::new();
            let (mut oldest_read, mut dropped, mut ahead_of) = (SeqNo(1000), None, None);
            let mut checked = 0;
            for line in &lines {
                let (name, rest) = line.split_once(':').expect(line);
                let rest = rest.trim();
                let shape = || {
                    let mut shape = Shape::default();
                    for (level, sublevel, file) in &files {
                        if *level == 0 {
                            shape.sublevels.resize(shape.sublevels.len().max(sublevel + 1), Vec::new());
                            shape.sublevels[*sublevel].push(file);
                        } else {
                            shape.levels[usize::from(*level)].push(file);
                        }
                    }
                    shape
                };
                let all: Vec<&CompactionJob> = running.iter().collect();
                match name.trim() {
                    "oldest read" => oldest_read = SeqNo(rest.parse().expect(line)),
                    "ahead of" => {
                        ahead_of = match rest {
                            "L0" => Some(Reason::L0),
                            "Size" => Some(Reason::Size),
                            "Garbage" => Some(Reason::Garbage),
                            _ => panic!("{line}"),
                        }
                    }
                    "dropped" => dropped = Some(IndexId(rest.parse().expect(line))),
                    // Files, output level, range: `running: 4 5 to 6 a-f`
                    "running" => {
                        let (inputs, output) = rest.split_once(" to ").expect(line);
                        let inputs = inputs.split_whitespace().map(|no| FileNo(no.parse().expect(line))).collect();
                        let (level, range) = output.split_once(' ').expect(line);
                        let (low, high) = range.split_once('-').expect(line);
                        running.push(CompactionJob {
                            inputs: vec![(0, inputs)],
                            output_level: level.parse().expect(line),
                            reason: Reason::Size,
                            action: Action::Merge,
                            bottommost: false,
                            ranges: vec![(parse_key(low), parse_key(high))],
                            bytes: 0,
                        });
                    }
                    "job" | "scores" => {
                        checked += 1;
                        let shape = shape();
                        let input = PickInput {
                            shape: &shape,
                            running: &all,
                            oldest_read,
                            is_dropped: &|index| Some(index) == dropped,
                            ahead_of,
                        };
                        let found = if name.trim() == "job" {
                            pick(&input, &options()).map_or("none".to_owned(), |job| show_job(&job))
                        } else {
                            let scores = scores(&input, &options());
                            let mut out = format!("base={} sublevels={}", scores.base, scores.sublevels);
                            for level in 0..LEVELS {
                                if scores.levels[level] > 0.0 {
                                    out += &format!(" L{level}={:.2}", scores.levels[level]);
                                }
                            }
                            for level in 0..LEVELS {
                                if scores.targets[level] > 0 {
                                    out += &format!(" T{level}={}", scores.targets[level]);
                                }
                            }
                            out + &format!(" debt={:.0}", scores.debt_bytes)
                        };
                        if found != rest {
                            wrong.push(format!("{case}\nfound: {found}"));
                        }
                    }
                    level => {
                        let (level, sublevel) =
                            level.strip_prefix('L').expect(line).split_once('.').unwrap_or((&level[1..], "0"));
                        let (level, sublevel) = (level.parse().expect(line), sublevel.parse().expect(line));
                        files.extend(rest.split_whitespace().map(|word| (level, sublevel, parse_file(word))));
                    }
                }
            }
            assert!(checked > 0, "nothing expected in\n{case}");
            cases += 1;
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        assert!(cases > 15);
    }

    /// A file and the newest number of each of its keys.
    type SimFile = (TableMeta, BTreeMap<Vec<u8>, u64>);

    /// A tree of such files, run by the picker.
    #[derive(Default)]
    struct Sim {
        l0: Vec<SimFile>,
        levels: [Vec<SimFile>; LEVELS],
        next: u64,
        newest: BTreeMap<Vec<u8>, u64>,
    }

    impl Sim {
        fn file(&mut self, data: BTreeMap<Vec<u8>, u64>) -> SimFile {
            self.next += 1;
            let smallest = data.keys().next().unwrap().clone();
            let meta = TableMeta {
                no: FileNo(self.next),
                index: IndexId::of(&smallest),
                file_bytes: data.len() as u64 * 2,
                smallest,
                largest: data.keys().next_back().unwrap().clone(),
                min_seq: SeqNo(*data.values().min().unwrap()),
                max_seq: SeqNo(*data.values().max().unwrap()),
                entries: data.len() as u64,
                tombstones: 0,
                raw_bytes: 0,
            };
            (meta, data)
        }

        fn sublevels(&self) -> Vec<Vec<&TableMeta>> {
            let mut files: Vec<&TableMeta> = self.l0.iter().map(|(meta, _)| meta).collect();
            files.sort_by_key(|meta| meta.max_seq);
            let mut sublevels: Vec<Vec<&TableMeta>> = Vec::new();
            for file in files {
                let above = sublevels
                    .iter()
                    .rposition(|run| run.iter().any(|other| overlaps(other, &file.smallest, &file.largest)))
                    .map_or(0, |at| at + 1);
                if above == sublevels.len() {
                    sublevels.push(Vec::new());
                }
                sublevels[above].push(file);
            }
            for run in &mut sublevels {
                run.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            }
            sublevels
        }

        fn shape(&self) -> Shape<'_> {
            Shape {
                sublevels: self.sublevels(),
                levels: std::array::from_fn(|i| self.levels[i].iter().map(|f| &f.0).collect()),
            }
        }

        fn apply(&mut self, job: &CompactionJob) {
            let taken: HashSet<FileNo> = job.files().collect();
            let mut merged: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let mut moved = Vec::new();
            let mut found = 0;
            for run in std::iter::once(&mut self.l0).chain(&mut self.levels) {
                run.retain(|file| {
                    if !taken.contains(&file.0.no) {
                        return true;
                    }
                    found += 1;
                    if job.action == Action::Move {
                        moved.push(file.clone());
                    }
                    for (key, seq) in &file.1 {
                        let newest = merged.entry(key.clone()).or_insert(*seq);
                        *newest = (*newest).max(*seq);
                    }
                    false
                });
            }
            assert_eq!(found, taken.len(), "inputs are in the tree");
            let mut outputs = moved;
            if job.action == Action::Merge {
                let mut data: Vec<(Vec<u8>, u64)> = merged.into_iter().collect();
                while !data.is_empty() {
                    let index = IndexId::of(&data[0].0);
                    let same = data.iter().take_while(|(key, _)| IndexId::of(key) == index).count();
                    // Within L0 the output is one file; L0 files are cut nowhere here.
                    let cut = if job.output_level == 0 { same } else { same.min(10) };
                    let rest = data.split_off(cut);
                    outputs.push(self.file(data.into_iter().collect()));
                    data = rest;
                }
            }
            for output in outputs {
                let inside =
                    job.ranges.iter().any(|(low, high)| *low <= output.0.smallest && output.0.largest <= *high);
                assert!(inside, "outputs stay within the announced ranges");
                if job.output_level == 0 {
                    self.l0.push(output)
                } else {
                    self.levels[usize::from(job.output_level)].push(output)
                }
            }
            for run in &mut self.levels {
                run.sort_by(|a, b| a.0.smallest.cmp(&b.0.smallest));
            }
        }

        fn check(&self) {
            for run in &self.levels {
                assert!(run.windows(2).all(|pair| pair[0].0.largest < pair[1].0.smallest), "a level overlaps");
            }
            let sublevels = self.sublevels();
            for (key, newest) in &self.newest {
                let l0 = sublevels
                    .iter()
                    .rev()
                    .flatten()
                    .find_map(|meta| self.l0.iter().find(|file| file.0.no == meta.no).unwrap().1.get(key));
                let found = l0.or_else(|| self.levels.iter().flatten().find_map(|file| file.1.get(key)));
                assert_eq!(found, Some(newest), "newest version of {key:?} is found first");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]
        /// Flushes and up to four jobs at a time, finishing in any order, never bring older data above newer data or
        /// overlap in a level; and the work ends.
        #[test]
        fn concurrent_jobs_keep_the_tree_right(
            steps in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), prop::collection::vec((0u32..3, 0u8..60), 1..25)), 1..150),
        ) {
            let mut sim = Sim::default();
            let mut running: Vec<CompactionJob> = Vec::new();
            let options = PickOptions {
                base_bytes: 40,
                target_file_bytes: 20,
                max_job_bytes: 120,
                l0_trigger: 2,
                intra_l0_min: 2,
                multiplier: 3,
                ..PickOptions::default()
            };
            let mut seq = 0;
            let start = |sim: &Sim, running: &[CompactionJob]| {
                let all: Vec<&CompactionJob> = running.iter().collect();
                let shape = sim.shape();
                let input = PickInput { shape: &shape, running: &all, oldest_read: SeqNo::MAX, is_dropped: &|_| false, ahead_of: None };
                pick(&input, &options)
            };
            for (what, which, keys) in steps {
                match what {
                    0..=3 => {
                        let mut by_index: BTreeMap<u32, BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
                        for (index, key) in keys {
                            seq += 1;
                            let key = [&index.to_be_bytes()[..], &[key]].concat();
                            sim.newest.insert(key.clone(), seq);
                            by_index.entry(index).or_default().insert(key, seq);
                        }
                        for data in by_index.into_values() {
                            let file = sim.file(data);
                            sim.l0.push(file);
                        }
                    }
                    4..=7 if running.len() < 4 => running.extend(start(&sim, &running)),
                    _ if !running.is_empty() => {
                        let job = running.swap_remove(which.index(running.len()));
                        sim.apply(&job);
                    }
                    _ => {}
                }
                sim.check();
            }
            for job in running.drain(..) {
                sim.apply(&job);
            }
            let mut jobs = 0;
            while let Some(job) = start(&sim, &[]) {
                sim.apply(&job);
                sim.check();
                jobs += 1;
                prop_assert!(jobs < 2000, "work ends");
            }
            let shape = sim.shape();
            let input = PickInput { shape: &shape, running: &[], oldest_read: SeqNo::MAX, is_dropped: &|_| false, ahead_of: None };
            let quiet = scores(&input, &options);
            prop_assert!(quiet.levels.iter().all(|score| *score < 1.0), "{quiet:?}");
        }
    }
}
