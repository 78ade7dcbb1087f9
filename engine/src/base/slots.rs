//! Memory of decoded blocks: pieces of a few fixed sizes that come and go by the thousand, made by one thread and freed
//! by another.
//!
//! A length is rounded up to a multiple of [`STEP`]; each such size has spans of [`SPAN`] bytes cut into slots. A request
//! takes a slot of the span with the lowest address that has one, so that spans at high addresses run empty; an empty
//! span goes back to the system. As nearly all blocks have about one size, what one gives up fits the next.
//!
//! Where sizes change, as when files of smaller blocks take the place of others, spans of the former size keep a few slots each
//! for long. [`sparse`] names those whose pieces would fit into the free slots of the others, for who can copy them.
//!
//! Slots lie a cache line further apart than their size: at multiples of a page, the headers of all blocks would compete
//! for a few sets of the processor's caches.
//!
//! Rejected: the allocator. Each of its heaps grows to the most it ever held at once, and the blocks of a cache wander
//! from heap to heap: the memory of a cache came to twice its budget.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::memory::Memory;

/// Difference of two slot sizes, in bytes.
const STEP: usize = 512;
/// Longer pieces are memory of their own.
const SLOT_MAX: usize = 16 << 10;
/// Address and size of a span are multiples of this. Small, as each slot size has a span that is partly empty.
const SPAN: usize = 256 << 10;
const LINE: usize = 64;

/// Distance of the slots of this size.
fn stride(size: usize) -> usize {
    size + LINE
}

/// The spans of one slot size.
struct Class {
    spans: HashMap<usize, Span>,
    /// Spans with a free slot.
    open: BTreeSet<usize>,
}

struct Span {
    memory: Memory,
    /// Free slots; the last is taken next.
    free: Vec<u16>,
}

struct Slots {
    classes: [Mutex<Option<Class>>; SLOT_MAX / STEP],
}

static SLOTS: Slots = Slots { classes: [const { Mutex::new(None) }; SLOT_MAX / STEP] };

impl Slots {
    /// A slot of `size` bytes, a multiple of [`STEP`].
    fn take(&self, size: usize) -> NonNull<u8> {
        let mut class = self.classes[size / STEP - 1].lock();
        let class = class.get_or_insert_with(|| Class { spans: HashMap::new(), open: BTreeSet::new() });
        let address = match class.open.first() {
            Some(&address) => address,
            None => {
                let memory = Memory::zeroed(SPAN, SPAN);
                let address = memory.start().as_ptr().expose_provenance();
                let free = (0..(SPAN / stride(size)) as u16).rev().collect();
                class.spans.insert(address, Span { memory, free });
                class.open.insert(address);
                address
            }
        };
        let span = class.spans.get_mut(&address).expect("an open span exists");
        let slot = span.free.pop().expect("an open span has a free slot");
        if span.free.is_empty() {
            class.open.remove(&address);
        }
        // SAFETY: the slot lies inside the span.
        unsafe { span.memory.start().add(usize::from(slot) * stride(size)) }
    }

    /// Bytes of free slots.
    fn unused_bytes(&self) -> usize {
        let unused_of = |n: usize, class: &Class| {
            let free: usize = class.open.iter().map(|at| class.spans[at].free.len()).sum();
            free * stride((n + 1) * STEP)
        };
        let sizes = self.classes.iter().enumerate();
        sizes.map(|(n, class)| class.lock().as_ref().map_or(0, |class| unused_of(n, class))).sum()
    }

    /// Of each size as many spans as its free slots would fill, those at the highest addresses: `take` fills the lowest.
    fn sparse(&self) -> Sparse {
        let mut sparse = HashSet::new();
        for (n, class) in self.classes.iter().enumerate() {
            let class = class.lock();
            let Some(class) = class.as_ref() else { continue };
            let free: usize = class.open.iter().map(|at| class.spans[at].free.len()).sum();
            let spans = free / (SPAN / stride((n + 1) * STEP));
            // One that is empty is kept by `give`, and others need not make way for it.
            let emptied = class.open.iter().rev().take(spans);
            sparse.extend(emptied.filter(|_| class.open.len() > 1));
        }
        Sparse(sparse)
    }

    /// Takes back a slot that `take` gave for this size.
    fn give(&self, start: NonNull<u8>, size: usize) {
        let mut guard = self.classes[size / STEP - 1].lock();
        let class = guard.as_mut().expect("a slot was taken");
        let at = start.as_ptr().addr();
        let address = at & !(SPAN - 1);
        let span = class.spans.get_mut(&address).expect("the span of a taken slot exists");
        span.free.push(((at - address) / stride(size)) as u16);
        class.open.insert(address);
        // One is kept, or a piece that comes and goes alone would map and unmap each time.
        let empty = span.free.len() == SPAN / stride(size) && class.open.len() > 1;
        let unused = if empty {
            class.open.remove(&address);
            class.spans.remove(&address)
        } else {
            None
        };
        drop(guard);
        drop(unused);
    }
}

/// Bytes of memory held for blocks that no block uses: what a span has left.
pub fn unused_bytes() -> usize {
    SLOTS.unused_bytes()
}

/// Spans that would run empty if what lies in them were copied: the copies fit into others.
pub struct Sparse(HashSet<usize>);

impl Sparse {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Those of this moment.
pub fn sparse() -> Sparse {
    SLOTS.sparse()
}

/// Pieces from this size on hold one large value each: they are counted together, and the block cache does not keep them.
pub const LARGE: usize = 1 << 20;

static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the pieces of [`LARGE`] and more bytes that are in use.
pub fn large_bytes() -> usize {
    LARGE_BYTES.load(Ordering::Relaxed)
}

/// The bytes of a block.
pub struct Buf {
    start: NonNull<u8>,
    len: usize,
    /// Where they are, if not in a slot.
    own: Option<Memory>,
}

// SAFETY: the buffer owns its slot or memory exclusively; there is no interior mutability.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

/// The slot size for a length.
fn slot_size(len: usize) -> usize {
    len.max(1).next_multiple_of(STEP)
}

impl Buf {
    /// `len` bytes of arbitrary content.
    pub fn new(len: usize) -> Buf {
        if len <= SLOT_MAX {
            return Buf { start: SLOTS.take(slot_size(len)), len, own: None };
        }
        let memory = Memory::zeroed(len, LINE);
        if len >= LARGE {
            LARGE_BYTES.fetch_add(memory.size(), Ordering::Relaxed);
        }
        Buf { start: memory.start(), len, own: Some(memory) }
    }

    /// Whether it lies in one of these spans.
    pub fn lies_in(&self, sparse: &Sparse) -> bool {
        self.own.is_none() && sparse.0.contains(&(self.start.as_ptr().addr() & !(SPAN - 1)))
    }

    /// Bytes of memory it occupies.
    pub fn charge(&self) -> usize {
        self.own.as_ref().map_or_else(|| stride(slot_size(self.len)), Memory::size)
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        match &self.own {
            None => SLOTS.give(self.start, slot_size(self.len)),
            Some(memory) if self.len >= LARGE => drop(LARGE_BYTES.fetch_sub(memory.size(), Ordering::Relaxed)),
            Some(_) => {}
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: slot and memory have at least `len` bytes, zeroed once and owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Buf {
        let mut buf = Buf::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Buf {
        Buf::from(bytes.as_slice())
    }
}

impl From<Box<[u8]>> for Buf {
    fn from(bytes: Box<[u8]>) -> Buf {
        Buf::from(&*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_never_share_bytes() {
        std::thread::scope(|scope| {
            for id in 0..4u8 {
                scope.spawn(move || {
                    let mut held: Vec<Buf> = Vec::new();
                    for i in 0..4000usize {
                        let mut buf = Buf::new([1, 2048, 2049, 9000, 16_384, 16_385, 70_000][i % 7]);
                        assert!(buf.charge() >= buf.len());
                        buf.fill(id);
                        held.push(buf);
                        if held.len() > 40 {
                            let old = held.swap_remove(i * 7 % 40);
                            assert!(old.iter().all(|&b| b == id));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn empty_spans_go_back() {
        let slots = Slots { classes: [const { Mutex::new(None) }; SLOT_MAX / STEP] };
        let spans = || slots.classes[SLOT_MAX / STEP - 1].lock().as_ref().map_or(0, |class| class.spans.len());
        let taken: Vec<_> = (0..5 * (SPAN / stride(SLOT_MAX))).map(|_| slots.take(SLOT_MAX)).collect();
        assert_eq!(spans(), 5);
        // What is freed is used again, before more is taken.
        slots.give(taken[40], SLOT_MAX);
        assert_eq!(slots.unused_bytes(), stride(SLOT_MAX));
        assert_eq!(slots.take(SLOT_MAX), taken[40]);
        assert_eq!(slots.unused_bytes(), 0);
        assert_eq!(spans(), 5);
        for slot in taken {
            slots.give(slot, SLOT_MAX);
        }
        assert_eq!(spans(), 1);
        assert_eq!(slots.unused_bytes(), SPAN / stride(SLOT_MAX) * stride(SLOT_MAX));
    }

    #[test]
    fn what_lies_in_sparse_spans_fits_into_the_others() {
        let slots = Slots { classes: [const { Mutex::new(None) }; SLOT_MAX / STEP] };
        let size = SLOT_MAX;
        let a_span = SPAN / stride(size);
        let span_of = |slot: &NonNull<u8>| slot.as_ptr().addr() & !(SPAN - 1);
        let taken: Vec<NonNull<u8>> = (0..8 * a_span).map(|_| slots.take(size)).collect();
        assert!(slots.sparse().0.is_empty(), "all are full");
        // Two in three go, all over: the rest would fill less than three of the eight spans.
        let (mut kept, gone): (Vec<_>, Vec<_>) = taken.into_iter().enumerate().partition(|(n, _)| n % 3 == 0);
        gone.into_iter().for_each(|(_, slot)| slots.give(slot, size));
        let before = slots.unused_bytes();
        let sparse = slots.sparse();
        assert_eq!(sparse.0.len(), 5);
        // Copied one after the other, each is outside of them.
        for (_, slot) in kept.iter_mut().filter(|(_, slot)| sparse.0.contains(&span_of(slot))) {
            let copy = slots.take(size);
            assert!(!sparse.0.contains(&span_of(&copy)));
            slots.give(std::mem::replace(slot, copy), size);
        }
        assert!(slots.unused_bytes() <= before / 4, "{} bytes of {before}", slots.unused_bytes());
        // What is left over fills no span.
        assert!(slots.unused_bytes() <= 2 * SPAN);
        kept.into_iter().for_each(|(_, slot)| slots.give(slot, size));
        assert!(slots.sparse().0.is_empty(), "one empty span is kept");
    }
}
