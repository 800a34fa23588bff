//! Checks Table 3, where cost-effectiveness is saving over slowdown: the paper's own columns, our
//! slowdowns relative to all-DRAM, and the savings that follow from the prices in section 5.7.

use std::sync::Arc;

use deepram_media::Registry;
use serde_json::json;

use super::machine::{RunContext, SLOWDOWN_MACHINES};
use super::{graph, gups, redis};
use crate::chart::Table;
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const PROCEDURE: &str = "flatflash cost";

/// Prices of section 5.7, in dollars.
#[derive(Debug, Clone, Copy)]
struct Prices {
    /// Price of 1 GB of DRAM.
    dram: f64,
    /// Price of 1 GB of the drive.
    drive: f64,
    /// Extra price of a server that holds this much DRAM.
    base: f64,
}

const PRICES: Prices = Prices { dram: 30.0, drive: 2.0, base: 1500.0 };

impl Prices {
    /// Cost of holding `data` GB in DRAM over that of `dram` GB of DRAM and a drive for the data.
    fn saving(self, data: f64, dram: f64) -> f64 {
        (data * self.dram + self.base) / (dram * self.dram + data * self.drive)
    }
}

/// A row of the paper's Table 3.
struct Row {
    name: &'static str,
    /// FlatFlash's time relative to all-DRAM.
    slowdown: f64,
    saving: f64,
    effectiveness: f64,
    /// GB of data and of DRAM, as the paper gives them or from the layout of our stand-in.
    data: f64,
    dram: f64,
    /// Metric of our slowdown; `None` if it would need another experiment.
    ours: Option<&'static str>,
}

const fn row(
    name: &'static str,
    [slowdown, saving, effectiveness]: [f64; 3],
    [data, dram]: [f64; 2],
    ours: Option<&'static str>,
) -> Row {
    Row { name, slowdown, saving, effectiveness, data, dram, ours }
}

/// The size of a graph is that of the paper's graph in the layout of our stand-in.
fn table() -> [Row; 8] {
    let graph = |ways| graph::twitter_bytes(ways) as f64 / 1e9;
    [
        row("GUPS", [8.9, 14.6, 1.6], [32.0, 2.0], Some("slowdown.gups")),
        row("PageRank", [11.0, 14.6, 1.3], [graph(1), 2.0], Some("slowdown.pagerank")),
        row("Connected components", [6.9, 14.6, 2.1], [graph(2), 2.0], Some("slowdown.cc")),
        row("YCSB B", [6.1, 15.0, 2.5], [32.0, 2.0], Some("slowdown.ycsb-b")),
        row("YCSB D", [5.5, 15.0, 2.7], [32.0, 2.0], Some("slowdown.ycsb-d")),
        row("TPC-C", [1.4, 2.4, 1.7], [48.0, 6.0], None),
        row("TPC-B", [1.9, 2.6, 1.4], [48.0, 6.0], None),
        row("TATP", [1.2, 4.5, 3.8], [48.0, 6.0], None),
    ]
}

/// Number of rows whose effectiveness is saving over slowdown, rounded as printed.
fn rows_right(table: &[Row]) -> f64 {
    let right = |row: &&Row| (row.saving / row.slowdown * 10.0).round() == (row.effectiveness * 10.0).round();
    table.iter().filter(right).count() as f64
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let columns = table().map(|row| (row.name, row.slowdown, row.saving, row.effectiveness));
    let mut runs = vec![SimulationRun::new("identity", PROCEDURE, json!({ "table": columns }), || {
        let mut metrics = Metrics::new();
        metrics.set("rows_right", rows_right(&table()));
        Ok(metrics)
    })];
    let context = RunContext { machines: &SLOWDOWN_MACHINES, ..RunContext::plain(settings, registry) };
    let (updates, graphs, pairs) = (
        gups::Extent::for_sensitivity(settings),
        graph::Extent::for_sensitivity(settings),
        redis::Extent::for_sensitivity(settings),
    );
    runs.extend(gups::runs(context, updates)?);
    runs.extend(graph::runs(context, graphs)?);
    runs.extend(redis::runs(context, pairs)?);
    let about = format!(
        "The paper's own columns, where effectiveness is saving over slowdown rounded to one digit; our \
         slowdowns relative to the same machine with all data in DRAM (small runs, means over the ends of \
         each experiment's sweep); and the savings that follow from prices of ${} per GB of DRAM, ${} per \
         GB of the drive and ${} for the larger server. The paper's savings do not follow from its prices, \
         so they are not judged.",
        PRICES.dram, PRICES.drive, PRICES.base,
    );
    Ok(Experiment::new("cost", "Cost-effectiveness", about, runs, move |finished| {
        evaluate(finished, updates, graphs, pairs)
    }))
}

/// FlatFlash's time relative to all-DRAM.
pub(super) fn slowdowns(
    finished: &FinishedRuns<'_>,
    (updates, graphs, pairs): (gups::Extent, graph::Extent, redis::Extent),
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let metrics = &mut outcome.metrics;
    metrics.set("slowdown.gups", gups::slowdown_of(finished, updates)?);
    for algorithm in ["pagerank", "cc"] {
        metrics.set(format!("slowdown.{algorithm}"), graph::slowdown_of(finished, graphs, algorithm)?);
    }
    for workload in ["ycsb-b", "ycsb-d"] {
        metrics.set(format!("slowdown.{workload}"), redis::slowdown_of(finished, pairs, workload)?);
    }
    Ok(())
}

fn evaluate(
    finished: &FinishedRuns<'_>,
    updates: gups::Extent,
    graphs: graph::Extent,
    pairs: redis::Extent,
) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    slowdowns(finished, (updates, graphs, pairs), &mut outcome)?;
    let metrics = &mut outcome.metrics;
    metrics.set("cost.rows_right", finished.metric("identity", "rows_right")?);
    let table = table();
    let rows = table.iter().map(|row| {
        let ours = row.ours.and_then(|name| metrics.0.get(name));
        let saving = PRICES.saving(row.data, row.dram);
        let show = |value: Option<f64>| value.map_or_else(|| "–".into(), plain);
        vec![
            row.name.into(),
            plain(row.slowdown),
            show(ours.copied()),
            plain(row.saving),
            plain(saving),
            plain(row.effectiveness),
            show(ours.map(|slowdown| saving / slowdown)),
        ]
    });
    let rows = rows.collect();
    let headings = [
        "",
        "slowdown, paper",
        "ours",
        "saving, paper",
        "saving from prices",
        "effectiveness, paper",
        "effectiveness from prices and our slowdown",
    ];
    let headings = headings.map(str::to_owned).to_vec();
    outcome.tables.push(Table { title: "FlatFlash relative to all-DRAM".into(), headings, rows });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_follow_the_prices_and_differ_from_the_papers() {
        let table = table();
        let saving = |name: &str| {
            let row = table.iter().find(|row| row.name == name).unwrap();
            (PRICES.saving(row.data, row.dram) * 10.0).round() / 10.0
        };
        // By hand: (32 * 30 + 1500) / (2 * 30 + 32 * 2) and (48 * 30 + 1500) / (6 * 30 + 48 * 2).
        assert_eq!((saving("GUPS"), saving("TPC-C")), (19.8, 10.7));
    }

    #[test]
    fn a_row_that_is_not_saving_over_slowdown_is_not_right() {
        assert_eq!(rows_right(&table()), 8.0);
        let mut table = table();
        table[0].saving *= 1.1;
        assert_eq!(rows_right(&table), 7.0);
    }
}
