//! Redmine processes that live on, and what their operations took.
//!
//! Each is a Ruby process that has loaded Redmine and holds a connection, by `lab/redmine/work.rb`. They are told all at once to do
//! an operation for a time. The mean leaves out the first and the last tenth of the operations, in the order of their beginnings,
//! as the original did: the first ones warm up, at the end the processes stop one by one.
//!
//! Rejected: the sessions of the other workloads ([`crate::drive`]), one for each process. Their transactions are statements on a
//! connection of the lab's; an operation here is many transactions of another process, which repeats and times it by itself, so
//! that the way between the two processes is no part of its time.

use super::app::App;
use super::said::Said;
use crate::child::Bound;
use crate::server::{Instance, PATIENCE};
use crate::stats::Latencies;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// One of so many operations is left out at each end.
const ENDS: usize = 10;
/// How long the end of a process may take whose input has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// An operation, in microseconds of the machine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub began_us: u64,
    pub took_us: u64,
}

/// What the processes did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// In the order of their beginnings.
    pub ops: Vec<Op>,
    /// Those that met a deadlock, each time.
    pub repeated: u64,
    pub errors: Vec<String>,
}

impl Done {
    /// The mean of those that count, in seconds; none if there is no operation.
    pub fn mean(&self) -> Option<f64> {
        let kept = without_ends(&self.ops);
        let sum: u64 = kept.iter().map(|op| op.took_us).sum();
        (!kept.is_empty()).then(|| sum as f64 / kept.len() as f64 / 1e6)
    }

    /// What all operations took together, those of processes beside each other added up, in seconds.
    pub fn sum(&self) -> f64 {
        self.ops.iter().map(|op| op.took_us).sum::<u64>() as f64 / 1e6
    }

    /// From the first beginning to the last end, in seconds.
    pub fn seconds(&self) -> f64 {
        let end = self.ops.iter().map(|op| op.began_us + op.took_us).max().unwrap_or(0);
        end.saturating_sub(self.begin()) as f64 / 1e6
    }

    /// Operations that ended in each of so many seconds.
    pub fn series(&self, seconds: u64) -> Vec<f64> {
        let mut series = vec![0.0; seconds as usize];
        for op in &self.ops {
            let second = (op.began_us + op.took_us - self.begin()) / 1_000_000;
            // What ends behind the last second is part of the run, not of the series.
            if let Some(count) = series.get_mut(second as usize) {
                *count += 1.0;
            }
        }
        series
    }

    /// Of all, ends included.
    pub fn latencies(&self) -> Latencies {
        let mut latencies = Latencies::default();
        self.ops.iter().for_each(|op| latencies.record(Duration::from_micros(op.took_us)));
        latencies
    }

    fn begin(&self) -> u64 {
        self.ops.first().map_or(0, |op| op.began_us)
    }
}

/// Without a tenth at each end, rounded down: of fewer than ten operations all count.
fn without_ends(ops: &[Op]) -> &[Op] {
    let end = ops.len() / ENDS;
    &ops[end..ops.len() - end]
}

/// Processes that wait to be told what to do.
pub struct Workers(Vec<Worker>);

struct Worker {
    child: Bound,
    lines: Receiver<Said>,
}

impl Workers {
    /// Starts so many on an engine's server, and waits until all have loaded Redmine.
    pub fn start(app: &App, instance: &Instance, count: u32) -> Result<Workers> {
        let workers = (0..count).map(|_| Worker::start(app, instance)).collect::<Result<Vec<_>>>()?;
        for worker in &workers {
            match worker.lines.recv_timeout(PATIENCE) {
                Ok(Said::Ready) => {}
                Ok(Said::Error(error)) => bail!("a Redmine process does not start: {error}"),
                _ => bail!("a Redmine process does not start; the end of {}:\n{}", app.log().display(), app.log_tail()),
            }
        }
        Ok(Workers(workers))
    }

    /// Their processes.
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|worker| worker.child.pid()).collect()
    }

    /// Lets so many of them do an operation for a time; each draws its input from a seed of its own.
    pub fn run(&mut self, operation: &str, processes: u32, seconds: u64, seed: u64) -> Result<Done> {
        ensure!(processes > 0 && processes as usize <= self.0.len(), "{processes} processes of {}", self.0.len());
        let chosen = &mut self.0[..processes as usize];
        for (worker, n) in chosen.iter_mut().zip(1u64..) {
            let input = worker.child.0.stdin.as_mut().context("a Redmine process has no input")?;
            writeln!(input, "run {operation} {seconds} {}", seed * 1000 + n).context("a Redmine process is gone")?;
        }
        let until = Instant::now() + Duration::from_secs(seconds) + PATIENCE;
        let mut done = Done::default();
        for worker in chosen {
            worker.collect(until, &mut done)?;
        }
        done.ops.sort_by_key(|op| op.began_us);
        Ok(done)
    }

    /// Lets them end by themselves; who does not is killed.
    pub fn stop(mut self) {
        self.0.iter_mut().for_each(|worker| drop(worker.child.0.stdin.take()));
        for worker in &mut self.0 {
            worker.child.ends_within(FAREWELL);
        }
    }
}

impl Worker {
    fn start(app: &App, instance: &Instance) -> Result<Worker> {
        let mut child = app.run("work.rb", instance, &[])?;
        let output = child.0.stdout.take().context("a Redmine process has no output")?;
        let (sender, lines) = channel();
        // It ends with the process, whose output it reads.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(said) = Said::of(&line)
                    && sender.send(said).is_err()
                {
                    return;
                }
            }
        });
        Ok(Worker { child, lines })
    }

    /// What it says until it is done.
    fn collect(&self, until: Instant, done: &mut Done) -> Result<()> {
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Said::Op { began_us, took_us }) => done.ops.push(Op { began_us, took_us }),
                Ok(Said::Repeated) => done.repeated += 1,
                Ok(Said::Error(error)) => done.errors.push(error),
                Ok(Said::Done) => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => bail!("an operation of Redmine does not end"),
                Err(RecvTimeoutError::Disconnected) => bail!("a Redmine process has ended by itself"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(took_ms: &[u64]) -> Done {
        let ops = (0..).zip(took_ms).map(|(n, ms)| Op { began_us: 5_000_000 + n * 100_000, took_us: ms * 1000 });
        Done { ops: ops.collect(), ..Done::default() }
    }

    #[test]
    fn the_first_and_the_last_tenth_do_not_count() {
        let mut took = vec![20; 30];
        took[..3].fill(9000);
        took[27..].fill(7000);
        assert_eq!(done(&took).mean(), Some(0.02));
        // A slow one in the middle counts.
        took[15] = 20 + 240;
        assert_eq!(done(&took).mean(), Some(0.03));
    }

    #[test]
    fn of_few_operations_all_count() {
        assert_eq!(done(&[]).mean(), None);
        assert_eq!(done(&[10]).mean(), Some(0.01));
        assert_eq!(done(&[10, 10, 10, 10, 10, 10, 10, 10, 100]).mean(), Some(0.02));
        assert_eq!(done(&[900, 10, 10, 10, 10, 10, 10, 10, 10, 900]).mean(), Some(0.01));
        // 19 operations lose one at each end, 20 lose two.
        assert_eq!(without_ends(&done(&[1; 19]).ops).len(), 17);
        assert_eq!(without_ends(&done(&[1; 20]).ops).len(), 16);
    }

    #[test]
    fn seconds_of_a_run() {
        // Three begin at 0.0, 0.1 and 0.2 s, and end at 0.5, 1.1 and 3.2 s.
        let done = done(&[500, 1000, 3000]);
        assert_eq!(done.series(3), [1.0, 1.0, 0.0]);
        assert!((done.seconds() - 3.2).abs() < 1e-9);
        assert_eq!(done.latencies().summary().count, 3);
        assert_eq!((Done::default().seconds(), Done::default().series(2)), (0.0, vec![0.0, 0.0]));
    }
}
