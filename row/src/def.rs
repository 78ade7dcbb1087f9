//! Definitions of tables as the row layer sees them: where a column lies in the server's record, what an index is made of.
//!
//! A definition is given anew by the handler at each open and compared with the one in the catalog. Offsets are the
//! server's (they differ between server versions and are not stored); types, sizes, order of columns, indexes and
//! collations are part of the stored definition.

use std::fmt;
use std::sync::Arc;

pub use crate::kv::Compression;
use crate::kv::SYSTEM_KEY;
pub use crate::versions::SystemVersions;

/// How text is compared. Implemented over the server's collation library by the glue, and by simple ones in tests.
pub trait Collation: Send + Sync {
    /// Number of the collation (`CHARSET_INFO::number`); stored in the catalog.
    fn id(&self) -> u32;
    /// Its name; stored in the catalog beside the number.
    fn name(&self) -> &str;
    /// Properties that do not change.
    fn traits(&self) -> CollationTraits;
    /// Appends the weights of at most `max_chars` characters of `text`, without padding.
    fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>);
    /// Appends the weights padded to the full length for `max_chars` characters (multi-level collations only).
    fn weights_padded(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>);
    /// Bytes of the first `chars` characters of `text`, at most its length.
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize;
    /// Which form of its weights it gives: 1, or more where an earlier form was found not to be the collation's order. The
    /// catalog keeps the form of each column.
    fn form(&self) -> u8 {
        1
    }
    /// The same collation with weights of an earlier form; `None` if it has no such form.
    fn in_form(&self, _form: u8) -> Option<Arc<dyn Collation>> {
        None
    }
}

/// What the catalog names and somebody else implements: the server behind the glue, simple ones in tests.
pub trait Library: Send + Sync {
    /// The collation of this number and name; `None` if there is none.
    fn collation(&self, id: u32, name: &str) -> Option<Arc<dyn Collation>>;
    /// How a part of a table's name in the catalog, the database's or the table's, is written in SQL.
    fn identifier(&self, part: &str) -> String {
        part.to_owned()
    }
    /// What finds the terms of rows for an index of this kind with these options; `None` if nobody knows it.
    fn terms(&self, _kind: IndexKind, _options: &[u8]) -> Option<Arc<dyn Terms>> {
        None
    }
}

/// Finds in a row what an index has an entry for: the words of a text, the cells that a shape touches, the elements of an array.
pub trait Terms: Send + Sync {
    /// Calls `each` with every term, of at most [`TERM_BYTES_MAX`](crate::keycode::TERM_BYTES_MAX) bytes, and what is to be
    /// stored with it. `values` are those of the index's columns, `None` is NULL: text without length and padding, everything
    /// else as in the server's record. The same values always have the same terms.
    fn terms(&self, values: &[Option<&[u8]>], each: &mut dyn FnMut(&[u8], &[u8]));
}

/// Fixed properties of a collation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollationTraits {
    /// PAD SPACE: trailing spaces do not count.
    pub pad: bool,
    /// The order of values is the order of their bytes.
    pub bytes: bool,
    /// The binary pseudo charset (BINARY, VARBINARY, BLOB): fixed width pads with 0x00.
    pub binary: bool,
    /// Weights come in several levels, one after the other.
    pub multilevel: bool,
    /// Shortest character in bytes.
    pub mbminlen: u8,
    /// Longest character in bytes.
    pub mbmaxlen: u8,
}

/// Storage class of a column in the server's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnType {
    /// Little-endian integer of `size` bytes.
    Int {
        /// Without sign.
        unsigned: bool,
    },
    /// IEEE single, little-endian.
    Float,
    /// IEEE double, little-endian.
    Double,
    /// `size` bytes in value order.
    Bytes,
    /// `size` bytes padded with spaces (0x00 if binary).
    Char,
    /// Length in `length_bytes`, then up to `size` bytes.
    VarChar,
    /// Length in `length_bytes`, then a pointer.
    Blob,
}

impl ColumnType {
    /// Its number, in the catalog and in the C interface.
    pub fn number(self) -> u8 {
        match self {
            ColumnType::Int { .. } => 0,
            ColumnType::Float => 1,
            ColumnType::Double => 2,
            ColumnType::Bytes => 3,
            ColumnType::Char => 4,
            ColumnType::VarChar => 5,
            ColumnType::Blob => 6,
        }
    }

    /// The type of this number; only integers have a sign.
    pub fn from_number(number: u8, unsigned: bool) -> Option<ColumnType> {
        Some(match number {
            0 => ColumnType::Int { unsigned },
            1 => ColumnType::Float,
            2 => ColumnType::Double,
            3 => ColumnType::Bytes,
            4 => ColumnType::Char,
            5 => ColumnType::VarChar,
            6 => ColumnType::Blob,
            _ => return None,
        })
    }
}

/// A column.
#[derive(Clone)]
pub struct Column {
    /// UTF-8 name.
    pub name: String,
    /// Storage class.
    pub kind: ColumnType,
    /// Not stored in rows (virtual generated column); may be part of keys.
    pub is_virtual: bool,
    /// Bytes of a length prefix (VARCHAR 1-2, BLOB 1-4), else 0.
    pub length_bytes: u8,
    /// Position of the NULL bit: byte offset and mask; mask 0 = NOT NULL.
    pub null_offset: u32,
    /// See `null_offset`.
    pub null_mask: u8,
    /// First data byte of a fixed-size column that is NULL; the others are 0.
    pub null_first: u8,
    /// Offset in the record.
    pub offset: u32,
    /// Data bytes; see the kind. 0 for BLOB.
    pub size: u32,
    /// Collation of CHAR, VARCHAR and BLOB.
    pub collation: Option<Arc<dyn Collation>>,
    /// Its values may be seconds since 1970: a TIMESTAMP, whose bytes are these and then a fraction, or a number. Asked where a table
    /// is made or changed only.
    pub is_moment: bool,
}

/// One part of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPart {
    /// Column number.
    pub column: u32,
    /// Bytes of the column that are indexed.
    pub length: u32,
    /// Descending.
    pub descending: bool,
    /// Bytes of the part in a key image of the server.
    pub store_length: u32,
}

/// An index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// Name.
    pub name: String,
    /// What entries it has of a row.
    pub kind: IndexKind,
    /// What its kind has to know besides; the catalog keeps it.
    pub options: Vec<u8>,
    /// Unique (rows with a NULL part never conflict).
    pub unique: bool,
    /// Index over the hidden hash column of a long UNIQUE.
    pub long_hash: bool,
    /// Its last two parts are the end and the start of a period; the server sees to it that periods do not overlap.
    pub without_overlaps: bool,
    /// Parts in order, without the primary-key suffix.
    pub parts: Vec<KeyPart>,
    /// Form of its unpack data (docs/develop/format/keys.md): [`UNPACK_FORM`] of a new one, what the catalog says of one that is there.
    pub unpack_form: u8,
}

/// Form of the unpack data of new indexes.
pub const UNPACK_FORM: u8 = 2;

impl Index {
    /// An ordinary index.
    pub fn ordinary(name: &str, unique: bool, parts: Vec<KeyPart>) -> Index {
        let (kind, options) = (IndexKind::ORDINARY, Vec::new());
        let (long_hash, without_overlaps) = (false, false);
        Index { name: name.into(), kind, options, unique, long_hash, without_overlaps, parts, unpack_form: UNPACK_FORM }
    }
}

/// What entries an index has of a row, as the catalog's number says. A kind that a build does not know is kept in the catalog,
/// and its table not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexKind(pub u8);

impl IndexKind {
    /// One entry: the values of its columns.
    pub const ORDINARY: IndexKind = IndexKind(0);
    /// An entry per word of a text.
    pub const FULL_TEXT: IndexKind = IndexKind(1);
    /// An entry per cell that a shape touches.
    pub const SPATIAL: IndexKind = IndexKind(2);
    /// An entry per element of an array.
    pub const MULTI_VALUED: IndexKind = IndexKind(3);
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            IndexKind::ORDINARY => f.write_str("ordinary"),
            IndexKind::FULL_TEXT => f.write_str("full-text"),
            IndexKind::SPATIAL => f.write_str("spatial"),
            IndexKind::MULTI_VALUED => f.write_str("multi-valued"),
            IndexKind(number) => write!(f, "number {number}"),
        }
    }
}

/// The ENCRYPTED= option of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Encrypted {
    /// As [`EncryptTables`] says.
    #[default]
    Default = 0,
    /// In any case.
    Yes = 1,
    /// Never.
    No = 2,
}

impl Encrypted {
    /// The option with this number.
    pub fn from_number(number: u8) -> Option<Encrypted> {
        [Encrypted::Default, Encrypted::Yes, Encrypted::No].into_iter().find(|&one| one as u8 == number)
    }
}

/// What a table asks for in regard to encryption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encryption {
    /// ENCRYPTED=
    pub encrypted: Encrypted,
    /// ENCRYPTION_KEY_ID=: the number of the key.
    pub key: u32,
}

impl Default for Encryption {
    fn default() -> Encryption {
        Encryption { encrypted: Encrypted::Default, key: SYSTEM_KEY }
    }
}

/// What becomes of tables that do not say whether they are to be encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum EncryptTables {
    /// They are not.
    #[default]
    Off = 0,
    /// They are.
    On = 1,
    /// They are, and new tables may not refuse it.
    Force = 2,
}

impl EncryptTables {
    /// The setting with this number.
    pub fn from_number(number: u8) -> Option<EncryptTables> {
        [EncryptTables::Off, EncryptTables::On, EncryptTables::Force].into_iter().find(|&one| one as u8 == number)
    }
}

/// A table.
#[derive(Clone)]
pub struct TableDef {
    /// Columns in the server's order.
    pub columns: Vec<Column>,
    /// Indexes in the server's order.
    pub indexes: Vec<Index>,
    /// The clustered index; `None` = hidden 8-byte row id.
    pub primary: Option<usize>,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Bytes of the NULL bits at the start of a record.
    pub null_bytes: u32,
    /// The auto-increment column.
    pub autoinc_column: Option<u32>,
    /// CREATE TEMPORARY TABLE.
    pub temporary: bool,
    /// Sequence: writes are not undone by rollback.
    pub no_rollback: bool,
    /// The server keeps references to rows in a column of 256 bytes ([`crate::keycode::SHORT_REFERENCE`]): rows with longer keys are refused.
    pub short_references: bool,
    /// `tabledef_version` of the server.
    pub version: [u8; 16],
    /// COMPRESSION= option: `None` default.
    pub compression: Option<Compression>,
    /// ENCRYPTED= and ENCRYPTION_KEY_ID= options.
    pub encryption: Encryption,
    /// TTL= option, where a table is made or changed; see [`crate::ttl`].
    pub ttl: Option<String>,
    /// WITH SYSTEM VERSIONING, where a table is made or changed.
    pub versions: Option<SystemVersions>,
}

impl TableDef {
    /// A table of these columns, without indexes, version and options, whose record begins with so many bytes of NULL bits and is
    /// `record_bytes` long.
    pub fn of_columns(columns: Vec<Column>, null_bytes: u32, record_bytes: u32) -> TableDef {
        TableDef {
            columns,
            indexes: Vec::new(),
            primary: None,
            record_bytes,
            null_bytes,
            autoinc_column: None,
            temporary: false,
            no_rollback: false,
            short_references: false,
            version: [0; 16],
            compression: None,
            encryption: Encryption::default(),
            ttl: None,
            versions: None,
        }
    }
}
