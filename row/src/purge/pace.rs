//! When the purge works: pure functions of how long it has worked.
//!
//! It takes a quarter of the time of one thread at most, whatever a batch costs: a slow disk makes its batches longer, and its pauses
//! with them. A pass through a table without an index in the order in which rows expire reads all of it, and comes again after twenty times
//! as long.

/// Shortest time between two passes through a table whose expired rows lie side by side in an index.
pub(super) const ORDERED_REST_US: u64 = 5_000_000;
/// And through any other.
pub(super) const SCAN_REST_US: u64 = 60_000_000;
/// After a failure.
pub(super) const FAILED_REST_US: u64 = 60_000_000;
/// Where somebody else was at work on tables.
pub(super) const BUSY_REST_US: u64 = 100_000;

/// How long it pauses after a batch that took `busy_us`.
pub(super) fn pause_us(busy_us: u64) -> u64 {
    (busy_us * 3).clamp(1_000, 10_000_000)
}

/// How long a table rests after a pass whose batches took `busy_us` together.
pub(super) fn rest_us(is_ordered: bool, busy_us: u64) -> u64 {
    let least = if is_ordered { ORDERED_REST_US } else { SCAN_REST_US };
    least.max(busy_us.saturating_mul(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_the_work() {
        assert_eq!(
            [0, 100, 4_000, 1_000_000, u64::MAX / 8].map(pause_us),
            [1_000, 1_000, 12_000, 3_000_000, 10_000_000]
        );
        assert_eq!([0, 1_000_000].map(|busy| rest_us(true, busy)), [5_000_000, 20_000_000]);
        assert_eq!([0, 10_000_000].map(|busy| rest_us(false, busy)), [60_000_000, 200_000_000]);
    }
}
