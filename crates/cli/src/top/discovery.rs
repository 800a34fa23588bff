//! Finds the runs of this user: processes of a run hold a descriptor of its shared budget, which /proc shows.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use deepram_pager::{BUDGET_NAME, BudgetView};

use crate::run::RunStats;

/// A run whose budget this process can read.
pub(super) struct ObservedRun {
    pid: u32,
    command: String,
    view: BudgetView,
}

impl ObservedRun {
    /// Reads the statistics of the run.
    ///
    /// # Errors
    /// The run has ended.
    pub(super) fn read(&self) -> anyhow::Result<RunStats> {
        // This mapping keeps the budget's memory alive after the run has ended.
        self.view.creator().with_context(|| format!("the run of process {} has ended", self.pid))?;
        Ok(RunStats::from_budget(&self.view.read(), self.pid, self.command.clone()))
    }

    fn has(&self, pid: u32) -> bool {
        self.view.read().processes.iter().any(|(member, _)| *member == pid)
    }
}

/// All runs whose budgets this user can read, by process id.
///
/// # Errors
/// /proc cannot be read.
pub(super) fn find_runs() -> anyhow::Result<Vec<ObservedRun>> {
    let mut runs: Vec<_> = budgets()?.iter().filter_map(|holders| open(holders).ok()).collect();
    runs.sort_unstable_by_key(|run| run.pid);
    Ok(runs)
}

/// The run of process `pid`: the `deepram run` process itself or a process of its program.
///
/// # Errors
/// The process belongs to no run, its budget cannot be read, or the run is of another version of deepram.
pub(super) fn run_of(pid: u32) -> anyhow::Result<ObservedRun> {
    let (mut runs, mut refused) = (Vec::new(), None);
    for holders in budgets()? {
        let held = holders.contains_key(&pid);
        match open(&holders) {
            Ok(run) if held || run.has(pid) => runs.push(run),
            Err(error) if held => refused = Some(error),
            _ => {}
        }
    }
    // A nested run also holds the budgets of the outer runs.
    match (runs.into_iter().max_by_key(|run| (run.pid == pid, run.view.read().began_ns)), refused) {
        (Some(run), _) => Ok(run),
        (None, Some(error)) => Err(error.context(format!("process {pid}"))),
        (None, None) => {
            bail!("process {pid} belongs to no `deepram run` whose statistics you may read")
        }
    }
}

/// Processes that hold a descriptor of one budget, each with the path of that descriptor.
type Holders = BTreeMap<u32, PathBuf>;

fn open(holders: &Holders) -> anyhow::Result<ObservedRun> {
    let (first, path) = holders.first_key_value().context("no process holds the budget")?;
    let view = BudgetView::open(path)?;
    let maker = view.creator().context("the run has ended")?;
    // In another PID namespace the maker's id is unknown: the lowest id of its processes stands for the run.
    let pid = if holders.contains_key(&maker) { maker } else { *first };
    Ok(ObservedRun { pid, command: command(pid), view })
}

/// The budgets that processes hold, each with its holders.
fn budgets() -> anyhow::Result<Vec<Holders>> {
    let mut found: BTreeMap<(u64, u64), Holders> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("reading /proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The process has ended or belongs to another user.
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

/// Command line of the program: the arguments of the run after `--`, or else the whole command line.
fn command(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let program = words.iter().position(|word| *word == b"--").map_or(0, |at| at + 1);
    let words = words[program..].iter().map(|word| String::from_utf8_lossy(word));
    words.collect::<Vec<_>>().join(" ")
}
