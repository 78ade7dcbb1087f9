//! Limits, all in one place, and the relations between them checked at compile time.

/// Longest key in bytes, index id included: a 3,072-byte SQL key plus its primary-key suffix and encoding overhead.
pub const KEY_BYTES_MAX: usize = 32 << 10;
/// Longest value in bytes: the server's packet limit (1 GiB) plus row overhead.
pub const VALUE_BYTES_MAX: usize = (1 << 30) + (64 << 20);
/// Uncompressed size at which a data block is cut.
pub const BLOCK_BYTES: usize = 16 << 10;
/// Alignment of direct I/O: file offsets, lengths and buffer addresses.
pub const IO_ALIGN: usize = 4096;

const _: () = assert!(BLOCK_BYTES % IO_ALIGN == 0);
const _: () = assert!(VALUE_BYTES_MAX < u32::MAX as usize);
