//! Files that a server of MariaDB 10.11 wrote for tables of `lab/src/salvage/tables.sql`, beside what they must be read as.
//!
//! Each `testdata/frm/NAME.frm` has a `NAME.txt` beside it, which was compared with the statement by hand:
//!
//! ```text
//! table collation N [comment 'C'] [versioned A B] [period NAME A B]
//! column NAME type N length N[.DECIMALS] collation N [unsigned zerofill null invisible compressed ...] [default HEX+ZEROS|NULL|now|(X)]
//! key NAME COLUMN:BYTES...
//! check NAME (X)
//! partitions ...
//! ```

use super::*;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/frm");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "frm"));
    files.sort();
    assert!(files.len() >= 6);
    files
}

fn column_text(column: &FrmColumn) -> String {
    let FrmColumn { name, kind, length, decimals, collation, .. } = column;
    let mut text = format!("column {name} type {kind} length {length}.{decimals} collation {collation}");
    let words = [
        (column.unsigned, "unsigned"),
        (column.zerofill, "zerofill"),
        (column.nullable, "null"),
        (column.invisible == 1, "invisible"),
        (column.invisible > 1, "hidden"),
        (column.compressed, "compressed"),
        (column.update_now, "update-now"),
    ];
    for (_, word) in words.iter().filter(|(is, _)| *is) {
        let _ = write!(text, " {word}");
    }
    if let Some(plugin) = &column.plugin_type {
        let _ = write!(text, " plugin {plugin}");
    }
    for value in &column.values {
        let _ = write!(text, " value '{}'", value.escape_ascii());
    }
    match (&column.default, &column.default_expression, column.default_now) {
        (_, _, true) => text.push_str(" default now"),
        (_, Some(expression), _) => {
            let _ = write!(text, " default ({expression})");
        }
        (Some(None), ..) => text.push_str(" default NULL"),
        (Some(Some(bytes)), ..) => {
            // Zeros behind a text that is shorter than its column are counted.
            let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let digits: String = bytes[..len].iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = write!(text, " default {digits}+{}", bytes.len() - len);
        }
        (None, None, false) => {}
    }
    if let Some((expression, is_stored)) = &column.generated {
        let _ = write!(text, " {} ({expression})", if *is_stored { "stored" } else { "virtual" });
    }
    if let Some(check) = &column.check {
        let _ = write!(text, " check ({check})");
    }
    if !column.comment.is_empty() {
        let _ = write!(text, " comment '{}'", column.comment);
    }
    text
}

fn text_of(frm: &Frm) -> String {
    let mut text = format!("table collation {}", frm.collation);
    if !frm.comment.is_empty() {
        let _ = write!(text, " comment '{}'", frm.comment);
    }
    if let Some((start, end)) = frm.system_time {
        let _ = write!(text, " versioned {start} {end}");
    }
    if let Some((name, start, end)) = &frm.period {
        let _ = write!(text, " period {name} {start} {end}");
    }
    text.push('\n');
    for column in &frm.columns {
        text.push_str(&column_text(column));
        text.push('\n');
    }
    for key in &frm.keys {
        let _ = write!(text, "key {}", key.name);
        for (column, bytes) in &key.parts {
            let _ = write!(text, " {}:{bytes}", frm.columns[*column].name);
        }
        text.push('\n');
    }
    for (name, check) in &frm.checks {
        let _ = writeln!(text, "check {name} ({check})");
    }
    if let Some(partitions) = &frm.partitions {
        let _ = writeln!(text, "partitions {}", partitions.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    text
}

#[test]
fn files_of_a_server_are_read_as_they_were_written() {
    for path in files() {
        let found = text_of(&parse(&std::fs::read(&path).unwrap()).unwrap());
        let wanted = path.with_extension("txt");
        assert_eq!(found, std::fs::read_to_string(&wanted).unwrap_or_default(), "{}:\n{found}", wanted.display());
    }
}

/// Cut anywhere, and with each byte changed in several ways: read somehow, or refused; never a panic, never without end.
#[test]
fn a_damaged_file_is_an_error_or_is_read_and_never_panics() {
    for path in files() {
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            let _ = parse(&whole[..len]);
        }
        assert!(parse(&whole[..whole.len() / 2]).is_err());
        let mut bytes = whole.clone();
        for at in 0..whole.len() {
            for byte in [0, 0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
                bytes[at] = byte;
                let _ = parse(&bytes);
            }
            bytes[at] = whole[at];
        }
        assert!(parse(&[0; 64]).is_err());
    }
}
