//! Keys of a keyspace: as a user has them, and as the store does, with the number of the index in front.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, Deref, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::base::IndexId;

/// A key, as it was put: derefs to its bytes.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let users = engine.keyspace("users")?;
/// engine.put(&users, "alice", "")?;
/// let (key, _) = engine.snapshot().iter(&users).next().expect("one")?;
/// assert!(key == "alice" && key.len() == 5);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(Box<[u8]>);

impl Key {
    /// The key of a stored one.
    pub(super) fn of_stored(stored: &[u8]) -> Key {
        Key(stored[IndexId::LEN..].into())
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<Key> for Vec<u8> {
    fn from(key: Key) -> Vec<u8> {
        key.0.into_vec()
    }
}

macro_rules! compares {
    ($($other:ty),*) => {$(impl PartialEq<$other> for Key {
        fn eq(&self, other: &$other) -> bool {
            let other: &[u8] = other.as_ref();
            *self.0 == *other
        }
    })*};
}
compares!([u8], &[u8], Vec<u8>, str, &str, String);

impl<const N: usize> PartialEq<&[u8; N]> for Key {
    fn eq(&self, other: &&[u8; N]) -> bool {
        *self.0 == other[..]
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Key {
    fn eq(&self, other: &[u8; N]) -> bool {
        *self.0 == other[..]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

/// The key under which the store has a key of a keyspace.
pub(crate) fn stored(index: IndexId, key: &[u8]) -> Vec<u8> {
    [&index.prefix()[..], key].concat()
}

/// The same, in memory that is used again.
pub(crate) fn store_into(index: IndexId, key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&index.prefix());
    out.extend_from_slice(key);
}

/// Stored keys from the first, included, to the second, excluded.
pub(crate) type Bounds = (Vec<u8>, Vec<u8>);

/// Those of all keys of an index.
fn all(index: IndexId) -> Bounds {
    (index.prefix().to_vec(), IndexId(index.0 + 1).prefix().to_vec())
}

/// The least key above `key`.
fn successor(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// A range of keys: any of Rust's, over anything that is bytes, as `..`, `"a".."b"`, `..=key`, `(Bound::Excluded(key), Bound::Unbounded)`.
///
/// A trait of its own: with [`RangeBounds`] the compiler could not tell the type of the keys of `..` and of `b"a"..b"b"`. A range
/// of a type that is not listed here is a pair of its bounds.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let users = engine.keyspace("users")?;
/// engine.put(&users, "bob", "")?;
/// let snapshot = engine.snapshot();
/// assert_eq!(snapshot.range(&users, ..).count(), 1);
/// assert_eq!(snapshot.range(&users, b"a"..b"b").count(), 0);
/// assert_eq!(snapshot.range(&users, String::from("bob")..).count(), 1);
/// # Ok(()) }
/// ```
pub trait KeyRange: private::Sealed {
    /// Where it begins.
    fn start(&self) -> Bound<&[u8]>;
    /// Where it ends.
    fn end(&self) -> Bound<&[u8]>;
}

mod private {
    pub trait Sealed {}
}

impl private::Sealed for RangeFull {}

impl KeyRange for RangeFull {
    fn start(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
    fn end(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

macro_rules! key_ranges {
    ($($range:ty),*) => {$(
        impl<K> private::Sealed for $range {}

        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn start(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::start_bound(self).map(AsRef::as_ref)
            }
            fn end(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::end_bound(self).map(AsRef::as_ref)
            }
        }
    )*};
}
key_ranges!(Range<K>, RangeInclusive<K>, RangeFrom<K>, RangeTo<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

/// Those of the keys in `range`. Empty where the range is, or goes the wrong way.
pub(crate) fn bounds(index: IndexId, range: &impl KeyRange) -> Bounds {
    let (first, last) = all(index);
    let lower = match range.start() {
        Bound::Included(key) => stored(index, key),
        Bound::Excluded(key) => successor(stored(index, key)),
        Bound::Unbounded => first,
    };
    let upper = match range.end() {
        Bound::Included(key) => successor(stored(index, key)),
        Bound::Excluded(key) => stored(index, key),
        Bound::Unbounded => last,
    };
    (lower, upper)
}

/// Those of the keys that begin with `prefix`.
pub(crate) fn prefix_bounds(index: IndexId, prefix: &[u8]) -> Bounds {
    // The least key above them all is the prefix without the 0xff at its end, the last byte one higher; there is none if
    // nothing is left.
    let kept = prefix.iter().rposition(|&byte| byte != 0xff).map_or(0, |at| at + 1);
    let mut upper = stored(index, &prefix[..kept]);
    match kept {
        0 => upper = all(index).1,
        _ => upper[IndexId::LEN + kept - 1] += 1,
    }
    (stored(index, prefix), upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: IndexId = IndexId(0x8000_00ff);

    fn is_in((lower, upper): &Bounds, key: &[u8]) -> bool {
        let key = stored(INDEX, key);
        *lower <= key && key < *upper
    }

    fn strings() -> impl Iterator<Item = Vec<u8>> {
        let bytes = [0x00, 0x01, b'a', 0xfe, 0xff];
        let one = bytes.map(|byte| vec![byte]);
        let two = bytes.into_iter().flat_map(move |a| bytes.map(move |b| vec![a, b]));
        let three = bytes.into_iter().flat_map(move |a| bytes.map(move |b| vec![0xff, a, b]));
        std::iter::once(Vec::new()).chain(one).chain(two).chain(three)
    }

    #[test]
    fn a_prefix_holds_what_begins_with_it() {
        for prefix in strings() {
            let bounds = prefix_bounds(INDEX, &prefix);
            for key in strings() {
                assert_eq!(is_in(&bounds, &key), key.starts_with(&prefix), "{prefix:02x?} {key:02x?}");
            }
            // Neighbours are other keyspaces.
            assert!(bounds.0 >= INDEX.prefix().to_vec() && bounds.1 <= IndexId(INDEX.0 + 1).prefix().to_vec());
        }
    }

    #[test]
    fn ranges_hold_what_they_say() {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        for a in strings() {
            for b in strings() {
                for range in [
                    (Included(&a), Included(&b)),
                    (Included(&a), Excluded(&b)),
                    (Excluded(&a), Included(&b)),
                    (Excluded(&a), Excluded(&b)),
                    (Unbounded, Included(&b)),
                    (Excluded(&a), Unbounded),
                    (Unbounded, Unbounded),
                ] {
                    let bounds = bounds(INDEX, &range);
                    for key in strings() {
                        assert_eq!(is_in(&bounds, &key), range.contains(&&key), "{range:02x?} {key:02x?}");
                    }
                }
            }
        }
    }
}
