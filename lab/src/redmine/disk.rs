//! What else loads the disk: fio beside the server, with random blocks, half of them read and half written.
//!
//! As in the original the levels are none, one thread held to a quarter of what the disk gives it (there 14 operations a second of a
//! hard disk), and one, two or four without a limit, which is fio's depth of the queue. What the disk gives one thread is measured
//! once, before anything else is there. The file lies beside the servers' data, so it is the same device, and is read and written
//! past the system's cache.

use super::app::App;
use crate::child::{self, Bound};
use crate::kernel;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FILE: &str = "disk-load";
/// Bytes of a block.
const BLOCK: u64 = 4096;
/// The share of one thread's operations that a light load has.
const LIGHT: f64 = 0.25;
/// How long the measurement of the idle disk takes.
const IDLE: Duration = Duration::from_secs(2);

/// How much third parties ask of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    None,
    Light,
    Threads(u32),
}

impl Level {
    /// `none`, `light`, `1 thread`, `4 threads`.
    pub fn of(text: &str) -> Result<Level> {
        match (text, text.split_once(" thread")) {
            ("none", _) => Ok(Level::None),
            ("light", _) => Ok(Level::Light),
            (_, Some((number, "" | "s"))) => match number.parse() {
                Ok(threads @ 1..=64) => Ok(Level::Threads(threads)),
                _ => bail!("a load of the disk has 1 to 64 threads, not {number}"),
            },
            _ => bail!("a load of the disk is none, light or 'N threads', not {text}"),
        }
    }
}

/// A load that runs. Ended when dropped.
pub struct Load(Option<Bound>);

impl Load {
    /// Begins. The file must be there ([`lay_out`]); `idle` is what one thread had of the idle disk, in operations a second.
    pub fn begin(app: &App, level: Level, idle: f64) -> Result<Load> {
        let (threads, rate) = match level {
            Level::None => return Ok(Load(None)),
            Level::Light => (1, Some((idle * LIGHT / 2.0).round().max(1.0) as u64)),
            Level::Threads(threads) => (threads, None),
        };
        let mut bound = child::start(&fio(&file(app), threads, rate), &app.log())?;
        drop(bound.0.stdin.take());
        let mut load = Load(Some(bound));
        load.ensure_working()?;
        Ok(load)
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.0.as_ref().map(Bound::pid)
    }

    /// Operations so far; 0 without a load. An error when it has ended by itself.
    pub fn operations(&mut self) -> Result<u64> {
        let Some(bound) = &mut self.0 else { return Ok(0) };
        if let Some(status) = bound.0.try_wait()? {
            bail!("fio ended by itself ({status})");
        }
        // Past the cache each operation is a block of the process's own reads or writes.
        let spent = kernel::spent(bound.pid())?;
        Ok((spent.read_bytes + spent.write_bytes) / BLOCK)
    }

    /// Waits until it has done something.
    fn ensure_working(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.operations()? == 0 {
            ensure!(began.elapsed() < Duration::from_secs(30), "fio does nothing for half a minute");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Makes the file, of so many MiB, if it is not there.
pub fn lay_out(app: &App, mb: u64) -> Result<()> {
    ensure!(mb > 0, "the file of the disk's load has no size");
    let path = file(app);
    if fs::metadata(&path).is_ok_and(|meta| meta.len() == mb << 20) {
        return Ok(());
    }
    // Bytes that no device can leave out.
    let new = path.with_extension("new");
    let output = Command::new("dd")
        .args(["if=/dev/urandom", "bs=1M", "conv=fsync", &format!("count={mb}"), &format!("of={}", new.display())])
        .output()
        .context("there is no dd")?;
    ensure!(output.status.success(), "{} cannot be made: {}", new.display(), String::from_utf8_lossy(&output.stderr));
    fs::rename(&new, &path)?;
    Ok(())
}

/// Removes the file, if there is one.
pub fn remove(lab: &Path) {
    let path = super::folder(lab).join(FILE);
    let _ = fs::remove_file(path.with_extension("new"));
    let _ = fs::remove_file(path);
}

/// Operations a second of one thread without a limit while nothing else is there.
pub fn idle(app: &App) -> Result<f64> {
    let mut load = Load::begin(app, Level::Threads(1), 0.0)?;
    let (began, before) = (Instant::now(), load.operations()?);
    std::thread::sleep(IDLE);
    Ok((load.operations()? - before) as f64 / began.elapsed().as_secs_f64())
}

fn file(app: &App) -> PathBuf {
    app.folder().join(FILE)
}

fn fio(file: &Path, threads: u32, rate: Option<u64>) -> Command {
    let mut command = Command::new("fio");
    // One process, whose figures in /proc are those of the load.
    command.args(["--name=load", "--thread", "--ioengine=libaio", "--direct=1", "--rw=randrw", "--rwmixread=50"]);
    command.args([&format!("--bs={BLOCK}"), &format!("--filename={}", file.display())]);
    command.args([&format!("--iodepth={threads}"), "--norandommap", "--time_based", "--runtime=30d", "--eta=never"]);
    // Of each direction.
    if let Some(rate) = rate {
        command.arg(format!("--rate_iops={rate},{rate}"));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        assert_eq!(Level::of("none").unwrap(), Level::None);
        assert_eq!(Level::of("light").unwrap(), Level::Light);
        assert_eq!(Level::of("1 thread").unwrap(), Level::Threads(1));
        assert_eq!(Level::of("4 threads").unwrap(), Level::Threads(4));
        for wrong in ["", "heavy", "0 threads", "four threads", "4 threadss", "4"] {
            assert!(Level::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_process_and_half_the_rate_in_each_direction() {
        let words = |rate| {
            let command = fio(Path::new("/x"), 4, rate);
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert!(words(None).contains(&"--iodepth=4".to_string()) && words(None).contains(&"--thread".to_string()));
        assert!(words(None).iter().all(|word| !word.starts_with("--rate")));
        assert!(words(Some(7)).contains(&"--rate_iops=7,7".to_string()));
    }
}
