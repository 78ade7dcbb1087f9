//! Which failures are told: work that fails is tried again after a second, and a log that says so each second says nothing.
//!
//! ```text
//! a failure         told at once if its cause is new; again, with the number of those that were not told, after a minute, two,
//!                   four, up to an hour
//! a success         told if the failure before it was; the pause goes on, so work that fails and succeeds in turns is not told
//!                   twice in one pause
//! the full disk     told when the first work is refused for want of space, and once more when nothing is refused any more: each
//!                   kind of work that was refused has since been done, on as many bytes
//! after the end     a store that has stopped, or is being closed, fails everything, and has said so
//! ```
//!
//! A cause is what failed (the work, the operation and what the system said, or the damaged place), not the name of the file:
//! each attempt makes a new one. Pure decisions; times are microseconds of any one clock.
//!
//! Rejected: one memory for each kind of work (two causes that take turns would each be news); a bound on lines per minute
//! (the first of something else would be lost among them).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Event, Work};
use crate::base::Error;
use crate::base::backoff::Backoff;

/// First and longest pause between two reports of one cause.
const PAUSE_MIN_US: u64 = 60_000_000;
const PAUSE_MAX_US: u64 = 3_600_000_000;
/// Causes that are told apart. Those beyond count as one.
const CAUSES_MAX: usize = 64;

/// What makes two failures of the same work the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cause {
    System(&'static str, String),
    Damage(PathBuf, u64),
    Other(String),
    Many,
}

impl Cause {
    fn of(error: &Error) -> Cause {
        match error {
            Error::Io { op, source, .. } => Cause::System(op, source.to_string()),
            Error::Corruption { path, offset, .. } => Cause::Damage(path.clone(), *offset),
            other => Cause::Other(other.to_string()),
        }
    }
}

struct Incident {
    pauses: Backoff,
    untold: u64,
    /// The failures since the last success.
    now: Option<Failing>,
}

struct Failing {
    since_us: u64,
    failures: u64,
    told: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Incidents {
    causes: BTreeMap<(Work, Cause), Incident>,
    full: Option<Full>,
    stopped: bool,
}

/// A full disk.
struct Full {
    since_us: u64,
    /// The most bytes for which each kind of work was refused and has not been done since.
    refused: BTreeMap<Work, u64>,
}

impl Incidents {
    /// The store has stopped, which is told.
    pub fn stopped(&mut self) {
        self.stopped = true;
    }

    /// Work on `bytes` failed.
    pub fn failed(&mut self, work: Work, bytes: u64, error: &Error, now_us: u64) -> Option<Event> {
        match error {
            _ if self.stopped => None,
            Error::Poisoned(_) | Error::Closed | Error::Interrupted => None,
            _ if error.is_disk_full() => self.refused(work, bytes, error, now_us),
            _ => self.failed_for(work, error, now_us),
        }
    }

    fn refused(&mut self, work: Work, bytes: u64, error: &Error, now_us: u64) -> Option<Event> {
        let is_new = self.full.is_none();
        let full = self.full.get_or_insert_with(|| Full { since_us: now_us, refused: BTreeMap::new() });
        let most = full.refused.entry(work).or_default();
        *most = bytes.max(*most);
        is_new.then(|| Event::OutOfSpace { work, error: error.clone() })
    }

    fn failed_for(&mut self, work: Work, error: &Error, now_us: u64) -> Option<Event> {
        let mut key = (work, Cause::of(error));
        if !self.causes.contains_key(&key) && self.causes.len() >= CAUSES_MAX {
            key.1 = Cause::Many;
        }
        let pauses = Backoff::new(PAUSE_MIN_US, PAUSE_MAX_US);
        let incident = self.causes.entry(key).or_insert(Incident { pauses, untold: 0, now: None });
        let now = incident.now.get_or_insert(Failing { since_us: now_us, failures: 0, told: false });
        now.failures += 1;
        if !incident.pauses.is_due(now_us) {
            incident.untold += 1;
            return None;
        }
        incident.pauses.failed(now_us);
        now.told = true;
        let untold = std::mem::take(&mut incident.untold);
        Some(failure(work, error.clone(), untold))
    }

    /// Work on `bytes` succeeded.
    pub fn succeeded(&mut self, work: Work, bytes: u64, now_us: u64) -> [Option<Event>; 2] {
        [self.recovered(work, now_us), self.served(work, bytes, now_us)]
    }

    fn recovered(&mut self, work: Work, now_us: u64) -> Option<Event> {
        let (mut failures, mut since_us) = (0, now_us);
        for ((of, _), incident) in &mut self.causes {
            let Some(now) = incident.now.take_if(|_| *of == work) else { continue };
            if now.told {
                failures += now.failures;
                since_us = since_us.min(now.since_us);
            }
        }
        self.causes.retain(|_, incident| incident.now.is_some() || !incident.pauses.is_due(now_us));
        (failures > 0).then(|| Event::BackgroundRecovered { work, failures, us: now_us.saturating_sub(since_us) })
    }

    fn served(&mut self, work: Work, bytes: u64, now_us: u64) -> Option<Event> {
        let full = self.full.as_mut()?;
        full.refused.retain(|&refused, &mut most| refused != work || bytes < most);
        let full = self.full.take_if(|full| full.refused.is_empty())?;
        Some(Event::SpaceFound { us: now_us.saturating_sub(full.since_us) })
    }

    /// The most bytes for which this work was refused; `None` if it is not waiting for space.
    pub fn refused_bytes(&self, work: Work) -> Option<u64> {
        self.full.as_ref()?.refused.get(&work).copied()
    }
}

/// The event of work that failed.
pub(super) fn failure(work: Work, error: Error, untold: u64) -> Event {
    match error {
        Error::Corruption { .. } => Event::CorruptionFound { work, error },
        error => Event::BackgroundFailed { work, error, untold },
    }
}
