//! Defaults that follow the machine, for options that are left at 0: what this process may have of it, not what it has. In a
//! container the limit of the control group counts, of the group itself and of each above it, whichever is least.

use std::path::{Path, PathBuf};

/// Memory that the process may have in bytes: the machine's, or a limit of its control groups; 1 GiB if the system does
/// not tell.
pub fn memory_bytes() -> u64 {
    let text = |path: &Path| std::fs::read_to_string(path).ok();
    let all = |path: &str| text(Path::new(path)).unwrap_or_default();
    memory_limit(&all("/proc/meminfo"), &all("/proc/self/cgroup"), &text)
}

/// The least of the machine's memory and the limits of the control groups that `/proc/self/cgroup` names, as `read` gives
/// their files. Both hierarchies: `memory.max` and `memory.high` of version 2, `memory.limit_in_bytes` of version 1.
fn memory_limit(meminfo: &str, groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> u64 {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    let machine = kib.map_or(1 << 30, |kib| kib << 10);
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (controllers, group) = (fields.nth(1).unwrap_or_default(), fields.next().unwrap_or("/"));
        let (root, files): (&str, &[&str]) = match controllers {
            "" => ("/sys/fs/cgroup", &["memory.max", "memory.high"]),
            some if some.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", &["memory.limit_in_bytes"]),
            _ => return Vec::new(),
        };
        let group = PathBuf::from(format!("{root}{group}"));
        let above = group.ancestors().take_while(|dir| dir.starts_with(root));
        above.flat_map(|dir| files.iter().filter_map(|file| read(&dir.join(file))?.trim().parse().ok())).collect()
    });
    limits.fold(machine, |least, limit: u64| least.min(limit.max(1)))
}

/// A quarter of the memory: the rest is for the server, for memtables and for peaks.
pub fn block_cache_bytes() -> u64 {
    (memory_bytes() / 4).max(32 << 20)
}

/// A sixteenth of the memory, 16 MiB to 1 GiB.
pub fn memtable_budget_bytes() -> u64 {
    (memory_bytes() / 16).clamp(16 << 20, 1 << 30)
}

/// Half of the processors that the process may use, 1 to 8.
pub fn background_threads() -> usize {
    (std::thread::available_parallelism().map_or(1, |n| n.get()) / 2).clamp(1, 8)
}

/// Descriptors of a server without connections: its own files and tables, the log, the manifest, files being written. One
/// that has just started has some fifty.
const SERVERS_OWN: usize = 80;
/// Fewest descriptors for table files. Reads are right with any number. This is what a merge of a full level 0 reads at once:
/// with less it would open a file for each block.
const TABLES_MIN: usize = 16;
const TABLES_MAX: usize = 16 << 10;

/// Descriptors for table files: a quarter of what the server has left itself (`open_files_limit`), or what its `connections`
/// leave of it if that is less, since a connection without a descriptor is refused and a table file that is closed is
/// opened again.
pub fn open_files(connections: usize) -> usize {
    open_files_of(&std::fs::read_to_string("/proc/self/limits").unwrap_or_default(), connections)
}

fn open_files_of(limits: &str, connections: usize) -> usize {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    // Where there is no limit the word is "unlimited".
    let most = soft.map_or(1024, |soft| soft.parse().unwrap_or(usize::MAX));
    (most / 4).min(most.saturating_sub(connections + SERVERS_OWN)).clamp(TABLES_MIN, TABLES_MAX)
}

#[cfg(test)]
mod tests {
    use super::{memory_limit, open_files_of};
    use std::path::Path;

    const MEMINFO: &str = "MemTotal:       16384000 kB\nMemFree:         1000 kB\n";

    /// The limit in MiB, with these files.
    fn limit(groups: &str, files: &[(&str, &str)]) -> u64 {
        let read = |path: &Path| files.iter().find(|f| Path::new(f.0) == path).map(|f| format!("{}\n", f.1));
        memory_limit(MEMINFO, groups, &read) >> 20
    }

    #[test]
    fn budgets_follow_the_least_limit_of_all_groups() {
        assert_eq!(limit("", &[]), 16_000);
        assert_eq!(limit("0::/a/b\n", &[("/sys/fs/cgroup/a/b/memory.max", "629145600")]), 600);
        let above = [("/sys/fs/cgroup/a/b/memory.max", "max"), ("/sys/fs/cgroup/a/memory.max", "1048576000")];
        assert_eq!(limit("0::/a/b\n", &above), 1000);
        let high = [("/sys/fs/cgroup/a/memory.max", "1048576000"), ("/sys/fs/cgroup/a/memory.high", "524288000")];
        assert_eq!(limit("0::/a\n", &high), 500);
        // In a container the group's own path may not be seen, but its root is.
        assert_eq!(limit("0::/../x\n", &[("/sys/fs/cgroup/memory.max", "629145600")]), 600);
    }

    #[test]
    fn the_first_version_of_control_groups_counts_too() {
        let groups = "9:cpu,cpuacct:/d\n5:memory:/d/e\n0::/\n";
        assert_eq!(limit(groups, &[("/sys/fs/cgroup/memory/d/memory.limit_in_bytes", "629145600")]), 600);
        let none = [("/sys/fs/cgroup/memory/d/e/memory.limit_in_bytes", "9223372036854771712")];
        assert_eq!(limit(groups, &none), 16_000);
    }

    #[test]
    fn table_files_have_a_quarter_of_the_descriptors() {
        let limits =
            |n: &str| format!("Limit  Soft Limit  Hard Limit  Units\nMax open files            {n}  524288  files\n");
        assert_eq!(open_files_of(&limits("1024"), 151), 256);
        assert_eq!(open_files_of(&limits("unlimited"), 100_000), 16 << 10);
        assert_eq!(open_files_of("", 151), 256);
    }

    #[test]
    fn connections_come_before_table_files() {
        let of = |n: usize, connections| open_files_of(&format!("Max open files  {n}  524288  files\n"), connections);
        assert_eq!((of(1024, 151), of(1024, 800), of(1024, 2000)), (256, 144, 16));
        assert_eq!((of(300, 151), of(256, 151), of(200, 151), of(64, 151)), (69, 25, 16, 16));
    }
}
