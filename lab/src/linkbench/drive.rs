//! Requesters that ask for a time, and what they saw.

use super::graph::Graph;
use super::load::AGAIN;
use super::request::{Access, Request, Source};
use super::seed_for;
use super::session::{Done, Session};
use crate::server::Instance;
use crate::stats::{Latencies, Seconds};
use crate::tpcc::drive::Control;
use crate::tpcc::txn::is_lost;
use anyhow::{Context, Result};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Purpose of the seeds of requesters.
const REQUESTERS: u64 = 1 << 40;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The graph that was loaded, and how it is asked for.
    pub graph: &'a Graph,
    pub access: &'a Access,
    /// Requesters.
    pub requesters: u32,
    /// How long.
    pub seconds: u64,
    /// Which run of this graph: each draws other requests.
    pub run: u64,
}

/// What the requesters saw.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Seconds until the last requester was done.
    pub seconds: f64,
    /// Operations that ended well.
    pub transactions: u64,
    /// Repetitions after deadlocks and waits for locks that took too long.
    pub deadlocks: u64,
    /// Errors; the requester that had one stopped.
    pub errors: Vec<String>,
    /// Requesters that stopped because the server went away.
    pub lost: u32,
    /// Links that lists had, of all lists.
    pub listed: u64,
    /// Operations in each second.
    pub series: Vec<f64>,
    /// Latencies of all.
    pub latency: Latencies,
    /// Latencies by operation.
    pub by_kind: BTreeMap<&'static str, Latencies>,
    /// What the tables must have.
    pub nodes: Nodes,
}

/// Nodes that came and went since the graph was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Ids of those whose addition was acknowledged.
    pub added: Vec<u64>,
    /// Ids of those whose deletion was acknowledged.
    pub deleted: Vec<u64>,
    /// How many may have been added: the server went away before it answered.
    pub perhaps_added: u64,
    /// Ids of those that may have been deleted.
    pub perhaps_deleted: Vec<u64>,
}

impl Nodes {
    /// Adds what others saw.
    pub fn merge(&mut self, other: Nodes) {
        self.added.extend(other.added);
        self.deleted.extend(other.deleted);
        self.perhaps_added += other.perhaps_added;
        self.perhaps_deleted.extend(other.perhaps_deleted);
    }
}

/// Lets the requesters ask. Returns when the time is over, `control.stop` is set, or all requesters have failed.
pub fn drive(instance: &Instance, load: Load, control: &Control) -> Result<Outcome> {
    let sessions = (0..load.requesters)
        .map(|_| Session::open(instance))
        .collect::<mysql::Result<Vec<_>>>()
        .context("the sessions cannot be opened")?;
    let began = Instant::now();
    let seconds = Seconds::new(began, load.seconds);
    let barrier = Barrier::new(sessions.len());
    let mut outcome = Outcome::default();
    std::thread::scope(|scope| {
        let requesters: Vec<_> = (0u64..)
            .zip(sessions)
            .map(|(n, session)| {
                let (barrier, seconds) = (&barrier, &seconds);
                scope.spawn(move || {
                    let purpose = REQUESTERS + (load.run << 16) + n;
                    let rng = SmallRng::seed_from_u64(seed_for(load.graph.seed(), purpose));
                    barrier.wait();
                    let requester = Requester {
                        session,
                        source: Source::new(load.graph, load.access, rng),
                        until: began + Duration::from_secs(load.seconds),
                        seconds,
                        control,
                        outcome: Outcome::default(),
                    };
                    requester.run()
                })
            })
            .collect();
        for requester in requesters {
            outcome.add(requester.join().expect("a requester does not panic"));
        }
    });
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.series = seconds.series();
    Ok(outcome)
}

impl Outcome {
    fn add(&mut self, part: Outcome) {
        self.transactions += part.transactions;
        self.deadlocks += part.deadlocks;
        self.errors.extend(part.errors);
        self.lost += part.lost;
        self.listed += part.listed;
        self.latency.merge(&part.latency);
        self.nodes.merge(part.nodes);
        for (kind, latency) in part.by_kind {
            self.by_kind.entry(kind).or_default().merge(&latency);
        }
    }
}

struct Requester<'a> {
    session: Session,
    source: Source<'a>,
    until: Instant,
    seconds: &'a Seconds,
    control: &'a Control,
    outcome: Outcome,
}

impl Requester<'_> {
    fn run(mut self) -> Outcome {
        while Instant::now() < self.until && !self.control.stop.load(Ordering::Relaxed) {
            let (kind, request) = self.source.draw();
            let began = Instant::now();
            match self.until_done(&request) {
                Ok(done) => {
                    let took = began.elapsed();
                    self.seconds.add(1);
                    self.control.transactions.fetch_add(1, Ordering::Relaxed);
                    self.outcome.transactions += 1;
                    self.outcome.latency.record(took);
                    self.outcome.by_kind.entry(kind.name()).or_default().record(took);
                    self.note(&request, done);
                }
                Err(error) => {
                    match request {
                        Request::AddNode(_) => self.outcome.nodes.perhaps_added += 1,
                        Request::DeleteNode(id) => self.outcome.nodes.perhaps_deleted.push(id),
                        _ => {}
                    }
                    if is_lost(&error) {
                        self.outcome.lost += 1;
                    } else {
                        self.outcome.errors.push(format!("{}: {error}", kind.name()));
                    }
                    break;
                }
            }
        }
        self.outcome
    }

    fn note(&mut self, request: &Request, done: Done) {
        match done {
            Done::Added(id) => self.outcome.nodes.added.push(id),
            Done::Deleted(id) => self.outcome.nodes.deleted.push(id),
            Done::Listed(links, oldest) => {
                self.outcome.listed += links;
                if let Request::ListLinks(list) = request {
                    self.source.listed(*list, links, oldest);
                }
            }
            Done::Other => {}
        }
    }

    /// Repeats an operation that met a deadlock, or waited for a lock for too long. Any other error is returned.
    fn until_done(&mut self, request: &Request) -> mysql::Result<Done> {
        loop {
            match self.session.run(request) {
                Err(mysql::Error::MySqlError(error)) if AGAIN.contains(&error.code) => {
                    self.outcome.deadlocks += 1;
                    self.session.rollback()?;
                }
                other => return other,
            }
        }
    }
}
