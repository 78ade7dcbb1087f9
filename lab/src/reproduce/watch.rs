//! What the machine and a server did in each second: processors, device, memory, files, rows.
//!
//! The processors' states are the whole machine's, in percent of all of them, as `vmstat` shows them; the device is the one that
//! the server's data lie on, from `/proc/diskstats`. What neither the server nor the lab with its children had of the processors is
//! others' work: with what the hypervisor took it decides whether a measurement counts ([`Watched::disturbed`]).
//!
//! Rejected: reading the output of `vmstat` and `iostat` (two more processes beside what is measured, and packages).

use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A measurement of which the hypervisor took this share of the processors, or more, does not count.
pub const STOLEN_MOST: f64 = 0.04;
/// The same of what other processes had.
pub const OTHERS_MOST: f64 = 0.15;
/// Sectors of `/proc/diskstats`.
const SECTOR: f64 = 512.0;

/// What was seen of each second. Series have the same length.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Watched {
    /// Seconds in front of those that are measured.
    pub before: usize,
    /// Processors in percent: user, system, waiting for I/O, idle.
    pub user: Vec<f64>,
    pub system: Vec<f64>,
    pub wait: Vec<f64>,
    pub idle: Vec<f64>,
    /// Operations of the device.
    pub reads: Vec<f64>,
    pub writes: Vec<f64>,
    /// Bytes that it read and wrote.
    pub read_bytes: Vec<f64>,
    pub write_bytes: Vec<f64>,
    /// Milliseconds of an operation on average; 0 in a second without one.
    pub device_ms: Vec<f64>,
    /// Percent of the second in which it had something to do.
    pub busy: Vec<f64>,
    /// Resident memory of the server in MiB.
    pub rss_mb: Vec<f64>,
    /// Blocks of its data directory in MiB, logs and the server's own tables included.
    pub directory_mb: Vec<f64>,
    /// Rows that were inserted, updated and deleted.
    pub rows: Vec<f64>,
    /// Shares of the processors over the time that is measured: what the hypervisor took, and what other processes had.
    pub stolen: f64,
    pub others: f64,
}

impl Watched {
    /// The part of a series that was measured.
    pub fn measured<'a>(&self, series: &'a [f64]) -> &'a [f64] {
        &series[self.before.min(series.len())..]
    }

    /// Why the measurement does not count, if it does not.
    pub fn disturbed(&self) -> Option<String> {
        if self.stolen >= STOLEN_MOST {
            Some(format!("the hypervisor took {:.0} % of the processors", self.stolen * 100.0))
        } else if self.others >= OTHERS_MOST {
            Some(format!("other processes had {:.0} % of the processors", self.others * 100.0))
        } else {
            None
        }
    }
}

/// Counters at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    cpu: [u64; 5],
    disk: Disk,
    rss: u64,
    directory: u64,
    rows: u64,
}

/// States of the processors in ticks, in the order of [`Moment::cpu`].
const USER: usize = 0;
const SYSTEM: usize = 1;
const WAIT: usize = 2;
const IDLE: usize = 3;
const STOLEN: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Disk {
    reads: u64,
    read_sectors: u64,
    writes: u64,
    write_sectors: u64,
    /// Milliseconds of all operations together, and with any in flight.
    ms: u64,
    busy_ms: u64,
}

/// Ticks that the server and the lab had, and those of the machine.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    cpu: [u64; 5],
    ours: u64,
}

/// Watches a server from its making to [`Watch::end`].
pub struct Watch {
    /// The server, and other processes that are part of what is measured.
    pids: Vec<u32>,
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<Watched>>,
    start: Shares,
}

impl Watch {
    /// Begins. Beside the server and the lab, `companions` are part of what is measured: processes of the lab that it has not
    /// waited for.
    pub fn begin(pid: u32, companions: &[u32], instance: &Instance) -> Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let source = Source { pid, instance: instance.clone(), device: device(&instance.data()) };
        let first = source.moment(0)?;
        let sampler = std::thread::spawn({
            let stop = stop.clone();
            move || source.sample(first, &stop)
        });
        let pids: Vec<u32> = [&[pid], companions].concat();
        Ok(Watch { stop, sampler: Some(sampler), start: shares(&pids)?, pids })
    }

    /// What is measured begins now: the number of seconds before, for [`Watched::before`], and the shares anew.
    pub fn measure(&mut self) -> Result<()> {
        self.start = shares(&self.pids)?;
        Ok(())
    }

    /// Ends; so many whole seconds were before what was measured. Children of the lab have been waited for.
    pub fn end(mut self, before: usize) -> Result<Watched> {
        let end = shares(&self.pids)?;
        let mut watched = self.finish();
        watched.before = before;
        let all = (0..5).map(|state| end.cpu[state].saturating_sub(self.start.cpu[state])).collect::<Vec<_>>();
        let sum = all.iter().sum::<u64>().max(1) as f64;
        let busy = all[USER] + all[SYSTEM];
        watched.stolen = all[STOLEN] as f64 / sum;
        watched.others = busy.saturating_sub(end.ours.saturating_sub(self.start.ours)) as f64 / sum;
        Ok(watched)
    }

    fn finish(&mut self) -> Watched {
        self.stop.store(true, Ordering::Relaxed);
        let Some(sampler) = self.sampler.take() else { return Watched::default() };
        sampler.thread().unpark();
        sampler.join().unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.finish();
    }
}

struct Source {
    pid: u32,
    instance: Instance,
    /// Name in `/proc/diskstats`; none on a file system without a device.
    device: Option<String>,
}

impl Source {
    fn sample(&self, first: Moment, stop: &AtomicBool) -> Watched {
        let mut watched = Watched::default();
        let mut conn = self.instance.connect(None).ok();
        let (began, mut before) = (Instant::now(), first);
        before.rows = conn.as_mut().and_then(rows).unwrap_or(0);
        for second in 1.. {
            let due = began + Duration::from_secs(second);
            while Instant::now() < due {
                if stop.load(Ordering::Relaxed) {
                    return watched;
                }
                std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
            }
            let rows = conn.as_mut().and_then(rows).unwrap_or(before.rows);
            let Ok(now) = self.moment(rows) else { return watched };
            watched.add(before, now);
            before = now;
        }
        watched
    }

    fn moment(&self, rows: u64) -> Result<Moment> {
        let disks = fs::read_to_string("/proc/diskstats").unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        Ok(Moment {
            cpu: cpu(&fs::read_to_string("/proc/stat")?).context("/proc/stat has another format")?,
            disk: self.device.as_ref().and_then(|device| disk(&disks, device)).unwrap_or_default(),
            rss: rss.and_then(|kb| kb.trim().parse::<u64>().ok()).unwrap_or(0) * 1024,
            directory: blocks(&self.instance.data()),
            rows,
        })
    }
}

impl Watched {
    fn add(&mut self, before: Moment, now: Moment) {
        let ticks: Vec<f64> = (0..5).map(|n| now.cpu[n].saturating_sub(before.cpu[n]) as f64).collect();
        let all = ticks.iter().sum::<f64>().max(1.0);
        let percent = |state: usize| ticks[state] * 100.0 / all;
        self.user.push(percent(USER));
        self.system.push(percent(SYSTEM));
        self.wait.push(percent(WAIT));
        // What was stolen is in none of the four, and idle for who looks from inside.
        self.idle.push(percent(IDLE) + percent(STOLEN));
        let (a, b) = (before.disk, now.disk);
        let (reads, writes) = (b.reads.saturating_sub(a.reads) as f64, b.writes.saturating_sub(a.writes) as f64);
        self.reads.push(reads);
        self.writes.push(writes);
        self.read_bytes.push(b.read_sectors.saturating_sub(a.read_sectors) as f64 * SECTOR);
        self.write_bytes.push(b.write_sectors.saturating_sub(a.write_sectors) as f64 * SECTOR);
        let operations = reads + writes;
        self.device_ms.push(if operations > 0.0 { b.ms.saturating_sub(a.ms) as f64 / operations } else { 0.0 });
        self.busy.push((b.busy_ms.saturating_sub(a.busy_ms) as f64 / 10.0).min(100.0));
        self.rss_mb.push(now.rss as f64 / f64::from(1 << 20));
        self.directory_mb.push(now.directory as f64 / f64::from(1 << 20));
        self.rows.push(now.rows.saturating_sub(before.rows) as f64);
    }
}

/// Rows changed since the server started, whatever the engine.
fn rows(conn: &mut mysql::Conn) -> Option<u64> {
    let rows: Vec<(String, String)> = conn
        .query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Handler_delete')")
        .ok()?;
    Some(rows.iter().filter_map(|(_, value)| value.parse::<u64>().ok()).sum())
}

fn shares(pids: &[u32]) -> Result<Shares> {
    let own = |path: &str, children: bool| -> Result<u64> {
        let text = fs::read_to_string(path).with_context(|| format!("{path} cannot be read"))?;
        process_ticks(&text, children).with_context(|| format!("{path} has another format"))
    };
    Ok(Shares {
        cpu: cpu(&fs::read_to_string("/proc/stat")?).context("/proc/stat has another format")?,
        ours: pids.iter().try_fold(own("/proc/self/stat", true)?, |sum, pid| {
            Ok::<u64, anyhow::Error>(sum + own(&format!("/proc/{pid}/stat"), false)?)
        })?,
    })
}

/// User, system, waiting, idle, stolen: ticks of all processors.
fn cpu(text: &str) -> Option<[u64; 5]> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let [user, nice, system, idle, wait, hard, soft, stolen] = ticks[..] else { return None };
    Some([user + nice, system + hard + soft, wait, idle, stolen])
}

/// Ticks of a process, with those of its children that were waited for.
fn process_ticks(text: &str, children: bool) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields = rest.split_whitespace().skip(11).take(if children { 4 } else { 2 });
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

/// The line of a device.
fn disk(text: &str, device: &str) -> Option<Disk> {
    let fields: Vec<&str> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|f| f.get(2) == Some(&device))?;
    let n = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some(Disk {
        reads: n(3)?,
        read_sectors: n(5)?,
        writes: n(7)?,
        write_sectors: n(9)?,
        ms: n(6)? + n(10)?,
        busy_ms: n(12)?,
    })
}

/// The name of the device that a folder is on.
fn device(dir: &Path) -> Option<String> {
    let id = fs::metadata(dir).ok()?.dev();
    let (major, minor) = ((id >> 8) & 0xfff | (id >> 32) & !0xfff, id & 0xff | (id >> 12) & !0xff);
    let known = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(known.file_name()?.to_string_lossy().into_owned())
}

/// Bytes of all blocks below a folder. What vanishes meanwhile is not counted.
fn blocks(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => blocks(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_proc() {
        assert_eq!(cpu("cpu  40 5 20 100 10 1 5 20 7 0\ncpu0 1\n"), Some([45, 26, 10, 100, 20]));
        assert_eq!(cpu("cpu  40 5"), None);
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 100 0 0 0 250 50 7 3 20 0 1 0 100 1000 10";
        assert_eq!((process_ticks(stat, false), process_ticks(stat, true)), (Some(300), Some(310)));
        let disks = " 254 0 vda 10 1 200 30 40 2 800 90 1 70 120\n 254 1 vda1 1 1 1 1 1 1 1 1 1 1 1\n";
        let expected = Disk { reads: 10, read_sectors: 200, writes: 40, write_sectors: 800, ms: 120, busy_ms: 70 };
        assert_eq!(disk(disks, "vda"), Some(expected));
        assert_eq!(disk(disks, "vdb"), None);
    }

    #[test]
    fn a_second() {
        let before = Moment { cpu: [0; 5], ..Moment::default() };
        let disk = Disk { reads: 10, read_sectors: 20, writes: 30, write_sectors: 40, ms: 80, busy_ms: 500 };
        let now = Moment { cpu: [100, 20, 40, 30, 10], disk, rss: 2 << 20, directory: 3 << 20, rows: 5 };
        let mut watched = Watched::default();
        watched.add(before, now);
        assert_eq!((watched.user[0], watched.system[0], watched.wait[0], watched.idle[0]), (50.0, 10.0, 20.0, 20.0));
        assert_eq!((watched.device_ms[0], watched.busy[0], watched.write_bytes[0]), (2.0, 50.0, 20480.0));
        assert_eq!((watched.rss_mb[0], watched.directory_mb[0], watched.rows[0]), (2.0, 3.0, 5.0));
    }

    #[test]
    fn companions_are_no_others() {
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let ours = |pids: &[u32]| shares(pids).unwrap().ours;
        let before = ours(&[busy.id()]);
        let own = ours(&[]);
        let began = Instant::now();
        // However little of the processor it gets, it gets some.
        while ours(&[busy.id()]) - before < 20 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (with, without) = (ours(&[busy.id()]) - before, ours(&[]) - own);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(with >= 20 && with > without, "{with} ticks with it, {without} without");
        assert!(shares(&[busy.id()]).is_err(), "one that has ended is no companion");
    }

    #[test]
    fn what_is_disturbed() {
        let watched = |stolen, others| Watched { stolen, others, ..Watched::default() };
        assert!(watched(0.039, 0.149).disturbed().is_none());
        assert!(watched(0.04, 0.0).disturbed().unwrap().contains("hypervisor"));
        assert!(watched(0.0, 0.15).disturbed().unwrap().contains("other processes"));
    }
}
