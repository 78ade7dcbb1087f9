//! One part of a key: how a column becomes bytes and bytes a column.
//!
//! A key's program is a list of steps. Each step writes a self-delimiting piece: NULL marker (nullable columns only),
//! then a form that depends on the column; descending parts are inverted as a whole.

use std::cell::RefCell;
use std::sync::Arc;

use crate::kv::codec::{Reader, put_varint};

use super::error::{CodecError, Result};
use super::groups::{self, COUNTED, Spaces};
use super::number::{put_double, put_int, put_single, take_float, take_int};
use super::restore::{Part, Restorer, Scratch};
use crate::def::{Collation, ColumnType, KeyPart, TableDef};
use crate::rowcode::Record;
use crate::rowcode::layout::{Layout, copy_short, image_text};

/// Upper bound of the bytes that the weights of one character have: eight two-byte weights. The server's tables keep to it
/// (`MY_UCA_MAX_WEIGHT_SIZE`), a contraction's weights counted for each of its characters. Row references are as long as the
/// longest key.
const WEIGHT_BYTES_PER_CHAR: usize = 16;
/// The same of weights in up to three levels, each weight with a marker, and the end of each level.
const PADDED_BYTES_PER_CHAR: usize = 3 * 8 * 3;
const LEVEL_ENDS: usize = 3;

/// What a covering read needs besides the key to restore the column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unpack {
    /// Nothing.
    None,
    /// A float: whether it is the negative zero.
    Sign,
    /// A VARCHAR whose key holds all but the spaces at its end: how many there are.
    Spaces,
    /// Text of which the key holds only weights: the text.
    Original,
    /// The same: in what the text differs from what its weights usually are of, see [`Restorer`].
    Changes,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// What is weighed.
enum Source {
    /// The bytes of the text are its weights.
    Bytes,
    /// `Collation::weights`.
    Weights,
    /// `Collation::weights_padded`.
    Padded,
}

/// A part of variable length.
struct Text {
    source: Source,
    /// `None`: counted form.
    spaces: Option<Spaces>,
    /// Indexed characters.
    chars: usize,
    /// Cut the value to `chars` characters before it is weighed.
    cut: bool,
    /// Cut spaces at the end before weighing; the padded form would drop their weights anyway.
    trim: bool,
    /// Longest character in bytes.
    mbmaxlen: usize,
    collation: Arc<dyn Collation>,
    /// Of [`Unpack::Changes`].
    restorer: Option<Arc<Restorer>>,
}

enum Field {
    Int {
        unsigned: bool,
    },
    Float,
    Double,
    /// The first bytes as they are.
    Raw,
    Text(Box<Text>),
    /// The hidden row id, which is in no column.
    RowId,
    /// A term, which is in no column either.
    Term,
}

/// A part of a key.
pub(super) struct Step {
    /// Column number; `usize::MAX` for the hidden row id.
    pub(super) column: usize,
    pub(super) layout: Layout,
    field: Field,
    /// Bytes of the column that are indexed.
    length: usize,
    /// 0xff for descending parts: every byte of the part is stored xor this.
    pub(super) mask: u8,
    /// The part holds the whole column, not a prefix.
    pub(super) whole: bool,
    pub(super) unpack: Unpack,
    /// Bytes of the part in a key image of the server.
    pub(super) store_length: usize,
    /// Upper bound of the encoded length.
    pub(super) bytes_max: usize,
}

/// Longest term in bytes.
pub const TERM_BYTES_MAX: usize = 1024;
/// The column of a step that is a term.
const TERM_COLUMN: usize = usize::MAX - 1;

/// Bytes of a hidden row id.
pub(super) const ROW_ID_BYTES: usize = 8;

impl Step {
    /// The hidden row id.
    pub(super) fn row_id() -> Step {
        Step {
            column: usize::MAX,
            layout: Layout::nowhere(ColumnType::Bytes),
            field: Field::RowId,
            length: ROW_ID_BYTES,
            mask: 0,
            whole: false,
            unpack: Unpack::None,
            store_length: 0,
            bytes_max: ROW_ID_BYTES,
        }
    }

    /// A term: bytes, in counted groups.
    pub(super) fn term() -> Step {
        Step {
            column: TERM_COLUMN,
            layout: Layout::nowhere(ColumnType::VarChar),
            field: Field::Term,
            length: 0,
            mask: 0,
            whole: false,
            unpack: Unpack::None,
            store_length: 2 + TERM_BYTES_MAX,
            bytes_max: groups::encoded_len(TERM_BYTES_MAX, COUNTED),
        }
    }

    /// The same part where it follows a term: its column is not restored from there.
    pub(super) fn behind_term(self) -> Step {
        Step { whole: false, unpack: Unpack::None, ..self }
    }

    /// The step of an index part, whose unpack data has this form.
    pub(super) fn new(def: &TableDef, part: &KeyPart, unpack_form: u8) -> Result<Step> {
        let column = part.column as usize;
        let layout = Layout::of(def, column)?;
        let length = part.length as usize;
        let size = layout.size;
        let short = |what: &str| CodecError::Definition(format!("index part on column {column}: {what}"));
        if length == 0 && size != 0 {
            return Err(short("no bytes are indexed"));
        }
        let whole = layout.kind != ColumnType::Blob && length >= size;
        let fixed = !matches!(layout.kind, ColumnType::Char | ColumnType::VarChar | ColumnType::Blob);
        if fixed && length != size {
            return Err(short("a number cannot be indexed in part"));
        }
        let length = if whole { size } else { length };
        let image = usize::from(layout.nullable())
            + length
            + if matches!(layout.kind, ColumnType::VarChar | ColumnType::Blob) { 2 } else { 0 };
        if (part.store_length as usize) < image {
            return Err(short(&format!("store length {} is less than {image}", part.store_length)));
        }
        let (field, unpack) = match (layout.kind, &def.columns[column].collation) {
            (ColumnType::Int { unsigned }, _) => (Field::Int { unsigned }, Unpack::None),
            (ColumnType::Float, _) => (Field::Float, Unpack::Sign),
            (ColumnType::Double, _) => (Field::Double, Unpack::Sign),
            (ColumnType::Char, Some(collation)) if !collation.traits().binary => {
                text(&layout, collation, length, whole, unpack_form)?
            }
            (ColumnType::VarChar | ColumnType::Blob, Some(collation)) => {
                text(&layout, collation, length, whole, unpack_form)?
            }
            _ => (Field::Raw, Unpack::None),
        };
        let data_max = match &field {
            Field::Text(text) => {
                let bytes = match text.source {
                    Source::Bytes => length,
                    Source::Weights => text.chars.saturating_mul(WEIGHT_BYTES_PER_CHAR),
                    Source::Padded => text.chars.saturating_mul(PADDED_BYTES_PER_CHAR).saturating_add(LEVEL_ENDS),
                };
                groups::encoded_len(bytes, text.spaces.as_ref().map_or(COUNTED, Spaces::group_len))
            }
            _ => length,
        };
        Ok(Step {
            column,
            layout,
            field,
            length,
            mask: if part.descending { 0xff } else { 0 },
            whole,
            unpack: if whole { unpack } else { Unpack::None },
            store_length: part.store_length as usize,
            bytes_max: usize::from(layout.nullable()) + data_max,
        })
    }

    /// True if both steps write the same bytes for the same row, but for inversion.
    pub(super) fn same_bytes(&self, other: &Step) -> bool {
        self.column == other.column && self.length == other.length
    }

    /// True if the column can be had from the key (and unpack data).
    pub(super) fn restores(&self) -> bool {
        self.whole && !matches!(self.field, Field::RowId | Field::Term)
    }

    #[inline]
    fn null(&self, out: &mut Vec<u8>) {
        out.push(self.mask);
    }

    /// The indexed bytes of a column that is not NULL: the whole of a number, the full value of a text.
    #[inline]
    fn data<'a>(&self, record: Record<'a>) -> &'a [u8] {
        match self.layout.kind {
            ColumnType::VarChar => self.layout.varchar(record.bytes()),
            ColumnType::Blob => self.layout.blob(record),
            _ => {
                let slot = self.layout.fixed(record.bytes());
                &slot[..self.length]
            }
        }
    }

    /// Appends the part of a record.
    #[inline]
    pub(super) fn encode(&self, record: Record<'_>, row_id: u64, out: &mut Vec<u8>) {
        if self.layout.is_null(record.bytes()) {
            return self.null(out);
        }
        if let Field::RowId = self.field {
            out.extend_from_slice(&row_id.to_be_bytes());
            return;
        }
        self.value(self.data(record), out);
    }

    /// Appends the part of a key image that begins with it; returns whether it is NULL, or nothing if the image is bad.
    pub(super) fn encode_image(&self, image: &[u8], out: &mut Vec<u8>) -> Option<bool> {
        let mut data = image.get(..self.store_length)?;
        if self.layout.nullable() {
            let (&null, rest) = data.split_first()?;
            if null != 0 {
                self.null(out);
                return Some(true);
            }
            data = rest;
        }
        let data = match self.layout.kind {
            ColumnType::VarChar | ColumnType::Blob => image_text(data)?,
            _ => data.get(..self.length)?,
        };
        self.value(data, out);
        Some(false)
    }

    /// Appends a value that is not NULL.
    #[inline]
    pub(super) fn value(&self, data: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if self.layout.nullable() {
            out.push(1);
        }
        match &self.field {
            Field::Int { unsigned } => put_int(data, *unsigned, out),
            Field::Float => put_single(data, out),
            Field::Double => put_double(data, out),
            Field::Raw => out.extend_from_slice(data),
            Field::Text(text) => text.value(&self.layout, data, out),
            Field::RowId => {}
            Field::Term => {
                out.extend_from_slice(data);
                groups::finish_counted(out, start);
            }
        }
        if self.mask != 0 {
            for byte in &mut out[start..] {
                *byte = !*byte;
            }
        }
    }

    /// Appends a value of another table's column, see [`Layout::carried`]; false if none of this column's can be equal.
    pub(super) fn carried_value(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match &self.field {
            Field::Text(text) => {
                let value = text.without_padding(&self.layout, value);
                let is_char = self.layout.kind == ColumnType::Char;
                // No CHAR has spaces at its end.
                if is_char && self.layout.pad.trimmed(value) < value.len() || text.counts_chars() && !text.holds(value)
                {
                    return false;
                }
                if !is_char || !text.counts_chars() {
                    self.value(value, out);
                    return true;
                }
                let mut slot = vec![0; self.layout.size];
                let Some(start) = slot.get_mut(..value.len()) else { return false };
                start.copy_from_slice(value);
                self.layout.pad.fill(&mut slot[value.len()..]);
                self.value(&slot, out);
            }
            Field::Int { .. } | Field::Float | Field::Double | Field::Raw if value.len() == self.length => {
                self.value(value, out);
            }
            _ => return false,
        }
        true
    }

    /// End of the part that begins at `bytes[at]`, and whether it is NULL.
    #[inline]
    pub(super) fn skip(&self, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
        let (at, null) = self.marker(bytes, at)?;
        if null {
            return Some((at, true));
        }
        let end = match &self.field {
            Field::Text(text) => match &text.spaces {
                Some(spaces) => spaces.skip(bytes, at, self.mask)?,
                None => groups::skip_counted(bytes, at, self.mask)?,
            },
            Field::Term => groups::skip_counted(bytes, at, self.mask)?,
            _ => at + self.length,
        };
        (end <= bytes.len()).then_some((end, false))
    }

    #[inline]
    fn marker(&self, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
        if !self.layout.nullable() {
            return Some((at, false));
        }
        match bytes.get(at)? ^ self.mask {
            0 => Some((at + 1, true)),
            1 => Some((at + 1, false)),
            _ => None,
        }
    }

    /// As [`Step::decode`], for what most primary keys are: one NOT NULL number of four or eight bytes. Nothing for all else.
    #[inline]
    pub(super) fn decode_number(&self, bytes: &[u8], at: usize, record: &mut [u8]) -> Option<usize> {
        let Field::Int { unsigned } = self.field else { return None };
        if self.layout.nullable() {
            return None;
        }
        let (stored, slot) = (bytes.get(at..at + self.length)?, record.get_mut(self.layout.offset..)?);
        // Inverted as a whole if descending; the sign bit is always the first.
        let mask = i64::from(self.mask as i8) as u64;
        let sign = u64::from(!unsigned);
        if let (Ok(stored), Some(slot)) = (<[u8; 4]>::try_from(stored), slot.first_chunk_mut()) {
            *slot = (u32::from_be_bytes(stored) ^ mask as u32 ^ (sign << 31) as u32).to_le_bytes();
        } else if let (Ok(stored), Some(slot)) = (<[u8; 8]>::try_from(stored), slot.first_chunk_mut()) {
            *slot = (u64::from_be_bytes(stored) ^ mask ^ sign << 63).to_le_bytes();
        } else {
            return None;
        }
        Some(at + self.length)
    }

    /// Restores the column from the part that begins at `bytes[at]`, taking what it needs from `unpack`; returns the
    /// part's end. With `write` false the record is left alone, but `unpack` advances all the same.
    #[inline]
    pub(super) fn decode(
        &self,
        bytes: &[u8],
        at: usize,
        unpack: &mut Reader<'_>,
        record: &mut [u8],
        write: bool,
    ) -> Option<usize> {
        let (data, null) = self.marker(bytes, at)?;
        if null {
            if write && self.restores() {
                self.layout.set_null(record);
            }
            return Some(data);
        }
        if !write || !self.restores() {
            let (end, _) = self.skip(bytes, at)?;
            if self.restores() {
                self.skip_unpack(unpack)?;
            }
            return Some(end);
        }
        let mask = self.mask;
        match &self.field {
            Field::Int { unsigned } => {
                let stored = bytes.get(data..data + self.length)?;
                take_int(stored, *unsigned, mask, self.layout.fixed_mut(record));
                Some(data + self.length)
            }
            Field::Raw => {
                let stored = bytes.get(data..data + self.length)?;
                let slot = self.layout.fixed_mut(record);
                copy_short(slot, stored);
                if mask != 0 {
                    slot.iter_mut().for_each(|byte| *byte = !*byte);
                }
                Some(data + self.length)
            }
            Field::Float | Field::Double => {
                let stored = bytes.get(data..data + self.length)?;
                let slot = self.layout.fixed_mut(record);
                take_float(stored, mask, slot);
                if take_number(unpack)? == 1 {
                    slot[self.length - 1] |= 0x80;
                }
                Some(data + self.length)
            }
            Field::Text(text) => {
                if self.unpack == Unpack::Changes {
                    let (end, _) = self.skip(bytes, at)?;
                    return text.restore(&self.layout, &bytes[data..end], mask, unpack, record).then_some(end);
                }
                if self.unpack == Unpack::Original {
                    let (end, _) = self.skip(bytes, at)?;
                    let original = take_bytes(unpack)?;
                    return self.layout.set_text(record, original).then_some(end);
                }
                let slot_at = self.layout.offset + self.layout.length_bytes;
                let slot = &mut record[slot_at..slot_at + self.layout.size];
                let (mut length, end) = match &text.spaces {
                    Some(spaces) => spaces.read(bytes, data, mask, slot)?,
                    None => groups::read_counted(bytes, data, mask, slot)?,
                };
                if self.unpack == Unpack::Spaces {
                    let unit = self.layout.pad.unit().len();
                    let more = usize::try_from(take_number(unpack)?).ok()?.checked_mul(unit)?;
                    let filled = length.checked_add(more)?;
                    self.layout.pad.fill(slot.get_mut(length..filled)?);
                    length = filled;
                }
                self.layout.clear_null(record);
                self.layout.finish_text(record, length);
                Some(end)
            }
            Field::RowId | Field::Term => None,
        }
    }

    /// Appends what [`Step::decode`] takes from `unpack`; returns false if it is the default, which need not be stored
    /// at the end.
    pub(super) fn put_unpack(&self, record: Record<'_>, out: &mut Vec<u8>) -> bool {
        if self.unpack == Unpack::None || self.layout.is_null(record.bytes()) {
            return false;
        }
        let data = self.data(record);
        match self.unpack {
            Unpack::None => false,
            Unpack::Sign => {
                let negative_zero = data[self.length - 1] == 0x80 && data[..self.length - 1].iter().all(|&b| b == 0);
                out.push(u8::from(negative_zero));
                negative_zero
            }
            Unpack::Spaces => {
                let spaces = (data.len() - self.layout.pad.trimmed(data)) / self.layout.pad.unit().len();
                put_varint(out, spaces as u64);
                spaces != 0
            }
            Unpack::Changes => matches!(&self.field, Field::Text(text) if text.put_changes(&self.layout, data, out)),
            Unpack::Original => {
                let data = original(&self.layout, data);
                put_varint(out, data.len() as u64);
                out.extend_from_slice(data);
                !data.is_empty()
            }
        }
    }

    fn skip_unpack(&self, unpack: &mut Reader<'_>) -> Option<()> {
        match self.unpack {
            Unpack::None => {}
            Unpack::Sign | Unpack::Spaces => {
                take_number(unpack)?;
            }
            Unpack::Original => {
                take_bytes(unpack)?;
            }
            Unpack::Changes => match &self.field {
                Field::Text(text) => text.restorer.as_ref()?.skip(unpack)?,
                _ => return None,
            },
        }
        Some(())
    }
}

/// The text to restore: of CHAR without padding at the end.
fn original<'a>(layout: &Layout, data: &'a [u8]) -> &'a [u8] {
    match layout.kind {
        ColumnType::Char => &data[..layout.pad.trimmed(data)],
        _ => data,
    }
}

/// A number of the unpack data; beyond its end everything is 0.
fn take_number(unpack: &mut Reader<'_>) -> Option<u64> {
    if unpack.is_empty() { Some(0) } else { unpack.varint() }
}

/// A text of the unpack data; beyond its end everything is empty.
fn take_bytes<'a>(unpack: &mut Reader<'a>) -> Option<&'a [u8]> {
    if unpack.is_empty() { Some(&[]) } else { unpack.bytes() }
}

/// Chooses the form of a text part.
fn text(
    layout: &Layout,
    collation: &Arc<dyn Collation>,
    length: usize,
    whole: bool,
    unpack_form: u8,
) -> Result<(Field, Unpack)> {
    let traits = collation.traits();
    let char_column = layout.kind == ColumnType::Char;
    let mbmaxlen = traits.mbmaxlen.max(1) as usize;
    let chars = length / mbmaxlen;
    let source = if traits.binary || traits.bytes {
        Source::Bytes
    } else if traits.multilevel {
        Source::Padded
    } else {
        Source::Weights
    };
    let spaces = match source {
        Source::Padded => None,
        _ if traits.binary => None,
        // A CHAR of byte order counts as padded even under NO PAD: both values have the same number of characters, so
        // neither is the beginning of the other, and the order is that of the padded form.
        Source::Bytes if traits.pad || char_column => Spaces::new(layout.pad.unit()),
        Source::Weights if traits.pad => {
            let mut weight = Vec::new();
            collation.weights(layout.pad.unit(), usize::MAX, &mut weight);
            Spaces::new(&weight)
        }
        _ => None,
    };
    let restorer = match source {
        Source::Weights if whole && unpack_form > 1 => Restorer::of(&**collation),
        _ => None,
    };
    let unpack = match source {
        Source::Bytes if char_column || spaces.is_none() => Unpack::None,
        Source::Bytes => Unpack::Spaces,
        _ if restorer.is_some() => Unpack::Changes,
        _ => Unpack::Original,
    };
    // The slot of a CHAR may hold more characters than the column has, all of them spaces; where spaces count
    // (NO PAD), or room is made for a number of characters, they must go.
    let cut = !whole || (char_column && spaces.is_none());
    let trim = spaces.is_some();
    let collation = Arc::clone(collation);
    let chars = if traits.binary { length } else { chars };
    let field = Text { source, spaces, chars, cut, trim, mbmaxlen, collation, restorer };
    Ok((Field::Text(Box::new(field)), unpack))
}

impl Text {
    /// What is weighed depends on how many characters the column has.
    fn counts_chars(&self) -> bool {
        self.cut || matches!(self.source, Source::Padded)
    }

    /// True if the column has room for so many characters.
    fn holds(&self, value: &[u8]) -> bool {
        value.len() <= self.chars || self.collation.prefix_bytes(value, self.chars) >= value.len()
    }

    /// The value without spaces at its end, if these do not count.
    fn without_padding<'a>(&self, layout: &Layout, value: &'a [u8]) -> &'a [u8] {
        match self.collation.traits().pad {
            true => &value[..layout.pad.trimmed(value)],
            false => value,
        }
    }

    /// What is weighed of a value.
    fn weighed<'a>(&self, layout: &Layout, mut data: &'a [u8]) -> &'a [u8] {
        if self.cut && data.len() > self.chars {
            let end = if self.mbmaxlen == 1 { self.chars } else { self.collation.prefix_bytes(data, self.chars) };
            data = &data[..end.min(data.len())];
        }
        if self.trim {
            data = &data[..layout.pad.trimmed(data)];
        }
        data
    }

    fn value(&self, layout: &Layout, data: &[u8], out: &mut Vec<u8>) {
        let data = self.weighed(layout, data);
        let start = out.len();
        match self.source {
            Source::Bytes => out.extend_from_slice(data),
            // The text is cut already; a limit here could cut a character that has several weights.
            Source::Weights if self.restorer.is_some() => SCRATCH.with_borrow_mut(|scratch| {
                scratch.weigh(&*self.collation, data);
                out.extend_from_slice(&scratch.bytes);
            }),
            Source::Weights => self.collation.weights(data, usize::MAX, out),
            Source::Padded => self.collation.weights_padded(data, self.chars, out),
        }
        match &self.spaces {
            Some(spaces) => spaces.finish(out, start),
            None => groups::finish_counted(out, start),
        }
    }

    /// Appends what restores a value from its weights; false if that is nothing.
    fn put_changes(&self, layout: &Layout, data: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(restorer) = &self.restorer else { return false };
        let (original, weighed) = (original(layout, data), self.weighed(layout, data));
        let spaces = original.len().saturating_sub(weighed.len()) / layout.pad.unit().len();
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.weigh(&*self.collation, weighed);
            // As a reader finds them.
            let length = self.spaces.as_ref().map_or(usize::MAX, |spaces| spaces.trimmed(&scratch.bytes));
            restorer.put(original, weighed, spaces, length, scratch, out)
        })
    }

    /// Restores a value from the part of a key that is `part`; false if the bytes are malformed.
    fn restore(&self, layout: &Layout, part: &[u8], mask: u8, unpack: &mut Reader<'_>, record: &mut [u8]) -> bool {
        let Some(restorer) = &self.restorer else { return false };
        let part = Part { groups: part, mask, spaces: self.spaces.as_ref() };
        SCRATCH.with_borrow_mut(|scratch| {
            restorer.take(&part, layout.pad.unit(), unpack, scratch).is_some() && layout.set_text(record, &scratch.text)
        })
    }
}
