//! Compaction: what to merge, what survives a merge, the merge itself, and the price writers pay while it lags.
//!
//! All parts but one are pure functions over plain descriptions and are tested by tables of text: [`pick`] chooses jobs,
//! [`aside`] keeps unreadable files out of them, [`survive`] decides which versions are kept, [`pace`] prices writes
//! and lets merges rest, for which [`growth`] tells how fast users write. [`merge`] does the work.

pub mod aside;
pub(crate) mod growth;
pub mod manual;
pub mod merge;
pub mod pace;
pub mod pick;
pub mod slice;
pub mod survive;
#[cfg(test)]
mod pace_loop;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
