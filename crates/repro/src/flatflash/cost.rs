//! Table 3: cost-effectiveness is saving over slowdown. The paper's own columns, our slowdowns against DRAM alone, and
//! what the prices of section 5.7 come to.

use std::sync::Arc;

use deepram_media::Registry;
use serde_json::json;

use super::machine::{Bench, SLOWED};
use super::{graph, gups, redis};
use crate::chart::Table;
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::number::plain;
use crate::run::{Figures, Procedure, Run};

/// Raised when the arithmetic changes.
const PROCEDURE: Procedure = Procedure { name: "flatflash cost", version: 1 };

/// Prices of section 5.7 in dollars.
#[derive(Debug, Clone, Copy)]
struct Prices {
    /// A GB of DRAM.
    dram: f64,
    /// A GB of the drive.
    drive: f64,
    /// A server with room for so much DRAM, beside another.
    base: f64,
}

const PRICES: Prices = Prices { dram: 30.0, drive: 2.0, base: 1500.0 };

impl Prices {
    /// All data in DRAM over some of it and a drive for the data, in GB.
    fn saving(self, data: f64, dram: f64) -> f64 {
        (data * self.dram + self.base) / (dram * self.dram + data * self.drive)
    }
}

/// A row of the paper's Table 3.
struct Row {
    name: &'static str,
    /// How many times as long as with DRAM alone.
    slowdown: f64,
    saving: f64,
    effectiveness: f64,
    /// GB of data and of DRAM, where the paper gives them or the stand-in's layout does.
    data: f64,
    dram: f64,
    /// The figure of our slowdown; none where another experiment would have to run.
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

/// Graphs are as large as their stand-ins' arrays would be.
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

/// Rows whose effectiveness is the saving over the slowdown, rounded as printed.
fn rows_right(table: &[Row]) -> f64 {
    let right = |row: &&Row| (row.saving / row.slowdown * 10.0).round() == (row.effectiveness * 10.0).round();
    table.iter().filter(right).count() as f64
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let columns = table().map(|row| (row.name, row.slowdown, row.saving, row.effectiveness));
    let mut runs = vec![Run::new("identity", PROCEDURE, json!({ "table": columns }), || {
        let mut figures = Figures::new();
        figures.set("rows_right", rows_right(&table()));
        Ok(figures)
    })];
    let bench = Bench { machines: &SLOWED, ..Bench::plain(settings, registry) };
    let (updates, graphs, pairs) =
        (gups::Extent::study(settings), graph::Extent::study(settings), redis::Extent::study(settings));
    runs.extend(gups::runs(bench, updates)?);
    runs.extend(graph::runs(bench, graphs)?);
    runs.extend(redis::runs(bench, pairs)?);
    let about = format!(
        "The paper's own columns: the saving over the slowdown, rounded to a digit. Beside them our slowdowns against the \
         same machine with all data in DRAM (small runs; means over the ends of the sweeps of each experiment), and what \
         prices of ${} for a GB of DRAM, ${} for one of the drive and ${} for the larger server come to. The paper's savings \
         do not follow from its prices, so there is no verdict on them.",
        PRICES.dram, PRICES.drive, PRICES.base,
    );
    Ok(Experiment::new("cost", "Cost-effectiveness", about, runs, move |finished| {
        evaluate(finished, updates, graphs, pairs)
    }))
}

/// How many times as long FlatFlash takes as DRAM alone.
pub(super) fn slowdowns(
    finished: &Finished<'_>,
    (updates, graphs, pairs): (gups::Extent, graph::Extent, redis::Extent),
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let figures = &mut outcome.figures;
    figures.set("slowdown.gups", gups::slowed(finished, updates)?);
    for algorithm in ["pagerank", "cc"] {
        figures.set(format!("slowdown.{algorithm}"), graph::slowed(finished, graphs, algorithm)?);
    }
    for workload in ["ycsb-b", "ycsb-d"] {
        figures.set(format!("slowdown.{workload}"), redis::slowed(finished, pairs, workload)?);
    }
    Ok(())
}

fn evaluate(
    finished: &Finished<'_>,
    updates: gups::Extent,
    graphs: graph::Extent,
    pairs: redis::Extent,
) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    slowdowns(finished, (updates, graphs, pairs), &mut outcome)?;
    let figures = &mut outcome.figures;
    figures.set("cost.rows_right", finished.figure("identity", "rows_right")?);
    let table = table();
    let rows = table.iter().map(|row| {
        let ours = row.ours.and_then(|name| figures.0.get(name));
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
        "of the prices",
        "effectiveness, paper",
        "of the prices and our slowdown",
    ];
    let headings = headings.map(str::to_owned).to_vec();
    outcome.tables.push(Table { title: "FlatFlash against DRAM alone".into(), headings, rows });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prices_come_to_what_the_facts_say_and_not_to_the_papers_savings() {
        let table = table();
        let saving = |name: &str| {
            let row = table.iter().find(|row| row.name == name).unwrap();
            (PRICES.saving(row.data, row.dram) * 10.0).round() / 10.0
        };
        // facts.md, section 8, item 11.
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
