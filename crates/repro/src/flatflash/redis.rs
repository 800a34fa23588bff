//! A key-value store under YCSB B and D against the size of the working set: mean latency, tail latency
//! and pages moved (FlatFlash, section 5.4, Figures 11 and 12).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{
    BaselineRatios, DRAM, GIB, MACHINES, RunContext, RunSpec, SLOWDOWN_MACHINES, each, shares, slowdown,
    store, totals, words,
};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::{Metrics, SimulationRun};

const WORKLOADS: [&str; 2] = ["ycsb-b", "ycsb-d"];
/// Size of a key-value pair, in bytes.
const PAIR: u64 = 64;
/// Number of clients, each with one request at a time.
const CLIENTS: u32 = 16;
/// Size of the drive: 256 times the DRAM.
const DRIVE: u64 = 512 * GIB;
/// Working sets as multiples of DRAM. The paper names only the last.
const SETS: [u64; 5] = [1, 2, 4, 8, 16];
const ENDS: [u64; 2] = [1, 16];
pub(super) const NAMED: u64 = 16;
/// Operations of a workload in the paper.
const OPERATIONS: u64 = 64_000_000;

/// Size of the simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    sets: &'static [u64],
    scale: u64,
    pub(super) threads: u32,
    pub(super) theta: f64,
}

impl Extent {
    fn new(settings: &Settings) -> Self {
        let small = Self::for_sensitivity(settings);
        let full = Self { sets: &SETS, scale: 64, ..small };
        settings.pick(full, small)
    }

    /// The size used by the sensitivity study.
    pub(super) fn for_sensitivity(settings: &Settings) -> Self {
        Self { sets: &ENDS, scale: settings.pick(1024, 8192), threads: CLIENTS, theta: 0.99 }
    }

    /// Measured operations: for each page of DRAM as many as in the paper.
    fn operations(&self) -> u64 {
        OPERATIONS / self.scale
    }

    /// Pairs of a working set of `set` times the DRAM.
    fn records(&self, set: u64) -> u64 {
        set * DRAM / self.scale / PAIR
    }
}

pub(super) fn name(workload: &str, machine: &str, set: u64) -> String {
    format!("{workload}.{machine}.{set}x")
}

/// Builds the runs.
pub(super) fn runs(context: RunContext<'_>, extent: Extent) -> Result<Vec<SimulationRun>, ReproError> {
    let mut runs = Vec::new();
    for workload in WORKLOADS {
        for &set in extent.sets {
            let records = extent.records(set);
            // An operation inserts at most one record.
            let bytes = (records + extent.operations()) * PAIR;
            // Redis allocates pairs in the order of their insertion.
            let spec = format!(
                "{workload}:records={records},record={PAIR}B,field={PAIR}B,order=ordered,request=zipfian,theta={},\
                 count={}",
                extent.theta,
                extent.operations(),
            );
            for &(machine, kind) in context.machines {
                let setting = RunSpec {
                    name: name(workload, machine, set),
                    machine: kind,
                    drive: DRIVE,
                    dram: DRAM,
                    scale: extent.scale,
                    threads: extent.threads,
                    warm_up: records,
                    base: context.base,
                    seed: context.settings.seed,
                };
                let threads = extent.threads;
                let load = move || shares(records, threads).map(|record| store(record * PAIR, PAIR));
                runs.push(setting.workload(context.registry, &spec, bytes, load)?);
            }
        }
    }
    Ok(runs)
}

/// FlatFlash's time over that of all-DRAM, for one workload.
pub(super) fn slowdown_of(
    finished: &FinishedRuns<'_>,
    extent: Extent,
    workload: &str,
) -> Result<f64, ReproError> {
    slowdown(
        finished,
        extent.sets.iter().map(|&set| SLOWDOWN_MACHINES.map(|(machine, _)| name(workload, machine, set))),
    )
}

/// The two latency metrics.
const LATENCIES: [(&str, &str); 2] = [("mean", "latency.mean_ns"), ("p99", "latency.p99_ns")];

/// Sets the metrics of the claims: latencies, page movements and pages programmed of the baselines over
/// FlatFlash's.
pub(super) fn metrics(finished: &FinishedRuns<'_>, extent: Extent) -> Result<Metrics, ReproError> {
    let mut metrics = Metrics::new();
    let mut both = LATENCIES.map(|_| BaselineRatios::default());
    for workload in WORKLOADS {
        for (measure, (what, metric)) in LATENCIES.iter().enumerate() {
            let mut over = BaselineRatios::default();
            for &set in extent.sets {
                let values = each(finished, metric, |machine| name(workload, machine, set))?;
                over.push(values);
                both[measure].push(values);
            }
            over.set(&mut metrics, &format!("{workload}.{what}"));
        }
        let of = |metric, set| each(finished, metric, |machine| name(workload, machine, set));
        let programs: Vec<_> =
            extent.sets.iter().map(|&set| of("flash.programs", set)).collect::<Result<_, _>>()?;
        totals(&mut metrics, &format!("{workload}.programs"), &programs);
        let moved = of("counters.page_movements", NAMED)?;
        totals(&mut metrics, &format!("{workload}.moved.x{NAMED}"), &[moved]);
    }
    for (over, (what, _)) in both.iter().zip(LATENCIES) {
        over.set(&mut metrics, &format!("redis.{what}"));
    }
    Ok(metrics)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(RunContext::plain(settings, registry), extent)?;
    let about = format!(
        "Redis itself is not simulated: {CLIENTS} clients read, overwrite (YCSB B) or insert (YCSB D) \
         pairs of {PAIR} bytes stored in pages, without the store's index, its own work or the network, so \
         latency is that of memory. Keys are Zipfian in both workloads, as the paper says; the public YCSB \
         D requests the latest keys. {} of DRAM, a drive of 256 times as much: the paper's sizes over {}. \
         All pairs are loaded first, by key, as YCSB does; {} operations are measured from there: the \
         paper's 64 million, scaled like the sizes.",
        words(DRAM / extent.scale),
        extent.scale,
        extent.operations(),
    );
    Ok(Experiment::new("redis", "Key-value store", about, runs, move |finished| {
        let mut outcome = Outcome { metrics: metrics(finished, extent)?, ..Outcome::default() };
        for workload in WORKLOADS {
            for (what, metric, unit, divisor) in [
                ("Mean latency", "latency.mean_ns", "µs", 1e3),
                ("99th percentile", "latency.p99_ns", "µs", 1e3),
                (
                    "Pages moved per thousand operations",
                    "counters.page_movements",
                    "",
                    extent.operations() as f64 / 1e3,
                ),
            ] {
                let title = format!("{what}, {workload}");
                outcome.charts.push(chart(finished, workload, extent, &title, (metric, unit, divisor))?);
            }
        }
        Ok(outcome)
    }))
}

fn chart(
    finished: &FinishedRuns<'_>,
    workload: &str,
    extent: Extent,
    title: &str,
    (metric, unit, divisor): (&str, &str, f64),
) -> Result<Chart, ReproError> {
    let mut series = MACHINES.map(|(machine, _)| Series::new(machine, Vec::new()));
    for &set in extent.sets {
        let values = each(finished, metric, |machine| name(workload, machine, set))?;
        for (series, value) in series.iter_mut().zip(values) {
            series.points.push((set as f64, value / divisor));
        }
    }
    Ok(Chart {
        title: title.into(),
        about: "By size of the working set; less is better.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("working set over DRAM", ""),
            y: Axis::linear(title.split(',').next().unwrap_or(title), unit),
            series: series.into(),
            area: false,
        },
        references: Vec::new(),
    })
}
