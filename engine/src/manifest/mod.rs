//! The state of a store apart from its log: which SSTs it has and from where the log matters.
//!
//! * [`VersionEdit`]: a change
//! * [`Version`]: the files at one moment, immutable, shared by readers
//! * [`Manifest`]: the changes on disk
//!
//! Order of a change: apply the edit to the current version, append it to the manifest, put the new version in use,
//! retire what it removed.

mod edit;
mod store;
#[cfg(test)]
mod tests;
mod version;

pub use edit::VersionEdit;
pub use store::{FORMAT_VERSION, FORMAT_VERSIONS, Manifest, State, Stored};
pub use version::{FileEntry, FileLife, LEVELS, ObsoleteFiles, Version, find_in, overlapping, within};
