//! From units to records: the frames that the payloads of units make together.
//!
//! A record is one frame (its bytes: docs/develop/format/wal.md), which may span any number of units. [`Frames`] is fed the payloads in order; it
//! begins where a unit first tells where a record starts. A frame that makes no sense is emitted as an error in its place, and
//! who reads decides what comes of it: a unit is intact, so what is wrong in it was written.

use super::format::{FRAME_BYTES_MAX, FRAME_LZ4, FRAME_PLAIN, UnitHeader, decompress_frame};
use crate::base::codec::Reader;
use crate::base::{Lsn, Result};

/// A buffer for spanning records is not kept when it has grown beyond this.
const HELD_BYTES_KEPT: usize = 4 << 20;

/// Puts records together from the payloads of units.
#[derive(Default)]
pub(super) struct Frames {
    /// False until a unit told where a record begins.
    in_step: bool,
    /// The frame begun in an earlier unit, as far as it was seen.
    held: Vec<u8>,
    held_start: Lsn,
    unpacked: Vec<u8>,
}

/// Lengths of a frame: (prefix, content), and the flag.
type FrameShape = (usize, usize, u8);

/// The shape of the frame at the front of `bytes`; `None` if more bytes are needed to tell.
fn frame_shape(bytes: &[u8]) -> std::result::Result<Option<FrameShape>, &'static str> {
    let mut reader = Reader::new(bytes);
    let Some(length) = reader.varint() else {
        return if bytes.len() < 10 { Ok(None) } else { Err("record length malformed") };
    };
    if length > FRAME_BYTES_MAX {
        return Err("record length impossible");
    }
    match reader.u8() {
        None => Ok(None),
        Some(flag @ (FRAME_PLAIN | FRAME_LZ4)) => Ok(Some((bytes.len() - reader.rest().len(), length as usize, flag))),
        Some(_) => Err("record flag unknown"),
    }
}

/// A record or why it is none.
type Emit<'a> = &'a mut dyn FnMut(Lsn, Lsn, std::result::Result<&[u8], &'static str>) -> Result<()>;

impl Frames {
    /// Bytes of a record whose end has not come yet.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// A new epoch begins: a record begun before is void.
    pub(super) fn restart(&mut self) {
        self.held.clear();
        self.in_step = true;
    }

    /// Takes the payload of the next unit, and emits each record that ends in it.
    pub(super) fn feed(&mut self, header: &UnitHeader, payload: &[u8], emit: Emit<'_>) -> Result<()> {
        let base = header.records_start().0;
        let lsn = |i: usize| Lsn(base + i as u64);
        let mut at = 0;
        if !self.in_step {
            let Some(first) = header.first_record else {
                return Ok(());
            };
            at = first as usize;
            self.in_step = true;
        }
        if !self.held.is_empty() {
            // Byte by byte until the length is known, which takes at most eleven.
            let mut shape = frame_shape(&self.held);
            while let (Ok(None), Some(&byte)) = (&shape, payload.get(at)) {
                self.held.push(byte);
                at += 1;
                shape = frame_shape(&self.held);
            }
            let (prefix, length, flag) = match shape {
                Err(what) => return emit(self.held_start, lsn(at), Err(what)),
                Ok(None) => return Ok(()),
                Ok(Some(shape)) => shape,
            };
            let missing = prefix + length - self.held.len();
            let some = missing.min(payload.len() - at);
            if self.held.capacity() < prefix + length && self.held.try_reserve_exact(missing).is_err() {
                return emit(self.held_start, lsn(at), Err("record larger than memory"));
            }
            self.held.extend_from_slice(&payload[at..at + some]);
            at += some;
            if some < missing {
                return match header.first_record {
                    None => Ok(()),
                    Some(_) => emit(self.held_start, lsn(at), Err("record reaches into the next")),
                };
            }
            Self::emit_one(&mut self.unpacked, self.held_start, lsn(at), flag, &self.held[prefix..], emit)?;
            self.held.clear();
            if self.held.capacity() > HELD_BYTES_KEPT {
                self.held = Vec::new();
            }
        }
        let first_here = (at < payload.len()).then_some(at as u32);
        if first_here != header.first_record {
            return emit(lsn(0), lsn(at), Err("first record not where the unit says"));
        }
        while at < payload.len() {
            let rest = &payload[at..];
            match frame_shape(rest) {
                Err(what) => return emit(lsn(at), lsn(at), Err(what)),
                Ok(Some((prefix, length, flag))) if rest.len() - prefix >= length => {
                    let end = at + prefix + length;
                    Self::emit_one(&mut self.unpacked, lsn(at), lsn(end), flag, &rest[prefix..prefix + length], emit)?;
                    at = end;
                }
                Ok(_) => {
                    self.held.extend_from_slice(rest);
                    self.held_start = lsn(at);
                    break;
                }
            }
        }
        Ok(())
    }

    fn emit_one(unpacked: &mut Vec<u8>, start: Lsn, end: Lsn, flag: u8, content: &[u8], emit: Emit<'_>) -> Result<()> {
        if flag == FRAME_PLAIN {
            return emit(start, end, Ok(content));
        }
        let outcome = match decompress_frame(content, unpacked) {
            Some(()) => emit(start, end, Ok(unpacked)),
            None => emit(start, end, Err("compressed record malformed")),
        };
        if unpacked.capacity() > HELD_BYTES_KEPT {
            *unpacked = Vec::new();
        }
        outcome
    }
}
