//! The footer: the last bytes of an SST, from which all else in it is found.
//!
//! It has a checksum of its own, states the file's number and length, so that another file or a part of one is refused, and the
//! format version. docs/develop/format/sst.md has the bytes.
//!
//! Invariant: what a decoded footer points to lies inside the file, behind the data blocks.
//!
//! Rejected: a header at the front (it would have to be written last, over a block of zeros).

use std::path::Path;

use super::frame::Handle;
use crate::base::codec::Reader;
use crate::base::{Error, FileNo, Result};

pub(crate) const FOOTER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"STRATSST";
/// The version that is written of files of one index; all from the first one on are read.
const VERSION: u32 = 2;
/// The version of files of several indexes.
const VERSION_SHARED: u32 = 3;

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
}

impl Footer {
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        let version = if self.shared { VERSION_SHARED } else { VERSION };
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[16..24].copy_from_slice(&self.no.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.data_end.to_le_bytes());
        out[40..48].copy_from_slice(&self.top.offset.to_le_bytes());
        out[48..56].copy_from_slice(&self.properties.offset.to_le_bytes());
        out[56..60].copy_from_slice(&self.top.len.to_le_bytes());
        out[60..64].copy_from_slice(&self.properties.len.to_le_bytes());
        let sum = Footer::checksum(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn checksum(bytes: &[u8; FOOTER_BYTES]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
    }

    /// `len` is the size of the file and `path` names it in errors.
    pub fn decode(bytes: &[u8; FOOTER_BYTES], path: &Path, len: u64) -> Result<Footer> {
        let at = len - FOOTER_BYTES as u64;
        let short = || Error::corruption(path, at, "short footer");
        let mut reader = Reader::new(bytes);
        if reader.take(8) != Some(&MAGIC[..]) {
            return Err(Error::corruption(path, at, "not a table file: no magic in the footer"));
        }
        let version = reader.u32().ok_or_else(short)?;
        let sum = reader.u32().ok_or_else(short)?;
        if sum != Footer::checksum(bytes) {
            return Err(Error::corruption(path, at, format!("footer checksum, stored {sum:08x}")));
        }
        if !(1..=VERSION_SHARED).contains(&version) {
            let what = format!("table format version {version}; this version reads 1 to {VERSION_SHARED}");
            return Err(Error::Incompatible { path: path.to_owned(), what });
        }
        let mut u64 = || reader.u64().ok_or_else(short);
        let (no, file_bytes, data_end, top_offset, properties_offset) = (u64()?, u64()?, u64()?, u64()?, u64()?);
        let top = Handle { offset: top_offset, len: reader.u32().ok_or_else(short)? };
        let properties = Handle { offset: properties_offset, len: reader.u32().ok_or_else(short)? };
        let shared = version == VERSION_SHARED;
        let footer = Footer { no: FileNo(no), file_bytes, data_end, top, properties, shared };
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
