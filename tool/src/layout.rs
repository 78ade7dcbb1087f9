//! A record for rows that are read without a server: the columns of the catalog's entry, one behind the other.
//!
//! Where a column lies in the server's record is not stored, and means nothing to a row. Any record will do that has room for all.

use crate::collation;
use strata_row::def::{Column, ColumnType, Index, KeyPart, TableDef};
use strata_row::schema::{StoredColumn, StoredIndex, TableMeta};

/// Bytes of the pointer in the slot of a BLOB.
const POINTER_BYTES: u32 = size_of::<usize>() as u32;

/// The table as the row layer's decoders want it.
pub fn definition(meta: &TableMeta) -> TableDef {
    let nullable = meta.columns.iter().filter(|column| column.nullable).count() as u32;
    let null_bytes = nullable.div_ceil(8);
    let (mut offset, mut null_bit) = (null_bytes, 0);
    let columns = meta.columns.iter().map(|stored| column(stored, &mut offset, &mut null_bit)).collect();
    let indexes = meta.indexes.iter().map(|index| ordinary(index, meta)).collect();
    TableDef {
        indexes,
        primary: meta.primary,
        autoinc_column: meta.autoinc_column,
        temporary: meta.temporary,
        no_rollback: meta.no_rollback,
        version: meta.version,
        compression: meta.compression,
        ..TableDef::of_columns(columns, null_bytes, offset)
    }
}

fn column(stored: &StoredColumn, offset: &mut u32, null_bit: &mut u32) -> Column {
    let at = *offset;
    *offset += u32::from(stored.length_bytes)
        + match stored.kind {
            ColumnType::Blob => POINTER_BYTES,
            _ => stored.size,
        };
    let (null_offset, null_mask) = match stored.nullable {
        true => {
            *null_bit += 1;
            ((*null_bit - 1) / 8, 1 << ((*null_bit - 1) % 8))
        }
        false => (0, 0),
    };
    Column {
        name: stored.name.clone(),
        kind: stored.kind,
        is_virtual: stored.is_virtual,
        length_bytes: stored.length_bytes,
        null_offset,
        null_mask,
        null_first: 0,
        offset: at,
        size: stored.size,
        collation: stored.collation.as_ref().map(|(id, name)| collation::named(*id, name)),
        is_moment: false,
    }
}

fn ordinary(index: &StoredIndex, meta: &TableMeta) -> Index {
    let part = |part: &strata_row::schema::StoredPart| {
        let is_nullable = meta.columns[part.column as usize].nullable;
        let store_length = u32::from(is_nullable) + part.length + 2;
        KeyPart { column: part.column, length: part.length, descending: part.descending, store_length }
    };
    let ordinary = Index::ordinary(&index.name, index.unique, index.parts.iter().map(part).collect());
    let (kind, options) = (index.kind, index.options.clone());
    Index { kind, options, long_hash: index.long_hash, unpack_form: index.unpack_form, ..ordinary }
}
