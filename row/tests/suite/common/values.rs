//! Tables of any columns, told in a line each, and their rows as values by name.

use super::{Arc, Column, ColumnType, Index, KeyPart, TableDef};
use std::collections::BTreeMap;
use std::time::Duration;
use strata_row::Result;
use strata_row::def::{Collation, IndexKind, Library, Terms};
use strata_row::index::Updated;
use strata_row::isolation::{Isolation, Waiting};
use strata_row::keycode::TERM_BYTES_MAX;
use strata_row::keycode::collations::{Binary, Latin1, Utf8};
use strata_row::kv::LockMode;
use strata_row::rowcode::Record;
use strata_row::scan::{RowCursor, Seek};
use strata_row::session::Session;
use strata_row::store::Store;
use strata_row::table::Table;

#[derive(Clone, PartialEq, PartialOrd, Debug)]
pub enum V {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
}

impl From<i64> for V {
    fn from(n: i64) -> V {
        V::Int(n)
    }
}
impl From<f64> for V {
    fn from(n: f64) -> V {
        V::Real(n)
    }
}
impl From<&str> for V {
    fn from(text: &str) -> V {
        V::Text(text.to_owned())
    }
}

/// A row: values by name of the column.
pub type Values = BTreeMap<String, V>;

pub fn values<const N: usize>(of: [(&str, V); N]) -> Values {
    of.map(|(name, value)| (name.to_owned(), value)).into()
}

const TEXT: Latin1 = Latin1 { ci: true, pad: true };
const WIDE: Utf8 = Utf8 { weight: 2, pad: true };

/// The collations that `table` gives.
pub struct Names;

impl Library for Names {
    fn collation(&self, id: u32, name: &str) -> Option<Arc<dyn Collation>> {
        let known: [Arc<dyn Collation>; 3] = [Arc::new(Binary), Arc::new(TEXT), Arc::new(WIDE)];
        known.into_iter().find(|c| c.id() == id && c.name() == name)
    }
    fn terms(&self, kind: IndexKind, options: &[u8]) -> Option<Arc<dyn Terms>> {
        (kind == WORDS && options == b"positions").then(|| Arc::new(Words) as Arc<dyn Terms>)
    }
}

/// The kind of an index with an entry per word, which is of these tests only.
pub const WORDS: IndexKind = IndexKind(200);

/// Words without regard to case, each with its position.
struct Words;

impl Terms for Words {
    fn terms(&self, values: &[Option<&[u8]>], each: &mut dyn FnMut(&[u8], &[u8])) {
        let texts = values.iter().flatten().map(|text| String::from_utf8_lossy(text).to_lowercase());
        let words = texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        words.enumerate().for_each(|(position, word)| each(word.as_bytes(), &[position as u8]));
    }
}

/// Columns such as `n int2 null`, `m bytes7` (a number, the highest byte first), `t varchar10`, `b text2 null`, `r varbinary5`; indexes such as `t (t, n desc)`, `PRIMARY (id)`,
/// `u unique (n)`, `w words (t, b)`.
pub fn table(columns: &[&str], indexes: &[&str]) -> TableDef {
    let nulls = columns.iter().filter(|c| c.ends_with(" null")).count();
    let null_bytes = nulls.div_ceil(8) as u32;
    let mut def = TableDef { version: [1; 16], ..TableDef::of_columns(Vec::new(), null_bytes, null_bytes) };
    let mut null_bit = 0;
    for line in columns {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, size) = words[1].split_at(words[1].find(|c: char| c.is_ascii_digit()).unwrap());
        let size: u32 = size.parse().unwrap();
        let (kind, length_bytes, bytes) = match kind {
            "int" => (ColumnType::Int { unsigned: false }, 0, size),
            "bytes" => (ColumnType::Bytes, 0, size),
            "float" => (ColumnType::Float, 0, size),
            "double" => (ColumnType::Double, 0, size),
            "char" => (ColumnType::Char, 0, size),
            "varchar" => (ColumnType::VarChar, 1 + u8::from(size > 255), size),
            "text" => (ColumnType::Blob, size as u8, 0),
            "binary" => (ColumnType::Char, 0, size),
            "varbinary" => (ColumnType::VarChar, 1, size),
            // Of characters with up to four bytes.
            "widechar" => (ColumnType::Char, 0, 4 * size),
            "widevarchar" => (ColumnType::VarChar, 1, 4 * size),
            other => panic!("{other}"),
        };
        let is_text = matches!(kind, ColumnType::Char | ColumnType::VarChar | ColumnType::Blob);
        let nullable = words.get(2) == Some(&"null");
        def.columns.push(Column {
            name: words[0].to_owned(),
            kind,
            is_virtual: false,
            length_bytes,
            null_offset: null_bit / 8,
            null_mask: if nullable { 1 << (null_bit % 8) } else { 0 },
            null_first: 0,
            offset: def.record_bytes,
            size: bytes,
            collation: is_text.then(|| collation(words[1])),
            is_moment: false,
        });
        null_bit += u32::from(nullable);
        def.record_bytes += u32::from(length_bytes) + bytes + if kind == ColumnType::Blob { 8 } else { 0 };
    }
    for line in indexes {
        let index = index(&def, line);
        if index.name == "PRIMARY" {
            def.primary = Some(def.indexes.len());
        }
        def.indexes.push(index);
    }
    def
}

fn collation(kind: &str) -> Arc<dyn Collation> {
    match kind {
        kind if kind.contains("binary") => Arc::new(Binary),
        kind if kind.contains("wide") => Arc::new(WIDE),
        _ => Arc::new(TEXT),
    }
}

/// An index of a table with these columns.
pub fn index(def: &TableDef, line: &str) -> Index {
    let (head, parts) = line.trim_end_matches(')').split_once(" (").unwrap();
    let words: Vec<&str> = head.split_whitespace().collect();
    let part = |part: &str| {
        let (name, descending) = match part.trim().strip_suffix(" desc") {
            Some(name) => (name, true),
            None => (part.trim(), false),
        };
        let column = def.columns.iter().position(|c| c.name == name).unwrap();
        let c = &def.columns[column];
        let length = if c.kind == ColumnType::Blob { 64 } else { c.size };
        let lengths = if matches!(c.kind, ColumnType::VarChar | ColumnType::Blob) { 2 } else { 0 };
        let store_length = length + lengths + u32::from(c.null_mask != 0);
        KeyPart { column: column as u32, length, descending, store_length }
    };
    let unique = words[0] == "PRIMARY" || words.contains(&"unique");
    let index = Index::ordinary(words[0], unique, parts.split(',').map(part).collect());
    match words.contains(&"words") {
        true => Index { kind: WORDS, options: b"positions".to_vec(), ..index },
        false => index,
    }
}

/// The record of a row; it leads to the texts of `row`.
pub fn record(def: &TableDef, row: &Values) -> Vec<u8> {
    let mut out = vec![0; def.record_bytes as usize];
    assert_eq!(row.len(), def.columns.len(), "{row:?}");
    for column in &def.columns {
        let at = column.offset as usize;
        let lengths = column.length_bytes as usize;
        match (&row[&column.name], column.kind) {
            (V::Null, _) => {
                assert_ne!(column.null_mask, 0, "{} is NOT NULL", column.name);
                out[column.null_offset as usize] |= column.null_mask;
            }
            (V::Int(n), ColumnType::Bytes) => {
                let size = column.size as usize;
                out[at..at + size].copy_from_slice(&n.to_be_bytes()[8 - size..]);
            }
            (V::Int(n), _) => {
                let size = column.size as usize;
                out[at..at + size].copy_from_slice(&n.to_le_bytes()[..size]);
            }
            (V::Real(n), ColumnType::Float) => out[at..at + 4].copy_from_slice(&(*n as f32).to_le_bytes()),
            (V::Real(n), _) => out[at..at + 8].copy_from_slice(&n.to_le_bytes()),
            (V::Text(text), kind) => {
                out[at..at + lengths].copy_from_slice(&text.len().to_le_bytes()[..lengths]);
                let slot = &mut out[at + lengths..];
                match kind {
                    ColumnType::Blob => slot[..8].copy_from_slice(&(text.as_ptr() as usize).to_le_bytes()),
                    _ => slot[..text.len()].copy_from_slice(text.as_bytes()),
                }
                if kind == ColumnType::Char {
                    let pad = if is_binary(column) { 0 } else { b' ' };
                    slot[text.len()..column.size as usize].fill(pad);
                }
            }
        }
    }
    out
}

fn is_binary(column: &Column) -> bool {
    column.collation.as_ref().is_some_and(|collation| collation.traits().binary)
}

/// The values of a record that was read.
pub fn read(def: &TableDef, record: &[u8]) -> Values {
    let value = |column: &Column| {
        if column.null_mask != 0 && record[column.null_offset as usize] & column.null_mask != 0 {
            return V::Null;
        }
        let slot = &record[column.offset as usize..];
        let number = |bytes: usize| {
            let mut wide = [0; 8];
            wide[..bytes].copy_from_slice(&slot[..bytes]);
            u64::from_le_bytes(wide)
        };
        let (lengths, size) = (column.length_bytes as usize, column.size as usize);
        let text = |bytes: &[u8]| V::Text(String::from_utf8(bytes.to_vec()).unwrap());
        match column.kind {
            ColumnType::Int { .. } => V::Int((number(size) as i64) << (64 - 8 * size) >> (64 - 8 * size)),
            ColumnType::Float => V::Real(f64::from(f32::from_bits(number(4) as u32))),
            ColumnType::Double => V::Real(f64::from_bits(number(8))),
            ColumnType::Char if is_binary(column) => text(&slot[..size]),
            ColumnType::Char => text(String::from_utf8_lossy(&slot[..size]).trim_end_matches(' ').as_bytes()),
            ColumnType::VarChar => text(&slot[lengths..lengths + number(lengths) as usize]),
            ColumnType::Blob => {
                let length = number(lengths) as usize;
                let at = usize::from_le_bytes(slot[lengths..lengths + 8].try_into().unwrap()) as *const u8;
                // SAFETY: the row was read just now, and the slot leads to its bytes.
                text(if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, length) } })
            }
            ColumnType::Bytes => V::Int(slot[..size].iter().fold(0, |all, byte| all << 8 | i64::from(*byte))),
        }
    };
    def.columns.iter().map(|column| (column.name.clone(), value(column))).collect()
}

/// A session with a cursor on one table.
pub struct User {
    pub session: Session,
    pub cursor: RowCursor,
    record: Vec<u8>,
    /// How long it waits for locks.
    pub timeout: Duration,
}

impl User {
    pub fn new(store: &Arc<Store>, table: &Arc<Table>) -> User {
        let session = Session::new(store, Box::new(|| false));
        let record = vec![0; table.def.record_bytes as usize];
        User { session, cursor: RowCursor::new(table), record, timeout: Duration::from_secs(5) }
    }

    /// Goes on, in the same transaction, with a table that was opened again.
    pub fn reopen(&mut self, table: &Arc<Table>) {
        self.cursor = RowCursor::new(table);
        self.record = vec![0; table.def.record_bytes as usize];
    }

    pub fn def(&self) -> TableDef {
        self.cursor.table().def.clone()
    }

    fn begin(&mut self) {
        self.session.statement_begin(Isolation::RepeatableRead, self.timeout).unwrap();
    }

    pub fn insert(&mut self, row: &Values) -> Result<()> {
        self.begin();
        let bytes = record(&self.def(), row);
        // SAFETY: the row outlives the call.
        let outcome = self.cursor.insert(&mut self.session, unsafe { Record::new(&bytes) });
        self.session.statement_end();
        outcome
    }

    /// The rows in the order of an index.
    pub fn scan(&mut self, index: Option<usize>) -> Result<Vec<Values>> {
        self.begin();
        self.cursor.set_mode(None, Waiting::Wait);
        self.cursor.begin(index, false)?;
        let def = self.def();
        let mut rows = Vec::new();
        let mut found = self.cursor.seek(&mut self.session, Seek::First, &[], &mut self.record)?;
        while found {
            rows.push(read(&def, &self.record));
            found = self.cursor.next(&mut self.session, &mut self.record)?;
        }
        self.session.statement_end();
        Ok(rows)
    }

    /// Changes all rows: `change` gives the new row, none to delete it, or the same to leave it.
    pub fn each(&mut self, mut change: impl FnMut(&Values) -> Option<Values>) -> Result<()> {
        self.begin();
        let def = self.def();
        self.cursor.set_mode(Some(LockMode::Exclusive), Waiting::Wait);
        self.cursor.begin(None, false)?;
        let mut outcome = Ok(());
        let mut found = self.cursor.seek(&mut self.session, Seek::First, &[], &mut self.record)?;
        while found && outcome.is_ok() {
            let old = read(&def, &self.record);
            let new = change(&old);
            let old_bytes = self.record.clone();
            // SAFETY: both rows outlive the calls.
            let old_record = unsafe { Record::new(&old_bytes) };
            outcome = match new {
                None => self.cursor.delete(&mut self.session, old_record),
                Some(new) if new == old => Ok(()),
                Some(new) => {
                    let bytes = record(&def, &new);
                    // SAFETY: as above.
                    self.cursor.update(&mut self.session, old_record, unsafe { Record::new(&bytes) }).map(drop)
                }
            };
            if outcome.is_ok() {
                found = self.cursor.next(&mut self.session, &mut self.record)?;
            }
        }
        self.session.statement_end();
        outcome
    }

    /// The rows that have a word, by an index of words.
    pub fn find(&mut self, index: usize, word: &str) -> Result<Vec<Values>> {
        self.find_locking(index, word, None)
    }

    /// The rows that have a word, locked or not.
    pub fn find_locking(&mut self, index: usize, word: &str, lock: Option<LockMode>) -> Result<Vec<Values>> {
        self.begin();
        self.cursor.set_mode(lock, Waiting::Wait);
        self.cursor.begin(Some(index), false)?;
        let def = self.def();
        let mut image = vec![0; 2 + TERM_BYTES_MAX];
        image[..2].copy_from_slice(&(word.len() as u16).to_le_bytes());
        image[2..2 + word.len()].copy_from_slice(word.as_bytes());
        let mut rows = Vec::new();
        let mut found = self.cursor.seek(&mut self.session, Seek::Exact, &image, &mut self.record)?;
        while found {
            rows.push(read(&def, &self.record));
            found = self.cursor.next_same(&mut self.session, &mut self.record)?;
        }
        self.session.statement_end();
        Ok(rows)
    }

    /// The row of a primary key of four bytes, locked.
    pub fn get(&mut self, id: i32) -> Option<Values> {
        self.try_get(id).unwrap()
    }

    /// As `get`, where others may be in the way.
    pub fn try_get(&mut self, id: i32) -> Result<Option<Values>> {
        self.begin();
        self.cursor.set_mode(Some(LockMode::Exclusive), Waiting::Wait);
        self.cursor.begin(Some(0), false)?;
        let found = self.cursor.seek(&mut self.session, Seek::Exact, &id.to_le_bytes(), &mut self.record);
        self.session.statement_end();
        Ok(found?.then(|| read(&self.def(), &self.record)))
    }

    /// Writes `new` in the place of `old`, or deletes it.
    pub fn write(&mut self, old: &Values, new: Option<&Values>) -> Result<Updated> {
        self.begin();
        let def = self.def();
        let (old, new) = (record(&def, old), new.map(|new| record(&def, new)));
        // SAFETY: the rows outlive the calls.
        let record = |bytes| unsafe { Record::new(bytes) };
        let outcome = match &new {
            Some(new) => self.cursor.update(&mut self.session, record(&old), record(new)),
            None => self.cursor.delete(&mut self.session, record(&old)).map(|()| Updated::Changed),
        };
        self.session.statement_end();
        outcome
    }

    pub fn commit(&mut self) {
        self.session.commit().unwrap();
    }

    /// CHECK TABLE, and what it says.
    pub fn findings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let good = self.cursor.table().check(&self.session, false, None, &mut |l| lines.push(l.to_owned())).unwrap();
        assert_eq!(good, lines.is_empty(), "{lines:?}");
        lines
    }
}
