//! Database transactions with one central log or one log per client (FlatFlash, sections 3.5 and 5.6,
//! Figure 14).
//!
//! 1. FlatFlash has one log per client and persists lines. UnifiedMMap and TraditionalStack have a
//!    central log, written in groups of whole pages; they are also run with one log per client,
//!    written by page.
//! 2. All sizes are 1/128 of the paper's: 48 MiB of DRAM for a database of 384 MiB, 16 MiB of memory in
//!    the drive.
//! 3. The latency of the device is that of reading a flash page and of making a page durable. For a lower
//!    latency, these, programming and the bus are accelerated by the same factor.

use std::sync::Arc;

use deepram_media::{Bytes, Picos, Registry};
use deepram_sim::clients::{ClientOptions, Logging};
use deepram_sim::{RunOptions, SimError, System, run_clients};
use deepram_trace::Workload;
use serde_json::json;

use super::filesystem::{identity, metrics_of, system};
use crate::chart::{Axis, Chart, Drawing, Reference, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// Name of the procedure, part of the digest.
const CLIENTS: &str = "clients";

/// The systems with their logging method.
const FLATFLASH: (&str, System, Logging) = ("flatflash", System::FlatFlash, Logging::Own);
const UNIFIED: (&str, System, Logging) = ("unified", System::UnifiedMMap, Logging::Central);
const STACK: (&str, System, Logging) = ("stack", System::TraditionalStack, Logging::Central);
const UNIFIED_OWN: (&str, System, Logging) = ("unified.own", System::UnifiedMMap, Logging::Own);
const STACK_OWN: (&str, System, Logging) = ("stack.own", System::TraditionalStack, Logging::Own);
const ALL: [(&str, System, Logging); 5] = [FLATFLASH, UNIFIED, STACK, UNIFIED_OWN, STACK_OWN];

const THREADS: [u32; 4] = [4, 8, 12, 16];
/// Device latencies in microseconds. Figure 14d starts at `BASE_US`; the others are assumed.
const BASE_US: f64 = 20.0;
const LATENCIES_US: [f64; 4] = [20.0, 10.0, 5.0, 2.0];

/// A benchmark with about 384 MiB of data, and its transactions before and during measurement: enough to
/// fill DRAM several times.
struct Benchmark {
    name: &'static str,
    spec: &'static str,
    warm_up: u64,
    measured: u64,
}

const BENCHMARKS: [Benchmark; 3] = [
    Benchmark { name: "tpcc", spec: "tpcc:warehouses=4", warm_up: 4_000, measured: 2_000 },
    Benchmark { name: "tpcb", spec: "tpcb:branches=25", warm_up: 30_000, measured: 10_000 },
    Benchmark { name: "tatp", spec: "tatp:subscribers=183k", warm_up: 40_000, measured: 20_000 },
];

/// Settings that the sensitivity study can change.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    /// Preset overrides, `key=value`.
    pub(super) machine: Vec<String>,
    /// DRAM for pages, in bytes.
    pub(super) dram: u64,
    pub(super) work_ps: u64,
    pub(super) lock_ps: u64,
    /// The baselines have one log per client, too.
    pub(super) own: bool,
    /// Size of all logs.
    pub(super) log: &'static str,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            machine: Vec::new(),
            dram: 48 << 20,
            work_ps: 10_000_000,
            lock_ps: 1_000_000,
            own: false,
            log: "64MiB",
        }
    }
}

fn name(label: &str, benchmark: &Benchmark, threads: u32, latency_us: f64) -> String {
    format!("{label}.{}.t{threads}.{latency_us}us", benchmark.name)
}

/// Preset overrides for flash with this read latency.
fn device(latency_us: f64) -> Vec<String> {
    let faster = BASE_US / latency_us;
    vec![
        format!("nand.read={}ps", (9_760_000.0 / faster).round()),
        format!("nand.program={}ns", (246_000.0 / faster).round()),
        format!("nand.suspend_program={}ns", (20_000.0 / faster).round()),
        format!("nand.bus_rate={}MT/s", (400.0 * faster).round()),
        format!("page_write={latency_us}us"),
    ]
}

fn run(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
    (label, kind, logging): (&str, System, Logging),
    benchmark: &Benchmark,
    (threads, latency_us): (u32, f64),
) -> Result<SimulationRun, ReproError> {
    let name = name(label, benchmark, threads, latency_us);
    let mut machine = if latency_us == BASE_US { Vec::new() } else { device(latency_us) };
    machine.extend(variant.machine.iter().cloned());
    let mut config = system(kind, &machine);
    config.flat.memory = Bytes(variant.dram);
    let shrink = settings.pick(1, 20);
    let clients = ClientOptions {
        clients: threads,
        logging: Some(if variant.own { Logging::Own } else { logging }),
        work: Picos(variant.work_ps),
        lock: Picos(variant.lock_ps),
        transactions: benchmark.measured / shrink,
        warm_up: benchmark.warm_up / shrink,
    };
    // The paper's log entries have at most 1,424 bytes.
    let spec = format!("{},grain=row,logmost=1424B,log={}", benchmark.spec, variant.log);
    let seed = settings.seed;
    let more = json!({ "clients": format!("{clients:?}"), "seed": seed });
    let identity = identity(&name, registry, &config, &spec, more)?;
    let (registry, run) = (Arc::clone(registry), name.clone());
    Ok(SimulationRun::new(name, CLIENTS, identity, move || {
        let failed = |source: SimError| ReproError::Simulation { run: run.clone(), source: Box::new(source) };
        let workload =
            Workload::new(&spec, seed).map_err(|error| failed(simulate::workload_error(&error)))?;
        let options = RunOptions { seed, workload: spec.clone(), ..RunOptions::default() };
        let result = run_clients(&registry, &config, workload, &clients, &options).map_err(failed)?;
        metrics_of(&run, &result)
    }))
}

fn rate(finished: &FinishedRuns<'_>, run: &str) -> Result<f64, ReproError> {
    finished.metric(run, "throughput_requests_per_s")
}

/// Flash pages of the log programmed per byte of log: the write amplification for logging, in pages. A run
/// without any counts as having one.
fn log_programs(finished: &FinishedRuns<'_>, run: &str) -> Result<f64, ReproError> {
    let pages = finished.metric(run, "counters.region_programs")?.max(1.0);
    Ok(pages / finished.metric(run, "counters.log_bytes")?.max(1.0))
}

/// Flash pages programmed per transaction. A run without any counts as having one.
fn programs(finished: &FinishedRuns<'_>, run: &str) -> Result<f64, ReproError> {
    Ok(finished.metric(run, "flash.programs")?.max(1.0) / finished.metric(run, "requests")?)
}

/// The runs of the sensitivity study: those behind the claims about speed and lifetime.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
) -> Result<Vec<SimulationRun>, ReproError> {
    let mut all = Vec::new();
    for benchmark in &BENCHMARKS {
        for of in [FLATFLASH, UNIFIED, STACK] {
            for threads in [THREADS[0], THREADS[3]] {
                all.push(run(settings, registry, variant, of, benchmark, (threads, BASE_US))?);
            }
        }
        all.push(run(settings, registry, variant, UNIFIED_OWN, benchmark, (THREADS[3], BASE_US))?);
        let last = LATENCIES_US[LATENCIES_US.len() - 1];
        for of in [FLATFLASH, UNIFIED] {
            all.push(run(settings, registry, variant, of, benchmark, (THREADS[3], last))?);
        }
    }
    Ok(all)
}

/// Sets the ratios of throughput and lifetime.
pub(super) fn metrics(
    finished: &FinishedRuns<'_>,
    threads: &[u32],
    latencies: &[f64],
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let metrics = &mut outcome.metrics;
    for (label, ..) in [UNIFIED, STACK] {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for benchmark in &BENCHMARKS {
            let mut sum = 0.0;
            for threads in threads {
                let of = |label| rate(finished, &name(label, benchmark, *threads, BASE_US));
                let speedup = of(FLATFLASH.0)? / of(label)?;
                metrics.set(format!("{label}.{}.t{threads}.speedup", benchmark.name), speedup);
                (least, most, sum) = (least.min(speedup), most.max(speedup), sum + speedup);
            }
            metrics.set(format!("{label}.{}.speedup", benchmark.name), sum / threads.len() as f64);
            type PerWork = fn(&FinishedRuns<'_>, &str) -> Result<f64, ReproError>;
            for (what, pages) in [("lifetime", log_programs as PerWork), ("all.lifetime", programs)] {
                let of = |label| pages(finished, &name(label, benchmark, THREADS[3], BASE_US));
                let ratio = of(label)? / of(FLATFLASH.0)?;
                metrics.set(format!("{label}.{}.{what}", benchmark.name), ratio);
            }
        }
        metrics.set(format!("{label}.least"), least);
        metrics.set(format!("{label}.most"), most);
    }
    let mut most = 0.0_f64;
    for benchmark in &BENCHMARKS {
        for latency in latencies {
            let of = |label| rate(finished, &name(label, benchmark, THREADS[3], *latency));
            let speedup = of(FLATFLASH.0)? / of(UNIFIED.0)?;
            metrics.set(format!("unified.{}.{latency}us.speedup", benchmark.name), speedup);
            if *latency < BASE_US {
                most = most.max(speedup);
            }
        }
    }
    metrics.set("unified.fast.most", most);
    let mut mixed = 0.0_f64;
    for benchmark in &BENCHMARKS {
        let of = |label| rate(finished, &name(label, benchmark, THREADS[3], BASE_US));
        let gain = of(UNIFIED_OWN.0)? / of(UNIFIED.0)?;
        metrics.set(format!("{}.{}.gain", UNIFIED_OWN.0, benchmark.name), gain);
        if benchmark.name != "tpcb" {
            mixed = mixed.max(gain);
        }
    }
    metrics.set(format!("{}.mixed.gain", UNIFIED_OWN.0), mixed);
    Ok(())
}

/// Sets the metrics of the sensitivity study.
pub(super) fn study_metrics(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    let last = LATENCIES_US[LATENCIES_US.len() - 1];
    metrics(finished, &[THREADS[0], THREADS[3]], &[last], outcome)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let variant = Variant::default();
    let mut runs = Vec::new();
    for benchmark in &BENCHMARKS {
        for of in ALL {
            for threads in THREADS {
                runs.push(run(settings, registry, &variant, of, benchmark, (threads, BASE_US))?);
            }
        }
        for of in [FLATFLASH, UNIFIED, STACK] {
            for latency in &LATENCIES_US[1..] {
                runs.push(run(settings, registry, &variant, of, benchmark, (THREADS[3], *latency))?);
            }
        }
    }
    Ok(Experiment::new(
        "database",
        "Transaction logs",
        "TPC-C, TPC-B and TATP on 384 MiB of rows behind 48 MiB of DRAM and 16 MiB of memory in the drive, \
         1/128 of the paper's sizes; 4 to 16 clients on one core each, with 10 µs of work before each row \
         access (assumed). FlatFlash has one log per client, written by line. The baselines have one \
         central log, whose lock is held for 1 µs per record (assumed), written in groups by pages of 4 \
         KiB. A log entry has at most 1,424 bytes, as in the paper. Shore-MT's own code, its locks and its \
         index pages are not simulated.",
        runs,
        |finished| {
            let mut outcome = Outcome::default();
            metrics(finished, &THREADS, &LATENCIES_US, &mut outcome)?;
            for benchmark in &BENCHMARKS {
                outcome.charts.push(throughput(finished, benchmark)?);
            }
            outcome.charts.push(latencies(finished)?);
            outcome.tables.push(table(finished)?);
            Ok(outcome)
        },
    ))
}

fn throughput(finished: &FinishedRuns<'_>, benchmark: &Benchmark) -> Result<Chart, ReproError> {
    let mut series = Vec::new();
    for (label, ..) in ALL {
        let point = |threads: &u32| {
            let rate = rate(finished, &name(label, benchmark, *threads, BASE_US))?;
            Ok((f64::from(*threads), rate / 1e3))
        };
        let points = THREADS.iter().map(point).collect::<Result<_, ReproError>>()?;
        series.push(Series::new(label, points));
    }
    Ok(Chart {
        title: format!("Throughput, {}", benchmark.name),
        about: "Throughput by number of clients; own: the baselines with one log per client.".into(),
        drawing: Drawing::Lines {
            x: Axis::linear("clients", ""),
            y: Axis::linear("thousand transactions per second", ""),
            series,
            area: false,
        },
        references: Vec::new(),
    })
}

fn latencies(finished: &FinishedRuns<'_>) -> Result<Chart, ReproError> {
    let mut series = Vec::new();
    for benchmark in &BENCHMARKS {
        let point = |latency: &f64| {
            let of = |label| rate(finished, &name(label, benchmark, THREADS[3], *latency));
            Ok((*latency, of(FLATFLASH.0)? / of(UNIFIED.0)?))
        };
        let points = LATENCIES_US.iter().rev().map(point).collect::<Result<_, ReproError>>()?;
        series.push(Series::new(benchmark.name, points));
    }
    Ok(Chart {
        title: "Speedup of FlatFlash over UnifiedMMap by device latency".into(),
        about: "With sixteen clients.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("flash read latency", "µs"),
            y: Axis::linear("speedup", ""),
            series,
            area: false,
        },
        references: vec![Reference { name: "paper, up to".into(), value: 5.3 }],
    })
}

fn table(finished: &FinishedRuns<'_>) -> Result<Table, ReproError> {
    let mut rows = Vec::new();
    for benchmark in &BENCHMARKS {
        for (label, ..) in ALL {
            let run = name(label, benchmark, THREADS[3], BASE_US);
            let metric = |name: &str| finished.metric(&run, name);
            rows.push(vec![
                format!("{} {label}", benchmark.name),
                plain(metric("latency.mean_ns")? / 1e3),
                plain(metric("counters.log_bytes")? / metric("counters.commits")?.max(1.0)),
                plain(metric("counters.commits")? / metric("counters.log_writes")?.max(1.0)),
                plain(metric("counters.log_written_bytes")? / metric("counters.log_bytes")?.max(1.0)),
                plain(4096.0 * log_programs(finished, &run)?),
                plain(programs(finished, &run)?),
            ]);
        }
    }
    let headings = [
        "sixteen clients",
        "mean, µs",
        "log record, bytes",
        "records per log write",
        "log bytes written per log byte",
        "log bytes programmed per log byte",
        "pages programmed per transaction",
    ];
    Ok(Table { title: "Costs of a transaction".into(), headings: headings.map(String::from).to_vec(), rows })
}
