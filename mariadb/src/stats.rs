//! Auto-increment, statistics, maintenance.

use crate::cursor::CursorHandle;
use crate::outcome::{bytes, code, guard, guard_value, reference, store_out};
use crate::store::TableHandle;
use crate::types::{CStats, ComputeColumns, EmitText};
use std::ffi::{c_int, c_void};
use strata_row::auto_increment::Counter;
use strata_row::stats::check::Compute;
use strata_row::table::Table;
use strata_row::{Error, Result};

unsafe fn on_table(table: *const TableHandle, body: impl FnOnce(&Table) -> Result<()>) -> c_int {
    guard(|| {
        body(&unsafe { reference(table)? }.table)?;
        Ok(code::OK)
    })
}

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

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_stats(table: *mut TableHandle, out: *mut CStats) -> c_int {
    unsafe {
        on_table(table, |t| {
            let s = t.stats()?;
            store_out(
                out,
                CStats {
                    rows: s.rows,
                    data_bytes: s.data_bytes,
                    index_bytes: s.index_bytes,
                    deleted_bytes: s.deleted_bytes,
                    mean_row_bytes: s.mean_row_bytes,
                    create_time: s.create_time,
                },
            )
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_rec_per_key(
    table: *mut TableHandle,
    index: u32,
    out: *mut f64,
    cap: usize,
    n: *mut usize,
) -> c_int {
    unsafe {
        on_table(table, |t| {
            let means = t.rec_per_key(index as usize)?;
            let count = if out.is_null() { 0 } else { means.len().min(cap) };
            for (i, mean) in means[..count].iter().enumerate() {
                out.add(i).write(*mean);
            }
            store_out(n, count)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_records_in_range(
    cursor: *mut CursorHandle,
    index: u32,
    low: *const u8,
    low_len: u32,
    high: *const u8,
    high_len: u32,
    flags: u32,
    rows: *mut u64,
) -> c_int {
    guard(|| {
        let handle = unsafe { reference(cursor)? };
        let table = &handle.table;
        let end = |key: *const u8, len: u32, inclusive: u32| {
            (!key.is_null()).then(|| (unsafe { bytes(key, len as usize) }, flags & inclusive != 0))
        };
        let (low, high) = (end(low, low_len, 1), end(high, high_len, 2));
        let estimate = match unsafe { handle.session() } {
            Ok(session) => table.records_in_range(index as usize, low, high, session.txn()),
            Err(_) => table.records_in_range(index as usize, low, high, &table.engine().begin()),
        };
        unsafe { store_out(rows, estimate?)? };
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_analyze(cursor: *mut CursorHandle) -> c_int {
    guard(|| {
        let handle = unsafe { reference(cursor)? };
        handle.table.analyze(unsafe { handle.session()? })?;
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_optimize(cursor: *mut CursorHandle) -> c_int {
    guard(|| {
        let handle = unsafe { reference(cursor)? };
        handle.table.optimize(unsafe { handle.session()? })?;
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_alterable(table: *mut TableHandle) -> c_int {
    unsafe { on_table(table, Table::refuse_prepared) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_check(
    cursor: *mut CursorHandle,
    quick: c_int,
    compute: Option<ComputeColumns>,
    emit: Option<EmitText>,
    ctx: *mut c_void,
) -> c_int {
    guard(|| {
        let handle = unsafe { reference(cursor)? };
        let session = unsafe { handle.session()? };
        let mut computed = compute.map(|compute| {
            // SAFETY: a record of the table's length; the header says what the function does with it.
            move |record: &mut [u8]| unsafe { compute(ctx, record.as_mut_ptr()) == 0 }
        });
        let compute = computed.as_mut().map(|compute| compute as Compute<'_>);
        let good = handle.table.check(session, quick != 0, compute, &mut |line| {
            if let Some(emit) = emit {
                // SAFETY: text and length belong together.
                unsafe { emit(ctx, line.as_ptr().cast(), line.len()) };
            }
        })?;
        Ok(if good { code::OK } else { code::CORRUPTION })
    })
}
