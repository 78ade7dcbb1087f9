//! Blocks of one large value, written and read piece by piece.
//!
//! A value of a gigabyte must not be in memory once as the row, once as the block, once compressed and once in a buffer for
//! the disk. A row of [`LARGE`] bytes has a block for itself in any case, and in a block of one row the value stands at the
//! end: so the block is laid out as its head, goes to the file as it is compressed, followed by the pieces of the value, and
//! is read back in windows into the memory where it stays. The checksum is carried along, and nothing is handed out before it
//! has been compared.
//!
//! The frame is that of any block (docs/develop/format/sst.md), of a kind that can be made and undone in one pass:
//! plain, or one zstd frame of the block as it is. There is nothing to shuffle in a block of one row. Whether
//! compression pays is tried on three samples.
//!
//! Rejected: cutting large values into chunks under keys of their own (every reader would have to put them together, and a
//! read of one row would be several).

use std::io;
use std::path::Path;

use zstd::stream::raw::{Decoder, Encoder, InBuffer, Operation, OutBuffer};

use super::frame::{self, Handle, PLAIN, TRAILER_BYTES, ZSTD};
use super::sealed::{Opening, Sealed, Sealing, plain_len};
use crate::base::interrupt;
use crate::base::limits::VALUE_BYTES_MAX;
use crate::base::slots::Buf;
pub(super) use crate::base::slots::LARGE;
use crate::base::{Error, FileNo, Result, tally};
use crate::crypt::Cipher;
use crate::io::{AlignedBuf, File};

/// zstd's level: what is large is mostly compressed already, or so regular that any level will do.
const LEVEL: i32 = 1;
/// Bytes handed on at once: they stay in the processor's cache from the checksum to the buffer of the file.
const PIECE: usize = 128 << 10;
/// Bytes of a sample.
const SAMPLE: usize = 64 << 10;
/// Bytes read at once.
const WINDOW: usize = 1 << 20;
/// Longest block that a reader makes room for before it has seen the checksum.
pub(super) const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);

/// Takes the framed block piece by piece.
struct Sink<'a> {
    sealing: Option<Sealing<'a>>,
    framed: Framed<'a>,
}

/// The same, sealed if it is to be.
struct Framed<'a> {
    put: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    sum: u32,
    len: u64,
}

impl Sink<'_> {
    /// Takes a part of the payload.
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.sealing {
            Some(sealing) => sealing.push(bytes, &mut |sealed| self.framed.push(sealed)),
            None => self.framed.push(bytes),
        }
    }

    /// The payload is complete.
    fn end_payload(&mut self) -> Result<()> {
        match &mut self.sealing {
            Some(sealing) => sealing.finish(&mut |sealed| self.framed.push(sealed)),
            None => Ok(()),
        }
    }
}

impl Framed<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(PIECE) {
            self.sum = crc32c::crc32c_append(self.sum, piece);
            self.len += piece.len() as u64;
            (self.put)(piece)?;
            interrupt::check()?;
        }
        Ok(())
    }
}

/// Where a block comes to, and how.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub path: &'a Path,
    pub no: FileNo,
    pub offset: u64,
    pub compress: bool,
    /// The data key of the file, if it is encrypted.
    pub cipher: Option<&'a Cipher>,
}

/// Writes the block `head ++ parts`; where it is then.
pub(super) fn write(
    put: &mut dyn FnMut(&[u8]) -> Result<()>,
    place: Place<'_>,
    head: &[u8],
    parts: &[&[u8]],
) -> Result<Handle> {
    let Place { path, no, offset, compress, cipher } = place;
    let packing = |error| Error::io("compress", path, error);
    let bytes = head.len() + parts.iter().map(|part| part.len()).sum::<usize>();
    let too_long = || Error::Internal("block longer than 4 GiB".into());
    let len = u32::try_from(bytes).map_err(|_| too_long())?;
    let is_packed = compress && pays(parts).map_err(packing)?;
    let kind = if is_packed { ZSTD } else { PLAIN };
    let sealing = cipher.map(|cipher| Sealing::new(Sealed { cipher, offset, kind, unpacked: len }));
    let mut sink = Sink { sealing, framed: Framed { put, sum: frame::checksum_of_place(no, offset), len: 0 } };
    if is_packed {
        let mut encoder = Encoder::new(LEVEL).map_err(packing)?;
        encoder.set_pledged_src_size(Some(bytes as u64)).map_err(packing)?;
        let mut out = vec![0; PIECE];
        // In windows, since a regular value goes in as a whole before there is anything to push.
        for window in std::iter::once(&head).chain(parts).flat_map(|part| part.chunks(WINDOW)) {
            interrupt::check()?;
            let mut input = InBuffer::around(window);
            while input.pos() < window.len() {
                let mut output = OutBuffer::around(out.as_mut_slice());
                encoder.run(&mut input, &mut output).map_err(packing)?;
                sink.push(output.as_slice())?;
            }
        }
        loop {
            let mut output = OutBuffer::around(out.as_mut_slice());
            let left = encoder.finish(&mut output, true).map_err(packing)?;
            sink.push(output.as_slice())?;
            if left == 0 {
                break;
            }
        }
    } else {
        sink.push(head)?;
        parts.iter().try_for_each(|part| sink.push(part))?;
    }
    sink.end_payload()?;
    let mut framed = sink.framed;
    framed.push(&[&[kind][..], &len.to_le_bytes()].concat())?;
    let sum = framed.sum;
    framed.push(&sum.to_le_bytes())?;
    Ok(Handle { offset, len: u32::try_from(framed.len).map_err(|_| too_long())? })
}

/// True if samples of the value shrink by an eighth.
fn pays(parts: &[&[u8]]) -> io::Result<bool> {
    let Some(value) = parts.iter().max_by_key(|part| part.len()) else { return Ok(false) };
    let (mut before, mut after) = (0, 0);
    for at in [0, value.len() / 2, value.len().saturating_sub(SAMPLE)] {
        let sample = &value[at..value.len().min(at + SAMPLE)];
        before += sample.len();
        after += zstd::bulk::compress(sample, LEVEL)?.len();
    }
    Ok(after <= before - before / 8)
}

/// Reads a framed block that is large as it lies in the file, whoever wrote it.
pub(super) fn read(file: &dyn File, no: FileNo, handle: Handle, cipher: Option<&Cipher>) -> Result<Buf> {
    let bad = |what: String| Error::corruption(file.path(), handle.offset, what);
    let Some(payload) = (handle.len as usize).checked_sub(TRAILER_BYTES) else {
        return Err(bad("block shorter than its trailer".into()));
    };
    let end = handle.offset + payload as u64;
    let trailer: [u8; TRAILER_BYTES] = frame::with_bytes(file, end, TRAILER_BYTES, |bytes| {
        bytes.try_into().map_err(|_| bad("block shorter than its trailer".into()))
    })?;
    let [kind, len @ .., s0, s1, s2, s3] = trailer;
    let (len, stored) = (u32::from_le_bytes(len) as usize, u32::from_le_bytes([s0, s1, s2, s3]));
    let plain = if cipher.is_some() { plain_len(payload) } else { Some(payload) };
    let in_one_pass = kind == PLAIN && Some(len) == plain || kind == ZSTD && len <= BLOCK_BYTES_MAX;
    if !in_one_pass {
        // Packed as a whole by earlier versions; or damaged, which is told apart before room is made for it.
        return frame::read(file, no, handle, cipher);
    }
    let mut block = Buf::new(len);
    let mut unpacking = Unpacking::new(kind, &mut block).map_err(|e| bad(format!("zstd: {e}")))?;
    let place = |cipher| Sealed { cipher, offset: handle.offset, kind, unpacked: len as u32 };
    let mut opening = cipher.map(|cipher| Opening::new(place(cipher)));
    let mut forged = None;
    let mut window = AlignedBuf::zeroed(WINDOW);
    let mut sum = frame::checksum_of_place(no, handle.offset);
    let mut at = handle.offset;
    tally::note_block_read();
    while at < end {
        let (start, _) = frame::aligned(file, at, at);
        let stop = end.min(start + WINDOW as u64);
        let (_, upto) = frame::aligned(file, at, stop);
        frame::read_at(file, &mut window[..(upto - start) as usize], start)?;
        let piece = &window[(at - start) as usize..(stop - start) as usize];
        sum = crc32c::crc32c_append(sum, piece);
        match &mut opening {
            Some(opening) if forged.is_none() => forged = opening.push(piece, &mut |piece| unpacking.take(piece))?,
            Some(_) => {}
            None => unpacking.take(piece)?,
        }
        at = stop;
    }
    if let Some(opening) = opening.as_mut().filter(|_| forged.is_none()) {
        forged = opening.finish(&mut |piece| unpacking.take(piece))?;
    }
    sum = crc32c::crc32c_append(sum, &trailer[..TRAILER_BYTES - 4]);
    let unpacked = unpacking.finish();
    if sum != stored {
        return Err(bad(format!("block checksum {sum:08x}, stored {stored:08x}")));
    }
    if forged.is_some() {
        return Err(bad("block is not what was encrypted".into()));
    }
    unpacked.map_err(bad)?;
    Ok(block)
}

/// Unpacks the zstd frame of a large block that is short in the file; what is wrong with it, if anything is. The error is
/// that of an interrupted reader.
pub(super) fn unpack(payload: &[u8], block: &mut [u8]) -> Result<std::result::Result<(), String>> {
    let mut unpacking = match Unpacking::new(ZSTD, block) {
        Ok(unpacking) => unpacking,
        Err(error) => return Ok(Err(format!("zstd: {error}"))),
    };
    unpacking.take(payload)?;
    Ok(unpacking.finish())
}

/// Fills a block from pieces of its payload.
struct Unpacking<'a> {
    block: &'a mut [u8],
    filled: usize,
    zstd: Option<Decoder<'static>>,
    /// What is wrong, to be told if the checksum is right nevertheless.
    fault: Option<String>,
}

impl<'a> Unpacking<'a> {
    fn new(kind: u8, block: &'a mut [u8]) -> io::Result<Unpacking<'a>> {
        let zstd = if kind == ZSTD { Some(Decoder::new()?) } else { None };
        Ok(Unpacking { block, filled: 0, zstd, fault: None })
    }

    /// An error only if the reader was interrupted.
    fn take(&mut self, piece: &[u8]) -> Result<()> {
        interrupt::check()?;
        match &mut self.zstd {
            _ if self.fault.is_some() => {}
            None => {
                let rest = &mut self.block[self.filled..];
                rest[..piece.len()].copy_from_slice(piece);
                self.filled += piece.len();
            }
            Some(decoder) => {
                let mut input = InBuffer::around(piece);
                while input.pos() < piece.len() && self.fault.is_none() {
                    // What is very regular comes out a thousand times as long.
                    interrupt::check()?;
                    let end = self.block.len().min(self.filled + WINDOW);
                    let mut output = OutBuffer::around(&mut self.block[self.filled..end]);
                    let before = input.pos();
                    match decoder.run(&mut input, &mut output) {
                        Ok(_) if before == input.pos() && output.pos() == 0 => {
                            self.fault = Some("block too long".into())
                        }
                        Ok(_) => {}
                        Err(error) => self.fault = Some(format!("zstd: {error}")),
                    }
                    self.filled += output.pos();
                }
                // The input may have been taken in before all that it says has come out.
                while self.fault.is_none() && self.filled < self.block.len() {
                    interrupt::check()?;
                    let end = self.block.len().min(self.filled + WINDOW);
                    let mut output = OutBuffer::around(&mut self.block[self.filled..end]);
                    if let Err(error) = decoder.run(&mut InBuffer::around(&[]), &mut output) {
                        self.fault = Some(format!("zstd: {error}"));
                    }
                    if output.pos() == 0 {
                        break;
                    }
                    self.filled += output.pos();
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> std::result::Result<(), String> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.filled < self.block.len() => {
                Err(format!("block unpacks to {} bytes instead of {}", self.filled, self.block.len()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::limits::IO_ALIGN;
    use crate::base::{Kind, SeqNo};
    use crate::io::{Disk, MemDisk, Mode};
    use crate::sst::frame::Packer;
    use crate::sst::{Block, BlockBuilder, Compression};

    const AT: u64 = 1000;

    fn random(bytes: usize, bits: u32) -> Vec<u8> {
        let mut x = 1u64;
        let mut next = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 56) as u8 >> (8 - bits)
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// A file with a framed block at [`AT`].
    fn file(framed: &[u8]) -> Arc<dyn File> {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/")).unwrap();
        let file = disk.open(Path::new("/f"), Mode::Create, true).unwrap();
        let len = (AT as usize + framed.len()).next_multiple_of(IO_ALIGN);
        let mut bytes = AlignedBuf::zeroed(len);
        bytes[AT as usize..AT as usize + framed.len()].copy_from_slice(framed);
        file.write_all_at(&bytes, 0).unwrap();
        // As a table is read: in the device's sectors.
        disk.open(Path::new("/f"), Mode::Read, true).unwrap()
    }

    fn written(parts: &[&[u8]], compress: bool) -> (Vec<u8>, Handle) {
        let mut framed = Vec::new();
        let head = BlockBuilder::head_of_one(b"\0\0\0\x07key", SeqNo(9), parts.concat().len() as u32);
        let mut put = |piece: &[u8]| {
            framed.extend_from_slice(piece);
            Ok(())
        };
        let place = Place { path: Path::new("/f"), no: FileNo(3), offset: AT, compress, cipher: None };
        let handle = write(&mut put, place, &head, parts).unwrap();
        assert_eq!((handle.offset, handle.len as usize), (AT, framed.len()));
        (framed, handle)
    }

    #[test]
    fn the_block_is_that_of_any_row() {
        let mut block = BlockBuilder::default();
        for value in [random(LARGE + 77, 8), vec![7; 3 * LARGE], random(2 * LARGE, 4)] {
            block.add(b"\0\0\0\x07key", SeqNo(9), Kind::Put, &value);
            let mut whole = Vec::new();
            block.finish(&mut whole);
            for compress in [false, true] {
                for parts in [vec![&value[..]], vec![&value[..5], &[], &value[5..LARGE], &value[LARGE..]]] {
                    let (framed, handle) = written(&parts, compress);
                    assert!(compress || framed.len() == whole.len() + TRAILER_BYTES);
                    let read = read(&*file(&framed), FileNo(3), handle, None).unwrap();
                    assert!(*read == *whole);
                    let block = Block::parse(read).unwrap();
                    assert!((block.rows(), block.seq(0), block.value(0)) == (1, SeqNo(9), &value[..]));
                }
            }
        }
        assert!(written(&[&vec![7; 3 * LARGE]], true).0.len() < LARGE / 16);
        assert!(written(&[&random(LARGE, 8)], true).0.len() > LARGE);
    }

    #[test]
    fn blocks_packed_as_a_whole_are_read() {
        let mut block = BlockBuilder::default();
        let mut whole = Vec::new();
        block.add(b"\0\0\0\x07key", SeqNo(9), Kind::Put, &random(3 * LARGE, 4));
        block.finish(&mut whole);
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let mut packer = Packer::new(compression).unwrap();
            let framed = packer.pack(&whole, FileNo(3), AT, true).unwrap();
            let handle = Handle { offset: AT, len: framed.len() as u32 };
            assert!(framed.len() > LARGE);
            assert!(*read(&*file(framed), FileNo(3), handle, None).unwrap() == *whole, "{compression:?}");
        }
    }

    #[test]
    fn damage_is_found() {
        for (bits, compress) in [(8, false), (4, true)] {
            let (framed, handle) = written(&[&random(3 * LARGE, bits)], compress);
            let n = framed.len();
            let places = [0, 1, 5, 40, 1000, n / 3, n / 2, n - 2000, n - 10, n - 9, n - 8, n - 6, n - 5, n - 4, n - 1];
            for at in places {
                let mut damaged = framed.clone();
                damaged[at] ^= 0x10;
                let found = read(&*file(&damaged), FileNo(3), handle, None);
                assert!(matches!(found, Err(Error::Corruption { .. })), "{compress} {at}: {:?}", found.map(|_| ()));
            }
            let moved = read(&*file(&framed), FileNo(4), handle, None);
            assert!(matches!(moved, Err(Error::Corruption { .. })));
        }
    }
}
