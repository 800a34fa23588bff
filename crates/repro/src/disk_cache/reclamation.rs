//! Time of reclamation over the occupied share of the flash (Figure 2b).

use std::sync::Arc;

use deepram_core::disk_cache::{Cause, NoErrors, Step};
use deepram_media::{NandOp, Registry};
use deepram_sim::disk_cache::untimed_cache;
use deepram_trace::workload::Rng;
use serde_json::json;

use super::{SERVER, server};
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::{Metrics, SimulationRun};

const PROCEDURE: &str = "disk-cache reclamation";
/// Occupied share of the flash, percent.
const OCCUPIED: [u64; 8] = [30, 40, 50, 60, 70, 80, 90, 95];
const DENSITIES: [&str; 2] = ["mlc", "slc"];
/// The overhead that the paper's figure is normalised to, percent.
const UNIT: f64 = 10.0;

/// The share of flash time that reclamation takes while live data are overwritten uniformly, percent.
fn share(
    server: &deepram_media::DiskCacheServer,
    occupied: u64,
    passes: u64,
    seed: u64,
) -> Result<f64, deepram_sim::SimError> {
    let mut cache = untimed_cache(server)?;
    let nand = if server.density == deepram_media::Cell::Slc { &server.slc } else { &server.mlc };
    let time = |op| nand.idle_latency(op, 1).0;
    let read = time(NandOp::Read) + server.ecc.decode(nand.page, server.strength).0;
    let (program, erase) = (time(NandOp::Program), time(NandOp::Erase));
    let pages = cache.flash().capacity_pages();
    let live = (pages * occupied / 100) as u32;
    let mut random = Rng::new(seed, "overwrites");
    let mut steps = Vec::new();
    let (mut host, mut reclaim) = (0u64, 0u64);
    for write in 0..u64::from(live) + passes * pages {
        // First every page once, then uniformly. The second half is measured.
        let page = if write < live.into() { write as u32 } else { random.below(live.into()) as u32 };
        cache.write(page, &mut NoErrors, &mut steps);
        cache.write_back(1, &mut NoErrors, &mut steps);
        let measured = u64::from(write >= u64::from(live) + passes * pages / 2);
        for step in steps.drain(..) {
            match step {
                Step::Program { .. } => host += measured * program,
                Step::Move { cause: Cause::Reclaim, .. } => reclaim += measured * (read + program),
                Step::Erase(_) => reclaim += measured * erase,
                _ => {}
            }
        }
    }
    Ok(100.0 * reclaim as f64 / (host + reclaim).max(1) as f64)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let (passes, seed) = (settings.pick(3, 2), settings.seed);
    let mut runs = Vec::new();
    for density in DENSITIES {
        for occupied in OCCUPIED {
            let set = [
                "regions=unified",
                "controller=fixed",
                "least_dead=0",
                "dram_cache=2KiB",
                "wear_swap=false",
                settings.pick("flash=2GiB", "flash=32MiB"),
                &format!("density={density}"),
            ];
            let server = server(registry, SERVER, &set)?;
            let config = json!({ "set": set, "server": format!("{server:?}"), "passes": passes, "seed": seed, "occupied": occupied });
            let name = format!("{density}.{occupied}");
            let run = name.clone();
            runs.push(SimulationRun::new(name, PROCEDURE, config, move || {
                let failed = |source| ReproError::Simulation { run: run.clone(), source: Box::new(source) };
                let mut metrics = Metrics::new();
                metrics.set("share_percent", share(&server, occupied, passes, seed).map_err(failed)?);
                Ok(metrics)
            }));
        }
    }
    let about = "Uniform overwrites of live data in 2 GiB of unified flash, in the steady state. The share of flash time that \
                 moves and erases take. The paper normalises to an overhead of 10 %.";
    Ok(Experiment::new(
        "reclamation",
        "Time of reclamation over occupancy (Figure 2b)",
        about,
        runs,
        |finished| {
            let mut outcome = Outcome::default();
            let (mut series, mut rows) = (Vec::new(), Vec::new());
            for density in DENSITIES {
                let mut points = Vec::new();
                for occupied in OCCUPIED {
                    let share = finished.metric(&format!("{density}.{occupied}"), "share_percent")?;
                    outcome.metrics.set(format!("{density}.share.{occupied}_percent"), share);
                    points.push((occupied as f64, share / UNIT));
                    rows.push(vec![
                        density.to_uppercase(),
                        occupied.to_string(),
                        plain(share),
                        plain(share / UNIT),
                    ]);
                }
                series.push(Series::new(&density.to_uppercase(), points));
            }
            outcome.tables.push(Table {
                title: "Share of flash time in reclamation".into(),
                headings: ["cells", "occupied, %", "share, %", "over an overhead of 10 %"]
                    .map(String::from)
                    .into(),
                rows,
            });
            outcome.charts.push(Chart {
                title: "Time in reclamation over an overhead of 10 %".into(),
                about: "By the occupied share of the flash.".into(),
                drawing: Drawing::Lines {
                    x: Axis::linear("occupied", "%"),
                    y: Axis::linear("normalised time", ""),
                    series,
                    area: false,
                },
                references: Vec::new(),
            });
            Ok(outcome)
        },
    ))
}
