//! Compares the adaptive promotion threshold with fixed thresholds, with almost no promotion, and with
//! Algorithm 1 as printed (FlatFlash, section 3.4). The paper argues for the adaptive threshold but
//! shows no results.

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{MACHINES, MachineConfig, RunContext};
use super::{graph, latency, redis};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::SimulationRun;
use crate::statistics::geometric_mean;

const ADAPTIVE: &str = "adaptive";
/// Ratio bounds that keep the threshold at its maximum: it only ever rises.
const UP: [&str; 2] = ["low_ratio=99.9%", "high_ratio=100%"];
const FIXED: [(&str, &[&str]); 3] = [
    ("fixed at 1", &["max_threshold=1", UP[0], UP[1]]),
    ("fixed at 3", &["max_threshold=3", UP[0], UP[1]]),
    ("fixed at 7", &["max_threshold=7", UP[0], UP[1]]),
];
const OTHERS: [(&str, &[&str]); 4] = [
    ("as printed", &["algorithm=literal"]),
    ("hardly ever", &["max_threshold=255", UP[0], UP[1]]),
    ("idle DRAM first", &["fill_idle=true"]),
    (ADAPTIVE, &[]),
];

/// All access patterns, on FlatFlash alone.
fn patterns(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &MachineConfig,
) -> Result<Vec<SimulationRun>, ReproError> {
    let context = RunContext { settings, registry, base, machines: &MACHINES[..1] };
    let mut runs = latency::runs(context, latency::Extent::for_sensitivity())?;
    runs.extend(redis::runs(context, redis::Extent::for_sensitivity(settings))?);
    runs.extend(graph::runs(context, graph::Extent::for_sensitivity(settings))?);
    Ok(runs)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    let mut names = Vec::new();
    for (policy, metrics) in FIXED.into_iter().chain(OTHERS) {
        let overrides = metrics.iter().map(|text| (*text).into()).collect();
        let base = MachineConfig { overrides, ..MachineConfig::default() };
        let all = patterns(settings, registry, &base)?;
        names = all.iter().map(|run| run.name.replace(".flatflash.", ", ")).collect::<Vec<_>>();
        runs.extend(all.into_iter().zip(&names).map(|(mut run, name)| {
            run.name = of(policy, name);
            run
        }));
    }
    Ok(Experiment::new(
        "promotion",
        "Promotion policies",
        "FlatFlash under the access patterns of the other experiments (small runs) with other promotion \
         rules: fixed thresholds, a threshold of 255 accesses (which a page hardly ever reaches), \
         Algorithm 1 as printed, and promotion at the first access while DRAM still has unused frames. The \
         paper argues that no fixed threshold suits all patterns, but shows no results.",
        runs,
        move |finished| evaluate(finished, &names),
    ))
}

fn of(policy: &str, pattern: &str) -> String {
    format!("{policy}: {pattern}")
}

fn evaluate(finished: &FinishedRuns<'_>, patterns: &[String]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    // Mean latency with another rule over that with the adaptive rule, over all patterns.
    let over = |policy: &str| -> Result<f64, ReproError> {
        let time = |policy: &str, pattern: &str| finished.metric(&of(policy, pattern), "latency.mean_ns");
        let ratios = patterns
            .iter()
            .map(|pattern| Ok(time(policy, pattern)? / time(ADAPTIVE, pattern)?))
            .collect::<Result<Vec<f64>, ReproError>>()?;
        Ok(geometric_mean(&ratios).unwrap_or(f64::NAN))
    };
    let mut best = f64::INFINITY;
    let (mut groups, mut values) = (Vec::new(), Vec::new());
    for (at, (policy, _)) in FIXED.into_iter().chain(OTHERS).enumerate() {
        let mean = over(policy)?;
        if at < FIXED.len() {
            best = best.min(mean);
        }
        outcome.metrics.set(format!("promotion.{}", policy.replace(' ', "_")), mean);
        groups.push(policy.to_owned());
        values.push(mean);
    }
    outcome.metrics.set("promotion.best_fixed", best);
    outcome.charts.push(Chart {
        title: "Latency with other promotion rules".into(),
        about: "Geometric mean over all patterns, relative to the adaptive rule; above 1 the adaptive rule \
                is better."
            .into(),
        drawing: Drawing::Bars {
            axis: Axis::linear("latency relative to the adaptive rule", ""),
            groups,
            series: vec![Bars::new("mean", values)],
            stacked: false,
        },
        references: vec![Reference { name: "equal".into(), value: 1.0 }],
    });
    Ok(outcome)
}
