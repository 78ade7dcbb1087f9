//! Memory for large things with a life of their own: memtable chunks, hash indexes, I/O buffers.
//!
//! From [`MAPPED_MIN`] bytes on a piece is a mapping: whole pages that come from the system zeroed, count as resident
//! only once they are touched, and go back to it when the piece drops. Smaller pieces come from the allocator.
//!
//! Rejected: the allocator for all. glibc raises the size from which it maps to that of the largest mapping ever freed,
//! up to 32 MiB, and keeps twice as much free memory for itself. So after the first few buffers everything large lies in
//! its heaps, one for each few threads, and what was held once is resident for good: the store's budgets would bound
//! what it uses, not what the process has. Trimming the allocator or setting its thresholds would change the process of
//! somebody else.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Smallest piece that is a mapping of its own, in bytes.
pub const MAPPED_MIN: usize = 16 << 10;
const PAGE: usize = 4 << 10;

/// A zeroed piece of memory.
pub struct Memory {
    data: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the piece owns its memory exclusively; there is no interior mutability.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least `len` bytes at an address that is a multiple of `align`, a power of two.
    pub fn zeroed(len: usize, align: usize) -> Memory {
        let len = if len >= MAPPED_MIN { len.next_multiple_of(PAGE) } else { len.max(1) };
        let layout = Layout::from_size_align(len, align).expect("size of a buffer");
        let data = if len >= MAPPED_MIN {
            map(layout)
        } else {
            // SAFETY: the size is not zero.
            NonNull::new(unsafe { alloc_zeroed(layout) })
        };
        let Some(data) = data else { handle_alloc_error(layout) };
        Memory { data, layout }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.data
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.layout.size()
    }
}

/// A mapping. `None` if the system has no memory.
fn map(layout: Layout) -> Option<NonNull<u8>> {
    let (len, align) = (layout.size(), layout.align());
    let fresh = |bytes: usize| {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }.ok().map(|start| start.cast::<u8>())
    };
    // Systems place a mapping next to the one before, so equal ones stay aligned once the first is, and become one
    // area of the process, whose number is limited.
    let first = fresh(len)?;
    if first.align_offset(align.max(PAGE)) == 0 {
        return NonNull::new(first);
    }
    unmap(first, len);
    // Cut out of a larger one.
    let all = fresh(len + align)?;
    let skip = all.align_offset(align);
    let start = all.wrapping_add(skip);
    for (from, bytes) in [(all, skip), (start.wrapping_add(len), align - skip)] {
        if bytes > 0 {
            unmap(from, bytes);
        }
    }
    NonNull::new(start)
}

/// Gives pages back that nobody uses any more.
fn unmap(from: *mut u8, bytes: usize) {
    // SAFETY: the callers own the pages and give them up.
    let done = unsafe { munmap(from.cast(), bytes) };
    debug_assert!(done.is_ok(), "unmapping {bytes} bytes: {done:?}");
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.layout.size() >= MAPPED_MIN {
            unmap(self.data.as_ptr(), self.layout.size());
        } else {
            // SAFETY: allocated in `zeroed` with this very layout.
            unsafe { dealloc(self.data.as_ptr(), self.layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_zeroed_aligned_and_whole() {
        for len in [0, 1, 100, MAPPED_MIN - 1, MAPPED_MIN, MAPPED_MIN + 1, 3 << 20] {
            for align in [8, 64, PAGE, 2 << 20] {
                let pieces: Vec<Memory> = (0..3).map(|_| Memory::zeroed(len, align)).collect();
                for piece in &pieces {
                    assert!(piece.size() >= len.max(1));
                    assert_eq!(piece.start().as_ptr() as usize % align, 0);
                    // SAFETY: the piece has this size and is initialised.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(piece.start().as_ptr(), piece.size()) };
                    assert!(bytes.iter().all(|&b| b == 0), "pieces overlap or are not cleared");
                    bytes.fill(0xff);
                }
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_dropped_piece_leaves_the_process() {
        // Of a size that nothing else in this process has.
        let size = (33 << 20) + 3 * PAGE;
        let piece = Memory::zeroed(size, PAGE);
        let start = piece.start().as_ptr() as usize;
        // SAFETY: inside the piece.
        unsafe { piece.start().as_ptr().write_bytes(1, size) };
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let mut ends = line.split([' ', '-']).map(|end| usize::from_str_radix(end, 16).unwrap_or(0));
                let (from, to) = (ends.next().unwrap(), ends.next().unwrap());
                from <= start && start + size <= to
            })
        };
        assert!(is_mapped());
        drop(piece);
        assert!(!is_mapped());
    }
}
