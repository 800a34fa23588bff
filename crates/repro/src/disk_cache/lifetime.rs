//! Accesses until all flash has failed, by controller (Figure 10), and the latency of reads meanwhile. Without time.

use std::sync::Arc;

use deepram_media::{DiskCacheServer, Registry};
use deepram_sim::SimError;
use serde_json::json;

use super::untimed::{UntimedCounts, UntimedServer};
use super::{SERVER, server};
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::{Metrics, SimulationRun};

const PROCEDURE: &str = "disk-cache lifetime";
/// Workloads: name and generator, over twice the flash.
const WORKLOADS: [(&str, &str); 5] = [
    ("uniform", "uniform:span=32MiB,read=0.5,size=2KiB"),
    ("exponential", "exponential:span=32MiB,read=0.5,size=2KiB"),
    ("zipf-0.8", "zipf:theta=0.8,span=32MiB,read=0.5,size=2KiB"),
    ("zipf-1.2", "zipf:theta=1.2,span=32MiB,read=0.5,size=2KiB"),
    ("zipf-1.2-reads", "zipf:theta=1.2,span=32MiB,read=0.8,size=2KiB"),
];
/// Controllers: name and settings. The first is the programmable one, the second the paper's comparison.
const CONTROLLERS: [(&str, &[&str]); 4] = [
    ("programmable", &[]),
    ("bch1", &["controller=fixed", "strength=1"]),
    ("bch12", &["controller=fixed", "strength=12"]),
    ("bch1-slc", &["controller=fixed", "strength=1", "density=slc"]),
];
/// Deviation of the endurance of pages, percent of the mean, in Figure 10 and all experiments but that on deviations.
const DEVIATION: u32 = 10;
/// Accesses between two passes over dirty pages of DRAM, and of flash.
const PERIODS: (u64, u64) = (1 << 12, 1 << 16);
/// Accesses of one part of the workload; parts have seeds of their own.
const PART: u64 = 1 << 20;
/// Accesses between two records of the counters.
const RECORD: u64 = 1 << 12;
/// Parts of a life whose latency is reported.
pub(super) const PARTS: usize = 10;
/// No flash of these sizes lives longer.
const MOST: u64 = 1 << 34;
/// How much faster than rated cells wear, and how much smaller than 1 GiB the flash is.
const SCALES: (u64, u64) = (400, 64);
/// The lifetime that the paper's example has with a code of one bit, years.
const EXAMPLE_YEARS: f64 = 0.5;
const SECONDS_A_YEAR: f64 = 365.25 * 86_400.0;

/// Runs a workload until the flash is dead.
fn live(
    server: &DiskCacheServer,
    workload: &str,
    periods: (u64, u64),
    seed: u64,
) -> Result<Metrics, SimError> {
    let mut untimed = UntimedServer::new(server, seed, periods)?;
    let first = untimed.cache().flash().capacity_pages();
    let mut half = 0;
    let mut records = vec![UntimedCounts::default()];
    let spec = format!("{workload},count={PART}");
    let mut part = 0;
    while !untimed.cache().flash().is_dead() && untimed.counts().accesses() < MOST {
        part += 1;
        untimed.run(&spec, seed.wrapping_add(part), |now| {
            let counts = now.counts();
            if counts.accesses().is_multiple_of(RECORD) {
                records.push(counts);
                if half == 0 && now.cache().flash().capacity_pages() * 2 <= first {
                    half = counts.accesses();
                }
            }
            !now.cache().flash().is_dead()
        })?;
    }
    let accesses = untimed.counts().accesses();
    let mut metrics = Metrics::new();
    metrics.set("accesses", accesses as f64);
    metrics.set("half_capacity_accesses", if half == 0 { accesses } else { half } as f64);
    let at = |part: usize| records[part * (records.len() - 1) / PARTS];
    for part in 1..=PARTS {
        let did = at(part).since(&at(part - 1));
        let mean = |time: u64, count: u64| time as f64 / count.max(1) as f64 / 1e6;
        metrics.set(format!("read_us.{part}"), mean(did.read_ps, did.reads));
        metrics.set(format!("flash_read_us.{part}"), mean(did.flash_ps, did.flash_hits));
        metrics.set(format!("miss_percent.{part}"), 100.0 * did.misses as f64 / did.reads.max(1) as f64);
    }
    Ok(metrics)
}

/// What a study of lifetimes runs.
#[derive(Debug, Clone)]
pub(super) struct LifetimeStudy {
    /// Settings of all servers.
    pub(super) set: Vec<String>,
    /// Indices of the workloads.
    pub(super) workloads: Vec<usize>,
    /// Number of the controllers, of which the first two are always needed.
    pub(super) controllers: usize,
    /// Accesses between passes over dirty pages of DRAM, and of flash.
    pub(super) periods: (u64, u64),
}

impl LifetimeStudy {
    /// All workloads and controllers.
    pub(super) fn new(settings: &Settings) -> Self {
        let scale = settings.pick(SCALES.0, 2000);
        let set = ["flash=16MiB", "dram_cache=1MiB", "wear_difference=2"].map(String::from);
        let mut set = Vec::from(set);
        set.push(format!("wear_scale={scale}"));
        Self {
            set,
            workloads: (0..WORKLOADS.len()).collect(),
            controllers: CONTROLLERS.len(),
            periods: PERIODS,
        }
    }

    /// The runs at a deviation of the endurance of pages. Their names begin with `prefix`.
    pub(super) fn runs(
        &self,
        settings: &Settings,
        registry: &Registry,
        deviation: u32,
        prefix: &str,
    ) -> Result<Vec<SimulationRun>, ReproError> {
        let (seed, periods) = (settings.seed, self.periods);
        let deviation = format!("errors.page_deviation={deviation}%");
        let mut runs = Vec::new();
        for &index in &self.workloads {
            let (workload, spec) = WORKLOADS[index];
            for (controller, own) in &CONTROLLERS[..self.controllers] {
                let mut set = vec![deviation.as_str()];
                set.extend(self.set.iter().map(String::as_str));
                set.extend(*own);
                let server = server(registry, SERVER, &set)?;
                let config = json!({
                    "server": format!("{server:?}"), "workload": spec, "periods": periods, "seed": seed,
                });
                let name = format!("{prefix}{workload}.{controller}");
                let run = name.clone();
                runs.push(SimulationRun::new(name, PROCEDURE, config, move || {
                    live(&server, spec, periods, seed).map_err(|source| ReproError::Simulation {
                        run: run.clone(),
                        source: Box::new(source),
                    })
                }));
            }
        }
        Ok(runs)
    }

    /// The names of the workloads.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.workloads.iter().map(|&index| WORKLOADS[index].0)
    }

    /// Lifetimes of the programmable controller over that of one bit, by workload.
    pub(super) fn ratios(&self, finished: &FinishedRuns<'_>, prefix: &str) -> Result<Vec<f64>, ReproError> {
        let ratio = |workload: &str| {
            let of =
                |controller: &str| finished.metric(&format!("{prefix}{workload}.{controller}"), "accesses");
            Ok(of("programmable")? / of("bch1")?)
        };
        self.names().map(ratio).collect()
    }

    /// Mean read latency of the programmable controller in each part of its life, over that of the first, by workload.
    pub(super) fn growth(
        &self,
        finished: &FinishedRuns<'_>,
        prefix: &str,
    ) -> Result<Vec<[f64; PARTS]>, ReproError> {
        let of = |workload: &str| {
            let run = finished.run(&format!("{prefix}{workload}.programmable"))?;
            let at = |part: usize| run.0.get(&format!("read_us.{}", part + 1)).copied().unwrap_or(0.0);
            Ok(std::array::from_fn(|part| at(part) / at(0).max(f64::MIN_POSITIVE)))
        };
        self.names().map(of).collect()
    }

    /// The metrics of claims about lifetimes.
    pub(super) fn metrics(
        &self,
        finished: &FinishedRuns<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), ReproError> {
        let ratios = self.ratios(finished, "")?;
        let count = ratios.len() as f64;
        let longest = ratios.iter().copied().fold(0.0, f64::max);
        let metrics = &mut outcome.metrics;
        metrics.set("ratio.mean", ratios.iter().sum::<f64>() / count);
        metrics
            .set("ratio.geometric_mean", (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count).exp());
        metrics.set("ratio.harmonic_mean", count / ratios.iter().map(|ratio| 1.0 / ratio).sum::<f64>());
        metrics.set("years.longest", EXAMPLE_YEARS * longest);
        let growth = self.growth(finished, "")?;
        for part in 0..PARTS {
            let mean = growth.iter().map(|of| of[part]).sum::<f64>() / count;
            metrics.set(format!("growth.{}", part + 1), mean);
        }
        let steps = growth.iter().flat_map(|of| of.windows(2).map(|pair| pair[1] / pair[0]));
        metrics.set("growth.largest_step", steps.fold(0.0, f64::max));
        Ok(())
    }
}

/// Builds the experiment of Figure 10.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let study = LifetimeStudy::new(settings);
    let runs = study.runs(settings, registry, DEVIATION, "")?;
    let about = "Accesses to a cache of 1 MiB of DRAM and 16 MiB of flash until too few blocks are left. Cells wear 400 times \
                 as fast as rated. All controllers see the same accesses and the same cells. A read waits for flash and its \
                 decoder or for the disk, both idle; a hit of DRAM waits for nothing.";
    Ok(Experiment::new("lifetime", "Lifetime by controller (Figure 10)", about, runs, move |finished| {
        let mut outcome = Outcome::default();
        study.metrics(finished, &mut outcome)?;
        lifetimes(&study, finished, &mut outcome)?;
        years(&study, finished, &mut outcome)?;
        latency(&study, finished, &mut outcome)?;
        Ok(outcome)
    }))
}

fn lifetimes(
    study: &LifetimeStudy,
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let mut rows = Vec::new();
    for workload in study.names() {
        let of = |controller: &str, what: &str| finished.metric(&format!("{workload}.{controller}"), what);
        let bch1 = of("bch1", "accesses")?;
        let mut row = vec![workload.to_owned(), plain(bch1)];
        for (controller, _) in CONTROLLERS {
            let ratio = of(controller, "accesses")? / bch1;
            outcome.metrics.set(format!("ratio.{workload}.{controller}"), ratio);
            row.push(plain(ratio));
        }
        let half = "half_capacity_accesses";
        row.push(plain(of("programmable", half)? / of("bch1", half)?));
        rows.push(row);
    }
    outcome.tables.push(Table {
        title: "Accesses until all flash has failed, over a code of one bit".into(),
        headings: [
            "workload",
            "one bit: accesses",
            "programmable",
            "one bit",
            "12 bits",
            "one bit, SLC",
            "programmable, half of the capacity",
        ]
        .map(String::from)
        .into(),
        rows,
    });
    Ok(())
}

/// Six months with a code of one bit: the accesses that 1 GiB of flash then sees, and the years of the other controller.
fn years(
    study: &LifetimeStudy,
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let mut rows = Vec::new();
    for (workload, ratio) in study.names().zip(study.ratios(finished, "")?) {
        let accesses = finished.metric(&format!("{workload}.bch1"), "accesses")?;
        let rate = accesses * (SCALES.0 * SCALES.1) as f64 / (EXAMPLE_YEARS * SECONDS_A_YEAR);
        outcome.metrics.set(format!("years.{workload}"), EXAMPLE_YEARS * ratio);
        rows.push(vec![workload.to_owned(), plain(rate), plain(EXAMPLE_YEARS * ratio)]);
    }
    outcome.tables.push(Table {
        title: "Workloads under which 1 GiB of flash lasts six months with a code of one bit".into(),
        headings: ["workload", "accesses a second", "programmable, years"].map(String::from).into(),
        rows,
    });
    Ok(())
}

/// Latency over the life of the programmable controller.
fn latency(
    study: &LifetimeStudy,
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    for (what, title) in [
        ("read_us", "Mean latency of all reads"),
        ("flash_read_us", "Mean latency of reads that flash satisfied"),
        ("miss_percent", "Reads that the disk satisfied"),
    ] {
        let unit = if what == "miss_percent" { "%" } else { "µs" };
        let mut series = Vec::new();
        for workload in study.names() {
            let of = |part: usize| {
                let value =
                    finished.metric(&format!("{workload}.programmable"), &format!("{what}.{part}"))?;
                Ok((100.0 * part as f64 / PARTS as f64, value))
            };
            let points = (1..=PARTS).map(of).collect::<Result<Vec<_>, ReproError>>()?;
            series.push(Series::new(workload, points));
        }
        outcome.charts.push(Chart {
            title: title.into(),
            about: "By the share of its life that the flash of the programmable controller has behind it."
                .into(),
            drawing: Drawing::Lines {
                x: Axis::linear("life", "%"),
                y: Axis::linear(title, unit),
                series,
                area: false,
            },
            references: Vec::new(),
        });
    }
    Ok(())
}
