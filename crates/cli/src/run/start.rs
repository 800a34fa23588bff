//! Starting a program with the library that pages its memory, and waiting for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use deepram_core::Bytes;
use deepram_pool::pager::{self, Policy, SharedBudget};

use super::bound::{self, Bound};
use super::reading::Source;
use super::signals::Signals;
use super::{Form, program};
use crate::cgroups;

/// How often what is shown is renewed, and processes are missed that have ended without a word.
const RENEW: Duration = Duration::from_millis(500);
/// How often the program is looked after.
const LOOK: Duration = Duration::from_millis(10);
/// Least DRAM to run a program with.
const LEAST: u64 = 16 << 20;
const LIBRARY: &str = "libdeepram_preload.so";
/// What the library is asked for by; those not set here are not to come from a run outside.
const OPTIONAL: [&str; 2] = ["DEEPRAM_RUN_LIMIT", "DEEPRAM_RUN_RECORD"];

/// What program is run, and how its memory is paged.
#[derive(Debug, Args)]
pub(crate) struct Paging {
    /// DRAM for the program and all processes that it starts, together, at least 16MiB; half of what is free if not
    /// given, within the limits of cgroups
    #[arg(long, value_name = "SIZE", value_parser = dram)]
    dram: Option<Bytes>,
    /// Folder for the rest of its memory: a file system with direct I/O on a fast drive
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    store: PathBuf,
    /// Most that the store may take for each process
    #[arg(long, value_name = "SIZE")]
    store_limit: Option<Bytes>,
    /// Which page leaves when room is needed
    #[arg(long, value_name = "POLICY", default_value = Policy::default().name())]
    policy: Policy,
    /// Print what paging did when the program has ended, to the standard error: the figures that matter most, `full` for all
    #[arg(long, value_name = "FORM", num_args = 0..=1, default_missing_value = "text")]
    pub(crate) stats: Option<Form>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A program that can be started.
pub(crate) struct Prepared {
    command: Command,
    budget: &'static SharedBudget,
    /// The number by which the program inherits the budget.
    inherited: i32,
    bound: Bound,
    name: String,
}

impl Prepared {
    /// Checks everything that can be checked. With a folder for it, each process records its page faults.
    ///
    /// # Errors
    /// The program cannot be run so, or memory cannot be paged here: the message says why.
    pub(crate) fn new(paging: &Paging, record: Option<&Path>) -> anyhow::Result<Self> {
        let program = program::find(&paging.command[0])?;
        let library = library()?;
        pager::available().context(
            "memory cannot be paged here: this needs userfaultfd with write protection (Linux 5.7), and the right \
             to use it: root, CAP_SYS_PTRACE, `sysctl vm.unprivileged_userfaultfd=1`, or read and write access to \
             /dev/userfaultfd",
        )?;
        let store = paging.store.display();
        ensure!(paging.store.is_dir(), "--store {store}: no such folder");
        ensure!(
            !pager::is_in_memory(&paging.store).with_context(|| format!("--store {store}"))?,
            "--store {store} is in memory (tmpfs): what leaves DRAM would stay in it; give a folder on a drive"
        );
        let dram = match paging.dram {
            Some(dram) => dram.0,
            None => free_memory()? / 2,
        };
        ensure!(
            dram >= LEAST,
            "half of what is free here, {}, is too little to run a program with: free some, or give --dram, at least \
             16MiB",
            Bytes(dram)
        );
        let dram = within_outer(dram)?;
        let budget = SharedBudget::create(dram).context("making room for the shared budget")?;
        let inherited = budget.inherit().context("leaving the shared budget to the program")?;
        let bound = Bound::new(dram);
        let mut whole = vec![program.into_os_string()];
        whole.extend_from_slice(&paging.command[1..]);
        let place = bound.place();
        let mut command =
            bound::command(place.as_deref(), &preloaded(&library), &whole).context("finding this command")?;
        for name in OPTIONAL {
            command.env_remove(name);
        }
        command.env("DEEPRAM_RUN_DRAM", dram.to_string());
        command.env("DEEPRAM_RUN_STORE", std::fs::canonicalize(&paging.store)?);
        command.env("DEEPRAM_RUN_POLICY", paging.policy.name());
        command.env("DEEPRAM_RUN_SHARED", format!("/proc/{}/fd/{}", std::process::id(), inherited));
        if let Some(limit) = paging.store_limit {
            command.env("DEEPRAM_RUN_LIMIT", limit.0.to_string());
        }
        if let Some(folder) = record {
            command.env("DEEPRAM_RUN_RECORD", folder);
        }
        let words: Vec<_> = paging.command.iter().map(|word| word.to_string_lossy()).collect();
        Ok(Self { command, budget, inherited, bound, name: words.join(" ") })
    }

    /// Where readings of it come from, before, while and after it runs.
    pub(crate) fn source(&self) -> Source {
        Source::new(self.budget, self.name.clone())
    }

    /// Starts the program, waits for its end, and calls `each` now and then meanwhile.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn run(mut self, mut each: impl FnMut()) -> anyhow::Result<ExitStatus> {
        let mut signals = Signals::watch()?;
        let mut child = self.command.spawn().context("starting the program")?;
        let mut renewed = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            std::thread::sleep(LOOK);
            signals.pass_on(&child);
            if renewed.elapsed() >= RENEW {
                self.budget.reap();
                self.bound.renew(self.budget, self.inherited);
                each();
                renewed = Instant::now();
            }
        };
        self.budget.reap();
        self.bound.end();
        Ok(status)
    }
}

/// The status as a shell tells it: 128 and the signal, if it was one.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The DRAM that a program is given.
fn dram(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size.0 >= LEAST { Ok(size) } else { Err("too little to run a program with: at least 16MiB".into()) }
}

/// Of so much DRAM, as much as the run has that this one is in, if there is one; it is taken away from that.
fn within_outer(dram: u64) -> anyhow::Result<u64> {
    let Some(path) = std::env::var_os("DEEPRAM_RUN_SHARED") else { return Ok(dram) };
    // A run of another version; the cgroup of that one holds this one too.
    let Ok(outer) = SharedBudget::open(Path::new(&path)) else { return Ok(dram) };
    // The rest is for the processes around this run.
    let most = outer.unreserved() / 4 * 3;
    ensure!(
        most >= LEAST,
        "the run that this one is in has {} of DRAM left for runs in it, and a run wants at least 16MiB",
        Bytes(most)
    );
    if dram > most {
        eprintln!(
            "deepram: of {} of DRAM this run has {}: three quarters of what is left of the run that it is in",
            Bytes(dram),
            Bytes(most)
        );
    }
    let dram = dram.min(most);
    ensure!(outer.reserve(dram), "the run that this one is in has as many processes as there can be");
    Ok(dram)
}

/// The library that is loaded into the program: beside this command, or where it is installed.
fn library() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("finding this command")?;
    let beside = here.parent().unwrap_or(Path::new("."));
    let places = [beside.join(LIBRARY), beside.join("../lib/deepram").join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file());
    let Some(found) = found else {
        bail!(
            "{LIBRARY} is neither in {} nor in {}: `cargo build -p deepram-preload` or `make install` puts it there",
            beside.display(),
            beside.join("../lib/deepram").display()
        );
    };
    Ok(std::fs::canonicalize(found)?)
}

fn preloaded(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Bytes that this process could have now: what the machine has, as far as limits of cgroups allow.
fn free_memory() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let machine = kib.context("/proc/meminfo tells no MemAvailable; give --dram")? << 10;
    Ok(cgroups::left().map_or(machine, |left| left.min(machine)))
}

/// Within a run this command begins anew without the library of that one: it is not to be paged itself, and holds a place in
/// that one's budget for its own program.
///
/// # Errors
/// It cannot be started again.
pub(crate) fn leave_outer() -> anyhow::Result<()> {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let parts =
        preloaded.as_bytes().split(|byte| matches!(byte, b':' | b' ')).filter(|part| !part.is_empty());
    let is_library = |part: &&[u8]| Path::new(OsStr::from_bytes(part)).ends_with(LIBRARY);
    let (ours, others): (Vec<&[u8]>, Vec<&[u8]>) = parts.partition(is_library);
    if ours.is_empty() || std::env::var_os("DEEPRAM_RUN_SHARED").is_none() {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe().context("finding this command")?);
    again.args(std::env::args_os().skip(1)).env("LD_PRELOAD", OsStr::from_bytes(&others.join(&b':')));
    Err(again.exec()).context("starting this command without the library of the run around it")
}
