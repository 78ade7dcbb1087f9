//! Defaults that follow the machine, for options that are left at 0: what this process may have of it, not what it has. In a
//! container the limit of the control group counts, of the group itself and of each above it, whichever is least. Where the groups are
//! is read from the mount table: a container may see its own group as the root, and any path may be the place.
//!
//! Processors are counted by the standard library, which knows affinity and the quota of both versions of control groups.

use std::fmt;
use std::path::{Path, PathBuf};

/// Memory that the process may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    /// How much, in bytes.
    pub bytes: u64,
    /// The file of a control group that says so; none: the machine has no more.
    pub limit: Option<PathBuf>,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB ", self.bytes >> 20)?;
        match &self.limit {
            Some(file) => write!(f, "that {} allows", file.display()),
            None => f.write_str("that the machine has"),
        }
    }
}

/// What the system says of itself.
struct Texts<'a> {
    /// `/proc/meminfo`
    meminfo: &'a str,
    /// `/proc/self/cgroup`
    groups: &'a str,
    /// `/proc/self/mountinfo`
    mounts: &'a str,
    /// The text of a file; none: it is not there.
    read: &'a dyn Fn(&Path) -> Option<String>,
}

/// Memory that the process may have: the machine's, or a limit of its control groups; 1 GiB if the system does not tell.
pub fn memory() -> Memory {
    let text = |path: &Path| std::fs::read_to_string(path).ok();
    let all = |path: &str| text(Path::new(path)).unwrap_or_default();
    let (meminfo, groups, mounts) = (all("/proc/meminfo"), all("/proc/self/cgroup"), all("/proc/self/mountinfo"));
    memory_of(&Texts { meminfo: &meminfo, groups: &groups, mounts: &mounts, read: &text })
}

/// The least of the machine's memory and the limits of the process's control groups: `memory.max` and `memory.high` of version 2,
/// `memory.limit_in_bytes` of version 1.
fn memory_of(texts: &Texts<'_>) -> Memory {
    let line = texts.meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    let machine = Memory { bytes: kib.map_or(1 << 30, |kib| kib << 10), limit: None };
    let limits = texts.groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (controllers, group) = (fields.nth(1).unwrap_or_default(), fields.next().unwrap_or("/"));
        let (kind, files): (&str, &[&str]) = match controllers {
            "" => ("cgroup2", &["memory.max", "memory.high"]),
            some if some.split(',').any(|c| c == "memory") => ("cgroup", &["memory.limit_in_bytes"]),
            _ => return Vec::new(),
        };
        let Some((root, point)) = mounted(texts.mounts, kind) else { return Vec::new() };
        // A group outside of what is mounted is not seen, but those above it are.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let group = Path::new(point).join(below);
        let all = group.ancestors().take_while(|dir| dir.starts_with(point));
        let files = all.flat_map(|dir| files.iter().map(|file| dir.join(file)).collect::<Vec<_>>());
        let limit = |file: PathBuf| Some(((texts.read)(&file)?.trim().parse::<u64>().ok()?, file));
        files.filter_map(limit).collect()
    });
    limits.fold(machine, |least, (bytes, file)| match bytes.max(1) {
        bytes if bytes < least.bytes => Memory { bytes, limit: Some(file) },
        _ => least,
    })
}

/// Where control groups with memory are mounted: the group that is the root there, and the directory. `kind` is a type of file system.
fn mounted<'a>(mounts: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        // Number, parent, device, root, directory, options...; behind the dash the type, the source, the options of the type.
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        if system.next()? != kind || kind == "cgroup" && !system.nth(1)?.split(',').any(|option| option == "memory") {
            return None;
        }
        let mut mount = mount.split(' ').skip(3);
        Some((mount.next()?, mount.next()?))
    })
}

/// A quarter of the memory: the rest is for the server, for memtables and for peaks.
pub fn block_cache_bytes() -> u64 {
    (memory().bytes / 4).max(32 << 20)
}

/// A sixteenth of the memory, 16 MiB to 1 GiB.
pub fn memtable_budget_bytes() -> u64 {
    (memory().bytes / 16).clamp(16 << 20, 1 << 30)
}

/// Processors that the process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Half of the processors that the process may use, 1 to 8.
pub fn background_threads() -> usize {
    (processors() / 2).clamp(1, 8)
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
    use super::{Memory, Texts, memory_of, mounted, open_files_of};
    use std::path::Path;

    const MEMINFO: &str = "MemTotal:       16384000 kB\nMemFree:         1000 kB\n";
    /// Version 2 alone, as systemd mounts it.
    const UNIFIED: &str = "\
        30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
    /// Both versions, the second without controllers.
    const HYBRID: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:10 - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn memory(mounts: &str, groups: &str, files: &[(&str, &str)]) -> Memory {
        let read = |path: &Path| files.iter().find(|f| Path::new(f.0) == path).map(|f| format!("{}\n", f.1));
        memory_of(&Texts { meminfo: MEMINFO, groups, mounts, read: &read })
    }

    /// The limit in MiB, with these files.
    fn limit(mounts: &str, groups: &str, files: &[(&str, &str)]) -> u64 {
        memory(mounts, groups, files).bytes >> 20
    }

    #[test]
    fn budgets_follow_the_least_limit_of_all_groups() {
        assert_eq!(limit(UNIFIED, "", &[]), 16_000);
        assert_eq!(limit(UNIFIED, "0::/a/b\n", &[("/sys/fs/cgroup/a/b/memory.max", "629145600")]), 600);
        let above = [("/sys/fs/cgroup/a/b/memory.max", "max"), ("/sys/fs/cgroup/a/memory.max", "1048576000")];
        assert_eq!(limit(UNIFIED, "0::/a/b\n", &above), 1000);
        let high = [("/sys/fs/cgroup/a/memory.max", "1048576000"), ("/sys/fs/cgroup/a/memory.high", "524288000")];
        assert_eq!(limit(UNIFIED, "0::/a\n", &high), 500);
        // In a container the group's own path may not be seen, but its root is.
        assert_eq!(limit(UNIFIED, "0::/../x\n", &[("/sys/fs/cgroup/memory.max", "629145600")]), 600);
        // More than the machine has is no limit.
        assert_eq!(limit(UNIFIED, "0::/a\n", &[("/sys/fs/cgroup/a/memory.max", "99999999999999")]), 16_000);
        // What cannot be understood is none, either.
        for text in ["", "-5", "lots"] {
            assert_eq!(limit(UNIFIED, "0::/a\n", &[("/sys/fs/cgroup/a/memory.max", text)]), 16_000, "{text}");
        }
    }

    #[test]
    fn the_first_version_of_control_groups_counts_too() {
        let groups = "9:cpu,cpuacct:/d\n5:memory:/d/e\n0::/\n";
        assert_eq!(limit(HYBRID, groups, &[("/sys/fs/cgroup/memory/d/memory.limit_in_bytes", "629145600")]), 600);
        let none = [("/sys/fs/cgroup/memory/d/e/memory.limit_in_bytes", "9223372036854771712")];
        assert_eq!(limit(HYBRID, groups, &none), 16_000);
    }

    #[test]
    fn groups_are_where_they_are_mounted() {
        // A container of the first version that sees its own group as the root of the hierarchy.
        let own = HYBRID.replace("0:32 / /sys", "0:32 /docker/4711 /sys");
        let file = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "629145600")];
        assert_eq!(limit(&own, "5:memory:/docker/4711\n", &file), 600);
        let deeper = [("/sys/fs/cgroup/memory/in/memory.limit_in_bytes", "629145600")];
        assert_eq!(limit(&own, "5:memory:/docker/4711/in\n", &deeper), 600);
        // Elsewhere than usual.
        let elsewhere = UNIFIED.replace("/sys/fs/cgroup", "/run/groups");
        assert_eq!(limit(&elsewhere, "0::/a\n", &[("/run/groups/a/memory.max", "629145600")]), 600);
        assert_eq!(limit("", "0::/a\n", &[("/sys/fs/cgroup/a/memory.max", "629145600")]), 16_000);
        assert_eq!(mounted(HYBRID, "cgroup2"), Some(("/", "/sys/fs/cgroup/unified")));
        assert_eq!(mounted("nothing - of the kind", "cgroup"), None);
    }

    #[test]
    fn the_limit_is_told_with_the_file_that_says_so() {
        let told = memory(UNIFIED, "0::/a\n", &[("/sys/fs/cgroup/a/memory.max", "629145600")]).to_string();
        assert_eq!(told, "600 MiB that /sys/fs/cgroup/a/memory.max allows");
        assert_eq!(memory(UNIFIED, "0::/a\n", &[]).to_string(), "16000 MiB that the machine has");
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
