//! `deepram bench`: figures for docs/performance.md, each beside its peer or its physical limit,
//! taken in the same run.

mod caches;
mod checkpoint;
mod latency;
mod memory;
mod open;
mod persist;
mod predict;
mod sim_peers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use deepram_core::Bytes;
use serde::Serialize;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Replacement policies on traces in memory, against libCacheSim
    Caches(caches::CachesArgs),
    /// Sync and rollback of a pool with some of its segments dirty, against msync of a mapping
    Checkpoint(checkpoint::CheckpointArgs),
    /// Random updates of memory larger than DRAM: pager and pool against mmap and swap
    Gups(memory::GupsArgs),
    /// Zipf-distributed reads of memory larger than DRAM
    Zipf(memory::MemoryArgs),
    /// Sequential reads of memory larger than DRAM
    Scan(memory::MemoryArgs),
    /// Reads of 1,024 random elements at a time
    Gather(memory::MemoryArgs),
    /// The process that one competitor runs in
    #[command(hide = true)]
    MemoryWorker(memory::WorkerArgs),
    /// Opening after a crash: what was written since the checkpoint against the size of the pool
    Open(open::OpenArgs),
    /// Durable updates of 64 bytes: persists of a pool against writes to a file, SQLite and LMDB
    Persist(persist::PersistArgs),
    /// What the simulator predicts of this machine against what the pool does on it
    Predict(predict::PredictArgs),
    /// The simulator on the cases that other simulators were measured on
    SimPeers(sim_peers::SimPeersArgs),
}

/// What every bench takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Folder for the files, on the device to be measured
    #[arg(long, default_value = ".", value_name = "PATH")]
    dir: PathBuf,
    /// How often each measurement is repeated
    #[arg(long, default_value_t = 9, value_name = "N")]
    repeats: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs one of them.
pub(crate) fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Caches(args) => caches::run(&args),
        BenchCommand::Checkpoint(args) => checkpoint::run(&args),
        BenchCommand::Gups(args) => memory::gups(&args),
        BenchCommand::Zipf(args) => memory::zipf(&args),
        BenchCommand::Scan(args) => memory::scan(&args),
        BenchCommand::Gather(args) => memory::gather(&args),
        BenchCommand::MemoryWorker(args) => memory::worker(&args),
        BenchCommand::Open(args) => open::run(&args),
        BenchCommand::Persist(args) => persist::run(&args),
        BenchCommand::Predict(args) => predict::run(&args),
        BenchCommand::SimPeers(args) => sim_peers::run(&args),
    }
}

/// A set of measurements of one thing.
#[derive(Debug, Clone, Serialize)]
struct Series {
    what: String,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    samples: usize,
}

impl Series {
    fn new(what: impl Into<String>, unit: &'static str, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |n: usize| values.get(n).copied().unwrap_or(f64::NAN);
        Self {
            what: what.into(),
            unit,
            median: at(values.len() / 2),
            min: at(0),
            max: at(values.len().saturating_sub(1)),
            samples: values.len(),
        }
    }

    fn milliseconds(what: impl Into<String>, times: &[Duration]) -> Self {
        Self::new(what, "ms", times.iter().map(|t| t.as_secs_f64() * 1e3).collect())
    }
}

/// Prints series as a table.
fn print(series: &[Series]) {
    let width = series.iter().map(|s| s.what.len()).max().unwrap_or(0);
    println!("{:width$}  {:>10}  {:>10}  {:>10}", "", "median", "min", "max");
    for s in series {
        println!("{:width$}  {:>10.3}  {:>10.3}  {:>10.3}  {}", s.what, s.median, s.min, s.max, s.unit);
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

/// A folder for the bench's files that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &std::path::Path) -> anyhow::Result<Self> {
        let path = dir.join(format!("deepram-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in a folder that says whose it is.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes written so far to the device that holds `dir`, by anybody; `None` where the kernel does
/// not tell.
fn device_written(dir: &std::path::Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

/// Bytes of a block: direct I/O wants whole ones, in memory at a multiple of it.
pub(crate) const BLOCK: usize = 4096;

/// The part of the memory that begins where direct I/O wants it, a block shorter.
pub(crate) fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let (skip, len) = (memory.as_ptr().align_offset(BLOCK), memory.len() - BLOCK);
    &mut memory[skip..skip + len]
}

/// A well-mixed number for each `n`: where benches and measurements put their accesses.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (n ^ (n >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn shown(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
