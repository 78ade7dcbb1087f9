//! Files: walked through, read with their checksum and at a limited rate, written durably.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Files are read in pieces of this size.
pub const PIECE: usize = 1 << 20;

/// A copy is made durable whenever so much of it was written: all at once it would keep the server's own syncs waiting. And so much is done
/// before a rest.
const SYNC_BYTES: usize = 4 << 20;

/// What a file is on its machine. A table file never changes, so one of the same name and identity has the same content: an inode
/// that was used again has another time.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Nanoseconds since 1970 of its last change.
    pub modified_ns: i128,
}

impl Identity {
    /// That of the file at `path`.
    pub fn of(path: &Path) -> Result<Identity> {
        let meta = fs::metadata(path).with_context(|| path.display().to_string())?;
        let modified_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(Identity { device: meta.dev(), inode: meta.ino(), modified_ns })
    }
}

/// The files below `dir`, as paths relative to it, sorted.
pub fn walk(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(at) = left.pop() {
        let full = dir.join(&at);
        for entry in fs::read_dir(&full).with_context(|| full.display().to_string())? {
            let entry = entry?;
            let path = at.join(entry.file_name());
            if entry.file_type()?.is_dir() { left.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// How fast files are read and copied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// As fast as it goes.
    Full,
    /// So many MiB per second.
    Rate(u32),
    /// Resting as long as working: whoever else uses the disk has it for half of the time, however fast it is.
    Half,
}

impl Pace {
    /// That of an option: MiB per second, 0 for no limit.
    pub fn of(mib_per_s: u32) -> Pace {
        if mib_per_s == 0 { Pace::Full } else { Pace::Rate(mib_per_s) }
    }
}

/// Keeps to a pace.
pub struct Throttle {
    pace: Pace,
    /// When the bytes below began to be read.
    since: Instant,
    bytes: u64,
}

impl Throttle {
    /// From now on.
    pub fn new(pace: Pace) -> Throttle {
        Throttle { pace, since: Instant::now(), bytes: 0 }
    }

    /// Waits until so many more bytes, which were read and whose predecessors were written, are within the pace.
    pub fn pass(&mut self, bytes: usize) {
        if self.pace == Pace::Full {
            return;
        }
        let rest = self.rest(bytes, Instant::now());
        if rest > Duration::ZERO {
            sleep(rest);
        }
        if self.pace == Pace::Half && self.bytes == 0 {
            self.since = Instant::now();
        }
    }

    /// How long to wait after so many more bytes.
    fn rest(&mut self, bytes: usize, now: Instant) -> Duration {
        self.bytes += bytes as u64;
        let worked = now.duration_since(self.since);
        match self.pace {
            Pace::Full => Duration::ZERO,
            Pace::Rate(rate) => {
                let due = self.bytes as f64 / (f64::from(rate) * f64::from(1 << 20));
                Duration::from_secs_f64(due).saturating_sub(worked)
            }
            Pace::Half if self.bytes < SYNC_BYTES as u64 => Duration::ZERO,
            Pace::Half => {
                self.bytes = 0;
                worked
            }
        }
    }
}

/// Reads a file, at a rate, and knows the checksum of what was read.
pub struct Hashing<'a> {
    file: File,
    throttle: &'a mut Throttle,
    hash: Sha256,
    bytes: u64,
}

impl<'a> Hashing<'a> {
    /// The file at `path`.
    pub fn open(path: &Path, throttle: &'a mut Throttle) -> Result<Hashing<'a>> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(Hashing { file, throttle, hash: Sha256::new(), bytes: 0 })
    }

    /// Bytes that were read, and their checksum.
    pub fn finish(self) -> (u64, String) {
        (self.bytes, self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Its length now.
    pub fn len(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl Read for Hashing<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.throttle.pass(n);
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
}

/// Size and checksum of a file.
pub fn checksum(path: &Path, throttle: &mut Throttle) -> Result<(u64, String)> {
    copy_to(path, &mut io::sink(), throttle)
}

/// Copies a file, durably but for its name; its size and checksum.
pub fn copy(from: &Path, to: &Path, throttle: &mut Throttle) -> Result<(u64, String)> {
    if let Some(above) = to.parent() {
        fs::create_dir_all(above).with_context(|| above.display().to_string())?;
    }
    let file = File::create_new(to).with_context(|| to.display().to_string())?;
    let mut file = Durable { file, unsynced: 0 };
    let done = copy_to(from, &mut file, throttle)?;
    file.file.sync_all().with_context(|| to.display().to_string())?;
    Ok(done)
}

/// A file that is made durable while it is written.
struct Durable {
    file: File,
    unsynced: usize,
}

impl Write for Durable {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.file.write(buf)?;
        self.unsynced += n;
        if self.unsynced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn copy_to(from: &Path, to: &mut dyn Write, throttle: &mut Throttle) -> Result<(u64, String)> {
    let mut source = Hashing::open(from, throttle)?;
    let mut piece = vec![0; PIECE];
    loop {
        match source.read(&mut piece).with_context(|| from.display().to_string())? {
            0 => return Ok(source.finish()),
            n => to.write_all(&piece[..n]).with_context(|| format!("copying {}", from.display()))?,
        }
    }
}

/// Makes the names in a directory durable, and those in all directories below it.
pub fn sync_names(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_names(&entry.path())?;
        }
    }
    sync_dir(dir)
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| dir.display().to_string())
}

/// Writes a file that is there as a whole or not at all, durably.
pub fn write_durably(path: &Path, text: &[u8]) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()
    });
    written.with_context(|| temporary.display().to_string())?;
    fs::rename(&temporary, path).with_context(|| path.display().to_string())?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_checksum_of_the_field() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("deep/b"));
        fs::write(&from, b"abc").unwrap();
        let (bytes, sum) = copy(&from, &to, &mut Throttle::new(Pace::Full)).unwrap();
        assert_eq!(bytes, 3);
        assert_eq!(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(checksum(&to, &mut Throttle::new(Pace::Full)).unwrap(), (bytes, sum));
        assert!(copy(&from, &to, &mut Throttle::new(Pace::Full)).is_err(), "nothing is written over");
        assert_eq!(walk(dir.path()).unwrap(), [PathBuf::from("a"), PathBuf::from("deep/b")]);
        let before = Identity::of(&from).unwrap();
        assert_eq!(before, Identity::of(&from).unwrap());
        assert_ne!(before, Identity::of(&to).unwrap());
    }

    #[test]
    fn a_rate_is_kept() {
        let began = Instant::now();
        let mut throttle = Throttle::new(Pace::of(10));
        (0..4).for_each(|_| throttle.pass(1 << 19));
        assert!(began.elapsed() >= Duration::from_millis(199));
    }

    /// Guards that who gives no rate leaves the disk to the server for as long as a copy has used it, be it fast or slow.
    #[test]
    fn a_rest_is_as_long_as_the_work() {
        let at = |start: Instant, ms| start + Duration::from_millis(ms);
        let mut throttle = Throttle::new(Pace::Half);
        let start = throttle.since;
        assert_eq!(throttle.rest(3 << 20, at(start, 100)), Duration::ZERO);
        assert_eq!(throttle.rest(1 << 20, at(start, 130)), Duration::from_millis(130));
        throttle.since = at(start, 260);
        assert_eq!(throttle.rest(4 << 20, at(start, 270)), Duration::from_millis(10));
        let mut full = Throttle::new(Pace::of(0));
        assert_eq!(full.rest(1 << 30, at(full.since, 1000)), Duration::ZERO);
    }
}
