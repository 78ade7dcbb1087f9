//! What the thread of a statement does in the engine, counted for the handler's statistics.

use crate::outcome::{guard_value, reference, store_out};
use strata_row::kv::{Tally, begin_counting, end_counting};

/// `StrataCounts`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CCounts {
    pub blocks: u64,
    pub blocks_read: u64,
    pub read_ns: u64,
    pub versions_passed: u64,
    pub entries_written: u64,
}

impl From<Tally> for CCounts {
    fn from(tally: Tally) -> CCounts {
        let Tally { blocks, blocks_read, read_ns, versions_passed, entries_written } = tally;
        CCounts { blocks, blocks_read, read_ns, versions_passed, entries_written }
    }
}

impl From<&CCounts> for Tally {
    fn from(counts: &CCounts) -> Tally {
        let CCounts { blocks, blocks_read, read_ns, versions_passed, entries_written } = *counts;
        Tally { blocks, blocks_read, read_ns, versions_passed, entries_written }
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_counting_begin(begun: *mut CCounts) {
    // Null is a fault of the caller's that counts nothing wrong.
    guard_value((), || drop(unsafe { store_out(begun, begin_counting().into()) }))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_counting_end(begun: *const CCounts, done: *mut CCounts) {
    guard_value((), || {
        let Ok(begun) = (unsafe { reference(begun) }) else { return };
        drop(unsafe { store_out(done, end_counting(begun.into()).into()) });
    })
}
