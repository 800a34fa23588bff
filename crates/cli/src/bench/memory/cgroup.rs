//! A limit on a process's memory: a memory cgroup made for it, of version 1 or 2, and removed at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use crate::cgroups::{Hierarchy, Names, hierarchy};

/// How long a group is waited for whose last process has just ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// A memory cgroup.
pub(super) struct Group {
    path: PathBuf,
    names: &'static Names,
}

impl Group {
    /// A new group of this name limited to so many bytes; without `swap` nothing in it is swapped out.
    ///
    /// # Errors
    /// There is no memory cgroup here, or this process may not make one: which of them, in words.
    pub(super) fn create(name: &str, bytes: u64, swap: bool) -> anyhow::Result<Self> {
        let (parent, names) = parent()?;
        let path = parent.join(name);
        fs::create_dir(&path).with_context(|| format!("no memory cgroup: {}", path.display()))?;
        // From here on whatever fails removes it.
        let group = Self { path, names };
        group.write(names.limit, &bytes.to_string())?;
        let (file, value) = names.no_swap;
        // A kernel without swap has no such file, and nothing to keep from.
        if !swap && group.path.join(file).exists() {
            group.write(file, value)?;
        }
        Ok(group)
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).with_context(|| format!("no limit on memory: {}: {value}", path.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The most that was in use at once, page cache included, where the kernel tells.
    pub(super) fn peak(&self) -> Option<u64> {
        fs::read_to_string(self.path.join(self.names.peak)).ok()?.trim().parse().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            match fs::remove_dir(&self.path) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => {
                    eprintln!("deepram: {}: {error}; remove it with rmdir", self.path.display());
                    return;
                }
            }
        }
    }
}

/// Puts this process into a group; what it uses from now on counts.
pub(super) fn enter(group: &Path) -> anyhow::Result<()> {
    let file = group.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string()).with_context(|| file.display().to_string())
}

/// Where groups with a limit can be made.
fn parent() -> anyhow::Result<(PathBuf, &'static Names)> {
    let Hierarchy { root, own, names, mixed } =
        hierarchy().ok_or_else(|| anyhow!("no cgroups are mounted"))?;
    if mixed {
        // Below our own, whose limits hold too.
        return Ok((own.unwrap_or(root), names));
    }
    // A group with processes gives its children no memory controller: ours goes beside our own, or to the top.
    let beside = own.and_then(|path| path.parent().map(Path::to_path_buf));
    let places = beside.into_iter().filter(|path| path.starts_with(&root)).chain([root.clone()]);
    for place in places {
        let control = fs::read_to_string(place.join("cgroup.subtree_control")).unwrap_or_default();
        if control.split_whitespace().any(|name| name == "memory") {
            return Ok((place, names));
        }
    }
    bail!("no group under {} gives its children the memory controller", root.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_gone_when_it_is_dropped() {
        let name = format!("deepram-test-{}", std::process::id());
        match Group::create(&name, 64 << 20, false) {
            Ok(group) => {
                let path = group.path().to_path_buf();
                assert!(path.is_dir());
                drop(group);
                assert!(!path.exists());
            }
            Err(error) => eprintln!("not tested here: {error:#}"),
        }
    }
}
