//! ALTER TABLE that leaves the rows where they are.

use crate::definition::table_def;
use crate::outcome::{bytes, reference, text};
use crate::store::{StoreHandle, TableHandle, on_store};
use crate::types::CTableDef;
use std::ffi::{c_char, c_int};
use strata_row::catalog::alter::Source;
use strata_row::rowcode::Record;
use strata_row::{Error, Result};

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_table_alter(
    store: *mut StoreHandle,
    tables: *const *const TableHandle,
    count: usize,
    def: *const CTableDef,
    kept: *const i32,
    record: *const u8,
    trial: c_int,
) -> c_int {
    unsafe {
        on_store(store, |s| {
            s.store.engine().check()?;
            let def = table_def(def, &s.calls)?;
            let name = |table: &*const TableHandle| Ok(reference(*table)?.table.state.name());
            let names = bytes(tables, count).iter().map(name).collect::<Result<Vec<String>>>()?;
            if record.is_null() {
                return Err(Error::invalid("null pointer"));
            }
            // SAFETY: the header promises a record of the new definition.
            let record = Record::new(bytes(record, def.record_bytes as usize));
            let source = |(column, kept): (usize, &i32)| match usize::try_from(*kept) {
                Ok(kept) => Ok(Source::Kept(kept)),
                Err(_) => Source::added(&def, column, record),
            };
            let kept = bytes(kept, def.columns.len());
            let sources = kept.iter().enumerate().map(source).collect::<Result<Vec<Source>>>()?;
            match trial != 0 {
                true => {
                    names.iter().try_for_each(|name| s.store.check_alter(name, &def, &sources, &|| s.calls.is_killed()))
                }
                false => s.store.alter_columns(&names, &def, &sources, &|| s.calls.is_killed()),
            }
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
