//! The technology comparison: eleven workloads on NVMM and on the SSD system, with eight technologies behind
//! each, against all-DRAM (NVMM, Performance, Power, and Energy Comparisons; Latency Sensitivity).
//!
//! All systems run the same instructions, so normalised instructions per cycle are all-DRAM's time over the
//! system's. NVMM fetches one block ahead, as the text says of these results; it calls them "non-prefetching"
//! too, so NVMM without prefetch stands beside.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::paging::Backing;

use super::machine::{Base, Machine, Setting, Technology};
use super::workloads::{self, WORKLOADS, Workload};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference};
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::run::Run;

/// Name in figures, name in charts, and what it is.
type Named = (&'static str, &'static str, Technology);

const fn behind_slc(nvmm: &'static str, drive: &'static str) -> Technology {
    Technology { nvmm, drive, ..Technology::SLC }
}

/// Fastest first. Software is that of the nearer of the two drives on which it is calibrated.
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
/// The flash that is there to buy: what the comparison's figure shows, and what the averages are over.
const FLASH: [&str; 2] = ["slc", "mlc"];

/// A column of the comparison.
struct System {
    /// In the names of figures.
    name: &'static str,
    /// In charts.
    title: &'static str,
    machine: Machine,
    /// A flash main memory has nothing to read for memory that nobody ever stored to.
    skips_new: bool,
}

const fn system(name: &'static str, title: &'static str, machine: Machine) -> System {
    System { name, title, machine, skips_new: false }
}

/// The first is what claims are about.
const SYSTEMS: [System; 4] = [
    system("nvmm", "NVMM", Machine::Nvmm(1)),
    system("nvmm0", "NVMM, no prefetch", Machine::Nvmm(0)),
    System { skips_new: true, ..system("nvmm_new", "NVMM, new memory not read", Machine::Nvmm(1)) },
    system("ssd", "SSD", Machine::Ssd),
];
/// The three of NVMM, and what the names of their figures end with.
const ENDINGS: [&str; 3] = ["", ".no_prefetch", ".new_not_read"];

fn name(workload: &Workload, system: &str, technology: &str) -> String {
    format!("{}.t{}.{system}.{technology}", workload.name, workload.threads)
}

fn of_dram(workload: &Workload) -> String {
    format!("{}.t{}.dram", workload.name, workload.threads)
}

/// The programs with several threads, run with one.
fn alone() -> impl Iterator<Item = Workload> {
    WORKLOADS.into_iter().filter(|workload| workload.realistic && workload.parallel).map(Workload::alone)
}

/// What the sensitivity study changes here beside the machines' common part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    /// Blocks that NVMM fetches ahead.
    pub(super) prefetch: u32,
    /// Every page of NVMM was written before, so that new memory is read from flash.
    pub(super) populated: bool,
    /// Instructions from one reference to the next, in those of the table of workloads.
    pub(super) work: f64,
    /// How workloads become one figure.
    pub(super) mean: Mean,
}

impl Default for Variant {
    fn default() -> Self {
        Self { prefetch: 1, populated: true, work: 1.0, mean: Mean::Geometric }
    }
}

/// How the ratios of many workloads become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mean {
    /// Their geometric mean.
    Geometric,
    /// The ratio of the arithmetic means of normalised instructions per cycle: slow workloads hardly count.
    OfMeans,
    /// Their arithmetic mean.
    OfRatios,
}

impl Mean {
    /// Of the ratios of two speeds.
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

/// Bytes of a stream's file in the sensitivity study, where it is run again and again.
const STUDY_STREAM: u64 = 16 << 20;

/// The flash that is there to buy.
fn flash() -> Vec<Named> {
    TECHNOLOGIES.into_iter().filter(|(short, ..)| FLASH.contains(short)).collect()
}

/// The runs behind the means with flash that is there to buy.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &Base,
    variant: Variant,
) -> Result<Vec<Run>, ReproError> {
    let nvmm =
        System { skips_new: !variant.populated, ..system("nvmm", "NVMM", Machine::Nvmm(variant.prefetch)) };
    let systems = [nvmm, system("ssd", "SSD", Machine::Ssd)];
    let stream = settings.pick(STUDY_STREAM, STUDY_STREAM / 4);
    let grid = Grid { settings, registry, base, stream };
    let mut runs = Vec::new();
    for workload in WORKLOADS {
        grid.add(&mut runs, &workload.with_work(variant.work), &flash(), &systems)?;
    }
    Ok(runs)
}

/// The means with flash that is there to buy.
pub(super) fn study_figures(
    finished: &Finished<'_>,
    variant: Variant,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let of = |system: &str| -> Result<Vec<f64>, ReproError> {
        let all = flash().into_iter().flat_map(|named| WORKLOADS.map(|workload| (workload, named.0)));
        all.map(|(workload, technology)| speed(finished, &workload, system, technology)).collect()
    };
    let (nvmm, ssd) = (of("nvmm")?, of("ssd")?);
    let dram = vec![1.0; nvmm.len()];
    outcome.figures.set("nvmm_over_ssd.mean", variant.mean.ratio(&nvmm, &ssd));
    outcome.figures.set("dram_over_nvmm.mean", variant.mean.ratio(&dram, &nvmm));
    Ok(())
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    let base = Base::default();
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
        "Technologies",
        "Instructions per cycle of NVMM and of the SSD system over those of all-DRAM, with eight technologies. Traces \
         of the paper's programs are not to be had, so all but dd and mmap are modelled: the table says by what, and \
         from where. Programs have 64 MiB of DRAM for the paper's 32 GB and its last-level cache of 8 MB. The means \
         that claims are about are geometric, as befits ratios, over all workloads with SLC and with MLC; \
         \"of_means\" are ratios of arithmetic means instead. Every page of NVMM was written before, so a program's \
         new memory is read from flash at the first touch, as by the paper's physical memory behind a cache that \
         fetches on writes; a page table that knows better, as the paper's own could, is shown beside. The processor has no stalls but of memory, so a miss \
         weighs more than on a real one. Programs with one thread are PNum, the mixes, which are several of them, \
         and the PARSEC programs and the video server run with one; with several, the latter run with all theirs. \
         DRAM and PCM in flash's place serve pages over the same channels.",
        runs,
        evaluate,
    ))
}

/// What all runs share.
struct Grid<'a> {
    settings: &'a Settings,
    registry: &'a Arc<Registry>,
    base: &'a Base,
    /// Bytes of a stream's file.
    stream: u64,
}

impl Grid<'_> {
    /// A workload on all-DRAM and on these systems.
    fn add(
        &self,
        runs: &mut Vec<Run>,
        workload: &Workload,
        technologies: &[Named],
        systems: &[System],
    ) -> Result<(), ReproError> {
        let settings = self.settings;
        let common = workload.base(settings, self.base, self.stream);
        let program = workload.program(settings, &common);
        let setting = |name: String, machine, technology, skips_new| {
            let mut base = common.clone();
            // A file's data are in flash whatever a memory knows of itself.
            base.nvmm.populated = !(skips_new && program.backing == Backing::Swap);
            Setting { name, machine, technology, program: program.clone(), base, seed: settings.seed }
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
    finished: &Finished<'_>,
    workload: &Workload,
    system: &str,
    technology: &str,
) -> Result<f64, ReproError> {
    let time = |run: &str| finished.figure(run, "simulated_time_ns");
    Ok(time(&of_dram(workload))? / time(&name(workload, system, technology))?)
}

/// Of a system, by technology, then by workload.
fn speeds(finished: &Finished<'_>, system: &str) -> Result<Vec<Vec<f64>>, ReproError> {
    let of = |(technology, ..): &Named| {
        WORKLOADS.iter().map(|workload| speed(finished, workload, system, technology)).collect()
    };
    TECHNOLOGIES.iter().map(of).collect()
}

fn arithmetic(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of ratios: the same whichever way round they are taken.
fn geometric(values: &[f64]) -> f64 {
    arithmetic(&values.iter().map(|value| value.ln()).collect::<Vec<_>>()).exp()
}

fn evaluate(finished: &Finished<'_>) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome { tables: vec![workloads::table()], ..Outcome::default() };
    let all = SYSTEMS.iter().map(|system| speeds(finished, system.name)).collect::<Result<Vec<_>, _>>()?;
    let figures = &mut outcome.figures;
    for (system, of_system) in SYSTEMS.iter().zip(&all) {
        let system = system.name;
        for ((technology, ..), of_technology) in TECHNOLOGIES.iter().zip(of_system) {
            for (workload, speed) in WORKLOADS.iter().zip(of_technology) {
                figures.set(format!("{system}.{technology}.{}", workload.name), *speed);
            }
            figures.set(format!("{system}.{technology}.mean"), geometric(of_technology));
        }
    }
    for (nvmm, suffix) in all.iter().zip(ENDINGS) {
        let (mut of_nvmm, mut of_ssd) = (Vec::new(), Vec::new());
        for (((short, ..), nvmm), ssd) in TECHNOLOGIES.iter().zip(nvmm).zip(all.last().into_iter().flatten())
        {
            figures.set(format!("nvmm_over_ssd{suffix}.{short}.mean"), geometric(nvmm) / geometric(ssd));
            figures.set(format!("dram_over_nvmm{suffix}.{short}.mean"), 1.0 / geometric(nvmm));
            if FLASH.contains(short) {
                of_nvmm.extend(nvmm);
                of_ssd.extend(ssd);
            }
        }
        figures.set(format!("nvmm_over_ssd{suffix}.mean"), geometric(&of_nvmm) / geometric(&of_ssd));
        figures.set(format!("dram_over_nvmm{suffix}.mean"), 1.0 / geometric(&of_nvmm));
        // What the bars' own averages come to: slow workloads then hardly count.
        figures.set(format!("nvmm_over_ssd{suffix}.of_means"), arithmetic(&of_nvmm) / arithmetic(&of_ssd));
        figures.set(format!("dram_over_nvmm{suffix}.of_means"), 1.0 / arithmetic(&of_nvmm));
    }
    threads(finished, &mut outcome)?;
    charts(&all, &mut outcome);
    Ok(outcome)
}

/// NVMM with SLC under realistic programs, with one thread and with several.
fn threads(finished: &Finished<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    let figures = &mut outcome.figures;
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
            figures.set(format!("{prefix}_percent{suffix}"), best);
            figures.set(format!("{prefix}_mean_percent{suffix}"), geometric(&percents));
            for (workload, percent) in members.iter().zip(percents) {
                figures.set(format!("{prefix}.{}_percent{suffix}", workload.name), percent);
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
        about: "Instructions per cycle over all-DRAM's, geometric mean; more is better.".into(),
        drawing: drawing(bars(&geometric)),
        references: ideal(),
    });
    for (at, workload) in WORKLOADS.iter().enumerate() {
        outcome.charts.push(Chart {
            title: workload.title.into(),
            about: "Instructions per cycle over all-DRAM's; more is better.".into(),
            drawing: drawing(bars(&|values: &[f64]| values[at])),
            references: ideal(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::execute;
    use crate::store::Store;

    const QUICK: Settings = Settings { quick: true, seed: 1 };

    #[test]
    fn what_must_be_in_order_is() {
        let registry = Arc::new(Registry::builtin().unwrap());
        let experiment = experiment(&QUICK, &registry).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let runs: Vec<&Run> = experiment.runs.iter().collect();
        let results = execute(&runs, &store, 2, false, &|_| {}).unwrap();
        let outcome = experiment.outcome(&results).unwrap().expect("all runs are there");
        let figure =
            |name: String| *outcome.figures.0.get(&name).unwrap_or_else(|| panic!("no figure {name}"));
        for workload in &WORKLOADS {
            let of =
                |system: &str, technology: &str| figure(format!("{system}.{technology}.{}", workload.name));
            // NVMM's cache is all-DRAM with tags, and whatever is behind it comes on top.
            for (technology, ..) in &TECHNOLOGIES {
                let speed = of("nvmm0", technology);
                assert!(speed > 0.0 && speed < 1.0, "{}, {technology}: {speed}", workload.name);
            }
            // Only the read latency differs. Several threads meet by chance, another way each time.
            for pair in ["slc8", "slc4", "slc2", "slc"].windows(2).filter(|_| workload.threads == 1) {
                let (fast, slow) = (of("nvmm0", pair[0]), of("nvmm0", pair[1]));
                assert!(slow <= fast, "{}: {} {slow}, {} {fast}", workload.name, pair[1], pair[0]);
            }
        }
        // The mean of a ratio and of its inverse.
        for (short, ..) in &TECHNOLOGIES {
            let product =
                figure(format!("nvmm.{short}.mean")) * figure(format!("dram_over_nvmm.{short}.mean"));
            assert!((product - 1.0).abs() < 1e-9, "{short}: {product}");
        }
        for claim in super::super::CLAIMS.iter().filter(|claim| claim.experiment == "technology") {
            for name in claim.figures {
                figure((*name).into());
            }
        }
        // Reads one file from its beginning to its end, one page after the other: a page's lines cannot be asked
        // for before the window of instructions has come to them, which holds fewer lines than a page.
        let workload = WORKLOADS.iter().find(|workload| workload.name == "dd_read").unwrap();
        let run = experiment.runs.iter().find(|run| run.name == name(workload, "nvmm0", "slc")).unwrap();
        let time_us = results[&run.digest].figures.0["simulated_time_ns"] / 1e3;
        let pages = ((4 << 20) / 4096) as f64;
        let array = pages * 25.0;
        assert!(time_us >= array, "{time_us} us for {pages} reads of 25 us one after the other");
        // With bus, and each of 64 lines from DRAM by itself.
        let most = pages * (25.0 + 10.24 + 64.0 * 0.2);
        assert!(time_us <= most, "{time_us} us, {most} us with nothing at the same time");
    }
}
