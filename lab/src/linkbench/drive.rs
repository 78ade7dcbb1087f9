//! Requesters that ask for a time, and what came of it.

use super::graph::Graph;
use super::load::AGAIN;
use super::request::{Access, Request, Source};
use super::seed_for;
use super::session::{Done, Session};
use crate::drive::{self, Client, Control, Seen};
use crate::server::Instance;
use anyhow::{Context, Result};
use rand::SeedableRng;
use rand::rngs::SmallRng;

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
    /// Operations a second of all of them together; as many as go if none.
    pub rate: Option<u32>,
    /// How long.
    pub seconds: u64,
    /// Which run of this graph: each draws other requests.
    pub run: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What the requesters saw.
    pub seen: Seen,
    /// Links that lists had, of all lists.
    pub listed: u64,
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
    let requester = |n: u32| -> Result<Requester> {
        let purpose = REQUESTERS + (load.run << 16) + u64::from(n);
        let rng = SmallRng::seed_from_u64(seed_for(load.graph.seed(), purpose));
        let (session, source) = (Session::open(instance)?, Source::new(load.graph, load.access, rng));
        Ok(Requester { session, source, listed: 0, nodes: Nodes::default() })
    };
    let requesters =
        (0..load.requesters).map(requester).collect::<Result<_>>().context("the sessions cannot be opened")?;
    let (seen, requesters) = drive::drive(requesters, load.seconds, load.rate, control);
    let mut outcome = Outcome { seen, ..Outcome::default() };
    for requester in requesters {
        outcome.listed += requester.listed;
        outcome.nodes.merge(requester.nodes);
    }
    Ok(outcome)
}

struct Requester<'a> {
    session: Session,
    source: Source<'a>,
    listed: u64,
    nodes: Nodes,
}

impl Client for Requester<'_> {
    type Work = Request;
    type Done = Done;

    fn draw(&mut self) -> (&'static str, Request) {
        let (kind, request) = self.source.draw();
        (kind.name(), request)
    }

    fn attempt(&mut self, request: &Request) -> mysql::Result<Done> {
        self.session.run(request)
    }

    fn roll_back(&mut self) -> mysql::Result<()> {
        self.session.rollback()
    }

    /// An operation that waited for a lock for too long is repeated, too.
    fn again(&self, code: u16) -> bool {
        AGAIN.contains(&code)
    }

    fn note(&mut self, request: &Request, done: Done) {
        match done {
            Done::Added(id) => self.nodes.added.push(id),
            Done::Deleted(id) => self.nodes.deleted.push(id),
            Done::Listed(links, oldest) => {
                self.listed += links;
                if let Request::ListLinks(list) = request {
                    self.source.listed(*list, links, oldest);
                }
            }
            Done::Other => {}
        }
    }

    fn note_unknown(&mut self, request: &Request) {
        match request {
            Request::AddNode(_) => self.nodes.perhaps_added += 1,
            Request::DeleteNode(id) => self.nodes.perhaps_deleted.push(*id),
            _ => {}
        }
    }
}
