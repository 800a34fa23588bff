//! The updating process of the demo: fills the table, then updates and syncs it without end, and
//! reports its progress to standard output, one JSON object a line.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use deepram_core::Bytes;
use deepram_pool::{Lifetime, Mapping, OpenOptions, Pool, PoolError, Stats, Words};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::gups;
use super::resident::resident_bytes;
use crate::cli::WorkerArgs;

/// Named root of the table.
pub(crate) const TABLE: &str = "table";
/// Named root of the word that holds the number of updates. The word is synced and rolled back with the
/// table, so it gives the number of updates in each state.
pub(crate) const UPDATES: &str = "updates";

/// Interval of the progress messages.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// A message of the worker to the demo.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum WorkerMessage {
    /// The table is filled and synced.
    Filled { fill_ns: u64, sync_ns: u64, token: u64, counts: ProcessCounters },
    /// A sync has completed.
    Token { token: u64, updates: u64, sync_ns: u64, counts: ProcessCounters },
    /// Progress, at a fixed interval.
    Progress { words_filled: u64, updates: u64, counts: ProcessCounters },
    /// A remark for the user.
    Note(String),
}

/// Counters of one process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct ProcessCounters {
    pub(crate) faults: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) user_bytes: u64,
    /// Peak resident memory.
    pub(crate) resident_bytes: u64,
}

/// Samples the counters of a pool and the peak resident memory of this process.
#[derive(Default)]
pub(crate) struct Sampler {
    /// Peak so far.
    resident_bytes: AtomicU64,
}

impl Sampler {
    pub(crate) fn sample(&self, pool: &Pool) -> anyhow::Result<ProcessCounters> {
        let resident = resident_bytes()?;
        let before = self.resident_bytes.fetch_max(resident, Relaxed);
        let stats: Stats = pool.stats();
        Ok(ProcessCounters {
            faults: stats.faults_missing + stats.faults_write_protected,
            read_bytes: stats.bytes_read,
            written_bytes: stats.bytes_written,
            user_bytes: stats.bytes_user,
            resident_bytes: before.max(resident),
        })
    }
}

pub(crate) fn run(args: &WorkerArgs) -> anyhow::Result<()> {
    // The worker must not outlive the demo, even if the demo is killed.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(|pid| pid.as_raw_pid().cast_unsigned()) != Some(args.parent) {
        bail!("only `deepram demo` starts this command, and that process has ended");
    }
    let sampler = Sampler::default();
    let (pool, note) = open(&args.pool, args.dram)?;
    if let Some(note) = note {
        send(&WorkerMessage::Note(note))?;
    }
    let (filled, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reporter = scope.spawn(|| -> anyhow::Result<()> {
            while !stop.load(Relaxed) {
                std::thread::sleep(REPORT_INTERVAL);
                let counts = sampler.sample(&pool)?;
                let (words_filled, updates) = (filled.load(Relaxed), done.load(Relaxed));
                send(&WorkerMessage::Progress { words_filled, updates, counts })?;
            }
            Ok(())
        });
        let running = super::StopAtEnd(&stop);
        let result = work(args, &pool, &sampler, &filled, &done);
        drop(running);
        result.and(reporter.join().expect("the reporter does not panic"))
    })
}

/// Upper bound of the resident memory outside the pool, bytes: program, stacks and heap. The dev build has 11 MiB of its own code
/// resident and 2 MiB of heap.
const PROGRAM: u64 = 16 << 20;
/// One part in this many of the DRAM is for heap memory that the pool has freed and the allocator keeps: its tables grow with the DRAM,
/// and so does what the threads' heaps hold of them.
const HEAP_SHARE: u64 = 32;

/// Opens the pool so that the whole process stays within `dram` bytes. Returns a remark for the user where the
/// pool is mapped for user code only.
pub(crate) fn open(path: &Path, dram: u64) -> anyhow::Result<(Pool, Option<String>)> {
    let options = OpenOptions::new((dram - dram / HEAP_SHARE).saturating_sub(PROGRAM));
    match Pool::open(&[path], &options) {
        // All loads and stores of the demo are in user code, and this mapping needs no privilege.
        Err(PoolError::Watch(_)) => {
            let pool = Pool::open(&[path], &options.mapping(Mapping::UserOnly))?;
            let note = "the pool is mapped for user code only, because this process may not use userfaultfd for system calls";
            Ok((pool, Some(note.into())))
        }
        Err(PoolError::Budget { least, .. }) => {
            let least = Bytes((least.0 + PROGRAM).div_ceil(HEAP_SHARE - 1) * HEAP_SHARE);
            bail!("--dram {} is too small for this table; give at least {least}", Bytes(dram))
        }
        other => Ok((other?, None)),
    }
}

/// The table and its update count.
pub(crate) fn roots(pool: &Pool) -> anyhow::Result<(Words, Words)> {
    let (table, updates) = (pool.root(TABLE)?, pool.root(UPDATES)?);
    Ok((pool.words(table.addr, (table.len / 8) as usize)?, pool.words(updates.addr, 1)?))
}

/// Fills the table, then updates and syncs it without end. Returns only with an error.
fn work(
    args: &WorkerArgs,
    pool: &Pool,
    sampler: &Sampler,
    filled: &AtomicU64,
    done: &AtomicU64,
) -> anyhow::Result<()> {
    for (name, bytes) in [(TABLE, args.words * 8), (UPDATES, 8)] {
        let addr = pool.alloc(bytes, Lifetime::Permanent)?;
        pool.set_root(name, addr, bytes)?;
    }
    let (table, updates) = roots(pool)?;
    let started = Instant::now();
    gups::fill(&table, args.threads, filled);
    let fill_ns = started.elapsed().as_nanos() as u64;
    let (token, sync_ns) = sync(pool)?;
    send(&WorkerMessage::Filled { fill_ns, sync_ns, token, counts: sampler.sample(pool)? })?;
    let mut from = 0;
    loop {
        let to = from + args.round;
        gups::update(&table, args.threads, from, to, done);
        updates[0].store(to, Relaxed);
        let (token, sync_ns) = sync(pool)?;
        send(&WorkerMessage::Token { token, updates: to, sync_ns, counts: sampler.sample(pool)? })?;
        from = to;
    }
}

/// Syncs the pool. Returns the token and the time, ns.
fn sync(pool: &Pool) -> anyhow::Result<(u64, u64)> {
    let started = Instant::now();
    let token = pool.sync()?;
    if let Some(damage) = pool.take_errors().into_iter().next() {
        return Err(damage).context("writing back");
    }
    Ok((token.0, started.elapsed().as_nanos() as u64))
}

/// Sends one message as a whole line, because two threads send.
fn send(message: &WorkerMessage) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(message)?;
    text.push('\n');
    io::stdout().lock().write_all(text.as_bytes()).context("reporting to the demo")
}
