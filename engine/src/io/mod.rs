//! The engine's seams to the machine: disk, clock and scheduler. Nothing else in the engine touches them.
//!
//! `PosixDisk` is the real one. `MemDisk` keeps files in memory, knows which bytes and names have been synced, can make
//! a crash image of itself and can be told to fail; tests and simulation run the whole engine on it.

mod blocking;
mod buffer;
mod clock;
mod handles;
mod hooked;
mod mem;
mod observed;
mod posix;
mod sched;
mod threads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::Result;
use crate::base::limits::IO_ALIGN;

pub(crate) use self::blocking::Waiting;
pub use self::blocking::{Blocking, BlockingHook, set_blocking_hook};
pub(crate) use self::clock::Stopwatch;
pub use buffer::AlignedBuf;
pub use clock::{Clock, ManualClock, SystemClock};
pub use handles::BoundedDisk;
pub use hooked::{DiskHook, HookedDisk, Operation};
pub use mem::{FaultKind, MemDisk, MemDiskCounters};
pub use observed::{DiskObserver, FileAct, FileOperation, ObservedDisk};
pub use posix::PosixDisk;
pub use sched::{NICE_MAX, Scheduler, SystemScheduler};
pub use threads::{Known, ThreadHook, set_thread_hook};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Must not exist; read and write.
    Create,
    /// Must exist; read and write.
    ReadWrite,
    /// Must exist; read only.
    Read,
}

/// A directory tree that survives crashes as far as it was synced.
pub trait Disk: Send + Sync + 'static {
    /// Opens `path`. With `direct`, reads and writes bypass the page cache where the file system allows it; offsets,
    /// lengths and buffers are then multiples of [`crate::base::limits::IO_ALIGN`] (callers always align if they ask
    /// for `direct`), but for reads of files opened with [`Mode::Read`]: see [`File::read_align`].
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> Result<Arc<dyn File>>;
    /// Opens a file that is complete and never changes for direct reads. A disk that bounds its descriptors may close it
    /// between two reads and open it again by its name, which must stay as long as the file is held.
    fn open_bounded(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.open(path, Mode::Read, true)
    }
    /// Descriptors that files of `open_bounded` take now, and how many they may take; `None` if there is no bound.
    fn descriptors(&self) -> Option<(usize, usize)> {
        None
    }
    /// Renames a file, replacing the target. Durable after `sync_dir`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. Durable after `sync_dir`.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Gives a file a second name, which must not exist. Durable after `sync_dir` of the new name's directory. For the errors
    /// of a file system that cannot do it there is [`crate::Error::cannot_link`].
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a directory without anything in it.
    fn remove_dir(&self, dir: &Path) -> Result<()>;
    /// Names of the files in `dir`, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>>;
    /// Bytes of a file, which is not opened for it; `None` if nothing has the name. Of a directory, whatever number.
    fn size(&self, path: &Path) -> Result<Option<u64>>;
    /// True if the file or directory exists.
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.size(path)?.is_some())
    }
    /// Creates `dir` and its parents if absent.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Gives up what the disk keeps of a directory that was synced and will not be again for long, such as a descriptor.
    fn release_dir(&self, _dir: &Path) {}
    /// Takes the exclusive lock of a store directory; held until the guard drops.
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>>;
}

/// An open file. Methods take `&self`: offsets are explicit and calls may come from several threads.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`; a short file is `Error::Corruption` naming the file and offset.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// What offsets and lengths of direct reads are multiples of: a power of two, at most
    /// [`crate::base::limits::IO_ALIGN`], of which the address of the buffer stays a multiple. Less than that where the
    /// device has smaller sectors: a block lies anywhere in a file, so a coarser step brings bytes along that nobody wants.
    fn read_align(&self) -> usize {
        IO_ALIGN
    }
    /// Writes all of `buf` at `offset`, extending the file if needed.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Makes written data and the file's size durable.
    fn sync_data(&self) -> Result<()>;
    /// Current size in bytes.
    fn len(&self) -> Result<u64>;
    /// True if the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves disk space for `len` bytes from the start, so that later writes cannot fail for lack of space.
    fn allocate(&self, len: u64) -> Result<()>;
    /// The path it was opened under, for messages.
    fn path(&self) -> &Path;
}
