//! `deepram run`: a program with more memory than there is DRAM for it.

mod program;
mod report;

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use deepram_core::Bytes;
use deepram_pool::pager::{self, Policy, SharedBudget};

/// How often the live line is renewed.
const RENEW: Duration = Duration::from_millis(500);
/// How often the program is looked after.
const LOOK: Duration = Duration::from_millis(10);
const LIBRARY: &str = "libdeepram_preload.so";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// DRAM for the program and all processes that it starts, together; half of what is free if not given
    #[arg(long, value_name = "SIZE")]
    dram: Option<Bytes>,
    /// Folder for the rest of its memory: a file system with direct I/O on a fast drive
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    store: PathBuf,
    /// Most that the store may take for each process
    #[arg(long, value_name = "SIZE")]
    store_limit: Option<Bytes>,
    /// Which page leaves when room is needed
    #[arg(long, value_name = "POLICY", default_value = "sieve", value_parser = policy)]
    policy: Policy,
    /// Print what paging did when the program has ended, to the standard error
    #[arg(long, value_name = "FORM", num_args = 0..=1, default_missing_value = "text")]
    stats: Option<Form>,
    /// Show what paging does while the program runs, in one line on the terminal
    #[arg(long)]
    live: bool,
    /// Keep the program's memory under this name: not there yet
    #[arg(long, value_name = "NAME", hide = true)]
    persist: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How figures are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// One object.
    Json,
    /// The text format of Prometheus.
    Prometheus,
}

fn policy(text: &str) -> Result<Policy, String> {
    let found = Policy::ALL.into_iter().find(|policy| policy.name() == text);
    found.ok_or_else(|| format!("known: {}", Policy::ALL.map(Policy::name).join(", ")))
}

/// Ends the process with the program's status, as a shell tells it: 128 and the signal, if it was one.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    if let Some(name) = &args.persist {
        bail!(
            "memory that outlives its program (--persist {name}) is not there yet: `deepram pool` keeps data"
        );
    }
    let program = program::find(&args.command[0])?;
    let library = library()?;
    pager::available().context(
        "memory cannot be paged here: this needs userfaultfd with write protection (Linux 5.7), and the right \
         to use it: root, CAP_SYS_PTRACE, `sysctl vm.unprivileged_userfaultfd=1`, or read and write access to \
         /dev/userfaultfd",
    )?;
    let dram = match args.dram {
        Some(dram) => dram.0,
        None => free_memory()? / 2,
    };
    if dram < 16 << 20 {
        bail!("--dram {dram} B is too little to run a program with: at least 16MiB");
    }
    if !args.store.is_dir() {
        bail!("--store {}: no such folder", args.store.display());
    }
    let (budget, memory) = SharedBudget::create().context("making room for the shared budget")?;
    let mut command = Command::new(&program);
    command.args(&args.command[1..]);
    command.env("LD_PRELOAD", preloaded(&library));
    command.env("DEEPRAM_RUN_DRAM", dram.to_string());
    command.env("DEEPRAM_RUN_STORE", std::fs::canonicalize(&args.store)?);
    command.env("DEEPRAM_RUN_POLICY", args.policy.name());
    command.env("DEEPRAM_RUN_SHARED", format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()));
    if let Some(limit) = args.store_limit {
        command.env("DEEPRAM_RUN_LIMIT", limit.0.to_string());
    }
    let signals = Signals::watch()?;
    let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    let status = wait(child, &signals, budget, dram, args.live)?;
    budget.reap();
    if let Some(form) = args.stats {
        report::print(budget, dram, form);
    }
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
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

fn wait(
    mut child: Child,
    signals: &Signals,
    budget: &SharedBudget,
    dram: u64,
    live: bool,
) -> anyhow::Result<ExitStatus> {
    let mut line = live.then(|| report::Live::new(dram));
    let mut until = RENEW;
    loop {
        if let Some(status) = child.try_wait()? {
            if let Some(line) = line {
                line.end();
            }
            return Ok(status);
        }
        std::thread::sleep(LOOK);
        signals.pass_on(&child);
        until = until.saturating_sub(LOOK);
        if until.is_zero()
            && let Some(line) = &mut line
        {
            line.renew(budget);
            until = RENEW;
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

/// Bytes that the machine could give to programs now.
fn free_memory() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("/proc/meminfo tells no MemAvailable; give --dram")? << 10)
}
