//! Foreign keys: rows of one table, the *child*, whose values must be found in another, the *parent*.
//!
//! A key belongs to the child and is part of its catalog entry ([`key`]). It names its parent, which need not exist: it may have
//! been dropped, or not be created yet, while the session did not check foreign keys. The catalog's graph in memory puts definitions and
//! tables together: for each table the keys of which it is the child and those of which it is the parent, each bound to
//! columns and indexes as far as there are any. It is part of the catalog's map and changes under the same lock, so nobody
//! ever finds a key without its table or the reverse.
//!
//! # Names
//!
//! A key follows the *names* of its tables. While the server alters a table by copy, it makes `#sql-alter-...`, gives the
//! old table the name `#sql-backup-...` and the new one its place, and drops the old one. Tables with such names are *passive*:
//! their own keys do not count for the uniqueness of names, and a key of another table that names
//! the altered one stays with that name. So the definitions of the copy are in force from the moment of its rename on, those of
//! the old table until it is renamed away, and a start after a crash, which does or undoes the renames, needs to know nothing of it.
//!
//! Parents are guarded without a gap all the same. The old table refuses that its parents go until it is dropped, and statements
//! that change a parent are told of it under the name that it had (`catalog::graph`): they wait for that table in the server. Those of
//! new keys are in the server's hands: an ALTER TABLE that copies keeps all writers from them until it ends.
//!
//! # Changes of tables and changes of rows
//!
//! The server's metadata locks do not cover the parent while rows of the child are written. A transaction that writes a
//! child takes a shared lock on the name of each parent (`catalog::graph::name_lock`), once per statement; who drops, renames, truncates or
//! replaces a table that is a parent, or creates one that was missed, locks its name exclusively. Relations are looked at
//! after the lock of the row (of a parent) or of the name (of a child) is held: what was in force when the lock was given is seen.
//!
//! Rejected: a dictionary of keys with entries of their own. A table and its keys are created, renamed and dropped together, and
//! one entry makes each of these a change of one key. Keys bound to table ids, too: a parent may be missing.

pub mod change;
pub mod key;
pub mod relations;
pub mod statement;

pub use change::KeyChange;
pub use key::{Action, Fault, ForeignKey};
pub use relations::{Reference, Related, Relations};
pub use statement::Statement;
