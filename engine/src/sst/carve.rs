//! Blocks found without an index: in a file, or a part of one, whose index is damaged.
//!
//! A frame ends with its kind, the length of what it unpacks to and a checksum that also covers the file's number and the place of
//! its first byte. So where a frame ends can be told from where it begins: the checksum is carried forward byte by byte until
//! what follows is it. Frames lie one behind the other, so most are found that way, each from the end of the one before.
//!
//! Behind a damaged frame nothing says where the next one begins. There the checksum is carried backward: a CRC is undone byte by
//! byte, and at a frame's first byte the state is that of the place, which is known. Of each place where a trailer could end its
//! kind and length say how far back its frame may begin; few places look like one. A large value in a zstd frame may begin
//! anywhere before, so it is looked for from the magic number of zstd.
//!
//! Of an encrypted file payloads are as long as their tags make them, and a large value whose frame is zstd's is not found behind damage:
//! its first bytes are sealed.
//!
//! Invariant: what is found unpacks, and its checksum is right for its place. Frames that are found do not overlap.
//!
//! Rejected: trying each place as a beginning (square in the length of the part); a table of all beginnings by what their checksum
//! would be at the end of the file (one pass, but some hundred operations for each byte where few are needed here).

use super::frame::{self, Handle, TRAILER_BYTES};
use super::large::{BLOCK_BYTES_MAX, LARGE};
use super::sealed::{plain_len, sealed_len};
use crate::base::FileNo;
use crate::crypt::Cipher;

/// The polynomial of CRC-32C, its bits in the order of the algorithm.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The first four bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Kind and length: what lies between payload and checksum.
const TAIL: usize = TRAILER_BYTES - 4;
/// A block of rows that are not large is no longer than this, packed or not.
const SMALL_MAX: usize = LARGE + (128 << 10);

const STEP: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { state >> 1 ^ POLYNOMIAL } else { state >> 1 };
            bit += 1;
        }
        table[byte] = state;
        byte += 1;
    }
    table
};

/// The byte whose entry in `STEP` has this highest byte: there is one for each.
const BACK: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[(STEP[byte] >> 24) as usize] = byte as u8;
        byte += 1;
    }
    table
};

fn step(state: u32, byte: u8) -> u32 {
    STEP[((state ^ u32::from(byte)) & 0xff) as usize] ^ state >> 8
}

fn step_back(state: u32, byte: u8) -> u32 {
    let index = BACK[(state >> 24) as usize];
    (state ^ STEP[index as usize]) << 8 | u32::from(index ^ byte)
}

/// A part of a file.
struct Region<'a> {
    bytes: &'a [u8],
    /// Where it lies in the file.
    base: u64,
    no: FileNo,
    cipher: Option<&'a Cipher>,
}

/// The intact frames in `bytes`, which lie at `base` of file `no`, in order.
pub(super) fn carve(bytes: &[u8], base: u64, no: FileNo, cipher: Option<&Cipher>) -> Vec<Handle> {
    let region = Region { bytes, base, no, cipher };
    let mut found = Vec::new();
    let mut at = 0;
    while at + TRAILER_BYTES <= bytes.len() {
        let end = region.frame_at(at, at + SMALL_MAX).map(|end| (at, end));
        let Some((begin, end)) = end.or_else(|| region.frame_behind(at)) else { break };
        found.push(Handle { offset: base + begin as u64, len: (end - begin) as u32 });
        at = end;
    }
    found
}

impl Region<'_> {
    fn number(&self, at: usize) -> u32 {
        self.bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// The state of the checksum before the first byte of a frame at `at`.
    fn state_at(&self, at: usize) -> u32 {
        !frame::checksum_of_place(self.no, self.base + at as u64)
    }

    /// Could the body from `begin` to `end`, which the checksum follows, be one?
    fn fits(&self, begin: usize, end: usize) -> bool {
        let payload = (end - begin).checked_sub(TAIL).filter(|&payload| payload > 0);
        let plain = payload.and_then(|payload| if self.cipher.is_some() { plain_len(payload) } else { Some(payload) });
        let Some(payload) = plain else { return false };
        let (kind, len) = (self.bytes[end - TAIL], self.number(end - TAIL + 1) as usize);
        match kind {
            frame::PLAIN => len == payload,
            kind => kind <= frame::KIND_MAX && payload < len && len <= BLOCK_BYTES_MAX,
        }
    }

    /// Length of a payload of `plain` bytes as it lies in the file.
    fn stored(&self, plain: usize) -> usize {
        if self.cipher.is_some() { sealed_len(plain) } else { plain }
    }

    fn unpacks(&self, begin: usize, end: usize) -> bool {
        let framed = &self.bytes[begin..end + 4];
        frame::is_intact(self.no, self.base + begin as u64, framed, self.cipher)
    }

    /// The end of the frame at `begin`, looked for up to `limit`; a large one is looked for as far as it may go.
    fn frame_at(&self, begin: usize, limit: usize) -> Option<usize> {
        let last = self.bytes.len() - 4;
        let is_zstd = self.bytes[begin..].starts_with(&ZSTD_MAGIC);
        let limit = if is_zstd { last } else { last.min(limit) };
        let mut state = self.state_at(begin);
        for end in begin..=limit {
            if self.number(end) == !state && self.fits(begin, end) && self.unpacks(begin, end) {
                return Some(end + 4);
            }
            state = step(state, self.bytes[end]);
        }
        // A large value as it is: its length is said where it ends.
        (limit.max(begin + TAIL)..=last).find(|&end| self.is_plain(begin, end)).map(|end| end + 4)
    }

    fn is_plain(&self, begin: usize, end: usize) -> bool {
        self.bytes[end - TAIL] == frame::PLAIN
            && self.stored(self.number(end - TAIL + 1) as usize) == end - TAIL - begin
            && self.unpacks(begin, end)
    }

    /// The first frame that begins behind `from`.
    fn frame_behind(&self, from: usize) -> Option<(usize, usize)> {
        for end in from + TAIL..=self.bytes.len() - 4 {
            let found = match self.small_up_to(from, end) {
                Some(begin) => Some((begin, end + 4)),
                None if self.bytes[end - TAIL..].starts_with(&ZSTD_MAGIC) => {
                    let begin = end - TAIL;
                    self.frame_at(begin, begin).map(|end| (begin, end))
                }
                None => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The beginning, at `from` or later, of a frame whose checksum is at `end`, unless it is packed and large.
    fn small_up_to(&self, from: usize, end: usize) -> Option<usize> {
        let (kind, len) = (self.bytes[end - TAIL], self.number(end - TAIL + 1) as usize);
        let payload_end = end - TAIL;
        if kind == frame::PLAIN {
            let begin = payload_end.checked_sub(self.stored(len)).filter(|&begin| begin >= from && len > 0)?;
            return self.unpacks(begin, end).then_some(begin);
        }
        if kind > frame::KIND_MAX || len > SMALL_MAX {
            return None;
        }
        let mut state = !self.number(end);
        for at in (payload_end..end).rev() {
            state = step_back(state, self.bytes[at]);
        }
        let least = from.max(payload_end.saturating_sub(self.stored(len)));
        for begin in (least..payload_end).rev() {
            state = step_back(state, self.bytes[begin]);
            if state == self.state_at(begin) && self.unpacks(begin, end) {
                return Some(begin);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Kind, SeqNo};
    use crate::sst::frame::Packer;
    use crate::sst::large::{self, Place};
    use crate::sst::{BlockBuilder, Compression};

    const NO: FileNo = FileNo(7);
    const BASE: u64 = 12_288;

    /// Blocks one behind the other, packed in each way, and where they lie.
    fn row_of_blocks() -> (Vec<u8>, Vec<Handle>) {
        let (mut bytes, mut handles) = (Vec::new(), Vec::new());
        for i in 0..24u32 {
            let compression = [Compression::None, Compression::Lz4, Compression::Zstd][i as usize % 3];
            let mut block = BlockBuilder::default();
            for row in 0..100 + i {
                let value = [row / 7, row.wrapping_mul(2_654_435_761)].map(u32::to_le_bytes).concat();
                block.add(&[&[0, 0, 0, 16], &(i * 1000 + row).to_be_bytes()[..]].concat(), SeqNo(9), Kind::Put, &value);
            }
            let mut raw = Vec::new();
            block.finish(&mut raw);
            let offset = BASE + bytes.len() as u64;
            let framed = Packer::new(compression).unwrap().pack(&raw, NO, offset, true).unwrap().to_vec();
            handles.push(Handle { offset, len: framed.len() as u32 });
            bytes.extend(framed);
        }
        (bytes, handles)
    }

    #[test]
    fn a_step_back_undoes_a_step() {
        for byte in 0..=255 {
            let state = 0x1234_5678u32.wrapping_mul(u32::from(byte) + 1);
            assert_eq!(step_back(step(state, byte), byte), state);
        }
        let state = b"123456789".iter().fold(!0, |state, &byte| step(state, byte));
        assert_eq!(!state, crc32c::crc32c(b"123456789"));
    }

    #[test]
    fn blocks_are_found_without_an_index_and_behind_damage() {
        let (bytes, handles) = row_of_blocks();
        assert_eq!(carve(&bytes, BASE, NO, None), handles);
        assert_eq!(carve(&bytes, BASE, FileNo(8), None), [], "of another file");
        assert_eq!(carve(&bytes, BASE + 1, NO, None), [], "of another place");
        // A byte at the beginning, in the middle and in the trailer of some, two in a row among them.
        for hit in [vec![0], vec![5], vec![7, 8], vec![23], vec![3, 12, 19]] {
            for place in 0..3 {
                let mut damaged = bytes.clone();
                for &block in &hit {
                    let Handle { offset, len } = handles[block];
                    let within = [0, len / 2, len - 1][place];
                    damaged[(offset - BASE) as usize + within as usize] ^= 0x40;
                }
                let left: Vec<Handle> = (0..handles.len()).filter(|i| !hit.contains(i)).map(|i| handles[i]).collect();
                assert_eq!(carve(&damaged, BASE, NO, None), left, "{hit:?} at {place}");
            }
        }
    }

    #[test]
    fn a_part_that_begins_or_ends_within_a_block_has_the_others() {
        let (bytes, handles) = row_of_blocks();
        let (from, to) = (handles[2].len as usize + 3, bytes.len() - 5);
        let skipped = handles.iter().take_while(|h| h.offset < BASE + from as u64).count();
        assert_eq!(carve(&bytes[from..to], BASE + from as u64, NO, None), handles[skipped..handles.len() - 1]);
    }

    #[test]
    fn large_values_are_found_in_either_form() {
        let mut x = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 56) as u8
        })
        .take(LARGE + 1000)
        .collect();
        let regular = vec![7; 3 * LARGE];
        let (mut bytes, mut handles) = (vec![1; 777], Vec::new());
        for value in [&noise, &regular, &noise] {
            let head = BlockBuilder::head_of_one(b"\0\0\0\x07key", SeqNo(9), value.len() as u32);
            let offset = BASE + bytes.len() as u64;
            let mut put = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                Ok(())
            };
            let place = Place { path: "f".as_ref(), no: NO, offset, compress: true, cipher: None };
            handles.push(large::write(&mut put, place, &head, &[value]).unwrap());
        }
        assert_eq!(carve(&bytes, BASE, NO, None), handles);
    }
}
