//! A disk that fails on demand: for tests of a real server only.
//!
//! `STRATA_FAIL_AT=operation:error:part:switch` in the environment of the server: while the file `switch` exists, each
//! `operation` ("write" or "sync") on a file whose path contains `part` fails with `error` ("eio" or "enospc"). A test makes
//! the file when the server has come to where it is to fail. It is no variable of the server, so that nobody can set it by
//! accident or find it in a list.
//!
//! A sync that fails so may have written its data all the same, as with a real disk: what it covered is in the files when
//! the server is started again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_engine::io::{Disk, File, Mode};
use strata_engine::{Error as EngineError, Result as EngineResult};
use strata_row::{Error, Result};

const VARIABLE: &str = "STRATA_FAIL_AT";

#[derive(Clone, PartialEq, Eq, Debug)]
struct Fault {
    operation: String,
    os_error: i32,
    part: String,
    switch: PathBuf,
}

fn parse(text: &str) -> Option<Fault> {
    let mut words = text.splitn(4, ':');
    let (operation, error, part, switch) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let os_error = match error {
        "eio" => 5,
        "enospc" => 28,
        _ => return None,
    };
    let known = matches!(operation, "write" | "sync") && !switch.is_empty();
    known.then(|| Fault { operation: operation.into(), os_error, part: part.into(), switch: switch.into() })
}

impl Fault {
    fn strike(&self, operation: &'static str, path: &Path) -> EngineResult<()> {
        if self.operation == operation && path.to_string_lossy().contains(&self.part) && self.switch.exists() {
            return Err(EngineError::io(operation, path, std::io::Error::from_raw_os_error(self.os_error)));
        }
        Ok(())
    }
}

/// `disk`, failing as the environment asks for.
pub fn disk(disk: Arc<dyn Disk>) -> Result<Arc<dyn Disk>> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(disk) };
    match parse(&text) {
        Some(fault) => Ok(Arc::new(FaultDisk { disk, fault: Arc::new(fault) })),
        None => Err(Error::invalid(format!("{VARIABLE}={text} is not operation:error:part:switch"))),
    }
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
        for text in ["", "sync", "sync:eio:/log/", "sync:eio:/log/:", "read:eio:x:y", "sync:oops:x:y"] {
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
}
