//! Latency sweeps: GUPS and MMAP against the read latency of the flash, with one thread and sixteen,
//! with and without prefetching (NVMM, Latency Sensitivity).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{Machine, MachineConfig, RunSpec, Technology};
use super::programs;
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::SimulationRun;
use crate::statistics::crossover;

/// Read latencies in microseconds; SLC is 25, MLC 75.
const LATENCIES: [f64; 7] = [1.0, 10.0, 25.0, 75.0, 150.0, 375.0, 750.0];
const THREADS: [u32; 2] = [1, 16];
const WINDOW: u32 = 16;

const MACHINES: [(&str, Machine); 3] =
    [("ssd", Machine::Ssd), ("nvmm", Machine::Nvmm(0)), ("nvmm.prefetch16", Machine::Nvmm(WINDOW))];

/// The swept program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LatencySweep {
    /// Random updates of a table.
    Gups,
    /// Random reads of a mapped file.
    Mmap,
}

impl LatencySweep {
    fn id(self) -> &'static str {
        match self {
            LatencySweep::Gups => "gups",
            LatencySweep::Mmap => "mmap",
        }
    }

    fn title(self) -> &'static str {
        match self {
            LatencySweep::Gups => "GUPS by flash read latency",
            LatencySweep::Mmap => "MMAP by flash read latency",
        }
    }

    fn name(self, machine: &str, threads: u32, read_us: f64) -> String {
        format!("{}.{machine}.t{threads}.{read_us}us", self.id())
    }

    /// Builds the runs at these latencies.
    pub(super) fn runs(
        self,
        settings: &Settings,
        registry: &Arc<Registry>,
        base: &MachineConfig,
        latencies: &[f64],
    ) -> Result<Vec<SimulationRun>, ReproError> {
        let mut runs = Vec::new();
        for threads in THREADS {
            let base = &base.clone().with_cores(threads);
            let (times, seed) = (if base.each { u64::from(threads) } else { 1 }, settings.seed);
            let program = match self {
                LatencySweep::Gups => programs::gups(base, threads, times * settings.pick(5_000, 500), seed),
                LatencySweep::Mmap => {
                    programs::mmap(base, threads, times * settings.pick(10_000, 1_000), seed)
                }
            };
            for &read_us in latencies {
                for (machine, kind) in MACHINES {
                    let setting = RunSpec {
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

    /// Sets the metrics of the claims: times of the SSD system over those of NVMM.
    pub(super) fn metrics(
        self,
        finished: &FinishedRuns<'_>,
        latencies: &[f64],
        outcome: &mut Outcome,
    ) -> Result<(), ReproError> {
        let id = self.id();
        for threads in THREADS {
            for &read_us in latencies {
                let time = |machine| self.time(finished, machine, threads, read_us);
                let (ssd, plain, ahead) = (time("ssd")?, time("nvmm")?, time("nvmm.prefetch16")?);
                let metrics = &mut outcome.metrics;
                metrics.set(format!("{id}.speedup.t{threads}.{read_us}us"), ssd / plain);
                metrics.set(format!("{id}.speedup.t{threads}.prefetch16.{read_us}us"), ssd / ahead);
                metrics.set(format!("{id}.prefetch_gain.t{threads}.{read_us}us"), plain / ahead);
            }
        }
        Ok(())
    }

    fn time(
        self,
        finished: &FinishedRuns<'_>,
        machine: &str,
        threads: u32,
        read_us: f64,
    ) -> Result<f64, ReproError> {
        finished.metric(&self.name(machine, threads, read_us), "simulated_time_ns")
    }

    /// Builds the experiment.
    pub(super) fn experiment(
        self,
        settings: &Settings,
        registry: &Arc<Registry>,
    ) -> Result<Experiment, ReproError> {
        let about = match self {
            LatencySweep::Gups => {
                "5000 updates of a table of 768 MiB behind 512 MiB of DRAM and 8 MiB of last-level cache. \
                 The sizes are not scaled, because the number of updates is absolute; the table's is \
                 calibrated on the gain by prefetching with one thread. DRAM begins full of other, clean \
                 data on both systems: the traffic is reads, as the draft says. Sixteen threads have sixteen cores \
                 (inferred: threads that stall become faster with their number). The read time alone is \
                 swept; programs take MLC's time. The processor executes out of order: a thread has as many \
                 outstanding misses as its instruction window and miss registers allow. A page fault waits \
                 for earlier loads."
            }
            LatencySweep::Mmap => {
                "10,000 reads of a file of 768 MiB behind 512 MiB of DRAM. Sizes, initial state, cores and \
                 the sweep are those of GUPS. The paper logs the beginning and the end of each access, so a \
                 thread has one outstanding load at a time."
            }
        };
        Ok(Experiment::new(
            self.id(),
            self.title(),
            about,
            self.runs(settings, registry, &MachineConfig::default(), &LATENCIES)?,
            move |finished| self.evaluate(finished),
        ))
    }

    fn evaluate(self, finished: &FinishedRuns<'_>) -> Result<Outcome, ReproError> {
        let mut outcome = Outcome::default();
        self.metrics(finished, &LATENCIES, &mut outcome)?;
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
                outcome.metrics.set(format!("{}.crossover.t{threads}_us", self.id()), at);
            }
            outcome.charts.push(Chart {
                title: format!(
                    "{}, {threads} {}",
                    self.title(),
                    if threads == 1 { "thread" } else { "threads" }
                ),
                about: "Time of the random accesses by array read time; less is better.".into(),
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
