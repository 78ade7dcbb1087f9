//! The row layer through its public interface, as one program: each file here is about one thing, and what several share is in `common`. What
//! needs a process of its own is a program beside this folder.

mod common;

mod build;
mod catalog;
mod ddl_faults;
mod ddl_together;
mod estimates;
mod foreign;
mod foreign_ddl;
mod foreign_model;
mod foreign_races;
mod full_disk;
mod histories;
mod index_kinds;
mod listener;
mod memory_full;
mod metrics;
mod rows;
mod schema_versions;
mod sessions;
mod sizes;
mod ttl;
mod unpack_forms;
