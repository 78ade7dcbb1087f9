//! Redmine, a real web application, as a load: its own migrations, a data set through its own models, and its operations by
//! processes that live on.
//!
//! The application is Debian's package with its gems; `scripts/setup.sh redmine` installs it, and nothing else does. What runs is a
//! private copy in the lab's folder, so that configuration, logs and the set of gems are the lab's and those of an installed
//! Redmine are left alone. The scripts in `lab/redmine/` are run inside it.
//!
//! | file | holds |
//! |---|---|
//! | [`app`] | the private copy, and how a Ruby process is started in it |
//! | [`said`] | the lines that the scripts print |
//! | [`set`] | migrations and a data set |
//! | [`workers`] | processes that live on, and what their operations took |
//! | [`disk`] | the load on the disk beside it, by fio |
//!
//! Rejected: requests over HTTP (a web server and its queue would be measured too; the original measured operations), a process an
//! operation (its start takes hundreds of times as long).

pub mod app;
pub mod disk;
mod said;
pub mod set;
pub mod workers;

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    pub users: u64,
    /// On each level, those of a level below those of the level above.
    pub projects: Vec<u64>,
    pub issues: u64,
    /// Memory of the engine while it is measured, in MiB.
    pub memory_mb: u64,
}

/// Where everything of it lies: the copy, its logs, the file of the disk's load.
pub fn folder(lab: &Path) -> PathBuf {
    lab.join("redmine")
}

/// The database.
pub const DATABASE: &str = "redmine";
