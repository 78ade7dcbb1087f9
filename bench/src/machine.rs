//! The machine, the sources and the files: what a report must say beside its figures, read from where the system says it.

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::store::Result;

/// First line of a command's output, or nothing.
fn line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// The time, in UTC.
pub fn utc() -> String {
    line("date", &["-u", "+%Y-%m-%d %H:%M:%S"])
}

/// The commit that was checked out, with a mark if files differ from it.
pub fn commit() -> String {
    let changed = !line("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    line("git", &["rev-parse", "--short", "HEAD"]) + if changed { " with changes" } else { "" }
}

/// Processor, memory, kernel.
pub fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: String, name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        found.trim_start_matches([' ', '\t', ':']).to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = value(read("/proc/meminfo"), "MemTotal");
    let gigabytes = memory.split(' ').next().and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1e6;
    let release = read("/proc/sys/kernel/osrelease");
    format!(
        "{cores} cores of {}, {gigabytes:.0} GB, Linux {}",
        value(read("/proc/cpuinfo"), "model name"),
        release.trim()
    )
}

/// Load average of the last minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Names and versions of what is compared, from the lock file that this was built with.
pub fn versions() -> Vec<String> {
    let lock = include_str!("../Cargo.lock");
    let version = |name: &str| {
        let package = lock.split("[[package]]").find(|package| package.contains(&format!("name = \"{name}\"\n")));
        let line = package.and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = ")));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let built_in = version("librocksdb-sys");
    vec![
        format!("strata-engine {}", version("strata-engine")),
        format!("RocksDB {} (rocksdb {})", built_in.split('+').nth(1).unwrap_or_default(), version("rocksdb")),
        format!("fjall {}", version("fjall")),
        format!("LMDB (heed {})", version("heed")),
    ]
}

/// All files below a folder. Files that vanish meanwhile are left out.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// Bytes on disk of the files below a folder: of data, and of those that `is_log` says are the log's.
pub fn space(dir: &Path, is_log: &dyn Fn(&str) -> bool) -> Result<(u64, u64)> {
    let (mut data, mut log) = (0, 0);
    for path in files(dir)? {
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // Blocks, not length: logs are reserved ahead, maps have holes.
        *(if is_log(&name) { &mut log } else { &mut data }) += meta.blocks() * 512;
    }
    Ok((data, log))
}

/// The same once files that are no longer needed have been removed, which stores do in their own time.
pub fn settled_space(dir: &Path, is_log: &dyn Fn(&str) -> bool) -> Result<(u64, u64)> {
    const STEPS: usize = 60;
    const STEP: Duration = Duration::from_millis(50);
    let mut last = space(dir, is_log)?;
    let mut unchanged = 0;
    for _ in 0..STEPS {
        std::thread::sleep(STEP);
        let now = space(dir, is_log)?;
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
        if unchanged == 3 {
            break;
        }
    }
    Ok(last)
}

/// Takes the files below a folder out of the page cache.
pub fn drop_page_cache(dir: &Path) -> Result<()> {
    for path in files(dir)? {
        let Ok(file) = std::fs::File::open(&path) else { continue };
        file.sync_data()?;
        // SAFETY: plain numbers and an open file.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_tells_log_from_data_in_all_folders() {
        let dir = tempfile::tempdir().expect("a folder");
        let sub = dir.path().join("tables");
        std::fs::create_dir(&sub).expect("a folder in it");
        for (path, bytes) in [(dir.path().join("1.log"), 4096), (sub.join("2.sst"), 8192), (sub.join("3.sst"), 4096)] {
            let file = std::fs::File::create(path).expect("a file");
            std::io::Write::write_all(&mut &file, &vec![7; bytes]).expect("room");
            file.sync_all().expect("a good disk");
        }
        let found = space(dir.path(), &|name| name.ends_with(".log")).expect("the folder is there");
        assert_eq!(found, (12288, 4096));
    }

    #[test]
    fn every_store_has_a_version() {
        for text in versions() {
            assert!(text.chars().any(|c| c.is_ascii_digit()) && !text.contains("  ") && !text.contains("()"), "{text}");
        }
    }
}
