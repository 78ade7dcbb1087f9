//! The engine through its public interface, as one program: each file here is about one thing, and what several share is in `common`. Tests that
//! need a process of their own are programs beside this folder.

mod common;

mod blocks;
mod checkpoints;
mod close;
mod corruption;
mod crash;
mod cursors;
mod descriptors;
mod dictionaries;
mod encryption;
mod estimates;
mod events;
mod faults;
mod figures;
mod keyspaces;
mod large;
mod limits;
mod many;
mod memory;
mod model;
mod past;
mod pinned;
mod prepared;
mod queue;
mod renewal;
mod rest;
mod salvage;
mod sorter;
mod spills;
mod stores;
mod transaction_model;
mod transactions;
