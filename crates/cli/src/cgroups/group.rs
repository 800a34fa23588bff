//! A limit on the memory of processes: a memory cgroup made for them, of version 1 or 2, and removed at the end.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::fs::{FlockOperation, flock};

use super::{Hierarchy, Names, hierarchy};

/// Names of groups begin with it.
const PREFIX: &str = "deepram-";
/// The group within a group of version 2 that its processes are in: one with processes cannot limit groups below it.
const LEAF: &str = "processes";
/// How long a group is waited for whose last process has just ended.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often making a group is tried again when another process has taken it for a stale one.
const TRIES: usize = 8;

/// A memory cgroup, removed when this is dropped. It stays as long as processes are in it: whichever process makes the next
/// group in the same place removes it then.
pub(crate) struct Group {
    path: PathBuf,
    names: &'static Names,
    /// Whether processes go into a group of their own within this one.
    leaf: bool,
    /// Locked as long as its maker lives: so others know that it is not stale.
    _lock: File,
}

impl Group {
    /// A new group limited to so many bytes, its name `deepram-` and this one; without `swap` nothing in it is swapped out.
    /// Stale groups beside it are removed.
    ///
    /// # Errors
    /// There is no memory cgroup here, or this process may not make one: which of them, in words.
    pub(crate) fn create(name: &str, bytes: u64, swap: bool) -> anyhow::Result<Self> {
        let (parent, names, leaf) = parent()?;
        Self::create_in(&parent, names, leaf, &format!("{PREFIX}{name}"), bytes, swap)
    }

    fn create_in(
        parent: &Path,
        names: &'static Names,
        leaf: bool,
        name: &str,
        bytes: u64,
        swap: bool,
    ) -> anyhow::Result<Self> {
        remove_stale(parent);
        let path = parent.join(name);
        let shown = path.display();
        let made = (0..TRIES).find_map(|_| make(&path).transpose());
        let lock = made.unwrap_or_else(|| bail!("another process removes it at once"));
        let lock = lock.with_context(|| format!("no memory cgroup can be made: {shown}"))?;
        // From here on whatever fails removes it.
        let group = Self { path, names, leaf, _lock: lock };
        group.limit(bytes)?;
        let (file, value) = names.no_swap;
        // A kernel without swap has no such file, and nothing to keep from.
        if !swap && group.path.join(file).exists() {
            group.write(file, value)?;
        }
        if leaf {
            // A run within this one makes a group below it.
            group.write("cgroup.subtree_control", "+memory")?;
            fs::create_dir(group.place()).with_context(|| group.place().display().to_string())?;
        }
        Ok(group)
    }

    /// Limits it to so many bytes from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn limit(&self, bytes: u64) -> anyhow::Result<()> {
        self.write(self.names.limit, &bytes.to_string())
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).with_context(|| format!("no limit on memory: {}: {value}", path.display()))
    }

    /// The group that processes go into ([`enter`]).
    pub(crate) fn place(&self) -> PathBuf {
        if self.leaf { self.path.join(LEAF) } else { self.path.clone() }
    }

    /// The most that was in use at once, page cache included, where the kernel tells.
    pub(crate) fn peak(&self) -> Option<u64> {
        fs::read_to_string(self.path.join(self.names.peak)).ok()?.trim().parse().ok()
    }

    /// Processes of it that the kernel has ended because they would have gone beyond the limit.
    pub(crate) fn killed(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.names.events)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// The processes in it, by their numbers; not those of groups below it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.place().join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        // A process that has ended may be counted a moment longer. Those that go on keep their limit.
        while let Err(error) = remove(&self.path) {
            if error.kind() == io::ErrorKind::NotFound || !self.processes().is_empty() {
                return;
            }
            if Instant::now() >= until {
                eprintln!("deepram: {}: {error}; remove it with rmdir", self.path.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Puts this process into a group; what it and its children use from now on counts.
///
/// # Errors
/// There is no such group, or this process may not enter it.
pub(crate) fn enter(group: &Path) -> anyhow::Result<()> {
    let file = group.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string()).with_context(|| file.display().to_string())
}

/// Makes a group and locks it. None if another process has taken it for a stale one meanwhile.
fn make(path: &Path) -> anyhow::Result<Option<File>> {
    fs::create_dir(path)?;
    let Ok(group) = File::open(path) else { return Ok(None) };
    flock(&group, FlockOperation::LockShared)?;
    let there = path.metadata().is_ok_and(|there| group.metadata().is_ok_and(|own| own.ino() == there.ino()));
    Ok(there.then_some(group))
}

/// Removes a group, and the one within it, unless there are processes in them.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path.join(LEAF)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::remove_dir(path),
    }
}

/// Removes groups whose makers were killed and in which there are no processes any more.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let Ok(group) = File::open(entry.path()) else { continue };
        if flock(&group, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Refused while there are processes in it.
            let _ = remove(&entry.path());
        }
    }
}

/// Where groups with a limit can be made, and whether their processes go into a group within.
fn parent() -> anyhow::Result<(PathBuf, &'static Names, bool)> {
    let Hierarchy { root, own, names, mixed } =
        hierarchy().ok_or_else(|| anyhow!("no memory cgroups are mounted"))?;
    if mixed {
        // Below our own, whose limits hold too.
        return Ok((own.unwrap_or(root), names, false));
    }
    // A group with processes gives its children no memory controller: ours goes beside our own, or to the top.
    let beside = own.and_then(|path| path.parent().map(Path::to_path_buf));
    let places = beside.into_iter().filter(|path| path.starts_with(&root)).chain([root.clone()]);
    for place in places {
        let control = fs::read_to_string(place.join("cgroup.subtree_control")).unwrap_or_default();
        if control.split_whitespace().any(|name| name == "memory") {
            return Ok((place, names, true));
        }
    }
    bail!("no group under {} gives its children the memory controller", root.display())
}

#[cfg(test)]
mod tests {
    use super::super::{V1, V2};
    use super::*;

    #[test]
    fn a_group_is_gone_when_it_is_dropped() {
        match Group::create(&format!("test-{}", std::process::id()), 64 << 20, false) {
            Ok(group) => {
                let path = group.path.clone();
                assert!(path.is_dir());
                assert_eq!((group.killed(), group.processes()), (0, Vec::new()));
                drop(group);
                assert!(!path.exists());
            }
            Err(error) => eprintln!("not tested here: {error:#}"),
        }
    }

    #[test]
    fn a_group_that_a_killed_process_has_left_is_removed_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        for (names, leaf) in [(&V1, false), (&V2, true)] {
            for name in ["deepram-run-1", "deepram-run-2/processes", "other"] {
                fs::create_dir_all(folder.path().join(name)).unwrap();
            }
            let first =
                Group::create_in(folder.path(), names, leaf, "deepram-run-7", 1 << 20, false).unwrap();
            assert_eq!(
                first.place(),
                folder.path().join(if leaf { "deepram-run-7/processes" } else { "deepram-run-7" })
            );
            for name in ["deepram-run-1", "deepram-run-2"] {
                assert!(!folder.path().join(name).exists(), "{name}");
            }
            let second =
                Group::create_in(folder.path(), names, leaf, "deepram-run-8", 1 << 20, false).unwrap();
            assert!(first.path.is_dir() && folder.path().join("other").is_dir());
            // Files of a real group go along with it.
            for group in [&first, &second] {
                let files = fs::read_dir(&group.path).unwrap().flatten().filter(|file| file.path().is_file());
                files.for_each(|file| fs::remove_file(file.path()).unwrap());
            }
        }
    }

    #[test]
    fn processes_that_the_kernel_has_ended_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        for (names, text) in
            [(&V1, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), (&V2, "low 0\noom 5\noom_kill 2\n")]
        {
            let group = Group::create_in(folder.path(), names, false, "deepram-x", 1 << 20, false).unwrap();
            fs::write(group.path.join(names.events), text).unwrap();
            assert_eq!(group.killed(), 2);
            fs::remove_dir_all(&group.path).unwrap();
        }
    }
}
