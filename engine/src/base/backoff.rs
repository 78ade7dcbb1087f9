//! Pauses between attempts that fail: each is twice as long as the one before, up to a bound, and a success makes them short again.
//!
//! Times are microseconds of any one clock, told by the caller. Rejected: pauses with a random part. Each user has one thread
//! that tries, so nobody comes at the same moment as others.

/// See the module. Nothing has failed yet in a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    first_us: u64,
    longest_us: u64,
    /// The pause after the last failure; 0 if there was none since the last success.
    pause_us: u64,
    until_us: u64,
}

impl Backoff {
    /// With the first and the longest pause in microseconds.
    pub const fn new(first_us: u64, longest_us: u64) -> Backoff {
        Backoff { first_us, longest_us, pause_us: 0, until_us: 0 }
    }

    /// An attempt failed at `now_us`.
    pub fn failed(&mut self, now_us: u64) {
        self.pause_us = match self.pause_us {
            0 => self.first_us,
            pause => pause.saturating_mul(2).min(self.longest_us),
        };
        self.until_us = now_us.saturating_add(self.pause_us);
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        *self = Backoff::new(self.first_us, self.longest_us);
    }

    /// Whether the pause is over.
    pub fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.until_us
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(1, 32);
        assert!(backoff.is_due(0));
        for _ in 0..2 {
            let mut now = 100;
            for pause in [1, 2, 4, 8, 16, 32, 32, 32] {
                backoff.failed(now);
                assert!(!backoff.is_due(now + pause - 1) && backoff.is_due(now + pause));
                now += pause;
            }
            backoff.succeeded();
            assert!(backoff.is_due(0));
        }
        let mut backoff = Backoff::new(u64::MAX / 2, u64::MAX);
        (0..5).for_each(|_| backoff.failed(u64::MAX - 1));
        assert!(!backoff.is_due(u64::MAX - 1) && backoff.is_due(u64::MAX));
    }
}
