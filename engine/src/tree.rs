//! The tree: memtables and SSTs as readers see them, the points they read at, and who changes the set of files.

use std::sync::Arc;

use crate::base::{IndexId, SeqNo};
use crate::install::Installer;
use crate::manifest::ObsoleteFiles;
use crate::read_point::{ReadPoint, ReadPoints};
use crate::sst_files::SstFiles;
use crate::state::StateCell;
use crate::timeline::Timeline;

/// See the module.
pub(crate) struct Tree {
    pub ssts: Arc<SstFiles>,
    pub states: Arc<StateCell>,
    pub read_points: ReadPoints,
    /// Which moments of the past readers may ask for.
    pub timeline: Arc<Timeline>,
    pub installer: Installer,
    pub obsolete_files: Arc<ObsoleteFiles>,
}

impl Tree {
    /// A snapshot of what is visible now.
    pub fn read_point(&self) -> ReadPoint {
        self.read_points.register(|| self.states.visible())
    }

    /// The least point at which a reader of now, or one to come, may read.
    pub fn oldest_read(&self) -> SeqNo {
        // In this order, see `Timeline::pinned`.
        let visible = self.states.visible();
        let marked = self.timeline.oldest_pinned();
        let live = self.read_points.live().first().copied();
        marked.into_iter().chain(live).fold(visible, SeqNo::min)
    }

    /// Whether these indexes have any file for themselves, which goes with them.
    pub fn own_files(&self, ids: &[IndexId]) -> bool {
        let state = self.states.pin();
        let mut files = ids.iter().flat_map(|&id| state.version.holding(id));
        files.any(|(_, file)| file.meta.indexes().all(|id| ids.contains(&id)))
    }
}
