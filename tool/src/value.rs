//! Values as SQL writes them.
//!
//! The engine keeps bytes of the server's record; what they mean is the type's business, which the `.frm` file tells. Without it a
//! value is written by how it is stored: numbers as numbers, all else as bytes.
//!
//! Columns that the server compresses are written as the values that they stand for; without the `.frm` file nobody knows that they are
//! compressed, and the stored bytes are written.
//!
//! Texts are written byte by byte in quotes, for a client with the character set `binary`: the server takes them for what the column
//! has, whichever character set that is. Values that are no text are written in hexadecimal.

use crate::column_compression::uncompressed;
use crate::frm::{BINARY_COLLATION, FrmColumn, precision};
use anyhow::Result;
use jiff::Timestamp;
use std::borrow::Cow;
use std::fmt::Write;
use strata_row::def::ColumnType;
use strata_row::schema::StoredColumn;

/// Decimal digits in four bytes, and bytes of fewer.
const GROUP: usize = 9;
const GROUP_BYTES: [usize; GROUP + 1] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Appends a value. `None` is NULL. Fails if the bytes are none of the column's type.
pub fn write(column: &StoredColumn, frm: Option<&FrmColumn>, value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<()> {
    let Some(stored) = value else {
        out.extend_from_slice(b"NULL");
        return Ok(());
    };
    let value = match frm {
        Some(frm) if frm.compressed => uncompressed(stored)?,
        _ => Cow::Borrowed(stored),
    };
    let value = &*value;
    let typed = frm.and_then(|frm| typed(frm, value));
    match (typed, column.kind) {
        (Some(text), _) => out.extend_from_slice(text.as_bytes()),
        (None, ColumnType::Int { unsigned }) => out.extend_from_slice(integer(value, unsigned).as_bytes()),
        (None, ColumnType::Float | ColumnType::Double) => out.extend_from_slice(float(value).as_bytes()),
        (None, ColumnType::Bytes) => hex(value, out),
        (None, _) if is_text(column, frm) => quote(value, out),
        (None, _) => hex(value, out),
    }
    Ok(())
}

/// Has the column characters?
pub fn is_text(column: &StoredColumn, frm: Option<&FrmColumn>) -> bool {
    // To the engine it has bytes.
    if let Some(frm) = frm.filter(|frm| frm.compressed) {
        return frm.collation != BINARY_COLLATION;
    }
    let is_binary = column.collation.as_ref().is_none_or(|(_, name)| name == "binary");
    !is_binary && frm.is_none_or(|frm| frm.kind != 255)
}

/// The value of a type that its storage does not tell; `None` for all others.
fn typed(frm: &FrmColumn, value: &[u8]) -> Option<String> {
    Some(match frm.kind {
        13 if value.len() == 1 => match value[0] {
            0 => "0".into(),
            year => (1900 + u32::from(year)).to_string(),
        },
        14 if value.len() == 3 => {
            let v = little(value);
            format!("'{:04}-{:02}-{:02}'", v >> 9, v >> 5 & 15, v & 31)
        }
        10 if value.len() == 4 => {
            let v = little(value);
            format!("'{:04}-{:02}-{:02}'", v / 10_000, v / 100 % 100, v % 100)
        }
        // Their old forms, without a fraction.
        7 if value.len() == 4 && frm.length <= 19 => timestamp(little(value), 0),
        12 if value.len() == 8 && frm.length <= 19 => {
            let (date, time) = (little(value) / 1_000_000, little(value) % 1_000_000);
            let (year, month, day) = (date / 10_000, date / 100 % 100, date % 100);
            format!("'{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}'", time / 10_000, time / 100 % 100, time % 100)
        }
        11 if value.len() == 3 && frm.length <= 10 => {
            let v = (little(value) << 40) as i64 >> 40;
            let (sign, v) = (if v < 0 { "-" } else { "" }, v.unsigned_abs());
            format!("'{sign}{:02}:{:02}:{:02}'", v / 10_000, v / 100 % 100, v % 100)
        }
        17 if value.len() >= 4 => timestamp(big(&value[..4]), micros(&value[4..])),
        18 if value.len() >= 5 => {
            let whole = big(&value[..5]).checked_sub(0x80_0000_0000)?;
            let (date, time) = (whole >> 17, whole & 0x1_ffff);
            let (month, day) = (date >> 5, date & 31);
            let (year, month) = (month / 13, month % 13);
            let (hour, minute, second) = (time >> 12, time >> 6 & 63, time & 63);
            let micros = micros(&value[5..]);
            format!("'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}'")
        }
        19 if value.len() >= 3 => {
            let bits = 8 * value.len() as u32;
            let signed = big(value) as i64 - (1i64 << (bits - 1));
            let (sign, v) = (if signed < 0 { "-" } else { "" }, signed.unsigned_abs());
            let fraction_bits = bits - 24;
            let whole = v >> fraction_bits;
            let fraction = (v & ((1 << fraction_bits) - 1)) * scale(value.len() - 3);
            format!("'{sign}{:02}:{:02}:{:02}.{fraction:06}'", whole >> 12, whole >> 6 & 63, whole & 63)
        }
        246 => decimal(value, precision(frm), frm.decimals)?,
        16 => format!("0x{}", hex_digits(value)),
        254 if frm.plugin_type.as_deref() == Some("uuid") && value.len() == 16 => {
            format!("0x{}", hex_digits(&uuid(value)))
        }
        _ => return None,
    })
}

fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Microseconds in one unit of a fraction of so many bytes.
fn scale(bytes: usize) -> u64 {
    [1, 10_000, 100, 1][bytes.min(3)]
}

fn micros(fraction: &[u8]) -> u64 {
    big(fraction) * scale(fraction.len())
}

/// Seconds since 1970 in UTC; 0 is the server's zero.
fn timestamp(seconds: u64, micros: u64) -> String {
    if seconds == 0 && micros == 0 {
        return "'0000-00-00 00:00:00'".into();
    }
    let moment = Timestamp::from_second(seconds as i64).unwrap_or(Timestamp::MAX);
    format!("'{}.{micros:06}'", moment.strftime("%Y-%m-%d %H:%M:%S"))
}

/// An integer of the record.
pub fn integer(value: &[u8], unsigned: bool) -> String {
    let v = little(value);
    let unused = 64 - 8 * value.len().clamp(1, 8) as u32;
    match unsigned {
        true => v.to_string(),
        false => ((v << unused) as i64 >> unused).to_string(),
    }
}

fn float(value: &[u8]) -> String {
    // As a double: a float has exactly one, and the server rounds it back to that float.
    let number = match (<[u8; 4]>::try_from(value), <[u8; 8]>::try_from(value)) {
        (Ok(bytes), _) => f64::from(f32::from_le_bytes(bytes)),
        (_, Ok(bytes)) => f64::from_le_bytes(bytes),
        _ => 0.0,
    };
    format!("{number:e}")
}

/// Bytes of a DECIMAL.
pub fn decimal_bytes(precision: u8, scale: u8) -> usize {
    let bytes = |digits: usize| digits / GROUP * 4 + GROUP_BYTES[digits % GROUP];
    let (precision, scale) = (usize::from(precision), usize::from(scale));
    bytes(precision.saturating_sub(scale)) + bytes(scale)
}

fn decimal(value: &[u8], precision: u8, scale: u8) -> Option<String> {
    if value.is_empty() || value.len() != decimal_bytes(precision, scale) {
        return None;
    }
    let negative = value[0] & 0x80 == 0;
    let mut bytes: Vec<u8> = value.iter().map(|byte| if negative { !byte } else { *byte }).collect();
    bytes[0] ^= 0x80;
    let (whole, fraction) = (usize::from(precision.checked_sub(scale)?), usize::from(scale));
    let mut rest = bytes.as_slice();
    let mut take = |digits: usize, out: &mut String| {
        let (group, left) = rest.split_at(GROUP_BYTES[digits]);
        rest = left;
        let _ = write!(out, "{:0digits$}", big(group));
    };
    let (mut before, mut behind) = (String::new(), String::new());
    if whole % GROUP > 0 {
        take(whole % GROUP, &mut before);
    }
    (0..whole / GROUP).for_each(|_| take(GROUP, &mut before));
    (0..fraction / GROUP).for_each(|_| take(GROUP, &mut behind));
    if fraction % GROUP > 0 {
        take(fraction % GROUP, &mut behind);
    }
    let before = before.trim_start_matches('0');
    let before = if before.is_empty() { "0" } else { before };
    let point = if fraction > 0 { "." } else { "" };
    Some(format!("{}{before}{point}{behind}", if negative { "-" } else { "" }))
}

/// A UUID as it is read, from its record, where those of the versions that begin with a time have their parts in the other order.
fn uuid(value: &[u8]) -> Vec<u8> {
    match value[6] & 0x80 {
        0 => value.to_vec(),
        _ => [&value[12..16], &value[10..12], &value[8..10], &value[6..8], &value[..6]].concat(),
    }
}

fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Appends bytes in hexadecimal.
pub fn hex(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"x'");
    for byte in value {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    out.push(b'\'');
}

/// Appends a text in quotes.
pub fn quote(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for &byte in value {
        match byte {
            0 => out.extend_from_slice(b"\\0"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0x1a => out.extend_from_slice(b"\\Z"),
            b'\'' | b'\\' => out.extend([b'\\', byte]),
            _ => out.push(byte),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type, length, decimals, bytes of the record, and what SQL writes.
    const VALUES: &str = "
        13   4   0 7d               2025
        13   4   0 00               0
        14   10  0 79d30f           '2025-11-25'
        14   10  0 000000           '0000-00-00'
        17   19  0 00000000         '0000-00-00 00:00:00'
        17   19  0 00000001         '1970-01-01 00:00:01.000000'
        17   26  0 386d43800186a0   '2000-01-01 00:00:00.100000'
        17   21  0 386d437f63       '1999-12-31 23:59:59.990000'
        17   19  0 65e0bd7f         '2024-02-29 17:23:11.000000'
        18   19  0 99b8730149       '2025-12-25 16:05:09.000000'
        18   23  0 99b87f7efb04d2   '2025-12-31 23:59:59.123400'
        18   19  0 8000000000       '0000-00-00 00:00:00.000000'
        19   10  0 800000           '00:00:00.000000'
        19   10  0 80c8b6           '12:34:54.000000'
        19   10  0 7fffff           '-00:00:01.000000'
        19   17  0 7fffffffffff     '-00:00:00.000001'
        19   12  0 7ffffff6         '-00:00:00.100000'
        19   10  0 4b9105           '-838:59:59.000000'
        246  12  2 8000000c22       12.34
        246  12  2 7ffffff3dd       -12.34
        246  12  2 8000000000       0.00
        16   9   0 01ff             0x01ff";

    #[test]
    fn values_of_the_servers_types() {
        for line in VALUES.lines().filter(|line| !line.trim().is_empty()) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let bytes: Vec<u8> = (0..fields[3].len() / 2)
                .map(|i| u8::from_str_radix(&fields[3][2 * i..2 * i + 2], 16).unwrap())
                .collect();
            let frm = FrmColumn {
                kind: fields[0].parse().unwrap(),
                length: fields[1].parse().unwrap(),
                decimals: fields[2].parse().unwrap(),
                ..FrmColumn::default()
            };
            assert_eq!(typed(&frm, &bytes).as_deref(), Some(fields[4..].join(" ").as_str()), "{line}");
        }
    }

    #[test]
    fn numbers_and_texts() {
        assert_eq!(integer(&[0xff, 0xff, 0xff], false), "-1");
        assert_eq!(integer(&[0xff, 0xff, 0xff], true), "16777215");
        assert_eq!(integer(&[0xff; 8], true), u64::MAX.to_string());
        assert_eq!(integer(&i64::MIN.to_le_bytes(), false), i64::MIN.to_string());
        let text = |f: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            f(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(&|out| quote(b"it's\0\n\\\x1a", out)), r"'it\'s\0\n\\\Z'");
        assert_eq!(text(&|out| hex(&[0, 0xff], out)), "x'00ff'");
        for number in [0.1f64, -1e300, 5e-324, 1.0 / 3.0] {
            assert_eq!(float(&number.to_le_bytes()).parse::<f64>().unwrap(), number);
        }
        for number in [0.1f32, 1.0 / 3.0, 1e-45] {
            assert_eq!(float(&number.to_le_bytes()).parse::<f64>().unwrap() as f32, number);
        }
    }
}
