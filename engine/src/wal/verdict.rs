//! Is the log's end torn, or its middle damaged? Pure decisions, no input or output.
//!
//! A crash may leave the units that were in flight in any state, so a unit that is bad or missing at `x` is normal as
//! long as nobody ever relied on it. Whoever relied on it did so after a sync, and units written after that sync say
//! so: each states up to where the log was durable. Hence the rule: an intact unit beyond `x` that states a durable
//! position above `x` proves damage; without such a witness `x` is where the log ends, and the log is *cut* there.
//!
//! The unit that would be the witness for the very last sync may not exist. [`super::Log::seal`] writes one at a clean
//! close.
//!
//! After a cut at `x` the log continues in a fresh segment under a new epoch, whose first unit names `x`. A reader that
//! comes to `x` jumps there, whatever the bytes at `x` say by then.

use crate::base::Lsn;

/// An intact unit found somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// Where it lies.
    pub lsn: Lsn,
    /// Its epoch.
    pub epoch: u64,
    /// What it states to be durable.
    pub durable: Lsn,
}

/// What a bad or missing unit means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The log ends there.
    Torn,
    /// It was durable once, and is no more.
    Damaged {
        /// The unit that proves it.
        witness: Sighting,
    },
}

/// Judges the bad or missing unit at `bad`, given the intact units seen beyond it.
pub fn judge(bad: Lsn, beyond: &[Sighting]) -> Verdict {
    match beyond.iter().find(|unit| unit.lsn > bad && unit.durable > bad) {
        Some(&witness) => Verdict::Damaged { witness },
        None => Verdict::Torn,
    }
}

/// The first unit of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// Where it lies: the start of a segment.
    pub lsn: Lsn,
    /// Where the log before it validly ends.
    pub cut: Lsn,
    /// Its epoch.
    pub epoch: u64,
}

/// Where to continue at `position`: the epoch that declares the log before it to end there, `None` if there is none.
/// `after` is the start of the epoch being read, if known. Of several the last: an earlier one was itself found lost.
pub fn jump(position: Lsn, after: Option<Lsn>, epochs: &[EpochStart]) -> Option<EpochStart> {
    let open = |e: &&EpochStart| e.cut == position && e.lsn >= position && after.is_none_or(|a| e.lsn > a);
    epochs.iter().filter(open).max_by_key(|e| e.lsn).copied()
}
