//! Table 3: cost-effectiveness is saving over slowdown.

use std::sync::Arc;

use deepram_media::Registry;
use serde_json::json;

use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::run::{Figures, Procedure, Run};

/// Raised when the arithmetic changes.
const PROCEDURE: Procedure = Procedure { name: "flatflash cost", version: 1 };

/// Workload, slowdown against DRAM alone, saving, effectiveness: the paper's Table 3.
const TABLE: [(&str, f64, f64, f64); 8] = [
    ("GUPS", 8.9, 14.6, 1.6),
    ("PageRank", 11.0, 14.6, 1.3),
    ("Connected components", 6.9, 14.6, 2.1),
    ("YCSB B", 6.1, 15.0, 2.5),
    ("YCSB D", 5.5, 15.0, 2.7),
    ("TPC-C", 1.4, 2.4, 1.7),
    ("TPC-B", 1.9, 2.6, 1.4),
    ("TATP", 1.2, 4.5, 3.8),
];

/// Rows whose last column is the third over the second, rounded as printed.
fn rows_right() -> f64 {
    let right = |(_, slowdown, saving, effectiveness): &&(&str, f64, f64, f64)| {
        (saving / slowdown * 10.0).round() == effectiveness * 10.0
    };
    TABLE.iter().filter(right).count() as f64
}

/// The experiment.
pub(super) fn experiment(_: &Settings, _: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let run = Run::new("identity", PROCEDURE, json!({ "table": TABLE }), || {
        let mut figures = Figures::new();
        figures.set("cost.rows_right", rows_right());
        Ok(figures)
    });
    Ok(Experiment::new(
        "cost",
        "Cost-effectiveness",
        "The paper's own columns: the saving over the slowdown, rounded to a digit.",
        vec![run],
        |finished| {
            let mut outcome = Outcome::default();
            outcome.figures.set("cost.rows_right", finished.figure("identity", "cost.rows_right")?);
            Ok(outcome)
        },
    ))
}
