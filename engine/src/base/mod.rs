//! The vocabulary of the engine: keys, sequence numbers, kinds, file numbers, log positions, errors, limits.
//!
//! Types that differ only in meaning are distinct types; conversions are explicit.

pub mod backoff;
pub mod codec;
mod error;
mod failures;
mod ids;
pub mod interrupt;
pub mod limits;
pub mod memory;
pub mod scratch;
pub mod slots;
pub mod tally;
pub mod value;

pub use error::{Error, Result};
pub use failures::{FailureCounts, counts as failure_counts};
pub use ids::{FileNo, IndexId, KeyVersion, Kind, Lsn, SeqNo, TxnId};
