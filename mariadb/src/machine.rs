//! Defaults that follow the machine, for options that are left at 0.

/// Memory of the machine in bytes; 1 GiB if the system does not tell.
pub fn memory_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(1 << 30, |kib| kib << 10)
}

/// A quarter of the memory: the rest is for the server, for memtables and for peaks.
pub fn block_cache_bytes() -> u64 {
    (memory_bytes() / 4).max(32 << 20)
}

/// A sixteenth of the memory, 64 MiB to 1 GiB.
pub fn memtable_budget_bytes() -> u64 {
    (memory_bytes() / 16).clamp(64 << 20, 1 << 30)
}

/// Half of the processors, 1 to 8.
pub fn background_threads() -> usize {
    (std::thread::available_parallelism().map_or(1, |n| n.get()) / 2).clamp(1, 8)
}
