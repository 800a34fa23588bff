//! dd against the prefetch window: a file is read or written from beginning to end while the flash main
//! memory prefetches (NVMM, earlier draft, section 5.3).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::SimError;
use deepram_sim::paging::Backing;
use deepram_sim::processor::{LINE_BYTES, ThreadReferences};
use deepram_trace::{MemRef, MemoryAccess};

use super::machine::{InitialDram, Machine, MachineConfig, Program, RunSpec, Technology};
use super::programs::LINE_COPY;
use crate::chart::{Axis, Chart, Drawing, Reference, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::SimulationRun;

/// Prefetched blocks. Sixteen is the largest window named in the text.
const WINDOWS: [u32; 7] = [0, 1, 2, 4, 8, 16, 32];
const NAMED: u32 = 16;
const TECHNOLOGIES: [(&str, Technology); 2] = [("slc", Technology::SLC), ("mlc", Technology::MLC_75)];
const PROGRAMS: [(&str, MemoryAccess); 2] =
    [("dd_read", MemoryAccess::Load), ("dd_write", MemoryAccess::Store)];

/// One thread goes over all data, line by line.
fn dd(base: &MachineConfig, access: MemoryAccess, line_copy: u32) -> Program {
    let data = base.data;
    let threads = move || {
        let lines = (0..data / LINE_BYTES).map(move |line| {
            let (addr, size) = (line * LINE_BYTES, LINE_BYTES as u32);
            Ok::<_, SimError>(MemRef { gap: line_copy, addr, size, access }.into())
        });
        Ok(vec![Box::new(lines) as ThreadReferences<'static>])
    };
    Program {
        text: format!("dd of {data} B, {access:?}, gap {line_copy}"),
        backing: Backing::File,
        initial: InitialDram::Empty,
        blocking: false,
        threads: Arc::new(threads),
    }
}

fn name(program: &str, technology: &str, machine: Machine) -> String {
    match machine {
        Machine::Nvmm(window) => format!("{program}.{technology}.nvmm.{window}"),
        Machine::Ssd => format!("{program}.{technology}.ssd"),
        Machine::Dram => format!("{program}.{technology}.dram"),
    }
}

/// Divisor of all capacities.
fn scale(settings: &Settings) -> u64 {
    settings.pick(16, 64)
}

fn windows(settings: &Settings) -> &'static [u32] {
    settings.pick(&WINDOWS[..], &[0, NAMED])
}

/// Builds the runs of a program on these machines with one technology and `line_copy` instructions per
/// line.
fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    (base, line_copy): (&MachineConfig, u32),
    (program, access): (&str, MemoryAccess),
    (short, technology): (&str, Technology),
    machines: impl Iterator<Item = Machine>,
) -> Result<Vec<SimulationRun>, ReproError> {
    let base = base.clone().scaled(scale(settings));
    let run = |machine| {
        let setting = RunSpec {
            name: name(program, short, machine),
            machine,
            technology,
            program: dd(&base, access, line_copy),
            base: base.clone(),
            seed: settings.seed,
        };
        setting.run(registry)
    };
    machines.map(run).collect()
}

/// Builds the runs of the sensitivity study: dd reading, MLC, the windows that count.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &MachineConfig,
    line_copy: u32,
) -> Result<Vec<SimulationRun>, ReproError> {
    let machines = counted(windows(settings)).map(Machine::Nvmm);
    runs(settings, registry, (base, line_copy), PROGRAMS[0], TECHNOLOGIES[1], machines)
}

/// Sets the metric of the claim.
pub(super) fn study_metrics(
    settings: &Settings,
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let mut least = f64::INFINITY;
    let mut none = 0.0;
    for window in counted(windows(settings)) {
        let name = name(PROGRAMS[0].0, TECHNOLOGIES[1].0, Machine::Nvmm(window));
        let time = finished.metric(&name, "simulated_time_ns")?;
        if window == 0 { none = time } else { least = least.min(time) }
    }
    outcome.metrics.set("dd_read.gain", none / least);
    Ok(())
}

/// The windows that count for the best gain, and 0.
fn counted(windows: &'static [u32]) -> impl Iterator<Item = u32> {
    windows.iter().copied().filter(|window| *window <= NAMED)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let windows = windows(settings);
    let base = MachineConfig::default();
    let mut all = Vec::new();
    for program in PROGRAMS {
        for technology in TECHNOLOGIES {
            let machines = windows.iter().map(|&window| Machine::Nvmm(window)).chain([Machine::Ssd]);
            all.extend(runs(settings, registry, (&base, LINE_COPY), program, technology, machines)?);
        }
    }
    let about = format!(
        "One thread goes once through a file larger than DRAM (768 MiB behind 512 MiB, all capacities \
         divided by {}), of which nothing is in DRAM, line by line, with {LINE_COPY} instructions per line \
         (assumed: eight loads and eight stores that copy it). On a miss NVMM prefetches the next blocks of 4 KiB; a \
         store to a block that is not cached reads it first. The SSD system uses Linux's readahead and is \
         shown for comparison. Only windows up to sixteen count for the best gain, because the text names \
         no larger one.",
        scale(settings),
    );
    Ok(Experiment::new("prefetch", "dd with prefetching", about, all, move |finished| {
        evaluate(finished, windows)
    }))
}

fn evaluate(finished: &FinishedRuns<'_>, windows: &[u32]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    for (program, _) in PROGRAMS {
        let mut series = Vec::new();
        for (technology, _) in TECHNOLOGIES {
            let time = |machine| finished.metric(&name(program, technology, machine), "simulated_time_ns");
            let none = time(Machine::Nvmm(0))?;
            let gains = windows
                .iter()
                .map(|&window| Ok((window, none / time(Machine::Nvmm(window))?)))
                .collect::<Result<Vec<_>, ReproError>>()?;
            // The claims are about MLC.
            let prefix = if technology == "mlc" { program.into() } else { format!("{program}.{technology}") };
            let metrics = &mut outcome.metrics;
            for &(window, gain) in gains.iter().filter(|(window, _)| *window > 0) {
                metrics.set(format!("{prefix}.gain{window}"), gain);
            }
            let allowed = gains.iter().filter(|(window, _)| (1..=NAMED).contains(window));
            metrics.set(format!("{prefix}.gain"), allowed.map(|(_, gain)| *gain).fold(0.0, f64::max));
            metrics.set(format!("{prefix}.ssd_gain"), none / time(Machine::Ssd)?);
            let points = gains.iter().map(|&(window, gain)| (f64::from(window), gain)).collect();
            series.push(Series::new(&technology.to_uppercase(), points));
        }
        let paper = if program == "dd_read" { 6.0 } else { 3.0 };
        outcome.charts.push(Chart {
            title: format!("Speedup by prefetching, {program}"),
            about: "Time without prefetching over time with it; more is better.".into(),
            drawing: Drawing::Lines {
                x: Axis::linear("prefetched blocks", ""),
                y: Axis::linear("speedup", ""),
                series,
                area: false,
            },
            references: vec![Reference { name: "paper, MLC".into(), value: paper }],
        });
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_read_once_and_each_window_is_one_miss() {
        let registry = Arc::new(Registry::builtin().unwrap());
        let experiment = experiment(&Settings { quick: true, seed: 3 }, &registry).unwrap();
        let blocks = f64::from((12 << 20) / 4096);
        for (program, _) in PROGRAMS {
            for window in [0, NAMED] {
                let name = name(program, "mlc", Machine::Nvmm(window));
                let run = experiment.runs.iter().find(|run| run.name == name).unwrap();
                let metrics = run.execute().unwrap().0;
                let ahead = f64::from(window);
                let misses = (blocks / (1.0 + ahead)).ceil();
                let reads = metrics["flash.reads"];
                assert!(
                    (blocks..=blocks + ahead).contains(&reads),
                    "{name}: {reads} reads of {blocks} blocks"
                );
                assert_eq!(metrics["counters.misses"], misses, "{name}");
                // The last read of a window is so far from the next miss that misses never overlap.
                let least = misses * 75e3;
                assert!(metrics["simulated_time_ns"] >= least, "{name}");
            }
        }
    }
}
