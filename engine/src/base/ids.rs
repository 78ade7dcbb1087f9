//! Integer types that reach the disk. Their numeric values are part of the formats: do not renumber.

use std::fmt;

/// Commit sequence number. Every version of a key carries the one of the transaction that wrote it; a reader at read
/// point `R` sees the newest version with `seq <= R`. Zero means "older than every snapshot" (used at the bottom).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// Visible to everybody.
    pub const ZERO: SeqNo = SeqNo(0);
    /// Greater than any assigned number: a reader at this point sees the newest committed version. 56 bits.
    pub const MAX: SeqNo = SeqNo((1 << 56) - 1);
    /// The number after this one.
    pub fn next(self) -> SeqNo {
        SeqNo(self.0 + 1)
    }
}

/// What a version does to its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The key is absent from this version on (tombstone).
    Delete = 0,
    /// The key has this version's value.
    Put = 1,
}

impl Kind {
    /// Decodes the byte of a format; `None` for a byte that no format writes.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            0 => Some(Kind::Delete),
            1 => Some(Kind::Put),
            _ => None,
        }
    }
}

/// Number of an ordered index: the first four bytes (big-endian) of each of its keys. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexId(pub u32);

impl IndexId {
    /// Bytes of the prefix.
    pub const LEN: usize = 4;
    /// The ids from here on are those of keyspaces, which the engine gives itself. A layer that numbers indexes on its own uses lower
    /// ones.
    pub const KEYSPACES: IndexId = IndexId(1 << 31);
    /// The key prefix.
    pub fn prefix(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
    /// The index a key belongs to. Panics on a key shorter than four bytes; the transaction layer refuses such keys.
    pub fn of(key: &[u8]) -> IndexId {
        IndexId(u32::from_be_bytes([key[0], key[1], key[2], key[3]]))
    }
}

/// Number of a table (SST) or manifest file; grows over the life of a store and is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FileNo(pub u64);

/// Log position: a byte offset in the endless log. Segment `n` covers `[n * segment_size, (n + 1) * segment_size)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Lsn(pub u64);

/// Identity of a prepared transaction: the log position of its prepare record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId(pub u64);

macro_rules! display_number {
    ($($t:ty),*) => {$(impl fmt::Display for $t {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    })*};
}
display_number!(SeqNo, IndexId, FileNo, Lsn, TxnId);

/// A version of a master key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyVersion {
    /// The key's number.
    pub id: u32,
    /// Its version; 0 where none is known.
    pub version: u32,
}

impl fmt::Display for KeyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            0 => write!(f, "encryption key {}", self.id),
            version => write!(f, "encryption key {} version {version}", self.id),
        }
    }
}
