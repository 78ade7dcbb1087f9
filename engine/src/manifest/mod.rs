//! The state of a store apart from its log: which SSTs it has and from where the log matters.
//!
//! * [`VersionEdit`]: a change
//! * [`Version`]: the files at one moment, immutable, shared by readers; each is a [`FileEntry`]
//! * [`ObsoleteFiles`]: the files that are to be removed
//! * [`State`]: all that is kept, and with it the [`Feature`]s that a reader must know
//! * [`Manifest`]: the changes on disk
//!
//! Order of a change: apply the edit to the current version, append it to the manifest, put the new version in use,
//! retire what it removed.

mod change;
mod edit;
mod feature;
mod file;
mod obsolete;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod version;

pub use edit::VersionEdit;
pub use feature::{FEATURES, Feature, Features, KEYSPACES, Need};
pub use file::{FileEntry, find_in, overlapping, within};
pub use obsolete::{FileLife, ObsoleteFiles};
pub use state::{FORMATS, State};
pub use store::{Manifest, Stored, is_later_manifest};
pub use version::{LEVELS, Version};
