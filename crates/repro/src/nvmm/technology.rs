//! The technology comparison: eleven workloads on NVMM and on the SSD system, with eight technologies
//! behind each, relative to all-DRAM (NVMM, Performance, Power, and Energy Comparisons; Latency
//! Sensitivity).
//!
//! All systems execute the same instructions, so normalised instructions per cycle are all-DRAM's time
//! over the system's. NVMM prefetches one block, as the paper says of these results. The paper also
//! calls them "non-prefetching", so NVMM without prefetching is shown, too. A mean is that of the
//! figure's bars, which are normalised to all-DRAM: the arithmetic one.

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{Machine, MachineConfig, RunSpec, Technology};
use super::workloads::{self, AccessPattern, BenchmarkProgram, WORKLOADS};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::SimulationRun;

/// Name in metrics, name in charts, technology.
type Named = (&'static str, &'static str, Technology);

const fn behind_slc(nvmm: &'static str, drive: &'static str) -> Technology {
    Technology { nvmm, drive, ..Technology::SLC }
}

/// The technologies, fastest first. The software is that of the calibrated drive with the nearer read
/// time.
const TECHNOLOGIES: [Named; 8] = [
    ("dram", "DRAM", behind_slc("nvmm-dram", "paging-dram")),
    ("pcm_opt", "PCM opt", behind_slc("nvmm-pcm-optimistic", "paging-pcm-optimistic")),
    ("pcm_exp", "PCM exp", behind_slc("nvmm-pcm-expected", "paging-pcm-expected")),
    ("slc8", "SLC/8", behind_slc("nvmm-slc-8", "paging-slc-8")),
    ("slc4", "SLC/4", behind_slc("nvmm-slc-4", "paging-slc-4")),
    ("slc2", "SLC/2", behind_slc("nvmm-slc-2", "paging-slc-2")),
    ("slc", "SLC", Technology::SLC),
    ("mlc", "MLC", Technology { nvmm: "nvmm-mlc-50us", drive: "paging-mlc-50us", ..Technology::MLC_75 }),
];
/// The available flash, which the paper's figure shows and the averages cover.
const FLASH: [&str; 2] = ["slc", "mlc"];

/// A system of the comparison.
struct ComparedSystem {
    /// Name in metrics.
    name: &'static str,
    /// Name in charts.
    title: &'static str,
    machine: Machine,
    /// NVMM's cache begins empty, so a program's new memory is read from flash at the first touch.
    cold: bool,
}

const fn system(name: &'static str, title: &'static str, machine: Machine) -> ComparedSystem {
    ComparedSystem { name, title, machine, cold: false }
}

/// The claims are about the first.
const SYSTEMS: [ComparedSystem; 4] = [
    system("nvmm", "NVMM", Machine::Nvmm(1)),
    system("nvmm0", "NVMM, no prefetch", Machine::Nvmm(0)),
    ComparedSystem { cold: true, ..system("nvmm_cold", "NVMM, empty cache", Machine::Nvmm(1)) },
    system("ssd", "SSD", Machine::Ssd),
];
/// The systems that claims are about.
const COMPARED: [ComparedSystem; 2] =
    [system("nvmm", "NVMM", Machine::Nvmm(1)), system("ssd", "SSD", Machine::Ssd)];
/// Suffixes of the metrics of the three NVMM variants.
const ENDINGS: [&str; 3] = ["", ".no_prefetch", ".cold"];

fn name(workload: &BenchmarkProgram, system: &str, technology: &str) -> String {
    format!("{}.t{}.{system}.{technology}", workload.name, workload.threads)
}

fn of_dram(workload: &BenchmarkProgram) -> String {
    format!("{}.t{}.dram", workload.name, workload.threads)
}

/// The multi-threaded programs, run with one thread.
fn alone() -> impl Iterator<Item = BenchmarkProgram> {
    WORKLOADS
        .into_iter()
        .filter(|workload| workload.realistic && workload.parallel)
        .map(BenchmarkProgram::alone)
}

/// Settings that the sensitivity study can change, besides those of the machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    /// Blocks that NVMM prefetches.
    pub(super) prefetch: u32,
    /// NVMM's cache begins full, so that a program's new memory is in it.
    pub(super) resident: bool,
    /// Factor on the instructions between references.
    pub(super) work: f64,
    /// Mean over workloads.
    pub(super) mean: Mean,
}

impl Default for Variant {
    fn default() -> Self {
        Self { prefetch: 1, resident: true, work: 1.0, mean: Mean::OfMeans }
    }
}

/// How ratios of many workloads are averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mean {
    /// Ratio of arithmetic means of normalised instructions per cycle, in which slow workloads have
    /// little weight.
    OfMeans,
    /// Geometric mean.
    Geometric,
    /// Arithmetic mean.
    OfRatios,
}

/// The means, with the endings of their metrics.
const MEANS: [(Mean, &str); 3] =
    [(Mean::OfMeans, "mean"), (Mean::Geometric, "geometric"), (Mean::OfRatios, "of_ratios")];

impl Mean {
    /// Mean ratio of two lists of speeds.
    pub(super) fn ratio(self, over: &[f64], under: &[f64]) -> f64 {
        match self {
            Mean::Geometric => geometric(over) / geometric(under),
            Mean::OfMeans => arithmetic(over) / arithmetic(under),
            Mean::OfRatios => {
                arithmetic(&over.iter().zip(under).map(|(over, under)| over / under).collect::<Vec<_>>())
            }
        }
    }
}

/// Divisors of all capacities for streams: in the experiment, in the sensitivity study, in quick runs.
const STREAM_SCALE: u64 = 16;
const STUDY_SCALE: u64 = 32;
const QUICK_SCALE: u64 = 128;
/// The technology of the streams that are run at full size, too.
const FULL_SIZE: &str = "mlc";

/// The available flash.
fn flash() -> Vec<Named> {
    TECHNOLOGIES.into_iter().filter(|(short, ..)| FLASH.contains(short)).collect()
}

/// Builds the runs behind the means with available flash.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &MachineConfig,
    variant: Variant,
) -> Result<Vec<SimulationRun>, ReproError> {
    let nvmm =
        ComparedSystem { cold: !variant.resident, ..system("nvmm", "NVMM", Machine::Nvmm(variant.prefetch)) };
    let systems = [nvmm, system("ssd", "SSD", Machine::Ssd)];
    let scale = settings.pick(STUDY_SCALE, QUICK_SCALE);
    let grid = Grid { settings, registry, base, scale };
    let mut runs = Vec::new();
    for workload in WORKLOADS {
        grid.add(&mut runs, &workload.with_work(variant.work), &flash(), &systems)?;
    }
    Ok(runs)
}

/// Sets the means with available flash.
pub(super) fn study_metrics(
    finished: &FinishedRuns<'_>,
    variant: Variant,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let of = |system: &str| -> Result<Vec<f64>, ReproError> {
        let all = flash().into_iter().flat_map(|named| WORKLOADS.map(|workload| (workload, named.0)));
        all.map(|(workload, technology)| speed(finished, &workload, system, technology)).collect()
    };
    let (nvmm, ssd) = (of("nvmm")?, of("ssd")?);
    let dram = vec![1.0; nvmm.len()];
    outcome.metrics.set("nvmm_over_ssd.mean", variant.mean.ratio(&nvmm, &ssd));
    outcome.metrics.set("dram_over_nvmm.mean", variant.mean.ratio(&dram, &nvmm));
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    let base = MachineConfig::default();
    let grid = Grid { settings, registry, base: &base, scale: settings.pick(STREAM_SCALE, QUICK_SCALE) };
    for workload in &WORKLOADS {
        grid.add(&mut runs, workload, &TECHNOLOGIES, &SYSTEMS)?;
    }
    let slc: Vec<Named> = TECHNOLOGIES.into_iter().filter(|(short, ..)| *short == "slc").collect();
    for workload in alone() {
        grid.add(&mut runs, &workload, &slc, &SYSTEMS[..3])?;
    }
    let mlc: Vec<Named> = TECHNOLOGIES.into_iter().filter(|(short, ..)| *short == FULL_SIZE).collect();
    let full = Grid { scale: settings.pick(1, QUICK_SCALE / 2), ..grid };
    for workload in streams() {
        full.add(&mut runs, &BenchmarkProgram { name: full_size(&workload), ..workload }, &mlc, &COMPARED)?;
    }
    Ok(Experiment::new(
        "technology",
        "Technology comparison",
        "Instructions per cycle of NVMM and of the SSD system relative to all-DRAM, with eight \
         technologies. Traces of the paper's programs are not available, so all but dd and mmap are \
         modelled; the table gives the parameters and their sources. DRAM has 512 MiB as in the draft's \
         simulations, and the last-level cache the paper's 8 MB. Streams have all capacities divided by \
         16; a table compares them with runs of full size. The means judged by claims are arithmetic, of \
         values normalised to all-DRAM, over all workloads with SLC and with MLC; geometric means and \
         means of ratios are shown, too. NVMM's cache begins full and clean, so a program's new memory is \
         in it; a file is not. A cache that begins empty, so that new memory is read from flash at the \
         first touch, is shown beside it. The processor stalls only on memory, so a miss weighs more \
         than on a real processor. The single-threaded programs are PNum, the mixes (several programs \
         each), and the PARSEC programs and the video server run with one thread; the multi-threaded ones \
         are the latter with all their threads. DRAM and PCM in place of flash serve pages over the same \
         channels.",
        runs,
        evaluate,
    ))
}

/// Settings that all runs share.
struct Grid<'a> {
    settings: &'a Settings,
    registry: &'a Arc<Registry>,
    base: &'a MachineConfig,
    /// Divisor of all capacities for streams.
    scale: u64,
}

impl Grid<'_> {
    /// Adds the runs of a workload on all-DRAM and on these systems.
    fn add(
        &self,
        runs: &mut Vec<SimulationRun>,
        workload: &BenchmarkProgram,
        technologies: &[Named],
        systems: &[ComparedSystem],
    ) -> Result<(), ReproError> {
        let settings = self.settings;
        let common = workload.base(settings, self.base, self.scale);
        let setting = |name: String, machine, technology, cold: bool| {
            let base = MachineConfig { resident: common.resident && !cold, ..common.clone() };
            let program = workload.program(settings, &base);
            RunSpec { name, machine, technology, program, base, seed: settings.seed }
        };
        let dram = setting(of_dram(workload), Machine::Dram, Technology::SLC, false);
        runs.push(dram.run(self.registry)?);
        for &(short, _, technology) in technologies {
            for system in systems {
                let name = name(workload, system.name, short);
                let setting = setting(name, system.machine, technology, system.cold);
                runs.push(setting.run(self.registry)?);
            }
        }
        Ok(())
    }
}

/// All-DRAM's time over the system's.
fn speed(
    finished: &FinishedRuns<'_>,
    workload: &BenchmarkProgram,
    system: &str,
    technology: &str,
) -> Result<f64, ReproError> {
    let time = |run: &str| finished.metric(run, "simulated_time_ns");
    Ok(time(&of_dram(workload))? / time(&name(workload, system, technology))?)
}

/// Speeds of a system, by technology, then by workload.
fn speeds(finished: &FinishedRuns<'_>, system: &str) -> Result<Vec<Vec<f64>>, ReproError> {
    let of = |(technology, ..): &Named| {
        WORKLOADS.iter().map(|workload| speed(finished, workload, system, technology)).collect()
    };
    TECHNOLOGIES.iter().map(of).collect()
}

fn arithmetic(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Geometric mean, which treats a ratio and its inverse alike.
fn geometric(values: &[f64]) -> f64 {
    arithmetic(&values.iter().map(|value| value.ln()).collect::<Vec<_>>()).exp()
}

fn evaluate(finished: &FinishedRuns<'_>) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome { tables: vec![workloads::table()], ..Outcome::default() };
    let all = SYSTEMS.iter().map(|system| speeds(finished, system.name)).collect::<Result<Vec<_>, _>>()?;
    let metrics = &mut outcome.metrics;
    for (system, of_system) in SYSTEMS.iter().zip(&all) {
        let system = system.name;
        for ((technology, ..), of_technology) in TECHNOLOGIES.iter().zip(of_system) {
            for (workload, speed) in WORKLOADS.iter().zip(of_technology) {
                metrics.set(format!("{system}.{technology}.{}", workload.name), *speed);
            }
            metrics.set(format!("{system}.{technology}.mean"), arithmetic(of_technology));
        }
    }
    for (nvmm, suffix) in all.iter().zip(ENDINGS) {
        let (mut of_nvmm, mut of_ssd) = (Vec::new(), Vec::new());
        for (((short, ..), nvmm), ssd) in TECHNOLOGIES.iter().zip(nvmm).zip(all.last().into_iter().flatten())
        {
            let over_ssd = Mean::OfMeans.ratio(nvmm, ssd);
            metrics.set(format!("nvmm_over_ssd{suffix}.{short}.mean"), over_ssd);
            metrics.set(format!("dram_over_nvmm{suffix}.{short}.mean"), 1.0 / arithmetic(nvmm));
            if FLASH.contains(short) {
                of_nvmm.extend(nvmm);
                of_ssd.extend(ssd);
            }
        }
        let dram = vec![1.0; of_nvmm.len()];
        for (mean, ending) in MEANS {
            metrics.set(format!("nvmm_over_ssd{suffix}.{ending}"), mean.ratio(&of_nvmm, &of_ssd));
            metrics.set(format!("dram_over_nvmm{suffix}.{ending}"), mean.ratio(&dram, &of_nvmm));
        }
    }
    threads(finished, &mut outcome)?;
    full_sizes(finished, &mut outcome)?;
    intensities(&all, &mut outcome);
    charts(&all, &mut outcome);
    Ok(outcome)
}

/// NVMM with SLC under realistic programs, single- and multi-threaded.
fn threads(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    let metrics = &mut outcome.metrics;
    let (parallel, mut single): (Vec<_>, Vec<_>) =
        WORKLOADS.into_iter().filter(|workload| workload.realistic).partition(|workload| workload.parallel);
    single.extend(alone());
    for (system, suffix) in SYSTEMS.iter().zip(ENDINGS) {
        for (group, members) in [("single", &single), ("multi", &parallel)] {
            let percents = members
                .iter()
                .map(|workload| Ok(speed(finished, workload, system.name, "slc")? * 100.0))
                .collect::<Result<Vec<_>, ReproError>>()?;
            let best = percents.iter().copied().fold(0.0, f64::max);
            let least = percents.iter().copied().fold(f64::INFINITY, f64::min);
            let prefix = format!("slc.{group}_thread");
            metrics.set(format!("{prefix}_percent{suffix}"), best);
            metrics.set(format!("{prefix}_least_percent{suffix}"), least);
            metrics.set(format!("{prefix}_mean_percent{suffix}"), geometric(&percents));
            for (workload, percent) in members.iter().zip(percents) {
                metrics.set(format!("{prefix}.{}_percent{suffix}", workload.name), percent);
            }
        }
    }
    Ok(())
}

/// The streams, and their names when run at full size.
fn streams() -> impl Iterator<Item = BenchmarkProgram> {
    WORKLOADS.into_iter().filter(|workload| matches!(workload.kind, AccessPattern::Stream { .. }))
}

fn full_size(workload: &BenchmarkProgram) -> &'static str {
    match workload.name {
        "dd_read" => "dd_read.full",
        "dd_write" => "dd_write.full",
        _ => "videoserver.full",
    }
}

/// Compares the streams at the experiment's size with those of full size.
fn full_sizes(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    let mut rows = Vec::new();
    for workload in streams() {
        let full = BenchmarkProgram { name: full_size(&workload), ..workload };
        for system in &COMPARED {
            let scaled = speed(finished, &workload, system.name, FULL_SIZE)?;
            let whole = speed(finished, &full, system.name, FULL_SIZE)?;
            outcome.metrics.set(format!("{}.{FULL_SIZE}.{}", system.name, full.name), whole);
            let title = format!("{}, {}", workload.title, system.title);
            rows.push(vec![title, format!("{scaled:.3}"), format!("{whole:.3}")]);
        }
    }
    outcome.tables.push(Table {
        title: "Streams with MLC, scaled and at full size, relative to all-DRAM".into(),
        headings: ["", "scaled", "full size"].map(Into::into).into(),
        rows,
    });
    Ok(())
}

/// Upper ends of the axes of the paper's figures, which bound the best bars, by workload.
const AXES: [(&str, f64); 5] =
    [("light_mix", 0.6), ("heavy_mix", 1.0), ("dd_read", 0.25), ("dd_write", 0.3), ("mmap", 0.14)];

/// Compares the best bar of some workloads, with any technology, with the axis of the paper's figure: a
/// check on the assumed intensity of the workload.
fn intensities(all: &[Vec<Vec<f64>>], outcome: &mut Outcome) {
    let mut rows = Vec::new();
    for (at, workload) in WORKLOADS.iter().enumerate() {
        let Some((_, axis)) = AXES.iter().find(|(name, _)| *name == workload.name) else { continue };
        let compared = SYSTEMS.iter().zip(all).filter(|(system, _)| ["nvmm", "ssd"].contains(&system.name));
        let bars = compared.flat_map(|(_, of_system)| of_system.iter().filter_map(|values| values.get(at)));
        let best = bars.copied().fold(0.0, f64::max);
        outcome.metrics.set(format!("intensity.{}.best", workload.name), best);
        let fits = if best <= *axis { "yes" } else { "no" };
        rows.push(vec![workload.title.into(), format!("{best:.3}"), format!("{axis}"), fits.into()]);
    }
    outcome.tables.push(Table {
        title: "Check of the workloads' intensity: the best bar of NVMM and the SSD system".into(),
        headings: ["", "best bar", "end of the paper's axis", "within"].map(Into::into).into(),
        rows,
    });
}

fn charts(all: &[Vec<Vec<f64>>], outcome: &mut Outcome) {
    let ideal = || vec![Reference { name: "all-DRAM".into(), value: 1.0 }];
    let bars = |of: &dyn Fn(&[f64]) -> f64| -> Vec<Bars> {
        let named = SYSTEMS.iter().zip(all);
        named
            .map(|(system, of_system)| {
                Bars::new(system.title, of_system.iter().map(|values| of(values)).collect())
            })
            .collect()
    };
    let drawing = |series| Drawing::Bars {
        axis: Axis::linear("normalised instructions per cycle", ""),
        groups: TECHNOLOGIES.iter().map(|(_, title, _)| (*title).into()).collect(),
        series,
        stacked: false,
    };
    outcome.charts.push(Chart {
        title: "All workloads".into(),
        about: "Instructions per cycle relative to all-DRAM, arithmetic mean; more is better.".into(),
        drawing: drawing(bars(&arithmetic)),
        references: ideal(),
    });
    for (at, workload) in WORKLOADS.iter().enumerate() {
        outcome.charts.push(Chart {
            title: workload.title.into(),
            about: "Instructions per cycle relative to all-DRAM; more is better.".into(),
            drawing: drawing(bars(&|values: &[f64]| values[at])),
            references: ideal(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result_cache::ResultCache;
    use crate::runner::execute;

    const QUICK: Settings = Settings { quick: true, seed: 1 };

    #[test]
    fn slower_technologies_are_never_faster_and_every_claim_has_its_metrics() {
        let registry = Arc::new(Registry::builtin().unwrap());
        let experiment = experiment(&QUICK, &registry).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = ResultCache::open(folder.path()).unwrap();
        let runs: Vec<&SimulationRun> = experiment.runs.iter().collect();
        let results = execute(&runs, &store, 2, &|_| {}).unwrap();
        let outcome = experiment.outcome(&results).unwrap().expect("all runs are there");
        let metric =
            |name: String| *outcome.metrics.0.get(&name).unwrap_or_else(|| panic!("no figure {name}"));
        for workload in &WORKLOADS {
            let of =
                |system: &str, technology: &str| metric(format!("{system}.{technology}.{}", workload.name));
            // NVMM's cache is all-DRAM with tags; the time of the technology behind it comes on top.
            for (technology, ..) in &TECHNOLOGIES {
                let speed = of("nvmm0", technology);
                assert!(speed > 0.0 && speed < 1.0, "{}, {technology}: {speed}", workload.name);
            }
            // Only the read latency differs. Several threads interleave differently each time, so they
            // are left out.
            for pair in ["slc8", "slc4", "slc2", "slc"].windows(2).filter(|_| workload.threads == 1) {
                let (fast, slow) = (of("nvmm0", pair[0]), of("nvmm0", pair[1]));
                assert!(slow <= fast, "{}: {} {slow}, {} {fast}", workload.name, pair[1], pair[0]);
            }
        }
        // Mean of a ratio and of its inverse.
        for (short, ..) in &TECHNOLOGIES {
            let product =
                metric(format!("nvmm.{short}.mean")) * metric(format!("dram_over_nvmm.{short}.mean"));
            assert!((product - 1.0).abs() < 1e-9, "{short}: {product}");
        }
        for claim in super::super::CLAIMS.iter().filter(|claim| claim.experiment == "technology") {
            for name in claim.metrics {
                metric((*name).into());
            }
        }
        // dd_read goes through one file, one page after another. A page's lines cannot be requested
        // before the instruction window reaches them, and the window holds fewer lines than a page.
        let workload = WORKLOADS.iter().find(|workload| workload.name == "dd_read").unwrap();
        let run = experiment.runs.iter().find(|run| run.name == name(workload, "nvmm0", "slc")).unwrap();
        let time_us = results[&run.digest].metrics.0["simulated_time_ns"] / 1e3;
        let pages = ((6 << 20) / 4096) as f64;
        let array = pages * 25.0;
        assert!(time_us >= array, "{time_us} us for {pages} reads of 25 us one after the other");
        // With the bus time, and each of 64 lines read from DRAM separately.
        let most = pages * (25.0 + 10.24 + 64.0 * 0.2);
        assert!(time_us <= most, "{time_us} us, {most} us with nothing at the same time");
    }
}
