//! The footer: the last bytes of an SST, from which all else in it is found.
//!
//! It has a checksum of its own, states the file's number and length, so that another file or a part of one is refused, and the
//! format version. docs/develop/format/sst.md has the bytes.
//!
//! Of an encrypted file the header of its data key stands right before it, under the same checksum.
//!
//! Invariant: what a decoded footer points to lies inside the file, behind the data blocks.
//!
//! Rejected: a header at the front (it would have to be written last, over a block of zeros).

use std::path::Path;

use super::frame::Handle;
use crate::base::codec::Reader;
use crate::base::{Error, FileNo, Result};
use crate::crypt::{KEY_HEADER_BYTES, KeyHeader};

pub(crate) const FOOTER_BYTES: usize = 64;
/// Bytes at the end of a file among which its footer is, encrypted or not.
pub(crate) const FOOTER_BYTES_MAX: usize = FOOTER_BYTES + KEY_HEADER_BYTES;
const MAGIC: [u8; 8] = *b"STRATSST";
/// The version that is written of files of one index; all from the first one on are read.
const VERSION: u32 = 2;
/// The version of files of several indexes.
const VERSION_SHARED: u32 = 3;
/// Of encrypted files: this and one of the above.
const ENCRYPTED: u32 = 2;
/// Of files with a dictionary: this and one of the above.
const BY_DICTIONARY: u32 = 4;
const VERSION_MAX: u32 = VERSION_SHARED + ENCRYPTED + BY_DICTIONARY;

/// The last bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Footer {
    pub no: FileNo,
    pub file_bytes: u64,
    pub data_end: u64,
    pub top: Handle,
    pub properties: Handle,
    /// The file has several indexes.
    pub shared: bool,
    /// The file has a dictionary; the properties say where.
    pub by_dictionary: bool,
    /// Its data key, if it is encrypted.
    pub key: Option<KeyHeader>,
}

impl Footer {
    /// How many bytes it has.
    pub fn bytes(is_encrypted: bool) -> usize {
        if is_encrypted { FOOTER_BYTES_MAX } else { FOOTER_BYTES }
    }

    pub fn encode(&self) -> Vec<u8> {
        let header = self.key.map(|key| key.encode());
        let header: &[u8] = header.as_ref().map_or(&[], |header| header);
        let mut out = [0; FOOTER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        let version = if self.shared { VERSION_SHARED } else { VERSION };
        let version = if self.key.is_some() { version + ENCRYPTED } else { version };
        let version = if self.by_dictionary { version + BY_DICTIONARY } else { version };
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[16..24].copy_from_slice(&self.no.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.data_end.to_le_bytes());
        out[40..48].copy_from_slice(&self.top.offset.to_le_bytes());
        out[48..56].copy_from_slice(&self.properties.offset.to_le_bytes());
        out[56..60].copy_from_slice(&self.top.len.to_le_bytes());
        out[60..64].copy_from_slice(&self.properties.len.to_le_bytes());
        let sum = Footer::checksum(header, &out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        [header, &out].concat()
    }

    fn checksum(header: &[u8], bytes: &[u8; FOOTER_BYTES]) -> u32 {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..]);
        crc32c::crc32c_append(sum, header)
    }

    /// From the last bytes of the file. `len` is its size and `path` names it in errors.
    pub fn decode(end: &[u8; FOOTER_BYTES_MAX], path: &Path, len: u64) -> Result<Footer> {
        let (header, bytes) = end.split_at(KEY_HEADER_BYTES);
        let short = || Error::corruption(path, len - FOOTER_BYTES as u64, "short footer");
        let (Some(header), Some(bytes)) = (header.first_chunk(), bytes.first_chunk()) else { return Err(short()) };
        let at = len - FOOTER_BYTES as u64;
        let mut reader = Reader::new(bytes);
        if reader.take(8) != Some(&MAGIC[..]) {
            return Err(Error::corruption(path, at, "not a table file: no magic in the footer"));
        }
        let version = reader.u32().ok_or_else(short)?;
        let sum = reader.u32().ok_or_else(short)?;
        let by_dictionary = (VERSION + BY_DICTIONARY..=VERSION_MAX).contains(&version);
        let rest = if by_dictionary { version - BY_DICTIONARY } else { version };
        let is_encrypted = (VERSION + ENCRYPTED..=VERSION_SHARED + ENCRYPTED).contains(&rest);
        if sum != Footer::checksum(if is_encrypted { header } else { &[] }, bytes) {
            let from = len - Footer::bytes(is_encrypted) as u64;
            return Err(Error::corruption(path, from, format!("footer checksum, stored {sum:08x}")));
        }
        if !(1..=VERSION_MAX).contains(&version) {
            let what = format!("table format version {version}; this version reads 1 to {VERSION_MAX}");
            return Err(Error::Incompatible { path: path.to_owned(), what });
        }
        let mut u64 = || reader.u64().ok_or_else(short);
        let (no, file_bytes, data_end, top_offset, properties_offset) = (u64()?, u64()?, u64()?, u64()?, u64()?);
        let top = Handle { offset: top_offset, len: reader.u32().ok_or_else(short)? };
        let properties = Handle { offset: properties_offset, len: reader.u32().ok_or_else(short)? };
        let key = is_encrypted.then(|| KeyHeader::decode(header));
        let shared = rest == VERSION_SHARED || rest == VERSION_SHARED + ENCRYPTED;
        let footer = Footer { no: FileNo(no), file_bytes, data_end, top, properties, shared, by_dictionary, key };
        let inside =
            |h: Handle| h.offset >= data_end && h.offset.checked_add(h.len.into()).is_some_and(|end| end <= at);
        if file_bytes != len {
            return Err(Error::corruption(path, at, format!("file has {len} bytes, its footer says {file_bytes}")));
        }
        if !inside(top) || !inside(properties) {
            return Err(Error::corruption(path, at, "footer points outside the file"));
        }
        Ok(footer)
    }
}
