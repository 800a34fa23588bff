//! One region of flash against a read and a write region (Figure 4, section 3.1): misses and reclamation. Without time.

use std::sync::Arc;

use deepram_media::{DiskCacheServer, Registry};
use deepram_sim::SimError;
use serde_json::json;

use super::untimed::UntimedServer;
use super::{SERVER, server};
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::{Metrics, SimulationRun};

const PROCEDURE: &str = "disk-cache regions";
/// The stand-in for the database.
const WORKLOAD: &str = "zipf:theta=0.9,span=2GiB,read=0.7,size=8KiB";
/// Sizes of the flash, MiB: those of the ISCA 2008 study as recalled. Claims are about the middle one.
const SIZES: [u32; 5] = [128, 256, 384, 512, 640];
/// Divisions: name, title and settings.
const DIVISIONS: [(&str, &str, &[&str]); 6] = [
    ("unified", "unified", &["regions=unified"]),
    ("unified-all", "unified, all blocks with dead pages", &["regions=unified", "reclaim=all"]),
    ("split", "10 % for writes", &["write_share=10%"]),
    ("split-all", "10 % for writes, all blocks with dead pages", &["write_share=10%", "reclaim=all"]),
    ("split-30", "30 % for writes", &["write_share=30%"]),
    ("split-50", "50 % for writes", &["write_share=50%"]),
];
/// Accesses between two passes over dirty pages of DRAM, and of flash.
const PERIODS: (u64, u64) = (1 << 12, 1 << 18);

/// What a study of regions runs.
#[derive(Debug, Clone)]
pub(super) struct RegionsStudy {
    /// Settings of all servers.
    pub(super) set: Vec<String>,
    /// Sizes of the flash, MiB.
    pub(super) sizes: Vec<u32>,
    /// Workload without the number of its requests.
    pub(super) workload: String,
    /// Accesses between passes over dirty pages of DRAM, and of flash.
    pub(super) periods: (u64, u64),
    /// Share of its full length that a run has.
    pub(super) shortened: u64,
}

impl RegionsStudy {
    /// The study of the report.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            set: vec![settings.pick("dram_cache=64MiB", "dram_cache=4MiB").into()],
            sizes: settings.pick(SIZES.to_vec(), vec![384]),
            workload: WORKLOAD.into(),
            periods: PERIODS,
            shortened: settings.pick(1, 16),
        }
    }

    /// The runs of all divisions.
    pub(super) fn runs(
        &self,
        settings: &Settings,
        registry: &Registry,
    ) -> Result<Vec<SimulationRun>, ReproError> {
        let (shortened, periods, seed) = (self.shortened, self.periods, settings.seed);
        let mut runs = Vec::new();
        for size in &self.sizes {
            for (division, _, own) in DIVISIONS {
                let flash = format!("flash={}MiB", u64::from(*size) / shortened);
                let mut set = vec![flash.as_str()];
                set.extend(own);
                set.extend(self.set.iter().map(String::as_str));
                let server = server(registry, SERVER, &set)?;
                let pages = server.flash.0 / server.mlc.page.0;
                let workload = self.workload.clone();
                let config = json!({
                    "server": format!("{server:?}"), "workload": workload, "periods": periods, "seed": seed,
                });
                let name = format!("{division}.{size}");
                let run = name.clone();
                runs.push(SimulationRun::new(name, PROCEDURE, config, move || {
                    steady(&server, &workload, pages, periods, seed).map_err(|source| {
                        ReproError::Simulation { run: run.clone(), source: Box::new(source) }
                    })
                }));
            }
        }
        Ok(runs)
    }
}

/// Runs a workload through flash of `pages` pages. The warm-up is four times as many accesses, and lasts until a block
/// was erased: the flash is full and its first pass is over. As many accesses are measured.
fn steady(
    server: &DiskCacheServer,
    workload: &str,
    pages: u64,
    periods: (u64, u64),
    seed: u64,
) -> Result<Metrics, SimError> {
    let mut untimed = UntimedServer::new(server, seed, periods)?;
    let (warm, most) = (4 * pages, 40 * pages);
    let spec = format!("{workload},count={most}");
    untimed.run(&spec, seed, |now| {
        let counts = now.counts();
        counts.accesses() < most && (counts.accesses() < warm || counts.erases == 0)
    })?;
    let base = untimed.counts();
    untimed.run(&spec, seed.wrapping_add(1), |now| now.counts().accesses() < base.accesses() + warm)?;
    let did = untimed.counts().since(&base);
    let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let mut metrics = Metrics::new();
    metrics.set("read_miss_percent", percent(did.misses, did.reads));
    metrics.set("write_miss_percent", percent(did.write_misses, did.writes));
    metrics.set("miss_percent", percent(did.misses + did.write_misses, did.accesses()));
    metrics.set("flash_miss_percent", percent(did.misses, did.misses + did.flash_hits));
    for (name, count) in [
        ("reclaimed_blocks", did.reclaimed_blocks),
        ("reclaim_moves", did.reclaim_moves),
        ("programs", did.programs),
        ("erases", did.erases),
    ] {
        metrics.set(format!("{name}_per_1000"), 1000.0 * count as f64 / did.accesses().max(1) as f64);
    }
    Ok(metrics)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let study = RegionsStudy::new(settings);
    let runs = study.runs(settings, registry)?;
    let about = "A generated workload stands in for the database: Zipf 0.9 over 2 GiB in requests of 8 KiB, 30 % of them \
                 writes. 64 MiB of DRAM, and the same flash in one region or two. After a warm-up until the flash is full \
                 and blocks are erased. A write misses if its page is neither in DRAM nor in flash.";
    Ok(Experiment::new(
        "regions",
        "One region or two: misses and reclamation (section 3.1)",
        about,
        runs,
        move |finished| evaluate(&study, finished),
    ))
}

/// The metrics that claims use, at the middle size: those of a division by its name, and the best split.
pub(super) fn metrics(
    study: &RegionsStudy,
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let middle = study.sizes[study.sizes.len() / 2];
    let mut best = f64::INFINITY;
    for (division, ..) in DIVISIONS {
        let found = finished.run(&format!("{division}.{middle}"))?;
        for (name, value) in &found.0 {
            outcome.metrics.set(format!("{division}.{name}"), *value);
        }
        if division.starts_with("split") {
            best = best.min(finished.metric(&format!("{division}.{middle}"), "miss_percent")?);
        }
    }
    outcome.metrics.set("best-split.miss_percent", best);
    Ok(())
}

fn evaluate(study: &RegionsStudy, finished: &FinishedRuns<'_>) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    metrics(study, finished, &mut outcome)?;
    let columns = [
        "read_miss_percent",
        "write_miss_percent",
        "miss_percent",
        "reclaimed_blocks_per_1000",
        "reclaim_moves_per_1000",
        "programs_per_1000",
        "erases_per_1000",
    ];
    let (mut rows, mut misses, mut moves) = (Vec::new(), Vec::new(), Vec::new());
    for (division, title, _) in DIVISIONS {
        let (mut missed, mut moved) = (Vec::new(), Vec::new());
        for size in &study.sizes {
            let of = |what: &str| finished.metric(&format!("{division}.{size}"), what);
            missed.push((f64::from(*size), of("miss_percent")?));
            moved.push((f64::from(*size), of("reclaim_moves_per_1000")?));
            let mut row = vec![title.to_owned(), size.to_string()];
            for column in columns {
                row.push(plain(of(column)?));
            }
            rows.push(row);
        }
        misses.push(Series::new(title, missed));
        moves.push(Series::new(title, moved));
    }
    outcome.tables.push(Table {
        title: "Misses, and work of the flash for 1000 accesses".into(),
        headings: [
            "regions",
            "flash, MiB",
            "read misses, %",
            "write misses, %",
            "all misses, %",
            "blocks reclaimed",
            "pages moved by reclamation",
            "pages programmed",
            "blocks erased",
        ]
        .map(String::from)
        .into(),
        rows,
    });
    for (title, unit, series) in
        [("Misses", "%", misses), ("Pages moved by reclamation, for 1000 accesses", "", moves)]
    {
        outcome.charts.push(Chart {
            title: title.into(),
            about: "By the size of the flash.".into(),
            drawing: Drawing::Lines {
                x: Axis::linear("flash", "MiB"),
                y: Axis::linear(title, unit),
                series,
                area: false,
            },
            references: Vec::new(),
        });
    }
    Ok(outcome)
}
