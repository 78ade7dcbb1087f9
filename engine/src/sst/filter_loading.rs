//! Adaptive filter loading: whether a filter that is not in memory is worth a read.
//!
//! Where look-ups find their keys, as mostly in the last level, a filter costs a read and memory and answers nothing; where
//! they do not, it spares a read each time. An SST learns which it is from look-ups that went by without their filter.
//!
//! Rejected: no filters in the last level at all (keys that are nowhere would cost a read each); a rate measured over all
//! look-ups (a counter that threads share, in each of them).

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Do look-ups in an SST find their keys? Learned where it matters, at look-ups whose filter is not in memory.
#[derive(Default)]
pub(super) struct FilterLoading(AtomicU8);

impl FilterLoading {
    /// A key that is not there speaks for the filters as strongly as so many that are there speak against them: a filter
    /// costs a read once, and spares one for each absent key as long as it stays in memory.
    const STEP: u8 = 8;
    const MAX: u8 = 64;

    /// Is a filter worth a read?
    pub fn pays(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    /// A look-up found its key, or did not. A lost update does no harm.
    pub fn learn(&self, found: bool) {
        let absent = self.0.load(Relaxed);
        let learned =
            if found { absent.saturating_sub(1) } else { (absent + FilterLoading::STEP).min(FilterLoading::MAX) };
        if learned != absent {
            self.0.store(learned, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_keys_count_more_than_found_ones() {
        let loading = FilterLoading::default();
        let learn = |found: bool, times: usize| {
            (0..times).for_each(|_| loading.learn(found));
            loading.pays()
        };
        assert!(!learn(true, 1000));
        assert!(learn(false, 1));
        assert!(learn(true, 7));
        assert!(!learn(true, 1));
        assert!(learn(false, 1000));
        assert!(learn(true, 63));
        assert!(!learn(true, 1));
    }
}
