//! Sealed payloads: what an encrypted file has instead of the payload of a block.
//!
//! A payload is sealed in pieces of 64 KiB, each followed by its tag, so that a block of a gigabyte is written and read in windows,
//! and every piece is authentic before it is unpacked. The nonce of a piece is the offset of its block and its number in
//! it; the block's kind and unpacked length are authenticated with it. The trailer and its checksum lie around the sealed bytes.
//!
//! Rejected: one tag for a block (a large one could be used only once all of it was read and opened in memory).

use crate::base::Result;
use crate::crypt::{Cipher, Forged, Nonce, TAG_BYTES};

/// Bytes sealed at once.
const PIECE: usize = 64 << 10;
const SEALED_PIECE: usize = PIECE + TAG_BYTES;

/// Where a payload lies and what it is.
#[derive(Clone, Copy)]
pub(super) struct Sealed<'a> {
    pub cipher: &'a Cipher,
    /// Offset of the block in the file.
    pub offset: u64,
    /// The block's kind.
    pub kind: u8,
    /// Its length once unpacked.
    pub unpacked: u32,
}

impl Sealed<'_> {
    fn context(&self) -> [u8; 5] {
        let [a, b, c, d] = self.unpacked.to_le_bytes();
        [self.kind, a, b, c, d]
    }

    fn seal_piece(&self, number: u32, piece: &mut [u8]) -> [u8; TAG_BYTES] {
        self.cipher.seal(Nonce(self.offset, number), &self.context(), piece)
    }

    /// Seals the first `n` bytes of `bytes` in place; how many there are then. `bytes` may be longer.
    pub fn seal(&self, bytes: &mut Vec<u8>, n: usize) -> usize {
        let len = sealed_len(n);
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        // From the end, as each piece makes room for the tags before it.
        for number in (0..n.div_ceil(PIECE).max(1)).rev() {
            let (from, to) = (number * PIECE, number * SEALED_PIECE);
            let piece = PIECE.min(n - from);
            bytes.copy_within(from..from + piece, to);
            let tag = self.seal_piece(number as u32, &mut bytes[to..to + piece]);
            bytes[to + piece..to + piece + TAG_BYTES].copy_from_slice(&tag);
        }
        len
    }

    /// Appends what was sealed to `out`.
    pub fn open(&self, sealed: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), Forged> {
        let pieces = sealed.chunks(SEALED_PIECE);
        pieces.enumerate().try_for_each(|(number, piece)| self.open_piece(number as u32, piece, out))
    }

    fn open_piece(&self, number: u32, sealed: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), Forged> {
        let (bytes, tag) = sealed.split_last_chunk().ok_or(Forged)?;
        let from = out.len();
        out.extend_from_slice(bytes);
        self.cipher.open(Nonce(self.offset, number), &self.context(), &mut out[from..], tag)
    }
}

/// Length of a payload of `plain` bytes once it is sealed.
pub(super) fn sealed_len(plain: usize) -> usize {
    plain + plain.div_ceil(PIECE).max(1) * TAG_BYTES
}

/// Length of what was sealed; `None` if nothing has such a length then.
pub(super) fn plain_len(sealed: usize) -> Option<usize> {
    let plain = sealed.checked_sub(sealed.div_ceil(SEALED_PIECE) * TAG_BYTES)?;
    (sealed_len(plain) == sealed).then_some(plain)
}

/// Seals a payload that comes in parts.
pub(super) struct Sealing<'a> {
    place: Sealed<'a>,
    number: u32,
    piece: Vec<u8>,
}

impl<'a> Sealing<'a> {
    pub fn new(place: Sealed<'a>) -> Sealing<'a> {
        Sealing { place, number: 0, piece: Vec::with_capacity(SEALED_PIECE) }
    }

    /// Takes a part, and hands on what is sealed by then.
    pub fn push(&mut self, mut bytes: &[u8], put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            if self.piece.len() == PIECE {
                self.finish(put)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.piece.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Hands on the piece at hand, which is the last one unless it is full.
    pub fn finish(&mut self, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let tag = self.place.seal_piece(self.number, &mut self.piece);
        self.piece.extend_from_slice(&tag);
        put(&self.piece)?;
        self.piece.clear();
        self.number += 1;
        Ok(())
    }
}

/// Opens a payload that comes in parts.
pub(super) struct Opening<'a> {
    place: Sealed<'a>,
    number: u32,
    sealed: Vec<u8>,
    opened: Vec<u8>,
}

impl<'a> Opening<'a> {
    pub fn new(place: Sealed<'a>) -> Opening<'a> {
        Opening { place, number: 0, sealed: Vec::with_capacity(SEALED_PIECE), opened: Vec::new() }
    }

    /// Takes a part, and hands on what is opened by then.
    pub fn push(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Option<Forged>> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(SEALED_PIECE - self.sealed.len()));
            self.sealed.extend_from_slice(now);
            bytes = later;
            if self.sealed.len() == SEALED_PIECE {
                if let Some(forged) = self.finish(take)? {
                    return Ok(Some(forged));
                }
            }
        }
        Ok(None)
    }

    /// Hands on what is left.
    pub fn finish(&mut self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Option<Forged>> {
        if self.sealed.is_empty() {
            return Ok(None);
        }
        self.opened.clear();
        if let Err(forged) = self.place.open_piece(self.number, &self.sealed, &mut self.opened) {
            return Ok(Some(forged));
        }
        self.sealed.clear();
        self.number += 1;
        take(&self.opened)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::crypt::testing::FixedKeys;
    use crate::crypt::{Keyring, Purpose};

    #[test]
    fn whole_and_in_parts_are_the_same() {
        let ring = Keyring::new(Some(FixedKeys::of(&[1])));
        for len in [0, 1, 100, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7] {
            let plain: Vec<u8> = (0..len).map(|i| (i * 7 / 5) as u8).collect();
            let seal = |whole: bool| {
                let (header, cipher) = ring.begin(1, Purpose::Sst, Path::new("/f")).unwrap();
                let place = Sealed { cipher: &cipher, offset: 77, kind: 2, unpacked: 9 };
                let mut sealed = plain.clone();
                if whole {
                    let n = place.seal(&mut sealed, len);
                    sealed.truncate(n);
                } else {
                    sealed.clear();
                    let mut put = |bytes: &[u8]| {
                        sealed.extend_from_slice(bytes);
                        Ok(())
                    };
                    let mut sealing = Sealing::new(place);
                    plain.chunks(10_000).for_each(|part| sealing.push(part, &mut put).unwrap());
                    sealing.finish(&mut put).unwrap();
                }
                (header, sealed)
            };
            for (header, sealed) in [seal(true), seal(false)] {
                assert_eq!(plain_len(sealed.len()), Some(len));
                let cipher = ring.open(&header, Purpose::Sst, Path::new("/f")).unwrap();
                let place = Sealed { cipher: &cipher, offset: 77, kind: 2, unpacked: 9 };
                let mut out = Vec::new();
                place.open(&sealed, &mut out).unwrap();
                assert!(out == plain);
                out.clear();
                let mut take = |bytes: &[u8]| {
                    out.extend_from_slice(bytes);
                    Ok(())
                };
                let mut opening = Opening::new(place);
                let parts = sealed.chunks(9_999).all(|part| opening.push(part, &mut take).unwrap().is_none());
                assert!(parts && opening.finish(&mut take).unwrap().is_none() && out == plain);
                for wrong in
                    [Sealed { offset: 78, ..place }, Sealed { kind: 0, ..place }, Sealed { unpacked: 8, ..place }]
                {
                    assert!(wrong.open(&sealed, &mut Vec::new()).is_err());
                }
                assert!(place.open(&sealed[..sealed.len() - 1], &mut Vec::new()).is_err());
            }
        }
        assert!((1..16).all(|len| plain_len(len).is_none()) && plain_len(SEALED_PIECE + 8).is_none());
    }
}
