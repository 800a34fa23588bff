//! `deepram bench predict`: the simulator's predictions for this machine against what is measured, over both backings: the pool's
//! journaled store and the swap file of `deepram run`. Loops over an array, and two recorded programs, at three sizes of DRAM.
//!
//! Every input of a prediction is measured in the same run: the device (as `deepram media measure`), the steps of a fault
//! alone, and the software time of a fault under device reads. Second chances and first stores are measured between computing. The
//! software time is calibrated on random loads, the time of a page in a huge page on scans, and that of a page that is read ahead on scans
//! in less DRAM, where there are no huge pages; none of these sizes of DRAM is predicted. The time of a fault is negative where a handler
//! that polls sees a read complete earlier than the measuring host, whose processor sleeps. No input is fitted to the predicted runs.
//!
//! Device, costs and runs are measured in rounds. The device changes within minutes: reads, alone and beside writes, are measured again
//! before and after each predicted run, and each run that costs are calibrated on. Each run is predicted with its own device; the costs,
//! which do not change with the device, are the medians of all rounds. Medians of the runs count.

mod pool;
mod programs;
mod swap;
mod workload;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use deepram_core::Bytes;
use deepram_media::{MeasuredFile, Picos, Registry};
use deepram_trace::workload::mix64;
use serde::Serialize;

use self::pool::{FilledPool, PoolCosts};
use self::programs::Program;
use self::swap::SwapCosts;
use self::workload::Workload;
use super::{OutputArgs, Report, Scratch, timed};
use crate::measure::{Load, MeasureArgs, Target, measure, open};
use crate::output::{Table, progress};

/// Options of `deepram bench predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Folder for the files, on the device to be measured
    #[arg(long, default_value = ".", value_name = "PATH")]
    pub(super) dir: PathBuf,
    /// Number of rounds: each measures the costs and every cell once; medians count
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Size of the array
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    data: Bytes,
    /// Accesses measured at each size of DRAM, after a warm-up of the same number
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    updates: u64,
    /// Seconds for each device measurement
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    seconds: f64,
    /// What is behind the DRAM [default: both]
    #[arg(long, value_delimiter = ',', value_name = "BACKING,...")]
    backings: Vec<Backing>,
    /// What runs [default: all; programs run over the swap file only]
    #[arg(long, value_delimiter = ',', value_name = "WORKLOAD,...")]
    workloads: Vec<Workload>,
}

/// Bytes of a page, and of a segment of the pool.
const PAGE: u64 = 4096;
/// Sizes of the data over the sizes of DRAM.
const RATIOS: [u64; 3] = [8, 4, 2];
/// Size of the data over that of DRAM in the calibration runs; it is none of those that are predicted.
const CALIBRATION: u64 = 3;
/// The same in the calibration run of pages that are read ahead one by one: DRAM in which there are no huge pages.
const CALIBRATION_OF_PAGES: u64 = 6;
/// Part of the time of a device measurement that each measurement of reads beside a run takes.
const BESIDE_SHARE: f64 = 0.2;
/// Computing before each step in [`time_apart`].
const PAUSE: Duration = Duration::from_micros(20);
/// Largest difference of the predicted misses from the measured ones, and of the rates, as parts of the measured ones.
const MISSES_WITHIN: f64 = 0.02;
const RATE_WITHIN: f64 = 0.10;

/// Whether a result of this bench is of a recorded program; the others are of loops over an array.
pub(super) fn is_program(workload: &str) -> bool {
    Workload::PROGRAMS.iter().any(|program| program.name() == workload)
}

/// What is behind the DRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Backing {
    /// The journaled store of a pool
    Pool,
    /// The swap file of `deepram run`
    Swap,
}

impl Backing {
    fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Swap => "swap file",
        }
    }
}

/// Counts of a run for each access.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Counts {
    /// Faults that wait for the device; of the pool all faults on absent segments.
    misses: f64,
    second_chances: f64,
    first_stores: f64,
    /// Pages read ahead.
    read_ahead: f64,
    /// Pages written to the device in the background.
    written: f64,
}

/// A run, measured or simulated.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    per_s: f64,
    counts: Counts,
    /// Frames of a pool, which its tables and buffers leave.
    frames: Option<u64>,
}

impl Outcome {
    /// The medians of several runs.
    fn median(all: &[Self]) -> Self {
        let of = |value: &dyn Fn(&Self) -> f64| median(all.iter().map(value).collect());
        Self {
            per_s: of(&|run| run.per_s),
            counts: Counts {
                misses: of(&|run| run.counts.misses),
                second_chances: of(&|run| run.counts.second_chances),
                first_stores: of(&|run| run.counts.first_stores),
                read_ahead: of(&|run| run.counts.read_ahead),
                written: of(&|run| run.counts.written),
            },
            frames: all.iter().filter_map(|run| run.frames).max(),
        }
    }
}

/// The middle one of some values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Mean time of `step` on each of `count` pages (a power of two), nanoseconds. The pages are in no order, and the thread computes for
/// [`PAUSE`] before each: between the faults of a program its handler sleeps, and caches hold other things.
fn time_apart(count: u64, step: impl Fn(u64)) -> f64 {
    let mut sum = Duration::ZERO;
    for n in 0..count {
        let paused = Instant::now();
        while paused.elapsed() < PAUSE {
            std::hint::spin_loop();
        }
        sum += timed(|| step(n * 2741 % count)).1;
    }
    sum.as_nanos() as f64 / count as f64
}

/// The software time of a fault that reads, nanoseconds, of a run of loads:
/// time of a load = hit + misses x (device + fault) + second chances x second chance.
fn fault_ns(file: &MeasuredFile, ran: &Outcome, hit_ns: f64, second_chance_ns: f64) -> anyhow::Result<f64> {
    let Counts { misses, second_chances, .. } = ran.counts;
    ensure!(misses > 0.0, "no load missed; give more --data");
    let read_ns = file.latency(false, Bytes(PAGE)).0 as f64 / 1e3;
    Ok((1e9 / ran.per_s - hit_ns - second_chances * second_chance_ns) / misses - read_ns)
}

/// The device as the handlers see it, which poll for reads: where a fault takes less than a read of a host that sleeps
/// (`fault_ns` is negative), its reads complete that much earlier.
fn polled(file: &MeasuredFile, fault_ns: f64) -> MeasuredFile {
    file.clone().with_earlier_reads(Picos((-fault_ns * 1e3) as u64))
}

/// The cost of a step, nanoseconds, with which `simulated` has this rate; 0 if the rate is higher with every cost. A higher cost
/// makes no rate higher.
fn cost_of_rate(per_s: f64, simulated: impl Fn(f64) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let (mut low, mut high) = (0.0, 1e9 / per_s * 4.0);
    for _ in 0..12 {
        let middle = f64::midpoint(low, high);
        if simulated(middle)? > per_s {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// One workload over one backing with one size of DRAM.
struct Cell {
    backing: Backing,
    work: Workload,
    data: u64,
    dram: u64,
    runs: Vec<Outcome>,
    /// The device beside each run.
    devices: Vec<MeasuredFile>,
    /// What is predicted with the device and the costs of each round.
    predictions: Vec<Outcome>,
}

#[derive(Serialize)]
struct Row {
    workload: &'static str,
    backing: Backing,
    data_bytes: u64,
    dram_bytes: u64,
    predicted_per_s: f64,
    measured_per_s: f64,
    /// Rates of all runs, and those predicted for them.
    runs_per_s: Vec<f64>,
    predictions_per_s: Vec<f64>,
    /// Time of a read of 4 KiB beside each run, beside as many writes as the run made.
    reads_us: Vec<f64>,
    ratio: f64,
    predicted_misses: f64,
    measured_misses: f64,
    predicted: Counts,
    measured: Counts,
    /// Whether misses and rate are as close as they should be.
    misses_within: bool,
    rate_within: bool,
}

impl Row {
    fn new(cell: &Cell) -> Self {
        let (predicted, measured) = (Outcome::median(&cell.predictions), Outcome::median(&cell.runs));
        let (predicted_misses, measured_misses) = (predicted.counts.misses, measured.counts.misses);
        let ratio = predicted.per_s / measured.per_s;
        // Of a scan that is read ahead so few accesses miss that one more or less is more than the bound: a miss in 10,000
        // accesses is within it.
        let off = (predicted_misses - measured_misses).abs();
        Self {
            workload: cell.work.name(),
            backing: cell.backing,
            data_bytes: cell.data,
            dram_bytes: cell.dram,
            predicted_per_s: predicted.per_s,
            measured_per_s: measured.per_s,
            runs_per_s: cell.runs.iter().map(|run| run.per_s).collect(),
            predictions_per_s: cell.predictions.iter().map(|run| run.per_s).collect(),
            reads_us: cell.devices.iter().map(read_us).collect(),
            ratio,
            predicted_misses,
            measured_misses,
            predicted: predicted.counts,
            measured: measured.counts,
            misses_within: off <= (MISSES_WITHIN * measured_misses).max(1e-4),
            rate_within: (ratio - 1.0).abs() <= RATE_WITHIN,
        }
    }
}

#[derive(Serialize)]
struct PredictReport {
    device_read_us: f64,
    pool_costs: Option<PoolCosts>,
    swap_costs: Option<SwapCosts>,
    rows: Vec<Row>,
}

pub(super) fn run(args: &PredictArgs) -> anyhow::Result<Report> {
    let data = args.data.0 / (1 << 20) * (1 << 20);
    ensure!(data >= 64 << 20, "--data {}: at least 64 MiB", args.data);
    ensure!(args.updates >= 1000, "--updates {}: at least 1000", args.updates);
    let backings =
        if args.backings.is_empty() { vec![Backing::Pool, Backing::Swap] } else { args.backings.clone() };
    let wanted = |work: &Workload| args.workloads.is_empty() || args.workloads.contains(work);
    let scratch = Scratch::new(&args.dir).with_context(|| args.dir.display().to_string())?;
    let dir = std::fs::canonicalize(&scratch.0)?;
    let pool = backings.contains(&Backing::Pool);
    let pool = pool.then(|| FilledPool::create(&scratch, data)).transpose()?;
    let bar = progress("recording the programs");
    let swap = backings.contains(&Backing::Swap);
    let recorded = Workload::PROGRAMS.into_iter().filter(|work| swap && wanted(work));
    let programs = recorded.map(|work| Ok((work, Program::record(work, &dir)?)));
    let programs: Vec<(Workload, Program)> = programs.collect::<anyhow::Result<_>>()?;
    let mut cells = cells(&backings, data, &programs, wanted);
    let mut rounds = Vec::new();
    for number in 1..=args.repeats {
        bar.set_message(format!("device and costs, round {number} of {}", args.repeats));
        let device = Device::measure(args)?;
        let hit_ns = hit_ns(data);
        let pool_costs = pool.as_ref().map(|pool| pool.costs(&scratch, &device, hit_ns, args.updates));
        let swap_costs = swap.then(|| swap::costs(&dir, &device, hit_ns, data, args.updates));
        let ample = programs.iter().map(|(_, program)| program.measure(program.ample()));
        rounds.push(Round {
            pool_costs: pool_costs.transpose()?,
            swap_costs: swap_costs.transpose()?,
            ample: ample.collect::<anyhow::Result<_>>()?,
            file: device.file.clone(),
        });
        for cell in &mut cells {
            let (name, backing) = (cell.work.name(), cell.backing.name());
            bar.set_message(format!(
                "{name}, {backing}, {}, round {number} of {}",
                Bytes(cell.dram),
                args.repeats
            ));
            let program = programs.iter().find(|(work, _)| *work == cell.work);
            let (outcome, file) = device.beside(|| match (cell.backing, program, &pool) {
                (_, Some((_, program)), _) => program.measure(cell.dram),
                (Backing::Pool, None, Some(pool)) => pool.measure(cell.dram, cell.work, args.updates, true),
                _ => swap::measure(&dir, data, cell.dram, cell.work, args.updates, true),
            })?;
            cell.runs.push(outcome);
            cell.devices.push(file);
        }
    }
    bar.set_message("simulating");
    let pool_costs = median_of(&rounds, |round| round.pool_costs, PoolCosts::median);
    let swap_costs = median_of(&rounds, |round| round.swap_costs, SwapCosts::median);
    for (number, round) in rounds.iter().enumerate() {
        let mut simulated_programs = Vec::new();
        for ((work, program), ample) in programs.iter().zip(&round.ample) {
            let Some(costs) = &swap_costs else { break };
            simulated_programs.push((*work, program, program.think_times(&round.file, costs, ample.per_s)?));
        }
        for cell in &mut cells {
            let program = simulated_programs.iter().find(|(work, ..)| *work == cell.work);
            let file = &cell.devices[number];
            let predicted = match (program, cell.backing, &pool_costs, &swap_costs) {
                (Some((_, program, think_times)), _, _, Some(costs)) => {
                    program.simulate(file, costs, cell.dram, think_times)?
                }
                (None, Backing::Pool, Some(costs), _) => {
                    let sizes = (data, cell.dram, cell.runs[number].frames.unwrap_or_default());
                    pool::simulate(file, costs, sizes, cell.work, args.updates, true)?
                }
                (None, Backing::Swap, _, Some(costs)) => {
                    swap::simulate(file, costs, data, cell.dram, cell.work, args.updates, true)?
                }
                _ => continue,
            };
            cell.predictions.push(predicted);
        }
    }
    bar.finish_and_clear();
    let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let report = PredictReport {
        device_read_us: of(&|round| read_us(&round.file)),
        pool_costs,
        swap_costs,
        rows: cells.iter().map(Row::new).collect(),
    };
    Report::new(&report, text(&report, &programs))
}

/// Time of a single read of a page, us.
fn read_us(file: &MeasuredFile) -> f64 {
    file.latency(false, Bytes(PAGE)).0 as f64 / 1e6
}

/// The median of the costs of all rounds, if they were measured.
fn median_of<T>(rounds: &[Round], costs: fn(&Round) -> Option<T>, median: fn(&[T]) -> T) -> Option<T> {
    let all: Option<Vec<T>> = rounds.iter().map(costs).collect();
    all.map(|all| median(&all))
}

/// What is measured in a round beside its cells.
struct Round {
    file: MeasuredFile,
    pool_costs: Option<PoolCosts>,
    swap_costs: Option<SwapCosts>,
    /// A run of each program whose memory fits.
    ample: Vec<Outcome>,
}

/// The device in a round.
struct Device {
    file: MeasuredFile,
    target: Target,
    args: MeasureArgs,
    /// Time of each measurement beside a run.
    beside: Duration,
}

impl Device {
    fn measure(args: &PredictArgs) -> anyhow::Result<Self> {
        let beside = Duration::from_secs_f64(args.seconds * BESIDE_SHARE);
        let args = MeasureArgs::of_pager(&args.dir, args.data, args.seconds);
        let target = open(&args)?;
        let (_, preset) = measure(&args, &target)?;
        let mut registry = Registry::builtin()?;
        registry.add("the measured device", &preset)?;
        Ok(Self { file: registry.get("file.measured")?, target, args, beside })
    }

    /// Mean times of three kinds of reads, ns: of 4 KiB, of 4 KiB beside as many written bytes, and of 1 MiB.
    fn reads(&self) -> anyhow::Result<[f64; 3]> {
        let read = |bytes, beside_writes| -> anyhow::Result<f64> {
            let load = Load { beside_writes, ..Load::reads(self.args.order(bytes), bytes, 1) };
            Ok(self.target.measure(load, self.beside)?.0 * 1e3)
        };
        Ok([read(PAGE, false)?, read(PAGE, true)?, read(1 << 20, false)?])
    }

    /// Makes a run. Returns its outcome and the device with the mean times of reads before and after it. Reads of 4 KiB take longer in
    /// proportion to the bytes that the run wrote for each that it read.
    fn beside(
        &self,
        run: impl FnOnce() -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<(Outcome, MeasuredFile)> {
        let before = self.reads()?;
        let outcome = run()?;
        let after = self.reads()?;
        let [alone, beside_writes, large] = [0, 1, 2].map(|n| f64::midpoint(before[n], after[n]));
        let Counts { misses, read_ahead, written, .. } = outcome.counts;
        let written = written / (misses + read_ahead).max(f64::MIN_POSITIVE);
        let small = alone + (beside_writes - alone).max(0.0) * written.min(1.0);
        let [small, large] = [small, large].map(|ns| Picos((ns * 1e3) as u64));
        Ok((outcome, self.file.clone().with_reads(small, large)))
    }
}

/// The cells to measure: every workload over every backing that it has, at every ratio.
fn cells(
    backings: &[Backing],
    data: u64,
    programs: &[(Workload, Program)],
    wanted: impl Fn(&Workload) -> bool,
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &backing in backings {
        let arrays = Workload::ARRAYS.into_iter().filter(&wanted).map(|work| (work, data));
        let recorded = programs.iter().filter(|_| backing == Backing::Swap);
        for (work, data) in arrays.chain(recorded.map(|(work, program)| (*work, program.data))) {
            // `deepram run` takes whole pages, and 16 MiB at least.
            let least = if Workload::PROGRAMS.contains(&work) { 16 << 20 } else { 0 };
            let dram = |ratio: u64| (data / ratio / PAGE * PAGE).max(least);
            cells.extend(RATIOS.map(|ratio| Cell {
                backing,
                work,
                data,
                dram: dram(ratio),
                runs: Vec::new(),
                devices: Vec::new(),
                predictions: Vec::new(),
            }));
        }
    }
    cells
}

/// Time of an access to memory that is there.
fn hit_ns(data: u64) -> f64 {
    const ACCESSES: u64 = 1_000_000;
    let plain: Vec<AtomicU64> = (0..data / 8).map(AtomicU64::new).collect();
    let ((), time) = timed(|| {
        for n in 0..ACCESSES {
            plain[(mix64(n) % (data / 8)) as usize].fetch_xor(n, Relaxed);
        }
    });
    time.as_nanos() as f64 / ACCESSES as f64
}

fn text(report: &PredictReport, programs: &[(Workload, Program)]) -> String {
    let mut text = format!("measured: device read {:.1} µs\n", report.device_read_us);
    let costs = report.pool_costs.iter().map(PoolCosts::shown);
    for line in costs.chain(report.swap_costs.iter().map(SwapCosts::shown)) {
        text += &format!("{line}\n");
    }
    for (_, program) in programs {
        text += &format!("{}\n", program.shown());
    }
    let headings =
        ["<workload", "<backing", "DRAM", "predicted k/s", "measured k/s", "ratio", "predicted misses"];
    let mut table = Table::new(&[&headings[..], &["measured misses", "ratio", "<outside"]].concat());
    for row in &report.rows {
        let outside = match (row.misses_within, row.rate_within) {
            (true, true) => "",
            (false, true) => "misses",
            (true, false) => "rate",
            (false, false) => "misses, rate",
        };
        table.row(vec![
            row.workload.into(),
            row.backing.name().into(),
            Bytes(row.dram_bytes).to_string(),
            format!("{:.2}", row.predicted_per_s / 1e3),
            format!("{:.2}", row.measured_per_s / 1e3),
            format!("{:.2}", row.ratio),
            format!("{:.4}", row.predicted_misses),
            format!("{:.4}", row.measured_misses),
            format!("{:.3}", row.predicted_misses / row.measured_misses),
            outside.into(),
        ]);
    }
    format!("{text}\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_found_that_gives_a_rate() {
        let rate = |cost: f64| Ok(1e9 / (cost + 500.0).max(2000.0));
        let cost = cost_of_rate(1e9 / 3000.0, rate).unwrap();
        assert!((cost - 2500.0).abs() < 10.0, "{cost}");
        assert_eq!(cost_of_rate(1e9 / 1000.0, rate).unwrap(), 0.0, "no cost makes it so fast");
    }

    #[test]
    fn a_cell_outside_of_the_bounds_is_marked() {
        let outcome =
            |per_s, misses| Outcome { per_s, counts: Counts { misses, ..Counts::default() }, frames: None };
        let runs = vec![outcome(90.0, 0.5), outcome(100.0, 0.5), outcome(200.0, 0.51)];
        let mut cell = Cell {
            backing: Backing::Swap,
            work: Workload::Reads,
            data: 8 * PAGE,
            dram: 2 * PAGE,
            runs,
            devices: Vec::new(),
            predictions: Vec::new(),
        };
        let mut within = |per_s, misses| {
            cell.predictions = vec![outcome(per_s, misses)];
            let row = Row::new(&cell);
            (row.rate_within, row.misses_within)
        };
        assert_eq!([within(109.0, 0.509), within(112.0, 0.509)], [(true, true), (false, true)]);
        assert_eq!([within(91.0, 0.489), within(89.0, 0.4)], [(true, false), (false, false)]);
    }
}
