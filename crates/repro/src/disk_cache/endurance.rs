//! Cycles that a memory tolerates over the strength of its code (Figure 5): the closed form of the error model.

use std::sync::Arc;

use deepram_media::Registry;
use serde_json::json;

use super::{SERVER, server};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome};
use crate::simulation_run::{Metrics, SimulationRun};

const PROCEDURE: &str = "disk-cache endurance";
/// Deviations of the endurance of pages, percent of the mean.
const DEVIATIONS: [u32; 4] = [0, 5, 10, 20];
const STRONGEST: u64 = 12;
/// Share of the pages that may need a stronger code: the first percent ends the memory.
const OF_PAGES: f64 = 0.01;

/// Builds the experiment.
pub(super) fn experiment(registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    for deviation in DEVIATIONS {
        let server = server(registry, SERVER, &[&format!("errors.page_deviation={deviation}%")])?;
        let config =
            json!({ "deviation": deviation, "errors": format!("{:?}", server.errors), "share": OF_PAGES });
        runs.push(SimulationRun::new(format!("deviation.{deviation}"), PROCEDURE, config, move || {
            let pages = server.errors.of_pages(server.mlc.endurance, server.mlc.page.0 * 8);
            let mut metrics = Metrics::new();
            for strength in 1..=STRONGEST {
                metrics.set(strength.to_string(), pages.tolerable_cycles(strength, OF_PAGES));
            }
            Ok(metrics)
        }));
    }
    let about = "Cycles after which one in a hundred pages of multi-level cells has more failed bits than the code corrects, \
                 from the model of bit errors. The deviation between pages is the paper's parameter; its own error model is \
                 not published.";
    Ok(Experiment::new(
        "endurance",
        "Tolerable cycles over code strength (Figure 5)",
        about,
        runs,
        |finished| {
            let mut outcome = Outcome::default();
            let mut series = Vec::new();
            for deviation in DEVIATIONS {
                let mut points = Vec::new();
                for strength in 1..=STRONGEST {
                    let cycles = finished.metric(&format!("deviation.{deviation}"), &strength.to_string())?;
                    outcome.metrics.set(format!("cycles.{deviation}.{strength}"), cycles);
                    points.push((strength as f64, cycles));
                }
                series.push(Series::new(&format!("{deviation} %"), points));
            }
            outcome.charts.push(Chart {
                title: "Tolerable program/erase cycles".into(),
                about: "By bits that the code corrects; a line for each deviation of the endurance of pages."
                    .into(),
                drawing: Drawing::Lines {
                    x: Axis::linear("code strength", "bits"),
                    y: Axis::linear("cycles", ""),
                    series,
                    area: false,
                },
                references: Vec::new(),
            });
            Ok(outcome)
        },
    ))
}
