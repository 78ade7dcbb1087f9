//! Values that have been read.
//!
//! A value is copied out of the block or memtable it was found in, into memory that the reader uses again. A *large* one is
//! not: it alone fills its block, which no cache keeps, so the reader takes the block. It is in memory once, and gone when the
//! reader is done with it. One that a cursor passes need not be in memory at all: its place is known, and it is read when
//! somebody asks for it.

use std::ops::Deref;
use std::sync::Arc;

use super::Result;
use super::scratch::ScratchBuf;

/// What a large value lies in.
pub trait Bytes: Send + Sync {
    /// All bytes.
    fn bytes(&self) -> &[u8];
}

/// A large value together with what it lies in.
#[derive(Clone)]
pub struct LargeValue {
    all: Arc<dyn Bytes>,
    start: usize,
    len: usize,
}

impl LargeValue {
    /// The `len` bytes of `all` from `start` on.
    pub fn new(all: Arc<dyn Bytes>, start: usize, len: usize) -> LargeValue {
        LargeValue { all, start, len }
    }
}

impl Deref for LargeValue {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.all.bytes()[self.start..self.start + self.len]
    }
}

/// The place of a large value, from which it is read.
pub trait ValuePlace: Send + Sync {
    /// Reads it.
    fn read(&self) -> Result<LargeValue>;
    /// Its length in bytes.
    fn value_len(&self) -> usize;
}

/// A large value that has not been read yet.
pub type DeferredValue = Arc<dyn ValuePlace>;

/// Where a value goes that is read.
pub trait ValueOut {
    /// There is none; what is there means nothing now.
    fn clear(&mut self);
    /// Takes a copy.
    fn copy(&mut self, value: &[u8]);
    /// Takes a large one.
    fn hold(&mut self, value: LargeValue);
}

impl ValueOut for Vec<u8> {
    fn clear(&mut self) {
        Vec::clear(self);
    }
    #[inline]
    fn copy(&mut self, value: &[u8]) {
        Vec::clear(self);
        self.extend_from_slice(value);
    }
    fn hold(&mut self, value: LargeValue) {
        self.copy(&value);
    }
}

/// For who only wants to know whether there is a value.
pub struct Unread;

impl ValueOut for Unread {
    fn clear(&mut self) {}
    fn copy(&mut self, _: &[u8]) {}
    fn hold(&mut self, _: LargeValue) {}
}

/// A value that was read; empty at first.
#[derive(Default)]
pub struct ValueBuf {
    copy: ScratchBuf,
    large: Option<LargeValue>,
}

impl ValueBuf {
    /// The value, if it is a large one.
    pub fn large(&self) -> Option<&LargeValue> {
        self.large.as_ref()
    }

    /// Gives up a large value, and memory that a long one has left. Empty then.
    #[inline]
    pub fn release(&mut self) {
        self.large = None;
        self.copy.release();
    }
}

impl ValueOut for ValueBuf {
    /// What was read before stays until another value comes: somebody may still look at it.
    fn clear(&mut self) {}
    #[inline]
    fn copy(&mut self, value: &[u8]) {
        self.large = None;
        self.copy.copy(value);
    }
    fn hold(&mut self, value: LargeValue) {
        self.release();
        self.large = Some(value);
    }
}

impl Deref for ValueBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.large {
            None => &self.copy,
            Some(large) => large,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::KEPT;
    use super::*;

    struct Three;

    impl Bytes for Three {
        fn bytes(&self) -> &[u8] {
            b"abc"
        }
    }

    #[test]
    fn a_value_is_what_was_read_last() {
        let (mut value, mut copy) = (ValueBuf::default(), Vec::new());
        assert_eq!(*value, *b"");
        value.copy(b"small");
        assert_eq!(*value, *b"small");
        let large = LargeValue::new(Arc::new(Three), 1, 2);
        value.hold(large.clone());
        copy.hold(large);
        assert!(*value == *b"bc" && copy == b"bc" && value.large().is_some());
        value.copy(&[1; KEPT + 1]);
        assert_eq!((value.len(), value.large().is_some()), (KEPT + 1, false));
        value.release();
        assert_eq!((value.len(), value.copy.capacity()), (0, 0));
    }
}
