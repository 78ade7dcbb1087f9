//! Memory that only grows, given back as a whole.
//!
//! Chunks are taken from the system on demand. An allocation is one atomic add in the current chunk; a mutex is taken
//! only to begin a new chunk and for large pieces, which get a chunk of their own so that they do not waste the rest of
//! the current one.
//!
//! Invariants: addresses stay valid until the arena drops; every address is a multiple of [`ALIGN`]; pieces never
//! overlap. Nothing in the arena is dropped, so only plain data may live here.
//!
//! Fresh memory is expensive: the system clears every page on first touch, and on some virtual machines fetches it from
//! the host. A [`ChunkPool`] hands the chunks of dropped arenas to new ones. Its chunks of 2 MiB and more are aligned to
//! huge pages and ask the system for them: a search touches a dozen unrelated places, and with small pages much of its
//! time goes into translating addresses. Without a pool to pay for it, the first touch of a huge page costs more than it
//! brings, so chunks that are not kept use small pages. (MariaDB switches huge pages off for its whole process when it has
//! started: there only the first chunks have them.)
//!
//! Rejected: one huge mapping reserved at the start. It would save the chunk switch, but large values make its size a
//! guess, and reserved address space shows up as the process' size in every monitoring tool.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::base::memory::Memory;

/// Alignment of every piece, in bytes.
pub(super) const ALIGN: usize = 8;
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// The header has a cache line of its own: writers hammer it while readers use the pieces behind it.
const HEADER: usize = 64;
const CHUNK_ALIGN: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// Alignment for a piece of memory of `size` bytes.
fn align_for(size: usize) -> usize {
    if size >= HUGE_PAGE { HUGE_PAGE } else { CHUNK_ALIGN }
}

/// Asks for huge pages in the whole huge pages within `memory .. memory + size`. Advice: a refusal changes nothing.
fn advise_huge(memory: *mut u8, size: usize) {
    let skip = memory.align_offset(HUGE_PAGE);
    let whole = size.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
    if whole > 0 {
        #[cfg(target_os = "linux")]
        // SAFETY: the range lies in memory owned by the caller, and this advice does not change its contents.
        let _ =
            unsafe { rustix::mm::madvise(memory.wrapping_add(skip).cast(), whole, rustix::mm::Advice::LinuxHugepage) };
    }
}

/// Takes `size` bytes from the system.
fn take(size: usize) -> Memory {
    Memory::zeroed(size, align_for(size))
}

/// Memory of memtables that are gone, for those to come. Share one pool among the memtables of a store.
pub struct ChunkPool {
    chunk_bytes: usize,
    keep_bytes: usize,
    free: Mutex<Vec<Memory>>,
}

impl ChunkPool {
    /// A pool of chunks of `chunk_bytes` (2 MiB or a multiple of it for huge pages) that keeps at most `keep_bytes` of
    /// unused memory.
    pub fn new(chunk_bytes: usize, keep_bytes: usize) -> Arc<ChunkPool> {
        let chunk_bytes = chunk_bytes.max(CHUNK_BYTES_MIN).next_multiple_of(CHUNK_ALIGN);
        Arc::new(ChunkPool { chunk_bytes, keep_bytes, free: Mutex::new(Vec::new()) })
    }

    /// The most unused memory that the pool keeps, in bytes.
    pub fn keep_bytes(&self) -> usize {
        self.keep_bytes
    }

    /// The same in chunks.
    fn keep(&self) -> usize {
        self.keep_bytes / self.chunk_bytes
    }

    /// Takes and touches memory until `bytes` are ready (at most what the pool keeps), so that no insertion pays for
    /// it. For a background thread: this may take milliseconds per chunk.
    pub fn prepare(&self, bytes: usize) {
        let want = (bytes / self.chunk_bytes).min(self.keep());
        while self.unused_bytes() < want * self.chunk_bytes {
            let memory = self.fresh();
            // SAFETY: the chunk has this size and belongs to nobody else yet.
            unsafe { memory.start().as_ptr().write_bytes(0, memory.size()) };
            self.give(memory);
        }
    }

    /// Bytes of memory that wait for use.
    pub fn unused_bytes(&self) -> usize {
        self.free.lock().len() * self.chunk_bytes
    }

    fn fresh(&self) -> Memory {
        let memory = take(self.chunk_bytes);
        if self.keep() > 0 {
            advise_huge(memory.start().as_ptr(), memory.size());
        }
        memory
    }

    fn get(&self) -> Memory {
        let kept = self.free.lock().pop();
        kept.unwrap_or_else(|| self.fresh())
    }

    /// Takes over memory that is not used any more.
    fn give(&self, memory: Memory) {
        if memory.size() == self.chunk_bytes {
            let mut free = self.free.lock();
            if free.len() < self.keep() {
                free.push(memory);
            }
        }
    }
}

/// Start of a chunk of small pieces.
#[repr(C)]
struct Chunk {
    /// Offset of the next free byte, header included; passes `size` once the chunk is exhausted.
    used: AtomicUsize,
    size: usize,
}

const _: () = assert!(size_of::<Chunk>() <= HEADER);

pub(super) struct Arena {
    current: AtomicPtr<Chunk>,
    pool: Arc<ChunkPool>,
    bytes: AtomicUsize,
    all: Mutex<Vec<Memory>>,
}

// SAFETY: chunks are owned by the arena and freed only in `drop`; all shared mutation is atomic or under the mutex.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new(pool: Arc<ChunkPool>) -> Arena {
        let arena = Arena {
            current: AtomicPtr::new(std::ptr::null_mut()),
            pool,
            bytes: AtomicUsize::new(0),
            all: Mutex::new(Vec::new()),
        };
        arena.grow(std::ptr::null_mut());
        arena
    }

    /// Bytes taken from the system.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// `size` uninitialised bytes, aligned to [`ALIGN`].
    #[inline]
    pub fn alloc(&self, size: usize) -> NonNull<u8> {
        let size = size.next_multiple_of(ALIGN);
        if size > self.pool.chunk_bytes / 4 {
            return self.system(size);
        }
        loop {
            let chunk = self.current.load(Ordering::Acquire);
            // SAFETY: `current` always points to a live chunk whose header was written before it was published.
            let (at, end) = unsafe { ((*chunk).used.fetch_add(size, Ordering::Relaxed), (*chunk).size) };
            if at + size <= end {
                // SAFETY: `at .. at + size` lies inside the chunk and no other caller got any of it.
                return unsafe { NonNull::new_unchecked(chunk.cast::<u8>().add(at)) };
            }
            self.grow(chunk);
        }
    }

    /// Replaces `full` by a fresh chunk, unless another thread already has.
    #[cold]
    fn grow(&self, full: *mut Chunk) {
        let mut all = self.all.lock();
        if self.current.load(Ordering::Acquire) != full {
            return;
        }
        let memory = self.pool.get();
        let chunk = memory.start().cast::<Chunk>().as_ptr();
        // SAFETY: fresh memory, aligned to CHUNK_ALIGN, larger than the header.
        unsafe { chunk.write(Chunk { used: AtomicUsize::new(HEADER), size: memory.size() }) };
        self.keep(&mut all, memory);
        self.current.store(chunk, Ordering::Release);
    }

    #[cold]
    fn system(&self, size: usize) -> NonNull<u8> {
        let memory = take(size);
        let start = memory.start();
        self.keep(&mut self.all.lock(), memory);
        start
    }

    fn keep(&self, all: &mut Vec<Memory>, memory: Memory) {
        self.bytes.fetch_add(memory.size(), Ordering::Relaxed);
        all.push(memory);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for memory in self.all.get_mut().drain(..) {
            // Nobody can hold a reference into a dropped arena.
            self.pool.give(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_disjoint_and_stable() {
        let arena = Arena::new(ChunkPool::new(4096, 0));
        let mut pieces = Vec::new();
        for i in 0..2000usize {
            let size = [1, 7, 8, 33, 900, 5000, 3][i % 7];
            let piece = arena.alloc(size);
            assert_eq!(piece.as_ptr() as usize % ALIGN, 0);
            // SAFETY: the piece has `size` bytes.
            unsafe { piece.as_ptr().write_bytes(i as u8, size) };
            pieces.push((piece, size, i as u8));
        }
        for (piece, size, fill) in pieces {
            // SAFETY: written above.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), size) };
            assert!(bytes.iter().all(|&b| b == fill));
        }
    }

    #[test]
    fn large_pieces_leave_the_current_chunk_alone() {
        let arena = Arena::new(ChunkPool::new(8192, 0));
        let before = arena.alloc(8).as_ptr() as usize;
        arena.alloc(100_000);
        assert_eq!(arena.alloc(8).as_ptr() as usize, before + 8);
        assert_eq!(arena.bytes(), 8192 + 100_000usize.next_multiple_of(4096));
    }

    #[test]
    fn threads_never_share_bytes() {
        let arena = Arena::new(ChunkPool::new(4096, 0));
        std::thread::scope(|scope| {
            for id in 0..4u8 {
                let arena = &arena;
                scope.spawn(move || {
                    let pieces: Vec<_> = (0..5000).map(|_| arena.alloc(24)).collect();
                    for piece in &pieces {
                        // SAFETY: 24 bytes were allocated for this thread.
                        unsafe { piece.as_ptr().write_bytes(id, 24) };
                    }
                    for piece in &pieces {
                        // SAFETY: written above.
                        let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), 24) };
                        assert!(bytes.iter().all(|&b| b == id));
                    }
                });
            }
        });
    }

    #[test]
    fn a_pool_hands_chunks_on_up_to_its_limit() {
        let pool = ChunkPool::new(4096, 3 * 4096);
        for _ in 0..2 {
            let arena = Arena::new(pool.clone());
            for _ in 0..40 {
                arena.alloc(512);
            }
            arena.alloc(50_000);
            assert!(arena.bytes() > 5 * 4096);
            assert_eq!(pool.unused_bytes(), 0);
            drop(arena);
            assert_eq!(pool.unused_bytes(), 3 * 4096);
        }
        let pool = ChunkPool::new(4096, 3 * 4096);
        pool.prepare(2 * 4096);
        assert_eq!(pool.unused_bytes(), 2 * 4096);
        pool.prepare(usize::MAX);
        assert_eq!(pool.unused_bytes(), 3 * 4096);
    }
}
