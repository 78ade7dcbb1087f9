//! LinkBench: the store of a social graph, nodes and the links between them, under ten operations.
//!
//! Schema, statements, transactions, mix, distributions and payloads are those of the published driver and its default
//! configuration (facebookarchive/linkbench: `LinkStoreMysql`, `config/FBWorkload.properties`, `config/Distribution.dat`).
//! `docs/results/method.md` lists what is not.
//!
//! Everything that is drawn comes from a seed: each engine gets the same graph, and each requester the same
//! sequence of requests, as far as it gets and until an answer leads to a question about older links.
//!
//! | file | holds |
//! |---|---|
//! | [`zipf`], [`permutation`], [`degrees`], [`payload`] | the distributions |
//! | [`graph`] | the nodes and links that are loaded |
//! | [`request`], [`history`] | what a requester asks for next |
//! | [`schema`], [`session`] | tables, and the statements of an operation |
//! | [`load`], [`drive`] | loaders, requesters |
//! | [`check`] | what must hold of the tables afterwards |
//! | [`bench`](mod@bench), [`scope`] | the command, and what the next one is told as well |
//! | [`published`] | the command with the published driver itself |

pub mod bench;
mod check;
mod degrees;
pub mod drive;
pub mod graph;
mod history;
pub mod load;
mod payload;
mod permutation;
pub mod published;
pub mod request;
pub mod schema;
mod scope;
mod session;
mod zipf;

/// The database of the tables.
pub const DATABASE: &str = "linkbench";

/// A seed for one purpose, from the seed of all.
fn seed_for(seed: u64, purpose: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(purpose)
}
