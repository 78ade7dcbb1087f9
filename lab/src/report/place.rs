//! Where and from what a run was made: command, commit, kernel, processor, disk, file system.
//!
//! What cannot be found out (no git, no `/sys`) stays empty and is shown as unknown.

use crate::paths;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where and from what a run was made; empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The lab's command line.
    pub command: String,
    /// The checkout's commit, with `-dirty` where it has changes.
    pub commit: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's model.
    pub processor: String,
    /// The device below the data and its model.
    pub disk: String,
    /// The file system of the data, with its options.
    pub file_system: String,
}

impl Place {
    /// Of this process, whose servers have their data in this folder.
    pub fn here(data: &Path) -> Place {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (device, file_system) = mounted(&read("/proc/mounts"), data).unwrap_or_default();
        Place {
            command: command(std::env::args()),
            commit: paths::checkout().ok().and_then(|checkout| commit(&checkout)).unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            processor: processor(&read("/proc/cpuinfo")).unwrap_or_default(),
            disk: disk(&device),
            file_system,
        }
    }
}

/// A command line that a shell would take.
fn command(words: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let mut words = words;
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    std::iter::once(program).chain(words).map(quoted).collect::<Vec<_>>().join(" ")
}

/// Of a checkout, with `-dirty` where it has changes.
pub fn commit(checkout: &Path) -> Option<String> {
    let git = Command::new("git")
        .arg("-C")
        .arg(checkout)
        .args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
        .output();
    let output = git.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Device and file system of a path: the mount that lies nearest above it, the last one if several lie there.
fn mounted(mounts: &str, path: &Path) -> Option<(String, String)> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut found: Option<(&str, [&str; 3])> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(at), Some(kind), Some(options)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if path.starts_with(at) && found.is_none_or(|(before, _)| at.len() >= before.len()) {
            found = Some((at, [device, kind, options]));
        }
    }
    let (_, [device, kind, options]) = found?;
    Some((device.to_string(), format!("{kind} ({options})")))
}

/// A device with what the kernel says of it.
fn disk(device: &str) -> String {
    let Some(name) = device.strip_prefix("/dev/") else { return device.to_string() };
    let read = |file: &str| fs::read_to_string(format!("/sys/class/block/{name}/{file}")).ok();
    let model = read("device/model").map(|model| format!(", {}", model.trim())).unwrap_or_default();
    let size = read("size").and_then(|sectors| sectors.trim().parse::<u64>().ok());
    let size = size.map(|sectors| format!(", {} GB", sectors * 512 / 1_000_000_000)).unwrap_or_default();
    let kind = match read("queue/rotational").as_deref().map(str::trim) {
        Some("0") => ", not rotating",
        Some("1") => ", rotating as the kernel says",
        _ => "",
    };
    format!("{device}{model}{size}{kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted() {
        let words = ["/a/b/strata-lab", "oltp", "--threads=1,8", "it's", ""].map(String::from);
        assert_eq!(command(words.into_iter()), r"strata-lab oltp --threads=1,8 'it'\''s' ''");
    }

    #[test]
    fn the_nearest_mount() {
        let mounts = "/dev/a / ext4 rw,relatime 0 0\n/dev/b /nowhere xfs rw 0 0\ntmpfs /nowhere/tmp tmpfs rw 0 0\n";
        let of = |path: &str| mounted(mounts, Path::new(path)).unwrap().0;
        assert_eq!(
            (of("/nowhere/x"), of("/nowhere/tmp/x"), of("/nowhereelse")),
            ("/dev/b".into(), "tmpfs".into(), "/dev/a".into())
        );
        assert_eq!(mounted(mounts, Path::new("/x")).unwrap().1, "ext4 (rw,relatime)");
    }

    #[test]
    fn this_machine() {
        let place = Place::here(Path::new("/"));
        assert!(!place.kernel.is_empty() && !place.file_system.is_empty());
    }
}
