//! What the kernel counts of the machine's processors, of a process, and of a device: `/proc`, as the crate `procfs` reads it.
//!
//! Rejected: the output of `vmstat` and `iostat` (two more processes beside what is measured, and packages).

use anyhow::{Context, Result};
use procfs::process::Process;
use procfs::{CurrentSI, KernelStats};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Time of all processors since the machine started, in ticks, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    pub user: u64,
    pub system: u64,
    pub wait: u64,
    pub idle: u64,
    /// What the hypervisor took, for other guests or for its own work; 0 on a real machine.
    pub stolen: u64,
}

/// Shares of the processors' time in percent, as `vmstat` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct States {
    pub user: f64,
    pub system: f64,
    /// Idle while somebody waits for a device.
    pub wait: f64,
    /// What was stolen is in none of the other three, and idle for who looks from inside.
    pub idle: f64,
}

impl Processors {
    /// Up to now.
    pub fn now() -> Result<Processors> {
        Ok(Processors::of(&KernelStats::current().context("/proc/stat")?.total))
    }

    /// The same of one of them.
    #[cfg(test)]
    pub fn now_of(number: usize) -> Result<Processors> {
        let stats = KernelStats::current().context("/proc/stat")?;
        Ok(Processors::of(stats.cpu_time.get(number).context("there is no such processor")?))
    }

    fn of(time: &procfs::CpuTime) -> Processors {
        let interrupts = time.irq.unwrap_or(0) + time.softirq.unwrap_or(0);
        Processors {
            user: time.user + time.nice,
            system: time.system + interrupts,
            wait: time.iowait.unwrap_or(0),
            idle: time.idle,
            stolen: time.steal.unwrap_or(0),
        }
    }

    /// Between an earlier moment and this one.
    pub fn since(self, before: Processors) -> Processors {
        Processors {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            // The kernel's own count of it may go back.
            wait: self.wait.saturating_sub(before.wait),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }

    fn all(self) -> f64 {
        // No time at all has no shares.
        (self.user + self.system + self.wait + self.idle + self.stolen).max(1) as f64
    }

    /// The states in percent.
    pub fn states(self) -> States {
        let percent = |ticks: u64| ticks as f64 * 100.0 / self.all();
        States {
            user: percent(self.user),
            system: percent(self.system),
            wait: percent(self.wait),
            idle: percent(self.idle + self.stolen),
        }
    }

    /// Seconds of a processor that were stolen.
    pub fn stolen_seconds(self) -> f64 {
        self.stolen as f64 / procfs::ticks_per_second() as f64
    }

    /// The share that was stolen.
    pub fn stolen_share(self) -> f64 {
        self.stolen as f64 / self.all()
    }

    /// The share of who is none of ours, which had so many ticks of user and system time.
    pub fn share_of_others(self, ours: u64) -> f64 {
        (self.user + self.system).saturating_sub(ours) as f64 / self.all()
    }
}

/// What a process has spent since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes that it caused to be read from a device.
    pub read_bytes: u64,
    /// Bytes that it caused to be written to one; what was thrown away before it got there does not count.
    pub write_bytes: u64,
    /// Microseconds of processor time, in user space and in the kernel; exact to a tick.
    pub user_us: u64,
    pub system_us: u64,
}

impl Spent {
    /// Between an earlier moment and this one.
    pub fn since(self, before: Spent) -> Spent {
        Spent {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            user_us: self.user_us.saturating_sub(before.user_us),
            system_us: self.system_us.saturating_sub(before.system_us),
        }
    }
}

fn process(pid: u32) -> Result<Process> {
    Process::new(pid as i32).with_context(|| format!("/proc/{pid}"))
}

/// What this process has spent so far.
pub fn spent(pid: u32) -> Result<Spent> {
    let process = process(pid)?;
    let (io, stat) = (process.io().context("/proc/PID/io")?, process.stat().context("/proc/PID/stat")?);
    let us = |ticks: u64| ticks * 1_000_000 / procfs::ticks_per_second();
    Ok(Spent {
        read_bytes: io.read_bytes,
        write_bytes: io.write_bytes.saturating_sub(io.cancelled_write_bytes),
        user_us: us(stat.utime),
        system_us: us(stat.stime),
    })
}

/// How long the threads of a process have run, and waited for a processor while they could have, in nanoseconds. Those that have
/// ended are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    pub ran_ns: u64,
    pub waited_ns: u64,
}

impl Turns {
    /// Those of this process up to now.
    pub fn of(pid: u32) -> Result<Turns> {
        let mut turns = Turns::default();
        for task in process(pid)?.tasks().context("/proc/PID/task")? {
            // A thread may end meanwhile.
            if let Ok(stat) = task.and_then(|task| task.schedstat()) {
                turns = turns.and(Turns { ran_ns: stat.sum_exec_runtime, waited_ns: stat.run_delay });
            }
        }
        Ok(turns)
    }

    /// Both together.
    pub fn and(self, other: Turns) -> Turns {
        Turns { ran_ns: self.ran_ns + other.ran_ns, waited_ns: self.waited_ns + other.waited_ns }
    }

    /// Between an earlier moment and this one.
    pub fn since(self, before: Turns) -> Turns {
        Turns {
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
        }
    }
}

/// Ticks of user and system time that this process has had.
pub fn ticks(pid: u32) -> Result<u64> {
    let stat = process(pid)?.stat().context("/proc/PID/stat")?;
    Ok(stat.utime + stat.stime)
}

/// The same of the lab itself and of its children that were waited for.
pub fn own_ticks() -> Result<u64> {
    let stat = Process::myself().and_then(|process| process.stat()).context("/proc/self/stat")?;
    Ok(stat.utime + stat.stime + (stat.cutime + stat.cstime).max(0) as u64)
}

/// Resident memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub resident: u64,
    /// The most since its start, or since [`forget_peak`].
    pub peak: u64,
}

/// Resident memory of this process.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = process(pid)?.status().context("/proc/PID/status")?;
    let bytes = |kb: Option<u64>| kb.context("a process without memory").map(|kb| kb << 10);
    Ok(Memory { resident: bytes(status.vmrss)?, peak: bytes(status.vmhwm)? })
}

/// Descriptors that this process has open.
pub fn descriptors(pid: u32) -> Result<u64> {
    Ok(process(pid)?.fd_count().context("/proc/PID/fd")? as u64)
}

/// Lets the kernel's mark of the most begin anew. Where that is not allowed it stays.
pub fn forget_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// What a device has done since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    /// Milliseconds of all operations together, and with any in flight.
    pub ms: u64,
    pub busy_ms: u64,
}

impl Device {
    /// The device of this name, up to now; nothing if there is none.
    pub fn now(name: &str) -> Option<Device> {
        const SECTOR: u64 = 512;
        let disk = procfs::diskstats().ok()?.into_iter().find(|disk| disk.name == name)?;
        Some(Device {
            reads: disk.reads,
            read_bytes: disk.sectors_read * SECTOR,
            writes: disk.writes,
            write_bytes: disk.sectors_written * SECTOR,
            ms: disk.time_reading + disk.time_writing,
            busy_ms: disk.time_in_progress,
        })
    }

    /// Between an earlier moment and this one.
    pub fn since(self, before: Device) -> Device {
        Device {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            ms: self.ms.saturating_sub(before.ms),
            busy_ms: self.busy_ms.saturating_sub(before.busy_ms),
        }
    }
}

/// The device that a folder is on, or the part of one, as a folder of `/sys`; an error on a file system without one.
pub fn device_below(dir: &Path) -> Result<PathBuf> {
    let id = fs::metadata(dir).with_context(|| dir.display().to_string())?.dev();
    let (major, minor) = ((id >> 8) & 0xfff | (id >> 32) & !0xfff, id & 0xff | (id >> 12) & !0xff);
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .with_context(|| format!("{} is on no block device", dir.display()))
}

/// Its name in `/proc/diskstats`.
pub fn device_name(dir: &Path) -> Option<String> {
    Some(device_below(dir).ok()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_shares_of_all_time() {
        let before = Processors { user: 10, system: 10, wait: 10, idle: 10, stolen: 10 };
        let now = Processors { user: 110, system: 30, wait: 50, idle: 40, stolen: 20 };
        let time = now.since(before);
        assert_eq!(time.states(), States { user: 50.0, system: 10.0, wait: 20.0, idle: 20.0 });
        assert_eq!((time.stolen_share(), time.share_of_others(90)), (0.05, 0.15));
        assert_eq!(now.since(now).states(), States::default());
    }

    #[test]
    fn this_machine_and_this_process() {
        let pid = std::process::id();
        assert!(Processors::now().unwrap().all() > 1.0);
        assert!(memory(pid).unwrap().resident > 0 && memory(pid).unwrap().peak > 0);
        assert!(own_ticks().unwrap() >= ticks(pid).unwrap());
        spent(pid).unwrap();
        assert!(spent(u32::MAX >> 1).is_err() && Device::now("no such device").is_none());
    }
}
