//! Flush: sealed memtables into files of L0; and where the files behind them go, those of large transactions.
//!
//! The rule of survival is that of compactions, so a key that was overwritten many times in memory is written once, and
//! one that came and went there is not written at all, if no file may hold it. Only the sequence numbers stay as they
//! are, since the files of L0 are ordered by them.
//! Outputs are cut at index boundaries and, once they have the target size, at boundaries of the base level's files.

use std::sync::Arc;

use crate::base::{IndexId, Result};
use crate::compact::merge::{MergeEnv, MergeResult, OutputPlan, merge};
use crate::compact::pick::LAST;
use crate::compact::survive::Survival;
use crate::iter::MergeIter;
use crate::manifest::Version;
use crate::mem::MemTable;
use crate::sst::TableMeta;

/// Writes sealed memtables, the newest first, as files of L0. They must be consecutive in age and no older unflushed
/// ones may exist. `base` are the files of the base level, `below` the sorted runs of all levels.
///
/// The result has no outputs if nothing survives.
pub fn flush(
    memtables: &[Arc<MemTable>],
    survival: Survival,
    target_file_bytes: u64,
    base: &[&TableMeta],
    below: &[&[&TableMeta]],
    env: &MergeEnv<'_>,
) -> Result<MergeResult> {
    let sources = memtables.iter().map(|memtable| memtable.iter()).collect();
    let plan = OutputPlan::for_l0(target_file_bytes, base, Some(below));
    merge(&mut MergeIter::new(sources), survival, &plan, env)
}

/// The level of a large transaction's files of `index`. What is first in its index goes to the last level at once, where it
/// would end anyway, instead of being written again on the way there: a table that is loaded, copied or gets an index. No job
/// can be writing to an index without files. `version` and `beside`, the outputs of the memtables before, are all that is older.
///
/// Rejected: the same for files that fall between those of the index. A job may be writing a file that spans the gap.
pub fn level_behind(index: IndexId, version: &Version, beside: &[TableMeta]) -> u8 {
    let first = !version.holds(index) && !beside.iter().any(|meta| meta.index == index);
    if first { LAST } else { 0 }
}
