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
    view: BudgetView,
}

impl Run {
    /// What it is doing.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn read(&self) -> anyhow::Result<Reading> {
        // The memory outlives its owner for as long as it is mapped here.
        self.view.creator().with_context(|| format!("the run of process {} has ended", self.pid))?;
        Ok(Reading::of(&self.view.read(), self.pid, self.command.clone()))
    }

    fn has(&self, pid: u32) -> bool {
        self.view.read().processes.iter().any(|(member, _)| *member == pid)
    }
}

/// All runs of whoever asks, the one with the lowest number first.
///
/// # Errors
/// There is no /proc.
pub(super) fn find() -> anyhow::Result<Vec<Run>> {
    let mut runs: Vec<_> = budgets()?.iter().filter_map(|holders| open(holders).ok()).collect();
    runs.sort_unstable_by_key(|run| run.pid);
    Ok(runs)
}

/// The run that this process is, or belongs to.
///
/// # Errors
/// It is none, or may not be looked at, or is one of another version of deepram.
pub(super) fn of(pid: u32) -> anyhow::Result<Run> {
    let (mut runs, mut refused) = (Vec::new(), None);
    for holders in budgets()? {
        let held = holders.contains_key(&pid);
        match open(&holders) {
            Ok(run) if held || run.has(pid) => runs.push(run),
            Err(error) if held => refused = Some(error),
            _ => {}
        }
    }
    // Runs in runs have the outer ones' budgets as well.
    match (runs.into_iter().max_by_key(|run| (run.pid == pid, run.view.read().began_ns)), refused) {
        (Some(run), _) => Ok(run),
        (None, Some(error)) => Err(error.context(format!("process {pid}"))),
        (None, None) => {
            bail!("process {pid} is no `deepram run` that you may look at, nor a program's under one")
        }
    }
}

/// The processes that have a budget's file, with where.
type Holders = BTreeMap<u32, PathBuf>;

fn open(holders: &Holders) -> anyhow::Result<Run> {
    let (first, path) = holders.first_key_value().context("nobody has it")?;
    let view = BudgetView::open(path)?;
    let maker = view.creator().context("its run has ended")?;
    // In another namespace than the run's, the first of its processes stands for it.
    let pid = if holders.contains_key(&maker) { maker } else { *first };
    Ok(Run { pid, command: command(pid), view })
}

/// The budgets: runs have them, and what they have started.
fn budgets() -> anyhow::Result<Vec<Holders>> {
    let mut found: BTreeMap<(u64, u64), Holders> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("reading /proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It has ended, or is another user's.
        let Ok(descriptors) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        for path in descriptors.flatten().map(|descriptor| descriptor.path()) {
            let Some(data) = is_budget(&path).then(|| path.metadata().ok()).flatten() else { continue };
            found.entry((data.dev(), data.ino())).or_default().entry(pid).or_insert(path);
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
