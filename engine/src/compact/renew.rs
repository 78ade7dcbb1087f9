//! Files whose values are to be written anew, one after the other, each in its place. A pure function, like `pick`.
//!
//! A file stays in its level and its range, so it is merged alone: what it overlaps is as new or as old as before.

use super::manual::{Manual, step};
use super::pick::Shape;
use super::pick::{CompactionJob, LAST};
use crate::base::FileNo;
use crate::sst::SstMeta;

/// The next of the files that are `old`: upper levels first, as what is there is soon merged anyway and then carries its new values
/// along. `Done` if there is none, `Blocked` if all that are left are in other jobs or in quarantine.
pub fn renew(
    shape: &Shape<'_>,
    running: &[&CompactionJob],
    is_old: &dyn Fn(&SstMeta) -> bool,
    is_quarantined: &dyn Fn(FileNo) -> bool,
) -> Manual {
    let l0 = shape.sublevels.iter().flatten().map(|meta| (0, *meta));
    let deeper = (1..=LAST).flat_map(|level| shape.levels[usize::from(level)].iter().map(move |meta| (level, *meta)));
    let mut outcome = Manual::Done;
    for (level, meta) in l0.chain(deeper).filter(|(_, meta)| is_old(meta)) {
        outcome = Manual::Blocked;
        if is_quarantined(meta.no) {
            continue;
        }
        let range = (meta.smallest.clone(), meta.largest.clone());
        if let Manual::Job(job) = step(running, vec![(level, meta)], level, vec![range]) {
            return Manual::Job(job);
        }
    }
    outcome
}
