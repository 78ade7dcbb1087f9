//! Statistics for the optimizer.

use crate::cursor::CursorHandle;
use crate::outcome::{bytes, code, guard, reference, store_out};
use crate::store::{TableHandle, on_table};
use crate::types::CStats;
use std::ffi::c_int;

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
                    update_time: t.state.update_time().unwrap_or(0),
                    sample_is_old: s.sample_is_old.into(),
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
