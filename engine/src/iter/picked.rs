//! The value of a version that is left behind.
//!
//! A reader that goes backward meets the oldest version of a key first, and does not know before the next key which one is
//! the row. What it has picked so far outlives the source's next step: a short value as a copy, a large one by reference, and
//! one that nobody has read as its place. So of all versions of a large row only the one that is the row is read.

use super::VersionIter;
use crate::base::Result;
use crate::base::value::{DeferredValue, LargeValue, ValueBuf, ValueOut};

/// Values up to this size are copied without a look at where they lie.
const COPIED_MAX: usize = 512 << 10;

/// See the module. Empty at first; its memory is used again.
#[derive(Default)]
pub(crate) struct Picked {
    value: ValueBuf,
    deferred: Option<DeferredValue>,
}

impl Picked {
    /// Takes the value that `iter` stands on, instead of what was there.
    pub fn pick<I: VersionIter>(&mut self, iter: &I) {
        self.deferred = None;
        if iter.is_deferred() {
            self.value.release();
            self.deferred = iter.deferred();
            return;
        }
        let value = iter.value();
        match if value.len() < COPIED_MAX { None } else { iter.large_value() } {
            Some(large) => self.value.hold(large),
            None => self.value.copy(value),
        }
    }

    /// Gives up a large value, before another is read.
    #[inline]
    pub fn release_large(&mut self) {
        if self.value.large().is_some() {
            self.value.release();
        }
    }

    /// Empty again.
    pub fn release(&mut self) {
        self.value.release();
        self.deferred = None;
    }

    /// The place of a value that was not read.
    #[inline]
    pub fn deferred(&self) -> Option<&DeferredValue> {
        self.deferred.as_ref()
    }

    /// Reads what was not read.
    pub fn load(&mut self) -> Result<()> {
        if let Some(place) = &self.deferred {
            self.value.hold(place.read()?);
            self.deferred = None;
        }
        Ok(())
    }

    /// The value, loaded.
    #[inline]
    pub fn value(&self) -> &[u8] {
        debug_assert!(self.deferred.is_none());
        &self.value
    }

    /// Length of the value in bytes.
    pub fn value_len(&self) -> usize {
        self.deferred.as_ref().map_or(self.value.len(), |place| place.value_len())
    }

    /// The value, loaded, if it is a large one.
    pub fn large_value(&self) -> Option<LargeValue> {
        self.value.large().cloned()
    }
}
