//! Definitions of tables and foreign keys: from the header's structures to the row layer's.

use crate::collation::ServerCollation;
use crate::outcome::{bytes, reference, text};
use crate::types::{CCallbacks, CColumn, CDdl, CForeignKey, CIndex, CTableDef};
use std::ffi::c_char;
use strata_row::def::{
    Column, ColumnType, Compression, Encrypted, Encryption, Index, IndexKind, KeyPart, SystemVersions, TableDef,
    UNPACK_FORM,
};
use strata_row::foreign::{Action, ForeignKey, Statement};
use strata_row::{Error, Result};

const COL_UNSIGNED: u8 = 1;
const COL_VIRTUAL: u8 = 2;
const COL_NULL_HIGH: u8 = 4;
const COL_MOMENT: u8 = 8;
const COL_WITHOUT_VERSIONS: u8 = 16;
const PART_DESC: u32 = 1;
const INDEX_UNIQUE: u32 = 1;
const INDEX_LONG_HASH: u32 = 2;
const INDEX_WITHOUT_OVERLAPS: u32 = 4;
const TABLE_TEMPORARY: u32 = 1;
const TABLE_NO_ROLLBACK: u32 = 2;
const TABLE_SHORT_REFERENCES: u32 = 4;

/// Translates a definition.
pub unsafe fn table_def(def: *const CTableDef, calls: &CCallbacks) -> Result<TableDef> {
    // SAFETY: the header promises arrays of the lengths given.
    let (def, columns, indexes) = unsafe {
        let def = reference(def)?;
        (def, bytes(def.columns, def.column_count as usize), bytes(def.indexes, def.index_count as usize))
    };
    let number = |n: i32, count: usize, what: &str| match usize::try_from(n) {
        Err(_) => Ok(None),
        Ok(n) if n < count => Ok(Some(n)),
        Ok(n) => Err(Error::invalid(format!("{what} {n} of {count}"))),
    };
    let end = number(def.row_end, columns.len(), "column of ROW END")?;
    let versions = match (number(def.row_start, columns.len(), "column of ROW START")?, end) {
        (Some(start), Some(end)) => Some(SystemVersions {
            start: start as u32,
            end: end as u32,
            greatest: def.row_end_max.to_vec(),
            without: (0..).zip(columns).filter(|(_, c)| c.flags & COL_WITHOUT_VERSIONS != 0).map(|(n, _)| n).collect(),
        }),
        _ => None,
    };
    Ok(TableDef {
        columns: columns.iter().map(|c| column(c, calls)).collect::<Result<_>>()?,
        indexes: indexes.iter().map(|i| index(i, columns.len())).collect::<Result<_>>()?,
        primary: number(def.primary, indexes.len(), "clustered index")?,
        record_bytes: def.record_bytes,
        null_bytes: def.null_bytes,
        autoinc_column: number(def.autoinc_column, columns.len(), "auto-increment column")?.map(|c| c as u32),
        temporary: def.flags & TABLE_TEMPORARY != 0,
        no_rollback: def.flags & TABLE_NO_ROLLBACK != 0,
        short_references: def.flags & TABLE_SHORT_REFERENCES != 0,
        version: def.version,
        compression: match def.compression {
            -1 => None,
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            n => return Err(Error::invalid(format!("unknown compression {n}"))),
        },
        encryption: Encryption {
            encrypted: Encrypted::from_number(def.encrypted)
                .ok_or_else(|| Error::invalid(format!("unknown encryption {}", def.encrypted)))?,
            key: def.encryption_key,
        },
        // SAFETY: the header promises a text that ends with 0, or null.
        ttl: if def.ttl.is_null() { None } else { Some(unsafe { text(def.ttl)? }.to_owned()) },
        versions,
    })
}

fn column(c: &CColumn, calls: &CCallbacks) -> Result<Column> {
    let kind = ColumnType::from_number(c.kind, c.flags & COL_UNSIGNED != 0)
        .ok_or_else(|| Error::invalid(format!("unknown column type {}", c.kind)))?;
    Ok(Column {
        // SAFETY: the header promises a 0-terminated name.
        name: unsafe { text(c.name)? }.to_owned(),
        kind,
        is_virtual: c.flags & COL_VIRTUAL != 0,
        length_bytes: c.length_bytes,
        null_offset: c.null_offset,
        null_mask: c.null_mask,
        null_first: if c.flags & COL_NULL_HIGH != 0 { 0x80 } else { 0 },
        offset: c.offset,
        size: c.size,
        collation: ServerCollation::from_header(&c.collation, calls)?,
        is_moment: c.flags & COL_MOMENT != 0,
    })
}

fn index(i: &CIndex, columns: usize) -> Result<Index> {
    // SAFETY: the header promises a name and `part_count` parts.
    let (name, parts) = unsafe { (text(i.name)?, bytes(i.parts, i.part_count as usize)) };
    if parts.iter().any(|p| p.column as usize >= columns) {
        return Err(Error::invalid(format!("index '{name}' has a part without column")));
    }
    Ok(Index {
        name: name.to_owned(),
        kind: IndexKind::ORDINARY,
        options: Vec::new(),
        unique: i.flags & INDEX_UNIQUE != 0,
        long_hash: i.flags & INDEX_LONG_HASH != 0,
        without_overlaps: i.flags & INDEX_WITHOUT_OVERLAPS != 0,
        parts: parts
            .iter()
            .map(|p| KeyPart {
                column: p.column,
                length: p.length,
                descending: p.flags & PART_DESC != 0,
                store_length: p.store_length,
            })
            .collect(),
        unpack_form: UNPACK_FORM,
    })
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
        Ok(Statement {
            checks: ddl.checks != 0,
            altered,
            drops_database: ddl.drops_database != 0,
            strict: ddl.strict != 0,
        })
    }
}
