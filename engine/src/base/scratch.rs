//! Memory that is used again for value after value, counted where it is long.
//!
//! Readers and writers keep the memory of a value for the next one, which makes most of them cost no allocation. A long value would stay
//! in memory with each of them: what is longer than [`KEPT`] is given back at the end of a statement, and counted as long as it
//! is there. Shorter memory is not counted, so that a row costs one comparison.
//!
//! Invariant: the count is the sum of the capacities above [`KEPT`] of all buffers of the process.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that a buffer keeps when it is released, in bytes.
pub const KEPT: usize = 64 << 10;

static LONG_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of all buffers of the process that are longer than [`KEPT`].
pub fn long_bytes() -> usize {
    LONG_BYTES.load(Ordering::Relaxed)
}

/// See the module. Empty at first.
#[derive(Default)]
pub struct ScratchBuf {
    bytes: Vec<u8>,
    /// What of it is in the count.
    counted: usize,
}

impl ScratchBuf {
    /// Lets `fill` change the bytes, those of the last value among them.
    #[inline]
    pub fn fill<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let result = fill(&mut self.bytes);
        if self.bytes.capacity() > KEPT && self.bytes.capacity() != self.counted {
            self.count();
        }
        result
    }

    /// Takes a copy of a value, instead of what was there.
    #[inline]
    pub fn copy(&mut self, value: &[u8]) {
        self.fill(|bytes| {
            bytes.clear();
            bytes.extend_from_slice(value);
        });
    }

    /// Empty again. Long memory is given back.
    #[inline]
    pub fn release(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
            self.count();
        }
    }

    /// Bytes of memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    #[cold]
    fn count(&mut self) {
        let long = if self.bytes.capacity() > KEPT { self.bytes.capacity() } else { 0 };
        // Added first: the count is never below what is there.
        LONG_BYTES.fetch_add(long, Ordering::Relaxed);
        LONG_BYTES.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = long;
    }
}

impl Drop for ScratchBuf {
    #[inline]
    fn drop(&mut self) {
        if self.counted > 0 {
            LONG_BYTES.fetch_sub(self.counted, Ordering::Relaxed);
        }
    }
}

impl Deref for ScratchBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
