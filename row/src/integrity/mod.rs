//! Referential integrity: what foreign keys ask of the rows that are written. Their definitions are in [`foreign`](crate::foreign).
//!
//! - `rows`: where the writing of a row comes in. A table without foreign keys pays a load.
//! - `check`: a child's row must find its parent
//! - `cascade`: what becomes of the rows that refer to one that has gone or changed
//! - `verify`: CHECK TABLE
//! - `parents`: ADD FOREIGN KEY: the rows that are there
//! - `links`, `workspace`: the relations of an open table, and what a session keeps
//! - `matches`: the rows that have given values; `past`: which of them are of the past
//!
//! # Locks
//!
//! A child's row locks its parent, shared, once it is written; a parent's row is locked exclusively by who changes it, before he looks
//! for children. So one of two who would leave a row without its parent sees what the other has done, or waits for it. Both read the
//! newest committed state. Of a transaction that was prepared when the store was opened the shared locks are lost: as long as there
//! is one, who looks for children waits for the entries that are to come.
//!
//! A child's row also locks the name of the parent, shared, against changes of the table
//! ([`name_lock`](crate::catalog::graph::name_lock)): the server does not know that the parent is in use.
//!
//! Rejected: checks at the end of the statement or the transaction. They allow more, but a row that fails would have been reported
//! as written, where the server asks for the error of each row (IGNORE).

mod cascade;
mod check;
pub(crate) mod links;
mod matches;
mod parents;
mod past;
pub(crate) mod rows;
mod verify;
mod workspace;

pub use workspace::Computing;
pub(crate) use workspace::Workspace;
