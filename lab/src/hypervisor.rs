//! What the hypervisor takes from our processors to serve our own requests to the device.
//!
//! The kernel counts as stolen what a processor wanted to run and was not let. Part of that goes to other guests; but where the
//! hypervisor's own work for a guest (it copies, checks and sends on what the guest reads and writes) counts against the same share of
//! the host, a guest that reads a lot and leaves no processor idle is stopped for the time which its requests took the host. That is
//! a price of the device on this machine, the same for every engine, and no disturbance: a measurement must not be left out for it.
//!
//! So the price is measured before a run, while nothing else happens: all processors spin, one thread reads past the page cache, and
//! what is stolen above the time without reads is divided by the number of reads. Small reads give the price of a request, large ones
//! that of a byte. Of several tries the median counts. On a real machine nothing is stolen, and both are 0.
//!
//! What is expected to be stolen in a measurement ([`Price::expected`]) is that work, or a part of it where processors were idle, and
//! none where a third of their time was: the host does it then, and nobody is stopped.
//!
//! Rejected: a higher limit for all (a neighbour that takes 8 % while we read nothing is a disturbance); a limit over the median of a
//! run (engines differ in what they read and in what they leave idle); the work less the idle time (where 9 % were idle three quarters
//! of the work were stolen all the same: idle moments are not those in which it is to be done).

use crate::kernel::{Device, Processors, device_name};
use crate::stats::median;
use anyhow::{Context, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::OFlags;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File, OpenOptions};
use std::hint::spin_loop;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the file that is read.
const FILE: u64 = 64 << 20;
/// Reads must begin and lie at multiples of this, in the file and in memory.
const ALIGNED: usize = 4096;
/// How long each part of a try takes.
const PART: Duration = Duration::from_secs(1);
const TRIES: usize = 5;
/// Bytes of a read and reads a second, small and large.
const SMALL: (usize, f64) = (ALIGNED, 5000.0);
const LARGE: (usize, f64) = (1 << 20, 100.0);

/// How much of its work the hypervisor does without stopping us, for each share of idle time. With two processors that each spun for
/// 0.9, 0.8, 0.7 and 0.6 of the time, by turns of two milliseconds on average, and 6,000 reads of 16 KiB a second, 9, 16, 23 and 30 %
/// were idle, and 0.73, 0.53, 0.23 and 0.12 of what was stolen without idle time (2026-11-28; 0.22 of it with 15 % idle in turns of
/// 20 ms, and 0.67 with 22 % in turns of half a millisecond).
const DONE_WHEN_IDLE: f64 = 3.0;

/// What a request costs, and each byte that it reads or writes, in seconds of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    request: f64,
    byte: f64,
}

impl Display for Price {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mib = self.byte * f64::from(1 << 20);
        write!(f, "{:.0} us for each request to the device and {:.0} us for each MiB", self.request * 1e6, mib * 1e6)
    }
}

/// What was seen in a part of a try.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Seconds of all processors.
    stolen: f64,
    requests: f64,
    bytes: f64,
}

impl Price {
    /// Measures it with a file in this folder, which is on the device of the data. Takes a quarter of a minute; nothing else may run.
    ///
    /// # Errors
    /// The file cannot be written or read.
    pub fn measure(folder: &Path) -> Result<Price> {
        Price::tried(folder, TRIES, PART)
    }

    fn tried(folder: &Path, tries: usize, part: Duration) -> Result<Price> {
        let Some(device) = device_name(folder) else { return Ok(Price::default()) };
        let path = folder.join("price-of-a-request");
        let file = make(&path);
        // It has no name while it is read: nothing of it is left, however the lab ends.
        let _ = fs::remove_file(&path);
        let measured = file.and_then(|file| try_often(&file, &device, tries, part));
        let prices =
            measured.with_context(|| format!("the price of a request is not known from {}", path.display()))?;
        let of = |price: fn(&Price) -> f64| median(&prices.iter().map(price).collect::<Vec<f64>>());
        Ok(Price { request: of(|price| price.request), byte: of(|price| price.byte) })
    }

    /// A price that is known.
    #[cfg(test)]
    pub fn known(request: f64, byte: f64) -> Price {
        Price { request, byte }
    }

    /// From what was stolen without reads, with small ones and with large ones.
    fn of(none: Seen, small: Seen, large: Seen) -> Price {
        // Each part has what is stolen without requests, and neither price is below nothing.
        let per = |stolen: f64, count: f64| if count > 0.0 { (stolen / count).max(0.0) } else { 0.0 };
        // A small read is taken to have no bytes at first, and what they cost comes off again: two equations for two prices.
        let (s, l) = (small.stolen - none.stolen, large.stolen - none.stolen);
        let determinant = small.requests * large.bytes - large.requests * small.bytes;
        if determinant <= 0.0 {
            return Price { request: per(s, small.requests), byte: 0.0 };
        }
        let byte = ((small.requests * l - large.requests * s) / determinant).max(0.0);
        Price { request: per(s - byte * small.bytes, small.requests), byte }
    }

    /// The share of all processors that is expected to be stolen from who makes so many requests of so many bytes in a second, while
    /// `idle` of the processors' time is idle.
    pub fn expected(&self, requests: f64, bytes: f64, processors: usize, idle: f64) -> f64 {
        let work = (requests * self.request + bytes * self.byte) / processors as f64;
        work * (1.0 - DONE_WHEN_IDLE * idle).max(0.0)
    }
}

/// A file whose blocks are on the device and are not all the same, for reads past the page cache.
fn make(path: &Path) -> Result<File> {
    let mut file = File::create(path)?;
    let mut rng = SmallRng::seed_from_u64(1);
    let mut block = vec![0u8; 1 << 20];
    for _ in 0..FILE / block.len() as u64 {
        rng.fill(&mut block[..]);
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)?)
}

fn try_often(file: &File, device: &str, tries: usize, time: Duration) -> Result<Vec<Price>> {
    let part = |reads: Option<(usize, f64)>| part(file, device, time, reads);
    (0..tries).map(|_| Ok(Price::of(part(None)?, part(Some(SMALL))?, part(Some(LARGE))?))).collect()
}

/// All processors spin for a while, and a thread reads.
fn part(file: &File, device: &str, time: Duration, reads: Option<(usize, f64)>) -> Result<Seen> {
    let until = Instant::now() + time;
    let counters =
        || -> Result<(Processors, Device)> { Ok((Processors::now()?, Device::now(device).unwrap_or_default())) };
    let before = counters()?;
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(move || {
                while Instant::now() < until {
                    spin_loop();
                }
            });
        }
        reads.map_or(Ok(()), |(bytes, rate)| read(file, bytes, rate, until))
    })?;
    let now = counters()?;
    let (processors, device) = (now.0.since(before.0), now.1.since(before.1));
    Ok(Seen {
        stolen: processors.stolen_seconds(),
        requests: (device.reads + device.writes) as f64,
        bytes: (device.read_bytes + device.write_bytes) as f64,
    })
}

/// Reads so many bytes so many times a second, past the page cache, or as often as the device lets it.
fn read(file: &File, bytes: usize, rate: f64, until: Instant) -> Result<()> {
    let mut buffer = vec![0u8; bytes + ALIGNED];
    let at = buffer.as_ptr().align_offset(ALIGNED);
    let buffer = &mut buffer[at..at + bytes];
    let began = Instant::now();
    // An odd step goes through all places of the file.
    let places = FILE / bytes as u64;
    for n in 0.. {
        let due = began + Duration::from_secs_f64(n as f64 / rate);
        if due >= until || Instant::now() >= until {
            return Ok(());
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        file.read_exact_at(buffer, n * 7919 % places * bytes as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_prices_from_three_parts() {
        let price = Price { request: 40e-6, byte: 1.5e-9 };
        let seen = |requests: f64, bytes: f64| Seen {
            stolen: 0.01 + requests * price.request + bytes * price.byte,
            requests,
            bytes,
        };
        let found = Price::of(seen(0.0, 0.0), seen(2000.0, 8e6), seen(150.0, 100e6));
        assert!((found.request - price.request).abs() < 1e-9 && (found.byte - price.byte).abs() < 1e-13, "{found:?}");
        // Nothing is stolen, or less than without reads, on a real machine and where a neighbour stops meanwhile.
        let still = |requests: f64, bytes: f64| Seen { stolen: 0.0, requests, bytes };
        let nothing = Price::of(seen(0.0, 0.0), still(2000.0, 8e6), still(150.0, 100e6));
        assert_eq!(nothing, Price::default());
        // A device that served nothing has no price.
        assert_eq!(Price::of(still(0.0, 0.0), still(0.0, 0.0), still(0.0, 0.0)), Price::default());
    }

    #[test]
    fn idle_time_does_the_work_for_nothing() {
        let price = Price { request: 40e-6, byte: 1e-9 };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        // 0.16 s for requests and 0.04 for bytes in each second, of two processors.
        near(price.expected(4000.0, 40e6, 2, 0.0), 0.10);
        near(price.expected(4000.0, 40e6, 2, 0.1), 0.07);
        near(price.expected(4000.0, 40e6, 2, 0.4), 0.0);
        near(Price::default().expected(4000.0, 40e6, 2, 0.0), 0.0);
    }

    /// However busy the machine is: a price is found, and the file is gone.
    #[test]
    fn this_machine_has_a_price() {
        let target = crate::paths::checkout().unwrap().join("target");
        fs::create_dir_all(&target).unwrap();
        let folder = tempfile::tempdir_in(target).unwrap();
        // Briefly: other tests want the processors.
        let price = Price::tried(folder.path(), 1, Duration::from_millis(50)).unwrap();
        assert!(price.request >= 0.0 && price.byte >= 0.0, "{price:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(Price::measure(&folder.path().join("absent")).unwrap() == Price::default(), "no device");
    }
}
