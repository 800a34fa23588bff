//! The technology comparison: eleven workloads on NVMM and on the SSD system, with eight technologies
//! behind each, relative to all-DRAM (NVMM, Performance, Power, and Energy Comparisons; Latency
//! Sensitivity).
//!
//! All systems execute the same instructions, so normalised instructions per cycle are all-DRAM's time
//! over the system's. NVMM prefetches one block, as the paper says of these results. The paper also
//! calls them "non-prefetching", so NVMM without prefetching is shown, too.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::paging::Backing;

use super::machine::{Machine, MachineConfig, RunSpec, Technology};
use super::workloads::{self, BenchmarkProgram, WORKLOADS};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference};
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
    /// Memory that was never stored to needs no flash read.
    skips_new: bool,
}

const fn system(name: &'static str, title: &'static str, machine: Machine) -> ComparedSystem {
    ComparedSystem { name, title, machine, skips_new: false }
}

/// The claims are about the first.
const SYSTEMS: [ComparedSystem; 4] = [
    system("nvmm", "NVMM", Machine::Nvmm(1)),
    system("nvmm0", "NVMM, no prefetch", Machine::Nvmm(0)),
    ComparedSystem { skips_new: true, ..system("nvmm_new", "NVMM, new memory not read", Machine::Nvmm(1)) },
    system("ssd", "SSD", Machine::Ssd),
];
/// Suffixes of the metrics of the three NVMM variants.
const ENDINGS: [&str; 3] = ["", ".no_prefetch", ".new_not_read"];

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
    /// Every page of NVMM was written before, so new memory is read from flash.
    pub(super) populated: bool,
    /// Factor on the instructions between references.
    pub(super) work: f64,
    /// Mean over workloads.
    pub(super) mean: Mean,
}

impl Default for Variant {
    fn default() -> Self {
        Self { prefetch: 1, populated: true, work: 1.0, mean: Mean::Geometric }
    }
}

/// How ratios of many workloads are averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mean {
    /// Geometric mean.
    Geometric,
    /// Ratio of arithmetic means of normalised instructions per cycle, in which slow workloads have
    /// little weight.
    OfMeans,
    /// Arithmetic mean.
    OfRatios,
}

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

/// Size of a stream's file in the sensitivity study, in bytes.
const STUDY_STREAM: u64 = 16 << 20;

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
    let nvmm = ComparedSystem {
        skips_new: !variant.populated,
        ..system("nvmm", "NVMM", Machine::Nvmm(variant.prefetch))
    };
    let systems = [nvmm, system("ssd", "SSD", Machine::Ssd)];
    let stream = settings.pick(STUDY_STREAM, STUDY_STREAM / 4);
    let grid = Grid { settings, registry, base, stream };
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
    let grid = Grid { settings, registry, base: &base, stream: settings.pick(64 << 20, 4 << 20) };
    for workload in &WORKLOADS {
        grid.add(&mut runs, workload, &TECHNOLOGIES, &SYSTEMS)?;
    }
    let slc: Vec<Named> = TECHNOLOGIES.into_iter().filter(|(short, ..)| *short == "slc").collect();
    for workload in alone() {
        grid.add(&mut runs, &workload, &slc, &SYSTEMS[..3])?;
    }
    Ok(Experiment::new(
        "technology",
        "Technology comparison",
        "Instructions per cycle of NVMM and of the SSD system relative to all-DRAM, with eight \
         technologies. Traces of the paper's programs are not available, so all but dd and mmap are \
         modelled; the table gives the parameters and their sources. Programs have 64 MiB of DRAM in place \
         of the paper's 32 GB, and its last-level cache of 8 MB. The means judged by claims are geometric, \
         over all workloads with SLC and with MLC; \"of_means\" are ratios of arithmetic means. Every page \
         of NVMM was written before, so a program's new memory is read from flash at the first touch, as \
         in a physical memory behind a write-allocate cache. A page table that knows unwritten pages, as \
         the paper's could, is shown beside it. The processor stalls only on memory, so a miss weighs more \
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
    /// Size of a stream's file, in bytes.
    stream: u64,
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
        let common = workload.base(settings, self.base, self.stream);
        let program = workload.program(settings, &common);
        let setting = |name: String, machine, technology, skips_new| {
            let mut base = common.clone();
            // A file's data are always in flash.
            base.nvmm.populated = !(skips_new && program.backing == Backing::Swap);
            RunSpec { name, machine, technology, program: program.clone(), base, seed: settings.seed }
        };
        let dram = setting(of_dram(workload), Machine::Dram, Technology::SLC, false);
        runs.push(dram.run(self.registry)?);
        for &(short, _, technology) in technologies {
            for system in systems {
                let name = name(workload, system.name, short);
                let setting = setting(name, system.machine, technology, system.skips_new);
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
            metrics.set(format!("{system}.{technology}.mean"), geometric(of_technology));
        }
    }
    for (nvmm, suffix) in all.iter().zip(ENDINGS) {
        let (mut of_nvmm, mut of_ssd) = (Vec::new(), Vec::new());
        for (((short, ..), nvmm), ssd) in TECHNOLOGIES.iter().zip(nvmm).zip(all.last().into_iter().flatten())
        {
            metrics.set(format!("nvmm_over_ssd{suffix}.{short}.mean"), geometric(nvmm) / geometric(ssd));
            metrics.set(format!("dram_over_nvmm{suffix}.{short}.mean"), 1.0 / geometric(nvmm));
            if FLASH.contains(short) {
                of_nvmm.extend(nvmm);
                of_ssd.extend(ssd);
            }
        }
        metrics.set(format!("nvmm_over_ssd{suffix}.mean"), geometric(&of_nvmm) / geometric(&of_ssd));
        metrics.set(format!("dram_over_nvmm{suffix}.mean"), 1.0 / geometric(&of_nvmm));
        // Averages of the bars themselves, in which slow workloads have little weight.
        metrics.set(format!("nvmm_over_ssd{suffix}.of_means"), arithmetic(&of_nvmm) / arithmetic(&of_ssd));
        metrics.set(format!("dram_over_nvmm{suffix}.of_means"), 1.0 / arithmetic(&of_nvmm));
    }
    threads(finished, &mut outcome)?;
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
            let prefix = format!("slc.{group}_thread");
            metrics.set(format!("{prefix}_percent{suffix}"), best);
            metrics.set(format!("{prefix}_mean_percent{suffix}"), geometric(&percents));
            for (workload, percent) in members.iter().zip(percents) {
                metrics.set(format!("{prefix}.{}_percent{suffix}", workload.name), percent);
            }
        }
    }
    Ok(())
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
        about: "Instructions per cycle relative to all-DRAM, geometric mean; more is better.".into(),
        drawing: drawing(bars(&geometric)),
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
        let pages = ((4 << 20) / 4096) as f64;
        let array = pages * 25.0;
        assert!(time_us >= array, "{time_us} us for {pages} reads of 25 us one after the other");
        // With the bus time, and each of 64 lines read from DRAM separately.
        let most = pages * (25.0 + 10.24 + 64.0 * 0.2);
        assert!(time_us <= most, "{time_us} us, {most} us with nothing at the same time");
    }
}
