//! Rows of earlier schema versions, read as rows of the present one.
//!
//! The catalog's list of columns of a version says what such a row is made of. Each of its columns is looked for by its id among
//! those of today: it is converted where it has become wider, and passed over where it is no more. What the version lacks has the
//! catalog's initial value.
//!
//! A column that the clustered key restores is in no row of any version: the clustered key stays as it is for as long as rows
//! of several versions lie under it.

use super::columns::ColumnSet;
use super::convert::{Conversion, is_text};
use super::layout::Layout;
use crate::def::TableDef;
use crate::keycode::{CodecError, KeyCodec, Result};
use crate::kv::codec::Reader;
use crate::schema::{Initial, Schema, TableMeta};

/// Decoder of the rows of one earlier schema version.
pub(super) struct Former {
    pub(super) version: u64,
    null_bytes: usize,
    fields: Vec<OldField>,
    missing: Vec<Missing>,
}

/// A column of the row.
struct OldField {
    id: u32,
    /// Bytes, if it has no length of its own.
    size: Option<usize>,
    null_bit: Option<usize>,
    target: Option<Target>,
}

/// Where a value goes.
struct Target {
    column: usize,
    layout: Layout,
    conversion: Conversion,
}

/// A column that the version has not.
struct Missing {
    column: usize,
    layout: Layout,
    /// `None`: NULL.
    value: Option<Box<[u8]>>,
}

impl Former {
    /// The decoder of `schema`, an earlier version of `meta`. Columns are those of `def` at present, of which `clustered` restores
    /// some.
    pub(super) fn new(meta: &TableMeta, schema: &Schema, def: &TableDef, clustered: &KeyCodec) -> Result<Former> {
        let wrong = |what: String| CodecError::Definition(format!("schema version {}: {what}", schema.version));
        let mut fields = Vec::new();
        let mut null_bits = 0;
        for old in schema.columns.iter().filter(|old| !old.is_virtual) {
            let column = meta.columns.iter().position(|column| column.id == old.id);
            if column.is_some_and(|column| clustered.recovers(column)) {
                continue;
            }
            let target = match column {
                None => None,
                Some(column) => {
                    let to = &meta.columns[column];
                    let conversion = Conversion::between(old, to).ok_or_else(|| {
                        wrong(format!("column '{}' has no image in the present column '{}'", old.name, to.name))
                    })?;
                    Some(Target { column, layout: Layout::of(def, column)?, conversion })
                }
            };
            let size = (!is_text(old.kind)).then_some(old.size as usize);
            let null_bit = old.nullable.then_some(null_bits);
            null_bits += usize::from(old.nullable);
            fields.push(OldField { id: old.id, size, null_bit, target });
        }
        let mut missing = Vec::new();
        for (column, to) in meta.columns.iter().enumerate() {
            let has = schema.columns.iter().any(|old| old.id == to.id);
            if has || to.is_virtual || clustered.recovers(column) {
                continue;
            }
            let value = match &to.initial {
                Some(Initial::Value(value)) => Some(value.clone().into_boxed_slice()),
                Some(Initial::Null) if to.nullable => None,
                _ => return Err(wrong(format!("the present column '{}' has no initial value", to.name))),
            };
            missing.push(Missing { column, layout: Layout::of(def, column)?, value });
        }
        Ok(Former { version: u64::from(schema.version), null_bytes: null_bits.div_ceil(8), fields, missing })
    }

    /// Fills the columns asked for from a row, of which the version is read already. Pointers of BLOB columns lead into the row,
    /// or to the initial value, which lives as long as this.
    pub(super) fn decode(&self, row: &mut Reader<'_>, record: &mut [u8], columns: Option<&ColumnSet>) -> Result<()> {
        let wanted = |column: usize| columns.is_none_or(|columns| columns.contains(column));
        let corrupt = |what: String| CodecError::Corrupt(format!("row of schema version {}: {what}", self.version));
        let nulls = row.take(self.null_bytes).ok_or_else(|| corrupt("it ends within its NULL bits".into()))?;
        for field in &self.fields {
            let malformed = || corrupt(format!("no well-formed value of the column with id {}", field.id));
            let target = field.target.as_ref().filter(|target| wanted(target.column));
            if field.null_bit.is_some_and(|bit| nulls[bit / 8] >> (bit % 8) & 1 != 0) {
                if let Some(target) = target {
                    target.layout.set_null(record);
                }
                continue;
            }
            let value = match field.size {
                Some(size) => row.take(size),
                None => row.bytes(),
            };
            let value = value.ok_or_else(malformed)?;
            if let Some(target) = target
                && !target.conversion.put(value, &target.layout, record)
            {
                return Err(malformed());
            }
        }
        if !row.is_empty() {
            return Err(corrupt(format!("{} bytes after the last column", row.rest().len())));
        }
        for missing in self.missing.iter().filter(|missing| wanted(missing.column)) {
            match &missing.value {
                None => missing.layout.set_null(record),
                Some(value) if Conversion::Same.put(value, &missing.layout, record) => {}
                Some(_) => return Err(corrupt(format!("the initial value of column {} does not fit", missing.column))),
            }
        }
        Ok(())
    }
}
