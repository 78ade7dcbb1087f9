//! What is asked of the encryption of files and log.

use super::Engine;
use crate::base::{IndexId, Result};
use crate::crypt::SYSTEM_KEY;

/// For a [layer](crate::layer) above.
impl Engine {
    /// Says under which master key the files of indexes are encrypted: durably, when this returns. It holds for files that are
    /// written from then on; those that there are are written anew in the background. Nothing is done where it is so already.
    ///
    /// # Errors
    /// [`Error::Key`](crate::Error::Key) if there is no such key, or not that of the system, which the manifest needs then; [`Error::Io`](crate::Error::Io),
    /// [`Error::Poisoned`](crate::Error::Poisoned). Nothing has changed.
    pub fn set_index_encryption(&self, ids: &[IndexId], key: Option<u32>) -> Result<()> {
        let core = &self.core;
        let now = core.settings.encryptions();
        let changes: Vec<_> = ids.iter().filter(|id| now.get(id).copied() != key).map(|&id| (id, key)).collect();
        if changes.is_empty() {
            return Ok(());
        }
        for id in key.into_iter().chain(key.map(|_| SYSTEM_KEY)) {
            core.tree.ssts.keys.require(id, &core.tree.ssts.dir)?;
        }
        core.tree.installer.encrypt(changes, |all| core.settings.set_encryptions(all))?;
        // Who keeps house finds what there is to do.
        core.board.wake_cleaner();
        Ok(())
    }

    /// Fails unless there is a key of this number to encrypt with.
    pub fn require_key(&self, id: u32) -> Result<()> {
        self.core.tree.ssts.keys.require(id, &self.core.tree.ssts.dir)
    }

    /// Whether the log is encrypted.
    pub fn encrypts_log(&self) -> bool {
        self.core.options.encrypt_log
    }

    /// The master key under which the files of an index are encrypted, if they are.
    pub fn index_encryption(&self, id: IndexId) -> Option<u32> {
        self.core.settings.encryption(id)
    }
}
