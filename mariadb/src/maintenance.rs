//! ANALYZE, OPTIMIZE and CHECK TABLE.

use crate::cursor::CursorHandle;
use crate::outcome::{Outcome, code, guard, reference};
use crate::store::TableHandle;
use crate::types::{ComputeColumns, EmitText, TellOptimized, TellProgress};
use std::ffi::{CString, c_int, c_void};
use std::time::Duration;
use strata_row::catalog::Patience;
use strata_row::progress::Step;
use strata_row::session::Session;
use strata_row::stats::Optimized;
use strata_row::stats::check::Compute;
use strata_row::table::Table;

/// Runs a statement of the cursor's session on the cursor's table.
unsafe fn maintain<R: Outcome>(cursor: *const CursorHandle, statement: impl FnOnce(&Table, &Session) -> R) -> c_int {
    guard(|| {
        let handle = unsafe { reference(cursor)? };
        statement(&handle.table, unsafe { handle.session()? }).code()
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_analyze(cursor: *mut CursorHandle) -> c_int {
    unsafe { maintain(cursor, Table::analyze) }
}

/// Passes on what a statement is at.
fn telling(tell: Option<TellProgress>, ctx: *mut c_void) -> impl FnMut(Step, u64, u64) {
    move |step, done, of| {
        if let (Some(tell), Ok(step)) = (tell, CString::new(step.name())) {
            // SAFETY: a function of the header with its argument.
            unsafe { tell(ctx, step.as_ptr(), done, of) };
        }
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_optimize(
    cursor: *mut CursorHandle,
    tell: Option<TellOptimized>,
    ctx: *mut c_void,
) -> c_int {
    let told = |at: Optimized| {
        if let Some(tell) = tell {
            // SAFETY: a function of the header with its argument.
            unsafe { tell(ctx, at.index as u32, at.indexes as u32, at.done, at.of) };
        }
    };
    unsafe { maintain(cursor, |table, session| table.optimize(session, &told)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_await_prepared(table: *mut TableHandle, wait_us: u64) -> c_int {
    guard(|| {
        let handle = unsafe { reference(table)? };
        let timeout = Duration::from_micros(wait_us);
        handle.table.await_prepared(Patience { timeout, is_killed: &|| handle.calls.is_killed() })?;
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_check(
    cursor: *mut CursorHandle,
    quick: c_int,
    compute: Option<ComputeColumns>,
    emit: Option<EmitText>,
    warn: Option<EmitText>,
    tell: Option<TellProgress>,
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
        let said_by = |emit: Option<EmitText>| {
            move |line: &str| {
                if let Some(emit) = emit {
                    // SAFETY: text and length belong together.
                    unsafe { emit(ctx, line.as_ptr().cast(), line.len()) };
                }
            }
        };
        let mut told = telling(tell, ctx);
        let good = handle.table.check_telling(session, quick != 0, compute, &mut said_by(emit), &mut told)?;
        if good && quick == 0 {
            handle.table.check_references(session, &mut said_by(warn))?;
        }
        Ok(if good { code::OK } else { code::CORRUPTION })
    })
}
