//! Memory cgroups of version 1 and 2: their hierarchy, the memory that their limits leave this process, and cgroups that we create.

mod group;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use group::{Group, enter};

/// Names of the control files of a version.
struct ControlFiles {
    limit: &'static str,
    usage: &'static str,
    peak: &'static str,
    /// Counts the processes that the kernel killed.
    events: &'static str,
    /// Keys in `memory.stat` of the reclaimable page cache, cgroups below included.
    cache: [&'static str; 2],
    /// Keys in `memory.stat` of [`MemoryUse`], cgroups below included: anonymous memory, shared memory, the page cache including
    /// shared memory, and pages of files that were read again.
    uses: [&'static str; 4],
    /// File and value that disable swapping.
    no_swap: (&'static str, &'static str),
}

const V1: ControlFiles = ControlFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
    cache: ["total_inactive_file", "total_active_file"],
    uses: ["total_rss", "total_shmem", "total_cache", "total_workingset_refault_file"],
    no_swap: ("memory.swappiness", "0"),
};
const V2: ControlFiles = ControlFiles {
    limit: "memory.max",
    usage: "memory.current",
    peak: "memory.peak",
    events: "memory.events",
    cache: ["inactive_file", "active_file"],
    uses: ["anon", "shmem", "file", "workingset_refault_file"],
    no_swap: ("memory.swap.max", "0"),
};

/// The memory of a cgroup and of those below it, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    pub(crate) anonymous: u64,
    pub(crate) shared: u64,
    /// The page cache without shared memory.
    pub(crate) files: u64,
    /// Memory of the kernel: page tables, file system and network objects.
    pub(crate) kernel: u64,
    /// Pages that the page cache has read again after it had dropped them, since the cgroup exists.
    pub(crate) refaults: u64,
}

/// The hierarchy of memory cgroups.
struct Hierarchy {
    root: PathBuf,
    /// The cgroup of this process, if the mount shows it.
    own: Option<PathBuf>,
    names: &'static ControlFiles,
    /// Whether a cgroup may hold both processes and limited cgroups (version 1).
    mixed: bool,
}

/// The hierarchy of this machine; `None` if no memory cgroups are mounted.
fn hierarchy() -> Option<Hierarchy> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (root, controller, names, mixed) = match mount_point(&mounts, "cgroup", Some("memory")) {
        Some(root) => (root, "memory", &V1, true),
        None => (mount_point(&mounts, "cgroup2", None)?, "", &V2, false),
    };
    // In a container the mount may be the cgroup itself, under another path than the kernel reports.
    let own = own_group(&groups, controller).map(|path| root.join(path)).filter(|path| path.is_dir());
    Some(Hierarchy { root, own, names, mixed })
}

/// Memory that the limits of this process's cgroups leave, bytes, reclaimable page cache included. `None` if no cgroup has a
/// limit.
pub(crate) fn available() -> Option<u64> {
    let Hierarchy { root, own, names, .. } = hierarchy()?;
    available_below(&root, own.as_deref().unwrap_or(&root), names)
}

/// Least memory available in a cgroup and its ancestors, bytes.
fn available_below(root: &Path, group: &Path, names: &ControlFiles) -> Option<u64> {
    let groups = group.ancestors().take_while(|above| above.starts_with(root));
    groups.filter_map(|group| available_in(group, names)).min()
}

fn available_in(group: &Path, names: &ControlFiles) -> Option<u64> {
    // A cgroup without a limit has no such file, the word "max", or a number beyond all memory.
    let limit = number(group, names.limit)?;
    let usage = number(group, names.usage)?;
    let cache = stat(group, &names.cache).unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(cache)))
}

/// The number in a control file; `None` where there is none.
fn number(group: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// Sum of these values of `memory.stat`, bytes; `None` if the kernel reports none of them.
fn stat(group: &Path, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(group.join("memory.stat")).ok()?;
    names.iter().filter_map(|name| stat_value(&text, name)).reduce(|sum, bytes| sum + bytes)
}

/// A value of `memory.stat`.
fn stat_value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// What the kernel reports of the memory of a cgroup; `None` where it does not.
fn memory_use(group: &Path, names: &ControlFiles) -> Option<MemoryUse> {
    let text = fs::read_to_string(group.join("memory.stat")).ok()?;
    let usage = number(group, names.usage)?;
    let [anonymous, shared, files, refaults] = names.uses.map(|name| stat_value(&text, name));
    let (anonymous, shared, files) = (anonymous?, shared?, files?);
    let kernel = usage.saturating_sub(anonymous + files);
    let files = files.saturating_sub(shared);
    Some(MemoryUse { anonymous, shared, files, kernel, refaults: refaults.unwrap_or(0) })
}

/// Mount point of a file system of this type that has this option.
fn mount_point(mountinfo: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let mut source = source.split(' ');
        let options = source.clone().nth(2)?;
        let fits = source.next() == Some(kind)
            && option.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        fits.then(|| mount.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

/// The cgroup of a process in the hierarchy of a controller (empty for version 2), relative to the root.
fn own_group(cgroup: &str, controller: &str) -> Option<PathBuf> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        let path = parts.next()?.trim_start_matches('/');
        controllers.split(',').any(|name| name == controller).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_where_they_are_mounted() {
        let mounts = "\
24 1 0:20 / /proc rw - proc proc rw
30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(mount_point(mounts, "cgroup", Some("memory")), path("/sys/fs/cgroup/memory"));
        assert_eq!(mount_point(mounts, "cgroup", Some("pids")), None);
        assert_eq!(mount_point(mounts, "cgroup2", None), path("/sys/fs/cgroup/unified"));
        let own = "4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user.slice\n";
        assert_eq!(own_group(own, "memory"), path("a/b"));
        assert_eq!(own_group(own, "cpuacct"), path(""));
        assert_eq!(own_group(own, ""), path("user.slice"));
        assert_eq!(own_group(own, "pids"), None);
    }

    #[test]
    fn the_use_of_a_group_is_read() {
        let group = tempfile::tempdir().unwrap();
        for names in [&V1, &V2] {
            let [anonymous, shared, files, refaults] = names.uses;
            let text =
                format!("{anonymous}_huge 1\n{anonymous} 400\n{shared} 20\n{files} 100\n{refaults} 7\n");
            fs::write(group.path().join("memory.stat"), text).unwrap();
            assert_eq!(memory_use(&group.path().join("none"), names), None);
            fs::write(group.path().join(names.usage), "540\n").unwrap();
            let expected = MemoryUse { anonymous: 400, shared: 20, files: 80, kernel: 40, refaults: 7 };
            assert_eq!(memory_use(group.path(), names), Some(expected));
        }
    }

    #[test]
    fn the_tightest_ancestor_counts_and_page_cache_is_available() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("outer/inner");
        fs::create_dir_all(&group).unwrap();
        let write = |dir: &Path, file: &str, text: &str| fs::write(dir.join(file), text).unwrap();
        for (names, free, unlimited) in
            [(&V1, "total_inactive_file", "9223372036854771712\n"), (&V2, "active_file", "max\n")]
        {
            assert_eq!(available_below(root.path(), &group, names), None, "no cgroup has a limit");
            write(&group, names.limit, unlimited);
            write(&group, names.usage, "500\n");
            write(&group, "memory.stat", &format!("anon 400\n{free} 100\nsome_file 7\n"));
            let outer = root.path().join("outer");
            write(&outer, names.limit, "3000\n");
            write(&outer, names.usage, "1200\n");
            assert_eq!(available_below(root.path(), &group, names), Some(1800));
            write(&group, names.limit, "1000\n");
            assert_eq!(available_below(root.path(), &group, names), Some(600));
            write(&group, names.usage, "1500\n");
            assert_eq!(
                available_below(root.path(), &group, names),
                Some(0),
                "usage may exceed the limit for a moment"
            );
        }
    }
}
