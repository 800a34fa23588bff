//! Creates a memory cgroup (version 1 or 2) that limits the memory of its processes, and removes it at the end.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::fs::{FlockOperation, flock};

use super::{ControlFiles, Hierarchy, MemoryUse, hierarchy, memory_use, number};

/// Prefix of the names of our cgroups.
const PREFIX: &str = "deepram-";
/// Name of the child cgroup that holds the processes in version 2, where a cgroup with processes cannot limit cgroups below it.
const LEAF: &str = "processes";
/// Time limit for removing a cgroup whose last process has just ended.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most attempts to create a cgroup. An attempt fails if another process removes the new cgroup as a stale one.
const TRIES: usize = 8;

/// A memory cgroup. Dropping this value removes it. A cgroup that still has processes stays until another deepram process
/// creates a cgroup in the same parent, which removes it as stale.
pub(crate) struct Group {
    path: PathBuf,
    names: &'static ControlFiles,
    /// Whether its processes enter a child cgroup of their own (version 2).
    leaf: bool,
    /// A lock held for the life of the creating process, which shows that the cgroup is not stale.
    _lock: File,
}

impl Group {
    /// Creates a cgroup named `deepram-NAME` with a limit of `bytes`; without `swap` its memory is not swapped out. Removes
    /// stale cgroups of the same parent.
    ///
    /// # Errors
    /// This machine has no memory cgroups, or this process may not create one; the message gives the reason.
    pub(crate) fn create(name: &str, bytes: u64, swap: bool) -> anyhow::Result<Self> {
        let (parent, names, leaf) = parent()?;
        Self::create_in(&parent, names, leaf, &format!("{PREFIX}{name}"), bytes, swap)
    }

    fn create_in(
        parent: &Path,
        names: &'static ControlFiles,
        leaf: bool,
        name: &str,
        bytes: u64,
        swap: bool,
    ) -> anyhow::Result<Self> {
        remove_stale(parent);
        let path = parent.join(name);
        let shown = path.display();
        let made = (0..TRIES).find_map(|_| create_locked(&path).transpose());
        let lock = made.unwrap_or_else(|| bail!("another process keeps removing it"));
        let lock = lock.with_context(|| format!("cannot create the memory cgroup {shown}"))?;
        // From here on an error drops the group, which removes the cgroup.
        let group = Self { path, names, leaf, _lock: lock };
        group.set_limit(bytes)?;
        let (file, value) = names.no_swap;
        // A kernel without swap has no such file.
        if !swap && group.path.join(file).exists() {
            group.write(file, value)?;
        }
        if leaf {
            // A nested run creates its cgroup below this one.
            group.write("cgroup.subtree_control", "+memory")?;
            fs::create_dir(group.process_path())
                .with_context(|| group.process_path().display().to_string())?;
        }
        Ok(group)
    }

    /// Sets the memory limit, bytes.
    ///
    /// # Errors
    /// The kernel rejects the limit.
    pub(crate) fn set_limit(&self, bytes: u64) -> anyhow::Result<()> {
        self.write(self.names.limit, &bytes.to_string())
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot limit the memory: write of {value} to {}", path.display()))
    }

    /// Path of the cgroup for processes ([`enter`]).
    pub(crate) fn process_path(&self) -> PathBuf {
        if self.leaf { self.path.join(LEAF) } else { self.path.clone() }
    }

    /// Peak memory use, bytes, page cache included; `None` where the kernel does not report it.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        number(&self.path, self.names.peak)
    }

    /// Memory of its processes; `None` where the kernel does not report it.
    pub(crate) fn memory_use(&self) -> Option<MemoryUse> {
        memory_use(&self.path, self.names)
    }

    /// Number of its processes that the kernel killed at the limit.
    pub(crate) fn oom_kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.names.events)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Ids of its processes, without those of cgroups below it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.process_path().join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + REMOVE_TIMEOUT;
        // The kernel may count an ended process for a moment longer. Running processes keep their limit.
        while let Err(error) = remove(&self.path) {
            if error.kind() == io::ErrorKind::NotFound || !self.processes().is_empty() {
                return;
            }
            if Instant::now() >= until {
                eprintln!(
                    "deepram: cannot remove the cgroup {}: {error}; remove it with rmdir",
                    self.path.display()
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Moves this process into a cgroup, which then accounts for the memory of the process and its children.
///
/// # Errors
/// The cgroup does not exist, or this process may not enter it.
pub(crate) fn enter(group: &Path) -> anyhow::Result<()> {
    let file = group.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string()).with_context(|| file.display().to_string())
}

/// Creates a cgroup and locks it. `None` if another process has removed it as stale meanwhile.
fn create_locked(path: &Path) -> anyhow::Result<Option<File>> {
    fs::create_dir(path)?;
    let Ok(group) = File::open(path) else { return Ok(None) };
    flock(&group, FlockOperation::LockShared)?;
    let there = path.metadata().is_ok_and(|there| group.metadata().is_ok_and(|own| own.ino() == there.ino()));
    Ok(there.then_some(group))
}

/// Removes a cgroup and its child, unless one of them has processes.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path.join(LEAF)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::remove_dir(path),
    }
}

/// Removes cgroups without processes whose creators were killed.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let Ok(group) = File::open(entry.path()) else { continue };
        if flock(&group, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // The kernel refuses while the cgroup has processes.
            let _ = remove(&entry.path());
        }
    }
}

/// The cgroup in which a limited cgroup can be created, and whether its processes need a child cgroup.
fn parent() -> anyhow::Result<(PathBuf, &'static ControlFiles, bool)> {
    let Hierarchy { root, own, names, mixed } =
        hierarchy().ok_or_else(|| anyhow!("no memory cgroup hierarchy is mounted"))?;
    if mixed {
        // A child of our own cgroup, so that its limits apply too.
        return Ok((own.unwrap_or(root), names, false));
    }
    // A cgroup with processes cannot delegate the memory controller: the new cgroup is a sibling of our own, or a child of the root.
    let sibling = own.and_then(|path| path.parent().map(Path::to_path_buf));
    let parents = sibling.into_iter().filter(|path| path.starts_with(&root)).chain([root.clone()]);
    for parent in parents {
        let control = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        if control.split_whitespace().any(|name| name == "memory") {
            return Ok((parent, names, true));
        }
    }
    bail!("no cgroup under {} delegates the memory controller", root.display())
}

#[cfg(test)]
mod tests {
    use super::super::{V1, V2};
    use super::*;

    #[test]
    fn dropping_a_group_removes_it() {
        match Group::create(&format!("test-{}", std::process::id()), 64 << 20, false) {
            Ok(group) => {
                let path = group.path.clone();
                assert!(path.is_dir());
                assert_eq!((group.oom_kills(), group.processes()), (0, Vec::new()));
                drop(group);
                assert!(!path.exists());
            }
            Err(error) => eprintln!("skipped: {error:#}"),
        }
    }

    #[test]
    fn only_stale_groups_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for (names, leaf) in [(&V1, false), (&V2, true)] {
            for name in ["deepram-run-1", "deepram-run-2/processes", "other"] {
                fs::create_dir_all(folder.path().join(name)).unwrap();
            }
            let first =
                Group::create_in(folder.path(), names, leaf, "deepram-run-7", 1 << 20, false).unwrap();
            assert_eq!(
                first.process_path(),
                folder.path().join(if leaf { "deepram-run-7/processes" } else { "deepram-run-7" })
            );
            for name in ["deepram-run-1", "deepram-run-2"] {
                assert!(!folder.path().join(name).exists(), "{name}");
            }
            let second =
                Group::create_in(folder.path(), names, leaf, "deepram-run-8", 1 << 20, false).unwrap();
            assert!(first.path.is_dir() && folder.path().join("other").is_dir());
            // A real cgroup's files vanish with it; these are ordinary files.
            for group in [&first, &second] {
                let files = fs::read_dir(&group.path).unwrap().flatten().filter(|file| file.path().is_file());
                files.for_each(|file| fs::remove_file(file.path()).unwrap());
            }
        }
    }

    #[test]
    fn processes_that_the_kernel_killed_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        for (names, text) in
            [(&V1, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), (&V2, "low 0\noom 5\noom_kill 2\n")]
        {
            let group = Group::create_in(folder.path(), names, false, "deepram-x", 1 << 20, false).unwrap();
            fs::write(group.path.join(names.events), text).unwrap();
            assert_eq!(group.oom_kills(), 2);
            fs::remove_dir_all(&group.path).unwrap();
        }
    }
}
