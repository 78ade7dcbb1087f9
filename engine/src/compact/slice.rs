//! The slices of a merge.
//!
//! A merge asks after each piece of work whether its slice is over; if so, its thread looks up and first does what is
//! more urgent by now, in the middle of the merge and on top of it. Nothing of the merge is lost, and it goes on where
//! it was. A slice ends by bytes as well as by time, so that tests with a clock that stands still see slices, too.
//!
//! Rejected: giving up a long merge for an urgent one (its work is lost, and under steady pressure it never ends); merges
//! that are small by construction (a file with much overlap below would have to be cut first).

/// Input bytes of a slice.
const BYTES: u64 = 64 << 20;
/// Microseconds of a slice: what urgent work may have to wait.
const MICROSECONDS: u64 = 100_000;

/// Measures one slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    began_us: u64,
    bytes: u64,
}

impl Slice {
    /// A slice that begins now.
    pub fn begin(now_us: u64) -> Slice {
        Slice { began_us: now_us, bytes: 0 }
    }

    /// Counts input; true if the slice is over.
    pub fn is_over(&mut self, bytes: u64, now_us: u64) -> bool {
        self.bytes += bytes;
        self.bytes >= BYTES || now_us.saturating_sub(self.began_us) >= MICROSECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_by_bytes_or_by_time() {
        let mut slice = Slice::begin(7);
        assert!(!slice.is_over(BYTES - 1, 7));
        assert!(slice.is_over(1, 7));
        let mut slice = Slice::begin(7);
        assert!(!slice.is_over(1, MICROSECONDS + 6));
        assert!(slice.is_over(0, MICROSECONDS + 7));
        // A clock that is behind ends nothing.
        assert!(!Slice::begin(7).is_over(1, 0));
    }
}
