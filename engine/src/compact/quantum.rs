//! How long a thread goes on with a merge before it looks for more urgent work.
//!
//! A merge is done in slices (`compact::merge`), too short to look at the whole tree after each. A *quantum*, as a processor's
//! scheduler knows it, is as many of them as more urgent work may have to wait for. After it the thread lays the merge down and
//! takes what is most urgent by now. Nothing of the merge is lost, and it goes on where it was. A quantum ends by bytes as well as
//! by time, so that tests with a clock that stands still see its end, too.
//!
//! Rejected: giving up a long merge for an urgent one (its work is lost, and under steady pressure it never ends); merges
//! that are small by construction (a file with much overlap below would have to be cut first).

/// Input bytes of a quantum.
const BYTES: u64 = 64 << 20;
/// Microseconds of a quantum: what urgent work may have to wait.
const MICROSECONDS: u64 = 100_000;

/// Measures one quantum.
#[derive(Clone, Copy, Debug)]
pub struct Quantum {
    began_us: u64,
    bytes: u64,
}

impl Quantum {
    /// A quantum that begins now.
    pub fn begin(now_us: u64) -> Quantum {
        Quantum { began_us: now_us, bytes: 0 }
    }

    /// Counts the input of a slice; true if the quantum is over.
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
        let mut quantum = Quantum::begin(7);
        assert!(!quantum.is_over(BYTES - 1, 7));
        assert!(quantum.is_over(1, 7));
        let mut quantum = Quantum::begin(7);
        assert!(!quantum.is_over(1, MICROSECONDS + 6));
        assert!(quantum.is_over(0, MICROSECONDS + 7));
        // A clock that is behind ends nothing.
        assert!(!Quantum::begin(7).is_over(1, 0));
    }
}
