//! The structures of `cc/strata.h`, field by field in the same order.

use std::ffi::{c_char, c_int, c_void};

/// `STRATA_TIME_BYTES`.
pub const TIME_BYTES: usize = 7;

/// `StrataCollation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CCollation {
    /// Number.
    pub id: u32,
    /// `STRATA_CS_*`.
    pub flags: u32,
    /// Shortest character in bytes.
    pub mbminlen: u32,
    /// Longest character in bytes.
    pub mbmaxlen: u32,
    /// Name; null if the column has no collation.
    pub name: *const c_char,
    /// The server's object.
    pub cs: *const c_void,
}

/// Weights of text, in a form.
pub type WeightsFn = unsafe extern "C" fn(*const c_void, u32, *const u8, usize, usize, *mut u8, usize) -> usize;

/// A file operation begins: its number, the kind of file, the server's mark of an open one, its name if it is found by that, bytes.
pub type FileBeginsFn = unsafe extern "C" fn(u32, u32, *mut c_void, *const c_char, usize);
/// It has ended: well or not, bytes, the former and the new name of one that was renamed. Returns the mark of one that was opened.
pub type FileEndsFn = unsafe extern "C" fn(c_int, usize, *const c_char, *const c_char) -> *mut c_void;
/// A part of the memory, what the server has counted of it, what it is now; returns what the server has counted then.
pub type MemoryFn = unsafe extern "C" fn(u32, u64, u64) -> u64;

/// `StrataCallbacks`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CCallbacks {
    /// Weights without padding.
    pub weights: Option<WeightsFn>,
    /// Upper bound of their bytes.
    pub weights_max: Option<unsafe extern "C" fn(*const c_void, usize) -> usize>,
    /// Weights padded to the full length.
    pub weights_padded: Option<WeightsFn>,
    /// Bytes of leading characters.
    pub prefix_bytes: Option<unsafe extern "C" fn(*const c_void, *const u8, usize, usize) -> usize>,
    /// Collation by number.
    pub find: Option<unsafe extern "C" fn(u32, *mut CCollation) -> c_int>,
    /// The server's error log.
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char, usize)>,
    /// Must the statement stop?
    pub killed: Option<unsafe extern "C" fn(*const c_void) -> c_int>,
    /// Does the server want to know that this thread's connection waits (1), and for whom (2)?
    pub wants_waits: Option<unsafe extern "C" fn() -> c_int>,
    /// It waits for a lock that this other connection has or gets before (null: a lock of somebody).
    pub waits: Option<unsafe extern "C" fn(*const c_void)>,
    /// The calling thread begins a wait: for a lock (0), the log (1), background work (2).
    pub blocking_begins: Option<unsafe extern "C" fn(c_int)>,
    /// And ends it.
    pub blocking_ends: Option<unsafe extern "C" fn()>,
    /// A thread of the store's own begins.
    pub thread_begins: Option<unsafe extern "C" fn(*const c_char)>,
    /// And ends.
    pub thread_ends: Option<unsafe extern "C" fn()>,
    /// Of two connections in a deadlock: negative if the first should give way, positive if the second, 0 either.
    pub victim: Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>,
    /// The binary log that the server writes now; returns the length of its name, 0 if there is none.
    pub binlog: Option<unsafe extern "C" fn(*mut c_char, usize) -> usize>,
    /// See the header.
    pub query: Option<unsafe extern "C" fn(*const c_void, *mut c_char, usize) -> usize>,
    /// How a part of a table's path is written in SQL; returns the length.
    pub identifier: Option<unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> usize>,
    /// The `StrataTable` of this name as the connection's statement has it open for a foreign key; null if it has not.
    pub child: Option<unsafe extern "C" fn(*const c_void, *const c_char) -> *const c_void>,
    /// The newest version of a key, 0 if there is no such key.
    pub key_version: Option<unsafe extern "C" fn(u32) -> u32>,
    /// The bytes of a version of a key; returns their number, 0 if there is none.
    pub key_bytes: Option<unsafe extern "C" fn(u32, u32, *mut u8, usize) -> usize>,
    /// Computes the virtual columns that indexes of that table have, in a record with all others, of a row that comes or that was; 0: done.
    pub compute_child: Option<unsafe extern "C" fn(*const c_void, *const c_char, *mut u8, c_int) -> c_int>,
    /// The time of the connection's statement for rows of the past, of [`TIME_BYTES`].
    pub statement_time: Option<unsafe extern "C" fn(*const c_void, *mut u8)>,
    /// Up to which moment expired rows may be removed, of the present one.
    pub purge_until: Option<unsafe extern "C" fn(u64) -> u64>,
    /// See the header. Null if the server does not observe files.
    pub file_begins: Option<FileBeginsFn>,
    /// And ends.
    pub file_ends: Option<FileEndsFn>,
    /// See the header. Null if the server does not count memory.
    pub memory: Option<MemoryFn>,
}

impl CCallbacks {
    /// Was the statement killed that this thread runs? For waits without a session at hand.
    pub fn is_killed(&self) -> bool {
        // SAFETY: the header asks for a function of the server, of any thread; null stands for the statement of this one.
        self.killed.is_some_and(|killed| unsafe { killed(std::ptr::null()) } != 0)
    }
}

/// `StrataColumn`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CColumn {
    /// Name.
    pub name: *const c_char,
    /// `StrataColumnType`.
    pub kind: u8,
    /// `STRATA_COL_*`.
    pub flags: u8,
    /// Bytes of the length prefix.
    pub length_bytes: u8,
    /// NULL bit.
    pub null_mask: u8,
    /// Byte of the NULL bit.
    pub null_offset: u32,
    /// Offset in the record.
    pub offset: u32,
    /// Data bytes.
    pub size: u32,
    /// Collation.
    pub collation: CCollation,
}

/// `StrataKeyPart`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CKeyPart {
    /// Column number.
    pub column: u32,
    /// Indexed bytes.
    pub length: u32,
    /// `STRATA_PART_*`.
    pub flags: u32,
    /// Bytes in a key image.
    pub store_length: u32,
}

/// `StrataIndex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CIndex {
    /// Name.
    pub name: *const c_char,
    /// `STRATA_INDEX_*`.
    pub flags: u32,
    /// Number of parts.
    pub part_count: u32,
    /// The parts.
    pub parts: *const CKeyPart,
}

/// `StrataTableDef`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CTableDef {
    /// Number of columns.
    pub column_count: u32,
    /// The columns.
    pub columns: *const CColumn,
    /// Number of indexes.
    pub index_count: u32,
    /// The indexes.
    pub indexes: *const CIndex,
    /// Clustered index or -1.
    pub primary: i32,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Bytes of NULL bits.
    pub null_bytes: u32,
    /// Auto-increment column or -1.
    pub autoinc_column: i32,
    /// `STRATA_TABLE_*`.
    pub flags: u32,
    /// Version of the definition.
    pub version: [u8; 16],
    /// COMPRESSION= option.
    pub compression: i32,
    /// ENCRYPTED= option.
    pub encrypted: u8,
    /// ENCRYPTION_KEY_ID= option.
    pub encryption_key: u32,
    /// TTL= option, or null.
    pub ttl: *const c_char,
    /// Column of ROW START or -1.
    pub row_start: i32,
    /// Column of ROW END or -1.
    pub row_end: i32,
    /// What that holds in a present row.
    pub row_end_max: [u8; TIME_BYTES],
}

/// `StrataForeignKey`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CForeignKey {
    /// Name; empty for one that is to be made.
    pub name: *const c_char,
    /// The parent's name in the catalog.
    pub parent: *const c_char,
    /// Number of columns.
    pub column_count: u32,
    /// The child's columns.
    pub columns: *const *const c_char,
    /// The parent's columns.
    pub parent_columns: *const *const c_char,
    /// `StrataAction` on DELETE.
    pub on_delete: u8,
    /// `StrataAction` on UPDATE.
    pub on_update: u8,
    /// Not 0: of the table that is altered.
    pub inherited: u8,
}

/// `StrataDdl`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CDdl {
    /// Are foreign keys checked?
    pub checks: c_int,
    /// Is the database dropped?
    pub drops_database: c_int,
    /// Keys by which NULL could come to a column that takes none are refused.
    pub strict: c_int,
    /// The table that is altered, or null.
    pub altered: *const c_char,
    /// Microseconds to wait for prepared transactions.
    pub wait_us: u64,
}

/// `StrataAlteration`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CAlteration {
    /// The new definition.
    pub def: *const CTableDef,
    /// For each column the present one, or -1.
    pub columns: *const i32,
    /// For each index the present one, or -1.
    pub indexes: *const i32,
    /// A record with the values of new columns.
    pub record: *const u8,
    /// What else the statement says.
    pub ddl: *const CDdl,
    /// Not 0: rows are written anew.
    pub rebuilds: u8,
    /// Not 0: records are made of others.
    pub converts: u8,
    /// Foreign keys that come.
    pub keys: *const CForeignKey,
    /// Number of them.
    pub key_count: u32,
    /// Names of foreign keys that go.
    pub dropped: *const *const c_char,
    /// Number of them.
    pub dropped_count: u32,
    /// Where a new auto-increment column goes on, or 0.
    pub counter: u64,
}

/// `StrataRows`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CRows {
    /// A record of the table as it is.
    pub record: *mut u8,
    /// A record of the new definition.
    pub made: *mut u8,
    /// Makes the latter of the former, again or for the first time; 0: done.
    pub make: Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>,
    /// Is told how far the work is.
    pub tell: Option<TellProgress>,
    /// For these.
    pub ctx: *mut c_void,
}

/// `StrataReference`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CReference {
    /// Name of the key.
    pub name: *const c_char,
    /// The child's name in the catalog.
    pub child: *const c_char,
    /// The parent's name in the catalog.
    pub parent: *const c_char,
    /// The parent's index, or null.
    pub parent_index: *const c_char,
    /// The child's columns.
    pub columns: *const *const c_char,
    /// The parent's columns.
    pub parent_columns: *const *const c_char,
    /// For each column of the child and then of the parent: may it be NULL?
    pub nullable: *const u8,
    /// Number of columns.
    pub column_count: u32,
    /// `StrataAction` on DELETE.
    pub on_delete: u8,
    /// `StrataAction` on UPDATE.
    pub on_update: u8,
}

/// Receives references.
pub type EmitReference = unsafe extern "C" fn(*mut c_void, *const CReference);

/// `StrataConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CConfig {
    /// Directory.
    pub dir: *const c_char,
    /// Bytes of the block cache; 0 = derive.
    pub block_cache_bytes: u64,
    /// Bytes of memtables; 0 = derive.
    pub memtable_budget_bytes: u64,
    /// Bytes of a log segment; 0 = derive.
    pub log_segment_bytes: u64,
    /// Threads; 0 = derive.
    pub background_threads: u32,
    /// 0, 1, 2.
    pub flush_log: u32,
    /// The most connections that the server lets in; each takes a descriptor.
    pub connections: u32,
    /// Whether the log is encrypted.
    pub encrypt_log: u32,
    /// `strata_encrypt_tables`.
    pub encrypt_tables: u32,
    /// Seconds for which the past is kept.
    pub history_retention_s: u64,
}

/// `StrataMetric`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CMetric {
    /// Name.
    pub name: *const c_char,
    /// Value.
    pub value: u64,
}

/// `StrataCell`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CCell {
    /// Text, or null for a number.
    pub text: *const c_char,
    /// Bytes of the text.
    pub len: usize,
    /// The number.
    pub number: u64,
}

/// `StrataStats`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CStats {
    /// Rows.
    pub rows: u64,
    /// Bytes of rows.
    pub data_bytes: u64,
    /// Bytes of secondary indexes.
    pub index_bytes: u64,
    /// Bytes of deleted rows.
    pub deleted_bytes: u64,
    /// Bytes per row.
    pub mean_row_bytes: u32,
    /// Unix seconds.
    pub create_time: u64,
    /// Unix seconds of the last change since the start; 0: none.
    pub update_time: u64,
    /// Rows per value are to be asked for again.
    pub sample_is_old: u32,
}

/// Is told what long work is at, how much of that is done, and of how much.
pub type TellProgress = unsafe extern "C" fn(*mut c_void, *const c_char, u64, u64);
/// Receives pieces of text.
pub type EmitText = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
/// Computes the indexed virtual columns of a record; 0: done.
pub type ComputeColumns = unsafe extern "C" fn(*mut c_void, *mut u8) -> c_int;
/// Hears how far an OPTIMIZE is: indexes done, of how many, bytes of the next one done, of how many.
pub type TellOptimized = unsafe extern "C" fn(*mut c_void, u32, u32, u64, u64);
/// Receives transaction ids.
pub type EmitBytes = unsafe extern "C" fn(*mut c_void, *const u8, usize);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// The numbers a C compiler gives for the header on a 64-bit machine.
    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<CCollation>(), 32);
        assert_eq!(size_of::<CCallbacks>(), 208);
        assert_eq!(size_of::<crate::counts::CCounts>(), 40);
        assert_eq!(size_of::<CForeignKey>(), 48);
        assert_eq!(offset_of!(CForeignKey, on_delete), 40);
        assert_eq!(size_of::<CDdl>(), 32);
        assert_eq!(offset_of!(CDdl, altered), 16);
        assert_eq!(size_of::<CAlteration>(), 88);
        assert_eq!(offset_of!(CAlteration, counter), 80);
        assert_eq!(size_of::<CReference>(), 64);
        assert_eq!(size_of::<CColumn>(), 56);
        assert_eq!(offset_of!(CColumn, null_offset), 12);
        assert_eq!(offset_of!(CColumn, collation), 24);
        assert_eq!(size_of::<CKeyPart>(), 16);
        assert_eq!(size_of::<CIndex>(), 24);
        assert_eq!(size_of::<CTableDef>(), 104);
        assert_eq!(offset_of!(CTableDef, columns), 8);
        assert_eq!(offset_of!(CTableDef, primary), 32);
        assert_eq!(offset_of!(CTableDef, version), 52);
        assert_eq!(offset_of!(CTableDef, compression), 68);
        assert_eq!(offset_of!(CTableDef, encryption_key), 76);
        assert_eq!(offset_of!(CTableDef, row_end), 92);
        assert_eq!(offset_of!(CTableDef, row_end_max), 96);
        assert_eq!(size_of::<CConfig>(), 64);
        assert_eq!(offset_of!(CConfig, connections), 40);
        assert_eq!(size_of::<CMetric>(), 16);
        assert_eq!(size_of::<CCell>(), 24);
        assert_eq!(size_of::<CStats>(), 64);
    }
}
