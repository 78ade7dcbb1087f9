//! Flush: sealed memtables into files of L0; and where the files behind them go, those of large transactions.
//!
//! Garbage collection is that of compactions, so a key that was overwritten many times in memory is written once, and
//! one that came and went there is not written at all, if no file may hold it. Only the sequence numbers stay as they
//! are, since the files of L0 are ordered by them.
//! Indexes with little share files, so that a flush costs what its bytes cost, whatever the number of indexes; others have
//! files of their own. Outputs end, once they have the target size, at boundaries of the base level's files.

use std::sync::Arc;

use crate::base::Result;
use crate::compact::gc::VersionGc;
use crate::compact::merge::{MergeEnv, MergeResult, OutputPlan, merge};
use crate::compact::pick::LAST;
use crate::iter::MergeIter;
use crate::manifest::Version;
use crate::mem::MemTable;
use crate::sst::SstMeta;

/// Writes sealed memtables, the newest first, as files of L0. They must be consecutive in age and no older unflushed
/// ones may exist. `base` are the files of the base level, `below` the sorted runs of all levels.
///
/// The result has no outputs if nothing survives.
pub fn flush(
    memtables: &[Arc<MemTable>],
    gc: VersionGc,
    target_file_bytes: u64,
    base: &[&SstMeta],
    below: &[&[&SstMeta]],
    env: &MergeEnv<'_>,
) -> Result<MergeResult> {
    let sources = memtables.iter().map(|memtable| memtable.iter()).collect();
    let plan = OutputPlan::for_l0(target_file_bytes, base, Some(below));
    merge(&mut MergeIter::new(sources), gc, &plan, env)
}

/// The level of a large transaction's file. What is first in its index goes to the last level at once, where it would end
/// anyway, instead of being written again on the way there: a table that is loaded, copied or gets an index. A shared file
/// does not: it is small, and it could span an index whose first files come later. `version` and `beside`, the outputs of
/// the memtables before, are all that is older; `written` are the ranges that running jobs may write to in the last level:
/// a file of others may come to span the index. The range must be kept free of such jobs until the file is installed.
///
/// Rejected: the same for files that fall between those of the index, which would be compressed for level 0.
pub fn level_behind<'a>(
    meta: &SstMeta,
    version: &Version,
    beside: &[SstMeta],
    written: impl IntoIterator<Item = &'a (Vec<u8>, Vec<u8>)>,
) -> u8 {
    let (index, smallest, largest) = (meta.index, meta.smallest.as_slice(), meta.largest.as_slice());
    let first = !meta.is_shared() && !version.holds(index) && !beside.iter().any(|other| other.holds(index));
    let last_level = version.level(LAST);
    let at = last_level.partition_point(|file| file.meta.largest.as_slice() < smallest);
    let spanned = last_level.get(at).is_some_and(|file| file.meta.smallest.as_slice() <= largest)
        || written.into_iter().any(|(low, high)| low.as_slice() <= largest && smallest <= high.as_slice());
    if first && !spanned { LAST } else { 0 }
}
