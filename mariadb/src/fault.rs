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
use strata_engine::io::{Disk, HookedDisk};
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
        Some(fault) => Ok(failing(disk, fault)),
        None => Err(Error::invalid(format!("{VARIABLE}: {text} is not operation:fault:part:switch"))),
    })
}

fn failing(disk: Arc<dyn Disk>, fault: Fault) -> Arc<dyn Disk> {
    Arc::new(HookedDisk::new(disk, Arc::new(move |operation, path| fault.strike(operation.name(), path))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_engine::io::{Mode, PosixDisk};

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
        let disk = failing(Arc::new(PosixDisk::default()), fault);
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
        let disk = failing(Arc::new(PosixDisk::default()), fault);
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
