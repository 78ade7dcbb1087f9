//! Foreign keys: their definitions to the row layer, and what the server is told of them.

use crate::outcome::{Outcome, bytes, code, guard, guard_value, reference, text};
use crate::session::SessionHandle;
use crate::store::{StoreHandle, TableHandle, on_store};
use crate::types::{CDdl, CForeignKey, CReference, EmitReference};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use strata_row::foreign::{Action, ForeignKey, Reference, Statement};
use strata_row::schema::TableMeta;
use strata_row::store::Store;
use strata_row::{Error, Result};

thread_local! {
    static LAST: RefCell<Failure> = const { RefCell::new(Failure::None) };
}

/// What the last failure of this thread that a foreign key has caused was about.
enum Failure {
    None,
    /// A row's key.
    Reference(Arc<Reference>),
    /// Names: of a key or an index; of a child and its index.
    Names([String; 2]),
}

/// Keeps what an error is about, for whoever is told of it. Any error.
pub(crate) fn note(error: &Error) {
    let failure = match error {
        Error::NoReferencedRow(reference) | Error::RowIsReferenced(reference) => Failure::Reference(reference.clone()),
        Error::CannotAddForeign { name, .. } | Error::ForeignNameTaken(name) | Error::IndexOfForeign(name) => {
            Failure::Names([name.clone(), String::new()])
        }
        Error::ForeignDuplicate { child, index } => Failure::Names([child.clone(), index.clone()]),
        _ => return,
    };
    LAST.with(|last| *last.borrow_mut() = failure);
}

fn action(number: u8) -> Result<Action> {
    Action::from_number(number).ok_or_else(|| Error::invalid(format!("unknown action {number} of a foreign key")))
}

/// Translates the keys of a statement.
pub(crate) unsafe fn foreign_keys(keys: *const CForeignKey, count: u32) -> Result<Vec<ForeignKey>> {
    // SAFETY: the header promises arrays of the lengths given, and texts that end with 0.
    unsafe {
        let names = |names: *const *const c_char, count: u32| -> Result<Vec<String>> {
            bytes(names, count as usize).iter().map(|name| text(*name).map(str::to_owned)).collect()
        };
        let key = |key: &CForeignKey| {
            Ok(ForeignKey {
                name: text(key.name)?.to_owned(),
                columns: names(key.columns, key.column_count)?,
                parent: text(key.parent)?.to_owned(),
                parent_columns: names(key.parent_columns, key.column_count)?,
                on_delete: action(key.on_delete)?,
                on_update: action(key.on_update)?,
                inherited: key.inherited != 0,
            })
        };
        bytes(keys, count as usize).iter().map(key).collect()
    }
}

/// Translates what a statement says that changes tables.
pub(crate) unsafe fn statement(ddl: *const CDdl) -> Result<Statement> {
    // SAFETY: the header asks for a structure, and a text that ends with 0, or null.
    unsafe {
        let ddl = reference(ddl)?;
        let altered = if ddl.altered.is_null() { None } else { Some(text(ddl.altered)?.to_owned()) };
        Ok(Statement { checks: ddl.checks != 0, altered, drops_database: ddl.drops_database != 0 })
    }
}

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
    let texts = [&key.key.name, &key.child, &key.parent].map(|text| c_text(text));
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
            let failed = LAST.with(|last| match &*last.borrow() {
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
        LAST.with(|last| match &*last.borrow() {
            Failure::Names(names) => unsafe { crate::outcome::copy_out(&names[usize::from(which > 0)], buf, cap) },
            _ => unsafe { crate::outcome::copy_out("", buf, cap) },
        })
    })
}
