//! A slow device: a control group whose members share so many reads and so many writes a second.
//!
//! The kernel counts requests as they go to the device, direct ones and those of a sync alike. Both versions of control groups
//! are known; root may make a group.

use crate::kernel::device_below;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";

/// As long as it lives, a server is slow.
pub struct Throttle {
    group: PathBuf,
    /// Where the members go when it ends.
    parent: PathBuf,
    /// File and line of what lifts each limit: requests that wait in a group go on waiting when its members have left.
    lifts: Vec<(String, String)>,
}

impl Throttle {
    /// Lets `pid` have `iops` reads and as many writes a second of the device that `dir` is on.
    pub fn begin(pid: u32, dir: &Path, iops: u32) -> Result<Throttle> {
        let device = device_of(dir)?;
        let first = Path::new(MOUNT).join("blkio");
        let name = format!("strata-lab-{pid}");
        let (parent, limits, lifts) = if first.join("cgroup.procs").exists() {
            let lines = |iops: u32| {
                ["read", "write"]
                    .map(|what| (format!("blkio.throttle.{what}_iops_device"), format!("{device} {iops}")))
                    .to_vec()
            };
            (first, lines(iops), lines(0))
        } else {
            let parent = PathBuf::from(MOUNT);
            let control = parent.join("cgroup.subtree_control");
            fs::write(&control, "+io").with_context(|| format!("{} does not take +io", control.display()))?;
            let line = |iops: &str| vec![("io.max".into(), format!("{device} riops={iops} wiops={iops}"))];
            (parent, line(&iops.to_string()), line("max"))
        };
        let group = parent.join(name);
        fs::create_dir_all(&group).with_context(|| format!("{} cannot be made", group.display()))?;
        let throttle = Throttle { group, parent, lifts };
        for (file, limit) in limits.into_iter().chain([("cgroup.procs".into(), pid.to_string())]) {
            let file = throttle.group.join(file);
            fs::write(&file, &limit).with_context(|| format!("{} does not take {limit}", file.display()))?;
        }
        Ok(throttle)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        for (file, line) in &self.lifts {
            let _ = fs::write(self.group.join(file), line);
        }
        let members = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            // One that has ended meanwhile needs no place.
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// Number of the whole device, not of a partition, which has no limits of its own.
fn device_of(dir: &Path) -> Result<String> {
    let known = device_below(dir)?;
    let whole = if known.join("partition").exists() { known.parent().unwrap_or(&known) } else { &known };
    Ok(fs::read_to_string(whole.join("dev"))?.trim().to_owned())
}
