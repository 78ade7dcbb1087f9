//! A value that was read without a copy: the bytes where they lie, and what keeps them there.
//!
//! | where it was found | what it holds | until it drops |
//! |---|---|---|
//! | table file | the decoded block, 8 or 16 KiB mostly | the block stays in memory though the cache has given it up |
//! | memtable | the whole memtable, a quarter of the memtable budget | it stays though it was flushed |
//! | the transaction's own write | a copy of it | nothing else is held |
//! | large value (1 MiB and more) | its own block | that is all there is of it in memory |
//!
//! Nothing that a store does changes what is held: blocks and versions are immutable, and files, flushes, merges and drops
//! only give up references of their own. All of it is counted: blocks in [`crate::sst::pinned_block_bytes`], memtables that were
//! flushed in `StateCell::pinned_bytes`, and both are taken off the block cache's budget. A value that is kept for long is better copied.
//!
//! The transaction's own writes are copied since its write buffer moves when it grows.
//!
//! Rejected: borrowing from the snapshot (a value could not leave the function that read it); memtables whose chunks are counted one by
//! one, so that a value holds 2 MiB less of them (an atomic operation for each chunk a read touches, on the row layer's way too).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::base::value::LargeValue;
use crate::mem::MemTable;
use crate::sst::{BlockPin, PinnedValue};

/// A value: derefs to its bytes. Cheap to clone, and free to outlive whatever it was read through.
///
/// It is not copied out of the block or the memtable that it was found in, and keeps that in memory until it drops: a block of a
/// table file (8 or 16 KiB mostly), or a whole memtable (a quarter of [`Options::memtable_budget_bytes`](crate::Options)). What it
/// keeps is counted ([`Metrics`](crate::Metrics): `block_pinned_bytes`, `memtable_pinned_bytes`) and taken off the
/// block cache. Copy a value that is to live for long: `value.to_vec()`.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// let users = engine.keyspace("users")?;
/// engine.put(&users, "alice", "Alice A.")?;
/// let name = engine.get(&users, "alice")?.expect("was put");
/// assert_eq!(name, b"Alice A.");
/// assert!(name.starts_with(b"Alice"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Value {
    bytes: NonNull<[u8]>,
    _holder: Holder,
}

/// What keeps the bytes where they are.
#[derive(Clone)]
#[allow(dead_code)] // Held, never looked at.
enum Holder {
    Copy(Arc<[u8]>),
    MemTable(Arc<MemTable>),
    Block(BlockPin),
    Large(LargeValue),
}

// SAFETY: the bytes are immutable and belong to the holder, all kinds of which may be shared and sent.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Holder>();
};

impl Value {
    pub(crate) fn copy(bytes: &[u8]) -> Value {
        let copy: Arc<[u8]> = bytes.into();
        Value { bytes: NonNull::from(&*copy), _holder: Holder::Copy(copy) }
    }

    /// `bytes` lie in the memory of `table`.
    pub(crate) fn in_memtable(bytes: &[u8], table: &Arc<MemTable>) -> Value {
        Value { bytes: NonNull::from(bytes), _holder: Holder::MemTable(table.clone()) }
    }

    pub(crate) fn in_block(value: PinnedValue) -> Value {
        match value.large() {
            Some(large) => Value::large(large),
            None => Value { bytes: NonNull::from(&*value), _holder: Holder::Block(value.into_pin()) },
        }
    }

    pub(crate) fn large(value: LargeValue) -> Value {
        Value { bytes: NonNull::from(&*value), _holder: Holder::Large(value) }
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie in what the holder holds: a shared slice, a block, the block of a large value, or a version in a
        // memtable. None of these moves or changes as long as it is held.
        unsafe { self.bytes.as_ref() }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        value.to_vec()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Kind, SeqNo};

    #[test]
    fn a_value_in_a_memtable_lies_where_it_was_written_and_holds_it() {
        let table = MemTable::new(4096);
        table.insert(b"\0\0\0\x10key", SeqNo(1), Kind::Put, b"value");
        let (_, _, bytes) = table.get(b"\0\0\0\x10key", SeqNo::MAX).unwrap();
        let value = Value::in_memtable(bytes, &table);
        assert_eq!(value.as_ptr(), bytes.as_ptr());
        let twin = value.clone();
        let weak = Arc::downgrade(&table);
        drop((table, value));
        assert!(weak.strong_count() == 1 && twin == b"value");
        drop(twin);
        assert_eq!(weak.strong_count(), 0);
    }

    #[test]
    fn values_compare_as_bytes() {
        let (a, b) = (Value::copy(b"a"), Value::copy(b"b\n"));
        assert!(a < b && a == *"a" && a == b"a".to_vec() && a != b);
        assert_eq!(format!("{b:?}"), "b\"b\\n\"");
        assert!(Value::copy(b"").is_empty());
    }
}
