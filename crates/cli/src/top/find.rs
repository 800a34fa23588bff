//! Which programs run under `deepram run`: those whose budget is found among a process's descriptors.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use deepram_pool::pager::{BUDGET_NAME, BudgetView};

use crate::run::Reading;

/// A run that may be looked at.
pub(super) struct Run {
    pid: u32,
    command: String,
    /// Its budget's descriptor.
    path: PathBuf,
    view: BudgetView,
}

impl Run {
    /// What it is doing.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn read(&self) -> anyhow::Result<Reading> {
        // The memory outlives its owner for as long as it is mapped here.
        if !is_budget(&self.path) {
            bail!("the run of process {} has ended", self.pid);
        }
        Ok(Reading::of(&self.view.read(), self.pid, self.command.clone()))
    }
}

/// All runs of whoever asks, the one with the lowest number first.
///
/// # Errors
/// There is no /proc.
pub(super) fn find() -> anyhow::Result<Vec<Run>> {
    Ok(budgets()?.into_iter().filter_map(|(pid, path)| open(pid, path).ok()).collect())
}

/// The run that this process is, or belongs to.
///
/// # Errors
/// It is none, or may not be looked at, or is one of another version of deepram.
pub(super) fn of(pid: u32) -> anyhow::Result<Run> {
    let found = budgets()?;
    if let Some(path) = found.get(&pid) {
        return open(pid, path.clone());
    }
    let runs = found.into_iter().filter_map(|(pid, path)| open(pid, path).ok());
    let member = |run: &Run| run.view.read().processes.iter().any(|(member, _)| *member == pid);
    runs.into_iter().find(member).with_context(|| {
        format!("process {pid} is no `deepram run` that you may look at, nor a program's under one")
    })
}

fn open(pid: u32, path: PathBuf) -> anyhow::Result<Run> {
    let view = BudgetView::open(&path).with_context(|| format!("process {pid}"))?;
    Ok(Run { pid, command: command(pid), path, view })
}

/// The budgets, each with the process that has made it. A process that is just opening one has it as well.
fn budgets() -> anyhow::Result<BTreeMap<u32, PathBuf>> {
    let mut found: BTreeMap<(u64, u64), (u32, PathBuf)> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("reading /proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It has ended, or is another user's.
        let Ok(descriptors) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        for path in descriptors.flatten().map(|descriptor| descriptor.path()) {
            let Some(data) = is_budget(&path).then(|| path.metadata().ok()).flatten() else { continue };
            let first = found.entry((data.dev(), data.ino())).or_insert_with(|| (pid, path.clone()));
            if pid < first.0 {
                *first = (pid, path);
            }
        }
    }
    Ok(found.into_values().collect())
}

fn is_budget(descriptor: &Path) -> bool {
    let name = format!("/memfd:{BUDGET_NAME} (deleted)");
    descriptor.read_link().is_ok_and(|target| target.as_os_str() == name.as_str())
}

/// What the run was told to run: what follows `--`, or else the whole of its command line.
fn command(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let program = words.iter().position(|word| *word == b"--").map_or(0, |at| at + 1);
    let words = words[program..].iter().map(|word| String::from_utf8_lossy(word));
    words.collect::<Vec<_>>().join(" ")
}
