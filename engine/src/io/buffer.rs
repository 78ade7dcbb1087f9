//! Buffers aligned for direct I/O.

use std::ops::{Deref, DerefMut};

use crate::base::limits::IO_ALIGN;
use crate::base::memory::Memory;

/// A fixed-size, zero-initialised byte buffer whose address and length are multiples of [`IO_ALIGN`].
pub struct AlignedBuf {
    memory: Memory,
}

impl AlignedBuf {
    /// A zeroed buffer of at least `len` bytes, rounded up to a multiple of [`IO_ALIGN`] (at least one unit).
    pub fn zeroed(len: usize) -> AlignedBuf {
        AlignedBuf { memory: Memory::zeroed(len.max(1).next_multiple_of(IO_ALIGN), IO_ALIGN) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the piece has this many initialised bytes and is owned by self.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr(), self.memory.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr(), self.memory.size()) }
    }
}
