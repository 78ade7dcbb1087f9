//! Keys of catalog entries, and the bytes of all but those of tables ([`super::entry`]). docs/develop/format/catalog.md
//! describes them exactly.
//!
//! All entries live in reserved indexes of the engine itself, so that a change of the catalog is an ordinary atomic
//! write. Keys are made of the index id and big-endian numbers; values start with a version byte and use varints. An
//! unknown version is refused, never guessed. Offsets of columns in the server's record are *not* stored: they belong to
//! the server's build, the stored definition must outlive it.
//!
//! Rejected: one entry per column and index (as SQL dictionaries do). A table is always read and written as a whole, and
//! one entry makes every change of a table a change of one key.

use crate::error::{Error, Result};
use crate::kv::codec::{Reader, put_bytes, put_varint};
use crate::kv::{Feature, IndexId, Need};
use crate::schema::TableMeta;
use std::collections::BTreeSet;

use super::entry::VERSIONED;

/// The index that holds the catalog.
///
/// This index and the next two are never dropped, so autonomous writes to them need not ask whether they are.
pub const CATALOG: IndexId = IndexId(1);
/// The index that holds high-water marks of counters.
pub const COUNTERS: IndexId = IndexId(2);
/// The index that holds persisted statistics.
pub const STATISTICS: IndexId = IndexId(3);
/// First index id that tables get.
pub const FIRST_INDEX_ID: u32 = 16;

const VERSION: u8 = 1;
const TAG_IDS: u8 = 0;
const TAG_TABLE: u8 = 1;
const TAG_PENDING: u8 = 2;
const TAG_DECISIONS: u8 = 3;

const DECISIONS_NONE: u8 = 0;
const DECISIONS_FILE: u8 = 1;

/// Tables with several schema versions, or with indexes that are not live or of another kind: entries of version 3.
pub const SCHEMA_VERSIONS: Feature = Feature::new("schema-versions", "0.1", Need::Reader);

/// Tables with foreign keys: entries of version 4. Whoever does not know them does not check what it writes.
pub const FOREIGN_KEYS: Feature = Feature::new("foreign-keys", "0.1", Need::Reader);

/// Tables that ask for encryption, or refuse it, or name a key for it: entries of version 5.
pub const TABLE_ENCRYPTION: Feature = Feature::new("table-encryption", "0.1", Need::Reader);

/// Tables whose rows expire: entries of version 6. Whoever does not know them shows rows that are gone.
pub const ROWS_EXPIRE: Feature = Feature::new("rows-expire", "0.1", Need::Reader);

/// Tables WITH SYSTEM VERSIONING that foreign keys may refer to: entries of version 7. Whoever does not know them takes rows of the past for
/// parents.
pub const ROW_VERSIONS: Feature = Feature::new("row-versions", "0.1", Need::Reader);

/// Tables with an index whose unpack data has form 2: entries of version 8.
pub const RESTORED_TEXTS: Feature = Feature::new("restored-texts", "0.1", Need::Reader);

/// The features of a store that this layer knows beside the engine's: one for each version of an entry from the third on.
pub const FEATURES: &[Feature] =
    &[SCHEMA_VERSIONS, FOREIGN_KEYS, TABLE_ENCRYPTION, ROWS_EXPIRE, ROW_VERSIONS, RESTORED_TEXTS];

/// The features that a store must have before these keys are written.
pub fn features_of(change: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<&'static Feature> {
    let table = tagged(TAG_TABLE);
    let entries = change.iter().filter(|(key, _)| key.starts_with(&table)).filter_map(|(_, value)| value.as_ref());
    let tables = entries.filter_map(|value| TableMeta::decode("", value).ok());
    let needed: BTreeSet<u8> = tables.flat_map(|table| table.needed_versions()).collect();
    (VERSIONED..).zip(FEATURES).filter(|(version, _)| needed.contains(version)).map(|(_, feature)| feature).collect()
}

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
    let read = |r: &mut Reader<'_>| Some((u32::try_from(r.varint()?).ok()?, r.varint()?));
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
