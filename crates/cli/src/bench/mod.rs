//! `deepram bench`: measurements, each beside its peers and the rate of the device in the same run.
//!
//! A bench returns a [`Report`]; this module prints it and writes it to a result file ([`crate::results`]).
//! [`performance`] makes docs/performance.md from the result files.

mod ablate;
mod caches;
mod characterize;
mod checkpoint;
mod ecc;
mod emulation;
mod flush;
mod flush_peers;
mod hardware;
mod latency;
mod memory;
mod msync;
mod open;
mod parity;
mod performance;
mod persist;
mod predict;
mod sim_peers;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use crate::output::{emit_json, emit_text};
use crate::results::RunContext;

/// The benches.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// What each heuristic of the pager gives: programs under `deepram run`, with and without it by turns
    Ablate(ablate::AblateArgs),
    /// Cache replacement policies on traces in memory, against libCacheSim
    Caches(caches::CachesArgs),
    /// Characterisation of a trace in one pass, against libCacheSim's simulation of each cache size
    Characterize(characterize::CharacterizeArgs),
    /// Sync and rollback of a pool with dirty segments, against msync of a mapping
    Checkpoint(checkpoint::CheckpointArgs),
    /// BCH codes: encoding and decoding by every kernel, against the Linux kernel's BCH
    Ecc(ecc::EccArgs),
    /// Accuracy of `deepram run --media`: read latency and bandwidth asked for, and got by a pointer chase and by streams
    Emulation(emulation::EmulationArgs),
    /// The program that is measured
    #[command(hide = true)]
    EmulationWorker(emulation::WorkerArgs),
    /// Cost of flushing a cache line to memory by each method that the processor has
    Flush(flush::FlushArgs),
    /// Durability of one changed byte in ranges of 1 B to 8 GiB of byte-addressable memory, with and without selective flushing
    Msync(msync::MsyncArgs),
    /// The papers' systems and their baselines simulated on hardware of today
    Hardware(hardware::HardwareArgs),
    /// Random updates of memory larger than DRAM: pager and pool against mmap and swap
    Gups(memory::GupsArgs),
    /// Zipf-distributed reads of memory larger than DRAM
    Zipf(memory::MemoryArgs),
    /// Reads of rows of 16 KiB in random order, of memory larger than DRAM
    Rows(memory::MemoryArgs),
    /// Sequential reads of memory larger than DRAM
    Scan(memory::MemoryArgs),
    /// Reads of 1,024 random elements at a time
    Gather(memory::MemoryArgs),
    /// The process in which one peer runs
    #[command(hide = true)]
    MemoryWorker(memory::WorkerArgs),
    /// Opening a pool after a crash, by the size of its log
    Open(open::OpenArgs),
    /// Parity: its cost in bytes and in rate, scrubbing, and reading a pool that has lost a column
    Parity(parity::ParityArgs),
    /// Makes docs/performance.md and its charts from the result files
    #[command(hide = true)]
    Performance(performance::PerformanceArgs),
    /// Durable updates of 64 bytes: persists of a pool against file writes, SQLite and LMDB
    Persist(persist::PersistArgs),
    /// Predictions of the simulator against the measured pool and the measured pager
    Predict(predict::PredictArgs),
    /// The simulator against MQSim, DiskSim and SkyByte
    SimPeers(sim_peers::SimPeersArgs),
}

/// Options for the output of a bench.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write the JSON, with machine, commit, command, load and date, to a new file BENCH-DATE-COMMIT.json in this folder
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

/// Options of benches that use files.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Folder for the files, on the device to be measured
    #[arg(long, default_value = ".", value_name = "PATH")]
    dir: PathBuf,
    /// Number of measurements of each value
    #[arg(long, default_value_t = 9, value_name = "N")]
    repeats: usize,
    #[command(flatten)]
    output: OutputArgs,
}

/// The results of a bench.
#[derive(Debug)]
struct Report {
    json: Value,
    text: String,
    /// Error to end with once the report is printed: part of the measurements failed.
    failure: Option<String>,
}

impl Report {
    fn new(json: &impl Serialize, text: String) -> anyhow::Result<Self> {
        Ok(Self { json: serde_json::to_value(json)?, text, failure: None })
    }
}

/// Runs a bench.
pub(crate) fn run(command: BenchCommand) -> anyhow::Result<()> {
    let none = None;
    match command {
        BenchCommand::MemoryWorker(args) => memory::worker(&args),
        BenchCommand::Performance(args) => performance::run(&args),
        BenchCommand::EmulationWorker(args) => emulation::worker(&args),
        BenchCommand::Emulation(args) => measure("emulation", none, &args.output, || emulation::run(&args)),
        BenchCommand::Ablate(args) => measure("ablate", Some(&args.dir), &args.output, || ablate::run(&args)),
        BenchCommand::Caches(args) => measure("caches", none, &args.output, || caches::run(&args)),
        BenchCommand::Characterize(args) => {
            measure("characterize", none, &args.output, || characterize::run(&args))
        }
        BenchCommand::Ecc(args) => measure("ecc", none, &args.output, || ecc::run(&args)),
        BenchCommand::Flush(args) => measure("flush", none, &args.output, || flush::run(&args)),
        BenchCommand::Msync(args) => measure("msync", none, &args.output, || msync::run(&args)),
        BenchCommand::Hardware(args) => measure("hardware", none, &args.output, || hardware::run(&args)),
        BenchCommand::SimPeers(args) => measure("sim-peers", none, &args.output, || sim_peers::run(&args)),
        BenchCommand::Checkpoint(args) => {
            measure("checkpoint", Some(&args.common.dir), &args.common.output, || checkpoint::run(&args))
        }
        BenchCommand::Open(args) => {
            measure("open", Some(&args.common.dir), &args.common.output, || open::run(&args))
        }
        BenchCommand::Parity(args) => {
            measure("parity", Some(&args.common.dir), &args.common.output, || parity::run(&args))
        }
        BenchCommand::Persist(args) => {
            measure("persist", Some(&args.common.dir), &args.common.output, || persist::run(&args))
        }
        BenchCommand::Predict(args) => {
            measure("predict", Some(&args.dir), &args.output, || predict::run(&args))
        }
        BenchCommand::Gups(args) => measure("gups", Some(args.dir()), args.output(), || memory::gups(&args)),
        BenchCommand::Zipf(args) => measure("zipf", Some(&args.dir), &args.output, || memory::zipf(&args)),
        BenchCommand::Rows(args) => measure("rows", Some(&args.dir), &args.output, || memory::rows(&args)),
        BenchCommand::Scan(args) => measure("scan", Some(&args.dir), &args.output, || memory::scan(&args)),
        BenchCommand::Gather(args) => {
            measure("gather", Some(&args.dir), &args.output, || memory::gather(&args))
        }
    }
}

/// Runs one bench, prints its report and writes its result file. The context is taken first, so that the load is that before the
/// bench.
fn measure(
    name: &str,
    folder: Option<&Path>,
    output: &OutputArgs,
    bench: impl FnOnce() -> anyhow::Result<Report>,
) -> anyhow::Result<()> {
    let context = output.results.is_some().then(|| RunContext::begin(name, folder));
    let report = bench()?;
    if output.json {
        emit_json(&report.json)?;
    } else {
        emit_text(&report.text)?;
    }
    if let (Some(context), Some(folder)) = (context, &output.results) {
        let path = context.write(folder, report.json)?;
        eprintln!("results: {}", path.display());
    }
    match report.failure {
        Some(failure) => anyhow::bail!(failure),
        None => Ok(()),
    }
}

/// Repeated measurements of one value.
#[derive(Debug, Clone, Serialize)]
struct Series {
    name: String,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    samples: usize,
}

impl Series {
    fn new(name: impl Into<String>, unit: &'static str, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |n: usize| values.get(n).copied().unwrap_or(f64::NAN);
        Self {
            name: name.into(),
            unit,
            median: at(values.len() / 2),
            min: at(0),
            max: at(values.len().saturating_sub(1)),
            samples: values.len(),
        }
    }

    fn milliseconds(name: impl Into<String>, times: &[Duration]) -> Self {
        Self::new(name, "ms", times.iter().map(|t| t.as_secs_f64() * 1e3).collect())
    }
}

/// Series as a table.
fn series_table(series: &[Series]) -> String {
    let width = series.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:>10}  {:>10}  {:>10}\n", "", "median", "min", "max");
    for s in series {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:width$}  {:>10.3}  {:>10.3}  {:>10.3}  {}",
            s.name, s.median, s.min, s.max, s.unit
        );
    }
    text
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

/// A folder for the files of a bench. Dropping this value removes the folder.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path) -> anyhow::Result<Self> {
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
        // The name of a folder that cannot be removed tells which process made it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that all processes have written to the device of `dir`; `None` where the kernel does not report them.
fn device_written(dir: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

/// Size of a random request of a device measurement, bytes.
pub(crate) const BLOCK: usize = 4096;
