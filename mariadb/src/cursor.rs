//! Scans, look-ups and row writes of one handler.

use crate::outcome::{Outcome, bytes, code, free, guard, guard_value, reference, store_out};
use crate::session::{SessionHandle, isolation};
use crate::store::TableHandle;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_row::index::Updated;
use strata_row::isolation::{Isolation, Waiting};
use strata_row::kv::LockMode;
use strata_row::rowcode::{ColumnSet, Record};
use strata_row::scan::locking::{self, Request, Statement};
use strata_row::scan::{Check, RowCursor, Seek};
use strata_row::session::Session;
use strata_row::table::Table;
use strata_row::{Error, Result};

/// `StrataCursor`. What a position needs stands apart from the cursor: the server asks for one while a read is running.
pub struct CursorHandle {
    /// The table.
    pub table: Arc<Table>,
    pub(crate) cursor: UnsafeCell<RowCursor>,
    session: Cell<*const SessionHandle>,
    position_id: Arc<AtomicU64>,
    position_key: UnsafeCell<Vec<u8>>,
}

/// The server's condition and its argument.
struct PushedCheck {
    check: unsafe extern "C" fn(*mut c_void) -> c_int,
    ctx: *mut c_void,
}

// SAFETY: called only on the thread that reads through the cursor.
unsafe impl Send for PushedCheck {}

impl PushedCheck {
    fn call(&self, record: &mut [u8]) -> Check {
        // The server reads the record through a pointer of its own.
        black_box(record.as_mut_ptr());
        // SAFETY: the handler keeps function and argument alive until it removes the condition.
        match unsafe { (self.check)(self.ctx) } {
            0 => Check::Reject,
            1 => Check::Accept,
            2 => Check::OutOfRange,
            3 => Check::Aborted,
            _ => Check::Failed,
        }
    }
}

impl CursorHandle {
    /// The session that the cursor works for, if any.
    pub unsafe fn session<'a>(&self) -> Result<&'a mut Session> {
        let session = self.session.get();
        if session.is_null() {
            return Err(Error::invalid("the cursor has no session"));
        }
        // SAFETY: the handler renews the session with each statement.
        unsafe { SessionHandle::session(session) }
    }
}

unsafe fn on_cursor<R: Outcome>(handle: *const CursorHandle, body: impl FnOnce(&mut RowCursor) -> R) -> c_int {
    guard(|| {
        // SAFETY: one thread at a time; nothing that the server calls back borrows the cursor.
        body(unsafe { &mut *reference(handle)?.cursor.get() }).code()
    })
}

unsafe fn with_session(
    handle: *const CursorHandle,
    body: impl FnOnce(&mut RowCursor, &mut Session) -> Result<c_int>,
) -> c_int {
    guard(|| {
        let handle = unsafe { reference(handle)? };
        // SAFETY: as in `on_cursor`.
        unsafe { body(&mut *handle.cursor.get(), handle.session()?) }
    })
}

/// Runs a read that fills `record`; `none` is the result if there is no row.
unsafe fn read(
    handle: *const CursorHandle,
    record: *mut u8,
    none: c_int,
    body: impl FnOnce(&mut RowCursor, &mut Session, &mut [u8]) -> Result<bool>,
) -> c_int {
    unsafe {
        with_session(handle, |cursor, session| {
            if record.is_null() {
                return Err(Error::invalid("null pointer"));
            }
            // SAFETY: a record of the table has this length.
            let record = std::slice::from_raw_parts_mut(record, cursor.table().def.record_bytes as usize);
            Ok(if body(cursor, session, record)? { code::OK } else { none })
        })
    }
}

/// A record of the server.
unsafe fn record_of<'a>(table: &Table, record: *const u8) -> Result<Record<'a>> {
    if record.is_null() {
        return Err(Error::invalid("null pointer"));
    }
    // SAFETY: a record of the table has this length and its BLOB pointers are good, as the header says.
    Ok(unsafe { Record::from_ptr(record, table.def.record_bytes as usize) })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_new(table: *mut TableHandle, out: *mut *mut CursorHandle) -> c_int {
    guard(|| {
        let table = unsafe { reference(table)? }.table.clone();
        let cursor = RowCursor::new(&table);
        let handle = Box::new(CursorHandle {
            position_id: cursor.position_id(),
            cursor: UnsafeCell::new(cursor),
            session: Cell::new(std::ptr::null()),
            position_key: UnsafeCell::default(),
            table,
        });
        unsafe { store_out(out, Box::into_raw(handle))? };
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_free(cursor: *mut CursorHandle) {
    unsafe { free(cursor) }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn strata_lock_of(request: u32, statement: u32, level: u32, in_transaction: c_int) -> u32 {
    let request = match request {
        0 => Request::Read,
        1 => Request::ReadShared,
        _ => Request::Write,
    };
    let statement = match statement {
        0 => Statement::Query,
        1 => Statement::Change,
        _ => Statement::Other,
    };
    // An unknown level is refused where the statement begins.
    let level = isolation(level).unwrap_or(Isolation::Serializable);
    match locking::lock_of(request, statement, level, in_transaction != 0) {
        None => 0,
        Some(LockMode::Shared) => 1,
        Some(LockMode::Exclusive) => 2,
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_mode(
    cursor: *mut CursorHandle,
    session: *mut SessionHandle,
    lock: u32,
    wait: u32,
) {
    unsafe {
        on_cursor(cursor, |c| {
            (*cursor).session.set(session);
            if session.is_null() {
                c.suspend();
            }
            let lock = match lock {
                0 => None,
                1 => Some(LockMode::Shared),
                _ => Some(LockMode::Exclusive),
            };
            let waiting = match wait {
                0 => Waiting::Wait,
                1 => Waiting::NoWait,
                _ => Waiting::SkipLocked,
            };
            c.set_mode(lock, waiting);
            Ok(code::OK)
        })
    };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_semi_consistent(cursor: *mut CursorHandle, on: c_int) {
    unsafe { on_cursor(cursor, |c| c.set_semi_consistent(on != 0)) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_is_unlocked(cursor: *mut CursorHandle) -> c_int {
    guard_value(0, || {
        // SAFETY: as in `on_cursor`.
        unsafe { reference(cursor) }.map_or(0, |handle| c_int::from(unsafe { &*handle.cursor.get() }.is_unlocked()))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_columns(cursor: *mut CursorHandle, bits: *const u64, bit_count: usize) {
    unsafe {
        on_cursor(cursor, |c| {
            let set = match bits.is_null() {
                true => None,
                false => Some(ColumnSet::from_words(bytes(bits, bit_count.div_ceil(64)), bit_count)),
            };
            c.set_columns(set);
            Ok(code::OK)
        })
    };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_condition(
    cursor: *mut CursorHandle,
    check: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    ctx: *mut c_void,
) {
    unsafe {
        on_cursor(cursor, |c| {
            let pushed = check.map(|check| PushedCheck { check, ctx });
            c.set_condition(pushed.map(|p| Box::new(move |record: &mut [u8]| p.call(record)) as _));
            Ok(code::OK)
        })
    };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_scan_begin(cursor: *mut CursorHandle, index: i32, key_only: c_int) -> c_int {
    unsafe { on_cursor(cursor, |c| c.begin(usize::try_from(index).ok(), key_only != 0)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_scan_end(cursor: *mut CursorHandle) {
    unsafe { on_cursor(cursor, |c| c.end()) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_forget_values(cursor: *mut CursorHandle) {
    unsafe { on_cursor(cursor, |c| c.forget_values()) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_seek(
    cursor: *mut CursorHandle,
    mode: u32,
    key: *const u8,
    key_len: u32,
    record: *mut u8,
) -> c_int {
    let seek = match mode {
        0 => Some(Seek::Exact),
        1 => Some(Seek::Ge),
        2 => Some(Seek::Gt),
        3 | 6 => Some(Seek::Le),
        4 => Some(Seek::Lt),
        5 => Some(Seek::LastInPrefix),
        7 => Some(Seek::First),
        8 => Some(Seek::Last),
        _ => None,
    };
    let none = if mode >= 7 { code::END } else { code::NOT_FOUND };
    unsafe {
        read(cursor, record, none, |c, s, r| {
            let seek = seek.ok_or_else(|| Error::invalid(format!("unknown search mode {mode}")))?;
            c.seek(s, seek, bytes(key, key_len as usize), r)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_next(cursor: *mut CursorHandle, record: *mut u8) -> c_int {
    unsafe { read(cursor, record, code::END, |c, s, r| c.next(s, r)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_prev(cursor: *mut CursorHandle, record: *mut u8) -> c_int {
    unsafe { read(cursor, record, code::END, |c, s, r| c.prev(s, r)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_next_same(cursor: *mut CursorHandle, record: *mut u8) -> c_int {
    unsafe { read(cursor, record, code::END, |c, s, r| c.next_same(s, r)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_scan_bound(
    cursor: *mut CursorHandle,
    key: *const u8,
    key_len: u32,
    inclusive: c_int,
) -> c_int {
    unsafe {
        on_cursor(cursor, |c| {
            let image = (!key.is_null()).then(|| bytes(key, key_len as usize));
            c.set_bound(image, inclusive != 0)?;
            Ok(code::OK)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_ref_length(table: *const TableHandle) -> u32 {
    guard_value(0, || unsafe { reference(table) }.map_or(0, |t| t.table.ref_length() as u32))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_position(cursor: *mut CursorHandle, record: *const u8, out: *mut u8) -> c_int {
    guard(|| {
        // Not through `on_cursor`: a read may be running.
        let handle = unsafe { reference(cursor)? };
        if out.is_null() {
            return Err(Error::invalid("null pointer"));
        }
        let table = &handle.table;
        // SAFETY: the reference has the table's fixed length; `position_key` is used by this function only, which calls
        // nobody back.
        unsafe {
            let out = std::slice::from_raw_parts_mut(out, table.ref_length());
            let row_id = handle.position_id.load(Ordering::Relaxed);
            table.position(record_of(table, record)?, row_id, &mut *handle.position_key.get(), out)?;
        }
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_read_position(
    cursor: *mut CursorHandle,
    reference: *const u8,
    record: *mut u8,
) -> c_int {
    unsafe {
        read(cursor, record, code::NOT_FOUND, |c, s, r| {
            let reference = bytes(reference, c.table().ref_length());
            c.read_position(s, reference, r)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_ref_compare(table: *const TableHandle, a: *const u8, b: *const u8) -> c_int {
    guard_value(0, || {
        unsafe { reference(table) }.map_or(0, |t| {
            let n = t.table.ref_length();
            // SAFETY: references have the table's fixed length.
            unsafe { t.table.compare_refs(bytes(a, n), bytes(b, n)) as c_int }
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_cursor_fills(cursor: *mut CursorHandle, on: c_int) {
    unsafe { on_cursor(cursor, |c| c.set_fills(on != 0)) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_unlock_row(cursor: *mut CursorHandle) {
    unsafe {
        with_session(cursor, |c, s| {
            c.unlock_row(s);
            Ok(code::OK)
        })
    };
}

/// Stores the violated index.
fn tell_duplicate<T>(result: Result<T>, out: *mut i32) -> Result<T> {
    if let (Err(Error::Duplicate(index)), false) = (&result, out.is_null()) {
        // SAFETY: the handler's variable.
        unsafe { out.write(*index as i32) };
    }
    result
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_insert(cursor: *mut CursorHandle, record: *const u8, duplicate: *mut i32) -> c_int {
    unsafe {
        with_session(cursor, |c, s| {
            let record = record_of(c.table(), record)?;
            tell_duplicate(c.insert(s, record), duplicate)?;
            Ok(code::OK)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_update(
    cursor: *mut CursorHandle,
    old_record: *const u8,
    new_record: *const u8,
    duplicate: *mut i32,
) -> c_int {
    unsafe {
        with_session(cursor, |c, s| {
            let (old, new) = (record_of(c.table(), old_record)?, record_of(c.table(), new_record)?);
            Ok(match tell_duplicate(c.update(s, old, new), duplicate)? {
                Updated::Changed => code::OK,
                Updated::Same => code::SAME,
            })
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_delete(cursor: *mut CursorHandle, record: *const u8) -> c_int {
    unsafe {
        with_session(cursor, |c, s| {
            let record = record_of(c.table(), record)?;
            c.delete(s, record)?;
            Ok(code::OK)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_bulk_begin(cursor: *mut CursorHandle) -> c_int {
    unsafe {
        with_session(cursor, |c, s| {
            c.bulk_begin(s)?;
            Ok(code::OK)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_bulk_end(cursor: *mut CursorHandle, abort: c_int, duplicate: *mut i32) -> c_int {
    unsafe { on_cursor(cursor, |c| tell_duplicate(c.bulk_end(abort != 0), duplicate)) }
}
