//! A disk that tells an observer of each operation on a file when it begins and when it has ended: for a server that has instruments
//! of file I/O.
//!
//! The observer is told on the thread of the operation, and of one operation at a time there: files are read and written by no
//! operation of another file. So it may take the time itself, and keep what it needs in between in the thread. It may mark an open file,
//! and gets the mark back with each operation on it.
//!
//! Names in directories, their syncs and locks pass untold: no bytes move. Where nobody observes there is no such disk.
//!
//! Rejected: counters of bytes and time that the observer is asked for (a server counts by file and by thread, and shows the operation
//! that a thread is in); [`super::HookedDisk`] for both (it is asked before an operation and may refuse it, and knows of no end).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, File, Mode};
use crate::base::Result;

/// What is done with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileOperation {
    /// It is opened, or made.
    Open,
    /// It is closed.
    Close,
    /// So many bytes are read.
    Read(usize),
    /// So many bytes are written.
    Write(usize),
    /// What was written is made durable.
    Sync,
    /// It is cut, extended, or given space.
    Resize,
    /// It is asked for its size.
    Stat,
    /// It is removed.
    Remove,
    /// It gets another name.
    Rename,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileAct<'a> {
    /// What is done.
    pub operation: FileOperation,
    /// The file, by the name that it has before.
    pub path: &'a Path,
    /// Its name afterwards, if that is another one.
    pub to: Option<&'a Path>,
    /// What the observer has marked the open file with; 0 for one that is not open or not marked.
    pub mark: usize,
}

/// Is told of operations. See the module.
pub trait DiskObserver: Send + Sync + 'static {
    /// The operation begins.
    fn begins(&self, act: &FileAct<'_>);
    /// It has ended, well or not. Of one that opens a file the result is the file's mark; of others nobody looks at it.
    fn ends(&self, act: &FileAct<'_>, is_ok: bool) -> usize;
}

/// See the module.
pub struct ObservedDisk {
    disk: Arc<dyn Disk>,
    observer: Arc<dyn DiskObserver>,
}

impl ObservedDisk {
    /// `disk`, as `observer` sees it.
    pub fn new(disk: Arc<dyn Disk>, observer: Arc<dyn DiskObserver>) -> ObservedDisk {
        ObservedDisk { disk, observer }
    }
}

/// Does the work of an operation between the two calls; its outcome, and what the observer says at the end.
fn observe<T>(observer: &dyn DiskObserver, act: FileAct<'_>, work: impl FnOnce() -> Result<T>) -> (Result<T>, usize) {
    observer.begins(&act);
    let outcome = work();
    let mark = observer.ends(&act, outcome.is_ok());
    (outcome, mark)
}

/// Whose observer it is, and how: the parts of an open file that outlive its descriptor by a moment.
struct Marked {
    observer: Arc<dyn DiskObserver>,
    path: PathBuf,
    mark: usize,
}

impl Marked {
    fn act(&self, operation: FileOperation) -> FileAct<'_> {
        FileAct { operation, path: &self.path, to: None, mark: self.mark }
    }
}

/// Its closing ends here, since fields drop in their order.
impl Drop for Marked {
    fn drop(&mut self) {
        self.observer.ends(&self.act(FileOperation::Close), true);
    }
}

struct ObservedFile {
    file: Arc<dyn File>,
    /// After the file.
    marked: Marked,
}

impl ObservedFile {
    fn observe<T>(&self, operation: FileOperation, work: impl FnOnce(&dyn File) -> Result<T>) -> Result<T> {
        observe(&*self.marked.observer, self.marked.act(operation), || work(&*self.file)).0
    }
}

impl Drop for ObservedFile {
    fn drop(&mut self) {
        self.marked.observer.begins(&self.marked.act(FileOperation::Close));
    }
}

impl Disk for ObservedDisk {
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> Result<Arc<dyn File>> {
        let act = FileAct { operation: FileOperation::Open, path, to: None, mark: 0 };
        let (file, mark) = observe(&*self.observer, act, || self.disk.open(path, mode, direct));
        let file = file?;
        let marked = Marked { observer: self.observer.clone(), path: path.to_owned(), mark };
        Ok(Arc::new(ObservedFile { file, marked }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let act = FileAct { operation: FileOperation::Rename, path: from, to: Some(to), mark: 0 };
        observe(&*self.observer, act, || self.disk.rename(from, to)).0
    }
    fn remove(&self, path: &Path) -> Result<()> {
        let act = FileAct { operation: FileOperation::Remove, path, to: None, mark: 0 };
        observe(&*self.observer, act, || self.disk.remove(path)).0
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.link(from, to)
    }
    fn remove_dir(&self, dir: &Path) -> Result<()> {
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
        self.disk.sync_dir(dir)
    }
    fn release_dir(&self, dir: &Path) {
        self.disk.release_dir(dir);
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        self.disk.lock_dir(dir)
    }
}

impl File for ObservedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.observe(FileOperation::Read(buf.len()), |file| file.read_exact_at(buf, offset))
    }
    fn read_align(&self) -> usize {
        self.file.read_align()
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.observe(FileOperation::Write(buf.len()), |file| file.write_all_at(buf, offset))
    }
    fn sync_data(&self) -> Result<()> {
        self.observe(FileOperation::Sync, |file| file.sync_data())
    }
    fn len(&self) -> Result<u64> {
        self.observe(FileOperation::Stat, |file| file.len())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.observe(FileOperation::Resize, |file| file.set_len(len))
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.observe(FileOperation::Resize, |file| file.allocate(len))
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{FaultKind, MemDisk};
    use parking_lot::Mutex;

    /// Notes what it is told, and marks files by the count of openings.
    #[derive(Default)]
    struct Notes {
        lines: Mutex<Vec<String>>,
        opened: Mutex<usize>,
    }

    impl DiskObserver for Notes {
        fn begins(&self, act: &FileAct<'_>) {
            let FileAct { operation, path, to, mark } = act;
            let to = to.map_or(String::new(), |to| format!(" to {}", to.display()));
            self.lines.lock().push(format!("{operation:?} {}{to} {mark}", path.display()));
        }
        fn ends(&self, act: &FileAct<'_>, is_ok: bool) -> usize {
            self.lines.lock().push(if is_ok { "done".into() } else { "failed".into() });
            let mut opened = self.opened.lock();
            *opened += usize::from(act.operation == FileOperation::Open);
            *opened
        }
    }

    #[test]
    fn each_operation_is_told_when_it_begins_and_when_it_has_ended() {
        let notes = Arc::new(Notes::default());
        let disk = ObservedDisk::new(Arc::new(MemDisk::new()), notes.clone());
        let dir = Path::new("/d");
        disk.create_dir_all(dir).unwrap();
        let (a, b) = (dir.join("a"), dir.join("b"));
        let file = disk.open(&a, Mode::Create, false).unwrap();
        file.write_all_at(b"twelve bytes", 0).unwrap();
        file.sync_data().unwrap();
        file.set_len(6).unwrap();
        file.allocate(20).unwrap();
        let mut read = [0; 4];
        file.read_exact_at(&mut read, 1).unwrap();
        assert_eq!(&read, b"welv");
        assert!(file.len().unwrap() >= 6);
        drop(file);
        disk.rename(&a, &b).unwrap();
        disk.sync_dir(dir).unwrap();
        let again = disk.open(&b, Mode::Read, false).unwrap();
        drop(again);
        disk.remove(&b).unwrap();
        assert!(disk.open(&b, Mode::Read, false).is_err());
        let told = notes.lines.lock().join("; ");
        let expected = [
            "Open /d/a 0; done",
            "Write(12) /d/a 1; done",
            "Sync /d/a 1; done",
            "Resize /d/a 1; done",
            "Resize /d/a 1; done",
            "Read(4) /d/a 1; done",
            "Stat /d/a 1; done",
            "Close /d/a 1; done",
            "Rename /d/a to /d/b 0; done",
            "Open /d/b 0; done",
            "Close /d/b 2; done",
            "Remove /d/b 0; done",
            "Open /d/b 0; failed",
        ];
        assert_eq!(told, expected.join("; "));
    }

    #[test]
    fn what_fails_is_told_as_failed_and_fails_as_without_an_observer() {
        let notes = Arc::new(Notes::default());
        let inner = MemDisk::new();
        let disk = ObservedDisk::new(Arc::new(inner.clone()), notes.clone());
        inner.create_dir_all(Path::new("/d")).unwrap();
        let file = disk.open(Path::new("/d/a"), Mode::Create, false).unwrap();
        inner.fail_after(1, FaultKind::Other);
        assert!(file.write_all_at(b"x", 0).is_err());
        assert_eq!(notes.lines.lock().last().map(String::as_str), Some("failed"));
    }
}
