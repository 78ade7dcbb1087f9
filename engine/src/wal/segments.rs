//! The files behind the log: segments in use, the next ones made ahead of need, and a pool of released ones.
//!
//! Invariant: the name of a segment is durable, and announced, before the first unit is written to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::format::{is_recycled, recycled_path, segment_number, segment_path};
use crate::base::Result;
use crate::io::{AlignedBuf, Disk, File, Mode};

const FILL_BYTES: usize = 1 << 20;

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
        let mut files = Files { live: BTreeSet::new(), pool: Vec::new(), ready: BTreeMap::new() };
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
        for (path, segment) in spare {
            if files.pool.contains(&path) {
                // Replaced by the file of the segment of this number, whose own name had survived too.
                continue;
            }
            let usable = files.pool.len() < pool_files
                && disk.open(&path, Mode::Read, false).and_then(|f| f.len())? == segment_bytes;
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
        disk.sync_dir(dir)?;
        Ok(Segments { disk, dir: dir.to_owned(), segment_bytes, pool_files, announce, files: Mutex::new(files) })
    }

    /// The file of segment `number`, about to be written.
    pub(crate) fn take(&self, number: u64) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        match files.ready.remove(&number) {
            Some(file) => Ok(file),
            None => self.make(&mut files, number, false),
        }
    }

    /// Makes the file of segment `number` ahead of need, unless it is there.
    pub(crate) fn prepare(&self, number: u64, fill: bool) -> Result<()> {
        let mut files = self.files.lock();
        if !files.live.contains(&number) {
            let file = self.make(&mut files, number, fill)?;
            files.ready.insert(number, file);
        }
        Ok(())
    }

    fn make(&self, files: &mut Files, number: u64, fill: bool) -> Result<Arc<dyn File>> {
        let path = segment_path(&self.dir, number);
        let file = if let Some(spare) = files.pool.pop() {
            self.disk.rename(&spare, &path)?;
            self.disk.open(&path, Mode::ReadWrite, true)?
        } else {
            if self.disk.exists(&path)? {
                // Left by an earlier attempt that failed half way.
                self.disk.remove(&path)?;
            }
            let file = self.disk.open(&path, Mode::Create, true)?;
            let made = file.allocate(self.segment_bytes).and_then(|()| self.fill(&*file, fill));
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

    /// Pools or removes the files of all segments below `number`.
    pub(crate) fn release_before(&self, number: u64) -> Result<()> {
        let mut files = self.files.lock();
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
            files.live.remove(&n);
            changed = true;
        }
        if changed { self.disk.sync_dir(&self.dir) } else { Ok(()) }
    }

    fn has_full_size(&self, path: &Path) -> Result<bool> {
        Ok(self.disk.open(path, Mode::Read, false)?.len()? == self.segment_bytes)
    }

    /// Numbers of the segments that have a file.
    pub(crate) fn live(&self) -> Vec<u64> {
        self.files.lock().live.iter().copied().collect()
    }
}
