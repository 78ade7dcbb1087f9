//! What a database tells whoever runs it: what the engine tells, and what only tables can have. See [`strata_engine::event`] for
//! when a listener is called, and what it may do; here, too, it is called without locks, and a panic of it ends with the event.

use crate::kv::{self, IndexId, Severity};
use std::fmt::{self, Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Something that happened in a database. `Display` gives the line that an operator reads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// In the engine.
    Engine(&'a kv::Event),
    /// Indexes that a statement has dropped keep their space for now. It is tried again, and told again only for another reason.
    SpaceKept {
        /// How many.
        indexes: usize,
        /// Why.
        error: &'a kv::Error,
    },
    /// The space of all indexes for which [`Event::SpaceKept`] was told has been given back.
    SpaceReturned,
    /// Rows of a table that have expired could not be removed. It is tried again, and told again only for another reason.
    PurgeFailed {
        /// The table's name in the catalog.
        table: &'a str,
        /// Why.
        error: &'a str,
    },
    /// The store held indexes that no table owns. Told while it is opened.
    Orphans {
        /// How many.
        indexes: usize,
        /// The lowest id.
        first: IndexId,
        /// The highest id.
        last: IndexId,
        /// Why their space is kept for now; `None`: they are dropped.
        kept: Option<&'a kv::Error>,
    },
}

impl Event<'_> {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Event::Engine(event) => event.severity(),
            Event::SpaceReturned => Severity::Note,
            Event::SpaceKept { .. } | Event::Orphans { .. } | Event::PurgeFailed { .. } => Severity::Warning,
        }
    }
}

impl Display for Event<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Event::Engine(event) => event.fmt(f),
            Event::SpaceKept { indexes, error } => {
                write!(f, "the space of {indexes} dropped indexes is not free yet: {error}")
            }
            Event::PurgeFailed { table, error } => {
                write!(f, "rows of table '{table}' that have expired (TTL) could not be removed: {error}")
            }
            Event::SpaceReturned => f.write_str("the space of dropped indexes is given back"),
            Event::Orphans { indexes, first, last, kept } => {
                write!(f, "{indexes} indexes belong to no table (first {first}, last {last}): ")?;
                match kept {
                    None => f.write_str("their space is given back"),
                    Some(error) => write!(f, "their space is not free yet: {error}"),
                }
            }
        }
    }
}

/// Is told of events. A closure `Fn(&Event<'_>)` is one.
pub trait EventListener: Send + Sync {
    /// This has happened.
    fn event(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync> EventListener for F {
    fn event(&self, event: &Event<'_>) {
        self(event)
    }
}

/// Whom a database tells.
#[derive(Clone, Default)]
pub(crate) struct Teller(Option<Arc<dyn EventListener>>);

impl Teller {
    pub fn new(listener: Option<Arc<dyn EventListener>>) -> Teller {
        Teller(listener)
    }

    /// Tells of an event. The caller holds no lock.
    pub fn tell(&self, event: &Event<'_>) {
        if let Some(listener) = &self.0 {
            drop(catch_unwind(AssertUnwindSafe(|| listener.event(event))));
        }
    }
}
