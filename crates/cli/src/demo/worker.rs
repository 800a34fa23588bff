//! The process that the demo kills: it fills the table, then updates and syncs it for ever, and
//! reports what it has done on its standard output, one JSON object a line.

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
use super::memory::resident_bytes;
use crate::cli::WorkerArgs;

/// Name of the table in the pool.
pub(crate) const TABLE: &str = "table";
/// Name of the word that holds the number of updates done. Synced and rolled back with the table,
/// so it says of each state which updates it must hold.
pub(crate) const UPDATES: &str = "updates";

const REPORT_EVERY: Duration = Duration::from_millis(20);

/// A line of the worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The table holds its numbers and is synced.
    Filled { fill_ns: u64, sync_ns: u64, token: u64, counts: Counts },
    /// A sync has returned.
    Token { token: u64, updates: u64, sync_ns: u64, counts: Counts },
    /// Still at work.
    Progress { words_filled: u64, updates: u64, counts: Counts },
    /// What the demo should know.
    Note(String),
}

/// Counters of one process, as of now.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) faults: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) user_bytes: u64,
    /// The most that the process had resident.
    pub(crate) resident_bytes: u64,
}

/// Watches this process and a pool it has open.
#[derive(Default)]
pub(crate) struct Watch {
    resident_bytes: AtomicU64,
}

impl Watch {
    pub(crate) fn counts(&self, pool: &Pool) -> anyhow::Result<Counts> {
        let resident = resident_bytes()?;
        let before = self.resident_bytes.fetch_max(resident, Relaxed);
        let stats: Stats = pool.stats();
        Ok(Counts {
            faults: stats.faults_missing + stats.faults_write_protected,
            read_bytes: stats.bytes_read,
            written_bytes: stats.bytes_written,
            user_bytes: stats.bytes_user,
            resident_bytes: before.max(resident),
        })
    }
}

pub(crate) fn run(args: &WorkerArgs) -> anyhow::Result<()> {
    // It must not outlive the demo, which may be killed itself.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(|pid| pid.as_raw_pid().cast_unsigned()) != Some(args.parent) {
        bail!("this command is for the demo to start, which is not there any more");
    }
    let watch = Watch::default();
    let (pool, note) = open(&args.pool, args.dram)?;
    if let Some(note) = note {
        say(&Line::Note(note))?;
    }
    let (filled, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reporter = scope.spawn(|| -> anyhow::Result<()> {
            while !stop.load(Relaxed) {
                std::thread::sleep(REPORT_EVERY);
                let counts = watch.counts(&pool)?;
                let (words_filled, updates) = (filled.load(Relaxed), done.load(Relaxed));
                say(&Line::Progress { words_filled, updates, counts })?;
            }
            Ok(())
        });
        let running = super::StopAtEnd(&stop);
        let result = work(args, &pool, &watch, &filled, &done);
        drop(running);
        result.and(reporter.join().expect("the reporter does not panic"))
    })
}

/// Resident memory that is not the pool's: the program itself, its threads' stacks, its heap.
const PROGRAM: u64 = 12 << 20;

/// Opens the pool so that the whole process stays within `dram`; what the user should know about
/// how.
pub(crate) fn open(path: &Path, dram: u64) -> anyhow::Result<(Pool, Option<String>)> {
    let options = OpenOptions::new(dram.saturating_sub(PROGRAM));
    match Pool::open(&[path], &options) {
        // Enough for the demo, whose loads and stores are all its own, and needs no privilege.
        Err(PoolError::Watch(_)) => {
            let pool = Pool::open(&[path], &options.mapping(Mapping::UserOnly))?;
            let note = "mapped for user code only: this process may not use userfaultfd for more";
            Ok((pool, Some(note.into())))
        }
        Err(PoolError::Budget { least, .. }) => {
            let least = Bytes(least.0 + PROGRAM);
            bail!("--dram {} is too small for this table: {least} is the least", Bytes(dram))
        }
        other => Ok((other?, None)),
    }
}

/// The table and the word that counts its updates.
pub(crate) fn roots(pool: &Pool) -> anyhow::Result<(Words, Words)> {
    let (table, updates) = (pool.root(TABLE)?, pool.root(UPDATES)?);
    Ok((pool.words(table.addr, (table.len / 8) as usize)?, pool.words(updates.addr, 1)?))
}

/// Fills, then updates round after round. It comes back only with an error.
fn work(
    args: &WorkerArgs,
    pool: &Pool,
    watch: &Watch,
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
    say(&Line::Filled { fill_ns, sync_ns, token, counts: watch.counts(pool)? })?;
    let mut from = 0;
    loop {
        let to = from + args.round;
        gups::update(&table, args.threads, from, to, done);
        updates[0].store(to, Relaxed);
        let (token, sync_ns) = sync(pool)?;
        say(&Line::Token { token, updates: to, sync_ns, counts: watch.counts(pool)? })?;
        from = to;
    }
}

fn sync(pool: &Pool) -> anyhow::Result<(u64, u64)> {
    let started = Instant::now();
    let token = pool.sync()?;
    if let Some(damage) = pool.take_errors().into_iter().next() {
        return Err(damage).context("writing back");
    }
    Ok((token.0, started.elapsed().as_nanos() as u64))
}

/// Says one line, whole: both threads do.
fn say(line: &Line) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    io::stdout().lock().write_all(text.as_bytes()).context("reporting to the demo")
}
