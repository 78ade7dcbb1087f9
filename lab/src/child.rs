//! A process that ends with the lab, however the lab ends.
//!
//! The kernel kills it when the thread that started it is gone (`setpriv --pdeathsig`), so it must be started by one that lives as
//! long as it is needed. It has no terminal, its errors go to a file, and dropping it kills it.

use crate::paths;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Kills and waits when it is dropped.
#[derive(Debug)]
pub struct Bound(pub Child);

/// Starts a program; standard input and output are as `command` says, errors are added to a file.
pub fn start(command: &Command, errors: &Path) -> Result<Bound> {
    let mut words = vec![command.get_program().to_owned()];
    words.extend(command.get_args().map(ToOwned::to_owned));
    if paths::have_program("setpriv") {
        let binding = ["setpriv", "--pdeathsig", "KILL", "--"].map(Into::into);
        words.splice(0..0, binding);
    }
    let log = fs::File::options().create(true).append(true).open(errors);
    let log = log.with_context(|| format!("{} cannot be written", errors.display()))?;
    let mut bound = Command::new(&words[0]);
    bound.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        bound.current_dir(dir);
    }
    let child = bound.spawn().with_context(|| format!("{} cannot be started", words[0].to_string_lossy()))?;
    Ok(Bound(child))
}

impl Bound {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it ends by itself; false if it does not in time.
    pub fn ends_within(&mut self, patience: Duration) -> bool {
        let began = Instant::now();
        loop {
            match self.0.try_wait() {
                Ok(Some(_)) => return true,
                Ok(None) if began.elapsed() < patience => std::thread::sleep(Duration::from_millis(10)),
                _ => return false,
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // One that has ended already takes no harm.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "STRATA_LAB_TEST_HOLDS";

    fn lives(pid: u32) -> bool {
        // A process that nobody has waited for yet does not live.
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn until(mut done: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if done() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn sleeper(dir: &Path) -> Bound {
        let mut command = Command::new("sleep");
        command.arg("1000");
        start(&command, &dir.join("errors")).unwrap()
    }

    /// Not a test of its own: the lab of the next one, which starts a process and lives until it is killed.
    #[test]
    fn holder() {
        let Some(dir) = std::env::var_os(PLACE) else { return };
        let dir = Path::new(&dir);
        let child = sleeper(dir);
        // Before that it is setpriv, which may not have bound it yet.
        let name = || fs::read_to_string(format!("/proc/{}/comm", child.pid())).unwrap_or_default();
        assert!(until(|| name().trim() == "sleep"), "it is {}", name());
        fs::write(dir.join("new"), child.pid().to_string()).unwrap();
        fs::rename(dir.join("new"), dir.join("pid")).unwrap();
        std::thread::sleep(Duration::from_secs(1000));
    }

    #[test]
    fn a_kill_of_the_lab_ends_what_it_started() {
        let dir = std::env::temp_dir().join(format!("strata-lab-bound-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut lab = Command::new(std::env::current_exe().unwrap());
        lab.args(["--exact", "child::tests::holder", "--nocapture"]).env(PLACE, &dir);
        let mut lab = Bound(lab.stdout(Stdio::null()).spawn().unwrap());
        assert!(until(|| dir.join("pid").exists()), "the lab of this test has started its process");
        let pid: u32 = fs::read_to_string(dir.join("pid")).unwrap().parse().unwrap();
        assert!(lives(pid));
        // SIGKILL: nothing of the lab runs any more that could clean up.
        lab.0.kill().unwrap();
        lab.0.wait().unwrap();
        assert!(until(|| !lives(pid)), "process {pid} is left");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn dropping_ends_it() {
        let child = sleeper(&std::env::temp_dir());
        let pid = child.pid();
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
