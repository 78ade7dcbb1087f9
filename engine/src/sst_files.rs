//! The SSTs of a store as files: where they lie, and the reader of each, which is opened on first use.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::{FileNo, Result};
use crate::crypt::Keyring;
use crate::io::Disk;
use crate::manifest::FileEntry;
use crate::sst::{BlockCache, Dictionaries, Sst};

/// See the module.
pub(crate) struct SstFiles {
    pub disk: Arc<dyn Disk>,
    /// The directory of the store.
    pub dir: PathBuf,
    pub cache: Arc<BlockCache>,
    pub keys: Arc<Keyring>,
    /// Those that the newest files have.
    pub dictionaries: Arc<Dictionaries>,
}

impl SstFiles {
    pub fn path(&self, no: FileNo) -> PathBuf {
        self.dir.join(format!("{:012}.sst", no.0))
    }

    /// The reader of an SST, opened on first use.
    #[inline]
    pub fn reader<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Sst>> {
        match file.sst.get() {
            Some(sst) => Ok(sst),
            None => self.open(file),
        }
    }

    fn open<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Sst>> {
        let (no, path, life) = (file.meta.no, self.path(file.meta.no), file.life().clone());
        let stamp = file.meta.stamped.then_some(file.meta.max_seq);
        let sst = Sst::open_kept(&self.disk, &path, no, self.cache.clone(), &self.keys, stamp, Some(life))?;
        Ok(file.sst.get_or_init(|| sst))
    }

    /// The reader of an SST that no version has yet.
    pub fn open_private(&self, no: FileNo) -> Result<Arc<Sst>> {
        Sst::open(&self.disk, &self.path(no), no, self.cache.clone(), &self.keys)
    }

    /// Removes a file, and what the cache holds of it.
    pub fn remove(&self, no: FileNo) -> Result<()> {
        self.cache.erase_file(no);
        self.disk.remove(&self.path(no))
    }
}
