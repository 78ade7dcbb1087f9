//! Errors, by what the caller can do about them.

use super::failures;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. Cloneable, since a background failure is reported to every later caller.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed; the store's state is as before the call.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// The operation ("read", "sync", ...).
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Stored bytes are not what was written. Never ignored, never repaired silently.
    #[error("corruption in {} at offset {offset}: {what}", path.display())]
    Corruption {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// What was expected and found.
        what: String,
    },
    /// An earlier write or sync failed: the store refuses all further writes until it is reopened.
    #[error("store stopped writing after an earlier failure: {0}")]
    Poisoned(Arc<Error>),
    /// Another process has the store open.
    #[error("store {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The store was written by a format this version does not know.
    #[error("{}: {what}", path.display())]
    Incompatible {
        /// The file.
        path: PathBuf,
        /// Which format version was found and which are known.
        what: String,
    },
    /// A lock was not granted in time.
    #[error("lock wait timeout")]
    LockTimeout,
    /// A lock is held by another transaction and the caller did not want to wait.
    #[error("lock not available")]
    LockBusy,
    /// This transaction was chosen as the victim of a deadlock; it must be rolled back.
    #[error("deadlock")]
    Deadlock,
    /// The waiting or running operation was killed.
    #[error("interrupted")]
    Interrupted,
    /// A row changed after the snapshot that the write depends on.
    #[error("record changed since the snapshot")]
    Conflict,
    /// The call is wrong: argument or limit.
    #[error("{0}")]
    Invalid(String),
    /// The engine is closing.
    #[error("store is closed")]
    Closed,
}

impl Error {
    /// An I/O failure of `op` on `path`.
    #[cold]
    pub fn io(op: &'static str, path: &Path, source: io::Error) -> Error {
        failures::count(&source);
        Error::Io { op, path: path.to_owned(), source: Arc::new(source) }
    }
    /// A corruption found in `path` at `offset`.
    #[cold]
    pub fn corruption(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        failures::count_corruption();
        Error::Corruption { path: path.to_owned(), offset, what: what.into() }
    }
    /// True if the process or the system had no file descriptor left: what was asked for has not been begun.
    pub fn lacks_descriptors(&self) -> bool {
        use rustix::io::Errno;
        let is = |source: &io::Error, errno: Errno| source.raw_os_error() == Some(errno.raw_os_error());
        matches!(self, Error::Io { source, .. } if is(source, Errno::MFILE) || is(source, Errno::NFILE))
    }
    /// True if the device or quota is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Error::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Error::Poisoned(inner) => inner.is_disk_full(),
            _ => false,
        }
    }
}
