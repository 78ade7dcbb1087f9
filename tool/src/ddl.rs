//! `CREATE TABLE` from what the catalog and the `.frm` file say.
//!
//! ```text
//! catalog    names and order of columns, how they are stored, collations, NULL, primary key, indexes, foreign keys, AUTO_INCREMENT
//! .frm       types, lengths, defaults, generated columns, checks, comments, partitions, versioning, parts of long UNIQUE indexes
//! ```
//!
//! Without a `.frm` file each column has the widest type that is stored as it is; a comment says so.

use crate::catalog::{parts, sql_name};
use crate::collation::{character_set, well_known};
use crate::column_compression::uncompressed;
use crate::frm::{Frm, FrmColumn, FrmKey, precision};
use crate::value;
use std::collections::BTreeMap;
use strata_row::def::{ColumnType, Compression};
use strata_row::schema::{StoredColumn, StoredIndex, TableMeta};

/// Names of collations by their numbers.
pub type Collations = BTreeMap<u32, String>;

/// A table that is to be created.
pub struct Table<'a> {
    /// Its entry in the catalog.
    pub meta: &'a TableMeta,
    /// Its file.
    pub frm: Option<&'a Frm>,
    /// The next value of AUTO_INCREMENT.
    pub next: Option<u64>,
}

/// A name in SQL.
pub fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn literal(text: &str) -> String {
    let mut out = Vec::new();
    value::quote(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Bytes of some character set, where only UTF-8 can be written.
fn bytes_literal(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    match bytes.is_ascii() {
        true => value::quote(bytes, &mut out),
        false => value::hex(bytes, &mut out),
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Table<'_> {
    /// The column's definition in the file.
    pub fn frm_column(&self, column: &StoredColumn) -> Option<&FrmColumn> {
        self.frm?.columns.iter().find(|of| of.name.eq_ignore_ascii_case(&column.name))
    }

    /// Is a value of the column to be written? Not if the server computes it.
    pub fn is_written(&self, column: &StoredColumn) -> bool {
        !column.is_virtual && self.frm_column(column).is_none_or(|of| of.generated.is_none())
    }

    /// True if rows have a period of validity, which is written with them.
    pub fn is_versioned(&self) -> bool {
        self.frm.is_some_and(|frm| frm.system_time.is_some())
    }

    /// The statement.
    pub fn create(&self, name: &str, collations: &Collations) -> String {
        let mut lines = Vec::new();
        for (number, column) in self.meta.columns.iter().enumerate() {
            let of = self.frm_column(column);
            // The hidden hash of a long UNIQUE is the server's.
            if column.is_virtual && of.is_none_or(|of| of.generated.is_none()) || of.is_some_and(|of| of.invisible > 1)
            {
                continue;
            }
            lines.push(self.column(number, column, of, collations));
        }
        lines.extend(self.meta.indexes.iter().filter_map(|index| self.index(index)));
        if let Some(frm) = self.frm {
            if let Some((start, end)) = frm.system_time
                && let (Some(start), Some(end)) = (frm.columns.get(start), frm.columns.get(end))
                && start.invisible < 2
            {
                lines.push(format!("PERIOD FOR SYSTEM_TIME ({}, {})", identifier(&start.name), identifier(&end.name)));
            }
            if let Some((period, start, end)) = &frm.period
                && let (Some(start), Some(end)) = (frm.columns.get(*start), frm.columns.get(*end))
            {
                let (start, end) = (identifier(&start.name), identifier(&end.name));
                lines.push(format!("PERIOD FOR {} ({start}, {end})", identifier(period)));
            }
            let checks = frm.checks.iter().filter(|(name, _)| frm.period.as_ref().is_none_or(|(of, ..)| of != name));
            lines.extend(checks.map(|(name, check)| {
                let name = if name.is_empty() { String::new() } else { format!("CONSTRAINT {} ", identifier(name)) };
                format!("{name}CHECK ({check})")
            }));
        }
        lines.extend(self.meta.foreign.iter().filter_map(|key| foreign(key)));
        let options = self.options(collations);
        format!("CREATE TABLE {} (\n  {}\n) {options};\n", identifier(name), lines.join(",\n  "))
    }

    fn options(&self, collations: &Collations) -> String {
        let mut options = "ENGINE=STRATA".to_owned();
        match self.meta.compression {
            None => {}
            Some(Compression::None) => options.push_str(" COMPRESSION='none'"),
            Some(Compression::Lz4) => options.push_str(" COMPRESSION='lz4'"),
            Some(Compression::Zstd) => options.push_str(" COMPRESSION='zstd'"),
        }
        if let Some(next) = self.next.filter(|&next| next > 1 && self.meta.autoinc_column.is_some()) {
            options.push_str(&format!(" AUTO_INCREMENT={next}"));
        }
        let Some(frm) = self.frm else { return options };
        if let Some(name) = collation_name(frm.collation, collations) {
            options.push_str(&format!(" DEFAULT CHARSET={} COLLATE={name}", character_set(&name)));
        }
        if !frm.comment.is_empty() {
            options.push_str(&format!(" COMMENT={}", literal(&frm.comment)));
        }
        if frm.system_time.is_some() {
            options.push_str(" WITH SYSTEM VERSIONING");
        }
        if let Some(partitions) = &frm.partitions {
            options.push_str(&format!("\n{partitions}"));
        }
        options
    }

    fn column(&self, number: usize, stored: &StoredColumn, of: Option<&FrmColumn>, collations: &Collations) -> String {
        let mut out = format!("{} ", identifier(&stored.name));
        let Some(of) = of else {
            out.push_str(&stored_type(stored));
            if let Some((_, name)) = stored.collation.as_ref().filter(|(_, name)| name != "binary") {
                out.push_str(&format!(" CHARACTER SET {} COLLATE {name}", character_set(name)));
            }
            out.push_str(if stored.nullable { " NULL" } else { " NOT NULL" });
            out.push_str(if self.is_autoinc(number) { " AUTO_INCREMENT" } else { "" });
            return out;
        };
        let named = column_collation(stored, of, collations);
        out.push_str(&sql_type(stored, of, named.as_deref()));
        out.push_str(if of.compressed { " COMPRESSED" } else { "" });
        if let Some(name) = named.as_deref().filter(|&name| name != "binary") {
            out.push_str(&format!(" CHARACTER SET {} COLLATE {name}", character_set(name)));
        }
        if let Some((start, end)) = self.frm.and_then(|frm| frm.system_time) {
            let is =
                |number: usize| self.frm.and_then(|frm| frm.columns.get(number)).is_some_and(|c| c.name == of.name);
            if is(start) || is(end) {
                out.push_str(&format!(" GENERATED ALWAYS AS ROW {}", if is(start) { "START" } else { "END" }));
                return out;
            }
        }
        if let Some((expression, is_stored)) = &of.generated {
            out.push_str(&format!(
                " GENERATED ALWAYS AS ({expression}) {}",
                if *is_stored { "STORED" } else { "VIRTUAL" }
            ));
        } else {
            out.push_str(if of.nullable { " NULL" } else { " NOT NULL" });
            if let Some(default) = self.default(stored, of, named.as_deref()) {
                out.push_str(&format!(" DEFAULT {default}"));
            }
            if of.update_now {
                out.push_str(&format!(" ON UPDATE current_timestamp({})", fraction(of, 19)));
            }
            out.push_str(if self.is_autoinc(number) { " AUTO_INCREMENT" } else { "" });
        }
        out.push_str(if of.invisible == 1 { " INVISIBLE" } else { "" });
        if !of.comment.is_empty() {
            out.push_str(&format!(" COMMENT {}", literal(&of.comment)));
        }
        if let Some(check) = &of.check {
            out.push_str(&format!(" CHECK ({check})"));
        }
        out
    }

    fn is_autoinc(&self, number: usize) -> bool {
        self.meta.autoinc_column == Some(number as u32)
    }

    fn default(&self, stored: &StoredColumn, of: &FrmColumn, collation: Option<&str>) -> Option<String> {
        if of.default_now {
            return Some(format!("current_timestamp({})", fraction(of, 19)));
        }
        if let Some(expression) = &of.default_expression {
            return Some(format!("({expression})"));
        }
        let Some(bytes) = of.default.as_ref()? else { return of.nullable.then(|| "NULL".to_owned()) };
        let list_value = |number: usize| of.values.get(number.checked_sub(1)?).map(|value| bytes_literal(value));
        let number = value::integer(bytes, true).parse::<u64>().unwrap_or(0);
        match of.kind {
            247 => list_value(number as usize),
            248 => {
                let members = (0..64).filter(|bit| number >> bit & 1 != 0);
                let members: Vec<&[u8]> = members.filter_map(|bit| of.values.get(bit).map(Vec::as_slice)).collect();
                Some(bytes_literal(&members.join(&b','))).filter(|_| of.values.iter().all(|value| value.is_ascii()))
            }
            15 => {
                let len_bytes = if of.length > 255 { 2 } else { 1 };
                let len = value::integer(bytes.get(..len_bytes)?, true).parse::<usize>().ok()?;
                let bytes = bytes.get(len_bytes..len_bytes + len)?;
                match of.compressed {
                    true => text_default(collation?, &uncompressed(bytes).ok()?),
                    false => text_default(collation?, bytes),
                }
            }
            254 => {
                let pad: &[u8] = if value::is_text(stored, Some(of)) { b" " } else { b"\0" };
                let end = bytes.iter().rposition(|byte| !pad.contains(byte)).map_or(0, |last| last + 1);
                text_default(collation?, &bytes[..end])
            }
            _ => {
                let mut out = Vec::new();
                value::write(stored, Some(of), Some(bytes), &mut out).ok()?;
                String::from_utf8(out).ok()
            }
        }
    }

    fn index(&self, index: &StoredIndex) -> Option<String> {
        let of = self.frm.and_then(|frm| frm.keys.iter().find(|key| key.name.eq_ignore_ascii_case(&index.name)));
        let parts = match (index.long_hash, of, self.frm) {
            (true, Some(FrmKey { parts, .. }), Some(frm)) => {
                let part = |(number, length): &(usize, u16)| {
                    let column = frm.columns.get(*number)?;
                    let prefix = if *length > 0 && is_blob(column) { format!("({length})") } else { String::new() };
                    Some(format!("{}{prefix}", identifier(&column.name)))
                };
                parts.iter().map(part).collect::<Option<Vec<String>>>()?
            }
            (true, ..) => return None,
            _ => {
                let named = index.parts.iter().filter(|part| !self.is_servers_part(index, part));
                named.map(|part| self.part(part)).collect::<Option<Vec<String>>>()?
            }
        };
        let parts = parts.join(", ");
        Some(match (index.name.as_str(), index.unique || index.long_hash) {
            ("PRIMARY", _) => format!("PRIMARY KEY ({parts})"),
            (name, true) => format!("UNIQUE KEY {} ({parts})", identifier(name)),
            (name, false) => format!("KEY {} ({parts})", identifier(name)),
        })
    }

    /// The server puts the end of a row's period behind the columns of each unique index of a table with system versions.
    fn is_servers_part(&self, index: &StoredIndex, part: &strata_row::schema::StoredPart) -> bool {
        let end = self.frm.and_then(|frm| frm.columns.get(frm.system_time?.1));
        let column = self.meta.columns.get(part.column as usize);
        index.unique && index.parts.len() > 1 && end.zip(column).is_some_and(|(end, column)| end.name == column.name)
    }

    fn part(&self, part: &strata_row::schema::StoredPart) -> Option<String> {
        let column = self.meta.columns.get(part.column as usize)?;
        let is_text = matches!(column.kind, ColumnType::Char | ColumnType::VarChar | ColumnType::Blob);
        let is_prefix = is_text && (column.kind == ColumnType::Blob || part.length < column.size);
        let wide = column.collation.as_ref().map_or(1, |(_, name)| width(name));
        let prefix = if is_prefix { format!("({})", part.length / wide) } else { String::new() };
        let order = if part.descending { " DESC" } else { "" };
        Some(format!("{}{prefix}{order}", identifier(&column.name)))
    }
}

fn is_blob(of: &FrmColumn) -> bool {
    matches!(of.kind, 249..=252)
}

fn collation_name(id: u32, collations: &Collations) -> Option<String> {
    collations.get(&id).cloned().or_else(|| well_known(id).map(str::to_owned))
}

/// The collation of a column, if it has a name here.
fn column_collation(stored: &StoredColumn, of: &FrmColumn, collations: &Collations) -> Option<String> {
    match of.kind {
        // The engine knows neither lists nor what the server compresses as text.
        247 | 248 => collation_name(of.collation, collations),
        _ if of.compressed => collation_name(of.collation, collations),
        255 => None,
        _ => stored.collation.as_ref().map(|(_, name)| name.clone()),
    }
}

/// Digits of a fraction of a second.
fn fraction(of: &FrmColumn, whole: u16) -> u16 {
    of.length.saturating_sub(whole + 1)
}

fn text_default(collation: &str, bytes: &[u8]) -> Option<String> {
    let set = character_set(collation);
    let is_plain = bytes.is_ascii() && !matches!(set, "ucs2" | "utf16" | "utf16le" | "utf32");
    Some(match is_plain {
        true => bytes_literal(bytes),
        false => format!("_{set} {}", {
            let mut out = Vec::new();
            value::hex(bytes, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }),
    })
}

/// Characters that a column has room for.
fn chars(stored: &StoredColumn, bytes: u32) -> u32 {
    stored.collation.as_ref().map_or(bytes, |(_, name)| bytes / width(name))
}

/// Bytes of the longest character of a collation.
fn width(collation: &str) -> u32 {
    u32::from(crate::collation::named(0, collation).traits().mbmaxlen.max(1))
}

/// The server's type. One that the server compresses holds bytes if its collation has no name here.
fn sql_type(stored: &StoredColumn, of: &FrmColumn, collation: Option<&str>) -> String {
    let number = |name: &str| {
        let width = if of.zerofill { format!("({})", of.length) } else { String::new() };
        let unsigned = if of.unsigned { " UNSIGNED" } else { "" };
        format!("{name}{width}{unsigned}{}", if of.zerofill { " ZEROFILL" } else { "" })
    };
    let sign = |name: String| {
        let unsigned = if of.unsigned { " UNSIGNED" } else { "" };
        format!("{name}{unsigned}{}", if of.zerofill { " ZEROFILL" } else { "" })
    };
    let timed = |name: &str, whole| match fraction(of, whole) {
        0 => name.to_owned(),
        digits => format!("{name}({digits})"),
    };
    let is_text = value::is_text(stored, Some(of)) && collation.is_some();
    let list = |name: &str| {
        let values: Vec<String> = of.values.iter().map(|value| bytes_literal(value)).collect();
        format!("{name}({})", values.join(","))
    };
    match of.kind {
        1 => number("TINYINT"),
        2 => number("SMALLINT"),
        9 => number("MEDIUMINT"),
        3 => number("INT"),
        8 => number("BIGINT"),
        4 | 5 => {
            let name = if of.kind == 4 { "FLOAT" } else { "DOUBLE" };
            // 31 and more digits: none were given.
            match of.decimals {
                0..31 => sign(format!("{name}({},{})", of.length, of.decimals)),
                _ => sign(name.to_owned()),
            }
        }
        246 => sign(format!("DECIMAL({},{})", precision(of), of.decimals)),
        13 => "YEAR".into(),
        10 | 14 => "DATE".into(),
        11 | 19 => timed("TIME", 10),
        12 | 18 => timed("DATETIME", 19),
        7 | 17 => timed("TIMESTAMP", 19),
        16 => format!("BIT({})", of.length),
        247 => list("ENUM"),
        248 => list("SET"),
        254 => match &of.plugin_type {
            Some(name) => name.to_uppercase(),
            None => format!("{}({})", if is_text { "CHAR" } else { "BINARY" }, chars(stored, stored.size)),
        },
        // A byte of its length says how it is compressed.
        15 if of.compressed => {
            let name = if is_text { "VARCHAR" } else { "VARBINARY" };
            format!("{name}({})", stored.size.saturating_sub(1) / collation.map_or(1, width))
        }
        249..=252 => {
            let size = match stored.length_bytes {
                1 => "TINY",
                3 => "MEDIUM",
                4 => "LONG",
                _ => "",
            };
            format!("{size}{}", if is_text { "TEXT" } else { "BLOB" })
        }
        255 => ["GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON"]
            .get((of.collation & 0xff) as usize)
            .unwrap_or(&"GEOMETRYCOLLECTION")
            .to_string(),
        _ => stored_type(stored),
    }
}

/// The widest type that is stored as the column is.
fn stored_type(stored: &StoredColumn) -> String {
    let text = stored.collation.as_ref().filter(|(_, name)| name != "binary");
    let is_text = text.is_some();
    match stored.kind {
        ColumnType::Int { unsigned } => {
            let name = ["TINYINT", "SMALLINT", "MEDIUMINT", "INT"].get(stored.size as usize - 1).unwrap_or(&"BIGINT");
            format!("{name}{}", if unsigned { " UNSIGNED" } else { "" })
        }
        ColumnType::Float => "FLOAT".into(),
        ColumnType::Double => "DOUBLE".into(),
        ColumnType::Bytes => format!("BINARY({})", stored.size),
        ColumnType::Char => format!("{}({})", if is_text { "CHAR" } else { "BINARY" }, chars(stored, stored.size)),
        ColumnType::VarChar => {
            format!("{}({})", if is_text { "VARCHAR" } else { "VARBINARY" }, chars(stored, stored.size))
        }
        ColumnType::Blob => {
            let size = ["TINY", "", "MEDIUM", "LONG"].get(usize::from(stored.length_bytes) - 1).unwrap_or(&"LONG");
            format!("{size}{}", if is_text { "TEXT" } else { "BLOB" })
        }
    }
}

fn foreign(key: &strata_row::foreign::ForeignKey) -> Option<String> {
    let (database, table) = parts(&key.parent)?;
    let list = |names: &[String]| names.iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ");
    let named = |name: &str| identifier(&sql_name(name));
    Some(format!(
        "CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {}.{} ({}) ON DELETE {} ON UPDATE {}",
        identifier(&key.name),
        list(&key.columns),
        named(database),
        named(table),
        list(&key.parent_columns),
        key.on_delete.sql(),
        key.on_update.sql()
    ))
}
