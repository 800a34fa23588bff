//! Accuracy of `deepram run --media`: read latency and bandwidth asked for, and got by a pointer chase and by streams that run as
//! ordinary programs (Figures 2 and 3 of the NVMM application study).

use std::ffi::OsString;
use std::hint::black_box;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use deepram_core::units::Picos;
use deepram_linux::clock::{monotonic_ns, thread_cpu_ns};
use deepram_linux::slow_memory::Machine;
use serde::Serialize;

use super::{OutputArgs, Report};
use crate::output::Table;
use crate::run::{MediaProgram, MediaSpec};

/// Options of `deepram bench emulation`.
#[derive(Debug, Args)]
pub(crate) struct EmulationArgs {
    /// Read latencies to ask for; those that are shorter than this machine's are left out
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "150ns,200ns,250ns,300ns,400ns,500ns,600ns,800ns,1us",
        value_name = "TIME"
    )]
    read: Vec<Picos>,
    /// Parts of this machine's bandwidth to ask for: 4 is a quarter
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    bandwidth: Vec<u32>,
    /// Measurements of each value; the median counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Options of the measured program.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// What it does
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Loads that depend on each other
    Chase,
    /// Sequential loads by all processors
    Read,
    /// Sequential loads and stores by all processors
    Copy,
    /// Additions without memory
    Compute,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Chase => "chase",
            Self::Read => "read",
            Self::Copy => "copy",
            Self::Compute => "compute",
        }
    }
}

/// Memory of the chase and of each stream, bytes.
const MEMORY: usize = 512 << 20;
const LINE_WORDS: usize = 8;
/// Time before the measurement, and its length.
const WARM_UP: Duration = Duration::from_millis(700);
const MEASURED: Duration = Duration::from_millis(2500);
/// Loads between two looks at the clock.
const BATCH: usize = 4096;

/// The measured program: prints one number, nanoseconds of a load or gigabytes a second.
pub(super) fn worker(args: &WorkerArgs) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let value = match args.kind {
        Kind::Chase => 1.0 / chase(),
        Kind::Compute => compute(),
        Kind::Read | Kind::Copy => std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(|| stream(args.kind))).collect();
            all.into_iter().map(|thread| thread.join().expect("a stream does not panic")).sum()
        }),
    };
    crate::output::emit_text(&format!("{value}\n"))
}

/// A clock.
type Clock = fn() -> Duration;

/// Processor time of this thread, stalls included.
fn processor() -> Duration {
    Duration::from_nanos(thread_cpu_ns())
}

/// Elapsed time; a cap of the bandwidth holds for all processors.
fn monotonic() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

/// Calls `batch` until the time is over. Returns units of work a nanosecond after the warm-up.
fn measured(clock: Clock, mut batch: impl FnMut() -> u64) -> f64 {
    let warm = clock();
    while clock() - warm < WARM_UP {
        batch();
    }
    let (begin, mut done) = (clock(), 0);
    while clock() - begin < MEASURED {
        done += batch();
    }
    done as f64 / (clock() - begin).as_nanos() as f64
}

fn chase() -> f64 {
    let lines = MEMORY / 64;
    let mut words = vec![0_u64; lines * LINE_WORDS];
    // A full cycle through all lines, as the multiplier is 1 modulo 4 and the increment odd.
    let next = |line: usize| line.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(0x1234_5677) & (lines - 1);
    for line in 0..lines {
        words[line * LINE_WORDS] = (next(line) * LINE_WORDS) as u64;
    }
    let mut at = 0;
    measured(processor, || {
        for _ in 0..BATCH {
            at = words[at] as usize;
        }
        black_box(at);
        BATCH as u64
    })
}

fn compute() -> f64 {
    let mut state = 1_u64;
    measured(processor, || {
        for _ in 0..BATCH {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        BATCH as u64
    })
}

/// Gigabytes a second that move between the caches and memory: a store reads its line and writes it.
fn stream(kind: Kind) -> f64 {
    const PART: usize = 1 << 17;
    let mut words = vec![1_u64; MEMORY / 8];
    let (half, mut part) = (MEMORY / 16, 0);
    measured(monotonic, || {
        part = if (part + 2) * PART > half { 0 } else { part + 1 };
        let (from, to) = words.split_at_mut(half);
        let (from, to) = (&from[part * PART..][..PART], &mut to[part * PART..][..PART]);
        if kind == Kind::Read {
            black_box(from.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
            return PART as u64 * 8;
        }
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.wrapping_add(1);
        }
        black_box(&to);
        PART as u64 * 8 * 3
    })
}

#[derive(Serialize)]
struct EmulationReport {
    /// Latency of an idle read from this machine's memory, ns.
    machine_read_ns: f64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    media: String,
    program: &'static str,
    /// Nanoseconds of a load, or gigabytes a second.
    unit: &'static str,
    /// The value that was asked for; of operations that the memory does not concern, the program's own.
    asked: f64,
    got: f64,
    /// The same program without emulation.
    own: f64,
}

pub(super) fn run(args: &EmulationArgs) -> anyhow::Result<Report> {
    let machine = Machine::measure()?;
    let plain: MediaSpec = "pmem".parse().map_err(anyhow::Error::msg)?;
    let own = |kind| median(args.repeats, || number(&plain, &machine, kind));
    let mut rows = Vec::new();
    let own_chase = own(Kind::Chase)?;
    for read in args.read.iter().filter(|read| read.0 >= machine.memory_ps) {
        let media = format!("pmem:read={}ns", read.ns());
        rows.push(row(args, &machine, &media, Kind::Chase, own_chase, read.ns())?);
    }
    if let Some(read) = args.read.iter().max().filter(|read| read.0 >= machine.memory_ps) {
        let compute = own(Kind::Compute)?;
        let media = format!("pmem:read={}ns", read.ns());
        rows.push(row(args, &machine, &media, Kind::Compute, compute, compute)?);
    }
    // The cap is a part of what all processors read.
    let whole = 64.0 * 1000.0 / machine.line_ps as f64;
    for kind in [Kind::Read, Kind::Copy] {
        let alone = own(kind)?;
        for part in &args.bandwidth {
            let asked = alone.min(whole / f64::from(*part));
            rows.push(row(args, &machine, &format!("pmem:bandwidth=1/{part}"), kind, alone, asked)?);
        }
    }
    ensure!(!rows.is_empty(), "nothing to measure: every latency asked for is shorter than this machine's");
    let report = EmulationReport { machine_read_ns: Picos(machine.memory_ps).ns(), rows };
    Report::new(&report, text(&report))
}

fn row(
    args: &EmulationArgs,
    machine: &Machine,
    media: &str,
    kind: Kind,
    own: f64,
    asked: f64,
) -> anyhow::Result<Row> {
    let spec: MediaSpec = media.parse().map_err(anyhow::Error::msg)?;
    let got = median(args.repeats, || number(&spec, machine, kind))?;
    let unit = match kind {
        Kind::Chase => "ns",
        Kind::Read | Kind::Copy => "GB/s",
        Kind::Compute => "op/ns",
    };
    Ok(Row { media: media.into(), program: kind.name(), unit, asked, got, own })
}

fn median(repeats: u16, mut measure: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let mut all = (0..repeats).map(|_| measure()).collect::<anyhow::Result<Vec<f64>>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

/// The number that the program prints on such memory.
fn number(spec: &MediaSpec, machine: &Machine, kind: Kind) -> anyhow::Result<f64> {
    let exe = std::env::current_exe().context("finding this command")?;
    let words: Vec<OsString> =
        vec![exe.into(), "bench".into(), "emulation-worker".into(), kind.name().into()];
    let mut program = MediaProgram::on_machine(spec, &words, Some(machine))?;
    let output = program.command().stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(value) if output.status.success() => Ok(value),
        _ => bail!("the {} program on {spec} ended with {}: \"{}\"", kind.name(), output.status, text.trim()),
    }
}

fn text(report: &EmulationReport) -> String {
    let mut table = Table::new(&["<memory", "<program", "own", "asked", "got", "got / asked", "<unit"]);
    for row in &report.rows {
        table.row(vec![
            row.media.clone(),
            row.program.into(),
            format!("{:.2}", row.own),
            format!("{:.2}", row.asked),
            format!("{:.2}", row.got),
            format!("{:.3}", row.got / row.asked),
            row.unit.into(),
        ]);
    }
    format!("a read from this machine's memory takes {:.0} ns\n\n{}", report.machine_read_ns, table.render())
}
