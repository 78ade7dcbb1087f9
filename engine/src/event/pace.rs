//! When the opening and the closing of a store say how far they are.
//!
//! What takes less than ten seconds says nothing; what takes longer says so each ten seconds. How long it will take is told by the rate of
//! the last interval: the work is not equal from beginning to end, and somebody who waits wants to know how it goes now. Pure
//! decisions; times are microseconds of any one clock, amounts are bytes.

/// From the beginning to the first time, and from one time to the next.
const EVERY_US: u64 = 10_000_000;

/// How far work is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reached {
    /// What is done.
    pub done: u64,
    /// What there is to do in all.
    pub of: u64,
    /// Microseconds since it began.
    pub us: u64,
    /// Microseconds that are left at the rate of the last seconds; `None` if nothing was done in them.
    pub left_us: Option<u64>,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    begun_us: u64,
    told_us: u64,
    told_done: u64,
}

impl Pace {
    /// Work that begins now.
    pub fn begin(now_us: u64) -> Pace {
        Pace { begun_us: now_us, told_us: now_us, told_done: 0 }
    }

    /// What is to be told now, if anything. `of` may change from one look to the next, and be less than what is done.
    pub fn look(&mut self, now_us: u64, done: u64, of: u64) -> Option<Reached> {
        let interval_us = now_us.saturating_sub(self.told_us);
        if interval_us < EVERY_US {
            return None;
        }
        let progress = done.saturating_sub(self.told_done);
        let left = u128::from(of.saturating_sub(done));
        let left_us = (left * u128::from(interval_us)).checked_div(u128::from(progress));
        (self.told_us, self.told_done) = (now_us, done);
        Some(Reached {
            done: done.min(of),
            of,
            us: now_us.saturating_sub(self.begun_us),
            left_us: left_us.map(|us| u64::try_from(us).unwrap_or(u64::MAX)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn short_work_says_nothing_and_long_work_speaks_each_ten_seconds() {
        let mut pace = Pace::begin(100 * S);
        // At a rate of 5 bytes in a second, looked at four times in a second.
        let told: Vec<(u64, Reached)> = (0..=4 * 35)
            .filter_map(|quarter| {
                let now = 100 * S + quarter * S / 4;
                let reached = pace.look(now, quarter * 5 / 4, 175)?;
                Some((now / S - 100, reached))
            })
            .collect();
        let at = |s: u64| (s, Reached { done: 5 * s, of: 175, us: s * S, left_us: Some((35 - s) * S) });
        assert_eq!(told, [at(10), at(20), at(30)]);
    }

    #[test]
    fn the_time_that_is_left_follows_the_last_interval() {
        let mut pace = Pace::begin(0);
        let mut left = |now_s: u64, done, of| pace.look(now_s * S, done, of).map(|reached| reached.left_us);
        assert_eq!(left(10, 100, 1000), Some(Some(90 * S)));
        // Ten times as fast; a late look.
        assert_eq!(left(20, 600, 1100), Some(Some(10 * S)));
        // Nothing moves.
        assert_eq!(left(35, 600, 1100), Some(None));
        assert_eq!(left(44, 600, 1100), None);
        // More was done than there was to do.
        assert_eq!(left(45, 1200, 1100), Some(Some(0)));
        // A clock that goes back is no time.
        assert_eq!(left(1, 1200, 1100), None);
        let mut pace = Pace::begin(0);
        assert_eq!(pace.look(u64::MAX, 1, u64::MAX).and_then(|reached| reached.left_us), Some(u64::MAX));
    }
}
