//! New indexes of a table that others go on to change.

use crate::alter::on_alteration;
use crate::outcome::{bytes, code, guard, guard_value, reference, store_out};
use crate::store::{StoreHandle, TableHandle};
use crate::types::{CAlteration, CCallbacks, CRows};
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::slice;
use strata_row::build::{Build, Rows, Worker};
use strata_row::progress::Progress;
use strata_row::rowcode::Record;
use strata_row::{Error, Result};

/// `StrataBuild`. Used by one thread at a time.
pub struct BuildHandle {
    /// `None` once it is committed, or has failed to be.
    build: RefCell<Option<Build>>,
    calls: CCallbacks,
    /// Bytes of a record of the table, and of the new definition.
    record_bytes: [usize; 2],
}

/// `STRATA_ROW_GOES`.
const ROW_GOES: c_int = -1;

/// Records of the server's.
struct ServerRows<'a> {
    rows: &'a CRows,
    record_bytes: [usize; 2],
}

impl Rows for ServerRows<'_> {
    fn room(&mut self) -> &mut [u8] {
        // SAFETY: the header asks for a record of the table.
        unsafe { slice::from_raw_parts_mut(self.rows.record, self.record_bytes[0]) }
    }

    fn made_room(&mut self) -> &mut [u8] {
        // SAFETY: the header asks for a record of the new definition.
        unsafe {
            let made = if self.rows.make.is_none() { self.rows.record } else { self.rows.made };
            slice::from_raw_parts_mut(made, self.record_bytes[1])
        }
    }

    fn made(&mut self, again: bool) -> Result<Option<Record<'_>>> {
        // SAFETY: the header asks for records of these lengths; BLOBs in them are good until the next row is put into the room.
        unsafe {
            let Some(make) = self.rows.make else {
                return Ok(Some(Record::from_ptr(self.rows.record, self.record_bytes[1])));
            };
            match make(self.rows.ctx, c_int::from(again)) {
                0 => Ok(Some(Record::from_ptr(self.rows.made, self.record_bytes[1]))),
                ROW_GOES => Ok(None),
                _ => Err(Error::Condition),
            }
        }
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_build_begin(
    store: *mut StoreHandle,
    table: *const TableHandle,
    alteration: *const CAlteration,
    out: *mut *mut BuildHandle,
) -> c_int {
    unsafe {
        on_alteration(store, alteration, |s, alteration| {
            let table = &reference(table)?.table;
            let record_bytes = [&table.def, &alteration.def].map(|def| def.record_bytes as usize);
            let build = Build::begin(table, alteration, &|| s.calls.is_killed())?;
            let handle = BuildHandle { build: RefCell::new(Some(build)), calls: s.calls, record_bytes };
            store_out(out, Box::into_raw(Box::new(handle)))
        })
    }
}

/// Does a part of a build.
unsafe fn work(
    build: *const BuildHandle,
    rows: *const CRows,
    duplicate: *mut i32,
    part: impl FnOnce(&mut Build, &mut Worker<'_>) -> Result<()>,
) -> c_int {
    guard(|| {
        let (handle, rows) = unsafe { (reference(build)?, reference(rows)?) };
        if rows.record.is_null() || rows.make.is_some() && rows.made.is_null() {
            return Err(Error::invalid("null pointer"));
        }
        let mut build = handle.build.borrow_mut();
        let build = build.as_mut().ok_or_else(|| Error::invalid("the build is over"))?;
        let mut told = |progress: &Progress| {
            let (step, done, of) = progress.now();
            if let (Some(tell), Ok(step)) = (rows.tell, CString::new(step.name())) {
                // SAFETY: a function of the header with its argument.
                unsafe { tell(rows.ctx, step.as_ptr(), done, of) };
            }
        };
        let mut records = ServerRows { rows, record_bytes: handle.record_bytes };
        let calls = handle.calls;
        let is_killed = move || calls.is_killed();
        let mut worker = Worker { rows: &mut records, is_killed: &is_killed, told: &mut told };
        match part(build, &mut worker) {
            Err(Error::Duplicate(index)) => {
                unsafe { store_out(duplicate, index as i32)? };
                Err(Error::Duplicate(index))
            }
            outcome => outcome.map(|()| code::OK),
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_build_run(build: *mut BuildHandle, rows: *const CRows, duplicate: *mut i32) -> c_int {
    unsafe { work(build, rows, duplicate, |build, worker| build.run(worker)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_build_end(build: *mut BuildHandle, rows: *const CRows, duplicate: *mut i32) -> c_int {
    unsafe { work(build, rows, duplicate, |build, worker| build.end(worker)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_build_commit(
    store: *mut StoreHandle,
    builds: *const *const BuildHandle,
    count: usize,
    alteration: *const CAlteration,
) -> c_int {
    unsafe {
        on_alteration(store, alteration, |s, alteration| {
            let take = |build: &*const BuildHandle| {
                let build = reference(*build)?.build.borrow_mut().take();
                build.ok_or_else(|| Error::invalid("the build is over"))
            };
            let builds = bytes(builds, count).iter().map(take).collect::<Result<Vec<Build>>>()?;
            Build::commit(builds, alteration, &|| s.calls.is_killed())
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_build_free(build: *mut BuildHandle) {
    guard_value((), || {
        if !build.is_null() {
            drop(unsafe { Box::from_raw(build) });
        }
    })
}
