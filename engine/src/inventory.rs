//! Of which indexes a store holds keys, told from what is in memory: the descriptions of SSTs and the memtables.
//!
//! The engine does not know which indexes there ought to be. Who does asks once, when the store is opened, and drops those
//! that nobody owns: what a defect, or a transaction that wrote to an index after its drop, has left.

use std::collections::BTreeSet;

use crate::base::{IndexId, Result};
use crate::iter::VersionIter;
use crate::state::ReadState;

/// All indexes with keys in SSTs or memtables. Writes of open and prepared transactions do not count. One seek per index
/// and memtable.
pub(crate) fn indexes(state: &ReadState) -> Result<BTreeSet<IndexId>> {
    let mut found = BTreeSet::new();
    let waiting = state.sealed.iter().flat_map(|sealed| sealed.files.iter());
    for file in state.version.files().map(|(_, file)| file).chain(waiting) {
        found.extend(file.meta.indexes());
    }
    for mem in state.memtables() {
        let mut keys = mem.table.iter();
        keys.seek_first()?;
        while keys.valid() {
            let id = IndexId::of(keys.key());
            found.insert(id);
            let Some(next) = id.0.checked_add(1) else { break };
            keys.seek_ge(&IndexId(next).prefix())?;
        }
    }
    Ok(found)
}
