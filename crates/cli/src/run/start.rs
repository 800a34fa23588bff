//! Starts a program with the preload library, which pages its memory, and waits for its end.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use deepram_core::Bytes;
use deepram_pager::{self as pager, Heuristic, PagerPolicy, SharedBudget};

use super::cgroup_limit::{self, CgroupLimit};
use super::signals::run_to_end;
use super::stats::StatsSource;
use super::{StatsFormat, program};
use crate::cgroups;

/// Interval of the live line, of the cgroup limit, and of the search for members that were killed.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);
/// Smallest DRAM budget, bytes.
const LEAST: u64 = 16 << 20;
/// Smallest limit for all memory, bytes.
const LEAST_MEMORY: u64 = 2 * LEAST;
const LIBRARY: &str = "libdeepram_preload.so";
/// Optional settings of the library, removed from the environment so that an outer run does not set them.
const OPTIONAL: [&str; 7] = [
    "DEEPRAM_RUN_LIMIT",
    "DEEPRAM_RUN_RECORD",
    "DEEPRAM_RUN_RECORD_ACCESSES",
    "DEEPRAM_RUN_WITHOUT",
    "DEEPRAM_RUN_BOUND_CODE",
    "DEEPRAM_RUN_MEDIA",
    "DEEPRAM_RUN_MEDIA_BUS",
];
/// All settings of the library that concern paging.
pub(super) const PAGING_VARIABLES: [&str; 10] = [
    "DEEPRAM_RUN_DRAM",
    "DEEPRAM_RUN_STORE",
    "DEEPRAM_RUN_POLICY",
    "DEEPRAM_RUN_SHARED",
    "DEEPRAM_RUN_MAIN",
    "DEEPRAM_RUN_LIMIT",
    "DEEPRAM_RUN_RECORD",
    "DEEPRAM_RUN_RECORD_ACCESSES",
    "DEEPRAM_RUN_WITHOUT",
    "DEEPRAM_RUN_BOUND_CODE",
];

/// The program and the options of its paging.
#[derive(Debug, Args)]
pub(crate) struct PagingArgs {
    /// DRAM budget that the program and all its descendants share, at least 16MiB [default: half of the free memory, within
    /// the limits of cgroups]
    #[arg(long, value_name = "SIZE", value_parser = dram)]
    dram: Option<Bytes>,
    /// Memory of the program and all its descendants together, page cache and memory of the kernel included, at least 32MiB.
    /// Paged memory and page cache divide it as the program needs. Needs the right to create a memory cgroup
    #[arg(long, value_name = "SIZE", value_parser = memory, conflicts_with = "dram")]
    memory: Option<Bytes>,
    /// Folder for the swap files, on a file system with direct I/O on a fast drive
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    store: PathBuf,
    /// Largest swap file of each process
    #[arg(long, value_name = "SIZE")]
    store_limit: Option<Bytes>,
    /// Replacement policy, which chooses the victim pages
    #[arg(long, value_name = "POLICY", default_value = PagerPolicy::default().name())]
    policy: PagerPolicy,
    /// Turn a heuristic of the pager off; may be given again
    #[arg(long, value_name = "HEURISTIC", hide = true)]
    without: Vec<Heuristic>,
    /// Print paging statistics to standard error when the program has ended: text (ten main values), full, json or prometheus
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "text")]
    pub(crate) stats: Option<StatsFormat>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// What the processes of a run record, and where.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Folder for a file of each process.
    pub(crate) folder: &'a Path,
    /// Whether nearly all uses of pages are recorded, and not only the faults that paging needs.
    pub(crate) accesses: bool,
}

/// A program that is ready to start.
pub(crate) struct PreparedProgram {
    command: Command,
    budget: &'static SharedBudget,
    /// Descriptor by which the program inherits the budget.
    inherited: i32,
    limit: CgroupLimit,
    name: String,
}

impl PreparedProgram {
    /// Checks program, options and machine, and creates the budget. With a `record`, each process records its page faults.
    ///
    /// # Errors
    /// The program cannot run under the library, or this machine does not allow paging; the message gives the reason.
    pub(crate) fn new(paging: &PagingArgs, record: Option<Record<'_>>) -> anyhow::Result<Self> {
        let program = program::find(&paging.command[0])?;
        let library = library()?;
        pager::available().context(
            "deepram cannot page memory on this machine: it needs userfaultfd with write protection (Linux 5.7), and the \
             right to use it: root, CAP_SYS_PTRACE, `sysctl vm.unprivileged_userfaultfd=1`, or read and write access to \
             /dev/userfaultfd",
        )?;
        let store = paging.store.display();
        ensure!(paging.store.is_dir(), "--store {store}: no such folder");
        ensure!(
            !pager::is_in_memory(&paging.store).with_context(|| format!("--store {store}"))?,
            "--store {store} is in memory (tmpfs): evicted pages would stay in DRAM; give a folder on a drive"
        );
        let dram = match paging.dram.or(paging.memory) {
            Some(size) => size.0,
            None => free_memory()? / 2,
        };
        ensure!(
            dram >= LEAST,
            "half of the free memory is {}, less than the smallest budget of 16MiB: free some memory, or give --dram of \
             at least 16MiB",
            Bytes(dram)
        );
        let dram = reserve_in_outer_run(dram)?;
        let budget = SharedBudget::create(dram).context("creating the shared budget")?;
        let inherited = budget.inherit().context("letting the program inherit the shared budget")?;
        let limit = match paging.memory {
            Some(memory) => CgroupLimit::of_memory(dram, budget)
                .with_context(|| format!("--memory {memory} needs a memory cgroup; --dram does without"))?,
            None => CgroupLimit::of_dram(dram),
        };
        let mut whole = vec![program.into_os_string()];
        whole.extend_from_slice(&paging.command[1..]);
        let cgroup = limit.path();
        let mut command = cgroup_limit::command(cgroup.as_deref(), &ld_preload(&library), &whole)
            .context("finding this command")?;
        for name in OPTIONAL {
            command.env_remove(name);
        }
        command.env("DEEPRAM_RUN_DRAM", dram.to_string());
        command.env("DEEPRAM_RUN_STORE", std::fs::canonicalize(&paging.store)?);
        command.env("DEEPRAM_RUN_POLICY", paging.policy.name());
        command.env("DEEPRAM_RUN_SHARED", format!("/proc/{}/fd/{}", std::process::id(), inherited));
        if let Some(most) = paging.store_limit {
            command.env("DEEPRAM_RUN_LIMIT", most.0.to_string());
        }
        if paging.memory.is_some() {
            command.env("DEEPRAM_RUN_BOUND_CODE", "1");
        }
        if !paging.without.is_empty() {
            let names: Vec<&str> = paging.without.iter().map(|heuristic| heuristic.name()).collect();
            command.env("DEEPRAM_RUN_WITHOUT", names.join(","));
        }
        if let Some(Record { folder, accesses }) = record {
            command.env("DEEPRAM_RUN_RECORD", folder);
            if accesses {
                command.env("DEEPRAM_RUN_RECORD_ACCESSES", "1");
            }
        }
        let words: Vec<_> = paging.command.iter().map(|word| word.to_string_lossy()).collect();
        Ok(Self { command, budget, inherited, limit, name: words.join(" ") })
    }

    /// Reads the statistics of the run, also after its end.
    pub(crate) fn stats_source(&self) -> StatsSource {
        StatsSource::new(self.budget, self.name.clone())
    }

    /// Starts the program and waits for its end. Calls `on_update` every [`UPDATE_INTERVAL`] meanwhile.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn run(mut self, mut on_update: impl FnMut()) -> anyhow::Result<ExitStatus> {
        let mut updated = Instant::now();
        let status = run_to_end(&mut self.command, || {
            self.limit.measure(self.budget);
            if updated.elapsed() >= UPDATE_INTERVAL {
                self.budget.reap();
                self.limit.update(self.budget, self.inherited);
                on_update();
                updated = Instant::now();
            }
        })?;
        self.budget.reap();
        self.limit.report_kills();
        Ok(status)
    }
}

/// Exit status of the program as a shell gives it: 128 plus the signal's number if a signal ended the program.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Parses a DRAM budget.
fn dram(text: &str) -> Result<Bytes, String> {
    at_least(LEAST, "a DRAM budget is at least 16MiB", text)
}

/// Parses a limit for all memory.
fn memory(text: &str) -> Result<Bytes, String> {
    at_least(LEAST_MEMORY, "a program and its files need at least 32MiB", text)
}

/// Parses a size of at least `least` bytes; a smaller one is an error with the text `why`.
fn at_least(least: u64, why: &str, text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size.0 >= least { Ok(size) } else { Err(why.into()) }
}

/// Within an outer run, reserves the budget of this run in the outer budget and returns it, reduced to three quarters of the
/// unreserved budget. Without an outer run, returns `dram`.
fn reserve_in_outer_run(dram: u64) -> anyhow::Result<u64> {
    let Some(path) = std::env::var_os("DEEPRAM_RUN_SHARED") else { return Ok(dram) };
    // The outer run is of another version; its cgroup bounds this run.
    let Ok(outer) = SharedBudget::open(Path::new(&path)) else { return Ok(dram) };
    // The outer run keeps a quarter for its other processes.
    let most = outer.unreserved() / 4 * 3;
    ensure!(
        most >= LEAST,
        "the outer run has {} of its DRAM budget left for this run, which needs at least 16MiB",
        Bytes(most)
    );
    if dram > most {
        eprintln!(
            "deepram: the DRAM budget of this run is reduced from {} to {}, three quarters of the unreserved budget of the \
             outer run",
            Bytes(dram),
            Bytes(most)
        );
    }
    let dram = dram.min(most);
    ensure!(outer.reserve(dram), "the outer run has no room for another budget member");
    Ok(dram)
}

/// Path of the preload library: beside this executable, or in its place of installation.
pub(super) fn library() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("finding this command")?;
    let folder = here.parent().unwrap_or(Path::new("."));
    let paths = [folder.join(LIBRARY), folder.join("../lib/deepram").join(LIBRARY)];
    let found = paths.iter().find(|path| path.is_file());
    let Some(found) = found else {
        bail!(
            "{LIBRARY} is neither in {} nor in {}: `cargo build -p deepram-preload` or `make install` creates it",
            folder.display(),
            folder.join("../lib/deepram").display()
        );
    };
    Ok(std::fs::canonicalize(found)?)
}

/// LD_PRELOAD of the program: the library, then the libraries that the user preloads.
pub(super) fn ld_preload(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Free memory of the machine, bytes, reduced to the room that the cgroups of this process leave.
fn free_memory() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let machine = kib.context("/proc/meminfo has no line MemAvailable; give --dram")? << 10;
    Ok(cgroups::available().map_or(machine, |limit| limit.min(machine)))
}

/// Within an outer run, executes this command again without the outer run's library: this command must not be paged, and it
/// reserves part of the outer budget for its own program.
///
/// # Errors
/// This executable cannot be executed again.
pub(crate) fn leave_outer_run() -> anyhow::Result<()> {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let parts =
        preloaded.as_bytes().split(|byte| matches!(byte, b':' | b' ')).filter(|part| !part.is_empty());
    let is_library = |part: &&[u8]| Path::new(OsStr::from_bytes(part)).ends_with(LIBRARY);
    let (ours, others): (Vec<&[u8]>, Vec<&[u8]>) = parts.partition(is_library);
    let in_run =
        ["DEEPRAM_RUN_SHARED", "DEEPRAM_RUN_MEDIA"].iter().any(|name| std::env::var_os(name).is_some());
    if ours.is_empty() || !in_run {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe().context("finding this command")?);
    again.args(std::env::args_os().skip(1)).env("LD_PRELOAD", OsStr::from_bytes(&others.join(&b':')));
    Err(again.exec()).context("executing this command again without the library of the outer run")
}
