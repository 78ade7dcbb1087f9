//! The log: every change of the store is here before it is anywhere else.
//!
//! * [`mod@format`]: bytes of units and frames
//! * [`Log`]: appending, poisoning
//! * `group`: group sync: who writes and syncs for whom
//! * `writer`: how, by the page cache or past it
//! * `room`: space that is there before a record is appended
//! * `segments`: the files
//! * `close`: what a clean close leaves
//! * [`scan`], [`recover`]: reading it back; `frames` makes records of units, `unsealing` decrypts them
//! * [`verdict`]: torn tail or damage, as pure functions
//! * [`Cut`]: what lies behind a torn tail
//!
//! Normative text: docs/develop/format/wal.md. Invariants: a record is recovered if it was durable; what is recovered
//! is a prefix of what was appended; nothing that lies behind a cut ever comes back.

mod close;
mod cut;
pub mod format;
mod frames;
mod group;
mod log;
mod read;
mod room;
mod segments;
mod survey;
mod unsealing;
mod writer;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod testtext;
pub mod verdict;

pub use close::NoteEnd;
pub use cut::Cut;
pub use format::Body;
pub use log::{GROUP_SIZES, Log, LogCounters, LogOptions, OnStop, SegmentHold, Span};
pub(crate) use read::{FileSource, blame, walk_records};
pub use read::{LogPlace, Tail, recover, scan};
pub use room::Room;
pub use segments::Announce;
pub use survey::{Hole, segment_size, survey, survey_file};
