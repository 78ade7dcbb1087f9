//! A table's definition from the catalog alone, for work on rows that no handler of the server does.
//!
//! The record is one of our own: NULL bits, then the columns one after the other. Collations are asked for by number and name of
//! the [`Library`]. Virtual columns have a place in the record, but nobody computes them.

use crate::def::{Column, ColumnType, Index, KeyPart, Library, TableDef};
use crate::error::{Error, Result};
use crate::schema::{StoredColumn, StoredIndex, TableMeta};

impl TableMeta {
    /// The definition that the catalog's entry of table `name` stands for: its columns, and its indexes in order.
    pub fn definition(&self, name: &str, library: &dyn Library) -> Result<TableDef> {
        let null_bytes = self.columns.iter().filter(|c| c.nullable).count().div_ceil(8) as u32;
        let (mut null_bits, mut offset) = (0, null_bytes);
        let mut columns = Vec::with_capacity(self.columns.len());
        for stored in &self.columns {
            let collation = match &stored.collation {
                None => None,
                Some((id, text)) => {
                    let found = library.collation(*id, text).and_then(|c| match c.form() == stored.form {
                        true => Some(c),
                        false => c.in_form(stored.form),
                    });
                    Some(found.ok_or_else(|| {
                        let column = &stored.name;
                        Error::invalid(format!(
                            "table '{name}': collation {id} ({text}) of column '{column}' is unknown"
                        ))
                    })?)
                }
            };
            columns.push(Column {
                name: stored.name.clone(),
                kind: stored.kind,
                is_virtual: stored.is_virtual,
                length_bytes: stored.length_bytes,
                null_offset: null_bits / 8,
                null_mask: if stored.nullable { 1 << (null_bits % 8) } else { 0 },
                null_first: 0,
                offset,
                size: stored.size,
                collation,
                is_moment: false,
            });
            null_bits += u32::from(stored.nullable);
            let pointer = if stored.kind == ColumnType::Blob { size_of::<usize>() as u32 } else { 0 };
            offset += u32::from(stored.length_bytes) + stored.size + pointer;
        }
        Ok(TableDef {
            columns,
            indexes: self.indexes.iter().map(|index| index.definition(&self.columns)).collect(),
            primary: self.primary,
            record_bytes: offset,
            null_bytes,
            autoinc_column: self.autoinc_column,
            temporary: self.temporary,
            no_rollback: self.no_rollback,
            short_references: false,
            version: self.version,
            compression: self.compression,
            encryption: self.encryption,
            ttl: None,
            versions: self.versions.as_ref().and_then(|versions| versions.renamed(|id| self.number_of(id))),
        })
    }
}

impl StoredIndex {
    /// The definition of an index of a table with these columns.
    pub(crate) fn definition(&self, columns: &[StoredColumn]) -> Index {
        let part = |part: &crate::schema::StoredPart| {
            let column = &columns[part.column as usize];
            let lengths = if matches!(column.kind, ColumnType::VarChar | ColumnType::Blob) { 2 } else { 0 };
            KeyPart {
                column: part.column,
                length: part.length,
                descending: part.descending,
                store_length: u32::from(column.nullable) + part.length + lengths,
            }
        };
        Index {
            name: self.name.clone(),
            kind: self.kind,
            options: self.options.clone(),
            unique: self.unique,
            long_hash: self.long_hash,
            // Neighbours are looked for by the server only.
            without_overlaps: false,
            parts: self.parts.iter().map(part).collect(),
            unpack_form: self.unpack_form,
        }
    }
}
