//! Whether a filter that is not in memory is worth a read.
//!
//! Where look-ups find their keys, as mostly in the last level, a filter costs a read and memory and answers nothing; where
//! they do not, it spares a read each time. A table learns which it is from look-ups that went by without their filter.
//!
//! Rejected: no filters in the last level at all (keys that are nowhere would cost a read each); a rate measured over all
//! look-ups (a counter that threads share, in each of them).

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Do look-ups in a table find their keys? Learned where it matters, at look-ups whose filter is not in memory.
#[derive(Default)]
pub(super) struct Doubt(AtomicU8);

impl Doubt {
    /// A key that is not there speaks for the filters as strongly as so many that are there speak against them: a filter
    /// costs a read once, and spares one for each absent key as long as it stays in memory.
    const STEP: u8 = 8;
    const MAX: u8 = 64;

    /// Is a filter worth a read?
    pub fn is_any(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    /// A look-up found its key, or did not. A lost update does no harm.
    pub fn learn(&self, found: bool) {
        let doubt = self.0.load(Relaxed);
        let learned = if found { doubt.saturating_sub(1) } else { (doubt + Doubt::STEP).min(Doubt::MAX) };
        if learned != doubt {
            self.0.store(learned, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_is_sown_fast_and_dispelled_slowly() {
        let doubt = Doubt::default();
        let learn = |found: bool, times: usize| {
            (0..times).for_each(|_| doubt.learn(found));
            doubt.is_any()
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
