//! The names of the engine that this crate uses, in one place.

pub use strata_engine::crypt::{KeyProvider, KeyVersion, SYSTEM_KEY};
#[cfg(test)]
pub(crate) use strata_engine::event::{FlushReason, MergeReason};
pub use strata_engine::io::Known;
pub use strata_engine::layer::{
    Backoff, CrashPoint, Cursor, Deadlock, Feature, Figure, FileKind, GrantKind, Granted, Holding, IndexId, IndexStats,
    Level, LockInfo, LockKind, LockMode, LockOwner, Metric, Moment, Need, NotedKeys, RangeCount, RangeEstimate,
    RangeGrant, ReadPoint, Renewal, SameKey, Savepoint, ScratchBuf, SeqNo, Sorter, Subsystem, Tally, Tick, Txn, Unit,
    Unread, ValueBuf, ValueOut, Wait, WaitInfo, WriteOp, begin_counting, codec, end_counting, hold_for_scan, limits,
    metrics as engine_metrics,
};
pub use strata_engine::{
    Checkpoint, Compression, Durability, Engine, Error, Event, Metrics, Options, Result, Severity,
};
