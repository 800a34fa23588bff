//! `deepram bench gups|zipf|scan|gather`: memory larger than DRAM, with each backend that can provide it.
//!
//! Each peer runs in a process of its own, in a memory cgroup. The cgroup limits peers that the kernel pages to the
//! DRAM and a constant for the process. Deepram's peers get the DRAM as their budget; their cgroup is a little larger
//! and shows that they keep it. The peers take turns, A B C A B C, so that other load on the machine affects all of
//! them alike. Each round also measures the device, whose rate bounds every peer. Ratios are taken within rounds.
//!
//! Processes, cgroups, swap files and data are removed at the end, also after an error or a signal: the value that
//! owns each of them removes it when it is dropped.

mod device;
mod report;
mod stop_signals;
mod worker;
mod workload;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use deepram_core::Bytes;
use deepram_pager::PagerPolicy;
use deepram_peers::SwapFile;
use serde::{Deserialize, Serialize};

use self::device::Device;
use self::stop_signals::StopSignals;
use self::worker::{Measurement, RunLength, Task, WorkerOutcome};
pub(super) use self::workload::Workload;
use super::{OutputArgs, Report, Scratch};
use crate::cgroups::Group;
use crate::output::progress;

pub(crate) use worker::{WorkerArgs, run as worker};

/// Memory of a process besides its data and their page tables, bytes: program, stacks, tables of the workload.
const PROGRAM: u64 = 4 << 20;
/// Bytes of data per byte of page tables.
const PAGE_TABLES: u64 = 512;
/// Limit of the cgroup of a pager or pool above its budget, bytes.
const CGROUP_HEADROOM: u64 = 64 << 20;
/// Size of the swap file above that of the data, bytes.
const SPARE_SWAP: u64 = 64 << 20;
/// Unit of the size of the data, bytes.
const PAGE: u64 = 4096;
/// Interval at which the end of a worker is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Backends of memory that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::bench) enum Peer {
    /// Anonymous memory under the pager of `deepram run`
    Pager,
    /// Mapped deepram pool, synced after the fill
    Pool,
    /// The same pool, read by calls at byte grain (load, gather) with promotion of hot segments
    PoolLoad,
    /// The same pool, read by calls without promotion
    PoolLoadUnpromoted,
    /// Shared mapping of a file
    Mmap,
    /// Shared mapping of a file with MADV_RANDOM
    MmapRandom,
    /// Anonymous memory with a swap file
    Swap,
    /// Anonymous memory without a limit
    Plain,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Pager => "pager",
            Self::Pool => "pool",
            Self::PoolLoad => "pool-load",
            Self::PoolLoadUnpromoted => "pool-load-unpromoted",
            Self::Mmap => "mmap",
            Self::MmapRandom => "mmap-random",
            Self::Swap => "swap",
            Self::Plain => "plain",
        }
    }

    /// Limit of its cgroup, bytes, and whether the peer may also run without a cgroup. `None`: no limit.
    fn limit(self, size: u64, dram: u64) -> Option<(u64, bool)> {
        match self {
            Self::Pager | Self::Pool | Self::PoolLoad | Self::PoolLoadUnpromoted => {
                Some((dram + CGROUP_HEADROOM, true))
            }
            Self::Mmap | Self::MmapRandom | Self::Swap => Some((dram + size / PAGE_TABLES + PROGRAM, false)),
            Self::Plain => None,
        }
    }
}

/// Options of `deepram bench gups`.
#[derive(Debug, Args)]
pub(crate) struct GupsArgs {
    #[command(flatten)]
    memory: MemoryArgs,
    /// Uniform reads instead of updates
    #[arg(long)]
    read: bool,
}

impl GupsArgs {
    pub(super) fn dir(&self) -> &Path {
        &self.memory.dir
    }

    pub(super) fn output(&self) -> &OutputArgs {
        &self.memory.output
    }
}

/// Options of all memory benches.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Backends to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PEER,...",
        default_value = "pager,pool,mmap,mmap-random,swap"
    )]
    peers: Vec<Peer>,
    /// Size of the data
    #[arg(long, default_value = "2GiB", value_name = "SIZE")]
    size: Bytes,
    /// DRAM of each backend
    #[arg(long, default_value = "512MiB", value_name = "SIZE")]
    dram: Bytes,
    /// Threads that load and store
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Length of each measurement, seconds
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    /// Length of each measurement as a number of accesses
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    accesses: Option<u64>,
    /// Length of the warm-up, in seconds or, with --accesses, accesses [default: half of the measurement]
    #[arg(long, value_name = "S|N")]
    warmup: Option<f64>,
    /// Number of rounds
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Folder for the files, on the device to be measured
    #[arg(long, default_value = ".", value_name = "PATH")]
    pub(super) dir: PathBuf,
    /// Replacement policy of the pager: s3fifo, fifo, lru, sieve, clock2, gclock or sweep
    #[arg(long, default_value = PagerPolicy::default().name(), value_name = "POLICY")]
    policy: String,
    /// Do not time single accesses: for data that fits in DRAM, where reading the clock takes as long as an access
    #[arg(long)]
    no_latency: bool,
    /// Do not announce the elements of a gather
    #[arg(long)]
    no_hints: bool,
    /// Length of each device measurement in each round, seconds
    #[arg(long, default_value_t = 0.5, value_name = "S")]
    device_seconds: f64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Measurements of one peer in all rounds.
struct PeerRuns {
    peer: Peer,
    rounds: Vec<Measurement>,
    /// Reason why this machine cannot run the peer.
    skipped: Option<String>,
    /// Error that ended its measurements.
    failed: Option<String>,
    /// A difference from the intended conditions, such as a missing cgroup.
    note: Option<String>,
}

pub(super) fn gups(args: &GupsArgs) -> anyhow::Result<Report> {
    run(&args.memory, if args.read { Workload::Reads } else { Workload::Updates })
}

pub(super) fn zipf(args: &MemoryArgs) -> anyhow::Result<Report> {
    run(args, Workload::Zipf)
}

pub(super) fn rows(args: &MemoryArgs) -> anyhow::Result<Report> {
    run(args, Workload::Rows)
}

pub(super) fn scan(args: &MemoryArgs) -> anyhow::Result<Report> {
    run(args, Workload::Scan)
}

pub(super) fn gather(args: &MemoryArgs) -> anyhow::Result<Report> {
    run(args, Workload::Gather)
}

fn usage(text: String) -> anyhow::Error {
    crate::Usage(text).into()
}

/// Checks the options beyond what clap checks.
fn check(args: &MemoryArgs) -> anyhow::Result<()> {
    let least = (16 << 20).max(PAGE * u64::from(args.threads));
    if args.size.0 < least || !args.size.0.is_multiple_of(PAGE) {
        return Err(usage(format!(
            "--size {}: expected a multiple of 4 KiB, at least {}",
            args.size,
            Bytes(least)
        )));
    }
    if args.dram.0 < 8 << 20 {
        return Err(usage(format!("--dram {}: expected at least 8 MiB", args.dram)));
    }
    let times = [("--seconds", args.seconds), ("--device-seconds", args.device_seconds)];
    for (name, seconds) in times {
        if !(seconds > 0.0 && seconds <= 86_400.0) {
            return Err(usage(format!("{name} {seconds}: expected more than 0, at most 86400")));
        }
    }
    if args.warmup.is_some_and(|n| !(n >= 0.0 && (n <= 86_400.0 || args.accesses.is_some()))) {
        return Err(usage("--warmup: expected 0 to 86400 seconds".into()));
    }
    args.policy.parse::<PagerPolicy>().map(drop).map_err(|error| usage(format!("--policy {error}")))
}

fn run(args: &MemoryArgs, workload: Workload) -> anyhow::Result<Report> {
    check(args)?;
    let signals = StopSignals::install()?;
    let scratch = Scratch::new(&args.dir).with_context(|| args.dir.display().to_string())?;
    let bar = progress("measuring the device");
    let updates = workload == Workload::Updates;
    let mut device = Device::create(scratch.file("device"), args.size.0, args.threads, updates, &signals)?;
    let mut entries: Vec<PeerRuns> = args
        .peers
        .iter()
        .map(|&peer| PeerRuns { peer, rounds: Vec::new(), skipped: None, failed: None, note: None })
        .collect();
    for round in 1..=args.repeats {
        bar.set_message("measuring the device");
        device.round(Duration::from_secs_f64(args.device_seconds), &signals)?;
        for entry in entries.iter_mut().filter(|entry| entry.skipped.is_none() && entry.failed.is_none()) {
            signals.check()?;
            bar.set_message(format!("{}, {round} of {}", entry.peer.name(), args.repeats));
            // Each run has a folder of its own, removed before the next run.
            let dir = scratch.file(entry.peer.name());
            std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
            let outcome = run_peer(args, workload, entry, &dir, &signals);
            std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
            signals.check()?;
            match outcome {
                Ok(WorkerOutcome::Measured(measurement)) => entry.rounds.push(measurement),
                Ok(WorkerOutcome::Skipped(reason)) => entry.skipped = Some(reason),
                // The measurements of the other peers continue.
                Err(error) => entry.failed = Some(format!("{error:#}")),
            }
        }
    }
    bar.finish_and_clear();
    let mut report = report::report(args, workload, &entries, &device)?;
    let failed: Vec<String> = entries
        .iter()
        .filter_map(|entry| Some(format!("{}: {}", entry.peer.name(), entry.failed.as_deref()?)))
        .collect();
    report.failure = (!failed.is_empty()).then(|| failed.join("; "));
    Ok(report)
}

/// Runs one peer once.
fn run_peer(
    args: &MemoryArgs,
    workload: Workload,
    entry: &mut PeerRuns,
    dir: &Path,
    signals: &StopSignals,
) -> anyhow::Result<WorkerOutcome> {
    let peer = entry.peer;
    let mut group = None;
    if let Some((bytes, may_do_without)) = peer.limit(args.size.0, args.dram.0) {
        let name = format!("bench-{}-{}", std::process::id(), peer.name());
        match Group::create(&name, bytes, peer == Peer::Swap) {
            Ok(made) => group = Some(made),
            Err(error) if may_do_without => {
                entry.note = Some(format!("ran without a memory cgroup: {error:#}"))
            }
            Err(error) => return Ok(WorkerOutcome::Skipped(format!("{error:#}"))),
        }
    }
    // The swap file exists for this run only, so that the kernel does not swap out other peers.
    let swap = match peer {
        Peer::Swap => match SwapFile::create(&dir.join("swap"), args.size.0 + SPARE_SWAP) {
            Ok(swap) => Some(swap),
            Err(error) => return Ok(WorkerOutcome::Skipped(format!("no swap file: {error}"))),
        },
        _ => None,
    };
    let share = |n: u64| n.div_ceil(u64::from(args.threads));
    let (measured, warmup) = match (args.accesses, args.warmup) {
        (Some(n), None) => (RunLength::Accesses(share(n)), RunLength::Accesses(share(n / 2))),
        (Some(n), Some(warmup)) => (RunLength::Accesses(share(n)), RunLength::Accesses(share(warmup as u64))),
        (None, warmup) => {
            (RunLength::Seconds(args.seconds), RunLength::Seconds(warmup.unwrap_or(args.seconds / 2.0)))
        }
    };
    let task = Task {
        peer,
        workload,
        size: args.size.0,
        dram: args.dram.0,
        threads: args.threads,
        warmup,
        measured,
        latency: !args.no_latency,
        hints: !args.no_hints,
        seed: args.seed,
        policy: args.policy.clone(),
        without: None,
        dir: std::fs::canonicalize(dir)?,
        parent: std::process::id(),
        group: group.as_ref().map(|group| group.process_path()),
    };
    let mut outcome = run_worker(&task, signals)?;
    if let WorkerOutcome::Measured(measurement) = &mut outcome {
        measurement.peak_bytes = group.as_ref().and_then(Group::peak_bytes);
    }
    // The process has ended, so the swap file is empty and is removed quickly.
    swap.map(SwapFile::off).transpose().context("turning swap off")?;
    Ok(outcome)
}

/// The words that start a worker on `size` bytes of memory with `dram` bytes of DRAM, for `deepram bench ablate`; `without`: a
/// heuristic of the pool that is turned off.
pub(super) fn worker_words(
    peer: Peer,
    (size, dram): (u64, u64),
    (workload, threads): (Workload, u32),
    seconds: f64,
    dir: &Path,
    without: Option<String>,
) -> anyhow::Result<[String; 3]> {
    let task = Task {
        peer,
        workload,
        size,
        dram,
        threads,
        warmup: RunLength::Seconds(seconds / 2.0),
        measured: RunLength::Seconds(seconds),
        latency: false,
        hints: false,
        seed: 1,
        policy: PagerPolicy::default().name().into(),
        without,
        dir: dir.to_path_buf(),
        parent: 0,
        group: None,
    };
    Ok(["bench".into(), "memory-worker".into(), serde_json::to_string(&task)?])
}

/// Seconds of an access, from what such a worker printed.
pub(super) fn seconds_per_access(output: &str) -> anyhow::Result<f64> {
    match serde_json::from_str(output)
        .with_context(|| format!("unexpected output of the worker: {output:?}"))?
    {
        WorkerOutcome::Measured(run) => Ok(run.seconds / run.accesses.max(1) as f64),
        WorkerOutcome::Skipped(reason) => bail!("{reason}"),
    }
}

/// A worker process. Dropping this value kills the process.
struct WorkerProcess(Child);

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // The process may have ended already; a second wait is harmless.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a task in a process of its own and returns its outcome.
fn run_worker(task: &Task, signals: &StopSignals) -> anyhow::Result<WorkerOutcome> {
    let own = std::env::current_exe().context("finding this executable")?;
    let child = Command::new(own)
        .args(["bench", "memory-worker"])
        .arg(serde_json::to_string(task)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting a worker process")?;
    let mut process = WorkerProcess(child);
    let (out, err) = (drain(process.0.stdout.take()), drain(process.0.stderr.take()));
    let status = loop {
        signals.check()?;
        match process.0.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(POLL_INTERVAL),
        }
    };
    let text = |thread: std::thread::JoinHandle<String>| {
        thread.join().map_err(|_| anyhow!("a thread that reads the worker's output panicked"))
    };
    let (out, err) = (text(out)?, text(err)?);
    if !status.success() {
        let said = err.trim().trim_start_matches("error: ");
        bail!("the worker ended with {status}{}{said}", if said.is_empty() { "" } else { ": " });
    }
    serde_json::from_str(&out).with_context(|| format!("unexpected output of the worker: {out:?}"))
}

/// Reads a pipe to its end in a thread, because a full pipe would block the worker.
fn drain(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // After an error the bytes read so far are the output.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
