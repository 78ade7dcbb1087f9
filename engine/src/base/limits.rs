//! Limits, all in one place, and the relations between them checked at compile time.

use super::{Error, IndexId, Result};

/// Longest key in bytes, index id included: a 3,072-byte SQL key plus its primary-key suffix and encoding overhead.
pub const KEY_BYTES_MAX: usize = 32 << 10;
/// Longest value in bytes: the server's packet limit (1 GiB) plus row overhead.
pub const VALUE_BYTES_MAX: usize = (1 << 30) + (64 << 20);
/// Uncompressed size in bytes at which a data block is cut.
pub const BLOCK_BYTES: usize = 16 << 10;
/// The same in a store that is larger than its cache (`crate::compact::block_size`).
pub const SMALL_BLOCK_BYTES: usize = 8 << 10;
/// Alignment of direct I/O: file offsets, lengths and buffer addresses. Reads of complete files may have finer offsets and lengths
/// (`crate::io::File::read_align`).
pub const IO_ALIGN: usize = 4096;

/// Whether a key may be written. Error: `Invalid`.
pub fn check_key(key: &[u8]) -> Result<()> {
    match (IndexId::LEN..=KEY_BYTES_MAX).contains(&key.len()) {
        true => Ok(()),
        false => Err(Error::Invalid(format!("key of {} bytes; allowed are 4 to {KEY_BYTES_MAX}", key.len()))),
    }
}

/// Whether a value of so many bytes may be written. Error: `Invalid`.
pub fn check_value(bytes: usize) -> Result<()> {
    match bytes <= VALUE_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::Invalid(format!("value of {bytes} bytes; allowed are {VALUE_BYTES_MAX}"))),
    }
}

const _: () = assert!(BLOCK_BYTES % IO_ALIGN == 0);
const _: () = assert!(VALUE_BYTES_MAX < u32::MAX as usize);
