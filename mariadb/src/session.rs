//! Sessions and transactions.

use crate::children::Children;
use crate::decisions::Decisions;
use crate::outcome::{Outcome, bytes, code, guard, guard_value, reference, store_out};
use crate::store::{StoreHandle, TableHandle};
use crate::waits::{Thd, Waits};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;
use strata_row::isolation::Isolation;
use strata_row::kill_switch::KillSwitch;
use strata_row::kv::Savepoint;
use strata_row::session::Session;
use strata_row::{Error, Result};

/// `StrataSession`. The kill switch stands apart, so that another thread can use it while the session works.
pub struct SessionHandle {
    session: UnsafeCell<Session>,
    kill: Arc<KillSwitch>,
    waits: Arc<Waits>,
    decisions: Arc<Decisions>,
}

impl SessionHandle {
    /// The session of a handle. One borrow at a time, on the session's thread.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn session<'a>(handle: *const SessionHandle) -> Result<&'a mut Session> {
        // SAFETY: the header promises one thread at a time, and no function of the row layer calls back into a session.
        unsafe { Ok(&mut *reference(handle)?.session.get()) }
    }
}

const SNAPSHOT_ISOLATION: u32 = 16;
const NO_FOREIGN_KEY_CHECKS: u32 = 32;
const SEES_EXPIRED: u32 = 64;

pub(crate) fn isolation(number: u32) -> Result<Isolation> {
    match number {
        0 => Ok(Isolation::ReadUncommitted),
        1 => Ok(Isolation::ReadCommitted),
        2 => Ok(Isolation::RepeatableRead),
        3 => Ok(Isolation::Serializable),
        n => Err(Error::invalid(format!("unknown isolation level {n}"))),
    }
}

unsafe fn on_session<R: Outcome>(session: *const SessionHandle, body: impl FnOnce(&mut Session) -> R) -> c_int {
    guard(|| body(unsafe { SessionHandle::session(session)? }).code())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_session_new(
    store: *mut StoreHandle,
    thd: *const c_void,
    out: *mut *mut SessionHandle,
) -> c_int {
    guard(|| {
        let handle = unsafe { reference(store)? };
        let thd_ptr = thd;
        let (killed, thd) = (handle.calls.killed, Thd(thd));
        let probe = Box::new(move || {
            let thd = &thd;
            match killed {
                // SAFETY: the THD outlives its session.
                Some(killed) => unsafe { killed(thd.0) != 0 },
                None => false,
            }
        });
        let mut session = Session::new(&handle.store, probe);
        session.set_computing(Some(Box::new(Children { calls: handle.calls, thd: Thd(thd_ptr) })));
        let kill = session.kill_switch();
        handle.waits.join(&kill, thd);
        let waits = handle.waits.clone();
        let decisions = handle.decisions.clone();
        let made = Box::new(SessionHandle { session: UnsafeCell::new(session), kill, waits, decisions });
        unsafe { store_out(out, Box::into_raw(made))? };
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_session_free(session: *mut SessionHandle) {
    guard(|| {
        if !session.is_null() {
            let handle = unsafe { Box::from_raw(session) };
            handle.waits.leave(&handle.kill);
            handle.session.into_inner().close()?;
        }
        Ok(code::OK)
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_session_kill(session: *mut SessionHandle) {
    guard(|| {
        unsafe { reference(session)? }.kill.kill();
        Ok(code::OK)
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_session_connection(session: *mut SessionHandle, connection: u64) {
    unsafe { on_session(session, |s| s.set_connection(connection)) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_statement_begin(
    session: *mut SessionHandle,
    level: u32,
    timeout_us: u64,
    present: u64,
) -> c_int {
    unsafe {
        on_session(session, |s| {
            s.set_snapshot_isolation(level & SNAPSHOT_ISOLATION != 0);
            s.set_foreign_key_checks(level & NO_FOREIGN_KEY_CHECKS == 0);
            s.set_sees_expired(level & SEES_EXPIRED != 0);
            s.set_time(present);
            let level = isolation(level & !(SNAPSHOT_ISOLATION | NO_FOREIGN_KEY_CHECKS | SEES_EXPIRED))?;
            s.statement_begin(level, Duration::from_micros(timeout_us))
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_statement_end(session: *mut SessionHandle) -> c_int {
    unsafe { on_session(session, |s| s.statement_end()) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_statement_rollback(session: *mut SessionHandle) -> c_int {
    unsafe { on_session(session, |s| s.statement_rollback()) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_prepare(
    session: *mut SessionHandle,
    xid: *const u8,
    len: usize,
    is_users: c_int,
) -> c_int {
    unsafe {
        on_session(session, |s| {
            if is_users == 0 && s.has_writes() {
                reference(session)?.decisions.before_prepare()?;
            }
            s.prepare(bytes(xid, len), is_users != 0)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_commit_ordered(session: *mut SessionHandle) {
    unsafe { on_session(session, |s| s.commit_ordered()) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_commit(session: *mut SessionHandle) -> c_int {
    unsafe { on_session(session, Session::commit) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_rollback(session: *mut SessionHandle) -> c_int {
    unsafe { on_session(session, Session::rollback) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_savepoint_set(session: *mut SessionHandle, out: *mut u64) -> c_int {
    unsafe { on_session(session, |s| store_out(out, s.savepoint().0)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_savepoint_rollback(session: *mut SessionHandle, savepoint: u64) -> c_int {
    unsafe { on_session(session, |s| s.rollback_to(Savepoint(savepoint))) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_read_past(session: *mut SessionHandle, moment: u64) -> c_int {
    unsafe { on_session(session, |s| s.read_past(moment)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_reads_past(session: *const SessionHandle) -> c_int {
    guard_value(0, || unsafe { SessionHandle::session(session) }.map_or(0, |s| c_int::from(s.reads_past())))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_check_past_write(session: *mut SessionHandle, table: *const TableHandle) -> c_int {
    unsafe { on_session(session, |s| s.check_write_to(&reference(table)?.table.state.name())) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_consistent_snapshot(session: *mut SessionHandle, level: u32) -> c_int {
    unsafe { on_session(session, |s| isolation(level).map(|level| s.consistent_snapshot(level))) }
}
