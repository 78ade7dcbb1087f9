//! The ordered part of the memtable: a skip list of user keys, each with its versions.
//!
//! Writers link a node by compare-and-swap from the bottom level up; nothing is ever unlinked, so a loser simply walks
//! forward from where it was. Readers need no protocol: all pointers are published with release and read with acquire.
//!
//! Every node also remembers a node before it (`back`), at first its predecessor when it was linked. Later insertions in
//! between only make that stale, never wrong: `before` walks forward from it and stores what it found.
//!
//! Invariants: keys strictly ascend on every level; a node ([`node`](super::node)) on level `l` is on all lower levels.
//!
//! Rejected: a doubly linked bottom level kept exact (needs two words swapped at once).

use std::cmp::Ordering as Order;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::arena::{ALIGN, Arena};
use super::node::{Node, Probe, Version, prefetch, prefetch_node, prefetch_version};
use crate::base::{Kind, SeqNo};

/// Levels of the list; with a branching of four this serves 16 million keys before searches lengthen.
const HEIGHT_MAX: usize = 12;

/// Where the previous insertion was, so that ascending insertions start there. Valid for one list only; a hint that
/// meets another list starts afresh.
pub(super) struct Path {
    /// Per level the last node known to be before the key; the list's head if there is none.
    before: [*mut Node; HEIGHT_MAX],
    list: u64,
}

impl Path {
    pub const fn new() -> Path {
        Path { before: [null_mut(); HEIGHT_MAX], list: 0 }
    }
}

// SAFETY: the pointers are used only together with the list they belong to, which is checked by number.
unsafe impl Send for Path {}

/// Nodes of a list that follow one another on one level.
pub(super) struct Sample {
    first: *const Node,
    level: usize,
    nodes: u64,
}

impl Sample {
    /// How many keys so many of its nodes stand for.
    fn stands_for(&self, nodes: u64) -> u64 {
        nodes << (2 * self.level)
    }

    /// About how many keys there are.
    pub fn keys(&self) -> u64 {
        self.stands_for(self.nodes)
    }

    /// All keys were counted.
    pub fn is_exact(&self) -> bool {
        self.level == 0
    }
}

pub(super) struct SkipList {
    /// Never zero, never reused: ties a `Path` to its list even if another list is later built at the same address.
    id: u64,
    first: NonNull<Node>,
    height: AtomicUsize,
    arena: Arena,
}

// SAFETY: nodes live in the arena owned by the list; shared mutation is atomic.
unsafe impl Send for SkipList {}
// SAFETY: as above.
unsafe impl Sync for SkipList {}

impl SkipList {
    pub fn new(id: u64, arena: Arena) -> SkipList {
        // SAFETY: the piece is as large as asked for.
        let first = unsafe { SkipList::build(&arena, &Probe::new(b""), HEIGHT_MAX, None) };
        SkipList { id, first, height: AtomicUsize::new(1), arena }
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// A node that is not linked yet, with its first version.
    unsafe fn build(
        arena: &Arena,
        probe: &Probe<'_>,
        height: usize,
        version: Option<(SeqNo, Kind, &[u8])>,
    ) -> NonNull<Node> {
        let key = probe.key;
        let key_at = size_of::<Node>() + height * size_of::<AtomicPtr<Node>>();
        let version_at = (key_at + key.len()).next_multiple_of(ALIGN);
        let size = version_at + version.map_or(0, |(_, _, value)| Version::bytes(value.len()));
        let memory = arena.alloc(size);
        let node = memory.cast::<Node>();
        // SAFETY: all offsets lie inside the fresh piece and are aligned: struct and tower sizes are multiples of 8.
        unsafe {
            let mut versions = null_mut();
            if let Some((seq, kind, value)) = version {
                versions = memory.as_ptr().add(version_at).cast::<Version>();
                Version::write(versions, seq, kind, value);
            }
            node.write(Node {
                head: probe.head,
                versions: AtomicPtr::new(versions),
                back: AtomicPtr::new(null_mut()),
                key_len: u32::try_from(key.len()).expect("keys are limited to KEY_BYTES_MAX"),
                height: height as u32,
            });
            let tower = memory.as_ptr().add(size_of::<Node>()).cast::<AtomicPtr<Node>>();
            for level in 0..height {
                tower.add(level).write(AtomicPtr::new(null_mut()));
            }
            memory.as_ptr().add(key_at).copy_from_nonoverlapping(key.as_ptr(), key.len());
        }
        node
    }

    fn height_for(hash: u64) -> usize {
        // Two bits per level; the highest bits also choose tags, the lowest lines, of the hash index: take the middle.
        let zeros = ((hash >> 20) | 1 << (2 * (HEIGHT_MAX - 1))).trailing_zeros();
        1 + zeros as usize / 2
    }

    /// Adds a version under an existing node.
    pub fn push(&self, node: *const Node, seq: SeqNo, kind: Kind, value: &[u8]) {
        let version = self.arena.alloc(Version::bytes(value.len())).cast::<Version>().as_ptr();
        // SAFETY: a fresh piece of the right size; `node` is linked in this list.
        unsafe {
            Version::write(version, seq, kind, value);
            Node::push(node, version);
        }
    }

    /// Adds a version, and the node if the key is new. Returns the node and whether this call linked it.
    pub fn insert(
        &self,
        path: &mut Path,
        hash: u64,
        key: &Probe<'_>,
        seq: SeqNo,
        kind: Kind,
        value: &[u8],
    ) -> (*const Node, bool) {
        // SAFETY: all pointers in the list and in `path` (which `locate` ties to this list) are nodes of this list;
        // a node found on level `l` has a tower of more than `l`.
        unsafe {
            let existing = self.locate(path, key);
            if !existing.is_null() {
                self.push(existing, seq, kind, value);
                return (existing, false);
            }
            let height = SkipList::height_for(hash);
            if height > self.height.load(Ordering::Relaxed) {
                self.height.fetch_max(height, Ordering::Relaxed);
            }
            let node = SkipList::build(&self.arena, key, height, Some((seq, kind, value))).as_ptr();
            for level in 0..height {
                loop {
                    let (before, next) = self.advance(path.before[level], level, key);
                    path.before[level] = before;
                    if level == 0 && !next.is_null() && Node::compare(next, key) == Order::Equal {
                        // Another thread linked the key first: keep its node, and move our version over.
                        let version = (*node).versions.load(Ordering::Relaxed);
                        Node::push(next, version);
                        return (next, false);
                    }
                    Node::tower(node, level).store(next, Ordering::Relaxed);
                    if level == 0 {
                        (*node).back.store(before, Ordering::Relaxed);
                    }
                    if Node::tower(before, level)
                        .compare_exchange(next, node, Ordering::Release, Ordering::Relaxed)
                        .is_ok()
                    {
                        if level == 0 && !next.is_null() {
                            // Release: a reader that follows it must see the node complete.
                            (*next).back.store(node, Ordering::Release);
                        }
                        break;
                    }
                }
                path.before[level] = node;
            }
            (node, true)
        }
    }

    /// From `from` (before the key) along `level` to the last node before the key, and its successor. Starts over at
    /// the head if a reused path put `from` behind the key.
    #[inline]
    unsafe fn advance(&self, from: *mut Node, level: usize, key: &Probe<'_>) -> (*mut Node, *mut Node) {
        // SAFETY: `from` and all that follows on `level` are nodes with that level.
        unsafe {
            let mut before = from;
            if before != self.first.as_ptr() && !Node::is_before(before, key) {
                before = self.first.as_ptr();
            }
            loop {
                let next = Node::next(before, level);
                if level > 0 {
                    // As in `descend`, for those who go on there.
                    prefetch_node(Node::next(before, level - 1));
                }
                if next.is_null() || !Node::is_before(next, key) {
                    return (before, next);
                }
                before = next;
            }
        }
    }

    /// True if `path` shows at once that the key is not in the list; false if that takes a search.
    #[inline]
    pub fn is_new_at(&self, path: &Path, key: &Probe<'_>) -> bool {
        let before = path.before[0];
        if path.list != self.id || before == self.first.as_ptr() {
            return false;
        }
        // SAFETY: the path belongs to this list, so `before` is one of its nodes.
        unsafe {
            Node::is_before(before, key) && {
                let next = Node::next(before, 0);
                next.is_null() || Node::compare(next, key) == Order::Greater
            }
        }
    }

    /// Fills `path` for `key`; returns the node if the key exists, else null.
    unsafe fn locate(&self, path: &mut Path, key: &Probe<'_>) -> *mut Node {
        let first = self.first.as_ptr();
        // SAFETY: as for `advance`.
        unsafe {
            let mut level;
            let mut before;
            let mut reached = null_mut();
            'start: {
                if path.list == self.id {
                    // The lowest level on which the key lies between the remembered node and its successor.
                    level = 0;
                    let top = self.height.load(Ordering::Relaxed);
                    while level < top {
                        before = path.before[level];
                        if before == first || Node::is_before(before, key) {
                            let next = Node::next(before, level);
                            if next.is_null() || !Node::is_before(next, key) {
                                if level == 0 {
                                    return self.equal(next, key);
                                }
                                reached = next;
                                level -= 1;
                                break 'start;
                            }
                        }
                        level += 1;
                    }
                }
                path.list = self.id;
                path.before = [first; HEIGHT_MAX];
                before = first;
                level = self.height.load(Ordering::Relaxed) - 1;
            }
            let (_, next) = SkipList::descend(before, level, reached, key, |level, before| path.before[level] = before);
            self.equal(next, key)
        }
    }

    /// From `before` (before the key) on `level` down to the last node before the key, and its successor. On the way `passed` is told
    /// the last node before the key on each level. `reached` is known not to be before the key.
    #[inline(always)]
    unsafe fn descend(
        mut before: *mut Node,
        mut level: usize,
        mut reached: *mut Node,
        key: &Probe<'_>,
        mut passed: impl FnMut(usize, *mut Node),
    ) -> (*mut Node, *mut Node) {
        // SAFETY: as for `advance`.
        unsafe {
            loop {
                let next = Node::next(before, level);
                if level > 0 {
                    // The next comparison is very likely with this one or its successor: overlap the two misses.
                    prefetch_node(Node::next(before, level - 1));
                }
                if next != reached && !next.is_null() && Node::is_before(next, key) {
                    before = next;
                    continue;
                }
                passed(level, before);
                if level == 0 {
                    return (before, next);
                }
                reached = next;
                level -= 1;
            }
        }
    }

    #[inline]
    unsafe fn equal(&self, node: *mut Node, key: &Probe<'_>) -> *mut Node {
        // SAFETY: `node` is null or a linked node.
        if !node.is_null() && unsafe { Node::compare(node, key) } == Order::Equal { node } else { null_mut() }
    }

    /// Is the key of `node` that of `probe`?
    ///
    /// # Safety
    /// `node` is a linked node of a living list.
    #[inline]
    pub unsafe fn is_equal(node: *const Node, probe: &Probe<'_>) -> bool {
        // SAFETY: given by the caller.
        unsafe { Node::compare(node, probe) == Order::Equal }
    }

    /// The last node before the key (the list's head if none) and the first node at or behind it (null if none).
    pub fn search(&self, key: &Probe<'_>) -> (*const Node, *const Node) {
        let level = self.height.load(Ordering::Relaxed) - 1;
        // SAFETY: the head is before every key and has all levels.
        let (before, next) = unsafe { SkipList::descend(self.first.as_ptr(), level, null_mut(), key, |_, _| ()) };
        (before, next)
    }

    /// A sample of the keys in `[from, to)`: the nodes between them on the highest level that has enough of them. `enough` hears how many
    /// a level has, and how many keys each of them stands for.
    #[inline]
    pub fn sample(&self, from: &Probe<'_>, to: &Probe<'_>, enough: impl Fn(u64, u64) -> bool) -> Sample {
        let mut before = self.first.as_ptr();
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        loop {
            // SAFETY: as for `advance`; `before` has this level, since it was found on it or above.
            let (first, nodes) = unsafe {
                let (at, first) = self.advance(before, level, from);
                before = at;
                let mut next = first;
                let mut nodes = 0;
                while !next.is_null() && Node::is_before(next, to) {
                    nodes += 1;
                    next = Node::next(next, level);
                }
                (first, nodes)
            };
            let sample = Sample { first, level, nodes };
            if level == 0 || enough(nodes, sample.stands_for(1)) {
                return sample;
            }
            level -= 1;
        }
    }

    /// About how many of the keys that a sample of this list stands for are deleted, by their newest versions.
    pub fn deleted(&self, sample: &Sample) -> u64 {
        let (mut node, mut deleted) = (sample.first, 0);
        for _ in 0..sample.nodes {
            // SAFETY: `sample` was taken of this list: so many nodes at least follow on its level, each with a version.
            unsafe {
                deleted += u64::from((*Node::newest(node)).kind() == Kind::Delete);
                node = Node::next(node, sample.level);
            }
        }
        sample.stands_for(deleted)
    }

    /// The first node; null if the list is empty.
    pub fn first(&self) -> *const Node {
        // SAFETY: the head has all levels.
        unsafe { Node::next(self.first.as_ptr(), 0) }
    }

    /// The last node; null if the list is empty.
    pub fn last(&self) -> *const Node {
        let mut node = self.first.as_ptr();
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        // SAFETY: as for `advance`.
        unsafe {
            loop {
                let next = Node::next(node, level);
                if !next.is_null() {
                    node = next;
                } else if level > 0 {
                    level -= 1;
                } else {
                    return self.unless_head(node);
                }
            }
        }
    }

    /// The node behind `node`; null at the end.
    ///
    /// # Safety
    /// `node` is a linked node of this list.
    #[inline]
    pub unsafe fn after(node: *const Node) -> *const Node {
        // SAFETY: every node has level 0, and a node that another one leads to on level 1 has that, too.
        unsafe {
            let next = Node::next(node, 0);
            if (*node).height > 1 {
                // One node of four has level 1, where it leads to one some four nodes ahead. The last such node has asked for that one: it
                // is time for those behind it, so that the waits of two stretches of the list overlap.
                let ahead = Node::next(node, 1);
                if !ahead.is_null() {
                    prefetch_node(Node::next(ahead, 0));
                    prefetch_node(Node::next(ahead, 1));
                }
            }
            // The node behind the next was asked for a step ago: it is time for its version, and for the node behind it.
            let second = if next.is_null() { null() } else { Node::next(next, 0).cast_const() };
            if !second.is_null() {
                prefetch_version(Node::newest(second));
                prefetch_node(Node::next(second, 0));
            }
            next
        }
    }

    /// The node before `node`; null at the start.
    ///
    /// # Safety
    /// `node` is a linked node of this list.
    pub unsafe fn before(&self, node: *const Node) -> *const Node {
        // SAFETY: `back` is a node before this one, and from there level 0 leads to it.
        unsafe {
            let hint = (*node).back.load(Ordering::Acquire);
            prefetch((*hint).back.load(Ordering::Relaxed).cast());
            let mut before = hint;
            loop {
                let next = Node::next(before, 0);
                if std::ptr::eq(next, node) {
                    break;
                }
                before = next;
            }
            if before != hint {
                (*node).back.store(before, Ordering::Release);
            }
            self.unless_head(before)
        }
    }

    /// `node`, or null if it is the list's head.
    pub fn unless_head(&self, node: *const Node) -> *const Node {
        if std::ptr::eq(node, self.first.as_ptr()) { null() } else { node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_order_like_the_keys() {
        let keys: [&[u8]; 10] = [
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"a\0b",
            b"aaaaaaaaaaaaaaaa",
            b"aaaaaaaaaaaaaaaa\0",
            b"aaaaaaaaaaaaaaaab",
            b"b",
        ];
        let arena = Arena::new(crate::mem::ChunkPool::new(4096, 0));
        for (i, a) in keys.iter().enumerate() {
            // SAFETY: the node lives as long as the arena.
            let node = unsafe { SkipList::build(&arena, &Probe::new(a), 1, None) };
            for (j, b) in keys.iter().enumerate() {
                // SAFETY: as above.
                assert_eq!(unsafe { Node::compare(node.as_ptr(), &Probe::new(b)) }, i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_quarter_of_the_nodes_reaches_each_further_level() {
        let mut counts = [0u32; HEIGHT_MAX + 1];
        for i in 0u64..65_536 {
            counts[SkipList::height_for(crate::mem::hash::hash_bytes(&i.to_be_bytes()))] += 1;
        }
        assert!((48_000..50_500).contains(&counts[1]), "{counts:?}");
        assert!((11_500..13_100).contains(&counts[2]), "{counts:?}");
        assert!((2_700..3_500).contains(&counts[3]), "{counts:?}");
        assert_eq!(counts[0], 0);
    }
}
