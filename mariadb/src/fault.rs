//! A disk that fails on demand: for tests of a real server only.
//!
//! `STRATA_FAIL_AT=operation:fault:part:switch` in the environment of the server: while the file `switch` exists, each
//! `operation` ("read", "write" or "sync") on a file whose path contains `part` fails with the error `fault` ("eio" or
//! "enospc"), or does not come back ("hang"). Several are divided by ";". A test makes the file when the server has come to
//! where its disk is to fail. It is no variable of the server, so that nobody can set it by accident or find it in a list.
//!
//! A sync that fails so may have written its data all the same, as with a real disk: what it covered is in the files when
//! the server is started again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strata_engine::io::{Disk, File, Mode};
use strata_engine::{Error as EngineError, Result as EngineResult};
use strata_row::{Error, Result};

const VARIABLE: &str = "STRATA_FAIL_AT";

/// How often a disk that hangs looks whether it still does.
const HANG_POLL: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// The system's number of the error.
    Error(i32),
    Hang,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Fault {
    operation: String,
    effect: Effect,
    part: String,
    switch: PathBuf,
}

fn parse(text: &str) -> Option<Fault> {
    let mut words = text.splitn(4, ':');
    let (operation, effect, part, switch) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let effect = match effect {
        "eio" => Effect::Error(5),
        "enospc" => Effect::Error(28),
        "hang" => Effect::Hang,
        _ => return None,
    };
    let known = matches!(operation, "read" | "write" | "sync") && !switch.is_empty();
    known.then(|| Fault { operation: operation.into(), effect, part: part.into(), switch: switch.into() })
}

impl Fault {
    fn strike(&self, operation: &'static str, path: &Path) -> EngineResult<()> {
        let concerned = self.operation == operation && path.to_string_lossy().contains(&self.part);
        while concerned && self.switch.exists() {
            match self.effect {
                Effect::Error(number) => {
                    return Err(EngineError::io(operation, path, std::io::Error::from_raw_os_error(number)));
                }
                Effect::Hang => std::thread::sleep(HANG_POLL),
            }
        }
        Ok(())
    }
}

/// `disk`, failing as the environment asks for.
pub fn disk(disk: Arc<dyn Disk>) -> Result<Arc<dyn Disk>> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(disk) };
    text.split(';').try_fold(disk, |disk, text| match parse(text) {
        Some(fault) => Ok(Arc::new(FaultDisk { disk, fault: Arc::new(fault) }) as Arc<dyn Disk>),
        None => Err(Error::invalid(format!("{VARIABLE}: {text} is not operation:fault:part:switch"))),
    })
}

struct FaultDisk {
    disk: Arc<dyn Disk>,
    fault: Arc<Fault>,
}

struct FaultFile {
    file: Arc<dyn File>,
    fault: Arc<Fault>,
}

impl Disk for FaultDisk {
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> EngineResult<Arc<dyn File>> {
        let file = self.disk.open(path, mode, direct)?;
        Ok(Arc::new(FaultFile { file, fault: self.fault.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> EngineResult<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> EngineResult<()> {
        self.disk.remove(path)
    }
    fn list(&self, dir: &Path) -> EngineResult<Vec<PathBuf>> {
        self.disk.list(dir)
    }
    fn exists(&self, path: &Path) -> EngineResult<bool> {
        self.disk.exists(path)
    }
    fn create_dir_all(&self, dir: &Path) -> EngineResult<()> {
        self.disk.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> EngineResult<()> {
        self.disk.sync_dir(dir)
    }
    fn lock_dir(&self, dir: &Path) -> EngineResult<Box<dyn Send + Sync>> {
        self.disk.lock_dir(dir)
    }
}

impl File for FaultFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> EngineResult<()> {
        self.fault.strike("read", self.path())?;
        self.file.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> EngineResult<()> {
        self.fault.strike("write", self.path())?;
        self.file.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> EngineResult<()> {
        self.fault.strike("sync", self.path())?;
        self.file.sync_data()
    }
    fn len(&self) -> EngineResult<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> EngineResult<()> {
        self.file.set_len(len)
    }
    fn allocate(&self, len: u64) -> EngineResult<()> {
        self.file.allocate(len)
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_engine::io::PosixDisk;

    #[test]
    fn faults_are_named_and_strike_while_the_switch_is_there() {
        for text in ["", "sync", "sync:eio:/log/", "sync:eio:/log/:", "open:eio:x:y", "sync:oops:x:y"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("switch");
        let fault = parse(&format!("sync:eio:/log/:{}", switch.display())).unwrap();
        let log = folder.path().join("log");
        std::fs::create_dir(&log).unwrap();
        let disk = FaultDisk { disk: Arc::new(PosixDisk::default()), fault: Arc::new(fault) };
        let file = disk.open(&log.join("1"), Mode::Create, false).unwrap();
        let other = disk.open(&folder.path().join("2"), Mode::Create, false).unwrap();
        file.sync_data().unwrap();
        std::fs::write(&switch, "").unwrap();
        let error = file.sync_data().unwrap_err().to_string();
        assert!(error.contains("sync") && error.contains("log/1") && error.contains("os error 5"), "{error}");
        file.write_all_at(b"x", 0).unwrap();
        other.sync_data().unwrap();
        std::fs::remove_file(&switch).unwrap();
        file.sync_data().unwrap();
    }

    #[test]
    fn a_disk_that_hangs_goes_on_when_the_switch_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("switch");
        let fault = parse(&format!("read:hang:data:{}", switch.display())).unwrap();
        let disk = FaultDisk { disk: Arc::new(PosixDisk::default()), fault: Arc::new(fault) };
        let file = disk.open(&folder.path().join("data"), Mode::Create, false).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        std::fs::write(&switch, "").unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, 0).unwrap();
                assert!(!switch.exists());
                byte
            });
            std::fs::remove_file(&switch).unwrap();
            assert_eq!(reading.join().unwrap(), *b"x");
        });
    }
}
