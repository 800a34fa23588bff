//! The worker process of one peer: enters its memory cgroup, creates and fills the memory, warms up, measures,
//! verifies, and prints its outcome as JSON to standard output.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use deepram_linux::clock::process_cpu_ns;
use deepram_pager::PagerOptions;
use deepram_peers::{Anonymous, ByCall, Memory, Paged, Pooled, SharedFile};
use deepram_pool::{
    Addr, CreateOptions, FaultOptions, Lifetime, LoadOptions, Mapping, OpenOptions, Pool, PoolError,
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::super::latency::{Latency, Quantiles};
use super::Peer;
use super::workload::{
    AccessStream, BATCH, Gather, LoadWords, Rows, Scan, Skewed, Uniform, Updates, Workload, compare_updates,
    initial_value,
};
use crate::output::emit_json;

/// Accesses between two readings of the clock where single accesses are not timed.
const UNTIMED: u64 = 16;

/// Options of `deepram bench memory-worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The task, as JSON
    task: String,
}

/// Length of a measurement or warm-up.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum RunLength {
    Seconds(f64),
    /// Accesses of each thread.
    Accesses(u64),
}

/// The task of one worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) peer: Peer,
    pub(super) workload: Workload,
    /// Size of the data, bytes.
    pub(super) size: u64,
    /// DRAM, bytes.
    pub(super) dram: u64,
    pub(super) threads: u32,
    pub(super) warmup: RunLength,
    pub(super) measured: RunLength,
    /// Whether single accesses are timed.
    pub(super) latency: bool,
    /// Whether the elements of a gather are announced.
    pub(super) hints: bool,
    pub(super) seed: u64,
    /// Name of the pager's replacement policy.
    pub(super) policy: String,
    /// Name of the heuristic of a pool that is turned off.
    pub(super) without: Option<String>,
    /// Folder for the files.
    pub(super) dir: PathBuf,
    /// Process id of the bench; 0: another process starts the worker.
    pub(super) parent: u32,
    /// Path of the memory cgroup.
    pub(super) group: Option<PathBuf>,
}

/// Outcome of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum WorkerOutcome {
    Measured(Measurement),
    /// The machine cannot run this peer, for this reason.
    Skipped(String),
}

/// Measurements of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub(super) fill_s: f64,
    pub(super) accesses: u64,
    pub(super) seconds: f64,
    /// Accesses that waited for the device.
    pub(super) misses: u64,
    /// Processor time of the process, all its threads included, seconds.
    pub(super) processor_s: f64,
    /// Latency of an access, or of a batch in a gather.
    pub(super) latency: Option<Quantiles>,
    pub(super) words_compared: u64,
    /// Counters of the pool at the end, fill and warm-up included.
    pub(super) counters: BTreeMap<String, u64>,
    /// Peak memory of the cgroup, bytes, page cache included. The bench fills this field in.
    pub(super) peak_bytes: Option<u64>,
}

pub(crate) fn run(args: &WorkerArgs) -> anyhow::Result<()> {
    // The worker must not outlive the bench.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let task: Task = serde_json::from_str(&args.task).context("only `deepram bench` starts this command")?;
    if task.parent != 0 && getppid().map(|pid| pid.as_raw_pid().cast_unsigned()) != Some(task.parent) {
        bail!("only `deepram bench` starts this command, and that process has ended");
    }
    if let Some(group) = &task.group {
        crate::cgroups::enter(group)?;
    }
    let outcome = match memory(&task)? {
        Ok(memory) => WorkerOutcome::Measured(measure(&task, &*memory)?),
        Err(reason) => WorkerOutcome::Skipped(reason),
    };
    emit_json(&outcome)
}

/// Creates the memory. The inner error is the reason why this machine cannot run the peer.
fn memory(task: &Task) -> anyhow::Result<Result<Box<dyn Memory>, String>> {
    let bytes = usize::try_from(task.size)?;
    let path = task.dir.join("data");
    Ok(Ok(match task.peer {
        Peer::Plain | Peer::Swap => Box::new(Anonymous::new(bytes)?),
        Peer::Mmap => Box::new(SharedFile::create(&path, bytes, false)?),
        Peer::MmapRandom => Box::new(SharedFile::create(&path, bytes, true)?),
        Peer::Pager => {
            let mut options = PagerOptions::new(task.dram, &task.dir);
            options.pin_faulting_threads = true;
            options.policy = task.policy.parse()?;
            match Paged::new(bytes, options) {
                Ok(paged) => Box::new(paged),
                Err(error)
                    if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
                {
                    return Ok(Err(format!("userfaultfd is not available: {error}")));
                }
                Err(error) => return Err(error).context("the pager"),
            }
        }
        Peer::Pool => {
            let mut faults = FaultOptions { pin_faulting_threads: true, ..FaultOptions::default() };
            if let Some(off) = &task.without {
                let off = off.parse().map_err(anyhow::Error::msg)?;
                faults = faults.without(off).with_context(|| format!("a pool has no {off}"))?;
            }
            Box::new(pool(&path, task.size, OpenOptions::new(task.dram).faults(faults))?.0)
        }
        Peer::PoolLoad | Peer::PoolLoadUnpromoted => {
            if task.workload == Workload::Updates {
                return Ok(Err("calls cannot update a word atomically; --read measures loads".into()));
            }
            let mut loads = LoadOptions::default();
            if task.peer == Peer::PoolLoadUnpromoted {
                loads.promotion = None;
            }
            let (pooled, first) = pool(&path, task.size, OpenOptions::new(task.dram).loads(loads))?;
            Box::new(ByCall::new(pooled, first))
        }
    }))
}

fn pool(path: &Path, size: u64, options: OpenOptions) -> anyhow::Result<(Pooled, Addr)> {
    // The first page holds the named roots.
    Pool::create(&[path], &CreateOptions::new(size + (1 << 20)))?;
    let pool = match Pool::open(&[path], &options) {
        // All loads and stores come from this process, so mapping for user code alone suffices.
        Err(PoolError::Watch(_)) => Pool::open(&[path], &options.mapping(Mapping::UserOnly))?,
        pool => pool?,
    };
    let addr = pool.alloc(size, Lifetime::Permanent)?;
    let words = pool.words(addr, usize::try_from(size / 8)?)?;
    Ok((Pooled::new(pool, words), addr))
}

/// Measurements of one thread.
struct ThreadRun {
    /// Accesses, warm-up included.
    all: u64,
    measured: u64,
    wrong: u64,
    began: Instant,
    ended: Instant,
    latency: Latency,
}

fn measure(task: &Task, memory: &dyn Memory) -> anyhow::Result<Measurement> {
    let began = Instant::now();
    memory.fill(initial_value)?;
    if matches!(task.peer, Peer::Mmap | Peer::MmapRandom) {
        load_cache(memory, task.dram);
    }
    let fill_s = began.elapsed().as_secs_f64();
    let start = Barrier::new(task.threads as usize + 1);
    memory.end_pinning();
    // Misses and processor time are read while all threads wait between warm-up and measurement.
    let (threads, misses, processor_ns) =
        std::thread::scope(|scope| -> anyhow::Result<(Vec<ThreadRun>, u64, u64)> {
            let start = &start;
            let running: Vec<_> = (0..task.threads)
                .map(|thread| scope.spawn(move || run_thread(task, memory, thread, start)))
                .collect();
            start.wait();
            // An error is returned after the second wait, without which the threads would not end.
            let (before, processor_before) = (misses(memory), process_cpu_ns());
            start.wait();
            let threads = running.into_iter().map(|thread| thread.join());
            let threads =
                threads.map(|thread| thread.unwrap_or_else(|_| bail!("a thread of the bench panicked")));
            let threads = threads.collect::<anyhow::Result<Vec<ThreadRun>>>()?;
            Ok((threads, misses(memory)? - before?, process_cpu_ns() - processor_before))
        })?;
    let wrong: u64 = threads.iter().map(|thread| thread.wrong).sum();
    ensure!(wrong == 0, "{}: {wrong} accesses read a wrong value", task.peer.name());
    let mut words_compared = 0;
    if task.workload == Workload::Updates {
        let made: Vec<u64> = threads.iter().map(|thread| thread.all).collect();
        let (compared, wrong) = compare_updates(memory.words(), task.seed, &made);
        if wrong > 0 {
            bail!("{}: {wrong} of {compared} words have a wrong update count", task.peer.name());
        }
        words_compared = compared;
    }
    let each = if task.workload == Workload::Gather { BATCH as u64 } else { 1 };
    let (began, ended) = (threads.iter().map(|t| t.began).min(), threads.iter().map(|t| t.ended).max());
    let time = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let mut latency = Latency::new()?;
    threads.iter().try_for_each(|thread| latency.merge(&thread.latency))?;
    Ok(Measurement {
        fill_s,
        accesses: threads.iter().map(|thread| thread.measured).sum::<u64>() * each,
        seconds: time.as_secs_f64(),
        misses,
        processor_s: processor_ns as f64 / 1e9,
        latency: latency.quantiles(),
        words_compared,
        counters: memory.counters().into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        peak_bytes: None,
    })
}

/// Loads the end of the data, as much as fits in DRAM. A peer that is filled through memory has these pages in DRAM anyway; a
/// file is written past the page cache and would start with fewer pages than the other peers.
fn load_cache(memory: &dyn Memory, dram: u64) {
    const PAGE: usize = super::PAGE as usize / 8;
    let words = memory.words();
    let first = words.len().saturating_sub(dram as usize / 8) / PAGE * PAGE;
    for start in (first..words.len()).step_by(BATCH * PAGE) {
        let pages: Vec<usize> = (start..words.len().min(start + BATCH * PAGE)).step_by(PAGE).collect();
        memory.will_need(&pages);
        for at in pages {
            black_box(words[at].load(Relaxed));
        }
    }
}

/// Misses that the memory counts itself, or else the major page faults of this process.
fn misses(memory: &dyn Memory) -> anyhow::Result<u64> {
    if let Some(misses) = memory.misses() {
        return Ok(misses);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // The name in parentheses may contain spaces; the twelfth field of proc(5) is the tenth after it.
    let field = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(9));
    let count = field.and_then(|field| field.parse().ok());
    count.ok_or_else(|| anyhow!("/proc/self/stat has no count of major faults: {stat}"))
}

fn run_thread(task: &Task, memory: &dyn Memory, thread: u32, start: &Barrier) -> anyhow::Result<ThreadRun> {
    match (task.workload, memory.by_call()) {
        (Workload::Updates, _) => run_stream(task, Updates::new(memory.words(), task.seed, thread), start),
        (Workload::Gather, _) => run_stream(task, Gather::new(memory, task.seed, thread, task.hints), start),
        (_, None) => read_thread(task, memory.words(), thread, start),
        (_, Some(calls)) => read_thread(task, calls, thread, start),
    }
}

fn read_thread(
    task: &Task,
    words: impl LoadWords,
    thread: u32,
    start: &Barrier,
) -> anyhow::Result<ThreadRun> {
    let seed = task.seed;
    match task.workload {
        Workload::Zipf => run_stream(task, Skewed::new(words, seed, thread), start),
        Workload::Rows => run_stream(task, Rows::new(words, seed, thread), start),
        Workload::Scan => run_stream(task, Scan::new(words, thread, task.threads), start),
        _ => run_stream(task, Uniform::new(words, seed, thread), start),
    }
}

fn run_stream(task: &Task, mut stream: impl AccessStream, start: &Barrier) -> anyhow::Result<ThreadRun> {
    let (warmup, wrong) = untimed(task.warmup, task.workload, &mut stream);
    start.wait();
    start.wait();
    let mut latency = Latency::new()?;
    let began = Instant::now();
    let (measured, more) = if task.latency {
        timed(task.measured, task.workload, &mut stream, &mut latency)
    } else {
        untimed(task.measured, task.workload, &mut stream)
    };
    let ended = Instant::now();
    Ok(ThreadRun { all: warmup + measured, measured, wrong: wrong + more, began, ended, latency })
}

/// Steps and time after which a measurement ends.
fn limits(length: RunLength, workload: Workload) -> (u64, Duration) {
    let each = if workload == Workload::Gather { BATCH as u64 } else { 1 };
    match length {
        RunLength::Seconds(seconds) => (u64::MAX, Duration::from_secs_f64(seconds)),
        RunLength::Accesses(n) => (n.div_ceil(each), Duration::MAX),
    }
}

/// Runs steps and times each of them. Returns the numbers of steps and of wrong words.
fn timed(
    length: RunLength,
    workload: Workload,
    stream: &mut impl AccessStream,
    latency: &mut Latency,
) -> (u64, u64) {
    let (steps, time) = limits(length, workload);
    let (mut done, mut wrong) = (0, 0);
    let began = Instant::now();
    let mut last = began;
    while done < steps && last - began < time {
        wrong += stream.step();
        let now = Instant::now();
        latency.add(now - last);
        last = now;
        done += 1;
    }
    (done, wrong)
}

/// Runs steps without timing single ones. Returns the numbers of steps and of wrong words.
fn untimed(length: RunLength, workload: Workload, stream: &mut impl AccessStream) -> (u64, u64) {
    let (steps, time) = limits(length, workload);
    let (mut done, mut wrong) = (0, 0);
    // A batch takes long enough to read the clock after each.
    let stride = if workload == Workload::Gather { 1 } else { UNTIMED };
    let began = Instant::now();
    while done < steps && began.elapsed() < time {
        for _ in 0..stride.min(steps - done) {
            wrong += stream.step();
            done += 1;
        }
    }
    (done, wrong)
}
