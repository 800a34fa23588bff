//! GUPS: random updates of a table far larger than DRAM, against the size of the drive and of its memory
//! (FlatFlash, section 5.2 and Figure 9).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{
    BaselineRatios, DRAM, GIB, MACHINES, MachineConfig, RunContext, RunSpec, SLOWDOWN_MACHINES, each,
    slowdown, totals, words,
};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::{Metrics, SimulationRun};

/// Size of the table, in bytes.
const TABLE: u64 = 32 * GIB;
/// Drive sizes, 128, 256 and 512 times the DRAM. The paper names the last, for the sweep of the drive's
/// memory.
const DRIVES: [u64; 3] = [256 * GIB, 512 * GIB, 1024 * GIB];
const NAMED: u64 = 1024 * GIB;
/// Number of threads. The paper says "several"; its machine has this many cores.
pub(super) const THREADS: u32 = 24;
/// Sizes of the SSD-Cache (device buffer), as multiples of 0.125 % of the drive.
const TIMES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// Size of the simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    drives: &'static [u64],
    times: &'static [f64],
    /// Further numbers of threads, shown beside the one that claims are judged on.
    others: &'static [u32],
    scale: u64,
    pub(super) threads: u32,
}

impl Extent {
    fn new(settings: &Settings) -> Self {
        Self {
            drives: &DRIVES,
            times: &TIMES,
            others: &[1, 8],
            scale: settings.pick(8, 512),
            threads: THREADS,
        }
    }

    /// The size used by the sensitivity study, without the sweep of the SSD-Cache's size, whose trend
    /// holds.
    pub(super) fn for_sensitivity(settings: &Settings) -> Self {
        Self {
            drives: &DRIVES[2..],
            times: &[],
            others: &[],
            scale: settings.pick(64, 512),
            threads: THREADS,
        }
    }

    /// Updates before the measured ones: four per page of DRAM, so that every page of DRAM and of the
    /// largest SSD-Cache has been replaced.
    fn warm_up(&self) -> u64 {
        4 * DRAM / 4096 / self.scale
    }

    fn updates(&self) -> u64 {
        (800_000 / self.scale).max(5_000)
    }
}

/// One setting of the experiment.
#[derive(Debug, Clone, Copy)]
struct Point {
    drive: u64,
    threads: u32,
    times: f64,
}

impl Point {
    fn name(self, machine: &str) -> String {
        let Self { drive, threads, times } = self;
        format!("gups.{machine}.{}gib.t{threads}.x{times}", drive / GIB)
    }

    fn runs(self, context: RunContext<'_>, extent: Extent) -> Result<Vec<SimulationRun>, ReproError> {
        let table = TABLE / extent.scale;
        let warm_up = extent.warm_up();
        let spec = format!("gups:table={table}B,updates={}", warm_up + extent.updates());
        let times = context.base.buffer_times.unwrap_or(1.0) * self.times;
        let base = MachineConfig { buffer_times: Some(times), ..context.base.clone() };
        let run = |(machine, kind)| {
            let setting = RunSpec {
                name: self.name(machine),
                machine: kind,
                drive: self.drive,
                dram: DRAM,
                scale: extent.scale,
                threads: self.threads,
                warm_up: 2 * warm_up,
                base: &base,
                seed: context.settings.seed,
            };
            setting.workload(context.registry, &spec, table)
        };
        context.machines.iter().copied().map(run).collect()
    }

    fn each(self, finished: &FinishedRuns<'_>, metric: &str) -> Result<[f64; 3], ReproError> {
        each(finished, metric, |machine| self.name(machine))
    }
}

impl Extent {
    /// The settings by drive size, by number of threads, and by size of the SSD-Cache.
    fn points(&self) -> [Vec<Point>; 3] {
        let named = Point { drive: NAMED, threads: self.threads, times: 1.0 };
        [
            self.drives.iter().map(|&drive| Point { drive, ..named }).collect(),
            self.others.iter().map(|&threads| Point { threads, ..named }).collect(),
            self.times.iter().map(|&times| Point { times, ..named }).collect(),
        ]
    }
}

/// Builds the runs.
pub(super) fn runs(context: RunContext<'_>, extent: Extent) -> Result<Vec<SimulationRun>, ReproError> {
    let mut runs: Vec<SimulationRun> = Vec::new();
    for point in extent.points().concat() {
        for run in point.runs(context, extent)? {
            // The middle of the sweep is also one of the drive sizes.
            if runs.iter().all(|other| other.name != run.name) {
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// Sets the metrics of the claims: times, page movements and pages programmed of the baselines over
/// FlatFlash's.
pub(super) fn metrics(finished: &FinishedRuns<'_>, extent: Extent) -> Result<Metrics, ReproError> {
    let mut metrics = Metrics::new();
    let [drives, _, sweep] = extent.points();
    let mut over = BaselineRatios::default();
    for point in &drives {
        over.push(point.each(finished, "simulated_time_ns")?);
    }
    over.set(&mut metrics, "gups.time");
    for (what, metric) in [("moved", "counters.page_movements"), ("programs", "flash.programs")] {
        let all: Vec<_> =
            drives.iter().map(|point| point.each(finished, metric)).collect::<Result<_, _>>()?;
        totals(&mut metrics, &format!("gups.{what}"), &all);
    }
    for point in sweep {
        let [flat, unified, stack] = point.each(finished, "simulated_time_ns")?;
        metrics.set(format!("gups.memory.x{}.over_unified", point.times), unified / flat);
        metrics.set(format!("gups.memory.x{}.over_stack", point.times), stack / flat);
    }
    Ok(metrics)
}

/// FlatFlash's time over that of all-DRAM.
pub(super) fn slowdown_of(finished: &FinishedRuns<'_>, extent: Extent) -> Result<f64, ReproError> {
    let [drives, ..] = extent.points();
    slowdown(finished, drives.iter().map(|point| SLOWDOWN_MACHINES.map(|(machine, _)| point.name(machine))))
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(RunContext::plain(settings, registry), extent)?;
    let about = format!(
        "A table of {} behind {} of DRAM, on drives of 128, 256 and 512 times the DRAM. {} updates are \
         measured after {} others. {THREADS} threads (one per core; the paper says \"several\") update one \
         word at a time each. Runs are too short for reclamation, so pages programmed stand for wear.",
        words(TABLE / extent.scale),
        words(DRAM / extent.scale),
        extent.updates(),
        extent.warm_up(),
    );
    Ok(Experiment::new("gups", "GUPS", about, runs, move |finished| {
        let mut outcome = Outcome { metrics: metrics(finished, extent)?, ..Outcome::default() };
        let [drives, others, sweep] = extent.points();
        outcome.charts.push(times(finished, &drives, extent)?);
        outcome.charts.push(movements(finished, &drives, extent)?);
        outcome.charts.push(memory(&outcome.metrics, &sweep));
        for point in others {
            let [flat, unified, stack] = point.each(finished, "simulated_time_ns")?;
            outcome.metrics.set(format!("gups.t{}.over_unified", point.threads), unified / flat);
            outcome.metrics.set(format!("gups.t{}.over_stack", point.threads), stack / flat);
        }
        Ok(outcome)
    }))
}

fn bars(
    finished: &FinishedRuns<'_>,
    points: &[Point],
    metric: &str,
    divisor: f64,
    axis: Axis,
) -> Result<Drawing, ReproError> {
    let mut series = MACHINES.map(|(machine, _)| Bars::new(machine, Vec::new()));
    for point in points {
        for (series, value) in series.iter_mut().zip(point.each(finished, metric)?) {
            series.values.push(Some(value / divisor));
        }
    }
    let groups = points.iter().map(|point| words(point.drive)).collect();
    Ok(Drawing::Bars { axis, groups, series: series.into(), stacked: false })
}

fn times(finished: &FinishedRuns<'_>, points: &[Point], extent: Extent) -> Result<Chart, ReproError> {
    let axis = Axis::linear("time of an update", "µs");
    let divisor = extent.updates() as f64 * 1e3;
    Ok(Chart {
        title: "Time of an update by drive size".into(),
        about: "Simulated time divided by the updates of all threads; less is better.".into(),
        drawing: bars(finished, points, "simulated_time_ns", divisor, axis)?,
        references: Vec::new(),
    })
}

fn movements(finished: &FinishedRuns<'_>, points: &[Point], extent: Extent) -> Result<Chart, ReproError> {
    let axis = Axis::linear("pages moved per update", "");
    Ok(Chart {
        title: "Page movements".into(),
        about: "Pages transferred over the link, in both directions.".into(),
        drawing: bars(finished, points, "counters.page_movements", extent.updates() as f64, axis)?,
        references: Vec::new(),
    })
}

fn memory(metrics: &Metrics, points: &[Point]) -> Chart {
    let series = ["over_unified", "over_stack"].map(|over| {
        let of = |point: &Point| {
            let speedup = metrics.0.get(&format!("gups.memory.x{}.{over}", point.times))?;
            Some((point.times * 0.125, *speedup))
        };
        Series::new(over, points.iter().filter_map(of).collect())
    });
    Chart {
        title: "Speedup by size of the drive's memory".into(),
        about: "Speedup of FlatFlash over the baselines, on a drive of 512 times the DRAM.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("drive's memory, share of the drive", "%"),
            y: Axis::linear("speedup", ""),
            series: series.into(),
            area: false,
        },
        references: vec![Reference { name: "equal".into(), value: 1.0 }],
    }
}
