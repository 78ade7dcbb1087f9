//! Errors, by what the caller can do about them. Each has one meaning; more may come.

use super::{KeyVersion, failures};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. Cloneable, since a background failure is reported to every later caller.
///
/// | the error | what to do |
/// |---|---|
/// | [`Deadlock`](Error::Deadlock), [`Conflict`](Error::Conflict), [`LockTimeout`](Error::LockTimeout), [`LockBusy`](Error::LockBusy) | drop the transaction and run it again ([`Error::is_retryable`]) |
/// | [`Io`](Error::Io) | nothing has happened; mend the cause and repeat ([`Error::is_disk_full`] names the most common one) |
/// | [`Poisoned`](Error::Poisoned) | the store has stopped; mend the cause and open it again |
/// | [`Corruption`](Error::Corruption) | put the file back from a copy |
/// | [`Key`](Error::Key) | give the key service the key that the text names, and repeat or open the store again |
/// | [`Incompatible`](Error::Incompatible) | open the store with the version that the text names |
/// | [`Invalid`](Error::Invalid), [`NoKeyspace`](Error::NoKeyspace) | the call is wrong |
/// | [`Internal`](Error::Internal) | report it: a defect of the engine |
///
/// ```
/// use strata_engine::{Engine, Error};
/// # fn main() -> strata_engine::Result<()> {
/// let engine = Engine::open_in_memory()?;
/// let users = engine.keyspace("users")?;
/// engine.drop_keyspace(&users)?;
/// match engine.put(&users, "alice", "") {
///     Err(Error::NoKeyspace(name)) => assert_eq!(name, "users"),
///     Err(error) if error.is_disk_full() => println!("make room: {error}"),
///     Err(error) => return Err(error),
///     Ok(()) => unreachable!("it was dropped"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// What is stored is not what was written, or a file of the store is missing. Never ignored, never repaired silently.
    #[error("corruption in {} at offset {offset}: {what}", path.display())]
    Corruption {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// What was expected and found.
        what: String,
    },
    /// The store has stopped: an earlier write or sync of it failed, and it refuses everything until it is opened again.
    #[error("store stopped writing after an earlier failure: {0}")]
    Poisoned(Arc<Error>),
    /// Another process has the store open.
    #[error("store {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The store uses a format or a feature that this version does not know.
    #[error("{}: {what}", path.display())]
    Incompatible {
        /// The file.
        path: PathBuf,
        /// What was found, and what is known.
        what: String,
    },
    /// A key that something was encrypted with, or is to be, is missing or another one. Nothing has happened.
    #[error("{}: {key}: {what}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key.
        key: KeyVersion,
        /// Why it cannot be used.
        what: String,
    },
    /// A moment of the past cannot be read, and why.
    #[error("{0}")]
    Moment(String),
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
    /// The call is wrong: an argument, a limit, or a call that does not fit the state of what it is made on.
    #[error("{0}")]
    Invalid(String),
    /// No keyspace has this name, or the one that is meant was dropped.
    #[error("keyspace {0:?} does not exist")]
    NoKeyspace(String),
    /// The engine contradicts itself: a defect of it, or of the memory it runs in, never of the call. Nothing has happened.
    #[error("internal error: {0}")]
    Internal(String),
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
    /// True if the device or quota is full: what was asked for has not happened, and may be repeated once there is space. Never
    /// true of a store that has stopped, whatever stopped it.
    pub fn is_disk_full(&self) -> bool {
        let is_full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        matches!(self, Error::Io { source, .. } if is_full(source.kind()))
    }
    /// True if a file cannot get a second name there: on another file system, or on one that does not know such names. Its
    /// content can be copied.
    pub fn cannot_link(&self) -> bool {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
        let is_so = |kind| matches!(kind, CrossesDevices | PermissionDenied | TooManyLinks | Unsupported);
        matches!(self, Error::Io { op: "link", source, .. } if is_so(source.kind()))
    }
    /// True if the transaction may succeed when it is run again from its beginning: another transaction was in its way.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Deadlock | Error::Conflict | Error::LockTimeout | Error::LockBusy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_store_is_not_a_full_disk() {
        let full = Error::io("write", Path::new("log"), io::ErrorKind::StorageFull.into());
        assert!(full.is_disk_full());
        let stopped = Error::Poisoned(Arc::new(full));
        assert!(!stopped.is_disk_full() && !stopped.is_retryable());
        assert!(Error::Conflict.is_retryable() && Error::Deadlock.is_retryable());
    }
}
