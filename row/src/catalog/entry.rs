//! Bytes of a table's entry (docs/develop/format/catalog.md).
//!
//! There are eight versions of the entry, and each table has the lowest that can say what the table is, so that an earlier
//! build opens every table that it would not misread:
//!
//! 1. one list of columns, indexes with one entry per row
//! 2. the same, with weights of form 2
//! 3. column ids, earlier schema versions, initial values, kinds of indexes
//! 4. the same, with foreign keys
//! 5. the same, with what the table asks for in regard to encryption
//! 6. the same, with what TTL= says
//! 7. the same, with or without a TTL, with what SYSTEM VERSIONING says
//! 8. the same, with or without that, with an index whose unpack data has form 2
//!
//! An entry of version 1 or 2 is read as what it says in terms of version 3: columns are numbered in order.

use crate::def::{ColumnType, Compression, Encrypted, Encryption, IndexKind};
use crate::error::{Error, Result};
use crate::foreign::{Action, ForeignKey};
use crate::kv::IndexId;
use crate::kv::codec::{Reader, put_bytes, put_varint};
use crate::schema::{FIRST_VERSION, Initial, Schema, StoredColumn, StoredIndex, StoredPart, TableMeta};
use crate::ttl::Ttl;
use crate::versions::SystemVersions;
use std::collections::BTreeSet;
use std::sync::Arc;

const PLAIN: u8 = 1;
/// Who knows weights of form 1 only must not read the keys.
const FORMS: u8 = 2;
/// Who knows one schema version only must not read the rows, nor who knows one kind of indexes write any.
pub(super) const VERSIONED: u8 = 3;
/// Who does not know foreign keys must not write rows.
pub(super) const FOREIGN: u8 = 4;
/// Who does not know encryption must not write rows in the clear.
pub(super) const ENCRYPTION: u8 = 5;
/// Who does not know that rows expire must not show them.
pub(super) const TTL: u8 = 6;
/// Who does not know rows of the past must not take them for parents, nor for children.
pub(super) const PAST: u8 = 7;
/// Who knows unpack data of form 1 only must not read the entries of indexes, nor write any.
pub(super) const UNPACK: u8 = 8;

const COL_UNSIGNED: u8 = 1;
const COL_VIRTUAL: u8 = 2;
const COL_NULLABLE: u8 = 4;
const COL_TEXT: u8 = 8;
const COL_FORM_2: u8 = 16;
const COL_INITIAL: u8 = 32;
const INITIAL_NULL: u8 = 0;
const INITIAL_VALUE: u8 = 1;
const INDEX_UNIQUE: u8 = 1;
const INDEX_LONG_HASH: u8 = 2;
const INDEX_UNPACK_FORM_2: u8 = 4;
/// The one state that an index may be in.
const INDEX_LIVE: u8 = 0;
const TABLE_TEMPORARY: u8 = 1;
const TABLE_NO_ROLLBACK: u8 = 2;
const FOREIGN_INHERITED: u8 = 1;

impl TableMeta {
    /// Bytes of the entry.
    pub fn encode(&self) -> Vec<u8> {
        let version = self.lowest_version();
        let versioned = version >= VERSIONED;
        let mut out = vec![version];
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
        if versioned {
            put_varint(&mut out, u64::from(self.next_column));
        }
        put_columns(&mut out, &self.columns, versioned);
        if versioned {
            put_varint(&mut out, self.former.len() as u64);
            for schema in &self.former {
                put_varint(&mut out, u64::from(schema.version));
                put_columns(&mut out, &schema.columns, true);
            }
        }
        put_varint(&mut out, self.indexes.len() as u64);
        for index in &self.indexes {
            put_varint(&mut out, u64::from(index.id.0));
            put_bytes(&mut out, index.name.as_bytes());
            out.push(flags(&[
                (index.unique, INDEX_UNIQUE),
                (index.long_hash, INDEX_LONG_HASH),
                (index.unpack_form > 1, INDEX_UNPACK_FORM_2),
            ]));
            if versioned {
                out.extend_from_slice(&[index.kind.0, INDEX_LIVE]);
                put_bytes(&mut out, &index.options);
            }
            put_varint(&mut out, index.parts.len() as u64);
            for part in &index.parts {
                put_varint(&mut out, u64::from(part.column));
                put_varint(&mut out, u64::from(part.length));
                out.push(u8::from(part.descending));
            }
        }
        if version >= FOREIGN {
            put_varint(&mut out, self.foreign.len() as u64);
            self.foreign.iter().for_each(|key| put_foreign(&mut out, key));
        }
        if version >= ENCRYPTION {
            out.push(self.encryption.encrypted as u8);
            put_varint(&mut out, u64::from(self.encryption.key));
        }
        if version >= PAST {
            out.push(u8::from(self.ttl.is_some()));
        }
        if version >= UNPACK {
            out.push(u8::from(self.versions.is_some()));
        }
        if let Some(ttl) = &self.ttl {
            put_varint(&mut out, u64::from(ttl.column));
            put_varint(&mut out, ttl.seconds);
        }
        if let Some(versions) = &self.versions {
            put_varint(&mut out, u64::from(versions.start));
            put_varint(&mut out, u64::from(versions.end));
            put_bytes(&mut out, &versions.greatest);
            put_varint(&mut out, versions.without.len() as u64);
            versions.without.iter().for_each(|column| put_varint(&mut out, u64::from(*column)));
        }
        out
    }

    /// Which versions of the entry, from the third on, were made for something that this table has.
    pub(super) fn needed_versions(&self) -> impl Iterator<Item = u8> + use<> {
        let plain_columns = self.columns.iter().zip(0..).all(|(c, number)| c.id == number && c.initial.is_none())
            && self.next_column as usize == self.columns.len();
        let plain_index = |i: &StoredIndex| i.kind == IndexKind::ORDINARY && i.options.is_empty();
        let one_version = self.schema_version == FIRST_VERSION && self.former.is_empty();
        let needed = [
            (VERSIONED, !(one_version && plain_columns && self.indexes.iter().all(plain_index))),
            (FOREIGN, !self.foreign.is_empty()),
            (ENCRYPTION, self.encryption != Encryption::default()),
            (TTL, self.ttl.is_some()),
            (PAST, self.versions.is_some()),
            (UNPACK, self.indexes.iter().any(|index| index.unpack_form > 1)),
        ];
        needed.into_iter().filter(|(_, is_needed)| *is_needed).map(|(version, _)| version)
    }

    fn lowest_version(&self) -> u8 {
        let of_weights = if self.columns.iter().any(|column| column.form > 1) { FORMS } else { PLAIN };
        self.needed_versions().max().unwrap_or(of_weights)
    }

    /// Reads an entry; `name` is for messages.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<TableMeta> {
        let malformed = || Error::corruption(format!("catalog entry of '{name}' does not decode"));
        let version = match bytes.first() {
            Some(&version @ PLAIN..=UNPACK) => version,
            Some(v) => {
                return Err(Error::invalid(format!("catalog entry of '{name}' has unknown version {v}")));
            }
            None => return Err(malformed()),
        };
        let meta = read_table(&mut Reader::new(&bytes[1..]), version);
        meta.filter(TableMeta::makes_sense).ok_or_else(malformed)
    }

    fn makes_sense(&self) -> bool {
        let columns = self.columns.len();
        let ids_differ = |columns: &[StoredColumn]| {
            let ids: BTreeSet<u32> = columns.iter().map(|c| c.id).collect();
            ids.len() == columns.len() && ids.last().is_none_or(|&last| last < self.next_column)
        };
        let versions: Vec<u32> = self.former.iter().map(|schema| schema.version).chain([self.schema_version]).collect();
        self.indexes.iter().flat_map(|i| &i.parts).all(|p| (p.column as usize) < columns)
            && self.autoinc_column.is_none_or(|c| (c as usize) < columns)
            && match self.primary {
                Some(p) => p < self.indexes.len() && self.hidden.is_none(),
                None => self.hidden.is_some(),
            }
            && versions[0] >= FIRST_VERSION
            && versions.is_sorted_by(|a, b| a < b)
            && self.foreign.iter().all(|key| !key.columns.is_empty() && key.columns.len() == key.parent_columns.len())
            && ids_differ(&self.columns)
            && self.ttl.is_none_or(|ttl| self.columns.iter().any(|c| c.id == ttl.column && holds_moments(c)))
            && self.versions.as_ref().is_none_or(|versions| may_have(&self.columns, versions))
            && self.former.iter().all(|schema| ids_differ(&schema.columns))
    }
}

/// True if what TTL= names may be such a column.
fn holds_moments(column: &StoredColumn) -> bool {
    matches!(column.kind, ColumnType::Int { .. } | ColumnType::Bytes) && column.size >= 4 && !column.is_virtual
}

/// True if a table of these columns may have these system versions.
fn may_have(columns: &[StoredColumn], versions: &SystemVersions) -> bool {
    let column = |id: u32| columns.iter().find(|column| column.id == id);
    let is_time = |id: u32| {
        column(id).is_some_and(|column| {
            let has_order = column.kind == ColumnType::Bytes && column.size as usize == versions.greatest.len();
            has_order && !column.is_virtual && !column.nullable
        })
    };
    is_time(versions.start)
        && is_time(versions.end)
        && versions.start != versions.end
        && versions.without.is_sorted_by(|a, b| a < b)
        && versions.without.iter().all(|id| column(*id).is_some())
}

fn put_columns(out: &mut Vec<u8>, columns: &[StoredColumn], versioned: bool) {
    put_varint(out, columns.len() as u64);
    for column in columns {
        if versioned {
            put_varint(out, u64::from(column.id));
        }
        put_bytes(out, column.name.as_bytes());
        let unsigned = matches!(column.kind, ColumnType::Int { unsigned: true });
        out.push(column.kind.number());
        out.push(flags(&[
            (unsigned, COL_UNSIGNED),
            (column.is_virtual, COL_VIRTUAL),
            (column.nullable, COL_NULLABLE),
            (column.collation.is_some(), COL_TEXT),
            (column.form > 1, COL_FORM_2),
            (column.initial.is_some(), COL_INITIAL),
        ]));
        out.push(column.length_bytes);
        put_varint(out, u64::from(column.size));
        if let Some((id, name)) = &column.collation {
            put_varint(out, u64::from(*id));
            put_bytes(out, name.as_bytes());
        }
        match &column.initial {
            None => {}
            Some(Initial::Null) => out.push(INITIAL_NULL),
            Some(Initial::Value(value)) => {
                out.push(INITIAL_VALUE);
                put_bytes(out, value);
            }
        }
    }
}

fn put_foreign(out: &mut Vec<u8>, key: &ForeignKey) {
    put_bytes(out, key.name.as_bytes());
    put_bytes(out, key.parent.as_bytes());
    out.extend_from_slice(&[
        key.on_delete.number(),
        key.on_update.number(),
        flags(&[(key.inherited, FOREIGN_INHERITED)]),
    ]);
    put_varint(out, key.columns.len() as u64);
    for (column, parent) in key.columns.iter().zip(&key.parent_columns) {
        put_bytes(out, column.as_bytes());
        put_bytes(out, parent.as_bytes());
    }
}

/// The bits whose conditions hold.
fn flags(bits: &[(bool, u8)]) -> u8 {
    bits.iter().filter(|b| b.0).fold(0, |all, b| all | b.1)
}

fn read_text(r: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(r.bytes()?.to_vec()).ok()
}

fn read_u32(r: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(r.varint()?).ok()
}

/// The column whose number in the list is `number`.
fn read_column(r: &mut Reader<'_>, number: u32, versioned: bool) -> Option<StoredColumn> {
    let id = if versioned { read_u32(r)? } else { number };
    let name = read_text(r)?;
    let kind = r.u8()?;
    let flags = r.u8()?;
    let kind = ColumnType::from_number(kind, flags & COL_UNSIGNED != 0)?;
    let length_bytes = r.u8()?;
    let size = read_u32(r)?;
    let collation = if flags & COL_TEXT != 0 { Some((read_u32(r)?, read_text(r)?)) } else { None };
    let initial = match versioned && flags & COL_INITIAL != 0 {
        false => None,
        true => Some(match r.u8()? {
            INITIAL_NULL => Initial::Null,
            INITIAL_VALUE => Initial::Value(r.bytes()?.to_vec()),
            _ => return None,
        }),
    };
    Some(StoredColumn {
        id,
        name,
        kind,
        is_virtual: flags & COL_VIRTUAL != 0,
        nullable: flags & COL_NULLABLE != 0,
        length_bytes,
        size,
        collation,
        form: if flags & COL_FORM_2 != 0 { 2 } else { 1 },
        initial,
    })
}

fn read_columns(r: &mut Reader<'_>, versioned: bool) -> Option<Vec<StoredColumn>> {
    let count = read_u32(r)?;
    (0..count).map(|number| read_column(r, number, versioned)).collect()
}

fn read_index(r: &mut Reader<'_>, versioned: bool) -> Option<StoredIndex> {
    let id = IndexId(read_u32(r)?);
    let name = read_text(r)?;
    let flags = r.u8()?;
    let (mut kind, mut options) = (IndexKind::ORDINARY, Vec::new());
    if versioned {
        kind = IndexKind(r.u8()?);
        if r.u8()? != INDEX_LIVE {
            return None;
        }
        options = r.bytes()?.to_vec();
    }
    let mut parts = Vec::new();
    for _ in 0..r.varint()? {
        parts.push(StoredPart { column: read_u32(r)?, length: read_u32(r)?, descending: r.u8()? != 0 });
    }
    Some(StoredIndex {
        id,
        name,
        kind,
        unique: flags & INDEX_UNIQUE != 0,
        long_hash: flags & INDEX_LONG_HASH != 0,
        parts,
        options,
        unpack_form: if flags & INDEX_UNPACK_FORM_2 != 0 { 2 } else { 1 },
    })
}

fn read_foreign(r: &mut Reader<'_>) -> Option<ForeignKey> {
    let (name, parent) = (read_text(r)?, read_text(r)?);
    let (on_delete, on_update) = (Action::from_number(r.u8()?)?, Action::from_number(r.u8()?)?);
    let inherited = match r.u8()? {
        0 => false,
        FOREIGN_INHERITED => true,
        _ => return None,
    };
    let (mut columns, mut parent_columns) = (Vec::new(), Vec::new());
    for _ in 0..r.varint()? {
        columns.push(read_text(r)?);
        parent_columns.push(read_text(r)?);
    }
    Some(ForeignKey { name, columns, parent, parent_columns, on_delete, on_update, inherited })
}

fn read_versions(r: &mut Reader<'_>) -> Option<SystemVersions> {
    let (start, end, greatest) = (read_u32(r)?, read_u32(r)?, r.bytes()?.to_vec());
    let count = r.varint()?;
    let without = (0..count).map(|_| read_u32(r)).collect::<Option<_>>()?;
    Some(SystemVersions { start, end, greatest, without })
}

fn read_table(r: &mut Reader<'_>, entry_version: u8) -> Option<TableMeta> {
    let versioned = entry_version >= VERSIONED;
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
    let next_column = if versioned { Some(read_u32(r)?) } else { None };
    let columns = read_columns(r, versioned)?;
    let mut former = Vec::new();
    if versioned {
        for _ in 0..r.varint()? {
            former.push(Schema { version: read_u32(r)?, columns: read_columns(r, true)? });
        }
    }
    let mut indexes = Vec::new();
    for _ in 0..r.varint()? {
        indexes.push(read_index(r, versioned)?);
    }
    let mut foreign = Vec::new();
    if entry_version >= FOREIGN {
        for _ in 0..r.varint()? {
            foreign.push(Arc::new(read_foreign(r)?));
        }
        // A table without keys has a lower version.
        if foreign.is_empty() && entry_version == FOREIGN {
            return None;
        }
    }
    let mut encryption = Encryption::default();
    if entry_version >= ENCRYPTION {
        encryption = Encryption { encrypted: Encrypted::from_number(r.u8()?)?, key: read_u32(r)? };
        if encryption == Encryption::default() && entry_version == ENCRYPTION || encryption.key == 0 {
            return None;
        }
    }
    let mut flag = || match r.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let expires = if entry_version >= PAST { flag()? } else { entry_version == TTL };
    let has_past = if entry_version >= UNPACK { flag()? } else { entry_version == PAST };
    // A table without such an index has a lower version.
    if (entry_version == UNPACK) != indexes.iter().any(|index| index.unpack_form > 1) {
        return None;
    }
    let ttl = if expires { Some(Ttl { column: read_u32(r)?, seconds: r.varint()? }) } else { None };
    let versions = if has_past { Some(read_versions(r)?) } else { None };
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
        encryption,
        ttl,
        versions,
        next_column: next_column.unwrap_or(columns.len() as u32),
        columns,
        former,
        indexes,
        foreign,
    })
}
