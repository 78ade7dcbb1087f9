//! What a table's `.frm` file says of it: the server's types, which the engine does not know.
//!
//! ```text
//! 64 bytes       FE 01, format, engine; at 4 length of the next part, 6 where the keys begin, 16 bytes of a record, 30 options,
//!                38 and 41 number of the default collation, 47 length of the keys
//! extra          entries of type, length (1 byte, or 0 and 2 bytes) and content; at its end (4 bytes) where the form begins
//! keys           number of keys and parts, then per key 8 bytes and 9 per part; names between bytes FF
//! record         the defaults
//! strings        connection, engine, partitions, each behind its length
//! form           288 bytes; at 46 the table's comment, 258 number of columns, 268 bytes of names, 270 number of value lists,
//!                274 their bytes, 284 bytes of comments, 286 bytes of expressions
//! columns        17 bytes each: at 3 length, 5 place in the record + 1, 8 flags, 10 use, 11 and 14 collation, 12 list, 13 type,
//!                15 length of the comment
//! names, lists   separated by FF (a list by its first byte), each ending with 0; then comments; then expressions behind 16 bytes
//! ```
//!
//! Numbers are little-endian. Only files of MariaDB 10.2 and later are read: those that can belong to a table of Strata.
//!
//! Invariant: whatever the bytes, what is wrong is an error and no panic.

use anyhow::{Context, Result, ensure};

const HEADER: usize = 64;
const FORM: usize = 288;
const COLUMN: usize = 17;
const EXPRESSIONS: usize = 16;
const SEPARATOR: u8 = 0xff;
const FIELD_NUMBER: u16 = 0x3fff;

/// The number of the collation `binary`.
pub const BINARY_COLLATION: u32 = 63;
/// The use of columns that the server compresses.
const COMPRESSED: u8 = 24;

const DECIMAL: u16 = 1;
const ZEROFILL: u16 = 4;
const NO_DEFAULT: u16 = 0x4000;
const MAYBE_NULL: u16 = 0x8000;
const OPTION_PACK_RECORD: u16 = 1;

/// A column of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrmColumn {
    /// Its name.
    pub name: String,
    /// The server's number of its type.
    pub kind: u8,
    /// What the server calls its length.
    pub length: u16,
    /// Digits behind the point.
    pub decimals: u8,
    /// Without sign.
    pub unsigned: bool,
    /// Filled with zeros.
    pub zerofill: bool,
    /// May be NULL.
    pub nullable: bool,
    /// Number of the collation; of a geometry its kind.
    pub collation: u32,
    /// Values of an ENUM or SET, in the column's character set.
    pub values: Vec<Vec<u8>>,
    /// The comment.
    pub comment: String,
    /// `DEFAULT NOW()`, `ON UPDATE NOW()`.
    pub default_now: bool,
    /// See `default_now`.
    pub update_now: bool,
    /// Bytes of the default in a record; `None` if there is none. The inner one: NULL.
    pub default: Option<Option<Vec<u8>>>,
    /// `DEFAULT (...)`.
    pub default_expression: Option<String>,
    /// `GENERATED ALWAYS AS (...)`, and whether it is stored.
    pub generated: Option<(String, bool)>,
    /// `CHECK (...)`.
    pub check: Option<String>,
    /// 0: seen; 1: INVISIBLE; more: the server's own.
    pub invisible: u8,
    /// The server compresses its values.
    pub compressed: bool,
    /// The name of a type that a plugin has.
    pub plugin_type: Option<String>,
    /// Where its bytes are in a record.
    pub(crate) place: usize,
}

/// A key of it.
#[derive(Clone, Debug, PartialEq)]
pub struct FrmKey {
    /// Its name.
    pub name: String,
    /// Numbers of the columns, and indexed bytes.
    pub parts: Vec<(usize, u16)>,
}

/// A table's definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frm {
    /// Columns.
    pub columns: Vec<FrmColumn>,
    /// Keys.
    pub keys: Vec<FrmKey>,
    /// Number of the default collation.
    pub collation: u32,
    /// The comment.
    pub comment: String,
    /// `PARTITION BY ...`.
    pub partitions: Option<String>,
    /// Columns where a row's period begins and ends, of a table with system versions.
    pub system_time: Option<(usize, usize)>,
    /// Name and columns of the table's own period.
    pub period: Option<(String, usize, usize)>,
    /// Name and text of the table's checks.
    pub checks: Vec<(String, String)>,
}

/// Bytes of the file.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn at(&self, at: usize, len: usize) -> Result<&'a [u8]> {
        let end = at.checked_add(len);
        end.and_then(|end| self.0.get(at..end)).with_context(|| format!("the .frm file ends before byte {at} + {len}"))
    }
    fn u8(&self, at: usize) -> Result<u8> {
        Ok(self.at(at, 1)?[0])
    }
    fn u16(&self, at: usize) -> Result<u16> {
        let b = self.at(at, 2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }
    fn u32(&self, at: usize) -> Result<u32> {
        let b = self.at(at, 4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads a file's content.
pub fn parse(content: &[u8]) -> Result<Frm> {
    let file = Bytes(content);
    ensure!(file.at(0, 2)? == [0xfe, 1], "not a .frm file of a table");
    let mut frm = Frm { collation: u32::from(file.u8(38)?) | u32::from(file.u8(41)?) << 8, ..Frm::default() };
    let extra_end = HEADER + usize::from(file.u16(4)?);
    let keys = usize::from(file.u16(6)?);
    let defaults = keys + file.u32(47)? as usize;
    let record_bytes = usize::from(file.u16(16)?);
    let form = file.u32(extra_end)? as usize;
    let count = usize::from(file.u16(form + 258)?);
    let mut comment_lengths = Vec::new();
    let mut lists = Vec::new();
    for number in 0..count {
        let at = form + FORM + number * COLUMN;
        let (column, list) = column(&file, at)?;
        frm.columns.push(column);
        comment_lengths.push(usize::from(file.u16(at + 15)?));
        lists.push(list);
    }
    let mut at = form + FORM + count * COLUMN;
    let names = file.at(at, usize::from(file.u16(form + 268)?))?;
    at += names.len();
    let split = names.split(|&byte| byte == SEPARATOR).skip(1);
    for (column, name) in frm.columns.iter_mut().zip(split) {
        column.name = text(name);
    }
    let values = file.at(at, usize::from(file.u16(form + 274)?))?;
    at += values.len();
    let values = value_lists(values, usize::from(file.u16(form + 270)?))?;
    for (column, list) in frm.columns.iter_mut().zip(lists).filter(|(_, list)| *list > 0) {
        column.values.clone_from(values.get(list - 1).context("a list of values that is not there")?);
    }
    for (column, len) in frm.columns.iter_mut().zip(comment_lengths) {
        column.comment = text(file.at(at, len)?);
        at += len;
    }
    expressions(&mut frm, file.at(at, content.len().saturating_sub(at))?)?;
    read_defaults(&mut frm, file.at(defaults, record_bytes)?, file.u16(30)?)?;
    extras(&mut frm, file.at(HEADER, extra_end - HEADER)?)?;
    frm.keys = read_keys(&file, keys)?;
    strings(&mut frm, &file, defaults + record_bytes, form)?;
    Ok(frm)
}

/// A column, but for its name, and the number of its list of values.
fn column(file: &Bytes<'_>, at: usize) -> Result<(FrmColumn, usize)> {
    let flags = file.u16(at + 8)?;
    let place = u32::from_le_bytes([file.u8(at + 5)?, file.u8(at + 6)?, file.u8(at + 7)?, 0]);
    let usage = file.u8(at + 10)?;
    let column = FrmColumn {
        kind: file.u8(at + 13)?,
        length: file.u16(at + 3)?,
        decimals: (flags >> 8 & 63) as u8,
        unsigned: flags & DECIMAL == 0,
        zerofill: flags & ZEROFILL != 0,
        nullable: flags & MAYBE_NULL != 0,
        collation: u32::from(file.u8(at + 14)?) | u32::from(file.u8(at + 11)?) << 8,
        default_now: matches!(usage, 21 | 23),
        update_now: matches!(usage, 22 | 23),
        compressed: usage == COMPRESSED,
        // What has no default, or one of another kind, is told apart when the record is read.
        default: (flags & NO_DEFAULT == 0 && usage != 15).then_some(None),
        place: (place as usize).checked_sub(1).context("a column before the record")?,
        ..FrmColumn::default()
    };
    Ok((column, usize::from(file.u8(at + 12)?)))
}

/// The lists of values, each separated by the byte it begins with.
fn value_lists(mut bytes: &[u8], count: usize) -> Result<Vec<Vec<Vec<u8>>>> {
    let mut lists = Vec::new();
    for _ in 0..count {
        let (&separator, rest) = bytes.split_first().context("a list of values is missing")?;
        let mut list = Vec::new();
        let mut rest = rest;
        while let Some(end) = rest.iter().position(|&byte| byte == separator) {
            list.push(rest[..end].to_vec());
            rest = &rest[end + 1..];
            if rest.first() == Some(&0) {
                break;
            }
        }
        bytes = rest.get(1..).context("a list of values does not end")?;
        lists.push(list);
    }
    Ok(lists)
}

/// Generated columns, defaults and checks.
fn expressions(frm: &mut Frm, bytes: &[u8]) -> Result<()> {
    let file = Bytes(bytes);
    let mut at = EXPRESSIONS;
    while at + 6 <= bytes.len() {
        let (kind, number) = (file.u8(at)?, usize::from(file.u16(at + 1)?));
        let (expression, name) = (usize::from(file.u16(at + 3)?), usize::from(file.u8(at + 5)?));
        let name_text = text(file.at(at + 6, name)?);
        let expression_text = text(file.at(at + 6 + name, expression)?);
        at += 6 + name + expression;
        if kind == 4 {
            frm.checks.push((name_text, expression_text));
            continue;
        }
        let column = frm.columns.get_mut(number).context("an expression of a column that is not there")?;
        match kind {
            0 | 1 => column.generated = Some((expression_text, kind == 1)),
            2 => column.default_expression = Some(expression_text),
            3 => column.check = Some(expression_text),
            _ => {}
        }
    }
    Ok(())
}

/// Bytes that a column has in a record; `None` if they are of no use as a default.
fn slot_bytes(column: &FrmColumn) -> Option<usize> {
    let fraction = |whole: u16| usize::from((column.length.saturating_sub(whole + 1)).div_ceil(2));
    Some(match column.kind {
        1 | 13 => 1,
        2 => 2,
        9 | 14 => 3,
        3 | 4 => 4,
        5 | 8 => 8,
        17 => 4 + fraction(19),
        18 => 5 + fraction(19),
        19 => 3 + fraction(10),
        246 => crate::value::decimal_bytes(precision(column), column.decimals),
        247 => 1 + usize::from(column.values.len() > 255),
        248 => match column.values.len().div_ceil(8) {
            bytes @ 0..=4 => bytes.max(1),
            _ => 8,
        },
        16 => usize::from(column.length.div_ceil(8)),
        254 => usize::from(column.length),
        15 => usize::from(column.length) + 1 + usize::from(column.length > 255),
        _ => return None,
    })
}

/// Digits of a DECIMAL.
pub fn precision(column: &FrmColumn) -> u8 {
    let signs = u16::from(column.decimals > 0) + u16::from(!column.unsigned);
    column.length.saturating_sub(signs) as u8
}

fn read_defaults(frm: &mut Frm, record: &[u8], options: u16) -> Result<()> {
    let mut null_bit = usize::from(options & OPTION_PACK_RECORD == 0);
    for column in &mut frm.columns {
        let is_null = column.nullable && record.get(null_bit / 8).is_some_and(|byte| byte >> (null_bit % 8) & 1 != 0);
        null_bit += usize::from(column.nullable);
        let is_other = column.generated.is_some() || column.default_expression.is_some() || column.default_now;
        if column.default.is_none() || is_other {
            column.default = None;
        } else if !is_null {
            let bytes = slot_bytes(column).and_then(|bytes| record.get(column.place..column.place + bytes));
            column.default = bytes.map(|bytes| Some(bytes.to_vec()));
        }
    }
    Ok(())
}

fn extras(frm: &mut Frm, bytes: &[u8]) -> Result<()> {
    let file = Bytes(bytes);
    let mut at = 0;
    while at + 2 <= bytes.len() {
        let kind = file.u8(at)?;
        let (len, head) = match file.u8(at + 1)? {
            0 => (usize::from(file.u16(at + 2)?), 4),
            len => (usize::from(len), 2),
        };
        let content = Bytes(file.at(at + head, len)?);
        at += head + len;
        match kind {
            3 => {
                let name = usize::from(content.u8(0)?);
                let constraint = usize::from(content.u8(1 + name)?);
                let columns = 2 + name + constraint;
                let column = |at| content.u16(at).map(usize::from);
                frm.period = Some((text(content.at(1, name)?), column(columns)?, column(columns + 2)?));
            }
            4 => frm.system_time = Some((usize::from(content.u16(0)?), usize::from(content.u16(2)?))),
            129 => {
                for (column, flags) in frm.columns.iter_mut().zip(content.0) {
                    column.invisible = flags & 3;
                }
            }
            130 => {
                let mut at = 0;
                while at + 2 <= content.0.len() {
                    let (number, first) = match content.u8(at)? {
                        252 => (usize::from(content.u16(at + 1)?), at + 3),
                        number => (usize::from(number), at + 1),
                    };
                    let len = usize::from(content.u8(first)?);
                    let name = text(content.at(first + 1, len)?);
                    at = first + 1 + len;
                    if let Some(column) = frm.columns.get_mut(number) {
                        column.plugin_type = Some(name);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn read_keys(file: &Bytes<'_>, keys: usize) -> Result<Vec<FrmKey>> {
    let first = file.u8(keys)?;
    let count = match first & 0x80 {
        0 => usize::from(first),
        _ => usize::from(file.u8(keys + 1)?) << 7 | usize::from(first & 0x7f),
    };
    let mut found = Vec::new();
    let mut at = keys + 6;
    for _ in 0..count {
        let parts = usize::from(file.u8(at + 4)?);
        at += 8;
        let part = |part: usize| -> Result<(usize, u16)> {
            let column = file.u16(at + part * 9)? & FIELD_NUMBER;
            let column = usize::from(column).checked_sub(1).context("a key of no column")?;
            Ok((column, file.u16(at + part * 9 + 7)?))
        };
        found.push(FrmKey { name: String::new(), parts: (0..parts).map(part).collect::<Result<_>>()? });
        at += parts * 9;
    }
    let names = file.at(at, usize::from(file.u16(keys + 4)?).min(file.0.len().saturating_sub(at)))?;
    let names = names.split(|&byte| byte == SEPARATOR).skip(1);
    for (key, name) in found.iter_mut().zip(names) {
        key.name = text(name);
    }
    Ok(found)
}

/// Partitions and a long comment lie behind the record of defaults.
fn strings(frm: &mut Frm, file: &Bytes<'_>, mut at: usize, form: usize) -> Result<()> {
    for _ in ["connection", "engine"] {
        at += 2 + usize::from(file.u16(at)?);
    }
    let partitions = file.u32(at)? as usize;
    if partitions > 0 {
        frm.partitions = Some(text(file.at(at + 4, partitions)?));
    }
    at += 4 + partitions + 2;
    frm.comment = match usize::from(file.u8(form + 46)?) {
        255 => text(file.at(at + 2, usize::from(file.u16(at)?))?),
        len => text(file.at(form + 47, len)?),
    };
    Ok(())
}

#[cfg(test)]
mod tests;
