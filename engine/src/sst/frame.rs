//! How a block lies in the file: payload, compression kind, length when unpacked, checksum.
//!
//! The checksum also covers the file's number and the block's offset, so that an intact block read from the wrong place
//! (a misdirected write, a stale extent of a deleted file) is refused like a damaged one. It is verified before anything
//! is unpacked.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::sync::Arc;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use super::Compression;
use super::block::Shuffle;
use super::block_compressor::{self, BlockCompressor, Form};
use super::dictionary::{Dictionary, Stored};
use super::large::{self, LARGE};
use super::sealed::Sealed;
use crate::base::limits::IO_ALIGN;
use crate::base::slots::Buf;
use crate::base::{Error, FileNo, Result, tally};
use crate::crypt::Cipher;
use crate::io::{AlignedBuf, File, Stopwatch};

/// Kind (1), unpacked length (4), checksum (4).
pub(crate) const TRAILER_BYTES: usize = 9;

pub(super) const PLAIN: u8 = 0;
const LZ4: u8 = 1;
/// Written by format version 1, and for large values.
pub(super) const ZSTD: u8 = 2;
const SHUFFLED_COLUMNS: u8 = 3;
const SHUFFLED_ROWS: u8 = 4;
/// The same two by the dictionary of the file.
const COLUMNS_BY_DICTIONARY: u8 = 5;
const ROWS_BY_DICTIONARY: u8 = 6;
/// No kind is above.
pub(super) const KIND_MAX: u8 = ROWS_BY_DICTIONARY;

/// Gets the dictionary of the file, for a block that needs it.
pub(super) type GetDictionary<'a> = &'a dyn Fn() -> Result<Arc<Dictionary>>;

/// Where a framed block lies; `len` includes the trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub offset: u64,
    pub len: u32,
}

impl Handle {
    pub fn end(self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// The checksum before the first byte of a block: that of its place.
pub(super) fn checksum_of_place(no: FileNo, offset: u64) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&no.0.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c(&place)
}

fn checksum(no: FileNo, offset: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum_of_place(no, offset), bytes)
}

/// Compresses and frames blocks, reusing its buffers.
pub(crate) struct Packer {
    compression: Compression,
    lz4: CompressTable,
    compressor: Option<BlockCompressor>,
    /// The data key of the file, if it is encrypted.
    cipher: Option<Cipher>,
    out: Vec<u8>,
}

impl Packer {
    pub fn new(compression: Compression) -> io::Result<Packer> {
        let compressor = if compression == Compression::Zstd { Some(BlockCompressor::new()?) } else { None };
        Ok(Packer { compression, lz4: CompressTable::small(), compressor, cipher: None, out: Vec::new() })
    }

    /// Seals what is packed from now on.
    pub fn encrypt(&mut self, cipher: Cipher) {
        self.cipher = Some(cipher);
    }

    /// The data key of the file.
    pub fn cipher(&self) -> Option<&Cipher> {
        self.cipher.as_ref()
    }

    /// No dictionary is trained any more; whether there is one.
    pub fn end_training(&mut self) -> bool {
        self.compressor.as_mut().is_some_and(BlockCompressor::end_training)
    }

    /// Offers the dictionary of another file, before anything is packed.
    pub fn offer(&mut self, stored: Stored) {
        if let Some(compressor) = &mut self.compressor {
            compressor.offer(stored);
        }
    }

    /// The dictionary, if there is one, and whether it was trained here: what is packed from now on does without.
    pub fn take_dictionary(&mut self) -> Option<(Stored, bool)> {
        self.compressor.as_mut().and_then(BlockCompressor::take_dictionary)
    }

    /// Compresses in another way from now on.
    pub fn switch(&mut self, compression: Compression) -> io::Result<()> {
        if compression == Compression::Zstd && self.compressor.is_none() {
            self.compressor = Some(BlockCompressor::new()?);
        }
        self.compression = compression;
        Ok(())
    }

    /// The framed form of `raw` for its place: of a block of rows if it is to be compressed, of anything else if not. `raw`
    /// is shorter than 4 GiB (limits on keys and values see to it).
    pub fn pack(&mut self, raw: &[u8], no: FileNo, offset: u64, compress: bool) -> io::Result<&[u8]> {
        let packed = match (self.compression, &mut self.compressor) {
            (Compression::Lz4, _) if compress => {
                self.room(get_maximum_output_size(raw.len()));
                let n = compress_into_with_table(raw, &mut self.out, &mut self.lz4).map_err(io::Error::other)?;
                Some((LZ4, n))
            }
            (Compression::Zstd, Some(compressor)) if compress => {
                let Form { shuffle, by_dictionary } = compressor.compress(raw, &mut self.out)?;
                let kind = match (shuffle, by_dictionary) {
                    (Shuffle::Columns, false) => SHUFFLED_COLUMNS,
                    (Shuffle::Rows, false) => SHUFFLED_ROWS,
                    (Shuffle::Columns, true) => COLUMNS_BY_DICTIONARY,
                    (Shuffle::Rows, true) => ROWS_BY_DICTIONARY,
                };
                Some((kind, self.out.len()))
            }
            _ => None,
        };
        let (kind, n) = match packed {
            Some((kind, n)) if n <= raw.len() - raw.len() / 8 => (kind, n),
            _ => {
                self.room(raw.len());
                self.out[..raw.len()].copy_from_slice(raw);
                (PLAIN, raw.len())
            }
        };
        let n = match &self.cipher {
            Some(cipher) => Sealed { cipher, offset, kind, unpacked: raw.len() as u32 }.seal(&mut self.out, n),
            None => n,
        };
        self.room(n + TRAILER_BYTES);
        self.out[n] = kind;
        self.out[n + 1..n + 5].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        let sum = checksum(no, offset, &self.out[..n + 5]);
        self.out[n + 5..n + 9].copy_from_slice(&sum.to_le_bytes());
        Ok(&self.out[..n + TRAILER_BYTES])
    }

    /// Makes the buffer at least this long. It is never shortened but after a huge block: clearing it anew for each block
    /// would cost as much as a copy.
    fn room(&mut self, len: usize) {
        if self.out.len() < len {
            self.out.resize(len, 0);
        } else if self.out.len() > 4 << 20 && len < 1 << 20 {
            self.out.truncate(1 << 20);
            self.out.shrink_to_fit();
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Option<AlignedBuf>> = const { RefCell::new(None) };
    /// Payloads that were sealed.
    static OPENED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Verifies and unpacks a framed block of a file with this data key, unless it needs the dictionary.
pub(super) fn unpack(path: &Path, no: FileNo, offset: u64, framed: &[u8], cipher: Option<&Cipher>) -> Result<Buf> {
    unpack_by(path, no, offset, framed, cipher, &|| {
        Err(Error::corruption(path, offset, "packed by a dictionary where none can be meant"))
    })
}

/// Whether the frame is intact. One that needs the dictionary is not unpacked: it may be all that is left of the file.
pub(super) fn is_intact(no: FileNo, offset: u64, framed: &[u8], cipher: Option<&Cipher>) -> bool {
    let needs_dictionary = Cell::new(false);
    let path = Path::new("");
    let unpacked = unpack_by(path, no, offset, framed, cipher, &|| {
        // It is asked for when the checksum is right.
        needs_dictionary.set(true);
        Err(Error::corruption(path, offset, ""))
    });
    unpacked.is_ok() || needs_dictionary.get()
}

/// Verifies and unpacks a framed block; `dictionary` is asked if it was packed by one.
pub(super) fn unpack_by(
    path: &Path,
    no: FileNo,
    offset: u64,
    framed: &[u8],
    cipher: Option<&Cipher>,
    dictionary: GetDictionary<'_>,
) -> Result<Buf> {
    let bad = |what: String| Error::corruption(path, offset, what);
    let Some((body, sum)) = framed.split_last_chunk::<4>() else {
        return Err(bad("block shorter than its trailer".into()));
    };
    let (stored, found) = (u32::from_le_bytes(*sum), checksum(no, offset, body));
    if stored != found {
        return Err(bad(format!("block checksum {found:08x}, stored {stored:08x}")));
    }
    let Some((payload, [kind, len @ ..])) = body.split_last_chunk::<5>() else {
        return Err(bad("block shorter than its trailer".into()));
    };
    let unpacked = u32::from_le_bytes(*len);
    // Before the buffers of the thread are in use: it may have to be read.
    let dictionary = match *kind {
        COLUMNS_BY_DICTIONARY | ROWS_BY_DICTIONARY => Some(dictionary()?),
        _ => None,
    };
    let dictionary = dictionary.as_deref();
    let Some(cipher) = cipher else { return unpack_payload(path, offset, *kind, unpacked, payload, dictionary) };
    OPENED.with_borrow_mut(|opened| {
        opened.clear();
        let place = Sealed { cipher, offset, kind: *kind, unpacked };
        place.open(payload, opened).map_err(|_| bad("block is not what was encrypted".into()))?;
        let block = unpack_payload(path, offset, *kind, unpacked, opened, dictionary);
        if opened.capacity() > KEEP {
            *opened = Vec::new();
        }
        block
    })
}

fn unpack_payload(
    path: &Path,
    offset: u64,
    kind: u8,
    len: u32,
    payload: &[u8],
    dictionary: Option<&Dictionary>,
) -> Result<Buf> {
    let bad = |what: String| Error::corruption(path, offset, what);
    let len = len as usize;
    let mut unpacked = Buf::new(len);
    let found = match kind {
        PLAIN => {
            if payload.len() == len {
                unpacked.copy_from_slice(payload);
            }
            payload.len()
        }
        LZ4 => decompress_into(payload, &mut unpacked).map_err(|e| bad(format!("LZ4: {e}")))?,
        ZSTD if (LARGE..=large::BLOCK_BYTES_MAX).contains(&len) => {
            large::unpack(payload, &mut unpacked)?.map_err(bad)?;
            len
        }
        ZSTD => block_compressor::decompress(payload, None, None, &mut unpacked).map_err(bad)?,
        SHUFFLED_COLUMNS | SHUFFLED_ROWS | COLUMNS_BY_DICTIONARY | ROWS_BY_DICTIONARY => {
            let is_columns = matches!(kind, SHUFFLED_COLUMNS | COLUMNS_BY_DICTIONARY);
            let what = if is_columns { Shuffle::Columns } else { Shuffle::Rows };
            block_compressor::decompress(payload, Some(what), dictionary, &mut unpacked).map_err(bad)?
        }
        other => return Err(bad(format!("unknown compression kind {other}"))),
    };
    if found != len {
        return Err(bad(format!("block unpacks to {found} bytes instead of {len}")));
    }
    Ok(unpacked)
}

/// The range of the file that covers `start..end` and can be read.
pub(crate) fn aligned(file: &dyn File, start: u64, end: u64) -> (u64, u64) {
    let align = file.read_align() as u64;
    (start / align * align, end.next_multiple_of(align))
}

/// Reads a framed block and unpacks it.
pub(crate) fn read(file: &dyn File, no: FileNo, handle: Handle, cipher: Option<&Cipher>) -> Result<Buf> {
    with_bytes(file, handle.offset, handle.len as usize, |framed| {
        unpack(file.path(), no, handle.offset, framed, cipher)
    })
}

/// The same through a buffer of its own: for what turns out to be needed while the thread's is in use.
pub(super) fn read_apart(file: &dyn File, no: FileNo, handle: Handle, cipher: Option<&Cipher>) -> Result<Buf> {
    let (start, end) = aligned(file, handle.offset, handle.end());
    let mut buf = AlignedBuf::zeroed(((end - start) as usize).next_multiple_of(IO_ALIGN));
    tally::note_block_read();
    read_at(file, &mut buf[..(end - start) as usize], start)?;
    let skip = (handle.offset - start) as usize;
    unpack(file.path(), no, handle.offset, &buf[skip..skip + handle.len as usize], cipher)
}

/// A buffer above this size is given back after use.
const KEEP: usize = 4 << 20;

/// Reads from a file; the time counts for the thread, if it counts.
pub(super) fn read_at(file: &dyn File, buf: &mut [u8], offset: u64) -> Result<()> {
    let timer = tally::is_on().then(Stopwatch::begin);
    let result = file.read_exact_at(buf, offset);
    if let Some(timer) = timer {
        tally::note_read_time(timer.ns());
    }
    result
}

/// Runs `f` on `len` bytes of the file at `offset`, read through the thread's aligned buffer.
pub(crate) fn with_bytes<R>(file: &dyn File, offset: u64, len: usize, f: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
    let (start, end) = aligned(file, offset, offset + len as u64);
    let want = (end - start) as usize;
    SCRATCH.with_borrow_mut(|scratch| {
        let buf = match scratch {
            Some(buf) if buf.len() >= want => buf,
            _ => scratch.insert(AlignedBuf::zeroed(want.next_multiple_of(64 << 10))),
        };
        tally::note_block_read();
        let result = read_at(file, &mut buf[..want], start).and_then(|()| {
            let skip = (offset - start) as usize;
            f(&buf[skip..skip + len])
        });
        if buf.len() > KEEP {
            *scratch = None;
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Kind, SeqNo};
    use crate::sst::BlockBuilder;

    fn block(value: impl Fn(u32) -> [u8; 4]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for i in 0..200u32 {
            builder.add(&[&[0; 4], &i.to_be_bytes()[..]].concat(), SeqNo(7), Kind::Put, &value(i));
        }
        let mut block = Vec::new();
        builder.finish(&mut block);
        block
    }

    #[test]
    fn packs_and_refuses_every_flipped_bit_and_wrong_place() {
        let path = Path::new("x");
        let text = block(|i| (i / 7).to_be_bytes());
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let mut packer = Packer::new(compression).unwrap();
            let framed = packer.pack(&text, FileNo(5), 77, true).unwrap().to_vec();
            assert_eq!(framed.len() < text.len(), compression != Compression::None);
            assert_eq!(unpack(path, FileNo(5), 77, &framed, None).unwrap()[..], text);
            assert!(unpack(path, FileNo(6), 77, &framed, None).is_err());
            assert!(unpack(path, FileNo(5), 78, &framed, None).is_err());
            for at in 0..framed.len() {
                let mut broken = framed.clone();
                broken[at] ^= 0x10;
                assert!(matches!(
                    unpack(path, FileNo(5), 77, &broken, None),
                    Err(Error::Corruption { offset: 77, .. })
                ));
                assert!(unpack(path, FileNo(5), 77, &framed[..at], None).is_err());
            }
        }
    }

    #[test]
    fn garbage_with_a_right_checksum_is_refused() {
        let path = Path::new("x");
        for kind in 0..=5u8 {
            for len in [0u32, 10, 100, 1 << 20] {
                let mut framed = vec![0xa5; 40];
                framed.push(kind);
                framed.extend_from_slice(&len.to_le_bytes());
                let sum = checksum(FileNo(1), 0, &framed);
                framed.extend_from_slice(&sum.to_le_bytes());
                assert!(unpack(path, FileNo(1), 0, &framed, None).is_err());
            }
        }
    }

    #[test]
    fn incompressible_blocks_are_stored_plain() {
        let mut builder = BlockBuilder::default();
        let mut x = 1u64;
        let noise: Vec<u8> = (0..4000)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 56) as u8
            })
            .collect();
        builder.add(b"a key", SeqNo(1), Kind::Put, &noise);
        let mut noise = Vec::new();
        builder.finish(&mut noise);
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut packer = Packer::new(compression).unwrap();
            let framed = packer.pack(&noise, FileNo(1), 0, true).unwrap();
            assert_eq!(framed.len(), noise.len() + TRAILER_BYTES);
            assert_eq!(framed[noise.len()], PLAIN);
        }
    }
}
