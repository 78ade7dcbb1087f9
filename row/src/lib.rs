//! Tables, indexes, rows and the catalog on top of the engine.

pub mod catalog;
pub mod def;
pub mod error;
pub mod index;
pub mod keycode;
pub mod kv;
pub mod metrics;
pub mod rowcode;
pub mod report;
pub mod scan;
pub mod schema;
pub mod auto_increment;
pub mod session;
pub mod stats;
pub mod store;
pub mod table;

pub use error::{Error, Result};
