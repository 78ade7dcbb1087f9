//! Files and memory of the store, as the server's performance schema has them.
//!
//! A file operation is told when it begins and when it has ended, on its thread; the server takes the time. Memory is told by its
//! parts, as `SHOW ENGINE STRATA STATUS` has them: once a second, and when somebody asks for the status, the server is told how much more or less
//! each part is than it has counted. So the server's sums are those of the status, and what it counts as allocations are changes
//! of a part from one second to the next. Each part has one place where it is counted, which is asked; nothing is counted twice, and
//! nothing at all where the server has no performance schema.
//!
//! Rejected: a call for each piece of memory that is taken or given back (blocks of the cache come and go with each read that misses, and
//! counters that all threads share would be the price of an instrument that is off by default).

use crate::outcome::guard_value;
use crate::types::{CCallbacks, FileBeginsFn, FileEndsFn, MemoryFn};
use parking_lot::Mutex;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use strata_engine::io::{Disk, DiskObserver, FileAct, FileOperation, ObservedDisk};
use strata_row::kv::{Engine, FileKind, Metric, Subsystem, engine_metrics};

/// The figure that is the sum of the others.
const SUM: &str = "memory_bytes";

fn is_part(metric: &Metric) -> bool {
    metric.subsystem == Subsystem::Memory && metric.name != SUM
}

/// The instrument of a figure: its name without what all of them have in common.
fn instrument(figure: &str) -> &str {
    let name = figure.strip_prefix("memory_").unwrap_or(figure);
    name.strip_suffix("_used").unwrap_or(name).trim_end_matches("_bytes")
}

/// The instruments of memory, in the order of the figures.
static PARTS: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let parts = engine_metrics().filter(|metric| is_part(metric));
    parts.map(|metric| CString::new(instrument(metric.name)).unwrap_or_default()).collect()
});

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_memory_parts(out: *mut *const c_char, cap: usize) -> usize {
    guard_value(0, || {
        if !out.is_null() {
            for (i, name) in PARTS.iter().take(cap).enumerate() {
                // SAFETY: the header asks for room for so many names.
                unsafe { out.add(i).write(name.as_ptr()) };
            }
        }
        PARTS.len()
    })
}

/// What the server has counted of each part of the store's memory.
pub struct Memory {
    call: MemoryFn,
    counted: Mutex<Vec<u64>>,
}

impl Memory {
    /// Nothing is counted yet; `None` if the server does not count.
    pub fn new(calls: &CCallbacks) -> Option<Memory> {
        Some(Memory { call: calls.memory?, counted: Mutex::new(vec![0; PARTS.len()]) })
    }

    /// Has the server count what there is.
    pub fn tell(&self, engine: &Engine) {
        // Held meanwhile, so that no older figures come after newer ones.
        let mut counted = self.counted.lock();
        let metrics = engine.metrics();
        let parts = metrics.values().filter(|(metric, _)| is_part(metric)).map(|(_, bytes)| bytes);
        self.update(&mut counted, parts);
    }

    /// The store is gone.
    pub fn end(&self) {
        self.update(&mut self.counted.lock(), std::iter::repeat(0));
    }

    fn update(&self, counted: &mut [u64], parts: impl Iterator<Item = u64>) {
        for (part, (counted, bytes)) in counted.iter_mut().zip(parts).enumerate() {
            if *counted != bytes {
                // SAFETY: a function of the server's, for any thread, one at a time.
                *counted = unsafe { (self.call)(part as u32, *counted, bytes) };
            }
        }
    }
}

/// The disk, as the server observes it; the same one if it does not.
pub fn observed(disk: Arc<dyn Disk>, calls: &CCallbacks) -> Arc<dyn Disk> {
    match (calls.file_begins, calls.file_ends) {
        (Some(begins), Some(ends)) => Arc::new(ObservedDisk::new(disk, Arc::new(Files { begins, ends }))),
        _ => disk,
    }
}

struct Files {
    begins: FileBeginsFn,
    ends: FileEndsFn,
}

/// The number of an operation in the header, and its bytes.
fn number(operation: FileOperation) -> (u32, usize) {
    match operation {
        FileOperation::Open => (0, 0),
        FileOperation::Close => (1, 0),
        FileOperation::Read(bytes) => (2, bytes),
        FileOperation::Write(bytes) => (3, bytes),
        FileOperation::Sync => (4, 0),
        FileOperation::Resize => (5, 0),
        FileOperation::Stat => (6, 0),
        FileOperation::Remove => (7, 0),
        FileOperation::Rename => (8, 0),
    }
}

fn kind(path: &Path) -> u32 {
    match FileKind::of(path) {
        FileKind::Sst => 0,
        FileKind::Log => 1,
        FileKind::Manifest => 2,
    }
}

/// Names are asked for only where a file is found by its name.
fn name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

impl DiskObserver for Files {
    fn begins(&self, act: &FileAct<'_>) {
        let (operation, bytes) = number(act.operation);
        let (file, kind) = (act.mark as *mut c_void, kind(act.path));
        // SAFETY: functions of the server's, on the thread of the operation; names end with 0, and the mark is what the server gave.
        unsafe {
            match act.operation {
                FileOperation::Open | FileOperation::Remove | FileOperation::Rename => {
                    (self.begins)(operation, kind, file, name(act.path).as_ptr(), bytes);
                }
                _ => (self.begins)(operation, kind, file, std::ptr::null(), bytes),
            }
        }
    }

    fn ends(&self, act: &FileAct<'_>, is_ok: bool) -> usize {
        let (_, bytes) = number(act.operation);
        let bytes = if is_ok { bytes } else { 0 };
        let file = match act.to {
            Some(to) => {
                let (from, to) = (name(act.path), name(to));
                // SAFETY: as above.
                unsafe { (self.ends)(c_int::from(is_ok), bytes, from.as_ptr(), to.as_ptr()) }
            }
            // SAFETY: as above.
            None => unsafe { (self.ends)(c_int::from(is_ok), bytes, std::ptr::null(), std::ptr::null()) },
        };
        file as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_memory_has_an_instrument_with_a_name_of_its_own() {
        let names: Vec<&str> = PARTS.iter().map(|name| name.to_str().unwrap()).collect();
        for name in ["block_cache", "memtable", "write_buffer", "lock", "large_block", "log_buffer"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        let figures = engine_metrics().filter(|metric| metric.subsystem == Subsystem::Memory).count();
        assert_eq!(names.len(), figures - 1, "all but the sum");
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }

    static TOLD: Mutex<Vec<(u32, u64, u64)>> = Mutex::new(Vec::new());

    /// As a server whose instrument of part 1 is off.
    unsafe extern "C" fn note(part: u32, counted: u64, bytes: u64) -> u64 {
        TOLD.lock().push((part, counted, bytes));
        if part == 1 { counted } else { bytes }
    }

    #[test]
    fn only_changes_are_told_and_what_was_not_counted_is_told_again() {
        let memory = Memory { call: note, counted: Mutex::new(vec![0; 3]) };
        let tell = |parts: [u64; 3]| {
            memory.update(&mut memory.counted.lock(), parts.into_iter());
            std::mem::take(&mut *TOLD.lock())
        };
        assert_eq!(tell([5, 7, 0]), [(0, 0, 5), (1, 0, 7)]);
        assert_eq!(tell([5, 7, 0]), [(1, 0, 7)]);
        assert_eq!(tell([4, 0, 9]), [(0, 5, 4), (2, 0, 9)]);
        memory.end();
        assert_eq!(std::mem::take(&mut *TOLD.lock()), [(0, 4, 0), (2, 9, 0)]);
    }
}
