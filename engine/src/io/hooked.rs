//! A disk that shows each operation to a hook before it is done, and does not do it if the hook returns an error: for tests that
//! count operations, take images between them, hold them up or make them fail.
//!
//! Rejected: a disk for each of these purposes. All but the hook was the same in each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, File, Mode};
use crate::base::Result;

/// What is about to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A file is opened.
    Open(Mode),
    /// A file gets another name; the path is the former.
    Rename,
    /// A file is removed.
    Remove,
    /// A file gets a second name; the path is the new one.
    Link,
    /// An empty directory is removed.
    RemoveDir,
    /// The names in a directory are made durable.
    SyncDir,
    /// So many bytes are read.
    Read(usize),
    /// So many bytes are written.
    Write(usize),
    /// What was written is made durable.
    Sync,
    /// A file is cut or extended.
    SetLen,
    /// Space is reserved.
    Allocate,
}

impl Operation {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Open(Mode::Create) => "create",
            Operation::Open(_) => "open",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::Link => "link",
            Operation::RemoveDir => "remove directory",
            Operation::SyncDir => "sync directory",
            Operation::Read(_) => "read",
            Operation::Write(_) => "write",
            Operation::Sync => "sync",
            Operation::SetLen => "truncate",
            Operation::Allocate => "allocate",
        }
    }

    /// Whether it changes what a crash would leave.
    pub fn changes(self) -> bool {
        !matches!(self, Operation::Open(Mode::Read | Mode::ReadWrite) | Operation::Read(_))
    }
}

/// Is shown the operations on a disk, by the threads that do them.
pub type DiskHook = Arc<dyn Fn(Operation, &Path) -> Result<()> + Send + Sync>;

/// See the module. Looks at names, and locks, pass unseen.
pub struct HookedDisk {
    disk: Arc<dyn Disk>,
    hook: DiskHook,
}

impl HookedDisk {
    /// `disk`, shown to `hook`.
    pub fn new(disk: Arc<dyn Disk>, hook: DiskHook) -> HookedDisk {
        HookedDisk { disk, hook }
    }
}

struct HookedFile {
    file: Arc<dyn File>,
    hook: DiskHook,
}

impl HookedFile {
    fn show(&self, operation: Operation) -> Result<()> {
        (self.hook)(operation, self.file.path())
    }
}

impl Disk for HookedDisk {
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> Result<Arc<dyn File>> {
        (self.hook)(Operation::Open(mode), path)?;
        let file = self.disk.open(path, mode, direct)?;
        Ok(Arc::new(HookedFile { file, hook: self.hook.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        (self.hook)(Operation::Rename, from)?;
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        (self.hook)(Operation::Remove, path)?;
        self.disk.remove(path)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        (self.hook)(Operation::Link, to)?;
        self.disk.link(from, to)
    }
    fn remove_dir(&self, dir: &Path) -> Result<()> {
        (self.hook)(Operation::RemoveDir, dir)?;
        self.disk.remove_dir(dir)
    }
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.disk.list(dir)
    }
    fn size(&self, path: &Path) -> Result<Option<u64>> {
        self.disk.size(path)
    }
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.disk.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        (self.hook)(Operation::SyncDir, dir)?;
        self.disk.sync_dir(dir)
    }
    fn release_dir(&self, dir: &Path) {
        self.disk.release_dir(dir);
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        self.disk.lock_dir(dir)
    }
}

impl File for HookedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.show(Operation::Read(buf.len()))?;
        self.file.read_exact_at(buf, offset)
    }
    fn read_align(&self) -> usize {
        self.file.read_align()
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.show(Operation::Write(buf.len()))?;
        self.file.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> Result<()> {
        self.show(Operation::Sync)?;
        self.file.sync_data()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.show(Operation::SetLen)?;
        self.file.set_len(len)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.show(Operation::Allocate)?;
        self.file.allocate(len)
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}
