//! The open database, and the catalog.

use crate::collation::ServerLibrary;
use crate::crash;
use crate::decisions::undone::Undone;
use crate::decisions::{self, Decisions, Start};
use crate::definition::{foreign_keys, statement, table_def};
use crate::fault;
use crate::instruments::{self, Memory};
use crate::keys::ServerKeys;
use crate::machine;
use crate::orphans::{Definitions, is_partition};
use crate::outcome::{Outcome, bytes, code, free, guard, guard_value, reference, store_out, text};
use crate::types::{CCallbacks, CConfig, CDdl, CForeignKey, CTableDef, EmitBytes};
use crate::waits::{Waits, own_statement, tell_blocking, tell_threads};
use parking_lot::Mutex;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strata_row::catalog::Patience;
use strata_row::def::EncryptTables;
use strata_row::kv::{self, Durability, Options, Severity};
use strata_row::purge::Purge;
use strata_row::store::Store;
use strata_row::table::Table;
use strata_row::{Error, Event, Result};

/// Bytes of a file's name.
const NAME_MAX: usize = 4096;

/// `StrataStore`.
pub struct StoreHandle {
    /// The database.
    pub store: Arc<Store>,
    /// The server's functions.
    pub calls: CCallbacks,
    /// The sessions, for reports of lock waits.
    pub waits: Arc<Waits>,
    /// Where what becomes of prepared transactions is kept.
    pub decisions: Arc<Decisions>,
    /// Rollbacks that the server's recovery asks for.
    pub undone: Undone,
    /// The store's memory as the server counts it, if it does.
    pub memory: Option<Arc<Memory>>,
    /// Removes expired rows, once it is started.
    purge: Mutex<Option<Purge>>,
}

impl StoreHandle {
    /// Waits, as long as a statement says, for prepared transactions that have written to a table.
    unsafe fn await_prepared(&self, name: &str, ddl: *const CDdl) -> Result<()> {
        let timeout = Duration::from_micros(unsafe { reference(ddl)? }.wait_us);
        self.store.await_prepared(name, Patience { timeout, is_killed: &|| self.calls.is_killed() })
    }
}

/// `StrataTable`.
pub struct TableHandle {
    /// The table.
    pub table: Arc<Table>,
    /// Whom to ask whether the statement at work was killed.
    pub calls: CCallbacks,
}

fn or_default<T: PartialEq + Default>(value: T, default: impl FnOnce() -> T) -> T {
    if value == T::default() { default() } else { value }
}

fn options(config: &CConfig, calls: &CCallbacks) -> Result<Options> {
    let base = Options::default();
    Ok(Options {
        block_cache_bytes: or_default(config.block_cache_bytes, machine::block_cache_bytes),
        memtable_budget_bytes: or_default(config.memtable_budget_bytes, machine::memtable_budget_bytes),
        log_segment_bytes: or_default(config.log_segment_bytes, || base.log_segment_bytes),
        compaction_threads: or_default(config.background_threads as usize, machine::background_threads),
        durability: durability(config.flush_log)?,
        open_files: machine::open_files(config.connections as usize),
        on_crash_point: crash::hook()?,
        disk: fault::disk(instruments::observed(base.disk, calls))?,
        keys: Some(Arc::new(ServerKeys(*calls))),
        encrypt_log: config.encrypt_log != 0,
        history_retention_s: config.history_retention_s,
        ..base
    })
}

fn encrypt_tables(number: u32) -> Result<EncryptTables> {
    let mode = u8::try_from(number).ok().and_then(EncryptTables::from_number);
    mode.ok_or_else(|| Error::invalid(format!("encrypt_tables must be 0, 1 or 2, not {number}")))
}

fn durability(number: u32) -> Result<Durability> {
    Durability::from_number(number).ok_or_else(|| Error::invalid(format!("flush_log must be 0, 1 or 2, not {number}")))
}

/// The line of an event in the server's log, with its severity there; `None` for routine work, which has figures.
fn line(event: &Event<'_>) -> Option<(c_int, String)> {
    let severity = match event.severity() {
        Severity::Info => return None,
        Severity::Note => 0,
        Severity::Warning => 1,
        Severity::Error => 2,
    };
    let text = match event {
        Event::Engine(kv::Event::Stopped { cause }) => stopped(cause),
        event => event.to_string(),
    };
    Some((severity, text))
}

/// The sizes that came of settings and machine, and what the process may have of that.
fn sizes(options: &Options) -> String {
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "block cache {} MiB, memtables {} MiB of {}, threads of merges: {} with {} processors, {} open files at most",
        mib(options.block_cache_bytes),
        mib(options.memtable_budget_bytes),
        machine::memory(),
        options.compaction_threads,
        machine::processors(),
        options.open_files
    )
}

/// What the administrator is told.
fn stopped(cause: &kv::Error) -> String {
    format!(
        "the database has stopped: {cause}. Until the server is started again, no statement may use its tables, not even \
         to read: what is in memory may not be what is on the disk. What was acknowledged is not lost. Transactions that \
         failed now are rolled back at the next start, or are found to be committed if they were not part of a binary log. \
         Look after the disk, then restart the server"
    )
}

fn log(calls: &CCallbacks, severity: c_int, what: &str) {
    if let Some(log) = calls.log {
        // SAFETY: the header allows the call from any thread; text and length belong together.
        unsafe { log(severity, what.as_ptr().cast(), what.len()) };
    }
}

/// The binary log that the server writes now.
fn current_binlog(calls: &CCallbacks) -> Option<PathBuf> {
    let mut name = vec![0u8; NAME_MAX];
    // SAFETY: the buffer has the length that is told.
    let len = unsafe { calls.binlog?(name.as_mut_ptr().cast(), name.len()) };
    name.truncate(len);
    (len > 0).then(|| OsString::from_vec(name).into())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_open(
    config: *const CConfig,
    callbacks: *const CCallbacks,
    out: *mut *mut StoreHandle,
) -> c_int {
    guard(|| {
        let (config, calls) = unsafe { (reference(config)?, *reference(callbacks)?) };
        let dir = unsafe { text(config.dir)? };
        let options = options(config, &calls)?;
        let sizes = sizes(&options);
        let listener = move |event: &Event<'_>| {
            if let Event::Engine(kv::Event::Opened { .. }) = event {
                log(&calls, 0, &format!("version {}: {event}; {sizes}", env!("CARGO_PKG_VERSION")));
            } else if let Some((severity, text)) = line(event) {
                log(&calls, severity, &text);
            }
        };
        tell_blocking(&calls);
        tell_threads(&calls);
        let store = Store::open_listening(Path::new(dir), options, Arc::new(listener))?;
        store.catalog().set_encrypt_tables(encrypt_tables(config.encrypt_tables)?)?;
        store.set_library(Arc::new(ServerLibrary(calls)));
        store.set_statement_source(Box::new(move || own_statement(&calls)));
        let waits = Arc::new(Waits::new(calls, &store));
        store.engine().locks().set_observer(Some(waits.clone()));
        let decisions = Arc::new(Decisions::new(store.clone(), Box::new(move || current_binlog(&calls))));
        let memory = Memory::new(&calls).map(Arc::new);
        if let Some(memory) = memory.clone() {
            store.engine().on_housekeeping(Box::new(move |engine| memory.tell(engine)));
        }
        unsafe {
            store_out(
                out,
                Box::into_raw(Box::new(StoreHandle {
                    store,
                    calls,
                    waits,
                    decisions,
                    undone: Undone::default(),
                    memory,
                    purge: Mutex::default(),
                })),
            )?
        };
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_close(store: *mut StoreHandle) -> c_int {
    guard(|| {
        if store.is_null() {
            return Ok(code::OK);
        }
        let handle = unsafe { Box::from_raw(store) };
        let began = Instant::now();
        drop(handle.purge.lock().take());
        let closed = handle.store.close();
        // The threads that would tell have ended.
        if let Some(memory) = &handle.memory {
            memory.end();
        }
        // First of all errors, since the caller acts on it.
        handle.store.engine().check()?;
        closed?;
        log(&handle.calls, 0, &format!("the store is closed after {:.1} s", began.elapsed().as_secs_f64()));
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_purge_start(store: *mut StoreHandle, on: c_int) -> c_int {
    unsafe {
        on_store(store, |s| {
            let until = s.calls.purge_until;
            // SAFETY: the header asks for a function that any thread may call.
            let until = move |present| until.map_or(present, |until| until(present));
            let purge = Purge::start(&s.store, on != 0, Box::new(until));
            let purge =
                purge.map_err(|error| Error::invalid(format!("cannot start the purge of expired rows: {error}")))?;
            *s.purge.lock() = Some(purge);
            Ok(())
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_purge_set(store: *mut StoreHandle, on: c_int) {
    guard_value((), || {
        if let Ok(handle) = unsafe { reference(store) }
            && let Some(purge) = &*handle.purge.lock()
        {
            purge.set_on(on != 0);
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_purge_stop(store: *mut StoreHandle) {
    guard_value((), || {
        if let Ok(handle) = unsafe { reference(store) } {
            let purge = handle.purge.lock().take();
            drop(purge);
        }
    });
}

/// Runs a call on the store that has no other result.
pub(crate) unsafe fn on_store<R: Outcome>(store: *const StoreHandle, body: impl FnOnce(&StoreHandle) -> R) -> c_int {
    guard(|| body(unsafe { reference(store)? }).code())
}

/// Runs a call on a table that has no other result.
pub(crate) unsafe fn on_table<R: Outcome>(table: *const TableHandle, body: impl FnOnce(&Table) -> R) -> c_int {
    guard(|| body(&unsafe { reference(table)? }.table).code())
}

/// Runs a change of the catalog, unless the database has stopped: locks that nobody gives up would be blamed.
unsafe fn on_running(store: *const StoreHandle, body: impl FnOnce(&StoreHandle) -> Result<()>) -> c_int {
    unsafe {
        on_store(store, |s| {
            s.store.engine().check()?;
            body(s)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_set_flush_log(store: *mut StoreHandle, mode: u32) {
    unsafe { on_store(store, |s| durability(mode).map(|durability| s.store.engine().set_durability(durability))) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_set_history_retention(store: *mut StoreHandle, seconds: u64) -> c_int {
    unsafe { on_running(store, |s| Ok(s.store.engine().set_history_retention(seconds)?)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_set_encrypt_tables(store: *mut StoreHandle, mode: u32) -> c_int {
    unsafe { on_running(store, |s| s.store.catalog().set_encrypt_tables(encrypt_tables(mode)?)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_set_print_deadlocks(store: *mut StoreHandle, on: c_int) {
    unsafe {
        on_store(store, |s| {
            s.waits.print_deadlocks(on != 0);
            Ok(())
        })
    };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_set_block_cache_bytes(store: *mut StoreHandle, n: u64) {
    unsafe { on_store(store, |s| s.store.engine().set_block_cache_bytes(or_default(n, machine::block_cache_bytes))) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_set_memtable_budget_bytes(store: *mut StoreHandle, n: u64) {
    unsafe {
        on_store(store, |s| s.store.engine().set_memtable_budget_bytes(or_default(n, machine::memtable_budget_bytes)))
    };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_sync(store: *mut StoreHandle) -> c_int {
    unsafe { on_store(store, |s| Ok(s.store.engine().sync()?)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_create(
    store: *mut StoreHandle,
    name: *const c_char,
    def: *const CTableDef,
    autoinc_start: u64,
    keys: *const CForeignKey,
    key_count: u32,
    ddl: *const CDdl,
) -> c_int {
    unsafe {
        on_running(store, |s| {
            let def = table_def(def, &s.calls)?;
            let (keys, statement) = (foreign_keys(keys, key_count)?, statement(ddl)?);
            s.store.create_table_with(text(name)?, &def, autoinc_start, (&keys, &statement), &|| s.calls.is_killed())
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_has_tables(store: *mut StoreHandle) -> c_int {
    guard_value(0, || unsafe { reference(store) }.map_or(0, |s| c_int::from(!s.store.catalog().names("").is_empty())))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_drop(
    store: *mut StoreHandle,
    name: *const c_char,
    whole: c_int,
    ddl: *const CDdl,
) -> c_int {
    unsafe {
        on_running(store, |s| match text(name)? {
            name if whole != 0 && is_partition(name) => s.store.drop_partition(name),
            name => {
                s.await_prepared(name, ddl)?;
                s.store.drop_table_with(name, &statement(ddl)?)
            }
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_rename(
    store: *mut StoreHandle,
    from: *const c_char,
    to: *const c_char,
    ddl: *const CDdl,
) -> c_int {
    unsafe {
        on_running(store, |s| {
            let from = text(from)?;
            s.await_prepared(from, ddl)?;
            s.store.rename_table_with(from, text(to)?, &statement(ddl)?)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_truncate(
    store: *mut StoreHandle,
    name: *const c_char,
    ddl: *const CDdl,
) -> c_int {
    unsafe {
        on_running(store, |s| {
            let name = text(name)?;
            s.await_prepared(name, ddl)?;
            s.store.truncate_table(name)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_database_drop(store: *mut StoreHandle, prefix: *const c_char) -> c_int {
    unsafe { on_running(store, |s| s.store.drop_database(text(prefix)?)) }
}

/// Drops tables that the server does not know, or says why not.
fn drop_orphans(s: &StoreHandle) -> Result<()> {
    // The server works in its data directory.
    let mut definitions = Definitions::of(Path::new("."));
    let tables = s.store.catalog().names("");
    let orphans: Vec<&String> = tables.iter().filter(|name| definitions.lack(name)).collect();
    if orphans.is_empty() {
        return Ok(());
    }
    let names = orphans.iter().take(20).map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let count = orphans.len();
    let what = match definitions.without_table(&tables) {
        Some(path) => format!(
            "{count} tables without a definition in the server stay, since one may belong to {}, which has no table: {names}",
            path.display()
        ),
        None => {
            let gone = s.store.drop_orphans(|name| orphans.iter().any(|orphan| *orphan == name))?.len();
            format!("{gone} of {count} tables without a definition in the server were dropped: {names}")
        }
    };
    log(&s.calls, 1, &what);
    Ok(())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_temporary_drop_all(store: *mut StoreHandle) -> c_int {
    unsafe {
        on_store(store, |s| {
            // The server has decided about what a crash left prepared.
            let undone = s.undone.end(&s.store);
            s.store.engine().end_recovery();
            let temporary = s.store.drop_temporary();
            drop_orphans(s)?;
            temporary.and(undone)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_open(
    store: *mut StoreHandle,
    name: *const c_char,
    def: *const CTableDef,
    out: *mut *mut TableHandle,
) -> c_int {
    unsafe {
        on_store(store, |s| {
            let table = s.store.open_table(text(name)?, table_def(def, &s.calls)?)?;
            store_out(out, Box::into_raw(Box::new(TableHandle { table, calls: s.calls })))
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_fits(
    store: *mut StoreHandle,
    table: *mut TableHandle,
    def: *const CTableDef,
) -> c_int {
    unsafe { on_store(store, |s| reference(table)?.table.refuse_other(&table_def(def, &s.calls)?)) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_close(table: *mut TableHandle) {
    unsafe { free(table) }
}

unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    // SAFETY: the header asks for a text that ends with 0, or null.
    (!text.is_null()).then(|| Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes())))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_settle_prepared(
    store: *mut StoreHandle,
    binlog_index: *const c_char,
    tc_log: *const c_char,
    is_over: c_int,
) -> c_int {
    unsafe {
        on_store(store, |s| {
            let tc_log = path(tc_log).ok_or_else(|| Error::invalid("null pointer"))?;
            let start = Start { binlog_index: path(binlog_index), tc_log, is_over: is_over != 0 };
            if decisions::settle(&s.store, &start, &|severity, what| log(&s.calls, severity, what))? {
                s.undone.begin(&s.store);
            }
            Ok(())
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_binlog_rotated(store: *mut StoreHandle) {
    guard_value((), || {
        if let Ok(handle) = unsafe { reference(store) } {
            handle.decisions.rotated();
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_prepared_list(
    store: *mut StoreHandle,
    emit: Option<EmitBytes>,
    ctx: *mut c_void,
) -> c_int {
    unsafe {
        on_store(store, |s| {
            s.undone.listed(&s.store)?;
            for xid in s.store.engine().prepared() {
                if let Some(emit) = emit {
                    emit(ctx, xid.as_ptr(), xid.len());
                }
            }
            Ok(())
        })
    }
}

fn known(found: bool) -> Result<()> {
    if found { Ok(()) } else { Err(Error::NoXid) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_commit_by_xid(store: *mut StoreHandle, xid: *const u8, len: usize) -> c_int {
    unsafe {
        on_store(store, |s| {
            let xid = bytes(xid, len);
            let log = |severity, what: &_| log(&s.calls, severity, what);
            known(s.store.while_all_change(|| decisions::commit(&s.store, xid, &log))?)
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_rollback_by_xid(store: *mut StoreHandle, xid: *const u8, len: usize) -> c_int {
    unsafe { on_store(store, |s| known(s.undone.roll_back(&s.store, bytes(xid, len))?)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routine_work_has_no_line_and_all_else_has_one_with_its_severity() {
        let cause = kv::Error::Interrupted;
        let of = |event: &kv::Event| line(&Event::Engine(event));
        assert_eq!(of(&kv::Event::FilesMoved { from: 0, to: 6, files: 1, bytes: 2 }), None);
        assert_eq!(of(&kv::Event::SpaceFound { us: 1 }).map(|(severity, _)| severity), Some(0));
        assert_eq!(line(&Event::SpaceReturned).map(|(severity, _)| severity), Some(0));
        let kept = line(&Event::SpaceKept { indexes: 2, error: &cause });
        assert_eq!(kept, Some((1, "the space of 2 dropped indexes is not free yet: interrupted".into())));
        let (severity, text) = of(&kv::Event::Stopped { cause: Arc::new(cause) }).unwrap();
        assert!(severity == 2 && text.starts_with("the database has stopped: interrupted. Until the server"), "{text}");
    }
}
