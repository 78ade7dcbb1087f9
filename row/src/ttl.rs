//! The TTL= option of a table: from when on a row of it has expired.
//!
//! ```text
//! TTL='col'                        the column is the moment at which the row expires
//! TTL='col + INTERVAL n UNIT'      the row expires so long after it; UNIT: SECOND, MINUTE, HOUR, DAY, WEEK
//! ```
//!
//! The column is a TIMESTAMP or an integer of at least four bytes: seconds since 1970. A row in which it is NULL, zero or negative never
//! expires. Units are those of a fixed length: a month from a moment on depends on the calendar, and on a time zone.
//!
//! The catalog keeps what the text means ([`Ttl`]), not the text, which the server keeps with the table's definition. It names a column;
//! so each definition of the table, also that of an ALTER, is asked anew what its text means ([`of`]), and a column that is renamed or
//! dropped without a new option is an error.
//!
//! Rejected: DATETIME. What moment its values are depends on the time zone of whoever looks at them: two servers, or two sessions, would
//! not agree which rows there are. Rejected: an expression of the server's. The row layer, which purges without a session of the
//! server, could not compute it.

use crate::def::{Column, ColumnType, TableDef};
use crate::error::{Error, Result};
use crate::foreign::key::same_column;

/// From when on rows of a table have expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ttl {
    /// The id of the column that holds a moment.
    pub column: u32,
    /// Seconds from that moment on.
    pub seconds: u64,
}

/// A text that was parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The column's name as it stands there.
    pub column: String,
    /// See [`Ttl::seconds`].
    pub seconds: u64,
}

/// The longest time to live: some ten thousand years. Sums of it and a moment are far from the greatest number.
const SECONDS_MAX: u64 = 10_000 * 366 * 86_400;

/// What a text says; an error is a sentence.
pub fn parse(text: &str) -> std::result::Result<Parsed, String> {
    let (column, rest) = name(text.trim())?;
    let rest = rest.trim_start();
    if rest.is_empty() {
        return Ok(Parsed { column, seconds: 0 });
    }
    let expected = || "expected is 'column' or 'column + INTERVAL n UNIT'".to_owned();
    let words: Vec<&str> = rest.strip_prefix('+').ok_or_else(expected)?.split_whitespace().collect();
    let [interval, number, unit] = words[..] else { return Err(expected()) };
    if !interval.eq_ignore_ascii_case("interval") {
        return Err(expected());
    }
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<u64> = number.parse().ok().filter(|_| is_number);
    let unit = match unit.to_ascii_uppercase().as_str() {
        "SECOND" => 1,
        "MINUTE" => 60,
        "HOUR" => 3600,
        "DAY" => 86_400,
        "WEEK" => 7 * 86_400,
        other => return Err(format!("the unit is SECOND, MINUTE, HOUR, DAY or WEEK, not {other}")),
    };
    let seconds = number.ok_or_else(|| "the interval is a whole number".to_owned())?.checked_mul(unit);
    match seconds.filter(|seconds| *seconds <= SECONDS_MAX) {
        Some(seconds) => Ok(Parsed { column, seconds }),
        None => Err("the interval is too long".to_owned()),
    }
}

/// The name at the beginning of a text, with or without backticks, and the rest.
fn name(text: &str) -> std::result::Result<(String, &str), String> {
    let Some(mut quoted) = text.strip_prefix('`') else {
        let end = text.find(|c: char| c.is_whitespace() || c == '+').unwrap_or(text.len());
        return match text[..end].chars().all(|c| c.is_alphanumeric() || c == '_' || c == '$') && end > 0 {
            true => Ok((text[..end].to_owned(), &text[end..])),
            false => Err("expected is the name of a column, in backticks if it is not a plain one".to_owned()),
        };
    };
    let mut column = String::new();
    loop {
        let Some((part, rest)) = quoted.split_once('`') else {
            return Err("a name in backticks does not end".to_owned());
        };
        column.push_str(part);
        match rest.strip_prefix('`') {
            Some(more) => {
                column.push('`');
                quoted = more;
            }
            None if column.is_empty() => return Err("a name is empty".to_owned()),
            None => return Ok((column, rest)),
        }
    }
}

/// The number of the column and the seconds that the option of a definition means; `None`: no row expires.
///
/// Errors: `WrongOption` for a text that means nothing, and for tables whose rows cannot expire.
pub fn of(def: &TableDef) -> Result<Option<(usize, u64)>> {
    let Some(text) = def.ttl.as_deref().filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let wrong = |why: String| Error::WrongOption(format!("TTL='{text}': {why}"));
    let Parsed { column, seconds } = parse(text).map_err(wrong)?;
    let Some(number) = def.columns.iter().position(|other| same_column(&other.name, &column)) else {
        return Err(wrong(format!("the table has no column `{column}`")));
    };
    if let Some(why) = unfit(&def.columns[number]) {
        return Err(wrong(why));
    }
    if def.no_rollback {
        return Err(wrong("rows of a sequence do not expire".into()));
    }
    for index in &def.indexes {
        let name = &index.name;
        if index.parts.iter().any(|part| def.columns[part.column as usize].is_virtual) && !index.long_hash {
            let why = "has a virtual column, which nobody computes when rows are removed";
            return Err(wrong(format!("index `{name}` {why}")));
        }
        if index.long_hash || index.without_overlaps {
            let why = "is checked by the server, to which rows that have expired would be no obstacle";
            return Err(wrong(format!("unique key `{name}` {why}")));
        }
    }
    Ok(Some((number, seconds)))
}

/// Why a column cannot be the one.
fn unfit(column: &Column) -> Option<String> {
    let name = &column.name;
    if column.is_virtual {
        return Some(format!("column `{name}` is not stored"));
    }
    let has_room = match column.kind {
        ColumnType::Int { .. } | ColumnType::Bytes => column.size >= 4,
        _ => false,
    };
    let fits = column.is_moment && has_room;
    (!fits).then(|| format!("column `{name}` is neither a TIMESTAMP nor an integer of four bytes or more"))
}

/// The moment, in seconds since 1970, at which a row expires whose column has these bytes; `None`: never.
pub(crate) fn expires_at(kind: ColumnType, bytes: &[u8], seconds: u64) -> Option<u64> {
    let moment = match kind {
        ColumnType::Int { unsigned } => {
            let negative = !unsigned && bytes.last().is_some_and(|top| top & 0x80 != 0);
            let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            if negative { 0 } else { value }
        }
        // A TIMESTAMP: seconds, and behind them a fraction, of which the next whole second is the end.
        _ => {
            let (whole, fraction) = bytes.split_at_checked(4)?;
            let whole = whole.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
            whole + u64::from(whole > 0 && fraction.iter().any(|byte| *byte != 0))
        }
    };
    (moment > 0).then(|| moment.saturating_add(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, and the column and the seconds that it means, or a part of the error.
    const TEXTS: &str = "
        created                              => created 0
          created + INTERVAL 7 DAY           => created 604800
        created+interval 1 second            => created 1
        c + Interval 90 Minute               => c 5400
        c + INTERVAL 2 HOUR                  => c 7200
        c + INTERVAL 1 WEEK                  => c 604800
        c + INTERVAL 0 DAY                   => c 0
        `c` + INTERVAL 1 SECOND              => c 1
        `a``b+c d`                           => a`b+c_d 0
        größe + INTERVAL 1 DAY               => größe 86400
        c + INTERVAL 1 MONTH                 => SECOND, MINUTE, HOUR, DAY or WEEK, not MONTH
        c + INTERVAL -1 DAY                  => a whole number
        c + INTERVAL +1 DAY                  => a whole number
        c + INTERVAL 1.5 DAY                 => a whole number
        c + INTERVAL 99999999999999999999 DAY => a whole number
        c + INTERVAL 9999999999999999999 DAY => too long
        c + INTERVAL 3660001 DAY             => too long
        c + INTERVAL DAY                     => expected is 'column'
        c + 7                                => expected is 'column'
        c + INTERVAL 1 DAY now               => expected is 'column'
        c - INTERVAL 1 DAY                   => expected is 'column'
        c d                                  => expected is 'column'
        + INTERVAL 1 DAY                     => name of a column
        a.b + INTERVAL 1 DAY                 => name of a column
        `c                                   => does not end
        ``                                   => is empty";

    #[test]
    fn texts_mean_a_column_and_seconds() {
        let mut checked = 0;
        for line in TEXTS.lines().filter(|line| !line.trim().is_empty()) {
            let (text, wanted) = line.split_once("=>").unwrap();
            match parse(text) {
                Ok(Parsed { column, seconds }) => {
                    assert_eq!(format!("{} {seconds}", column.replace(' ', "_")), wanted.trim(), "{line}");
                }
                Err(why) => assert!(why.contains(wanted.trim()), "{line}: {why}"),
            }
            checked += 1;
        }
        assert_eq!(checked, 26);
    }

    /// A type, the bytes of a value, seconds, and the moment at which the row expires.
    const MOMENTS: &str = "
        int        00000000          5    never
        int        0a000000          5    15
        int        ffffffff          5    never
        uint       ffffffff          5    4294967300
        int        0a00000000000000  0    10
        int        ffffffffffffff7f  5    9223372036854775812
        uint       ffffffffffffffff  5    18446744073709551615
        bytes      00000000          5    never
        bytes      0000000a          5    15
        bytes      0000000a00        5    15
        bytes      0000000a05        5    16
        bytes      0000000a000001    5    16
        bytes      0000000005        5    never
        bytes      ffffffff          1    4294967296";

    #[test]
    fn moments_of_columns() {
        for line in MOMENTS.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let kind = match words[0] {
                "int" => ColumnType::Int { unsigned: false },
                "uint" => ColumnType::Int { unsigned: true },
                _ => ColumnType::Bytes,
            };
            let bytes: Vec<u8> =
                (0..words[1].len() / 2).map(|i| u8::from_str_radix(&words[1][2 * i..2 * i + 2], 16).unwrap()).collect();
            let moment = expires_at(kind, &bytes, words[2].parse().unwrap());
            assert_eq!(moment.map_or("never".into(), |moment| moment.to_string()), words[3], "{line}");
        }
    }
}
