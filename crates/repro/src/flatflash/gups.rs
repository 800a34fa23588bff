//! GUPS: random updates of a table far larger than DRAM, against the size of the drive and of its memory
//! (FlatFlash, section 5.2 and Figure 9).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::processor::LINE_BYTES;
use deepram_trace::Request;
use deepram_trace::workload::{hpcc_starts, hpcc_step};

use super::machine::{
    BaselineRatios, DRAM, GIB, MACHINES, MachineConfig, RunContext, RunSpec, SLOWDOWN_MACHINES, each, shares,
    slowdown, store, totals, words,
};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::{Metrics, SimulationRun};

/// Size of the table, in bytes.
const TABLE: u64 = 32 * GIB;
/// Drive sizes, 128, 256 and 512 times the DRAM. The paper names the last, for the sweep of the drive's
/// memory.
const DRIVES: [u64; 3] = [256 * GIB, 512 * GIB, 1024 * GIB];
const NAMED: u64 = 1024 * GIB;
/// Number of threads. The paper says "multiple"; its machine has this many cores.
pub(super) const THREADS: u32 = 24;
/// Divisor of the paper's sizes.
pub(super) const SCALE: u64 = 128;
/// Updates of the program for each word of its table.
const UPDATES_A_WORD: u64 = 4;
/// Size of a word of the table, in bytes.
const WORD: u64 = 8;
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
            scale: settings.pick(SCALE, 2048),
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
            scale: settings.pick(1024, 2048),
            threads: THREADS,
        }
    }

    /// The named drive alone, with the default number of threads.
    #[cfg(test)]
    pub(super) fn of_named(scale: u64) -> Self {
        Self { drives: &DRIVES[2..], times: &[], others: &[], scale, threads: THREADS }
    }

    /// The table's size, in bytes.
    fn table(&self) -> u64 {
        TABLE / self.scale
    }

    /// Updates between the initialisation and the measured ones: four per page of DRAM, so that every page
    /// of DRAM and of the largest SSD-Cache has been replaced.
    fn warm_up(&self) -> u64 {
        4 * DRAM / 4096 / self.scale
    }

    fn updates(&self) -> u64 {
        (3_200_000 / self.scale).max(5_000)
    }

    /// HPCC RandomAccess: each thread sets its share of the table, `Table[i] = i`, then updates its share of
    /// the random words. The simulated updates are from two fifths of each share on: near the start, and
    /// near numbers that are multiples of large powers of two, HPCC's sequence has few bits set and falls
    /// on few pages. An update loads its word and stores it; the store finds the
    /// line in the processor's cache, as do those to the other words of a line that is being set.
    fn requests(self) -> impl Iterator<Item = Request> {
        let lines = shares(self.table() / LINE_BYTES, self.threads);
        let mask = self.table() / WORD - 1;
        let share = UPDATES_A_WORD * (TABLE / WORD) / u64::from(self.threads);
        let start = |thread| hpcc_starts(share * u64::from(thread) + share * 2 / 5);
        let mut numbers: Vec<u64> = (0..self.threads).map(start).collect();
        let updates = (0..self.warm_up() + self.updates()).map(move |at| {
            let turn = (at % numbers.len() as u64) as usize;
            numbers[turn] = hpcc_step(numbers[turn]);
            numbers[turn] & mask
        });
        lines.map(|line| store(line * LINE_BYTES, WORD)).chain(updates.map(|word| store(word * WORD, WORD)))
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
        let extent = Extent { threads: self.threads, ..extent };
        let times = context.base.buffer_times.unwrap_or(1.0) * self.times;
        let base = MachineConfig { buffer_times: Some(times), ..context.base.clone() };
        let Extent { scale, threads, .. } = extent;
        let what = format!("gups: {} words, {threads} threads", extent.table() / WORD);
        let what = format!("{what}, {} and {} updates", extent.warm_up(), extent.updates());
        let run = |(machine, kind)| {
            let setting = RunSpec {
                name: self.name(machine),
                machine: kind,
                drive: self.drive,
                dram: DRAM,
                scale,
                threads,
                warm_up: extent.table() / LINE_BYTES + extent.warm_up(),
                base: &base,
                seed: context.settings.seed,
            };
            setting.run(context.registry, &what, extent.table(), move || extent.requests())
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

/// The name of a machine's run with the named drive and the default number of threads.
pub(super) fn named(machine: &str) -> String {
    Point { drive: NAMED, threads: THREADS, times: 1.0 }.name(machine)
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
        "A table of {} behind {} of DRAM, on drives of 128, 256 and 512 times the DRAM: the paper's sizes \
         over {}. The threads first set the whole table, as the program does. {} updates are measured \
         after {} others. {THREADS} threads (one per core; the paper gives no number) update one word at a \
         time each; 1 and 8 are shown beside them. Runs are too short for reclamation, so pages programmed \
         stand for wear.",
        words(extent.table()),
        words(DRAM / extent.scale),
        extent.scale,
        extent.updates(),
        extent.warm_up(),
    );
    Ok(Experiment::new("gups", "GUPS", about, runs, move |finished| {
        let mut outcome = Outcome { metrics: metrics(finished, extent)?, ..Outcome::default() };
        let [drives, others, sweep] = extent.points();
        outcome.charts.push(times(finished, &drives, extent)?);
        outcome.charts.push(movements(finished, &drives, extent)?);
        outcome.charts.push(memory(&outcome.metrics, &sweep));
        let named = sweep.iter().filter(|point| point.times == 1.0);
        let mut rows = Vec::new();
        for point in others.iter().chain(named) {
            rows.push(by_threads(finished, *point, &mut outcome.metrics)?);
        }
        let headings =
            ["threads", "time over unified", "over stack", "pages moved over unified", "over stack"];
        let headings = headings.map(String::from).to_vec();
        outcome.tables.push(Table { title: "By number of threads".into(), headings, rows });
        Ok(outcome)
    }))
}

/// Sets the ratios with one number of threads, and returns them as a table's row.
fn by_threads(
    finished: &FinishedRuns<'_>,
    point: Point,
    metrics: &mut Metrics,
) -> Result<Vec<String>, ReproError> {
    let mut row = vec![point.threads.to_string()];
    for (what, metric) in [("time", "simulated_time_ns"), ("moved", "counters.page_movements")] {
        let [flat, unified, stack] = point.each(finished, metric)?;
        for (baseline, value) in [("unified", unified), ("stack", stack)] {
            // FlatFlash may move no page; one is assumed.
            let ratio = value / flat.max(1.0);
            metrics.set(format!("gups.t{}.{what}.over_{baseline}", point.threads), ratio);
            row.push(plain(ratio));
        }
    }
    Ok(row)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_whole_table_is_set_by_equal_shares_before_the_first_update() {
        let small = Extent { drives: &[], times: &[], others: &[], scale: 1 << 20, threads: 3 };
        assert_eq!(small.table(), 32 << 10);
        let all: Vec<Request> = small.requests().collect();
        let (set, updates) = all.split_at(512);
        assert_eq!(set.iter().map(|request| request.offset / 64).collect::<BTreeSet<u64>>().len(), 512);
        // The first lines of the three shares of 171 lines, then the second ones.
        let first: Vec<u64> = set[..6].iter().map(|request| request.offset / 64).collect();
        assert_eq!(first, [0, 171, 342, 1, 172, 343]);
        assert!(updates.iter().all(|request| request.offset < 32 << 10 && request.len == 8));
    }

    #[test]
    fn updates_fall_evenly_on_all_pages() {
        for threads in [1, 8, 24] {
            let small = Extent { drives: &[], times: &[], others: &[], scale: 512, threads };
            let updates = small.requests().skip(small.table() as usize / 64).take(4096);
            let pages: BTreeSet<u64> = updates.map(|request| request.offset / 4096).collect();
            // Of 16,384 pages a share of 1 - exp(-1/4), with a standard deviation of 20 pages.
            assert!((3524..=3724).contains(&pages.len()), "{} pages, {threads} threads", pages.len());
        }
    }
}
