//! Auto-increment.

use crate::outcome::{guard_value, reference, store_out};
use crate::store::{TableHandle, on_table};
use std::ffi::c_int;
use strata_row::auto_increment::Counter;
use strata_row::table::Table;
use strata_row::{Error, Result};

fn counter(table: &Table) -> Result<&Counter> {
    table.state.autoinc().ok_or_else(|| Error::invalid("the table has no auto-increment column"))
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
    unsafe { on_table(table, |t| store_out(first, counter(t)?.reserve(offset, increment, count, max_value)?)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_autoinc_raise(table: *mut TableHandle, used: u64) -> c_int {
    unsafe { on_table(table, |t| counter(t)?.raise(used)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_autoinc_set(table: *mut TableHandle, next: u64) -> c_int {
    unsafe { on_table(table, |t| t.restart_autoinc(next)) }
}
