//! Counts failures of the disk and damage, by all stores of the process, where the errors are made: whoever meets one need not
//! think of it, and none is counted twice on its way up.
//!
//! Not counted are answers rather than failures: that a file is not there, or is there already, and that no descriptor was
//! left, after which some are given back.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

static IO: AtomicU64 = AtomicU64::new(0);
static DISK_FULL: AtomicU64 = AtomicU64::new(0);
static CORRUPTION: AtomicU64 = AtomicU64::new(0);

/// How many there were since the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FailureCounts {
    /// Failed operations of the disk, without those below.
    pub io: u64,
    /// Operations that found the device or a quota full.
    pub disk_full: u64,
    /// Wrong checksums and wrong content.
    pub corruption: u64,
}

/// What was counted.
pub fn counts() -> FailureCounts {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    FailureCounts { io: load(&IO), disk_full: load(&DISK_FULL), corruption: load(&CORRUPTION) }
}

pub(super) fn count(source: &io::Error) {
    use rustix::io::Errno;
    let has_no_descriptor =
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()));
    let counter = match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists => return,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => &DISK_FULL,
        _ if has_no_descriptor => return,
        _ => &IO,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn count_corruption() {
    CORRUPTION.fetch_add(1, Ordering::Relaxed);
}
