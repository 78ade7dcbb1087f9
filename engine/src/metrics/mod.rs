//! Figures about an open store: each is declared once and shown in several places.
//!
//! | file | what it has |
//! |---|---|
//! | `declare` | what a declaration says of a figure: name, subsystem, kind, unit, help |
//! | `list` | the declarations, each with the function that takes its value out of a sample |
//! | `sample` | the sample: plain numbers, taken at one moment |
//! | `collect` | where the numbers of a sample come from |
//! | `text` | the report for people |
//!
//! The layers above declare their own figures with the same types and show both lists together, so SHOW STATUS, SHOW ENGINE
//! STRATA STATUS, `information_schema.STRATA_METRICS` and the reference page in `docs/use` cannot disagree.
//!
//! Invariants: names are unique, stable, and made of small letters, digits and underscores; a counter never goes down while the
//! store is open; a figure costs a row or a statement nothing that was not counted anyway.
//!
//! Rejected: a registry that parts enter their counters in when they are made (a list that nobody can read as a whole, and an
//! indirection at each increment); resetting counters (two who watch would disturb each other: watchers take differences).

mod collect;
mod declare;
mod list;
mod sample;
mod text;

pub(crate) use collect::status_text;
pub use declare::{Figure, Kind, Metric, Subsystem, Unit};
pub use list::metrics;
pub use sample::Metrics;
