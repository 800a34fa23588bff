//! GUPS: random updates of a table far larger than DRAM, and the size of the drive's memory (FlatFlash, section 5.2
//! and Figure 9).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{
    Base, Bench, DRAM, GIB, MACHINES, Over, SLOWED, Setting, each, slowdown, totals, words,
};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::run::{Figures, Run};

/// Bytes of the table.
const TABLE: u64 = 32 * GIB;
/// Drives of 128, 256 and 512 times the DRAM. The paper names the last, for the sweep.
const DRIVES: [u64; 3] = [256 * GIB, 512 * GIB, 1024 * GIB];
const NAMED: u64 = 1024 * GIB;
/// The paper says that there are several threads; its machine has so many cores.
pub(super) const THREADS: u32 = 24;
/// Sizes of the drive's memory, as multiples of 0.125 % of the drive.
const TIMES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// How much is simulated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    drives: &'static [u64],
    times: &'static [f64],
    /// Numbers of threads beside the claims' own.
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

    /// What the study runs: not the sweep, whose trend holds.
    pub(super) fn study(settings: &Settings) -> Self {
        Self {
            drives: &DRIVES[2..],
            times: &[],
            others: &[],
            scale: settings.pick(64, 512),
            threads: THREADS,
        }
    }

    /// Updates before the measured ones: four for each page of DRAM, so that every page has been replaced, and the
    /// largest of the drive's memories as well.
    fn warm_up(&self) -> u64 {
        4 * DRAM / 4096 / self.scale
    }

    fn updates(&self) -> u64 {
        (800_000 / self.scale).max(5_000)
    }
}

/// A point of the experiment.
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

    fn runs(self, bench: Bench<'_>, extent: Extent) -> Result<Vec<Run>, ReproError> {
        let table = TABLE / extent.scale;
        let warm_up = extent.warm_up();
        let spec = format!("gups:table={table}B,updates={}", warm_up + extent.updates());
        let times = bench.base.buffer_times.unwrap_or(1.0) * self.times;
        let base = Base { buffer_times: Some(times), ..bench.base.clone() };
        let run = |(machine, kind)| {
            let setting = Setting {
                name: self.name(machine),
                machine: kind,
                drive: self.drive,
                dram: DRAM,
                scale: extent.scale,
                threads: self.threads,
                warm_up: 2 * warm_up,
                base: &base,
                seed: bench.settings.seed,
            };
            setting.workload(bench.registry, &spec, table)
        };
        bench.machines.iter().copied().map(run).collect()
    }

    fn each(self, finished: &Finished<'_>, figure: &str) -> Result<[f64; 3], ReproError> {
        each(finished, figure, |machine| self.name(machine))
    }
}

impl Extent {
    /// Over the size of the drive; with other numbers of threads; over the size of the drive's memory.
    fn points(&self) -> [Vec<Point>; 3] {
        let named = Point { drive: NAMED, threads: self.threads, times: 1.0 };
        [
            self.drives.iter().map(|&drive| Point { drive, ..named }).collect(),
            self.others.iter().map(|&threads| Point { threads, ..named }).collect(),
            self.times.iter().map(|&times| Point { times, ..named }).collect(),
        ]
    }
}

/// The runs.
pub(super) fn runs(bench: Bench<'_>, extent: Extent) -> Result<Vec<Run>, ReproError> {
    let mut runs: Vec<Run> = Vec::new();
    for point in extent.points().concat() {
        for run in point.runs(bench, extent)? {
            // The middle of the sweep is a size of the drive as well.
            if runs.iter().all(|other| other.name != run.name) {
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// The figures of claims: times, page movements and pages programmed of the baselines over FlatFlash's.
pub(super) fn figures(finished: &Finished<'_>, extent: Extent) -> Result<Figures, ReproError> {
    let mut figures = Figures::new();
    let [drives, _, sweep] = extent.points();
    let mut over = Over::default();
    for point in &drives {
        over.push(point.each(finished, "simulated_time_ns")?);
    }
    over.set(&mut figures, "gups.time");
    for (what, figure) in [("moved", "counters.page_movements"), ("programs", "flash.programs")] {
        let all: Vec<_> =
            drives.iter().map(|point| point.each(finished, figure)).collect::<Result<_, _>>()?;
        totals(&mut figures, &format!("gups.{what}"), &all);
    }
    for point in sweep {
        let [flat, unified, stack] = point.each(finished, "simulated_time_ns")?;
        figures.set(format!("gups.memory.x{}.over_unified", point.times), unified / flat);
        figures.set(format!("gups.memory.x{}.over_stack", point.times), stack / flat);
    }
    Ok(figures)
}

/// How many times as long as with DRAM alone.
pub(super) fn slowed(finished: &Finished<'_>, extent: Extent) -> Result<f64, ReproError> {
    let [drives, ..] = extent.points();
    slowdown(finished, drives.iter().map(|point| SLOWED.map(|(machine, _)| point.name(machine))))
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(Bench::plain(settings, registry), extent)?;
    let about = format!(
        "A table of {} behind {} of DRAM, drives of 128, 256 and 512 times the DRAM. {} updates are measured after {} \
         others. {THREADS} threads update (one a core: the paper says several, and no number), each one word at a time. \
         Nothing of the drive is reclaimed in so short a run: pages programmed stand for wear.",
        words(TABLE / extent.scale),
        words(DRAM / extent.scale),
        extent.updates(),
        extent.warm_up(),
    );
    Ok(Experiment::new("gups", "GUPS", about, runs, move |finished| {
        let mut outcome = Outcome { figures: figures(finished, extent)?, ..Outcome::default() };
        let [drives, others, sweep] = extent.points();
        outcome.charts.push(times(finished, &drives, extent)?);
        outcome.charts.push(movements(finished, &drives, extent)?);
        outcome.charts.push(memory(&outcome.figures, &sweep));
        for point in others {
            let [flat, unified, stack] = point.each(finished, "simulated_time_ns")?;
            outcome.figures.set(format!("gups.t{}.over_unified", point.threads), unified / flat);
            outcome.figures.set(format!("gups.t{}.over_stack", point.threads), stack / flat);
        }
        Ok(outcome)
    }))
}

fn bars(
    finished: &Finished<'_>,
    points: &[Point],
    figure: &str,
    divisor: f64,
    axis: Axis,
) -> Result<Drawing, ReproError> {
    let mut series = MACHINES.map(|(machine, _)| Bars::new(machine, Vec::new()));
    for point in points {
        for (series, value) in series.iter_mut().zip(point.each(finished, figure)?) {
            series.values.push(Some(value / divisor));
        }
    }
    let groups = points.iter().map(|point| words(point.drive)).collect();
    Ok(Drawing::Bars { axis, groups, series: series.into(), stacked: false })
}

fn times(finished: &Finished<'_>, points: &[Point], extent: Extent) -> Result<Chart, ReproError> {
    let axis = Axis::linear("time of an update", "µs");
    let divisor = extent.updates() as f64 * 1e3;
    Ok(Chart {
        title: "Time of an update over the size of the drive".into(),
        about: "Virtual time over updates, of all threads together; less is better.".into(),
        drawing: bars(finished, points, "simulated_time_ns", divisor, axis)?,
        references: Vec::new(),
    })
}

fn movements(finished: &Finished<'_>, points: &[Point], extent: Extent) -> Result<Chart, ReproError> {
    let axis = Axis::linear("pages moved for an update", "");
    Ok(Chart {
        title: "Page movements".into(),
        about: "Pages that crossed the link, both ways.".into(),
        drawing: bars(finished, points, "counters.page_movements", extent.updates() as f64, axis)?,
        references: Vec::new(),
    })
}

fn memory(figures: &Figures, points: &[Point]) -> Chart {
    let series = ["over_unified", "over_stack"].map(|over| {
        let of = |point: &Point| {
            let speedup = figures.0.get(&format!("gups.memory.x{}.{over}", point.times))?;
            Some((point.times * 0.125, *speedup))
        };
        Series::new(over, points.iter().filter_map(of).collect())
    });
    Chart {
        title: "Speedup over the size of the drive's memory".into(),
        about: "FlatFlash over the baselines; a drive of 512 times the DRAM.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("drive's memory, of the drive", "%"),
            y: Axis::linear("speedup", ""),
            series: series.into(),
            area: false,
        },
        references: vec![Reference { name: "as fast".into(), value: 1.0 }],
    }
}
