//! Bytes of catalog entries (docs/develop/format/catalog.md describes them exactly).
//!
//! All entries live in reserved indexes of the engine itself, so that a change of the catalog is an ordinary atomic
//! write. Keys are made of the index id and big-endian numbers; values start with a version byte and use varints. An
//! unknown version is refused, never guessed. Offsets of columns in the server's record are *not* stored: they belong to
//! the server's build, the stored definition must outlive it.
//!
//! Rejected: one entry per column and index (as SQL dictionaries do). A table is always read and written as a whole, and
//! one entry makes every change of a table a change of one key.

use crate::def::{Column, ColumnType, Compression, TableDef};
use crate::error::{Error, Result};
use crate::kv::IndexId;
use strata_engine::base::codec::{Reader, put_bytes, put_varint};

/// The index that holds the catalog.
pub const CATALOG: IndexId = IndexId(1);
/// The index that holds high-water marks of counters.
pub const COUNTERS: IndexId = IndexId(2);
/// The index that holds persisted statistics.
pub const STATISTICS: IndexId = IndexId(3);
/// First index id that tables get.
pub const FIRST_INDEX_ID: u32 = 16;

const VERSION: u8 = 1;
/// The version of tables with a column whose weights are of form 2: who knows form 1 only must not read their keys.
const VERSION_FORMS: u8 = 2;
const TAG_IDS: u8 = 0;
const TAG_TABLE: u8 = 1;
const TAG_PENDING: u8 = 2;
const TAG_DECISIONS: u8 = 3;

const DECISIONS_NONE: u8 = 0;
const DECISIONS_FILE: u8 = 1;

const COL_UNSIGNED: u8 = 1;
const COL_VIRTUAL: u8 = 2;
const COL_NULLABLE: u8 = 4;
const COL_TEXT: u8 = 8;
const COL_FORM_2: u8 = 16;
const INDEX_UNIQUE: u8 = 1;
const INDEX_LONG_HASH: u8 = 2;
const TABLE_TEMPORARY: u8 = 1;
const TABLE_NO_ROLLBACK: u8 = 2;

/// Where whoever prepares transactions in several places keeps what becomes of them. To the row layer a name only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DecisionLog {
    /// In no file that could be read later.
    None,
    /// In a file, or those that continue it.
    File {
        /// Its name.
        path: Vec<u8>,
        /// Unix time at which it was made: tells it from another one of that name.
        created: u32,
    },
}

/// A column as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredColumn {
    /// Name.
    pub name: String,
    /// Storage class.
    pub kind: ColumnType,
    /// Not stored in rows.
    pub is_virtual: bool,
    /// May be NULL.
    pub nullable: bool,
    /// Bytes of the length prefix.
    pub length_bytes: u8,
    /// Data bytes.
    pub size: u32,
    /// Number and name of the collation of text columns.
    pub collation: Option<(u32, String)>,
    /// Form of its weights, see [`crate::def::Collation::form`]; 1 without a collation.
    pub form: u8,
}

/// An index part as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredPart {
    /// Column number.
    pub column: u32,
    /// Indexed bytes.
    pub length: u32,
    /// Descending.
    pub descending: bool,
}

/// An index as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredIndex {
    /// Where its entries live.
    pub id: IndexId,
    /// Name.
    pub name: String,
    /// Unique.
    pub unique: bool,
    /// Over a hidden hash column.
    pub long_hash: bool,
    /// Parts.
    pub parts: Vec<StoredPart>,
}

/// A table as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableMeta {
    /// Number of the table, kept by rename and truncate. Never reused.
    pub table_id: u64,
    /// Version of the row format: grows with each change of columns in place.
    pub schema_version: u32,
    /// Unix seconds of creation.
    pub create_time: u64,
    /// The server's `tabledef_version`.
    pub version: [u8; 16],
    /// Number of the clustered index, or `None` with `hidden` set.
    pub primary: Option<usize>,
    /// Index id of the rows if there is no clustered index.
    pub hidden: Option<IndexId>,
    /// Auto-increment column.
    pub autoinc_column: Option<u32>,
    /// CREATE TEMPORARY TABLE.
    pub temporary: bool,
    /// Sequence.
    pub no_rollback: bool,
    /// COMPRESSION= option.
    pub compression: Option<Compression>,
    /// Columns in order.
    pub columns: Vec<StoredColumn>,
    /// Indexes in order.
    pub indexes: Vec<StoredIndex>,
}

impl StoredColumn {
    /// What is stored of a column.
    pub fn of(column: &Column) -> StoredColumn {
        StoredColumn {
            name: column.name.clone(),
            kind: column.kind,
            is_virtual: column.is_virtual,
            nullable: column.null_mask != 0,
            length_bytes: column.length_bytes,
            size: column.size,
            collation: column.collation.as_ref().map(|c| (c.id(), c.name().to_owned())),
            form: column.collation.as_ref().map_or(1, |c| c.form()),
        }
    }
}

impl TableMeta {
    /// The index that holds the rows.
    pub fn clustered_id(&self) -> IndexId {
        match (self.primary, self.hidden) {
            (Some(p), _) => self.indexes[p].id,
            (None, Some(id)) => id,
            (None, None) => unreachable!("decode refuses a table without rows"),
        }
    }

    /// All index ids of the table.
    pub fn ids(&self) -> Vec<IndexId> {
        self.hidden.into_iter().chain(self.indexes.iter().map(|i| i.id)).collect()
    }

    /// The entry for a new table; `next_id` gives out index ids.
    pub fn new(def: &TableDef, table_id: u64, create_time: u64, next_id: &mut dyn FnMut() -> IndexId) -> TableMeta {
        let hidden = if def.primary.is_none() { Some(next_id()) } else { None };
        let indexes = def
            .indexes
            .iter()
            .map(|index| StoredIndex {
                id: next_id(),
                name: index.name.clone(),
                unique: index.unique,
                long_hash: index.long_hash,
                parts: index
                    .parts
                    .iter()
                    .map(|p| StoredPart { column: p.column, length: p.length, descending: p.descending })
                    .collect(),
            })
            .collect();
        TableMeta {
            table_id,
            schema_version: 1,
            create_time,
            version: def.version,
            primary: def.primary,
            hidden,
            autoinc_column: def.autoinc_column,
            temporary: def.temporary,
            no_rollback: def.no_rollback,
            compression: def.compression,
            columns: def.columns.iter().map(StoredColumn::of).collect(),
            indexes,
        }
    }

    /// Bytes of the entry.
    pub fn encode(&self) -> Vec<u8> {
        let forms = self.columns.iter().any(|column| column.form > 1);
        let mut out = vec![if forms { VERSION_FORMS } else { VERSION }];
        put_varint(&mut out, self.table_id);
        put_varint(&mut out, u64::from(self.schema_version));
        put_varint(&mut out, self.create_time);
        out.extend_from_slice(&self.version);
        out.push(flags(&[(self.temporary, TABLE_TEMPORARY), (self.no_rollback, TABLE_NO_ROLLBACK)]));
        out.push(match self.compression {
            None => 0,
            Some(Compression::None) => 1,
            Some(Compression::Lz4) => 2,
            Some(Compression::Zstd) => 3,
        });
        put_varint(&mut out, self.primary.map_or(0, |p| p as u64 + 1));
        put_varint(&mut out, self.hidden.map_or(0, |id| u64::from(id.0)));
        put_varint(&mut out, self.autoinc_column.map_or(0, |c| u64::from(c) + 1));
        put_varint(&mut out, self.columns.len() as u64);
        for column in &self.columns {
            put_bytes(&mut out, column.name.as_bytes());
            let (kind, unsigned) = kind_byte(column.kind);
            out.push(kind);
            out.push(flags(&[
                (unsigned, COL_UNSIGNED),
                (column.is_virtual, COL_VIRTUAL),
                (column.nullable, COL_NULLABLE),
                (column.collation.is_some(), COL_TEXT),
                (column.form > 1, COL_FORM_2),
            ]));
            out.push(column.length_bytes);
            put_varint(&mut out, u64::from(column.size));
            if let Some((id, name)) = &column.collation {
                put_varint(&mut out, u64::from(*id));
                put_bytes(&mut out, name.as_bytes());
            }
        }
        put_varint(&mut out, self.indexes.len() as u64);
        for index in &self.indexes {
            put_varint(&mut out, u64::from(index.id.0));
            put_bytes(&mut out, index.name.as_bytes());
            out.push(flags(&[(index.unique, INDEX_UNIQUE), (index.long_hash, INDEX_LONG_HASH)]));
            put_varint(&mut out, index.parts.len() as u64);
            for part in &index.parts {
                put_varint(&mut out, u64::from(part.column));
                put_varint(&mut out, u64::from(part.length));
                out.push(u8::from(part.descending));
            }
        }
        out
    }

    /// Reads an entry; `name` is for messages.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<TableMeta> {
        match bytes.first() {
            Some(&(VERSION | VERSION_FORMS)) => {}
            Some(v) => {
                return Err(Error::invalid(format!("catalog entry of '{name}' has unknown version {v}")));
            }
            None => return Err(malformed(name)),
        }
        let meta = read_table(&mut Reader::new(&bytes[1..])).ok_or_else(|| malformed(name))?;
        let columns = meta.columns.len();
        let good = meta.indexes.iter().flat_map(|i| &i.parts).all(|p| (p.column as usize) < columns)
            && meta.autoinc_column.is_none_or(|c| (c as usize) < columns)
            && match meta.primary {
                Some(p) => p < meta.indexes.len() && meta.hidden.is_none(),
                None => meta.hidden.is_some(),
            };
        if good { Ok(meta) } else { Err(malformed(name)) }
    }
}

/// The bits whose conditions hold.
fn flags(bits: &[(bool, u8)]) -> u8 {
    bits.iter().filter(|b| b.0).fold(0, |all, b| all | b.1)
}

fn malformed(name: &str) -> Error {
    Error::corruption(format!("catalog entry of '{name}' does not decode"))
}

fn kind_byte(kind: ColumnType) -> (u8, bool) {
    match kind {
        ColumnType::Int { unsigned } => (0, unsigned),
        ColumnType::Float => (1, false),
        ColumnType::Double => (2, false),
        ColumnType::Bytes => (3, false),
        ColumnType::Char => (4, false),
        ColumnType::VarChar => (5, false),
        ColumnType::Blob => (6, false),
    }
}

fn read_text(r: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(r.bytes()?.to_vec()).ok()
}

fn read_u32(r: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(r.varint()?).ok()
}

fn read_column(r: &mut Reader<'_>) -> Option<StoredColumn> {
    let name = read_text(r)?;
    let kind = r.u8()?;
    let flags = r.u8()?;
    let kind = match kind {
        0 => ColumnType::Int { unsigned: flags & COL_UNSIGNED != 0 },
        1 => ColumnType::Float,
        2 => ColumnType::Double,
        3 => ColumnType::Bytes,
        4 => ColumnType::Char,
        5 => ColumnType::VarChar,
        6 => ColumnType::Blob,
        _ => return None,
    };
    let length_bytes = r.u8()?;
    let size = read_u32(r)?;
    let collation = if flags & COL_TEXT != 0 { Some((read_u32(r)?, read_text(r)?)) } else { None };
    Some(StoredColumn {
        name,
        kind,
        is_virtual: flags & COL_VIRTUAL != 0,
        nullable: flags & COL_NULLABLE != 0,
        length_bytes,
        size,
        collation,
        form: if flags & COL_FORM_2 != 0 { 2 } else { 1 },
    })
}

fn read_table(r: &mut Reader<'_>) -> Option<TableMeta> {
    let table_id = r.varint()?;
    let schema_version = read_u32(r)?;
    let create_time = r.varint()?;
    let version = r.take(16)?.try_into().ok()?;
    let flags = r.u8()?;
    let compression = match r.u8()? {
        0 => None,
        1 => Some(Compression::None),
        2 => Some(Compression::Lz4),
        3 => Some(Compression::Zstd),
        _ => return None,
    };
    let primary = r.varint()?.checked_sub(1).map(|p| p as usize);
    let hidden = match read_u32(r)? {
        0 => None,
        id => Some(IndexId(id)),
    };
    let autoinc_column = read_u32(r)?.checked_sub(1);
    let mut columns = Vec::new();
    for _ in 0..r.varint()? {
        columns.push(read_column(r)?);
    }
    let mut indexes = Vec::new();
    for _ in 0..r.varint()? {
        let id = IndexId(read_u32(r)?);
        let name = read_text(r)?;
        let flags = r.u8()?;
        let mut parts = Vec::new();
        for _ in 0..r.varint()? {
            parts.push(StoredPart { column: read_u32(r)?, length: read_u32(r)?, descending: r.u8()? != 0 });
        }
        indexes.push(StoredIndex {
            id,
            name,
            unique: flags & INDEX_UNIQUE != 0,
            long_hash: flags & INDEX_LONG_HASH != 0,
            parts,
        });
    }
    r.is_empty().then_some(TableMeta {
        table_id,
        schema_version,
        create_time,
        version,
        primary,
        hidden,
        autoinc_column,
        temporary: flags & TABLE_TEMPORARY != 0,
        no_rollback: flags & TABLE_NO_ROLLBACK != 0,
        compression,
        columns,
        indexes,
    })
}

/// Key of the entry with the next free ids.
pub fn ids_key() -> Vec<u8> {
    tagged(TAG_IDS)
}

/// Value of that entry.
pub fn encode_ids(next_index: u32, next_table: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_varint(&mut out, u64::from(next_index));
    put_varint(&mut out, next_table);
    out
}

/// Reads that entry: next index id, next table id.
pub fn decode_ids(bytes: &[u8]) -> Result<(u32, u64)> {
    let mut r = Reader::new(bytes);
    match r.u8() {
        Some(VERSION) => {}
        Some(v) => {
            return Err(Error::invalid(format!("the catalog has unknown version {v}")));
        }
        None => return Err(Error::corruption("catalog ids do not decode")),
    }
    let read = |r: &mut Reader<'_>| Some((read_u32(r)?, r.varint()?));
    read(&mut r).filter(|_| r.is_empty()).ok_or_else(|| Error::corruption("catalog ids do not decode"))
}

/// Key of a table's entry.
pub fn table_key(name: &str) -> Vec<u8> {
    let mut key = tagged(TAG_TABLE);
    key.extend_from_slice(name.as_bytes());
    key
}

/// Key of the note that an index still has to be dropped.
pub fn pending_key(id: IndexId) -> Vec<u8> {
    let mut key = tagged(TAG_PENDING);
    key.extend_from_slice(&id.prefix());
    key
}

/// Value of that note.
pub fn encode_pending() -> Vec<u8> {
    vec![VERSION]
}

/// Value of a counter's high-water mark: every value handed out is below `below`.
pub fn encode_counter(below: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_varint(&mut out, below);
    out
}

/// Reads a high-water mark.
pub fn decode_counter(bytes: &[u8]) -> Result<u64> {
    let mut r = Reader::new(bytes);
    let value = if r.u8() == Some(VERSION) { r.varint() } else { None };
    value.ok_or_else(|| Error::corruption("a counter does not decode"))
}

/// Value of a table's statistics: sampled rows and, per index, rows per value of each prefix.
pub fn encode_statistics(sampled: u64, indexes: &[Vec<f64>]) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_varint(&mut out, sampled);
    put_varint(&mut out, indexes.len() as u64);
    for index in indexes {
        put_varint(&mut out, index.len() as u64);
        for mean in index {
            out.extend_from_slice(&mean.to_le_bytes());
        }
    }
    out
}

/// Reads statistics.
pub fn decode_statistics(bytes: &[u8]) -> Option<(u64, Vec<Vec<f64>>)> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return None;
    }
    let sampled = r.varint()?;
    let mut indexes = Vec::new();
    for _ in 0..r.varint()? {
        let mut means = Vec::new();
        for _ in 0..r.varint()? {
            means.push(f64::from_bits(r.u64()?));
        }
        indexes.push(means);
    }
    Some((sampled, indexes))
}

/// Key of a counter's high-water mark: 0 = auto-increment, 1 = hidden row ids.
pub fn counter_key(table_id: u64, which: u8) -> Vec<u8> {
    let mut key = COUNTERS.prefix().to_vec();
    key.extend_from_slice(&table_id.to_be_bytes());
    key.push(which);
    key
}

/// Key of a table's statistics.
pub fn statistics_key(table_id: u64) -> Vec<u8> {
    let mut key = STATISTICS.prefix().to_vec();
    key.extend_from_slice(&table_id.to_be_bytes());
    key
}

/// Key of the place where decisions are kept. It is one of the catalog's, so that a build that does not know it, and would not
/// keep it true, does not open the store.
pub fn decisions_key() -> Vec<u8> {
    tagged(TAG_DECISIONS)
}

/// Bytes of that place.
pub fn encode_decisions(place: &DecisionLog) -> Vec<u8> {
    let mut out = vec![VERSION];
    match place {
        DecisionLog::None => out.push(DECISIONS_NONE),
        DecisionLog::File { path, created } => {
            out.push(DECISIONS_FILE);
            put_varint(&mut out, u64::from(*created));
            put_bytes(&mut out, path);
        }
    }
    out
}

/// The reverse.
pub fn decode_decisions(bytes: &[u8]) -> Result<DecisionLog> {
    let parse = || {
        let mut r = Reader::new(bytes);
        let place = match (r.u8()?, r.u8()?) {
            (VERSION, DECISIONS_NONE) => DecisionLog::None,
            (VERSION, DECISIONS_FILE) => {
                let created = u32::try_from(r.varint()?).ok()?;
                let len = usize::try_from(r.varint()?).ok()?;
                DecisionLog::File { path: r.take(len)?.to_vec(), created }
            }
            _ => return None,
        };
        r.is_empty().then_some(place)
    };
    parse().ok_or_else(|| Error::corruption("the entry of the decisions' place makes no sense"))
}

fn tagged(tag: u8) -> Vec<u8> {
    let mut key = CATALOG.prefix().to_vec();
    key.push(tag);
    key
}

/// What a catalog key stands for.
pub enum Entry<'a> {
    /// The ids entry.
    Ids,
    /// A table by name.
    Table(&'a str),
    /// A pending drop.
    Pending(IndexId),
    /// The place where decisions are kept.
    Decisions,
}

/// Takes a catalog key apart.
pub fn parse_key(key: &[u8]) -> Result<Entry<'_>> {
    let parse = || {
        let mut r = Reader::new(key);
        r.take(IndexId::LEN)?;
        match r.u8()? {
            TAG_IDS => r.is_empty().then_some(Entry::Ids),
            TAG_TABLE => std::str::from_utf8(r.rest()).ok().map(Entry::Table),
            TAG_DECISIONS => r.is_empty().then_some(Entry::Decisions),
            TAG_PENDING if r.rest().len() == 4 => Some(Entry::Pending(IndexId::of(r.rest()))),
            _ => None,
        }
    };
    parse().ok_or_else(|| Error::corruption("unknown key in the catalog"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> TableMeta {
        TableMeta {
            table_id: 7,
            schema_version: 1,
            create_time: 1_000_000_000,
            version: [0xab; 16],
            primary: Some(0),
            hidden: None,
            autoinc_column: Some(0),
            temporary: false,
            no_rollback: false,
            compression: Some(Compression::Lz4),
            columns: vec![
                StoredColumn {
                    name: "id".into(),
                    kind: ColumnType::Int { unsigned: true },
                    is_virtual: false,
                    nullable: false,
                    length_bytes: 0,
                    size: 4,
                    collation: None,
                    form: 1,
                },
                StoredColumn {
                    name: "t".into(),
                    kind: ColumnType::VarChar,
                    is_virtual: false,
                    nullable: true,
                    length_bytes: 1,
                    size: 40,
                    collation: Some((45, "utf8mb4_general_ci".into())),
                    form: 1,
                },
            ],
            indexes: vec![
                StoredIndex {
                    id: IndexId(16),
                    name: "PRIMARY".into(),
                    unique: true,
                    long_hash: false,
                    parts: vec![StoredPart { column: 0, length: 4, descending: false }],
                },
                StoredIndex {
                    id: IndexId(17),
                    name: "t".into(),
                    unique: false,
                    long_hash: false,
                    parts: vec![StoredPart { column: 1, length: 40, descending: true }],
                },
            ],
        }
    }

    /// Hex lines of the fenced blocks in the format's description.
    fn documented() -> Vec<Vec<u8>> {
        let text = include_str!("../../../docs/develop/format/catalog.md");
        let mut blocks = Vec::new();
        let mut current: Option<Vec<u8>> = None;
        for line in text.lines() {
            if line.starts_with("```") {
                match current.take() {
                    Some(block) => blocks.push(block),
                    None => current = Some(Vec::new()),
                }
            } else if let Some(block) = &mut current {
                let hex = line.split('#').next().unwrap_or("");
                block.extend(hex.split_whitespace().map(|b| u8::from_str_radix(b, 16).unwrap()));
            }
        }
        blocks
    }

    #[test]
    fn the_documented_example_is_what_is_written() {
        let blocks = documented();
        assert_eq!(blocks[0], ids_key());
        assert_eq!(blocks[1], encode_ids(18, 8));
        assert_eq!(blocks[2], table_key("./db/t"));
        assert_eq!(blocks[3], example().encode());
        assert_eq!(blocks[4], pending_key(IndexId(17)));
        assert_eq!(blocks[5], counter_key(7, 0));
        assert_eq!(blocks[6], decisions_key());
        assert_eq!(blocks[7], encode_decisions(&place()));
    }

    fn place() -> DecisionLog {
        DecisionLog::File { path: b"./bin.000001".to_vec(), created: 1_000_000_000 }
    }

    #[test]
    fn the_place_of_decisions_round_trips_and_what_is_cut_is_refused() {
        for place in [place(), DecisionLog::None] {
            let bytes = encode_decisions(&place);
            assert_eq!(decode_decisions(&bytes).unwrap(), place);
            for n in 0..bytes.len() {
                assert!(decode_decisions(&bytes[..n]).is_err(), "{n} bytes decoded");
            }
            assert!(decode_decisions(&[&bytes[..], b"x"].concat()).is_err());
        }
    }

    /// A table whose keys hold weights of form 2 must not be opened by who makes those of form 1.
    #[test]
    fn a_second_form_of_weights_has_a_version_of_its_own() {
        let mut meta = example();
        meta.columns[1].collation = Some((1, "big5_chinese_ci".into()));
        meta.columns[1].form = 2;
        let bytes = meta.encode();
        assert_eq!(bytes[0], VERSION_FORMS);
        assert_eq!(TableMeta::decode("x", &bytes).unwrap(), meta);
    }

    #[test]
    fn entries_round_trip_and_truncated_ones_are_refused() {
        let meta = example();
        let bytes = meta.encode();
        assert_eq!(TableMeta::decode("x", &bytes).unwrap(), meta);
        for n in 0..bytes.len() {
            assert!(TableMeta::decode("x", &bytes[..n]).is_err(), "{n} bytes decoded");
        }
        let mut newer = bytes.clone();
        newer[0] = VERSION_FORMS + 1;
        assert!(TableMeta::decode("x", &newer).unwrap_err().to_string().contains("unknown version"));
        assert_eq!(decode_ids(&encode_ids(18, 8)).unwrap(), (18, 8));
    }
}
