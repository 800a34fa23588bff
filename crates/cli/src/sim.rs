//! `deepram sim`: simulates a memory system under a workload or a trace.

use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgGroup, Args, ValueEnum, value_parser};
use deepram_core::units::{Bytes, Picos, parse_count, parse_share};
use deepram_sim::clients::Logging;
use deepram_sim::nvmm::Prefetch;
use deepram_sim::settings::settings_table;
use deepram_sim::simulation::{
    DriveState, Simulation, parse_interval, parse_object_slots, parse_prefetch, parse_region, parse_time,
};
use deepram_sim::{RunResult, SimError, System};
use deepram_trace::Format;

use crate::output::{emit_text, progress};

/// Options of `deepram sim`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(group(ArgGroup::new("input").required(true).args(["workload", "trace", "keys"])))]
pub(crate) struct SimArgs {
    /// System: dram, nvmm, ssd, ssd-buffer, disk-cache, pmem, ssd-paging, flatflash, unified-mmap, traditional-stack; or pool,
    /// the real pool on a device that `deepram media measure` has measured
    #[arg(value_name = "SYSTEM", value_parser = system)]
    system: System,
    /// Generated workload, such as zipf:theta=0.99,span=1GiB,count=1M; the end of this help lists all workloads
    #[arg(long, value_name = "SPEC")]
    workload: Option<String>,
    /// Trace file: plain, gzip or zstd
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Format of the trace [default: recognised from its content]
    #[arg(long, value_name = "FORMAT", conflicts_with = "workload")]
    format: Option<Format>,
    /// Preset of the device, as listed by `deepram media list`
    #[arg(long, value_name = "PRESET", default_value = "")]
    preset: String,
    /// TOML file with presets of your own
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a value of the preset: key=value, such as nand.read=30us. For the other presets of ssd-paging use
    /// memory.key=value and software.key=value, for the SSD of ssd-buffer and pmem drive.key=value, for a pool and its machine pool.key=value with the keys data, segment, hit,
    /// fault, first_store, write_back, install, stage, fault_around, huge_pages, budget, and with --swap fresh, second_chance, evict
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// List the keys that --set accepts for the system, each with its units and meaning
    #[arg(long)]
    keys: bool,
    /// Seed of all random numbers; equal seeds give equal results
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of threads that issue requests without arrival times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    threads: u32,
    /// Outstanding requests of each thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    depth: u32,
    /// Think time between a completion and the thread's next request: 5us, 2ms; microseconds without a unit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_time)]
    think: Picos,
    /// Closed loop: ignore arrival times and issue the next request at each completion
    #[arg(long)]
    closed: bool,
    /// Most requests: 1000, 10k, 2.5M; 0 for all requests of the workload or trace
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
    requests: u64,
    /// Requests at the start that the results exclude
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
    warm_up: u64,
    /// Wrap addresses beyond the device around; otherwise they are errors
    #[arg(long)]
    wrap: bool,
    /// Slots of 4 KiB over which the objects of an object trace are spread, because objects have no addresses [default:
    /// 1048576]
    #[arg(long, value_name = "N", conflicts_with = "workload", value_parser = parse_object_slots)]
    object_slots: Option<u64>,
    /// State of the drive before the run [default: empty]
    #[arg(long, value_enum)]
    precondition: Option<StateName>,
    /// Share of the logical pages that the precondition writes: 0.7, 70% [default: all]
    #[arg(long, value_name = "SHARE", requires = "precondition", value_parser = parse_share)]
    filled: Option<f64>,
    /// Let reads suspend programs and erases, if the flash part supports it
    #[arg(long)]
    suspend: bool,
    /// Preset of a processor, such as nvmm-host. Each request becomes references to its lines, issued by --threads
    /// threads that share the workload. Not for ssd, ssd-buffer, disk-cache and pool
    #[arg(long, value_name = "PRESET", conflicts_with_all = ["depth", "think", "closed", "requests", "interval"])]
    processor: Option<String>,
    /// Cores of the processor [default: as in its preset]
    #[arg(long, value_name = "N", requires = "processor", value_parser = value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// Instructions between two references of a generated workload
    #[arg(long, value_name = "N", requires = "processor", default_value_t = 4)]
    gap: u32,
    /// DRAM: cache of nvmm; page frames of ssd-paging, flatflash and its baselines [default: as in the preset]; budget of a
    /// pool [default: a quarter of its data]
    #[arg(long, value_name = "SIZE")]
    dram: Option<Bytes>,
    /// Address range that flatflash keeps on the drive and that a flush makes durable: FIRST..END, such as 0..1GiB; may be
    /// given again. For its baselines, a flush writes the pages of the range
    #[arg(long, value_name = "FIRST..END", value_parser = parse_region)]
    persist: Vec<Region>,
    /// Clients of a database (tpcc, tpcb, tatp), each with a core of its own. A log makes their transactions durable, and
    /// --requests and --warm-up count transactions
    #[arg(long, value_name = "N", requires = "workload", value_parser = value_parser!(u32).range(1..=4096),
        conflicts_with_all = ["threads", "depth", "think", "closed", "interval", "processor", "wrap"])]
    clients: Option<u32>,
    /// Logs of the clients [default: own on flatflash, central elsewhere]
    #[arg(long, value_enum, requires = "clients")]
    logging: Option<LogScope>,
    /// Processor time of a client before each memory access: 10us; microseconds without a unit
    #[arg(long, value_name = "TIME", requires = "clients", default_value = "10us", value_parser = parse_time)]
    work: Picos,
    /// Time that a record holds the lock of the central log
    #[arg(long, value_name = "TIME", requires = "clients", default_value = "1us", value_parser = parse_time)]
    log_lock: Picos,
    /// Prefetch of nvmm on a miss: none, a number of blocks, or streams
    #[arg(long, value_name = "BLOCKS", value_parser = parse_prefetch)]
    prefetch: Option<Prefetch>,
    /// Preset of the DRAM of ssd-paging [default: ddr3-1600]
    #[arg(long, value_name = "PRESET")]
    memory: Option<String>,
    /// Preset of the operating system of ssd-paging [default: linux-slc]
    #[arg(long, value_name = "PRESET")]
    software: Option<String>,
    /// Preset of the SSD of ssd-buffer [default: hybrid-buffer] and of pmem [default: sata-mlc]
    #[arg(long, value_name = "PRESET")]
    drive: Option<String>,
    /// Let the pages of ssd-paging be anonymous memory in swap instead of a mapped file; let pool be the pager of `deepram run` over
    /// its swap file instead of a pool over its journal
    #[arg(long)]
    swap: bool,
    /// Interval of the time series: 100us, 1ms; microseconds without a unit
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    interval: Option<Picos>,
    /// CSV file for the time series
    #[arg(long, value_name = "FILE", requires = "interval")]
    csv: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The state of a drive before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateName {
    /// No page is written
    Empty,
    /// Every page is written once, sequentially
    Sequential,
    /// Steady state of long uniform random writing
    Steady,
}

/// Logs of database clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogScope {
    /// One log of all clients, with group commit
    Central,
    /// A log for each client
    Own,
}

fn system(name: &str) -> Result<System, SimError> {
    System::parse(name)
}

/// An address range, bytes.
type Region = std::ops::Range<u64>;

/// The list of workloads at the end of `deepram sim --help`.
pub(crate) fn workloads() -> String {
    deepram_trace::workload::help()
}

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    if args.keys {
        return emit_text(&settings_table(args.system));
    }
    let registry = crate::media::registry(args.config.as_deref())?;
    let bar = progress("simulating");
    let observe = |requests| {
        bar.set_position(requests);
        true
    };
    let result = args.simulation().run(&registry, &observe);
    bar.finish_and_clear();
    let (result, notes) = result?;
    for note in notes {
        eprintln!("note: {note}");
    }
    show(args, &result)
}

impl SimArgs {
    /// The simulation that the options describe.
    fn simulation(&self) -> Simulation {
        Simulation {
            system: self.system,
            workload: self.workload.clone(),
            trace: self.trace.clone(),
            columns: None,
            format: self.format,
            preset: self.preset.clone(),
            set: self.set.clone(),
            seed: self.seed,
            threads: self.threads,
            depth: self.depth,
            think: self.think,
            closed: self.closed,
            requests: self.requests,
            warm_up: self.warm_up,
            wrap: self.wrap,
            object_slots: self.object_slots,
            precondition: self.precondition.map(|state| match state {
                StateName::Empty => DriveState::Empty,
                StateName::Sequential => DriveState::Sequential,
                StateName::Steady => DriveState::Steady,
            }),
            filled: self.filled,
            suspend: self.suspend,
            processor: self.processor.clone(),
            cores: self.cores,
            gap: self.gap,
            dram: self.dram,
            persist: self.persist.clone(),
            clients: self.clients,
            logging: self.logging.map(|of| match of {
                LogScope::Central => Logging::Central,
                LogScope::Own => Logging::Own,
            }),
            work: self.work,
            log_lock: self.log_lock,
            prefetch: self.prefetch,
            memory: self.memory.clone(),
            software: self.software.clone(),
            drive: self.drive.clone(),
            swap: self.swap,
            interval: self.interval,
        }
    }
}

/// Prints a result, and writes its time series to the CSV file.
fn show(args: &SimArgs, result: &RunResult) -> anyhow::Result<()> {
    if let Some(file) = &args.csv {
        std::fs::write(file, result.to_csv()).with_context(|| format!("writing {}", file.display()))?;
    }
    if args.json {
        return emit_text(&format!("{}\n", result.to_json()?));
    }
    emit_text(&result.to_table())
}
