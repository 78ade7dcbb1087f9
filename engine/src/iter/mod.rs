//! Ordered sources of versions, and what is built from them.
//!
//! Every sorted thing in the engine (memtable, SST, level, merge of these) is a [`VersionIter`]: a cursor over
//! *versions* ordered by user key ascending, then sequence number descending (newest version first).

/// Methods of a [`VersionIter`] that a wrapper hands on, as they are, to the iterator in one of its fields.
macro_rules! hand_on {
    ($field:ident: $($method:ident)*) => { $(hand_on!(@ $method $field);)* };
    (@ valid $field:ident) => { fn valid(&self) -> bool { self.$field.valid() } };
    (@ key $field:ident) => { fn key(&self) -> &[u8] { self.$field.key() } };
    (@ seq $field:ident) => { fn seq(&self) -> $crate::base::SeqNo { self.$field.seq() } };
    (@ kind $field:ident) => { fn kind(&self) -> $crate::base::Kind { self.$field.kind() } };
    (@ value $field:ident) => {
        fn value(&self) -> &[u8] { self.$field.value() }
        fn is_deferred(&self) -> bool { self.$field.is_deferred() }
        fn load(&mut self) -> $crate::base::Result<()> { self.$field.load() }
        fn deferred(&self) -> Option<$crate::base::value::DeferredValue> { self.$field.deferred() }
        fn value_len(&self) -> usize { self.$field.value_len() }
    };
    (@ seeks $field:ident) => {
        fn seek_ge(&mut self, key: &[u8]) -> $crate::base::Result<()> { self.$field.seek_ge(key) }
        fn seek_lt(&mut self, key: &[u8]) -> $crate::base::Result<()> { self.$field.seek_lt(key) }
        fn seek_first(&mut self) -> $crate::base::Result<()> { self.$field.seek_first() }
        fn seek_last(&mut self) -> $crate::base::Result<()> { self.$field.seek_last() }
    };
    // As `seeks`, and then on, or back, to what the wrapper shows.
    (@ settled_seeks $field:ident) => {
        fn seek_ge(&mut self, key: &[u8]) -> $crate::base::Result<()> {
            self.$field.seek_ge(key)?;
            self.forward()
        }
        fn seek_lt(&mut self, key: &[u8]) -> $crate::base::Result<()> {
            self.$field.seek_lt(key)?;
            self.backward()
        }
        fn seek_first(&mut self) -> $crate::base::Result<()> {
            self.$field.seek_first()?;
            self.forward()
        }
        fn seek_last(&mut self) -> $crate::base::Result<()> {
            self.$field.seek_last()?;
            self.backward()
        }
    };
    (@ prev $field:ident) => { fn prev(&mut self) -> $crate::base::Result<()> { self.$field.prev() } };
}
pub(crate) use hand_on;

mod level;
mod merge;
mod picked;
#[cfg(test)]
pub(crate) mod testing;
mod visible;

use std::cmp::Ordering;

use crate::base::value::{DeferredValue, LargeValue};
use crate::base::{Kind, Result, SeqNo};

pub use level::{LevelIter, SortedRun};
pub use merge::MergeIter;
pub(crate) use picked::Picked;
pub use visible::VisibleIter;

/// A cursor over versions in internal order: (user key ascending, sequence number descending).
///
/// A fresh iterator is not positioned (`valid()` is false). After an `Err` the position is undefined until the next
/// seek. `key`, `seq`, `kind`, `value` may be called only while `valid()`; slices live until the next movement.
///
/// A source may stand on a large value without having read it, so that a merge of many sources holds the one value which it
/// has chosen, and nobody reads what is passed by. Where `is_deferred()`, `value` and `large_value` wait for `load`. It is
/// the business of whoever chooses among the versions of a key; readers of rows see none of it.
pub trait VersionIter: Send {
    /// True while positioned on a version.
    fn valid(&self) -> bool;
    /// User key of the current version.
    fn key(&self) -> &[u8];
    /// Where it stands, if anywhere: what a comparison needs, in one call.
    #[inline]
    fn order_head(&self) -> Option<OrderHead> {
        self.valid().then(|| OrderHead::new(self.key(), self.seq()))
    }
    /// Its sequence number.
    fn seq(&self) -> SeqNo;
    /// Whether it puts or deletes.
    fn kind(&self) -> Kind;
    /// Its value; empty for a tombstone.
    fn value(&self) -> &[u8];
    /// Its value by itself, if that is a large one which can be kept.
    #[inline]
    fn large_value(&self) -> Option<LargeValue> {
        None
    }
    /// True if the value must be loaded before it is asked for.
    #[inline]
    fn is_deferred(&self) -> bool {
        false
    }
    /// Reads a value that is deferred; it is held until the next movement.
    fn load(&mut self) -> Result<()> {
        Ok(())
    }
    /// The place of a value that is deferred, to be read later or never.
    fn deferred(&self) -> Option<DeferredValue> {
        None
    }
    /// Length of the value in bytes, read or not.
    #[inline]
    fn value_len(&self) -> usize {
        self.value().len()
    }
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
    /// To the newest version of the next key; past the end the iterator is no longer valid. Requires `valid()`.
    fn next_key(&mut self) -> Result<()> {
        let key = self.key().to_vec();
        while self.valid() && self.key() == key {
            self.next()?;
        }
        Ok(())
    }
    /// To the previous version in internal order; before the start it is no longer valid. Requires `valid()`.
    fn prev(&mut self) -> Result<()>;
}

/// Bytes of a key in its head.
pub const HEAD_BYTES: usize = 16;

/// The first 16 bytes of a key, padded with zeros: heads that differ order as their keys do.
#[inline]
pub fn head_of(key: &[u8]) -> u128 {
    if let Some(first) = key.first_chunk::<HEAD_BYTES>() {
        return u128::from_be_bytes(*first);
    }
    if let (Some(first), Some(last)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        // The last eight bytes, less those that are among the first eight.
        let rest = u64::from_be_bytes(*last).checked_shl(8 * (HEAD_BYTES - key.len()) as u32).unwrap_or(0);
        return u128::from(u64::from_be_bytes(*first)) << 64 | u128::from(rest);
    }
    let mut bytes = [0; HEAD_BYTES];
    bytes[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(bytes)
}

/// What of a version decides its place in the internal order; all of it but for the rest of a long key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OrderHead {
    /// See [`head_of`].
    pub head: u128,
    /// Length of the key in bytes.
    pub key_len: usize,
    /// Sequence number.
    pub seq: SeqNo,
}

impl OrderHead {
    /// That of the version `seq` of `key`.
    #[inline]
    pub fn new(key: &[u8], seq: SeqNo) -> OrderHead {
        OrderHead { head: head_of(key), key_len: key.len(), seq }
    }

    /// Order of the keys, if it shows: not of long ones with one head.
    #[inline]
    pub fn order_of_keys(&self, other: &OrderHead) -> Option<Ordering> {
        match self.head.cmp(&other.head) {
            // Of keys within their heads one is the other with zeros behind it.
            Ordering::Equal if self.key_len.max(other.key_len) <= HEAD_BYTES => Some(self.key_len.cmp(&other.key_len)),
            Ordering::Equal => None,
            order => Some(order),
        }
    }
}

impl<T: VersionIter + ?Sized> VersionIter for Box<T> {
    #[inline]
    fn valid(&self) -> bool {
        (**self).valid()
    }
    #[inline]
    fn order_head(&self) -> Option<OrderHead> {
        (**self).order_head()
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
    #[inline]
    fn large_value(&self) -> Option<LargeValue> {
        (**self).large_value()
    }
    #[inline]
    fn is_deferred(&self) -> bool {
        (**self).is_deferred()
    }
    fn load(&mut self) -> Result<()> {
        (**self).load()
    }
    fn deferred(&self) -> Option<DeferredValue> {
        (**self).deferred()
    }
    #[inline]
    fn value_len(&self) -> usize {
        (**self).value_len()
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
    fn next_key(&mut self) -> Result<()> {
        (**self).next_key()
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
}

#[cfg(test)]
mod tests {
    use super::{OrderHead, head_of};
    use crate::base::SeqNo;

    #[test]
    fn heads_are_padded_keys() {
        let key: Vec<u8> = (1..=20).collect();
        for len in 0..=key.len() {
            let mut padded = [0; 16];
            padded[..len.min(16)].copy_from_slice(&key[..len.min(16)]);
            assert_eq!(head_of(&key[..len]), u128::from_be_bytes(padded), "{len} bytes");
        }
    }

    #[test]
    fn stands_order_like_keys_or_do_not_say() {
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefghijklmnop", b"abcdefghijklmnop\0", b"abcdefghijklmnopq"];
        for a in keys {
            for b in keys {
                let order = OrderHead::new(a, SeqNo(1)).order_of_keys(&OrderHead::new(b, SeqNo(2)));
                let tied = a.len().max(b.len()) > 16 && a.starts_with(keys[5]) && b.starts_with(keys[5]);
                assert_eq!(order, (!tied).then(|| a.cmp(b)), "{a:?} {b:?}");
            }
        }
    }
}
