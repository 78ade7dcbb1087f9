//! Results of queries that the server keeps.

use crate::outcome::{bytes, code, guard, reference, store_out};
use crate::session::SessionHandle;
use crate::store::StoreHandle;
use std::ffi::c_int;

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_result_version(
    store: *mut StoreHandle,
    name: *const u8,
    len: usize,
    session: *mut SessionHandle,
    one_snapshot: c_int,
    version: *mut u64,
) -> c_int {
    guard(|| {
        let handle = unsafe { reference(store)? };
        let Ok(name) = std::str::from_utf8(unsafe { bytes(name, len) }) else { return Ok(code::NOT_FOUND) };
        let transaction = match session.is_null() {
            true => None,
            false => Some((unsafe { SessionHandle::session(session)? }, one_snapshot != 0)),
        };
        match handle.store.result_version(name, transaction) {
            Some(found) => unsafe { store_out(version, found.0).map(|()| code::OK) },
            None => Ok(code::NOT_FOUND),
        }
    })
}
