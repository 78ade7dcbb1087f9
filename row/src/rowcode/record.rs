//! Views of the server's record.
//!
//! # Purpose
//! A record is a flat byte array, except that a BLOB slot holds a length and a *pointer*. Everything that follows such
//! a pointer goes through [`Record::blob`], so that the rest of the codecs is safe code.
//!
//! # Invariants
//! Who makes a [`Record`] vouches for its pointers once, at the constructor; codecs then read it freely. Records being
//! filled are plain `&mut [u8]`: storing a pointer is safe, following it is the business of whoever reads the record.
//!
//! # Rejected alternative
//! Handing every BLOB to the codecs as a slice beside the record: the handler would have to walk the columns for each
//! row only to find the few that have one.

use std::ptr;
use std::slice;

/// A record of a table, readable as a whole, BLOB values included.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// A view of `bytes`.
    ///
    /// # Safety
    /// `bytes` is a record of the table whose codecs the view is given to, and the pointer of each BLOB column that is
    /// neither NULL nor of length 0 leads to that many bytes, which stay readable and unchanged for `'a`.
    pub unsafe fn new(bytes: &'a [u8]) -> Record<'a> {
        Record { bytes }
    }

    /// A view of the `record_bytes` bytes at `ptr`.
    ///
    /// # Safety
    /// `ptr` leads to `record_bytes` bytes that stay readable and unchanged for `'a`, and all that [`Record::new`] asks.
    pub unsafe fn from_ptr(ptr: *const u8, record_bytes: usize) -> Record<'a> {
        // SAFETY: promised by the caller.
        Record { bytes: unsafe { slice::from_raw_parts(ptr, record_bytes) } }
    }

    /// The record itself.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The value of the BLOB column at `offset` whose length takes `length_bytes`. The column must not be NULL.
    pub(crate) fn blob(self, offset: usize, length_bytes: usize) -> &'a [u8] {
        let length = load_le(&self.bytes[offset..offset + length_bytes]) as usize;
        if length == 0 {
            return &[];
        }
        let at = offset + length_bytes;
        let mut address = [0; POINTER_BYTES];
        address.copy_from_slice(&self.bytes[at..at + POINTER_BYTES]);
        let address = usize::from_ne_bytes(address);
        // SAFETY: the maker of this view promised that the slot leads to `length` bytes readable for 'a. The codecs
        // call this only for BLOB columns of the table, whose slot a definition check has placed inside the record.
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(address), length) }
    }
}

/// Bytes of the pointer in a BLOB slot.
pub(crate) const POINTER_BYTES: usize = size_of::<usize>();

/// A little-endian number of up to eight bytes.
pub(crate) fn load_le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Writes the low bytes of `value`, little-endian.
pub(crate) fn store_le(slot: &mut [u8], value: u64) {
    for (byte, source) in slot.iter_mut().zip(value.to_le_bytes()) {
        *byte = source;
    }
}

/// Makes the BLOB slot `slot` (length bytes and pointer) lead to `value`.
pub(crate) fn store_blob(slot: &mut [u8], length_bytes: usize, value: &[u8]) {
    let (length, pointer) = slot.split_at_mut(length_bytes);
    store_le(length, value.len() as u64);
    pointer[..POINTER_BYTES].copy_from_slice(&value.as_ptr().expose_provenance().to_ne_bytes());
}
