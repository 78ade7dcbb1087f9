//! The past of an open store: its timeline is read when it is opened, kept, forgotten, and asked for a moment.
//!
//! # Algorithm
//! The first commit of a second enters a mark in the timeline ([`crate::timeline`]); merges keep what the marks see. Here is what takes
//! writes of its own:
//!
//! ```text
//! begin     the durable floor is NEVER; an empty list in memory, marks from now on, then the durable floor: nothing at or before this
//!           second is known
//! forget    the durable floor, then the marks up to it leave memory, then their entries are removed, some at a time
//! end       the durable floor NEVER, then the marks leave memory
//! ```
//!
//! So whatever a crash leaves, the next opening believes no mark whose versions a merge may have dropped (invariant 2 of the timeline).
//!
//! A read point of the past is registered under the commit order and the lock of the list: what it sees is in the list, or newer than
//! what a merge that has looked at the list takes to be visible.
//!
//! A transaction that a crash has left prepared, and that its coordinator had decided to commit, was committed before the crash, though its
//! record is lost. So nothing is marked while such transactions are decided ([`Engine::end_recovery`](crate::Engine::end_recovery)): what is
//! committed meanwhile belongs to the second of the newest mark that is there.
//!
//! # Rejected
//! A list that only housekeeping writes to (what was committed since its last turn would have no time after a crash).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::base::{Error, IndexId, Result, SeqNo};
use crate::manifest::HISTORY;
use crate::parts::Core;
use crate::read;
use crate::read_point::ReadPoint;
use crate::timeline::entry::{Entry, TIMELINE, mark_key};
use crate::timeline::marks::{Found, Mark, Marks, NEVER, SET_BACK_MAX};
use crate::txn::{Cursor, Txn};
use crate::write::{self, Purpose, WriteOp};

/// Entries that housekeeping removes at a time.
const REMOVED_AT_ONCE: usize = 1024;

/// What is durable of the timeline.
#[derive(Default)]
struct Durable {
    /// The number below which marks are void.
    floor_seq: SeqNo,
    /// Seconds whose entries are to be removed.
    void: Vec<u64>,
}

/// Keeps the past of a store. See the module.
#[derive(Default)]
pub(crate) struct Past {
    /// Held by who changes what is kept.
    durable: Mutex<Durable>,
}

impl Past {
    /// Reads the timeline of a store that is being opened: nothing is committed or merged yet.
    pub fn open(core: &Arc<Core>) -> Result<Past> {
        let retention = core.options.history_retention_s;
        let has_history = core.tree.installer.features().iter().any(|feature| feature.name() == HISTORY.name());
        if !has_history && retention == 0 {
            return Ok(Past::default());
        }
        let timeline = &core.tree.timeline;
        let mut durable = Durable::default();
        let (mut floor, mut marks) = (NEVER, Vec::new());
        if has_history {
            (floor, durable.floor_seq, marks) = load(core)?;
        } else {
            core.tree.installer.require(&HISTORY)?;
        }
        let is_believed = |mark: &Mark| mark.at > floor && mark.seq >= durable.floor_seq;
        let (kept, gone): (Vec<Mark>, Vec<Mark>) = marks.into_iter().partition(is_believed);
        durable.void.extend(gone.iter().map(|mark| mark.at));
        let kept = Marks::new(floor, kept);
        if retention > 0 && floor != NEVER && !kept.is_set_back(timeline.now()) {
            timeline.resume(kept);
        } else {
            durable.void.extend(kept.seconds());
            if floor != NEVER {
                durable.set_floor(core, NEVER)?;
            }
            if retention > 0 {
                durable.begin(core)?;
            }
        }
        timeline.set_retention(retention);
        timeline.hold(core.journal.has_recovered());
        Ok(Past { durable: Mutex::new(durable) })
    }

    /// See `Engine::set_history_retention`.
    pub fn set_retention(&self, core: &Core, seconds: u64) -> Result<()> {
        let timeline = &core.tree.timeline;
        let mut durable = self.durable.lock();
        match (timeline.is_on(), seconds) {
            (false, 0) => {}
            (true, 0) => durable.end(core)?,
            (true, _) => {
                // What is older than the shorter retention is void at once, also if it is made longer again.
                let floor = timeline.now().saturating_sub(seconds).saturating_sub(1);
                if floor > timeline.floor() {
                    durable.forget(core, floor)?;
                }
            }
            (false, _) => {
                core.tree.installer.require(&HISTORY)?;
                durable.begin(core)?;
            }
        }
        timeline.set_retention(seconds);
        Ok(())
    }

    /// Forgets what is older than the retention. For housekeeping; what fails is tried again.
    pub fn keep(&self, core: &Core) {
        let Some(mut durable) = self.durable.try_lock() else { return };
        let timeline = &core.tree.timeline;
        if core.journal.log.check().is_err() {
            return;
        }
        if timeline.check_clock() || timeline.is_on() && timeline.floor() == NEVER {
            drop(durable.end(core).and_then(|()| durable.begin(core)));
        } else if let Some(floor) = timeline.expired() {
            drop(durable.forget(core, floor));
        }
        durable.remove_some(core);
    }
}

impl Durable {
    fn set_floor(&self, core: &Core, floor: u64) -> Result<()> {
        let (key, value) = Entry::Floor(floor, self.floor_seq).encode();
        write::alone(core, &[(key, Some(value))], true, Purpose::Relief).map(drop)
    }

    /// The history begins with the next second. The durable floor is [`NEVER`].
    fn begin(&mut self, core: &Core) -> Result<()> {
        let timeline = &core.tree.timeline;
        self.void.extend(timeline.restart());
        // Marks from here on have numbers from this one on.
        self.floor_seq = core.journal.committer.last_assigned();
        let floor = timeline.now();
        if let Err(error) = self.set_floor(core, floor) {
            self.void.extend(timeline.end());
            return Err(error);
        }
        self.void.extend(timeline.forget(floor));
        Ok(())
    }

    /// There is no history.
    fn end(&mut self, core: &Core) -> Result<()> {
        self.set_floor(core, NEVER)?;
        self.void.extend(core.tree.timeline.end());
        Ok(())
    }

    /// Moments up to `floor` are unknown from now on.
    fn forget(&mut self, core: &Core, floor: u64) -> Result<()> {
        self.set_floor(core, floor)?;
        self.void.extend(core.tree.timeline.forget(floor));
        Ok(())
    }

    /// Removes entries of marks that mean nothing any more. A second that is near may get a mark at any moment.
    fn remove_some(&mut self, core: &Core) {
        let timeline = &core.tree.timeline;
        let now = timeline.now();
        self.void.retain(|&at| !timeline.has(at));
        let far = self.void.iter().copied().filter(|at| at.abs_diff(now) > SET_BACK_MAX);
        let removed: BTreeSet<u64> = far.take(REMOVED_AT_ONCE).collect();
        let ops: Vec<WriteOp> = removed.iter().map(|&at| (mark_key(at), None)).collect();
        if write::alone(core, &ops, false, Purpose::Relief).is_ok() {
            self.void.retain(|at| !removed.contains(at));
        }
    }
}

/// A read point that sees a moment, in seconds since 1970. Before the first read [`Engine::await_visible`](crate::Engine::await_visible)
/// must be called.
///
/// Errors: `Moment`.
pub(crate) fn read_point_at(core: &Core, moment: u64) -> Result<ReadPoint> {
    let tree = &core.tree;
    let find = |last| tree.timeline.find(moment, last, |seq: SeqNo| tree.read_points.register(|| seq));
    core.journal.committer.at_last_assigned(find).map_err(|found| {
        let at = show(moment);
        let what = match found {
            Found::Future => format!("The moment {at} is in the future"),
            Found::Forgotten(Some(oldest)) => {
                format!("The moment {at} is not kept: the oldest that can be read is {}", show(oldest))
            }
            _ if tree.timeline.retention() == 0 => format!("The moment {at} is not kept: no history is"),
            _ => format!("The moment {at} is not kept: the history has just begun"),
        };
        Error::Moment(what)
    })
}

/// The floor and all marks.
fn load(core: &Arc<Core>) -> Result<(u64, SeqNo, Vec<Mark>)> {
    let (txn, mut cursor) = (Txn::new(core.clone()), Cursor::new(core.clone()));
    let point = core.tree.read_point();
    let (mut floor, mut floor_seq, mut marks) = (NEVER, SeqNo::ZERO, Vec::new());
    cursor.open(&txn, point.seq(), &TIMELINE.prefix(), &IndexId(TIMELINE.0 + 1).prefix())?;
    cursor.seek_ge(&txn, &TIMELINE.prefix())?;
    while cursor.valid() {
        let entry = Entry::decode(cursor.key(), cursor.value()).map_err(|(is_version, what)| {
            let path = read::file_of(&core.tree, cursor.key()).unwrap_or_else(|| core.tree.ssts.dir.join("log"));
            let what = format!("the entry {} of the timeline {what}", cursor.key().escape_ascii());
            match is_version {
                true => Error::Incompatible { path, what },
                false => Error::corruption(&path, 0, what),
            }
        })?;
        match entry {
            Entry::Floor(at, seq) => (floor, floor_seq) = (at, seq),
            Entry::Mark(mark) => marks.push(mark),
        }
        cursor.next(&txn)?;
    }
    cursor.close();
    Ok((floor, floor_seq, marks))
}

/// A second since 1970 as people write it.
fn show(second: u64) -> String {
    let moment = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
    moment.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_as_people_write_them() {
        let shown = [0, 951_782_399, 951_782_400, 1_795_600_800, 4_102_444_799].map(show);
        let dates = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-28 23:59:59 UTC",
            "2000-02-29 00:00:00 UTC",
            "2026-11-25 10:00:00 UTC",
            "2099-12-31 23:59:59 UTC",
        ];
        assert_eq!(shown, dates);
    }
}
