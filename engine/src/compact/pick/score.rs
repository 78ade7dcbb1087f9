//! How full the levels are: targets, scores, debt.

use super::{LAST, LEVELS, Picker, Scores, bytes_of};
use crate::sst::SstMeta;

impl<'a> Picker<'a> {
    fn level_bytes(&self, level: usize) -> u64 {
        bytes_of(self.shape.levels[level].iter().copied())
    }

    pub(super) fn set_targets(&mut self) {
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

    pub(super) fn score(&self, level: u8) -> f64 {
        let free = |files: &mut dyn Iterator<Item = &'a SstMeta>| -> u64 {
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

    pub(super) fn scores(&self) -> Scores {
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
}
