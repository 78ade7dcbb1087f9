//! Ordered sources of versions, and what is built from them.
//!
//! Every sorted thing in the engine (memtable, table file, level, merge of these) is a [`VersionIter`]: a cursor over
//! *versions* ordered by user key ascending, then sequence number descending (newest version first).

mod level;
mod merge;
#[cfg(test)]
pub(crate) mod testing;
mod visible;

use crate::base::{Kind, Result, SeqNo};

pub use level::{LevelIter, SortedRun};
pub use merge::MergeIter;
pub use visible::VisibleIter;

/// A cursor over versions in internal order: (user key ascending, sequence number descending).
///
/// A fresh iterator is not positioned (`valid()` is false). After an `Err` the position is undefined until the next
/// seek. `key`, `seq`, `kind`, `value` may be called only while `valid()`; slices live until the next movement.
pub trait VersionIter: Send {
    /// True while positioned on a version.
    fn valid(&self) -> bool;
    /// User key of the current version.
    fn key(&self) -> &[u8];
    /// Its sequence number.
    fn seq(&self) -> SeqNo;
    /// Whether it puts or deletes.
    fn kind(&self) -> Kind;
    /// Its value; empty for a tombstone.
    fn value(&self) -> &[u8];
    /// To the newest version of the first key `>= key`.
    fn seek_ge(&mut self, key: &[u8]) -> Result<()>;
    /// To the *oldest* version of the last key `< key` (the internal predecessor of the newest version of `key`).
    fn seek_lt(&mut self, key: &[u8]) -> Result<()>;
    /// To the very first version.
    fn seek_first(&mut self) -> Result<()>;
    /// To the very last version (the oldest version of the last key).
    fn seek_last(&mut self) -> Result<()>;
    /// To the next version in internal order; past the end the iterator is no longer valid. Requires `valid()`.
    fn next(&mut self) -> Result<()>;
    /// To the previous version in internal order; before the start it is no longer valid. Requires `valid()`.
    fn prev(&mut self) -> Result<()>;
}

impl<T: VersionIter + ?Sized> VersionIter for Box<T> {
    #[inline]
    fn valid(&self) -> bool {
        (**self).valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    #[inline]
    fn seq(&self) -> SeqNo {
        (**self).seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        (**self).kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek_ge(key)
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek_lt(key)
    }
    fn seek_first(&mut self) -> Result<()> {
        (**self).seek_first()
    }
    fn seek_last(&mut self) -> Result<()> {
        (**self).seek_last()
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
}
