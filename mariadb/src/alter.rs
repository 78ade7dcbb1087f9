//! ALTER TABLE: changes that leave the rows where they are, new indexes, foreign keys.

use crate::definition::{foreign_keys, statement, table_def};
use crate::outcome::{bytes, reference, text};
use crate::session::SessionHandle;
use crate::store::{StoreHandle, TableHandle, on_store};
use crate::types::{CAlteration, CCallbacks};
use std::ffi::{c_char, c_int};
use strata_row::catalog::alter::Source;
use strata_row::foreign::KeyChange;
use strata_row::rowcode::Record;
use strata_row::store::Alteration;
use strata_row::{Error, Result};

/// A `StrataAlteration` in the row layer's terms.
unsafe fn alteration_of(alteration: *const CAlteration, calls: &CCallbacks) -> Result<Alteration> {
    // SAFETY: the header promises arrays of the lengths that the definition says, and a record of it.
    unsafe {
        let alteration = reference(alteration)?;
        let def = table_def(alteration.def, calls)?;
        if alteration.record.is_null() {
            return Err(Error::invalid("null pointer"));
        }
        let record = Record::new(bytes(alteration.record, def.record_bytes as usize));
        let source = |(column, kept): (usize, &i32)| match usize::try_from(*kept) {
            Ok(kept) => Ok(Source::Kept(kept)),
            Err(_) => Source::added(&def, column, record),
        };
        let columns = bytes(alteration.columns, def.columns.len());
        let sources = columns.iter().enumerate().map(source).collect::<Result<Vec<Source>>>()?;
        let indexes = bytes(alteration.indexes, def.indexes.len());
        let kept = indexes.iter().map(|kept| usize::try_from(*kept).ok()).collect();
        let (rebuilds, converts) = (alteration.rebuilds != 0, alteration.converts != 0);
        let (statement, keys) = (statement(alteration.ddl)?, key_change(alteration)?);
        let counter = (alteration.counter != 0).then_some(alteration.counter);
        Ok(Alteration { statement, keys, def, sources, kept, rebuilds, converts, counter })
    }
}

/// Does what an ALTER asks of a store.
pub(crate) unsafe fn on_alteration(
    store: *mut StoreHandle,
    alteration: *const CAlteration,
    what: impl FnOnce(&StoreHandle, &Alteration) -> Result<()>,
) -> c_int {
    unsafe { on_store(store, |s| what(s, &alteration_of(alteration, &s.calls)?)) }
}

/// What it says of foreign keys.
unsafe fn key_change(alteration: &CAlteration) -> Result<KeyChange> {
    // SAFETY: the header promises arrays of the lengths given, and texts that end with 0.
    unsafe {
        let dropped = bytes(alteration.dropped, alteration.dropped_count as usize);
        let dropped = dropped.iter().map(|name| text(*name).map(str::to_owned)).collect::<Result<_>>()?;
        Ok(KeyChange { dropped, added: foreign_keys(alteration.keys, alteration.key_count)? })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_alter_lock_parents(
    store: *mut StoreHandle,
    table: *const TableHandle,
    session: *const SessionHandle,
    alteration: *const CAlteration,
) -> c_int {
    unsafe {
        on_alteration(store, alteration, |s, alteration| {
            let table = &reference(table)?.table;
            let keys = s.store.keys_to_come(alteration.of(table), alteration)?;
            let session = SessionHandle::session(session)?;
            keys.iter().try_for_each(|key| table.lock_parents(session, key))
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_alter_check(
    store: *mut StoreHandle,
    table: *const TableHandle,
    alteration: *const CAlteration,
) -> c_int {
    unsafe {
        on_alteration(store, alteration, |s, alteration| {
            s.store.engine().check()?;
            let table = alteration.of(&reference(table)?.table);
            s.store.check_alteration(table, alteration, &|| s.calls.is_killed())
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_alter_tables(
    store: *mut StoreHandle,
    tables: *const *const TableHandle,
    count: usize,
    alteration: *const CAlteration,
) -> c_int {
    unsafe {
        on_alteration(store, alteration, |s, alteration| {
            s.store.engine().check()?;
            let one = |table: &*const TableHandle| Ok(alteration.of(&reference(*table)?.table));
            let tables = bytes(tables, count).iter().map(one).collect::<Result<Vec<_>>>()?;
            s.store.alter_tables(&tables, alteration, &|| s.calls.is_killed())
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_version(store: *mut StoreHandle, name: *const c_char, version: *mut u8) -> c_int {
    unsafe {
        on_store(store, |s| {
            let found = s.store.catalog().version(text(name)?)?;
            if version.is_null() {
                return Err(Error::invalid("null pointer"));
            }
            // SAFETY: the header promises room for a version.
            version.copy_from_nonoverlapping(found.as_ptr(), found.len());
            Ok(())
        })
    }
}
