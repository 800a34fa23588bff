//! The programs, from Debian's packages: downloaded and unpacked into a folder, so that nothing of the machine changes and no
//! service starts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The unpacked packages.
#[derive(Debug)]
pub(super) struct Packages {
    root: PathBuf,
}

impl Packages {
    /// Downloads these packages, with those that they need and the machine lacks, and unpacks them below `folder`.
    ///
    /// # Errors
    /// There is no apt, or no package archive can be reached.
    pub(super) fn fetch(folder: &Path, names: &[&str]) -> anyhow::Result<Self> {
        let (archives, root) = (folder.join("archives"), folder.join("root"));
        std::fs::create_dir_all(archives.join("partial"))?;
        std::fs::create_dir_all(&root)?;
        let mut apt = Command::new("apt-get");
        apt.args([
            "install",
            "--yes",
            "--quiet=2",
            "--download-only",
            "--reinstall",
            "--no-install-recommends",
        ]);
        apt.args(["-o", "Debug::NoLocking=true", "-o"])
            .arg(format!("Dir::Cache::archives={}", archives.display()));
        run(apt.args(names), "apt-get")?;
        for file in std::fs::read_dir(&archives)?.flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|end| end == "deb") {
                run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root), "dpkg-deb")?;
            }
        }
        Ok(Self { root })
    }

    /// A program of the packages.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.root.join("usr/bin").join(name);
        path.exists().then_some(path)
    }

    /// LD_LIBRARY_PATH and PYTHONPATH of the programs.
    pub(super) fn variables(&self) -> [(&'static str, OsString); 2] {
        let library = self.root.join("usr/lib/x86_64-linux-gnu");
        [
            ("LD_LIBRARY_PATH", library.into()),
            ("PYTHONPATH", self.root.join("usr/lib/python3/dist-packages").into()),
        ]
    }
}

fn run(command: &mut Command, name: &str) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("starting {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("{name} ended with {}: {}", output.status, said.lines().last().unwrap_or_default())
}
