//! What a layer above the engine needs that keeps tables, or another model of its own, in it: the row layer of `strata-row` is one.
//!
//! Such a layer does by itself what [`Keyspace`](crate::Keyspace) and [`Transaction`](crate::Transaction) do for others:
//!
//! - It encodes its keys. A key begins with the four bytes of an [`IndexId`], which the layer gives out itself, below
//!   [`IndexId::KEYSPACES`], and never twice. What is under ids from there on belongs to keyspaces, and stays: of
//!   [`Engine::indexes`](crate::Engine::indexes) a layer drops none of these.
//! - It chooses what is read: [`SeqNo`] of a [`ReadPoint`] that it holds.
//! - It locks what its rules say, through a [`Txn`], and announces keys that are new before it locks them
//!   ([`Txn::intend_insert`]). Otherwise transactions that are serializable are not safe from what it writes.
//! - It may prepare transactions, decide them later, and fix their order under a mutex of its coordinator.
//! - It may have values in several forms, and have the old ones made new by a [`Rule`] while files are merged ([`Renewal`]).
//! - It may fill an index that holds nothing yet with entries in any order, past log and memtables ([`Sorter::ingest`]).
//! - What its data needs of a program it says with a [`Feature`].
//!
//! A [`Txn`] buffers writes and holds locks; a [`Cursor`] moves over what is committed and the writes of one transaction. The rest are the
//! types of the methods of [`Engine`](crate::Engine) that are made for a layer.

pub use crate::base::backoff::Backoff;
pub use crate::base::scratch::ScratchBuf;
pub use crate::base::tally::{Tally, begin_counting, end_counting};
pub use crate::base::value::{LargeValue, Unread, ValueBuf, ValueOut};
pub use crate::base::{IndexId, SeqNo, codec, limits};
pub use crate::compact::merge::Rule;
pub use crate::crash_point::{CrashHook, CrashPoint};
pub use crate::engine::Chore;
pub use crate::ingest::SameKey;
pub use crate::inventory::{FileKind, Holding, Level};
pub use crate::lock::{
    Deadlock, GrantKind, Granted, LockInfo, LockKind, LockMode, LockOwner, LockTable, RangeGrant, Wait, WaitInfo,
    WaitObserver,
};
pub use crate::manifest::{Feature, Need};
pub use crate::metrics::{Figure, Kind, Metric, Subsystem, Unit, metrics};
pub use crate::read::{IndexStats, RangeCount, RangeEstimate};
pub use crate::read_point::ReadPoint;
pub use crate::renewal::{Moment, Renewal};
pub use crate::sorter::{NotedKeys, Sorter, Tick};
pub use crate::sst::hold_for_scan;
pub use crate::txn::{Cursor, Txn};
pub use crate::write::{WriteOp, WriteRoom, Written};
pub use crate::write_buffer::Savepoint;
