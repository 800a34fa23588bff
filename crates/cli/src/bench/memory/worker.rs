//! The process that one competitor runs in: it goes into its memory cgroup, makes the memory, fills it, warms
//! up, measures, checks, and says on its standard output what it found.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use deepram_pool::pager::PagerOptions;
use deepram_pool::peer::{Anonymous, ByCall, Memory, Paged, Pooled, SharedFile};
use deepram_pool::{
    Addr, CreateOptions, FaultOptions, Lifetime, LoadOptions, Mapping, OpenOptions, Pool, PoolError,
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::super::latency::{Latency, Quantiles};
use super::Peer;
use super::work::{
    BATCH, Gather, Loads, Scan, Skewed, Uniform, Updates, Work, Workload, compare_updates, origin,
};
use crate::output::emit_json;

/// Accesses between two looks at the clock where single ones are not timed.
const UNTIMED: u64 = 16;

/// Options of `deepram bench memory-worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// What to do, in JSON
    task: String,
}

/// When to stop.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Span {
    Seconds(f64),
    /// Of each thread.
    Accesses(u64),
}

/// What one process has to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) peer: Peer,
    pub(super) workload: Workload,
    /// Bytes of the data, and of DRAM.
    pub(super) size: u64,
    pub(super) dram: u64,
    pub(super) threads: u32,
    pub(super) warmup: Span,
    pub(super) measured: Span,
    /// Whether single accesses are timed.
    pub(super) latency: bool,
    /// Whether what is gathered is announced.
    pub(super) hints: bool,
    pub(super) seed: u64,
    /// Name of the pager's policy.
    pub(super) policy: String,
    /// Folder for the files.
    pub(super) dir: PathBuf,
    /// Who started it.
    pub(super) parent: u32,
    pub(super) group: Option<PathBuf>,
}

/// How it went.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Outcome {
    Done(Done),
    /// The machine does not allow it.
    Skipped(String),
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) fill_s: f64,
    pub(super) accesses: u64,
    pub(super) seconds: f64,
    /// Times that an access waited for the device.
    pub(super) misses: u64,
    /// Of single accesses; of batches where they are gathered.
    pub(super) latency: Option<Quantiles>,
    pub(super) words_compared: u64,
    /// The pool's own counters at the end, filling and warming up included.
    pub(super) counters: BTreeMap<String, u64>,
    /// The most memory that the group had in use, page cache included; the parent knows it.
    pub(super) peak_bytes: Option<u64>,
}

pub(crate) fn run(args: &WorkerArgs) -> anyhow::Result<()> {
    // It must not outlive who started it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let task: Task =
        serde_json::from_str(&args.task).context("this command is for `deepram bench` to start")?;
    if getppid().map(|pid| pid.as_raw_pid().cast_unsigned()) != Some(task.parent) {
        bail!("this command is for `deepram bench` to start, which is not there any more");
    }
    if let Some(group) = &task.group {
        crate::cgroups::enter(group)?;
    }
    let outcome = match memory(&task)? {
        Ok(memory) => Outcome::Done(measure(&task, &*memory)?),
        Err(reason) => Outcome::Skipped(reason),
    };
    emit_json(&outcome)
}

/// The memory, or why there is none of the kind here.
fn memory(task: &Task) -> anyhow::Result<Result<Box<dyn Memory>, String>> {
    let bytes = usize::try_from(task.size)?;
    let path = task.dir.join("data");
    Ok(Ok(match task.peer {
        Peer::Plain | Peer::Swap => Box::new(Anonymous::new(bytes)?),
        Peer::Mmap => Box::new(SharedFile::create(&path, bytes, false)?),
        Peer::MmapRandom => Box::new(SharedFile::create(&path, bytes, true)?),
        Peer::Pager => {
            let mut options = PagerOptions::new(task.dram, &task.dir);
            options.keep = true;
            options.policy = task.policy.parse()?;
            match Paged::new(bytes, options) {
                Ok(paged) => Box::new(paged),
                Err(error)
                    if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
                {
                    return Ok(Err(format!("no userfaultfd: {error}")));
                }
                Err(error) => return Err(error).context("the pager"),
            }
        }
        Peer::Pool => {
            let faults = FaultOptions { pin_lone_thread: true, ..FaultOptions::default() };
            Box::new(pool(&path, task.size, OpenOptions::new(task.dram).faults(faults))?.0)
        }
        Peer::PoolLoad | Peer::PoolLoadUnpromoted => {
            if task.workload == Workload::Updates {
                return Ok(Err("there is no atomic update by call; --read has loads".into()));
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
    // The first page holds the names.
    Pool::create(&[path], &CreateOptions::new(size + (1 << 20)))?;
    let pool = match Pool::open(&[path], &options) {
        // The bench's loads and stores are all its own.
        Err(PoolError::Watch(_)) => Pool::open(&[path], &options.mapping(Mapping::UserOnly))?,
        pool => pool?,
    };
    let addr = pool.alloc(size, Lifetime::Permanent)?;
    let words = pool.words(addr, usize::try_from(size / 8)?)?;
    Ok((Pooled::new(pool, words), addr))
}

/// What one thread did.
struct Thread {
    /// Steps, those of the warm-up included.
    all: u64,
    measured: u64,
    wrong: u64,
    began: Instant,
    ended: Instant,
    latency: Latency,
}

fn measure(task: &Task, memory: &dyn Memory) -> anyhow::Result<Done> {
    let began = Instant::now();
    memory.fill(origin)?;
    if matches!(task.peer, Peer::Mmap | Peer::MmapRandom) {
        bring_in(memory, task.dram);
    }
    let fill_s = began.elapsed().as_secs_f64();
    let start = Barrier::new(task.threads as usize + 1);
    memory.end_pinning();
    // Taken while all threads stand between warm-up and measurement.
    let (threads, misses) = std::thread::scope(|scope| -> anyhow::Result<(Vec<Thread>, u64)> {
        let start = &start;
        let running: Vec<_> =
            (0..task.threads).map(|thread| scope.spawn(move || one(task, memory, thread, start))).collect();
        start.wait();
        let before = misses(memory);
        start.wait();
        let threads = running.into_iter().map(|thread| thread.join());
        let threads = threads.map(|thread| thread.unwrap_or_else(|_| bail!("a thread of the bench failed")));
        let threads = threads.collect::<anyhow::Result<Vec<Thread>>>()?;
        Ok((threads, misses(memory)? - before?))
    })?;
    let wrong: u64 = threads.iter().map(|thread| thread.wrong).sum();
    ensure!(wrong == 0, "{}: {wrong} accesses found a wrong value", task.peer.name());
    let mut words_compared = 0;
    if task.workload == Workload::Updates {
        let made: Vec<u64> = threads.iter().map(|thread| thread.all).collect();
        let (compared, wrong) = compare_updates(memory.words(), task.seed, &made);
        if wrong > 0 {
            bail!("{}: {wrong} of {compared} words do not hold their updates", task.peer.name());
        }
        words_compared = compared;
    }
    let each = if task.workload == Workload::Gather { BATCH as u64 } else { 1 };
    let (began, ended) = (threads.iter().map(|t| t.began).min(), threads.iter().map(|t| t.ended).max());
    let time = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let mut latency = Latency::new()?;
    threads.iter().try_for_each(|thread| latency.merge(&thread.latency))?;
    Ok(Done {
        fill_s,
        accesses: threads.iter().map(|thread| thread.measured).sum::<u64>() * each,
        seconds: time.as_secs_f64(),
        misses,
        latency: latency.quantiles(),
        words_compared,
        counters: memory.counters().into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        peak_bytes: None,
    })
}

/// Loads what fits of the end of the data. Who is filled through memory has that there anyway; a file was
/// written past the cache, and would start with less than the others.
fn bring_in(memory: &dyn Memory, dram: u64) {
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

/// The memory's own count; elsewhere the kernel's of major faults of this process.
fn misses(memory: &dyn Memory) -> anyhow::Result<u64> {
    if let Some(misses) = memory.misses() {
        return Ok(misses);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // After the name, which may hold anything, the twelfth field of proc(5) is the tenth.
    let field = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(9));
    let count = field.and_then(|field| field.parse().ok());
    count.ok_or_else(|| anyhow!("/proc/self/stat has no count of major faults: {stat}"))
}

fn one(task: &Task, memory: &dyn Memory, thread: u32, start: &Barrier) -> anyhow::Result<Thread> {
    match (task.workload, memory.by_call()) {
        (Workload::Updates, _) => paced(task, Updates::new(memory.words(), task.seed, thread), start),
        (Workload::Gather, _) => paced(task, Gather::new(memory, task.seed, thread, task.hints), start),
        (_, None) => reading(task, memory.words(), thread, start),
        (_, Some(calls)) => reading(task, calls, thread, start),
    }
}

fn reading(task: &Task, words: impl Loads, thread: u32, start: &Barrier) -> anyhow::Result<Thread> {
    let seed = task.seed;
    match task.workload {
        Workload::Zipf => paced(task, Skewed::new(words, seed, thread), start),
        Workload::Scan => paced(task, Scan::new(words, thread, task.threads), start),
        _ => paced(task, Uniform::new(words, seed, thread), start),
    }
}

fn paced(task: &Task, mut work: impl Work, start: &Barrier) -> anyhow::Result<Thread> {
    let (warmup, wrong) = untimed(task.warmup, task.workload, &mut work);
    start.wait();
    start.wait();
    let mut latency = Latency::new()?;
    let began = Instant::now();
    let (measured, more) = if task.latency {
        timed(task.measured, task.workload, &mut work, &mut latency)
    } else {
        untimed(task.measured, task.workload, &mut work)
    };
    let ended = Instant::now();
    Ok(Thread { all: warmup + measured, measured, wrong: wrong + more, began, ended, latency })
}

/// Steps and seconds after which to stop.
fn limits(span: Span, workload: Workload) -> (u64, Duration) {
    let each = if workload == Workload::Gather { BATCH as u64 } else { 1 };
    match span {
        Span::Seconds(seconds) => (u64::MAX, Duration::from_secs_f64(seconds)),
        Span::Accesses(n) => (n.div_ceil(each), Duration::MAX),
    }
}

/// Steps, each timed: how many, and how many words were wrong.
fn timed(span: Span, workload: Workload, work: &mut impl Work, latency: &mut Latency) -> (u64, u64) {
    let (steps, time) = limits(span, workload);
    let (mut done, mut wrong) = (0, 0);
    let began = Instant::now();
    let mut last = began;
    while done < steps && last - began < time {
        wrong += work.step();
        let now = Instant::now();
        latency.add(now - last);
        last = now;
        done += 1;
    }
    (done, wrong)
}

fn untimed(span: Span, workload: Workload, work: &mut impl Work) -> (u64, u64) {
    let (steps, time) = limits(span, workload);
    let (mut done, mut wrong) = (0, 0);
    // A batch is long enough.
    let stride = if workload == Workload::Gather { 1 } else { UNTIMED };
    let began = Instant::now();
    while done < steps && began.elapsed() < time {
        for _ in 0..stride.min(steps - done) {
            wrong += work.step();
            done += 1;
        }
    }
    (done, wrong)
}
