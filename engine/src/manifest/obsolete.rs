//! Obsolete files: which they are, and when they go.
//!
//! A file is held by its entry, which versions and readers share, and by its open reader. It becomes obsolete when no version
//! from then on has it, durably ([`Version::retire`](super::Version::retire)), when the transaction that wrote it for itself
//! does not need it, or when the manifest has refused it. Its number comes to the list when the last holder lets go of
//! it, or at once where nobody can hold it. Housekeeping removes what is on the list. A file in use when the store is closed is not
//! obsolete and stays.
//!
//! Who copies the store holds the list meanwhile ([`ObsoleteFiles::hold`]): nothing is taken from it, so every file that the store
//! has or comes to have keeps its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::base::FileNo;

/// Collects the numbers of files that nobody needs any more, for someone off the hot paths to delete them.
#[derive(Default, Debug)]
pub struct ObsoleteFiles {
    numbers: Mutex<Vec<FileNo>>,
    /// Files that were taken and could not be removed yet.
    refused: AtomicUsize,
    /// Under the lock of `numbers` it is raised and looked at.
    holds: AtomicUsize,
}

/// While it lives, no file that becomes obsolete is removed.
#[derive(Debug)]
pub struct RemovalHold(Arc<ObsoleteFiles>);

impl Drop for RemovalHold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::Release);
    }
}

impl ObsoleteFiles {
    /// Adds a file.
    pub fn add(&self, no: FileNo) {
        self.numbers.lock().push(no);
    }

    /// Takes what has gathered; nothing while the list is held.
    pub fn drain(&self) -> Vec<FileNo> {
        let mut numbers = self.numbers.lock();
        match self.holds.load(Ordering::Acquire) {
            0 => std::mem::take(&mut *numbers),
            _ => Vec::new(),
        }
    }

    /// Keeps the files that become obsolete from now on, until the result drops.
    pub fn hold(self: &Arc<Self>) -> RemovalHold {
        let _numbers = self.numbers.lock();
        self.holds.fetch_add(1, Ordering::AcqRel);
        RemovalHold(self.clone())
    }

    /// Of all that was taken so many files could not be removed, and will be tried again.
    pub fn note_refused(&self, files: usize) {
        self.refused.store(files, Ordering::Relaxed);
    }

    /// Files that are still to be removed.
    pub fn waiting(&self) -> usize {
        self.numbers.lock().len() + self.refused.load(Ordering::Relaxed)
    }
}

/// Keeps the name of an SST. Its entry and its open reader hold it: a reader may have to open the file again.
#[derive(Debug)]
pub struct FileLife {
    no: FileNo,
    obsolete: AtomicBool,
    obsolete_files: Arc<ObsoleteFiles>,
}

impl FileLife {
    /// The life of a file in use.
    pub(super) fn begin(no: FileNo, obsolete_files: Arc<ObsoleteFiles>) -> Arc<FileLife> {
        Arc::new(FileLife { no, obsolete: AtomicBool::new(false), obsolete_files })
    }

    /// Says that the file is not needed by anybody to come.
    pub(super) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    pub(super) fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }
}

impl Drop for FileLife {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.obsolete_files.add(self.no);
        }
    }
}
