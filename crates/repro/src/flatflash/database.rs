//! Transactions with one log or one of each client (FlatFlash, sections 3.5 and 5.6, Figure 14).
//!
//! 1. flatflash has a log of its own for each client and writes lines; unified-mmap and traditional-stack have one log of
//!    all, written in groups by whole pages, and beside that the same logs of their own by pages.
//! 2. Everything is a 128th of the paper's: 48 MiB of DRAM for the database's 384 MiB, 16 MiB of drive's memory.
//! 3. The device's latency is that of reading a page of flash; for less of it reading, programming and the bus are made
//!    faster by as much.

use std::sync::Arc;

use deepram_media::{Bytes, Picos, Registry};
use deepram_sim::clients::{ClientOptions, Logging};
use deepram_sim::{RunOptions, SimError, System, run_clients};
use deepram_trace::Workload;
use serde_json::json;

use super::filesystem::{figures_of, identity, system};
use crate::chart::{Axis, Chart, Drawing, Reference, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::number::plain;
use crate::run::{Procedure, Run};

/// Raised when the simulator yields other figures for the same configuration.
const CLIENTS: Procedure = Procedure { name: "clients", version: 1 };

/// The systems with their way of logging.
const FLATFLASH: (&str, System, Logging) = ("flatflash", System::FlatFlash, Logging::Own);
const UNIFIED: (&str, System, Logging) = ("unified", System::UnifiedMMap, Logging::Central);
const STACK: (&str, System, Logging) = ("stack", System::TraditionalStack, Logging::Central);
const UNIFIED_OWN: (&str, System, Logging) = ("unified.own", System::UnifiedMMap, Logging::Own);
const STACK_OWN: (&str, System, Logging) = ("stack.own", System::TraditionalStack, Logging::Own);
const ALL: [(&str, System, Logging); 5] = [FLATFLASH, UNIFIED, STACK, UNIFIED_OWN, STACK_OWN];

const THREADS: [u32; 4] = [4, 8, 12, 16];
/// Microseconds of the device that Figure 14d goes down from; the others are assumed.
const BASE_US: f64 = 20.0;
const LATENCIES_US: [f64; 4] = [20.0, 10.0, 5.0, 2.0];

/// A benchmark whose data are some 384 MiB, and how many transactions are done before measuring and then: as many as
/// fill the DRAM several times.
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

/// What the study may change.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    /// Figures of the machine's preset.
    pub(super) machine: Vec<String>,
    /// Bytes of DRAM for pages.
    pub(super) dram: u64,
    pub(super) work_ps: u64,
    pub(super) lock_ps: u64,
    /// The baselines have a log of their own for each client too.
    pub(super) own: bool,
    /// Bytes of all logs.
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

/// Flash that takes this long for a page.
fn device(latency_us: f64) -> Vec<String> {
    let faster = BASE_US / latency_us;
    vec![
        format!("nand.read={}ps", (9_760_000.0 / faster).round()),
        format!("nand.program={}ns", (1_200_000.0 / faster).round()),
        format!("nand.suspend_program={}ns", (20_000.0 / faster).round()),
        format!("nand.bus_rate={}MT/s", (400.0 * faster).round()),
    ]
}

fn run(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
    (label, kind, logging): (&str, System, Logging),
    benchmark: &Benchmark,
    (threads, latency_us): (u32, f64),
) -> Result<Run, ReproError> {
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
    Ok(Run::new(name, CLIENTS, identity, move || {
        let failed = |source: SimError| ReproError::Simulation { run: run.clone(), source: Box::new(source) };
        let workload = Workload::new(&spec, seed)
            .map_err(|error| failed(SimError::Config { key: "workload".into(), why: error.to_string() }))?;
        let options = RunOptions { seed, workload: spec.clone(), ..RunOptions::default() };
        let result = run_clients(&registry, &config, workload, &clients, &options).map_err(failed)?;
        figures_of(&run, &result)
    }))
}

fn rate(finished: &Finished<'_>, run: &str) -> Result<f64, ReproError> {
    finished.figure(run, "throughput_requests_per_s")
}

/// Pages programmed for a transaction; where nothing was, one page stands for the whole run.
fn programs(finished: &Finished<'_>, run: &str) -> Result<f64, ReproError> {
    Ok(finished.figure(run, "flash.programs")?.max(1.0) / finished.figure(run, "requests")?)
}

/// The runs behind the claims about speed and lifetime.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    variant: &Variant,
) -> Result<Vec<Run>, ReproError> {
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

/// Ratios of throughput and lifetime.
pub(super) fn figures(
    finished: &Finished<'_>,
    threads: &[u32],
    latencies: &[f64],
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let figures = &mut outcome.figures;
    for (label, ..) in [UNIFIED, STACK] {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for benchmark in &BENCHMARKS {
            let mut sum = 0.0;
            for threads in threads {
                let of = |label| rate(finished, &name(label, benchmark, *threads, BASE_US));
                let speedup = of(FLATFLASH.0)? / of(label)?;
                figures.set(format!("{label}.{}.t{threads}.speedup", benchmark.name), speedup);
                (least, most, sum) = (least.min(speedup), most.max(speedup), sum + speedup);
            }
            figures.set(format!("{label}.{}.speedup", benchmark.name), sum / threads.len() as f64);
            let of = |label| programs(finished, &name(label, benchmark, THREADS[3], BASE_US));
            figures.set(format!("{label}.{}.lifetime", benchmark.name), of(label)? / of(FLATFLASH.0)?);
        }
        figures.set(format!("{label}.least"), least);
        figures.set(format!("{label}.most"), most);
    }
    let mut most = 0.0_f64;
    for benchmark in &BENCHMARKS {
        for latency in latencies {
            let of = |label| rate(finished, &name(label, benchmark, THREADS[3], *latency));
            let speedup = of(FLATFLASH.0)? / of(UNIFIED.0)?;
            figures.set(format!("unified.{}.{latency}us.speedup", benchmark.name), speedup);
            if *latency < BASE_US {
                most = most.max(speedup);
            }
        }
    }
    figures.set("unified.fast.most", most);
    let mut mixed = 0.0_f64;
    for benchmark in &BENCHMARKS {
        let of = |label| rate(finished, &name(label, benchmark, THREADS[3], BASE_US));
        let gain = of(UNIFIED_OWN.0)? / of(UNIFIED.0)?;
        figures.set(format!("{}.{}.gain", UNIFIED_OWN.0, benchmark.name), gain);
        if benchmark.name != "tpcb" {
            mixed = mixed.max(gain);
        }
    }
    figures.set(format!("{}.mixed.gain", UNIFIED_OWN.0), mixed);
    Ok(())
}

/// The figures of the study.
pub(super) fn study_figures(finished: &Finished<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    let last = LATENCIES_US[LATENCIES_US.len() - 1];
    figures(finished, &[THREADS[0], THREADS[3]], &[last], outcome)
}

/// The experiment.
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
        "Logs of transactions",
        "TPC-C, TPC-B and TATP on 384 MiB of rows behind 48 MiB of DRAM and 16 MiB of drive's memory, a 128th of the \
         paper's; 4 to 16 clients, a core each, 10 µs of work before each access to a row (assumed). flatflash has a log of \
         each client, written by lines; the others one log of all, whose lock is held for 1 µs a record (assumed), written \
         in groups by pages of 4 KiB. A log entry has at most 1,424 bytes, as the paper says. Shore-MT's own code, its locks \
         and its index pages are not simulated.",
        runs,
        |finished| {
            let mut outcome = Outcome::default();
            figures(finished, &THREADS, &LATENCIES_US, &mut outcome)?;
            for benchmark in &BENCHMARKS {
                outcome.charts.push(throughput(finished, benchmark)?);
            }
            outcome.charts.push(latencies(finished)?);
            outcome.tables.push(table(finished)?);
            Ok(outcome)
        },
    ))
}

fn throughput(finished: &Finished<'_>, benchmark: &Benchmark) -> Result<Chart, ReproError> {
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
        about: "Transactions over clients; own: a log of each client's own on the baselines too.".into(),
        drawing: Drawing::Lines {
            x: Axis::linear("clients", ""),
            y: Axis::linear("thousand transactions a second", ""),
            series,
            area: false,
        },
        references: Vec::new(),
    })
}

fn latencies(finished: &Finished<'_>) -> Result<Chart, ReproError> {
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
        title: "FlatFlash's speedup over unified-mmap, over the device's latency".into(),
        about: "Sixteen clients.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("latency of flash", "µs"),
            y: Axis::linear("speedup", ""),
            series,
            area: false,
        },
        references: vec![Reference { name: "paper, up to".into(), value: 5.3 }],
    })
}

fn table(finished: &Finished<'_>) -> Result<Table, ReproError> {
    let mut rows = Vec::new();
    for benchmark in &BENCHMARKS {
        for (label, ..) in ALL {
            let run = name(label, benchmark, THREADS[3], BASE_US);
            let figure = |name: &str| finished.figure(&run, name);
            rows.push(vec![
                format!("{} {label}", benchmark.name),
                plain(figure("latency.mean_ns")? / 1e3),
                plain(figure("counters.log_bytes")? / figure("counters.commits")?.max(1.0)),
                plain(figure("counters.commits")? / figure("counters.log_writes")?.max(1.0)),
                plain(figure("counters.log_written_bytes")? / figure("counters.log_bytes")?.max(1.0)),
                plain(programs(finished, &run)?),
            ]);
        }
    }
    let headings = [
        "sixteen clients",
        "mean, µs",
        "bytes of a record",
        "records a write of the log",
        "bytes written for one of the log",
        "pages programmed a transaction",
    ];
    Ok(Table { title: "A transaction".into(), headings: headings.map(String::from).to_vec(), rows })
}
