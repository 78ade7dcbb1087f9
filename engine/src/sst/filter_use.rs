//! Adaptive filters: whether a filter that is not in memory is worth a read, and one that is worth a look.
//!
//! Where look-ups find their keys, as mostly in the last level, a filter costs a read, memory and a look and answers nothing;
//! where they do not, it spares a read each time. An SST learns which it is from its look-ups: from those that went by without
//! their filter whether it should be read, from filters that deny nothing for long that they need not be asked.
//!
//! Rejected: no filters in the last level at all (keys that are nowhere would cost a read each); a rate measured over all
//! look-ups (a counter that threads share, in each of them).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16};

/// Do look-ups in an SST find their keys? Learned where it matters: at look-ups whose filter is not in memory or was not asked, and at
/// filters that were asked, until they have admitted enough. A lost update does no harm.
#[derive(Default)]
pub(super) struct FilterUse {
    /// Above 0: look-ups without a filter have found nothing of late.
    absent: AtomicU8,
    /// Keys that filters have admitted since one was not there.
    admitted: AtomicU16,
}

impl FilterUse {
    /// A key that is not there speaks for the filters as strongly as so many that are there speak against them: a filter
    /// costs a read once, and spares one for each absent key as long as it stays in memory.
    const STEP: u8 = 8;
    const MAX: u8 = 64;
    /// A key that is not there costs a block without its filter, perhaps a read, as much as some hundred looks at filters. After so
    /// many keys in a row that filters have admitted the next absent one is hardly nearer than that.
    const ADMITTED: u16 = 1000;

    /// Is a filter worth a read?
    pub fn pays(&self) -> bool {
        self.absent.load(Relaxed) > 0
    }

    /// Is a filter in memory worth a look?
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.admitted.load(Relaxed) < FilterUse::ADMITTED
    }

    /// A filter was asked, and said this.
    #[inline]
    pub fn told(&self, admits: bool) {
        let admitted = self.admitted.load(Relaxed);
        let learned = if admits { admitted.saturating_add(1) } else { 0 };
        if learned != admitted {
            self.admitted.store(learned, Relaxed);
        }
    }

    /// A look-up without a filter found its key, or did not.
    #[inline]
    pub fn learn(&self, found: bool) {
        if !found {
            self.told(false);
        }
        let absent = self.absent.load(Relaxed);
        let learned = if found { absent.saturating_sub(1) } else { (absent + FilterUse::STEP).min(FilterUse::MAX) };
        if learned != absent {
            self.absent.store(learned, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_keys_count_more_than_found_ones() {
        let loading = FilterUse::default();
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

    #[test]
    fn a_filter_that_denies_nothing_for_long_is_asked_no_more_until_a_key_is_absent() {
        let loading = FilterUse::default();
        let tell = |admits: bool, times: usize| {
            (0..times).for_each(|_| loading.told(admits));
            loading.is_asked()
        };
        assert!(tell(true, 999));
        assert!(tell(false, 1));
        assert!(tell(true, 999));
        assert!(!tell(true, 1));
        loading.learn(true);
        assert!(!loading.is_asked());
        loading.learn(false);
        assert!(loading.is_asked());
        assert!(tell(true, 999));
    }
}
