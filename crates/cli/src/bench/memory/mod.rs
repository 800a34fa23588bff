//! `deepram bench gups|zipf|scan|gather`: memory larger than DRAM in all the ways that a program can have it.
//!
//! Each competitor runs in a process of its own, in a memory cgroup: those that the kernel serves are limited to
//! the DRAM and a constant for the process, ours get the DRAM as their budget and prove it in a group a little
//! larger. They take turns, A B C A B C, so that an hour in which the machine is busy is bad for all of them; in
//! each round the device is measured too, as the limit of whatever reads it. Ratios are taken within rounds.
//!
//! Nothing is left behind, also after an error or a signal: processes, groups, swap files and data go when what
//! stands for them is dropped.

mod device;
mod interrupts;
mod report;
mod work;
mod worker;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use deepram_core::Bytes;
use deepram_pool::pager::Policy;
use deepram_pool::peer::SwapFile;
use serde::{Deserialize, Serialize};

use self::device::Device;
use self::interrupts::Interrupts;
use self::work::Workload;
use self::worker::{Done, Outcome, Span, Task};
use super::Scratch;
use crate::cgroups::Group;
use crate::output::progress;

pub(crate) use worker::{WorkerArgs, run as worker};

/// What a process needs besides its data and their page tables: program, stacks, tables of the workload.
const PROGRAM: u64 = 4 << 20;
/// Bytes of data for one byte of page tables.
const PAGE_TABLES: u64 = 512;
/// How far the group of a pager or pool lies above its budget.
const PROOF: u64 = 64 << 20;
/// What a swap file has above the data.
const SPARE_SWAP: u64 = 64 << 20;
/// Pieces that the data are made of.
const PAGE: u64 = 4096;
const WAIT: Duration = Duration::from_millis(10);

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Peer {
    /// Anonymous memory under deepram's pager, as `deepram run` has it
    Pager,
    /// A mapped deepram pool, synced after the fill
    Pool,
    /// The same pool read by calls at byte grain (load, gather), which promote what is used often
    PoolLoad,
    /// The same without promotion
    PoolLoadUnpromoted,
    /// A shared mapping of a file
    Mmap,
    /// The same with MADV_RANDOM
    MmapRandom,
    /// Anonymous memory and a swap file
    Swap,
    /// Anonymous memory without a limit: what memory costs that fits
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

    /// What its process may use of memory, where it is limited, and whether it may do without the limit.
    fn limit(self, size: u64, dram: u64) -> Option<(u64, bool)> {
        match self {
            Self::Pager | Self::Pool | Self::PoolLoad | Self::PoolLoadUnpromoted => {
                Some((dram + PROOF, true))
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
    /// Read only
    #[arg(long)]
    read: bool,
}

/// Options of all benches of memory.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Who takes part
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PEER,...",
        default_value = "pager,pool,mmap,mmap-random,swap"
    )]
    peers: Vec<Peer>,
    /// Bytes of the data
    #[arg(long, default_value = "2GiB", value_name = "SIZE")]
    size: Bytes,
    /// DRAM of each of them
    #[arg(long, default_value = "512MiB", value_name = "SIZE")]
    dram: Bytes,
    /// Threads that load and store
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// How long each is measured
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    /// Measure so many accesses instead
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    accesses: Option<u64>,
    /// How long, or for how many accesses, it runs before that [default: half of what is measured]
    #[arg(long, value_name = "S|N")]
    warmup: Option<f64>,
    /// Rounds
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Folder for the files, on the device to be measured
    #[arg(long, default_value = ".", value_name = "PATH")]
    dir: PathBuf,
    /// Which page the pager takes out: s3fifo, fifo, lru, sieve, clock2, gclock or sweep
    #[arg(long, default_value = Policy::default().name(), value_name = "POLICY")]
    policy: String,
    /// Time the whole only: for data that fit, where reading the clock takes as long as the access
    #[arg(long)]
    no_latency: bool,
    /// Do not announce what will be gathered
    #[arg(long)]
    no_hints: bool,
    /// Seconds for each figure of the device, in each round
    #[arg(long, default_value_t = 0.5, value_name = "S")]
    device_seconds: f64,
    /// Which random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What one competitor did in all rounds.
struct Entry {
    peer: Peer,
    rounds: Vec<Done>,
    /// Why it did not, or does not any more, take part.
    skipped: Option<String>,
    failed: Option<String>,
    /// What is not as it should be, and yet does not keep it from taking part.
    note: Option<String>,
}

pub(super) fn gups(args: &GupsArgs) -> anyhow::Result<()> {
    run(&args.memory, if args.read { Workload::Reads } else { Workload::Updates })
}

pub(super) fn zipf(args: &MemoryArgs) -> anyhow::Result<()> {
    run(args, Workload::Zipf)
}

pub(super) fn scan(args: &MemoryArgs) -> anyhow::Result<()> {
    run(args, Workload::Scan)
}

pub(super) fn gather(args: &MemoryArgs) -> anyhow::Result<()> {
    run(args, Workload::Gather)
}

fn usage(text: String) -> anyhow::Error {
    crate::Usage(text).into()
}

/// Checks what clap cannot.
fn check(args: &MemoryArgs) -> anyhow::Result<()> {
    let least = (16 << 20).max(PAGE * u64::from(args.threads));
    if args.size.0 < least || !args.size.0.is_multiple_of(PAGE) {
        return Err(usage(format!("--size {}: a multiple of 4 KiB, {} at least", args.size, Bytes(least))));
    }
    if args.dram.0 < 8 << 20 {
        return Err(usage(format!("--dram {}: at least 8 MiB", args.dram)));
    }
    let times = [("--seconds", args.seconds), ("--device-seconds", args.device_seconds)];
    for (name, seconds) in times {
        if !(seconds > 0.0 && seconds <= 86_400.0) {
            return Err(usage(format!("{name} {seconds}: more than 0, at most 86400")));
        }
    }
    if args.warmup.is_some_and(|n| !(n >= 0.0 && (n <= 86_400.0 || args.accesses.is_some()))) {
        return Err(usage("--warmup: 0 or more seconds, 86400 at most".into()));
    }
    args.policy.parse::<Policy>().map(drop).map_err(|error| usage(format!("--policy {error}")))
}

fn run(args: &MemoryArgs, workload: Workload) -> anyhow::Result<()> {
    check(args)?;
    let interrupts = Interrupts::watch()?;
    let scratch = Scratch::new(&args.dir).with_context(|| args.dir.display().to_string())?;
    let bar = progress("measuring the device");
    let updates = workload == Workload::Updates;
    let mut device =
        Device::create(scratch.file("device"), args.size.0, args.threads, updates, args.seed, &interrupts)?;
    let mut entries: Vec<Entry> = args
        .peers
        .iter()
        .map(|&peer| Entry { peer, rounds: Vec::new(), skipped: None, failed: None, note: None })
        .collect();
    for round in 1..=args.repeats {
        bar.set_message("measuring the device");
        device.round(Duration::from_secs_f64(args.device_seconds), &interrupts)?;
        for entry in entries.iter_mut().filter(|entry| entry.skipped.is_none() && entry.failed.is_none()) {
            interrupts.check()?;
            bar.set_message(format!("{}, {round} of {}", entry.peer.name(), args.repeats));
            // A folder of its own: what a run has left is gone when the next begins.
            let dir = scratch.file(entry.peer.name());
            std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
            let outcome = compete(args, workload, entry, &dir, &interrupts);
            std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
            interrupts.check()?;
            match outcome {
                Ok(Outcome::Done(done)) => entry.rounds.push(done),
                Ok(Outcome::Skipped(reason)) => entry.skipped = Some(reason),
                // The others' figures are worth having all the same.
                Err(error) => entry.failed = Some(format!("{error:#}")),
            }
        }
    }
    bar.finish_and_clear();
    report::show(args, workload, &entries, &device)?;
    let failed: Vec<String> = entries
        .iter()
        .filter_map(|entry| Some(format!("{}: {}", entry.peer.name(), entry.failed.as_deref()?)))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// One run of one competitor.
fn compete(
    args: &MemoryArgs,
    workload: Workload,
    entry: &mut Entry,
    dir: &Path,
    interrupts: &Interrupts,
) -> anyhow::Result<Outcome> {
    let peer = entry.peer;
    let mut group = None;
    if let Some((bytes, may_do_without)) = peer.limit(args.size.0, args.dram.0) {
        let name = format!("bench-{}-{}", std::process::id(), peer.name());
        match Group::create(&name, bytes, peer == Peer::Swap) {
            Ok(made) => group = Some(made),
            Err(error) if may_do_without => entry.note = Some(format!("not limited: {error:#}")),
            Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
        }
    }
    // Only as long as its turn: others shall not be swapped out.
    let swap = match peer {
        Peer::Swap => match SwapFile::create(&dir.join("swap"), args.size.0 + SPARE_SWAP) {
            Ok(swap) => Some(swap),
            Err(error) => return Ok(Outcome::Skipped(format!("no swap file: {error}"))),
        },
        _ => None,
    };
    let share = |n: u64| n.div_ceil(u64::from(args.threads));
    let (measured, warmup) = match (args.accesses, args.warmup) {
        (Some(n), None) => (Span::Accesses(share(n)), Span::Accesses(share(n / 2))),
        (Some(n), Some(warmup)) => (Span::Accesses(share(n)), Span::Accesses(share(warmup as u64))),
        (None, warmup) => (Span::Seconds(args.seconds), Span::Seconds(warmup.unwrap_or(args.seconds / 2.0))),
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
        dir: std::fs::canonicalize(dir)?,
        parent: std::process::id(),
        group: group.as_ref().map(|group| group.place()),
    };
    let mut outcome = work_out(&task, interrupts)?;
    if let Outcome::Done(done) = &mut outcome {
        done.peak_bytes = group.as_ref().and_then(Group::peak);
    }
    // With the process gone nothing is swapped out, and this is quick.
    swap.map(SwapFile::off).transpose().context("turning swap off")?;
    Ok(outcome)
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is no news, and waiting for it a second time is harmless.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has a process of its own do this.
fn work_out(task: &Task, interrupts: &Interrupts) -> anyhow::Result<Outcome> {
    let own = std::env::current_exe().context("finding this program again")?;
    let child = Command::new(own)
        .args(["bench", "memory-worker"])
        .arg(serde_json::to_string(task)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting a process")?;
    let mut running = Running(child);
    let (out, err) = (drain(running.0.stdout.take()), drain(running.0.stderr.take()));
    let status = loop {
        interrupts.check()?;
        match running.0.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(WAIT),
        }
    };
    let text = |thread: std::thread::JoinHandle<String>| {
        thread.join().map_err(|_| anyhow!("reading what the process says failed"))
    };
    let (out, err) = (text(out)?, text(err)?);
    if !status.success() {
        let said = err.trim().trim_start_matches("error: ");
        bail!("its process ended with {status}{}{said}", if said.is_empty() { "" } else { ": " });
    }
    serde_json::from_str(&out).with_context(|| format!("its process said {out:?}"))
}

/// Reads all that comes, in a thread: a pipe that nobody reads stops who writes.
fn drain(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What was read until an error is all there is.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
