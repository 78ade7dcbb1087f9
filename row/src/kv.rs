//! The names of the engine that this crate uses, in one place.

pub use strata_engine::base::value::{ValueBuf, ValueOut};
pub use strata_engine::base::{Error, IndexId, Result, SeqNo};
pub use strata_engine::base::{codec, limits};
pub use strata_engine::lock::{Deadlock, LockInfo, LockKind, WaitInfo};
pub use strata_engine::lock::{GrantKind, Granted, LockMode, LockOwner, RangeGrant, Wait};
pub use strata_engine::metrics::{Figure, Metric, Subsystem, Unit, metrics as engine_metrics};
pub use strata_engine::{
    Backoff, Compression, CrashPoint, Cursor, Durability, Engine, Feature, Metrics, Need, Options, ReadPoint,
    Savepoint, Txn, WriteOp,
};
