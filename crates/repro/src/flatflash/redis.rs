//! A key-value store under YCSB B and D over the size of the working set: mean latency, tail, pages moved (FlatFlash,
//! section 5.4, Figures 11 and 12).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{Bench, DRAM, GIB, MACHINES, Over, SLOWED, Setting, each, slowdown, totals, words};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::run::{Figures, Run};

const WORKLOADS: [&str; 2] = ["ycsb-b", "ycsb-d"];
/// Bytes of a pair.
const PAIR: u64 = 64;
/// Clients, which ask one thing at a time each.
const CLIENTS: u32 = 16;
/// 256 times the DRAM.
const DRIVE: u64 = 512 * GIB;
/// The working set as multiples of DRAM. The paper names the last.
const SETS: [u64; 5] = [1, 2, 4, 8, 16];
const ENDS: [u64; 2] = [1, 16];
const NAMED: u64 = 16;
/// Operations of a workload.
const OPERATIONS: u64 = 64_000_000;

/// How much is simulated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    sets: &'static [u64],
    scale: u64,
    pub(super) threads: u32,
    pub(super) theta: f64,
}

impl Extent {
    fn new(settings: &Settings) -> Self {
        let study = Self::study(settings);
        let full = Self { sets: &SETS, scale: 64, ..study };
        settings.pick(full, study)
    }

    /// What the study runs.
    pub(super) fn study(settings: &Settings) -> Self {
        Self { sets: &ENDS, scale: settings.pick(512, 8192), threads: CLIENTS, theta: 0.99 }
    }

    /// Operations that are measured, after as many others: with them as many for each page of DRAM as in the paper.
    fn operations(&self) -> u64 {
        OPERATIONS / 2 / self.scale
    }
}

fn name(workload: &str, machine: &str, set: u64) -> String {
    format!("{workload}.{machine}.{set}x")
}

/// The runs.
pub(super) fn runs(bench: Bench<'_>, extent: Extent) -> Result<Vec<Run>, ReproError> {
    let mut runs = Vec::new();
    for workload in WORKLOADS {
        for &set in extent.sets {
            let records = set * DRAM / extent.scale / PAIR;
            // No operation inserts more than one.
            let bytes = (records + 2 * extent.operations()) * PAIR;
            let spec = format!(
                "{workload}:records={records},record={PAIR}B,field={PAIR}B,request=zipfian,theta={},count={}",
                extent.theta,
                2 * extent.operations(),
            );
            for &(machine, kind) in bench.machines {
                let setting = Setting {
                    name: name(workload, machine, set),
                    machine: kind,
                    drive: DRIVE,
                    dram: DRAM,
                    scale: extent.scale,
                    threads: extent.threads,
                    warm_up: extent.operations(),
                    base: bench.base,
                    seed: bench.settings.seed,
                };
                runs.push(setting.workload(bench.registry, &spec, bytes)?);
            }
        }
    }
    Ok(runs)
}

/// How many times as long as with DRAM alone, of one workload.
pub(super) fn slowed(finished: &Finished<'_>, extent: Extent, workload: &str) -> Result<f64, ReproError> {
    slowdown(finished, extent.sets.iter().map(|&set| SLOWED.map(|(machine, _)| name(workload, machine, set))))
}

/// Figures of the two measures of latency.
const LATENCIES: [(&str, &str); 2] = [("mean", "latency.mean_ns"), ("p99", "latency.p99_ns")];

/// The figures of claims: latencies, page movements and pages programmed of the baselines over FlatFlash's.
pub(super) fn figures(finished: &Finished<'_>, extent: Extent) -> Result<Figures, ReproError> {
    let mut figures = Figures::new();
    let mut both = LATENCIES.map(|_| Over::default());
    for workload in WORKLOADS {
        for (measure, (what, figure)) in LATENCIES.iter().enumerate() {
            let mut over = Over::default();
            for &set in extent.sets {
                let values = each(finished, figure, |machine| name(workload, machine, set))?;
                over.push(values);
                both[measure].push(values);
            }
            over.set(&mut figures, &format!("{workload}.{what}"));
        }
        let of = |figure, set| each(finished, figure, |machine| name(workload, machine, set));
        let programs: Vec<_> =
            extent.sets.iter().map(|&set| of("flash.programs", set)).collect::<Result<_, _>>()?;
        totals(&mut figures, &format!("{workload}.programs"), &programs);
        let moved = of("counters.page_movements", NAMED)?;
        totals(&mut figures, &format!("{workload}.moved.x{NAMED}"), &[moved]);
    }
    for (over, (what, _)) in both.iter().zip(LATENCIES) {
        over.set(&mut figures, &format!("redis.{what}"));
    }
    Ok(figures)
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(Bench::plain(settings, registry), extent)?;
    let about = format!(
        "Not Redis: {CLIENTS} clients read, overwrite (B) or insert (D) pairs of {PAIR} bytes that lie in pages, without \
         the store's index, its own work and the network, so that latency is that of the memory. Keys are Zipfian in both \
         workloads, as the paper says; the public D asks for the latest. {} of DRAM, a drive of 256 times as much. \
         {} operations are measured after as many others: the paper's 64 million, scaled with the sizes.",
        words(DRAM / extent.scale),
        extent.operations(),
    );
    Ok(Experiment::new("redis", "Key-value store", about, runs, move |finished| {
        let mut outcome = Outcome { figures: figures(finished, extent)?, ..Outcome::default() };
        for workload in WORKLOADS {
            for (what, figure, unit, divisor) in [
                ("Mean latency", "latency.mean_ns", "µs", 1e3),
                ("99th percentile", "latency.p99_ns", "µs", 1e3),
                (
                    "Pages moved for a thousand operations",
                    "counters.page_movements",
                    "",
                    extent.operations() as f64 / 1e3,
                ),
            ] {
                let title = format!("{what}, {workload}");
                outcome.charts.push(chart(finished, workload, extent, &title, (figure, unit, divisor))?);
            }
        }
        Ok(outcome)
    }))
}

fn chart(
    finished: &Finished<'_>,
    workload: &str,
    extent: Extent,
    title: &str,
    (figure, unit, divisor): (&str, &str, f64),
) -> Result<Chart, ReproError> {
    let mut series = MACHINES.map(|(machine, _)| Series::new(machine, Vec::new()));
    for &set in extent.sets {
        let values = each(finished, figure, |machine| name(workload, machine, set))?;
        for (series, value) in series.iter_mut().zip(values) {
            series.points.push((set as f64, value / divisor));
        }
    }
    Ok(Chart {
        title: title.into(),
        about: "Over the size of the working set; less is better.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("working set over DRAM", ""),
            y: Axis::linear(title.split(',').next().unwrap_or(title), unit),
            series: series.into(),
            area: false,
        },
        references: Vec::new(),
    })
}
