//! A node of the skip list: a user key with its versions.
//!
//! A node is one piece of the arena: header, tower of `height` forward pointers, key bytes, and usually the key's first
//! version right behind. Its header keeps the first 16 key bytes as two big-endian numbers, zero-padded ("head"): four
//! bytes of index id and twelve that distinguish, so most comparisons are two integer compares in the line that holds
//! the pointers anyway. Versions form a chain from newest to oldest.
//!
//! Invariants: a linked node has at least one version; in a chain sequence numbers do not increase, and of equal ones the first
//! is the latest written. All pointers are published with release and read with acquire.
//!
//! Rejected: keys compared only through pointers (a cache miss each).

use std::cmp::Ordering as Order;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::arena::ALIGN;
use crate::base::{Kind, SeqNo};

const HEAD_BYTES: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for the cache line at `address`; any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on memory and does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the node at `node`, or null: for its head, and for what most searches and walks want of it next, the lowest level and the key.
/// These lie in the same line or in the one behind it.
#[inline(always)]
pub(super) fn prefetch_node(node: *const Node) {
    prefetch(node.cast());
    prefetch(node.cast::<u8>().wrapping_add(LINE - ALIGN));
}

/// Asks for the version at `version` and for the value of most rows.
#[inline(always)]
pub(super) fn prefetch_version(version: *const Version) {
    for line in 0..4 {
        prefetch(version.cast::<u8>().wrapping_add(LINE * line));
    }
}

/// A version of a key. Its value bytes follow at [`Version::VALUE`].
#[repr(C)]
pub(super) struct Version {
    pub(super) next: AtomicPtr<Version>,
    /// Sequence number and, in the lowest byte, the kind.
    pub(super) tag: u64,
    pub(super) len: u32,
}

impl Version {
    pub(super) const VALUE: usize = std::mem::offset_of!(Version, len) + 4;

    pub(super) fn bytes(value_len: usize) -> usize {
        Self::VALUE + value_len
    }

    #[inline]
    pub fn seq(&self) -> SeqNo {
        SeqNo(self.tag >> 8)
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        if self.tag as u8 == Kind::Put as u8 { Kind::Put } else { Kind::Delete }
    }

    /// The value of the version at `this`.
    ///
    /// # Safety
    /// `this` was made by `write` and its arena outlives `'a`.
    #[inline]
    pub unsafe fn value<'a>(this: *const Version) -> &'a [u8] {
        // SAFETY: `write` put `len` bytes there; they never change afterwards.
        unsafe { std::slice::from_raw_parts(this.cast::<u8>().add(Self::VALUE), (*this).len as usize) }
    }

    /// Builds a version in `at`, which has room for `bytes(value.len())`.
    pub(super) unsafe fn write(at: *mut Version, seq: SeqNo, kind: Kind, value: &[u8]) {
        debug_assert!(seq <= SeqNo::MAX);
        let len = u32::try_from(value.len()).expect("values are limited to VALUE_BYTES_MAX");
        // SAFETY: the caller gives a fresh, large enough, aligned piece. Fields are written one by one because the
        // struct's tail padding already belongs to the value.
        unsafe {
            (&raw mut (*at).next).write(AtomicPtr::new(null_mut()));
            (&raw mut (*at).tag).write(seq.0 << 8 | kind as u64);
            (&raw mut (*at).len).write(len);
            at.cast::<u8>().add(Self::VALUE).copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
    }
}

/// A user key. The tower follows the struct, then the key bytes.
#[repr(C)]
pub(super) struct Node {
    pub(super) head: [u64; 2],
    pub(super) versions: AtomicPtr<Version>,
    pub(super) back: AtomicPtr<Node>,
    pub(super) key_len: u32,
    pub(super) height: u32,
}

impl Node {
    #[inline]
    pub(super) unsafe fn tower<'a>(this: *const Node, level: usize) -> &'a AtomicPtr<Node> {
        // SAFETY: the caller asks only for levels below the node's height; the tower lies right behind the struct.
        unsafe { &*this.add(1).cast::<AtomicPtr<Node>>().add(level) }
    }

    #[inline]
    pub(super) unsafe fn next(this: *const Node, level: usize) -> *mut Node {
        // SAFETY: as for `tower`.
        unsafe { Node::tower(this, level).load(Ordering::Acquire) }
    }

    /// The key of the node at `this`.
    ///
    /// # Safety
    /// `this` is a linked node and its arena outlives `'a`.
    #[inline]
    pub unsafe fn key<'a>(this: *const Node) -> &'a [u8] {
        // SAFETY: the key follows the tower and never changes.
        unsafe {
            let start = this.add(1).cast::<u64>().add((*this).height as usize).cast::<u8>();
            std::slice::from_raw_parts(start, (*this).key_len as usize)
        }
    }

    /// Is the node's key less than that of `probe`?
    #[inline]
    pub(super) unsafe fn is_before(this: *const Node, probe: &Probe<'_>) -> bool {
        // SAFETY: `this` is a linked node other than the list's head.
        unsafe { Node::compare(this, probe) == Order::Less }
    }

    #[inline]
    pub(super) unsafe fn compare(this: *const Node, probe: &Probe<'_>) -> Order {
        // SAFETY: as for `is_before`.
        let head = unsafe { (*this).head };
        match head[0].cmp(&probe.head[0]).then(head[1].cmp(&probe.head[1])) {
            Order::Equal => {
                // SAFETY: as for `is_before`.
                let key = unsafe { Node::key(this) };
                // With equal heads the shorter of two keys that end within them is a prefix padded by zeros.
                let rest = |key: &[u8]| key.len().min(HEAD_BYTES);
                key[rest(key)..].cmp(&probe.key[rest(probe.key)..]).then(key.len().cmp(&probe.key.len()))
            }
            order => order,
        }
    }

    /// The newest version of the node at `this`; never null for a linked node.
    ///
    /// # Safety
    /// `this` is a linked node of a living list.
    #[inline]
    pub unsafe fn newest(this: *const Node) -> *const Version {
        // SAFETY: given by the caller.
        unsafe { (*this).versions.load(Ordering::Acquire) }
    }

    /// The newest version with a sequence number of at most `read`; null if there is none.
    ///
    /// # Safety
    /// As for `newest`.
    #[inline]
    pub unsafe fn visible(this: *const Node, read: SeqNo) -> *const Version {
        // SAFETY: chain members live as long as the list.
        unsafe {
            let mut version = Node::newest(this);
            while !version.is_null() && (*version).seq() > read {
                version = (*version).next.load(Ordering::Acquire).cast_const();
            }
            version
        }
    }

    /// The next older version behind `version`; null at the end. Skips versions hidden by a later write under the same
    /// number.
    ///
    /// # Safety
    /// `version` belongs to a living list.
    #[inline]
    pub unsafe fn older(version: *const Version) -> *const Version {
        // SAFETY: chain members live as long as the list.
        unsafe {
            let seq = (*version).seq();
            let mut next = (*version).next.load(Ordering::Acquire).cast_const();
            while !next.is_null() && (*next).seq() == seq {
                next = (*next).next.load(Ordering::Acquire);
            }
            next
        }
    }

    /// The oldest version newer than `seq`; null if there is none.
    ///
    /// # Safety
    /// As for `newest`.
    pub unsafe fn newer(this: *const Node, seq: SeqNo) -> *const Version {
        // SAFETY: chain members live as long as the list.
        unsafe {
            let mut found = null();
            let mut version = Node::newest(this);
            while !version.is_null() && (*version).seq() > seq {
                found = version;
                version = Node::older(version);
            }
            found
        }
    }

    /// The oldest version.
    ///
    /// # Safety
    /// As for `newest`.
    pub unsafe fn oldest(this: *const Node) -> *const Version {
        // SAFETY: chain members live as long as the list.
        unsafe {
            let mut version = Node::newest(this);
            loop {
                let next = Node::older(version);
                if next.is_null() {
                    return version;
                }
                version = next;
            }
        }
    }

    pub(super) unsafe fn push(this: *const Node, version: *mut Version) {
        // SAFETY: `this` is linked; `version` is complete and not yet linked.
        unsafe {
            let seq = (*version).seq();
            let mut link = &(*this).versions;
            loop {
                let next = link.load(Ordering::Acquire);
                if !next.is_null() && (*next).seq() > seq {
                    link = &(*next).next;
                    continue;
                }
                (*version).next.store(next, Ordering::Relaxed);
                if link.compare_exchange(next, version, Ordering::Release, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
        }
    }
}

/// A key with its head computed once.
pub(super) struct Probe<'a> {
    pub(super) head: [u64; 2],
    pub(super) key: &'a [u8],
}

impl<'a> Probe<'a> {
    #[inline]
    pub fn new(key: &'a [u8]) -> Probe<'a> {
        let mut bytes = [0u8; HEAD_BYTES];
        match key.first_chunk::<HEAD_BYTES>() {
            Some(whole) => bytes = *whole,
            None => bytes[..key.len()].copy_from_slice(key),
        }
        let head = u128::from_be_bytes(bytes);
        Probe { head: [(head >> 64) as u64, head as u64], key }
    }
}
