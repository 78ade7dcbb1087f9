//! Result numbers, the last error's text, and the guard around every call.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use strata_row::Error;
use strata_row::foreign::Fault;
use strata_row::kv;

/// `enum StrataResult`.
#[allow(missing_docs)]
pub mod code {
    use std::ffi::c_int;
    pub const OK: c_int = 0;
    pub const NOT_FOUND: c_int = 1;
    pub const END: c_int = 2;
    pub const DUPLICATE: c_int = 3;
    pub const LOCK_TIMEOUT: c_int = 4;
    pub const LOCK_BUSY: c_int = 5;
    pub const DEADLOCK: c_int = 6;
    pub const INTERRUPTED: c_int = 7;
    pub const CONFLICT: c_int = 8;
    pub const CORRUPTION: c_int = 9;
    pub const IO: c_int = 10;
    pub const DISK_FULL: c_int = 11;
    pub const POISONED: c_int = 12;
    pub const NO_TABLE: c_int = 13;
    pub const TABLE_EXISTS: c_int = 14;
    pub const KEY_TOO_LONG: c_int = 15;
    pub const ROW_TOO_LONG: c_int = 16;
    pub const SAME: c_int = 17;
    pub const AUTOINC_EXHAUSTED: c_int = 18;
    pub const TABLE_CHANGED: c_int = 19;
    pub const INVALID: c_int = 20;
    pub const IN_USE: c_int = 21;
    pub const NO_XID: c_int = 22;
    pub const NO_REFERENCED_ROW: c_int = 23;
    pub const ROW_IS_REFERENCED: c_int = 24;
    pub const CASCADE_TOO_DEEP: c_int = 25;
    pub const FOREIGN_DUPLICATE: c_int = 26;
    pub const CANNOT_ADD_FOREIGN: c_int = 27;
    pub const INDEX_OF_FOREIGN: c_int = 28;
    pub const FOREIGN_NAME_TAKEN: c_int = 29;
    pub const FOREIGN_UNFIT_PARENT: c_int = 30;
    pub const FOREIGN_NO_NULL: c_int = 31;
    pub const WRONG_OPTION: c_int = 32;
    pub const NO_FOREIGN_KEY: c_int = 33;
    pub const INTERNAL: c_int = 99;
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The number of an error.
pub fn code_of(error: &Error) -> c_int {
    match error {
        Error::Engine(e) => match e {
            kv::Error::Poisoned(_) => code::POISONED,
            e if e.is_disk_full() => code::DISK_FULL,
            kv::Error::Io { .. } | kv::Error::Key { .. } => code::IO,
            kv::Error::Corruption { .. } => code::CORRUPTION,
            kv::Error::InUse(_) => code::IN_USE,
            kv::Error::LockTimeout => code::LOCK_TIMEOUT,
            kv::Error::LockBusy => code::LOCK_BUSY,
            kv::Error::Deadlock => code::DEADLOCK,
            kv::Error::Interrupted => code::INTERRUPTED,
            kv::Error::Conflict => code::CONFLICT,
            kv::Error::Incompatible { .. }
            | kv::Error::Invalid(_)
            | kv::Error::Moment(_)
            | kv::Error::NoKeyspace(_) => code::INVALID,
            // Closed, Internal, and what a later engine may add.
            _ => code::INTERNAL,
        },
        Error::Duplicate(_) => code::DUPLICATE,
        Error::NoTable(_) => code::NO_TABLE,
        Error::TableExists(_) => code::TABLE_EXISTS,
        Error::KeyTooLong { .. } => code::KEY_TOO_LONG,
        Error::RowTooLong { .. } => code::ROW_TOO_LONG,
        Error::AutoincExhausted => code::AUTOINC_EXHAUSTED,
        Error::TableChanged(_) => code::TABLE_CHANGED,
        Error::Invalid(_) | Error::NotThen { .. } | Error::PastIsReadOnly(_) => code::INVALID,
        Error::NoXid => code::NO_XID,
        Error::Corruption { .. } => code::CORRUPTION,
        Error::Interrupted => code::INTERRUPTED,
        Error::NoReferencedRow(_) => code::NO_REFERENCED_ROW,
        Error::RowIsReferenced(_) => code::ROW_IS_REFERENCED,
        Error::CascadeTooDeep(_) => code::CASCADE_TOO_DEEP,
        Error::ForeignDuplicate { .. } => code::FOREIGN_DUPLICATE,
        Error::CannotAddForeign { fault: Fault::Parent, .. } => code::FOREIGN_UNFIT_PARENT,
        Error::CannotAddForeign { fault: Fault::Child, .. } => code::FOREIGN_NO_NULL,
        Error::CannotAddForeign { fault: Fault::Other, .. } => code::CANNOT_ADD_FOREIGN,
        Error::ForeignNameTaken(_) => code::FOREIGN_NAME_TAKEN,
        Error::IndexOfForeign(_) => code::INDEX_OF_FOREIGN,
        Error::NoForeignKey(_) => code::NO_FOREIGN_KEY,
        Error::WrongOption(_) => code::WRONG_OPTION,
        Error::Condition => code::INTERNAL,
    }
}

/// What the body of a call returns: its code, or what stands for one.
pub trait Outcome {
    /// The code.
    fn code(self) -> strata_row::Result<c_int>;
}

impl Outcome for () {
    fn code(self) -> strata_row::Result<c_int> {
        Ok(code::OK)
    }
}

impl Outcome for strata_row::Result<()> {
    fn code(self) -> strata_row::Result<c_int> {
        self.map(|()| code::OK)
    }
}

impl Outcome for strata_row::Result<c_int> {
    fn code(self) -> strata_row::Result<c_int> {
        self
    }
}

/// Runs the body of a call: errors become numbers with a text, panics become `INTERNAL`.
pub fn guard(body: impl FnOnce() -> strata_row::Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            let code = code_of(&error);
            // Expected in normal work, many times per second: not worth a text of their own.
            crate::failure::note(&error);
            let quiet = matches!(code, code::DUPLICATE | code::LOCK_BUSY | code::LOCK_TIMEOUT | code::DEADLOCK);
            set_last(if quiet { String::new() } else { error.to_string() });
            code
        }
        Err(panic) => {
            set_last(format!("panic: {}", panic_text(panic.as_ref())));
            code::INTERNAL
        }
    }
}

/// As [`guard`], for calls that return nothing or a plain value; `fallback` stands for a panic.
pub fn guard_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            set_last(format!("panic: {}", panic_text(panic.as_ref())));
            fallback
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "unknown",
    }
}

fn set_last(text: String) {
    LAST.with(|last| *last.borrow_mut() = text);
}

/// A reference from a pointer that must not be null.
pub unsafe fn reference<'a, T>(pointer: *const T) -> strata_row::Result<&'a T> {
    // SAFETY: the caller vouches for the pointer unless it is null.
    unsafe { pointer.as_ref() }.ok_or_else(|| Error::invalid("null pointer"))
}

/// Ends what a handle stands for; null is no handle.
pub unsafe fn free<T>(handle: *mut T) {
    guard_value((), || {
        if !handle.is_null() {
            // SAFETY: the caller got it from `Box::into_raw` and uses it no more.
            drop(unsafe { Box::from_raw(handle) });
        }
    })
}

/// Stores an out parameter.
pub unsafe fn store_out<T>(to: *mut T, value: T) -> strata_row::Result<()> {
    if to.is_null() {
        return Err(Error::invalid("null pointer"));
    }
    // SAFETY: the caller vouches for the pointer unless it is null.
    unsafe { to.write(value) };
    Ok(())
}

/// Bytes from a pointer and a length; null is the empty slice.
pub unsafe fn bytes<'a, T>(pointer: *const T, len: usize) -> &'a [T] {
    match pointer.is_null() || len == 0 {
        true => &[],
        // SAFETY: the caller vouches for pointer and length.
        false => unsafe { std::slice::from_raw_parts(pointer, len) },
    }
}

/// Text of a 0-terminated string.
pub unsafe fn text<'a>(pointer: *const c_char) -> strata_row::Result<&'a str> {
    if pointer.is_null() {
        return Err(Error::invalid("null pointer"));
    }
    // SAFETY: the caller vouches for the pointer unless it is null.
    let text = unsafe { std::ffi::CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Error::invalid("a name is not UTF-8"))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_error_message(buf: *mut c_char, cap: usize) -> usize {
    guard_value(0, || LAST.with(|last| unsafe { copy_out(&last.borrow(), buf, cap) }))
}

/// Copies as much of a text as there is room for, and a 0; returns its length.
pub(crate) unsafe fn copy_out(text: &str, buf: *mut c_char, cap: usize) -> usize {
    let n = text.len().min(cap.saturating_sub(1));
    if !buf.is_null() && cap > 0 {
        // SAFETY: the caller vouches for a buffer of `cap` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), n);
            buf.add(n).write(0);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_panics_become_numbers_with_a_text() {
        assert_eq!(guard(|| Ok(code::OK)), 0);
        assert_eq!(guard(|| Err(Error::NoTable("./a/b".into()))), 13);
        let mut buf = [0u8; 16];
        let n = unsafe { strata_error_message(buf.as_mut_ptr().cast(), buf.len()) };
        assert!(n > 16 && buf.starts_with(b"table './a/b' d") && buf[15] == 0);
        assert_eq!(guard(|| panic!("oh {}", 1)), 99);
        let n = unsafe { strata_error_message(buf.as_mut_ptr().cast(), buf.len()) };
        assert_eq!(&buf[..n], b"panic: oh 1");
    }
}
