//! The engine's own parts, for its tests, benchmarks and tools. Not meant for others: it changes without notice.

/// See `crate::base`.
pub mod base {
    pub use crate::base::*;
}
/// See `crate::cache`.
pub mod cache {
    pub use crate::cache::*;
}
/// See `crate::compact`.
pub mod compact {
    pub use crate::compact::*;
}
/// See `crate::flush`.
pub mod flush {
    pub use crate::flush::*;
}
/// See `crate::iter`.
pub mod iter {
    pub use crate::iter::*;
}
/// See `crate::lock`.
pub mod lock {
    pub use crate::lock::*;
}
/// See `crate::manifest`.
pub mod manifest {
    pub use crate::manifest::*;
}
/// See `crate::mem`.
pub mod mem {
    pub use crate::mem::*;
}
/// See `crate::metrics`.
pub mod metrics {
    pub use crate::metrics::*;
}
/// See `crate::read_point`.
pub mod read_point {
    pub use crate::read_point::*;
}
/// See `crate::salvage`.
pub mod salvage {
    pub use crate::salvage::*;
}
/// See `crate::sst`.
pub mod sst {
    pub use crate::sst::*;
}
/// See `crate::wal`.
pub mod wal {
    pub use crate::wal::*;
}
