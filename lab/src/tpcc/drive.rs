//! Sessions that run the mix for a time, and the orders they placed.

use super::txn::{Done, Input, Kind, Order, Session};
use super::{DATABASE, Scale, random::Source};
use crate::drive::{self, Client, Control, Seen};
use crate::server::Instance;
use anyhow::{Context, Result};

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

impl Load {
    /// As many transactions as go, for an hour at most: whoever drives it stops it.
    pub fn until_stopped(scale: Scale, threads: u32, seed: u64) -> Load {
        Load { scale, threads, seconds: 3600, seed, rate: None }
    }
}

/// What came of it. Transactions that must be rolled back are among those that ended well.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What the sessions saw.
    pub seen: Seen,
    /// Orders whose commit was acknowledged.
    pub orders: Vec<Order>,
}

/// Runs the mix. Returns when the time is over, `control.stop` is set, or all sessions have failed.
pub fn drive(instance: &Instance, load: Load, control: &Control) -> Result<Outcome> {
    let terminal = |n: u32| -> Result<Terminal> {
        let session = Session::new(instance.connect(Some(DATABASE))?)?;
        let source = Source::for_run(load.seed.wrapping_mul(1000) + u64::from(n));
        Ok(Terminal { session, source, scale: load.scale, orders: Vec::new() })
    };
    let terminals = (0..load.threads).map(terminal).collect::<Result<_>>().context("the sessions cannot be opened")?;
    let (seen, terminals) = drive::drive(terminals, load.seconds, load.rate, control);
    Ok(Outcome { seen, orders: terminals.into_iter().flat_map(|terminal: Terminal| terminal.orders).collect() })
}

/// A session that draws one transaction of the mix after the other.
struct Terminal {
    session: Session,
    source: Source,
    scale: Scale,
    orders: Vec<Order>,
}

impl Client for Terminal {
    type Work = Input;
    type Done = Done;

    fn draw(&mut self) -> (&'static str, Input) {
        let kind = Kind::of(self.source.uniform(0, 99));
        (kind.name(), Input::draw(kind, self.scale, &mut self.source))
    }

    fn attempt(&mut self, input: &Input) -> mysql::Result<Done> {
        self.session.run(input)
    }

    fn roll_back(&mut self) -> mysql::Result<()> {
        self.session.rollback()
    }

    fn note(&mut self, _: &Input, done: Done) {
        if let Done::Committed(Some(order)) = done {
            self.orders.push(order);
        }
    }
}
