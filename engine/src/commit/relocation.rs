//! Relocation of prepare records: which of them are written again, so that they do not hold back the log. Pure.
//!
//! A prepared transaction may wait for its decision for days (a user's XA transaction), and recovery needs its prepare
//! record. Kept where it is, it would keep all of the log behind it. So once in a while the oldest records are copied to
//! the end of the log (relocated), and what lies between them is free.
//!
//! The rule is that of cleaning a log-structured file: the oldest records are relocated as far as the log that this frees
//! is at least twice what is copied. Two things follow. Each relocated byte is paid for by a byte of log that others have
//! written in the meantime, so relocation never more than doubles what is logged. And what stays held back is at most the
//! slack or twice the bytes of the prepared records, whichever is more; below the slack nothing is worth doing.
//!
//! Rejected: saving the batches in files of their own (one more kind of file with its own recovery, and two syncs for
//! each); relocating whatever is older than some age (copies everything again and again if all of the log is prepared).

use crate::base::Lsn;
use crate::wal::Span;

/// Bytes freed per byte copied at which relocation pays.
const GAIN: u64 = 2;

/// A prepare record in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PrepareRecord {
    pub at: Lsn,
    pub bytes: u64,
}

impl PrepareRecord {
    pub fn of(span: Span) -> PrepareRecord {
        PrepareRecord { at: span.start, bytes: span.end.0 - span.start.0 }
    }
}

/// How many of the oldest records to relocate. `records` are ascending; nothing else needs the log below `floor`, and
/// holding back `slack` bytes of it does not matter.
pub(crate) fn to_relocate(records: &[PrepareRecord], floor: Lsn, slack: u64) -> usize {
    let below = records.partition_point(|record| record.at < floor);
    let Some(oldest) = records[..below].first() else { return 0 };
    if floor.0 - oldest.at.0 <= slack {
        return 0;
    }
    let (mut copied, mut count) = (0, 0);
    for (i, record) in records[..below].iter().enumerate() {
        copied += record.bytes;
        let next = records[..below].get(i + 1).map_or(floor, |next| next.at);
        if copied * GAIN <= next.0 - oldest.at.0 {
            count = i + 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `slack; floor; at+bytes at+bytes ... = how many`
    fn check(case: &str) {
        let (input, expected) = case.split_once('=').unwrap();
        let parts: Vec<&str> = input.split(';').map(str::trim).collect();
        let records = parts[2].split_whitespace().map(|record| {
            let (at, bytes) = record.split_once('+').unwrap();
            PrepareRecord { at: Lsn(at.parse().unwrap()), bytes: bytes.parse().unwrap() }
        });
        let records: Vec<PrepareRecord> = records.collect();
        let found = to_relocate(&records, Lsn(parts[1].parse().unwrap()), parts[0].parse().unwrap());
        assert_eq!(found, expected.trim().parse::<usize>().unwrap(), "{case}");
    }

    #[test]
    fn old_records_go_when_that_frees_twice_their_size() {
        for case in [
            // Nothing is prepared, or nothing is held back, or not enough to matter.
            "100; 1000; = 0",
            "100; 1000; 1000+10 = 0",
            "100; 1000; 900+10 = 0",
            // One old record; exactly twice its size; a byte less.
            "100; 1000; 500+10 = 1",
            "100; 1000; 500+250 = 1",
            "100; 1000; 500+251 = 0",
            // A dense pack of records at the old end is left, until enough has gathered behind it.
            "100; 400; 0+100 100+100 200+100 = 0",
            "100; 600; 0+100 100+100 200+100 = 3",
            // Only the first is alone; the others are packed at the end.
            "100; 600; 0+100 400+100 500+100 = 3",
            "100; 600; 0+10 400+150 550+50 = 3",
            "100; 500; 0+10 300+100 400+100 = 3",
            "100; 500; 0+10 100+200 300+200 = 1",
            // What lies at the floor or behind it holds nothing back.
            "100; 500; 0+10 500+10 900+10 = 1",
        ] {
            check(case);
        }
    }

    proptest! {
        /// Whatever comes and goes: what is held back stays bounded, and so does what is copied.
        #[test]
        fn the_log_stays_bounded_and_copying_is_paid_for(
            events in proptest::collection::vec((0u64..400, 0u8..4, any::<prop::sample::Index>()), 1..300)
        ) {
            const SLACK: u64 = 2_000;
            let (mut end, mut fresh, mut copied) = (0u64, 0u64, 0u64);
            let mut records: Vec<PrepareRecord> = Vec::new();
            for (bytes, what, which) in events {
                match what {
                    0 => records.push(PrepareRecord { at: Lsn(end), bytes }),
                    1 if !records.is_empty() => { records.remove(which.index(records.len())); }
                    _ => {}
                }
                end += bytes;
                fresh += bytes;
                let floor = Lsn(end);
                let count = to_relocate(&records, floor, SLACK);
                let moved: Vec<PrepareRecord> = records.drain(..count).collect();
                for old in moved {
                    records.push(PrepareRecord { at: Lsn(end), bytes: old.bytes });
                    end += old.bytes;
                    copied += old.bytes;
                }
                let live: u64 = records.iter().filter(|r| r.at < floor).map(|r| r.bytes).sum();
                let held = records.first().map_or(0, |r| floor.0.saturating_sub(r.at.0));
                prop_assert!(held <= SLACK.max(GAIN * live), "{held} held back by {live} bytes");
                prop_assert!(copied <= fresh, "{copied} copied, {fresh} written");
            }
        }
    }
}
