//! Compaction: what to merge, which versions stay, the merge itself, and the throttling of writes while it lags.
//!
//! All parts but one are pure functions over plain descriptions and are tested by tables of text: [`pick`] chooses jobs,
//! [`renew`] those that write values anew, [`quarantine`] keeps unreadable files out of them, [`gc`] decides which versions
//! are kept, [`throttle`] delays writes and limits the rate of merges, for which [`rate_meter`] tells how fast users write.
//! [`merge`] does the work, [`outputs`] its files, which [`plan`] cuts, in blocks as large as [`block_size`] says.

pub(crate) mod block_size;
pub mod gc;
pub mod manual;
pub mod merge;
mod outputs;
pub mod pick;
mod plan;
pub mod quantum;
pub mod quarantine;
pub(crate) mod rate_meter;
pub mod renew;
pub mod throttle;
#[cfg(test)]
mod throttle_loop;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
