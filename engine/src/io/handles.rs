//! A bound on the descriptors that SSTs hold.
//!
//! A store has more SSTs than a process has descriptors. [`BoundedDisk`] stands before the real disk and hands out
//! files for reading that keep their name and length but whose descriptor comes and goes. A read through an open
//! descriptor takes no lock: it loads a swapped pointer and, the first time since the hand came by, notes that the file is
//! in use. Who finds the descriptor closed opens it, and first closes, if the bound is reached, another one: a hand goes
//! round the open ones (CLOCK) and takes the first that nobody has used since it last came by.
//!
//! Any opening that the system refuses for want of descriptors closes some of these and is tried again, so what a table
//! file holds is also the reserve for log segments and manifests. Where that does not help, the opening fails and nothing
//! has happened.
//!
//! Invariants: a descriptor in use by a read stays open until the read ends. There are never more than the bound: where
//! all are in use, whoever needs another waits for a read to end, and no read waits while it holds one. Whoever holds a file
//! keeps its name from being removed (invariant 16): a closed file is opened by name.
//!
//! Rejected: a sweep by a background thread (the bound would be a wish while it sleeps); the index of a closed table given
//! up with its descriptor (it is small, counted, and would be read again for every block).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};

use super::{Disk, File, Mode};
use crate::base::{Error, Result};

/// Fewest descriptors that are worth a bound.
const OPEN_MIN: usize = 8;
/// Descriptors given back to the system when it has none left, and how often.
const GIVEN_BACK: usize = 8;
const TRIES: usize = 4;

/// See the module.
pub struct BoundedDisk(Arc<Shared>);

/// How many descriptors there are, and who waits for one.
struct Permits {
    most: usize,
    taken: AtomicUsize,
    waiting: AtomicUsize,
    /// Held between the look at `taken` and the wait.
    sleep: Mutex<()>,
    freed: Condvar,
}

impl Permits {
    fn try_take(&self) -> bool {
        let one_more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::SeqCst) >= self.most
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
        if self.is_wanted() {
            // Whoever is between its look and its wait is waited for.
            drop(self.sleep.lock());
            self.freed.notify_one();
        }
    }

    /// Somebody waits, or is going to.
    fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Waits until a permit is given back, unless one is free. `make_room` gives back what nobody uses.
    fn wait(&self, make_room: impl FnOnce()) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Only now: who takes a permit after this sees that it is wanted, and gives it back.
        make_room();
        let mut sleep = self.sleep.lock();
        if self.is_full() {
            self.freed.wait(&mut sleep);
        }
        drop(sleep);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Shared {
    disk: Arc<dyn Disk>,
    permits: Arc<Permits>,
    /// The open ones, the hand at the front. Locked by those who open a file, never by those who read.
    ring: Mutex<VecDeque<Weak<BoundedFile>>>,
}

/// A file for reading that may be closed at the moment.
struct BoundedFile {
    shared: Arc<Shared>,
    me: Weak<BoundedFile>,
    path: PathBuf,
    len: u64,
    read_align: usize,
    open: ArcSwapOption<Open>,
    used: AtomicBool,
    /// Held while the file is opened, so that those who need it together open it once.
    opening: Mutex<()>,
}

/// A descriptor and its permit.
struct Open {
    file: Arc<dyn File>,
    /// After the file: it is closed first.
    _permit: Permit,
}

struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl BoundedDisk {
    /// `disk`, with at most `most` descriptors (at least 8) for the files of [`Disk::open_bounded`].
    pub fn new(disk: Arc<dyn Disk>, most: usize) -> BoundedDisk {
        let permits = Arc::new(Permits {
            most: most.max(OPEN_MIN),
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            sleep: Mutex::default(),
            freed: Condvar::new(),
        });
        BoundedDisk(Arc::new(Shared { disk, permits, ring: Mutex::default() }))
    }
}

impl Shared {
    /// Closes up to `n` descriptors; how many.
    fn close(&self, n: usize) -> usize {
        let mut closed = Vec::new();
        let mut ring = self.ring.lock();
        // The first round may only take the marks of use away.
        for _ in 0..2 * ring.len() {
            if closed.len() >= n {
                break;
            }
            let Some(entry) = ring.pop_front() else { break };
            let Some(file) = entry.upgrade() else { continue };
            if file.used.swap(false, Ordering::Relaxed) {
                ring.push_back(entry);
            } else {
                closed.extend(file.open.swap(None));
            }
        }
        drop(ring);
        // The system closes them here, outside of the lock.
        closed.len()
    }

    /// Runs an operation that needs a descriptor; if there is none, gives some back and tries again.
    fn with_descriptor<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        let mut result = operation();
        for _ in 0..TRIES {
            match &result {
                Err(error) if error.lacks_descriptors() && self.close(GIVEN_BACK) > 0 => result = operation(),
                _ => break,
            }
        }
        result
    }

    fn take_permit(&self) -> Permit {
        while !self.permits.try_take() {
            if self.close(1) == 0 || self.permits.is_full() {
                self.permits.wait(|| {
                    self.close(1);
                });
            }
        }
        Permit(self.permits.clone())
    }

    fn open(&self, path: &Path) -> Result<Arc<Open>> {
        let permit = self.take_permit();
        let file = self.with_descriptor(|| self.disk.open(path, Mode::Read, true))?;
        Ok(Arc::new(Open { file, _permit: permit }))
    }

    /// Lets the hand come by a file that has just been opened.
    fn enter(&self, file: &BoundedFile) {
        let mut ring = self.ring.lock();
        if ring.len() > 2 * self.permits.taken.load(Ordering::Relaxed) + 64 {
            ring.retain(|file| file.strong_count() > 0);
        }
        ring.push_back(file.me.clone());
        drop(ring);
        // Who waits may have looked through the ring before.
        if self.permits.is_wanted() {
            drop(file.open.swap(None));
        }
    }
}

impl BoundedFile {
    #[cold]
    fn reopen(&self) -> Result<Arc<Open>> {
        let _opening = self.opening.lock();
        if let Some(open) = self.open.load_full() {
            return Ok(open);
        }
        let open = self.shared.open(&self.path)?;
        self.used.store(true, Ordering::Relaxed);
        self.open.store(Some(open.clone()));
        self.shared.enter(self);
        Ok(open)
    }

    fn read_only(&self, op: &'static str) -> Error {
        Error::io(op, &self.path, io::Error::from(io::ErrorKind::PermissionDenied))
    }
}

impl File for BoundedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if let Some(open) = &*self.open.load() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return open.file.read_exact_at(buf, offset);
        }
        self.reopen()?.file.read_exact_at(buf, offset)
    }

    fn read_align(&self) -> usize {
        self.read_align
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(self.read_only("write"))
    }

    fn sync_data(&self) -> Result<()> {
        Err(self.read_only("sync"))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(self.read_only("truncate"))
    }

    fn allocate(&self, _: u64) -> Result<()> {
        Err(self.read_only("allocate"))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Disk for BoundedDisk {
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> Result<Arc<dyn File>> {
        self.0.with_descriptor(|| self.0.disk.open(path, mode, direct))
    }

    fn open_bounded(&self, path: &Path) -> Result<Arc<dyn File>> {
        let shared = &self.0;
        let open = shared.open(path)?;
        let len = open.file.len()?;
        let read_align = open.file.read_align();
        let file = Arc::new_cyclic(|me| BoundedFile {
            shared: shared.clone(),
            me: me.clone(),
            path: path.to_owned(),
            len,
            read_align,
            open: ArcSwapOption::new(Some(open)),
            used: AtomicBool::new(true),
            opening: Mutex::new(()),
        });
        shared.enter(&file);
        Ok(file)
    }

    fn descriptors(&self) -> Option<(usize, usize)> {
        let permits = &self.0.permits;
        Some((permits.taken.load(Ordering::Relaxed), permits.most))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.disk.remove(path)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.disk.link(from, to)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.0.disk.remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.0.with_descriptor(|| self.0.disk.list(dir))
    }

    fn size(&self, path: &Path) -> Result<Option<u64>> {
        self.0.disk.size(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.0.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.with_descriptor(|| self.0.disk.sync_dir(dir))
    }

    fn release_dir(&self, dir: &Path) {
        self.0.disk.release_dir(dir);
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        self.0.disk.lock_dir(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::IO_ALIGN;
    use crate::io::{AlignedBuf, MemDisk};

    fn files(disk: &MemDisk, n: usize) -> Vec<PathBuf> {
        disk.create_dir_all(Path::new("/d")).unwrap();
        let path = |i| PathBuf::from(format!("/d/{i}"));
        for i in 0..n {
            let file = disk.open(&path(i), Mode::Create, false).unwrap();
            file.write_all_at(&[i as u8; IO_ALIGN], 0).unwrap();
        }
        (0..n).map(path).collect()
    }

    fn read(file: &dyn File) -> u8 {
        let mut buf = AlignedBuf::zeroed(IO_ALIGN);
        file.read_exact_at(&mut buf, 0).unwrap();
        buf[0]
    }

    #[test]
    fn many_files_are_read_through_few_descriptors() {
        let mem = MemDisk::new();
        let paths = files(&mem, 100);
        let disk = BoundedDisk::new(Arc::new(mem.clone()), 10);
        let files: Vec<_> = paths.iter().map(|path| disk.open_bounded(path).unwrap()).collect();
        for _ in 0..3 {
            for (i, file) in files.iter().enumerate() {
                assert_eq!(read(&**file), i as u8);
                assert!(mem.descriptors() <= 10);
                assert_eq!(file.path(), paths[i]);
            }
        }
        drop(files);
        assert_eq!(mem.descriptors(), 0);
    }

    #[test]
    fn a_file_in_use_keeps_its_descriptor_while_others_pass() {
        let mem = MemDisk::new();
        let paths = files(&mem, 100);
        let disk = BoundedDisk::new(Arc::new(mem.clone()), 10);
        let hot = disk.open_bounded(&paths[0]).unwrap();
        let others: Vec<_> = paths[1..].iter().map(|path| disk.open_bounded(path).unwrap()).collect();
        read(&*hot);
        let before = mem.counters().opens;
        for file in &others {
            read(&**file);
            read(&*hot);
        }
        let opened = mem.counters().opens - before;
        assert!(opened <= others.len() as u64 + 1, "{opened} openings for {} cold files and a hot one", others.len());
    }

    #[test]
    fn many_readers_at_once_keep_to_the_bound() {
        let mem = MemDisk::new();
        let paths = files(&mem, 60);
        let disk = BoundedDisk::new(Arc::new(mem.clone()), OPEN_MIN);
        mem.set_descriptors_max(Some(OPEN_MIN));
        let files: Vec<_> = paths.iter().map(|path| disk.open_bounded(path).unwrap()).collect();
        std::thread::scope(|scope| {
            for reader in 0..40 {
                let (disk, files, paths) = (&disk, &files, &paths);
                scope.spawn(move || {
                    for i in (0..3000).map(|n| n * (reader + 7) % files.len()) {
                        assert_eq!(read(&*files[i]), i as u8);
                        if reader == 0 && i == 5 {
                            disk.open_bounded(&paths[i]).unwrap();
                        }
                    }
                });
            }
        });
        drop(files);
        assert_eq!(mem.descriptors(), 0);
        assert_eq!((disk.0.permits.taken.load(Ordering::SeqCst), disk.0.permits.is_wanted()), (0, false));
    }

    #[test]
    fn a_system_without_descriptors_gets_some_back() {
        let mem = MemDisk::new();
        let paths = files(&mem, 40);
        let disk = BoundedDisk::new(Arc::new(mem.clone()), 1000);
        mem.set_descriptors_max(Some(20));
        let files: Vec<_> = paths.iter().map(|path| disk.open_bounded(path).unwrap()).collect();
        files.iter().enumerate().for_each(|(i, file)| assert_eq!(read(&**file), i as u8));
        let new = disk.open(Path::new("/d/new"), Mode::Create, false).unwrap();
        assert!(mem.descriptors() <= 20);
        mem.set_descriptors_max(Some(0));
        assert!(disk.open(&paths[0], Mode::Read, true).err().unwrap().lacks_descriptors());
        drop(new);
    }
}
