//! Lifetime by controller (Figure 10) at other deviations of the endurance of pages. Without time.

use std::sync::Arc;

use deepram_media::Registry;

use super::lifetime::{LifetimeStudy, PARTS};
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;

/// Deviations of the endurance of pages, percent of the mean: those of Figure 5.
const DEVIATIONS: [u32; 4] = [0, 5, 10, 20];

/// Builds the experiment of Figure 10 at other deviations.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let study = LifetimeStudy { controllers: 2, ..LifetimeStudy::new(settings) };
    let mut runs = Vec::new();
    for deviation in DEVIATIONS {
        runs.extend(study.runs(settings, registry, deviation, &format!("{deviation}."))?);
    }
    let about = "Lifetime and latency of the programmable controller where the endurance of pages deviates as in Figure 5. \
                 The paper leaves the deviation of Figure 10 open.";
    let title = "Lifetime over the deviation of pages (Figure 10)";
    Ok(Experiment::new("deviation", title, about, runs, move |finished| {
        let mut outcome = Outcome::default();
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        let mut by_workload: Vec<Vec<(f64, f64)>> = vec![Vec::new(); study.names().count()];
        for deviation in DEVIATIONS {
            let prefix = format!("{deviation}.");
            let ratios = study.ratios(finished, &prefix)?;
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            outcome.metrics.set(format!("ratio.{deviation}"), mean);
            for (line, ratio) in by_workload.iter_mut().zip(&ratios) {
                line.push((f64::from(deviation), *ratio));
            }
            let bch1 = study.names().map(|name| finished.metric(&format!("{prefix}{name}.bch1"), "accesses"));
            let bch1 = bch1.collect::<Result<Vec<_>, _>>()?;
            let relative: f64 =
                bch1.iter().zip(&without_deviation(&study, finished)?).map(|(now, base)| now / base).sum();
            let relative = relative / bch1.len() as f64;
            outcome.metrics.set(format!("bch1.{deviation}"), relative);
            let growth = study.growth(finished, &prefix)?;
            let at = |part: usize| growth.iter().map(|of| of[part]).sum::<f64>() / growth.len() as f64;
            outcome.metrics.set(format!("growth.{deviation}"), at(PARTS - 1));
            let points = (0..PARTS).map(|part| ((part + 1) as f64 * 100.0 / PARTS as f64, at(part)));
            lines.push(Series::new(&format!("{deviation} %"), points.collect()));
            let mut row = vec![format!("{deviation} %"), plain(mean), plain(relative)];
            row.extend(ratios.iter().map(|ratio| plain(*ratio)));
            row.push(plain(at(PARTS / 2 - 1)));
            row.push(plain(at(PARTS - 1)));
            rows.push(row);
        }
        let mut headings = vec!["deviation".to_owned(), "mean ratio".into(), "one bit, over none".into()];
        headings.extend(study.names().map(String::from));
        headings.extend(["latency at half of the life", "latency at the end"].map(String::from));
        outcome.tables.push(Table {
            title: "Lifetime of the programmable controller over one of a single bit".into(),
            headings,
            rows,
        });
        let by_workload = study.names().zip(by_workload).map(|(name, points)| Series::new(name, points));
        for (title, about, x, series) in [
            (
                "Lifetime over a code of one bit",
                "By the deviation of the endurance of pages.",
                Axis::linear("deviation", "%"),
                by_workload.collect::<Vec<_>>(),
            ),
            (
                "Growth of the mean read latency",
                "By the share of its life that the flash has behind it, mean of the workloads, a line for each deviation.",
                Axis::linear("life", "%"),
                lines,
            ),
        ] {
            let drawing = Drawing::Lines { x, y: Axis::linear("ratio", ""), series, area: false };
            outcome.charts.push(Chart {
                title: title.into(),
                about: about.into(),
                drawing,
                references: Vec::new(),
            });
        }
        Ok(outcome)
    }))
}

/// Lifetimes with a code of one bit where all pages are equal.
fn without_deviation(study: &LifetimeStudy, finished: &FinishedRuns<'_>) -> Result<Vec<f64>, ReproError> {
    let prefix = format!("{}.", DEVIATIONS[0]);
    study.names().map(|name| finished.metric(&format!("{prefix}{name}.bch1"), "accesses")).collect()
}
