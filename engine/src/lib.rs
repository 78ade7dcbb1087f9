//! Strata's storage engine: a transactional, ordered key-value store on a log-structured merge tree. It knows no SQL.
//!
//! Open a store with [`Engine::open`], write through [`Txn`], read through [`Txn::get`] and [`Cursor`]. The way of a
//! write, of a read and the life of a file are told in `docs/develop/architecture.md`; what must always hold, in
//! `docs/develop/invariants.md`. Modules stand in the order of their dependencies: each uses only those above it.

pub mod base;
pub mod io;
pub mod iter;
pub mod mem;
pub mod lock;
pub mod read_point;
pub mod wal;
pub mod cache;
pub mod sst;
pub mod manifest;
pub mod compact;
pub mod flush;
mod crash_point;
mod options;
mod settings;
mod state;
mod value;
mod sources;
mod drops;
mod inventory;
mod sst_files;
mod spill;
mod write_buffer;
mod commit;
mod budget;
mod remains;
mod install;
mod tree;
mod read;
mod journal;
mod board;
mod parts;
mod admission;
mod output;
mod txn;
mod background;
mod recover;
pub mod metrics;
mod write;
mod keyspace;
mod engine;
mod range;
mod snapshot;
mod transaction;

pub use base::backoff::Backoff;
pub use base::{Error, IndexId, Result, SeqNo};
pub use board::WorkCounters;
pub use crash_point::{CrashHook, CrashPoint};
pub use engine::{Chore, Engine};
pub use keyspace::Keyspace;
pub use manifest::{Feature, Need};
pub use metrics::Metrics;
pub use options::{Compression, Durability, Options, Report};
pub use read::{IndexStats, RangeEstimate};
pub use range::{Key, KeyRange, LendingRange, Range};
pub use read_point::ReadPoint;
pub use snapshot::Snapshot;
pub use transaction::{Isolation, Savepoint, Transaction};
pub use txn::{Cursor, Txn};
pub use value::Value;
pub use write::{WriteOp, WriteRoom, Written};
pub use write_buffer::Savepoint as WriteSavepoint;
