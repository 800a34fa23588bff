//! The best division of flash into single-level and multi-level cells (Figure 7): a static optimum.
//!
//! The hottest pages are in single-level cells, the next in multi-level cells, the rest on the disk. There is no DRAM
//! and no cold miss. An area is counted in single-level pages; a multi-level page takes half of one.

use std::sync::Arc;

use deepram_media::{Bytes, NandOp, Registry};
use serde_json::json;

use super::{SERVER, server};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::simulation_run::{Metrics, SimulationRun};

const PROCEDURE: &str = "disk-cache partition";
/// Workloads: name, title, exponent of a Zipf distribution of page uses.
const WORKLOADS: [(&str, &str, f64); 2] =
    [("skewed", "hot pages (Financial2)", 1.2), ("even", "few hot pages (WebSearch1)", 0.3)];
/// Areas, percent of the pages of the workload.
const AREAS: [usize; 8] = [10, 20, 30, 40, 50, 70, 90, 100];
/// Divisions tried for each area.
const STEPS: usize = 200;

/// The best share of an area for single-level cells, and the mean delay with it.
fn best(below: &[f64], area: usize, [slc, mlc, disk]: [f64; 3]) -> (f64, f64) {
    let delay = |single: usize| {
        let both = (single + 2 * (area - single)).min(below.len() - 1);
        slc * below[single] + mlc * (below[both] - below[single]) + disk * (1.0 - below[both])
    };
    let divisions = (0..=STEPS).map(|step| area * step / STEPS);
    let found =
        divisions.map(|single| (delay(single), single)).min_by(|one, other| one.0.total_cmp(&other.0));
    let (delay, single) = found.unwrap_or((disk, 0));
    (single as f64 / area.max(1) as f64, delay)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let server = server(registry, SERVER, &[])?;
    let time = |nand: &deepram_media::Nand| nand.array_time(NandOp::Read).0 as f64 / 1e6;
    let times = [
        time(&server.slc),
        time(&server.mlc),
        server.disk.random(Bytes(server.mlc.page.0), false).0 as f64 / 1e6,
    ];
    let pages = settings.pick(200_000usize, 10_000);
    let runs = WORKLOADS.map(|(name, _, exponent)| {
        let config = json!({ "pages": pages, "exponent": exponent, "times_us": times, "steps": STEPS });
        SimulationRun::new(name, PROCEDURE, config, move || {
            let uses: Vec<f64> = (1..=pages).map(|rank| (rank as f64).powf(-exponent)).collect();
            let all: f64 = uses.iter().sum();
            let mut sum = 0.0;
            let below: Vec<f64> = std::iter::once(0.0)
                .chain(uses.iter().map(|uses| {
                    sum += uses / all;
                    sum
                }))
                .collect();
            let mut metrics = Metrics::new();
            for area in AREAS {
                let (share, delay) = best(&below, pages * area / 100, times);
                metrics.set(format!("{area}.slc_percent"), 100.0 * share);
                metrics.set(format!("{area}.delay_us"), delay);
            }
            Ok(metrics)
        })
    });
    let about = "The division with the least mean delay for each area of flash, found by trial. Zipf distributions stand in \
                 for the traces Financial2 (exponent 1.2) and WebSearch1 (0.3).";
    Ok(Experiment::new(
        "partition",
        "Best division into SLC and MLC (Figure 7)",
        about,
        runs.into(),
        |finished| {
            let mut outcome = Outcome::default();
            let mut least = f64::INFINITY;
            for (name, title, _) in WORKLOADS {
                let of = |area: usize, what: &str| finished.metric(name, &format!("{area}.{what}"));
                outcome.metrics.set(format!("{name}.half.slc_percent"), of(50, "slc_percent")?);
                least = least.min(of(100, "slc_percent")?);
                let line = |what: &str| {
                    AREAS
                        .iter()
                        .map(|area| Ok((*area as f64, of(*area, what)?)))
                        .collect::<Result<Vec<_>, ReproError>>()
                };
                for (what, axis) in
                    [("slc_percent", Axis::linear("SLC", "%")), ("delay_us", Axis::log("delay", "µs"))]
                {
                    outcome.charts.push(Chart {
                        title: format!(
                            "{title}: {}",
                            if what == "delay_us" { "mean delay" } else { "best share of SLC" }
                        ),
                        about: "By the area of flash, in percent of the area that holds the workload in SLC."
                            .into(),
                        drawing: Drawing::Lines {
                            x: Axis::linear("area", "%"),
                            y: axis,
                            series: vec![Series::new(title, line(what)?)],
                            area: false,
                        },
                        references: Vec::new(),
                    });
                }
            }
            outcome.metrics.set("least.full.slc_percent", least);
            Ok(outcome)
        },
    ))
}
