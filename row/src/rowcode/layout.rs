//! Where a column lies in the server's record, checked once so that the codecs may index without asking again.
//!
//! # Invariants
//! [`Layout::of`] accepts a column only if its slot and its NULL bit lie inside the record and its size fits its kind.
//! The codecs compare the length of a record with `record_bytes` before they touch it; so no access here is out of
//! bounds.

use super::record::{POINTER_BYTES, Record, load_le, store_blob, store_le};
use crate::def::{Collation, ColumnType, TableDef};
use crate::keycode::{CodecError, Result};

/// The character that fills up a CHAR: a space in the column's character set, or 0x00 for BINARY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pad {
    bytes: [u8; 4],
    len: u8,
}

impl Pad {
    /// For columns that are never padded.
    pub(crate) const ZERO: Pad = Pad { bytes: [0; 4], len: 1 };

    /// The padding of `collation`.
    pub(crate) fn of(collation: &dyn Collation) -> Pad {
        let traits = collation.traits();
        if traits.binary {
            return Pad::ZERO;
        }
        let len = traits.mbminlen.clamp(1, 4);
        let mut bytes = [0; 4];
        // Of the character sets with wide units only utf16le is little-endian, and nothing but its name tells.
        let at = if collation.name().starts_with("utf16le") { 0 } else { len as usize - 1 };
        bytes[at] = b' ';
        Pad { bytes, len }
    }

    /// One character.
    pub(crate) fn unit(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// Length of `text` without the padding at its end.
    pub(crate) fn trimmed(&self, text: &[u8]) -> usize {
        let unit = self.unit();
        if let [byte] = *unit {
            let eight = u64::from_ne_bytes([byte; 8]);
            let mut end = text.len();
            // Most of a multi-byte CHAR is padding: four words at a time.
            while end >= 32 && text[end - 32..end].iter().fold(0, |other, &b| other | (b ^ byte)) == 0 {
                end -= 32;
            }
            while end >= 8 {
                let mut word = [0; 8];
                word.copy_from_slice(&text[end - 8..end]);
                if u64::from_ne_bytes(word) != eight {
                    break;
                }
                end -= 8;
            }
            while end > 0 && text[end - 1] == byte {
                end -= 1;
            }
            return end;
        }
        let mut end = text.len();
        if end % unit.len() == 0 {
            while end > 0 && text[end - unit.len()..end] == *unit {
                end -= unit.len();
            }
        }
        end
    }

    /// Fills `slot` with padding.
    pub(crate) fn fill(&self, slot: &mut [u8]) {
        if let [byte] = *self.unit() {
            slot.fill(byte);
            return;
        }
        for (i, byte) in slot.iter_mut().enumerate() {
            *byte = self.bytes[i % self.len as usize];
        }
    }
}

/// A column's place in the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) kind: ColumnType,
    pub(crate) offset: usize,
    /// Data bytes, without a length prefix.
    pub(crate) size: usize,
    pub(crate) length_bytes: usize,
    null_offset: usize,
    null_mask: u8,
    null_first: u8,
    pub(crate) pad: Pad,
}

impl Layout {
    /// Of what is in no column.
    pub(crate) fn nowhere(kind: ColumnType) -> Layout {
        let [offset, size, length_bytes, null_offset] = [0; 4];
        Layout { kind, offset, size, length_bytes, null_offset, null_mask: 0, null_first: 0, pad: Pad::ZERO }
    }

    /// The place of column number `column`.
    pub(crate) fn of(def: &TableDef, column: usize) -> Result<Layout> {
        let wrong = |what: String| CodecError::Definition(format!("column {column}: {what}"));
        let Some(c) = def.columns.get(column) else {
            return Err(wrong(format!("the table has {} columns", def.columns.len())));
        };
        let pad = match &c.collation {
            Some(collation) => Pad::of(&**collation),
            None => Pad::ZERO,
        };
        let layout = Layout {
            kind: c.kind,
            offset: c.offset as usize,
            size: c.size as usize,
            length_bytes: c.length_bytes as usize,
            null_offset: c.null_offset as usize,
            null_mask: c.null_mask,
            null_first: c.null_first,
            pad,
        };
        let sized = match c.kind {
            ColumnType::Int { .. } => (1..=8).contains(&c.size),
            ColumnType::Float => c.size == 4,
            ColumnType::Double => c.size == 8,
            ColumnType::Bytes => c.length_bytes == 0,
            ColumnType::Char => c.length_bytes == 0 && c.size as usize % pad.unit().len() == 0,
            ColumnType::VarChar => matches!(c.length_bytes, 1 | 2) && c.size < 1 << (8 * c.length_bytes),
            ColumnType::Blob => matches!(c.length_bytes, 1..=4),
        };
        if !sized {
            return Err(wrong(format!("{:?} cannot have size {} and {} length bytes", c.kind, c.size, c.length_bytes)));
        }
        let text = matches!(c.kind, ColumnType::Char | ColumnType::VarChar | ColumnType::Blob);
        if text && c.collation.is_none() {
            return Err(wrong("a text column needs a collation".into()));
        }
        let record_bytes = def.record_bytes as usize;
        if layout.offset + layout.slot_bytes() > record_bytes {
            return Err(wrong(format!("slot at {} ends beyond the record of {record_bytes} bytes", c.offset)));
        }
        if c.null_mask != 0 && layout.null_offset >= record_bytes {
            return Err(wrong(format!("NULL bit at {} lies beyond the record", c.null_offset)));
        }
        Ok(layout)
    }

    /// Bytes of the slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        match self.kind {
            ColumnType::Blob => self.length_bytes + POINTER_BYTES,
            _ => self.length_bytes + self.size,
        }
    }

    pub(crate) fn nullable(&self) -> bool {
        self.null_mask != 0
    }

    #[inline]
    pub(crate) fn is_null(&self, record: &[u8]) -> bool {
        self.null_mask != 0 && record[self.null_offset] & self.null_mask != 0
    }

    /// The bytes of a fixed-size column.
    #[inline]
    pub(crate) fn fixed<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.offset..self.offset + self.size]
    }

    /// The value of a VARCHAR.
    #[inline]
    pub(crate) fn varchar<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let at = self.offset + self.length_bytes;
        let length = match self.length_bytes {
            1 => record[self.offset] as usize,
            _ => u16::from_le_bytes([record[self.offset], record[self.offset + 1]]) as usize,
        };
        &record[at..at + length.min(self.size)]
    }

    /// The value of a BLOB.
    pub(crate) fn blob<'a>(&self, record: Record<'a>) -> &'a [u8] {
        record.blob(self.offset, self.length_bytes)
    }

    /// The value as a row has it, without a length; `None` is NULL.
    pub(crate) fn value<'a>(&self, record: Record<'a>) -> Option<&'a [u8]> {
        if self.is_null(record.bytes()) {
            return None;
        }
        Some(match self.kind {
            ColumnType::Char => {
                let slot = self.fixed(record.bytes());
                &slot[..self.pad.trimmed(slot)]
            }
            ColumnType::VarChar => self.varchar(record.bytes()),
            ColumnType::Blob => self.blob(record),
            _ => self.fixed(record.bytes()),
        })
    }

    /// The value as a comparable column of another table takes it: text without padding, everything else byte by byte; `None` is
    /// NULL.
    pub(crate) fn carried<'a>(&self, record: Record<'a>) -> Option<&'a [u8]> {
        match self.is_binary_char() && !self.is_null(record.bytes()) {
            true => Some(self.fixed(record.bytes())),
            false => self.value(record),
        }
    }

    /// Takes a carried value; false if the column cannot have it.
    pub(crate) fn carry(&self, record: &mut [u8], value: Option<&[u8]>) -> bool {
        let Some(value) = value else {
            self.set_null(record);
            return self.nullable();
        };
        match self.kind {
            ColumnType::Char | ColumnType::VarChar if !self.is_binary_char() => self.set_text(record, value),
            ColumnType::Blob => false,
            _ if value.len() == self.size => {
                self.fixed_mut(record).copy_from_slice(value);
                true
            }
            _ => false,
        }
    }

    /// BINARY: the zeros at its end are part of the value.
    fn is_binary_char(&self) -> bool {
        self.kind == ColumnType::Char && self.pad == Pad::ZERO
    }

    /// Greatest length a BLOB of this column can have.
    pub(crate) fn blob_bytes_max(&self) -> usize {
        ((1u64 << (8 * self.length_bytes)) - 1) as usize
    }

    /// The slot of a fixed-size column, to be filled; the NULL bit is cleared.
    #[inline]
    pub(crate) fn fixed_mut<'r>(&self, record: &'r mut [u8]) -> &'r mut [u8] {
        self.clear_null(record);
        &mut record[self.offset..self.offset + self.size]
    }

    #[inline]
    pub(crate) fn clear_null(&self, record: &mut [u8]) {
        if self.null_mask != 0 {
            record[self.null_offset] &= !self.null_mask;
        }
    }

    /// Makes the column NULL: the bit, and data bytes as of an empty value.
    pub(crate) fn set_null(&self, record: &mut [u8]) {
        if self.null_mask != 0 {
            record[self.null_offset] |= self.null_mask;
        }
        match self.kind {
            ColumnType::Char => self.pad.fill(&mut record[self.offset..self.offset + self.size]),
            // The whole slot: the server compares old and new records byte by byte, also under NULL.
            _ => {
                let slot = &mut record[self.offset..self.offset + self.slot_bytes()];
                slot.fill(0);
                if let Some(first) = slot.first_mut() {
                    *first = self.null_first;
                }
            }
        }
    }

    /// Puts `text` into a CHAR or VARCHAR; false if it does not fit.
    pub(crate) fn set_text(&self, record: &mut [u8], text: &[u8]) -> bool {
        if text.len() > self.size {
            return false;
        }
        self.clear_null(record);
        let at = self.offset + self.length_bytes;
        record[at..at + text.len()].copy_from_slice(text);
        self.finish_text(record, text.len());
        true
    }

    /// The first `length` data bytes of a CHAR or VARCHAR are in place: pads the rest, or sets the length.
    pub(crate) fn finish_text(&self, record: &mut [u8], length: usize) {
        if self.kind == ColumnType::Char {
            self.pad.fill(&mut record[self.offset + length..self.offset + self.size]);
        } else {
            store_le(&mut record[self.offset..self.offset + self.length_bytes], length as u64);
        }
    }

    /// Makes a BLOB slot lead to `value`; false if the column cannot be that long.
    pub(crate) fn set_blob(&self, record: &mut [u8], value: &[u8]) -> bool {
        if value.len() > self.blob_bytes_max() {
            return false;
        }
        self.clear_null(record);
        store_blob(&mut record[self.offset..self.offset + self.slot_bytes()], self.length_bytes, value);
        true
    }
}

/// The two length bytes before a VARCHAR or BLOB in a key image, and what follows of it.
pub(crate) fn image_text(image: &[u8]) -> Option<&[u8]> {
    let (length, data) = image.split_at_checked(2)?;
    data.get(..load_le(length) as usize)
}

/// Copies a slice of the same length. Most columns are a few bytes long: not worth a call of memcpy.
#[inline]
pub(crate) fn copy_short(to: &mut [u8], from: &[u8]) {
    match (to, from) {
        ([a], &[x]) => *a = x,
        ([a, b], &[x, y]) => (*a, *b) = (x, y),
        ([a, b, c], &[x, y, z]) => (*a, *b, *c) = (x, y, z),
        ([a, b, c, d], &[x, y, z, w]) => (*a, *b, *c, *d) = (x, y, z, w),
        (to, from) => to.copy_from_slice(from),
    }
}
