//! The bytes of the log: units, record frames, file names. Normative text: docs/develop/format/wal.md.
//!
//! A *unit* is what one write puts on the disk: a header, a payload, zeros up to the next multiple of 4096.
//!
//! ```text
//!  0  crc32c u32       of everything after it up to the end of the payload
//!  4  magic u32        "SLG1"
//!  8  version u16
//! 10  flags u16        1 = first unit of an epoch; its payload is the cut (u64), not record bytes
//! 12  payload bytes u32
//! 16  epoch u64        random per opening of the store
//! 24  lsn u64          where this unit lies in the log
//! 32  durable lsn u64  everything below was synced when this unit was written
//! 40  first record u32 offset in the payload where the first record begins, or ffff_ffff
//! 44  segment pages u32  size of the log's segments in units of 4096 bytes; 0 in a manifest
//! 48  payload
//! ```
//!
//! Version 2 is a unit whose payload is encrypted: the payload is the header of a data key, the bytes sealed under it at the unit's
//! lsn, and their tag. The checksum covers it as it is, so where the log ends is known without a key. Units without payload, and the
//! first of an epoch, which has a position only, are never encrypted.
//!
//! The payloads of consecutive units, joined, are a stream of *frames*: varint length, flag byte, that many bytes. A
//! frame may lie across any number of units and segments. Flag 0: the bytes are the record. Flag 1: varint head
//! length, head, varint uncompressed length, then LZ4 blocks, each {varint compressed length, bytes}, of
//! [`LZ4_BLOCK_BYTES`] uncompressed bytes (the last may be shorter); the record is the head and the uncompressed bytes.
//!
//! Invariant: a unit identifies itself (lsn, epoch, checksum), so a recycled segment needs no zeroing.
//!
//! Rejected: small fixed log blocks with fragments (no durable offset, a header every few kilobytes); a frame per unit
//! (a group commit would pay 4 KiB per transaction).

use std::path::{Path, PathBuf};

use crate::base::Lsn;
use crate::base::codec::{Reader, put_varint};
use crate::base::limits::IO_ALIGN;
use crate::crypt::{Cipher, Forged, KEY_HEADER_BYTES, KeyHeader, Nonce, TAG_BYTES};
use crate::io::AlignedBuf;

/// First bytes of a unit after its checksum.
pub const MAGIC: [u8; 4] = *b"SLG1";
/// Version of the unit format.
pub const VERSION: u16 = 1;
/// Version of units whose payload is encrypted.
pub const VERSION_ENCRYPTED: u16 = 2;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 48;
/// Longest unit, header and padding included: the reader's window and the writer's buffer.
pub const UNIT_BYTES_MAX: usize = 1 << 20;
/// Flag of the unit that begins an epoch.
pub const FLAG_FIRST: u16 = 1;
/// Uncompressed bytes of a compressed block.
pub const LZ4_BLOCK_BYTES: usize = 1 << 20;
/// Bodies shorter than this are never compressed.
pub const COMPRESS_BYTES_MIN: usize = 1 << 10;
/// Bodies longer than this are compressed only if that saves half, so that body, compressed copy and log buffer
/// together stay within twice the body.
const COMPRESS_BYTES_LARGE: usize = 64 << 20;
/// Longest frame a reader believes in.
pub const FRAME_BYTES_MAX: u64 = 1 << 36;

const NO_RECORD: u32 = u32::MAX;
const ALIGN: u64 = IO_ALIGN as u64;

/// Flag byte of a frame whose bytes are the record.
pub const FRAME_PLAIN: u8 = 0;
/// Flag byte of a frame with a compressed body.
pub const FRAME_LZ4: u8 = 1;

const _: () = assert!(UNIT_BYTES_MAX % IO_ALIGN == 0 && HEADER_BYTES + 8 <= IO_ALIGN);

/// What a unit says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitHeader {
    /// Where it lies.
    pub lsn: Lsn,
    /// The opening of the store that wrote it.
    pub epoch: u64,
    /// Everything below was synced when it was written.
    pub durable: Lsn,
    /// True for the first unit of its epoch.
    pub first: bool,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Where in the payload the first record begins.
    pub first_record: Option<u32>,
    /// Size of the log's segments, as [`segment_pages`] has it.
    pub segment_pages: u32,
    /// The payload is encrypted.
    pub encrypted: bool,
}

/// What is authenticated with the payload.
fn context(epoch: u64, durable: Lsn, first_record: Option<u32>) -> [u8; 20] {
    let mut context = [0; 20];
    context[..8].copy_from_slice(&epoch.to_le_bytes());
    context[8..16].copy_from_slice(&durable.0.to_le_bytes());
    context[16..].copy_from_slice(&first_record.unwrap_or(NO_RECORD).to_le_bytes());
    context
}

/// The segment size as units state it, so that a log is never read with another one (every unit would seem stale, and
/// the log empty).
pub fn segment_pages(segment_bytes: u64) -> u32 {
    u32::try_from(segment_bytes / ALIGN).unwrap_or(0)
}

impl UnitHeader {
    /// The lsn of the first byte of records.
    pub fn records_start(&self) -> Lsn {
        let sealed = if self.encrypted { KEY_HEADER_BYTES } else { 0 };
        Lsn(self.lsn.0 + (HEADER_BYTES + sealed) as u64)
    }

    /// Opens a payload that is encrypted with `cipher` into `out`.
    pub fn open(&self, sealed: &[u8], cipher: &Cipher, out: &mut Vec<u8>) -> Result<(), Forged> {
        let (bytes, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(Forged)?;
        out.clear();
        out.extend_from_slice(bytes.get(KEY_HEADER_BYTES..).ok_or(Forged)?);
        let context = context(self.epoch, self.durable, self.first_record);
        cipher.open(Nonce(self.lsn.0, 0), &context, out, tag)
    }

    /// The lsn after the unit and its padding.
    pub fn end(&self) -> Lsn {
        Lsn(self.lsn.0 + (HEADER_BYTES as u64 + u64::from(self.payload_bytes)).next_multiple_of(ALIGN))
    }
}

/// Why bytes are not the unit expected at their place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnitFault {
    /// Torn, stale, decayed or never written.
    Bad(&'static str),
    /// Intact, but of an unknown version.
    Version(u16),
}

/// Bytes of the whole unit (a multiple of 4096) as its still unverified header tells, `None` if it cannot be one.
pub fn unit_bytes(header: &[u8]) -> Option<usize> {
    let payload = Reader::new(header.get(12..16)?).u32()? as usize;
    if header.get(4..8)? != MAGIC || payload > UNIT_BYTES_MAX - HEADER_BYTES {
        return None;
    }
    Some((HEADER_BYTES + payload).next_multiple_of(IO_ALIGN))
}

/// Checks the unit at the front of `bytes`, which was found at `at` (`None`: wherever it says it lies). Pure.
pub fn decode_unit(bytes: &[u8], at: Option<Lsn>) -> Result<(UnitHeader, &[u8]), UnitFault> {
    if bytes.len() < HEADER_BYTES || bytes[4..8] != MAGIC {
        return Err(UnitFault::Bad("no unit here"));
    }
    let mut reader = Reader::new(bytes);
    let fields = (|| {
        let crc = reader.u32()?;
        reader.u32()?;
        Some((
            crc,
            reader.u16()?,
            reader.u16()?,
            reader.u32()?,
            reader.u64()?,
            reader.u64()?,
            reader.u64()?,
            reader.u32()?,
            reader.u32()?,
        ))
    })();
    let Some((crc, version, flags, payload_bytes, epoch, lsn, durable, first_record, segment_pages)) = fields else {
        return Err(UnitFault::Bad("no unit here"));
    };
    // The position first: stale units of a recycled file are told apart without reading their payload.
    if at.is_some_and(|at| lsn != at.0) {
        return Err(UnitFault::Bad("unit of another place"));
    }
    let end = HEADER_BYTES + payload_bytes as usize;
    if end > UNIT_BYTES_MAX || end > bytes.len() {
        return Err(UnitFault::Bad("unit longer than possible"));
    }
    if crc32c::crc32c(&bytes[4..end]) != crc {
        return Err(UnitFault::Bad("unit checksum mismatch"));
    }
    let encrypted = version == VERSION_ENCRYPTED;
    if version != VERSION && !encrypted {
        return Err(UnitFault::Version(version));
    }
    let around = if encrypted { (KEY_HEADER_BYTES + TAG_BYTES) as u32 } else { 0 };
    let Some(record_bytes) = payload_bytes.checked_sub(around) else {
        return Err(UnitFault::Bad("unit header makes no sense"));
    };
    let first_record = (first_record != NO_RECORD).then_some(first_record);
    let first = flags & FLAG_FIRST != 0;
    let sane = flags & !FLAG_FIRST == 0
        && lsn % ALIGN == 0
        && durable <= lsn
        && first_record.is_none_or(|offset| offset < record_bytes)
        && (!first || (payload_bytes == 8 && first_record.is_none() && !encrypted));
    if !sane {
        return Err(UnitFault::Bad("unit header makes no sense"));
    }
    let lsn = Lsn(lsn);
    let durable = Lsn(durable);
    let header = UnitHeader { lsn, epoch, durable, first, payload_bytes, first_record, segment_pages, encrypted };
    Ok((header, &bytes[HEADER_BYTES..end]))
}

/// A unit being filled.
pub struct UnitBuf {
    buf: AlignedBuf,
    lsn: Lsn,
    /// Where the bytes of records begin.
    body: usize,
    /// Bytes in use, header included.
    len: usize,
    /// What is behind it is for the tag, if there is one.
    limit: usize,
    first: bool,
    first_record: Option<u32>,
    /// Bytes that were in use when it was last written; 0: it was not.
    written: usize,
}

impl UnitBuf {
    /// An empty unit at `lsn` in `buf`, to end at or before `segment_end`.
    pub fn new(buf: AlignedBuf, lsn: Lsn, segment_end: Lsn) -> UnitBuf {
        debug_assert!(lsn.0 % ALIGN == 0 && lsn < segment_end);
        let limit = usize::try_from(segment_end.0 - lsn.0).unwrap_or(usize::MAX).min(buf.len()).min(UNIT_BYTES_MAX);
        UnitBuf { buf, lsn, body: HEADER_BYTES, len: HEADER_BYTES, limit, first: false, first_record: None, written: 0 }
    }

    /// Leaves room for what encryption adds. Such a unit is sealed with a data key.
    pub fn encrypted(mut self) -> UnitBuf {
        self.body = HEADER_BYTES + KEY_HEADER_BYTES;
        self.len = self.body;
        self.limit -= TAG_BYTES;
        self
    }

    fn tag_bytes(&self) -> usize {
        if self.body > HEADER_BYTES && self.len > self.body { TAG_BYTES } else { 0 }
    }

    /// True if one page takes it, header, records and tag.
    pub fn fits_page(&self) -> bool {
        self.len + self.tag_bytes() <= IO_ALIGN
    }

    /// A copy of a unit that [fits a page](UnitBuf::fits_page), to be written while this one takes more records. It ends on that
    /// page from now on: it is written again over the copy, and a process that dies in between leaves one of the two whole, as it
    /// could not if they were longer than a page.
    pub fn so_far(&mut self, page: AlignedBuf) -> UnitBuf {
        debug_assert!(self.fits_page() && !self.first);
        let mut copy = UnitBuf { buf: page, ..*self };
        copy.buf[self.body..self.len].copy_from_slice(&self.buf[self.body..self.len]);
        let tag = if self.body > HEADER_BYTES { TAG_BYTES } else { 0 };
        self.limit = self.limit.min(IO_ALIGN - tag);
        self.written = self.len;
        copy
    }

    /// True if a part of it was written before.
    pub fn is_written(&self) -> bool {
        self.written > 0
    }

    /// Bytes of records that were not written yet.
    pub fn unwritten_bytes(&self) -> usize {
        self.len - self.written.max(self.body)
    }

    /// Makes this the first unit of its epoch, which continues the log that validly ended at `cut`.
    pub fn set_first(&mut self, cut: Lsn) {
        self.first = true;
        self.push(&cut.0.to_le_bytes());
    }

    /// Where it begins.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Where the next byte goes.
    pub fn position(&self) -> Lsn {
        Lsn(self.lsn.0 + self.len as u64)
    }

    /// Where the unit ends, padding included.
    pub fn end(&self) -> Lsn {
        Lsn(self.lsn.0 + (self.len + self.tag_bytes()).next_multiple_of(IO_ALIGN) as u64)
    }

    /// Bytes of records so far.
    pub fn payload_bytes(&self) -> usize {
        self.len - self.body
    }

    /// True if no payload byte fits any more.
    pub fn is_full(&self) -> bool {
        self.len == self.limit
    }

    /// Notes that a record begins at the current position.
    pub fn begin_record(&mut self) {
        self.first_record.get_or_insert(self.payload_bytes() as u32);
    }

    /// Takes what fits of `bytes`; how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.limit - self.len);
        self.buf[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
        n
    }

    /// True if it is to be sealed with a data key.
    pub fn wants_key(&self) -> bool {
        self.tag_bytes() > 0
    }

    /// Fills in header and padding; the bytes to write at [`UnitBuf::lsn`]. The records are encrypted with `key`, which seals no other
    /// unit at this lsn, if the unit wants one.
    pub fn seal(&mut self, epoch: u64, durable: Lsn, segment_pages: u32, key: Option<&(KeyHeader, Cipher)>) -> &[u8] {
        debug_assert!(!self.wants_key() || key.is_some());
        let (mut version, mut end) = (VERSION, if self.payload_bytes() == 0 { HEADER_BYTES } else { self.len });
        if let Some((header, cipher)) = key.filter(|_| self.wants_key()) {
            version = VERSION_ENCRYPTED;
            self.buf[HEADER_BYTES..self.body].copy_from_slice(&header.encode());
            let context = context(epoch, durable, self.first_record);
            let tag = cipher.seal(Nonce(self.lsn.0, 0), &context, &mut self.buf[self.body..self.len]);
            end += TAG_BYTES;
            self.buf[self.len..end].copy_from_slice(&tag);
        }
        let payload = (end - HEADER_BYTES) as u32;
        let padded = end.next_multiple_of(IO_ALIGN);
        let mut header = [0u8; HEADER_BYTES];
        header[4..8].copy_from_slice(&MAGIC);
        header[8..10].copy_from_slice(&version.to_le_bytes());
        header[10..12].copy_from_slice(&(if self.first { FLAG_FIRST } else { 0 }).to_le_bytes());
        header[12..16].copy_from_slice(&payload.to_le_bytes());
        header[16..24].copy_from_slice(&epoch.to_le_bytes());
        header[24..32].copy_from_slice(&self.lsn.0.to_le_bytes());
        header[32..40].copy_from_slice(&durable.0.to_le_bytes());
        header[40..44].copy_from_slice(&self.first_record.unwrap_or(NO_RECORD).to_le_bytes());
        header[44..48].copy_from_slice(&segment_pages.to_le_bytes());
        self.buf[..HEADER_BYTES].copy_from_slice(&header);
        self.buf[end..padded].fill(0);
        let crc = crc32c::crc32c(&self.buf[4..end]);
        self.buf[..4].copy_from_slice(&crc.to_le_bytes());
        &self.buf[..padded]
    }

    /// Gives the buffer back for reuse.
    pub fn into_buf(self) -> AlignedBuf {
        self.buf
    }
}

/// The larger part of a record, possibly compressed ahead of the append.
pub enum Body<'a> {
    /// As it is.
    Plain(&'a [u8]),
    /// Compressed; see the module text.
    Lz4 {
        /// Uncompressed length.
        raw_bytes: u64,
        /// {varint length, compressed bytes} per block.
        blocks: Vec<u8>,
    },
}

impl<'a> Body<'a> {
    /// Compresses `raw` if it is long enough and that saves at least an eighth of it (half, above 64 MiB). Costly: call
    /// it outside of locks.
    pub fn compress(raw: &'a [u8]) -> Body<'a> {
        if raw.len() < COMPRESS_BYTES_MIN {
            return Body::Plain(raw);
        }
        let keep_eighths = if raw.len() > COMPRESS_BYTES_LARGE { 4 } else { 7 };
        let mut blocks = Vec::new();
        let mut packed = Vec::new();
        let mut seen = 0u64;
        for block in raw.chunks(LZ4_BLOCK_BYTES) {
            packed.resize(lz4_flex::block::get_maximum_output_size(block.len()), 0);
            let Ok(n) = lz4_flex::block::compress_into(block, &mut packed) else {
                return Body::Plain(raw);
            };
            put_varint(&mut blocks, n as u64);
            blocks.extend_from_slice(&packed[..n]);
            seen += block.len() as u64;
            // Judged as it goes: bytes that do not compress at the start are not worth a full pass.
            if blocks.len() as u64 * 8 > seen * keep_eighths {
                return Body::Plain(raw);
            }
        }
        Body::Lz4 { raw_bytes: raw.len() as u64, blocks }
    }
}

/// A few bytes built without allocating: appends happen under the engine's commit order.
#[derive(Default)]
pub(crate) struct Prefix {
    bytes: [u8; 24],
    len: usize,
}

impl Prefix {
    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
    fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The frame bytes that precede the head (first) and the body (second).
pub(crate) fn frame_prefixes(head: &[u8], body: &Body<'_>) -> (Prefix, Prefix) {
    let (mut before_head, mut before_body) = (Prefix::default(), Prefix::default());
    match body {
        Body::Plain(raw) => {
            before_head.push_varint((head.len() + raw.len()) as u64);
            before_head.push(FRAME_PLAIN);
        }
        Body::Lz4 { raw_bytes, blocks } => {
            let mut head_length = Prefix::default();
            head_length.push_varint(head.len() as u64);
            before_body.push_varint(*raw_bytes);
            let length = head_length.len + head.len() + before_body.len + blocks.len();
            before_head.push_varint(length as u64);
            before_head.push(FRAME_LZ4);
            for &byte in head_length.as_slice() {
                before_head.push(byte);
            }
        }
    }
    (before_head, before_body)
}

/// Restores the record of a compressed frame into `out`; `None` if the bytes are not what [`Body::compress`] makes.
pub(crate) fn decompress_frame(content: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut reader = Reader::new(content);
    let head = reader.bytes()?;
    let mut left = usize::try_from(reader.varint()?).ok()?;
    out.clear();
    out.extend_from_slice(head);
    // Each block is bounded, so a wrong length cannot make this reserve more than the blocks can hold.
    while left > 0 {
        let block = reader.bytes()?;
        let want = left.min(LZ4_BLOCK_BYTES);
        let start = out.len();
        out.resize(start + want, 0);
        if lz4_flex::block::decompress_into(block, &mut out[start..]).ok()? != want {
            return None;
        }
        left -= want;
    }
    reader.is_empty().then_some(())
}

/// The file of segment `number`.
pub fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:012}.log"))
}

/// The number in a segment's file name.
pub fn segment_number(name: &Path) -> Option<u64> {
    let digits = name.to_str()?.strip_suffix(".log")?;
    (digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// The pool name of the file that was segment `number`.
pub(crate) fn recycled_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("recycle-{number:012}.log"))
}

/// True for the name of a file in the pool.
pub(crate) fn is_recycled(name: &Path) -> bool {
    name.to_str().is_some_and(|n| n.strip_prefix("recycle-").is_some_and(|r| segment_number(Path::new(r)).is_some()))
}
