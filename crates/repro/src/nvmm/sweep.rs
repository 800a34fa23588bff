//! Latency sweeps: GUPS and MMAP over the read latency of the flash, with one thread and sixteen, with and
//! without prefetch (NVMM, Latency Sensitivity).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{Base, Machine, Setting, Technology};
use super::programs;
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::curve::crossover;
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::run::Run;

/// Read latencies in microseconds; SLC is 25, MLC 75.
const LATENCIES: [f64; 7] = [1.0, 10.0, 25.0, 75.0, 150.0, 375.0, 750.0];
const THREADS: [u32; 2] = [1, 16];
const WINDOW: u32 = 16;

const MACHINES: [(&str, Machine); 3] =
    [("ssd", Machine::Ssd), ("nvmm", Machine::Nvmm(0)), ("nvmm.prefetch16", Machine::Nvmm(WINDOW))];

/// What is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Random updates of a table.
    Gups,
    /// Random reads of a mapped file.
    Mmap,
}

impl Sweep {
    fn id(self) -> &'static str {
        match self {
            Sweep::Gups => "gups",
            Sweep::Mmap => "mmap",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Sweep::Gups => "GUPS over the latency of flash",
            Sweep::Mmap => "MMAP over the latency of flash",
        }
    }

    fn name(self, machine: &str, threads: u32, read_us: f64) -> String {
        format!("{}.{machine}.t{threads}.{read_us}us", self.id())
    }

    /// The runs at these latencies.
    pub(super) fn runs(
        self,
        settings: &Settings,
        registry: &Arc<Registry>,
        base: &Base,
        latencies: &[f64],
    ) -> Result<Vec<Run>, ReproError> {
        let mut runs = Vec::new();
        for threads in THREADS {
            let program = match self {
                Sweep::Gups => programs::gups(base, threads, settings.pick(5_000, 500), settings.seed),
                Sweep::Mmap => programs::mmap(base, threads, settings.pick(10_000, 1_000), settings.seed),
            };
            for &read_us in latencies {
                for (machine, kind) in MACHINES {
                    let setting = Setting {
                        name: self.name(machine, threads, read_us),
                        machine: kind,
                        technology: Technology::with_read(read_us),
                        program: program.clone(),
                        base: base.clone(),
                        seed: settings.seed,
                    };
                    runs.push(setting.run(registry)?);
                }
            }
        }
        Ok(runs)
    }

    /// The figures that claims are about: times of the SSD system over those of NVMM.
    pub(super) fn figures(
        self,
        finished: &Finished<'_>,
        latencies: &[f64],
        outcome: &mut Outcome,
    ) -> Result<(), ReproError> {
        let id = self.id();
        for threads in THREADS {
            for &read_us in latencies {
                let time = |machine| self.time(finished, machine, threads, read_us);
                let (ssd, plain, ahead) = (time("ssd")?, time("nvmm")?, time("nvmm.prefetch16")?);
                let figures = &mut outcome.figures;
                figures.set(format!("{id}.speedup.t{threads}.{read_us}us"), ssd / plain);
                figures.set(format!("{id}.speedup.t{threads}.prefetch16.{read_us}us"), ssd / ahead);
                figures.set(format!("{id}.prefetch_gain.t{threads}.{read_us}us"), plain / ahead);
            }
        }
        Ok(())
    }

    fn time(
        self,
        finished: &Finished<'_>,
        machine: &str,
        threads: u32,
        read_us: f64,
    ) -> Result<f64, ReproError> {
        finished.figure(&self.name(machine, threads, read_us), "simulated_time_ns")
    }

    /// The experiment.
    pub(super) fn experiment(
        self,
        settings: &Settings,
        registry: &Arc<Registry>,
    ) -> Result<Experiment, ReproError> {
        let about = match self {
            Sweep::Gups => {
                "A table of 256 MiB behind 64 MiB of DRAM. The processor reorders: a thread has as many misses \
                 under way as its window and miss registers allow. A page fault waits for the loads before it."
            }
            Sweep::Mmap => {
                "A file of 256 MiB behind 64 MiB of DRAM. The paper logs beginning and end of each access, so a \
                 thread has one load under way at a time."
            }
        };
        Ok(Experiment::new(
            self.id(),
            self.title(),
            about,
            self.runs(settings, registry, &Base::default(), &LATENCIES)?,
            move |finished| self.evaluate(finished),
        ))
    }

    fn evaluate(self, finished: &Finished<'_>) -> Result<Outcome, ReproError> {
        let mut outcome = Outcome::default();
        self.figures(finished, &LATENCIES, &mut outcome)?;
        for threads in THREADS {
            let mut series = Vec::new();
            for (name, _) in MACHINES {
                let points = LATENCIES
                    .iter()
                    .map(|&read_us| Ok((read_us, self.time(finished, name, threads, read_us)? / 1e6)))
                    .collect::<Result<Vec<_>, ReproError>>()?;
                series.push(Series::new(name, points));
            }
            if let [ssd, nvmm, _] = &series[..]
                && let Some(at) =
                    crossover(&nvmm.points, &ssd.points).or(crossover(&ssd.points, &nvmm.points))
            {
                outcome.figures.set(format!("{}.crossover.t{threads}_us", self.id()), at);
            }
            outcome.charts.push(Chart {
                title: format!(
                    "{}, {threads} {}",
                    self.title(),
                    if threads == 1 { "thread" } else { "threads" }
                ),
                about: "Time of the random accesses over the array time of a read; less is better.".into(),
                drawing: Drawing::Lines {
                    x: Axis::log("read latency", "µs"),
                    y: Axis::log("time", "ms"),
                    series,
                    area: false,
                },
                references: Vec::new(),
            });
        }
        Ok(outcome)
    }
}
