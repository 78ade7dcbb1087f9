//! Does the definition that a handler brings agree with the catalog's?
//!
//! Everything that decides what bytes mean must agree: order, type, size and nullability of columns, parts of indexes, the
//! clustered index, collations by number *and* name (a server release may give a number to another collation, or change a
//! collation under its number; the latter cannot be seen here). Names of columns and indexes may differ: renaming them is
//! the server's business.

use super::format::{StoredColumn, TableMeta};
use crate::def::TableDef;
use crate::error::{Error, Result};

/// Compares; an error names the first difference.
pub fn check(name: &str, meta: &TableMeta, def: &TableDef) -> Result<()> {
    match difference(meta, def) {
        Some(what) => Err(Error::invalid(format!("table '{name}': definition differs: {what}"))),
        None => Ok(()),
    }
}

/// Gives text columns the form of weights that the table's keys are made of.
pub fn keep_forms(name: &str, meta: &TableMeta, def: &mut TableDef) -> Result<()> {
    for (stored, column) in meta.columns.iter().zip(&mut def.columns) {
        let Some(collation) = column.collation.as_ref().filter(|c| c.form() != stored.form) else { continue };
        let older = collation.in_form(stored.form);
        let unknown =
            || format!("table '{name}': column '{}' has weights of unknown form {}", column.name, stored.form);
        column.collation = Some(older.ok_or_else(|| Error::invalid(unknown()))?);
    }
    Ok(())
}

fn difference(meta: &TableMeta, def: &TableDef) -> Option<String> {
    if meta.columns.len() != def.columns.len() {
        return Some(format!("{} columns in the engine, {} in the server", meta.columns.len(), def.columns.len()));
    }
    for (stored, column) in meta.columns.iter().zip(&def.columns) {
        if let Some(what) = column_difference(stored, &StoredColumn::of(column)) {
            return Some(format!("column '{}': {what}", column.name));
        }
    }
    if meta.indexes.len() != def.indexes.len() {
        return Some(format!("{} indexes in the engine, {} in the server", meta.indexes.len(), def.indexes.len()));
    }
    if meta.primary != def.primary {
        return Some("another clustered index".into());
    }
    if meta.autoinc_column != def.autoinc_column {
        return Some("another auto-increment column".into());
    }
    for (stored, index) in meta.indexes.iter().zip(&def.indexes) {
        let parts_agree = stored.parts.len() == index.parts.len()
            && stored
                .parts
                .iter()
                .zip(&index.parts)
                .all(|(s, p)| s.column == p.column && s.length == p.length && s.descending == p.descending);
        if !parts_agree {
            return Some(format!("index '{}' has other parts", index.name));
        }
        if stored.unique != index.unique || stored.long_hash != index.long_hash {
            return Some(format!("index '{}' is of another kind", index.name));
        }
    }
    None
}

fn column_difference(stored: &StoredColumn, given: &StoredColumn) -> Option<String> {
    if stored.kind != given.kind || stored.length_bytes != given.length_bytes {
        return Some(format!("{:?} in the engine, {:?} in the server", stored.kind, given.kind));
    }
    if stored.size != given.size {
        return Some(format!("{} bytes in the engine, {} in the server", stored.size, given.size));
    }
    if stored.nullable != given.nullable {
        return Some("NULL in one, NOT NULL in the other".into());
    }
    if stored.is_virtual != given.is_virtual {
        return Some("virtual in one, stored in the other".into());
    }
    if stored.collation != given.collation {
        let show = |c: &Option<(u32, String)>| match c {
            Some((id, name)) => format!("collation {id} ({name})"),
            None => "no collation".into(),
        };
        return Some(format!("{} in the engine, {} in the server", show(&stored.collation), show(&given.collation)));
    }
    None
}
