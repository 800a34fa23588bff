//! Finds the runs and the open pools of this user: processes of a run hold a descriptor of its shared budget, and a process that
//! has a pool open holds one of the pool's counters, which /proc shows.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use deepram_metrics::Statistics;
use deepram_pager::{BUDGET_NAME, BudgetView};
use deepram_pool::{POOL_MEMORY_NAME, PoolView};

use crate::run::from_budget;

/// A run or an open pool whose memory file this process can read.
pub(super) struct Observed {
    pid: u32,
    view: View,
}

enum View {
    Run { command: String, view: BudgetView },
    Pool(PoolView),
}

impl Observed {
    /// Reads the statistics.
    ///
    /// # Errors
    /// The run has ended, or the pool is closed.
    pub(super) fn read(&self) -> anyhow::Result<Statistics> {
        // This mapping keeps the memory alive after the process that made it has ended.
        match &self.view {
            View::Run { command, view } => {
                view.creator().with_context(|| format!("the run of process {} has ended", self.pid))?;
                Ok(from_budget(&view.read(), self.pid, command.clone()))
            }
            View::Pool(view) => {
                let closed = || format!("process {} has closed the pool or has ended", self.pid);
                view.opener().with_context(closed)?;
                Ok(view.read(self.pid))
            }
        }
    }

    /// The time at which a run with this process began; `None` for pools and other runs.
    fn run_with(&self, pid: u32, held: bool) -> Option<u64> {
        let View::Run { view, .. } = &self.view else { return None };
        let read = view.read();
        (held || read.processes.iter().any(|(member, _)| *member == pid)).then_some(read.began_ns)
    }
}

/// All runs, then all open pools, that this user can read, by process id.
///
/// # Errors
/// /proc cannot be read.
pub(super) fn find_all() -> anyhow::Result<Vec<Observed>> {
    let mut all: Vec<_> =
        memory_files()?.iter().filter_map(|(name, holders)| open(name, holders).ok()).collect();
    all.sort_by_key(|one| (matches!(one.view, View::Pool(_)), one.pid));
    Ok(all)
}

/// The run of process `pid`, which is the `deepram run` process itself or a process of its program, and the pools that the
/// process has open.
///
/// # Errors
/// There are none, they cannot be read, or they are of another version of deepram.
pub(super) fn find_of(pid: u32) -> anyhow::Result<Vec<Observed>> {
    let (mut runs, mut pools, mut refused) = (Vec::new(), Vec::new(), None);
    for (name, holders) in memory_files()? {
        let held = holders.contains_key(&pid);
        match open(name, &holders) {
            Ok(one) if matches!(one.view, View::Pool(_)) => pools.extend((one.pid == pid).then_some(one)),
            Ok(run) => runs.extend(run.run_with(pid, held).map(|began_ns| (run.pid == pid, began_ns, run))),
            Err(error) if held => refused = Some(error),
            Err(_) => {}
        }
    }
    // A nested run also holds the budgets of the outer runs.
    let run = runs.into_iter().max_by_key(|(is_own, began_ns, _)| (*is_own, *began_ns)).map(|(.., run)| run);
    let found: Vec<_> = run.into_iter().chain(pools).collect();
    match (found.is_empty(), refused) {
        (false, _) => Ok(found),
        (true, Some(error)) => Err(error.context(format!("process {pid}"))),
        (true, None) => {
            bail!(
                "process {pid} has no pool open and belongs to no `deepram run` whose statistics you may read"
            )
        }
    }
}

/// Processes that hold a descriptor of one memory file, each with the path of that descriptor.
type Holders = BTreeMap<u32, PathBuf>;

fn open(name: &str, holders: &Holders) -> anyhow::Result<Observed> {
    let (first, path) = holders.first_key_value().context("no process holds the memory")?;
    // In another PID namespace the maker's id is unknown: the lowest id of its processes stands for it.
    let shown = |maker: u32| if holders.contains_key(&maker) { maker } else { *first };
    if name == POOL_MEMORY_NAME {
        let view = PoolView::open(path)?;
        let pid = shown(view.opener().context("the pool is closed")?);
        return Ok(Observed { pid, view: View::Pool(view) });
    }
    let view = BudgetView::open(path)?;
    let pid = shown(view.creator().context("the run has ended")?);
    Ok(Observed { pid, view: View::Run { command: command(pid), view } })
}

/// The memory files that processes hold, each with its name and its holders.
fn memory_files() -> anyhow::Result<Vec<(&'static str, Holders)>> {
    let mut found: BTreeMap<(u64, u64), (&str, Holders)> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("reading /proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The process has ended or belongs to another user.
        let Ok(descriptors) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        for path in descriptors.flatten().map(|descriptor| descriptor.path()) {
            let named = memory_name(&path).and_then(|name| Some((name, path.metadata().ok()?)));
            let Some((name, data)) = named else { continue };
            let (_, holders) = found.entry((data.dev(), data.ino())).or_insert((name, Holders::new()));
            holders.entry(pid).or_insert(path);
        }
    }
    Ok(found.into_values().collect())
}

/// Name of the memory file, if the descriptor is that of a budget or of a pool's counters.
fn memory_name(descriptor: &Path) -> Option<&'static str> {
    let target = descriptor.read_link().ok()?;
    let name = target.to_str()?.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?;
    [BUDGET_NAME, POOL_MEMORY_NAME].into_iter().find(|known| *known == name)
}

/// Command line of the program: the arguments of the run after `--`, or else the whole command line.
fn command(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let program = words.iter().position(|word| *word == b"--").map_or(0, |at| at + 1);
    let words = words[program..].iter().map(|word| String::from_utf8_lossy(word));
    words.collect::<Vec<_>>().join(" ")
}
