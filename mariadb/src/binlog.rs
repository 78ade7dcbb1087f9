//! Reading the server's binary logs: as much of them as tells which transactions they have.
//!
//! ```text
//! file    fe 'b' 'i' 'n', events
//! event   u32 time, u8 type, u32 server, u32 length of all, u32 position, u16 flags, body, checksum    little-endian
//! first   type 15: its flag 1 says that the file was not closed; u32 at 71 is a time if a start of the server (or RESET
//!         MASTER) began the file, and 0 if it continues the one before
//! Xid     type 16: the transaction of this number, a u64, is complete
//! ```
//!
//! Files of one run of the server have consecutive numbers. As the server does when it recovers, reading begins at the file
//! that the last checkpoint event in the newest file names, ends at the first event that makes no sense, and takes no notice of
//! checksums (`master_verify_checksum` is off unless somebody asks for it).
//!
//! Rejected: the server's own reader, `Log_event::read_log_event`. It wants its lists of options, buffers and mutexes to be
//! in place, and is another one in each version.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 4] = b"\xfebin";
const HEADER: usize = 19;
const IN_USE: u8 = 1;
const ROTATE: u8 = 4;
const DESCRIPTION: u8 = 15;
const XID: u8 = 16;
const CHECKPOINT: u8 = 161;
const ENCRYPTION: u8 = 164;
/// Where the time of a run's first file is in the first event, and how much of the file must be read for it.
const BEGINS: usize = 19 + 2 + 50;
const HEAD: usize = MAGIC.len() + BEGINS + 4;
/// Bytes of a name in a checkpoint event that are believed.
const NAME_MAX: u32 = 4096;

/// What the first event of a file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Unix time at which the file was made.
    pub created: u32,
    /// It is the first of a run of the server, or since RESET MASTER.
    pub begins: bool,
    /// It was not closed.
    pub in_use: bool,
}

/// Why the logs do not tell, in words.
pub type Unknown = String;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn cannot(path: &Path, error: &io::Error) -> Unknown {
    format!("{} cannot be read: {error}", path.display())
}

/// Reads the beginning of a file.
pub fn head(path: &Path) -> Result<Head, Unknown> {
    let mut bytes = [0; HEAD];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(|error| cannot(path, &error))?;
    let event = &bytes[MAGIC.len()..];
    if !bytes.starts_with(MAGIC) || event[4] != DESCRIPTION {
        return Err(format!("{} is no binary log", path.display()));
    }
    Ok(Head { created: u32_at(event, 0), begins: u32_at(event, BEGINS) != 0, in_use: event[17] & IN_USE != 0 })
}

/// The name's part before the number, and the number.
fn split(path: &Path) -> Option<(&str, &str)> {
    path.to_str()?.rsplit_once('.').filter(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()))
}

/// The name of the file that has the number `count` above that of `path`.
fn later(path: &Path, count: u64) -> Option<PathBuf> {
    let (stem, digits) = split(path)?;
    let number = digits.parse::<u64>().ok()?.checked_add(count)?;
    Some(format!("{stem}.{number:0width$}", width = digits.len()).into())
}

/// The last file of the run of the server in which `first`, made at `created`, was written.
pub fn last_of_run(first: &Path, created: u32) -> Result<PathBuf, Unknown> {
    if head(first)?.created != created {
        return Err(format!("{} is another file than it was", first.display()));
    }
    let mut last = first.to_owned();
    while let Some(next) = later(&last, 1).filter(|next| head(next).is_ok_and(|head| !head.begins)) {
        last = next;
    }
    Ok(last)
}

/// What one file has.
struct Contents {
    checkpoint: Option<String>,
    is_continued: bool,
}

/// Reads a file to its end; which of the numbers in `wanted` it has goes to `found`.
fn read(path: &Path, wanted: &HashSet<u64>, found: &mut HashSet<u64>) -> Result<Contents, Unknown> {
    let mut contents = Contents { checkpoint: None, is_continued: false };
    let mut body = || -> io::Result<bool> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut file = BufReader::with_capacity(1 << 18, file);
        file.seek(SeekFrom::Start(MAGIC.len() as u64))?;
        let mut at = MAGIC.len() as u64;
        while size - at >= HEADER as u64 {
            let mut header = [0; HEADER];
            file.read_exact(&mut header)?;
            let len = u64::from(u32_at(&header, 9));
            if len < HEADER as u64 || len > size - at {
                break;
            }
            let mut left = len - HEADER as u64;
            contents.is_continued = header[4] == ROTATE;
            match header[4] {
                XID if left >= 8 => {
                    let mut number = [0; 8];
                    file.read_exact(&mut number)?;
                    left -= 8;
                    let number = u64::from_le_bytes(number);
                    if wanted.contains(&number) {
                        found.insert(number);
                    }
                }
                CHECKPOINT if left >= 4 => {
                    let mut length = [0; 4];
                    file.read_exact(&mut length)?;
                    left -= 4;
                    let length = u32::from_le_bytes(length);
                    if length <= NAME_MAX && u64::from(length) <= left {
                        let mut name = vec![0; length as usize];
                        file.read_exact(&mut name)?;
                        left -= u64::from(length);
                        contents.checkpoint = Some(String::from_utf8_lossy(&name).into_owned());
                    }
                }
                ENCRYPTION => return Ok(false),
                _ => {}
            }
            file.seek_relative(left as i64)?;
            at += len;
        }
        Ok(true)
    };
    match body() {
        Ok(true) => Ok(contents),
        Ok(false) => Err(format!("{} is encrypted", path.display())),
        Err(error) => Err(cannot(path, &error)),
    }
}

/// Which of the transactions in `wanted` are in the logs of the run whose last file this is.
pub fn complete(last: &Path, wanted: &HashSet<u64>) -> Result<HashSet<u64>, Unknown> {
    let mut found = HashSet::new();
    let newest = read(last, wanted, &mut found)?;
    // Where the server was about to go on when it ended, its next start made a file of that name.
    if newest.is_continued && later(last, 1).is_none_or(|next| head(&next).is_err()) {
        return Err(format!("the file that continues {} is missing", last.display()));
    }
    let Some(from) = newest.checkpoint else { return Ok(found) };
    let from = last.with_file_name(OsStr::new(&from));
    let number = |path: &Path| split(path).and_then(|(_, number)| number.parse::<u64>().ok());
    let count = number(last).zip(number(&from)).and_then(|(last, from)| last.checked_sub(from));
    let count = count.ok_or_else(|| format!("{} has a checkpoint at {}", last.display(), from.display()))?;
    for ahead in 0..count {
        let path = later(&from, ahead).ok_or_else(|| format!("{} has no number", from.display()))?;
        read(&path, wanted, &mut found)?;
    }
    Ok(found)
}

/// The newest file that an index names, if there is any.
pub fn newest(index: &Path) -> Result<Option<PathBuf>, Unknown> {
    match std::fs::read_to_string(index) {
        Ok(text) => Ok(text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(PathBuf::from)),
        // None was written yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot(index, &error)),
    }
}

/// Files as the server writes them.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub fn event(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        // The checksum at its end is nobody's business here.
        let len = (HEADER + body.len() + 4) as u32;
        let mut event = vec![0; HEADER];
        event[0..4].copy_from_slice(&1_700_000_000u32.to_le_bytes());
        event[4] = kind;
        event[9..13].copy_from_slice(&len.to_le_bytes());
        event[17] = flags;
        event.extend_from_slice(body);
        event.extend_from_slice(b"csum");
        event
    }

    pub fn xid(number: u64) -> Vec<u8> {
        event(XID, 0, &number.to_le_bytes())
    }

    pub fn rows() -> Vec<u8> {
        event(23, 0, &[XID; 5000])
    }

    pub fn rotate() -> Vec<u8> {
        event(ROTATE, 0, b"\x04\0\0\0\0\0\0\0bin.000009")
    }

    pub fn checkpoint(name: &str) -> Vec<u8> {
        event(CHECKPOINT, 0, &[&(name.len() as u32).to_le_bytes(), name.as_bytes()].concat())
    }

    pub fn file(created: u32, begins: bool, in_use: bool, events: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; BEGINS - HEADER + 4 + 160];
        if begins {
            body[BEGINS - HEADER..][..4].copy_from_slice(&created.to_le_bytes());
        }
        let mut first = event(DESCRIPTION, u8::from(in_use), &body);
        first[0..4].copy_from_slice(&created.to_le_bytes());
        [&MAGIC[..], &first, &events.concat()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::samples::*;
    use super::*;

    fn found(last: &Path) -> Result<Vec<u64>, Unknown> {
        let mut found: Vec<u64> = complete(last, &(1..100).collect())?.into_iter().collect();
        found.sort_unstable();
        Ok(found)
    }

    #[test]
    fn a_run_is_read_from_its_checkpoint_to_the_first_event_that_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let at = |number: u64| folder.path().join(format!("my.bin.{number:06}"));
        let write = |number: u64, bytes: Vec<u8>| std::fs::write(at(number), bytes).unwrap();
        write(8, file(10, true, true, &[checkpoint("my.bin.000008"), xid(1)]));
        write(9, file(20, true, false, &[checkpoint("my.bin.000009"), xid(2), rows(), xid(3), rotate()]));
        write(10, file(30, false, false, &[checkpoint("my.bin.000009"), xid(4), rotate()]));
        let half = xid(7)[..20].to_vec();
        let end =
            vec![checkpoint("my.bin.000010"), rows(), xid(5), xid(500), checkpoint("my.bin.000010"), xid(6), half];
        write(11, file(40, false, true, &end));
        write(12, file(50, true, true, &[checkpoint("my.bin.000012"), xid(8)]));
        assert_eq!(head(&at(9)), Ok(Head { created: 20, begins: true, in_use: false }));
        assert_eq!(head(&at(11)), Ok(Head { created: 40, begins: false, in_use: true }));
        assert_eq!(last_of_run(&at(8), 10), Ok(at(8)));
        assert_eq!(last_of_run(&at(9), 20), Ok(at(11)));
        assert_eq!(last_of_run(&at(12), 50), Ok(at(12)));
        assert!(last_of_run(&at(9), 21).unwrap_err().contains("another file"));
        assert!(last_of_run(&at(7), 10).unwrap_err().contains("cannot be read"));
        assert_eq!(found(&at(8)), Ok(vec![1]));
        assert_eq!(found(&at(11)), Ok(vec![4, 5, 6]));
        // One that is needed is gone.
        std::fs::remove_file(at(10)).unwrap();
        assert!(found(&at(11)).unwrap_err().contains("000010"));
        assert!(found(&at(9)).unwrap_err().contains("continues"), "which is not the last, as its end says");
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bin.000001");
        for (bytes, what) in [
            (file(1, true, true, &[event(ENCRYPTION, 0, b"key"), xid(1)]), "encrypted"),
            (file(1, true, true, &[checkpoint("bin.000002")]), "checkpoint"),
            (file(1, true, true, &[checkpoint("bin")]), "checkpoint"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert!(found(&path).unwrap_err().contains(what));
        }
        let whole = file(1, true, true, &[]);
        for n in 0..HEAD {
            std::fs::write(&path, &whole[..n]).unwrap();
            assert!(head(&path).is_err());
        }
        std::fs::write(&path, [b"#sql", &whole[4..]].concat()).unwrap();
        assert!(head(&path).unwrap_err().contains("no binary log"));
        // Without a checkpoint, as older servers write them, the last file is all.
        std::fs::write(&path, file(1, true, true, &[xid(3), vec![0; 4000]])).unwrap();
        assert_eq!(found(&path), Ok(vec![3]));
    }

    #[test]
    fn names_count_on_as_the_servers_do() {
        let next = |name: &str| later(Path::new(name), 1);
        assert_eq!(next("./bin.000009"), Some("./bin.000010".into()));
        assert_eq!(next("/a.b/my.bin.999999"), Some("/a.b/my.bin.1000000".into()));
        assert_eq!(next("/a.b/bin"), None);
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("bin.index");
        assert_eq!(newest(&index), Ok(None));
        std::fs::write(&index, "./bin.000001\n./bin.000002\n\n").unwrap();
        assert_eq!(newest(&index), Ok(Some("./bin.000002".into())));
        std::fs::write(&index, "").unwrap();
        assert_eq!(newest(&index), Ok(None));
    }
}
