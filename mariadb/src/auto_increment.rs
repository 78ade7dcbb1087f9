//! Auto-increment.

use crate::outcome::{Outcome, guard, guard_value, reference, store_out};
use crate::store::TableHandle;
use std::ffi::c_int;
use strata_row::auto_increment::{Counter, align};
use strata_row::table::Table;
use strata_row::{Error, Result};

/// Also tells `body` whom to ask whether the statement was killed.
unsafe fn killable(table: *const TableHandle, body: impl FnOnce(&Table, &dyn Fn() -> bool) -> Result<()>) -> c_int {
    guard(|| {
        let handle = unsafe { reference(table)? };
        body(&handle.table, &|| handle.calls.is_killed()).code()
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_autoinc_next(table: *mut TableHandle) -> u64 {
    guard_value(0, || unsafe { reference(table) }.map_or(0, |t| t.table.state.autoinc().map_or(0, Counter::peek)))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_autoinc_reserve(
    table: *mut TableHandle,
    offset: u64,
    increment: u64,
    count: u64,
    max_value: u64,
    first: *mut u64,
) -> c_int {
    unsafe {
        killable(table, |table, is_killed| {
            let counter = table.state.autoinc();
            let counter = counter.ok_or_else(|| Error::invalid("the table has no auto-increment column"))?;
            store_out(first, counter.reserve(offset, increment, count, max_value, is_killed)?)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_autoinc_raise(table: *mut TableHandle, used: u64) -> c_int {
    unsafe { killable(table, |table, is_killed| table.raise_autoinc(used, is_killed)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn strata_autoinc_align(next: u64, offset: u64, increment: u64) -> u64 {
    align(next, offset, increment).unwrap_or(0)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_autoinc_set(table: *mut TableHandle, next: u64) -> c_int {
    unsafe { killable(table, |table, is_killed| table.restart_autoinc(next, is_killed)) }
}
