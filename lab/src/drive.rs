//! Sessions that run transactions for a time, and what they see of it: what the drivers of all workloads have in common.
//!
//! A workload gives a [`Client`] for each session: what it does next, and how it is done. [`drive`] begins with all of them at once.
//! A transaction that meets a deadlock is tried again with the same input, and its latency is that of all its attempts. Any other
//! error ends the session, and the others go on: the error is a figure of the run.

use crate::stats::{Latencies, Latency, Seconds};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The error of a transaction that was the victim of a deadlock.
pub const DEADLOCK: u16 = 1213;
/// The error of a transaction that would change a row of which its snapshot has an older version. With snapshot isolation, the servers' default
/// from 11.6.2 on.
pub const SNAPSHOT_CONFLICT: u16 = 1020;
/// The error of a statement that waited too long for a lock.
pub const LOCK_WAIT: u16 = 1205;

/// One session of a workload.
pub trait Client: Send {
    /// A transaction with its input.
    type Work;
    /// What came of it.
    type Done;

    /// What the session does next, and the name of its kind.
    fn draw(&mut self) -> (&'static str, Self::Work);

    /// Tries it once, to the end of its transaction.
    fn attempt(&mut self, work: &Self::Work) -> mysql::Result<Self::Done>;

    /// Ends a transaction that failed, before it is tried again.
    fn roll_back(&mut self) -> mysql::Result<()>;

    /// Whether it is tried again after this error.
    fn again(&self, code: u16) -> bool {
        code == DEADLOCK || code == SNAPSHOT_CONFLICT
    }

    /// Remembers what came of a transaction. Its latency ends before.
    fn note(&mut self, work: &Self::Work, done: Self::Done);

    /// Remembers a transaction that ended with an error: nobody knows whether it was done.
    fn note_unknown(&mut self, _work: &Self::Work) {}
}

/// Tells a run from outside to end, and shows how far it is.
#[derive(Debug, Default)]
pub struct Control {
    /// Set to end the run early.
    pub stop: AtomicBool,
    /// Transactions so far.
    pub transactions: AtomicU64,
}

/// What the sessions of a run saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Seconds until the last session was done.
    pub seconds: f64,
    /// Transactions that ended well.
    pub transactions: u64,
    /// Attempts that were repeated.
    pub deadlocks: u64,
    /// Errors; the session that had one stopped.
    pub errors: Vec<String>,
    /// Sessions that stopped because the server went away.
    pub lost: u32,
    /// Transactions in each second.
    pub series: Vec<f64>,
    /// Latencies of all.
    pub latency: Latency,
    /// Latencies by kind of transaction, where there are several.
    pub by_kind: BTreeMap<String, Latency>,
    /// Further figures, by name.
    pub further: BTreeMap<String, f64>,
    /// What the reader of a report has to know beside the figures, by name.
    pub words: BTreeMap<String, String>,
}

impl Seen {
    /// Why the run is a failure; nothing if it is none.
    pub fn failures(&self) -> Vec<String> {
        let lost = (self.lost > 0).then(|| format!("{} sessions broke", self.lost));
        self.errors.iter().cloned().chain(lost).collect()
    }

    /// What went wrong in a warm-up makes the run a failure, too.
    pub fn after(mut self, warm_up: &Seen) -> Seen {
        self.errors.extend(warm_up.errors.iter().cloned());
        self.lost += warm_up.lost;
        self
    }
}

/// Lets the clients work. Returns when the time is over, `control.stop` is set, or all of them have failed. `rate` is that of all
/// sessions together, in transactions a second; as many as go if none.
pub fn drive<C: Client>(clients: Vec<C>, seconds: u64, rate: Option<u32>, control: &Control) -> (Seen, Vec<C>) {
    let began = Instant::now();
    let series = Seconds::new(began, seconds);
    let pace = rate.map(|rate| Pace { began, rate, next: AtomicU64::new(0) });
    let barrier = Barrier::new(clients.len());
    let mut sum = Part::default();
    let clients = std::thread::scope(|scope| {
        let workers: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let (barrier, series, pace) = (&barrier, &series, pace.as_ref());
                scope.spawn(move || {
                    barrier.wait();
                    let until = began + Duration::from_secs(seconds);
                    Worker { client, until, series, pace, control, part: Part::default() }.run()
                })
            })
            .collect();
        let parts = workers.into_iter().map(|worker| worker.join().expect("a session does not panic"));
        parts.map(|(client, part)| (client, sum.merge(part)).0).collect()
    });
    let seen = Seen {
        seconds: began.elapsed().as_secs_f64(),
        transactions: sum.latency.summary().count,
        deadlocks: sum.deadlocks,
        errors: sum.errors,
        lost: sum.lost,
        series: series.series(),
        latency: sum.latency.summary(),
        by_kind: sum.by_kind.iter().map(|(kind, latency)| ((*kind).to_string(), latency.summary())).collect(),
        ..Seen::default()
    };
    (seen, clients)
}

/// Whether an error means that the server is gone, or going.
pub fn is_lost(error: &mysql::Error) -> bool {
    match error {
        mysql::Error::IoError(error) => error.kind() != ErrorKind::InvalidData,
        // 1053: the server shuts down; 1927: the connection was killed; 1317: the same for a statement at work.
        mysql::Error::MySqlError(error) => matches!(error.code, 1053 | 1317 | 1927),
        _ => true,
    }
}

/// What one session saw.
#[derive(Debug, Default)]
struct Part {
    deadlocks: u64,
    errors: Vec<String>,
    lost: u32,
    latency: Latencies,
    by_kind: BTreeMap<&'static str, Latencies>,
}

impl Part {
    fn merge(&mut self, other: Part) {
        self.deadlocks += other.deadlocks;
        self.errors.extend(other.errors);
        self.lost += other.lost;
        self.latency.merge(&other.latency);
        for (kind, latency) in other.by_kind {
            self.by_kind.entry(kind).or_default().merge(&latency);
        }
    }
}

/// When the next transaction is due: evenly, whoever of the sessions takes it. Who is late begins at once.
struct Pace {
    began: Instant,
    rate: u32,
    next: AtomicU64,
}

impl Pace {
    fn wait(&self) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let due = self.began + Duration::from_secs(1).mul_f64(number as f64 / f64::from(self.rate));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

struct Worker<'a, C> {
    client: C,
    until: Instant,
    series: &'a Seconds,
    pace: Option<&'a Pace>,
    control: &'a Control,
    part: Part,
}

impl<C: Client> Worker<'_, C> {
    fn run(mut self) -> (C, Part) {
        while Instant::now() < self.until && !self.control.stop.load(Ordering::Relaxed) {
            if let Some(pace) = self.pace {
                pace.wait();
            }
            let (kind, work) = self.client.draw();
            let began = Instant::now();
            match self.until_done(&work) {
                Ok(done) => {
                    let took = began.elapsed();
                    self.series.count();
                    self.control.transactions.fetch_add(1, Ordering::Relaxed);
                    self.part.latency.record(took);
                    self.part.by_kind.entry(kind).or_default().record(took);
                    self.client.note(&work, done);
                }
                Err(error) => {
                    self.client.note_unknown(&work);
                    if is_lost(&error) {
                        self.part.lost += 1;
                    } else {
                        self.part.errors.push(format!("{kind}: {error}"));
                    }
                    break;
                }
            }
        }
        (self.client, self.part)
    }

    fn until_done(&mut self, work: &C::Work) -> mysql::Result<C::Done> {
        loop {
            match self.client.attempt(work) {
                Err(mysql::Error::MySqlError(error)) if self.client.again(error.code) => {
                    self.part.deadlocks += 1;
                    self.client.roll_back()?;
                }
                other => return other,
            }
        }
    }
}
