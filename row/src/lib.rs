//! Tables, indexes, rows and the catalog on top of the engine.

pub mod kv;
pub mod event;
pub mod versions;
pub mod def;
pub mod keycode;
pub mod foreign;
pub mod error;
pub mod ttl;
pub mod schema;
pub mod rowcode;
pub mod catalog;
mod expiry;
mod row_versions;
mod changes;
mod history;
mod follow;
pub mod progress;
pub mod jobs;
pub mod auto_increment;
pub mod isolation;
pub mod kill_switch;
mod gate;
pub mod rows;
pub mod session;
pub mod scan;
pub mod index;
pub mod integrity;
pub mod stats;
pub mod table;
pub mod store;
pub mod build;
pub mod purge;
pub mod report;
pub mod metrics;

pub use error::{Error, Result};
pub use event::{Event, EventListener};
