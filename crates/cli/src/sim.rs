//! `deepram sim`: simulates a memory system under a workload or a trace.

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgGroup, Args, ValueEnum, value_parser};
use deepram_core::units::{self, Bytes, Picos, parse_count, parse_share};
use deepram_media::{Processor, Registry};
use deepram_sim::clients::{ClientOptions, Logging};
use deepram_sim::host::Stop;
use deepram_sim::nvmm::Prefetch;
use deepram_sim::paging::Backing;
use deepram_sim::processor::{
    ProcessorOptions, ThreadReferences, memory_references, warm_up_first, workload_threads,
};
use deepram_sim::settings::settings_table;
use deepram_sim::ssd::Precondition;
use deepram_sim::{
    RunOptions, RunResult, SimError, System, SystemConfig, requests, run as simulate, run_clients,
    run_threads,
};
use deepram_trace::workload::title;
use deepram_trace::{Format, Item, ObjectPlacement, Op, Request, TraceError, Workload};
use indicatif::ProgressBar;

use crate::Usage;
use crate::output::{emit_text, progress};
use crate::trace::TraceInput;

/// Size of the slot of an object of a trace, bytes.
pub(crate) const SLOT_BYTES: u64 = 4096;
/// Default number of object slots.
pub(crate) const OBJECT_SLOTS: u64 = 1 << 20;
/// Requests between two updates of the progress bar.
const STEP: u64 = 1 << 14;

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
    /// fault, first_store, write_back
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
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
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
    #[arg(long, value_name = "N", conflicts_with = "workload", value_parser = object_slots)]
    object_slots: Option<u64>,
    /// State of the drive before the run [default: empty]
    #[arg(long, value_enum)]
    precondition: Option<DriveState>,
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
    #[arg(long, value_name = "FIRST..END", value_parser = region)]
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
    #[arg(long, value_name = "TIME", requires = "clients", default_value = "10us", value_parser = time)]
    work: Picos,
    /// Time that a record holds the lock of the central log
    #[arg(long, value_name = "TIME", requires = "clients", default_value = "1us", value_parser = time)]
    log_lock: Picos,
    /// Prefetch of nvmm on a miss: none, a number of blocks, or streams
    #[arg(long, value_name = "BLOCKS", value_parser = prefetch)]
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
    /// Let the pages of ssd-paging be anonymous memory in swap instead of a mapped file
    #[arg(long)]
    swap: bool,
    /// Interval of the time series: 100us, 1ms; microseconds without a unit
    #[arg(long, value_name = "TIME", value_parser = interval)]
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
enum DriveState {
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

fn prefetch(text: &str) -> Result<Prefetch, String> {
    match text {
        "none" => Ok(Prefetch::None),
        "streams" => Ok(Prefetch::STREAMS),
        number => match number.parse() {
            Ok(0) => Ok(Prefetch::None),
            Ok(blocks) if blocks <= 1024 => Ok(Prefetch::Next(blocks)),
            _ => Err("expected none, streams, or a number of blocks up to 1024".into()),
        },
    }
}

/// An address range, bytes.
type Region = std::ops::Range<u64>;

fn region(text: &str) -> Result<Region, String> {
    let expected = || "expected FIRST..END with FIRST less than END, such as 0..1GiB".to_owned();
    let (first, end) = text.split_once("..").ok_or_else(expected)?;
    let bytes = |text: &str| text.trim().parse::<Bytes>().map(|bytes| bytes.0).map_err(|_| expected());
    let region = bytes(first)?..bytes(end)?;
    if region.is_empty() { Err(expected()) } else { Ok(region) }
}

/// The list of workloads at the end of `deepram sim --help`.
pub(crate) fn workloads() -> String {
    deepram_trace::workload::help()
}

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    if args.keys {
        return emit_text(&settings_table(args.system));
    }
    let registry = crate::media::registry(args.config.as_deref())?;
    let mut config = SystemConfig::new(args.system);
    check_options(args)?;
    set_once(&args.set)?;
    config.preset.clone_from(&args.preset);
    config.overrides.clone_from(&args.set);
    config.ssd.suspend_programs = args.suspend;
    config.ssd.suspend_erases = args.suspend;
    let dram = args.dram.unwrap_or_default();
    (config.nvmm.cache, config.paging.memory, config.pool.dram) = (dram, dram, dram);
    config.flat.memory = dram;
    config.flat.regions.clone_from(&args.persist);
    config.nvmm.prefetch = args.prefetch.unwrap_or_default();
    if args.swap {
        config.paging.backing = Backing::Swap;
    }
    if let Some(memory) = &args.memory {
        config.memory.clone_from(memory);
    }
    if let Some(software) = &args.software {
        config.software.clone_from(software);
    }
    if let Some(drive) = &args.drive {
        config.drive.clone_from(drive);
    }
    let filled = args.filled.unwrap_or(1.0);
    config.ssd.precondition = match args.precondition {
        None | Some(DriveState::Empty) => Precondition::Empty,
        Some(DriveState::Sequential) => Precondition::Sequential(filled),
        Some(DriveState::Steady) => Precondition::Steady(filled),
    };
    let mut options = RunOptions { seed: args.seed, ..RunOptions::default() };
    options.host.threads = args.threads;
    options.host.per_thread = args.depth;
    options.host.think = args.think;
    options.host.closed = args.closed;
    options.host.requests = args.requests;
    options.host.warm_up = args.warm_up;
    options.host.wrap = args.wrap;
    options.host.stop = Stop::Drained;
    options.host.interval = args.interval.unwrap_or_default();

    let objects =
        ObjectPlacement { slot_bytes: SLOT_BYTES, slots: args.object_slots.unwrap_or(OBJECT_SLOTS) };
    let seen = RequestCounts::default();
    let bar = progress("simulating");
    if let Some(processor) = &args.processor {
        let result = on_processor(args, processor, &registry, &config, &mut options)?;
        bar.finish_and_clear();
        return show(args, &result);
    }
    if let (Some(clients), Some(spec)) = (args.clients, &args.workload) {
        let result = by_clients(args, clients, spec, &registry, &config, &mut options)?;
        bar.finish_and_clear();
        return show(args, &result);
    }
    let result = match (&args.workload, &args.trace) {
        (Some(spec), _) => {
            options.workload = title(spec);
            let workload = Workload::new(spec, args.seed)?;
            if !workload.ends() && args.requests == 0 {
                let name = workload.spec().name();
                return usage(format!("{name} is endless: give count=N in the workload, or --requests N"));
            }
            let items = workload.map(Ok::<_, TraceError>);
            simulate(&registry, &config, counted(items, objects, &bar, &seen), &options)
        }
        (None, Some(file)) => {
            options.workload = file.display().to_string();
            let reader = TraceInput::new(file.clone(), args.format).open()?;
            simulate(&registry, &config, counted(reader, objects, &bar, &seen), &options)
        }
        (None, None) => anyhow::bail!("give --workload or --trace"),
    };
    bar.finish_and_clear();
    let result = result?;
    seen.check(args, &options.workload)?;
    show(args, &result)
}

/// Simulates references of a processor's threads.
fn on_processor(
    args: &SimArgs,
    preset: &str,
    registry: &Registry,
    config: &SystemConfig,
    options: &mut RunOptions,
) -> anyhow::Result<RunResult> {
    let preset: Processor = registry.get(&format!("processor.{preset}"))?;
    let mut processor = ProcessorOptions::new(&preset)?;
    processor.cores = args.cores.unwrap_or(processor.cores);
    processor.wrap = args.wrap;
    let threads = match (&args.workload, &args.trace) {
        (Some(spec), _) => {
            options.workload = format!("{}, {} threads, gap {}", title(spec), args.threads, args.gap);
            workload_threads(spec, args.seed, args.threads, args.gap)?
        }
        (None, Some(file)) => {
            if args.threads > 1 {
                return usage("a trace has one thread; --threads is for generated workloads");
            }
            options.workload = file.display().to_string();
            let reader = TraceInput::new(file.clone(), args.format).open()?;
            let objects =
                ObjectPlacement { slot_bytes: SLOT_BYTES, slots: args.object_slots.unwrap_or(OBJECT_SLOTS) };
            let references: ThreadReferences<'static> =
                Box::new(memory_references(reader, args.gap, objects));
            vec![references]
        }
        (None, None) => anyhow::bail!("give --workload or --trace"),
    };
    Ok(run_threads(registry, config, warm_up_first(threads, args.warm_up), &processor, options)?)
}

/// Simulates transactions of database clients.
fn by_clients(
    args: &SimArgs,
    clients: u32,
    spec: &str,
    registry: &Registry,
    config: &SystemConfig,
    options: &mut RunOptions,
) -> anyhow::Result<RunResult> {
    if args.requests == 0 {
        return usage("--clients run without end: give --requests N");
    }
    let logging = args.logging.map(|of| match of {
        LogScope::Central => Logging::Central,
        LogScope::Own => Logging::Own,
    });
    let clients = ClientOptions {
        clients,
        logging,
        work: args.work,
        lock: args.log_lock,
        transactions: args.requests,
        warm_up: args.warm_up,
    };
    options.workload = spec.to_owned();
    Ok(run_clients(registry, config, Workload::new(spec, args.seed)?, &clients, options)?)
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

fn usage<T>(why: impl Into<String>) -> anyhow::Result<T> {
    Err(Usage(why.into()).into())
}

/// Rejects options that the system does not have.
fn check_options(args: &SimArgs) -> anyhow::Result<()> {
    let (system, name) = (args.system, args.system.name());
    let drive = matches!(system, System::Ssd | System::SsdBuffer | System::SsdPaging);
    let paging = system == System::SsdPaging;
    let flat = system.access_mode().is_some();
    let cached = paging || flat || matches!(system, System::Nvmm | System::Pool);
    for (given, fits, option, why) in [
        (args.precondition.is_some(), drive, "--precondition", "is for ssd, ssd-buffer and ssd-paging"),
        (args.suspend, drive, "--suspend", "is for ssd, ssd-buffer and ssd-paging"),
        (
            args.dram.is_some(),
            cached,
            "--dram",
            "is for nvmm, ssd-paging, flatflash, unified-mmap, traditional-stack and pool",
        ),
        (!args.persist.is_empty(), flat, "--persist", "is for flatflash, unified-mmap and traditional-stack"),
        (args.prefetch.is_some(), system == System::Nvmm, "--prefetch", "is for nvmm"),
        (args.memory.is_some(), paging, "--memory", "is for ssd-paging"),
        (args.software.is_some(), paging, "--software", "is for ssd-paging"),
        (
            args.drive.is_some(),
            matches!(system, System::SsdBuffer | System::Pmem),
            "--drive",
            "is for ssd-buffer and pmem",
        ),
        (args.swap, paging, "--swap", "is for ssd-paging"),
        (
            args.processor.is_some(),
            !matches!(system, System::Ssd | System::SsdBuffer | System::DiskCache | System::Pool),
            "--processor",
            "is for memory systems, such as dram, nvmm, ssd-paging and flatflash",
        ),
    ] {
        if given && !fits {
            return usage(format!("{option} {why}; the system is {name}"));
        }
    }
    if args.filled.is_some() && args.precondition == Some(DriveState::Empty) {
        return usage("--filled is for --precondition sequential or steady");
    }
    Ok(())
}

/// Rejects a key that is set twice, because the intended value is unknown.
pub(crate) fn set_once(set: &[String]) -> anyhow::Result<()> {
    let key = |text: &'_ str| text.split('=').next().unwrap_or("").trim().to_owned();
    let mut keys: Vec<String> = set.iter().map(|text| key(text)).collect();
    keys.sort();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => usage(format!("--set {}=..: the key is given twice", pair[0])),
        None => Ok(()),
    }
}

/// Parses a time; a number without a unit counts microseconds.
fn time(text: &str) -> Result<Picos, String> {
    let bare = units::split_unit(text).1.is_empty();
    let with_unit = if bare { format!("{}us", text.trim()) } else { text.to_owned() };
    with_unit.parse().map_err(|error: units::ParseUnitError| format!("expected {}", error.wanted()))
}

fn interval(text: &str) -> Result<Picos, String> {
    match time(text)? {
        Picos(0) => Err("expected an interval longer than 0".into()),
        interval => Ok(interval),
    }
}

fn object_slots(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("expected at least one slot".into()),
        Ok(slots) => Ok(slots),
        Err(error) => Err(error.to_string()),
    }
}

/// Counts of the requests that reach the simulator.
#[derive(Debug, Default)]
struct RequestCounts {
    requests: Cell<u64>,
    /// Latest arrival time so far.
    last_ps: Cell<u64>,
    /// Requests with an earlier arrival time than a request before them.
    late: Cell<u64>,
    /// Reads and writes of zero bytes.
    empty: Cell<u64>,
}

impl RequestCounts {
    fn add(&self, request: &Request) -> u64 {
        if let Some(time) = request.time_ps {
            if time < self.last_ps.get() {
                self.late.set(self.late.get() + 1);
            }
            self.last_ps.set(time.max(self.last_ps.get()));
        }
        if request.len == 0 && matches!(request.op, Op::Read | Op::Write) {
            self.empty.set(self.empty.get() + 1);
        }
        self.requests.set(self.requests.get() + 1);
        self.requests.get()
    }

    /// Fails if no request was measured, and prints notes on unusual requests.
    fn check(&self, args: &SimArgs, workload: &str) -> anyhow::Result<()> {
        let all = self.requests.get();
        anyhow::ensure!(all > 0, "{workload} has no requests");
        if all <= args.warm_up {
            return usage(format!(
                "--warm-up {} covers all {all} requests: none is left to measure",
                args.warm_up
            ));
        }
        if self.late.get() > 0 && !args.closed {
            eprintln!(
                "note: {} of {all} requests have an earlier arrival time than a request before them and arrive with that request",
                self.late.get()
            );
        }
        if self.empty.get() > 0 {
            eprintln!("note: {} of {all} requests have zero bytes and take no time", self.empty.get());
        }
        Ok(())
    }
}

fn counted<'a, I>(
    items: I,
    objects: ObjectPlacement,
    bar: &'a ProgressBar,
    seen: &'a RequestCounts,
) -> impl Iterator<Item = Result<Request, SimError>> + 'a
where
    I: Iterator<Item = Result<Item, TraceError>> + 'a,
{
    requests(items, objects).inspect(move |request| {
        if let Ok(request) = request {
            let n = seen.add(request);
            if n.is_multiple_of(STEP) {
                bar.set_position(n);
            }
        }
    })
}
