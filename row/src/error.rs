//! Errors of the row layer: what the engine reports, and what only tables and rows can have.
//!
//! Outcomes that are part of normal work (no row found, end of a scan, an update that changes nothing) are not errors
//! here: functions return them as values. [`Error::Duplicate`] is an error because it undoes the row it belongs to.

use crate::foreign::{Fault, Reference};
use crate::keycode::CodecError;
use crate::kv::{self, Engine};
use std::path::PathBuf;
use std::sync::Arc;

/// Result of a row layer call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// An option of a new table that cannot be had.
    #[error("{0}")]
    WrongOption(String),
    /// From the engine.
    #[error(transparent)]
    Engine(#[from] kv::Error),
    /// A unique value exists already; the number is the index in the definition's order (the clustered one included).
    #[error("duplicate value in unique index {0}")]
    Duplicate(usize),
    /// No table has this name.
    #[error("table '{0}' does not exist in the engine")]
    NoTable(String),
    /// The name is taken.
    #[error("table '{0}' exists already in the engine")]
    TableExists(String),
    /// An encoded key is beyond the engine's limit.
    #[error("a key needs {bytes} bytes, the limit is {limit}")]
    KeyTooLong {
        /// Bytes needed.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// An encoded row is beyond the engine's limit.
    #[error("row needs {bytes} bytes, the limit is {limit}")]
    RowTooLong {
        /// Bytes needed.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The auto-increment counter cannot give the values asked for.
    #[error("auto-increment values are used up")]
    AutoincExhausted,
    /// The transaction's snapshot is older than the table.
    #[error("table '{0}' is newer than the transaction's snapshot")]
    TableChanged(String),
    /// The transaction reads a moment of the past at which the table was another one, and how.
    #[error("the table {table} was {what} after the moment that is read (strata_read_timestamp)")]
    NotThen {
        /// Its name.
        table: String,
        /// What has happened to it since.
        what: &'static str,
    },
    /// A transaction that reads the past writes only to tables that were created since.
    #[error(
        "the session reads the past (strata_read_timestamp): it may only write to tables that were created since; {0} was there"
    )]
    PastIsReadOnly(String),
    /// A call or a definition is wrong.
    #[error("{0}")]
    Invalid(String),
    /// No prepared transaction has this id.
    #[error("no prepared transaction has this id")]
    NoXid,
    /// Stored bytes of a row, a key or the catalog do not decode.
    #[error("corruption: {what}{}", read_from(.place))]
    Corruption {
        /// What was expected and found.
        what: String,
        /// The file that they were read from, or the directory of the log.
        place: Option<PathBuf>,
    },
    /// The statement was killed.
    #[error("interrupted")]
    Interrupted,
    /// A row of a child has values that no row of the parent has.
    #[error("foreign key '{}' of table '{}': no such row in '{}'", .0.key.name, .0.child, .0.parent)]
    NoReferencedRow(Arc<Reference>),
    /// Rows of a child refer to a row, or the child to a table, that is to go or to change.
    #[error("foreign key '{}' of table '{}' refers to '{}'", .0.key.name, .0.child, .0.parent)]
    RowIsReferenced(Arc<Reference>),
    /// Cascades follow one another over too many levels.
    #[error("foreign keys cascade over too many levels")]
    CascadeTooDeep(Arc<Reference>),
    /// A cascade would give two rows of a child the same unique value.
    #[error("foreign keys of table '{child}': duplicate value in index '{index}'")]
    ForeignDuplicate {
        /// The child's name in the catalog.
        child: String,
        /// The violated index.
        index: String,
    },
    /// A foreign key cannot be made.
    #[error("{why}")]
    CannotAddForeign {
        /// Its name, quoted, or its columns.
        name: String,
        /// Why, as a sentence.
        why: String,
        /// What is wrong, as far as others tell it apart.
        fault: Fault,
    },
    /// The name of a foreign key is that of another one of the database.
    #[error("there is a foreign key '{0}' already")]
    ForeignNameTaken(String),
    /// A foreign key that is to go does not exist.
    #[error("there is no foreign key '{0}'")]
    NoForeignKey(String),
    /// An index, or the order of its columns, is needed for a foreign key.
    #[error("index '{0}' is needed for a foreign key")]
    IndexOfForeign(String),
    /// A condition callback of the server reported an error; the server knows which.
    #[error("the pushed condition failed")]
    Condition,
}

impl Error {
    /// An [`Error::Invalid`] from a message.
    pub fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid(what.into())
    }
    /// An [`Error::Corruption`] from a message.
    pub fn corruption(what: impl Into<String>) -> Error {
        Error::Corruption { what: what.into(), place: None }
    }
    /// The same, of bytes that are stored under `key`: damage tells where it lies.
    #[cold]
    pub(crate) fn read_at(self, engine: &Engine, key: &[u8]) -> Error {
        match self {
            Error::Corruption { what, place: None } => Error::Corruption { what, place: Some(engine.place_of(key)) },
            other => other,
        }
    }
    /// True if a foreign key refuses what is done with a row.
    pub(crate) fn is_of_foreign_key(&self) -> bool {
        use Error::{CascadeTooDeep, ForeignDuplicate, NoReferencedRow, RowIsReferenced};
        matches!(self, NoReferencedRow(_) | RowIsReferenced(_) | CascadeTooDeep(_) | ForeignDuplicate { .. })
    }
    /// True if a lock was not to be had in time.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Error::Engine(kv::Error::LockTimeout))
    }
    /// True if a row lock was not to be had at once.
    pub(crate) fn is_lock_busy(&self) -> bool {
        matches!(self, Error::Engine(kv::Error::LockBusy))
    }
}

impl From<CodecError> for Error {
    fn from(e: CodecError) -> Error {
        match e {
            CodecError::TooLong { bytes, limit } => Error::KeyTooLong { bytes, limit },
            CodecError::Image(what) | CodecError::Definition(what) => Error::Invalid(what),
            CodecError::Corrupt(what) => Error::corruption(what),
        }
    }
}

fn read_from(place: &Option<PathBuf>) -> String {
    place.as_ref().map_or_else(String::new, |place| format!("; it was read from {}", place.display()))
}
