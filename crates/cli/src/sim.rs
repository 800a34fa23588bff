//! `deepram sim`: a simulated memory system under a workload or a trace.

use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgGroup, Args, ValueEnum};
use deepram_media::Registry;
use deepram_sim::host::Stop;
use deepram_sim::ssd::Precondition;
use deepram_sim::{RunOptions, SimError, System, SystemConfig, requests, run as simulate};
use deepram_trace::workload::Spec;
use deepram_trace::{Format, Item, ObjectPlacement, Request, TraceError, Workload};
use indicatif::ProgressBar;

use crate::output::{emit_text, progress};
use crate::trace::Source;

const PS_PER_US: f64 = 1e6;
/// Bytes that an object of a trace takes.
const SLOT_BYTES: u64 = 4096;
/// The progress bar moves once in so many requests.
const STEP: u64 = 1 << 14;

/// Options of `deepram sim`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("input").required(true).args(["workload", "trace"])))]
pub(crate) struct SimArgs {
    /// The system: dram or ssd
    #[arg(value_name = "SYSTEM", value_parser = system)]
    system: System,
    /// A generated workload, such as zipf:theta=0.99,span=1GiB,count=1M; see the end of this help
    #[arg(long, value_name = "SPEC")]
    workload: Option<String>,
    /// A trace: plain, gzip or zstd
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The trace's format; recognised by content if not given
    #[arg(long, value_name = "FORMAT", requires = "trace")]
    format: Option<Format>,
    /// The device, as `deepram media list` names it
    #[arg(long, value_name = "PRESET", default_value = "")]
    preset: String,
    /// A TOML file with presets of your own
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Another figure for the preset: key=value, such as nand.read=30us
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Seed of everything random; the same seed gives the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads that issue requests, where these have no arrival times
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Requests that a thread has under way at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u32,
    /// Microseconds between a completion and the thread's next request
    #[arg(long, value_name = "US", default_value_t = 0.0)]
    think: f64,
    /// Ignore arrival times: the next request comes when one is done
    #[arg(long)]
    closed: bool,
    /// At most so many requests; 0 for the workload's or trace's own end
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Requests at the start that are simulated but not measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    warm_up: u64,
    /// Addresses beyond the device wrap around instead of being errors
    #[arg(long)]
    wrap: bool,
    /// For traces of objects, which have no addresses: places of 4 KiB that they are spread over
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    object_slots: u64,
    /// State of the drive before the run
    #[arg(long, value_enum, default_value_t = Before::Empty)]
    precondition: Before,
    /// Share of the logical pages that the precondition writes
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    filled: f64,
    /// Reads may suspend programs and erases, where the part can
    #[arg(long)]
    suspend: bool,
    /// Length of the intervals of the time series, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0.0)]
    interval: f64,
    /// Write the time series as CSV to a file
    #[arg(long, value_name = "FILE", requires = "interval")]
    csv: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The state of a drive before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Before {
    /// Nothing is written
    Empty,
    /// Written once, in order
    Sequential,
    /// As after long uniform random writing
    Steady,
}

fn system(name: &str) -> Result<System, SimError> {
    System::parse(name)
}

/// What `deepram sim --help` says at its end.
pub(crate) fn workloads() -> String {
    deepram_trace::workload::help()
}

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    let mut registry = Registry::builtin()?;
    if let Some(file) = &args.config {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        registry.add(&file.display().to_string(), &text)?;
    }
    let mut config = SystemConfig::new(args.system);
    config.preset.clone_from(&args.preset);
    config.overrides.clone_from(&args.set);
    config.ssd.suspend_programs = args.suspend;
    config.ssd.suspend_erases = args.suspend;
    config.ssd.precondition = match args.precondition {
        Before::Empty => Precondition::Empty,
        Before::Sequential => Precondition::Sequential(args.filled),
        Before::Steady => Precondition::Steady(args.filled),
    };
    let mut options = RunOptions { seed: args.seed, ..RunOptions::default() };
    options.host.threads = args.threads;
    options.host.per_thread = args.depth;
    options.host.think_ps = picoseconds(args.think, "think")?;
    options.host.closed = args.closed;
    options.host.requests = args.requests.unwrap_or(0);
    options.host.warm_up = args.warm_up;
    options.host.wrap = args.wrap;
    options.host.stop = Stop::Drained;
    options.host.interval_ps = picoseconds(args.interval, "interval")?;

    let objects = ObjectPlacement { slot_bytes: SLOT_BYTES, slots: args.object_slots };
    let bar = progress("simulating");
    let result = match (&args.workload, &args.trace) {
        (Some(spec), _) => {
            options.workload.clone_from(spec);
            let parsed: Spec = spec.parse()?;
            let bounded = parsed.values().any(|(name, value)| name == "count" && value != "0");
            anyhow::ensure!(
                bounded || args.requests.is_some(),
                "{} may have no end: give count=N in the workload, or --requests N (0 for its own end, if it has one)",
                parsed.name()
            );
            let items = Workload::new(spec, args.seed)?.map(Ok::<_, TraceError>);
            simulate(&registry, &config, counted(items, objects, &bar), &options)
        }
        (None, Some(file)) => {
            options.workload = file.display().to_string();
            let reader = Source::new(file.clone(), args.format).open()?;
            simulate(&registry, &config, counted(reader, objects, &bar), &options)
        }
        (None, None) => anyhow::bail!("give --workload or --trace"),
    };
    bar.finish_and_clear();
    let result = result?;
    if let Some(file) = &args.csv {
        std::fs::write(file, result.to_csv()).with_context(|| format!("writing {}", file.display()))?;
    }
    if args.json {
        return emit_text(&format!("{}\n", result.to_json()?));
    }
    emit_text(&result.to_table())
}

fn picoseconds(us: f64, option: &str) -> anyhow::Result<u64> {
    anyhow::ensure!((0.0..1e12).contains(&us), "--{option} {us} is no time in microseconds");
    Ok((us * PS_PER_US).round() as u64)
}

fn counted<'a, I>(
    items: I,
    objects: ObjectPlacement,
    bar: &'a ProgressBar,
) -> impl Iterator<Item = Result<Request, SimError>> + 'a
where
    I: Iterator<Item = Result<Item, TraceError>> + 'a,
{
    let mut n = 0_u64;
    requests(items, objects).inspect(move |_| {
        n += 1;
        if n.is_multiple_of(STEP) {
            bar.set_position(n);
        }
    })
}
