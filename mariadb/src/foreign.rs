//! Foreign keys: what the server is told of them, and the locks of parents.

use crate::failure::{self, Failure};
use crate::outcome::{Outcome, code, copy_out, guard, guard_value, reference, text};
use crate::session::SessionHandle;
use crate::store::{StoreHandle, TableHandle, on_store};
use crate::types::{CReference, EmitReference};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use strata_row::Error;
use strata_row::foreign::Reference;
use strata_row::schema::TableMeta;
use strata_row::store::Store;

/// Hands a key to the server.
fn emit_reference(store: &Store, key: &Reference, emit: EmitReference, ctx: *mut c_void) {
    let c_text = |text: &str| CString::new(text).unwrap_or_default();
    let (child, parent) = (store.catalog().get(&key.child).ok(), store.catalog().get(&key.parent).ok());
    let nullable = |meta: &Option<Arc<TableMeta>>, number: usize, numbers: &[usize]| {
        let column = numbers.get(number).and_then(|number| meta.as_ref()?.columns.get(*number));
        u8::from(column.is_some_and(|column| column.nullable))
    };
    let count = key.key.columns.len();
    let mut nulls: Vec<u8> = (0..count).map(|number| nullable(&child, number, &key.child_columns)).collect();
    nulls.extend((0..count).map(|number| nullable(&parent, number, &key.parent_columns)));
    let index = key.parent_index.and_then(|number| parent.as_ref()?.indexes.get(number).map(|i| c_text(&i.name)));
    let texts = [&key.key.name, &key.called, &key.parent].map(|text| c_text(text));
    let columns: Vec<CString> = key.key.columns.iter().map(|column| c_text(column)).collect();
    let parents: Vec<CString> = key.key.parent_columns.iter().map(|column| c_text(column)).collect();
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    let (columns, parents) = (pointers(&columns), pointers(&parents));
    let told = CReference {
        name: texts[0].as_ptr(),
        child: texts[1].as_ptr(),
        parent: texts[2].as_ptr(),
        parent_index: index.as_ref().map_or(null(), |name| name.as_ptr()),
        columns: columns.as_ptr(),
        parent_columns: parents.as_ptr(),
        nullable: nulls.as_ptr(),
        column_count: count as u32,
        on_delete: key.key.on_delete.number(),
        on_update: key.key.on_update.number(),
    };
    // SAFETY: the structure and what it points to live until the call returns.
    unsafe { emit(ctx, &told) };
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_references(
    table: *mut TableHandle,
    as_parent: c_int,
    emit: Option<EmitReference>,
    ctx: *mut c_void,
) -> c_int {
    guard(|| {
        let table = &unsafe { reference(table)? }.table;
        let (Some(relations), Some(emit)) = (table.state.relations(), emit) else { return Ok(code::OK) };
        let keys = if as_parent != 0 { &relations.children } else { &relations.parents };
        keys.iter().for_each(|key| emit_reference(table.store(), key, emit, ctx));
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_related(table: *const TableHandle) -> *const u8 {
    guard_value(null(), || unsafe { reference(table) }.map_or(null(), |table| table.table.state.related_flag()))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_relation(table: *const TableHandle, which: u32) -> c_int {
    guard_value(0, || {
        let relations = unsafe { reference(table) }.ok().and_then(|table| table.table.state.relations());
        let Some(relations) = relations else { return 0 };
        c_int::from(match which {
            0 => !relations.children.is_empty(),
            1 => !relations.parents.is_empty(),
            _ => relations.parents.iter().any(|key| !key.key.inherited),
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_is_parent(store: *const StoreHandle, name: *const c_char) -> c_int {
    guard_value(0, || {
        let is_parent = || Ok::<_, Error>(unsafe { reference(store)?.store.catalog().is_parent(text(name)?) });
        c_int::from(is_parent().unwrap_or(false))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_knows_versions(store: *const StoreHandle, name: *const c_char) -> c_int {
    guard_value(0, || {
        let knows =
            || Ok::<_, Error>(unsafe { reference(store)?.store.catalog().get(text(name)?)? }.versions.is_some());
        c_int::from(knows().unwrap_or(false))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_session_lock_name(session: *const SessionHandle, name: *const c_char) -> c_int {
    guard(|| unsafe { SessionHandle::session(session)?.lock_name(text(name)?).code() })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_failed_reference(
    store: *const StoreHandle,
    emit: Option<EmitReference>,
    ctx: *mut c_void,
) -> c_int {
    unsafe {
        on_store(store, |s| {
            let failed = failure::latest(|last| match last {
                Failure::Reference(reference) => Some(reference.clone()),
                _ => None,
            });
            match failed.zip(emit) {
                Some((key, emit)) => {
                    emit_reference(&s.store, &key, emit, ctx);
                    Ok(code::OK)
                }
                None => Ok(code::NOT_FOUND),
            }
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_failed_name(which: u32, buf: *mut c_char, cap: usize) -> usize {
    guard_value(0, || {
        failure::latest(|last| match last {
            Failure::Names(names) => unsafe { copy_out(&names[usize::from(which > 0)], buf, cap) },
            _ => unsafe { copy_out("", buf, cap) },
        })
    })
}
