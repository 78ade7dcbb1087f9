//! Workers that run the mix for a time, and what they saw.

use super::txn::{Done, Input, Kind, Order, Session, is_lost};
use super::{DATABASE, Scale, random::Source};
use crate::server::Instance;
use crate::stats::{Latencies, Seconds};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DEADLOCK: u16 = 1213;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Cardinalities of the data.
    pub scale: Scale,
    /// Sessions.
    pub threads: u32,
    /// How long.
    pub seconds: u64,
    /// Seed of the input.
    pub seed: u64,
    /// Transactions a second, all sessions together; as many as go if none.
    pub rate: Option<u32>,
}

/// What the workers saw.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Seconds until the last worker was done.
    pub seconds: f64,
    /// Transactions that ended well, those that must be rolled back among them.
    pub transactions: u64,
    /// New-Orders among them.
    pub new_orders: u64,
    /// Repetitions after deadlocks.
    pub deadlocks: u64,
    /// Errors; the worker that had one stopped.
    pub errors: Vec<String>,
    /// Workers that stopped because the server went away.
    pub lost: u32,
    /// Transactions in each second.
    pub series: Vec<f64>,
    /// Latencies of all.
    pub latency: Latencies,
    /// Latencies by kind.
    pub by_kind: BTreeMap<&'static str, Latencies>,
    /// Orders whose commit was acknowledged.
    pub orders: Vec<Order>,
}

/// Tells a run from outside to end, and shows how far it is.
#[derive(Debug, Default)]
pub struct Control {
    /// Set to end the run early.
    pub stop: AtomicBool,
    /// Transactions so far.
    pub transactions: AtomicU64,
}

/// Runs the mix. Returns when the time is over, `control.stop` is set, or all
/// workers have failed.
pub fn drive(instance: &Instance, load: Load, control: &Control) -> Result<Outcome> {
    let sessions = (0..load.threads)
        .map(|_| Ok(Session::new(instance.connect(Some(DATABASE))?)?))
        .collect::<Result<Vec<_>>>()
        .context("the sessions cannot be opened")?;
    let began = Instant::now();
    let seconds = Seconds::new(began, load.seconds);
    let pace = load.rate.map(|rate| Pace { began, rate, next: AtomicU64::new(0) });
    let barrier = Barrier::new(sessions.len());
    let mut outcome = Outcome::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0u64..)
            .zip(sessions)
            .map(|(n, session)| {
                let (barrier, seconds, pace) = (&barrier, &seconds, pace.as_ref());
                scope.spawn(move || {
                    barrier.wait();
                    let worker = Worker {
                        session,
                        source: Source::for_run(load.seed.wrapping_mul(1000) + n),
                        scale: load.scale,
                        until: began + Duration::from_secs(load.seconds),
                        seconds,
                        pace,
                        control,
                        outcome: Outcome::default(),
                    };
                    worker.run()
                })
            })
            .collect();
        for worker in workers {
            let part = worker.join().expect("a worker does not panic");
            outcome.transactions += part.transactions;
            outcome.new_orders += part.new_orders;
            outcome.deadlocks += part.deadlocks;
            outcome.errors.extend(part.errors);
            outcome.lost += part.lost;
            outcome.orders.extend(part.orders);
            outcome.latency.merge(&part.latency);
            for (kind, latency) in part.by_kind {
                outcome.by_kind.entry(kind).or_default().merge(&latency);
            }
        }
    });
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.series = seconds.series();
    Ok(outcome)
}

/// When the next transaction is due: evenly, whoever of the workers takes it. Who is late begins at once.
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

struct Worker<'a> {
    session: Session,
    source: Source,
    scale: Scale,
    until: Instant,
    seconds: &'a Seconds,
    pace: Option<&'a Pace>,
    control: &'a Control,
    outcome: Outcome,
}

impl Worker<'_> {
    fn run(mut self) -> Outcome {
        while Instant::now() < self.until && !self.control.stop.load(Ordering::Relaxed) {
            if let Some(pace) = self.pace {
                pace.wait();
            }
            let kind = Kind::of(self.source.uniform(0, 99));
            let input = Input::draw(kind, self.scale, &mut self.source);
            let began = Instant::now();
            match self.until_done(&input) {
                Ok(done) => {
                    let took = began.elapsed();
                    self.seconds.count();
                    self.control.transactions.fetch_add(1, Ordering::Relaxed);
                    self.outcome.transactions += 1;
                    self.outcome.latency.record(took);
                    self.outcome.by_kind.entry(kind.name()).or_default().record(took);
                    if let Done::Committed(Some(order)) = done {
                        self.outcome.new_orders += 1;
                        self.outcome.orders.push(order);
                    }
                }
                Err(error) if is_lost(&error) => {
                    self.outcome.lost += 1;
                    break;
                }
                Err(error) => {
                    self.outcome.errors.push(format!("{}: {error}", kind.name()));
                    break;
                }
            }
        }
        self.outcome
    }

    /// Repeats a transaction that met a deadlock. Any other error is returned.
    fn until_done(&mut self, input: &Input) -> mysql::Result<Done> {
        loop {
            match self.session.run(input) {
                Err(mysql::Error::MySqlError(error)) if error.code == DEADLOCK => {
                    self.outcome.deadlocks += 1;
                    self.session.rollback()?;
                }
                other => return other,
            }
        }
    }
}
