//! The real disk: positioned reads and writes on the host's file system.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, OFlags, StatxFlags, fallocate, flock, statx};

use super::{Disk, File, Mode};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Result};

/// The host's file system.
#[derive(Default)]
pub struct PosixDisk {
    /// Directories that were synced: kept open, so that a change of names that has happened can be made durable by a
    /// process that has no descriptor left.
    dirs: Mutex<BTreeMap<PathBuf, Arc<fs::File>>>,
}

impl PosixDisk {
    fn dir(&self, path: &Path) -> io::Result<Arc<fs::File>> {
        if let Some(dir) = self.dirs.lock().get(path) {
            return Ok(dir.clone());
        }
        let dir = Arc::new(fs::File::open(path)?);
        self.dirs.lock().insert(path.to_owned(), dir.clone());
        Ok(dir)
    }
}

struct PosixFile {
    file: fs::File,
    path: PathBuf,
    read_align: usize,
}

/// What the kernel asks of direct reads of this file: the sector of the device, as a rule. Kernels before 6.1, and file
/// systems that do not tell, get pages, which do everywhere.
fn read_align(file: &fs::File) -> usize {
    let Ok(stat) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return IO_ALIGN };
    let is_told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let (memory, align) = (stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align as usize);
    if is_told && memory <= IO_ALIGN && align.is_power_of_two() && align <= IO_ALIGN { align } else { IO_ALIGN }
}

impl Disk for PosixDisk {
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(mode != Mode::Read).create_new(mode == Mode::Create);
        if direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        let file = match options.open(path) {
            // Some file systems (tmpfs before Linux 6.6) know no direct I/O; the page cache serves there.
            Err(e) if direct && e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                // With `create_new` the failed call may or may not have created the name.
                options.create_new(false).create(mode == Mode::Create).custom_flags(0);
                options.open(path)
            }
            other => other,
        };
        let file = file.map_err(|e| Error::io("open", path, e))?;
        let read_align = if direct && mode == Mode::Read { read_align(&file) } else { IO_ALIGN };
        Ok(Arc::new(PosixFile { file, path: path.to_owned(), read_align }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(|e| Error::io("link", to, e))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        // Another directory may get the name later: a descriptor that is kept would sync the one that is gone.
        self.release_dir(dir);
        fs::remove_dir(dir).map_err(|e| Error::io("remove directory", dir, e))
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| Error::io("list", dir, e))?;
            names.push(PathBuf::from(entry.file_name()));
        }
        names.sort();
        Ok(names)
    }

    fn size(&self, path: &Path) -> Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(found.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("stat", path, e)),
        }
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        // As the server makes its own: nobody else looks into a database.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| Error::io("create directory", dir, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.dir(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io("sync directory", dir, e))
    }

    fn release_dir(&self, dir: &Path) {
        self.dirs.lock().remove(dir);
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        let path = dir.join("LOCK");
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| Error::io("open", &path, e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(file)),
            Err(e) if e == rustix::io::Errno::WOULDBLOCK => Err(Error::InUse(dir.to_owned())),
            Err(e) => Err(Error::io("lock", &path, e.into())),
        }
    }
}

impl File for PosixFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::corruption(&self.path, offset, format!("file ends before the {} bytes expected here", buf.len()))
            }
            _ => Error::io("read", &self.path, e),
        })
    }

    fn read_align(&self) -> usize {
        self.read_align
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(buf, offset).map_err(|e| Error::io("write", &self.path, e))
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))
    }

    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|m| m.len()).map_err(|e| Error::io("stat", &self.path, e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| Error::io("truncate", &self.path, e))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // Not every file system can reserve; the first failing write then reports the full disk.
            Err(e) if e == rustix::io::Errno::OPNOTSUPP => self.set_len(len),
            Err(e) => Err(Error::io("allocate", &self.path, e.into())),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{AlignedBuf, MemDisk};

    /// Both disks, before and behind a file's creation, and of a directory.
    #[test]
    fn what_is_there_has_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let disks: [&dyn Disk; 2] = [&PosixDisk::default(), &MemDisk::new()];
        for disk in disks {
            let (inside, path) = (dir.path().join("d"), dir.path().join("d/f"));
            assert_eq!(disk.size(&inside).unwrap(), None);
            assert_eq!(disk.size(&path).unwrap(), None);
            disk.create_dir_all(&inside).unwrap();
            assert!(disk.size(&inside).unwrap().is_some());
            disk.open(&path, Mode::Create, false).unwrap().write_all_at(&[7; 5000], 0).unwrap();
            assert_eq!(disk.size(&path).unwrap(), Some(5000));
            assert!(disk.exists(&path).unwrap() && !disk.exists(&dir.path().join("e")).unwrap());
        }
    }

    /// What the kernel says a direct read may begin at, it must take: at every such place of the file, and of such a length.
    #[test]
    fn direct_reads_may_begin_and_end_where_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, path) = (PosixDisk::default(), dir.path().join("f"));
        let bytes: Vec<u8> = (0..4 * IO_ALIGN).map(|i| (i / 512) as u8).collect();
        let file = disk.open(&path, Mode::Create, false).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.read_align(), IO_ALIGN);
        let file = disk.open(&path, Mode::Read, true).unwrap();
        let step = file.read_align();
        assert!(step.is_power_of_two() && step <= IO_ALIGN, "{step}");
        let mut buf = AlignedBuf::zeroed(bytes.len());
        for start in (0..bytes.len()).step_by(step) {
            for len in [step, IO_ALIGN + step, bytes.len()] {
                let len = len.min(bytes.len() - start);
                file.read_exact_at(&mut buf[..len], start as u64).unwrap();
                assert_eq!(buf[..len], bytes[start..start + len]);
            }
        }
        // Whoever writes keeps to pages.
        assert_eq!(disk.open(&path, Mode::ReadWrite, true).unwrap().read_align(), IO_ALIGN);
    }
}
