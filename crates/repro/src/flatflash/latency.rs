//! Latency of 64-byte random and sequential accesses against the size of the drive (FlatFlash, section
//! 5.1 and Figure 8).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::processor::LINE_BYTES;
use deepram_trace::Request;
use deepram_trace::workload::{Permutation, Rng};

use super::machine::{BaselineRatios, DRAM, GIB, MACHINES, RunContext, RunSpec, each, load, store, words};
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::{Metrics, SimulationRun};

/// Lines of a page.
const LINES: u64 = 4096 / LINE_BYTES;
/// Pages in use.
const PAGES: u64 = 2_000_000;
/// Drive sizes, 32 GB to 1 TB.
const DRIVES: [u64; 6] = [32 * GIB, 64 * GIB, 128 * GIB, 256 * GIB, 512 * GIB, 1024 * GIB];
/// Divisor of the paper's sizes.
pub(super) const SCALE: u64 = 64;
/// Drive sizes in the sensitivity study.
const ENDS: [u64; 2] = [32 * GIB, 1024 * GIB];
pub(super) const PATTERNS: [&str; 2] = ["random", "sequential"];

/// Accesses before the measured ones. The paper says only that the pages are accessed at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WarmUp {
    /// Every page once, in random order, line by line.
    Pages,
    /// As many random lines as there are pages, and in front of the sequential pass another one.
    Lines,
}

/// Size of the simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    drives: &'static [u64],
    /// Drives that are also measured with the warm-up by lines.
    by_lines: &'static [u64],
    scale: u64,
    /// Share of stores among the accesses.
    pub(super) stores: f64,
    pub(super) warm_up: WarmUp,
}

impl Extent {
    fn new(settings: &Settings) -> Self {
        let small = Self { by_lines: &ENDS, ..Self::for_sensitivity() };
        settings.pick(Self { drives: &DRIVES, scale: SCALE, ..small }, small)
    }

    /// The size used by the sensitivity study.
    pub(super) fn for_sensitivity() -> Self {
        Self { drives: &ENDS, by_lines: &[], scale: 512, stores: 0.0, warm_up: WarmUp::Pages }
    }

    /// The largest drive alone.
    #[cfg(test)]
    pub(super) fn of_largest(scale: u64) -> Self {
        Self { drives: &DRIVES[5..], by_lines: &[], scale, stores: 0.0, warm_up: WarmUp::Pages }
    }

    /// Warm-up and drives of the points that are simulated, with the prefix of their metrics.
    fn parts(&self) -> [(&'static str, WarmUp, &'static [u64]); 2] {
        [("", self.warm_up, self.drives), ("lines.", WarmUp::Lines, self.by_lines)]
    }
}

fn name(prefix: &str, pattern: &str, machine: &str, drive: u64) -> String {
    format!("{prefix}{pattern}.{machine}.{}gib", drive / GIB)
}

/// The name of a run on the largest drive.
pub(super) fn largest(pattern: &str, machine: &str) -> String {
    name("", pattern, machine, DRIVES[5])
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

/// One pass over the pages in use, and the accesses in front of it.
#[derive(Debug, Clone, Copy)]
struct Pass {
    pages: u64,
    /// Pages of the drive per page in use.
    share: u64,
    random: bool,
    warm_up: WarmUp,
    stores: f64,
    seed: u64,
}

impl Pass {
    fn lines(&self) -> u64 {
        self.pages * LINES
    }

    fn warm_up(&self) -> u64 {
        match self.warm_up {
            WarmUp::Pages => self.lines(),
            WarmUp::Lines if self.random => self.pages,
            WarmUp::Lines => self.pages + self.lines(),
        }
    }

    fn requests(self) -> impl Iterator<Item = Request> {
        let Self { pages, share, random, stores, .. } = self;
        let mut draw = Rng::new(self.seed, "latency");
        let spread = Spread { share, key: draw.below(u64::MAX) };
        let order = Permutation::new(pages, draw.below(u64::MAX));
        let (warm_up, lines) = (self.warm_up(), self.lines());
        (0..warm_up + lines).map(move |number| {
            let (page, line) = if number < warm_up && self.warm_up == WarmUp::Pages {
                (order.at(number / LINES), number % LINES)
            } else if random || number < warm_up.saturating_sub(lines) {
                (draw.below(pages), draw.below(LINES))
            } else {
                let at = (number + lines - warm_up) % lines;
                (at / LINES, at % LINES)
            };
            let place = spread.line(page, line);
            let stored = stores > 0.0 && draw.unit() < stores;
            if stored { store(place, LINE_BYTES) } else { load(place, LINE_BYTES) }
        })
    }
}

/// Builds the runs.
pub(super) fn runs(context: RunContext<'_>, extent: Extent) -> Result<Vec<SimulationRun>, ReproError> {
    let pages = PAGES / extent.scale;
    let mut runs = Vec::new();
    for (prefix, warm_up, drives) in extent.parts() {
        for &drive in drives {
            let share = drive / extent.scale / 4096 / pages;
            for pattern in PATTERNS {
                let random = pattern == PATTERNS[0];
                let (stores, seed) = (extent.stores, context.settings.seed);
                let pass = Pass { pages, share, random, warm_up, stores, seed };
                for &(machine, kind) in context.machines {
                    let setting = RunSpec {
                        name: name(prefix, pattern, machine, drive),
                        machine: kind,
                        drive,
                        dram: DRAM,
                        scale: extent.scale,
                        threads: 1,
                        warm_up: pass.warm_up(),
                        base: context.base,
                        seed,
                    };
                    let data = pages * share * 4096;
                    let what = format!("{pass:?}");
                    runs.push(setting.run(context.registry, &what, data, move || pass.requests())?);
                }
            }
        }
    }
    Ok(runs)
}

/// Sets the metrics of the claims: latencies of the baselines over FlatFlash's.
pub(super) fn metrics(finished: &FinishedRuns<'_>, extent: Extent) -> Result<Metrics, ReproError> {
    let mut metrics = Metrics::new();
    for (prefix, _, drives) in extent.parts().into_iter().filter(|(.., drives)| !drives.is_empty()) {
        for pattern in PATTERNS {
            let mut over = BaselineRatios::default();
            for &drive in drives {
                over.push(each(finished, "latency.mean_ns", |machine| {
                    name(prefix, pattern, machine, drive)
                })?);
            }
            over.set(&mut metrics, &format!("{prefix}{pattern}"));
        }
    }
    Ok(metrics)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(RunContext::plain(settings, registry), extent)?;
    let about = format!(
        "{} pages, spread evenly over the whole drive, behind {} of DRAM: the paper's sizes over {}. Each          page is visited once, in random order and line by line, to warm up. One thread then loads 64 bytes          at a time, each load after the one before is complete, for one whole pass: as many loads as the          pages have lines, at random or page by page and line by line. The paper mentions reads and writes          but gives one value; we measure loads, and the sensitivity study includes stores. A second reading          of the paper's warm-up accesses one line of a random page at a time; its sequential pass is the          second one.",
        PAGES / extent.scale,
        words(DRAM / extent.scale),
        extent.scale,
    );
    Ok(Experiment::new("latency", "Latency of 64 bytes", about, runs, move |finished| {
        let mut outcome = Outcome { metrics: metrics(finished, extent)?, ..Outcome::default() };
        for pattern in PATTERNS {
            let mut series = MACHINES.map(|(machine, _)| Series::new(machine, Vec::new()));
            for &drive in extent.drives {
                let means = each(finished, "latency.mean_ns", |machine| name("", pattern, machine, drive))?;
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
        outcome.tables.push(warm_ups(finished, extent)?);
        Ok(outcome)
    }))
}

/// Latencies with both readings of the warm-up.
fn warm_ups(finished: &FinishedRuns<'_>, extent: Extent) -> Result<Table, ReproError> {
    let mut rows = Vec::new();
    for &drive in extent.by_lines {
        for pattern in PATTERNS {
            for (prefix, warm_up) in [("", "whole pages"), ("lines.", "single lines")] {
                let means =
                    each(finished, "latency.mean_ns", |machine| name(prefix, pattern, machine, drive))?;
                let mut row = vec![format!("{}, {pattern}, {warm_up}", words(drive))];
                row.extend(means.iter().map(|mean| plain(mean / 1e3)));
                row.extend(means[1..].iter().map(|mean| plain(mean / means[0])));
                rows.push(row);
            }
        }
    }
    let headings = [
        "drive, accesses, warm-up",
        "flatflash, µs",
        "unified, µs",
        "stack, µs",
        "over unified",
        "over stack",
    ];
    Ok(Table { title: "Two warm-ups".into(), headings: headings.map(String::from).to_vec(), rows })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use deepram_trace::Op;

    use super::*;

    const PASS: Pass =
        Pass { pages: 1000, share: 7, random: true, warm_up: WarmUp::Pages, stores: 0.0, seed: 3 };

    fn lines_of(requests: &[Request]) -> BTreeSet<u64> {
        requests.iter().map(|request| request.offset / LINE_BYTES).collect()
    }

    #[test]
    fn the_warm_up_by_pages_visits_every_line_once_page_by_page() {
        for random in [true, false] {
            let pass = Pass { random, ..PASS };
            let all: Vec<Request> = pass.requests().collect();
            let (before, measured) = all.split_at(pass.warm_up() as usize);
            assert_eq!((before.len(), measured.len()), (64_000, 64_000));
            assert_eq!(lines_of(before).len(), 64_000);
            for visit in before.chunks(64) {
                assert!(visit.windows(2).all(|pair| pair[1].offset == pair[0].offset + 64));
            }
            let pages: Vec<u64> = before.iter().step_by(64).map(|request| request.offset / 4096).collect();
            let rising = pages.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!((400..600).contains(&rising), "{rising} of 999 steps go up: not at random (seed 3)");
            // Each page lies in its own share of the drive.
            let shares: BTreeSet<u64> = pages.iter().map(|page| page / PASS.share).collect();
            assert_eq!((shares.len(), shares.last()), (1000, Some(&999)));
        }
    }

    #[test]
    fn a_sequential_pass_visits_the_lines_in_order_and_a_random_one_does_not() {
        for warm_up in [WarmUp::Pages, WarmUp::Lines] {
            for random in [true, false] {
                let pass = Pass { random, warm_up, ..PASS };
                let measured: Vec<Request> = pass.requests().skip(pass.warm_up() as usize).collect();
                let next = |pair: &[Request]| pair[1].offset == pair[0].offset + 64;
                if random {
                    let next = measured.windows(2).filter(|pair| next(pair)).count();
                    assert!(next < 200, "{next} (seed 3)");
                } else {
                    assert!(measured.chunks(64).all(|page| page.windows(2).all(next)));
                    assert!(measured.windows(2).all(|pair| pair[0].offset < pair[1].offset));
                }
            }
        }
    }

    #[test]
    fn the_warm_up_by_lines_accesses_as_many_random_lines_as_pages_and_passes_once_if_sequential() {
        let random = Pass { warm_up: WarmUp::Lines, ..PASS };
        let sequential = Pass { random: false, ..random };
        let before = |pass: Pass| pass.requests().take(pass.warm_up() as usize).collect::<Vec<_>>();
        assert_eq!(before(random).len(), 1000);
        let all = before(sequential);
        assert_eq!(all[..1000], before(random));
        let pass: Vec<Request> = sequential.requests().skip(65_000).collect();
        assert_eq!(all[1000..], pass);
    }

    #[test]
    fn the_share_of_stores_is_as_asked_for() {
        let stores =
            Pass { stores: 0.5, ..PASS }.requests().filter(|request| request.op == Op::Write).count();
        assert!((63_000..65_000).contains(&stores), "{stores} of 128000 (seed 3)");
    }
}
