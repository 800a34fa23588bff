//! Memory cgroups, of version 1 or 2: where they are, what their limits leave this process, and groups of our own.

mod group;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use group::{Group, enter};

/// What the files of a version are called.
struct Names {
    limit: &'static str,
    usage: &'static str,
    peak: &'static str,
    /// Tells how many processes the kernel has ended.
    events: &'static str,
    /// In `memory.stat`: page cache that can be given up.
    cache: [&'static str; 2],
    /// What keeps a group from swapping: its file and what to write.
    no_swap: (&'static str, &'static str),
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
    cache: ["total_inactive_file", "total_active_file"],
    no_swap: ("memory.swappiness", "0"),
};
const V2: Names = Names {
    limit: "memory.max",
    usage: "memory.current",
    peak: "memory.peak",
    events: "memory.events",
    cache: ["inactive_file", "active_file"],
    no_swap: ("memory.swap.max", "0"),
};

/// Where the groups are that limit memory.
struct Hierarchy {
    root: PathBuf,
    /// This process's group, where the mount shows it.
    own: Option<PathBuf>,
    names: &'static Names,
    /// A group may hold processes and groups with limits (version 1).
    mixed: bool,
}

/// The one that holds here, if there is any.
fn hierarchy() -> Option<Hierarchy> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (root, controller, names, mixed) = match mount_point(&mounts, "cgroup", Some("memory")) {
        Some(root) => (root, "memory", &V1, true),
        None => (mount_point(&mounts, "cgroup2", None)?, "", &V2, false),
    };
    // In a container the mount may be the group itself, by another path than the one that the kernel tells.
    let own = own_group(&groups, controller).map(|path| root.join(path)).filter(|path| path.is_dir());
    Some(Hierarchy { root, own, names, mixed })
}

/// Bytes that the limits of this process's groups leave it, page cache that can be given up included; none if no
/// group is limited.
pub(crate) fn left() -> Option<u64> {
    let Hierarchy { root, own, names, .. } = hierarchy()?;
    left_below(&root, own.as_deref().unwrap_or(&root), names)
}

/// The least that is left by a group and those above it.
fn left_below(root: &Path, group: &Path, names: &Names) -> Option<u64> {
    let groups = group.ancestors().take_while(|above| above.starts_with(root));
    groups.filter_map(|group| left_by(group, names)).min()
}

fn left_by(group: &Path, names: &Names) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    // Without a limit: no such file, the word "max", or a number beyond all memory, of which much is left.
    let limit = number(names.limit)?;
    let usage = number(names.usage)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let cache = lines.filter(|(name, _)| names.cache.contains(name));
    let cache: u64 = cache.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum();
    Some(limit.saturating_sub(usage.saturating_sub(cache)))
}

/// Where a file system of this type is mounted, with this among its own options.
fn mount_point(mountinfo: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (place, what) = line.split_once(" - ")?;
        let mut what = what.split(' ');
        let options = what.clone().nth(2)?;
        let fits = what.next() == Some(kind)
            && option.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        fits.then(|| place.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

/// The group of a process in the hierarchy of this controller (none: version 2), relative to its root.
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
    fn the_tightest_group_above_counts_and_page_cache_is_left() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("outer/inner");
        fs::create_dir_all(&group).unwrap();
        let write = |dir: &Path, file: &str, text: &str| fs::write(dir.join(file), text).unwrap();
        for (names, free, unlimited) in
            [(&V1, "total_inactive_file", "9223372036854771712\n"), (&V2, "active_file", "max\n")]
        {
            assert_eq!(left_below(root.path(), &group, names), None, "nobody is limited");
            write(&group, names.limit, unlimited);
            write(&group, names.usage, "500\n");
            write(&group, "memory.stat", &format!("anon 400\n{free} 100\nsome_file 7\n"));
            let outer = root.path().join("outer");
            write(&outer, names.limit, "3000\n");
            write(&outer, names.usage, "1200\n");
            assert_eq!(left_below(root.path(), &group, names), Some(1800));
            write(&group, names.limit, "1000\n");
            assert_eq!(left_below(root.path(), &group, names), Some(600));
            write(&group, names.usage, "1500\n");
            assert_eq!(left_below(root.path(), &group, names), Some(0), "beyond its limit for a moment");
        }
    }
}
