//! How fast users write: the log's bytes in a second, from looks at its counter a second or so apart.
//!
//! Looks that follow each other sooner say nothing, and the rate of before stands. Rejected: a mean over many seconds, which
//! would keep merges slow long after a burst of writes has begun.

/// How fast a counter grows.
#[derive(Default)]
pub(crate) struct RateMeter {
    counter: u64,
    since_us: u64,
}

impl RateMeter {
    /// Its meter in a second; none if it was asked less than half a second ago.
    pub fn per_second(&mut self, counter: u64, now_us: u64) -> Option<u64> {
        let elapsed = now_us.saturating_sub(self.since_us);
        let grown = counter.saturating_sub(self.counter);
        if elapsed < 500_000 {
            return None;
        }
        *self = RateMeter { counter, since_us: now_us };
        Some((u128::from(grown) * 1_000_000 / u128::from(elapsed)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_in_a_second() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.per_second(100, 400_000), None);
        assert_eq!(meter.per_second(100, 500_000), Some(200));
        assert_eq!(meter.per_second(1100, 999_999), None);
        assert_eq!(meter.per_second(1100, 2_500_000), Some(500));
        // A clock or a counter that stands still, or goes back, is no growth.
        assert_eq!(meter.per_second(1100, 2_500_000), None);
        assert_eq!(meter.per_second(900, 4_500_000), Some(0));
    }
}
