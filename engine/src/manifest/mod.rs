//! The state of a store apart from its log: which SSTs it has and from where the log matters.
//!
//! * [`VersionEdit`]: a change
//! * [`Version`]: the files at one moment, immutable, shared by readers; each is a [`FileEntry`]
//! * [`ObsoleteFiles`]: the files that are to be removed
//! * [`Marks`]: what is stated beside the files, and with it the [`Feature`]s that a reader must know
//! * [`Manifest`]: the changes on disk, and the newest version
//! * [`State`]: what a manifest file amounts to while it is read
//!
//! Order of a change: the manifest applies the edit to its version and makes it durable, readers are given the new version, and what
//! the edit removed is retired.

mod change;
mod edit;
mod feature;
mod file;
mod obsolete;
mod state;
mod store;
mod survey;
#[cfg(test)]
mod tests;
mod version;

pub use edit::VersionEdit;
pub use feature::{DICTIONARIES, ENCRYPTION, FEATURES, Feature, Features, HISTORY, KEYSPACES, Need};
pub use file::{FileEntry, find_in, overlapping, within};
pub use obsolete::{FileLife, ObsoleteFiles, RemovalHold};
pub use state::{FORMATS, Marks, State};
pub use store::{CHECKPOINT, Manifest, Stored, is_later_manifest};
pub use survey::{Findings, Parts, survey};
pub use version::{LEVELS, Version};
