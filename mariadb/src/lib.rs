//! The C interface of the row layer, used by the handler in `cc/`.
//!
//! `cc/strata.h` is the contract; the functions here mirror it one to one and hold no logic of their own. They translate
//! pointers into references, call `strata-row`, and translate results into numbers.
//!
//! - `types`: the structures of the header
//! - `failure`: what the last failure was about
//! - `outcome`: result numbers, the last error, and the guard that lets no panic out
//! - `orphans`: tables that the server does not know any more
//! - `collation`: the server's collations behind the row layer's trait
//! - `definition`: definitions of tables and foreign keys
//! - `machine`: defaults derived from the machine
//! - `waits`: waits for row locks, reported for replication
//! - `binlog`: which transactions the server's binary logs have
//! - `decisions`: what becomes of prepared transactions after a crash
//! - `fault`: a disk that fails on demand (tests)
//! - `keys`: keys of encryption, from the server
//! - `instruments`: files and memory, for the server's performance schema
//! - `crash`: ends the process at a step of a transaction (tests)
//! - `children`: tables whose virtual columns the server computes in cascades
//! - `foreign`: foreign keys
//! - `alter`: ALTER TABLE in place
//! - `build`: new indexes of a table that others go on to change
//! - `results`: results of queries that the server keeps
//! - `checkpoint`: copies of the database
//! - `counts`: what a statement's thread does in the engine
//! - `store`, `session`, `cursor`, `auto_increment`, `stats`, `maintenance`, `report`: the functions
//!
//! # Pointers
//!
//! The handler promises what the header says: handles come from the call that makes them and are not used after the call
//! that frees them; arrays have the length given; a session and its cursors are used by one thread at a time. Every
//! `unsafe` block in these modules rests on that and on nothing else. The one call-back that may come back while a read is
//! running (a pushed condition asking for a position) touches parts of the cursor's handle that the read does not borrow.

#![allow(clippy::missing_safety_doc)]

pub mod types;
pub mod failure;
pub mod outcome;
pub mod orphans;
pub mod collation;
pub mod definition;
pub mod machine;
pub mod keys;
pub mod waits;
pub mod binlog;
pub mod decisions;
pub mod fault;
pub mod instruments;
pub mod crash;
pub mod store;
pub mod checkpoint;
pub mod auto_increment;
pub mod children;
pub mod session;
pub mod results;
pub mod foreign;
pub mod alter;
pub mod build;
pub mod cursor;
pub mod stats;
pub mod counts;
pub mod maintenance;
pub mod report;
