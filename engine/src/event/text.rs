//! Events as the lines that an operator reads. `docs/use/errors.md` and the lab's trials of damage quote them.

use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

use super::{Event, FlushReason, MergeReason, Reached, StallCause, Work};
use crate::base::Error;

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Event::Recovering(reached) => {
                let Reached { done, of, us, .. } = reached;
                write!(f, "recovery has read {done} of {of} bytes of the log after {}; {}", time(*us), left(reached))
            }
            Event::Opened { files, commits, prepared, orphans, us } => {
                let time = time(*us);
                write!(f, "the store is open after {time}: {files} table files, {commits} commits from the log, ")?;
                write!(f, "{prepared} prepared transactions, {orphans} table files without an owner removed")
            }
            Event::LogCut { path, offset, fault, bytes, begun_bytes, intact_units, records, commits, prepares } => {
                let path = path.display();
                write!(
                    f,
                    "the log ends in {path} at offset {offset} ({fault}), and {bytes} bytes of it behind are left out"
                )?;
                if *begun_bytes > 0 {
                    write!(f, ", with them a record of which {begun_bytes} bytes stand before")?;
                }
                write!(
                    f,
                    "; whole units in them: {intact_units}, whole records: {records}, among these {commits} commits and "
                )?;
                write!(
                    f,
                    "{prepares} prepared transactions. That is how a write looks that a crash cut short, and nothing in the "
                )?;
                write!(
                    f,
                    "log states that it was ever synced; if the server had been idle for seconds before it ended, "
                )?;
                f.write_str("suspect the disk")
            }
            Event::PreparedDamaged { xid, error } => {
                let xid = String::from_utf8_lossy(xid);
                write!(
                    f,
                    "the prepared transaction {xid:?} cannot be committed, only rolled back; until then nobody else "
                )?;
                write!(f, "writes to the indexes of this file of it: {error}")
            }
            Event::FlushBegun { job, memtables, bytes, reason } => {
                write!(f, "flush {job} begins: {memtables} memtables of {bytes} bytes ({reason})")
            }
            Event::FlushDone { job, memtables, files, bytes_in, bytes_out, reason, us } => {
                let time = time(*us);
                write!(f, "flush {job} is done after {time}: {memtables} memtables of {bytes_in} bytes ({reason}), ")?;
                write!(f, "{files} files of {bytes_out} bytes")
            }
            Event::FlushFailed { job, error } => write!(f, "flush {job} failed: {error}"),
            Event::MergeBegun { job, reason, from, to, files, bytes } => {
                write!(f, "merge {job} begins: level {from} to {to}, {files} files of {bytes} bytes ({reason})")
            }
            Event::MergeDone { job, reason, from, to, files, bytes_in, bytes_out, us } => {
                let time = time(*us);
                write!(
                    f,
                    "merge {job} is done after {time}: level {from} to {to} ({reason}), {bytes_in} bytes read, "
                )?;
                write!(f, "{files} files of {bytes_out} bytes written")
            }
            Event::MergeFailed { job, from, to, error } => {
                write!(f, "merge {job}, level {from} to {to}, failed: {error}")
            }
            Event::FilesMoved { from, to, files, bytes } => {
                write!(f, "{files} files of {bytes} bytes moved from level {from} to {to}")
            }
            Event::WriteStallBegun { stall, cause, memtable_bytes, sublevels, debt_bytes } => {
                write!(
                    f,
                    "write stall {stall} begins: {}; memtables have {memtable_bytes} bytes, ",
                    stall_cause(*cause)
                )?;
                write!(f, "level 0 has {sublevels} sublevels, merges lag {debt_bytes} bytes behind")
            }
            Event::WriteStallEnded { stall, cause, us } => {
                write!(f, "write stall {stall} is over after {}: {}", time(*us), stall_cause(*cause))
            }
            Event::CorruptionFound { work, error } => {
                failure(f, *work, error)?;
                f.write_str("; the file stays as it is, and other work goes on")
            }
            Event::OutOfSpace { work, error } => {
                write!(f, "the disk is full: {} was refused: {error}; work goes on once there is space", subject(*work))
            }
            Event::SpaceFound { us } => write!(f, "the disk has space again, after {}", time(*us)),
            Event::ReencryptionBegun { files, bytes } => {
                write!(f, "{files} table files of {bytes} bytes are written anew, to be encrypted as they should be")
            }
            Event::ReencryptionDone { us } => {
                write!(f, "all table files are encrypted as they should be, after {}", time(*us))
            }
            Event::BackgroundFailed { work, error, untold } => {
                failure(f, *work, error)?;
                match untold {
                    0 => Ok(()),
                    untold => write!(f, " ({untold} times more since this was told last)"),
                }
            }
            Event::BackgroundRecovered { work, failures, us } => {
                write!(f, "{} works again, after {failures} failures in {}", subject(*work), time(*us))
            }
            Event::Closing(reached) => {
                let Reached { done, of, us, .. } = reached;
                write!(
                    f,
                    "the store is being closed: {done} of {of} bytes of memtables are written after {}; ",
                    time(*us)
                )?;
                f.write_str(&left(reached))
            }
            Event::Stopped { cause } => write!(f, "the store has stopped: {cause}"),
        }
    }
}

fn failure(f: &mut Formatter<'_>, work: Work, error: &Error) -> Result {
    match work {
        Work::Flush => write!(f, "flush failed: {error}"),
        Work::Merge => write!(f, "compaction failed: {error}"),
        Work::Log => write!(f, "the log cannot be made ready or synced: {error}"),
        Work::Relocation => write!(f, "prepared transactions keep the log from being recycled: {error}"),
        Work::Recycling => write!(f, "cannot recycle the log: {error}"),
        Work::Removal => write!(f, "cannot remove a file that is no longer needed: {error}"),
        Work::Write => write!(f, "a write failed: {error}"),
        Work::Spill => write!(f, "writing a large transaction failed: {error}"),
        Work::Record => write!(f, "a change of the manifest failed: {error}"),
    }
}

/// The work as the subject of a sentence.
fn subject(work: Work) -> &'static str {
    match work {
        Work::Flush => "flushing",
        Work::Merge => "compaction",
        Work::Log => "making the log ready",
        Work::Relocation => "copying prepare records",
        Work::Recycling => "recycling the log",
        Work::Removal => "removing files",
        Work::Write => "a write",
        Work::Spill => "writing a large transaction",
        Work::Record => "a change of the manifest",
    }
}

impl Display for FlushReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            FlushReason::Full => "full",
            FlushReason::Memory => "memory is full",
            FlushReason::Log => "much log is kept for it",
            FlushReason::LargeTransaction => "a large transaction",
            FlushReason::DeadRows => "dead rows",
            FlushReason::Asked => "asked for",
            FlushReason::Closing => "the store is closed",
            FlushReason::Recovery => "from the log",
        })
    }
}

impl Display for MergeReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            MergeReason::L0 => "level 0 is deep or large",
            MergeReason::IntraL0 => "within level 0",
            MergeReason::Size => "the level is above its target",
            MergeReason::Garbage => "tombstones",
            MergeReason::Dropped => "a dropped index",
            MergeReason::Manual => "asked for",
        })
    }
}

fn stall_cause(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Memtables => "the memtables are full and writes wait for a flush",
        StallCause::Backlog => "background work lags behind and writes are slowed",
    }
}

/// How long work will take, to the second.
fn left(reached: &Reached) -> String {
    match reached.left_us {
        Some(us) => format!("about {} s are left", us.div_ceil(1_000_000)),
        None => "nothing was done in the last seconds".into(),
    }
}

/// To the millisecond.
fn time(us: u64) -> String {
    format!("{:.3} s", Duration::from_micros(us).as_secs_f64())
}
