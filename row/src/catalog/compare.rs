//! Does the definition that a handler brings agree with the catalog's?
//!
//! Everything that decides what bytes mean must agree: order, type, size and nullability of columns, parts of indexes, the
//! clustered index, collations by number *and* name (a server release may give a number to another collation, or change a
//! collation under its number; the latter cannot be seen here). Names of columns and indexes may differ: renaming them is
//! the server's business.
//!
//! The order of indexes may differ, too: the server exchanges a partition with a table that has the same indexes in another
//! order. Each index of the server is given the catalog's of the same name if what it says of bytes agrees, else any other
//! that agrees: two indexes of the same parts and kind hold the same entries. The hidden column of a long unique is left out
//! where names agree, since its number follows the order of the indexes, and nothing of it is in the rows.
//!
//! Rejected: bringing the catalog's entry into the server's order at the first open. That is a write, and open handlers,
//! samples and reports would each have to follow it.

use crate::def::{Index, TableDef};
use crate::error::{Error, Result};
use crate::schema::{StoredColumn, StoredIndex, TableMeta};

/// Compares, and gives for each index of the definition its number in the catalog. An error names the first difference.
pub fn check(name: &str, meta: &TableMeta, def: &TableDef) -> Result<Vec<usize>> {
    let differs = |what: String| Error::invalid(format!("table '{name}': definition differs: {what}"));
    match difference(meta, def) {
        Some(what) => Err(differs(what)),
        None => places(meta, def).map_err(differs),
    }
}

/// Gives indexes the form of unpack data that their entries have; `places` are their numbers in the catalog.
pub fn keep_unpack_forms(meta: &TableMeta, def: &mut TableDef, places: &[usize]) {
    for (index, place) in def.indexes.iter_mut().zip(places) {
        index.unpack_form = meta.indexes[*place].unpack_form;
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
        if let Some(what) = column_difference(stored, &StoredColumn::of(stored.id, column)) {
            return Some(format!("column '{}': {what}", column.name));
        }
    }
    if meta.indexes.len() != def.indexes.len() {
        return Some(format!("{} indexes in the engine, {} in the server", meta.indexes.len(), def.indexes.len()));
    }
    if meta.autoinc_column != def.autoinc_column {
        return Some("another auto-increment column".into());
    }
    None
}

/// The catalog's number of each index of the definition.
fn places(meta: &TableMeta, def: &TableDef) -> std::result::Result<Vec<usize>, String> {
    let mut free = vec![true; meta.indexes.len()];
    let mut places = vec![None; def.indexes.len()];
    // Those of the same name first: no other may take their places.
    for by_name in [true, false] {
        for (number, index) in def.indexes.iter().enumerate() {
            if places[number].is_some() {
                continue;
            }
            let fits = |place: &usize| {
                let stored = &meta.indexes[*place];
                free[*place]
                    && (!by_name || same_name(stored, index))
                    && (meta.primary == Some(*place)) == (def.primary == Some(number))
                    && index_difference(stored, index).is_none()
            };
            // Two tables may be the same but for names: then the position decides.
            places[number] = Some(number).filter(fits).or_else(|| (0..free.len()).find(fits));
            if let Some(place) = places[number] {
                free[place] = false;
            }
        }
    }
    let missing = |number: usize| {
        let index = &def.indexes[number];
        let by_name = meta.indexes.iter().find(|stored| same_name(stored, index));
        let stored = by_name.or_else(|| meta.indexes.get(number));
        let what = stored.and_then(|stored| index_difference(stored, index));
        what.unwrap_or_else(|| format!("index '{}' holds the rows in one, not in the other", index.name))
    };
    if def.primary.is_some() != meta.primary.is_some() {
        return Err("another clustered index".into());
    }
    places.iter().enumerate().map(|(number, place)| place.ok_or_else(|| missing(number))).collect()
}

/// Names of indexes are compared as identifiers are.
fn same_name(stored: &StoredIndex, index: &Index) -> bool {
    stored.name.to_lowercase() == index.name.to_lowercase()
}

fn index_difference(stored: &StoredIndex, index: &Index) -> Option<String> {
    if stored.kind != index.kind || stored.options != index.options {
        return Some(format!("index '{}' is {} in the engine, {} in the server", index.name, stored.kind, index.kind));
    }
    if stored.unique != index.unique || stored.long_hash != index.long_hash {
        return Some(format!("index '{}' is of another kind", index.name));
    }
    let parts_agree = stored.parts.len() == index.parts.len()
        && stored
            .parts
            .iter()
            .zip(&index.parts)
            .all(|(s, p)| s.column == p.column && s.length == p.length && s.descending == p.descending);
    let renumbered = index.long_hash && same_name(stored, index);
    (!parts_agree && !renumbered).then(|| format!("index '{}' has other parts", index.name))
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
