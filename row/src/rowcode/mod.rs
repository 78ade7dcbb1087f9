//! Rows: the value stored under the clustered key.
//!
//! # Purpose
//! A [`RowCodec`], made once when a table is opened, turns the server's record into a compact value and fills the
//! columns a statement asked for from it.
//!
//! # Format
//! Exactly described in `docs/develop/format/rows.md`:
//!
//! ```text
//! schema version (varint), NULL bits of the nullable columns below, then the columns in order:
//!   numbers and other fixed sizes   the record's bytes
//!   CHAR                            varint length without padding at the end, bytes
//!   VARCHAR, BLOB                   varint length, bytes
//! ```
//!
//! Not in the row: virtual columns, columns that the clustered key restores exactly, values that are NULL.
//!
//! Rows are written in the table's present schema version. Those of earlier versions are read as they are (`former`): the first
//! byte tells them apart, and a table with one version has no more to ask.
//!
//! # Invariants
//! - The value and its key together hold every stored column; encoding what was decoded gives the same bytes, if the row is
//!   of the present schema version.
//! - Decoding touches only the slots and NULL bits of the columns asked for. Its BLOBs point into the given value.
//! - Decoding never panics, whatever the bytes.
//!
//! # Rejected alternative
//! An offset per column, for access without walking: costs two bytes per column in each row, while walking is a few
//! nanoseconds per column and ends at the last column asked for.

mod apart;
mod columns;
pub(crate) mod convert;
mod former;
pub(crate) mod layout;
mod record;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use crate::kv::codec::{Reader, put_varint};

pub use apart::{APART_FROM, Apart};
pub use columns::ColumnSet;
pub use record::Record;
pub use values::Values;

use crate::def::{ColumnType, TableDef};
use crate::keycode::{CodecError, KeyCodec, Result};
use crate::schema::{FIRST_VERSION, TableMeta};
use former::Former;
use layout::{Layout, copy_short};

/// A stored column.
struct Field {
    column: usize,
    layout: Layout,
    /// Its number among the NULL bits; `usize::MAX` if NOT NULL.
    null_bit: usize,
}

/// A step of reading or writing a whole row.
enum Op {
    /// Bytes that lie in record and row alike: NOT NULL columns of fixed size, side by side.
    Run { offset: usize, length: usize },
    /// One column, by its number among the fields.
    Field(usize),
}

/// Encoder and decoder of the rows of one table.
pub struct RowCodec {
    /// The schema version of the rows that are written.
    version: u64,
    /// Of earlier ones, which may be read.
    former: Vec<Former>,
    clustered: Arc<KeyCodec>,
    /// Stored columns in order.
    fields: Vec<Field>,
    ops: Vec<Op>,
    /// Bytes of the NULL bits.
    null_bytes: usize,
    record_bytes: usize,
    /// Some column is to be had from the key.
    uses_key: bool,
    /// Room to begin with when encoding.
    usual_bytes: usize,
}

impl RowCodec {
    /// As [`RowCodec::new`], of a table with a history: it writes rows of the present schema version of `meta`, and reads those
    /// of every version.
    pub fn versioned(meta: &TableMeta, def: &TableDef, clustered: &Arc<KeyCodec>) -> Result<RowCodec> {
        let mut codec = RowCodec::new(def, clustered)?;
        codec.version = u64::from(meta.schema_version);
        codec.former =
            meta.former.iter().map(|schema| Former::new(meta, schema, def, clustered)).collect::<Result<_>>()?;
        Ok(codec)
    }

    /// The codec of `def`, whose clustered keys are those of `clustered`, in the first schema version.
    pub fn new(def: &TableDef, clustered: &Arc<KeyCodec>) -> Result<RowCodec> {
        if !clustered.is_clustered() {
            return Err(CodecError::Definition("rows lie under the clustered index".into()));
        }
        let mut fields = Vec::new();
        let mut ops: Vec<Op> = Vec::new();
        let mut null_bits = 0;
        let mut uses_key = false;
        let mut usual_bytes = 1;
        for (column, c) in def.columns.iter().enumerate() {
            let layout = Layout::of(def, column)?;
            if c.is_virtual {
                continue;
            }
            if clustered.recovers(column) {
                uses_key = true;
                continue;
            }
            let null_bit = if layout.nullable() { null_bits } else { usize::MAX };
            null_bits += usize::from(layout.nullable());
            usual_bytes += 2 + layout.size.min(256);
            let text = matches!(c.kind, ColumnType::Char | ColumnType::VarChar | ColumnType::Blob);
            if text || layout.nullable() {
                ops.push(Op::Field(fields.len()));
            } else {
                match ops.last_mut() {
                    Some(Op::Run { offset, length }) if *offset + *length == layout.offset => *length += layout.size,
                    _ => ops.push(Op::Run { offset: layout.offset, length: layout.size }),
                }
            }
            fields.push(Field { column, layout, null_bit });
        }
        let null_bytes = null_bits.div_ceil(8);
        Ok(RowCodec {
            version: u64::from(FIRST_VERSION),
            former: Vec::new(),
            clustered: Arc::clone(clustered),
            fields,
            ops,
            null_bytes,
            record_bytes: def.record_bytes as usize,
            uses_key,
            usual_bytes: usual_bytes + null_bytes,
        })
    }

    /// The row of a record, in place of what `out` held.
    pub fn encode(&self, record: Record<'_>, out: &mut Vec<u8>) {
        let whole = self.encode_from(record, usize::MAX, out);
        debug_assert!(whole.is_empty());
    }

    /// The row of a record, in place of what `out` held, but for long values, which stay where they are.
    pub fn encode_apart<'r>(&self, record: Record<'r>, out: &mut Vec<u8>) -> Apart<'r> {
        self.encode_from(record, APART_FROM, out)
    }

    #[inline]
    fn encode_from<'r>(&self, record: Record<'r>, apart_from: usize, out: &mut Vec<u8>) -> Apart<'r> {
        let mut apart = Apart::default();
        let bytes = record.bytes();
        self.check_record(bytes);
        out.clear();
        out.reserve(self.usual_bytes);
        put_varint(out, self.version);
        let nulls = out.len();
        out.resize(nulls + self.null_bytes, 0);
        for op in &self.ops {
            match *op {
                Op::Run { offset, length } => out.extend_from_slice(&bytes[offset..offset + length]),
                Op::Field(number) => {
                    let field = &self.fields[number];
                    let layout = &field.layout;
                    if layout.is_null(bytes) {
                        out[nulls + field.null_bit / 8] |= 1 << (field.null_bit % 8);
                        continue;
                    }
                    let text = match layout.kind {
                        ColumnType::Char => {
                            let slot = layout.fixed(bytes);
                            &slot[..layout.pad.trimmed(slot)]
                        }
                        ColumnType::VarChar => layout.varchar(bytes),
                        ColumnType::Blob => {
                            let value = layout.blob(record);
                            if value.len() >= apart_from {
                                put_varint(out, value.len() as u64);
                                apart.push(out.len(), value);
                                continue;
                            }
                            value
                        }
                        _ => {
                            out.extend_from_slice(layout.fixed(bytes));
                            continue;
                        }
                    };
                    put_varint(out, text.len() as u64);
                    out.extend_from_slice(text);
                }
            }
        }
        apart
    }

    /// True if a row was written in a schema version before the present one.
    #[inline]
    pub fn is_former(&self, row: &[u8]) -> bool {
        !self.former.is_empty() && Reader::new(row).varint() != Some(self.version)
    }

    /// Fills the stored columns among `columns` (or all) from a row and its clustered key, and leaves the rest of the
    /// record as it is. The pointers of BLOB columns lead into `value`: they may be followed only as long as its bytes
    /// stay where they are. After an error the columns are in no particular state.
    pub fn decode(&self, key: &[u8], value: &[u8], record: &mut [u8], columns: Option<&ColumnSet>) -> Result<()> {
        self.check_record(record);
        if self.uses_key {
            self.clustered.decode_key(key, record, columns)?;
        }
        let mut row = Reader::new(value);
        match row.varint() {
            Some(version) if version == self.version => {}
            Some(version) => return self.decode_former(version, &mut row, record, columns),
            None => return Err(CodecError::Corrupt("row without schema version".into())),
        }
        let Some(nulls) = row.take(self.null_bytes) else {
            return Err(CodecError::Corrupt("row ends within its NULL bits".into()));
        };
        let Some(columns) = columns else {
            for op in &self.ops {
                match *op {
                    Op::Run { offset, length } => {
                        let Some(bytes) = row.take(length) else {
                            return Err(CodecError::Corrupt(format!("row ends within the columns at {offset}")));
                        };
                        copy_short(&mut record[offset..offset + length], bytes);
                    }
                    Op::Field(number) => {
                        let field = &self.fields[number];
                        field.read(nulls, &mut row, record).ok_or_else(|| field.corrupt())?;
                    }
                }
            }
            if !row.is_empty() {
                return Err(CodecError::Corrupt(format!("{} bytes after the last column of a row", row.rest().len())));
            }
            return Ok(());
        };
        let Some(last) = columns.highest() else {
            return Ok(());
        };
        for field in &self.fields {
            if field.column > last {
                break;
            }
            let done = if columns.contains(field.column) {
                field.read(nulls, &mut row, record)
            } else {
                field.skip(nulls, &mut row)
            };
            done.ok_or_else(|| field.corrupt())?;
        }
        Ok(())
    }

    /// The rest of [`RowCodec::decode`] for a row that was not written in the present schema version.
    #[cold]
    fn decode_former(
        &self,
        version: u64,
        row: &mut Reader<'_>,
        record: &mut [u8],
        columns: Option<&ColumnSet>,
    ) -> Result<()> {
        match self.former.iter().find(|former| former.version == version) {
            Some(former) => former.decode(row, record, columns),
            None => Err(CodecError::Corrupt(format!("row of unknown schema version {version}"))),
        }
    }

    /// Puts the row under `key`, if it is of an earlier schema version than the codec's, into `out` as one of that. A row may be of a
    /// later one: the table has changed again.
    pub fn renew(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        if Reader::new(value).varint().is_some_and(|version| version >= self.version) {
            return Ok(false);
        }
        let mut record = vec![0; self.record_bytes];
        self.decode(key, value, &mut record, None)?;
        // SAFETY: the record was just filled; its pointers lead into `value`, or to what lives as long as this codec.
        self.encode(unsafe { Record::new(&record) }, out);
        Ok(true)
    }

    /// True if two rows under `key` are of different schema versions and have the same values: a merge may have written the one anew
    /// as the other.
    #[cold]
    pub fn is_renewed(&self, key: &[u8], row: &[u8], other: &[u8]) -> Result<bool> {
        if Reader::new(row).varint() == Reader::new(other).varint() {
            return Ok(false);
        }
        let mut bytes = vec![0; self.record_bytes];
        self.decode(key, row, &mut bytes, None)?;
        // SAFETY: the record was just filled; its pointers lead into `row`, or to what lives as long as this codec.
        self.is_row_of(unsafe { Record::new(&bytes) }, key, other)
    }

    /// True if the row under `key` has the values of `record`, whatever its schema version. For who has not the bytes that the
    /// record was read from.
    pub fn is_row_of(&self, record: Record<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut bytes = vec![0; self.record_bytes];
        self.decode(key, value, &mut bytes, None)?;
        // SAFETY: the record was just filled; its pointers lead into `value`, or to what lives as long as this codec.
        let stored = unsafe { Record::new(&bytes) };
        Ok(self.fields.iter().all(|field| field.layout.value(record) == field.layout.value(stored)))
    }

    /// As [`RowCodec::decode`], into the record at `record`.
    ///
    /// # Safety
    /// `record` leads to the table's `record_bytes` bytes, initialized, and nobody else uses them during the call.
    pub unsafe fn decode_raw(
        &self,
        key: &[u8],
        value: &[u8],
        record: *mut u8,
        columns: Option<&ColumnSet>,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let record = unsafe { std::slice::from_raw_parts_mut(record, self.record_bytes) };
        self.decode(key, value, record, columns)
    }

    /// A record of another table is a bug of the caller.
    fn check_record(&self, record: &[u8]) {
        assert!(record.len() >= self.record_bytes, "a record of {} bytes, not {}", record.len(), self.record_bytes);
    }
}

impl Field {
    #[inline]
    fn is_null(&self, nulls: &[u8]) -> bool {
        self.null_bit != usize::MAX && nulls[self.null_bit / 8] >> (self.null_bit % 8) & 1 != 0
    }

    #[inline]
    fn read(&self, nulls: &[u8], row: &mut Reader<'_>, record: &mut [u8]) -> Option<()> {
        let layout = &self.layout;
        if self.is_null(nulls) {
            layout.set_null(record);
            return Some(());
        }
        let fits = match layout.kind {
            ColumnType::Char | ColumnType::VarChar => layout.set_text(record, row.bytes()?),
            ColumnType::Blob => layout.set_blob(record, row.bytes()?),
            _ => {
                layout.fixed_mut(record).copy_from_slice(row.take(layout.size)?);
                true
            }
        };
        fits.then_some(())
    }

    #[inline]
    fn skip(&self, nulls: &[u8], row: &mut Reader<'_>) -> Option<()> {
        if self.is_null(nulls) {
            return Some(());
        }
        match self.layout.kind {
            ColumnType::Char | ColumnType::VarChar | ColumnType::Blob => row.bytes()?,
            _ => row.take(self.layout.size)?,
        };
        Some(())
    }

    #[cold]
    fn corrupt(&self) -> CodecError {
        CodecError::Corrupt(format!("row: no well-formed value of column {}", self.column))
    }
}
