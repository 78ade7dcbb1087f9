//! A control group with a limit of memory, as containers have one. Both versions of control groups are known; root may make a group.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";

/// The group, which is removed when this drops: no process may be in it then.
pub struct MemoryGroup {
    dir: PathBuf,
    limit: PathBuf,
}

impl MemoryGroup {
    /// Makes a group of this name whose members may have so many bytes together.
    pub fn new(name: &str, bytes: u64) -> Result<MemoryGroup> {
        let first = Path::new(MOUNT).join("memory");
        let (parent, file) = match first.join("cgroup.procs").exists() {
            true => (first, "memory.limit_in_bytes"),
            false => {
                let control = Path::new(MOUNT).join("cgroup.subtree_control");
                fs::write(&control, "+memory")
                    .with_context(|| format!("{} does not take +memory", control.display()))?;
                (PathBuf::from(MOUNT), "memory.max")
            }
        };
        let dir = parent.join(name);
        fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let group = MemoryGroup { limit: dir.join(file), dir };
        fs::write(&group.limit, bytes.to_string())
            .with_context(|| format!("{} does not take {bytes}", group.limit.display()))?;
        Ok(group)
    }

    /// Where a process writes its number to become a member.
    pub fn members(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The file with the limit.
    pub fn limit(&self) -> &Path {
        &self.limit
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}
