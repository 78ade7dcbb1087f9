//! Jobs out of L0: stacks of files, oldest first.

use super::{Action, CompactionJob, Inputs, Picker, Reason, bytes_of, hull, overlapping, overlaps};
use crate::base::IndexId;
use crate::sst::SstMeta;

/// Whether files lie among the indexes of one of these parts of a job.
fn meets_any<'m>(parts: &[Inputs<'_>], files: impl Iterator<Item = &'m SstMeta>) -> bool {
    let indexes = |low: &[u8], high: &[u8]| (IndexId::of(low), IndexId::of(high));
    let Some((first, last)) = hull(files).map(|(low, high)| indexes(low, high)) else { return false };
    parts.iter().filter_map(|part| hull(part.files())).any(|(low, high)| {
        let (from, to) = indexes(low, high);
        from <= last && first <= to
    })
}

impl<'a> Picker<'a> {
    /// The stack of L0 files (oldest first) over the smallest key of each file; the deepest free stack first. The
    /// deepest place of all is over one of these keys.
    fn stacks(&self, with_busy: bool) -> Vec<Vec<(usize, &'a SstMeta)>> {
        let mut files: Vec<(usize, &SstMeta)> = self.l0_files().collect();
        files.sort_by(|a, b| a.1.smallest.cmp(&b.1.smallest));
        let mut stacks = Vec::with_capacity(files.len());
        // Files that begin at or before the place and may reach it.
        let mut open: Vec<(usize, &SstMeta)> = Vec::new();
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
            |stack: &[(usize, &SstMeta)]| stack.iter().filter(|(_, file)| with_busy || !self.is_busy(file)).count();
        stacks.sort_by(|a, b| depth(b).cmp(&depth(a)).then_with(|| a[0].1.no.cmp(&b[0].1.no)));
        stacks
    }

    pub(super) fn depth(&self, with_busy: bool) -> usize {
        let stacks = self.stacks(with_busy);
        let deepest = stacks.first().into_iter().flatten();
        deepest.filter(|(_, file)| with_busy || !self.is_busy(file)).count()
    }

    /// Due by its depth, what jobs have taken not counted.
    fn is_deep(&self) -> bool {
        self.depth(false) >= self.options.l0_trigger
    }

    /// Adds a file of L0 and every older one that must go with it; `None` if one of them is busy.
    pub(super) fn add_with_older(&self, inputs: &mut Inputs<'a>, sublevel: usize, file: &'a SstMeta) -> Option<()> {
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

    /// What a job down from this stack would take.
    fn l0_inputs(&self, stack: &[(usize, &'a SstMeta)]) -> Option<Inputs<'a>> {
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

    pub(super) fn l0_job(&self) -> Option<CompactionJob> {
        let mut stacks = self.stacks(false);
        let deep = self.is_deep();
        if !deep {
            // Due by its bytes: the heaviest stack first.
            stacks.sort_by_key(|stack| std::cmp::Reverse(bytes_of(stack.iter().map(|(_, file)| *file))));
        }
        let mut parts: Vec<Inputs<'a>> = Vec::new();
        for (at, stack) in stacks.iter().enumerate() {
            if meets_any(&parts, stack.iter().map(|(_, file)| *file)) {
                continue;
            }
            // Small indexes share a job, so that a store with many of them is not drowned in tiny jobs.
            let bytes: u64 = parts.iter().map(Inputs::bytes).sum();
            let free = stack.iter().filter(|(_, file)| !self.is_busy(file)).count();
            if !parts.is_empty() && (bytes >= self.options.target_file_bytes || free < 2) {
                break;
            }
            let Some(part) = self.l0_inputs(stack) else { continue };
            if meets_any(&parts, part.files()) {
                continue;
            }
            if self.can_move(&part, 0) {
                if parts.is_empty() {
                    return Some(self.job(vec![part], 0, self.base, Reason::L0, Action::Move));
                }
                continue;
            }
            if self.is_dear(&part) {
                if !parts.is_empty() {
                    continue;
                }
                if let Some(job) = deep.then(|| self.within_l0(&stacks[at..], self.options.max_job_bytes)).flatten() {
                    return Some(job);
                }
            }
            if parts.is_empty() || bytes + part.bytes() <= self.options.target_file_bytes {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            return self.within_l0(&stacks, self.options.max_job_bytes);
        }
        Some(self.job(parts, 0, self.base, Reason::L0, Action::Merge))
    }

    /// L0 is too deep and has to wait for its turn: small files of it are merged into one meanwhile.
    pub(super) fn gather(&self) -> Option<CompactionJob> {
        self.is_deep().then(|| self.within_l0(&self.stacks(false), self.options.target_file_bytes)).flatten()
    }

    /// Merges the newest files, together of no more than `limit` bytes, of the first stack where that is possible, and of small
    /// stacks of other indexes.
    fn within_l0(&self, stacks: &[Vec<(usize, &'a SstMeta)>], limit: u64) -> Option<CompactionJob> {
        let mut parts: Vec<Inputs<'a>> = Vec::new();
        for stack in stacks {
            let Some(part) = self.newest_of(stack, limit).filter(|part| !meets_any(&parts, part.files())) else {
                continue;
            };
            let bytes = parts.iter().chain([&part]).map(Inputs::bytes).sum::<u64>();
            if parts.is_empty() || bytes <= self.options.target_file_bytes {
                parts.push(part);
            }
        }
        (!parts.is_empty()).then(|| self.job(parts, 0, 0, Reason::IntraL0, Action::Merge))
    }

    /// The newest files of a stack, if merging them into one makes it shallower and keeps the order of ages.
    fn newest_of(&self, stack: &[(usize, &'a SstMeta)], limit: u64) -> Option<Inputs<'a>> {
        let mut upper: Vec<(usize, &SstMeta)> = Vec::new();
        let mut bytes = 0;
        for (sublevel, file) in stack.iter().rev() {
            bytes += file.file_bytes;
            if self.is_busy(file) || bytes > limit {
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
}
