#![doc = include_str!("../README.md")]
//!
//! # Where to begin
//!
//! [`Engine::open`] opens a store. [`Engine::keyspace`] gives a named map in it. [`Engine::get`], [`Engine::put`] and
//! [`Engine::delete`] are for one key; [`Engine::transaction`] is for several together, [`Engine::snapshot`] for reading one state.
//! [`Error`] says what each error means and what can be done. [`io`] has what a store's own disk or clock is made of, and a disk in
//! memory for tests; [`layer`] what a layer needs that encodes its keys and chooses its locks itself.
//!
//! The way of a write, of a read and the life of a file are told in `docs/develop/architecture.md`; what must always hold, in
//! `docs/develop/invariants.md`. Modules stand in the order of their dependencies: each uses only those above it.

mod base;
pub mod crypt;
pub mod io;
mod iter;
mod mem;
mod lock;
mod read_point;
mod wal;
mod cache;
mod sst;
mod manifest;
mod compact;
mod flush;
pub mod event;
mod crash_point;
mod options;
mod settings;
mod state;
mod renewal;
mod reencryption;
mod value;
mod sources;
mod drops;
mod inventory;
mod sst_files;
mod spill;
mod write_buffer;
mod timeline;
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
mod sorter;
mod ingest;
mod txn;
mod background;
mod recover;
mod checkpoint;
mod salvage;
mod metrics;
mod write;
mod past;
mod keyspace;
mod engine;
mod range;
mod snapshot;
mod transaction;
pub mod layer;
#[doc(hidden)]
pub mod internals;
#[cfg(test)]
mod nonces;

pub use base::{Error, Result};
pub use board::WorkCounters;
pub use checkpoint::{Checkpoint, CheckpointSize};
pub use engine::Engine;
pub use event::{Event, EventListener, Severity};
pub use keyspace::Keyspace;
pub use metrics::Metrics;
pub use options::{Compression, Durability, Options};
pub use range::{Key, KeyRange, LendingRange, Range};
pub use snapshot::Snapshot;
pub use transaction::{Isolation, Savepoint, Transaction};
pub use value::Value;
