//! A pool that holds the files of a store, mounted by this program's own `deepram pool mount`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use deepram_pool::{CreateOptions, Pool};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Memory of the pool: both stores' files fit several times.
const SIZE: u64 = 1 << 30;
const FLASH: u64 = 3 << 29;
/// DRAM of the pool, which holds the files whole, as the page cache does for the other configurations.
const DRAM: &str = "--dram=512MiB";

/// A mounted pool. Dropping it unmounts it and removes its file.
#[derive(Debug)]
pub(super) struct MountedPool {
    child: Child,
    dir: PathBuf,
    _folder: TempDir,
}

impl MountedPool {
    /// Creates a pool in a folder and mounts it.
    ///
    /// # Errors
    /// The pool cannot be created, or this machine cannot mount it; the message says why.
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("pool-").tempdir_in(folder)?;
        let (file, dir) = (folder.path().join("data.pool"), folder.path().join("files"));
        std::fs::create_dir(&dir)?;
        let options = CreateOptions { flash: Some(FLASH), ..CreateOptions::new(SIZE) };
        Pool::create(&[&file], &options)?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.args(["pool", "mount", DRAM]).arg(&file).arg(&dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting deepram pool mount")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let pool = Self { child, dir, _folder: folder };
        let mut line = String::new();
        BufReader::new(stdout.context("the output of deepram pool mount")?).read_line(&mut line)?;
        if line.is_empty() {
            let mut said = String::new();
            stderr.context("the errors of deepram pool mount")?.read_to_string(&mut said)?;
            bail!("{}", said.trim_end().trim_start_matches("error: "));
        }
        Ok(pool)
    }

    /// The directory that the pool is mounted at.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for MountedPool {
    fn drop(&mut self) {
        if let Some(process) = Pid::from_raw(self.child.id().cast_signed()) {
            // A process that has ended already cannot be signalled.
            let _ = kill_process(process, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
