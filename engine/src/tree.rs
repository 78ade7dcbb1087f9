//! The tree: memtables and SSTs as readers see them, the points they read at, and who changes the set of files.

use std::sync::Arc;

use crate::base::IndexId;
use crate::install::Installer;
use crate::manifest::ObsoleteFiles;
use crate::read_point::{ReadPoint, ReadPoints};
use crate::sst_files::SstFiles;
use crate::state::StateCell;

/// See the module.
pub(crate) struct Tree {
    pub ssts: Arc<SstFiles>,
    pub states: Arc<StateCell>,
    pub read_points: ReadPoints,
    pub installer: Installer,
    pub obsolete_files: Arc<ObsoleteFiles>,
}

impl Tree {
    /// A snapshot of what is visible now.
    pub fn read_point(&self) -> ReadPoint {
        self.read_points.register(|| self.states.visible())
    }

    /// Whether these indexes have any file for themselves, which goes with them.
    pub fn own_files(&self, ids: &[IndexId]) -> bool {
        let state = self.states.pin();
        let mut files = ids.iter().flat_map(|&id| state.version.holding(id));
        files.any(|(_, file)| file.meta.indexes().all(|id| ids.contains(&id)))
    }
}
