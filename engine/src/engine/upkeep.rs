//! Work that is done in the background anyhow, now: flushes, merges, syncs.

use super::Engine;
use crate::background;
use crate::base::{IndexId, Result};
use crate::event::FlushReason;
use crate::keyspace::Keyspace;

/// What memtables may hold, insertions and bytes, that a close leaves to the log: replaying it takes a start no longer than a
/// flush's syncs take the close.
const REPLAYED_MAX: (u64, u64) = (4096, 4 << 20);

/// Work that is done in the background anyhow, now.
impl Engine {
    /// Seals the active memtable and waits until everything is in SSTs.
    pub fn flush(&self) -> Result<()> {
        self.flush_with(&|| Ok(()))
    }

    fn flush_with(&self, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        self.flush_for(FlushReason::Asked, tick)
    }

    pub(super) fn flush_for(&self, reason: FlushReason, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        self.core.journal.committer.seal(reason);
        background::flush_and_wait(&self.core, tick)
    }

    /// Whether the next opening would have more to do with the log of what is in memory than a flush has.
    pub(super) fn is_long_to_replay(&self) -> bool {
        let state = self.core.tree.states.load();
        let (versions, bytes) = state.memtables().fold((0, 0), |(versions, bytes), mem| {
            (versions + mem.table.version_count(), bytes + mem.table.arena_bytes() as u64)
        });
        self.threads.is_some() && (versions > REPLAYED_MAX.0 || bytes > REPLAYED_MAX.1)
    }

    /// Flushes, then merges everything in `[lower, upper)` down to the last level, and clears that of what nobody reads.
    pub fn compact_range(&self, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.compact_range_with(lower, upper, &|_, _| Ok(()))
    }

    /// As `compact_range`; `tick` is called again and again with the bytes that were read and those that there are to read in all, more
    /// or less, and its error ends the work. What was merged by then stays.
    pub fn compact_range_with(&self, lower: &[u8], upper: &[u8], tick: &dyn Fn(u64, u64) -> Result<()>) -> Result<()> {
        self.flush_with(&|| tick(0, 0))?;
        background::compact_range(&self.core, lower, upper, tick)
    }

    /// As [`Engine::compact_range`], of all keys of a keyspace: what was deleted or overwritten, and no snapshot needs, is gone then.
    ///
    /// Errors: `NoKeyspace` and `Invalid` for a keyspace that is not one; `Io`, `Corruption` and `Poisoned` if it fails.
    pub fn compact(&self, keyspace: &Keyspace) -> Result<()> {
        let id = self.keyspaces.index_of(keyspace)?;
        self.compact_range(&id.prefix(), &IndexId(id.0 + 1).prefix())
    }

    /// Waits until no compaction is running or due (tests, benchmarks).
    pub fn wait_idle(&self) -> Result<()> {
        background::wait_idle(&self.core)
    }

    /// Everything committed so far is durable when this returns.
    pub fn sync(&self) -> Result<()> {
        self.core.journal.log.sync(self.core.journal.log.records_end())
    }
}
