//! What the catalog knows of a table.
//!
//! A table has a list of columns for each *schema version*: the present one, and each earlier one in which rows may still be
//! written. A column has an id that it keeps whatever becomes of its name, place or type, and that no other column of the
//! table ever gets; so the lists say which value of an old row belongs to which column of today. A column that some version
//! lacks has an *initial value*: what it holds in rows of that version.
//!
//! An index is there as a whole: one that is being built is in no table's entry before it has all its entries
//! (`crate::build`).
//!
//! Rejected: one list of columns with the versions in which each came and went, as other dictionaries have it. A change of
//! type or order needs a second list beside it, and the reader must put the list of a version together anyway.

use crate::def::{Column, ColumnType, Compression, Encryption, IndexKind, TableDef};
use crate::error::Result;
use crate::foreign::ForeignKey;
use crate::keycode::lowest_unpack_form;
use crate::kv::IndexId;
use crate::ttl::{self, Ttl};
use crate::versions::SystemVersions;
use std::sync::Arc;

/// The schema version of a new table.
pub const FIRST_VERSION: u32 = 1;

/// A column as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredColumn {
    /// Number within the table, the same in all schema versions.
    pub id: u32,
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
    /// What it holds in rows of schema versions without it; `None` if there are no such rows.
    pub initial: Option<Initial>,
}

/// The value of a column in rows that were written before the column existed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Initial {
    /// NULL.
    Null,
    /// As in a row: of fixed size the record's bytes, of text the text, of CHAR without padding at the end.
    Value(Vec<u8>),
}

/// The columns of an earlier schema version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schema {
    /// The version.
    pub version: u32,
    /// Columns in the order they had.
    pub columns: Vec<StoredColumn>,
}

/// An index part as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredPart {
    /// Number of the column in the present list.
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
    /// What entries it has of a row.
    pub kind: IndexKind,
    /// Unique.
    pub unique: bool,
    /// Over a hidden hash column.
    pub long_hash: bool,
    /// Parts.
    pub parts: Vec<StoredPart>,
    /// What else its kind has to know. The catalog keeps it as it is.
    pub options: Vec<u8>,
    /// Form of its unpack data: 1, or 2 where that makes a difference.
    pub unpack_form: u8,
}

/// A table as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableMeta {
    /// Number of the table, kept by rename and truncate. Never reused.
    pub table_id: u64,
    /// The schema version in which rows are written: grows with each change of columns in place.
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
    /// ENCRYPTED= and ENCRYPTION_KEY_ID=.
    pub encryption: Encryption,
    /// TTL=, if rows expire.
    pub ttl: Option<Ttl>,
    /// WITH SYSTEM VERSIONING. An entry that an earlier build has made lacks it.
    pub versions: Option<SystemVersions>,
    /// The next column's id.
    pub next_column: u32,
    /// Columns in order.
    pub columns: Vec<StoredColumn>,
    /// Earlier schema versions in which there may be rows, ascending.
    pub former: Vec<Schema>,
    /// Indexes in order.
    pub indexes: Vec<StoredIndex>,
    /// The foreign keys of which the table is the child.
    pub foreign: Vec<Arc<ForeignKey>>,
}

/// What a definition says of system versions, by the ids of its columns.
fn stored_versions(def: &TableDef, columns: &[StoredColumn]) -> Option<SystemVersions> {
    def.versions.as_ref()?.renamed(|number| Some(columns.get(number as usize)?.id))
}

impl StoredColumn {
    /// What is stored of a column.
    pub fn of(id: u32, column: &Column) -> StoredColumn {
        StoredColumn {
            id,
            name: column.name.clone(),
            kind: column.kind,
            is_virtual: column.is_virtual,
            nullable: column.null_mask != 0,
            length_bytes: column.length_bytes,
            size: column.size,
            collation: column.collation.as_ref().map(|c| (c.id(), c.name().to_owned())),
            form: column.collation.as_ref().map_or(1, |c| c.form()),
            initial: None,
        }
    }
}

impl StoredIndex {
    /// What is stored of index `number` of a definition.
    pub fn of(id: IndexId, def: &TableDef, number: usize) -> StoredIndex {
        let index = &def.indexes[number];
        let part =
            |p: &crate::def::KeyPart| StoredPart { column: p.column, length: p.length, descending: p.descending };
        StoredIndex {
            id,
            name: index.name.clone(),
            kind: index.kind,
            unique: index.unique,
            long_hash: index.long_hash,
            parts: index.parts.iter().map(part).collect(),
            options: index.options.clone(),
            unpack_form: lowest_unpack_form(def, number),
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

    /// The id of the auto-increment column.
    pub fn autoinc_id(&self) -> Option<u32> {
        self.autoinc_column.and_then(|column| Some(self.columns.get(column as usize)?.id))
    }

    /// The number of the column of an id.
    pub fn number_of(&self, id: u32) -> Option<u32> {
        self.columns.iter().position(|column| column.id == id).map(|number| number as u32)
    }

    /// All index ids of the table.
    pub fn ids(&self) -> Vec<IndexId> {
        self.hidden.into_iter().chain(self.indexes.iter().map(|i| i.id)).collect()
    }

    /// True if a table that is open with `other` has the right definition: foreign keys alone are looked up elsewhere.
    pub fn has_rows_of(&self, other: &TableMeta) -> bool {
        let bare = |meta: &TableMeta| TableMeta { foreign: Vec::new(), ..meta.clone() };
        bare(self) == bare(other)
    }

    /// The table has no rows: it is as if it had been created with its present columns.
    pub fn forget_former(&mut self) {
        self.former.clear();
        self.schema_version = FIRST_VERSION;
        self.next_column = self.columns.len() as u32;
        let ttl = self.ttl.and_then(|ttl| Some(Ttl { column: self.number_of(ttl.column)?, ..ttl }));
        let versions = self.versions.as_ref().and_then(|versions| versions.renamed(|id| self.number_of(id)));
        (self.ttl, self.versions) = (ttl, versions);
        for (id, column) in (0..).zip(&mut self.columns) {
            (column.id, column.initial) = (id, None);
        }
    }

    /// The entry for a new table; `next_id` gives out index ids.
    ///
    /// Errors: `WrongOption`.
    pub fn new(
        def: &TableDef,
        table_id: u64,
        create_time: u64,
        next_id: &mut dyn FnMut() -> IndexId,
    ) -> Result<TableMeta> {
        let ttl = ttl::of(def)?.map(|(column, seconds)| Ttl { column: column as u32, seconds });
        let hidden = if def.primary.is_none() { Some(next_id()) } else { None };
        let columns: Vec<StoredColumn> =
            (0..).zip(&def.columns).map(|(id, column)| StoredColumn::of(id, column)).collect();
        Ok(TableMeta {
            table_id,
            schema_version: FIRST_VERSION,
            create_time,
            version: def.version,
            primary: def.primary,
            hidden,
            autoinc_column: def.autoinc_column,
            temporary: def.temporary,
            no_rollback: def.no_rollback,
            compression: def.compression,
            encryption: def.encryption,
            ttl,
            versions: stored_versions(def, &columns),
            next_column: def.columns.len() as u32,
            columns,
            former: Vec::new(),
            indexes: (0..def.indexes.len()).map(|number| StoredIndex::of(next_id(), def, number)).collect(),
            foreign: Vec::new(),
        })
    }

    /// Takes over what a definition with the same columns says of when its rows are there. Errors: `WrongOption`.
    pub(crate) fn take_times(&mut self, def: &TableDef) -> Result<()> {
        self.versions = stored_versions(def, &self.columns);
        self.ttl = match ttl::of(def)? {
            Some((number, seconds)) => self.columns.get(number).map(|column| Ttl { column: column.id, seconds }),
            None => None,
        };
        Ok(())
    }
}
