//! The files behind the log: segments in use, the next ones made ahead of need, and a pool of released ones.
//!
//! Invariant: the name of a segment is durable, and announced, before the first unit is written to it.
//!
//! Opening a log needs a new segment, also on a full disk. There the space behind the cut, which nobody will ever write or
//! read, is taken off the segments before it, and the new one is as long as the space allows until there is more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::format::{is_recycled, recycled_path, segment_number, segment_path};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Lsn, Result};
use crate::io::{AlignedBuf, Disk, File, Mode};

const FILL_BYTES: usize = 1 << 20;
/// A log that begins with less than this in its first segment is of no use, or with less than this part of a small one: as much
/// is left behind the cut where a full disk refuses all but what frees space (`super::room`).
const SHORT_BYTES_MIN: u64 = 64 << 10;
const SHORT_PART: u64 = 8;

/// All segment files of a log. Calls may block on disk I/O and exclude each other.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    pool_files: usize,
    announce: Announce,
    files: Mutex<Files>,
}

/// Notes durably that the segments below the given number have files. Called before the last of them is used, so that
/// one which is missing later is known to be lost. May block on disk I/O.
pub type Announce = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

struct Files {
    /// Segments with a file under their own name.
    live: BTreeSet<u64>,
    pool: Vec<PathBuf>,
    /// Made ahead of need.
    ready: BTreeMap<u64, Arc<dyn File>>,
    /// The segment that has not got all of its space.
    short: Option<u64>,
    /// How many read the files by their names: none is released.
    holds: usize,
}

impl Segments {
    /// Takes stock of `dir`; files of segment `start` and later hold nothing valid and go to the pool.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        pool_files: usize,
        start: u64,
        announce: Announce,
    ) -> Result<Segments> {
        let mut files =
            Files { live: BTreeSet::new(), pool: Vec::new(), ready: BTreeMap::new(), short: None, holds: 0 };
        let mut spare = Vec::new();
        for name in disk.list(dir)? {
            match segment_number(&name) {
                Some(n) if n < start => {
                    files.live.insert(n);
                }
                Some(n) => spare.push((dir.join(&name), Some(n))),
                None if is_recycled(&name) => spare.push((dir.join(&name), None)),
                None => {}
            }
        }
        let mut changed = false;
        for (path, segment) in spare {
            if files.pool.contains(&path) {
                // Replaced by the file of the segment of this number, whose own name had survived too.
                continue;
            }
            let usable = files.pool.len() < pool_files && disk.size(&path)? == Some(segment_bytes);
            changed |= !usable || segment.is_some();
            match segment {
                _ if !usable => disk.remove(&path)?,
                Some(n) => {
                    let pooled = recycled_path(dir, n);
                    disk.rename(&path, &pooled)?;
                    files.pool.push(pooled);
                }
                None => files.pool.push(path),
            }
        }
        if changed {
            disk.sync_dir(dir)?;
        }
        Ok(Segments { disk, dir: dir.to_owned(), segment_bytes, pool_files, announce, files: Mutex::new(files) })
    }

    /// The file of segment `number`, about to be written.
    pub(crate) fn take(&self, number: u64) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        match files.ready.remove(&number) {
            Some(file) => Ok(file),
            None => self.make(&mut files, number, self.segment_bytes, false),
        }
    }

    /// The file of segment `number`, which was taken, for writes that may stay in the page cache.
    pub(crate) fn open_cached(&self, number: u64) -> Result<Arc<dyn File>> {
        self.disk.open(&segment_path(&self.dir, number), Mode::ReadWrite, false)
    }

    /// Makes the file of segment `number` ahead of need, unless it is there, and what is missing of an earlier one.
    pub(crate) fn prepare(&self, number: u64, fill: bool) -> Result<()> {
        let mut files = self.files.lock();
        if let Some(short) = files.short.filter(|&short| short <= number) {
            let file = self.disk.open(&segment_path(&self.dir, short), Mode::ReadWrite, true)?;
            file.allocate(self.segment_bytes)?;
            file.sync_data()?;
            files.short = None;
        }
        if !files.live.contains(&number) {
            let file = self.make(&mut files, number, self.segment_bytes, fill)?;
            files.ready.insert(number, file);
        }
        Ok(())
    }

    /// Makes the file of segment `number`, in which a log begins behind `cut`; how many bytes it has got.
    pub(crate) fn prepare_first(&self, number: u64, cut: Lsn, fill: bool) -> Result<u64> {
        match self.prepare(number, fill) {
            Err(e) if e.is_disk_full() => self.prepare_short(number, cut, e),
            other => other.map(|()| self.segment_bytes),
        }
    }

    /// As `prepare_first`, when there is no room for a whole segment, as `full` says.
    fn prepare_short(&self, number: u64, cut: Lsn, full: Error) -> Result<u64> {
        let size = self.segment_bytes;
        let mut files = self.files.lock();
        for n in cut.0 / size..number {
            let kept = cut.0.saturating_sub(n * size).next_multiple_of(IO_ALIGN as u64);
            let path = segment_path(&self.dir, n);
            if !files.live.contains(&n) {
                continue;
            }
            let file = self.disk.open(&path, Mode::ReadWrite, true)?;
            if file.len()? > kept {
                file.set_len(kept)?;
                file.sync_data()?;
            }
        }
        let mut bytes = SHORT_BYTES_MIN.min((size / SHORT_PART).max(2 * IO_ALIGN as u64));
        let file = self.make(&mut files, number, bytes, false).map_err(|e| if e.is_disk_full() { full } else { e })?;
        let step = (size / 64).max(1).next_multiple_of(IO_ALIGN as u64);
        while bytes < size && file.allocate((bytes + step).min(size)).is_ok() {
            bytes = (bytes + step).min(size);
        }
        file.sync_data()?;
        files.ready.insert(number, file);
        files.short = (bytes < size).then_some(number);
        Ok(bytes)
    }

    fn make(&self, files: &mut Files, number: u64, bytes: u64, fill: bool) -> Result<Arc<dyn File>> {
        let path = segment_path(&self.dir, number);
        // An attempt that failed may have announced the file all the same: from then on it is missing at no moment.
        let is_left = self.disk.exists(&path)?;
        let file = if is_left && self.has_full_size(&path)? {
            self.disk.open(&path, Mode::ReadWrite, true)?
        } else if let Some(spare) = files.pool.pop() {
            self.disk.rename(&spare, &path)?;
            self.disk.open(&path, Mode::ReadWrite, true)?
        } else {
            if is_left {
                // Of an attempt that failed half way, and could not remove it.
                self.disk.remove(&path)?;
            }
            let file = self.disk.open(&path, Mode::Create, true)?;
            let made = file.allocate(bytes).and_then(|()| self.fill(&*file, fill));
            if let Err(e) = made.and_then(|()| file.sync_data()) {
                // Give the space back; the first error is the one to report.
                let _ = self.disk.remove(&path);
                return Err(e);
            }
            file
        };
        self.disk.sync_dir(&self.dir)?;
        (self.announce)(number + 1)?;
        files.live.insert(number);
        Ok(file)
    }

    /// Writes zeros over a new file: otherwise every later sync also has to journal that the space is now written.
    fn fill(&self, file: &dyn File, fill: bool) -> Result<()> {
        if fill {
            let zeros = AlignedBuf::zeroed(FILL_BYTES);
            let mut offset = 0;
            while offset < self.segment_bytes {
                let n = (self.segment_bytes - offset).min(FILL_BYTES as u64);
                file.write_all_at(&zeros[..n as usize], offset)?;
                offset += n;
            }
        }
        Ok(())
    }

    /// Forgets the segments from `number` on, which nothing was written to, and says which they were. Whoever wants one of them
    /// after all gets a file that is announced anew.
    pub(crate) fn withdraw(&self, number: u64) -> BTreeSet<u64> {
        let mut files = self.files.lock();
        drop(files.ready.split_off(&number));
        files.live.split_off(&number)
    }

    /// Pools the files of segments that were withdrawn and are not announced any more: all of them, so that a start which finds
    /// the announcement in force knows that it was taken back. After an error some have kept their names, under which they
    /// mean nothing.
    pub(crate) fn pool(&self, withdrawn: BTreeSet<u64>) -> Result<()> {
        let mut files = self.files.lock();
        for n in withdrawn {
            let pooled = recycled_path(&self.dir, n);
            self.disk.rename(&segment_path(&self.dir, n), &pooled)?;
            if !files.pool.contains(&pooled) {
                files.pool.push(pooled);
            }
        }
        Ok(())
    }

    /// Segment `number` has not got all of its space any more.
    pub(crate) fn note_short(&self, number: u64) {
        self.files.lock().short = Some(number);
    }

    /// Keeps all segments, or gives up one such wish.
    pub(crate) fn hold(&self, on: bool) {
        let mut files = self.files.lock();
        files.holds = if on { files.holds + 1 } else { files.holds - 1 };
    }

    /// Pools or removes the files of all segments below `number`. While they are held nothing: a later call does it.
    pub(crate) fn release_before(&self, number: u64) -> Result<()> {
        let mut files = self.files.lock();
        if files.holds > 0 {
            return Ok(());
        }
        let mut changed = false;
        while let Some(n) = files.live.first().copied().filter(|&n| n < number) {
            let path = segment_path(&self.dir, n);
            let pooled = recycled_path(&self.dir, n);
            // A file pooled after a crash, unused, may bear the number of a segment that came to be after all.
            let free = files.pool.len() < self.pool_files && !files.pool.contains(&pooled);
            if free && self.has_full_size(&path)? {
                self.disk.rename(&path, &pooled)?;
                files.pool.push(pooled);
            } else {
                self.disk.remove(&path)?;
            }
            files.short = files.short.filter(|&short| short != n);
            files.live.remove(&n);
            changed = true;
        }
        if changed { self.disk.sync_dir(&self.dir) } else { Ok(()) }
    }

    fn has_full_size(&self, path: &Path) -> Result<bool> {
        Ok(self.disk.size(path)? == Some(self.segment_bytes))
    }

    /// Where segment `number` lies.
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        segment_path(&self.dir, number)
    }

    /// Numbers of the segments that have a file.
    pub(crate) fn live(&self) -> Vec<u64> {
        self.files.lock().live.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::io::{HookedDisk, MemDisk};

    /// An announcement that is durable, and reported as failed: the next attempt leaves the file where it is, whatever of the
    /// attempt a crash keeps.
    #[test]
    fn a_file_that_may_be_announced_is_never_missing() {
        let dir = Path::new("/log");
        let disk = MemDisk::new();
        disk.create_dir_all(dir).unwrap();
        let images: Arc<Mutex<Option<Vec<MemDisk>>>> = Arc::default();
        let hook = {
            let (disk, images) = (disk.clone(), images.clone());
            move |_, _: &Path| {
                if let Some(images) = &mut *images.lock() {
                    images.extend((0..8).map(|seed| disk.crash(seed)));
                }
                Ok(())
            }
        };
        let hooked = Arc::new(HookedDisk::new(Arc::new(disk.clone()), Arc::new(hook)));
        let announced = images.clone();
        let announce = move |number| match &mut *announced.lock() {
            images @ None => {
                *images = Some(Vec::new());
                Err(Error::Internal("durable, but nothing may follow".into()))
            }
            Some(_) => {
                assert_eq!(number, 3);
                Ok(())
            }
        };
        let segments = Segments::open(hooked, dir, 1 << 16, 2, 0, Box::new(announce)).unwrap();
        segments.prepare(2, true).unwrap_err();
        segments.prepare(2, true).unwrap();
        let images = images.lock().take().unwrap();
        assert!(images.len() > 8);
        assert!(images.iter().all(|image| image.exists(&segment_path(dir, 2)).unwrap()));
    }
}
