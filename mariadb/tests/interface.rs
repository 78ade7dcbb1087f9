//! The handler's way through the interface: create, write, read under a condition that asks for positions, end.

use std::ffi::{CString, c_int, c_void};
use std::ptr::{null, null_mut};
use strata_mariadb::auto_increment::*;
use strata_mariadb::collation::ServerLibrary;
use strata_mariadb::cursor::*;
use strata_mariadb::outcome::code;
use strata_mariadb::session::*;
use strata_mariadb::stats::*;
use strata_mariadb::store::*;
use strata_mariadb::types::*;
use strata_row::def::Library;

const RECORD: usize = 9;
const DDL: CDdl = CDdl { checks: 1, drops_database: 0, strict: 1, altered: null(), wait_us: 0 };

unsafe extern "C" fn never(_: *const c_void) -> c_int {
    0
}

fn callbacks() -> CCallbacks {
    CCallbacks {
        weights: None,
        weights_max: None,
        weights_padded: None,
        prefix_bytes: None,
        find: None,
        log: None,
        killed: Some(never),
        wants_waits: None,
        waits: None,
        victim: None,
        blocking_begins: None,
        blocking_ends: None,
        thread_begins: None,
        thread_ends: None,
        binlog: None,
        query: None,
        identifier: None,
        child: None,
        key_version: None,
        key_bytes: None,
        compute_child: None,
        statement_time: None,
        purge_until: None,
        file_begins: None,
        file_ends: None,
        memory: None,
    }
}

/// Two nullable-free integers `id` (at 1) and `n` (at 5), index on `n`.
fn with_def<T>(primary: bool, body: impl FnOnce(*const CTableDef) -> T) -> T {
    let none = CCollation { id: 0, flags: 0, mbminlen: 0, mbmaxlen: 0, name: null(), cs: null() };
    let column = |name: *const i8, offset| CColumn {
        name: name.cast(),
        kind: 0,
        flags: 0,
        length_bytes: 0,
        null_mask: 0,
        null_offset: 0,
        offset,
        size: 4,
        collation: none,
    };
    let columns = [column(c"id".as_ptr().cast(), 1), column(c"n".as_ptr().cast(), 5)];
    let part = |column| CKeyPart { column, length: 4, flags: 0, store_length: 4 };
    let parts = [part(0), part(1)];
    let index = |name: &'static std::ffi::CStr, flags, part: &CKeyPart| CIndex {
        name: name.as_ptr(),
        flags,
        part_count: 1,
        parts: part,
    };
    let indexes = [index(c"PRIMARY", u32::from(primary), &parts[0]), index(c"n", 0, &parts[1])];
    let def = CTableDef {
        column_count: 2,
        columns: columns.as_ptr(),
        index_count: 2,
        indexes: indexes.as_ptr(),
        primary: if primary { 0 } else { -1 },
        record_bytes: RECORD as u32,
        null_bytes: 1,
        autoinc_column: if primary { 0 } else { -1 },
        flags: 0,
        version: [3; 16],
        compression: -1,
        encrypted: 0,
        ttl: null(),
        row_start: -1,
        row_end: -1,
        row_end_max: [0; TIME_BYTES],
        encryption_key: 1,
    };
    body(&def)
}

fn record(id: i32, n: i32) -> [u8; RECORD] {
    let mut r = [0; RECORD];
    r[1..5].copy_from_slice(&id.to_le_bytes());
    r[5..9].copy_from_slice(&n.to_le_bytes());
    r
}

fn id_of(r: &[u8]) -> i32 {
    i32::from_le_bytes([r[1], r[2], r[3], r[4]])
}

/// What the condition works on: the cursor that is reading, its record, and the references it was told.
struct Filter {
    cursor: *mut CursorHandle,
    record: *mut u8,
    refs: Vec<Vec<u8>>,
}

unsafe extern "C" fn even_and_note(ctx: *mut c_void) -> c_int {
    unsafe {
        let filter = &mut *ctx.cast::<Filter>();
        let mut reference = vec![0; 64];
        assert_eq!(strata_position(filter.cursor, filter.record, reference.as_mut_ptr()), code::OK);
        filter.refs.push(reference);
        let n = std::slice::from_raw_parts(filter.record, RECORD)[5];
        c_int::from(n % 2 == 0)
    }
}

fn run(primary: bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(dir.path().to_str().unwrap()).unwrap();
    let config = CConfig {
        dir: path.as_ptr(),
        block_cache_bytes: 16 << 20,
        memtable_budget_bytes: 16 << 20,
        log_segment_bytes: 0,
        background_threads: 1,
        flush_log: 1,
        connections: 151,
        encrypt_log: 0,
        encrypt_tables: 0,
        history_retention_s: 0,
    };
    unsafe {
        let mut store = null_mut();
        assert_eq!(strata_open(&config, &callbacks(), &mut store), code::OK);
        let name = c"./db/t".as_ptr();
        with_def(primary, |def| assert_eq!(strata_table_create(store, name, def, 0, null(), 0, &DDL), code::OK));
        with_def(primary, |def| {
            assert_eq!(strata_table_create(store, name, def, 0, null(), 0, &DDL), code::TABLE_EXISTS)
        });
        let mut table = null_mut();
        with_def(primary, |def| assert_eq!(strata_table_open(store, name, def, &mut table), code::OK));
        let mut session = null_mut();
        assert_eq!(strata_session_new(store, null(), &mut session), code::OK);
        let mut cursor = null_mut();
        assert_eq!(strata_cursor_new(table, &mut cursor), code::OK);

        strata_cursor_mode(cursor, session, 2, 0);
        assert_eq!(strata_statement_begin(session, 2, 1_000_000, 1_000_000_000), code::OK);
        let mut duplicate = -1;
        for i in 0..10 {
            assert_eq!(strata_insert(cursor, record(i, i).as_ptr(), &mut duplicate), code::OK);
        }
        if primary {
            assert_eq!(strata_insert(cursor, record(3, 0).as_ptr(), &mut duplicate), code::DUPLICATE);
            assert_eq!(duplicate, 0);
            assert_eq!(strata_autoinc_raise(table, 9), code::OK);
            assert_eq!(strata_autoinc_next(table), 10);
        }
        assert_eq!(strata_prepare(session, b"xid".as_ptr(), 3, 1), code::OK);
        strata_commit_ordered(session);
        assert_eq!(strata_commit(session), code::OK);

        // Rows of the index on n whose n is even; the condition asks for the position of each entry. Covering or not,
        // locking or not.
        for (covering, lock) in [(0, 0), (1, 0), (0, 2), (1, 1)] {
            assert_eq!(strata_statement_begin(session, 2, 1_000_000, 1_000_000_000), code::OK);
            strata_cursor_mode(cursor, session, lock, 0);
            assert_eq!(strata_scan_begin(cursor, 1, covering), code::OK);
            assert_eq!(strata_scan_bound(cursor, 7i32.to_le_bytes().as_ptr(), 4, 1), code::OK);
            let mut out = record(-1, -1);
            let mut filter = Filter { cursor, record: out.as_mut_ptr(), refs: Vec::new() };
            strata_cursor_condition(cursor, Some(even_and_note), (&raw mut filter).cast());
            let key = 2i32.to_le_bytes();
            let mut result = strata_seek(cursor, 1, key.as_ptr(), 4, out.as_mut_ptr());
            let mut seen = Vec::new();
            while result == code::OK {
                seen.push(if covering == 0 || primary { id_of(&out) } else { i32::from(out[5]) });
                result = strata_next(cursor, out.as_mut_ptr());
            }
            assert_eq!((result, seen), (code::END, vec![2, 4, 6]));
            strata_cursor_condition(cursor, None, null_mut());
            assert_eq!(filter.refs.len(), 6);
            for (i, reference) in filter.refs.iter().enumerate() {
                assert_eq!(strata_read_position(cursor, reference.as_ptr(), out.as_mut_ptr()), code::OK);
                assert_eq!(id_of(&out), i as i32 + 2);
            }
            assert!(strata_ref_compare(table, filter.refs[0].as_ptr(), filter.refs[1].as_ptr()) < 0);
            strata_scan_end(cursor);
            assert_eq!(strata_commit(session), code::OK);
            strata_cursor_mode(cursor, null_mut(), 0, 0);
        }
        let mut rows = 0;
        let (low, high) = (3i32.to_le_bytes(), 5i32.to_le_bytes());
        let range = strata_records_in_range(cursor, 1, low.as_ptr(), 4, high.as_ptr(), 4, 3, &mut rows);
        assert_eq!((range, rows), (code::OK, 3));
        let mut record_out = record(0, 0);
        assert_eq!(strata_next(cursor, record_out.as_mut_ptr()), code::INVALID, "no session");
        strata_cursor_free(cursor);
        strata_session_free(session);
        strata_table_close(table);
        assert_eq!(strata_table_drop(store, name, 0, &DDL), code::OK);
        assert_eq!(strata_table_drop(store, name, 0, &DDL), code::NO_TABLE);
        assert_eq!(strata_close(store), code::OK);
    }
}

#[test]
fn a_handlers_way_through_the_interface() {
    run(true);
    run(false);
}

#[test]
fn null_pointers_are_refused() {
    unsafe {
        assert_eq!(strata_sync(null_mut()), code::INVALID);
        assert_eq!(strata_commit(null_mut()), code::INVALID);
        assert_eq!(strata_next(null_mut(), null_mut()), code::INVALID);
        assert_eq!(strata_table_create(null_mut(), null(), null(), 0, null(), 0, &DDL), code::INVALID);
    }
}

unsafe extern "C" fn no_weights(
    _: *const c_void,
    _: u32,
    _: *const u8,
    _: usize,
    _: usize,
    _: *mut u8,
    _: usize,
) -> usize {
    0
}

unsafe extern "C" fn no_bound(_: *const c_void, _: usize) -> usize {
    0
}

/// A server that has one collation.
unsafe extern "C" fn find(id: u32, out: *mut CCollation) -> c_int {
    if id != 8 {
        return 0;
    }
    let found = CCollation { id, flags: 1, mbminlen: 1, mbmaxlen: 1, name: c"latin1_swedish_ci".as_ptr(), cs: null() };
    unsafe { out.write(found) };
    1
}

/// What the catalog names is looked for by number, and must have the name, too.
#[test]
fn collations_are_found_by_number_and_name() {
    let calls = CCallbacks {
        weights: Some(no_weights),
        weights_padded: Some(no_weights),
        weights_max: Some(no_bound),
        find: Some(find),
        ..callbacks()
    };
    let library = ServerLibrary(calls);
    let found = library.collation(8, "latin1_swedish_ci").unwrap();
    assert!(found.id() == 8 && found.traits().pad && !found.traits().binary);
    assert!(library.collation(8, "latin1_danish_ci").is_none());
    assert!(library.collation(9, "latin1_swedish_ci").is_none());
    assert!(ServerLibrary(callbacks()).collation(8, "latin1_swedish_ci").is_none());
}
