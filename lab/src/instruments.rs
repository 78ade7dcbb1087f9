//! Whether the instruments show what was really done: known work, measured within 5 %.
//!
//! What the kernel counts of a process is tried on a process of its own: this test program once more, which does the work it is told
//! ([`worker`]) and says how much it was. What the drivers count is tried on sessions that do nothing but wait.

use crate::drive::{Client, Control, drive};
use crate::kernel::Processors;
use crate::meter::{Gauge, Usage};
use crate::throttle::Throttle;
use rustix::fs::OFlags;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// How far a figure may be from what was done.
const EXACT: f64 = 0.05;
/// What the worker is told to do, and the file it does it with.
const WORK: &str = "STRATA_LAB_WORK";
const FILE: &str = "STRATA_LAB_WORK_FILE";

#[track_caller]
fn near(measured: f64, done: f64) {
    assert!((measured - done).abs() <= done * EXACT, "{measured} was measured of {done}");
}

/// A folder on the disk that the checkout is on: a file system in memory has no device.
fn on_disk() -> TempDir {
    let target = crate::paths::checkout().unwrap().join("target");
    std::fs::create_dir_all(&target).unwrap();
    tempfile::tempdir_in(target).unwrap()
}

/// The worker's process, which waits before and after its work.
struct Worker {
    child: Child,
    said: BufReader<ChildStderr>,
    /// The one that it stays on.
    processor: usize,
}

impl Worker {
    fn new(work: &str, folder: &Path) -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "instruments::worker", "--ignored", "--nocapture", "--test-threads=1"])
            .env(WORK, work)
            .env(FILE, folder.join("file"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut worker = Worker { child, said, processor: 0 };
        worker.processor = worker.hear("ready on") as usize;
        worker
    }

    /// Waits for a line that begins with this word; the number behind it.
    fn hear(&mut self, word: &str) -> f64 {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the worker ended before it said {word:?}");
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().parse().unwrap_or(0.0);
            }
        }
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Lets it work: what was measured of it, and how much it says it was.
    fn measured(mut self) -> (Usage, f64) {
        let gauge = Gauge::begin(self.child.id(), || None).unwrap();
        self.tell();
        let done = self.hear("done");
        let usage = gauge.end().unwrap();
        self.tell();
        assert!(self.child.wait().unwrap().success());
        (usage, done)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what [`Worker`] runs.
#[test]
#[ignore = "the other process of the tests here"]
fn worker() {
    let (Ok(work), Some(file)) = (std::env::var(WORK), std::env::var_os(FILE)) else { return };
    let (what, amount) = work.split_once(' ').unwrap();
    let amount: u64 = amount.parse().unwrap();
    let open = |flags: OFlags| {
        let mut options = File::options();
        options.read(true).write(true).create(true).custom_flags(flags.bits() as i32).open(&file).unwrap()
    };
    let mut direct = (what == "read" || what == "write" || what == "wait").then(|| open(OFlags::DIRECT));
    let mut buffer = Page::many(256);
    let wait = || std::io::stdin().read_line(&mut String::new()).unwrap();
    // It stays where its waits are counted.
    let processor = sched_getcpu();
    let mut here = CpuSet::new();
    here.set(processor);
    sched_setaffinity(None, &here).unwrap();
    eprintln!("ready on {processor}");
    wait();
    let done = match (what, &mut direct) {
        ("write", Some(file)) => {
            (0..amount / MIB).for_each(|_| file.write_all(Page::bytes(&mut buffer)).unwrap());
            amount as f64
        }
        ("read", Some(file)) => {
            (0..amount / MIB).for_each(|_| file.read_exact(Page::bytes(&mut buffer)).unwrap());
            amount as f64
        }
        ("dirty", _) => {
            let mut file = open(OFlags::empty());
            (0..amount / MIB).for_each(|_| file.write_all(Page::bytes(&mut buffer)).unwrap());
            file.sync_all().unwrap();
            amount as f64
        }
        ("wait", Some(file)) => {
            let began = Instant::now();
            for _ in 0..amount {
                file.rewind().unwrap();
                file.read_exact(&mut Page::bytes(&mut buffer)[..4096]).unwrap();
            }
            began.elapsed().as_secs_f64()
        }
        ("burn", _) => burn(amount, || {
            std::hint::black_box((0..500_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
        }),
        ("system", _) => {
            let mut zero = File::open("/dev/zero").unwrap();
            burn(amount, || zero.read_exact(Page::bytes(&mut buffer)).unwrap())
        }
        other => panic!("{other:?}"),
    };
    eprintln!("done {done}");
    wait();
}

/// Repeats something until the process has had so many milliseconds of the processor; microseconds that it had.
fn burn(ms: u64, mut once: impl FnMut()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    let began = now();
    while now() - began < ms as f64 * 1e3 {
        once();
    }
    now() - began
}

/// Memory that direct I/O takes.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

impl Page {
    fn many(pages: usize) -> Vec<Page> {
        vec![Page([7; 4096]); pages]
    }

    fn bytes(pages: &mut [Page]) -> &mut [u8] {
        // SAFETY: a page is 4096 bytes without a gap, and any bytes are a page.
        unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), pages.len() * 4096) }
    }
}

#[test]
fn bytes_written_and_read() {
    let folder = on_disk();
    for (work, read, written) in
        [("write 67108864", 0.0, 1.0), ("read 67108864", 1.0, 0.0), ("dirty 33554432", 0.0, 1.0)]
    {
        let (usage, done) = Worker::new(work, folder.path()).measured();
        let off = |bytes: u64, share: f64| (bytes as f64 - done * share).abs() / done;
        assert!(off(usage.read_bytes, read) <= EXACT, "{work}: {} bytes read", usage.read_bytes);
        assert!(off(usage.write_bytes, written) <= EXACT, "{work}: {} bytes written", usage.write_bytes);
    }
}

#[test]
fn processor_time() {
    let folder = on_disk();
    let (usage, us) = Worker::new("burn 1000", folder.path()).measured();
    near(usage.cpu_us as f64, us);
    assert!(usage.cpu_system_us as f64 <= us * EXACT, "{} us in the kernel", usage.cpu_system_us);
    let (usage, us) = Worker::new("system 1000", folder.path()).measured();
    near(usage.cpu_us as f64, us);
    assert!(usage.cpu_system_us as f64 >= us * 0.8, "{} us in the kernel", usage.cpu_system_us);
    let states = usage.states.unwrap();
    near(states.user + states.system + states.wait + states.idle, 100.0);
}

/// A processor on which a process waits for a device is never idle: what it does not work it waits.
#[test]
fn waits_for_a_device() {
    let folder = on_disk();
    Worker::new("write 1048576", folder.path()).measured();
    let worker = Worker::new("wait 40", folder.path());
    let Ok(slow) = Throttle::begin(worker.child.id(), folder.path(), 20) else {
        println!("skipped: the device cannot be slowed down");
        return;
    };
    let processor = worker.processor;
    let before = Processors::now_of(processor).unwrap();
    let (_, seconds) = worker.measured();
    let time = Processors::now_of(processor).unwrap().since(before);
    drop(slow);
    assert!(seconds > 1.0, "the device was not slow: {seconds} s");
    let states = time.states();
    let stolen = 100.0 * time.stolen_share();
    near(states.wait + states.user + states.system + stolen, 100.0);
}

/// A session that waits a known time and remembers how long it was.
struct Waiting {
    waits: Vec<Duration>,
    done: u64,
}

impl Client for Waiting {
    type Work = Duration;
    type Done = Duration;

    fn draw(&mut self) -> (&'static str, Duration) {
        ("wait", Duration::from_millis(20))
    }

    fn attempt(&mut self, wait: &Duration) -> mysql::Result<Duration> {
        let began = Instant::now();
        std::thread::sleep(*wait);
        Ok(began.elapsed())
    }

    fn roll_back(&mut self) -> mysql::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Duration, waited: Duration) {
        self.waits.push(waited);
        self.done += 1;
    }
}

#[test]
fn transactions_and_their_latency() {
    let control = Control::default();
    let sessions = (0..4).map(|_| Waiting { waits: Vec::new(), done: 0 }).collect();
    let (seen, sessions) = drive(sessions, 2, None, &control);
    let done: u64 = sessions.iter().map(|session: &Waiting| session.done).sum();
    assert_eq!((seen.transactions, control.transactions.into_inner()), (done, done));
    // One of each session may have ended behind the last second.
    near(seen.series.iter().sum(), done as f64);
    let mut waits: Vec<f64> = sessions.iter().flat_map(|session| &session.waits).map(Duration::as_secs_f64).collect();
    waits.sort_by(f64::total_cmp);
    near(seen.latency.p50_us as f64, waits[waits.len() / 2] * 1e6);
    near(seen.latency.max_us as f64, waits[waits.len() - 1] * 1e6);
    near(seen.seconds, 2.0);
}

/// So many transactions a second were asked for, and are done.
#[test]
fn a_rate() {
    let sessions = (0..4).map(|_| Waiting { waits: Vec::new(), done: 0 }).collect();
    let (seen, _): (_, Vec<Waiting>) = drive(sessions, 2, Some(50), &Control::default());
    near(seen.transactions as f64, 100.0);
}
