//! Latency of 64-byte random and sequential accesses against the size of the drive (FlatFlash, section
//! 5.1 and Figure 8).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::processor::LINE_BYTES;
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

use super::machine::{BaselineRatios, DRAM, GIB, MACHINES, RunContext, RunSpec, each, load, words};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::{Metrics, SimulationRun};

/// Pages in use.
const PAGES: u64 = 2_000_000;
/// Drive sizes, 32 GB to 1 TB.
const DRIVES: [u64; 6] = [32 * GIB, 64 * GIB, 128 * GIB, 256 * GIB, 512 * GIB, 1024 * GIB];
/// Drive sizes in the sensitivity study.
const ENDS: [u64; 2] = [32 * GIB, 1024 * GIB];
const PATTERNS: [&str; 2] = ["random", "sequential"];

/// Size of the simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    drives: &'static [u64],
    scale: u64,
    /// Number of measured accesses.
    accesses: u64,
    /// Share of stores among the accesses.
    pub(super) stores: f64,
}

impl Extent {
    fn new(settings: &Settings) -> Self {
        let (drives, scale) = settings.pick((&DRIVES[..], 8), (&ENDS[..], 256));
        Self { drives, scale, accesses: settings.pick(100_000, 3_000), stores: 0.0 }
    }

    /// The size used by the sensitivity study.
    pub(super) fn for_sensitivity(settings: &Settings) -> Self {
        let (scale, accesses) = settings.pick((32, 20_000), (256, 3_000));
        Self { drives: &ENDS, scale, accesses, stores: 0.0 }
    }
}

fn name(pattern: &str, machine: &str, drive: u64) -> String {
    format!("{pattern}.{machine}.{}gib", drive / GIB)
}

/// Addresses of pages spread evenly over the drive, each at a random position within its share.
#[derive(Debug, Clone, Copy)]
struct Spread {
    /// Pages of the drive per page in use.
    share: u64,
    key: u64,
}

impl Spread {
    fn line(self, page: u64, line: u64) -> u64 {
        // The upper half of the product is mixed well enough for a position within a few pages.
        let mixed = (page ^ self.key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (page * self.share + mixed % self.share) * 4096 + line * LINE_BYTES
    }
}

/// Requests: one random access per page in use on average, then the measured accesses.
fn requests(
    pages: u64,
    share: u64,
    random: bool,
    extent: Extent,
    seed: u64,
) -> impl Iterator<Item = Request> {
    let mut draw = Rng::new(seed, "latency");
    let spread = Spread { share, key: draw.below(u64::MAX) };
    let lines = 4096 / LINE_BYTES;
    (0..pages + extent.accesses).map(move |number| {
        let place = match number.checked_sub(pages) {
            Some(at) if !random => spread.line(at / lines % pages, at % lines),
            _ => spread.line(draw.below(pages), draw.below(lines)),
        };
        let store = extent.stores > 0.0 && draw.unit() < extent.stores;
        Request { op: if store { Op::Write } else { Op::Read }, ..load(place, LINE_BYTES) }
    })
}

/// Builds the runs.
pub(super) fn runs(context: RunContext<'_>, extent: Extent) -> Result<Vec<SimulationRun>, ReproError> {
    let (pages, seed) = (PAGES / extent.scale, context.settings.seed);
    let mut runs = Vec::new();
    for &drive in extent.drives {
        let share = drive / extent.scale / 4096 / pages;
        for pattern in PATTERNS {
            for &(machine, kind) in context.machines {
                let setting = RunSpec {
                    name: name(pattern, machine, drive),
                    machine: kind,
                    drive,
                    dram: DRAM,
                    scale: extent.scale,
                    threads: 1,
                    warm_up: pages,
                    base: context.base,
                    seed,
                };
                let random = pattern == PATTERNS[0];
                let what = format!("{pattern}: {pages} pages of {share} each, {extent:?}");
                let data = pages * share * 4096;
                runs.push(setting.run(context.registry, &what, data, move || {
                    requests(pages, share, random, extent, seed)
                })?);
            }
        }
    }
    Ok(runs)
}

/// Sets the metrics of the claims: latencies of the baselines over FlatFlash's.
pub(super) fn metrics(finished: &FinishedRuns<'_>, extent: Extent) -> Result<Metrics, ReproError> {
    let mut metrics = Metrics::new();
    for pattern in PATTERNS {
        let mut over = BaselineRatios::default();
        for &drive in extent.drives {
            over.push(each(finished, "latency.mean_ns", |machine| name(pattern, machine, drive))?);
        }
        over.set(&mut metrics, pattern);
    }
    Ok(metrics)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(RunContext::plain(settings, registry), extent)?;
    let about = format!(
        "{} pages, spread evenly over the whole drive, behind {} of DRAM. As many random accesses as there \
         are pages warm up the caches. One thread loads 64 bytes at a time, each load after the one before \
         is complete. The paper mentions reads and writes but gives one value; we measure loads, and the \
         sensitivity study includes stores. Sequential loads go through the file page by page and line by \
         line.",
        PAGES / extent.scale,
        words(DRAM / extent.scale),
    );
    Ok(Experiment::new("latency", "Latency of 64 bytes", about, runs, move |finished| {
        let mut outcome = Outcome { metrics: metrics(finished, extent)?, ..Outcome::default() };
        for pattern in PATTERNS {
            let mut series = MACHINES.map(|(machine, _)| Series::new(machine, Vec::new()));
            for &drive in extent.drives {
                let means = each(finished, "latency.mean_ns", |machine| name(pattern, machine, drive))?;
                for (series, mean) in series.iter_mut().zip(means) {
                    series.points.push(((drive / GIB) as f64, mean / 1e3));
                }
            }
            outcome.charts.push(Chart {
                title: format!("Latency of 64 bytes, {pattern}"),
                about: "Mean over all loads, hits in the processor's cache included; less is better.".into(),
                drawing: Drawing::Lines {
                    x: Axis::log("size of the drive", "GiB"),
                    y: Axis::linear("latency", "µs"),
                    series: series.into(),
                    area: false,
                },
                references: Vec::new(),
            });
        }
        Ok(outcome)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_spread_evenly_and_sequences_go_line_by_line() {
        let extent = Extent { drives: &ENDS, scale: 1, accesses: 200, stores: 0.0 };
        let (pages, share) = (1000, 7);
        for random in [true, false] {
            let all: Vec<Request> = requests(pages, share, random, extent, 3).collect();
            assert_eq!(all.len(), 1200);
            let used: std::collections::BTreeSet<u64> = all.iter().map(|r| r.offset / 4096).collect();
            // One page per share: two pages in one share would have the same number.
            let shares: std::collections::BTreeSet<u64> = used.iter().map(|page| page / share).collect();
            assert_eq!(used.len(), shares.len());
            assert!(shares.last().is_some_and(|last| *last < pages) && shares.len() > 500);
            let measured = &all[1000..];
            let next = measured.windows(2).filter(|pair| pair[1].offset == pair[0].offset + 64).count();
            if random { assert!(next < 5) } else { assert_eq!(next, 199 - 3) }
        }
        let half = Extent { stores: 0.5, ..extent };
        let stores = requests(pages, share, true, half, 3).filter(|r| r.op == Op::Write).count();
        assert!((500..700).contains(&stores), "{stores} of 1200 (seed 3)");
    }
}
