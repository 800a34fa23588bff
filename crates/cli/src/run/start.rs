//! Starting a program with the library that pages its memory, and waiting for it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use deepram_core::Bytes;
use deepram_pool::pager::{self, Policy, SharedBudget};

use super::reading::Source;
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
    /// DRAM for the program and all processes that it starts, together; half of what is free if not
    /// given, within the limits of cgroups
    #[arg(long, value_name = "SIZE")]
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
    /// Print what paging did when the program has ended, to the standard error
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
        let dram = match paging.dram {
            Some(dram) => dram.0,
            None => free_memory()? / 2,
        };
        if dram < LEAST {
            match paging.dram {
                Some(_) => bail!("--dram {dram} B is too little to run a program with: at least 16MiB"),
                None => bail!(
                    "half of what is free here, {dram} B, is too little to run a program with: free some, or give \
                     --dram, at least 16MiB"
                ),
            }
        }
        if !paging.store.is_dir() {
            bail!("--store {}: no such folder", paging.store.display());
        }
        let budget = SharedBudget::create(dram).context("making room for the shared budget")?;
        let inherited = budget.inherit().context("leaving the shared budget to the program")?;
        let mut command = Command::new(&program);
        command.args(&paging.command[1..]);
        for name in OPTIONAL {
            command.env_remove(name);
        }
        command.env("LD_PRELOAD", preloaded(&library));
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
        Ok(Self { command, budget, name: words.join(" ") })
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
        let signals = Signals::watch()?;
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("starting {}", Path::new(self.command.get_program()).display()))?;
        let mut renewed = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            std::thread::sleep(LOOK);
            signals.pass_on(&child);
            if renewed.elapsed() >= RENEW {
                self.budget.reap();
                each();
                renewed = Instant::now();
            }
        };
        self.budget.reap();
        Ok(status)
    }
}

/// The status as a shell tells it: 128 and the signal, if it was one.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Those that the program decides about: sent to both by a terminal, or to be passed on.
struct Signals {
    terminate: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    fn watch() -> anyhow::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        let (terminate, hang_up) = (Arc::default(), Arc::default());
        for signal in [SIGINT, SIGQUIT] {
            // The terminal sends them to the program as well; this process waits for what it does.
            signal_hook::flag::register(signal, Arc::default())?;
        }
        signal_hook::flag::register(SIGTERM, Arc::clone(&terminate))?;
        signal_hook::flag::register(SIGHUP, Arc::clone(&hang_up))?;
        Ok(Self { terminate, hang_up })
    }

    fn pass_on(&self, child: &Child) {
        let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) else { return };
        for (came, signal) in
            [(&self.terminate, rustix::process::Signal::TERM), (&self.hang_up, rustix::process::Signal::HUP)]
        {
            if came.swap(false, Ordering::Relaxed) {
                // It may have ended just now.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }
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
